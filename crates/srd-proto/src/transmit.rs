//! Output of the core: a [`Transmit`] that describes a batch to be sent, and the [`TransmitBuf`]
//! with its bytes.
//!
//! A batch is a run of segments with the same destination and entropy. All have one size, except
//! that the last may be shorter: this is the form that UDP segmentation offload accepts. In plain
//! mode a payload stays in the application's memory (a reference-counted [`Bytes`]), so a world
//! that gathers (`sendmsg` with an iovec, or the simulator) copies nothing. With protection on,
//! header and payload are contiguous, sealed in place.

use alloc::vec::Vec;
use core::net::SocketAddr;

use bytes::Bytes;

use crate::ids::Entropy;

/// The ECN field of the IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// Not ECN-capable: switches drop the packet instead of marking it.
    #[default]
    NotEct,
    /// ECN-capable: switches may mark the packet instead of dropping it.
    Ect,
    /// Congestion experienced: a switch marked the packet.
    Ce,
}

/// A batch of packets to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The peer's address and well-known port.
    pub destination: SocketAddr,
    /// Value that selects the source port (base + entropy) and the flow label.
    pub entropy: Entropy,
    /// Value of the ECN field.
    pub ecn: Ecn,
    /// UDP payload bytes of each segment; the last may be shorter.
    pub segment_bytes: usize,
    /// Number of segments.
    pub segments: usize,
    /// UDP payload bytes of all segments together.
    pub total_bytes: usize,
    /// Whether every segment is a control packet (acknowledgement, probe, handshake). A world
    /// should send these in a higher class if it can.
    pub control: bool,
}

/// A segment of a batch: bytes in the buffer, then a payload by reference (may be empty).
#[derive(Debug)]
struct Segment {
    head_end: usize,
    payload: Bytes,
}

/// The caller's buffer in which a batch is built. It can be used again: [`TransmitBuf::clear`]
/// keeps its allocation.
#[derive(Debug)]
pub struct TransmitBuf {
    pub(crate) bytes: Vec<u8>,
    segments: Vec<Segment>,
    segments_max: usize,
    bytes_max: usize,
    total: usize,
}

impl TransmitBuf {
    /// Creates a buffer for batches of at most `segments_max` segments and `bytes_max` UDP payload
    /// bytes. Linux refuses UDP_SEGMENT batches above 65,507 bytes or 128 segments.
    pub fn new(segments_max: usize, bytes_max: usize) -> Self {
        assert!(segments_max > 0, "a batch needs room for one segment");
        Self {
            bytes: Vec::new(),
            segments: Vec::with_capacity(segments_max),
            segments_max,
            bytes_max,
            total: 0,
        }
    }

    /// Removes the batch from the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.segments.clear();
        self.total = 0;
    }

    /// Number of segments in the batch.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether the batch contains no segment.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether the buffer contains nothing, not even a part of a segment.
    pub(crate) fn is_untouched(&self) -> bool {
        self.is_empty() && self.bytes.is_empty()
    }

    /// Segments of the batch in order. Each consists of two parts: contiguous bytes of the buffer,
    /// and the payload that follows them, which was not copied into the buffer.
    pub fn segments(&self) -> impl Iterator<Item = (&[u8], &Bytes)> {
        let mut start = 0;
        self.segments.iter().map(move |s| {
            let head = &self.bytes[start..s.head_end];
            start = s.head_end;
            (head, &s.payload)
        })
    }

    /// Takes out the payload of segment `index` and leaves an empty payload (for worlds that move
    /// packets instead of copying them).
    pub fn take_payload(&mut self, index: usize) -> Bytes {
        core::mem::take(&mut self.segments[index].payload)
    }

    /// Replaces each payload by a copy. A batch that has to wait then does not use the
    /// application's memory.
    pub fn own_payloads(&mut self) {
        for segment in &mut self.segments {
            segment.payload = Bytes::copy_from_slice(&segment.payload);
        }
    }

    /// UDP payload bytes of the first segment.
    pub(crate) fn first_segment_bytes(&self) -> usize {
        self.segments.first().map_or(0, |s| s.head_end + s.payload.len())
    }

    /// UDP payload bytes of the newest segment.
    pub(crate) fn last_segment_bytes(&self) -> usize {
        let before = self.segments.len().checked_sub(2).map_or(0, |i| self.segments[i].head_end);
        self.segments.last().map_or(0, |s| s.head_end - before + s.payload.len())
    }

    /// UDP payload bytes of all complete segments in the batch.
    pub(crate) fn total_bytes(&self) -> usize {
        self.total
    }

    /// Whether one more segment of `size` UDP payload bytes fits.
    pub(crate) fn has_room(&self, size: usize) -> bool {
        self.segments.len() < self.segments_max && self.total + size <= self.bytes_max
    }

    /// Offset of the first byte of the segment that is being written.
    pub(crate) fn head_start(&self) -> usize {
        self.segments.last().map_or(0, |s| s.head_end)
    }

    /// Completes the segment whose bytes were appended to `self.bytes`.
    pub(crate) fn finish_segment(&mut self, payload: Bytes) {
        let head = self.bytes.len() - self.head_start();
        self.total += head + payload.len();
        self.segments.push(Segment { head_end: self.bytes.len(), payload });
    }
}

/// A received packet, as the world passes it to the core.
#[derive(Debug)]
pub enum PacketRef<'a> {
    /// The whole UDP payload.
    Whole(&'a mut [u8]),
    /// Header and payload in separate buffers, as header-splitting interfaces and the simulator
    /// deliver plain packets. The first part must contain at least the whole SRD header.
    Split(&'a [u8], &'a [u8]),
}

/// Data about a received packet that is not in its bytes.
#[derive(Clone, Copy, Debug)]
pub struct PacketMeta {
    /// The sender's address and source port (which carries the entropy).
    pub source: SocketAddr,
    /// Index of our local address at which the packet arrived. Answers to strangers leave from this
    /// address.
    pub local: u8,
    /// The ECN field on arrival.
    pub ecn: Ecn,
    /// Time of arrival, on the same clock as `now`: the receive timestamp of the kernel, if there
    /// is one. It is used for delay measurement only.
    pub received_at: crate::time::Instant,
}
