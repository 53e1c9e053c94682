//! Tests of the receiving side: the order of a flow's frames for every sequence of arrivals, and
//! the limits of memory and of time.

use super::*;
use crate::meta::Meta;
use crate::order::{Admission, Near, Source};
use crate::testing::{meta, v4};
use proptest::prelude::*;
use std::vec;

#[derive(Default)]
struct Up {
    frames: Vec<Vec<u8>>,
    bypass: bool,
    /// Whether the sender of a frame is its length.
    has_senders: bool,
}

impl Up {
    fn source_of(&self, frame: &[u8]) -> Source {
        if self.has_senders { frame.len() as u64 } else { 0 }
    }
}

impl Sink for Up {
    fn admit(&mut self, _: u32, _: &mut Near, frame: &[u8]) -> Option<Admission> {
        let (meta, source) = (meta(&v4(47, (0, 0), b"")), self.source_of(frame));
        Some(Admission { meta, source, at_once: self.bypass })
    }

    fn take(&mut self, _: u32, _: &mut Near, frame: &[u8]) -> Source {
        self.frames.push(frame.to_vec());
        self.source_of(frame)
    }

    fn release(&mut self, _: u32, _: &mut Near, _: &Meta, frame: &[u8]) {
        self.frames.push(frame.to_vec());
    }
}

impl Order {
    fn bytes(&self) -> usize {
        self.store.budget.waiting_bytes()
    }
}

fn limits() -> Limits {
    Limits { wait: Duration::from_millis(100), flows_max: 4, bytes_max: 100_000 }
}

/// Returns the chunks, of `size` bytes each, of the frame with this sequence number. Every byte of
/// the frame is the sequence number modulo 251.
fn chunks(flow: u32, sequence: u16, bytes: usize, size: usize) -> Vec<(ChunkPosition, Vec<u8>)> {
    let payload = vec![u8::try_from(sequence % 251).unwrap(); bytes];
    let count = bytes.div_ceil(size);
    payload
        .chunks(size)
        .enumerate()
        .map(|(i, part)| {
            let place = ChunkPosition {
                flow,
                sequence,
                chunk: u8::try_from(i).unwrap(),
                last: i + 1 == count,
                frame_bytes: u16::try_from(bytes).unwrap(),
            };
            (place, part.to_vec())
        })
        .collect()
}

fn ms(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}

proptest! {
    #[test]
    fn frames_come_out_whole_once_and_in_order_however_chunks_arrive(
        sizes in prop::collection::vec(1usize..5000, 1..20),
        seed: u64,
    ) {
        let mut all: Vec<_> = (0u16..)
            .zip(&sizes)
            .flat_map(|(sequence, bytes)| chunks(7, sequence, *bytes, 1000))
            .collect();
        let mut rng = srd_proto::rng::Rng::new(seed);
        for i in (1..all.len()).rev() {
            let j = rng.below(u32::try_from(i).unwrap() + 1) as usize;
            all.swap(i, j);
        }
        let mut order = Order::new(limits(), Secret::known(1));
        let mut up = Up::default();
        for (place, payload) in &all {
            order.chunk(ms(0), (3, 0), *place, payload, &mut up);
        }
        let lengths: Vec<_> = up.frames.iter().map(Vec::len).collect();
        prop_assert_eq!(lengths, sizes);
        for (i, frame) in up.frames.iter().enumerate() {
            prop_assert!(frame.iter().all(|b| usize::from(*b) == i));
        }
        prop_assert_eq!(order.bytes(), 0);
        prop_assert_eq!(order.counts().bad_chunks, 0);
    }

    #[test]
    fn no_chunk_makes_it_panic_or_forget_its_bounds(
        chunks in prop::collection::vec((any::<u64>(), 0usize..3000, 0u64..300), 0..200),
    ) {
        let mut order = Order::new(limits(), Secret::known(1));
        let mut up = Up::default();
        let mut now = 0;
        for (imm, bytes, step) in chunks {
            now += step;
            let mut place = ChunkPosition::decode(imm);
            place.flow %= 8;
            order.chunk(ms(now), (0, 0), place, &vec![0; bytes], &mut up);
            order.handle_timeout(ms(now), &mut up);
            prop_assert!(order.bytes() <= 100_000 && order.flows() <= 4);
        }
        order.handle_timeout(ms(now + 1_000_000), &mut up);
        order.handle_timeout(ms(now + 2_000_000), &mut up);
        prop_assert_eq!(order.bytes(), 0);
        prop_assert_eq!(order.flows(), 0);
    }
}

