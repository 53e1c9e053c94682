use super::*;
use crate::analysis::model::Model;
use crate::analysis::watch::{Settings, Watch};
use crate::session::{Report, Session};
use crate::sources::read::Raw;
use srd_proto::time::Instant;

const MS: u64 = 1_000_000;

fn names() -> Vec<String> {
    // The counters follow other statistics, as in the ENA driver.
    let ena = ["tx_timeout", "bw_in_allowance_exceeded", "bw_out_allowance_exceeded"];
    let rest = ["pps_allowance_exceeded", "conntrack_allowance_exceeded"];
    ena.into_iter()
        .chain(rest)
        .chain(["conntrack_allowance_available"])
        .map(str::to_owned)
        .collect()
}

/// Returns a UDP packet of 1028 bytes, including the IP header.
fn packet() -> Vec<u8> {
    let mut bytes = vec![0; 1028];
    bytes[0] = 0x45;
    (bytes[2], bytes[3], bytes[9]) = (4, 4, 17);
    bytes
}

/// Returns a session with a limit of 100 Mb/s. A burst of 10 ms begins at each of the given times,
/// and `sample` is called every 100 ms.
fn session(
    bursts: &[(u64, PacketDirection)],
    end: u64,
    sample: impl Fn(u64) -> Vec<u64>,
) -> Session {
    let settings = Settings::default();
    let model = Model::of_rate(100_000_000, None)
        .with_tolerance(crate::analysis::model::Duration::from_millis(1));
    let watch = Watch::new("if", settings, &model, Instant::ZERO);
    let mut session = Session::new(watch, Allowances::among(&names()), 0);
    let bytes = packet();
    for ms in 0..end {
        let sending = bursts.iter().find(|(from, _)| (*from..from + 10).contains(&ms));
        for n in 0..sending.map_or(0, |_| 30) {
            session.see(&Raw {
                time: Instant::from_nanos(ms * MS + n * 10_000),
                way: sending.map_or(PacketDirection::In, |(_, way)| *way),
                ethertype: Some(0x0800),
                length: 1028,
                segment_bytes: None,
                mtu_bytes: None,
                bytes: &bytes,
            });
        }
        session.advance(Instant::from_nanos(ms * MS));
        if ms % 100 == 99 {
            let statistics = sample(ms);
            session.allowances.as_mut().unwrap().sample(ms * MS, &statistics);
        }
    }
    session.finish(Instant::from_nanos(end * MS));
    session
}

fn ended(session: &mut Session) -> Vec<Burst> {
    let mut bursts = Vec::new();
    while let Some(report) = session.next_report(true) {
        if let Report::Ended(burst, _) = report {
            bursts.push(*burst);
        }
    }
    bursts
}

#[test]
fn growth_belongs_to_the_burst_of_its_time_and_direction() {
    let statistics = |ms: u64| {
        let out = if ms > 250 { 9 } else { 0 };
        let packets = if ms > 550 { 4 } else { 0 };
        vec![77, 0, 100 + out, packets, 0, 136_812 - ms]
    };
    let mut session = session(
        &[(250, PacketDirection::Out), (255, PacketDirection::In), (550, PacketDirection::In)],
        1000,
        statistics,
    );
    let bursts = ended(&mut session);
    let of = |n: usize| {
        let all = bursts[n].allowances.iter();
        all.map(|grown| (grown.counter.as_str(), grown.packets)).collect::<Vec<_>>()
    };
    assert_eq!(bursts.len(), 3);
    let ways: Vec<PacketDirection> = bursts.iter().map(|burst| burst.way).collect();
    let out = ways.iter().position(|way| *way == PacketDirection::Out).unwrap();
    assert_eq!(of(out), [("bw_out_allowance_exceeded", 9)]);
    assert_eq!(of(1 - out), [], "the other direction, at the same time");
    assert_eq!(of(2), [("pps_allowance_exceeded", 4)]);
    let allowances = session.allowances.as_mut().unwrap();
    allowances.finish();
    let strays: u64 = allowances.totals().iter().map(|(_, _, stray)| stray).sum();
    assert_eq!(strays, 0);
}

#[test]
fn growth_without_a_burst_is_told_apart() {
    let statistics = |ms: u64| vec![0, if ms > 600 { 5 } else { 0 }, 0, 0, 0, 0];
    let mut session = session(&[(250, PacketDirection::In)], 1000, statistics);
    assert_eq!(ended(&mut session)[0].allowances, []);
    let allowances = session.allowances.as_mut().unwrap();
    allowances.finish();
    assert_eq!(allowances.totals()[0], ("bw_in_allowance_exceeded", 5, 5));
}

#[test]
fn a_burst_is_reported_after_the_next_sample() {
    let mut session = session(&[(250, PacketDirection::In)], 290, |_| vec![0; 6]);
    assert!(session.next_report(false).is_none(), "the last sample was at 199 ms");
    session.allowances.as_mut().unwrap().sample(299 * MS, &[0, 3, 0, 0, 0, 0]);
    let Some(Report::Ended(burst, None)) = session.next_report(false) else { panic!("reported") };
    assert_eq!(burst.allowances[0].packets, 3);
}

#[test]
fn a_counter_that_was_reset_counts_from_zero_and_a_driver_without_has_none() {
    let mut allowances = Allowances::among(&names()).unwrap();
    for (at, value) in [(0, 50), (1, 60), (2, 7)] {
        allowances.sample(at, &[0, value, 0, 0, 0, 0]);
    }
    assert_eq!(allowances.totals()[0].1, 17);
    assert!(Allowances::among(&["rx_queue_0_xdp_packets".to_owned()]).is_none());
    assert!(Allowances::among(&[]).is_none());
}

#[test]
fn growths_are_bounded() {
    let mut allowances = Allowances::among(&names()).unwrap();
    for n in 0..3 * GROWTHS_MAX as u64 {
        allowances.sample(n, &[0, n, 0, 0, 0, 0]);
        assert!(allowances.growths.len() <= GROWTHS_MAX);
    }
    allowances.sample(u64::MAX / 2, &[0, 0, 0, 0, 0, 0]);
    assert!(allowances.growths.is_empty());
    let all = 3 * GROWTHS_MAX as u64 - 1;
    assert_eq!(allowances.totals()[0], ("bw_in_allowance_exceeded", all, all));
}
