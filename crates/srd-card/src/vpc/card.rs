//! Interfaces, instances and rules of one worker's card.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::{Concern, Concerned, Rules};
use srd_vpc::id::{EniId, VpcId};
use srd_vpc::judge::Exit;

use super::asking::Asking;
use super::drops::{Cause, Drops};
use super::epochs::{Epochs, Since};
use super::firsts::Firsts;
use super::flow::{Ends, Flow, Side, Target, Verdict};
use super::logs::Logs;
use super::mirror::Mirror;
use super::nat::Nat;
use super::parcel::Parcel;
use super::port::{Around, Direct, FlowState, Guest, PortCounts, PortId};
use super::returns::Returns;
use super::trace::Traces;
use crate::hash::{Keyed, part};
use crate::limits::{Allowances, Ceiling, FlowKind, Limits};
use crate::meta::key::Direction;
use crate::observe::Aggregator;
use crate::profile::Profile;
use crate::rewrite::too_big;
use crate::tenants::TenantId;
use crate::track::{Key, State, Table, Timeouts};

#[derive(Debug)]
pub(super) struct Port {
    pub(super) eni: EniId,
    pub(super) vpc: VpcId,
    pub(super) instance: u32,
    /// The last changes that concern it.
    pub(super) since: Since,
    /// The interface among those of its instance.
    pub(super) index: u16,
    /// It was removed, and its place is free.
    pub(super) is_gone: bool,
    pub(super) counts: PortCounts,
    pub(super) drops: Drops,
    /// What flow logs count; none without a log.
    pub(super) logs: Vec<Aggregator>,
    /// Sessions that copy its packets, the lowest number first.
    pub(super) mirrors: Vec<Mirror>,
    /// Whether copies are for it.
    pub(super) is_mirror_target: bool,
    /// How often its guest is told that a packet was too big.
    pub(super) answers: too_big::Limit,
    pub(super) firsts: Firsts,
    /// The hosts whose NAT gateways its connections come from.
    pub(super) returns: Returns,
}

pub(super) struct Instance {
    pub(super) limits: Limits<Parcel>,
    pub(super) flows: Table<Flow>,
    ceilings: [Ceiling; 3],
    /// When its limits let the next packet go, as the card's timers know it.
    timer: Option<Instant>,
}

impl Instance {
    pub(super) fn ceiling(&self, kind: FlowKind) -> Ceiling {
        self.ceilings[kind as usize]
    }
}

/// The card of one worker. Bounds: each instance has as many tracked connections as its type, as
/// many flows besides, and the queues of its limits.
pub struct Card {
    pub(super) host: Arc<str>,
    pub(super) rules: Arc<Rules>,
    pub(super) epochs: Epochs,
    pub(super) ports: Vec<Port>,
    by_eni: BTreeMap<EniId, PortId>,
    pub(super) instances: Vec<Instance>,
    pub(super) ends: Ends,
    pub(super) edges: BTreeMap<Exit, Arc<str>>,
    /// The most bytes of a packet that one datagram carries to another host.
    pub(super) host_bytes_max: usize,
    /// Drops that belong to no interface.
    pub(super) drops: Drops,
    /// When instances have packets that may go on.
    timers: BTreeSet<(Instant, u32)>,
    /// Places of interfaces and instances that were removed.
    free_ports: Vec<PortId>,
    free_instances: Vec<u32>,
    /// How long before they are handed in packets may have arrived.
    pub(super) late: Duration,
    /// Whether frames that are handed in came by SRD.
    pub(super) by_srd: bool,
    /// The instance where [`Card::expire`] goes on.
    expiring: usize,
    /// Instances whose limits have been offered packets.
    pub(super) busy: VecDeque<u32>,
    secret: Secret,
    /// Tells copies of one flow from those of others, as their receivers see.
    pub(super) of_mirrors: Keyed,
    pub(super) logs: Logs,
    pub(super) traces: Traces,
    pub(super) asking: Asking,
    /// Connections through NAT gateways to interfaces.
    pub(super) nat: Nat,
}

/// Numbers of secrets that follow from the card's: those of instances are below.
const OF_LOGS: u64 = 1 << 62;
const OF_MIRRORS: u64 = 1 << 63;
/// Steps of expiry for each packet of a flow that is new.
const EXPIRE_WORK: u32 = 2;

