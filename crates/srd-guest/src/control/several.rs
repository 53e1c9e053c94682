//! Changes that go to the loops of all workers: rules of another file, an added or a removed
//! instance. All workers make the same changes in the same order, so that all of them have the same
//! objects. With one worker, these are plain commands.
//!
//! A change is complete when all workers have made it. Only then does an instance have its worker
//! for good. If one of them cannot make it, the others revert it.

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
        keep_workers(orders);
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

/// Makes all workers remember the workers of instances. Each does so before it begins the next
/// change, so all workers divide the instances of that change in the same way.
fn keep_workers(orders: &Orders) {
    for orders in orders.all() {
        orders.give(Command::KeepWorkers);
    }
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
    keep_workers(orders);
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::cloud::world::Vpc;

    const LONG: Duration = Duration::from_secs(60);

    fn file() -> VpcFile {
        Vpc::file_of(None).unwrap()
    }

    /// Returns the orders to the workers of a host, their queues, and the file in force.
    fn workers(count: u8) -> (Orders, Vec<Receiver<Command>>, Arc<VpcFile>) {
        let before = Arc::new(file());
        let queues = Orders::of_workers(count, Arc::clone(&before)).unwrap();
        let (orders, commands): (Vec<_>, Vec<_>) =
            queues.into_iter().map(|(orders, commands, _wake)| (orders, commands)).unzip();
        (orders[0].clone(), commands, before)
    }

    /// Reaction of a worker to a request for other rules.
    #[derive(Clone, Copy)]
    enum Does {
        Applies,
        Refuses,
        /// The worker does not answer in time.
        IsLate,
    }

    /// Takes the next request for other rules, and returns its file.
    fn obey(commands: &Receiver<Command>, does: Does) -> Arc<VpcFile> {
        let Ok(Command::Apply(file, _, back)) = commands.recv_timeout(LONG) else {
            panic!("no request for other rules")
        };
        let answer = match does {
            Does::Applies => Answer::Applied { microseconds: 1, is_new: true },
            Does::Refuses => Answer::Failed { what: String::from("it cannot") },
            // The request has no answer any more.
            Does::IsLate => return file,
        };
        back.send(RulesReply { answer, repair: None }).unwrap();
        file
    }

    /// A file that was applied at several workers.
    struct Applied {
        answer: Answer,
        /// The files that each worker has got.
        files: Vec<Vec<Arc<VpcFile>>>,
        /// Further commands to each worker.
        left: Vec<Vec<Command>>,
        before: Arc<VpcFile>,
        in_force: Arc<VpcFile>,
    }

    /// Applies a file at workers, each of which does this for one request after the other.
    fn applied(does: Vec<Vec<Does>>) -> Applied {
        let (orders, queues, before) = workers(u8::try_from(does.len()).unwrap());
        let start = |(commands, does): (Receiver<Command>, Vec<Does>)| {
            thread::spawn(move || {
                let files: Vec<_> = does.into_iter().map(|does| obey(&commands, does)).collect();
                (files, commands)
            })
        };
        let threads: Vec<_> = queues.into_iter().zip(does).map(start).collect();
        let answer = apply(&orders, file(), Instant::ZERO).unwrap().answer;
        let (mut files, mut left) = (Vec::new(), Vec::new());
        for thread in threads {
            let (of_worker, commands) = thread.join().unwrap();
            files.push(of_worker);
            left.push(commands.try_iter().collect());
        }
        let in_force = begin(&orders).clone().unwrap();
        Applied { answer, files, left, before, in_force }
    }

    fn failure(answer: Answer) -> String {
        match answer {
            Answer::Failed { what } => what,
            other => panic!("{other:?}"),
        }
    }

    /// A worker that had not answered in time kept the rules that another one had refused.
    #[test]
    fn regression_a_late_worker_reverts_rules_that_another_one_refuses() {
        use Does::{Applies, IsLate, Refuses};
        let all = vec![vec![Refuses], vec![IsLate, Applies], vec![Applies, Applies]];
        let Applied { answer, files, left, before, in_force } = applied(all);
        assert_eq!(failure(answer), "it cannot");
        for of in &files[1..] {
            assert!(!Arc::ptr_eq(&of[0], &before) && Arc::ptr_eq(&of[1], &before));
        }
        // The worker that has refused has nothing to revert, and no instance gets its worker.
        assert!(left.iter().all(Vec::is_empty));
        assert!(Arc::ptr_eq(&in_force, &before));
    }

    #[test]
    fn a_worker_that_does_not_revert_rules_is_named() {
        use Does::{IsLate, Refuses};
        let what = failure(applied(vec![vec![Refuses], vec![IsLate, IsLate]]).answer);
        assert!(what.contains("it cannot; some workers have the new rules"), "{what}");
    }

    #[test]
    fn instances_have_their_workers_when_all_workers_have_made_the_change() {
        let Applied { answer, files, left, before, in_force } =
            applied(vec![vec![Does::Applies]; 3]);
        assert!(matches!(answer, Answer::Applied { .. }), "{answer:?}");
        assert!(left.iter().all(|of| matches!(of.as_slice(), [Command::KeepWorkers])));
        assert!(!Arc::ptr_eq(&in_force, &before));
        assert!(files.iter().all(|of| Arc::ptr_eq(&of[0], &in_force)));
    }

    /// A worker that cannot add an instance makes the others remove it again.
    #[test]
    fn an_instance_that_a_worker_refuses_is_removed_from_all() {
        for refuses in [false, true] {
            let (orders, queues, _) = workers(2);
            let attach = Attach {
                name: None,
                instance_type: String::from("c7i.large"),
                subnet: None,
                groups: Vec::new(),
                peer_of: None,
            };
            let obey = |(number, commands): (usize, Receiver<Command>)| {
                thread::spawn(move || {
                    let Ok(Command::Attach(attach, back)) = commands.recv_timeout(LONG) else {
                        panic!("no request for an instance")
                    };
                    // The first worker chooses the name.
                    assert_eq!(attach.name.as_deref(), (number == 1).then_some("run1"));
                    back.send(match refuses && number == 1 {
                        true => Err(String::from("it cannot")),
                        false => Ok(String::from("run1")),
                    })
                    .unwrap();
                    commands
                })
            };
            let threads: Vec<_> = queues.into_iter().enumerate().map(obey).collect();
            let added = super::attach(&orders, attach).unwrap();
            assert_eq!(added.is_err(), refuses);
            for thread in threads {
                let commands = thread.join().unwrap();
                let next = commands.recv_timeout(LONG).unwrap();
                match refuses {
                    true => assert!(matches!(next, Command::Detach(name) if name == "run1")),
                    false => assert!(matches!(next, Command::KeepWorkers)),
                }
            }
        }
    }
}
