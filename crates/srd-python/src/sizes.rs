//! Distributions of flow sizes, by name or from a file.

use std::path::Path;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use srd_sim::workload::sizes;

/// Largest number of sizes that one call returns.
const SAMPLE_MAX: usize = 100_000_000;

/// A distribution of flow sizes.
#[pyclass(frozen, module = "opensrd._native")]
pub(crate) struct Sizes {
    inner: sizes::Sizes,
}

#[pymethods]
impl Sizes {
    /// Finds a distribution by name, or reads a CSV file.
    #[new]
    fn new(name: &str) -> PyResult<Self> {
        let inner = sizes::Sizes::find(name, Path::new("."))
            .map_err(|e| crate::ScenarioError::new_err(e.0))?;
        Ok(Self { inner })
    }

    /// Returns the mean size in bytes.
    #[getter]
    fn mean_bytes(&self) -> f64 {
        self.inner.mean_bytes()
    }

    /// Returns the points of the cumulative distribution: bytes and probability.
    #[getter]
    fn points(&self) -> Vec<(f64, f64)> {
        self.inner.points().to_vec()
    }

    /// Returns random sizes in bytes. Equal seeds give equal sizes.
    #[pyo3(signature = (count, seed=1))]
    fn sample(&self, py: Python<'_>, count: usize, seed: u64) -> PyResult<Vec<u64>> {
        if count > SAMPLE_MAX {
            let text = format!("count is {count}: give at most {SAMPLE_MAX}, and several seeds");
            return Err(PyValueError::new_err(text));
        }
        Ok(py.detach(|| self.inner.sample(count, seed)))
    }
}
