"""What a scenario's runs showed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from . import _native
from .table import Table

#: What differs from machine to machine; all the rest is determined by scenario and seed.
COST = ("wall_s", "cpu_s", "packet_hops_per_cpu_s", "peak_rss_bytes")
#: Names of the tables of a result.
TABLES = ("summary", "flows", "queues", "loads", "goodput", "recoveries")


class Result:
    """Results of one or several runs. Tables are made when they are asked for."""

    def __init__(self, native: _native.Runs) -> None:
        self._native = native

    @cached_property
    def json(self) -> str:
        """The text that ``srd sim run --json`` writes."""
        return self._native.json()

    @cached_property
    def text(self) -> str:
        """The table that ``srd sim run`` prints."""
        return self._native.text()

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """The runs of `json`, one after the other."""
        runs: list[dict[str, Any]] = json.loads(self.json)
        return runs

    @cached_property
    def complaints(self) -> list[str]:
        """What is wrong with the runs, such as flows that did not finish; the command exits with
        1 if there are any."""
        found = []
        for run, texts in zip(self.runs, self._native.complaints()):
            found += [f"{run['transport']}, seed {run['seed']}: {text}" for text in texts]
        return found

    @cached_property
    def summary(self) -> Table:
        """A row per run: all numbers of `json`, nested names joined by underscores."""
        rows = [_flat(run) for run in self.runs]
        names = list(dict.fromkeys(name for row in rows for name in row))
        return Table({name: [row.get(name) for row in rows] for name in names})

    @cached_property
    def flows(self) -> Table:
        """A row per flow; `slowdown` is its completion time over its ideal with our headers."""
        return Table(self._native.flows())

    @cached_property
    def queues(self) -> Table:
        """The most bytes that waited at each port of ``measure.queues``, over time."""
        return Table(self._native.queues())

    @cached_property
    def loads(self) -> Table:
        """What each port of ``measure.loads`` sent, over time: the share of each path."""
        return Table(self._native.loads())

    @cached_property
    def goodput(self) -> Table:
        """What each flow delivered over time, with ``measure.flows``."""
        return Table(self._native.goodput())

    @cached_property
    def recoveries(self) -> Table:
        """A row per fault in mid-run, of runs that recorded flows."""
        rows = []
        for run in self.runs:
            head = {name: run[name] for name in ("scenario", "transport", "seed")}
            rows += [{**head, **_flat(one)} for one in run.get("recoveries", [])]
        names = list(dict.fromkeys(name for row in rows for name in row))
        return Table({name: [row.get(name) for row in rows] for name in names})

    def flows_csv(self, run: int = 0) -> str:
        """The file of flows that ``srd sim run --out`` writes of the run of this number."""
        return self._native.flows_csv(run)

    def __repr__(self) -> str:
        runs = ", ".join(f"{r['transport']} seed {r['seed']}" for r in self.runs[:4])
        dots = ", ..." if len(self.runs) > 4 else ""
        name = self.runs[0]["scenario"] if self.runs else ""
        return f"<Result of {name!r}: {runs}{dots}>"


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Numbers and texts of nested objects; lists are left to tables of their own."""
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        name = prefix + key.replace("-", "_").replace(" ", "_")
        if isinstance(inner, Mapping):
            flat.update(_flat(inner, name + "_"))
        elif not isinstance(inner, list):
            flat[name] = inner
    return flat
