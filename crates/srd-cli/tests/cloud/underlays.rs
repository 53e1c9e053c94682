//! Hosts and overlays that a card believes, and others that it does not. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use crate::support::machine::*;
use crate::support::pair::{Pair, Settings, must};

const NOBODY: u32 = 65_534;

/// A cloud on two hosts, whose instances take everything.
fn cloud(machine: &Machine) -> String {
    machine.two_hosts("'all from 10.0.0.0/16'")
}

/// Runs as a user without rights, in a namespace.
fn as_nobody<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    within(namespace, || {
        let (group, user) = (Gid::from_raw(NOBODY), Uid::from_raw(NOBODY));
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        work()
    })
}

/// A packet of UDP from the instance b to port 5000 of the instance a, in an envelope of b's host.
fn forged(from: u64, to: u64) -> Vec<u8> {
    let payload = b"forged";
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 1, 11, 10, 0, 1, 10];
    let length = u8::try_from(28 + payload.len()).unwrap();
    packet[3] = length;
    let sum: u32 = packet.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0x13, 0x88, 0x13, 0x88, 0, length - 20, 0, 0]);
    packet.extend(payload);
    let mut envelope = vec![9, 0x40, 8, 0, 0, 0, 1, 0, 0xff, 0x5d, 0x81, 8];
    envelope.resize(44, 0);
    envelope[24..32].copy_from_slice(&from.to_be_bytes());
    envelope[32..40].copy_from_slice(&to.to_be_bytes());
    [envelope, packet].concat()
}

/// The identifier of the one interface of a card's one instance.
fn interface(machine: &Machine) -> u64 {
    let status = machine.json(&["card", "status"]);
    let id = status["instances"][0]["interfaces"][0]["id"].as_str().unwrap().to_owned();
    u64::from_str_radix(id.trim_start_matches("eni-"), 16).unwrap()
}

/// While the card of a host does not run, a user of that host has the port that cards listen at,
/// and others: what leaves by them is a stranger's, and the card that starts says who is there.
#[test]
fn regression_a_user_of_a_host_without_a_card_does_not_speak_for_it() {
    if !ready_with_nsenter() {
        return;
    }
    let [alpha, beta] = [Machine::new("w"), Machine::new("x")];
    let file = cloud(&alpha);
    let (a, b) = (&alpha.namespace, &beta.namespace);
    must(&format!("link add v0 netns {a} mtu 1500 type veth peer name v0 netns {b} mtu 1500"));
    for (machine, address) in [(a, "198.18.0.1"), (b, "198.18.0.2")] {
        must(&format!("-n {machine} addr add {address}/24 dev v0"));
        must(&format!("-n {machine} link set v0 up"));
    }
    let words = |host, own, other: &'static str| {
        [&*file, "--plain", "--host", host, "--underlay", own, "--peer", other]
    };
    let of_beta = words("beta", "198.18.0.2", "alpha=198.18.0.1");
    let mut card = beta.up(&of_beta);
    let from = interface(&beta);
    assert_eq!(card.end(rustix::process::Signal::TERM), 0);
    let _alpha = alpha.up(&words("alpha", "198.18.0.1", "beta=198.18.0.2"));
    let forged = forged(from, interface(&alpha));
    let listener = within(&alpha.instance("a"), || UdpSocket::bind("10.0.1.10:5000").unwrap());
    listener.set_read_timeout(Some(SILENCE)).unwrap();
    let sockets: Vec<UdpSocket> = as_nobody(b, || {
        for port in [960, 1023] {
            let refused = UdpSocket::bind(("198.18.0.2", port)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        }
        let ports = [6081, 1024, 40_000];
        ports.map(|port| UdpSocket::bind(("198.18.0.2", port)).unwrap()).into()
    });
    for socket in &sockets {
        socket.send_to(&forged, "198.18.0.1:6081").unwrap();
    }
    let drops = || alpha.json(&["card", "status"])["drops"].clone();
    let strangers = || drops()["lost: a stranger's"].as_u64().unwrap_or(0);
    wait_until("packets of strangers", || strangers() == sockets.len() as u64);
    assert!(listener.recv(&mut [0; 100]).is_err(), "a guest gets what a user has forged");

    // The test would show it: root, which is believed, sends the same packet.
    let root = within(b, || UdpSocket::bind("198.18.0.2:1000").unwrap());
    root.send_to(&forged, "198.18.0.1:6081").unwrap();
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 100];
    assert_eq!(listener.recv(&mut buffer).unwrap(), 6, "{}", drops());

    let refused = beta.srd(&[&["card", "up"], &of_beta[..]].concat());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    let own = format!("process {} (", std::process::id());
    assert!(!refused.status.success() && said.contains(&own), "{said}");
    assert!(said.contains(&format!("of user {NOBODY} has it")), "{said}");
    // Ports that others have are left out, as long as one is there.
    drop(sockets);
    let mut card = beta.up(&of_beta);
    let echo = within(&alpha.instance("b"), || UdpSocket::bind("10.0.1.11:5000").unwrap());
    echo.send_to(b"from a card", "10.0.1.10:5000").unwrap();
    assert_eq!(listener.recv(&mut buffer).unwrap(), 11);
    assert_eq!(card.end(rustix::process::Signal::TERM), 0);
}

