"""Counters of an endpoint and of what it knows of each peer."""

from dataclasses import dataclass
from typing import Any, Optional

__all__ = ["Event", "PeerStatistics", "Statistics"]


@dataclass(frozen=True)
class PeerStatistics:
    """The state of one peer now."""

    #: Its IP address and port.
    address: tuple[str, int]
    #: The least round-trip time, in microseconds; `None` before the first was measured.
    rtt_base_us: Optional[float]
    #: The smoothed round-trip time, in microseconds.
    rtt_smoothed_us: Optional[float]
    #: Time in queues on the way, the median over the paths, in microseconds.
    queueing_median_us: float
    #: The congestion window, in bytes.
    window_bytes: int
    #: Bytes that were sent and are not acknowledged yet.
    in_flight_bytes: int
    #: Messages that wait or are in flight.
    outstanding_messages: int
    #: The rate at which data was delivered, in bits per second.
    delivery_rate_bps: int
    #: Packets that were sent again since the last beginning with this peer.
    retransmitted_packets: int
    #: Paths against which nothing speaks.
    paths_good: int
    #: Paths that are passed over for now, since they are later than most.
    paths_skipped: int
    #: Paths on which nothing arrived: they carry probes only.
    paths_bad: int
    #: Paths that an operator has denied.
    paths_denied: int

    @property
    def paths(self) -> int:
        """All paths."""
        return self.paths_good + self.paths_skipped + self.paths_bad + self.paths_denied


@dataclass(frozen=True)
class Statistics:
    """Counters since the endpoint was opened. Bytes are those of messages, without headers."""

    #: Messages that peers have acknowledged, and their bytes.
    sent_messages: int
    sent_bytes: int
    #: Messages that arrived, and their bytes, whether or not they were taken by `recv` yet.
    received_messages: int
    received_bytes: int
    #: UDP packets of every kind that left.
    sent_packets: int
    #: UDP packets that were accepted.
    received_packets: int
    #: UDP packets that were dropped: not authentic, from strangers, damaged.
    dropped_packets: int
    #: Data packets that were sent again.
    retransmitted_packets: int
    #: Times that only a timer found a loss, and no acknowledgement did.
    retransmission_timeouts: int
    #: Packets that were held for lost and arrived after all.
    spurious_losses: int
    #: Messages that arrived once more, and were not delivered again.
    duplicates: int
    #: Messages that came when `receive_queue` was full. Their senders tried again.
    refused_for_room: int
    #: Times that a peer was given up because it did not answer.
    peers_lost: int
    #: Each peer that this endpoint has sent to or heard from.
    peers: tuple[PeerStatistics, ...]


@dataclass(frozen=True)
class Event:
    """Something that happened to an endpoint, other than the arrival of a message.

    `kind` is `"peer-up"`, `"peer-down"`, `"path-mtu"` (the network passes smaller packets than this
    machine's interface) or `"notice"`.
    """

    kind: str
    #: Which peer it is about, if it is about one.
    address: Optional[tuple[str, int]]
    #: In words: why a peer is down, which size passes.
    text: str


def of_report(report: dict[str, Any]) -> Statistics:
    """The statistics of what the native endpoint reports."""
    peers = tuple(PeerStatistics(**peer) for peer in report.pop("peers"))
    return Statistics(peers=peers, **report)
