use super::*;
use crate::sources::arrival::Tunnel;
use proptest::prelude::*;
use srd_card::FlowKey;
use srd_card::limits::FlowKind;

const GBPS: u64 = 1_000_000_000;
const US: u64 = 1_000;

fn flow(n: u32) -> Flow {
    let [a, b, c, d] = n.to_be_bytes();
    let key = FlowKey {
        source: [10, b, c, d].into(),
        destination: [10, 255, 0, 2].into(),
        protocol: 17,
        ports: (u16::from(a) + 1, 5001),
    };
    Flow { outer: key, inner: None }
}

fn arrival(time_ns: u64, way: PacketDirection, flow: Flow, bytes: u32) -> Arrival {
    let time = Instant::from_nanos(time_ns);
    Arrival { time, way, flow, bytes, packets: 1, packet_bytes: bytes, fragment: false }
}

fn rate_watch(rate_bps: u64) -> Watch {
    Watch::new("if", Settings::default(), &Model::of_rate(rate_bps, None), Instant::ZERO)
}

/// Adds packets of `bytes` bytes at the rate `rate_bps` from `from_ns` to `to_ns`, in turn for each
/// of `flows`.
fn send(watch: &mut Watch, from_ns: u64, to_ns: u64, rate_bps: u64, bytes: u32, flows: &[Flow]) {
    let step = u64::from(bytes) * 8 * SECOND_NS / rate_bps;
    let mut at = from_ns;
    let mut turn = 0;
    while at < to_ns {
        watch.arrive(&arrival(at, PacketDirection::Out, flows[turn % flows.len()], bytes));
        turn += 1;
        at += step;
    }
}

