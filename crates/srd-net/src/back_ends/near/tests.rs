use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use srd_proto::{Class, Datagram, Delivery, PeerId, Qpn, ReceiveBuffers};
use srd_trust::closing::Closing;

use super::ring::{Beside, Writer};
use super::*;
use crate::sys::shared::segment::Segment;
use crate::{Application, BindOptions, Context, LocalEndpoint};

const QPN: Qpn = Qpn(1);
/// Longest time that a step of a test may take.
const PATIENCE: StdDuration = StdDuration::from_secs(60);

/// Locks out other tests, because links are counted for the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

type End = LocalEndpoint<NearIo>;

fn end(at: SocketAddr, enabled: bool) -> End {
    let mut options = BindOptions::at(at);
    options.config.paths = 4;
    let mut end = LocalEndpoint::bind_near(&options, enabled).unwrap();
    end.open_qp(QPN, ReceiveBuffers::Unlimited);
    end
}

fn anywhere(enabled: bool) -> End {
    end("127.0.0.1:0".parse().unwrap(), enabled)
}

#[derive(Default)]
struct Got(Vec<Vec<u8>>);

impl Application for Got {
    fn delivered(&mut self, _: &mut Context<'_>, delivery: Delivery<'_>) {
        self.0.push(delivery.payload.to_vec());
    }
}

fn send(from: &mut End, to: PeerId, payload: Vec<u8>) {
    let (src_qpn, dst_qpn, class) = (QPN, QPN, Class::Bulk);
    let payload = Bytes::from(payload);
    from.send(to, Datagram { src_qpn, dst_qpn, imm: 0, payload, class, user: 0 }).unwrap();
}

fn payload(n: u16, bytes: usize) -> Vec<u8> {
    let mut payload = vec![n.to_be_bytes()[1]; bytes.max(2)];
    payload[..2].copy_from_slice(&n.to_be_bytes());
    payload
}

/// Sends this number of datagrams, and waits until each has arrived once and unchanged.
fn exchange(from: &mut End, to: PeerId, far: &mut End, count: u16, bytes: usize) {
    (0..count).for_each(|n| send(from, to, payload(n, bytes)));
    let (mut got, mut answers) = (Got::default(), Got::default());
    let start = StdInstant::now();
    while got.0.len() < usize::from(count) {
        assert!(start.elapsed() < PATIENCE, "{} of {count}", got.0.len());
        from.poll(Duration::ZERO, &mut answers).unwrap();
        far.poll(Duration::ZERO, &mut got).unwrap();
    }
    got.0.sort();
    assert!(got.0.iter().zip(0..).all(|(got, n)| *got == payload(n, bytes)));
}

/// Polls until the two endpoints have set up a link.
fn meet(from: &mut End, to: PeerId, far: &mut End) {
    let start = StdInstant::now();
    while from.io().near_stats().links == 0 || far.io().near_stats().links == 0 {
        assert!(start.elapsed() < PATIENCE, "they never met");
        exchange(from, to, far, 1, 8);
    }
}

#[test]
fn what_is_sent_to_this_machine_goes_through_memory() {
    let _alone = alone();
    let (mut here, mut there) = (anywhere(true), anywhere(true));
    let peer = here.connect(there.local_address()).unwrap();
    meet(&mut here, peer, &mut there);
    let before = here.io().udp.stats().sent_packets;
    exchange(&mut here, peer, &mut there, 2000, 5000);
    let stats = (here.io().near_stats(), there.io().near_stats());
    assert!(stats.0.sent_packets >= 2000 && stats.1.received_packets >= 2000, "{stats:?}");
    assert_eq!(here.io().udp.stats().sent_packets, before, "nothing by UDP any more");
}

