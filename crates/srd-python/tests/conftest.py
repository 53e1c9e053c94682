"""What the tests share: small scenarios that take milliseconds."""

import pytest

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


@pytest.fixture
def small():
    return SMALL


@pytest.fixture
def long_scenario():
    return LONG
