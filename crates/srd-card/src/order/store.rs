//! Storage of waiting frames: the frames of a flow, and the buffers and records of all flows.
//! Peers are charged for the allocated size.

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use srd_proto::time::{Duration, Instant};

use super::budget::{Budget, Limits};
use super::sink::{Admission, Key, Near, OrderCounts, Sink, Source};
use crate::meta::{FRAME_BYTES_MAX, Meta};
use crate::wire::frame::ChunkPosition;

/// Largest distance of a frame from the next expected one. // O3
pub(super) const WINDOW: u16 = 4096;
/// Number of large buffers that are kept for later frames.
pub(crate) const SPARE_MAX: usize = 64;
/// Size in bytes from which a frame is kept in a buffer of the largest size. Buffers of this size
/// are reused.
const LARGE_BYTES_MIN: usize = 32 * 1024;
/// Initial number of entries for a flow's waiting frames; doubled when all are used.
const ENTRIES_MIN: usize = 4;

/// State of a frame of which at least one chunk has arrived.
#[derive(Debug)]
pub(super) enum Content {
    /// Some chunks of the frame have arrived, and other chunks are missing.
    Partial(Box<Partial>),
    /// The complete frame with its metadata; the frame waits for earlier frames of its flow.
    Whole(Vec<u8>, Meta),
    /// The frame is not kept any more, because it was delivered out of order, or was refused.
    Gone,
}

#[derive(Debug)]
pub(super) struct Partial {
    bytes: Vec<u8>,
    chunks: u128,
    received: usize,
    /// Bytes of each chunk except the last.
    step: usize,
}

/// Record of a frame of which at least one chunk has arrived, until its turn in the flow comes.
#[derive(Debug)]
pub(super) struct Entry {
    sequence: u16,
    content: Content,
}

#[derive(Debug)]
pub(super) struct Flow {
    /// Sequence number of the frame that is to be delivered next.
    pub(super) next: u16,
    /// Frames of which at least one chunk has arrived, in the order of their sequence numbers.
    pub(super) entries: VecDeque<Entry>,
    /// Time since which the flow has waited for its next frame; `None` if it does not wait.
    pub(super) waits_since: Option<Instant>,
    /// Whether the flow has an entry in [`Store::waiting`].
    pub(super) in_line: bool,
    pub(super) used_at: Instant,
    /// Sender of the first complete frame; zero until a frame is complete.
    pub(super) source: Source,
    /// Time under which the flow is listed among the flows of its sender.
    pub(super) listed_at: Instant,
    /// Slot in the flow table that the last frame of the flow had.
    pub(super) near: Near,
}

/// State that all flows share.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) wait: Duration,
    pub(super) budget: Budget,
    spare: Vec<Vec<u8>>,
    /// Timeouts of flows that wait or have waited, the earliest first.
    pub(super) waiting: BinaryHeap<Reverse<(Instant, Key)>>,
    pub(super) counts: OrderCounts,
}

impl Partial {
    /// Whether a chunk is consistent with the earlier chunks of its frame, and new. // F3
    fn is_new(&self, chunk: u8, frame_bytes: usize, step: usize) -> bool {
        self.bytes.len() == frame_bytes && self.step == step && self.chunks & 1 << chunk == 0
    }

    fn put(&mut self, chunk: u8, offset: usize, payload: &[u8]) {
        self.bytes[offset..offset + payload.len()].copy_from_slice(payload);
        self.chunks |= 1 << chunk;
        self.received += payload.len();
    }
}

/// Size in bytes of the buffer for a frame of `frame_bytes` bytes.
fn capacity(frame_bytes: usize) -> usize {
    if frame_bytes >= LARGE_BYTES_MIN { FRAME_BYTES_MAX } else { frame_bytes }
}

/// Takes the sender of a complete frame as that of its flow, unless that is known.
fn set_source(of_flow: &mut Source, of_frame: Source) {
    if *of_flow == 0 {
        *of_flow = of_frame;
    }
}

impl Flow {
    /// Creates a flow whose first frame in order has the sequence number `next`.
    pub(super) fn new(next: u16, now: Instant) -> Self {
        Self {
            next,
            entries: VecDeque::new(),
            waits_since: None,
            in_line: false,
            used_at: now,
            source: 0,
            listed_at: now,
            near: None,
        }
    }

    /// Whether the first recorded frame has this sequence number: at least one of its chunks has
    /// arrived.
    pub(super) fn is_begun(&self, sequence: u16) -> bool {
        self.entries.front().is_some_and(|entry| entry.sequence == sequence)
    }

