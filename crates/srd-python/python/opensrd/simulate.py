"""One scenario, run here."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

from . import _native
from ._native import TRANSPORTS, ScenarioError
from .result import Result
from .scenario import Scenario, to_plain

#: A path, a name, TOML text, a dict with the structure of the TOML, or dataclasses.
Source = Union[str, "os.PathLike[str]", Mapping[str, Any], Scenario]


def simulate(
    scenario: Source,
    *,
    overrides: Optional[Mapping[str, Any]] = None,
    threads: Optional[int] = None,
    progress: Optional[Callable[[int, int], object]] = None,
    **more: Any,
) -> Result:
    """Runs every transport of a scenario with every seed.

    `scenario` is the path of a TOML file, the name of a scenario (see `scenarios`), TOML text, a
    dict, or a `Scenario`. Overrides are as of ``srd sim run --set``, as in
    ``overrides={"srd.paths": 16}``, or arguments with two underscores for the dot, as in
    ``srd__paths=16`` and ``workload__0__bytes="64KiB"``. `transport` or `transports`, `seed` and `seeds` say what is run.

    `threads` runs go at a time, by default one per core; other threads of Python go on meanwhile.
    `progress` is called with the number of runs that are done, and of all. Ctrl-C ends it within
    a fraction of a second.

    Raises `ScenarioError` with the text of the command, and `SimulatorError` if packets do not
    add up. Flows that did not finish are no exception: see `Result.complaints`.
    """
    native = resolve(scenario, {**(overrides or {}), **more})
    return Result(native.run(threads=threads, said=progress))


def scenarios() -> dict[str, str]:
    """The scenarios that come with the package: their names and TOML texts."""
    return dict(_native.bundled())


def resolve(scenario: Source, overrides: Mapping[str, Any]) -> _native.Scenario:
    """Reads a scenario and applies overrides."""
    sets = [_set(key, value) for key, value in overrides.items()]
    if isinstance(scenario, Scenario):
        text = json.dumps(scenario.to_dict())
        return _native.Scenario.from_json("scenario", text, ".", sets)
    if isinstance(scenario, Mapping):
        try:
            text = json.dumps(to_plain(scenario), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ScenarioError(f"scenario: {error}") from None
        return _native.Scenario.from_json("scenario", text, ".", sets)
    if isinstance(scenario, os.PathLike):
        return _native.Scenario.open(scenario, sets)
    if not isinstance(scenario, str):
        text = "a path, TOML text, a dict or an opensrd.Scenario"
        raise TypeError(f"a scenario is {text}, not a {type(scenario).__name__}")
    if "\n" in scenario or "=" in scenario and not os.path.isfile(scenario):
        return _native.Scenario.read("scenario", scenario, ".", sets)
    return _named(scenario, sets)


def _named(name: str, sets: list[str]) -> _native.Scenario:
    """A file, or a name as the command takes it: first in ./scenarios, then in the package."""
    if os.path.isfile(name):
        return _native.Scenario.open(name, sets)
    if os.path.basename(name) == name and not os.path.splitext(name)[1]:
        file = os.path.join("scenarios", name + ".toml")
        if os.path.isfile(file):
            return _native.Scenario.open(file, sets)
        known = scenarios()
        if name in known:
            return _native.Scenario.read(f"{name}.toml", known[name], ".", sets)
        raise ScenarioError(f"no scenario `{name}`; there are {', '.join(known)}")
    raise ScenarioError(f"cannot read {name}: no such file; opensrd.scenarios() names scenarios")


def _set(key: str, value: Any) -> str:
    """An override as the command takes it."""
    key = key.replace("__", ".")
    plain = to_plain(value)
    if key in ("transport", "transports"):
        key, plain = "transports", [plain] if isinstance(plain, str) else plain
        for name in plain:
            if name not in TRANSPORTS:
                there = ", ".join(TRANSPORTS)
                raise ScenarioError(f"no transport `{name}`; there are {there}")
    if plain is None:
        raise ScenarioError(f"override `{key}`: None is no value; leave the override out")
    return f"{key}={_toml(plain)}"


def _toml(value: Any) -> str:
    """A value as TOML in one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(inner) for inner in value) + "]"
    return repr(value)
