//! A load generator for tests and timings of the engine: a window of interchangeable packets,
//! sprayed over all paths without regard to their state.
//!
//! The receiver counts packets and returns its count with every fourth packet. The sender continues
//! until, according to this count, enough packets have arrived. There is no order, no congestion
//! control and no retransmission, because all packets are alike.

use std::collections::BTreeMap;

use srd_proto::time::{Duration, Instant};
use srd_proto::transmit::Ecn;

use crate::engine::node::{
    Body, Delivered, ENDLESS, FlowId, FlowSpec, HostId, Node, Outcomes, PROTOCOL_UDP, Packet,
};
use crate::machines::tcp::TcpSegment;

/// Parameters of a [`Blast`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlastConfig {
    /// Wire bytes of a data packet, headers included.
    pub packet_bytes: u16,
    /// Payload bytes of a data packet.
    pub payload_bytes: u16,
    /// Largest number of packets of a flow in flight.
    pub window_packets: u64,
    /// Number of paths over which the packets of a flow are sprayed.
    pub paths: u16,
    /// Time without an acknowledgement after which all packets of a flow in flight count as lost.
    pub timeout: Duration,
}

impl Default for BlastConfig {
    fn default() -> Self {
        Self {
            packet_bytes: 4150,
            payload_bytes: 4086,
            window_packets: 45,
            paths: 64,
            timeout: Duration::from_micros(500),
        }
    }
}

const ACK_BYTES: u32 = 64;
const ACK_EVERY: u64 = 4;
const PORT: u16 = 7471;
const PORT_BASE: u16 = 49_152;

struct Sending {
    spec: FlowSpec,
    packets: u64,
    acked: u64,
    in_flight: u64,
    sent: u64,
    heard_at: Instant,
}

struct Receiving {
    from: HostId,
    packets: u64,
    owes_ack: bool,
}

/// A simulated host that runs the load generator of this module.
pub struct Blast {
    host: HostId,
    config: BlastConfig,
    sending: Vec<Sending>,
    next: usize,
    receiving: BTreeMap<FlowId, Receiving>,
    acks: Vec<FlowId>,
}

impl Blast {
    /// Creates the node of a host.
    pub fn new(host: u32, config: BlastConfig) -> Self {
        Self {
            host: HostId(host),
            config,
            sending: Vec::new(),
            next: 0,
            receiving: BTreeMap::new(),
            acks: Vec::new(),
        }
    }

    fn address(&self, slot: &mut Packet, to: HostId, src_port: u16) {
        slot.src = self.host;
        slot.dst = to;
        slot.src_port = src_port;
        slot.dst_port = PORT;
        slot.protocol = PROTOCOL_UDP;
        slot.ecn = Ecn::NotEct;
        slot.control = false;
        slot.trimmed = false;
        slot.corrupted = false;
    }

    fn poll_ack(&mut self, slot: &mut Packet) -> bool {
        let Some(flow) = self.acks.pop() else { return false };
        let Some(receiving) = self.receiving.get_mut(&flow) else { return false };
        receiving.owes_ack = false;
        let (to, ack) = (receiving.from, receiving.packets);
        self.address(slot, to, PORT_BASE);
        slot.control = true;
        slot.wire_bytes = ACK_BYTES;
        slot.body = Body::Tcp(TcpSegment { flow: flow.0, ack, ..TcpSegment::default() });
        true
    }

    #[allow(clippy::cast_possible_truncation)] // below `paths`
    fn poll_data(&mut self, now: Instant, slot: &mut Packet) -> bool {
        for _ in 0..self.sending.len() {
            self.next = if self.next + 1 >= self.sending.len() { 0 } else { self.next + 1 };
            let flow = &mut self.sending[self.next];
            let wanted = flow.packets - flow.acked;
            if flow.in_flight >= self.config.window_packets.min(wanted) {
                continue;
            }
            if flow.in_flight == 0 {
                flow.heard_at = now;
            }
            flow.in_flight += 1;
            flow.sent += 1;
            let path = (flow.sent % u64::from(self.config.paths)) as u16;
            let (to, id) = (flow.spec.dst, flow.spec.id);
            self.address(slot, to, PORT_BASE + path);
            slot.wire_bytes = self.config.packet_bytes.into();
            let payload_bytes = self.config.payload_bytes.into();
            let segment = TcpSegment { flow: id.0, payload_bytes, ..TcpSegment::default() };
            slot.body = Body::Tcp(segment);
            return true;
        }
        false
    }

