//! Link-local IPv6 addresses: the scope identifier of an address names the link.

use core::net::SocketAddrV6;

use super::*;

/// A link-local address on link 3.
fn on_link(port: u16) -> SocketAddr {
    SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), port, 0, 3))
}

/// Delivers all packets that are due at `from` to `to`. They come from `source`, with another
/// source port. Returns the destination of the last packet.
fn carry(from: &mut Endpoint, to: &mut Endpoint, source: SocketAddr, now: Instant) -> SocketAddr {
    let mut destination = None;
    let mut buf = TransmitBuf::new(1, 65_000);
    from.handle_timeout(now);
    while let Some(t) = from.poll_transmit(now, &mut buf) {
        destination = Some(t.destination);
        let (head, payload) = buf.segments().next().unwrap();
        let mut bytes = [head, payload].concat();
        let mut source = source;
        source.set_port(50_000 + t.entropy.0);
        let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: now };
        to.handle_packet(now, meta, PacketRef::Whole(&mut bytes));
        buf.clear();
    }
    destination.unwrap()
}

#[test]
fn regression_a_plain_answer_to_a_link_local_address_keeps_its_link() {
    let mut node = Endpoint::new(Config::default(), Epoch(1), [1; 32], Instant::ZERO).unwrap();
    let known = node.add_peer(Instant::ZERO, PeerConfig::at(on_link(PORT))).unwrap();
    let now = Instant::from_nanos(1);
    let greeting = Greeting { context: 9, epoch: 1, port: PORT, features: 0 };
    introduce_to(&mut node, now, on_link(PORT + 5), &greeting);
    assert_eq!((node.peer_count(), node.peer_at(on_link(PORT))), (1, Some(known)));
    assert_eq!(transmits(&mut node, now)[0].0, on_link(PORT));
}

#[test]
fn a_peer_that_was_named_without_its_link_is_found_on_any_link() {
    let without = SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), PORT, 0, 0));
    let mut node = Endpoint::new(Config::default(), Epoch(1), [1; 32], Instant::ZERO).unwrap();
    node.add_peer(Instant::ZERO, PeerConfig::at(without)).unwrap();
    let now = Instant::from_nanos(1);
    let greeting = Greeting { context: 9, epoch: 1, port: PORT, features: 0 };
    introduce_to(&mut node, now, on_link(PORT + 5), &greeting);
    assert_eq!(node.peer_count(), 1);
    assert_eq!(transmits(&mut node, now)[0].0, without);
}

#[test]
fn regression_a_reset_to_a_link_local_address_keeps_its_link() {
    let mut node = Endpoint::new(Config::default(), Epoch(1), [1; 32], Instant::ZERO).unwrap();
    let now = Instant::from_nanos(1);
    let mut bytes = Vec::new();
    let dst_context = 77;
    Header { kind: Kind::Probe, flags: 0, key_phase: 0, rtt_code: 0, dst_context, number: 0 }
        .encode(&mut bytes);
    Probe { sent_at: 0, queued_bytes: 0, floor: 0 }.encode(&mut bytes, 0);
    let source = on_link(PORT + 5);
    let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: now };
    node.handle_packet(now, meta, PacketRef::Whole(&mut bytes));
    assert_eq!(transmits(&mut node, now)[0].0, source);
}

#[test]
fn regression_a_session_with_a_link_local_address_stays_on_its_link() {
    let static_key = |n| Config { protection: Protection::Static([n; 32]), ..Config::default() };
    for repeated in [false, true] {
        let ours = |n| Endpoint::new(static_key(n), Epoch(1), [n; 32], Instant::ZERO).unwrap();
        let (mut a, mut b) = (ours(1), ours(2));
        let a_at_b = b
            .add_peer(Instant::ZERO, PeerConfig::at(on_link(PORT)).with_key(a.public_key()))
            .unwrap();
        let b_at_a =
            a.add_peer(Instant::ZERO, PeerConfig::at(address(2)).with_key(b.public_key())).unwrap();
        send(&mut a, Instant::ZERO, b_at_a, 100);
        let mut now = Instant::from_nanos(1);
        carry(&mut a, &mut b, on_link(PORT), now);
        if repeated {
            // The answer is lost, and the opening is repeated until it is answered again.
            transmits(&mut b, now);
            now += Duration::from_millis(20);
            carry(&mut a, &mut b, on_link(PORT), now);
        }
        assert_eq!(carry(&mut b, &mut a, address(2), now), on_link(PORT));
        carry(&mut a, &mut b, on_link(PORT), now);
        assert_eq!(b.address_of(a_at_b), Some(on_link(PORT)));
        assert_eq!(b.stats().address_moves, 0);
    }
}

#[test]
fn regression_a_challenge_of_a_link_local_address_keeps_its_link() {
    let config = Config { protection: Protection::JobKey([9; 32]), ..Config::default() };
    let ours = |n| Endpoint::new(config.clone(), Epoch(1), [n; 32], Instant::ZERO).unwrap();
    let (mut a, mut b) = (ours(1), ours(2));
    b.add_peer(Instant::ZERO, PeerConfig::at(address(1))).unwrap();
    let b_at_a = a.add_peer(Instant::ZERO, PeerConfig::at(address(2))).unwrap();
    send(&mut a, Instant::ZERO, b_at_a, 100);
    let mut now = Instant::from_nanos(1);
    carry(&mut a, &mut b, address(1), now);
    carry(&mut b, &mut a, address(2), now);
    carry(&mut a, &mut b, address(1), now);
    carry(&mut b, &mut a, address(2), now);
    now += Duration::from_millis(500);
    send(&mut a, now, b_at_a, 100);
    carry(&mut a, &mut b, on_link(PORT), now);
    let destinations: Vec<_> = transmits(&mut b, now).into_iter().map(|(to, _)| to).collect();
    assert!(destinations.contains(&on_link(PORT)), "{destinations:?}");
}
