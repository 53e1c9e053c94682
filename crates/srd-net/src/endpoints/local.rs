//! The endpoint for the lowest latency: the application drives it on its own thread, so that
//! no datagram is handed from one thread to another.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use srd_proto::ids::Entropy;
use srd_proto::time::{Duration, Instant};
use srd_proto::{
    AddPeerError, Config, Datagram, DatagramId, Delivery, Epoch, Event, PeerId, Qpn,
    ReceiveBuffers, SendError, Status,
};

use crate::back_ends::io::{IoStats, Notice, PacketIo};
use crate::back_ends::near::{self, NearIo};
use crate::back_ends::udp::UdpIo;
use crate::endpoints::bind::{engine_of_run, engine_over, engines};
use crate::endpoints::engine::{Application, Context, Engine, Flow};
use crate::endpoints::options::{BindError, BindOptions};
use crate::sys::os;

/// An SRD endpoint that the calling thread drives: packets are sent and received only inside
/// [`LocalEndpoint::poll`], which sends the queued datagrams, waits for packets, and calls the
/// application for each delivery and event.
///
/// Poll often enough: acknowledgements and retransmissions are due within microseconds to
/// milliseconds. An application that computes for longer should use [`crate::Endpoint`].
#[derive(Debug)]
pub struct LocalEndpoint<I = UdpIo> {
    engine: Engine<I>,
}

/// An application that passes each call to the application `app`, and counts deliveries and events.
struct Counted<'a, A> {
    app: &'a mut A,
    calls: usize,
}

impl<A: Application> Application for Counted<'_, A> {
    fn admit(&mut self, now: Instant, delivery: &Delivery<'_>) -> Status {
        self.app.admit(now, delivery)
    }

    fn delivered(&mut self, context: &mut Context<'_>, delivery: Delivery<'_>) {
        self.calls += 1;
        self.app.delivered(context, delivery);
    }

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        self.calls += 1;
        self.app.event(context, event);
    }

    fn notice(&mut self, notice: Notice) {
        self.app.notice(notice);
    }
}

impl LocalEndpoint {
    /// Opens the sockets of an endpoint. Sets the timer slack of the calling thread to the minimum,
    /// so that waits end on time.
    ///
    /// # Errors
    /// An error of the operating system, if the sockets cannot be opened, or an error of the
    /// configuration, if a setting is out of range.
    pub fn bind(options: &BindOptions) -> Result<Self, BindError> {
        os::timer_slack_minimum();
        Ok(Self { engine: options.open()? })
    }

    /// Opens the sockets of a node whose work several threads share. Returns one endpoint for each
    /// thread. All have the same address, and share two budgets: the rate of the link, and the
    /// credit that the node grants to its senders. The endpoints do not share peers: each endpoint
    /// must be connected to every peer that it sends to. The kernel hands each endpoint the packets
    /// of its contexts; the `i`-th endpoint of another node connects to the `i`-th endpoint of this
    /// one. Any endpoint may be moved to another thread. Drop all of them together: the kernel
    /// distributes packets by the number of remaining sockets.
    ///
    /// # Errors
    /// An error of the operating system, if the sockets cannot be opened, or an error of the
    /// configuration, if a setting is out of range: `shards` is from 1 to
    /// [`srd_proto::SHARDS_MAX`].
    pub fn bind_shards(options: &BindOptions, shards: u8) -> Result<Vec<Self>, BindError> {
        os::timer_slack_minimum();
        let engines = options.open_shards(shards)?.into_iter();
        Ok(engines.map(|engine| Self { engine }).collect())
    }

    /// Returns a descriptor that is readable while packets wait, for callers with their own event
    /// loop. Use it only to wait; [`LocalEndpoint::poll`] reads the packets.
    ///
    /// # Errors
    /// An error of the operating system, if it has no free descriptor.
    pub fn arrivals(&self) -> io::Result<OwnedFd> {
        self.engine.io_ref().arrivals()
    }
}

impl LocalEndpoint<NearIo> {
    /// Opens the sockets as [`LocalEndpoint::bind`] does. If `enabled`, packets to endpoints of
    /// this machine that were opened by this function too go through memory ([`crate::near`]).
    ///
    /// # Errors
    /// As [`LocalEndpoint::bind`].
    pub fn bind_near(options: &BindOptions, enabled: bool) -> Result<Self, BindError> {
        os::timer_slack_minimum();
        let (mut sockets, mut config) = options.open_io(1)?;
        if enabled && options.packet_bytes_from_interface {
            config.own_ip = Some(options.address);
            config.own_packet_bytes_max = near::PACKET_BYTES_MAX;
        }
        let udp = sockets.pop().ok_or_else(|| BindError::Io(io::Error::other("no shard")))?;
        Ok(Self { engine: engine_over(NearIo::over(udp, enabled), config)? })
    }

