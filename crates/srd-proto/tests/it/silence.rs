//! Silent peers are given up in time: in every mode, after pauses of this endpoint itself, and
//! after hints of the network that the peer is unreachable.

#![allow(clippy::unwrap_used)]

use crate::support::Pair;
use crate::support::scene::is_heard_with_an_earlier_epoch;
use srd_proto::{Config, DownReason, Duration, Protection, Unreachable};

const MODES: [Protection; 3] =
    [Protection::Plain, Protection::JobKey([7; 32]), Protection::Static([9; 32])];

fn config(protection: Protection) -> Config {
    Config { protection, packet_bytes_max: 4122, ..Config::default() }
}

/// Configuration like that of the libfabric provider: contexts hibernate, and a peer that has not
/// answered yet has its own timeout.
fn provider(protection: Protection) -> Config {
    Config {
        idle_hibernate: Duration::from_millis(2),
        answer_timeout: Duration::from_secs(3),
        ..config(protection)
    }
}

/// A pair that has a context and datagrams in flight.
fn talking(config: Config, seed: u64) -> Pair {
    let mut pair = Pair::new(config, seed);
    pair.send_many(1, 100);
    pair.run_until_idle(Duration::from_millis(500));
    pair.send_many(500, 900);
    pair.run_for(Duration::from_micros(10));
    pair
}

#[test]
fn regression_a_peer_that_never_answers_is_given_up_in_time_in_every_mode() {
    for protection in MODES {
        let mut pair = Pair::new(provider(protection.clone()), 1);
        pair.fault.loss_permille = 1000;
        pair.send_many(5, 900);
        pair.run_for(Duration::from_millis(2900));
        assert_eq!(pair.down_reasons(), [], "{protection:?}");
        pair.run_for(Duration::from_millis(200));
        assert_eq!(pair.down_reasons(), [DownReason::Unreachable], "{protection:?}");
    }
}

#[test]
fn regression_a_pause_of_our_own_costs_no_peer_in_any_configuration() {
    for protection in MODES {
        for config in [config(protection.clone()), provider(protection.clone())] {
            let timeout = Duration::from_millis(1500);
            let mut pair = talking(Config { peer_timeout: timeout, ..config }, 2);
            pair.now += Duration::from_secs(2);
            // Timers are handled before any input.
            pair.a.handle_timeout(pair.now);
            pair.b.handle_timeout(pair.now);
            pair.run_until_idle(Duration::from_secs(2));
            pair.assert_all_completed(501);
            assert_eq!(pair.down_reasons(), []);
        }
    }
}

#[test]
fn a_peer_that_may_have_forgotten_the_context_meanwhile_is_not_waited_for() {
    // After `idle_reclaim` the other end may have released the context: a datagram that is sent
    // again could be delivered twice.
    let mut pair = talking(config(Protection::Plain), 3);
    pair.now += Duration::from_secs(40);
    pair.a.handle_timeout(pair.now);
    pair.run_for(Duration::from_millis(1));
    assert_eq!(pair.down_reasons(), [DownReason::Unresponsive]);
}

#[test]
fn a_caller_that_is_always_late_still_gives_a_dead_peer_up() {
    for config in [config(Protection::Plain), provider(Protection::JobKey([7; 32]))] {
        let mut pair = talking(config, 4);
        pair.fault.loss_permille = 1000;
        pair.send_many(5, 900);
        let mut calls = 0;
        while pair.down_reasons().is_empty() {
            pair.now += Duration::from_secs(2);
            pair.a.handle_timeout(pair.now);
            pair.b.handle_timeout(pair.now);
            pair.run_for(Duration::ZERO);
            calls += 1;
            assert!(calls < 30, "never given up");
        }
        assert_eq!(pair.down_reasons(), [DownReason::Unresponsive]);
    }
}

/// Simulates `n` reports of the network that b is unreachable, at intervals of one millisecond.
fn hint(pair: &mut Pair, n: u32) {
    let to = pair.a.address_of(pair.b_at_a).unwrap();
    for _ in 0..n {
        pair.a.handle_unreachable(pair.now, to, Unreachable::Port);
        pair.run_for(Duration::from_millis(1));
    }
}

