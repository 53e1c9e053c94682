//! Changes that go to the loops of all workers: rules of another file, an added or a removed
//! instance. All workers make the same changes in the same order, so that all of them have the same
//! objects. With one worker, these are plain commands.
//!
//! A change is complete when all workers have made it. If one of them cannot make it, the others
//! revert it.

use std::sync::mpsc::channel;
use std::sync::{Arc, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use srd_proto::time::Instant;
use srd_vpc_file::VpcFile;

use crate::control::orders::{Command, Orders, Repair, RulesReply, hand, receive};
use crate::control::protocol::{Answer, Attach};

/// The file in force at all workers. No other change goes to the workers until this is dropped.
type Changing<'a> = MutexGuard<'a, Option<Arc<VpcFile>>>;

fn begin(orders: &Orders) -> Changing<'_> {
    orders.in_force.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts the rules of a file in force at all workers (W5). The answer is [`Answer::Applied`], or the
/// failure of a worker; then the file before is in force again. The repair is that of all workers.
pub(crate) fn apply(orders: &Orders, file: VpcFile, began: Instant) -> Result<RulesReply> {
    let file = Arc::new(file);
    if !orders.are_several() {
        let (back, answer) = channel();
        return hand(orders, Command::Apply(file, began, back), &answer);
    }
    let mut in_force = begin(orders);
    let answers = apply_to(orders.all(), &file, began);
    let failure = answers.iter().find_map(|reply| match reply.as_ref().map(|of| &of.answer) {
        Ok(Answer::Applied { .. }) => None,
        Ok(Answer::Failed { what }) => Some(what.clone()),
        Ok(_) => Some(String::from("a worker answers something else")),
        Err(error) => Some(format!("{error:#}")),
    });
    let Some(what) = failure else {
        *in_force = Some(file);
        return Ok(of_all(answers));
    };
    // A worker without an answer may still make the change. It then makes the next one after it.
    let is_refused = |reply: &Result<RulesReply>| {
        reply.as_ref().is_ok_and(|of| matches!(of.answer, Answer::Failed { .. }))
    };
    let changed = orders.all().zip(&answers).filter(|(_, reply)| !is_refused(reply));
    let changed: Vec<&Orders> = changed.map(|(orders, _)| orders).collect();
    let reverted = match &*in_force {
        Some(before) => apply_to(changed.into_iter(), before, began),
        None => Vec::new(),
    };
    let what = match reverted.iter().all(is_applied) {
        true => what,
        false => format!(
            "{what}; some workers have the new rules, and others the rules before: apply a file \
             that is right"
        ),
    };
    Ok(RulesReply { answer: Answer::Failed { what }, repair: None })
}

fn is_applied(reply: &Result<RulesReply>) -> bool {
    reply.as_ref().is_ok_and(|of| matches!(of.answer, Answer::Applied { .. }))
}

/// Sends a file to workers, and returns their answers in order.
fn apply_to<'a>(
    orders: impl Iterator<Item = &'a Orders>,
    file: &Arc<VpcFile>,
    began: Instant,
) -> Vec<Result<RulesReply>> {
    let asked = orders.map(|orders| {
        let (back, answer) = channel();
        (orders.give(Command::Apply(Arc::clone(file), began, back)), answer)
    });
    // All of them begin before the first answer is awaited.
    let asked: Vec<_> = asked.collect();
    asked.into_iter().map(|(is_given, answer)| receive(is_given, &answer)).collect()
}

/// Returns the answer of the worker that took longest, and the repairs of all workers as one.
fn of_all(replies: Vec<Result<RulesReply>>) -> RulesReply {
    let took = |answer: &Answer| match answer {
        Answer::Applied { microseconds, .. } => *microseconds,
        _ => 0,
    };
    let all = replies.into_iter().flatten().map(|of| (of.answer, of.repair));
    let (answers, repairs): (Vec<Answer>, Vec<Option<Repair>>) = all.unzip();
    let longest = answers.into_iter().max_by_key(took);
    let answer = longest.unwrap_or(Answer::Applied { microseconds: 0, is_new: false });
    RulesReply { answer, repair: Some(Repair::of_workers(repairs.into_iter().flatten())) }
}

/// Adds an instance. Returns its name, or the reason of the failure.
pub(crate) fn attach(orders: &Orders, attach: Attach) -> Result<Result<String, String>> {
    let attach_to = |orders: &Orders, attach: Attach| {
        let (back, made) = channel();
        hand(orders, Command::Attach(attach, back), &made)
    };
    if !orders.are_several() {
        return attach_to(orders, attach);
    }
    let _changing = begin(orders);
    // The first worker chooses the name, if none is given.
    let name = match attach_to(orders, attach.clone())? {
        Ok(name) => name,
        Err(what) => return Ok(Err(what)),
    };
    for further in orders.all().skip(1) {
        let named = Attach { name: Some(name.clone()), ..attach.clone() };
        match attach_to(further, named) {
            Ok(Ok(_)) => {}
            failed => {
                detach_from_all(orders, &name);
                return failed.with_context(|| format!("instance `{name}`"));
            }
        }
    }
    Ok(Ok(name))
}

/// Removes an added instance.
pub(crate) fn detach(orders: &Orders, name: &str) {
    let changing = orders.are_several().then(|| begin(orders));
    detach_from_all(orders, name);
    drop(changing);
}

fn detach_from_all(orders: &Orders, name: &str) {
    for orders in orders.all() {
        orders.give(Command::Detach(name.to_owned()));
    }
}
