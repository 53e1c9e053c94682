"""What breaks when. Times are microseconds; without `until_us` a fault stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Optional, Union


@dataclass
class LinkDown:
    """Links die silently: what is sent over them vanishes, and no switch notices."""

    kind: ClassVar[str] = "link-down"
    links: str
    at_us: float
    until_us: Optional[float] = None


@dataclass
class LinkSlow:
    """Links run at a fraction of their speed."""

    kind: ClassVar[str] = "link-slow"
    links: str
    fraction: float
    at_us: float
    until_us: Optional[float] = None


@dataclass
class Loss:
    """Links lose packets at random."""

    kind: ClassVar[str] = "loss"
    links: str
    probability: float
    at_us: float
    until_us: Optional[float] = None


@dataclass
class Corrupt:
    """Links flip bits."""

    kind: ClassVar[str] = "corrupt"
    links: str
    probability: float
    at_us: float
    until_us: Optional[float] = None


@dataclass
class Duplicate:
    """Links deliver packets twice."""

    kind: ClassVar[str] = "duplicate"
    links: str
    probability: float
    at_us: float
    until_us: Optional[float] = None


@dataclass
class Restart:
    """A host's machine crashes and is back at once, knowing nothing."""

    kind: ClassVar[str] = "restart"
    host: int
    at_us: float


@dataclass
class Partition:
    """Some hosts are cut off from all others."""

    kind: ClassVar[str] = "partition"
    hosts: Sequence[int]
    at_us: float
    until_us: Optional[float] = None


@dataclass
class SlowCoreLinks:
    """The first links from the core down run at a quarter of their speed."""

    kind: ClassVar[str] = "slow-core-links"
    count: int


Fault = Union[LinkDown, LinkSlow, Loss, Corrupt, Duplicate, Restart, Partition, SlowCoreLinks]
