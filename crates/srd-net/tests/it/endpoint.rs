//! Endpoints end to end: over loopback sockets, and over a faulty network in memory. Every wait is
//! bounded.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::support::{PATIENCE, number, numbered, transfer};
use bytes::Bytes;
use srd_net::{
    BindOptions, ConnectError, Endpoint, EndpointEvent, FlushError, LocalEndpoint, MemoryNet,
    MemoryOptions, PollMode, SendError,
};
use srd_proto::crypto::public_key;
use srd_proto::{
    AddPeerError, Admission, Class, Config, Datagram, Delivery, Event, Protection, Qpn,
    ReceiveBuffers, Status,
};

fn loopback(ip: &str) -> BindOptions {
    let mut options = BindOptions::at(SocketAddr::new(ip.parse().unwrap(), 0));
    options.config.paths = 8;
    options.receive_buffer_bytes = 4 << 20;
    options
}

/// Transfers datagrams as [`transfer`] does; then the sender closes.
fn transfer_and_close(a: Endpoint, b: &Endpoint, count: u32, bytes: usize) {
    transfer(&a, b, count, bytes);
    assert!(a.close(PATIENCE));
}

#[test]
fn datagrams_cross_loopback_in_both_families_and_all_poll_modes() {
    let adaptive = PollMode::Adaptive(srd_proto::Duration::from_micros(50));
    for (ip, poll) in
        [("127.0.0.1", PollMode::Block), ("::1", PollMode::Block), ("127.0.0.1", adaptive)]
    {
        let mut options = loopback(ip);
        options.poll = poll;
        let (a, b) = (Endpoint::bind(&options).unwrap(), Endpoint::bind(&options).unwrap());
        let bytes = a.payload_bytes_max();
        transfer_and_close(a, &b, 2000, bytes);
    }
}

#[test]
fn datagrams_cross_without_segmentation_offload() {
    let mut options = loopback("127.0.0.1");
    options.segmentation = false;
    let (a, b) = (Endpoint::bind(&options).unwrap(), Endpoint::bind(&options).unwrap());
    transfer_and_close(a, &b, 500, 1200);
}

#[test]
fn datagrams_cross_encrypted() {
    let mut options = loopback("127.0.0.1");
    options.config.protection = Protection::JobKey([7; 32]);
    let (a, b) = (Endpoint::bind(&options).unwrap(), Endpoint::bind(&options).unwrap());
    transfer_and_close(a, &b, 500, 1200);
}

#[test]
fn regression_a_session_with_a_stranger_opens_at_once_over_many_paths() {
    let mut options = loopback("127.0.0.1");
    options.config.paths = 64;
    options.config.protection = Protection::JobKey([7; 32]);
    let b = Endpoint::bind(&options).unwrap();
    let quick = (0..5).filter(|_| {
        let a = Endpoint::bind(&options).unwrap();
        let start = std::time::Instant::now();
        a.connect(b.local_address()).unwrap().send_acknowledged(numbered(0, 100)).unwrap();
        start.elapsed() < Duration::from_secs(1)
    });
    // If the request for a cookie does not arrive, the session takes more than a second; before the
    // fix this happened to nearly every session. A machine that does not run for a while may delay
    // single sessions.
    let quick = quick.count();
    assert!(quick >= 3, "{quick} of 5 sessions opened within a second");
}

fn with_static_key(n: u8) -> (BindOptions, [u8; 32]) {
    let mut options = loopback("127.0.0.1");
    options.config.protection = Protection::Static([n; 32]);
    (options, public_key(&[n; 32]))
}

