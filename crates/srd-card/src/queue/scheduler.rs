//! Frames that wait for one peer: fair between flows, and short.
//!
//! Flow queueing as in FQ-CoDel (RFC 8290): deficit round robin over flows with something to
//! send, flows that have just begun first. A flow whose frames have waited for longer than the
//! target, others behind them, for a whole interval, has frames marked by CoDel's law (RFC 8289),
//! ever more often; or dropped, if its packets are not ECN-capable. Bursts pass unmarked: a hole
//! that is filled lets go of all that waited behind it at once.
//!
//! A peer has two lanes, for the transport has two queues: frames that ride SRD, and those that go
//! plainly. A flow is in the lane that its next frame takes, so that a lane whose queue in the
//! transport is full holds up no frame of the other.
//!
//! Bound: `queue_bytes_max` per peer, frames and the records of them; beyond it the flow with
//! (nearly) most bytes loses its oldest frames.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};

use super::codel::Codel;
use super::fattest::{Fattest, Link, Linked};
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::rewrite::ecn;

/// Bytes that a flow may send per round. // Q1
const QUANTUM_BYTES: i64 = 16 * 1024;
/// The cost of a frame beside its bytes: its record, in a ring that may be half empty.
const RECORD_BYTES: usize = 2 * size_of::<Waiting>();
/// A flow that runs dry keeps a ring for so many frames; a larger one is given back.
const RING_KEPT: usize = 4;

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
    /// The largest frame that does.
    pub frame_bytes_max: usize,
}

impl Rule {
    pub(crate) fn lane(&self, kind: Kind, frame_bytes: usize) -> Lane {
        let rides = match kind {
            Kind::Tcp => self.tcp,
            Kind::Udp => self.udp,
            Kind::Tunnel => self.tunnels,
            Kind::Other => false,
        };
        if rides && frame_bytes <= self.frame_bytes_max { Lane::Srd } else { Lane::Plain }
    }

    fn lane_of(&self, waiting: &Waiting) -> Lane {
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
}

/// Which list a flow is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum List {
    #[default]
    None,
    Fresh,
    Old,
}

/// The frames of one flow.
#[derive(Debug, Default)]
pub(crate) struct FlowQueue {
    frames: VecDeque<Waiting>,
    bytes: usize,
    deficit: i64,
    list: List,
    link: Link,
    codel: Codel,
}

impl FlowQueue {
    /// Bytes of heap that it keeps while nothing waits.
    pub(crate) const KEPT_BYTES: usize = RING_KEPT * size_of::<Waiting>();

    /// Whether no list names it, so that its slot may become another flow's.
    pub(crate) fn is_unlisted(&self) -> bool {
        self.list == List::None
    }

    /// The cost of its frames.
    fn cost(&self) -> usize {
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

/// The flows of one lane that have frames, or had some a moment ago.
#[derive(Debug, Default)]
struct Lists {
    fresh: VecDeque<u32>,
    old: VecDeque<u32>,
}

impl Lists {
    fn push(&mut self, slot: u32, fresh: bool) {
        if fresh { self.fresh.push_back(slot) } else { self.old.push_back(slot) }
    }
}

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// The flow.
    pub slot: u32,
    /// Whether it has only just begun.
    pub fresh: bool,
    /// Bytes of its next frame.
    pub frame_bytes: usize,
}

/// The queue of one peer: which flows have frames, in which order they go.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    lanes: [Lists; 2],
    rule: Rule,
    fattest: Fattest,
    frames: usize,
    bytes: usize,
}

impl Scheduler {
    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no frame waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Whether any flow is in a lane; perhaps one that has run dry, or whose next frame takes
    /// the other.
    pub(crate) fn has(&self, lane: Lane) -> bool {
        let lists = &self.lanes[lane as usize];
        !(lists.fresh.is_empty() && lists.old.is_empty())
    }

    /// The lane that a frame would take.
    pub(crate) fn lane(&self, kind: Kind, frame_bytes: usize) -> Lane {
        self.rule.lane(kind, frame_bytes)
    }

    /// From now on this rides SRD. Flows whose next frame takes another lane change over.
    pub(crate) fn set_rule(&mut self, flows: &[FlowQueue], rule: Rule) {
        if rule == self.rule {
            return;
        }
        self.rule = rule;
        let before = core::mem::take(&mut self.lanes);
        for (lane, lists) in Lane::ALL.into_iter().zip(before) {
            let fresh = lists.fresh.into_iter().map(|slot| (slot, true));
            for (slot, fresh) in fresh.chain(lists.old.into_iter().map(|slot| (slot, false))) {
                let next = flows[slot as usize].frames.front();
                let lane = next.map_or(lane, |waiting| rule.lane_of(waiting));
                self.lanes[lane as usize].push(slot, fresh);
            }
        }
    }

