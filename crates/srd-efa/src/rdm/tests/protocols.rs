//! Messages of every length.

use super::*;

/// Lengths around every boundary between short messages, messages in parts and long messages.
const LENGTHS: [u64; 8] = [0, 1, 1300, 1500, 20_000, 65_536, 65_537, 400_000];

#[test]
fn every_length_arrives_whole_over_a_bad_wire_expected_or_not() {
    for until in [Until::Transmitted, Until::Delivered] {
        let mut net = Net::bad(2);
        let to = net.exact(0, 1);
        net.fill(0, 0, 500_000, 9);
        for expected in [true, false] {
            for (tag, length) in (1..).zip(LENGTHS) {
                if expected {
                    net.recv(1, None, tag, 1 << 20, length);
                }
                let iov = [Iov { addr: tag, length }];
                net.try_send(0, Message { until, ..message(to, tag, &iov) }).unwrap();
                net.run_ms(100);
                if !expected {
                    assert!(net.done(1).is_empty());
                    net.recv(1, None, tag, 1 << 20, length);
                    net.run_ms(100);
                }
                let done = net.done(1);
                assert_eq!(done.len(), 1, "{length} {expected}");
                assert_eq!((done[0].outcome, done[0].length), (Outcome::Ok, length));
                assert_eq!(net.bytes(1, 1 << 20, length), net.bytes(0, tag, length), "{length}");
                net.run_ms(100);
                assert_eq!(net.outcomes(0), [(Kind::Send, tag, Outcome::Ok)]);
            }
        }
        assert!(net.nodes.iter().all(|node| node.rdm.is_quiet()));
        assert_eq!(net.nodes[1].rdm.partials.len() + net.nodes[1].rdm.reorder_bytes, 0);
    }
}

#[test]
fn pieces_of_both_ends_need_not_fit_each_other() {
    let mut net = Net::bad(2);
    let to = net.peer(0, 1);
    net.fill(0, 0, 1 << 20, 4);
    for (tag, whole) in [(1, 700u64), (2, 30_000), (3, 300_000)] {
        let cut = whole / 3;
        let from = [
            Iov { addr: 0, length: cut },
            Iov { addr: 500_000, length: 0 },
            Iov { addr: 600_000, length: whole - cut },
        ];
        let into = [
            Iov { addr: 1 << 20, length: whole / 2 },
            Iov { addr: 2 << 20, length: whole - whole / 2 },
        ];
        net.on(1, |rdm, world| rdm.recv(world, receive(None, tag, &into))).unwrap();
        net.try_send(0, message(to, tag, &from)).unwrap();
        net.run_ms(200);
        let sent = [net.bytes(0, 0, cut), net.bytes(0, 600_000, whole - cut)].concat();
        let half = whole / 2;
        let got = [net.bytes(1, 1 << 20, half), net.bytes(1, 2 << 20, whole - half)].concat();
        assert!(sent == got, "{whole}");
    }
    assert_eq!((net.done(0).len(), net.done(1).len()), (3, 3));
}

#[test]
fn a_message_that_is_too_long_is_cut_and_says_by_how_much() {
    for expected in [true, false] {
        let mut net = Net::new(2);
        let to = net.peer(0, 1);
        net.fill(0, 0, 400_000, 4);
        for (tag, length) in [(1, 1000u64), (2, 20_000), (3, 400_000)] {
            let room = length - 777;
            net.nodes[1].ram.0[1 << 20..(1 << 20) + 500_000].fill(0xee);
            if expected {
                net.recv(1, None, tag, 1 << 20, room);
            }
            net.send(0, to, tag, 0, length);
            net.run_ms(50);
            if !expected {
                net.recv(1, None, tag, 1 << 20, room);
                net.run_ms(50);
            }
            let done = net.done(1);
            assert_eq!((done[0].outcome, done[0].length), (Outcome::Truncated(777), room));
            assert_eq!(net.bytes(1, 1 << 20, room), net.bytes(0, 0, room));
            assert_eq!(net.bytes(1, (1 << 20) + room, 1), [0xee], "nothing behind the room");
            assert_eq!(net.outcomes(0), [(Kind::Send, tag, Outcome::Ok)]);
        }
    }
}