#[test]
fn nodes_that_know_each_other_by_static_key_talk_and_others_do_not() {
    let ((options_a, key_a), (options_b, key_b)) = (with_static_key(1), with_static_key(2));
    let (a, b) = (Endpoint::bind(&options_a).unwrap(), Endpoint::bind(&options_b).unwrap());
    let to_b = a.connect_with_key(b.local_address(), key_b).unwrap();
    let to_a = b.connect_with_key(a.local_address(), key_a).unwrap();
    for i in 0..100 {
        to_b.send(numbered(i, 1000)).unwrap();
        to_a.send(numbered(i, 1000)).unwrap();
    }
    to_b.flush(PATIENCE).unwrap();
    to_a.flush(PATIENCE).unwrap();
    for endpoint in [&a, &b] {
        let numbers: HashSet<u32> = (0..100)
            .map(|_| number(&endpoint.recv_timeout(PATIENCE).unwrap().unwrap().payload))
            .collect();
        assert_eq!(numbers.len(), 100);
    }

    // One stranger has b's key, another expects another key of b. Each gives up soon.
    let (mut stranger, _) = with_static_key(3);
    stranger.config.peer_timeout = srd_proto::Duration::from_millis(300);
    for expected in [key_b, key_a] {
        let stranger = Endpoint::bind(&stranger).unwrap();
        let peer = stranger.connect_with_key(b.local_address(), expected).unwrap();
        peer.send(numbered(0, 100)).unwrap();
        assert!(peer.flush(PATIENCE).is_err(), "a stranger was let in");
    }
    assert!(b.try_recv().unwrap().is_none());
}

/// Returns options of an endpoint with key `n`; `admission` determines whether strangers are
/// admitted.
fn keyed(n: u8, admission: Admission) -> BindOptions {
    let (mut options, _) = with_static_key(n);
    options.config.admission = admission;
    options
}

#[test]
fn regression_an_address_is_not_enough_where_a_key_was_named() {
    let keys: Vec<_> = (0..4).map(|n| public_key(&[n; 32])).collect();
    let a = Endpoint::bind(&keyed(1, Admission::Anyone)).unwrap();
    let stranger = Endpoint::bind(&keyed(2, Admission::Known)).unwrap();
    let to_a = stranger.connect_with_key(a.local_address(), keys[1]).unwrap();
    to_a.send_acknowledged(numbered(0, 100)).unwrap();
    let heard = a.recv_timeout(PATIENCE).unwrap().unwrap().peer;
    assert_eq!(heard.address(), stranger.local_address());
    let wrong = a.connect_with_key(stranger.local_address(), keys[3]);
    assert_eq!(wrong.unwrap_err(), ConnectError::Refused(AddPeerError::KeyMismatch));
    let wrong = block_on(a.connect_async(stranger.local_address(), Some(keys[3])));
    assert_eq!(wrong.unwrap_err(), ConnectError::Refused(AddPeerError::KeyMismatch));
    let right = a.connect_with_key(stranger.local_address(), keys[2]).unwrap();
    assert_eq!(right.address(), heard.address());

    // Adds the same peer twice, with two keys.
    for admission in [Admission::Known, Admission::Anyone] {
        let a = Endpoint::bind(&keyed(1, admission)).unwrap();
        let at = stranger.local_address();
        a.connect_with_key(at, keys[2]).unwrap();
        a.connect_with_key(at, keys[2]).unwrap();
        assert!(a.connect_with_key(at, keys[3]).is_err());
        let mut local = LocalEndpoint::bind(&keyed(1, admission)).unwrap();
        let id = local.connect_with_key(at, Some(keys[2])).unwrap();
        assert_eq!(local.connect_with_key(at, Some(keys[2])), Ok(id));
        assert_eq!(local.connect(at), Ok(id), "whoever is there");
        assert_eq!(local.connect_with_key(at, Some(keys[3])), Err(AddPeerError::KeyMismatch));
    }
}

fn memory_pair(net: &MemoryNet, config: &Config) -> (Endpoint, Endpoint) {
    let node = |last| {
        let io = net.node(SocketAddr::from(([10, 0, 0, last], 1000)), 8);
        Endpoint::over(io, config.clone()).unwrap()
    };
    (node(1), node(2))
}

