//! The world: a network, the machines on it, and the simulated clock.
//!
//! One loop takes the next event and processes it. The modules: `hop` moves packets through
//! switches. `host` passes packets to nodes and polls nodes for packets. `flows` starts and ends
//! flows. `schedule` begins and ends operations of ranks. `lossless` pauses senders, and `pauses`
//! records the pauses. `faults` breaks and repairs links. `converge` routes around failed links.
//! `sample` records values over time. `capture` writes packets for Wireshark. `account` counts
//! packets. All random values come from the seed, through a separate stream for each purpose, so
//! that a seed gives the same run on every machine.
//!
//! An invariant holds at every moment and is checked: each packet that was injected or duplicated
//! was delivered, was dropped for a counted reason, or is still in the network.

mod account;
mod capture;
mod converge;
mod faults;
mod flows;
mod hop;
mod host;
mod lossless;
mod pauses;
mod sample;
mod schedule;

use srd_proto::rng::Rng;
use srd_proto::time::Instant;

pub use account::{Counters, DropCause, PortReport};
pub use capture::CaptureRules;
pub use flows::FlowState;
pub use lossless::{CONTROL_BYTES_MAX, LosslessRules, PAUSE_BYTES};
pub use pauses::{DEADLOCK_CHECK_PS, Deadlock, HeldFlow, PauseReport, PausedLink};
pub use sample::{Sampling, Series};
pub use schedule::Progress;

use crate::engine::egress::{Egress, rule};
use crate::engine::event::{Event, FLAG_XOFF, Kind, Target, Wheel};
use crate::engine::fault::Fault;
use crate::engine::hash::mix;
use crate::engine::node::{Delivered, Failed, FlowId, Node, Outcomes, Packet};
use crate::engine::slab::Slab;
use crate::engine::topology::{End, Switch, Topology};
use crate::workload::{Workload, WorkloadError};

/// Picoseconds per nanosecond.
pub const NS: u64 = 1_000;
/// Picoseconds per microsecond.
pub const US: u64 = 1_000_000;

/// Size of a port's queue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum QueueSize {
    /// A number of bytes.
    Bytes(u64),
    /// A multiple of the port's bandwidth-delay product: its speed times the network's base round
    /// trip.
    Bdp(f64),
}

/// Rules that apply to every switch port.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PortRules {
    /// Queue of ports for which the topology sets no size.
    pub queue: QueueSize,
    /// Bounds of marking (ECN), as queue lengths: no packet is marked up to the first bound, and
    /// every packet from the second bound on. `None` means no marking.
    pub mark: Option<(QueueSize, QueueSize)>,
    /// Share of packets that is marked just below the second bound of `mark`. The value is 1,
    /// unless RED uses a smaller share.
    pub mark_share: f64,
    /// Whether a full queue trims the payload off instead of dropping the packet.
    pub trim: bool,
    /// Whether ports send control packets before data packets.
    pub control_first: bool,
    /// Size of a full packet on the wire in bytes, from which round trips are computed.
    pub packet_bytes: u16,
}

impl Default for PortRules {
    fn default() -> Self {
        Self {
            queue: QueueSize::Bdp(5.0),
            mark: None,
            mark_share: 1.0,
            trim: false,
            control_first: false,
            packet_bytes: 4150,
        }
    }
}

/// Bytes on the wire of an acknowledgement and of a trimmed packet. Round trips are computed with
/// this size.
pub const ACK_BYTES: u16 = 64;

/// Parameters of a world, without its nodes.
#[derive(Clone, Debug, Default)]
pub struct WorldConfig {
    /// Seed of all random values of the world.
    pub seed: u64,
    /// Rules of the ports.
    pub rules: PortRules,
    /// Rules of lossless switches, which pause their senders. If `None`, switches drop packets.
    pub lossless: Option<LosslessRules>,
    /// Faults of links and hosts, with their times.
    pub faults: Vec<Fault>,
    /// Microseconds until switches stop choosing routes over a link that has failed, and until they
    /// choose a repaired link again. If `None`, switches never react.
    pub convergence_us: Option<f64>,
    /// Whether packets with flipped bits reach the nodes. Otherwise the hosts' checksums detect the
    /// errors and drop the packets.
    pub corruption_undetected: bool,
    /// Values to record over time; `None` records nothing.
    pub sampling: Option<Sampling>,
    /// Ports whose packets are captured; `None` captures nothing.
    pub capture: Option<CaptureRules>,
}

/// Reason why a world cannot be built. The text suggests a solution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorldError(pub String);

