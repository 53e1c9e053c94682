//! A host authenticates the packets of its instances with its key. No other program can send
//! packets that are accepted as those of an instance, whatever address, port and bytes it uses.
//! Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::net::UdpSocket;
use std::time::Instant;

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, socket_with};
use rustix::process::{Gid, Signal, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use crate::support::hosts::{Hosts, PORT};
use crate::support::machine::*;

const NOBODY: u32 = 65_534;
/// Bytes of an IPv4 header and a UDP header.
const HEADER_BYTES: usize = 28;
/// Payload that only the instance b sends.
const MARK: &[u8] = b"from the instance b";

/// Runs `work` as a user without rights, on a thread in a namespace.
fn as_nobody<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    within(namespace, || {
        let (group, user) = (Gid::from_raw(NOBODY), Uid::from_raw(NOBODY));
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        work()
    })
}

/// Writes a cloud on two hosts, whose instances accept all packets from each other. `lines` are
/// added to both interfaces. Returns its file.
fn cloud(hosts: &Hosts, name: &str, lines: &str) -> String {
    hosts.machines[0].two_hosts_with(name, "'all from 10.0.0.0/16'", [lines, lines])
}

/// Returns the UDP packets that a host receives during `work`, as an attacker on the path could
/// capture them: the destination port and the payload of each.
fn overheard(namespace: &str, mut work: impl FnMut()) -> Vec<(u16, Vec<u8>)> {
    let flags = SocketFlags::NONBLOCK;
    let raw = within(namespace, || {
        socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::UDP)).unwrap()
    });
    work();
    let (mut all, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok((read, _)) = rustix::net::recv(&raw, &mut buffer[..], RecvFlags::empty()) {
        let port = u16::from_be_bytes([buffer[22], buffer[23]]);
        all.push((port, buffer[HEADER_BYTES..read].to_vec()));
    }
    all
}

/// Regression: if a host's key was not the key in the file of the other host, neither the log nor
/// the status of either host reported it.
#[test]
fn regression_a_wrong_key_is_named_at_both_ends() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("kw", 1500);
    hosts.configure(&cloud(&hosts, "kw.toml", ""), "");
    // The first host's file has a wrong public key for the second host.
    let genkey = std::process::Command::new(SRD).arg("genkey").output().unwrap().stdout;
    let path = hosts.machines[0].path("other.key");
    fs::write(&path, genkey).unwrap();
    let mut pubkey = std::process::Command::new(SRD);
    let pubkey = pubkey.arg("pubkey").stdin(fs::File::open(path).unwrap()).output().unwrap();
    let other = String::from_utf8(pubkey.stdout).unwrap().trim().to_owned();
    let mut right = String::new();
    let text = fs::read_to_string(hosts.config(0)).unwrap();
    for line in text.lines().filter(|line| line.starts_with("public_key")) {
        right = line.split('"').nth(1).unwrap().to_owned();
    }
    hosts.edit(0, |text| text.replace(&right, &other));
    let _cards = [hosts.up(0), hosts.up(1)];
    let problem = |end: usize| hosts.other(end)["problem"].as_str().unwrap_or("").to_owned();
    let log = |end: usize| fs::read_to_string(hosts.machines[end].path("up.log")).unwrap();
    let refused = [
        format!("handshake from beta (198.18.0.2:{PORT}) refused: its key {right} is not the one"),
        format!("handshake from alpha (198.18.0.1:{PORT}) refused: it is for another key"),
    ];
    for (end, text) in refused.iter().enumerate() {
        wait_until("the status has it", || problem(end).contains(text));
        wait_until("the log has it", || log(end).contains(text));
        let shown = hosts.machines[end].srd(&["card", "status"]).stdout;
        assert!(String::from_utf8(shown).unwrap().contains(text));
    }
    // The log has few lines about the problem, even if it lasts for a long time.
    std::thread::sleep(SILENCE);
    assert_eq!(log(0).matches(&refused[0]).count(), 1);
}

/// Returns packets that a program without a key can send: the captured packets, the same packets
/// with changed bits, and bytes that begin like packets of every kind.
fn forged(overheard: &[(u16, Vec<u8>)]) -> Vec<(u16, Vec<u8>)> {
    let mut all = overheard.to_vec();
    for (number, (port, bytes)) in overheard.iter().enumerate() {
        let mut other = bytes.clone();
        let at = number * 7 % other.len();
        other[at] ^= 1 << (number % 8);
        all.push((*port, other));
    }
    for kind in 0..=u8::MAX {
        let length = 16 + usize::from(kind) * 5;
        let bytes = (0..length).map(|at| kind.wrapping_mul(at.to_le_bytes()[0] ^ 1)).collect();
        all.push((PORT + u16::from(kind) % 64, bytes));
        all.push((PORT, vec![kind; length]));
    }
    all
}

