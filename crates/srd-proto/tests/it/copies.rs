//! Two copies of one endpoint, as a restored or cloned virtual machine creates them. After the
//! world has reported that copies may exist, no two packets are sealed under one key and number.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::support::{InFlight, Pair};
use srd_proto::{
    Class, Config, Datagram, DownReason, Duration, Epoch, PeerConfig, Protection, Qpn, Status,
};

/// Bytes of a packet's header. The bytes of its tag follow.
const HEADER: usize = 12;
const TAG: usize = 16;
/// Payload bytes of the datagrams that show the key stream.
const PAYLOAD: usize = 600;
/// Type of a Data packet. The type of an opening follows.
const DATA: u8 = 1;
const HELLO: u8 = 4;

fn modes() -> [Config; 2] {
    let with = |protection| Config { protection, packet_bytes_max: 4122, ..Config::default() };
    [with(Protection::Static([9; 32])), with(Protection::JobKey([7; 32]))]
}

/// Two pairs with the same history: the endpoints of the second pair are copies of the endpoints of
/// the first pair.
fn copies(config: &Config) -> [Pair; 2] {
    [0, 1].map(|_| {
        let mut pair = Pair::new(config.clone(), 3);
        pair.send_many(50, 1000);
        pair.run_for(Duration::from_millis(5));
        pair.assert_all_completed(50);
        pair.check_payload = false;
        pair
    })
}

/// Sends datagrams of zeros from a. Returns their sealed payloads, which are the key stream itself,
/// and all packets to b.
fn key_streams(pair: &mut Pair, mark: u64) -> (BTreeSet<Vec<u8>>, Vec<InFlight>) {
    pair.recorded = Some(Vec::new());
    for user in 0..30 {
        let payload = vec![0; PAYLOAD].into();
        // The packets differ from those of the copy.
        let imm = mark + user;
        let datagram =
            Datagram { src_qpn: Qpn(1), dst_qpn: Qpn(7), imm, payload, class: Class::Bulk, user };
        pair.a.send(pair.now, pair.b_at_a, datagram).unwrap();
    }
    pair.run_for(Duration::from_millis(20));
    let sent: Vec<InFlight> = pair.recorded.take().unwrap();
    let data = sent.iter().filter(|p| p.to_b && p.kind() == DATA && p.bytes.len() > PAYLOAD);
    let streams = data.map(|p| {
        let end = p.bytes.len() - TAG;
        p.bytes[end - PAYLOAD..end].to_vec()
    });
    (streams.collect(), sent.into_iter().filter(|p| p.to_b).collect())
}

/// Destination context in the header of a packet.
fn named(packet: &InFlight) -> u32 {
    u32::from_be_bytes(packet.bytes[4..8].try_into().unwrap())
}

#[test]
fn copies_that_are_not_reseeded_repeat_their_key_streams() {
    // A control: without a reseed the key streams repeat, and this test detects that.
    for config in modes() {
        let [mut one, mut two] = copies(&config);
        let (first, _) = key_streams(&mut one, 1000);
        let (second, _) = key_streams(&mut two, 2000);
        assert!(first.intersection(&second).count() >= 20, "{}", first.len());
    }
}

#[test]
fn copies_that_are_reseeded_never_seal_under_the_same_key_and_number() {
    for config in modes() {
        let [mut one, mut two] = copies(&config);
        for (pair, seed) in [(&mut one, 101), (&mut two, 102)] {
            pair.send_many(20, 3000); // in flight at the reseed
            pair.run_for(Duration::from_micros(3));
            pair.a.reseed(pair.now, Epoch(0), [seed; 32]);
        }
        let (first, sent_first) = key_streams(&mut one, 1000);
        let (second, sent_second) = key_streams(&mut two, 2000);
        assert!(first.len() >= 30 && second.len() >= 30, "{} {}", first.len(), second.len());
        assert_eq!(first.intersection(&second).count(), 0, "a key stream comes twice");
        // All other sealed packets of each copy, too, belong to one new session.
        let known = |sent: &[InFlight]| {
            let sealed = sent.iter().filter(|p| p.bytes.len() > HEADER + TAG && named(p) != 0);
            sealed.map(named).collect::<BTreeSet<u32>>().len()
        };
        assert_eq!((known(&sent_first), known(&sent_second)), (1, 1), "one new session each");
        let hellos = |sent: &[InFlight]| {
            let hellos = sent.iter().filter(|p| p.kind() == HELLO);
            hellos.map(|p| p.bytes[HEADER + 36..HEADER + 68].to_vec()).collect::<BTreeSet<_>>()
        };
        assert!(hellos(&sent_first).is_disjoint(&hellos(&sent_second)), "one ephemeral key");
        for pair in [&one, &two] {
            assert_eq!(pair.down_reasons(), [DownReason::Restarted]);
            let (ok, other): (Vec<Status>, Vec<Status>) =
                pair.completions().into_iter().partition(|status| *status == Status::Ok);
            assert!(ok.len() >= 80, "{}", ok.len());
            assert!(other.iter().all(|status| *status == Status::RemoteAbort), "{other:?}");
            pair.a.check_invariants();
        }
    }
}

