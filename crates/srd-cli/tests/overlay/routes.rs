//! Changes that `srd up` makes to a machine's routes, and that it must undo at its end. Two
//! namespaces are connected by a router. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::pair::{ip, must, ready};
use crate::support::routed::{Routed, in_parallel, must_run, signal};

/// Setups of a machine before a daemon starts: a description, and arguments of `ip` that create the
/// setup. Some setups have routes to the daemon's own prefixes, and some use the daemon's numbers
/// of tables and rules.
const SETUPS: [(&str, &[&str]); 20] = [
    ("as it is", &[]),
    ("the peer's prefix is routed", &["route add 203.0.113.0/24 via 192.0.2.1"]),
    ("a host of the peer's is routed", &["route add 203.0.113.9/32 via 192.0.2.1"]),
    ("a shorter prefix is routed", &["route add 203.0.0.0/16 via 192.0.2.1"]),
    ("two default routes", &["route add default via 192.0.2.2 metric 50"]),
    ("no default routes", &["route del default", "route add 198.51.100.0/24 via 192.0.2.1"]),
    ("the overlay is routed", &["route add 10.78.0.0/24 via 192.0.2.1"]),
    ("a shorter overlay is routed", &["route add 10.0.0.0/8 via 192.0.2.1"]),
    (
        "blackholes around",
        &[
            "route add blackhole 10.0.0.0/8",
            "route add blackhole 203.0.0.0/16",
            "-6 route add blackhole fd00::/8",
        ],
    ),
    (
        "unreachable and prohibited",
        &["route add unreachable 203.0.113.128/25", "route add prohibit 192.168.0.0/16"],
    ),
    ("multipath", &["route add 203.0.113.0/24 nexthop via 192.0.2.1 nexthop via 192.0.2.2"]),
    (
        "a rule by source",
        &["route add default via 192.0.2.1 table 100", "rule add from 192.0.2.10 lookup 100"],
    ),
    (
        "a rule by mark, before and after ours",
        &[
            "route add default via 192.0.2.1 table 100",
            "rule add fwmark 9 lookup 100 pref 100",
            "rule add fwmark 10 lookup 100 pref 32765",
            "rule add to 203.0.113.0/24 fwmark 11 lookup 100 pref 7471",
        ],
    ),
    ("rules that suppress", &["rule add lookup main suppress_prefixlength 0 pref 5000"]),
    ("rules that refuse", &["rule add from 192.0.2.77 unreachable pref 7473"]),
    (
        "a neighbouring table",
        &[
            "route add 203.0.113.0/24 via 192.0.2.1 table 7472",
            "rule add fwmark 7 lookup 7472 pref 7472",
        ],
    ),
    (
        "another protocol's routes",
        &[
            "route add 203.0.113.0/24 via 192.0.2.1 proto bird metric 20",
            "route add 203.0.113.0/24 via 192.0.2.2 proto 174 metric 30",
        ],
    ),
    (
        "IPv6 routes",
        &[
            "-6 route add fd79::/48 via 2001:db8:a::1",
            "-6 route add fd78::/64 via 2001:db8:a::1",
            "-6 route add unreachable fd00::/8 metric 2000",
        ],
    ),
    (
        "IPv6 rules",
        &[
            "-6 route add default via 2001:db8:a::1 table 100",
            "-6 rule add from 2001:db8:a::10 lookup 100",
            "-6 rule add fwmark 9 lookup 100 pref 7472",
        ],
    ),
    (
        "a second card",
        &[
            "link add w0 type veth peer name w1",
            "link set w0 up",
            "link set w1 up",
            "addr add 172.16.5.1/24 dev w0",
            "route add default via 172.16.5.2 metric 500",
            "rule add from 172.16.5.1 lookup 101",
            "route add default via 172.16.5.2 table 101",
        ],
    ),
];

