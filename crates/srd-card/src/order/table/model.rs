//! Comparison with a naive reference: for the same chunks at the same times, the same frames must
//! come out in the same order, with the same counters.
//!
//! The reference keeps every frame in a map, uses sequence numbers that do not wrap, and scans
//! everything each time. It has no limits: the test sizes stay below them.

use super::*;
use crate::meta::Meta;
use crate::order::{Admission, Near, Source};
use crate::testing::{meta, v4};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Key of a flow: the peer, and the peer's number of the flow.
type Name = (u32, u32);

#[derive(Default)]
struct NaiveFlow {
    next: u64,
    /// Received chunks of each incomplete frame.
    parts: BTreeMap<u64, BTreeMap<u8, Vec<u8>>>,
    whole: BTreeMap<u64, Vec<u8>>,
    waits_since: Option<Instant>,
}

#[derive(Default)]
struct Naive {
    flows: BTreeMap<Name, NaiveFlow>,
    up: Vec<(u32, Vec<u8>)>,
    counts: OrderCounts,
}

const WAIT: Duration = Duration::from_millis(100);
const CHUNK: usize = 10;

/// Returns the bytes of a frame. The first byte is the number of the flow; the other bytes are
/// pseudo-random numbers that follow from the flow and the sequence number.
fn frame(name: Name, sequence: u64) -> Vec<u8> {
    let mut rng = srd_proto::rng::Rng::new(u64::from(name.1) << 32 | sequence);
    let bytes = 1 + rng.below(45) as usize;
    let rest = (1..bytes).map(|_| u8::try_from(rng.below(256)).unwrap());
    core::iter::once(u8::try_from(name.1).unwrap()).chain(rest).collect()
}

/// Groups frames by flow, because frames of different flows that leave at the same time may be in
/// any order.
fn by_flow(up: &[(u32, Vec<u8>)]) -> BTreeMap<(u32, u8), Vec<&[u8]>> {
    let mut flows: BTreeMap<_, Vec<&[u8]>> = BTreeMap::new();
    for (peer, frame) in up {
        flows.entry((*peer, frame[0])).or_default().push(frame);
    }
    flows
}

impl Naive {
    fn chunk(&mut self, now: Instant, name: Name, sequence: u64, chunk: u8) {
        let flow = self.flows.entry(name).or_insert_with(|| {
            // If the first frame to arrive has a high sequence number, the flow had an entry before
            // that was removed: the flow continues at this frame.
            let next = if sequence < u64::from(WINDOW) { 0 } else { sequence };
            NaiveFlow { next, ..NaiveFlow::default() }
        });
        let far = sequence >= flow.next + u64::from(WINDOW);
        let parts = flow.parts.get(&sequence);
        let again = parts.is_some_and(|parts| parts.contains_key(&chunk));
        if sequence < flow.next || far || again || flow.whole.contains_key(&sequence) {
            self.counts.bad_chunks += 1;
        } else {
            let bytes = frame(name, sequence);
            let part = bytes.chunks(CHUNK).nth(chunk.into()).unwrap().to_vec();
            let parts = flow.parts.entry(sequence).or_default();
            parts.insert(chunk, part);
            if parts.len() == bytes.len().div_ceil(CHUNK) {
                let whole = parts.values().flatten().copied().collect();
                flow.parts.remove(&sequence);
                self.counts.waited += u64::from(sequence > flow.next);
                flow.whole.insert(sequence, whole);
            }
        }
        self.release(now, name);
    }