fn ended(watch: &mut Watch) -> Vec<Burst> {
    let mut bursts = Vec::new();
    while let Some(event) = watch.next_event() {
        if let Event::Ended(burst) = event {
            bursts.push(*burst);
        }
    }
    bursts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A steady flow with a mean below the threshold is no burst, for any packet sizes and any
    /// limit.
    #[test]
    fn a_steady_flow_is_never_reported(
        limit in 20_000_000_u64..100 * GBPS,
        percent in 1_u64..80,
        bytes in 64_u32..65_536,
        bin_us in 100_u64..=1000,
        start in 0_u64..SECOND_NS,
    ) {
        let settings = Settings { bin_ns: bin_us * US, ..Settings::default() };
        let model = Model::of_rate(limit, None);
        let mut watch = Watch::new("if", settings, &model, Instant::ZERO);
        let rate = limit / 100 * percent;
        // About 20,000 packets, in both directions at once.
        let step = (u64::from(bytes) * 8 * SECOND_NS / rate).max(1);
        for n in 0..10_000 {
            for way in PacketDirection::BOTH {
                watch.arrive(&arrival(start + n * step, way, flow(1), bytes));
            }
        }
        watch.finish(Instant::from_nanos(start + 10_000 * step));
        prop_assert_eq!(watch.next_event(), None);
    }

    /// Bursts of 10 ms at line rate in every 500 ms: exactly these bursts are found, each with its
    /// bytes.
    #[test]
    fn bursts_of_ten_milliseconds_are_all_found(
        limit in GBPS..100 * GBPS,
        offset in 0_u64..500 * MS,
        background_percent in 0_u64..40,
        bin_us in 100_u64..=1000,
    ) {
        let settings = Settings { bin_ns: bin_us * US, ..Settings::default() };
        let model = Model::of_rate(limit, None);
        let mut watch = Watch::new("if", settings, &model, Instant::ZERO);
        let bytes = u32::try_from(limit / 8 / 20_000).unwrap().clamp(1500, 65_535);
        let gap = u64::from(bytes) * 8 * SECOND_NS / limit;
        for n in 0..20 {
            let begin = offset + n * 500 * MS;
            if background_percent > 0 {
                let rate = limit / 100 * background_percent;
                send(&mut watch, begin + 20 * MS, begin + 480 * MS, rate, 65_000, &[flow(2)]);
            }
            let next = begin + 500 * MS;
            send(&mut watch, next, next + 10 * MS, limit + limit / 50, bytes, &[flow(1)]);
        }
        watch.finish(Instant::from_nanos(offset + 11 * SECOND_NS));
        let bursts = ended(&mut watch);
        prop_assert_eq!(bursts.len(), 20);
        for (n, burst) in (1_u64..).zip(&bursts) {
            let begin = offset + n * 500 * MS;
            prop_assert!(burst.start_ns + MS >= begin && burst.start_ns <= begin + MS, "{}", n);
            let off = burst.length_ns.abs_diff(10 * MS);
            // Bins of two or three packets are alternately below and above the threshold. If bins
            // have a few more packets, this occurs only at the edges of a burst.
            let ragged = match settings.bin_ns / gap {
                0..4 => 7,
                4..8 => 4,
                _ => 3,
            };
            prop_assert!(off <= ragged * settings.bin_ns + 2 * gap, "{} {}", n, burst.length_ns);
            prop_assert_eq!(burst.flows[0].flow, flow(1));
            prop_assert!(burst.mean_bps > limit / 5 * 4);
        }
    }

    /// For all arrivals, the sums of bins equal the totals, and bursts do not overlap.
    #[test]
    fn sums_agree_whatever_arrives(
        packets in prop::collection::vec(
            (0_u64..3 * MS, any::<bool>(), 0_u32..40, 1_u32..70_000, 1_u32..50), 1..400),
    ) {
        let model = Model::of_type(&Model::find("c7i.large").unwrap(), FlowKind::Exterior, 100);
        let mut watch = Watch::new("if", Settings::default(), &model, Instant::ZERO);
        let (mut at, mut sent) = (0, [(0_u64, 0_u64); 2]);
        for (pause, out, from, bytes, count) in packets {
            // Some arrivals have an earlier time.
            at = (at + pause).saturating_sub(MS / 4);
            let way = if out { PacketDirection::Out } else { PacketDirection::In };
            let mut one = arrival(at, way, flow(from), bytes);
            one.packets = count;
            watch.arrive(&one);
            let sum = &mut sent[index(way)];
            *sum = (sum.0 + u64::from(bytes), sum.1 + u64::from(count));
        }
        watch.finish(Instant::from_nanos(at + 10 * SECOND_NS));
        let bursts = ended(&mut watch);
        for way in PacketDirection::BOTH {
            let totals = watch.totals(way);
            prop_assert_eq!((totals.bytes, totals.packets), sent[index(way)]);
            let of_way: Vec<_> = bursts.iter().filter(|burst| burst.way == way).collect();
            prop_assert!(of_way.windows(2).all(|pair| pair[0].end_ns() <= pair[1].start_ns));
            prop_assert!(of_way.iter().map(|burst| burst.bytes).sum::<u64>() <= totals.bytes);
            for burst in of_way {
                prop_assert_eq!(burst.flows_error_bytes, 0);
                prop_assert!(!burst.limits.is_empty());
            }
        }
    }
}

