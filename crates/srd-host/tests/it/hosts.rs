//! Two hosts on loopback, in one process: which thread does the work, and when buffers are
//! released.

#![allow(clippy::unwrap_used, reason = "a test, with helpers")]
#![allow(unsafe_code, reason = "hosts work in memory that is named by address")]

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use srd_efa::Access;
use srd_efa::layer::{
    Iov, Kind, Message, OperationCompletion, Outcome, Peer, Receive, Rma, RmaIov, Selector, Shared,
    Until,
};
use srd_efa::rdm::Rdm;
use srd_host::{CallError, Host, Options, RegionNumber, Sink, Span};

/// Longest time that a step of a test may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns options with an answer timeout longer than the time for which a thread of a busy machine
/// does not run.
fn options() -> Options {
    let mut options = Options::at("127.0.0.1:0".parse().unwrap());
    options.paths = 4;
    options.answer_timeout = srd_proto::Duration::from_secs(20);
    options.peer_timeout = srd_proto::Duration::from_secs(20);
    options
}

/// Stores the operations that have ended, at most `room` of them.
struct CompletionSink {
    done: Arc<Mutex<VecDeque<OperationCompletion>>>,
    room: usize,
}

impl Sink for CompletionSink {
    type Layer = Rdm;

    fn has_room(&mut self) -> bool {
        self.done.lock().unwrap().len() < self.room
    }

    fn done(&mut self, done: OperationCompletion, _: &Rdm) {
        self.done.lock().unwrap().push_back(done);
    }

    fn notice(&mut self, notice: srd_net::Notice) {
        println!("{notice}");
    }

    fn broken(&mut self, error: &std::io::Error) {
        panic!("{error}");
    }
}

struct TestHost {
    host: Host<CompletionSink>,
    done: Arc<Mutex<VecDeque<OperationCompletion>>>,
}

impl TestHost {
    fn with_room(room: usize) -> Self {
        Self::open(&options(), room)
    }

    fn open(options: &Options, room: usize) -> Self {
        let done = Arc::new(Mutex::new(VecDeque::new()));
        let host = Host::open(options, CompletionSink { done: Arc::clone(&done), room }).unwrap();
        Self { host, done }
    }

    fn new() -> Self {
        Self::with_room(usize::MAX)
    }

    fn peer(&self, of: &Self) -> Peer {
        self.peer_at(of.host.address(), of.host.incarnation())
    }

    fn peer_at(&self, address: std::net::SocketAddr, incarnation: u64) -> Peer {
        // SAFETY: the call names no memory.
        let added = unsafe {
            self.host.handle().call(|mut call| {
                let (rdm, mut world, _) = call.parts();
                rdm.add_peer(&mut world, address, incarnation)
            })
        };
        added.unwrap().unwrap()
    }

    fn send(&self, to: Peer, bytes: &'static [u8], context: u64) {
        let piece =
            Iov { addr: bytes.as_ptr().expose_provenance() as u64, length: bytes.len() as u64 };
        let message = Message {
            to,
            tag: Some(7),
            iov: &[piece],
            data: None,
            context,
            until: Until::Transmitted,
            signaled: true,
        };
        // SAFETY: the bytes are constant.
        let sent = unsafe {
            self.host.handle().call(|mut call| {
                let (rdm, mut world, _) = call.parts();
                rdm.send(&mut world, message)
            })
        };
        sent.unwrap().unwrap();
    }

    fn recv(&self, buffer: &mut [u8], context: u64) {
        let piece = Iov {
            addr: buffer.as_mut_ptr().expose_provenance() as u64,
            length: buffer.len() as u64,
        };
        let receive = Receive {
            tagged: true,
            want: Selector { tag: 7, ignore: 0, source: None },
            iov: &[piece],
            context,
            multi: None,
            signaled: true,
        };
        // SAFETY: each test waits for the end of the operation, or closes the host, before it
        // releases the buffer.
        let posted = unsafe {
            self.host.handle().call(|mut call| {
                let (rdm, mut world, _) = call.parts();
                rdm.recv(&mut world, receive)
            })
        };
        posted.unwrap().unwrap();
    }

    /// Waits for the next operation that ends, without a call to the host.
    fn await_done(&self) -> OperationCompletion {
        self.done_within(PATIENCE).expect("nothing came to an end")
    }

