//! Datagrams that wait, travel, or wait to travel again.
//!
//! Retransmissions go first. Then low-latency flows, up to a quarter of the bytes while bulk
//! waits; then bulk, by deficit round robin over queue pairs (Shreedhar, Varghese 1995). What a
//! queue pair sends in one class does not stand behind what it sends in the other.
//! Deciding (`peek`) reads; moving on (`take`) writes.
//! Bounds: `send_queue_datagrams_max` datagrams, `flows_max` flows.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;

use crate::error::SendError;
use crate::event::{Class, Datagram};
use crate::ids::{DatagramId, Qpn};

/// A datagram that is no longer anybody's.
const NOT_SENT: u64 = u64::MAX;
/// Bytes that a flow may send per round.
const QUANTUM_BYTES: i64 = 9000;

/// Where a datagram is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The slot is free.
    Free,
    /// Waiting in its flow.
    Queued,
    /// Sent, not settled.
    InFlight,
    /// Waiting to be sent again.
    Retransmit,
}

/// A datagram in the queue's care.
#[derive(Debug)]
pub(crate) struct Held {
    /// The payload.
    pub payload: Bytes,
    /// The caller's number.
    pub user: u64,
    /// Opaque header bytes.
    pub imm: u64,
    /// Its id.
    pub id: DatagramId,
    /// PSN of the first sending: its identity; `u64::MAX` before.
    first_psn: u64,
    /// PSN of the newest sending.
    pub last_psn: u64,
    /// Destination queue pair.
    pub dst_qpn: Qpn,
    /// Source queue pair.
    pub src_qpn: Qpn,
    /// Slot of its flow.
    flow: u16,
    /// Its completion has been given already; it travels on for the window's sake.
    pub orphan: bool,
    /// RNR verdicts so far.
    pub rnr_count: u8,
    /// Where it is.
    pub place: Place,
}

impl Held {
    /// The datagram's identity, once it has been sent.
    pub(crate) fn first_psn(&self) -> Option<u64> {
        (self.first_psn != NOT_SENT).then_some(self.first_psn)
    }
}

/// What a queue pair sends in a class.
#[derive(Debug)]
struct Flow {
    qpn: Qpn,
    queue: VecDeque<u32>,
    deficit: i64,
    class: Class,
}

/// The queue of one context.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    held: Vec<Held>,
    free: Vec<u32>,
    flows: Vec<Flow>,
    flow_of: BTreeMap<(Qpn, Class), u16>,
    retransmit: VecDeque<u32>,
    /// Refused for want of a receive buffer; to be tried again when their wait is over.
    rnr_slots: VecDeque<u32>,
    low_latency: VecDeque<u16>,
    bulk: VecDeque<u16>,
    /// Bulk bytes sent minus three times the low-latency bytes sent while bulk waited.
    low_latency_credit: i64,
    /// Payload bytes that wait for their first sending.
    unsent_bytes: u64,
    refused: bool,
}

/// Bulk bytes that low-latency flows may owe before bulk gets its turn.
const LOW_LATENCY_BURST_BYTES: i64 = 64 * 1024;

