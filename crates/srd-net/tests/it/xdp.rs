//! Endpoints over AF_XDP at both ends of a veth, and over AF_XDP at one end and UDP sockets at the
//! other: the same transfers as on loopback, and faults of real links. Needs root, to make network
//! namespaces.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use crate::support::veth::cable::{self, End};
use crate::support::veth::{INTERFACE, Pair, must};
use crate::support::{PATIENCE, numbered, transfer};
use srd_net::xdp::{AnyIo, IoChoice, XdpOptions};
use srd_net::{Endpoint, PacketIo, PollMode, UdpOptions};
use srd_proto::{Config, Duration as Span, Protection};

const V4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const V6: [&str; 2] = ["fd77::1", "fd77::2"];

/// Back end of an endpoint.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Udp,
    Native,
    Generic,
}
use Kind::{Generic, Native, Udp};

#[derive(Clone)]
struct Setting {
    mtu: u16,
    protection: Protection,
    port: u16,
    poll: PollMode,
    receive_frames: u32,
}

impl Setting {
    fn of(mtu: u16) -> Self {
        let poll = PollMode::Adaptive(Span::from_micros(20));
        Self { mtu, protection: Protection::Plain, port: 0, poll, receive_frames: 4096 }
    }
}

/// Opens an endpoint at one end of the pair.
fn endpoint(pair: &Pair, end: usize, ip: &str, kind: Kind, setting: &Setting) -> Endpoint {
    let mut udp = UdpOptions::new(SocketAddr::new(ip.parse().unwrap(), setting.port));
    udp.paths = 8;
    udp.poll = setting.poll;
    udp.receive_buffer_bytes = 4 << 20;
    let mut options = XdpOptions::new(udp);
    options.generic = kind == Generic;
    options.receive_frames = setting.receive_frames;
    let choice = if kind == Udp { IoChoice::Udp } else { IoChoice::AfXdp };
    let mut config = Config::sockets();
    // The timeout is longer than the time for which the link is down or a neighbour is not found,
    // even on a busy machine.
    config.peer_timeout = Span::from_secs(30);
    config.protection = setting.protection.clone();
    // Subtracts the headers of IPv6 and UDP, and a greeting.
    config.packet_bytes_max = setting.mtu - 48 - 16;
    pair.within(end, move || {
        let io = open(choice, &options);
        if let AnyIo::Xdp(xdp) = &io {
            assert_eq!(xdp.is_native(), kind == Native);
            assert!(xdp.packet_bytes_max() >= config.packet_bytes_max);
        }
        assert_eq!(io.paths(), 8);
        Endpoint::over(io, config).unwrap()
    })
}

/// Opens a back end. Tries again while the thread of a closed endpoint has not closed its sockets
/// yet.
fn open(choice: IoChoice, options: &XdpOptions) -> AnyIo {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        match AnyIo::open(choice, options) {
            Ok(io) => return io,
            Err(why) if std::time::Instant::now() > until => panic!("{why}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Ends endpoints, so that other endpoints can use their addresses.
fn close(endpoints: [Endpoint; 2]) {
    for endpoint in endpoints {
        endpoint.close(PATIENCE);
    }
}

fn both(pair: &Pair, ips: [&str; 2], kinds: [Kind; 2], setting: &Setting) -> [Endpoint; 2] {
    [0, 1].map(|end| endpoint(pair, end, ips[end], kinds[end], setting))
}

fn cross(mtu: u16, protection: &Protection) {
    let Some(pair) = Pair::new(mtu, 1) else { return };
    let setting = Setting { protection: protection.clone(), ..Setting::of(mtu) };
    for kinds in [[Native, Native], [Native, Udp], [Udp, Native]] {
        for ips in [V4, V6] {
            let [a, b] = both(&pair, ips, kinds, &setting);
            transfer(&a, &b, 600, a.payload_bytes_max());
            transfer(&b, &a, 200, 100);
            close([a, b]);
        }
    }
}

#[test]
fn datagrams_cross_plain() {
    cross(1500, &Protection::Plain);
}

#[test]
fn datagrams_cross_encrypted() {
    cross(1500, &Protection::JobKey([7; 32]));
}

#[test]
fn large_datagrams_cross_plain() {
    cross(9000, &Protection::Plain);
}

#[test]
fn large_datagrams_cross_encrypted() {
    cross(9000, &Protection::JobKey([7; 32]));
}

#[test]
fn datagrams_cross_where_the_program_runs_in_the_kernels_path() {
    for mtu in [1500, 9000] {
        let Some(pair) = Pair::new(mtu, 1) else { return };
        for kinds in [[Generic, Generic], [Generic, Native], [Udp, Generic], [Generic, Udp]] {
            for ips in [V4, V6] {
                let [a, b] = both(&pair, ips, kinds, &Setting::of(mtu));
                transfer(&a, &b, 300, a.payload_bytes_max());
                close([a, b]);
            }
        }
    }
}

#[test]
fn datagrams_cross_in_all_poll_modes() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    for poll in [PollMode::Block, PollMode::Spin] {
        let setting = Setting { poll, ..Setting::of(1500) };
        let [a, b] = both(&pair, V4, [Native, Native], &setting);
        transfer(&a, &b, 300, 1000);
        close([a, b]);
    }
}

#[test]
fn losses_of_a_full_receiver_are_made_good() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let setting = Setting { receive_frames: 64, ..Setting::of(1500) };
    let [a, b] = both(&pair, V4, [Native, Native], &setting);
    transfer(&a, &b, 3000, 1000);
}

#[test]
fn losses_on_the_way_are_made_good_over_a_router() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let Some(router) = Router::between(&pair, "10.78.0.1", "10.79.0.1") else { return };
    for kinds in [[Native, Native], [Native, Udp], [Udp, Native]] {
        let [a, b] = both(&pair, ["10.78.0.1", "10.79.0.1"], kinds, &Setting::of(1500));
        transfer(&a, &b, 2000, 1000);
        close([a, b]);
    }
    assert!(router.lost() > 50, "{} packets were lost", router.lost());
}

