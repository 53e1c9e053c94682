//! Kinds of traffic. The threshold of each kind is a named constant.
#![allow(clippy::cast_possible_truncation)] // rates, times and counts, far below 2^64

use serde::Serialize;

use crate::needs::TrafficSummary;

/// Rate, in bits per second, from which a flow is a whale (a flow that may reach the ceiling of one
/// flow). It is half of this ceiling outside of a placement group.
pub const WHALE_BPS: f64 = 2.5e9;
/// Share of all bytes from which one flow counts as nearly all traffic.
pub const SINGLE_SHARE: f64 = 0.9;
/// Effective number of flows from which traffic spreads well over paths and queues.
pub const MANY_FLOWS: f64 = 64.0;
/// Effective number of flows up to which traffic does not spread well over paths and queues.
pub const FEW_FLOWS: f64 = 8.0;
/// Least number of inner flows for which a tunnel with one outer flow is reported.
pub const INNER_FLOWS: u64 = 2;
/// Share of all bytes from which a tunnel whose content cannot be read is reported.
pub const OPAQUE_SHARE: f64 = 0.05;
/// Largest median lifetime, in milliseconds, at which TCP connections count as short-lived.
pub const SHORT_MS: f64 = 1_000.0;
/// Shortest captured time, in nanoseconds, that allows a statement about the lifetime of
/// connections.
pub const LONG_NS: u64 = 1_000_000_000;
/// Connections count as many if the largest number of new connections in a second is at least this
/// number.
pub const CONNECTIONS_MANY: f64 = 100.0;
/// Traffic has bursts if the bandwidth that it needs is at least this multiple of its highest mean
/// over a minute. If the captured time is shorter, the mean over this time counts.
pub const BURST_TIMES: f64 = 4.0;
/// Needed bandwidth, in bits per second, below which bursts do not matter on any instance type.
pub const BURST_BPS: f64 = 100e6;
/// Mean size, in bytes, up to which packets count as small.
pub const SMALL_BYTES: f64 = 300.0;
/// Packets per second, over a second, from which small packets are reported.
pub const SMALL_PPS: f64 = 10_000.0;

/// A kind of traffic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One flow whose rate is near the ceiling of one flow.
    Whale,
    /// Several flows in a tunnel with one outer flow: the network treats them as one flow.
    TunnelOneFlow,
    /// A tunnel whose content cannot be read, with one outer flow.
    TunnelOpaque,
    /// One flow carries nearly all bytes.
    SingleFlow,
    /// Bytes are spread over only a few flows.
    FewFlows,
    /// Bytes are spread over many flows: high entropy.
    ManyFlows,
    /// Most TCP connections end soon, and many connections begin.
    ShortLived,
    /// Connections last long: at most half as many ended as were open at the end.
    LongLived,
    /// Bursts that the mean over a minute hides.
    Bursts,
    /// Many packets, which are small on average.
    SmallPackets,
}

/// A kind of traffic that was detected.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DetectedKind {
    /// The kind that was detected.
    pub kind: Kind,
    /// Description of the detected traffic, for the user.
    pub text: String,
}

/// Returns the kinds that the captured traffic has.
pub fn kinds(seen: &TrafficSummary) -> Vec<DetectedKind> {
    let mut found = Vec::new();
    tunnels(seen, &mut found);
    flows(seen, &mut found);
    connections(seen, &mut found);
    shape(seen, &mut found);
    found.sort_by_key(|found| found.kind);
    found
}

