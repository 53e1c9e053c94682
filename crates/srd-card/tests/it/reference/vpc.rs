//! Three cards of a cloud with a network between them, and the reference implementation with which
//! they are compared.

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::{Card, Envelope, Environment, FrameRoute, Guest, PortId};
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};
use srd_vpc::compile::{Directory, Edit, Rules};
use srd_vpc::id::*;
use srd_vpc::judge::*;
use srd_vpc::object::World;
use srd_vpc::packet::{Inner, Packet};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

const HOSTS: [&str; 3] = ["h0", "h1", "h2"];
const EDGE: &str = "edge";

/// Result for a packet, which the card and the reference must have in common.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Dropped,
    Passed(Verdict, Packet),
}

fn put(bytes: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(a) => bytes.extend_from_slice(&a.octets()),
        IpAddr::V6(a) => bytes.extend_from_slice(&a.octets()),
    }
}

/// Builds a frame of this packet. A packet of TCP or UDP without ports is a later fragment.
pub(crate) fn frame(packet: &Packet) -> Vec<u8> {
    let mut transport = vec![0u8; 20];
    let mut fragment = false;
    match packet.inner {
        Inner::Tcp(from, to) | Inner::Udp(from, to) => {
            transport[..2].copy_from_slice(&from.to_be_bytes());
            transport[2..4].copy_from_slice(&to.to_be_bytes());
            // A TCP header of 20 bytes and SYN; for UDP the bytes are payload.
            (transport[12], transport[13]) = (0x50, 0x02);
        }
        Inner::Icmp(kind, code) => (transport[0], transport[1]) = (kind, code),
        Inner::Other(number) => fragment = matches!(number, 1 | 6 | 17 | 58),
    }
    let mut bytes = vec![0; OFFLOAD_BYTES];
    let length = u16::try_from(transport.len()).unwrap();
    if packet.source.is_ipv4() {
        let total = (20 + length).to_be_bytes();
        let offset = u8::from(fragment) * 9;
        bytes.extend_from_slice(&[0x45, 0, total[0], total[1], 0, 7, 0, offset, 64]);
        bytes.extend_from_slice(&[packet.protocol(), 0, 0]);
    } else {
        let more: u16 = if fragment { 8 } else { 0 };
        let length = (length + more).to_be_bytes();
        let next = if fragment { 44 } else { packet.protocol() };
        bytes.extend_from_slice(&[0x60, 0, 0, 0, length[0], length[1], next, 64]);
    }
    put(&mut bytes, packet.source);
    put(&mut bytes, packet.destination);
    if fragment && packet.source.is_ipv6() {
        bytes.extend_from_slice(&[packet.protocol(), 0, 0, 72, 0, 0, 0, 7]);
    }
    bytes.extend_from_slice(&transport);
    bytes
}

/// Returns the packet with the addresses of a frame.
fn with_addresses(packet: &Packet, frame: &[u8]) -> Packet {
    let bytes = &frame[OFFLOAD_BYTES..];
    let (source, destination) = if bytes[0] >> 4 == 4 {
        let at = |at: usize| <[u8; 4]>::try_from(&bytes[at..at + 4]).unwrap();
        (IpAddr::from(at(12)), IpAddr::from(at(16)))
    } else {
        let at = |at: usize| <[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap();
        (IpAddr::from(at(8)), IpAddr::from(at(24)))
    };
    Packet { source, destination, inner: packet.inner }
}

#[derive(Default)]
struct CardOutput {
    delivered: Vec<(PortId, Vec<u8>)>,
    sent: VecDeque<(Arc<str>, Envelope, Vec<u8>)>,
    served: Vec<Service>,
}

impl Environment for CardOutput {
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>) {
        self.delivered.push((port, frame));
    }
    fn to_host(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) {
        self.sent.push_back((Arc::clone(way.host), way.envelope, frame));
    }
    fn to_service(&mut self, _: PortId, service: Service, _: Vec<u8>) {
        self.served.push(service);
    }
}

/// Three cards and a network.
pub(crate) struct Fabric {
    cards: Vec<Card>,
    /// Directory that answers the cards' questions about locations; `None` if the cards have all
    /// locations.
    directory: Option<Directory>,
    /// Number of answered questions.
    pub(crate) questions: u64,
    now: Instant,
}

