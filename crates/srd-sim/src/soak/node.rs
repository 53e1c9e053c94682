//! A host of the soak: the production endpoint, and an application that records all its calls and
//! events in the ledger.
//!
//! The application relies only on the guarantees of the endpoint: after `QueueFull` it waits for
//! `Writable`, and it sends a failed datagram again as a new datagram. So a broken guarantee
//! becomes visible as a flow that never ends.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use srd_proto::{
    Class, Datagram, Delivery, DropReason, Endpoint, Event, Instant, PacketRef, PeerConfig, PeerId,
    Qpn, SendError, Status, TransmitBuf,
};

use super::dice::Dice;
use super::host::{address, endpoint, host_at};
use super::ledger::{Arrived, Id, Ledger, SentDatagram, content};
use super::plan::{Cut, Plan};
use crate::engine::hash::mix;
use crate::engine::nic;
use crate::engine::node::{Body, FlowSpec, HostId, Node, Outcomes, Packet};

/// Largest number of datagrams of a flow that the endpoint has at a time.
const OUTSTANDING_MAX: u32 = 256;
/// Number of the first sending queue pair of a host, minus one.
const SEND_QPN: u16 = 1000;
/// Number of bytes by which a packet in plain mode may exceed the largest size while its context is
/// new.
const GREETING_BYTES: usize = 16;
/// Number of a queue pair that no host opens.
const NOBODY_QPN: Qpn = Qpn(999);
/// Largest number of timer calls of a host's endpoint in a millisecond without packets.
const WAKES_MAX: u64 = 1000;

/// Data that all hosts of a world share.
pub(super) struct Common {
    pub(super) plan: Plan,
    pub(super) ledger: RefCell<Ledger>,
    /// Static public key of every host; empty unless the mode with static keys is used.
    pub(super) keys: Vec<[u8; 32]>,
}

#[derive(Clone, Copy)]
struct Piece {
    bytes: usize,
    nobody: bool,
}

struct Flow {
    spec: FlowSpec,
    // Pieces of the flow that are still to be sent, the last piece first.
    left: Vec<Piece>,
    outstanding: u32,
    src_qpn: Qpn,
    dst_qpn: Qpn,
    blocked: Blocked,
    live: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blocked {
    No,
    /// The flow waits until the endpoint reports `Writable`.
    Queue,
    /// The flow waits until a datagram to its peer has ended.
    Flows,
}

/// Numbers of timer calls and of packets of a host in the present millisecond.
#[derive(Default)]
struct Pulse {
    millisecond: u64,
    wakes: u64,
    packets: u64,
}

/// A host of the soak: endpoint and application.
pub(super) struct SoakNode {
    host: u32,
    common: Rc<Common>,
    endpoint: Endpoint,
    epoch: u64,
    dice: Dice,
    buf: TransmitBuf,
    flows: Vec<Flow>,
    // By datagram that the endpoint has: index of its flow.
    out: BTreeMap<Id, usize>,
    // Hosts that the endpoint has reported as up, and not as down since then.
    up: BTreeSet<u32>,
    next_qpn: u16,
    post_at: Instant,
    pulse: Pulse,
    calls: u64,
}

impl SoakNode {
    pub(super) fn new(host: u32, common: Rc<Common>) -> Self {
        let endpoint = endpoint(&common.plan, host, 1, Instant::ZERO);
        let dice = Dice::new(mix(common.plan.seed ^ 0xd1ce) ^ u64::from(host));
        let mut node = Self {
            host,
            endpoint,
            epoch: 1,
            dice,
            buf: nic::transmit_buf(),
            flows: Vec::new(),
            out: BTreeMap::new(),
            up: BTreeSet::new(),
            next_qpn: SEND_QPN,
            post_at: Instant::ZERO,
            pulse: Pulse::default(),
            calls: 0,
            common,
        };
        node.begin(Instant::ZERO);
        node
    }

    /// First actions of the application after a start: it adds all peers.
    fn begin(&mut self, now: Instant) {
        let hosts = u32::try_from(self.common.keys.len()).expect("few hosts");
        for other in 0..hosts {
            if other != self.host {
                self.peer(now, other);
            }
        }
        self.post_at = match self.common.plan.posting {
            Some(posting) => now + posting.every,
            None => Instant::FAR_FUTURE,
        };
    }

    fn complain(&self, what: impl FnOnce() -> String) {
        self.common.ledger.borrow_mut().complain(what);
    }

    /// Returns the endpoint's id of a host. Adds the host as a peer if necessary.
    fn peer(&mut self, now: Instant, host: u32) -> PeerId {
        let to = address(host, self.common.plan.config.local_port);
        let public_key = self.common.keys.get(host as usize).copied();
        self.endpoint.peer_at(to).unwrap_or_else(|| {
            let peer = PeerConfig::at(to).with_key(public_key);
            self.endpoint.add_peer(now, peer).expect("fewer hosts than peers_max")
        })
    }

