//! Tests of one host and of two: bounds, and packets that are not packets of the transport.

use srd_card::vpc::Envelope;
use srd_proto::time::Duration;

use super::*;
use crate::machines::card::{Pair, Ports};
use crate::machines::tcp::TcpSegment;

fn config() -> CardNodeConfig {
    CardNodeConfig {
        cloud: Arc::new(Cloud::new(&Pair::of("c7i.large")).unwrap()),
        tcp: TcpConfig::default(),
        datagrams: Arc::default(),
        endpoint: srd_proto::Config::default(),
        peers: Arc::new(vec![vec![HostId(1)], vec![HostId(0)]]),
        seed: 1,
    }
}

#[test]
fn what_is_none_of_the_transports_packets_is_counted() {
    let mut node = CardNode::new(HostId(0), config());
    let out = &mut Outcomes::default();
    let trimmed = Packet { trimmed: true, ..Packet::empty() };
    let tcp = Packet { body: Body::Tcp(TcpSegment::default()), ..Packet::empty() };
    for (n, mut packet) in (1..).zip([trimmed, tcp]) {
        node.on_packet(Instant::ZERO, &mut packet, out);
        assert_eq!(node.counts.foreign, n);
    }
    assert!(out.is_empty());
}

#[test]
fn a_frame_for_a_host_that_is_no_peer_is_counted() {
    let mut node = CardNode::new(HostId(0), config());
    let out = &mut Outcomes::default();
    let (_, mut near) = node.near(Instant::ZERO, out);
    for (host, malformed) in [("host1", 0), ("host2", 1)] {
        let way = FrameRoute {
            host: &host.into(),
            instance: 0,
            envelope: Envelope::Arriving,
            express: false,
        };
        near.to_host(way, vec![0; OFFLOAD_BYTES + 20]);
        assert_eq!(near.carrier.malformed(), malformed);
    }
}

/// Two hosts without a network: a packet of one host reaches the other host at once.
struct Two {
    hosts: [CardNode; 2],
    now: Instant,
}

impl Two {
    fn run_ms(&mut self, ms: u64) {
        let mut slot = Packet::empty();
        let out = &mut Outcomes::default();
        let until = self.now + Duration::from_millis(ms);
        while self.now < until {
            for host in 0..2 {
                let [one, other] = &mut self.hosts;
                let (from, to) = if host == 0 { (one, other) } else { (other, one) };
                from.on_timer(self.now, out);
                while from.poll_packet(self.now, &mut slot, out) {
                    to.on_packet(self.now, &mut slot, out);
                }
            }
            self.now += Duration::from_micros(5);
        }
    }
}

#[test]
fn a_host_that_begins_anew_is_met_again() {
    let out = &mut Outcomes::default();
    let hosts = [0, 1].map(|host| CardNode::new(HostId(host), config()));
    let mut two = Two { hosts, now: Instant::ZERO };
    let mut flows =
        (0..).map(|n| FlowSpec { id: FlowId(n), src: HostId(0), dst: HostId(1), bytes: 1_000_000 });
    two.hosts[0].start_flow(two.now, &flows.next().unwrap(), out);
    two.run_ms(5);
    let received = |two: &Two| two.hosts[1].port_counts().rx_bytes;
    assert!(received(&two) >= 1_000_000, "{}", received(&two));
    assert!(two.hosts[0].totals().data > 0, "the offers, at least");
    two.hosts[1].restart(two.now, out);
    assert_eq!(received(&two), 0);
    two.hosts[0].start_flow(two.now, &flows.next().unwrap(), out);
    two.run_ms(20);
    assert!(received(&two) >= 1_000_000, "{}", received(&two));
    assert_eq!(two.hosts[1].counts().foreign, 0);
}

#[test]
fn regression_each_run_of_each_host_has_a_secret_of_its_own() {
    let out = &mut Outcomes::default();
    let [mut one, other] = [0, 1].map(|host| CardNode::new(HostId(host), config()));
    let mut secrets = vec![other.carrier.card_secret(), one.carrier.card_secret()];
    for _ in 0..3 {
        one.restart(Instant::ZERO, out);
        secrets.push(one.carrier.card_secret());
    }
    for (at, secret) in secrets.iter().enumerate() {
        assert!(!secrets[..at].contains(secret), "{at}");
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
