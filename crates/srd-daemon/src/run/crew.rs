//! The workers as the control thread sees them: starts, commands and ends all of them together.
//!
//! A change goes to all workers, and is complete when each has acknowledged it. If one worker
//! refuses to add a peer, the caller removes the peer from the other workers, so that all workers
//! have equal settings.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use srd_net::PacketIo;

use super::orders::{
    Batch, Change, ControlEnds, Flags, Hold, Order, Orders, Refused, Report, WorkerDescriptors,
};
use super::waker::Waker;
use super::worker::carrier::Instances;
use super::worker::hosts::Hosts;
use super::worker::{Fatal, Port, Worker};
use crate::capture::Tap;
use crate::plane::oneshot;

/// Interval at which the control thread checks whether a worker is still running while it waits for
/// that worker's answer.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One worker, its queues and its thread.
#[derive(Debug)]
struct Member {
    orders: Orders,
    reports: Receiver<Report>,
    thread: JoinHandle<Ended>,
    /// Whether a card of instances drives the worker.
    is_of_instances: bool,
}

/// The return value of a thread: the worker, which holds its part of the interface, and its result.
type Ended = (Box<dyn Any + Send>, Result<(), Fatal>);

/// All workers of the daemon, with their threads.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    members: Vec<Member>,
    /// Workers that have ended. Each holds its part of the interface open until the crew is
    /// dropped.
    retired: Vec<Box<dyn Any + Send>>,
}

/// Reports the end of a worker's thread when dropped, even after a panic.
struct Ending {
    flags: Arc<Flags>,
    control: Waker,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.flags.end();
        self.control.wake();
    }
}

