//! Instances of one cloud on two machines, and on a machine whose namespace simulates the internet.
//! Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::cable::{End, plug};
use crate::support::hosts::{Hosts, carries_a_megabyte};
use crate::support::machine::*;
use crate::support::pair::must;

/// Writes a cloud on two hosts, whose instances accept connections to port 5000 and echo requests.
/// Returns its file.
fn two_hosts(machine: &Machine) -> String {
    machine.two_hosts("'tcp 5000 from 10.0.0.0/16', 'icmp from 10.0.0.0/16'")
}

/// Creates two machines with a wire between them, the configurations of their cards, and a cloud
/// for them. Returns the machines and the file of the cloud.
fn wired(tag: &str) -> (Hosts, String) {
    let hosts = Hosts::new(tag, 1500);
    let file = two_hosts(&hosts.machines[0]);
    hosts.configure(&file, "");
    (hosts, file)
}

#[test]
fn instances_of_two_hosts_meet() {
    if !ready_with_nsenter() {
        return;
    }
    let (hosts, _) = wired("h");
    let _cards = hosts.both_up();
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
    carries_a_megabyte(&b, &a, [10, 0, 1, 10]);
    let refused = connect_in_vain(&a, [10, 0, 1, 11], 80);
    assert!(refused.is_err(), "no rule allows port 80");
    let name = format!("{}b", hosts.machines[0].prefix);
    let beta = &hosts.machines[1];
    wait_until("the receiver's host refuses", || beta.drops(&name, "security groups in") > 0);
}

/// A host whose card has ended, or whose machine is unreachable, is shown as silent in the status
/// and on standard error. A host that answers again is reported, too. // V18
#[test]
fn regression_a_host_that_does_not_answer_shows_as_silent_on_the_other() {
    if !ready_with_nsenter() {
        return;
    }
    let (hosts, _) = wired("s");
    let mut of_alpha = hosts.up(0);
    let first = hosts.other(0);
    assert!(first["name"] == "beta" && first["address"] == "198.18.0.2:7535", "{first}");
    assert!(first["up"] == false && first["heard_s"].is_null(), "{first}");
    assert_eq!(first["silent"], false, "{first}");
    let mut card = hosts.up(1);
    hosts.wait_for_session(0);
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
    let heard = hosts.other(0);
    for way in ["sent", "received"] {
        assert!(heard[format!("{way}_frames")].as_u64().unwrap() > 2, "{heard}");
    }
    assert!(heard["heard_s"].is_f64() && heard["silent"] == false, "{heard}");
    assert!(heard["down_s"].is_null(), "{heard}");

    let said = |words: &str, times: usize| {
        wait_until(words, || {
            let text = fs::read_to_string(hosts.machines[0].path("up.log")).unwrap();
            text.matches(words).count() >= times
        });
    };
    let silent = |times: usize| {
        wait_until("a silent host", || hosts.other(0)["silent"] == true);
        let silent = hosts.other(0);
        assert!(silent["up"] == false && silent["down_s"].as_f64().unwrap() >= 5.0, "{silent}");
        let words = String::from_utf8(hosts.machines[0].srd(&["card", "status"]).stdout).unwrap();
        assert!(words.contains("host beta at 198.18.0.2:7535: down"), "{words}");
        assert!(words.contains("SILENT"), "{words}");
        said("host beta at 198.18.0.2:7535 is silent", times);
    };
    // In the meantime, no instance sends packets.
    assert_eq!(card.end(Signal::TERM), 0);
    silent(1);
    let card = hosts.up(1);
    hosts.wait_for_session(0);
    said("host beta at 198.18.0.2:7535 answers again", 1);
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
    assert_eq!(hosts.other(0)["silent"], false);
    // A machine that is cut off from the network cannot send the message that announces the end of
    // a card.
    must(&format!("-n {} link set v0 down", hosts.machines[1].namespace));
    silent(2);
    must(&format!("-n {} link set v0 up", hosts.machines[1].namespace));
    hosts.wait_for_session(0);
    said("host beta at 198.18.0.2:7535 answers again", 2);
    assert_eq!(of_alpha.end(Signal::TERM), 0);
    drop(card);
}

