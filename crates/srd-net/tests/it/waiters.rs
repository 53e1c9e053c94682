//! Threads and futures that wait for an endpoint whose thread ends by an error or a panic.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use srd_net::{
    Endpoint, IoWaker, MemoryIo, MemoryNet, MemoryOptions, PacketIo, Segments, SendOutcome, Wait,
};
use srd_proto::transmit::{PacketMeta, Transmit};
use srd_proto::{Config, Instant};

/// Longest time that a step of a test may take: less than the answer timeout of a peer.
const PATIENCE: Duration = Duration::from_secs(40);
/// Time after which a thread that is expected to wait has certainly started to wait.
const SOON: Duration = Duration::from_millis(30);
const GOOD: u8 = 0;
const ERROR: u8 = 1;
const PANIC: u8 = 2;

/// A back end that works until `how` is changed.
struct Breaking {
    inner: MemoryIo,
    how: Arc<AtomicU8>,
}

impl PacketIo for Breaking {
    fn send<S: Segments>(&mut self, batches: &[(Transmit, S)]) -> io::Result<SendOutcome> {
        self.inner.send(batches)
    }

    fn receive(
        &mut self,
        wait: Wait,
        each: impl FnMut(Instant, PacketMeta, &mut [u8]),
    ) -> io::Result<usize> {
        match self.how.load(Ordering::SeqCst) {
            ERROR => Err(io::Error::other("the sockets are gone")),
            PANIC => panic!("a bug in a back end, for a test"),
            _ => self.inner.receive(wait, each),
        }
    }

    inner_io!();
}

/// An endpoint in a network without peers, and the control that breaks its back end.
struct Rig {
    endpoint: Arc<Endpoint>,
    how: Arc<AtomicU8>,
    waker: Arc<IoWaker>,
}

/// Returns an address without an endpoint.
fn nobody() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 9], 100))
}

impl Rig {
    fn new() -> Self {
        let net = MemoryNet::new(MemoryOptions::default());
        let mut inner = net.node(SocketAddr::from(([10, 0, 0, 1], 100)), 1);
        let (how, waker) = (Arc::new(AtomicU8::new(GOOD)), inner.waker().unwrap());
        let io = Breaking { inner, how: how.clone() };
        let config = Config {
            send_queue_datagrams_max: 8,
            peer_timeout: srd_proto::Duration::from_secs(59),
            ..Config::sockets()
        };
        Self { endpoint: Arc::new(Endpoint::over(io, config).unwrap()), how, waker }
    }

    fn break_it(&self, how: u8) {
        self.how.store(how, Ordering::SeqCst);
        self.waker.wake();
    }
}

/// Runs `f` on a thread. The returned receiver gets the result.
fn on_a_thread<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (give, take) = mpsc::channel();
    std::thread::spawn(move || give.send(f()));
    take
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls only after wake-ups: if a waker is never called, the test hangs.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn payload() -> Bytes {
    Bytes::from_static(b"0123456789")
}

/// Checks that every wait for an endpoint ends with an error when the endpoint's thread ends.
fn assert_waiters_end(rig: Rig, end: impl FnOnce(Rig)) {
    let connect = || rig.endpoint.connect(nobody()).unwrap();
    let (peer, full) = (connect(), connect());
    let acknowledged = on_a_thread({
        let peer = peer.clone();
        move || peer.send_acknowledged(payload()).is_err()
    });
    let acknowledged_async = on_a_thread({
        let peer = peer.clone();
        move || block_on(peer.send_acknowledged_async(payload())).is_err()
    });
    while peer.outstanding() < 2 {
        std::thread::yield_now();
    }
    for _ in 2..8 {
        peer.send(payload()).unwrap();
    }
    let flushed = on_a_thread({
        let peer = peer.clone();
        move || block_on(peer.flush_async()).is_err()
    });
    let room = on_a_thread({
        let full = full.clone();
        move || full.send(payload()).is_err()
    });
    let room_async = on_a_thread({
        let full = full.clone();
        move || block_on(full.send_async(payload())).is_err()
    });
    std::thread::sleep(SOON);
    end(rig);
    for (what, ended) in [
        ("send_acknowledged", acknowledged),
        ("send_acknowledged_async", acknowledged_async),
        ("flush_async", flushed),
        ("send at a full room", room),
        ("send_async at a full room", room_async),
    ] {
        let is_error = ended.recv_timeout(PATIENCE);
        assert_eq!(is_error, Ok(true), "{what} waits for ever, or ends well");
    }
    // Later calls return immediately.
    let later = on_a_thread(move || {
        assert!(peer.send_acknowledged(payload()).is_err());
        assert!(peer.send(payload()).is_err());
        assert!(peer.flush(PATIENCE).is_err());
    });
    later.recv_timeout(PATIENCE).expect("it waits for ever");
}

#[test]
fn regression_nobody_waits_for_an_endpoint_whose_sockets_are_lost() {
    assert_waiters_end(Rig::new(), |rig| {
        let received = on_a_thread({
            let endpoint = rig.endpoint.clone();
            move || endpoint.recv().is_err()
        });
        rig.break_it(ERROR);
        assert_eq!(received.recv_timeout(PATIENCE), Ok(true));
        let report = on_a_thread(move || rig.endpoint.report().is_err());
        assert_eq!(report.recv_timeout(PATIENCE), Ok(true));
    });
}

#[test]
fn regression_nobody_waits_for_an_endpoint_whose_thread_panicked() {
    assert_waiters_end(Rig::new(), |rig| rig.break_it(PANIC));
}

#[test]
fn regression_nobody_waits_for_an_endpoint_whose_sockets_are_lost_while_it_closes() {
    assert_waiters_end(Rig::new(), |rig| {
        rig.how.store(ERROR, Ordering::SeqCst);
        let endpoint = Arc::into_inner(rig.endpoint).expect("nobody else has it");
        assert!(!endpoint.close(Duration::ZERO), "not all was acknowledged");
    });
}
