//! The endpoint for ordinary programs. A driver thread does the work; the program's threads and
//! futures send and receive through handles.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use srd_proto::{AddPeerError, Class, Config, Status};

use crate::back_ends::io::{PacketIo, PollMode};
use crate::endpoints::bind::engine_over;
use crate::endpoints::driver::{self, Command, Outgoing, PeerState, Permit, Shared};
use crate::endpoints::events::{EndpointEvent, Report};
use crate::endpoints::options::{BindError, BindOptions};
use crate::endpoints::sync::{
    Acquired, Inbox, InboxClosed, OneshotReceiver, OneshotSender, deadline, lock, oneshot,
};

/// An SRD endpoint that runs on a separate thread.
///
/// When the endpoint is dropped, its thread continues for `linger` so that the last datagrams are
/// acknowledged; [`Endpoint::close`] waits for the end of the thread.
#[derive(Debug)]
pub struct Endpoint {
    shared: Arc<Shared>,
    linger: srd_proto::Duration,
}

/// A remote node that datagrams can be sent to. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Peer {
    state: Arc<PeerState>,
}

/// A datagram that arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// Peer that sent the datagram.
    pub peer: Peer,
    /// Payload of the datagram.
    pub payload: Bytes,
}

impl Endpoint {
    /// Opens the sockets, and starts the thread that drives the endpoint.
    ///
    /// # Errors
    /// An error of the operating system, if the sockets cannot be opened, or an error of the
    /// configuration, if a setting is out of range.
    pub fn bind(options: &BindOptions) -> Result<Self, BindError> {
        let busy_poll = options.poll == PollMode::Spin;
        let shared = driver::start(options.open()?, options.receive_queue_datagrams, busy_poll);
        Ok(Self { shared: shared.map_err(BindError::Io)?, linger: options.linger })
    }

