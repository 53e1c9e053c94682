//! What waits: the frames of a flow, and the buffers and records that all of them take, charged
//! to the peers as large as they are allocated.

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use srd_proto::time::{Duration, Instant};

use super::{Admission, Key, OrderCounts, SPARE_MAX, Sink};
use crate::share::Shares;
use crate::wire::frame::{FRAME_BYTES_MAX, Place};

/// A frame of so many bytes is kept in a buffer of the largest size, which is used again.
const LARGE_BYTES_MIN: usize = 32 * 1024;
/// Places of frames that a flow is given when its first one waits; doubled when they are full.
const ENTRIES_MIN: usize = 4;

/// What there is of a frame.
#[derive(Debug)]
pub(super) enum Content {
    /// Some chunks of it.
    Partial(Box<Partial>),
    /// All of it: it waits for earlier ones.
    Whole(Vec<u8>),
    /// Nothing any more: it went up out of turn, or was refused.
    Gone,
}

#[derive(Debug)]
pub(super) struct Partial {
    pub(super) bytes: Vec<u8>,
    chunks: u128,
    received: usize,
    /// Bytes of each chunk but the last.
    step: usize,
}

/// A frame of which something has come.
#[derive(Debug)]
pub(super) struct Entry {
    sequence: u16,
    content: Content,
}

#[derive(Debug)]
pub(super) struct Flow {
    /// The frame that is next.
    pub(super) next: u16,
    /// Frames that are not missing, in the order of their sequence numbers.
    pub(super) entries: VecDeque<Entry>,
    /// Since when it has been waiting for the frame at the head.
    pub(super) waits_since: Option<Instant>,
    /// Whether a wait of it is in line.
    pub(super) in_line: bool,
    pub(super) used_at: Instant,
}

/// What flows share.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) wait: Duration,
    pub(super) bytes: Shares,
    spare: Vec<Vec<u8>>,
    /// Flows that wait or did: when to look at each, earliest first.
    pub(super) waiting: BinaryHeap<Reverse<(Instant, Key)>>,
    pub(super) counts: OrderCounts,
}

impl Flow {
    /// Whether something has come of the frame at the head.
    pub(super) fn is_begun(&self, sequence: u16) -> bool {
        self.entries.front().is_some_and(|entry| entry.sequence == sequence)
    }

    /// Where the entry of a frame is, or would have to be.
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
    pub(super) fn new(wait: Duration, bytes_max: usize) -> Self {
        Self {
            wait,
            bytes: Shares::new(bytes_max),
            spare: Vec::new(),
            waiting: BinaryHeap::new(),
            counts: OrderCounts::default(),
        }
    }

    /// A frame in one piece that waits for earlier ones.
    pub(super) fn put_whole(
        &mut self,
        peer: u32,
        flow: &mut Flow,
        sequence: u16,
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        let Err(at) = flow.find(sequence) else {
            self.counts.bad_chunks += 1;
            return;
        };
        let content = match sink.admit(peer, payload) {
            Admission::InTurn => {
                let Some(mut bytes) = self.buffer(peer, payload.len()) else {
                    self.counts.full += 1;
                    return;
                };
                bytes.extend_from_slice(payload);
                Content::Whole(bytes)
            }
            Admission::AtOnce => {
                sink.take(peer, payload);
                Content::Gone
            }
            Admission::Never => Content::Gone,
        };
        let waits = u64::from(matches!(content, Content::Whole(_)));
        if self.insert(peer, flow, at, Entry { sequence, content }) {
            self.counts.waited += waits;
        } else {
            self.counts.full += waits;
        }
    }

