//! Frames that wait for one peer, in two lanes (SRD, and plain encapsulation). The order is fair
//! between tenants, and between the flows of each tenant; and queues are kept short.
//!
//! Tenants share a peer by deficit round robin, whatever number of flows each has (Q5). The flows
//! of a tenant are queued as in FQ-CoDel (RFC 8290): deficit round robin over flows with frames,
//! new flows first. If frames of a flow have waited longer than the target for a whole interval,
//! with other frames behind them, CoDel's law (RFC 8289) marks frames of the flow with increasing
//! frequency. Packets that are not ECN-capable are dropped instead. Bursts pass unmarked, because
//! they are normal: a flow in which a gap was filled sends many frames at once.
//!
//! A peer has two lanes, because the transport has two queues: one for frames that SRD carries, one
//! for the others. A flow is in the lane of its next frame. So a full queue of the transport does
//! not delay frames of the other lane.
//!
//! Bound: `queue_bytes_max` for each peer, for frames and their records. Beyond this, the flow with
//! (nearly) the most bytes, of the tenant with the most bytes, loses its oldest frames.
//! [`TENANTS_MAX`] tenants.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use srd_proto::time::Instant;

use super::fattest::Fattest;
pub(crate) use super::flow::{Aqm, FlowQueue, Kind, Lane, QueueCounts, QueuedFrame, Rule, Turn};
use super::flow::{QUANTUM_BYTES, RECORD_BYTES};
use super::tenant::{Backlog, Tenant};
use crate::wire::cloud::Trailer;

/// Largest number of bytes that a tenant may be in debt, that is, by which a deficit counter may
/// be below zero: a frame of the largest size.
const DEBT_BYTES_MAX: i64 = 64 * 1024;
/// Largest number of tenants with frames for one peer.
pub(crate) const TENANTS_MAX: usize = 4096;

/// Queue of one peer: the tenants with frames, and their order. Tenant number zero is the overlay
/// (the guest's own packets); the other tenants are instances of clouds. While the overlay is the
/// only tenant, there are no turns.
#[derive(Debug)]
pub(crate) struct Scheduler {
    /// Tenants by index; index zero belongs to tenant number zero.
    tenants: Vec<Tenant>,
    rule: Rule,
    /// Index of each tenant number except zero.
    places: BTreeMap<u32, u16>,
    /// Free indexes, whose tenants have left because they had no flows.
    free: Vec<u16>,
    /// For each lane, the tenants that may have frames, the next tenant first. Used only if there
    /// are several tenants.
    turns: [VecDeque<u16>; 2],
    /// Tenants by size, for the search of the largest. Used only if there are several tenants.
    fattest: Fattest,
    /// Number and bytes of the frames of all tenants. Used only if there are several tenants.
    held: Backlog,
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
            held: Backlog::default(),
        }
    }
}

impl Scheduler {
    fn held(&self) -> Backlog {
        match &self.tenants[..] {
            [only] => only.held(),
            _ => self.held,
        }
    }

    /// Number of bytes that wait for the peer.
    pub(crate) fn bytes(&self) -> usize {
        self.held().bytes
    }

    /// Bytes that the waiting frames cost: their content and their records.
    pub(crate) fn cost(&self) -> usize {
        let held = self.held();
        held.bytes + held.frames * RECORD_BYTES
    }

    /// Whether no frame waits for the peer.
    pub(crate) fn is_empty(&self) -> bool {
        self.held().frames == 0
    }

    /// Whether any flow is in a lane. The flow may be empty, or its next frame may take the other
    /// lane.
    pub(crate) fn has(&self, lane: Lane) -> bool {
        match &self.tenants[..] {
            [only] => only.has(lane),
            _ => !self.turns[lane as usize].is_empty(),
        }
    }

    /// Returns the lane of a frame of this kind and size under the present rule.
    pub(crate) fn lane(&self, kind: Kind, frame_bytes: usize) -> Lane {
        self.rule.lane(kind, frame_bytes)
    }

    /// Sets the rule that states which frames SRD carries. A flow moves to the other lane if the
    /// new rule puts its next frame there.
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

    /// Removes all waiting frames of the peer.
    pub(crate) fn clear(&mut self, flows: &mut [FlowQueue]) {
        for tenant in &mut core::mem::take(self).tenants {
            tenant.clear(flows);
        }
    }

