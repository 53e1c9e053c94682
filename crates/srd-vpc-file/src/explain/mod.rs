//! The explanation of a connection: what happens to its packets, step by step, and why.

mod ends;

use serde::Serialize;
use srd_vpc::express;
use srd_vpc::judge::{
    self, Condition, Direction, INTERNET_PORTS, Judgement, LINUX_PORTS, Origin, PortOf, Reason,
    Step, Verdict,
};
use srd_vpc::object::Eni;
use srd_vpc::packet::{Inner, Packet};

use crate::warnings::{range, stale_rules};
use crate::words::{self, StepRecord};
use crate::{Kind, VpcFile};

/// Source port that stands for a client's port: clients of all operating systems use it.
const SOURCE_PORT: u16 = 49152;

/// A connection to explain. The ends are names of interfaces or instances, addresses, or
/// `internet`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// The sender of the first packet.
    pub from: String,
    /// The receiver of the first packet.
    pub to: String,
    /// `tcp`, `udp`, `icmp` (an echo request), or the number of a protocol.
    pub protocol: String,
    /// The destination port.
    pub port: u16,
    /// The source port; `None` for any port that a client uses: 32768-60999 of an instance,
    /// 1024-65535 of the internet.
    pub source_port: Option<u16>,
    /// Whether the IPv6 addresses of two named ends are used.
    pub ipv6: bool,
}

/// Ports on which the success of a connection depends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Ports {
    /// The client or the NAT gateway that takes the port.
    pub of: String,
    /// The ports of which it takes one.
    pub taken: String,
    /// The ports with which the connection works.
    pub works: Vec<String>,
}

impl Ports {
    fn new(file: &VpcFile, Condition { of, wanted, works }: &Condition) -> Self {
        let of = match of {
            PortOf::Client => String::from("the client"),
            PortOf::Nat(id) => {
                let name = file.names.name(Kind::NatGateway, id.0).unwrap_or_default();
                format!("nat_gateway {name}")
            }
        };
        let works = works.iter().map(|ports| range(*ports)).collect();
        Self { of, taken: range(*wanted), works }
    }
}

/// One direction of a connection, with the steps of the decision about its packets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Walked {
    /// Source address.
    pub source: String,
    /// Destination address.
    pub destination: String,
    /// The steps, in order.
    pub steps: Vec<StepRecord>,
    /// The decision.
    pub verdict: String,
    /// Whether packets of this direction arrive.
    pub passes: bool,
    /// If packets are dropped: the change that would let them pass.
    pub remedy: Option<&'static str>,
}

impl Walked {
    fn new(file: &VpcFile, packet: &Packet, judgement: &Judgement) -> Self {
        let remedy = match judgement.verdict {
            Verdict::Dropped(reason) => Some(words::why(reason).1),
            _ => None,
        };
        Self {
            source: packet.source.to_string(),
            destination: packet.destination.to_string(),
            steps: words::lines(file, judgement),
            verdict: words::verdict(file, judgement),
            passes: judgement.passes(),
            remedy,
        }
    }
}

/// The explanation of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Explanation {
    /// Whether the connection works with all ports.
    pub works: bool,
    /// Whether the connection works with some ports only.
    pub works_for_part: bool,
    /// The ports with which it works, if it works for part of them.
    pub conditions: Vec<Ports>,
    /// Remarks on rules that were meant to let the packets pass.
    pub notes: Vec<String>,
    /// The traffic, for example `TCP port 443`.
    pub traffic: String,
    /// The first packet.
    pub first: Walked,
    /// Its answer, if the first packet arrives.
    pub answer: Option<Walked>,
    /// Whether packets are sent over SRD (ENA Express); `None` if they come from outside or reach
    /// no interface.
    pub rides_srd: Option<bool>,
    /// The reason why packets are not sent over SRD.
    pub plainly: Option<String>,
    /// The way to an end outside, for people; empty for an end inside.
    #[serde(skip)]
    pub reach: &'static str,
}

