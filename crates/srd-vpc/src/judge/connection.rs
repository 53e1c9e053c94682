//! A packet and its answer: access control lists remember nothing, so a connection needs both.

use super::acl;
use super::groups::Direction;
use super::route;
use super::step::{Exit, Judgement, Origin, Reason, Step, Verdict};
use super::walk::{judge, judge_flow};
use crate::id::SubnetId;
use crate::object::{Target, World};
use crate::packet::Packet;

/// What happens to a connection's first packet, and to its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The first packet.
    pub first: Judgement,
    /// The answer, if the first packet arrived somewhere that answers.
    pub answer: Option<Judgement>,
}

impl Connection {
    /// Whether both directions pass.
    pub fn works(&self) -> bool {
        self.first.passes() && self.answer.as_ref().is_none_or(Judgement::passes)
    }
}

/// Judges the first packet of a connection and, if it arrives, its answer.
pub fn connection(world: &World, origin: Origin, packet: &Packet) -> Connection {
    let first = judge(world, origin, packet);
    let answer = match first.verdict {
        Verdict::Dropped(_) | Verdict::Served(_) => None,
        Verdict::Delivered(eni) => {
            let mut answer =
                judge_flow(world, Origin::Eni(eni), &first.packet.answer(), &|_, _, _| true);
            // Both addresses are those that the other end knows, or it takes the answer for
            // something else.
            if answer.passes() && answer.packet != packet.answer() {
                answer.verdict = Verdict::Dropped(Reason::AnotherWayBack);
                answer.reach = None;
            }
            Some(answer)
        }
        Verdict::Left(exit) => Some(back_in(world, &first, exit)),
    };
    Connection { first, answer }
}

/// The answer to a packet that left goes back through the lists that the packet went through.
fn back_in(world: &World, first: &Judgement, exit: Exit) -> Judgement {
    let mut answer = Judgement {
        steps: alloc::vec::Vec::new(),
        verdict: Verdict::Left(exit),
        packet: first.packet.answer(),
        reach: first.reach,
    };
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

/// Asks the list of a subnet, and for what leaves the subnet its route.
fn ask(
    world: &World,
    subnet: SubnetId,
    direction: Direction,
    packet: &Packet,
    answer: &mut Judgement,
) -> Result<(), Reason> {
    let missing = Reason::Missing(super::step::Gone::Subnet);
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
