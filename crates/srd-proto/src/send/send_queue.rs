//! Datagrams that wait, are in flight, or wait to be sent again.
//!
//! Retransmissions are sent first. Then come low-latency flows, up to a quarter of the bytes while
//! bulk waits. Then comes bulk, by deficit round robin over queue pairs (Shreedhar, Varghese 1995).
//! Datagrams of a queue pair in one class do not wait behind its datagrams in the other.
//!
//! `peek` selects a datagram and changes nothing; `take` records it as in flight. Each call takes
//! constant time, except the look-up of a flow and the calls that return every datagram.
//!
//! Bounds: `send_queue_datagrams_max` datagrams, `flows_max` flows.
//!
//! Invariants: a datagram is in the chain that its `place` names and in no other. A flow is in the
//! ring of its class while a datagram waits in it, and otherwise in the chain of idle flows.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use bytes::Bytes;

use crate::chain::{Chain, Links};
use crate::error::SendError;
use crate::event::{Class, Datagram};
use crate::ids::{DatagramId, Qpn};

/// PSN of a datagram without a PSN: it was never sent, or it lost its identity and will get another
/// PSN.
const NOT_SENT: u64 = u64::MAX;
/// Bytes that a flow may send per round of the deficit round robin.
const QUANTUM_BYTES: i64 = 9000;

/// State of a datagram in the send queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatagramState {
    /// The slot is free.
    Free,
    /// Waiting in its flow for its first transmission.
    Queued,
    /// The datagram was sent, and is neither settled nor declared lost.
    InFlight,
    /// Waiting to be sent again, after a loss or after the pause that follows a refusal.
    Retransmit,
    /// Refused because there was no receive buffer, and waiting for its next attempt.
    Refused,
    /// Lost, and waiting until it is known whether packets of its size pass.
    Aside,
}

/// A datagram in the send queue, from the call of the application until its completion.
#[derive(Debug)]
pub(crate) struct OutgoingDatagram {
    /// The content of the datagram.
    pub payload: Bytes,
    /// The caller's value, which the completion returns.
    pub user: u64,
    /// Eight bytes of the header that are opaque to SRD.
    pub imm: u64,
    /// Identifier that the application received for the datagram.
    pub id: DatagramId,
    /// PSN of the first transmission: the datagram's identity. `NOT_SENT` while the datagram is
    /// without an identity.
    first_psn: u64,
    /// PSN of the newest transmission; `NOT_SENT` before the first transmission.
    pub last_psn: u64,
    /// Destination queue pair.
    pub dst_qpn: Qpn,
    /// Source queue pair.
    pub src_qpn: Qpn,
    /// Index of the flow in which the datagram waits for its first transmission.
    flow: u16,
    /// Class of the datagram's flow: bulk or low-latency.
    pub class: Class,
    /// Whether the completion of the datagram was already returned to the application. The datagram
    /// remains in the transport, so that its PSN is settled and the windows of both ends stay
    /// complete.
    pub orphan: bool,
    /// Number of times that the peer has refused the datagram for lack of a receive buffer.
    pub rnr_count: u8,
    /// State of the datagram.
    pub place: DatagramState,
}

impl OutgoingDatagram {
    /// The datagram's identity; `None` before it is sent, or after it has lost its identity.
    pub(crate) fn first_psn(&self) -> Option<u64> {
        (self.first_psn != NOT_SENT).then_some(self.first_psn)
    }
}

/// Datagrams of a queue pair in one class.
#[derive(Debug)]
struct Flow {
    qpn: Qpn,
    waiting: Chain,
    deficit: i64,
    class: Class,
}

/// The send queue of one context.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    held: Vec<OutgoingDatagram>,
    /// Links of the datagrams, each of which is in its flow, in `retransmit`, in `rnr` or in
    /// `aside`.
    held_links: Links,
    free: Vec<u32>,
    flows: Vec<Flow>,
    /// Links of the flows in `low_latency`, `bulk` or `idle`.
    flow_links: Links,
    flow_of: BTreeMap<(Qpn, Class), u16>,
    retransmit: Chain,
    /// Datagrams refused because there was no receive buffer; they are sent again after a pause.
    rnr: Chain,
    /// Lost datagrams while it is in doubt whether packets of their size pass.
    aside: Chain,
    low_latency: Chain,
    bulk: Chain,
    /// Flows without a waiting datagram, the flow that has been idle longest first.
    idle: Chain,
    /// Bulk bytes sent minus three times the low-latency bytes sent while bulk waited.
    low_latency_credit: i64,
    /// Payload bytes that wait for their first transmission.
    unsent_bytes: u64,
    refused: bool,
}

