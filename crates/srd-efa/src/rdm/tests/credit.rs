//! Credit of many senders, and the memory of frames that arrive early.

use super::*;
use crate::rdm::wire::message::{MESSAGE_COST, MessageHeader};
use crate::wire::Opaque;
use srd_proto::{Delivery, PeerId, Status};

/// A peer of node 0 without a node: the test writes its frames.
#[derive(Clone, Copy)]
struct Writer {
    peer: PeerId,
    check: u32,
}

impl Net {
    /// Makes a peer of node 0 that opens a session.
    fn writer(&mut self, n: u16) -> Writer {
        let [high, low] = n.to_be_bytes();
        let address = SocketAddr::from(([10, 0, high, low], 7471));
        let peer = self.on(0, |rdm, world| {
            rdm.add_peer(world, address, 0).unwrap();
            world.endpoint.peer_at(address).unwrap()
        });
        let session = u32::from(n) + 1;
        let hello = wire::encode::hello(session, 5000 + u64::from(n));
        let own = self.nodes[0].rdm.local_check;
        assert_eq!(self.arrive(Writer { peer, check: own }, None, &hello), Status::Ok);
        self.on(0, |rdm, world| rdm.pump(world));
        Writer { peer, check: wire::field::session_check(self.nodes[0].incarnation, session) }
    }

    /// Passes a frame, or a part with the immediate `imm`, to node 0.
    fn arrive(&mut self, from: Writer, imm: Option<u32>, payload: &[u8]) -> Status {
        let imm = Opaque::Send { check: from.check, imm }.encode();
        let (peer, src_qpn, dst_qpn) = (from.peer, QPN, QPN);
        let delivery = Delivery { peer, src_qpn, dst_qpn, imm, reliable: true, ce: false, payload };
        let Node { rdm, ram, .. } = &mut self.nodes[0];
        rdm.admit(self.now, &delivery, ram)
    }

    fn incoming(&self, of: Writer) -> peers::connection::Incoming {
        let rdm = &self.nodes[0].rdm;
        rdm.conn(rdm.conn_of(of.peer).unwrap()).unwrap().incoming.unwrap()
    }

    /// Sends messages of 1000 bytes, each into a receive, until the credit of the peer is used.
    /// Then sends a new grant.
    fn use_credit(&mut self, from: Writer) {
        let first = self.incoming(from).expected;
        for id in first.. {
            self.recv(0, None, 8, 0, 1000);
            let status = self.arrive(from, None, &whole(id, 8, 1000));
            if status != Status::Ok {
                assert_eq!(status, Status::RemoteBadLength, "it exceeds the credit");
                break;
            }
            self.done(0);
        }
        assert!(self.nodes[0].rdm.cancel(8));
        self.done(0);
        let index = self.nodes[0].rdm.conn_of(from.peer).unwrap();
        self.on(0, |rdm, _| rdm.grant(index));
    }
}

/// Returns the credit that each peer of node 0 holds. The sum is what the endpoint has counted.
fn held(net: &Net) -> Vec<u64> {
    let rdm = &net.nodes[0].rdm;
    let incoming = rdm.conns.iter().flatten().filter_map(|conn| conn.incoming);
    let held: Vec<u64> = incoming.map(|incoming| incoming.held.into()).collect();
    assert_eq!(held.iter().sum::<u64>(), rdm.credit_held);
    held
}

fn whole(id: u32, tag: u64, length: usize) -> Vec<u8> {
    let header = MessageHeader { id, tag: Some(tag), data: None, token: None };
    let mut frame = wire::message::encode(&header, None, length);
    frame.resize(frame.len() + length, 7);
    frame.to_vec()
}

