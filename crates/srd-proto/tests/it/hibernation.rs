//! Hibernated contexts: the memory that they release, the state that they keep, and contexts that
//! do not hibernate.

use crate::support::{Fault, Pair};
use srd_proto::{Config, DownReason, Duration, Protection, Status};

/// A configuration in which contexts hibernate after two milliseconds.
fn config(protection: Protection) -> Config {
    let idle_hibernate = Duration::from_millis(2);
    Config { protection, idle_hibernate, packet_bytes_max: 4122, ..Config::default() }
}

/// Whether a's context with b is hibernated: it exists, and has no state of its paths.
fn is_hibernated(pair: &Pair) -> bool {
    pair.paths().is_empty() && pair.a.peer_stats(pair.b_at_a).is_some()
}

#[test]
fn a_context_goes_on_after_hibernation_where_it_was() {
    for protection in [Protection::Plain, Protection::JobKey([7; 32]), Protection::Static([9; 32])]
    {
        for seed in 0..4 {
            let mut pair = Pair::new(config(protection.clone()), seed);
            pair.fault = Fault {
                loss_permille: 20,
                duplicate_permille: 100,
                jitter: Duration::from_micros(40),
                ..Fault::default()
            };
            let (mut sent, mut hibernations) = (0, 0);
            for round in 0..20 {
                let n = [1, 90, 3, 700][round % 4];
                sent += n;
                pair.send_many(n, 900);
                pair.send_back(n / 4, 300);
                pair.run_until_idle(Duration::from_millis(500));
                pair.fault.loss_permille = 0;
                pair.run_for(Duration::from_millis(30));
                pair.fault.loss_permille = 20;
                hibernations += usize::from(is_hibernated(&pair));
            }
            pair.assert_all_completed(usize::try_from(sent).unwrap());
            assert_eq!(pair.down_reasons(), [], "the context is the same");
            assert!(hibernations >= 15, "{hibernations} hibernations");
        }
    }
}

#[test]
fn who_stood_still_itself_does_not_take_its_peer_for_silent() {
    let mut pair = Pair::new(config(Protection::JobKey([7; 32])), 3);
    pair.send_many(1, 100);
    pair.run_until_idle(Duration::from_millis(500));
    pair.send_many(500, 900);
    pair.run_for(Duration::from_micros(10));
    pair.now += Duration::from_secs(40);
    pair.a.handle_timeout(pair.now);
    pair.b.handle_timeout(pair.now);
    pair.run_until_idle(Duration::from_secs(2));
    pair.assert_all_completed(501);
    assert_eq!(pair.down_reasons(), []);
}

#[test]
fn who_only_has_no_answer_gives_up() {
    let mut pair = Pair::new(config(Protection::JobKey([7; 32])), 3);
    pair.send_many(1, 100);
    pair.run_until_idle(Duration::from_millis(500));
    pair.fault.loss_permille = 1000;
    pair.send_many(5, 900);
    pair.run_for(Duration::from_secs(6));
    assert_eq!(pair.down_reasons(), [DownReason::Unresponsive]);
}

#[test]
fn a_context_hibernated_is_not_forgotten_by_one_end_before_the_other() {
    let reclaim = Config {
        idle_reclaim: Duration::from_millis(5),
        peer_timeout: Duration::from_millis(4),
        ..config(Protection::Plain)
    };
    let mut pair = Pair::new(reclaim, 2);
    pair.send_many(1, 100);
    pair.run_until_idle(Duration::from_millis(500));
    let a_at_b = pair.b.peer_at("10.0.0.1:7471".parse().unwrap()).expect("it has written");
    pair.b.keep_peer(a_at_b);
    // The end that received last would release the context a few microseconds after the other one.
    // In one of these rounds a datagram leaves in between.
    for pause_us in 4800..5200 {
        pair.run_for(Duration::from_micros(pause_us));
        pair.send_many(1, 100);
        pair.run_until_idle(Duration::from_millis(500));
    }
    pair.assert_all_completed(401);
    assert_eq!(pair.down_reasons(), []);
}

#[test]
fn a_packet_that_is_late_by_a_whole_hibernation_is_not_delivered_again() {
    let mut pair = Pair::new(config(Protection::Plain), 3);
    pair.fault =
        Fault { duplicate_permille: 1000, jitter: Duration::from_millis(20), ..Fault::default() };
    for _ in 0..20 {
        pair.send_many(10, 100);
        pair.run_until_idle(Duration::from_millis(3000));
    }
    pair.run_for(Duration::from_secs(3));
    assert!(is_hibernated(&pair));
    pair.send_many(10, 100);
    pair.run_until_idle(Duration::from_millis(3000));
    pair.run_for(Duration::from_millis(200));
    pair.assert_all_completed(210);
}

#[test]
fn a_peer_that_restarts_while_its_context_hibernates_is_found_out_by_the_next_datagram() {
    for protection in [Protection::Plain, Protection::JobKey([7; 32])] {
        let mut pair = Pair::new(config(protection), 4);
        pair.send_many(5, 100);
        pair.run_for(Duration::from_millis(20));
        assert!(is_hibernated(&pair));
        pair.restart_b();
        pair.send_many(1, 100);
        pair.run_until_idle(Duration::from_millis(3000));
        assert_eq!(pair.down_reasons(), [DownReason::Restarted]);
        pair.send_many(1, 100);
        pair.run_until_idle(Duration::from_millis(3000));
        assert_eq!(pair.completions().last(), Some(&Status::Ok));
    }
}

#[test]
fn a_peer_that_dies_while_its_context_hibernates_is_reported_as_silent() {
    let mut pair = Pair::new(config(Protection::Plain), 5);
    pair.send_many(5, 100);
    pair.run_for(Duration::from_millis(20));
    pair.fault.loss_permille = 1000;
    pair.send_many(3, 100);
    pair.run_for(Duration::from_secs(6));
    assert_eq!(pair.down_reasons(), [DownReason::Unresponsive]);
    assert_eq!(pair.completions()[5..], [Status::UnrespRemote; 3]);
}

#[test]
fn a_context_with_a_bad_path_or_a_keepalive_does_not_hibernate() {
    let mut pair = Pair::new(config(Protection::Plain), 6);
    pair.fault.dead_ports_below = 49_182;
    pair.send_many(2000, 1000);
    pair.run_until_idle(Duration::from_millis(3000));
    pair.run_for(Duration::from_millis(20));
    let bad = |pair: &Pair| pair.paths().iter().filter(|p| p.state == "assumed-bad").count();
    assert!(bad(&pair) > 0);
    pair.run_for(Duration::from_millis(200));
    assert!(bad(&pair) > 0, "it goes on probing");
    pair.fault = Fault::default();
    pair.run_for(Duration::from_secs(3));
    assert!(is_hibernated(&pair), "all paths are good again");

    let keepalive = Duration::from_millis(10);
    let mut pair = Pair::new(Config { keepalive, ..config(Protection::Plain) }, 7);
    pair.send_many(1, 100);
    pair.run_for(Duration::from_millis(200));
    assert!(!is_hibernated(&pair));
}
