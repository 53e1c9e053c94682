//! Effects of pause frames on links and flows, and detection of deadlocks.
//!
//! **Held.** A flow is held while one of its packets waits at a paused port, or its host is paused.
//! **Congested.** When a switch pauses a sender, the cause is the egress port with most of the
//! bytes from this sender. The port is congested if its first packet waited only for the link. If a
//! pause held that packet, congestion has spread from another switch.
//! **Victims** are flows that were held although no congested port is on their path.
//! **Deadlock.** Some paused ports wait for each other in a circle: see [`World::stuck`].

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{US, World, agenda};
use crate::engine::event::Kind;
use crate::engine::node::{Body, FlowId, Node};
use crate::engine::topology::End;

/// Time between two searches for a deadlock while ports are paused, in picoseconds.
pub const DEADLOCK_CHECK_PS: u64 = 10 * US;

/// A link whose sender was paused.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PausedLink {
    /// Name of the link, as scenarios use it.
    pub link: String,
    /// Number of times that the sender of the link was paused.
    pub pauses: u32,
    /// Total time of the pauses in microseconds.
    pub paused_us: f64,
}

/// Ports in a lossless network that wait for each other in a circle.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Deadlock {
    /// Simulated time in microseconds at which the deadlock was found, a few microseconds after it
    /// formed.
    pub at_us: f64,
    /// The links of the circle. Each link waits for the next, and the last link waits for the
    /// first.
    pub circle: Vec<String>,
    /// Number of links that will never send again: the links of the circle, and links that wait for
    /// them.
    pub links: usize,
}

/// Time for which pauses held a flow.
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

/// Record of all pauses in a world.
#[derive(Default)]
pub(super) struct Pauses {
    frames: u64,
    congested: Vec<bool>,
    // By flow: time for which it was held. The list grows on demand.
    held: Vec<HoldTime>,
    // By host: flows that it sends. Filled when a host's pause ends for the first time.
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

/// A flow that pauses held.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeldFlow {
    /// Number of the flow.
    pub flow: FlowId,
    /// Time for which pauses delayed the flow, in microseconds.
    pub held_us: f64,
    /// Whether no congested port is on the path of the flow.
    pub is_victim: bool,
}

/// Effects of pause frames in a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PauseReport {
    /// Number of pause frames that began a pause.
    pub frames: u64,
    /// Links that were paused, the link with the longest total pause first.
    pub links: Vec<PausedLink>,
    /// Names of the congested ports, where the cause of a pause was the link alone.
    pub congested: Vec<String>,
    /// Flows that pauses held.
    pub held: Vec<HeldFlow>,
    /// The first deadlock; `None` if there was no deadlock.
    pub deadlock: Option<Deadlock>,
}

/// Returns the flow of a packet, if the packet contains the flow's number.
fn flow_of(body: &Body) -> Option<u32> {
    match body {
        Body::Roce(packet) => Some(packet.flow),
        Body::Tcp(segment) => Some(segment.flow),
        Body::Srd(_) | Body::Background(_) | Body::Empty => None,
    }
}

impl<N: Node> World<N> {
    /// Records that a switch pauses the sender of the link `far`, and the congested port that is
    /// the cause.
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

    /// Returns the ports through which packets leave the switch at the end of a link.
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

    /// Records that a packet leaves a queue after pauses have held it for `held_ps`.
    pub(super) fn note_held(&mut self, packet: u32, held_ps: u64) {
        if let Some(flow) = flow_of(&self.packets.peek(packet).body) {
            self.lossless.pauses.hold(flow, self.now_ps - held_ps, self.now_ps);
        }
    }

    /// Records that a host may send again after a pause since `since_ps`.
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

    /// Searches for a deadlock. Schedules another search if there is no deadlock and a switch has
    /// paused a port.
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

    /// Returns the ports that will never send again: the largest set of paused ports in which each
    /// port waits for others of the set. The switch that has paused a port ends the pause when at
    /// most XON of the port's bytes are left. So a port is in the set if more than XON of its bytes
    /// wait in queues of ports of the set. The search begins with all paused ports, and removes
    /// ports that do not meet this condition until nothing changes.
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

    /// Returns a circle of ports, out of ports that will never send again: each port waits for the
    /// next.
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

    /// Returns the effects of pause frames, or `None` if the network is not lossless. `hash`
    /// returns the hash of a flow's packets, all of which take one path.
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

    /// Returns the time for which each flow was held, pauses that still last included.
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
