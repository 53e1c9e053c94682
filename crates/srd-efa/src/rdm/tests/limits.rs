//! Every limit is reached, and no operation fails because of it.

use super::*;

#[test]
fn a_long_message_that_nobody_received_can_be_given_up_and_no_other_suffers() {
    let mut net = Net::new(2);
    let to = net.peer(0, 1);
    net.fill(0, 0, 300_000, 3);
    for tag in [1, 2] {
        net.send(0, to, tag, 0, 300_000);
    }
    net.run_ms(20);
    net.on(0, |rdm, _| rdm.cancel_send(1));
    assert_eq!(net.outcomes(0), [(Kind::Send, 1, Outcome::Cancelled)]);
    // Changes memory after the bytes of both messages only: the messages use the same bytes.
    net.fill(0, 300_000, 8, 4);
    for (tag, at) in [(1, 1 << 20), (2, 2 << 20)] {
        net.recv(1, None, tag, at, 300_000);
    }
    net.run_ms(50);
    let ended = [(Kind::Receive, 1, Outcome::Protocol), (Kind::Receive, 2, Outcome::Ok)];
    let mut outcomes = net.outcomes(1);
    outcomes.sort_by_key(|(_, context, _)| *context);
    assert_eq!(outcomes, ended);
    assert!(net.bytes(1, 2 << 20, 300_000) == net.bytes(0, 0, 300_000));
    assert_eq!(net.outcomes(0), [(Kind::Send, 2, Outcome::Ok)]);
    assert_eq!(net.nodes[0].rdm.ops.len(), 0);
    // Cancels a message that waits because its peer has not started yet, and a message that does
    // not exist.
    net.send(0, to, 3, 0, 8);
    net.on(0, |rdm, _| rdm.cancel_send(3));
    net.on(0, |rdm, _| rdm.cancel_send(99));
    net.run_ms(50);
    assert_eq!(net.outcomes(0).len(), 1);
    assert_eq!(net.nodes[0].rdm.ops.len(), 0);
}

#[test]
fn with_one_operation_each_an_all_to_all_of_64_deep_ends() {
    for length in [8u64, 20_000, 70_000] {
        let nodes = 4;
        let mut net = Net::with(nodes, Config { operations_max: 1, ..config() });
        (net.wire.loss_permille, net.wire.jitter_us) = (20, 100);
        let mut peers = Vec::new();
        for at in 0..nodes {
            peers.push((0..nodes).map(|of| net.peer(at, of)).collect::<Vec<_>>());
        }
        for (node, peers) in peers.iter().enumerate() {
            net.fill(node, 0, length, node as u64);
            for (from, peer) in peers.iter().enumerate() {
                for _ in 0..64 {
                    let at = (1 << 20) + from as u64 * 100_000;
                    net.recv(node, Some(*peer), 1, at, length);
                }
            }
        }
        let mut to_send = vec![vec![64; nodes]; nodes];
        let (mut sent, mut received) = (0, 0);
        for _ in 0..200_000 {
            for node in 0..nodes {
                for to in 0..nodes {
                    let iov = [Iov { addr: 0, length }];
                    if to_send[node][to] > 0
                        && net.try_send(node, message(peers[node][to], 1, &iov)).is_ok()
                    {
                        to_send[node][to] -= 1;
                    }
                }
                for done in net.done(node) {
                    assert_eq!(done.outcome, Outcome::Ok);
                    *(if done.kind == Kind::Send { &mut sent } else { &mut received }) += 1;
                }
            }
            if (sent, received) == (64 * nodes * nodes, 64 * nodes * nodes) {
                break;
            }
            net.run_us(200);
        }
        assert_eq!((sent, received), (64 * nodes * nodes, 64 * nodes * nodes), "{length}");
        for node in 0..nodes {
            let at = (1 << 20) + node as u64 * 100_000;
            assert!(net.bytes(0, at, length) == net.bytes(node, 0, length));
        }
    }
}

