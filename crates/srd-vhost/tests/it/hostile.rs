//! Errors of drivers and front ends are counted, and cause no read or write outside of the shared
//! memory.

#![allow(clippy::unwrap_used)]

use crate::support::{
    BUFFERS, FrontEnd, INDIRECT, MERGED, NEXT, PLAIN, REGION_BYTES, SIZE, WRITABLE, device, frame,
};
use srd_vhost::message::request;
use srd_vhost::ring::PIECES_MAX;
use srd_vhost::session::{RECEIVE, SEND, feature};

/// A descriptor: address, length, flags, and index of the next descriptor.
type Descriptor = ((u64, u32), (u16, u16));

/// Offers a chain that begins with the first of these descriptors, followed by a valid frame.
/// Returns the number of malformed chains.
fn offered(descriptors: &[Descriptor]) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN | feature::INDIRECT_DESC);
    let table = front.rings[SEND].descriptors();
    // The valid frame uses the second descriptor of the table.
    let places = [0, 2, 3, 4, 5];
    for (index, (piece, flags)) in places.into_iter().zip(descriptors) {
        front.descriptor(table, index, *piece, *flags);
    }
    front.offer(SEND, 0);
    front.send_frame(&frame(9));
    let last = std::iter::from_fn(|| device.read()).last();
    assert_eq!(last, Some(frame(9)), "the frame behind it is not lost");
    device.flush();
    let heads: Vec<u32> = front.used(SEND).iter().map(|(head, _)| *head).collect();
    assert_eq!(heads, [0, 1], "both chains come back");
    assert_eq!(device.counts().broken_rings, 0);
    device.counts().malformed
}

#[test]
fn malformed_chains_are_dropped_and_counted_and_come_back() {
    let good = (BUFFERS, 60);
    let cases: [(&str, &[Descriptor]); 13] = [
        ("a loop of itself", &[(good, (NEXT, 0))]),
        ("a loop of two", &[(good, (NEXT, 2)), (good, (NEXT, 0))]),
        ("outside of the memory", &[((BUFFERS << 8, 60), (0, 0))]),
        ("beyond the end of a region", &[((BUFFERS + REGION_BYTES - 30, 60), (0, 0))]),
        ("between two regions", &[((BUFFERS - 30, 60), (0, 0))]),
        ("around the end of all addresses", &[((u64::MAX - 20, 60), (0, 0))]),
        ("a next one that there is none of", &[(good, (NEXT, SIZE))]),
        ("writable", &[(good, (WRITABLE, 0))]),
        ("writable behind a good one", &[(good, (NEXT, 2)), (good, (WRITABLE, 0))]),
        ("shorter than its headers", &[((BUFFERS, 25), (0, 0))]),
        ("longer than any packet", &[((BUFFERS, 0x3_0000), (0, 0))]),
        ("longer than all numbers", &[((BUFFERS, u32::MAX), (NEXT, 2)), (good, (0, 0))]),
        ("empty", &[((BUFFERS, 0), (0, 0))]),
    ];
    for (what, descriptors) in cases {
        assert_eq!(offered(descriptors), 1, "{what}");
    }
    assert_eq!(offered(&[(good, (0, 0))]), 0, "and a good one is not");
}

#[test]
fn malformed_indirect_tables_are_dropped() {
    let table = BUFFERS + 0x1000;
    let cases: [(&str, Descriptor); 5] = [
        ("of no size", ((table, 0), (INDIRECT, 0))),
        ("of half an entry", ((table, 24), (INDIRECT, 0))),
        ("outside of the memory", ((BUFFERS << 8, 16), (INDIRECT, 0))),
        ("that goes on elsewhere", ((table, 16), (INDIRECT | NEXT, 2))),
        ("around the end", ((u64::MAX - 7, 32), (INDIRECT, 0))),
    ];
    for (what, descriptor) in cases {
        assert_eq!(offered(&[descriptor]), 1, "{what}");
    }
}

#[test]
fn a_table_below_a_table_and_a_chain_of_too_many_pieces_are_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN | feature::INDIRECT_DESC);
    let (table, descriptors) = (BUFFERS + 0x1000, front.rings[SEND].descriptors());
    front.descriptor(table, 0, (table, 16), (INDIRECT, 0));
    front.descriptor(descriptors, 0, (table, 16), (INDIRECT, 0));
    front.offer(SEND, 0);
    assert_eq!((device.read(), device.counts().malformed), (None, 1));
    // The largest number of pieces, in addition to the entry that names their table; then one piece
    // more.
    for (pieces, is_one) in [(PIECES_MAX - 1, true), (PIECES_MAX, false)] {
        let last = u16::try_from(pieces).unwrap() - 1;
        for n in 0..=last {
            let flags = if n == last { (0, 0) } else { (NEXT, n + 1) };
            front.descriptor(table, n, (BUFFERS, 1), flags);
        }
        front.descriptor(descriptors, 0, (table, u32::from(last + 1) * 16), (INDIRECT, 0));
        front.offer(SEND, 0);
        assert_eq!(device.read().is_some(), is_one, "{pieces}");
    }
    assert_eq!(device.counts().malformed, 2);
}

