//! Common parts of frames: the first bytes, the fields, and the check, which identifies the run and
//! the session of the frame (U3).

use bytes::{BufMut, BytesMut};

use crate::wire::check_of;

/// Version of the messaging layer's protocol.
pub(crate) const VERSION: u8 = 1;
/// Bytes before the optional fields of every frame.
pub(crate) const BASE_BYTES: usize = 8;

pub(crate) const TAGGED: u8 = 1;
pub(crate) const DATA: u8 = 2;
pub(crate) const RECEIPT: u8 = 4;
pub(crate) const PARTS: u8 = 8;

/// Status of a RECEIPT or RESULT: success.
pub(crate) const STATUS_OK: u8 = 0;
/// Status: the memory in the request does not exist, or the access right is missing.
pub(crate) const STATUS_BAD_KEY: u8 = 1;
/// Status: the operation is invalid, or could not be finished.
pub(crate) const STATUS_FAILED: u8 = 2;

/// Reads fields from the front of a frame.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*head))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*head))
    }

    pub(crate) fn u64_if(&mut self, there: bool) -> Option<Option<u64>> {
        if there { self.u64().map(Some) } else { Some(None) }
    }

    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Appends the first bytes of every frame.
pub(crate) fn put_base(into: &mut BytesMut, kind: u8, second: u8, halves: u16, number: u32) {
    into.put_u8(kind);
    into.put_u8(second);
    into.put_u16(halves);
    into.put_u32(number);
}

/// Returns the immediate of a further part of a message.
#[allow(clippy::cast_possible_truncation)] // the lower 16 bits of the id
pub(crate) fn part(id: u32, offset: u16) -> u32 {
    u32::from(id as u16) << 16 | u32::from(offset)
}

/// Returns the Q key of an endpoint's run.
#[allow(clippy::cast_possible_truncation)] // the two halves of the number
pub(crate) fn qkey_of(incarnation: u64) -> u32 {
    (incarnation.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// Returns the value that identifies an endpoint's run in frames that belong to no session (U3).
pub(crate) fn run_check(incarnation: u64) -> u32 {
    check_of(qkey_of(incarnation))
}

/// Returns the value that identifies an endpoint's run and a session in the session's messages
/// (U3).
pub(crate) fn session_check(incarnation: u64, session: u32) -> u32 {
    check_of(qkey_of(incarnation) ^ session.wrapping_mul(0x85eb_ca6b))
}
