use super::*;
use crate::rewrite::checksum;
use crate::testing::{framed, v4};
use std::vec::Vec;

const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 5);
const GATEWAY: NatGatewayId = NatGatewayId(1);

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

fn tcp(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    segment(SYN, source, destination, ports)
}

fn segment(flags: u8, source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut bytes = v4(protocol::TCP, ports, b"data");
    bytes[33] = flags;
    bytes[12..16].copy_from_slice(&source);
    bytes[16..20].copy_from_slice(&destination);
    (bytes[10], bytes[11]) = (0, 0);
    let sum = checksum::of(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    let sum = checksum::transport(&bytes[12..20], protocol::TCP, &bytes[20..]);
    bytes[36..38].copy_from_slice(&sum.to_be_bytes());
    framed(&bytes)
}

fn check(frame: &[u8]) {
    let bytes = &frame[OFFLOAD_BYTES..];
    assert_eq!(checksum::of(&bytes[..20]), 0);
    assert_eq!(checksum::transport(&bytes[12..20], protocol::TCP, &bytes[20..]), 0);
}

fn back(eni: u64, port: u16) -> NatConnection {
    NatConnection { nat: GATEWAY, eni: EniId(eni), port }
}

fn source(frame: &[u8]) -> (IpAddr, u16) {
    let read = Read::frame(frame).unwrap();
    (read.packet.source, read.packet.ports.unwrap().0)
}

#[test]
fn an_answer_finds_its_way_back_with_right_checksums() {
    let mut nat = Nat::default();
    let mut out = tcp([10, 0, 2, 10], [8, 8, 8, 8], (40_000, 443));
    nat.leave(at(0), GATEWAY, PUBLIC, EniId(7), &mut out).unwrap();
    check(&out);
    assert_eq!(source(&out), (PUBLIC.into(), 40_000), "the guest's own port");
    let mut back = tcp([8, 8, 8, 8], PUBLIC.octets(), (443, 40_000));
    assert_eq!(nat.arrive(at(1), &mut back), Some(self::back(7, 40_000)));
    check(&back);
    let read = Read::frame(&back).unwrap();
    assert_eq!(read.packet.destination, IpAddr::from([10, 0, 2, 10]));
    assert_eq!(read.packet.ports, Some((443, 40_000)));
    // Another remote address, and another port of the same address, do not belong to the
    // connection.
    for (from, port) in [([8, 8, 4, 4], 443), ([8, 8, 8, 8], 444)] {
        let mut other = tcp(from, PUBLIC.octets(), (port, 40_000));
        assert_eq!(nat.arrive(at(1), &mut other), None);
    }
    let mut late = tcp([8, 8, 8, 8], PUBLIC.octets(), (443, 40_000));
    assert_eq!(nat.arrive(at(352), &mut late), None, "idle for more than 350 s");
    assert!(nat.is_empty());
}

#[test]
fn two_guests_with_one_address_and_port_get_two_ports() {
    let mut nat = Nat::default();
    let mut ports = Vec::new();
    for eni in [1, 2] {
        let mut out = tcp([10, 0, 2, 10], [8, 8, 8, 8], (40_000, 443));
        nat.leave(at(0), GATEWAY, PUBLIC, EniId(eni), &mut out).unwrap();
        ports.push(source(&out).1);
    }
    assert_ne!(ports[0], ports[1]);
    for (eni, port) in [(1, ports[0]), (2, ports[1])] {
        let mut back = tcp([8, 8, 8, 8], PUBLIC.octets(), (443, port));
        assert_eq!(nat.arrive(at(1), &mut back), Some(self::back(eni, port)));
    }
}

#[test]
fn an_echo_keeps_its_identifier_apart_from_another_guest_s() {
    let mut nat = Nat::default();
    let echo = |kind: u8, source: [u8; 4], destination: [u8; 4], id: u16| {
        let mut frame = tcp(source, destination, (0, 0));
        frame[OFFLOAD_BYTES + 9] = protocol::ICMP;
        let icmp = &mut frame[OFFLOAD_BYTES + 20..];
        icmp[..8].copy_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 1]);
        icmp[4..6].copy_from_slice(&id.to_be_bytes());
        frame
    };
    let id_of = |frame: &[u8]| u16_at(frame, OFFLOAD_BYTES + 24);
    let mut ids = Vec::new();
    for eni in [1, 2] {
        let mut out = echo(8, [10, 0, 2, 10], [8, 8, 8, 8], 77);
        nat.leave(at(0), GATEWAY, PUBLIC, EniId(eni), &mut out).unwrap();
        ids.push(id_of(&out));
    }
    assert_ne!(ids[0], ids[1]);
    let mut back = echo(0, [8, 8, 8, 8], PUBLIC.octets(), ids[1]);
    assert_eq!(nat.arrive(at(0), &mut back), Some(self::back(2, 0)));
    assert_eq!(id_of(&back), 77);
}

