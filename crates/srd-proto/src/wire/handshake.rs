//! Handshake packets: Hello, HelloReply, Retry, Reset.
//!
//! ```text
//! Hello      | sender's context (32) | cookie (128, zero: none) | Noise message 1 |
//! HelloReply | Noise message 2 |            (its header names the initiator's context)
//! Retry      | cookie (128) |               (its header names the initiator's context)
//! Reset      | context that is not known (32) | number of the packet that named it (32) |
//! ```

use alloc::vec::Vec;

use super::{WireError, u32_at};

/// Bytes of a cookie.
pub const COOKIE_BYTES: usize = 16;
/// Longest Noise message accepted.
pub const NOISE_BYTES_MAX: usize = 256;

/// The first handshake packet's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    /// The initiator's number for the context, not zero.
    pub context: u32,
    /// The cookie that the responder demanded, or zero bytes.
    pub cookie: [u8; COOKIE_BYTES],
    /// The first Noise message.
    pub noise: &'a [u8],
}

impl<'a> Hello<'a> {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.context.to_be_bytes());
        out.extend_from_slice(&self.cookie);
        out.extend_from_slice(self.noise);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// When the bytes are too few or too many, or the context is zero.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (context, rest) = bytes.split_first_chunk::<4>().ok_or(WireError::Malformed)?;
        let (cookie, noise) =
            rest.split_first_chunk::<COOKIE_BYTES>().ok_or(WireError::Malformed)?;
        let context = u32::from_be_bytes(*context);
        if context == 0 || noise.is_empty() || noise.len() > NOISE_BYTES_MAX {
            return Err(WireError::Malformed);
        }
        Ok(Self { context, cookie: *cookie, noise })
    }
}

/// A refusal of a packet whose context is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reset {
    /// The context that the packet named.
    pub context: u32,
    /// The packet's number.
    pub number: u32,
}

impl Reset {
    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.context.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
    }

    /// Reads the body.
    ///
    /// # Errors
    /// When the length is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() != 8 {
            return Err(WireError::Malformed);
        }
        Ok(Self { context: u32_at(bytes, 0), number: u32_at(bytes, 4) })
    }
}

/// Reads a Retry's cookie.
///
/// # Errors
/// When the length is wrong.
pub fn decode_retry(bytes: &[u8]) -> Result<[u8; COOKIE_BYTES], WireError> {
    bytes.try_into().map_err(|_| WireError::Malformed)
}
