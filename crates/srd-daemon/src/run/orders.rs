//! Queues between the control thread and each worker: orders in one direction, reports in the
//! other.
//!
//! ```text
//!   control thread, readers --- Order, at most ORDERS_MAX wait -----> worker
//!   control thread          <-- Report, at most REPORTS_MAX wait --- worker (never waits)
//! ```
//!
//! A report is only a hint: before the worker sends it, it writes the event into the peer's row of
//! the pages. If the queue is full, only the hint is lost. The worker counts lost reports, and sets
//! a flag that makes the control thread check every row.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::time::Duration;

use srd_card::Prefix;
use srd_net::Notice;
use srd_proto::{AddPeerError, PeerConfig};

use super::waker::Waker;
use crate::capture::Tap;
use crate::keys::SecretKey;
use crate::pages::peer::PeerPage;
use crate::pages::rows::{FlowList, PathList};
use crate::plane::{Oneshot, PeerNumber};

/// Largest number of orders that may wait in the queue of one worker.
pub(crate) const ORDERS_MAX: usize = 64;
/// Largest number of reports of each worker that may wait for the control thread.
pub(crate) const REPORTS_MAX: usize = 1024;
/// Interval at which a sender tries again if a worker's queue of orders is full.
const ORDER_RETRY: Duration = Duration::from_millis(1);

/// A command to a worker.
#[derive(Debug)]
pub(crate) enum Order {
    /// Makes changes of peers and settings.
    Apply(Batch),
    /// Copies packets to a capture until its reader is dropped.
    Capture(Tap),
    /// Requests a list of flows.
    Flows(FlowList),
    /// Requests a list of paths.
    Paths(PathList),
    /// Requests descriptors of the sockets and of the interface's queues, for another process.
    Descriptors(Oneshot<io::Result<WorkerDescriptors>>),
    /// Stops the worker until the hold is dropped.
    Hold(Hold),
    /// Lets a worker move packets that has taken over from another process.
    Begin,
}

/// Descriptors of everything that a worker reads and writes, for another process that continues
/// with them.
#[derive(Debug)]
pub(crate) struct WorkerDescriptors {
    pub(crate) sockets: Vec<OwnedFd>,
    /// The queues of the interface; none if there is no interface.
    pub(crate) queues: Vec<Arc<OwnedFd>>,
    /// Whether UDP packets pass the queues without segmentation.
    pub(crate) udp_segmentation: bool,
}

/// A worker's end of a pause, in which the worker moves no packets. Packets wait in the sockets and
/// in the queues of the interface.
#[derive(Debug)]
pub(crate) struct Hold {
    /// Receives a value when the worker has stopped.
    pub(crate) held: Oneshot<()>,
    /// Ends the pause when its sender is dropped.
    pub(crate) end: Receiver<()>,
}

impl Hold {
    /// Waits until the pause ends.
    pub(crate) fn wait(self) {
        self.held.send(());
        // Nothing is ever sent: an error means that the sender was dropped.
        let _ = self.end.recv();
    }
}

/// Changes that one order makes, in the sequence of the list.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) changes: Vec<Change>,
    /// Receives the refused changes when all changes have been tried and the pages show the result.
    pub(crate) done: Oneshot<Vec<Refused>>,
}

/// A peer that a worker could not add, and the reason.
pub(crate) type Refused = (PeerNumber, AddPeerError);

/// A new peer, with the settings that a worker needs.
#[derive(Clone, Debug)]
pub(crate) struct NewPeer {
    pub(crate) transport: PeerConfig,
    pub(crate) allowed: Vec<Prefix>,
    pub(crate) express: bool,
    pub(crate) express_udp: bool,
    /// Name of the peer as a host of the clouds; `None` if it is no such host.
    pub(crate) cloud_host: Option<Arc<str>>,
    /// The page into which the worker writes its figures of the peer.
    pub(crate) page: Arc<PeerPage>,
}

