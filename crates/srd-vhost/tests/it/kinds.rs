//! Descriptors on which a call could block: the device accepts none of them, and never blocks.

#![allow(clippy::unwrap_used)]

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::support::kinds::{self, Kind};
use crate::support::{FrontEnd, PLAIN, REGION_BYTES, device, frame};
use rustix::event::{EventfdFlags, eventfd};
use srd_vhost::Device;
use srd_vhost::message::{DESCRIPTORS_MAX, Header, request};
use srd_vhost::session::{RECEIVE, SEND};

/// A limit that every machine meets if the device does not block.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bodies of the requests that take a descriptor: events of a ring, a table of one region, and a
/// single region.
fn requests() -> Vec<(u32, Vec<u8>)> {
    let words = |words: &[u64]| words.iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>();
    let region = [0, REGION_BYTES, 0, 0];
    let table = [&words(&[1])[..], &words(&region)].concat();
    let single = [&words(&[0])[..], &words(&region)].concat();
    let events = [request::SET_VRING_KICK, request::SET_VRING_CALL, request::SET_VRING_ERR];
    let mut all: Vec<(u32, Vec<u8>)> = events.map(|of| (of, words(&[1]))).into();
    all.push((request::SET_MEM_TABLE, table));
    all.push((request::ADD_MEM_REG, single));
    all
}

/// Runs `work` on another thread. Fails if `work` does not end within [`PATIENCE`].
fn in_time(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let thread = std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    let waited = is_done.recv_timeout(PATIENCE);
    assert!(waited != Err(RecvTimeoutError::Timeout), "the device waits for its front end");
    thread.join().unwrap();
}

/// Returns a front end that the device has accepted. The device may first have to close descriptors
/// of the last front end.
fn met(device: &mut Device, path: &Path) -> FrontEnd {
    let front = FrontEnd::connect(path);
    while !device.is_connected() {
        device.turn();
        std::thread::yield_now();
    }
    front
}

#[test]
fn regression_a_descriptor_of_another_kind_is_refused_and_never_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    for kind in kinds::all(directory.path()) {
        in_time(move || refused(&kind));
    }
}

/// Checks that every request that takes a descriptor refuses a descriptor of this kind, with an
/// answer. The next front end is served, unless the descriptors of the last front end cannot be
/// closed.
fn refused(kind: &Kind) {
    for (request, body) in requests() {
        let directory = tempfile::tempdir().unwrap();
        let (mut device, path) = device(&directory);
        let mut front = met(&mut device, &path);
        front.agree(&mut device);
        let name = kind.name;
        assert!(!front.is_done(&mut device, request, &body, &[kind.as_fd()]), "{name}, {request}");
        assert!(front.is_given_up(&mut device), "{name}, {request}");
        assert_eq!(device.counts().violations, 1);
        if name != kinds::STOPPED {
            let mut front = met(&mut device, &path);
            front.set_up(&mut device, PLAIN);
            front.send_frame(&frame(7));
            assert_eq!(device.read(), Some(frame(7)), "{name}, {request}");
        }
    }
}

/// A descriptor whose file system does not complete the close is closed on another thread. Until
/// then the device accepts no other front end, so descriptors of at most one front end are pending.
#[test]
fn a_device_meets_nobody_while_descriptors_of_the_last_one_cannot_be_closed() {
    let directory = tempfile::tempdir().unwrap();
    let Some(stopped) = kinds::stopped(directory.path()) else { return };
    in_time(move || {
        let directory = tempfile::tempdir().unwrap();
        let (mut device, path) = device(&directory);
        let front = met(&mut device, &path);
        front.say_with(request::SET_VRING_KICK, &1_u64.to_ne_bytes(), &[stopped.as_fd()]);
        device.turn();
        let next = FrontEnd::connect(&path);
        for _ in 0..100 {
            device.turn();
            assert!(!device.is_connected());
            // No descriptor to wait on: the socket would always be readable.
            assert_eq!(device.descriptors().count(), 0);
        }
        drop(stopped);
        while !device.is_connected() {
            device.turn();
            std::thread::yield_now();
        }
        drop(next);
    });
}

/// A header without its body, repeatedly with a descriptor: the device keeps no more descriptors
/// than one request may have, and no descriptor on which a call could block. A descriptor of the
/// connection's own end would keep the connection open forever.
#[test]
fn descriptors_of_half_a_request_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let header = Header { request: request::SET_MEM_TABLE, wants_answer: true, body_bytes: 512 };
    let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    for (descriptor, most) in [(&event, DESCRIPTORS_MAX), (&pipe, 0)] {
        let violations = device.counts().violations;
        let mut front = met(&mut device, &path);
        front.raw(&header.write(), &[]);
        for n in 0..=most {
            assert!(device.is_connected(), "{n} of {most}");
            front.raw(&[0], &[descriptor.as_fd()]);
            device.turn();
        }
        assert!(front.is_given_up(&mut device));
        assert_eq!(device.counts().violations, violations + 1);
    }
    let mut front = met(&mut device, &path);
    front.send_itself(&header.write());
    drop(front);
    while device.is_connected() || device.is_closing() {
        device.turn();
    }
}

/// Event descriptors that their owner fills and makes blocking after the device has accepted them.
#[test]
fn regression_full_and_blocking_events_hold_up_nothing() {
    in_time(|| {
        let directory = tempfile::tempdir().unwrap();
        let (mut device, path) = device(&directory);
        let mut front = met(&mut device, &path);
        front.set_up(&mut device, PLAIN);
        for ring in &front.rings[..2] {
            for event in [&ring.kick, &ring.call, &ring.error] {
                rustix::io::ioctl_fionbio(event, false).unwrap();
                let _ = rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes());
            }
        }
        front.give_buffers(4);
        for round in 0..3 {
            front.send_frame(&frame(round));
            device.turn();
            assert_eq!(device.read(), Some(frame(round)));
            assert!(device.write(&frame(round), 0));
            device.flush();
            assert!(!device.rest());
            device.wake();
        }
        assert_eq!(front.used(RECEIVE).len(), 3);
        // Also reports an error: the driver's index is invalid.
        let index = front.rings[SEND].available_at() + 2;
        front.write(index, &0x7fff_u16.to_le_bytes());
        assert_eq!((device.read(), device.counts().broken_rings), (None, 1));
    });
}
