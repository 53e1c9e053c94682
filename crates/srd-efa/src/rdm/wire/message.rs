//! The frame MESSAGE, alone or with other messages in a BATCH.
//!
//! ```text
//! | 4 | flags | 0 | message id | tag? data? token? length? bytes |
//! ```

use bytes::{BufMut, BytesMut};

use crate::rdm::wire::field::{BASE_BYTES, DATA, PARTS, RECEIPT, Reader, TAGGED, put_base};

/// First byte of the frame, which identifies a MESSAGE.
pub(crate) const KIND: u8 = 4;
/// Bytes of the longest header of a MESSAGE: tag, data, token and length.
pub(crate) const MESSAGE_HEADER_MAX: usize = BASE_BYTES + 8 + 8 + 8 + 4;
/// Bytes of the sender's credit that every message uses in addition to its payload.
pub(crate) const MESSAGE_COST: u64 = 256;

/// Common fields of the frames MESSAGE and LONG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessageHeader {
    pub id: u32,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    /// Token of the RECEIPT that the receiver returns when the message is in its buffer; `None`:
    /// no RECEIPT.
    pub token: Option<u64>,
}

/// A received MESSAGE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessageFrame<'a> {
    pub header: MessageHeader,
    /// Length of the whole message in bytes, if further parts follow; `None` if the message is
    /// complete.
    pub length: Option<u32>,
    pub bytes: &'a [u8],
}

impl<'a> MessageFrame<'a> {
    /// Decodes the bytes after the base of the frame; `None` for a frame that no correct sender
    /// writes.
    pub(crate) fn decode(flags: u8, id: u32, mut reader: Reader<'a>) -> Option<Self> {
        let tag = reader.u64_if(flags & TAGGED != 0)?;
        let data = reader.u64_if(flags & DATA != 0)?;
        let token = reader.u64_if(flags & RECEIPT != 0)?;
        let length = if flags & PARTS != 0 { Some(reader.u32()?) } else { None };
        let bytes = reader.0;
        if length.is_some_and(|length| bytes.len() >= length as usize) {
            return None;
        }
        Some(Self { header: MessageHeader { id, tag, data, token }, length, bytes })
    }

    /// Returns the bytes of its sender's credit that the message uses (G4).
    pub(crate) fn charge(&self) -> u64 {
        MESSAGE_COST + self.length.map_or(self.bytes.len() as u64, u64::from)
    }
}

/// Encodes a MESSAGE without its payload, with capacity for exactly `bytes` payload bytes: a full
/// buffer becomes `Bytes` without a further allocation.
pub(crate) fn encode(header: &MessageHeader, length: Option<u32>, bytes: usize) -> BytesMut {
    let mut b = BytesMut::with_capacity(header_bytes(header, length.is_some()) + bytes);
    put(&mut b, header, length);
    b
}

/// Appends a MESSAGE without its payload.
pub(crate) fn put(b: &mut BytesMut, header: &MessageHeader, length: Option<u32>) {
    let flag = |there: bool, flag| if there { flag } else { 0 };
    let flags = flag(header.tag.is_some(), TAGGED)
        | flag(header.data.is_some(), DATA)
        | flag(header.token.is_some(), RECEIPT)
        | flag(length.is_some(), PARTS);
    put_base(b, KIND, flags, 0, header.id);
    for field in [header.tag, header.data, header.token].into_iter().flatten() {
        b.put_u64(field);
    }
    if let Some(length) = length {
        b.put_u32(length);
    }
}

/// Returns the number of bytes that [`encode`] writes. `parts`: whether a length is encoded.
pub(crate) fn header_bytes(header: &MessageHeader, parts: bool) -> usize {
    let fields = [header.tag, header.data, header.token];
    let there = fields.iter().flatten().count();
    BASE_BYTES + 8 * there + if parts { 4 } else { 0 }
}
