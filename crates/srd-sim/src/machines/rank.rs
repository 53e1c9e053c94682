//! A host that runs one rank of a parallel program: the production Messaging Layer over the
//! production endpoint, and an application that sends each flow of the workload as one message.
//!
//! A message's tag is its flow's number. A rank has the list of its incoming messages, as MPI ranks
//! do, and posts receives in that order, a limited number at a time. A message that arrives before
//! its receive is posted waits in the layer. The application's memory is imaginary: the address of
//! a message follows from its flow, its bytes are a pattern, and written bytes are compared with
//! the pattern.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use srd_efa::Memory;
use srd_efa::layer::{
    Iov, Kind, Message, OperationCompletion, Outcome, Peer, Receive, Refused, Selector, Until,
    World,
};
use srd_efa::rdm::{Config as RdmConfig, Rdm};
use srd_proto::{Duration, Endpoint, Epoch, Instant, TransmitBuf};

use crate::engine::hash::mix;
use crate::engine::nic::{self, Totals, address};
use crate::engine::node::{Delivered, Failed, FlowId, FlowSpec, HostId, Node, Outcomes, Packet};
use crate::machines::pattern;
use crate::workload::Workload;

/// Largest number of operations that the layer of a rank accepts at a time; further messages wait
/// in the application.
const OPERATIONS_MAX: u32 = 4096;
/// Largest number of receives that a rank has posted at a time.
const RECEIVES_MAX: u32 = 1024;
/// Size of the address range of each message in a rank's memory, in bytes. A longer flow fails.
const MESSAGE_BYTES_MAX: u64 = 1 << 32;
/// Idle time after which the endpoint hibernates a peer's context. `srd_host` uses the same value.
pub const IDLE_HIBERNATE: Duration = Duration::from_secs(1);

/// A message that a rank will receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// The flow of the message; its number is the tag.
    pub flow: FlowId,
    /// Length of the message in bytes.
    pub bytes: u64,
}

/// Returns the incoming messages of each host, in the order of the workload.
pub fn incoming(workload: &Workload, hosts: u32) -> Vec<Vec<Incoming>> {
    let mut incoming = vec![Vec::new(); hosts as usize];
    for (number, flow) in (0..).zip(&workload.flows) {
        incoming[flow.dst.index()].push(Incoming { flow: FlowId(number), bytes: flow.bytes });
    }
    incoming
}

/// Configuration of a [`RankNode`].
#[derive(Clone, Debug)]
pub struct RankNodeConfig {
    /// Configuration of the host's endpoint.
    pub endpoint: srd_proto::Config,
    /// Seed of all random values of the world.
    pub seed: u64,
    /// Incoming messages of each rank, by host number.
    pub incoming: Arc<Vec<Vec<Incoming>>>,
}

/// Node that runs one rank of a parallel program.
pub struct RankNode {
    host: HostId,
    config: RankNodeConfig,
    endpoint: Endpoint,
    rdm: Rdm,
    memory: Imaginary,
    peers: BTreeMap<HostId, Peer>,
    // `waiting`: messages that the layer has not accepted yet. `live`: all messages that are not
    // done.
    waiting: VecDeque<FlowSpec>,
    live: BTreeMap<FlowId, FlowSpec>,
    // `posted`: number of incoming messages with a posted receive. `received`: messages that have
    // arrived.
    posted: usize,
    received: BTreeSet<FlowId>,
    // Whether something has happened since [`Rdm::pump`] was last called.
    news: bool,
    epoch: u64,
    buf: TransmitBuf,
    past: Totals,
}

/// Memory that always contains the expected pattern. Counts, for each flow, writes that differ from
/// the pattern.
#[derive(Debug, Default)]
struct Imaginary {
    damaged: BTreeMap<FlowId, u64>,
}

/// Returns the address of a flow's message in the rank's memory.
fn place(flow: FlowId) -> u64 {
    u64::from(flow.0) * MESSAGE_BYTES_MAX
}

/// Returns the flow whose message contains an address, and the offset within the message.
fn flow_at(addr: u64) -> (FlowId, u64) {
    let flow = u32::try_from(addr / MESSAGE_BYTES_MAX).expect("the quotient has 32 bits");
    (FlowId(flow), addr % MESSAGE_BYTES_MAX)
}

/// Returns the position in the pattern at which the content of an address begins.
fn content_at(addr: u64) -> u64 {
    let (flow, offset) = flow_at(addr);
    mix(flow.0.into()).wrapping_add(offset)
}

impl Memory for Imaginary {
    fn read(&mut self, _region: u64, offset: u64, bytes: usize) -> Bytes {
        let pieces = || pattern::pieces(content_at(offset), bytes);
        match pieces().next() {
            Some(whole) if whole.len() == bytes => Bytes::from_static(whole),
            _ => pieces().flatten().copied().collect(),
        }
    }

    fn write(&mut self, _region: u64, offset: u64, bytes: &[u8]) {
        if !pattern::is_at(content_at(offset), bytes) {
            *self.damaged.entry(flow_at(offset).0).or_default() += 1;
        }
    }
}