impl Fabric {
    pub(crate) fn new(world: &World) -> Self {
        Self::of(world, None)
    }

    /// Creates cards that request the locations of interfaces on other hosts.
    pub(crate) fn asking(world: &World) -> Self {
        Self::of(world, Some(Directory::new(world.clone())))
    }

    fn of(world: &World, mut directory: Option<Directory>) -> Self {
        let now = Instant::ZERO;
        let kind = InstanceType::find("c7i.48xlarge").unwrap();
        let profile = Profile::of(kind).with_tracking_allowance(1_000_000);
        let card = |host: &str| {
            let whole = || Rules::compile(world, host);
            let rules = directory.as_mut().map_or_else(whole, |from| from.tables(host));
            let mut card = Card::new(host, Arc::new(rules), Secret::known(7));
            let mut edges = BTreeMap::new();
            for id in 0..6 {
                for exit in [
                    Exit::InternetGateway(InternetGatewayId(id)),
                    Exit::EgressOnlyGateway(EgressOnlyGatewayId(id)),
                    Exit::Endpoint(EndpointId(id)),
                ] {
                    edges.insert(exit, Arc::from(EDGE));
                }
            }
            card.set_edges(edges);
            for (id, eni) in &world.enis {
                let instance = eni.attachment.as_ref().unwrap().instance;
                if world.instances[&instance].host.as_deref() == Some(host) {
                    let guest = Guest { eni: *id, timeouts: Timeouts::DEFAULT };
                    card.add_instance(now, &profile, &[guest]);
                }
            }
            card
        };
        let cards = HOSTS.map(card).into();
        Self { cards, directory, questions: 0, now }
    }

    pub(crate) fn set_rules(&mut self, world: &World) {
        if let Some(directory) = &mut self.directory {
            let edits = Edit::between(directory.world(), world);
            for (host, delta) in directory.apply(&edits) {
                let index = HOSTS.iter().position(|name| **name == *host).unwrap();
                self.cards[index].follow_delta(delta);
            }
            return;
        }
        for (card, host) in self.cards.iter_mut().zip(HOSTS) {
            card.set_rules(Arc::new(Rules::compile(world, host)));
        }
    }

    /// Answers the questions of a card.
    fn answer(&mut self, index: usize, seen: &mut CardOutput) {
        let Some(directory) = &mut self.directory else { return };
        while let Some(question) = self.cards[index].poll_question() {
            let answer = directory.answer(HOSTS[index], question).unwrap();
            self.cards[index].learn(self.now, answer, seen).unwrap();
            self.questions += 1;
        }
    }

    /// Returns the number of times that the rules of all cards evaluated a packet, and the number
    /// of packets that passed.
    pub(crate) fn judged_and_passed(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        for card in &self.cards {
            for eni in 0..24 {
                let Some(port) = card.port_of(EniId(eni)) else { continue };
                let counts = card.counts(port);
                sums.0 += counts.judged;
                sums.1 += counts.tx_packets + counts.rx_packets;
            }
        }
        sums
    }

    /// Returns the dropped packets of all cards, by cause.
    pub(crate) fn drops(&self) -> BTreeMap<srd_card::vpc::Cause, u64> {
        let mut sums = BTreeMap::new();
        for card in &self.cards {
            let ports = (0..24).filter_map(|eni| card.port_of(EniId(eni)));
            let all = ports.map(|port| card.drops(port)).chain([card.drops_of_none().clone()]);
            for (cause, packets) in all.flat_map(|drops| drops.all().collect::<Vec<_>>()) {
                *sums.entry(cause).or_default() += packets;
            }
        }
        sums
    }

    pub(crate) fn send(&mut self, origin: Origin, packet: &Packet) -> Outcome {
        // One packet per millisecond is less than the limit of packets to services.
        self.now += Duration::from_millis(1);
        let now = self.now;
        let edge: Arc<str> = Arc::from(EDGE);
        let mut said = Vec::new();
        for (index, host) in HOSTS.iter().enumerate() {
            let mut seen = CardOutput::default();
            let card = &mut self.cards[index];
            match origin {
                Origin::Internet => {
                    card.from_host(now, &edge, Envelope::Arriving, frame(packet), &mut seen);
                }
                Origin::Eni(eni) => {
                    let Some(port) = card.port_of(eni) else { continue };
                    card.from_guest(now, port, frame(packet), &mut seen);
                }
            }
            self.answer(index, &mut seen);
            self.collect(index, seen, packet, &mut said, host);
        }
        assert!(said.len() <= 1, "{said:?}");
        said.pop().unwrap_or(Outcome::Dropped)
    }

