"""`opensrd.Endpoint`: messages, keys, errors, queues and the end, with calls that wait."""

import concurrent.futures
import contextlib
import os
import re
import subprocess
import sys
import threading
import time

import opensrd
import pytest
from conftest import PATIENCE, eventually, peer_events

KEY = "5a" * 32
HERE = ("127.0.0.1", 0)


def opened(**settings):
    # A peer whose thread stands still is not given up.
    settings = {"job_key": KEY, "peer_timeout": PATIENCE, **settings}
    if settings["job_key"] is None:
        del settings["job_key"]
    return opensrd.Endpoint(HERE, **settings)


@pytest.fixture
def pair():
    with opened() as near, opened() as far:
        yield near, far


def test_messages_go_both_ways_and_all_arrive_once(pair):
    near, far = pair
    peer = near.connect(far.address)
    sent = [str(number).encode() for number in range(2000)]
    for data in sent:
        near.send(peer, data)
    near.flush(peer, timeout=PATIENCE)
    arrived = [far.recv(timeout=PATIENCE) for _ in sent]
    # In any order: that is what the transport promises, and no more.
    assert sorted(message.data for message in arrived) == sorted(sent)
    back = arrived[0].peer
    assert back.address == near.address and {message.peer for message in arrived} == {back}
    for form in (b"bytes", bytearray(b"array"), memoryview(b"a view of it")[2:]):
        far.send(back, form)
        answer = near.recv(timeout=PATIENCE)
        assert answer.data == bytes(form) and answer.peer == peer
    far.send(back, b"")
    assert near.recv(timeout=PATIENCE).data == b""
    far.flush(back, timeout=PATIENCE)
    for wrong in ("text", 7, None, [1, 2]):
        with pytest.raises(TypeError):
            near.send(peer, wrong)


def test_sizes_and_times_have_limits(pair):
    near, far = pair
    peer = near.connect("{}:{}".format(*far.address))
    most = near.payload_bytes_max
    near.send(peer, bytes(most), acknowledged=True, timeout=PATIENCE)
    assert len(far.recv(timeout=PATIENCE).data) == most
    with pytest.raises(opensrd.TooBig, match=f"at most {most} bytes") as error:
        near.send(peer, bytes(most + 1))
    assert error.value.max_bytes == most and isinstance(error.value, ValueError)
    begin = time.monotonic()
    with pytest.raises(TimeoutError):
        near.recv(timeout=0.1)
    assert time.monotonic() - begin >= 0.1
    with pytest.raises(opensrd.TimedOut):
        near.recv(timeout=0)
    for wrong in (-1.0, float("nan"), 1e9):
        with pytest.raises(ValueError, match="give seconds"):
            near.recv(timeout=wrong)


def test_statistics_and_events_tell_of_peers(pair):
    near, far = pair
    peer = near.connect(far.address)
    for _ in range(20):
        near.send(peer, b"12345", acknowledged=True, timeout=PATIENCE)
    state = near.statistics()
    assert state.sent_messages == 20 and state.sent_bytes == 100
    # Each message was acknowledged before the next one was sent.
    assert state.sent_packets >= 20 and state.received_packets >= 20
    (one,) = state.peers
    assert one.address == far.address and one.outstanding_messages == 0
    assert one.rtt_base_us > 0 and one.rtt_smoothed_us > 0
    assert far.statistics().received_messages == 20
    # Each path is in one class. While a thread stands still, packets seem to be lost, so that paths are
    # skipped or bad. Later, answers to probes make each of them good again.
    assert one.paths == 32 and one.paths_denied == 0
    assert eventually(lambda: near.statistics().peers[0].paths_good == 32), near.statistics()
    # The event comes before the end of the first message, and each event is returned once.
    assert peer_events(near.events()) == [("peer-up", far.address)]
    assert peer_events(near.events()) == []


def test_a_full_queue_holds_the_sender_and_loses_nothing():
    with opened(send_queue=16) as near, opened(receive_queue=8) as far:
        peer = near.connect(far.address)
        sent, deadline = 0, time.monotonic() + PATIENCE
        # What the sender holds, and what the receiver does. Both may be slow to take it.
        while sent < 16 + 8 or peer.outstanding < 16:
            assert time.monotonic() < deadline, (sent, peer.outstanding)
            with contextlib.suppress(opensrd.TimedOut):
                near.send(peer, sent.to_bytes(4, "big"), timeout=0.3)
                sent += 1
        with pytest.raises(opensrd.TimedOut, match="the queue is full"):
            near.send(peer, b"more", timeout=0.3)
        assert sent == 16 + 8 and peer.outstanding == 16
        assert eventually(lambda: far.statistics().refused_for_room > 0)
        with pytest.raises(opensrd.TimedOut, match="16 datagrams are not acknowledged"):
            near.flush(peer, timeout=0.05)
        arrived = [far.recv(timeout=PATIENCE).data for _ in range(sent)]
        assert sorted(int.from_bytes(data, "big") for data in arrived) == list(range(sent))
        near.flush(peer, timeout=PATIENCE)


