//! Interfaces, instances and rules of the card of one worker.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::Rules;
use srd_vpc::id::{EniId, VpcId};
use srd_vpc::judge::Exit;

use super::asking::Asking;
use super::drops::{Cause, Drops};
use super::frames::parcel::Parcel;
use super::port::{Direct, Environment, FlowState, Guest, PortCounts, PortId};
use super::records::logs::Logs;
use super::records::mirror::Mirror;
use super::records::trace::{Event, Traces};
use super::tables::epochs::{Epochs, Since};
use super::tables::firsts::Firsts;
use super::tables::flow::{Endpoints, Flow, Side, Target, Verdict};
use super::tables::nat::Nat;
use super::tables::returns::Returns;
use super::workers::Beside;
use crate::hash::{Keyed, part};
use crate::limits::{Allowances, Ceiling, FlowKind, FlowMeter, Limits};
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
    /// Numbers of the last changes that concern the interface.
    pub(super) since: Since,
    /// Number of the last change of rules that concerns the interface, without changes for which
    /// verdicts became invalid although no rule changed.
    pub(super) changed: u64,
    /// Index of the interface within its instance.
    pub(super) index: u16,
    /// Whether the interface was removed, so that its slot is free.
    pub(super) is_gone: bool,
    pub(super) counts: PortCounts,
    pub(super) drops: Drops,
    /// Aggregators of the flow logs; empty without a log.
    pub(super) logs: Vec<Aggregator>,
    /// Mirror sessions that copy the interface's packets, the lowest number first.
    pub(super) mirrors: Vec<Mirror>,
    /// Whether the interface is the target of a mirror session.
    pub(super) is_mirror_target: bool,
    /// Rate limit of errors to the guest for packets that were too big.
    pub(super) answers: too_big::Limit,
    pub(super) firsts: Firsts,
    /// Other hosts whose NAT gateways have connections to the interface.
    pub(super) returns: Returns,
}

pub(super) struct Instance {
    pub(super) limits: Limits<Parcel>,
    pub(super) flows: Table<Flow>,
    /// Meter of all flows that have no entry because the table is full, or because they consist of
    /// fragments: together they have the ceiling of one flow. // L4
    pub(super) without_entry: FlowMeter,
    ceilings: [Ceiling; 3],
    /// Time at which the limits release the next packet, as entered in the card's timers.
    timer: Option<Instant>,
}

impl Instance {
    pub(super) fn ceiling(&self, kind: FlowKind) -> Ceiling {
        self.ceilings[kind as usize]
    }
}

