//! A worker: one thread that only moves frames between its part of the interface, the card and one
//! shard of the transport.
//!
//! ```text
//!   interface --read--> Express --pump--> LocalEndpoint --transmit--> sockets
//!   interface <-write-- Express <-delivered-- LocalEndpoint <-receive-- sockets
//! ```
//!
//! The worker runs to completion and shares only pages, flags and queues that never block it. It
//! takes no lock, starts no thread, formats and logs nothing, and allocates nothing for a packet
//! except the packet. It reads orders once in each turn.
//!
//! Bounds: a turn reads [`FRAMES_PER_TURN_MAX`] frames, makes [`apply::CHANGES_PER_TURN_MAX`]
//! changes, writes [`publish::ROWS_PER_TURN_MAX`] rows and lists the paths of one peer.
//!
//! | module | contents |
//! |---|---|
//! | `card` | handling of arrivals and events |
//! | `peers` | this worker's context with each peer, and its row |
//! | `apply` | orders |
//! | `publish` | times at which pages are written |

mod apply;
mod card;
mod peers;
pub(crate) mod publish;

use std::io;
use std::sync::mpsc::Receiver;

use rustix::io::Errno;
use srd_card::Express;
use srd_card::packet::Packet;
use srd_net::{LocalEndpoint, PacketIo, PollMode};
use srd_proto::Instant;

use self::apply::Pending;
use self::card::{Card, GuestPort};
use self::publish::Publisher;
use super::moderation::Moderation;
use super::orders::{Flags, Order, WorkerEnds};
use super::tapped::Tapped;
use crate::capture::Direction;
use std::sync::Arc;

/// Largest number of frames read between two checks for received packets.
const FRAMES_PER_TURN_MAX: usize = 64;

/// A worker's part of the guest's interface.
pub(crate) trait Port {
    /// The next frame that the guest sends; `None` if no frame waits.
    ///
    /// # Errors
    /// If the interface was deleted.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>>;

    /// Writes a frame to the guest.
    ///
    /// # Errors
    /// If the frame is refused.
    fn write(&mut self, frame: &[u8]) -> io::Result<()>;
}

/// Error that ends a worker before it is stopped.
#[derive(Debug)]
pub(crate) enum Fatal {
    /// The interface was deleted by another program.
    InterfaceGone,
    /// Reading from the interface failed.
    Reading(io::Error),
    /// Sending failed in a way that makes the sockets unusable.
    Sending(io::Error),
    /// Receiving failed in a way that makes the sockets unusable.
    Receiving(io::Error),
    /// Closing the contexts failed in a way that makes the sockets unusable.
    Ending(io::Error),
}

/// A worker that is set up.
#[derive(Debug)]
pub(crate) struct Worker<I, P> {
    endpoint: LocalEndpoint<Tapped<I>>,
    card: Card<P>,
    orders: Receiver<Order>,
    flags: Arc<Flags>,
    pending: Option<Pending>,
    publisher: Publisher,
    moderation: Moderation,
    poll: PollMode,
    /// Time when a packet was last read or received.
    moved_at: Instant,
}

impl<I: PacketIo, P: Port> Worker<I, P> {
    /// The `number`-th worker, without peers.
    pub(crate) fn new(
        number: usize,
        mut endpoint: LocalEndpoint<Tapped<I>>,
        port: P,
        card: srd_card::Config,
        ends: WorkerEnds,
        publisher: Publisher,
    ) -> Self {
        let (core, now) = endpoint.core_mut();
        let express = Express::new(card, core);
        let flags = Arc::clone(&ends.reports.flags);
        let card = Card::new(number, express, GuestPort::new(port), ends.reports);
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
        }
    }

    /// Sets the way to wait for packets from now on.
    pub(crate) fn set_poll(&mut self, poll: PollMode) {
        self.poll = poll;
    }

    /// Moves packets until it is stopped, and closes the contexts.
    ///
    /// # Errors
    /// The error that makes the interface or the sockets unusable.
    pub(crate) fn run(&mut self) -> Result<(), Fatal> {
        self.wait_for_peers();
        let done = loop {
            if self.flags.is_stopped() {
                break Ok(());
            }
            if let Err(fatal) = self.turn() {
                break Err(fatal);
            }
        };
        // Notifies the peers, so that they do not need to wait for their time-outs.
        let closed = self.endpoint.close(&mut self.card).map_err(Fatal::Ending);
        self.publish_totals();
        done.and(closed)
    }

    /// One turn: orders, frames from the guest, packets to send, received packets, pages.
    fn turn(&mut self) -> Result<(), Fatal> {
        let mut again = self.take_orders();
        again |= self.read_guest().map_err(fatal_read)?;
        let (core, now) = self.endpoint.core_mut();
        self.card.express.pump(now, core);
        again |= self.endpoint.transmit(&mut self.card).map_err(Fatal::Sending)?;
        if self.card.express.has_waiting() {
            let (core, now) = self.endpoint.core_mut();
            again |= self.card.express.pump(now, core) > 0;
        }
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
            // A program that the packets are for may wait for this processor.
            std::thread::yield_now();
        }
        self.card.express.handle_timeout(now, &mut self.card.port);
        Ok(())
    }

    /// Time of the next turn, unless a packet arrives earlier.
    fn due(&self) -> Instant {
        let express = self.card.express.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        express.min(self.publisher.due())
    }

    /// Reads frames from the guest. Returns whether there may be more.
    fn read_guest(&mut self) -> io::Result<bool> {
        let now = self.endpoint.now();
        for _ in 0..FRAMES_PER_TURN_MAX {
            let Some(frame) = self.card.port.read()? else { return Ok(false) };
            self.show_outgoing(now, &frame);
            self.publisher.moved();
            self.moved_at = now;
            self.card.express.from_guest(now, frame, &mut self.card.port);
        }
        Ok(true)
    }

    /// Copies a frame from the guest to captures.
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
