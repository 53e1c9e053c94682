//! The device: owns every object, and is what callers drive.
//!
//! | module | what |
//! |---|---|
//! | `control` | makes, modifies and destroys objects |
//! | `post` | takes work requests |
//! | `outbox` | hands their datagrams to the transport, peer by peer |
//! | `event` | what the transport says of them |
//! | `arrive` | judges datagrams of peers: messages |
//! | `rdma` | the same: reads and writes |

mod arrive;
mod control;
mod cuts;
mod event;
mod outbox;
mod post;
mod rdma;
mod sole;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::Bytes;
use hashbrown::HashMap;
use srd_proto::{Endpoint, Instant, PeerId, Qpn};

use self::cuts::Cuts;
use self::outbox::Outbox;
pub(crate) use self::sole::Sole;
use crate::config::Config;
use crate::counters::Counters;
use crate::cq::{Completion, CompletionQueue, WcOpcode, WcStatus};
use crate::hash::Keyed;
use crate::mr::{Place, Purpose, Range, Regions};
use crate::qp::{QpState, QueuePair};
use crate::slab::{Key, Slab};
use crate::wr::Remote;

/// What our datagrams are completed under, in the upper byte.
const TAG: u8 = 0xef;

/// A protection domain: what belongs together may work together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Pd(pub(crate) Key);

/// An address handle: a peer, for the queue pairs of one protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Ah(pub(crate) Key);

/// A completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Cq(pub(crate) Key);

#[derive(Debug)]
struct AhEntry {
    pd: Key,
    peer: PeerId,
}

/// A transfer of a peer's has ended here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    /// The peer.
    pub peer: PeerId,
    /// It read; else it wrote, without immediate data.
    pub read: bool,
    /// Bytes.
    pub length: u32,
    /// The local key of the registration.
    pub lkey: u32,
    /// All of it was transferred.
    pub whole: bool,
    /// The peer said that it was part of something larger, and not the last.
    pub part: bool,
}

/// How far a write has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Nothing was sent.
    Unsent,
    /// The first datagram is on its way; the others wait for what becomes of it.
    Opening,
    /// The peer knows the transfer.
    Open,
}

/// What an operation still has to do.
#[derive(Debug)]
enum Work {
    /// A message, until it is handed over.
    Send { payload: Option<Bytes>, imm: Option<u32> },
    /// A write.
    Write { number: u32, from: Place, to: Remote, imm: Option<u32>, sent: u32, stage: Stage },
    /// A read of ours.
    Read { number: u32, to: Place, from: Remote, asked: bool, received: u32 },
    /// A peer's read that we answer.
    Respond { number: u32, from: Place, sent: u32 },
}

/// Operations that there may be, whatever the configuration says.
const OPS_MAX: u32 = crate::slab::INDEX_MASK + 1;

/// An operation that sends datagrams: a work request, or the answer to a peer's read.
#[derive(Debug)]
struct Op {
    qpn: Qpn,
    /// Its address handle, if it is a work request.
    ah: Option<Key>,
    peer: PeerId,
    remote_qpn: Qpn,
    /// What travels of the remote Q key.
    check: u32,
    wr_id: u64,
    opcode: WcOpcode,
    length: u32,
    /// Whether it is part of something larger, and not its last.
    part: bool,
    /// Datagrams handed over and not settled.
    in_flight: u32,
    status: WcStatus,
    /// Whether it stands in its peer's queue.
    listed: bool,
    cuts: Cuts,
    work: Work,
}

/// A peer's write of several datagrams.
#[derive(Debug)]
struct WriteIn {
    qpn: Qpn,
    to: Place,
    length: u32,
    received: u32,
    imm: Option<u32>,
    part: bool,
    touched: Instant,
}

/// A transfer of a peer's: its queue pair and its number for it.
type TransferId = (PeerId, Qpn, u32);

