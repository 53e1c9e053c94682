//! The card's records of traced packets, as text.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use srd_card::Direction;
use srd_card::limits::Limit;
use srd_card::vpc::nat::NatError;
use srd_card::vpc::trace::{Arrived, Event, FlowSeen, Next, Record};
use srd_card::vpc::{Cause, PortId};
use srd_vpc::id::EniId;
use srd_vpc::judge::{self, Origin, Reason, Step, Tracking, Verdict, judge_flow};
use srd_vpc::object::{Target, World};
use srd_vpc::packet::{Inner, Packet};
use srd_vpc_file::words::{self, StepRecord};
use srd_vpc_file::{Kind, VpcFile};

use super::{LocalInterface, Noted};
use crate::control::protocol::{
    Answer, TraceArrived, TraceEvent, TraceFlow, TraceHop, TraceJudged, TraceLimit, TraceRecord,
    TraceRefusal,
};
use crate::figures::pages::directory::Directory;

/// State for the formatting of one trace, between two requests for its records.
#[derive(Default)]
pub(crate) struct TraceFormatter {
    /// The directory of names that was used last, and its interfaces by port.
    known: Option<(Arc<Directory>, Places)>,
    /// Number and headers of the packet that has arrived last. The next record contains its
    /// verdict.
    last: Option<(u32, Arrived)>,
    /// Headers of packets that wait until the card has the location of an interface, by packet
    /// number. Bound: [`HELD_MAX`].
    held: BTreeMap<u32, Arrived>,
}

/// Maximum number of waiting packets whose headers are stored. For a packet without stored headers,
/// the trace does not show the decisions of the tables.
const HELD_MAX: usize = 4096;

impl TraceFormatter {
    /// Formats new records of a trace for the client.
    pub(crate) fn say(&mut self, noted: Noted) -> Answer {
        let Noted { taken, directory, now, waiting } = noted;
        let known = self.known.take().filter(|(of, _)| Arc::ptr_eq(of, &directory));
        let (directory, places) = known.unwrap_or_else(|| {
            let places = places_of(&directory);
            (directory, places)
        });
        let Some(file) = directory.file() else {
            return Answer::Failed { what: String::from("the card has no cloud yet") };
        };
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ns = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
        let all = taken.records.into_iter().enumerate().map(|(number, record)| {
            let unix_ns = unix_ns.saturating_sub(now.since(record.at).as_nanos());
            let packet = record.packet;
            let mut event = self.event(file, &places, record);
            if waiting.contains(&number)
                && let TraceEvent::Gone { to } = &mut event
            {
                to.wait_for_session();
            }
            TraceRecord { packet, unix_ns, event }
        });
        let records = all.collect();
        self.known = Some((directory, places));
        Answer::Traced { records, lost: taken.lost, is_over: taken.is_over }
    }

    fn event(&mut self, file: &VpcFile, places: &Places, record: Record) -> TraceEvent {
        match record.event {
            Event::Arrived(arrived) => {
                let event = TraceEvent::Arrived(self::arrived(places, &arrived));
                self.last = Some((record.packet, arrived));
                event
            }
            Event::Judged { by_rules, verdict, flow } => {
                let last = self.last.take().filter(|(packet, _)| *packet == record.packet);
                let held = self.held.remove(&record.packet);
                let steps = match last.map(|(_, arrived)| arrived).or(held) {
                    Some(arrived) if by_rules || verdict.is_err() => {
                        let refused = verdict.as_ref().err().copied();
                        steps(file, places, &arrived, refused).unwrap_or_default()
                    }
                    _ => Vec::new(),
                };
                let refusal = verdict.as_ref().err().copied().map(refusal);
                let next = verdict.ok().map(|next| hop(file, places, &next));
                let flow = flow.map(self::flow);
                TraceEvent::Judged(TraceJudged { by_rules, next, refusal, steps, flow })
            }
            Event::Waits(limit) => TraceEvent::Waits { limit: limit.map(self::limit) },
            Event::Asks => {
                let last = self.last.take().filter(|(packet, _)| *packet == record.packet);
                let arrived = last.map(|(_, arrived)| arrived);
                let is_egress = arrived.as_ref().map(|of| of.direction == Direction::Egress);
                if self.held.len() < HELD_MAX {
                    self.held.extend(arrived.map(|arrived| (record.packet, arrived)));
                }
                let whose = match is_egress {
                    Some(true) => "its receiver",
                    Some(false) => "its sender",
                    None => "its other end",
                };
                TraceEvent::Held { why: format!("until it is known where {whose} is") }
            }
            Event::OverLimit(limit) => TraceEvent::OverLimit { limit: self::limit(limit) },
            Event::Dropped(cause) => {
                self.held.remove(&record.packet);
                TraceEvent::Dropped(refusal(cause))
            }
            Event::Gone(next) => TraceEvent::Gone { to: hop(file, places, &next) },
        }
    }
}