#[test]
fn a_hole_in_one_flow_delays_no_other() {
    let mut order = Order::new(limits(), Secret::known(1));
    let mut up = Up::default();
    let one = |flow, sequence| chunks(flow, sequence, 10, 10).remove(0);
    let (place, payload) = one(1, 1);
    order.chunk(ms(0), (0, 0), place, &payload, &mut up);
    assert!(up.frames.is_empty());
    let (place, payload) = one(2, 0);
    order.chunk(ms(0), (0, 0), place, &payload, &mut up);
    assert_eq!(up.frames.len(), 1);
}

#[test]
fn a_wait_ends_by_time_and_is_counted_and_a_late_frame_is_dropped() {
    let mut order = Order::new(limits(), Secret::known(1));
    let mut up = Up::default();
    for sequence in [0, 2, 3] {
        let (place, payload) = chunks(1, sequence, 10, 10).remove(0);
        order.chunk(ms(5), (0, 0), place, &payload, &mut up);
    }
    assert_eq!(up.frames.len(), 1);
    assert_eq!(order.poll_timeout(), Some(ms(105)));
    order.handle_timeout(ms(104), &mut up);
    assert_eq!(up.frames.len(), 1);
    order.handle_timeout(ms(105), &mut up);
    assert_eq!(up.frames.len(), 3);
    assert_eq!((order.counts().wait_timeouts, order.counts().given_up), (1, 1));
    let (place, payload) = chunks(1, 1, 10, 10).remove(0);
    order.chunk(ms(106), (0, 0), place, &payload, &mut up);
    assert_eq!((up.frames.len(), order.counts().bad_chunks), (3, 1));
}

#[test]
fn a_wait_begins_anew_with_each_hole() {
    let mut order = Order::new(limits(), Secret::known(1));
    let mut up = Up::default();
    let mut put = |order: &mut Order, at, sequence| {
        let (place, payload) = chunks(1, sequence, 10, 10).remove(0);
        order.chunk(ms(at), (0, 0), place, &payload, &mut up);
    };
    put(&mut order, 0, 1);
    put(&mut order, 90, 0);
    put(&mut order, 95, 3);
    order.handle_timeout(ms(100), &mut Up::default());
    assert_eq!(order.counts().wait_timeouts, 0);
    order.handle_timeout(ms(195), &mut Up::default());
    assert_eq!(order.counts().wait_timeouts, 1);
}

#[test]
fn without_order_frames_go_up_as_they_are_whole() {
    let mut order = Order::new(limits(), Secret::known(1));
    let mut up = Up { bypass: true, ..Up::default() };
    for sequence in [2, 0, 1] {
        for (place, payload) in chunks(1, sequence, 2000, 1000) {
            order.chunk(ms(0), (0, 0), place, &payload, &mut up);
        }
    }
    let firsts: Vec<_> = up.frames.iter().map(|f| f[0]).collect();
    assert_eq!(firsts, [2, 0, 1]);
    assert_eq!(order.bytes(), 0);
}

/// Puts a frame of ten bytes into an order, and returns the sequence numbers of all frames that
/// have come out.
fn put(order: &mut Order, up: &mut Up, at: u64, flow: u32, sequence: u16) -> Vec<u8> {
    let (place, payload) = chunks(flow, sequence, 10, 10).remove(0);
    order.chunk(ms(at), (0, 0), place, &payload, up);
    up.frames.iter().map(|frame| frame[0]).collect()
}

#[test]
fn regression_more_flows_than_the_table_has_entries_lose_no_frame() {
    let mut order = Order::new(limits(), Secret::known(1));
    let mut up = Up::default();
    for (round, sequence) in [(0, 0), (1, 40), (2, 41)] {
        for flow in 0..20 {
            put(&mut order, &mut up, 20 * round + u64::from(flow), flow, sequence);
        }
        assert_eq!(order.flows(), 4);
    }
    assert_eq!((up.frames.len(), order.counts()), (60, OrderCounts::default()));
    let listed: usize = order.peers.iter().map(|peer| peer.senders.len()).sum();
    assert_eq!(listed, 4, "one record for each flow");
    order.handle_timeout(ms(130_000), &mut up);
    assert_eq!(order.flows(), 0);
    assert!(order.peers.iter().all(|peer| (peer.senders.len(), peer.replaced.len()) == (0, 0)));
}

