//! Unreliable datagrams: sent beside the reliable ones, under the same session, at most once.

use crate::support::{Fault, Pair};
use srd_proto::{
    Class, Config, Datagram, DropReason, Duration, Entropy, Protection, Qpn, ReceiveBuffers,
    SendError, Status,
};

fn datagram(to: u16, bytes: usize) -> Datagram {
    Datagram {
        src_qpn: Qpn(1),
        dst_qpn: Qpn(to),
        imm: 5,
        payload: vec![9; bytes].into(),
        class: Class::Bulk,
        user: 0,
    }
}

fn pair(protection: Protection) -> Pair {
    let config = Config {
        protection,
        unreliable_queue_datagrams_max: 50,
        keepalive: Duration::from_millis(1),
        ..Config::default()
    };
    let mut pair = Pair::new(config, 3);
    pair.check_payload = false;
    pair
}

fn send(pair: &mut Pair, n: u16, bytes: usize) -> Result<(), SendError> {
    for i in 0..n {
        pair.a.send_unreliable(pair.now, pair.b_at_a, Entropy(i % 7), datagram(7, bytes))?;
    }
    Ok(())
}

fn modes() -> [Protection; 3] {
    [Protection::Plain, Protection::Static([9; 32]), Protection::JobKey([7; 32])]
}

#[test]
fn they_arrive_without_a_reliable_one_before_them() {
    for mode in modes() {
        let mut pair = pair(mode);
        send(&mut pair, 40, 700).unwrap();
        pair.run_for(Duration::from_millis(5));
        assert_eq!(pair.b.stats().unreliable_rx_pkts, 40);
        assert_eq!(pair.b.stats().recv_wrs, 0);
    }
}

#[test]
fn a_lost_one_stays_lost_and_a_repeated_one_is_dropped() {
    let mut pair = pair(Protection::Static([9; 32]));
    send(&mut pair, 1, 10).unwrap();
    pair.run_for(Duration::from_millis(5));
    pair.fault = Fault { loss_permille: 300, duplicate_permille: 500, ..Fault::default() };
    for _ in 0..20 {
        send(&mut pair, 50, 100).unwrap();
        pair.run_for(Duration::from_micros(100));
    }
    let arrived = pair.b.stats().unreliable_rx_pkts;
    assert!((600..=800).contains(&arrived), "{arrived}");
    let replays = pair.b.stats().drops[DropReason::Replay as usize];
    assert!(replays > 200, "{replays}");
}

#[test]
fn the_queue_has_a_bound_and_large_ones_are_refused() {
    let mut pair = pair(Protection::Plain);
    assert_eq!(send(&mut pair, 51, 10), Err(SendError::QueueFull));
    let max_bytes = pair.a.unreliable_bytes_max();
    assert_eq!(send(&mut pair, 1, max_bytes + 1), Err(SendError::TooLarge { max_bytes }));
}

#[test]
fn one_for_nobody_is_counted() {
    let mut pair = pair(Protection::Plain);
    pair.a.send_unreliable(pair.now, pair.b_at_a, Entropy(0), datagram(99, 10)).unwrap();
    pair.run_for(Duration::from_millis(1));
    assert_eq!(pair.b.stats().drops[DropReason::NoReceiver as usize], 1);
}

#[test]
fn a_peer_that_restarted_is_met_again_by_unreliable_ones_alone() {
    for mode in modes() {
        let mut pair = pair(mode);
        send(&mut pair, 10, 100).unwrap();
        pair.run_for(Duration::from_millis(5));
        pair.restart_b();
        for _ in 0..10 {
            send(&mut pair, 10, 100).unwrap();
            pair.run_for(Duration::from_millis(3));
        }
        let arrived = pair.b.stats().unreliable_rx_pkts;
        assert!(arrived >= 80, "{arrived}");
    }
}

#[test]
fn regression_one_that_the_layer_above_refuses_costs_no_receive_buffer() {
    let mut pair = pair(Protection::Plain);
    pair.b.open_qp(Qpn(7), ReceiveBuffers::Counted(1));
    for verdict in [Status::RemoteBadAddress, Status::Ok] {
        pair.judge = Box::new(move |_| verdict);
        send(&mut pair, 1, 10).unwrap();
        pair.run_for(Duration::from_millis(1));
    }
    assert_eq!(pair.b.stats().unreliable_rx_pkts, 1);
    assert_eq!(pair.b.stats().drops[DropReason::NoReceiver as usize], 1);
}
