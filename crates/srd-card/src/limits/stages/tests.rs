use super::*;
use crate::limits::ceiling::{Ceiling, FlowMeter};
use srd_proto::rng::Rng;
use std::collections::BTreeMap;

/// Random number below `n`.
fn below(rng: &mut Rng, n: u64) -> u64 {
    rng.next_u64() % n
}

const MBPS: u64 = 1_000_000;

/// Settings without effective limits.
fn open() -> Settings {
    let rates = Rates {
        baseline_bps: 1_000_000 * MBPS,
        peak_bps: 1_000_000 * MBPS,
        burst: Duration::ZERO,
        tolerance: Duration::from_millis(1),
    };
    Settings {
        rates_in: rates,
        rates_out: rates,
        gateway_bps: 1_000_000 * MBPS,
        packets_per_second: 1_000_000_000,
        tolerance: Duration::from_millis(1),
        queue_delay_max: Duration::from_millis(5),
        queue_packets_max: 1000,
        scale: 1,
    }
}

fn packet(direction: Direction) -> Offer {
    Offer {
        direction,
        bytes: 1000,
        packets: 1,
        eni: 0,
        gateway: false,
        link_local: false,
        fragment: false,
    }
}

/// Offers a thousand packets of 1,000 bytes within 10 ms, half of them in each direction (400
/// Mb/s), and returns the counters. `flow_bps` is the ceiling of the flow, and `change` changes
/// each offer.
fn load(settings: &Settings, flow_bps: Option<u64>, change: impl Fn(&mut Offer)) -> Allowances {
    let mut limits = Limits::new(settings, 1, Instant::ZERO);
    let ceiling = flow_bps.map(|bps| Ceiling::new(bps, Duration::ZERO));
    let mut flows = [FlowMeter::new(Instant::ZERO); 2];
    for n in 0..1000 {
        let now = Instant::from_nanos(n * 10_000);
        let way = usize::from(n % 2 == 1);
        let mut offer = packet([Direction::Egress, Direction::Ingress][way]);
        change(&mut offer);
        limits.offer(now, offer, ceiling.as_ref().map(|c| (&mut flows[way], c)), n);
        while limits.pop(now).is_some() {}
    }
    limits.allowances(0)
}

