#!/usr/bin/env python3
"""Runs moto's public tests against `srd control up`, and compares the outcome with a list.

    python3 crates/srd-control/tests/moto.py [--srd PROGRAM] [--plain] [TEST ...]

The tests come from moto's source distribution, which pip fetches into target/moto at the first run.
`moto_failures.txt` contains the tests that fail, each with its reason. The exit status is 1 if
another test fails, or if one of these tests passes. With --plain, the plugin `moto_setup.py` is not
used, so that all requests are sent as the tests make them; the counts are printed only. TEST is a
file of `FILES` or one of its tests, for example `test_vpcs.py::test_vpc_defaults`; without it all
files of `FILES` run.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import venv
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FOLDER = ROOT / "target" / "moto"
FAILURES = HERE / "moto_failures.txt"
MOTO = "5.2.5"
SHA256 = "391857257d5dac144334013c2c10e599def5f0562f553e979160140bd7bd9cf6"
PACKAGES = [f"moto[server]=={MOTO}", "boto3==1.44.5", "pytest==9.2.0", "freezegun", "parameterized"]

# Files about virtual private clouds.
CORE = """vpcs subnets security_groups network_acls route_tables elastic_network_interfaces
internet_gateways egress_only_igw nat_gateway vpc_peering flow_logs prefix_lists dhcp_options
elastic_ip_addresses tags""".split()
# Files about the objects around them.
MORE = """transit_gateway transit_gateway_peering_attachments vpc_endpoint_services_integration
vpc_service_configuration_integration carrier_gateways customer_gateways virtual_private_gateways
vpn_connections traffic_mirrors general account_attributes availability_zones_and_regions""".split()
# Files about launches.
LAUNCH = "launch_templates instance_types instance_type_offerings".split()
# Files about Auto Scaling, in another folder.
SCALING = "autoscaling autoscaling_groups autoscaling_group_filters autoscaling_tags".split()
FILES = [f"test_{name}.py" for name in CORE + MORE + LAUNCH + SCALING]
SERVER_S = 60


def fetch():
    """Fetches moto's tests and what they need, unless they are there."""
    python = FOLDER / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    if not (FOLDER / "venv.done").exists():
        venv.create(FOLDER / "venv", with_pip=True, clear=True)
        subprocess.run(pip + ["install"] + PACKAGES, check=True)
        (FOLDER / "venv.done").touch()
    archive = FOLDER / f"moto-{MOTO}.tar.gz"
    if not archive.exists():
        options = ["--no-deps", "--no-binary", ":all:", "--dest", FOLDER]
        subprocess.run(pip + ["download", *options, f"moto=={MOTO}"], check=True)
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SHA256:
        sys.exit(f"{archive} is not the expected file")
    tests = FOLDER / f"moto-{MOTO}"
    if not tests.exists():
        with tarfile.open(archive) as tar:
            tar.extractall(FOLDER, filter="data")
    return python, tests


def start(program):
    """Starts the server, and returns it with its address."""
    command = [program, "control", "up", "--trial", "--any-credentials", "--state-only"]
    server = subprocess.Popen(
        command + ["--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    for line in server.stdout:
        found = re.search(r"http://[0-9.:]+", line)
        if found:
            return server, found.group()
    sys.exit("the server has not printed its address")


def folder(name):
    """The folder of a file or a test."""
    file = name.split("::")[0].removeprefix("test_").removesuffix(".py")
    return "tests/test_autoscaling" if file in SCALING else "tests/test_ec2"


def run(python, tests, address, names, plain):
    """Runs tests. Returns outcome and text for each, and the tests whose requests were changed."""
    report, prepared = FOLDER / "report.xml", FOLDER / "prepared.json"
    prepared.unlink(missing_ok=True)
    environment = dict(
        os.environ,
        AWS_ACCESS_KEY_ID="x",
        AWS_SECRET_ACCESS_KEY="x",
        AWS_DEFAULT_REGION="us-east-1",
        TEST_SERVER_MODE="true",
        TEST_SERVER_MODE_ENDPOINT=address,
        MOTO_PREPARED=str(prepared),
        PYTHONPATH=str(HERE),
    )
    options = ["-q", "-p", "no:cacheprovider", "--color=no", "--tb=short"]
    if not plain:
        options += ["-p", "moto_setup"]
    paths = [f"{folder(name)}/{name}" for name in names]
    command = [python, "-m", "pytest", *options, f"--junitxml={report}", *paths]
    with open(FOLDER / "output.txt", "w") as output:
        subprocess.run(command, cwd=tests, env=environment, stdout=output, stderr=output)
    outcomes = {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        # The last part may be a class of the file.
        parts = [part for part in case.get("classname").split(".") if part.startswith("test_")]
        name = f"{parts[-1]}.py::{case.get('name')}"
        outcome, text = "passed", ""
        for kind in ("failure", "error", "skipped"):
            for part in case.findall(kind):
                outcome, text = kind, part.get("message") or ""
        outcomes[name] = ("failure" if outcome == "error" else outcome, text)
    changed = json.loads(prepared.read_text()) if prepared.exists() else []
    return outcomes, {re.sub("^tests/[^/]+/", "", name) for name in changed}


def expected():
    """The tests that fail, with their reasons."""
    reasons = {}
    for line in FAILURES.read_text().splitlines() if FAILURES.exists() else []:
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition("  ")
            if not reason.strip():
                sys.exit(f"{FAILURES}: {name} has no reason")
            reasons[name] = reason.strip()
    return reasons


def count(outcomes, changed, files, title):
    """Prints the number of tests that pass."""
    own = {name: outcome for name, (outcome, _) in outcomes.items() if name.split("::")[0] in files}
    counted = [name for name, outcome in own.items() if outcome != "skipped"]
    passed = [name for name in counted if own[name] == "passed"]
    print(
        f"{title}: {len(passed)} of {len(counted)} pass, {len(own) - len(counted)} are skipped; "
        f"{len(changed.intersection(passed))} pass with a preparation that was made valid"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--srd", default=ROOT / "target" / "debug" / "srd", help="the program")
    parser.add_argument("--plain", action="store_true", help="send requests as the tests make them")
    parser.add_argument("tests", nargs="*", metavar="TEST")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    python, tests = fetch()
    server, address = start(arguments.srd)
    try:
        outcomes, changed = run(python, tests, address, arguments.tests or FILES, arguments.plain)
    finally:
        server.terminate()
        server.wait(SERVER_S)
    core = {f"test_{name}.py" for name in CORE}
    count(outcomes, changed, core, "virtual private clouds")
    count(outcomes, changed, {f"test_{name}.py" for name in LAUNCH}, "launches")
    count(outcomes, changed, {f"test_{name}.py" for name in SCALING}, "Auto Scaling")
    count(outcomes, changed, set(FILES), "all")
    if arguments.plain:
        return
    reasons = expected()
    wrong = 0
    for name, (outcome, text) in outcomes.items():
        if outcome == "failure" and name not in reasons:
            wrong += 1
            print(f"{name} fails: {text.splitlines()[0][:400] if text else ''}")
        elif outcome == "failure":
            print(f"{name} fails as listed: {reasons[name]}")
        elif outcome == "passed" and name in reasons:
            wrong += 1
            print(f"{name} passes, but is in {FAILURES.name}")
    if not arguments.tests:
        for name in reasons.keys() - outcomes.keys():
            wrong += 1
            print(f"{name} is in {FAILURES.name}, but no such test exists")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
