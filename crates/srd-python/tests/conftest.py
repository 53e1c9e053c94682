"""What the tests share: small scenarios that take milliseconds, and waits with a limit."""

import os
import time

import pytest

#: Seconds that no test waits longer for anything: the processors may be busy.
PATIENCE = 60

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
    """Whether a process has used its CPU for longer than an interpreter takes to start."""
    try:
        with open(f"/proc/{child}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    return int(fields[11]) > 1.5 * os.sysconf("SC_CLK_TCK")


def busy_child_of(pid):
    """A process that another one has started, once it is in the middle of its work."""
    return eventually(
        lambda: next((child for child in children_of(pid) if is_busy(child)), None), 2 * PATIENCE
    )


@pytest.fixture
def small():
    return SMALL


@pytest.fixture
def long_scenario():
    return LONG
