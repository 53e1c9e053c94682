use super::*;
use crate::meta::offload::NEEDS_CHECKSUM;
use crate::rewrite::checksum;
use alloc::vec;

const MAC: Mac = [2, 1, 2, 3, 4, 5];
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 10);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 10);
const BROADCAST: Mac = [0xff; 6];

fn link() -> Link {
    let network = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0);
    let resolver = Ipv4Addr::new(10, 0, 0, 2);
    Link { mac: MAC, ipv4: Some((OWN, 24)), resolver, ipv6: Some((network, 64)) }
}

fn header(to: Mac, from: Mac, kind: u16) -> Ethernet {
    [&to[..], &from, &kind.to_be_bytes()].concat().try_into().unwrap()
}

fn send(link: &Link, to: Mac, kind: u16, bytes: &[u8]) -> FrameOutcome {
    link.from_guest(&header(to, MAC, kind), [&[0; OFFLOAD_BYTES][..], bytes].concat())
}

fn udp(source: Ipv4Addr, to: Ipv4Addr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(28 + payload.len()).unwrap();
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet.extend(source.octets());
    packet.extend(to.octets());
    packet.extend([ports.0, ports.1, total - 20, 0].iter().flat_map(|word| word.to_be_bytes()));
    packet.extend(payload);
    packet
}

fn arp(operation: u8, mac: Mac, target: Ipv4Addr) -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, operation];
    let parts = [&head[..], &mac, &OWN.octets(), &[0; 6], &target.octets()];
    parts.concat()
}

#[test]
fn a_packet_for_the_gateway_comes_to_the_card_without_padding() {
    let packet = udp(OWN, [10, 0, 1, 11].into(), (5, 6), b"x");
    let padded = [&packet[..], &[7; 20]].concat();
    let wanted = [&[0; OFFLOAD_BYTES][..], &packet].concat();
    assert_eq!(send(&link(), GATEWAY, IPV4, &padded), FrameOutcome::Packet(wanted));
}

