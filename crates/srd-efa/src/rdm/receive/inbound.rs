//! Messages on their way in: what is known of them, where their bytes are, and the receives that
//! they go into.

use alloc::boxed::Box;
use alloc::vec::Vec;

use srd_proto::PeerId;

use crate::layer::completion::Outcome;
use crate::memory::Memory;
use crate::rdm::iovec::{IOV_COUNT_MAX, IoVec};
use crate::rdm::receive::matching::{Envelope, MessageKey};
use crate::rdm::wire::frame::LongIov;
use crate::slots::Key;
use crate::wr::Remote;

/// Reason why a frame is refused (U2, U4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The frame is one that no correct sender writes.
    Malformed,
    /// The frame is for another run of this endpoint, or its session is not open.
    Stale,
    /// There is no room now.
    Rnr,
    /// The peer has no right to this access.
    BadAddress,
}

/// Description of a message, without its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageInfo {
    /// The peer that it came from; none for ourselves.
    pub peer: Option<PeerId>,
    /// The run that sent it.
    pub run: u64,
    /// Bytes that the message took of its sender's credit (G4).
    pub charge: u64,
    pub source: u32,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    /// The sender waits for a RECEIPT with this token (G8).
    pub token: Option<u64>,
    pub length: u64,
}

impl MessageInfo {
    pub(crate) fn envelope(&self) -> Envelope {
        Envelope { tag: self.tag.unwrap_or(0), source: self.source }
    }

    /// The charge of a message that travels in its sender's credit, which has fewer bits.
    pub(crate) fn charge_u32(&self) -> u32 {
        u32::try_from(self.charge).unwrap_or(u32::MAX)
    }
}

/// Location of the bytes of an unexpected message.
#[derive(Debug)]
pub(crate) enum Body {
    /// All are here.
    Whole(Box<[u8]>),
    /// Some are here: in the partial message of this id.
    Parts(u32),
    /// All bytes are at the sender.
    Long(Box<LongIn>),
    /// In the buffer of an operation of ours, whose peer is this endpoint.
    Loopback(Key),
    /// Nowhere: its sender was lost before all of it had come, and the application has claimed it.
    Lost(Outcome),
}

/// A message for which there was no receive.
#[derive(Debug)]
pub(crate) struct UnexpectedMessage {
    pub info: MessageInfo,
    pub body: Body,
}

/// A receive that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub iov: IoVec,
    pub context: u64,
    pub signaled: bool,
    pub multi: Option<Key>,
}

/// A receive for many messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multi {
    pub size: u64,
    pub used: u64,
    /// The receive takes no more messages when less than this is left (G7).
    pub min: u64,
    /// Messages that are still landing.
    pub landing: u32,
    /// Whether the receive takes no more messages.
    pub closed: bool,
}

/// A message on its way into a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing {
    pub info: MessageInfo,
    pub context: u64,
    pub signaled: bool,
    pub iov: IoVec,
    /// Offset of the message in the pieces, and number of its bytes that fit.
    pub offset: u64,
    pub room: u64,
    pub multi: Option<Key>,
}

impl Landing {
    /// Places bytes of the message, as far as there is room.
    pub(crate) fn write(&self, memory: &mut dyn Memory, at: u64, bytes: &[u8]) {
        let room = usize::try_from(self.room.saturating_sub(at)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        if !bytes.is_empty() {
            self.iov.write(memory, self.offset + at, bytes);
        }
    }
}

/// Destination of the parts of a message.
#[derive(Debug)]
pub(crate) enum Destination {
    /// Its header has not had its turn: they wait, each with its offset.
    Unknown(Vec<(u16, Box<[u8]>)>),
    /// A buffer of ours, until a receive matches the message.
    Buffer { buffer: Vec<u8>, kept: MessageKey, tagged: bool },
    /// Into a receive.
    Landing(Box<Landing>),
    /// The message was discarded.
    Nowhere(Box<MessageInfo>),
}

/// A message that is not complete, or came early.
#[derive(Debug)]
pub(crate) struct Partial {
    /// Its frame, if it came early.
    pub early: Option<Box<[u8]>>,
    /// Bytes that have come, and of the whole; zero if that is not known.
    pub got: u64,
    pub length: u64,
    pub place: Destination,
}

impl Partial {
    pub(crate) fn new(place: Destination) -> Self {
        Self { early: None, got: 0, length: 0, place }
    }

    /// A partial message of which nothing has come.
    #[cfg(test)]
    pub(crate) fn nothing() -> Self {
        Self::new(Destination::Unknown(Vec::new()))
    }
}

impl Partial {
    /// Places a part; false if it reaches beyond the message, or more comes than it has.
    pub(crate) fn put(&mut self, offset: u64, bytes: &[u8], memory: &mut dyn Memory) -> bool {
        let count = bytes.len() as u64;
        if offset + count > self.length || self.got + count > self.length {
            return false;
        }
        self.got += count;
        match &mut self.place {
            Destination::Buffer { buffer, .. } => {
                let at = usize::try_from(offset).unwrap_or(usize::MAX);
                if let Some(to) = buffer.get_mut(at..at + bytes.len()) {
                    to.copy_from_slice(bytes);
                }
            }
            Destination::Landing(landing) => landing.write(memory, offset, bytes),
            Destination::Unknown(_) | Destination::Nowhere(_) => {}
        }
        true
    }
}

/// Location of a long message at its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongIn {
    /// The sender's run.
    pub run: u64,
    pub iov: [LongIov; IOV_COUNT_MAX],
}

/// A long message that is being read.
#[derive(Debug)]
pub(crate) struct Reading {
    pub landing: Landing,
    /// Its sender, in the transport.
    pub peer: PeerId,
    pub from: LongIn,
    /// Bytes requested so far.
    pub asked: u64,
    /// Requests that have not completed.
    pub requests: u32,
    pub failure: Option<Outcome>,
}

impl LongIn {
    pub(crate) fn of(run: u64, from: &[LongIov]) -> Self {
        let mut iov = [LongIov::default(); IOV_COUNT_MAX];
        for (to, from) in iov.iter_mut().zip(from) {
            *to = *from;
        }
        Self { run, iov }
    }

    /// The piece that holds the byte at `offset`: its key, the byte's place in it, and how many
    /// bytes follow there, at most `most`.
    pub(crate) fn run_at(&self, mut offset: u64, most: u64) -> Option<(Remote, u64)> {
        for piece in &self.iov {
            if offset < piece.length {
                let remote = Remote { addr: offset, rkey: piece.rkey };
                return Some((remote, (piece.length - offset).min(most)));
            }
            offset -= piece.length;
        }
        None
    }
}
