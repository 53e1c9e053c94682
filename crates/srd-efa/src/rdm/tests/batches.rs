//! Small messages that are sent together.

use super::*;
use srd_proto::Status;

/// Sends `n` messages of 8 bytes without a pause, each with its number.
fn burst(net: &mut Net, node: usize, to: Peer, from: u64, n: u64) {
    for number in from..from + n {
        let at = usize::try_from(8 * number).unwrap();
        net.nodes[node].ram.0[at..at + 8].copy_from_slice(&number.to_be_bytes());
        net.send(node, to, number, 8 * number, 8);
    }
}

#[test]
fn messages_in_one_go_travel_in_few_datagrams_and_in_order() {
    let mut net = Net { joins: true, ..Net::new(2) };
    let to = net.peer(0, 1);
    burst(&mut net, 0, to, 0, 1);
    net.run_ms(5);
    let before = net.nodes[0].endpoint.stats().data_pkts;
    burst(&mut net, 0, to, 1, 200);
    assert_eq!(
        net.nodes[0].rdm.is_coalescing(),
        (200 - 1) % wire::batch::BATCH_MESSAGES_MAX as u64 != 0
    );
    net.run_ms(5);
    let datagrams = net.nodes[0].endpoint.stats().data_pkts - before;
    assert!(datagrams < 15, "{datagrams} datagrams for 200 messages");
    for number in 0..201 {
        net.recv(1, None, number, 4096 + 8 * number, 8);
    }
    let expected: Vec<u8> = (0..201u64).flat_map(u64::to_be_bytes).collect();
    assert_eq!(net.bytes(1, 4096, 8 * 201), expected);
    assert_eq!((net.done(0).len(), net.done(1).len()), (201, 201));
    assert!(net.nodes[0].rdm.is_quiet());
}

#[test]
fn the_first_leaves_at_once_and_a_frame_that_is_full_does_not_wait() {
    let mut net = Net { joins: true, ..Net::new(2) };
    let to = net.peer(0, 1);
    net.send(0, to, 1, 0, 8);
    net.run_ms(5);
    let handed = |net: &Net| net.nodes[0].rdm.ops.iter().filter(|(_, op)| op.in_flight > 0).count();
    net.done(0);
    net.send(0, to, 1, 0, 8);
    assert_eq!((handed(&net), net.nodes[0].rdm.is_coalescing()), (1, false));
    for _ in 1..wire::batch::BATCH_MESSAGES_MAX {
        net.send(0, to, 1, 0, 8);
    }
    assert_eq!((handed(&net), net.nodes[0].rdm.is_coalescing()), (1, true));
    net.send(0, to, 1, 0, 8);
    assert_eq!(
        (handed(&net), net.nodes[0].rdm.is_coalescing()),
        (1 + wire::batch::BATCH_MESSAGES_MAX, false)
    );
}

#[test]
fn messages_of_one_datagram_wait_for_each_other_and_no_more_than_one_call_sends() {
    let mut net = Net { joins: true, ..Net::new(2) };
    net.core.packet_bytes_max = 8900;
    net.nodes = vec![net.node(0), net.node(1)];
    let to = net.peer(0, 1);
    net.fill(0, 0, 80_000, 5);
    net.send(0, to, 0, 0, 8);
    net.run_ms(5);
    let before = net.nodes[0].endpoint.stats().data_pkts;
    let handed = |net: &Net| net.nodes[0].rdm.ops.iter().filter(|(_, op)| op.in_flight > 0).count();
    for n in 1..=8 {
        net.send(0, to, n, n, 8000);
        // The first leaves at once; seven more are 56,000 bytes.
        assert_eq!((n, handed(&net), net.nodes[0].rdm.is_coalescing()), (n, 1, n > 1));
    }
    net.send(0, to, 9, 9, 8000);
    assert_eq!((handed(&net), net.nodes[0].rdm.is_coalescing()), (9, false));
    // A message that needs two datagrams does not wait.
    net.send(0, to, 10, 10, 9000);
    assert_eq!((handed(&net), net.nodes[0].rdm.is_coalescing()), (10, false));
    net.run_ms(5);
    assert_eq!(net.nodes[0].endpoint.stats().data_pkts - before, 9 + 2, "none shares a datagram");
    for n in 1..=10 {
        net.recv(1, None, n, 100_000 * n, 9000);
    }
    net.run_ms(5);
    for n in 1..=10 {
        let length = if n == 10 { 9000 } else { 8000 };
        assert_eq!(net.bytes(1, 100_000 * n, length), net.bytes(0, n, length), "{n}");
    }
}

