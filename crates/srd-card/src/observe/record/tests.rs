//! Tests of records: comparison with the lines in EC2's documentation, byte for byte.

use super::*;
use crate::observe::window::{Aggregator, FLOWS_MAX, Observed};
use srd_proto::Secret;
use srd_proto::time::Duration;
use std::format;
use std::vec;

const INTERVAL: Duration = Duration::from_secs(600);

fn at(unix_s: u64) -> Instant {
    Instant::from_nanos(unix_s * 1_000_000_000)
}

fn facts() -> InterfaceAttributes {
    InterfaceAttributes {
        account: "123456789010".into(),
        interface: "eni-1235b8ca123456789".into(),
        vpc: "vpc-abcdefab012345678".into(),
        subnet: "subnet-aaaaaaaa012345678".into(),
        instance: "i-01234567890123456".into(),
        is_nitro: true,
        ..InterfaceAttributes::default()
    }
}

fn key(egress: bool, ends: [&str; 2], ports: (u16, u16), protocol: u8) -> FlowKey {
    let [source, destination] = ends.map(|end| end.parse().unwrap());
    FlowKey { egress, protocol, source, destination, ports }
}

fn seen(key: FlowKey, packets: u32, bytes: u32, action: Action) -> Observed {
    Observed { key, action, path: None, tcp_flags: 0, packets, bytes }
}

fn lines(facts: &InterfaceAttributes, window: &Window, fields: &[LogField]) -> Vec<String> {
    let mut all: Vec<String> =
        records(facts, window, LoggedTraffic::All).map(|record| line(&record, fields)).collect();
    all.sort();
    all
}

