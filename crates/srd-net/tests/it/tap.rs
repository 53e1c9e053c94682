//! Passive capture on an interface: packets of both directions, segmented packets, packets that do
//! not fit into the ring, and the statistics of a driver. Needs the right to make network
//! namespaces.
#![allow(clippy::unwrap_used)]

use std::net::UdpSocket;
use std::time::Instant;

use crate::support::PATIENCE;
use crate::support::veth::{INTERFACE, Pair};
use srd_net::tap::{DriverStatistics, Tap};

/// A UDP packet from or to the port of this test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Packet {
    outgoing: bool,
    length: u32,
    kept: usize,
    segment_bytes: Option<u16>,
}

/// Reads packets until there are `count` packets of port 9, in either direction.
fn look(tap: &mut Tap, count: usize) -> Vec<Packet> {
    let (mut packets, began) = (Vec::new(), Instant::now());
    while packets.len() < count && began.elapsed() < PATIENCE {
        Tap::wait(std::slice::from_ref(tap), 10_000_000).unwrap();
        tap.look(64, |seen| {
            let v4 = seen.protocol == 0x0800 && seen.bytes.get(9) == Some(&17);
            if v4 && seen.bytes.get(22..24) == Some(&[0, 9]) {
                assert!(seen.time_ns > 1_500_000_000_000_000_000);
                let (outgoing, length) = (seen.outgoing, seen.length);
                let (kept, segment_bytes) = (seen.bytes.len(), seen.segment_bytes);
                packets.push(Packet { outgoing, length, kept, segment_bytes });
            }
        });
    }
    packets
}

#[test]
fn both_ends_see_a_packet_and_a_super_packet_with_its_segments() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    pair.acquaint();
    let mut taps =
        [0, 1].map(|end| pair.within(end, || Tap::open(INTERFACE, 100, 1 << 20).unwrap()));
    let _listener = pair.within(1, || UdpSocket::bind("10.77.0.2:9").unwrap());
    pair.within(0, || {
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        socket.connect("10.77.0.2:9").unwrap();
        socket.send(&[7; 500]).unwrap();
        srd_net::raw::udp_segment(&socket, 1000).unwrap();
        socket.send(&[7; 4500]).unwrap();
    });
    for (end, tap) in taps.iter_mut().enumerate() {
        let packets = look(tap, 2);
        let [one, large] = packets.as_slice() else { panic!("two packets: {packets:?}") };
        let outgoing = end == 0;
        assert_eq!(*one, Packet { outgoing, length: 528, kept: 86, segment_bytes: None });
        let segment_bytes = Some(1000);
        assert_eq!(*large, Packet { outgoing, length: 4528, kept: 86, segment_bytes });
        assert_eq!(tap.lost().unwrap(), 0);
    }
}

#[test]
fn packets_that_find_no_room_are_counted() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    pair.acquaint();
    let mut tap = pair.within(0, || Tap::open(INTERFACE, 1500, 1 << 19).unwrap());
    const SENT: usize = 3000;
    let _listener = pair.within(1, || UdpSocket::bind("10.77.0.2:9").unwrap());
    pair.within(0, || {
        let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
        socket.connect("10.77.0.2:9").unwrap();
        for _ in 0..SENT {
            socket.send(&[7; 1400]).unwrap();
        }
    });
    let mut seen = 0;
    let began = Instant::now();
    let mut lost = tap.lost().unwrap();
    while seen + lost < SENT as u64 && began.elapsed() < PATIENCE {
        let more = look(&mut tap, 1);
        seen += more.len() as u64;
        lost = tap.lost().unwrap();
    }
    assert!(lost > 0 && seen > 0, "512 KiB hold a part of 4.5 MB: {seen} seen, {lost} lost");
    assert!(seen + lost >= SENT as u64, "{seen} seen, {lost} lost");
}

#[test]
fn a_driver_has_statistics_and_a_lost_interface_is_an_error() {
    let Some(pair) = Pair::new(1500, 1) else { return };
    let mut tap = pair.within(0, || Tap::open(INTERFACE, 100, 1 << 20).unwrap());
    assert!(pair.within(0, || Tap::open("nosuch0", 100, 1 << 20)).is_err());
    pair.within(0, || {
        let statistics = DriverStatistics::open(INTERFACE).unwrap();
        let at = statistics.names().iter().position(|name| name == "peer_ifindex");
        let values = statistics.values().unwrap();
        assert_eq!(values.len(), statistics.names().len());
        assert!(values[at.expect("veth has this statistic")] > 0);
        let loopback = DriverStatistics::open("lo");
        assert!(loopback.is_err() || loopback.is_ok_and(|none| none.names().is_empty()));
    });
    pair.ip(0, &["link", "del", INTERFACE]);
    assert!(tap.lost().is_err());
}