fn prepare(tag: &str, words: &[&str]) -> Routed {
    let mut net = Routed::new(tag);
    for word in words {
        must(&format!("-n {} {word}", net.a));
    }
    if words.contains(&"link set w1 up") {
        ["w0", "w1"].into_iter().for_each(|link| net.wait_until_up(link));
    }
    // The host b has addresses of a further network, which is not that of the overlay.
    must(&format!("-n {} addr add 203.0.113.9/32 dev lo", net.b));
    must(&format!("-n {} addr add 8.8.8.8/32 dev lo", net.b));
    must(&format!("-n {} addr add fd79::9/128 dev lo nodad", net.b));
    net.echo();
    net
}

/// Starts the daemons of both hosts, waits for traffic to each address of `to`, and ends a's
/// daemon: first by SIGTERM, then by SIGKILL. After each end, the network of a must be as before.
fn comes_and_goes(net: &mut Routed, what: &str, to: &[&str]) {
    let before = net.network();
    net.start(1);
    for end in ["SIGTERM", "kill -9"] {
        net.start(0);
        for to in to {
            net.wait(&format!("{what}: traffic to {to}"), |n| n.is_echoed(to));
        }
        assert_ne!(net.network(), before, "{what}");
        if end == "SIGTERM" {
            net.stop(0);
            assert_eq!(net.difference(&before), [""; 0], "{what}, after {end}");
        } else {
            net.kill(0);
            net.wait(&format!("{what}: the network as before"), |n| n.network() == before);
        }
    }
}

const ALL: &str = "\"0.0.0.0/0\", \"::/0\"";
const SOME: &str = "\"10.78.0.2/32\", \"fd78::2/128\", \"203.0.113.0/24\", \"fd79::/48\"";

/// Addresses that must be reached through the overlay. In one of the setups, a rule of the
/// administrator for the host's only outer address leads all its packets to one table, past all
/// other tables.
const REACHED: [&str; 4] = ["10.78.0.2", "fd78::2", "203.0.113.9", "fd79::9"];

#[test]
fn regression_an_overlay_that_takes_everything_gives_every_route_back() {
    if !ready() {
        return;
    }
    in_parallel(&SETUPS, |i, (what, words)| {
        let mut net = prepare(&format!("f{i}"), words);
        net.configure_overlay("", ALL);
        let reached: &[&str] = match *what {
            // A route of the main table with a longer prefix takes precedence, as it would in one
            // table.
            "the peer's prefix is routed"
            | "a shorter prefix is routed"
            | "multipath"
            | "a host of the peer's is routed"
            | "another protocol's routes" => &["10.78.0.2", "fd78::2", "fd79::9"],
            "IPv6 routes" => &["10.78.0.2", "fd78::2", "203.0.113.9"],
            "blackholes around" => &["10.78.0.2", "fd78::2", "8.8.8.8"],
            _ => &REACHED,
        };
        comes_and_goes(&mut net, what, reached);
    });
}

#[test]
fn regression_an_overlay_with_prefixes_gives_every_route_back() {
    if !ready() {
        return;
    }
    in_parallel(&SETUPS, |i, (what, words)| {
        let mut net = prepare(&format!("p{i}"), words);
        net.configure_overlay("", SOME);
        let reached: &[&str] = match *what {
            // The /32 route of the main table takes precedence over the overlay's /24 route.
            "a host of the peer's is routed" => &["10.78.0.2", "fd78::2", "fd79::9"],
            _ => &REACHED,
        };
        comes_and_goes(&mut net, what, reached);
    });
}

#[test]
fn transparent_steering_gives_every_route_back() {
    if !ready() {
        return;
    }
    in_parallel(&SETUPS, |i, (what, words)| {
        let mut net = prepare(&format!("t{i}"), words);
        let mode = "mode = \"transparent\"";
        net.configure(0, mode, Some("\"198.51.100.10/32\""));
        net.configure(1, mode, Some("\"192.0.2.10/32\""));
        let before = net.network();
        net.start(1);
        for end in ["SIGTERM", "kill -9"] {
            net.start(0);
            net.wait(what, |n| n.route("198.51.100.10").contains("dev srd0"));
            net.wait(what, |n| n.is_echoed("198.51.100.10"));
            if end == "SIGTERM" {
                net.stop(0);
                assert_eq!(net.difference(&before), [""; 0], "{what}, after {end}");
            } else {
                net.kill(0);
                net.wait(what, |n| n.network() == before);
            }
            net.wait(what, |n| n.is_echoed("198.51.100.10"));
        }
    });
}

