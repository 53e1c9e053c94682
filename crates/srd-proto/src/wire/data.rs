//! A datagram in a Data packet.
//!
//! ```text
//! +-------------------------------+-------------------------------+
//! |  PSN - PSN of first sending   |        PSN - PSN floor        |
//! +-------------------------------+-------------------------------+
//! |        time of sending, ns, low 32 bits of sender's clock     |
//! +---------------------------------------------------------------+
//! |     bytes ever queued for this peer, modulo 2^32              |
//! +-------------------------------+-------------------------------+
//! |    destination queue pair     |       source queue pair       |
//! +-------------------------------+-------------------------------+
//! |                 opaque to SRD (64 bits)                       |
//! +---------------------------------------------------------------+
//! |                          payload ...                          |
//! ```
//!
//! The PSN of the first transmission is the datagram's identity: the receiver delivers each
//! identity once. Each identity below the floor is settled.

use alloc::vec::Vec;

use super::{WireError, u16_at, u32_at, u64_at};

/// Bytes of a Data packet's body before the payload.
pub const DATA_BYTES: usize = 24;

/// The fields of a Data packet between header and payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Data {
    /// Distance back from this PSN to the PSN of the datagram's first transmission. Zero in the
    /// first transmission.
    pub first_delta: u16,
    /// Distance back from this PSN to the floor, the lowest PSN that the sender has not settled. It
    /// is at least `first_delta`.
    pub floor_delta: u16,
    /// The sender's clock at the time of sending, low 32 bits, ns.
    pub sent_at: u32,
    /// Bytes that the sender has ever queued for this peer, modulo 2^32.
    pub queued_bytes: u32,
    /// Destination queue pair.
    pub dst_qpn: u16,
    /// Source queue pair.
    pub src_qpn: u16,
    /// Eight bytes that are opaque to SRD, for the layer above SRD.
    pub imm: u64,
}

impl Data {
    /// Appends the fields to a packet.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut b = [0; DATA_BYTES];
        b[0..2].copy_from_slice(&self.first_delta.to_be_bytes());
        b[2..4].copy_from_slice(&self.floor_delta.to_be_bytes());
        b[4..8].copy_from_slice(&self.sent_at.to_be_bytes());
        b[8..12].copy_from_slice(&self.queued_bytes.to_be_bytes());
        b[12..14].copy_from_slice(&self.dst_qpn.to_be_bytes());
        b[14..16].copy_from_slice(&self.src_qpn.to_be_bytes());
        b[16..24].copy_from_slice(&self.imm.to_be_bytes());
        out.extend_from_slice(&b);
    }

    /// Reads the fields of a Data packet. Also returns the payload that follows.
    ///
    /// # Errors
    /// Returns an error if there are too few bytes, or if the PSN of the first transmission is
    /// below the floor.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (b, payload) = bytes.split_first_chunk::<DATA_BYTES>().ok_or(WireError::Malformed)?;
        let data = Self {
            first_delta: u16_at(b, 0),
            floor_delta: u16_at(b, 2),
            sent_at: u32_at(b, 4),
            queued_bytes: u32_at(b, 8),
            dst_qpn: u16_at(b, 12),
            src_qpn: u16_at(b, 14),
            imm: u64_at(b, 16),
        };
        if data.first_delta > data.floor_delta {
            return Err(WireError::Malformed);
        }
        Ok((data, payload))
    }
}
