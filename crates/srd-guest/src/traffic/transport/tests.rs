//! Tests of the transports of several hosts, over sockets of this machine.

use super::*;
use crate::control::protocol::PeerHost;
use srd_net::{UdpIo, UdpOptions, clock};

use srd_card::vpc::Envelope;
use srd_daemon::config::Config;
use srd_daemon::run::Hosts;
use srd_daemon::run::lone::{Orders, card_worker, card_worker_that_takes_over};
use srd_net::keys::SecretKey;
use srd_proto::{DownReason, Event};
use srd_vpc::id::EniId;
use std::time::{Duration as Wall, Instant as WallInstant};

/// Number of paths between the hosts of a test.
const PATHS: u16 = 4;
/// Returns the traffic of each host.
fn report(of: &Transport) -> Vec<PeerHost> {
    let report = |(name, at): (&Arc<str>, SocketAddr)| {
        of.contact(name).unwrap().report(clock::now(), name, at)
    };
    of.hosts().map(report).collect()
}

/// The longest wait of a test, on a busy machine.
const LONG: Wall = Wall::from_secs(60);

fn key(n: u8) -> SecretKey {
    SecretKey::parse(&format!("{n:02x}").repeat(32)).unwrap()
}

fn config(at: u8, ports: &[u16], keys: &[u8]) -> Config {
    let name = |n: usize| ["alpha", "beta", "gamma"][n].to_owned();
    let address = |n: usize| SocketAddr::from(([127, 0, 0, 1], ports[n]));
    let others = (0..ports.len()).filter(|n| *n != usize::from(at));
    let own = at.into();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("private.key");
    std::fs::write(&file, key(keys[own]).expose()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mode).unwrap();
    // The name is that of the file with the epoch, which each transport of these tests has alone.
    let mut text = format!(
        "[interface]\nmode = \"cloud\"\nname = \"test-{}\"\nlisten = \"{}\"\n\
         private_key_file = \"private.key\"\n[expert]\npaths = {PATHS}\n[cloud]\n",
        ports[own],
        address(own),
    );
    for n in others {
        text += &format!(
            "[[peer]]\nhost = \"{}\"\nendpoint = \"{}\"\npublic_key = \"{}\"\n",
            name(n),
            address(n),
            key(keys[n]).public()
        );
    }
    Config::parse(&text, &directory.path().join("srd0.toml")).unwrap()
}

/// Returns, for each of `hosts` hosts, the first of [`PATHS`] consecutive free UDP ports.
fn ports(hosts: usize) -> Vec<u16> {
    let free = |_| {
        let mut sockets = UdpOptions::new(([127, 0, 0, 1], 0).into());
        sockets.paths = PATHS;
        let io = UdpIo::open(&sockets).unwrap();
        (srd_net::PacketIo::local_address(&io).port(), io)
    };
    let held: Vec<_> = (0..hosts).map(free).collect();
    held.iter().map(|(port, _)| *port).collect()
}

fn open(config: &Config) -> Transport {
    open_with(config, None).0
}

/// Starts a transport. `sockets`: those of another one, which this one continues.
fn open_with(config: &Config, sockets: Option<Vec<OwnedFd>>) -> (Transport, Orders) {
    let (first, orders) = card_worker(config, sockets).unwrap();
    let mut transport = Transport::new(first).unwrap();
    transport.wait_for_hosts();
    (transport, orders)
}

fn frame(number: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet.extend([0, number, 0, 9, 0, 8, 0, 0]);
    [&[0; OFFLOAD_BYTES][..], &packet].concat()
}

const ENVELOPE: Envelope = Envelope::Between { from: EniId(1), to: EniId(2) };

fn send(from: &mut Transport, to: &str, number: u8, express: bool) {
    let host: Arc<str> = to.into();
    let way = FrameRoute { host: &host, instance: 0, envelope: ENVELOPE, express };
    assert!(from.send(clock::now(), &way, frame(number)));
    from.flush();
}

/// Runs all transports until the transport with the index `at` has received `wanted` frames.
/// Returns the sender and the number of each frame.
fn run(all: &mut [Transport], at: usize, wanted: usize) -> Vec<(String, u8)> {
    run_for(all, at, wanted, LONG)
}

