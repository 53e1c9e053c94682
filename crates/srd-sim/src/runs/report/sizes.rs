//! Slowest flow by transfer size: the result of an incast that is repeated with larger and larger
//! flows.

use std::collections::{BTreeMap, BTreeSet};

use srd_chart::{Axis, ChartLine, Colour, Dashes, LineChart};

use super::charts::{Chart, HEIGHT, line, style};
use crate::runs::run::RunResult;

/// Returns the size of a run's flows in bytes; all flows have one size. Returns 0 if the flows are
/// endless.
pub fn flow_bytes(result: &RunResult) -> u64 {
    result.flow_records.first().and_then(|flow| flow.bytes).unwrap_or(0)
}

/// Returns the runs of a transport with those sizes of which every flow finished in every run.
fn complete<'a>(results: &[&'a RunResult], transport: &str) -> Vec<&'a RunResult> {
    let mine = || results.iter().copied().filter(|r| r.transport == transport);
    let open = mine().filter(|r| r.unfinished > 0 || r.flow_records.is_empty());
    let open: BTreeSet<u64> = open.map(flow_bytes).collect();
    mine().filter(|r| !open.contains(&flow_bytes(r))).collect()
}

/// Returns a chart of the slowest completion time over all seeds for each size: a line for each
/// transport, and a line of ideals. A size of which a flow is unfinished has no slowest completion
/// time, and so no point in the transport's line.
pub(super) fn slowest_by_size(results: &[&RunResult]) -> Option<Chart> {
    let mut transports: Vec<&str> = Vec::new();
    for result in results {
        if !transports.contains(&result.transport) {
            transports.push(result.transport);
        }
    }
    let of = |runs: &[&RunResult], pick: fn(&RunResult) -> f64| -> Vec<(f64, f64)> {
        let mut most: BTreeMap<u64, f64> = BTreeMap::new();
        for run in runs {
            let slot = most.entry(flow_bytes(run)).or_default();
            *slot = slot.max(pick(run));
        }
        most.into_iter().map(|(bytes, us)| (bytes as f64 / 1024.0, us)).collect()
    };
    let mut lines: Vec<ChartLine> = transports
        .iter()
        .map(|&transport| {
            let points = of(&complete(results, transport), |r| r.fct_us.max);
            line(transport, style(transport), points)
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    let points = of(results, |r| r.ideal_us);
    lines.push(line("ideal", (Colour::Ink, Dashes::Solid), points));
    let all = || lines.iter().flat_map(|line| &line.points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        let least = all().map(of).reduce(f64::min)?;
        Some((least, all().map(of).reduce(f64::max)?))
    };
    let (x, y) = (range(|p| p.0)?, range(|p| p.1)?);
    let first = results.first()?;
    let subtitle = format!("of all seeds; {} flows a run", first.flows);
    let drawn = LineChart {
        title: format!("{}: slowest flow", first.scenario),
        height: HEIGHT,
        x: Axis::fitting("bytes of each flow (KiB)", x.0, x.1),
        y: Axis::fitting("completion time of the slowest flow (us)", y.0, y.1),
        lines,
        marks: Vec::new(),
        levels: Vec::new(),
        steps: false,
    };
    Some(Chart { drawn, subtitle })
}
