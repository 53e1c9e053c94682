"""A point of a sweep as plain data, which any process on any machine can run."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Mapping
from typing import Any, Optional

from . import _native
from .result import COST, TABLES, Result
from .scenario import to_plain
from .sizes import NAMES

#: Tables by name, each as columns by name.
Columns = dict[str, dict[str, list[Any]]]
#: What `run_task` takes; JSON knows all of it.
Task = dict[str, Any]


def task_of(
    scenario: _native.Scenario, point: Mapping[str, Any], tables: tuple[str, ...]
) -> Task:
    """The task of a scenario with overrides applied."""
    directory = os.path.abspath(os.fspath(scenario.directory))
    return {
        "origin": point_text(point),
        "toml": scenario.toml(),
        "directory": directory,
        "tables": list(tables),
        "key": _key(scenario.json(), directory, point),
    }


def run_task(task: Task) -> Columns:
    """Runs a task on one thread. Without what the run cost, which is not the scenario's."""
    scenario = _native.Scenario.read(task["origin"], task["toml"], task["directory"], [])
    result = Result(scenario.run(threads=1))
    tables: Columns = {name: getattr(result, name).to_dict() for name in task["tables"]}
    if "summary" in tables:
        for name in COST:
            tables["summary"].pop(name, None)
    return tables


def point_text(point: Mapping[str, Any]) -> str:
    """A point for people."""
    return ", ".join(f"{key}={value}" for key, value in point.items()) or "the scenario"


def _key(text: str, directory: str, point: Mapping[str, Any]) -> str:
    """A name for the results: of scenario, overrides, files and version."""
    scenario = json.loads(text)
    files = {name: _digest(os.path.join(directory, name)) for name in _named(scenario, directory)}
    whole = [_native.__version__, scenario, to_plain(point), files]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]


def _named(scenario: Mapping[str, Any], directory: str) -> list[str]:
    """The files that a scenario names."""
    named = [scenario["topology"].get("path")]
    for work in scenario["workload"]:
        if work["kind"] == "chakra":
            named += _traces(work["path"], directory)
        else:
            named.append(work.get("path"))
        named.append(work.get("groups"))
        if work.get("sizes") not in NAMES:
            named.append(work.get("sizes"))
    return list(filter(None, named))


def _traces(prefix: str, directory: str) -> list[str]:
    """The files of a Chakra trace."""
    names = (f"{prefix}.{rank}.et" for rank in itertools.count())
    return list(itertools.takewhile(lambda n: os.path.isfile(os.path.join(directory, n)), names))


def _digest(path: str) -> Optional[str]:
    """What a file contains; `None` if it cannot be read: the run will say so."""
    whole = hashlib.sha256()
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            while part := file.read(1 << 20):
                whole.update(part)
    except OSError:
        return None
    return whole.hexdigest()


__all__ = ["TABLES", "Columns", "Task", "point_text", "run_task", "task_of"]
