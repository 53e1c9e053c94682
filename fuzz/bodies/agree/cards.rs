//! The cards of two hosts with one or several workers, the network between them, and the
//! internet's side of their gateways.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use srd_card::offload::OFFLOAD_BYTES;
use srd_card::profile::{InstanceType, Profile};
use srd_card::track::Timeouts;
use srd_card::vpc::nat::{Nat, NatConnection};
use srd_card::vpc::workers::{Partition, Redirect};
use srd_card::vpc::{Card, Cause, Envelope, Environment, FrameRoute, Guest, PortId};
use srd_proto::{Duration, Instant, Secret};
use srd_vpc::compile::{Directory, Rules};
use srd_vpc::id::EniId;
use srd_vpc::judge::{Exit, Origin, Service};
use srd_vpc::object::World;
use srd_vpc::packet::{Inner, Packet};

use super::cloud::{DOOR, HOSTS, NAT_PUBLIC};

const EDGE: &str = "edge";
const TCP_SYN: u8 = 2;
const TCP_RST: u8 = 4;
const TCP_SYN_ACK: u8 = 18;

/// Result of sending a packet through the cards.
#[derive(Debug)]
pub(super) enum Ended {
    At(EniId, Vec<u8>),
    /// The packet left to the internet. The frame is in the form that it has there.
    Left(Exit, Vec<u8>),
    Served(Service),
    /// The packet was dropped, for one of these causes.
    Dropped(BTreeSet<Cause>),
}

/// Returns the frame of a packet, or the frames of its fragments. `id` is the IP identification,
/// and the identifier of an echo.
pub(super) fn frames(packet: &Packet, is_cut: bool, id: u16) -> Vec<Vec<u8>> {
    let mut transport = vec![7_u8; 48];
    match packet.inner {
        Inner::Tcp(from, to) | Inner::Udp(from, to) => {
            transport[..2].copy_from_slice(&from.to_be_bytes());
            transport[2..4].copy_from_slice(&to.to_be_bytes());
            let is_answer = matches!(to, 1024..);
            transport[12] = 0x50;
            transport[13] = if is_answer { TCP_SYN_ACK } else { TCP_SYN };
            if let Inner::Udp(..) = packet.inner {
                transport[4..8].copy_from_slice(&[0, 48, 0, 0]);
            }
        }
        Inner::Icmp(kind, code) => {
            let id = id.to_be_bytes();
            transport[..8].copy_from_slice(&[kind, code, 0, 0, id[0], id[1], 0, 1]);
        }
        Inner::Other(_) => {}
    }
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (packet.source, packet.destination) else {
        return Vec::new();
    };
    let part = |bytes: &[u8], flags: u16| {
        let mut frame = vec![0; OFFLOAD_BYTES];
        let total = u16::try_from(20 + bytes.len()).expect("short").to_be_bytes();
        let (id, flags) = (id.to_be_bytes(), flags.to_be_bytes());
        frame.extend_from_slice(&[0x45, 0, total[0], total[1], id[0], id[1], flags[0], flags[1]]);
        frame.extend_from_slice(&[64, packet.protocol(), 0, 0]);
        frame.extend_from_slice(&source.octets());
        frame.extend_from_slice(&destination.octets());
        frame.extend_from_slice(bytes);
        frame
    };
    if is_cut {
        vec![part(&transport[..24], 0x2000), part(&transport[24..], 3)]
    } else {
        vec![part(&transport, 0)]
    }
}

/// Returns the packet of a frame; `None` if the frame does not contain its ports.
fn packet_of(frame: &[u8]) -> Option<Packet> {
    let bytes = frame.get(OFFLOAD_BYTES..)?;
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let address = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?));
    if word(6)? & 0x1fff != 0 {
        return None;
    }
    let inner = match bytes.get(9)? {
        6 => Inner::Tcp(word(20)?, word(22)?),
        17 => Inner::Udp(word(20)?, word(22)?),
        _ => Inner::Icmp(*bytes.get(20)?, *bytes.get(21)?),
    };
    Some(Packet { source: address(12)?, destination: address(16)?, inner })
}

impl Ended {
    /// Returns the answer that the receiver of the packet would send, and its origin.
    pub(super) fn answer(&self) -> Option<(Origin, Packet)> {
        let (origin, frame) = match self {
            Self::At(eni, frame) => (Origin::Eni(*eni), frame),
            Self::Left(_, frame) => (Origin::Internet, frame),
            _ => return None,
        };
        Some((origin, packet_of(frame)?.answer()))
    }

    /// Returns the identifier of an echo as the receiver gets it; `None` if the packet is no echo.
    pub(super) fn echo_id(&self) -> Option<u16> {
        let (Self::At(_, frame) | Self::Left(_, frame)) = self else { return None };
        let bytes = frame.get(OFFLOAD_BYTES..)?;
        let id = [*bytes.get(24)?, *bytes.get(25)?];
        (bytes[9] == 1).then(|| u16::from_be_bytes(id))
    }