    fn fresh_qpn(&mut self) -> Qpn {
        self.next_qpn += 1;
        Qpn(self.next_qpn)
    }

    /// Passes datagrams of a flow to the endpoint, until enough of them are outstanding.
    fn refill(&mut self, now: Instant, number: usize) {
        loop {
            let flow = &self.flows[number];
            let may =
                flow.live && flow.blocked == Blocked::No && flow.outstanding < OUTSTANDING_MAX;
            let Some(piece) = flow.left.last().copied().filter(|_| may) else { return };
            let (dst, src_qpn) = (flow.spec.dst.0, flow.src_qpn);
            let dst_qpn = if piece.nobody { NOBODY_QPN } else { flow.dst_qpn };
            let to = self.peer(now, dst);
            let id = self.common.ledger.borrow_mut().number();
            let datagram = Datagram {
                src_qpn,
                dst_qpn,
                imm: id,
                payload: Bytes::from_static(content(id, piece.bytes)),
                class: if id.is_multiple_of(5) { Class::LowLatency } else { Class::Bulk },
                user: id,
            };
            let refused = self.endpoint.send(now, to, datagram).err();
            let flow = &mut self.flows[number];
            match refused {
                None => {}
                Some(SendError::QueueFull) => flow.blocked = Blocked::Queue,
                Some(SendError::TooManyFlows) => flow.blocked = Blocked::Flows,
                Some(error) => {
                    return self.complain(|| format!("a datagram was refused: {error}"));
                }
            }
            if refused.is_some() {
                return;
            }
            flow.left.pop();
            flow.outstanding += 1;
            self.out.insert(id, number);
            let Piece { bytes, nobody } = piece;
            let sent = SentDatagram { src: self.host, dst, src_qpn, dst_qpn, bytes, nobody };
            // If contexts are reclaimed, contact may end without an event, so it does not count.
            let in_contact = self.up.contains(&dst) && !self.common.plan.reclaims();
            self.common.ledger.borrow_mut().sent(id, sent, in_contact);
        }
    }

    /// Continues flows to a host that were blocked for the reason `which`. Without a host,
    /// continues flows to all hosts.
    fn unblock(&mut self, now: Instant, host: Option<u32>, which: Blocked) {
        for number in 0..self.flows.len() {
            let flow = &mut self.flows[number];
            if flow.blocked == which && host.is_none_or(|h| h == flow.spec.dst.0) {
                flow.blocked = Blocked::No;
                self.refill(now, number);
            }
        }
    }

    /// Handles all events of the endpoint.
    fn events(&mut self, now: Instant, out: &mut Outcomes) {
        let next = |endpoint: &mut Endpoint| {
            let events: Vec<_> = std::iter::from_fn(|| endpoint.poll_event()).collect();
            Some(events).filter(|events| !events.is_empty())
        };
        while let Some(events) = next(&mut self.endpoint) {
            // The endpoint reports completions before the end of contact that causes them.
            // Datagrams that the application sends in response leave after the end of contact. So
            // the end of contact is recorded before the completions are processed.
            events.iter().for_each(|event| self.note_contact(event));
            for event in events {
                match event {
                    Event::Completed { user, status, .. } => self.ended(now, user, status, out),
                    Event::Writable { peer } => {
                        let host = self.endpoint.address_of(peer).and_then(host_at);
                        self.unblock(now, host, Blocked::Queue);
                    }
                    _ => {}
                }
            }
        }
    }

    fn note_contact(&mut self, event: &Event) {
        let (Event::PeerUp { peer } | Event::PeerDown { peer, .. }) = event else { return };
        let Some(host) = self.endpoint.address_of(*peer).and_then(host_at) else { return };
        if matches!(event, Event::PeerUp { .. }) {
            self.up.insert(host);
        } else {
            self.up.remove(&host);
            self.common.ledger.borrow_mut().lost_contact(self.host, host);
        }
    }

