//! Front ends connect, disconnect, and connect again; a violation of the protocol ends their
//! session.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{FrontEnd, MERGED, PLAIN, device, frame};
use srd_vhost::message::{Header, request};
use srd_vhost::session::{RECEIVE, SEND};
use srd_vhost::{Counts, Device};

#[test]
fn a_front_end_that_comes_back_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    for round in 1..=3 {
        let mut front = FrontEnd::connect(&path);
        front.set_up(&mut device, if round == 2 { MERGED } else { PLAIN });
        front.send_frame(&frame(5));
        assert_eq!(device.read(), Some(frame(5)));
        drop(front);
        device.turn();
        assert!(!device.is_connected() && !device.is_running());
        assert!(!device.write(&frame(5), 0));
        assert_eq!(
            device.counts(),
            Counts { connected: round, no_driver: round, ..Counts::default() }
        );
    }
}

/// Environment variable that marks the child process of the test below.
const CHILD: &str = "SRD_TEST_WITHOUT_DESCRIPTORS";

/// Without free descriptors, the listener stays readable: the loop of the device's owner would not
/// sleep. The test runs in a process of its own, because the limit is the process's.
#[test]
fn regression_a_device_without_descriptors_does_not_keep_its_loop_busy() {
    let name = "sessions::regression_a_device_without_descriptors_does_not_keep_its_loop_busy";
    if std::env::var_os(CHILD).is_none() {
        let program = std::env::current_exe().unwrap();
        let mut child = std::process::Command::new(program);
        let said = child.args(["--exact", name]).env(CHILD, "1").output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let _front = UnixStream::connect(&path).unwrap();
    let limits = getrlimit(Resource::Nofile);
    let free = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let none = Rlimit { current: Some(u64::try_from(free).unwrap()), ..limits };
    setrlimit(Resource::Nofile, none).unwrap();
    let begin = Instant::now();
    let mut wakes = 0;
    while begin.elapsed() < Duration::from_millis(500) {
        let mut fds: Vec<_> =
            device.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let tick = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        wakes += poll(&mut fds, Some(&tick)).unwrap();
        drop(fds);
        device.turn();
    }
    assert!(!device.is_connected());
    assert!(wakes < 20, "{wakes} times in half a second");
    setrlimit(Resource::Nofile, limits).unwrap();
    while !device.is_connected() {
        assert!(begin.elapsed() < Duration::from_secs(60), "nobody was accepted");
        std::thread::sleep(Duration::from_millis(5));
        device.turn();
    }
}

#[test]
fn a_back_end_that_comes_back_finds_its_place_in_the_rings() {
    let directory = tempfile::tempdir().unwrap();
    let (mut first, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut first, PLAIN);
    front.give_buffers(3);
    front.send_frame(&frame(1));
    assert!(first.read().is_some() && first.write(&frame(2), 0));
    first.flush();
    drop(first);
    assert!(!path.exists());
    // The front end keeps its rings, and sends to the next back end the indices up to which the
    // rings were used.
    let mut second = Device::open(&path).unwrap();
    let mut again = FrontEnd::connect(&path);
    std::mem::swap(&mut front.rings, &mut again.rings);
    again.adopt(front);
    again.set_up_at(&mut second, PLAIN, [1, 1]);
    again.send_frame(&frame(3));
    assert_eq!(second.read(), Some(frame(3)));
    assert!(
        second.write(&frame(4), 0) && second.write(&frame(5), 0) && !second.write(&frame(6), 0)
    );
    second.flush();
    assert_eq!(again.used(RECEIVE).len(), 3);
    assert_eq!(again.used(SEND).len(), 2);
}

/// A process listens in place of another process that ends: the file remains, and front ends find
/// it.
#[test]
fn a_device_takes_the_place_of_one_that_leaves_it() {
    let directory = tempfile::tempdir().unwrap();
    let (mut first, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut first, PLAIN);
    let mut second = Device::replace(&path).unwrap();
    first.leave();
    assert!(path.exists());
    let mut again = FrontEnd::connect(&path);
    again.set_up(&mut second, PLAIN);
    again.send_frame(&frame(1));
    assert_eq!(second.read(), Some(frame(1)));
    drop(second);
    assert!(!path.exists());
}

#[test]
fn one_front_end_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut first = FrontEnd::connect(&path);
    first.set_up(&mut device, PLAIN);
    let mut second = FrontEnd::connect(&path);
    device.turn();
    first.send_frame(&frame(1));
    assert_eq!(device.read(), Some(frame(1)));
    drop(first);
    device.turn();
    second.set_up(&mut device, PLAIN);
    second.send_frame(&frame(2));
    assert_eq!((device.read(), device.counts().connected), (Some(frame(2)), 2));
}