/// Returns the datagrams of a message, each with at most `room` bytes: the first is last, so that
/// all parts arrive before the header.
fn datagrams(id: u32, tag: u64, length: usize, room: usize) -> Vec<(Option<u32>, Vec<u8>)> {
    let header = MessageHeader { id, tag: Some(tag), data: None, token: None };
    if wire::message::header_bytes(&header, false) + length <= room {
        return vec![(None, whole(id, tag, length))];
    }
    let first = room - wire::message::header_bytes(&header, true);
    let bytes = Some(u32::try_from(length).unwrap());
    let mut frame = wire::message::encode(&header, bytes, first);
    frame.resize(room, 7);
    let mut all = vec![(None, frame.to_vec())];
    for offset in (first..length).step_by(room) {
        let part = wire::field::part(id, u16::try_from(offset).unwrap());
        all.push((Some(part), vec![7; room.min(length - offset)]));
    }
    all.reverse();
    all
}

#[test]
fn a_thousand_senders_get_little_more_than_three_times_the_credit_for_all() {
    let mut net = Net::new(1);
    for n in 0..1000 {
        net.writer(n);
    }
    let (held, bounds) = (held(&net), net.nodes[0].rdm.bounds);
    assert_eq!(held[..8], [bounds.window_bytes_max; 8]);
    // Each further sender gets half of its share, as long as the first hold theirs.
    for (n, held) in (1..).zip(&held).skip(8) {
        assert_eq!(*held, bounds.credit_bytes / n / 2, "sender {n}");
    }
    let sum: u64 = held.iter().sum();
    assert!(sum < 7 * bounds.credit_bytes / 2, "{sum}");
}

#[test]
fn credit_that_returns_is_divided_among_all_senders() {
    let mut net = Net::new(1);
    let bounds = &mut net.nodes[0].rdm.bounds;
    bounds.credit_bytes = 4 << 20;
    bounds.window_bytes_max = 512 << 10;
    bounds.window_bytes_min = 1 << 10;
    let writers: Vec<Writer> = (0..1000).map(|n| net.writer(n)).collect();
    assert!(net.nodes[0].rdm.credit_held > 3 * (4 << 20));
    let share = (4 << 20) / 1000;
    for writer in &writers[..8] {
        net.use_credit(*writer);
        let held = net.incoming(*writer).held;
        assert!((share / 2..=share).contains(&held), "{held}");
    }
    for writer in &writers[8..] {
        net.use_credit(*writer);
    }
    let held = held(&net);
    assert!(held.iter().sum::<u64>() <= 4 << 20);
    // A grant is due only if a sender holds less than half of the credit that it may hold.
    let share = u64::from(share);
    assert!(held.iter().all(|held| (share / 4..=share).contains(held)), "{held:?}");
}

#[test]
fn a_sender_that_the_transport_has_removed_counts_while_a_message_of_it_is_stored() {
    let mut net = Net::new(3);
    let window = net.nodes[0].rdm.bounds.window_bytes_max;
    net.nodes[0].rdm.bounds.credit_bytes = window;
    let to = net.peer(1, 0);
    net.send(1, to, 5, 0, 100);
    net.run_ms(5);
    net.wire.gone.push(1);
    net.run_ms(140_000);
    assert_eq!(net.nodes[0].endpoint.peer_at(address(1)), None);
    let to = net.peer(2, 0);
    net.send(2, to, 6, 0, 100);
    net.run_ms(5);
    let peer = net.nodes[0].endpoint.peer_at(address(2)).unwrap();
    assert_eq!(net.incoming(Writer { peer, check: 0 }).granted, window / 2);
    // The sender does not count any more when its message has been received.
    net.recv(0, None, 5, 0, 100);
    let rdm = &net.nodes[0].rdm;
    assert_eq!(rdm.window(), window / u64::from(rdm.conn_count));
}

/// Removed peers counted as senders for as long as a receive named them.
#[test]
fn regression_a_removed_peer_that_only_a_receive_names_has_no_share_of_the_credit() {
    let mut net = Net::new(2);
    let window = net.nodes[0].rdm.bounds.window_bytes_max;
    net.nodes[0].rdm.bounds.credit_bytes = window;
    let peer = net.peer(0, 1);
    net.recv(0, Some(peer), 5, 0, 8);
    net.on(0, |rdm, world| rdm.remove_peer(world, peer));
    let rdm = &net.nodes[0].rdm;
    assert_eq!((rdm.removed.len(), rdm.conn_count), (1, 1));
    assert_eq!(rdm.window(), window);
}

