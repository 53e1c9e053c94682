//! Operations of the application's that have not ended, one record for each.
//!
//! An operation waits in its connection's queue until all of it was handed to the transport, then
//! for the acknowledgements of its datagrams, then, if it needs one, for the peer's RECEIPT or
//! RESULT. Bound: `operations_max`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;
use srd_proto::Status;

use crate::cq::WcStatus;
use crate::layer::completion::{Kind, Outcome};
use crate::layer::request::{AtomicOp, Datatype, Until};
use crate::memory::Memory;
use crate::mr::Mr;
use crate::rdm::iovec::{IoVec, RmaIoVec};
use crate::rdm::wire::message::MessageHeader;
use crate::slots::Key;

/// The upper byte of the numbers of operations' datagrams.
const TAG: u8 = 0xed;
/// Tag in the numbers of control frames.
pub(crate) const TAG_CONTROL: u8 = 0xec;
/// Tag in the numbers of batches.
pub(crate) const TAG_BATCH: u8 = 0xee;

/// Tag in the numbers of work requests that read long messages.
pub(crate) const TAG_LONG: u8 = 1;

/// Tag in the numbers of work requests of reads and writes.
pub(crate) const TAG_RMA: u8 = 2;

/// Number of retries of a message whose session the peer has lost (H4).
pub(crate) const TRIES_MAX: u8 = 8;

/// The result of an attempt to go on with an operation.
pub(crate) enum Step {
    /// There is nothing more to hand over.
    Over,
    /// The operation has to wait.
    Wait,
}

/// The result of an attempt to hand a datagram to the transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handed {
    Yes,
    /// The transport is full; an event follows when it has space.
    Full,
    /// The transport will never take it: too large, or the peer is gone.
    Never,
}

/// A SEND.
pub(crate) struct Out {
    pub check: u32,
    pub imm: Option<u32>,
    pub payload: Bytes,
    pub user: u64,
}

/// Messages of a BATCH that was handed over, until it is settled.
#[derive(Debug)]
pub(crate) struct BatchInFlight(pub Vec<Key>);

/// Source of an operation's bytes.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The application's memory, which it leaves alone until the operation ends.
    IoVec(IoVec),
    /// A copy.
    Owned(Bytes),
}

impl Source {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::IoVec(iov) => iov.length(),
            Self::Owned(bytes) => bytes.len() as u64,
        }
    }

    /// A part of it, by reference if that is possible.
    #[allow(clippy::cast_possible_truncation)] // offsets of copies, which are short
    pub(crate) fn read(&self, memory: &mut dyn Memory, offset: u64, bytes: usize) -> Bytes {
        match self {
            Self::IoVec(iov) => iov.read(memory, offset, bytes),
            Self::Owned(all) => all.slice(offset as usize..offset as usize + bytes),
        }
    }

    /// Copies a part of it behind what stands in `into`.
    pub(crate) fn append(
        &self,
        memory: &mut dyn Memory,
        offset: u64,
        bytes: usize,
        into: &mut bytes::BytesMut,
    ) {
        match self {
            Self::IoVec(iov) => iov.append(memory, offset, bytes, into),
            Self::Owned(_) => into.extend_from_slice(&self.read(memory, offset, bytes)),
        }
    }
}

/// Progress of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The message has no id yet.
    Waiting,
    /// The message has an id, and `sent` bytes were handed over.
    Sending { sent: u64 },
    /// All of it was handed over.
    Sent,
}

/// A message under way.
#[derive(Debug)]
pub(crate) struct MessageOut {
    pub source: Source,
    pub stage: Stage,
    pub id: u32,
    /// The number of the session that the id belongs to.
    pub session: u32,
    /// Bytes in the datagram with the header, and in each of those behind it.
    pub first_bytes: u64,
    pub part_bytes: u64,
    /// Ranges that were too large for the path, and are sent again in smaller parts: from, to.
    pub again: Vec<(u64, u64)>,
    /// Keys under which the receiver may read it, if it is long.
    pub shared: Vec<Mr>,
}

/// Kind of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AtomicKind {
    pub op: AtomicOp,
    pub datatype: Datatype,
    /// 0: changes; 1: fetches as well; 2: under a condition, and fetches.
    pub form: u8,
}

/// An atomic operation under way.
#[derive(Debug)]
pub(crate) struct AtomicOut {
    pub kind: AtomicKind,
    /// Operands, then comparands.
    pub operands: Bytes,
    pub result: IoVec,
    pub remote: RmaIoVec,
    pub stage: Stage,
    pub id: u32,
    pub session: u32,
}

