//! Frames that wait for one peer: fair between flows, and short.
//!
//! Flow queueing as in FQ-CoDel (RFC 8290): deficit round robin over flows with something to
//! send, flows that have just begun first. A flow whose frames have waited for longer than the
//! target, others behind them, for a whole interval, has frames marked by CoDel's law (RFC 8289),
//! ever more often; or dropped, if its packets are not ECN-capable. Bursts pass unmarked: a hole
//! that is filled lets go of all that waited behind it at once.
//!
//! Bound: `queue_bytes_max` per peer; beyond it the flow with most bytes loses its oldest frames.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};

use crate::offload::OFFLOAD_BYTES;
use crate::packet;

/// Bytes that a flow may send per round.
const QUANTUM_BYTES: i64 = 16 * 1024;

/// What decides about marks and drops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aqm {
    /// A queue that is longer is too long.
    pub target: Duration,
    /// A flow above the target for so long has a frame marked or dropped.
    pub interval: Duration,
    /// Bytes that may wait for one peer.
    pub bytes_max: usize,
}

/// A frame in line.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Offload header and packet.
    pub frame: Vec<u8>,
    /// When it came.
    pub at: Instant,
}

/// Which list a flow is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum List {
    #[default]
    None,
    Fresh,
    Old,
}

/// The frames of one flow.
#[derive(Debug, Default)]
pub(crate) struct FlowQueue {
    frames: VecDeque<Waiting>,
    bytes: usize,
    deficit: i64,
    list: List,
    codel: Codel,
}

impl FlowQueue {
    /// Whether no list names it, so that its slot may become another flow's.
    pub(crate) fn is_unlisted(&self) -> bool {
        self.list == List::None
    }
}

/// What happened to frames on their way through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QueueCounts {
    pub marked: u64,
    /// Dropped by the delay law.
    pub dropped_late: u64,
    /// Dropped because the peer's queue was full.
    pub dropped_full: u64,
}

/// The queue of one peer: which flows have frames, in which order they go.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    fresh: VecDeque<u32>,
    old: VecDeque<u32>,
    bytes: usize,
}

impl Scheduler {
    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Puts a frame in line.
    pub(crate) fn push(
        &mut self,
        flows: &mut [FlowQueue],
        slot: u32,
        waiting: Waiting,
        aqm: &Aqm,
        counts: &mut QueueCounts,
    ) {
        self.bytes += waiting.frame.len();
        let flow = &mut flows[slot as usize];
        flow.bytes += waiting.frame.len();
        flow.frames.push_back(waiting);
        if flow.list == List::None {
            flow.list = List::Fresh;
            flow.deficit = QUANTUM_BYTES;
            self.fresh.push_back(slot);
        }
        while self.bytes > aqm.bytes_max && self.drop_from_fattest(flows, counts) {}
    }

    /// Drops the oldest half of the flow that holds most.
    fn drop_from_fattest(&mut self, flows: &mut [FlowQueue], counts: &mut QueueCounts) -> bool {
        let active = self.fresh.iter().chain(&self.old);
        let Some(&fattest) = active.max_by_key(|slot| flows[**slot as usize].bytes) else {
            return false;
        };
        let flow = &mut flows[fattest as usize];
        let keep = flow.bytes / 2;
        while flow.bytes > keep
            && let Some(dropped) = flow.frames.pop_front()
        {
            flow.bytes -= dropped.frame.len();
            self.bytes -= dropped.frame.len();
            counts.dropped_full += 1;
        }
        true
    }

