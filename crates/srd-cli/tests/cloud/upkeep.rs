//! Other programs of a machine change what a card has set up. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};

use crate::control::is_mounted;
use crate::privileges::{helper_of, tell};
use crate::support::machine::*;
use crate::support::pair::must;
use rustix::net::{AddressFamily, SocketType, bind, connect as connect_socket, socket};
use rustix::process::Signal;

/// Address of the machine that stands for the address of one of its network interfaces.
const PUBLIC: [u8; 4] = [192, 0, 2, 1];

fn log(machine: &Machine) -> String {
    fs::read_to_string(machine.path("up.log")).unwrap()
}

/// Runs `nft` on the machine.
fn nft(machine: &Machine, words: &[&str]) -> String {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", machine.namespace)).arg("nft").args(words);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// Returns a connection that a program of the machine opens from the address `own`.
fn connect_from(machine: &Machine, own: [u8; 4], to: [u8; 4], port: u16) -> TcpStream {
    within(&machine.namespace, || {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((own, 0))).unwrap();
        connect_socket(&socket, &SocketAddr::from((to, port))).unwrap();
        TcpStream::from(socket)
    })
}

/// A reload of a firewall removes all packet filter rules of a machine. Regression: after it,
/// services of the machine were open to instances, and nothing reported this.
#[test]
fn regression_a_flushed_ruleset_opens_no_service_of_this_machine() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("fl");
    must(&format!("-n {} addr add 192.0.2.1/24 dev lo", machine.namespace));
    let _service = listen(&machine.namespace, 8080);
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    let before = nft(&machine, &["list", "ruleset"]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let status = || machine.json(&["card", "status"]);
    let restored = || status()["rules_restored"].as_u64().unwrap_or(0);
    let is_closed = |when: &str| {
        for instance in [&web, &app] {
            assert!(connect(instance, OUTSIDE, 8080).is_ok(), "{instance} {when}");
            let connected = connect_in_vain(instance, PUBLIC, 8080);
            assert!(connected.is_err(), "{instance} to {PUBLIC:?} {when}");
        }
    };
    is_closed("at first");
    assert_eq!(restored(), 0);

    nft(&machine, &["flush", "ruleset"]);
    is_closed("without rules");
    wait_until("the rules again", || nft(&machine, &["list", "ruleset"]) == before);
    wait_until("the count of the status", || restored() == 1);
    let said = log(&machine);
    assert!(said.contains("another program has removed the card's packet rules"), "{said}");
    let shown = String::from_utf8(machine.srd(&["card", "status"]).stdout).unwrap();
    assert!(shown.contains("packet rules: put back 1 times"), "{shown}");
    // A rule that accepts everything is inserted before the card's rules.
    nft(&machine, &["insert", "rule", "ip", "srd_card", "in", "accept"]);
    wait_until("the rules again", || nft(&machine, &["list", "ruleset"]) == before);

    // While no helper can restore the rules, the services must be closed.
    tell(helper_of(card.0.id()), Signal::STOP);
    nft(&machine, &["flush", "ruleset"]);
    is_closed("without rules and helper");
    // The machine gets a new address.
    must(&format!("-n {} addr add 192.0.2.77/24 dev lo", machine.namespace));
    wait_until("the new address is closed", || {
        connect_in_vain(&web, [192, 0, 2, 77], 8080).is_err()
    });
    assert!(status()["drops"]["lost: to this machine itself"].as_u64() > Some(0));
    // A program of the machine that has chosen its own source address gets answers.
    let server = listen(&web, 443);
    let mut out = connect_from(&machine, PUBLIC, WEB_PUBLIC, 443);
    let (mut arrived, _) = server.accept().unwrap();
    assert!(passes(&mut out, &mut arrived) && passes(&mut arrived, &mut out));
    tell(helper_of(card.0.id()), Signal::CONT);
    wait_until("the rules again", || nft(&machine, &["list", "ruleset"]) == before);
    drop((out, arrived, server));
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(nft(&machine, &["list", "ruleset"]), "");
}