    /// Starts an endpoint that sends and receives by the back end `io`.
    ///
    /// # Errors
    /// An error of the operating system, if the thread cannot be started, or an error of the
    /// configuration, if a setting is out of range.
    pub fn over<I: PacketIo + Send + 'static>(io: I, config: Config) -> Result<Self, BindError> {
        let defaults = BindOptions::default();
        let engine = engine_over(io, config)?;
        let shared = driver::start(engine, defaults.receive_queue_datagrams, false);
        Ok(Self { shared: shared.map_err(BindError::Io)?, linger: defaults.linger })
    }

    /// Returns the address that peers send to.
    pub fn local_address(&self) -> SocketAddr {
        self.shared.local_address
    }

    /// Returns the largest number of payload bytes that one datagram carries.
    pub fn payload_bytes_max(&self) -> usize {
        self.shared.payload_bytes_max
    }

    /// Returns the peer at `address`. Sends nothing: the first datagram creates the context.
    ///
    /// # Errors
    /// [`ConnectError::Refused`], if there are too many peers; [`ConnectError::Closed`], if the
    /// endpoint has ended.
    pub fn connect(&self, address: SocketAddr) -> Result<Peer, ConnectError> {
        Self::peer_of(self.ask_for(address, None)?.wait(None))
    }

    /// Returns the peer at `address` that has the static public key `public_key`. Sends nothing.
    ///
    /// # Errors
    /// [`ConnectError::Refused`], if there are too many peers or if the peer at this address has
    /// another key; [`ConnectError::Closed`], if the endpoint has ended.
    pub fn connect_with_key(
        &self,
        address: SocketAddr,
        public_key: [u8; 32],
    ) -> Result<Peer, ConnectError> {
        Self::peer_of(self.ask_for(address, Some(public_key))?.wait(None))
    }

    /// Future form of [`Endpoint::connect`], and, with a `public_key`, of
    /// [`Endpoint::connect_with_key`]. The key is required if the endpoint uses static keys.
    ///
    /// # Errors
    /// As [`Endpoint::connect_with_key`].
    pub async fn connect_async(
        &self,
        address: SocketAddr,
        public_key: Option<[u8; 32]>,
    ) -> Result<Peer, ConnectError> {
        Self::peer_of(self.ask_for(address, public_key)?.await)
    }

    fn ask_for(
        &self,
        address: SocketAddr,
        public_key: Option<[u8; 32]>,
    ) -> Result<OneshotReceiver<Result<Arc<PeerState>, AddPeerError>>, ConnectError> {
        let (sender, reply) = oneshot();
        let command = Command::Connect { address, public_key, reply: sender };
        if self.shared.command(command) { Ok(reply) } else { Err(ConnectError::Closed) }
    }

    fn peer_of(answer: Option<Result<Arc<PeerState>, AddPeerError>>) -> Result<Peer, ConnectError> {
        let state = answer.ok_or(ConnectError::Closed)?.map_err(ConnectError::Refused)?;
        Ok(Peer { state })
    }

    /// Waits for the next datagram from any peer.
    ///
    /// # Errors
    /// [`Closed`], if the endpoint has ended and every received datagram was taken.
    pub fn recv(&self) -> Result<Received, Closed> {
        self.recv_until(None).unwrap_or(Err(Closed))
    }

    /// Waits for the next datagram for at most `timeout`. Returns `None` if no datagram arrived.
    ///
    /// # Errors
    /// [`Closed`], if the endpoint has ended and every received datagram was taken.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Received>, Closed> {
        self.recv_until(deadline(Some(timeout))).transpose()
    }

    /// Takes the next datagram, if there is one.
    ///
    /// # Errors
    /// [`Closed`], if the endpoint has ended and every received datagram was taken.
    pub fn try_recv(&self) -> Result<Option<Received>, Closed> {
        self.shared.inbox.try_take().map(|item| self.received(item)).transpose()
    }

    /// Future form of [`Endpoint::recv`].
    ///
    /// # Errors
    /// [`Closed`], if the endpoint has ended and every received datagram was taken.
    pub async fn recv_async(&self) -> Result<Received, Closed> {
        let item = self.shared.inbox.take_async().await;
        self.received(item)
    }

    /// Takes the next datagram, if there is one; otherwise the task is woken when a datagram has
    /// arrived or the endpoint has ended. If several tasks call this, only the task of the last
    /// call is woken.
    ///
    /// A future of [`Endpoint::recv_async`] that is dropped wakes no task; a program that polls
    /// once and continues calls this.
    ///
    /// # Errors
    /// [`Closed`], if the endpoint has ended and every received datagram was taken.
    pub fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Result<Received, Closed>> {
        self.shared.inbox.poll_take(context).map(|item| self.received(item))
    }

    fn recv_until(&self, until: Option<Instant>) -> Option<Result<Received, Closed>> {
        if self.shared.busy_poll {
            spin_while_empty(&self.shared.inbox, until);
        }
        self.shared.inbox.take(until).map(|item| self.received(item))
    }

    fn received(&self, item: Result<driver::Arrived, InboxClosed>) -> Result<Received, Closed> {
        let arrived = item.map_err(|InboxClosed| Closed)?;
        self.shared.took_one();
        Ok(Received { peer: Peer { state: arrived.peer }, payload: arrived.payload })
    }

    /// Takes the events since the last call. Arrivals of datagrams are not among them.
    pub fn take_events(&self) -> Vec<EndpointEvent> {
        self.shared.take_events()
    }

    /// Returns the counters and the state of every peer.
    ///
    /// # Errors
    /// [`Closed`], if the endpoint has ended.
    pub fn report(&self) -> Result<Report, Closed> {
        let (sender, reply) = oneshot();
        if !self.shared.command(Command::Report(sender)) {
            return Err(Closed);
        }
        reply.wait(None).ok_or(Closed)
    }

    /// Ends the endpoint after every sent datagram is acknowledged, or after `timeout`. Returns
    /// whether every datagram was acknowledged.
    pub fn close(self, timeout: Duration) -> bool {
        self.begin_close(timeout);
        self.shared.ended.wait_idle(None);
        self.shared.ended_clean.load(Ordering::SeqCst)
    }

    /// Future form of [`Endpoint::close`]. Other tasks may use the endpoint in the meantime; their
    /// waits end together with the endpoint.
    pub async fn close_async(&self, timeout: Duration) -> bool {
        self.begin_close(timeout);
        self.shared.ended.idle_async().await;
        self.shared.ended_clean.load(Ordering::SeqCst)
    }

    fn begin_close(&self, timeout: Duration) {
        let linger =
            srd_proto::Duration::from_nanos(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        self.shared.command(Command::Close { linger });
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.command(Command::Close { linger: self.linger });
    }
}

