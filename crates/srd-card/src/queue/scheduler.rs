//! Frames that wait for one peer: fair between tenants, and between the flows of each; and short.
//!
//! Tenants share a peer by deficit round robin, whatever number of flows each has (Q5). The flows
//! of a tenant are queued as in FQ-CoDel (RFC 8290): deficit round robin over flows with something
//! to send, flows that have just begun first. A flow whose frames have waited for longer than the
//! target, others behind them, for a whole interval, has frames marked by CoDel's law (RFC 8289),
//! ever more often; or dropped, if its packets are not ECN-capable. Bursts pass unmarked: a hole
//! that is filled lets go of all that waited behind it at once.
//!
//! A peer has two lanes, for the transport has two queues: frames that ride SRD, and those that go
//! plainly. A flow is in the lane that its next frame takes, so that a lane whose queue in the
//! transport is full holds up no frame of the other.
//!
//! Bound: `queue_bytes_max` per peer, frames and the records of them; beyond it the flow with
//! (nearly) most bytes, of the tenant with most, loses its oldest frames. [`TENANTS_MAX`] tenants.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use srd_proto::time::Instant;

use super::fattest::Fattest;
pub(crate) use super::flow::{Aqm, FlowQueue, Kind, Lane, QueueCounts, Rule, Turn, Waiting};
use super::flow::{QUANTUM_BYTES, RECORD_BYTES};
use super::tenant::{Held, Tenant};
use crate::wire::cloud::Trailer;

/// Bytes that a tenant owes at most: a frame of the largest size.
const DEBT_BYTES_MAX: i64 = 64 * 1024;
/// Tenants with frames for one peer.
pub(crate) const TENANTS_MAX: usize = 4096;

/// The queue of one peer: which tenants have frames, and in which order they go. An overlay is one
/// tenant, which takes turns with no other: all else is for clouds.
#[derive(Debug)]
pub(crate) struct Scheduler {
    /// By place; the first one is number zero's.
    tenants: Vec<Tenant>,
    rule: Rule,
    /// The places of the other numbers.
    places: BTreeMap<u32, u16>,
    /// Places of tenants that have no flows.
    free: Vec<u16>,
    /// By lane, the tenants that may have frames, the next one first; of several tenants.
    turns: [VecDeque<u16>; 2],
    /// Which of several tenants holds most.
    fattest: Fattest,
    /// The frames of several tenants.
    held: Held,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            tenants: vec![Tenant::default()],
            rule: Rule::default(),
            places: BTreeMap::new(),
            free: Vec::new(),
            turns: Default::default(),
            fattest: Fattest::default(),
            held: Held::default(),
        }
    }
}

impl Scheduler {
    fn held(&self) -> Held {
        match &self.tenants[..] {
            [only] => only.held(),
            _ => self.held,
        }
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.held().bytes
    }

