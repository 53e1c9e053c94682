//! Ends of contexts, and diagnoses of contexts that do not begin.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::support::Pair;
use crate::support::scene::{
    CLOSE, HELLO, at, datagram, drops, elsewhere, is_heard_with_an_earlier_epoch, keyed, met,
    modes, recorded,
};
use srd_proto::{
    Config, Diagnosis, DownReason, DropReason, Duration, Endpoint, Epoch, Event, Instant,
    PeerConfig, Protection, Status, Unreachable,
};

#[test]
fn a_peer_whose_endpoint_ends_says_so_and_what_it_got() {
    for config in [Config::default()].into_iter().chain(modes()) {
        for from_b in [true, false] {
            let mut pair = met(config.clone(), 13);
            pair.send_many(3, 1000);
            // The datagrams have arrived and are not acknowledged yet.
            pair.run_for(Duration::from_micros(7));
            let end = if from_b { &mut pair.b } else { &mut pair.a };
            end.close(pair.now);
            pair.run_for(Duration::from_micros(50));
            let events = if from_b { &pair.events } else { &pair.events_b };
            let down = events.iter().filter_map(|event| match event {
                Event::PeerDown { reason, .. } => Some(*reason),
                _ => None,
            });
            assert_eq!(down.collect::<Vec<_>>(), [DownReason::Closed]);
            if from_b {
                assert!(pair.completions().iter().all(|status| *status == Status::Ok));
                assert_eq!(pair.completions().len(), 8);
            } else {
                let refused = pair.try_send(9);
                assert_eq!(refused, Err(srd_proto::SendError::Closed));
            }
        }
    }
}

#[test]
fn a_removed_peer_is_told_and_may_come_again() {
    for config in [Config::default()].into_iter().chain(modes()) {
        let mut pair = met(config, 14);
        let a_at_b = pair.b.peer_at(at(1)).unwrap();
        pair.b.remove_peer(pair.now, a_at_b);
        pair.run_for(Duration::from_micros(50));
        assert_eq!(pair.down_reasons(), [DownReason::Closed]);
        let key = pair.a.public_key();
        pair.b.add_peer(pair.now, PeerConfig::at(at(1)).with_key(key)).unwrap();
        pair.send_many(5, 100);
        pair.run_until_idle(Duration::from_millis(100));
        pair.assert_all_completed(10);
    }
}

#[test]
fn a_goodbye_that_is_replayed_or_forged_ends_nothing() {
    for config in [Config::default()].into_iter().chain(modes()) {
        let plain = !config.protection.is_on();
        let mut pair = met(config, 15);
        let a_at_b = pair.b.peer_at(at(1)).unwrap();
        recorded(&mut pair, false);
        pair.b.remove_peer(pair.now, a_at_b);
        pair.run_for(Duration::from_micros(50));
        let goodbyes = recorded(&mut pair, false);
        assert_eq!(goodbyes.len(), 3);
        assert!(goodbyes.iter().all(|packet| packet.kind() == CLOSE));
        let key = pair.a.public_key();
        pair.b.add_peer(pair.now, PeerConfig::at(at(1)).with_key(key)).unwrap();
        pair.send_many(5, 100);
        pair.run_until_idle(Duration::from_millis(100));
        pair.events.retain(|event| !matches!(event, Event::PeerDown { .. }));
        for packet in &goodbyes {
            pair.inject(packet, packet.source);
        }
        // One wrong bit anywhere in header and greeting, whose contexts and epoch a plain Close
        // must match.
        for bit in 0..28 * 8 {
            let mut forged = goodbyes[0].clone();
            forged.bytes[bit / 8] ^= 1 << (bit % 8);
            pair.inject(&forged, forged.source);
        }
        assert!(plain || drops(&pair.a, DropReason::UnknownContext) > 0);
        pair.send_many(5, 100);
        pair.run_until_idle(Duration::from_millis(100));
        pair.assert_all_completed(15);
        assert_eq!(pair.down_reasons(), []);
    }
}

