//! A worker: one thread that moves frames between its queues of the interface, the card, and one
//! shard of the transport.
//!
//! ```text
//!   interface --read--> Express --pump--> LocalEndpoint --transmit--> sockets
//!   interface <-write-- Express <-delivered-- LocalEndpoint <-receive-- sockets
//! ```
//!
//! The worker waits for nothing but packets, and shares only pages, flags and queues that never
//! block it. It takes no lock, starts no thread, and formats and logs nothing. For a packet it
//! allocates no memory except for the packet. It takes orders once in each turn, a round of its
//! loop.
//!
//! Bounds: in one turn the worker reads [`FRAMES_PER_TURN_MAX`] frames, makes
//! [`apply::CHANGES_PER_TURN_MAX`] changes, writes [`publish::ROWS_PER_TURN_MAX`] rows and lists
//! the paths of one peer.
//!
//! | module | contents |
//! |---|---|
//! | `carrier` | a worker that a card of instances drives |
//! | `card` | processes datagrams and events of the transport |
//! | `hosts` | hosts of clouds among the peers |
//! | `peers` | this worker's context with each peer, and its row |
//! | `apply` | carries out orders |
//! | `publish` | decides when pages are written |

mod apply;
mod card;
pub(crate) mod carrier;
pub(crate) mod hosts;
mod peers;
#[cfg(test)]
mod port_example;
pub(crate) mod publish;

use std::io;
use std::sync::mpsc::Receiver;

use rustix::io::Errno;
use srd_card::Express;
use srd_card::packet::Packet;
use srd_net::{LocalEndpoint, PacketIo, PollMode, Tun};
use srd_proto::Instant;

use self::apply::Pending;
use self::card::{Card, GuestPort};
use self::hosts::{Hosts, NoHosts};
use self::publish::Publisher;
use super::moderation::Moderation;
use super::orders::{Flags, Order, WorkerEnds};
use super::tapped::Tapped;
use crate::capture::Direction;
use std::sync::Arc;

/// Largest number of frames that are read from the interface before the sockets are polled again.
const FRAMES_PER_TURN_MAX: usize = 64;

/// The part of the interface that one worker uses: the queues of a TUN device, or an interface in
/// memory for tests.
///
/// # Contract
///
/// - A frame is an offload header ([`srd_card::offload`]) and an IP packet, in both directions.
/// - Neither call waits. The program that creates the worker registers a descriptor, or a wake-up,
///   that ends the worker's wait for packets when the guest sends a frame
///   ([`srd_net::LocalEndpoint`]). After [`read`](Self::read) has returned `None`, the next frame
///   ends this wait.
/// - Frames of one flow are written in order, and reach the guest in this order.
/// - An error of [`read`](Self::read) ends the worker: the error number `EBADFD` means that the
///   interface was deleted. An error of [`write`](Self::write) concerns one frame. The worker
///   counts and drops the frame.
///
/// # Limits
///
/// The worker reads at most [`FRAMES_PER_TURN_MAX`] frames in one turn.
///
/// # Example
///
/// An interface in memory, of which a test has the guest's end:
///
#[doc = concat!("```ignore\n", include_str!("port_example.rs"), "```\n")]
pub(crate) trait Port {
    /// Returns the next frame that the guest sends; `None` if no frame is waiting.
    ///
    /// # Errors
    /// If the interface was deleted.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>>;

    /// Writes a frame to the guest.
    ///
    /// # Errors
    /// If the interface refuses the frame.
    fn write(&mut self, frame: &[u8]) -> io::Result<()>;

    /// Returns the queues of the TUN device, for another process that continues with them;
    /// the list of an interface in memory is empty.
    fn queues(&self) -> &[Tun] {
        &[]
    }
}

/// Error that ends a worker.
#[derive(Debug)]
pub(crate) enum Fatal {
    /// The interface was deleted by another program.
    InterfaceGone,
    /// Reading from the interface failed.
    Reading(io::Error),
    /// Sending on the sockets failed, and cannot succeed later.
    Sending(io::Error),
    /// Receiving from the sockets failed, and cannot succeed later.
    Receiving(io::Error),
    /// Sending the Close packets to the peers failed when the worker stopped.
    Ending(io::Error),
    /// The card of instances, which shares the worker's thread, has failed.
    Instances(anyhow::Error),
}

impl Fatal {
    /// Converts the error into one with a text for people.
    pub(crate) fn in_words(self, interface: &str) -> anyhow::Error {
        let because = |error: io::Error, what| anyhow::Error::from(error).context(what);
        match self {
            Self::InterfaceGone => anyhow::anyhow!(
                "the interface {interface} was deleted by another program: start the daemon again"
            ),
            Self::Reading(error) => because(error, "reading from the interface"),
            Self::Sending(error) => because(error, "sending"),
            Self::Receiving(error) => because(error, "receiving"),
            Self::Ending(error) => because(error, "saying goodbye"),
            Self::Instances(error) => error,
        }
    }
}

/// A worker that is ready to run on a thread.
#[derive(Debug)]
pub(crate) struct Worker<I, P, H = NoHosts> {
    endpoint: LocalEndpoint<Tapped<I>>,
    card: Card<P, H>,
    orders: Receiver<Order>,
    flags: Arc<Flags>,
    pending: Option<Pending>,
    publisher: Publisher,
    moderation: Moderation,
    poll: PollMode,
    /// Time when a frame was last read, or a packet last received.
    moved_at: Instant,
    /// Whether this process takes over from another process.
    takes_over: bool,
}

