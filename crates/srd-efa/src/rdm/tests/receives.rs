//! Receives for many messages, peek, claim, discard.

use super::*;

fn multi(net: &mut Net, node: usize, at: u64, size: u64, min: u64) {
    let iov = [Iov { addr: at, length: size }];
    let receive = Receive { multi: Some(min), ..receive(None, 1, &iov) };
    net.on(node, |rdm, world| rdm.recv(world, receive)).unwrap();
}

#[test]
fn a_receive_for_many_takes_messages_one_behind_the_other_until_little_is_left() {
    for before in [true, false] {
        let mut net = Net::bad(2);
        let to = net.peer(0, 1);
        net.fill(0, 0, 300_000, 3);
        if before {
            multi(&mut net, 1, 1 << 20, 200_000, 2000);
        }
        let lengths = [100u64, 20_000, 100_000, 78_000, 500];
        for length in lengths {
            net.send(0, to, 1, length, length);
        }
        net.run_ms(300);
        if !before {
            multi(&mut net, 1, 1 << 20, 200_000, 2000);
            net.run_ms(300);
        }
        let mut done = net.done(1);
        assert_eq!(done.iter().filter(|d| d.released).count(), 1);
        assert!(done.last().unwrap().released, "with the last that lands");
        done.sort_by_key(|d| d.offset);
        let offsets: Vec<u64> = done.iter().map(|d| d.offset).collect();
        assert_eq!(offsets, [0, 100, 20_100, 120_100], "the fifth found it over");
        for (done, length) in done.iter().zip(lengths) {
            assert_eq!(done.length, length);
            let at = (1 << 20) + done.offset;
            assert!(net.bytes(1, at, length) == net.bytes(0, length, length));
        }
        multi(&mut net, 1, 1 << 20, 400, 10);
        let cut = net.done(1);
        assert_eq!((cut[0].outcome, cut[0].released), (Outcome::Truncated(100), true));
    }
}

#[test]
fn a_cancelled_receive_for_many_is_released_when_nothing_lands_any_more() {
    let mut net = Net::new(2);
    let to = net.peer(0, 1);
    multi(&mut net, 1, 1 << 20, 1 << 20, 100);
    net.send(0, to, 1, 0, 8);
    net.run_ms(20);
    assert!(!net.done(1)[0].released);
    net.send(0, to, 1, 0, 300_000);
    net.run_us(100);
    assert!(net.nodes[1].rdm.cancel(1));
    let done = net.done(1);
    assert_eq!((done[0].outcome, done[0].released), (Outcome::Cancelled, false));
    net.run_ms(50);
    let done = net.done(1);
    assert_eq!((done[0].outcome, done[0].released), (Outcome::Ok, true));
    multi(&mut net, 1, 1 << 20, 1 << 20, 100);
    assert!(net.nodes[1].rdm.cancel(1));
    assert!(net.done(1)[0].released);
    assert_eq!(net.nodes[1].rdm.multis.len(), 0);
}

#[test]
fn peek_claim_and_discard_find_every_sort_of_message() {
    for length in [50u64, 30_000, 300_000] {
        let mut net = Net::new(2);
        let to = net.peer(0, 1);
        let source = net.peer(1, 0);
        net.fill(0, 0, 400_000, 3);
        let want = Selector { tag: 1, ignore: 0, source: Some(source.0) };
        let look = |net: &mut Net, what, context| {
            net.on(1, |rdm, _| rdm.peek(true, want, what, context)).unwrap();
            let done = net.done(1);
            assert_eq!((done.len(), done[0].context), (1, context));
            done[0]
        };
        assert_eq!(look(&mut net, Peek::Look, 5).outcome, Outcome::NoMessage);
        for at in 0..4 {
            net.send(0, to, 1, at, length);
        }
        net.run_ms(100);
        let seen = look(&mut net, Peek::Look, 6);
        assert_eq!((seen.outcome, seen.length, seen.peer), (Outcome::Ok, length, Some(source)));
        assert_eq!(look(&mut net, Peek::Claim, 7).outcome, Outcome::Ok);
        assert_eq!(look(&mut net, Peek::Claim, 8).outcome, Outcome::Ok);
        let again = net.on(1, |rdm, _| rdm.peek(true, want, Peek::Claim, 7));
        assert_eq!(again, Err(Refused::Invalid), "one is claimed so");
        assert_eq!(look(&mut net, Peek::Discard, 9).outcome, Outcome::Ok);
        net.recv(1, None, 1, 1 << 20, length);
        net.run_ms(100);
        net.done(1);
        assert!(net.bytes(1, 1 << 20, length) == net.bytes(0, 3, length), "the fourth");
        let iov = [Iov { addr: 2 << 20, length }];
        let claimed = Receive { context: 7, ..receive(None, 1, &iov) };
        net.on(1, |rdm, world| rdm.recv_claimed(world, claimed)).unwrap();
        net.run_ms(100);
        assert_eq!(net.done(1)[0].outcome, Outcome::Ok);
        assert!(net.bytes(1, 2 << 20, length) == net.bytes(0, 0, length), "the first");
        net.on(1, |rdm, _| rdm.discard_claimed(8, true)).unwrap();
        assert_eq!(net.done(1)[0].context, 8);
        let gone = net.on(1, |rdm, _| rdm.discard_claimed(8, true));
        assert_eq!(gone, Err(Refused::Invalid));
        net.run_ms(100);
        let ended = net.outcomes(0);
        assert_eq!(ended, [(Kind::Send, 1, Outcome::Ok); 4], "each sender has its buffer back");
    }
}

