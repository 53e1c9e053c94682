//! ENA Express of interfaces, and the sizes of packets between hosts. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::net::UdpSocket;
use std::process::Command;

use serde_json::Value;

use crate::support::hosts::{Hosts, carries_a_megabyte};
use crate::support::machine::*;
use crate::support::transfer::Transfer;

const ALL: &str = "'all from 10.0.0.0/16'";
const ON: &str = "express = true";
const ON_FOR_UDP: &str = "express = true\nexpress_udp = true";
const B: [u8; 4] = [10, 0, 1, 11];
/// Number of bytes whose arrival shows that a transfer continues.
const SOME: u64 = 1 << 20;

/// Returns three counters of ENA Express of an instance: packets sent over SRD, eligible packets,
/// packets received over SRD.
fn counts(hosts: &Hosts, end: usize) -> [u64; 3] {
    let instance = ["a", "b"][end];
    ["ena_srd_tx_pkts", "ena_srd_eligible_tx_pkts", "ena_srd_rx_pkts"]
        .map(|name| hosts.counter(end, instance, name))
}

/// Returns the growth of the ENA Express counters of both instances during `work`.
fn grown(hosts: &Hosts, work: impl FnOnce()) -> [[u64; 3]; 2] {
    let read = || settled(|| [0, 1].map(|end| counts(hosts, end)));
    let before = read();
    work();
    let after = read();
    [0, 1].map(|end| [0, 1, 2].map(|at| after[end][at] - before[end][at]))
}

/// Runs `ping` in an instance. Returns whether all requests were answered, and the text that it
/// printed.
fn ping(from: &str, words: &[&str]) -> (bool, String) {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{from}")).arg("ping").args(["-n", "-c", "3"]);
    let output = command.args(["-i", "0.2", "-W", "10"]).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (said.contains(" 0% packet loss"), said)
}

/// Returns the first flow of `protocol` of the instance a for which the use of SRD was decided
/// since the last change of the cloud; null if there is no such flow.
fn flow(hosts: &Hosts, protocol: &str) -> Value {
    let name = format!("{}a", hosts.machines[0].prefix);
    let flows = hosts.machines[0].json(&["card", "flows", &name]);
    let mut all = flows.as_array().unwrap().iter();
    all.find(|flow| flow["protocol"] == protocol && !flow["rides_srd"].is_null())
        .unwrap_or(&Value::Null)
        .clone()
}

/// Writes the cloud with the two texts of `lines` in the tables of its two interfaces. Returns its
/// file.
fn cloud(hosts: &Hosts, name: &str, lines: [&str; 2]) -> String {
    hosts.machines[0].two_hosts_with(name, ALL, lines)
}

