//! `--out DIR`: what a run leaves behind as files.

use crate::failure::Usage;
use anyhow::{Context, Result};
use srd_sim::run::{FlowRecord, RunResult};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Makes the directory, before the work is done and lost.
pub(super) fn prepare(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).map_err(|error| {
        Usage(format!("--out {}: cannot make the directory: {error}", directory.display())).into()
    })
}

/// Writes the files; returns how many.
pub(super) fn write(directory: &Path, results: &[RunResult]) -> Result<usize> {
    for result in results {
        let name = format!("{}-{}-{}.csv", result.scenario, result.transport, result.seed);
        let file = directory.join(name);
        fs::write(&file, flows_csv(&result.flow_records))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(results.len())
}

fn flows_csv(flows: &[FlowRecord]) -> String {
    let mut csv =
        String::from("id,src,dst,bytes,start_us,fct_us,ideal_us,delivered_bytes,failed\n");
    let or_empty = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
    for flow in flows {
        let bytes = flow.bytes.map_or(String::new(), |bytes| bytes.to_string());
        let _ = writeln!(
            csv,
            "{},{},{},{bytes},{},{},{:.3},{},{}",
            flow.id,
            flow.src,
            flow.dst,
            or_empty(flow.start_us),
            or_empty(flow.fct_us),
            flow.ideal_us,
            flow.delivered_bytes,
            flow.failed
        );
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_flow_has_an_empty_time() {
        let flow = FlowRecord {
            id: 3,
            src: 0,
            dst: 1,
            bytes: Some(10),
            start_us: Some(0.0),
            fct_us: None,
            ideal_us: 1.5,
            delivered_bytes: 4,
            failed: 0,
            damaged: 0,
        };
        assert!(flows_csv(&[flow]).ends_with("\n3,0,1,10,0.000,,1.500,4,0\n"));
    }
}
