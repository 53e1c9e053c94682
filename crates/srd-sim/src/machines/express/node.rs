//! The host: guest, card and endpoint, and the order in which they work.

use std::sync::Arc;

use srd_card::offer::Offer;
use srd_card::{Counters, Express, Guest, OFFER_QPN, PeerSettings, Prefix};
use srd_proto::{Delivery, Endpoint, Epoch, Instant, PeerConfig, PeerId, Secret, TransmitBuf};

use super::bursts::{Bursts, segments_max};
use super::frame::{self, HEADER_BYTES};
use crate::engine::nic::{self, Totals, address};
use crate::engine::node::{
    Body, Delivered, FlowId, FlowSpec, HostId, Node, Outcomes, PROTOCOL_TCP, Packet,
};
use crate::machines::tcp::{TcpConfig, TcpNode};

/// Number of packets that the host sends before it processes further packets of the guest.
const TURN_PACKETS: u32 = 16;
/// Size of the largest inner packet of ENA Express, in bytes.
const MTU_BYTES_MAX: u16 = 8900;
/// Prefix length of the peers' inner addresses: each peer has a single address.
const PREFIX_BITS: u8 = 32;

/// Configuration of an [`ExpressNode`].
#[derive(Clone, Debug)]
pub struct ExpressNodeConfig {
    /// Configuration of the host's endpoint.
    pub endpoint: srd_proto::Config,
    /// Configuration of the card. Its MTU is replaced by a value that follows from the endpoint's
    /// packet size.
    pub card: srd_card::Config,
    /// Configuration of the guest's TCP. The card's MTU replaces the configured MTU.
    pub guest: TcpConfig,
    /// Seed of all random values of the world.
    pub seed: u64,
    /// For each host, the host's peers.
    pub peers: Arc<Vec<Vec<HostId>>>,
}

/// Node of a host whose guest sends TCP through ENA Express.
pub struct ExpressNode {
    host: HostId,
    config: ExpressNodeConfig,
    endpoint: Endpoint,
    express: Express,
    guest: TcpNode,
    bursts: Bursts,
    epoch: u64,
    buf: TransmitBuf,
    // The packet that is being passed from or to the guest.
    slot: Packet,
    turn_left: u32,
    past: Totals,
}

/// The guest, as the interface that the card calls.
struct Port<'a> {
    guest: &'a mut TcpNode,
    slot: &'a mut Packet,
    now: Instant,
    out: &'a mut Outcomes,
}

impl Guest for Port<'_> {
    fn deliver(&mut self, frame: &[u8]) {
        let arrived = frame::read(self.now, frame);
        let framed = match arrived {
            Some(frame::Arrived { framed, is_intact: true }) => framed,
            Some(frame::Arrived { framed, .. }) => {
                let (flow, index) = (FlowId(framed.segment.flow), framed.segment.seq);
                self.out.delivered.push(Delivered { flow, index, bytes: 0, intact: false });
                return;
            }
            None => return,
        };
        *self.slot = Packet {
            src: framed.src,
            dst: framed.dst,
            wire_bytes: framed.segment.payload_bytes + HEADER_BYTES,
            src_port: framed.ports.0,
            dst_port: framed.ports.1,
            protocol: PROTOCOL_TCP,
            ecn: framed.ecn,
            body: Body::Tcp(framed.segment),
            ..Packet::empty()
        };
        self.guest.on_packet(self.now, self.slot, self.out);
    }
}

fn endpoint(config: &ExpressNodeConfig, host: HostId, epoch: u64, now: Instant) -> Endpoint {
    let seed = nic::seed_bytes(config.seed, host, epoch);
    Endpoint::new(config.endpoint.clone(), Epoch(epoch), seed, now)
        .expect("the configuration was checked")
}

/// Returns the MTU of the guest. A packet must also fit into one datagram if it is sent plainly.
fn mtu(endpoint: &Endpoint) -> u16 {
    let fits = endpoint.unreliable_bytes_max().saturating_sub(srd_card::offload::OFFLOAD_BYTES);
    u16::try_from(fits).unwrap_or(u16::MAX).min(MTU_BYTES_MAX)
}

impl ExpressNode {
    /// Creates the node of a host.
    ///
    /// # Panics
    /// If the configuration is out of range; check the configuration before.
    pub fn new(host: u32, config: ExpressNodeConfig) -> Self {
        let host = HostId(host);
        let mut endpoint = endpoint(&config, host, 1, Instant::ZERO);
        let config = fitted(config, host, &endpoint);
        let express = Express::new(config.card.clone(), &mut endpoint);
        let mut node = Self {
            host,
            guest: TcpNode::new(host, config.guest),
            bursts: Bursts::new(config.guest.mss_bytes()),
            epoch: 1,
            buf: nic::transmit_buf(),
            slot: Packet::empty(),
            turn_left: 0,
            past: Totals::default(),
            endpoint,
            express,
            config,
        };
        for id in node.add_peers(Instant::ZERO) {
            node.agree(id);
        }
        node
    }

    /// Adds every peer of the host to the endpoint and to the card.
    fn add_peers(&mut self, now: Instant) -> Vec<PeerId> {
        let port = self.config.endpoint.local_port;
        let peers = Arc::clone(&self.config.peers);
        let add = |&peer: &HostId| {
            let at = PeerConfig::at(address(peer, port));
            let id = self.endpoint.add_peer(now, at).expect("fewer hosts than peers_max");
            let inner = nic::inner_address(peer).into();
            let allowed = vec![Prefix::new(inner, PREFIX_BITS).expect("a whole address")];
            let settings = PeerSettings { id, allowed, express: true, express_udp: true };
            self.express.add_peer(now, settings);
            id
        };
        peers[self.host.index()].iter().map(add).collect()
    }