#[test]
fn an_endpoint_with_many_peers_says_goodbye_to_each() {
    let config = Config { packet_bytes_max: 1200, ..Config::default() };
    let mut node = Endpoint::new(config.clone(), Epoch(1), [1; 32], Instant::ZERO).unwrap();
    let mut pair = Pair::new(config, 16);
    pair.recorded = Some(Vec::new());
    pair.send_many(1, 10);
    pair.run_for(Duration::from_micros(1));
    let hello = recorded(&mut pair, true).remove(0);
    for n in 0..2000_u32 {
        let source = SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(0x0a01_0000 + n)), 1);
        let meta = srd_proto::PacketMeta {
            source,
            local: 0,
            ecn: srd_proto::Ecn::NotEct,
            received_at: Instant::ZERO,
        };
        let mut bytes = hello.bytes.clone();
        node.handle_packet(Instant::ZERO, meta, srd_proto::PacketRef::Whole(&mut bytes));
    }
    node.close(Instant::ZERO);
    let mut buf = srd_proto::TransmitBuf::new(1, 65_000);
    let mut goodbyes = std::collections::BTreeMap::<SocketAddr, usize>::new();
    while let Some(t) = node.poll_transmit(Instant::ZERO, &mut buf) {
        *goodbyes.entry(t.destination).or_default() += 1;
        buf.clear();
    }
    assert_eq!(goodbyes.len(), 2000);
    assert!(goodbyes.values().all(|n| *n == 3), "said three times, and nothing else");
}

fn diagnoses(events: &[Event]) -> Vec<Diagnosis> {
    let what = |event: &Event| match event {
        Event::Diagnosis { what, .. } => Some(*what),
        _ => None,
    };
    events.iter().filter_map(what).collect()
}

/// Runs a pair that cannot open a session within its peer timeout of 50 ms; returns the diagnoses
/// of each end.
fn cannot_meet(mut pair: Pair) -> [Vec<Diagnosis>; 2] {
    pair.send_many(1, 100);
    pair.run_for(Duration::from_millis(200));
    assert_eq!(pair.down_reasons(), [DownReason::Unreachable]);
    [diagnoses(&pair.events), diagnoses(&pair.events_b)]
}

fn impatient(protection: Protection) -> Config {
    Config { protection, peer_timeout: Duration::from_millis(50), ..keyed() }
}

/// Adds b at a again with a public key or a preshared key that is not b's.
fn misinformed(pair: &mut Pair, key: Option<[u8; 32]>, preshared_key: Option<[u8; 32]>) {
    pair.a.remove_peer(pair.now, pair.b_at_a);
    let peer = PeerConfig {
        address: Some(at(2)),
        public_key: key,
        preshared_key,
        ..PeerConfig::default()
    };
    pair.b_at_a = pair.a.add_peer(pair.now, peer).expect("nobody is at that address");
}

#[test]
fn wrong_keys_and_dead_hosts_are_told_apart() {
    let config = impatient(keyed().protection);
    // No host answers.
    let mut pair = Pair::new(config.clone(), 30);
    pair.fault.loss_permille = 1000;
    assert_eq!(cannot_meet(pair), [vec![Diagnosis::NothingReceived], vec![]]);

    // A has a wrong key for b. B reports an opening for another key; if b opens as well, a reports
    // b's key as unknown.
    let mut pair = Pair::new(config.clone(), 31);
    misinformed(&mut pair, Some(srd_proto::crypto::public_key(&[42; 32])), None);
    let told = cannot_meet(pair);
    assert_eq!(told, [vec![Diagnosis::NothingReceived], vec![Diagnosis::OtherKeyForUs]]);
    let mut pair = Pair::new(config.clone(), 32);
    misinformed(&mut pair, Some(srd_proto::crypto::public_key(&[42; 32])), None);
    let key = pair.b.public_key().unwrap();
    pair.send_back(1, 100);
    assert_eq!(cannot_meet(pair)[0], [Diagnosis::UnknownKey(key)]);

    // The preshared keys of a and b differ.
    let mut pair = Pair::new(config, 33);
    let key = pair.b.public_key();
    misinformed(&mut pair, key, Some([5; 32]));
    assert_eq!(cannot_meet(pair)[0], [Diagnosis::AnswerUnauthentic]);
}

#[test]
fn another_version_or_protection_is_told() {
    for (byte, what) in [(0x01, Diagnosis::OtherProtection), (0x31, Diagnosis::OtherVersion)] {
        let mut pair = Pair::new(impatient(keyed().protection), 34);
        pair.recorded = Some(Vec::new());
        pair.send_many(1, 100);
        pair.run_for(Duration::from_micros(1));
        let mut packet = recorded(&mut pair, true).remove(0);
        packet.bytes[0] = if byte == 1 { srd_proto::wire::VERSION << 4 | 3 } else { byte };
        packet.bytes[4..8].copy_from_slice(&[0; 4]);
        pair.inject(&packet, packet.source);
        pair.run_for(Duration::from_micros(1));
        assert_eq!(diagnoses(&pair.events_b), [what]);
    }
}