#[test]
fn a_peer_that_speaks_first_after_a_reseed_is_heard_at_once() {
    let plain = Config { protection: Protection::Plain, ..Config::default() };
    for config in modes().into_iter().chain([plain]) {
        let mut pair = Pair::new(config, 3);
        pair.send_many(20, 1000);
        pair.run_for(Duration::from_millis(5));
        pair.a.reseed(pair.now, Epoch(0), [9; 32]);
        pair.again_after_restart = true;
        pair.send_back(1, 100);
        pair.run_for(Duration::from_millis(50));
        let back = pair.delivered_back();
        // The first datagram may have been in flight when the session ended.
        pair.send_back(5, 100);
        pair.run_for(Duration::from_millis(50));
        assert!(pair.delivered_back() >= back + 5, "{back}, {}", pair.delivered_back());
        pair.send_many(20, 1000);
        pair.run_until_idle(Duration::from_millis(100));
        assert_eq!(pair.delivered(), 40);
        assert!(pair.events_b.iter().any(|event| matches!(
            event,
            srd_proto::Event::PeerDown { reason: DownReason::Restarted, .. }
        )));
    }
}

#[test]
fn an_endpoint_with_another_static_key_is_reached_by_peers_that_know_the_key() {
    let [config, job] = modes();
    let mut pair = Pair::new(config, 3);
    pair.send_many(20, 1000);
    pair.run_for(Duration::from_millis(5));
    pair.assert_all_completed(20);
    let former = pair.a.public_key();
    assert!(pair.a.rekey(pair.now, Epoch(0), [77; 32]));
    let public = Some(srd_proto::crypto::public_key(&[77; 32]));
    assert!(pair.a.public_key() == public && public != former);
    // The peer has the former key only.
    pair.send_many(1, 1000);
    pair.run_for(Duration::from_millis(50));
    assert_eq!(pair.delivered(), 20);
    assert_eq!(pair.down_reasons()[0], DownReason::Restarted);
    let address = SocketAddr::new(pair.ips[0], 7471);
    let of_a = pair.b.peer_at(address).unwrap();
    pair.b.remove_peer(pair.now, of_a);
    pair.b.add_peer(pair.now, PeerConfig::at(address).with_key(public)).unwrap();
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.delivered(), 21);
    pair.a.check_invariants();
    // Job keys are those of all members.
    let mut pair = Pair::new(job, 3);
    assert!(!pair.a.rekey(pair.now, Epoch(0), [77; 32]));
    pair.send_many(1, 1000);
    pair.run_for(Duration::from_millis(5));
    pair.assert_all_completed(1);
}

#[test]
fn copies_that_are_not_noticed_open_other_sessions_if_fresh_bytes_are_mixed_in() {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    for config in modes() {
        let opening = |fresh: bool| {
            let mut pair = Pair::new(config.clone(), 3);
            if fresh {
                pair.a.mix_in(|bytes| bytes.fill(NEXT.fetch_add(1, Ordering::Relaxed)));
            }
            pair.recorded = Some(Vec::new());
            pair.send_many(1, 100);
            pair.run_for(Duration::from_millis(5));
            pair.assert_all_completed(1);
            let sent = pair.recorded.take().unwrap();
            sent.into_iter().find(|p| p.to_b && p.kind() == HELLO).unwrap().bytes
        };
        assert_eq!(opening(false), opening(false));
        assert_ne!(opening(true), opening(true));
    }
}
