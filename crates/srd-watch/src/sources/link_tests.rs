use super::*;
use crate::sources::read::Raw;
use srd_proto::time::Instant;

const MACS: [u8; 12] = [2; 12];

/// Returns a UDP packet over IPv4, and one over IPv6.
fn packets() -> [Vec<u8>; 2] {
    let udp = [0, 5, 0, 6, 0, 8, 0, 0];
    let mut v4 = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let mut v6 = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
    v6.extend([[0xfd; 16], [0xfe; 16]].concat());
    v4.extend(udp);
    v6.extend(udp);
    [v4, v6]
}

/// Returns sequences of headers between the Ethernet addresses and an IP packet, each with its
/// name.
fn before() -> Vec<(&'static str, Vec<u8>)> {
    let tag = |kind: u16, count: usize| [&kind.to_be_bytes()[..], &[0, 7]].concat().repeat(count);
    let label = |is_last: bool| [0, 1, u8::from(is_last), 64];
    let pppoe = [0x88, 0x64, 0x11, 0, 0, 7, 0, 30];
    vec![
        ("plain", vec![8, 0]),
        ("802.1Q", [&tag(0x8100, 1)[..], &[8, 0]].concat()),
        ("802.1ad", [&tag(0x88a8, 1)[..], &tag(0x8100, 1), &[8, 0]].concat()),
        ("0x9100", [&tag(0x9100, 1)[..], &tag(0x8100, 1), &[8, 0]].concat()),
        ("0x9200", [&tag(0x9200, 1)[..], &[8, 0]].concat()),
        ("many tags", [&tag(0x8100, LAYERS_MAX - 2)[..], &[8, 0]].concat()),
        ("MPLS", [&[0x88, 0x47][..], &label(true)].concat()),
        (
            "MPLS, three labels",
            [&[0x88, 0x48][..], &label(false), &label(false), &label(true)].concat(),
        ),
        ("tag, MPLS", [&tag(0x8100, 1)[..], &[0x88, 0x47], &label(true)].concat()),
        ("PPPoE", [&pppoe[..], &[0, 0x21]].concat()),
        ("PPPoE, short protocol", [&pppoe[..], &[0x21]].concat()),
        ("PPPoE, MPLS", [&pppoe[..], &[0x02, 0x81], &label(true)].concat()),
        ("PPP", vec![0x88, 0x0b, 0xff, 0x03, 0, 0x21]),
        ("802.2 SNAP", vec![0, 60, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]),
        ("802.2 IP", vec![0, 60, 6, 6, 3]),
        (
            "tag, 802.2 SNAP",
            [&tag(0x8100, 1)[..], &[0, 60, 0xaa, 0xaa, 3, 0, 0, 0xf8, 8, 0]].concat(),
        ),
    ]
}

#[test]
fn everything_between_ethernet_and_ip_is_looked_through() {
    let [v4, _] = packets();
    for (name, before) in before() {
        let frame = [&MACS[..], &before, &v4].concat();
        let at = find(&frame, Next::Ethernet, 0);
        assert_eq!(at, Ok(frame.len() - v4.len()), "{name}");
        let raw = Raw {
            time: Instant::ZERO,
            way: PacketDirection::In,
            ethertype: None,
            length: u32::try_from(frame.len()).unwrap(),
            segment_bytes: None,
            mtu_bytes: None,
            bytes: &frame,
        };
        let arrival = raw.arrival().unwrap_or_else(|| panic!("{name}"));
        assert_eq!((arrival.bytes, arrival.flow.outer.ports), (28, (5, 6)), "{name}");
        // A frame that is cut within its headers must not count as a frame without IP.
        for cut in 0..frame.len() - v4.len() {
            let found = find(&frame[..cut], Next::Ethernet, 0);
            assert!(matches!(found, Err(SkipReason::Cut)), "{name} {cut}: {found:?}");
        }
    }
}

#[test]
fn what_is_not_looked_through_is_named() {
    let of = |bytes: &[u8]| find(&[&MACS[..], bytes].concat(), Next::Ethernet, 0).unwrap_err();
    let tags = [0x81, 0, 0, 7].repeat(LAYERS_MAX);
    for (bytes, other, without_ip) in [
        (&[8, 6, 0, 1][..], SkipReason::EtherType(0x0806), true),
        (&[0x88, 0x63, 0x11, 9, 0, 0, 0, 0], SkipReason::EtherType(0x8863), true),
        (&[0x88, 0x64, 0x21, 0, 0, 0, 0, 0], SkipReason::EtherType(0x8864), false),
        (&[0x88, 0x64, 0x11, 0, 0, 1, 0, 9, 0xc0, 0x21], SkipReason::Ppp(0xc021), true),
        (&[0x88, 0x64, 0x11, 0, 0, 1, 0, 9, 0, 0xfd], SkipReason::Ppp(0x00fd), false),
        (&[0x88, 0xe5, 0, 0], SkipReason::EtherType(0x88e5), false),
        (&[0x12, 0x34, 0, 0], SkipReason::EtherType(0x1234), false),
        // An Ethernet frame inside of MPLS (RFC 4448).
        (&[0x88, 0x47, 0, 1, 1, 64, 0, 0, 0, 0], SkipReason::EtherType(0x8847), false),
        (&[0, 38, 0x42, 0x42, 3, 0, 0, 0], SkipReason::Llc(0x42), true),
        (&[0, 38, 0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0], SkipReason::Llc(0xaa), true),
        (&tags, SkipReason::Deep, false),
    ] {
        assert_eq!((of(bytes), other.is_without_ip()), (other, without_ip), "{bytes:02x?}");
    }
}