/// An example of the talk NET402 (AWS re:Invent 2024): 10 Gb/s for 6 s reads as 1 Gb/s in a mean
/// over a minute.
#[test]
fn six_seconds_at_line_rate_are_found_within_one_though_the_minute_says_a_tenth() {
    let mut watch = rate_watch(10 * GBPS);
    let begin = 54 * SECOND_NS;
    send(&mut watch, begin, begin + 6 * SECOND_NS, 9_530_000_000, 9000, &[flow(1)]);
    // The first event, which occurs even if only packets, and no readings of the clock, advance
    // time.
    let mut early = rate_watch(10 * GBPS);
    send(&mut early, begin, begin + SECOND_NS, 9_530_000_000, 9000, &[flow(1)]);
    let Some(Event::Began(first)) = early.next_event() else { panic!("found within a second") };
    assert_eq!((first.start_ns, first.flows[0].flow), (begin, flow(1)));
    assert!(first.length_ns < SECOND_NS && first.flows[0].share == 1.0);
    watch.finish(Instant::from_nanos(60 * SECOND_NS));
    let bursts = ended(&mut watch);
    let [burst] = bursts.as_slice() else { panic!("one burst: {bursts:?}") };
    assert_eq!(burst.length_ns, 6 * SECOND_NS);
    assert!(burst.peak_bps > 9_400_000_000 && burst.second_bps > 9_500_000_000);
    let minute = burst.minute_bps;
    assert!((945_000_000..960_000_000).contains(&minute), "{minute}");
    assert_eq!(burst.limits[0].counter, "bw_out_allowance_exceeded");
    assert!(!burst.limits[0].exceeded, "it is below the limit, and near it");
    let (p50, seconds) = watch.quantile_bps(PacketDirection::Out, 1, 0.5);
    assert_eq!((p50, seconds), (0, 60));
    assert!(watch.quantile_bps(PacketDirection::Out, 0, 0.999).0 > 9 * GBPS);
}

/// An example of the talk NET402 (AWS re:Invent 2024): 8 UDP flows send 3.3 Gb/s each for a second,
/// with a limit of 12.5 Gb/s.
#[test]
fn eight_flows_of_a_second_are_all_named_and_more_than_half_is_held_up() {
    let model = Model::of_type(&Model::find("c7i.large").unwrap(), FlowKind::Exterior, 1);
    let mut watch = Watch::new("if", Settings::default(), &model, Instant::ZERO);
    let flows: Vec<Flow> = (1..=8).map(flow).collect();
    let begin = 10 * SECOND_NS;
    send(&mut watch, begin, begin + SECOND_NS, 26_200_000_000, 8990, &flows);
    watch.finish(Instant::from_nanos(60 * SECOND_NS));
    let bursts = ended(&mut watch);
    let [burst] = bursts.as_slice() else { panic!("one burst") };
    let mut named: Vec<Flow> = burst.flows.iter().map(|share| share.flow).collect();
    named.sort_unstable();
    assert_eq!(named, flows);
    assert!((364_000..364_600).contains(&burst.packets), "{}", burst.packets);
    let passed = burst.packets - burst.dropped;
    let of_limit = passed as f64 * 8990.0 * 8.0 / 12.5e9;
    assert!((0.99..1.02).contains(&of_limit), "the model passes the limit: {of_limit}");
    assert!(burst.dropped_share() > 0.5 && burst.queued_share() > 0.4);
    let limit = &burst.limits[0];
    assert!(limit.exceeded && limit.counter == "bw_out_allowance_exceeded");
    assert_eq!(watch.totals(PacketDirection::Out).bins_above, 1000);
}

#[test]
fn small_packets_exceed_packets_a_second_alone() {
    let model = Model::of_type(&Model::find("c7i.large").unwrap(), FlowKind::Exterior, 1);
    let mut watch = Watch::new("if", Settings::default(), &model, Instant::ZERO);
    // Two million packets per second of 64 bytes: 1 Gb/s.
    send(&mut watch, SECOND_NS, SECOND_NS + 20 * MS, 1_024_000_000, 64, &[flow(1), flow(2)]);
    watch.finish(Instant::from_nanos(2 * SECOND_NS));
    let bursts = ended(&mut watch);
    let [burst] = bursts.as_slice() else { panic!("one burst") };
    let counters: Vec<_> = burst.limits.iter().map(|limit| limit.counter).collect();
    assert_eq!(counters, ["pps_allowance_exceeded"]);
    assert!(burst.limits[0].exceeded && burst.limits[0].queued > 0);
}

