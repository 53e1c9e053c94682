//! A node: transport, messaging layer, and the pending operations of its application.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use srd_efa::Access;
use srd_efa::layer::{Kind, OperationCompletion, Outcome, Peer, Refused, Shared, World};
use srd_efa::rdm::{Config, Rdm};
use srd_proto::Status;
use srd_proto::{Config as CoreConfig, Delivery, Duration, Endpoint, Entropy, Epoch, Instant};

use super::memory::{Checked, Use};

const OPERATIONS_MAX: u32 = 16;
const RECEIVES_MAX: u32 = 16;
/// Key of the first piece of shared memory. The key of the second piece is one more.
pub(crate) const RKEY: u8 = 5;
/// Number of bytes of each piece of shared memory.
pub(crate) const SHARED_BYTES: usize = 4096;

/// Messaging layer that admits datagrams, and the memory that it uses.
pub(crate) struct Judge {
    pub(crate) rdm: Rdm,
    pub(crate) memory: Checked,
}

/// Number and kind of the completions that an operation may still have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ExpectedCompletions {
    /// Exactly one completion.
    Once,
    /// Any number of completions, until one releases it.
    UntilReleased,
    /// One completion, after which a failure may be reported.
    Injected,
    /// No completion, or a failure.
    Late,
    /// One completion, which reports whether a message was claimed for the operation.
    Claim,
}

/// A node of the test.
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    pub(crate) judge: Judge,
    pub(crate) run: u64,
    incarnation: u64,
    /// The other node as a peer, and the node itself as a peer.
    pub(crate) peers: [Peer; 2],
    /// Whether the node's application polls for completions.
    pub(crate) polls: bool,
    pending: BTreeMap<u64, ExpectedCompletions>,
    context_next: u64,
    /// Messages that were claimed and not received yet: context of the claim, and whether the
    /// message has a tag.
    pub(crate) claims: Vec<(u64, bool)>,
}

pub(crate) fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1 + node as u8], 7471))
}

/// Returns the source address of a packet that a node sends with this entropy.
pub(crate) fn source(node: usize, entropy: Entropy) -> SocketAddr {
    SocketAddr::new(address(node).ip(), 7471 + entropy.0)
}

/// Returns the number by which addresses name the run of a node.
pub(crate) fn incarnation(node: usize, run: u64) -> u64 {
    100 * (1 + node as u64) + run
}

fn refusals(rdm: &Rdm) -> u64 {
    let (c, d) = (rdm.counters(), rdm.device_counters());
    let own = c.malformed + c.stale + c.rnr + c.bad_address;
    let transfers = d.bad_qpn + d.bad_qkey + d.malformed + d.bad_address + d.unknown_peer;
    own + transfers + d.rnr + d.bad_length + d.no_transfer
}

impl Judge {
    /// Passes a datagram to the messaging layer. Each refusal must be counted exactly once. If a
    /// datagram is accepted, parts of messages that were stored before may be refused and counted.
    pub(crate) fn admit(&mut self, now: Instant, delivery: &Delivery<'_>) -> Status {
        let before = refusals(&self.rdm);
        let status = self.rdm.admit(now, delivery, &mut self.memory);
        if status != Status::Ok {
            assert_eq!(refusals(&self.rdm), before + 1, "{status:?}");
        }
        status
    }
}

