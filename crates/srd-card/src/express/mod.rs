//! The Express stage: peers, what was agreed with each, and the tables that the two directions
//! share. `egress` takes packets from the guest to the transport, `ingress` back.

mod egress;
mod flows;
mod ingress;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use srd_proto::time::{Duration, Instant};
use srd_proto::{Class, Datagram, Endpoint, Event, PeerId, ReceiveBuffers, Status};

use self::egress::Cut;
use self::flows::Flows;
use crate::config::{Config, PeerSettings};
use crate::counters::{Counters, Traffic};
use crate::meta::key::FlowKey;
use crate::order::{Limits, Order};
use crate::queue::scheduler::{Aqm, Scheduler};
use crate::rewrite::too_big::Limit;
use crate::rules::prefix::{Prefix, Routes};
use crate::wire::offer::Offer;
use crate::{FRAME_QPN, OFFER_QPN};

/// Time between two offers to a peer that has not answered.
const OFFER_INTERVAL: Duration = Duration::from_secs(1);
/// The number that an offer's completion carries: no flow has it.
const OFFER_USER: u64 = u64::MAX;

/// The key of entries that stand for many flows.
const NO_FLOW: FlowKey = FlowKey {
    source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    protocol: 0,
    ports: (0, 0),
};

/// Where frames for the guest go.
pub trait Guest {
    /// Takes a frame: an offload header and its packet.
    fn deliver(&mut self, frame: &[u8]);
}

/// A peer of the stage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerSlot(pub u32);

/// How packets reach a peer now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// By SRD, UDP too if so.
    Express {
        /// Whether UDP rides as well.
        udp: bool,
    },
    /// Plainly: one of the two sides has SRD off.
    Off,
    /// Plainly, until the peer has said what it wants.
    Waiting,
}

/// One peer, for people and monitoring.
#[derive(Clone, Copy, Debug)]
pub struct PeerReport {
    /// How packets reach it.
    pub reach: Reach,
    /// What it has said, if anything.
    pub offer: Option<Offer>,
    /// Its share of the counters.
    pub traffic: Traffic,
    /// Bytes that wait in its queue.
    pub queued_bytes: usize,
}

/// One flow that the guest sends, for people and monitoring.
#[derive(Clone, Copy, Debug)]
pub struct FlowReport {
    /// Whose packets these are.
    pub key: FlowKey,
    /// Where they go.
    pub peer: PeerSlot,
    /// Whether they ride SRD.
    pub rides_srd: bool,
    /// Bits per second when rates were last taken.
    pub bps: u64,
    /// Packets sent.
    pub pkts: u64,
    /// Bytes sent.
    pub bytes: u64,
}

#[derive(Debug)]
struct Peer {
    id: PeerId,
    allowed: Vec<Prefix>,
    express: bool,
    express_udp: bool,
    offer: Option<Offer>,
    /// An offer of ours is on its way.
    offering: bool,
    /// When to offer (again), if we know no answer or have news.
    offer_at: Instant,
    /// Raised when frames on their way may be lost: flows take new numbers then.
    generation: u32,
    /// Bytes by which datagrams must be smaller than configured, if the fabric passes less.
    bytes_lost: usize,
    scheduler: Scheduler,
    /// The frame of which some packets have gone plainly.
    cut: Option<Cut>,
    queued: bool,
    /// The entry of flows that find no room in the table.
    overflow: Option<u32>,
    traffic: Traffic,
}

/// The stage. Bounds: `flows_max` flows in each direction, `queue_bytes_max` bytes waiting for
/// each peer, `receive_bytes_max` bytes waiting for the guest.
#[derive(Debug)]
pub struct Express {
    config: Config,
    aqm: Aqm,
    peers: Vec<Option<Peer>>,
    by_id: BTreeMap<PeerId, u32>,
    /// No offer is due before.
    offer_at: Instant,
    routes: Routes<u32>,
    flows: Flows,
    /// Peers with frames in their queues.
    ready: VecDeque<u32>,
    order: Order,
    counters: Counters,
    /// How often the guest may be told that a packet is too big.
    answers: Limit,
    /// What one unreliable datagram carries.
    plain_bytes_max: usize,
}

