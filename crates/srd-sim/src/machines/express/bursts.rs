//! Segments that leave together. A kernel hands the segments that a connection sends at once to its
//! network interface as one super-packet (TSO).

use srd_card::FRAME_BYTES_MAX;
use srd_card::offload::OFFLOAD_BYTES;

use super::frame::{self, Framed, HEADER_BYTES};
use crate::engine::node::{Body, Packet};
use crate::machines::tcp::segment::{FLAG_CWR, FLAG_PSH};

/// Payload bytes of the largest super-packet.
#[allow(clippy::cast_possible_truncation)] // below 64 KiB
const PAYLOAD_BYTES_MAX: u32 = (FRAME_BYTES_MAX - OFFLOAD_BYTES) as u32 - HEADER_BYTES;

/// Largest number of segments of a connection in one super-packet.
pub(crate) fn segments_max(mss_bytes: u32) -> u32 {
    (PAYLOAD_BYTES_MAX / mss_bytes).max(1)
}

/// The super-packet that grows.
#[derive(Debug)]
pub(crate) struct Bursts {
    mss_bytes: u32,
    open: Option<Framed>,
}

impl Bursts {
    pub(crate) fn new(mss_bytes: u32) -> Self {
        Self { mss_bytes, open: None }
    }

    /// Takes a packet of the guest. Returns the open frame if the packet does not belong to it.
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

    /// Returns the open frame, and closes it.
    pub(crate) fn flush(&mut self) -> Option<Vec<u8>> {
        self.open.take().map(|framed| frame::write(&framed, self.mss_bytes))
    }
}

impl Framed {
    /// Takes a segment if it may join this one. Returns whether it may.
    pub(crate) fn join(&mut self, next: &Self, mss_bytes: u32) -> bool {
        let joins = self.continues_with(next, mss_bytes);
        if joins {
            self.segment.payload_bytes += next.segment.payload_bytes;
            self.segment.flags |= next.segment.flags;
        }
        joins
    }

    /// Whether a segment may join this one: whole packets of one stream without a gap, with equal
    /// flags. Only CWR may differ, which the first packet carries, and PSH, which the last carries.
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
