//! The receiving side of flows: chunks become frames, frames of one flow come out in order, and
//! a hole in one flow holds up that flow alone, for a bounded time.
//!
//! SRD delivers every chunk once and loses none for good, so a hole means a packet that is on
//! its way again. If it does not come (the sender gave it up), the flow goes on without it after
//! `order_wait`, and that is counted.
//!
//! Bounds: `flows_max` flows, `receive_bytes_max` bytes that wait, [`WINDOW`] frames per flow,
//! one wait in line per flow. A flow that finds the table full takes the place of one that has
//! been silent for a second. What exceeds the bounds is dropped and counted; the flow's wait then
//! ends by time.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use srd_proto::time::{Duration, Instant};

use crate::frame::Place;

/// Frames that may be ahead of the one that is waited for.
pub(crate) const WINDOW: u16 = 4096;
/// Buffers kept for the next frames.
const SPARE_MAX: usize = 64;
/// A flow that was silent for so long is forgotten. Senders take a new number well before.
const IDLE: Duration = Duration::from_secs(120);
/// A flow that was silent for so long may lose its place to another.
const UNUSED_AFTER: Duration = Duration::from_secs(1);
/// Flows that are looked at to find a place for one newcomer.
const LOOKS_MAX: u32 = 64;
/// Time between two looks for idle flows.
const SWEEP: Duration = Duration::from_secs(10);

/// Limits of the receiving side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub wait: Duration,
    pub flows_max: usize,
    pub bytes_max: usize,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OrderCounts {
    /// Frames that arrived before one that was sent earlier, and waited.
    pub waited: u64,
    /// Waits that ended by time: frames were given up.
    pub wait_timeouts: u64,
    /// Frames given up.
    pub given_up: u64,
    /// Chunks that contradict their frame, came twice, or came after their frame was given up.
    pub bad_chunks: u64,
    /// Chunks dropped because a table or buffer was full.
    pub full: u64,
}

/// One frame of a flow.
#[derive(Debug, Default)]
enum Slot {
    /// Nothing of it has come.
    #[default]
    Empty,
    /// Some chunks have.
    Partial(Partial),
    /// All of it has, and waits for earlier ones.
    Whole(Vec<u8>),
    /// It went up already, out of turn.
    Gone,
}

#[derive(Debug)]
struct Partial {
    bytes: Vec<u8>,
    chunks: u128,
    received: usize,
}

#[derive(Debug)]
struct Flow {
    /// The frame that is next.
    next: u16,
    /// Frames from `next` on.
    slots: VecDeque<Slot>,
    /// Since when it has been waiting for the frame at the head.
    waits_since: Option<Instant>,
    /// Whether a wait of it is in line.
    in_line: bool,
    used_at: Instant,
}

/// What goes up: a frame, either where it is or in a buffer that comes back.
pub(crate) trait Sink {
    /// Takes a frame. Returns whether flows like this one go up in any order.
    fn take(&mut self, frame: &[u8]);
    /// Whether the flow of this frame has asked for no order.
    fn bypasses(&self, frame: &[u8]) -> bool;
}

/// All flows from all peers.
#[derive(Debug)]
pub(crate) struct Order {
    flows: HashMap<(u32, u32), Flow, FixedState>,
    limits: Limits,
    /// Bytes in frames that wait or are not whole.
    bytes: usize,
    spare: Vec<Vec<u8>>,
    /// Flows that wait or did: when to look at each, earliest first.
    waiting: BinaryHeap<Reverse<(Instant, (u32, u32))>>,
    /// All flows, who may have been silent for longest first: when each was last in use, as of
    /// the last look at it.
    silent: VecDeque<(Instant, (u32, u32))>,
    sweep_at: Instant,
    pub(crate) counts: OrderCounts,
}

impl Order {
    pub(crate) fn new(limits: Limits, seed: u64) -> Self {
        Self {
            flows: HashMap::with_hasher(FixedState::with_seed(seed)),
            limits,
            bytes: 0,
            spare: Vec::new(),
            waiting: BinaryHeap::new(),
            silent: VecDeque::new(),
            sweep_at: Instant::ZERO,
            counts: OrderCounts::default(),
        }
    }