    fn on_ack(&mut self, now: Instant, segment: TcpSegment, out: &mut Outcomes) {
        let by_id = |s: &Sending| s.spec.id.0 == segment.flow;
        let Some(place) = self.sending.iter().position(by_id) else { return };
        let flow = &mut self.sending[place];
        flow.in_flight = flow.in_flight.saturating_sub(segment.ack.saturating_sub(flow.acked));
        flow.acked = flow.acked.max(segment.ack);
        flow.heard_at = now;
        if flow.acked >= flow.packets {
            out.completed.push(flow.spec.id);
            self.sending.swap_remove(place);
        }
    }
}

impl Node for Blast {
    fn start_flow(&mut self, now: Instant, flow: &FlowSpec, _out: &mut Outcomes) {
        let packets = match flow.bytes {
            ENDLESS => u64::MAX,
            bytes => bytes.div_ceil(self.config.payload_bytes.into()),
        };
        self.sending.push(Sending {
            spec: *flow,
            packets,
            acked: 0,
            in_flight: 0,
            sent: 0,
            heard_at: now,
        });
    }

    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes) {
        match packet.body {
            Body::Tcp(segment) if segment.payload_bytes == 0 => self.on_ack(now, segment, out),
            Body::Tcp(segment) if !packet.trimmed => {
                let flow = FlowId(segment.flow);
                let fresh = Receiving { from: packet.src, packets: 0, owes_ack: false };
                let receiving = self.receiving.entry(flow).or_insert(fresh);
                receiving.packets += 1;
                out.delivered.push(Delivered {
                    flow,
                    index: receiving.packets,
                    bytes: self.config.payload_bytes.into(),
                    intact: !packet.corrupted,
                });
                // Beyond a full window, every packet is acknowledged: the receiver does not
                // recognise the last packets of a flow, and their number may not be a multiple of
                // four. A shorter flow needs the sender's timeout, after which the sender sends
                // more packets.
                let due = receiving.packets.is_multiple_of(ACK_EVERY)
                    || receiving.packets >= self.config.window_packets;
                if due && !receiving.owes_ack {
                    receiving.owes_ack = true;
                    self.acks.push(flow);
                }
            }
            _ => {}
        }
    }

    fn on_timer(&mut self, now: Instant, _out: &mut Outcomes) {
        for flow in &mut self.sending {
            if flow.in_flight > 0 && flow.heard_at + self.config.timeout <= now {
                flow.in_flight = 0;
                flow.heard_at = now;
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let waiting = self.sending.iter().filter(|f| f.in_flight > 0);
        waiting.map(|f| f.heard_at + self.config.timeout).min()
    }

    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, _out: &mut Outcomes) -> bool {
        self.poll_ack(slot) || self.poll_data(now, slot)
    }

    fn restart(&mut self, _now: Instant, _out: &mut Outcomes) {
        self.acks.clear();
        self.receiving.values_mut().for_each(|r| r.owes_ack = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_restart_forgets_that_an_acknowledgement_was_owed() {
        let mut node = Blast::new(1, BlastConfig::default());
        let (mut out, now) = (Outcomes::default(), Instant::ZERO);
        let segment = TcpSegment { payload_bytes: 1000, ..TcpSegment::default() };
        let mut packet = Packet { body: Body::Tcp(segment), ..Packet::empty() };
        let mut receive = |node: &mut Blast| {
            (0..ACK_EVERY).for_each(|_| node.on_packet(now, &mut packet, &mut out));
        };
        receive(&mut node);
        node.restart(now, &mut Outcomes::default());
        receive(&mut node);
        assert!(node.poll_packet(now, &mut Packet::empty(), &mut Outcomes::default()));
    }
}
