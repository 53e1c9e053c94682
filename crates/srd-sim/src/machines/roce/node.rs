//! A host that uses RoCE: its connections, and the order in which they send.
//!
//! Notifications are sent first, then acknowledgements. After them the connections that may send
//! take turns, with one packet each. A pause of the link stops everything except notifications,
//! which belong to a separate traffic class.
//!
//! Bound: `REPLIES_MAX` acknowledgements and as many notifications wait. If there are more, the
//! oldest are dropped.

use std::collections::{BTreeMap, VecDeque};

use srd_proto::time::Instant;
use srd_proto::transmit::Ecn;

use super::config::{REPLY_BYTES, RoceConfig};
use super::connection::{Receiver, Sender};
use super::packet::{RoceKind, RocePacket};
use crate::engine::hash;
use crate::engine::nic::{PORT_BASE, Totals};
use crate::engine::node::{
    Body, Delivered, Failed, FlowId, FlowSpec, HostId, Node, Outcomes, PROTOCOL_UDP, Packet,
};
use crate::machines::tcp::timers::Timers;

/// UDP port of RoCEv2.
pub const PORT: u16 = 4791;
/// Largest number of acknowledgements that wait for the link, and of notifications that wait.
const REPLIES_MAX: usize = 4096;
/// Number of source ports over which connections spread.
const PORTS: u64 = 1 << 14;

/// Reasons for the failure of a flow, as values of [`Failed::status`].
pub mod status {
    /// The connection had too many timeouts in a row.
    pub const TIMED_OUT: u8 = 1;
    /// The sending host restarted.
    pub const RESTARTED: u8 = 2;
}

/// Counters of a host with RoCE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoceStats {
    /// Data packets sent, retransmissions included.
    pub packets: u64,
    /// Data packets that were retransmissions.
    pub again: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Negative acknowledgements sent.
    pub naks: u64,
    /// Congestion notifications sent.
    pub cnps: u64,
    /// Retransmission timeouts that expired.
    pub timeouts: u64,
    /// Acknowledgements and notifications that were dropped because too many were waiting.
    pub replies_dropped: u64,
}

/// Returns the UDP source port of a flow, which selects its path.
fn source_port(flow: u32) -> u16 {
    let port = hash::mix(u64::from(flow) ^ 0x0ce) % PORTS;
    PORT_BASE + u16::try_from(port).expect("below 2^14")
}

/// Returns the hash of a flow's packets, from which switches choose links.
pub fn flow_hash(src: HostId, dst: HostId, flow: FlowId) -> u32 {
    hash::five_tuple(src.0, dst.0, source_port(flow.0), PORT, PROTOCOL_UDP)
}

struct Reply {
    packet: RocePacket,
    peer: HostId,
    port: u16,
}

/// A queue of replies. If the queue is full, the oldest reply is dropped.
#[derive(Default)]
struct Replies(VecDeque<Reply>);

impl Replies {
    /// Adds a reply. Returns whether an older reply was dropped.
    fn push(&mut self, reply: Reply) -> bool {
        let is_full = self.0.len() == REPLIES_MAX;
        if is_full {
            self.0.pop_front();
        }
        self.0.push_back(reply);
        is_full
    }
}

/// Node of a host that uses RoCE.
pub struct RoceNode {
    host: HostId,
    config: RoceConfig,
    senders: Vec<Sender>,
    // By flow: index in `senders`.
    sends: BTreeMap<u32, u32>,
    receivers: BTreeMap<u32, Receiver>,
    free: Vec<u32>,
    ready: VecDeque<u32>,
    timers: Timers,
    acks: Replies,
    cnps: Replies,
    stats: RoceStats,
}

