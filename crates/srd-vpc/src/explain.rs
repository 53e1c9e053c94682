//! A judgement as text for people, and as plain data for programs.

use crate::id::EniId;
use crate::judge::{Direction, Exit, Judgement, Reason, Step, Tracking, Verdict};
use crate::object::Target;
use crate::packet::{Inner, Packet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// A judgement, step by step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What was looked at, in order.
    pub lines: Vec<Line>,
    /// Whether the packet arrives.
    pub passes: bool,
    /// How it ended.
    pub verdict: String,
    /// The table and the rule that decided, if one did.
    pub rule: Option<String>,
    /// What would let the packet pass, if it is dropped.
    pub remedy: Option<&'static str>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What was looked at: `source`, `group out`, `acl in`, `route`, `mapping` and so on.
    pub stage: &'static str,
    /// The object that was asked, by its identifier.
    pub table: String,
    /// The rule that decided.
    pub rule: String,
    /// What it said, or the state before and after.
    pub state: String,
}

/// Explains a judgement.
pub fn explain(judgement: &Judgement) -> Explanation {
    let lines: Vec<Line> = judgement.steps.iter().map(line).collect();
    let passes = judgement.passes();
    let verdict = verdict(judgement);
    let decided = lines.last().filter(|_| !passes);
    let rule = decided.map(|line| format!("{} {}: {}", line.stage, line.table, line.rule));
    let remedy = match judgement.verdict {
        Verdict::Dropped(reason) => Some(remedy(reason)),
        _ => None,
    };
    Explanation { lines, passes, verdict, rule, remedy }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{:<10} {:<24} {:<44} {}", line.stage, line.table, line.rule, line.state)?;
        }
        writeln!(f, "{}", self.verdict)?;
        if let Some(rule) = &self.rule {
            writeln!(f, "decided by {rule}")?;
        }
        match self.remedy {
            Some(remedy) => writeln!(f, "remedy: {remedy}"),
            None => Ok(()),
        }
    }
}

fn line(step: &Step) -> Line {
    let new =
        |stage, table: String, rule: String, state: String| Line { stage, table, rule, state };
    match *step {
        Step::Source { eni, own } => {
            let state = if own { "pass" } else { "drop" };
            new("source", eni.to_string(), "source address is the sender's".into(), state.into())
        }
        Step::Groups { eni, direction, rule, tracking } => groups(eni, direction, rule, tracking),
        Step::Established { eni } => {
            let rule = "a flow that was allowed";
            new("tracking", eni.to_string(), rule.into(), "Established".into())
        }
        Step::SameSubnet(id) => {
            let rule = "same subnet: no list, no route";
            new("subnet", id.to_string(), rule.into(), "pass".into())
        }
        Step::Acl { acl, direction, number, allow, .. } => {
            let stage = if direction == Direction::Egress { "acl out" } else { "acl in" };
            let rule = number.map_or("*".into(), |number| number.to_string());
            new(stage, acl.to_string(), rule, if allow { "allow" } else { "deny" }.into())
        }
        Step::Route { table, route, .. } => {
            let rule =
                route.map_or("none".into(), |(block, to)| format!("{block} -> {}", target(to)));
            let state = if route.is_some() { "pass" } else { "drop" };
            new("route", table.to_string(), rule, state.into())
        }
        Step::Source4 { by, from, to } => {
            new("source nat", by.to_string(), format!("{from} -> {to}"), "rewritten".into())
        }
        Step::Destination4 { by, from, to } => {
            new("dest nat", by.to_string(), format!("{from} -> {to}"), "rewritten".into())
        }
        Step::Mapping { vpc, address, eni } => {
            let state = eni.map_or("Unknown".into(), |eni| format!("Unknown -> {eni}"));
            new("mapping", vpc.to_string(), address.to_string(), state)
        }
        Step::Middlebox { eni, takes } => {
            let state = if takes { "pass" } else { "drop" };
            let rule = "takes packets for other addresses";
            new("middlebox", eni.to_string(), rule.into(), state.into())
        }
    }
}

fn target(target: Target) -> String {
    match target {
        Target::Local => "local".into(),
        Target::InternetGateway(id) => id.to_string(),
        Target::EgressOnlyGateway(id) => id.to_string(),
        Target::NatGateway(id) => id.to_string(),
        Target::Peering(id) => id.to_string(),
        Target::Endpoint(id) => id.to_string(),
        Target::Eni(id) => id.to_string(),
        Target::Blackhole => "blackhole".into(),
    }
}

