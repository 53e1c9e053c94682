//! Changes that go to the loops of all workers: rules of another file, an added or a removed
//! instance. All workers make the same changes in the same order, so that all of them have the same
//! objects. With one worker, these are plain commands.
//!
//! ```text
//!  rules of a file --> each worker makes its objects --> all have them: rules at each worker
//!                                                   \--> one has failed: all objects given back
//! ```
//!
//! So a refused file ends no instance of another worker. A change is complete when all workers have
//! made it; only then does an instance have its worker for good. If one of them fails in the second
//! step, the others revert it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant as WallInstant;

use anyhow::{Context, Result, bail};
use srd_proto::time::Instant;
use srd_vpc_file::VpcFile;

use crate::control::orders::{
    CHANGE_WAIT_MAX, Command, Orders, Progress, Repair, RulesChange, RulesReply, hand,
    receive_change,
};
use crate::control::protocol::{Answer, Attach};

/// The file in force at all workers. No other change goes to the workers until this is dropped.
type Changing<'a> = MutexGuard<'a, Option<Arc<VpcFile>>>;

fn begin(orders: &Orders) -> Changing<'_> {
    orders.in_force.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part of one worker in a change of rules.
struct Part<'a> {
    orders: &'a Orders,
    /// Whether the worker will receive the command.
    is_given: bool,
    progress: Receiver<Progress>,
    /// For a change in two steps that has not been decided: the way to put the rules in force.
    go: Option<Sender<()>>,
}

/// Number of steps of a change of rules at one worker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The rules are in force as soon as the worker has its objects.
    OneStep,
    /// The worker waits for the others between the steps.
    TwoSteps,
}

impl<'a> Part<'a> {
    /// Sends a worker the command to put the rules of a file in force. `removes_all`: whether a
    /// file without instances may end all instances.
    fn begin(
        orders: &'a Orders,
        file: &Arc<VpcFile>,
        removes_all: bool,
        began: Instant,
        kind: Kind,
    ) -> Self {
        let (back, progress) = channel();
        let (go, decided) = (kind == Kind::TwoSteps).then(channel).unzip();
        let file = Arc::clone(file);
        let change = RulesChange { file, began, removes_all, back, go: decided };
        let is_given = orders.give(Command::Apply(change));
        Self { orders, is_given, progress, go }
    }

    /// Waits for the end of the first step. Returns the reason if the worker has failed.
    fn failure(&self, until: WallInstant) -> Option<String> {
        match self.next(until) {
            Ok(Progress::Ready) => None,
            Ok(Progress::Ended(reply)) => Some(match reply.answer {
                Answer::Failed { what } => what,
                _ => String::from("a worker has not waited for the others"),
            }),
            Err(error) => Some(format!("{error:#}")),
        }
    }

    /// Begins the second step.
    fn go(&mut self) {
        if let Some(go) = self.go.take() {
            // A worker that has ended gives no answer.
            let _ = go.send(());
            self.orders.wake();
        }
    }

    /// Waits for the end of the last step.
    fn end(&self, until: WallInstant) -> Result<RulesReply> {
        match self.next(until)? {
            Progress::Ended(reply) => Ok(*reply),
            Progress::Ready => bail!("a worker waits for the others"),
        }
    }

    fn next(&self, until: WallInstant) -> Result<Progress> {
        receive_change(self.orders, self.is_given, &self.progress, until)
    }
}

impl Drop for Part<'_> {
    /// The worker gives its objects back, unless the second step has begun.
    fn drop(&mut self) {
        if let Some(go) = self.go.take() {
            drop(go);
            self.orders.wake();
        }
    }
}

/// Returns the end of the longest wait for a step that begins now.
fn end_of_step() -> WallInstant {
    WallInstant::now() + CHANGE_WAIT_MAX
}

