"""Endpoints of several processes: the example, and peers that go away."""

import asyncio
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import opensrd
import pytest
from conftest import PATIENCE

KEY = "5a" * 32
EXAMPLE = pathlib.Path(__file__).parent.parent / "examples" / "ping_pong.py"

#: Receives, and says so, until it is killed.
RECEIVER = f"""
import opensrd
with opensrd.Endpoint(("127.0.0.1", 0), job_key="{KEY}") as endpoint:
    print(endpoint.address[1], flush=True)
    for message in endpoint:
        print(message.data.decode(), flush=True)
"""


@pytest.fixture
def receiver():
    """A process that receives, and its port."""
    child = subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True)
    try:
        yield child, int(child.stdout.readline())
    finally:
        child.kill()
        child.communicate()


def test_the_example_runs_between_two_processes(tmp_path):
    key = tmp_path / "job.key"
    key.write_text(KEY)
    key.chmod(0o600)
    command = [sys.executable, str(EXAMPLE)]
    # A process of a busy machine may stand still.
    patient = ["--timeout", str(PATIENCE)]
    server = subprocess.Popen(
        [*command, "server", "127.0.0.1:0", str(key), *patient], stdout=subprocess.PIPE, text=True
    )
    try:
        at = re.fullmatch("at (.*)\n", server.stdout.readline()).group(1)
        small = ["--pings", "200", "--messages", "5000", *patient]
        client = subprocess.run(
            [*command, "client", at, str(key), *small],
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
        )
        assert client.returncode == 0, client.stderr
        assert "200 round trips: median" in client.stdout
        assert re.search(r"5000 messages: .* 5000 arrived", client.stdout), client.stdout
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=PATIENCE) == 0
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("form", ["wait", "asyncio"])
def test_a_peer_that_is_killed_is_gone_for_who_sends_to_it(receiver, form):
    child, port = receiver
    # A receiver that has answered is given up only after it was silent for longer than a process of a
    # busy machine stands still. If its first answer is late, the message is sent once more.
    settings = {"job_key": KEY, "peer_timeout": 30, "answer_timeout": 3}
    deadline = time.monotonic() + PATIENCE

    def wait():
        with opensrd.Endpoint(("127.0.0.1", 0), **settings) as endpoint:
            peer = endpoint.connect(("127.0.0.1", port))
            while True:
                try:
                    endpoint.send(peer, b"hello", acknowledged=True, timeout=PATIENCE)
                    break
                except opensrd.PeerUnreachable:
                    assert time.monotonic() < deadline
            assert child.stdout.readline() == "hello\n"
            endpoint.events()
            failures, lost = peer.failures, endpoint.statistics().peers_lost
            child.kill()
            child.wait()
            with pytest.raises(opensrd.PeerGone, match="stopped answering") as error:
                endpoint.send(peer, b"are you there", acknowledged=True, timeout=PATIENCE)
            assert isinstance(error.value, ConnectionError)
            # Told once by each flush, and counted.
            endpoint.send(peer, b"hello?")
            with pytest.raises(opensrd.PeerGone):
                endpoint.flush(peer, timeout=PATIENCE)
            endpoint.flush(peer, timeout=PATIENCE)
            assert peer.failures == failures + 2
            downs = [event for event in endpoint.events() if event.kind == "peer-down"]
            assert downs[0].text == "it stopped answering"
            assert endpoint.statistics().peers_lost == lost + 2

    async def run():
        async with opensrd.AsyncEndpoint(("127.0.0.1", 0), **settings) as endpoint:
            peer = await endpoint.connect(("127.0.0.1", port))
            while True:
                try:
                    await endpoint.send(peer, b"hello", acknowledged=True, timeout=PATIENCE)
                    break
                except opensrd.PeerUnreachable:
                    assert time.monotonic() < deadline
            failures = peer.failures
            child.kill()
            child.wait()
            with pytest.raises(opensrd.PeerGone, match="stopped answering"):
                await endpoint.send(
                    peer, b"are you there", acknowledged=True, timeout=PATIENCE
                )
            await endpoint.send(peer, b"hello?")
            with pytest.raises(opensrd.PeerGone):
                await endpoint.flush(peer, timeout=PATIENCE)
            assert peer.failures == failures + 2

    if form == "wait":
        wait()
    else:
        asyncio.run(run())


def test_the_child_of_multiprocessing_is_told_what_to_do():
    import multiprocessing

    with opensrd.Endpoint(("127.0.0.1", 0), job_key=KEY) as endpoint:
        receive, send = multiprocessing.get_context("fork").Pipe(duplex=False)

        def use():
            try:
                endpoint.recv(timeout=0)
            except opensrd.EndpointError as error:
                send.send(str(error))

        child = multiprocessing.get_context("fork").Process(target=use)
        child.start()
        child.join(timeout=PATIENCE)
        assert child.exitcode == 0 and "by `spawn`" in receive.recv()
        assert os.getpid() != child.pid
