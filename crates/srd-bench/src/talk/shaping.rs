//! The experiment `traffic-control`: the guest limits the rate of all flows together, and of each.

use crate::experiment::measure::programs::{IPERF3, Program};
use anyhow::Result;

use super::cloud::{Cloud, IP, Pair, SETPRIV, UNSHARE};
use super::{Context, Experiment, Findings, iperf};
use crate::experiment::measure::result::jain;
use srd_sim::talk::figure::{Figure, Near, TALK};

const TC: Program = Program { name: "tc", package: "iproute2" };

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "traffic-control",
    about: "c7i.large: ten flows at once (`iperf3 -P 10`) without traffic control, and with `htb` \
            at 10 Gb/s and 1 Gb/s for each flow.",
    scale: 100,
    takes_s: 30,
    needs: &[IPERF3, TC, IP, SETPRIV, UNSHARE],
    run,
};

fn run(context: &Context<'_>) -> Result<Findings> {
    let seconds = context.quick_or(2, 10);
    let cloud = Cloud::of(context, &Pair::of("c7i.large"))?;
    (context.say)("-P 10");
    let report = iperf::run(&cloud, &["-P", "10"], seconds)?;
    let mut found = Findings::default();
    found.figures.push(Figure::new("without: all flows", "Mb/s", report.mbps));
    found.figures.push(Figure::new("  shares (Jain)", "", jain(&report.flows_mbps)));
    let counted = cloud.counter("a", "bw_out_allowance_exceeded")?;
    found.figures.push(Figure::new("  packets counted as beyond bw_out", "", counted as f64));

    let cloud = Cloud::of(context, &Pair::of("c7i.large"))?;
    let rate = format!("{:.0}kbit", context.mbps(10.0) * 1e3);
    for words in [
        "qdisc add dev ens5 root handle 1: htb default 10".to_owned(),
        format!("class add dev ens5 parent 1: classid 1:10 htb rate {rate} ceil {rate}"),
    ] {
        let words: Vec<&str> = ["tc"].into_iter().chain(words.split(' ')).collect();
        cloud.run("a", &words)?;
    }
    let each = format!("{:.0}K", context.mbps(1.0) * 1e3);
    (context.say)(&format!("-P 10, htb at {rate}, each flow at {each}"));
    let report = iperf::run(&cloud, &["-P", "10", "--fq-rate", &each], seconds)?;
    let least = report.flows_mbps.iter().copied().fold(f64::MAX, f64::min);
    found
        .figures
        .push(Figure::new("with: all flows", "Mb/s", report.mbps).talk(context.mbps(9.64)));
    found
        .figures
        .push(Figure::new("  least of ten flows", "Mb/s", least).talk(context.mbps(0.964)));
    let shares = Figure::new("  shares (Jain)", "", jain(&report.flows_mbps));
    found.figures.push(shares.wanted(0.999, Near::AtLeast, TALK));
    let counted = cloud.counter("a", "bw_out_allowance_exceeded")?;
    let counted = Figure::new("  packets counted as beyond bw_out", "", counted as f64);
    found.figures.push(counted.wanted(0.0, Near::Exactly, "10 of 12.5 Gb/s"));
    found.notes.push(
        "the talk's line gives `maxrate` to `fq_codel`, which has none; `fq` has, and is missing \
         in many kernels. Each flow is paced by its socket (SO_MAX_PACING_RATE) instead. Its \
         figure without, 93.1 Gb/s, is more than the type has"
            .into(),
    );
    Ok(found)
}