impl SendQueue {
    /// Takes a datagram.
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
        let held = Held {
            payload: d.payload,
            user: d.user,
            imm: d.imm,
            id,
            first_psn: NOT_SENT,
            last_psn: NOT_SENT,
            dst_qpn: d.dst_qpn,
            src_qpn: d.src_qpn,
            flow,
            orphan: false,
            rnr_count: 0,
            place: Place::Queued,
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.held[slot as usize] = held;
            slot
        } else {
            self.held.push(held);
            u32::try_from(self.held.len() - 1).unwrap_or(u32::MAX)
        };
        let f = &mut self.flows[flow as usize];
        f.queue.push_back(slot);
        if f.queue.len() == 1 {
            f.deficit = f.deficit.min(0) + QUANTUM_BYTES;
            match f.class {
                Class::Bulk => self.bulk.push_back(flow),
                Class::LowLatency => self.low_latency.push_back(flow),
            }
        }
        Ok(())
    }

    fn flow(&mut self, qpn: Qpn, class: Class, flows_max: u32) -> Result<u16, SendError> {
        if let Some(&flow) = self.flow_of.get(&(qpn, class)) {
            return Ok(flow);
        }
        let fresh = Flow { qpn, queue: VecDeque::new(), deficit: 0, class };
        let flow = if self.flows.len() < flows_max as usize {
            self.flows.push(fresh);
            self.flows.len() - 1
        } else {
            // A flow that has nothing waiting gives its place to one that has.
            let idle = self.flows.iter().position(|f| f.queue.is_empty());
            let flow = idle.ok_or(SendError::TooManyFlows)?;
            let before = core::mem::replace(&mut self.flows[flow], fresh);
            self.flow_of.remove(&(before.qpn, before.class));
            flow
        };
        let flow = u16::try_from(flow).map_err(|_| SendError::TooManyFlows)?;
        self.flow_of.insert((qpn, class), flow);
        Ok(flow)
    }

    /// Which datagram goes next.
    pub(crate) fn peek(&self) -> Option<u32> {
        if let Some(&slot) = self.retransmit.front() {
            return Some(slot);
        }
        let flow = self.next_flow()?;
        self.flows[flow as usize].queue.front().copied()
    }

    fn next_flow(&self) -> Option<u16> {
        let low = self.low_latency.front();
        let bulk = self.bulk.front();
        match (low, bulk) {
            (Some(_), Some(&b)) if self.low_latency_credit < -LOW_LATENCY_BURST_BYTES => Some(b),
            (Some(&l), _) => Some(l),
            (None, b) => b.copied(),
        }
    }

    /// Takes the datagram that `peek` named, to be sent under `psn` in a packet of `bytes`.
    pub(crate) fn take(&mut self, slot: u32, psn: u64, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.retransmit.front() == Some(&slot) {
            self.retransmit.pop_front();
        } else if let Some(flow) = self.next_flow() {
            self.unsent_bytes -= self.held[slot as usize].payload.len() as u64;
            self.take_from(flow, bytes);
        }
        let held = &mut self.held[slot as usize];
        held.place = Place::InFlight;
        held.last_psn = psn;
        if held.first_psn == NOT_SENT {
            held.first_psn = psn;
        }
    }

    fn take_from(&mut self, flow: u16, bytes: i64) {
        let f = &mut self.flows[flow as usize];
        f.queue.pop_front();
        f.deficit -= bytes;
        let (emptied, rotate) = (f.queue.is_empty(), f.deficit <= 0);
        if rotate && !emptied {
            f.deficit += QUANTUM_BYTES;
        }
        let low = f.class == Class::LowLatency;
        let bulk_waits = !self.bulk.is_empty();
        let ring = if low { &mut self.low_latency } else { &mut self.bulk };
        if emptied {
            ring.pop_front();
        } else if rotate {
            ring.rotate_left(1);
        }
        if low && bulk_waits {
            self.low_latency_credit = self.low_latency_credit.saturating_sub(3 * bytes);
        } else if !low {
            self.low_latency_credit = self.low_latency_credit.saturating_add(bytes).min(0);
        }
    }

    /// A slot's datagram.
    pub(crate) fn held(&self, slot: u32) -> &Held {
        &self.held[slot as usize]
    }

    /// Whether the datagram whose identity is `first_psn` still occupies `slot`.
    pub(crate) fn is_settled(&self, slot: u32, first_psn: u64) -> bool {
        let held = &self.held[slot as usize];
        held.place == Place::Free || held.first_psn != first_psn
    }

    /// Puts a lost datagram in line to be sent again.
    pub(crate) fn requeue(&mut self, slot: u32) {
        let held = &mut self.held[slot as usize];
        if held.place == Place::InFlight {
            held.place = Place::Retransmit;
            self.retransmit.push_back(slot);
        }
    }

    /// Makes a datagram that was refused a new one: same slot, no identity, to be retried.
    pub(crate) fn renew(&mut self, slot: u32) {
        let held = &mut self.held[slot as usize];
        if held.place == Place::Retransmit {
            // It had been taken for lost and was in line already.
            self.retransmit.retain(|s| *s != slot);
        }
        held.place = Place::Retransmit;
        held.first_psn = NOT_SENT;
        held.rnr_count = held.rnr_count.saturating_add(1);
        self.rnr_slots.push_back(slot);
    }

    /// Everything that was sent and not settled is certainly not delivered: it has no identity
    /// any more and may get a new one.
    pub(crate) fn forget_identities(&mut self) {
        for held in self.held.iter_mut().filter(|h| h.place == Place::Retransmit) {
            held.first_psn = NOT_SENT;
        }
    }

    /// Whether refused datagrams wait.
    pub(crate) fn has_rnr(&self) -> bool {
        !self.rnr_slots.is_empty()
    }

    /// Their wait is over.
    pub(crate) fn retry_rnr(&mut self) {
        self.retransmit.append(&mut self.rnr_slots);
    }

    /// Ends a datagram and frees its slot: returns (id, user), or nothing if its completion
    /// has been given.
    pub(crate) fn finish(&mut self, slot: u32) -> Option<(DatagramId, u64)> {
        let held = &mut self.held[slot as usize];
        match held.place {
            Place::Free => return None,
            Place::InFlight => {}
            Place::Retransmit => {
                self.retransmit.retain(|s| *s != slot);
                self.rnr_slots.retain(|s| *s != slot);
            }
            Place::Queued => {
                self.unsent_bytes -= held.payload.len() as u64;
                let (flow, class) = (held.flow, self.flows[held.flow as usize].class);
                let f = &mut self.flows[flow as usize];
                f.queue.retain(|s| *s != slot);
                if f.queue.is_empty() {
                    let ring =
                        if class == Class::Bulk { &mut self.bulk } else { &mut self.low_latency };
                    ring.retain(|x| *x != flow);
                }
            }
        }
        let held = &mut self.held[slot as usize];
        held.place = Place::Free;
        held.payload = Bytes::new();
        self.free.push(slot);
        (!held.orphan).then_some((held.id, held.user))
    }

    /// Gives a sent datagram's completion now and lets it travel on, with a copy of its payload:
    /// what the application gave is not referred to beyond the completion.
    pub(crate) fn orphan(&mut self, slot: u32) -> Option<(DatagramId, u64)> {
        let held = &mut self.held[slot as usize];
        if !held.orphan {
            held.payload = Bytes::copy_from_slice(&held.payload);
        }
        self.abandon(slot)
    }

    /// Gives a sent datagram's completion now; the queue itself goes next.
    pub(crate) fn abandon(&mut self, slot: u32) -> Option<(DatagramId, u64)> {
        let held = &mut self.held[slot as usize];
        let first = !core::mem::replace(&mut held.orphan, true);
        first.then_some((held.id, held.user))
    }

    /// The class of a slot's flow.
    pub(crate) fn class(&self, slot: u32) -> Class {
        self.flows[self.held[slot as usize].flow as usize].class
    }

    /// Every slot that holds a datagram of the given queue pair, or of any.
    pub(crate) fn slots(&self, of: Option<Qpn>) -> Vec<u32> {
        (0u32..)
            .zip(&self.held)
            .filter(|(_, h)| h.place != Place::Free && of.is_none_or(|q| h.src_qpn == q))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// Payload bytes that wait for their first sending.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes
    }

    /// Datagrams in the queue's care.
    pub(crate) fn len(&self) -> usize {
        self.held.len() - self.free.len()
    }

    /// Remembers that a send was refused for want of room.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }

    /// Whether a send was refused and nobody has been told of room since.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused
    }

    /// Whether a send was refused and there is room again; answers true once per refusal.
    pub(crate) fn take_writable(&mut self, datagrams_max: u32) -> bool {
        let room = self.refused && self.len() * 4 <= datagrams_max as usize * 3;
        if room {
            self.refused = false;
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(qpn: u16, class: Class, bytes: usize) -> Datagram {
        Datagram {
            src_qpn: Qpn(qpn),
            dst_qpn: Qpn(0),
            imm: 0,
            payload: Bytes::from(alloc::vec![0; bytes]),
            class,
            user: u64::from(qpn),
        }
    }

    fn send_next(q: &mut SendQueue, psn: u64) -> u64 {
        let slot = q.peek().unwrap();
        let (user, bytes) = (q.held(slot).user, q.held(slot).payload.len());
        q.take(slot, psn, bytes);
        user
    }

    fn push(q: &mut SendQueue, d: Datagram) {
        q.push(DatagramId(0), d, 10_000, 16).unwrap();
    }

    #[test]
    fn a_datagram_that_travels_on_after_its_completion_refers_to_nothing_of_the_applications() {
        static GIVEN: [u8; 3] = [1, 2, 3];
        let mut q = SendQueue::default();
        push(
            &mut q,
            Datagram { payload: Bytes::from_static(&GIVEN), ..datagram(1, Class::Bulk, 0) },
        );
        let slot = q.peek().unwrap();
        send_next(&mut q, 0);
        assert_eq!(q.held(slot).payload.as_ptr(), GIVEN.as_ptr());
        assert!(q.orphan(slot).is_some() && q.orphan(slot).is_none());
        assert_ne!(q.held(slot).payload.as_ptr(), GIVEN.as_ptr());
        assert_eq!(&q.held(slot).payload[..], GIVEN);
    }

    #[test]
    fn flows_share_bytes_equally_whatever_their_datagram_sizes() {
        let mut q = SendQueue::default();
        for _ in 0..900 {
            push(&mut q, datagram(1, Class::Bulk, 1000));
        }
        for _ in 0..100 {
            push(&mut q, datagram(2, Class::Bulk, 9000));
        }
        let mut bytes = [0usize; 3];
        for psn in 0..500 {
            let user = usize::try_from(send_next(&mut q, psn)).unwrap();
            bytes[user] += if user == 1 { 1000 } else { 9000 };
        }
        let difference = bytes[1].abs_diff(bytes[2]);
        assert!(difference <= 18_000, "{bytes:?}");
    }

    #[test]
    fn low_latency_goes_first_but_leaves_bulk_three_quarters() {
        let mut q = SendQueue::default();
        for _ in 0..4000 {
            push(&mut q, datagram(1, Class::Bulk, 1000));
            push(&mut q, datagram(2, Class::LowLatency, 1000));
        }
        assert_eq!(send_next(&mut q, 0), 2);
        let low = (1..3000).filter(|&psn| send_next(&mut q, psn) == 2).count();
        assert!((700..=800).contains(&low), "{low}");
    }

    #[test]
    fn a_queue_pairs_bulk_does_not_hold_up_what_is_urgent_of_its_own() {
        let mut q = SendQueue::default();
        for _ in 0..2 {
            push(&mut q, datagram(1, Class::Bulk, 9000));
        }
        push(&mut q, Datagram { user: 7, ..datagram(1, Class::LowLatency, 50) });
        assert_eq!(send_next(&mut q, 0), 7);
        assert_eq!(send_next(&mut q, 1), 1);
    }

    #[test]
    fn retransmissions_go_before_everything() {
        let mut q = SendQueue::default();
        push(&mut q, datagram(1, Class::Bulk, 10));
        push(&mut q, datagram(1, Class::LowLatency, 10));
        let slot = q.peek().unwrap();
        q.take(slot, 0, 10);
        q.requeue(slot);
        assert_eq!(q.peek(), Some(slot));
        q.take(slot, 1, 10);
        assert_eq!(q.held(slot).first_psn(), Some(0));
        assert_eq!(q.held(slot).last_psn, 1);
    }

    #[test]
    fn a_full_queue_refuses_and_says_when_there_is_room() {
        let mut q = SendQueue::default();
        for _ in 0..4 {
            q.push(DatagramId(0), datagram(1, Class::Bulk, 1), 4, 1).unwrap();
        }
        assert_eq!(
            q.push(DatagramId(0), datagram(1, Class::Bulk, 1), 4, 1),
            Err(SendError::QueueFull)
        );
        assert!(!q.take_writable(4));
        assert!(q.finish(0).is_some());
        assert!(q.finish(0).is_none());
        assert!(q.take_writable(4));
        assert!(!q.take_writable(4));
        assert_eq!(
            q.push(DatagramId(0), datagram(2, Class::Bulk, 1), 4, 1),
            Err(SendError::TooManyFlows)
        );
    }
}
