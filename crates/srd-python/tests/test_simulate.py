"""`opensrd.simulate`: what it takes, what it gives, how it fails and how it is ended."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import threading
import time

import opensrd
import pytest
from opensrd import Measure, Queue, Scenario, faults, topology, workload

COST = {"wall_s", "cpu_s", "packet_hops_per_cpu_s", "peak_rss_bytes"}


def without_cost(text):
    return [{k: v for k, v in run.items() if k not in COST} for run in json.loads(text)]


def command():
    """The command: as OPENSRD_SRD names it, or as it is installed."""
    found = os.environ.get("OPENSRD_SRD") or shutil.which("srd")
    if found is None:
        print("skipped: no command srd: set OPENSRD_SRD")
        pytest.skip("no command srd: set OPENSRD_SRD to its path")
    return found


def test_all_forms_of_a_scenario_are_the_same(small, tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(small)
    plain = {
        "name": "small",
        "transports": ["srd", "tcp"],
        "horizon_us": 100_000.0,
        "topology": {"kind": "leaf-spine", "leaves": 2, "spines": 2, "leaf_hosts": 4},
        "workload": [{"kind": "incast", "senders": 4, "bytes": "64KiB"}],
        "measure": {
            "interval_us": 5.0,
            "flows": True,
            "queues": ["leaf0->host0"],
            "loads": ["leaf0->spine"],
        },
    }
    typed = Scenario(
        name="small",
        transports=("srd", "tcp"),
        horizon_us=100_000.0,
        topology=topology.LeafSpine(leaves=2, spines=2, leaf_hosts=4),
        workload=[workload.Incast(senders=4, bytes="64KiB")],
        measure=Measure(5.0, True, ["leaf0->host0"], ["leaf0->spine"]),
    )
    results = [opensrd.simulate(form) for form in (small, file, str(file), plain, typed)]
    wanted = without_cost(results[0].json)
    assert [run["transport"] for run in wanted] == ["srd", "tcp"]
    for result in results[1:]:
        assert without_cost(result.json) == wanted
        assert result.flows == results[0].flows
        assert result.queues == results[0].queues


def test_results_equal_the_commands(small, tmp_path):
    program = command()
    file, out, csv = tmp_path / "s.toml", tmp_path / "r.json", tmp_path / "out"
    file.write_text(small)
    sets = ["--set", "workload.0.bytes=100kB", "--seeds", "2"]
    line = [program, "sim", "run", file, *sets, "--json", out, "--out", csv]
    subprocess.run(line, check=True, capture_output=True)
    ours = opensrd.simulate(file, workload__0__bytes="100kB", seeds=2)
    assert len(ours.runs) == 4
    assert without_cost(ours.json) == without_cost(out.read_text())
    for number, run in enumerate(ours.runs):
        name = f"small-{run['transport']}-{run['seed']}.csv"
        assert ours.flows_csv(number) == (csv / name).read_text()


def test_messages_equal_the_commands(tmp_path):
    program = command()
    file = tmp_path / "bad.toml"
    for text in (
        'topology = { kind = "ring" }\n',
        'topology = { kind = "fat-tree", k = 5 }\n[[workload]]\nkind = "tornado"\nbytes = 1\n',
        'topology = { kind = "fat-tree", k = 4 }\n',
        "topology = 1\nsurprise = 2\n",
    ):
        file.write_text(text)
        run = subprocess.run([program, "sim", "run", file], capture_output=True, text=True)
        assert run.returncode != 0
        with pytest.raises(opensrd.ScenarioError) as error:
            opensrd.simulate(file)
        assert str(error.value).strip() in run.stderr


def test_overrides_with_dots_and_underscores(small):
    a = opensrd.simulate(small, workload__0__bytes=1000, srd__paths=1, transport="srd")
    dotted = {"workload.0.bytes": "1kB", "srd.paths": 1}
    b = opensrd.simulate(small, overrides=dotted, transports=["srd"])
    assert set(a.flows["bytes"]) == {1000}
    assert without_cost(a.json) == without_cost(b.json)
    whole = opensrd.simulate(small, topology={"kind": "dumbbell", "side_hosts": 4}, measure={})
    assert len(whole.runs) == 2 and len(whole.queues) == 0


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"transport": "quic"}, "no transport `quic`; there are srd,"),
        ({"seeds": 0}, "at least one transport and one seed"),
        ({"nonsense": 1}, "unknown field `nonsense`"),
        ({"workload__7__bytes": 1}, "there is no `7` among 1 entries"),
        ({"queue__bdp": None}, "None is no value"),
        ({"seeds": 100_001}, "at most 100000 runs"),
    ],
)
def test_bad_overrides_say_what_is_wrong(small, overrides, words):
    with pytest.raises(opensrd.ScenarioError, match=words):
        opensrd.simulate(small, **overrides)


def test_scenarios_that_are_none():
    with pytest.raises(opensrd.ScenarioError, match="no such file"):
        opensrd.simulate("nowhere/x.toml")
    with pytest.raises(opensrd.ScenarioError, match="no scenario `x`; there are .*paper-a-incast"):
        opensrd.simulate("x")
    with pytest.raises(TypeError, match="not a int"):
        opensrd.simulate(3)
    with pytest.raises(opensrd.ScenarioError, match="is no part of a scenario"):
        opensrd.simulate({"topology": object()})


def test_strings_of_overrides_are_quoted(small):
    name = 'a "b" \\ \x7f = [1]'
    assert opensrd.simulate(small, name=name, transport="srd").runs[0]["scenario"] == name


def test_tables(small):
    result = opensrd.simulate(small)
    assert len(result.flows) == 8 and len(result.summary) == 2
    assert result.summary["fct_us_max"] == [run["fct_us"]["max"] for run in result.runs]
    assert result.flows.where(transport="srd", src=4).columns == result.flows.columns
    assert sum(result.flows["delivered_bytes"]) == 8 * 65536
    srd = result.goodput.where(transport="srd")
    # The last interval is not whole, and not recorded.
    assert 0 < sum(srd["bytes"]) <= 4 * 65536
    assert set(result.loads["port"]) == {"leaf0->spine0", "leaf0->spine1"}
    assert max(result.queues["bytes"]) > 0
    for row in result.flows:
        assert row["slowdown"] == row["fct_us"] / row["ideal_us"]
    with pytest.raises(KeyError, match="no column 'x'; there are scenario"):
        result.flows["x"]


@pytest.mark.parametrize("package", ["pyarrow", "pandas", "polars"])
def test_tables_of_other_packages(small, package):
    pytest.importorskip(package)
    flows = opensrd.simulate(small, workload__0__bytes="endless", horizon_us=100.0).flows
    assert flows["fct_us"] == [None] * 8
    if package == "pyarrow":
        table = flows.to_arrow()
        assert table.to_pydict() == flows.to_dict()
        assert str(table.schema.field("fct_us").type) == "double"
    elif package == "pandas":
        frame = flows.to_pandas()
        assert list(frame.columns) == flows.columns and frame.fct_us.isna().all()
        assert frame.fct_us.dtype == "float64" and str(frame.bytes.dtype) == "UInt64"
    else:
        frame = flows.to_polars()
        assert frame.to_dicts() == flows.to_dicts()
        assert str(frame.schema["fct_us"]) == "Float64"


def test_without_other_packages_tables_say_so(small, monkeypatch):
    flows = opensrd.simulate(small).flows
    for package in ("pyarrow", "pandas", "polars"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ImportError, match="pip install pyarrow"):
        flows.to_arrow()
    assert flows.best() == flows.to_dicts()


def test_faults_and_queues_of_dataclasses():
    scenario = Scenario(
        topology=topology.LeafSpine(leaves=2, spines=4, leaf_hosts=4),
        workload=[workload.Tornado(bytes="endless")],
        queue=Queue(bdp=3.0),
        fault=[faults.LinkDown("leaf0-spine1", at_us=300.0, until_us=700.0)],
        measure=Measure(interval_us=10.0, flows=True, loads=["leaf0->spine"]),
        horizon_us=1000.0,
    )
    result = opensrd.simulate(scenario)
    assert result.recoveries["links"] == ["leaf0-spine1"]
    assert result.recoveries["at_us"] == [300.0]
    assert result.summary["drops"][0] > 0


def test_unfinished_flows_are_complaints(small):
    result = opensrd.simulate(small, horizon_us=5.0, transport="srd")
    assert len(result.complaints) == 1 and "4 of 4 flows unfinished" in result.complaints[0]
    assert opensrd.simulate(small).complaints == []


def test_progress_is_told(small):
    told = []
    opensrd.simulate(small, seeds=2, threads=4, progress=lambda *news: told.append(news))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    with pytest.raises(ZeroDivisionError):
        opensrd.simulate(LONGER, threads=1, progress=lambda done, all_: 1 / 0)


LONGER = """
topology = { kind = "leaf-spine", leaves = 2, spines = 2, leaf_hosts = 4 }
seeds = 400
[[workload]]
kind = "permutation"
bytes = "256KiB"
"""


def test_ctrl_c_ends_a_run_soon(long_scenario):
    began, used = time.monotonic(), time.process_time()
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        opensrd.simulate(long_scenario)
    # To its end it takes minutes of processor time, however busy the machine is.
    assert time.monotonic() - began > 0.4 and time.process_time() - used < 30


def test_other_threads_run_meanwhile(long_scenario):
    steps = []

    def count():
        time.sleep(0.2)
        while len(steps) <= 10:
            steps.append(time.monotonic())
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=count)
    # Where no other thread runs, nothing interrupts it.
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        opensrd.simulate(long_scenario)
    thread.join()
    assert len(steps) > 10


def test_every_scenario_of_the_project_is_in_the_package():
    there = os.path.join(os.path.dirname(__file__), "..", "..", "..", "scenarios")
    files = {name[:-5]: name for name in os.listdir(there) if name.endswith(".toml")}
    assert set(opensrd.scenarios()) == set(files)
    for name, file in files.items():
        with open(os.path.join(there, file)) as text:
            assert opensrd.scenarios()[name] == text.read()


def test_errors_can_be_sent_to_other_processes():
    for kind in (opensrd.ScenarioError, opensrd.SimulatorError):
        error = pickle.loads(pickle.dumps(kind("text")))
        assert type(error) is kind and str(error) == "text"


def test_the_allocators_setting_does_not_reach_other_programs():
    assert "MIMALLOC_ALLOW_LARGE_OS_PAGES" not in os.environ
