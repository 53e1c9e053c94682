//! Computes the ideal time of an MPI operation: the time that the links need for it, independent of
//! the transport.
//!
//! The ideal time is the number of bytes divided by the payload rate of the links that carry them;
//! the slowest link determines it. Ranks of one host need no link. Latency is not included, so the
//! result would be far too short for small messages, and no ideal time is computed for them.

use srd_doctor::mpi::ranks::WINDOW;
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use std::collections::BTreeMap;

/// Smallest message in bytes for which an ideal time is computed.
const BYTES_MIN: u64 = 16 << 10;

/// Operations that the test program `ranks` can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    PingPong,
    Bandwidth,
    AllToAll,
    Across,
    AllReduce,
    Gather,
    Incast,
}

impl Operation {
    #[cfg(test)]
    const ALL: [Operation; 7] = [
        Operation::PingPong,
        Operation::Bandwidth,
        Operation::AllToAll,
        Operation::Across,
        Operation::AllReduce,
        Operation::Gather,
        Operation::Incast,
    ];

    /// Returns the name of the operation on the command line of `ranks`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::PingPong => "ping-pong",
            Operation::Bandwidth => "bandwidth",
            Operation::AllToAll => "all-to-all",
            Operation::Across => "across",
            Operation::AllReduce => "all-reduce",
            Operation::Gather => "gather",
            Operation::Incast => "incast",
        }
    }
}

/// Hosts, each with its number of ranks. Ranks are numbered host by host.
pub(super) type Nodes = [(HostId, u32)];

/// Returns the ideal time of an iteration in microseconds; `None` for small messages, whose time
/// depends on latency.
pub(super) fn ideal_us(
    config: &FabricConfig,
    operation: Operation,
    bytes: u64,
    nodes: &Nodes,
) -> Option<f64> {
    if bytes < BYTES_MIN {
        return None;
    }
    let needed = Needed::of(operation, bytes, nodes);
    let host = config.goodput_mbps(config.host_rate_mbps);
    let uplink = config.goodput_mbps(config.uplink_rate_mbps) * f64::from(config.spines);
    let us = |bytes: f64, mbps: f64| bytes * 8.0 / mbps;
    Some(us(needed.host_bytes, host).max(us(needed.leaf_bytes, uplink)))
}

/// Returns the number of bytes that hosts send to other hosts in one iteration: for an all-reduce,
/// the number that they have to send at least.
pub(super) fn bytes_between_hosts(operation: Operation, bytes: u64, nodes: &Nodes) -> u64 {
    Needed::of(operation, bytes, nodes).all_bytes
}

/// Bytes on the busiest host's link, and on the uplinks of the busiest leaf, in one direction; and
/// the bytes that all hosts together send to others.
struct Needed {
    host_bytes: f64,
    leaf_bytes: f64,
    all_bytes: u64,
}

type Traffic = BTreeMap<(HostId, HostId), u64>;

impl Needed {
    fn of(operation: Operation, bytes: u64, nodes: &Nodes) -> Needed {
        match operation {
            Operation::AllReduce => all_reduce(bytes, nodes),
            _ => Needed::of_traffic(&traffic(operation, bytes, nodes)),
        }
    }

    fn of_traffic(traffic: &Traffic) -> Needed {
        let mut hosts: BTreeMap<(HostId, bool), u64> = BTreeMap::new();
        let mut leaves: BTreeMap<(u16, bool), u64> = BTreeMap::new();
        for ((from, to), bytes) in traffic {
            for (host, sends) in [(from, true), (to, false)] {
                *hosts.entry((*host, sends)).or_default() += bytes;
                if from.leaf != to.leaf {
                    *leaves.entry((host.leaf, sends)).or_default() += bytes;
                }
            }
        }
        let most = |all: Option<&u64>| all.copied().unwrap_or(0) as f64;
        Needed {
            host_bytes: most(hosts.values().max()),
            leaf_bytes: most(leaves.values().max()),
            all_bytes: traffic.values().sum(),
        }
    }
}

/// Returns the known lower bound of an all-reduce: each of `n` hosts has to send and to receive `2
/// (n-1)/n` of the data, and all data has to cross between leaves once.
fn all_reduce(bytes: u64, nodes: &Nodes) -> Needed {
    let hosts = nodes.len() as f64;
    let several_leaves = nodes.iter().any(|(host, _)| host.leaf != nodes[0].0.leaf);
    Needed {
        host_bytes: bytes as f64 * 2.0 * (hosts - 1.0) / hosts,
        leaf_bytes: if several_leaves { bytes as f64 } else { 0.0 },
        all_bytes: bytes * 2 * (nodes.len() as u64).saturating_sub(1),
    }
}