    /// How long a hole is waited for from now on.
    pub(crate) fn set_wait(&mut self, wait: Duration) {
        self.limits.wait = wait;
    }

    /// Flows known.
    pub(crate) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// The larger share of a limit that is in use, in percent.
    pub(crate) fn utilization(&self) -> u64 {
        let bytes = self.bytes * 100 / self.limits.bytes_max.max(1);
        let flows = self.flows.len() * 100 / self.limits.flows_max.max(1);
        bytes.max(flows) as u64
    }

    /// A chunk has arrived from a peer.
    pub(crate) fn chunk(
        &mut self,
        now: Instant,
        peer: u32,
        place: Place,
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        let Some(offset) = place.offset(payload.len()) else {
            self.counts.bad_chunks += 1;
            return;
        };
        let key = (peer, place.flow);
        if !self.flows.contains_key(&key) && !self.open(now, key, place.sequence) {
            self.counts.full += 1;
            return;
        }
        let Some(flow) = self.flows.get_mut(&key) else { return };
        flow.used_at = now;
        let ahead = place.sequence.wrapping_sub(flow.next);
        if ahead >= WINDOW {
            self.counts.bad_chunks += 1;
            return;
        }
        let whole = payload.len() == usize::from(place.frame_bytes);
        if ahead == 0 && whole && flow.slots.is_empty() {
            // The common case: in turn and in one piece.
            flow.next = flow.next.wrapping_add(1);
            sink.take(payload);
            return;
        }
        let ahead = usize::from(ahead);
        if flow.slots.len() <= ahead {
            flow.slots.resize_with(ahead + 1, Slot::default);
        }
        if whole {
            self.put_whole(key, ahead, payload, sink);
        } else {
            self.put_part(key, ahead, place, offset, payload, sink);
        }
        self.release(now, key, sink);
    }

    /// Makes an entry. Returns whether there is room.
    fn open(&mut self, now: Instant, key: (u32, u32), sequence: u16) -> bool {
        if self.flows.len() >= self.limits.flows_max && !self.make_room(now) {
            return false;
        }
        // A flow that begins so late had its entry, and lost it: its earlier frames went up.
        let next = if sequence < WINDOW { 0 } else { sequence };
        let slots = VecDeque::new();
        let flow = Flow { next, slots, waits_since: None, in_line: false, used_at: now };
        self.flows.insert(key, flow);
        self.silent.push_back((now, key));
        true
    }

    /// Forgets a flow that has been silent for a while and waits for nothing, if one is found.
    fn make_room(&mut self, now: Instant) -> bool {
        for _ in 0..LOOKS_MAX {
            let Some((seen, key)) = self.silent.pop_front() else { return false };
            let Some(flow) = self.flows.get(&key) else { continue };
            let idle = flow.used_at == seen && flow.slots.is_empty();
            if idle && now.since(seen) > UNUSED_AFTER {
                self.flows.remove(&key);
                return true;
            }
            self.silent.push_back((flow.used_at, key));
        }
        false
    }

    fn put_whole(&mut self, key: (u32, u32), ahead: usize, payload: &[u8], sink: &mut impl Sink) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let slot = &mut flow.slots[ahead];
        if !matches!(slot, Slot::Empty) {
            self.counts.bad_chunks += 1;
            return;
        }
        if sink.bypasses(payload) {
            *slot = Slot::Gone;
            sink.take(payload);
            return;
        }
        if self.bytes + payload.len() > self.limits.bytes_max {
            self.counts.full += 1;
            return;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(payload);
        self.bytes += bytes.len();
        self.counts.waited += u64::from(ahead > 0);
        *slot = Slot::Whole(bytes);
    }

