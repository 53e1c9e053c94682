//! Results for users: a table, a CSV of every flow, and charts as self-contained SVG.
//!
//! Charts are light or dark according to the reader's settings. Their axes have labels with units.
//! A transport has the same colour in all charts. A chart needs no other file.

mod charts;
mod columns;
mod csv;
pub mod fairness;
mod notes;
pub mod pauses;
pub mod recovery;
mod sizes;
mod table;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

pub use csv::flows_csv;
pub use sizes::flow_bytes;
pub use table::table;

use crate::runs::run::RunResult;

/// Returns the median of sorted values: for an even number of values, the mean of the middle two.
/// `None` if there are no values.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(sorted[last / 2], sorted[sorted.len() / 2]))
}

/// Returns a file name that consists of safe characters only: letters, digits, `-`, `_` and `.`.
/// Other characters are replaced by `_`.
fn file_name(parts: &[&str], extension: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = parts.join("-").chars().map(safe).collect();
    format!("{}.{extension}", name.trim_start_matches('.'))
}

/// Returns a chart of the completion times of all transports and the ideal, as SVG. `None` if no
/// flow finished.
pub fn completion_svg(results: &[&RunResult]) -> Option<String> {
    charts::completion(results).map(|chart| chart.file())
}

/// Returns a chart of the slowest flow of each transport by transfer size, as SVG; `None` if there
/// are no results.
pub fn slowest_by_size_svg(results: &[&RunResult]) -> Option<String> {
    sizes::slowest_by_size(results).map(|chart| chart.file())
}

/// Returns a chart of each flow's goodput over time, as SVG; `None` if it was not recorded.
pub fn throughput_svg(result: &RunResult) -> Option<String> {
    charts::throughput(result).map(|chart| chart.file())
}

/// Writes the results of runs into a directory, which is created if it does not exist. The files
/// are the flows of each run as CSV, and a chart of the completion times of all transports. If a
/// run recorded throughput, queues or path shares over time, there are charts of these values.
/// Paused links and captured packets get files as well. Returns the paths of the files.
///
/// # Errors
/// If a file cannot be written.
pub fn write_all(directory: &Path, results: &[RunResult]) -> io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(directory)?;
    let mut files = Vec::new();
    let mut write = |name: String, text: &[u8]| -> io::Result<()> {
        let path = directory.join(name);
        std::fs::write(&path, text)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        files.push(path);
        Ok(())
    };
    let mut scenarios: Vec<&str> = results.iter().map(|r| r.scenario.as_str()).collect();
    scenarios.sort_unstable();
    scenarios.dedup();
    for scenario in scenarios {
        let of: Vec<&RunResult> = results.iter().filter(|r| r.scenario == scenario).collect();
        if let Some(chart) = charts::completion(&of) {
            write(file_name(&[scenario, "fct"], "svg"), chart.file().as_bytes())?;
        }
    }
    for result in results {
        let seed = result.seed.to_string();
        let name = |what: &[&str], extension: &str| {
            let run = [result.scenario.as_str(), result.transport, &seed];
            file_name(&[&run, what].concat(), extension)
        };
        write(name(&[], "csv"), flows_csv(&result.flow_records).as_bytes())?;
        if let Some(pauses) = &result.pauses {
            write(name(&["pauses"], "csv"), pauses.csv().as_bytes())?;
        }
        if let Some(capture) = &result.capture {
            write(name(&[], "pcapng"), capture)?;
        }
        for (what, chart) in [
            ("throughput", charts::throughput(result)),
            ("goodput", charts::goodput(result)),
            ("queues", charts::queues(result)),
            ("paths", charts::paths(result)),
        ] {
            if let Some(chart) = chart {
                write(name(&[what], "svg"), chart.file().as_bytes())?;
            }
        }
    }
    Ok(files)
}