#[test]
fn the_socket_is_for_this_user_alone_and_not_taken_from_another_program() {
    let directory = tempfile::tempdir().unwrap();
    let (device, path) = device(&directory);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(Device::open(&path).is_err());
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1, "nothing else is left there");
    drop(device);
    // A socket that a killed program has left is replaced; another kind of file is not.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    drop(Device::open(&path).unwrap());
    std::fs::write(&path, "a file").unwrap();
    assert!(Device::open(&path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
}

/// In an earlier version, a socket counted as left behind after any error of a connection.
#[test]
fn regression_a_socket_of_another_type_in_use_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("port");
    let _in_use = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let before = std::fs::metadata(&path).unwrap().ino();
    assert_eq!(Device::open(&path).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), before);
}

/// A process that is killed while it creates its socket leaves a temporary directory. In a
/// container, the next process has the same process number; in an earlier version, it could not
/// listen.
#[test]
fn regression_what_a_killed_process_of_the_same_number_has_left_is_in_nobodys_way() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("port");
    let left = directory.path().join(format!(".srd-{}", std::process::id()));
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("port"), "a file").unwrap();
    drop(Device::open(&path).unwrap());
    drop(Device::replace(&path).unwrap());
    assert_eq!(std::fs::read(left.join("port")).unwrap(), b"a file");
}

#[test]
fn disabled_rings_take_frames_and_lose_them() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    for index in [RECEIVE, SEND] {
        front.state(request::SET_VRING_ENABLE, index, 0);
    }
    device.turn();
    front.send_frame(&frame(1));
    front.give_buffers(1);
    assert_eq!((device.read(), device.write(&frame(1), 0)), (None, false));
    device.flush();
    assert_eq!((front.used(SEND).len(), front.used(RECEIVE).len()), (1, 0));
}

#[test]
fn memory_that_is_shared_anew_is_used_from_then_on() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
    front.send_frame(&frame(1));
    assert!(device.read().is_some());
    front.share();
    device.turn();
    assert!(device.is_running());
    front.send_frame(&frame(2));
    assert_eq!(device.read(), Some(frame(2)), "the place in the ring is kept");
}

#[test]
fn requests_that_break_the_protocol_end_the_front_end_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let numbers =
        |numbers: &[u64]| numbers.iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<_>>();
    let cases: Vec<(u32, Vec<u8>)> = vec![
        (0, vec![]),
        (77, vec![]),
        (request::SET_FEATURES, vec![1, 2]),
        (request::SET_FEATURES, numbers(&[1 << 34])),
        (request::SET_PROTOCOL_FEATURES, numbers(&[2])),
        (request::SET_MEM_TABLE, vec![]),
        (request::SET_MEM_TABLE, numbers(&[1, 0, 4096, 0, 0])),
        (request::SET_MEM_TABLE, numbers(&[u64::MAX])),
        (request::SET_VRING_NUM, numbers(&[16])),
        (request::SET_VRING_NUM, [0, 65_536].map(u32::to_ne_bytes).concat()),
        (request::SET_VRING_ADDR, numbers(&[0, 1])),
        (request::SET_VRING_KICK, numbers(&[0])),
        (request::SET_VRING_CALL, numbers(&[0x110])),
    ];
    let count = cases.len() as u64;
    for (request, body) in cases {
        let front = FrontEnd::connect(&path);
        front.say(request, &body, &[]);
        device.turn();
        device.turn();
        assert!(!device.is_connected(), "{request} {body:?}");
    }
    assert_eq!(device.counts().violations, count);
    let mut front = FrontEnd::connect(&path);
    front.set_up(&mut device, PLAIN);
}

