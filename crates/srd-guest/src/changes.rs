//! Changes of what there is: another VPC file, an instance more or less.
//!
//! ```text
//!  asked --> namespaces that are new: made on another thread --> rules and instances, at once
//!        \-- none -------------------------------------------/
//! ```
//!
//! Packets go on while namespaces are made, by the rules before; other changes wait. A change that
//! fails while they are made has changed nothing. An instance whose type or addresses are others is
//! removed and made again within the change itself.

use std::sync::mpsc::{SendError, Sender};

use anyhow::Result;
use srd_net::clock;
use srd_proto::time::Instant;
use srd_vpc_file::VpcFile;

use crate::guests::check;
use crate::namespace;
use crate::orders::Command;
use crate::pending::{Change, Then};
use crate::place::Places;
use crate::protocol::{Answer, Attach, NamespaceName};
use crate::state::Service;
use crate::world::Vpc;

impl Service {
    /// The next command that may be obeyed in this turn.
    pub(crate) fn next_command(&mut self) -> Option<Command> {
        self.changes.next_of_turn(&self.commands)
    }

    pub(crate) fn replace_file(
        &mut self,
        now: Instant,
        file: VpcFile,
        began: Instant,
        back: Sender<Answer>,
    ) {
        let vpc = self.vpc.replaced(file);
        self.change(now, vpc, Then::Applied(began, back));
    }

    pub(crate) fn attach(
        &mut self,
        now: Instant,
        attach: &Attach,
        back: Sender<Result<String, String>>,
    ) {
        let mut vpc = self.vpc.clone();
        // Programs of one that has ended may still have its namespace.
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

    /// Takes another VPC, at once if no namespace is to be made for it.
    fn change(&mut self, now: Instant, vpc: Result<Vpc>, then: Then) {
        let wanted = vpc.and_then(|vpc| {
            let world = vpc.world();
            check(&world, &self.options.host)?;
            let wanted = self.wanted(&world)?;
            Ok((vpc, wanted))
        });
        match wanted {
            Ok((vpc, wanted)) if wanted.is_empty() => {
                let done = self.apply_or_stay(now, vpc, Places::new());
                self.say(now, then, done);
            }
            Ok((vpc, wanted)) => match self.maker.make(wanted) {
                Ok(()) => self.changes.under_way = Some(Change { vpc, then }),
                Err(error) => self.say(now, then, Err(error)),
            },
            Err(error) => self.say(now, then, Err(error)),
        }
    }

    /// The namespaces of the change that is under way are there, or cannot be.
    pub(crate) fn made(&mut self, now: Instant, made: Result<Places>) {
        let Some(Change { vpc, then }) = self.changes.under_way.take() else { return };
        let done = made.and_then(|places| self.apply_or_stay(now, vpc, places));
        self.say(now, then, done);
    }

    /// Takes another VPC, or stays with this one if that fails.
    fn apply_or_stay(&mut self, now: Instant, vpc: Vpc, places: Places) -> Result<()> {
        let before = self.vpc.clone();
        self.apply(now, vpc, places).map_err(|error| match self.apply(now, before, Places::new()) {
            Ok(()) => error,
            Err(also) => {
                error.context(format!("the rules before are in force again, but: {also:#}"))
            }
        })
    }

    fn say(&mut self, now: Instant, then: Then, done: Result<()>) {
        match then {
            Then::Applied(began, back) => {
                let microseconds = clock::now().since(began).as_nanos() / 1000;
                let answer = done.map(|()| Answer::Applied { microseconds });
                let failed = |error| Answer::Failed { what: format!("{error:#}") };
                let _ = back.send(answer.unwrap_or_else(failed));
            }
            Then::Attached(name, back) => {
                let answer = done.map(|()| name).map_err(|error| format!("{error:#}"));
                // A connection that does not wait any more has ended, and its instance with it.
                if let Err(SendError(Ok(name))) = back.send(answer) {
                    self.detach(now, &name);
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
