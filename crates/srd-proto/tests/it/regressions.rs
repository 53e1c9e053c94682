//! Bugs that the soak test found, each in its smallest form.

use crate::support::{Fault, Pair};
use srd_proto::{Config, Duration, Event, Protection, Qpn, Status};

fn config() -> Config {
    Config { packet_bytes_max: 1472, ..Config::default() }
}

#[test]
fn regression_a_window_that_is_lost_whole_is_used_again() {
    for seed in 0..10 {
        let mut pair = Pair::new(Config { window_packets_max: 128, ..config() }, seed);
        pair.fault = Fault { loss_permille: 750, ..Fault::default() };
        pair.send_many(200, 1000);
        pair.run_for(Duration::from_millis(20));
        pair.fault.loss_permille = 0;
        pair.run_until_idle(Duration::from_millis(100));
        pair.assert_all_completed(200);
    }
}

#[test]
fn regression_a_link_of_unknown_speed_lets_one_packet_go() {
    let mut pair = Pair::new(Config { link_rate_bps: 0, ..config() }, 1);
    pair.send_many(50, 1000);
    pair.run_until_idle(Duration::from_millis(50));
    pair.assert_all_completed(50);
}

#[test]
fn regression_a_tiny_first_window_lets_one_packet_go() {
    let tiny = Config { link_rate_bps: 0, window_initial_bytes: 5, ..config() };
    let mut pair = Pair::new(tiny, 1);
    pair.send_many(5, 1000);
    pair.run_until_idle(Duration::from_millis(50));
    pair.assert_all_completed(5);
}

#[test]
fn regression_queue_pairs_come_and_go_beyond_flows_max() {
    let mut pair = Pair::new(Config { flows_max: 2, ..config() }, 1);
    for qpn in 10..50 {
        pair.send_from(Qpn(qpn), 3, 100);
        pair.run_until_idle(Duration::from_millis(10));
    }
    pair.assert_all_completed(120);
}

#[test]
fn regression_room_is_announced_when_the_peer_is_given_up() {
    let timeout = Duration::from_millis(5);
    let small = Config { send_queue_datagrams_max: 2, peer_timeout: timeout, ..config() };
    let mut pair = Pair::new(small, 1);
    pair.fault.loss_permille = 1000;
    pair.send_many(2, 100);
    assert!(pair.try_send(9).is_err());
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.completions(), [Status::UnreachRemote; 2]);
    assert!(pair.events.iter().any(|e| matches!(e, Event::Writable { .. })));
}

#[test]
fn regression_room_is_announced_when_events_were_too_many() {
    let mut pair = Pair::new(Config { events_max: 1, ..config() }, 1);
    pair.send_many(3, 100);
    pair.run_until_idle(Duration::from_millis(5));
    pair.events.clear();
    pair.leave_events = true;
    pair.send_many(3, 100);
    pair.run_for(Duration::from_millis(5));
    assert!(pair.try_send(9).is_err());
    pair.leave_events = false;
    pair.run_for(Duration::from_millis(1));
    assert!(pair.events.iter().any(|e| matches!(e, Event::Writable { .. })));
    assert!(pair.try_send(10).is_ok());
}

#[test]
fn a_peer_that_never_answered_has_a_patience_of_its_own() {
    let (answer, peer) = (Duration::from_millis(20), Duration::from_millis(5));
    let patient = Config { answer_timeout: answer, peer_timeout: peer, ..config() };
    let mut pair = Pair::new(patient, 1);
    pair.fault.loss_permille = 1000;
    pair.send_many(1, 100);
    pair.run_for(Duration::from_millis(15));
    assert_eq!(pair.completions(), []);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.completions(), [Status::UnreachRemote]);
}

