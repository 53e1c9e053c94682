use super::*;
use crate::testing::{Made, tcp, udp};

const MS: u64 = 1_000_000;

fn seen(made: &[Made]) -> Seen {
    let mut profiler = Profiler::new("test", 0.2, Instant::from_nanos(0));
    made.iter().for_each(|made| profiler.see(&made.raw()));
    let last = made.last().map_or(0, |made| made.time_ns);
    profiler.finish(Instant::from_nanos(last + MS))
}

#[test]
fn bytes_packets_and_directions_are_told_apart() {
    let mut made = Vec::new();
    for n in 0..1000_u64 {
        made.push(udp(n * MS, Way::Out, (1000, 80), 1250));
        if n % 2 == 0 {
            made.push(udp(n * MS, Way::In, (80, 1000), 125));
        }
    }
    let seen = seen(&made);
    assert_eq!(seen.packets, 1500);
    assert_eq!((seen.bytes.r#in, seen.bytes.out), (62_500.0, 1_250_000.0));
    assert_eq!(seen.largest_bytes, 1250);
    assert_eq!(seen.rates_out[0].p50, 10e6);
    assert!((9.8e6..10.2e6).contains(&seen.needs.mean_bps.out), "{:?}", seen.needs.mean_bps);
    // A packet of 10,000 bits passes a bucket of 1 ms at 10 Mb/s, and no slower one.
    assert!((9.8e6..10.3e6).contains(&seen.needs.bandwidth_bps.out), "{:?}", seen.needs);
    assert_eq!(seen.connections.entries[0].peak, 1);
}

#[test]
fn frames_without_ip_and_packets_from_the_past_are_counted() {
    let mut profiler = Profiler::new("test", 0.2, Instant::from_nanos(0));
    let mut other = udp(MS, Way::Out, (1, 2), 100);
    other.ethertype = 0x0806;
    profiler.see(&other.raw());
    profiler.see(&udp(5 * MS, Way::Out, (1, 2), 100).raw());
    profiler.see(&udp(2 * MS, Way::Out, (1, 2), 100).raw());
    profiler.miss(3);
    let seen = profiler.finish(Instant::from_nanos(6 * MS));
    assert_eq!((seen.others, seen.packets, seen.lost, seen.seen_ns), (1, 2, 3, 6 * MS));
}

#[test]
fn services_and_fragments_beyond_their_rates_are_counted() {
    let mut made = Vec::new();
    for n in 0..2000_u64 {
        let mut query = udp(n * 100_000, Way::Out, (1000, 53), 80);
        query.to([169, 254, 169, 253]);
        made.push(query);
    }
    let seen = seen(&made);
    // 128 at once, and 1024 a second for 0.2 s.
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
    let mut made = tcp(MS, Way::Out, (1000, 80), 16, 14_520);
    made.segment_bytes = Some(1448);
    let seen = seen(&[made]);
    assert_eq!(seen.packets, 10);
    assert_eq!(seen.largest_bytes, 0, "no single packet was seen");
}

#[test]
fn an_idle_interface_recommends_nothing() {
    let profiler = Profiler::new("idle", 0.2, Instant::from_nanos(0));
    let seen = profiler.finish(Instant::from_nanos(MS));
    let filter = crate::Filter { types: vec!["c7i.large".into()], ..crate::Filter::default() };
    let report = crate::report(seen, &filter, None);
    assert!(report.choices.families.is_empty() && report.choices.asked.is_empty());
    let text = crate::text::report(&report);
    assert!(text.contains("no packets were seen") && !text.contains("sufficient"), "{text}");
}
