//! A host that runs the production SRD endpoint, and an application that uses it.
//!
//! Every flow is a queue pair of the host's endpoint. The bytes of a flow are divided into
//! datagrams of the largest size, with (flow, index) in the header's immediate. The endpoint holds
//! as many datagrams of a flow as may be in flight, and a few more. After each completion the
//! application sends the next datagram. So memory does not grow with flow size, and each queue pair
//! has a datagram ready whenever the endpoint chooses between queue pairs.
//!
//! A host has at most 65,535 sending queue pairs. The endpoint's configuration limits the number of
//! queue pairs for each peer. Further flows wait, in their order, until another flow is done.
//!
//! A payload is a slice of one static pattern, at an offset that follows from its flow and index.
//! So nothing is copied, and a receiver can still check that it received the sent bytes.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use srd_proto::{
    Config, Datagram, Endpoint, Epoch, Event, Instant, PeerConfig, PeerId, Qpn, ReceiveBuffers,
    SendError, Status, TransmitBuf,
};

use crate::engine::hash::mix;
use crate::engine::nic::{self, Totals, address};
use crate::engine::node::{
    Delivered, ENDLESS, Failed, FlowId, FlowSpec, HostId, Node, Outcomes, Packet,
};
use crate::machines::pattern::{PATTERN, PATTERN_BYTES};

/// The queue pair of each host that receives all datagrams.
const RECEIVE_QPN: Qpn = Qpn(0);

/// Largest number of queue pairs of a host that send at the same time: queue pair numbers have 16
/// bits, and one number is that of the receiving queue pair.
const FLOWS_MAX: usize = u16::MAX as usize;

/// Number of datagrams of a flow that wait in the endpoint, in addition to those in flight.
const AHEAD: u64 = 32;

/// Largest number of datagrams in the endpoint for all flows to one peer together. If there are
/// many flows, four datagrams for each flow are allowed nevertheless.
const PER_PEER: u64 = 512;

/// Returns the payload of a datagram with a given immediate.
fn content(imm: u64, bytes: usize) -> &'static [u8] {
    let room = PATTERN_BYTES - bytes;
    #[allow(clippy::cast_possible_truncation)] // reduced to the free space
    let start = (mix(imm) as usize) % room;
    &PATTERN[start..start + bytes]
}

/// Configuration of an [`SrdNode`].
#[derive(Clone, Debug)]
pub struct SrdNodeConfig {
    /// Configuration of the host's endpoint.
    pub endpoint: Config,
    /// Seed of all random values of the world.
    pub seed: u64,
    /// Whether receivers compare the arrived bytes with the sent bytes.
    pub check_payload: bool,
    /// Whether the application sends failed datagrams again.
    pub resend_failed: bool,
    /// Number of receive buffers that the application posts; `None` means that there is always a
    /// buffer.
    pub receive_buffers: Option<u32>,
}

/// A flow that this host sends.
#[derive(Clone, Copy, Debug)]
struct Sending {
    spec: FlowSpec,
    peer: PeerId,
    datagrams: u64,
    handed: u64,
    settled: u64,
    live: bool,
}

/// Data of a peer, in addition to the data in the endpoint.
#[derive(Clone, Debug)]
struct PeerState {
    id: PeerId,
    flows: Vec<u16>,
    /// Flows to the peer that wait for a queue pair.
    waiting: VecDeque<FlowSpec>,
}

/// Node of a host that runs the production SRD endpoint.
pub struct SrdNode {
    host: HostId,
    config: SrdNodeConfig,
    endpoint: Endpoint,
    epoch: u64,
    buf: TransmitBuf,
    flows: Vec<Sending>,
    free: Vec<u16>,
    known: BTreeMap<HostId, PeerState>,
    // Number of flows, to all peers, that wait for a queue pair.
    waiting: usize,
    payload_bytes: usize,
    // Largest number of datagrams of one flow that may be in flight.
    window_datagrams: u64,
    // Sum of the counters of the endpoints that this host had before its last restart.
    past: Totals,
}

fn endpoint(config: &SrdNodeConfig, host: HostId, epoch: u64, now: Instant) -> Endpoint {
    let seed = nic::seed_bytes(config.seed, host, epoch);
    let mut endpoint = Endpoint::new(config.endpoint.clone(), Epoch(epoch), seed, now)
        .expect("the configuration was checked");
    let buffers = config.receive_buffers.map_or(ReceiveBuffers::Unlimited, ReceiveBuffers::Counted);
    endpoint.open_qp(RECEIVE_QPN, buffers);
    endpoint
}