type Places = BTreeMap<PortId, LocalInterface>;

fn places_of(directory: &Directory) -> Places {
    let places = directory.instances.iter().flat_map(|of| {
        of.interfaces.iter().map(|interface| {
            let (instance, device) = (of.name.clone(), interface.device.name.clone());
            (interface.port, LocalInterface { instance, device, eni: interface.eni })
        })
    });
    places.collect()
}

fn arrived(places: &Places, arrived: &Arrived) -> TraceArrived {
    let Arrived { packet, is_fragment, bytes, packets, .. } = *arrived;
    let (instance, device) = names(places, arrived.interface);
    TraceArrived {
        instance,
        device,
        is_egress: arrived.direction == Direction::Egress,
        source: packet.source,
        destination: packet.destination,
        protocol: protocol_name(packet.protocol()),
        ports: match packet.inner {
            Inner::Tcp(from, to) | Inner::Udp(from, to) => Some((from, to)),
            Inner::Icmp(kind, code) => Some((kind.into(), code.into())),
            Inner::Other(_) => None,
        },
        is_fragment,
        bytes,
        packets,
        flow: arrived.flow.map(flow),
        head: STANDARD.encode(&arrived.head),
    }
}

fn flow(seen: FlowSeen) -> TraceFlow {
    let state = seen.state.name().to_owned();
    TraceFlow { state, is_tracked: seen.tracked, local_first: seen.local_first }
}

fn names(places: &Places, port: PortId) -> (String, String) {
    // The instance may be gone when its records are read.
    let place = places.get(&port).map(|place| (place.instance.clone(), place.device.clone()));
    place.unwrap_or_else(|| (String::from("(gone)"), String::new()))
}

fn hop(file: &VpcFile, places: &Places, next: &Next) -> TraceHop {
    match next {
        Next::Guest => TraceHop::Guest,
        Next::Interface(port) => {
            let (instance, device) = names(places, *port);
            TraceHop::Interface { instance, device }
        }
        Next::Host { host, eni, ride } => {
            let name = file.names.name(Kind::Interface, eni.0);
            let interface = name.map_or_else(|| eni.to_string(), str::to_owned);
            TraceHop::Host {
                host: host.to_string(),
                interface,
                express: ride.is_ok(),
                plainly: ride.err().map(|why| why.to_string()),
                waits: false,
            }
        }
        Next::Edge(exit, host) => {
            let gateway = words::exit(file, *exit);
            TraceHop::Gateway { gateway, host: host.to_string(), waits: false }
        }
        Next::Nat(nat, eni) => {
            let gateway = words::target_text(file, Target::NatGateway(*nat));
            let interface = eni.map(|eni| words::target_text(file, Target::Eni(eni)));
            TraceHop::Nat { gateway, interface }
        }
        Next::Service(service) => {
            TraceHop::Service { service: words::service(*service).to_owned() }
        }
    }
}

