//! Lossless switches: priority flow control (PFC, IEEE 802.1Qbb) on every link.
//!
//! ```text
//!            data                     switch
//!  sender ---------> ingress bytes > XOFF ? ... queue of the egress port ---> next
//!         <--------- pause             |
//!                    resume  <------ ingress bytes <= XON
//! ```
//! For each link into it, a switch counts the bytes that came over this link and are still in the
//! switch: the ingress of the link. Above the threshold XOFF it sends a pause frame to the port at
//! the far end. At XON it sends a frame that ends the pause. Packets on their way when the pause
//! frame leaves need space above XOFF, the headroom; beyond the headroom, packets are dropped.
//! Pause frames take link time: they wait for the packet in transmission, and are sent before all
//! other packets.
//!
//! A paused port may stop at any moment, so the departure of a packet is unknown when it is
//! accepted. Therefore ports of lossless networks hold their packets in queues, and an event
//! ([`Kind::PortFree`]) ends each transmission. Hosts have no such queue: a paused host is not
//! polled for data packets until its pause ends.
//!
//! Invariant: the bytes of an ingress are those of its packets in the egress queues of its switch
//! and in transmission there. Bounds: an ingress holds at most XOFF and the headroom; a queue of
//! control packets holds at most [`CONTROL_BYTES_MAX`].
//!
//! Approximations: there is one lossless priority. A pause lasts until a frame ends it (in the
//! standard a pause has a duration and is repeated, at almost no cost). Faults of links do not
//! affect pause frames. A host never pauses its switch (a slow link to the host has a similar
//! effect).

use std::collections::VecDeque;

use super::account::DropCause;
use super::pauses::Pauses;
use super::{PortRules, World, WorldError};
use crate::engine::egress::rule;
use crate::engine::event::{Event, FLAG_CE, FLAG_CONTROL, FLAG_ECT, FLAG_XOFF, Kind, Target};
use crate::engine::node::Node;
use crate::engine::topology::{End, Topology};

/// Bytes of a pause frame on the wire: the shortest Ethernet frame.
pub const PAUSE_BYTES: u16 = 64;
/// Largest number of bytes of control packets that wait at a port. Control packets are not paused,
/// so they may be dropped.
pub const CONTROL_BYTES_MAX: u64 = 64 * 1024;

/// Thresholds of lossless switches, in bytes that came over one link into the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LosslessRules {
    /// Number of bytes above which the far end is paused (XOFF). By default the queue size of the
    /// ports' rules minus the headroom, so that a lossless port has as much memory as a port that
    /// drops.
    pub xoff_bytes: Option<u64>,
    /// Number of bytes at or below which the pause of the far end is ended (XON). By default two
    /// packets below XOFF.
    pub xon_bytes: Option<u64>,
    /// Bytes of space above XOFF. By default as much as the link's speed and length require.
    pub headroom_bytes: Option<u64>,
}

/// Bytes that came over a link into a switch and are still in the switch, with the thresholds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ingress {
    pub(super) bytes: u64,
    /// Whether the switch has paused the far end of the link.
    pub(super) is_stopped: bool,
    pub(super) xoff_bytes: u64,
    pub(super) xon_bytes: u64,
    pub(super) limit_bytes: u64,
}

/// A packet in the queue of a port in a lossless network.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedPacket {
    pub(super) event: Event,
    /// Total time in picoseconds for which the port had been paused when the packet entered the
    /// queue.
    pub(super) paused_ps: u64,
}

/// The packets that wait at a port of a lossless network, and the state of its pause.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub(super) waiting: VecDeque<QueuedPacket>,
    control: VecDeque<Event>,
    control_bytes: u64,
    pub(super) bytes: u64,
    bytes_max: u64,
    /// Bytes of the queue by the link over which they came: number of the far port, and bytes.
    pub(super) sources: Vec<(u32, u64)>,
    is_sending: bool,
    /// Ingress to which the packet in transmission belongs, and number of its bytes. They leave the
    /// ingress at the end of the transmission.
    frees: Option<(u32, u64)>,
    /// Pause frame that the port has to send before all packets: true to begin a pause, false to
    /// end it.
    frame: Option<bool>,
    pub(super) paused_at_ps: Option<u64>,
    paused_before_ps: u64,
    pub(super) pauses: u32,
}

