#!/usr/bin/env python3
"""Runs programs that use AWS's SDKs of three languages against `srd control up`.

    python3 crates/srd-control/tests/clients/run.py [--srd PROGRAM] [--folder PATH] [go|node|java ...]

Each program creates, reads and deletes objects, and compares all values. The SDKs come from the
registries of the languages, and are kept in target/clients or in the folder of --folder. A language
that is not installed is reported and left out. The exit status is 1 if a program fails, and 2 if
no program has run.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]
SERVER_S = 60
# The longest run of a client. The SDKs of Go and Java are large.
CLIENT_S = 1800


class Server:
    """A server with a state of its own, and the environment of its clients."""

    def __init__(self, program):
        self.directory = tempfile.TemporaryDirectory()
        key_file = pathlib.Path(self.directory.name) / "key.env"
        command = [program, "control", "up", "--trial", "--state-only", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*command, "--key-file", key_file], stdout=subprocess.PIPE, text=True
        )
        # The file is complete when the server prints its path.
        if not any("the access key is in" in line for line in self.process.stdout):
            sys.exit("the server has ended")
        lines = key_file.read_text().splitlines()
        self.environment = dict(line.split("=", 1) for line in lines)

    def end(self):
        self.process.terminate()
        self.process.wait(SERVER_S)
        self.directory.cleanup()


def call(command, folder, environment):
    """Runs a command. Returns whether it succeeds, and its output."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=CLIENT_S,
    )
    return done.returncode == 0, done.stdout.strip()


def steps(language, folder):
    """The commands that build and run the program of a language."""
    # One processor at a time, because the compiler of Go needs much memory for this SDK.
    go = ["env", f"GOPATH={folder}/path", f"GOCACHE={folder}/cache", "GOFLAGS=-modcacherw -p=1"]
    maven = ["mvn", "-q", "-B", f"-Dmaven.repo.local={folder}/repository"]
    return {
        "go": [[*go, "go", "mod", "tidy"], [*go, "go", "build", "-o", "client", "."], ["./client"]],
        "node": [["npm", "install", "--no-audit", "--no-fund", "--silent"], ["node", "client.mjs"]],
        "java": [
            [*maven, "package", "dependency:build-classpath", "-Dmdep.outputFile=classpath"],
            ["sh", "-c", 'exec java -cp "target/classes:$(cat classpath)" Client'],
        ],
    }[language]


def run(language, folder, program):
    """Builds and runs the program of a language. Returns whether it succeeds, and its output."""
    own = folder / language
    shutil.copytree(HERE / language, own / "program", dirs_exist_ok=True)
    *build, last = steps(language, own)
    for command in build:
        succeeds, text = call(command, own / "program", None)
        if not succeeds:
            return False, text
    server = Server(program)
    try:
        # Settings of the user must not reach the client.
        kept = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        return call(last, own / "program", {**kept, "HOME": str(own), **server.environment})
    finally:
        server.end()


def main():
    tools = {"go": ["go"], "node": ["node", "npm"], "java": ["java", "mvn"]}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--srd", type=pathlib.Path, default=ROOT / "target" / "debug" / "srd")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target" / "clients")
    parser.add_argument("languages", nargs="*", metavar="LANGUAGE", help="go, node, java")
    arguments = parser.parse_args()
    if set(arguments.languages) - set(tools):
        parser.error("the languages are go, node and java")
    folder = arguments.folder.resolve()
    wrong, count = 0, 0
    for language in arguments.languages or tools:
        lacking = [tool for tool in tools[language] if shutil.which(tool) is None]
        if lacking:
            print(f"{language}: left out, because this machine lacks {' and '.join(lacking)}")
            continue
        count += 1
        succeeds, text = run(language, folder, arguments.srd.resolve())
        wrong += not succeeds
        # The last line of a program that succeeds; other lines are warnings of its SDK.
        text = text.splitlines()[-1] if succeeds else f"fails: {text}"
        print(f"{language}: {text}", flush=True)
    sys.exit(2 if count == 0 else 1 if wrong else 0)


if __name__ == "__main__":
    main()
