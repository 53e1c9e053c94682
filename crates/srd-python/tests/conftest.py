"""What the tests share: small scenarios that take milliseconds, and waits with a limit."""

import os
import signal
import time

import pytest

#: Longest wait of a test for one state, in seconds. CI runs these tests at the lowest priority beside
#: others, so that a thread may get next to no processor time for many seconds.
PATIENCE = 300

# A shell that starts the tests in the background switches Ctrl-C off for them. Processes that the
# tests start inherit this setting.
signal.signal(signal.SIGINT, signal.default_int_handler)

SMALL = """
name = "small"
transports = ["srd", "tcp"]
horizon_us = 100_000.0

[topology]
kind = "leaf-spine"
leaves = 2
spines = 2
leaf_hosts = 4

[[workload]]
kind = "incast"
senders = 4
bytes = "64KiB"

[measure]
interval_us = 5.0
flows = true
queues = ["leaf0->host0"]
loads = ["leaf0->spine"]
"""

#: Minutes of work, so that a test can interrupt it.
LONG = """
name = "long"
horizon_us = 1e9
[topology]
kind = "leaf-spine"
leaves = 2
spines = 8
leaf_hosts = 8
[[workload]]
kind = "tornado"
bytes = "endless"
"""


def eventually(what, limit=PATIENCE):
    """Waits until `what` returns something that is true, and returns that; None: it never did."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.01)
    return None


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def is_busy(child):
    """Whether a worker is in the middle of a run. A worker has two threads: one waits for the run, and
    one checks whether the parent has ended. Each run has further threads."""
    try:
        return len(os.listdir(f"/proc/{child}/task")) > 2
    except OSError:
        return False


def busy_child_of(pid):
    """A worker that a process has started, once the worker is in the middle of a run."""
    return eventually(
        lambda: next((child for child in children_of(pid) if is_busy(child)), None)
    )


def peer_events(events):
    """The kinds and addresses of the events about peers. Other events depend on the machine: if its
    threads stand still, a search for the size of packets may have a wrong result for a while."""
    return [(event.kind, event.address) for event in events if event.kind.startswith("peer-")]


@pytest.fixture
def small():
    return SMALL


@pytest.fixture
def long_scenario():
    return LONG