/// Observes the packets that the instance a receives.
struct Watch<'a> {
    listener: UdpSocket,
    hosts: &'a Hosts,
}

impl<'a> Watch<'a> {
    fn new(hosts: &'a Hosts) -> Self {
        let listener = within(&hosts.instance("a"), || UdpSocket::bind("10.0.1.10:5000").unwrap());
        Self { listener, hosts }
    }

    /// Waits until a packet of the instance b has arrived at the instance a.
    fn hears_its_peer(&self) {
        let echo = within(&self.hosts.instance("b"), || UdpSocket::bind("10.0.1.11:5000").unwrap());
        self.listener.set_read_timeout(Some(SILENCE)).unwrap();
        let mut buffer = [0; 100];
        wait_until("a packet of the other instance", || {
            let _ = echo.send_to(MARK, "10.0.1.10:5000");
            self.listener.recv(&mut buffer).is_ok_and(|read| buffer[..read] == *MARK)
        });
        // Further packets that were sent in the meantime are skipped.
        while self.listener.recv(&mut buffer).is_ok() {}
    }

    /// Checks that no packet arrives at the instance a during `work`, nor shortly after it.
    #[track_caller]
    fn hears_nothing(&self, what: &str, work: impl FnOnce()) {
        let name = format!("{}a", self.hosts.machines[0].prefix);
        let facts = || self.hosts.machines[0].json(&["card", "status", &name]);
        let of = |status: &serde_json::Value| {
            let interface = &status["instances"][0]["interfaces"][0];
            let counters = interface["counters"].as_array().unwrap().clone();
            let received = counters.into_iter().find(|of| of[0] == "rx_packets");
            (received, status["hosts"][0]["received_frames"].clone())
        };
        let before = facts();
        work();
        self.listener.set_read_timeout(Some(SILENCE)).unwrap();
        let came = self.listener.recv(&mut [0; 100]);
        assert!(came.is_err(), "{what}: the instance gets {came:?} bytes");
        let after = facts();
        assert_eq!(of(&before), of(&after), "{what}: {before} {after}");
    }
}

/// While the card of a host runs, restarts, or is down, a user of that host has its ports, and
/// packets of the card that were captured. Another program on the host runs a card of its own, with
/// another key or without a key. No packet of these programs reaches an instance of the other host.
#[test]
fn no_program_of_a_host_but_its_card_speaks_for_its_instances() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("ky", 1500);
    let file = cloud(&hosts, "two.toml", "");
    hosts.configure(&file, "");
    let [_alpha, mut beta] = hosts.both_up();
    let watch = Watch::new(&hosts);
    let [a, b] = hosts.machines.each_ref().map(|machine| machine.namespace.clone());
    let packets = overheard(&a, || watch.hears_its_peer());
    assert!(packets.len() > 3, "{packets:?}");
    let packets = forged(&packets);
    let send = |from: &UdpSocket| {
        for (port, bytes) in &packets {
            let _ = from.send_to(bytes, ("198.18.0.1", *port));
        }
    };

    // The card of beta runs. A user of beta's machine has another port of its address, and a user
    // of alpha's machine has a port there.
    let others: Vec<UdpSocket> = [&b, &a]
        .into_iter()
        .zip(["198.18.0.2:0", "198.18.0.1:0"])
        .map(|(machine, at)| as_nobody(machine, || UdpSocket::bind(at).unwrap()))
        .collect();
    watch.hears_nothing("a user beside the card", || others.iter().for_each(send));

    // The card of beta restarts. Each run of a card has another epoch.
    assert_eq!(beta.end(Signal::KILL), -1);
    watch.hears_nothing("a user beside a killed card", || others.iter().for_each(send));
    let mut beta = hosts.up(1);
    watch.hears_nothing("a user beside a restarted card", || others.iter().for_each(send));
    watch.hears_its_peer();

    // The card of beta is down, and a user of its machine has all of its ports.
    assert_eq!(beta.end(Signal::TERM), 0);
    wait_until("the end of the session", || hosts.other(0)["up"] == false);
    let own: Vec<UdpSocket> = as_nobody(&b, || {
        let ports = PORT..PORT + 64;
        ports.map(|port| UdpSocket::bind(("198.18.0.2", port)).unwrap()).collect()
    });
    watch.hears_nothing("a user in the place of the card", || own.iter().for_each(send));
    assert_eq!(hosts.other(0)["up"], false);
    // The card reports that it cannot start, because its ports are in use.
    let refused = hosts.machines[1].srd(&["card", "up", "-c", &hosts.config(1)]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("cannot listen at 198.18.0.2:"), "{said}");
    drop(own);

    // A card with another key, and a card without a key, run in place of beta's card.
    let key = fs::read(hosts.machines[1].path("key")).unwrap();
    let written = fs::read_to_string(hosts.config(1)).unwrap();
    let made = std::process::Command::new(SRD).arg("genkey").output().unwrap();
    fs::write(hosts.machines[1].path("key"), made.stdout).unwrap();
    let speaks = |what: &str| {
        let mut card = hosts.up(1);
        let socket = within(&hosts.instance("b"), || UdpSocket::bind("10.0.1.11:5000").unwrap());
        watch.hears_nothing(what, || {
            let began = Instant::now();
            while began.elapsed() < SILENCE * 2 {
                let _ = socket.send_to(b"of another card", "10.0.1.10:5000");
                std::thread::sleep(SILENCE / 20);
            }
        });
        assert!([0, 1].iter().all(|end| hosts.other(*end)["up"] == false), "{what}");
        assert_eq!(card.end(Signal::TERM), 0);
    };
    speaks("a card with another key");
    hosts.remove_keys(1);
    speaks("a card without a key");

    // With the right key again, packets of the card arrive.
    fs::write(hosts.machines[1].path("key"), key).unwrap();
    fs::write(hosts.config(1), written).unwrap();
    let _beta = hosts.up(1);
    watch.hears_its_peer();
}

