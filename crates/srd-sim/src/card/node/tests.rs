//! The host alone: its bounds, and packets that are none.

use super::*;
use crate::card::{Pair, Ports};
use crate::tcp::TcpSegment;

fn config(tcp: TcpConfig) -> CardNodeConfig {
    let cloud = Arc::new(Cloud::new(&Pair::of("c7i.large")).unwrap());
    CardNodeConfig { cloud, tcp, datagrams: Arc::default(), seed: 1 }
}

fn node() -> CardNode {
    CardNode::new(HostId(0), config(TcpConfig::default()))
}

#[test]
fn frames_beyond_the_wires_queue_are_counted() {
    let mut node = node();
    let out = &mut Outcomes::default();
    let CardNode { guest, wire, slot, counts, .. } = &mut node;
    let mut near = Near { guest, wire, slot, counts, now: Instant::ZERO, out };
    for _ in 0..=WIRE_FRAMES_MAX {
        let frame = vec![0; OFFLOAD_BYTES + 20];
        let (host, envelope) = (&"host1".into(), Envelope::Arriving);
        near.to_host(Way { host, instance: 0, envelope, express: false }, frame);
    }
    assert_eq!((node.wire.len(), node.counts.wire_full), (WIRE_FRAMES_MAX, 1));
}

#[test]
fn what_is_no_envelope_with_a_frame_is_counted() {
    let mut node = node();
    let out = &mut Outcomes::default();
    let with = |head: &[u8], payload: &[u8]| {
        let mut packet = Packet::empty();
        packet.set_srd(head, Bytes::copy_from_slice(payload));
        packet
    };
    let good = Envelope::Arriving.trailer().0;
    let packets = [
        Packet { body: Body::Tcp(TcpSegment::default()), ..Packet::empty() },
        with(&good[..10], &[0; 40]),
        with(&[99; TRAILER_BYTES], &[0; 40]),
        with(&good, &[0; OFFLOAD_BYTES]),
        with(&good, &[]),
    ];
    for (n, mut packet) in (1..).zip(packets) {
        node.on_packet(Instant::ZERO, &mut packet, out);
        assert_eq!(node.counts.malformed, n);
    }
    assert!(out.is_empty());
}

#[test]
fn a_super_packet_has_the_wire_bytes_of_all_its_packets() {
    for mss_bytes in [116, 1436, 8937] {
        let segments = super_packet_segments(mss_bytes);
        let segment = TcpSegment { payload_bytes: segments * mss_bytes, ..TcpSegment::default() };
        let framed = frame::Framed {
            src: HostId(FIRST),
            dst: HostId(FIRST + 1),
            ports: (1, 2),
            ecn: Ecn::NotEct,
            segment,
        };
        let bytes = wire_bytes(&frame::write(&framed, mss_bytes));
        assert_eq!(bytes, segments * (mss_bytes + HEADER_BYTES + OUTER_BYTES));
        assert!(bytes <= WIRE_BYTES_MAX && segments > 1, "{mss_bytes}: {segments} {bytes}");
    }
}

#[test]
fn datagrams_leave_at_their_rate_and_end() {
    let plan = Datagrams { payload_bytes: 1000, rate_bps: 3_000_000, ports: Ports::Each };
    let spec = FlowSpec { id: FlowId(7), src: HostId(0), dst: HostId(1), bytes: 2500 };
    let mut source = Source::new(Instant::from_nanos(5), spec, plan);
    let mut times = Vec::new();
    while let Some(at) = source.next() {
        times.push(at.as_nanos());
        let frame = source.frame();
        assert_eq!(datagrams::read(&frame[OFFLOAD_BYTES..]), Some((7, 1000)));
        assert!(frame::read(at, &frame).is_none(), "it is no TCP");
    }
    assert_eq!(times, [5, 2_666_671, 5_333_338], "8,000 bits at 3 Mb/s, without drift");
    assert_eq!(source.done(), Some(spec));
}

#[test]
fn each_kind_of_single_packet_is_read_as_its_flow() {
    for ports in [Ports::One, Ports::Each, Ports::Syn(80), Ports::Echo] {
        let plan = Datagrams { payload_bytes: 64, rate_bps: 1000, ports };
        let spec = FlowSpec { id: FlowId(3), src: HostId(0), dst: HostId(1), bytes: 128 };
        let mut source = Source::new(Instant::ZERO, spec, plan);
        let [one, two] = [source.frame(), source.frame()];
        assert_eq!(datagrams::read(&two[OFFLOAD_BYTES..]), Some((3, 64)), "{ports:?}");
        assert_eq!(one == two, ports == Ports::One, "{ports:?}");
    }
    assert_eq!(datagrams::read(&[0x45; 30]), None);
    assert_eq!(datagrams::read(&[]), None);
}

#[test]
fn a_type_that_is_not_there_is_an_error() {
    let error = Cloud::new(&Pair::of("c7i.lagre")).unwrap_err();
    assert!(error.contains("c7i.large"), "{error}");
}
