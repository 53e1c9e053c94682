//! An authenticated peer that sends arbitrary frames.

use super::*;
use crate::wire::Opaque;
use srd_proto::{Delivery, PeerId, Status};

/// An authenticated peer that has a session and sends arbitrary frames.
struct Stranger {
    net: Net,
    peer: PeerId,
    check: u32,
}

impl Stranger {
    fn new() -> Self {
        let mut net = Net::new(2);
        let to = net.peer(0, 1);
        let iov = [Iov { addr: 0, length: 300_000 }];
        for tag in [1, 2] {
            let until = Until::Delivered;
            net.try_send(0, Message { until, ..message(to, tag, &iov) }).unwrap();
        }
        let back = net.peer(1, 0);
        net.send(1, back, 3, 0, 100_000);
        net.recv(1, None, 7, 0, 1000);
        let access = Access { local_write: true, remote_write: true, remote_read: true };
        let shared = Shared { region: 1, addr: 0, length: 1000, rkey: 5, access };
        net.nodes[1].rdm.share(shared).unwrap();
        net.run_ms(20);
        let peer = net.nodes[1].endpoint.peer_at(address(0)).unwrap();
        let index = net.nodes[1].rdm.conn_of(peer).unwrap();
        let check = net.nodes[1].rdm.conn(index).unwrap().incoming.unwrap().check;
        Self { net, peer, check }
    }

    fn throw(&mut self, opaque: Opaque, payload: &[u8]) -> Status {
        let imm = opaque.encode();
        let (src_qpn, dst_qpn) = (QPN, QPN);
        let delivery =
            Delivery { peer: self.peer, src_qpn, dst_qpn, imm, reliable: true, ce: false, payload };
        let Node { rdm, ram, .. } = &mut self.net.nodes[1];
        let status = rdm.admit(self.net.now, &delivery, ram);
        while rdm.done.len() > 40 {
            rdm.poll();
        }
        status
    }

    fn frame(&mut self, check: u32, payload: &[u8]) -> Status {
        self.throw(Opaque::Send { check, imm: None }, payload)
    }
}

fn header(id: u32) -> wire::message::MessageHeader {
    wire::message::MessageHeader { id, tag: Some(7), data: Some(1), token: Some(9) }
}

/// Returns one frame of each kind, valid except for the ids and keys in it.
fn frames(id: u32) -> Vec<Vec<u8>> {
    let long = [wire::frame::LongIov { rkey: 5, length: 100_000 }; 2];
    let atomic = [wire::frame::AtomicIov { addr: 0, rkey: 5, bytes: 8 }];
    let mut short = wire::message::encode(&header(id), None, 5);
    short.extend_from_slice(b"hello");
    let mut parts = wire::message::encode(&header(id + 1), Some(3000), 5);
    parts.extend_from_slice(b"hello");
    let mut sum = wire::encode::atomic(id + 3, [2, 7, 1], 3, &atomic);
    sum.extend_from_slice(&[1; 8]);
    let mut together = wire::batch::BatchBuilder::new(id + 4, 100);
    for id in [id + 4, id + 5] {
        let header = header(id);
        let bytes = wire::message::header_bytes(&header, false);
        wire::message::put(together.entry(u16::try_from(bytes).unwrap()), &header, None);
    }
    let mut put = wire::encode::put(Some(3), false, 0, 5, 4);
    put.extend_from_slice(b"data");
    [
        wire::encode::hello(77, 100),
        wire::encode::answer(1, 100, 1 << 40),
        wire::encode::credit(1, 1 << 40),
        short,
        parts,
        wire::encode::long(&header(id + 2), 9, &long),
        wire::encode::receipt(1 << 32, 0),
        sum,
        wire::encode::result(1 << 32, 0, &[1; 8]),
        put,
        wire::encode::note(4, 5),
        together.finish(),
    ]
    .iter()
    .map(|frame| frame.to_vec())
    .collect()
}