    /// Whether the packet is a TCP reset, as an answer to `sent`.
    pub(super) fn is_reset_of(&self, sent: &Packet) -> bool {
        let (Self::At(_, frame) | Self::Left(_, frame)) = self else { return false };
        let flags = frame.get(OFFLOAD_BYTES + 20 + 13);
        let is_reset = flags.is_some_and(|flags| flags & TCP_RST != 0);
        is_reset && packet_of(frame) == Some(sent.answer())
    }

    /// Returns the source port of a packet that has passed: if `by_nat`, the port that a NAT
    /// gateway has allocated.
    pub(super) fn nat_port(&self, sent: &Packet, by_nat: bool) -> Option<u16> {
        let frame = match self {
            Self::At(_, frame) | Self::Left(_, frame) if by_nat => frame,
            _ => return sent.source_port(),
        };
        packet_of(frame)?.source_port()
    }
}

#[derive(Default)]
struct Out {
    guests: Vec<(PortId, Vec<u8>)>,
    hosts: VecDeque<(Arc<str>, Envelope, Vec<u8>)>,
    served: Option<Service>,
}

impl Environment for Out {
    fn to_guest(&mut self, port: PortId, frame: Vec<u8>) {
        self.guests.push((port, frame));
    }
    fn to_host(&mut self, way: FrameRoute<'_>, frame: Vec<u8>) {
        assert_eq!(Envelope::of(way.envelope.trailer()), Ok(way.envelope));
        self.hosts.push_back((Arc::clone(way.host), way.envelope, frame));
    }
    fn to_service(&mut self, _: PortId, service: Service, _: Vec<u8>) {
        self.served = Some(service);
    }
}

/// A worker of a host: its card, and the way of frames that arrive at it from other hosts.
struct Worker {
    card: Card,
    redirect: Redirect,
}

/// The workers of one host, which share the edge of the first worker.
struct Host {
    workers: Vec<Worker>,
    /// Connections of the public NAT gateways.
    nat: Nat,
    directory: Option<Directory>,
}

impl Host {
    fn new(world: &World, host: &str, asks: bool, workers: u8) -> Self {
        let partition = Partition::new(host, workers);
        let mut world = world.clone();
        partition.divide(&mut world, |_| 1);
        let mut directory = asks.then(|| Directory::new(world.clone()));
        let kind = InstanceType::find("c7i.48xlarge").expect("a type");
        let profile = Profile::of(kind);
        let workers = (0_u8..).zip(partition.names()).map(|(number, name)| {
            let beside = partition.view(number, &world);
            let whole = || Rules::compile(&world, name);
            let rules = directory.as_mut().map_or_else(whole, |from| from.tables(name));
            let mut card = Card::new(name, Arc::new(rules), Secret::known(7));
            card.set_beside(&beside);
            let edge = if number == 0 { Arc::from(EDGE) } else { Arc::clone(beside.first()) };
            card.set_edges(BTreeMap::from([(Exit::InternetGateway(DOOR), edge)]));
            for (id, eni) in &world.enis {
                let instance = eni.attachment.as_ref().map(|at| at.instance);
                let of = instance.and_then(|id| world.instances.get(&id)?.host.as_deref());
                if of == Some(&**name) {
                    let guest = Guest { eni: *id, timeouts: Timeouts::DEFAULT };
                    card.add_instance(Instant::ZERO, &profile, &[guest]);
                }
            }
            Worker { card, redirect: Redirect::new(beside) }
        });
        Self { workers: workers.collect(), nat: Nat::default(), directory }
    }

    fn worker_with(&self, eni: EniId) -> Option<usize> {
        self.workers.iter().position(|worker| worker.card.port_of(eni).is_some())
    }
}

pub(super) struct Cards {
    hosts: [Host; 2],
    has_public: bool,
    now: Instant,
}

impl Cards {
    pub(super) fn new(world: &World, asks: bool, workers: u8) -> Self {
        let has_public = world.nat_gateways.values().any(|nat| nat.address.is_some());
        let hosts = HOSTS.map(|host| Host::new(world, host, asks, workers));
        Self { hosts, has_public, now: Instant::ZERO }
    }

    fn drops(&self) -> BTreeMap<Cause, u64> {
        let mut sums = BTreeMap::new();
        for Worker { card, .. } in self.hosts.iter().flat_map(|host| &host.workers) {
            let ports = (0..4).filter_map(|eni| card.port_of(EniId(eni)));
            let all = ports.map(|port| card.drops(port)).chain([card.drops_of_none().clone()]);
            for (cause, packets) in all.flat_map(|drops| drops.all().collect::<Vec<_>>()) {
                *sums.entry(cause).or_default() += packets;
            }
        }
        sums
    }