/// Bytes by which `low_latency_credit` may fall below zero before bulk is sent first.
const LOW_LATENCY_BURST_BYTES: i64 = 64 * 1024;

impl SendQueue {
    /// Appends a datagram to its flow.
    pub(crate) fn push(
        &mut self,
        id: DatagramId,
        d: Datagram,
        datagrams_max: u32,
        flows_max: u32,
    ) -> Result<(), SendError> {
        if self.held.len() - self.free.len() >= datagrams_max as usize {
            self.refused = true;
            return Err(SendError::QueueFull);
        }
        let flow = self.flow(d.src_qpn, d.class, flows_max)?;
        self.unsent_bytes += d.payload.len() as u64;
        let held = OutgoingDatagram {
            payload: d.payload,
            user: d.user,
            imm: d.imm,
            id,
            first_psn: NOT_SENT,
            last_psn: NOT_SENT,
            dst_qpn: d.dst_qpn,
            src_qpn: d.src_qpn,
            flow,
            class: d.class,
            orphan: false,
            rnr_count: 0,
            place: DatagramState::Queued,
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.held[slot as usize] = held;
            slot
        } else {
            self.held.push(held);
            self.held_links.grow();
            u32::try_from(self.held.len() - 1).unwrap_or(u32::MAX)
        };
        let f = &mut self.flows[usize::from(flow)];
        let was_idle = f.waiting.is_empty();
        f.waiting.push_back(&mut self.held_links, slot);
        if was_idle {
            f.deficit = f.deficit.min(0) + QUANTUM_BYTES;
            self.idle.remove(&mut self.flow_links, flow.into());
            let ring = match d.class {
                Class::Bulk => &mut self.bulk,
                Class::LowLatency => &mut self.low_latency,
            };
            ring.push_back(&mut self.flow_links, flow.into());
        }
        Ok(())
    }

    fn flow(&mut self, qpn: Qpn, class: Class, flows_max: u32) -> Result<u16, SendError> {
        if let Some(&flow) = self.flow_of.get(&(qpn, class)) {
            return Ok(flow);
        }
        let fresh = Flow { qpn, waiting: Chain::default(), deficit: 0, class };
        let flow = if self.flows.len() < flows_max as usize {
            let flow = u16::try_from(self.flows.len()).map_err(|_| SendError::TooManyFlows)?;
            self.flows.push(fresh);
            self.flow_links.grow();
            self.idle.push_back(&mut self.flow_links, flow.into());
            flow
        } else {
            // E7. A flow without a waiting datagram gives its entry to the new one.
            let idle = self.idle.first().and_then(|flow| u16::try_from(flow).ok());
            let flow = idle.ok_or(SendError::TooManyFlows)?;
            let before = core::mem::replace(&mut self.flows[usize::from(flow)], fresh);
            self.flow_of.remove(&(before.qpn, before.class));
            flow
        };
        self.flow_of.insert((qpn, class), flow);
        Ok(flow)
    }

    /// Slot of the datagram to be sent next.
    pub(crate) fn peek(&self) -> Option<u32> {
        let next = || self.flows[self.next_flow()? as usize].waiting.first();
        // D12: Classes and fair turns
        self.retransmit.first().or_else(next)
    }

    fn next_flow(&self) -> Option<u32> {
        // D12: Classes and fair turns
        match (self.low_latency.first(), self.bulk.first()) {
            (Some(_), Some(b)) if self.low_latency_credit < -LOW_LATENCY_BURST_BYTES => Some(b),
            (Some(l), _) => Some(l),
            (None, b) => b,
        }
    }

    /// Takes the datagram that `peek` returned, to be sent under `psn` in a packet of `bytes`.
    pub(crate) fn take(&mut self, slot: u32, psn: u64, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.retransmit.first() == Some(slot) {
            self.retransmit.pop_front(&mut self.held_links);
        } else if let Some(flow) = self.next_flow() {
            self.unsent_bytes -= self.held[slot as usize].payload.len() as u64;
            self.take_from(flow, bytes);
        }
        let held = &mut self.held[slot as usize];
        held.place = DatagramState::InFlight;
        held.last_psn = psn;
        if held.first_psn == NOT_SENT {
            held.first_psn = psn;
        }
    }