/// Runs all transports until this number of frames has arrived, for at most `limit`.
fn run_for(all: &mut [Transport], at: usize, wanted: usize, limit: Wall) -> Vec<(String, u8)> {
    let began = WallInstant::now();
    let mut seen = Vec::new();
    while seen.len() < wanted && began.elapsed() < limit {
        for (n, transport) in all.iter_mut().enumerate() {
            transport.flush();
            let received = std::mem::take(transport.receive(64));
            if n == at {
                let mut frames = received.frames.iter();
                for (host, count, _) in &received.hosts {
                    let of_host = frames.by_ref().take(*count);
                    seen.extend(of_host.map(|(_, frame)| (host.to_string(), frame[31])));
                }
            }
        }
    }
    seen
}

/// Runs all transports until a condition is true.
fn run_until(all: &mut [Transport], is_so: impl Fn(&[Transport]) -> bool) {
    let began = WallInstant::now();
    while !is_so(all) && began.elapsed() < LONG {
        for transport in all.iter_mut() {
            transport.flush();
            transport.receive(64);
        }
    }
}

#[test]
fn frames_of_several_hosts_arrive_by_srd_and_plainly_and_are_counted() {
    let ports = ports(3);
    let mut all: Vec<_> = (0..3).map(|at| open(&config(at, &ports, &[1, 2, 3]))).collect();
    for (from, number, express) in [(0, 1, true), (0, 2, false), (2, 3, true), (2, 4, true)] {
        send(&mut all[from], "beta", number, express);
    }
    let mut seen = run(&mut all, 1, 4);
    seen.sort();
    let wanted = [("alpha", 1), ("alpha", 2), ("gamma", 3), ("gamma", 4)];
    assert_eq!(seen, wanted.map(|(host, number)| (host.to_owned(), number)));
    let counts = |of: &Transport| -> Vec<_> {
        let all = report(of).into_iter();
        all.map(|of| (of.name, of.received_frames, of.received_by_srd_frames, of.up)).collect()
    };
    let wanted = [("alpha", 2, 1, true), ("gamma", 2, 2, true)];
    let wanted = wanted.map(|(name, all, by_srd, up)| (name.to_owned(), all, by_srd, up));
    assert_eq!(counts(&all[1]), wanted);
    assert_eq!(all[1].lost().sum::<u64>(), 0);
    let host: Arc<str> = "delta".into();
    let way = FrameRoute { host: &host, instance: 0, envelope: ENVELOPE, express: true };
    assert!(!all[0].send(clock::now(), &way, frame(1)), "there is no such host");
}

/// A program without the key of a host cannot pose as that host, whatever its address and port.
#[test]
fn regression_a_program_without_a_host_s_key_does_not_speak_for_it() {
    let ports = ports(2);
    let honest = config(1, &ports, &[1, 2]);
    // The forged transport has the address and the port of alpha, and another key.
    let forged = config(0, &ports, &[9, 2]);
    let mut all = vec![open(&forged), open(&honest)];
    for number in 0..20 {
        send(&mut all[0], "beta", number, number % 2 == 0);
    }
    let began = WallInstant::now();
    while began.elapsed() < Wall::from_millis(500) {
        for transport in &mut all {
            transport.flush();
            assert!(transport.receive(64).frames.is_empty());
        }
    }
    // Frames of the host itself are accepted.
    drop(all.remove(0));
    all.insert(0, open(&config(0, &ports, &[1, 2])));
    // Both hosts may open a session at the same moment. Then one session replaces the other, and a
    // frame in flight is lost: a guest sends again as well.
    let began = WallInstant::now();
    let mut seen = Vec::new();
    while seen.is_empty() && began.elapsed() < LONG {
        send(&mut all[0], "beta", 7, true);
        seen = run_for(&mut all, 1, 1, Wall::from_millis(500));
    }
    assert_eq!(seen.first(), Some(&("alpha".to_owned(), 7)));
}

