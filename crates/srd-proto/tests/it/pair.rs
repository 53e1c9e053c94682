//! Two endpoints on a wire with faults. The name of each test states the rule that it shows.

use crate::support::{Fault, Pair};
use srd_proto::{
    Class, Config, Datagram, DownReason, Duration, Event, PeerConfig, Qpn, ReceiveBuffers,
    SendError, Status, TransmitBuf,
};

fn config() -> Config {
    Config { packet_bytes_max: 4122, ..Config::default() }
}

#[test]
fn datagrams_arrive_once_and_complete() {
    let mut pair = Pair::new(config(), 1);
    pair.send_many(500, 4000);
    pair.run_until_idle(Duration::from_millis(50));
    pair.assert_all_completed(500);
    assert_eq!(pair.a.stats().retrans_pkts, 0);
}

/// Regression: a sender paced its first long messages by the late answers to earlier small ones.
#[test]
fn regression_late_answers_to_small_messages_do_not_slow_long_messages() {
    let took = |answers_late: Duration| {
        let mut pair = Pair::new(Config { packet_bytes_max: 4122, ..Config::sockets() }, 1);
        pair.fault.answers_late = answers_late;
        for _ in 0..20 {
            pair.send_many(1, 64);
            pair.run_until_idle(Duration::from_millis(20));
        }
        pair.run_for(Duration::from_millis(2));
        pair.fault.answers_late = Duration::ZERO;
        let began = pair.now;
        pair.send_many(8000, 1300);
        let limit = began + Duration::from_millis(20);
        while pair.completions().len() < 8020 && pair.now < limit {
            pair.run_for(Duration::from_micros(10));
        }
        pair.assert_all_completed(8020);
        pair.now.since(began)
    };
    let (prompt, late) = (took(Duration::ZERO), took(Duration::from_micros(700)));
    assert!(late <= prompt.times(3), "{late:?} after late answers, {prompt:?} without");
}

#[test]
fn random_loss_costs_retransmissions_and_nothing_else() {
    for seed in 0..20 {
        let mut pair = Pair::new(config(), seed);
        pair.fault = Fault { loss_permille: 100, ..Fault::default() };
        pair.send_many(300, 2000);
        pair.run_until_idle(Duration::from_millis(500));
        pair.assert_all_completed(300);
        assert!(pair.a.stats().retrans_pkts > 0);
    }
}

#[test]
fn reordering_and_duplication_never_deliver_twice() {
    for seed in 0..20 {
        let mut pair = Pair::new(config(), seed);
        pair.fault = Fault {
            loss_permille: 20,
            duplicate_permille: 200,
            jitter: Duration::from_micros(60),
            ..Fault::default()
        };
        pair.send_many(300, 1000);
        pair.run_until_idle(Duration::from_millis(500));
        pair.assert_all_completed(300);
    }
}

#[test]
fn corrupted_packets_never_panic_and_are_counted_drops_or_harmless() {
    for seed in 0..30 {
        let mut pair = Pair::new(config(), seed);
        pair.fault = Fault { corrupt_headers_permille: 100, ..Fault::default() };
        pair.check_payload = false;
        pair.send_many(200, 100);
        pair.run_for(Duration::from_millis(20));
    }
}

#[test]
fn a_datagram_without_receive_buffer_is_retried_until_there_is_one() {
    let mut pair = Pair::new(config(), 3);
    pair.b.open_qp(Qpn(7), ReceiveBuffers::Counted(5));
    pair.send_many(10, 100);
    pair.run_for(Duration::from_millis(2));
    assert_eq!(pair.delivered(), 5);
    assert!(pair.b.stats().rx_rnr > 0);
    pair.b.post_receives(Qpn(7), 5);
    pair.run_until_idle(Duration::from_millis(50));
    pair.assert_all_completed(10);
}

#[test]
fn regression_a_refusal_of_the_layer_above_costs_no_receive_buffer() {
    let mut pair = Pair::new(config(), 3);
    pair.b.open_qp(Qpn(7), ReceiveBuffers::Counted(1));
    pair.judge = Box::new(|n| if n == 0 { Status::RemoteBadAddress } else { Status::Ok });
    for _ in 0..2 {
        pair.send_many(1, 100);
        pair.run_for(Duration::from_millis(5));
    }
    assert_eq!(pair.completions(), [Status::RemoteBadAddress, Status::Ok]);
}

