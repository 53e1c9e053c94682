//! A host that uses TCP: its connections, their timers, and the order in which they send.
//!
//! The world polls one packet whenever the host's link is free. Acknowledgements are sent first.
//! After them the connections with data to send take turns, with one burst each, in the order in
//! which they became able to send. So a host has no queue; Linux has a queue of at most two
//! super-packets per connection (TCP small queues).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use srd_proto::rng::Rng;
use srd_proto::time::{Duration, Instant};
use srd_proto::transmit::Ecn;

use super::config::TcpConfig;
use super::receiver::{Receiver, answer_duplicate};
use super::segment::{FLAG_ACK, FLAG_RST, FLAG_SYN, TcpSegment};
use super::sender::{Fired, Sender};
use super::timers::Timers;
use crate::engine::node::{
    Body, Delivered, Failed, FlowId, FlowSpec, HostId, Node, Outcomes, PROTOCOL_TCP, Packet,
};

/// TCP port on which every host receives data.
pub const LISTEN_PORT: u16 = 5001;
/// The source port of a host's first connection. Later connections have the following numbers.
pub const SOURCE_PORT_FIRST: u16 = 10_000;
/// Largest number of acknowledgements and resets that wait for the link. If there are more, the
/// oldest are dropped.
pub const REPLIES_MAX: usize = 4096;

/// Reasons for the failure of a flow, as values of [`Failed::status`].
pub mod status {
    /// The connection had too many retransmission timeouts in a row.
    pub const TIMED_OUT: u8 = 1;
    /// The peer replied that it has no such connection.
    pub const RESET: u8 = 2;
    /// The sending host restarted.
    pub const RESTARTED: u8 = 3;
}

/// Counters of a host's TCP connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpStats {
    /// Data segments sent, retransmissions included.
    pub segments: u64,
    /// Data segments that were retransmissions.
    pub segments_resent: u64,
    /// Retransmission timeouts that expired.
    pub timeouts: u64,
    /// Acknowledgements sent.
    pub acknowledgements: u64,
    /// Packets that arrived corrupted, trimmed or with contents other than TCP.
    pub packets_ignored: u64,
    /// Acknowledgements that were dropped because [`REPLIES_MAX`] were waiting.
    pub replies_dropped: u64,
}

// Hash function for flow numbers. They are dense, so a multiplication spreads them well enough.
#[derive(Clone, Copy, Default)]
struct FlowHasher(u64);

