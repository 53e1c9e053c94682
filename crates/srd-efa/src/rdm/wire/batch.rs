//! The frame BATCH: small messages that are sent together.
//!
//! ```text
//! | 11 | messages | 0 | id of the first | then for each: bytes of its MESSAGE (2), its MESSAGE |
//! ```
//!
//! Ids increase by one, and each message is complete.

use bytes::{BufMut, BytesMut};

use crate::rdm::wire::field::{BASE_BYTES, Reader, put_base};
use crate::rdm::wire::message;
use crate::rdm::wire::message::MessageFrame;

/// Largest number of messages in one frame.
pub(crate) const BATCH_MESSAGES_MAX: usize = 32;
/// Bytes of the length before each message.
pub(crate) const ENTRY_BYTES: usize = 2;
/// First byte of the frame, which identifies a BATCH.
pub(crate) const KIND: u8 = 11;

/// A received BATCH of valid form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Batch<'a> {
    pub first: u32,
    pub count: u32,
    /// Bytes of the sender's credit that all messages of the frame use together.
    pub charge: u64,
    entries: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Decodes the bytes after the base of the frame; `None` for a frame that no correct sender
    /// writes.
    pub(crate) fn decode(count: u8, first: u32, entries: &'a [u8]) -> Option<Self> {
        let mut batch = Self { first, count: 0, charge: 0, entries };
        let mut rest = entries;
        while !rest.is_empty() {
            let (frame, after) = entry(rest)?;
            if frame.length.is_some() || frame.header.id != first.wrapping_add(batch.count) {
                return None;
            }
            batch.count += 1;
            batch.charge += frame.charge();
            rest = after;
        }
        let known = usize::from(count) <= BATCH_MESSAGES_MAX && count > 1;
        (known && u32::from(count) == batch.count).then_some(batch)
    }

    /// Returns the messages, in order.
    pub(crate) fn messages(&self) -> impl Iterator<Item = MessageFrame<'a>> {
        let mut rest = self.entries;
        core::iter::from_fn(move || {
            let (frame, after) = entry(rest)?;
            rest = after;
            Some(frame)
        })
    }
}

fn entry(bytes: &[u8]) -> Option<(MessageFrame<'_>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<ENTRY_BYTES>()?;
    let (frame, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    let (base, fields) = frame.split_first_chunk::<BASE_BYTES>()?;
    let [message::KIND, flags @ 0..16, 0, 0, id @ ..] = *base else { return None };
    let message = MessageFrame::decode(flags, u32::from_be_bytes(id), Reader(fields))?;
    Some((message, rest))
}

/// A BATCH that is being built.
pub(crate) struct BatchBuilder {
    bytes: BytesMut,
    count: u8,
}

impl BatchBuilder {
    /// Starts a frame without messages; `first` is the id of the first message.
    pub(crate) fn new(first: u32, room: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(room);
        put_base(&mut bytes, KIND, 0, 0, first);
        Self { bytes, count: 0 }
    }

    /// Returns the number of bytes that the frame has so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Starts an entry of `bytes` bytes, which the caller appends.
    pub(crate) fn entry(&mut self, bytes: u16) -> &mut BytesMut {
        self.count += 1;
        self.bytes.put_u16(bytes);
        &mut self.bytes
    }

    /// Returns the finished frame.
    pub(crate) fn finish(mut self) -> BytesMut {
        self.bytes[1] = self.count;
        self.bytes
    }
}

const _: () = assert!(BATCH_MESSAGES_MAX <= u8::MAX as usize && BASE_BYTES > 1);