#[test]
fn a_frame_of_several_chunks_arrives_though_the_table_is_full() {
    let mut order = Order::new(limits(), Secret::known(1));
    let mut up = Up::default();
    for flow in 0..20 {
        for (place, payload) in chunks(flow, 0, 2500, 1000) {
            order.chunk(ms(0), (0, 0), place, &payload, &mut up);
        }
    }
    assert_eq!((up.frames.len(), order.counts(), order.bytes()), (20, OrderCounts::default(), 0));
}

#[test]
fn flows_that_wait_are_not_replaced_and_a_table_full_of_them_refuses_new_flows() {
    let mut order = Order::new(limits(), Secret::known(1));
    let mut up = Up::default();
    for flow in 0..4 {
        assert!(put(&mut order, &mut up, 0, flow, 1).is_empty(), "each waits for frame 0");
    }
    assert!(put(&mut order, &mut up, 0, 4, 0).is_empty());
    assert_eq!((order.flows(), order.counts().full), (4, 1));
    assert_eq!(put(&mut order, &mut up, 0, 2, 0), [0, 1], "this flow waits no longer");
    assert_eq!(put(&mut order, &mut up, 0, 5, 0), [0, 1, 0]);
    assert_eq!((order.flows(), order.counts().full), (4, 1));
}

#[test]
fn regression_a_full_table_replaces_the_flow_that_was_silent_for_longest() {
    let mut order = Order::new(limits(), Secret::known(1));
    let mut up = Up::default();
    for (at, flow) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 0)] {
        put(&mut order, &mut up, at, flow, u16::from(at == 4));
    }
    for flow in [9, 10] {
        put(&mut order, &mut up, 5, flow, 0);
    }
    let is_known = |flow| order.flows.contains_key(&(0, flow));
    assert_eq!([0, 1, 2, 3].map(is_known), [true, false, false, true]);
}

/// Another interface of the same host forgot the flows of an interface by many flows of its own.
#[test]
fn regression_flows_of_one_interface_replace_none_of_another() {
    let limits = Limits { flows_max: 6, ..limits() };
    let mut order = Order::new(limits, Secret::known(1));
    let mut up = Up { has_senders: true, ..Up::default() };
    let put = |order: &mut Order, up: &mut Up, at, flow, bytes, size| {
        for (place, payload) in chunks(flow, 0, bytes, size) {
            order.chunk(ms(at), (0, 0), place, &payload, up);
        }
    };
    // The sender of a frame of several chunks is known when the frame is complete.
    put(&mut order, &mut up, 0, 1000, 20, 20);
    put(&mut order, &mut up, 0, 1001, 20, 10);
    for flow in 0..100 {
        put(&mut order, &mut up, 2000 + u64::from(flow), flow, 10, 10);
    }
    let is_known = |order: &Order, flow| order.flows.contains_key(&(0, flow));
    assert!(is_known(&order, 1000) && is_known(&order, 1001));
    assert_eq!((order.flows(), order.counts()), (6, OrderCounts::default()));
    // Both have an equal part when both have many flows.
    for flow in 1002..1100 {
        put(&mut order, &mut up, 3000, flow, 20, 20);
    }
    let of_first = (0..100).filter(|flow| is_known(&order, *flow)).count();
    assert!((2..=3).contains(&of_first), "{of_first}");
    assert_eq!(order.counts(), OrderCounts::default());
}

/// If all flows of the interface with the most flows wait, one of another interface is replaced.
#[test]
fn a_flow_that_can_be_replaced_is_found_behind_flows_that_wait() {
    let mut order = Order::new(limits(), Secret::known(1));
    let mut up = Up { has_senders: true, ..Up::default() };
    put(&mut order, &mut up, 0, 9, 0);
    for flow in 0..3 {
        let (place, payload) = chunks(flow, 1, 20, 20).remove(0);
        order.chunk(ms(0), (0, 0), place, &payload, &mut up);
    }
    put(&mut order, &mut up, 0, 10, 0);
    assert_eq!((order.flows(), order.counts().full), (4, 0));
    assert!(!order.flows.contains_key(&(0, 9)) && order.flows.contains_key(&(0, 10)));
}