impl RoceNode {
    /// Creates a host without connections.
    ///
    /// # Panics
    /// If a value of the configuration is out of range; check the configuration before.
    pub fn new(host: HostId, config: RoceConfig) -> Self {
        config.check().expect("the configuration was checked");
        Self {
            host,
            config,
            senders: Vec::new(),
            sends: BTreeMap::new(),
            receivers: BTreeMap::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            timers: Timers::default(),
            acks: Replies::default(),
            cnps: Replies::default(),
            stats: RoceStats::default(),
        }
    }

    /// Returns the counters of the host.
    pub const fn stats(&self) -> RoceStats {
        self.stats
    }

    /// Returns the counters of the host in the form that all transports share.
    pub fn totals(&self) -> Totals {
        let RoceStats { packets, again, acks, naks, cnps, timeouts, .. } = self.stats;
        Totals { data: packets, again, acks: acks + naks + cnps, timeouts }
    }

    /// Updates the state of a connection after any event of its sender: completion or failure,
    /// place in the queue, deadline.
    fn settle(&mut self, slot: u32, now: Instant, out: &mut Outcomes) {
        let sender = &mut self.senders[slot as usize];
        if sender.is_alive && sender.is_complete() {
            out.completed.push(FlowId(sender.flow));
            return self.close(slot);
        }
        if sender.retries > self.config.retries_max {
            let (flow, index) = (FlowId(sender.flow), sender.una);
            out.failed.push(Failed { flow, index, status: status::TIMED_OUT });
            return self.close(slot);
        }
        if !sender.is_queued && sender.may_send(&self.config, now) {
            sender.is_queued = true;
            self.ready.push_back(slot);
        }
        self.timers.set(slot, self.senders[slot as usize].deadline(&self.config, now));
    }

    fn close(&mut self, slot: u32) {
        let sender = &mut self.senders[slot as usize];
        sender.is_alive = false;
        self.sends.remove(&sender.flow);
        self.timers.set(slot, None);
        self.free.push(slot);
    }

    fn on_data(&mut self, now: Instant, packet: &Packet, data: &RocePacket, out: &mut Outcomes) {
        let receiver = self.receivers.entry(data.flow).or_default();
        let is_notified = packet.ecn == Ecn::Ce && receiver.on_mark(self.config.cnp_gap, now);
        let received = receiver.on_data(&self.config, data);
        let psn = receiver.expected;
        let reply = |kind| Reply {
            packet: RocePacket { flow: data.flow, kind, psn, ..RocePacket::default() },
            peer: packet.src,
            port: packet.src_port,
        };
        let mut dropped = 0;
        if let Some(kind) = received.reply {
            dropped += u64::from(self.acks.push(reply(kind)));
        }
        if is_notified {
            dropped += u64::from(self.cnps.push(reply(RoceKind::Cnp)));
        }
        self.stats.replies_dropped += dropped;
        if received.is_taken {
            out.delivered.push(Delivered {
                flow: FlowId(data.flow),
                index: data.psn,
                bytes: data.payload_bytes,
                intact: true,
            });
        }
    }

    fn on_reply(&mut self, now: Instant, packet: &RocePacket, out: &mut Outcomes) {
        let Some(&slot) = self.sends.get(&packet.flow) else {
            return; // the flow is over
        };
        let (sender, config) = (&mut self.senders[slot as usize], &self.config);
        match packet.kind {
            RoceKind::Ack => sender.on_ack(config, now, packet.psn),
            RoceKind::Nak => sender.on_nak(config, now, packet.psn),
            RoceKind::Cnp => sender.on_cnp(config, now),
            RoceKind::Data => {}
        }
        self.settle(slot, now, out);
    }

    fn fill(&self, slot: &mut Packet, packet: RocePacket, peer: HostId, port: u16) {
        let is_data = packet.kind == RoceKind::Data;
        slot.src = self.host;
        slot.dst = peer;
        slot.wire_bytes = match packet.kind {
            RoceKind::Data => packet.payload_bytes + self.config.header_bytes,
            _ => REPLY_BYTES,
        };
        (slot.src_port, slot.dst_port) = (port, PORT);
        slot.protocol = PROTOCOL_UDP;
        let is_capable = is_data && self.config.dcqcn.is_some();
        slot.ecn = if is_capable { Ecn::Ect } else { Ecn::NotEct };
        slot.control = packet.kind == RoceKind::Cnp;
        slot.trimmed = false;
        slot.corrupted = false;
        slot.body = Body::Roce(packet);
    }
}

