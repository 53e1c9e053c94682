//! Naive implementation of the receiving side, which restores the order of flows: it keeps every
//! frame in a map, scans all frames each time, and has sequence numbers that never wrap and no
//! limits.

use std::collections::BTreeMap;

use srd_proto::time::{Duration, Instant};

/// Largest distance of a frame from the next expected one.
const WINDOW: u64 = 4096;
/// Silence after which a flow is removed.
const IDLE: Duration = Duration::from_secs(120);

/// Key of a flow: the peer, and the peer's number of the flow.
pub(crate) type Name = (usize, u32);

/// A chunk that has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) name: Name,
    /// Sequence number of the chunk's frame, which does not wrap.
    pub(crate) sequence: u64,
    pub(crate) chunk: u8,
    pub(crate) frame_bytes: usize,
    pub(crate) bytes: Vec<u8>,
    /// Whether the chunk is consistent with its frame.
    pub(crate) fits: bool,
}

/// State of a frame of which at least one chunk has arrived.
enum Content {
    Parts(BTreeMap<u8, Vec<u8>>),
    Whole(Vec<u8>),
    /// The frame was delivered, or will never be delivered.
    Gone,
}

struct Flow {
    next: u64,
    frames: BTreeMap<u64, Content>,
    waits_since: Option<Instant>,
    used_at: Instant,
}

/// Decision about a complete frame that has arrived before an earlier frame of its flow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Waits,
    AtOnce,
    Refused,
}

/// Counters of the receiving side.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) waited: u64,
    pub(crate) wait_timeouts: u64,
    pub(crate) given_up: u64,
    pub(crate) bad_chunks: u64,
}

/// Received flows of all peers.
#[derive(Default)]
pub(crate) struct Order {
    flows: BTreeMap<Name, Flow>,
    pub(crate) counts: Counts,
}

impl Order {
    pub(crate) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Takes a chunk. Returns the frames that are delivered because of it.
    pub(crate) fn chunk(
        &mut self,
        now: Instant,
        chunk: Chunk,
        mut decide: impl FnMut(&[u8]) -> Decision,
    ) -> Vec<Vec<u8>> {
        let mut up = Vec::new();
        if !chunk.fits {
            self.counts.bad_chunks += 1;
            return up;
        }
        let sequence = chunk.sequence;
        // If the first frame to arrive has a high sequence number, the flow had an entry before
        // that was removed: the flow continues at this frame.
        let next = if sequence < WINDOW { 0 } else { sequence };
        let flow = self.flows.entry(chunk.name).or_insert(Flow {
            next,
            frames: BTreeMap::new(),
            waits_since: None,
            used_at: now,
        });
        flow.used_at = now;
        if sequence < flow.next || sequence >= flow.next + WINDOW {
            self.counts.bad_chunks += 1;
            return up;
        }
        let content = flow.frames.entry(sequence).or_insert(Content::Parts(BTreeMap::new()));
        let Content::Parts(parts) = content else {
            self.counts.bad_chunks += 1;
            return up;
        };
        if parts.insert(chunk.chunk, chunk.bytes).is_some() {
            self.counts.bad_chunks += 1;
        }
        let whole: Vec<u8> = parts.values().flatten().copied().collect();
        if whole.len() == chunk.frame_bytes {
            let decision = if sequence == flow.next { Decision::Waits } else { decide(&whole) };
            *content = match decision {
                Decision::Waits => {
                    self.counts.waited += u64::from(sequence != flow.next);
                    Content::Whole(whole)
                }
                Decision::AtOnce => {
                    up.push(whole);
                    Content::Gone
                }
                Decision::Refused => Content::Gone,
            };
        }
        flow.release(now, &mut up);
        up
    }

    /// Ends waits for missing frames that have lasted for `wait`. Returns the frames that are
    /// delivered because of it, with their peers.
    pub(crate) fn handle_timeout(&mut self, now: Instant, wait: Duration) -> Vec<(usize, Vec<u8>)> {
        let mut all = Vec::new();
        for (name, flow) in &mut self.flows {
            while flow.waits_since.is_some_and(|since| since + wait <= now) {
                let whole =
                    flow.frames.iter().find(|(_, content)| !matches!(content, Content::Parts(_)));
                let next = match whole {
                    Some((sequence, _)) => *sequence,
                    None => flow.frames.keys().next_back().unwrap() + 1,
                };
                self.counts.wait_timeouts += 1;
                self.counts.given_up += next - flow.next;
                flow.next = next;
                flow.frames = flow.frames.split_off(&next);
                flow.waits_since = None;
                let mut up = Vec::new();
                flow.release(now, &mut up);
                all.extend(up.into_iter().map(|frame| (name.0, frame)));
            }
        }
        self.flows.retain(|_, flow| now.since(flow.used_at) < IDLE);
        all
    }

    pub(crate) fn forget_peer(&mut self, peer: usize) {
        self.flows.retain(|name, _| name.0 != peer);
    }
}

impl Flow {
    fn release(&mut self, now: Instant, up: &mut Vec<Vec<u8>>) {
        while let Some(content) = self.frames.remove(&self.next) {
            match content {
                Content::Parts(parts) => {
                    self.frames.insert(self.next, Content::Parts(parts));
                    break;
                }
                Content::Whole(frame) => up.push(frame),
                Content::Gone => {}
            }
            self.next += 1;
            self.waits_since = None;
        }
        if self.frames.is_empty() {
            self.waits_since = None;
        } else {
            self.waits_since.get_or_insert(now);
        }
    }
}
