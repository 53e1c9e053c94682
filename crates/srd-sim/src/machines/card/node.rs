//! The host: guest, card, ENA Express layer and endpoint, and the order in which they work.

use std::sync::Arc;

use srd_card::limits::Allowances;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::{Card, Drops, Environment, FrameRoute, PortCounts, PortId};
use srd_card::{Counters, Direction};
use srd_proto::Instant;
use srd_vpc::compile::Rules;
use srd_vpc::judge::Service;

use super::carrier::{Arrival, Carrier, CarrierConfig};
use super::cloud::{Cloud, FIRST, name_of};
use super::datagrams::{self, Datagrams, Source};
use super::joins::Joins;
use crate::engine::nic::Totals;
use crate::engine::node::{
    Body, Delivered, FlowId, FlowSpec, HostId, Node, Outcomes, PROTOCOL_TCP, Packet,
};
use crate::machines::express::bursts::{Bursts, segments_max};
use crate::machines::express::frame::{self, HEADER_BYTES};
use crate::machines::tcp::{TcpConfig, TcpNode, TcpStats};

/// Number of bytes on the wire below the UDP payload of a packet: Ethernet with preamble and gap
/// 38, IPv4 20, UDP 8.
pub const OUTER_BYTES: u16 = 38 + 20 + 8;
/// Number of packets that the host sends before it processes further packets of the guest.
const TURN_PACKETS: u32 = 16;
/// Largest number of steps of the card's expiry (of connections and similar entries) in one call of
/// the timer.
const EXPIRE_WORK: u32 = 16;

/// Configuration of a [`CardNode`].
#[derive(Clone, Debug)]
pub struct CardNodeConfig {
    /// The instances of all hosts, and the rules of their cloud.
    pub cloud: Arc<Cloud>,
    /// Configuration of the guest's TCP. The header bytes of the frames replace its header bytes.
    pub tcp: TcpConfig,
    /// For each flow, the plan of the flow's datagrams. A flow without a plan is a TCP stream.
    pub datagrams: Arc<Vec<Option<Datagrams>>>,
    /// Configuration of the host's endpoint. Its packets also carry packets of guests that are sent
    /// plainly (without SRD).
    pub endpoint: srd_proto::Config,
    /// For each host, the host's peers.
    pub peers: Arc<Vec<Vec<HostId>>>,
    /// Seed of all random values of the world.
    pub seed: u64,
}

/// Counters of a host, in addition to the counters of its card.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Number of arrived packets that are not packets of the transport.
    pub foreign: u64,
    /// Number of frames that the card passed to the guest and that the guest could not parse.
    pub unread: u64,
    /// Number of datagrams that the guest sent.
    pub datagrams_sent: u64,
    /// Number of datagrams that the guest received.
    pub datagrams_received: u64,
}

/// Node of a host with the card of an instance.
pub struct CardNode {
    host: HostId,
    config: CardNodeConfig,
    card: Card,
    port: PortId,
    guest: TcpNode,
    bursts: Bursts,
    joins: Joins,
    sources: Vec<Source>,
    carrier: Carrier,
    // The packet that is being passed from or to the guest.
    slot: Packet,
    turn_left: u32,
    counts: Counts,
}

/// The card's environment: guest, transport and counters of the host.
struct Near<'a> {
    guest: &'a mut TcpNode,
    joins: &'a mut Joins,
    carrier: &'a mut Carrier,
    slot: &'a mut Packet,
    counts: &'a mut Counts,
    now: Instant,
    out: &'a mut Outcomes,
}