/// EFA's device. Bounds: those of its [`Config`].
#[derive(Debug)]
pub struct Device {
    config: Config,
    pds: Slab<()>,
    ahs: Slab<AhEntry>,
    ah_of: HashMap<(Key, PeerId), Key, Keyed>,
    cqs: Slab<CompletionQueue>,
    regions: Regions,
    /// By number, less `qpn_first`.
    qps: Vec<Option<Box<QueuePair>>>,
    qpn_next: u16,
    /// Bound: the send queues' requests, and `reads_in_max`.
    ops: Slab<Op>,
    outbox: Outbox,
    /// Reads of ours by number.
    reads: HashMap<u32, Key, Keyed>,
    writes_in: HashMap<TransferId, WriteIn, Keyed>,
    /// Peers' reads that are being answered.
    responding: u32,
    transfer_next: u32,
    /// Ends of peers' transfers. Bound: whoever asks for notes takes them as they come.
    notes: VecDeque<Note>,
    counters: Counters,
}

impl Device {
    /// A device without objects, to be used with one endpoint.
    pub fn new(config: Config, endpoint: &Endpoint) -> Self {
        let state = || Keyed::new(config.seed);
        Self {
            pds: Slab::default(),
            ahs: Slab::default(),
            ah_of: HashMap::with_hasher(state()),
            cqs: Slab::default(),
            regions: Regions::new(config.seed),
            qps: Vec::new(),
            qpn_next: 0,
            ops: Slab::default(),
            outbox: Outbox::new(endpoint.payload_bytes_max(), config.seed),
            reads: HashMap::with_hasher(state()),
            writes_in: HashMap::with_hasher(state()),
            responding: 0,
            transfer_next: 0,
            notes: VecDeque::new(),
            counters: Counters::default(),
            config,
        }
    }

    /// The limits.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The oldest completion of a queue, in the order in which they came about. Requests of a
    /// send queue complete in any order.
    pub fn poll_cq(&mut self, cq: Cq) -> Option<Completion> {
        self.cqs.at_mut(cq.0)?.poll()
    }

    /// The oldest note of a peer's transfer that has ended, if the configuration asks for notes:
    /// to be taken after every call of [`Device::judge`], [`Device::event`] and [`Device::pump`].
    pub fn note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    fn take_note(&mut self, note: Note) {
        if self.config.notes {
            self.notes.push_back(note);
        }
    }

    /// Where a range of a peer's lies, if it may be used so: for requests that come as messages.
    pub(crate) fn target(&self, pd: Pd, range: Range, purpose: Purpose) -> Option<Place> {
        self.regions.check(pd.0, range, purpose)
    }

    /// Registrations that are gone, and that answers to peers' reads are still sent from.
    pub(crate) fn leaving(&self) -> usize {
        self.regions.leaving()
    }

    /// A queue pair's state (`ibv_query_qp`).
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.qp(qpn).map(|qp| qp.state)
    }

    /// Peers' transfers that are under way here: writes and reads.
    pub fn transfers_in(&self) -> (usize, u32) {
        (self.writes_in.len(), self.responding)
    }

    /// Whether the transport still has pieces of a registration to send: a peer's read is being
    /// answered from it.
    pub(crate) fn is_lent(&self, mr: crate::mr::Mr) -> bool {
        self.regions.is_lent(mr.lkey)
    }

    /// Whether no request waits for its end, and no peer's read for its answer.
    pub fn is_quiet(&self) -> bool {
        self.ops.len() == 0
    }

    fn slot(&self, qpn: Qpn) -> Option<usize> {
        qpn.0.checked_sub(self.config.qpn_first).map(usize::from)
    }

    fn qp(&self, qpn: Qpn) -> Option<&QueuePair> {
        self.qps.get(self.slot(qpn)?)?.as_deref()
    }

    fn qp_mut(&mut self, qpn: Qpn) -> Option<&mut QueuePair> {
        let slot = self.slot(qpn)?;
        self.qps.get_mut(slot)?.as_deref_mut()
    }

    /// A number for a transfer: none that a read of ours still waits under.
    fn next_transfer(&mut self) -> u32 {
        loop {
            self.transfer_next = (self.transfer_next + 1) % crate::wire::TRANSFERS;
            if !self.reads.contains_key(&self.transfer_next) {
                return self.transfer_next;
            }
        }
    }
}