impl SrdNode {
    /// Creates the node of a host.
    ///
    /// # Panics
    /// If the configuration is out of range; check the configuration before.
    pub fn new(host: u32, config: SrdNodeConfig) -> Self {
        let host = HostId(host);
        let endpoint = endpoint(&config, host, 1, Instant::ZERO);
        let knobs = &config.endpoint;
        let bdp_bytes = u128::from(knobs.link_rate_bps)
            * u128::from(knobs.rtt_initial.as_nanos())
            * u128::from(knobs.window_max_percent)
            / 800_000_000_000;
        let window =
            u64::try_from(bdp_bytes).unwrap_or(u64::MAX) / u64::from(knobs.packet_bytes_max);
        Self {
            host,
            epoch: 1,
            buf: nic::transmit_buf(),
            flows: Vec::new(),
            free: Vec::new(),
            known: BTreeMap::new(),
            waiting: 0,
            payload_bytes: endpoint.payload_bytes_max(),
            window_datagrams: window.clamp(8, knobs.window_packets_max.into()),
            past: Totals::default(),
            endpoint,
            config,
        }
    }

    /// Returns the host's present endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the packet counters of the host since the start of the simulation, restarts
    /// included.
    pub fn totals(&self) -> Totals {
        self.past + Totals::of(self.endpoint.stats())
    }

    fn peer(&mut self, now: Instant, host: HostId) -> PeerId {
        if let Some(known) = self.known.get(&host) {
            return known.id;
        }
        let to = address(host, self.config.endpoint.local_port);
        let id = self.endpoint.peer_at(to).unwrap_or_else(|| {
            let peer = PeerConfig::at(to);
            self.endpoint.add_peer(now, peer).expect("fewer hosts than peers_max")
        });
        self.known.insert(host, PeerState { id, flows: Vec::new(), waiting: VecDeque::new() });
        id
    }

    /// Whether a queue pair is available for another flow to a peer.
    fn has_room(&self, dst: HostId) -> bool {
        let live = self.flows.len() - self.free.len();
        let most = self.config.endpoint.flows_max as usize;
        live < FLOWS_MAX && self.known.get(&dst).is_none_or(|known| known.flows.len() < most)
    }

    /// Begins a flow for which a queue pair is available.
    fn begin(&mut self, now: Instant, flow: &FlowSpec) {
        let peer = self.peer(now, flow.dst);
        let datagrams = match flow.bytes {
            ENDLESS => u64::MAX,
            bytes => bytes.div_ceil(self.payload_bytes as u64),
        };
        let sending = Sending { spec: *flow, peer, datagrams, handed: 0, settled: 0, live: true };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.flows[usize::from(slot)] = sending;
                slot
            }
            None => {
                self.flows.push(sending);
                u16::try_from(self.flows.len() - 1).expect("there is room")
            }
        };
        if let Some(known) = self.known.get_mut(&flow.dst) {
            known.flows.push(slot);
        }
        self.refill(now, slot);
    }

    /// Begins flows that have waited for a queue pair. Called after a queue pair to the host `dst`
    /// has become free.
    fn go_on(&mut self, now: Instant, dst: HostId) {
        if self.waiting == 0 {
            return;
        }
        let mut hosts = vec![dst];
        if self.flows.len() - self.free.len() + 1 >= FLOWS_MAX {
            // The limit of the host was reached, so flows to other peers may wait as well.
            let all = self.known.iter().filter(|(_, known)| !known.waiting.is_empty());
            hosts.extend(all.map(|(host, _)| *host));
        }
        for host in hosts {
            while self.has_room(host) {
                let known = self.known.get_mut(&host);
                let Some(flow) = known.and_then(|known| known.waiting.pop_front()) else { break };
                self.waiting -= 1;
                self.begin(now, &flow);
            }
        }
    }

    /// Passes datagrams of a flow to the endpoint, until the flow's share of the endpoint is used.
    fn refill(&mut self, now: Instant, slot: u16) {
        let Some(flow) = self.flows.get_mut(usize::from(slot)).filter(|f| f.live) else { return };
        let siblings = self.known.get(&flow.spec.dst).map_or(1, |k| k.flows.len().max(1));
        let share = (PER_PEER / siblings as u64).clamp(4, self.window_datagrams + AHEAD);
        while flow.handed < flow.datagrams && flow.handed - flow.settled < share {
            let index = flow.handed;
            let rest = flow.spec.bytes.saturating_sub(index * self.payload_bytes as u64);
            let bytes =
                usize::try_from(rest).map_or(self.payload_bytes, |r| r.min(self.payload_bytes));
            match send(&mut self.endpoint, now, flow, slot, index, bytes) {
                Ok(()) => flow.handed += 1,
                // The event `Writable` follows when the endpoint has space again.
                Err(SendError::QueueFull) => return,
                Err(error) => panic!("a datagram was refused: {error}"),
            }
        }
    }

    /// Handles the events of the endpoint.
    #[inline]
    fn events(&mut self, now: Instant, out: &mut Outcomes) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Completed { user, status, .. } => self.completed(now, user, status, out),
                Event::Writable { peer } => {
                    let known = self.known.values().find(|k| k.id == peer);
                    for slot in known.map(|k| k.flows.clone()).unwrap_or_default() {
                        self.refill(now, slot);
                    }
                }
                _ => {}
            }
        }
    }

    fn completed(&mut self, now: Instant, user: u64, status: Status, out: &mut Outcomes) {
        let slot = u16::try_from(user >> 48).expect("sixteen bits are left");
        let index = user & 0xffff_ffff_ffff;
        let flow = &mut self.flows[usize::from(slot)];
        if status != Status::Ok {
            let id = flow.spec.id;
            out.failed.push(Failed { flow: id, index, status: status as u8 });
            if self.config.resend_failed {
                let whole = self.payload_bytes;
                let rest = flow.spec.bytes.saturating_sub(index * whole as u64);
                let bytes = usize::try_from(rest).map_or(whole, |r| r.min(whole));
                if send(&mut self.endpoint, now, flow, slot, index, bytes).is_ok() {
                    return;
                }
            }
        }
        flow.settled += 1;
        if flow.settled < flow.datagrams {
            return self.refill(now, slot);
        }
        out.completed.push(flow.spec.id);
        flow.live = false;
        self.free.push(slot);
        let dst = flow.spec.dst;
        if let Some(known) = self.known.get_mut(&dst) {
            known.flows.retain(|&s| s != slot);
        }
        self.go_on(now, dst);
    }
}

