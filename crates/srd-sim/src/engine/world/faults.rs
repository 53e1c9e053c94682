//! Faults: changes of links and hosts at their times, and the effects on packets.

use bytes::Bytes;
use srd_proto::rng::Rng;

use super::account::DropCause;
use super::hop::unit;
use super::{US, World, WorldConfig, WorldError, agenda};
use crate::engine::egress::rule;
use crate::engine::event::{Event, FLAG_CORRUPT, Kind};
use crate::engine::fault::Fault;
use crate::engine::node::{Body, Node, Packet};

/// State of all faults of a world.
pub(super) struct Faults {
    changes: Vec<Change>,
    // By port: faults of its link; empty if no fault is scheduled.
    links: Vec<LinkFault>,
    // By port: limit of its queue in bytes.
    queues: Vec<Option<u64>>,
    // By host: its side in a partition; empty while there is no partition.
    sides: Vec<bool>,
    any_down: bool,
    corruption_undetected: bool,
    converges_after_ps: Option<u64>,
    rng: Rng,
}

/// A change at the beginning or at the end of a fault.
#[derive(Clone)]
enum Change {
    Down(Vec<u32>),
    Up(Vec<u32>),
    Rate(Vec<u32>, f64),
    Loss(Vec<u32>, f64),
    Corrupt(Vec<u32>, f64),
    Duplicate(Vec<u32>, f64),
    Restart(u32),
    Part(Vec<u32>),
    Join,
    /// Routing updates the routes, some time after these links failed or were repaired.
    Converge(Vec<u32>),
}

impl Change {
    /// Returns the change that routing makes some time after this change; `None` if routing does
    /// not react.
    fn followed_by(&self) -> Option<Self> {
        match self {
            Self::Down(ports) | Self::Up(ports) => Some(Self::Converge(ports.clone())),
            _ => None,
        }
    }
}

#[derive(Clone, Default)]
struct LinkFault {
    loss: f64,
    corrupt: f64,
    duplicate: f64,
    down: u32,
    // Times in picoseconds at which the link was down: from and until. The last may still be open
    // (`u64::MAX`).
    outages: Vec<(u64, u64)>,
}

impl Faults {
    pub(super) fn new(config: &WorldConfig, queues: Vec<Option<u64>>, rng: Rng) -> Self {
        let broken = if config.faults.is_empty() { 0 } else { queues.len() };
        Self {
            changes: Vec::new(),
            links: vec![LinkFault::default(); broken],
            queues,
            sides: Vec::new(),
            any_down: false,
            corruption_undetected: config.corruption_undetected,
            converges_after_ps: config.convergence_us.map(to_ps),
            rng,
        }
    }

    /// Whether any link is down or was down earlier in the run.
    #[inline]
    pub(super) fn any_down(&self) -> bool {
        self.any_down
    }

    /// Returns the time in picoseconds until routing notices the failure or repair of a link;
    /// `None` if routing never notices.
    pub(super) fn converges_after_ps(&self) -> Option<u64> {
        self.converges_after_ps
    }

    /// Returns whether a link is down, if this has not changed since the time `settled`; `None` if
    /// the link changed later or never failed.
    pub(super) fn settled_state(&self, port: u32, settled: u64) -> Option<bool> {
        let link = &self.links[port as usize];
        let &(from, until) = link.outages.last()?;
        let (is_down, since) = if link.down > 0 { (true, from) } else { (false, until) };
        (since <= settled).then_some(is_down)
    }