/// Returns the warnings of a card's status.
fn warnings(machine: &Machine) -> Vec<String> {
    let status = machine.json(&["card", "status"]);
    let all = status["warnings"].as_array().cloned().unwrap_or_default();
    all.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Waits until the status of a card contains a warning with `words`, both in JSON and in the text.
#[track_caller]
fn warns(machine: &Machine, words: &str) {
    wait_until(words, || warnings(machine).iter().any(|text| text.contains(words)));
    let shown = String::from_utf8(machine.srd(&["card", "status"]).stdout).unwrap();
    assert!(shown.contains("WARNING: ") && shown.contains(words), "{shown}");
}

/// Regression: after `ip link set ens5 down; up`, an instance lacked its default route and IPv6
/// address for ever.
#[test]
fn regression_apply_gives_a_device_its_routes_and_addresses_again() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("dn");
    let file = machine.cloud(
        "vpc.toml",
        "[vpc.main]
        cidr = ['10.0.0.0/16', 'fd00:77::/56']
        [subnet.s]
        cidr = '10.0.1.0/24'
        ipv6_cidr = 'fd00:77::/64'
        [group.g]
        ingress = ['all from 0.0.0.0/0']
        egress = ['all to 0.0.0.0/0']
        [instance.Pa]
        type = 'c7i.24xlarge'
        [interface.a]
        subnet = 's'
        address = ['10.0.1.10', 'fd00:77::10']
        groups = ['g']
        instance = 'Pa'
        [interface.b]
        subnet = 's'
        address = ['10.0.1.11']
        groups = ['g']
        instance = 'Pa'
        device_index = 1
        ",
    );
    let mut card = machine.up(&[&file]);
    let a = machine.instance("a");
    let facts = || {
        let shown = |words: &str| must(&format!("-n {a} {words}"));
        [
            shown("-o addr show scope global"),
            shown("route"),
            shown("-6 route show default"),
            shown("rule"),
            shown("route show table 10000"),
            shown("route show table 10001"),
        ]
    };
    let before = facts();
    assert!(before[1].contains("default dev ens5") && before[0].contains("fd00:77::10"));
    assert_eq!(warnings(&machine), Vec::<String>::new());
    for device in ["ens5", "ens6"] {
        must(&format!("-n {a} link set {device} down"));
        must(&format!("-n {a} link set {device} up"));
    }
    assert_ne!(facts(), before);
    warns(&machine, "has lost fd00:77::10/64, the default route");
    assert!(machine.srd(&["card", "apply", &file]).status.success());
    assert_eq!(facts(), before, "the command waits until all is there again");
    assert_eq!(warnings(&machine), Vec::<String>::new());
    // A route that root of the instance has chosen stays, and a device that is down stays down.
    must(&format!("-n {a} route replace default via 10.0.1.1 dev ens5 metric 7"));
    must(&format!("-n {a} route del default dev ens5 metric 0"));
    must(&format!("-n {a} link set ens6 down"));
    let chosen = facts();
    assert_eq!(warnings(&machine), Vec::<String>::new());
    assert!(machine.srd(&["card", "apply", &file]).status.success());
    std::thread::sleep(SILENCE);
    assert_eq!(facts(), chosen);
    assert_eq!(card.end(Signal::TERM), 0);
}

/// Regression: packets between instances and other machines stopped, and nothing reported the
/// reason.
#[test]
fn regression_forwarding_that_is_switched_off_is_named_and_apply_switches_it_on() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("fw");
    let file = machine.example("vpc.toml", |text| text);
    let sysctl = |value: &str| {
        let own = &machine.namespace;
        must(&format!("netns exec {own} sysctl -qw net.ipv4.ip_forward={value}"));
    };
    let forwards = || {
        let own = &machine.namespace;
        must(&format!("netns exec {own} cat /proc/sys/net/ipv4/ip_forward")).trim() == "1"
    };
    sysctl("0");
    let mut card = machine.up(&[&file, "--internet"]);
    assert!(forwards() && warnings(&machine).is_empty());
    sysctl("0");
    warns(&machine, "has switched net.ipv4.ip_forward off");
    assert!(log(&machine).contains("switched net.ipv4.ip_forward off"));
    assert!(warnings(&machine)[0].contains("`srd card apply FILE`"), "{:?}", warnings(&machine));
    assert!(machine.srd(&["card", "apply", &file]).status.success());
    wait_until("packets are forwarded", forwards);
    wait_until("no warning", || warnings(&machine).is_empty());
    assert_eq!(card.end(Signal::TERM), 0);
    assert!(!forwards());

    // If the machine was a router before the card started, the setting belongs to its
    // administrator, and the card leaves it unchanged.
    sysctl("1");
    let mut card = machine.up(&[&file, "--internet"]);
    sysctl("0");
    warns(&machine, "`sysctl -w net.ipv4.ip_forward=1` switches it on");
    assert!(!warnings(&machine)[0].contains("apply"), "{:?}", warnings(&machine));
    assert!(machine.srd(&["card", "apply", &file]).status.success());
    std::thread::sleep(SILENCE);
    assert!(!forwards());
    sysctl("1");
    wait_until("no warning", || warnings(&machine).is_empty());
    assert_eq!(card.end(Signal::TERM), 0);
}