/// A message without enough credit is sent as a long one (G4). In a BATCH it would be taken for a
/// whole message.
#[test]
fn messages_for_which_the_credit_does_not_suffice_leave_the_batch() {
    let many = Config { operations_max: 2048, receives_max: 2048, ..config() };
    let mut net = Net { joins: true, ..Net::with(2, many) };
    net.core.packet_bytes_max = 8900;
    net.nodes = vec![net.node(0), net.node(1)];
    // Credit for two thirds of the messages.
    net.nodes[1].rdm.bounds.window_bytes_max = 667 * (wire::message::MESSAGE_COST + 1500);
    let to = net.peer(0, 1);
    net.fill(0, 0, 8192, 7);
    net.send(0, to, 0, 0, 8);
    net.run_ms(5);
    for n in 1..1000 {
        net.send(0, to, n, n, 1500);
    }
    net.run_ms(5);
    assert!(net.nodes[0].rdm.counters().long_for_credit > 0);
    for n in 1..1000 {
        net.recv(1, None, n, 16_384 + 1500 * n, 1500);
    }
    net.run_ms(100);
    for n in 1..1000 {
        assert_eq!(net.bytes(1, 16_384 + 1500 * n, 1500), net.bytes(0, n, 1500), "{n}");
    }
    assert_eq!((net.done(0).len(), net.done(1).len()), (1000, 999));
    assert!(net.nodes[0].rdm.is_quiet());
}

#[test]
fn large_ones_between_them_keep_their_place_over_a_bad_wire() {
    for seed in 0..10 {
        let wire = Wire { rng: Rng::new(seed), ..bad_wire() };
        let mut net = Net { joins: true, wire, ..Net::bad(2) };
        let to = net.peer(0, 1);
        let lengths: Vec<u64> =
            (0..100).map(|n| [8, 512, 513, 0, 1, 3000, 70_000][n % 7]).collect();
        net.fill(0, 0, 70_000, seed);
        for (n, length) in lengths.iter().enumerate() {
            let until = [Until::Transmitted, Until::Delivered][n % 2];
            let iov = [Iov { addr: 0, length: *length }];
            net.try_send(0, Message { until, ..message(to, 5, &iov) }).unwrap();
            if n % 40 == 0 {
                net.run_us(100);
            }
        }
        for n in 0..100 {
            let context = 100_000 + 70_000 * n;
            let iov = [Iov { addr: context, length: 70_000 }];
            let receive = Receive { context, ..receive(None, 5, &iov) };
            net.on(1, |rdm, world| rdm.recv(world, receive)).unwrap();
        }
        net.run_ms(300);
        let mut got = net.done(1);
        got.sort_by_key(|done| done.context);
        assert_eq!(
            got.iter().map(|done| done.length).collect::<Vec<u64>>(),
            lengths,
            "seed {seed}"
        );
        for done in &got {
            assert_eq!(net.bytes(1, done.context, done.length), net.bytes(0, 0, done.length));
        }
        let ends = net.outcomes(0);
        assert_eq!(ends.len(), lengths.len(), "seed {seed}");
        assert!(ends.iter().all(|(_, _, outcome)| *outcome == Outcome::Ok));
    }
}

#[test]
fn a_path_that_passes_only_small_packets_gets_them_one_by_one() {
    let mut net = Net { joins: true, ..Net::new(2) };
    net.core.mtu_discovery = true;
    net.nodes = vec![net.node(0), net.node(1)];
    net.wire.mtu_bytes = 1300;
    let to = net.peer(0, 1);
    burst(&mut net, 0, to, 0, 100);
    net.fill(0, 4096, 500, 1);
    for _ in 0..20 {
        net.send(0, to, 900, 4096, 500);
    }
    net.run_ms(2000);
    for number in 0..100 {
        net.recv(1, None, number, 8 * number, 8);
    }
    for _ in 0..20 {
        net.recv(1, None, 900, 4096, 500);
    }
    assert_eq!((net.done(0).len(), net.done(1).len()), (120, 120));
    let expected: Vec<u8> = (0..100u64).flat_map(u64::to_be_bytes).collect();
    assert_eq!(net.bytes(1, 0, 800), expected);
}

#[test]
fn a_restart_ends_each_of_them_once() {
    let mut net = Net { joins: true, ..Net::new(2) };
    let to = net.exact(0, 1);
    burst(&mut net, 0, to, 0, 1);
    net.run_ms(5);
    burst(&mut net, 0, to, 1, 100);
    net.wire.dead = Some(1);
    net.run_us(200);
    net.wire.dead = None;
    net.restart(1);
    net.run_ms(500);
    let ends = net.outcomes(0);
    assert_eq!(ends.len(), 101);
    assert_eq!(ends.iter().filter(|end| end.2 == Outcome::Ok).count(), 1, "{ends:?}");
    assert!(net.nodes[0].rdm.is_quiet());
}

