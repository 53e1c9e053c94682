//! DPDK's virtio driver as a guest of a card: traffic in both directions, several pairs of rings,
//! and a restart of either end. Needs root and testpmd.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::dpdk::{clean, echo, has_testpmd};
use crate::support::machine::*;
use rustix::process::Signal;
use serde_json::Value;

/// Number of flows whose packets must be echoed.
const FLOWS: u16 = 24;
/// Maximum number of packets that are sent for each flow until one is echoed.
const TRIES: usize = 80;

/// Writes the example cloud, with a web server that also accepts echo packets. Returns its file.
fn cloud(machine: &Machine) -> String {
    machine.example("vpc.toml", |text| {
        text.replace("\"icmp from 10.0.0.0/16\"", "\"udp 7 from 10.0.0.0/16\"")
    })
}

/// Returns the status of the guest's network interface.
fn interface(machine: &Machine) -> Value {
    let name = format!("{}web", machine.prefix);
    let status = machine.json(&["card", "status", &name]);
    status["instances"][0]["interfaces"][0].clone()
}

fn mac(machine: &Machine) -> String {
    interface(machine)["mac"].as_str().unwrap().to_owned()
}

/// Waits until the driver accepts frames on `pairs` pairs of rings.
fn wait_for_pairs(machine: &Machine, log: &str, pairs: u64) {
    let began = Instant::now();
    loop {
        let at = interface(machine)["vhost_user"].clone();
        if at["running"] == (pairs > 0) && at["pairs"] == pairs {
            return;
        }
        let said = || fs::read_to_string(machine.path(log)).unwrap_or_default();
        assert!(began.elapsed() < PATIENCE, "{at} {}", said());
        thread::sleep(Duration::from_millis(30));
    }
}

/// Returns the number of flows of the instance `app` that the guest echoes.
fn echoed(machine: &Machine) -> u16 {
    within(&machine.instance("app"), || {
        let to = SocketAddr::from((WEB, 7));
        let sockets: Vec<UdpSocket> = (0..FLOWS)
            .map(|_| {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.connect(to).unwrap();
                socket.set_read_timeout(Some(SILENCE)).unwrap();
                socket
            })
            .collect();
        let mut count = 0;
        for (n, socket) in (0..).zip(&sockets) {
            let sent = vec![n; usize::from(n) * 40 + 1];
            // testpmd drops packets that arrive before it forwards.
            let answers = (0..TRIES).any(|_| {
                socket.send(&sent).unwrap();
                let mut said = [0; 2048];
                socket.recv(&mut said).is_ok_and(|bytes| said[..bytes] == sent)
            });
            count += u16::from(answers);
        }
        count
    })
}

#[test]
fn frames_pass_both_ways_and_either_end_may_start_anew() {
    if !ready_with_nsenter() || !has_testpmd() {
        return;
    }
    let machine = Machine::new("dpa");
    let (file, path) = (cloud(&machine), machine.path("web.sock"));
    let place = format!("{}web={}", machine.prefix, path.display());
    let words = [file.as_str(), "--vhost-user", &place];
    let mut card = machine.up(&words);
    let mac = mac(&machine);

    let mut guest = echo(&machine, "a", &path, &format!("queues=1,mac={mac}"));
    wait_for_pairs(&machine, "a.log", 1);
    assert_eq!(echoed(&machine), FLOWS);

    // The guest is killed. Another guest starts with more pairs of rings.
    guest.0.kill().unwrap();
    guest.0.wait().unwrap();
    clean(&machine, "a");
    wait_for_pairs(&machine, "a.log", 0);
    let mut guest = echo(&machine, "b", &path, &format!("queues=4,mac={mac}"));
    wait_for_pairs(&machine, "b.log", 4);
    assert_eq!(echoed(&machine), FLOWS);

    // The card restarts. The guest must also restart, because this driver does not connect a second
    // time.
    assert_eq!(card.end(Signal::TERM), 0);
    guest.0.kill().unwrap();
    guest.0.wait().unwrap();
    clean(&machine, "b");
    let _card = machine.up(&words);
    let mut guest = echo(&machine, "c", &path, &format!("queues=2,mac={mac}"));
    wait_for_pairs(&machine, "c.log", 2);
    assert_eq!(echoed(&machine), FLOWS);
    let drops = interface(&machine)["drops"].clone();
    assert_eq!(drops, serde_json::json!({}), "nothing was dropped");
    guest.end(Signal::KILL);
    clean(&machine, "c");
}

/// The guest listens at the socket, and the card connects to it.
#[test]
fn a_card_that_connects_finds_its_guest() {
    if !ready_with_nsenter() || !has_testpmd() {
        return;
    }
    let machine = Machine::new("dpb");
    let (file, path) = (cloud(&machine), machine.path("web.sock"));
    let place = format!("{}web={}", machine.prefix, path.display());
    let words = [file.as_str(), "--vhost-user-client", &place];
    let _card = machine.up(&words);
    let mac = mac(&machine);
    let mut guest = echo(&machine, "s", &path, &format!("queues=2,server=1,mac={mac}"));
    wait_for_pairs(&machine, "s.log", 2);
    assert_eq!(echoed(&machine), FLOWS);

    guest.end(Signal::KILL);
    clean(&machine, "s");
}
