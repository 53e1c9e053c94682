//! Tests of the memory that peers can make the receiving side of ENA Express use, measured by a
//! counting allocator. The memory must stay below the configured bound whatever packets arrive, and
//! one peer must not be able to use the share of the other peers.

use srd_card::frame::ChunkPosition;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::{Config, Express, FRAME_QPN, Guest, PeerSettings, PeerSlot, Prefix};
use srd_proto::time::{Duration, Instant};
use srd_proto::{Config as CoreConfig, Delivery, Endpoint, Epoch, PeerConfig, PeerId};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::heap;

/// A guest that only counts the frames that are delivered to it.
#[derive(Default)]
struct Count(u64);

impl Guest for Count {
    fn deliver(&mut self, _: &[u8]) {
        self.0 += 1;
    }
}

struct Rig {
    express: Express,
    peers: Vec<(PeerId, PeerSlot)>,
    now: Instant,
    guest: Count,
    /// Number of allocated bytes of this thread before the first flow.
    before: i64,
}

fn octet(peer: usize) -> u8 {
    u8::try_from(peer + 1).expect("few peers")
}

impl Rig {
    fn new(peers: usize, config: Config) -> Self {
        let now = Instant::ZERO + Duration::from_secs(1);
        let core = CoreConfig::sockets();
        let mut endpoint = Endpoint::new(core, Epoch(1), [7; 32], now).expect("within bounds");
        let mut express = Express::new(config, &mut endpoint);
        let peers = (0..peers).map(|peer| {
            let outer = SocketAddr::from(([192, 0, 2, octet(peer)], 7471));
            let id = endpoint.add_peer(now, PeerConfig::at(outer)).expect("room");
            let inner = IpAddr::V4(Ipv4Addr::new(10, 0, octet(peer), 0));
            let allowed = vec![Prefix::new(inner, 24).expect("a prefix")];
            let settings = PeerSettings { id, allowed, express: true, express_udp: true };
            (id, express.add_peer(now, settings))
        });
        let peers = peers.collect();
        Self { express, peers, now, guest: Count::default(), before: heap::live_bytes() }
    }

    fn hear(&mut self, peer: usize, place: ChunkPosition, payload: &[u8]) {
        let delivery = Delivery {
            peer: self.peers[peer].0,
            src_qpn: FRAME_QPN,
            dst_qpn: FRAME_QPN,
            imm: place.encode(),
            reliable: true,
            ce: false,
            payload,
        };
        self.express.delivered(self.now, &delivery, &mut self.guest);
    }

    fn held(&self) -> i64 {
        heap::live_bytes() - self.before
    }

    /// Receives from a peer, in each of the given flows, one byte of a frame that is far ahead in
    /// the flow's receive window.
    fn far_bytes(&mut self, peer: usize, flows: std::ops::Range<u32>) {
        for flow in flows {
            let place =
                ChunkPosition { flow, sequence: 4095, chunk: 0, last: false, frame_bytes: 2 };
            self.hear(peer, place, &[1]);
            assert!(self.held() <= most(), "{} bytes for {flow} flows", self.held());
        }
    }
}

fn most() -> i64 {
    i64::try_from(Config::default().receive_memory_bytes_max()).expect("few")
}

fn total(config: &Config) -> i64 {
    i64::try_from(config.receive_memory_bytes_max()).expect("few")
}

#[test]
fn regression_one_byte_frames_far_ahead_cost_no_more_than_the_bound() {
    let mut rig = Rig::new(1, Config::default());
    rig.far_bytes(0, 0..65_536);
    assert_eq!(rig.express.flow_counts().1, 65_536);
    // Fills the whole receive window of a few flows, beginning at its far end.
    for sequence in (0..4096).rev() {
        for flow in 0..256 {
            let place = ChunkPosition { flow, sequence, chunk: 0, last: false, frame_bytes: 2 };
            rig.hear(0, place, &[1]);
        }
        assert!(rig.held() <= most(), "{} bytes", rig.held());
    }
    assert!(rig.express.counters().order.full > 0, "the limit was reached");
}

#[test]
fn regression_one_byte_frames_from_many_peers_share_the_bound() {
    let mut rig = Rig::new(8, Config::default());
    // The first peer uses all memory that it can get; every other peer must still get its share.
    rig.far_bytes(0, 0..65_536);
    let (_, greedy) = rig.express.flow_counts();
    assert_eq!(greedy, 65_536 / 2 + 65_536 / 16);
    for peer in 1..8 {
        let before = rig.express.flow_counts().1;
        rig.far_bytes(peer, 0..10_000);
        assert_eq!(rig.express.flow_counts().1 - before, 65_536 / 16);
    }
    assert!(rig.express.counters().order.full > 0);
    assert_eq!(rig.express.resource_utilization(), 100);
    // After a long time without packets only the empty tables remain.
    rig.now += Duration::from_secs(130);
    rig.express.handle_timeout(rig.now, &mut rig.guest);
    assert_eq!(rig.express.flow_counts().1, 0);
}

#[test]
fn a_peer_that_fills_the_buffers_leaves_the_others_room_for_their_frames() {
    let config = Config { receive_bytes_max: 4 << 20, ..Config::default() };
    let bound = total(&config);
    let mut rig = Rig::new(4, config);
    // The first peer sends only the first chunk of each of many large frames.
    for flow in 0..1000 {
        let place = ChunkPosition { flow, sequence: 1, chunk: 0, last: false, frame_bytes: 60_000 };
        rig.hear(0, place, &[1; 8000]);
        assert!(rig.held() <= bound, "{} bytes", rig.held());
    }
    assert!(rig.express.counters().order.full > 900);
    // A frame in two chunks from each of the other peers must still arrive.
    for peer in 1..4 {
        let mut frame = vec![0; 60_000];
        frame[OFFLOAD_BYTES] = 0x45;
        frame[OFFLOAD_BYTES + 9] = 47;
        frame[OFFLOAD_BYTES + 12..][..4].copy_from_slice(&[10, 0, octet(peer), 7]);
        let place =
            ChunkPosition { flow: 9, sequence: 0, chunk: 0, last: false, frame_bytes: 60_000 };
        rig.hear(peer, place, &frame[..30_000]);
        rig.hear(peer, ChunkPosition { chunk: 1, last: true, ..place }, &frame[30_000..]);
    }
    assert_eq!(rig.guest.0, 3);
}

#[test]
fn regression_large_buffers_that_are_used_again_are_charged_as_they_are() {
    let config = Config { receive_bytes_max: 4 << 20, ..Config::default() };
    let bound = total(&config);
    let mut rig = Rig::new(1, config);
    for round in 0..2000 {
        // A large frame arrives and is delivered; then one byte of another frame waits, perhaps in
        // the buffer of the large frame.
        let place =
            ChunkPosition { flow: 0, sequence: round, chunk: 0, last: false, frame_bytes: 60_000 };
        rig.hear(0, place, &[0; 30_000]);
        rig.hear(0, ChunkPosition { chunk: 1, last: true, ..place }, &[0; 30_000]);
        let flow = 1 + u32::from(round);
        let tiny = ChunkPosition { flow, sequence: 9, chunk: 0, last: false, frame_bytes: 2 };
        rig.hear(0, tiny, &[1]);
        assert!(rig.held() <= bound, "{} bytes after {round}", rig.held());
    }
}
