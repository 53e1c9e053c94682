//! A frame on the wire: one packet of the guest, with its offload header, carried by SRD. The
//! frame is divided into as many chunks as datagrams are needed. All chunks except the last have
//! the same size. The eight opaque bytes of each datagram contain the position of its chunk.
//!
//! ```text
//!  63                       40               24           17 16              0
//! +---------------------------+----------------+------------+--+-------------+
//! |        flow (24)          |  sequence (16) | chunk (7)  |L | length (16) |
//! +---------------------------+----------------+------------+--+-------------+
//! ```
//!
//! `flow` is the sender's number of the inner flow, which is not used twice within minutes.
//! `sequence` counts the frames of the flow from zero. `length` is the length of the whole frame,
//! so that the offset of the last chunk (`L`) is known even if this chunk arrives first.

pub use crate::meta::FRAME_BYTES_MAX;

/// Largest number of chunks of a frame.
pub const CHUNKS_MAX: usize = 128;
/// Number of different flow numbers.
pub const FLOW_NUMBERS: u32 = 1 << FLOW_NUMBER_BITS;
/// Bits of a flow number.
pub(crate) const FLOW_NUMBER_BITS: u32 = 24;

/// Position of a chunk in its flow and frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkPosition {
    /// Sender's number of the flow.
    pub flow: u32,
    /// Sequence number of the frame in the flow.
    pub sequence: u16,
    /// Number of the chunk in the frame, from zero.
    pub chunk: u8,
    /// Whether the chunk is the last of its frame.
    pub last: bool,
    /// Bytes of the whole frame.
    pub frame_bytes: u16,
}

impl ChunkPosition {
    /// Encodes the position as the opaque bytes of a datagram.
    pub fn encode(&self) -> u64 {
        u64::from(self.flow & (FLOW_NUMBERS - 1)) << 40
            | u64::from(self.sequence) << 24
            | u64::from(self.chunk & 0x7f) << 17
            | u64::from(self.last) << 16
            | u64::from(self.frame_bytes)
    }

    /// Decodes the position from the opaque bytes of a datagram.
    #[allow(clippy::cast_possible_truncation)] // each field is masked by its cast
    pub fn decode(imm: u64) -> Self {
        Self {
            flow: (imm >> 40) as u32,
            sequence: (imm >> 24) as u16,
            chunk: (imm >> 17) as u8 & 0x7f,
            last: imm >> 16 & 1 == 1,
            frame_bytes: imm as u16,
        }
    }

    /// Returns the offset at which a chunk of `bytes` bytes begins in its frame; `None` if a chunk
    /// of this size is impossible at this position.
    pub fn offset(&self, bytes: usize) -> Option<usize> {
        let frame_bytes = usize::from(self.frame_bytes);
        let at = if self.last {
            frame_bytes.checked_sub(bytes)?
        } else {
            usize::from(self.chunk) * bytes
        };
        let within = bytes > 0 && at + bytes <= frame_bytes;
        let chunk = usize::from(self.chunk);
        let right_end = if self.last {
            // All earlier chunks have the same size, and none is smaller than the last.
            chunk == 0 || at % chunk == 0 && bytes <= at / chunk
        } else {
            at + bytes < frame_bytes
        };
        (within && right_end && (chunk > 0) == (at > 0)).then_some(at)
    }

    /// Returns the size of all chunks except the last, derived from one chunk of `bytes` bytes
    /// that has a valid offset.
    pub fn step(&self, bytes: usize) -> usize {
        match (self.last, usize::from(self.chunk)) {
            (true, chunk @ 1..) => usize::from(self.frame_bytes).saturating_sub(bytes) / chunk,
            _ => bytes,
        }
    }
}

/// Returns the chunk size of a frame: chunks of equal size, as few as possible; the last chunk may
/// be shorter. Returns `None` for more than [`CHUNKS_MAX`] chunks.
pub fn chunk_bytes(frame_bytes: usize, chunk_bytes_max: usize) -> Option<usize> {
    let chunks = frame_bytes.div_ceil(chunk_bytes_max.max(1)).max(1);
    (chunks <= CHUNKS_MAX).then(|| frame_bytes.div_ceil(chunks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_place_survives_the_wire(imm: u64) {
            prop_assert_eq!(ChunkPosition::decode(imm).encode(), imm);
        }

        #[test]
        fn chunks_cover_a_frame_without_gap_or_overlap(
            frame_bytes in 1usize..=FRAME_BYTES_MAX,
            max in 1usize..9000,
        ) {
            let Some(size) = chunk_bytes(frame_bytes, max) else {
                prop_assert!(frame_bytes > CHUNKS_MAX * max);
                return Ok(());
            };
            prop_assert!(size <= max);
            let mut next = 0;
            let chunks = frame_bytes.div_ceil(size);
            prop_assert!(chunks <= CHUNKS_MAX);
            for chunk in 0..chunks {
                let last = chunk + 1 == chunks;
                let bytes = if last { frame_bytes - next } else { size };
                let place = ChunkPosition {
                    flow: 1,
                    sequence: 2,
                    chunk: u8::try_from(chunk).unwrap(),
                    last,
                    frame_bytes: u16::try_from(frame_bytes).unwrap(),
                };
                prop_assert_eq!(place.offset(bytes), Some(next));
                prop_assert_eq!(place.step(bytes), size);
                next += bytes;
            }
            prop_assert_eq!(next, frame_bytes);
        }
    }

    #[test]
    fn impossible_chunks_have_no_place() {
        let place =
            |chunk, last| ChunkPosition { flow: 0, sequence: 0, chunk, last, frame_bytes: 100 };
        assert_eq!(place(0, false).offset(101), None);
        assert_eq!(place(0, false).offset(100), None, "that would be the last");
        assert_eq!(place(0, true).offset(50), None, "the first begins at zero");
        assert_eq!(place(2, false).offset(50), None);
        assert_eq!(place(1, true).offset(0), None);
        assert_eq!(place(3, true).offset(30), None, "those before it would differ");
        assert_eq!(place(1, true).offset(60), None, "the last would be the largest");
        assert_eq!(place(0, true).offset(100), Some(0));
    }
}
