"""OpenSRD from Python: endpoints of the SRD transport on real sockets, and its simulator.

>>> with opensrd.Endpoint("192.0.2.1:7471", job_key_file="job.key") as endpoint:
...     message = endpoint.recv()
...     endpoint.send(message.peer, message.data)

`Endpoint` is for threads, `AsyncEndpoint` for asyncio. The simulator runs the same transport in
datacenters of thousands of hosts:

>>> import opensrd
>>> result = opensrd.simulate("paper-a-incast", transports=["srd", "tcp"])
>>> result.flows.to_pandas().groupby("transport").fct_us.max()

`simulate` runs one scenario, `sweep` the product of many overrides, `opensrd.plot` draws what
they measured. The same seed gives the same result on every machine, to the last bit, and the
same as the command `srd sim run`.
"""

import os as _os

# The simulator's allocator asks for huge pages if it is told so before it starts: large worlds are
# bound by address translation. The setting must not reach programs that this one starts.
_HUGE_PAGES = "MIMALLOC_ALLOW_LARGE_OS_PAGES"
_told = _HUGE_PAGES in _os.environ
_os.environ.setdefault(_HUGE_PAGES, "1")
try:
    from ._native import TRANSPORTS, ScenarioError, SimulatorError, __version__
finally:
    if not _told:
        del _os.environ[_HUGE_PAGES]

from . import faults, plot, sizes, topology, workload
from ._native import Message, Peer
from .aio import AsyncEndpoint
from .endpoint import Endpoint
from .errors import (
    EndpointClosed,
    EndpointError,
    PeerGone,
    PeerRestarted,
    PeerUnreachable,
    Refused,
    TimedOut,
    TooBig,
)
from .result import Result
from .scenario import Card, Measure, Queue, Roce, Scenario, Srd, Tcp
from .simulate import scenarios, simulate
from .statistics import Event, PeerStatistics, Statistics
from .sweep import Sweep, WorkerDied, sweep
from .table import Table

__all__ = [
    "TRANSPORTS",
    "AsyncEndpoint",
    "Card",
    "Endpoint",
    "EndpointClosed",
    "EndpointError",
    "Event",
    "Measure",
    "Message",
    "Peer",
    "PeerGone",
    "PeerRestarted",
    "PeerStatistics",
    "PeerUnreachable",
    "Queue",
    "Refused",
    "Result",
    "Roce",
    "Scenario",
    "ScenarioError",
    "SimulatorError",
    "Srd",
    "Statistics",
    "Sweep",
    "Table",
    "Tcp",
    "TimedOut",
    "TooBig",
    "WorkerDied",
    "__version__",
    "faults",
    "plot",
    "scenarios",
    "simulate",
    "sizes",
    "sweep",
    "topology",
    "workload",
]