    /// Whether no frame waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.held().frames == 0
    }

    /// Whether any flow is in a lane; perhaps one that has run dry, or whose next frame takes
    /// the other.
    pub(crate) fn has(&self, lane: Lane) -> bool {
        match &self.tenants[..] {
            [only] => only.has(lane),
            _ => !self.turns[lane as usize].is_empty(),
        }
    }

    /// The lane that a frame would take.
    pub(crate) fn lane(&self, kind: Kind, frame_bytes: usize) -> Lane {
        self.rule.lane(kind, frame_bytes)
    }

    /// From now on this rides SRD. Flows whose next frame takes another lane change over.
    #[inline]
    pub(crate) fn set_rule(&mut self, flows: &[FlowQueue], rule: Rule) {
        if rule != self.rule {
            self.change_rule(flows, rule);
        }
    }

    #[cold]
    #[inline(never)]
    fn change_rule(&mut self, flows: &[FlowQueue], rule: Rule) {
        self.rule = rule;
        for place in 0..self.tenants.len() {
            self.tenants[place].set_rule(flows, rule);
            if self.tenants.len() > 1 {
                self.list(place_number(place));
            }
        }
    }

    /// Forgets all frames.
    pub(crate) fn clear(&mut self, flows: &mut [FlowQueue]) {
        for tenant in &mut core::mem::take(self).tenants {
            tenant.clear(flows);
        }
    }

    /// Puts a frame of a tenant's flow in line; behind those of the flow that wait, if these are of
    /// another tenant's.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        flows: &mut [FlowQueue],
        (number, slot): (u32, u32),
        waiting: Waiting,
        aqm: &Aqm,
        counts: &mut QueueCounts,
    ) {
        if let ([only], 0) = (&mut self.tenants[..], number) {
            only.push(flows, slot, waiting, self.rule);
            while only.cost() > aqm.bytes_max
                && let Some((_, frames)) = only.drop_from_fattest(flows)
            {
                counts.dropped_full += frames; // Q4
            }
            return;
        }
        self.push_beside(flows, (number, slot), waiting, aqm, counts);
    }

    /// Adds a frame of a cloud, whose trailer is apart, to the last one of its queue, if the two
    /// may share a datagram of so many bytes. Returns whether it was added; if not, push it, its
    /// trailer behind it. // C6
    pub(crate) fn join(
        &mut self,
        flows: &mut [FlowQueue],
        slot: u32,
        (waiting, trailer): (&Waiting, &Trailer),
        bytes_max: usize,
        aqm: &Aqm,
        counts: &mut QueueCounts,
    ) -> bool {
        if self.tenants.len() == 1 {
            return false;
        }
        let flow = &mut flows[slot as usize];
        let Some(bytes) = flow.join(waiting, trailer, bytes_max) else { return false };
        let place = flow.tenant;
        self.held.bytes += bytes;
        self.tenants[usize::from(place)].grown(flows, slot, bytes);
        self.resized(place);
        self.shorten(flows, aqm, counts);
        true
    }

    /// The flow of a lane whose turn it is.
    #[inline(always)]
    pub(crate) fn next(&mut self, flows: &mut [FlowQueue], lane: Lane) -> Option<Turn> {
        match &mut self.tenants[..] {
            [only] => only.next(flows, lane, self.rule),
            _ => self.next_of_several(flows, lane),
        }
    }

    /// Takes the frame of the flow that [`Scheduler::next`] named; `None` if the delay law took
    /// what there was, or the frame behind it takes the other lane.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        flows: &mut [FlowQueue],
        turn: Turn,
        lane: Lane,
        now: Instant,
        aqm: &Aqm,
        counts: &mut QueueCounts,
    ) -> Option<Waiting> {
        match &mut self.tenants[..] {
            [only] => only.take(flows, turn.slot, (lane, self.rule), now, aqm, counts),
            _ => self.take_of_several(flows, turn, lane, now, aqm, counts),
        }
    }
}