#[test]
fn an_endpoint_without_memory_is_reached_by_udp() {
    let _alone = alone();
    for (one, other) in [(true, false), (false, true)] {
        let (mut here, mut there) = (anywhere(one), anywhere(other));
        let peer = here.connect(there.local_address()).unwrap();
        exchange(&mut here, peer, &mut there, 300, 3000);
        assert_eq!(here.io().near_stats(), NearStats::default());
        assert_eq!(there.io().near_stats(), NearStats::default());
    }
}

/// If a burst is larger than the ring, packets are dropped, and sent again.
#[test]
fn more_than_the_ring_holds_arrives_all_the_same() {
    let _alone = alone();
    let (mut here, mut there) = (anywhere(true), anywhere(true));
    let peer = here.connect(there.local_address()).unwrap();
    meet(&mut here, peer, &mut there);
    let payload = vec![9; 8000];
    (0..600).for_each(|_| send(&mut here, peer, payload.clone()));
    let (mut got, mut answers) = (Got::default(), Got::default());
    // The other end does not read while this side fills the ring.
    let start = StdInstant::now();
    let table = here.io().near.as_mut().unwrap();
    let link = table.link_to(Instant::ZERO, there.local_address()).unwrap();
    let ecn = srd_proto::transmit::Ecn::Ect;
    let (_, full) = link.send(Instant::ZERO, 1, ecn, &vec![vec![0; 9000]; 150]);
    assert!(full > 0);
    while here.io().near_stats().full == 0 {
        assert!(start.elapsed() < PATIENCE, "nothing was dropped");
        here.transmit(&mut answers).unwrap();
    }
    while got.0.len() < 600 {
        assert!(start.elapsed() < PATIENCE, "{}", got.0.len());
        here.poll(Duration::ZERO, &mut answers).unwrap();
        there.poll(Duration::ZERO, &mut got).unwrap();
    }
    assert!(got.0.iter().all(|one| *one == payload));
}

#[test]
fn an_endpoint_that_comes_again_at_its_address_is_met_again() {
    let _alone = alone();
    let (mut here, mut there) = (anywhere(true), anywhere(true));
    let address = there.local_address();
    let peer = here.connect(address).unwrap();
    meet(&mut here, peer, &mut there);
    drop(there);
    // From here on a packet goes by UDP to an address at which no socket receives.
    let start = StdInstant::now();
    while here.io().near.as_ref().unwrap().has_link(address) {
        assert!(start.elapsed() < PATIENCE, "the link outlives its end");
        here.poll(Duration::from_millis(2), &mut Got::default()).unwrap();
    }
    let mut there = end(address, true);
    let start = StdInstant::now();
    let mut n = 0;
    while there.io().near_stats().received_packets == 0 {
        assert!(start.elapsed() < PATIENCE, "they did not meet again");
        if n % 50 == 0 {
            send(&mut here, peer, payload(n, 100));
        }
        n += 1;
        here.poll(Duration::from_millis(1), &mut Got::default()).unwrap();
        there.poll(Duration::from_millis(1), &mut Got::default()).unwrap();
    }
}

#[test]
fn a_sleeper_is_woken_by_a_packet_in_memory() {
    let _alone = alone();
    let (mut here, mut there) = (anywhere(true), anywhere(true));
    let peer = here.connect(there.local_address()).unwrap();
    meet(&mut here, peer, &mut there);
    let arrivals = there.arrivals().unwrap();
    let is_readable = |wait: StdDuration| {
        let mut fds = [PollFd::new(&arrivals, PollFlags::IN)];
        let limit = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: 0 };
        poll(&mut fds, Some(&limit)).unwrap() == 1
    };
    for _ in 0..200 {
        while !there.arm() || is_readable(StdDuration::ZERO) {
            there.poll(Duration::ZERO, &mut Got::default()).unwrap();
            here.poll(Duration::ZERO, &mut Got::default()).unwrap();
        }
        send(&mut here, peer, payload(1, 100));
        here.poll(Duration::ZERO, &mut Got::default()).unwrap();
        assert!(is_readable(PATIENCE), "a packet waits, and nobody was woken");
        let mut got = Got::default();
        let start = StdInstant::now();
        while got.0.is_empty() {
            assert!(start.elapsed() < PATIENCE);
            there.poll(Duration::ZERO, &mut got).unwrap();
            here.poll(Duration::ZERO, &mut Got::default()).unwrap();
        }
    }
}