#[test]
fn the_layer_above_refuses_one_datagram_and_its_sender_hears_why() {
    let refusals = [
        Status::RemoteBadAddress,
        Status::RemoteAbort,
        Status::BadDestQpn,
        Status::RemoteBadLength,
        Status::UnknownPeer,
    ];
    for (seed, refusal) in (0..).zip(refusals) {
        let mut pair = Pair::new(config(), seed);
        pair.fault = Fault { loss_permille: 50, duplicate_permille: 50, ..Fault::default() };
        pair.judge = Box::new(move |n| if n == 3 { refusal } else { Status::Ok });
        pair.send_many(50, 100);
        pair.run_until_idle(Duration::from_millis(50));
        let ended = pair.completions();
        assert_eq!(ended.len(), 50);
        assert_eq!(ended.iter().filter(|s| **s == refusal).count(), 1, "{refusal:?}");
        assert_eq!(ended.iter().filter(|s| **s == Status::Ok).count(), 49, "{refusal:?}");
        assert_eq!(pair.delivered(), 49);
    }
}

#[test]
fn a_queue_pair_may_have_its_own_number_of_rnr_retries() {
    let mut pair = Pair::new(config(), 4);
    pair.judge = Box::new(|_| Status::RemoteRnr);
    pair.a.set_rnr_retries(Qpn(1), 2);
    pair.send_from(Qpn(1), 1, 100);
    pair.send_from(Qpn(2), 1, 100);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.completions(), [Status::RemoteRnr], "the other retries for ever");
    assert!(pair.b.stats().rx_rnr > 3);
    pair.judge = Box::new(|_| Status::Ok);
    pair.run_until_idle(Duration::from_millis(100));
    assert_eq!(pair.completions().last(), Some(&Status::Ok));
}

#[test]
fn a_receiver_that_was_short_of_buffers_for_long_recovers_when_it_has_them() {
    let mut pair = Pair::new(config(), 13);
    pair.b.open_qp(Qpn(7), ReceiveBuffers::Counted(16));
    pair.send_many(200, 100);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.delivered(), 16);
    for _ in 0..200 {
        pair.b.post_receives(Qpn(7), 1);
        pair.run_for(Duration::from_millis(20));
    }
    pair.run_until_idle(Duration::from_millis(5000));
    pair.assert_all_completed(200);
}

#[test]
fn rnr_beyond_the_retries_fails_that_datagram_alone() {
    let mut pair = Pair::new(Config { rnr_retries: 2, ..config() }, 3);
    pair.b.open_qp(Qpn(7), ReceiveBuffers::Counted(5));
    pair.send_many(6, 100);
    pair.run_until_idle(Duration::from_millis(50));
    let statuses = pair.completions();
    assert_eq!(statuses.iter().filter(|s| **s == Status::Ok).count(), 5);
    assert_eq!(statuses.iter().filter(|s| **s == Status::RemoteRnr).count(), 1);
}

#[test]
fn a_bad_destination_fails_that_datagram_alone() {
    let mut pair = Pair::new(config(), 4);
    pair.send_to(Qpn(99), 3, 100);
    pair.send_many(3, 100);
    pair.run_until_idle(Duration::from_millis(50));
    let statuses = pair.completions();
    assert_eq!(statuses.iter().filter(|s| **s == Status::Ok).count(), 3);
    assert_eq!(statuses.iter().filter(|s| **s == Status::BadDestQpn).count(), 3);
}

#[test]
fn a_peer_that_never_answers_is_unreachable() {
    let mut pair = Pair::new(Config { peer_timeout: Duration::from_millis(20), ..config() }, 5);
    pair.fault = Fault { loss_permille: 1000, ..Fault::default() };
    pair.send_many(5, 100);
    pair.run_until_idle(Duration::from_millis(100));
    assert_eq!(pair.completions(), vec![Status::UnreachRemote; 5]);
    assert!(pair.down_reasons().contains(&DownReason::Unreachable));
}

#[test]
fn a_peer_that_goes_silent_is_unresponsive_and_may_come_back() {
    let mut pair = Pair::new(Config { peer_timeout: Duration::from_millis(20), ..config() }, 6);
    pair.send_many(5, 100);
    pair.run_until_idle(Duration::from_millis(10));
    pair.fault.loss_permille = 1000;
    pair.send_many(5, 100);
    pair.run_until_idle(Duration::from_millis(100));
    let statuses = pair.completions();
    assert_eq!(statuses[5..], [Status::UnrespRemote; 5]);
    assert_eq!(pair.a.stats().unresponsive_remote_events, 1);
    pair.fault.loss_permille = 0;
    pair.send_many(5, 100);
    pair.run_until_idle(Duration::from_millis(100));
    assert_eq!(pair.completions()[10..], [Status::Ok; 5]);
}

