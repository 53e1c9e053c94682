//! Slowest flow by transfer size: the result of an incast that is repeated with larger and larger
//! flows.

use std::collections::BTreeMap;

use srd_chart::{Axis, ChartLine, Colour, Dashes, LineChart};

use super::charts::{Chart, HEIGHT, line, style};
use crate::runs::run::RunResult;

/// Returns the size of a run's flows in bytes; all flows have one size. Returns 0 if the flows are
/// endless.
pub fn flow_bytes(result: &RunResult) -> u64 {
    result.flow_records.first().and_then(|flow| flow.bytes).unwrap_or(0)
}

/// Returns a chart of the slowest completion time over all seeds for each size: a line for each
/// transport, and a line of ideals.
pub(super) fn slowest_by_size(results: &[&RunResult]) -> Option<Chart> {
    let mut transports: Vec<&str> = Vec::new();
    for result in results {
        if !transports.contains(&result.transport) {
            transports.push(result.transport);
        }
    }
    let of = |pick: &dyn Fn(&RunResult) -> Option<f64>| -> Vec<(f64, f64)> {
        let mut most: BTreeMap<u64, f64> = BTreeMap::new();
        for result in results {
            let Some(us) = pick(result) else { continue };
            let slot = most.entry(flow_bytes(result)).or_default();
            *slot = slot.max(us);
        }
        most.into_iter().map(|(bytes, us)| (bytes as f64 / 1024.0, us)).collect()
    };
    let mut lines: Vec<ChartLine> = transports
        .iter()
        .map(|&transport| {
            let points = of(&|r| (r.transport == transport).then_some(r.fct_us.max));
            line(transport, style(transport), points)
        })
        .collect();
    let points = of(&|r| Some(r.ideal_us));
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
