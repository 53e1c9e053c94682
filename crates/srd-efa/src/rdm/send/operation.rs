//! Operations of the application that have not ended, one record for each.
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
use crate::rdm::receive::matching::MessageKey;
use crate::rdm::wire::message::MessageHeader;
use crate::slots::Key;

/// Upper byte of the work-request numbers of datagrams that belong to operations.
const TAG: u8 = 0xed;
/// Upper byte of the work-request numbers of datagrams that are control frames.
pub(crate) const TAG_CONTROL: u8 = 0xec;
/// Upper byte of the work-request numbers of datagrams that are batches of small messages.
pub(crate) const TAG_BATCH: u8 = 0xee;

/// Upper byte of the numbers of work requests that read long messages.
pub(crate) const TAG_LONG: u8 = 1;

/// Upper byte of the numbers of work requests that belong to reads and writes of the application.
pub(crate) const TAG_RMA: u8 = 2;

/// Largest number of retries of a message whose session the peer has lost (H4).
pub(crate) const TRIES_MAX: u8 = 8;

/// Result of an attempt to continue an operation.
pub(crate) enum Step {
    /// Nothing of the operation is left to hand over.
    Over,
    /// The operation has to wait: for a session, for credit, or for space in the transport.
    Wait,
}

/// Result of an attempt to hand a datagram to the transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handed {
    Yes,
    /// The transport is full; an event follows when the transport has space.
    Full,
    /// The transport will never accept the datagram: it is too large, or the peer was removed.
    Never,
}

/// Content of a datagram that is encoded as the verbs' SEND.
pub(crate) struct Out {
    pub check: u32,
    pub imm: Option<u32>,
    pub payload: Bytes,
    pub user: u64,
}

/// Messages of a BATCH that was handed over and is not settled.
#[derive(Debug)]
pub(crate) struct BatchInFlight(pub Vec<Key>);

/// Source of an operation's bytes.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Memory of the application, which must not change it until the operation ends.
    IoVec(IoVec),
    /// A copy, which was made when the operation was posted.
    Owned(Bytes),
}

impl Source {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::IoVec(iov) => iov.length(),
            Self::Owned(bytes) => bytes.len() as u64,
        }
    }

    /// Returns a range of the bytes, without a copy if possible.
    #[allow(clippy::cast_possible_truncation)] // offsets of copies, which are short
    pub(crate) fn read(&self, memory: &mut dyn Memory, offset: u64, bytes: usize) -> Bytes {
        match self {
            Self::IoVec(iov) => iov.read(memory, offset, bytes),
            Self::Owned(all) => all.slice(offset as usize..offset as usize + bytes),
        }
    }

    /// Appends a copy of a range of the bytes to `into`.
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
    /// The whole message was handed over.
    Sent,
    /// The message is for this endpoint itself, and is stored until a receive matches it (G9).
    Stored(MessageKey),
}

/// Progress and source of a message that is being sent.
#[derive(Debug)]
pub(crate) struct MessageOut {
    pub source: Source,
    pub stage: Stage,
    pub id: u32,
    /// Number of the session that the id belongs to.
    pub session: u32,
    /// Bytes of the message in its first datagram, behind the header.
    pub first_bytes: u64,
    /// Largest number of bytes in each of the following datagrams.
    pub part_bytes: u64,
    /// Ranges that were too large for the path, and are sent again in smaller parts: start and end.
    pub again: Vec<(u64, u64)>,
    /// Registrations with which the receiver may read the message, if it is long.
    pub shared: Vec<Mr>,
}

/// Kind of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AtomicKind {
    pub op: AtomicOp,
    pub datatype: Datatype,
    /// 0: changes only; 1: changes and fetches; 2: changes under a condition, and fetches.
    pub form: u8,
}

/// An atomic operation in progress.
#[derive(Debug)]
pub(crate) struct AtomicOut {
    pub kind: AtomicKind,
    /// Operands of the operation, followed by its comparands.
    pub operands: Bytes,
    pub result: IoVec,
    pub remote: RmaIoVec,
    pub stage: Stage,
    pub id: u32,
    pub session: u32,
}

