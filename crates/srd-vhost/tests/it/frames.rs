//! Frames pass in both directions, in the layouts that the driver selects.

#![allow(clippy::unwrap_used)]

use crate::support::{
    BUFFER_BYTES, BUFFERS, FrontEnd, INDIRECT, MERGED, NEXT, PLAIN, SIZE, device, frame,
};
use srd_vhost::message::request;
use srd_vhost::session::{RECEIVE, RINGS_MAX, SEND, feature};

#[test]
fn frames_pass_in_both_directions() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    // More rounds than the ring has entries, so that the indices wrap.
    for round in 0..usize::from(SIZE) * 3 {
        let sent = frame(round);
        front.send_frame(&sent);
        assert_eq!(device.read(), Some(sent));
        assert_eq!(device.read(), None);
        front.give_buffers(1);
        assert!(device.write(&frame(100 + round), 0));
        assert_eq!(front.receive(), None, "nothing is published yet");
        device.flush();
        assert_eq!(front.used(SEND).len(), 1);
        assert_eq!(front.receive(), Some(frame(100 + round)));
    }
    assert_eq!(device.counts(), srd_vhost::Counts { connected: 1, ..Default::default() });
}

#[test]
fn a_frame_may_lie_in_many_pieces_and_behind_an_indirect_table() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN | feature::INDIRECT_DESC);
    let sent = frame(40);
    front.write(BUFFERS, &[&[0; 12], &sent.ethernet[..], &sent.packet[10..]].concat());
    let table = BUFFERS + 0x1_0000;
    // Pieces of 0, 5, 5, ... bytes, none of which ends with the header.
    let pieces: Vec<(u64, u32)> = [(0, 0)]
        .into_iter()
        .chain((0..14).map(|n| (u64::from(n) * 5, 5.min(66 - n * 5))))
        .collect();
    let last = u16::try_from(pieces.len()).unwrap() - 1;
    for (n, (at, bytes)) in (0..).zip(pieces) {
        let flags = if n == last { (0, 0) } else { (NEXT, n + 1) };
        front.descriptor(table, n, (BUFFERS + at, bytes), flags);
    }
    let descriptors = front.rings[SEND].descriptors();
    front.descriptor(descriptors, 3, (table, u32::from(last + 1) * 16), (INDIRECT, 0));
    front.offer(SEND, 3);
    assert_eq!(device.read(), Some(sent));
}

#[test]
fn buffers_of_one_frame_appear_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, MERGED);
    let long = frame(9001);
    front.give_buffers(4);
    assert!(!device.write(&long, 0), "five buffers are needed");
    device.flush();
    assert_eq!((front.used(RECEIVE), device.counts().no_buffer), (vec![], 1));
    front.give_buffers(1);
    assert!(device.write(&long, 0));
    device.flush();
    assert_eq!(front.receive(), Some(long));
}

#[test]
fn without_merging_a_frame_that_is_longer_than_a_buffer_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    front.give_buffers(2);
    let fits = usize::try_from(BUFFER_BYTES).unwrap() - 26;
    assert!(!device.write(&frame(fits + 1), 0));
    assert!(device.write(&frame(fits), 0), "the buffer is still there");
    assert_eq!(device.counts().too_long, 1);
    device.flush();
    assert_eq!(front.receive(), Some(frame(fits)));
}

#[test]
fn the_driver_is_told_only_if_it_wants_to_be() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    let mut round = |front: &mut FrontEnd| {
        front.give_buffers(2);
        assert!(device.write(&frame(1), 0) && device.write(&frame(2), 0));
        device.flush();
        device.flush();
        FrontEnd::told(&front.rings[RECEIVE].call)
    };
    assert_eq!(round(&mut front), 1, "once for both");
    let flags = front.rings[RECEIVE].available_at();
    front.write(flags, &1_u16.to_le_bytes());
    assert_eq!(round(&mut front), 0);
}