    /// Returns a descriptor that is readable while packets wait, if [`LocalEndpoint::arm`] was
    /// called since packets were last received. Use the descriptor only to wait.
    ///
    /// # Errors
    /// An error of the operating system, if it has no free descriptor.
    pub fn arrivals(&self) -> io::Result<OwnedFd> {
        self.engine.io_ref().arrivals()
    }

    /// Prepares a sleep on [`LocalEndpoint::arrivals`]. Returns `false` if a packet waits already.
    pub fn arm(&mut self) -> bool {
        self.engine.io().arm()
    }
}

impl<I: PacketIo> LocalEndpoint<I> {
    /// Makes an endpoint that sends and receives by the back end `io`. Sets the timer slack of the
    /// calling thread to the minimum, so that waits end on time.
    ///
    /// # Errors
    /// An error of the configuration, if a setting is out of range.
    pub fn over(io: I, config: Config) -> Result<Self, BindError> {
        os::timer_slack_minimum();
        Ok(Self { engine: engine_over(io, config)? })
    }

    /// Makes an endpoint that sends and receives by the back end `io`, for a run with this epoch
    /// (see [`lasting_epoch`](crate::clock::lasting_epoch)).
    ///
    /// # Errors
    /// An error of the configuration, if a setting is out of range.
    pub fn over_with(io: I, config: Config, epoch: Epoch) -> Result<Self, BindError> {
        os::timer_slack_minimum();
        Ok(Self { engine: engine_of_run(io, config, epoch)? })
    }

    /// Makes the endpoints of the shards of one node, one over each back end. All back ends receive
    /// at one address; each receives the packets that [`srd_proto::shard_of`] assigns to its shard.
    ///
    /// # Errors
    /// An error of the configuration, if a setting is out of range; the number of back ends is one
    /// of these settings.
    pub fn over_shards(ios: Vec<I>, config: Config, epoch: Epoch) -> Result<Vec<Self>, BindError> {
        os::timer_slack_minimum();
        let engines = engines(ios, config, epoch)?.into_iter();
        Ok(engines.map(|engine| Self { engine }).collect())
    }

    /// Returns the address that peers send to.
    pub fn local_address(&self) -> SocketAddr {
        self.engine.io_ref().local_address()
    }

    /// Returns the source address of packets with this entropy to a destination.
    pub fn source(&self, entropy: Entropy, destination: SocketAddr) -> SocketAddr {
        self.engine.io_ref().source(entropy, destination)
    }

    /// Returns the operating system's error number, if this machine itself refused to send the last
    /// packet to the destination's host.
    pub fn refusal(&self, destination: SocketAddr) -> Option<i32> {
        self.engine.io_ref().refusal(destination)
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        self.engine.now()
    }

    /// Returns the peer at `address`; adds the peer if it is new. Sends nothing: the first datagram
    /// creates the context.
    ///
    /// # Errors
    /// [`AddPeerError`], if the endpoint has its largest number of peers.
    pub fn connect(&mut self, address: SocketAddr) -> Result<PeerId, AddPeerError> {
        self.connect_with_key(address, None)
    }

    /// Returns the peer at `address` with this static public key; adds the peer if it is new. Sends
    /// nothing: the first datagram creates the context.
    ///
    /// # Errors
    /// [`AddPeerError`], if the endpoint has its largest number of peers, needs a key, or has a
    /// peer with another key at this address.
    pub fn connect_with_key(
        &mut self,
        address: SocketAddr,
        public_key: Option<[u8; 32]>,
    ) -> Result<PeerId, AddPeerError> {
        let is_new = self.engine.core_ref().peer_at(address).is_none();
        let now = self.engine.look();
        let peer = self.engine.core().peer_with(now, address, public_key)?;
        if is_new {
            let bytes = self.engine.core().packet_bytes_max_to(peer);
            self.engine.io().check_destination(address, bytes);
        }
        Ok(peer)
    }

    /// Opens a queue pair for receiving.
    pub fn open_qp(&mut self, qpn: Qpn, buffers: ReceiveBuffers) {
        self.engine.core().open_qp(qpn, buffers);
    }

    /// Queues a datagram; the next poll sends it, and its completion follows as an event.
    ///
    /// # Errors
    /// As [`srd_proto::Endpoint::send`].
    pub fn send(&mut self, to: PeerId, datagram: Datagram) -> Result<DatagramId, SendError> {
        let now = self.engine.last_look();
        self.engine.core().send(now, to, datagram)
    }

