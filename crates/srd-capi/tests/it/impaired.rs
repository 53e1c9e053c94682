//! Messages between two hosts of the lab over a wire that loses, delays and reorders packets. Needs
//! root, iproute2, `/dev/net/tun` and a C compiler. If one of these is missing, the test prints
//! that it was skipped and passes; in CI it fails.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::support::{LibraryDir, here, is_here};
use srd_lab::{Fabric, FabricConfig, HostId, Impairment, impair::Direction, requirements};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

const SENDER: HostId = HostId { leaf: 0, host: 0 };
const RECEIVER: HostId = HostId { leaf: 1, host: 0 };

/// Returns a wire with 64 paths of different delays, which is the number of paths of an endpoint.
/// Packets are lost, and are reordered even on one path.
fn bad() -> Impairment {
    Impairment { loss_ppm: 5000, paths: 64, jitter_ns: 50_000, ..Impairment::default() }
}

/// Whether this machine can run a fabric with a wire. If not, prints the reason.
fn ready() -> bool {
    let missing = requirements().into_iter().filter(|m| m.required).map(|m| m.to_string());
    let mut missing: Vec<String> = missing.collect();
    if !Path::new("/dev/net/tun").exists() {
        missing.push("there is no /dev/net/tun".into());
    }
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(missing.is_empty() || !ci, "in CI this test must run: {}", missing.join("; "));
    if !missing.is_empty() {
        println!("skipped: {}", missing.join("; "));
    }
    missing.is_empty() && is_here("cc")
}

/// Sends messages of `bytes` bytes in total over a wire. Returns the receiver's last line and the
/// counters of the wire.
fn stream(name: &str, bytes: u64, impairment: &Impairment) -> (String, [Direction; 2]) {
    let place = LibraryDir::new();
    let program = place.compile("cc", &["-std=c11", "-lsrd"], &here("tests/ordered.c"));
    let config = FabricConfig {
        // The process number lets a second checkout run its tests at the same time.
        name_prefix: format!("{name}{}", std::process::id()),
        hosts_per_leaf: 1,
        spines: 1,
        ..FabricConfig::default()
    };
    let fabric = Fabric::up_guarded(config).unwrap();
    let wire = fabric.impair([SENDER, RECEIVER], impairment).unwrap();
    let command = |host, arguments: &[&str]| {
        let address = fabric.host_address(host, srd_lab::Family::V4).unwrap().to_string();
        let mut command = Command::new(&program);
        command.args(["-a", &address, "-n", &bytes.to_string()]).args(arguments);
        command.env("LD_LIBRARY_PATH", place.0.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped());
        command
    };
    let mut receiver = fabric.spawn(RECEIVER, &mut command(RECEIVER, &[])).unwrap();
    let mut said = BufReader::new(receiver.stdout.take().unwrap());
    let mut address = String::new();
    said.read_line(&mut address).unwrap();
    let mut sender = fabric.spawn(SENDER, &mut command(SENDER, &[address.trim()])).unwrap();
    let mut last = String::new();
    said.read_to_string(&mut last).unwrap();
    // The receiver waits for the sender. If the receiver has failed, the sender ends after its
    // timeout.
    let ended = (receiver.wait().unwrap(), sender.wait().unwrap());
    assert!(ended.0.success() && ended.1.success(), "{ended:?}: {last}");
    (last, wire.stop().unwrap())
}

/// Checks that every byte arrived, and that the wire was impaired as configured.
fn judge(last: &str, bytes: u64, impairment: &Impairment, wire: &[Direction; 2]) {
    println!("{last}{wire:#?}");
    assert!(last.contains("in order and right"), "{last}");
    let there = &wire[0].carried;
    assert!(there.bytes > bytes, "{there:?}");
    assert_eq!(there.paths_used, u64::from(impairment.paths), "{there:?}");
    assert!(there.overtaken > there.packets / 10, "{there:?}");
    if impairment.loss_ppm > 0 {
        assert!(there.lost > 0, "{there:?}");
    }
}

#[test]
fn messages_of_all_sizes_arrive_in_order_and_right_over_a_bad_wire() {
    if !ready() {
        return;
    }
    let (last, wire) = stream("ordered", 50_000_000, &bad());
    judge(&last, 50_000_000, &bad(), &wire);
}

#[test]
#[ignore = "ten gigabytes: minutes, with --release"]
fn ten_gigabytes_arrive_in_order_and_right_over_a_bad_wire() {
    if !ready() {
        return;
    }
    for loss_ppm in [0, 5000] {
        let impairment = Impairment { loss_ppm, ..bad() };
        let (last, wire) = stream("ten", 10_000_000_000, &impairment);
        judge(&last, 10_000_000_000, &impairment, &wire);
    }
}