#[test]
fn early_frames_of_some_peers_leave_memory_for_those_of_another() {
    let mut net = Net::new(1);
    let bounds = &mut net.nodes[0].rdm.bounds;
    bounds.credit_bytes = 1 << 20;
    bounds.window_bytes_max = 128 << 10;
    bounds.reorder_bytes_max = 1 << 20;
    for n in 0..6 {
        let greedy = net.writer(n);
        let part = |offset: u16| Some(wire::field::part(1, offset));
        let parts = (1..2000).take_while(|n| {
            net.arrive(greedy, part(*n), &[7; 1000]) == Status::Ok // without a header
        });
        assert!((1..300).contains(&parts.count()), "peer {n}");
    }
    let rdm = &net.nodes[0].rdm;
    let most = rdm.bounds.reorder_bytes_max;
    assert!((most * 3 / 4..most).contains(&rdm.reorder_bytes), "{}", rdm.reorder_bytes);
    let other = net.writer(6);
    for id in [1, 2, 0] {
        assert_eq!(net.arrive(other, None, &whole(id, 8, 1000)), Status::Ok, "message {id}");
    }
    assert_eq!(net.nodes[0].rdm.occupancy().messages, 3);
}

#[test]
fn all_messages_that_the_credit_permits_may_arrive_early() {
    let cases = [
        (0, 1400),
        (8, 1400),
        (1000, 1400),
        (1400, 504),
        (20_000, 504),
        (65_536, 504),
        (65_536, 1400),
        (65_536, 8900),
    ];
    for (length, room) in cases {
        let mut net = Net::new(1);
        net.nodes[0].rdm.bounds.window_bytes_max = 256 << 10;
        let writer = net.writer(0);
        let cost = MESSAGE_COST + length as u64;
        let left = u64::from(net.incoming(writer).unused) - MESSAGE_COST;
        let last = u32::try_from(left / cost).unwrap();
        assert!(last > 2);
        for id in 1..=last {
            for (imm, bytes) in datagrams(id, 8, length, room) {
                let status = net.arrive(writer, imm, &bytes);
                assert_eq!(status, Status::Ok, "{id} of {last} with {length} bytes by {room}");
            }
        }
        assert_eq!(net.nodes[0].rdm.occupancy().messages, 0);
        assert_eq!(net.arrive(writer, None, &whole(0, 8, 0)), Status::Ok);
        let filled = net.nodes[0].rdm.occupancy();
        assert_eq!((filled.partials, filled.reorder_bytes), (0, 0), "{length} by {room}");
        assert_eq!(filled.messages, last as usize + 1);
    }
}

#[test]
fn parts_find_their_message_behind_as_many_others_as_the_credit_permits() {
    let mut net = Net::new(1);
    let writer = net.writer(0);
    let unused = u64::from(net.incoming(writer).unused);
    assert_eq!(unused, net.nodes[0].rdm.bounds.window_bytes_max);
    let last = u32::try_from((unused - MESSAGE_COST - 3000) / MESSAGE_COST).unwrap();
    for id in 1..last {
        assert_eq!(net.arrive(writer, None, &whole(id, 8, 0)), Status::Ok, "{id} of {last}");
    }
    for (imm, bytes) in datagrams(last, 9, 3000, 1400) {
        assert_eq!(net.arrive(writer, imm, &bytes), Status::Ok);
    }
    assert_eq!(net.arrive(writer, None, &whole(0, 8, 0)), Status::Ok);
    let filled = net.nodes[0].rdm.occupancy();
    assert_eq!((filled.partials, filled.reorder_bytes), (0, 0));
    assert_eq!(filled.messages, last as usize + 1);
    net.recv(0, None, 9, 0, 3000);
    assert_eq!(net.bytes(0, 0, 3000), [7; 3000]);
}

