//! Packets of a guest that are too large for their path: fragments if that is permitted, otherwise
//! an ICMP error (V7).
#![allow(clippy::unwrap_used)]

use crate::lane::*;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::{Cause, Environment, FrameRoute, PortId};
use srd_proto::time::Instant;
use srd_vpc::id::InstanceId;
use srd_vpc::judge::Service;

const DONT_FRAGMENT: u16 = 0x4000;

#[derive(Default)]
struct Out {
    guests: Vec<Vec<u8>>,
    hosts: Vec<Vec<u8>>,
    /// Largest packet that the other host takes, if its size is known.
    other_takes: Option<usize>,
}

impl Environment for Out {
    fn to_guest(&mut self, _: PortId, frame: Vec<u8>) {
        self.guests.push(frame[OFFLOAD_BYTES..].to_vec());
    }
    fn to_host(&mut self, _: FrameRoute<'_>, frame: Vec<u8>) {
        self.hosts.push(frame[OFFLOAD_BYTES..].to_vec());
    }
    fn host_bytes_max(&self, host: &str) -> Option<usize> {
        assert_eq!(host, "other");
        self.other_takes
    }
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {}
}

/// Sends a super-packet of two datagrams of 2,000 bytes to another host, to which packets of 1,428
/// bytes go.
fn send(flags: u16) -> (Out, u64) {
    send_with(flags, Out::default())
}

fn send_with(flags: u16, mut out: Out) -> (Out, u64) {
    let mut world = world(&[], [open(), open(), open()]);
    world.instances.get_mut(&InstanceId(1)).unwrap().host = Some("other".into());
    let mut lab = Lab::new(&world);
    lab.card.set_host_bytes_max(1428);
    let payload: Vec<u8> = [vec![1; 2000], vec![2; 2000]].concat();
    let head = [9_u16, 80, 4008, 0].map(u16::to_be_bytes).concat();
    let packet = packet((0, 1), UDP, flags, &[&head[..], &payload].concat());
    let mut offload = [0; OFFLOAD_BYTES];
    (offload[0], offload[1]) = (1, 5); // a checksum is needed; segments of UDP
    offload[2..4].copy_from_slice(&28_u16.to_le_bytes());
    offload[4..6].copy_from_slice(&2000_u16.to_le_bytes());
    offload[6..8].copy_from_slice(&20_u16.to_le_bytes());
    offload[8..10].copy_from_slice(&6_u16.to_le_bytes());
    let frame = [&offload[..], &packet].concat();
    lab.card.from_guest(Instant::ZERO, lab.ports[0], frame, &mut out);
    (out, lab.card.drops(lab.ports[0]).of(Cause::TooBig))
}

/// In an earlier version, such super-packets were dropped, and the guest got an error about packets
/// that may be fragmented.
#[test]
fn regression_datagrams_of_a_super_packet_are_fragmented() {
    let (out, dropped) = send(0);
    assert_eq!((out.guests.len(), out.hosts.len(), dropped), (0, 4, 0));
    for (index, both) in out.hosts.chunks(2).enumerate() {
        let [first, later] = both else { panic!("two fragments") };
        assert_eq!((first.len(), first[6..8].to_vec()), (1428, vec![0x20, 0]));
        assert_eq!((later.len(), later[6..8].to_vec()), (20 + 600, vec![0, 176]));
        assert_eq!(first[4..6], later[4..6], "one identification");
        let datagram = [&first[20..], &later[20..]].concat();
        assert_eq!(datagram[4..6], 2008_u16.to_be_bytes());
        let value = u8::try_from(index).unwrap() + 1;
        assert!(datagram[8..].iter().all(|byte| *byte == value));
        let length = u16::try_from(datagram.len()).unwrap().to_be_bytes();
        let pseudo = [&first[12..20], &[0, UDP], &length, &datagram].concat();
        assert_eq!(srd_card::checksum::of(&pseudo), 0, "the checksum is complete");
    }
}

#[test]
fn datagrams_of_a_super_packet_that_may_not_be_fragmented_cause_an_error() {
    let (out, dropped) = send(DONT_FRAGMENT);
    assert_eq!((out.hosts.len(), dropped), (0, 2));
    let [error] = &out.guests[..] else { panic!("one error") };
    assert_eq!((&error[20..22], &error[26..28]), (&[3, 4][..], &1428_u16.to_be_bytes()[..]));
}

/// The network passes packets of 1,428 bytes to each host, and larger ones to some hosts. In an
/// earlier version, one host with a small size made packets to all other hosts small.
#[test]
fn regression_a_packet_has_to_fit_its_own_host_only() {
    let takes = |bytes| Out { other_takes: Some(bytes), ..Out::default() };
    let (out, dropped) = send_with(DONT_FRAGMENT, takes(2028));
    assert_eq!((out.guests.len(), out.hosts.len(), dropped), (0, 1, 0), "a whole super-packet");
    let (out, dropped) = send_with(DONT_FRAGMENT, takes(2027));
    assert_eq!((out.hosts.len(), dropped), (0, 2));
    let [error] = &out.guests[..] else { panic!("one error") };
    assert_eq!((&error[20..22], &error[26..28]), (&[3, 4][..], &2027_u16.to_be_bytes()[..]));
}