    fn take_from(&mut self, flow: u32, bytes: i64) {
        let bulk_waits = !self.bulk.is_empty();
        let f = &mut self.flows[flow as usize];
        f.waiting.pop_front(&mut self.held_links);
        f.deficit -= bytes;
        let (emptied, rotate) = (f.waiting.is_empty(), f.deficit <= 0);
        if rotate && !emptied {
            f.deficit += QUANTUM_BYTES;
        }
        let low = f.class == Class::LowLatency;
        let ring = if low { &mut self.low_latency } else { &mut self.bulk };
        if emptied {
            ring.remove(&mut self.flow_links, flow);
            self.idle.push_back(&mut self.flow_links, flow);
        } else if rotate {
            ring.remove(&mut self.flow_links, flow);
            ring.push_back(&mut self.flow_links, flow);
        }
        if low && bulk_waits {
            self.low_latency_credit = self.low_latency_credit.saturating_sub(3 * bytes);
        } else if !low {
            self.low_latency_credit = self.low_latency_credit.saturating_add(bytes).min(0);
        }
    }

    /// Returns the datagram in a slot.
    pub(crate) fn held(&self, slot: u32) -> &OutgoingDatagram {
        &self.held[slot as usize]
    }

    /// Whether the datagram with the identity `first_psn` has ended or has no identity any more. In
    /// both cases its `slot` is free or holds another identity.
    pub(crate) fn is_settled(&self, slot: u32, first_psn: u64) -> bool {
        let held = &self.held[slot as usize];
        held.place == DatagramState::Free || held.first_psn != first_psn
    }

    /// Appends a lost datagram to the retransmissions.
    pub(crate) fn requeue(&mut self, slot: u32) {
        let held = &mut self.held[slot as usize];
        if held.place == DatagramState::InFlight {
            held.place = DatagramState::Retransmit;
            self.retransmit.push_back(&mut self.held_links, slot);
        }
    }

    /// Turns a refused datagram into a new datagram in the same slot: it loses its identity and
    /// waits to be sent again.
    pub(crate) fn renew(&mut self, slot: u32) {
        // The datagram may have been declared lost before, and be in a chain already.
        self.unlink(slot);
        let held = &mut self.held[slot as usize];
        held.place = DatagramState::Refused;
        held.first_psn = NOT_SENT;
        held.rnr_count = held.rnr_count.saturating_add(1);
        self.rnr.push_back(&mut self.held_links, slot);
    }

    /// Removes a datagram from the chain in which it waits.
    fn unlink(&mut self, slot: u32) {
        let held = &self.held[slot as usize];
        match held.place {
            DatagramState::Free | DatagramState::InFlight => {}
            DatagramState::Retransmit => self.retransmit.remove(&mut self.held_links, slot),
            DatagramState::Refused => self.rnr.remove(&mut self.held_links, slot),
            DatagramState::Aside => self.aside.remove(&mut self.held_links, slot),
            DatagramState::Queued => {
                self.unsent_bytes -= held.payload.len() as u64;
                let f = &mut self.flows[usize::from(held.flow)];
                f.waiting.remove(&mut self.held_links, slot);
                if f.waiting.is_empty() {
                    let ring = match f.class {
                        Class::Bulk => &mut self.bulk,
                        Class::LowLatency => &mut self.low_latency,
                    };
                    ring.remove(&mut self.flow_links, held.flow.into());
                    self.idle.push_back(&mut self.flow_links, held.flow.into());
                }
            }
        }
    }

    /// Removes the identities of all lost datagrams that wait to be sent again. The caller has made
    /// sure that they were not delivered, so they may get new identities.
    pub(crate) fn forget_identities(&mut self) {
        let waits = |h: &&mut OutgoingDatagram| {
            matches!(h.place, DatagramState::Retransmit | DatagramState::Aside)
        };
        for held in self.held.iter_mut().filter(waits) {
            held.first_psn = NOT_SENT;
        }
    }

    /// Holds a lost datagram back until [`SendQueue::take_back`], because its size is in doubt.
    pub(crate) fn set_aside(&mut self, slot: u32) {
        let held = &mut self.held[slot as usize];
        if held.place == DatagramState::InFlight {
            held.place = DatagramState::Aside;
            self.aside.push_back(&mut self.held_links, slot);
        }
    }

    /// Moves all datagrams that were set aside to the retransmissions.
    pub(crate) fn take_back(&mut self) {
        while let Some(slot) = self.aside.pop_front(&mut self.held_links) {
            self.held[slot as usize].place = DatagramState::Retransmit;
            self.retransmit.push_back(&mut self.held_links, slot);
        }
    }

    /// Whether datagrams wait for the end of the pause after a refusal (RNR).
    pub(crate) fn has_rnr(&self) -> bool {
        !self.rnr.is_empty()
    }

    /// Moves all datagrams that were refused (RNR) and wait to the retransmissions, because the
    /// pause has ended.
    pub(crate) fn retry_rnr(&mut self) {
        while let Some(slot) = self.rnr.pop_front(&mut self.held_links) {
            self.held[slot as usize].place = DatagramState::Retransmit;
            self.retransmit.push_back(&mut self.held_links, slot);
        }
    }

