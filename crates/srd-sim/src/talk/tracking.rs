//! The allowance for tracked connections: `tracking-full` and `untracked`.

use super::figure::{DOCUMENTED, Figure, Near, TALK};
use super::lab::{self, MS, MTU, RECEIVER, SECOND, Traffic};
use super::{Experiment, Found, Line, Options};
use crate::card::{CardNode, Cloud, Datagrams, Pair, Ports};
use crate::node::HostId;
use crate::world::World;

pub(super) const FULL: Experiment = Experiment {
    name: "tracking-full",
    about: "c7i.large: flows are opened until `conntrack_allowance_available`, 136,812 at first, \
            is zero. New flows are refused and counted, a connection from before goes on.",
    run: full,
};

pub(super) const UNTRACKED: Experiment = Experiment {
    name: "untracked",
    about: "A group that admits UDP port range by range from everywhere or from one address: flows \
            that everybody may send take no entry. Tracked flows outlive their rule, others do not.",
    run: untracked,
};

/// What the talk's counter shows.
const ALLOWANCE: u64 = 136_812;
/// Flows beyond a full table.
const BEYOND: u64 = 1000;
/// Flows opened in a second: fewer than the packets a second of the receiver.
const FLOWS_PER_SECOND: u64 = 400_000;
const PAYLOAD_BYTES: u16 = 64;
/// Before flows are opened, the connection is there, and has its rate.
const SETTLE_PS: u64 = 100 * MS;
const RATE_PS: u64 = 50 * MS;

/// One datagram each of so many flows.
fn opener(from_ps: u64, flows: u64) -> Traffic {
    let rate_bps = FLOWS_PER_SECOND * u64::from(PAYLOAD_BYTES) * 8;
    let plan = Datagrams { payload_bytes: PAYLOAD_BYTES, rate_bps, ports: Ports::Each };
    Traffic::Datagrams { from_ps, bytes: flows * u64::from(PAYLOAD_BYTES), plan }
}

fn available(world: &World<CardNode>) -> u64 {
    world.nodes()[RECEIVER as usize].allowances().1.into()
}

fn full(options: &Options) -> Result<Found, String> {
    // What the sender sends is tracked there, too: it has more room.
    let pair = Pair {
        kinds: ["c7i.8xlarge", "c7i.large"],
        ingress: r#""udp from 10.0.0.0/24", "tcp from 10.0.0.0/24""#,
        ..Pair::of("c7i.large")
    };
    let connection = Traffic::Stream { from_ps: 0 };
    let traffic = [connection, opener(SETTLE_PS, ALLOWANCE - 1 + BEYOND)];
    let mut world = lab::world(&pair, MTU, &traffic, options.seed)?;
    let at_first = available(&world);
    let rate = |world: &mut World<CardNode>| {
        let until = world.now_ps() + RATE_PS;
        let before = world.flows()[0].delivered_bytes;
        world.run_until(until);
        lab::gbps(world.flows()[0].delivered_bytes - before, RATE_PS)
    };
    world.run_until(SETTLE_PS - RATE_PS - 1);
    let alone = rate(&mut world);
    let with_connection = available(&world);
    // A look every 10 ms, as the driver's gauge would be read.
    let time_ps = (ALLOWANCE + BEYOND) * (SECOND / FLOWS_PER_SECOND) + 20 * MS;
    let mut points = Vec::new();
    for look in 0..time_ps / (10 * MS) + 1 {
        points.push((look as f64 / 100.0, available(&world) as f64));
        world.run_until(SETTLE_PS + (look + 1) * 10 * MS);
    }
    let (allowances, left) = world.nodes()[RECEIVER as usize].allowances();
    let refused = allowances.conntrack_allowance_exceeded;
    let lives = rate(&mut world);
    lab::check(&world)?;
    let name = "conntrack_allowance_available".to_owned();
    let counted = points.windows(2).all(|pair| pair[1].1 <= pair[0].1);
    let exact = |name: &str, here: u64, wanted: u64, source| {
        Figure::new(name, "", here as f64).wanted(wanted as f64, Near::Exactly, source)
    };
    Ok(Found {
        figures: vec![
            exact("available at first", at_first, ALLOWANCE, TALK),
            exact("with one connection", with_connection, ALLOWANCE - 1, TALK),
            exact("it only falls", counted.into(), 1, TALK),
            exact("available after so many flows", left.into(), 0, TALK),
            exact(&format!("refused of {BEYOND} more"), refused, BEYOND, DOCUMENTED),
            Figure::new("the connection from before", "Gb/s", lives).wanted(
                alone,
                Near::Slide,
                "as before",
            ),
        ],
        lines: vec![Line { name, x: "time, s", y: "entries", points }],
        notes: vec!["the sender is a c7i.8xlarge: what it sends is tracked at its end, too".into()],
    })
}

/// Flows to each range of ports.
const FLOWS: u64 = 10;

/// What is admitted: the first range from everywhere, or from the sender alone.
const OPEN: &str = r#""udp 1024-5000 from 0.0.0.0/0""#;
const NARROW: &str = r#""udp 1024-5000 from 10.0.0.10/32""#;
const NOTHING: &str = r#""icmp from 0.0.0.0/0""#;

struct Case {
    name: &'static str,
    ingress: &'static str,
    egress: &'static str,
    entries: u64,
    lives: bool,
}

fn untracked(options: &Options) -> Result<Found, String> {
    let everywhere = r#""all to 0.0.0.0/0""#;
    let cases = [
        Case {
            name: "admitted from everywhere",
            ingress: OPEN,
            egress: everywhere,
            entries: 0,
            lives: false,
        },
        Case {
            name: "admitted from one address",
            ingress: NARROW,
            egress: everywhere,
            entries: FLOWS,
            lives: true,
        },
        Case {
            name: "admitted from everywhere, outbound narrowed",
            ingress: OPEN,
            egress: r#""all to 10.0.0.0/16""#,
            entries: FLOWS,
            lives: true,
        },
    ];
    let mut found = Found::default();
    for case in cases {
        let Case { name, ingress, egress, entries, lives } = case;
        let pair = Pair { ingress, egress, ..Pair::of("c7i.large") };
        // The same flows once more, after the rule is gone.
        let traffic = [opener(0, FLOWS), opener(SECOND, FLOWS)];
        let mut world = lab::world(&pair, MTU, &traffic, options.seed)?;
        let before = available(&world);
        world.run_until(SECOND / 2);
        let taken = before - available(&world);
        let arrived = world.flows()[0].delivered_bytes / u64::from(PAYLOAD_BYTES);
        let gone = Cloud::new(&Pair { ingress: NOTHING, ..pair })?;
        let rules = gone.rules(HostId(RECEIVER));
        world.node_mut(RECEIVER).set_rules(rules);
        world.run_until(2 * SECOND);
        let later = world.flows()[1].delivered_bytes / u64::from(PAYLOAD_BYTES);
        lab::check(&world)?;
        let exact = |what: &str, here: u64, wanted: u64, source| {
            Figure::new(format!("{name}: {what}"), "", here as f64).wanted(
                wanted as f64,
                Near::Exactly,
                source,
            )
        };
        found.figures.push(exact("of ten flows arrive", arrived, FLOWS, TALK));
        found.figures.push(exact("entries", taken, entries, TALK));
        let wanted = if lives { FLOWS } else { 0 };
        found.figures.push(exact("go on without the rule", later, wanted, DOCUMENTED));
    }
    Ok(found)
}
