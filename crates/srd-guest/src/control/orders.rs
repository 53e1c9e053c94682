//! Requests on their way to the loop.
//!
//! Bound: at most [`COMMANDS_MAX`] commands wait. If the queue is full, a thread waits for space,
//! at most [`GIVE_WAIT_MAX`]. The number of the socket's threads is bounded, and each has one
//! command at a time. The channel of an answer carries one message, that of a change of rules at
//! most two.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant as WallInstant};

use anyhow::{Context, Result, bail};
use rustix::event::{EventfdFlags, eventfd};
use srd_proto::time::Instant;
use srd_vpc_file::VpcFile;

use crate::control::flows::PartRequest;
use crate::control::gate::Gate;
use crate::control::protocol::{Answer, Attach, Request};
use crate::control::trace::Noted;
use crate::figures::pages::{Pages, Stale};
use crate::helper::Helper;

/// Maximum number of commands that wait for the loop.
pub(crate) const COMMANDS_MAX: usize = 512;
/// Longest time for which a thread waits for space in the queue.
const GIVE_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest wait for an answer of the card's loop. A loop that takes longer counts as ended.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest wait for a change for which the helper makes objects, while the loop answers. The helper
/// makes hundreds of networks in this time.
pub(crate) const CHANGE_WAIT_MAX: Duration = Duration::from_secs(300);
/// Pause between two checks of a loop that works on a change.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Longest time for which such a loop may then stand still.
const STANDS_MAX: Duration = Duration::from_secs(20);
/// Shortest wait for the figures of a worker.
const REFRESH_WAIT_MIN: Duration = Duration::from_millis(50);
/// Pause between two attempts to add a command to the full queue.
const PAUSE: Duration = Duration::from_millis(2);

const HAS_ENDED: &str = "the service has ended";
/// Warning about a repair whose thread has ended before.
const REPAIR_HAS_ENDED: &str = "what other programs have changed of instances may stay so: the \
    thread that restores it has ended, see the log; start the card again";

/// The two ends of the queue of commands of a worker, and the descriptor that wakes its loop.
pub(crate) type CommandQueue = (Orders, Receiver<Command>, Arc<OwnedFd>);

/// The file with the state of a card that has stopped, and the descriptors of its devices.
pub(crate) type CardState = (File, Vec<Arc<OwnedFd>>);

/// Result of a request for other rules.
#[derive(Debug)]
pub(crate) struct RulesReply {
    pub(crate) answer: Answer,
    /// Repair of instances that other programs have changed; `None` if the rules are not in force.
    pub(crate) repair: Option<Repair>,
}

/// A change of the rules of one worker.
#[derive(Debug)]
pub(crate) struct RulesChange {
    pub(crate) file: Arc<VpcFile>,
    /// Time at which the request arrived.
    pub(crate) began: Instant,
    /// Whether a file without instances may end all instances of the file in force.
    pub(crate) removes_all: bool,
    /// Receives the progress of the change.
    pub(crate) back: Sender<Progress>,
    /// For a change in two steps: the message to put the rules in force. If its sender is dropped
    /// without a message, the worker gives the objects back, and keeps its rules. `None`: the rules
    /// are in force as soon as the worker has the objects.
    pub(crate) go: Option<Receiver<()>>,
}

/// The progress of a [`RulesChange`].
#[derive(Debug)]
pub(crate) enum Progress {
    /// The worker has all objects that the rules need, and waits for [`RulesChange::go`]. Nothing
    /// else has changed.
    Ready,
    /// The rules are in force, or the change has failed.
    Ended(Box<RulesReply>),
}

/// A repair of instances by the helper, which goes on after the rules are in force.
#[derive(Debug)]
pub(crate) struct Repair {
    /// The parts whose results have not arrived.
    parts: Vec<Receiver<Vec<String>>>,
    /// Changes by other programs that are left, as far as parts have ended.
    left: Vec<String>,
}

impl Repair {
    /// Returns a repair, and the sender of its result: changes by other programs that are left, as
    /// sentences with remedies.
    pub(crate) fn new() -> (Self, Sender<Vec<String>>) {
        let (back, done) = channel();
        (Self { parts: vec![done], left: Vec::new() }, back)
    }

