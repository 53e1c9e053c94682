//! An unreliable datagram: it is sent once, on the path that its sender names, and never
//! acknowledged.
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |    destination queue pair     |       source queue pair       |
//! +-------------------------------+-------------------------------+
//! |                 opaque to SRD (64 bits)                       |
//! +---------------------------------------------------------------+
//! |                          payload ...                          |
//! ```

use alloc::vec::Vec;

use super::{WireError, u16_at, u64_at};

/// Bytes of an Unreliable packet's body before the payload.
pub const UNRELIABLE_BYTES: usize = 12;

/// The fields of an Unreliable packet between header and payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreliable {
    /// Destination queue pair.
    pub dst_qpn: u16,
    /// Source queue pair.
    pub src_qpn: u16,
    /// Eight bytes that are opaque to SRD, for the layer above SRD.
    pub imm: u64,
}

impl Unreliable {
    /// Appends the fields to a packet.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.dst_qpn.to_be_bytes());
        out.extend_from_slice(&self.src_qpn.to_be_bytes());
        out.extend_from_slice(&self.imm.to_be_bytes());
    }

    /// Reads the fields of an Unreliable packet. Also returns the payload that follows.
    ///
    /// # Errors
    /// Returns an error if there are too few bytes.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (b, payload) =
            bytes.split_first_chunk::<UNRELIABLE_BYTES>().ok_or(WireError::Malformed)?;
        let fields = Self { dst_qpn: u16_at(b, 0), src_qpn: u16_at(b, 2), imm: u64_at(b, 4) };
        Ok((fields, payload))
    }
}
