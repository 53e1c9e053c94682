"""Networks of a scenario. What is not said has the simulator's default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Optional, Union


@dataclass
class FatTree:
    """Three tiers of switches with `k` ports: k**3/4 hosts at full bisection."""

    kind: ClassVar[str] = "fat-tree"
    k: int
    oversubscribed: Optional[tuple[int, int]] = None
    gbps: Optional[float] = None
    core_gbps: Optional[float] = None
    latency_ns: Optional[int] = None
    switch_latency_ns: Optional[int] = None


@dataclass
class LeafSpine:
    """Two tiers: every leaf has a link, or a bundle of links, to every spine."""

    kind: ClassVar[str] = "leaf-spine"
    leaves: int
    spines: int
    leaf_hosts: int
    bundle: Optional[int] = None
    gbps: Optional[float] = None
    core_gbps: Optional[float] = None
    latency_ns: Optional[int] = None
    switch_latency_ns: Optional[int] = None


@dataclass
class Dumbbell:
    """Hosts on two sides of a bottleneck."""

    kind: ClassVar[str] = "dumbbell"
    side_hosts: int
    middle_links: Optional[int] = None
    gbps: Optional[float] = None
    core_gbps: Optional[float] = None
    latency_ns: Optional[int] = None
    switch_latency_ns: Optional[int] = None


@dataclass
class Ring:
    """Switches in a ring, each with hosts. All packets go the same way round."""

    kind: ClassVar[str] = "ring"
    switches: int
    switch_hosts: int
    gbps: Optional[float] = None
    core_gbps: Optional[float] = None
    latency_ns: Optional[int] = None
    switch_latency_ns: Optional[int] = None


@dataclass
class File:
    """A topology file in htsim's format."""

    kind: ClassVar[str] = "file"
    path: str


Topology = Union[FatTree, LeafSpine, Dumbbell, Ring, File]
