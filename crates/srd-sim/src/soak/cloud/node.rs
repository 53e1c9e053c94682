//! A host of a cloud in the soak: a card, its guests, a transport to the other hosts, and, on one
//! host, the edge of all gateways (their connection to the network outside of the cloud).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use srd_card::limits::Allowances;
use srd_card::packet::protocol;
use srd_card::profile::Profile;
use srd_card::track::Timeouts;
use srd_card::vpc::nat::{Nat, NatConnection};
use srd_card::vpc::{Card, Envelope, Environment, FrameRoute, Guest, PortId};
use srd_proto::{Config, Duration, Instant, Secret};
use srd_vpc::compile::{Delta, Directory, Edit, Question, Rules};
use srd_vpc::id::EniId;
use srd_vpc::judge::{Exit, Service};
use srd_vpc::object::World;
use srd_vpc::packet::Packet as Inner;

use super::frames;
use super::judge::{Connection, From, Judge};
use super::make::EDGE;
use crate::engine::node::{FlowSpec, HostId, Node, Outcomes, Packet};
use crate::machines::card::carrier::{Arrival, Carrier, CarrierConfig};

/// Connections by protocol and by whether they had two requests with their replies.
type Exchanges = (u8, bool);
/// Times in seconds after the last packet, each with the connections that the cards still remember
/// then. UDP is remembered for 30 s after a single exchange and for 180 s after two; TCP for 120 s
/// if no packet followed the first of each end, and otherwise for five days.
const REMEMBERED: [(u64, &[Exchanges]); 4] = {
    use protocol::{TCP, UDP};
    [
        (25, &[(UDP, false), (UDP, true), (TCP, false), (TCP, true)]),
        (65, &[(UDP, true), (TCP, false), (TCP, true)]),
        (125, &[(UDP, true), (TCP, true)]),
        (185, &[(TCP, true)]),
    ]
};
/// Time in seconds after which cards remember no connection and no other flow.
const FORGOTTEN_S: u64 = 6 * 86_400;

/// A packet that a guest or the internet sends.
#[derive(Clone)]
pub(super) struct Send {
    pub(super) at: Instant,
    pub(super) from: From,
    pub(super) packet: Inner,
    /// Number of packets by which the two ends answer this packet, in turns.
    pub(super) answers: u8,
}

/// Data that all hosts share.
pub(super) struct Common {
    pub(super) seed: u64,
    pub(super) profile: Profile,
    /// Configuration of the endpoint of every host.
    pub(super) endpoint: Config,
    /// Number of the host with the edge, which is the last host.
    pub(super) edge: u32,
    /// Times of the changes, in ascending order, and the objects that come into force.
    pub(super) changes: Vec<(Instant, World)>,
    /// For each host, the packets that the host sends, in the order of their times.
    pub(super) sends: Vec<Vec<Send>>,
    /// For each host, the times at which the host's card hands over to a successor.
    pub(super) handovers: Vec<Vec<Instant>>,
    /// Delay of the reply to a query to the directory. `None` if tables are compiled completely and
    /// send no queries.
    pub(super) question: Option<Duration>,
    /// Time from which all faults have ended and their effects are over.
    pub(super) healed: Instant,
    pub(super) shared: RefCell<Shared>,
}

/// The control plane and the oracle, which all hosts of a world share.
pub(super) struct Shared {
    pub(super) judge: Judge,
    pub(super) directory: Directory,
    /// By number of the change: the delta for each host.
    pub(super) deltas: Vec<BTreeMap<Arc<str>, Delta>>,
    /// By packet that was sent and has not arrived: number of packets that answer it.
    pub(super) answers: BTreeMap<u32, u8>,
}

/// A frame that a card sends to another host.
struct Leaving {
    host: Arc<str>,
    instance: u32,
    envelope: Envelope,
    express: bool,
    frame: Vec<u8>,
}

/// Frames that a card has put out.
#[derive(Default)]
struct Out {
    guests: Vec<(PortId, Vec<u8>)>,
    hosts: Vec<Leaving>,
    services: u64,
}