/// Explains a connection. `lacks_express`: whether instances of the type of this name have no ENA
/// Express.
///
/// # Errors
/// If an end or the protocol is unknown, the internet cannot name an end, or the ends have
/// addresses of different families.
pub fn explain(
    file: &VpcFile,
    query: &Query,
    lacks_express: &dyn Fn(&str) -> bool,
) -> Result<Explanation, String> {
    let (origin, source, destination) = ends::of(file, &query.from, &query.to, query.ipv6)?;
    let client = match (query.source_port, origin) {
        (Some(_), _) => None,
        (None, Origin::Eni(_)) => Some(LINUX_PORTS),
        (None, Origin::Internet) => Some(INTERNET_PORTS),
    };
    let ports = (query.source_port.unwrap_or(SOURCE_PORT), query.port);
    let (inner, traffic) = match query.protocol.as_str() {
        "tcp" => (Inner::Tcp(ports.0, ports.1), format!("TCP port {}", ports.1)),
        "udp" => (Inner::Udp(ports.0, ports.1), format!("UDP port {}", ports.1)),
        "icmp" if source.is_ipv4() => (Inner::Icmp(8, 0), String::from("ICMP echo request")),
        "icmp" | "icmpv6" => (Inner::Icmp(128, 0), String::from("ICMPv6 echo request")),
        other => match other.parse::<u8>() {
            Ok(number) => (Inner::Other(number), format!("protocol {number}")),
            Err(_) => return Err(format!("protocol `{other}`: tcp, udp, icmp or a number")),
        },
    };
    let packet = Packet { source, destination, inner };
    let explained = judge::explain(&file.world, origin, &packet, client);
    let connection = &explained.connection;
    let answer_from = connection.first.packet.answer();
    let answer = connection.answer.as_ref().map(|back| Walked::new(file, &answer_from, back));
    let judgements = [Some(&connection.first), connection.answer.as_ref()];
    let ride = ride(file, origin, &packet, &connection.first, lacks_express);
    Ok(Explanation {
        works: explained.works(),
        works_for_part: explained.works_for_part(),
        conditions: explained.conditions.iter().map(|of| Ports::new(file, of)).collect(),
        notes: judgements.into_iter().flatten().flat_map(|of| notes(file, of)).collect(),
        traffic,
        first: Walked::new(file, &packet, &connection.first),
        answer,
        rides_srd: ride.as_ref().map(Result::is_ok),
        plainly: ride.and_then(Result::err),
        reach: connection.first.reach.map_or("", words::reach),
    })
}

/// If security groups refused a packet, returns remarks on their stale rules.
fn notes(file: &VpcFile, judgement: &Judgement) -> Vec<String> {
    let refused = match judgement.verdict {
        Verdict::Dropped(Reason::GroupsIn) => Direction::Ingress,
        Verdict::Dropped(Reason::GroupsOut) => Direction::Egress,
        _ => return Vec::new(),
    };
    let eni = judgement.steps.iter().rev().find_map(|step| match step {
        Step::Groups { eni, direction, rule: None, .. } if *direction == refused => Some(*eni),
        _ => None,
    });
    let eni = eni.and_then(|id| file.world.enis.get(&id));
    eni.map_or_else(Vec::new, |eni| stale_rules(file, &eni.groups))
}

/// Returns whether a packet is sent over SRD (ENA Express); an error is the reason why it is not.
/// Returns `None` if the packet comes from outside or reaches no interface.
fn ride(
    file: &VpcFile,
    origin: Origin,
    packet: &Packet,
    judgement: &Judgement,
    lacks_express: &dyn Fn(&str) -> bool,
) -> Option<Result<(), String>> {
    let Origin::Eni(from) = origin else { return None };
    let world = &file.world;
    let ride = express::of_judged(world, from, packet, judgement)?;
    let type_of = |eni: &Eni| {
        let instance = world.instances.get(&eni.attachment.as_ref()?.instance)?;
        Some(instance.instance_type.clone())
    };
    let to = match judgement.verdict {
        Verdict::Delivered(to) => Some(to),
        _ => None,
    };
    let types = [Some(from), to].into_iter().flatten();
    let mut types = types.filter_map(|eni| type_of(world.enis.get(&eni)?));
    Some(match types.find(|name| lacks_express(name)) {
        Some(name) if ride.is_ok() => Err(format!("{name} has no ENA Express")),
        _ => ride.map_err(|why| why.to_string()),
    })
}
