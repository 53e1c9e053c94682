//! Limits that are constants: each is reached, and not exceeded.

use super::*;
use crate::endpoint::teardown::QUEUED_CLOSES_MAX;
use crate::error::DropReason;
use crate::peer::{ECHOES_MAX, PROBES_MAX};
use crate::wire::ack::AckView;
use crate::wire::handshake::Reset;

/// Address of the stranger with this number.
fn stranger(n: u32) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(0x0a01_0000 + n)), PORT)
}

fn plain() -> Endpoint {
    Endpoint::new(Config::default(), Epoch(1), [1; 32], Instant::ZERO).unwrap()
}

/// Packets that are due, header included.
fn packets(node: &mut Endpoint, now: Instant) -> Vec<Vec<u8>> {
    let mut buf = TransmitBuf::new(1, 65_000);
    let mut all = Vec::new();
    while node.poll_transmit(now, &mut buf).is_some() {
        let (head, payload) = buf.segments().next().unwrap();
        all.push([head, payload].concat());
        buf.clear();
    }
    all
}

#[test]
fn closes_of_removed_peers_wait_up_to_a_limit() {
    let (mut node, now) = (plain(), Instant::from_nanos(1));
    for n in 0..400 {
        let greeting = Greeting { context: 9, epoch: 1, port: PORT, features: 0 };
        introduce_to(&mut node, now, stranger(n), &greeting);
    }
    packets(&mut node, now);
    for n in 0..400 {
        let peer = node.peer_at(stranger(n)).unwrap();
        node.remove_peer(now, peer);
    }
    let closes = packets(&mut node, now);
    assert!(closes.iter().all(|bytes| Header::decode(bytes).unwrap().0.kind == Kind::Close));
    // Three Closes for each peer.
    assert_eq!(closes.len(), QUEUED_CLOSES_MAX / 3 * 3);
}

#[test]
fn answers_to_probes_wait_up_to_a_limit_and_the_oldest_are_dropped() {
    let (mut node, now) = (plain(), Instant::from_nanos(1));
    for number in 0..100 {
        let mut bytes = Vec::new();
        let (kind, flags) = (Kind::Probe, FLAG_GREETING);
        Header { kind, flags, key_phase: 0, rtt_code: 0, dst_context: 0, number }
            .encode(&mut bytes);
        Greeting { context: 9, epoch: 1, port: PORT, features: 0 }.encode(&mut bytes);
        Probe { sent_at: 0, queued_bytes: 0, floor: 0 }.encode(&mut bytes, 0);
        let source = address(1);
        let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: now };
        node.handle_packet(now, meta, PacketRef::Whole(&mut bytes));
    }
    let echoed = |bytes: &Vec<u8>| {
        let (_, rest) = Header::decode(bytes).unwrap();
        let (_, body) = Greeting::decode(rest).unwrap();
        AckView::decode(body).unwrap().head.echo.unwrap().0
    };
    let echoed: Vec<u32> = packets(&mut node, now).iter().map(echoed).collect();
    // Each probe has two answers.
    let newest = 100 - u32::try_from(ECHOES_MAX / 2).unwrap()..100;
    assert_eq!(echoed, newest.flat_map(|number| [number; 2]).collect::<Vec<_>>());
}

#[test]
fn probes_without_an_answer_are_remembered_up_to_a_limit() {
    let (rto_min, rto_max) = (Duration::from_micros(400), Duration::from_millis(1));
    let config = Config { rto_min, rto_max, ..Config::default() };
    let mut node = Endpoint::new(config, Epoch(1), [1; 32], Instant::ZERO).unwrap();
    let peer = node.add_peer(Instant::ZERO, PeerConfig::at(address(1))).unwrap();
    send(&mut node, Instant::ZERO, peer, 100);
    let mut now = Instant::ZERO;
    while node.stats().probe_pkts < PROBES_MAX as u64 + 50 {
        packets(&mut node, now);
        let known = node.peers.peer(peer).unwrap().tx.as_ref().unwrap().probes.len();
        assert_eq!(known as u64, node.stats().probe_pkts.min(PROBES_MAX as u64));
        now = node.poll_timeout().unwrap();
        node.handle_timeout(now);
    }
}

#[test]
fn a_reset_is_compared_with_a_limited_number_of_contexts() {
    let (mut node, now) = (plain(), Instant::from_nanos(1));
    let context = 0x0bad_cafe;
    for n in 0..300 {
        let greeting = Greeting { context, epoch: 1, port: PORT, features: 0 };
        introduce_to(&mut node, now, stranger(n), &greeting);
        let peer = node.peer_at(stranger(n)).unwrap();
        send(&mut node, now, peer, 100);
    }
    packets(&mut node, now);
    for (n, dropped) in [(256, 1), (255, 1)] {
        let mut bytes = Vec::new();
        let (kind, flags) = (Kind::Reset, 0);
        Header { kind, flags, key_phase: 0, rtt_code: 0, dst_context: 0, number: 0 }
            .encode(&mut bytes);
        Reset { context, number: 0 }.encode(&mut bytes);
        let source = stranger(n);
        let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: now };
        node.handle_packet(now, meta, PacketRef::Whole(&mut bytes));
        let drops = node.stats().drops[DropReason::UnknownContext as usize];
        assert_eq!(drops, dropped, "after the Reset of peer {n}");
    }
}