#[test]
fn links_have_a_bound_and_what_is_beyond_it_goes_by_udp() {
    let _alone = alone();
    let taken: Vec<_> = std::iter::from_fn(table::Counted::take).collect();
    assert_eq!(taken.len(), links_max() as usize);
    let (mut here, mut there) = (anywhere(true), anywhere(true));
    let peer = here.connect(there.local_address()).unwrap();
    exchange(&mut here, peer, &mut there, 100, 1000);
    assert_eq!(here.io().near_stats().links, 0);
    drop(taken);
    let start = StdInstant::now();
    while here.io().near_stats().links == 0 {
        assert!(start.elapsed() < PATIENCE, "room, and nobody takes it");
        exchange(&mut here, peer, &mut there, 10, 1000);
        std::thread::sleep(StdDuration::from_millis(20));
    }
}

/// A process of another user cannot connect. In an earlier version, its connection was accepted,
/// and if closing the descriptors in it blocked, the endpoint set up no link any more.
#[test]
fn regression_another_user_cannot_connect_and_keep_an_endpoint_from_links() {
    let _alone = alone();
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI runs as root");
        println!("skipped: it needs root");
        return;
    }
    let (mut here, mut there) = (anywhere(true), anywhere(true));
    // Either endpoint can set up the link, so both get a connection.
    let names = [&here, &there].map(|end| meet::name(end.local_address()).unwrap());
    let stranger = std::thread::spawn(move || {
        let slow = names.each_ref().map(|_| slow_to_close());
        let nobody = rustix::fs::Uid::from_raw(65_534);
        // Changes the user of this thread only.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        let (domain, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let connect = |(name, slow): (String, OwnedFd)| {
            let socket = rustix::net::socket_with(domain, kind, flags, None).unwrap();
            let at = rustix::net::SocketAddrUnix::new(format!("/tmp/srd-0/{name}")).unwrap();
            let connected = rustix::net::connect(&socket, &at);
            let from = "127.0.0.1:9".parse().unwrap();
            match connected {
                Ok(()) => meet::say(socket.as_fd(), from, &[slow.as_fd()]).unwrap(),
                // This thread would block as well if it closed the connection.
                Err(_) => std::mem::forget(slow),
            }
            connected
        };
        names.into_iter().zip(slow).map(connect).collect::<Vec<_>>()
    });
    let connected = stranger.join().unwrap();
    let start = StdInstant::now();
    let peer = here.connect(there.local_address()).unwrap();
    meet(&mut here, peer, &mut there);
    assert!(start.elapsed() < StdDuration::from_secs(15), "it has waited");
    assert_eq!(connected, [Err(rustix::io::Errno::ACCESS); 2]);
}

/// A process of this user is disconnected if it sends an invalid message, or memory that can
/// shrink.
#[test]
fn callers_that_say_nonsense_are_hung_up_on() {
    let _alone = alone();
    let mut here = anywhere(true);
    let address = here.local_address();
    for text in ["", "x", "srd-near-2 1 127.0.0.1:1"] {
        let socket = meet::call(address, &mut Closing::default()).unwrap();
        rustix::net::send(&socket, text.as_bytes(), rustix::net::SendFlags::NOSIGNAL).unwrap();
        turn_until(&mut here, &socket);
    }
    let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, meet::SEGMENT_BYTES as u64).unwrap();
    for descriptors in [vec![file.as_fd()], vec![file.as_fd(), file.as_fd()]] {
        let socket = meet::call(address, &mut Closing::default()).unwrap();
        meet::say(socket.as_fd(), address, &descriptors).unwrap();
        turn_until(&mut here, &socket);
    }
    assert_eq!(here.io().near_stats().links, 0);
    assert!(here.io().near.as_ref().unwrap().is_unlinked());
}

