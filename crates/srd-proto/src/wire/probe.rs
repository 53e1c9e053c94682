//! A probe: a packet that requests an acknowledgement which echoes its number. It needs no receive
//! buffer and no PSN.
//!
//! ```text
//! +---------------------------------------------------------------+
//! |        time of sending, ns, low 32 bits of sender's clock     |
//! +---------------------------------------------------------------+
//! |     bytes ever queued for this peer, modulo 2^32              |
//! +---------------------------------------------------------------+
//! |     PSN floor, low 32 bits                                    |
//! +---------------------------------------------------------------+
//! |     zero bytes up to the size under test (path MTU probes)    |
//! ```

use alloc::vec::Vec;

use super::{WireError, u32_at};

/// Bytes of a probe's body before the padding.
pub const PROBE_BYTES: usize = 12;

/// The fields of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The sender's clock at the time of sending, low 32 bits, ns.
    pub sent_at: u32,
    /// Bytes that the sender has ever queued for this peer, modulo 2^32.
    pub queued_bytes: u32,
    /// Low 32 bits of the lowest unsettled PSN.
    pub floor: u32,
}

impl Probe {
    /// Appends the fields, and then `padding` zero bytes.
    pub fn encode(&self, out: &mut Vec<u8>, padding: usize) {
        out.extend_from_slice(&self.sent_at.to_be_bytes());
        out.extend_from_slice(&self.queued_bytes.to_be_bytes());
        out.extend_from_slice(&self.floor.to_be_bytes());
        out.resize(out.len() + padding, 0);
    }

    /// Reads the fields of a probe. Padding is ignored.
    ///
    /// # Errors
    /// Returns an error if there are too few bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (b, _padding) = bytes.split_first_chunk::<PROBE_BYTES>().ok_or(WireError::Malformed)?;
        Ok(Self { sent_at: u32_at(b, 0), queued_bytes: u32_at(b, 4), floor: u32_at(b, 8) })
    }
}