/// Envelopes leave by these ports between addresses of IPv6, and after a take-over, too.
#[test]
fn packets_cross_a_network_of_ipv6_and_go_on_by_the_next_process() {
    if !ready_with_nsenter() {
        return;
    }
    let [alpha, beta] = [Machine::new("y"), Machine::new("z")];
    let file = cloud(&alpha);
    let (a, b) = (&alpha.namespace, &beta.namespace);
    must(&format!("link add v0 netns {a} mtu 1500 type veth peer name v0 netns {b} mtu 1500"));
    for (machine, address) in [(a, "fd00::1"), (b, "fd00::2")] {
        must(&format!("-n {machine} addr add {address}/64 dev v0 nodad"));
        must(&format!("-n {machine} link set v0 up"));
    }
    let words = |host, own, other: &'static str| {
        [&*file, "--plain", "--host", host, "--underlay", own, "--peer", other]
    };
    let of_alpha = words("alpha", "fd00::1", "beta=fd00::2");
    let mut card = alpha.up(&of_alpha);
    let _beta = beta.up(&words("beta", "fd00::2", "alpha=fd00::1"));
    let [one, two] = [("a", "10.0.1.10:5000"), ("b", "10.0.1.11:5000")].map(|(of, at)| {
        let socket = within(&alpha.instance(of), || UdpSocket::bind(at).unwrap());
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        socket
    });
    let crosses = |what: &str| {
        wait_until(what, || {
            let _ = one.send_to(b"there", "10.0.1.11:5000");
            two.recv(&mut [0; 9]).is_ok()
        });
        wait_until(what, || {
            let _ = two.send_to(b"back", "10.0.1.10:5000");
            one.recv(&mut [0; 9]).is_ok()
        });
    };
    crosses("a packet there and back");
    let mut next = alpha.take_over(&mut card, &of_alpha);
    crosses("a packet by the next process");
    let drops = alpha.json(&["card", "status"])["drops"].clone();
    assert!(drops["lost: a stranger's"].is_null(), "{drops}");
    assert_eq!(next.end(rustix::process::Signal::TERM), 0);
}

/// A machine whose users may have all ports has none that say that root has sent.
#[test]
fn a_machine_without_privileged_ports_is_refused() {
    if !ready_with_nsenter() {
        return;
    }
    let mut pair = Pair::new("up");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        pair.start(end);
    }
    pair.wait_for_express();
    let set = |start: u16| {
        let setting = format!("net.ipv4.ip_unprivileged_port_start={start}");
        must(&format!("netns exec {} sysctl -qw {setting}", pair.names[0]));
    };
    let machine = Machine::at("u", &pair.names[0]);
    let file = cloud(&machine);
    let words = ["card", "up", &file, "--host", "alpha", "--underlay", "10.77.0.1", "--check"];
    set(1000);
    let refused = machine.srd(&words);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("ip_unprivileged_port_start"), "{said}");
    set(1024);
    let taken = machine.srd(&words);
    assert!(taken.status.success(), "{taken:#?}");
}

/// Devices that look like an overlay: of an `srd up` that does not encrypt, and of other programs.
#[test]
fn regression_only_an_srd_up_that_encrypts_is_an_overlay() {
    if !ready_with_nsenter() {
        return;
    }
    let mut pair = Pair::new("pl");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        let path = pair.path(format!("{end}.toml"));
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| match line {
            line if line.starts_with("private_key_file") => "protection = \"plain\"",
            line if line.starts_with("public_key") => "",
            line => line,
        });
        fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
        pair.start(end);
    }
    pair.wait_for_express();
    let machine = Machine::at("p", &pair.names[0]);
    let file = cloud(&machine);
    let check = |address: &str, more: &[&str]| {
        let words = ["card", "up", &file, "--host", "alpha", "--underlay", address, "--check"];
        let output = machine.srd(&[&words, more].concat());
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (taken, said) = check("10.77.0.1", &[]);
    assert!(!taken && said.contains("does not encrypt") && said.contains("--plain"), "{said}");
    let (taken, said) = check("10.77.0.1", &["--plain"]);
    assert!(taken, "{said}");
    let own = &pair.names[0];
    for (n, (mode, words)) in
        (1..).zip([("tun", "no `srd up` calls its own"), ("tap", "no overlay")])
    {
        let (name, address) = (format!("other{n}"), format!("192.0.2.{n}"));
        must(&format!("-n {own} tuntap add dev {name} mode {mode}"));
        must(&format!("-n {own} addr add {address}/32 dev {name}"));
        must(&format!("-n {own} link set {name} up"));
        let (taken, said) = check(&address, &[]);
        assert!(!taken && said.contains(words), "{mode}: {said}");
        let (taken, said) = check(&address, &["--plain"]);
        assert!(taken, "{mode}: {said}");
    }
}