impl Card {
    /// A card without interfaces.
    pub fn new(host: &str, rules: Arc<Rules>, secret: Secret) -> Self {
        Self {
            host: host.into(),
            rules,
            epochs: Epochs::new(),
            ports: Vec::new(),
            by_eni: BTreeMap::new(),
            instances: Vec::new(),
            ends: Ends::default(),
            edges: BTreeMap::new(),
            host_bytes_max: usize::MAX,
            drops: Drops::default(),
            timers: BTreeSet::new(),
            free_ports: Vec::new(),
            free_instances: Vec::new(),
            late: Duration::ZERO,
            by_srd: false,
            expiring: 0,
            busy: VecDeque::new(),
            secret,
            of_mirrors: Keyed::new(part(&secret, OF_MIRRORS)),
            logs: Logs::default(),
            traces: Traces::default(),
            asking: Asking::default(),
            nat: Nat::of_host(host),
        }
    }

    /// Adds an instance with its interfaces; their places are in the order of `guests`.
    pub fn add_instance(
        &mut self,
        now: Instant,
        profile: &Profile,
        guests: &[Guest],
    ) -> Vec<PortId> {
        let next = u32::try_from(self.instances.len()).unwrap_or(u32::MAX);
        let number = self.free_instances.pop().unwrap_or(next);
        let timeouts: Vec<Timeouts> = guests.iter().map(|guest| guest.timeouts).collect();
        let allowance = u32::try_from(profile.tracking_allowance.value).unwrap_or(u32::MAX);
        let kinds = [FlowKind::Exterior, FlowKind::ClusterPlacementGroup, FlowKind::Express];
        let enis = u16::try_from(guests.len()).unwrap_or(u16::MAX);
        let secret = part(&self.secret, u64::from(number));
        let flows = Table::new(allowance, &timeouts, secret, now).with_untracked(allowance);
        let limits = Limits::new(&profile.limits(), enis, now);
        let ceilings = kinds.map(|kind| profile.ceiling(kind));
        let instance = Instance { limits, flows, ceilings, timer: None };
        match self.instances.get_mut(number as usize) {
            Some(place) => *place = instance,
            None => self.instances.push(instance),
        }
        let ports = (0..).zip(guests).map(|(index, guest)| self.add_port(number, index, guest.eni));
        ports.collect()
    }

    fn add_port(&mut self, instance: u32, index: u16, eni: EniId) -> PortId {
        let vpc = self.rules.vpc_of(eni).unwrap_or(VpcId(0));
        let (counts, drops) = (PortCounts::default(), Drops::default());
        let port = Port {
            eni,
            vpc,
            instance,
            since: Since::all(self.epochs.now()),
            index,
            is_gone: false,
            counts,
            drops,
            logs: Vec::new(),
            mirrors: Vec::new(),
            is_mirror_target: false,
            answers: too_big::Limit::default(),
            firsts: Firsts::default(),
            returns: Returns::default(),
        };
        let next = PortId(u32::try_from(self.ports.len()).unwrap_or(u32::MAX));
        let id = self.free_ports.pop().unwrap_or(next);
        match self.ports.get_mut(id.0 as usize) {
            Some(place) => *place = port,
            None => self.ports.push(port),
        }
        self.by_eni.insert(eni, id);
        self.forget_verdicts();
        id
    }

    /// Removes an instance with all its interfaces, of which this is one: its connections, and the
    /// packets that wait for its limits, are gone.
    pub fn remove_instance(&mut self, now: Instant, port: PortId) {
        let Some(number) = self.port(port).map(|port| port.instance) else { return };
        for (id, port) in (0..).map(PortId).zip(&mut self.ports) {
            if port.instance == number && !port.is_gone {
                port.is_gone = true;
                self.by_eni.remove(&port.eni);
                self.logs.end(now, port.eni, core::mem::take(&mut port.logs));
                self.free_ports.push(id);
            }
        }
        let instance = &mut self.instances[number as usize];
        if let Some(at) = instance.timer.take() {
            self.timers.remove(&(at, number));
        }
        instance.flows = Table::new(0, &[], self.secret, now);
        instance.limits = Limits::new(&Profile::of_nothing(), 0, now);
        self.free_instances.push(number);
        self.forget_verdicts();
    }

    /// For the next window of a flow log: no two have the same.
    pub(super) fn secret_of_log(&mut self) -> Secret {
        self.logs.number += 1;
        part(&self.secret, OF_LOGS | self.logs.number)
    }