    /// Returns the repairs of several workers as one.
    pub(crate) fn of_workers(all: impl IntoIterator<Item = Self>) -> Self {
        let mut repair = Self { parts: Vec::new(), left: Vec::new() };
        for of in all {
            repair.parts.extend(of.parts);
            repair.add(of.left);
        }
        repair
    }

    /// Adds changes that are left. Workers share what belongs to the machine, and report the same
    /// change of it each.
    fn add(&mut self, left: Vec<String>) {
        for text in left {
            if !self.left.contains(&text) {
                self.left.push(text);
            }
        }
    }

    /// Waits for the end of the repair, for at most `time`. Returns the changes by other programs
    /// that are left; `None` if the repair has not ended.
    pub(crate) fn wait(&mut self, time: Duration) -> Option<Vec<String>> {
        let began = WallInstant::now();
        while let Some(part) = self.parts.first() {
            match part.recv_timeout(time.saturating_sub(began.elapsed())) {
                Ok(left) => self.add(left),
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => {
                    self.add(vec![String::from(REPAIR_HAS_ENDED)]);
                }
            }
            self.parts.remove(0);
        }
        Some(self.left.clone())
    }
}

/// A request to the loop with the channel for its answer, or the end of an instance or a trace that
/// a connection has begun. Reading figures needs no command: [`crate::pages`].
pub(crate) enum Command {
    Ask(Request, Sender<Answer>),
    /// Add an instance. The answer is its name, or the reason of the failure.
    Attach(Attach, Sender<Result<String, String>>),
    /// Copy a part of the flows of an interface.
    Flows(PartRequest),
    /// Put the rules of a file in force.
    Apply(RulesChange),
    Detach(String),
    /// Remember which worker has which instance: all workers have made the change before.
    KeepWorkers,
    /// Answer at once, also while a change is under way.
    Answer(Sender<()>),
    /// Return the new records of a trace; `None` if there is no such trace.
    Traced(u64, Sender<Option<Noted>>),
    EndTrace(u64),
    /// Stop, and return the file with the state, and the descriptors of the devices. The card
    /// continues when the other end of the second channel is dropped; when it receives the channel
    /// for an answer, its objects belong to another process.
    Hold(Sender<Result<CardState, String>>, Receiver<Sender<()>>),
}

/// Sends commands to the loop of a worker, and wakes it. Also gives access to the figures that the
/// loop publishes. The orders to the first worker lead to those of the other workers.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    queue: SyncSender<Command>,
    wake: Arc<OwnedFd>,
    pub(crate) pages: Arc<Pages>,
    /// The helper, to which other threads send their own requests.
    helper: Arc<OnceLock<Helper>>,
    /// Gate for requests for other rules.
    pub(crate) gate: Gate,
    /// Orders to the further workers of this host. Only those of the first worker have them.
    further: Arc<OnceLock<Vec<Self>>>,
    /// The file in force at all workers. Locked while a change goes to all workers, so that all of
    /// them make all changes in one order.
    pub(crate) in_force: Arc<Mutex<Option<Arc<VpcFile>>>>,
}

impl Orders {
    /// Creates the queue. Returns the sender, the receiver for the loop, and the descriptor that
    /// wakes the loop.
    pub(crate) fn new() -> io::Result<(Self, Receiver<Command>, Arc<OwnedFd>)> {
        let (queue, commands) = sync_channel(COMMANDS_MAX);
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let pages = Arc::new(Pages::new());
        let (helper, gate) = (Arc::default(), Gate::default());
        let (further, in_force, own) = (Arc::default(), Arc::default(), Arc::clone(&wake));
        let orders = Self { queue, wake: own, pages, helper, gate, further, in_force };
        Ok((orders, commands, wake))
    }

    /// Creates the queue of each worker. `file`: the file in force.
    pub(crate) fn of_workers(count: u8, file: Arc<VpcFile>) -> io::Result<Vec<CommandQueue>> {
        let all = (0..count.max(1)).map(|_| Self::new());
        let all: Vec<_> = all.collect::<io::Result<_>>()?;
        if let [(first, ..), further @ ..] = all.as_slice() {
            let further = further.iter().map(|(orders, ..)| orders.clone());
            let _ = first.further.set(further.collect());
            *first.in_force.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        }
        Ok(all)
    }