impl Environment for Out {
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>) {
        self.guests.push((port, frame));
    }
    fn to_host(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) {
        let FrameRoute { host, instance, envelope, express } = way;
        self.hosts.push(Leaving { host: Arc::clone(host), instance, envelope, express, frame });
    }
    fn to_service(&mut self, _: PortId, _: Service, _: Vec<u8>) {
        self.services += 1;
    }
}

pub(super) struct CloudNode {
    host: u32,
    name: Arc<str>,
    common: Rc<Common>,
    card: Card,
    enis: Vec<EniId>,
    nat: Nat,
    carrier: Carrier,
    /// Numbers of changes that the card has applied, of packets that were sent, and of handovers so
    /// far.
    changed: usize,
    sent: usize,
    handed: usize,
    questions: VecDeque<(Instant, Question)>,
    /// `given`: packets that entered the card. `ended`: packets that left the card. `lost`: packets
    /// that waited in a card that was replaced.
    given: u64,
    ended: u64,
    lost: u64,
    /// Description of the first violation.
    pub(super) wrong: Option<String>,
}

pub(super) fn name_of(host: u32, common_edge: u32) -> Arc<str> {
    if host == common_edge { EDGE.into() } else { format!("host{host}").into() }
}

fn host_of(world: &World, eni: EniId) -> Option<u32> {
    let instance = world.enis.get(&eni)?.attachment.as_ref()?.instance;
    let host = world.instances.get(&instance)?.host.as_ref()?;
    host.strip_prefix("host")?.parse().ok()
}

impl CloudNode {
    pub(super) fn new(host: HostId, common: Rc<Common>) -> Self {
        let name = name_of(host.0, common.edge);
        let enis: Vec<EniId> = {
            let shared = common.shared.borrow();
            let world = shared.judge.world();
            let own = |eni: &EniId| host_of(world, *eni) == Some(host.0);
            world.enis.keys().copied().filter(own).collect()
        };
        let others = (0..=common.edge).filter(|other| *other != host.0);
        let carrier = CarrierConfig {
            endpoint: common.endpoint.clone(),
            seed: common.seed,
            peers: others.map(|other| (HostId(other), name_of(other, common.edge))).collect(),
        };
        let carrier = Carrier::new(host, carrier, Instant::ZERO);
        let card = card(&common, &name, &enis, carrier.card_secret(), Instant::ZERO);
        Self {
            host: host.0,
            name,
            common,
            card,
            enis,
            nat: Nat::default(),
            carrier,
            changed: 0,
            sent: 0,
            handed: 0,
            questions: VecDeque::new(),
            given: 0,
            ended: 0,
            lost: 0,
            wrong: None,
        }
    }

    /// Applies all changes of the rules up to the time `now`.
    fn catch_up(&mut self, now: Instant) {
        let common = Rc::clone(&self.common);
        while let Some((_, world)) = common.changes.get(self.changed).filter(|(at, _)| *at <= now) {
            let mut shared = common.shared.borrow_mut();
            if shared.deltas.len() == self.changed {
                let edits = Edit::between(shared.judge.world(), world);
                let deltas = shared.directory.apply(&edits);
                shared.deltas.push(deltas);
                shared.judge.change(world.clone());
            }
            if common.question.is_none() {
                self.card.set_rules(Arc::new(Rules::compile(world, &self.name)));
            } else if let Some(delta) = shared.deltas[self.changed].get(&self.name) {
                self.card.follow_delta(delta.clone());
            }
            self.changed += 1;
        }
    }

    /// Replaces the card by a new card that imports the exported state. Frames in the network to
    /// and from other hosts are lost, and the hosts connect anew.
    fn hand_over(&mut self, now: Instant) {
        let bytes = self.card.export();
        self.lost += self.card.unanswered() as u64;
        self.carrier.restart(now);
        let secret = self.carrier.card_secret();
        let mut next = card(&self.common, &self.name, &self.enis, secret, now);
        if let Err(error) = next.import(&bytes) {
            self.wrong.get_or_insert(format!("a card does not go on: {error:?}"));
        }
        self.card = next;
        self.questions.clear();
    }