#[test]
fn operations_beyond_the_limit_are_refused_and_taken_later() {
    let mut net = Net::with(2, Config { operations_max: 3, ..config() });
    let to = net.peer(0, 1);
    let iov = [Iov { addr: 0, length: 1 }];
    for _ in 0..3 {
        net.try_send(0, message(to, 1, &iov)).unwrap();
    }
    assert_eq!(net.try_send(0, message(to, 1, &iov)), Err(Refused::Again));
    net.run_ms(5);
    net.try_send(0, message(to, 1, &iov)).unwrap();
}

#[test]
fn receives_and_ends_that_nobody_polls_have_a_bound() {
    let mut net = Net::with(2, Config { operations_max: 2, receives_max: 4, ..config() });
    for _ in 0..4 {
        net.recv(1, None, 1, 0, 1);
    }
    let iov = [Iov { addr: 0, length: 1 }];
    let more = net.on(1, |rdm, world| rdm.recv(world, receive(None, 1, &iov)));
    assert_eq!(more, Err(Refused::Again));
    for _ in 0..4 {
        assert!(net.nodes[1].rdm.cancel(1));
    }
    let most = net.nodes[1].rdm.bounds.dones_max;
    let want = Selector { tag: 9, ignore: 0, source: None };
    for n in 4..most + 1 {
        let looked = net.on(1, |rdm, _| rdm.peek(true, want, Peek::Look, 0));
        assert_eq!(looked.is_ok(), n < most);
    }
    let to = net.peer(0, 1);
    net.send(0, to, 1, 0, 1);
    net.run_ms(20);
    assert!(net.done(0).is_empty(), "it waits: the receiver has no room to tell of it");
    assert!(net.nodes[1].rdm.counters().rnr > 0);
    assert_eq!(net.done(1).len(), most);
    net.recv(1, None, 1, 0, 1);
    net.run_ms(2000);
    assert_eq!((net.done(0).len(), net.done(1).len()), (1, 1));
}

#[test]
fn a_receiver_that_posts_late_stops_its_sender_by_credit_and_nothing_fails() {
    let mut net = Net::with(2, Config { operations_max: 2000, receives_max: 2000, ..config() });
    for node in &mut net.nodes {
        node.rdm.bounds.credit_bytes = 0; // every peer gets the smallest credit
    }
    let to = net.peer(0, 1);
    for n in 0..1000u64 {
        net.nodes[0].ram.0[usize::try_from(n).unwrap()] = u8::try_from(n % 251).unwrap();
        net.send(0, to, 1, n, 1 + n % 3);
    }
    for _ in 0..100 {
        net.send(0, to, 2, 0, 5000);
    }
    net.run_ms(3000);
    let window = net.nodes[1].rdm.bounds.window_bytes_min;
    let kept = net.nodes[1].rdm.tagged.len().1 as u64;
    assert!(kept <= window / wire::message::MESSAGE_COST && kept > 50, "{kept}");
    assert_eq!(net.done(0).len() as u64, kept);
    for n in 0..1000u64 {
        net.recv(1, None, 1, (1 << 20) + 3 * n, 3);
    }
    for _ in 0..100 {
        net.recv(1, None, 2, 2 << 20, 5000);
    }
    net.run_ms(500);
    assert_eq!(net.done(1).len(), 1100);
    let ok = net.done(0).iter().filter(|d| d.outcome == Outcome::Ok).count() as u64;
    assert_eq!(ok + kept, 1100);
    for n in 0..1000u64 {
        assert_eq!(net.bytes(1, (1 << 20) + 3 * n, 1), net.bytes(0, n, 1));
    }
}