#[test]
fn a_restarted_peer_is_never_taken_for_its_former_self() {
    for seed in 0..20 {
        let mut pair = Pair::new(config(), seed);
        pair.send_many(200, 3000);
        pair.run_for(Duration::from_micros(40));
        pair.restart_b();
        pair.run_until_idle(Duration::from_millis(200));
        let statuses = pair.completions();
        assert_eq!(statuses.len(), 200, "seed {seed}");
        assert!(statuses.iter().all(|s| matches!(s, Status::Ok | Status::RemoteAbort)));
        assert!(statuses.contains(&Status::Ok));
    }
}

#[test]
fn a_dead_path_costs_a_probe_and_no_datagram() {
    let mut pair = Pair::new(config(), 8);
    pair.fault.dead_ports_below = 49152 + 16; // an eighth of 128 paths
    pair.send_many(2000, 4000);
    pair.run_until_idle(Duration::from_millis(100));
    pair.assert_all_completed(2000);
    let reports = pair.paths();
    let bad = reports.iter().filter(|p| p.state == "assumed-bad").count();
    assert!(bad >= 8, "{bad} paths found dead");
    let wronged: Vec<_> =
        reports.iter().filter(|p| p.entropy >= 16 && p.state == "assumed-bad").collect();
    assert!(wronged.is_empty(), "{wronged:?} {:?}", pair.a.stats());
    pair.fault.dead_ports_below = 0;
    pair.send_many(100, 4000);
    pair.run_for(Duration::from_millis(3000));
    assert!(pair.paths().iter().all(|p| p.state != "assumed-bad"), "healed paths come back");
}

#[test]
fn closing_a_queue_pair_flushes_its_datagrams_and_no_others() {
    let mut pair = Pair::new(config(), 9);
    pair.send_many(50, 1000);
    pair.send_from(Qpn(12), 50, 1000);
    pair.a.close_qp(pair.now, Qpn(12));
    pair.run_until_idle(Duration::from_millis(50));
    let statuses = pair.completions();
    assert_eq!(statuses.iter().filter(|s| **s == Status::Flushed).count(), 50);
    assert_eq!(statuses.iter().filter(|s| **s == Status::Ok).count(), 50);
}

#[test]
fn a_full_queue_refuses_then_says_writable() {
    let mut pair = Pair::new(Config { send_queue_datagrams_max: 8, ..config() }, 10);
    for user in 0..8 {
        assert!(pair.try_send(user).is_ok());
    }
    assert_eq!(pair.try_send(8), Err(srd_proto::SendError::QueueFull));
    pair.run_until_idle(Duration::from_millis(10));
    assert!(pair.events.iter().any(|e| matches!(e, Event::Writable { .. })));
}

#[test]
fn an_oversize_datagram_has_its_own_error() {
    let mut pair = Pair::new(config(), 11);
    let max_bytes = pair.a.payload_bytes_max();
    let d = Datagram {
        src_qpn: Qpn(1),
        dst_qpn: Qpn(7),
        imm: 0,
        payload: vec![0; max_bytes + 1].into(),
        class: srd_proto::Class::Bulk,
        user: 0,
    };
    let refused = pair.a.send(pair.now, pair.b_at_a, d);
    assert_eq!(refused, Err(srd_proto::SendError::TooLarge { max_bytes }));
}

#[test]
fn an_idle_context_gives_its_memory_back() {
    let mut pair = Pair::new(
        Config {
            idle_reclaim: Duration::from_millis(5),
            peer_timeout: Duration::from_millis(4),
            ..config()
        },
        12,
    );
    pair.send_many(5, 100);
    pair.run_until_idle(Duration::from_millis(2));
    pair.run_for(Duration::from_millis(20));
    assert!(pair.a.peer_stats(pair.b_at_a).is_none());
}

#[test]
fn a_silent_peer_is_found_out_though_nothing_more_can_be_sent() {
    let mut pair = Pair::new(config(), 15);
    pair.try_send(1).unwrap();
    let mut buf = TransmitBuf::new(1, 65_000);
    // The socket is full after the first packet, so the world does not poll for a second.
    assert!(pair.a.poll_transmit(pair.now, &mut buf).is_some());
    for _ in 0..1000 {
        let Some(at) = pair.a.poll_timeout() else { panic!("nothing wakes it") };
        pair.a.handle_timeout(at);
        if matches!(pair.a.poll_event(), Some(Event::Completed { .. } | Event::PeerDown { .. })) {
            return;
        }
    }
    panic!("it waits for ever");
}

