use super::*;
use crate::testing::{TestPacket, tcp, udp};

const MS: u64 = 1_000_000;

fn seen(made: &[TestPacket]) -> TrafficSummary {
    let mut profiler = Profiler::new("test", 0.2, Instant::from_nanos(0));
    made.iter().for_each(|made| profiler.see(&made.raw()));
    let last = made.last().map_or(0, |made| made.time_ns);
    profiler.finish(Instant::from_nanos(last + MS))
}

#[test]
fn bytes_packets_and_directions_are_told_apart() {
    let mut made = Vec::new();
    for n in 0..1000_u64 {
        made.push(udp(n * MS, PacketDirection::Out, (1000, 80), 1250));
        if n % 2 == 0 {
            made.push(udp(n * MS, PacketDirection::In, (80, 1000), 125));
        }
    }
    let seen = seen(&made);
    assert_eq!(seen.packets, 1500);
    assert_eq!((seen.bytes.r#in, seen.bytes.out), (62_500.0, 1_250_000.0));
    assert_eq!(seen.largest_bytes, 1250);
    assert_eq!(seen.rates_out[0].p50, 10e6);
    assert!((9.8e6..10.2e6).contains(&seen.needs.mean_bps.out), "{:?}", seen.needs.mean_bps);
    // A packet of 10,000 bits passes a bucket of 10 Mb/s with a tolerance of 1 ms, and no slower
    // bucket.
    assert!((9.8e6..10.3e6).contains(&seen.needs.bandwidth_bps.out), "{:?}", seen.needs);
    assert_eq!(seen.connections.entries[0].peak, 1);
}

#[test]
fn frames_without_ip_and_packets_from_the_past_are_counted() {
    let mut profiler = Profiler::new("test", 0.2, Instant::from_nanos(0));
    let mut other = udp(MS, PacketDirection::Out, (1, 2), 100);
    other.ethertype = 0x0806;
    profiler.see(&other.raw());
    profiler.see(&udp(5 * MS, PacketDirection::Out, (1, 2), 100).raw());
    profiler.see(&udp(2 * MS, PacketDirection::Out, (1, 2), 100).raw());
    profiler.miss(3);
    let seen = profiler.finish(Instant::from_nanos(6 * MS));
    assert_eq!((seen.others, seen.packets, seen.lost, seen.seen_ns), (1, 2, 3, 6 * MS));
}

#[test]
fn services_and_fragments_beyond_their_rates_are_counted() {
    let mut made = Vec::new();
    for n in 0..2000_u64 {
        let mut query = udp(n * 100_000, PacketDirection::Out, (1000, 53), 80);
        query.to([169, 254, 169, 253]);
        made.push(query);
    }
    let seen = seen(&made);
    // The limit permits 128 packets at once, and 1024 per second for 0.2 s.
    assert!((1600..1700).contains(&seen.link_local_over), "{}", seen.link_local_over);
    assert_eq!(seen.fragments_over, 0);
}

#[test]
fn an_empty_look_has_no_needs() {
    let seen = seen(&[]);
    assert_eq!((seen.packets, seen.needs.packets_per_second), (0, 0.0));
    assert!(seen.flows.is_empty() && seen.needs.fastest.is_none());
    assert!(crate::traffic::kinds(&seen).is_empty());
}

#[test]
fn super_packets_count_as_the_packets_that_they_stand_for() {
    let mut made = tcp(MS, PacketDirection::Out, (1000, 80), 16, 14_520);
    made.segment_bytes = Some(1448);
    let seen = seen(&[made]);
    assert_eq!(seen.packets, 10);
    assert_eq!(seen.largest_bytes, 1488, "one segment with its headers");
}

#[test]
fn the_largest_packet_is_found_among_super_packets() {
    let mut made = vec![tcp(MS, PacketDirection::In, (80, 1000), 16, 804)];
    for n in 2..200 {
        let mut large = tcp(n * MS, PacketDirection::Out, (1000, 80), 16, 40 + 44 * 1460);
        large.segment_bytes = Some(1460);
        made.push(large);
    }
    let mut seen = seen(&made);
    assert_eq!(seen.largest_bytes, 1500);
    // A super-packet that is shorter than a segment counts with its own length.
    let mut short = tcp(MS, PacketDirection::Out, (1000, 80), 16, 400);
    short.segment_bytes = Some(1460);
    let mut profiler = Profiler::new("test", 0.2, Instant::from_nanos(0));
    profiler.see(&short.raw());
    assert_eq!(profiler.end().largest_bytes, 400);
    // The advice contains the same figure.
    seen.rates_out[1].max = 1e9;
    let report = crate::output::report::report(seen, &crate::Filter::default(), None);
    let mtu = report.advice.iter().find(|advice| advice.about == "mtu").expect("advice");
    assert!(mtu.text.starts_with("No packet has more than 1500 bytes"), "{}", mtu.text);
}

#[test]
fn the_picture_has_the_largest_millisecond_of_the_table() {
    // 50 packets arrive in one millisecond, in the middle or at the end of the captured time.
    for (until, burst) in [(2_000, 1_000), (1_001, 1_000), (1, 0)] {
        let mut made: Vec<TestPacket> =
            (0..until).map(|n| udp(n * MS + 700, PacketDirection::Out, (1000, 80), 1000)).collect();
        made.extend(
            (0..50).map(|n| {
                udp(burst * MS + 800 + n * 10_000, PacketDirection::Out, (1000, 80), 1000)
            }),
        );
        made.sort_by_key(|made| made.time_ns);
        // Periods begin with the first packet, not with a millisecond of the clock.
        let mut profiler = Profiler::new("test", 0.2, Instant::from_nanos(500));
        made.iter().for_each(|made| profiler.see(&made.raw()));
        let seen = profiler.end();
        let columns = seen.lines[1].columns().iter();
        let drawn = columns.map(|column| column.bin_bytes_max).max().unwrap() as f64 * 8e3;
        let table = seen.rates_out[0].max;
        assert_eq!(table, drawn, "{until}");
        assert_eq!(drawn, 51.0 * 8e6, "{until}");
    }
}

/// Formerly, the advice for a flow of 100 Mb/s was a cluster placement group, because of a burst of
/// ten milliseconds.
#[test]
fn regression_a_burst_of_a_slow_flow_is_to_be_paced_first() {
    let made: Vec<TestPacket> = (0..3_000)
        .map(|n| udp(n * MS, PacketDirection::Out, (1000, 80), 1400))
        .chain(
            (3_000..3_010)
                .flat_map(|ms| (0..800).map(move |n| (ms, n)))
                .map(|(ms, n)| udp(ms * MS + n * 1_000, PacketDirection::Out, (1000, 80), 1400)),
        )
        .collect();
    let report = crate::output::report::report(seen(&made), &crate::Filter::default(), None);
    let flow = report.advice.iter().find(|advice| advice.about == "flow").expect("advice");
    let (paced, placed) = (flow.text.find("Pace it"), flow.text.find("placement group"));
    assert!(paced.is_some() && paced < placed, "{}", flow.text);
}

#[test]
fn the_answer_comes_first_and_marks_are_explained_where_they_stand() {
    let made: Vec<TestPacket> = (0..3_000)
        .map(|n| udp(n * MS, PacketDirection::Out, (u16::try_from(n % 50).unwrap(), 80), 1400))
        .chain(
            (3_000..3_010)
                .flat_map(|ms| (0..800).map(move |n| (ms, n)))
                .map(|(ms, n)| udp(ms * MS + n * 1_000, PacketDirection::Out, (1000, 80), 1400)),
        )
        .collect();
    let report = crate::output::report::report(seen(&made), &crate::Filter::default(), None);
    let text = crate::output::text::report(&report);
    let page = crate::output::html::page(std::iter::once(&report), &["a note".to_owned()]);
    // Between a figure and its unit is a non-breaking space.
    let page = page.replace('\u{a0}', " ");
    srd_chart::check_well_formed(page.strip_prefix("<!DOCTYPE html>\n").unwrap()).unwrap();
    for (said, parts) in [
        (&text, ["Instance types with", "Before you pay for more", "\nTraffic\n", "\nRates"]),
        (&page, ["Which instance type", "Before you pay for more", "Traffic<", "Rates over time"]),
    ] {
        let places = parts.map(|part| said.find(part).unwrap_or_else(|| panic!("{part}: {said}")));
        assert!(places.is_sorted(), "{places:?}");
        assert!(
            said.contains("60 s*") && said.contains(crate::output::text::NO_WHOLE_PERIOD),
            "{said}"
        );
        let figures = said.replace(crate::output::text::ESTIMATED, "");
        assert_eq!(figures.contains('~'), said.contains(crate::output::text::ESTIMATED), "{said}");
        assert!(said.contains("srd shape test --rate") && !said.contains("srd shape IF"), "{said}");
    }
    assert!(page.contains("<code>srd shape test --rate</code>") && !page.contains('`'), "{page}");
    let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part}: {page}"));
    assert!(at("<p class=\"verdict good\">") < at("<p class=\"lead\">"), "{page}");
    assert!(at("How packets were read") < at("a note"), "{page}");
    // There is one folded chart for each type.
    let charts = page.matches("how much of each limit is needed</summary>").count();
    assert!(charts >= 1 && page.matches("<details>").count() >= charts);
    // A capture file may contain no name for its interface.
    let mut profiler = Profiler::new("x.pcap", 0.2, Instant::from_nanos(0)).of_file(None);
    made.iter().for_each(|made| profiler.see(&made.raw()));
    let report = crate::output::report::report(profiler.end(), &crate::Filter::default(), None);
    let text = crate::output::text::report(&report);
    assert!(text.contains("`srd shape` with `--rate`"), "{text}");
}

#[test]
fn an_idle_interface_recommends_nothing() {
    let profiler = Profiler::new("idle", 0.2, Instant::from_nanos(0));
    let seen = profiler.finish(Instant::from_nanos(MS));
    let filter = crate::Filter { types: vec!["c7i.large".into()], ..crate::Filter::default() };
    let report = crate::output::report::report(seen, &filter, None);
    assert!(report.choices.families.is_empty() && report.choices.asked.is_empty());
    let text = crate::output::text::report(&report);
    assert!(text.contains("no packets were seen") && !text.contains("sufficient"), "{text}");
}

#[test]
fn regression_a_clock_that_was_set_back_makes_no_burst() {
    // A steady flow of 1 Mb/s, during which the clock shows the same ten seconds twice.
    let made: Vec<TestPacket> = [100, 90]
        .into_iter()
        .flat_map(|s| (0..1_250).map(move |n| s * 1000 * MS + n * 8 * MS))
        .map(|at| udp(at, PacketDirection::Out, (1000, 80), 1000))
        .collect();
    let mut profiler = Profiler::new("test", 0.2, Instant::from_nanos(100_000 * MS));
    made.iter().for_each(|made| profiler.see(&made.raw()));
    let seen = profiler.end();
    assert_eq!((seen.clock_set_back, seen.seen_ns / (100 * MS)), (1, 198));
    assert_eq!(seen.packets, 2_500);
    // Only two kinds of packets count at one time: the late packets, and the packet that showed
    // that the clock was set back.
    assert!(seen.rates_out[0].max <= 20.0 * 8e6, "{:?}", seen.rates_out);
    assert!(seen.needs.fastest.is_some_and(|(_, bps)| bps < 1_200_000), "{:?}", seen.needs);
    let text = crate::output::text::heading(&seen);
    assert!(text.contains("the clock was set back"), "{text}");
}

#[test]
fn regression_packets_of_one_moment_have_a_mean_over_a_millisecond() {
    let mut profiler = Profiler::new("test", 0.2, Instant::from_nanos(MS));
    profiler.see(&udp(MS, PacketDirection::Out, (1000, 80), 1000).raw());
    let seen = profiler.end();
    assert_eq!((seen.rates_out[0].max, seen.needs.mean_bps.out), (8e6, 8e6));
}