#[test]
fn without_room_for_all_none_is_taken_and_they_come_again() {
    let small = Config { operations_max: 256, receives_max: 1, ..config() };
    let mut net = Net { joins: true, ..Net::with(2, small) };
    let to = net.peer(0, 1);
    let back = net.peer(1, 0);
    // The receiver does not poll the completions of its own sends.
    for _ in 0..200 {
        net.send(1, back, 1, 0, 8);
        net.run_us(100);
    }
    assert!(net.nodes[1].rdm.done.len() >= 200);
    burst(&mut net, 0, to, 0, 200);
    net.run_ms(50);
    let mut got = Vec::new();
    for number in 0..200 {
        while net.nodes[1].rdm.done.len() > 200 {
            net.nodes[1].rdm.poll();
        }
        net.recv(1, None, number, 4096 + 8 * number, 8);
        net.run_ms(5);
        got.extend(net.done(1).iter().filter(|d| d.kind == Kind::Receive).map(|d| d.tag));
    }
    net.run_ms(1000);
    got.extend(net.done(1).iter().filter(|d| d.kind == Kind::Receive).map(|d| d.tag));
    assert_eq!(got, (0..200).collect::<Vec<u64>>());
}

#[test]
fn what_no_sender_joins_is_malformed() {
    let whole = |id| {
        let header = wire::message::MessageHeader { id, tag: Some(7), data: None, token: None };
        let mut frame = wire::message::encode(&header, None, 8);
        frame.extend_from_slice(&[1; 8]);
        frame.to_vec()
    };
    let part = |id| {
        let header = wire::message::MessageHeader { id, tag: None, data: None, token: None };
        wire::message::encode(&header, Some(100), 0).to_vec()
    };
    let join = |count: u8, first: u32, frames: &[Vec<u8>]| {
        let mut bytes = vec![wire::batch::KIND, count, 0, 0];
        bytes.extend_from_slice(&first.to_be_bytes());
        for frame in frames {
            bytes.extend_from_slice(&u16::try_from(frame.len()).unwrap().to_be_bytes());
            bytes.extend_from_slice(frame);
        }
        bytes
    };
    let good = join(2, 5, &[whole(5), whole(6)]);
    assert!(wire::frame::Frame::decode(&good).is_some());
    for end in 0..good.len() {
        assert_eq!(wire::frame::Frame::decode(&good[..end]), None, "{end} bytes of it");
    }
    let many: Vec<Vec<u8>> = (0..33).map(whole).collect();
    let bad = [
        ("one alone", join(1, 5, &[whole(5)])),
        ("none", join(0, 5, &[])),
        ("more than counted", join(2, 5, &[whole(5), whole(6), whole(7)])),
        ("fewer than counted", join(3, 5, &[whole(5), whole(6)])),
        ("a gap", join(2, 5, &[whole(5), whole(7)])),
        ("another first", join(2, 4, &[whole(5), whole(6)])),
        ("a part", join(2, 5, &[whole(5), part(6)])),
        ("batch in batch", join(2, 5, &[whole(5), good.clone()])),
        ("too many", join(33, 0, &many)),
    ];
    for (what, bytes) in bad {
        assert_eq!(wire::frame::Frame::decode(&bytes), None, "{what}");
    }
    let mut net = Net::new(2);
    // A third of it fits into one message of a BATCH.
    net.nodes[1].rdm.bounds.window_bytes_max = 120_000;
    let to = net.peer(0, 1);
    net.send(0, to, 1, 0, 8);
    net.run_ms(5);
    let peer = net.nodes[1].endpoint.peer_at(address(0)).unwrap();
    let Node { rdm, ram, .. } = &mut net.nodes[1];
    let index = rdm.conn_of(peer).unwrap();
    let incoming = rdm.conn(index).unwrap().incoming.unwrap();
    let imm = crate::wire::Opaque::Send { check: incoming.check, imm: None }.encode();
    let mut throw = |payload: &[u8]| {
        let delivery = srd_proto::Delivery {
            peer,
            src_qpn: QPN,
            dst_qpn: QPN,
            imm,
            reliable: true,
            ce: false,
            payload,
        };
        rdm.admit(net.now, &delivery, ram)
    };
    assert_eq!(throw(&join(2, 1, &[whole(1), part(2)])), Status::RemoteBadLength);
    // The messages exceed its credit. No datagram is that large, but only the sum matters.
    let left = incoming.unused as usize;
    let large = |id| [whole(id), vec![0; left / 3]].concat();
    let over = join(3, 1, &[large(1), large(2), large(3)]);
    assert!(wire::frame::Frame::decode(&over).is_some());
    assert_eq!(throw(&over), Status::RemoteBadLength);
    assert_eq!(throw(&join(2, 1, &[whole(1), whole(2)])), Status::Ok);
    assert_eq!(throw(&join(2, 1, &[whole(1), whole(2)])), Status::RemoteBadLength, "again");
    assert_eq!(rdm.counters().unexpected, 3);
}