    /// Sends a packet from a host to all other hosts, with an envelope from one interface to
    /// another that the sender may have forged. Returns the interface that received the packet, if
    /// any.
    pub(crate) fn forge(
        &mut self,
        host: &str,
        from: EniId,
        to: EniId,
        packet: &Packet,
    ) -> Option<EniId> {
        self.now += Duration::from_millis(1);
        let mut delivered = None;
        for index in 0..HOSTS.len() {
            let mut seen = CardOutput::default();
            let envelope = Envelope::Between { from, to };
            let card = &mut self.cards[index];
            card.from_host(self.now, &Arc::from(host), envelope, frame(packet), &mut seen);
            self.answer(index, &mut seen);
            let card = &self.cards[index];
            assert!(seen.sent.is_empty() && seen.served.is_empty());
            if let Some((port, _)) = seen.delivered.pop() {
                delivered = card.eni_of(port);
            }
        }
        delivered
    }

    fn collect(
        &mut self,
        index: usize,
        mut seen: CardOutput,
        packet: &Packet,
        said: &mut Vec<Outcome>,
        host: &str,
    ) {
        let from: Arc<str> = Arc::from(host);
        let arrived = |card: &Card, (port, frame): (PortId, Vec<u8>)| {
            let eni = card.eni_of(port).unwrap();
            Outcome::Passed(Verdict::Delivered(eni), with_addresses(packet, &frame))
        };
        said.extend(seen.delivered.drain(..).map(|one| arrived(&self.cards[index], one)));
        said.extend(seen.served.drain(..).map(|s| Outcome::Passed(Verdict::Served(s), *packet)));
        while let Some((to, envelope, frame)) = seen.sent.pop_front() {
            if let Some(other) = HOSTS.iter().position(|host| **host == *to) {
                let mut there = CardOutput::default();
                self.cards[other].from_host(self.now, &from, envelope, frame, &mut there);
                self.answer(other, &mut there);
                said.extend(there.delivered.drain(..).map(|one| arrived(&self.cards[other], one)));
                assert!(there.sent.is_empty() && there.served.is_empty());
                continue;
            }
            said.push(match envelope {
                Envelope::Leaving { exit, .. } => {
                    Outcome::Passed(Verdict::Left(exit), with_addresses(packet, &frame))
                }
                // The edge writes the public address.
                Envelope::ByNat { .. } => Outcome::Passed(LEFT_BY_NAT, *packet),
                other => panic!("{other:?} to the edge"),
            });
        }
    }
}

/// Verdict that stands for all packets that leave through a NAT gateway.
const LEFT_BY_NAT: Verdict = Verdict::Left(Exit::InternetGateway(InternetGatewayId(u64::MAX)));

/// Key of a connection at an interface: local and remote address, protocol, ports.
type Key = (EniId, IpAddr, IpAddr, u8, (u16, u16));

fn key(eni: EniId, direction: Direction, packet: &Packet) -> Key {
    let ports = match packet.inner {
        Inner::Tcp(from, to) | Inner::Udp(from, to) => (from, to),
        _ => (0, 0),
    };
    let Packet { source, destination, .. } = *packet;
    match direction {
        Direction::Egress => (eni, source, destination, packet.protocol(), ports),
        Direction::Ingress => (eni, destination, source, packet.protocol(), (ports.1, ports.0)),
    }
}

/// Whether a packet is an ICMP error. The errors of these tests quote no packet, so they belong to
/// no connection.
fn is_error(packet: &Packet) -> bool {
    match packet.inner {
        Inner::Icmp(kind, _) if packet.source.is_ipv4() => matches!(kind, 3 | 4 | 5 | 11 | 12),
        Inner::Icmp(kind, _) => matches!(kind, 1..=4),
        _ => false,
    }
}