/// Regression: each of many acknowledgements left a timer behind, for the time at which the context
/// would be idle.
#[test]
fn regression_what_was_said_long_ago_wakes_nobody() {
    let mut pair = Pair::new(config(), 1);
    for _ in 0..500 {
        pair.send_many(1, 64);
        pair.run_for(Duration::from_micros(50));
        pair.send_back(1, 64);
        pair.run_for(Duration::from_micros(50));
    }
    pair.assert_all_completed(500);
    let mut wakes = 0;
    while let Some(at) = pair.a.poll_timeout() {
        pair.run_for(at.since(pair.now));
        wakes += 1;
        assert!(wakes < 30, "woken at {at:?} again");
    }
}

#[test]
fn the_name_of_a_forgotten_peer_names_nobody() {
    let mut pair = Pair::new(
        Config {
            idle_reclaim: Duration::from_millis(5),
            peer_timeout: Duration::from_millis(4),
            ..config()
        },
        14,
    );
    pair.send_many(1, 100);
    pair.run_until_idle(Duration::from_millis(2));
    let stranger = pair.b.peer_at("10.0.0.1:7471".parse().unwrap()).expect("it has written");
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.b.address_of(stranger), None);
    let other = PeerConfig::at("10.0.0.9:7471".parse().unwrap());
    let other = pair.b.add_peer(pair.now, other).unwrap();
    assert_eq!(other.index(), stranger.index(), "the slot is used again");
    let d = Datagram {
        src_qpn: Qpn(1),
        dst_qpn: Qpn(7),
        imm: 0,
        payload: vec![0; 10].into(),
        class: Class::Bulk,
        user: 0,
    };
    assert_eq!(pair.b.send(pair.now, stranger, d.clone()), Err(SendError::UnknownPeer));
    pair.b.remove_peer(pair.now, stranger);
    assert!(pair.b.send(pair.now, other, d).is_ok());
}

#[test]
fn a_fabric_that_swallows_large_packets_is_found_out_and_told() {
    for seed in 0..5 {
        let mut pair = Pair::new(Config { mtu_discovery: true, ..config() }, seed);
        pair.fault.swallows_above_bytes = 3000;
        pair.send_many(3, 4000);
        pair.send_from(Qpn(2), 20, 1000);
        pair.run_until_idle(Duration::from_millis(2000));
        let statuses = pair.completions();
        assert_eq!(statuses.iter().filter(|s| **s == Status::LocalBadLength).count(), 3);
        assert_eq!(statuses.iter().filter(|s| **s == Status::Ok).count(), 20);
        let found = pair.events.iter().find_map(|e| match e {
            Event::PathMtu { works_bytes, configured_bytes, .. } => {
                Some((*works_bytes, *configured_bytes))
            }
            _ => None,
        });
        let (works, configured) = found.expect("a report");
        assert_eq!(configured, 4122);
        assert!((2980..=3000).contains(&works), "{works}");
    }
}

#[test]
fn a_datagram_of_full_size_that_arrives_proves_more_than_probes_that_do_not() {
    let mut pair = Pair::new(Config { mtu_discovery: true, ..config() }, 1);
    pair.fault.swallows_probes = true;
    for _ in 0..400 {
        pair.send_many(5, 4086);
        pair.run_for(Duration::from_micros(500));
    }
    pair.run_until_idle(Duration::from_millis(100));
    pair.assert_all_completed(2000);
    assert!(!pair.events.iter().any(|event| matches!(event, Event::PathMtu { .. })));
}

#[test]
fn a_fabric_that_passes_everything_costs_one_probe() {
    let mut pair = Pair::new(Config { mtu_discovery: true, ..config() }, 1);
    pair.send_many(50, 4000);
    pair.run_until_idle(Duration::from_millis(50));
    pair.assert_all_completed(50);
    assert_eq!(pair.a.stats().probe_pkts, 1);
}

#[test]
fn a_denied_path_carries_nothing_until_it_is_put_back() {
    let mut pair = Pair::new(config(), 2);
    pair.send_many(1, 100);
    pair.run_until_idle(Duration::from_millis(5));
    for entropy in 0..64 {
        assert!(pair.a.deny_path(pair.b_at_a, srd_proto::Entropy(entropy), true));
    }
    let before: u64 = pair.paths().iter().filter(|p| p.entropy < 64).map(|p| p.sent_pkts).sum();
    pair.send_many(500, 1000);
    pair.run_until_idle(Duration::from_millis(50));
    pair.assert_all_completed(501);
    let after: u64 = pair.paths().iter().filter(|p| p.entropy < 64).map(|p| p.sent_pkts).sum();
    assert_eq!(before, after);
}
