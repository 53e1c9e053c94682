//! A peer that has the job's key and sends false data, over loopback, against a host in real
//! memory.
//!
//! Each buffer is at the end of separate pages, between inaccessible pages; when its operation has
//! ended, the buffer becomes inaccessible as well. So any access of the host to memory that it may
//! not use ends the test immediately. `SRD_HOSTILE_SECONDS` makes the test longer, and a sanitizer
//! makes it stricter: `docs/testing.md`.

#![allow(clippy::unwrap_used, reason = "a test, with helpers")]
#![allow(unsafe_code, reason = "hosts work in memory that is named by address")]

#[path = "../../../../fuzz/bodies/hostile/mod.rs"]
mod bodies;
#[path = "../support/guarded.rs"]
mod guarded;
#[path = "../support/liar.rs"]
mod liar;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use srd_efa::Access;
use srd_efa::layer::{
    Atomic, AtomicOp, Datatype, Iov, Kind, Message, OperationCompletion, Outcome, Peer, Receive,
    Rma, RmaIov, Selector, Shared, Until,
};
use srd_efa::rdm::{Rdm, RdmCounters};
use srd_host::{Host, Options, RegionNumber, Sink, Span};
use srd_proto::rng::Rng;

use guarded::Guarded;
use liar::Liar;

/// Longest time that a step of the test may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Largest number of operations that the victim has in progress.
const PENDING_MAX: usize = 32;
/// Number of buffers that stay inaccessible after their operation.
const RETIRED_MAX: usize = 256;

struct CompletionSink(Arc<Mutex<VecDeque<OperationCompletion>>>);

impl Sink for CompletionSink {
    type Layer = Rdm;

    fn has_room(&mut self) -> bool {
        true
    }

    fn done(&mut self, done: OperationCompletion, _: &Rdm) {
        self.0.lock().unwrap().push_back(done);
    }

    fn notice(&mut self, _: srd_net::Notice) {}

    fn broken(&mut self, error: &std::io::Error) {
        panic!("the sockets are lost: {error}");
    }
}

/// A host, and the operations that its application waits for.
struct App {
    host: Host<CompletionSink>,
    done: Arc<Mutex<VecDeque<OperationCompletion>>>,
    pending: BTreeMap<u64, Vec<Guarded>>,
    retired: VecDeque<Guarded>,
    next: u64,
    ended: u64,
}

fn options() -> Options {
    let mut options = Options::at("127.0.0.1:0".parse().unwrap());
    options.paths = 4;
    options.job_key = Some([7; 32]);
    options.packet_bytes_max = Some(1472);
    // Honest peers may not run for a while.
    options.answer_timeout = srd_proto::Duration::from_secs(10);
    options.peer_timeout = srd_proto::Duration::from_secs(10);
    options
}

impl App {
    fn new() -> Self {
        let done = Arc::new(Mutex::new(VecDeque::new()));
        let host = Host::open(&options(), CompletionSink(Arc::clone(&done))).unwrap();
        let (pending, retired) = (BTreeMap::new(), VecDeque::new());
        Self { host, done, pending, retired, next: 0, ended: 0 }
    }

