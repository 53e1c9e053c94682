//! Passive capture on an interface by programs at tc: the captured packets are those of a packet
//! socket, the interface is removed, and no program stays behind. Needs the right to make network
//! namespaces.
#![allow(clippy::unwrap_used)]

use std::net::UdpSocket;
use std::time::Instant;

use crate::support::PATIENCE;
use crate::support::veth::{INTERFACE, Pair};
use srd_net::tap::{Tap, TappedPacket, now_ns};
use srd_net::tcx::{Backlog, Keep, Probe};

/// Largest difference, in nanoseconds, between the times at which the two captures get a packet.
/// The captures are at different points of the packet's path, and a busy machine may run other work
/// between these points. A time of another clock would differ by years.
const APART_NS: u64 = 5_000_000_000;
/// Sizes of the datagrams that the first end sends alone, and of those that it sends in segments.
const ALONE_BYTES: [usize; 3] = [1, 500, 1472];
const SEGMENTED_BYTES: usize = 4500;

/// A UDP packet from or to port 9.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Packet {
    outgoing: bool,
    length: u32,
    segment_bytes: Option<u16>,
    bytes: Vec<u8>,
}

fn packet(seen: &TappedPacket<'_>) -> Option<Packet> {
    let v4 = seen.protocol == 0x0800 && seen.bytes.get(9) == Some(&17);
    let port = |at: usize| seen.bytes.get(at..at + 2) == Some(&[0, 9]);
    (v4 && (port(20) || port(22))).then(|| Packet {
        outgoing: seen.outgoing,
        length: seen.length,
        segment_bytes: seen.segment_bytes,
        // The checksum may be missing at one point of the path because it is left to the device,
        // and be present at the other.
        bytes: seen.bytes[..26.min(seen.bytes.len())].to_vec(),
    })
}

#[test]
fn programs_and_a_packet_socket_see_the_same_packets_at_both_ends() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    pair.acquaint();
    let open = |end| {
        pair.within(end, || {
            let tap = Tap::open(INTERFACE, 100, 1 << 20).unwrap();
            (tap, Probe::open(INTERFACE, Keep::Headers, 1 << 20).unwrap())
        })
    };
    let mut ends = [open(0), open(1)];
    let listener = pair.within(1, || UdpSocket::bind("10.77.0.2:9").unwrap());
    listener.set_read_timeout(Some(PATIENCE)).unwrap();
    let began = now_ns();
    pair.within(0, || {
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        socket.connect("10.77.0.2:9").unwrap();
        for bytes in ALONE_BYTES {
            socket.send(&vec![7; bytes]).unwrap();
        }
        srd_net::raw::udp_segment(&socket, 1000).unwrap();
        socket.send(&[7; SEGMENTED_BYTES]).unwrap();
        // The answer is sent after everything has arrived, so both captures see the packets of the
        // far end in the same order.
        let mut missing = ALONE_BYTES.iter().sum::<usize>() + SEGMENTED_BYTES;
        while missing > 0 {
            missing -= listener.recv(&mut [0; 2000]).unwrap();
        }
        listener.send_to(&[8; 100], socket.local_addr().unwrap()).unwrap();
    });
    for (tap, probe) in &mut ends {
        let (mut by_tap, mut by_probe) = (Vec::new(), Vec::new());
        let until = Instant::now() + PATIENCE;
        while (by_tap.len() < 5 || by_probe.len() < 5) && Instant::now() < until {
            Tap::wait(std::slice::from_ref(tap), 10_000_000).unwrap();
            tap.look(64, |seen| by_tap.extend(packet(&seen).map(|it| (seen.time_ns, it))));
            probe.look(64, |seen| by_probe.extend(packet(&seen).map(|it| (seen.time_ns, it))));
        }
        let only = |all: &[(u64, Packet)]| all.iter().map(|it| it.1.clone()).collect::<Vec<_>>();
        assert_eq!(by_tap.len(), 5);
        assert_eq!(only(&by_probe), only(&by_tap));
        for (one, other) in by_probe.iter().zip(&by_tap) {
            let (first, last) = (began - APART_NS, now_ns() + APART_NS);
            assert!((first..last).contains(&one.0), "a time since 1970");
            assert!(one.0.abs_diff(other.0) < APART_NS, "{} {}", one.0, other.0);
        }
        assert_eq!(probe.lost().unwrap(), 0);
        assert_eq!(probe.look(64, |_| ()), Backlog::Nothing);
    }
}

#[test]
fn packets_that_find_no_room_are_counted() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    pair.acquaint();
    const SENT: u64 = 500;
    let mut probe = pair.within(0, || Probe::open(INTERFACE, Keep::Headers, 1).unwrap());
    let _listener = pair.within(1, || UdpSocket::bind("10.77.0.2:9").unwrap());
    pair.within(0, || {
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        for _ in 0..SENT {
            socket.send_to(&[7; 100], "10.77.0.2:9").unwrap();
        }
    });
    let mut seen = 0;
    assert_eq!(probe.look(usize::MAX, |_| seen += 1), Backlog::Nothing);
    let lost = probe.lost().unwrap();
    assert!(seen > 0 && seen <= 4096 / 96, "a page holds a few: {seen}");
    assert!(seen + lost >= SENT, "{seen} seen, {lost} lost");
}

#[test]
fn an_interface_that_goes_away_or_was_never_there_is_an_error() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let probe = pair.within(0, || Probe::open(INTERFACE, Keep::Headers, 1 << 20).unwrap());
    assert!(probe.lost().is_ok());
    let programs = || pair.within(0, || srd_net::tcx::programs_at(INTERFACE).unwrap());
    assert_eq!(programs(), [1, 1]);
    let second = pair.within(0, || Probe::open(INTERFACE, Keep::More, 1 << 20).unwrap());
    assert_eq!(programs(), [2, 2], "several may look");
    drop(second);
    assert_eq!(programs(), [1, 1]);
    pair.within(0, || {
        let error = Probe::open("nosuch0", Keep::Headers, 1 << 20).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        assert!(Probe::open("lo", Keep::More, 1 << 20).is_ok());
    });
    pair.ip(0, &["link", "del", INTERFACE]);
    assert!(probe.lost().unwrap_err().to_string().contains("gone"));
}