/// Regression: the bytes of the oversize datagram stayed in the count of queued bytes for ever.
#[test]
fn regression_an_oversize_datagram_of_a_closed_queue_pair_is_struck_out_of_what_was_offered() {
    let config = Config { mtu_discovery: true, packet_bytes_max: 8900, ..Config::default() };
    let mut pair = Pair::new(config, 1);
    pair.fault.swallows_above_bytes = 3000;
    pair.send_from(Qpn(20), 1, 8000);
    pair.send_from(Qpn(21), 20, 100);
    pair.run_for(Duration::from_micros(10));
    pair.a.close_qp(pair.now, Qpn(20));
    pair.run_for(Duration::from_millis(200));
    assert!(pair.events.iter().any(|e| matches!(e, Event::PathMtu { .. })));
    #[cfg(debug_assertions)]
    pair.a.check_invariants();
    assert_eq!(pair.a.peer_stats(pair.b_at_a).map(|stats| stats.queued_datagrams), Some(0));
}

/// Regression: endpoint `b` moved, and returned after both ends had released the context. From then
/// on, endpoint `a` sent only to the address that `b` had left.
#[test]
fn regression_a_peer_that_is_silent_where_it_moved_to_is_called_where_it_was_named() {
    let timing = Config {
        protection: Protection::Static([4; 32]),
        peer_timeout: Duration::from_millis(50),
        idle_reclaim: Duration::from_millis(100),
        ..config()
    };
    let mut pair = Pair::new(timing, 1);
    pair.send_many(5, 100);
    pair.run_until_idle(Duration::from_millis(100));
    pair.roam_b(20);
    pair.send_back(20, 100);
    pair.run_for(Duration::from_millis(60));
    assert_eq!(
        pair.a.address_of(pair.b_at_a).map(|at| at.to_string()).as_deref(),
        Some("10.0.0.20:7471")
    );
    pair.run_for(Duration::from_millis(300));
    pair.roam_b(2);
    pair.send_many(1, 100);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.completions().last(), Some(&Status::Ok));
}

/// Regression: one run in 256 gave its context the number of the earlier run's context, and
/// delivered datagrams that had been sent to that run.
#[test]
fn regression_a_plain_datagram_for_a_former_run_is_not_delivered_again() {
    for seed in 0..1000 {
        let mut pair = Pair::new(config(), seed);
        pair.send_many(1, 0);
        pair.run_until_idle(Duration::from_millis(1));
        pair.recorded = Some(Vec::new());
        pair.send_many(1, 0);
        pair.run_until_idle(Duration::from_millis(1));
        pair.assert_all_completed(2);
        let packets = pair.recorded.take().unwrap();
        pair.restart_b();
        // The application at b has named a, so b has a context for it.
        pair.send_back(1, 0);
        for packet in packets.iter().filter(|packet| packet.to_b) {
            pair.inject(packet, packet.source);
        }
        pair.run_for(Duration::from_millis(1));
    }
}

/// Regression: the least delay counted for five to ten seconds, although it was impossible. In the
/// first two cases, the clock of the receiver jumps, and in the second case it jumps back. In the
/// third case, a packet waits in the receiver for so long that its delay looks negative.
#[test]
fn regression_a_clock_of_the_peer_that_jumps_is_no_congestion() {
    for (odd, then) in [(500, 500), (500, 0), (3000, 0)] {
        let mut pair = Pair::new(config(), 1);
        let window = |pair: &Pair| pair.a.peer_stats(pair.b_at_a).unwrap().window_bytes;
        let trickle = |pair: &mut Pair, n| {
            for _ in 0..n {
                pair.send_many(1, 1000);
                pair.run_for(Duration::from_millis(1));
            }
        };
        trickle(&mut pair, 32);
        let before = window(&pair);
        pair.shift_at_b = Duration::from_millis(odd);
        trickle(&mut pair, 1);
        pair.shift_at_b = Duration::from_millis(then);
        trickle(&mut pair, 32);
        let after = window(&pair);
        assert!(after > before / 2, "{odd} ms, then {then} ms: {after} of {before} bytes");
    }
}
