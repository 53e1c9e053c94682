//! A greeting: the identity of the sender. In plain mode it follows the header of every packet,
//! until a packet from the peer has named our context number. So any packet that arrives first can
//! create the context. In protected modes the handshake contains the greeting.
//!
//! ```text
//! +---------------------------------------------------------------+
//! |                 sender's context number                       |
//! +---------------------------------------------------------------+
//! |                 sender's epoch (64 bits)                      |
//! +-------------------------------+-------------------------------+
//! |   sender's well-known port    |           features            |
//! +-------------------------------+-------------------------------+
//! ```

use alloc::vec::Vec;

use super::{WireError, u16_at, u32_at, u64_at};

/// Bytes of a greeting.
pub const GREETING_BYTES: usize = 16;

/// The identity of a packet's sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Context number that the sender has assigned, not zero.
    pub context: u32,
    /// The sender's epoch.
    pub epoch: u64,
    /// The port at which the sender receives, not zero.
    pub port: u16,
    /// Bits of optional features. A receiver ignores unknown bits.
    pub features: u16,
}

impl Greeting {
    /// Appends the greeting to a packet.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.context.to_be_bytes());
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.extend_from_slice(&self.port.to_be_bytes());
        out.extend_from_slice(&self.features.to_be_bytes());
    }

    /// Reads a greeting. Also returns the bytes that follow it.
    ///
    /// # Errors
    /// Returns an error if there are too few bytes, or if context or port is zero.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (b, rest) = bytes.split_first_chunk::<GREETING_BYTES>().ok_or(WireError::Malformed)?;
        let greeting = Self {
            context: u32_at(b, 0),
            epoch: u64_at(b, 4),
            port: u16_at(b, 12),
            features: u16_at(b, 14),
        };
        // E2: Malformed packets
        // W6: Zero is no context or port
        if greeting.context == 0 || greeting.port == 0 {
            return Err(WireError::Malformed);
        }
        Ok((greeting, rest))
    }
}