/// A hundred inner flows in GRE are one flow for the network. In VXLAN they are many flows, because
/// the outer ports differ.
#[test]
fn a_tunnel_of_one_flow_is_named_as_what_exceeds_the_ceiling() {
    let model = Model::of_type(&Model::find("c7i.large").unwrap(), FlowKind::Exterior, 1);
    for (tunnel, whales) in [(Tunnel::Gre, 1), (Tunnel::Vxlan, 0)] {
        let mut watch = Watch::new("if", Settings::default(), &model, Instant::ZERO);
        let flows: Vec<Flow> = (0..100)
            .map(|n| {
                let mut outer = flow(9999).outer;
                if tunnel == Tunnel::Vxlan {
                    outer.ports = (1000 + n, 4789);
                }
                Flow { outer, inner: Some((tunnel, flow(n.into()).outer)) }
            })
            .collect();
        send(&mut watch, 0, 50 * MS, 8 * GBPS, 1500, &flows);
        watch.finish(Instant::from_nanos(SECOND_NS));
        let bursts = ended(&mut watch);
        let found = bursts.iter().flat_map(|burst| &burst.whales);
        let inner: Vec<u64> = found.map(|whale| whale.inner_flows).collect();
        assert_eq!(inner, vec![100; whales], "{tunnel}");
    }
}

#[test]
fn a_burst_of_more_than_a_minute_is_reported_in_parts() {
    let mut watch = rate_watch(10_000_000);
    send(&mut watch, 0, 150 * SECOND_NS, 10_000_000, 1500, &[flow(1)]);
    watch.finish(Instant::from_nanos(200 * SECOND_NS));
    let bursts = ended(&mut watch);
    let parts: Vec<_> = bursts.iter().map(|b| (b.length_ns / SECOND_NS, b.continues)).collect();
    assert_eq!(parts.len(), 3, "{parts:?}");
    assert_eq!(parts[0], (60, true));
    assert!(!parts[2].1);
}

/// Regression: a burst that ended at the end of a part, or soon afterwards, had no part that is
/// marked as its last part. A burst is counted with its last part.
#[test]
fn regression_a_burst_that_ends_with_a_part_or_soon_after_it_has_a_last_part() {
    for beyond_ms in 0..6 {
        let mut watch = rate_watch(10_000_000);
        let end = 60 * SECOND_NS + beyond_ms * MS;
        send(&mut watch, 0, end, 10_000_000, 1500, &[flow(1)]);
        watch.finish(Instant::from_nanos(200 * SECOND_NS));
        let bursts = ended(&mut watch);
        let parts: Vec<_> = bursts.iter().map(|b| (b.length_ns / MS, b.continues)).collect();
        let (last, others) = parts.split_last().unwrap();
        assert!(!last.1 && others.iter().all(|other| other.1), "{parts:?}");
    }
}

#[test]
fn a_million_flows_in_one_burst_leave_the_large_ones_named() {
    let mut watch = rate_watch(10 * GBPS);
    let large: Vec<Flow> = (2_000_000..2_000_008).map(flow).collect();
    for n in 0..1_000_000_u32 {
        let at = SECOND_NS + u64::from(n) * US;
        watch.arrive(&arrival(at, PacketDirection::In, flow(n), 1500));
        watch.arrive(&arrival(at, PacketDirection::In, large[n as usize % 8], 1500));
    }
    watch.finish(Instant::from_nanos(3 * SECOND_NS));
    let bursts = ended(&mut watch);
    let [burst] = bursts.as_slice() else { panic!("one burst") };
    let mut named: Vec<Flow> = burst.flows.iter().map(|share| share.flow).collect();
    named.sort_unstable();
    assert_eq!(named, large);
    assert!(burst.flows_error_bytes > 0, "there were more than fit");
    assert!(burst.flows_error_bytes <= burst.bytes / 1024);
    for share in &burst.flows {
        assert!(share.bytes + burst.flows_error_bytes >= 125_000 * 1500);
        assert!(share.bytes <= 125_000 * 1500, "no byte is invented");
    }
}