impl Node for RoceNode {
    fn start_flow(&mut self, now: Instant, flow: &FlowSpec, out: &mut Outcomes) {
        debug_assert_eq!(flow.src, self.host, "a flow starts at its sender");
        let port = source_port(flow.id.0);
        let mut new = Sender::new(&self.config, flow.id.0, flow.dst, port, flow.bytes);
        let slot = match self.free.pop() {
            Some(slot) => {
                let old = &mut self.senders[slot as usize];
                new.is_queued = old.is_queued;
                *old = new;
                slot
            }
            None => {
                self.senders.push(new);
                u32::try_from(self.senders.len() - 1).expect("fewer than 2^32 connections")
            }
        };
        self.sends.insert(flow.id.0, slot);
        self.settle(slot, now, out);
    }

    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes) {
        let Body::Roce(carried) = packet.body else { return };
        if packet.corrupted || packet.trimmed {
            return; // the ICRC, or the length, is wrong
        }
        if carried.kind == RoceKind::Data {
            self.on_data(now, packet, &carried, out);
        } else {
            self.on_reply(now, &carried, out);
        }
    }

    fn on_timer(&mut self, now: Instant, out: &mut Outcomes) {
        while let Some((at, slot)) = self.timers.first()
            && at <= now
        {
            let has_timed_out = self.senders[slot as usize].on_timer(&self.config, now);
            self.stats.timeouts += u64::from(has_timed_out);
            self.settle(slot, now, out);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| at)
    }

    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, out: &mut Outcomes) -> bool {
        if self.poll_unpaused(now, slot) {
            return true;
        }
        if let Some(Reply { packet, peer, port }) = self.acks.0.pop_front() {
            match packet.kind {
                RoceKind::Nak => self.stats.naks += 1,
                _ => self.stats.acks += 1,
            }
            self.fill(slot, packet, peer, port);
            return true;
        }
        while let Some(number) = self.ready.pop_front() {
            let sender = &mut self.senders[number as usize];
            sender.is_queued = false;
            if !sender.may_send(&self.config, now) {
                continue;
            }
            let sent = sender.send(&self.config, now);
            let (peer, port) = (sender.peer, sender.port);
            self.settle(number, now, out);
            self.stats.packets += 1;
            if sent.is_again {
                self.stats.again += 1;
            }
            self.fill(slot, sent.packet, peer, port);
            return true;
        }
        false
    }

    fn poll_unpaused(&mut self, _now: Instant, slot: &mut Packet) -> bool {
        let Some(Reply { packet, peer, port }) = self.cnps.0.pop_front() else { return false };
        self.stats.cnps += 1;
        self.fill(slot, packet, peer, port);
        true
    }

    fn restart(&mut self, _now: Instant, out: &mut Outcomes) {
        for sender in self.senders.iter().filter(|sender| sender.is_alive) {
            let (flow, index) = (FlowId(sender.flow), sender.una);
            out.failed.push(Failed { flow, index, status: status::RESTARTED });
        }
        *self = Self { stats: self.stats, ..Self::new(self.host, self.config) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_beyond_the_bound_push_the_oldest_out() {
        let mut replies = Replies::default();
        let reply = |psn| Reply {
            packet: RocePacket { psn, ..RocePacket::default() },
            peer: HostId(0),
            port: 1,
        };
        let most = REPLIES_MAX as u64;
        (0..most).for_each(|psn| assert!(!replies.push(reply(psn))));
        assert!(replies.push(reply(most)));
        assert_eq!((replies.0.len(), replies.0[0].packet.psn), (REPLIES_MAX, 1));
    }
}