/// The card of one worker: it evaluates each packet of the instances of this host by the rules of
/// their cloud, applies the limits of their types, and passes the packet on.
///
/// # Calls
///
/// The caller passes the present time to each call, and an [`Environment`] that takes the output:
///
/// - **Packets**: [`from_guest`](Self::from_guest) for a frame that a guest sends,
///   [`from_host`](Self::from_host) for a frame from another host or from the edge of a gateway,
///   [`from_service`](Self::from_service) for a frame from a service of the network. Each of these
///   calls passes the packet to the [`Environment`], keeps it, or drops and counts it.
/// - **Time**: [`poll`](Self::poll) when the time of [`poll_timeout`](Self::poll_timeout) has come:
///   packets that have waited long enough for a limit leave then. [`expire`](Self::expire) removes
///   expired flows, a bounded number for each call.
/// - **Rules**: [`set_rules`](Self::set_rules) replaces the rules. After this call, the old rules
///   let no packet pass (V4 of `docs/spec/card.md`).
/// - **Instances**: [`add_instance`](Self::add_instance) and
///   [`remove_instance`](Self::remove_instance).
/// - **Queries**: if the rules contain the locations of this host's interfaces only,
///   [`poll_question`](Self::poll_question) returns the next query for the directory, and
///   [`learn`](Self::learn) takes the answer (V15).
///
/// A frame is an offload header ([`crate::offload`]) and an IP packet. Nothing that a packet
/// contains makes a call panic: a packet that cannot be used is counted by its [`Cause`].
///
/// # Limits
///
/// Each instance has at most as many tracked connections as its type allows, at most the same
/// number of flows that are not tracked, and the queues of its limits.
///
/// # Example
///
/// Two instances of one host. A rule admits UDP to port 53 and nothing else:
///
#[doc = concat!("```ignore\n", include_str!("../../tests/it/card_example.rs"), "```\n")]
pub struct Card {
    pub(super) host: Arc<str>,
    pub(super) rules: Arc<Rules>,
    pub(super) epochs: Epochs,
    pub(super) ports: Vec<Port>,
    by_eni: BTreeMap<EniId, PortId>,
    pub(super) instances: Vec<Instance>,
    pub(super) ends: Endpoints,
    pub(super) edges: BTreeMap<Exit, Arc<str>>,
    /// Public addresses of the cloud, and the edge that returns packets to them.
    pub(super) publics: (BTreeSet<Ipv4Addr>, Arc<str>),
    /// Names of the other workers of this host.
    pub(super) beside: BTreeSet<Arc<str>>,
    /// Largest packet that one datagram outside of SRD carries to any other host, in bytes.
    pub(super) host_bytes_max: usize,
    /// Drops that belong to no interface.
    pub(super) drops: Drops,
    /// For each instance with waiting packets, the time at which the next packet may continue.
    timers: BTreeSet<(Instant, u32)>,
    /// Slots of interfaces and instances that were removed.
    free_ports: Vec<PortId>,
    free_instances: Vec<u32>,
    /// Time by which the worker is late: packets may have arrived this long before they are passed
    /// to the card.
    pub(super) late: Duration,
    /// Whether the frames that are passed to the card at present were received over SRD.
    pub(super) by_srd: bool,
    /// Index of the instance where [`Card::expire`] continues.
    expiring: usize,
    /// Instances whose limits may release packets now.
    pub(super) busy: VecDeque<u32>,
    secret: Secret,
    /// Hash key for the source ports of mirrored packets: copies of one flow have the same port.
    pub(super) of_mirrors: Keyed,
    pub(super) logs: Logs,
    pub(super) traces: Traces,
    pub(super) asking: Asking,
    /// Connections through NAT gateways to interfaces.
    pub(super) nat: Nat,
}

/// Numbers with which secrets for flow logs and for mirrors are derived from the card's secret. The
/// secrets of instances are derived with smaller numbers.
const OF_LOGS: u64 = 1 << 62;
const OF_MIRRORS: u64 = 1 << 63;
/// Number of steps that remove expired flows, for each packet that opens a flow.
const EXPIRE_WORK: u32 = 2;

impl Card {
    /// Creates a card without interfaces.
    pub fn new(host: &str, rules: Arc<Rules>, secret: Secret) -> Self {
        Self {
            host: host.into(),
            rules,
            epochs: Epochs::new(),
            ports: Vec::new(),
            by_eni: BTreeMap::new(),
            instances: Vec::new(),
            ends: Endpoints::default(),
            edges: BTreeMap::new(),
            publics: Default::default(),
            beside: BTreeSet::new(),
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

    /// Adds an instance with its interfaces, and returns their numbers in the order of `guests`.
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
        let without_entry = FlowMeter::new(now);
        let instance = Instance { limits, flows, without_entry, ceilings, timer: None };
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
            changed: self.epochs.now(),
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

    /// Removes the instance of an interface, with all its interfaces and its connections. Packets
    /// that wait for its limits are dropped, and counted at the card as [`Cause::NotHere`].
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
        let mut limits =
            core::mem::replace(&mut instance.limits, Limits::new(&Profile::of_nothing(), 0, now));
        self.free_instances.push(number);
        self.forget_verdicts();
        while let Some((limit, parcel)) = limits.pop_late() {
            self.note(now, parcel.followed, || Event::OverLimit(limit));
        }
        for Parcel { frame, followed, .. } in limits.take_all() {
            self.drop_pending(now, &frame, followed, None, Cause::NotHere);
        }
    }

    /// Derives a new secret for the hash table of a flow log's aggregator; each aggregator has its
    /// own.
    pub(super) fn secret_of_log(&mut self) -> Secret {
        self.logs.number += 1;
        part(&self.secret, OF_LOGS | self.logs.number)
    }

    /// Returns an interface unless it was removed.
    pub(super) fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.get(id.0 as usize).filter(|port| !port.is_gone)
    }