/// A card has the tables of its own interfaces, and requests the tables of other interfaces. It
/// receives the changes that concern it. A guest that tries all addresses causes no more requests
/// than its limit permits. // V15, V16
#[test]
fn a_card_asks_for_what_its_packets_need_and_follows_changes() {
    if !ready_with_nsenter() {
        return;
    }
    let (hosts, file) = wired("k");
    let _alpha = hosts.up(0);
    let _beta = hosts.up(1);
    hosts.wait_for_session(0);
    let [alpha, beta] = &hosts.machines;
    let [a, b] = ["a", "b"].map(|name| alpha.instance(name));
    let tables = |machine: &Machine| machine.json(&["card", "status"])["tables"].clone();
    let before = tables(alpha);
    assert!(before["interfaces"] == 1 && before["mapped"] == 1, "{before}");
    assert!(before["answers"] == 0 && before["asked"] == 0, "{before}");
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
    for machine in [alpha, beta] {
        // The directory answers requests on a thread of its own, so wait until all requests are
        // answered.
        let is_answered = |tables: &Value| tables["asked"] == tables["answered"];
        wait_until("answers to all questions", || is_answered(&tables(machine)));
        let tables = tables(machine);
        assert_eq!(tables["mapped"], 1, "{tables}");
        assert!((1..=3).contains(&tables["answers"].as_u64().unwrap()), "{tables}");
    }
    let of_alpha = tables(alpha);
    assert!(before["bytes"].as_u64() < of_alpha["bytes"].as_u64(), "{before} {of_alpha}");

    // An interface is added to a security group that a rule of the other host names.
    let listener = listen(&b, 80);
    let text = fs::read_to_string(&file).unwrap();
    let rule = "ingress = [\"tcp 5000";
    let text = text.replace(rule, "ingress = [\"tcp 80 from group m\", \"tcp 5000");
    let text = text.replace("[group.main]", "[group.m]\n[group.main]");
    let apply = |text: &str| {
        fs::write(&file, text).unwrap();
        hosts.apply(&file);
    };
    apply(&text);
    assert!(connect_in_vain(&a, [10, 0, 1, 11], 80).is_err(), "the group has no member yet");
    assert_eq!(tables(beta)["members"], 0);
    apply(&text.replacen("groups = [\"main\"]", "groups = [\"main\", \"m\"]", 1));
    assert_eq!(tables(beta)["members"], 1);
    connect(&a, [10, 0, 1, 11], 80).unwrap();
    listener.accept().unwrap();

    // A guest sends packets to all addresses of its subnet.
    let asked = tables(alpha)["asked"].as_u64().unwrap();
    let socket = within(&a, || std::net::UdpSocket::bind(("10.0.1.10", 0)).unwrap());
    let tried = 20..=220_u8;
    for last in tried.clone() {
        let _ = socket.send_to(b"?", (std::net::Ipv4Addr::new(10, 0, 1, last), 9));
    }
    let sent = tried.count() as u64;
    let began = Instant::now();
    loop {
        let status = alpha.json(&["card", "status"]);
        let drops = &status["instances"][0]["interfaces"][0]["drops"];
        let of = |cause: &str| drops[cause].as_u64().unwrap_or(0);
        if of("no interface") + of("no answer") == sent {
            let asked_now = status["tables"]["asked"].as_u64().unwrap() - asked;
            assert!(asked_now <= sent && of("no interface") >= 64.min(sent), "{status}");
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{status}");
        thread::sleep(Duration::from_millis(50));
    }
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
}

/// The internet's side of a card does not make its machine a router: the machine does not forward
/// packets of other hosts into the cloud.
#[test]
fn regression_the_internets_side_is_no_router_for_strangers() {
    if !ready_with_nsenter() {
        return;
    }
    let [machine, outside, beyond] = [Machine::new("e"), Machine::new("f"), Machine::new("g")];
    let own = &machine.namespace;
    for (number, other) in (2..).zip([&outside.namespace, &beyond.namespace]) {
        let name = format!("v{number}");
        let [near, far] = [1, 2].map(|last| format!("192.0.{number}.{last}/24"));
        let end = |namespace, interface, addresses| End { namespace, interface, addresses };
        plug(&[end(own, &name, &[&near]), end(other, "v0", &[&far])], "");
        must(&format!("-n {other} route add default via 192.0.{number}.1"));
    }
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    let bind = |of: &str, port: u16| {
        let socket = within(of, || std::net::UdpSocket::bind(("0.0.0.0", port)).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let [near, far] = [&outside, &beyond].map(|of| bind(&of.namespace, 7000));
    let guest = bind(&machine.instance("web"), 7000);
    guest.send_to(b"from a guest", ("192.0.2.2", 7000)).unwrap();
    let mut buffer = [0; 100];
    near.recv_from(&mut buffer).unwrap();

    far.set_read_timeout(Some(SILENCE)).unwrap();
    near.send_to(b"through", ("192.0.3.2", 7000)).unwrap();
    assert!(far.recv_from(&mut buffer).is_err(), "the machine has become a router");
    assert_eq!(card.end(Signal::TERM), 0);
}

/// Instances reach only one address of the machine: the address on the internet's side. The
/// internet carries no private addresses, unless the operator permits it.
#[test]
fn regression_instances_reach_neither_this_machines_networks_nor_its_services() {
    if !ready_with_nsenter() {
        return;
    }
    let [machine, outside] = [Machine::new("ln"), Machine::new("lo")];
    let (own, other) = (&machine.namespace, &outside.namespace);
    let end = |namespace, addresses| End { namespace, interface: "v1", addresses };
    let addresses = [["192.168.77.1/24", "192.0.2.1/24"], ["192.168.77.2/24", "192.0.2.2/24"]];
    plug(&[end(own, &addresses[0]), end(other, &addresses[1])], "");
    let file = machine.example("vpc.toml", |text| text);
    let (lan, neighbour) = ([192, 168, 77, 1], [192, 168, 77, 2]);
    let (public, far) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let _here = listen(own, 8080);
    let _there = listen(other, 8080);
    let mut card = machine.up(&[&file, "--internet"]);
    // The instance `app` is behind a NAT gateway, and `web` has a public address.
    for name in ["app", "web"] {
        let instance = machine.instance(name);
        for address in [OUTSIDE, far] {
            assert!(connect(&instance, address, 8080).is_ok(), "{name} to {address:?}");
        }
        for address in [lan, neighbour, public] {
            assert!(connect_in_vain(&instance, address, 8080).is_err(), "{name} to {address:?}");
        }
        let whole = format!("{}{name}", machine.prefix);
        assert!(machine.drops(&whole, "not carried outside") > 0, "{name}");
    }
    assert_eq!(card.end(Signal::TERM), 0);

    let mut card = machine.up(&[&file, "--internet", "--internet-private"]);
    let app = machine.instance("app");
    for address in [lan, neighbour, public, far] {
        assert!(connect(&app, address, 8080).is_ok(), "app to {address:?}");
    }
    assert_eq!(card.end(Signal::TERM), 0);
}