    /// Sends queued datagrams, and processes packets until the application was called for a
    /// delivery or an event, for at most `timeout` ([`Duration::MAX`]: without limit). Datagrams
    /// that the application queued in these calls are sent before this function returns. Returns
    /// the number of calls; zero if the time has passed.
    ///
    /// # Errors
    /// An error of the operating system that makes the sockets unusable. In the child of a fork,
    /// always an error: the endpoint belongs to the parent.
    pub fn poll(&mut self, timeout: Duration, app: &mut impl Application) -> io::Result<usize> {
        let until =
            if timeout == Duration::ZERO { Instant::ZERO } else { self.engine.now() + timeout };
        let mut counted = Counted { app, calls: 0 };
        loop {
            self.engine.round(until, &mut counted)?;
            if counted.calls > 0 {
                break;
            }
            if until == Instant::ZERO || self.engine.now() >= until {
                break;
            }
        }
        self.engine.send_and_notify(&mut counted)?;
        Ok(counted.calls)
    }

    /// First half of a round, for callers that queue work themselves: runs timers that are due,
    /// sends as many packets as possible, and hands out events. Returns whether more packets can be
    /// sent immediately.
    ///
    /// # Errors
    /// An error of the operating system that makes the sockets unusable. In the child of a fork,
    /// always an error: the endpoint belongs to the parent.
    pub fn transmit(&mut self, app: &mut impl Application) -> io::Result<bool> {
        Ok(self.engine.send_and_notify(app)? == Flow::More)
    }

    /// Ends the endpoint: sends a Close to every peer ([`srd_proto::Endpoint::close`]), and waits
    /// for at most 50 ms until all Closes are sent.
    ///
    /// # Errors
    /// An error of the operating system that makes the sockets unusable. In the child of a fork,
    /// always an error: the endpoint belongs to the parent.
    pub fn close(&mut self, app: &mut impl Application) -> io::Result<()> {
        let now = self.engine.look();
        self.engine.core().close(now);
        self.engine.send_closes(app)
    }

    /// Passes all waiting events to the application. Returns whether there was an event.
    pub fn hand_out_events(&mut self, app: &mut impl Application) -> bool {
        self.engine.hand_out_events(app)
    }

    /// Second half of a round: receives the packets that have arrived. If the last
    /// [`LocalEndpoint::transmit`] left nothing to send, waits at most until `until`; the next
    /// timer, a wake-up, or a readable watched descriptor ends the wait earlier. Returns the number
    /// of packets that arrived.
    ///
    /// # Errors
    /// An error of the operating system that makes the sockets unusable.
    pub fn receive(&mut self, until: Instant, app: &mut impl Application) -> io::Result<usize> {
        self.engine.receive(until, app)
    }

    /// Reads the clock.
    pub fn look(&mut self) -> Instant {
        self.engine.look()
    }

    /// Returns the time when this endpoint last read the clock.
    pub fn last_look(&self) -> Instant {
        self.engine.last_look()
    }

    /// Returns the time when the next round is due, if nothing arrives before; [`Instant::ZERO`]:
    /// immediately.
    pub fn due(&self) -> Instant {
        self.engine.due()
    }

    /// Returns a handle with which another thread can end this endpoint's wait for packets.
    ///
    /// # Errors
    /// An error of the operating system, if it has no free descriptor.
    pub fn waker(&mut self) -> io::Result<std::sync::Arc<crate::IoWaker>> {
        self.engine.io().waker()
    }

    /// Returns the protocol core, and the current time for calls to it.
    pub fn core_mut(&mut self) -> (&mut srd_proto::Endpoint, Instant) {
        let now = self.engine.look();
        (self.engine.core(), now)
    }

    /// Returns the protocol core, and the time when this endpoint last read the clock: precise
    /// enough to queue datagrams, which get the time of their departure when they leave.
    pub fn core_at_last_look(&mut self) -> (&mut srd_proto::Endpoint, Instant) {
        let now = self.engine.last_look();
        (self.engine.core(), now)
    }

    /// Returns the largest number of payload bytes that one datagram carries.
    pub fn payload_bytes_max(&self) -> usize {
        self.engine.core_ref().payload_bytes_max()
    }

    /// Returns the protocol core, to read its counters and paths.
    pub fn core(&self) -> &srd_proto::Endpoint {
        self.engine.core_ref()
    }

    /// Sets whether a step of the wall clock, or lost events of the kernel, count as signs that
    /// this process may exist twice. After a restore, the clock of a virtual machine is set; some
    /// virtual machines show no better sign. Each sign ends every session and every datagram in
    /// flight. So enable this only if the program tolerates that. The rate of such signs is
    /// limited. Off by default.
    pub fn reseed_at_clock_steps(&mut self, counts: bool) {
        self.engine.copies().counts_suspicions = counts;
    }

    /// Changes the static private key of this endpoint. All sessions end, and open again with the
    /// peers that have the new public key. Returns false if the endpoint has no static key.
    pub fn rekey(&mut self, private: [u8; 32]) -> bool {
        self.engine.rekey(private)
    }

    /// Returns the back end.
    pub fn io(&mut self) -> &mut I {
        self.engine.io()
    }

    /// Returns the counters of the back end.
    pub fn io_stats(&self) -> IoStats {
        self.engine.io_ref().stats()
    }
}