/// A read or write under way.
#[derive(Debug)]
pub(crate) struct RmaOut {
    pub read: bool,
    pub source: Source,
    pub remote: RmaIoVec,
    /// Bytes handed over or requested from the device; and whether anything was, since a length
    /// may be zero.
    pub asked: u64,
    pub begun: bool,
    /// Work requests of the device that have not completed.
    pub requests: u32,
    /// Its data is with the peer, or on the way there.
    pub notified: bool,
    /// A frame was too large for the path: all of it goes again.
    pub again: bool,
}

/// Work of an operation.
#[derive(Debug)]
pub(crate) enum Work {
    Message(MessageOut),
    Atomic(Box<AtomicOut>),
    Rma(Box<RmaOut>),
}

/// An operation.
#[derive(Debug)]
pub(crate) struct Op {
    pub kind: Kind,
    /// The peer as the application numbers it, and its connection.
    pub peer: u32,
    pub conn: u32,
    /// The run of the peer that is meant (H2); zero for any.
    pub aim: u64,
    pub context: u64,
    pub until: Until,
    pub signaled: bool,
    /// Its success has been reported.
    pub reported: bool,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub length: u64,
    /// Datagrams handed over: not settled, acknowledged, and refused as unknown to the peer.
    pub in_flight: u32,
    pub acked: u32,
    pub refused: u32,
    /// Number of times that all of the operation was sent again.
    pub tries: u8,
    pub failure: Option<Outcome>,
    /// Outcome of an operation that has ended although the transport still sends from its memory
    /// (G3).
    pub leaving: Option<Outcome>,
    /// The status of the peer's RECEIPT or RESULT, once it has come.
    pub answer: Option<u8>,
    /// Whether it stands in its connection's queue.
    pub queued: bool,
    /// Whether operations that must not overtake it wait for its end.
    pub counted: bool,
    pub work: Work,
}

impl Op {
    pub(crate) fn header(&self, id: u32, token: Option<u64>) -> MessageHeader {
        MessageHeader { id, tag: self.tag, data: self.data, token }
    }

    /// The id and session that it travels under, if it has them.
    pub(crate) fn stage_mut(&mut self) -> Option<(&mut Stage, &mut u32, &mut u32)> {
        match &mut self.work {
            Work::Message(m) => Some((&mut m.stage, &mut m.id, &mut m.session)),
            Work::Atomic(a) => Some((&mut a.stage, &mut a.id, &mut a.session)),
            Work::Rma(_) => None,
        }
    }

    /// Whether everything was handed over, for a message or atomic operation.
    pub(crate) fn is_sent(&self) -> bool {
        let stage = match &self.work {
            Work::Message(m) => m.stage,
            Work::Atomic(a) => a.stage,
            Work::Rma(rma) => {
                return rma.begun && rma.asked == self.length && rma.requests == 0;
            }
        };
        stage == Stage::Sent
    }

    /// Whether it ends with a RECEIPT or RESULT, not with an acknowledgement.
    pub(crate) fn wants_answer(&self) -> bool {
        match &self.work {
            Work::Message(m) => self.until == Until::Delivered || !m.shared.is_empty(),
            Work::Atomic(_) => true,
            Work::Rma(_) => false,
        }
    }
}

/// The number of a datagram of an operation. `part`: which of them.
pub(crate) fn user_of(key: Key, part: u16) -> u64 {
    key.to_user_part(TAG, part)
}

/// Back from it: index, generation's low bits, part.
pub(crate) fn of_user(user: u64) -> Option<(u32, u32, u16)> {
    Key::of_user_part(user, TAG)
}

/// The outcome of an operation whose datagram ended with a status.
pub(crate) fn outcome_of(status: Status) -> Outcome {
    match status {
        Status::Ok => Outcome::Ok,
        Status::Flushed => Outcome::Removed,
        Status::RemoteAbort | Status::BadDestQpn | Status::UnknownPeer => Outcome::Restarted,
        Status::RemoteBadAddress => Outcome::BadKey,
        Status::UnrespRemote => Outcome::Unresponsive,
        Status::UnreachRemote => Outcome::Unreachable,
        Status::LocalBadLength | Status::RemoteRnr | Status::RemoteBadLength => Outcome::Protocol,
    }
}

/// The outcome of an operation whose work request ended with a status.
pub(crate) fn outcome_of_wc(status: WcStatus) -> Outcome {
    match status {
        WcStatus::Ok => Outcome::Ok,
        WcStatus::Flushed => Outcome::Removed,
        WcStatus::RemoteBadAddress => Outcome::BadKey,
        WcStatus::RemoteAbort | WcStatus::RemoteBadDestQpn | WcStatus::RemoteUnknownPeer => {
            Outcome::Restarted
        }
        WcStatus::UnrespRemote => Outcome::Unresponsive,
        WcStatus::UnreachRemote => Outcome::Unreachable,
        _ => Outcome::Protocol,
    }
}