#[test]
fn frames_survive_and_no_truncation_of_a_header_is_taken_for_another() {
    for frame in frames(0) {
        assert!(wire::frame::Frame::decode(&frame).is_some());
        for n in 0..8 {
            assert_eq!(wire::frame::Frame::decode(&frame[..n]), None);
        }
    }
    let mut stranger = Stranger::new();
    let own = stranger.net.nodes[1].rdm.local_check;
    for n in 0..8 {
        assert_eq!(stranger.frame(own, &vec![4; n]), Status::RemoteBadLength);
    }
    assert_eq!(stranger.net.nodes[1].rdm.counters().malformed, 8);
}

#[test]
fn what_is_not_of_the_session_is_refused_as_stale() {
    let mut stranger = Stranger::new();
    let check = stranger.check;
    for frame in frames(2) {
        assert_eq!(stranger.frame(check ^ 1, &frame), Status::BadDestQpn);
    }
    let part = Opaque::Send { check: check ^ 1, imm: Some(wire::field::part(2, 5)) };
    assert_eq!(stranger.throw(part, b"x"), Status::BadDestQpn);
    assert_eq!(stranger.net.nodes[1].rdm.counters().stale, 13);
}

#[test]
fn credit_is_enforced_and_so_are_the_bounds_of_a_message() {
    let mut stranger = Stranger::new();
    let check = stranger.check;
    let mut id = 2;
    let mut status = Status::Ok;
    while status == Status::Ok {
        let mut frame = wire::message::encode(
            &wire::message::MessageHeader { tag: Some(8), ..header(id) },
            None,
            1000,
        );
        frame.extend_from_slice(&[0; 1000]);
        status = stranger.frame(check, &frame);
        id += 1;
    }
    assert_eq!(status, Status::RemoteBadLength);
    let window = stranger.net.nodes[1].rdm.bounds.window_bytes_max;
    assert!(u64::from(id) * 1000 < window + 2000, "{id}");
    let mut stranger = Stranger::new();
    let frame = &frames(1)[4]; // parts of a message of 3000 bytes, with id 2
    assert_eq!(stranger.frame(check, frame), Status::Ok);
    let part = |offset| Opaque::Send { check, imm: Some(wire::field::part(2, offset)) };
    assert_eq!(stranger.throw(part(2999), b"xx"), Status::RemoteBadLength, "beyond the end");
    assert_eq!(stranger.throw(part(5), &[1; 2995]), Status::Ok);
    assert_eq!(stranger.throw(part(5), &[1; 10]), Status::RemoteBadLength, "it is complete");
    assert_eq!(stranger.frame(check, frame), Status::RemoteBadLength, "an id comes once");
}

#[test]
fn random_and_mutated_frames_cause_no_panic_and_are_counted() {
    for seed in 0..300 {
        let mut stranger = Stranger::new();
        let (check, own) = (stranger.check, stranger.net.nodes[1].rdm.local_check);
        let mut rng = Rng::new(seed);
        let mut refused = 0;
        for round in 0..200u32 {
            let id = 2 + round.wrapping_mul(rng.below(3));
            let mut all = frames(id);
            let mut frame = all.swap_remove(rng.below(12) as usize);
            for _ in 0..rng.below(4) {
                let at = rng.below(u32::try_from(frame.len()).unwrap()) as usize;
                frame[at] ^= 1 << rng.below(8);
            }
            frame.truncate(frame.len() - rng.below(3) as usize * rng.below(6) as usize % 8);
            let check = if rng.below(2) == 0 { check } else { own };
            let part = wire::field::part(id, u16::try_from(rng.below(65_536)).unwrap());
            let opaque = match rng.below(8) {
                0 => Opaque::Send { check, imm: Some(part) },
                1 => Opaque::Read { check: own, part: false },
                2 => Opaque::Write { check: own, imm: None, part: false },
                3 => Opaque::ReadData { number: rng.below(4), offset: 0 },
                _ => Opaque::Send { check, imm: None },
            };
            refused += u64::from(stranger.throw(opaque, &frame) != Status::Ok);
            if rng.below(20) == 0 {
                stranger.net.run_us(50);
            }
        }
        let node = &mut stranger.net.nodes[1].rdm;
        let (c, d) = (*node.counters(), *node.device_counters());
        let counted = c.malformed + c.stale + c.rnr + c.bad_address;
        let device = d.bad_qkey + d.malformed + d.bad_address + d.unknown_peer + d.rnr;
        assert!(counted + device + d.no_transfer >= refused && refused > 0);
        stranger.net.run_ms(100);
        let to = stranger.net.peer(1, 1);
        stranger.net.done(1);
        stranger.net.send(1, to, 99, 0, 8);
        assert!(!stranger.net.done(1).is_empty(), "it goes on");
    }
}