#[test]
fn connections_that_are_over_make_room_and_a_full_address_refuses() {
    let mut nat = Nat::default();
    let mut refused = 0;
    for n in 0..3000_u32 {
        let eni = EniId(n.into());
        let mut out = tcp([10, 0, 2, 10], [8, 8, 8, 8], (40_000, 443));
        refused += u32::from(nat.leave(at(0), GATEWAY, PUBLIC, eni, &mut out).is_err());
    }
    assert_eq!(nat.len(), usize::from(TRIES), "one port that all ask for");
    assert_eq!(refused, 3000 - u32::from(TRIES));
    for n in 0..200_u16 {
        let mut out = tcp([10, 0, 2, 10], [8, 8, 8, 9], (n, 443));
        nat.leave(at(400), GATEWAY, PUBLIC, EniId(1), &mut out).unwrap();
    }
    assert_eq!(nat.len(), 200, "the old ones are gone");
}
#[test]
fn regression_guests_that_ask_everybody_leave_others_their_part() {
    let mut nat = Nat::default();
    let mut leave = |eni: u64, n: usize, seconds| {
        let [_, a, b, c] = u32::try_from(n).unwrap().to_be_bytes();
        let mut out = tcp([10, 0, 2, 10], [8, a, b, c], (40_000, 443));
        nat.leave(at(seconds), GATEWAY, PUBLIC, EniId(eni), &mut out)
    };
    for n in 0..ENTRIES_OF_ONE_MAX {
        leave(1, n, 0).unwrap();
    }
    assert_eq!(leave(1, ENTRIES_OF_ONE_MAX, 1), Err(NatError::NoPort));
    leave(1, 0, 1).unwrap();
    for eni in 2..=4 {
        (0..ENTRIES_OF_ONE_MAX).for_each(|n| leave(eni, n, 1).unwrap());
    }
    // Four interfaces that have used up the table share it with a fifth one. Their oldest
    // connections are replaced until all have the same number.
    let part = ENTRIES_MAX / 5;
    (0..part).for_each(|n| leave(5, n, 2).unwrap());
    assert_eq!(leave(5, part, 2), Err(NatError::NoPort), "it has as many as the others");
    leave(5, 0, 2).unwrap();
    leave(6, 0, 2).unwrap();
    leave(1, ENTRIES_OF_ONE_MAX, 351).unwrap();
    leave(5, 0, 351).unwrap();
    assert!(nat.len() <= ENTRIES_MAX);
}

/// Each interface gets its part of the ports to a destination; a single interface may use all of
/// them.
#[test]
fn regression_a_guest_that_takes_all_ports_to_a_destination_leaves_others_their_part() {
    let mut nat = Nat::default();
    let ports_of =
        |nat: &Nat, eni| nat.by_inside.keys().filter(|inside| inside.eni == EniId(eni)).count();
    let leave = |nat: &mut Nat, eni: u64, last: u8, port: u16, seconds| {
        let mut out = tcp([10, 0, 2, last], [8, 8, 8, 8], (port, 443));
        nat.leave(at(seconds), GATEWAY, PUBLIC, EniId(eni), &mut out)
    };
    for port in PORT_FIRST..PORT_FIRST + PORTS {
        leave(&mut nat, 1, 10, port, 0).unwrap();
    }
    assert_eq!(ports_of(&nat, 1), usize::from(PORTS), "as EC2 documents");
    assert_eq!(leave(&mut nat, 1, 11, PORT_FIRST, 1), Err(NatError::NoPort));
    let wanted = 5_000;
    (0..wanted).for_each(|port| leave(&mut nat, 2, 10, port, 2).unwrap());
    assert_eq!(ports_of(&nat, 2), usize::from(wanted));
    // The connections of the second interface stay, whatever the first one sends.
    for port in PORT_FIRST..PORT_FIRST + PORTS {
        let _ = leave(&mut nat, 1, 10, port, 3);
    }
    assert_eq!(ports_of(&nat, 2), usize::from(wanted));
    assert_eq!(nat.len(), usize::from(PORTS));
    let counted: u16 = nat.to_one.values().sum();
    assert_eq!(counted, PORTS);
    let all: alloc::vec::Vec<Inside> = nat.by_inside.keys().copied().collect();
    all.into_iter().for_each(|inside| nat.forget(inside));
    assert!(nat.to_one.is_empty() && nat.by_outside.is_empty());
}