/// A read or write in progress.
#[derive(Debug)]
pub(crate) struct RmaOut {
    pub read: bool,
    pub source: Source,
    pub remote: RmaIoVec,
    /// Bytes that were handed over, or requested from the device.
    pub asked: u64,
    /// Whether any frame or request was handed over; an operation of zero bytes needs a frame or
    /// request, too.
    pub begun: bool,
    /// Number of the device's work requests that have not completed.
    pub requests: u32,
    /// Whether the peer has the data of the write, or the data is in flight.
    pub notified: bool,
    /// Whether a frame was too large for the path, so that all of the operation is sent again.
    pub again: bool,
}

/// Kind of an operation, with its progress.
#[derive(Debug)]
pub(crate) enum Work {
    Message(MessageOut),
    Atomic(Box<AtomicOut>),
    Rma(Box<RmaOut>),
}

/// An operation of the application that has not ended.
#[derive(Debug)]
pub(crate) struct Op {
    pub kind: Kind,
    /// Number of the peer for the application.
    pub peer: u32,
    /// Index of the peer's connection; `u32::MAX` if the peer is this endpoint.
    pub conn: u32,
    /// Run of the peer that the operation is for (H2); zero for any run.
    pub aim: u64,
    pub context: u64,
    pub until: Until,
    pub signaled: bool,
    /// Whether the success of an injected operation was reported already.
    pub reported: bool,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub length: u64,
    /// Number of datagrams that were handed over and are not settled.
    pub in_flight: u32,
    /// Number of datagrams that were acknowledged.
    pub acked: u32,
    /// Number of datagrams that were refused because the peer has no such session or run.
    pub refused: u32,
    /// Number of times that all of the operation was sent again.
    pub tries: u8,
    pub failure: Option<Outcome>,
    /// Outcome of an operation that has ended, while the transport still sends from its memory
    /// (G3).
    pub leaving: Option<Outcome>,
    /// Status in the peer's RECEIPT or RESULT; `None` until it has arrived.
    pub answer: Option<u8>,
    /// Whether the operation is in its connection's queue.
    pub queued: bool,
    /// Whether the operation is counted in `Connection::unfinished`, the operations that later
    /// operations may have to wait for.
    pub counted: bool,
    pub work: Work,
}

impl Op {
    pub(crate) fn header(&self, id: u32, token: Option<u64>) -> MessageHeader {
        MessageHeader { id, tag: self.tag, data: self.data, token }
    }

    /// Returns the stage, the id and the session of a message or atomic operation.
    pub(crate) fn stage_mut(&mut self) -> Option<(&mut Stage, &mut u32, &mut u32)> {
        match &mut self.work {
            Work::Message(m) => Some((&mut m.stage, &mut m.id, &mut m.session)),
            Work::Atomic(a) => Some((&mut a.stage, &mut a.id, &mut a.session)),
            Work::Rma(_) => None,
        }
    }

    /// Whether a message or atomic operation was handed over completely.
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

    /// Whether the operation ends with a RECEIPT or RESULT, not with an acknowledgement.
    pub(crate) fn wants_answer(&self) -> bool {
        match &self.work {
            Work::Message(m) => self.until == Until::Delivered || !m.shared.is_empty(),
            Work::Atomic(_) => true,
            Work::Rma(_) => false,
        }
    }
}

/// Returns the number with which an operation's datagram completes. `part`: index of the datagram.
pub(crate) fn user_of(key: Key, part: u16) -> u64 {
    key.to_user_part(TAG, part)
}

/// Splits a number that [`user_of`] returned into index, low bits of the generation, and part.
/// Returns `None` if the number has another tag.
pub(crate) fn of_user(user: u64) -> Option<(u32, u32, u16)> {
    Key::of_user_part(user, TAG)
}

/// Returns the outcome of an operation whose datagram ended with a status.
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

/// Returns the outcome of an operation whose work request ended with a status.
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
