use super::*;
use crate::sources::arrival::Tunnel;
use crate::sources::link::ETHERTYPE_V4;
use proptest::prelude::*;

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend(payload);
    bytes
}

fn v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![0x60, 0, 0, 0, length[0], length[1], protocol, 64];
    bytes.extend([0xfd; 16]);
    bytes.extend([0xfe; 16]);
    bytes.extend(payload);
    bytes
}

fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap();
    let fields = [ports.0, ports.1, length, 0];
    fields.iter().flat_map(|field| field.to_be_bytes()).chain(payload.iter().copied()).collect()
}

fn tcp(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 7, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x10, 0, 0, 0, 0, 0, 0];
    bytes.extend([1; 12]); // options
    bytes.extend(payload);
    bytes
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let head = [2; 12].into_iter().chain(ethertype.to_be_bytes());
    head.chain(payload.iter().copied()).collect()
}

fn raw<'a>(bytes: &'a [u8], segment_bytes: Option<u16>) -> Raw<'a> {
    Raw {
        time: Instant::ZERO,
        way: PacketDirection::In,
        ethertype: Some(if bytes.first().is_some_and(|b| b >> 4 == 6) { 0x86dd } else { 0x0800 }),
        length: u32::try_from(bytes.len()).unwrap(),
        segment_bytes,
        mtu_bytes: None,
        bytes,
    }
}

/// Returns, for each kind of tunnel, a UDP packet in a tunnel of this kind.
fn tunnels() -> Vec<(Tunnel, Vec<u8>)> {
    let inner = v4(17, &udp((5, 6), b"inner"));
    let inner6 = v6(17, &udp((5, 6), b"inner"));
    let frame = ethernet(0x0800, &inner);
    let tagged = ethernet(0x8100, &[&[0, 9, 0x08, 0x00], &inner[..]].concat());
    let vxlan = |port, frame: &[u8]| {
        v4(17, &udp((777, port), &[&[8, 0, 0, 0, 0, 0, 1, 0], frame].concat()))
    };
    let geneve = |head: [u8; 8], rest: &[u8]| v4(17, &udp((777, 6081), &[&head, rest].concat()));
    vec![
        (Tunnel::Vxlan, vxlan(4789, &frame)),
        (Tunnel::Vxlan, vxlan(8472, &tagged)),
        (Tunnel::Geneve, geneve([0, 0, 0x65, 0x58, 0, 0, 1, 0], &frame)),
        (Tunnel::Geneve, geneve([1, 0, 8, 0, 0, 0, 1, 0], &[&[0; 4], &inner[..]].concat())),
        (Tunnel::Gre, v4(47, &[&[0, 0, 8, 0], &inner[..]].concat())),
        (Tunnel::Gre, v4(47, &[&[0xb0, 0, 0x65, 0x58], &[0; 12][..], &frame].concat())),
        (Tunnel::Gre, v6(47, &[&[0x20, 0, 0x86, 0xdd, 0, 0, 0, 1], &inner6[..]].concat())),
        (Tunnel::IpInIp, v4(4, &inner)),
        (Tunnel::IpInIp, v4(41, &inner6)),
        // A tunnel in a tunnel: the result contains the kind of the outer tunnel, and the innermost
        // flow.
        (Tunnel::IpInIp, v4(4, &v4(47, &[&[0, 0, 8, 0], &inner[..]].concat()))),
    ]
}

#[test]
fn every_tunnel_is_looked_into() {
    for (n, (tunnel, bytes)) in tunnels().into_iter().enumerate() {
        let arrival = raw(&bytes, None).arrival().unwrap();
        let (found, inner) = arrival.flow.inner.unwrap_or_else(|| panic!("{n}: {tunnel}"));
        assert_eq!((found, inner.ports, inner.protocol), (tunnel, (5, 6), 17), "{n}");
        assert_eq!(arrival.bytes as usize, bytes.len());
    }
}

