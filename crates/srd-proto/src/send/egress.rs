//! Limits the sending rate to that of this node's own link, which the shards of the node lease in
//! turns. Data leaves no faster than the link carries it. So packets wait in the endpoint, where
//! acknowledgements overtake data and peers take turns, and not in a queue of the host, where
//! acknowledgements would wait behind data.
//!
//! The link belongs to the node. A node of one shard paces as it sends. In a node of several
//! shards, each leases the link for [`LEASE_BYTES`] at a time, so that shards write to shared
//! memory once for many packets.

use alloc::collections::VecDeque;

use crate::ids::PeerId;
use crate::node::Node;
use crate::send::pacer::{Pacer, time_for};
use crate::time::{Duration, Instant};
use crate::transmit::Transmit;

/// Bytes that Ethernet adds to an IP packet on the wire: preamble, header, check sequence and gap.
const ETHERNET_BYTES: u64 = 38;
/// Packets of full size that may leave at once, in addition to the bytes that leave while the
/// host's timers are late.
const BURST_PACKETS: u64 = 2;

/// Bytes of one lease of the link: as many as in one batch of packets.
const LEASE_BYTES: u64 = 64 * 1024;
/// Time after which the unused bytes of a lease of the link expire. Without this limit, each shard
/// could keep a lease, and all shards could send their leases at once, faster than the link.
const LEASE_LIFETIME: Duration = Duration::from_micros(100);

/// Method by which the data rate is limited to the rate of the link.
#[derive(Debug)]
enum Pace {
    /// No limit: the rate is unknown, or the host keeps its own queue short.
    Free,
    /// The shard has a pacer for the whole link, because it is the node's only shard.
    Alone(Pacer),
    /// The shard leases the link for short times, because the node has several shards.
    Leased(Lease),
}

/// One shard's lease of the link of its node.
#[derive(Debug)]
struct Lease {
    rate_bps: u64,
    /// Longest time by which the end of all leases may be ahead of the clock when this shard leases
    /// the link.
    burst: Duration,
    /// Bytes of the lease that were not sent yet. A negative number is the bytes by which the last
    /// packet exceeded the lease; they are added to the next lease.
    left_bytes: i64,
    /// Time at which the unused bytes of the lease expire.
    ends_at: Instant,
    /// Time up to which the link was leased, by all shards, when this shard last leased it.
    sold_until: Instant,
    /// Time that the link needs to carry one lease of each shard.
    round: Duration,
}

impl Lease {
    fn is_open(&self, node: &Node, now: Instant) -> bool {
        (self.left_bytes > 0 && now < self.ends_at) || self.opens_at(node) <= now
    }

    /// Time when this shard may lease the link. A shard that has leased the link recently waits a
    /// little longer than the other shards, so that the shards take turns.
    fn opens_at(&self, node: &Node) -> Instant {
        let sold_until = node.link_sold_until();
        let round_ns = self.round.as_nanos().max(1);
        let others_ns = sold_until.since(self.sold_until).as_nanos().min(round_ns);
        let wait_ns = self.burst.as_nanos() / 2 * (round_ns - others_ns) / round_ns;
        sold_until - self.burst + Duration::from_nanos(wait_ns)
    }

    fn on_sent(&mut self, node: &Node, now: Instant, bytes: u64) {
        let bytes = bytes.cast_signed();
        if now >= self.ends_at {
            self.left_bytes = self.left_bytes.min(0);
        }
        if self.left_bytes <= 0 {
            let bought = bytes.max(LEASE_BYTES.cast_signed()) - self.left_bytes;
            let time = time_for(bought.unsigned_abs(), self.rate_bps);
            self.sold_until = node.lease_link(now, time);
            self.left_bytes += bought;
            self.ends_at = now + LEASE_LIFETIME;
        }
        self.left_bytes -= bytes;
    }
}

/// State of the link: whether it accepts data, and the peers that wait for it.
#[derive(Debug)]
pub(crate) struct Egress {
    pace: Pace,
    overhead_bytes: u64,
    /// Peers with data that waits only for the link, each once. Bound: the number of peers.
    pub(crate) waiting: VecDeque<PeerId>,
}

impl Egress {
    pub(crate) fn new(node: &Node, now: Instant) -> Self {
        let config = &node.config;
        let rate_bps = config.link_rate_bps;
        let late_ns = u128::from(config.delay_target_min.as_nanos());
        let late_bytes = u128::from(rate_bps) * late_ns / 8_000_000_000;
        let late_bytes = u64::try_from(late_bytes).unwrap_or(u64::MAX);
        let burst_bytes = BURST_PACKETS * u64::from(config.packet_bytes_max) + late_bytes;
        let pace = if !config.egress_pacing || rate_bps == 0 {
            Pace::Free
        } else if node.is_sharded() {
            Pace::Leased(Lease {
                rate_bps,
                burst: time_for(burst_bytes, rate_bps),
                left_bytes: 0,
                ends_at: Instant::ZERO,
                sold_until: Instant::ZERO,
                round: time_for(LEASE_BYTES, rate_bps).times(node.shards().into()),
            })
        } else {
            let mut pacer = Pacer::new(now);
            pacer.set_pace(now, rate_bps, burst_bytes);
            Pace::Alone(pacer)
        };
        let overhead_bytes = u64::from(config.wire_overhead_bytes) + ETHERNET_BYTES;
        Self { pace, overhead_bytes, waiting: VecDeque::new() }
    }