    fn done_within(&self, limit: Duration) -> Option<OperationCompletion> {
        let start = Instant::now();
        loop {
            let done = self.done.lock().unwrap().pop_front();
            if done.is_some() || start.elapsed() > limit {
                return done;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn messages_go_through_while_the_applications_stay_away() {
    let (a, b) = (TestHost::new(), TestHost::new());
    let mut buffer = [0u8; 5];
    b.recv(&mut buffer, 1);
    a.send(a.peer(&b), b"hello", 2);
    let (received, sent) = (b.await_done(), a.await_done());
    assert_eq!((received.kind, received.outcome, received.length), (Kind::Receive, Outcome::Ok, 5));
    assert_eq!((sent.kind, sent.outcome, sent.context), (Kind::Send, Outcome::Ok, 2));
    assert_eq!(&buffer, b"hello");
}

#[test]
fn messages_that_wait_to_be_joined_leave_though_the_application_stays_away() {
    let (a, b) = (TestHost::new(), TestHost::new());
    let to = a.peer(&b);
    let mut buffers = [[0u8; 5]; 40];
    for (context, buffer) in (0..).zip(&mut buffers) {
        b.recv(buffer, context);
    }
    a.send(to, b"first", 0);
    assert_eq!(b.await_done().outcome, Outcome::Ok);
    for context in 1..40 {
        a.send(to, b"hello", context);
    }
    for _ in 1..40 {
        assert_eq!(b.await_done().outcome, Outcome::Ok);
    }
    assert!(buffers[1..].iter().all(|buffer| buffer == b"hello"));
}

#[test]
fn long_messages_do_not_stand_still_while_the_applications_stay_away() {
    let (a, b) = (TestHost::new(), TestHost::new());
    let (to_b, to_a) = (a.peer(&b), b.peer(&a));
    static PING: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..=u8::MAX).cycle().take(1 << 20).collect());
    let ping: &'static [u8] = &PING;
    let mut buffer = vec![0u8; ping.len()];
    for context in 0..60 {
        for (from, to, peer) in [(&a, &b, to_b), (&b, &a, to_a)] {
            to.recv(&mut buffer, context);
            from.send(peer, ping, context);
            assert_eq!(to.await_done().outcome, Outcome::Ok);
            assert_eq!(from.await_done().outcome, Outcome::Ok);
            assert_eq!(buffer, ping);
            buffer.fill(0);
        }
    }
}

#[test]
fn an_application_that_polls_needs_no_card() {
    let (a, b) = (TestHost::new(), TestHost::new());
    let to = a.peer(&b);
    let mut buffer = [0u8; 5];
    for context in 0..100 {
        b.recv(&mut buffer, context);
        a.send(to, b"hello", context);
        let start = Instant::now();
        while b.done.lock().unwrap().pop_front().is_none() {
            a.host.handle().poll();
            b.host.handle().poll();
            assert!(start.elapsed() < PATIENCE);
        }
    }
}

#[test]
fn a_peer_reads_and_writes_what_is_shared_while_its_owner_stays_away() {
    let (a, b) = (TestHost::new(), TestHost::new());
    let (mut first, mut second) = (*b"abcd", *b"efgh");
    let span = |of: &mut [u8; 4]| Span { addr: of.as_mut_ptr().expose_provenance(), length: 4 };
    let spans = [span(&mut first), span(&mut second)];
    let access = Access { local_write: true, remote_write: true, remote_read: true };
    let shared = Shared { region: 1, addr: 1000, length: 8, rkey: 42, access };
    // SAFETY: the arrays outlive the host, which is closed below.
    let made = unsafe {
        b.host.handle().call(|call| {
            call.memory.add(RegionNumber(1), Box::new(spans));
            call.layer.share(shared)
        })
    };
    made.unwrap().unwrap();
    let to = a.peer(&b);
    let mut local = *b"XY";
    for (read, addr) in [(false, 1003), (true, 1000)] {
        let piece = Iov { addr: local.as_mut_ptr().expose_provenance() as u64, length: 2 };
        let rma = Rma {
            to,
            read,
            local: &[piece],
            remote: &[RmaIov { addr, length: 2, rkey: 42 }],
            data: None,
            context: 0,
            until: Until::Delivered,
            signaled: true,
        };
        // SAFETY: the test waits for the end of the operation.
        let asked = unsafe {
            a.host.handle().call(|mut call| {
                let (rdm, mut world, _) = call.parts();
                rdm.rma(&mut world, rma)
            })
        };
        asked.unwrap().unwrap();
        assert_eq!(a.await_done().outcome, Outcome::Ok);
    }
    b.host.close();
    assert_eq!((&first, &second, &local), (b"abcX", b"Yfgh", b"ab"));
}

#[test]
fn ends_wait_in_the_messaging_layer_while_the_sink_is_full() {
    let (a, b) = (TestHost::new(), TestHost::with_room(2));
    let to = a.peer(&b);
    let mut buffers = [[0u8; 1]; 5];
    for (context, buffer) in (0u64..).zip(&mut buffers) {
        b.recv(buffer, context);
        a.send(to, b"x", context);
    }
    for _ in 0..5 {
        assert_eq!(a.await_done().outcome, Outcome::Ok);
    }
    // The transport acknowledges a message before its end is reported.
    let start = Instant::now();
    while b.done.lock().unwrap().len() < 2 {
        assert!(start.elapsed() < PATIENCE, "the sink has room");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(b.done.lock().unwrap().len(), 2);
    for context in 0..5 {
        assert_eq!(b.await_done().context, context);
        b.host.handle().poll();
    }
}

#[test]
fn a_peer_that_is_not_there_fails_what_is_sent_and_closing_takes_bounded_time() {
    // If the process does not run for a while during the test, the peer has more time to answer,
    // but the close does not.
    let failed = (0..5).any(|_| fails_before_the_time_is_up());
    assert!(failed, "what was open failed before the time was up");
}

/// Sends to an address without a peer, and closes. Returns whether outstanding operations were
/// reported as failed.
fn fails_before_the_time_is_up() -> bool {
    let answer_timeout = srd_proto::Duration::from_millis(300);
    let a = TestHost::open(&Options { answer_timeout, ..options() }, usize::MAX);
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = a.peer_at(nobody.local_addr().unwrap(), 0);
    a.send(to, b"anyone?", 3);
    let done = a.await_done();
    assert_eq!((done.outcome, done.context), (Outcome::Unreachable, 3));
    a.send(to, b"anyone?", 4);
    let start = Instant::now();
    a.host.close();
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    let failed = a.done.lock().unwrap().len();
    failed == 1
}

#[test]
fn what_was_sent_before_closing_arrives() {
    // Closing takes at most a second, and the other end may not run during that time.
    assert!((0..5).any(|_| arrives_although_its_sender_closes()), "it never arrives");
}

fn arrives_although_its_sender_closes() -> bool {
    let mut buffer = [0u8; 4];
    let (a, b) = (TestHost::new(), TestHost::new());
    b.recv(&mut buffer, 1);
    a.send(a.peer(&b), b"last", 2);
    a.host.close();
    let done = b.done_within(Duration::from_secs(10));
    b.host.close();
    if let Some(done) = done {
        assert_eq!((done.outcome, &buffer), (Outcome::Ok, b"last"));
    }
    done.is_some()
}

#[test]
fn a_closed_host_says_so_and_leaves_posted_buffers_alone() {
    let (a, b) = (TestHost::new(), TestHost::new());
    let to = a.peer(&b);
    let handle = b.host.handle().clone();
    let mut buffer = [0u8; 4];
    b.recv(&mut buffer, 1);
    b.host.close();
    a.send(to, b"late", 1);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(buffer, [0; 4]);
    // SAFETY: the call names no memory.
    assert_eq!(unsafe { handle.call(|_| ()) }.unwrap_err(), CallError::Closed);
    handle.poll();
    handle.hand_over();
}

#[test]
fn the_child_of_a_fork_is_refused_and_the_parent_goes_on() {
    let (a, b) = (TestHost::new(), TestHost::new());
    let to = a.peer(&b);
    // SAFETY: the child makes calls that take no lock, and ends without any destructor.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        a.host.handle().poll();
        // SAFETY: the call names no memory.
        let refused = unsafe { a.host.handle().call(|_| ()) } == Err(CallError::Forked);
        a.host.close();
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: waits for this process's child, and writes to a local integer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    let mut buffer = [0u8; 2];
    b.recv(&mut buffer, 1);
    a.send(to, b"ok", 1);
    assert_eq!(b.await_done().outcome, Outcome::Ok);
}

#[test]
fn hosts_with_another_key_do_not_hear_each_other() {
    let with_key = |key: Option<u8>| {
        let job_key = key.map(|key| [key; 32]);
        TestHost::open(&Options { job_key, ..options() }, usize::MAX)
    };
    let (a, friend, stranger, open) =
        (with_key(Some(1)), with_key(Some(1)), with_key(Some(2)), with_key(None));
    let mut buffer = [0u8; 3];
    friend.recv(&mut buffer, 1);
    a.send(a.peer(&friend), b"hey", 1);
    assert_eq!(a.await_done().outcome, Outcome::Ok);
    assert_eq!(friend.await_done().outcome, Outcome::Ok);
    assert_eq!(&buffer, b"hey");
    // The other hosts never answer, and this host does not wait long for them.
    let answer_timeout = srd_proto::Duration::from_millis(300);
    let hasty = Options { job_key: Some([1; 32]), answer_timeout, ..options() };
    let hasty = TestHost::open(&hasty, usize::MAX);
    for to in [&stranger, &open] {
        hasty.send(hasty.peer(to), b"hey", 1);
        assert_eq!(hasty.await_done().outcome, Outcome::Unreachable);
    }
}