    fn send(&mut self, now: Instant, of: &Send) {
        let mut shared = self.common.shared.borrow_mut();
        let number = shared.judge.send(of.from, of.packet, now >= self.common.healed);
        if of.answers > 0 {
            shared.answers.insert(number, of.answers);
        }
        drop(shared);
        let frame = frames::write(&of.packet, number);
        match of.from {
            From::Guest(eni) => {
                let Some(port) = self.card.port_of(eni) else { return };
                self.given += 1;
                let mut out = Out::default();
                self.card.from_guest(now, port, frame, &mut out);
                self.end(now, out);
            }
            From::Internet | From::Nat(_) => self.edge_says(of.from, now, frame),
        }
    }

    /// Sends a packet from the internet to the host of its destination address.
    fn edge_says(&mut self, from: From, now: Instant, mut frame: Vec<u8>) {
        let shared = self.common.shared.borrow();
        let world = shared.judge.world();
        let (envelope, eni) = match from {
            From::Nat(_) => {
                let Some(back) = self.nat.arrive(now, &mut frame) else { return };
                let NatConnection { nat, eni, port } = back;
                (Envelope::FromNat { nat, to: eni, port }, eni)
            }
            _ => {
                let all = world.addresses.values();
                let mut associated = all.filter_map(|address| address.association);
                let Some((eni, _)) = associated.next() else { return };
                (Envelope::Arriving, eni)
            }
        };
        let Some(to) = host_of(world, eni) else { return };
        drop(shared);
        let host = &name_of(to, self.common.edge);
        let way = FrameRoute { host, instance: 0, envelope, express: false };
        self.carrier.send(now, &way, frame);
    }

    /// Processes the output of the card: frames for guests and for other hosts, and queries.
    fn end(&mut self, now: Instant, out: Out) {
        self.ended += (out.guests.len() + out.hosts.len()) as u64 + out.services;
        for Leaving { host, instance, envelope, express, frame } in out.hosts {
            let way = FrameRoute { host: &host, instance, envelope, express };
            self.carrier.send(now, &way, frame);
        }
        for (port, frame) in out.guests {
            self.arrived(now, port, &frame);
        }
        while let Some(question) = self.card.poll_question() {
            let due = now + self.common.question.unwrap_or(Duration::ZERO);
            self.questions.push_back((due, question));
        }
        let forgotten = self.card.take_forgotten();
        self.common.shared.borrow_mut().directory.forgotten(&self.name, &forgotten);
    }

    fn arrived(&mut self, now: Instant, port: PortId, frame: &[u8]) {
        let (Some(eni), Some((number, packet))) = (self.card.eni_of(port), frames::read(frame))
        else {
            self.wrong.get_or_insert("a guest got what nobody sent".to_owned());
            return;
        };
        let mut shared = self.common.shared.borrow_mut();
        shared.judge.arrived(number, eni, &packet);
        let answers = shared.answers.remove(&number);
        drop(shared);
        if let Some(answers) = answers {
            let (from, packet) = (From::Guest(eni), packet.answer());
            self.send(now, &Send { at: now, from, packet, answers: answers - 1 });
        }
    }

    /// Processes a packet that has arrived at the edge: it leaves the cloud, and may get a reply.
    fn leaves(&mut self, now: Instant, envelope: Envelope, mut frame: Vec<u8>) {
        let Some((number, _)) = frames::read(&frame) else { return };
        let mut shared = self.common.shared.borrow_mut();
        let from = match envelope {
            Envelope::ByNat { from, nat } => {
                shared.judge.left(number, Some(nat));
                let world = shared.judge.world();
                let public = world.nat_gateways[&nat].address;
                let Some(public) = public.map(|id| world.addresses[&id].public) else { return };
                if self.nat.leave(now, nat, public, from, &mut frame).is_err() {
                    return;
                }
                From::Nat(from)
            }
            Envelope::Leaving { .. } => {
                shared.judge.left(number, None);
                From::Internet
            }
            _ => return,
        };
        let answers = shared.answers.remove(&number);
        drop(shared);
        let Some((answers, (_, packet))) = answers.zip(frames::read(&frame)) else { return };
        let packet = packet.answer();
        self.send(now, &Send { at: now, from, packet, answers: answers - 1 });
    }

