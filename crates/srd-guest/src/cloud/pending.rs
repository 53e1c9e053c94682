//! Changes that wait for their namespaces, and for each other.

use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use anyhow::Error;
use srd_proto::time::Instant;

use crate::cloud::world::Vpc;
use crate::control::orders::{Command, Progress};
use crate::machine::place::Places;

/// Maximum number of changes that wait for the change under way. If the list is full, no other
/// command is taken from the queue of the loop either. If this queue is full, threads wait before
/// they add commands.
const WAITING_MAX: usize = 256;
/// Maximum number of commands that run in one turn of the loop, so that many readers do not delay
/// packets.
const COMMANDS_PER_TURN_MAX: u32 = 4;

/// Changes, at most one of which is under way.
#[derive(Default)]
pub(crate) struct Changes {
    /// The change for which the helper is creating namespaces, devices and routes.
    pub(crate) under_way: Option<Change>,
    waiting: VecDeque<Command>,
    /// Number of commands that may still run in this turn of the loop.
    left: u32,
}

/// A change of the configuration, and the answer that is sent at its end.
pub(crate) struct Change {
    pub(crate) step: Step,
    pub(crate) then: Then,
    /// Instances whose networks the helper is creating. If the helper's result does not name an
    /// instance, the network of this instance could not be created, and the instance is not added.
    pub(crate) names: BTreeSet<String>,
}

/// Step of a change, by the objects that the change waits for.
pub(crate) enum Step {
    /// Objects that the VPC needs before its rules are in force.
    Begins(Vpc),
    /// The other workers, which need objects as well. This worker has its own.
    Waits(Vpc, Objects),
    /// The networks of instances that were removed and are created again, while the new rules are
    /// in force.
    Finishes {
        /// The VPC before the change.
        before: Vpc,
        /// The error of the earlier change that this change reverts; `None` if this change reverts
        /// no other change.
        why: Option<Error>,
    },
}

/// Objects that the helper has made for a change.
#[derive(Default)]
pub(crate) struct Objects {
    /// Networks of instances.
    pub(crate) places: Places,
    /// Public addresses that were routed.
    pub(crate) routed: BTreeSet<Ipv4Addr>,
    /// Instances whose networks were requested. Those that are missing from `places` are left out.
    pub(crate) names: BTreeSet<String>,
}

/// The answer at the end of a change.
pub(crate) enum Then {
    /// The answer to a request for other rules.
    Applied(Applied),
    /// The answer to a request for an additional instance. It contains the name of the instance.
    Attached(String, Sender<Result<String, String>>),
    /// No answer: the instance of this name was removed.
    Detached(String),
    /// No answer: a card that has taken over creates objects of its file that the earlier card did
    /// not have.
    Begun,
}

/// A request for other rules.
pub(crate) struct Applied {
    /// Start of the time that the answer contains.
    pub(crate) began: Instant,
    /// Whether the file describes other objects than the file before.
    pub(crate) is_new: bool,
    /// Names of the instances that ran before the change.
    pub(crate) before: BTreeSet<String>,
    /// Receives the progress and the answer.
    pub(crate) back: Sender<Progress>,
    /// The decision of the thread that changes all workers; `None`: this worker alone decides.
    pub(crate) go: Option<Receiver<()>>,
}

impl Changes {
    /// Returns the decision about a change that waits for the other workers: whether its rules are
    /// to be put in force. `None`: there is no such change, or no decision.
    pub(crate) fn decision(&self) -> Option<bool> {
        let Some(Change { step: Step::Waits(..), then: Then::Applied(of), .. }) = &self.under_way
        else {
            return None;
        };
        match of.go.as_ref()?.try_recv() {
            Ok(()) => Some(true),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(false),
        }
    }

    /// Begins a turn of the loop, which may run [`COMMANDS_PER_TURN_MAX`] commands.
    pub(crate) fn begin_turn(&mut self) {
        self.left = COMMANDS_PER_TURN_MAX;
    }

    /// Whether this turn of the loop has run its maximum number of commands, so that further
    /// commands possibly wait for the next turn.
    pub(crate) fn are_left(&self) -> bool {
        self.left == 0
    }

    /// Returns the next command that may run in this turn of the loop, if there is one.
    pub(crate) fn next_of_turn(&mut self, commands: &Receiver<Command>) -> Option<Command> {
        let left = self.left.checked_sub(1)?;
        let next = self.next(commands)?;
        self.left = left;
        Some(next)
    }