fn tunnels(seen: &TrafficSummary, found: &mut Vec<DetectedKind>) {
    let all = (seen.bytes.r#in + seen.bytes.out).max(1.0);
    for tunnel in &seen.tunnels {
        let share = tunnel.bytes as f64 / all;
        let (kind, what) = match tunnel.inner_flows {
            Some(inner) if tunnel.outer_flows == 1 && inner >= INNER_FLOWS => {
                (Kind::TunnelOneFlow, format!("about {inner} flows inside, with one source port"))
            }
            None if tunnel.outer_flows == 1 && share >= OPAQUE_SHARE => {
                (Kind::TunnelOpaque, "what is inside cannot be seen".to_owned())
            }
            _ => continue,
        };
        let text = format!(
            "{} {} > {}: one flow to the network; {what}; {:.1} % of the bytes",
            tunnel.kind,
            tunnel.source,
            tunnel.destination,
            share * 100.0
        );
        found.push(DetectedKind { kind, text });
    }
}

/// Whether a flow is the outer flow of a tunnel. Such a flow is reported as a tunnel, not as a
/// whale.
fn is_tunnel(seen: &TrafficSummary, flow: &srd_watch::Flow) -> bool {
    seen.tunnels.iter().any(|tunnel| {
        let ends = (tunnel.source, tunnel.destination);
        tunnel.outer_flows == 1 && ends == (flow.outer.source, flow.outer.destination)
    })
}

fn flows(seen: &TrafficSummary, found: &mut Vec<DetectedKind>) {
    for flow in &seen.flows {
        let bps = flow.second_bps_max.unwrap_or(0) as f64;
        if bps >= WHALE_BPS && !is_tunnel(seen, &flow.flow) {
            let (percent, rate) = (flow.share * 100.0, srd_watch::text::rate(bps as u64));
            let text = format!("{}: {rate} in a second, {percent:.1} % of the bytes", flow.flow);
            found.push(DetectedKind { kind: Kind::Whale, text });
        }
    }
    let Some(largest) = seen.flows.first() else { return };
    let count = crate::output::number::count(seen.flow_count);
    let effective = seen.flows_effective;
    let spread = format!("{count} flows, as spread as {effective:.1} equal ones");
    let (kind, text) = if largest.share >= SINGLE_SHARE {
        let percent = largest.share * 100.0;
        (Kind::SingleFlow, format!("{} carries {percent:.1} % of the bytes", largest.flow))
    } else if effective <= FEW_FLOWS {
        (Kind::FewFlows, spread)
    } else if effective >= MANY_FLOWS {
        (Kind::ManyFlows, spread)
    } else {
        return;
    };
    found.push(DetectedKind { kind, text });
}

fn connections(seen: &TrafficSummary, found: &mut Vec<DetectedKind>) {
    let of = &seen.connections;
    let second = of.rates[1].max;
    match of.life_ms {
        Some((half, _)) if half <= SHORT_MS && second >= CONNECTIONS_MANY => {
            let text = format!(
                "{} TCP connections ended, half of them within {half:.1} ms; up to {} begin in a \
                 second",
                crate::output::number::count(of.ended as f64),
                crate::output::number::count(second)
            );
            found.push(DetectedKind { kind: Kind::ShortLived, text });
        }
        _ if seen.seen_ns >= LONG_NS
            && of.entries[0].last > 0
            && of.ended * 2 <= of.entries[0].last =>
        {
            let text = format!(
                "connections that are there at the end: {}; that ended before: {}",
                crate::output::number::count(of.entries[0].last as f64),
                crate::output::number::count(of.ended as f64)
            );
            found.push(DetectedKind { kind: Kind::LongLived, text });
        }
        _ => {}
    }
}

fn shape(seen: &TrafficSummary, found: &mut Vec<DetectedKind>) {
    let need = seen.needs.bandwidth_bps.r#in.max(seen.needs.bandwidth_bps.out);
    let minute = seen.peak_bps(2);
    if need >= BURST_BPS && need.is_finite() && need >= minute * BURST_TIMES {
        let rate = |bps: f64| srd_watch::text::rate(bps as u64);
        let text = format!(
            "up to {} in a millisecond, {} over a second, {} over {}",
            rate(seen.peak_bps(0)),
            rate(seen.peak_bps(1)),
            rate(minute),
            if seen.rates_out[2].periods > 0 { "a minute" } else { "all the time" }
        );
        found.push(DetectedKind { kind: Kind::Bursts, text });
    }
    let (bytes, pps) = (seen.packet_bytes(), seen.rates_packets[1].max);
    if seen.packets > 0 && bytes <= SMALL_BYTES && pps >= SMALL_PPS {
        let text =
            format!("{bytes:.0} bytes on average, {} a second", crate::output::number::count(pps));
        found.push(DetectedKind { kind: Kind::SmallPackets, text });
    }
}
