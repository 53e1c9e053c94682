//! The evaluation of a packet as text, with one line for each step.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use srd_vpc::judge::{
    Direction, Exit, Judgement, Reach, Reason, Service, Step, Tracking, Translator, Verdict,
};
use srd_vpc::object::{RulePeer, Target, Traffic};

use crate::{Kind, VpcFile};

/// One step of a packet's evaluation, as text for people and for programs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StepRecord {
    /// The table or gateway that decided.
    pub at: String,
    /// The decision of the table or gateway.
    pub says: String,
    /// Whether the packet passed this step.
    pub passes: bool,
}

/// Returns the text for an object: its kind, name and identifier.
fn named(file: &VpcFile, kind: Kind, number: u64, id: impl Display) -> String {
    match file.names.name(kind, number) {
        // The main route table, default list or default group of a cloud, for which the file has no
        // table.
        Some(name) if name.contains(' ') => format!("{} of {name} ({id})", kind.word()),
        // A file that a program has written may name objects by their identifiers.
        Some(name) if name == id.to_string() => format!("{} {name}", kind.word()),
        Some(name) => format!("{} {name} ({id})", kind.word()),
        None => id.to_string(),
    }
}

/// Returns the steps of a packet's evaluation as text, in order.
pub fn lines(file: &VpcFile, judgement: &Judgement) -> Vec<StepRecord> {
    judgement.steps.iter().map(|step| line(file, step)).collect()
}

fn line(file: &VpcFile, step: &Step) -> StepRecord {
    let eni = |id: srd_vpc::id::EniId| named(file, Kind::Interface, id.0, id);
    let subnet = |id: srd_vpc::id::SubnetId| named(file, Kind::Subnet, id.0, id);
    let (at, says, passes) = match *step {
        Step::Source { eni: id, own } => {
            let says = if own {
                "the source is its own, or is not checked"
            } else {
                "the source is not its own"
            };
            (eni(id), says.to_owned(), own)
        }
        Step::Groups { eni: id, direction, rule, tracking } => {
            let at = format!("security groups of {}, {}", eni(id), way(direction));
            let tracked = tracking.map_or("", tracked);
            match rule {
                Some((group, rule)) => {
                    let text = rule_text(file, group, rule);
                    let group = named(file, Kind::Group, group.0, group);
                    (at, format!("allowed by \"{text}\" of {group}{tracked}"), true)
                }
                None => (at, String::from("no rule allows it"), false),
            }
        }
        Step::Established { eni: id } => {
            (format!("security groups of {}", eni(id)), String::from("an answer: not asked"), true)
        }
        Step::SameSubnet(id) => {
            (subnet(id), String::from("both ends are in it: no list, no route"), true)
        }
        Step::Acl { subnet: id, acl, direction, number, allow, .. } => {
            let word = if allow { "allow" } else { "deny" };
            let entry = number.map_or_else(|| String::from("*"), |number| number.to_string());
            let acl = named(file, Kind::Acl, acl.0, acl);
            let at = format!("{acl} of {}, {}", subnet(id), way(direction));
            (at, format!("{word} by entry {entry}"), allow)
        }
        Step::Route { table, route, .. } => {
            let at = named(file, Kind::RouteTable, table.0, table);
            match route {
                Some((block, target)) => {
                    let passes = target != Target::Blackhole;
                    (at, format!("{block} -> {}", target_text(file, target)), passes)
                }
                None => (at, String::from("no route"), false),
            }
        }
        Step::Source4 { by, from, to } => {
            (translator(file, by), format!("writes the source {to} for {from}"), true)
        }
        Step::Destination4 { by, from, to } => {
            (translator(file, by), format!("writes the destination {to} for {from}"), true)
        }
        Step::Mapping { vpc, address, eni: found } => {
            let at = format!("mapping of {}", named(file, Kind::Vpc, vpc.0, vpc));
            let says = match found {
                Some(id) => format!("{address} -> {}", eni(id)),
                None => format!("no interface of this cloud has {address}"),
            };
            (at, says, found.is_some())
        }
        Step::Middlebox { eni: id, takes } => {
            let says = if takes { "takes packets for others" } else { "checks the destination" };
            (eni(id), says.to_owned(), takes)
        }
    };
    StepRecord { at, says, passes }
}

fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "in",
        Direction::Egress => "out",
    }
}

