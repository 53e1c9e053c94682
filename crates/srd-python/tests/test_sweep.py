"""`opensrd.sweep`: the same table from every executor, and nothing is done twice."""

import concurrent.futures
import json
import os
import select
import signal
import subprocess
import sys
import time

import opensrd
import pytest
from conftest import PATIENCE, busy_child_of, children_of, eventually

GRID = {"workload__0__bytes": ["8KiB", "64KiB"], "seed": range(3), "transport": ["srd"]}
TABLES = ("summary", "flows")


@pytest.fixture(scope="module")
def wanted():
    from conftest import SMALL

    return opensrd.sweep(SMALL, GRID, executor="serial", tables=TABLES)


def same(sweep, wanted):
    return sweep.summary == wanted.summary and sweep.flows == wanted.flows


def test_the_table_has_a_row_for_each_point(wanted, small):
    assert len(wanted.summary) == 6 and wanted.ran == 6 and wanted.reused == 0
    assert wanted.summary["workload.0.bytes"] == ["8KiB"] * 3 + ["64KiB"] * 3
    assert wanted.summary["seed"] == [0, 1, 2] * 2
    assert len(wanted.flows) == 6 * 4
    one = opensrd.simulate(small, workload__0__bytes="64KiB", seed=2, transport="srd")
    assert wanted.summary["fct_us_max"][-1] == one.summary["fct_us_max"][0]
    assert wanted.flows["fct_us"][-4:] == one.flows["fct_us"]
    assert not {"wall_s", "cpu_s", "peak_rss_bytes"} & set(wanted.summary.columns)


@pytest.mark.parametrize("executor", ["processes", "threads"])
def test_own_executors_give_the_same_table(small, wanted, executor):
    sweep = opensrd.sweep(small, GRID, executor=executor, workers=2, tables=TABLES)
    assert same(sweep, wanted)


def test_regression_processes_import_nothing_from_the_current_directory(
    small, wanted, tmp_path, monkeypatch
):
    (tmp_path / "json.py").write_text("raise SystemExit('a file of another user')\n")
    monkeypatch.chdir(tmp_path)
    sweep = opensrd.sweep(small, GRID, executor="processes", workers=1, tables=TABLES)
    assert same(sweep, wanted)


@pytest.mark.parametrize(
    "pool", [concurrent.futures.ThreadPoolExecutor, concurrent.futures.ProcessPoolExecutor]
)
def test_executors_of_the_standard_library_give_the_same_table(small, wanted, pool):
    with pool(2) as executor:
        assert same(opensrd.sweep(small, GRID, executor=executor, tables=TABLES), wanted)


@pytest.mark.slow
def test_dask_gives_the_same_table(small, wanted):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        assert same(opensrd.sweep(small, GRID, executor=client, tables=TABLES), wanted)
        with pytest.raises(opensrd.ScenarioError, match="nowhere"):
            opensrd.sweep(small, {"seed": [1], "fault": [BAD_FAULT]}, executor=client)


BAD_FAULT = [{"kind": "link-down", "links": "nowhere", "at_us": 1.0}]


RAY = """
import json, opensrd, ray
from conftest import SMALL
from test_sweep import BAD_FAULT, GRID, TABLES
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
for executor in ("ray", ray):
    made = opensrd.sweep(SMALL, GRID, executor=executor, tables=TABLES, progress=False)
    print(json.dumps([made.summary.to_dict(), made.flows.to_dict()]))
# More points than Ray is given at a time.
many = opensrd.sweep(SMALL, {"seed": range(30)}, executor=ray, progress=False)
assert many.summary["seed"] == [seed for seed in range(30) for _ in ("srd", "tcp")]
try:
    opensrd.sweep(SMALL, {"fault": [BAD_FAULT]}, executor=ray, progress=False)
except opensrd.ScenarioError as error:
    print(error)
ray.shutdown()
"""