#[test]
fn regression_the_longest_injected_messages_need_no_more_credit_than_is_granted() {
    let mut net = Net::new(2);
    net.core.packet_bytes_max = 9000;
    for node in 0..2 {
        net.nodes[node] = net.node(node);
        net.nodes[node].rdm.bounds.credit_bytes = 0;
    }
    let to = net.peer(0, 1);
    let most = net.nodes[0].rdm.inject_bytes_max();
    assert!(most > 7000, "{most}");
    for length in (1..=most).rev().step_by(61).chain([1, most]) {
        for (tag, length) in [(1, length), (2, most)] {
            net.recv(1, None, tag, 0, length);
            let iov = [Iov { addr: 0, length }];
            let injected = Message { until: Until::Injected, ..message(to, tag, &iov) };
            net.try_send(0, injected).unwrap();
            net.run_ms(50);
            assert_eq!(net.done(1).len(), 1, "{length} {tag}");
            net.done(0);
        }
    }
}

#[test]
fn without_credit_for_its_bytes_a_message_is_read_by_its_receiver() {
    let mut net = Net::new(2);
    for node in &mut net.nodes {
        node.rdm.bounds.credit_bytes = 0;
    }
    let to = net.peer(0, 1);
    net.fill(0, 0, 100_000, 7);
    for n in 0..10 {
        net.send(0, to, 1, n * 10_000, 10_000);
    }
    net.run_ms(100);
    assert_eq!(net.done(0).len(), 1, "one went with its bytes");
    assert_eq!(net.nodes[0].rdm.counters().long_for_credit, 9);
    for n in 0..10 {
        net.recv(1, None, 1, n * 10_000, 10_000);
    }
    net.run_ms(100);
    assert_eq!(net.done(0).len(), 9);
    assert!(net.bytes(1, 0, 100_000) == net.bytes(0, 0, 100_000));
}

#[test]
fn a_full_reorder_pool_refuses_what_is_early_and_the_messages_go_on() {
    let mut net = Net::bad(2);
    net.nodes[1].rdm.bounds.reorder_bytes_max = 1600; // two small messages of a peer
    let to = net.peer(0, 1);
    for n in 0..100u64 {
        net.nodes[0].ram.0[usize::try_from(n).unwrap()] = u8::try_from(n).unwrap();
    }
    for n in 0..100 {
        net.recv(1, None, 1, n, 1);
        net.send(0, to, 1, n, 1);
    }
    net.send(0, to, 2, 0, 40_000);
    net.recv(1, None, 2, 100_000, 40_000);
    net.run_ms(60_000);
    assert_eq!(net.done(1).len(), 101);
    assert_eq!(net.bytes(1, 0, 100), net.bytes(0, 0, 100));
    assert!(net.nodes[1].rdm.counters().rnr > 0, "the limit was reached");
    assert_eq!(net.nodes[1].rdm.reorder_bytes, 0);
}

#[test]
fn the_receiver_has_so_many_reads_under_way_and_cuts_long_ones() {
    let mut net = Net::new(5);
    net.nodes[0].rdm.bounds.reads_max = 2;
    net.nodes[0].rdm.bounds.read_bytes_max = 50_000;
    for node in 1..5 {
        let to = net.peer(node, 0);
        net.fill(node, 0, 220_000, node as u64);
        for n in 0..2 {
            net.recv(0, None, node as u64, (node as u64 * 2 + n) << 18, 220_000);
            net.send(node, to, node as u64, 0, 220_000);
        }
    }
    let mut most = 0;
    while net.nodes[0].rdm.done.len() < 8 {
        net.run_us(50);
        most = most.max(net.nodes[0].rdm.reads_active);
    }
    assert_eq!(most, 2);
    for node in 1..5 {
        for n in 0..2 {
            let at = (node as u64 * 2 + n) << 18;
            assert!(net.bytes(0, at, 220_000) == net.bytes(node, 0, 220_000));
        }
    }
}

#[test]
fn a_peer_costs_at_most_2_kilobytes_without_buffers() {
    let conn = size_of::<peers::connection::Connection>();
    let beside = size_of::<peers::connection::Entry>() + size_of::<((SocketAddr, u64), u32)>();
    std::println!("connection {conn}, beside {beside}");
    assert!(conn + 2 * beside <= 648, "{conn} {beside}");
    assert!(size_of::<Op>() <= 400, "{}", size_of::<Op>());
}
