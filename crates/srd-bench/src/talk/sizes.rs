//! The experiment `flow-limits`: throughput by segment size. The packet rate of the instance limits
//! small segments, and the largest rate of a flow limits large ones.

use crate::experiment::measure::programs::IPERF3;
use anyhow::Result;

use super::cloud::{Cloud, IP, Pair, SETPRIV, UNSHARE};
use super::curve::Curve;
use super::{Context, Experiment, Findings, iperf};
use srd_sim::talk::figure::{DOCUMENTED, Figure, Near};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "flow-limits",
    about: "c7i.large: `iperf3 -M SIZE`, in steps of 128 bytes, inside of a cluster placement \
            group and outside; c7i.24xlarge with ENA Express. Small packets stop at the packets a \
            second, large ones at the ceiling of a flow.",
    scale: 100,
    takes_s: 130,
    needs: &[IPERF3, IP, SETPRIV, UNSHARE],
    run,
};

/// Packets per second of a c7i.large: 928 Mb/s of segments with 128 bytes of payload.
const PACKETS_PER_SECOND: f64 = 906_000.0;
/// Largest segment size in bytes with an MTU of 9001.
const LARGE: u32 = 8949;

struct Row {
    name: &'static str,
    pair: Pair,
    flows: u32,
    ceiling_gbps: f64,
}

fn run(context: &Context<'_>) -> Result<Findings> {
    let kind = "c7i.large";
    let rows = [
        Row {
            name: "one flow, outside",
            pair: Pair::of(kind).apart(),
            flows: 1,
            ceiling_gbps: 5.0,
        },
        Row {
            name: "one flow, placement group",
            pair: Pair::of(kind),
            flows: 1,
            ceiling_gbps: 10.0,
        },
        Row {
            name: "two flows, placement group",
            pair: Pair::of(kind),
            flows: 2,
            ceiling_gbps: 12.5,
        },
    ];
    let steps: Vec<u32> = context.quick_or(vec![128, LARGE], {
        let mut steps: Vec<u32> = (1..=11).map(|step| step * 128).collect();
        steps.extend([2048, 4096, LARGE]);
        steps
    });
    let mut found = Findings::default();
    let mut lines = Vec::new();
    for row in &rows {
        let cloud = Cloud::of(context, &row.pair)?;
        let mut points = Vec::new();
        for size in &steps {
            (context.say)(&format!("{}, -M {size}", row.name));
            let words = ["-M", &size.to_string(), "-P", &row.flows.to_string()];
            let mbps = iperf::run(&cloud, &words, 2)?.mbps;
            points.push((f64::from(*size), mbps));
        }
        let at =
            |size: f64| points.iter().find(|(s, _)| (s - size).abs() < 0.5).map_or(0.0, |p| p.1);
        let small = Figure::new(format!("{}, 128 bytes", row.name), "Mb/s", at(128.0));
        found
            .figures
            .push(small.talk(context.mbps(PACKETS_PER_SECOND * 128.0 * 8.0 / 1e9)).given());
        let large =
            Figure::new(format!("{}, {LARGE} bytes", row.name), "Mb/s", at(f64::from(LARGE)));
        let documented = context.mbps(row.ceiling_gbps);
        found.figures.push(large.wanted(documented, Near::MEASURED, DOCUMENTED));
        let ideal = steps.iter().map(|size| {
            let packets = PACKETS_PER_SECOND * f64::from(*size) * 8.0 / 1e9;
            (f64::from(*size), context.mbps(packets.min(row.ceiling_gbps)))
        });
        lines.push((format!("{}, expected", row.name), ideal.collect()));
        lines.push((row.name.to_owned(), points));
    }
    found.curves.push(Curve {
        title: "Throughput by segment size".into(),
        x: "bytes of a segment",
        y: "Mb/s",
        lines,
    });
    (context.say)("one flow with ENA Express, c7i.24xlarge");
    let cloud = Cloud::of(context, &Pair::of("c7i.24xlarge").with_express())?;
    let report = iperf::run(&cloud, &["-P", "1"], context.quick_or(2, 10))?;
    let figure = Figure::new("one flow, ENA Express, c7i.24xlarge", "Mb/s", report.mbps);
    found.figures.push(figure.wanted(context.mbps(25.0), Near::MEASURED, DOCUMENTED));
    Ok(found)
}