    fn on_time(&mut self, now: Instant) {
        self.catch_up(now);
        let common = Rc::clone(&self.common);
        while common.handovers[self.host as usize].get(self.handed).is_some_and(|at| *at <= now) {
            self.handed += 1;
            self.hand_over(now);
        }
        while let Some(of) =
            common.sends[self.host as usize].get(self.sent).filter(|send| send.at <= now)
        {
            self.sent += 1;
            self.send(now, of);
        }
        while self.questions.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, question)) = self.questions.pop_front()
        {
            let answer = common.shared.borrow_mut().directory.answer(&self.name, question);
            let Some(answer) = answer else {
                self.wrong.get_or_insert(format!("{question:?} has no answer"));
                continue;
            };
            let mut out = Out::default();
            if self.card.learn(now, answer, &mut out).is_err() {
                common.shared.borrow_mut().directory.forgotten(&self.name, &[question]);
            }
            self.end(now, out);
        }
        let mut out = Out::default();
        self.card.poll(now, &mut out);
        self.card.expire(now, 64);
        self.end(now, out);
        self.carrier.on_timer(now);
        self.take_arrivals(now);
    }

    /// Passes the frames that have arrived from other hosts to the card, or to the edge.
    fn take_arrivals(&mut self, now: Instant) {
        for Arrival { from, envelope, by_srd, frame, .. } in self.carrier.take_arrivals() {
            if self.host == self.common.edge {
                self.leaves(now, envelope, frame);
                continue;
            }
            if let (Envelope::Between { from, to }, Some((number, packet))) =
                (envelope, frames::read(&frame))
            {
                self.common.shared.borrow_mut().judge.came(number, (from, to), &packet, by_srd);
            }
            self.given += 1;
            let mut out = Out::default();
            self.card.from_host(now, &from, envelope, frame, &mut out);
            self.end(now, out);
        }
    }

    /// Returns the numbers of packets that were dropped on the path to and from other hosts, by
    /// cause.
    pub(super) fn drops(&self) -> String {
        format!("{}: {}", self.name, self.carrier.drops())
    }

    /// Checks the numbers of packets when no packet is in the network: each packet that entered the
    /// card has left it, was dropped and counted, or was lost in a handover.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
            return Err(format!("{}: {wrong}", self.name));
        }
        if self.carrier.malformed() > 0 {
            return Err(format!("{}: {} malformed frames", self.name, self.carrier.malformed()));
        }
        let ports = self.enis.iter().filter_map(|eni| self.card.port_of(*eni));
        let mut drops = self.card.drops_of_none().total();
        for port in ports {
            drops += self.card.drops(port).total();
            let (exceeded, _) = self.card.allowances(port);
            if exceeded != Allowances::default() {
                return Err(format!("{}: limits held packets up: {exceeded:?}", self.name));
            }
        }
        let [given, ended, lost] = [self.given, self.ended, self.lost];
        if given != ended + drops + lost {
            return Err(format!(
                "{}: of {given} packets {ended} went on, {drops} were dropped, {lost} were lost",
                self.name
            ));
        }
        Ok(())
    }
}

impl CloudNode {
    /// Checks the connections that the card tracks at the end of a run, and that it forgets each of
    /// them after its idle time.
    pub(super) fn check_tracked(&mut self, now: Instant) -> Result<(), String> {
        let common = Rc::clone(&self.common);
        let judge = &common.shared.borrow().judge;
        let at = |name: &str, wrong| format!("{name}: {wrong}");
        for eni in self.enis.clone() {
            let tracked = self.tracked(eni);
            judge.check_tracked(eni, &tracked).map_err(|wrong| at(&self.name, wrong))?;
        }
        for (seconds, kept) in REMEMBERED {
            self.expire(now + Duration::from_secs(seconds));
            for eni in &self.enis {
                let all = judge.required_of(*eni, |_| true);
                let wanted = judge.required_of(*eni, |exchanges| kept.contains(&exchanges));
                let there = self.tracked(*eni).intersection(&all).copied().collect();
                if wanted != there {
                    let wrong = wanted.symmetric_difference(&there).next();
                    let wrong = format!("after {seconds} s, {kept:?} are tracked, but {wrong:?}");
                    return Err(at(&self.name, wrong));
                }
            }
        }
        self.expire(now + Duration::from_secs(FORGOTTEN_S));
        let ports = self.enis.iter().filter_map(|eni| self.card.port_of(*eni));
        match ports.map(|port| self.card.flows(port)).find(|flows| *flows != (0, 0)) {
            Some(flows) => Err(at(&self.name, format!("flows are never forgotten: {flows:?}"))),
            None => Ok(()),
        }
    }