fn endpoint(config: &RankNodeConfig, host: HostId, epoch: u64, now: Instant) -> Endpoint {
    let seed = nic::seed_bytes(config.seed, host, epoch);
    Endpoint::new(config.endpoint.clone(), Epoch(epoch), seed, now)
        .expect("the configuration was checked")
}

fn rdm(config: &RankNodeConfig, host: HostId, epoch: u64, endpoint: &mut Endpoint) -> Rdm {
    let seed = mix(config.seed ^ u64::from(host.0) << 32);
    let limits = RdmConfig {
        operations_max: OPERATIONS_MAX,
        receives_max: RECEIVES_MAX,
        report_remote: false,
        seed,
    };
    let own = address(host, config.endpoint.local_port);
    Rdm::new(limits, endpoint, own, mix(seed ^ epoch).max(1))
}

impl RankNode {
    /// Creates the node of a host.
    ///
    /// # Panics
    /// If the configuration is out of range; check the configuration before.
    pub fn new(host: u32, config: RankNodeConfig) -> Self {
        let host = HostId(host);
        let mut endpoint = endpoint(&config, host, 1, Instant::ZERO);
        let rdm = rdm(&config, host, 1, &mut endpoint);
        let mut node = Self {
            host,
            endpoint,
            rdm,
            memory: Imaginary::default(),
            peers: BTreeMap::new(),
            waiting: VecDeque::new(),
            live: BTreeMap::new(),
            posted: 0,
            received: BTreeSet::new(),
            news: true,
            epoch: 1,
            buf: nic::transmit_buf(),
            past: Totals::default(),
            config,
        };
        node.post(Instant::ZERO);
        node
    }

    /// Returns the endpoint, which carries the layer's datagrams.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The Messaging Layer.
    pub fn rdm(&self) -> &Rdm {
        &self.rdm
    }

    /// Returns the packet counters of the host since the start of the simulation, restarts
    /// included.
    pub fn totals(&self) -> Totals {
        self.past + Totals::of(self.endpoint.stats())
    }

    /// Calls a function with the layer and with its environment: time, endpoint and memory.
    fn with<R>(&mut self, now: Instant, call: impl FnOnce(&mut Rdm, &mut World<'_>) -> R) -> R {
        let Self { endpoint, rdm, memory, .. } = self;
        call(rdm, &mut World { now, endpoint, memory })
    }

    /// Posts receives for the next incoming messages, until the layer accepts no more.
    fn post(&mut self, now: Instant) {
        let incoming = Arc::clone(&self.config.incoming);
        let mine = &incoming[self.host.index()];
        while let Some(next) = mine.get(self.posted) {
            let iov = [Iov { addr: place(next.flow), length: next.bytes }];
            let want = Selector { tag: next.flow.0.into(), ignore: 0, source: None };
            let receive = Receive {
                tagged: true,
                want,
                iov: &iov,
                context: next.flow.0.into(),
                multi: None,
                signaled: true,
            };
            if self.received.contains(&next.flow)
                || self.with(now, |rdm, world| rdm.recv(world, receive)).is_ok()
            {
                self.posted += 1;
            } else {
                return;
            }
        }
    }

    /// Sends waiting messages, until the layer accepts no more.
    fn send(&mut self, now: Instant, out: &mut Outcomes) {
        while let Some(flow) = self.waiting.front().copied() {
            let sent = self.peer(now, flow.dst).and_then(|to| {
                let iov = [Iov { addr: place(flow.id), length: flow.bytes }];
                let tag = u64::from(flow.id.0);
                let message = Message {
                    to,
                    tag: Some(tag),
                    iov: &iov,
                    data: None,
                    context: tag,
                    until: Until::Transmitted,
                    signaled: true,
                };
                self.with(now, |rdm, world| rdm.send(world, message))
            });
            match sent {
                Err(Refused::Again) => return,
                Ok(()) => {}
                Err(_) => self.end(flow.id, Some(u8::MAX), out),
            }
            self.waiting.pop_front();
        }
    }

    fn peer(&mut self, now: Instant, host: HostId) -> Result<Peer, Refused> {
        if let Some(peer) = self.peers.get(&host) {
            return Ok(*peer);
        }
        let at = address(host, self.config.endpoint.local_port);
        let peer = self.with(now, |rdm, world| rdm.add_peer(world, at, 0))?;
        self.peers.insert(host, peer);
        Ok(peer)
    }

    /// Ends a flow of this host. A `failure` is the status number that is reported.
    fn end(&mut self, flow: FlowId, failure: Option<u8>, out: &mut Outcomes) {
        if self.live.remove(&flow).is_none() {
            return;
        }
        if let Some(status) = failure {
            out.failed.push(Failed { flow, index: 0, status });
        }
        out.completed.push(flow);
    }

    /// Handles completions. Afterwards posts receives and sends messages until the layer accepts no
    /// more.
    fn hear(&mut self, now: Instant, out: &mut Outcomes) {
        let mut any = false;
        while let Some(done) = self.rdm.poll() {
            any = true;
            self.done(&done, out);
        }
        if any {
            self.post(now);
            self.send(now, out);
            self.rdm.flush_coalesced();
        }
    }

    fn done(&mut self, done: &OperationCompletion, out: &mut Outcomes) {
        let flow = FlowId(u32::try_from(done.context).expect("contexts are flows"));
        let is_ok = done.outcome == Outcome::Ok;
        match done.kind {
            Kind::Send => self.end(flow, (!is_ok).then_some(status_of(done.outcome)), out),
            Kind::Receive if is_ok => {
                let intact = !self.memory.damaged.contains_key(&flow) && self.received.insert(flow);
                let pieces = pieces(done.length);
                out.delivered.extend(pieces.map(|(index, bytes)| Delivered {
                    flow,
                    index,
                    bytes,
                    intact,
                }));
            }
            _ => {
                out.failed.push(Failed { flow, index: 0, status: status_of(done.outcome) });
            }
        }
    }

    /// Calls the layer to process what has happened. Returns whether the endpoint has accepted a
    /// datagram.
    fn pump(&mut self, now: Instant, out: &mut Outcomes) -> bool {
        self.news = false;
        let took = self.with(now, Rdm::pump);
        self.hear(now, out);
        took
    }

    /// Passes the endpoint's events to the layer. Returns whether there was any event.
    fn events(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(event) = self.endpoint.poll_event() {
            self.rdm.event(now, &event);
            any = true;
        }
        self.news |= any;
        any
    }
}

/// Returns the pieces in which a message is reported: the offset of each, and its length, which is
/// less than 2^32.
fn pieces(length: u64) -> impl Iterator<Item = (u64, u32)> {
    let most = u64::from(u32::MAX);
    (0..length.div_ceil(most).max(1)).map(move |n| {
        let rest = (length - n * most).min(most);
        (n * most, u32::try_from(rest).unwrap_or(u32::MAX))
    })
}

/// Returns the number that stands for an outcome in reports.
fn status_of(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Ok => 0,
        Outcome::Unreachable => 1,
        Outcome::Unresponsive => 2,
        Outcome::Restarted => 3,
        Outcome::Truncated(_) => 4,
        _ => 5,
    }
}