#[test]
fn regression_a_prefix_that_covers_the_endpoint_does_not_lead_in_a_circle() {
    if !ready() {
        return;
    }
    let mut net = prepare("e", &[]);
    net.configure_overlay("", "\"10.78.0.2/32\", \"198.51.100.0/24\", \"203.0.113.0/24\"");
    let check = net.command(0, &["up", "--check"]).output().unwrap();
    assert!(check.status.success());
    net.start(1);
    net.start(0);
    for to in ["10.78.0.2", "198.51.100.10", "203.0.113.9"] {
        net.wait(to, |n| n.is_echoed(to));
    }
    assert!(net.route("198.51.100.10").contains("dev srd0"));
    assert!(net.route("198.51.100.10 mark 7471").contains("dev v0"));
    // A strict reverse path filter would drop the peer's packets. The daemon reports this at once,
    // and does not start.
    net.stop(0);
    must_run(&net.a, &["sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/v0/rp_filter"]);
    let refused = net.command(0, &["up"]).output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("sysctl -w net.ipv4.conf.v0.rp_filter=2"), "{error}");
}

#[test]
fn local_networks_stay_reachable_under_a_default_route_into_the_overlay() {
    if !ready() {
        return;
    }
    let words =
        ["link add w0 type veth peer name w1", "link set w0 up", "addr add 172.16.5.1/24 dev w0"];
    let mut net = prepare("l", &words);
    net.configure_overlay("", "\"10.78.0.2/32\", \"0.0.0.0/0\", \"172.16.0.0/12\"");
    net.start(0);
    assert!(net.route("172.16.5.9").contains("dev w0"), "a longer route of the main table");
    assert!(net.route("172.16.6.9").contains("dev srd0"));
    assert!(net.route("192.0.2.1").contains("dev v0"));
    assert!(net.route("8.8.8.8").contains("dev srd0"));
    assert!(net.route("8.8.8.8 mark 7471").contains("dev v0"));
}

/// Sends packets from addresses of the overlay, to the overlay and beyond. It has sockets that were
/// bound to these addresses at its creation, and can open new sockets. Errors of sending are
/// ignored.
struct Sender {
    bound: Vec<std::net::UdpSocket>,
}

const TARGETS: [&str; 7] =
    ["10.78.0.2", "10.78.0.7", "203.0.113.9", "8.8.8.8", "fd78::2", "fd79::9", "2001:db8:b::10"];

impl Sender {
    fn new(net: &Routed) -> Self {
        let bind = |ip| net.within(&net.a, move || std::net::UdpSocket::bind((ip, 0)).unwrap());
        Self { bound: ["10.78.0.1", "fd78::1"].map(bind).into() }
    }

    /// Sends a packet to each target. If `new_ones` is set, new sockets without an address also
    /// send into the overlay.
    fn send(&self, net: &Routed, new_ones: bool) {
        for to in TARGETS {
            for socket in &self.bound {
                let _ = socket.send_to(b"in clear?", (to, 9));
            }
        }
        if new_ones {
            net.within(&net.a, || {
                for to in ["10.78.0.2", "10.78.0.7", "10.78.0.255", "fd78::2", "fd78::7"] {
                    let any = if to.contains(':') { "::" } else { "0.0.0.0" };
                    let socket = std::net::UdpSocket::bind((any, 0)).unwrap();
                    let _ = socket.send_to(b"in clear?", (to, 9));
                }
            });
        }
    }
}