#[test]
fn buffers_that_cannot_be_written_are_given_back_empty() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, MERGED);
    let table = front.rings[RECEIVE].descriptors();
    let bad: [Descriptor; 3] = [
        ((BUFFERS, 2048), (0, 0)),
        ((BUFFERS << 8, 2048), (WRITABLE, 0)),
        ((BUFFERS, 2048), (WRITABLE | NEXT, 2)),
    ];
    for (index, (piece, flags)) in (0..).zip(bad) {
        front.descriptor(table, index, piece, flags);
        front.offer(RECEIVE, index);
        assert!(!device.write(&frame(60), 0));
    }
    device.flush();
    assert_eq!(front.used(RECEIVE), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(device.counts().malformed, 3);
    // Buffers with too little space: a frame takes only a limited number of them.
    for _ in 0..4 {
        front.descriptor(table, 0, (BUFFERS, 0), (WRITABLE, 0));
        front.offer(RECEIVE, 0);
    }
    assert!(!device.write(&frame(60), 0));
    assert_eq!(device.counts().no_buffer, 1);
}

#[test]
fn a_ring_whose_index_jumps_stops_until_it_is_set_up_again() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    let index = front.rings[SEND].available_at() + 2;
    front.write(index, &(SIZE + 1).to_le_bytes());
    assert_eq!(device.read(), None);
    assert_eq!(device.counts().broken_rings, 1);
    assert_eq!(FrontEnd::told(&front.rings[SEND].error), 1, "the front end is told");
    front.write(index, &0_u16.to_le_bytes());
    front.send_frame(&frame(1));
    assert_eq!((device.read(), device.counts().broken_rings), (None, 1));
    assert!(device.is_running(), "the other ring goes on");
    let base =
        front.ask(&mut device, request::GET_VRING_BASE, &[1, 0].map(u32::to_ne_bytes).concat());
    assert_eq!(base, [1, 0].map(u32::to_ne_bytes).concat());
    front.start(SEND, 0);
    device.turn();
    assert_eq!(device.read(), Some(frame(1)));
}

#[test]
fn a_head_that_is_no_descriptor_stops_the_ring() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    front.offer(SEND, SIZE);
    front.offer(RECEIVE, u16::MAX);
    assert_eq!((device.read(), device.write(&frame(1), 0)), (None, false));
    assert_eq!(device.counts().broken_rings, 2);
}

/// Heads are read ahead. A wrong head stops the ring when its turn comes, after the valid frames
/// before it.
#[test]
fn a_wrong_head_stops_the_ring_behind_the_frames_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    front.send_frame(&frame(1));
    front.send_frame(&frame(2));
    front.offer(SEND, SIZE + 7);
    front.send_frame(&frame(4));
    assert_eq!([(); 2].map(|()| device.read()), [Some(frame(1)), Some(frame(2))]);
    assert_eq!((device.read(), device.counts().broken_rings), (None, 1));
    assert_eq!(device.read(), None);
}

#[test]
fn a_turn_takes_a_bounded_share_of_bad_chains() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    // Descriptors of length zero.
    (0..SIZE).for_each(|head| front.offer(SEND, head));
    assert_eq!((device.read(), device.counts().malformed), (None, 64));
    assert!(device.rest(), "the others are not waited for");
    assert_eq!((device.read(), device.counts().malformed), (None, 128));
    assert!(!device.rest());
}

#[test]
fn rings_that_lie_nowhere_do_not_start() {
    let user = 0x7f00_0000_0000;
    let places = [
        [user + 0x8000, user + 0xa000, 0],
        [0x1_0000, 0x1_2000, 0x1_1000],
        [user + 0x8008, user + 0xa000, user + 0x9000],
        [user + 0x8000, user + 0xa002, user + 0x9000],
        [user + 0x8000, user + 0xa000, user + 0x9001],
        [user + REGION_BYTES - 16, user + 0xa000, user + 0x9000],
    ];
    for place in places {
        let directory = tempfile::tempdir().unwrap();
        let (mut device, path) = device(&directory);
        let mut front = FrontEnd::connect(&path);
        front.set_up(&mut device, PLAIN);
        front.place(SEND, place);
        device.turn();
        assert_eq!((device.read(), device.counts().broken_rings), (None, 1), "{place:x?}");
        assert!(device.is_connected());
    }
}