    pub(super) fn put_part(
        &mut self,
        peer: u32,
        flow: &mut Flow,
        place: Place,
        offset: usize,
        payload: &[u8],
        sink: &mut impl Sink,
    ) {
        let (sequence, step) = (place.sequence, place.step(payload.len()));
        let frame_bytes = usize::from(place.frame_bytes);
        let at = match flow.find(sequence) {
            Ok(at) => at,
            Err(at) => {
                let Some(partial) = self.partial(peer, frame_bytes, step) else {
                    self.counts.full += 1;
                    return;
                };
                let content = Content::Partial(partial);
                if !self.insert(peer, flow, at, Entry { sequence, content }) {
                    self.counts.full += 1;
                    return;
                }
                at
            }
        };
        let bit = 1u128 << place.chunk;
        let content = &mut flow.entries[at].content;
        let part = match content {
            Content::Partial(p)
                if p.bytes.len() == frame_bytes && p.step == step && p.chunks & bit == 0 =>
            {
                p
            }
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
        self.bytes.give_back(peer, size_of::<Partial>());
        // At the head its turn has come; it is checked as it goes up.
        let admission =
            if sequence == flow.next { Admission::InTurn } else { sink.admit(peer, &bytes) };
        if admission == Admission::InTurn {
            self.counts.waited += u64::from(sequence != flow.next);
            *content = Content::Whole(bytes);
            return;
        }
        *content = Content::Gone;
        if admission == Admission::AtOnce {
            sink.take(peer, &bytes);
        }
        self.recycle(peer, bytes);
    }

    /// An empty buffer for a frame of so many bytes, if the peer may have it.
    fn buffer(&mut self, peer: u32, bytes: usize) -> Option<Vec<u8>> {
        let large = bytes >= LARGE_BYTES_MIN;
        let capacity = if large { FRAME_BYTES_MAX } else { bytes };
        if !self.bytes.take(peer, capacity) {
            return None;
        }
        let spare = if large { self.spare.pop() } else { None };
        Some(spare.unwrap_or_else(|| Vec::with_capacity(capacity)))
    }

    /// Takes back a frame's buffer.
    fn recycle(&mut self, peer: u32, mut bytes: Vec<u8>) {
        let large = bytes.len() >= LARGE_BYTES_MIN;
        self.bytes.give_back(peer, if large { FRAME_BYTES_MAX } else { bytes.len() });
        if large && self.spare.len() < SPARE_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// A frame of which nothing has come yet, if the peer may have one.
    fn partial(&mut self, peer: u32, frame_bytes: usize, step: usize) -> Option<Box<Partial>> {
        let mut bytes = self.buffer(peer, frame_bytes)?;
        bytes.resize(frame_bytes, 0);
        if !self.bytes.take(peer, size_of::<Partial>()) {
            self.recycle(peer, bytes);
            return None;
        }
        Some(Box::new(Partial { bytes, chunks: 0, received: 0, step }))
    }

    /// Adds an entry. Returns whether there was room for it; if not, it is discarded.
    fn insert(&mut self, peer: u32, flow: &mut Flow, at: usize, entry: Entry) -> bool {
        let entries = &mut flow.entries;
        if entries.len() == entries.capacity() {
            let more = entries.len().max(ENTRIES_MIN);
            if !self.bytes.take(peer, more * size_of::<Entry>()) {
                self.discard(peer, entry.content);
                return false;
            }
            let before = entries.capacity();
            entries.reserve_exact(more);
            debug_assert_eq!(entries.capacity(), before + more, "exactly what is charged");
        }
        entries.insert(at, entry);
        true
    }

    /// Gives back what an entry holds.
    fn discard(&mut self, peer: u32, content: Content) {
        match content {
            Content::Partial(part) => {
                self.bytes.give_back(peer, size_of::<Partial>());
                self.recycle(peer, part.bytes);
            }
            Content::Whole(bytes) => self.recycle(peer, bytes),
            Content::Gone => {}
        }
    }

    /// Gives back the room for entries when there are none.
    fn shrink(&mut self, peer: u32, flow: &mut Flow) {
        if flow.entries.is_empty() && flow.entries.capacity() > 0 {
            self.bytes.give_back(peer, flow.entries.capacity() * size_of::<Entry>());
            flow.entries = VecDeque::new();
        }
    }

    /// Gives back everything of a flow.
    pub(super) fn clear(&mut self, peer: u32, flow: &mut Flow) {
        while let Some(entry) = flow.entries.pop_front() {
            self.discard(peer, entry.content);
        }
        self.shrink(peer, flow);
    }

    /// Hands up what is in turn, and notes whether the flow waits.
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
            if let Content::Whole(bytes) = entry.content {
                sink.take(key.0, &bytes);
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

    /// Skips what is missing at the head of a flow.
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