/// The next frame of a replaced flow waited for frames that had been delivered, or, from number 32
/// on, a frame that it had overtaken was lost.
#[test]
fn regression_a_replaced_flow_continues_where_it_was() {
    for count in [3, 41] {
        let mut order = Order::new(limits(), Secret::known(1));
        let mut up = Up::default();
        for sequence in 0..count {
            put(&mut order, &mut up, 0, 0, sequence);
        }
        for flow in 1..5 {
            put(&mut order, &mut up, 1, flow, 0);
        }
        assert!(!order.flows.contains_key(&(0, 0)));
        up.frames.clear();
        assert!(put(&mut order, &mut up, 2, 0, count + 1).is_empty(), "it has overtaken a frame");
        let both = [count, count + 1].map(|of| u8::try_from(of).unwrap());
        assert_eq!(put(&mut order, &mut up, 2, 0, count), both);
        // A late frame that was delivered before is dropped.
        for flow in 5..9 {
            put(&mut order, &mut up, 3, flow, 0);
        }
        up.frames.clear();
        assert!(put(&mut order, &mut up, 4, 0, 1).is_empty());
        assert_eq!(order.counts().bad_chunks, 1);
        assert_eq!(put(&mut order, &mut up, 4, 0, count + 2), [u8::try_from(count + 2).unwrap()]);
    }
}

#[test]
fn a_replaced_flow_without_a_record_continues_at_once_with_the_frame_that_arrives_first() {
    let mut order = Order::new(limits(), Secret::known(1));
    let mut up = Up::default();
    for flow in 0..9 {
        put(&mut order, &mut up, 0, flow, 0);
    }
    up.frames.clear();
    assert_eq!(order.peers[0].replaced.len(), 4, "flow 0 was replaced first");
    // Its record was dropped. Its frame 51 is still under way when frame 52 arrives.
    assert_eq!(put(&mut order, &mut up, 1, 0, 52), [52]);
    assert_eq!(put(&mut order, &mut up, 1, 0, 51), [52], "it would be out of order");
    assert_eq!(put(&mut order, &mut up, 1, 0, 54), [52]);
    assert_eq!(put(&mut order, &mut up, 1, 0, 53), [52, 53, 54]);
    // A new flow loses no frame that was overtaken.
    up.frames.clear();
    assert!(put(&mut order, &mut up, 1, 20, 1).is_empty());
    assert_eq!(put(&mut order, &mut up, 1, 20, 0), [0, 1]);
    let counts = order.counts();
    assert_eq!((counts.bad_chunks, counts.wait_timeouts, counts.full), (1, 0, 0));
    // A minute after the last replacement, no flow in use has lost its entry.
    up.frames.clear();
    order.handle_timeout(ms(121_000), &mut up);
    assert!(put(&mut order, &mut up, 121_000, 30, 40).is_empty(), "this frame waits for frame 0");
}

#[test]
fn regression_a_flow_that_was_forgotten_goes_on_where_it_is() {
    let mut order = Order::new(limits(), Secret::known(1));
    let mut up = Up::default();
    for sequence in [WINDOW, WINDOW + 2, WINDOW + 1] {
        let (place, payload) = chunks(1, sequence, 10, 10).remove(0);
        order.chunk(ms(0), (0, 0), place, &payload, &mut up);
    }
    assert_eq!((up.frames.len(), order.counts().bad_chunks), (3, 0));
}

#[test]
fn regression_a_flow_that_always_waits_for_something_is_in_line_once() {
    let mut order = Order::new(limits(), Secret::known(1));
    let mut up = Up::default();
    for n in 0..10_000u16 {
        // Each gap is filled at once, and the next gap exists already.
        for sequence in [2 * n + 1, 2 * n] {
            let (place, payload) = chunks(1, sequence, 10, 10).remove(0);
            order.chunk(ms(n.into()), (0, 0), place, &payload, &mut up);
        }
        assert!(order.store.waiting.len() <= 1);
        order.handle_timeout(ms(n.into()), &mut up);
    }
    assert_eq!((up.frames.len(), order.counts().wait_timeouts), (20_000, 0));
}

#[test]
fn regression_a_large_frame_in_chunks_arrives_while_another_peer_holds_all_that_it_can() {
    let limits = Limits { flows_max: 1000, bytes_max: 1 << 20, ..limits() };
    let mut order = Order::new(limits, Secret::known(1));
    order.set_peers(64);
    let mut up = Up::default();
    for flow in 0..200 {
        let (place, payload) = chunks(flow, 1, 60_000, 6000).remove(0);
        order.chunk(ms(0), (0, 0), place, &payload, &mut up);
    }
    assert!(order.counts().full > 0, "the first peer has used up its part, and the common one");
    // A flow without waiting frames does not count against the frame.
    for (place, payload) in [(0, 10), (1, 60_000)]
        .into_iter()
        .flat_map(|(sequence, bytes)| chunks(7, sequence, bytes, 6000))
    {
        order.chunk(ms(0), (1, 0), place, &payload, &mut up);
    }
    let bytes: Vec<_> = up.frames.iter().map(Vec::len).collect();
    assert_eq!(bytes, [10, 60_000]);
}