    /// Returns the orders to each worker of this host, the first one first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.further.get().into_iter().flatten())
    }

    /// Whether there are several workers.
    pub(crate) fn are_several(&self) -> bool {
        self.further.get().is_some_and(|further| !further.is_empty())
    }

    /// Waits for figures of all workers that are newer than this call: [`Pages::refresh`]. Returns
    /// the age of the oldest ones.
    pub(crate) fn refresh(&self, within: Duration) -> Result<Stale> {
        let until = WallInstant::now() + within;
        let mut oldest: Stale = None;
        for orders in self.all() {
            let wake = || {
                orders.wake();
            };
            // A worker that does not write must not use the time of the following ones entirely.
            let left = until.saturating_duration_since(WallInstant::now()).max(REFRESH_WAIT_MIN);
            let stale = orders.pages.refresh(wake, left)?;
            oldest = oldest.into_iter().chain(stale).reduce(f64::max);
        }
        Ok(oldest)
    }

    /// Sets the connection to the helper; further calls have no effect.
    pub(crate) fn set_helper(&self, helper: Helper) {
        let _ = self.helper.set(helper);
    }

    pub(crate) fn helper(&self) -> Result<&Helper> {
        self.helper.get().context("the card has no helper")
    }

    /// Sends a command. Returns whether the loop will receive it.
    pub(crate) fn give(&self, command: Command) -> bool {
        self.give_within(command, GIVE_WAIT_MAX)
    }

    /// Sends a command, for whose place in the queue it waits for at most `time`. Returns whether
    /// the loop will receive it.
    pub(crate) fn give_within(&self, mut command: Command, time: Duration) -> bool {
        let until = WallInstant::now() + time;
        loop {
            command = match self.queue.try_send(command) {
                Ok(()) => return self.wake(),
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(command)) => command,
            };
            if WallInstant::now() >= until {
                return false;
            }
            thread::sleep(PAUSE);
        }
    }

    pub(crate) fn wake(&self) -> bool {
        rustix::io::write(&self.wake, &1_u64.to_ne_bytes()).is_ok()
    }
}

/// Sends a command to the card's loop, and waits for its answer.
pub(crate) fn hand<T>(orders: &Orders, command: Command, answer: &Receiver<T>) -> Result<T> {
    receive(orders.give(command), answer)
}

/// Waits for the answer to a command. `is_given`: whether the card's loop will receive the command.
fn receive<T>(is_given: bool, answer: &Receiver<T>) -> Result<T> {
    receive_within(is_given, answer, ANSWER_WAIT_MAX)
}

fn receive_within<T>(is_given: bool, answer: &Receiver<T>, time: Duration) -> Result<T> {
    if !is_given {
        bail!(HAS_ENDED);
    }
    answer.recv_timeout(time).context("the service does not answer")
}

/// Waits until `until` for a message about a change, as long as the card's loop answers.
/// `is_given`: whether the loop will receive the command.
pub(crate) fn receive_change<T>(
    orders: &Orders,
    is_given: bool,
    answer: &Receiver<T>,
    until: WallInstant,
) -> Result<T> {
    receive_change_each(orders, is_given, answer, until, (LOOK_EVERY, STANDS_MAX))
}

