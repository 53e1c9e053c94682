//! The event list: a hierarchical timing wheel. Events with equal times leave in the order of their
//! insertion.
//!
//! There are two levels of slots, and a heap for events beyond both levels. A slot is a chain of
//! small chunks from one pool, so memory grows with the number of pending events. Slots of the
//! first level are narrow: a few events each. A slot that becomes current is copied out and sorted.
//!
//! Both levels are aligned to epochs, and one slot of the second level covers one epoch: an event
//! goes into the first level only if it falls into the current epoch. When an epoch begins, all its
//! events move from the second level to the first, before any event is inserted there directly. So
//! the order of insertion is kept.
//!
//! Invariant: events leave in the order of (time, insertion). Bound: the list has no bound of its
//! own; the number of events follows from the number of packets in a world.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An event and its time. The event carries the data that a switch needs to forward the packet, so
/// that a hop does not access the packet in the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Event {
    /// Time of the event, in picoseconds.
    pub at_ps: u64,
    /// Subject of the event, such as a switch or a host.
    pub target: Target,
    /// Index of the packet in the pool of packets (module `slab`).
    pub packet: u32,
    /// The packet's destination host.
    pub dst: u32,
    /// The hash of the packet's outer 5-tuple.
    pub hash: u32,
    /// The port from which the packet came.
    pub via: u32,
    /// The packet's size on the wire, in bytes.
    pub bytes: u16,
    /// Bits that describe the packet, such as marks that a switch or link has set: see
    /// [`FLAG_ECT`].
    pub flags: u16,
}

/// Flag of an event: the sender is ECN-capable, so switches may mark the packet.
pub const FLAG_ECT: u16 = 1;
/// Flag of an event: a switch marked the packet (congestion experienced).
pub const FLAG_CE: u16 = 2;
/// Flag of an event: a switch cut the payload off the packet.
pub const FLAG_TRIMMED: u16 = 4;
/// Flag of an event: a link flipped bits of the packet.
pub const FLAG_CORRUPT: u16 = 8;
/// Flag of an event: the packet belongs to the control class.
pub const FLAG_CONTROL: u16 = 16;
/// Flag of an event: the pause frame stops its port. Without this flag the frame ends the pause of
/// the port.
pub const FLAG_XOFF: u16 = 32;

/// The subject of an event, packed: three bits of kind, 29 bits of number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Target(u32);

/// Kind of subject of a [`Target`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A packet arrives at a switch.
    Switch,
    /// A packet arrives at a host.
    Host,
    /// A host's link is free to send the next packet.
    LinkFree,
    /// The deadline of a node is due.
    Timer,
    /// An entry of the world's agenda is due, such as the start of flows or a fault.
    Agenda,
    /// A port of a lossless switch has finished the transmission of a packet.
    PortFree,
    /// A pause frame arrives at a port, and begins or ends the pause of the port.
    Pause,
}

impl Target {
    const KIND_SHIFT: u32 = 29;

    /// Creates a target from a kind and a number below 2^29.
    pub const fn new(kind: Kind, number: u32) -> Self {
        Self(((kind as u32) << Self::KIND_SHIFT) | number)
    }

    /// Returns the kind of the subject.
    #[inline]
    pub const fn kind(self) -> Kind {
        match self.0 >> Self::KIND_SHIFT {
            0 => Kind::Switch,
            1 => Kind::Host,
            2 => Kind::LinkFree,
            3 => Kind::Timer,
            4 => Kind::Agenda,
            5 => Kind::PortFree,
            _ => Kind::Pause,
        }
    }

    /// Returns the number of the subject: of a switch, host, port or agenda entry.
    #[inline]
    pub const fn number(self) -> u32 {
        self.0 & ((1 << Self::KIND_SHIFT) - 1)
    }
}

const NEAR_BITS: u32 = 15;
const NEAR_SLOTS: usize = 1 << NEAR_BITS;
const FAR_BITS: u32 = 10;
const FAR_SLOTS: usize = 1 << FAR_BITS;
const CHUNK_FULL: u32 = 8;
const CHUNK_EVENTS: usize = CHUNK_FULL as usize;
const NONE: u32 = u32::MAX;

/// Some events in order of insertion: a part of a slot's chain. Every chunk of a chain except the
/// last is full. The number of events in the last chunk is in the [`Slot`], so that an insertion
/// only writes to the chunk.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Chunk([Event; CHUNK_EVENTS]);