fn limit(limit: Limit) -> TraceLimit {
    let what = match limit {
        Limit::BandwidthIn => "bandwidth of the instance, to it",
        Limit::BandwidthOut => "bandwidth of the instance, from it",
        Limit::Packets => "packets a second of the instance",
        Limit::Fragments => "fragments a second of the interface",
        Limit::Tracking => "tracked connections of the instance",
        Limit::LinkLocal => "packets a second to services of the network, of the interface",
        Limit::Flow => "bandwidth of one flow",
        Limit::Gateway => "bandwidth through gateways",
    };
    TraceLimit { what: what.to_owned(), counter: limit.counter().to_owned() }
}

fn refusal(cause: Cause) -> TraceRefusal {
    let (why, remedy) = match cause {
        Cause::Rule(reason) => words::why(reason),
        Cause::Malformed => {
            ("it is no packet, or its offload header contradicts it", "mend the sender")
        }
        Cause::NotHere => (
            "it is for an interface that is not on this host",
            "give all hosts the same file: `srd card apply`",
        ),
        Cause::NotItsHost => (
            "the host that sent it does not have the sender's interface",
            "give all hosts the same file: `srd card apply`",
        ),
        Cause::Tracking => (
            "the instance tracks as many connections as its type allows",
            "take a larger type, end idle connections earlier, or allow the traffic both ways from \
             and to 0.0.0.0/0, which is not tracked",
        ),
        Cause::NotPlaced => (
            "the interface that it is for is on no host",
            "attach it to an instance, and start the card of its host",
        ),
        Cause::NoEdge => (
            "no host is the edge of the gateway that it leaves by",
            "start the card with --internet",
        ),
        Cause::Changed => (
            "it came from the internet, and the rules changed while it waited for a limit",
            "none: the sender sends it again",
        ),
        Cause::Unanswered => (
            "where its receiver is, or its sender, was asked, and no answer came in time",
            "see that the control plane answers; a host whose interfaces ask for many addresses at \
             once waits for the answers to some of them first",
        ),
        Cause::AnswersFull => (
            "the host knows of as many interfaces of other hosts as it may",
            "none: those that are idle are forgotten within two minutes",
        ),
        Cause::FirstFragment => (
            "it is a later fragment, and its first one has not come before it or is forgotten",
            "none if it came out of order: the sender sends the datagram again; rules that admit \
             all ports, or all of ICMP, admit such fragments, too",
        ),
        Cause::Nat(error) => by_nat(error),
        Cause::NoNatConnection => (
            "it is for a NAT gateway, and no answer of a connection that the gateway knows",
            "begin the connection behind the gateway: it lets none in",
        ),
        Cause::TooBig => (
            "it is larger than its way carries, and may not be cut",
            "let the sender follow the ICMP message that tells it the size, or lower its MTU",
        ),
    };
    let cause = cause.name().to_owned();
    TraceRefusal { cause, why: why.to_owned(), remedy: remedy.to_owned() }
}

/// Returns the reason why a NAT gateway has not translated a packet, and the remedy.
fn by_nat(error: NatError) -> (&'static str, &'static str) {
    match error {
        NatError::Protocol => (
            "the NAT gateway carries TCP, UDP, and echoes and errors of ICMP",
            "take another way for it: a route that leads to no NAT gateway",
        ),
        NatError::Fragment => (
            "the NAT gateway carries no fragments of TCP and ICMP, and none whose first one it has \
             not seen",
            "send smaller packets",
        ),
        NatError::NoPort => (
            "the NAT gateway has no port left for its destination, or for the interface",
            "end connections, or route to a second NAT gateway",
        ),
        NatError::NoConnection => (
            "the NAT gateway knows no connection that this segment goes on with",
            "let the program keep idle connections alive: within 350 s",
        ),
        NatError::ErrorAboutNothing => {
            ("it is an ICMP error about no connection of the NAT gateway", "none")
        }
    }
}

