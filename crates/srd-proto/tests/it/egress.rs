//! Pacing of an endpoint's own link: times of packets, and turns of peers.

#![allow(clippy::unwrap_used)] // a test, with helpers

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use srd_proto::{
    Class, Config, Datagram, Duration, Endpoint, Epoch, Instant, PeerConfig, PeerId, Qpn,
    TransmitBuf,
};

const RATE_BPS: u64 = 1_000_000_000;
const PEERS: u8 = 3;
/// Bytes of a packet on the wire in addition to the UDP payload: headers of Ethernet, IP and UDP,
/// preamble and gap.
const OVERHEAD_BYTES: u64 = 66;

struct Sender {
    endpoint: Endpoint,
    peers: Vec<PeerId>,
    buf: TransmitBuf,
}

impl Sender {
    /// Creates a sender whose windows and timeouts delay nothing for the duration of these tests.
    fn new(egress_pacing: bool) -> Self {
        let config = Config {
            egress_pacing,
            link_rate_bps: RATE_BPS,
            delay_target_min: Duration::from_micros(100),
            window_initial_bytes: 1 << 24,
            rto_min: Duration::from_secs(1),
            rtt_initial: Duration::from_millis(100),
            ..Config::default()
        };
        let mut endpoint = Endpoint::new(config, Epoch(1), [7; 32], Instant::ZERO).unwrap();
        let at = |last| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), 7471);
        let add = |last| endpoint.add_peer(Instant::ZERO, PeerConfig::at(at(last))).unwrap();
        let peers = (1..=PEERS).map(add).collect();
        Self { endpoint, peers, buf: TransmitBuf::new(16, 65_000) }
    }

    fn queue(&mut self, peer: usize, datagrams: u64, bytes: usize) {
        for user in 0..datagrams {
            let datagram = Datagram {
                src_qpn: Qpn(1),
                dst_qpn: Qpn(1),
                imm: 0,
                payload: Bytes::from(vec![0; bytes]),
                class: Class::Bulk,
                user,
            };
            self.endpoint.send(Instant::ZERO, self.peers[peer], datagram).unwrap();
        }
    }

    /// Batches that leave at `now`: destination and bytes on the wire.
    fn leaves(&mut self, now: Instant) -> Vec<(IpAddr, u64)> {
        self.endpoint.handle_timeout(now);
        let mut all = Vec::new();
        loop {
            self.buf.clear();
            let Some(batch) = self.endpoint.poll_transmit(now, &mut self.buf) else { return all };
            let bytes = batch.total_bytes as u64 + OVERHEAD_BYTES * batch.segments as u64;
            all.push((batch.destination.ip(), bytes));
        }
    }
}

fn bytes_of(batches: &[(IpAddr, u64)]) -> u64 {
    batches.iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn data_leaves_at_the_rate_of_the_link_and_peers_take_turns() {
    let mut sender = Sender::new(true);
    for peer in 0..PEERS.into() {
        sender.queue(peer, 200, 8000);
    }
    let mut now = Instant::ZERO;
    let mut all = Vec::new();
    let mut longest = 0;
    while now < Instant::ZERO + Duration::from_millis(10) {
        let batches = sender.leaves(now);
        longest = longest.max(bytes_of(&batches));
        all.extend(batches);
        now = sender.endpoint.poll_timeout().expect("there is more to send");
    }
    // Two packets, the bytes that leave in 100 us, and one packet that may exceed this.
    let burst = 3 * 9000 + RATE_BPS / 8 / 10_000;
    assert!(longest <= burst, "{longest} bytes at once");
    let carried = RATE_BPS / 8 / 100;
    let sent = bytes_of(&all);
    assert!((carried..=carried + burst).contains(&sent), "{sent} bytes, not {carried}");
    for last in 1..=PEERS {
        let to = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let its = all.iter().filter(|(ip, _)| *ip == to).count();
        assert!(its.abs_diff(all.len() / usize::from(PEERS)) <= 1, "{its} of {}", all.len());
    }
}

#[test]
fn without_pacing_nothing_waits_for_the_link() {
    let mut sender = Sender::new(false);
    sender.queue(0, 200, 8000);
    let mut now = Instant::ZERO;
    let mut sent = 0;
    while now < Instant::ZERO + Duration::from_millis(10) {
        sent += bytes_of(&sender.leaves(now));
        now = sender.endpoint.poll_timeout().unwrap();
    }
    assert!(sent > 200 * 8000, "{sent}");
}

#[test]
fn a_peer_that_is_removed_does_not_hold_up_those_that_wait_behind_it() {
    let mut sender = Sender::new(true);
    for peer in 0..PEERS.into() {
        sender.queue(peer, 50, 8000);
    }
    sender.leaves(Instant::ZERO);
    for peer in [0, 1] {
        sender.endpoint.remove_peer(Instant::ZERO, sender.peers[peer]);
    }
    let mut now = Instant::ZERO;
    let mut packets = 0;
    while now < Instant::ZERO + Duration::from_millis(5) {
        packets += sender.leaves(now).len();
        now = sender.endpoint.poll_timeout().unwrap();
    }
    assert!(packets > 40, "{packets}");
}