#[test]
fn regression_a_gateway_that_was_taken_away_passes_no_answers() {
    let mut nat = Nat::default();
    let other = NatGatewayId(2);
    let others = Ipv4Addr::new(198, 51, 100, 6);
    for (gateway, public) in [(GATEWAY, PUBLIC), (other, others)] {
        let mut out = tcp([10, 0, 2, 10], [8, 8, 8, 8], (40_000, 443));
        nat.leave(at(0), gateway, public, EniId(7), &mut out).unwrap();
    }
    let mut answer = |publics: &[(NatGatewayId, Ipv4Addr)], to: Ipv4Addr| {
        nat.keep(&publics.iter().copied().collect());
        let mut back = tcp([8, 8, 8, 8], to.octets(), (443, 40_000));
        nat.arrive(at(1), &mut back).map(|back| back.nat)
    };
    assert_eq!(answer(&[(GATEWAY, PUBLIC), (other, others)], PUBLIC), Some(GATEWAY));
    assert_eq!(answer(&[(other, PUBLIC)], PUBLIC), None, "the address is another's now");
    assert_eq!(answer(&[(other, PUBLIC)], others), None, "the gateway has another");
}

/// Amazon VPC User Guide, *Compare NAT gateways and NAT instances*: if the interface continues a
/// connection after its timeout, it gets a reset.
#[test]
fn regression_a_connection_that_was_idle_for_too_long_is_reset() {
    let mut nat = Nat::default();
    let (inside, far, ports) = ([10, 0, 2, 10], [8, 8, 8, 8], (40_000, 443));
    let mut leave = |seconds, flags| {
        let mut frame = segment(flags, inside, far, ports);
        let left = nat.leave(at(seconds), GATEWAY, PUBLIC, EniId(7), &mut frame);
        (left, frame)
    };
    leave(0, SYN).0.unwrap();
    leave(1, ACK).0.unwrap();
    leave(350, ACK).0.unwrap();
    let (refused, frame) = leave(700, ACK);
    assert_eq!(refused, Err(NatError::NoConnection), "idle for 350 s");
    assert_eq!(source(&frame).0, IpAddr::from(inside), "unchanged");
    // The reset comes from the other end, with the sequence number that the segment acknowledges.
    let answer = reset(&frame).unwrap();
    check(&answer);
    let read = Read::frame(&answer).unwrap();
    assert_eq!((read.packet.source, read.packet.destination), (far.into(), inside.into()));
    assert_eq!(read.packet.ports, Some((443, 40_000)));
    let (asked, tcp) = (&frame[OFFLOAD_BYTES + 20..], &answer[OFFLOAD_BYTES + 20..]);
    assert_eq!((&tcp[4..8], tcp[13]), (&asked[8..12], RST));
    assert_eq!(reset(&answer), None, "a reset is not answered");
    // If the segment has no acknowledgement, the reset acknowledges all of its data.
    let answer = reset(&segment(0, inside, far, ports)).unwrap();
    assert_eq!(answer[OFFLOAD_BYTES + 28..][..6], [0, 0, 0, 5, 0x50, RST | ACK]);
    // A SYN with the same ports begins a new connection.
    assert_eq!(leave(701, ACK).0, Err(NatError::NoConnection));
    leave(702, SYN).0.unwrap();
    leave(703, ACK).0.unwrap();
}

#[test]
fn a_segment_of_no_connection_is_reset_and_a_datagram_begins_one() {
    let mut nat = Nat::default();
    let mut frame = segment(ACK, [10, 0, 2, 10], [8, 8, 8, 8], (40_000, 443));
    let left = nat.leave(at(0), GATEWAY, PUBLIC, EniId(7), &mut frame);
    assert_eq!(left, Err(NatError::NoConnection));
    let mut query = framed(&v4(protocol::UDP, (40_000, 53), b"query"));
    nat.leave(at(0), GATEWAY, PUBLIC, EniId(7), &mut query).unwrap();
    let mut later = framed(&v4(protocol::UDP, (40_000, 53), b"query"));
    nat.leave(at(1000), GATEWAY, PUBLIC, EniId(7), &mut later).unwrap();
    assert_eq!(nat.len(), 1);
}