/// Returns the bytes that each host sends to each other host in one iteration. For an all-reduce,
/// they depend on the MPI's algorithm and are not known.
fn traffic(operation: Operation, bytes: u64, nodes: &Nodes) -> Traffic {
    let ranks: Vec<HostId> = nodes
        .iter()
        .flat_map(|(host, ranks)| std::iter::repeat_n(*host, *ranks as usize))
        .collect();
    let half = ranks.len() / 2;
    let mut traffic = Traffic::new();
    for (from, from_host) in ranks.iter().enumerate() {
        for (to, to_host) in ranks.iter().enumerate() {
            let sends = match operation {
                Operation::PingPong => u64::from((from, to) == (0, 1)),
                Operation::Bandwidth => u64::from((from, to) == (0, 1)) * WINDOW,
                Operation::AllToAll => 1,
                Operation::Across => u64::from((from < half) != (to < half)),
                Operation::AllReduce => 0,
                Operation::Gather | Operation::Incast => u64::from(to == 0),
            };
            if from_host != to_host && sends > 0 {
                *traffic.entry((*from_host, *to_host)).or_default() += sends * bytes;
            }
        }
    }
    traffic
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn host(leaf: u16, host: u16) -> HostId {
        HostId { leaf, host }
    }

    /// Returns a fabric with two hosts under each of two leaves, and one rank in each host. The
    /// uplinks have as much capacity as the hosts' links.
    fn four() -> (FabricConfig, Vec<(HostId, u32)>) {
        let config = FabricConfig { uplink_rate_mbps: 500, ..FabricConfig::default() };
        let hosts = [host(0, 0), host(0, 1), host(1, 0), host(1, 1)];
        (config, hosts.map(|host| (host, 1)).to_vec())
    }

    /// Returns the ideal time divided by the time that a host's link needs for one message.
    fn ratio(operation: Operation) -> f64 {
        let (config, nodes) = four();
        let unit = MB as f64 * 8.0 / config.goodput_mbps(config.host_rate_mbps);
        ideal_us(&config, operation, MB, &nodes).unwrap() / unit
    }

    #[test]
    fn the_busiest_link_decides() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        let (config, nodes) = four();
        close(ratio(Operation::Bandwidth), WINDOW as f64);
        close(ratio(Operation::AllToAll), 3.0);
        close(ratio(Operation::Across), 2.0);
        close(ratio(Operation::AllReduce), 1.5);
        close(ratio(Operation::Gather), 3.0);
        close(ratio(Operation::Incast), 3.0);
        // If the uplinks have an eighth of this rate, the traffic between leaves determines the
        // time.
        let narrow = FabricConfig { uplink_rate_mbps: 62, spines: 4, ..config.clone() };
        let uplinks = config.goodput_mbps(62) * 4.0;
        let us = ideal_us(&narrow, Operation::Across, MB, &nodes).unwrap();
        close(us, 4.0 * MB as f64 * 8.0 / uplinks);
    }

    #[test]
    fn ranks_of_one_host_need_no_link() {
        let config = FabricConfig::default();
        let nodes = [(host(0, 0), 1), (host(1, 0), 3)];
        let one = config.goodput_mbps(config.host_rate_mbps);
        let us = ideal_us(&config, Operation::Incast, MB, &nodes).unwrap();
        assert!((us - 3.0 * MB as f64 * 8.0 / one).abs() < 1e-6);
        let alone = [(host(0, 0), 4)];
        assert_eq!(bytes_between_hosts(Operation::AllToAll, MB, &alone), 0);
        assert_eq!(bytes_between_hosts(Operation::AllToAll, MB, &nodes), 6 * MB);
    }

    /// In an earlier version, an all-reduce in the ideal time had a rate between hosts that was
    /// above the rate of all links.
    #[test]
    fn regression_in_the_ideal_time_no_link_carries_more_than_its_rate() {
        let (config, nodes) = four();
        let all_links = config.goodput_mbps(config.host_rate_mbps) * nodes.len() as f64;
        for operation in Operation::ALL {
            let bytes = bytes_between_hosts(operation, MB, &nodes) as f64;
            let mbps = bytes * 8.0 / ideal_us(&config, operation, MB, &nodes).unwrap();
            assert!(mbps <= all_links * 1.000_001, "{operation:?}: {mbps} of {all_links} Mb/s");
        }
        assert_eq!(bytes_between_hosts(Operation::AllReduce, MB, &nodes), 6 * MB);
    }

    #[test]
    fn small_messages_have_no_ideal() {
        let (config, nodes) = four();
        assert_eq!(ideal_us(&config, Operation::PingPong, 8, &nodes), None);
    }

    #[test]
    fn the_program_knows_every_operation_by_its_name() {
        let source = include_str!("../../../../../srd-doctor/src/mpi/ranks.c");
        for operation in Operation::ALL {
            assert!(source.contains(&format!("{{\"{}\", ", operation.name())), "{operation:?}");
        }
    }
}
