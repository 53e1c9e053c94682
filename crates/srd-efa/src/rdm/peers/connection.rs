//! A connection: everything kept about one transport peer. The messaging layer's run at its other
//! end may change; the connection stays.
//!
//! Each direction has a **session**, numbered by its sender: message ids and credit begin anew with
//! it. A sender opens one with HELLO before its first message, and another when anything of the old
//! one is in doubt. A connection and its peer's entry take less than 2 KiB while nothing waits.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use bytes::Bytes;
use srd_proto::PeerId;

use crate::handle::Ah;
use crate::layer::request::FAMILIES;
use crate::slots::Key;

/// A session of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub number: u32,
    /// The check that its messages carry (U3).
    pub check: u32,
    pub next_id: u32,
    /// Credit (G4): granted, and used, since the session began.
    pub limit: u64,
    pub used: u64,
}

/// A HELLO of ours that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingHello {
    pub number: u32,
    /// The run that it is for (H2); zero for any.
    pub aim: u64,
}

/// A session of the peer's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    /// The run of the peer that it belongs to, and its number there.
    pub run: u64,
    pub number: u32,
    pub check: u32,
    /// The id of the message that is next in order.
    pub expected: u32,
    /// Messages that came early: before one with a lower id.
    pub early: u32,
    /// Credit (G5): used by what has come, given back, and granted. `consumed` begins below zero by
    /// what earlier sessions left unmatched beyond one window.
    pub charged: u64,
    pub consumed: i64,
    pub granted: u64,
    /// Bytes buffered of messages and parts that came early, with their overhead.
    pub ahead_bytes: u32,
    /// A grant is to be sent.
    pub credit_due: bool,
}

impl Incoming {
    /// The credit limit that may be granted now, with a window of `window` bytes.
    pub(crate) fn limit(&self, window: u64) -> u64 {
        u64::try_from(self.consumed.saturating_add_unsigned(window)).unwrap_or(0)
    }
}

/// One transport peer.
#[derive(Debug)]
pub(crate) struct Connection {
    pub id: PeerId,
    pub ah: Ah,
    pub address: SocketAddr,
    /// The run at the other end as far as it is known; zero: not at all.
    pub remote: u64,
    /// The peer as the application numbers it, for what this run sends.
    pub source: Option<u32>,
    pub session: Option<Session>,
    pub hello: Option<PendingHello>,
    /// Operations to be sent: messages and atomic operations in their order (G1), reads and
    /// writes in any order (A1).
    pub messages: VecDeque<Key>,
    pub rmas: VecDeque<Key>,
    /// Operations that must not overtake earlier ones (A6), and how many of each family are under
    /// way.
    pub ordered: VecDeque<Key>,
    pub unfinished: [u32; FAMILIES],
    /// Control frames, which go first.
    pub control: VecDeque<Key>,
    /// Datagrams of messages that have not been settled.
    pub in_flight: u32,
    /// Messages that the peer refused as of an unknown session: they go again in a new one (H4).
    pub refused: Vec<Key>,
    /// The peer may have restarted: a HELLO finds out (H5).
    pub in_doubt: bool,
    /// The transport is full; an event follows when it has space.
    pub blocked: bool,
    /// Whether it is in the list of connections with work.
    pub ready: bool,
    /// A message was handed over since the application last polled; others wait for a batch.
    pub bursting: bool,
    pub coalescing: bool,
    /// The numbers of its entries, at most one of which the application has not named (H7); whether
    /// it has named any.
    pub entries: Vec<u32>,
    pub named: bool,
    /// Whether it is in the list of strangers.
    pub watched: bool,
    /// Long messages to be read further; read requests under way; whether it waits for a turn.
    pub reads: VecDeque<Key>,
    pub reads_active: u32,
    pub reads_listed: bool,
    /// Payload bytes of a datagram to it.
    pub payload_bytes_max: usize,
    pub incoming: Option<Incoming>,
    /// Credit that unexpected messages of all sessions take.
    pub unexpected_charge: u32,
}

impl Connection {
    pub(crate) fn new(id: PeerId, ah: Ah, address: SocketAddr, payload_bytes_max: usize) -> Self {
        Self {
            id,
            ah,
            address,
            remote: 0,
            source: None,
            session: None,
            hello: None,
            messages: VecDeque::new(),
            rmas: VecDeque::new(),
            ordered: VecDeque::new(),
            unfinished: [0; FAMILIES],
            control: VecDeque::new(),
            in_flight: 0,
            refused: Vec::new(),
            in_doubt: false,
            blocked: false,
            ready: false,
            bursting: false,
            coalescing: false,
            entries: Vec::new(),
            named: false,
            watched: false,
            reads: VecDeque::new(),
            reads_active: 0,
            reads_listed: false,
            payload_bytes_max,
            incoming: None,
            unexpected_charge: 0,
        }
    }

    /// Our session, if it has this number.
    pub(crate) fn session_numbered(&mut self, number: u32) -> Option<&mut Session> {
        self.session.as_mut().filter(|session| session.number == number)
    }

    /// Whether operations that are meant for a run may be sent.
    pub(crate) fn is_open_for(&self, aim: u64) -> bool {
        self.session.is_some() && !self.in_doubt && (aim == 0 || aim == self.remote)
    }
}

/// A peer's HELLO.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hello {
    pub version: u8,
    pub session: u32,
    pub incarnation: u64,
}

/// A peer as the application numbers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub address: SocketAddr,
    /// The run that is meant; zero for any.
    pub incarnation: u64,
    /// Number of times that the peer was added.
    pub references: u32,
    /// Its connection; none for this endpoint itself.
    pub conn: Option<u32>,
}

/// Purpose of a control frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlKind {
    /// Opens a session.
    Hello,
    /// ANSWER, CREDIT, RECEIPT or RESULT: may be repeated (H5).
    Reply,
}

/// A control frame, until it was settled.
#[derive(Debug)]
pub(crate) struct Control {
    pub conn: u32,
    pub kind: ControlKind,
    pub check: u32,
    pub bytes: Bytes,
    /// Number of times that the frame was lost with a context of the transport.
    pub tries: u8,
}
