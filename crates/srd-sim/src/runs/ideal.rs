//! Ideal completion time of a set of flows: the bytes that share the bottleneck divided by its
//! speed, plus one base round trip.
//!
//! Flows that start together form a group and share the network. The bottleneck of a group is the
//! link, or the set of links, that needs the most time for the bytes of the group. Candidates are
//! the links of each host, and the uplinks of each rack and pod. A flow that starts at another time
//! (random arrivals, steps of a collective, flows that a trigger starts one after another) is a
//! group of its own, and its ideal is that of a flow alone in the network.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::node::ENDLESS;
use crate::engine::topology::Topology;
use crate::workload::{FlowPlan, Start, TriggerId, TriggerKind, Workload};

/// Ideal completion times of all flows of a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Ideals {
    // By flow: number of its group.
    group: Vec<u32>,
    // By group: ideal in picoseconds, for the payload alone, and for payload with headers.
    ideal_ps: Vec<(u64, u64)>,
    goodput_bps: f64,
}

/// A link, or a set of links, that flows share: its speed, and the bytes of the flows added up so
/// far.
#[derive(Clone, Copy)]
struct Shared {
    bytes: u128,
    wire_bytes: u128,
    rate_bps: u128,
}

/// A rack or a pod: a range of hosts, and the total speed of its links to the rest of the network.
struct Enclosure {
    low: u32,
    span: u32,
    out_bps: u128,
    in_bps: u128,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum SharedLink {
    HostOut(u32),
    HostIn(u32),
    Out(usize),
    In(usize),
}

/// Returns the racks and pods of a network, with the total speed of their links to the outside.
fn enclosures(topology: &Topology) -> Vec<Enclosure> {
    let mut by_range = BTreeMap::new();
    for switch in &topology.switches {
        let (first, count) = switch.ports_up();
        let (low, span) = switch.range();
        let (mut out_bps, mut in_bps) = (0_u128, 0_u128);
        for port in first..first + count {
            let port = &topology.ports[port as usize];
            out_bps += u128::from(port.rate_bps);
            in_bps += u128::from(topology.ports[port.reverse as usize].rate_bps);
        }
        let sum = by_range.entry((low, span)).or_insert((0_u128, 0_u128));
        sum.0 += out_bps;
        sum.1 += in_bps;
    }
    let partial = |span: u32| span < topology.hosts;
    by_range
        .into_iter()
        .filter(|&((_, span), (out, _))| partial(span) && out > 0)
        .map(|((low, span), (out_bps, in_bps))| Enclosure { low, span, out_bps, in_bps })
        .collect()
}

impl Ideals {
    /// Computes the ideal times of a workload. `data_bytes` is the wire size of a full data packet,
    /// of which `header_bytes` are headers; `ack_bytes` is the wire size of an acknowledgement.
    pub fn new(
        topology: &Topology,
        workload: &Workload,
        data_bytes: u32,
        ack_bytes: u32,
        header_bytes: u32,
    ) -> Self {
        let enclosures = enclosures(topology);
        let payload_bytes = u128::from(data_bytes.saturating_sub(header_bytes).max(1));
        let mut groups: BTreeMap<(u8, u64), u32> = BTreeMap::new();
        let share = payload_bytes as f64 / f64::from(data_bytes.max(1));
        let goodput_bps = host_links_bps(topology, workload) as f64 * share;
        let mut ideals = Self { group: Vec::new(), ideal_ps: Vec::new(), goodput_bps };
        let mut members: Vec<Vec<&FlowPlan>> = Vec::new();
        let starts_one =
            |id: TriggerId| workload.triggers.get(id.0 as usize) == Some(&TriggerKind::MultiShot);
        for flow in &workload.flows {
            let key = match flow.start {
                Start::At(at_ps) => (0, at_ps),
                Start::On(id) if !starts_one(id) => (1, u64::from(id.0)),
                Start::On(_) | Start::Scheduled => (2, ideals.group.len() as u64),
            };
            let fresh = u32::try_from(groups.len()).expect("fewer than 2^32 flows");
            let group = *groups.entry(key).or_insert(fresh);
            if group == fresh {
                members.push(Vec::new());
            }
            members[group as usize].push(flow);
            ideals.group.push(group);
        }
        for flows in &members {
            let mut shared: BTreeMap<SharedLink, Shared> = BTreeMap::new();
            let mut rtt_ps = 0;
            for flow in flows.iter().filter(|f| f.bytes != ENDLESS) {
                let bytes = u128::from(flow.bytes);
                let packets = bytes.div_ceil(payload_bytes);
                let wire_bytes = bytes + packets * u128::from(header_bytes);
                for (place, rate_bps) in places(topology, &enclosures, flow) {
                    let none = Shared { bytes: 0, wire_bytes: 0, rate_bps };
                    let sum = shared.entry(place).or_insert(none);
                    sum.bytes += bytes;
                    sum.wire_bytes += wire_bytes;
                }
                let (src, dst) = (flow.src.0, flow.dst.0);
                rtt_ps = topology.base_rtt_ps(src, dst, data_bytes, ack_bytes).max(rtt_ps);
            }
            let longest = |bytes: fn(&Shared) -> u128| {
                let ps = |s: &Shared| bytes(s) * 8_000_000_000_000 / s.rate_bps.max(1);
                let ps = shared.values().map(ps).max().unwrap_or(0);
                u64::try_from(ps).unwrap_or(u64::MAX).saturating_add(rtt_ps)
            };
            ideals.ideal_ps.push((longest(|s| s.bytes), longest(|s| s.wire_bytes)));
        }
        ideals
    }

    /// Returns two ideal times of a flow in picoseconds: for the payload alone, and for the payload
    /// with headers.
    pub fn of(&self, flow: usize) -> (u64, u64) {
        self.ideal_ps[self.group[flow] as usize]
    }

