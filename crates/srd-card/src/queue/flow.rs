//! Queue of the frames of one flow that wait for a peer; the rule that selects SRD or plain
//! encapsulation for a frame; and the parameters of marks and drops.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};

use super::codel::Codel;
use super::fattest::{Link, Linked};
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::rewrite::ecn;
use crate::wire::cloud::{self, Trailer};

/// Bytes that a flow may send in one round of the deficit round robin. // Q1
pub(super) const QUANTUM_BYTES: i64 = 16 * 1024;
/// Bytes that a waiting frame costs in addition to its content: its record, in a ring buffer that
/// may be half empty.
pub(super) const RECORD_BYTES: usize = 2 * size_of::<QueuedFrame>();
/// Number of entries of the ring buffer that an empty flow keeps; a larger ring buffer is freed.
pub(super) const RING_KEPT: usize = 4;

/// Parameters of active queue management: when frames are marked or dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aqm {
    /// Queueing delay above which a queue counts as too long.
    pub target: Duration,
    /// Time for which the delay of a flow must stay above the target until a frame is marked or
    /// dropped.
    pub interval: Duration,
    /// Largest number of bytes that wait for one peer, records of frames included.
    pub bytes_max: usize,
}

/// Kind of a frame, from which [`Rule`] derives the lane: SRD or plain encapsulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// TCP that SRD may carry.
    Tcp,
    /// UDP that SRD may carry.
    Udp,
    /// A packet of a tunnel without ports that SRD may carry.
    Tunnel,
    /// A packet that SRD never carries.
    Other,
    /// A frame of a cloud with its trailer, which SRD may carry.
    Cloud,
    /// A frame of a cloud with its trailer, which is sent without SRD.
    PlainCloud,
}

impl Kind {
    /// Whether the frame belongs to a cloud, and so has a trailer.
    pub(crate) fn is_of_cloud(self) -> bool {
        matches!(self, Self::Cloud | Self::PlainCloud)
    }
}

/// Lane of a frame: the queue of the transport into which the frame is put, and thereby its
/// encapsulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// Reliable datagrams, by SRD.
    Srd,
    /// Unreliable datagrams, one for each packet or bundle (plain encapsulation).
    Plain,
}

impl Lane {
    pub(crate) const ALL: [Lane; 2] = [Lane::Srd, Lane::Plain];
}

/// Rule that states which frames SRD carries to a peer at present. // X1, X2
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rule {
    /// Whether SRD carries TCP.
    pub tcp: bool,
    /// Whether SRD carries UDP.
    pub udp: bool,
    /// Whether SRD carries tunnels without ports.
    pub tunnels: bool,
    /// Whether SRD carries frames of clouds of kind [`Kind::Cloud`].
    pub cloud: bool,
    /// Largest frame that SRD carries, in bytes.
    pub frame_bytes_max: usize,
}

impl Rule {
    pub(crate) fn lane(&self, kind: Kind, frame_bytes: usize) -> Lane {
        let rides = match kind {
            Kind::Tcp => self.tcp,
            Kind::Udp => self.udp,
            Kind::Tunnel => self.tunnels,
            Kind::Cloud => self.cloud,
            Kind::Other | Kind::PlainCloud => false,
        };
        if rides && frame_bytes <= self.frame_bytes_max { Lane::Srd } else { Lane::Plain }
    }

    pub(super) fn lane_of(&self, waiting: &QueuedFrame) -> Lane {
        self.lane(waiting.kind, waiting.frame.len())
    }
}

/// A frame that waits in the queue for a peer.
#[derive(Debug)]
pub(crate) struct QueuedFrame {
    /// Offload header and packet; in a frame of a cloud, the frame's trailer follows.
    pub frame: Vec<u8>,
    /// Offsets and properties of the packet in the frame.
    pub layout: Layout,
    /// Time at which the frame was queued.
    pub at: Instant,
    /// Kind of the frame.
    pub kind: Kind,
    /// Path that a frame of a cloud uses if it is sent without SRD: a number among the paths of the
    /// sending interface. Zero for other frames.
    pub path: u8,
}

impl QueuedFrame {
    /// Number of frames that this entry contains: more than one for a bundle.
    #[cold]
    pub(super) fn frames(&self) -> u64 {
        let trailer = Trailer::split(&self.frame).filter(|_| self.kind.is_of_cloud());
        trailer.map_or(1, |(_, trailer)| trailer.frames() as u64)
    }

    /// Sets the mark CE in the first packet of this entry that is ECN-capable. Returns whether a
    /// packet has the mark afterwards.
    #[cold]
    pub(super) fn mark(&mut self) -> bool {
        let frames = usize::try_from(self.frames()).unwrap_or(usize::MAX);
        let end =
            if frames > 1 { self.frame.len() - cloud::TRAILER_BYTES } else { self.frame.len() };
        let Some((all, frames)) = cloud::unbundle(&self.frame[..end], frames) else { return false };
        let lengths = all.map(<[u8]>::len);
        let mut at = 0;
        for (number, length) in lengths[..frames].iter().enumerate() {
            let packet = at + OFFLOAD_BYTES..at + length;
            if self.frame.get_mut(packet).is_some_and(ecn::mark) {
                return true;
            }
            at += length + if number == 0 { 0 } else { cloud::LENGTH_BYTES };
        }
        false
    }
}

/// List that contains a flow, in the tenant's lane (SRD or plain encapsulation): that of new flows
/// (`Fresh`), that of flows which have used up a round (`Old`), or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum List {
    #[default]
    None,
    Fresh,
    Old,
}

