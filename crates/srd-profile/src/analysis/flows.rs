//! Flows as the network sees them (by their outer headers): the traffic of each flow, and the
//! packets that the ceiling of one flow would delay or drop.
//!
//! Limit: two generations of [`FLOWS_KEPT`] flows, like the meters of `srd watch`. If a flow is
//! silent while this many other flows arrive, its record is dropped and the flow is counted as
//! forgotten; later packets start a new record.

use std::collections::HashMap;

use srd_card::FlowKey;
use srd_card::limits::FlowKind;
use srd_watch::sketch::{Carried, TopFlows};
use srd_watch::{Arrival, Flow};

use crate::analysis::distinct::Distinct;

/// Largest number of flows in one generation.
pub const FLOWS_KEPT: usize = 1 << 15;
/// Kinds of destinations of flows, from the lowest ceiling of one flow to the highest.
pub const KINDS: [FlowKind; 3] =
    [FlowKind::Exterior, FlowKind::ClusterPlacementGroup, FlowKind::Express];
const TOLERANCE_S: f64 = 1e-3;
const SECOND_NS: u64 = 1_000_000_000;

/// Record of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    at_ns: u64,
    /// Bits that are missing from the full token bucket of each ceiling, without and with headroom.
    missing: [[f64; 2]; 3],
    second: u64,
    second_bits: u64,
    second_bits_max: u64,
}

/// All flows of an interface.
#[derive(Debug)]
pub(crate) struct Flows {
    young: HashMap<FlowKey, Record>,
    old: HashMap<FlowKey, Record>,
    ceilings: [[f64; 2]; 3],
    forgotten: u64,
    /// For each ceiling, packets that it would delay or drop: without headroom, and with headroom.
    over: [[u64; 2]; 3],
    fastest: Option<(Flow, u64)>,
    top: TopFlows,
    distinct: Distinct,
    bytes: u64,
}

