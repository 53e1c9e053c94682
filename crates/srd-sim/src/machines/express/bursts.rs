//! Super-packets of the guest. A kernel passes the segments that a connection sends at once to its
//! network interface as one super-packet (TSO).

use srd_card::FRAME_BYTES_MAX;
use srd_card::offload::OFFLOAD_BYTES;

use super::frame::{self, Framed, HEADER_BYTES};
use crate::engine::node::{Body, Packet};
use crate::machines::tcp::segment::{FLAG_CWR, FLAG_PSH};

/// Number of payload bytes in the largest super-packet.
#[allow(clippy::cast_possible_truncation)] // below 64 KiB
const PAYLOAD_BYTES_MAX: u32 = (FRAME_BYTES_MAX - OFFLOAD_BYTES) as u32 - HEADER_BYTES;

/// Returns the largest number of segments of a connection in one super-packet.
pub(crate) fn segments_max(mss_bytes: u32) -> u32 {
    (PAYLOAD_BYTES_MAX / mss_bytes).max(1)
}

/// Collector of segments: the super-packet to which the next segment may be added.
#[derive(Debug)]
pub(crate) struct Bursts {
    mss_bytes: u32,
    open: Option<Framed>,
}

impl Bursts {
    pub(crate) fn new(mss_bytes: u32) -> Self {
        Self { mss_bytes, open: None }
    }

    /// Adds a packet of the guest to the open super-packet. If it does not fit there, returns the
    /// open super-packet as a frame, and begins another super-packet with the packet.
    pub(crate) fn push(&mut self, packet: &Packet) -> Option<Vec<u8>> {
        let Body::Tcp(segment) = packet.body else { return None };
        let next = Framed {
            src: packet.src,
            dst: packet.dst,
            ports: (packet.src_port, packet.dst_port),
            ecn: packet.ecn,
            segment,
        };
        if let Some(open) = &mut self.open
            && open.join(&next, self.mss_bytes)
        {
            return None;
        }
        let done = self.flush();
        self.open = Some(next);
        done
    }

    /// Returns the open super-packet as a frame, and closes it; `None` if there is no open
    /// super-packet.
    pub(crate) fn flush(&mut self) -> Option<Vec<u8>> {
        self.open.take().map(|framed| frame::write(&framed, self.mss_bytes))
    }
}

impl Framed {
    /// Appends the next segment of the connection to this super-packet if possible. Returns whether
    /// it was appended.
    pub(crate) fn join(&mut self, next: &Self, mss_bytes: u32) -> bool {
        let joins = self.continues_with(next, mss_bytes);
        if joins {
            self.segment.payload_bytes += next.segment.payload_bytes;
            self.segment.flags |= next.segment.flags;
        }
        joins
    }

    /// Whether a segment may be appended to this super-packet. Both must be of one stream without a
    /// gap, this packet must consist of full segments, and the flags must be equal. Two flags may
    /// differ: CWR, which the first segment has, and PSH, which the last segment has.
    fn continues_with(&self, next: &Self, mss_bytes: u32) -> bool {
        let (a, b) = (&self.segment, &next.segment);
        let bytes = a.payload_bytes + b.payload_bytes;
        a.payload_bytes > 0
            && b.payload_bytes > 0
            && (self.src, self.dst, self.ports, self.ecn)
                == (next.src, next.dst, next.ports, next.ecn)
            && a.flow == b.flow
            && a.end() == b.seq
            && a.seq >> 32 == (b.end() - 1) >> 32
            && a.payload_bytes.is_multiple_of(mss_bytes)
            && a.flags & FLAG_PSH == 0
            && a.flags & !FLAG_CWR == b.flags & !FLAG_PSH
            && bytes <= PAYLOAD_BYTES_MAX
    }
}
