//! Order of reads and writes, for applications that request an order. Each test also shows the
//! behaviour without the rule: over this wire, operations do overtake other operations.

use super::shares::*;
use super::*;

/// Bytes of an operation: several datagrams.
const LONG: u64 = 6000;
/// Offset of the bytes that are written.
const FIRST: u64 = 0;
/// Offset of the buffer that receives the bytes which are read.
const SECOND: u64 = 100_000;
const BACK: u64 = 200_000;
const ROUNDS: u64 = 40;

use Family::{Atomic as Atomics, Message as Messages, Read as Reads, Write as Writes};

/// Returns two nodes on a lossy wire, and the number of the second node, which shares memory. The
/// first node applies `order`.
fn ordered(order: Order) -> (Net, Peer) {
    let mut net = Net::bad(2);
    share(&mut net, 1, all());
    let to = net.peer(0, 1);
    net.nodes[0].rdm.set_order(order);
    (net, to)
}

fn transfer(net: &mut Net, to: Peer, read: bool, at: u64, length: u64) {
    let (local, far) = ([Iov { addr: at, length }], [remote(0, length)]);
    go(net, Rma { context: at, ..rma(to, read, &local, &far) }).unwrap();
}

/// Adds the number at `FIRST` to the peer's first number; the previous value is written to `BACK`.
fn add(net: &mut Net, to: Peer) {
    let operand = [Iov { addr: FIRST, length: 8 }];
    let result = [Iov { addr: BACK, length: 8 }];
    let request = Atomic {
        to,
        op: AtomicOp::Sum,
        datatype: Datatype::Uint64,
        operand: &operand,
        compare: &[],
        result: &result,
        remote: &[remote(0, 8)],
        context: 7,
        until: Until::Delivered,
        signaled: true,
    };
    net.on(0, |rdm, world| rdm.atomic(world, request)).unwrap();
}

fn finish(net: &mut Net) -> Vec<(Kind, u64, Outcome)> {
    for _ in 0..1000 {
        if net.nodes[0].rdm.is_quiet() {
            let ends = net.outcomes(0);
            assert!(ends.iter().all(|end| end.2 == Outcome::Ok), "{ends:?}");
            return ends;
        }
        net.run_ms(1);
    }
    panic!("operations that never end");
}

/// Returns the number of rounds in which an operation was overtaken. `round` returns whether an
/// operation was overtaken.
fn overtaken(order: Order, round: fn(&mut Net, Peer) -> bool) -> u64 {
    let (mut net, to) = ordered(order);
    let mut count = 0;
    for seed in 0..ROUNDS {
        net.fill(0, FIRST, LONG, 2 * seed);
        net.fill(0, SECOND, LONG, 2 * seed + 1);
        net.fill(1, RAM as u64, LONG, 1000 + seed);
        count += u64::from(round(&mut net, to));
    }
    count
}

fn is_kept(pairs: &[(Family, Family)], round: fn(&mut Net, Peer) -> bool) {
    let keep = |order: Order, &(later, earlier): &(Family, Family)| order.keeping(later, earlier);
    assert_eq!(overtaken(pairs.iter().fold(Order::default(), keep), round), 0, "{pairs:?}");
    assert!(overtaken(Order::default(), round) > 0, "nothing shows {pairs:?}");
}

#[test]
fn a_read_after_a_write_sees_it_if_that_is_asked_for() {
    is_kept(&[(Reads, Writes)], |net, to| {
        transfer(net, to, false, FIRST, LONG);
        transfer(net, to, true, BACK, LONG);
        finish(net);
        net.bytes(0, FIRST, LONG) != net.bytes(0, BACK, LONG)
    });
}

#[test]
fn a_write_after_a_write_stays_if_that_is_asked_for() {
    is_kept(&[(Writes, Writes)], |net, to| {
        transfer(net, to, false, FIRST, LONG);
        transfer(net, to, false, SECOND, LONG);
        finish(net);
        net.bytes(0, SECOND, LONG) != there(net, 1, 0, LONG)
    });
}

#[test]
fn a_write_after_a_read_is_not_seen_by_it_if_that_is_asked_for() {
    is_kept(&[(Writes, Reads)], |net, to| {
        let before = there(net, 1, 0, LONG).to_vec();
        transfer(net, to, true, BACK, LONG);
        transfer(net, to, false, FIRST, LONG);
        finish(net);
        before != net.bytes(0, BACK, LONG)
    });
}

#[test]
fn reads_happen_one_after_the_other_if_that_is_asked_for() {
    is_kept(&[(Reads, Reads)], |net, to| {
        transfer(net, to, true, BACK, LONG);
        transfer(net, to, true, SECOND, 8);
        finish(net)[0].1 != BACK
    });
}

