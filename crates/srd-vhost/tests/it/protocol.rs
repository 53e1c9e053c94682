//! Requirements of the vhost-user specification on a back end: memory regions are added and removed
//! one by one, and a request that the back end refuses gets an answer if the front end requests
//! one.

#![allow(clippy::unwrap_used)]

use std::os::fd::AsFd;

use crate::support::{BUFFERS, FrontEnd, PLAIN, REGION_BYTES, USER, device, frame};
use srd_vhost::memory::REGIONS_MAX;
use srd_vhost::message::{request, u64_at};
use srd_vhost::session::{RECEIVE, SEND};

/// Returns the body of a request with one region.
fn region(guest: u64, bytes: u64, user: u64, offset: u64) -> Vec<u8> {
    [0, guest, bytes, user, offset].iter().flat_map(|n: &u64| n.to_ne_bytes()).collect()
}

#[test]
fn regions_come_and_go_one_by_one_up_to_the_number_that_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.agree(&mut device);
    let slots = front.ask(&mut device, request::GET_MAX_MEM_SLOTS, &[]);
    assert_eq!(u64_at(&slots, 0), Some(REGIONS_MAX as u64));
    front.number(request::SET_FEATURES, PLAIN);
    for index in [RECEIVE, SEND] {
        front.state(request::SET_VRING_ENABLE, index, 1);
        front.start(index, 0);
    }
    device.turn();
    assert!(!device.is_running(), "there is no memory yet");
    let files = front.regions.each_ref().map(|file| file.try_clone().unwrap());
    let add = |front: &mut FrontEnd, device: &mut _, body: &[u8], n: usize| {
        front.is_done(device, request::ADD_MEM_REG, body, &[files[n].as_fd()])
    };
    let buffers = region(BUFFERS, REGION_BYTES, USER + (1 << 30), 0);
    assert!(add(&mut front, &mut device, &region(0, REGION_BYTES, USER, 0), 0));
    assert!(add(&mut front, &mut device, &buffers, 1));
    assert!(device.is_running());
    front.send_frame(&frame(1));
    assert_eq!(device.read(), Some(frame(1)));
    // The largest number of regions, and one more.
    let far = |n: usize| (1 << 40) + n as u64 * REGION_BYTES;
    for n in 2..REGIONS_MAX {
        assert!(add(&mut front, &mut device, &region(far(n), 4096, far(n), 0), 1), "{n}");
    }
    assert!(!add(&mut front, &mut device, &region(far(99), 4096, far(99), 0), 1));
    // Regions that overlap, that are not in their file, or that do not exist.
    let remove = |front: &mut FrontEnd, device: &mut _, body: &[u8]| {
        front.is_done(device, request::REM_MEM_REG, body, &[])
    };
    assert!(remove(&mut front, &mut device, &region(far(5), 4096, far(5), 77)));
    assert!(!remove(&mut front, &mut device, &region(far(5), 4096, far(5), 0)));
    assert!(!add(&mut front, &mut device, &region(far(6), 4096, far(5), 0), 1));
    assert!(!add(&mut front, &mut device, &region(far(5), REGION_BYTES, far(5), 4096), 1));
    assert!(device.counts().refused == 4 && device.counts().violations == 0);
    front.send_frame(&frame(2));
    assert_eq!(device.read(), Some(frame(2)), "refusals change nothing");
    // A buffer in a removed region is invalid.
    assert!(remove(&mut front, &mut device, &buffers));
    front.offer(SEND, 1);
    assert_eq!((device.read(), device.counts().malformed), (None, 1));
    assert!(add(&mut front, &mut device, &buffers, 1));
    // The ring's next entry is the buffer with this number.
    front.send_frame(&frame(3));
    assert_eq!(device.read(), Some(frame(3)));
}

/// A request that does not exist, or with features that were not offered, is refused by an answer
/// if the front end has requested one and both ends agreed on answers. Then the session continues;
/// without an answer it ends.
#[test]
fn what_is_not_offered_is_refused_by_an_answer_where_one_is_wanted() {
    let cases = [
        (request::SET_FEATURES, 1_u64 << 34),
        (request::SET_PROTOCOL_FEATURES, 1 << 1),
        // SET_LOG_FD, SEND_RARP, SET_STATUS, and a request that does not exist.
        (7, 0),
        (19, 0),
        (39, 0),
        (1000, 0),
    ];
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.agree(&mut device);
    for (refused, (number, value)) in (1..).zip(cases) {
        assert!(!front.is_done(&mut device, number, &value.to_ne_bytes(), &[]), "{number}");
        assert_eq!((device.counts().refused, device.counts().violations), (refused, 0));
    }
    // Executed requests are answered with success. Requests that have their own answer get that
    // answer.
    assert!(front.is_done(&mut device, request::SET_OWNER, &[], &[]));
    assert!(front.is_done(&mut device, request::SET_FEATURES, &PLAIN.to_ne_bytes(), &[]));
    assert_eq!(front.ask(&mut device, request::GET_QUEUE_NUM, &[]).len(), 8);
    let base = front.ask(&mut device, request::GET_VRING_BASE, &[0; 8]);
    assert_eq!(base, [0; 8]);
    drop(front);
    for (number, value) in cases {
        // Without an agreement the bit has no effect.
        let mut front = FrontEnd::connect(&path);
        device.turn();
        device.turn();
        front.say_wanting(number, &value.to_ne_bytes());
        device.turn();
        assert!(front.is_given_up(&mut device), "{number}");
    }
}