impl Near<'_> {
    /// Passes the segments that are ready to the guest's TCP.
    fn hand_over(&mut self) {
        let host = |inner: HostId| HostId(inner.0.wrapping_sub(FIRST));
        while let Some(framed) = self.joins.next() {
            *self.slot = Packet {
                src: host(framed.src),
                dst: host(framed.dst),
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
}

impl Environment for Near<'_> {
    fn to_guest(&mut self, _port: PortId, frame: Vec<u8>) {
        if let Some((flow, bytes)) = datagrams::read(&frame[OFFLOAD_BYTES..]) {
            self.counts.datagrams_received += 1;
            let index = self.counts.datagrams_received;
            self.out.delivered.push(Delivered { flow: FlowId(flow), index, bytes, intact: true });
            return;
        }
        let framed = match frame::read(self.now, &frame) {
            Some(frame::Arrived { framed, is_intact: true }) => framed,
            Some(frame::Arrived { framed, .. }) => {
                let (flow, index) = (FlowId(framed.segment.flow), framed.segment.seq);
                self.out.delivered.push(Delivered { flow, index, bytes: 0, intact: false });
                return;
            }
            None => {
                self.counts.unread += 1;
                return;
            }
        };
        self.joins.push(self.now, framed);
        self.hand_over();
    }

    fn to_host(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) {
        self.carrier.send(self.now, &way, frame);
    }

    fn to_service(&mut self, _port: PortId, _service: Service, _frame: Vec<u8>) {
        self.counts.unread += 1; // no guest sends requests to a service
    }
}

/// Creates the card for one run of a host, at the start and at each restart.
fn card(config: &CardNodeConfig, host: HostId, carrier: &Carrier) -> (Card, PortId) {
    let (mut card, port) = config.cloud.card(host, carrier.card_secret());
    card.set_host_bytes_max(carrier.bytes_max());
    (card, port)
}

impl CardNode {
    /// Creates the node of a host.
    ///
    /// # Panics
    /// If a value of the configuration is out of range.
    pub fn new(host: HostId, mut config: CardNodeConfig) -> Self {
        config.tcp.header_bytes = HEADER_BYTES;
        config.tcp.frame_bytes = 0;
        let mss_bytes = config.tcp.mss_bytes();
        config.tcp.burst_segments_max = segments_max(mss_bytes);
        let peers = config.peers.get(host.index()).into_iter().flatten();
        let carrier = CarrierConfig {
            endpoint: config.endpoint.clone(),
            seed: config.seed,
            peers: peers.map(|peer| (*peer, name_of(*peer))).collect(),
        };
        let carrier = Carrier::new(host, carrier, Instant::ZERO);
        let (card, port) = card(&config, host, &carrier);
        Self {
            host,
            guest: TcpNode::new(host, config.tcp),
            bursts: Bursts::new(mss_bytes),
            joins: Joins::new(mss_bytes),
            card,
            port,
            sources: Vec::new(),
            carrier,
            slot: Packet::empty(),
            turn_left: 0,
            counts: Counts::default(),
            config,
        }
    }

    /// Returns the host's counters, in addition to the counters of its card.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the counters of the ENA Express layer.
    pub fn stage(&self) -> Counters {
        self.carrier.counters()
    }

    /// Returns the number of frames with a trailer that is not an envelope, and of frames for an
    /// unknown host.
    pub fn malformed(&self) -> u64 {
        self.carrier.malformed()
    }

    /// Returns the endpoint's packet counters since the start of the simulation, restarts included.
    pub fn totals(&self) -> Totals {
        self.carrier.totals()
    }

    /// Returns the counters of the guest's TCP.
    pub fn tcp(&self) -> TcpStats {
        self.guest.stats()
    }

    /// Returns the counters of the guest's interface: packets and bytes sent and received.
    pub fn port_counts(&self) -> PortCounts {
        self.card.counts(self.port)
    }

    /// Returns the numbers of packets that exceeded an allowance of the instance (as the ENA driver
    /// reports them), and of connections that the card may still track.
    pub fn allowances(&self) -> (Allowances, u32) {
        self.card.allowances(self.port)
    }

    /// Returns the numbers of packets that were dropped for other reasons than a limit, by reason.
    pub fn drops(&self) -> Drops {
        self.card.drops(self.port)
    }

    /// Returns the numbers of packets that a limit of the card delayed and dropped.
    pub fn held(&self, limit: srd_card::limits::Limit) -> srd_card::limits::stages::LimitCounts {
        self.card.held(self.port, limit)
    }

    /// Returns the number of tracked flows, and of untracked flows that the card remembers.
    pub fn flows(&self) -> (u32, u32) {
        self.card.flows(self.port)
    }

    /// Returns the network credits that the instance has for one direction, in bits.
    pub fn credits_bits(&mut self, now: Instant, direction: Direction) -> u64 {
        self.card.credits_bits(now, self.port, direction)
    }

    /// Replaces the rules of the card.
    pub fn set_rules(&mut self, rules: Arc<Rules>) {
        self.card.set_rules(rules);
    }

    /// Returns the card, and its environment.
    fn near<'a>(&'a mut self, now: Instant, out: &'a mut Outcomes) -> (&'a mut Card, Near<'a>) {
        let Self { card, guest, joins, carrier, slot, counts, .. } = self;
        (card, Near { guest, joins, carrier, slot, counts, now, out })
    }

    fn offer(&mut self, now: Instant, frame: Vec<u8>, out: &mut Outcomes) {
        let port = self.port;
        let (card, mut near) = self.near(now, out);
        card.from_guest(now, port, frame, &mut near);
    }

    /// Passes the frames that have arrived from other hosts to the card.
    fn take_arrivals(&mut self, now: Instant, out: &mut Outcomes) {
        for arrival in self.carrier.take_arrivals() {
            let Arrival { from, envelope, by_srd, frame } = arrival;
            let (card, mut near) = self.near(now, out);
            card.set_by_srd(by_srd);
            card.from_host(now, &from, envelope, frame, &mut near);
            card.set_by_srd(false);
        }
    }

    /// Passes the segments that the guest's TCP has to send to the card, as frames.
    fn take_segments(&mut self, now: Instant, out: &mut Outcomes) {
        while self.guest.poll_packet(now, &mut self.slot, out) {
            let host = |host: HostId| HostId(host.0 + FIRST);
            (self.slot.src, self.slot.dst) = (host(self.slot.src), host(self.slot.dst));
            if let Some(frame) = self.bursts.push(&self.slot) {
                self.offer(now, frame, out);
            }
        }
        if let Some(frame) = self.bursts.flush() {
            self.offer(now, frame, out);
        }
    }

    /// Passes the datagrams that are due to the card. Reports flows whose datagrams have all been
    /// sent as completed.
    fn take_datagrams(&mut self, now: Instant, out: &mut Outcomes) {
        for at in 0..self.sources.len() {
            while self.sources[at].next().is_some_and(|due| due <= now) {
                let frame = self.sources[at].frame();
                self.counts.datagrams_sent += 1;
                self.offer(now, frame, out);
            }
        }
        let done = self.sources.iter().filter_map(Source::done);
        out.completed.extend(done.map(|spec| spec.id));
        self.sources.retain(|source| source.done().is_none());
    }

    /// Passes the guest's segments to the card, and waiting frames to the endpoint. Returns whether
    /// a frame was passed to the endpoint.
    fn turn(&mut self, now: Instant, out: &mut Outcomes) -> bool {
        self.turn_left = TURN_PACKETS;
        self.take_segments(now, out);
        self.carrier.pump(now)
    }
}

