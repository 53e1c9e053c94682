//! Scenarios of this project inside of the library, so that an installed package can run them by
//! name without their files.

use pyo3::prelude::*;

/// Name and TOML text of a scenario.
type Bundled = (&'static str, &'static str);

/// Includes the scenarios with these names.
macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../scenarios/", $name, ".toml")))),*]
    };
}

const SCENARIOS: &[Bundled] = scenarios![
    "all-reduce",
    "all-to-all",
    "collective-spine-death",
    "convergence",
    "degraded-1024",
    "degraded-128",
    "one-byte-writers",
    "one-byte-writes",
    "paper-a-1000-to-1",
    "paper-a-48-servers",
    "paper-a-express",
    "paper-a-incast",
    "paper-b-express",
    "paper-b-persistent",
    "paper-c-express",
    "paper-c-racks",
    "permutation-1024",
    "permutation-128",
    "permutation-8192",
    "permutation-express",
    "poisson",
    "racks-background",
    "racks-single",
    "random-loss",
    "random-loss-1-percent",
    "ranks-all-reduce",
    "ranks-all-to-all",
    "roce-deadlock",
    "roce-incast",
    "roce-slow-receiver",
    "second-write",
    "short-queues",
    "uplink-death",
];

/// Returns all scenarios, sorted by name.
#[pyfunction]
pub(crate) fn bundled() -> Vec<Bundled> {
    SCENARIOS.to_vec()
}
