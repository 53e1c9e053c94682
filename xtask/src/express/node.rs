//! One node of the soak: an endpoint, its Express, and counters of its guest's packets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use srd_card::{
    Config, Counters, Express, FRAME_BYTES_MAX, Guest, PeerSettings, PeerSlot, Prefix, Reach,
};
use srd_proto::crypto::public_key;
use srd_proto::time::{Duration, Instant};
use srd_proto::{Config as CoreConfig, Endpoint, Epoch, PeerConfig, PeerId, Protection};

use super::frames::{MOVING, inner};
use super::ledger::Ledger;
use super::{NODES, frames};

/// Largest number of flows in each flow table; it is low, so that the tables are sometimes full.
pub(super) const FLOWS_MAX: u32 = 512;
/// Sizes in bytes of the smallest and the largest frame of a guest.
const FRAME_BYTES: (usize, usize) = (40, FRAME_BYTES_MAX);

/// Settings of a node. They survive a restart of the node.
#[derive(Clone, Debug)]
pub(super) struct NodeSettings {
    pub express: bool,
    pub express_udp: bool,
    pub express_tunnels: bool,
    pub udp_bypass: bool,
    pub order_wait: Duration,
    pub queue_target: Duration,
    /// Settings for each peer, by its node's index.
    pub peers: [WantedPeer; NODES],
}

/// Settings of a node for one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedPeer {
    pub present: bool,
    pub express: bool,
    pub udp: bool,
    /// Whether the peer may use its own fixed address.
    pub allowed: bool,
    /// Whether the moving address is behind the peer.
    pub owns_moving: bool,
}

impl NodeSettings {
    /// Returns settings with ENA Express and all peers enabled. `owner` is the node behind which
    /// the moving address is.
    pub(super) fn all(owner: usize) -> Self {
        let peer = WantedPeer {
            present: true,
            express: true,
            udp: true,
            allowed: true,
            owns_moving: false,
        };
        let mut peers = [peer; NODES];
        peers[owner].owns_moving = true;
        Self {
            express: true,
            express_udp: true,
            express_tunnels: true,
            udp_bypass: false,
            order_wait: Duration::from_millis(100),
            queue_target: Duration::from_millis(5),
            peers,
        }
    }
}

/// Returns the address and port of a node's endpoint in the fabric.
pub(super) fn outer(node: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, u8::try_from(node).expect("few nodes")], 7471))
}

fn key(node: usize) -> [u8; 32] {
    [u8::try_from(node + 1).expect("few nodes"); 32]
}

fn prefix(address: Ipv4Addr, length: u8) -> Prefix {
    Prefix::new(IpAddr::V4(address), length).expect("a prefix without bits beyond its length")
}

/// A running node.
pub(super) struct Node {
    pub index: usize,
    pub endpoint: Endpoint,
    pub express: Express,
    pub peers: [Option<(PeerId, PeerSlot)>; NODES],
    pub reach: [Option<Reach>; NODES],
    /// Number of packets that the guest sent (`given`), and number of packets that were delivered
    /// to it (`got`), since the node's last start.
    pub given: u64,
    pub got: u64,
    /// Least and largest possible number of frames that were lost in the queues of removed peers.
    lost_frames: (u64, u64),
    before: Counters,
}

/// The guest of a node, which passes delivered frames to the ledger.
pub(super) struct Inbox<'a> {
    pub ledger: &'a mut Ledger,
    pub now: Instant,
    pub node: usize,
    pub got: &'a mut u64,
}

impl Guest for Inbox<'_> {
    fn deliver(&mut self, frame: &[u8]) {
        *self.got += self.ledger.got(self.now, self.node, frame);
    }
}

impl Node {
    pub(super) fn new(
        index: usize,
        life: u64,
        seed: u64,
        now: Instant,
        wanted: &NodeSettings,
    ) -> Self {
        let config = CoreConfig {
            protection: Protection::Static(key(index)),
            packet_bytes_max: 1472,
            paths: 32,
            keepalive: Duration::from_secs(1),
            peer_timeout: Duration::from_secs(3),
            ..CoreConfig::sockets()
        };
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (life << 8) ^ index as u64;
        let mut secret = [0; 32];
        for (at, part) in (0u64..).zip(secret.chunks_mut(8)) {
            part.copy_from_slice(
                &srd_proto::rng::Rng::new(mixed ^ at << 56).next_u64().to_le_bytes(),
            );
        }
        let mut endpoint = Endpoint::new(config, Epoch(life), secret, now).expect("within bounds");
        let config = Config {
            mtu: 1400,
            express: wanted.express,
            express_udp: wanted.express_udp,
            express_tunnels: wanted.express_tunnels,
            udp_bypass: wanted.udp_bypass,
            order_wait: wanted.order_wait,
            queue_target: wanted.queue_target,
            queue_bytes_max: 256 << 10,
            flows_max: FLOWS_MAX,
            receive_bytes_max: 256 << 10,
            secret: srd_proto::Secret::known(mixed ^ 0xff),
            ..Config::default()
        };
        let express = Express::new(config, &mut endpoint);
        let mut node = Self {
            index,
            endpoint,
            express,
            peers: [None; NODES],
            reach: [None; NODES],
            given: 0,
            got: 0,
            lost_frames: (0, 0),
            before: Counters::default(),
        };
        for other in (0..NODES).filter(|other| *other != index) {
            if wanted.peers[other].present {
                node.add_peer(now, other, wanted);
            }
        }
        node
    }