impl Queue {
    /// Returns the total time in picoseconds for which the port has been paused.
    pub(super) fn paused_ps(&self, now_ps: u64) -> u64 {
        self.paused_before_ps + self.paused_at_ps.map_or(0, |at_ps| now_ps - at_ps)
    }

    fn push(&mut self, event: Event, now_ps: u64) {
        let bytes = u64::from(event.bytes);
        self.bytes += bytes;
        self.bytes_max = self.bytes_max.max(self.bytes);
        match self.sources.iter_mut().find(|(via, _)| *via == event.via) {
            Some((_, sum)) => *sum += bytes,
            None => self.sources.push((event.via, bytes)),
        }
        self.waiting.push_back(QueuedPacket { event, paused_ps: self.paused_ps(now_ps) });
    }

    fn pop(&mut self) -> Option<QueuedPacket> {
        let waiting = self.waiting.pop_front()?;
        let bytes = u64::from(waiting.event.bytes);
        self.bytes -= bytes;
        let source = self.sources.iter_mut().find(|(via, _)| *via == waiting.event.via);
        source.expect("a packet that waits was counted").1 -= bytes;
        Some(waiting)
    }
}

/// State of all ports in a lossless network; empty if switches drop packets.
#[derive(Default)]
pub(super) struct Lossless {
    /// For each port, the port's queue.
    pub(super) queues: Vec<Queue>,
    /// By port at the far end of a link into a switch: the ingress of the link.
    pub(super) ingress: Vec<Ingress>,
    pub(super) pauses: Pauses,
}

impl Lossless {
    pub(super) fn new(
        wanted: Option<LosslessRules>,
        rules: &PortRules,
        topology: &Topology,
    ) -> Result<Self, WorldError> {
        let Some(wanted) = wanted else { return Ok(Self::default()) };
        let one = |port: u32| ingress(&wanted, rules, topology, port);
        let ports = u32::try_from(topology.ports.len()).expect("the number of ports is bounded");
        Ok(Self {
            queues: vec![Queue::default(); ports as usize],
            ingress: (0..ports).map(one).collect::<Result<_, _>>()?,
            pauses: Pauses::new(ports),
        })
    }