/// Puts the rules of a file in force at all workers (W5). The answer is [`Answer::Applied`], or the
/// failure of a worker; then the file before is in force. The repair is that of all workers.
/// `removes_all`: whether a file without instances may end all instances; otherwise it is refused
/// if there are some.
pub(crate) fn apply(
    orders: &Orders,
    file: VpcFile,
    began: Instant,
    removes_all: bool,
) -> Result<RulesReply> {
    let file = Arc::new(file);
    if !orders.are_several() {
        let part = Part::begin(orders, &file, removes_all, began, Kind::OneStep);
        return part.end(end_of_step());
    }
    let mut in_force = begin(orders);
    let part = |orders| Part::begin(orders, &file, removes_all, began, Kind::TwoSteps);
    let begun = orders.all().map(part);
    // All of them begin before the first answer is awaited.
    let mut parts: Vec<Part<'_>> = begun.collect();
    let until = end_of_step();
    if let Some(what) = parts.iter().find_map(|part| part.failure(until)) {
        return Ok(RulesReply { answer: Answer::Failed { what }, repair: None });
    }
    parts.iter_mut().for_each(Part::go);
    let until = end_of_step();
    let answers: Vec<Result<RulesReply>> = parts.iter().map(|part| part.end(until)).collect();
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
    let what = match in_force.as_ref().is_none_or(|before| revert(&parts, &answers, before, began))
    {
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

/// Puts the file before in force again at the workers that have not refused the change. Returns
/// whether all of them have done so.
fn revert(
    parts: &[Part<'_>],
    answers: &[Result<RulesReply>],
    before: &Arc<VpcFile>,
    began: Instant,
) -> bool {
    // A worker without an answer may still make the change. It then makes the next one after it.
    let is_refused = |reply: &Result<RulesReply>| {
        reply.as_ref().is_ok_and(|of| matches!(of.answer, Answer::Failed { .. }))
    };
    let changed = parts.iter().zip(answers).filter(|(_, reply)| !is_refused(reply));
    let changed: Vec<Part<'_>> = changed
        .map(|(part, _)| Part::begin(part.orders, before, true, began, Kind::OneStep))
        .collect();
    let until = end_of_step();
    // The end of each of them is awaited.
    let reverted: Vec<bool> = changed.iter().map(|part| is_applied(&part.end(until))).collect();
    reverted.into_iter().all(|is_applied| is_applied)
}

fn is_applied(reply: &Result<RulesReply>) -> bool {
    reply.as_ref().is_ok_and(|of| matches!(of.answer, Answer::Applied { .. }))
}

/// Returns the answer of the worker that took longest, with the instances that all workers have
/// removed, and the repairs of all workers as one.
fn of_all(replies: Vec<Result<RulesReply>>) -> RulesReply {
    let took = |answer: &Answer| match answer {
        Answer::Applied { microseconds, .. } => *microseconds,
        _ => 0,
    };
    let all = replies.into_iter().flatten().map(|of| (of.answer, of.repair));
    let (answers, repairs): (Vec<Answer>, Vec<Option<Repair>>) = all.unzip();
    let of_worker = |answer: &Answer| match answer {
        Answer::Applied { removed, .. } => removed.clone(),
        _ => Vec::new(),
    };
    let mut all_removed: Vec<String> = answers.iter().flat_map(of_worker).collect();
    all_removed.sort_unstable();
    let longest = answers.into_iter().max_by_key(took);
    let (microseconds, is_new, removed) = (0, false, Vec::new());
    let mut answer = longest.unwrap_or(Answer::Applied { microseconds, is_new, removed });
    if let Answer::Applied { removed, .. } = &mut answer {
        *removed = all_removed;
    }
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
    use super::*;
    use crate::cloud::world::Vpc;
    use crate::control::orders::CommandQueue;
    use srd_net::clock;
    use std::thread;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    /// A worker whose answers the test gives.
    struct Worker(CommandQueue);

    impl Worker {
        fn change(&self) -> RulesChange {
            match self.0.1.recv() {
                Ok(Command::Apply(change)) => change,
                _ => panic!("another command"),
            }
        }
    }

    fn workers() -> (Orders, [Worker; 2]) {
        let file = Arc::new(Vpc::file_of(None).unwrap());
        let all = Orders::of_workers(2, file).unwrap().into_iter().map(Worker);
        let Ok(all) = <[Worker; 2]>::try_from(all.collect::<Vec<_>>()) else { panic!("two") };
        (all[0].0.0.clone(), all)
    }

    fn failed(what: &str) -> Progress {
        let answer = Answer::Failed { what: what.to_owned() };
        Progress::Ended(Box::new(RulesReply { answer, repair: None }))
    }

    fn applied(microseconds: u64) -> Progress {
        let removed = vec![format!("i{microseconds}")];
        let answer = Answer::Applied { microseconds, is_new: true, removed };
        Progress::Ended(Box::new(RulesReply { answer, repair: None }))
    }

    fn apply_default(orders: &Orders) -> Answer {
        apply(orders, Vpc::file_of(None).unwrap(), clock::now(), false).unwrap().answer
    }

    /// A worker put a file in force, and removed instances, before another one reported that it
    /// cannot make its objects.
    #[test]
    fn regression_no_worker_changes_anything_before_all_have_their_objects() {
        let (orders, [first, second]) = workers();
        let asks = thread::spawn({
            let orders = orders.clone();
            move || apply_default(&orders)
        });
        let (one, other) = (first.change(), second.change());
        one.back.send(Progress::Ready).unwrap();
        assert!(one.go.as_ref().unwrap().try_recv().is_err(), "the other one is not ready");
        other.back.send(failed("programs run in it")).unwrap();
        let answer = asks.join().unwrap();
        assert_eq!(answer, Answer::Failed { what: "programs run in it".into() });
        assert!(one.go.unwrap().recv().is_err(), "it gives its objects back");
        assert!(first.0.1.try_recv().is_err() && second.0.1.try_recv().is_err(), "nothing more");

        // Both are ready, so both change.
        let asks = thread::spawn(move || apply_default(&orders));
        let changes = [first.change(), second.change()];
        changes.iter().for_each(|of| of.back.send(Progress::Ready).unwrap());
        for (of, microseconds) in changes.iter().zip([7, 5]) {
            of.go.as_ref().unwrap().recv().unwrap();
            of.back.send(applied(microseconds)).unwrap();
        }
        let removed = ["i5", "i7"].map(String::from).to_vec();
        let wanted = Answer::Applied { microseconds: 7, is_new: true, removed };
        assert_eq!(asks.join().unwrap(), wanted);
        for worker in [first, second] {
            assert!(matches!(worker.0.1.try_recv(), Ok(Command::KeepWorkers)));
        }
    }

    #[test]
    fn a_failure_of_the_second_step_is_reverted_at_the_others() {
        for is_reverted in [true, false] {
            let (orders, [first, second]) = workers();
            let asks = thread::spawn(move || apply_default(&orders));
            let changes = [first.change(), second.change()];
            changes.iter().for_each(|of| of.back.send(Progress::Ready).unwrap());
            changes.iter().for_each(|of| of.go.as_ref().unwrap().recv().unwrap());
            changes[0].back.send(applied(1)).unwrap();
            changes[1].back.send(failed("no device")).unwrap();
            let revert = first.change();
            // The file before may be one without instances.
            assert!(revert.go.is_none() && revert.removes_all && !changes[0].removes_all);
            revert.back.send(if is_reverted { applied(1) } else { failed("no") }).unwrap();
            let Answer::Failed { what } = asks.join().unwrap() else { panic!("it was reverted") };
            assert!(what.starts_with("no device"), "{what}");
            assert_eq!(what.contains("others the rules before"), !is_reverted, "{what}");
            assert!(second.0.1.try_recv().is_err(), "it has refused the change itself");
        }
    }

    /// A worker that cannot add an instance makes the others remove it again.
    #[test]
    fn an_instance_that_a_worker_refuses_is_removed_from_all() {
        for refuses in [false, true] {
            let (orders, queues) = workers();
            let attach = Attach {
                name: None,
                instance_type: String::from("c7i.large"),
                subnet: None,
                groups: Vec::new(),
                peer_of: None,
            };
            let obey = |(number, worker): (usize, Worker)| {
                thread::spawn(move || {
                    let Ok(Command::Attach(attach, back)) = worker.0.1.recv_timeout(LONG) else {
                        panic!("no request for an instance")
                    };
                    // The first worker chooses the name.
                    assert_eq!(attach.name.as_deref(), (number == 1).then_some("run1"));
                    back.send(match refuses && number == 1 {
                        true => Err(String::from("it cannot")),
                        false => Ok(String::from("run1")),
                    })
                    .unwrap();
                    worker
                })
            };
            let threads: Vec<_> = queues.into_iter().enumerate().map(obey).collect();
            let added = super::attach(&orders, attach).unwrap();
            assert_eq!(added.is_err(), refuses);
            for thread in threads {
                let worker = thread.join().unwrap();
                let next = worker.0.1.recv_timeout(LONG).unwrap();
                match refuses {
                    true => assert!(matches!(next, Command::Detach(name) if name == "run1")),
                    false => assert!(matches!(next, Command::KeepWorkers)),
                }
            }
        }
    }
}
