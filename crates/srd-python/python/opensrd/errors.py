"""What endpoints raise.

All are `EndpointError`, and each is also the exception that Python's own sockets would raise, so that
code written for those goes on working: `except TimeoutError`, `except ConnectionError`. A port that is
taken or an address that is not this machine's is an `OSError`, a setting that cannot be a `ValueError`.
"""

from typing import Optional

__all__ = [
    "EndpointClosed",
    "EndpointError",
    "PeerGone",
    "PeerRestarted",
    "PeerUnreachable",
    "Refused",
    "TimedOut",
    "TooBig",
]


class EndpointError(Exception):
    """Something that an endpoint could not do."""


class EndpointClosed(EndpointError):
    """The endpoint was closed, or its sockets broke."""


class TimedOut(EndpointError, TimeoutError):
    """The call's time limit was over first. What the call had queued stays queued."""


class TooBig(EndpointError, ValueError):
    """The message is larger than one datagram carries. Nothing was sent.

    `max_bytes` is what one carries; `None` if only the network knows, which passes less than this
    machine's interface.
    """

    def __init__(self, text: str, max_bytes: Optional[int] = None) -> None:
        super().__init__(text)
        self.max_bytes = max_bytes


class Refused(EndpointError, ConnectionRefusedError):
    """The peer, or this endpoint, would not have it: no room, too many peers, another key."""


class PeerGone(EndpointError, ConnectionError):
    """The peer was silent for `peer_timeout`, or was closed, with something under way.

    Whether that arrived is not known. The peer can be sent to again: that begins afresh.
    """


class PeerUnreachable(PeerGone):
    """The peer never answered at all."""


class PeerRestarted(PeerGone):
    """Another run of a program is at the peer's address now. What was under way may or may not have
    reached the run before."""