/// Polls until the other end has closed the connection.
fn turn_until(here: &mut End, socket: &impl AsFd) {
    let start = StdInstant::now();
    let mut closing = Closing::default();
    while matches!(meet::receive(socket.as_fd(), &mut closing), Ok(None)) {
        assert!(start.elapsed() < PATIENCE, "not hung up on");
        here.poll(Duration::from_millis(1), &mut Got::default()).unwrap();
    }
}

/// Packets to an address go to the endpoint that has claimed it. So a caller cannot claim an
/// address of another machine, or of a family that this endpoint does not use.
#[test]
fn a_caller_may_claim_an_address_of_this_machine_only() {
    let _alone = alone();
    let mut here = anywhere(true);
    let address = here.local_address();
    for claimed in ["192.0.2.1:7471", "[::1]:7471", "[::ffff:127.0.0.1]:7471", "127.0.0.1:0"] {
        let claimed: SocketAddr = claimed.parse().unwrap();
        let socket = meet::call(address, &mut Closing::default()).unwrap();
        let (_segment, memory) = Segment::create(meet::SEGMENT_BYTES).unwrap();
        meet::say(socket.as_fd(), claimed, &[memory.as_fd()]).unwrap();
        turn_until(&mut here, &socket);
        assert!(!here.io().near.as_ref().unwrap().has_link(claimed), "{claimed}");
    }
    assert_eq!(here.io().near_stats().links, 0);
    assert!(here.io().near.as_ref().unwrap().is_unlinked());
}

/// Connects as a process of this user that writes arbitrary bytes into the ring.
fn raw_caller(here: &mut End) -> (OwnedFd, Writer) {
    let address = here.local_address();
    let socket = meet::call(address, &mut Closing::default()).unwrap();
    let (segment, memory) = Segment::create(meet::SEGMENT_BYTES).unwrap();
    meet::say(socket.as_fd(), "127.0.0.1:9".parse().unwrap(), &[memory.as_fd()]).unwrap();
    let start = StdInstant::now();
    while here.io().near_stats().links == 0 {
        assert!(start.elapsed() < PATIENCE, "not met");
        here.poll(Duration::from_millis(1), &mut Got::default()).unwrap();
    }
    (socket, Writer::new(segment, 0))
}

#[test]
fn a_caller_that_has_hung_up_and_goes_on_writing_is_removed() {
    let _alone = alone();
    let mut here = anywhere(true);
    let (socket, mut writer) = raw_caller(&mut here);
    let beside = Beside { port: 9, ecn: srd_proto::transmit::Ecn::Ect, at: Instant::ZERO };
    let mut fill = || {
        while writer.push(beside, [&[0; 1000], &[]]) {}
        writer.publish();
    };
    fill();
    drop(socket);
    let start = StdInstant::now();
    while !here.io().near.as_ref().unwrap().is_unlinked() {
        assert!(start.elapsed() < PATIENCE, "it keeps its link");
        here.poll(Duration::ZERO, &mut Got::default()).unwrap();
        fill();
    }
}

/// Returns a connection whose close waits until its bytes are sent, as the close of a file in a
/// FUSE file system of the caller may wait.
fn slow_to_close() -> OwnedFd {
    use std::io::Write as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    // The other end never reads.
    let (other, _) = listener.accept().unwrap();
    std::mem::forget(other);
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    rustix::net::sockopt::set_socket_linger(&stream, Some(StdDuration::from_secs(20))).unwrap();
    stream.into()
}