#[test]
fn what_only_looks_like_a_tunnel_is_a_flow() {
    let inner = v4(17, &udp((5, 6), b"inner"));
    for bytes in [
        v4(17, &udp((777, 4789), &[&[0; 8], &ethernet(0x0800, &inner)[..]].concat())), // no VNI
        v4(17, &udp((777, 4788), &[&[8, 0, 0, 0, 0, 0, 1, 0], &inner[..]].concat())),
        // Version 1 of Geneve, which is not supported.
        v4(17, &udp((777, 6081), &[&[0x40, 0, 8, 0, 0, 0, 0, 0], &inner[..]].concat())),
        v4(47, &[&[0x40, 0, 8, 0], &inner[..]].concat()), // source routes
        v4(47, &[&[0, 0, 0x88, 0x47], &inner[..]].concat()), // MPLS
        v4(17, &udp((5, 6), b"x")),
    ] {
        assert_eq!(raw(&bytes, None).arrival().unwrap().flow.inner, None);
    }
}

#[test]
fn a_super_packet_counts_as_its_segments_with_their_headers() {
    let bytes = v4(6, &tcp(&[0; 10_000]));
    let arrival = raw(&bytes, Some(1448)).arrival().unwrap();
    assert_eq!((arrival.packets, arrival.bytes), (7, 10_000 + 7 * 52));
    assert_eq!(raw(&bytes, None).arrival().unwrap().packets, 1);
    // A file does not contain the MTU; the user specifies it.
    let from_file = Raw { mtu_bytes: Some(1500), ..raw(&bytes, None) };
    assert_eq!(from_file.arrival(), Some(arrival));
    assert_eq!(Raw { mtu_bytes: Some(10), ..from_file }.arrival().unwrap().packets, 1);
    // In a tunnel, each segment has the outer and the inner headers.
    let inner = v4(6, &tcp(&[0; 3000]));
    let tunnel = v4(4, &inner);
    let arrival = raw(&tunnel, Some(1000)).arrival().unwrap();
    assert_eq!((arrival.packets, arrival.bytes), (3, 3000 + 3 * 72));
    // Only the first 60 bytes of this packet were kept.
    let cut = Raw { bytes: &bytes[..60], ..raw(&bytes, Some(1448)) };
    assert_eq!(cut.arrival().unwrap().packets, 7);
}

#[test]
fn padding_of_short_frames_does_not_count() {
    let mut frame = ethernet(ETHERTYPE_V4, &v4(17, &udp((1, 2), b"x")));
    frame.resize(60, 0);
    let whole = Raw { ethertype: None, ..raw(&frame, None) };
    assert_eq!(whole.arrival().unwrap().bytes, 29);
}

#[test]
fn frames_without_ip_are_none() {
    let arp = ethernet(0x0806, &[0; 28]);
    assert_eq!(Raw { ethertype: None, ..raw(&arp, None) }.arrival(), None);
    assert_eq!(Raw { ethertype: Some(0x0806), ..raw(&arp, None) }.arrival(), None);
}

proptest! {
    /// Headers come from unknown senders. So no bytes may cause a panic, and each captured packet
    /// must count as at least one packet.
    #[test]
    fn changed_and_cut_packets_are_read_or_refused(
        which in 0_usize..10,
        changes in prop::collection::vec((0_usize..120, any::<u8>()), 0..4),
        cut in 0_usize..200,
        segment in prop::option::of(any::<u16>()),
        length in any::<u32>(),
    ) {
        let (_, mut bytes) = tunnels().swap_remove(which);
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(cut);
        for ethertype in [None, Some(0x0800), Some(0x86dd), Some(0x8100)] {
            let raw = Raw { ethertype, length, ..raw(&bytes, segment) };
            if let Some(arrival) = raw.arrival() {
                prop_assert!(arrival.packets >= 1);
            }
        }
    }
}