    fn release(&mut self, now: Instant, name: Name) {
        let flow = self.flows.get_mut(&name).unwrap();
        while let Some(bytes) = flow.whole.remove(&flow.next) {
            self.up.push((name.0, bytes));
            flow.next += 1;
            flow.waits_since = None;
        }
        if flow.whole.is_empty() && flow.parts.is_empty() {
            flow.waits_since = None;
        } else {
            flow.waits_since.get_or_insert(now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        // The flow that has waited longest comes first.
        loop {
            let over = self.flows.iter().filter_map(|(name, f)| Some((f.waits_since?, *name)));
            let over = over.filter(|(since, _)| *since + WAIT <= now).min();
            let Some((_, name)) = over else { return };
            let flow = self.flows.get_mut(&name).unwrap();
            let whole = flow.whole.keys().next().copied();
            let begun = flow.parts.keys().next_back().map(|last| last + 1);
            let next = whole.or(begun).unwrap();
            self.counts.wait_timeouts += 1;
            self.counts.given_up += next - flow.next;
            flow.next = next;
            flow.parts = flow.parts.split_off(&next);
            flow.waits_since = None;
            self.release(now, name);
        }
    }

    fn forget_peer(&mut self, peer: u32) {
        self.flows.retain(|name, _| name.0 != peer);
    }
}

#[derive(Default)]
struct Up(Vec<(u32, Vec<u8>)>);

impl Sink for Up {
    fn admit(&mut self, _: u32, _: &mut Near, _: &[u8]) -> Option<Admission> {
        Some(Admission { meta: meta(&v4(47, (0, 0), b"")), source: 0, at_once: false })
    }

    fn take(&mut self, peer: u32, _: &mut Near, frame: &[u8]) -> Source {
        self.0.push((peer, frame.to_vec()));
        0
    }

    fn release(&mut self, peer: u32, _: &mut Near, _: &Meta, frame: &[u8]) {
        self.0.push((peer, frame.to_vec()));
    }
}

/// One step of a random test case.
#[derive(Clone, Debug)]
enum Step {
    /// Sends the chunks of a frame, from the chunk `first` on. The frame is `ahead` frames beyond
    /// the last frame of its flow that was sent.
    Send {
        peer: u32,
        flow: u32,
        ahead: u64,
        first: u8,
        missing: Option<u8>,
    },
    /// Sends all chunks of an earlier frame of the flow, `behind` frames before the flow's next
    /// frame. The receiver may lack chunks of this frame, or may have delivered it already.
    Late {
        peer: u32,
        flow: u32,
        behind: u64,
    },
    Pass {
        ms: u64,
    },
    Remove {
        peer: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let name = (0u32..2, 0u32..3);
    let ahead = prop_oneof![8 => Just(0u64), 4 => 1u64..6, 1 => 4000u64..4200];
    prop_oneof![
        12 => (name.clone(), ahead, any::<u8>(), prop::option::weighted(0.2, 0u8..5)).prop_map(
            |((peer, flow), ahead, first, missing)| Step::Send { peer, flow, ahead, first, missing }
        ),
        4 => (name, 1u64..12).prop_map(|((peer, flow), behind)| Step::Late { peer, flow, behind }),
        3 => (0u64..60).prop_map(|ms| Step::Pass { ms }),
        1 => (0u32..2).prop_map(|peer| Step::Remove { peer }),
    ]
}

proptest! {
    #[test]
    fn order_does_what_the_naive_reference_does(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let limits = Limits { wait: WAIT, flows_max: 100, bytes_max: 100 << 20 };
        let (mut order, mut up) = (Order::new(limits, Secret::known(1)), Up::default());
        let (mut naive, mut now) = (Naive::default(), Instant::ZERO);
        // Sequence number of the next frame of each flow, at the sender.
        let mut sent: BTreeMap<Name, u64> = BTreeMap::new();
        for step in steps {
            let mut put = |name: Name, sequence: u64, chunk: u8| {
                let bytes = frame(name, sequence);
                let count = bytes.len().div_ceil(CHUNK);
                let part = bytes.chunks(CHUNK).nth(chunk.into()).unwrap();
                let place = ChunkPosition {
                    flow: name.1,
                    sequence: u16::try_from(sequence & 0xffff).unwrap(),
                    chunk,
                    last: usize::from(chunk) + 1 == count,
                    frame_bytes: u16::try_from(bytes.len()).unwrap(),
                };
                order.chunk(now, (name.0, 0), place, part, &mut up);
                naive.chunk(now, name, sequence, chunk);
            };
            let chunks = |name, sequence| {
                u8::try_from(frame(name, sequence).len().div_ceil(CHUNK)).unwrap()
            };
            match step {
                Step::Send { peer, flow, ahead, first, missing } => {
                    let name = (peer, flow);
                    let next = sent.entry(name).or_default();
                    let sequence = *next + ahead;
                    *next = sequence + 1;
                    let count = chunks(name, sequence);
                    for at in 0..count {
                        let chunk = (first % count + at) % count;
                        if missing != Some(chunk) {
                            put(name, sequence, chunk);
                        }
                    }
                }
                Step::Late { peer, flow, behind } => {
                    let name = (peer, flow);
                    let Some(sequence) = sent.get(&name).and_then(|n| n.checked_sub(behind)) else {
                        continue;
                    };
                    (0..chunks(name, sequence)).for_each(|chunk| put(name, sequence, chunk));
                }
                Step::Pass { ms } => {
                    now += Duration::from_millis(ms);
                    order.handle_timeout(now, &mut up);
                    naive.handle_timeout(now);
                }
                Step::Remove { peer } => {
                    order.forget_peer(peer);
                    naive.forget_peer(peer);
                    sent.retain(|name, _| name.0 != peer);
                }
            }
            prop_assert_eq!(by_flow(&up.0), by_flow(&naive.up));
            prop_assert_eq!(order.counts(), naive.counts);
        }
        // Waits end, and all charged memory is released.
        for _ in 0..300 {
            now += WAIT;
            order.handle_timeout(now, &mut up);
            naive.handle_timeout(now);
        }
        prop_assert_eq!(by_flow(&up.0), by_flow(&naive.up));
        prop_assert_eq!((order.counts(), order.store.budget.waiting_bytes()), (naive.counts, 0));
        for peer in 0..2 {
            order.forget_peer(peer);
        }
        prop_assert_eq!(order.flows(), 0);
    }
}