/// The setting stayed, and the packet rules as well, so that the machine was a router from then on.
#[test]
fn regression_the_next_card_restores_forwarding_after_a_card_and_its_helper_were_killed() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("fk");
    let file = machine.example("vpc.toml", |text| text);
    let own = &machine.namespace;
    let sysctl = |value: &str| {
        must(&format!("netns exec {own} sysctl -qw net.ipv4.ip_forward={value}"));
    };
    let forwards = || must(&format!("netns exec {own} cat /proc/sys/net/ipv4/ip_forward"));
    for before in ["0", "1"] {
        sysctl(before);
        let mut card = machine.up(&[&file, "--internet"]);
        assert_eq!(forwards().trim(), "1");
        tell(helper_of(card.0.id()), Signal::KILL);
        card.end(Signal::KILL);
        assert_eq!(forwards().trim(), "1");
        // The next card does not use the internet's side.
        let mut card = machine.up(&[&file]);
        assert_eq!(forwards().trim(), before);
        assert!(!nft(&machine, &["list", "ruleset"]).contains("srd_card"));
        assert_eq!(card.end(Signal::TERM), 0);
    }
    // A card that runs keeps its settings while another one starts.
    sysctl("0");
    let mut card = machine.up(&[&file, "--internet"]);
    let empty = machine.cloud("empty.toml", "[vpc.other]\ncidr = [\"10.9.0.0/16\"]\n");
    let mut second = Command::new("nsenter");
    second.arg(format!("--net=/run/netns/{own}")).arg(SRD).args(["card", "up", &empty]);
    second.arg("--internet").arg("--socket").arg(machine.path("other.sock"));
    second.env("STATE_DIRECTORY", machine.path("state"));
    let Output { status, stderr, .. } = second.output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(!status.success() && said.contains("has the device srd-igw"), "{said}");
    assert!(said.contains(&format!("({})", card.0.id())), "{said}");
    assert_eq!(forwards().trim(), "1");
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(forwards().trim(), "0");
}

/// Regression: the name of an instance's namespace was removed for ever, and nothing reported it.
#[test]
fn regression_the_namespace_of_an_instance_that_was_deleted_is_named_and_comes_back() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("nd");
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let server = listen(&web, 443);
    let mut client = connect(&app, WEB, 443).unwrap();
    let (mut arrived, _) = server.accept().unwrap();
    must(&format!("netns del {web}"));
    warns(&machine, &format!("has deleted the namespace {web}"));
    assert!(passes(&mut client, &mut arrived), "programs go on");
    // A program that was to create the name was killed, and has left its file without a namespace.
    fs::write(format!("/run/netns/{web}"), "").unwrap();
    warns(&machine, &format!("has deleted the namespace {web}"));
    assert!(machine.srd(&["card", "apply", &file]).status.success());
    assert!(is_mounted(&web), "the command waits for the name");
    wait_until("no warning", || warnings(&machine).is_empty());
    // The namespace that has its name again is the same one as before.
    assert!(must(&format!("-n {web} addr show ens5")).contains("10.0.1.10"));
    assert!(passes(&mut client, &mut arrived));
    drop((client, arrived, server));
    // If another namespace has the name, this is reported, and that namespace is left unchanged.
    must(&format!("netns del {app}"));
    must(&format!("netns add {app}"));
    warns(&machine, &format!("the name {app} leads to another namespace"));
    let applied = machine.srd(&["card", "apply", &file]);
    let said = String::from_utf8(applied.stderr).unwrap();
    assert!(applied.status.success(), "{said}");
    assert!(said.contains(&format!("srd: warning: the name {app} leads to another")), "{said}");
    let json = machine.json(&["card", "apply", &file]);
    assert_eq!(json["warnings"].as_array().map(Vec::len), Some(1), "{json}");
    warns(&machine, "leads to another namespace");
    must(&format!("netns del {app}"));
    assert!(machine.srd(&["card", "apply", &file]).status.success());
    wait_until("no warning", || warnings(&machine).is_empty());
    assert!(must(&format!("-n {app} addr show ens5")).contains("10.0.2.10"));
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}