/// L9: each limit that is exceeded alone changes only its own counter.
#[test]
fn each_limit_moves_its_counter_alone() {
    let moved = |allowances: Allowances| {
        let all = allowances.ethtool(0).into_iter().chain(allowances.ours());
        all.filter(|(_, n)| *n > 0).map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(moved(load(&open(), None, |_| ())), [""; 0]);
    let slow = Rates { baseline_bps: 100 * MBPS, peak_bps: 100 * MBPS, ..open().rates_in };
    let settings = Settings { rates_in: slow, ..open() };
    assert_eq!(moved(load(&settings, None, |_| ())), ["bw_in_allowance_exceeded"]);
    let settings = Settings { rates_out: slow, ..open() };
    assert_eq!(moved(load(&settings, None, |_| ())), ["bw_out_allowance_exceeded"]);
    let settings = Settings { packets_per_second: 10_000, ..open() };
    assert_eq!(moved(load(&settings, None, |_| ())), ["pps_allowance_exceeded"]);
    let settings = Settings { gateway_bps: 100 * MBPS, ..open() };
    assert_eq!(moved(load(&settings, None, |_| ())), [""; 0]);
    let found = load(&settings, None, |offer| offer.gateway = true);
    assert_eq!(moved(found), ["gateway_allowance_exceeded"]);
    assert_eq!(moved(load(&open(), Some(100 * MBPS), |_| ())), ["flow_allowance_exceeded"]);
    let found = load(&open(), None, |offer| offer.link_local = true);
    assert_eq!(moved(found), ["linklocal_allowance_exceeded"]);
    let found = load(&open(), None, |offer| offer.fragment = true);
    assert_eq!(moved(found), ["pps_allowance_exceeded"]);
    let mut limits = Limits::<()>::new(&open(), 1, Instant::ZERO);
    limits.count_refused_connection(0, 3);
    assert_eq!(moved(limits.allowances(0)), ["conntrack_allowance_exceeded"]);
}

/// Offers packets that arrive at `packets_per_second` for two seconds. The packets are read in
/// batches, one batch after each pause of `pause_ms`. Returns the counters of exceeded limits, and
/// the number of packets that passed without waiting.
fn read_late(settings: &Settings, packets_per_second: u64, pause_ms: u64) -> (Allowances, u64) {
    let pause = Duration::from_millis(pause_ms);
    let mut limits = Limits::new(settings, 1, Instant::ZERO);
    // The ceiling of the flow is 5 Gb/s: 625,000 packets of 1,000 bytes per second.
    let ceiling = Ceiling::new(5000 * MBPS, settings.tolerance);
    let mut meter = FlowMeter::new(Instant::ZERO);
    let (mut now, mut passed, mut sent) = (Instant::ZERO, 0, 0);
    while now < Instant::ZERO + Duration::from_secs(2) {
        now += pause;
        limits.set_late(pause);
        let come = now.as_nanos() / 1000 * packets_per_second / 1_000_000;
        // Packets that a worker reads have the time of its turn: a turn of 32 packets takes 30 us.
        for n in sent..come {
            let at = now + Duration::from_micros((n - sent) / 32 * 30);
            let offer = packet(Direction::Egress);
            let outcome = limits.offer(at, offer, Some((&mut meter, &ceiling)), n);
            passed += u64::from(matches!(outcome, Outcome::Passed(_)));
            while limits.pop(at).is_some() {}
        }
        limits.set_late(Duration::ZERO);
        sent = come;
    }
    (limits.allowances(0), passed)
}

/// L11: if a sender is far below the limit, a late worker does not cause the limit to delay its
/// packets, however late the worker is.
#[test]
fn regression_packets_that_are_read_late_count_by_the_time_in_which_they_arrived() {
    let settings = Settings { packets_per_second: 1_000_000, ..open() };
    for pause_ms in [1, 5, 20, 50] {
        for packets_per_second in [16_000, 500_000] {
            let (held, passed) = read_late(&settings, packets_per_second, pause_ms);
            assert_eq!(held, Allowances::default(), "{packets_per_second} after {pause_ms} ms");
            assert!(passed > packets_per_second, "about two seconds of them");
        }
    }
}

/// L11: if a sender exceeds the limit, it is counted and limited as if all packets had been read in
/// time. Tokens that are earned while the worker is late can be spent only once.
#[test]
fn a_sender_above_the_limit_is_held_to_it_by_a_worker_that_is_late() {
    let settings = Settings { packets_per_second: 100_000, ..open() };
    for pause_ms in [1, 5, 20, 50] {
        let (held, passed) = read_late(&settings, 200_000, pause_ms);
        let over = held.pps_allowance_exceeded;
        // Two seconds, the tolerance and one pause.
        let most = 100_000 * (2000 + 1 + 2 * pause_ms) / 1000;
        assert!(passed <= most, "{passed} passed at once after pauses of {pause_ms} ms");
        assert!(over >= 190_000, "{over} were counted after pauses of {pause_ms} ms");
    }
}

/// L5: packets above a limit wait first, and are dropped when the queue is full; both are counted.
#[test]
fn packets_are_queued_first_and_then_dropped() {
    let settings = Settings { packets_per_second: 1000, tolerance: Duration::ZERO, ..open() };
    let mut limits = Limits::new(&settings, 1, Instant::ZERO);
    for n in 0..8 {
        let outcome = limits.offer(Instant::ZERO, packet(Direction::Egress), None, n);
        let dropped = matches!(outcome, Outcome::Dropped(Limit::Packets, _));
        assert_eq!(dropped, n >= 5, "5 ms of 1,000 packets a second may wait");
    }
    assert_eq!(limits.held(Limit::Packets), LimitCounts { queued: 5, dropped: 3 });
    assert_eq!(limits.allowances(0).pps_allowance_exceeded, 8);
    for n in 0..5 {
        let due = limits.poll_timeout().unwrap();
        assert_eq!(due, Instant::ZERO + Duration::from_millis(n + 1));
        assert_eq!(limits.pop(due).map(|(_, item)| item), i32::try_from(n).ok());
    }
}

#[test]
fn a_queue_holds_no_more_frames_than_its_bound() {
    let settings = Settings {
        packets_per_second: 1000,
        queue_packets_max: 3,
        queue_delay_max: Duration::from_secs(60),
        tolerance: Duration::ZERO,
        ..open()
    };
    let mut limits = Limits::new(&settings, 1, Instant::ZERO);
    for n in 0..9 {
        limits.offer(Instant::ZERO, packet(Direction::Egress), None, n);
    }
    assert_eq!(limits.held(Limit::Packets), LimitCounts { queued: 3, dropped: 6 });
    // Frames that have waited and were not popped do not accumulate: further offers are refused.
    let later = Instant::ZERO + Duration::from_secs(1);
    let undrained = (0..9).filter(|n| {
        let outcome = limits.offer(later, packet(Direction::Egress), None, *n);
        matches!(outcome, Outcome::Undrained(_))
    });
    assert_eq!(undrained.count(), 9);
    assert_eq!(std::iter::from_fn(|| limits.pop(later)).count(), 3);
}

/// L4: a flow above its ceiling waits alone, and does not delay another flow.
#[test]
fn a_flow_over_its_ceiling_delays_no_other() {
    let mut limits = Limits::new(&open(), 1, Instant::ZERO);
    let ceiling = Ceiling::new(MBPS, Duration::ZERO);
    let mut slow = FlowMeter::new(Instant::ZERO);
    limits.offer(Instant::ZERO, packet(Direction::Egress), Some((&mut slow, &ceiling)), "slow");
    assert_eq!(
        limits.offer(Instant::ZERO, packet(Direction::Egress), None, "fast"),
        Outcome::Passed("fast")
    );
    assert!(limits.pop(Instant::ZERO).is_none());
}

/// A packet that waited before one limit still has to pass every later limit: each later limit
/// queues the packet.
#[test]
fn a_packet_that_waited_enters_each_of_the_later_limits() {
    let slow = Rates { baseline_bps: 8 * MBPS, peak_bps: 8 * MBPS, ..open().rates_out };
    let settings = Settings {
        rates_out: Rates { tolerance: Duration::ZERO, ..slow },
        gateway_bps: 8 * MBPS,
        packets_per_second: 1000,
        tolerance: Duration::ZERO,
        ..open()
    };
    let mut limits = Limits::new(&settings, 1, Instant::ZERO);
    let ceiling = Ceiling::new(8 * MBPS, Duration::ZERO);
    let mut flow = FlowMeter::new(Instant::ZERO);
    let offer = Offer { gateway: true, ..packet(Direction::Egress) };
    limits.offer(Instant::ZERO, offer, Some((&mut flow, &ceiling)), ());
    // A millisecond each: 8,000 bits at 8 Mb/s three times, one packet at 1,000 a second.
    for milliseconds in 1..=4 {
        let due = limits.poll_timeout().unwrap();
        assert_eq!(due, Instant::ZERO + Duration::from_millis(milliseconds));
        assert_eq!(limits.pop(due).is_some(), milliseconds == 4);
    }
    for limit in [Limit::Flow, Limit::Gateway, Limit::BandwidthOut, Limit::Packets] {
        assert_eq!(limits.held(limit), LimitCounts { queued: 1, dropped: 0 }, "{limit:?}");
    }
}

/// L7: of 2,000 packets a second, 1,024 pass and 976 are dropped; 128 more pass at the beginning.
#[test]
fn link_local_and_fragments_have_1024_a_second_of_each_eni() {
    for link_local in [true, false] {
        let mut limits = Limits::new(&open(), 2, Instant::ZERO);
        let mut dropped = [0, 0];
        for n in 0..20_000_u64 {
            let now = Instant::from_nanos(n * 500_000);
            let mut offer = packet(Direction::Egress);
            (offer.link_local, offer.fragment) = (link_local, !link_local);
            for eni in [0, 1] {
                offer.eni = eni;
                let slower = eni == 1 && n % 2 == 1;
                let is_over =
                    !slower && matches!(limits.offer(now, offer, None, ()), Outcome::Dropped(..));
                dropped[usize::from(eni)] += u64::from(is_over);
                while limits.pop(now).is_some() {}
            }
        }
        assert!(dropped[0].abs_diff(976 * 10 - 128) < 3, "{dropped:?}");
        assert_eq!(dropped[1], 0, "1,000 a second");
        let counters = limits.allowances(0);
        let counted = (counters.linklocal_allowance_exceeded, counters.pps_allowance_exceeded);
        assert_eq!(counted, if link_local { (dropped[0], 0) } else { (0, dropped[0]) });
    }
}

#[test]
fn fragments_may_bypass_their_limit() {
    let mut limits = Limits::new(&open(), 1, Instant::ZERO);
    limits.set_fragment_bypass(0, true);
    for _ in 0..900 {
        let offer = Offer { fragment: true, ..packet(Direction::Egress) };
        assert_eq!(limits.offer(Instant::ZERO, offer, None, ()), Outcome::Passed(()));
    }
    assert_eq!(limits.allowances(0), Allowances::default());
}

/// L8: a super-packet counts as the packets that it represents.
#[test]
fn a_super_packet_counts_as_its_packets() {
    let settings = Settings { packets_per_second: 1000, tolerance: Duration::ZERO, ..open() };
    let mut limits = Limits::new(&settings, 1, Instant::ZERO);
    let offer = Offer { packets: 5, bytes: 5000, ..packet(Direction::Ingress) };
    limits.offer(Instant::ZERO, offer, None, ());
    assert_eq!(limits.poll_timeout(), Some(Instant::ZERO + Duration::from_millis(5)));
    assert_eq!(limits.allowances(0).pps_allowance_exceeded, 5);
}

/// All losses are counted, each flow keeps its order, and no bound is exceeded.
#[test]
fn random_traffic_is_popped_in_order_or_counted() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let rates = Rates {
            baseline_bps: 50 * MBPS,
            peak_bps: 200 * MBPS,
            burst: Duration::from_millis(20),
            tolerance: Duration::from_micros(100),
        };
        let settings = Settings {
            rates_in: rates,
            rates_out: rates,
            gateway_bps: 60 * MBPS,
            packets_per_second: 40_000,
            queue_packets_max: 20,
            ..open()
        };
        let mut limits = Limits::new(&settings, 2, Instant::ZERO);
        let ceiling = Ceiling::new(30 * MBPS, Duration::from_micros(50));
        let mut flows = [FlowMeter::new(Instant::ZERO); 6];
        let (mut now, mut popped, mut offered, mut dropped) = (0, 0_u64, 0_u64, 0_u64);
        let mut last = BTreeMap::new();
        for n in 0..4000_u64 {
            now += below(&mut rng, 60_000);
            let at = Instant::from_nanos(now);
            let flow = usize::try_from(below(&mut rng, 6)).unwrap();
            // A flow has one direction, one ENI, and uses a gateway always or never.
            let way = [Direction::Egress, Direction::Ingress][flow % 2];
            let mut offer = packet(way);
            offer.bytes = u32::try_from(below(&mut rng, 1500)).unwrap();
            (offer.gateway, offer.eni) = (flow % 3 == 0, u16::from(flow > 2));
            offered += 1;
            match limits.offer(at, offer, Some((&mut flows[flow], &ceiling)), (flow, n)) {
                Outcome::Passed((flow, n)) => {
                    popped += 1;
                    assert!(last.insert(flow, n).is_none_or(|before| before < n));
                }
                Outcome::Taken(_) => (),
                Outcome::Dropped(..) => dropped += 1,
                Outcome::Undrained(_) => panic!("all frames were popped"),
            }
            let end = if n == 3999 { Instant::FAR_FUTURE } else { at };
            while let Some((_, (flow, n))) = limits.pop(end) {
                popped += 1;
                assert!(last.insert(flow, n).is_none_or(|before| before < n), "order of {flow}");
            }
            assert!(limits.counts.iter().all(|count| *count <= 20));
        }
        let all = [Limit::Flow, Limit::Gateway, Limit::BandwidthIn, Limit::BandwidthOut];
        let held = all.into_iter().chain([Limit::Packets]).map(|limit| limits.held(limit));
        let counted: u64 = held.map(|held| held.dropped).sum();
        assert_eq!(offered, popped + counted, "seed {seed}");
        assert!(counted >= dropped && dropped > 0 && popped > 1000, "seed {seed}: {popped}");
    }
}
