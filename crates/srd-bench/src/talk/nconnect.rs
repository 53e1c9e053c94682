//! The experiment `nconnect`: many connections, each limited to the largest rate of a flow.

use crate::experiment::measure::programs::IPERF3;
use anyhow::Result;

use super::cloud::{Cloud, IP, Pair, SETPRIV, UNSHARE};
use super::{Context, Experiment, Findings, iperf};
use srd_sim::talk::figure::{Figure, Near};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "nconnect",
    about: "c6in.16xlarge (100 Gb/s), outside of a placement group: 16 connections, as \
            `nconnect=16` of an NFS mount opens, of at most 5 Gb/s each reach 80 of 100; with ENA \
            Express they reach the link.",
    scale: 1000,
    takes_s: 30,
    needs: &[IPERF3, IP, SETPRIV, UNSHARE],
    run,
};

fn run(context: &Context<'_>) -> Result<Findings> {
    let seconds = context.quick_or(2, 8);
    let pair = || Pair::of("c6in.16xlarge").apart();
    let mut found = Findings::default();
    for (name, pair, flows, gbps, near) in [
        ("one connection", pair(), 1, 5.0, Near::MEASURED),
        ("16 connections", pair(), 16, 80.0, Near::MEASURED),
        ("16 connections, ENA Express", pair().with_express(), 16, 95.5, Near::AtLeast),
    ] {
        (context.say)(name);
        let cloud = Cloud::of(context, &pair)?;
        // iperf3 does not count bytes that its sockets still hold at the end; in a longer run their
        // share is smaller.
        let report = iperf::run(&cloud, &["-P", &flows.to_string()], seconds)?;
        let figure = Figure::new(name, "Mb/s", report.mbps);
        found.figures.push(figure.wanted(context.mbps(gbps), near, "nconnect on EC2"));
    }
    Ok(found)
}