/// The number of stored messages was limited to those that the credit of eight senders permits.
#[test]
fn regression_messages_of_senders_that_use_all_credit_leave_space_for_those_of_another() {
    let mut net = Net::new(1);
    let writers: Vec<Writer> = (0..9).map(|n| net.writer(n)).collect();
    let bounds = net.nodes[0].rdm.bounds;
    let most = u32::try_from(bounds.window_bytes_max / MESSAGE_COST).unwrap();
    for id in 0..most {
        let empty = whole(id, 8, 0);
        for writer in &writers[..8] {
            assert_eq!(net.arrive(*writer, None, &empty), Status::Ok, "message {id}");
        }
    }
    assert_eq!(net.incoming(writers[0]).unused, 0);
    let stored = net.nodes[0].rdm.occupancy().messages as u64;
    assert_eq!(stored * MESSAGE_COST, bounds.credit_bytes);
    assert_eq!(net.arrive(writers[8], None, &whole(0, 9, 0)), Status::Ok);
}

/// An early message that was refused in its turn gave its credit back, but no grant followed.
#[test]
fn regression_credit_of_an_early_message_that_is_refused_in_its_turn_is_granted_again() {
    let mut net = Net::new(1);
    net.nodes[0].rdm.bounds.window_bytes_max = 128 << 10;
    let writer = net.writer(0);
    let length = 100_000; // longer than a message in parts may be
    let header = MessageHeader { id: 1, tag: Some(8), data: None, token: None };
    let mut early = wire::message::encode(&header, Some(length), 1);
    early.resize(early.len() + 1, 7);
    assert_eq!(net.arrive(writer, None, &early), Status::Ok);
    let cost = u32::try_from(MESSAGE_COST).unwrap() + length;
    assert_eq!(net.incoming(writer).unused, (128 << 10) - cost);
    net.recv(0, None, 8, 0, 8);
    assert_eq!(net.arrive(writer, None, &whole(0, 8, 0)), Status::Ok);
    let incoming = net.incoming(writer);
    assert_eq!((incoming.expected, incoming.held), (2, incoming.unused));
    assert!(incoming.credit_due, "the peer holds {} bytes", incoming.held);
    let index = net.nodes[0].rdm.conn_of(writer.peer).unwrap();
    net.on(0, |rdm, _| rdm.grant(index));
    assert_eq!(net.incoming(writer).held, 128 << 10);
}

/// The results had the bound of the credit only, which atomic operations give back at once.
#[test]
fn regression_results_that_a_peer_does_not_accept_are_bounded() {
    let mut net = Net::new(1);
    let writer = net.writer(0);
    let piece = [wire::frame::AtomicIov { addr: 0, rkey: 5, bytes: 8 }];
    let sum = |id| {
        let mut frame = wire::encode::atomic(id, [2, 7, 1], 3, &piece);
        frame.extend_from_slice(&[1; 8]);
        frame.to_vec()
    };
    let mut id = 0;
    let status = loop {
        match net.arrive(writer, None, &sum(id)) {
            Status::Ok => id += 1,
            other => break other,
        }
    };
    assert_eq!(status, Status::RemoteRnr, "operation {id}");
    let index = net.nodes[0].rdm.conn_of(writer.peer).unwrap();
    let waiting = |net: &Net| net.nodes[0].rdm.conn(index).unwrap().control.len();
    assert_eq!(waiting(&net), rma::atomic::RESULTS_MAX);
    // The refused operation has changed nothing. It is executed when the peer has accepted results.
    net.nodes[0].rdm.conn_mut(index).unwrap().control.truncate(1);
    assert_eq!(net.arrive(writer, None, &sum(id)), Status::Ok);
    assert_eq!((net.incoming(writer).expected, waiting(&net)), (id + 1, 2));
}