    /// Returns the largest possible goodput of all flows together: the rate of the hosts' links,
    /// less the share of headers in full packets.
    pub fn goodput_bps(&self) -> f64 {
        self.goodput_bps
    }

    /// Returns the longest ideal times of all flows in picoseconds: for the payload alone, and for
    /// the payload with headers.
    pub fn longest(&self) -> (u64, u64) {
        let payload = self.ideal_ps.iter().map(|i| i.0).max().unwrap_or(0);
        (payload, self.ideal_ps.iter().map(|i| i.1).max().unwrap_or(0))
    }
}

/// Returns the total speed of the links of all senders, or of all receivers if that is less.
fn host_links_bps(topology: &Topology, workload: &Workload) -> u64 {
    let sum = |of: fn(&FlowPlan) -> u32| {
        let hosts: BTreeSet<u32> = workload.flows.iter().map(of).collect();
        hosts.into_iter().map(|host| topology.host_rate_bps(host)).sum::<u64>()
    };
    sum(|f| f.src.0).min(sum(|f| f.dst.0))
}

/// Returns the links, and sets of links, that a flow may share with other flows, with their speeds.
fn places(
    topology: &Topology,
    enclosures: &[Enclosure],
    flow: &FlowPlan,
) -> Vec<(SharedLink, u128)> {
    let (src, dst) = (flow.src.0, flow.dst.0);
    let rate_in = topology.ports[topology.ports[dst as usize].reverse as usize].rate_bps;
    let mut places = vec![
        (SharedLink::HostOut(src), u128::from(topology.host_rate_bps(src))),
        (SharedLink::HostIn(dst), u128::from(rate_in)),
    ];
    for (n, e) in enclosures.iter().enumerate() {
        let holds = |host: u32| host.wrapping_sub(e.low) < e.span;
        match (holds(src), holds(dst)) {
            (true, false) => places.push((SharedLink::Out(n), e.out_bps)),
            (false, true) => places.push((SharedLink::In(n), e.in_bps)),
            _ => {}
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::topology::clos::{ClosSpec, Links};
    use crate::workload::pattern::{Incast, all_to_all, pairs};

    const LINKS: Links = Links {
        host_bps: 100_000_000_000,
        up_bps: 100_000_000_000,
        latency_ps: 1_000_000,
        switch_latency_ps: 0,
        bundle: 1,
    };

    fn longest_us(topology: &Topology, workload: &Workload) -> (f64, f64) {
        let (payload, wire) = Ideals::new(topology, workload, 4150, 64, 64).longest();
        (payload as f64 / 1e6, wire as f64 / 1e6)
    }

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 0.06, "{value}, not {expected}");
    }

    #[test]
    fn ideals_are_those_of_the_reference() {
        let tree = ClosSpec::fat_tree(8, [1, 1], &LINKS).build().unwrap();
        for (bytes, expected_us) in
            [(65_536, 265.7), (524_288, 2027.3), (2_097_152, 8067.1), (8_388_608, 32226.3)]
        {
            let incast = Incast {
                senders: vec![16, 32, 48, 64],
                receiver: 0,
                flows_per_sender: 12,
                bytes,
                start_ps: 0,
                rounds: 1,
            };
            let (payload_us, wire_us) = longest_us(&tree, &incast.plan().unwrap());
            near(payload_us, expected_us);
            assert!((1.0145..1.0160).contains(&(wire_us / payload_us)), "{wire_us}");
        }
        near(longest_us(&tree, &pairs([(0, 127)].into_iter(), 1, 2_097_152).unwrap()).0, 181.8);
        let leaves = ClosSpec::leaf_spine(4, 16, 16, &LINKS).build().unwrap();
        let racks = pairs((0..8).map(|i| (i, 16 + i)), 16, 2_097_152).unwrap();
        near(longest_us(&leaves, &racks).0, 2693.7);
    }

    #[test]
    fn oversubscribed_uplinks_are_a_bottleneck() {
        let tree = ClosSpec::leaf_spine(2, 1, 4, &LINKS).build().unwrap();
        let racks = pairs((0..4).map(|i| (i, 4 + i)), 1, 1_000_000).unwrap();
        near(longest_us(&tree, &racks).0, 4.0 * 80.0 + 9.35);
        let inside = pairs([(0, 1), (2, 3)].into_iter(), 1, 1_000_000).unwrap();
        near(longest_us(&tree, &inside).0, 80.0 + 4.67);
    }

    #[test]
    fn flows_that_start_apart_do_not_share() {
        let tree = ClosSpec::leaf_spine(2, 4, 4, &LINKS).build().unwrap();
        let flows = vec![FlowPlan::at(0, 0, 4, 1_000_000), FlowPlan::at(5, 1, 4, 1_000_000)];
        let workload = Workload { flows, ..Workload::default() };
        near(longest_us(&tree, &workload).0, 80.0 + 9.35);
    }

    /// In an earlier version, the flows that one trigger starts one after another were taken for
    /// flows that share their links, and real completion times were less than the ideal.
    #[test]
    fn regression_flows_that_a_trigger_starts_one_by_one_do_not_share() {
        let tree = ClosSpec::leaf_spine(2, 4, 4, &LINKS).build().unwrap();
        let hosts: Vec<u32> = (0..8).collect();
        let one_by_one = all_to_all(&hosts, 1_000_000, Some(1)).unwrap();
        near(longest_us(&tree, &one_by_one).0, 80.0 + 9.35);
        let together = all_to_all(&hosts, 1_000_000, None).unwrap();
        near(longest_us(&tree, &together).0, 7.0 * 80.0 + 9.35);
    }
}
