//! Hosts: arriving packets, deadlines of nodes, and polling of nodes for packets when the host's
//! link is free.

use srd_proto::transmit::Ecn;

use super::account::DropCause;
use super::{NS, World};
use crate::engine::event::{
    Event, FLAG_CE, FLAG_CONTROL, FLAG_CORRUPT, FLAG_ECT, FLAG_TRIMMED, Kind, Target,
};
use crate::engine::hash;
use crate::engine::node::{Body, FlowId, Node, PROTOCOL_UDP, Packet};
use crate::workload::{BACKGROUND_PORT, BackgroundPlan, Workload};

/// Flags of an event that change the packet at its arrival: marked, trimmed, bits flipped.
const MARKS: u16 = FLAG_CE | FLAG_TRIMMED | FLAG_CORRUPT;

/// Sources of background load of all hosts.
pub(super) struct Background {
    sources: Vec<Source>,
    // By host: numbers of its sources; empty if there is no background load.
    by_host: Vec<Vec<u32>>,
}

struct Source {
    plan: BackgroundPlan,
    next_ps: u64,
}

impl Background {
    pub(super) fn new(workload: &Workload, hosts: u32) -> Self {
        let source = |plan: &BackgroundPlan| Source { plan: *plan, next_ps: plan.start_ps };
        let sources: Vec<_> = workload.background.iter().map(source).collect();
        let mut by_host = vec![Vec::new(); if sources.is_empty() { 0 } else { hosts as usize }];
        for (number, source) in (0..).zip(&sources) {
            by_host[source.plan.src.index()].push(number);
        }
        Self { sources, by_host }
    }

    /// Returns the time in picoseconds at which a host's next background packet is due; `u64::MAX`
    /// if no packet will follow.
    fn next_ps(&self, host: u32) -> u64 {
        let Some(mine) = self.by_host.get(host as usize) else { return u64::MAX };
        let next = |&n: &u32| {
            let source = &self.sources[n as usize];
            if source.next_ps < source.plan.stop_ps { source.next_ps } else { u64::MAX }
        };
        mine.iter().map(next).min().unwrap_or(u64::MAX)
    }

    /// Fills the slot with the host's next background packet, if a packet is due. Returns whether a
    /// packet was due.
    fn fill(&mut self, host: u32, now_ps: u64, slot: &mut Packet) -> bool {
        let Some(mine) = self.by_host.get(host as usize) else { return false };
        for &number in mine {
            let source = &mut self.sources[number as usize];
            let plan = &source.plan;
            if source.next_ps > now_ps || source.next_ps >= plan.stop_ps {
                continue;
            }
            source.next_ps +=
                crate::engine::topology::serialize_ps(plan.rate_bps, plan.packet_bytes.into());
            *slot = Packet {
                src: plan.src,
                dst: plan.dst,
                wire_bytes: plan.packet_bytes.into(),
                src_port: plan.src_port,
                dst_port: BACKGROUND_PORT,
                protocol: PROTOCOL_UDP,
                body: Body::Background(FlowId(number)),
                ..Packet::empty()
            };
            return true;
        }
        false
    }
}

impl<N: Node> World<N> {
    #[inline]
    pub(super) fn arrive_at_host(&mut self, host: u32, event: Event) {
        if self.faults.any_down() && self.lost_on_dead_link(&event) {
            return;
        }
        if event.flags & MARKS != 0 && !self.note_marks(&event) {
            return self.discard(event.via, event.packet, DropCause::Corrupted);
        }
        let now = self.now();
        self.counters.delivered += 1;
        let packet = self.packets.packet(event.packet);
        if self.background.sources.is_empty() || !matches!(packet.body, Body::Background(_)) {
            self.nodes[host as usize].on_packet(now, packet, &mut self.out);
        }
        self.packets.give(event.packet);
        self.serve(host);
    }

    /// Writes the changes by switches and links into the packet. Returns false if the host's
    /// checksum detects an error.
    fn note_marks(&mut self, event: &Event) -> bool {
        let packet = self.packets.packet(event.packet);
        if event.flags & FLAG_CE != 0 {
            packet.ecn = Ecn::Ce;
        }
        if event.flags & FLAG_TRIMMED != 0 {
            packet.trimmed = true;
            packet.wire_bytes = event.bytes.into();
            packet.release();
        }
        if event.flags & FLAG_CORRUPT != 0 {
            return self.faults.corrupt(packet);
        }
        true
    }

    /// Handles a deadline event of a host. Does nothing if the next deadline of the host is later.
    pub(super) fn deadline(&mut self, host: u32) {
        let state = &mut self.hosts[host as usize];
        if state.wake_ps > self.now_ps {
            return;
        }
        state.wake_ps = std::mem::replace(&mut state.displaced_ps, u64::MAX);
        let now = self.now();
        let node = &mut self.nodes[host as usize];
        let due = node.next_timer().is_some_and(|at| at <= now);
        if due {
            node.on_timer(now, &mut self.out);
        }
        self.serve_after(host, due);
    }

