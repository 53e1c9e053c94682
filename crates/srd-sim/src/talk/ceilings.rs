//! The experiment `flow-limits`: limits of one flow, and of two.

use super::figure::{DOCUMENTED, Figure, Near};
use super::lab::{self, MS, MTU, MTU_EXPRESS, RECEIVER, SECOND, SENDER};
use super::{Experiment, Findings, Options};
use crate::engine::world::World;
use crate::machines::card::{CardNode, Pair};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "flow-limits",
    about: "c7i.large, `iperf3 -l 9000` for a second: one flow outside of a placement group, one \
            and two inside; c7i.24xlarge the same, and with ENA Express, whose packets ride SRD \
            over four paths.",
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
    let large = Pair::of("c7i.large");
    let outside = Pair { clustered: false, ..large.clone() };
    let larger = Pair::of("c7i.24xlarge");
    let larger_outside = Pair { clustered: false, ..larger.clone() };
    let express = Pair { express: true, ..larger.clone() };
    let cases = [
        Case { name: "one flow, outside", pair: outside, mtu: MTU, flows: 1 },
        Case { name: "one flow, placement group", pair: large.clone(), mtu: MTU, flows: 1 },
        Case { name: "one flow, MTU 1500", pair: large.clone(), mtu: 1500, flows: 1 },
        Case { name: "two flows, placement group", pair: large, mtu: MTU, flows: 2 },
        Case { name: "c7i.24xlarge: one flow, outside", pair: larger_outside, mtu: MTU, flows: 1 },
        Case { name: "  one flow, placement group", pair: larger, mtu: MTU, flows: 1 },
        Case { name: "one flow, ENA Express", pair: express, mtu: MTU_EXPRESS, flows: 1 },
    ];
    let mut found = Findings::default();
    for (number, case) in cases.iter().enumerate() {
        let ran = ran(&case.pair, case.mtu, case.flows, time_ps, options.seed)?;
        let figure = Figure::new(case.name, "Gb/s", ran.all_gbps());
        found.figures.push(match number {
            0 | 4 => figure.wanted(5.0, Near::SIMULATED, DOCUMENTED),
            1 => figure.slide(9.54).because(HEADERS, HEADERS_PERCENT),
            2 => figure.slide(9.54),
            3 => figure.slide(12.5),
            5 => figure.wanted(10.0, Near::SIMULATED, DOCUMENTED),
            _ => figure.wanted(25.0, Near::SIMULATED, DOCUMENTED),
        });
        for (flow, talk) in ran.flows_gbps.iter().zip([6.24, 6.22]).filter(|_| case.flows > 1) {
            let figure = Figure::new("  each of them", "Gb/s", *flow);
            found.figures.push(figure.slide(talk).because(SHARES, SHARES_PERCENT));
        }
        found.figures.extend(by_srd(&case.pair, &ran.world));
        found.notes.push(moved(case.name, &ran.world));
    }
    Ok(found)
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
/// TCP segments, and lost packets.
pub(super) fn moved(name: &str, world: &World<CardNode>) -> String {
    let of = |host: u32| {
        let (allowances, available) = world.nodes()[host as usize].allowances();
        let all = allowances.ethtool(available.into()).into_iter().chain(allowances.ours());
        let moved = all.filter(|(name, n)| *n > 0 && !name.ends_with("available"));
        let moved: Vec<String> = moved.map(|(name, n)| format!("{name} {n}")).collect();
        if moved.is_empty() { "none".to_owned() } else { moved.join(", ") }
    };
    let sender = &world.nodes()[SENDER as usize];
    let (again, late) = (sender.tcp().segments_resent, sender.stage().traffic.queue_dropped_late);
    let lost = world.counters().dropped_total();
    let late = if late > 0 { format!(", dropped since they waited {late}") } else { String::new() };
    let lost = if lost > 0 { format!(", lost in the network {lost}") } else { String::new() };
    let (here, there) = (of(SENDER), of(RECEIVER));
    format!("{name}: sender {here}; receiver {there}; sent again {again}{late}{lost}")
}