    /// Gives the card a peer's offer to use ENA Express, as if the offer had arrived before the
    /// simulation began.
    fn agree(&mut self, peer: PeerId) {
        let offer = Offer { express: true, udp: true, ..Offer::default() }.encode();
        let delivery = Delivery {
            peer,
            src_qpn: OFFER_QPN,
            dst_qpn: OFFER_QPN,
            imm: 0,
            reliable: true,
            ce: false,
            payload: &offer,
        };
        let Self { express, guest, slot, .. } = self;
        let out = &mut Outcomes::default();
        let now = Instant::ZERO;
        express.delivered(now, &delivery, &mut Port { guest, slot, now, out });
    }

    /// Returns the host's endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the counters of the card.
    pub fn counters(&self) -> Counters {
        self.express.counters()
    }

    /// Returns the guest with its TCP connections.
    pub fn guest(&self) -> &TcpNode {
        &self.guest
    }

    /// Returns the transport's packet counters since the start of the simulation, restarts
    /// included. Timeouts include the timeouts of the guest's TCP.
    pub fn totals(&self) -> Totals {
        let guest = Totals { timeouts: self.guest.stats().timeouts, ..Totals::default() };
        self.past + Totals::of(self.endpoint.stats()) + guest
    }

    /// Passes the guest's segments to the card, and waiting frames to the endpoint. Returns whether
    /// a frame was passed to the endpoint.
    fn turn(&mut self, now: Instant, out: &mut Outcomes) -> bool {
        self.turn_left = TURN_PACKETS;
        while self.guest.poll_packet(now, &mut self.slot, out) {
            if let Some(frame) = self.bursts.push(&self.slot) {
                self.take_frame(now, frame, out);
            }
        }
        if let Some(frame) = self.bursts.flush() {
            self.take_frame(now, frame, out);
        }
        self.express.pump(now, &mut self.endpoint) > 0
    }

    fn take_frame(&mut self, now: Instant, frame: Vec<u8>, out: &mut Outcomes) {
        let Self { express, guest, slot, .. } = self;
        express.from_guest(now, frame, &mut Port { guest, slot, now, out });
    }

    fn events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            self.express.event(now, &event);
        }
    }
}

/// Returns the configuration with the values that follow from the endpoint's packet size.
fn fitted(mut config: ExpressNodeConfig, host: HostId, endpoint: &Endpoint) -> ExpressNodeConfig {
    config.card.mtu = mtu(endpoint);
    config.card.secret = Secret::known(config.seed ^ u64::from(host.0) << 32);
    config.guest.mtu_bytes = config.card.mtu.into();
    config.guest.header_bytes = HEADER_BYTES;
    config.guest.frame_bytes = 0;
    config.guest.burst_segments_max = segments_max(config.guest.mss_bytes());
    config
}

impl Node for ExpressNode {
    fn start_flow(&mut self, now: Instant, flow: &FlowSpec, out: &mut Outcomes) {
        self.guest.start_flow(now, flow, out);
        self.turn_left = 0;
    }

    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes) {
        let is_sealed = self.config.endpoint.protection.is_on();
        let Some((meta, bytes)) = nic::open(now, packet, is_sealed) else { return };
        let Self { endpoint, express, guest, slot, .. } = self;
        if let Some(delivery) = endpoint.handle_packet(now, meta, bytes) {
            express.delivered(now, &delivery, &mut Port { guest, slot, now, out });
        }
        self.events(now);
    }

    fn on_timer(&mut self, now: Instant, out: &mut Outcomes) {
        self.guest.on_timer(now, out);
        self.endpoint.handle_timeout(now);
        self.events(now);
        let Self { express, guest, slot, .. } = self;
        express.handle_timeout(now, &mut Port { guest, slot, now, out });
        self.turn_left = 0;
    }

    fn next_timer(&self) -> Option<Instant> {
        let of_all =
            [self.guest.next_timer(), self.endpoint.poll_timeout(), self.express.poll_timeout()];
        of_all.into_iter().flatten().min()
    }

    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, out: &mut Outcomes) -> bool {
        if self.turn_left == 0 {
            self.turn(now, out);
        }
        loop {
            self.buf.clear();
            let transmit = self.endpoint.poll_transmit(now, &mut self.buf);
            if let Some(transmit) = transmit {
                let overhead_bytes = self.config.endpoint.wire_overhead_bytes;
                nic::fill(slot, self.host, &transmit, &mut self.buf, overhead_bytes);
                self.turn_left = self.turn_left.saturating_sub(1);
                self.events(now);
                return true;
            }
            self.events(now);
            if !self.turn(now, out) {
                return false;
            }
        }
    }

    fn warm_for_packet(&self, packet: &Packet) -> u64 {
        packet.warm() ^ self.endpoint.stats().rx_pkts
    }

    fn warm_for_poll(&self) -> u64 {
        self.endpoint.stats().tx_pkts
    }

    /// Restarts the host and its guest, without any state. The cards must agree to use SRD again.
    fn restart(&mut self, now: Instant, out: &mut Outcomes) {
        self.past = self.past + Totals::of(self.endpoint.stats());
        self.epoch += 1;
        self.guest.restart(now, out);
        self.endpoint = endpoint(&self.config, self.host, self.epoch, now);
        self.express = Express::new(self.config.card.clone(), &mut self.endpoint);
        self.bursts.flush();
        self.add_peers(now);
        self.turn_left = 0;
    }
}