/// Returns the decision of each table that this host has evaluated for a packet. For a packet that
/// an interface of this host sends, these are all tables except the receiver's security groups. For
/// a packet from another interface, these are the receiver's groups only. Returns `None` if the
/// decisions do not agree with the card's verdict, because the rules have changed since.
fn steps(
    file: &VpcFile,
    places: &Places,
    arrived: &Arrived,
    refused: Option<Cause>,
) -> Option<Vec<StepRecord>> {
    let eni = places.get(&arrived.interface)?.eni;
    let (origin, packet) = match arrived.direction {
        Direction::Egress => (Origin::Eni(eni), arrived.packet),
        Direction::Ingress => from_where(&file.world, eni, arrived.packet),
    };
    let is_known = arrived.flow.is_some_and(|flow| flow.tracked);
    let mut judgement = judge_flow(&file.world, origin, &packet, &|_, _, _| is_known);
    let agrees = match (judgement.verdict, refused) {
        (Verdict::Dropped(reason), Some(Cause::Rule(of))) => reason == of,
        (Verdict::Dropped(_), Some(Cause::FirstFragment)) => true,
        (Verdict::Dropped(reason), _) => {
            // The receiver's side decides this, or a gateway, which has the state of its
            // connections.
            let later = matches!(reason, Reason::GroupsIn | Reason::OutwardsOnly);
            later && arrived.direction == Direction::Egress
        }
        (_, Some(Cause::Rule(_))) => false,
        // The rules admit the packet. The card has refused it for a cause outside the rules.
        (_, _) => true,
    };
    let of_receiver = |step: &Step| match step {
        Step::Groups { eni: of, direction, .. } => {
            *direction == judge::Direction::Ingress && origin != Origin::Eni(*of)
        }
        Step::Established { eni: of } => origin != Origin::Eni(*of),
        _ => false,
    };
    // The first packet of a flow determines whether the flow is tracked. The rules that apply to an
    // answer have no influence.
    let is_first = |flow: &FlowSeen| flow.local_first == (arrived.direction == Direction::Egress);
    if arrived.flow.is_some_and(|flow| !flow.tracked && !is_first(&flow)) {
        for step in &mut judgement.steps {
            if let Step::Groups { eni: of, tracking: tracking @ Some(_), .. } = step
                && *of == eni
            {
                *tracking = Some(Tracking::Untracked);
            }
        }
    }
    if let Origin::Eni(_) = origin {
        let is_here = arrived.direction == Direction::Ingress;
        judgement.steps.retain(|step| of_receiver(step) == is_here);
    }
    agrees.then(|| words::lines(file, &judgement))
}

/// Returns the origin of a packet that arrives for an interface, and the packet with the addresses
/// that it has at the origin.
fn from_where(world: &World, eni: EniId, packet: Packet) -> (Origin, Packet) {
    let vpc = |eni: EniId| {
        let subnet = world.enis.get(&eni).map(|eni| eni.subnet);
        subnet.and_then(|subnet| world.subnets.get(&subnet)).map(|subnet| subnet.vpc)
    };
    let own = vpc(eni);
    let has = |of: &srd_vpc::object::Eni| match packet.source {
        IpAddr::V4(address) => of.ipv4.contains(&address),
        IpAddr::V6(address) => of.ipv6.contains(&address),
    };
    let senders = world.enis.iter().filter(|(_, of)| has(of)).map(|(id, _)| *id);
    // Clouds may overlap: the interface's own cloud has priority.
    let sender = senders.min_by_key(|sender| vpc(*sender) != own);
    if let Some(sender) = sender {
        return (Origin::Eni(sender), packet);
    }
    // On the internet's side, the interface has its public address.
    let mut all = world.addresses.values();
    let public = all.find(|address| {
        address
            .association
            .is_some_and(|(of, at)| of == eni && IpAddr::V4(at) == packet.destination)
    });
    let destination = public.map_or(packet.destination, |address| IpAddr::V4(address.public));
    (Origin::Internet, Packet { destination, ..packet })
}