/// As [`receive_change`]. `pause`: time between two checks of the loop; `stands_max`: longest time
/// for which it may then stand still.
fn receive_change_each<T>(
    orders: &Orders,
    is_given: bool,
    answer: &Receiver<T>,
    until: WallInstant,
    (pause, stands_max): (Duration, Duration),
) -> Result<T> {
    if !is_given {
        bail!(HAS_ENDED);
    }
    loop {
        match answer.recv_timeout(pause) {
            Ok(message) => return Ok(message),
            Err(RecvTimeoutError::Disconnected) => bail!(HAS_ENDED),
            Err(RecvTimeoutError::Timeout) if WallInstant::now() >= until => {
                bail!("the change has not ended after {} s", CHANGE_WAIT_MAX.as_secs())
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let (back, alive) = channel();
        let is_given = orders.give_within(Command::Answer(back), stands_max);
        if let Err(error) = receive_within(is_given, &alive, stands_max) {
            // The message may have arrived meanwhile.
            return answer.try_recv().map_err(|_| error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_is_waited_for_until_it_has_ended_or_for_a_time() {
        let (mut repair, back) = Repair::new();
        assert_eq!(repair.wait(Duration::from_millis(1)), None);
        let ends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            back.send(vec![String::from("left")]).unwrap();
        });
        let left = Some(vec![String::from("left")]);
        assert_eq!(repair.wait(Duration::from_secs(60)), left);
        ends.join().unwrap();
        assert_eq!(repair.wait(Duration::from_secs(60)), left, "it was read before");
    }

    /// Each worker reported a change that concerned all of them, and a thread that had ended was
    /// reported as slow. If a later worker was slow, the results of the first ones were lost.
    #[test]
    fn regression_repairs_of_workers_report_each_change_once_and_a_thread_that_has_ended() {
        let ((first, back), (second, other)) = (Repair::new(), Repair::new());
        let (third, dead) = Repair::new();
        let mut repair = Repair::of_workers([first, second, third]);
        drop(dead);
        back.send(vec![String::from("forwarding is off"), String::from("a")]).unwrap();
        assert_eq!(repair.wait(Duration::from_millis(1)), None, "the second one has not ended");
        other.send(vec![String::from("forwarding is off"), String::from("b")]).unwrap();
        let mut left = repair.wait(Duration::from_secs(60)).unwrap();
        left.sort();
        assert_eq!(left, ["a", "b", "forwarding is off", REPAIR_HAS_ENDED]);
    }

    /// A worker that makes many networks counted as one that has ended.
    #[test]
    fn regression_a_change_may_take_as_long_as_the_loop_answers() {
        let (pause, long) = (Duration::from_millis(5), Duration::from_secs(60));
        let later = || WallInstant::now() + 10 * long;
        let (orders, commands, _wake) = Orders::new().unwrap();
        let (back, answer) = channel();
        let work = thread::spawn(move || {
            for number in 0..3 {
                let Ok(Command::Answer(alive)) = commands.recv() else { panic!("{number}") };
                if number == 2 {
                    back.send(7).unwrap();
                }
                alive.send(()).unwrap();
            }
            commands
        });
        let wait = |answer: &Receiver<i32>, until, stands_max| {
            receive_change_each(&orders, true, answer, until, (pause, stands_max))
        };
        assert_eq!(wait(&answer, later(), long).unwrap(), 7);
        let commands = work.join().unwrap();
        // The loop stands still.
        let (_never, answer) = channel();
        let error = wait(&answer, later(), pause).unwrap_err().to_string();
        assert!(error.contains("does not answer"), "{error}");
        let error = wait(&answer, WallInstant::now(), long).unwrap_err().to_string();
        assert!(error.contains("has not ended after"), "{error}");
        drop(commands);
        let error = wait(&answer, later(), long).unwrap_err().to_string();
        assert!(error.contains("has ended"), "{error}");
    }

    #[test]
    fn so_many_commands_wait_and_the_next_one_waits_for_a_place() {
        let (orders, commands, _wake) = Orders::new().unwrap();
        let end = |number| Command::EndTrace(number);
        assert!((0..COMMANDS_MAX as u64).all(|number| orders.give(end(number))));
        assert!(!orders.give_within(end(9999), Duration::ZERO), "no place is free");
        let waits = thread::spawn({
            let orders = orders.clone();
            move || orders.give(end(7777))
        });
        let numbers: Vec<u64> = (0..=COMMANDS_MAX)
            .filter_map(|_| match commands.recv() {
                Ok(Command::EndTrace(number)) => Some(number),
                _ => None,
            })
            .collect();
        assert!(waits.join().unwrap());
        assert!(numbers.contains(&7777) && !numbers.contains(&9999));
        drop(commands);
        assert!(!orders.give(end(1)), "the loop has ended");
    }

    /// The wait for figures of several workers, of which none writes, was as many times the limit.
    #[test]
    fn regression_workers_that_write_no_figures_share_one_limit() {
        const WITHIN: Duration = Duration::from_secs(3);
        let file = Arc::new(crate::cloud::world::Vpc::file_of(None).unwrap());
        let queues = Orders::of_workers(4, file).unwrap();
        let (orders, ..) = &queues[0];
        // Each worker has written figures once.
        queues.iter().for_each(|(orders, ..)| orders.pages.sweep());
        let began = WallInstant::now();
        assert!(orders.refresh(WITHIN).unwrap().is_some(), "the figures are old ones");
        let took = began.elapsed();
        assert!(took >= WITHIN && took < 3 * WITHIN, "{took:?}");
    }
}
