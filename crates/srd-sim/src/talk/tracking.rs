//! The experiments `tracking-full` and `untracked`: the allowance for tracked connections.

use super::figure::{DOCUMENTED, Figure, Near, TALK};
use super::lab::{self, MS, MTU, RECEIVER, SECOND, Traffic};
use super::{Curve, Experiment, Findings, Options};
use crate::engine::node::HostId;
use crate::engine::world::World;
use crate::machines::card::{CardNode, Cloud, Datagrams, Pair, Ports};

pub(super) const FULL: Experiment = Experiment {
    name: "tracking-full",
    about: "c7i.large: flows are opened until `conntrack_allowance_available`, 136,812 at first, \
            is zero. New flows are refused and counted, a connection from before goes on.",
    run: full,
};

pub(super) const UNTRACKED: Experiment = Experiment {
    name: "untracked",
    about: "A group with TCP 22 from one address, TCP 80 from everywhere and ICMP, everything \
            outbound: port 80 is not tracked, port 22 and ICMP are. Tracked flows outlive their \
            rule, others do not.",
    run: untracked,
};

/// Number of connections that the instance may track, as the talk's counter shows it.
const ALLOWANCE: u64 = 136_812;
/// Number of flows that are opened beyond a full table of connections.
const BEYOND: u64 = 1000;
/// Number of flows opened per second. It is lower than the packets per second of the receiver.
const FLOWS_PER_SECOND: u64 = 400_000;
const PAYLOAD_BYTES: u16 = 64;
/// Time in picoseconds for the connection to settle before flows are opened. `RATE_PS` is the time
/// of a rate measurement.
const SETTLE_PS: u64 = 100 * MS;
const RATE_PS: u64 = 50 * MS;

/// Returns traffic of `flows` flows with one datagram each.
fn opener(from_ps: u64, flows: u64, ports: Ports) -> Traffic {
    let rate_bps = FLOWS_PER_SECOND * u64::from(PAYLOAD_BYTES) * 8;
    let plan = Datagrams { payload_bytes: PAYLOAD_BYTES, rate_bps, ports };
    Traffic::Datagrams { from_ps, bytes: flows * u64::from(PAYLOAD_BYTES), plan }
}

fn available(world: &World<CardNode>) -> u64 {
    world.nodes()[RECEIVER as usize].allowances().1.into()
}

fn full(options: &Options) -> Result<Findings, String> {
    // The sender's card tracks flows as well, so the sender has an instance type with a larger
    // allowance.
    let pair = Pair {
        kinds: ["c7i.8xlarge", "c7i.large"],
        ingress: r#""udp from 10.0.0.0/24", "tcp from 10.0.0.0/24""#,
        ..Pair::of("c7i.large")
    };
    let connection = Traffic::Stream { from_ps: 0 };
    let traffic = [connection, opener(SETTLE_PS, ALLOWANCE - 1 + BEYOND, Ports::Each)];
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
    // The number of available entries is sampled every 10 ms, as a monitoring program would read
    // the driver's counter.
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
    Ok(Findings {
        figures: vec![
            exact("available at first", at_first, ALLOWANCE, TALK).given(),
            exact("with one connection", with_connection, ALLOWANCE - 1, TALK),
            exact("it only falls", counted.into(), 1, TALK),
            exact("available after so many flows", left.into(), 0, TALK),
            exact(&format!("refused of {BEYOND} more"), refused, BEYOND, DOCUMENTED),
            Figure::new("the connection from before", "Gb/s", lives).wanted(
                alone,
                Near::SIMULATED,
                "as before",
            ),
        ],
        lines: vec![Curve { name, x: "time, s", y: "entries", points }],
        notes: vec!["the sender is a c7i.8xlarge: what it sends is tracked at its end, too".into()],
    })
}

/// Number of flows of each kind, before and after the change of the rules.
const FLOWS: u64 = 10;

/// Rules of the security group in the talk, as phrases of a `vpc.toml`. `OTHER` are the rules of a
/// group that contains none of them; `EVERYWHERE` and `INSIDE` are outbound rules.
const RULES: &str = r#""tcp 22 from 10.0.0.10/32", "tcp 80 from 0.0.0.0/0", "icmp from 0.0.0.0/0""#;
const OTHER: &str = r#""tcp 443 from 10.0.0.10/32""#;
const EVERYWHERE: &str = r#""all to 0.0.0.0/0""#;
const INSIDE: &str = r#""all to 10.0.0.0/16""#;

struct Case {
    name: &'static str,
    ports: Ports,
    egress: &'static str,
    is_tracked: bool,
    source: &'static str,
}

fn untracked(options: &Options) -> Result<Findings, String> {
    let case =
        |name, ports, egress, is_tracked, source| Case { name, ports, egress, is_tracked, source };
    let narrowed = "TCP 80, outbound narrowed";
    let cases = [
        case("TCP 22", Ports::Syn(22), EVERYWHERE, true, TALK),
        case("TCP 80", Ports::Syn(80), EVERYWHERE, false, TALK),
        case("ICMP", Ports::Echo, EVERYWHERE, true, TALK),
        case(narrowed, Ports::Syn(80), INSIDE, true, DOCUMENTED),
    ];
    let mut found = Findings::default();
    for case in cases {
        found.figures.extend(entries(options, &case)?);
    }
    Ok(found)
}

/// Sends ten flows, removes the rule that admits them, and sends ten more. Returns figures of
/// arrived flows and of tracked entries.
fn entries(options: &Options, case: &Case) -> Result<[Figure; 3], String> {
    let Case { name, ports, egress, is_tracked, source } = *case;
    let pair = Pair { ingress: RULES, egress, ..Pair::of("c7i.large") };
    let traffic = [opener(0, FLOWS, ports), opener(SECOND, FLOWS, ports)];
    let mut world = lab::world(&pair, MTU, &traffic, options.seed)?;
    let before = available(&world);
    world.run_until(SECOND / 2);
    let taken = before - available(&world);
    let gone = Cloud::new(&Pair { ingress: OTHER, ..pair })?;
    world.node_mut(RECEIVER).set_rules(gone.rules(HostId(RECEIVER)));
    world.run_until(2 * SECOND);
    lab::check(&world)?;
    let arrived = |flow: usize| world.flows()[flow].delivered_bytes / u64::from(PAYLOAD_BYTES);
    let wanted = if is_tracked { FLOWS } else { 0 };
    let exact = |what: &str, here: u64, wanted: u64, source| {
        let figure = Figure::new(format!("{name}: {what}"), "", here as f64);
        figure.wanted(wanted as f64, Near::Exactly, source)
    };
    Ok([
        exact("of ten flows arrive", arrived(0), FLOWS, source),
        exact("entries", taken, wanted, source),
        exact("arrive without the rule", arrived(1), wanted, DOCUMENTED),
    ])
}
