"""Many runs: the product of overrides, on any executor, resumable."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

from . import store
from .executors import WorkerDied, run_tasks
from .progress import Progress
from .simulate import Source, resolve
from .table import Table
from .task import TABLES, Columns, point_text, task_of

#: Values for each override, whose product is run; or the points themselves.
Grid = Union[Mapping[str, Sequence[Any]], Sequence[Mapping[str, Any]]]
Point = dict[str, Any]


class Sweep:
    """Results of all points, in the order of the grid, whatever ran them."""

    def __init__(self, points: list[Point], tables: list[Columns], ran: int) -> None:
        self.points = points
        #: How many points were run now.
        self.ran = ran
        #: How many were found in the directory.
        self.reused = len(points) - ran
        self._tables = tables

    def table(self, name: str = "summary") -> Table:
        """A table of all points: a column per override, then those of `Result`. What a run cost
        is left out, as it differs from machine to machine."""
        if self._tables and name not in self._tables[0]:
            there = ", ".join(self._tables[0])
            raise KeyError(f"no table {name!r} in this sweep (tables={there})")
        overrides = list(dict.fromkeys(key for point in self.points for key in point))
        found = [tables[name] for tables in self._tables]
        names = list(dict.fromkeys(column for columns in found for column in columns))
        # `seed` and the like are columns of the result already.
        keys = [key for key in overrides if key not in names]
        table: dict[str, list[Any]] = {column: [] for column in keys + names}
        for point, columns in zip(self.points, found):
            rows = len(next(iter(columns.values()), []))
            for key in keys:
                table[key] += [_cell(point.get(key))] * rows
            for column in names:
                table[column] += columns.get(column, [None] * rows)
        return Table(table)

    @property
    def summary(self) -> Table:
        """A row per run."""
        return self.table("summary")

    @property
    def flows(self) -> Table:
        """A row per flow, of a sweep with ``tables=("summary", "flows")``."""
        return self.table("flows")

    def __repr__(self) -> str:
        return f"<Sweep of {len(self.points)} points: {self.ran} ran, {self.reused} found>"


def sweep(
    scenario: Source,
    grid: Grid,
    *,
    executor: Any = "processes",
    workers: Optional[int] = None,
    directory: Union[None, str, "os.PathLike[str]"] = None,
    format: str = "jsonl",
    tables: Sequence[str] = ("summary",),
    progress: bool = True,
) -> Sweep:
    """Runs a scenario with every combination of overrides.

    `grid` names values for each override, as in ``{"srd.paths": [1, 16], "seed": range(10)}``; or
    it is a list of points, each a dict of overrides. Underscores may stand for dots as in
    `simulate`.

    `executor` is "processes" (`workers` of them, one per core), "threads", "serial", "ray", a
    ``concurrent.futures.Executor``, a client of Dask, or the module ray. The table is the same
    from each.

    With `directory` every point's results are kept there as soon as it is done, as JSON lines or
    (`format="parquet"`, with pyarrow) Parquet, under a name made of the scenario, its overrides,
    the contents of files that it names, and the version. A sweep that was ended goes on where it
    was: points that are there are not run again, files that are not whole are.

    `tables` are what is kept: "summary", "flows", "queues", "loads", "goodput", "recoveries".

    Raises `ScenarioError` for a point that makes no world; what was done before is kept.
    """
    names = tuple(dict.fromkeys(tables))
    for name in names:
        if name not in TABLES:
            raise ValueError(f"no table {name!r}; there are {', '.join(TABLES)}")
    points = _points(grid)
    tasks = [task_of(resolve(scenario, point), point, names) for point in points]
    kept = None if directory is None else store.Store(directory, format, names)
    results = [None if kept is None else kept.load(task["key"]) for task in tasks]
    todo = [n for n, result in enumerate(results) if result is None]
    with Progress(len(points), len(points) - len(todo), progress) as told:
        for number, columns in run_tasks(executor, [tasks[n] for n in todo], workers):
            place = todo[number]
            if kept is not None:
                kept.save(tasks[place]["key"], points[place], columns)
            results[place] = columns
            told.step(point_text(points[place]))
    done = [result for result in results if result is not None]
    assert len(done) == len(points), "every point was found or run"
    return Sweep(points, done, len(todo))


def _points(grid: Grid) -> list[Point]:
    def dotted(point: Mapping[str, Any]) -> Point:
        return {key.replace("__", "."): value for key, value in point.items()}

    if isinstance(grid, Mapping):
        axes = dotted(grid)
        for key, values in axes.items():
            if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
                raise TypeError(f"grid[{key!r}] is a list of values, not {values!r}")
        return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]
    return [dotted(point) for point in grid]


def _cell(value: Any) -> Any:
    """A value that fits into one column with others."""
    return value if isinstance(value, (str, bool, int, float, type(None))) else str(value)


__all__ = ["Grid", "Sweep", "WorkerDied", "sweep"]