impl std::fmt::Display for WorldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WorldError {}

impl From<WorkloadError> for WorldError {
    fn from(error: WorkloadError) -> Self {
        Self(error.0)
    }
}

/// Reason why a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Every finite flow is done, and there is no endless flow.
    Finished,
    /// The end of the time that was given to [`World::run`] was reached.
    Horizon,
    /// No event is pending, although flows are unfinished.
    Stalled,
}

/// Number of events between two calls of the function that decides whether the run continues.
const EVENTS_UNASKED: u32 = 1 << 15;

/// Data of a host that is not in its node.
#[derive(Clone, Copy, Debug)]
struct Host {
    // Time in picoseconds of the next deadline event of the host; `u64::MAX` without a deadline.
    wake_ps: u64,
    // Time in picoseconds of a later deadline event that is also in the event list; `u64::MAX`
    // without such an event.
    displaced_ps: u64,
    // Whether the event list contains an event for the time when the host's link becomes free.
    link_pending: bool,
}

/// Receives the reports of nodes as they happen, so that tests can check them independently. A
/// world without an observer has no cost for this.
pub trait Observer {
    /// Called when a piece of a flow has reached its receiver.
    fn delivered(&mut self, now_ps: u64, piece: &Delivered);
    /// Called when a sender's transport has given up a piece.
    fn failed(&mut self, now_ps: u64, piece: &Failed);
    /// Called when a sender has got the last acknowledgement of a flow.
    fn completed(&mut self, now_ps: u64, flow: FlowId);
    /// Called when a packet is dropped, for whatever cause.
    fn dropped(&mut self, _now_ps: u64, _packet: &Packet) {}
}

/// A simulated network with nodes of type `N`, one per host.
pub struct World<N> {
    now_ps: u64,
    wheel: Wheel,
    switches: Vec<Switch>,
    ports: Vec<Egress>,
    packets: Slab,
    nodes: Vec<N>,
    hosts: Vec<Host>,
    out: Outcomes,
    flows: flows::Flows,
    background: host::Background,
    special: hop::Special,
    lossless: lossless::Lossless,
    faults: faults::Faults,
    withdrawn: Option<converge::Withdrawn>,
    sampler: Option<sample::Sampler>,
    observer: Option<Box<dyn Observer>>,
    capture: Option<capture::Capture>,
    counters: Counters,
    topology: Topology,
}

impl<N: Node> World<N> {
    /// Builds a world. `node` creates the machine of each host.
    ///
    /// # Errors
    /// If a workload or fault does not fit the network.
    pub fn new(
        mut topology: Topology,
        workload: Workload,
        config: WorldConfig,
        node: impl FnMut(u32) -> N,
    ) -> Result<Self, WorldError> {
        workload.check(topology.hosts)?;
        topology.salt(config.seed);
        let lossless = lossless::Lossless::new(config.lossless, &config.rules, &topology)?;
        let queues = match config.lossless {
            Some(_) => vec![None; topology.ports.len()],
            None => queue_bytes(&topology, &config.rules)?,
        };
        let mut ports = egress_ports(&topology, &queues, &config.rules);
        if lossless.is_on() {
            ports.iter_mut().for_each(|port| port.rules |= rule::LOSSLESS);
        }
        let host = Host { wake_ps: u64::MAX, displaced_ps: u64::MAX, link_pending: false };
        let hosts = topology.hosts;
        let mut world = Self {
            now_ps: 0,
            wheel: Wheel::new(slot_shift(&topology, &config.rules)),
            switches: topology.switches.clone(),
            packets: Slab::default(),
            nodes: (0..hosts).map(node).collect(),
            hosts: vec![host; hosts as usize],
            out: Outcomes::default(),
            background: host::Background::new(&workload, hosts),
            flows: flows::Flows::new(workload),
            special: hop::Special::new(&config.rules, &topology, stream(config.seed, 1)),
            lossless,
            faults: faults::Faults::new(&config, queues, stream(config.seed, 2)),
            withdrawn: None,
            sampler: None,
            observer: None,
            capture: None,
            counters: Counters::new(ports.len()),
            ports,
            topology,
        };
        world.schedule_starts();
        world.schedule_timers();
        world.schedule_operations();
        world.schedule_background();
        world.schedule_faults(&config.faults)?;
        world.schedule_samples(config.sampling)?;
        if let Some(wanted) = &config.capture {
            world.begin_capture(wanted)?;
        }
        Ok(world)
    }