#[test]
fn losses_reordering_and_duplicates_are_invisible() {
    let net = MemoryNet::new(MemoryOptions {
        seed: 11,
        loss_permille: 30,
        duplicate_permille: 20,
        reorder_permille: 50,
        mark_permille: 10,
        delay: srd_proto::Duration::from_micros(50),
        hold: srd_proto::Duration::from_micros(300),
        packet_bytes_max: 0,
    });
    let (a, b) = memory_pair(&net, &Config::sockets());
    transfer_and_close(a, &b, 3000, 1000);
}

#[test]
fn a_flush_fails_when_nobody_answers() {
    let pair_with = |peer_timeout| {
        let net = MemoryNet::new(MemoryOptions { loss_permille: 1000, ..Default::default() });
        memory_pair(&net, &Config { peer_timeout, ..Config::sockets() })
    };
    let (a, b) = pair_with(srd_proto::Duration::from_secs(30));
    let peer = a.connect(b.local_address()).unwrap();
    peer.send(numbered(1, 100)).unwrap();
    let early = peer.flush(Duration::from_millis(10));
    assert_eq!(early, Err(FlushError::Unfinished { datagrams: 1 }));

    let (a, b) = pair_with(srd_proto::Duration::from_millis(200));
    let peer = a.connect(b.local_address()).unwrap();
    peer.send(numbered(1, 100)).unwrap();
    let failed = Err(SendError::Failed(Status::UnreachRemote));
    assert_eq!(peer.send_acknowledged(numbered(2, 100)), failed);
    assert!(matches!(peer.flush(PATIENCE), Err(FlushError::Failed(Status::UnreachRemote))));
    assert_eq!(peer.failures(), 2);
    let told = || a.take_events().iter().any(|n| matches!(n, EndpointEvent::PeerDown(..)));
    let until = std::time::Instant::now() + PATIENCE;
    while !told() {
        assert!(std::time::Instant::now() < until, "nothing was told");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn sending_beyond_the_limit_would_block_and_closing_frees_the_blocked() {
    let net = MemoryNet::new(MemoryOptions { loss_permille: 1000, ..Default::default() });
    let config = Config { send_queue_datagrams_max: 4, ..Config::sockets() };
    let (a, b) = memory_pair(&net, &config);
    let peer = a.connect(b.local_address()).unwrap();
    for i in 0..4 {
        peer.try_send(numbered(i, 10)).unwrap();
    }
    assert_eq!(peer.try_send(numbered(4, 10)), Err(SendError::WouldBlock));
    let blocked = std::thread::spawn(move || peer.send(numbered(5, 10)));
    std::thread::sleep(Duration::from_millis(20));
    assert!(!a.close(Duration::from_millis(50)), "nothing was acknowledged");
    assert_eq!(blocked.join().unwrap(), Err(SendError::Closed));
}

#[test]
fn a_receiver_that_does_not_read_holds_the_sender_back_and_nothing_is_lost() {
    let mut options = loopback("127.0.0.1");
    options.receive_queue_datagrams = 16;
    let (a, b) = (Endpoint::bind(&options).unwrap(), Endpoint::bind(&options).unwrap());
    let peer = a.connect(b.local_address()).unwrap();
    for i in 0..100 {
        peer.send(numbered(i, 100)).unwrap();
    }
    assert!(peer.flush(Duration::from_millis(100)).is_err(), "16 of 100 fit");
    let mut seen = HashSet::new();
    for _ in 0..100 {
        let Some(got) = b.recv_timeout(PATIENCE).unwrap() else {
            panic!("{} of 100 came: {:?} {:?}", seen.len(), a.report(), b.report());
        };
        assert!(seen.insert(number(&got.payload)));
    }
    peer.flush(PATIENCE).unwrap();
}

#[test]
fn too_large_is_refused_with_the_size_that_fits() {
    let options = loopback("127.0.0.1");
    let (a, b) = (Endpoint::bind(&options).unwrap(), Endpoint::bind(&options).unwrap());
    let peer = a.connect(b.local_address()).unwrap();
    let max_bytes = a.payload_bytes_max();
    let result = peer.send(Bytes::from(vec![0; max_bytes + 1]));
    assert_eq!(result, Err(SendError::TooLarge { max_bytes }));
}

#[test]
fn a_packet_size_beyond_the_interface_is_told_on_connecting() {
    let mut options = loopback("127.0.0.1");
    options.packet_bytes_from_interface = false;
    options.config.packet_bytes_max = 9000;
    let a = Endpoint::bind(&options).unwrap();
    a.connect(SocketAddr::from(([127, 0, 0, 1], 9))).unwrap();
    assert_eq!(a.take_events(), Vec::new(), "loopback passes 9,000 bytes");
}

#[test]
fn answers_reach_the_one_who_asked() {
    let options = loopback("127.0.0.1");
    let server = Endpoint::bind(&options).unwrap();
    let address = server.local_address();
    let done = Arc::new(AtomicBool::new(false));
    let is_done = done.clone();
    let echo = std::thread::spawn(move || {
        while !is_done.load(Ordering::SeqCst) {
            if let Some(got) = server.recv_timeout(Duration::from_millis(20)).unwrap() {
                got.peer.send(got.payload).unwrap();
            }
        }
    });
    let clients: Vec<_> = (0..3)
        .map(|client| {
            std::thread::spawn(move || {
                let endpoint = Endpoint::bind(&loopback("127.0.0.1")).unwrap();
                let peer = endpoint.connect(address).unwrap();
                for i in 0..50 {
                    peer.send(numbered(client * 1000 + i, 64)).unwrap();
                    let answer = endpoint.recv_timeout(PATIENCE).unwrap();
                    let answer = answer.unwrap_or_else(|| panic!("{i}: {:?}", endpoint.report()));
                    assert_eq!(number(&answer.payload), client * 1000 + i);
                    assert_eq!(answer.peer.address(), address);
                }
                let report = endpoint.report().unwrap();
                assert_eq!(report.stats.recv_wrs, 50);
                assert_eq!(report.peers.len(), 1);
            })
        })
        .collect();
    let ended: Vec<_> = clients.into_iter().map(std::thread::JoinHandle::join).collect();
    done.store(true, Ordering::SeqCst);
    echo.join().unwrap();
    ended.into_iter().for_each(Result::unwrap);
}

/// Unparks the thread that polls.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let start = std::time::Instant::now();
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                assert!(start.elapsed() < PATIENCE, "a future hangs");
                std::thread::park_timeout(PATIENCE);
            }
        }
    }
}