impl Node for RankNode {
    fn start_flow(&mut self, now: Instant, flow: &FlowSpec, out: &mut Outcomes) {
        self.live.insert(flow.id, *flow);
        if flow.bytes > MESSAGE_BYTES_MAX {
            return self.end(flow.id, Some(u8::MAX), out);
        }
        self.waiting.push_back(*flow);
        self.send(now, out);
        self.rdm.flush_coalesced();
        self.news = true;
    }

    fn on_packet(&mut self, now: Instant, packet: &mut Packet, out: &mut Outcomes) {
        let is_sealed = self.config.endpoint.protection.is_on();
        let Some((meta, bytes)) = nic::open(now, packet, is_sealed) else { return };
        let Self { endpoint, rdm, memory, .. } = self;
        endpoint.handle_packet_with(now, meta, bytes, |d| rdm.admit(now, d, memory));
        self.news = true;
        self.events(now);
        self.hear(now, out);
    }

    fn on_timer(&mut self, now: Instant, _out: &mut Outcomes) {
        self.endpoint.handle_timeout(now);
        self.events(now);
    }

    fn next_timer(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, out: &mut Outcomes) -> bool {
        if self.news {
            self.pump(now, out);
        }
        loop {
            self.buf.clear();
            let transmit = self.endpoint.poll_transmit(now, &mut self.buf);
            if let Some(transmit) = transmit {
                let overhead_bytes = self.config.endpoint.wire_overhead_bytes;
                nic::fill(slot, self.host, &transmit, &mut self.buf, overhead_bytes);
                self.events(now);
                return true;
            }
            let any = self.events(now);
            if !self.pump(now, out) && !any {
                return false;
            }
        }
    }

    fn warm_for_packet(&self, packet: &Packet) -> u64 {
        packet.warm() ^ self.endpoint.stats().rx_pkts
    }

    fn warm_for_poll(&self) -> u64 {
        self.endpoint.stats().tx_pkts
    }

    /// Restarts the program. The messages that it was sending fail, and it posts receives for all
    /// its incoming messages again.
    fn restart(&mut self, now: Instant, out: &mut Outcomes) {
        self.past = self.totals();
        self.epoch += 1;
        self.endpoint = endpoint(&self.config, self.host, self.epoch, now);
        self.rdm = rdm(&self.config, self.host, self.epoch, &mut self.endpoint);
        self.peers.clear();
        self.waiting.clear();
        for flow in std::mem::take(&mut self.live).into_keys() {
            out.failed.push(Failed { flow, index: 0, status: status_of(Outcome::Restarted) });
            out.completed.push(flow);
        }
        self.posted = 0;
        self.received.clear();
        self.post(now);
        self.news = true;
    }
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