    /// Returns the index of a frame's entry, or the index where the entry would be inserted.
    fn find(&self, sequence: u16) -> Result<usize, usize> {
        let ahead = |sequence: u16| sequence.wrapping_sub(self.next);
        match self.entries.back() {
            Some(last) if ahead(last.sequence) >= ahead(sequence) => {
                self.entries.binary_search_by_key(&ahead(sequence), |e| ahead(e.sequence))
            }
            _ => Err(self.entries.len()),
        }
    }
}

impl Store {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            wait: limits.wait,
            budget: Budget::new(limits),
            spare: Vec::new(),
            waiting: BinaryHeap::new(),
            counts: OrderCounts::default(),
        }
    }

    /// Takes a chunk of a flow, with its position and its offset in the frame.
    #[inline]
    pub(super) fn chunk(
        &mut self,
        now: Instant,
        key: Key,
        flow: &mut Flow,
        (place, offset, payload): (ChunkPosition, usize, &[u8]),
        sink: &mut impl Sink,
    ) {
        let (peer, _) = key;
        // O2. Each flow has an order of its own.
        let ahead = place.sequence.wrapping_sub(flow.next);
        if ahead >= WINDOW {
            self.counts.bad_chunks += 1;
            return;
        }
        let whole = payload.len() == usize::from(place.frame_bytes);
        if ahead == 0 && whole && !flow.is_begun(place.sequence) {
            // The common case: in sequence, and in one chunk. It needs no storage.
            flow.next = flow.next.wrapping_add(1);
            flow.waits_since = None;
            set_source(&mut flow.source, sink.take(peer, &mut flow.near, payload));
            if flow.entries.is_empty() {
                return;
            }
        } else if whole {
            self.put_whole(peer, flow, place.sequence, payload, sink);
        } else {
            self.put_part(peer, flow, place, offset, payload, sink);
        }
        self.release(now, key, flow, sink);
    }

    /// Stores a frame that has arrived in one chunk, before earlier frames of its flow. If the flow
    /// needs no order, the frame is delivered at once.
    fn put_whole(
        &mut self,
        peer: u32,
        flow: &mut Flow,
        sequence: u16,
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        let Err(at) = flow.find(sequence) else {
            self.counts.bad_chunks += 1; // F3
            return;
        };
        let waits = match sink.admit(peer, &mut flow.near, payload) {
            Some(Admission { meta, source, at_once }) => {
                set_source(&mut flow.source, source);
                if at_once {
                    sink.release(peer, &mut flow.near, &meta, payload);
                }
                (!at_once).then_some(meta)
            }
            None => None,
        };
        let bytes = if waits.is_some() { capacity(payload.len()) } else { 0 };
        if !self.reserve(peer, flow, bytes) {
            self.counts.full += u64::from(waits.is_some());
            return;
        }
        let content = match waits {
            Some(meta) => {
                self.counts.waited += 1;
                let mut bytes = self.buffer(payload.len());
                bytes.extend_from_slice(payload);
                Content::Whole(bytes, meta)
            }
            None => Content::Gone,
        };
        flow.entries.insert(at, Entry { sequence, content });
    }

    fn put_part(
        &mut self,
        peer: u32,
        flow: &mut Flow,
        place: ChunkPosition,
        offset: usize,
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        let (sequence, step) = (place.sequence, place.step(payload.len()));
        let frame_bytes = usize::from(place.frame_bytes);
        let at = match flow.find(sequence) {
            Ok(at) => at,
            Err(at) => {
                if !self.reserve(peer, flow, capacity(frame_bytes) + size_of::<Partial>()) {
                    self.counts.full += 1;
                    return;
                }
                let content = Content::Partial(self.partial(frame_bytes, step));
                flow.entries.insert(at, Entry { sequence, content });
                at
            }
        };
        let Flow { entries, near, next, source, .. } = flow;
        let content = &mut entries[at].content;
        let part = match content {
            Content::Partial(part) if part.is_new(place.chunk, frame_bytes, step) => part,
            _ => {
                self.counts.bad_chunks += 1; // F3
                return;
            }
        };
        part.put(place.chunk, offset, payload);
        if part.received < frame_bytes {
            return;
        }
        let bytes = core::mem::take(&mut part.bytes);
        self.budget.give_back(peer, size_of::<Partial>());
        *content = Content::Gone;
        if sequence == *next {
            set_source(source, sink.take(peer, near, &bytes));
        } else if let Some(admission) = sink.admit(peer, near, &bytes) {
            let Admission { meta, at_once, .. } = admission;
            set_source(source, admission.source);
            if !at_once {
                self.counts.waited += 1;
                *content = Content::Whole(bytes, meta);
                return;
            }
            sink.release(peer, near, &meta, &bytes);
        }
        self.recycle(peer, bytes);
    }

    /// Charges a peer for a frame of a flow, and for its record. Returns whether the bytes are
    /// within the limits.
    fn reserve(&mut self, peer: u32, flow: &mut Flow, bytes: usize) -> bool {
        let entries = &mut flow.entries;
        let full = entries.len() == entries.capacity();
        let more = if full { entries.len().max(ENTRIES_MIN) } else { 0 };
        if !self.budget.take(peer, bytes + more * size_of::<Entry>()) {
            return false;
        }
        let before = entries.capacity();
        if more > 0 {
            entries.reserve_exact(more);
        }
        debug_assert_eq!(entries.capacity(), before + more, "exactly what is charged");
        true
    }

    /// Returns an empty buffer for a frame of `bytes` bytes, which are charged already.
    fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let spare = if bytes >= LARGE_BYTES_MIN { self.spare.pop() } else { None };
        spare.unwrap_or_else(|| Vec::with_capacity(capacity(bytes)))
    }

    /// Returns the state of a frame without chunks, whose bytes are charged already.
    fn partial(&mut self, frame_bytes: usize, step: usize) -> Box<Partial> {
        let mut bytes = self.buffer(frame_bytes);
        bytes.resize(frame_bytes, 0);
        Box::new(Partial { bytes, chunks: 0, received: 0, step })
    }

    /// Releases a frame's buffer, or keeps it as a spare.
    fn recycle(&mut self, peer: u32, mut bytes: Vec<u8>) {
        let large = bytes.len() >= LARGE_BYTES_MIN;
        self.budget.give_back(peer, capacity(bytes.len()));
        if large && self.spare.len() < SPARE_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// Releases the memory of an entry.
    fn discard(&mut self, peer: u32, content: Content) {
        match content {
            Content::Partial(part) => {
                self.budget.give_back(peer, size_of::<Partial>());
                self.recycle(peer, part.bytes);
            }
            Content::Whole(bytes, _) => self.recycle(peer, bytes),
            Content::Gone => {}
        }
    }

    /// Frees the memory for entries of a flow that has no entries.
    fn shrink(&mut self, peer: u32, flow: &mut Flow) {
        if flow.entries.is_empty() && flow.entries.capacity() > 0 {
            self.budget.give_back(peer, flow.entries.capacity() * size_of::<Entry>());
            flow.entries = VecDeque::new();
        }
    }

    /// Releases all memory of a flow that is removed.
    pub(super) fn clear(&mut self, peer: u32, flow: &mut Flow) {
        while let Some(entry) = flow.entries.pop_front() {
            self.discard(peer, entry.content);
        }
        self.shrink(peer, flow);
        self.budget.close(peer);
    }

    /// Passes the frames that are next in sequence to the sink, and records whether the flow waits
    /// for a missing frame.
    pub(super) fn release(
        &mut self,
        now: Instant,
        key: Key,
        flow: &mut Flow,
        sink: &mut impl Sink,
    ) {
        while flow.entries.front().is_some_and(|entry| {
            entry.sequence == flow.next && !matches!(entry.content, Content::Partial(_))
        }) {
            let Some(entry) = flow.entries.pop_front() else { break };
            flow.next = flow.next.wrapping_add(1);
            flow.waits_since = None;
            if let Content::Whole(bytes, meta) = entry.content {
                sink.release(key.0, &mut flow.near, &meta, &bytes);
                self.recycle(key.0, bytes);
            }
        }
        if flow.entries.is_empty() {
            flow.waits_since = None;
            self.shrink(key.0, flow);
        } else if flow.waits_since.is_none() {
            flow.waits_since = Some(now);
            if !flow.in_line {
                flow.in_line = true;
                self.waiting.push(Reverse((now + self.wait, key)));
            }
        }
    }

    /// Skips the missing and incomplete frames for which a flow has waited too long. // O3
    pub(super) fn give_up(
        &mut self,
        now: Instant,
        key: Key,
        flow: &mut Flow,
        sink: &mut impl Sink,
    ) {
        self.counts.wait_timeouts += 1;
        flow.waits_since = None;
        while let Some(entry) = flow.entries.front() {
            let (sequence, partial) =
                (entry.sequence, matches!(entry.content, Content::Partial(_)));
            let end = if partial { sequence.wrapping_add(1) } else { sequence };
            self.counts.given_up += u64::from(end.wrapping_sub(flow.next));
            flow.next = end;
            if !partial {
                break;
            }
            if let Some(entry) = flow.entries.pop_front() {
                self.discard(key.0, entry.content);
            }
        }
        self.release(now, key, flow, sink);
    }
}