#[test]
fn what_is_no_request_ends_the_front_end() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let long = Header { request: 1, wants_answer: false, body_bytes: 513 }.write();
    for bytes in [&[0; 12][..], &[0xff; 12], &long] {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(bytes).unwrap();
        device.turn();
        assert!(!device.is_connected());
    }
    assert_eq!(device.counts().violations, 3);
    // The device keeps waiting for the rest of an incomplete request, without blocking.
    let mut stream = UnixStream::connect(&path).unwrap();
    let whole = Header { request: 3, wants_answer: false, body_bytes: 0 }.write();
    stream.write_all(&whole[..5]).unwrap();
    device.turn();
    device.turn();
    assert!(device.is_connected());
    stream.write_all(&whole[5..]).unwrap();
    device.turn();
    assert!(device.is_connected());
}

#[test]
fn files_that_are_shorter_than_they_are_said_to_be_are_not_mapped() {
    let directory = tempfile::tempdir().unwrap();
    let (mut device, path) = device(&directory);
    let front = FrontEnd::connect(&path);
    front.cut_off();
    front.share();
    device.turn();
    device.turn();
    assert_eq!((device.is_connected(), device.counts().violations), (false, 1));
}

#[test]
fn a_device_that_joins_looks_for_its_front_end_until_it_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("port");
    let mut device = Device::join(&path).unwrap();
    device.turn();
    assert!(!device.is_connected() && device.descriptors().count() == 0);
    // A socket at which the front end listens belongs to the front end, and remains.
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    for round in 1..=2 {
        let began = std::time::Instant::now();
        while !device.is_connected() {
            assert!(began.elapsed().as_secs() < 60);
            std::thread::sleep(std::time::Duration::from_millis(1));
            device.turn();
        }
        let mut front = FrontEnd::with(listener.accept().unwrap().0);
        front.set_up(&mut device, PLAIN);
        front.send_frame(&frame(5));
        assert_eq!(device.read(), Some(frame(5)));
        assert_eq!(device.counts().connected, round);
        drop(front);
        device.turn();
        assert!(!device.is_connected());
    }
    drop(device);
    assert!(path.exists());
}

/// A program without permission to open the socket of a front end has another program open it.
#[test]
fn a_device_asks_for_its_front_end_once_until_it_has_an_answer() {
    let path = std::path::Path::new("/nowhere/port");
    let mut device = Device::asking(path).unwrap();
    device.turn();
    assert!(device.asks() && !device.asks() && !device.is_connected());
    // Without a front end the request is repeated after an interval.
    device.found(None);
    let began = std::time::Instant::now();
    while !device.asks() {
        assert!(began.elapsed().as_secs() < 60);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    device.found(Some(here));
    assert!(!device.asks());
    device.turn();
    assert!(device.is_connected() && !device.asks());
    let mut front = FrontEnd::with(there);
    front.set_up(&mut device, PLAIN);
    front.send_frame(&frame(5));
    assert_eq!(device.read(), Some(frame(5)));
}

#[test]
fn the_file_of_a_listener_of_another_program_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("port");
    let listener = srd_vhost::listen(&path, false).unwrap();
    assert!(srd_vhost::listen(&path, false).is_err(), "somebody listens");
    drop(Device::over(&path, listener).unwrap());
    assert!(path.exists());
    drop(srd_vhost::listen(&path, false).unwrap());
}