impl Express {
    /// A stage without peers. Opens its queue pairs at the endpoint that it will be used with.
    pub fn new(config: Config, endpoint: &mut Endpoint) -> Self {
        endpoint.open_qp(FRAME_QPN, ReceiveBuffers::Unlimited);
        endpoint.open_qp(OFFER_QPN, ReceiveBuffers::Unlimited);
        let aqm = Aqm {
            target: config.queue_target,
            interval: config.queue_interval,
            bytes_max: config.queue_bytes_max,
        };
        let limits = Limits {
            wait: config.order_wait,
            flows_max: config.flows_max as usize,
            bytes_max: config.receive_bytes_max,
        };
        Self {
            aqm,
            peers: Vec::new(),
            by_id: BTreeMap::new(),
            offer_at: Instant::ZERO,
            routes: Routes::default(),
            flows: Flows::new(config.flows_max, config.seed),
            ready: VecDeque::new(),
            order: Order::new(limits, config.seed),
            counters: Counters::default(),
            answers: Limit::default(),
            plain_bytes_max: endpoint.unreliable_bytes_max(),
            config,
        }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds a peer and offers SRD to it at once.
    pub fn add_peer(&mut self, now: Instant, settings: PeerSettings) -> PeerSlot {
        let free = self.peers.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        let slot = u32::try_from(index).unwrap_or(u32::MAX);
        for prefix in &settings.allowed {
            self.routes.insert(*prefix, slot);
        }
        self.flows.forget_routes();
        self.by_id.insert(settings.id, slot);
        self.offer_at = now;
        self.peers[index] = Some(Peer {
            id: settings.id,
            allowed: settings.allowed,
            express: settings.express,
            express_udp: settings.express_udp,
            offer: None,
            offering: false,
            offer_at: now,
            generation: 0,
            bytes_lost: 0,
            scheduler: Scheduler::default(),
            cut: None,
            queued: false,
            overflow: self.flows.pin(now, slot, NO_FLOW),
            traffic: Traffic::default(),
        });
        self.order.set_peers(self.by_id.len());
        PeerSlot(slot)
    }

    /// Forgets a peer; what waits for it, and what it has sent that waits, is lost. The next
    /// peer may take its slot, and meets nothing of it.
    pub fn remove_peer(&mut self, slot: PeerSlot) {
        self.routes.remove(slot.0);
        self.flows.forget_peer(slot.0);
        self.order.forget_peer(slot.0);
        if let Some(peer) = self.peers.get_mut(slot.0 as usize).and_then(Option::take) {
            self.by_id.remove(&peer.id);
        }
        self.order.set_peers(self.by_id.len());
        self.ready.retain(|s| *s != slot.0);
    }

    /// Changes what a peer may send from, and what is sent to it.
    pub fn set_allowed(&mut self, slot: PeerSlot, allowed: Vec<Prefix>) {
        self.routes.remove(slot.0);
        for prefix in &allowed {
            self.routes.insert(*prefix, slot.0);
        }
        self.flows.forget_routes();
        if let Some(peer) = self.peer_mut(slot.0) {
            peer.allowed = allowed;
        }
    }

    /// Turns SRD towards a peer on or off. Frames that wait go by the new rule.
    pub fn set_express(&mut self, now: Instant, slot: PeerSlot, express: bool, udp: bool) {
        if let Some(peer) = self.peer_mut(slot.0) {
            (peer.express, peer.express_udp) = (express, udp);
            peer.offer_at = now;
        }
        self.offer_at = now;
    }

    /// Turns SRD on or off as a whole.
    pub fn set_enabled(&mut self, now: Instant, express: bool, udp: bool) {
        (self.config.express, self.config.express_udp) = (express, udp);
        self.offer_at = now;
        for peer in self.peers.iter_mut().flatten() {
            peer.offer_at = now;
        }
    }

    /// Whether UDP goes up in any order, and how long a hole is waited for.
    pub fn set_order(&mut self, udp_bypass: bool, wait: Duration) {
        self.config.udp_bypass = udp_bypass;
        self.config.order_wait = wait;
        self.order.set_wait(wait);
    }

    /// The queueing delay that is too long.
    pub fn set_queue_target(&mut self, target: Duration) {
        self.config.queue_target = target;
        self.aqm.target = target;
    }

    /// The peer that packets to an address go to.
    pub fn peer_of(&self, address: IpAddr) -> Option<PeerSlot> {
        self.routes.find(address).map(PeerSlot)
    }

    fn peer(&self, slot: u32) -> Option<&Peer> {
        self.peers.get(slot as usize).and_then(Option::as_ref)
    }

    fn peer_mut(&mut self, slot: u32) -> Option<&mut Peer> {
        self.peers.get_mut(slot as usize).and_then(Option::as_mut)
    }

    fn slot_of(&self, id: PeerId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// Something happened in the transport.
    pub fn event(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Completed { status: Status::Ok, user, .. } if *user != OFFER_USER => {}
            Event::Completed { peer, user, status, .. } => {
                self.on_ended(now, *peer, *user, *status);
            }
            Event::PeerUp { peer } => {
                if let Some(peer) = self.slot_of(*peer).and_then(|slot| self.peer_mut(slot)) {
                    peer.offer_at = now;
                }
                self.offer_at = now;
            }
            Event::PeerDown { peer, .. } => {
                if let Some(peer) = self.slot_of(*peer).and_then(|slot| self.peer_mut(slot)) {
                    peer.offer = None;
                    peer.offer_at = peer.offer_at.min(now + OFFER_INTERVAL);
                    peer.generation += 1;
                    peer.bytes_lost = 0;
                }
                self.offer_at = self.offer_at.min(now + OFFER_INTERVAL);
            }
            Event::PathMtu { peer, works_bytes, configured_bytes } => {
                let lost = usize::from(configured_bytes.saturating_sub(*works_bytes));
                if let Some(peer) = self.slot_of(*peer).and_then(|slot| self.peer_mut(slot)) {
                    peer.bytes_lost = lost;
                }
            }
            Event::Writable { .. } | Event::Diagnosis { .. } => {}
        }
    }

    fn on_ended(&mut self, now: Instant, id: PeerId, user: u64, status: Status) {
        let Some(peer) = self.slot_of(id).and_then(|slot| self.peer_mut(slot)) else { return };
        if user == OFFER_USER {
            peer.offering = false;
            if status != Status::Ok {
                peer.offer_at = now + OFFER_INTERVAL;
            }
            let at = peer.offer_at;
            self.offer_at = self.offer_at.min(at);
            return;
        }
        self.counters.send_failed += 1;
        if let Ok(flow) = u32::try_from(user) {
            // The receiver would wait for what will not come.
            self.flows.renumber(flow);
        }
    }

    /// Sends the offers that are due.
    fn offer(&mut self, now: Instant, endpoint: &mut Endpoint) {
        if now < self.offer_at {
            return;
        }
        self.offer_at = Instant::FAR_FUTURE;
        let (express, express_udp) = (self.config.express, self.config.express_udp);
        for peer in self.peers.iter_mut().flatten() {
            if peer.offering {
                continue;
            }
            if peer.offer_at > now {
                self.offer_at = self.offer_at.min(peer.offer_at);
                continue;
            }
            let offer = Offer {
                express: express && peer.express,
                udp: express_udp && peer.express_udp,
                asks: peer.offer.is_none(),
            };
            let datagram = Datagram {
                src_qpn: OFFER_QPN,
                dst_qpn: OFFER_QPN,
                imm: 0,
                payload: Bytes::copy_from_slice(&offer.encode()),
                class: Class::LowLatency,
                user: OFFER_USER,
            };
            peer.offering = endpoint.send(now, peer.id, datagram).is_ok();
            let answered = peer.offer.is_some() && peer.offering;
            peer.offer_at = if answered { Instant::FAR_FUTURE } else { now + OFFER_INTERVAL };
            if !peer.offering {
                self.offer_at = self.offer_at.min(peer.offer_at);
            }
        }
    }

    /// When [`Express::handle_timeout`] (or [`Express::pump`], for offers) wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let offer = Some(self.offer_at).filter(|at| *at != Instant::FAR_FUTURE);
        offer.into_iter().chain(self.order.poll_timeout()).min()
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        Counters { order: self.order.counts(), ..self.counters }
    }

