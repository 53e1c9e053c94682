"""`opensrd.AsyncEndpoint`: the same with asyncio, and what is cancelled."""

import asyncio
import time

import opensrd
import pytest
from conftest import PATIENCE, peer_events

KEY = "5a" * 32


def opened(**settings):
    # A peer whose thread stands still is not given up.
    settings = {"job_key": KEY, "peer_timeout": PATIENCE, **settings}
    return opensrd.AsyncEndpoint(("127.0.0.1", 0), **settings)


def run(scenario):
    """Runs a coroutine function of two connected endpoints."""

    async def whole():
        async with opened() as near, opened() as far:
            await scenario(near, far, await near.connect(far.address))

    asyncio.run(whole())


def test_messages_go_both_ways_while_other_tasks_run():
    async def scenario(near, far, peer):
        turns = 0

        async def echo():
            async for message in far:
                await far.send(message.peer, message.data)

        async def others():
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        tasks = [asyncio.create_task(echo()), asyncio.create_task(others())]
        sent = [str(number).encode() for number in range(1000)]
        for data in sent:
            await near.send(peer, data)
        # Neither loop lets the others wait for all of it.
        assert turns >= len(sent) // 100
        arrived = [(await near.recv(timeout=PATIENCE)).data for _ in sent]
        assert sorted(arrived) == sorted(sent)
        tasks[1].cancel()
        await far.close(timeout=PATIENCE)
        await asyncio.wait_for(tasks[0], PATIENCE)
        events, deadline = [], time.monotonic() + PATIENCE
        while len(events) < 2 and time.monotonic() < deadline:
            events += peer_events(near.events())
            await asyncio.sleep(0.01)
        assert events == [("peer-up", peer.address), ("peer-down", peer.address)]

    run(scenario)


def test_acknowledged_sends_and_flushes_end_with_what_became_of_them():
    async def scenario(near, far, peer):
        await asyncio.gather(
            *(near.send(peer, b"x", acknowledged=True) for _ in range(300))
        )
        assert far.statistics().received_messages == 300
        await near.send(peer, b"y")
        await near.flush(peer, timeout=PATIENCE)
        assert peer.outstanding == 0 and near.statistics().peers[0].rtt_smoothed_us > 0
        with pytest.raises(opensrd.TooBig):
            await near.send(peer, bytes(near.payload_bytes_max + 1))
        with pytest.raises(opensrd.TooBig):
            await near.send(peer, bytes(near.payload_bytes_max + 1), acknowledged=True)
        with pytest.raises(ValueError, match="peer_key is for endpoints with a key pair"):
            await near.connect(far.address, bytes(32))
        with pytest.raises(OSError):
            await near.connect("no.such.host.invalid:7471")
        name = await near.connect(("localhost", far.address[1]))
        assert name == peer and name.address == far.address

    run(scenario)


def test_a_full_queue_makes_senders_wait_in_their_order():
    async def scenario():
        async with opened(send_queue=8) as near, opened(receive_queue=4) as far:
            peer = await near.connect(far.address)
            done = []

            async def send(number):
                await near.send(peer, bytes([number]))
                done.append(number)

            tasks = [asyncio.create_task(send(number)) for number in range(60)]
            # Four messages are in the far queue, and nobody takes any. Senders that wait are woken when
            # more than a quarter of this queue is free.
            deadline = time.monotonic() + PATIENCE
            while peer.outstanding < 6 or len(done) - peer.outstanding != 4:
                assert time.monotonic() < deadline, (len(done), peer.outstanding)
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert 10 <= len(done) == peer.outstanding + 4 <= 12
            # These give up, and nothing of them is sent.
            for number in (30, 59):
                tasks[number].cancel()
            with pytest.raises(opensrd.TimedOut):
                await near.send(peer, b"\xff", timeout=0.05)
            arrived = [(await far.recv(timeout=PATIENCE)).data[0] for _ in range(58)]
            assert sorted(arrived) == [n for n in range(60) if n not in (30, 59)]
            await asyncio.gather(*tasks, return_exceptions=True)
            assert done == sorted(done) and len(done) == 58
            await near.flush(peer, timeout=PATIENCE)
            with pytest.raises(opensrd.TimedOut):
                await far.recv(timeout=0.05)
            assert not near._senders and not near._operations and not far._receivers

    asyncio.run(scenario())


def test_a_receiver_that_is_cancelled_with_a_message_in_hand_loses_none():
    async def scenario(near, far, peer):
        first = asyncio.create_task(far.recv())
        second = asyncio.create_task(far.recv())
        await asyncio.sleep(0)
        waited = far._receivers[0]
        await near.send(peer, b"for whom?")
        # No other task runs until the first has its message, and it has not seen it yet.
        deadline = time.monotonic() + PATIENCE
        while far._receivers[0] is waited:
            assert time.monotonic() < deadline
            time.sleep(0.001)
            far._on_readable()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await asyncio.wait_for(second, PATIENCE)).data == b"for whom?"
        waiting = asyncio.create_task(far.recv())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not far._receivers
        await near.send(peer, b"next")
        assert (await far.recv(timeout=PATIENCE)).data == b"next"

    run(scenario)


def test_a_close_ends_every_task_that_waits():
    async def scenario():
        near, far = opened(send_queue=2), opened(receive_queue=1)
        peer = await near.connect(far.address)
        await far.connect(near.address)
        for number in range(3):
            await near.send(peer, bytes([number]))

        async def each():
            return [message async for message in near]

        waits = [each(), near.recv(), near.send(peer, b"x"), near.send(peer, b"y", acknowledged=True)]
        tasks = [asyncio.create_task(wait) for wait in [*waits, near.flush(peer)]]
        await asyncio.sleep(0.1)
        with pytest.raises(opensrd.TimedOut):
            await near.close(timeout=0.1)
        gathered = asyncio.gather(*tasks, return_exceptions=True)
        results = await asyncio.wait_for(gathered, PATIENCE)
        assert results[0] == []
        for result in results[1:]:
            assert isinstance(result, (opensrd.EndpointClosed, opensrd.PeerGone)), result
        await near.close()
        for call in (near.recv(), near.send(peer, b"z"), near.connect(far.address)):
            with pytest.raises(opensrd.EndpointClosed):
                await call
        await far.close()

    asyncio.run(scenario())


def test_an_endpoint_belongs_to_one_loop_and_may_outlive_it():
    endpoint = opened()

    async def once():
        with pytest.raises(opensrd.TimedOut):
            await endpoint.recv(timeout=0)

    asyncio.run(once())
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(once())
    never_used = opened()
    del endpoint, never_used