    fn call<R>(&self, f: impl FnOnce(srd_host::Call<'_, CompletionSink>) -> R) -> R {
        // SAFETY: buffers are kept until their operation's end was reported, and longer.
        unsafe { self.host.handle().call(f) }.unwrap()
    }

    fn add_peer(&self, address: std::net::SocketAddr) -> Peer {
        self.call(|mut call| {
            let (rdm, mut world, _) = call.parts();
            rdm.add_peer(&mut world, address, 0).unwrap()
        })
    }

    fn counters(&self) -> RdmCounters {
        self.call(|call| *call.layer.counters())
    }

    /// Registers memory for peers: two regions, the second for reading only.
    fn share(&self, memory: &[Guarded; 2]) {
        for (at, memory) in memory.iter().enumerate() {
            let number = u32::try_from(at).unwrap() + 1;
            let (region, rkey) = (u64::from(number), u64::from(number) + 4);
            let length = memory.piece().length;
            let write = at == 0;
            let access = Access { local_write: write, remote_write: write, remote_read: true };
            let spans = [Span {
                addr: usize::try_from(memory.piece().addr).unwrap(),
                length: usize::try_from(length).unwrap(),
            }];
            self.call(|call| {
                call.memory.add(RegionNumber(number), Box::new(spans));
                call.layer.share(Shared { region, addr: 0, length, rkey, access }).unwrap();
            });
        }
    }

    fn buffer(&mut self, context: u64, bytes: usize) -> Vec<Iov> {
        let buffer = Guarded::new(bytes);
        let piece = buffer.piece();
        self.pending.entry(context).or_default().push(buffer);
        vec![piece]
    }

    /// Starts a random operation.
    fn ask(&mut self, rng: &mut Rng, to: Peer) {
        self.next += 1;
        let context = self.next;
        let sizes = [0, 1, 100, 1400, 9000, 60_000, 70_000, 300_000];
        let bytes = sizes[rng.below(8) as usize];
        let until = [Until::Transmitted, Until::Delivered][rng.below(2) as usize];
        let tag = (rng.below(4) > 0).then_some(u64::from(rng.below(4)));
        let (what, read, signaled) = (rng.below(10), rng.below(2) == 0, true);
        let remote = [RmaIov { addr: rng.below(5000).into(), length: 0, rkey: 5 }];
        let iov = &self.buffer(context, if what == 9 { 8 } else { bytes });
        let operand = &self.buffer(context, if what == 9 { 8 } else { 0 });
        let length = iov[0].length;
        let taken = self.call(|mut call| {
            let (rdm, mut world, _) = call.parts();
            let world = &mut world;
            let remote = &[RmaIov { length, ..remote[0] }];
            match what {
                0..=2 => {
                    rdm.send(world, Message { to, tag, iov, data: None, context, until, signaled })
                }
                3..=6 => {
                    let ignore = if tag.is_some() { 3 } else { u64::MAX };
                    let want = Selector { tag: tag.unwrap_or(0), ignore, source: None };
                    let tagged = tag.is_some();
                    rdm.recv(world, Receive { tagged, want, iov, context, multi: None, signaled })
                }
                7 | 8 => {
                    let local = iov;
                    let data = None;
                    rdm.rma(world, Rma { to, read, local, remote, data, context, until, signaled })
                }
                _ => {
                    let (op, datatype) = (AtomicOp::Sum, Datatype::Uint64);
                    let (compare, result) = (&[], iov);
                    rdm.atomic(
                        world,
                        Atomic {
                            to,
                            op,
                            datatype,
                            operand,
                            compare,
                            result,
                            remote,
                            context,
                            until,
                            signaled,
                        },
                    )
                }
            }
        });
        if taken.is_err() {
            self.retire(context);
        }
    }

    /// Makes the buffers of an operation inaccessible.
    fn retire(&mut self, context: u64) {
        for buffer in self.pending.remove(&context).expect("an operation ends once") {
            buffer.forbid();
            self.retired.push_back(buffer);
        }
        while self.retired.len() > RETIRED_MAX {
            self.retired.pop_front();
        }
    }

    /// Processes completions.
    fn listen(&mut self) {
        self.host.handle().poll();
        loop {
            let Some(done) = self.done.lock().unwrap().pop_front() else { return };
            if !matches!(done.kind, Kind::RemoteWrite | Kind::RemoteRead) {
                self.retire(done.context);
                self.ended += 1;
            }
        }
    }

    fn cancel_all(&mut self) {
        for context in self.pending.keys().copied().collect::<Vec<_>>() {
            self.call(|call| call.layer.cancel(context));
        }
    }
}

/// Sends messages of a third, correct host, which must arrive.
fn another_gets_through(victim: &mut App) {
    let mut honest = App::new();
    let address = victim.host.address();
    let to = honest.add_peer(address);
    for bytes in [100usize, 200_000] {
        victim.next += 1;
        let (context, tag) = (victim.next, 1 << 40);
        let want = Selector { tag, ignore: 0, source: None };
        let iov = &victim.buffer(context, bytes);
        let (multi, signaled, until) = (None, true, Until::Transmitted);
        victim.call(|mut call| {
            let (rdm, mut world, _) = call.parts();
            let receive = Receive { tagged: true, want, iov, context, multi, signaled };
            rdm.recv(&mut world, receive).unwrap();
        });
        honest.next += 1;
        let mine = honest.next;
        let iov = &honest.buffer(mine, bytes);
        honest.call(|mut call| {
            let (rdm, mut world, _) = call.parts();
            let (tag, data, context) = (Some(tag), None, mine);
            rdm.send(&mut world, Message { to, tag, iov, data, context, until, signaled }).unwrap();
        });
        let start = Instant::now();
        loop {
            honest.host.handle().poll();
            victim.host.handle().poll();
            let found = victim.done.lock().unwrap().iter().find(|d| d.context == context).copied();
            if let Some(done) = found {
                assert_eq!((done.outcome, done.length), (Outcome::Ok, bytes as u64));
                break;
            }
            assert!(start.elapsed() < PATIENCE, "an honest message is stuck");
        }
    }
    honest.host.close();
}

#[test]
fn a_liar_with_the_key_touches_nothing_that_is_not_his_and_others_get_through() {
    let seconds = std::env::var("SRD_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    let limit = Duration::from_secs(seconds.unwrap_or(3));
    let mut victim = App::new();
    let memory = [Guarded::new(4096), Guarded::new(5000)];
    victim.share(&memory);
    let stop = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
    let liar = Liar::new(&options(), (victim.host.address(), victim.host.incarnation()));
    let address = liar.address();
    let thread = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || liar.run(&stop.0, &stop.1)
    });
    let peer = victim.add_peer(address);
    let mut rng = Rng::new(5);
    let start = Instant::now();
    // Runs for this time; on a slow machine longer, until enough operations have ended.
    loop {
        let (lies, ended, counters) =
            (stop.1.load(Ordering::Relaxed), victim.ended, victim.counters());
        let is_enough = lies > 100
            && ended > 50
            && counters.malformed > 0
            && counters.stale > 0
            && counters.bad_address > 0;
        let passed = start.elapsed();
        if is_enough && passed >= limit {
            println!("{lies} lies, {ended} operations ended, {counters:?}");
            break;
        }
        assert!(passed < limit + PATIENCE, "{lies} lies, {ended} ends, {counters:?}");
        for _ in 0..100 {
            if victim.pending.len() < PENDING_MAX {
                victim.ask(&mut rng, peer);
            } else if rng.below(50) == 0 {
                let oldest = *victim.pending.keys().next().unwrap();
                victim.call(|call| call.layer.cancel(oldest));
            }
            victim.listen();
        }
    }
    stop.0.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    // The liar has ended. An operation that waits for its answer may wait without end, because the
    // transport does not probe an idle peer. Closing the host releases the buffers of such
    // operations.
    victim.call(|mut call| {
        let (rdm, mut world, _) = call.parts();
        rdm.remove_peer(&mut world, peer);
    });
    let start = Instant::now();
    while !victim.pending.is_empty() && start.elapsed() < Duration::from_secs(1) {
        victim.cancel_all();
        victim.listen();
    }
    println!("{} operations wait for his word", victim.pending.len());
    another_gets_through(&mut victim);
    let App { host, pending, .. } = victim;
    host.close();
    for buffer in pending.into_values().flatten().chain(memory) {
        buffer.forbid();
    }
}