    /// The flow whose turn it is, and whether it has only just begun.
    pub(crate) fn next(&mut self, flows: &mut [FlowQueue]) -> Option<(u32, bool)> {
        loop {
            let fresh = !self.fresh.is_empty();
            let list = if fresh { &mut self.fresh } else { &mut self.old };
            let &slot = list.front()?;
            let flow = &mut flows[slot as usize];
            if flow.frames.is_empty() {
                // A flow that ran dry while fresh goes round once more as an old one, so that
                // it cannot be fresh again at once.
                list.pop_front();
                if fresh && !self.old.is_empty() {
                    flow.list = List::Old;
                    self.old.push_back(slot);
                } else {
                    flow.list = List::None;
                }
            } else if flow.deficit <= 0 {
                flow.deficit += QUANTUM_BYTES;
                list.pop_front();
                flow.list = List::Old;
                self.old.push_back(slot);
            } else {
                return Some((slot, fresh));
            }
        }
    }

    /// Takes the frame of the flow that [`Scheduler::next`] named; `None` if the delay law took
    /// what there was.
    pub(crate) fn take(
        &mut self,
        flows: &mut [FlowQueue],
        slot: u32,
        now: Instant,
        aqm: &Aqm,
        counts: &mut QueueCounts,
    ) -> Option<Waiting> {
        let flow = &mut flows[slot as usize];
        loop {
            let mut waiting = flow.frames.pop_front()?;
            let bytes = waiting.frame.len();
            flow.bytes -= bytes;
            self.bytes -= bytes;
            let late = now.since(waiting.at) > aqm.target && !flow.frames.is_empty();
            if flow.codel.strikes(late, now, aqm.interval) {
                if !packet::mark(&mut waiting.frame[OFFLOAD_BYTES..]) {
                    counts.dropped_late += 1;
                    continue;
                }
                counts.marked += 1;
            }
            flow.deficit -= i64::try_from(bytes).unwrap_or(i64::MAX);
            return Some(waiting);
        }
    }
}

/// CoDel's law for one flow.
#[derive(Debug, Default)]
struct Codel {
    /// When the queue will have been above the target for an interval.
    above_until: Option<Instant>,
    striking: bool,
    strike_next: Instant,
    strikes: u32,
}

