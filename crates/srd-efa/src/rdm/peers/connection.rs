//! A connection: everything kept about one transport peer. The messaging layer's run at its other end
//! may change; the connection stays.
//!
//! Each direction has a **session**, numbered by its sender: message ids and credit begin anew with
//! it. A sender opens one with HELLO before its first message, and another when anything of the old
//! one is in doubt. A connection and its peer's entry
//! take less than 2 KiB while nothing waits.

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
    /// What travels of the peer's Q key in its messages.
    pub check: u32,
    pub next_id: u32,
    /// Credit that was granted and that was used, since the session began.
    pub limit: u64,
    pub used: u64,
}

/// A HELLO of ours that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingHello {
    pub number: u32,
    /// The run that it is for; zero for any.
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
    /// Messages that came before their turn.
    pub early: u32,
    /// Credit: used by what has come, given back, and granted. What is given back counts from what
    /// earlier sessions left with us, beyond one window: it is below zero at first.
    pub charged: u64,
    pub consumed: i64,
    pub granted: u64,
    /// Bytes kept of what came before its turn, with what keeping costs.
    pub ahead_bytes: u32,
    /// A grant is to be sent.
    pub credit_due: bool,
}

impl Incoming {
    /// What may be granted now, with a window of so many bytes.
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
    /// What waits to be sent: messages and atomic operations in their order, and reads and
    /// writes, which have none.
    pub messages: VecDeque<Key>,
    pub rmas: VecDeque<Key>,
    /// What waits for the end of what it must not overtake, and how many of each family were let
    /// through and have not ended.
    pub ordered: VecDeque<Key>,
    pub unfinished: [u32; FAMILIES],
    /// Frames of our own, which go first.
    pub control: VecDeque<Key>,
    /// Datagrams of messages that have not been settled.
    pub in_flight: u32,
    /// Messages that the peer did not know what to do with: they go again in a new session.
    pub refused: Vec<Key>,
    /// Whether it still is the same run is to be found out.
    pub in_doubt: bool,
    /// The transport is full, and will say when it is not.
    pub blocked: bool,
    /// Whether it stands in line to be looked after.
    pub ready: bool,
    /// A message was handed over since the application last looked, and others wait to join.
    pub bursting: bool,
    pub coalescing: bool,
    /// Its numbers: each of an entry whose peer it is. At most one was not named by the
    /// application; whether any was.
    pub entries: Vec<u32>,
    pub named: bool,
    /// Whether it stands among the strangers that are looked at.
    pub watched: bool,
    /// Long messages of which more is to be asked for; requests under way; whether it stands in
    /// line for more.
    pub reads: VecDeque<Key>,
    pub reads_active: u32,
    pub reads_listed: bool,
    /// What a datagram carries.
    pub payload_bytes_max: usize,
    pub incoming: Option<Incoming>,
    /// Credit that is taken by messages which nobody has asked for, of all sessions.
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

    /// Whether what is meant for a run may be sent.
    pub(crate) fn is_open_for(&self, aim: u64) -> bool {
        self.session.is_some() && !self.in_doubt && (aim == 0 || aim == self.remote)
    }
}

/// A peer's greeting.
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
    /// The run that is meant; zero for whoever is there.
    pub incarnation: u64,
    /// How often it was added.
    pub references: u32,
    /// The transport's number of it; none for ourselves.
    pub conn: Option<u32>,
}

/// What a frame of our own is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ControlKind {
    /// Opens a session.
    Hello,
    /// Anything that may be said twice.
    Reply,
}

/// A frame of our own, until it was settled.
#[derive(Debug)]
pub(crate) struct Control {
    pub conn: u32,
    pub kind: ControlKind,
    pub check: u32,
    pub bytes: Bytes,
    /// How often it was lost with a context.
    pub tries: u8,
}