/// A namespace that forwards between the ends of a pair, and drops every thirtieth packet.
struct Router(String);

impl Router {
    fn between(pair: &Pair, a: &str, b: &str) -> Option<Self> {
        let router = Self(format!("{}r", pair.names[0]));
        must("ip", &["netns", "add", &router.0]);
        pair.ip(0, &["link", "del", "dev", INTERFACE]);
        for (end, ip, gateway, port) in [(0, a, "10.78.0.2", "ra"), (1, b, "10.79.0.2", "rb")] {
            let (address, other) = (format!("{ip}/24"), format!("{gateway}/24"));
            let of = |namespace, interface, addresses| End { namespace, interface, addresses };
            let [near, far] = [[address.as_str()], [other.as_str()]];
            let near = of(&pair.names[end], INTERFACE, &near);
            cable::plug(&[near, of(&router.0, port, &far)], "");
            pair.ip(end, &["route", "add", "default", "via", gateway]);
        }
        let inside = ["netns", "exec", &router.0];
        must("ip", &[&inside[..], &["sysctl", "-qw", "net.ipv4.ip_forward=1"]].concat());
        if Command::new("nft").arg("--version").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "CI lacks nft");
            println!("skipped: no nft (apt-get install nftables)");
            return None;
        }
        let rules = "add table ip t; \
             add chain ip t loss { type filter hook forward priority 0; policy accept; }; \
             add rule ip t loss numgen inc mod 30 0 counter drop";
        let nft = Command::new("ip").args(inside).args(["nft", rules]).output().unwrap();
        if !nft.status.success() {
            assert!(std::env::var_os("CI").is_none(), "nft: {nft:?}");
            println!("skipped: nft cannot lose packets here");
            return None;
        }
        Some(router)
    }

    /// Returns the number of packets that the namespace has dropped.
    fn lost(&self) -> u64 {
        let list = ["netns", "exec", &self.0, "nft", "list", "chain", "ip", "t", "loss"];
        let output = Command::new("ip").args(list).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
        words.nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

#[test]
fn an_endpoint_that_starts_again_is_known_at_once() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    for kinds in [[Native, Native], [Udp, Native]] {
        let [a, b] = both(&pair, V4, kinds, &Setting::of(1500));
        transfer(&a, &b, 100, 500);
        let port = b.local_address().port();
        b.close(PATIENCE);
        let setting = Setting { port, ..Setting::of(1500) };
        let b = endpoint(&pair, 1, V4[1], kinds[1], &setting);
        transfer(&a, &b, 100, 500);
        transfer(&b, &a, 100, 500);
        close([a, b]);
    }
}

#[test]
fn a_peer_that_changes_its_hardware_address_is_found_again() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    // The kernel checks neighbours earlier than by default.
    for variable in ["delay_first_probe_time=1", "base_reachable_time_ms=500", "ucast_solicit=1"] {
        pair.set(0, &format!("net.ipv4.neigh.{INTERFACE}.{variable}"));
    }
    // The other end is a socket: the kernel drops packets for the old address.
    let [a, b] = both(&pair, V4, [Native, Udp], &Setting::of(1500));
    transfer(&a, &b, 100, 500);
    pair.ip(1, &["link", "set", INTERFACE, "address", "02:00:00:00:77:02"]);
    transfer(&a, &b, 100, 500);
    // Changes the local hardware address: peers learn it, and the packets of this end carry it.
    pair.ip(0, &["link", "set", INTERFACE, "address", "02:00:00:00:77:01"]);
    transfer(&a, &b, 100, 500);
    transfer(&b, &a, 100, 500);
}

#[test]
fn a_link_that_goes_down_and_up_again_is_used_again() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let [a, b] = both(&pair, V4, [Native, Native], &Setting::of(1500));
    transfer(&a, &b, 100, 500);
    for end in [0, 1] {
        let peer = a.connect(b.local_address()).unwrap();
        pair.ip(end, &["link", "set", INTERFACE, "down"]);
        for i in 0..50 {
            peer.send(numbered(i, 500)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
        pair.ip(end, &["link", "set", INTERFACE, "up"]);
        for _ in 0..50 {
            let got = b.recv_timeout(PATIENCE).unwrap();
            assert!(got.is_some(), "{end}: {:?} {:?}", a.report(), b.report());
        }
        peer.flush(PATIENCE).unwrap();
    }
    assert!(pair.has_program(0) && pair.has_program(1));
}