fn spin_while_empty<T>(inbox: &Inbox<T>, until: Option<Instant>) {
    while inbox.seems_empty() && until.is_none_or(|t| Instant::now() < t) {
        if inbox.is_closed() {
            return;
        }
        std::hint::spin_loop();
    }
}

impl Peer {
    /// Returns the address of the peer, with the port that it receives at.
    pub fn address(&self) -> SocketAddr {
        self.state.address
    }

    /// Queues a datagram. If the allowed number of datagrams is outstanding, waits until one of
    /// them has ended. The datagram is delivered at most once, in any order; [`Peer::flush`]
    /// returns the result.
    ///
    /// # Errors
    /// [`SendError::TooLarge`], if the datagram does not fit into one packet;
    /// [`SendError::Closed`], if the endpoint has ended.
    pub fn send(&self, payload: Bytes) -> Result<(), SendError> {
        self.check(&payload)?;
        if self.state.permits.acquire() {
            self.queue(payload, None)
        } else {
            Err(SendError::Closed)
        }
    }

    /// Queues a datagram, if fewer datagrams than allowed are outstanding.
    ///
    /// # Errors
    /// As [`Peer::send`], and [`SendError::WouldBlock`], if the allowed number of datagrams is
    /// outstanding.
    pub fn try_send(&self, payload: Bytes) -> Result<(), SendError> {
        self.check(&payload)?;
        match self.state.permits.try_acquire() {
            Acquired::Yes => self.queue(payload, None),
            Acquired::Full => Err(SendError::WouldBlock),
            Acquired::Closed => Err(SendError::Closed),
        }
    }

    /// Future form of [`Peer::send`].
    ///
    /// # Errors
    /// As [`Peer::send`].
    pub async fn send_async(&self, payload: Bytes) -> Result<(), SendError> {
        self.check(&payload)?;
        if self.state.permits.acquire_async().await {
            self.queue(payload, None)
        } else {
            Err(SendError::Closed)
        }
    }

    /// Queues a datagram, if fewer datagrams than allowed are outstanding; otherwise the task is
    /// woken when one of them has ended. Of several calls for one peer, only the task of the last
    /// call is woken.
    ///
    /// # Errors
    /// As [`Peer::send`].
    pub fn poll_send(
        &self,
        payload: Bytes,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        self.check(&payload)?;
        self.state
            .permits
            .poll_acquire(context)
            .map(|is_open| if is_open { self.queue(payload, None) } else { Err(SendError::Closed) })
    }

    /// Sends a datagram and waits until the peer has acknowledged it or the datagram has failed.
    ///
    /// # Errors
    /// As [`Peer::send`], and [`SendError::Failed`], if the datagram has failed.
    pub fn send_acknowledged(&self, payload: Bytes) -> Result<(), SendError> {
        self.check(&payload)?;
        if !self.state.permits.acquire() {
            return Err(SendError::Closed);
        }
        let (sender, reply) = oneshot();
        self.queue(payload, Some(sender))?;
        Self::outcome(reply.wait(None))
    }

    /// Future form of [`Peer::send_acknowledged`].
    ///
    /// # Errors
    /// As [`Peer::send_acknowledged`].
    pub async fn send_acknowledged_async(&self, payload: Bytes) -> Result<(), SendError> {
        self.check(&payload)?;
        if !self.state.permits.acquire_async().await {
            return Err(SendError::Closed);
        }
        let (sender, reply) = oneshot();
        self.queue(payload, Some(sender))?;
        Self::outcome(reply.await)
    }