    pub(super) fn add_peer(&mut self, now: Instant, other: usize, wanted: &NodeSettings) {
        let known = PeerConfig::at(outer(other)).with_key(Some(public_key(&key(other))));
        let id = self.endpoint.add_peer(now, known).expect("room for few peers");
        let want = wanted.peers[other];
        let slot = self.express.add_peer(
            now,
            PeerSettings {
                id,
                allowed: allowed(other, &want),
                express: want.express,
                express_udp: want.udp,
            },
        );
        self.peers[other] = Some((id, slot));
    }

    pub(super) fn remove_peer(&mut self, now: Instant, other: usize) {
        let Some((id, slot)) = self.peers[other].take() else { return };
        let bytes = self.express.report(slot).map_or(0, |report| report.queued_bytes);
        let frames = (bytes.div_ceil(FRAME_BYTES.1) as u64, (bytes / FRAME_BYTES.0) as u64);
        self.lost_frames.0 += frames.0;
        self.lost_frames.1 += frames.1;
        self.express.remove_peer(slot);
        self.endpoint.remove_peer(now, id);
    }

    /// Applies the settings for one peer: adds, removes or changes the peer.
    pub(super) fn apply(&mut self, now: Instant, other: usize, wanted: &NodeSettings) {
        let want = wanted.peers[other];
        match self.peers[other] {
            None if want.present => self.add_peer(now, other, wanted),
            Some(_) if !want.present => self.remove_peer(now, other),
            Some((_, slot)) => {
                self.express.set_express(now, slot, want.express, want.udp);
                self.express.set_allowed(slot, allowed(other, &want));
            }
            None => {}
        }
    }

    /// Applies the settings that concern the whole node.
    pub(super) fn apply_own(&mut self, now: Instant, wanted: &NodeSettings) {
        self.express.set_enabled(now, wanted.express, wanted.express_udp);
        self.express.set_tunnels(now, wanted.express_tunnels);
        self.express.set_order(wanted.udp_bypass, wanted.order_wait);
        self.express.set_queue_target(wanted.queue_target);
    }

    /// Returns the number of bytes that wait in the queues of all peers.
    pub(super) fn queued_bytes(&self) -> usize {
        let slots = self.peers.iter().flatten();
        slots.filter_map(|(_, slot)| self.express.report(*slot)).map(|r| r.queued_bytes).sum()
    }

    /// Checks that no counter has decreased, and that the counters account for every packet of the
    /// guest.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let index = self.index;
        let now = self.express.counters();
        let old = self.before.named();
        for ((name, value), (_, before)) in now.named().into_iter().zip(old) {
            if value < before {
                return Err(format!("node {index}: {name} fell from {before} to {value}"));
            }
        }
        self.before = now;
        let t = &now.traffic;
        if t.srd_rx_pkts + t.plain_rx_pkts != self.got {
            return Err(format!(
                "node {index}: {} packets counted by SRD and {} plainly, the guest got {}",
                t.srd_rx_pkts, t.plain_rx_pkts, self.got
            ));
        }
        let sent = t.srd_tx_pkts + t.plain_tx_pkts;
        let dropped = t.queue_dropped_late
            + t.queue_dropped_full
            + now.guest_no_peer
            + now.guest_too_big
            + now.guest_malformed;
        let queued = self.queued_bytes();
        let waiting = (queued.div_ceil(FRAME_BYTES.1), queued / FRAME_BYTES.0);
        let at_least = sent + dropped + waiting.0 as u64 + self.lost_frames.0;
        let frames_at_most = dropped + waiting.1 as u64 + self.lost_frames.1;
        let at_most = sent + frames_at_most * u64::from(frames::CELLS_MAX);
        if !(at_least..=at_most).contains(&self.given) {
            return Err(format!(
                "node {index}: the guest gave {} packets, {at_least} to {at_most} are accounted \
                 for: {sent} sent, {dropped} frames dropped, {queued} bytes wait, at most {} \
                 frames went with removed peers",
                self.given, self.lost_frames.1
            ));
        }
        Ok(())
    }
}

fn allowed(other: usize, want: &WantedPeer) -> Vec<Prefix> {
    let own = want.allowed.then(|| prefix(inner(other), 32));
    let moving = want.owns_moving.then(|| prefix(MOVING, 32));
    own.into_iter().chain(moving).collect()
}