/// A slot of the wheel: a chain of chunks, in order of insertion. `fill` is the number of events in
/// the last chunk; a slot without chunks counts as full.
#[derive(Clone, Copy)]
struct Slot {
    head: u32,
    tail: u32,
    fill: u32,
}

const EMPTY: Slot = Slot { head: NONE, tail: NONE, fill: CHUNK_FULL };

/// An event that is too late for both levels of the wheel. The heap orders events by time and then
/// by insertion.
#[derive(PartialEq, Eq)]
struct Beyond {
    event: Event,
    sequence: u64,
}

impl Ord for Beyond {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.event.at_ps, self.sequence).cmp(&(other.event.at_ps, other.sequence))
    }
}

impl PartialOrd for Beyond {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The event list: a hierarchical timing wheel.
pub struct Wheel {
    shift: u32,
    // Number of the near slot whose events are in `current`: at_ps >> shift.
    tick: u64,
    current: Vec<Event>,
    cursor: usize,
    near: Vec<Slot>,
    near_busy: Vec<u64>,
    far: Vec<Slot>,
    far_busy: Vec<u64>,
    beyond: BinaryHeap<Reverse<Beyond>>,
    sequence: u64,
    chunks: Vec<Chunk>,
    // By chunk: number of the next chunk in its chain, or in the list of free chunks.
    nexts: Vec<u32>,
    free: u32,
    len: usize,
    fresh: bool,
}

impl Wheel {
    /// Creates an empty event list. Its finest slots are 2^`shift` picoseconds wide. A slot should
    /// hold a few events; the order of events does not depend on the width.
    pub fn new(shift: u32) -> Self {
        assert!(shift <= 24, "slots of more than 16 us make no sense");
        Self {
            shift,
            tick: 0,
            current: Vec::new(),
            cursor: 0,
            near: vec![EMPTY; NEAR_SLOTS],
            near_busy: vec![0; NEAR_SLOTS / 64],
            far: vec![EMPTY; FAR_SLOTS],
            far_busy: vec![0; FAR_SLOTS / 64],
            beyond: BinaryHeap::new(),
            sequence: 0,
            chunks: Vec::new(),
            nexts: Vec::new(),
            free: NONE,
            len: 0,
            fresh: false,
        }
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an event. Its time must not be before the time of the last event that was popped.
    #[inline]
    pub fn push(&mut self, event: Event) {
        self.len += 1;
        let tick = event.at_ps >> self.shift;
        if tick <= self.tick {
            self.push_current(event);
        } else if tick >> NEAR_BITS == self.tick >> NEAR_BITS {
            self.push_near(tick, event);
        } else {
            self.push_later(tick, event);
        }
    }

    /// Removes and returns the next event if its time is at or before `until_ps`.
    #[inline]
    pub fn pop(&mut self, until_ps: u64) -> Option<Event> {
        loop {
            if let Some(event) = self.current.get(self.cursor) {
                if event.at_ps > until_ps {
                    return None;
                }
                self.cursor += 1;
                self.len -= 1;
                return Some(*event);
            }
            if self.len == 0 || (self.tick + 1) << self.shift > until_ps {
                return None;
            }
            self.advance();
        }
    }

    /// Returns the events of a slot that has just become current, once for each slot. They are
    /// probably the next events to be popped, and the world prefetches the data that they need.
    #[inline]
    pub fn fresh_batch(&mut self) -> Option<&[Event]> {
        std::mem::take(&mut self.fresh).then_some(&self.current[..])
    }

    fn push_current(&mut self, event: Event) {
        let rest = &self.current[self.cursor..];
        let at = self.cursor + rest.partition_point(|e| e.at_ps <= event.at_ps);
        self.current.insert(at, event);
    }

    #[allow(clippy::cast_possible_truncation)] // masked to the number of slots
    #[inline]
    fn push_near(&mut self, tick: u64, event: Event) {
        let index = tick as usize & (NEAR_SLOTS - 1);
        let slot = &mut self.near[index];
        if slot.fill < CHUNK_FULL {
            self.chunks[slot.tail as usize].0[slot.fill as usize] = event;
            slot.fill += 1;
            return;
        }
        self.near_busy[index / 64] |= 1 << (index % 64);
        self.near[index] = self.grow(self.near[index], event);
    }

    #[allow(clippy::cast_possible_truncation)] // masked to the number of slots
    #[cold]
    fn push_later(&mut self, tick: u64, event: Event) {
        let epoch = tick >> NEAR_BITS;
        if epoch >> FAR_BITS != self.tick >> (NEAR_BITS + FAR_BITS) {
            self.sequence += 1;
            self.beyond.push(Reverse(Beyond { event, sequence: self.sequence }));
            return;
        }
        let index = epoch as usize & (FAR_SLOTS - 1);
        let slot = &mut self.far[index];
        if slot.fill < CHUNK_FULL {
            self.chunks[slot.tail as usize].0[slot.fill as usize] = event;
            slot.fill += 1;
            return;
        }
        self.far_busy[index / 64] |= 1 << (index % 64);
        self.far[index] = self.grow(self.far[index], event);
    }

    /// Appends a new chunk with one event to the chain of a slot. Returns the changed slot.
    fn grow(&mut self, slot: Slot, event: Event) -> Slot {
        let fresh = if self.free == NONE {
            self.chunks.push(Chunk([Event::default(); CHUNK_EVENTS]));
            self.nexts.push(NONE);
            u32::try_from(self.chunks.len() - 1).expect("fewer than 2^32 chunks")
        } else {
            let fresh = self.free;
            self.free = self.nexts[fresh as usize];
            fresh
        };
        self.chunks[fresh as usize].0[0] = event;
        self.nexts[fresh as usize] = NONE;
        if slot.tail == NONE {
            return Slot { head: fresh, tail: fresh, fill: 1 };
        }
        self.nexts[slot.tail as usize] = fresh;
        Slot { head: slot.head, tail: fresh, fill: 1 }
    }

    /// Returns a chunk to the pool. Returns the number of the next chunk of its chain.
    fn free_chunk(&mut self, at: u32) -> u32 {
        let next = std::mem::replace(&mut self.nexts[at as usize], self.free);
        self.free = at;
        next
    }

    /// Makes the next non-empty slot current. Called when all events of `current` were popped and
    /// another event is pending.
    fn advance(&mut self) {
        self.current.clear();
        self.cursor = 0;
        loop {
            if let Some(tick) = next_busy(&self.near_busy, self.tick, NEAR_BITS) {
                self.tick = tick;
                self.take_near(tick);
                return;
            }
            let epoch = self.tick >> NEAR_BITS;
            if let Some(epoch) = next_busy(&self.far_busy, epoch, FAR_BITS) {
                self.tick = epoch << NEAR_BITS;
                self.cascade(epoch);
            } else {
                self.enter_beyond();
            }
            if !self.current.is_empty() {
                return;
            }
        }
    }

    #[allow(clippy::cast_possible_truncation)] // masked to the number of slots
    fn take_near(&mut self, tick: u64) {
        let index = tick as usize & (NEAR_SLOTS - 1);
        self.near_busy[index / 64] &= !(1 << (index % 64));
        let slot = std::mem::replace(&mut self.near[index], EMPTY);
        let mut at = slot.head;
        while at != NONE {
            let fill = if at == slot.tail { slot.fill } else { CHUNK_FULL };
            self.current.extend_from_slice(&self.chunks[at as usize].0[..fill as usize]);
            at = self.free_chunk(at);
        }
        self.current.sort_by_key(|e| e.at_ps);
        self.fresh = true;
    }

    /// Moves the events of a far slot to the near slots. The first near slot becomes current.
    #[allow(clippy::cast_possible_truncation)] // masked to the number of slots
    fn cascade(&mut self, epoch: u64) {
        let index = epoch as usize & (FAR_SLOTS - 1);
        self.far_busy[index / 64] &= !(1 << (index % 64));
        let slot = std::mem::replace(&mut self.far[index], EMPTY);
        let mut at = slot.head;
        while at != NONE {
            let fill = if at == slot.tail { slot.fill } else { CHUNK_FULL };
            let chunk = self.chunks[at as usize];
            at = self.free_chunk(at);
            for event in &chunk.0[..fill as usize] {
                self.len -= 1;
                self.push(*event);
            }
        }
    }

    /// Moves the clock of the wheel to the first event of the heap. Then moves all events that now
    /// fall into the two levels from the heap to the wheel.
    fn enter_beyond(&mut self) {
        let Some(Reverse(first)) = self.beyond.peek() else {
            unreachable!("something is pending");
        };
        let era = first.event.at_ps >> self.shift >> (NEAR_BITS + FAR_BITS);
        self.tick = era << (NEAR_BITS + FAR_BITS);
        while let Some(Reverse(first)) = self.beyond.peek() {
            if first.event.at_ps >> self.shift >> (NEAR_BITS + FAR_BITS) != era {
                break;
            }
            let event = first.event;
            self.beyond.pop();
            self.len -= 1;
            self.push(event);
        }
    }
}

/// Returns the first non-empty slot after `position`, as an absolute position. The search ends at
/// the end of the aligned round of 2^`bits` slots.
#[allow(clippy::cast_possible_truncation)] // masked to the number of slots
fn next_busy(busy: &[u64], position: u64, bits: u32) -> Option<u64> {
    let slots = 1_usize << bits;
    let from = (position as usize & (slots - 1)) + 1;
    if from == slots {
        return None;
    }
    let mut word = from / 64;
    let mut set = busy[word] & (u64::MAX << (from % 64));
    loop {
        if set != 0 {
            let index = word * 64 + set.trailing_zeros() as usize;
            return Some((position >> bits << bits) + index as u64);
        }
        word += 1;
        set = *busy.get(word)?;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn event(at_ps: u64, packet: u32) -> Event {
        Event { at_ps, packet, ..Event::default() }
    }

    #[test]
    fn an_event_is_half_a_cache_line() {
        assert_eq!(size_of::<Event>(), 32);
    }

    #[test]
    fn targets_unpack_to_what_was_packed() {
        for kind in [
            Kind::Switch,
            Kind::Host,
            Kind::LinkFree,
            Kind::Timer,
            Kind::Agenda,
            Kind::PortFree,
            Kind::Pause,
        ] {
            let target = Target::new(kind, 123_456);
            assert_eq!((target.kind(), target.number()), (kind, 123_456));
        }
    }

    #[test]
    fn equal_times_leave_in_insertion_order_across_all_levels() {
        let mut wheel = Wheel::new(10);
        let far_ps = 200_000_000_000_000;
        for n in 0..50 {
            wheel.push(event(far_ps, n));
        }
        wheel.push(event(far_ps - 40_000_000, 999));
        assert_eq!(wheel.pop(u64::MAX).unwrap().packet, 999);
        for n in 50..100 {
            wheel.push(event(far_ps, n));
        }
        for n in 0..100 {
            assert_eq!(wheel.pop(u64::MAX).unwrap(), event(far_ps, n));
        }
        assert!(wheel.pop(u64::MAX).is_none() && wheel.is_empty());
    }

    #[test]
    fn pop_stops_at_the_limit_and_goes_on_later() {
        let mut wheel = Wheel::new(10);
        wheel.push(event(5_000, 1));
        assert!(wheel.pop(4_999).is_none());
        wheel.push(event(4_000, 0));
        assert_eq!(wheel.pop(5_000).unwrap().packet, 0);
        assert_eq!(wheel.pop(5_000).unwrap().packet, 1);
    }

    #[test]
    fn chunks_are_reused() {
        let mut wheel = Wheel::new(10);
        for n in 0..1_000_000_u64 {
            wheel.push(event(n * 777 + 1_300_000, 0));
            if n >= 100 {
                wheel.pop(u64::MAX).unwrap();
            }
        }
        assert!(wheel.chunks.len() < 200, "{}", wheel.chunks.len());
    }

    proptest! {
        #[test]
        fn order_is_that_of_a_sorted_map(
            shift in 4_u32..20,
            steps in proptest::collection::vec((0_u32..45, any::<u64>(), 0_u8..4), 1..400),
        ) {
            let mut wheel = Wheel::new(shift);
            let mut model = BTreeMap::new();
            let mut now_ps = 0;
            for (n, &(bits, raw, pops)) in (0_u32..).zip(&steps) {
                let at_ps = now_ps + (raw & ((1 << bits) - 1));
                wheel.push(event(at_ps, n));
                model.insert((at_ps, n), ());
                prop_assert_eq!(wheel.len(), model.len());
                for _ in 0..pops {
                    let expected = model.pop_first().map(|((at, n), ())| event(at, n));
                    let got = wheel.pop(u64::MAX);
                    prop_assert_eq!(got, expected);
                    if let Some(e) = got { now_ps = e.at_ps; }
                }
            }
            while let Some(((at, n), ())) = model.pop_first() {
                prop_assert_eq!(wheel.pop(u64::MAX), Some(event(at, n)));
            }
            prop_assert!(wheel.is_empty());
        }
    }
}