/// Tenants beside each other. // Q5
impl Scheduler {
    /// The place of a tenant, which may be a new one. None: there are [`TENANTS_MAX`].
    fn place_of(&mut self, number: u32) -> Option<u16> {
        if number == 0 {
            return Some(0);
        }
        if let Some(place) = self.places.get(&number) {
            return Some(*place);
        }
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.tenants.len() < TENANTS_MAX => {
                self.held = self.held();
                self.tenants.push(Tenant::default());
                if self.tenants.len() == 2 {
                    self.list(0);
                    self.resized(0);
                }
                place_number(self.tenants.len() - 1)
            }
            None => return None,
        };
        self.tenants[usize::from(place)].number = number;
        self.places.insert(number, place);
        Some(place)
    }

    /// Lists a tenant where it has flows.
    fn list(&mut self, place: u16) {
        let tenant = &mut self.tenants[usize::from(place)];
        for lane in Lane::ALL {
            if tenant.has(lane) && !tenant.listed[lane as usize] {
                if tenant.listed == [false; 2] {
                    tenant.deficit = QUANTUM_BYTES;
                }
                tenant.listed[lane as usize] = true;
                self.turns[lane as usize].push_back(place);
            }
        }
    }

    /// Takes a tenant that is first in a lane, and has no flows there, out of it.
    fn unlist(&mut self, place: u16, lane: Lane) {
        self.turns[lane as usize].pop_front();
        let tenant = &mut self.tenants[usize::from(place)];
        tenant.listed[lane as usize] = false;
        if tenant.listed == [false; 2] && place > 0 {
            self.places.remove(&tenant.number);
            self.free.push(place);
        }
    }

    /// A tenant holds more or less than before.
    fn resized(&mut self, place: u16) {
        let cost = self.tenants[usize::from(place)].cost();
        self.fattest.place(&mut self.tenants[..], place.into(), cost);
    }

    #[inline(never)]
    fn push_beside(
        &mut self,
        flows: &mut [FlowQueue],
        (number, slot): (u32, u32),
        waiting: Waiting,
        aqm: &Aqm,
        counts: &mut QueueCounts,
    ) {
        let flow = &mut flows[slot as usize];
        let place = if flow.is_unlisted() {
            let Some(place) = self.place_of(number) else {
                counts.dropped_full += 1;
                return;
            };
            flow.tenant = place;
            place
        } else {
            flow.tenant
        };
        self.held.frames += 1;
        self.held.bytes += waiting.frame.len();
        self.tenants[usize::from(place)].push(flows, slot, waiting, self.rule);
        self.list(place);
        self.resized(place);
        self.shorten(flows, aqm, counts);
    }

    /// Drops frames until they take no more than they may.
    #[inline]
    fn shorten(&mut self, flows: &mut [FlowQueue], aqm: &Aqm, counts: &mut QueueCounts) {
        while self.held.bytes + self.held.frames * RECORD_BYTES > aqm.bytes_max
            && self.drop_from_fattest(flows, counts)
        {}
    }

    /// Drops the oldest half of the largest flow of the tenant that holds most.
    fn drop_from_fattest(&mut self, flows: &mut [FlowQueue], counts: &mut QueueCounts) -> bool {
        // Q4
        let place = self.fattest.find().unwrap_or(0);
        let tenant = &mut self.tenants[place as usize];
        let Some((dropped, frames)) = tenant.drop_from_fattest(flows) else { return false };
        self.resized(u16::try_from(place).unwrap_or(0));
        self.held = self.held.less(dropped);
        counts.dropped_full += frames;
        true
    }

    #[inline(never)]
    fn next_of_several(&mut self, flows: &mut [FlowQueue], lane: Lane) -> Option<Turn> {
        loop {
            let &place = self.turns[lane as usize].front()?;
            let tenant = &mut self.tenants[usize::from(place)];
            let Some(found) = tenant.next(flows, lane, self.rule) else {
                // Perhaps its flows have frames for the other lane.
                self.list(place);
                self.unlist(place, lane);
                continue;
            };
            if tenant.deficit <= 0 && self.turns[lane as usize].len() > 1 {
                tenant.deficit += QUANTUM_BYTES;
                self.turns[lane as usize].rotate_left(1);
                continue;
            }
            return Some(Turn { tenant: place, ..found });
        }
    }

    #[inline(never)]
    fn take_of_several(
        &mut self,
        flows: &mut [FlowQueue],
        turn: Turn,
        lane: Lane,
        now: Instant,
        aqm: &Aqm,
        counts: &mut QueueCounts,
    ) -> Option<Waiting> {
        let tenant = &mut self.tenants[usize::from(turn.tenant)];
        let before = tenant.held();
        let taken = tenant.take(flows, turn.slot, (lane, self.rule), now, aqm, counts);
        self.held = self.held.less(before.less(tenant.held()));
        if let Some(waiting) = &taken {
            let bytes = i64::try_from(waiting.frame.len()).unwrap_or(i64::MAX);
            // A tenant that was alone owes nothing to one that comes later.
            tenant.deficit = (tenant.deficit - bytes).max(-DEBT_BYTES_MAX);
        }
        self.resized(turn.tenant);
        taken
    }
}

/// Places are fewer than [`TENANTS_MAX`].
fn place_number(place: usize) -> u16 {
    u16::try_from(place).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
