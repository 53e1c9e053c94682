//! The table of peers is full.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::support::scene::{RETRY, at, datagram, drops, elsewhere, ip, keyed};
use crate::support::{InFlight, Pair};
use srd_proto::{
    AddPeerError, Admission, Config, DropReason, Duration, Ecn, Endpoint, Epoch, Instant,
    PacketMeta, PacketRef, PeerConfig, Protection, Status, TransmitBuf,
};

/// Size of the tables of peers.
const PEERS: u8 = 8;

/// Delivers a packet from `source`.
fn receive(node: &mut Endpoint, now: Instant, source: SocketAddr, bytes: &mut [u8]) {
    let meta = PacketMeta { source, local: 0, ecn: Ecn::NotEct, received_at: now };
    node.handle_packet(now, meta, PacketRef::Whole(bytes));
}

/// The next packet of an endpoint.
fn next_packet(node: &mut Endpoint, now: Instant) -> Option<Vec<u8>> {
    let mut buf = TransmitBuf::new(1, 65_000);
    node.poll_transmit(now, &mut buf)?;
    let (head, payload) = buf.segments().next()?;
    Some([head, payload].concat())
}

#[test]
fn a_full_table_of_peers_refuses_by_name_and_by_packet() {
    let now = Instant::ZERO;
    let config = Config { peers_max: PEERS.into(), ..Config::default() };
    let mut node = Endpoint::new(config, Epoch(1), [1; 32], now).unwrap();
    let named = |n| PeerConfig::at(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, 0, n)), 7471));
    for n in 0..PEERS {
        node.add_peer(now, named(n)).unwrap();
    }
    assert_eq!(node.add_peer(now, named(PEERS)), Err(AddPeerError::TooManyPeers));
    let mut other = Endpoint::new(Config::default(), Epoch(1), [2; 32], now).unwrap();
    let to = other.add_peer(now, PeerConfig::at(at(2))).unwrap();
    other.send(now, to, datagram()).unwrap();
    let mut bytes = next_packet(&mut other, now).unwrap();
    receive(&mut node, now, elsewhere(), &mut bytes);
    assert_eq!(drops(&node, DropReason::PeersFull), 1);
    assert_eq!(node.peer_count(), PEERS.into());
}

/// Opens sessions with b from one address, with these keys, and confirms none of them.
fn open_without_end(pair: &mut Pair, config: &Config, keys: std::ops::Range<u8>) {
    for n in keys {
        let own = Config { protection: Protection::Static([n; 32]), ..config.clone() };
        let mut liar = Endpoint::new(own, Epoch(5), [n; 32], pair.now).unwrap();
        let b = PeerConfig::at(at(2)).with_key(pair.b.public_key());
        let b = liar.add_peer(pair.now, b).unwrap();
        liar.send(pair.now, b, datagram()).unwrap();
        // The first opening has no cookie; the second has the cookie that was demanded.
        for _ in 0..2 {
            let Some(bytes) = next_packet(&mut liar, pair.now) else { break };
            let (source, ecn) = (elsewhere(), Ecn::NotEct);
            let hello = InFlight { to_b: true, source, destination: at(2), ecn, bytes };
            pair.inject(&hello, source);
            pair.run_for(Duration::from_millis(2));
            for mut retry in pair.strays.drain(..).filter(|stray| stray.kind() == RETRY) {
                receive(&mut liar, pair.now, at(2), &mut retry.bytes);
            }
        }
    }
}

/// Regression: the entries of openings without a session stayed for `idle_reclaim`, so that one
/// host filled the table with a few hundred openings a second.
#[test]
fn regression_openings_that_nobody_confirms_leave_room_for_others() {
    let config = Config { admission: Admission::Anyone, peers_max: PEERS.into(), ..keyed() };
    let mut pair = Pair::new(config.clone(), 6);
    pair.forget_a_at_b();
    open_without_end(&mut pair, &config, 10..10 + 2 * PEERS);
    assert_eq!(pair.b.peer_count(), PEERS.into());
    pair.send_many(1, 100);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.completions(), [Status::Ok]);
    // A session is not dropped for a further opening.
    open_without_end(&mut pair, &config, 40..40 + 2 * PEERS);
    pair.send_many(1, 100);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.completions(), [Status::Ok, Status::Ok]);
    assert_eq!(drops(&pair.b, DropReason::PeersFull), 0);
    // The application names peers, until no entry without a session is left.
    let name = |pair: &mut Pair, n| {
        let key = srd_proto::crypto::public_key(&[100 + n; 32]);
        let peer = PeerConfig::at(SocketAddr::new(ip(n), 7471)).with_key(Some(key));
        pair.b.add_peer(pair.now, peer)
    };
    for n in 0..PEERS - 1 {
        assert!(name(&mut pair, n).is_ok(), "peer {n}");
    }
    assert_eq!(name(&mut pair, PEERS), Err(AddPeerError::TooManyPeers));
    open_without_end(&mut pair, &config, 80..82);
    assert!(drops(&pair.b, DropReason::PeersFull) > 0);
    pair.send_many(1, 100);
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.completions(), [Status::Ok; 3]);
}
