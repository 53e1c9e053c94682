"""Endpoints for threads: calls wait for what they return."""

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Optional, Union

from . import _native
from ._native import Message, Peer
from .errors import EndpointClosed, TimedOut
from .settings import Address, Key, Path, Port, resolve, settings
from .statistics import Event, Statistics, of_report

__all__ = ["Endpoint", "Opened"]

#: What can be sent.
Data = Union[bytes, bytearray, memoryview]


class Opened:
    """What blocking endpoints and those of asyncio have in common: settings, address, counters."""

    def __init__(
        self,
        bind: Address = ("0.0.0.0", 0),
        *,
        encrypt: bool = True,
        job_key: Optional[Key] = None,
        job_key_file: Optional[Path] = None,
        private_key: Optional[Key] = None,
        private_key_file: Optional[Path] = None,
        accept_anyone: bool = False,
        paths: int = 32,
        send_queue: int = 8192,
        receive_queue: int = 8192,
        packet_bytes_max: Optional[int] = None,
        link_rate_bps: Optional[int] = None,
        peer_timeout: float = 5.0,
        answer_timeout: Optional[float] = None,
        busy_poll: bool = False,
    ) -> None:
        """Opens UDP sockets and starts the endpoint's thread.

        Packets are authenticated and encrypted (AES-256-GCM) unless `encrypt=False` is given, which
        is for networks where every host is trusted. There are two forms of keys, as for `srd perf`:

        - One key that all share: `job_key`, or better `job_key_file`, since a file that others may
          read is refused. A key is 64 hexadecimal digits, as `openssl rand -hex 32` writes them.
        - A pair for each endpoint: `private_key`, or `private_key_file`, which is made if it is not
          there; if nothing is given, a pair is drawn for this run. `public_key` is its public half.
          Peers are known by theirs: `connect(address, peer_key=...)`. With `accept_anyone`
          messages of unknown peers are accepted as well: their identity is not verified.

        `bind`: where peers find it. Port 0 finds a free one. On a machine with several addresses name
        the one that peers use.
        `paths`: source ports, each of which switches may send another way, 1 to 256. Each is a
        descriptor.
        `send_queue`: messages to a peer that may wait or be in flight; then `send` waits.
        `receive_queue`: messages that may wait for `recv`; then peers are told to try again.
        `packet_bytes_max`: UDP payload of a packet; by default what the interface passes.
        `link_rate_bps`: speed of the link, if the interface does not know it.
        `peer_timeout`: seconds that a peer may be silent with something under way to it.
        `answer_timeout`: the same for a peer that has never answered; by default `peer_timeout`.
        `busy_poll`: never sleep, for the least latency; occupies a core.

        Raises `OSError` if the address is not this machine's or the port is taken, `ValueError` for
        settings that cannot be.
        """
        given = dict(locals())
        del given["self"]
        self._native = _native.Endpoint(settings(**given))
        self._closed = False

    @property
    def address(self) -> Port:
        """IP address and port that peers send to."""
        return self._native.address

    @property
    def public_key(self) -> Optional[str]:
        """The public half of its key pair, 64 hexadecimal digits; `None` if it has no pair."""
        return self._native.public_key

    @property
    def payload_bytes_max(self) -> int:
        """Bytes that a message may have."""
        return self._native.payload_bytes_max

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def statistics(self) -> Statistics:
        """Counters, and the state of every peer. Asks the endpoint's thread, which takes some tens of
        microseconds."""
        return of_report(self._native.report())

    def events(self) -> list[Event]:
        """What has happened since the last call: peers that came and went, sizes that do not pass.
        At most 256 are kept."""
        return [Event(*parts) for parts in self._native.events()]

    def __repr__(self) -> str:
        if self._closed:
            return f"<opensrd.{type(self).__name__} closed>"
        host, port = self.address
        return f"<opensrd.{type(self).__name__} {host}:{port}>"


class Endpoint(Opened):
    """An SRD endpoint on real sockets: sends and receives messages of at most one datagram.

    **Every message that a peer acknowledges arrived once, but messages arrive in any order**: each takes
    another path. Where order matters, a message must say its place.

    >>> with opensrd.Endpoint("192.0.2.1:7471", job_key_file="job.key") as endpoint:
    ...     for message in endpoint:
    ...         endpoint.send(message.peer, message.data)

    Any number of threads may use it at a time. It is of no use in the child of a fork: its thread is not
    there. Calls in the child raise `EndpointError`, and the parent is not disturbed.
    """

    def connect(self, address: Address, peer_key: Optional[Key] = None) -> Peer:
        """The endpoint at an address, to send to. Nothing is sent yet, so that it need not be there.

        `peer_key` is its `public_key`, which an endpoint with a key pair must know.

        Raises `Refused` if there are too many peers or another with this key or address, `ValueError`
        without the key that is needed, `OSError` for a name that is not known.
        """
        return self._native.connect(resolve(address, self.address), peer_key)

    def send(
        self,
        peer: Peer,
        data: Data,
        *,
        timeout: Optional[float] = None,
        acknowledged: bool = False,
    ) -> None:
        """Queues a message. Waits while `send_queue` messages are on their way to this peer.

        Returning does not mean that the peer has it: `flush` says so for everything sent before, and
        `acknowledged=True` waits for this message alone. Lost packets are sent again without further
        ado. The data are copied.

        Raises `TooBig` beyond `payload_bytes_max`; `TimedOut` after `timeout` seconds, and then nothing
        was queued, or, if `acknowledged`, the message stays on its way; `EndpointClosed`. If
        `acknowledged`: `PeerGone`, `PeerUnreachable`, `PeerRestarted` or `Refused`.
        """
        self._native.send(peer, data, timeout, acknowledged)

    def recv(self, timeout: Optional[float] = None) -> Message:
        """The next message, from whichever peer.

        Raises `TimedOut` after `timeout` seconds (0: only takes what is there), `EndpointClosed` once
        the endpoint is closed and all that had arrived was taken.
        """
        return self._native.recv(timeout)

    def __iter__(self) -> Iterator[Message]:
        """Messages until `close` is called, by another thread."""
        while True:
            try:
                yield self._native.recv(None)
            except EndpointClosed:
                if not self._closed:
                    raise
                return

    def flush(self, peer: Peer, timeout: Optional[float] = None) -> None:
        """Waits until everything sent to a peer is acknowledged.

        Raises `TimedOut` after `timeout` seconds; the error of a message that failed since the last
        `flush`, as `send` with `acknowledged` would; `EndpointClosed`.
        """
        self._native.flush(peer, timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Closes it once everything sent is acknowledged or has failed, or after `timeout` seconds.

        Other threads' calls end with `EndpointClosed`, and `for message in endpoint` ends. A second
        call does nothing. Raises `TimedOut` if something was not acknowledged in time; it is closed
        then, too.
        """
        if self._closed:
            return
        self._closed = True
        if not self._native.close(timeout):
            raise TimedOut("the endpoint was closed before everything sent was acknowledged")

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> Any:
        try:
            self.close()
        except TimedOut:
            # The first error says more.
            if error is None:
                raise
        return None
