//! The host: guest, card and wire, and when each of them has its turn.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use srd_card::limits::Allowances;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::vpc::{Around, Card, Drops, Envelope, PortCounts, PortId, Way};
use srd_card::{Direction, TRAILER_BYTES, Trailer};
use srd_proto::Instant;
use srd_proto::transmit::Ecn;
use srd_vpc::compile::Rules;
use srd_vpc::judge::Service;

use super::cloud::{Cloud, FIRST, name_of};
use super::datagrams::{self, Datagrams, Source};
use crate::express::bursts::{Bursts, segments_max};
use crate::express::frame::{self, HEADER_BYTES};
use crate::node::{
    Body, Delivered, FlowId, FlowSpec, HostId, Node, Outcomes, PROTOCOL_TCP, PROTOCOL_UDP, Packet,
};
use crate::tcp::{TcpConfig, TcpNode, TcpStats};

/// What a packet has on the wire beside itself: Ethernet with preamble and gap 38, IPv4 20, UDP 8,
/// the trailer.
#[allow(clippy::cast_possible_truncation)] // the trailer has 20
pub const OUTER_BYTES: u32 = 38 + 20 + 8 + TRAILER_BYTES as u32;
/// Packets of the world are smaller.
const WIRE_BYTES_MAX: u32 = 65_535;
/// Frames that wait for the link; those beyond it are dropped and counted. The limits of an
/// instance are slower than the link, so that few ever wait.
pub const WIRE_FRAMES_MAX: usize = 4096;
/// Steps of expiry at each turn of the clock.
const EXPIRE_WORK: u32 = 16;

/// The numbers of a [`CardNode`].
#[derive(Clone, Debug)]
pub struct CardNodeConfig {
    /// The instances.
    pub cloud: Arc<Cloud>,
    /// The guest's TCP. Its headers are those of the frames.
    pub tcp: TcpConfig,
    /// By flow: what is sent as datagrams instead of a TCP stream.
    pub datagrams: Arc<Vec<Option<Datagrams>>>,
    /// Seed of the world.
    pub seed: u64,
}

/// A frame that waits for the link.
#[derive(Debug)]
struct OnWire {
    trailer: Trailer,
    frame: Vec<u8>,
}

/// What a host counted beside its card.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Frames dropped because [`WIRE_FRAMES_MAX`] waited for the link.
    pub wire_full: u64,
    /// Arrived packets that were no envelope with a frame.
    pub malformed: u64,
    /// Frames that the card handed to the guest and the guest could not read.
    pub unread: u64,
    /// Datagrams that the guest sent.
    pub datagrams_sent: u64,
    /// Datagrams that the guest got.
    pub datagrams_received: u64,
}

/// The node.
pub struct CardNode {
    host: HostId,
    /// The name of the other host.
    peer: Arc<str>,
    config: CardNodeConfig,
    card: Card,
    port: PortId,
    guest: TcpNode,
    bursts: Bursts,
    sources: Vec<Source>,
    wire: VecDeque<OnWire>,
    // What the guest sends or gets, while it is in between.
    slot: Packet,
    counts: Counts,
}

/// What is around the card.
struct Near<'a> {
    guest: &'a mut TcpNode,
    wire: &'a mut VecDeque<OnWire>,
    slot: &'a mut Packet,
    counts: &'a mut Counts,
    now: Instant,
    out: &'a mut Outcomes,
}

impl Around for Near<'_> {
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
        let host = |inner: HostId| HostId(inner.0.wrapping_sub(FIRST));
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

    fn to_host(&mut self, way: Way<'_>, frame: Vec<u8>) {
        if self.wire.len() >= WIRE_FRAMES_MAX {
            self.counts.wire_full += 1;
            return;
        }
        self.wire.push_back(OnWire { trailer: way.envelope.trailer(), frame });
    }

    fn to_service(&mut self, _port: PortId, _service: Service, _frame: Vec<u8>) {
        self.counts.unread += 1; // no guest asks a service
    }
}

impl CardNode {
    /// The node of a host of the pair.
    ///
    /// # Panics
    /// If the TCP configuration makes no sense.
    pub fn new(host: HostId, mut config: CardNodeConfig) -> Self {
        let (card, port) = config.cloud.card(host, crate::hash::mix(config.seed));
        config.tcp.header_bytes = HEADER_BYTES;
        config.tcp.frame_bytes = 0;
        let mss_bytes = config.tcp.mss_bytes();
        let segments = super_packet_segments(mss_bytes);
        config.tcp.burst_segments_max = segments;
        Self {
            host,
            peer: name_of(HostId(1 - host.0)),
            guest: TcpNode::new(host, config.tcp),
            bursts: Bursts::new(mss_bytes).with_segments_max(segments),
            card,
            port,
            sources: Vec::new(),
            wire: VecDeque::new(),
            slot: Packet::empty(),
            counts: Counts::default(),
            config,
        }
    }

    /// What the host counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What the guest's TCP counted.
    pub fn tcp(&self) -> TcpStats {
        self.guest.stats()
    }

    /// What its interface has sent and received.
    pub fn port_counts(&self) -> PortCounts {
        self.card.counts(self.port)
    }

    /// Packets that limits held up, and connections that may still be tracked.
    pub fn allowances(&self) -> (Allowances, u32) {
        self.card.allowances(self.port)
    }

