"""A scenario as plain dataclasses. What is not said has the simulator's default."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from .faults import Fault
from .topology import Topology
from .workload import Bytes, Workload


@dataclass
class Queue:
    """The queue of every switch port: its size in products of port speed and base round trip, or
    in bytes, and where marks begin and are certain."""

    bdp: Optional[float] = None
    bytes: Optional[Bytes] = None
    mark_bdp: Optional[tuple[float, float]] = None
    mark_bytes: Optional[tuple[int, int]] = None
    trim: Optional[bool] = None
    control_first: Optional[bool] = None


@dataclass
class Measure:
    """What is recorded every `interval_us`; nothing without it. Ports are named as in
    "leaf0->spine" (all of that kind) or "tor0->host0"."""

    interval_us: Optional[float] = None
    flows: Optional[bool] = None
    queues: Optional[Sequence[str]] = None
    loads: Optional[Sequence[str]] = None
    capture: Optional[Sequence[str]] = None
    capture_packets: Optional[int] = None


@dataclass
class Srd:
    """Knobs of SRD, and of the application on it."""

    paths: Optional[int] = None
    spray_burst_packets: Optional[int] = None
    delay_target_percent: Optional[int] = None
    delay_target_min_us: Optional[float] = None
    window_initial_bytes: Optional[int] = None
    window_max_percent: Optional[int] = None
    rate_rules: Optional[bool] = None
    receiver_share: Optional[bool] = None
    credit_percent: Optional[int] = None
    unsolicited_percent: Optional[int] = None
    ack_packets: Optional[int] = None
    ack_bytes: Optional[int] = None
    ack_delay_us: Optional[float] = None
    ack_tuples_max: Optional[int] = None
    rto_min_us: Optional[float] = None
    rto_max_us: Optional[float] = None
    peer_timeout_us: Optional[float] = None
    idle_hibernate_us: Optional[float] = None
    rtt_initial_us: Optional[float] = None
    link_gbps: Optional[float] = None
    wire_overhead_bytes: Optional[int] = None
    window_packets_max: Optional[int] = None
    send_queue_datagrams_max: Optional[int] = None
    ecn: Optional[bool] = None
    encrypt: Optional[bool] = None
    check_payload: Optional[bool] = None
    resend_failed: Optional[bool] = None
    receive_buffers: Optional[int] = None


@dataclass
class Tcp:
    """Knobs of TCP and DCTCP, of guests' TCP as well. `congestion` is "cubic" or "reno",
    `rto_rule` is "linux" or "rfc6298", `nagle` is "off", "linux" or "rfc896"."""

    congestion: Optional[str] = None
    header_bytes: Optional[int] = None
    frame_bytes: Optional[int] = None
    window_initial_segments: Optional[int] = None
    window_bytes_max: Optional[int] = None
    rto_min_us: Optional[float] = None
    rto_max_us: Optional[float] = None
    rto_initial_us: Optional[float] = None
    rto_rule: Optional[str] = None
    rtt_assumed_us: Optional[float] = None
    timer_floor_us: Optional[float] = None
    timer_tick_us: Optional[float] = None
    tail_probe: Optional[bool] = None
    ack_delay_us: Optional[float] = None
    ack_quick: Optional[int] = None
    interactive: Optional[bool] = None
    nagle: Optional[str] = None
    write_bytes: Optional[int] = None
    write_gap_us: Optional[float] = None
    hystart: Optional[bool] = None
    ecn: Optional[bool] = None
    handshake: Optional[bool] = None
    reuse_connections: Optional[bool] = None


@dataclass
class Roce:
    """Knobs of RoCE, of DCQCN, and of the lossless switches that both need."""

    pfc: Optional[bool] = None
    xoff_bytes: Optional[int] = None
    xon_bytes: Optional[int] = None
    headroom_bytes: Optional[int] = None
    mark_bytes: Optional[tuple[int, int]] = None
    mark_share: Optional[float] = None
    cnp_gap_us: Optional[float] = None
    gain: Optional[float] = None
    alpha_timer_us: Optional[float] = None
    rate_timer_us: Optional[float] = None
    rate_bytes: Optional[int] = None
    fast_steps: Optional[int] = None
    additive_mbps: Optional[float] = None
    hyper_mbps: Optional[float] = None
    rate_min_mbps: Optional[float] = None
    ack_packets: Optional[int] = None
    timeout_us: Optional[float] = None
    retries_max: Optional[int] = None


@dataclass
class Card:
    """Knobs of cards."""

    order_wait_us: Optional[float] = None
    queue_target_us: Optional[float] = None
    queue_interval_us: Optional[float] = None
    queue_bytes_max: Optional[int] = None
    receive_bytes_max: Optional[int] = None
    flows_max: Optional[int] = None


@dataclass
class Scenario:
    """An experiment: a network, what is sent, what breaks, what is recorded."""

    topology: Topology
    workload: Sequence[Workload] = field(default_factory=list)
    name: Optional[str] = None
    description: Optional[str] = None
    queue: Optional[Queue] = None
    packet_bytes: Optional[int] = None
    fault: Optional[Sequence[Fault]] = None
    convergence_us: Optional[float] = None
    corruption_undetected: Optional[bool] = None
    measure: Optional[Measure] = None
    transports: Optional[Sequence[str]] = None
    srd: Optional[Srd] = None
    tcp: Optional[Tcp] = None
    roce: Optional[Roce] = None
    card: Optional[Card] = None
    horizon_us: Optional[float] = None
    seed: Optional[int] = None
    seeds: Optional[int] = None

    def to_dict(self) -> dict[str, Any]:
        """The scenario with the structure of its TOML."""
        plain = to_plain(self)
        assert isinstance(plain, dict)
        return plain


def to_plain(value: Any) -> Any:
    """Dataclasses, paths, tuples and numbers of other packages as TOML and JSON know them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = getattr(value, "kind", None)
        plain = {} if kind is None else {"kind": kind}
        for one in dataclasses.fields(value):
            inner = getattr(value, one.name)
            if inner is not None:
                plain[one.name.rstrip("_")] = to_plain(inner)
        return plain
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, (str, bool, int, float)) or value is None:
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Sequence):
        return [to_plain(inner) for inner in value]
    for convert in ("tolist", "item"):  # arrays and numbers of numpy
        if hasattr(value, convert):
            return getattr(value, convert)()
    raise TypeError(f"{value!r} is no part of a scenario: a {type(value).__name__}")
