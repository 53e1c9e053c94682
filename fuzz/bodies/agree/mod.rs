//! The fuzz target that compares the rules with the card. The bytes create a small cloud and flows
//! in it. The cards of two hosts must treat each flow, its answer and its fragments as `explain`
//! predicts, and for the same reason.

mod cards;
mod cloud;

use srd_card::vpc::Cause;
use srd_card::vpc::nat::NatError;
use srd_vpc::judge::{
    Connection, Judgement, Origin, Reason, Step, Translator, Verdict, connection_by_port,
    judge_flow,
};
use srd_vpc::object::World;
use srd_vpc::packet::{Inner, Packet};

use cards::{Cards, Ended, frames};
use cloud::Tape;

/// Maximum number of flows of one input. More flows would only be slow.
const FLOWS_MAX: u16 = 24;

/// Number of packets for each kind of result.
#[derive(Default, Debug)]
pub(crate) struct Reached {
    pub(crate) answered: u32,
    pub(crate) left: u32,
    pub(crate) by_nat: u32,
    pub(crate) dropped: u32,
    /// Answers that take another way than the packet.
    pub(crate) other_ways: u32,
    pub(crate) reasons: std::collections::BTreeSet<Reason>,
}

/// Creates a cloud from the bytes, sends flows through the cards, and compares the results with the
/// predictions.
pub(crate) fn agree(bytes: &[u8]) -> Reached {
    agree_with(bytes, 1)
}

/// Compares as [`agree`] does. Each host has this number of workers, which has no effect on the
/// results.
pub(crate) fn agree_with(bytes: &[u8], workers: u8) -> Reached {
    let mut tape = Tape(bytes);
    let world = cloud::world(&mut tape);
    let mut cards = Cards::new(&world, tape.one_in(2), workers);
    let mut reached = Reached::default();
    for number in 0..FLOWS_MAX {
        if tape.0.is_empty() {
            break;
        }
        let flow = cloud::flow(&mut tape, &world, number);
        one(&world, &mut cards, (flow, number), &mut reached);
    }
    reached
}

/// A flow, and whether its packets are fragments.
pub(crate) type Flow = (Origin, Packet, bool);

fn is_by_nat(judgement: &Judgement) -> bool {
    let by = |step: &Step| matches!(step, Step::Source4 { by: Translator::NatGateway(_), .. });
    judgement.steps.iter().any(by)
}

fn one(
    world: &World,
    cards: &mut Cards,
    ((origin, packet, is_cut), number): (Flow, u16),
    reached: &mut Reached,
) {
    let Connection { first, .. } = connection_by_port(world, origin, &packet, None);
    let by_nat = is_by_nat(&first);
    // A NAT gateway only passes fragments of UDP.
    let is_cut = is_cut && (!by_nat || matches!(packet.inner, Inner::Udp(..)));
    let mut arrived = Vec::new();
    for frame in frames(&packet, is_cut, number + 9) {
        let ended = cards.send(origin, frame);
        check(&first, &ended, "the first packet");
        arrived.push(ended);
    }
    let Some(there) = arrived.first() else { return };
    reached.by_nat += u32::from(by_nat && first.passes());
    if let Verdict::Dropped(reason) = first.verdict {
        reached.dropped += 1;
        reached.reasons.insert(reason);
    }
    let Some(answer) = there.answer() else { return };
    reached.left += u32::from(matches!(first.verdict, Verdict::Left(_)));
    let port = there.nat_port(&packet, by_nat);
    let connection = connection_by_port(world, origin, &packet, port);
    let Some(wanted) = connection.answer else { return };
    if let Verdict::Dropped(reason) = wanted.verdict {
        reached.reasons.insert(reason);
    }
    let is_cut = is_cut && !matches!(answer.1.inner, Inner::Tcp(..));
    let answers = frames(&answer.1, is_cut, there.echo_id().unwrap_or(number));
    for (at, frame) in answers.into_iter().enumerate() {
        let ended = cards.send(answer.0, frame);
        match wanted.verdict {
            Verdict::Dropped(Reason::AnotherWayBack) => {
                check_another_way((origin, &packet), &wanted, &ended);
                reached.other_ways += 1;
                continue;
            }
            Verdict::Dropped(Reason::OpensNoConnection) => {
                check_reset(world, (answer.0, &answer.1), &wanted, &ended);
                continue;
            }
            _ => {}
        }
        // T1: a NAT gateway drops a first fragment that the ACL of its subnet refuses, and does
        // not store it.
        let is_refused = matches!(wanted.verdict, Verdict::Dropped(_));
        if !(at > 0 && by_nat && is_refused && is_headless(&ended)) {
            check(&wanted, &ended, "the answer");
        }
        reached.answered += u32::from(matches!(ended, Ended::At(..)));
    }
}