/// Returns a MESSAGE frame with tag 7 that contains a whole message of five bytes. The frame has no
/// remote CQ data, and requests no RECEIPT.
fn short(id: u32) -> Vec<u8> {
    let header = wire::message::MessageHeader { id, tag: Some(7), data: None, token: None };
    let mut frame = wire::message::encode(&header, None, 5);
    frame.extend_from_slice(b"hello");
    frame.to_vec()
}

#[test]
fn regression_an_id_that_waits_for_its_turn_cannot_come_again() {
    let mut stranger = Stranger::new();
    let check = stranger.check;
    let waits = short(3);
    assert_eq!(stranger.frame(check, &waits), Status::Ok, "before its turn");
    // The previous message takes the last entry for a completion, so this one cannot follow
    // immediately.
    let rdm = &mut stranger.net.nodes[1].rdm;
    let kept = rdm.reorder_bytes;
    assert!(kept > 0);
    rdm.report_remote(0, Kind::RemoteWrite, 1, Some(1));
    let done = rdm.done[0];
    rdm.done.resize(rdm.bounds.dones_max - 1, done);
    let (src_qpn, dst_qpn, imm) = (QPN, QPN, Opaque::Send { check, imm: None }.encode());
    let (peer, payload) = (stranger.peer, &short(2)[..]);
    let delivery = Delivery { peer, src_qpn, dst_qpn, imm, reliable: true, ce: false, payload };
    let Node { rdm, ram, .. } = &mut stranger.net.nodes[1];
    assert_eq!(rdm.admit(stranger.net.now, &delivery, ram), Status::Ok);
    assert_eq!(rdm.done.len(), rdm.bounds.dones_max);
    assert_eq!(rdm.reorder_bytes, kept, "it waits");
    rdm.done.clear();
    assert_eq!(stranger.frame(check, &waits), Status::RemoteBadLength, "an id comes once");
    stranger.net.on(1, |rdm, world| rdm.pump(world));
    let rdm = &stranger.net.nodes[1].rdm;
    assert_eq!((rdm.reorder_bytes, rdm.partials.len()), (0, 0));
}

#[test]
fn regression_parts_of_a_message_that_comes_whole_are_forgotten() {
    let mut stranger = Stranger::new();
    let check = stranger.check;
    let part = Opaque::Send { check, imm: Some(wire::field::part(2, 9)) };
    assert_eq!(stranger.throw(part, &[1; 500]), Status::Ok, "its header has not come");
    assert!(stranger.net.nodes[1].rdm.reorder_bytes > 500);
    assert_eq!(stranger.frame(check, &short(2)), Status::Ok);
    let rdm = &stranger.net.nodes[1].rdm;
    assert_eq!((rdm.reorder_bytes, rdm.partials.len()), (0, 0));
}

#[test]
fn regression_who_greets_without_end_and_hears_nothing_is_refused() {
    let mut stranger = Stranger::new();
    stranger.net.wire.dead = Some(0);
    let own = stranger.net.nodes[1].rdm.local_check;
    let mut most = 0;
    for session in 0..40_000 {
        stranger.frame(own, &wire::encode::hello(session, 100));
        if session % 100 == 0 {
            stranger.net.on(1, |rdm, world| rdm.pump(world));
        }
        most = most.max(stranger.net.nodes[1].rdm.occupancy().control_frames);
    }
    let rnr = stranger.net.nodes[1].rdm.counters().rnr;
    assert!(rnr > 20_000, "{rnr} refused");
    assert!(most < 20_000, "{most} answers wait");
}