/// The flows whose small frames outside of SRD share the queue of one path. // C6
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Members {
    /// Set of the flows that may have frames in the queue: the bit that a flow's hash selects is
    /// set. If the bit of a flow is not set, the flow has no frame in the queue.
    pub(crate) bits: u64,
    /// Whether a frame in the queue may be large.
    pub(crate) has_large: bool,
    /// Value of the peer's `drained` counter when a flow of this path last waited in a queue of its
    /// own.
    pub(crate) apart: u64,
}

/// Queue of the frames of one flow, or of the flows that share a path.
#[derive(Debug, Default)]
pub(crate) struct FlowQueue {
    pub(super) frames: VecDeque<QueuedFrame>,
    pub(super) bytes: usize,
    pub(super) deficit: i64,
    pub(super) list: List,
    /// Index of the flow's tenant, while the flow is in a list.
    pub(super) tenant: u16,
    link: Link,
    pub(super) codel: Codel,
    members: Members,
}

impl FlowQueue {
    /// Heap bytes that the queue keeps while it is empty.
    pub(crate) const KEPT_BYTES: usize = RING_KEPT * size_of::<QueuedFrame>();

    /// Whether the flow is in no list of a scheduler, so that its slot may be given to another
    /// flow.
    pub(crate) fn is_unlisted(&self) -> bool {
        self.list == List::None
    }

    /// Whether a frame waits in the queue.
    pub(crate) fn has_frames(&self) -> bool {
        !self.frames.is_empty()
    }

    /// Returns the flows that share the queue, if the queue belongs to a path. An empty queue has
    /// no members.
    #[inline]
    pub(crate) fn members(&mut self) -> &mut Members {
        if self.frames.is_empty() {
            (self.members.bits, self.members.has_large) = (0, false);
        }
        &mut self.members
    }

    /// Appends a frame of a cloud, whose trailer is separate, to the last waiting frame, if the
    /// two may share a datagram of at most `bytes_max` bytes. Returns the bytes by which the last
    /// frame has grown. // C6
    #[inline]
    pub(super) fn join(
        &mut self,
        waiting: &QueuedFrame,
        trailer: &Trailer,
        bytes_max: usize,
    ) -> Option<usize> {
        let last = self.frames.back_mut()?;
        let before = last.frame.len();
        let alike = (last.kind, last.path) == (waiting.kind, waiting.path);
        let whole = |of: &QueuedFrame| of.layout.offload.gso.is_none();
        let may = alike && whole(last) && whole(waiting);
        let added = may && cloud::join(&mut last.frame, &waiting.frame, trailer, bytes_max);
        added.then(|| last.frame.len() - before)
    }

    /// Bytes that the waiting frames cost: their content and their records.
    pub(super) fn cost(&self) -> usize {
        self.bytes + self.frames.len() * RECORD_BYTES
    }
}

impl Linked for [FlowQueue] {
    fn link(&mut self, slot: u32) -> &mut Link {
        &mut self[slot as usize].link
    }
}

/// Counters of frames that a queue marked or dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QueueCounts {
    pub marked: u64,
    /// Frames dropped by CoDel, because they had waited too long and are not ECN-capable.
    pub dropped_late: u64,
    /// Frames dropped because the peer's queue was full.
    pub dropped_full: u64,
}

/// The flow that sends next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// Index of the flow's tenant.
    pub(super) tenant: u16,
    /// Slot of the flow.
    pub slot: u32,
    /// Whether the flow is in the list of new flows.
    pub fresh: bool,
    /// Bytes of the flow's next frame.
    pub frame_bytes: usize,
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;
    use crate::meta::packet::protocol;
    use crate::testing::{framed, layout, v4, v6};

    /// Returns an entry with these packets as frames of a cloud, and the packets' ECN bits.
    fn entry(packets: &[(&[u8], u8)]) -> QueuedFrame {
        let trailer = Trailer([7; 20]).of_one();
        let mut frames = packets.iter().map(|(packet, bits)| {
            let mut packet = packet.to_vec();
            packet[1] |= if packet[0] >> 4 == 4 { *bits } else { bits << 4 };
            framed(&packet)
        });
        let mut frame = trailer.behind(&frames.next().unwrap()).to_vec();
        assert!(frames.all(|of| cloud::join(&mut frame, &of, &trailer, 1400)));
        let layout = layout(packets[0].0);
        QueuedFrame { frame, layout, at: Instant::ZERO, kind: Kind::PlainCloud, path: 0 }
    }

    /// Returns the ECN bits of each packet in an entry.
    fn bits(of: &QueuedFrame) -> Vec<u8> {
        let (rest, trailer) = Trailer::split(&of.frame).unwrap();
        let (all, frames) = cloud::unbundle(rest, trailer.frames()).unwrap();
        all[..frames].iter().map(|frame| ecn::ecn(&frame[OFFLOAD_BYTES..])).collect()
    }

    #[test]
    fn regression_the_first_packet_of_a_bundle_that_is_ecn_capable_gets_the_mark() {
        let [four, six] = [v4(protocol::UDP, (1, 2), b"four"), v6(protocol::UDP, (1, 2), b"six")];
        for (packets, marked) in [
            (vec![(&four[..], 2)], Some(vec![3])),
            (vec![(&four[..], 0), (&six, 2), (&four, 2)], Some(vec![0, 3, 2])),
            (vec![(&four[..], 0), (&four, 0), (&four, 1)], Some(vec![0, 0, 3])),
            (vec![(&four[..], 0), (&six, 0)], None),
        ] {
            let mut of = entry(&packets);
            assert_eq!(of.mark(), marked.is_some());
            let before = packets.iter().map(|(_, bits)| *bits).collect();
            assert_eq!(bits(&of), marked.unwrap_or(before));
        }
    }
}