    fn put_part(
        &mut self,
        key: (u32, u32),
        ahead: usize,
        place: Place,
        offset: usize,
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let slot = &mut flow.slots[ahead];
        let frame_bytes = usize::from(place.frame_bytes);
        if matches!(slot, Slot::Empty) {
            if self.bytes + frame_bytes > self.limits.bytes_max {
                self.counts.full += 1;
                return;
            }
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.resize(frame_bytes, 0);
            self.bytes += frame_bytes;
            *slot = Slot::Partial(Partial { bytes, chunks: 0, received: 0 });
        }
        let bit = 1u128 << place.chunk;
        let part = match slot {
            Slot::Partial(p) if p.bytes.len() == frame_bytes && p.chunks & bit == 0 => p,
            _ => {
                self.counts.bad_chunks += 1;
                return;
            }
        };
        part.bytes[offset..offset + payload.len()].copy_from_slice(payload);
        part.chunks |= bit;
        part.received += payload.len();
        if part.received < frame_bytes {
            return;
        }
        let bytes = core::mem::take(&mut part.bytes);
        if sink.bypasses(&bytes) {
            *slot = Slot::Gone;
            sink.take(&bytes);
            self.recycle(bytes);
        } else {
            self.counts.waited += u64::from(ahead > 0);
            *slot = Slot::Whole(bytes);
        }
    }

    /// Hands up what is in turn, and notes whether the flow waits.
    fn release(&mut self, now: Instant, key: (u32, u32), sink: &mut impl Sink) {
        loop {
            let Some(flow) = self.flows.get_mut(&key) else { return };
            match flow.slots.front() {
                Some(Slot::Whole(_) | Slot::Gone) => {}
                Some(Slot::Empty | Slot::Partial(_)) => {
                    // Alone it is no hole: nothing waits behind it.
                    if flow.waits_since.is_none() {
                        flow.waits_since = Some(now);
                        if !flow.in_line {
                            flow.in_line = true;
                            self.waiting.push(Reverse((now + self.limits.wait, key)));
                        }
                    }
                    return;
                }
                None => {
                    flow.waits_since = None;
                    return;
                }
            }
            let slot = flow.slots.pop_front();
            flow.next = flow.next.wrapping_add(1);
            flow.waits_since = None;
            if let Some(Slot::Whole(bytes)) = slot {
                sink.take(&bytes);
                self.recycle(bytes);
            }
        }
    }

    fn recycle(&mut self, mut bytes: Vec<u8>) {
        self.bytes -= bytes.len();
        if self.spare.len() < SPARE_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// When [`Order::handle_timeout`] wants to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.peek().map(|Reverse((at, _))| *at)
    }

    /// Whether it is time to look for idle flows.
    pub(crate) fn sweep_is_due(&self, now: Instant) -> bool {
        now >= self.sweep_at
    }

    /// Ends waits that have lasted too long, and forgets flows that have gone.
    pub(crate) fn handle_timeout(&mut self, now: Instant, sink: &mut impl Sink) {
        while let Some(&Reverse((at, key))) = self.waiting.peek() {
            if at > now {
                break;
            }
            self.waiting.pop();
            let Some(flow) = self.flows.get_mut(&key) else { continue };
            flow.in_line = false;
            let Some(since) = flow.waits_since else { continue };
            if since + self.limits.wait > now {
                // It has waited for another hole since.
                flow.in_line = true;
                self.waiting.push(Reverse((since + self.limits.wait, key)));
                continue;
            }
            self.give_up(now, key, sink);
        }
        if now >= self.sweep_at {
            self.sweep_at = now + SWEEP;
            let mut freed = 0;
            self.flows.retain(|_, flow| {
                let keep = now.since(flow.used_at) < IDLE;
                if !keep {
                    freed += flow.slots.iter().map(Slot::bytes).sum::<usize>();
                }
                keep
            });
            self.bytes -= freed;
            self.silent.retain(|(_, key)| self.flows.contains_key(key));
        }
    }

    /// Skips what is missing at the head of a flow.
    fn give_up(&mut self, now: Instant, key: (u32, u32), sink: &mut impl Sink) {
        self.counts.wait_timeouts += 1;
        let Some(flow) = self.flows.get_mut(&key) else { return };
        flow.waits_since = None;
        while let Some(Slot::Empty | Slot::Partial(_)) = flow.slots.front() {
            self.bytes -= flow.slots.pop_front().map_or(0, |slot| slot.bytes());
            flow.next = flow.next.wrapping_add(1);
            self.counts.given_up += 1;
        }
        self.release(now, key, sink);
    }
}

impl Slot {
    fn bytes(&self) -> usize {
        match self {
            Self::Partial(part) => part.bytes.len(),
            Self::Whole(bytes) => bytes.len(),
            Self::Empty | Self::Gone => 0,
        }
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
