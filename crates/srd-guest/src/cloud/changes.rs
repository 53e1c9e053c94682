//! Changes of the configuration: another VPC file, an added or a removed instance.
//!
//! ```text
//!  request --> new objects: made by the helper --> rules and instances, at once --> done
//!          \-- none needed ----------------------/        \--> instances made again --/
//!              with several workers, all have their
//!              objects before the rules of one change
//! ```
//!
//! While new objects are made, packets continue under the previous rules, and other changes wait. A
//! change that fails in this phase has changed nothing. With several workers, a worker waits there
//! for the others, and gives its objects back if one of them fails. An instance whose type or
//! addresses differ is removed when the rules are in force, and then made again. If that fails, the
//! previous rules are put in force again. The loop does not wait for the helper.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::mpsc::{SendError, Sender};

use anyhow::{Error, Result};
use srd_net::clock;
use srd_proto::time::Instant;

use crate::cloud::file::check_instances;
use crate::cloud::guests::check;
use crate::cloud::pending::{Applied, Change, Objects, Step, Then};
use crate::cloud::world::Vpc;
use crate::control::orders::{Command, Progress, Repair, RulesChange, RulesReply};
use crate::control::protocol::{Answer, Attach, NamespaceName};
use crate::machine::maker::Needs;
use crate::machine::namespace;
use crate::machine::place::Places;
use crate::state::Service;

impl Service {
    /// Returns the next command that may run in this turn of the loop, if there is one.
    pub(crate) fn next_command(&mut self) -> Option<Command> {
        self.changes.next_of_turn(&self.commands)
    }

    pub(crate) fn replace_file(&mut self, now: Instant, change: RulesChange) {
        let RulesChange { file, began, removes_all, back, go } = change;
        let is_new = !self.vpc.is_same_file(&file);
        let ends_some = !removes_all && !self.vpc.file().world.instances.is_empty();
        let vpc = check_instances(&file, ends_some).and_then(|()| self.vpc.replaced(file));
        let before = self.guests.by_name.keys().cloned().collect();
        let applied = Applied { began, is_new, before, back, go };
        self.change(now, vpc, Then::Applied(applied));
    }

    pub(crate) fn attach(
        &mut self,
        now: Instant,
        attach: &Attach,
        back: Sender<Result<String, String>>,
    ) {
        let mut vpc = self.vpc.clone();
        // Programs of an ended instance may still hold its namespace.
        let is_taken = |name: &str| {
            NamespaceName::of_instance(name).is_some_and(|of| namespace::path_of(&of).exists())
        };
        let (vpc, name) = match vpc.attach(attach, is_taken) {
            Ok(name) => (Ok(vpc), name),
            Err(error) => (Err(error), String::new()),
        };
        self.change(now, vpc, Then::Attached(name, back));
    }

    pub(crate) fn detach(&mut self, now: Instant, name: &str) {
        let mut vpc = self.vpc.clone();
        vpc.detach(name);
        self.change(now, Ok(vpc), Then::Detached(name.to_owned()));
    }

    /// Remembers which worker has which instance of the objects in force.
    pub(crate) fn keep_workers(&self) {
        if let Some(workers) = self.vpc.workers() {
            workers.keep(&self.world);
        }
    }

    /// Puts another VPC in force: at once if it needs no new objects, otherwise when the helper has
    /// created them.
    fn change(&mut self, now: Instant, vpc: Result<Vpc>, then: Then) {
        // An instance of a file takes over a namespace that a card has left to its programs, and an
        // instance of `srd run` does not.
        let may_find = !matches!(&then, Then::Attached(..));
        let needs = vpc.and_then(|vpc| {
            let world = vpc.world();
            check(&vpc, &world)?;
            let mut needs = self.needs(&world)?;
            needs.wanted.iter_mut().for_each(|of| of.may_find |= may_find);
            Ok((vpc, needs))
        });
        match needs {
            Ok((vpc, needs)) if needs.is_empty() => {
                self.proceed(now, vpc, Objects::default(), then);
            }
            Ok((vpc, needs)) => self.make_for(now, Step::Begins(vpc), needs, then),
            Err(error) => self.say(now, then, Err(error)),
        }
    }

    /// Continues a change whose objects are there: puts its VPC in force, or waits until the other
    /// workers have their objects as well.
    fn proceed(&mut self, now: Instant, vpc: Vpc, objects: Objects, then: Then) {
        match &then {
            Then::Applied(Applied { go: Some(_), back, .. }) => {
                // Without a receiver, the change was given up: this is seen below.
                let _ = back.send(Progress::Ready);
                let step = Step::Waits(vpc, objects);
                self.changes.under_way = Some(Change { step, then, names: BTreeSet::new() });
                self.follow_decision(now);
            }
            _ => {
                let places = self.accept(objects);
                self.take(now, vpc, places, then, None);
            }
        }
    }

    /// Continues the change that waits for the other workers, if a decision about it has arrived:
    /// puts its VPC in force, or gives its objects back.
    pub(crate) fn follow_decision(&mut self, now: Instant) {
        let Some(goes_on) = self.changes.decision() else { return };
        let Some(Change { step, then, .. }) = self.changes.under_way.take() else { return };
        let Step::Waits(vpc, objects) = step else { return };
        if goes_on {
            let places = self.accept(objects);
            return self.take(now, vpc, places, then, None);
        }
        let Objects { places, routed, .. } = objects;
        places.into_values().for_each(|place| self.maker.remove(place));
        if !routed.is_empty()
            && let Err(error) = self.maker.route(BTreeSet::new(), routed)
        {
            tracing::warn!("routes of public addresses stay: {error:#}");
        }
        self.say(now, then, Err(anyhow::anyhow!("another worker cannot make this change")));
    }

