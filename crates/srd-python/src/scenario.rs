//! A scenario, read with its overrides.

use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use srd_sim::run;
use srd_sim::scenario::{self, Override};

use crate::jobs::{self, explain};
use crate::runs::Runs;

/// Largest number of runs of one call; the command has the same limit.
const RUNS_MAX: u64 = 100_000;

/// A scenario whose keys and types were checked. Numbers that describe no valid world are found
/// when it runs.
#[pyclass(frozen, module = "opensrd._native")]
pub(crate) struct Scenario {
    inner: scenario::Scenario,
}

fn overrides(texts: &[String]) -> PyResult<Vec<Override>> {
    texts.iter().map(|text| text.parse::<Override>().map_err(explain)).collect()
}

#[pymethods]
impl Scenario {
    /// Reads a scenario from a file.
    #[staticmethod]
    fn open(path: PathBuf, sets: Vec<String>) -> PyResult<Self> {
        let inner = scenario::Scenario::open(&path, &overrides(&sets)?).map_err(explain)?;
        Ok(Self { inner })
    }

    /// Reads a scenario from TOML text.
    #[staticmethod]
    fn read(origin: &str, text: &str, directory: PathBuf, sets: Vec<String>) -> PyResult<Self> {
        let inner = scenario::Scenario::read(origin, text, &directory, &overrides(&sets)?)
            .map_err(explain)?;
        Ok(Self { inner })
    }

    /// Reads a scenario from JSON with the structure of the TOML.
    #[staticmethod]
    fn from_json(
        origin: &str,
        text: &str,
        directory: PathBuf,
        sets: Vec<String>,
    ) -> PyResult<Self> {
        let fail =
            |e: &dyn std::fmt::Display| crate::ScenarioError::new_err(format!("{origin}: {e}"));
        let value: serde_json::Value = serde_json::from_str(text).map_err(|e| fail(&e))?;
        let text = toml::to_string(&value).map_err(|e| fail(&e))?;
        Self::read(origin, &text, directory, sets)
    }

    /// Returns the name of the scenario.
    #[getter]
    fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the description of the scenario.
    #[getter]
    fn description(&self) -> &str {
        &self.inner.description
    }

    /// Returns the directory to which relative paths refer.
    #[getter]
    fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// Returns the whole scenario as JSON, including all defaults.
    fn json(&self) -> PyResult<String> {
        serde_json::to_string(&self.inner).map_err(|e| PyValueError::new_err(e.to_string()))
    }

    /// Returns the scenario as TOML.
    fn toml(&self) -> PyResult<String> {
        toml::to_string(&self.inner).map_err(|e| PyValueError::new_err(e.to_string()))
    }

    /// Runs the scenario: every transport with every seed.
    #[pyo3(signature = (threads=None, said=None))]
    fn run(
        &self,
        py: Python<'_>,
        threads: Option<usize>,
        said: Option<Py<PyAny>>,
    ) -> PyResult<Runs> {
        let scenario::Scenario { transports, seed, seeds, .. } = &self.inner;
        if *seeds == 0 || transports.is_empty() {
            let text = "at least one transport and one seed are needed";
            return Err(crate::ScenarioError::new_err(text));
        }
        if seeds.saturating_mul(transports.len() as u64) > RUNS_MAX {
            let text = format!("seeds {seeds}: at most {RUNS_MAX} runs in all");
            return Err(crate::ScenarioError::new_err(text));
        }
        let seeds = *seed..seed.saturating_add(*seeds);
        let jobs = run::jobs(&self.inner, transports, seeds);
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = threads.unwrap_or_else(cores).max(1);
        Ok(Runs { inner: jobs::run_all(py, &jobs, threads, said.as_ref())? })
    }
}