    /// Runs until every finite flow is done, or until the time `horizon_ps`. With an endless flow,
    /// only the time ends the run.
    pub fn run(&mut self, horizon_ps: u64) -> Ended {
        self.run_while(horizon_ps, &|| true).expect("a run that is always wanted is not stopped")
    }

    /// Runs as [`Self::run`] does, but returns `None` soon after `wanted` has returned false.
    /// `wanted` is called every few ten thousand events, which take a few milliseconds.
    pub fn run_while(&mut self, horizon_ps: u64, wanted: &dyn Fn() -> bool) -> Option<Ended> {
        let mut unasked = EVENTS_UNASKED;
        while !self.flows.all_done() {
            unasked -= 1;
            if unasked == 0 {
                if !wanted() {
                    return None;
                }
                unasked = EVENTS_UNASKED;
            }
            let Some(event) = self.wheel.pop(horizon_ps) else {
                if self.wheel.is_empty() {
                    return Some(Ended::Stalled);
                }
                self.now_ps = self.now_ps.max(horizon_ps);
                return Some(Ended::Horizon);
            };
            self.warm();
            self.act(event);
        }
        Some(Ended::Finished)
    }

    /// Runs until a time in picoseconds, whether or not flows are unfinished.
    pub fn run_until(&mut self, until_ps: u64) {
        while let Some(event) = self.wheel.pop(until_ps) {
            self.act(event);
        }
        self.now_ps = self.now_ps.max(until_ps);
    }

    #[inline]
    fn act(&mut self, event: Event) {
        debug_assert!(event.at_ps >= self.now_ps, "time runs forwards");
        self.now_ps = event.at_ps;
        let number = event.target.number();
        match event.target.kind() {
            Kind::Switch => self.arrive_at_switch(number, event),
            Kind::Host => self.arrive_at_host(number, event),
            Kind::LinkFree => {
                self.hosts[number as usize].link_pending = false;
                self.serve(number);
            }
            Kind::Timer => self.deadline(number),
            Kind::Agenda => self.agenda(number),
            Kind::PortFree => self.port_free(number),
            Kind::Pause => self.on_pause(number, event.flags & FLAG_XOFF != 0),
        }
        self.counters.events += 1;
    }

    /// Reads the data that the events of a new slot of the event list will need. All these memory
    /// accesses overlap. The function changes nothing, so it cannot change a run.
    #[inline]
    fn warm(&mut self) {
        let Some(batch) = self.wheel.fresh_batch() else { return };
        let mut sum = 0;
        for event in batch {
            let number = event.target.number() as usize;
            match event.target.kind() {
                Kind::Switch => {
                    let port = self.switches[number].route(event.dst, event.hash);
                    sum ^= self.ports[port as usize].busy_until_ps();
                }
                kind @ (Kind::Host | Kind::LinkFree) => {
                    let node = &self.nodes[number];
                    sum ^= self.hosts[number].wake_ps ^ self.ports[number].busy_until_ps();
                    sum ^= match kind {
                        Kind::Host => node.warm_for_packet(self.packets.peek(event.packet)),
                        _ => node.warm_for_poll(),
                    };
                }
                Kind::Timer | Kind::Agenda | Kind::PortFree | Kind::Pause => {}
            }
        }
        std::hint::black_box(sum);
    }

    /// Processes an entry of the agenda, such as the start of flows or a fault.
    #[cold]
    fn agenda(&mut self, number: u32) {
        match number {
            agenda::STARTS => self.start_due_flows(),
            agenda::SAMPLE => self.sample(),
            agenda::OPERATIONS => self.act_on_operations(),
            agenda::DEADLOCK => self.check_deadlock(),
            entry => self.apply_fault(entry - agenda::FAULTS),
        }
    }

    fn schedule(&mut self, at_ps: u64, kind: Kind, number: u32) {
        self.wheel.push(Event { at_ps, target: Target::new(kind, number), ..Event::default() });
    }

    /// Returns the simulated time in the unit of nodes.
    #[inline]
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now_ps / NS)
    }

    /// Sets the observer, which receives all later reports of nodes.
    pub fn observe(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Removes and returns the observer.
    pub fn take_observer(&mut self) -> Option<Box<dyn Observer>> {
        self.observer.take()
    }

    /// Returns the simulated time in picoseconds.
    pub fn now_ps(&self) -> u64 {
        self.now_ps
    }

    /// Returns the network of the world.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the nodes in the order of their hosts.
    pub fn nodes(&self) -> &[N] {
        &self.nodes
    }

    /// Returns the node of a host, to query or change it between two runs. If the change makes the
    /// node send packets, they leave with the next event of the host.
    pub fn node_mut(&mut self, host: u32) -> &mut N {
        &mut self.nodes[host as usize]
    }

    /// Returns the state of every flow.
    pub fn flows(&self) -> &[FlowState] {
        self.flows.states()
    }

    /// Returns the values recorded over time, if they were configured.
    pub fn series(&self) -> Option<&Series> {
        self.sampler.as_ref().map(sample::Sampler::series)
    }
}