/// Passes one datagram of a flow to the endpoint.
fn send(
    endpoint: &mut Endpoint,
    now: Instant,
    flow: &Sending,
    slot: u16,
    index: u64,
    bytes: usize,
) -> Result<(), SendError> {
    let imm = u64::from(flow.spec.id.0) << 32 | (index & 0xffff_ffff);
    let datagram = Datagram {
        // The number 0 is that of the receiving queue pair.
        src_qpn: Qpn(slot + 1),
        dst_qpn: RECEIVE_QPN,
        imm,
        payload: Bytes::from_static(content(imm, bytes)),
        class: srd_proto::Class::Bulk,
        user: u64::from(slot) << 48 | index,
    };
    endpoint.send(now, flow.peer, datagram).map(|_| ())
}

impl Node for SrdNode {
    fn start_flow(&mut self, now: Instant, flow: &FlowSpec, _out: &mut Outcomes) {
        self.peer(now, flow.dst);
        if self.has_room(flow.dst) {
            return self.begin(now, flow);
        }
        if let Some(known) = self.known.get_mut(&flow.dst) {
            known.waiting.push_back(*flow);
            self.waiting += 1;
        }
    }

    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes) {
        let is_sealed = self.config.endpoint.protection.is_on();
        let Some((meta, bytes)) = nic::open(now, packet, is_sealed) else { return };
        if let Some(delivery) = self.endpoint.handle_packet(now, meta, bytes) {
            let imm = delivery.imm;
            let intact = !self.config.check_payload
                || delivery.payload == content(imm, delivery.payload.len());
            let flow = u32::try_from(imm >> 32).expect("32 bits are left");
            out.delivered.push(Delivered {
                flow: FlowId(flow),
                index: imm & 0xffff_ffff,
                bytes: u32::try_from(delivery.payload.len()).expect("a packet is below 64 KiB"),
                intact,
            });
            if self.config.receive_buffers.is_some() {
                self.endpoint.post_receives(RECEIVE_QPN, 1);
            }
        }
        self.events(now, out);
    }

    fn on_timer(&mut self, now: Instant, out: &mut Outcomes) {
        self.endpoint.handle_timeout(now);
        self.events(now, out);
    }

    #[inline]
    fn next_timer(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, out: &mut Outcomes) -> bool {
        self.buf.clear();
        let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.buf) else {
            self.events(now, out);
            return false;
        };
        let overhead_bytes = self.config.endpoint.wire_overhead_bytes;
        nic::fill(slot, self.host, &transmit, &mut self.buf, overhead_bytes);
        self.events(now, out);
        true
    }

    fn warm_for_packet(&self, packet: &Packet) -> u64 {
        let stats = self.endpoint.stats();
        let timer = self.endpoint.poll_timeout().map_or(0, Instant::as_nanos);
        packet.warm() ^ stats.rx_pkts ^ stats.recv_wrs ^ timer ^ self.epoch
    }

    fn warm_for_poll(&self) -> u64 {
        let timer = self.endpoint.poll_timeout().map_or(0, Instant::as_nanos);
        self.endpoint.stats().tx_pkts ^ timer ^ self.buf.len() as u64
    }

    fn restart(&mut self, now: Instant, out: &mut Outcomes) {
        self.past = self.totals();
        self.epoch += 1;
        self.endpoint = endpoint(&self.config, self.host, self.epoch, now);
        let known = std::mem::take(&mut self.known);
        self.waiting = 0;
        self.free.clear();
        let sending = self.flows.drain(..).filter(|f| f.live).map(|f| (f.spec.id, f.settled));
        let waiting = known.into_values().flat_map(|known| known.waiting).map(|flow| (flow.id, 0));
        for (flow, index) in sending.chain(waiting) {
            out.failed.push(Failed { flow, index, status: Status::Flushed as u8 });
            out.completed.push(flow);
        }
    }
}
