"""What is sent. Bytes are numbers, or text such as "64KiB", "2MB" and "endless"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Optional, Union

Bytes = Union[int, str]
#: So many hosts, or these.
Hosts = Union[int, Sequence[int]]


@dataclass
class Incast:
    """Many to one: all flows start together; with `rounds`, again when all are done."""

    kind: ClassVar[str] = "incast"
    senders: Hosts
    bytes: Bytes
    receiver: Optional[int] = None
    flows_per_sender: Optional[int] = None
    rounds: Optional[int] = None
    start_us: Optional[float] = None


@dataclass
class Permutation:
    """Every host sends to one other and receives from one other, at random."""

    kind: ClassVar[str] = "permutation"
    bytes: Bytes
    flows_per_host: Optional[int] = None


@dataclass
class Tornado:
    """Every host sends half way round the network."""

    kind: ClassVar[str] = "tornado"
    bytes: Bytes
    flows_per_host: Optional[int] = None


@dataclass
class RackToRack:
    """Host `from_ + i` sends to host `to + i`."""

    kind: ClassVar[str] = "rack-to-rack"
    from_: int
    to: int
    hosts: int
    bytes: Bytes
    flows_per_pair: Optional[int] = None


@dataclass
class Pairs:
    """Given pairs of sender and receiver."""

    kind: ClassVar[str] = "pairs"
    pairs: Sequence[tuple[int, int]]
    bytes: Bytes
    flows_per_pair: Optional[int] = None
    start_us: Optional[float] = None


@dataclass
class AllToAll:
    """Everybody to everybody; `at_once` flows of a host at a time."""

    kind: ClassVar[str] = "all-to-all"
    bytes: Bytes
    hosts: Optional[Hosts] = None
    at_once: Optional[int] = None


@dataclass
class AllReduce:
    """A ring all-reduce of `bytes` on each host."""

    kind: ClassVar[str] = "all-reduce"
    bytes: Bytes
    hosts: Optional[Hosts] = None


@dataclass
class Poisson:
    """Random arrivals at a share of the hosts' links; `sizes`: see `opensrd.sizes`."""

    kind: ClassVar[str] = "poisson"
    load: float
    sizes: str
    duration_us: float


@dataclass
class Matrix:
    """A connection matrix in htsim's format; `time_unit` is "us" or "ps"."""

    kind: ClassVar[str] = "matrix"
    path: str
    time_unit: Optional[str] = None


@dataclass
class Goal:
    """Operations of ranks as a GOAL file has them; `hosts`: those of the ranks, in their order."""

    kind: ClassVar[str] = "goal"
    path: str
    hosts: Optional[Hosts] = None


@dataclass
class Chakra:
    """What ranks compute and send, as a Chakra execution trace has it.

    The trace is named by what the names of its files begin with; `groups` is a file of process
    groups, and `hosts` are those of the ranks, in their order.
    """

    kind: ClassVar[str] = "chakra"
    path: str
    groups: Optional[str] = None
    hosts: Optional[Hosts] = None


@dataclass
class Background:
    """A single-path flow of fixed rate, which nothing slows."""

    kind: ClassVar[str] = "background"
    src: int
    dst: int
    gbps: float
    packet_bytes: Optional[int] = None
    start_us: Optional[float] = None
    stop_us: Optional[float] = None
    through: Optional[str] = None
    src_port: Optional[int] = None


Workload = Union[
    Incast,
    Permutation,
    Tornado,
    RackToRack,
    Pairs,
    AllToAll,
    AllReduce,
    Poisson,
    Matrix,
    Goal,
    Chakra,
    Background,
]
