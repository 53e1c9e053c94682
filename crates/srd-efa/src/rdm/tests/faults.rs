//! Restarts, silent peers, removed peers, and HELLO.

use super::*;

#[test]
fn a_message_for_an_earlier_run_is_refused_and_one_for_whoever_is_there_arrives() {
    let mut net = Net::new(2);
    let stale = net.exact(0, 1);
    net.restart(1);
    let (anyone, exact) = (net.peer(0, 1), net.exact(0, 1));
    assert_eq!(vec![stale, anyone, exact], vec![Peer(0), Peer(1), Peer(2)]);
    for (tag, to) in [(1, stale), (2, anyone), (3, exact), (1, stale), (2, anyone)] {
        net.send(0, to, tag, 0, 8);
        net.run_ms(20);
        let expected = if tag == 1 { Outcome::Restarted } else { Outcome::Ok };
        assert_eq!(net.outcomes(0), [(Kind::Send, tag, expected)]);
    }
    for tag in [2, 3, 2] {
        net.recv(1, None, tag, 0, 8);
    }
    assert_eq!(net.done(1).len(), 3);
    let run = net.nodes[1].incarnation;
    assert_eq!(net.nodes[0].rdm.address_of(anyone), Some((address(1), run)));
    assert_eq!(net.nodes[0].rdm.address_of(stale), Some((address(1), run - 1000)));
}

#[test]
fn a_restart_ends_what_is_under_way_and_the_new_run_is_reached() {
    for aimed in [true, false] {
        for (length, until) in
            [(8, Until::Delivered), (30_000, Until::Delivered), (200_000, Until::Transmitted)]
        {
            let mut net = Net::new(2);
            let to = if aimed { net.exact(0, 1) } else { net.peer(0, 1) };
            let iov = [Iov { addr: 0, length }];
            net.try_send(0, Message { until, ..message(to, 1, &iov) }).unwrap();
            net.run_ms(20);
            assert!(net.done(0).is_empty(), "nobody has received it");
            net.restart(1);
            net.send(0, to, 2, 0, 8);
            net.run_ms(1500);
            let mut ended = net.outcomes(0);
            ended.sort_by_key(|(_, tag, _)| *tag);
            assert_eq!(ended[0], (Kind::Send, 1, Outcome::Restarted), "{aimed} {length}");
            assert_eq!(ended.len(), 2, "{aimed} {length}: {ended:?}");
            let to = net.exact(0, 1);
            net.send(0, to, 3, 0, 8);
            net.run_ms(50);
            assert_eq!(net.outcomes(0), [(Kind::Send, 3, Outcome::Ok)]);
            assert!(net.nodes[0].rdm.is_quiet());
        }
    }
}

#[test]
fn a_receiver_whose_sender_restarts_in_the_middle_is_told() {
    for length in [60_000u64, 1_500_000] {
        let mut net = Net::new(2);
        let to = net.peer(0, 1);
        net.send(0, to, 5, 0, 1);
        net.run_ms(5);
        net.recv(1, None, 1, 0, length);
        net.send(0, to, 1, 0, length);
        net.wire.loss_permille = 300;
        while net.nodes[1].rdm.tagged.len().0 > 0 {
            net.run_us(10);
        }
        net.restart(0);
        net.wire.loss_permille = 0;
        let to = net.peer(0, 1);
        net.send(0, to, 2, 0, 1);
        net.run_ms(2000);
        let done = net.done(1);
        assert_eq!(done.len(), 1, "{done:?}");
        assert!(matches!(done[0].outcome, Outcome::Restarted | Outcome::Protocol), "{done:?}");
        net.recv(1, None, 2, 0, 1);
        assert_eq!(net.done(1).len(), 1, "the new run's message");
    }
}