/// Whether a later fragment was dropped because its first fragment is missing.
fn is_headless(ended: &Ended) -> bool {
    matches!(ended, Ended::Dropped(causes) if causes.contains(&Cause::FirstFragment))
}

/// Checks the end of an answer that takes another way than the first packet `sent`. The sender of
/// that packet must not receive the answer as a part of its flow: the rules or a NAT gateway drop
/// the answer, or it arrives at another end, or with other addresses or ports. `explain` assumes
/// that each interface tracks the connection, so the card may drop the answer by the rules of
/// groups.
fn check_another_way((origin, sent): (Origin, &Packet), wanted: &Judgement, ended: &Ended) {
    let agrees = match ended {
        Ended::Dropped(_) if is_headless(ended) => true,
        Ended::Dropped(causes) => causes
            .iter()
            .any(|cause| matches!(cause, Cause::Rule(_) | Cause::Nat(_) | Cause::NoNatConnection)),
        Ended::At(..) | Ended::Left(..) => match ended.answer() {
            Some((at, packet)) => (at, packet) != (origin, *sent),
            // A later fragment has no ports; the first fragment was checked.
            None => true,
        },
        Ended::Served(_) => false,
    };
    assert!(agrees, "the answer: explain says {wanted:#?}; the card: {ended:?}");
}

/// Checks the end of the answer `sent` of a TCP connection that reaches a NAT gateway which the
/// connection did not pass. The sender gets a reset, or the gateway of the internet's edge drops
/// the answer. The card evaluates the rules behind the gateway first, so the answer may also be
/// dropped by the rule that drops a segment which opens a connection.
fn check_reset(
    world: &World,
    (origin, sent): (Origin, &Packet),
    wanted: &Judgement,
    ended: &Ended,
) {
    let agrees = match ended {
        Ended::At(eni, _) => Origin::Eni(*eni) == origin && ended.is_reset_of(sent),
        Ended::Dropped(causes) if causes.contains(&Cause::Nat(NatError::NoConnection)) => true,
        Ended::Dropped(_) => {
            let behind = judge_flow(world, origin, sent, &|_, _, _| true);
            agree_on(&behind, ended)
        }
        Ended::Left(..) | Ended::Served(_) => false,
    };
    assert!(agrees, "the answer: explain says {wanted:#?}; the card: {ended:?}");
}

fn check(wanted: &Judgement, ended: &Ended, what: &str) {
    assert!(agree_on(wanted, ended), "{what}: explain says {wanted:#?}; the card: {ended:?}");
}

/// Whether the card has treated a packet as `explain` predicts, and for the same reason.
fn agree_on(wanted: &Judgement, ended: &Ended) -> bool {
    match (wanted.verdict, ended) {
        (Verdict::Delivered(eni), Ended::At(at, _)) => eni == *at,
        (Verdict::Left(exit), Ended::Left(by, ..)) => exit == *by,
        (Verdict::Served(service), Ended::Served(by)) => service == *by,
        (Verdict::Dropped(reason), Ended::Dropped(causes)) => match reason {
            // The gateway has no such connection. It reports this as a separate cause.
            Reason::OutwardsOnly => {
                causes.contains(&Cause::NoNatConnection) || causes.contains(&Cause::Rule(reason))
            }
            // V1
            Reason::ToItself => causes.contains(&Cause::Malformed),
            reason => causes.contains(&Cause::Rule(reason)),
        },
        _ => false,
    }
}
