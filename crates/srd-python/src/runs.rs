//! Results of runs: the JSON of the command, and columns for tables.
//!
//! A table is a dict of lists of equal length. Every table begins with the columns `scenario`,
//! `transport` and `seed`, so that tables of several runs can be joined.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use srd_sim::run::{FlowRecord, RunResult};

/// Results of several runs.
#[pyclass(frozen, module = "opensrd._native")]
pub(crate) struct Runs {
    pub(crate) inner: Vec<RunResult>,
}

/// Returns a table with the columns that identify the run of each row. `rows` returns the number of
/// rows of a run.
fn of_runs<'py>(
    py: Python<'py>,
    runs: &[RunResult],
    rows: impl Fn(&RunResult) -> usize,
) -> PyResult<Bound<'py, PyDict>> {
    let table = PyDict::new(py);
    let repeat = || runs.iter().flat_map(|run| std::iter::repeat_n(run, rows(run)));
    table.set_item("scenario", repeat().map(|r| r.scenario.as_str()).collect::<Vec<_>>())?;
    table.set_item("transport", repeat().map(|r| r.transport).collect::<Vec<_>>())?;
    table.set_item("seed", repeat().map(|r| r.seed).collect::<Vec<_>>())?;
    Ok(table)
}

/// Samples of a run's ports: the names of the ports, and a row of values for each time.
type Ports<'a> = (&'a [String], &'a [Vec<u64>]);

/// Returns a table with a row for each time and port.
fn ports<'py>(
    py: Python<'py>,
    runs: &[RunResult],
    pick: fn(&RunResult) -> Option<Ports<'_>>,
) -> PyResult<Bound<'py, PyDict>> {
    let count = |run: &RunResult| pick(run).map_or(0, |(names, rows)| names.len() * rows.len());
    let table = of_runs(py, runs, count)?;
    let (mut at_us, mut port, mut bytes, mut gbps) = (vec![], vec![], vec![], vec![]);
    for run in runs {
        let (Some(series), Some((names, rows))) = (&run.series, pick(run)) else { continue };
        for (at_ps, row) in series.at_ps.iter().zip(rows) {
            for (name, &value) in names.iter().zip(row) {
                at_us.push(*at_ps as f64 / 1e6);
                port.push(name.as_str());
                bytes.push(value);
                gbps.push(value as f64 * 8e3 / series.interval_ps as f64);
            }
        }
    }
    table.set_item("at_us", at_us)?;
    table.set_item("port", port)?;
    table.set_item("bytes", bytes)?;
    table.set_item("gbps", gbps)?;
    Ok(table)
}

#[pymethods]
impl Runs {
    /// Returns the text that `srd sim run --json` writes.
    fn json(&self) -> PyResult<String> {
        let text = serde_json::to_string_pretty(&self.inner);
        text.map(|text| text + "\n").map_err(|e| PyValueError::new_err(e.to_string()))
    }

    /// Returns descriptions of all faults of each run; the list of a run without faults is empty.
    fn complaints(&self) -> Vec<Vec<String>> {
        self.inner.iter().map(RunResult::complaints).collect()
    }

    /// Returns the table that the command prints.
    fn text(&self) -> String {
        srd_sim::report::table(&self.inner)
    }

    /// Returns the CSV file of flows that `srd sim run --out` writes for the run with this number.
    fn flows_csv(&self, run: usize) -> PyResult<String> {
        let run = self.inner.get(run).ok_or_else(|| PyValueError::new_err("no such run"))?;
        Ok(srd_sim::report::flows_csv(&run.flow_records))
    }

    /// Returns a table of all flows.
    fn flows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = of_runs(py, &self.inner, |run| run.flow_records.len())?;
        let all = || self.inner.iter().flat_map(|run| &run.flow_records);
        let over = |flow: &FlowRecord| flow.fct_us.map(|us| us / flow.ideal_us);
        table.set_item("id", all().map(|f| f.id).collect::<Vec<_>>())?;
        table.set_item("src", all().map(|f| f.src).collect::<Vec<_>>())?;
        table.set_item("dst", all().map(|f| f.dst).collect::<Vec<_>>())?;
        table.set_item("bytes", all().map(|f| f.bytes).collect::<Vec<_>>())?;
        table.set_item("start_us", all().map(|f| f.start_us).collect::<Vec<_>>())?;
        table.set_item("fct_us", all().map(|f| f.fct_us).collect::<Vec<_>>())?;
        table.set_item("ideal_us", all().map(|f| f.ideal_us).collect::<Vec<_>>())?;
        table.set_item("slowdown", all().map(over).collect::<Vec<_>>())?;
        let delivered = all().map(|f| f.delivered_bytes).collect::<Vec<_>>();
        table.set_item("delivered_bytes", delivered)?;
        table.set_item("failed", all().map(|f| f.failed).collect::<Vec<_>>())?;
        table.set_item("damaged", all().map(|f| f.damaged).collect::<Vec<_>>())?;
        Ok(table)
    }

    /// Returns the largest queue of each recorded port in bytes, over time.
    fn queues<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let table = ports(py, &self.inner, pick_queues)?;
        table.del_item("gbps")?;
        Ok(table)
    }

    /// Returns the bytes that each recorded port sent, over time.
    fn loads<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ports(py, &self.inner, pick_loads)
    }

    /// Returns the bytes that each flow delivered, over time.
    fn goodput<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let samples = |run: &RunResult| -> usize {
            run.series.as_ref().map_or(0, |s| s.flow_bytes.iter().map(Vec::len).sum())
        };
        let table = of_runs(py, &self.inner, samples)?;
        let (mut at_us, mut id, mut bytes, mut gbps) = (vec![], vec![], vec![], vec![]);
        for run in &self.inner {
            let Some(series) = &run.series else { continue };
            for (at_ps, row) in series.at_ps.iter().zip(&series.flow_bytes) {
                for (flow, &value) in run.flow_records.iter().zip(row) {
                    at_us.push(*at_ps as f64 / 1e6);
                    id.push(flow.id);
                    bytes.push(value);
                    gbps.push(value as f64 * 8e3 / series.interval_ps as f64);
                }
            }
        }
        table.set_item("at_us", at_us)?;
        table.set_item("id", id)?;
        table.set_item("bytes", bytes)?;
        table.set_item("gbps", gbps)?;
        Ok(table)
    }
}

fn pick_queues(run: &RunResult) -> Option<Ports<'_>> {
    run.series.as_ref().map(|s| (s.queues.as_slice(), s.queue_bytes.as_slice()))
}

fn pick_loads(run: &RunResult) -> Option<Ports<'_>> {
    run.series.as_ref().map(|s| (s.loads.as_slice(), s.load_bytes.as_slice()))
}