    fn ended(&mut self, now: Instant, id: Id, status: Status, out: &mut Outcomes) {
        let Some(sent) = self.common.ledger.borrow_mut().ended(id, self.host, status) else {
            return;
        };
        let Some(number) = self.out.remove(&id) else { return };
        let piece = Piece { bytes: sent.bytes, nobody: sent.nobody };
        let rnr_may_end =
            self.common.plan.posting.is_some() && self.common.plan.config.rnr_retries < 7;
        let fits = match status {
            Status::Ok => !piece.nobody,
            Status::BadDestQpn => piece.nobody,
            Status::RemoteRnr => rnr_may_end && !piece.nobody,
            _ => true,
        };
        if !fits {
            self.complain(|| format!("datagram {id} ended as {status:?}, which makes no sense"));
        }
        let flow = &mut self.flows[number];
        flow.outstanding -= 1;
        if !matches!(status, Status::Ok | Status::BadDestQpn) {
            flow.left.push(piece);
        }
        if flow.left.is_empty() && flow.outstanding == 0 && flow.live {
            flow.live = false;
            out.completed.push(flow.spec.id);
        }
        if self.dice.percent(1) && self.dice.between(0, 9) < self.common.plan.close_permille {
            let qpn = self.flows[number].src_qpn;
            self.endpoint.close_qp(now, qpn);
            self.flows[number].src_qpn = self.fresh_qpn();
        }
        self.refill(now, number);
        self.unblock(now, Some(sent.dst), Blocked::Flows);
    }

    fn take(&mut self, now: Instant, packet: &mut Packet) {
        let meta = nic::meta(now, packet);
        let Body::Srd(body) = &mut packet.body else { return };
        let mut whole;
        let bytes = if self.common.plan.config.protection.is_on() {
            PacketRef::Whole(body.head_mut())
        } else if packet.src_port.is_multiple_of(2) {
            whole = [body.head(), &body.payload].concat();
            PacketRef::Whole(&mut whole)
        } else {
            let (head, payload) = body.parts();
            PacketRef::Split(head, payload)
        };
        let Some(delivery) = self.endpoint.handle_packet(now, meta, bytes) else { return };
        let Delivery { peer, src_qpn, dst_qpn, imm, payload, .. } = delivery;
        let from = self.endpoint.address_of(peer).and_then(host_at);
        let (host, epoch) = (self.host, self.epoch);
        let at = Arrived { host, epoch, from, src_qpn, dst_qpn, payload };
        self.common.ledger.borrow_mut().arrived(imm, &at);
    }

    /// Checks, at every 128th call, that the endpoint observes its limits.
    fn inspect(&mut self) {
        self.calls += 1;
        if !self.calls.is_multiple_of(128) {
            return;
        }
        let config = &self.common.plan.config;
        let hosts = self.common.plan.topology.hosts;
        for host in (0..hosts).filter(|&h| h != self.host) {
            let id = self.endpoint.peer_at(address(host, config.local_port));
            let Some(stats) = id.and_then(|id| self.endpoint.peer_stats(id)) else { continue };
            if stats.queued_datagrams > config.send_queue_datagrams_max as usize {
                let held = stats.queued_datagrams;
                self.complain(|| format!("{held} datagrams are held, more than allowed"));
            }
        }
        if self.endpoint.stats().clock_clamped > 0 {
            self.complain(|| "the endpoint thinks that time ran backwards".to_owned());
        }
    }

    /// Counts timer calls and packets in a millisecond, and reports a violation if there are too
    /// many calls.
    fn beat(&mut self, now: Instant, wakes: u64, packets: u64) {
        let millisecond = now.as_nanos() / 1_000_000;
        if millisecond != self.pulse.millisecond {
            self.pulse = Pulse { millisecond, ..Pulse::default() };
        }
        self.pulse.wakes += wakes;
        self.pulse.packets += packets;
        let Pulse { wakes, packets, .. } = self.pulse;
        if wakes > WAKES_MAX + 4 * packets {
            let host = self.host;
            self.complain(|| {
                format!("host {host} woke {wakes} times for {packets} packets in {millisecond} ms")
            });
        }
    }

    /// Returns the number of contexts that the endpoint has.
    pub(super) fn contexts(&self) -> usize {
        let port = self.common.plan.config.local_port;
        let hosts = 0..self.common.plan.topology.hosts;
        let known = |&h: &u32| {
            let id = self.endpoint.peer_at(address(h, port));
            id.is_some_and(|id| !self.endpoint.paths(id).is_empty())
        };
        hosts.filter(known).count()
    }

    /// Returns a text with the numbers of packets that the endpoint dropped, by reason.
    pub(super) fn drops(&self) -> String {
        let stats = self.endpoint.stats();
        let named = DropReason::ALL.iter().zip(stats.drops).filter(|(_, n)| *n > 0);
        let list: Vec<_> = named.map(|(reason, n)| format!("{n} {reason:?}")).collect();
        format!("host {}: {} received, [{}]", self.host, stats.rx_pkts, list.join(", "))
    }

