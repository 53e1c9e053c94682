//! The device's state: every object and every table. The other modules contain the operations on
//! them, each in a separate `impl Device`.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use hashbrown::HashMap;
use srd_proto::{Endpoint, Instant, PeerId, Qpn};

use crate::config::Config;
use crate::counters::Counters;
use crate::cq::{Completion, CompletionQueue};
use crate::device::operation::Op;
use crate::device::outbox::Outbox;
use crate::handle::{Cq, Pd};
use crate::hash::Keyed;
use crate::mr::{MemoryLocation, Purpose, Range, Regions};
use crate::qp::{QpState, QueuePair};
use crate::slots::{Key, Slots};

#[derive(Debug)]
pub(super) struct AhEntry {
    pub(super) pd: Key,
    pub(super) peer: PeerId,
}

/// A notice that a peer's transfer has ended on this device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    /// Peer of the transfer.
    pub peer: PeerId,
    /// Whether the transfer was a read by the peer. Otherwise it was a write by the peer, without
    /// immediate data.
    pub read: bool,
    /// Length of the transfer in bytes.
    pub length: u32,
    /// Local key of the registration that the peer read or wrote.
    pub lkey: u32,
    /// Whether all bytes were transferred.
    pub whole: bool,
    /// Whether the peer declared this transfer as part of a larger operation, and not as its last
    /// part.
    pub part: bool,
}

/// A peer's write of several datagrams, some of which have not arrived.
#[derive(Debug)]
pub(super) struct WriteIn {
    pub(super) qpn: Qpn,
    pub(super) to: MemoryLocation,
    pub(super) length: u32,
    pub(super) received: u32,
    pub(super) imm: Option<u32>,
    pub(super) part: bool,
    pub(super) touched: Instant,
}

/// Identity of a peer's transfer: the peer, its queue pair, and its number of the transfer.
pub(super) type TransferId = (PeerId, Qpn, u32);

/// An EFA device. The limits in its [`Config`] bound its tables.
#[derive(Debug)]
pub struct Device {
    pub(super) config: Config,
    pub(super) pds: Slots<()>,
    pub(super) ahs: Slots<AhEntry>,
    pub(super) ah_of: HashMap<(Key, PeerId), Key, Keyed>,
    pub(super) cqs: Slots<CompletionQueue>,
    pub(super) regions: Regions,
    /// Queue pairs; the index is the number minus `qpn_first`.
    pub(super) qps: Vec<Option<Box<QueuePair>>>,
    pub(super) qpn_next: u16,
    /// Operations in progress. Bound: the requests of all send queues, and `reads_in_max`.
    pub(super) ops: Slots<Op>,
    pub(super) outbox: Outbox,
    /// Reads that this device has requested, by number.
    pub(super) reads: HashMap<u32, Key, Keyed>,
    pub(super) writes_in: HashMap<TransferId, WriteIn, Keyed>,
    /// Number of peers' reads that are being answered.
    pub(super) responding: u32,
    pub(super) transfer_next: u32,
    /// Notes about ended transfers of peers. Bound: a caller that has enabled notes takes all of
    /// them after each call.
    pub(super) notes: VecDeque<Note>,
    pub(super) counters: Counters,
}

impl Device {
    /// Makes a device without objects, to be used with one endpoint.
    pub fn new(config: Config, endpoint: &Endpoint) -> Self {
        let state = || Keyed::new(config.seed);
        Self {
            pds: Slots::default(),
            ahs: Slots::default(),
            ah_of: HashMap::with_hasher(state()),
            cqs: Slots::default(),
            regions: Regions::new(config.seed),
            qps: Vec::new(),
            qpn_next: 0,
            ops: Slots::default(),
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

    /// Returns the limits of the device.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters of the device.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes the oldest completion of a queue, in the order of completion. Requests of a send queue
    /// complete in any order.
    pub fn poll_cq(&mut self, cq: Cq) -> Option<Completion> {
        self.cqs.get_mut(cq.0)?.poll()
    }

    /// Takes the oldest note about an ended transfer of a peer. If the configuration enables notes,
    /// the caller takes all of them after every call of [`Device::admit`], [`Device::event`] and
    /// [`Device::pump`].
    pub fn note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    pub(super) fn take_note(&mut self, note: Note) {
        if self.config.notes {
            self.notes.push_back(note);
        }
    }

    /// Returns the location of a range that a peer names in a message, if the peer may use the
    /// range for this purpose.
    pub(crate) fn target(&self, pd: Pd, range: Range, purpose: Purpose) -> Option<MemoryLocation> {
        self.regions.check(pd.0, range, purpose)
    }

    /// Returns the number of deregistered memory ranges from which answers to peers' reads are
    /// still sent.
    pub(crate) fn leaving(&self) -> usize {
        self.regions.leaving()
    }

    /// Returns the state of a queue pair (`ibv_query_qp`).
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.qp(qpn).map(|qp| qp.state)
    }

    /// Returns the number of peers' writes and of peers' reads that are in progress on this device.
    pub fn transfers_in(&self) -> (usize, u32) {
        (self.writes_in.len(), self.responding)
    }

    /// Whether the transport still sends bytes of a registration, as the answer to a peer's read.
    pub(crate) fn is_lent(&self, mr: crate::mr::Mr) -> bool {
        self.regions.is_lent(mr.lkey)
    }

    /// Whether no request is outstanding, and no peer's read waits for its answer.
    pub fn is_quiet(&self) -> bool {
        self.ops.is_empty()
    }

    /// Whether the device is quiet and a completion queue is empty.
    pub(crate) fn is_idle(&self, cq: Cq) -> bool {
        self.is_quiet() && self.cqs.get(cq.0).is_none_or(CompletionQueue::is_empty)
    }

    pub(super) fn slot(&self, qpn: Qpn) -> Option<usize> {
        qpn.0.checked_sub(self.config.qpn_first).map(usize::from)
    }

    pub(super) fn qp(&self, qpn: Qpn) -> Option<&QueuePair> {
        self.qps.get(self.slot(qpn)?)?.as_deref()
    }

    pub(super) fn qp_mut(&mut self, qpn: Qpn) -> Option<&mut QueuePair> {
        let slot = self.slot(qpn)?;
        self.qps.get_mut(slot)?.as_deref_mut()
    }

    /// Returns a number for a transfer that no outstanding read of this device has.
    pub(super) fn next_transfer(&mut self) -> u32 {
        loop {
            self.transfer_next = (self.transfer_next + 1) % crate::wire::TRANSFERS;
            if !self.reads.contains_key(&self.transfer_next) {
                return self.transfer_next;
            }
        }
    }
}