    /// Removes all flows of the card that have expired.
    fn expire(&mut self, now: Instant) {
        // The first call may continue with one of the later instances.
        (0..2).for_each(|_| _ = self.card.expire(now, u32::MAX));
    }

    /// Returns the TCP and UDP connections of an interface that the card tracks.
    fn tracked(&self, eni: EniId) -> BTreeSet<Connection> {
        let mut flows = Vec::new();
        if let Some(port) = self.card.port_of(eni) {
            self.card.list_flows(port, 0, u32::MAX, &mut flows);
        }
        let with_ports = [protocol::TCP, protocol::UDP];
        flows
            .iter()
            .filter(|flow| flow.connection.is_some() && with_ports.contains(&flow.protocol))
            .map(|flow| (eni, flow.remote.0, flow.protocol, (flow.local.1, flow.remote.1)))
            .collect()
    }
}

/// Creates a card for the instances of a host, without any connection.
fn card(common: &Common, name: &str, enis: &[EniId], secret: Secret, now: Instant) -> Card {
    let mut shared = common.shared.borrow_mut();
    let rules = match common.question {
        Some(_) => shared.directory.tables(name),
        None => Rules::compile(shared.judge.world(), name),
    };
    let exits: Vec<Exit> = shared
        .judge
        .world()
        .internet_gateways
        .keys()
        .map(|id| Exit::InternetGateway(*id))
        .collect();
    let mut card = Card::new(name, Arc::new(rules), secret);
    card.set_edges(exits.into_iter().map(|exit| (exit, Arc::from(EDGE))).collect());
    for eni in enis {
        let guest = Guest { eni: *eni, timeouts: Timeouts::DEFAULT };
        card.add_instance(now, &common.profile, &[guest]);
    }
    card
}

impl Node for CloudNode {
    fn start_flow(&mut self, _: Instant, _: &FlowSpec, _: &mut Outcomes) {
        // Guests send according to the plan of the cloud, and not according to flows.
    }

    fn on_packet(&mut self, now: Instant, packet: &mut Packet, _: &mut Outcomes) {
        self.catch_up(now);
        if !self.carrier.on_packet(now, packet) {
            self.wrong.get_or_insert("what arrived is none of the transport's packets".to_owned());
        }
        self.take_arrivals(now);
    }

    fn on_timer(&mut self, now: Instant, _: &mut Outcomes) {
        self.on_time(now);
    }

    fn next_timer(&self) -> Option<Instant> {
        let common = &self.common;
        let host = self.host as usize;
        [
            self.card.poll_timeout(),
            self.carrier.next_timer(),
            common.changes.get(self.changed).map(|(at, _)| *at),
            common.handovers[host].get(self.handed).copied(),
            common.sends[host].get(self.sent).map(|send| send.at),
            self.questions.front().map(|(at, _)| *at),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn poll_packet(&mut self, now: Instant, slot: &mut Packet, _: &mut Outcomes) -> bool {
        self.catch_up(now);
        while !self.carrier.poll(now, slot) {
            if !self.carrier.pump(now) {
                return self.carrier.poll(now, slot);
            }
        }
        true
    }

    fn restart(&mut self, now: Instant, _: &mut Outcomes) {
        self.catch_up(now);
        let mut shared = self.common.shared.borrow_mut();
        self.enis.iter().for_each(|eni| shared.judge.forget(*eni));
        drop(shared);
        self.carrier.restart(now);
        let secret = self.carrier.card_secret();
        self.card = card(&self.common, &self.name, &self.enis, secret, now);
        self.nat = Nat::default();
        self.questions.clear();
        (self.given, self.ended, self.lost) = (0, 0, 0);
    }
}