/// Settings for all peers together, which may change while the worker runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CardSettings {
    pub(crate) express: bool,
    pub(crate) express_udp: bool,
    pub(crate) express_tunnels: bool,
    pub(crate) udp_bypass: bool,
    pub(crate) order_wait: srd_proto::Duration,
    pub(crate) queue_target: srd_proto::Duration,
    pub(crate) poll: srd_net::PollMode,
}

/// One change in a batch. In a batch, all removals precede all additions, so that keys, addresses
/// and prefixes may be swapped between peers.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Changes nothing, but is refused if a different peer has this address.
    CheckAddress(PeerNumber, std::net::SocketAddr),
    /// Ends the context with a peer; the peer's row stays.
    Withdraw(PeerNumber),
    /// Ends the context with a peer, and removes its row.
    Remove(PeerNumber),
    /// Sets the inner prefixes behind a peer: the peer may send from these prefixes, and packets to
    /// these prefixes go to the peer.
    Allow(PeerNumber, Vec<Prefix>),
    /// Switches SRD to a peer on or off: the first value is for all packets, the second for UDP.
    Express(PeerNumber, bool, bool),
    /// Adds a peer that is new, or whose context was ended by [`Change::Withdraw`].
    Add(PeerNumber, Box<NewPeer>),
    /// Replaces the settings that are common to all peers.
    Card(CardSettings),
    /// Replaces the private key of this node. All sessions end.
    Key(Box<SecretKey>),
}

/// A message from a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    /// An event of a peer, whose row the control thread has to check.
    Peer(PeerNumber),
    /// The network passes packets of another size to a peer than the configured size.
    PathMtu { peer: PeerNumber, configured_bytes: u16 },
    /// A message of the sockets for people, which is logged.
    Notice(Notice),
}

/// Flags that both ends of a worker's queues share.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    /// Whether the worker has to close its contexts and end.
    stop: AtomicBool,
    /// Whether reports were lost, so that every row has to be checked.
    look_again: AtomicBool,
    /// Whether the worker's thread has ended: stopped, failed or panicked.
    has_ended: AtomicBool,
}

impl Flags {
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Whether the worker has to end. If so, it sees all orders that were sent before.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Records that reports were lost.
    pub(crate) fn raise_look_again(&self) {
        self.look_again.store(true, Ordering::Release);
    }

    /// Returns whether reports were lost since the last call.
    pub(crate) fn take_look_again(&self) -> bool {
        self.look_again.load(Ordering::Relaxed) && self.look_again.swap(false, Ordering::Acquire)
    }
}

/// The worker's sending end of the queue of reports.
#[derive(Debug)]
pub(crate) struct Reports {
    pub(crate) queue: SyncSender<Report>,
    pub(crate) flags: Arc<Flags>,
    pub(crate) control: Waker,
    pub(crate) lost: u64,
}

impl Reports {
    /// Sends a report to the control thread. Never waits: if the queue is full, the report is lost.
    pub(crate) fn send(&mut self, report: Report) {
        if self.queue.try_send(report).is_err() {
            self.lost += 1;
            self.flags.raise_look_again();
        }
        self.control.wake();
    }
}

/// The sending end of a worker's queue of orders, for any thread.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) queue: SyncSender<Order>,
    pub(crate) flags: Arc<Flags>,
    pub(crate) worker: WorkerWaker,
}

/// Wakes a worker that waits for packets.
#[derive(Clone, Debug)]
pub(crate) enum WorkerWaker {
    /// The worker waits in its back end.
    Io(Arc<srd_net::IoWaker>),
    /// The loop of a card of instances drives the worker, and waits for this event descriptor.
    Card(Arc<OwnedFd>),
}

impl WorkerWaker {
    /// Ends the present wait of the worker, or its next one.
    pub(crate) fn wake(&self) {
        match self {
            Self::Io(waker) => waker.wake(),
            // A counter that is full ends the wait as well.
            Self::Card(event) => drop(rustix::io::write(event, &1_u64.to_ne_bytes())),
        }
    }
}