impl Codel {
    /// Whether the frame at the head is marked or dropped.
    fn strikes(&mut self, late: bool, now: Instant, interval: Duration) -> bool {
        if !late {
            self.above_until = None;
            self.striking = false;
            return false;
        }
        let until = *self.above_until.get_or_insert(now + interval);
        if self.striking {
            if now < self.strike_next {
                return false;
            }
            self.strikes += 1;
        } else {
            if now < until {
                return false;
            }
            // Soon after the last episode: go on where it had to go.
            let recent = now.since(self.strike_next) < interval.times(16);
            self.strikes = if recent && self.strikes > 2 { self.strikes - 2 } else { 1 };
            self.striking = true;
            self.strike_next = now;
        }
        let wait = interval.as_nanos() / u64::from(self.strikes).isqrt().max(1);
        self.strike_next += Duration::from_nanos(wait);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::protocol;
    use crate::packet::tests::v4;
    use std::vec;

    const AQM: Aqm = Aqm {
        target: Duration::from_millis(2),
        interval: Duration::from_millis(100),
        bytes_max: 1_000_000,
    };

    fn frame(bytes: usize, ecn: u8) -> Vec<u8> {
        let mut frame = vec![0; OFFLOAD_BYTES];
        let mut packet = v4(protocol::TCP, (1, 2), &vec![0; bytes - OFFLOAD_BYTES - 40]);
        packet[1] = ecn;
        frame.extend_from_slice(&packet);
        frame
    }

    struct Bench {
        flows: Vec<FlowQueue>,
        scheduler: Scheduler,
        counts: QueueCounts,
        aqm: Aqm,
    }

    impl Bench {
        fn new(flows: usize) -> Self {
            let flows = (0..flows).map(|_| FlowQueue::default()).collect();
            Self {
                flows,
                scheduler: Scheduler::default(),
                counts: QueueCounts::default(),
                aqm: AQM,
            }
        }

        fn push(&mut self, slot: u32, bytes: usize, ecn: u8, at: Instant) {
            let waiting = Waiting { frame: frame(bytes, ecn), at };
            self.scheduler.push(&mut self.flows, slot, waiting, &self.aqm, &mut self.counts);
        }

        fn take(&mut self, now: Instant) -> Option<(u32, Waiting)> {
            let (slot, _) = self.scheduler.next(&mut self.flows)?;
            self.scheduler
                .take(&mut self.flows, slot, now, &self.aqm, &mut self.counts)
                .map(|w| (slot, w))
        }
    }

    #[test]
    fn flows_share_bytes_whatever_the_size_of_their_frames() {
        let mut bench = Bench::new(2);
        for _ in 0..10 {
            bench.push(0, 60_000, 0, Instant::ZERO);
        }
        for _ in 0..200 {
            bench.push(1, 1500, 0, Instant::ZERO);
        }
        let mut bytes = [0usize; 2];
        while bytes[0] + bytes[1] < 400_000 {
            let (slot, waiting) = bench.take(Instant::ZERO).unwrap();
            bytes[slot as usize] += waiting.frame.len();
        }
        assert!(bytes[0].abs_diff(bytes[1]) < 80_000, "{bytes:?}");
    }

    #[test]
    fn a_flow_that_begins_goes_before_those_that_queue() {
        let mut bench = Bench::new(2);
        for _ in 0..100 {
            bench.push(0, 9000, 0, Instant::ZERO);
        }
        for _ in 0..4 {
            bench.take(Instant::ZERO).unwrap();
        }
        bench.push(1, 100, 0, Instant::ZERO);
        assert_eq!(bench.take(Instant::ZERO).unwrap().0, 1);
    }

    /// A queue that grows for a second: how many frames were marked and dropped by then, by ms.
    fn grows(ecn: u8) -> Vec<QueueCounts> {
        let mut bench = Bench::new(1);
        let mut counts = Vec::new();
        for ms in 0..1000u64 {
            let now = Instant::ZERO + Duration::from_millis(ms);
            for _ in 0..2 {
                bench.push(0, 1500, ecn, now);
            }
            bench.take(now);
            counts.push(bench.counts);
        }
        counts
    }

    #[test]
    fn a_queue_that_stays_long_is_marked_ever_more_often_and_loses_nothing() {
        let counts = grows(2);
        assert_eq!(counts[90].marked, 0, "one interval of grace");
        let (half, whole) = (counts[500].marked, counts[999].marked);
        assert!(half >= 4 && whole - half > half, "{half} {whole}");
        assert_eq!(counts[999].dropped_late, 0);
    }

    #[test]
    fn what_cannot_be_marked_is_dropped_by_the_same_law() {
        let counts = grows(0);
        assert_eq!(counts[90].dropped_late, 0, "one interval of grace");
        let (half, whole) = (counts[500].dropped_late, counts[999].dropped_late);
        assert!(half >= 4 && whole - half > half, "{half} {whole}");
        assert_eq!(counts[999].marked, 0);
    }

    #[test]
    fn a_burst_that_drains_is_neither_marked_nor_dropped() {
        let mut bench = Bench::new(1);
        for _ in 0..40 {
            bench.push(0, 9000, 2, Instant::ZERO);
        }
        for ms in 0..40 {
            bench.take(Instant::ZERO + Duration::from_millis(ms)).unwrap();
        }
        assert_eq!(bench.counts, QueueCounts::default());
    }

    #[test]
    fn a_full_queue_takes_from_whoever_holds_most() {
        let mut bench = Bench::new(2);
        bench.push(1, 1500, 0, Instant::ZERO);
        for _ in 0..20 {
            bench.push(0, 60_000, 0, Instant::ZERO);
        }
        assert!(bench.scheduler.bytes() <= AQM.bytes_max);
        assert!(bench.counts.dropped_full > 0);
        assert!(!bench.flows[1].frames.is_empty());
    }
}