impl Node for CardNode {
    fn start_flow(&mut self, now: Instant, flow: &FlowSpec, out: &mut Outcomes) {
        match self.config.datagrams.get(flow.id.index()).copied().flatten() {
            Some(plan) => {
                self.sources.push(Source::new(now, *flow, plan));
                self.take_datagrams(now, out);
            }
            None => self.guest.start_flow(now, flow, out),
        }
        self.turn_left = 0;
    }

    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes) {
        if !self.carrier.on_packet(now, packet) {
            self.counts.foreign += 1;
        }
        self.take_arrivals(now, out);
    }

    fn on_timer(&mut self, now: Instant, out: &mut Outcomes) {
        self.joins.on_timer(now);
        self.near(now, out).1.hand_over();
        self.guest.on_timer(now, out);
        self.take_datagrams(now, out);
        let (card, mut near) = self.near(now, out);
        card.poll(now, &mut near);
        card.expire(now, EXPIRE_WORK);
        self.carrier.on_timer(now);
        self.take_arrivals(now, out);
        self.turn_left = 0;
    }

    fn next_timer(&self) -> Option<Instant> {
        let sources = self.sources.iter().filter_map(Source::next).min();
        let of_guest = [self.guest.next_timer(), self.joins.due(), sources];
        let of_host = [self.card.poll_timeout(), self.carrier.next_timer()];
        of_guest.into_iter().chain(of_host).flatten().min()
    }

    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, out: &mut Outcomes) -> bool {
        let mut has_more = true;
        if self.turn_left == 0 {
            has_more = self.turn(now, out);
        }
        loop {
            if self.carrier.poll(now, slot) {
                self.turn_left = self.turn_left.saturating_sub(1);
                return true;
            }
            if !has_more {
                return false;
            }
            has_more = self.turn(now, out);
        }
    }

    fn restart(&mut self, now: Instant, out: &mut Outcomes) {
        self.guest.restart(now, out);
        self.bursts.flush();
        self.joins = Joins::new(self.config.tcp.mss_bytes());
        self.sources.clear();
        self.carrier.restart(now);
        (self.card, self.port) = card(&self.config, self.host, &self.carrier);
        self.turn_left = 0;
    }
}

#[cfg(test)]
mod tests;