#[test]
fn regression_descriptors_that_a_caller_brings_are_closed_without_a_wait() {
    let _alone = alone();
    let (mut here, mut there) = (anywhere(true), anywhere(true));
    let address = here.local_address();
    let local = "127.0.0.1:9".parse().unwrap();
    let start = StdInstant::now();
    // The first caller sends one descriptor too many. The second sends a descriptor that is not
    // memory.
    let slow: Vec<OwnedFd> = (0..3).map(|_| slow_to_close()).collect();
    let descriptors: Vec<_> = slow.iter().map(AsFd::as_fd).collect();
    let callers: Vec<_> = descriptors
        .chunks(2)
        .map(|descriptors| {
            let socket = meet::call(address, &mut Closing::default()).unwrap();
            meet::say(socket.as_fd(), local, descriptors).unwrap();
            socket
        })
        .collect();
    drop(slow);
    for socket in &callers {
        turn_until(&mut here, socket);
    }
    // No connection is accepted until these descriptors are closed, and packets go by UDP.
    let peer = there.connect(address).unwrap();
    exchange(&mut there, peer, &mut here, 100, 1000);
    assert_eq!(here.io().near_stats().links, 0);
    drop(here);
    assert!(start.elapsed() < StdDuration::from_secs(15), "it has waited");
}

/// Another user can bind the name of an address, and send descriptors as soon as an endpoint
/// connects, before the endpoint has determined the user.
#[test]
fn regression_the_connection_to_another_users_name_is_closed_without_a_wait() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI runs as root");
        println!("skipped: it needs root");
        return;
    }
    let stranger = std::thread::spawn(|| {
        let slow = slow_to_close();
        let nobody = rustix::fs::Uid::from_raw(65_534);
        // Changes the user of this thread only.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        let (domain, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let (theirs, ours) = rustix::net::socketpair(domain, kind, flags, None).unwrap();
        meet::say(theirs.as_fd(), "127.0.0.1:9".parse().unwrap(), &[slow.as_fd()]).unwrap();
        ours
    });
    let socket = stranger.join().unwrap();
    let start = StdInstant::now();
    let mut closing = Closing::default();
    assert!(meet::own_user(socket, &mut closing).is_none());
    assert!(!closing.is_done(), "another thread closes it");
    drop(closing);
    assert!(start.elapsed() < StdDuration::from_secs(15), "it has waited");
}

/// Environment variable that marks the child process of the test below.
const CHILD: &str = "SRD_TEST_WITHOUT_DESCRIPTORS";

/// Without free descriptors, the listener stays readable, and a thread that waits on it would not
/// sleep. The test runs in a process of its own, because the limit is the process's.
#[test]
fn regression_without_descriptors_a_caller_does_not_keep_a_sleeper_awake() {
    let name = "regression_without_descriptors_a_caller_does_not_keep_a_sleeper_awake";
    if std::env::var_os(CHILD).is_none() {
        // The child would inherit descriptors of another test that are slow to close.
        let _alone = alone();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let said = child.arg(name).env(CHILD, "1").output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
        return;
    }
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let own = socket.local_addr().unwrap();
    let mut table = super::table::Table::open(own).unwrap();
    let mut closing = Closing::default();
    let _caller = super::meet::call(own, &mut closing).unwrap();
    let is_readable = |table: &super::table::Table| {
        poll(&mut [PollFd::new(table.descriptor(), PollFlags::IN)], Some(&Timespec::default()))
    };
    assert_eq!(is_readable(&table), Ok(1));
    let limits = getrlimit(Resource::Nofile);
    let free = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let none = Rlimit { current: Some(u64::try_from(free).unwrap()), ..limits };
    setrlimit(Resource::Nofile, none).unwrap();
    let mut now = Instant::ZERO + Duration::from_secs(1);
    table.receive(now, &mut |_, _, _| {});
    assert_eq!(is_readable(&table), Ok(0));
    setrlimit(Resource::Nofile, limits).unwrap();
    now += Duration::from_millis(50);
    table.receive(now, &mut |_, _, _| {});
    assert!(table.is_unlinked(), "it pauses");
    now += Duration::from_millis(60);
    table.receive(now, &mut |_, _, _| {});
    assert!(!table.is_unlinked(), "the caller is accepted");
}