#[test]
fn another_process_goes_on_with_the_sockets_and_frames_pass_both_ways() {
    let ports = ports(2);
    let alpha = config(0, &ports, &[1, 2]);
    let (first, orders) = open_with(&alpha, None);
    let mut all = vec![first, open(&config(1, &ports, &[1, 2]))];
    send(&mut all[0], "beta", 1, true);
    assert_eq!(run(&mut all, 1, 1).len(), 1);
    let sockets = orders.sockets(|| all[0].work()).unwrap();
    let contacts = all[0].contacts();
    let (mut next, orders) = open_with(&alpha, Some(sockets));
    next.adopt_contacts(&contacts);
    // The previous transport sends nothing when it is dropped, because its sockets belong to the
    // next transport.
    all[0] = next;
    // Packets in flight in the previous session are lost, but no later ones.
    send(&mut all[1], "alpha", 2, true);
    run_until(&mut all, |all| all[1].express().counters().send_failed == 1);
    send(&mut all[1], "alpha", 3, true);
    assert_eq!(run(&mut all, 0, 1), [("beta".to_owned(), 3)]);
    send(&mut all[0], "beta", 4, false);
    assert_eq!(run(&mut all, 1, 1), [("alpha".to_owned(), 4)]);
    assert_eq!(report(&all[0])[0].sent_frames, 2, "counted on");
    let elsewhere = config(1, &ports, &[1, 2]);
    let sockets = orders.sockets(|| all[0].work()).unwrap();
    let refused = card_worker(&elsewhere, Some(sockets)).unwrap_err();
    assert!(refused.to_string().contains("does not listen at"), "{refused:#}");
}

/// Datagrams of an unknown peer contain no frame. A call that reads until it has enough frames
/// would not end while such datagrams arrive faster than they are discarded, and no packet of any
/// instance would pass.
#[test]
fn regression_a_call_reads_a_bounded_number_of_a_strangers_datagrams() {
    let ports = ports(2);
    let mut card = open(&config(0, &ports, &[1, 2]));
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..5_000 {
        // The kernel's buffer may be too small for all of them.
        let _ = stranger.send_to(&[0; 60], ("127.0.0.1", ports[0]));
    }
    // How often a call has left some. The kernel of a busy machine may deliver them late.
    let mut left = 0;
    let began = WallInstant::now();
    while left < 2 && began.elapsed() < LONG {
        assert_eq!(card.receive(64).frames.len(), 0);
        left += u32::from(card.receive_once() > 0);
    }
    assert_eq!(left, 2, "a call has read all");
}

/// A node that was stopped directly after the decision of a take-over, before its threads had seen
/// the decision, ended as if the other process went on. The programs of instances were not ended.
#[test]
fn regression_a_node_that_is_stopped_as_soon_as_it_may_begin_has_begun() {
    for begins in [true, false] {
        let config = config(0, &ports(2), &[1, 2]);
        let (first, orders) = card_worker_that_takes_over(&config).unwrap();
        let mut transport = Transport::new(first).unwrap();
        if begins {
            orders.begin();
        }
        orders.stop();
        assert_eq!(transport.wait_for_hosts(), begins);
        assert!(transport.is_stopped());
    }
}

/// The smallest size of all hosts was the size of packets to each of them: a host that answered no
/// large probe made packets to all other hosts small, until the next change of a size.
#[test]
fn regression_a_host_that_takes_small_packets_only_limits_packets_to_itself() {
    let mut card = open(&config(0, &ports(3), &[1, 2, 3]));
    let (whole, lost) = (card.bytes_max(), 1472 - 548);
    let sizes = |card: &Transport| ["beta", "gamma"].map(|host| card.bytes_max_to(host));
    assert_eq!(sizes(&card), [Some(whole); 2]);
    assert_eq!(card.bytes_max_to("delta"), None, "there is no such host");
    let place = card.table().place("gamma").unwrap();
    let slot = card.table().hosts[place].slot.unwrap();
    let peer = card.express().rules().peer(slot).unwrap().id;
    card.take_mtu_change();
    let mut see = |event: Event| {
        let (express, table) = card.parts();
        express.event(clock::now(), &event);
        table.event(clock::now(), slot, &event);
        (card.take_mtu_change(), card.bytes_max(), sizes(&card))
    };
    let small = Event::PathMtu { peer, works_bytes: 548, configured_bytes: 1472 };
    assert_eq!(see(small), (true, whole - lost, [Some(whole), Some(whole - lost)]));
    let down = Event::PeerDown { peer, reason: DownReason::Restarted };
    assert_eq!(see(down), (true, whole, [Some(whole); 2]));
}