#[test]
fn regression_no_packet_of_the_overlay_s_addresses_leaves_in_clear() {
    if !ready() {
        return;
    }
    let overlay = ["10.78.", "fd78:"];
    let mut net = prepare("c", &[]);
    net.configure_overlay("", SOME);
    let spy = net.spy();
    // The daemon runs, but no peer has been up yet.
    net.start(0);
    let sender = Sender::new(&net);
    (0..20).for_each(|_| sender.send(&net, true));
    net.start(1);
    net.wait("traffic", |n| n.is_echoed("10.78.0.2"));
    sender.send(&net, true);
    // The peer is removed from the configuration.
    let address = "address = [\"10.78.0.1/24\", \"fd78::1/64\"]";
    net.configure(0, address, None);
    assert!(net.srd(0, &["reload"]));
    for _ in 0..50 {
        sender.send(&net, true);
        std::thread::sleep(Duration::from_millis(4));
    }
    // The interface is set down, and up again.
    must(&format!("-n {} link set srd0 down", net.a));
    sender.send(&net, true);
    must(&format!("-n {} link set srd0 up", net.a));
    sender.send(&net, true);
    // The daemon is stopped, and later killed, while sockets that are bound to the overlay's
    // addresses send packets.
    for crash in [false, true] {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                while !stop.load(Relaxed) {
                    sender.send(&net, false);
                }
            });
            let pid = net.daemons[0].as_ref().unwrap().id();
            signal(pid, if crash { "KILL" } else { "TERM" });
            std::thread::sleep(Duration::from_millis(700));
            stop.store(true, Relaxed);
            sending.join().unwrap();
        });
        net.daemons[0].take().unwrap().wait().unwrap();
        net.wait("the interface's end", |n| {
            !ip(&format!("-n {} link show srd0", n.a)).status.success()
        });
        sender.send(&net, false);
        if !crash {
            net.start(0);
        }
    }
    let (all, in_clear) = spy.end(&overlay);
    println!("{all} packets at the router, {} of the overlay's addresses", in_clear.len());
    assert!(all > 50, "the router sees packets: {all}");
    assert_eq!(in_clear, [], "in clear");
    // As long as a socket has an IPv6 address of the overlay, the rules that refuse its packets
    // stay. After the socket is closed, they can be removed.
    let rules = |net: &Routed| must(&format!("-n {} -6 rule show", net.a));
    assert!(rules(&net).contains("from fd78::1 iif lo"), "{}", rules(&net));
    drop(sender);
    assert!(net.command(0, &["down"]).output().unwrap().status.success());
    assert!(!rules(&net).contains("fd78"), "{}", rules(&net));
}

