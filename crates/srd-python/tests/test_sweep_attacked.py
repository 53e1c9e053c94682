"""`opensrd.sweep` in a directory that others write to, and in a world that does not go as it should."""

import json
import os
import subprocess
import sys

import opensrd
import pytest
from conftest import PATIENCE

FORMATS = ["jsonl", "parquet"]
GRID = {"seed": [1, 2], "transport": ["srd"]}


def sweep(small, directory, format="jsonl"):
    if format == "parquet":
        pytest.importorskip("pyarrow")
    options = {"executor": "serial", "directory": directory, "format": format, "progress": False}
    return opensrd.sweep(small, GRID, **options)


@pytest.mark.parametrize("format", FORMATS)
def test_regression_results_of_another_point_are_not_believed(small, tmp_path, format):
    first = sweep(small, tmp_path, format)
    one, other = sorted(tmp_path.iterdir())
    one.write_bytes(other.read_bytes())
    again = sweep(small, tmp_path, format)
    assert (again.ran, again.reused) == (1, 1)
    assert again.summary == first.summary and again.summary["seed"] == [1, 2]


def test_regression_a_file_that_lacks_columns_is_not_whole(small, tmp_path):
    first = sweep(small, tmp_path)
    file = sorted(tmp_path.iterdir())[0]
    head, *rows = file.read_text().splitlines()
    cut = json.loads(head)
    cut["columns"] = cut["columns"][:3]
    file.write_text("\n".join([json.dumps(cut), *rows]) + "\n")
    again = sweep(small, tmp_path)
    assert again.ran == 1 and again.summary == first.summary


def test_regression_json_without_end_is_no_result(small, tmp_path):
    sweep(small, tmp_path)
    sorted(tmp_path.iterdir())[0].write_text("[" * 200_000 + '\n{"end": 0}\n')
    assert sweep(small, tmp_path).ran == 1


@pytest.mark.parametrize("format", FORMATS)
def test_regression_a_queue_in_the_place_of_results_is_not_waited_for(small, tmp_path, format):
    first = sweep(small, tmp_path, format)
    file = sorted(tmp_path.iterdir())[0]
    file.unlink()
    os.mkfifo(file)
    again = sweep(small, tmp_path, format)
    assert again.ran == 1 and again.summary == first.summary
    assert file.is_file()


@pytest.mark.parametrize("format", FORMATS)
def test_regression_damage_of_any_byte_ends_no_sweep(small, tmp_path, format):
    sweep(small, tmp_path, format)
    file = sorted(tmp_path.iterdir())[0]
    whole = file.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 200)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        assert len(sweep(small, tmp_path, format).points) == 2
    # Names and texts that are no UTF-8.
    file.write_bytes(whole.replace(b"transport", b"transpor\xfa"))
    assert sweep(small, tmp_path, format).ran == 1


@pytest.mark.parametrize("format", FORMATS)
def test_regression_nothing_is_written_through_a_link(small, tmp_path, format, monkeypatch):
    outside, directory = tmp_path / "outside", tmp_path / "results"
    sweep(small, directory, format)
    names = [file.name for file in directory.iterdir()]
    for name in names:
        (directory / name).unlink()
        # What a sweep of earlier versions wrote to, before it took its place.
        (directory / f".{name}.{os.getpid()}").symlink_to(outside)
        (directory / f".{name}.{'ab' * 8}").symlink_to(outside)
    monkeypatch.setattr("secrets.token_hex", lambda count: "ab" * count)
    with pytest.raises(FileExistsError):
        sweep(small, directory, format)
    monkeypatch.undo()
    sweep(small, directory, format)
    assert not outside.exists()


def test_regression_a_disk_without_room_is_named(small, tmp_path):
    sweep(small, tmp_path)
    program = (
        "import opensrd, resource, signal, sys\n"
        "from conftest import SMALL\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: opensrd.sweep(SMALL, {'seed': [9]}, executor='serial', directory=sys.argv[1])\n"
        "except OSError as error: print(error)\n"
    )
    here = os.path.dirname(__file__)
    run = [sys.executable, "-c", program, str(tmp_path)]
    said = subprocess.run(run, cwd=here, capture_output=True, text=True, check=True).stdout
    assert "File too large" in said and str(tmp_path) in said, said
    assert len(list(tmp_path.iterdir())) == 2, "nothing half written stays"


def trace(microseconds):
    """A Chakra trace of two ranks, of which one computes and sends to the other."""

    def number(value):
        coded = b""
        while value > 0x7F:
            coded, value = coded + bytes([value & 0x7F | 0x80]), value >> 7
        return coded + bytes([value])

    def text(tag, value):
        return number(tag << 3 | 2) + number(len(value)) + value

    def attribute(name, value):
        return text(10, text(1, name) + number(13 << 3) + number(value))

    def node(identity, kind, *more):
        return number(1 << 3) + number(identity) + number(3 << 3) + number(kind) + b"".join(more)

    size = attribute(b"comm_size", 100_000)
    time_us = number(7 << 3) + number(microseconds)
    wait = number(4 << 3) + number(1)
    ranks = [
        [node(1, 4, time_us), node(2, 5, wait, size, attribute(b"comm_dst", 1))],
        [node(1, 6, size, attribute(b"comm_src", 0))],
    ]
    whole = [[text(1, b"0.0.4"), *nodes] for nodes in ranks]
    return [b"".join(number(len(part)) + part for part in parts) for parts in whole]


def test_regression_the_files_of_a_trace_are_part_of_a_scenario(tmp_path):
    def write(microseconds):
        for rank, bytes_ in enumerate(trace(microseconds)):
            (tmp_path / f"step.{rank}.et").write_bytes(bytes_)

    scenario = {
        "topology": {"kind": "leaf-spine", "leaves": 2, "spines": 2, "leaf_hosts": 4},
        "transports": ["srd"],
        "workload": [{"kind": "chakra", "path": str(tmp_path / "step")}],
    }
    options = {"executor": "serial", "directory": tmp_path / "results", "progress": False}
    write(10)
    one = opensrd.sweep(scenario, {"seed": [1]}, **options)
    assert opensrd.sweep(scenario, {"seed": [1]}, **options).ran == 0
    write(5_000)
    other = opensrd.sweep(scenario, {"seed": [1]}, **options)
    assert other.ran == 1 and other.summary != one.summary


def test_regression_what_others_print_is_no_answer(small, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('hello', flush=True)\n")
    program = (
        "import opensrd\n"
        "from conftest import SMALL\n"
        "made = opensrd.sweep(SMALL, {'seed': [1, 2]}, workers=2, progress=False)\n"
        "print(made.ran)\n"
    )
    here = os.path.dirname(__file__)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    options = {"cwd": here, "capture_output": True, "text": True, "env": environment}
    run = subprocess.run([sys.executable, "-c", program], timeout=2 * PATIENCE, **options)
    assert run.stdout == "hello\n2\n", run.stderr