    /// Appends a frame to the queue of a tenant's flow. If earlier frames of the flow wait under
    /// another tenant, the new frame waits under that tenant as well, so that the order is kept.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        flows: &mut [FlowQueue],
        (number, slot): (u32, u32),
        waiting: QueuedFrame,
        aqm: &Aqm,
        counts: &mut QueueCounts,
    ) {
        if let ([only], 0) = (&mut self.tenants[..], number) {
            only.push(flows, slot, waiting, self.rule);
            if only.cost() > aqm.bytes_max {
                self.shorten(flows, aqm, counts);
            }
            return;
        }
        self.push_beside(flows, (number, slot), waiting, aqm, counts);
    }

    /// Drops frames until the queue is within its bound.
    pub(crate) fn shorten(&mut self, flows: &mut [FlowQueue], aqm: &Aqm, counts: &mut QueueCounts) {
        while self.cost() > aqm.bytes_max && self.drop_from_fattest(flows, counts) {}
    }

    /// Drops the oldest half of the largest flow of the largest tenant. Returns whether there was a
    /// flow with frames.
    fn drop_from_fattest(&mut self, flows: &mut [FlowQueue], counts: &mut QueueCounts) -> bool {
        // Q4: Full queue
        if let [only] = &mut self.tenants[..] {
            let Some((_, frames)) = only.drop_from_fattest(flows) else { return false };
            counts.dropped_full += frames;
            return true;
        }
        let place = self.fattest.find().unwrap_or(0);
        let tenant = &mut self.tenants[place as usize];
        let Some((dropped, frames)) = tenant.drop_from_fattest(flows) else { return false };
        self.resized(u16::try_from(place).unwrap_or(0));
        self.held = self.held.less(dropped);
        counts.dropped_full += frames;
        true
    }

    /// Appends a frame of a cloud, whose trailer is separate, to the last frame of its queue, if
    /// the two may share a datagram of at most `bytes_max` bytes. Returns whether the frame was
    /// added. If not, the caller pushes the frame with its trailer. // C6
    pub(crate) fn join(
        &mut self,
        flows: &mut [FlowQueue],
        slot: u32,
        (waiting, trailer): (&QueuedFrame, &Trailer),
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

    /// Returns the flow of a lane that sends next; `None` if no frame waits in the lane.
    #[inline(always)]
    pub(crate) fn next(&mut self, flows: &mut [FlowQueue], lane: Lane) -> Option<Turn> {
        match &mut self.tenants[..] {
            [only] => only.next(flows, lane, self.rule),
            _ => self.next_of_several(flows, lane),
        }
    }

    /// Takes a frame of the flow that [`Scheduler::next`] returned. Returns `None` if CoDel dropped
    /// all frames of the flow, or if the next frame is for the other lane.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        flows: &mut [FlowQueue],
        turn: Turn,
        lane: Lane,
        now: Instant,
        aqm: &Aqm,
        counts: &mut QueueCounts,
    ) -> Option<QueuedFrame> {
        match &mut self.tenants[..] {
            [only] => only.take(flows, turn.slot, (lane, self.rule), now, aqm, counts),
            _ => self.take_of_several(flows, turn, lane, now, aqm, counts),
        }
    }
}

/// Scheduling between several tenants. // Q5
impl Scheduler {
    /// Returns the index of a tenant, and adds the tenant if it is new. Returns `None` if the
    /// tenant is new and there are already [`TENANTS_MAX`] tenants.
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

    /// Adds a tenant to the turns of each lane in which it has flows.
    fn list(&mut self, place: u16) {
        let tenant = &mut self.tenants[usize::from(place)];
        for lane in Lane::ALL {
            if tenant.has(lane) && !tenant.listed[lane as usize] {
                tenant.deficits[lane as usize] = QUANTUM_BYTES;
                tenant.listed[lane as usize] = true;
                self.turns[lane as usize].push_back(place);
            }
        }
    }

    /// Removes a tenant, which is first in a lane and has no flows there, from the lane's turns.
    fn unlist(&mut self, place: u16, lane: Lane) {
        self.turns[lane as usize].pop_front();
        let tenant = &mut self.tenants[usize::from(place)];
        tenant.listed[lane as usize] = false;
        if tenant.listed == [false; 2] && place > 0 {
            self.places.remove(&tenant.number);
            self.free.push(place);
        }
    }

    /// Moves a tenant to the list for its present size.
    fn resized(&mut self, place: u16) {
        let cost = self.tenants[usize::from(place)].cost();
        self.fattest.place(&mut self.tenants[..], place.into(), cost);
    }

    #[inline(never)]
    fn push_beside(
        &mut self,
        flows: &mut [FlowQueue],
        (number, slot): (u32, u32),
        waiting: QueuedFrame,
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

    #[inline(never)]
    fn next_of_several(&mut self, flows: &mut [FlowQueue], lane: Lane) -> Option<Turn> {
        loop {
            let &place = self.turns[lane as usize].front()?;
            let found = self.tenants[usize::from(place)].next(flows, lane, self.rule);
            if found.is_none() {
                // The tenant's flows may have frames for the other lane.
                self.list(place);
            }
            if self.ends_turn(place, lane) {
                continue;
            }
            match found {
                Some(found) => return Some(Turn { tenant: place, ..found }),
                None => self.unlist(place, lane),
            }
        }
    }

    /// Ends the turn of a tenant, which is first in a lane, if the tenant has used up its bytes and
    /// the lane has other tenants. Returns whether the turn has ended. A tenant in debt keeps its
    /// turns even without frames, because its next frame would otherwise begin without the debt.
    fn ends_turn(&mut self, place: u16, lane: Lane) -> bool {
        let turns = &mut self.turns[lane as usize];
        let deficit = &mut self.tenants[usize::from(place)].deficits[lane as usize];
        let ends = *deficit <= 0 && turns.len() > 1;
        if ends {
            *deficit += QUANTUM_BYTES;
            turns.rotate_left(1);
        }
        ends
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
    ) -> Option<QueuedFrame> {
        let tenant = &mut self.tenants[usize::from(turn.tenant)];
        let before = tenant.held();
        let taken = tenant.take(flows, turn.slot, (lane, self.rule), now, aqm, counts);
        self.held = self.held.less(before.less(tenant.held()));
        if let Some(waiting) = &taken {
            let bytes = i64::try_from(waiting.frame.len()).unwrap_or(i64::MAX);
            // A tenant that was alone has no debt towards a tenant that comes later.
            let deficit = &mut tenant.deficits[lane as usize];
            *deficit = (*deficit - bytes).max(-DEBT_BYTES_MAX);
        }
        self.resized(turn.tenant);
        taken
    }
}

/// Converts an index of a tenant, which is smaller than [`TENANTS_MAX`], to 16 bits.
fn place_number(place: usize) -> u16 {
    u16::try_from(place).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
