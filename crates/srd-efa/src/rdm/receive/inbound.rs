//! Incoming messages: their description, the location of their bytes, and the receives that match
//! them.

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
    /// The frame is invalid: no correct sender writes it.
    Malformed,
    /// The frame is for another run of this endpoint, or its session is not open.
    Stale,
    /// A table or buffer is full now.
    Rnr,
    /// The peer has no right to this access.
    BadAddress,
}

/// Description of a message, without its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageInfo {
    /// Peer that sent the message; `None` for this endpoint itself.
    pub peer: Option<PeerId>,
    /// Run of the peer that sent the message.
    pub run: u64,
    /// Number of the session in which the message arrived (`Incoming::serial`).
    pub session: u32,
    /// Bytes of the sender's credit that the message uses (G4).
    pub charge: u64,
    pub source: u32,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    /// Token of the RECEIPT that the sender waits for (G8).
    pub token: Option<u64>,
    pub length: u64,
}

impl MessageInfo {
    pub(crate) fn envelope(&self) -> Envelope {
        Envelope { tag: self.tag.unwrap_or(0), source: self.source }
    }

    /// Returns the charge of a message that uses its sender's credit; such a charge fits into 32
    /// bits.
    pub(crate) fn charge_u32(&self) -> u32 {
        u32::try_from(self.charge).unwrap_or(u32::MAX)
    }
}

/// Location of the bytes of an unexpected message.
#[derive(Debug)]
pub(crate) enum Body {
    /// All bytes have arrived, and are in this buffer.
    Whole(Box<[u8]>),
    /// Some bytes have arrived: they are in the partial message with this id.
    Parts(u32),
    /// All bytes are in the memory of the sender of this long message.
    Long(Box<LongIn>),
    /// The bytes are in the buffer of an operation of this endpoint, whose peer is this endpoint.
    Loopback(Key),
    /// Some bytes are lost: the application claimed the message before all bytes had arrived, and
    /// then the sender was lost.
    Lost(Outcome),
}

/// A message for which there was no receive.
#[derive(Debug)]
pub(crate) struct UnexpectedMessage {
    pub info: MessageInfo,
    pub body: Body,
}

/// Buffers and options of a posted receive.
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
    /// Smallest number of free bytes with which the receive accepts a further message (G7).
    pub min: u64,
    /// Number of messages that are still being placed.
    pub landing: u32,
    /// Whether the receive accepts no further message.
    pub closed: bool,
}

/// A message that is placed into a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing {
    pub info: MessageInfo,
    pub context: u64,
    pub signaled: bool,
    pub iov: IoVec,
    /// Offset of the message in the pieces of the receive.
    pub offset: u64,
    /// Number of the message's bytes that fit into the receive.
    pub room: u64,
    pub multi: Option<Key>,
}

impl Landing {
    /// Writes bytes of the message into the receive, as many as fit.
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
    /// The message's header was not processed yet: the parts wait, each with its offset.
    Unknown(Vec<(u16, Box<[u8]>)>),
    /// A buffer of this layer, until a receive matches the message. The buffer ends behind the last
    /// byte that has arrived.
    Buffer { buffer: Vec<u8>, kept: MessageKey, tagged: bool },
    /// The pieces of a receive.
    Landing(Box<Landing>),
    /// The message was discarded.
    Nowhere(Box<MessageInfo>),
}

/// A message that is incomplete, or that arrived early.
#[derive(Debug)]
pub(crate) struct Partial {
    /// Frame of the message, if it arrived early.
    pub early: Option<Box<[u8]>>,
    /// Number of bytes that have arrived.
    pub got: u64,
    /// Number of bytes of the whole message; zero if it is unknown.
    pub length: u64,
    pub place: Destination,
}

impl Partial {
    pub(crate) fn new(place: Destination) -> Self {
        Self { early: None, got: 0, length: 0, place }
    }

    /// Returns a partial message without any bytes.
    #[cfg(test)]
    pub(crate) fn nothing() -> Self {
        Self::new(Destination::Unknown(Vec::new()))
    }
}

impl Partial {
    /// Places a part. Returns false if the part exceeds the message, or if more bytes arrive than
    /// the message has.
    pub(crate) fn put(&mut self, offset: u64, bytes: &[u8], memory: &mut dyn Memory) -> bool {
        let count = bytes.len() as u64;
        if offset + count > self.length || self.got + count > self.length {
            return false;
        }
        self.got += count;
        match &mut self.place {
            Destination::Buffer { buffer, .. } => {
                fill(buffer, usize::try_from(offset).unwrap_or(usize::MAX), bytes);
            }
            Destination::Landing(landing) => landing.write(memory, offset, bytes),
            Destination::Unknown(_) | Destination::Nowhere(_) => {}
        }
        true
    }
}

/// Writes a part of a message at `at` into the buffer of the message, which grows up to the end of
/// the part. The caller has checked that the part lies in the message. Parts that arrive in order
/// are appended, without a write of zeros before.
fn fill(buffer: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if at >= buffer.len() {
        buffer.resize(at, 0);
        buffer.extend_from_slice(bytes);
        return;
    }
    let end = at + bytes.len();
    if end > buffer.len() {
        buffer.resize(end, 0);
    }
    buffer[at..end].copy_from_slice(bytes);
}

/// Location of a long message at its sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongIn {
    /// Run of the peer that sends the message.
    pub run: u64,
    pub iov: [LongIov; IOV_COUNT_MAX],
}

/// A long message that is being read.
#[derive(Debug)]
pub(crate) struct Reading {
    pub landing: Landing,
    /// The sender, as the transport's peer.
    pub peer: PeerId,
    pub from: LongIn,
    /// Number of bytes that were requested so far.
    pub asked: u64,
    /// Number of requests that have not completed.
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

    /// Finds the contiguous memory of the sender that holds the message from `offset` on. Returns
    /// the key and the offset of this memory, and the number of its bytes, at most `most`; `None`
    /// at the end of the message.
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

#[cfg(test)]
mod tests {
    use super::fill;
    use std::vec::Vec;

    #[test]
    fn a_buffer_takes_parts_in_every_order() {
        let whole: Vec<u8> = (1..=20).collect();
        let parts = [(5, 10), (10, 15), (15, 20)];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut buffer = whole[..5].to_vec();
            for (from, to) in order.map(|index: usize| parts[index]) {
                fill(&mut buffer, from, &whole[from..to]);
                assert!(buffer.len() >= to && buffer[from..to] == whole[from..to]);
            }
            assert_eq!(buffer, whole, "{order:?}");
        }
        // Only a peer that breaks the rules sends bytes twice.
        let mut buffer = whole[..5].to_vec();
        fill(&mut buffer, 3, &whole[3..8]);
        assert_eq!(buffer, whole[..8]);
    }
}