    /// Sends packets of a host while its link is free. Then sets the host's next deadline and
    /// processes the reports of the node. Called after every call of the node.
    #[inline]
    pub(super) fn serve(&mut self, host: u32) {
        self.serve_after(host, false);
    }

    #[inline]
    fn serve_after(&mut self, host: u32, timer: bool) {
        let idle = self.send_while_free(host);
        if let Some(at) = self.nodes[host as usize].next_timer() {
            let at_ps = at.as_nanos().saturating_mul(NS);
            if at_ps > self.now_ps {
                self.wake(host, at_ps);
            } else if idle {
                self.wake_now(host, timer);
            }
            // If a deadline is due while the link is busy, the node is served when the link is
            // free.
        }
        if !self.background.sources.is_empty() && idle {
            self.wake(host, self.background.next_ps(host));
        }
        if !self.out.is_empty() {
            self.take_outcomes();
        }
    }

    /// Sets the first deadlines of nodes that have a timer from the beginning.
    pub(super) fn schedule_timers(&mut self) {
        for host in 0..self.topology.hosts {
            if let Some(at) = self.nodes[host as usize].next_timer() {
                self.wake(host, at.as_nanos().saturating_mul(NS));
            }
        }
    }

    /// Makes sure that a host is served at a given time or earlier.
    #[inline]
    fn wake(&mut self, host: u32, at_ps: u64) {
        let state = &mut self.hosts[host as usize];
        if at_ps >= state.wake_ps {
            return;
        }
        // The later event stays in the list. It is valid again after the earlier event.
        state.displaced_ps = state.wake_ps;
        state.wake_ps = at_ps;
        self.schedule(at_ps, Kind::Timer, host);
    }

    /// Serves a node again at once, because a deadline is due. If a deadline of the node was served
    /// just before, the node has an error (timer livelock). The error is counted, and the node is
    /// served 1 ns later.
    #[cold]
    fn wake_now(&mut self, host: u32, timer: bool) {
        if timer {
            self.counters.timer_livelocks += 1;
            self.wake(host, self.now_ps + NS);
        } else {
            self.wake(host, self.now_ps);
        }
    }

    /// Sends packets of a host while its link is free. Returns whether the link is free and the
    /// node has nothing to send. A paused link counts as not free.
    #[inline]
    fn send_while_free(&mut self, host: u32) -> bool {
        if self.hosts[host as usize].link_pending {
            return false;
        }
        loop {
            let free_ps = self.ports[host as usize].busy_until_ps();
            if free_ps > self.now_ps {
                self.hosts[host as usize].link_pending = true;
                self.schedule(free_ps, Kind::LinkFree, host);
                return false;
            }
            let is_paused = self.lossless.is_paused(host);
            let slot = self.packets.take();
            if !self.fill(host, slot, is_paused) {
                self.packets.give(slot);
                return !is_paused;
            }
            self.inject(host, slot);
        }
    }

    #[inline]
    fn fill(&mut self, host: u32, slot: u32, is_paused: bool) -> bool {
        let now = self.now();
        let packet = self.packets.packet(slot);
        if is_paused {
            return self.nodes[host as usize].poll_unpaused(now, packet);
        }
        if !self.background.sources.is_empty() && self.background.fill(host, self.now_ps, packet) {
            return true;
        }
        self.nodes[host as usize].poll_packet(now, packet, &mut self.out)
    }

    /// Sends a newly filled packet over the host's link.
    #[inline]
    fn inject(&mut self, host: u32, slot: u32) {
        let packet = self.packets.packet(slot);
        let bytes = u16::try_from(packet.wire_bytes).expect("a packet is below 64 KiB");
        assert!(bytes > 0, "a packet has bytes");
        let mut flags = match packet.ecn {
            Ecn::NotEct => 0,
            Ecn::Ect => FLAG_ECT,
            Ecn::Ce => FLAG_ECT | FLAG_CE,
        };
        if packet.control {
            flags |= FLAG_CONTROL;
        }
        let hash = hash::five_tuple(
            packet.src.0,
            packet.dst.0,
            packet.src_port,
            packet.dst_port,
            packet.protocol,
        );
        let event = Event {
            at_ps: self.now_ps,
            target: Target::new(Kind::Host, host),
            packet: slot,
            dst: packet.dst.0,
            hash,
            via: host,
            bytes,
            flags,
        };
        self.counters.injected += 1;
        self.forward(host, event);
    }

    pub(super) fn schedule_background(&mut self) {
        for number in 0..self.background.sources.len() {
            let source = &self.background.sources[number];
            let (at_ps, host) = (source.next_ps, source.plan.src.0);
            self.schedule(at_ps, Kind::LinkFree, host);
        }
    }
}