#[test]
fn missed_packets_are_those_of_the_burst_under_way() {
    let mut watch = rate_watch(10_000_000);
    watch.miss(3);
    send(&mut watch, 0, SECOND_NS, 20_000_000, 1500, &[flow(1)]);
    watch.miss(5);
    watch.finish(Instant::from_nanos(2 * SECOND_NS));
    assert_eq!(ended(&mut watch)[0].missed, 5);
    assert_eq!(watch.blemishes()[1], ("missed", 8));
}

#[test]
fn a_clock_that_jumps_costs_no_time_and_no_memory() {
    let mut watch = rate_watch(GBPS);
    send(&mut watch, 0, 10 * MS, 2 * GBPS, 1500, &[flow(1)]);
    watch.arrive(&arrival(u64::MAX / 2, PacketDirection::Out, flow(1), 1500));
    watch.arrive(&arrival(0, PacketDirection::Out, flow(1), 1500));
    assert_eq!(ended(&mut watch).len(), 1);
    assert_eq!(watch.blemishes()[0], ("late", 1));
}

#[test]
fn credits_that_are_gone_make_the_baseline_the_limit() {
    let profile = Model::find("c7i.large").unwrap();
    let profile = profile.with_burst(srd_proto::time::Duration::ZERO);
    let model = Model::of_type(&profile, FlowKind::Exterior, 1);
    let mut watch = Watch::new("if", Settings::default(), &model, Instant::ZERO);
    send(&mut watch, SECOND_NS, SECOND_NS + 20 * MS, GBPS, 1500, &[flow(1)]);
    watch.finish(Instant::from_nanos(2 * SECOND_NS));
    let bursts = ended(&mut watch);
    assert_eq!((bursts.len(), bursts[0].limit_bps), (1, 781_000_000));
    assert!(bursts[0].limits.iter().any(|limit| limit.exceeded));
}

/// Packets may still wait in the model's queue after the end of a burst. A packet that waits behind
/// them is not a separate burst.
#[test]
fn regression_a_packet_behind_a_burst_is_no_burst() {
    let model = Model::of_type(&Model::find("c7i.large").unwrap(), FlowKind::Express, 100);
    let mut watch = Watch::new("if", Settings::default(), &model, Instant::ZERO);
    send(&mut watch, SECOND_NS, 2 * SECOND_NS, 260_000_000, 1428, &[flow(1), flow(2), flow(3)]);
    for way in PacketDirection::BOTH {
        watch.arrive(&arrival(2 * SECOND_NS + 40 * MS, way, flow(4), 84));
    }
    watch.finish(Instant::from_nanos(3 * SECOND_NS));
    assert!(watch.totals(PacketDirection::Out).queued > 0);
    let bursts = ended(&mut watch);
    assert_eq!(bursts.len(), 1, "{bursts:?}");
    assert_eq!(bursts[0].length_ns, SECOND_NS);
}

#[test]
fn regression_a_clock_that_was_set_back_makes_no_burst() {
    let mut watch = rate_watch(10_000_000);
    // A steady flow of 1 Mb/s, during which the clock shows the same 60 s twice.
    for from in [1_000, 940] {
        for n in 0..7_500 {
            let at = from * SECOND_NS + n * 8 * MS;
            watch.arrive(&arrival(at, PacketDirection::Out, flow(1), 1000));
        }
    }
    watch.end();
    assert_eq!(watch.next_event(), None);
    assert_eq!(watch.blemishes()[3], ("clock set back", 1));
    assert!(watch.blemishes()[0].1 < 20, "late: {:?}", watch.blemishes());
    let (seen_s, totals) = (watch.seen_ns() / SECOND_NS, watch.totals(PacketDirection::Out));
    assert_eq!((seen_s, totals.packets), (1_119, 15_000), "1,000 s before the first");
    assert!(totals.peak_bps < 150_000_000, "{}", totals.peak_bps);
}