#[test]
fn diagnoses_are_few_and_none_of_strangers_or_of_a_peer_that_is_there() {
    let mut pair = Pair::new(keyed(), 35);
    pair.recorded = Some(Vec::new());
    pair.send_many(1, 100);
    pair.run_for(Duration::from_micros(1));
    let mut wrong = recorded(&mut pair, true).remove(0);
    wrong.bytes[20] ^= 1;
    for _ in 0..10_000 {
        pair.inject(&wrong, elsewhere());
    }
    pair.run_for(Duration::from_nanos(1));
    assert_eq!(diagnoses(&pair.events_b), []);
    for _ in 0..10_000 {
        pair.inject(&wrong, wrong.source);
    }
    pair.run_for(Duration::from_nanos(1));
    assert_eq!(diagnoses(&pair.events_b), [Diagnosis::OtherKeyForUs]);
    pair.run_until_idle(Duration::from_millis(10));
    pair.assert_all_completed(1);
    pair.run_for(Duration::from_secs(31));
    for _ in 0..100 {
        pair.inject(&wrong, wrong.source);
    }
    pair.run_for(Duration::from_nanos(1));
    assert_eq!(diagnoses(&pair.events_b), [Diagnosis::OtherKeyForUs]);
}

#[test]
fn a_peer_that_dies_is_found_out_soon_idle_or_spoken_to() {
    for config in
        [Config::sockets(), Config { protection: keyed().protection, ..Config::sockets() }]
    {
        for spoken_to in [false, true] {
            let keepalive = Duration::from_millis(320);
            let peer_timeout = Duration::from_millis(600);
            let config = Config { keepalive, peer_timeout, ..config.clone() };
            let mut pair = met(config, 40);
            pair.run_for(Duration::from_secs(3));
            assert_eq!(pair.down_reasons(), []);
            pair.fault.loss_permille = 1000;
            let dead_at = pair.now;
            recorded(&mut pair, true);
            while pair.down_reasons().is_empty() {
                if spoken_to {
                    let entropy = srd_proto::Entropy(0);
                    pair.a.send_unreliable(pair.now, pair.b_at_a, entropy, datagram()).unwrap();
                }
                pair.run_for(Duration::from_millis(1));
            }
            let took = pair.now.since(dead_at);
            let most = if spoken_to { 80 + 600 + 2 } else { 320 + 600 + 2 };
            assert!(took <= Duration::from_millis(most), "{took:?}");
            // Probes are frequent enough that the loss of a few packets ends no context.
            let asked = recorded(&mut pair, true).iter().filter(|p| p.bytes.len() < 60).count();
            assert!(asked >= 10, "asked {asked} times");
        }
    }
}

#[test]
fn regression_a_keyed_run_whose_clock_was_set_back_is_heard_once_the_former_is_silent() {
    for config in modes() {
        let mut pair = met(Config { peer_timeout: Duration::from_secs(2), ..config }, 41);
        is_heard_with_an_earlier_epoch(&mut pair);
    }
}

#[test]
fn a_living_peer_is_not_given_up_for_recorded_openings() {
    for config in modes() {
        let mut pair = met(Config { peer_timeout: Duration::from_secs(2), ..config }, 42);
        let old: Vec<_> = recorded(&mut pair, true);
        let old: Vec<_> = old.into_iter().filter(|packet| packet.kind() == HELLO).collect();
        pair.restart_a();
        pair.send_many(1, 200);
        pair.run_for(Duration::from_millis(100));
        pair.events_b.clear();
        for _ in 0..200 {
            for packet in &old {
                pair.inject(packet, elsewhere());
                pair.inject(packet, packet.source);
            }
            pair.run_for(Duration::from_millis(50));
        }
        assert_eq!(pair.events_b, [], "nobody goes down");
        pair.send_many(1, 200);
        pair.run_for(Duration::from_millis(100));
        assert_eq!(pair.completions().last(), Some(&Status::Ok));
    }
}

/// Pairs in which b has moved away from its configured address, and a has followed it.
fn moved_away() -> Vec<Pair> {
    let away = |config| {
        let mut pair = met(config, 30);
        pair.roam_b(20);
        pair.send_back(1, 100);
        pair.run_for(Duration::from_millis(5));
        assert_eq!(pair.a.address_of(pair.b_at_a), Some(at(20)));
        pair
    };
    modes().into_iter().map(away).collect()
}