/// The session identifies the host that has sent a packet, and the host may send only for its own
/// interfaces. // V6
#[test]
fn a_host_is_believed_about_its_own_instances_only() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("kz", 1500);
    let file = cloud(&hosts, "two.toml", "");
    hosts.configure(&file, "");
    let [_alpha, mut beta] = hosts.both_up();
    let watch = Watch::new(&hosts);
    watch.hears_its_peer();
    // In alpha's file, the instance b is on a third host, so packets of b from beta must be
    // refused.
    let text = fs::read_to_string(&file).unwrap();
    let moved = hosts.machines[0].path("moved.toml").to_str().unwrap().to_owned();
    fs::write(&moved, text.replace("host = \"beta\"", "host = \"gamma\"")).unwrap();
    let applied = hosts.machines[0].srd(&["card", "apply", &moved]);
    assert!(applied.status.success(), "{applied:#?}");
    let socket = within(&hosts.instance("b"), || UdpSocket::bind("10.0.1.11:5000").unwrap());
    socket.send_to(MARK, "10.0.1.10:5000").unwrap();
    let drops = || hosts.machines[0].json(&["card", "status"]).to_string();
    wait_until("a packet that is not believed", || drops().contains("not its host"));
    watch.listener.set_read_timeout(Some(SILENCE)).unwrap();
    assert!(watch.listener.recv(&mut [0; 100]).is_err());
    assert_eq!(beta.end(Signal::TERM), 0);
}

/// Hosts on a trusted network need no keys.
#[test]
fn hosts_that_trust_the_network_need_no_keys_and_say_so() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("kp", 1500);
    let file = cloud(&hosts, "two.toml", "");
    hosts.configure(&file, "");
    for end in [0, 1] {
        hosts.remove_keys(end);
    }
    let checked = hosts.machines[0].srd(&["card", "up", "-c", &hosts.config(0), "--check"]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success() && said.contains("neither encrypted nor"), "{checked:#?}");
    let _cards = hosts.both_up();
    Watch::new(&hosts).hears_its_peer();
}

/// Packets between two hosts with IPv6 addresses, also after another process has taken over a card.
#[test]
fn packets_cross_a_network_of_ipv6_and_go_on_by_the_next_process() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::between("k6", 1500, ["fd00::1", "fd00::2"], 64);
    let file = cloud(&hosts, "two.toml", "");
    hosts.configure(&file, "");
    let [mut alpha, _beta] = hosts.both_up();
    let watch = Watch::new(&hosts);
    watch.hears_its_peer();
    let mut next = hosts.take_over(0, &mut alpha);
    watch.hears_its_peer();
    assert_eq!(next.end(Signal::TERM), 0);
}
