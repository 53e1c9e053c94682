//! The experiment `flow-limits`: limits of one flow, and of two.

use super::figure::{DOCUMENTED, Figure, Near};
use super::lab::{self, MS, MTU, MTU_EXPRESS, RECEIVER, SECOND, SENDER};
use super::{Experiment, Findings, Options};
use crate::engine::world::World;
use crate::machines::card::{CardNode, Pair};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "flow-limits",
    about: "c7i.large, `iperf3 -l 9000` for a second: one flow outside of a placement group, one \
            and two inside; c5.large, whose bandwidth is that of one flow; c7i.24xlarge, also with \
            ENA Express, whose packets ride SRD over four paths.",
    run,
};

/// Explanation why a flow at its limit of 10 Gb/s has a higher rate than the talk shows.
pub(super) const HEADERS: &str = "10 Gb/s from the IP header on leave 9.93 of payload in packets \
    of 9,001 bytes; 9.54 would be packets of 1,500 with Ethernet's headers (1448 of 1518)";
pub(super) const HEADERS_PERCENT: f64 = 6.0;

/// Explanation why two flows do not have the shares that the talk shows.
pub(super) const SHARES: &str = "how two flows share a limit is up to the guests' congestion \
    control; nothing promises equal shares";
pub(super) const SHARES_PERCENT: f64 = 50.0;

/// Source of the expected share of packets over SRD: the condition that decides whether packets use
/// SRD.
pub(super) const INTERFACES: &str = "both interfaces have ENA Express, or not";

struct Case {
    name: &'static str,
    pair: Pair,
    mtu: u32,
    flows: u32,
    /// Sets the reference value of the figure.
    judge: fn(Figure) -> Figure,
    /// Rates of single flows in the talk, in Gb/s; empty if the talk shows none.
    each_gbps: &'static [f64],
}

/// Result of the run of a case: rate of each flow, and the world afterwards.
pub(super) struct Ran {
    pub(super) flows_gbps: Vec<f64>,
    pub(super) world: World<CardNode>,
}

impl Ran {
    pub(super) fn all_gbps(&self) -> f64 {
        self.flows_gbps.iter().sum()
    }
}

/// Runs `flows` TCP streams between two instances, and measures the rate of each stream from the
/// beginning of the run.
pub(super) fn ran(
    pair: &Pair,
    mtu: u32,
    flows: u32,
    time_ps: u64,
    seed: u64,
) -> Result<Ran, String> {
    let mut world = lab::world(pair, mtu, &lab::streams(flows), seed)?;
    let arrived = lab::steps(&mut world, time_ps, 1);
    lab::check(&world)?;
    let flows_gbps = arrived[0].iter().map(|bytes| lab::gbps(*bytes, time_ps)).collect();
    Ok(Ran { flows_gbps, world })
}

fn run(options: &Options) -> Result<Findings, String> {
    let time_ps = options.quick_or(100 * MS, SECOND);
    let cases = cases();
    let mut found = Findings::default();
    for case in &cases {
        let ran = ran(&case.pair, case.mtu, case.flows, time_ps, options.seed)?;
        found.figures.push((case.judge)(Figure::new(case.name, "Gb/s", ran.all_gbps())));
        for (flow, talk) in ran.flows_gbps.iter().zip(case.each_gbps) {
            let figure = Figure::new("  each of them", "Gb/s", *flow);
            found.figures.push(figure.slide(*talk).because(SHARES, SHARES_PERCENT));
        }
        found.figures.extend(by_srd(&case.pair, &ran.world));
        found.notes.push(moved(case.name, &ran.world));
    }
    Ok(found)
}

/// Returns the runs of the experiment, in the order of the report.
fn cases() -> [Case; 10] {
    let outside = |of: &Pair| Pair { clustered: false, ..of.clone() };
    let (older, large) = (Pair::of("c5.large"), Pair::of("c7i.large"));
    let larger = Pair::of("c7i.24xlarge");
    let express = Pair { express: true, ..larger.clone() };
    let five = |figure: Figure| figure.wanted(5.0, Near::SIMULATED, DOCUMENTED);
    let ten = |figure: Figure| figure.wanted(10.0, Near::SIMULATED, DOCUMENTED);
    let case = |name: &'static str, pair: Pair, flows: u32, judge: fn(Figure) -> Figure| {
        let each_gbps = &[];
        Case { name, pair, mtu: MTU, flows, judge, each_gbps }
    };
    [
        case("one flow, outside", outside(&large), 1, five),
        case("one flow, placement group", large.clone(), 1, |figure| {
            figure.slide(9.54).because(HEADERS, HEADERS_PERCENT)
        }),
        Case {
            mtu: 1500,
            ..case("one flow, MTU 1500", large.clone(), 1, |figure| figure.slide(9.54))
        },
        Case {
            each_gbps: &[6.24, 6.22],
            ..case("two flows, placement group", large, 2, |figure| figure.slide(12.5))
        },
        case("c5.large: one flow, outside", outside(&older), 1, five),
        case("c5.large: one flow, placement group", older.clone(), 1, ten),
        case("c5.large: two flows, placement group", older, 2, ten),
        case("c7i.24xlarge: one flow, outside", outside(&larger), 1, five),
        case("  one flow, placement group", larger, 1, ten),
        Case {
            mtu: MTU_EXPRESS,
            ..case("one flow, ENA Express", express, 1, |figure| {
                figure.wanted(25.0, Near::SIMULATED, DOCUMENTED)
            })
        },
    ]
}

/// Returns a figure with the share of packets between hosts that were received over SRD. Returns
/// `None` if ENA Express is off and the share is 0, as required.
pub(super) fn by_srd(pair: &Pair, world: &World<CardNode>) -> Option<Figure> {
    let came = world.nodes()[RECEIVER as usize].stage().traffic;
    let share = came.srd_rx_pkts as f64 / (came.srd_rx_pkts + came.plain_rx_pkts) as f64;
    let wanted = f64::from(u8::from(pair.express));
    let figure = Figure::new("  share of packets that came by SRD", "", share);
    let figure = figure.wanted(wanted, Near::Exactly, INTERFACES);
    (pair.express || figure.is_met() != Some(true)).then_some(figure)
}

/// Returns a note for the reader: the instances' counters that increased in a run, retransmitted
/// TCP segments, frames that the sender's queue for the receiver dropped, and packets that the
/// network lost.
pub(super) fn moved(name: &str, world: &World<CardNode>) -> String {
    let of = |host: u32| {
        let (allowances, available) = world.nodes()[host as usize].allowances();
        let all = allowances.ethtool(available.into()).into_iter().chain(allowances.ours());
        let moved = all.filter(|(name, n)| *n > 0 && !name.ends_with("available"));
        let moved: Vec<String> = moved.map(|(name, n)| format!("{name} {n}")).collect();
        if moved.is_empty() { "none".to_owned() } else { moved.join(", ") }
    };
    let sender = &world.nodes()[SENDER as usize];
    let (again, traffic) = (sender.tcp().segments_resent, sender.stage().traffic);
    let losses = [
        ("frames dropped since they waited", traffic.queue_dropped_late),
        ("frames dropped since the queue was full", traffic.queue_dropped_full),
        ("lost in the network", world.counters().dropped_total()),
    ];
    let losses = losses.into_iter().filter(|(_, n)| *n > 0);
    let losses: Vec<String> = losses.map(|(name, n)| format!(", {name} {n}")).collect();
    let (here, there, losses) = (of(SENDER), of(RECEIVER), losses.concat());
    format!("{name}: sender {here}; receiver {there}; sent again {again}{losses}")
}