    /// Whether the network is lossless.
    pub(super) fn is_on(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Whether a pause frame stops the data packets of a port at present.
    #[inline]
    pub(super) fn is_paused(&self, port: u32) -> bool {
        self.queues.get(port as usize).is_some_and(|queue| queue.paused_at_ps.is_some())
    }

    /// Returns the number of bytes that wait at a port, and the largest number that ever waited.
    pub(super) fn waiting_bytes(&self, port: u32) -> (u64, u64) {
        self.queues.get(port as usize).map_or((0, 0), |queue| (queue.bytes, queue.bytes_max))
    }

    /// Returns the largest number of bytes that waited at a port since the previous call. The bytes
    /// that wait now count for this period and for the next.
    pub(super) fn take_bytes_max(&mut self, port: u32) -> u64 {
        let Some(queue) = self.queues.get_mut(port as usize) else { return 0 };
        std::mem::replace(&mut queue.bytes_max, queue.bytes)
    }
}

/// Returns the bytes that still arrive over a link after XOFF was crossed. These are the bytes in
/// flight; the bytes that the far end sends while the pause frame waits and crosses the link; and a
/// packet that has just begun, at each end.
pub(super) fn headroom_bytes(rate_bps: u64, latency_ps: u64, packet_bytes: u16) -> u64 {
    let bits = 2 * u128::from(latency_ps) * u128::from(rate_bps);
    let in_flight = u64::try_from(bits.div_ceil(8_000_000_000_000)).unwrap_or(u64::MAX / 2);
    in_flight + 3 * u64::from(packet_bytes) + u64::from(PAUSE_BYTES)
}

fn ingress(
    wanted: &LosslessRules,
    rules: &PortRules,
    topology: &Topology,
    port: u32,
) -> Result<Ingress, WorldError> {
    let link = &topology.ports[port as usize];
    if matches!(link.to, End::Host(_)) {
        return Ok(Ingress::default());
    }
    let computed = headroom_bytes(link.rate_bps, link.latency_ps, rules.packet_bytes);
    let headroom_bytes = wanted.headroom_bytes.unwrap_or(computed);
    let memory_bytes = rules.queue.bytes(link.rate_bps, rules.rtt_ps(topology));
    let xoff_bytes = wanted.xoff_bytes.unwrap_or(memory_bytes.saturating_sub(headroom_bytes));
    let packet_bytes = u64::from(rules.packet_bytes);
    let below = xoff_bytes.saturating_sub(2 * packet_bytes);
    let xon_bytes = wanted.xon_bytes.unwrap_or(below);
    if xoff_bytes < packet_bytes || xon_bytes > xoff_bytes {
        return Err(WorldError(format!(
            "lossless switches pause {} at {xoff_bytes} bytes, let it go on at {xon_bytes}, with \
             {headroom_bytes} bytes of headroom: XOFF must hold a packet and not be below XON; a \
             longer queue leaves more for it",
            topology.port_name(port)
        )));
    }
    let limit_bytes = xoff_bytes.saturating_add(headroom_bytes);
    Ok(Ingress { xoff_bytes, xon_bytes, limit_bytes, ..Ingress::default() })
}

impl<N: Node> World<N> {
    /// Passes a packet to a port of a lossless network.
    pub(super) fn forward_lossless(&mut self, port: u32, event: Event) {
        if self.ports[port as usize].rules & rule::FAULT != 0 && self.partitioned(port, &event) {
            return self.discard(port, event.packet, DropCause::Partition);
        }
        if port < self.topology.hosts {
            // A host's packet is sent at once, because a host is polled only when its link is free.
            self.transmit(port, event);
        } else if event.flags & FLAG_CONTROL != 0 {
            self.accept_control(port, event);
        } else {
            self.accept(port, event);
        }
    }

    fn accept_control(&mut self, port: u32, event: Event) {
        let queue = &mut self.lossless.queues[port as usize];
        let bytes = u64::from(event.bytes);
        if queue.control_bytes + bytes > CONTROL_BYTES_MAX {
            return self.drop_full(port, &event);
        }
        queue.control_bytes += bytes;
        queue.control.push_back(event);
        self.start(port);
    }

    fn accept(&mut self, port: u32, mut event: Event) {
        let via = event.via;
        let ingress = &mut self.lossless.ingress[via as usize];
        let bytes = u64::from(event.bytes);
        if ingress.bytes + bytes > ingress.limit_bytes {
            return self.drop_full(port, &event);
        }
        ingress.bytes += bytes;
        let stops = ingress.bytes > ingress.xoff_bytes && !ingress.is_stopped;
        let rules = self.ports[port as usize].rules;
        if rules & rule::MARK != 0 && event.flags & FLAG_ECT != 0 && event.flags & FLAG_CE == 0 {
            let backlog = self.lossless.queues[port as usize].bytes;
            if self.special.marks(port, backlog) {
                event.flags |= FLAG_CE;
                self.counters.marked += 1;
            }
        }
        self.lossless.queues[port as usize].push(event, self.now_ps);
        if stops {
            self.lossless.ingress[via as usize].is_stopped = true;
            self.note_stop(via);
            self.send_pause(via, true);
        }
        self.start(port);
    }

    /// Sends a pause frame to `far`, the port at the far end of a link, as soon as the opposite
    /// direction of the link is free. If `stop`, the frame begins a pause, otherwise it ends the
    /// pause.
    fn send_pause(&mut self, far: u32, stop: bool) {
        let back = self.topology.ports[far as usize].reverse;
        self.lossless.queues[back as usize].frame = Some(stop);
        self.start(back);
    }

