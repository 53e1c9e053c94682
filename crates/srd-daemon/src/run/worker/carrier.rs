//! The workers of a node that has instances. Such a worker has no loop of its own: a card of
//! instances drives it, on one thread. So packets of instances and of the interface reach the same
//! queues, sessions and sockets. Each worker has a card of its own, with some of the instances.
//!
//! ```text
//!   loop of the card: judges packets of instances --- send ---> carrier: queues, sessions, sockets
//!                     <------- Hosts: arrived, event ---------- (and packets of the interface)
//! ```
//!
//! The bounds of [`super`] apply. One call of [`Carrier::work`] is one turn of the worker without a
//! wait.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use srd_card::Express;
use srd_net::xdp::AnyIo;
use srd_net::{LocalEndpoint, PollMode};
use srd_proto::Instant;

use super::hosts::Hosts;
use super::publish::Publisher;
use super::{Fatal, Worker, fatal_read};
use crate::control::ServeInstances;
use crate::handover::instances::InstancesHandOver;
use crate::metrics::InstanceFigures;
use crate::plane::InstanceChanges;
use crate::run::orders::WorkerEnds;
use crate::run::queues::Queues;
use crate::run::tapped::Tapped;

/// A card of instances that runs on the thread of a worker.
pub trait Instances: Send {
    /// Runs the loop of the card, which moves packets until [`Carrier::is_stopped`] returns true.
    ///
    /// # Errors
    /// The error that makes the card, the interface or the sockets unusable.
    fn run(&mut self) -> Result<()>;
}

/// Instances that a node hosts.
pub struct Hosted {
    /// The cards of the instances.
    pub card: HostedCards,
    /// Changes the instances.
    pub changes: InstanceChanges,
    /// Figures of the instances over HTTP.
    pub figures: InstanceFigures,
    /// Serves requests about instances at the control socket.
    pub serve: ServeInstances,
    /// Hands the instances over to another process.
    pub hand_over: InstancesHandOver,
}

/// Function that creates a card of the instances for each worker, which it then drives.
pub type BeginCards = Box<dyn FnOnce(Vec<CardWorker>) -> Result<Vec<Box<dyn Instances>>>>;

/// The cards of the instances that a node hosts, before its workers exist.
pub struct HostedCards {
    /// For each worker, the event descriptor that ends a wait of its card's loop.
    pub wakes: Vec<Arc<OwnedFd>>,
    /// Prepares the cards as far as this is possible without the workers. The process has already
    /// dropped its privileges. Another process may still move the packets of the instances.
    pub prepare: Box<dyn FnOnce() -> Result<BeginCards>>,
}

impl std::fmt::Debug for Hosted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hosted")
    }
}

impl std::fmt::Debug for HostedCards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostedCards")
    }
}

/// The parts of a worker, before the receiver of packets of instances exists.
#[derive(Debug)]
pub struct CardWorker {
    /// Number of the worker, from zero.
    pub(crate) number: usize,
    pub(crate) endpoint: LocalEndpoint<Tapped<AnyIo>>,
    pub(crate) queues: Queues,
    pub(crate) card: srd_card::Config,
    pub(crate) ends: WorkerEnds,
    pub(crate) publisher: Publisher,
    pub(crate) wake: Arc<OwnedFd>,
    pub(crate) interface: String,
    /// The state of the cards of another process, from which this process takes over; `None` if it
    /// takes over from no process. The first worker has the state of all cards.
    pub(crate) taken: Option<Vec<OwnedFd>>,
}

impl CardWorker {
    /// Creates the worker. `hosts` receives packets of instances on other hosts.
    ///
    /// # Errors
    /// An error of the operating system, if it has no free descriptor.
    pub fn carrier<H: Hosts>(self, hosts: H) -> Result<Carrier<H>> {
        let Self { number, mut endpoint, queues, card, ends, publisher, wake, .. } = self;
        let (interface, taken) = (self.interface, self.taken);
        let arrivals = endpoint.io().inner().arrivals().context("waiting for the sockets")?;
        let descriptors = vec![Arc::new(arrivals), queues.fd(), wake];
        let mut worker = Worker::new(number, endpoint, (queues, hosts), card, ends, publisher);
        if taken.is_some() {
            worker.take_over();
        }
        Ok(Carrier { worker, descriptors, interface, has_more: true, has_work: true })
    }

    /// Takes the descriptors of the state of the cards of another process, from which this process
    /// takes over; `None` if it takes over from no process. Only the first worker has them. The
    /// first descriptor is the file with the state of the first card.
    pub fn take_state(&mut self) -> Option<Vec<OwnedFd>> {
        self.taken.as_mut().map(std::mem::take)
    }
}

