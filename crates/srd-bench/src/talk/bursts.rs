//! The experiments `burst`, `pps` and `microburst`: one and two flows, limited by the largest rate
//! of a flow, or the bandwidth or packet rate of an instance; and bursts that a one-minute average
//! hides.

use crate::experiment::measure::programs::IPERF3;
use anyhow::Result;

use super::cloud::{Cloud, IP, Pair, SETPRIV, UNSHARE};
use super::curve::Curve;
use super::{Context, Experiment, Findings, iperf};
use srd_sim::talk::figure::{Figure, Near, TALK};

const KIND: Pair = Pair::of("c7i.large");

pub(super) const BURST: Experiment = Experiment {
    name: "burst",
    about: "c7i.large, a cluster placement group, credits at hand: `iperf3 -t 1 -l 9000`. One flow \
            stops at the ceiling of a flow, two at the bandwidth of the instance.",
    scale: 100,
    takes_s: 25,
    needs: &[IPERF3, IP, SETPRIV, UNSHARE],
    run: burst,
};

pub(super) const PACKETS: Experiment = Experiment {
    name: "pps",
    about: "c7i.large: `iperf3 -M 128`. Packets a second of the instance are the limit of one \
            flow, and a second flow brings nothing.",
    scale: 100,
    takes_s: 25,
    needs: &[IPERF3, IP, SETPRIV, UNSHARE],
    run: packets,
};

pub(super) const MICROBURST: Experiment = Experiment {
    name: "microburst",
    about: "c7i.large: six seconds at the ceiling of a flow look like a tenth of it in a minute's \
            average; eight UDP flows of 3.3 Gb/s for a second are more than the instance may send.",
    scale: 100,
    takes_s: 20,
    needs: &[IPERF3, IP, SETPRIV, UNSHARE],
    run: microburst,
};

fn burst(context: &Context<'_>) -> Result<Findings> {
    let seconds = context.quick_or(1, 10);
    let mut found = Findings::default();
    for flows in [1, 2] {
        (context.say)(&format!("-l 9000 -P {flows}, {seconds} s"));
        let cloud = Cloud::of(context, &KIND)?;
        let report = iperf::run(&cloud, &["-l", "9000", "-P", &flows.to_string()], seconds)?;
        let (name, gbps) = if flows == 1 { ("one flow", 9.54) } else { ("two flows", 12.5) };
        found.figures.push(Figure::new(name, "Mb/s", report.mbps).talk(context.mbps(gbps)));
        if flows == 2 {
            shares(context, &mut found, &report.flows_mbps, [6.24, 6.22]);
        }
        found.notes.push(moved(&cloud, name)?);
    }
    Ok(found)
}

/// Adds a figure for the rate of each flow, and the rates of the talk as a note. The talk's rates
/// are no targets: its run lasted one second, and the congestion control of the guests shares the
/// bandwidth.
fn shares(context: &Context<'_>, found: &mut Findings, flows_mbps: &[f64], talk_gbps: [f64; 2]) {
    for flow in flows_mbps {
        found.figures.push(Figure::new("  each of them", "Mb/s", *flow));
    }
    let [one, other] = talk_gbps.map(|gbps| context.mbps(gbps));
    found.notes.push(format!(
        "the talk's two flows have {one:.2} and {other:.2} Mb/s; how they share is up to the guests"
    ));
}

/// Returns a note that lists which allowances were exceeded at either end of the run `what`.
fn moved(cloud: &Cloud, what: &str) -> Result<String> {
    let [sender, receiver] = ["a", "b"].map(|instance| cloud.exceeded(instance));
    let list = |names: Vec<String>| match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    };
    Ok(format!(
        "{what}: allowances exceeded at the sender: {}; at the receiver: {}",
        list(sender?),
        list(receiver?)
    ))
}

fn packets(context: &Context<'_>) -> Result<Findings> {
    let seconds = context.quick_or(2, 10);
    let mut found = Findings::default();
    for flows in [1, 2] {
        (context.say)(&format!("-M 128 -P {flows}, {seconds} s"));
        let cloud = Cloud::of(context, &KIND)?;
        let report = iperf::run(&cloud, &["-M", "128", "-P", &flows.to_string()], seconds)?;
        let (name, gbps) = if flows == 1 { ("one flow", 0.928) } else { ("two flows", 0.929) };
        found.figures.push(Figure::new(name, "Mb/s", report.mbps).talk(context.mbps(gbps)).given());
        if flows == 2 {
            shares(context, &mut found, &report.flows_mbps, [0.471, 0.477]);
        }
        found.notes.push(moved(&cloud, name)?);
    }
    Ok(found)
}

fn microburst(context: &Context<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let cloud = Cloud::of(context, &KIND)?;
    (context.say)("-t 6 -M 9000 -P 1");
    let report = iperf::run(&cloud, &["-M", "9000", "-P", "1"], 6)?;
    let least = report.seconds_mbps.iter().copied().fold(f64::MAX, f64::min);
    found.figures.push(Figure::new("least of six seconds", "Mb/s", least).talk(context.mbps(9.52)));
    let minute = report.bytes * 8.0 / 60.0 / 1e6;
    found.figures.push(
        Figure::new("the minute's average", "Mb/s", minute).talk(context.mbps(0.953)).given(),
    );
    found.notes.push("the talk's metric printed 899 Mb/s, its own seconds make 953".into());
    let seconds = (0..60_u32).map(|second| {
        let rate = report.seconds_mbps.get(second as usize).copied().unwrap_or(0.0);
        (f64::from(second), rate)
    });
    found.curves.push(Curve {
        title: "Six seconds, and the average of their minute".into(),
        x: "time, s",
        y: "Mb/s",
        lines: vec![
            ("each second".into(), seconds.collect()),
            ("average of the minute".into(), vec![(0.0, minute), (59.0, minute)]),
        ],
    });

    let each = format!("{:.0}K", context.mbps(3.28) * 1e3);
    // Rates are divided, so the queues take longer to empty after the run. In a longer run their
    // contents matter less.
    let seconds = context.quick_or(1, 10);
    (context.say)(&format!("-t {seconds} -u -P 8 -b {each}"));
    let cloud = Cloud::of(context, &KIND)?;
    let report = iperf::run(&cloud, &["-u", "-l", "8972", "-P", "8", "-b", &each], seconds)?;
    let (sent, lost) = report.datagrams;
    let share = if sent > 0.0 { (sent - lost) / sent } else { 0.0 };
    let mut figure = Figure::new("eight UDP flows, share that arrived", "", share);
    figure = figure.wanted(12.5 / 26.2, Near::MEASURED, "12.5 of 26.2 Gb/s");
    found.figures.push(figure);
    let counted = cloud.counter("a", "bw_out_allowance_exceeded")?;
    let figure = Figure::new("  packets counted as beyond bw_out", "", counted as f64);
    found.figures.push(figure.wanted(lost, Near::AtLeast, TALK));
    Ok(found)
}