impl Crew {
    /// Starts a worker on a new thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start<I, P, H>(
        &mut self,
        mut worker: Worker<I, P, H>,
        ends: ControlEnds,
        control: Waker,
    ) -> Result<()>
    where
        I: PacketIo + Send + 'static,
        P: Port + Send + 'static,
        H: Hosts + Send + 'static,
    {
        let work = move || {
            let done = worker.run();
            (Box::new(worker) as Box<dyn Any + Send>, done)
        };
        self.start_thread(work, ends, control, false)
    }

    /// Starts the worker that a card of instances drives, on a new thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start_instances(
        &mut self,
        mut instances: Box<dyn Instances>,
        ends: ControlEnds,
        control: Waker,
    ) -> Result<()> {
        let work = move || {
            let done = instances.run().map_err(Fatal::Instances);
            (Box::new(instances) as Box<dyn Any + Send>, done)
        };
        self.start_thread(work, ends, control, true)
    }

    fn start_thread(
        &mut self,
        work: impl FnOnce() -> Ended + Send + 'static,
        ends: ControlEnds,
        control: Waker,
        is_of_instances: bool,
    ) -> Result<()> {
        let ending = Ending { flags: Arc::clone(&ends.orders.flags), control };
        let work = move || {
            let _ending = ending;
            work()
        };
        let name = format!("srd-worker-{}", self.members.len());
        let thread = thread::Builder::new().name(name).spawn(work);
        let thread = thread.context("cannot start a thread that moves packets")?;
        let ControlEnds { orders, reports } = ends;
        self.members.push(Member { orders, reports, thread, is_of_instances });
        Ok(())
    }

    /// Returns the number of workers.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Makes changes in every worker, and waits until all have acknowledged them. Returns the
    /// changes that were refused.
    ///
    /// # Errors
    /// If a worker has ended.
    pub(crate) fn apply(&self, changes: &[Change]) -> Result<Vec<Refused>> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let mut answers = Vec::with_capacity(self.members.len());
        for member in &self.members {
            let (done, answer) = oneshot();
            let batch = Batch { changes: changes.to_vec(), done };
            member.send(Order::Apply(batch))?;
            answers.push(answer);
        }
        let mut refused = Vec::new();
        for (member, answer) in self.members.iter().zip(answers) {
            refused.extend(member.wait(&answer)?);
        }
        Ok(refused)
    }

    /// Sends each worker its tap of a new capture.
    pub(crate) fn capture(&self, taps: Vec<Tap>) {
        for (member, tap) in self.members.iter().zip(taps) {
            member.orders.send(Order::Capture(tap));
        }
    }

    /// Returns descriptors of the sockets and queues of each worker, for another process.
    ///
    /// # Errors
    /// If a worker has ended, or its sockets cannot be continued by another process.
    pub(crate) fn descriptors(&self) -> Result<Vec<WorkerDescriptors>> {
        let ask = |member: &Member| {
            let (done, answer) = oneshot();
            member.send(Order::Descriptors(done))?;
            match member.wait(&answer)? {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => bail!(
                    "this daemon uses AF_XDP, which no other process can continue: restart it"
                ),
                descriptors => Ok(descriptors?),
            }
        };
        self.members.iter().map(ask).collect()
    }

    /// Stops every worker, and waits until all have stopped. The workers continue when the result
    /// is dropped. The workers of cards of instances stop with the cards, which another call stops.
    ///
    /// # Errors
    /// If a worker has ended. The others continue.
    pub(crate) fn hold(&self) -> Result<Vec<SyncSender<()>>> {
        let hold = |member: &Member| {
            let (sender, end) = mpsc::sync_channel(0);
            let (held, answer) = oneshot();
            member.send(Order::Hold(Hold { held, end }))?;
            member.wait(&answer)?;
            Ok(sender)
        };
        self.members.iter().filter(|of| !of.is_of_instances).map(hold).collect()
    }

    /// Lets all workers move packets, which wait for this after a take-over. A worker that has
    /// ended is left out ([`Crew::has_ended`]).
    pub(crate) fn begin(&self) {
        for member in &self.members {
            member.orders.send(Order::Begin);
        }
    }

    /// Passes all waiting reports to `each`. Returns whether reports were lost, in which case the
    /// caller has to check every peer.
    pub(crate) fn reports(&self, mut each: impl FnMut(Report)) -> bool {
        let mut look_again = false;
        for member in &self.members {
            member.reports.try_iter().for_each(&mut each);
            look_again |= member.orders.flags.take_look_again();
        }
        look_again
    }

    /// Whether the thread of a worker has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.members.iter().any(|member| member.orders.flags.has_ended())
    }

    /// Makes every worker close its contexts, and waits until all have ended. The interface stays
    /// open until the crew is dropped. Returns why the first worker failed; `None` if none failed.
    pub(crate) fn end(&mut self) -> Option<End> {
        self.members.iter().for_each(|member| member.orders.stop());
        let mut first = None;
        for member in self.members.drain(..) {
            let end = match member.thread.join() {
                Ok((worker, done)) => {
                    self.retired.push(worker);
                    done.err().map(End::Failed)
                }
                Err(_) => Some(End::Panicked),
            };
            first = first.or(end);
        }
        first
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reason why a worker has ended.
#[derive(Debug)]
pub(crate) enum End {
    Failed(Fatal),
    Panicked,
}

impl End {
    /// Converts the reason into an error with a text for people.
    pub(crate) fn into_error(self, interface: &str) -> anyhow::Error {
        match self {
            Self::Panicked => {
                anyhow!("a thread that moves packets has panicked").context("the data plane")
            }
            Self::Failed(fatal @ (Fatal::Ending(_) | Fatal::Instances(_))) => {
                fatal.in_words(interface)
            }
            Self::Failed(fatal) => fatal.in_words(interface).context("the data plane"),
        }
    }
}

impl Member {
    /// Sends an order to the worker. Returns an error if the worker has ended.
    fn send(&self, order: Order) -> Result<()> {
        if self.orders.send(order) {
            return Ok(());
        }
        Err(anyhow!("a thread that moves packets has ended"))
    }

    /// Waits for an answer of the worker. Returns an error if the worker ends first.
    fn wait<T>(&self, answer: &Receiver<T>) -> Result<T> {
        use std::sync::mpsc::RecvTimeoutError;
        loop {
            match answer.recv_timeout(LOOK_EVERY) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) if !self.orders.flags.has_ended() => {
                    self.orders.worker.wake();
                }
                Err(_) => return Err(anyhow!("a thread that moves packets has ended")),
            }
        }
    }
}
