//! Effects of pauses on links and flows, and deadlocks.
//!
//! **Held.** A flow is held while a packet of it waits at a paused port, or its host is paused.
//! **Congested.** When a switch stops a sender, the cause is the egress port that holds most of the
//! bytes from there. It is congested if its first packet waited for the link alone; if a pause held
//! that packet, congestion has spread.
//! **Victims** are flows that were held although no congested port is on their path.
//! **Deadlock.** Some paused ports wait for each other in a circle: see [`World::stuck`].

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{US, World, agenda};
use crate::engine::event::Kind;
use crate::engine::node::{Body, FlowId, Node};
use crate::engine::topology::End;

/// Interval at which a network with paused ports is searched for a deadlock.
pub const DEADLOCK_CHECK_PS: u64 = 10 * US;

/// A link whose sender was paused.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PausedLink {
    /// Name of the link.
    pub link: String,
    /// Number of pauses.
    pub pauses: u32,
    /// Total time of the pauses.
    pub paused_us: f64,
}

/// Ports that wait for each other in a circle.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Deadlock {
    /// Time when it was found, a few microseconds after it formed.
    pub at_us: f64,
    /// The links of the circle: each waits for the next, the last for the first.
    pub circle: Vec<String>,
    /// Number of links that will never send again: the links of the circle, and links that wait for
    /// it.
    pub links: usize,
}

/// Time for which a flow was held.
#[derive(Clone, Copy, Debug, Default)]
struct HoldTime {
    total_ps: u64,
    until_ps: u64,
}

impl HoldTime {
    fn add(&mut self, from_ps: u64, until_ps: u64) {
        let from_ps = from_ps.max(self.until_ps);
        self.total_ps += until_ps.saturating_sub(from_ps);
        self.until_ps = self.until_ps.max(until_ps);
    }
}

/// The record of a world's pauses.
#[derive(Default)]
pub(super) struct Pauses {
    frames: u64,
    congested: Vec<bool>,
    // By flow; the list grows on demand.
    held: Vec<HoldTime>,
    // Flows that each host sends; filled once a host was paused.
    flows: BTreeMap<u32, Vec<u32>>,
    check_pending: bool,
    deadlock: Option<Deadlock>,
}

impl Pauses {
    pub(super) fn new(ports: u32) -> Self {
        Self { congested: vec![false; ports as usize], ..Self::default() }
    }

    fn hold(&mut self, flow: u32, from_ps: u64, until_ps: u64) {
        let index = flow as usize;
        if index >= self.held.len() {
            self.held.resize(index + 1, HoldTime::default());
        }
        self.held[index].add(from_ps, until_ps);
    }
}

/// A flow that was held.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeldFlow {
    /// Number of the flow.
    pub flow: FlowId,
    /// Time for which pauses delayed the flow, in microseconds.
    pub held_us: f64,
    /// Whether the flow crosses no congested port.
    pub is_victim: bool,
}

/// Effects of pauses in a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PauseReport {
    /// Pause frames that stopped a port.
    pub frames: u64,
    /// Links that were paused, the longest pause first.
    pub links: Vec<PausedLink>,
    /// Names of congested ports.
    pub congested: Vec<String>,
    /// Flows that were held.
    pub held: Vec<HeldFlow>,
    /// The first deadlock.
    pub deadlock: Option<Deadlock>,
}

/// Flow of a packet, if the packet contains its number.
fn flow_of(body: &Body) -> Option<u32> {
    match body {
        Body::Roce(packet) => Some(packet.flow),
        Body::Tcp(segment) => Some(segment.flow),
        Body::Srd(_) | Body::Background(_) | Body::Empty => None,
    }
}

