//! Advice: changes to make to the traffic or its hosts before paying for a larger instance.
#![allow(clippy::cast_possible_truncation)] // rates, times and counts, far below 2^64

use serde::Serialize;
use srd_card::limits::FlowKind;

use crate::choose::{Choices, Use, flows_to, limit};
use crate::needs::{Directed, TrafficSummary};
use crate::traffic::{DetectedKind, Kind};

/// Used share of a limit from which advice is given.
const NEAR: f64 = 0.8;
/// The largest packet, in bytes, of a network without jumbo frames.
const MTU_SMALL: u32 = 1500;
/// Rate, in bits per second, from which larger packets make a difference.
const LARGE_BPS: f64 = 100e6;
/// Mean packet size in bytes from which traffic counts as bulk data, which larger packets would
/// carry better.
const BULK_BYTES: f64 = 700.0;
/// Number of tracked connections from which idle timeouts make a difference: the size of the table
/// of the smallest instance types.
const ENTRIES_MANY: u64 = 50_000;

/// A piece of advice.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Advice {
    /// Topic: `flow`, `tunnel`, `bursts`, `mtu`, `packets`, `tracking`, `connections`, `queues`,
    /// `credits`, `link_local`, `fragments`.
    pub about: &'static str,
    /// The advice and its reason.
    pub text: String,
}

/// Returns advice for the traffic, the most important advice first.
pub fn advice(seen: &TrafficSummary, kinds: &[DetectedKind], choices: &Choices) -> Vec<Advice> {
    let has = |kind: Kind| kinds.iter().any(|found| found.kind == kind);
    let mut all = Vec::new();
    flow(seen, has(Kind::TunnelOneFlow) || has(Kind::TunnelOpaque), &mut all);
    bursts(seen, has(Kind::Bursts), &mut all);
    packets(seen, &has, &mut all);
    connections(seen, has(Kind::ShortLived), &mut all);
    services(seen, &mut all);
    credits(choices, &mut all);
    all
}

fn say(all: &mut Vec<Advice>, about: &'static str, text: String) {
    all.push(Advice { about, text });
}

fn flow(seen: &TrafficSummary, tunnel: bool, all: &mut Vec<Advice>) {
    let fastest = seen.needs.fastest.map_or(0.0, |(_, bits)| bits as f64);
    // The kind of destination that the fastest flow needs, even if the user chose another kind.
    let (least, too_fast) = flows_to(&seen.needs);
    if fastest < 5e9 * NEAR && least != FlowKind::Exterior && !too_fast {
        let rate = srd_watch::text::rate(fastest as u64);
        say(
            all,
            "flow",
            format!(
                "The fastest flow has {rate} in a second, which is below the 5 Gb/s of one flow, \
                 but its bursts are faster and would wait there. Pace it (`srd shape`, the \
                 queueing discipline fq, or the application's own pacing): it needs neither a \
                 cluster placement group nor ENA Express then. Without pacing these carry its \
                 bursts as they are, at 10 and 25 Gb/s."
            ),
        );
    } else if fastest >= 5e9 * NEAR || least != FlowKind::Exterior || too_fast {
        let rate = srd_watch::text::rate(fastest as u64);
        let where_to = match (too_fast, least) {
            (true, _) => "More than 25 Gb/s of one flow, with headroom, is beyond every limit",
            (_, FlowKind::Exterior) => {
                "Beyond 5 Gb/s it has to stay inside of a cluster placement group (10 Gb/s), or go \
                 over ENA Express (25 Gb/s)"
            }
            (_, FlowKind::ClusterPlacementGroup) => {
                "Outside of a cluster placement group, one flow gets 5 Gb/s: put both ends into \
                 one, which gives it 10 Gb/s"
            }
            (_, FlowKind::Express) => {
                "One flow gets 5 Gb/s, 10 Gb/s in a cluster placement group: turn on ENA Express \
                 at both ends, which gives it 25 Gb/s between two types that support it"
            }
        };
        say(
            all,
            "flow",
            format!(
                "The fastest flow has {rate} in a second. {where_to}. No larger type raises these \
             limits; several flows do (nconnect for NFS, parallel transfers, `iperf3 -P`)."
            ),
        );
    }
    if tunnel {
        say(
            all,
            "tunnel",
            "A tunnel with one source port is one flow to the network: one path, one queue, the \
             ceiling of one flow. Let the source port follow the inner flow (Linux does so for \
             VXLAN and Geneve unless `srcport` is set to one), or run several tunnels. GRE, ESP \
             and WireGuard have no such port: use several pairs of addresses, or ESP in UDP with \
             several ports."
                .to_owned(),
        );
    }
    if seen.flows_effective > 0.0 && seen.flows_effective < 8.0 && seen.peak_bps(1) >= 1e9 {
        say(
            all,
            "queues",
            format!(
                "Bytes are as spread as {:.1} equal flows: no more queues and CPUs work \
             on them. More flows, or flow steering from Nitro v5 on, spread them; `srd check` \
             looks at the queues.",
                seen.flows_effective
            ),
        );
    }
}