    /// An interface that is there.
    pub(super) fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.get(id.0 as usize).filter(|port| !port.is_gone)
    }

    /// Packets for other hosts that do not ride SRD have so many bytes at most: TCP connections are
    /// clamped to that, and other packets are cut as a router does, or answered (V7). What cuts
    /// super-packets is around the card. Without a call they have any size.
    pub fn set_host_bytes_max(&mut self, bytes: usize) {
        self.host_bytes_max = bytes;
    }

    /// Whether frames that are handed in from now on came by SRD: those that their receivers take
    /// count as `ena_srd_rx_pkts`. // V22
    pub fn set_by_srd(&mut self, by_srd: bool) {
        self.by_srd = by_srd;
    }

    /// From now on packets may have arrived so long before they are handed in: the worker did not
    /// look for them meanwhile. What an instance's limits have earned in that time is theirs (L11).
    pub fn set_late(&mut self, late: Duration) {
        self.late = late;
    }

    /// Names the hosts where gateways have their edge.
    pub fn set_edges(&mut self, edges: BTreeMap<Exit, Arc<str>>) {
        if self.edges != edges {
            self.edges = edges;
            self.forget_verdicts();
        }
    }

    /// Gives the card other rules. When this returns, no packet is judged by the old ones any more:
    /// not one that arrives, and not one that waits for a limit (V4). Verdicts that do not rest on
    /// what has changed are kept: finding that out costs a walk along both rules.
    pub fn set_rules(&mut self, rules: Arc<Rules>) {
        let concern = self.rules.concern(&rules);
        self.set_rules_that_concern(rules, &concern);
    }

    /// The same, if the caller knows what the change concerns.
    pub fn set_rules_that_concern(&mut self, rules: Arc<Rules>, concern: &Concern) {
        self.rules = rules;
        for port in &mut self.ports {
            port.vpc = self.rules.vpc_of(port.eni).unwrap_or(port.vpc);
        }
        match concern {
            Concern::These(concerned) if !self.ends.are_too_many() => {
                self.forget_concerned(concerned);
            }
            _ => self.forget_verdicts(),
        }
    }

    /// All verdicts are of an epoch, so that forgetting them costs the same however many there are.
    fn forget_verdicts(&mut self) {
        let anew = self.epochs.begin();
        self.forget_all(anew);
    }

    /// `anew`: flows are told, too.
    fn forget_all(&mut self, anew: bool) {
        if anew {
            self.instances.iter_mut().for_each(|instance| instance.flows.each(Flow::forget));
        }
        let since = Since::all(self.epochs.now());
        self.ports.iter_mut().for_each(|port| port.since = since);
        self.ends.clear();
    }

    /// Forgets the verdicts that rest on what has changed.
    fn forget_concerned(&mut self, Concerned { ways, groups, addresses }: &Concerned) {
        if ways.is_empty() && groups.is_empty() && addresses.is_empty() {
            return;
        }
        if self.epochs.begin() {
            return self.forget_all(true);
        }
        let now = self.epochs.now();
        let port_of = |eni: &EniId| self.by_eni.get(eni).copied();
        for port in ways.iter().filter_map(port_of) {
            self.ports[port.0 as usize].since = Since::all(now);
        }
        for port in groups.iter().filter_map(port_of) {
            self.ports[port.0 as usize].since.groups = now;
        }
        addresses.iter().for_each(|address| self.epochs.concern(*address));
    }

    /// The last changes that concern a flow of an interface.
    #[inline]
    pub(super) fn since(&self, port: &Port, key: &Key) -> Since {
        port.since.and(self.epochs.of_remote(key))
    }

    /// Lets packets go on whose wait is over, and frees flows that are past their time.
    pub fn poll(&mut self, now: Instant, around: &mut impl Around) {
        self.roll_logs(now);
        self.poll_asking(now);
        while let Some((at, instance)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, instance));
            self.instances[instance as usize].timer = None;
            self.busy.push_back(instance);
            self.run(now, around);
        }
    }

    /// When to call [`Card::poll`] next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let next = self.timers.first().map(|(at, _)| *at);
        next.into_iter().chain(self.logs.next()).chain(self.asking.next()).min()
    }

    /// Frees flows that are past their time, with at most `work` steps of all instances together:
    /// the next call goes on with the instance where this one ends. Returns whether all have been
    /// looked at since the first of these calls.
    pub fn expire(&mut self, now: Instant, mut work: u32) -> bool {
        while let Some(instance) = self.instances.get_mut(self.expiring) {
            if !instance.flows.expire_within(now, &mut work, |_, _| ()) {
                return false;
            }
            self.expiring += 1;
        }
        self.expiring = 0;
        true
    }

    /// The timers know when an instance has its next packet.
    pub(super) fn arm(&mut self, number: u32) {
        let instance = &mut self.instances[number as usize];
        let next = instance.limits.poll_timeout();
        if next == instance.timer {
            return;
        }
        if let Some(at) = instance.timer {
            self.timers.remove(&(at, number));
        }
        instance.timer = next;
        self.timers.extend(next.map(|at| (at, number)));
    }

    /// A flow is new: some of those that are over make room.
    pub(super) fn make_room(&mut self, now: Instant, instance: u32) {
        self.instances[instance as usize].flows.expire(now, EXPIRE_WORK, |_, _| ());
    }

    /// The interface of this host with this identifier.
    pub fn port_of(&self, eni: EniId) -> Option<PortId> {
        self.by_eni.get(&eni).copied()
    }

    /// The identifier of an interface.
    pub fn eni_of(&self, port: PortId) -> Option<EniId> {
        self.port(port).map(|port| port.eni)
    }

    /// The instance of an interface, as one that shares a worker's time. The number is given to
    /// another instance after [`Card::remove_instance`].
    pub fn tenant_of(&self, port: PortId) -> Option<TenantId> {
        self.port(port).map(|port| TenantId(port.instance))
    }

    /// Packets of an interface have waited for its instance's share of the worker's time: they
    /// count in `pps_allowance_exceeded` (N4).
    pub fn count_over_share(&mut self, port: PortId, packets: u32) {
        let Some((number, index)) = self.port(port).map(|port| (port.instance, port.index)) else {
            return;
        };
        self.instances[number as usize].limits.count_over_share(index, packets);
    }

    /// What an interface has sent and received.
    pub fn counts(&self, port: PortId) -> PortCounts {
        self.port(port).map(|port| port.counts).unwrap_or_default()
    }

    /// Why packets of an interface, and packets for it, were dropped.
    pub fn drops(&self, port: PortId) -> Drops {
        self.port(port).map(|port| port.drops.clone()).unwrap_or_default()
    }

    /// Counts of the packets of an interface that were dropped, in the order of [`Cause::all`].
    pub fn drop_counts(&self, port: PortId) -> [u64; Cause::COUNT] {
        self.port(port).map_or([0; Cause::COUNT], |port| port.drops.counts())
    }

    /// Why packets were dropped that belong to no interface.
    pub fn drops_of_none(&self) -> &Drops {
        &self.drops
    }

    /// What limits held up of an interface, and how many connections its instance may still track.
    pub fn allowances(&self, port: PortId) -> (Allowances, u32) {
        let Some(port) = self.port(port) else { return Default::default() };
        let instance = &self.instances[port.instance as usize];
        (instance.limits.allowances(port.index), instance.flows.available())
    }

    /// Credits of an interface's instance in a direction, in bits.
    pub fn credits_bits(&mut self, now: Instant, port: PortId, direction: Direction) -> u64 {
        let Some(number) = self.port(port).map(|port| port.instance) else { return 0 };
        self.instances[number as usize].limits.credits_bits(now, direction)
    }

    /// Flows that are tracked, and flows that are only remembered, of an interface's instance.
    pub fn flows(&self, port: PortId) -> (u32, u32) {
        let Some(port) = self.port(port) else { return (0, 0) };
        let flows = &self.instances[port.instance as usize].flows;
        (flows.tracked(), flows.untracked())
    }

    /// Adds the flows of an interface that are at so many places of its instance's table from
    /// `from` on. Returns the place to go on at; none if there are no more.
    pub fn list_flows(
        &self,
        id: PortId,
        from: u32,
        places: u32,
        flows: &mut Vec<FlowState>,
    ) -> Option<u32> {
        let port = self.port(id)?;
        let instance = &self.instances[port.instance as usize];
        let all = instance.flows.flows(from, places);
        let own = all.filter(|(key, ..)| key.eni() == port.index);
        flows.extend(own.map(|(key, state, flow, tracked, local_first)| {
            self.flow_state(port, key, (tracked.then_some(state), local_first), flow)
        }));
        let next = from.saturating_add(places);
        Some(next).filter(|next| *next < instance.flows.places())
    }

    fn flow_state(
        &self,
        port: &Port,
        key: &Key,
        (connection, local_first): (Option<State>, bool),
        flow: &Flow,
    ) -> FlowState {
        let [local, remote] = key.ends();
        let since = self.since(port, key);
        let is_known = |side: &Side| since.holds(side.epoch, connection.is_some());
        let verdict = |side: &Side| match side.verdict {
            _ if !is_known(side) => Direct::Pending,
            Verdict::Refuse(reason) => Direct::Refused(reason),
            Verdict::Go(_) | Verdict::Take => Direct::Complete,
        };
        let (sent, received) = (verdict(&flow.out), verdict(&flow.into));
        let target = match flow.out.verdict {
            Verdict::Go(slot) if is_known(&flow.out) => self.ends.targets.get(slot),
            _ => None,
        };
        let ride = target.and_then(Target::ride);
        let protocol = key.protocol();
        FlowState { local, remote, protocol, connection, local_first, sent, received, ride }
    }

    pub(super) fn drop_of(&mut self, port: Option<PortId>, cause: Cause, packets: u64) {
        let drops = port.and_then(|port| self.ports.get_mut(port.0 as usize));
        drops.map_or(&mut self.drops, |port| &mut port.drops).count(cause, packets);
    }
}

mod asking;
mod stored;
#[cfg(test)]
mod tests;
