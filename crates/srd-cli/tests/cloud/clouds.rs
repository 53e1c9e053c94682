//! Instances of one cloud on two machines, over a plain network and over `srd up`. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::machine::*;
use crate::support::pair::{Pair, Settings, must};

/// A cloud on two hosts, whose instances take connections to one port, and echoes.
fn two_hosts(machine: &Machine) -> String {
    machine.two_hosts("'tcp 5000 from 10.0.0.0/16', 'icmp from 10.0.0.0/16'")
}

/// A wire between two machines, with an address at each end.
fn wire(a: &str, b: &str) {
    must(&format!("link add v0 netns {a} mtu 1500 type veth peer name v0 netns {b} mtu 1500"));
    for (machine, address) in [(a, "198.18.0.1/24"), (b, "198.18.0.2/24")] {
        must(&format!("-n {machine} addr add {address} dev v0"));
        must(&format!("-n {machine} link set v0 up"));
    }
}

/// A megabyte of a pattern from one instance to another arrives byte for byte.
fn carries_a_megabyte(from: &str, to: &str, address: [u8; 4]) {
    let listener = listen(to, 5000);
    let mut client = connect(from, address, 5000).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let sent: Vec<u8> =
        (0..1_000_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let copy = sent.clone();
    let writer = thread::spawn(move || client.write_all(&copy));
    let mut received = Vec::new();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    server.read_to_end(&mut received).unwrap();
    writer.join().unwrap().unwrap();
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
}

#[test]
fn instances_of_two_hosts_meet_over_a_plain_network_if_it_is_asked_for() {
    if !ready_with_nsenter() {
        return;
    }
    let [alpha, beta] = [Machine::new("h"), Machine::new("i")];
    let file = two_hosts(&alpha);
    let of_beta = two_hosts(&beta);
    let text = fs::read_to_string(&file).unwrap();
    let prefix = |m: &Machine, n: &str| format!("{}{n}", m.prefix);
    // Both files name the instances alike.
    fs::write(&of_beta, &text).unwrap();
    let (a, b) = (&alpha.namespace, &beta.namespace);
    wire(a, b);
    let words =
        |host, own, other: &'static str| ["--host", host, "--underlay", own, "--peer", other];
    let of_alpha = words("alpha", "198.18.0.1", "beta=198.18.0.2");
    let refused = alpha.srd(&[&["card", "up", &file][..], &of_alpha].concat());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no overlay"), "{refused:#?}");
    let _alpha = alpha.up(&[&[&*file, "--plain"][..], &of_alpha].concat());
    let of_beta_words = words("beta", "198.18.0.2", "alpha=198.18.0.1");
    let _beta = beta.up(&[&[&*of_beta, "--plain"][..], &of_beta_words].concat());
    let instance = |name| format!("srd-i-{}", prefix(&alpha, name));
    carries_a_megabyte(&instance("a"), &instance("b"), [10, 0, 1, 11]);
    carries_a_megabyte(&instance("b"), &instance("a"), [10, 0, 1, 10]);
    let refused = connect_in_vain(&instance("a"), [10, 0, 1, 11], 80);
    assert!(refused.is_err(), "no rule allows port 80");
    let name = prefix(&alpha, "b");
    wait_until("the receiver's host refuses", || beta.drops(&name, "security groups in") > 0);
    // Somebody else on the same wire speaks for the instance on alpha.
    must(&format!("-n {a} addr add 198.18.0.77/24 dev v0"));
    let forged = within(a, || std::net::UdpSocket::bind(("198.18.0.77", 6081)).unwrap());
    forged.send_to(&[0; 100], ("198.18.0.2", 6081)).unwrap();
    // A program on alpha, which does not have the port of alpha's card, does so too.
    let forged = within(a, || std::net::UdpSocket::bind(("198.18.0.1", 0)).unwrap());
    forged.send_to(&[0; 100], ("198.18.0.2", 6081)).unwrap();
    let lost = || beta.json(&["card", "status"])["drops"]["lost: a stranger's"].clone();
    wait_until("packets of strangers", || lost() == 2);
}

/// A card that ends says nothing to others: packets without an answer show it, in the status and on
/// standard error, and a card that is there again shows, too.
#[test]
fn regression_a_host_whose_card_has_ended_shows_as_silent_on_the_other() {
    if !ready_with_nsenter() {
        return;
    }
    let [alpha, beta] = [Machine::new("s"), Machine::new("t")];
    let file = two_hosts(&alpha);
    wire(&alpha.namespace, &beta.namespace);
    let words = |host, own, other: &'static str| {
        [&*file, "--plain", "--host", host, "--underlay", own, "--peer", other]
    };
    let mut of_alpha = alpha.up(&words("alpha", "198.18.0.1", "beta=198.18.0.2"));
    let of_beta = words("beta", "198.18.0.2", "alpha=198.18.0.1");
    let mut card = beta.up(&of_beta);
    let host = || alpha.json(&["card", "status"])["hosts"][0].clone();
    let first = host();
    assert!(first["name"] == "beta" && first["address"] == "198.18.0.2", "{first}");
    assert!(first["heard_s"].is_null() && first["silent"] == false, "{first}");
    let [a, b] = ["a", "b"].map(|name| alpha.instance(name));
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
    let heard = host();
    for way in ["sent", "received"] {
        assert!(heard[format!("{way}_packets")].as_u64().unwrap() > 2, "{heard}");
    }
    assert!(heard["heard_s"].is_f64() && heard["silent"] == false, "{heard}");
    assert_eq!(card.end(rustix::process::Signal::TERM), 0);

    let socket = within(&a, || std::net::UdpSocket::bind(("10.0.1.10", 0)).unwrap());
    let until = |silent: bool| {
        let began = Instant::now();
        loop {
            let _ = socket.send_to(b"?", ("10.0.1.11", 5000));
            let now = host();
            if now["silent"] == silent {
                return now;
            }
            assert!(began.elapsed() < PATIENCE, "{now}");
            thread::sleep(Duration::from_millis(100));
        }
    };
    let silent = until(true);
    assert!(silent["unanswered_s"].as_f64().unwrap() >= 5.0, "{silent}");
    assert!(silent["unanswered_packets"].as_u64().unwrap() > 2, "{silent}");
    let words = String::from_utf8(alpha.srd(&["card", "status"]).stdout).unwrap();
    assert!(words.contains("host beta at 198.18.0.2") && words.contains("SILENT"), "{words}");

    let said = |words: &str| {
        let began = Instant::now();
        loop {
            let text = fs::read_to_string(alpha.path("up.log")).unwrap();
            if text.contains(words) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{text}");
            thread::sleep(Duration::from_millis(50));
        }
    };
    said("warning: host beta at 198.18.0.2 is silent");

    let _card = beta.up(&of_beta);
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
    assert_eq!(host()["silent"], false);
    said("host beta at 198.18.0.2 is heard again");
    assert_eq!(of_alpha.end(rustix::process::Signal::TERM), 0);
}

/// A card has the tables of its own interfaces, and asks for others. Of changes it hears what
/// concerns it, and a guest that tries all addresses is answered as far as it may ask. // V15, V16
#[test]
fn a_card_asks_for_what_its_packets_need_and_follows_changes() {
    if !ready_with_nsenter() {
        return;
    }
    let [alpha, beta] = [Machine::new("k"), Machine::new("l")];
    let file = two_hosts(&alpha);
    wire(&alpha.namespace, &beta.namespace);
    let words = |host, own, other: &'static str| {
        [&*file, "--plain", "--host", host, "--underlay", own, "--peer", other]
    };
    let _alpha = alpha.up(&words("alpha", "198.18.0.1", "beta=198.18.0.2"));
    let _beta = beta.up(&words("beta", "198.18.0.2", "alpha=198.18.0.1"));
    let [a, b] = ["a", "b"].map(|name| alpha.instance(name));
    let tables = |machine: &Machine| machine.json(&["card", "status"])["tables"].clone();
    let before = tables(&alpha);
    assert!(before["interfaces"] == 1 && before["mapped"] == 1, "{before}");
    assert!(before["answers"] == 0 && before["asked"] == 0, "{before}");
    carries_a_megabyte(&a, &b, [10, 0, 1, 11]);
    for machine in [&alpha, &beta] {
        // Nothing is on the way to the directory, which has a thread of its own.
        let is_answered = |tables: &Value| tables["asked"] == tables["answered"];
        wait_until("answers to all questions", || is_answered(&tables(machine)));
        let tables = tables(machine);
        assert_eq!(tables["mapped"], 1, "{tables}");
        assert!((1..=3).contains(&tables["answers"].as_u64().unwrap()), "{tables}");
    }
    let of_alpha = tables(&alpha);
    assert!(before["bytes"].as_u64() < of_alpha["bytes"].as_u64(), "{before} {of_alpha}");

    // A member is added to a group that a rule of the other host names.
    let listener = listen(&b, 80);
    let text = fs::read_to_string(&file).unwrap();
    let rule = "ingress = [\"tcp 5000";
    let text = text.replace(rule, "ingress = [\"tcp 80 from group m\", \"tcp 5000");
    let text = text.replace("[group.g]", "[group.m]\n[group.g]");
    let apply = |text: &str| {
        fs::write(&file, text).unwrap();
        for machine in [&alpha, &beta] {
            let applied = machine.srd(&["card", "apply", &file]);
            assert!(applied.status.success(), "{applied:#?}");
        }
    };
    apply(&text);
    assert!(connect_in_vain(&a, [10, 0, 1, 11], 80).is_err(), "the group has no member yet");
    assert_eq!(tables(&beta)["members"], 0);
    apply(&text.replacen("groups = [\"g\"]", "groups = [\"g\", \"m\"]", 1));
    assert_eq!(tables(&beta)["members"], 1);
    connect(&a, [10, 0, 1, 11], 80).unwrap();
    listener.accept().unwrap();

    // A guest tries all addresses.
    let asked = tables(&alpha)["asked"].as_u64().unwrap();
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

/// The overlay of `srd up` between two machines carries the cloud: encrypted, by SRD, over all
/// paths.
#[test]
fn instances_of_two_hosts_meet_over_srd() {
    if !ready_with_nsenter() {
        return;
    }
    let mut pair = Pair::new("vpc");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        pair.start(end);
    }
    pair.wait_for_express();
    let [alpha, beta] = [0, 1].map(|end| Machine::at("o", &pair.names[end]));
    let file = two_hosts(&alpha);
    let _alpha = alpha.up(&[
        &file,
        "--host",
        "alpha",
        "--underlay",
        "10.77.0.1",
        "--peer",
        "beta=10.77.0.2",
    ]);
    let _beta =
        beta.up(&[&file, "--host", "beta", "--underlay", "10.77.0.2", "--peer", "alpha=10.77.0.1"]);
    let before = pair.counter(0, "ena_srd_tx_pkts");
    // A daemon that the machine does not let answer for long has none ride SRD for a while.
    wait_until("packets that ride SRD", || {
        carries_a_megabyte(&alpha.instance("a"), &alpha.instance("b"), [10, 0, 1, 11]);
        pair.counter(0, "ena_srd_tx_pkts") > before + 100
    });
}