#[test]
fn words_that_nobody_waits_for_are_counted_and_change_nothing() {
    let mut stranger = Stranger::new();
    let own = stranger.net.nodes[1].rdm.local_check;
    let words = [
        wire::encode::answer(777, 100, 1 << 40),
        wire::encode::credit(777, 1 << 40),
        wire::encode::receipt(777 << 32, 0),
        wire::encode::result(777 << 32, 0, &[1; 8]),
    ];
    for (before, word) in (0..).zip(words) {
        assert_eq!(stranger.net.nodes[1].rdm.counters().unasked, before);
        assert_eq!(stranger.frame(own, &word), Status::Ok);
    }
    let rdm = &stranger.net.nodes[1].rdm;
    assert_eq!(rdm.counters().unasked, 4);
    assert_eq!(rdm.done.len(), 0);
}

/// Returns a message of 1000 bytes that matches no receive.
fn unasked(id: u32) -> Vec<u8> {
    let header = wire::message::MessageHeader { id, tag: Some(8), data: None, token: None };
    let mut frame = wire::message::encode(&header, None, 1000);
    frame.extend_from_slice(&[0; 1000]);
    frame.to_vec()
}

#[test]
fn regression_credit_is_not_got_anew_by_opening_one_session_after_another() {
    let mut stranger = Stranger::new();
    let (own, run) = (stranger.net.nodes[1].rdm.local_check, stranger.net.nodes[1].incarnation);
    let window = stranger.net.nodes[1].rdm.bounds.window_bytes_max;
    let cost = wire::message::MESSAGE_COST + 1000;
    let mut last = 0;
    for session in 1000..1030 {
        stranger.frame(own, &wire::encode::hello(session, 100));
        stranger.net.on(1, |rdm, world| rdm.pump(world));
        let check = wire::field::session_check(run, session);
        let taken = (0..).take_while(|id| stranger.frame(check, &unasked(*id)) == Status::Ok);
        last = taken.count() as u64;
        assert!(last * cost <= window, "{last} messages in a session");
    }
    assert_eq!(last, 0, "all credit is used");
    // The messages of `Stranger::new` are long.
    let kept = stranger.net.nodes[1].rdm.occupancy().messages as u64 - 2;
    assert!(kept * cost <= 2 * window, "{kept} messages that nobody has asked for");
    // If the application receives a message, its credit returns: one window at most is unused.
    let index = stranger.net.nodes[1].rdm.conn_of(stranger.peer).unwrap();
    for received in 1..=kept {
        stranger.net.recv(1, None, 8, 0, 1000);
        stranger.net.done(1);
        stranger.net.on(1, |rdm, _| rdm.grant(index));
        let incoming = stranger.net.nodes[1].rdm.conn(index).unwrap().incoming.unwrap();
        assert!(u64::from(incoming.unused) <= window, "{received} received");
        let free = u64::from(incoming.unused) + (kept - received) * cost;
        assert!(free <= 2 * window, "{received} received: {free} bytes");
        if received == kept * 3 / 4 {
            assert!(u64::from(incoming.unused) > window / 2, "{} of credit", incoming.unused);
        }
    }
    let rdm = &stranger.net.nodes[1].rdm;
    let conn = rdm.conn(index).unwrap();
    let incoming = conn.incoming.unwrap();
    assert_eq!((incoming.owed, incoming.held), (0, incoming.unused));
    assert_eq!(u64::from(conn.former_charge), 2 * wire::message::MESSAGE_COST);
    assert_eq!(rdm.credit_held, u64::from(incoming.held));
}

/// The messages of the earlier session returned credit of the later one.
#[test]
fn regression_a_session_with_the_number_of_an_earlier_one_is_another_session() {
    let mut stranger = Stranger::new();
    let (own, run) = (stranger.net.nodes[1].rdm.local_check, stranger.net.nodes[1].incarnation);
    let index = stranger.net.nodes[1].rdm.conn_of(stranger.peer).unwrap();
    let state = |stranger: &Stranger| {
        let conn = stranger.net.nodes[1].rdm.conn(index).unwrap();
        let incoming = conn.incoming.unwrap();
        (incoming.number, incoming.held, incoming.unused, u64::from(conn.former_charge))
    };
    let open = |stranger: &mut Stranger, session| {
        stranger.frame(own, &wire::encode::hello(session, 100));
        stranger.net.on(1, |rdm, world| rdm.pump(world));
    };
    open(&mut stranger, 1000);
    assert_eq!(stranger.frame(wire::field::session_check(run, 1000), &unasked(0)), Status::Ok);
    open(&mut stranger, 1001);
    open(&mut stranger, 1000);
    let window = u32::try_from(stranger.net.nodes[1].rdm.bounds.window_bytes_max).unwrap();
    // The messages of `Stranger::new` are stored, too.
    let cost = wire::message::MESSAGE_COST;
    assert_eq!(state(&stranger), (1000, window, window, 3 * cost + 1000));
    stranger.net.recv(1, None, 8, 0, 1000);
    assert_eq!(state(&stranger), (1000, window, window, 2 * cost));
}

