"""OpenSRD's datacenter simulator, which runs the production SRD transport, from Python.

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

from . import faults, sizes, topology, workload
from .result import Result
from .scenario import Card, Measure, Queue, Scenario, Srd, Tcp
from .simulate import scenarios, simulate
from .sweep import Sweep, WorkerDied, sweep
from .table import Table

__all__ = [
    "TRANSPORTS",
    "Card",
    "Measure",
    "Queue",
    "Result",
    "Scenario",
    "ScenarioError",
    "SimulatorError",
    "Srd",
    "Sweep",
    "Table",
    "Tcp",
    "WorkerDied",
    "__version__",
    "faults",
    "scenarios",
    "simulate",
    "sizes",
    "sweep",
    "topology",
    "workload",
]