/// Instances reach the internet through this machine, and nothing else that it is: they do not
/// speak to cards of other hosts in its name, and strangers are not routed.
#[test]
fn regression_the_internets_side_is_no_way_to_other_cards_and_no_router() {
    if !ready_with_nsenter() {
        return;
    }
    let [machine, outside, beyond] = [Machine::new("e"), Machine::new("f"), Machine::new("g")];
    let own = &machine.namespace;
    for (number, other) in (2..).zip([&outside.namespace, &beyond.namespace]) {
        let name = format!("v{number}");
        must(&format!("link add {name} netns {own} type veth peer name v0 netns {other}"));
        must(&format!("-n {own} addr add 192.0.{number}.1/24 dev {name}"));
        must(&format!("-n {own} link set {name} up"));
        must(&format!("-n {other} addr add 192.0.{number}.2/24 dev v0"));
        must(&format!("-n {other} link set v0 up"));
        must(&format!("-n {other} route add default via 192.0.{number}.1"));
    }
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    let bind = |of: &str, port: u16| {
        let socket = within(of, || std::net::UdpSocket::bind(("0.0.0.0", port)).unwrap());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let (out, card_of_other) = (&outside.namespace, 6081);
    let [card_there, other_there] = [card_of_other, 7000].map(|port| bind(out, port));
    let far = bind(&beyond.namespace, 7000);
    let guest = bind(&machine.instance("web"), card_of_other);
    for port in [card_of_other, 7000] {
        guest.send_to(b"from a guest", ("192.0.2.2", port)).unwrap();
    }
    let mut buffer = [0; 100];
    let (_, from) = other_there.recv_from(&mut buffer).unwrap();
    assert!(from.port() != card_of_other, "it would pass for this machine's card: {from}");
    for socket in [&card_there, &far] {
        socket.set_read_timeout(Some(SILENCE)).unwrap();
    }
    assert!(card_there.recv_from(&mut buffer).is_err(), "a guest speaks to another card");

    other_there.send_to(b"through", ("192.0.3.2", 7000)).unwrap();
    assert!(far.recv_from(&mut buffer).is_err(), "the machine has become a router");
    assert_eq!(card.end(rustix::process::Signal::TERM), 0);
}

/// Of this machine instances reach its address on the internet's side, and no other; the internet
/// carries no private addresses, unless an operator says so.
#[test]
fn regression_instances_reach_neither_this_machines_networks_nor_its_services() {
    if !ready_with_nsenter() {
        return;
    }
    let [machine, outside] = [Machine::new("ln"), Machine::new("lo")];
    let (own, other) = (&machine.namespace, &outside.namespace);
    must(&format!("link add v1 netns {own} type veth peer name v1 netns {other}"));
    for (of, last) in [(own, 1), (other, 2)] {
        for net in ["192.168.77", "192.0.2"] {
            must(&format!("-n {of} addr add {net}.{last}/24 dev v1"));
        }
        must(&format!("-n {of} link set v1 up"));
    }
    let file = machine.example("vpc.toml", |text| text);
    let (lan, neighbour) = ([192, 168, 77, 1], [192, 168, 77, 2]);
    let (public, far) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let _here = listen(own, 8080);
    let _there = listen(other, 8080);
    let mut card = machine.up(&[&file, "--internet"]);
    // One is behind a NAT gateway, the other has a public address.
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
    assert_eq!(card.end(rustix::process::Signal::TERM), 0);

    let mut card = machine.up(&[&file, "--internet", "--internet-private"]);
    let app = machine.instance("app");
    for address in [lan, neighbour, public, far] {
        assert!(connect(&app, address, 8080).is_ok(), "app to {address:?}");
    }
    assert_eq!(card.end(rustix::process::Signal::TERM), 0);
}
