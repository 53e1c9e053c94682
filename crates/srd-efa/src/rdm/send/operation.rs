//! What the application asked for and has not ended: one record for each operation.
//!
//! An operation waits in its link's queue until all of it was handed to the transport, then for the
//! acknowledgements of its datagrams, then, if it is of such a kind, for the peer's word. Bound:
//! `operations_max`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::Bytes;
use srd_proto::Status;

use crate::memory::Memory;
use crate::mr::Mr;
use crate::rdm::api::{AtomicOp, Datatype, Kind, Outcome, RemotePiece, Until};
use crate::rdm::iovec::{PIECES_MAX, Pieces};
use crate::rdm::wire::Envelope;
use crate::slab::Key;

/// What our datagrams are completed under, in the upper byte.
const TAG: u8 = 0xed;
/// Most operations, whatever the configuration says: what a datagram's number has room for.
pub(crate) const OPERATIONS_MAX: u32 = crate::slab::INDEX_MASK + 1;

/// Where an operation's bytes come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The application's memory, which it leaves alone until it hears of the end.
    Pieces(Pieces),
    /// A copy.
    Owned(Bytes),
}

impl Source {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Pieces(pieces) => pieces.length(),
            Self::Owned(bytes) => bytes.len() as u64,
        }
    }

    /// A part of it, by reference if that is possible.
    #[allow(clippy::cast_possible_truncation)] // offsets of copies, which are short
    pub(crate) fn read(&self, memory: &mut dyn Memory, offset: u64, bytes: usize) -> Bytes {
        match self {
            Self::Pieces(pieces) => pieces.read(memory, offset, bytes),
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
            Self::Pieces(pieces) => pieces.append(memory, offset, bytes, into),
            Self::Owned(_) => into.extend_from_slice(&self.read(memory, offset, bytes)),
        }
    }
}

/// How far a message has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// It has no id.
    Waiting,
    /// It has one, and so many of its bytes were handed over.
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
    /// What was too large for the path, and goes again in smaller parts: from, to.
    pub again: Vec<(u64, u64)>,
    /// Keys under which the receiver may read it, if it is long.
    pub shared: Vec<Mr>,
}

/// Which atomic operation.
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
    pub result: Pieces,
    pub remote: RemotePieces,
    pub stage: Stage,
    pub id: u32,
    pub session: u32,
}

/// The peer's end of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemotePieces {
    list: [RemotePiece; PIECES_MAX],
    count: usize,
}

impl RemotePieces {
    /// `None` if there are more than [`PIECES_MAX`], or one reaches beyond the last address.
    pub(crate) fn of(pieces: &[RemotePiece]) -> Option<Self> {
        let mut list = [RemotePiece { addr: 0, length: 0, rkey: 0 }; PIECES_MAX];
        for (to, from) in list.get_mut(..pieces.len())?.iter_mut().zip(pieces) {
            from.addr.checked_add(from.length)?;
            *to = *from;
        }
        Some(Self { list, count: pieces.len() })
    }

    pub(crate) fn as_slice(&self) -> &[RemotePiece] {
        &self.list[..self.count]
    }

    pub(crate) fn length(&self) -> Option<u64> {
        self.as_slice().iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.length))
    }

    /// The piece that holds the byte at `offset`, from there on, at most `most` bytes of it.
    pub(crate) fn run_at(&self, mut offset: u64, most: u64) -> Option<RemotePiece> {
        for piece in self.as_slice() {
            if offset < piece.length {
                let length = (piece.length - offset).min(most);
                return Some(RemotePiece { addr: piece.addr + offset, length, ..*piece });
            }
            offset -= piece.length;
        }
        None
    }
}

/// A read or write under way.
#[derive(Debug)]
pub(crate) struct RmaOut {
    pub read: bool,
    pub source: Source,
    pub remote: RemotePieces,
    /// Bytes asked of the device, or handed over; and whether anything was, of no bytes too.
    pub asked: u64,
    pub begun: bool,
    /// Work requests of the device that have not completed.
    pub requests: u32,
    /// The peer was told of its data, or is being told.
    pub told: bool,
    /// A frame was too large for the path: all of it goes again.
    pub again: bool,
}

/// What is to be done.
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
    /// The peer as the application numbers it, and its link.
    pub peer: u32,
    pub link: u32,
    /// The run of the peer that is meant; zero for any.
    pub aim: u64,
    pub context: u64,
    pub until: Until,
    pub tell: bool,
    /// Its success has been told.
    pub told: bool,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub length: u64,
    /// Datagrams handed over: not settled, acknowledged, and refused as unknown to the peer.
    pub in_flight: u32,
    pub acked: u32,
    pub refused: u32,
    /// How often all of it was sent again.
    pub tries: u8,
    pub failure: Option<Outcome>,
    /// It has ended so, but for memory that the transport still sends from.
    pub leaving: Option<Outcome>,
    /// The peer's word has come: a status of its RECEIPT or RESULT.
    pub answer: Option<u8>,
    /// Whether it stands in its link's queue.
    pub queued: bool,
    /// Whether operations that must not overtake it wait for its end.
    pub counted: bool,
    pub work: Work,
}

impl Op {
    pub(crate) fn envelope(&self, id: u32, token: Option<u64>) -> Envelope {
        Envelope { id, tag: self.tag, data: self.data, token }
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

    /// Whether it ends with a word of the peer's, not with an acknowledgement.
    pub(crate) fn wants_answer(&self) -> bool {
        match &self.work {
            Work::Message(m) => self.until == Until::Delivered || !m.shared.is_empty(),
            Work::Atomic(_) => true,
            Work::Rma(_) => false,
        }
    }
}

/// What a datagram of an operation is completed under. `part`: which of them.
pub(crate) fn user_of(key: Key, part: u16) -> u64 {
    key.to_user_part(TAG, part)
}

/// Back from it: index, generation's low bits, part.
pub(crate) fn of_user(user: u64) -> Option<(u32, u32, u16)> {
    Key::of_user_part(user, TAG)
}

/// An operation's number in a frame.
pub(crate) fn token_of(key: Key) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}

/// Back from it.
#[allow(clippy::cast_possible_truncation)] // the halves of the number
pub(crate) fn of_token(token: u64) -> Key {
    Key { index: token as u32, generation: (token >> 32) as u32 }
}

/// How an operation ends whose datagram ended with a status.
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
