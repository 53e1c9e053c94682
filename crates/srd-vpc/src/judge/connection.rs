//! Verdicts on a packet and on its answer. Access control lists are stateless, so a connection
//! works only if both pass.

use super::acl;
use super::groups::Direction;
use super::route;
use super::step::{Exit, Judgement, Origin, Reason, Step, Translator, Verdict};
use super::walk::{Translated, is_from_outside, judge, judge_answer};
use crate::id::SubnetId;
use crate::object::{Target, World};
use crate::packet::Packet;

/// Verdicts on a connection's first packet, and on its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Verdict on the first packet.
    pub first: Judgement,
    /// Verdict on the answer; `None` if the first packet did not reach a destination that answers.
    pub answer: Option<Judgement>,
}

impl Connection {
    /// Whether both directions pass.
    pub fn works(&self) -> bool {
        self.first.passes() && self.answer.as_ref().is_none_or(Judgement::passes)
    }
}

/// Evaluates the first packet of a connection and, if it arrives, its answer. A NAT gateway on the
/// path keeps the source port.
pub fn connection(world: &World, origin: Origin, packet: &Packet) -> Connection {
    let port = packet.source_port();
    connection_by_port(world, origin, packet, port)
}

/// Evaluates a connection as [`connection`] does, except that a NAT gateway on the path uses
/// `nat_port` as the source port.
pub fn connection_by_port(
    world: &World,
    origin: Origin,
    packet: &Packet,
    nat_port: Option<u16>,
) -> Connection {
    let first = judge(world, origin, packet);
    let translated = translated(&first, packet);
    let mut back = first.packet.answer();
    if let (Some(_), Some(port)) = (translated, nat_port) {
        back = back.to_port(port);
    }
    let from = match first.verdict {
        Verdict::Dropped(_) | Verdict::Served(_) => return Connection { first, answer: None },
        Verdict::Delivered(eni) => Origin::Eni(eni),
        Verdict::Left(_) if translated.is_some() => Origin::Internet,
        Verdict::Left(exit) => {
            let answer = Some(back_in(world, &first, exit));
            return Connection { first, answer };
        }
    };
    let mut answer = judge_answer(world, from, &back, &|_, _, _| true, translated);
    // Both addresses must be those that the client expects; otherwise the client assigns the answer
    // to another flow. If a NAT gateway has translated the flow, the answer also has to arrive at
    // the client's interface.
    let is_back =
        answer.packet == packet.answer() && (translated.is_none() || is_at(answer.verdict, origin));
    if answer.passes() && !is_back {
        answer.verdict = Verdict::Dropped(Reason::AnotherWayBack);
        answer.reach = None;
    }
    Connection { first, answer: Some(answer) }
}

fn is_at(verdict: Verdict, origin: Origin) -> bool {
    matches!(verdict, Verdict::Delivered(eni) if Origin::Eni(eni) == origin)
}

/// Returns the connection that a NAT gateway on the path of a first packet stores; `None` if no NAT
/// gateway translated the packet.
fn translated(first: &Judgement, packet: &Packet) -> Option<Translated> {
    let by_nat = first.steps.iter().find_map(|step| match *step {
        Step::Source4 { by: Translator::NatGateway(nat), from, .. } => Some((nat, from)),
        _ => None,
    });
    by_nat.map(|(nat, source)| Translated { nat, source, port: packet.source_port() })
}

/// Evaluates the answer to a packet that left all clouds. The access control lists that the packet
/// has passed are evaluated for the answer in reverse order.
fn back_in(world: &World, first: &Judgement, exit: Exit) -> Judgement {
    let mut answer = Judgement {
        steps: alloc::vec::Vec::new(),
        verdict: Verdict::Left(exit),
        packet: first.packet.answer(),
        reach: first.reach,
    };
    let by_internet = !matches!(exit, Exit::Endpoint(_));
    if by_internet && !is_from_outside(world, answer.packet.source) {
        answer.verdict = Verdict::Dropped(Reason::NotFromOutside);
        answer.reach = None;
        return answer;
    }
    for step in first.steps.iter().rev() {
        match *step {
            Step::Source { eni, .. } => answer.verdict = Verdict::Delivered(eni),
            Step::Acl { subnet, direction, packet, .. } => {
                let packet = packet.answer();
                answer.packet = packet;
                let back = match direction {
                    Direction::Egress => Direction::Ingress,
                    Direction::Ingress => Direction::Egress,
                };
                if let Err(reason) = ask(world, subnet, back, &packet, &mut answer) {
                    answer.verdict = Verdict::Dropped(reason);
                    answer.reach = None;
                    return answer;
                }
            }
            _ => {}
        }
    }
    answer
}

/// Evaluates the access control list of a subnet. For a packet that leaves the subnet, also selects
/// the route.
fn ask(
    world: &World,
    subnet: SubnetId,
    direction: Direction,
    packet: &Packet,
    answer: &mut Judgement,
) -> Result<(), Reason> {
    let missing = Reason::Missing(super::step::MissingObject::Subnet);
    let acl::Decision { acl, number, allow } =
        acl::decide(world, subnet, direction, packet).ok_or(missing)?;
    answer.steps.push(Step::Acl { subnet, acl, direction, packet: *packet, number, allow });
    match (allow, direction) {
        (false, Direction::Egress) => return Err(Reason::AclOut),
        (false, Direction::Ingress) => return Err(Reason::AclIn),
        (true, Direction::Ingress) => return Ok(()),
        (true, Direction::Egress) => {}
    }
    let chosen = route::choose(world, subnet, packet.destination).ok_or(missing)?;
    answer.steps.push(Step::Route { subnet, table: chosen.table, route: chosen.route });
    match chosen.route {
        Some((_, Target::Blackhole)) => Err(Reason::Blackhole),
        Some(_) => Ok(()),
        None => Err(Reason::NoRoute),
    }
}
