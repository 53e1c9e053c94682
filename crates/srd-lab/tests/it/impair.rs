//! The bad wire on a real kernel. Needs root, iproute2 and `/dev/net/tun`; if they are missing, a
//! test prints that it was skipped.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::ready::{missing_tun, ready};
use srd_lab::impair::Carried;
use srd_lab::probe::Pair;
use srd_lab::{Fabric, FabricConfig, FabricGuard, Family, HostId, Impairment};
use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

const A: HostId = HostId { leaf: 0, host: 0 };
const B: HostId = HostId { leaf: 1, host: 0 };
/// Time limit for any result that must arrive.
const WAIT: Duration = Duration::from_secs(60);
/// Silence after which no more datagrams are expected.
const SILENCE: Duration = Duration::from_secs(3);
const MS: u64 = 1_000_000;

/// Builds a fabric of two hosts; if this machine does not support it, prints the reason.
fn fabric(test: &str) -> Option<FabricGuard> {
    if !ready(missing_tun()) {
        return None;
    }
    let config = FabricConfig {
        // The name contains the process id: a second checkout may run its tests at the same time.
        name_prefix: format!("{test}{}", std::process::id()),
        hosts_per_leaf: 2,
        spines: 1,
        ..FabricConfig::default()
    };
    Some(Fabric::up_guarded(config).unwrap())
}

fn pair(family: Family) -> Pair {
    Pair { from: A, to: B, family }
}

fn even(delay_ns: u64) -> Impairment {
    Impairment { delay_min_ns: delay_ns, delay_max_ns: delay_ns, ..Impairment::default() }
}