    /// Sets the largest packet, in bytes, that may be sent to any other host outside of SRD: the
    /// smallest size of all hosts. [`Environment::host_bytes_max`] returns the size of one host, if
    /// it is larger. The MSS of TCP connections is lowered to fit the size of the host. Larger
    /// packets are fragmented as by a router, or the guest gets an ICMP error (V7). A super-packet
    /// is passed whole to [`Environment::to_host`], and this function has to segment it. Before the
    /// first call, packets may have any size.
    pub fn set_host_bytes_max(&mut self, bytes: usize) {
        self.host_bytes_max = bytes;
    }

    /// Returns the largest packet, in bytes, that may be sent to this host outside of SRD.
    pub(super) fn bytes_max_to(&self, host: &str, around: &impl Environment) -> usize {
        around.host_bytes_max(host).unwrap_or(self.host_bytes_max)
    }

    /// Makes this card that of one of several workers of a host. No packet to another worker uses
    /// SRD, and it may have any size. The NAT gateways of the card take a part of their ports only.
    /// Call this before the first packet. // W2
    pub fn set_beside(&mut self, beside: &Beside) {
        let others = beside.others();
        let (part, parts) = (beside.worker(), others.len() + 1);
        self.nat.restrict(part, u8::try_from(parts).unwrap_or(u8::MAX));
        self.beside = others;
        self.forget_verdicts();
    }

    /// Sets whether the frames that are passed to the card after this call were received over SRD.
    /// If so, the frames that the rules admit count as `ena_srd_rx_pkts`. // V22
    pub fn set_by_srd(&mut self, by_srd: bool) {
        self.by_srd = by_srd;
    }

    /// Sets the time by which the worker is late: after this call, packets may have arrived up to
    /// `late` before they are passed to the card, because the worker did not poll meanwhile. The
    /// limits keep the tokens that they have earned in this time (L11).
    pub fn set_late(&mut self, late: Duration) {
        self.late = late;
    }

    /// Sets the edge of each gateway: the name of the host to which packets that leave through the
    /// gateway are sent.
    pub fn set_edges(&mut self, edges: BTreeMap<Exit, Arc<str>>) {
        if self.edges != edges {
            self.edges = edges;
            self.forget_verdicts();
        }
    }

    /// Sets the public addresses of the cloud, and an edge that returns packets to them. Packets to
    /// these addresses take this edge if their internet gateway has no other one
    /// ([`Self::set_edges`]).
    pub fn set_publics(&mut self, addresses: BTreeSet<Ipv4Addr>, edge: Arc<str>) {
        let publics = (addresses, edge);
        if self.publics != publics {
            self.publics = publics;
            self.forget_verdicts();
        }
    }

    /// Returns the edge of a gateway for packets to an address.
    pub(in crate::vpc) fn edge_of(&self, exit: Exit, to: IpAddr) -> Option<&Arc<str>> {
        let (publics, edge) = &self.publics;
        let returns = match (exit, to) {
            (Exit::InternetGateway(_), IpAddr::V4(to)) => publics.contains(&to),
            _ => false,
        };
        self.edges.get(&exit).or(returns.then_some(edge))
    }