    /// Begins the next transmission of a switch's port, unless the port is sending, is paused or
    /// has no packet.
    fn start(&mut self, port: u32) {
        let now_ps = self.now_ps;
        let queue = &mut self.lossless.queues[port as usize];
        if queue.is_sending {
            return;
        }
        if let Some(stop) = queue.frame.take() {
            queue.is_sending = true;
            self.transmit_pause(port, stop);
        } else if let Some(event) = queue.control.pop_front() {
            queue.control_bytes -= u64::from(event.bytes);
            queue.is_sending = true;
            self.transmit(port, event);
        } else if queue.paused_at_ps.is_none()
            && let Some(waiting) = queue.pop()
        {
            let event = waiting.event;
            queue.is_sending = true;
            queue.frees = Some((event.via, u64::from(event.bytes)));
            let held_ps = queue.paused_ps(now_ps) - waiting.paused_ps;
            if held_ps > 0 {
                self.note_held(event.packet, held_ps);
            }
            self.transmit(port, event);
        }
    }

    fn transmit(&mut self, port: u32, mut event: Event) {
        let egress = &mut self.ports[port as usize];
        let arrives_ps = egress.enqueue(self.now_ps, event.bytes);
        let arrives_ps = arrives_ps.expect("a port without a limit takes any packet");
        let (sent_ps, rules) = (arrives_ps - egress.latency_ps(), egress.rules);
        if rules & rule::CAPTURE != 0 {
            self.capture(port, &event, sent_ps, "");
        }
        if port >= self.topology.hosts {
            self.schedule(sent_ps, Kind::PortFree, port);
        }
        event.at_ps = arrives_ps;
        event.target = self.ports[port as usize].next();
        event.via = port;
        if rules & rule::FAULT == 0 {
            self.wheel.push(event);
        } else {
            self.send_over_faulty_link(port, event);
        }
    }

    fn transmit_pause(&mut self, port: u32, stop: bool) {
        let egress = &mut self.ports[port as usize];
        let arrives_ps = egress.enqueue(self.now_ps, PAUSE_BYTES);
        let arrives_ps = arrives_ps.expect("a port without a limit takes any packet");
        let sent_ps = arrives_ps - egress.latency_ps();
        self.schedule(sent_ps, Kind::PortFree, port);
        let far = self.topology.ports[port as usize].reverse;
        let flags = if stop { FLAG_XOFF } else { 0 };
        let target = Target::new(Kind::Pause, far);
        self.wheel.push(Event { at_ps: arrives_ps, target, flags, ..Event::default() });
    }

    /// Handles the end of a transmission: the bytes leave their ingress, and the port begins the
    /// next transmission.
    pub(super) fn port_free(&mut self, port: u32) {
        let queue = &mut self.lossless.queues[port as usize];
        queue.is_sending = false;
        if let Some((via, bytes)) = queue.frees.take() {
            let ingress = &mut self.lossless.ingress[via as usize];
            ingress.bytes -= bytes;
            if ingress.is_stopped && ingress.bytes <= ingress.xon_bytes {
                ingress.is_stopped = false;
                self.send_pause(via, false);
            }
        }
        self.start(port);
    }

    /// Handles a pause frame that has arrived at a port. If `stop`, the pause begins, otherwise it
    /// ends.
    pub(super) fn on_pause(&mut self, port: u32, stop: bool) {
        let now_ps = self.now_ps;
        let queue = &mut self.lossless.queues[port as usize];
        if stop {
            if queue.paused_at_ps.is_none() {
                queue.paused_at_ps = Some(now_ps);
                queue.pauses += 1;
            }
            return;
        }
        let Some(at_ps) = queue.paused_at_ps.take() else { return };
        queue.paused_before_ps += now_ps - at_ps;
        if port < self.topology.hosts {
            self.note_host_held(port, at_ps);
            self.serve(port);
        } else {
            self.start(port);
        }
    }
}

#[cfg(test)]
#[path = "lossless_tests.rs"]
mod tests;