#[test]
fn a_kill_switch_holds_after_the_end_until_it_is_taken_back() {
    if !ready() {
        return;
    }
    let mut net = prepare("k", &["route add 203.0.113.0/24 via 192.0.2.1"]);
    let before = net.network();
    net.configure_overlay("kill_switch = true", ALL);
    net.start(1);
    let spy = net.spy();
    for crash in [false, true] {
        net.start(0);
        net.wait("traffic", |n| n.is_echoed("10.78.0.2"));
        assert!(net.route("8.8.8.8").contains("dev srd0"));
        if crash {
            net.kill(0)
        } else {
            net.stop(0)
        }
        net.wait("the interface's end", |n| {
            !ip(&format!("-n {} link show srd0", n.a)).status.success()
        });
        for to in ["10.78.0.2", "8.8.8.8", "fd78::2", "2001:db8:b::10"] {
            assert!(!net.is_echoed(to), "{to}");
        }
        // Local networks, and longer routes of the administrator, stay.
        assert!(net.route("192.0.2.1").contains("dev v0"));
        assert!(net.route("203.0.113.9").contains("dev v0"));
    }
    let (_, in_clear) = spy.end(&["10.78.", "fd78:", "8.8."]);
    assert_eq!(in_clear, []);
    // While a daemon runs, `srd down` changes nothing.
    net.start(0);
    let refused = net.command(0, &["down"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("stop it first, by"));
    net.wait("traffic", |n| n.is_echoed("10.78.0.2"));
    net.stop(0);
    let done = net.command(0, &["down"]).output().unwrap();
    assert!(done.status.success() && String::from_utf8_lossy(&done.stdout).contains("removed"));
    assert_eq!(net.difference(&before), [""; 0]);
    net.wait("an echo", |n| n.is_echoed("198.51.100.10"));
    // If the daemon starts without `kill_switch`, it also removes the routes and rules of an
    // earlier `kill_switch`.
    net.start(0);
    net.stop(0);
    net.configure_overlay("", ALL);
    net.start(0);
    net.stop(0);
    assert_eq!(net.difference(&before), [""; 0]);
}

#[test]
fn regression_an_interface_that_went_down_and_up_has_its_routes_again() {
    if !ready() {
        return;
    }
    let mut net = prepare("d", &[]);
    net.configure_overlay("", SOME);
    net.start(1);
    net.start(0);
    net.wait("traffic", |n| n.is_echoed("203.0.113.9"));
    let during = net.network();
    must(&format!("-n {} link set srd0 down", net.a));
    net.wait("a line in the log", |n| n.log(0).contains("srd0 was set down by another program"));
    must(&format!("-n {} link set srd0 up", net.a));
    net.wait("routes", |n| n.is_echoed("203.0.113.9"));
    let line = "srd0 is up again: its routes are restored";
    net.wait("a line about routes", |n| n.log(0).contains(line));
    // When the interface goes down, the kernel removes its IPv6 addresses. The daemon restores
    // them.
    net.wait("the network as it was", |n| n.network() == during);
    net.wait("IPv6", |n| n.is_echoed("fd79::9"));
    // Rules that another program removes are restored as well.
    must(&format!("-n {} rule flush protocol 174", net.a));
    net.wait("rules", |n| n.network() == during);
    net.wait("a line about rules", |n| n.log(0).contains("were restored"));
    // If the interface is deleted, the daemon ends with a reason, and everything is removed.
    must(&format!("-n {} link delete srd0", net.a));
    let status = net.daemons[0].take().unwrap().wait().unwrap();
    assert_eq!(status.code(), Some(1));
    let log = net.log(0);
    assert!(log.contains("the interface srd0 was deleted by another program"), "{log}");
    assert!(!net.network().contains("7471"), "{}", net.network());
}

#[test]
fn regression_addresses_that_another_program_removes_are_given_back() {
    if !ready() {
        return;
    }
    let mut net = prepare("addr", &[]);
    net.configure_overlay("", SOME);
    net.start(1);
    net.start(0);
    for to in ["10.78.0.2", "fd78::2"] {
        net.wait("traffic", |n| n.is_echoed(to));
    }
    let during = net.network();
    for address in ["10.78.0.1/24", "fd78::1/64"] {
        must(&format!("-n {} addr del {address} dev srd0", net.a));
        net.wait("the network as it was", |n| n.network() == during);
    }
    for to in ["10.78.0.2", "fd78::2"] {
        net.wait("traffic again", |n| n.is_echoed(to));
    }
    let line = "another program removed 1 address";
    net.wait("a line", |n| n.log(0).contains(line));
}

#[test]
fn regression_a_second_daemon_for_an_interface_that_is_taken_ends_at_once() {
    if !ready() {
        return;
    }
    let mut net = prepare("twice", &[]);
    net.configure_overlay("", SOME);
    net.start(0);
    let during = net.network();
    let first = std::fs::read_to_string(net.path("0.toml")).unwrap();
    let second =
        first.replace("0.sock", "second.sock").replace("192.0.2.10:7471", "192.0.2.10:8000");
    std::fs::write(net.path("0.toml"), second).unwrap();
    let mut attempts = (0..3).map(|_| {
        let begin = Instant::now();
        let output = net.command(0, &["up"]).output().unwrap();
        let took = begin.elapsed();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains("srd0 is there already"), "{error}");
        assert_eq!(net.difference(&during), [""; 0]);
        took
    });
    // When a daemon ends, one of its processes may occupy the table for up to eight seconds. An
    // attempt that waits for this process always takes longer than the bound, while a busy machine
    // delays only some attempts.
    assert!(attempts.any(|took| took < Duration::from_secs(6)), "none of three ended at once");
}