    /// Forgets all frames.
    pub(crate) fn clear(&mut self, flows: &mut [FlowQueue]) {
        for lists in core::mem::take(self).lanes {
            for slot in lists.fresh.into_iter().chain(lists.old) {
                flows[slot as usize] = FlowQueue::default();
            }
        }
    }

    /// Puts a frame in line.
    pub(crate) fn push(
        &mut self,
        flows: &mut [FlowQueue],
        slot: u32,
        waiting: Waiting,
        aqm: &Aqm,
        counts: &mut QueueCounts,
    ) {
        let lane = self.rule.lane_of(&waiting);
        self.bytes += waiting.frame.len();
        self.frames += 1;
        let flow = &mut flows[slot as usize];
        flow.bytes += waiting.frame.len();
        flow.frames.push_back(waiting);
        if flow.list == List::None {
            flow.list = List::Fresh;
            flow.deficit = QUANTUM_BYTES;
            self.lanes[lane as usize].push(slot, true);
        }
        self.resized(flows, slot);
        while self.bytes + self.frames * RECORD_BYTES > aqm.bytes_max
            && self.drop_from_fattest(flows, counts)
        {}
    }

    /// A flow has more or fewer frames than before.
    fn resized(&mut self, flows: &mut [FlowQueue], slot: u32) {
        let cost = flows[slot as usize].cost();
        self.fattest.place(flows, slot, cost);
    }

    /// Drops the oldest half of the flow that holds (nearly) most.
    fn drop_from_fattest(&mut self, flows: &mut [FlowQueue], counts: &mut QueueCounts) -> bool {
        // Q4
        let Some(fattest) = self.fattest.find() else { return false };
        let flow = &mut flows[fattest as usize];
        let keep = flow.bytes / 2;
        while flow.bytes > keep
            && let Some(dropped) = flow.frames.pop_front()
        {
            flow.bytes -= dropped.frame.len();
            self.bytes -= dropped.frame.len();
            self.frames -= 1;
            counts.dropped_full += 1;
        }
        self.resized(flows, fattest);
        true
    }

    /// The flow of a lane whose turn it is.
    pub(crate) fn next(&mut self, flows: &mut [FlowQueue], lane: Lane) -> Option<Turn> {
        loop {
            let lists = &mut self.lanes[lane as usize];
            let fresh = !lists.fresh.is_empty();
            let list = if fresh { &mut lists.fresh } else { &mut lists.old };
            let &slot = list.front()?;
            let flow = &mut flows[slot as usize];
            let Some(waiting) = flow.frames.front() else {
                // A flow that ran dry while fresh goes round once more as an old one, so that
                // it cannot be fresh again at once.
                list.pop_front();
                if fresh && !lists.old.is_empty() {
                    flow.list = List::Old;
                    lists.old.push_back(slot);
                } else {
                    flow.list = List::None;
                    if flow.frames.capacity() > RING_KEPT {
                        flow.frames = VecDeque::new();
                    }
                }
                continue;
            };
            let own = self.rule.lane_of(waiting);
            if own != lane {
                list.pop_front();
                self.lanes[own as usize].push(slot, fresh);
            } else if flow.deficit <= 0 {
                flow.deficit += QUANTUM_BYTES;
                list.pop_front();
                flow.list = List::Old;
                lists.old.push_back(slot);
            } else {
                return Some(Turn { slot, fresh, frame_bytes: waiting.frame.len() });
            }
        }
    }

    /// Takes the frame of the flow that [`Scheduler::next`] named; `None` if the delay law took
    /// what there was, or the frame behind it takes the other lane.
    pub(crate) fn take(
        &mut self,
        flows: &mut [FlowQueue],
        turn: Turn,
        lane: Lane,
        now: Instant,
        aqm: &Aqm,
        counts: &mut QueueCounts,
    ) -> Option<Waiting> {
        let flow = &mut flows[turn.slot as usize];
        let taken = loop {
            if flow.frames.front().is_none_or(|waiting| self.rule.lane_of(waiting) != lane) {
                break None;
            }
            let Some(mut waiting) = flow.frames.pop_front() else { break None };
            let bytes = waiting.frame.len();
            flow.bytes -= bytes;
            self.bytes -= bytes;
            self.frames -= 1;
            // Q2
            let late = now.since(waiting.at) > aqm.target && !flow.frames.is_empty();
            if flow.codel.strikes(late, now, aqm.interval) {
                // Q3
                if !ecn::mark(&mut waiting.frame[OFFLOAD_BYTES..]) {
                    counts.dropped_late += 1;
                    continue;
                }
                counts.marked += 1;
            }
            flow.deficit -= i64::try_from(bytes).unwrap_or(i64::MAX);
            break Some(waiting);
        };
        self.resized(flows, turn.slot);
        taken
    }
}

#[cfg(test)]
mod tests;