    /// Returns a text for each flow that is not finished.
    pub(super) fn unfinished(&self) -> Vec<String> {
        let one = |f: &Flow| {
            let to = self.endpoint.peer_at(address(f.spec.dst.0, 7471));
            let stats = to.and_then(|id| self.endpoint.peer_stats(id));
            format!(
                "flow {} {}->{}: {} left, {} outstanding, {:?}, {stats:?}",
                f.spec.id.0,
                f.spec.src.0,
                f.spec.dst.0,
                f.left.len(),
                f.outstanding,
                f.blocked
            )
        };
        self.flows.iter().filter(|f| f.live).map(one).collect()
    }

    /// Divides a flow into the payloads of datagrams.
    fn cut(&mut self, bytes: u64) -> Vec<Piece> {
        let plan = &self.common.plan;
        let full = self.endpoint.payload_bytes_max();
        let mut pieces = Vec::new();
        let mut left = usize::try_from(bytes).expect("a few megabytes");
        while left > 0 {
            let most = u32::try_from(full).expect("a packet is below 64 KiB");
            let piece = match plan.cut {
                Cut::Full => full,
                Cut::Random => self.dice.between(0, most) as usize,
                Cut::Small(bytes) => (bytes as usize).min(full),
            };
            let bytes = piece.min(left);
            left -= bytes;
            pieces.push(Piece { bytes, nobody: false });
            if self.dice.percent(plan.nobody_percent) {
                pieces.push(Piece { bytes, nobody: true });
            }
        }
        pieces
    }
}

impl Node for SoakNode {
    fn start_flow(&mut self, now: Instant, spec: &FlowSpec, out: &mut Outcomes) {
        let left = self.cut(spec.bytes);
        let src_qpn = self.fresh_qpn();
        let receive_qps = u32::from(self.common.plan.receive_qps);
        let dst_qpn = u16::try_from(self.dice.between(0, receive_qps - 1)).expect("a few");
        self.flows.push(Flow {
            spec: *spec,
            left,
            outstanding: 0,
            src_qpn,
            dst_qpn: Qpn(dst_qpn),
            blocked: Blocked::No,
            live: true,
        });
        self.refill(now, self.flows.len() - 1);
        self.events(now, out);
    }

    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes) {
        self.beat(now, 0, 1);
        if !packet.trimmed {
            self.take(now, packet);
        }
        self.events(now, out);
        self.inspect();
    }

    fn on_timer(&mut self, now: Instant, out: &mut Outcomes) {
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.beat(now, 1, 0);
        }
        self.endpoint.handle_timeout(now);
        if let Some(posting) = self.common.plan.posting
            && self.post_at <= now
        {
            for n in 0..self.common.plan.receive_qps {
                self.endpoint.post_receives(Qpn(n), posting.more);
            }
            self.post_at = now + posting.every;
        }
        self.events(now, out);
    }

    fn next_timer(&self) -> Option<Instant> {
        let at = self.endpoint.poll_timeout().unwrap_or(Instant::FAR_FUTURE).min(self.post_at);
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, out: &mut Outcomes) -> bool {
        self.buf.clear();
        let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.buf) else {
            self.events(now, out);
            return false;
        };
        self.beat(now, 0, 1);
        let config = &self.common.plan.config;
        // While a context in plain mode is new, its packets contain a greeting and are longer.
        let greeting = if config.protection.is_on() { 0 } else { GREETING_BYTES };
        let (bytes, limit) = (transmit.total_bytes, usize::from(config.packet_bytes_max));
        let limit = limit + greeting;
        if transmit.segments != 1 || bytes > limit {
            self.complain(|| format!("a packet of {bytes} bytes: {transmit:?}"));
        }
        let (head, payload) = self.buf.segments().next().expect("a transmit has a segment");
        if head.len() + payload.len() != bytes {
            self.complain(|| format!("not of the size it says: {transmit:?}"));
        }
        if host_at(transmit.destination).is_none() {
            return false;
        }
        let overhead_bytes = self.common.plan.config.wire_overhead_bytes;
        nic::fill(slot, HostId(self.host), &transmit, &mut self.buf, overhead_bytes);
        self.events(now, out);
        true
    }

    fn restart(&mut self, now: Instant, out: &mut Outcomes) {
        self.epoch += 1;
        self.endpoint = endpoint(&self.common.plan, self.host, self.epoch, now);
        self.up.clear();
        self.begin(now);
        let lost = std::mem::take(&mut self.out);
        for (id, number) in lost {
            let sent = self.common.ledger.borrow().what(id);
            let flow = &mut self.flows[number];
            flow.outstanding -= 1;
            if let Some(SentDatagram { bytes, nobody, .. }) = sent {
                flow.left.push(Piece { bytes, nobody });
            }
        }
        self.common.ledger.borrow_mut().orphan(self.host);
        for number in 0..self.flows.len() {
            self.flows[number].blocked = Blocked::No;
            self.refill(now, number);
        }
        self.events(now, out);
    }
}