#[test]
fn futures_do_all_that_threads_do() {
    let options = loopback("127.0.0.1");
    let (a, b) = (Endpoint::bind(&options).unwrap(), Endpoint::bind(&options).unwrap());
    block_on(async {
        let peer = a.connect_async(b.local_address(), None).await.unwrap();
        for i in 0..200 {
            peer.send_async(numbered(i, 500)).await.unwrap();
        }
        peer.send_acknowledged_async(numbered(200, 500)).await.unwrap();
        peer.flush_async().await.unwrap();
        let mut seen = HashSet::new();
        for _ in 0..=200 {
            assert!(seen.insert(number(&b.recv_async().await.unwrap().payload)));
        }
    });
}

#[test]
fn a_dropped_endpoint_still_delivers_what_was_sent() {
    let mut options = loopback("127.0.0.1");
    options.linger = srd_proto::Duration::from_secs(30);
    let b = Endpoint::bind(&options).unwrap();
    let a = Endpoint::bind(&options).unwrap();
    let peer = a.connect(b.local_address()).unwrap();
    for i in 0..50 {
        peer.send(numbered(i, 1000)).unwrap();
    }
    drop(a);
    for _ in 0..50 {
        b.recv_timeout(PATIENCE).unwrap().expect("a datagram is missing");
    }
    let until = std::time::Instant::now() + PATIENCE;
    while peer.try_send(numbered(0, 4)) != Err(SendError::Closed) {
        assert!(std::time::Instant::now() < until, "its thread goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Datagrams that arrived in the last moments of an endpoint were acknowledged, and could not be
/// read.
#[test]
fn regression_datagrams_that_an_ending_endpoint_acknowledges_can_be_read() {
    let mut options = loopback("127.0.0.1");
    options.config.peer_timeout = srd_proto::Duration::from_secs(1);
    let (a, b) = (Endpoint::bind(&options).unwrap(), Endpoint::bind(&options).unwrap());
    let peer = a.connect(b.local_address()).unwrap();
    let acknowledged = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            (0..).take_while(|i| peer.send_acknowledged(numbered(*i, 100)).is_ok()).count()
        });
        b.recv_timeout(PATIENCE).unwrap().expect("the first datagram is missing");
        assert!(block_on(b.close_async(PATIENCE)));
        sender.join().unwrap()
    });
    let read = 1 + std::iter::from_fn(|| b.recv().ok()).count();
    assert!(read >= acknowledged, "{read} of {acknowledged} acknowledged datagrams");
}