/// Numbers of the agenda's entries: events of the world that do not belong to a packet or a node.
/// Numbers from `FAULTS` on are changes by faults.
mod agenda {
    pub(super) const STARTS: u32 = 0;
    pub(super) const SAMPLE: u32 = 1;
    pub(super) const OPERATIONS: u32 = 2;
    pub(super) const DEADLOCK: u32 = 3;
    pub(super) const FAULTS: u32 = 4;
}

/// Returns a generator of random numbers for one purpose. Generators for different purposes are
/// independent.
fn stream(seed: u64, purpose: u64) -> Rng {
    Rng::new(mix(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mix(purpose)))
}

impl QueueSize {
    /// Returns the size in bytes, for a port with the given speed in a network with the given base
    /// round trip.
    fn bytes(self, rate_bps: u64, rtt_ps: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
            Self::Bdp(factor) => (factor * rtt_ps as f64 * rate_bps as f64 / 8e12).round() as u64,
        }
    }
}

impl PortRules {
    /// Returns the base round trip of the longest path in the network in picoseconds, with full
    /// packets and acknowledgements.
    fn rtt_ps(&self, topology: &Topology) -> u64 {
        topology.diameter_rtt_ps(self.packet_bytes.into(), ACK_BYTES.into())
    }
}

/// Returns the queue limit of every port in bytes; `None` for ports of hosts, because a host sends
/// only when its link is free.
///
/// # Errors
/// If a queue has no space for a full packet: the port would drop or trim every one.
fn queue_bytes(topology: &Topology, rules: &PortRules) -> Result<Vec<Option<u64>>, WorldError> {
    let rtt_ps = rules.rtt_ps(topology);
    let by_rule = |rate_bps| rules.queue.bytes(rate_bps, rtt_ps);
    let one = |port: &crate::engine::topology::Port| match port.from {
        End::Host(_) => None,
        End::Switch(_) => Some(port.queue_bytes.unwrap_or_else(|| by_rule(port.rate_bps))),
    };
    let queues: Vec<_> = topology.ports.iter().map(one).collect();
    let full = u64::from(rules.packet_bytes);
    let small = |(port, queue): (u32, &Option<u64>)| queue.filter(|b| *b < full).map(|b| (port, b));
    match (0..).zip(&queues).find_map(small) {
        Some((port, bytes)) => Err(WorldError(format!(
            "the queue of {} holds {bytes} bytes, which is less than one packet of {full}",
            topology.port_name(port)
        ))),
        None => Ok(queues),
    }
}

fn egress_ports(topology: &Topology, queues: &[Option<u64>], rules: &PortRules) -> Vec<Egress> {
    let mut on_switch = 0;
    for (wanted, bit) in [
        (rules.mark.is_some(), rule::MARK),
        (rules.trim, rule::TRIM),
        (rules.control_first, rule::CONTROL),
    ] {
        on_switch |= if wanted { bit } else { 0 };
    }
    let one = |(port, queue): (&crate::engine::topology::Port, &Option<u64>)| {
        let next = match port.to {
            End::Host(host) => Target::new(Kind::Host, host),
            End::Switch(switch) => Target::new(Kind::Switch, switch),
        };
        let mut egress = Egress::new(port.rate_bps, port.latency_ps, *queue, next);
        if matches!(port.from, End::Switch(_)) {
            egress.rules = on_switch;
        }
        egress
    };
    topology.ports.iter().zip(queues).map(one).collect()
}

/// Returns the width of the event list's finest slots, as a power of two in picoseconds. If every
/// port is busy with full packets, such a slot holds about thirty events.
fn slot_shift(topology: &Topology, rules: &PortRules) -> u32 {
    let per_ps: f64 = topology
        .ports
        .iter()
        .map(|p| p.rate_bps as f64 / (8e12 * f64::from(rules.packet_bytes)))
        .sum();
    let width_ps = (32.0 / per_ps).clamp(64.0, 1_048_576.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within 6..=20
    let shift = width_ps.log2().floor() as u32;
    shift
}

#[cfg(test)]
mod tests;