@pytest.mark.slow
def test_ray_gives_the_same_table(wanted):
    pytest.importorskip("ray")
    # In a process of its own: what goes wrong in Ray's core ends the process that it is in.
    here = os.path.dirname(__file__)
    run = subprocess.run([sys.executable, "-c", RAY], cwd=here, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    one, other, error = run.stdout.splitlines()
    tables = [wanted.summary.to_dict(), wanted.flows.to_dict()]
    assert json.loads(one) == tables and json.loads(other) == tables
    assert "`nowhere` is neither a host nor a switch" in error


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_what_is_finished_is_not_repeated(small, wanted, tmp_path, format):
    if format == "parquet":
        pytest.importorskip("pyarrow")
    options = {"executor": "serial", "directory": tmp_path, "format": format, "tables": TABLES}
    half = {**GRID, "seed": [1]}
    assert opensrd.sweep(small, half, **options).ran == 2
    again = opensrd.sweep(small, GRID, **options)
    assert (again.ran, again.reused) == (4, 2) and same(again, wanted)
    third = opensrd.sweep(small, GRID, **options)
    assert (third.ran, third.reused) == (0, 6) and same(third, wanted)
    # Neither comments nor the order of keys make another scenario; numbers do.
    assert opensrd.sweep(small + "# the same\n", GRID, **options).ran == 0
    assert opensrd.sweep(small, {**GRID, "srd.paths": [1]}, **options).ran == 6


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_half_a_file_is_ignored(small, wanted, tmp_path, format):
    if format == "parquet":
        pytest.importorskip("pyarrow")
    options = {"executor": "serial", "directory": tmp_path, "format": format, "tables": TABLES}
    opensrd.sweep(small, GRID, **options)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 12
    for file, keep in zip(files[::2], (0, 10, 0.5, 0.9, 0.99, -1)):
        whole = file.read_bytes()
        part = int(len(whole) * keep) if 0 < keep < 1 else keep
        file.write_bytes(whole[:part])
    again = opensrd.sweep(small, GRID, **options)
    assert again.ran == 6 and same(again, wanted)


def test_lines_that_are_json_and_no_results_are_ignored(small, wanted, tmp_path):
    options = {"executor": "serial", "directory": tmp_path, "tables": TABLES}
    opensrd.sweep(small, GRID, **options)
    texts = ["", "3\n", "[]\n[]\n", '{"end": 0}\n', '{}\n{"end": 0}\n', '{"columns": []}\n{}\n']
    for file, text in zip(sorted(tmp_path.iterdir())[::2], texts):
        file.write_text(text)
    again = opensrd.sweep(small, GRID, **options)
    assert again.ran == 6 and same(again, wanted)


def test_a_file_that_a_scenario_names_is_part_of_it(tmp_path):
    sizes = tmp_path / "sizes.csv"
    scenario = {
        "topology": {"kind": "leaf-spine", "leaves": 2, "spines": 2, "leaf_hosts": 4},
        "workload": [
            {"kind": "poisson", "load": 0.3, "sizes": str(sizes), "duration_us": 50.0}
        ],
    }
    options = {"executor": "serial", "directory": tmp_path / "results"}
    sizes.write_text("1000,0.5\n2000,1.0\n")
    one = opensrd.sweep(scenario, {"seed": [1]}, **options)
    assert opensrd.sweep(scenario, {"seed": [1]}, **options).ran == 0
    sizes.write_text("10000,0.5\n20000,1.0\n")
    other = opensrd.sweep(scenario, {"seed": [1]}, **options)
    assert other.ran == 1 and other.summary != one.summary


#: Runs a sweep of 60 points. With a number as the second argument, it waits after so many points.
PROGRAM = """
import json, sys, time, opensrd
from conftest import PATIENCE, SMALL
from opensrd.store import Store
save, saved, most = Store.save, [], [int(number) for number in sys.argv[2:]]
def save_and_wait(*given):
    save(*given)
    saved.append(given)
    if len(saved) in most:
        time.sleep(4 * PATIENCE)
Store.save = save_and_wait
made = opensrd.sweep(SMALL, {"seed": range(60), "workload.0.bytes": ["2MiB"]},
                     workers=2, directory=sys.argv[1], progress=False)
print(json.dumps([made.ran, made.reused, made.summary.to_dict()]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_was_killed_goes_on_where_it_was(tmp_path, number):
    here = os.path.dirname(__file__)
    run = [sys.executable, "-c", PROGRAM, str(tmp_path / "results")]
    # If this process stands still, the sweep does not end meanwhile: it waits after 40 points.
    options = {"cwd": here, "stderr": subprocess.DEVNULL, "start_new_session": True}
    first = subprocess.Popen([*run, "40"], **options)
    try:
        deadline = time.monotonic() + PATIENCE
        while len(list(tmp_path.glob("results/*.jsonl"))) < 5:
            assert time.monotonic() < deadline and first.poll() is None
            time.sleep(0.01)
        first.send_signal(number)
        first.wait(PATIENCE)
    finally:
        first.kill()
    assert first.returncode != 0
    there = {f: f.stat().st_mtime_ns for f in tmp_path.glob("results/*.jsonl")}
    assert 5 <= len(there) <= 40
    text = subprocess.run(run, cwd=here, capture_output=True, check=True).stdout
    ran, reused, columns = json.loads(text)
    assert (ran, reused) == (60 - len(there), len(there))
    assert all(f.stat().st_mtime_ns == at for f, at in there.items())
    assert columns["seed"] == [seed for seed in range(60) for _ in ("srd", "tcp")]


def test_a_point_that_makes_no_world_is_named_and_the_others_are_kept(small, tmp_path):
    grid = {"topology.leaf_hosts": [4, 0]}
    for executor in ("serial", "threads", "processes"):
        directory = tmp_path / executor
        with pytest.raises(opensrd.ScenarioError, match="topology.leaf_hosts=0"):
            opensrd.sweep(small, grid, executor=executor, workers=1, directory=directory)
        assert len(list(directory.iterdir())) == 1


def test_a_process_that_dies_is_an_error_that_names_the_point(long_scenario):
    program = (
        "import opensrd, sys\n"
        f"try: opensrd.sweep({long_scenario!r}, {{'seed': [7]}})\n"
        "except opensrd.WorkerDied as e: print(e)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        workers = eventually(lambda: children_of(parent.pid))
        os.kill(workers[0], signal.SIGKILL)
        said = parent.communicate(timeout=PATIENCE)[0]
    finally:
        parent.kill()
    assert said == "seed=7: its process ended with -9\n"


def test_bad_arguments_say_what_to_do(small, tmp_path):
    with pytest.raises(TypeError, match="take 'processes', 'threads'"):
        opensrd.sweep(small, GRID, executor="mpi")
    with pytest.raises(TypeError, match="is a list of values"):
        opensrd.sweep(small, {"transport": "srd"})
    with pytest.raises(ValueError, match="no table 'x'; there are summary"):
        opensrd.sweep(small, GRID, tables=["x"])
    with pytest.raises(ValueError, match="no format 'csv'"):
        opensrd.sweep(small, GRID, directory=tmp_path, format="csv")
    with pytest.raises(ValueError, match="workers must be at least 1"):
        opensrd.sweep(small, GRID, workers=0)
    with pytest.raises(KeyError, match="tables=summary"):
        opensrd.sweep(small, {"seed": [1]}, executor="serial").flows


def test_points_of_a_list(small):
    points = [{"seed": 4}, {"seed": 5, "srd.paths": 1, "transports": ["srd"]}]
    sweep = opensrd.sweep(small, points, executor="serial")
    assert sweep.summary["seed"] == [4, 4, 5]
    assert sweep.summary["srd.paths"] == [None, None, 1]


def test_without_a_bar_lines_tell_how_far_it_is(small, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr("opensrd.progress.SILENT_S", 0)
    monkeypatch.setattr("opensrd.progress.EVERY_S", 0)
    opensrd.sweep(small, {"seed": [1, 2]}, executor="serial")
    assert capsys.readouterr().err == "[1/2] seed=1\n[2/2] seed=2\n"
    opensrd.sweep(small, {"seed": [1, 2]}, executor="serial", progress=False)
    assert capsys.readouterr().err == ""


def test_regression_processes_end_with_a_sweep_that_was_killed(long_scenario):
    program = f"import opensrd; opensrd.sweep({long_scenario!r}, {{'seed': [7]}}, workers=1)"
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        busy = busy_child_of(parent.pid)
        assert busy is not None, "a worker is in the middle of its point"
        worker = os.pidfd_open(busy)
    finally:
        parent.kill()
    parent.wait(PATIENCE)
    ended, _, _ = select.select([worker], [], [], PATIENCE)
    os.close(worker)
    if not ended:
        os.kill(busy, signal.SIGKILL)
    assert ended, "nobody reads what it works on"