#[test]
fn a_table_may_be_chosen_shared_with_nobody_or_switched_off() {
    if !ready() {
        return;
    }
    let mut net = prepare("n", &["route add 203.0.113.0/24 via 192.0.2.1 table 7471"]);
    net.configure_overlay("", SOME);
    let before = net.network();
    let refused = net.command(0, &["up"]).output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("routing table 7471 holds a route to 203.0.113.0/24"), "{error}");
    assert_eq!(net.difference(&before), [""; 0]);
    // The configuration chooses another table.
    net.expert = "table = 9999";
    net.configure_overlay("", SOME);
    net.start(1);
    net.start(0);
    net.wait("traffic", |n| n.is_echoed("203.0.113.9"));
    assert!(net.network().contains("table 9999"));
    // A second daemon with the same table is refused.
    let text = std::fs::read_to_string(net.path("0.toml")).unwrap();
    let other = text
        .replace("[interface]", "[interface]\nname = \"srd5\"")
        .replace("10.78.0.", "10.79.0.")
        .replace("fd78::", "fd77::")
        .replace(":7471", ":8471")
        .replace("0.sock", "5.sock");
    std::fs::write(net.path("5.toml"), other).unwrap();
    let mut command = std::process::Command::new("ip");
    command.args(["netns", "exec", &net.a, env!("CARGO_BIN_EXE_srd"), "up", "-c"]);
    let refused = command.arg(net.path("5.toml")).output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("another `srd up` uses routing table 9999"), "{error}");
    net.stop(0);
    assert_eq!(net.difference(&before), [""; 0]);
    // The configuration uses no table.
    net.expert = "table = \"off\"";
    net.configure_overlay("", SOME);
    net.start(0);
    let during = net.network();
    for line in during.lines().filter(|line| line.contains("srd0")) {
        let kernels_own = ["table local", "fe80::", "UNKNOWN", "ff00::"];
        assert!(kernels_own.iter().any(|own| line.contains(own)), "{line}");
    }
    assert!(!during.contains("proto 174"), "{during}");
    must(&format!("-n {} route add 203.0.113.0/24 dev srd0", net.a));
    net.wait("the administrator's route", |n| n.is_echoed("203.0.113.9"));
    net.stop(0);
    assert_eq!(net.difference(&before), [""; 0]);
}

#[test]
fn regression_prefixes_that_move_between_peers_keep_their_routes() {
    if !ready() {
        return;
    }
    let net = &mut prepare("m", &[]);
    net.configure_overlay("", "\"10.78.0.2/32\"");
    let base = std::fs::read_to_string(net.path("0.toml")).unwrap();
    let (head, _) = base.split_once("[[peer]]").unwrap();
    let head = head.to_owned();
    let key = |space: &str| {
        let make = format!("{0} genkey | {0} pubkey", env!("CARGO_BIN_EXE_srd"));
        must_run(space, &["sh", "-c", &make]).trim().to_owned()
    };
    let keys = [key(&net.a), key(&net.a)];
    let write = |net: &Routed, behind: [&str; 2]| {
        let peers: String = [0, 1]
            .map(|i| {
                format!(
                    "[[peer]]\nname = \"p{i}\"\npublic_key = \"{}\"\nendpoint = \
                     \"198.51.100.1{i}:7471\"\nallowed = [{}]\n",
                    keys[i], behind[i]
                )
            })
            .concat();
        std::fs::write(net.path("0.toml"), head.clone() + &peers).unwrap();
    };
    let (one, two) = ("\"203.0.113.0/24\"", "\"203.0.114.0/24\"");
    write(net, [one, two]);
    net.start(0);
    for behind in [
        [two, one],
        [one, two],
        ["\"203.0.113.0/24\", \"203.0.114.0/24\"", "\"203.0.115.0/24\""],
        [two, one],
    ] {
        write(net, behind);
        assert!(net.srd(0, &["reload"]));
        for prefix in behind.join(", ").replace('"', "").split(", ") {
            let host = prefix.replace(".0/24", ".9");
            net.wait(&host, |n| n.route(&host).contains("dev srd0"));
        }
        std::thread::sleep(Duration::from_millis(100));
        for prefix in behind.join(", ").replace('"', "").split(", ") {
            assert!(net.route(&prefix.replace(".0/24", ".9")).contains("dev srd0"), "{prefix}");
        }
    }
}
