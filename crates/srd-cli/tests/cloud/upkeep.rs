//! What other programs of a machine change of what a card has set up. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use crate::privileges::{helper_of, tell};
use crate::support::machine::*;
use crate::support::pair::must;
use rustix::net::{AddressFamily, SocketType, bind, connect as connect_socket, socket};
use rustix::process::Signal;

/// An address of the machine, as one of its network interfaces would have it.
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

/// A connection of a program of the machine that has chosen its own address.
fn connect_from(machine: &Machine, own: [u8; 4], to: [u8; 4], port: u16) -> TcpStream {
    within(&machine.namespace, || {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((own, 0))).unwrap();
        connect_socket(&socket, &SocketAddr::from((to, port))).unwrap();
        TcpStream::from(socket)
    })
}

/// All packet rules of a machine go at each reload of a firewall. The services of the machine used
/// to be open to instances from then on, and nothing said so.
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
    // A rule that lets all in before ours.
    nft(&machine, &["insert", "rule", "ip", "srd_card", "in", "accept"]);
    wait_until("the rules again", || nft(&machine, &["list", "ruleset"]) == before);

    // Nothing puts rules back: it is closed without them.
    tell(helper_of(card.0.id()), Signal::STOP);
    nft(&machine, &["flush", "ruleset"]);
    is_closed("without rules and helper");
    // Another address of the machine, from now on.
    must(&format!("-n {} addr add 192.0.2.77/24 dev lo", machine.namespace));
    wait_until("the new address is closed", || {
        connect_in_vain(&web, [192, 0, 2, 77], 8080).is_err()
    });
    assert!(status()["drops"]["lost: to this machine itself"].as_u64() > Some(0));
    // A program of the machine is answered at the address that it has chosen.
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
