//! Frames of one tenant that wait for one peer: the tenant's flows, by lane (SRD, or plain
//! encapsulation), and their order. The order is that of FQ-CoDel (RFC 8290): new flows first.

use alloc::collections::VecDeque;

use srd_proto::time::Instant;

use super::fattest::{Fattest, Link, Linked};
use super::flow::{
    Aqm, FlowQueue, Lane, List, QUANTUM_BYTES, QueueCounts, QueuedFrame, RECORD_BYTES, RING_KEPT,
    Rule, Turn,
};

/// Flows of one lane that have frames, or had frames until a moment ago. New flows and old flows
/// are in separate lists.
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

/// Number of frames, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Backlog {
    pub(super) frames: usize,
    pub(super) bytes: usize,
}

impl Backlog {
    /// Returns this amount less a smaller amount.
    pub(super) fn less(self, other: Self) -> Self {
        Self { frames: self.frames - other.frames, bytes: self.bytes - other.bytes }
    }
}

/// Frames of one tenant that wait for one peer.
#[derive(Debug, Default)]
pub(super) struct Tenant {
    pub(super) number: u32,
    /// For each lane, bytes that the tenant may still send before it is the next tenant's turn;
    /// negative after a frame that was larger than the rest.
    pub(super) deficits: [i64; 2],
    /// For each lane, whether the tenant is in the scheduler's list of turns.
    pub(super) listed: [bool; 2],
    lanes: [Lists; 2],
    fattest: Fattest,
    held: Backlog,
    /// Link of the tenant in the list for its size.
    pub(super) link: Link,
}

impl Linked for [Tenant] {
    fn link(&mut self, place: u32) -> &mut Link {
        &mut self[place as usize].link
    }
}

impl Tenant {
    pub(super) fn held(&self) -> Backlog {
        self.held
    }

    /// Bytes that the waiting frames cost: their content and their records.
    pub(super) fn cost(&self) -> usize {
        self.held.bytes + self.held.frames * RECORD_BYTES
    }

    /// Whether any flow of the tenant is in a lane.
    pub(super) fn has(&self, lane: Lane) -> bool {
        let lists = &self.lanes[lane as usize];
        !(lists.fresh.is_empty() && lists.old.is_empty())
    }

    /// Applies a new rule: a flow moves to the other lane if the rule puts its next frame there.
    pub(super) fn set_rule(&mut self, flows: &[FlowQueue], rule: Rule) {
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

    /// Removes all waiting frames of the tenant.
    pub(super) fn clear(&mut self, flows: &mut [FlowQueue]) {
        for lists in core::mem::take(self).lanes {
            for slot in lists.fresh.into_iter().chain(lists.old) {
                flows[slot as usize] = FlowQueue::default();
            }
        }
    }

    /// Appends a frame to the queue of its flow.
    #[inline(always)] // for the case of one tenant; the case of several has a separate copy
    pub(super) fn push(
        &mut self,
        flows: &mut [FlowQueue],
        slot: u32,
        waiting: QueuedFrame,
        rule: Rule,
    ) {
        let lane = rule.lane_of(&waiting);
        self.held.bytes += waiting.frame.len();
        self.held.frames += 1;
        let flow = &mut flows[slot as usize];
        flow.bytes += waiting.frame.len();
        flow.frames.push_back(waiting);
        if flow.list == List::None {
            flow.list = List::Fresh;
            flow.deficit = QUANTUM_BYTES;
            self.lanes[lane as usize].push(slot, true);
        }
        self.resized(flows, slot);
    }

    /// Counts the bytes by which the last frame of a flow has grown.
    pub(super) fn grown(&mut self, flows: &mut [FlowQueue], slot: u32, bytes: usize) {
        self.held.bytes += bytes;
        flows[slot as usize].bytes += bytes;
        self.resized(flows, slot);
    }

    /// Moves a flow to the list for its present size.
    #[inline]
    fn resized(&mut self, flows: &mut [FlowQueue], slot: u32) {
        let cost = flows[slot as usize].cost();
        self.fattest.place(flows, slot, cost);
    }

    /// Drops the oldest half of the flow with (nearly) the most bytes. Returns the amount that was
    /// removed, and the number of frames, in which each frame of a bundle counts.
    pub(super) fn drop_from_fattest(&mut self, flows: &mut [FlowQueue]) -> Option<(Backlog, u64)> {
        let (before, mut frames) = (self.held, 0);
        let fattest = self.fattest.find()?;
        let flow = &mut flows[fattest as usize];
        let keep = flow.bytes / 2;
        while flow.bytes > keep
            && let Some(dropped) = flow.frames.pop_front()
        {
            frames += dropped.frames();
            flow.bytes -= dropped.frame.len();
            self.held.bytes -= dropped.frame.len();
            self.held.frames -= 1;
        }
        self.resized(flows, fattest);
        Some((before.less(self.held), frames))
    }

    /// Returns the flow of a lane that sends next; `None` if no flow has a frame for the lane.
    #[inline(always)]
    pub(super) fn next(&mut self, flows: &mut [FlowQueue], lane: Lane, rule: Rule) -> Option<Turn> {
        loop {
            let lists = &mut self.lanes[lane as usize];
            let fresh = !lists.fresh.is_empty();
            let list = if fresh { &mut lists.fresh } else { &mut lists.old };
            let &slot = list.front()?;
            let flow = &mut flows[slot as usize];
            let Some(waiting) = flow.frames.front() else {
                // A new flow that has become empty is kept for one round as an old flow, so that
                // it is not new again at once.
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
            let own = rule.lane_of(waiting);
            if own != lane {
                list.pop_front();
                self.lanes[own as usize].push(slot, fresh);
            } else if flow.deficit <= 0 {
                flow.deficit += QUANTUM_BYTES;
                list.pop_front();
                flow.list = List::Old;
                lists.old.push_back(slot);
            } else {
                let frame_bytes = waiting.frame.len();
                return Some(Turn { tenant: 0, slot, fresh, frame_bytes });
            }
        }
    }

    /// Takes the first frame of a flow that CoDel does not drop. Returns `None` if no frame is
    /// left, or if the rule puts the next frame into the other lane.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        flows: &mut [FlowQueue],
        slot: u32,
        (lane, rule): (Lane, Rule),
        now: Instant,
        aqm: &Aqm,
        counts: &mut QueueCounts,
    ) -> Option<QueuedFrame> {
        let flow = &mut flows[slot as usize];
        let taken = loop {
            if flow.frames.front().is_none_or(|waiting| rule.lane_of(waiting) != lane) {
                break None;
            }
            let Some(mut waiting) = flow.frames.pop_front() else { break None };
            let bytes = waiting.frame.len();
            flow.bytes -= bytes;
            self.held.bytes -= bytes;
            self.held.frames -= 1;
            // Q2: CoDel marks
            let late = now.since(waiting.at) > aqm.target && !flow.frames.is_empty();
            if flow.codel.strikes(late, now, aqm.interval) {
                // Q3: Drops in place of marks
                if !waiting.mark() {
                    counts.dropped_late += waiting.frames();
                    continue;
                }
                counts.marked += 1;
            }
            flow.deficit -= i64::try_from(bytes).unwrap_or(i64::MAX);
            break Some(waiting);
        };
        self.resized(flows, slot);
        taken
    }
}