/// TCP packets are sent over SRD if both interfaces have Express, UDP packets if both have Express
/// for UDP, and ICMP packets never. The counters of `ethtool -S` on both hosts, the flows and the
/// metrics show this.
#[test]
fn packets_ride_srd_if_both_interfaces_have_express_for_them() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("ex", 1500);
    let file = cloud(&hosts, "on.toml", [ON, ON]);
    hosts.configure(&file, "");
    let _cards = hosts.both_up();
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    let names = || {
        let name = format!("{}a", hosts.machines[0].prefix);
        let status = hosts.machines[0].json(&["card", "status", &name]);
        let counters = status["instances"][0]["interfaces"][0]["counters"].clone();
        let all = counters.as_array().unwrap().iter().map(|of| of[0].as_str().unwrap().to_owned());
        all.filter(|name| name.starts_with("ena_srd")).collect::<Vec<_>>()
    };
    let in_order = ["mode", "tx_pkts", "eligible_tx_pkts", "rx_pkts", "resource_utilization"];
    assert_eq!(names(), in_order.map(|name| format!("ena_srd_{name}")));
    assert_eq!(hosts.counter(0, "a", "ena_srd_mode"), 1);

    let [of_a, of_b] = grown(&hosts, || carries_a_megabyte(&a, &b, B));
    assert!(of_a[0] > 100 && of_a[0] == of_a[1], "{of_a:?}");
    // If the queue of a host is too long, the queue drops packets that are not ECN-capable. So not
    // all packets arrive.
    assert!(of_b[2] * 2 > of_a[0] && of_b[2] <= of_a[0], "{of_a:?} {of_b:?}");
    assert!(of_a[2] * 2 > of_b[0] && of_a[2] <= of_b[0], "{of_a:?} {of_b:?}");
    let tcp = flow(&hosts, "tcp");
    assert!(tcp["rides_srd"] == true && tcp["plainly"].is_null(), "{tcp}");
    let other = hosts.other(0);
    assert!(other["sent_by_srd_frames"].as_u64() > Some(0), "{other}");

    // ICMP packets are never sent over SRD.
    let none = [[0; 3]; 2];
    let pings = || {
        let (answered, said) = ping(&a, &["10.0.1.11"]);
        assert!(answered, "{said}");
    };
    assert_eq!(grown(&hosts, pings), none);
    let icmp = flow(&hosts, "icmp");
    assert!(icmp["rides_srd"] == false, "{icmp}");
    assert_eq!(icmp["plainly"], "neither TCP nor UDP");

    // UDP has a separate setting.
    let [from, to] = [(&a, "10.0.1.10:7"), (&b, "10.0.1.11:7")].map(|(of, at)| {
        let socket = within(of, || UdpSocket::bind(at).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    let send = || {
        for _ in 0..5 {
            from.send_to(&[7; 1000], "10.0.1.11:7").unwrap();
            to.recv(&mut [0; 1000]).unwrap();
        }
    };
    assert_eq!(grown(&hosts, send), none);
    assert_eq!(flow(&hosts, "udp")["plainly"], "the interface that sends has no `express_udp`");
    let one = cloud(&hosts, "one.toml", [ON_FOR_UDP, ON]);
    hosts.apply(&one);
    assert_eq!(hosts.counter(0, "a", "ena_srd_mode"), 3);
    assert_eq!(grown(&hosts, send), none);
    assert_eq!(flow(&hosts, "udp")["plainly"], "the interface that receives has no `express_udp`");
    hosts.apply(&cloud(&hosts, "udp.toml", [ON_FOR_UDP, ON_FOR_UDP]));
    assert_eq!(grown(&hosts, send), [[5, 5, 0], [0, 0, 5]]);

    // If only one of the two interfaces has Express, the explanation names the interface that lacks
    // it.
    for (name, lines, why) in [
        ("sender.toml", [ON, ""], "the interface that receives has no `express`"),
        ("receiver.toml", ["", ON], "the interface that sends has no `express`"),
    ] {
        hosts.apply(&cloud(&hosts, name, lines));
        assert_eq!(grown(&hosts, || carries_a_megabyte(&a, &b, B)), none, "{name}");
        assert_eq!(flow(&hosts, "tcp")["plainly"], why);
    }
}

/// ENA Express is switched on and off while a connection runs. The connection survives, and no byte
/// is lost or out of place.
#[test]
fn express_is_switched_on_and_off_in_the_middle_of_a_transfer() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("es", 1500);
    let off = cloud(&hosts, "off.toml", ["", ""]);
    let on = cloud(&hosts, "on.toml", [ON, ON]);
    hosts.configure(&off, "");
    let _cards = hosts.both_up();
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    let transfer = Transfer::begin(&a, &b, B, 5000);
    transfer.go_on(SOME);
    for _ in 0..3 {
        let before = counts(&hosts, 0);
        assert_eq!(flow(&hosts, "tcp")["rides_srd"], false);
        hosts.apply(&on);
        let silence = transfer.go_on(SOME);
        let after = counts(&hosts, 0);
        assert!(after[0] > before[0] + 100, "on: {before:?} {after:?}");
        println!("on: silent for {silence:?}");
        assert_eq!(flow(&hosts, "tcp")["rides_srd"], true);
        hosts.apply(&off);
        let before = counts(&hosts, 0);
        let silence = transfer.go_on(SOME);
        assert_eq!(counts(&hosts, 0)[0], before[0], "off");
        println!("off: silent for {silence:?}");
    }
    assert!(transfer.end() > 7 * SOME);
}

/// The network passes packets of 1,500 bytes, while instances have an MTU of 9,001. TCP passes. The
/// card answers larger packets as a router would, or sends them in fragments. // V7
#[test]
fn instances_of_9001_bytes_speak_over_a_network_of_1500() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("em", 1500);
    let off = cloud(&hosts, "off.toml", ["", ""]);
    let on = cloud(&hosts, "on.toml", [ON_FOR_UDP, ON_FOR_UDP]);
    hosts.configure(&on, "");
    let _cards = hosts.both_up();
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    // SRD carries a packet of 8,900 bytes without IP fragments.
    let [from, to] = [(&a, "10.0.1.10:7"), (&b, "10.0.1.11:7")].map(|(of, at)| {
        let socket = within(of, || UdpSocket::bind(at).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    });
    let whole = grown(&hosts, || {
        from.send_to(&[7; 8900 - 28], "10.0.1.11:7").unwrap();
        assert_eq!(to.recv(&mut [0; 9000]).unwrap(), 8900 - 28);
    });
    assert_eq!(whole, [[1, 1, 0], [0, 0, 1]]);
    for (name, file) in [("off", &off), ("on", &on)] {
        hosts.apply(file);
        carries_a_megabyte(&a, &b, B);
        carries_a_megabyte(&b, &a, [10, 0, 1, 10]);
        // A large packet that may be fragmented is answered.
        let (answered, said) = ping(&a, &["-M", "dont", "-s", "8000", "10.0.1.11"]);
        assert!(answered, "{name}: {said}");
        // A large packet that may not be fragmented is refused.
        let (answered, said) = ping(&a, &["-M", "do", "-s", "8000", "10.0.1.11"]);
        assert!(!answered && said.contains("mtu"), "{name}: {said}");
        let (answered, said) = ping(&a, &["-M", "do", "-s", "1200", "10.0.1.11"]);
        assert!(answered, "{name}: {said}");
    }
}

/// The file of a cloud is refused if it has `express` for an instance type without ENA Express.
#[test]
fn a_type_without_express_is_refused_with_it() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("et", 1500);
    let file = cloud(&hosts, "on.toml", [ON, ON]);
    hosts.configure(&file, "");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("c7i.24xlarge", "c7i.large")).unwrap();
    let refused = hosts.machines[0].srd(&["card", "up", "-c", &hosts.config(0), "--check"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("c7i.large has no ENA Express"), "{said}");
}