impl Node {
    pub(crate) fn new(node: usize, run: u64, now: Instant) -> Self {
        let core = CoreConfig {
            packet_bytes_max: 600,
            keepalive: Duration::from_millis(50),
            peer_timeout: Duration::from_millis(500),
            answer_timeout: Duration::from_secs(2),
            ..CoreConfig::sockets()
        };
        let incarnation = incarnation(node, run);
        let seed = [node as u8 * 16 + run as u8; 32];
        let mut endpoint = Endpoint::new(core, Epoch(incarnation), seed, now).expect("valid");
        let config = Config {
            operations_max: OPERATIONS_MAX,
            receives_max: RECEIVES_MAX,
            report_remote: true,
            seed: 1,
        };
        let rdm = Rdm::new(config, &mut endpoint, address(node), incarnation);
        let judge = Judge { rdm, memory: Checked::default() };
        let mut new = Self {
            endpoint,
            judge,
            run,
            incarnation,
            peers: [Peer(0); 2],
            polls: true,
            pending: BTreeMap::new(),
            context_next: 1,
            claims: Vec::new(),
        };
        new.share(0, true, true);
        new.share(1, true, false);
        new
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Calls the messaging layer, and processes the events that result.
    pub(crate) fn on<R>(
        &mut self,
        now: Instant,
        call: impl FnOnce(&mut Rdm, &mut World<'_>) -> R,
    ) -> R {
        let Judge { rdm, memory } = &mut self.judge;
        let result = call(rdm, &mut World { now, endpoint: &mut self.endpoint, memory });
        self.take_events(now);
        result
    }

    pub(crate) fn add_peer(&mut self, now: Instant, at: SocketAddr) -> Option<Peer> {
        self.on(now, |rdm, world| rdm.add_peer(world, at, 0)).ok()
    }

    /// Shares one of the two pieces of memory, unless it is shared already.
    pub(crate) fn share(&mut self, which: u8, read: bool, write: bool) {
        let access = Access { local_write: write, remote_write: write, remote_read: read };
        let (region, rkey) = (u64::from(which) + 1, u64::from(RKEY + which));
        let shared = Shared { region, addr: 0, length: SHARED_BYTES as u64, rkey, access };
        if self.judge.rdm.share(shared).is_ok() {
            self.judge.memory.share(region, SHARED_BYTES, read, write);
        }
    }

    pub(crate) fn unshare(&mut self, which: u8) {
        self.judge.rdm.unshare(u64::from(RKEY + which));
        self.judge.memory.unshare(u64::from(which) + 1);
    }

    /// Processes the events of the transport, and then the completions. Returns whether there was
    /// an event.
    pub(crate) fn take_events(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(event) = self.endpoint.poll_event() {
            self.judge.rdm.event(now, &event);
            any = true;
        }
        if self.polls {
            self.take_ends();
        }
        any
    }

    pub(crate) fn take_ends(&mut self) {
        while let Some(done) = self.judge.rdm.poll() {
            self.ended(&done);
        }
    }

    fn ended(&mut self, done: &OperationCompletion) {
        if matches!(done.kind, Kind::RemoteWrite | Kind::RemoteRead) {
            assert_eq!(done.context, 0);
            return;
        }
        let ends = self.pending.get(&done.context).copied();
        let left = match ends {
            Some(ExpectedCompletions::Once) => None,
            Some(ExpectedCompletions::UntilReleased) => {
                (!done.released).then_some(ExpectedCompletions::UntilReleased)
            }
            Some(ExpectedCompletions::Injected) => Some(ExpectedCompletions::Late),
            Some(ExpectedCompletions::Late) if done.outcome != Outcome::Ok => None,
            Some(ExpectedCompletions::Claim) => {
                if done.outcome == Outcome::Ok {
                    self.claims.push((done.context, done.tagged));
                }
                None
            }
            _ => panic!("{ends:?}, and then {done:?}"),
        };
        match left {
            Some(left) => {
                self.pending.insert(done.context, left);
            }
            None => {
                self.pending.remove(&done.context);
                self.judge.memory.free(done.context);
            }
        }
    }

    /// Returns the number of the next operation.
    pub(crate) fn next_context(&mut self) -> u64 {
        self.context_next += 1;
        self.context_next
    }

    pub(crate) fn place(&mut self, context: u64, of: Use, length: usize) -> u64 {
        self.judge.memory.place(context, of, length)
    }

    /// Records an operation that was accepted, or frees the buffers of an operation that was
    /// refused.
    fn posted(&mut self, context: u64, ends: ExpectedCompletions, result: Result<(), Refused>) {
        if result.is_err() {
            assert!(!self.pending.contains_key(&context));
            self.judge.memory.free(context);
        } else {
            self.pending.insert(context, ends);
        }
    }

    /// Posts an operation to the messaging layer by `call`.
    pub(crate) fn post(
        &mut self,
        now: Instant,
        context: u64,
        sort: Sort,
        call: impl FnOnce(&mut Rdm, &mut World<'_>) -> Result<(), Refused>,
    ) {
        // Completions that occur within the call are processed after it.
        let polls = std::mem::replace(&mut self.polls, false);
        let result = self.on(now, call);
        self.polls = polls;
        let ends = match sort {
            Sort::Once => ExpectedCompletions::Once,
            Sort::Many => ExpectedCompletions::UntilReleased,
            Sort::Injected => ExpectedCompletions::Injected,
            Sort::Claim => ExpectedCompletions::Claim,
        };
        self.posted(context, ends, result);
        if sort == Sort::Injected {
            // The layer has copied the data.
            self.judge.memory.free(context);
        }
        self.take_events(now);
    }

    /// Cancels the first pending operation whose context is at least `from`.
    pub(crate) fn cancel(&mut self, from: u64) {
        let context = self.pending.range(from..).next().map(|(context, _)| *context);
        if let Some(context) = context {
            self.judge.rdm.cancel(context);
        }
    }

    pub(crate) fn cancel_all(&mut self) {
        for context in self.pending.keys().copied().collect::<Vec<_>>() {
            self.judge.rdm.cancel(context);
        }
    }

    /// Checks that tables stay within their bounds.
    pub(crate) fn check(&self) {
        let held = self.judge.rdm.occupancy();
        assert!(held.operations <= OPERATIONS_MAX as usize, "{held:?}");
        assert!(held.receives <= 2 * RECEIVES_MAX as usize, "{held:?}");
        assert!(held.control_frames <= 10_000, "{held:?}");
        assert!(held.completions <= 10_000, "{held:?}");
        assert!(held.reorder_bytes <= 64 << 20, "{held:?}");
    }

    /// Checks that no operation is pending. An injected operation that succeeded may stay recorded,
    /// because it has no further completion.
    pub(crate) fn assert_all_ended(&self) {
        let open =
            self.pending.iter().filter(|(_, ends)| !matches!(ends, ExpectedCompletions::Late));
        let open: Vec<_> = open.collect();
        assert!(open.is_empty(), "{open:?} never ended: {:?}", self.judge.rdm.occupancy());
    }

    /// Ends the node; returns its memory.
    pub(crate) fn end(self) -> Checked {
        let Self { judge: Judge { memory, .. }, .. } = self;
        memory
    }
}

/// Kind of an operation. It determines the number of completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    Once,
    Many,
    Injected,
    Claim,
}
