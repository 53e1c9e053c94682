//! The analysis of one interface, from packets to the needs of the traffic. It reads no clock:
//! callers pass the time.
//!
//! ```text
//!  packet --> bin of 100 us --> ladders (bandwidth, packets, gateways), rates, timelines
//!         --> flows (ceilings, sketch), tunnels, connections (tables)
//! ```
//!
//! Packets come approximately in the order of their times; a packet that is older than the latest
//! one counts at the time of the latest one. [`Steady`] compensates a clock that was set back.
//! Memory is bounded: each part documents its limit.

use srd_card::Direction;
use srd_card::limits::Bucket;
use srd_card::limits::stages::ENI_PACKETS_PER_SECOND;
use srd_card::packet::Packet;
use srd_card::track::key::Key;
use srd_card::track::state::PacketKind;
use srd_proto::time::{Duration, Instant};
use srd_watch::other::SkipCounts;
use srd_watch::read::Raw;
use srd_watch::steady::Steady;
use srd_watch::timeline::Timeline;
use srd_watch::{Arrival, PacketDirection};

use crate::analysis::connections::Connections;
use crate::analysis::flows::Flows;
use crate::analysis::ladder::{Backlog, Ladder};
use crate::analysis::place;
use crate::analysis::rates::{Meter, PERIODS_NS};
use crate::analysis::tunnels::Tunnels;
use crate::needs::{Directed, FlowShare, Needs, TrafficSummary};

/// Length of a bin, in nanoseconds: the interval whose arrivals a [`Ladder`] processes together.
const BIN_NS: u64 = 100_000;
const LINE_NS: u64 = 1_000_000;
/// Least time in nanoseconds over which a mean is computed: the shortest period.
const SEEN_NS_MIN: u64 = PERIODS_NS[0];
/// Interval, in nanoseconds, at which the backlog that credits have to cover is computed.
const SLOW_NS: u64 = 100_000_000;
/// Lowest and highest rate of the token buckets in a [`Ladder`] of bandwidth, in bits per second.
/// [`PPS`] has these rates for the ladder of packets, in packets per second.
const BPS: (f64, f64) = (1e6, 4e12);
const PPS: (f64, f64) = (1e2, 1e10);
/// Largest number of flows that are listed.
pub const FLOWS_NAMED: usize = 16;
/// Number of fragments that may pass at once on an EC2 interface, and of packets to link-local
/// services; `srd_card` uses the same number.
const ENI_DEPTH: u64 = ENI_PACKETS_PER_SECOND / 8;

/// State of the analysis for one direction.
#[derive(Debug)]
struct Side {
    bits: u64,
    slow_bits: u64,
    gateway_bits: u64,
    bandwidth: Ladder,
    gateway: Ladder,
    backlog: Backlog,
    bytes: Meter,
    packets: u64,
    /// Bytes in the current millisecond, for the timeline.
    line_bytes: u64,
    line: Timeline,
}

impl Side {
    fn new(now_ns: u64) -> Self {
        Self {
            bits: 0,
            slow_bits: 0,
            gateway_bits: 0,
            bandwidth: Ladder::new(BPS.0, BPS.1, BIN_NS),
            gateway: Ladder::new(BPS.0, BPS.1, BIN_NS),
            backlog: Backlog::new(BPS.0, BPS.1),
            bytes: Meter::new(now_ns),
            packets: 0,
            line_bytes: 0,
            line: Timeline::new(0),
        }
    }
}

/// The analysis of one interface.
pub struct Profiler {
    name: String,
    interface: Option<String>,
    headroom: f64,
    clock: Steady,
    began_ns: u64,
    now_ns: u64,
    bin: u64,
    slow: u64,
    /// Number of the current millisecond, from the beginning of the analysis.
    line: u64,
    bin_packets: u64,
    sides: [Side; 2],
    packets: Ladder,
    packet_meter: Meter,
    flows: Flows,
    tunnels: Tunnels,
    connections: Connections,
    /// Limit of outgoing fragments, and the number of fragments beyond it. `link_local` has the
    /// same for packets to link-local services.
    fragments: (Bucket, u64),
    link_local: (Bucket, u64),
    others: SkipCounts,
    largest_bytes: u32,
    lost: u64,
}