#[test]
fn regression_bursts_have_the_times_of_the_clock_as_it_was_set_then() {
    let mut watch = rate_watch(GBPS);
    // The clock is set back by 10 s directly after a burst, which ends the burst.
    send(&mut watch, 20 * SECOND_NS, 20 * SECOND_NS + 10 * MS, 2 * GBPS, 1500, &[flow(1)]);
    send(&mut watch, 10 * SECOND_NS, 10 * SECOND_NS + 10 * MS, 2 * GBPS, 1500, &[flow(2)]);
    // Setting the clock back does not move the edges of bins: a burst begins less than one bin
    // before its first packet.
    assert_eq!((watch.since(PacketDirection::Out).unwrap().as_nanos() + MS) / SECOND_NS, 10);
    watch.advance(Instant::from_nanos(11 * SECOND_NS));
    send(&mut watch, 12 * SECOND_NS, 12 * SECOND_NS + 10 * MS, 2 * GBPS, 1500, &[flow(3)]);
    watch.finish(Instant::from_nanos(13 * SECOND_NS));
    let bursts = ended(&mut watch);
    let starts: Vec<u64> = bursts.iter().map(|b| (b.start_ns + MS) / (10 * MS)).collect();
    assert_eq!(starts, [2000, 1000, 1200]);
    assert!(bursts.iter().all(|burst| burst.length_ns <= 12 * MS), "{bursts:?}");
    // While no packets arrive, only the clock advances time. If it is set back, a burst under way
    // ends at once.
    send(&mut watch, 20 * SECOND_NS, 20 * SECOND_NS + 10 * MS, 2 * GBPS, 1500, &[flow(1)]);
    watch.advance(Instant::from_nanos(5 * SECOND_NS));
    assert_eq!(ended(&mut watch).len(), 1);
}

#[test]
fn regression_packets_of_one_bin_have_a_mean_over_that_bin() {
    let mut watch = rate_watch(GBPS);
    watch.arrive(&arrival(5, PacketDirection::Out, flow(1), 1500));
    let mut tally = crate::output::text::Tally::default();
    watch.end();
    while let Some(Event::Ended(burst)) = watch.next_event() {
        tally.add(&burst);
    }
    let session = crate::session::Session::new(watch, None, 0);
    let text = crate::output::text::summary(&session, &tally, 0);
    assert!(text.contains("mean 12.0 Mb/s"), "{text}");
}

#[test]
fn regression_the_mean_of_a_look_shorter_than_a_bin_is_over_one_bin() {
    let mut watch = rate_watch(100_000_000);
    watch.arrive(&arrival(10, PacketDirection::Out, flow(1), 1250));
    watch.finish(Instant::from_nanos(90));
    assert_eq!(watch.seen_ns(), Settings::default().bin_ns);
    let session = crate::session::Session::new(watch, None, 0);
    let text = crate::output::text::summary(&session, &crate::output::text::Tally::default(), 0);
    assert!(text.contains("mean 10.0 Mb/s, largest bin 10.0 Mb/s"), "{text}");
    assert!(text.starts_with("if: 1.0 ms watched in bins of 1.0 ms, against 100.0 Mb/s"), "{text}");
    assert!(text.contains("\n  0 bursts, "), "{text}");
}

#[test]
fn what_is_exceeded_stands_before_what_is_reached() {
    // The ceiling of one flow drops the packets that would have exceeded the bandwidth.
    let model = Model::of_rate(100_000_000, None).with_flow_rate(50_000_000);
    let mut watch = Watch::new("if", Settings::default(), &model, Instant::ZERO);
    send(&mut watch, 0, 300_000_000, GBPS, 1250, &[flow(1)]);
    watch.finish(Instant::from_nanos(1_000_000_000));
    let bursts = ended(&mut watch);
    let text = crate::output::text::burst(&bursts[0], false);
    let (exceeded, reached) =
        (text.find("\n  exceeded").unwrap(), text.find("\n  reached").unwrap());
    assert!(exceeded < reached, "{text}");
}