impl<I: PacketIo, P: Port, H: Hosts> Worker<I, P, H> {
    /// Creates the worker with this number, without peers.
    pub(crate) fn new(
        number: usize,
        mut endpoint: LocalEndpoint<Tapped<I>>,
        (port, hosts): (P, H),
        card: srd_card::Config,
        ends: WorkerEnds,
        publisher: Publisher,
    ) -> Self {
        let (core, now) = endpoint.core_mut();
        let express = Express::new(card, core);
        let flags = Arc::clone(&ends.reports.flags);
        let card = Card::new(number, express, (GuestPort::new(port), hosts), ends.reports);
        let moderation = Moderation::new(now);
        Self {
            endpoint,
            card,
            orders: ends.orders,
            flags,
            pending: None,
            publisher,
            moderation,
            poll: PollMode::Block,
            moved_at: now,
            takes_over: false,
        }
    }

    /// Sets the method by which the worker waits for packets.
    pub(crate) fn set_poll(&mut self, poll: PollMode) {
        self.poll = poll;
    }

    /// Makes the worker wait for [`Order::Begin`] before it moves packets, because another process
    /// still moves them.
    pub(crate) fn take_over(&mut self) {
        self.takes_over = true;
    }

    /// Processes packets until the worker is stopped, and then closes its contexts.
    ///
    /// # Errors
    /// The error that makes the interface or the sockets unusable.
    pub(crate) fn run(&mut self) -> Result<(), Fatal> {
        if !self.wait_for_peers() {
            // Another process moves packets through the same sockets and queues.
            return Ok(());
        }
        let done = loop {
            if self.flags.is_stopped() {
                break Ok(());
            }
            if let Err(fatal) = self.turn() {
                break Err(fatal);
            }
        };
        // Closing a context notifies the peer, so that it need not wait for its time-out.
        let closed = self.endpoint.close(&mut self.card).map_err(Fatal::Ending);
        self.publish_totals();
        done.and(closed)
    }

    /// One round of the worker's loop: orders, frames from the guest, packets to send, received
    /// packets, pages.
    fn turn(&mut self) -> Result<(), Fatal> {
        let mut again = self.take_orders();
        again |= self.read_guest(self.endpoint.now()).map_err(fatal_read)?;
        let (now, more) = self.send()?;
        again |= more;
        again |= self.publish(now);
        let spins = !again && self.poll.spins(now.since(self.moved_at));
        let until = if again || spins { Instant::ZERO } else { self.due() };
        if !again && !spins {
            self.publish_before_sleep();
            self.moderation.before_sleep(&self.endpoint);
        }
        let received = self.endpoint.receive(until, &mut self.card).map_err(Fatal::Receiving)?;
        let now = self.endpoint.now();
        if received > 0 {
            self.moved_at = now;
        } else if spins {
            // A program that receives these packets may be waiting for this processor.
            std::thread::yield_now();
        }
        self.card.handle_timeout(now);
        Ok(())
    }

    /// Passes queued frames to the transport, and sends as many packets as possible. Returns the
    /// time at which it began, and whether more can be sent immediately.
    fn send(&mut self) -> Result<(Instant, bool), Fatal> {
        let (core, now) = self.endpoint.core_mut();
        self.card.express.pump(now, core);
        let mut more = self.endpoint.transmit(&mut self.card).map_err(Fatal::Sending)?;
        if self.card.express.has_waiting() {
            let (core, now) = self.endpoint.core_mut();
            more |= self.card.express.pump(now, core) > 0;
        }
        Ok((now, more))
    }

    /// Returns the time of the next turn, if no packet arrives earlier.
    fn due(&self) -> Instant {
        let express = self.card.express.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        express.min(self.publisher.due())
    }

    /// Reads frames from the guest. Returns whether more frames may be waiting.
    fn read_guest(&mut self, now: Instant) -> io::Result<bool> {
        for _ in 0..FRAMES_PER_TURN_MAX {
            let Some(frame) = self.card.port.read()? else { return Ok(false) };
            self.show_outgoing(now, &frame);
            self.publisher.moved();
            self.moved_at = now;
            self.card.express.from_guest(now, frame, &mut self.card.port);
        }
        Ok(true)
    }

    /// Copies a frame from the guest to the running captures.
    fn show_outgoing(&mut self, now: Instant, frame: &[u8]) {
        if !self.card.port.is_watched() {
            return;
        }
        let packet = frame.get(srd_card::offload::OFFLOAD_BYTES..).and_then(Packet::read);
        let slot = packet.and_then(|packet| self.card.express.peer_of(packet.destination));
        let peer = slot.and_then(|slot| self.card.peers.at(slot));
        self.card.port.belongs_to(now, peer);
        self.card.port.show(Direction::Out, frame);
    }
}

fn fatal_read(error: io::Error) -> Fatal {
    match error.raw_os_error() {
        Some(number) if number == Errno::BADFD.raw_os_error() => Fatal::InterfaceGone,
        _ => Fatal::Reading(error),
    }
}