/// Counts completions and answers deliveries.
#[derive(Default)]
struct Local {
    got: Vec<Vec<u8>>,
    completed: usize,
    answer: bool,
}

impl srd_net::Application for Local {
    fn delivered(&mut self, context: &mut srd_net::Context<'_>, delivery: Delivery<'_>) {
        self.got.push(delivery.payload.to_vec());
        if self.answer {
            let payload = Bytes::copy_from_slice(delivery.payload);
            context.send(delivery.peer, datagram(payload)).unwrap();
        }
    }

    fn event(&mut self, _: &mut srd_net::Context<'_>, event: Event) {
        if let Event::Completed { status, .. } = event {
            assert_eq!(status, Status::Ok);
            self.completed += 1;
        }
    }
}

fn datagram(payload: Bytes) -> Datagram {
    Datagram { src_qpn: Qpn(1), dst_qpn: Qpn(1), imm: 0, payload, class: Class::Bulk, user: 0 }
}

#[test]
fn an_endpoint_driven_by_its_caller_answers_from_within_the_call() {
    for poll in [PollMode::Block, PollMode::Spin] {
        let mut options = loopback("127.0.0.1");
        options.poll = poll;
        let mut a = LocalEndpoint::bind(&options).unwrap();
        let mut b = LocalEndpoint::bind(&options).unwrap();
        a.open_qp(Qpn(1), ReceiveBuffers::Unlimited);
        b.open_qp(Qpn(1), ReceiveBuffers::Unlimited);
        let peer = a.connect(b.local_address()).unwrap();
        assert_eq!(a.connect(b.local_address()).unwrap(), peer);
        let (mut asking, mut answering) =
            (Local::default(), Local { answer: true, ..Local::default() });
        let until = std::time::Instant::now() + PATIENCE;
        for i in 0..100u8 {
            a.send(peer, datagram(Bytes::from(vec![i; 64]))).unwrap();
            while asking.got.len() <= usize::from(i) {
                a.poll(srd_proto::Duration::ZERO, &mut asking).unwrap();
                b.poll(srd_proto::Duration::ZERO, &mut answering).unwrap();
                assert!(std::time::Instant::now() < until, "answer {i} is missing");
            }
            assert_eq!(asking.got[usize::from(i)], vec![i; 64]);
        }
        assert_eq!(answering.got.len(), 100);
        // Acknowledgements arrive independently, and later than the answers.
        while asking.completed < 100 || answering.completed < 100 {
            a.poll(srd_proto::Duration::ZERO, &mut asking).unwrap();
            b.poll(srd_proto::Duration::ZERO, &mut answering).unwrap();
            assert!(std::time::Instant::now() < until, "a completion is missing");
        }
    }
}
