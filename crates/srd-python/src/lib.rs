//! `opensrd._native`: endpoints and the simulator for Python.
//!
//! ```text
//! path, TOML text or JSON --> Scenario --run--> Runs --> JSON as of `srd sim run`, and columns
//! settings --> Endpoint --connect--> Peer; send, recv --> Message; start_... --> Operation
//! ```
//! This module exchanges only data; functions for convenience are written in Python
//! (`python/opensrd`). A run releases the interpreter for other threads, and checks at the interval
//! `jobs::ASK` whether Ctrl-C was pressed.
//!
//! | module | content |
//! |---|---|
//! | `endpoint` | endpoints on real sockets, with their messages and counters |
//! | `scenario`, `sizes`, `bundled` | scenarios; distributions of flow sizes; the scenarios of this project |
//! | `runs`, `jobs` | results of runs; runs without the interpreter's lock |

mod bundled;
mod endpoint;
mod jobs;
mod runs;
mod scenario;
mod sizes;

use pyo3::prelude::*;
use srd_sim::scenario::Transport;

/// Address translation limits the speed of large simulations. The `srd` command restarts itself
/// with an allocator that requests huge pages. A library cannot do this, so it contains such an
/// allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pyo3::create_exception!(
    opensrd,
    ScenarioError,
    pyo3::exceptions::PyValueError,
    "A scenario that makes no world. The text says where and what to change."
);
pyo3::create_exception!(
    opensrd,
    SimulatorError,
    pyo3::exceptions::PyRuntimeError,
    "Packets that do not add up: a fault of the simulator, not of the scenario."
);

/// Defines the Python module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("TRANSPORTS", Transport::ALL.map(|(_, name)| name).to_vec())?;
    module.add("ScenarioError", module.py().get_type::<ScenarioError>())?;
    module.add("SimulatorError", module.py().get_type::<SimulatorError>())?;
    module.add_class::<scenario::Scenario>()?;
    module.add_class::<runs::Runs>()?;
    module.add_class::<sizes::Sizes>()?;
    module.add_class::<endpoint::Endpoint>()?;
    module.add_class::<endpoint::Message>()?;
    module.add_class::<endpoint::Operation>()?;
    module.add_class::<endpoint::Peer>()?;
    module.add_function(wrap_pyfunction!(bundled::bundled, module)?)
}