#[test]
fn a_peer_that_never_answers_is_unreachable_and_one_that_falls_silent_unresponsive() {
    let mut net = Net::new(2);
    net.wire.dead = Some(1);
    let to = net.peer(0, 1);
    net.send(0, to, 1, 0, 8);
    net.send(0, to, 2, 0, 300_000);
    let local = [Iov { addr: 0, length: 8 }];
    let remote = [RmaIov { addr: 0, length: 8, rkey: 1 }];
    let read = Rma {
        to,
        read: true,
        local: &local,
        remote: &remote,
        data: None,
        context: 3,
        until: Until::Transmitted,
        signaled: false,
    };
    net.on(0, |rdm, world| rdm.rma(world, read)).unwrap();
    net.run_ms(3000);
    let all = |net: &mut Net| net.outcomes(0).iter().map(|(_, _, o)| *o).collect::<Vec<_>>();
    assert_eq!(all(&mut net), [Outcome::Unreachable; 3]);
    net.wire.dead = None;
    net.send(0, to, 1, 0, 8);
    net.run_ms(2000);
    assert_eq!(all(&mut net), [Outcome::Ok]);
    net.wire.dead = Some(1);
    let iov = [Iov { addr: 0, length: 8 }];
    net.send(0, to, 1, 0, 8);
    net.try_send(0, Message { until: Until::Delivered, ..message(to, 1, &iov) }).unwrap();
    net.send(0, to, 1, 0, 300_000);
    net.run_ms(3000);
    assert_eq!(all(&mut net), [Outcome::Unresponsive; 3]);
    net.wire.dead = None;
    net.send(0, to, 7, 0, 8);
    net.run_ms(2000);
    net.recv(1, None, 7, 0, 8);
    assert_eq!(all(&mut net), [Outcome::Ok], "a new session");
    assert_eq!(net.done(1).len(), 1);
    assert!(net.nodes.iter().all(|node| node.rdm.is_quiet()));
}

#[test]
fn a_peer_that_is_removed_ends_what_waits_for_it_and_stays_known_if_it_wrote() {
    let mut net = Net::new(2);
    let (to, twice) = (net.peer(0, 1), net.peer(0, 1));
    assert_eq!(to, twice);
    let back = net.peer(1, 0);
    net.send(1, back, 4, 0, 8);
    let iov = [Iov { addr: 0, length: 8 }];
    net.try_send(0, Message { until: Until::Delivered, ..message(to, 1, &iov) }).unwrap();
    net.send(0, to, 2, 0, 300_000);
    net.run_ms(20);
    net.on(0, |rdm, world| rdm.remove_peer(world, to));
    assert!(net.done(0).is_empty(), "it was added twice");
    net.on(0, |rdm, world| rdm.remove_peer(world, to));
    net.run_ms(20);
    let mut ended = net.outcomes(0);
    ended.sort_by_key(|(_, tag, _)| *tag);
    assert_eq!(ended, [(Kind::Send, 1, Outcome::Removed), (Kind::Send, 2, Outcome::Removed)]);
    net.recv(0, Some(to), 4, 0, 8);
    assert_eq!(net.done(0)[0].peer, Some(to));
    net.recv(1, None, 2, 0, 300_000);
    net.run_ms(20);
    assert_eq!(net.outcomes(1).last(), Some(&(Kind::Receive, 2, Outcome::Protocol)));
    assert_eq!(net.peer(0, 1), to, "and has its number again");
    net.send(0, to, 3, 0, 8);
    net.run_ms(20);
    assert_eq!(net.outcomes(0), [(Kind::Send, 3, Outcome::Ok)]);
}