/// B returns to its configured address, and the sixth datagram arrives there within a second.
fn is_found_at_home(pair: &mut Pair) {
    pair.roam_b(2);
    pair.send_many(1, 100);
    pair.run_for(Duration::from_secs(1));
    pair.assert_all_completed(6);
    assert_eq!(pair.a.address_of(pair.b_at_a), Some(at(2)));
}

#[test]
fn regression_a_peer_that_has_moved_back_without_a_word_is_found_within_a_second() {
    for mut pair in moved_away() {
        is_found_at_home(&mut pair);
    }
}

#[test]
fn regression_a_peer_that_comes_back_anew_where_it_was_named_is_found_within_a_second() {
    for mut pair in moved_away() {
        pair.restart_b();
        pair.roam_b(2);
        pair.send_many(1, 100);
        pair.run_for(Duration::from_secs(1));
        assert!(pair.completions().len() == 6, "it has ended");
        // The datagram that was in flight while a detected the restart has failed; the next one
        // arrives.
        pair.send_many(1, 100);
        pair.run_for(Duration::from_millis(100));
        assert_eq!(pair.completions().last(), Some(&Status::Ok));
        assert_eq!(pair.a.address_of(pair.b_at_a), Some(at(2)));
    }
}

#[test]
fn a_peer_that_moved_and_comes_anew_there_is_found_there() {
    for mut pair in moved_away() {
        pair.restart_b();
        pair.send_many(1, 100);
        pair.run_for(Duration::from_secs(1));
        pair.send_many(1, 100);
        pair.run_for(Duration::from_millis(100));
        assert_eq!(pair.completions().last(), Some(&Status::Ok));
        assert_eq!(pair.a.address_of(pair.b_at_a), Some(at(20)));
    }
}

#[test]
fn regression_a_context_that_was_forgotten_is_opened_where_the_peer_was_named_as_well() {
    for config in modes() {
        let mut pair = met(Config { idle_reclaim: Duration::from_secs(6), ..config }, 31);
        pair.roam_b(20);
        pair.send_back(1, 100);
        pair.run_for(Duration::from_secs(10));
        is_found_at_home(&mut pair);
    }
}

#[test]
fn while_a_peer_that_moved_answers_nothing_leaves_for_where_it_was() {
    for mut pair in moved_away() {
        pair.strays.clear();
        for _ in 0..50 {
            pair.send_many(20, 1000);
            pair.run_for(Duration::from_millis(1));
        }
        pair.run_until_idle(Duration::from_millis(100));
        pair.assert_all_completed(1005);
        assert!(pair.strays.is_empty(), "{} packets", pair.strays.len());
    }
}

#[test]
fn regression_what_the_network_says_of_an_address_that_a_peer_has_left_is_no_hint() {
    for mut pair in moved_away() {
        pair.fault.loss_permille = 1000;
        pair.send_many(1, 100);
        for _ in 0..3 {
            pair.a.handle_unreachable(pair.now, at(2), Unreachable::Host);
            pair.run_for(Duration::from_millis(400));
        }
        assert_eq!(pair.down_reasons(), []);
        pair.fault.loss_permille = 0;
        pair.run_for(Duration::from_secs(1));
        pair.assert_all_completed(6);
    }
}

/// Both ends open at once while b is away from the address that is configured at a.
#[test]
fn regression_ends_that_open_at_once_while_one_is_away_find_each_other_within_a_second() {
    for config in modes() {
        let follows = matches!(config.protection, Protection::Static(_));
        for seed in 0..40 {
            for away_us in [0, 3, 7, 13, 20, 400, 5100, 16_000, 40_000] {
                let mut pair = Pair::new(config.clone(), seed);
                pair.roam_b(20);
                pair.send_many(1, 100);
                pair.send_back(1, 100);
                pair.run_for(Duration::from_micros(away_us));
                // Under a job key only its address identifies a peer, so b must return.
                if !follows || seed % 2 == 0 {
                    pair.roam_b(2);
                }
                pair.run_for(Duration::from_secs(1));
                let arrived = (pair.delivered(), pair.delivered_back());
                assert_eq!(arrived, (1, 1), "seed {seed}, {away_us} us, follows: {follows}");
            }
        }
    }
}