fn groups(
    eni: EniId,
    direction: Direction,
    rule: Option<(crate::id::GroupId, crate::id::GroupRuleId)>,
    tracking: Option<Tracking>,
) -> Line {
    let stage = if direction == Direction::Egress { "group out" } else { "group in" };
    let rule = rule.map_or("no rule".into(), |(group, rule)| format!("{group} {rule}"));
    let state = match tracking {
        None => "drop",
        Some(Tracking::Untracked) => "allow, untracked",
        Some(Tracking::OtherProtocol) => "allow, tracked (protocol): Invalid -> Established",
        Some(Tracking::RuleIsNarrow) => "allow, tracked (rule): Invalid -> Established",
        Some(Tracking::AnswersAreNarrow) => "allow, tracked (answers): Invalid -> Established",
        Some(Tracking::Automatic) => "allow, tracked (always): Invalid -> Established",
    };
    Line { stage, table: eni.to_string(), rule, state: state.into() }
}

fn verdict(judgement: &Judgement) -> String {
    let packet = packet(&judgement.packet);
    match judgement.verdict {
        Verdict::Delivered(eni) => format!("{packet}: delivered to {eni}"),
        Verdict::Left(Exit::InternetGateway(id)) => format!("{packet}: leaves by {id}"),
        Verdict::Left(Exit::EgressOnlyGateway(id)) => format!("{packet}: leaves by {id}"),
        Verdict::Left(Exit::Endpoint(id)) => format!("{packet}: leaves by {id}"),
        Verdict::Served(service) => format!("{packet}: answered by {service:?}"),
        Verdict::Dropped(reason) => format!("{packet}: dropped, {}", why(reason)),
    }
}

fn packet(packet: &Packet) -> String {
    let Packet { source, destination, inner } = packet;
    match inner {
        Inner::Tcp(from, to) => format!("{source} -> {destination} tcp {from} -> {to}"),
        Inner::Udp(from, to) => format!("{source} -> {destination} udp {from} -> {to}"),
        Inner::Icmp(kind, code) => {
            format!("{source} -> {destination} icmp type {kind} code {code}")
        }
        Inner::Other(number) => format!("{source} -> {destination} protocol {number}"),
    }
}

/// Why, in words.
pub fn why(reason: Reason) -> &'static str {
    use Reason::*;
    match reason {
        Families => "source and destination are of different families",
        NotItsAddress => "the source is none of the sender's addresses",
        NotFromOutside => "the source is an address that the internet does not carry",
        GroupsOut => "no outbound rule of the sender's groups allows it",
        GroupsIn => "no inbound rule of the receiver's groups allows it",
        AclOut => "the access control list of the subnet that it leaves denies it",
        AclIn => "the access control list of the subnet that it enters denies it",
        NoRoute => "no route leads there",
        Blackhole => "the target of the route is gone",
        NoPublicAddress => "the sender has no public address",
        Detached => "the gateway is not attached to this cloud",
        WrongFamily => "the gateway does not carry this family",
        OutwardsOnly => "an egress-only gateway lets no connection in",
        NotPeered => "the peering connection is not active, or is none of this cloud's",
        NoTransit => "peering leads to the other cloud's own addresses only",
        NoInterface => "no interface has the address",
        ChecksDestination => "the interface takes packets for its own addresses only",
        PrivateNat => "the NAT gateway has no public address",
        AnotherWayBack => "the answer leaves by another gateway, with another source",
        Circle => "routes lead in a circle",
        Missing(_) => "an object that another refers to does not exist",
    }
}

/// What would let a packet pass.
pub fn remedy(reason: Reason) -> &'static str {
    use Reason::*;
    match reason {
        Families => "send from an address of the destination's family",
        NotItsAddress => "assign the address, or turn source_dest_check off on a middlebox",
        NotFromOutside => "send from a public address",
        GroupsOut => "add an egress rule to a group of the sender",
        GroupsIn => "add an ingress rule to a group of the receiver",
        AclOut => "allow it by an egress entry with a lower number than the one that denies",
        AclIn => "allow it by an ingress entry with a lower number than the one that denies",
        NoRoute => "add a route to the subnet's table",
        Blackhole => "replace the route, or bring its target back",
        NoPublicAddress => "associate an elastic address, or route through a NAT gateway",
        Detached => "attach the gateway to the cloud, or correct the route",
        WrongFamily => "route this family to a gateway that carries it",
        OutwardsOnly => "route the subnet's IPv6 to an internet gateway",
        NotPeered => "accept the peering connection, or correct the route",
        NoTransit => "peer with the cloud that has the address",
        NoInterface => "correct the destination, or assign the address to an interface",
        ChecksDestination => "turn source_dest_check off on the interface",
        PrivateNat => "give the NAT gateway an elastic address",
        AnotherWayBack => "let the answer take the gateway that the packet came by",
        Circle => "place the NAT gateway in a subnet with another route table",
        Missing(_) => "create the object, or correct the reference",
    }
}