#[test]
fn both_greet_at_once_and_a_stranger_gets_the_lowest_free_number() {
    let mut net = Net::bad(3);
    let a = net.peer(0, 1);
    let b = net.peer(1, 0);
    for _ in 0..20 {
        net.send(0, a, 1, 0, 8);
        net.send(1, b, 1, 0, 8);
    }
    let c = net.peer(2, 0);
    net.send(2, c, 1, 0, 8);
    net.run_ms(200);
    for _ in 0..20 {
        net.recv(0, Some(a), 1, 0, 8);
        net.recv(1, Some(b), 1, 0, 8);
    }
    net.recv(0, None, 1, 0, 8);
    assert_eq!(net.done(1).len(), 40);
    let received: Vec<_> =
        net.done(0).iter().filter(|d| d.kind == Kind::Receive).map(|d| d.peer).collect();
    assert_eq!(received.len(), 21);
    assert_eq!(received[20], Some(Peer(1)));
    let run = net.nodes[2].incarnation;
    assert_eq!(net.nodes[0].rdm.address_of(Peer(1)), Some((address(2), run)));
    assert_eq!(net.exact(0, 2), Peer(1), "added by its name it is the same");
    assert_eq!(net.on(0, |rdm, world| rdm.add_peer(world, address(0), 5)), Ok(Peer(2)));
    net.send(0, Peer(2), 1, 0, 8);
    assert_eq!(net.outcomes(0), [(Kind::Send, 1, Outcome::Restarted)], "an earlier run of ours");
}

#[test]
fn regression_a_message_does_not_end_while_parts_of_it_are_on_their_way() {
    let mut ends = 0;
    for seed in 0..30 {
        let mut net = Net::bad(2);
        net.wire.rng = Rng::new(seed);
        net.core.send_queue_datagrams_max = 8;
        net.restart(0);
        let to = net.peer(0, 1);
        net.recv(1, None, 7, 0, 60_000);
        net.send(0, to, 7, 0, 60_000);
        let peer = net.nodes[0].endpoint.peer_at(address(1)).unwrap();
        let mut doubted = false;
        for _ in 0..2000 {
            net.run_us(20);
            let rdm = &mut net.nodes[0].rdm;
            let index = rdm.conn_of(peer).unwrap();
            let begun = |op: &Op| op.acked > 0 && op.in_flight > 0 && op.queued;
            if !doubted && rdm.ops.iter().any(|(_, op)| begun(op)) {
                // The state after a write that the peer refused.
                doubted = true;
                rdm.conn_mut(index).unwrap().in_doubt = true;
                rdm.wake(index);
            }
            if !rdm.done.is_empty() {
                let in_flight = rdm.conn(index).unwrap().in_flight;
                assert_eq!(in_flight, 0, "seed {seed}: the buffer is still being sent");
                ends += u32::from(doubted);
                break;
            }
        }
    }
    assert!(ends > 10, "{ends} of 30");
}

#[test]
fn regression_a_hello_that_a_peer_took_with_it_is_sent_again() {
    let mut net = Net::new(2);
    let to = net.peer(0, 1);
    net.send(0, to, 7, 0, 100);
    for _ in 0..100 {
        net.drain();
        net.now += Duration::from_micros(30);
        net.arrivals();
        if !net.nodes[1].rdm.hellos.is_empty() {
            break;
        }
    }
    assert_eq!(net.nodes[1].rdm.hellos.len(), 1);
    // The node ends before it answers, but its transport has acknowledged.
    net.nodes[1].rdm.hellos.clear();
    net.run_ms(20);
    assert_eq!(net.done(0).len(), 0);
    net.restart(1);
    net.recv(1, None, 7, 0, 100);
    net.run_ms(3000);
    assert_eq!(net.outcomes(0), [(Kind::Send, 7, Outcome::Ok)]);
}