/// Returns the offset of the IP packet behind a link header of type `link`, and the direction that
/// the link header contains.
fn linked(
    link: u16,
    is_big_endian: bool,
    frame: &[u8],
) -> Result<(usize, Option<PacketDirection>), SkipReason> {
    let begun = begin(link, is_big_endian, frame)?;
    Ok((find(frame, begun.next, begun.at)?, begun.way))
}

#[test]
fn every_link_type_leads_to_its_packet() {
    let sll = |kind: u8| [&[0, kind, 0, 1, 0, 6][..], &[0; 8], &[8, 0]].concat();
    let sll2 = |kind: u8| [&[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, kind, 6][..], &[0; 8]].concat();
    let netanalyzer = [&[0; 4][..], &MACS, &[8, 0]].concat();
    let transparent = [&[0; 12][..], &MACS, &[8, 0]].concat();
    for (link, head, way) in [
        (1, [&MACS[..], &[8, 0]].concat(), None),
        (9, vec![0xff, 3, 0, 0x21], None),
        (9, vec![0, 0x21], None),
        (9, vec![0x21], None),
        (50, vec![0xff, 3, 0, 0x21], None),
        (50, vec![0x0f, 0, 8, 0], None),
        (51, vec![0x11, 0, 0, 7, 0, 30, 0, 0x21], None),
        (104, vec![0x8f, 0, 8, 0], None),
        (204, vec![0, 0xff, 3, 0, 0x21], Some(PacketDirection::In)),
        (204, vec![1, 0xff, 3, 0, 0x21], Some(PacketDirection::Out)),
        (166, vec![1, 3, 0, 0x21], Some(PacketDirection::Out)),
        (101, vec![], None),
        (12, vec![], None),
        (228, vec![], None),
        (113, sll(0), None),
        (113, sll(4), Some(PacketDirection::Out)),
        (276, sll2(0), None),
        (276, sll2(4), Some(PacketDirection::Out)),
        (108, vec![0, 0, 0, 2], None),
        (219, vec![0, 1, 1, 64], None),
        (240, netanalyzer, None),
        (241, transparent, None),
    ] {
        let [v4, _] = packets();
        for is_big_endian in [false, true] {
            let found = linked(link, is_big_endian, &[&head[..], &v4].concat());
            assert_eq!(found, Ok((head.len(), way)), "{link} {head:02x?}");
        }
    }
    let [_, v6] = packets();
    for (is_big_endian, head) in [(false, [30, 0, 0, 0]), (true, [0, 0, 0, 24])] {
        assert_eq!(linked(0, is_big_endian, &[&head[..], &v6].concat()), Ok((4, None)));
        let other = linked(0, is_big_endian, &[&[7, 0, 0, 7][..], &v6].concat());
        assert!(matches!(other, Err(SkipReason::Family(_))), "{other:?}");
    }
    assert_eq!(begin(105, false, &v6), Err(SkipReason::Link(105)));
    assert_eq!(linked(101, false, &[0x15; 40]), Err(SkipReason::Malformed));
}

#[test]
fn the_packet_of_nflog_is_one_of_its_attributes() {
    let [v4, v6] = packets();
    for is_big_endian in [false, true] {
        let number = |number: u16| match is_big_endian {
            true => number.to_be_bytes(),
            false => number.to_le_bytes(),
        };
        let attribute = |kind: u16, value: &[u8]| {
            let length = u16::try_from(4 + value.len()).unwrap();
            let mut made = [&number(length)[..], &number(kind), value].concat();
            made.resize(made.len().next_multiple_of(4), 0);
            made
        };
        for (family, packet) in [(2, &v4), (10, &v6)] {
            let before = [attribute(1, &[8, 0, 1, 0]), attribute(10, b"prefix\0")].concat();
            let frame = [&[family, 0, 0, 5][..], &before, &attribute(9, packet)].concat();
            let begun = begin(239, is_big_endian, &frame).unwrap();
            assert_eq!(begun.length, u32::try_from(packet.len()).ok());
            assert_eq!(&frame[begun.at..begun.at + packet.len()], &packet[..]);
            let frame = [&[family, 0, 0, 5][..], &before].concat();
            assert_eq!(begin(239, is_big_endian, &frame), Err(SkipReason::Cut));
            let endless = [&[family, 0, 0, 5][..], &[0; 64]].concat();
            assert_eq!(begin(239, is_big_endian, &endless), Err(SkipReason::Malformed));
        }
        assert_eq!(begin(239, is_big_endian, &[7, 0, 0, 0]), Err(SkipReason::Family(7)));
    }
}