fn devices(fabric: &Fabric, host: HostId) -> String {
    fabric.within(host, || fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap()
}

/// Waits until `is` returns true.
fn wait(what: &str, is: impl Fn() -> bool) {
    let until = Instant::now() + WAIT;
    while !is() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a host has no end of a wire. A process that another test is starting has a copy of
/// each device's descriptor until it executes its program.
fn wait_until_gone(fabric: &Fabric, host: HostId) {
    wait("the wire is gone", || {
        let left = devices(fabric, host);
        assert!(left.contains("lo:"), "{left}");
        !left.contains("to-h")
    });
}

/// Returns the number of packets that the wire has read from a host's device: the second column of
/// sent packets.
fn taken(fabric: &Fabric, host: HostId) -> Option<u64> {
    let text = devices(fabric, host);
    let line = text.lines().find(|line| line.trim().starts_with("to-h"))?;
    line.split_once(':')?.1.split_whitespace().nth(8 + 1)?.parse().ok()
}

/// Asserts that the counters account for every packet.
fn add_up(carried: &Carried) {
    let ends = carried.delivered + carried.lost + carried.overflowed + carried.refused;
    assert_eq!(ends + carried.under_way, carried.packets, "{carried:?}");
}

#[test]
fn a_wire_delays_what_two_hosts_say_and_goes_without_a_trace() {
    let Some(fabric) = fabric("delay") else { return };
    let wire = fabric.impair([A, B], &even(5 * MS)).unwrap();
    for family in [Family::V4, Family::V6] {
        let rtt = fabric.ping(pair(family), 20_000, WAIT).unwrap().expect("an answer");
        assert!(rtt >= Duration::from_millis(10), "{family:?}: {rtt:?}");
    }
    // Other hosts are not affected.
    let other = Pair { to: HostId { leaf: 1, host: 1 }, ..pair(Family::V4) };
    assert!(fabric.ping(other, 20_000, WAIT).unwrap().is_some());
    let [there, back] = wire.stop().unwrap();
    assert_eq!((there.from, there.to, back.from, back.to), (A, B, B, A));
    for direction in [&there, &back] {
        assert_eq!((direction.carried.packets, direction.carried.delivered), (2, 2));
        assert_eq!(direction.device_dropped, 0);
    }
    [A, B].into_iter().for_each(|host| wait_until_gone(&fabric, host));
    for family in [Family::V4, Family::V6] {
        assert!(fabric.ping(pair(family), 20_001, WAIT).unwrap().is_some(), "{family:?}");
    }
}

/// In an earlier version, answers to a host's additional MPTCP addresses used the cables.
#[test]
fn regression_a_wire_carries_the_traffic_of_additional_addresses() {
    let Some(fabric) = fabric("extra") else { return };
    let wire = fabric.impair([A, B], &even(0)).unwrap();
    for (host, leaf) in [(A, 1), (B, 0)] {
        for last in 1..=5 {
            let address = format!("198.18.{leaf}.{last}");
            let get = || Command::new("ip").args(["route", "get", &address]).output();
            let found = fabric.within(host, get).unwrap().unwrap();
            let route = String::from_utf8_lossy(&found.stdout).into_owned();
            assert!(route.contains("dev to-h"), "{host} to {address}: {route}");
        }
    }
    wire.stop().unwrap();
}

#[test]
fn a_wire_that_loses_all_delivers_nothing_and_counts_it() {
    let Some(fabric) = fabric("loss") else { return };
    let lossy = Impairment { loss_ppm: 1_000_000, ..Impairment::default() };
    let wire = fabric.impair([A, B], &lossy).unwrap();
    let arrived = fabric.spray(pair(Family::V4), 20_000..20_050, 1000, Duration::from_millis(50));
    assert_eq!(arrived.unwrap(), 0);
    wait("the wire has taken all", || taken(&fabric, A) == Some(50));
    let [there, back] = wire.stop().unwrap();
    assert_eq!((there.carried.packets, there.carried.lost), (50, 50));
    assert_eq!(there.carried.bytes, 50 * 1028);
    assert_eq!(back.carried.packets, 0);
}

#[test]
fn packets_of_a_spray_take_all_paths_and_overtake_each_other() {
    let Some(fabric) = fabric("spray") else { return };
    let unequal =
        Impairment { delay_min_ns: 0, delay_max_ns: 200 * MS, paths: 64, ..Impairment::default() };
    let wire = fabric.impair([A, B], &unequal).unwrap();
    assert_eq!(fabric.spray(pair(Family::V4), 20_000..20_064, 8000, SILENCE).unwrap(), 64);
    let [there, _] = wire.stop().unwrap();
    add_up(&there.carried);
    assert_eq!((there.carried.delivered, there.carried.paths_used), (64, 64));
    // The first port's path is not the shortest: packets on shorter paths overtake its packet.
    assert!(there.carried.overtaken > 0, "{:?}", there.carried);
}

#[test]
fn a_wire_carries_so_many_packets_at_once_and_no_more() {
    let Some(fabric) = fabric("queue") else { return };
    // The delay is the longest permitted, so that all 20 packets are under way at once. If the
    // machine is delayed, some of the first packets may arrive before the last is sent.
    let short = Impairment { queue_packets_max: 8, ..even(1000 * MS) };
    let wire = fabric.impair([A, B], &short).unwrap();
    let arrived = fabric.spray(pair(Family::V4), 20_000..20_020, 1000, SILENCE).unwrap();
    let arrived = u64::try_from(arrived).unwrap();
    let [there, _] = wire.stop().unwrap();
    add_up(&there.carried);
    let Carried { delivered, overflowed, under_way_most, .. } = there.carried;
    assert_eq!((arrived + overflowed, under_way_most), (20, 8), "{:?}", there.carried);
    assert!(delivered == arrived && overflowed > 0, "{:?}", there.carried);
}

#[test]
fn what_cannot_be_a_wire_is_refused_and_leaves_nothing() {
    let Some(fabric) = fabric("refuse") else { return };
    let error = |hosts, impairment: &Impairment| {
        format!("{:#}", fabric.impair(hosts, impairment).expect_err("must be refused"))
    };
    assert!(error([A, A], &even(0)).contains("two different hosts"));
    let far = HostId { leaf: 9, host: 0 };
    assert!(error([A, far], &even(0)).contains("leaf of the host = 9"));
    assert!(error([A, B], &Impairment { paths: 0, ..even(0) }).contains("paths = 0"));
    let first = fabric.impair([A, B], &even(0)).unwrap();
    assert!(error([B, A], &even(0)).contains("is there a wire already?"));
    drop(first);
    wait_until_gone(&fabric, A);
}

#[test]
fn a_program_runs_beside_a_wire_and_its_exit_code_counts() {
    let Some(fabric) = fabric("beside") else { return };
    let run = |words: &[&str]| {
        let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
        fabric.run_impaired([A, B], &even(0), &argv)
    };
    let (code, [there, _]) = run(&["sh", "-c", "exit 7"]).unwrap();
    assert_eq!((code, there.carried.packets), (7, 0));
    let error = run(&["no-such-program-here"]).expect_err("no such program");
    assert!(format!("{error:#}").contains("no-such-program-here"), "{error:#}");
    assert!(run(&[]).is_err());
    wait_until_gone(&fabric, A);
}