    /// Ends a datagram and frees its slot. Returns its identifier and the caller's value for the
    /// completion, or `None` if the completion was already returned.
    pub(crate) fn finish(&mut self, slot: u32) -> Option<(DatagramId, u64)> {
        if self.held[slot as usize].place == DatagramState::Free {
            return None;
        }
        self.unlink(slot);
        let held = &mut self.held[slot as usize];
        held.place = DatagramState::Free;
        held.payload = Bytes::new();
        self.free.push(slot);
        (!held.orphan).then_some((held.id, held.user))
    }

    /// Returns the completion of a sent datagram before the peer has settled it. The datagram stays
    /// in the transport with a copy of its payload, because the application's memory must not be
    /// used after the completion.
    pub(crate) fn orphan(&mut self, slot: u32) -> Option<(DatagramId, u64)> {
        let held = &mut self.held[slot as usize];
        if !held.orphan {
            held.payload = Bytes::copy_from_slice(&held.payload);
        }
        self.abandon(slot)
    }

    /// Returns the completion of a sent datagram before the peer has settled it. Its payload is not
    /// copied, because the caller removes the whole queue next.
    pub(crate) fn abandon(&mut self, slot: u32) -> Option<(DatagramId, u64)> {
        let held = &mut self.held[slot as usize];
        let first = !core::mem::replace(&mut held.orphan, true);
        first.then_some((held.id, held.user))
    }

    /// Slots of all datagrams, or of those whose source queue pair is `of`.
    pub(crate) fn slots(&self, of: Option<Qpn>) -> Vec<u32> {
        (0u32..)
            .zip(&self.held)
            .filter(|(_, h)| h.place != DatagramState::Free && of.is_none_or(|q| h.src_qpn == q))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// Number of slots in the table of datagrams, used and free.
    #[cfg(debug_assertions)]
    pub(crate) fn slots_used(&self) -> usize {
        self.held.len()
    }

    /// Checks that each datagram and each flow is in the chain that belongs to its state.
    ///
    /// # Panics
    /// Panics if a datagram or a flow is in another chain.
    #[cfg(debug_assertions)]
    pub(crate) fn audit(&self) {
        let count = |place| self.held.iter().filter(|held| held.place == place).count();
        let in_place = |chain: Chain, place| {
            let slots = chain.iter(&self.held_links);
            slots.inspect(|slot| assert_eq!(self.held[*slot as usize].place, place)).count()
        };
        assert_eq!(count(DatagramState::Free), self.free.len());
        assert_eq!(
            count(DatagramState::Retransmit),
            in_place(self.retransmit, DatagramState::Retransmit)
        );
        assert_eq!(count(DatagramState::Refused), in_place(self.rnr, DatagramState::Refused));
        assert_eq!(count(DatagramState::Aside), in_place(self.aside, DatagramState::Aside));
        let waiting = |flow: &Flow| in_place(flow.waiting, DatagramState::Queued);
        assert_eq!(count(DatagramState::Queued), self.flows.iter().map(waiting).sum::<usize>());
        let unsent = self.held.iter().filter(|held| held.place == DatagramState::Queued);
        assert_eq!(self.unsent_bytes, unsent.map(|held| held.payload.len() as u64).sum::<u64>());
        let mut flows = 0;
        for (chain, class) in [
            (self.bulk, Some(Class::Bulk)),
            (self.low_latency, Some(Class::LowLatency)),
            (self.idle, None),
        ] {
            for flow in chain.iter(&self.flow_links) {
                let flow = &self.flows[flow as usize];
                assert_eq!(flow.waiting.is_empty(), class.is_none());
                assert!(class.is_none_or(|class| class == flow.class));
                flows += 1;
            }
        }
        assert_eq!((flows, self.flow_of.len()), (self.flows.len(), self.flows.len()));
    }

    /// Payload bytes that wait for their first transmission.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    /// Number of datagrams that wait or are in flight.
    pub(crate) fn len(&self) -> usize {
        self.held.len() - self.free.len()
    }

    /// Records that a send was refused because the queue was full.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }

    /// Whether a send was refused, and free space has not been reported since.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused
    }

    /// Whether a send was refused and at least a quarter of the queue is free again. The call
    /// returns true once for all refusals before it.
    pub(crate) fn take_writable(&mut self, datagrams_max: u32) -> bool {
        // E7: Full queue
        let room = self.refused && self.len() * 4 <= datagrams_max as usize * 3;
        if room {
            self.refused = false;
        }
        room
    }
}

#[cfg(test)]
mod tests;