def test_keys_decide_who_is_heard(tmp_path):
    file = tmp_path / "own.key"
    with opened(job_key=None, private_key_file=file) as server:
        assert re.fullmatch("[0-9a-f]{64}", server.public_key)
        assert file.stat().st_mode & 0o777 == 0o600
        with opened(job_key=None) as client:
            with pytest.raises(ValueError, match="give peer_key"):
                client.connect(server.address)
            peer = client.connect(server.address, server.public_key)
            with pytest.raises(opensrd.Refused, match="has another public key"):
                client.connect(server.address, bytes(range(32)))
            # The server does not know this client's key, until it is told.
            with pytest.raises(opensrd.TimedOut):
                client.send(peer, b"let me in", acknowledged=True, timeout=0.3)
            server.connect(client.address, client.public_key)
            assert server.recv(timeout=PATIENCE).data == b"let me in"
            client.flush(peer, timeout=PATIENCE)
        public = server.public_key
    with opened(job_key=None, private_key_file=file, accept_anyone=True) as again:
        assert again.public_key == public
        with opened(job_key=None) as client:
            peer = client.connect(again.address, again.public_key)
            client.send(peer, b"anyone", acknowledged=True, timeout=PATIENCE)
        assert again.recv(timeout=PATIENCE).data == b"anyone"


def test_regression_a_key_file_is_whole_or_not_there(tmp_path):
    file = tmp_path / "private.key"
    program = (
        "import opensrd, resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "try: opensrd.Endpoint(('127.0.0.1', 0), private_key_file=sys.argv[1])\n"
        "except OSError as error: print(error)\n"
    )
    run = [sys.executable, "-c", program, str(file)]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert "cannot write" in said and "too large" in said, said
    assert list(tmp_path.iterdir()) == []
    # Several that begin at once have one key.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: opened(job_key=None, private_key_file=file), range(4)))
    assert len({endpoint.public_key for endpoint in made}) == 1
    for endpoint in made:
        endpoint.close()
    assert [(one.name, one.stat().st_mode & 0o777) for one in tmp_path.iterdir()] == [
        ("private.key", 0o600)
    ]


def test_a_plain_endpoint_must_be_asked_for_and_hears_no_other():
    with opened(job_key=None, encrypt=False) as plain, opened(job_key=None, encrypt=False) as other:
        other.send(other.connect(plain.address), b"plain", acknowledged=True, timeout=PATIENCE)
        assert plain.recv(timeout=PATIENCE).data == b"plain" and plain.public_key is None
        with opened(answer_timeout=0.3) as protected:
            peer = protected.connect(plain.address)
            with pytest.raises(opensrd.PeerUnreachable, match="do the keys of both ends fit"):
                protected.send(peer, b"secret", acknowledged=True, timeout=PATIENCE)
        with pytest.raises(opensrd.TimedOut):
            plain.recv(timeout=0)


def test_settings_that_cannot_be_are_refused_with_a_remedy(tmp_path):
    open_to_all = tmp_path / "job.key"
    open_to_all.write_text(KEY)
    open_to_all.chmod(0o644)
    for kind, said, settings in [
        (ValueError, "64 hexadecimal digits", {"job_key": "abc"}),
        (ValueError, "64 hexadecimal digits", {"job_key": b"short"}),
        (ValueError, "give one of job_key", {"private_key": KEY}),
        (ValueError, "leave one of them out", {"encrypt": False}),
        (ValueError, "accept_anyone is for key pairs", {"accept_anyone": True}),
        (OSError, "chmod 600", {"job_key": None, "job_key_file": open_to_all}),
        (ValueError, "paths is 257: give a number from 1 to 256", {"paths": 257}),
        (ValueError, "send_queue is 0", {"send_queue": 0}),
        (ValueError, "receive_queue is 0", {"receive_queue": 0}),
        (ValueError, "packet_bytes_max is 9", {"packet_bytes_max": 9}),
        (ValueError, "link_rate_bps is 0", {"link_rate_bps": 0}),
        (ValueError, "peer_timeout", {"peer_timeout": -1.0}),
        (ValueError, "`peer_timeout`", {"peer_timeout": 0.0}),
    ]:
        with pytest.raises(kind, match=said) as error:
            opened(**settings)
        assert KEY not in str(error.value)
    for address in ("127.0.0.1", "::1:7471", "127.0.0.1:70000", ("127.0.0.1", -1)):
        with pytest.raises(ValueError):
            opensrd.Endpoint(address, job_key=KEY)
    with opened() as one:
        with pytest.raises(OSError, match="another program has this port"):
            opensrd.Endpoint(one.address, job_key=KEY)
        with opened() as other:
            with pytest.raises(ValueError, match="of another endpoint"):
                one.send(other.connect(one.address), b"")