    /// Returns the next command that may run now. While a change is under way, other changes are
    /// moved to the list of waiting changes.
    fn next(&mut self, commands: &Receiver<Command>) -> Option<Command> {
        if self.under_way.is_none()
            && let Some(command) = self.waiting.pop_front()
        {
            return Some(command);
        }
        while self.waiting.len() < WAITING_MAX {
            let command = commands.try_recv().ok()?;
            let is_change = matches!(
                &command,
                Command::Detach(_)
                    | Command::Apply(_)
                    | Command::Hold(..)
                    | Command::Attach(..)
                    | Command::KeepWorkers
            );
            if self.under_way.is_none() || !is_change {
                return Some(command);
            }
            self.waiting.push_back(command);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::orders::{COMMANDS_MAX, Orders};
    use std::sync::mpsc::channel;

    fn change() -> Change {
        let (step, then) = (Step::Begins(Vpc::of_none()), Then::Detached(String::new()));
        Change { step, then, names: BTreeSet::new() }
    }

    #[test]
    fn so_many_changes_wait_and_come_in_their_order() {
        let (orders, commands, _wake) = Orders::new().unwrap();
        let mut changes = Changes { under_way: Some(change()), ..Changes::default() };
        for number in 0..WAITING_MAX {
            assert!(orders.give(Command::Detach(number.to_string())));
        }
        assert!(orders.give(Command::EndTrace(1)));
        assert!(changes.next(&commands).is_none(), "all are changes, and no more are taken");
        assert_eq!(changes.waiting.len(), WAITING_MAX);
        let give = |number| orders.give(Command::EndTrace(number));
        assert!((0..COMMANDS_MAX as u64 - 1).all(give), "the others wait in the queue");
        assert!(changes.next(&commands).is_none());
        changes.under_way = None;
        for number in 0..WAITING_MAX {
            let Some(Command::Detach(name)) = changes.next(&commands) else { panic!("{number}") };
            assert_eq!(name, number.to_string());
        }
        assert!(matches!(changes.next(&commands), Some(Command::EndTrace(1))));
    }

    #[test]
    fn a_turn_has_so_many_commands_and_the_next_one_goes_on() {
        let (orders, commands, _wake) = Orders::new().unwrap();
        let mut changes = Changes::default();
        (0..10).for_each(|number| assert!(orders.give(Command::EndTrace(number))));
        let mut turns = Vec::new();
        let mut numbers = Vec::new();
        loop {
            changes.begin_turn();
            let all = std::iter::from_fn(|| changes.next_of_turn(&commands));
            let all = all.map(|command| match command {
                Command::EndTrace(number) => number,
                _ => panic!("another command"),
            });
            let before = numbers.len();
            numbers.extend(all);
            turns.push(numbers.len() - before);
            if !changes.are_left() {
                break;
            }
        }
        assert_eq!((turns, numbers), (vec![4, 4, 2], (0..10).collect()));
    }

    /// A command without a change does not wait for a change.
    #[test]
    fn other_commands_pass_changes_that_wait() {
        let (orders, commands, _wake) = Orders::new().unwrap();
        let under_way = Some(change());
        let mut changes = Changes { under_way, ..Changes::default() };
        assert!(orders.give(Command::Detach(String::from("a"))));
        assert!(orders.give(Command::EndTrace(2)));
        assert!(matches!(changes.next(&commands), Some(Command::EndTrace(2))));
        assert!(changes.next(&commands).is_none());
        changes.under_way = None;
        assert!(matches!(changes.next(&commands), Some(Command::Detach(_))));
    }

    /// A worker removed instances before another one had the objects that it needs.
    #[test]
    fn regression_a_change_that_waits_for_other_workers_keeps_its_place_until_they_decide() {
        let waits = || {
            let ((go, decided), (back, _)) = (channel(), channel());
            let (began, is_new, before) = (Instant::ZERO, true, BTreeSet::new());
            let then = Then::Applied(Applied { began, is_new, before, back, go: Some(decided) });
            let step = Step::Waits(Vpc::of_none(), Objects::default());
            (go, Change { step, then, names: BTreeSet::new() })
        };
        let (orders, commands, _wake) = Orders::new().unwrap();
        let mut changes = Changes::default();
        assert_eq!(changes.decision(), None);
        let (go, waiting) = waits();
        changes.under_way = Some(waiting);
        assert_eq!(changes.decision(), None);
        let (back, _) = channel();
        assert!(orders.give(Command::Detach(String::from("a"))));
        assert!(orders.give(Command::Answer(back)));
        assert!(matches!(changes.next(&commands), Some(Command::Answer(_))));
        assert!(changes.next(&commands).is_none(), "the other change waits");
        go.send(()).unwrap();
        drop(go);
        assert_eq!(changes.decision(), Some(true));
        let (go, waiting) = waits();
        changes.under_way = Some(waiting);
        drop(go);
        assert_eq!(changes.decision(), Some(false));
    }
}