/// A worker that the loop of a card drives. No call waits for packets.
#[derive(Debug)]
pub struct Carrier<H> {
    worker: Worker<AnyIo, Queues, H>,
    descriptors: Vec<Arc<OwnedFd>>,
    /// Name of the interface, for errors.
    interface: String,
    /// Whether more packets can be sent immediately.
    has_more: bool,
    /// Whether the last [`Carrier::work`] left orders, frames of the interface, or an unfinished
    /// check of the rows of peers in the pages.
    has_work: bool,
}

impl<H: Hosts> Carrier<H> {
    /// Returns the file descriptors that the card's loop polls. If there is work, at least one of
    /// them is readable: one for received packets, one for frames of the interface, and one for
    /// orders of the control thread. The descriptor for orders is the last one. It is
    /// one of [`HostedCards::wakes`], which the loop resets.
    pub fn descriptors(&self) -> &[Arc<OwnedFd>] {
        &self.descriptors
    }

    /// Waits for the peers of the configuration. If this process takes over from another one, also
    /// waits until that process does not go on any more. Returns false if that process goes on.
    /// Call it once, before any other call.
    pub fn wait_for_peers(&mut self) -> bool {
        self.worker.wait_for_peers()
    }

    /// Whether the control thread has stopped the worker.
    pub fn is_stopped(&self) -> bool {
        self.worker.flags.is_stopped()
    }

    /// Returns the time at which the next turn is due, unless work arrives earlier.
    pub fn due(&self) -> Instant {
        if self.has_more || self.has_work {
            return Instant::ZERO;
        }
        self.due_to_send().min(self.worker.due())
    }

    /// Whether packets wait to be sent, or timers of the transport are due.
    pub fn has_unsent(&self, now: Instant) -> bool {
        self.express().has_waiting() || self.due_to_send() <= now
    }

    fn due_to_send(&self) -> Instant {
        let express = self.express().poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        self.worker.endpoint.due().min(express)
    }

    /// Returns the stage that queues packets for peers.
    pub fn express(&self) -> &Express {
        &self.worker.card.express
    }

    /// Returns the hosts of clouds.
    pub fn hosts(&self) -> &H {
        &self.worker.card.hosts
    }

    /// Returns the stage that queues packets for peers, and the hosts of clouds.
    pub fn parts(&mut self) -> (&mut Express, &mut H) {
        (&mut self.worker.card.express, &mut self.worker.card.hosts)
    }

    /// Returns the time when the endpoint last read the clock.
    pub fn last_look(&self) -> Instant {
        self.worker.endpoint.last_look()
    }

    /// Sends everything that may be sent, and runs timers that are due.
    ///
    /// # Errors
    /// The error that makes the sockets unusable.
    pub fn send(&mut self) -> Result<()> {
        let now = self.worker.endpoint.now();
        self.worker.card.handle_timeout(now);
        let (_, more) = self.worker.send().map_err(|fatal| self.in_words(fatal))?;
        self.has_more = more;
        Ok(())
    }

    /// Carries out orders of the control thread, takes frames of the interface, and writes the
    /// pages of figures that are due. [`Carrier::send`] sends the packets that this call queues.
    ///
    /// # Errors
    /// The error that makes the interface unusable.
    pub fn work(&mut self) -> Result<()> {
        let mut again = self.worker.take_orders();
        let now = self.worker.endpoint.now();
        again |= self.worker.read_guest(now).map_err(|error| self.in_words(fatal_read(error)))?;
        again |= self.worker.publish(now);
        self.has_work = again;
        Ok(())
    }

    /// Receives packets that have arrived. Returns their number.
    ///
    /// # Errors
    /// The error that makes the sockets unusable.
    pub fn receive(&mut self) -> Result<usize> {
        let received = self.worker.endpoint.receive(Instant::ZERO, &mut self.worker.card);
        let received = received.map_err(|error| self.in_words(Fatal::Receiving(error)))?;
        self.has_more |= received > 0;
        Ok(received)
    }

    /// Writes figures that would otherwise be outdated while the loop sleeps.
    pub fn before_sleep(&mut self) {
        self.worker.publish_before_sleep();
    }

    /// Closes the sessions, so that peers need not wait for a timeout.
    ///
    /// # Errors
    /// The error with which sending failed.
    pub fn close(&mut self) -> io::Result<()> {
        let closed = self.worker.endpoint.close(&mut self.worker.card);
        self.worker.publish_totals();
        closed
    }

    fn in_words(&self, fatal: Fatal) -> anyhow::Error {
        fatal.in_words(&self.interface)
    }

    /// Returns the method by which the loop waits for packets. The method may change while the loop
    /// runs.
    pub fn poll(&self) -> PollMode {
        self.worker.poll
    }
}