#[test]
fn a_dead_peer_on_a_host_that_says_so_is_given_up_within_a_second() {
    for protection in MODES {
        let timeout = Duration::from_secs(10);
        let mut pair = talking(Config { peer_timeout: timeout, ..config(protection) }, 5);
        pair.fault.loss_permille = 1000;
        pair.send_many(5, 900);
        pair.run_for(Duration::from_millis(2));
        hint(&mut pair, 3);
        assert_eq!(pair.a.last_unreachable(pair.b_at_a), Some(Unreachable::Port));
        pair.run_for(Duration::from_millis(600));
        assert_eq!(pair.down_reasons(), []);
        pair.run_for(Duration::from_millis(300));
        assert_eq!(pair.down_reasons(), [DownReason::Unresponsive]);
        assert_eq!(pair.a.last_unreachable(pair.b_at_a), Some(Unreachable::Port));
    }
}

#[test]
fn one_hint_alone_and_hints_of_other_addresses_change_nothing() {
    let mut pair = talking(config(Protection::Plain), 6);
    pair.fault.loss_permille = 1000;
    pair.send_many(5, 900);
    pair.run_for(Duration::from_millis(2));
    hint(&mut pair, 1);
    for port in 1..2000 {
        let to = std::net::SocketAddr::from(([10, 0, 0, 2], port));
        pair.a.handle_unreachable(pair.now, to, Unreachable::Host);
    }
    pair.run_for(Duration::from_millis(4900));
    assert_eq!(pair.down_reasons(), []);
    pair.run_for(Duration::from_millis(200));
    assert_eq!(pair.down_reasons(), [DownReason::Unresponsive]);
}

#[test]
fn a_flood_of_forged_hints_does_not_cost_a_peer_that_answers() {
    for protection in MODES {
        let mut pair = talking(config(protection), 7);
        let to = pair.a.address_of(pair.b_at_a).unwrap();
        pair.fault.loss_permille = 300;
        let mut sent = 501;
        for round in 0..20_000 {
            for kind in [Unreachable::Port, Unreachable::Host, Unreachable::Prohibited] {
                pair.a.handle_unreachable(pair.now, to, kind);
            }
            if round % 100 == 0 {
                pair.send_many(20, 900);
                sent += 20;
            }
            pair.run_for(Duration::from_micros(100));
        }
        pair.run_until_idle(Duration::from_secs(3));
        pair.assert_all_completed(sent);
        assert_eq!(pair.down_reasons(), []);
    }
}

#[test]
fn hints_do_not_hurry_a_peer_that_may_be_about_to_start() {
    for protection in MODES {
        let mut pair = Pair::new(provider(protection), 8);
        pair.fault.loss_permille = 1000;
        pair.send_many(5, 900);
        pair.run_for(Duration::from_millis(5));
        hint(&mut pair, 100);
        pair.run_for(Duration::from_millis(1500));
        assert_eq!(pair.down_reasons(), []);
        pair.fault.loss_permille = 0;
        pair.run_until_idle(Duration::from_secs(2));
        pair.assert_all_completed(5);
        assert_eq!(pair.a.last_unreachable(pair.b_at_a), None, "it was heard");
    }
}

#[test]
fn regression_a_run_whose_clock_was_set_back_is_heard_once_the_former_run_is_silent() {
    for config in [config(Protection::Plain), provider(Protection::Plain)] {
        let mut pair = talking(Config { peer_timeout: Duration::from_secs(2), ..config }, 9);
        is_heard_with_an_earlier_epoch(&mut pair);
        assert!(pair.down_reasons().len() <= 3, "{:?}", pair.down_reasons());
    }
}

#[test]
fn a_living_peer_is_not_given_up_for_greetings_of_its_former_run() {
    let mut pair = Pair::new(config(Protection::Plain), 10);
    pair.recorded = Some(Vec::new());
    pair.send_back(1, 200);
    pair.run_for(Duration::from_millis(100));
    let old: Vec<_> = pair.recorded.take().unwrap().into_iter().filter(|p| !p.to_b).collect();
    pair.restart_b();
    pair.send_many(5, 200);
    pair.send_back(5, 200);
    pair.run_for(Duration::from_millis(200));
    let downs = pair.down_reasons().len();
    let before = pair.a.stats().rx_drops;
    for _ in 0..200 {
        for packet in &old {
            pair.inject(packet, packet.source);
        }
        pair.run_for(Duration::from_millis(50));
    }
    assert!(pair.a.stats().rx_drops >= before + 200, "they are refused");
    assert_eq!(pair.down_reasons().len(), downs, "{:?}", pair.down_reasons());
    let done = pair.completions().len();
    pair.send_many(1, 200);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.completions()[done..], [srd_proto::Status::Ok]);
}
