//! Forwarding of packets: from a port over its link to the next switch or host.

use srd_proto::rng::Rng;

use super::account::DropCause;
use super::{ACK_BYTES, PortRules, World};
use crate::engine::egress::rule;
use crate::engine::event::{Event, FLAG_CE, FLAG_CONTROL, FLAG_ECT, FLAG_TRIMMED};
use crate::engine::node::Node;
use crate::engine::topology::Topology;

/// State for ports with marking, trimming or a control class, in addition to
/// [`crate::egress::Egress`].
pub(super) struct Special {
    // By port: lower and upper bound of marking in bytes; empty without marking.
    marks: Vec<(u64, u64)>,
    mark_share: f64,
    packet_bytes: u16,
    // By port: time when the link will have sent every packet of the control class; empty if ports
    // have no control class.
    class_until_ps: Vec<u64>,
    rng: Rng,
}

impl Special {
    pub(super) fn new(rules: &PortRules, topology: &Topology, rng: Rng) -> Self {
        let ports = topology.ports.len();
        let classes = if rules.trim || rules.control_first { ports } else { 0 };
        let marks = rules.mark.map_or_else(Vec::new, |(low, high)| {
            let rtt_ps = rules.rtt_ps(topology);
            let rates = topology.ports.iter().map(|p| p.rate_bps);
            rates.map(|rate| (low.bytes(rate, rtt_ps), high.bytes(rate, rtt_ps))).collect()
        });
        let (mark_share, packet_bytes) = (rules.mark_share, rules.packet_bytes);
        Self { marks, mark_share, packet_bytes, class_until_ps: vec![0; classes], rng }
    }

    /// Whether to mark a packet that finds `backlog_bytes` in the queue: never up to the lower
    /// bound, always from the upper bound on. Between the bounds the probability grows linearly to
    /// `mark_share`.
    pub(super) fn marks(&mut self, port: u32, backlog_bytes: u64) -> bool {
        let Some(&(low, high)) = self.marks.get(port as usize) else { return false };
        if backlog_bytes <= low {
            return false;
        }
        let share = (backlog_bytes - low) as f64 * self.mark_share;
        backlog_bytes >= high || unit(&mut self.rng) * ((high - low) as f64) < share
    }
}

/// Returns a random number from 0 to 1, without 1.
pub(super) fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

impl<N: Node> World<N> {
    #[inline]
    pub(super) fn arrive_at_switch(&mut self, switch: u32, event: Event) {
        let port = if self.faults.any_down() {
            if self.lost_on_dead_link(&event) {
                return;
            }
            self.route_around(switch, event.dst, event.hash)
        } else {
            self.switches[switch as usize].route(event.dst, event.hash)
        };
        self.forward(port, event);
    }

    /// Passes a packet to a port: the packet enters the queue, or is dropped.
    #[inline]
    pub(super) fn forward(&mut self, port: u32, mut event: Event) {
        let egress = &mut self.ports[port as usize];
        if egress.rules & rule::ON_SEND != 0 {
            return self.forward_special(port, event);
        }
        let Some(arrives_ps) = egress.enqueue(self.now_ps, event.bytes) else {
            return self.discard(port, event.packet, DropCause::QueueFull);
        };
        event.at_ps = arrives_ps;
        event.target = egress.next();
        event.via = port;
        self.wheel.push(event);
    }

    /// Passes a packet to a port with special treatment, such as marking or a fault.
    #[inline(never)]
    fn forward_special(&mut self, port: u32, mut event: Event) {
        let rules = self.ports[port as usize].rules;
        if rules & rule::LOSSLESS != 0 {
            return self.forward_lossless(port, event);
        }
        if rules & rule::FAULT != 0 && self.partitioned(port, &event) {
            return self.discard(port, event.packet, DropCause::Partition);
        }
        if rules & rule::MARK != 0 && event.flags & FLAG_ECT != 0 && event.flags & FLAG_CE == 0 {
            let backlog = self.ports[port as usize].backlog_bytes(self.now_ps);
            if self.special.marks(port, backlog) {
                event.flags |= FLAG_CE;
                self.counters.marked += 1;
            }
        }
        let Some(arrives_ps) = self.enqueue_special(port, &mut event) else {
            return self.drop_full(port, &event);
        };
        if rules & rule::CAPTURE != 0 {
            let sent_ps = arrives_ps - self.ports[port as usize].latency_ps();
            self.capture(port, &event, sent_ps, "");
        }
        let egress = &self.ports[port as usize];
        event.at_ps = arrives_ps;
        event.target = egress.next();
        event.via = port;
        if rules & rule::FAULT == 0 {
            self.wheel.push(event);
        } else {
            self.send_over_faulty_link(port, event);
        }
    }

    /// Puts a packet into the queue of a port, after trimming its payload off if necessary. Returns
    /// the time of arrival at the far end, or `None` if the queue has no space.
    fn enqueue_special(&mut self, port: u32, event: &mut Event) -> Option<u64> {
        let egress = &mut self.ports[port as usize];
        // A10: Class of Acks
        let small = event.flags & (FLAG_CONTROL | FLAG_TRIMMED) != 0;
        let first = (event.flags & FLAG_TRIMMED != 0 && egress.rules & rule::TRIM != 0)
            || (small && egress.rules & rule::CONTROL != 0);
        let full = self.special.packet_bytes;
        if first {
            let class = &mut self.special.class_until_ps[port as usize];
            return egress.enqueue_first(self.now_ps, event.bytes, class, full);
        }
        let arrives_ps = egress.enqueue(self.now_ps, event.bytes);
        if arrives_ps.is_some() || small || egress.rules & rule::TRIM == 0 {
            return arrives_ps;
        }
        event.flags |= FLAG_TRIMMED;
        event.bytes = event.bytes.min(ACK_BYTES);
        self.counters.trimmed += 1;
        let class = &mut self.special.class_until_ps[port as usize];
        egress.enqueue_first(self.now_ps, event.bytes, class, full)
    }

    /// Drops a packet for which a port has no space. The packet is in the capture of the port.
    #[cold]
    pub(super) fn drop_full(&mut self, port: u32, event: &Event) {
        if self.ports[port as usize].rules & rule::CAPTURE != 0 {
            self.capture(port, event, self.now_ps, "dropped: the queue is full");
        }
        self.discard(port, event.packet, DropCause::QueueFull);
    }

    /// Drops a packet at a port and counts the cause.
    #[cold]
    pub(super) fn discard(&mut self, port: u32, packet: u32, cause: DropCause) {
        self.counters.drop_at(port, cause);
        if let Some(observer) = &mut self.observer {
            observer.dropped(self.now_ps, self.packets.peek(packet));
        }
        self.packets.give(packet);
    }
}