    /// `ena_srd_mode`: bit 0 SRD, bit 1 for UDP, bit 2 UDP in any order.
    pub fn mode(&self) -> u64 {
        let bit = |set: bool, bit: u64| if set { bit } else { 0 };
        bit(self.config.express, 1)
            | bit(self.config.express_udp, 2)
            | bit(self.config.udp_bypass, 4)
    }

    /// `ena_srd_resource_utilization`: the fullest table or buffer, in percent.
    pub fn resource_utilization(&self) -> u64 {
        self.order.utilization().max(self.flows.utilization())
    }

    /// Takes the rates of flows, which were last taken `elapsed` ago.
    pub fn take_rates(&mut self, elapsed: Duration) {
        self.flows.take_rates(elapsed);
    }

    /// The flows that the guest sends with the highest rates, busiest first.
    pub fn busiest(&self, most: usize) -> Vec<FlowReport> {
        let report = |(flow, bps): (&flows::Flow, u64)| FlowReport {
            key: flow.key,
            peer: PeerSlot(flow.peer),
            rides_srd: flow.rides_srd,
            bps,
            pkts: flow.pkts,
            bytes: flow.bytes,
        };
        self.flows.busiest(most).into_iter().map(report).collect()
    }

    /// Flows known in each direction.
    pub fn flow_counts(&self) -> (usize, usize) {
        (self.flows.len(), self.order.flows())
    }

    /// One peer's state.
    pub fn report(&self, slot: PeerSlot) -> Option<PeerReport> {
        let peer = self.peer(slot.0)?;
        Some(PeerReport {
            reach: peer.reach(&self.config),
            offer: peer.offer,
            traffic: peer.traffic,
            queued_bytes: peer.scheduler.bytes(),
        })
    }
}

impl Peer {
    fn reach(&self, config: &Config) -> Reach {
        if !(config.express && self.express) {
            return Reach::Off;
        }
        match self.offer {
            None => Reach::Waiting,
            Some(offer) if offer.express => {
                Reach::Express { udp: offer.udp && config.express_udp && self.express_udp }
            }
            Some(_) => Reach::Off,
        }
    }
}
