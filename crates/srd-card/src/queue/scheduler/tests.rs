use super::*;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::protocol;
use crate::queue::flow::RING_KEPT;
use crate::testing::{framed, layout, v4};
use crate::wire::cloud;
use srd_proto::time::Duration;
use std::vec;

const AQM: Aqm = Aqm {
    target: Duration::from_millis(2),
    interval: Duration::from_millis(100),
    bytes_max: 1_000_000,
};

fn waiting(bytes: usize, ecn: u8, at: Instant, kind: Kind) -> QueuedFrame {
    let mut packet = v4(protocol::TCP, (1, 2), &vec![0; bytes - OFFLOAD_BYTES - 40]);
    packet[1] = ecn;
    QueuedFrame { frame: framed(&packet), layout: layout(&packet), at, kind, path: 0 }
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
        Self { flows, scheduler: Scheduler::default(), counts: QueueCounts::default(), aqm: AQM }
    }

    fn push(&mut self, slot: u32, bytes: usize, ecn: u8, at: Instant) {
        let waiting = waiting(bytes, ecn, at, Kind::Other);
        self.scheduler.push(&mut self.flows, (0, slot), waiting, &self.aqm, &mut self.counts);
    }

    fn take(&mut self, now: Instant) -> Option<(u32, QueuedFrame)> {
        let turn = self.scheduler.next(&mut self.flows, Lane::Plain)?;
        self.scheduler
            .take(&mut self.flows, turn, Lane::Plain, now, &self.aqm, &mut self.counts)
            .map(|w| (turn.slot, w))
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

/// Lets a queue grow for a second: each millisecond, two frames arrive and one leaves. Returns the
/// counters of marked and dropped frames after each millisecond.
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

/// Q2, Q3: the queue marks a late bundle in any of its packets, and drops it only if no packet is
/// ECN-capable.
#[test]
fn regression_a_late_bundle_whose_first_packet_is_not_ecn_capable_is_marked() {
    let trailer = Trailer([7; 20]).of_one();
    let mut bench = Bench::new(1);
    for ms in 0..1000u64 {
        let now = Instant::ZERO + Duration::from_millis(ms);
        for _ in 0..2 {
            let [mut bundle, next] = [0, 2].map(|ecn| waiting(600, ecn, now, Kind::PlainCloud));
            bundle.frame.extend_from_slice(&trailer.0);
            assert!(cloud::join(&mut bundle.frame, &next.frame, &trailer, 1400));
            let Bench { flows, scheduler, counts, aqm } = &mut bench;
            scheduler.push(flows, (0, 0), bundle, aqm, counts);
        }
        bench.take(now);
    }
    let QueueCounts { marked, dropped_late, .. } = bench.counts;
    assert!(marked >= 4 && dropped_late == 0, "{marked} marked, {dropped_late} dropped");
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
fn a_flow_changes_lanes_with_its_frames_and_with_the_rule() {
    let mut bench = Bench::new(3);
    let push = |bench: &mut Bench, slot, kind| {
        let waiting = waiting(500, 0, Instant::ZERO, kind);
        let Bench { flows, scheduler, counts, aqm } = bench;
        scheduler.push(flows, (0, slot), waiting, aqm, counts);
    };
    for kind in [Kind::Tcp, Kind::Other, Kind::Tcp] {
        push(&mut bench, 0, kind);
    }
    push(&mut bench, 1, Kind::Udp);
    let rule = Rule { tcp: true, frame_bytes_max: 9000, ..Rule::default() };
    bench.scheduler.set_rule(&bench.flows, rule);
    let taken = |bench: &mut Bench, lane| {
        let Bench { flows, scheduler, counts, aqm } = bench;
        let turn = scheduler.next(flows, lane)?;
        scheduler.take(flows, turn, lane, Instant::ZERO, aqm, counts).map(|_| turn.slot)
    };
    assert_eq!(taken(&mut bench, Lane::Srd), Some(0));
    assert_eq!(taken(&mut bench, Lane::Srd), None, "the next frame goes plainly");
    assert_eq!(taken(&mut bench, Lane::Plain), Some(1));
    assert_eq!(taken(&mut bench, Lane::Plain), Some(0));
    assert_eq!(taken(&mut bench, Lane::Plain), None);
    bench.scheduler.set_rule(&bench.flows, Rule::default());
    assert_eq!(taken(&mut bench, Lane::Srd), None);
    assert_eq!(taken(&mut bench, Lane::Plain), Some(0), "nothing rides any more");
    // A frame that is too large for SRD takes the other lane.
    bench.scheduler.set_rule(&bench.flows, Rule { frame_bytes_max: 499, ..rule });
    push(&mut bench, 2, Kind::Tcp);
    assert_eq!(taken(&mut bench, Lane::Srd), None);
    assert_eq!(taken(&mut bench, Lane::Plain), Some(2));
    assert!(bench.scheduler.is_empty() && bench.scheduler.bytes() == 0);
}

#[test]
fn small_frames_cost_what_they_take() {
    let mut bench = Bench::new(1);
    for _ in 0..20_000 {
        bench.push(0, 60, 0, Instant::ZERO);
    }
    let held = bench.flows[0].frames.len();
    assert!(held * (60 + RECORD_BYTES) <= AQM.bytes_max, "{held} frames");
    assert!(bench.counts.dropped_full > 0);
    while bench.take(Instant::ZERO).is_some() {}
    assert!(bench.flows[0].is_unlisted() && bench.flows[0].frames.capacity() <= RING_KEPT);
}

#[test]
fn a_full_queue_takes_from_the_flow_that_holds_most() {
    let mut bench = Bench::new(2);
    bench.push(1, 1500, 0, Instant::ZERO);
    for _ in 0..20 {
        bench.push(0, 60_000, 0, Instant::ZERO);
    }
    assert!(bench.scheduler.bytes() <= AQM.bytes_max);
    assert!(bench.counts.dropped_full > 0);
    assert!(!bench.flows[1].frames.is_empty());
}

/// Q5: tenants share bytes equally, whatever their numbers of flows and sizes of frames.
#[test]
fn tenants_share_bytes_whatever_flows_they_have() {
    let mut bench = Bench::new(21);
    for slot in 0..21 {
        let (tenant, bytes, frames) = if slot == 20 { (9, 1500, 400) } else { (5, 40_000, 8) };
        for _ in 0..frames {
            let waiting = waiting(bytes, 0, Instant::ZERO, Kind::Other);
            let Bench { flows, scheduler, counts, .. } = &mut bench;
            let aqm = Aqm { bytes_max: usize::MAX, ..AQM };
            scheduler.push(flows, (tenant, slot), waiting, &aqm, counts);
        }
    }
    let mut bytes = [0usize; 2];
    while bytes[0] + bytes[1] < 1_000_000 {
        let (slot, waiting) = bench.take(Instant::ZERO).unwrap();
        bytes[usize::from(slot == 20)] += waiting.frame.len();
    }
    assert!(bytes[0].abs_diff(bytes[1]) < 120_000, "{bytes:?}");
}

/// Q5: a tenant whose queue was empty after each frame began its next turn without its debt, so
/// that large frames took up to four times the share of small ones.
#[test]
fn regression_a_tenant_without_frames_keeps_the_debt_of_a_large_frame() {
    let mut bench = Bench::new(2);
    let push = |bench: &mut Bench, slot: u32, bytes: usize| {
        let waiting = waiting(bytes, 0, Instant::ZERO, Kind::Other);
        let Bench { flows, scheduler, counts, aqm } = bench;
        scheduler.push(flows, (slot + 1, slot), waiting, aqm, counts);
    };
    let (mut bytes, mut last) = ([0usize; 2], 1);
    while bytes[0] + bytes[1] < 20_000_000 {
        // The next large frame comes after a small one, so that the tenant has no frame before.
        if last == 1 && !bench.flows[0].has_frames() {
            push(&mut bench, 0, 64_000);
        }
        while bench.flows[1].frames.len() < 4 {
            push(&mut bench, 1, 1500);
        }
        let (slot, waiting) = bench.take(Instant::ZERO).unwrap();
        bytes[slot as usize] += waiting.frame.len();
        last = slot;
    }
    assert!(bytes[0].abs_diff(bytes[1]) < bytes[1] / 10, "{bytes:?}");
    assert_eq!(bench.counts, QueueCounts::default());
}

/// Q5: a tenant with flows in both lanes paid its debt in the turns of a lane that was full. So its
/// share was four times that of a tenant in one lane.
#[test]
fn regression_a_tenant_in_two_lanes_pays_the_debt_of_each_lane_there() {
    let mut bench = Bench::new(5);
    let rule = Rule { tcp: true, frame_bytes_max: 65_536, ..Rule::default() };
    bench.scheduler.set_rule(&bench.flows, rule);
    // The first tenant has small frames in the first lane; the other two also have frames in the
    // other lane.
    let flows = [(1, 1500, Kind::Tcp), (2, 64_000, Kind::Tcp), (3, 64_000, Kind::Tcp)];
    let plain = [(2, 100, Kind::Other), (3, 100, Kind::Other)];
    let all: Vec<_> = flows.into_iter().chain(plain).collect();
    let mut bytes = [0usize; 5];
    while bytes.iter().sum::<usize>() < 20_000_000 {
        for (slot, &(tenant, size, kind)) in (0..).zip(&all) {
            while bench.flows[slot as usize].frames.len() < 4 {
                let waiting = waiting(size, 0, Instant::ZERO, kind);
                let Bench { flows, scheduler, counts, aqm } = &mut bench;
                scheduler.push(flows, (tenant, slot), waiting, aqm, counts);
            }
        }
        // A look at the other lane, in which the transport accepts nothing.
        bench.scheduler.next(&mut bench.flows, Lane::Plain).unwrap();
        let turn = bench.scheduler.next(&mut bench.flows, Lane::Srd).unwrap();
        let Bench { flows, scheduler, counts, aqm } = &mut bench;
        let taken = scheduler.take(flows, turn, Lane::Srd, Instant::ZERO, aqm, counts);
        bytes[turn.slot as usize] += taken.unwrap().frame.len();
    }
    let least = bytes[..3].iter().min().unwrap();
    let most = bytes[..3].iter().max().unwrap();
    assert!(most - least < least / 10, "{bytes:?}");
}

/// Q5: only the tenant with the most bytes loses frames.
#[test]
fn a_full_queue_takes_from_the_tenant_that_holds_most() {
    let mut bench = Bench::new(30);
    let push = |bench: &mut Bench, tenant, slot| {
        let waiting = waiting(1500, 0, Instant::ZERO, Kind::Other);
        let Bench { flows, scheduler, counts, aqm } = bench;
        scheduler.push(flows, (tenant, slot), waiting, aqm, counts);
    };
    for _ in 0..40 {
        push(&mut bench, 2, 29);
    }
    for n in 0..2000 {
        push(&mut bench, 1, n % 29);
    }
    assert!(bench.counts.dropped_full > 100);
    let mut of_quiet = 0;
    while let Some((slot, _)) = bench.take(Instant::ZERO) {
        of_quiet += u32::from(slot == 29);
    }
    assert_eq!(of_quiet, 40);
    assert!(bench.scheduler.is_empty() && bench.scheduler.bytes() == 0);
    // Another tenant has its index now, and the first one may return.
    for tenant in [3, 2, 1] {
        push(&mut bench, tenant, tenant);
    }
    let slots: Vec<u32> = std::iter::from_fn(|| bench.take(Instant::ZERO).map(|w| w.0)).collect();
    assert_eq!(slots, [3, 2, 1]);
}

/// A flow whose interface moves to another tenant while frames wait keeps its order.
#[test]
fn frames_of_a_flow_stay_together_when_its_tenant_changes() {
    let mut bench = Bench::new(1);
    for tenant in [1, 1, 2, 3, 2] {
        let waiting = waiting(1500, 0, Instant::ZERO, Kind::Other);
        let Bench { flows, scheduler, counts, aqm } = &mut bench;
        scheduler.push(flows, (tenant, 0), waiting, aqm, counts);
    }
    let taken = std::iter::from_fn(|| bench.take(Instant::ZERO)).count();
    assert_eq!((taken, bench.scheduler.is_empty()), (5, true));
}

#[test]
fn tenants_beyond_the_bound_find_no_place() {
    let mut bench = Bench::new(TENANTS_MAX + 1);
    for tenant in 0..=u32::try_from(TENANTS_MAX).unwrap() {
        let waiting = waiting(60, 0, Instant::ZERO, Kind::Other);
        let Bench { flows, scheduler, counts, .. } = &mut bench;
        let aqm = Aqm { bytes_max: usize::MAX, ..AQM };
        scheduler.push(flows, (tenant, tenant), waiting, &aqm, counts);
    }
    assert_eq!(bench.counts.dropped_full, 1);
    assert_eq!(std::iter::from_fn(|| bench.take(Instant::ZERO)).count(), TENANTS_MAX);
}

/// Q4: a bundle that grows counts, and so does each frame of a dropped bundle.
#[test]
fn regression_bundles_that_grow_keep_the_bound_of_the_queue() {
    let mut bench = Bench::new(1000);
    let trailer = Trailer([7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    let mut pushed = 0;
    for _ in 0..26 {
        for slot in 0..1000 {
            pushed += 1;
            let mut waiting = waiting(50, 0, Instant::ZERO, Kind::Cloud);
            let Bench { flows, scheduler, counts, aqm } = &mut bench;
            if !scheduler.join(flows, slot, (&waiting, &trailer), 1400, aqm, counts) {
                waiting.frame.extend_from_slice(&trailer.0);
                scheduler.push(flows, (1, slot), waiting, aqm, counts);
            }
            let held: usize = flows.iter().map(|flow| flow.frames.len()).sum();
            let cost = scheduler.bytes() + held * RECORD_BYTES;
            assert!(cost <= AQM.bytes_max, "{cost} bytes of {held} bundles");
        }
    }
    assert!(bench.counts.dropped_full > 0);
    let mut taken = 0;
    while let Some((_, waiting)) = bench.take(Instant::ZERO) {
        taken += waiting.frames();
    }
    assert_eq!(taken + bench.counts.dropped_full, pushed);
    assert!(bench.scheduler.is_empty() && bench.scheduler.bytes() == 0);
}
