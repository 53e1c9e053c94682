//! A connection: the state of one transport peer. The run of the messaging layer at the other end
//! may change; the connection stays.
//!
//! Each direction has a **session**, numbered by its sender: message ids and credit start again
//! with each session. A sender opens a session with HELLO before its first message, and a new
//! session when a message of the old session may be lost. A connection and its peer's entry take
//! less than 2 KiB while nothing waits.

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
    /// Value that the session's messages carry, to be checked on arrival (U3).
    pub check: u32,
    pub next_id: u32,
    /// Credit limit: bytes of credit that the peer has granted since the start of the session (G4).
    pub limit: u64,
    /// Bytes of credit that were used since the start of the session (G4).
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
    /// Run of the peer that the session belongs to.
    pub run: u64,
    /// Number of the session, which the peer has chosen. The peer may choose the number of an
    /// earlier session again.
    pub number: u32,
    /// Number of the session among all sessions that peers have opened at this endpoint.
    pub serial: u32,
    pub check: u32,
    /// Id of the message that is next in order.
    pub expected: u32,
    /// Number of messages that arrived before a message with a lower id.
    pub early: u32,
    /// Credit limit that the peer was granted (G5).
    pub granted: u64,
    /// Bytes of the granted credit that no message has used yet (G5).
    pub unused: u32,
    /// Bytes of credit that the peer holds: the unused ones, and those of stored messages of this
    /// session, whether unexpected or early (G5).
    pub held: u32,
    /// Bytes that are missing in the grant, because messages of earlier sessions are still stored
    /// and exceed one window (G5).
    pub owed: u32,
    /// Buffered bytes of messages and parts that arrived early, with the overhead of each.
    pub ahead_bytes: u32,
    /// Whether CREDIT with a new grant must be sent.
    pub credit_due: bool,
}

impl Incoming {
    /// Returns by how many bytes the credit limit may rise now (G5). `most`: credit that the peer
    /// may hold if no message of an earlier session is stored.
    pub(crate) fn raise(&self, most: u32) -> u32 {
        most.saturating_sub(self.owed).saturating_sub(self.held)
    }

    /// Whether a new grant is due: the peer holds at most half of the credit that it may hold (G5).
    /// `most` is as in [`Self::raise`].
    pub(crate) fn is_due(&self, most: u32) -> bool {
        self.raise(most) > 0 && self.held <= most.saturating_sub(self.owed) / 2
    }

    /// Returns the largest number of buffered bytes of early messages and parts, with the overhead
    /// of each (G5). The overhead of a part is at most half of its bytes, so the early frames of a
    /// peer that respects its credit need no more. Large atomic operations may need more: they use
    /// little credit.
    pub(crate) fn ahead_bytes_max(&self) -> usize {
        self.held as usize + self.held as usize / 2
    }
}

/// State of one transport peer.
#[derive(Debug)]
pub(crate) struct Connection {
    pub id: PeerId,
    pub ah: Ah,
    pub address: SocketAddr,
    /// Run at the other end; zero if the run is unknown.
    pub remote: u64,
    /// Number of the peer for the application, in messages that the peer's current run sends;
    /// `None` if the run is unknown.
    pub source: Option<u32>,
    pub session: Option<Session>,
    pub hello: Option<PendingHello>,
    /// Messages and atomic operations that wait to be sent in order (G1).
    pub messages: VecDeque<Key>,
    /// Reads and writes that wait to be sent in any order (A1).
    pub rmas: VecDeque<Key>,
    /// Operations that must not overtake earlier operations, and wait for the end of these (A6).
    pub ordered: VecDeque<Key>,
    /// Number of operations of each family that later operations may have to wait for (A6).
    pub unfinished: [u32; FAMILIES],
    /// Control frames that wait to be sent. They are sent before messages, reads and writes.
    pub control: VecDeque<Key>,
    /// Number of datagrams of messages that are not settled.
    pub in_flight: u32,
    /// Messages that the peer refused because it has no such session: they are sent again in a new
    /// session (H4).
    pub refused: Vec<Key>,
    /// Whether the peer may have restarted; a HELLO clarifies this (H5).
    pub in_doubt: bool,
    /// Whether the transport is full; an event follows when the transport has space.
    pub blocked: bool,
    /// Whether the connection is in the list of connections with work.
    pub ready: bool,
    /// Whether a message was handed over since the application last polled. If so, further messages
    /// wait for others.
    pub bursting: bool,
    /// Whether messages wait for further messages, with which they leave together.
    pub coalescing: bool,
    /// Bytes of the messages that wait for further messages.
    pub waiting_bytes: u32,
    /// Numbers of the connection's entries. At most one is the number of an entry that the
    /// application has not added (H7).
    pub entries: Vec<u32>,
    /// Whether the application has added any of the entries.
    pub named: bool,
    /// Whether the connection is in the list of strangers.
    pub watched: bool,
    /// Long messages of the peer with further bytes to read.
    pub reads: VecDeque<Key>,
    /// Number of read requests of long messages in progress.
    pub reads_active: u32,
    /// Whether the connection is in the list of connections that wait for a turn to read.
    pub reads_listed: bool,
    /// Payload bytes of a datagram to the peer.
    pub payload_bytes_max: usize,
    pub incoming: Option<Incoming>,
    /// Credit that stored messages of the peer's earlier sessions use.
    pub former_charge: u32,
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
            waiting_bytes: 0,
            entries: Vec::new(),
            named: false,
            watched: false,
            reads: VecDeque::new(),
            reads_active: 0,
            reads_listed: false,
            payload_bytes_max,
            incoming: None,
            former_charge: 0,
        }
    }

    /// Returns the session of this endpoint, if it has this number.
    pub(crate) fn session_numbered(&mut self, number: u32) -> Option<&mut Session> {
        self.session.as_mut().filter(|session| session.number == number)
    }

    /// Whether operations for the run `aim` may be sent; zero stands for any run.
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

/// A peer, to which the application refers by a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub address: SocketAddr,
    /// Run that the application has requested; zero for any run.
    pub incarnation: u64,
    /// Number of times that the application has added the peer.
    pub references: u32,
    /// Index of the peer's connection; `None` for this endpoint itself.
    pub conn: Option<u32>,
    /// Whether the number is in the list of numbers that are freed later (`Rdm::removed`).
    pub listed: bool,
}

/// Purpose of a control frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlKind {
    /// Opens a session (HELLO).
    Hello,
    /// ANSWER, CREDIT, RECEIPT or RESULT; may be repeated (H5).
    Reply,
    /// A frame without effect that the peer's transport has to acknowledge (H8).
    Probe,
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