#[test]
fn a_delivered_message_ends_when_it_stands_in_its_receive_and_not_before() {
    for length in [8, 10_000, 200_000] {
        let mut net = Net::new(2);
        let to = net.peer(0, 1);
        let iov = [Iov { addr: 0, length }];
        let delivered = Message { until: Until::Delivered, ..message(to, 1, &iov) };
        net.try_send(0, delivered).unwrap();
        net.run_ms(50);
        assert!(net.done(0).is_empty());
        assert!(!net.nodes[0].rdm.is_quiet());
        net.recv(1, None, 1, 0, length);
        net.run_ms(50);
        assert_eq!(net.outcomes(0), [(Kind::Send, 1, Outcome::Ok)]);
    }
}

#[test]
fn an_injected_message_ends_at_once_and_its_buffer_may_change() {
    let mut net = Net::bad(2);
    let to = net.peer(0, 1);
    let length = net.nodes[0].rdm.inject_bytes_max();
    net.fill(0, 0, length, 5);
    let sent = net.bytes(0, 0, length).to_vec();
    let iov = [Iov { addr: 0, length }];
    let injected = Message { until: Until::Injected, ..message(to, 1, &iov) };
    net.try_send(0, injected).unwrap();
    assert_eq!(net.outcomes(0), [(Kind::Send, 1, Outcome::Ok)]);
    net.fill(0, 0, length, 6);
    net.run_ms(50);
    net.recv(1, None, 1, 0, length);
    assert!(net.bytes(1, 0, length) == sent);
    assert!(net.done(0).is_empty(), "it was told");
    let longer = [Iov { addr: 0, length: length + 1 }];
    let too_long = Message { iov: &longer, ..injected };
    assert_eq!(net.try_send(0, too_long), Err(Refused::TooLong));
}

#[test]
fn data_and_tags_of_64_bits_arrive_and_messages_without_tags_match_their_own() {
    let mut net = Net::new(2);
    let to = net.peer(0, 1);
    let iov = [Iov { addr: 0, length: 4 }];
    let tag = 0xfeed_0000_dead_beef;
    net.recv(1, None, tag, 0, 4);
    let plain = Message { tag: None, data: Some(u64::MAX), ..message(to, 9, &iov) };
    net.try_send(0, plain).unwrap();
    net.try_send(0, Message { data: Some(5), ..message(to, tag, &iov) }).unwrap();
    net.run_ms(5);
    let done = net.done(1);
    assert_eq!((done[0].tag, done[0].data, done[0].tagged), (tag, Some(5), true));
    assert_eq!(done.len(), 1, "the one without a tag waits");
    let want = Selector { tag: 0, ignore: u64::MAX, source: None };
    let receive = Receive { tagged: false, want, ..receive(None, 0, &iov) };
    net.on(1, |rdm, world| rdm.recv(world, receive)).unwrap();
    let done = net.done(1);
    assert_eq!((done[0].data, done[0].tagged), (Some(u64::MAX), false));
}

#[test]
fn packets_too_large_for_the_path_are_cut_smaller_and_arrive() {
    let mut net = Net::new(2);
    net.core.mtu_discovery = true;
    net.core.packet_bytes_max = 8900;
    for node in 0..2 {
        net.restart(node);
    }
    net.wire.mtu_bytes = 1500;
    let to = net.peer(0, 1);
    net.fill(0, 0, 300_000, 8);
    let lengths = [6000u64, 40_000, 200_000, 8, 8000];
    for (tag, length) in (1..).zip(lengths) {
        net.recv(1, None, tag, tag << 19, length);
        net.send(0, to, tag, 0, length);
    }
    net.run_ms(2000);
    assert_eq!(net.done(0).iter().filter(|d| d.outcome == Outcome::Ok).count(), lengths.len());
    assert_eq!(net.done(1).len(), lengths.len());
    for (tag, length) in (1..).zip(lengths) {
        assert!(net.bytes(1, tag << 19, length) == net.bytes(0, 0, length), "{length}");
    }
}