    /// Answers the queries of a card to the directory.
    fn answer(&mut self, (at, worker): (usize, usize), out: &mut Out) {
        let Host { workers, directory: Some(directory), .. } = &mut self.hosts[at] else { return };
        let Worker { card, redirect } = &mut workers[worker];
        while let Some(question) = card.poll_question() {
            let name = redirect.beside.name();
            let answer = directory.answer(name, question).expect("room for an answer");
            card.learn(self.now, answer, out).expect("it was asked");
        }
    }

    /// Passes a frame of another host, of another worker or of the edge to the card of a worker.
    fn arrive(
        &mut self,
        place: (usize, usize),
        (from, envelope): (&Arc<str>, Envelope),
        frame: Vec<u8>,
    ) -> Option<Ended> {
        let mut out = Out::default();
        let (at, worker) = place;
        let card = &mut self.hosts[at].workers[worker].card;
        card.from_host(self.now, from, envelope, frame, &mut out);
        self.answer(place, &mut out);
        self.collect(place, out)
    }

    /// Sends a packet through the cards, and returns the result.
    pub(super) fn send(&mut self, origin: Origin, frame: Vec<u8>) -> Ended {
        self.now += Duration::from_millis(10);
        let before = self.drops();
        let mut ended = None;
        for at in 0..HOSTS.len() {
            let frame = frame.clone();
            ended = match origin {
                Origin::Eni(eni) => {
                    let Some(worker) = self.hosts[at].worker_with(eni) else { continue };
                    let mut out = Out::default();
                    let card = &mut self.hosts[at].workers[worker].card;
                    let port = card.port_of(eni).expect("it is there");
                    card.from_guest(self.now, port, frame, &mut out);
                    self.answer((at, worker), &mut out);
                    self.collect((at, worker), out)
                }
                Origin::Internet => self.arrive_from_internet(at, frame),
            }
            .or(ended);
        }
        ended.unwrap_or_else(|| {
            let changed = self.drops().into_iter();
            let changed = changed.filter(|(cause, n)| before.get(cause) != Some(n));
            Ended::Dropped(changed.map(|(cause, _)| cause).collect())
        })
    }

    /// Takes a frame from the internet at the first worker, which has the edge.
    fn arrive_from_internet(&mut self, at: usize, mut frame: Vec<u8>) -> Option<Ended> {
        let Host { nat, workers, .. } = &mut self.hosts[at];
        let beside = &workers[0].redirect.beside;
        let public = frame.get(OFFLOAD_BYTES + 16..).and_then(|to| to.first_chunk::<4>());
        let public = public.map(|octets| Ipv4Addr::from(*octets));
        let (envelope, other) = match nat.arrive(self.now, &mut frame) {
            Some(NatConnection { nat, eni: to, port }) => {
                (Envelope::FromNat { nat, to, port }, beside.other_with(to))
            }
            None => (Envelope::Arriving, public.and_then(|public| beside.other_at(public))),
        };
        let (edge, first) = (Arc::from(EDGE), Arc::clone(beside.name()));
        match other {
            Some(worker) => self.arrive((at, worker.into()), (&first, envelope), frame),
            None => self.arrive((at, 0), (&edge, envelope), frame),
        }
    }

    fn collect(&mut self, (at, worker): (usize, usize), mut out: Out) -> Option<Ended> {
        let Worker { card, redirect } = &self.hosts[at].workers[worker];
        if let Some((port, frame)) = out.guests.pop() {
            return Some(Ended::At(card.eni_of(port)?, frame));
        }
        if let Some(service) = out.served {
            return Some(Ended::Served(service));
        }
        let (to, envelope, mut frame) = out.hosts.pop_front()?;
        let is_for_edge = matches!(envelope, Envelope::Leaving { .. } | Envelope::ByNat { .. });
        if let Some(other) = redirect.beside.other_named(&to).filter(|_| !is_for_edge) {
            let from = Arc::clone(redirect.beside.name());
            return self.arrive((at, other.into()), (&from, envelope), frame);
        }
        if let Some(other) = HOSTS.iter().position(|host| **host == *to && !is_for_edge) {
            let workers = &mut self.hosts[other].workers;
            let arrived_at = worker % workers.len();
            let redirect = &mut workers[arrived_at].redirect;
            let from = Arc::from(HOSTS[at]);
            let owner = redirect.other_for(self.now, &from, &envelope, &frame);
            let place = (other, owner.map_or(arrived_at, usize::from));
            return self.arrive(place, (&from, envelope), frame);
        }
        match envelope {
            Envelope::Leaving { exit, .. } => Some(Ended::Left(exit, frame)),
            Envelope::ByNat { from, nat } => {
                let public: Ipv4Addr = self.has_public.then_some(NAT_PUBLIC)?;
                let left = self.hosts[at].nat.leave(self.now, nat, public, from, &mut frame);
                Some(match left {
                    Ok(()) => Ended::Left(Exit::InternetGateway(DOOR), frame),
                    Err(error) => Ended::Dropped(BTreeSet::from([Cause::Nat(error)])),
                })
            }
            other => panic!("{other:?} to the edge"),
        }
    }
}