#[test]
fn regression_parts_without_a_header_of_one_peer_leave_room_for_those_of_others() {
    let mut stranger = Stranger::new();
    let check = stranger.check;
    let part = |n: u32| Opaque::Send {
        check,
        imm: Some(wire::field::part(2 + n / 60_000, 1 + (n % 60_000) as u16)),
    };
    let taken = (0..100_000).take_while(|n| stranger.throw(part(*n), &[1; 1000]) == Status::Ok);
    let taken = taken.count();
    let rdm = &stranger.net.nodes[1].rdm;
    let most = usize::try_from(rdm.bounds.window_bytes_max * 3 / 2).unwrap();
    assert!(rdm.reorder_bytes <= most && taken * 1000 < most, "{taken}: {}", rdm.reorder_bytes);
    assert!(most < rdm.bounds.reorder_bytes_max / 4, "others have three quarters and more");
}

/// The parts of a message carry only the low 16 bits of its id.
#[test]
fn regression_a_part_that_comes_late_is_not_taken_for_one_of_a_later_message() {
    let mut stranger = Stranger::new();
    let check = stranger.check;
    let index = stranger.net.nodes[1].rdm.conn_of(stranger.peer).unwrap();
    assert_eq!(stranger.frame(check, &frames(1)[4]), Status::Ok, "a message in parts, with id 2");
    let incomplete = |stranger: &Stranger| stranger.net.nodes[1].rdm.occupancy().partials;
    assert_eq!(incomplete(&stranger), 1);
    // Messages overtake its other part, each into a receive, as far as they are accepted.
    let mut id = 3;
    let status = loop {
        stranger.net.recv(1, None, 8, 0, 1000);
        let status = stranger.frame(check, &unasked(id));
        if status != Status::Ok || id > 1 << 17 {
            break status;
        }
        id += 1;
        stranger.net.done(1);
        stranger.net.on(1, |rdm, _| rdm.grant(index));
    };
    assert_eq!(status, Status::RemoteRnr, "message {id}");
    assert!((1 << 14..1 << 15).contains(&(id - 2)), "{id}");
    let part = Opaque::Send { check, imm: Some(wire::field::part(2, 5)) };
    assert_eq!(stranger.throw(part, &[1; 2995]), Status::Ok);
    assert_eq!(incomplete(&stranger), 0, "the message is complete");
    assert_eq!(stranger.frame(check, &unasked(id)), Status::Ok);
}

#[test]
fn regression_a_new_session_does_not_look_at_what_is_kept_of_other_peers() {
    let mut stranger = Stranger::new();
    let index = stranger.net.nodes[1].rdm.conn_of(stranger.peer).unwrap();
    // The number of messages that may be stored for all peers. The shortest time counts, because
    // the machine may be busy.
    let mut sessions = |others: u32| {
        let rdm = &mut stranger.net.nodes[1].rdm;
        for id in 0..others {
            rdm.partials.insert((index + 1, id), receive::inbound::Partial::nothing());
        }
        let mut once = || {
            let start = std::time::Instant::now();
            for number in 0..300 {
                let hello = peers::connection::Hello {
                    version: wire::field::VERSION,
                    session: number,
                    incarnation: 9,
                };
                rdm.open_incoming(index, &hello);
            }
            start.elapsed()
        };
        (0..10).map(|_| once()).min().unwrap()
    };
    let (alone, among) = (sessions(0), sessions(1 << 18));
    let most = 100 * alone.max(std::time::Duration::from_micros(100));
    assert!(among < most, "{among:?}, and {alone:?} without");
}