impl<N: Node> World<N> {
    /// Notes that a switch stops the sender of a link.
    pub(super) fn note_stop(&mut self, far: u32) {
        let queues = &self.lossless.queues;
        let share = |&port: &u32| {
            let source = queues[port as usize].sources.iter().find(|(via, _)| *via == far);
            source.map_or(0, |(_, bytes)| *bytes)
        };
        let is_held = |port: u32| {
            let queue = &queues[port as usize];
            let first = queue.waiting.front();
            first.is_some_and(|first| queue.paused_ps(self.now_ps) > first.paused_ps)
        };
        let fullest = self.egress_ports(far).max_by_key(share).filter(|&port| !is_held(port));
        self.lossless.pauses.frames += 1;
        if let Some(port) = fullest {
            self.lossless.pauses.congested[port as usize] = true;
        }
        self.schedule_check();
    }

    /// Ports through which packets leave the switch at the end of a link.
    fn egress_ports(&self, link: u32) -> impl Iterator<Item = u32> + use<N> {
        let ranges = match self.topology.ports[link as usize].to {
            End::Host(_) => [(0, 0); 2],
            End::Switch(switch) => {
                let switch = &self.switches[switch as usize];
                [switch.ports_down(), switch.ports_up()]
            }
        };
        ranges.into_iter().flat_map(|(first, count)| first..first + count)
    }

    /// Notes that a packet leaves a queue in which pauses held it for `held_ps`.
    pub(super) fn note_held(&mut self, packet: u32, held_ps: u64) {
        if let Some(flow) = flow_of(&self.packets.peek(packet).body) {
            self.lossless.pauses.hold(flow, self.now_ps - held_ps, self.now_ps);
        }
    }

    /// Notes that a host that was paused since `since_ps` may send again.
    pub(super) fn note_host_held(&mut self, host: u32, since_ps: u64) {
        if self.lossless.pauses.flows.is_empty() {
            let mut flows: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for (number, state) in (0..).zip(self.flows()) {
                flows.entry(state.plan.src.0).or_default().push(number);
            }
            self.lossless.pauses.flows = flows;
        }
        let pauses = &mut self.lossless.pauses;
        let Some(flows) = pauses.flows.remove(&host) else { return };
        for &flow in &flows {
            let state = &self.flows.states()[flow as usize];
            if let (Some(started_ps), None) = (state.started_ps, state.finished_ps) {
                pauses.hold(flow, since_ps.max(started_ps), self.now_ps);
            }
        }
        pauses.flows.insert(host, flows);
    }

    fn schedule_check(&mut self) {
        let pauses = &mut self.lossless.pauses;
        if pauses.deadlock.is_none() && !std::mem::replace(&mut pauses.check_pending, true) {
            self.schedule(self.now_ps + DEADLOCK_CHECK_PS, Kind::Agenda, agenda::DEADLOCK);
        }
    }

    /// Searches for a deadlock, and schedules another search if none was found and a port is
    /// stopped.
    pub(super) fn check_deadlock(&mut self) {
        self.lossless.pauses.check_pending = false;
        let stuck = self.stuck();
        if stuck.is_empty() {
            if self.lossless.ingress.iter().any(|ingress| ingress.is_stopped) {
                self.schedule_check();
            }
            return;
        }
        let circle = self.circle(&stuck);
        let name = |port: &u32| self.topology.port_name(*port);
        self.lossless.pauses.deadlock = Some(Deadlock {
            at_us: self.now_ps as f64 / US as f64,
            circle: circle.iter().map(name).collect(),
            links: stuck.len(),
        });
    }

    /// Ports that will never send again. Such a port is paused by a switch that holds more than XON
    /// of its bytes in queues of ports that will never send again either. The result is the largest
    /// such set. The search starts with all paused ports. It removes each port whose pause ends
    /// when the ports outside of the set drain, until nothing changes.
    fn stuck(&self) -> BTreeSet<u32> {
        let (queues, ingress) = (&self.lossless.queues, &self.lossless.ingress);
        let is_stopped = |port: &u32| {
            ingress[*port as usize].is_stopped && queues[*port as usize].paused_at_ps.is_some()
        };
        let ports = u32::try_from(queues.len()).expect("the number of ports is bounded");
        let mut stuck: BTreeSet<u32> = (0..ports).filter(is_stopped).collect();
        loop {
            let mut blocked: BTreeMap<u32, u64> = BTreeMap::new();
            for (via, bytes) in stuck.iter().flat_map(|port| &queues[*port as usize].sources) {
                *blocked.entry(*via).or_default() += bytes;
            }
            let stays = |port: &&u32| {
                let bytes = blocked.get(*port).copied().unwrap_or(0);
                bytes > ingress[**port as usize].xon_bytes
            };
            let left: BTreeSet<u32> = stuck.iter().filter(stays).copied().collect();
            if left.len() == stuck.len() {
                return stuck;
            }
            stuck = left;
        }
    }

