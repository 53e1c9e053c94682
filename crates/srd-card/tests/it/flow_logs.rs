//! Flow logs, tested through the public interface: they count all packets that pass, and all
//! packets that security groups or network ACLs refuse, and no other packets (F1 to F6).
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::lane::*;
use srd_card::observe::{InterfaceAttributes, Path, line, records};
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::logs::WINDOWS_MAX;
use srd_card::vpc::{Cause, LoggedWindow};
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::Rules;
use srd_vpc::id::*;
use srd_vpc::judge::Reason;
use srd_vpc::object::*;

const MINUTE: Duration = Duration::from_secs(60);

fn logged(lab: &mut Lab, enis: &[u64]) {
    let lengths: BTreeMap<_, _> =
        enis.iter().map(|n| (EniId(*n), BTreeSet::from([MINUTE]))).collect();
    lab.card.set_flow_logs(Instant::ZERO, &lengths);
}

fn windows(lab: &mut Lab, at: Instant) -> Vec<LoggedWindow> {
    lab.card.poll(at, &mut Delivered::default());
    let mut all = Vec::new();
    while let Some(window) = lab.card.take_window() {
        all.push(window);
    }
    all
}

fn lines(window: &LoggedWindow, fields: &str) -> Vec<String> {
    let fields: Vec<_> = fields.split(' ').map(|name| LogField::find(name).unwrap()).collect();
    let facts = InterfaceAttributes::default();
    let all = records(&facts, &window.window, LoggedTraffic::All);
    all.map(|record| line(&record, &fields)).collect()
}

const FIELDS: &str = "srcaddr dstaddr srcport dstport protocol packets bytes action tcp-flags \
                      flow-direction traffic-path log-status";

#[test]
fn both_ends_log_what_passes_and_the_end_that_refuses_logs_that() {
    let only_80 = vec![rule(0, false, Traffic::Tcp(80, 80), "0.0.0.0/0")];
    let mut lab = Lab::new(&world(&[], [open(), only_80, open()]));
    logged(&mut lab, &[0, 1]);
    assert_eq!(lab.send(0, &packet((0, 1), TCP, 0, &ports(5, 80))), Some(1));
    assert_eq!(lab.send(0, &packet((0, 1), TCP, 0, &ports(5, 80))), Some(1));
    assert_eq!(lab.send(0, &packet((0, 1), TCP, 0, &ports(5, 22))), None);
    // The third instance has no log.
    assert_eq!(lab.send(2, &packet((2, 0), UDP, 0, &[0, 7, 0, 9, 0, 8, 0, 0])), Some(0));
    assert!(windows(&mut lab, Instant::ZERO + Duration::from_secs(59)).is_empty());
    let all = windows(&mut lab, Instant::ZERO + MINUTE);
    let of = |n: u64| all.iter().find(|window| window.eni == EniId(n)).unwrap();
    assert_eq!(
        lines(of(0), FIELDS),
        [
            "10.0.0.12 10.0.0.10 7 9 17 1 28 ACCEPT 0 ingress - OK",
            "10.0.0.10 10.0.0.11 5 22 6 1 40 ACCEPT 2 egress 1 OK",
            "10.0.0.10 10.0.0.11 5 80 6 2 80 ACCEPT 2 egress 1 OK",
        ]
    );
    assert_eq!(
        lines(of(1), FIELDS),
        [
            "10.0.0.10 10.0.0.11 5 22 6 1 40 REJECT 2 ingress - OK",
            "10.0.0.10 10.0.0.11 5 80 6 2 80 ACCEPT 2 ingress - OK",
        ]
    );
    assert_eq!(all.len(), 2);
    // The next minute has no packets.
    let all = windows(&mut lab, Instant::ZERO + MINUTE + MINUTE);
    assert_eq!(lines(&all[0], "packets start log-status"), ["- 60 NODATA"]);
}

/// The packets and bytes in flow logs equal the counters of the interfaces, for each direction.
#[test]
fn packets_and_bytes_of_logs_are_those_of_the_interface() {
    let mut lab = Lab::new(&world(&[], [open(), open(), open()]));
    logged(&mut lab, &[0, 1, 2]);
    for n in 0..500_u16 {
        let (from, to) = (u8::try_from(n % 3).unwrap(), u8::try_from((n + 1) % 3).unwrap());
        let mut body = ports(n, 80);
        body.resize(20 + usize::from(n), 0);
        assert_eq!(lab.send(from.into(), &packet((from, to), TCP, 0, &body)), Some(to.into()));
    }
    let all = windows(&mut lab, Instant::ZERO + MINUTE);
    for n in 0..3_u64 {
        let window = &all.iter().find(|window| window.eni == EniId(n)).unwrap().window;
        let counts = lab.card.counts(lab.ports[usize::try_from(n).unwrap()]);
        let sum = |egress: bool| {
            let flows = window.flows().into_iter().filter(|(key, _)| key.egress == egress);
            flows.fold((0, 0), |(packets, bytes), (_, flow)| {
                (packets + flow.accepted.packets, bytes + flow.accepted.bytes)
            })
        };
        assert_eq!(sum(true), (counts.tx_packets, counts.tx_bytes));
        assert_eq!(sum(false), (counts.rx_packets, counts.rx_bytes));
        assert!(counts.tx_packets > 100);
        let paths = window.flows().into_iter().filter_map(|(_, flow)| flow.path);
        assert!(paths.into_iter().all(|path| path == Path::Cloud));
    }
}

