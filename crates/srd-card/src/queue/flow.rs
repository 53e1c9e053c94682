//! Frames of one flow that wait for a peer, and the rule by which they are carried, marked and
//! dropped.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};

use super::codel::Codel;
use super::fattest::{Link, Linked};
use crate::meta::layout::Layout;
use crate::wire::cloud::{self, Trailer};

/// Bytes that a flow may send in a round. // Q1
pub(super) const QUANTUM_BYTES: i64 = 16 * 1024;
/// Cost of a frame beside its bytes: its record, in a ring that may be half empty.
pub(super) const RECORD_BYTES: usize = 2 * size_of::<QueuedFrame>();
/// Size of the ring that an empty flow keeps; a larger ring is freed.
pub(super) const RING_KEPT: usize = 4;

/// Parameters of marks and drops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aqm {
    /// Queueing delay above which a queue is too long.
    pub target: Duration,
    /// Time above the target after which a frame of a flow is marked or dropped.
    pub interval: Duration,
    /// Largest number of bytes that wait for one peer.
    pub bytes_max: usize,
}

/// Kind of a frame, on which the rule bases the lane.
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
    /// A frame of a cloud with its trailer, which goes without SRD.
    PlainCloud,
}

impl Kind {
    /// Whether the frame has a trailer.
    pub(crate) fn is_of_cloud(self) -> bool {
        matches!(self, Self::Cloud | Self::PlainCloud)
    }
}

/// Lane of a frame: the transport's queue, and with it the encapsulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// Datagrams of SRD.
    Srd,
    /// One unreliable datagram for each packet.
    Plain,
}

impl Lane {
    pub(crate) const ALL: [Lane; 2] = [Lane::Srd, Lane::Plain];
}

/// Frames that SRD carries to a peer now. // X1, X2
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
    /// Largest frame that SRD carries.
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

/// A frame that waits.
#[derive(Debug)]
pub(crate) struct QueuedFrame {
    /// Offload header and packet.
    pub frame: Vec<u8>,
    /// Offsets and properties of its packet.
    pub layout: Layout,
    /// Arrival of the frame.
    pub at: Instant,
    /// Kind of the frame.
    pub kind: Kind,
    /// Path of a frame of a cloud that goes without SRD, by its number among the paths of its
    /// interface.
    pub path: u8,
}

impl QueuedFrame {
    /// Number of frames: several for a bundle.
    #[cold]
    pub(super) fn frames(&self) -> u64 {
        let trailer = Trailer::split(&self.frame).filter(|_| self.kind.is_of_cloud());
        trailer.map_or(1, |(_, trailer)| trailer.frames() as u64)
    }
}

/// List of a tenant's lane that contains the flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum List {
    #[default]
    None,
    Fresh,
    Old,
}

/// Flows whose small plain frames share the queue of a path. // C6
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Members {
    /// One bit for each flow that may have frames in the queue, by the flow's hash. A flow whose
    /// bit is not set has no frame there.
    pub(crate) bits: u64,
    /// Whether one of these frames may be large.
    pub(crate) has_large: bool,
    /// The peer's `drained` counter when a flow of this path last waited in a queue of its own.
    pub(crate) apart: u64,
}

/// Frames of one flow, or of flows that share a path.
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

    /// Whether the flow is in no list, so that its slot may be given to another flow.
    pub(crate) fn is_unlisted(&self) -> bool {
        self.list == List::None
    }

    /// Whether a frame waits.
    pub(crate) fn has_frames(&self) -> bool {
        !self.frames.is_empty()
    }

    /// Returns the flows that share the queue, for the queue of a path.
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

    /// Cost of the frames.
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
    /// Frames dropped by CoDel.
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
    /// Whether the flow is new.
    pub fresh: bool,
    /// Bytes of the flow's next frame.
    pub frame_bytes: usize,
}