    /// Flips a random bit of a packet. Returns false if the receiving host's checksum detects the
    /// error.
    pub(super) fn corrupt(&mut self, packet: &mut Packet) -> bool {
        if !self.corruption_undetected {
            return false;
        }
        packet.corrupted = true;
        if let Body::Srd(body) = &mut packet.body {
            let head_bits = body.head().len() * 8;
            let bits = head_bits + body.payload.len() * 8;
            let bits = u32::try_from(bits).expect("a packet is below 64 KiB");
            let bit = self.rng.below(bits) as usize;
            if let Some(byte) = body.head_mut().get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            } else if bits > 0 {
                let mut payload = body.payload.to_vec();
                payload[(bit - head_bits) / 8] ^= 1 << (bit % 8);
                body.payload = Bytes::from(payload);
            }
        }
        true
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked to be 0..=1e12
fn to_ps(us: f64) -> u64 {
    (us * US as f64).round() as u64
}

impl<N: Node> World<N> {
    pub(super) fn schedule_faults(&mut self, faults: &[Fault]) -> Result<(), WorldError> {
        for (n, fault) in faults.iter().enumerate() {
            let context = |what: String| WorldError(format!("fault {n}: {what}"));
            fault.check().map_err(context)?;
            let (begin, end) = self.changes_of(fault).map_err(context)?;
            let (at_us, until_us) = fault.span_us();
            self.schedule_fault(to_ps(at_us), begin);
            if let (Some(until_us), Some(end)) = (until_us, end) {
                self.schedule_fault(to_ps(until_us), end);
            }
        }
        Ok(())
    }

    /// Schedules a change, and the later reaction of routing to the change.
    fn schedule_fault(&mut self, at_ps: u64, change: Change) {
        let later = self.faults.converges_after_ps.zip(change.followed_by());
        self.schedule_change(at_ps, change);
        if let Some((after_ps, change)) = later {
            self.schedule_change(at_ps.saturating_add(after_ps), change);
        }
    }

    fn schedule_change(&mut self, at_ps: u64, change: Change) {
        let number = u32::try_from(self.faults.changes.len()).expect("few faults");
        self.faults.changes.push(change);
        self.schedule(at_ps, Kind::Agenda, agenda::FAULTS + number);
    }

    /// Returns the changes at the beginning and at the end of a fault. A fault without an end has
    /// no second change.
    fn changes_of(&self, fault: &Fault) -> Result<(Change, Option<Change>), String> {
        let known = |host: u32| {
            if host < self.topology.hosts {
                return Ok(());
            }
            Err(format!("there is no host {host}: hosts are 0 to {}", self.topology.hosts - 1))
        };
        let ports = match fault.links() {
            Some(name) => self.topology.select(name).map_err(|e| e.0)?,
            None => Vec::new(),
        };
        let (begin, end) = match fault {
            Fault::LinkDown { .. } => (Change::Down(ports.clone()), Change::Up(ports)),
            Fault::LinkSlow { fraction, .. } => {
                (Change::Rate(ports.clone(), *fraction), Change::Rate(ports, 1.0))
            }
            Fault::Loss { probability: p, .. } => {
                (Change::Loss(ports.clone(), *p), Change::Loss(ports, 0.0))
            }
            Fault::Corrupt { probability: p, .. } => {
                (Change::Corrupt(ports.clone(), *p), Change::Corrupt(ports, 0.0))
            }
            Fault::Duplicate { probability: p, .. } => {
                (Change::Duplicate(ports.clone(), *p), Change::Duplicate(ports, 0.0))
            }
            Fault::Restart { host, .. } => {
                known(*host)?;
                return Ok((Change::Restart(*host), None));
            }
            Fault::Partition { hosts, .. } => {
                hosts.iter().try_for_each(|&h| known(h))?;
                (Change::Part(hosts.clone()), Change::Join)
            }
            Fault::SlowCoreLinks { count } => {
                let ports = self.topology.first_core_links(*count as usize).map_err(|e| e.0)?;
                return Ok((Change::Rate(ports, 0.25), None));
            }
        };
        Ok((begin, Some(end)))
    }