impl Flows {
    pub(crate) fn new(headroom: f64) -> Self {
        let ceilings = KINDS.map(|kind| {
            let rate = kind.ceiling_bps(u64::MAX, 1) as f64;
            [rate, rate / (1.0 + headroom)]
        });
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            ceilings,
            forgotten: 0,
            over: [[0; 2]; 3],
            fastest: None,
            top: TopFlows::default(),
            distinct: Distinct::new(),
            bytes: 0,
        }
    }

    pub(crate) fn add(&mut self, arrival: &Arrival) {
        let flow = Flow { outer: arrival.flow.outer, inner: None };
        let (bytes, packets) = (u64::from(arrival.bytes), u64::from(arrival.packets));
        self.top.add(&flow, &Carried { bytes, packets, ..Carried::default() });
        self.distinct.add(&flow.outer);
        self.bytes += bytes;
        self.make_room(&flow.outer);
        let now = arrival.time.as_nanos();
        let old = &mut self.old;
        let record = self.young.entry(flow.outer).or_insert_with(|| {
            let fresh = Record { at_ns: now, second: now / SECOND_NS, ..Record::default() };
            old.remove(&flow.outer).unwrap_or(fresh)
        });
        let passed_s = now.saturating_sub(record.at_ns) as f64 / 1e9;
        record.at_ns = record.at_ns.max(now);
        for (kind, rates) in self.ceilings.iter().enumerate() {
            for (part, rate) in rates.iter().enumerate() {
                let missing = &mut record.missing[kind][part];
                let more = (*missing - rate * passed_s).max(0.0) + bytes as f64 * 8.0;
                let is_over = more > rate * TOLERANCE_S;
                // A packet that would wait longer is dropped, so it does not delay later packets.
                *missing = more.min(rate * TOLERANCE_S * 6.0);
                self.over[kind][part] += if is_over { packets } else { 0 };
            }
        }
        let second = now / SECOND_NS;
        if second > record.second {
            (record.second, record.second_bits) = (second, 0);
        }
        record.second_bits += bytes * 8;
        record.second_bits_max = record.second_bits_max.max(record.second_bits);
        if self.fastest.is_none_or(|(_, most)| record.second_bits_max > most) {
            self.fastest = Some((flow, record.second_bits_max));
        }
    }

    /// Makes space for a record of `flow` in the younger generation. If this generation is full,
    /// the older generation is dropped, and the younger generation takes its place.
    fn make_room(&mut self, flow: &FlowKey) {
        if self.young.len() >= FLOWS_KEPT && !self.young.contains_key(flow) {
            self.forgotten += self.old.len() as u64;
            self.old.clear();
            std::mem::swap(&mut self.young, &mut self.old);
        }
    }

    /// Returns the flow with the most bits in any second, and this number of bits; `None` without
    /// packets.
    pub(crate) fn fastest(&self) -> Option<(Flow, u64)> {
        self.fastest
    }

    /// Returns, for each kind of destination, the packets that the ceiling of one flow would delay
    /// or drop: without headroom, and with headroom.
    pub(crate) fn over(&self) -> [[u64; 2]; 3] {
        self.over
    }

    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns the approximate number of flows.
    pub(crate) fn count(&self) -> f64 {
        self.distinct.count()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the `count` largest flows with their traffic. The last value is the largest number
    /// of bits of the flow in a second; `None` if its record was dropped.
    pub(crate) fn largest(&self, count: usize) -> Vec<(Flow, Carried, Option<u64>)> {
        let second = |flow: &Flow| {
            let record = self.young.get(&flow.outer).or_else(|| self.old.get(&flow.outer));
            record.map(|record| record.second_bits_max)
        };
        let largest = self.top.largest().into_iter().take(count);
        largest.map(|(flow, carried)| (flow, carried, second(&flow))).collect()
    }

    /// Returns the effective number of flows: the number of flows with equal shares of the bytes
    /// that would have the same entropy. It is two to the power of the entropy. Only the sum of
    /// bytes is known of flows below the error of the sketch; it counts as evenly spread over them.
    pub(crate) fn effective(&self) -> f64 {
        if self.bytes == 0 {
            return 0.0;
        }
        let part = |bytes: f64| {
            let share = bytes / self.bytes as f64;
            if share > 0.0 { -share * share.log2() } else { 0.0 }
        };
        let least = self.top.error_bytes() * 2;
        let largest = self.top.largest();
        let large = largest.iter().map(|(_, carried)| carried.bytes);
        let large: Vec<u64> = large.take_while(|bytes| *bytes > least).collect();
        let entropy: f64 = large.iter().map(|bytes| part(*bytes as f64)).sum();
        let rest = self.bytes.saturating_sub(large.iter().sum());
        let others = (self.count() - large.len() as f64).max(1.0);
        (entropy + others * part(rest as f64 / others)).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_proto::time::Instant;
    use srd_watch::PacketDirection;

    fn arrival(time_ns: u64, flow: u32, bytes: u32) -> Arrival {
        let outer = FlowKey {
            source: flow.to_be_bytes().into(),
            destination: [10, 0, 0, 2].into(),
            protocol: 17,
            ports: (1, 2),
        };
        let (flow, way) = (Flow { outer, inner: None }, PacketDirection::Out);
        let time = Instant::from_nanos(time_ns);
        Arrival { time, way, flow, bytes, packets: 1, packet_bytes: bytes, fragment: false }
    }

    #[test]
    fn a_flow_exceeds_the_ceilings_below_its_rate_only() {
        // A packet of 50 kB every 50 us is a rate of 8 Gb/s.
        let mut flows = Flows::new(0.3);
        (0..40_000).for_each(|n| flows.add(&arrival(n * 50_000, 1, 50_000)));
        let over = flows.over();
        assert!(over[0][0] > 30_000, "5 Gb/s: {over:?}");
        assert_eq!((over[1][0], over[2]), (0, [0, 0]), "10 and 25 Gb/s: {over:?}");
        assert!(over[1][1] > 30_000, "10 Gb/s with 30 % of headroom: {over:?}");
        let (_, bits) = flows.fastest().unwrap();
        assert_eq!(bits, 8_000_000_000);
        assert!((flows.effective() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_million_flows_are_bounded_and_counted() {
        let mut flows = Flows::new(0.0);
        for n in 0..1_000_000 {
            flows.add(&arrival(n * 1000, u32::try_from(n).unwrap(), 100));
            assert!(flows.young.len() + flows.old.len() <= 2 * FLOWS_KEPT);
        }
        let kept = flows.young.len() + flows.old.len();
        assert_eq!(flows.forgotten() + kept as u64, 1_000_000);
        let (count, effective) = (flows.count() / 1e6, flows.effective() / 1e6);
        assert!((0.95..1.05).contains(&count) && (0.95..1.05).contains(&effective));
    }
}
