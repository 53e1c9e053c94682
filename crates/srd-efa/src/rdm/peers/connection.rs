//! A connection: the state of one transport peer. The run of the messaging layer at the other end
//! may change; the connection stays.
//!
//! Each direction has a **session**, numbered by its sender: message ids and credit start again
//! with each session. A sender opens a session with HELLO before its first message, and a new
//! session when a message of the old one may be lost. A connection and its peer's entry take less
//! than 2 KiB while nothing waits.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use bytes::Bytes;
use srd_proto::PeerId;

use crate::handle::Ah;
use crate::layer::request::FAMILIES;
use crate::slots::Key;

/// A session that this endpoint has opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    pub number: u32,
    /// Check that the session's messages carry (U3).
    pub check: u32,
    pub next_id: u32,
    /// Credit (G4) since the start of the session: granted, and used.
    pub limit: u64,
    pub used: u64,
}

/// A HELLO of this endpoint that has no answer yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingHello {
    pub number: u32,
    /// Run that the HELLO is for (H2); zero for any run.
    pub aim: u64,
}

/// A session that the peer has opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    /// Run of the peer that the session belongs to, and the session's number there.
    pub run: u64,
    pub number: u32,
    pub check: u32,
    /// Id of the message that is next in order.
    pub expected: u32,
    /// Number of messages that arrived before a message with a lower id.
    pub early: u32,
    /// Credit (G5): used by received messages, given back, and granted. If unexpected messages of
    /// earlier sessions exceed one window, `consumed` starts below zero by the excess.
    pub charged: u64,
    pub consumed: i64,
    pub granted: u64,
    /// Buffered bytes of messages and parts that arrived early, with their overhead.
    pub ahead_bytes: u32,
    /// Whether a grant must be sent.
    pub credit_due: bool,
}

impl Incoming {
    /// Returns the credit limit that may be granted now, with a window of `window` bytes.
    pub(crate) fn limit(&self, window: u64) -> u64 {
        u64::try_from(self.consumed.saturating_add_unsigned(window)).unwrap_or(0)
    }
}

/// State of one transport peer.
#[derive(Debug)]
pub(crate) struct Connection {
    pub id: PeerId,
    pub ah: Ah,
    pub address: SocketAddr,
    /// Run at the other end; zero if it is unknown.
    pub remote: u64,
    /// Number of the peer, for messages that its current run sends.
    pub source: Option<u32>,
    pub session: Option<Session>,
    pub hello: Option<PendingHello>,
    /// Operations that wait to be sent: messages and atomic operations in order (G1), reads and
    /// writes in any order (A1).
    pub messages: VecDeque<Key>,
    pub rmas: VecDeque<Key>,
    /// Operations that must not overtake earlier ones (A6), and the number of operations of each
    /// family in progress.
    pub ordered: VecDeque<Key>,
    pub unfinished: [u32; FAMILIES],
    /// Control frames that wait to be sent; they go first.
    pub control: VecDeque<Key>,
    /// Number of datagrams of messages that are not settled.
    pub in_flight: u32,
    /// Messages that the peer refused because it has no such session: they are sent again in a new
    /// session (H4).
    pub refused: Vec<Key>,
    /// Whether the peer may have restarted; a HELLO clarifies this (H5).
    pub in_doubt: bool,
    /// Whether the transport is full; an event follows when it has space.
    pub blocked: bool,
    /// Whether the connection is in the list of connections with work.
    pub ready: bool,
    /// Whether a message was handed over since the application last polled; if so, further messages
    /// wait for a batch.
    pub bursting: bool,
    pub coalescing: bool,
    /// Numbers of the connection's entries, at most one of which the application has not added
    /// (H7), and whether the application has added any.
    pub entries: Vec<u32>,
    pub named: bool,
    /// Whether the connection is in the list of strangers.
    pub watched: bool,
    /// Long messages with further bytes to read, read requests in progress, and whether the
    /// connection waits for a turn.
    pub reads: VecDeque<Key>,
    pub reads_active: u32,
    pub reads_listed: bool,
    /// Payload bytes of a datagram to the peer.
    pub payload_bytes_max: usize,
    pub incoming: Option<Incoming>,
    /// Credit that unexpected messages of all sessions use.
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

    /// Returns the session of this endpoint, if it has this number.
    pub(crate) fn session_numbered(&mut self, number: u32) -> Option<&mut Session> {
        self.session.as_mut().filter(|session| session.number == number)
    }

    /// Whether operations for the run `aim` may be sent.
    pub(crate) fn is_open_for(&self, aim: u64) -> bool {
        self.session.is_some() && !self.in_doubt && (aim == 0 || aim == self.remote)
    }
}

/// Content of a peer's HELLO.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hello {
    pub version: u8,
    pub session: u32,
    pub incarnation: u64,
}

/// A peer with a number for the application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub address: SocketAddr,
    /// Run that the application has requested; zero for any run.
    pub incarnation: u64,
    /// Number of times that the application has added the peer.
    pub references: u32,
    /// Index of its connection; `None` for this endpoint itself.
    pub conn: Option<u32>,
}

/// Purpose of a control frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlKind {
    /// Opens a session (HELLO).
    Hello,
    /// ANSWER, CREDIT, RECEIPT or RESULT; may be repeated (H5).
    Reply,
}

/// A control frame that is not settled.
#[derive(Debug)]
pub(crate) struct Control {
    pub conn: u32,
    pub kind: ControlKind,
    pub check: u32,
    pub bytes: Bytes,
    /// Number of times that the frame was lost together with a context of the transport.
    pub tries: u8,
}