    fn outcome(status: Option<Status>) -> Result<(), SendError> {
        match status.unwrap_or(Status::Flushed) {
            Status::Ok => Ok(()),
            status => Err(SendError::Failed(status)),
        }
    }

    fn check(&self, payload: &Bytes) -> Result<(), SendError> {
        let max_bytes = self.state.shared.payload_bytes_max;
        if payload.len() > max_bytes { Err(SendError::TooLarge { max_bytes }) } else { Ok(()) }
    }

    fn queue(&self, payload: Bytes, reply: Option<OneshotSender<Status>>) -> Result<(), SendError> {
        let permit = Permit::of(self.state.clone());
        let outgoing = Outgoing { permit, payload, class: Class::Bulk, reply };
        if self.state.shared.command(Command::Send(outgoing)) {
            Ok(())
        } else {
            Err(SendError::Closed)
        }
    }

    /// Waits for at most `timeout` until every datagram to this peer has ended.
    ///
    /// # Errors
    /// [`FlushError::Unfinished`], if datagrams are outstanding after `timeout` or when the
    /// endpoint ends; [`FlushError::Failed`], if a datagram has failed since the last flush.
    pub fn flush(&self, timeout: Duration) -> Result<(), FlushError> {
        let idle = self.state.permits.wait_idle(deadline(Some(timeout)));
        self.flushed(idle)
    }

    /// Future form of [`Peer::flush`], without a time limit.
    ///
    /// # Errors
    /// [`FlushError::Failed`], if a datagram has failed since the last flush;
    /// [`FlushError::Unfinished`], if the endpoint has ended.
    pub async fn flush_async(&self) -> Result<(), FlushError> {
        let idle = self.state.permits.idle_async().await;
        self.flushed(idle)
    }

    fn flushed(&self, idle: bool) -> Result<(), FlushError> {
        if let Some(status) = lock(&self.state.failure).take() {
            return Err(FlushError::Failed(status));
        }
        if idle {
            Ok(())
        } else {
            Err(FlushError::Unfinished { datagrams: self.state.permits.outstanding() })
        }
    }

    /// Returns the number of datagrams to this peer that have failed so far.
    pub fn failures(&self) -> u64 {
        self.state.failures.load(Ordering::Relaxed)
    }

    /// Returns the number of datagrams to this peer that wait or are in flight.
    pub fn outstanding(&self) -> u32 {
        self.state.permits.outstanding()
    }
}

/// Error: the endpoint has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the endpoint has ended")
    }
}

impl std::error::Error for Closed {}

/// Reason why a peer could not be connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The protocol core refused the peer, for example because there are too many peers, or because
    /// the peer at this address has another key.
    Refused(AddPeerError),
    /// The endpoint has ended.
    Closed,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(e) => write!(f, "{e}"),
            Self::Closed => write!(f, "{Closed}"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// Reason why a datagram was not sent, or not delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SendError {
    /// The datagram does not fit into one packet.
    TooLarge {
        /// Largest number of payload bytes that fit.
        max_bytes: usize,
    },
    /// The largest allowed number of datagrams to this peer is outstanding already.
    WouldBlock,
    /// The datagram ended with this status.
    Failed(Status),
    /// The endpoint has ended.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { max_bytes } => {
                write!(f, "the datagram is larger than one packet carries ({max_bytes} bytes)")
            }
            Self::WouldBlock => f.write_str("as many datagrams are outstanding as may be"),
            Self::Failed(status) => write!(f, "the datagram failed: {status}"),
            Self::Closed => write!(f, "{Closed}"),
        }
    }
}

impl std::error::Error for SendError {}

/// Reason why a flush failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FlushError {
    /// A datagram has failed since the last flush.
    Failed(Status),
    /// The time limit passed or the endpoint ended while datagrams were outstanding.
    Unfinished {
        /// Number of outstanding datagrams.
        datagrams: u32,
    },
}

impl fmt::Display for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(status) => write!(f, "a datagram failed: {status}"),
            Self::Unfinished { datagrams } => write!(f, "{datagrams} datagrams are outstanding"),
        }
    }
}

impl std::error::Error for FlushError {}