    /// Records the objects that were made for a change. Returns the networks.
    fn accept(&mut self, objects: Objects) -> Places {
        let Objects { places, routed, names } = objects;
        if let Some(edge) = &mut self.gateways.edge {
            edge.has_routed(routed);
        }
        let is_left_out = |name: &String| !places.contains_key(name);
        self.guests.left_out.extend(names.into_iter().filter(is_left_out));
        places
    }

    /// Sends the helper a request to create the objects that a change needs.
    fn make_for(&mut self, now: Instant, step: Step, needs: Needs, then: Then) {
        let wanted = needs.wanted.iter().map(|of| of.name.clone());
        let names = wanted.chain(needs.sockets.iter().map(|(name, _)| name.clone())).collect();
        match self.maker.make(needs) {
            Ok(()) => self.changes.under_way = Some(Change { step, then, names }),
            Err(error) => self.failed(now, step, then, error),
        }
    }

    /// Continues the change under way, after the helper has created its namespaces, devices and
    /// routes, or has failed.
    pub(crate) fn made(&mut self, now: Instant, made: Result<(Places, BTreeSet<Ipv4Addr>)>) {
        let Some(Change { step, then, names }) = self.changes.under_way.take() else { return };
        let objects = match made {
            Ok((places, routed)) => Objects { places, routed, names },
            Err(error) => return self.failed(now, step, then, error),
        };
        match step {
            Step::Begins(vpc) => self.proceed(now, vpc, objects, then),
            Step::Finishes { before, why } => {
                let places = self.accept(objects);
                match (self.finish(now, places), why) {
                    (Ok(()), None) => self.say(now, then, Ok(())),
                    (Ok(()), Some(why)) => self.say(now, then, Err(why)),
                    (Err(error), why) => {
                        self.failed(now, Step::Finishes { before, why }, then, error);
                    }
                }
            }
            // Nothing is made for a change that waits for other workers.
            Step::Waits(..) => {
                self.changes.under_way = Some(Change { step, then, names: objects.names });
            }
        }
    }

    fn finish(&mut self, now: Instant, places: Places) -> Result<()> {
        self.make_guests(now, places)?;
        self.settle_guests(now);
        Ok(())
    }

    /// Handles the failure of a step of a change.
    fn failed(&mut self, now: Instant, step: Step, then: Then, error: Error) {
        match step {
            Step::Begins(_) | Step::Waits(..) => self.say(now, then, Err(error)),
            Step::Finishes { before, why: None } => {
                self.take(now, before, Places::new(), then, Some(error));
            }
            Step::Finishes { why: Some(why), .. } => {
                let also = format!("the rules before are in force again, but: {error:#}");
                self.say(now, then, Err(why.context(also)));
            }
        }
    }

    /// Puts another VPC in force, or keeps the current VPC if that fails. `why`: the error of a
    /// change that failed and is reverted; `vpc` is then the VPC before that change.
    fn take(&mut self, now: Instant, vpc: Vpc, places: Places, then: Then, why: Option<Error>) {
        let before = self.vpc.clone();
        let done = self.apply(now, vpc, places).and_then(|()| self.needs_again());
        match done {
            Ok(needs) if needs.is_empty() => self.say(now, then, why.map_or(Ok(()), Err)),
            Ok(needs) => self.make_for(now, Step::Finishes { before, why }, needs, then),
            Err(error) => self.failed(now, Step::Finishes { before, why }, then, error),
        }
    }

    /// After a take-over, removes instances that the VPC in force does not contain in this form,
    /// and starts the instances that are missing.
    pub(crate) fn begin_guests(&mut self, now: Instant) {
        let vpc = self.vpc.clone();
        self.remove_guests(now);
        self.change(now, Ok(vpc), Then::Begun);
    }

    /// Begins to restore the parts of the instances that other programs have changed.
    fn restore(&self) -> Repair {
        let (repair, back) = Repair::new();
        let running = self.guests.by_name.values().filter_map(|running| {
            let devices = running.interfaces.iter().map(|(.., device)| device.clone()).collect();
            Some((running.namespace.as_ref()?.name().clone(), devices))
        });
        if let Err(error) = self.maker.restore(running.collect(), back.clone()) {
            let left = format!("what other programs have changed of instances stays so: {error:#}");
            tracing::warn!("{left}");
            let _ = back.send(vec![left]);
        }
        repair
    }

    fn say(&mut self, now: Instant, then: Then, done: Result<()>) {
        match then {
            Then::Applied(Applied { began, is_new, before, back, .. }) => {
                let microseconds = clock::now().since(began).as_nanos() / 1000;
                let has_gone = |name: &String| !self.guests.by_name.contains_key(name);
                let removed = before.into_iter().filter(has_gone).collect();
                let (answer, repair) = match done {
                    Ok(()) => {
                        (Answer::Applied { microseconds, is_new, removed }, Some(self.restore()))
                    }
                    Err(error) => (Answer::Failed { what: format!("{error:#}") }, None),
                };
                let _ = back.send(Progress::Ended(Box::new(RulesReply { answer, repair })));
            }
            Then::Attached(name, back) => {
                let answer = done.map(|()| name).map_err(|error| format!("{error:#}"));
                // A connection that no longer waits has ended, and its instance with it.
                if let Err(SendError(Ok(name))) = back.send(answer) {
                    self.detach(now, &name);
                }
            }
            Then::Begun => {
                if let Err(error) = done {
                    tracing::error!("the rules of the new file: {error:#}; all else goes on");
                }
            }
            Then::Detached(name) => {
                if let Err(error) = done {
                    tracing::warn!("removing the instance `{name}`: {error:#}");
                }
            }
        }
    }
}