/// Fragments of a datagram with a checksum.
fn fragments(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> [Vec<u8>; 2] {
    let mut whole = v4(protocol::UDP, ports, &[7; 40]);
    whole[12..16].copy_from_slice(&source);
    whole[16..20].copy_from_slice(&destination);
    let sum = checksum::transport(&whole[12..20], protocol::UDP, &whole[20..]);
    whole[26..28].copy_from_slice(&sum.to_be_bytes());
    let part = |offset: u8, more: u8, bytes: &[u8]| {
        let mut part = [&whole[..20], bytes].concat();
        let total = u16::try_from(part.len()).unwrap();
        part[2..4].copy_from_slice(&total.to_be_bytes());
        (part[6], part[7]) = (more, offset);
        (part[10], part[11]) = (0, 0);
        let sum = checksum::of(&part[..20]);
        part[10..12].copy_from_slice(&sum.to_be_bytes());
        framed(&part)
    };
    [part(0, 0x20, &whole[20..44]), part(3, 0, &whole[44..])]
}

/// Checks the checksum of the datagram that fragments form.
fn check_whole(parts: &[Vec<u8>; 2]) {
    let [first, last] = parts.each_ref().map(|part| &part[OFFLOAD_BYTES..]);
    assert_eq!((checksum::of(&first[..20]), checksum::of(&last[..20])), (0, 0));
    assert_eq!(first[12..20], last[12..20]);
    let datagram = [&first[20..], &last[20..]].concat();
    assert_eq!(checksum::transport(&first[12..20], protocol::UDP, &datagram), 0);
}

/// Fragments of UDP pass, and those of TCP and ICMP do not: Amazon VPC User Guide, *Compare NAT
/// gateways and NAT instances*.
#[test]
fn fragments_of_udp_pass_both_ways_and_those_of_tcp_and_icmp_do_not() {
    let mut nat = Nat::default();
    let mut parts = fragments([10, 0, 2, 10], [8, 8, 8, 8], (500, 53));
    let mut lone = parts[1].clone();
    let left = nat.leave(at(0), GATEWAY, PUBLIC, EniId(7), &mut lone);
    assert_eq!(left, Err(NatError::Fragment), "its first one is not known");
    for part in &mut parts {
        nat.leave(at(0), GATEWAY, PUBLIC, EniId(7), part).unwrap();
    }
    check_whole(&parts);
    let read = Read::frame(&parts[0]).unwrap();
    let (port, _) = read.packet.ports_in_sight(&parts[0][OFFLOAD_BYTES..]).unwrap();
    let mut answer = fragments([8, 8, 8, 8], PUBLIC.octets(), (53, port));
    for part in &mut answer {
        assert_eq!(nat.arrive(at(1), part), Some(back(7, port)));
        let read = Read::frame(part).unwrap();
        assert_eq!(read.packet.destination, IpAddr::from([10, 0, 2, 10]));
    }
    check_whole(&answer);
    for number in [protocol::TCP, protocol::ICMP] {
        for part in &mut fragments([10, 0, 2, 10], [8, 8, 8, 8], (500, 53)) {
            part[OFFLOAD_BYTES + 9] = number;
            let left = nat.leave(at(0), GATEWAY, PUBLIC, EniId(7), part);
            assert_eq!(left, Err(NatError::Fragment));
        }
    }
}

/// A guest that sends, or receives, many first fragments does not displace first fragments of other
/// guests.
#[test]
fn regression_first_fragments_of_a_guest_leave_those_of_others() {
    let mut nat = Nat::default();
    let (near, far) = ([10, 0, 2, 10], [8, 8, 8, 8]);
    let [mut first, mut last] = fragments(near, far, (500, 53));
    nat.leave(at(0), GATEWAY, PUBLIC, EniId(1), &mut first).unwrap();
    let with_id = |mut frame: Vec<u8>, id: u16| {
        frame[OFFLOAD_BYTES + 4..][..2].copy_from_slice(&id.to_be_bytes());
        frame
    };
    let read = Read::frame(&first).unwrap();
    let (port, _) = read.packet.ports_in_sight(&first[OFFLOAD_BYTES..]).unwrap();
    let [mut answer, mut last_answer] = fragments(far, PUBLIC.octets(), (53, port));
    assert_eq!(nat.arrive(at(0), &mut answer), Some(back(1, port)));
    for id in 1..4000 {
        let [greedy, _] = fragments(near, [9, 9, 9, 9], (500, 53));
        let mut greedy = with_id(greedy, id);
        nat.leave(at(1), GATEWAY, PUBLIC, EniId(2), &mut greedy).unwrap();
        let read = Read::frame(&greedy).unwrap();
        let (port, _) = read.packet.ports_in_sight(&greedy[OFFLOAD_BYTES..]).unwrap();
        let [answer, _] = fragments([9, 9, 9, 9], PUBLIC.octets(), (53, port));
        assert_eq!(nat.arrive(at(1), &mut with_id(answer, id)), Some(back(2, port)));
    }
    nat.leave(at(2), GATEWAY, PUBLIC, EniId(1), &mut last).unwrap();
    assert_eq!(nat.arrive(at(2), &mut last_answer), Some(back(1, port)));
    assert!(nat.leaving.len() <= 1024 && nat.arriving.len() <= 1024);
    let bytes = nat.export();
    assert_eq!(Nat::import(&bytes).unwrap().export(), bytes);
}

/// Builds an ICMP error that quotes a packet.
fn error(source: [u8; 4], destination: [u8; 4], quoted: &[u8]) -> Vec<u8> {
    let mut bytes = v4(protocol::ICMP, (0, 0), &[]);
    bytes.truncate(20);
    bytes.extend_from_slice(&[3, 3, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(quoted);
    bytes[12..16].copy_from_slice(&source);
    bytes[16..20].copy_from_slice(&destination);
    let total = u16::try_from(bytes.len()).unwrap();
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    (bytes[10], bytes[11]) = (0, 0);
    let sum = checksum::of(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    let sum = checksum::of(&bytes[20..]);
    bytes[22..24].copy_from_slice(&sum.to_be_bytes());
    framed(&bytes)
}

fn udp(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut bytes = v4(protocol::UDP, ports, b"query");
    bytes[12..16].copy_from_slice(&source);
    bytes[16..20].copy_from_slice(&destination);
    (bytes[10], bytes[11]) = (0, 0);
    let sum = checksum::of(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    let sum = checksum::transport(&bytes[12..20], protocol::UDP, &bytes[20..]);
    bytes[26..28].copy_from_slice(&sum.to_be_bytes());
    framed(&bytes)
}

/// An internet gateway translated the outer addresses only, so the sender of the quoted packet did
/// not recognise its packet.
#[test]
fn regression_an_internet_gateway_translates_what_an_error_quotes() {
    let (inside, far, router) = ([10, 0, 2, 10], [8, 8, 8, 8], [9, 9, 9, 9]);
    let quoted = |frame: &[u8]| frame[OFFLOAD_BYTES..].to_vec();
    for make in [tcp as fn([u8; 4], [u8; 4], (u16, u16)) -> Vec<u8>, udp] {
        let translated = |mut frame: Vec<u8>, end, addresses| {
            let read = Read::frame(&frame).unwrap();
            readdress(&read, &mut frame[OFFLOAD_BYTES..], end, addresses);
            frame
        };
        let (own, left) = (make(inside, far, (5, 6)), make(PUBLIC.octets(), far, (5, 6)));
        let arriving = error(router, inside, &quoted(&left));
        let arriving = translated(arriving, QuotedEnd::Source, (PUBLIC, inside.into()));
        assert_eq!(arriving, error(router, inside, &quoted(&own)));
        let (answer, arrived) = (make(far, PUBLIC.octets(), (6, 5)), make(far, inside, (6, 5)));
        let leaving = error(PUBLIC.octets(), far, &quoted(&arrived));
        let leaving = translated(leaving, QuotedEnd::Destination, (inside.into(), PUBLIC));
        assert_eq!(leaving, error(PUBLIC.octets(), far, &quoted(&answer)));
        // Other packets stay as they are.
        for frame in [own.clone(), error(router, inside, &quoted(&answer))] {
            assert_eq!(
                translated(frame.clone(), QuotedEnd::Source, (PUBLIC, inside.into())),
                frame
            );
        }
    }
}

/// After translation, an ICMP error quotes, byte for byte, the packet as its sender sent it.
#[test]
fn regression_an_error_is_translated_both_ways_with_what_it_quotes() {
    let (inside, far, router) = ([10, 0, 2, 10], [8, 8, 8, 8], [9, 9, 9, 9]);
    for make in [tcp as fn([u8; 4], [u8; 4], (u16, u16)) -> Vec<u8>, udp] {
        for cut in [28, usize::MAX] {
            let quoted = |frame: &[u8]| {
                frame[OFFLOAD_BYTES..][..cut.min(frame.len() - OFFLOAD_BYTES)].to_vec()
            };
            let mut nat = Nat::default();
            let own = make(inside, far, (500, 443));
            let mut left = own.clone();
            nat.leave(at(0), GATEWAY, PUBLIC, EniId(7), &mut left).unwrap();
            // From a router on the path, about a packet that has left.
            let mut arriving = error(router, PUBLIC.octets(), &quoted(&left));
            assert_eq!(nat.arrive(at(1), &mut arriving), Some(back(7, 0)));
            assert_eq!(arriving, error(router, inside, &quoted(&own)));
            // From the interface, about an answer that has arrived.
            let port = source(&left).1;
            let answer = make(far, PUBLIC.octets(), (443, port));
            let mut arrived = answer.clone();
            nat.arrive(at(1), &mut arrived).unwrap();
            let mut leaving = error(inside, far, &quoted(&arrived));
            nat.leave(at(1), GATEWAY, PUBLIC, EniId(7), &mut leaving).unwrap();
            assert_eq!(leaving, error(PUBLIC.octets(), far, &quoted(&answer)));
            // An error does not prolong the connection.
            let mut late = error(router, PUBLIC.octets(), &quoted(&left));
            assert_eq!(nat.arrive(at(352), &mut late), None);
        }
    }
}

#[test]
fn an_error_about_an_echo_gets_its_identifier_back() {
    let mut nat = Nat::default();
    let (inside, far) = ([10, 0, 2, 10], [8, 8, 8, 8]);
    let echo = |source: [u8; 4], id: u16| {
        let mut frame = udp(source, far, (0, 0));
        let bytes = &mut frame[OFFLOAD_BYTES..];
        bytes[9] = protocol::ICMP;
        bytes[20..28].copy_from_slice(&[8, 0, 0, 0, 0, 0, 0, 1]);
        bytes[24..26].copy_from_slice(&id.to_be_bytes());
        (bytes[10], bytes[11]) = (0, 0);
        let sum = checksum::of(&bytes[..20]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        let sum = checksum::of(&bytes[20..]);
        bytes[22..24].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let own = echo(inside, 77);
    let mut left = own.clone();
    nat.leave(at(0), GATEWAY, PUBLIC, EniId(7), &mut left).unwrap();
    let mut arriving = error([9, 9, 9, 9], PUBLIC.octets(), &left[OFFLOAD_BYTES..]);
    assert_eq!(nat.arrive(at(1), &mut arriving), Some(back(7, 0)));
    assert_eq!(arriving, error([9, 9, 9, 9], inside, &own[OFFLOAD_BYTES..]));
}

#[test]
fn errors_about_nothing_and_damaged_ones_are_not_translated() {
    let mut nat = Nat::default();
    let (inside, far) = ([10, 0, 2, 10], [8, 8, 8, 8]);
    let mut left = udp(inside, far, (500, 53));
    nat.leave(at(0), GATEWAY, PUBLIC, EniId(7), &mut left).unwrap();
    let port = source(&left).1;
    let mut answer = udp(far, PUBLIC.octets(), (53, port));
    nat.arrive(at(0), &mut answer).unwrap();
    let answer = &answer[OFFLOAD_BYTES..];
    let mut leave = |eni: u64, mut frame: Vec<u8>| {
        let before = frame.clone();
        let left = nat.leave(at(1), GATEWAY, PUBLIC, EniId(eni), &mut frame);
        assert!(left.is_ok() || frame == before, "it is changed");
        left
    };
    let good = error(inside, far, answer);
    let nothing = Err(NatError::ErrorAboutNothing);
    assert_eq!(leave(8, good.clone()), nothing, "another interface's connection");
    assert_eq!(leave(7, error(inside, [8, 8, 8, 9], answer)), nothing, "to another");
    for end in 0..28 {
        assert_eq!(leave(7, error(inside, far, &answer[..end])), nothing, "{end}");
    }
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(leave(7, damaged), nothing);
    assert_eq!(leave(7, good), Ok(()));
    let counters = [
        NatError::Protocol,
        NatError::Fragment,
        NatError::NoPort,
        NatError::NoConnection,
        NatError::ErrorAboutNothing,
    ];
    let names: alloc::collections::BTreeSet<_> = counters.map(NatError::name).into();
    assert_eq!(names.len(), counters.len(), "each has a counter of its own");
}