    /// Releases packets that have waited long enough for a limit, closes the windows of flow logs
    /// that have ended, and drops packets whose query was not answered in time (V15).
    pub fn poll(&mut self, now: Instant, around: &mut impl Environment) {
        self.roll_logs(now);
        self.poll_asking(now);
        while let Some((at, instance)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, instance));
            self.instances[instance as usize].timer = None;
            self.busy.push_back(instance);
            self.run(now, around);
        }
    }

    /// Time of the next call of [`Card::poll`]; `None` if nothing waits.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let next = self.timers.first().map(|(at, _)| *at);
        next.into_iter().chain(self.logs.next()).chain(self.asking.next()).min()
    }

    /// Removes expired flows, with at most `work` steps for all instances together. If the steps do
    /// not suffice, the next call continues with the instance at which this call ends. Returns
    /// whether the search has reached the last instance, so that the next call begins with the
    /// first instance again.
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

    /// Sets the timer of an instance to the time at which its limits release the next packet.
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

    /// Removes some expired flows of an instance, if there are any, to free entries for new flows.
    pub(super) fn make_room(&mut self, now: Instant, instance: u32) {
        self.instances[instance as usize].flows.expire(now, EXPIRE_WORK, |_, _| ());
    }

    /// Returns the interface of this host with this identifier.
    pub fn port_of(&self, eni: EniId) -> Option<PortId> {
        self.by_eni.get(&eni).copied()
    }

    /// Returns the identifier of an interface.
    pub fn eni_of(&self, port: PortId) -> Option<EniId> {
        self.port(port).map(|port| port.eni)
    }

    /// Returns the instance of an interface, as a tenant that shares a worker's time. After
    /// [`Card::remove_instance`], another instance may get the same number.
    pub fn tenant_of(&self, port: PortId) -> Option<TenantId> {
        self.port(port).map(|port| TenantId(port.instance))
    }

    /// Counts packets of an interface that have waited for their instance's share of the worker's
    /// time: they count in `pps_allowance_exceeded` (N4).
    pub fn count_over_share(&mut self, port: PortId, packets: u32) {
        let Some((number, index)) = self.port(port).map(|port| (port.instance, port.index)) else {
            return;
        };
        self.instances[number as usize].limits.count_over_share(index, packets);
    }

    /// Returns the counters of the packets that an interface has sent and received.
    pub fn counts(&self, port: PortId) -> PortCounts {
        self.port(port).map(|port| port.counts).unwrap_or_default()
    }

    /// Returns the drops of packets from and to an interface, by cause.
    pub fn drops(&self, port: PortId) -> Drops {
        self.port(port).map(|port| port.drops.clone()).unwrap_or_default()
    }

    /// Returns the number of dropped packets of an interface for each cause, in the order of
    /// [`Cause::all`].
    pub fn drop_counts(&self, port: PortId) -> [u64; Cause::COUNT] {
        self.port(port).map_or([0; Cause::COUNT], |port| port.drops.counts())
    }

    /// Returns the drops that belong to no interface, by cause.
    pub fn drops_of_none(&self) -> &Drops {
        &self.drops
    }

    /// Returns the limit counters of an interface, and the number of connections that its instance
    /// may still track.
    pub fn allowances(&self, port: PortId) -> (Allowances, u32) {
        let Some(port) = self.port(port) else { return Default::default() };
        let instance = &self.instances[port.instance as usize];
        (instance.limits.allowances(port.index), instance.flows.available())
    }

    /// Returns the bandwidth credits that an interface's instance has left in a direction, in bits.
    pub fn credits_bits(&mut self, now: Instant, port: PortId, direction: Direction) -> u64 {
        let Some(number) = self.port(port).map(|port| port.instance) else { return 0 };
        self.instances[number as usize].limits.credits_bits(now, direction)
    }

    /// Returns the number of tracked flows, and of flows that are only remembered, of an
    /// interface's instance.
    pub fn flows(&self, port: PortId) -> (u32, u32) {
        let Some(port) = self.port(port) else { return (0, 0) };
        let flows = &self.instances[port.instance as usize].flows;
        (flows.tracked(), flows.untracked())
    }

    /// Adds flows of an interface to `flows`: those in `places` slots of its instance's table,
    /// beginning with slot `from`. Returns the slot where the next call continues; `None` after the
    /// last slot.
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
            self.flow_state(port, &key, (tracked.then_some(state), local_first), flow)
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
        let (sent, received) = (verdict(&flow.sent()), verdict(&flow.received()));
        let target = match flow.sent().verdict {
            Verdict::Go(slot) if is_known(&flow.sent()) => self.ends.targets.get(slot),
            _ => None,
        };
        let ride = target.and_then(Target::ride);
        let protocol = key.protocol();
        FlowState { local, remote, protocol, connection, local_first, sent, received, ride }
    }

    /// Counts dropped packets under their cause: at the interface, or at the card if there is no
    /// interface.
    pub(super) fn drop_of(&mut self, port: Option<PortId>, cause: Cause, packets: u64) {
        let drops = port.and_then(|port| self.ports.get_mut(port.0 as usize));
        drops.map_or(&mut self.drops, |port| &mut port.drops).count(cause, packets);
    }
}

mod asking;
mod changes;
mod stored;
#[cfg(test)]
mod tests;