#[test]
fn services_dhcp_and_drops_for_other_reasons_are_left_out() {
    let mut lab = Lab::new(&world(&[], [open(), open(), open()]));
    logged(&mut lab, &[0]);
    // No log counts these packets: DHCP, one to an unknown address, one with the source of another
    // interface, and one to the resolver.
    lab.send(0, &packet((0, 1), UDP, 0, &[0, 68, 0, 67, 0, 8, 0, 0]));
    lab.send(0, &packet((0, 90), TCP, 0, &ports(5, 80)));
    lab.send(0, &packet((1, 2), TCP, 0, &ports(5, 80)));
    let mut resolver = packet((0, 0), UDP, 0, &[0, 7, 0, 53, 0, 8, 0, 0]);
    resolver[16..20].copy_from_slice(&[169, 254, 169, 253]);
    lab.send(0, &resolver);
    let drops = lab.card.drops(lab.ports[0]);
    assert_eq!(drops.of(Cause::Rule(Reason::NotItsAddress)), 1, "{drops:?}");
    assert_eq!(drops.of(Cause::Rule(Reason::NoInterface)), 1, "{drops:?}");
    assert_eq!(lab.card.counts(lab.ports[0]).tx_packets, 2, "DHCP and the resolver");
    let all = windows(&mut lab, Instant::ZERO + MINUTE);
    assert_eq!(lines(&all[0], "log-status"), ["NODATA"]);
}

#[test]
fn a_log_that_ends_gives_its_window_and_one_that_stays_goes_on() {
    let mut lab = Lab::new(&world(&[], [open(), open(), open()]));
    logged(&mut lab, &[0, 1]);
    assert_eq!(lab.send(0, &packet((0, 1), TCP, 0, &ports(5, 80))), Some(1));
    logged(&mut lab, &[1]);
    let ended = lab.card.take_window().unwrap();
    assert_eq!((ended.eni, ended.window.len()), (EniId(0), 1));
    assert!(lab.card.take_window().is_none());
    lab.card.remove_instance(Instant::ZERO, lab.ports[1]);
    let ended = lab.card.take_window().unwrap();
    assert_eq!((ended.eni, ended.window.len()), (EniId(1), 1));
    assert!(
        lab.card.poll_timeout().is_none() || windows(&mut lab, Instant::ZERO + MINUTE).is_empty()
    );
}

/// A packet that waits for a limit, and that changed rules refuse when its wait is over, is logged
/// as rejected.
#[test]
fn a_packet_that_is_refused_after_its_wait_is_logged_as_refused() {
    let open_world = world(&[], [open(), open(), open()]);
    let mut lab = Lab::new(&open_world);
    logged(&mut lab, &[0]);
    let large = [&ports(5, 80)[..], &[0; 60_000]].concat();
    let frame = [&[0; OFFLOAD_BYTES][..], &packet((0, 1), TCP, 0, &large)].concat();
    let mut around = Delivered::default();
    let mut sent = 0;
    while lab.card.counts(lab.ports[0]).tx_packets == sent {
        lab.card.from_guest(Instant::ZERO, lab.ports[0], frame.clone(), &mut around);
        sent += 1;
    }
    let closed = world(&[], [vec![], open(), open()]);
    lab.card.set_rules(Arc::new(Rules::compile(&closed, HOST)));
    lab.card.poll(Instant::ZERO + Duration::from_secs(1), &mut around);
    let all = windows(&mut lab, Instant::ZERO + MINUTE);
    let lines = lines(&all[0], "packets action");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].ends_with("REJECT"), "{lines:?}");
}

#[test]
fn windows_that_nobody_takes_are_given_up_and_counted() {
    let mut lab = Lab::new(&world(&[], [open(), open(), open()]));
    logged(&mut lab, &[0]);
    for n in 1..=u64::try_from(WINDOWS_MAX).unwrap() + 5 {
        lab.card.poll(Instant::ZERO + Duration::from_secs(60 * n), &mut Delivered::default());
    }
    assert_eq!(lab.card.windows_lost(), 5);
    let mut taken = 0;
    while lab.card.take_window().is_some() {
        taken += 1;
    }
    assert_eq!(taken, WINDOWS_MAX);
}