    /// Finds a circle among ports that are stuck: each waits for the next.
    fn circle(&self, stuck: &BTreeSet<u32>) -> Vec<u32> {
        let waits_for = |port: u32| {
            let holds = |next: &&u32| {
                let sources = &self.lossless.queues[**next as usize].sources;
                sources.iter().any(|&(via, bytes)| via == port && bytes > 0)
            };
            stuck.iter().find(holds).copied()
        };
        let mut way: Vec<u32> = stuck.first().copied().into_iter().collect();
        while let Some(next) = way.last().and_then(|&port| waits_for(port)) {
            if let Some(at) = way.iter().position(|&port| port == next) {
                return way.split_off(at);
            }
            way.push(next);
        }
        way
    }

    /// Effects of pauses, if the network is lossless. `hash` is the hash of a flow's packets, all
    /// of which take one path.
    pub fn pauses(&self, hash: impl Fn(FlowId) -> u32) -> Option<PauseReport> {
        if !self.lossless.is_on() {
            return None;
        }
        let pauses = &self.lossless.pauses;
        let us = |ps: u64| ps as f64 / US as f64;
        let mut links = Vec::new();
        for (queue, port) in self.lossless.queues.iter().zip(0..).filter(|(q, _)| q.pauses > 0) {
            let paused_us = us(queue.paused_ps(self.now_ps));
            links.push(PausedLink {
                link: self.topology.port_name(port),
                pauses: queue.pauses,
                paused_us,
            });
        }
        links.sort_by(|a, b| b.paused_us.total_cmp(&a.paused_us));
        let held = self.held_until_now();
        let held = (0..).zip(&held).filter(|(_, held)| held.total_ps > 0).map(|(number, held)| {
            let plan = &self.flows()[number as usize].plan;
            let path = self.topology.path(plan.src.0, plan.dst.0, hash(FlowId(number)));
            let is_victim = !path.iter().any(|&port| pauses.congested[port as usize]);
            HeldFlow { flow: FlowId(number), held_us: us(held.total_ps), is_victim }
        });
        let congested = (0..).zip(&pauses.congested).filter(|(_, is)| **is);
        Some(PauseReport {
            frames: pauses.frames,
            links,
            congested: congested.map(|(port, _)| self.topology.port_name(port)).collect(),
            held: held.collect(),
            deadlock: pauses.deadlock.clone(),
        })
    }

    /// Times for which flows were held, including those that are held now.
    fn held_until_now(&self) -> Vec<HoldTime> {
        let now_ps = self.now_ps;
        let mut held = self.lossless.pauses.held.clone();
        held.resize(self.flows().len(), HoldTime::default());
        for (queue, port) in self.lossless.queues.iter().zip(0..) {
            let Some(since_ps) = queue.paused_at_ps else { continue };
            for waiting in &queue.waiting {
                let flow = flow_of(&self.packets.peek(waiting.event.packet).body);
                if let Some(held) = flow.and_then(|flow| held.get_mut(flow as usize)) {
                    let held_ps = queue.paused_ps(now_ps) - waiting.paused_ps;
                    held.add(now_ps - held_ps, now_ps);
                }
            }
            for (held, state) in held.iter_mut().zip(self.flows()) {
                let is_open = state.finished_ps.is_none() && state.plan.src.0 == port;
                if let Some(started_ps) = state.started_ps.filter(|_| is_open) {
                    held.add(since_ps.max(started_ps), now_ps);
                }
            }
        }
        held
    }
}
