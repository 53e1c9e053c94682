//! What the core hands to a world to send: a [`Transmit`] that describes a batch, and the
//! [`TransmitBuf`] that holds its bytes.
//!
//! A batch is a run of segments that share destination and entropy, all of one size except
//! that the last may be shorter: just what UDP segmentation offload accepts. In plain mode a
//! payload stays where the application put it (a reference-counted [`Bytes`]), so a world
//! that gathers (`sendmsg` with an iovec, or the simulator) copies nothing. In encrypted mode
//! header and payload are contiguous, sealed in place.

use alloc::vec::Vec;
use core::net::SocketAddr;

use bytes::Bytes;

use crate::ids::Entropy;

/// The ECN field of the IP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// Not ECN-capable.
    #[default]
    NotEct,
    /// ECN-capable: switches may mark instead of drop.
    Ect,
    /// Congestion experienced: a switch marked it.
    Ce,
}

/// One batch to put on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The peer's address and well-known port.
    pub destination: SocketAddr,
    /// Which source port (base + entropy) and flow label to use.
    pub entropy: Entropy,
    /// What to put into the ECN field.
    pub ecn: Ecn,
    /// UDP payload bytes of each segment but possibly the last.
    pub segment_bytes: usize,
    /// How many segments.
    pub segments: usize,
    /// UDP payload bytes of all segments together.
    pub total_bytes: usize,
    /// Whether every segment is a control packet (acknowledgement, probe, handshake): a world
    /// that can should send these in a higher class.
    pub control: bool,
}

/// One segment of a batch: bytes in the buffer, then a payload by reference (may be empty).
#[derive(Debug)]
struct Segment {
    head_end: usize,
    payload: Bytes,
}

/// The caller-owned buffer that a batch is built in. Reuse it: after [`TransmitBuf::clear`]
/// it keeps its allocation.
#[derive(Debug)]
pub struct TransmitBuf {
    pub(crate) bytes: Vec<u8>,
    segments: Vec<Segment>,
    segments_max: usize,
    bytes_max: usize,
    total: usize,
}

impl TransmitBuf {
    /// A buffer for batches of at most `segments_max` segments and `bytes_max` UDP payload
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

    /// Forgets the batch, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.segments.clear();
        self.total = 0;
    }

    /// Segments in the batch.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether the batch holds nothing.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether the batch holds nothing, not even a part of a segment.
    pub(crate) fn is_untouched(&self) -> bool {
        self.is_empty() && self.bytes.is_empty()
    }

    /// The segments in order, each as (contiguous bytes, payload by reference).
    pub fn segments(&self) -> impl Iterator<Item = (&[u8], &Bytes)> {
        let mut start = 0;
        self.segments.iter().map(move |s| {
            let head = &self.bytes[start..s.head_end];
            start = s.head_end;
            (head, &s.payload)
        })
    }

    /// Takes the payload of segment `index` out, leaving an empty one (for worlds that move
    /// packets rather than copy them).
    pub fn take_payload(&mut self, index: usize) -> Bytes {
        core::mem::take(&mut self.segments[index].payload)
    }

    /// Copies the payloads: a batch that has to wait may be kept for longer than they live.
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

    /// UDP payload bytes in the batch.
    pub(crate) fn total_bytes(&self) -> usize {
        self.total
    }

    /// Whether one more segment of `size` UDP payload bytes fits.
    pub(crate) fn has_room(&self, size: usize) -> bool {
        self.segments.len() < self.segments_max && self.total + size <= self.bytes_max
    }

    /// Where the bytes of the segment being written begin.
    pub(crate) fn head_start(&self) -> usize {
        self.segments.last().map_or(0, |s| s.head_end)
    }

    /// Ends the segment whose bytes were appended to `self.bytes`.
    pub(crate) fn finish_segment(&mut self, payload: Bytes) {
        let head = self.bytes.len() - self.head_start();
        self.total += head + payload.len();
        self.segments.push(Segment { head_end: self.bytes.len(), payload });
    }
}

/// A received packet as the world holds it.
#[derive(Debug)]
pub enum PacketRef<'a> {
    /// The whole UDP payload.
    Whole(&'a mut [u8]),
    /// Header and payload apart, as header-splitting interfaces and the simulator deliver
    /// plain packets. The header part must contain at least the whole SRD header.
    Split(&'a [u8], &'a [u8]),
}

/// What the world knows of a received packet beside its bytes.
#[derive(Clone, Copy, Debug)]
pub struct PacketMeta {
    /// The sender's address and (entropy-carrying) source port.
    pub source: SocketAddr,
    /// Which of the endpoint's local addresses it came to: answers to strangers leave from there.
    pub local: u8,
    /// The ECN field on arrival.
    pub ecn: Ecn,
    /// When it arrived: the kernel's receive timestamp where there is one, mapped to the
    /// clock that `now` uses. Only delay measurement reads it.
    pub received_at: crate::time::Instant,
}