fn tracked(tracking: Tracking) -> &'static str {
    match tracking {
        Tracking::Untracked => "; untracked",
        Tracking::OtherProtocol => "; tracked: neither TCP nor UDP",
        Tracking::RuleIsNarrow => "; tracked: the rule is not for everywhere",
        Tracking::AnswersAreNarrow => "; tracked: the other direction is not open to everything",
        Tracking::Automatic => "; tracked: its way is always tracked",
    }
}

fn translator(file: &VpcFile, by: Translator) -> String {
    match by {
        Translator::InternetGateway(id) => named(file, Kind::InternetGateway, id.0, id),
        Translator::NatGateway(id) => named(file, Kind::NatGateway, id.0, id),
    }
}

/// Returns the text for the target of a route.
pub fn target_text(file: &VpcFile, target: Target) -> String {
    match target {
        Target::Local => String::from("local"),
        Target::Blackhole => String::from("blackhole"),
        Target::InternetGateway(id) => named(file, Kind::InternetGateway, id.0, id),
        Target::EgressOnlyGateway(id) => named(file, Kind::EgressOnlyGateway, id.0, id),
        Target::NatGateway(id) => named(file, Kind::NatGateway, id.0, id),
        Target::Peering(id) => named(file, Kind::Peering, id.0, id),
        Target::Endpoint(id) => named(file, Kind::Endpoint, id.0, id),
        Target::Eni(id) => named(file, Kind::Interface, id.0, id),
    }
}

/// Returns a rule as `vpc.toml` writes it, for example `tcp 443 from group web`.
pub fn rule_text(
    file: &VpcFile,
    group: srd_vpc::id::GroupId,
    rule: srd_vpc::id::GroupRuleId,
) -> String {
    let rules = file.world.groups.get(&group).map(|group| &group.rules);
    let Some(rule) = rules.and_then(|rules| rules.iter().find(|r| r.id == rule)) else {
        return rule.to_string();
    };
    let word = if rule.egress { "to" } else { "from" };
    let peer = match rule.peer {
        RulePeer::Block(block) => block.to_string(),
        RulePeer::List(id) => {
            format!("list {}", file.names.name(Kind::PrefixList, id.0).unwrap_or(""))
        }
        RulePeer::Group(id) => {
            format!("group {}", file.names.name(Kind::Group, id.0).unwrap_or(""))
        }
    };
    format!("{} {word} {peer}", traffic_text(rule.traffic))
}

/// Returns traffic as `vpc.toml` writes it, for example `tcp 443`.
pub fn traffic_text(traffic: Traffic) -> String {
    let ports = |name: &str, first: u16, last: u16| match (first, last) {
        (0, u16::MAX) => name.to_owned(),
        (first, last) if first == last => format!("{name} {first}"),
        (first, last) => format!("{name} {first}-{last}"),
    };
    let icmp = |name: &str, kind: Option<u8>, code: Option<u8>| match (kind, code) {
        (None, _) => name.to_owned(),
        (Some(kind), None) => format!("{name} {kind}"),
        (Some(kind), Some(code)) => format!("{name} {kind} {code}"),
    };
    match traffic {
        Traffic::All => String::from("all"),
        Traffic::Tcp(first, last) => ports("tcp", first, last),
        Traffic::Udp(first, last) => ports("udp", first, last),
        Traffic::Icmp(kind, code) => icmp("icmp", kind, code),
        Traffic::Icmpv6(kind, code) => icmp("icmpv6", kind, code),
        Traffic::Protocol(number) => format!("protocol {number}"),
    }
}

/// Returns the text for the verdict on a packet.
pub fn verdict(file: &VpcFile, judgement: &Judgement) -> String {
    match judgement.verdict {
        Verdict::Delivered(id) => {
            format!("delivered to {}", named(file, Kind::Interface, id.0, id))
        }
        Verdict::Left(exit) => format!("leaves by {}", self::exit(file, exit)),
        Verdict::Served(service) => format!("served by {}", self::service(service)),
        Verdict::Dropped(reason) => format!("dropped: {}", why(reason).0),
    }
}

/// Returns the text for the exit through which a packet leaves.
pub fn exit(file: &VpcFile, exit: Exit) -> String {
    match exit {
        Exit::InternetGateway(id) => named(file, Kind::InternetGateway, id.0, id),
        Exit::EgressOnlyGateway(id) => named(file, Kind::EgressOnlyGateway, id.0, id),
        Exit::Endpoint(id) => named(file, Kind::Endpoint, id.0, id),
    }
}