#[test]
fn atomic_operations_after_writes_see_them_if_that_is_asked_for() {
    is_kept(&[(Atomics, Writes)], |net, to| {
        transfer(net, to, false, FIRST, LONG);
        add(net, to);
        finish(net);
        net.bytes(0, FIRST, 8) != net.bytes(0, BACK, 8)
    });
}

#[test]
fn writes_after_atomic_operations_stay_if_that_is_asked_for() {
    is_kept(&[(Writes, Atomics)], |net, to| {
        add(net, to);
        transfer(net, to, false, SECOND, LONG);
        finish(net);
        net.bytes(0, SECOND, LONG) != there(net, 1, 0, LONG)
    });
}

#[test]
fn a_message_after_a_write_comes_when_it_stands_there_if_that_is_asked_for() {
    is_kept(&[(Messages, Writes)], |net, to| {
        net.recv(1, None, 1, FIRST, 8);
        transfer(net, to, false, FIRST, LONG);
        net.send(0, to, 1, SECOND, 8);
        while net.done(1).is_empty() {
            net.run_us(10);
        }
        let early = net.bytes(0, FIRST, LONG) != there(net, 1, 0, LONG);
        finish(net);
        early
    });
}

#[test]
fn who_asks_for_one_order_waits_for_nothing_else() {
    let (mut net, to) = ordered(Order::default().keeping(Reads, Writes));
    net.wire.dead = Some(1);
    for at in [FIRST, SECOND] {
        transfer(&mut net, to, false, at, LONG);
    }
    let held =
        |net: &Net| net.nodes[0].rdm.conns.iter().flatten().map(|l| l.ordered.len()).sum::<usize>();
    let count: usize = held(&net);
    assert_eq!(count, 0);
    transfer(&mut net, to, true, BACK, LONG);
    transfer(&mut net, to, false, FIRST, LONG);
    // The read waits, and operations that were posted later wait behind it.
    let count: usize = held(&net);
    assert_eq!(count, 2);
    // No operation waits for messages, or for operations that keep their order without a rule.
    let none = Order::default();
    assert_eq!(none.keeping(Writes, Messages), none);
    assert_eq!(none.keeping(Atomics, Atomics).keeping(Messages, Atomics), none);
}

#[test]
fn a_peer_that_is_busy_holds_up_no_other() {
    let mut net = Net::bad(3);
    let order = Order::default().keeping(Writes, Writes);
    net.nodes[0].rdm.set_order(order);
    let (first, second) = (net.peer(0, 1), net.peer(0, 2));
    share(&mut net, 2, all());
    net.wire.dead = Some(1);
    transfer(&mut net, first, false, FIRST, LONG);
    transfer(&mut net, first, false, SECOND, LONG);
    transfer(&mut net, second, false, BACK, LONG);
    net.run_ms(100);
    assert_eq!(net.outcomes(0), [(Kind::Write, BACK, Outcome::Ok)]);
}

#[test]
fn what_is_held_fails_with_its_peer_and_is_bounded_as_all_operations_are() {
    let (mut net, to) = ordered(Order::default().keeping(Writes, Writes));
    net.wire.dead = Some(1);
    let most = u64::from(config().operations_max);
    for n in 0..most {
        transfer(&mut net, to, false, n, 8);
    }
    let (local, far) = ([Iov { addr: 0, length: 8 }], [remote(0, 8)]);
    assert_eq!(go(&mut net, rma(to, false, &local, &far)), Err(Refused::Again));
    net.on(0, |rdm, world| rdm.remove_peer(world, to));
    net.run_ms(2000);
    let ends = net.outcomes(0);
    assert_eq!(ends.len() as u64, most);
    assert!(ends.iter().all(|end| end.2 != Outcome::Ok));
    assert!(net.nodes[0].rdm.conns.iter().flatten().all(|l| l.unfinished == [0; 4]));
}

#[test]
fn operations_after_one_that_failed_go_on() {
    let (mut net, to) = ordered(Order::default().keeping(Reads, Writes));
    let (local, far) = ([Iov { addr: 0, length: 8 }], [remote(SIZE, 8)]);
    go(&mut net, rma(to, false, &local, &far)).unwrap();
    transfer(&mut net, to, true, BACK, LONG);
    net.run_ms(200);
    let expected = [(Kind::Write, 1, Outcome::BadKey), (Kind::Read, BACK, Outcome::Ok)];
    assert_eq!(net.outcomes(0), expected);
}