impl Hasher for FlowHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.0 = (self.0 ^ u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

// The program looks entries up and never iterates over them, so their order has no effect.
type FlowTable<T> = HashMap<u32, T, BuildHasherDefault<FlowHasher>>;

struct Outbound {
    sender: Sender,
    peer: HostId,
    port: u16,
    // Whether the connection is in the queue of connections that may have data to send.
    queued: bool,
    alive: bool,
}

struct Inbound {
    receiver: Receiver,
    peer: HostId,
    port: u16,
}

struct Reply {
    segment: TcpSegment,
    peer: HostId,
    port: u16,
}

/// A host with TCP connections. The slot of a connection is reused once its flow is complete. The
/// length of a stream that has arrived is kept, for replies to duplicates (as in TIME-WAIT).
pub struct TcpNode {
    host: HostId,
    config: TcpConfig,
    outbound: Vec<Outbound>,
    inbound: Vec<Inbound>,
    // By flow: index in `outbound` and in `inbound`.
    sends: FlowTable<u32>,
    receives: FlowTable<u32>,
    // By flow: length of the stream, if all of it has arrived.
    arrived: FlowTable<u64>,
    // Slots of flows that have ended: idle connections by peer, and free slots.
    idle: BTreeMap<HostId, Vec<u32>>,
    free: Vec<u32>,
    inbound_free: Vec<u32>,
    ready: VecDeque<u32>,
    burst_left: u32,
    // Time when an idle host begins to send; `None` if the host has nothing to send.
    begin_at: Option<Instant>,
    waits: bool,
    rng: Rng,
    replies: VecDeque<Reply>,
    scratch: VecDeque<TcpSegment>,
    send_timers: Timers,
    ack_timers: Timers,
    ports_used: u16,
    stats: TcpStats,
}

impl TcpNode {
    /// Creates a host without connections.
    ///
    /// # Panics
    /// If a value of the configuration is out of range.
    pub fn new(host: HostId, config: TcpConfig) -> Self {
        config.check();
        Self {
            host,
            config,
            outbound: Vec::new(),
            inbound: Vec::new(),
            sends: FlowTable::default(),
            receives: FlowTable::default(),
            arrived: FlowTable::default(),
            idle: BTreeMap::new(),
            free: Vec::new(),
            inbound_free: Vec::new(),
            ready: VecDeque::new(),
            burst_left: config.burst_segments_max,
            begin_at: None,
            waits: false,
            rng: Rng::new(config.seed ^ (u64::from(host.0) + 1) << 32),
            replies: VecDeque::new(),
            scratch: VecDeque::new(),
            send_timers: Timers::default(),
            ack_timers: Timers::default(),
            ports_used: 0,
            stats: TcpStats::default(),
        }
    }

    /// Returns the counters of the host.
    pub const fn stats(&self) -> TcpStats {
        self.stats
    }

    /// Returns the sending half of the connection that carries `flow`; `None` if this host does not
    /// send the flow, or not any more.
    pub fn sender(&self, flow: FlowId) -> Option<&Sender> {
        let slot = *self.sends.get(&flow.0)?;
        Some(&self.outbound[slot as usize].sender)
    }

    // Whether the host may send now. A host that was idle first waits for a random time (jitter).
    fn begins(&mut self, now: Instant) -> bool {
        if self.replies.is_empty() && self.ready.is_empty() {
            return false;
        }
        let jitter_max_ns = self.config.jitter_max.as_nanos();
        let begin_at = *self.begin_at.get_or_insert_with(|| match jitter_max_ns {
            0 => now,
            _ => now + Duration::from_nanos(self.rng.next_u64() % jitter_max_ns),
        });
        self.waits = begin_at > now;
        !self.waits
    }

    // Updates the state of a connection after any event of its sender: completion, place in the
    // queue, deadline.
    fn settle_sender(&mut self, slot: u32, out: &mut Outcomes) {
        let outbound = &mut self.outbound[slot as usize];
        if outbound.alive && outbound.sender.is_complete() {
            out.completed.push(FlowId(outbound.sender.flow()));
            self.close_sender(slot, self.config.reuse_connections);
            return;
        }
        if outbound.alive && !outbound.queued {
            outbound.queued = true;
            self.ready.push_back(slot);
        }
        self.send_timers.set(slot, self.outbound[slot as usize].sender.deadline());
    }

    fn close_sender(&mut self, slot: u32, reusable: bool) {
        let outbound = &mut self.outbound[slot as usize];
        outbound.alive = false;
        self.sends.remove(&outbound.sender.flow());
        self.send_timers.set(slot, None);
        if reusable {
            self.idle.entry(outbound.peer).or_default().push(slot);
        } else {
            self.free.push(slot);
        }
    }

    fn fail_sender(&mut self, slot: u32, status: u8, out: &mut Outcomes) {
        let sender = &self.outbound[slot as usize].sender;
        out.failed.push(Failed { flow: FlowId(sender.flow()), index: sender.una(), status });
        self.close_sender(slot, false);
    }

    fn on_data(&mut self, now: Instant, packet: &Packet, segment: &TcpSegment, out: &mut Outcomes) {
        let (peer, port) = (packet.src, packet.src_port);
        if let Some(&end) = self.arrived.get(&segment.flow) {
            self.reply(Reply { segment: answer_duplicate(end, segment), peer, port });
            return;
        }
        let Some(slot) = self.receiver_of(segment, peer, port) else {
            let reset = TcpSegment { flow: segment.flow, flags: FLAG_RST, ..Default::default() };
            self.reply(Reply { segment: reset, peer, port });
            return;
        };
        let receiver = &mut self.inbound[slot as usize].receiver;
        if segment.payload_bytes == 0 {
            // A segment without data is a SYN.
            let flags = FLAG_SYN | FLAG_ACK;
            let timestamp_echo_ns = segment.timestamp_ns;
            let segment =
                TcpSegment { flow: segment.flow, flags, timestamp_echo_ns, ..Default::default() };
            self.reply(Reply { segment, peer, port });
            return;
        }
        let marked = packet.ecn == Ecn::Ce;
        let arrived = receiver.on_segment(now, segment, marked, &mut self.scratch);
        self.ack_timers.set(slot, receiver.deadline());
        if receiver.is_complete() {
            self.arrived.insert(segment.flow, receiver.next());
            self.receives.remove(&segment.flow);
            self.inbound_free.push(slot);
        }
        let mut index = arrived.start;
        while index < arrived.end {
            // After a gap is filled, the number of deliverable bytes may be larger than a `u32`.
            let bytes = u32::try_from(arrived.end - index).unwrap_or(u32::MAX);
            out.delivered.push(Delivered {
                flow: FlowId(segment.flow),
                index,
                bytes,
                intact: true,
            });
            index += u64::from(bytes);
        }
        while let Some(segment) = self.scratch.pop_front() {
            self.reply(Reply { segment, peer, port });
        }
    }

    // Returns the receiving half of a connection. The first segment that arrives and may open the
    // connection creates it.
    fn receiver_of(&mut self, segment: &TcpSegment, peer: HostId, port: u16) -> Option<u32> {
        if let Some(&slot) = self.receives.get(&segment.flow) {
            return Some(slot);
        }
        if !segment.has(FLAG_SYN) {
            return None;
        }
        let receiver = Receiver::new((&self.config).into(), segment);
        let new = Inbound { receiver, peer, port };
        let slot = if let Some(slot) = self.inbound_free.pop() {
            self.inbound[slot as usize] = new;
            slot
        } else {
            self.inbound.push(new);
            u32::try_from(self.inbound.len() - 1).ok()?
        };
        self.receives.insert(segment.flow, slot);
        Some(slot)
    }

    fn reply(&mut self, reply: Reply) {
        if self.replies.len() == REPLIES_MAX {
            self.replies.pop_front();
            self.stats.replies_dropped += 1;
        }
        self.replies.push_back(reply);
    }

    fn on_reply(&mut self, now: Instant, segment: &TcpSegment, out: &mut Outcomes) {
        let Some(&slot) = self.sends.get(&segment.flow) else {
            return; // the flow is over
        };
        if segment.has(FLAG_RST) {
            self.fail_sender(slot, status::RESET, out);
            return;
        }
        let sender = &mut self.outbound[slot as usize].sender;
        if segment.has(FLAG_SYN) {
            sender.on_opened(now);
        } else {
            sender.on_ack(now, segment);
        }
        self.settle_sender(slot, out);
    }

    fn fill(&self, slot: &mut Packet, segment: TcpSegment, peer: HostId, ports: (u16, u16)) {
        let data = segment.payload_bytes > 0;
        slot.src = self.host;
        slot.dst = peer;
        slot.wire_bytes = self.config.wire_bytes(segment.payload_bytes);
        (slot.src_port, slot.dst_port) = ports;
        slot.protocol = PROTOCOL_TCP;
        slot.ecn = if data && self.config.ecn_capable() { Ecn::Ect } else { Ecn::NotEct };
        slot.control = false;
        slot.trimmed = false;
        slot.corrupted = false;
        slot.body = Body::Tcp(segment);
    }
}

impl Node for TcpNode {
    fn start_flow(&mut self, now: Instant, flow: &FlowSpec, out: &mut Outcomes) {
        debug_assert_eq!(flow.src, self.host, "a flow starts at its sender");
        if let Some(slot) = self.idle.get_mut(&flow.dst).and_then(Vec::pop) {
            let outbound = &mut self.outbound[slot as usize];
            outbound.sender.reopen(flow.id.0, flow.bytes, now);
            outbound.alive = true;
            self.sends.insert(flow.id.0, slot);
            self.settle_sender(slot, out);
            return;
        }
        let port = SOURCE_PORT_FIRST.wrapping_add(self.ports_used);
        self.ports_used = (self.ports_used + 1) % (u16::MAX - SOURCE_PORT_FIRST);
        let sender = Sender::new(&self.config, flow.id.0, flow.bytes, now);
        let new = Outbound { sender, peer: flow.dst, port, queued: false, alive: true };
        let slot = match self.free.pop() {
            Some(slot) => {
                let old = &mut self.outbound[slot as usize];
                *old = Outbound { queued: old.queued, ..new };
                slot
            }
            None => {
                self.outbound.push(new);
                u32::try_from(self.outbound.len() - 1).expect("fewer than 2^32 connections")
            }
        };
        self.sends.insert(flow.id.0, slot);
        self.settle_sender(slot, out);
    }

    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes) {
        let Body::Tcp(segment) = packet.body else {
            self.stats.packets_ignored += 1;
            return;
        };
        if packet.corrupted || packet.trimmed {
            self.stats.packets_ignored += 1; // the checksum, or the length, is wrong
        } else if packet.dst_port == LISTEN_PORT {
            self.on_data(now, packet, &segment, out);
        } else {
            self.on_reply(now, &segment, out);
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Outcomes) {
        while let Some((at, slot)) = self.ack_timers.first()
            && at <= now
        {
            let Inbound { receiver, peer, port } = &mut self.inbound[slot as usize];
            let reply = Reply { segment: receiver.on_timer(now), peer: *peer, port: *port };
            self.ack_timers.set(slot, None);
            self.reply(reply);
        }
        while let Some((at, slot)) = self.send_timers.first()
            && at <= now
        {
            let sender = &mut self.outbound[slot as usize].sender;
            let timeouts = sender.timeouts();
            let fired = sender.on_timer(now);
            self.stats.timeouts += sender.timeouts() - timeouts;
            match fired {
                Fired::Alive => self.settle_sender(slot, out),
                Fired::Dead => self.fail_sender(slot, status::TIMED_OUT, out),
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let sends = self.send_timers.first().map(|(at, _)| at);
        let acks = self.ack_timers.first().map(|(at, _)| at);
        let begins = self.begin_at.filter(|_| self.waits);
        sends.into_iter().chain(acks).chain(begins).min()
    }

    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, _: &mut Outcomes) -> bool {
        if !self.begins(now) {
            return false;
        }
        if let Some(Reply { segment, peer, port }) = self.replies.pop_front() {
            self.stats.acknowledgements += 1;
            self.fill(slot, segment, peer, (LISTEN_PORT, port));
            return true;
        }
        while let Some(&number) = self.ready.front() {
            let outbound = &mut self.outbound[number as usize];
            let sent = if outbound.alive { outbound.sender.poll(now) } else { None };
            let Some(sent) = sent else {
                outbound.queued = false;
                self.ready.pop_front();
                self.burst_left = self.config.burst_segments_max;
                continue;
            };
            let (peer, port) = (outbound.peer, outbound.port);
            self.send_timers.set(number, outbound.sender.deadline());
            self.burst_left -= 1;
            if self.burst_left == 0 {
                self.burst_left = self.config.burst_segments_max;
                self.ready.rotate_left(1);
            }
            self.stats.segments += 1;
            if sent.resent {
                self.stats.segments_resent += 1;
            }
            self.fill(slot, sent.segment, peer, (port, LISTEN_PORT));
            return true;
        }
        self.begin_at = None;
        false
    }

    fn restart(&mut self, _now: Instant, out: &mut Outcomes) {
        for outbound in self.outbound.iter().filter(|outbound| outbound.alive) {
            let sender = &outbound.sender;
            let flow = FlowId(sender.flow());
            out.failed.push(Failed { flow, index: sender.una(), status: status::RESTARTED });
        }
        let (ports_used, stats, rng) = (self.ports_used, self.stats, self.rng.clone());
        *self = Self { ports_used, stats, rng, ..Self::new(self.host, self.config) };
    }
}