#[test]
fn a_checksum_that_is_left_to_hardware_lies_where_the_packet_has_it() {
    let packet = udp(OWN, [10, 0, 1, 11].into(), (5, 6), b"x");
    // The flags, and the offset at which the bytes of the checksum begin, counted from the Ethernet
    // header on.
    let begin = u16::try_from(ETHERNET_BYTES + 20).unwrap().to_le_bytes();
    let mut offload = [0; OFFLOAD_BYTES];
    offload[0] = NEEDS_CHECKSUM;
    offload[6..8].copy_from_slice(&begin);
    let frame = [&offload[..], &packet].concat();
    let sent = link().from_guest(&header(GATEWAY, MAC, IPV4), frame.clone());
    let FrameOutcome::Packet(sent) = sent else { panic!("{sent:?}") };
    assert_eq!(sent[6..8], 20_u16.to_le_bytes());
    // In the other direction, a device with checksum offload gets the frame as it was.
    let mut frames = Vec::new();
    assert!(link().to_guest(sent, Accepts::ALL, |frame| frames.push(frame)));
    let [(ethernet, back)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((ethernet, &back[4..]), (&header(MAC, GATEWAY, IPV4), &frame[4..]));
    assert_eq!(back[0], NEEDS_CHECKSUM);
    // An offset inside of the Ethernet header is invalid.
    let mut wrong = frame;
    wrong[6..8].copy_from_slice(&13_u16.to_le_bytes());
    let sent = link().from_guest(&header(GATEWAY, MAC, IPV4), wrong);
    assert_eq!(sent, FrameOutcome::Drop(Cause::Malformed));
}

#[test]
fn a_device_that_adds_up_no_checksums_gets_them_filled_in() {
    let mut packet = udp(OWN, [10, 0, 1, 11].into(), (5, 6), b"x");
    let sum = checksum::of(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    // The checksum field contains the sum of the pseudo-header.
    let pseudo = !checksum::of(&[&packet[12..20], &[0, 17, 0, 9]].concat());
    packet[26..28].copy_from_slice(&pseudo.to_be_bytes());
    let mut offload = [0; OFFLOAD_BYTES];
    offload[0] = NEEDS_CHECKSUM;
    offload[6..8].copy_from_slice(&20_u16.to_le_bytes());
    offload[8..10].copy_from_slice(&6_u16.to_le_bytes());
    let mut frames = Vec::new();
    let none = Accepts::default();
    assert!(link().to_guest([&offload[..], &packet].concat(), none, |frame| frames.push(frame)));
    let [(_, frame)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(frame[..2], [0, 0], "nothing is left to hardware");
    let bytes = &frame[OFFLOAD_BYTES..];
    let pseudo = [&bytes[12..20], &[0, 17, 0, 9], &bytes[20..]].concat();
    assert_eq!(checksum::of(&pseudo), 0, "{bytes:?}");
    assert!(!link().to_guest(vec![1; 5], none, |_| panic!("no packet")));
}

#[test]
fn frames_of_others_for_others_and_of_other_kinds_are_dropped() {
    let link = link();
    let packet = udp(OWN, [10, 0, 1, 11].into(), (5, 6), b"x");
    let frame = [&[0; OFFLOAD_BYTES][..], &packet].concat();
    let from = header(GATEWAY, [2, 1, 2, 3, 4, 6], IPV4);
    assert_eq!(link.from_guest(&from, frame), FrameOutcome::Drop(Cause::Source));
    for to in [BROADCAST, [1, 0, 0x5e, 0, 0, 1], MAC] {
        assert_eq!(send(&link, to, IPV4, &packet), FrameOutcome::Drop(Cause::Destination));
    }
    for kind in [0x8100, 0x88cc, 60] {
        assert_eq!(send(&link, GATEWAY, kind, &packet), FrameOutcome::Drop(Cause::Type));
    }
    // Packets of the wrong version, and packets that are shorter than their length field.
    assert_eq!(send(&link, GATEWAY, IPV6, &packet), FrameOutcome::Drop(Cause::Malformed));
    for cut in 0..packet.len() {
        assert_eq!(
            send(&link, GATEWAY, IPV4, &packet[..cut]),
            FrameOutcome::Drop(Cause::Malformed)
        );
    }
    let short = link.from_guest(&header(GATEWAY, MAC, IPV4), vec![0; OFFLOAD_BYTES - 1]);
    assert_eq!(short, FrameOutcome::Drop(Cause::Malformed));
}

#[test]
fn every_address_of_the_subnet_and_of_services_is_at_the_gateway() {
    let link = link();
    for target in [[10, 0, 1, 1], [10, 0, 1, 200], [169, 254, 169, 254]] {
        let sent = send(&link, BROADCAST, ARP, &arp(1, MAC, target.into()));
        let FrameOutcome::Answer((ethernet, answer)) = sent else { panic!("{target:?}: {sent:?}") };
        assert_eq!(ethernet, header(MAC, GATEWAY, ARP));
        let answer = &answer[OFFLOAD_BYTES..];
        assert_eq!(answer[6..8], [0, 2], "a reply");
        assert_eq!((&answer[8..14], &answer[14..18]), (&GATEWAY[..], &target[..]));
        assert_eq!((&answer[18..24], &answer[24..28]), (&MAC[..], &OWN.octets()[..]));
    }
    // Requests for the guest's own address, for an address outside of the subnet, and from another
    // hardware address; and a reply.
    for question in [
        arp(1, MAC, OWN),
        arp(1, MAC, [10, 0, 2, 1].into()),
        arp(1, [2, 9, 9, 9, 9, 9], [10, 0, 1, 1].into()),
        arp(2, MAC, [10, 0, 1, 1].into()),
    ] {
        assert_eq!(send(&link, BROADCAST, ARP, &question), FrameOutcome::Nothing);
    }
    let v6_only = Link { ipv4: None, ..link };
    let question = arp(1, MAC, [10, 0, 1, 1].into());
    assert_eq!(send(&v6_only, BROADCAST, ARP, &question), FrameOutcome::Nothing);
}

/// E3: a guest probes for its secondary address, and announces it (RFC 5227). In an earlier
/// version, both were answered, so that the guest took the address for one of another host.
#[test]
fn regression_probes_and_announcements_of_secondary_addresses_get_no_answer() {
    let secondary = Ipv4Addr::new(10, 0, 1, 20);
    let from = |source: Ipv4Addr| {
        let mut request = arp(1, MAC, secondary);
        request[14..18].copy_from_slice(&source.octets());
        request
    };
    for source in [Ipv4Addr::UNSPECIFIED, secondary] {
        assert_eq!(send(&link(), BROADCAST, ARP, &from(source)), FrameOutcome::Nothing);
    }
    // A question from the primary address is an ordinary one.
    assert!(matches!(send(&link(), BROADCAST, ARP, &from(OWN)), FrameOutcome::Answer(_)));
}

/// Builds a client's message with its type, the requested address, and the server.
fn client(kind: u8, mac: Mac, wanted: Option<Ipv4Addr>, server: Option<Ipv4Addr>) -> Vec<u8> {
    let mut message = vec![1, 1, 6, 0, 0xaa, 0xbb, 0xcc, 0xdd];
    message.resize(28, 0);
    message.extend(mac);
    message.resize(236, 0);
    message.extend([99, 130, 83, 99, 53, 1, kind]);
    for (option, address) in [(50, wanted), (54, server)] {
        if let Some(address) = address {
            message.extend([option, 4]);
            message.extend(address.octets());
        }
    }
    message.push(255);
    udp(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, (68, 67), &message)
}

/// Returns the options of an answer, by their numbers.
fn options(answer: &[u8]) -> alloc::collections::BTreeMap<u8, Vec<u8>> {
    let mut rest = &answer[28 + 240..];
    let mut found = alloc::collections::BTreeMap::new();
    while let [kind, length, more @ ..] = rest {
        if *kind == 255 {
            break;
        }
        let (value, after) = more.split_at((*length).into());
        found.insert(*kind, value.to_vec());
        rest = after;
    }
    found
}

#[test]
fn a_guest_learns_its_own_address_and_no_other() {
    let link = link();
    let ask = |packet: &[u8]| match send(&link, BROADCAST, IPV4, packet) {
        FrameOutcome::Answer((ethernet, answer)) => {
            assert_eq!(ethernet, header(MAC, GATEWAY, IPV4));
            Some(answer[OFFLOAD_BYTES..].to_vec())
        }
        FrameOutcome::Nothing => None,
        other => panic!("{other:?}"),
    };
    let (router, other) = (Ipv4Addr::new(10, 0, 1, 1), Ipv4Addr::new(10, 0, 1, 77));
    let [discover, request] = [1, 3];
    for (message, kind, yours) in [
        (client(discover, MAC, None, None), 2, OWN),
        (client(discover, MAC, Some(other), None), 2, OWN),
        (client(request, MAC, Some(OWN), Some(router)), 5, OWN),
        (client(request, MAC, Some(other), Some(router)), 6, Ipv4Addr::UNSPECIFIED),
        (client(8, MAC, None, None), 5, Ipv4Addr::UNSPECIFIED),
    ] {
        let answer = ask(&message).unwrap();
        assert_eq!(checksum::of(&answer[..20]), 0);
        assert_eq!((&answer[12..16], &answer[20..24]), (&router.octets()[..], &[0, 67, 0, 68][..]));
        assert_eq!(answer[28 + 4..28 + 8], [0xaa, 0xbb, 0xcc, 0xdd], "the client's number");
        assert_eq!(answer[28 + 16..28 + 20], yours.octets());
        let options = options(&answer);
        assert_eq!(options[&53], [kind]);
        if kind != 6 {
            assert_eq!(
                (&options[&1][..], &options[&3]),
                (&[255, 255, 255, 0][..], &router.octets().to_vec())
            );
            assert_eq!(
                (&options[&6][..], &options[&26][..]),
                (&[10, 0, 0, 2][..], &9001_u16.to_be_bytes()[..])
            );
            assert_eq!(options[&12], b"ip-10-0-1-10");
        }
    }
    // No answer: a message from another hardware address, one for another server, a release, and a
    // truncated message.
    let discover = client(discover, MAC, None, None);
    assert_eq!(ask(&client(1, [2, 9, 9, 9, 9, 9], None, None)), None);
    assert_eq!(ask(&client(3, MAC, Some(OWN), Some(other))), None);
    assert_eq!(ask(&client(7, MAC, None, None)), None);
    assert_eq!(ask(&udp(OWN, Ipv4Addr::BROADCAST, (68, 67), &discover[28..200])), None);
    // A packet to another port or address is an ordinary packet.
    let elsewhere = udp(OWN, [10, 0, 1, 9].into(), (68, 67), b"x");
    assert!(matches!(send(&link, GATEWAY, IPV4, &elsewhere), FrameOutcome::Packet(_)));
}

fn icmpv6(from: Ipv6Addr, to: Ipv6Addr, hops: u8, message: &[u8]) -> Vec<u8> {
    let length = u8::try_from(message.len()).unwrap();
    let mut packet = vec![0x60, 0, 0, 0, 0, length, 58, hops];
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(message);
    packet
}

fn solicit(target: Ipv6Addr) -> Vec<u8> {
    [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat()
}

#[test]
fn neighbours_and_routers_of_ipv6_are_at_the_gateway() {
    let link = link();
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
    let neighbour = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 11);
    let send = |packet: &[u8]| send(&link, [0x33, 0x33, 0, 0, 0, 2], IPV6, packet);
    let answer = |packet: &[u8]| match send(packet) {
        FrameOutcome::Answer((_, answer)) => answer[OFFLOAD_BYTES..].to_vec(),
        other => panic!("{other:?}"),
    };
    let said = answer(&icmpv6(OWN_V6, all, 255, &solicit(neighbour)));
    assert_eq!((said[7], said[40]), (255, 136), "an advertisement, of the link itself");
    assert_eq!((&said[8..24], &said[24..40]), (&neighbour.octets()[..], &OWN_V6.octets()[..]));
    assert_eq!(said[said.len() - 6..], GATEWAY);
    let said = answer(&icmpv6(OWN_V6, all, 255, &[133, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!((said[40], &said[46..48]), (134, &1800_u16.to_be_bytes()[..]));
    // Requests without an answer: an address that the guest probes, its own address, an address
    // outside of the subnet.
    let elsewhere = Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 1);
    for (from, target) in
        [(Ipv6Addr::UNSPECIFIED, neighbour), (OWN_V6, OWN_V6), (OWN_V6, elsewhere)]
    {
        assert_eq!(send(&icmpv6(from, all, 255, &solicit(target))), FrameOutcome::Nothing);
    }
    // A packet that a router has forwarded is no neighbour discovery. As an ordinary multicast
    // packet, it is dropped.
    let passed_on = icmpv6(OWN_V6, all, 64, &solicit(neighbour));
    assert_eq!(send(&passed_on), FrameOutcome::Drop(Cause::Destination));
    let v4_only = Link { ipv6: None, ..link.clone() };
    let asks = icmpv6(OWN_V6, all, 255, &[133, 0, 0, 0, 0, 0, 0, 0]);
    let sent = v4_only.from_guest(
        &header([0x33, 0x33, 0, 0, 0, 2], MAC, IPV6),
        [&[0; OFFLOAD_BYTES][..], &asks].concat(),
    );
    assert_eq!(sent, FrameOutcome::Nothing);
}

/// No bytes of a guest cause a panic, and truncated requests get no answer.
#[test]
fn no_bytes_of_a_guest_do_harm() {
    let link = link();
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
    let good = [
        (IPV4, client(1, MAC, None, None)),
        (IPV4, client(3, MAC, Some(OWN), None)),
        (ARP, arp(1, MAC, [10, 0, 1, 1].into())),
        (IPV6, icmpv6(OWN_V6, all, 255, &solicit(OWN_V6))),
        (IPV6, icmpv6(OWN_V6, all, 255, &[133, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 1, 2, 3, 4, 5])),
    ];
    let mut random = 0x9e37_79b9_u32;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random
    };
    for (kind, bytes) in good {
        for _ in 0..20_000 {
            let mut frame = [&[0; OFFLOAD_BYTES][..], &bytes].concat();
            for _ in 0..next() % 4 {
                let at = next() as usize % frame.len();
                frame[at] = next().to_le_bytes()[0];
            }
            frame.truncate(next() as usize % (frame.len() + 1));
            let sent = link.from_guest(&header(BROADCAST, MAC, kind), frame);
            if let FrameOutcome::Packet(packet) = sent {
                panic!("{packet:?} is for many");
            }
        }
    }
}
