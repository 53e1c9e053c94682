//! The frames of one flow that wait for a peer, and the law by which they are carried, marked and
//! dropped.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};

use super::codel::Codel;
use super::fattest::{Link, Linked};
use crate::meta::layout::Layout;
use crate::wire::cloud::{self, Trailer};

/// Bytes that a flow may send per round. // Q1
pub(super) const QUANTUM_BYTES: i64 = 16 * 1024;
/// The cost of a frame beside its bytes: its record, in a ring that may be half empty.
pub(super) const RECORD_BYTES: usize = 2 * size_of::<Waiting>();
/// A flow that runs dry keeps a ring for so many frames; a larger one is given back.
pub(super) const RING_KEPT: usize = 4;

/// What decides about marks and drops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aqm {
    /// A queue that is longer is too long.
    pub target: Duration,
    /// A flow above the target for so long has a frame marked or dropped.
    pub interval: Duration,
    /// Bytes that may wait for one peer.
    pub bytes_max: usize,
}

/// The kind of a frame, by which the rule decides how it is carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// TCP that SRD may carry.
    Tcp,
    /// UDP that SRD may carry.
    Udp,
    /// A packet of a tunnel without ports that SRD may carry.
    Tunnel,
    /// What SRD never carries.
    Other,
    /// A frame of a cloud, its trailer behind it, that SRD may carry.
    Cloud,
    /// A frame of a cloud, its trailer behind it, that goes plainly.
    PlainCloud,
}

impl Kind {
    /// Whether a trailer is behind the frame.
    pub(crate) fn is_of_cloud(self) -> bool {
        matches!(self, Self::Cloud | Self::PlainCloud)
    }
}

/// How a frame is carried, and which of the transport's queues it goes through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// Datagrams of SRD.
    Srd,
    /// One unreliable datagram per packet.
    Plain,
}

impl Lane {
    pub(crate) const ALL: [Lane; 2] = [Lane::Srd, Lane::Plain];
}

/// The frames that ride SRD to a peer now. // X1, X2
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rule {
    /// Whether TCP does.
    pub tcp: bool,
    /// Whether UDP does.
    pub udp: bool,
    /// Whether tunnels without ports do.
    pub tunnels: bool,
    /// Whether frames of clouds do that may.
    pub cloud: bool,
    /// The largest frame that does.
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

    pub(super) fn lane_of(&self, waiting: &Waiting) -> Lane {
        self.lane(waiting.kind, waiting.frame.len())
    }
}

/// A frame in line.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Offload header and packet.
    pub frame: Vec<u8>,
    /// Where things are in it.
    pub layout: Layout,
    /// When it came.
    pub at: Instant,
    /// Its kind.
    pub kind: Kind,
    /// The path that it takes if it is of a cloud and goes plainly, by its number among those of
    /// its interface.
    pub path: u8,
}

impl Waiting {
    /// Frames that it stands for: several, if it is a bundle.
    #[cold]
    pub(super) fn frames(&self) -> u64 {
        let trailer = Trailer::split(&self.frame).filter(|_| self.kind.is_of_cloud());
        trailer.map_or(1, |(_, trailer)| trailer.frames() as u64)
    }
}

/// Which list a flow is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum List {
    #[default]
    None,
    Fresh,
    Old,
}

/// The flows whose small plain frames share the queue of a path. // C6
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Members {
    /// A bit for each flow that may have frames in the queue, by its hash. A flow without its bit
    /// has no frame there.
    pub(crate) bits: u64,
    /// Whether one of these frames may be large.
    pub(crate) has_large: bool,
    /// The count of the peer's empty queues when a flow of this path last waited in a queue of its
    /// own.
    pub(crate) apart: u64,
}

/// The frames of one flow, or of flows that share a path.
#[derive(Debug, Default)]
pub(crate) struct FlowQueue {
    pub(super) frames: VecDeque<Waiting>,
    pub(super) bytes: usize,
    pub(super) deficit: i64,
    pub(super) list: List,
    /// The place of its tenant, while a list names it.
    pub(super) tenant: u16,
    link: Link,
    pub(super) codel: Codel,
    members: Members,
}

impl FlowQueue {
    /// Bytes of heap that it keeps while nothing waits.
    pub(crate) const KEPT_BYTES: usize = RING_KEPT * size_of::<Waiting>();

    /// Whether no list names it, so that its slot may become another flow's.
    pub(crate) fn is_unlisted(&self) -> bool {
        self.list == List::None
    }

    /// Whether a frame waits.
    pub(crate) fn has_frames(&self) -> bool {
        !self.frames.is_empty()
    }

    /// The flows that share it, if it is a path's.
    #[inline]
    pub(crate) fn members(&mut self) -> &mut Members {
        if self.frames.is_empty() {
            (self.members.bits, self.members.has_large) = (0, false);
        }
        &mut self.members
    }

    /// Adds a frame of a cloud, whose trailer is apart, to the last one that waits, if the two may
    /// share a datagram of so many bytes. Returns the bytes by which that has grown. // C6
    #[inline]
    pub(super) fn join(
        &mut self,
        waiting: &Waiting,
        trailer: &Trailer,
        bytes_max: usize,
    ) -> Option<usize> {
        let last = self.frames.back_mut()?;
        let before = last.frame.len();
        let alike = (last.kind, last.path) == (waiting.kind, waiting.path);
        let whole = |of: &Waiting| of.layout.offload.gso.is_none();
        let may = alike && whole(last) && whole(waiting);
        let added = may && cloud::join(&mut last.frame, &waiting.frame, trailer, bytes_max);
        added.then(|| last.frame.len() - before)
    }

    /// The cost of its frames.
    pub(super) fn cost(&self) -> usize {
        self.bytes + self.frames.len() * RECORD_BYTES
    }
}

impl Linked for [FlowQueue] {
    fn link(&mut self, slot: u32) -> &mut Link {
        &mut self[slot as usize].link
    }
}

/// What happened to frames on their way through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QueueCounts {
    pub marked: u64,
    /// Dropped by the delay law.
    pub dropped_late: u64,
    /// Dropped because the peer's queue was full.
    pub dropped_full: u64,
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// The place of its tenant.
    pub(super) tenant: u16,
    /// The flow.
    pub slot: u32,
    /// Whether it has only just begun.
    pub fresh: bool,
    /// Bytes of its next frame.
    pub frame_bytes: usize,
}