impl std::fmt::Debug for Profiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profiler").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Profiler {
    /// Returns an analysis that begins at `now`. `headroom` is the required headroom below limits:
    /// 0.2 means 20 %.
    pub fn new(name: &str, headroom: f64, now: Instant) -> Self {
        let now_ns = now.as_nanos();
        let bucket = || (Bucket::new(ENI_PACKETS_PER_SECOND, ENI_DEPTH, now), 0);
        Self {
            name: name.to_owned(),
            interface: Some(name.to_owned()),
            headroom,
            clock: Steady::new(now),
            began_ns: now_ns,
            now_ns,
            bin: now_ns / BIN_NS,
            slow: now_ns / SLOW_NS,
            line: 0,
            bin_packets: 0,
            sides: [Side::new(now_ns), Side::new(now_ns)],
            packets: Ladder::new(PPS.0, PPS.1, BIN_NS),
            packet_meter: Meter::new(now_ns),
            flows: Flows::new(headroom),
            tunnels: Tunnels::new(),
            connections: Connections::new(now_ns),
            fragments: bucket(),
            link_local: bucket(),
            others: SkipCounts::default(),
            largest_bytes: 0,
            lost: 0,
        }
    }

    /// Marks the analysis as that of a capture file. `interface` is the name of the interface in
    /// the file; `None` if the file does not contain it.
    #[must_use]
    pub fn of_file(self, interface: Option<&str>) -> Self {
        Self { interface: interface.map(str::to_owned), ..self }
    }

    /// Returns the name of the interface or file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of packets so far, in both directions.
    pub fn packets(&self) -> u64 {
        self.sides.iter().map(|side| side.packets).sum()
    }

    /// Returns the number of bytes so far, in both directions, from the IP header on.
    pub fn bytes(&self) -> u64 {
        self.sides.iter().map(|side| side.bytes.total()).sum()
    }

    /// Adds a packet to the analysis.
    pub fn see(&mut self, raw: &Raw<'_>) {
        let Some(mut arrival) = raw.arrival() else {
            self.others.add(raw.other());
            return;
        };
        let time = self.clock.packet(arrival.time);
        if self.clock.is_far(time) {
            // The packet's time is far in the past, so it counts as a packet but is in no rate.
            self.sides[usize::from(arrival.way == PacketDirection::Out)].packets +=
                u64::from(arrival.packets);
            return;
        }
        self.advance(time);
        arrival.time = Instant::from_nanos(self.now_ns);
        self.count(&arrival);
        self.flows.add(&arrival);
        self.tunnels.add(&arrival);
        if let Some((bytes, _)) = raw.ip()
            && let Some(packet) = Packet::read(bytes)
        {
            let local = arrival.way == PacketDirection::Out;
            let direction = if local { Direction::Egress } else { Direction::Ingress };
            let key = Key::of(&packet, bytes, direction, 0);
            let seen = PacketKind::of(&packet, bytes);
            self.connections.add(self.now_ns, &key, local, seen);
        }
    }

    fn count(&mut self, arrival: &Arrival) {
        let (bytes, packets) = (u64::from(arrival.bytes), u64::from(arrival.packets));
        let outer = &arrival.flow.outer;
        let (now, out) = (arrival.time, arrival.way == PacketDirection::Out);
        let remote = if out { outer.destination } else { outer.source };
        let side = &mut self.sides[usize::from(out)];
        side.bits += bytes * 8;
        side.slow_bits += bytes * 8;
        side.bytes.add(self.now_ns, bytes);
        side.packets += packets;
        side.line_bytes += bytes;
        self.bin_packets += packets;
        self.packet_meter.add(self.now_ns, packets);
        if place::is_public(remote) {
            side.gateway_bits += bytes * 8;
        }
        self.largest_bytes = self.largest_bytes.max(arrival.packet_bytes);
        if out && arrival.fragment && self.fragments.0.take(now, packets, Duration::ZERO).is_err() {
            self.fragments.1 += packets;
        }
        if out
            && place::is_link_local_service(remote)
            && self.link_local.0.take(now, packets, Duration::ZERO).is_err()
        {
            self.link_local.1 += packets;
        }
    }

    /// Notes that all packets before the steady time `now` have been added; ends bins accordingly.
    fn advance(&mut self, now: Instant) {
        self.now_ns = self.now_ns.max(now.as_nanos());
        let bin = self.now_ns / BIN_NS;
        if bin > self.bin {
            let end_ns = (self.bin + 1) * BIN_NS;
            for side in &mut self.sides {
                let bits = std::mem::take(&mut side.bits);
                let gateway_bits = std::mem::take(&mut side.gateway_bits);
                if bits > 0 {
                    side.bandwidth.add(end_ns, bits as f64);
                }
                if gateway_bits > 0 {
                    side.gateway.add(end_ns, gateway_bits as f64);
                }
            }
            let packets = std::mem::take(&mut self.bin_packets);
            if packets > 0 {
                self.packets.add(end_ns, packets as f64);
            }
            self.bin = bin;
        }
        let line = (self.now_ns - self.began_ns) / LINE_NS;
        if line > self.line {
            for side in &mut self.sides {
                let bytes = std::mem::take(&mut side.line_bytes);
                if bytes > 0 {
                    side.line.add(self.line, bytes);
                }
            }
            self.line = line;
        }
        let slow = self.now_ns / SLOW_NS;
        if slow > self.slow {
            let end_ns = (self.slow + 1) * SLOW_NS;
            for side in &mut self.sides {
                let bits = std::mem::take(&mut side.slow_bits);
                side.backlog.add(end_ns, bits as f64);
            }
            self.slow = slow;
        }
    }

    /// Counts packets that arrived but were not captured.
    pub fn miss(&mut self, packets: u64) {
        self.lost += packets;
    }

    /// Ends the analysis at `now`. Returns the traffic and its needs.
    pub fn finish(mut self, now: Instant) -> TrafficSummary {
        let now = self.clock.now(now);
        self.advance(now);
        self.end()
    }

    /// Ends the analysis at the time of the latest packet. Returns the traffic and its needs.
    pub fn end(mut self) -> TrafficSummary {
        // The current bins end later than the latest packet, so time is advanced beyond them.
        let (end_ns, seen_ns) = (self.now_ns, (self.now_ns - self.began_ns).max(SEEN_NS_MIN));
        self.advance(Instant::from_nanos(end_ns + SLOW_NS));
        let connections = self.connections.seen(end_ns);
        let mean = |side: &Side| side.bytes.total() as f64 * 8e9 / seen_ns as f64;
        let directed = |of: &dyn Fn(&Side) -> f64| Directed {
            r#in: of(&self.sides[0]),
            out: of(&self.sides[1]),
        };
        let needs = Needs {
            headroom: self.headroom,
            bandwidth_bps: directed(&|side| side.bandwidth.need()),
            mean_bps: directed(&mean),
            gateway_bps: directed(&|side| side.gateway.need()),
            packets_per_second: self.packets.need(),
            entries: [0, 1, 2].map(|n: usize| connections.entries[n].peak),
            fastest: self.flows.fastest(),
            flow_over: self.flows.over(),
            backlog: [0, 1].map(|n: usize| self.sides[n].backlog.clone()),
        };
        let all = self.flows.bytes().max(1) as f64;
        let largest = self.flows.largest(FLOWS_NAMED);
        let flows = largest
            .into_iter()
            .map(|(flow, carried, second_bps_max)| FlowShare {
                flow,
                share: carried.bytes as f64 / all,
                bytes: carried.bytes,
                packets: carried.packets,
                second_bps_max,
            })
            .collect();
        let rates = |n: usize| self.sides[n].bytes.rates(seen_ns, 8.0);
        TrafficSummary {
            seen_ns,
            packets: self.sides.iter().map(|side| side.packets).sum(),
            bytes: directed(&|side| side.bytes.total() as f64),
            others: self.others.total(),
            named_others: self.others,
            lost: self.lost,
            clock_set_back: self.clock.set_back(),
            largest_bytes: self.largest_bytes,
            rates_in: rates(0),
            rates_out: rates(1),
            rates_packets: self.packet_meter.rates(seen_ns, 1.0),
            flow_count: self.flows.count(),
            flows_effective: self.flows.effective(),
            flows_forgotten: self.flows.forgotten(),
            flows,
            tunnels: self.tunnels.list(),
            tunnels_others: self.tunnels.others(),
            connections,
            link_local_over: self.link_local.1,
            fragments_over: self.fragments.1,
            needs,
            lines: self.sides.map(|side| side.line),
            name: self.name,
            interface: self.interface,
        }
    }
}

#[cfg(test)]
#[path = "profiler_tests.rs"]
mod tests;