/// Returns the name of a transport protocol, or its number.
pub(crate) fn protocol_name(number: u8) -> String {
    match number {
        1 => String::from("icmp"),
        6 => String::from("tcp"),
        17 => String::from("udp"),
        58 => String::from("icmpv6"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud_text::{self, Instance};
    use srd_card::track::State;
    use srd_proto::time::Instant;
    use std::path::Path;

    fn cloud() -> (VpcFile, Places) {
        let instance = |(name, last)| Instance {
            name,
            interface: name,
            kind: "c7i.large",
            host: "",
            last,
            lines: "",
        };
        let instances = [("web", 10), ("app", 11)].map(instance);
        let text = cloud_text::cloud("main", "\"tcp 443 from 0.0.0.0/0\"", &instances);
        let file = srd_vpc_file::parse(&text, Path::new("vpc.toml")).expect("a cloud");
        let eni = *file.world.enis.iter().find(|(_, eni)| eni.name == "web").expect("web").0;
        let place =
            LocalInterface { instance: String::from("web"), device: String::from("ens5"), eni };
        (file, [(PortId(0), place)].into())
    }

    fn arrived(flow: Option<FlowSeen>, direction: Direction) -> Arrived {
        let packet = Packet {
            source: IpAddr::from([10, 0, 1, 11]),
            destination: IpAddr::from([10, 0, 1, 10]),
            inner: Inner::Tcp(50_000, 443),
        };
        let packet = if direction == Direction::Ingress { packet } else { packet.answer() };
        Arrived {
            interface: PortId(0),
            direction,
            packet,
            is_fragment: false,
            bytes: 60,
            packets: 1,
            flow,
            head: Vec::new(),
        }
    }

    fn tracked_words(flow: Option<FlowSeen>, direction: Direction) -> String {
        let (file, places) = cloud();
        let lines = steps(&file, &places, &arrived(flow, direction), None).expect("steps");
        lines.into_iter().map(|line| line.says).find(|says| says.contains("tracked")).expect("rule")
    }

    /// The security groups of a web server allow incoming HTTPS and all outgoing packets. So a
    /// connection to the server is not tracked. The trace has to show its answers as untracked as
    /// well, although a connection that begins with such a packet would be tracked.
    #[test]
    fn regression_the_answer_of_a_connection_is_tracked_as_its_first_packet_is() {
        let first = tracked_words(None, Direction::Ingress);
        assert!(first.ends_with("; untracked"), "{first}");
        let known = |local_first| FlowSeen { state: State::Opening, tracked: false, local_first };
        let answer = tracked_words(Some(known(false)), Direction::Egress);
        assert!(answer.ends_with("; untracked"), "{answer}");
        let own = tracked_words(Some(known(true)), Direction::Egress);
        assert!(own.contains("; tracked"), "its own first packet, after a change: {own}");
    }

    /// Regression: waiting packets were shown as dropped, and without the decisions of the tables.
    #[test]
    fn regression_a_packet_that_is_held_is_told_with_the_reason_and_with_the_steps_of_its_rules() {
        let (file, places) = cloud();
        let mut words = TraceFormatter::default();
        let mut say = |packet, event| {
            words.event(&file, &places, Record { packet, at: Instant::ZERO, event })
        };
        let judged = || Event::Judged { by_rules: true, verdict: Ok(Next::Guest), flow: None };
        say(1, Event::Arrived(arrived(None, Direction::Ingress)));
        let held = say(1, Event::Asks);
        assert!(!held.is_last());
        let TraceEvent::Held { why } = held else { panic!("{held:?}") };
        assert_eq!(why, "until it is known where its sender is");
        // Another packet arrives meanwhile.
        say(2, Event::Arrived(arrived(None, Direction::Ingress)));
        for packet in [2, 1] {
            let TraceEvent::Judged(said) = say(packet, judged()) else { panic!() };
            assert!(!said.steps.is_empty() && said.refusal.is_none(), "{packet}: {said:?}");
        }
        assert!(words.held.is_empty());
    }
}