#[test]
fn regression_a_message_to_oneself_ends_with_its_operation() {
    for cancels in [false, true] {
        for claims in [false, true] {
            let mut net = Net::new(1);
            let own = net.peer(0, 0);
            net.fill(0, 0, 100_000, 3);
            net.send(0, own, 1, 0, 100_000);
            if claims {
                let want = Selector { tag: 1, ignore: 0, source: None };
                net.on(0, |rdm, _| rdm.peek(true, want, Peek::Claim, 7)).unwrap();
                assert_eq!(net.outcomes(0), [(Kind::Receive, 7, Outcome::Ok)]);
            }
            let outcome = if cancels { Outcome::Cancelled } else { Outcome::Removed };
            net.on(
                0,
                |rdm, world| {
                    if cancels { rdm.cancel_send(1) } else { rdm.remove_peer(world, own) }
                },
            );
            assert_eq!(net.outcomes(0), [(Kind::Send, 1, outcome)]);
            if claims {
                let iov = [Iov { addr: 1 << 20, length: 100_000 }];
                let claimed = Receive { context: 7, ..receive(None, 1, &iov) };
                net.on(0, |rdm, world| rdm.recv_claimed(world, claimed)).unwrap();
                assert_eq!(net.outcomes(0), [(Kind::Receive, 7, outcome)]);
            } else {
                net.recv(0, None, 1, 1 << 20, 100_000);
                assert_eq!(net.outcomes(0), [], "the message has gone: the receive waits");
                assert!(net.nodes[0].rdm.cancel(1));
            }
            let held = net.nodes[0].rdm.occupancy();
            assert_eq!((held.operations, held.messages), (0, 0));
        }
    }
}

#[test]
fn regression_a_receive_for_a_removed_peer_takes_no_message_of_another() {
    let mut net = Net::new(3);
    let first = net.peer(0, 1);
    net.recv(0, Some(first), 1, 0, 8);
    net.on(0, |rdm, world| rdm.remove_peer(world, first));
    let second = net.peer(0, 2);
    assert_ne!(first, second);
    let to = net.peer(2, 0);
    net.send(2, to, 1, 0, 8);
    net.run_ms(50);
    assert_eq!(net.done(0), [], "the receive names another peer");
    // The number is used again after the receive has ended.
    assert!(net.nodes[0].rdm.cancel(1));
    net.done(0);
    let third = net.exact(0, 1);
    assert_eq!(third, first);
}

#[test]
fn regression_a_peer_that_is_added_again_after_the_transport_has_removed_it_is_reached() {
    for wrote in [false, true] {
        let mut net = Net::new(2);
        let first = net.peer(0, 1);
        if wrote {
            let to = net.peer(1, 0);
            net.send(1, to, 9, 0, 8);
            net.run_ms(5);
        }
        net.recv(0, Some(first), 1, 0, 8);
        net.on(0, |rdm, world| rdm.remove_peer(world, first));
        net.wire.gone.push(1);
        net.run_ms(140_000);
        assert_eq!(net.nodes[0].endpoint.peer_at(address(1)), None);
        net.wire.gone.clear();
        net.restart(1);
        assert_eq!(net.peer(0, 1), first, "{wrote}");
        net.recv(1, None, 2, 0, 8);
        net.send(0, first, 2, 0, 8);
        net.run_ms(50);
        assert_eq!(net.outcomes(0), [(Kind::Send, 2, Outcome::Ok)], "{wrote}");
        let to = net.peer(1, 0);
        net.send(1, to, 1, 0, 8);
        net.run_ms(50);
        assert_eq!(net.outcomes(0), [(Kind::Receive, 1, Outcome::Ok)], "{wrote}");
    }
}

#[test]
fn regression_numbers_of_removed_peers_that_receives_name_are_freed_and_listed_once() {
    let mut net = Net::new(2);
    for round in 0..50 {
        let peer = net.peer(0, 1);
        assert_eq!(peer, Peer(0));
        net.recv(0, Some(peer), round, 0, 8);
        net.on(0, |rdm, world| rdm.remove_peer(world, peer));
        assert!(net.nodes[0].rdm.removed.len() <= 1);
    }
    for round in 0..50 {
        assert!(net.nodes[0].rdm.cancel(round));
    }
    assert_eq!(net.exact(0, 1), Peer(0));
    assert_eq!(net.nodes[0].rdm.occupancy().peers, 1);
    assert_eq!(net.nodes[0].rdm.removed.len(), 0);
}