/// Returns the text for a service of the network.
pub fn service(service: Service) -> &'static str {
    match service {
        Service::Resolver => "the resolver",
        Service::Metadata => "instance metadata",
        Service::Time => "the time service",
    }
}

/// Returns the text for the reason why a packet is dropped, and for its remedy.
pub fn why(reason: Reason) -> (&'static str, &'static str) {
    match reason {
        Reason::Families => ("one address is IPv4, the other IPv6", "use one family"),
        Reason::NotItsAddress => (
            "the source is none of the sender's addresses",
            "assign the address, or turn source_dest_check off for a middlebox",
        ),
        Reason::NotFromOutside => (
            "the source is an address that the internet does not carry",
            "send from a public address",
        ),
        Reason::GroupsOut => ("no rule of the sender's groups allows it", "add an egress rule"),
        Reason::GroupsIn => ("no rule of the receiver's groups allows it", "add an ingress rule"),
        Reason::AclOut => (
            "the access control list of the subnet that it leaves denies it",
            "add an egress entry with a lower number, for answers, too: lists remember nothing",
        ),
        Reason::AclIn => (
            "the access control list of the subnet that it enters denies it",
            "add an ingress entry with a lower number, for answers, too: lists remember nothing",
        ),
        Reason::NoRoute => ("no route leads there", "add a route to the subnet's route table"),
        Reason::Blackhole => ("the target of the route is gone", "name another target"),
        Reason::NoPublicAddress => (
            "the sender has no public address",
            "associate an elastic address, or route through a NAT gateway",
        ),
        Reason::Detached => ("the gateway is not attached to this cloud", "attach it"),
        Reason::WrongFamily => (
            "the gateway does not carry this family",
            "NAT gateways are for IPv4, egress-only gateways for IPv6",
        ),
        Reason::NotCarried => (
            "the destination is an address that the internet does not carry",
            "send to a public address; for experiments, let the internet carry private ones: \
             --internet-private",
        ),
        Reason::OutwardsOnly => (
            "the gateway lets answers in and no connection: it is egress-only, or a NAT gateway",
            "send to an internet gateway's public address, or to the interface itself",
        ),
        Reason::NotPeered => ("the peering connection is not active", "accept it"),
        Reason::NoTransit => (
            "peering carries packets between its two clouds only: the peered cloud does not have \
             the destination, or it has the source",
            "peer with the cloud that has the destination; do not use a source of the peered cloud",
        ),
        Reason::NoInterface => (
            "no interface has this address",
            "check the address, or give it to an interface of the cloud that the last step names",
        ),
        Reason::ChecksDestination => {
            ("the interface takes packets for its own addresses only", "turn source_dest_check off")
        }
        Reason::PrivateNat => {
            ("the NAT gateway has no public address", "give it an elastic address")
        }
        Reason::AnotherWayBack => (
            "the answer leaves by another gateway, with another source",
            "let the receiver's subnet route answers through the gateway that packets come by",
        ),
        Reason::OpensNoConnection => (
            "a NAT gateway that the connection did not pass answers it with a reset",
            "let the receiver's subnet route answers through the gateway that packets come by",
        ),
        Reason::Circle => {
            ("routes lead in a circle", "put the NAT gateway into a subnet whose route leads out")
        }
        Reason::ToItself => (
            "an instance sends no packet to its own address over the network",
            "ask about another address; its public address comes back from the gateway",
        ),
        Reason::Missing(_) => ("an object that another refers to does not exist", "check the file"),
    }
}

/// Returns the text for the distance between the ends, with the limit for one flow.
pub fn reach(reach: Reach) -> &'static str {
    match reach {
        Reach::Cluster => "one cluster placement group: 10 Gb/s for one flow, 25 with ENA Express",
        Reach::Zone => "one zone: 5 Gb/s for one flow, 25 with ENA Express",
        Reach::Vpc => "one cloud: 5 Gb/s for one flow, 25 with ENA Express",
        Reach::Peering => "a peered cloud: 5 Gb/s for one flow, 25 with ENA Express",
        Reach::Outside => "outside: 5 Gb/s for one flow",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SRD carries packets between all interfaces of clouds (V21), but none that leave the clouds.
    #[test]
    fn regression_each_distance_within_clouds_has_the_limit_of_express() {
        let within = [Reach::Cluster, Reach::Zone, Reach::Vpc, Reach::Peering];
        for distance in within {
            assert!(reach(distance).ends_with("25 with ENA Express"), "{}", reach(distance));
        }
        assert!(!reach(Reach::Outside).contains("ENA Express"));
    }
}
