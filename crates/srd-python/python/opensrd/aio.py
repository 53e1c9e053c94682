"""Endpoints for asyncio.

The endpoint's thread writes to a descriptor that the event loop watches; the loop then takes
everything that has happened. No other thread is between the two, and no message costs a system call
while more of them wait.
"""

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Optional

from . import _native
from ._native import Message, Peer
from .endpoint import Data, Opened
from .errors import EndpointClosed, TimedOut
from .settings import Address, Key, family, numeric, split

__all__ = ["AsyncEndpoint"]

#: Calls in a row that find what they want at once, before other tasks have a turn.
_TURN = 64


class AsyncEndpoint(Opened):
    """`opensrd.Endpoint` for asyncio: the same settings, and coroutines in place of calls that wait.

    >>> async with opensrd.AsyncEndpoint("192.0.2.1:7471", job_key_file="job.key") as endpoint:
    ...     async for message in endpoint:
    ...         await endpoint.send(message.peer, message.data)

    **Messages arrive once, and in any order.** It belongs to the loop that runs when it is first waited
    for. Any number of tasks may use it. A task that is cancelled while it waits loses nothing: a message
    that was for it goes to the next one, and what it had not queued is not sent.
    """

    _loop: Optional[asyncio.AbstractEventLoop] = None

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._receivers: "deque[asyncio.Future[Message]]" = deque()
        # Messages whose receiver was cancelled when it had them.
        self._returned: "deque[Message]" = deque()
        # Senders that wait for room, in order, for each peer.
        self._senders: "dict[Peer, deque[tuple[asyncio.Future[None], Data]]]" = {}
        self._operations: "dict[int, tuple[_native.Operation, asyncio.Future[Any]]]" = {}
        self._turn = 0

    # The loop.

    def _running(self) -> asyncio.AbstractEventLoop:
        """The loop, which watches the descriptor from the first call on."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            if self._closed:
                raise EndpointClosed("the endpoint is closed")
            self._loop = loop
            loop.add_reader(self._native.descriptor, self._on_readable)
        elif self._loop is not loop:
            raise RuntimeError("this endpoint belongs to another event loop")
        return loop

    def _on_readable(self) -> None:
        """Something has happened: goes on with all that waits for it."""
        arrival, room, operations = self._native.take_pending()
        if arrival:
            self._serve_receivers()
        if room:
            for peer in list(self._senders):
                self._serve_senders(peer)
        for number in operations:
            self._advance(number)

    async def _rest(self) -> None:
        """Lets other tasks run now and then, where nothing else would."""
        self._turn += 1
        if self._turn >= _TURN:
            self._turn = 0
            await asyncio.sleep(0)

    # Operations of the endpoint's thread.

    def _advance(self, number: int) -> None:
        operation, future = self._operations.get(number, (None, None))
        if operation is None or future is None:
            return
        try:
            done, value = operation.poll()
        except Exception as error:
            del self._operations[number]
            if not future.done():
                future.set_exception(error)
            return
        if done:
            del self._operations[number]
            if not future.done():
                future.set_result(value)

    async def _finish(self, operation: "_native.Operation", timeout: Optional[float] = None) -> Any:
        """Waits for an operation, which is given up if the task is cancelled."""
        loop = self._running()
        number = operation.number
        future: "asyncio.Future[Any]" = loop.create_future()
        self._operations[number] = (operation, future)
        self._advance(number)
        try:
            return await self._within(future, timeout)
        finally:
            self._operations.pop(number, None)

    @staticmethod
    async def _within(future: "asyncio.Future[Any]", timeout: Optional[float]) -> Any:
        if timeout is None or future.done():
            return await future
        try:
            return await asyncio.wait_for(future, timeout)
        except asyncio.TimeoutError as error:
            raise TimedOut("the time is over") from error

    # Receiving.

    def _serve_receivers(self) -> None:
        while self._receivers:
            if self._receivers[0].done():
                self._receivers.popleft()
                continue
            try:
                message = self._returned.popleft() if self._returned else self._native.poll_recv()
            except EndpointClosed as error:
                self._refuse_receivers(error)
                return
            if message is None:
                return
            self._receivers.popleft().set_result(message)

    def _refuse_receivers(self, error: Exception) -> None:
        while self._receivers:
            future = self._receivers.popleft()
            if not future.done():
                future.set_exception(error)

    async def recv(self, timeout: Optional[float] = None) -> Message:
        """The next message, from whichever peer. Tasks that wait are served in their order.

        Raises `TimedOut` after `timeout` seconds, `EndpointClosed` once the endpoint is closed.
        """
        loop = self._running()
        if not self._receivers:
            message = self._returned.popleft() if self._returned else self._native.poll_recv()
            if message is not None:
                try:
                    await self._rest()
                except BaseException:
                    self._return(message)
                    raise
                return message
        future: "asyncio.Future[Message]" = loop.create_future()
        self._receivers.append(future)
        try:
            received: Message = await self._within(future, timeout)
            return received
        except BaseException:
            self._give_back(future)
            raise

    def _give_back(self, future: "asyncio.Future[Message]") -> None:
        """The receiver is gone: its message, if it had one already, is the next one's."""
        if future.done() and not future.cancelled() and future.exception() is None:
            self._return(future.result())
        elif future in self._receivers:
            self._receivers.remove(future)

    def _return(self, message: Message) -> None:
        self._returned.append(message)
        self._serve_receivers()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        """Messages until `close` is called."""
        try:
            return await self.recv()
        except EndpointClosed:
            if not self._closed:
                raise
            raise StopAsyncIteration from None

    # Sending.

    def _serve_senders(self, peer: Peer) -> None:
        waiting = self._senders.get(peer)
        while waiting:
            future, data = waiting[0]
            if not future.done():
                try:
                    if not self._native.poll_send(peer, data):
                        return
                except Exception as error:
                    future.set_exception(error)
                else:
                    future.set_result(None)
            waiting.popleft()
        self._senders.pop(peer, None)

    def _withdraw(self, peer: Peer, entry: "tuple[asyncio.Future[None], Data]") -> None:
        waiting = self._senders.get(peer, deque())
        if entry in waiting:
            waiting.remove(entry)
        if not waiting:
            self._senders.pop(peer, None)

    async def connect(self, address: Address, peer_key: Optional[Key] = None) -> Peer:
        """The endpoint at an address, to send to: see `Endpoint.connect`."""
        loop = self._running()
        host, port = split(address)
        if not numeric(host):
            kind = {"family": family(self.address), "type": socket.SOCK_DGRAM}
            host = str((await loop.getaddrinfo(host, port, **kind))[0][4][0])
        peer: Peer = await self._finish(self._native.start_connect((host, port), peer_key))
        return peer

    async def send(
        self,
        peer: Peer,
        data: Data,
        *,
        timeout: Optional[float] = None,
        acknowledged: bool = False,
    ) -> None:
        """Queues a message: see `Endpoint.send`. Awaiting it is the back-pressure: it waits while
        `send_queue` messages are on their way to this peer. Tasks that wait get room in their order.

        A task that is cancelled while it waits for room has sent nothing; one that is cancelled while
        it waits for the acknowledgement has sent its message.
        """
        loop = self._running()
        if acknowledged:
            await self._finish(self._native.start_send(peer, data), timeout)
            return
        if peer not in self._senders and self._native.poll_send(peer, data):
            await self._rest()
            return
        future: "asyncio.Future[None]" = loop.create_future()
        entry = (future, data)
        self._senders.setdefault(peer, deque()).append(entry)
        try:
            await self._within(future, timeout)
        except BaseException:
            self._withdraw(peer, entry)
            raise

    async def flush(self, peer: Peer, timeout: Optional[float] = None) -> None:
        """Waits until everything sent to a peer is acknowledged: see `Endpoint.flush`."""
        await self._finish(self._native.start_flush(peer), timeout)

    # The end.

    async def close(self, timeout: float = 5.0) -> None:
        """Closes it once everything sent is acknowledged or has failed, or after `timeout` seconds.

        Tasks that wait get `EndpointClosed`, and `async for` ends. A second call does nothing. Raises
        `TimedOut` if something was not acknowledged in time; it is closed then, too.
        """
        if self._closed:
            return
        self._running()
        self._closed = True
        try:
            clean = await self._finish(self._native.start_close(timeout))
        finally:
            self._end()
        if not clean:
            raise TimedOut("the endpoint was closed before everything sent was acknowledged")

    def _end(self) -> None:
        """Nothing will be heard any more: everything that waits ends."""
        if self._loop is not None:
            self._loop.remove_reader(self._native.descriptor)
        closed = EndpointClosed("the endpoint is closed")
        self._serve_receivers()
        self._refuse_receivers(closed)
        for peer in list(self._senders):
            for future, _ in self._senders.pop(peer):
                if not future.done():
                    future.set_exception(closed)
        for _, future in list(self._operations.values()):
            if not future.done():
                future.set_exception(closed)

    async def __aenter__(self) -> "AsyncEndpoint":
        self._running()
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            await self.close()
        except TimedOut:
            # The first error says more.
            if error is None:
                raise