    /// Why packets were dropped that no limit dropped.
    pub fn drops(&self) -> Drops {
        self.card.drops(self.port)
    }

    /// What a limit let wait, and what it dropped.
    pub fn held(&self, limit: srd_card::limits::Limit) -> srd_card::limits::stages::Held {
        self.card.held(self.port, limit)
    }

    /// Flows that are tracked, and flows that are only remembered.
    pub fn flows(&self) -> (u32, u32) {
        self.card.flows(self.port)
    }

    /// Credits of a direction, in bits.
    pub fn credits_bits(&mut self, now: Instant, direction: Direction) -> u64 {
        self.card.credits_bits(now, self.port, direction)
    }

    /// Gives the card other rules.
    pub fn set_rules(&mut self, rules: Arc<Rules>) {
        self.card.set_rules(rules);
    }

    fn offer(&mut self, now: Instant, frame: Vec<u8>, out: &mut Outcomes) {
        let Self { card, port, guest, wire, slot, counts, .. } = self;
        let near = &mut Near { guest, wire, slot, counts, now, out };
        card.from_guest(now, *port, frame, near);
    }

    /// Takes what the guest's TCP has to send.
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

    /// Sends the datagrams that are due.
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

    fn fill(&self, slot: &mut Packet, next: OnWire) {
        let ends = [self.host, HostId(1 - self.host.0)];
        let bytes = wire_bytes(&next.frame).min(WIRE_BYTES_MAX);
        enclose(slot, ends, next.trailer, next.frame, bytes);
    }
}

/// Makes a packet between cards of a frame and its trailer, with so many bytes on the wire.
pub(crate) fn enclose(
    slot: &mut Packet,
    [from, to]: [HostId; 2],
    trailer: Trailer,
    frame: Vec<u8>,
    wire_bytes: u32,
) {
    slot.src = from;
    slot.dst = to;
    slot.src_port = crate::nic::PORT_BASE;
    slot.dst_port = crate::nic::PORT_BASE;
    slot.protocol = PROTOCOL_UDP;
    slot.wire_bytes = wire_bytes;
    slot.ecn = Ecn::NotEct;
    slot.control = false;
    slot.trimmed = false;
    slot.corrupted = false;
    slot.set_srd(&trailer.0, Bytes::from(frame));
}

/// The envelope and the frame of an arrived packet.
pub(crate) fn opened(packet: &mut Packet) -> Option<(Envelope, Vec<u8>)> {
    let Body::Srd(body) = &mut packet.body else { return None };
    let frame = Vec::from(std::mem::take(&mut body.payload));
    let trailer = Trailer(*body.head().first_chunk::<TRAILER_BYTES>()?);
    let envelope = Envelope::of(trailer).ok()?;
    (frame.len() > OFFLOAD_BYTES).then_some((envelope, frame))
}

/// Segments of a super-packet: no more than a frame holds, and than a packet of the world has bytes
/// for.
fn super_packet_segments(mss_bytes: u32) -> u32 {
    let of_wire = WIRE_BYTES_MAX / (mss_bytes + HEADER_BYTES + OUTER_BYTES);
    segments_max(mss_bytes).min(of_wire).max(1)
}

/// Bytes on the wire of all packets that a frame stands for.
fn wire_bytes(frame: &[u8]) -> u32 {
    let word = |at: usize| u32::from(u16::from_le_bytes([frame[at], frame[at + 1]]));
    let bytes = u32::try_from(frame.len() - OFFLOAD_BYTES).unwrap_or(u32::MAX);
    let (headers, step) = (word(2), word(4));
    let packets =
        if frame[1] == 0 || step == 0 { 1 } else { bytes.saturating_sub(headers).div_ceil(step) };
    bytes + (packets - 1) * headers + packets * OUTER_BYTES
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
    }

    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes) {
        let Some((envelope, frame)) = opened(packet) else {
            self.counts.malformed += 1;
            return;
        };
        let Self { card, peer, guest, wire, slot, counts, .. } = self;
        let near = &mut Near { guest, wire, slot, counts, now, out };
        card.from_host(now, peer, envelope, frame, near);
    }

    fn on_timer(&mut self, now: Instant, out: &mut Outcomes) {
        self.guest.on_timer(now, out);
        self.take_datagrams(now, out);
        let Self { card, guest, wire, slot, counts, .. } = self;
        card.poll(now, &mut Near { guest, wire, slot, counts, now, out });
        card.expire(now, EXPIRE_WORK);
    }

    fn next_timer(&self) -> Option<Instant> {
        let sources = self.sources.iter().filter_map(Source::next).min();
        let of_all = [self.guest.next_timer(), self.card.poll_timeout(), sources];
        of_all.into_iter().flatten().min()
    }

    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, out: &mut Outcomes) -> bool {
        if self.wire.is_empty() {
            self.take_segments(now, out);
        }
        let Some(next) = self.wire.pop_front() else { return false };
        self.fill(slot, next);
        true
    }

    fn restart(&mut self, now: Instant, out: &mut Outcomes) {
        self.guest.restart(now, out);
        self.bursts.flush();
        self.wire.clear();
        self.sources.clear();
        (self.card, self.port) = self.config.cloud.card(self.host, self.config.seed);
    }
}

#[cfg(test)]
mod tests;