#[test]
fn with_event_indices_the_driver_says_at_which_buffer_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN | feature::EVENT_IDX);
    front.give_buffers(4);
    let event = front.rings[RECEIVE].available_at() + 4 + u64::from(SIZE) * 2;
    // The event index requests an interrupt after the third buffer, which has the index 2.
    front.write(event, &2_u16.to_le_bytes());
    let told = [1, 2, 3, 4].map(|n| {
        assert!(device.write(&frame(n), 0));
        device.flush();
        FrontEnd::told(&front.rings[RECEIVE].call)
    });
    assert_eq!(told, [0, 0, 1, 0]);
    // In the other direction, the device writes the index at which it needs a kick.
    assert!(!device.rest());
    let asked = front.rings[SEND].used_at() + 4 + u64::from(SIZE) * 8;
    assert_eq!(front.read_u16(asked), 0);
    front.send_frame(&frame(1));
    assert!(device.rest(), "a frame that came between two looks is not missed");
    assert!(device.read().is_some() && !device.rest());
    assert_eq!(front.read_u16(asked), 1);
}

#[test]
fn a_device_that_looks_anyway_wants_no_kicks() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    let used = front.rings[SEND].used_at();
    device.wake();
    assert_eq!(front.read_u16(used), 1);
    assert!(!device.rest());
    assert_eq!(front.read_u16(used), 0);
    rustix::io::write(&front.rings[SEND].kick, &1_u64.to_ne_bytes()).unwrap();
    assert_eq!(device.descriptors().count(), 2);
    device.turn();
    assert_eq!(FrontEnd::told(&front.rings[SEND].kick), 0, "the kick was taken note of");
}

#[test]
fn each_flow_has_its_pair_of_rings_and_all_pairs_are_read_in_turns() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN | feature::MQ);
    for ring in [2 + RECEIVE, 2 + SEND] {
        front.start(ring, 0);
        front.state(request::SET_VRING_ENABLE, ring, 1);
    }
    device.turn();
    assert_eq!(device.pairs(), 2);
    assert_eq!(device.descriptors().count(), 3, "the front end, and a kick of each pair");

    front.give_buffers_to(0, 8);
    front.give_buffers_to(1, 8);
    for flow in [0, 1, 1, 7, 4] {
        assert!(device.write(&frame(60), flow));
    }
    device.flush();
    assert_eq!((front.used(RECEIVE).len(), front.used(2 + RECEIVE).len()), (2, 3));

    // A ring that always has frames does not keep the device from reading another ring.
    let mut firsts = Vec::new();
    for _ in 0..RINGS_MAX {
        front.send_frame_by(0, &frame(100));
        front.send_frame_by(1, &frame(101));
        firsts.push(device.read().unwrap().packet.len());
        device.flush();
    }
    assert!(firsts.contains(&110) && firsts.contains(&111), "{firsts:?}");
    while device.read().is_some() {}
    device.flush();

    // A pair that is disabled receives no frames.
    front.state(request::SET_VRING_ENABLE, 2 + RECEIVE, 0);
    device.turn();
    assert_eq!(device.pairs(), 1);
    assert!(device.write(&frame(60), 1));
    device.flush();
    assert_eq!((front.used(RECEIVE).len(), front.used(2 + RECEIVE).len()), (1, 0));
}

/// Entries are read and written several at a time. Around the end of the rings, and with frames
/// that find too few buffers in between, frames arrive in order, each exactly once.
#[test]
fn frames_pass_around_the_rings_many_times() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, MERGED);
    let (mut sent, mut full) = (0_usize, 0);
    for round in 0..200_usize {
        let count = 1 + round * 7 % 40;
        for n in 0..count {
            front.send_frame(&frame(20 + (sent + n) % 90));
        }
        for n in 0..count {
            assert_eq!(device.read(), Some(frame(20 + (sent + n) % 90)), "round {round}");
        }
        assert_eq!(device.read(), None);
        sent += count;
        // Three frames of six buffers each need two buffers more.
        front.give_buffers(16);
        let long = frame(11_000 + round);
        assert!(device.write(&long, 0) && device.write(&long, 0));
        assert!(!device.write(&long, 0), "four buffers are too few");
        full += 1;
        assert!(device.write(&frame(7_000), 0));
        device.flush();
        let used = front.used(RECEIVE);
        assert_eq!(used.len(), 16, "round {round}");
        let first = u32::try_from(round * 16 % usize::from(SIZE)).unwrap();
        let expected = (first..first + 16).map(|head| head % u32::from(SIZE));
        assert!(used.iter().map(|(head, _)| *head).eq(expected), "in their order");
        let sent_back = front.used(SEND);
        assert_eq!(sent_back.len(), count);
    }
    assert_eq!(device.counts().no_buffer, full);
    assert_eq!((device.counts().malformed, device.counts().broken_rings), (0, 0));
}