impl Orders {
    /// Sends an order to the worker. If the queue is full, waits until the worker has taken earlier
    /// orders. Returns false if the worker has ended.
    pub(crate) fn send(&self, order: Order) -> bool {
        let mut order = order;
        loop {
            if self.flags.has_ended() {
                return false;
            }
            match self.queue.try_send(order) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) => order = back,
                Err(TrySendError::Disconnected(_)) => return false,
            }
            self.worker.wake();
            std::thread::sleep(ORDER_RETRY);
        }
        self.worker.wake();
        true
    }

    /// Makes the worker close its contexts and end.
    pub(crate) fn stop(&self) {
        self.flags.stop();
        self.worker.wake();
    }
}

/// A worker's ends of its two queues.
#[derive(Debug)]
pub(crate) struct WorkerEnds {
    pub(crate) orders: Receiver<Order>,
    pub(crate) reports: Reports,
}

/// The control thread's ends of the two queues of a worker.
#[derive(Debug)]
pub(crate) struct ControlEnds {
    pub(crate) orders: Orders,
    pub(crate) reports: Receiver<Report>,
}

/// Creates the two queues between the control thread and a worker.
pub(crate) fn queues(control: Waker, worker: WorkerWaker) -> (ControlEnds, WorkerEnds) {
    let (order, orders) = std::sync::mpsc::sync_channel(ORDERS_MAX);
    let (report, reports) = std::sync::mpsc::sync_channel(REPORTS_MAX);
    let flags = Arc::new(Flags::default());
    let to_worker = Orders { queue: order, flags: Arc::clone(&flags), worker };
    let to_control = Reports { queue: report, flags, control, lost: 0 };
    (ControlEnds { orders: to_worker, reports }, WorkerEnds { orders, reports: to_control })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> (ControlEnds, WorkerEnds) {
        let net = srd_net::MemoryNet::new(srd_net::MemoryOptions::default());
        let mut io = net.node("192.0.2.1:7471".parse().unwrap(), 1);
        let waker = srd_net::PacketIo::waker(&mut io).unwrap();
        queues(Waker::default(), WorkerWaker::Io(waker))
    }

    #[test]
    fn reports_beyond_the_bound_are_counted_and_raise_a_flag_and_later_ones_come_again() {
        let (control, mut worker) = both();
        for n in 0..REPORTS_MAX + 5 {
            worker.reports.send(Report::Peer(PeerNumber(u32::try_from(n).unwrap())));
        }
        assert_eq!((worker.reports.lost, control.reports.try_iter().count()), (5, REPORTS_MAX));
        assert!(control.orders.flags.take_look_again());
        assert!(!control.orders.flags.take_look_again(), "it is said once");
        worker.reports.send(Report::Peer(PeerNumber(7)));
        assert_eq!(control.reports.try_recv(), Ok(Report::Peer(PeerNumber(7))));
        assert_eq!((worker.reports.lost, control.orders.flags.take_look_again()), (5, false));
    }

    #[test]
    fn orders_beyond_the_bound_wait_for_the_worker_and_end_with_it() {
        let (control, worker) = both();
        let order = || Order::Apply(Batch { changes: Vec::new(), done: crate::plane::oneshot().0 });
        for _ in 0..ORDERS_MAX {
            control.orders.queue.try_send(order()).unwrap();
        }
        assert!(control.orders.queue.try_send(order()).is_err());
        let orders = control.orders.clone();
        let waits = std::thread::spawn(move || [orders.send(order()), orders.send(order())]);
        let taken = worker.orders.iter().take(ORDERS_MAX + 1).count();
        assert_eq!(taken, ORDERS_MAX + 1);
        assert_eq!(waits.join().unwrap(), [true, true]);
        for _ in 1..ORDERS_MAX {
            control.orders.queue.try_send(order()).unwrap();
        }
        let orders = control.orders.clone();
        let waits = std::thread::spawn(move || orders.send(order()));
        control.orders.flags.end();
        assert!(!waits.join().unwrap(), "nobody takes it");
        drop(worker);
        assert!(!control.orders.send(order()));
    }
}
