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

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

pub use csv::flows_csv;
pub use sizes::flow_bytes;
pub use table::table;

use crate::engine::hash;
use crate::runs::run::RunResult;

/// Returns the median of sorted values: for an even number of values, the mean of the middle two.
/// `None` if there are no values.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(sorted[last / 2], sorted[sorted.len() / 2]))
}

/// Largest number of characters of a file name that come from the name of a scenario.
const SCENARIO_CHARS_MAX: usize = 100;

/// Returns the name of a scenario as the beginning of file names, which consists of safe characters
/// only: letters, digits, `-`, `_` and `.`. A name with other characters, with a dot at its
/// beginning, or with more than [`SCENARIO_CHARS_MAX`] characters is changed. A changed name ends
/// with `~` and a digest of the scenario's name, so that two scenarios never share a file.
fn stem(scenario: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let plain: String = scenario.chars().map(safe).take(SCENARIO_CHARS_MAX).collect();
    let plain = plain.trim_start_matches('.');
    if plain == scenario {
        return plain.to_owned();
    }
    let add = |digest: u64, byte: u8| hash::mix(digest ^ u64::from(byte)).wrapping_add(1);
    let digest = scenario.bytes().fold(0, add);
    format!("{plain}~{digest:016x}")
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
/// Paused links and captured packets get files as well. The names of the files contain the name of
/// the scenario, the transport and the seed. Returns the paths of the files.
///
/// # Errors
/// If a file cannot be written, or two results have the same scenario, transport and seed: the
/// files of one would replace those of the other.
pub fn write_all(directory: &Path, results: &[RunResult]) -> io::Result<Vec<PathBuf>> {
    let mut runs = BTreeSet::new();
    for RunResult { scenario, transport, seed, .. } in results {
        if !runs.insert((scenario, transport, seed)) {
            let what = format!("two results of `{scenario}`, {transport}, seed {seed}: rename one");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
    }
    std::fs::create_dir_all(directory)?;
    let mut files = Vec::new();
    let mut write = |name: String, text: &[u8]| -> io::Result<()> {
        let path = directory.join(name);
        std::fs::write(&path, text)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        files.push(path);
        Ok(())
    };
    let scenarios: BTreeSet<&str> = results.iter().map(|r| r.scenario.as_str()).collect();
    for scenario in scenarios {
        let of: Vec<&RunResult> = results.iter().filter(|r| r.scenario == scenario).collect();
        if let Some(chart) = charts::completion(&of) {
            write(format!("{}-fct.svg", stem(scenario)), chart.file().as_bytes())?;
        }
    }
    for result in results {
        let run = format!("{}-{}-{}", stem(&result.scenario), result.transport, result.seed);
        write(format!("{run}.csv"), flows_csv(&result.flow_records).as_bytes())?;
        if let Some(pauses) = &result.pauses {
            write(format!("{run}-pauses.csv"), pauses.csv().as_bytes())?;
        }
        if let Some(capture) = &result.capture {
            write(format!("{run}.pcapng"), capture)?;
        }
        for (what, chart) in [
            ("throughput", charts::throughput(result)),
            ("goodput", charts::goodput(result)),
            ("queues", charts::queues(result)),
            ("paths", charts::paths(result)),
        ] {
            if let Some(chart) = chart {
                write(format!("{run}-{what}.svg"), chart.file().as_bytes())?;
            }
        }
    }
    Ok(files)
}