#[test]
fn what_fails_or_nobody_wants_to_hear_of_is_told_as_asked() {
    let mut net = Net::new(2);
    let to = net.peer(0, 1);
    let iov = [Iov { addr: 0, length: 10 }];
    let small = [Iov { addr: 0, length: 5 }];
    net.try_send(0, Message { signaled: false, ..message(to, 1, &iov) }).unwrap();
    net.try_send(0, Message { signaled: false, ..message(to, 1, &iov) }).unwrap();
    for iov in [&iov, &small] {
        let quiet = Receive { signaled: false, ..receive(None, 1, iov) };
        net.on(1, |rdm, world| rdm.recv(world, quiet)).unwrap();
    }
    net.run_ms(5);
    let signaled =
        |done: Vec<OperationCompletion>| done.iter().map(|d| d.signaled).collect::<Vec<_>>();
    assert_eq!(signaled(net.done(0)), [false, false]);
    assert_eq!(signaled(net.done(1)), [false, true], "truncation is told");
}

/// Returns a network in which the receiver has claimed a message before all of its parts have
/// arrived, and in which the sender is lost afterwards.
fn claimed_half() -> Net {
    (0..50).find_map(try_claim_half).expect("most messages begin with what is not their last part")
}

fn try_claim_half(seed: u64) -> Option<Net> {
    let mut net = Net::new(2);
    net.wire.rng = Rng::new(seed);
    let to = net.peer(0, 1);
    let source = net.peer(1, 0);
    net.send(0, to, 5, 0, 1);
    net.run_ms(5);
    net.wire.loss_permille = 300;
    net.send(0, to, 1, 0, 60_000);
    while net.nodes[1].rdm.tagged.len().1 < 2 {
        net.run_us(10);
    }
    let want = Selector { tag: 1, ignore: 0, source: Some(source.0) };
    net.on(1, |rdm, _| rdm.peek(true, want, Peek::Claim, 7)).unwrap();
    assert_eq!(net.outcomes(1), [(Kind::Receive, 7, Outcome::Ok)]);
    (!net.nodes[1].rdm.partials.is_empty()).then_some(net)
}

#[test]
fn a_claimed_message_whose_sender_is_lost_ends_in_error_when_it_is_asked_for() {
    for take in [true, false] {
        let mut net = claimed_half();
        net.restart(0);
        net.wire.loss_permille = 0;
        let to = net.peer(0, 1);
        net.send(0, to, 2, 0, 1);
        net.run_ms(2000);
        assert!(net.nodes[1].rdm.partials.is_empty());
        let iov = [Iov { addr: 1 << 20, length: 60_000 }];
        let claimed = Receive { context: 7, ..receive(None, 1, &iov) };
        if take {
            net.on(1, |rdm, world| rdm.recv_claimed(world, claimed)).unwrap();
            assert_eq!(net.outcomes(1), [(Kind::Receive, 7, Outcome::Restarted)]);
        } else {
            net.on(1, |rdm, _| rdm.discard_claimed(7, true)).unwrap();
            assert_eq!(net.outcomes(1), [(Kind::Receive, 7, Outcome::Ok)]);
        }
        assert_eq!(net.nodes[1].rdm.tagged.len().1, 2, "those that are complete stay");
        let again = net.on(1, |rdm, world| rdm.recv_claimed(world, claimed));
        assert_eq!(again, Err(Refused::Invalid));
    }
}

#[test]
fn regression_what_became_of_a_message_is_not_told_to_another_run_of_its_sender() {
    let mut net = Net::new(2);
    net.wire.rng = Rng::new(3);
    let to = net.peer(0, 1);
    net.recv(1, None, 1, 0, 60_000);
    net.wire.loss_permille = 300;
    let iov = [Iov { addr: 0, length: 60_000 }];
    net.try_send(0, Message { until: Until::Delivered, ..message(to, 1, &iov) }).unwrap();
    while net.nodes[1].rdm.tagged.len().0 > 0 {
        net.run_us(10);
    }
    assert!(!net.nodes[1].rdm.partials.is_empty(), "more is to come");
    // The first operation of the next run has the same number as the first operation of this run.
    net.restart(0);
    net.wire.loss_permille = 0;
    let to = net.peer(0, 1);
    net.try_send(0, Message { until: Until::Delivered, ..message(to, 2, &iov) }).unwrap();
    net.run_ms(2000);
    assert_eq!(net.outcomes(1), [(Kind::Receive, 1, Outcome::Restarted)]);
    assert_eq!(net.outcomes(0), [], "nobody has received the second");
    net.recv(1, None, 2, 0, 60_000);
    net.run_ms(50);
    assert_eq!(net.outcomes(0), [(Kind::Send, 2, Outcome::Ok)]);
}