def test_names_and_the_other_family_are_addresses_too():
    with opensrd.Endpoint(("::1", 0), job_key=KEY) as near:
        with opensrd.Endpoint("[::1]:0", job_key=KEY) as far:
            peer = near.connect("[::1]:{}".format(far.address[1]))
            near.send(peer, b"six", acknowledged=True, timeout=PATIENCE)
            assert far.recv(timeout=PATIENCE).data == b"six"
    with opened() as near, opened() as far:
        peer = near.connect(("localhost", far.address[1]))
        near.send(peer, b"name", acknowledged=True, timeout=PATIENCE)
        assert far.recv(timeout=PATIENCE).data == b"name"


def test_a_close_ends_what_other_threads_wait_for():
    near, far = opened(send_queue=4), opened(receive_queue=1)
    peer = near.connect(far.address)
    seen = []

    def receive():
        for message in near:
            seen.append(message.data)
        seen.append("end")
        with pytest.raises(opensrd.EndpointClosed):
            near.recv()
        seen.append("closed")

    def send():
        with pytest.raises(opensrd.EndpointClosed):
            while True:
                near.send(peer, b"to one that takes nothing")
        seen.append("refused")

    threads = [threading.Thread(target=receive), threading.Thread(target=send)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: peer.outstanding == 4)
    with pytest.raises(opensrd.TimedOut, match="before everything sent was acknowledged"):
        near.close(timeout=0.2)
    for thread in threads:
        thread.join(timeout=PATIENCE)
    assert sorted(seen) == ["closed", "end", "refused"] and near.closed
    near.close()
    for call in (lambda: near.connect(far.address), near.statistics):
        with pytest.raises(opensrd.EndpointClosed):
            call()
    # What was not acknowledged is not passed over.
    with pytest.raises(opensrd.PeerGone, match="was closed before it was sent"):
        near.flush(peer)
    far.close()
    assert repr(far) == "<opensrd.Endpoint closed>"


def test_what_arrived_before_the_close_can_still_be_taken(pair):
    near, far = pair
    near.send(near.connect(far.address), b"last", acknowledged=True, timeout=PATIENCE)
    far.close()
    assert [message.data for message in far] == [b"last"]


def test_many_threads_use_one_endpoint(pair):
    near, far = pair
    peer = near.connect(far.address)
    taken = []

    def take():
        for message in far:
            taken.append(message.data)

    def give(name):
        for number in range(500):
            near.send(peer, f"{name} {number}".encode())

    takers = [threading.Thread(target=take) for _ in range(3)]
    givers = [threading.Thread(target=give, args=(name,)) for name in range(3)]
    for thread in takers + givers:
        thread.start()
    for thread in givers:
        thread.join()
    near.flush(peer, timeout=PATIENCE)
    far.close()
    for thread in takers:
        thread.join(timeout=PATIENCE)
    assert len(taken) == len(set(taken)) == 1500


def resident_kib():
    with open("/proc/self/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read()).group(1))


def grown_kib(work, enough):
    """How much memory grows with some work: what is kept for good, it does each time. The first
    time that it grows by less than `enough` counts, of three."""
    for _ in range(3):
        before = resident_kib()
        work()
        grown = resident_kib() - before
        if grown < enough:
            break
    return grown


def exchange(near, far, peer, count):
    """So many messages, of which a window is under way at a time."""
    for first in range(0, count, 1000):
        for _ in range(min(1000, count - first)):
            near.send(peer, b"0123456789abcdef")
        for _ in range(min(1000, count - first)):
            far.recv(timeout=PATIENCE)
    near.flush(peer, timeout=PATIENCE)


@pytest.mark.parametrize(
    "count", [60_000, pytest.param(1_000_000, marks=pytest.mark.slow)], ids=["short", "million"]
)
def test_many_small_messages_do_not_grow_memory(pair, count):
    near, far = pair
    peer = near.connect(far.address)
    exchange(near, far, peer, 20_000)
    # Sixteen bytes, and what Python keeps of each, would be 6 MB and 100 MB.
    assert grown_kib(lambda: exchange(near, far, peer, count), 2048) < 2048


def test_waits_that_end_by_time_do_not_grow_memory(pair):
    near, _ = pair

    def waits():
        for _ in range(20_000):
            with pytest.raises(opensrd.TimedOut):
                near.recv(timeout=0)

    assert grown_kib(waits, 4096) < 4096


def test_the_child_of_a_fork_has_no_endpoint_and_does_not_disturb(pair):
    near, far = pair
    peer = near.connect(far.address)
    near.send(peer, b"before", acknowledged=True, timeout=PATIENCE)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            calls = [
                lambda: near.send(peer, b"x"),
                lambda: near.recv(timeout=0),
                lambda: near.connect(far.address),
                lambda: peer.address,
                near.close,
            ]
            refusals = 0
            for call in calls:
                try:
                    call()
                except opensrd.EndpointError as error:
                    refusals += "before a fork" in str(error)
            del near, far, peer
            code = 0 if refusals == len(calls) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    near.send(peer, b"after", acknowledged=True, timeout=PATIENCE)
    assert sorted(far.recv(timeout=PATIENCE).data for _ in range(2)) == [b"after", b"before"]