    /// Whether data may leave now.
    pub(crate) fn is_open(&self, node: &Node, now: Instant) -> bool {
        // C15: Egress pacing
        match &self.pace {
            Pace::Free => true,
            Pace::Alone(pacer) => pacer.next_departure() <= now,
            Pace::Leased(lease) => lease.is_open(node, now),
        }
    }

    /// Time when the waiting peers may send again; `None` if no peer waits, or the link is not
    /// limited.
    pub(crate) fn opens_at(&self, node: &Node) -> Option<Instant> {
        match &self.pace {
            _ if self.waiting.is_empty() => None,
            Pace::Free => None,
            Pace::Alone(pacer) => Some(pacer.next_departure()),
            Pace::Leased(lease) => Some(lease.opens_at(node)),
        }
    }

    /// Accounts for a batch that left. Control packets do not wait for the link, but their bytes
    /// count as well.
    pub(crate) fn on_sent(&mut self, node: &Node, now: Instant, batch: &Transmit) {
        let bytes = batch.total_bytes as u64 + self.overhead_bytes * batch.segments as u64;
        match &mut self.pace {
            Pace::Free => {}
            Pace::Alone(pacer) => pacer.on_sent(now, bytes),
            Pace::Leased(lease) => lease.on_sent(node, now, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec::Vec;
    use core::net::SocketAddr;

    use super::*;
    use crate::config::Config;
    use crate::ids::{Entropy, Epoch};
    use crate::transmit::Ecn;

    const BATCH_BYTES: usize = 9_000;

    fn batch() -> Transmit {
        let destination: SocketAddr = ([10, 0, 0, 1], 7471).into();
        let (segments, segment_bytes, total_bytes) = (1, BATCH_BYTES, BATCH_BYTES);
        let (entropy, ecn) = (Entropy(0), Ecn::NotEct);
        Transmit { destination, entropy, ecn, segments, segment_bytes, total_bytes, control: false }
    }

    /// Bytes that each of `active` shards sends within 10 ms, if all have more than enough to send.
    fn sent_bytes(shards: u8, active: usize) -> Vec<u64> {
        let config = Config { link_rate_bps: 10_000_000_000, ..Config::sockets() };
        let config = Config { egress_pacing: true, ..config };
        let node = Arc::new(Node::new(config, Epoch(1), shards).unwrap());
        let mut egress: Vec<Egress> =
            (0..active).map(|_| Egress::new(&node, Instant::ZERO)).collect();
        let mut sent = alloc::vec![0; active];
        for ns in (0..10_000_000).step_by(100) {
            let now = Instant::from_nanos(ns);
            for (egress, sent) in egress.iter_mut().zip(&mut sent) {
                if egress.is_open(&node, now) {
                    egress.on_sent(&node, now, &batch());
                    *sent += BATCH_BYTES as u64;
                }
            }
        }
        sent
    }

    #[test]
    fn shards_share_one_link_and_one_alone_has_all_of_it() {
        let alone: u64 = sent_bytes(1, 1).iter().sum();
        assert!((12_000_000..13_000_000).contains(&alone), "{alone} bytes of 12.5 MB");
        for (shards, active) in [(2, 1), (2, 2), (8, 3), (16, 16)] {
            let sent = sent_bytes(shards, active);
            let sum: u64 = sent.iter().sum();
            // The tolerance: a lease that each shard has bought and not used yet, and half a burst.
            let over = (active as u64 + 1) * LEASE_BYTES;
            assert!(sum > alone - over && sum < alone + over, "{sent:?} beside {alone}");
            let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
            assert!(most - least <= 2 * LEASE_BYTES, "{sent:?}");
        }
    }

    #[test]
    fn a_lease_that_was_not_used_ends() {
        let config =
            Config { egress_pacing: true, link_rate_bps: 1_000_000_000, ..Config::sockets() };
        let node = Node::new(config, Epoch(1), 2).unwrap();
        let mut egress = Egress::new(&node, Instant::ZERO);
        egress.on_sent(&node, Instant::ZERO, &batch());
        let Pace::Leased(lease) = &egress.pace else { panic!("{egress:?}") };
        assert!(lease.left_bytes > 0);
        let later = Instant::ZERO + LEASE_LIFETIME;
        assert!(!egress.is_open(&node, later), "the link is sold for another 400 us");
    }
}
