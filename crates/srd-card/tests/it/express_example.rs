//! The example in the documentation of `Express`: SRD carries a packet from one guest to another.

use std::net::SocketAddr;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::{Config, Express, Guest, PeerSettings};
use srd_proto::{
    Config as CoreConfig, Duration, Endpoint, Epoch, Instant, PacketMeta, PacketRef, PeerConfig,
    Secret, TransmitBuf,
};

#[derive(Default)]
struct Frames(Vec<Vec<u8>>);

impl Guest for Frames {
    fn deliver(&mut self, frame: &[u8]) {
        self.0.push(frame.to_vec());
    }
}

/// A host: its guest has the address 10.0.0.`number`, its transport 192.0.2.`number`.
struct Host {
    address: SocketAddr,
    endpoint: Endpoint,
    express: Express,
    guest: Frames,
}

impl Host {
    fn new(now: Instant, number: u8, other: u8) -> Self {
        let outer = |number| SocketAddr::from(([192, 0, 2, number], 7471));
        let (core, seed) = (CoreConfig::default(), [number; 32]);
        let mut endpoint = Endpoint::new(core, Epoch(1), seed, now).unwrap();
        let config = Config { secret: Secret::known(number.into()), ..Config::default() };
        let mut express = Express::new(config, &mut endpoint);

        let id = endpoint.add_peer(now, PeerConfig::at(outer(other))).unwrap();
        let allowed = vec![format!("10.0.0.{other}").parse().unwrap()];
        express.add_peer(now, PeerSettings { id, allowed, express: true, express_udp: true });
        Self { address: outer(number), endpoint, express, guest: Frames::default() }
    }

    /// Sends all packets that may leave now to the other host, and handles all events.
    fn send_to(&mut self, now: Instant, other: &mut Self) {
        self.express.pump(now, &mut self.endpoint);
        let mut buffer = TransmitBuf::new(1, 65_507);
        while self.endpoint.poll_transmit(now, &mut buffer).is_some() {
            for (head, payload) in buffer.segments() {
                other.receive(now, self.address, &mut [head, payload].concat());
            }
            buffer.clear();
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.express.event(now, &event);
        }
    }

    fn receive(&mut self, now: Instant, source: SocketAddr, packet: &mut [u8]) {
        let meta = PacketMeta { source, local: 0, ecn: Default::default(), received_at: now };
        let packet = PacketRef::Whole(packet);
        if let Some(delivery) = self.endpoint.handle_packet(now, meta, packet) {
            self.express.delivered(now, &delivery, &mut self.guest);
        }
    }

    fn timers(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
        self.express.handle_timeout(now, &mut self.guest);
    }
}

/// Runs both hosts for ten milliseconds.
fn run(now: &mut Instant, a: &mut Host, b: &mut Host) {
    for _ in 0..1000 {
        a.send_to(*now, b);
        b.send_to(*now, a);
        *now += Duration::from_micros(10);
        a.timers(*now);
        b.timers(*now);
    }
}

#[test]
fn srd_carries_a_packet_from_one_guest_to_another() {
    let mut now = Instant::ZERO;
    let (mut a, mut b) = (Host::new(now, 1, 2), Host::new(now, 2, 1));
    run(&mut now, &mut a, &mut b); // The hosts agree on the packets that SRD carries.

    // An offload header, and a UDP packet from 10.0.0.1 to 10.0.0.2.
    let mut frame = vec![0; OFFLOAD_BYTES];
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0x30, 0x39, 0, 53, 0, 8, 0, 0]);
    a.express.from_guest(now, frame.clone(), &mut a.guest);
    run(&mut now, &mut a, &mut b);

    assert_eq!(b.guest.0, [frame]);
    assert_eq!(b.express.counters().traffic.srd_rx_pkts, 1);
}