/// Whether a packet comes from another cloud than the one to which the answers of its receiver go.
/// Such a packet belongs to no connection.
fn is_foreign(world: &World, origin: Origin, to: EniId, arrived: &Packet) -> bool {
    let Origin::Eni(from) = origin else { return false };
    let vpc = world.subnets[&world.enis[&from].subnet].vpc;
    lead_elsewhere(world, &world.enis[&to], arrived.source, vpc)
}

#[derive(Clone, Copy)]
struct Flow {
    tracked: bool,
    local_first: bool,
}

/// The reference implementation, which stores nothing but the state of connections.
#[derive(Default)]
pub(crate) struct Reference {
    flows: BTreeMap<Key, Flow>,
    /// Packets that passed because they belong to a connection.
    pub(crate) established: u64,
}

impl Reference {
    pub(crate) fn judge(&mut self, world: &World, origin: Origin, packet: &Packet) -> Outcome {
        if packet.source == packet.destination {
            return Outcome::Dropped;
        }
        let remembers = |eni: EniId, direction: Direction, packet: &Packet| {
            let flow = self.flows.get(&key(eni, direction, packet));
            !is_error(packet) && flow.is_some_and(|flow| flow.tracked)
        };
        let judgement = judge_flow(world, origin, packet, &remembers);
        let by_nat = judgement
            .steps
            .iter()
            .any(|step| matches!(step, Step::Source4 { by: Translator::NatGateway(_), .. }));
        let arrives = judgement.steps.iter().any(|step| {
            matches!(step, Step::SameSubnet(_) | Step::Mapping { eni: Some(_), .. })
                || matches!(step, Step::Middlebox { takes: true, .. })
        });
        // A NAT gateway translates neither fragments nor errors that quote no packet.
        let is_carried =
            matches!(packet.inner, Inner::Tcp(..) | Inner::Udp(..) | Inner::Icmp(0 | 8, _));
        let is_lost = by_nat && !is_carried;
        let passes = judgement.passes();
        if let Origin::Eni(eni) = origin
            && (passes || arrives)
        {
            self.note(&judgement, eni, Direction::Egress, packet);
        }
        let Judgement { verdict, packet: arrived, .. } = judgement;
        if is_lost && matches!(verdict, Verdict::Delivered(_)) {
            return Outcome::Dropped;
        }
        let to = match verdict {
            Verdict::Delivered(eni) => {
                Some(eni).filter(|to| !is_foreign(world, origin, *to, &arrived))
            }
            _ => None,
        };
        if let Some(eni) = to {
            self.note(&judgement, eni, Direction::Ingress, &arrived);
        }
        let established = |step: &Step| matches!(step, Step::Established { .. });
        self.established += u64::from(passes && judgement.steps.iter().any(established));
        match verdict {
            Verdict::Dropped(_) => Outcome::Dropped,
            Verdict::Left(_) if by_nat => Outcome::Passed(LEFT_BY_NAT, *packet),
            verdict => Outcome::Passed(verdict, arrived),
        }
    }

    /// Updates the state of connections after an interface has admitted a packet.
    fn note(&mut self, judgement: &Judgement, eni: EniId, direction: Direction, packet: &Packet) {
        if is_error(packet) {
            return;
        }
        let tracking = judgement.steps.iter().find_map(|step| match step {
            Step::Groups { direction: of, tracking, .. } if *of == direction => *tracking,
            _ => None,
        });
        let tracked = tracking.is_some_and(|tracking| tracking != Tracking::Untracked);
        let local = direction == Direction::Egress;
        let is_icmp = matches!(packet.inner, Inner::Icmp(..));
        let remembered =
            tracked || !is_icmp && matches!(packet.inner, Inner::Tcp(..) | Inner::Udp(..));
        match self.flows.entry(key(eni, direction, packet)) {
            std::collections::btree_map::Entry::Occupied(mut there) => {
                let flow = there.get_mut();
                flow.tracked |= tracked && flow.local_first == local;
            }
            std::collections::btree_map::Entry::Vacant(place) => {
                if remembered {
                    place.insert(Flow { tracked, local_first: local });
                }
            }
        }
    }
}
