//! Order, tags, sources, cancellation, and messages to the same endpoint.

use super::*;

#[test]
fn a_message_finds_its_receive_by_tag_and_source() {
    let mut net = Net::new(3);
    let (a, b) = (net.peer(2, 0), net.exact(2, 1));
    let (from_a, from_b) = (net.peer(0, 2), net.peer(1, 2));
    net.recv(2, Some(b), 7, 5000, 100);
    net.recv(2, Some(a), 7, 6000, 100);
    net.fill(0, 0, 100, 1);
    net.fill(1, 0, 100, 2);
    net.send(0, from_a, 7, 0, 100);
    net.run_ms(5);
    net.send(1, from_b, 7, 0, 60);
    net.run_ms(5);
    let done = net.done(2);
    assert_eq!(
        done.iter().map(|d| (d.peer, d.length, d.tag)).collect::<Vec<_>>(),
        [(Some(a), 100, 7), (Some(b), 60, 7)]
    );
    assert_eq!(net.bytes(2, 6000, 100), net.bytes(0, 0, 100));
    assert_eq!(net.bytes(2, 5000, 60), net.bytes(1, 0, 60));
    assert_eq!(net.outcomes(0), [(Kind::Send, 7, Outcome::Ok)]);
    for node in &net.nodes {
        assert!(node.rdm.is_quiet());
    }
}

#[test]
fn messages_of_a_peer_arrive_in_the_order_in_which_they_were_sent() {
    let mut net = Net::bad(2);
    let to = net.peer(0, 1);
    for n in 0..200u64 {
        net.nodes[0].ram.0[usize::try_from(n).unwrap()] = u8::try_from(n).unwrap();
    }
    let mut early = 0;
    for round in 0..200u64 {
        net.send(0, to, 3, round, 1);
        if round % 2 == 0 {
            net.recv(1, None, 3, 10_000 + round / 2, 1);
        }
        if round % 20 == 0 {
            net.run_ms(1);
        }
    }
    net.run_ms(300);
    early += net.nodes[1].rdm.counters().early;
    for n in 100..200 {
        net.recv(1, None, 3, 10_000 + n, 1);
    }
    assert_eq!(net.done(1).len(), 200);
    let expected: Vec<u8> = (0..200).collect();
    assert_eq!(net.bytes(1, 10_000, 200), expected);
    assert_eq!(net.done(0).len(), 200);
    assert!(early > 10, "the wire reordered, or this shows nothing: {early}");
}

#[test]
fn a_message_to_ourselves_needs_no_wire() {
    let mut net = Net::new(1);
    let me = net.peer(0, 0);
    net.fill(0, 0, 300_000, 1);
    for (tag, length) in [(1, 8), (2, 300_000)] {
        net.recv(0, Some(me), tag, 1 << 20, length);
        net.send(0, me, tag, 0, length);
        let done = net.outcomes(0);
        assert_eq!(done, [(Kind::Send, tag, Outcome::Ok), (Kind::Receive, tag, Outcome::Ok)]);
        assert_eq!(net.bytes(0, 1 << 20, length), net.bytes(0, 0, length));
        net.nodes[0].ram.0[1 << 20..(1 << 20) + 300_000].fill(0);
        net.send(0, me, tag, 0, length);
        let ended = net.outcomes(0);
        assert_eq!(ended.len(), usize::from(length == 8), "a long one waits for its receive");
        net.recv(0, None, tag, 1 << 20, length);
        assert_eq!(ended.len() + net.done(0).len(), 2);
        assert_eq!(net.bytes(0, 1 << 20, length), net.bytes(0, 0, length));
    }
    assert!(net.nodes[0].rdm.is_quiet());
}

#[test]
fn a_cancelled_receive_ends_so_and_takes_nothing() {
    let mut net = Net::new(2);
    let to = net.peer(0, 1);
    net.recv(1, None, 5, 0, 10);
    assert!(net.nodes[1].rdm.cancel(5));
    assert!(!net.nodes[1].rdm.cancel(5));
    assert_eq!(net.outcomes(1), [(Kind::Receive, 5, Outcome::Cancelled)]);
    net.send(0, to, 5, 0, 10);
    net.run_ms(5);
    assert!(net.done(1).is_empty());
    net.recv(1, None, 5, 0, 10);
    assert_eq!(net.outcomes(1), [(Kind::Receive, 5, Outcome::Ok)]);
}
