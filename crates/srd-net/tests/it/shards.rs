//! Nodes of several shards over kernel sockets: one thread for each shard, one address, and every
//! packet arrives at the thread of its shard.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use bytes::Bytes;
use srd_net::{Application, BindOptions, Context, LocalEndpoint, PollMode};
use srd_proto::config::Admission;
use srd_proto::{
    Class, Config, Datagram, Delivery, DropReason, Duration, Event, Protection, Qpn,
    ReceiveBuffers, Status,
};

const QPN: Qpn = Qpn(1);
/// Number of datagrams that each shard sends.
const EACH: u64 = 3_000;
const LIMIT: StdDuration = StdDuration::from_secs(120);

#[derive(Default)]
struct Sums {
    delivered: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    /// Statuses of failed datagrams, and other events.
    notes: Mutex<Vec<String>>,
    astray: AtomicU64,
    done: AtomicUsize,
}

impl Sums {
    fn note(&self, note: String) {
        self.notes.lock().unwrap().push(note);
    }
}

struct App<'a>(&'a Sums);

impl Application for App<'_> {
    fn delivered(&mut self, context: &mut Context<'_>, delivery: Delivery<'_>) {
        assert_eq!(delivery.payload.len(), 4000);
        self.0.delivered.fetch_add(1, Ordering::Relaxed);
        context.post_receives(QPN, 1);
    }

    fn event(&mut self, _: &mut Context<'_>, event: Event) {
        match event {
            Event::Completed { status: Status::Ok, .. } => {
                self.0.completed.fetch_add(1, Ordering::Relaxed);
            }
            Event::Completed { status, .. } => {
                self.0.failed.fetch_add(1, Ordering::Relaxed);
                self.0.note(format!("{status:?}"));
            }
            event => self.0.note(format!("{event:?}")),
        }
    }
}

fn node(shards: u8, protection: Protection) -> Vec<LocalEndpoint> {
    node_that_admits(Admission::Known, shards, protection)
}

fn node_that_admits(
    admission: Admission,
    shards: u8,
    protection: Protection,
) -> Vec<LocalEndpoint> {
    let config = Config { protection, admission, paths: 8, ..Config::sockets() };
    let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let mut options = BindOptions { config, poll: PollMode::Block, ..BindOptions::at(address) };
    options.receive_buffer_bytes = 8 << 20;
    let mut shards = LocalEndpoint::bind_shards(&options, shards).unwrap();
    for shard in &mut shards {
        shard.open_qp(QPN, ReceiveBuffers::Counted(1 << 16));
    }
    shards
}

/// Does the work of one thread: sends its datagrams, and polls until all threads have received
/// theirs. Returns the endpoint, because the kernel distributes packets differently as soon as one
/// endpoint is dropped.
fn work(
    mut shard: LocalEndpoint,
    (to, key): (SocketAddr, Option<[u8; 32]>),
    sums: &Sums,
    all: usize,
) -> LocalEndpoint {
    let peer = shard.connect_with_key(to, key).unwrap();
    let deadline = StdInstant::now() + LIMIT;
    let total = EACH * all as u64;
    let (mut sent, mut said) = (0, false);
    while sums.done.load(Ordering::Acquire) < all {
        assert!(StdInstant::now() < deadline, "stuck");
        while sent < EACH {
            let payload = Bytes::from_static(&[7; 4000]);
            let (src_qpn, dst_qpn, class) = (QPN, QPN, Class::Bulk);
            let datagram = Datagram { src_qpn, dst_qpn, imm: 0, payload, class, user: 0 };
            if shard.send(peer, datagram).is_err() {
                break;
            }
            sent += 1;
        }
        shard.poll(Duration::from_millis(1), &mut App(sums)).unwrap();
        let settled = sums.completed.load(Ordering::Relaxed) + sums.failed.load(Ordering::Relaxed);
        if !said && settled >= total {
            said = true;
            sums.done.fetch_add(1, Ordering::Release);
        }
    }
    let drops = shard.core().stats().drops;
    let astray =
        drops[DropReason::UnknownContext as usize] + drops[DropReason::Unauthentic as usize];
    sums.astray.fetch_add(astray, Ordering::Relaxed);
    shard
}

fn exchange(protection: impl Fn(u8) -> Protection, shards: [u8; 2]) {
    let nodes = [0, 1].map(|n| node(shards[usize::from(n)], protection(n)));
    let ends = [0, 1].map(|n: usize| {
        let first: &LocalEndpoint = &nodes[n][0];
        (first.local_address(), first.core().public_key())
    });
    for (node, (address, _)) in nodes.iter().zip(ends) {
        assert!(node.iter().all(|shard| shard.local_address() == address));
    }
    let all = usize::from(shards[0] + shards[1]);
    // With static keys a node accepts no stranger: each shard has the other node's key before any
    // packet.
    let sums = Sums::default();
    let endpoints = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (n, node) in nodes.into_iter().enumerate() {
            for shard in node {
                let sums = &sums;
                threads.push(scope.spawn(move || work(shard, ends[1 - n], sums, all)));
            }
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    drop(endpoints);
    let total = EACH * all as u64;
    let [delivered, completed, failed] =
        [sums.delivered, sums.completed, sums.failed].map(AtomicU64::into_inner);
    let notes = sums.notes.into_inner().unwrap();
    assert_eq!((delivered, completed, failed), (total, total, 0), "{notes:?}");
    // Openings that cross cause a few answers to contexts that do not exist any more.
    let astray = sums.astray.into_inner();
    assert!(astray < total / 100, "{astray} packets at another shard");
}

#[test]
fn every_shard_of_a_plain_node_reaches_the_other() {
    for shards in [[2, 2], [1, 3], [4, 2]] {
        exchange(|_| Protection::Plain, shards);
    }
}

#[test]
fn every_shard_of_a_node_with_keys_reaches_the_other() {
    for shards in [[2, 2], [3, 2]] {
        exchange(|n| Protection::Static([n + 1; 32]), shards);
    }
}

/// Regression: a node that admits any peer requests a cookie from an unknown key, and the request
/// goes to the source port of the opening. Shard 0 of the caller sends nothing: the other shards
/// must be able to open a session without an existing session.
#[test]
fn regression_every_shard_of_a_stranger_hears_the_demand_for_a_cookie() {
    for last in [1, 2] {
        let mut server = node_that_admits(Admission::Anyone, 2, Protection::Static([1; 32]));
        let mut client = node(3, Protection::Static([2; 32]));
        let (to, key) = (server[0].local_address(), server[0].core().public_key());
        let caller = &mut client[last];
        let peer = caller.connect_with_key(to, key).unwrap();
        let datagram = Datagram {
            src_qpn: QPN,
            dst_qpn: QPN,
            imm: 0,
            payload: Bytes::from_static(&[7; 4000]),
            class: Class::Bulk,
            user: 0,
        };
        caller.send(peer, datagram).unwrap();
        let sums = Sums::default();
        let deadline = StdInstant::now() + LIMIT;
        while sums.completed.load(Ordering::Relaxed) == 0 {
            assert!(StdInstant::now() < deadline, "shard {last} was never answered");
            for endpoint in server.iter_mut().chain([&mut client[last]]) {
                endpoint.poll(Duration::from_millis(1), &mut App(&sums)).unwrap();
            }
        }
        assert_eq!(sums.delivered.into_inner(), 1);
    }
}