/// Returns the lines of a log for packets of one flow between two times, in seconds.
fn flow(
    facts: &InterfaceAttributes,
    seen: Observed,
    [first, last]: [u64; 2],
    fields: &[LogField],
) -> String {
    let mut log = Aggregator::new(at(first), INTERVAL, Secret::known(1));
    log.count(at(first), &Observed { packets: seen.packets - 1, ..seen });
    log.count(at(last), &Observed { packets: 1, bytes: 0, tcp_flags: 0, ..seen });
    let window = log.roll(at(first) + INTERVAL).unwrap();
    let all = lines(facts, &window, fields);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

#[test]
fn golden_accepted_ssh() {
    let key = key(false, ["172.31.16.139", "172.31.16.21"], (20641, 22), 6);
    let seen = seen(key, 20, 4249, Action::Accept);
    assert_eq!(
        flow(&facts(), seen, [1418530010, 1418530070], &LogField::DEFAULT),
        "2 123456789010 eni-1235b8ca123456789 172.31.16.139 172.31.16.21 20641 22 6 20 4249 \
         1418530010 1418530070 ACCEPT OK"
    );
}

#[test]
fn golden_silent_and_skipped_windows() {
    // The log ends after 58 seconds.
    let log = Aggregator::new(at(1431280876), INTERVAL, Secret::known(1));
    let window = log.clone().finish(at(1431280934));
    assert_eq!(
        lines(&facts(), &window, &LogField::DEFAULT),
        ["2 123456789010 eni-1235b8ca123456789 - - - - - - - 1431280876 1431280934 - NODATA"]
    );
    let other = InterfaceAttributes { interface: "eni-11111111aaaaaaaaa".into(), ..facts() };
    let skip = line(&Record::lost(&other, &window), &LogField::DEFAULT);
    assert_eq!(
        skip,
        "2 123456789010 eni-11111111aaaaaaaaa - - - - - - - 1431280876 1431280934 - SKIPDATA"
    );
}

/// Groups refuse a ping: one record, and no record of an answer.
#[test]
fn golden_ping_that_groups_refuse() {
    let ping = key(false, ["203.0.113.12", "172.31.16.139"], (0, 0), 1);
    let mut log = Aggregator::new(at(1432917027), INTERVAL, Secret::known(1));
    log.count(at(1432917027), &seen(ping, 3, 252, Action::Reject));
    log.count(at(1432917142), &seen(ping, 1, 84, Action::Reject));
    assert_eq!(
        lines(&facts(), &log.finish(at(1432917142)), &LogField::DEFAULT),
        ["2 123456789010 eni-1235b8ca123456789 203.0.113.12 172.31.16.139 0 0 1 4 336 \
          1432917027 1432917142 REJECT OK"]
    );
}

/// The list of the subnet refuses the answer to a ping that groups admit.
#[test]
fn golden_ping_whose_answer_a_list_refuses() {
    let ping = key(false, ["203.0.113.12", "172.31.16.139"], (0, 0), 1);
    let answer = key(true, ["172.31.16.139", "203.0.113.12"], (0, 0), 1);
    let mut log = Aggregator::new(at(1432917027), INTERVAL, Secret::known(1));
    log.count(at(1432917027), &seen(ping, 4, 336, Action::Accept));
    log.count(at(1432917142), &seen(ping, 0, 0, Action::Accept));
    log.count(at(1432917094), &seen(answer, 4, 336, Action::Reject));
    log.count(at(1432917142), &seen(answer, 0, 0, Action::Reject));
    assert_eq!(
        lines(&facts(), &log.finish(at(1432917200)), &LogField::DEFAULT),
        [
            "2 123456789010 eni-1235b8ca123456789 172.31.16.139 203.0.113.12 0 0 1 4 336 \
             1432917094 1432917142 REJECT OK",
            "2 123456789010 eni-1235b8ca123456789 203.0.113.12 172.31.16.139 0 0 1 4 336 \
             1432917027 1432917142 ACCEPT OK",
        ]
    );
}

#[test]
fn golden_custom_format_with_flags_of_tcp() {
    let names = "version vpc-id subnet-id instance-id interface-id account-id type srcaddr dstaddr \
                 srcport dstport pkt-srcaddr pkt-dstaddr protocol bytes packets start end action \
                 tcp-flags log-status";
    let fields: Vec<LogField> =
        names.split_whitespace().map(|name| LogField::find(name).unwrap()).collect();
    let key = key(false, ["52.213.180.42", "10.0.0.62"], (43416, 5001), 6);
    let seen = Observed { tcp_flags: 2, ..seen(key, 8, 568, Action::Accept) };
    assert_eq!(
        flow(&facts(), seen, [1566848875, 1566848933], &fields),
        "3 vpc-abcdefab012345678 subnet-aaaaaaaa012345678 i-01234567890123456 \
         eni-1235b8ca123456789 123456789010 IPv4 52.213.180.42 10.0.0.62 43416 5001 52.213.180.42 \
         10.0.0.62 6 568 8 1566848875 1566848933 ACCEPT 2 OK"
    );
    assert_eq!(header(&fields), names);
}

#[test]
fn flags_of_a_window_are_joined_and_ack_shows_with_syn_only() {
    let key = key(false, ["10.0.0.1", "10.0.0.2"], (1, 2), 6);
    for (packets, shown) in
        [(vec![0x02, 0x10, 0x11], 3), (vec![0x12, 0x11], 19), (vec![0x10, 0x18], 0), (vec![4], 4)]
    {
        let mut log = Aggregator::new(at(0), INTERVAL, Secret::known(1));
        for tcp_flags in &packets {
            let seen = Observed { tcp_flags: *tcp_flags, ..seen(key, 1, 40, Action::Accept) };
            log.count(at(1), &seen);
        }
        let all = lines(&facts(), &log.finish(at(2)), &[LogField::TcpFlags]);
        assert_eq!(all, [format!("{shown}")], "{packets:x?}");
    }
}

#[test]
fn an_interface_shows_its_primary_address_and_packets_their_own() {
    let mut facts = facts();
    facts.addresses = [Some("10.0.1.10".parse().unwrap()), Some("fd00::1".parse().unwrap())];
    let fields = [
        LogField::Srcaddr,
        LogField::Dstaddr,
        LogField::PktSrcaddr,
        LogField::PktDstaddr,
        LogField::FlowDirection,
        LogField::Type,
    ];
    for (egress, ends, wanted) in [
        (true, ["10.0.1.11", "10.9.9.9"], "10.0.1.10 10.9.9.9 10.0.1.11 10.9.9.9 egress IPv4"),
        (false, ["10.9.9.9", "10.0.1.11"], "10.9.9.9 10.0.1.10 10.9.9.9 10.0.1.11 ingress IPv4"),
        (true, ["fd00::2", "fd00::9"], "fd00::1 fd00::9 fd00::2 fd00::9 egress IPv6"),
    ] {
        let seen = seen(key(egress, ends, (0, 0), 47), 2, 40, Action::Accept);
        assert_eq!(flow(&facts, seen, [1, 2], &fields), wanted);
    }
}

#[test]
fn paths_have_the_numbers_of_nitro_or_of_xen() {
    for (path, nitro, wanted) in [
        (Path::Cloud, true, "1"),
        (Path::Peering, true, "4"),
        (Path::Endpoint, true, "7"),
        (Path::Internet, true, "8"),
        (Path::Endpoint, false, "2"),
        (Path::Internet, false, "2"),
    ] {
        let facts = InterfaceAttributes { is_nitro: nitro, ..facts() };
        for (egress, wanted) in [(true, wanted), (false, "-")] {
            let key = key(egress, ["10.0.0.1", "10.0.0.2"], (1, 2), 17);
            let seen = Observed { path: Some(path), ..seen(key, 2, 80, Action::Accept) };
            assert_eq!(flow(&facts, seen, [1, 2], &[LogField::TrafficPath]), wanted);
        }
    }
}

#[test]
fn each_format_has_the_version_of_its_latest_field() {
    assert_eq!(version_of(&[]), 2);
    assert_eq!(version_of(&[LogField::Srcaddr, LogField::TrafficPath]), 5);
    assert_eq!(version_of(LogField::ALL), 10);
    let window = Aggregator::new(at(1), INTERVAL, Secret::known(1)).finish(at(2));
    let all = lines(&facts(), &window, LogField::ALL);
    assert_eq!(all[0].split(' ').count(), 42, "{all:?}");
    assert!(all[0].starts_with("10 123456789010 eni-1235b8ca123456789 - "), "{all:?}");
}

#[test]
fn a_log_of_one_action_leaves_the_other_out() {
    let key = key(false, ["10.0.0.1", "10.0.0.2"], (1, 2), 17);
    let mut log = Aggregator::new(at(0), INTERVAL, Secret::known(1));
    log.count(at(1), &seen(key, 1, 40, Action::Accept));
    log.count(at(1), &seen(key, 2, 80, Action::Reject));
    let window = log.finish(at(2));
    let packets = |traffic| -> Vec<String> {
        let facts = facts();
        let all = records(&facts, &window, traffic);
        let mut all: Vec<_> = all.map(|record| line(&record, &[LogField::Packets])).collect();
        all.sort();
        all
    };
    assert_eq!(packets(LoggedTraffic::Accept), ["1"]);
    assert_eq!(packets(LoggedTraffic::Reject), ["2"]);
    assert_eq!(packets(LoggedTraffic::All), ["1", "2"]);
}

#[test]
fn flows_beyond_the_limit_are_skipped_and_said_so() {
    let mut log = Aggregator::new(at(0), INTERVAL, Secret::known(1));
    let with = |n: usize| {
        let port = |n: usize| u16::try_from(n & 0xffff).unwrap();
        key(false, ["10.0.0.1", "10.0.0.2"], (port(n), port(n >> 16)), 17)
    };
    for n in 0..FLOWS_MAX + 3 {
        log.count(at(1), &seen(with(n), 1, 40, Action::Accept));
    }
    // Packets of a flow that has an entry still count.
    log.count(at(1), &seen(with(0), 1, 40, Action::Accept));
    let window = log.finish(at(2));
    assert_eq!((window.len(), window.skipped_packets), (FLOWS_MAX, 3));
    let facts = facts();
    let all: Vec<String> = records(&facts, &window, LoggedTraffic::Reject)
        .map(|record| line(&record, &[LogField::LogStatus]))
        .collect();
    assert_eq!(all, ["SKIPDATA"]);
}

#[test]
fn windows_follow_each_other_and_a_pause_leaves_some_out() {
    let mut log = Aggregator::new(at(100), Duration::from_secs(60), Secret::known(1));
    assert!(log.roll(at(159)).is_none());
    let first = log.roll(at(161)).unwrap();
    assert_eq!((first.began, first.ended), (at(100), at(160)));
    assert!(first.is_silent());
    let second = log.roll(at(1000)).unwrap();
    assert_eq!((second.began, second.ended), (at(160), at(220)));
    assert_eq!(log.ends(), at(1060));
}