    pub(super) fn apply_fault(&mut self, number: u32) {
        let change = self.faults.changes[number as usize].clone();
        let now_ps = self.now_ps;
        let links = &mut self.faults.links;
        match &change {
            Change::Down(ports) => {
                self.faults.any_down = true;
                for &port in ports {
                    let link = &mut links[port as usize];
                    link.down += 1;
                    if link.down == 1 {
                        link.outages.push((now_ps, u64::MAX));
                    }
                    self.ports[port as usize].rules |= rule::DOWN;
                }
            }
            Change::Up(ports) => {
                for &port in ports {
                    let link = &mut links[port as usize];
                    link.down = link.down.saturating_sub(1);
                    if let (0, Some(outage)) = (link.down, link.outages.last_mut()) {
                        outage.1 = outage.1.min(now_ps);
                    }
                }
            }
            Change::Rate(ports, fraction) => {
                for &port in ports {
                    let rate_bps = self.topology.ports[port as usize].rate_bps;
                    let queue = self.faults.queues[port as usize];
                    self.ports[port as usize].set_rate(rate_bps, *fraction, queue);
                }
            }
            Change::Loss(ports, p) => ports.iter().for_each(|&n| links[n as usize].loss = *p),
            Change::Corrupt(ports, p) => {
                ports.iter().for_each(|&n| links[n as usize].corrupt = *p);
            }
            Change::Duplicate(ports, p) => {
                ports.iter().for_each(|&n| links[n as usize].duplicate = *p);
            }
            Change::Restart(host) => {
                let now = self.now();
                self.nodes[*host as usize].restart(now, &mut self.out);
                self.serve(*host);
            }
            Change::Part(hosts) => {
                self.faults.sides = vec![false; self.topology.hosts as usize];
                hosts.iter().for_each(|&h| self.faults.sides[h as usize] = true);
            }
            Change::Join => self.faults.sides.clear(),
            Change::Converge(ports) => self.converge(ports),
        }
        self.flag_faulty_ports();
    }

    /// Sets the fault bit of ports with a fault, and clears the fault bit of all other ports. Only
    /// packets at ports with this bit take the slow path.
    fn flag_faulty_ports(&mut self) {
        let parted = !self.faults.sides.is_empty();
        let hosts = self.hosts.len();
        for (number, (egress, link)) in self.ports.iter_mut().zip(&self.faults.links).enumerate() {
            let faulty = link.loss > 0.0 || link.corrupt > 0.0 || link.duplicate > 0.0;
            if faulty || (parted && number < hosts) {
                egress.rules |= rule::FAULT;
            } else {
                egress.rules &= !rule::FAULT;
            }
        }
    }

    /// Whether a packet that its host sends into the network is for the other side of a partition.
    pub(super) fn partitioned(&self, port: u32, event: &Event) -> bool {
        let sides = &self.faults.sides;
        let Some(&side) = sides.get(port as usize) else { return false };
        side != sides[event.dst as usize]
    }

    /// Sends a packet, which the port has transmitted, over a link that loses, corrupts or
    /// duplicates packets.
    pub(super) fn send_over_faulty_link(&mut self, port: u32, mut event: Event) {
        let link = &self.faults.links[port as usize];
        let (loss, corrupt, duplicate) = (link.loss, link.corrupt, link.duplicate);
        let rng = &mut self.faults.rng;
        let mut happens = |p: f64| p > 0.0 && unit(rng) < p;
        if happens(loss) {
            return self.discard(port, event.packet, DropCause::RandomLoss);
        }
        if happens(corrupt) {
            event.flags |= FLAG_CORRUPT;
        }
        let twice = happens(duplicate);
        self.wheel.push(event);
        if twice {
            let copy = self.packets.packet(event.packet).clone();
            event.packet = self.packets.take();
            *self.packets.packet(event.packet) = copy;
            self.counters.duplicated += 1;
            self.wheel.push(event);
        }
    }

    /// Drops an arriving packet if its link was down when the packet left the port. Returns whether
    /// the packet was dropped.
    pub(super) fn lost_on_dead_link(&mut self, event: &Event) -> bool {
        let egress = &self.ports[event.via as usize];
        if egress.rules & rule::DOWN == 0 {
            return false;
        }
        let left_ps = event.at_ps - egress.latency_ps();
        let outages = &self.faults.links[event.via as usize].outages;
        if !outages.iter().any(|&(from, until)| (from..until).contains(&left_ps)) {
            return false;
        }
        self.discard(event.via, event.packet, DropCause::LinkDown);
        true
    }
}