fn bursts(seen: &TrafficSummary, found: bool, all: &mut Vec<Advice>) {
    if !found {
        return;
    }
    let (sent, received) = (seen.needs.bandwidth_bps.out, seen.needs.bandwidth_bps.r#in);
    let second = srd_watch::text::rate(seen.peak_bps(1) as u64);
    let need = srd_watch::text::rate(sent.max(received).min(1e15) as u64);
    // A capture file may contain no name for its interface.
    let named = |command: &str, more: &str| match &seen.interface {
        Some(interface) => format!("`{command} {interface} {more}`"),
        None => format!("`{command}` with `{more}`"),
    };
    let (shape, ring) = (named("srd shape", "--rate"), named("ethtool -G", "rx 8192"));
    if sent >= received {
        say(
            all,
            "bursts",
            format!(
                "Bursts are sent that need {need}, where the fastest second has {second}. Pace \
             them: {shape}, the queueing discipline fq, or the application's own \
             pacing. `srd watch` names the flows."
            ),
        );
    } else {
        say(
            all,
            "bursts",
            format!(
                "Bursts arrive that need {need}, where the fastest second has {second}. A larger \
             Rx ring takes those that the instance's limit lets through ({ring}); \
             ENA Express at the senders spreads an incast; pacing at the senders prevents it."
            ),
        );
    }
}

fn packets(seen: &TrafficSummary, has: &dyn Fn(Kind) -> bool, all: &mut Vec<Advice>) {
    let large = seen.largest_bytes <= MTU_SMALL && seen.packet_bytes() >= BULK_BYTES;
    // Packets through an internet gateway have at most 1500 bytes. So the advice is for traffic
    // that mostly stays inside.
    let of = |directed: &Directed| directed.r#in.max(directed.out);
    let is_inside = of(&seen.needs.gateway_bps) < of(&seen.needs.bandwidth_bps) / 2.0;
    if large && is_inside && seen.peak_bps(1) >= LARGE_BPS {
        say(
            all,
            "mtu",
            format!(
                "No packet has more than {} bytes. With an MTU of 9001 inside of the VPC (8900 \
             with ENA Express) bulk takes a sixth of the packets a second; an internet gateway \
             passes 1500 bytes only.",
                seen.largest_bytes
            ),
        );
    }
    if has(Kind::SmallPackets) {
        say(
            all,
            "packets",
            "Packets a second are the limit of small packets, not bandwidth, and EC2 publishes no \
             such limit: measure the type before you pay. Gather writes (GSO, sendmmsg, \
             larger records), and let receive-side scaling spread them over all queues."
                .to_owned(),
        );
    }
}

fn connections(seen: &TrafficSummary, short: bool, all: &mut Vec<Advice>) {
    let [default, v6, shortest] = &seen.connections.entries;
    if short {
        say(
            all,
            "connections",
            format!(
                "Up to {} connections begin in a second. Keep them (keep-alive, pools); the \
             first packet of each is judged by all rules, which costs more than those that follow.",
                crate::output::number::count(seen.connections.rates[1].max)
            ),
        );
    }
    if default.peak >= ENTRIES_MANY || default.settled.is_some_and(|most| most >= ENTRIES_MANY) {
        let mut text = format!(
            "Connections take {} places in the table of tracked ones with the default idle times, \
             {} with those of Nitro v6 (350 s), {} with the shortest (60 s).",
            crate::output::number::count(default.peak as f64),
            crate::output::number::count(v6.peak as f64),
            crate::output::number::count(shortest.peak as f64)
        );
        if let Some(settled) = default.settled.filter(|most| *most > default.peak * 2) {
            text += &format!(
                " Connections that go silent without an end would take {} after five days: set \
                 TcpEstablishedTimeout of the interface to 350 s.",
                crate::output::number::count(settled as f64)
            );
        }
        text += " Rules that allow all addresses in one direction, and everything in the other, \
                 need no place for TCP and UDP.";
        say(all, "tracking", text);
    }
}

fn services(seen: &TrafficSummary, all: &mut Vec<Advice>) {
    if seen.link_local_over > 0 {
        say(
            all,
            "link_local",
            format!(
                "{} packets to link-local services (resolver, metadata, time) exceed the 1,024 a \
             second of an interface: cache names (systemd-resolved, nscd, NodeLocal DNSCache). \
             No type has more.",
                seen.link_local_over
            ),
        );
    }
    if seen.fragments_over > 0 {
        say(
            all,
            "fragments",
            format!(
                "{} fragments exceed the 1,024 a second of an interface: avoid them by path MTU \
             discovery, or set `enable_frag_bypass=1` of the ENA driver. No type has more.",
                seen.fragments_over
            ),
        );
    }
}

fn credits(choices: &Choices, all: &mut Vec<Advice>) {
    let found = choices.families.iter().find_map(|choice| {
        // A type does not carry the traffic if it lacks anything except credits.
        let by_credits = |of: &Use| {
            let all =
                [limit::BASELINE_IN, limit::BASELINE_OUT, limit::CREDITS_IN, limit::CREDITS_OUT];
            all.contains(&of.limit)
        };
        let smaller = choice.smaller.as_ref().filter(|of| of.lacks().all(by_credits))?;
        Some((smaller.name, smaller.credits_s?, choice.sufficient.name))
    });
    if let Some((name, credits_s, larger)) = found {
        say(
            all,
            "credits",
            format!(
                "{name} carries this mean from its credits only, for about {} from a full account \
             (estimated): enough for a job that is over by then, or if the day's mean is lower \
             than what was seen; {larger} carries it for ever.",
                srd_watch::text::time((credits_s * 1e9) as u64)
            ),
        );
    }
}
