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

use crate::bind::{engine_of_run, engine_over, engines};
use crate::engine::{Application, Context, Engine, Flow};
use crate::io::{IoStats, Notice, PacketIo};
use crate::near::{self, NearIo};
use crate::options::{BindError, BindOptions};
use crate::sys::os;
use crate::udp::UdpIo;

/// An SRD endpoint that the calling thread drives: nothing moves outside of
/// [`LocalEndpoint::poll`], which sends what was queued, waits for packets, and calls the
/// application for each delivery and event.
///
/// Poll often enough: acknowledgements and retransmissions are due within microseconds to
/// milliseconds. An application that computes for longer should use [`crate::Endpoint`].
#[derive(Debug)]
pub struct LocalEndpoint<I = UdpIo> {
    engine: Engine<I>,
}

/// Counts what an application is called for.
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
    /// Opens the sockets. The calling thread's timers are made precise.
    ///
    /// # Errors
    /// An error of the operating system, or a knob of the configuration that is out of range.
    pub fn bind(options: &BindOptions) -> Result<Self, BindError> {
        os::timer_slack_minimum();
        Ok(Self { engine: options.open()? })
    }

    /// As [`LocalEndpoint::bind`], for a node whose work several threads share: one endpoint for
    /// each, all at one address and with one budget for link and receiver's share. They share no
    /// peers: each has to be connected to the peers that it is to reach. The kernel hands each
    /// the packets of its contexts; another node's `i`-th endpoint calls the `i`-th here. Any may
    /// be moved to a thread of its own. All should be dropped together: the kernel counts those
    /// that are left.
    ///
    /// # Errors
    /// An error of the operating system, or a setting that is out of range: `shards` is from 1 to
    /// [`srd_proto::SHARDS_MAX`].
    pub fn bind_shards(options: &BindOptions, shards: u8) -> Result<Vec<Self>, BindError> {
        os::timer_slack_minimum();
        let engines = options.open_shards(shards)?.into_iter();
        Ok(engines.map(|engine| Self { engine }).collect())
    }

    /// A descriptor that can be read while packets wait, for callers that wait on their own.
    /// Only to be waited on: packets are received by a round.
    ///
    /// # Errors
    /// An error of the operating system, if it has no descriptor left.
    pub fn arrivals(&self) -> io::Result<OwnedFd> {
        self.engine.io_ref().arrivals()
    }
}

impl LocalEndpoint<NearIo> {
    /// As [`LocalEndpoint::bind`]; packets to endpoints of this machine that do the same go through
    /// memory if `enabled` ([`crate::near`]).
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

    /// A descriptor that can be read while packets wait, if [`LocalEndpoint::arm`] was called since
    /// they were last received. Only to be waited on.
    ///
    /// # Errors
    /// An error of the operating system, if it has no descriptor left.
    pub fn arrivals(&self) -> io::Result<OwnedFd> {
        self.engine.io_ref().arrivals()
    }

    /// Before a sleep on [`LocalEndpoint::arrivals`]. `false`: a packet waits already.
    pub fn arm(&mut self) -> bool {
        self.engine.io().arm()
    }
}

impl<I: PacketIo> LocalEndpoint<I> {
    /// An endpoint over any back end. The calling thread's timers are made precise.
    ///
    /// # Errors
    /// A knob of the configuration that is out of range.
    pub fn over(io: I, config: Config) -> Result<Self, BindError> {
        os::timer_slack_minimum();
        Ok(Self { engine: engine_over(io, config)? })
    }

    /// As [`LocalEndpoint::over`], for a run with this epoch (see
    /// [`lasting_epoch`](crate::clock::lasting_epoch)).
    ///
    /// # Errors
    /// A knob of the configuration that is out of range.
    pub fn over_with(io: I, config: Config, epoch: Epoch) -> Result<Self, BindError> {
        os::timer_slack_minimum();
        Ok(Self { engine: engine_of_run(io, config, epoch)? })
    }

    /// The endpoints of one node's shards, one over each back end. All receive at one address,
    /// where each back end gets the packets that [`srd_proto::shard_of`] assigns to it.
    ///
    /// # Errors
    /// A setting that is out of range; the number of back ends is one.
    pub fn over_shards(ios: Vec<I>, config: Config, epoch: Epoch) -> Result<Vec<Self>, BindError> {
        os::timer_slack_minimum();
        let engines = engines(ios, config, epoch)?.into_iter();
        Ok(engines.map(|engine| Self { engine }).collect())
    }

    /// The address that peers send to.
    pub fn local_address(&self) -> SocketAddr {
        self.engine.io_ref().local_address()
    }

    /// Source address of packets with this entropy to a destination.
    pub fn source(&self, entropy: Entropy, destination: SocketAddr) -> SocketAddr {
        self.engine.io_ref().source(entropy, destination)
    }

    /// The operating system's error number, if this machine itself refused to send the last
    /// packet to the destination's host.
    pub fn refusal(&self, destination: SocketAddr) -> Option<i32> {
        self.engine.io_ref().refusal(destination)
    }

    /// The current time.
    pub fn now(&self) -> Instant {
        self.engine.now()
    }

    /// The peer at `address`, made known if it was not. Sends nothing: the context is made by
    /// the first datagram.
    ///
    /// # Errors
    /// When the endpoint has as many peers as it may.
    pub fn connect(&mut self, address: SocketAddr) -> Result<PeerId, AddPeerError> {
        self.connect_with_key(address, None)
    }

    /// As [`LocalEndpoint::connect`], to a peer with this static public key.
    ///
    /// # Errors
    /// The endpoint has as many peers as it may, needs a key, or has a peer with another key at
    /// this address.
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

    /// Sends, then waits for at most `timeout` ([`Duration::MAX`]: for ever) until the
    /// application was called for something, then sends what that led to. Returns how often
    /// the application was called; zero means that the time has passed.
    ///
    /// # Errors
    /// What makes the sockets unusable.
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

    /// Half of a round, for callers with queues of their own: runs timers that are due, sends
    /// what may be sent, and hands out events. Returns whether there is more to send at once.
    ///
    /// # Errors
    /// What makes the sockets unusable.
    pub fn transmit(&mut self, app: &mut impl Application) -> io::Result<bool> {
        Ok(self.engine.send_and_notify(app)? == Flow::More)
    }

    /// Ends the endpoint: sends every peer a Close ([`srd_proto::Endpoint::close`]), and waits
    /// for at most 50 ms until that has left.
    ///
    /// # Errors
    /// What makes the sockets unusable.
    pub fn close(&mut self, app: &mut impl Application) -> io::Result<()> {
        let now = self.engine.look();
        self.engine.core().close(now);
        self.engine.send_closes(app)
    }

    /// Hands out the events. Returns whether there was one.
    pub fn hand_out_events(&mut self, app: &mut impl Application) -> bool {
        self.engine.hand_out_events(app)
    }

    /// The other half: receives what has arrived, after a [`LocalEndpoint::transmit`] that left
    /// nothing to send waiting until `until`, a wake-up, or a watched descriptor. Returns how
    /// many packets arrived.
    ///
    /// # Errors
    /// What makes the sockets unusable.
    pub fn receive(&mut self, until: Instant, app: &mut impl Application) -> io::Result<usize> {
        self.engine.receive(until, app)
    }

    /// The time when this endpoint last looked at the clock.
    pub fn last_look(&self) -> Instant {
        self.engine.last_look()
    }

    /// Time when the next round is due at the latest, unless something arrives;
    /// [`Instant::ZERO`]: at once.
    pub fn due(&self) -> Instant {
        self.engine.due()
    }

    /// A handle that ends a wait from another thread.
    ///
    /// # Errors
    /// An error of the operating system, if it has no descriptor left.
    pub fn waker(&mut self) -> io::Result<std::sync::Arc<crate::IoWaker>> {
        self.engine.io().waker()
    }

    /// The core itself, and the time of its last call.
    pub fn core_mut(&mut self) -> (&mut srd_proto::Endpoint, Instant) {
        let now = self.engine.look();
        (self.engine.core(), now)
    }

    /// The most payload bytes that one datagram carries.
    pub fn payload_bytes_max(&self) -> usize {
        self.engine.core_ref().payload_bytes_max()
    }

    /// The core, for its counters and paths.
    pub fn core(&self) -> &srd_proto::Endpoint {
        self.engine.core_ref()
    }

    /// Whether a step of the wall clock counts as a sign that this process may exist twice, and
    /// lost events of the kernel do: a restored virtual machine has its clock set, where it gives
    /// no better sign. Either ends every session, and what is in flight with it, so that they
    /// count for programs alone whose traffic bears that, and now and then only. By default they
    /// do not.
    pub fn reseed_at_clock_steps(&mut self, counts: bool) {
        self.engine.copies().counts_suspicions = counts;
    }

    /// The back end.
    pub fn io(&mut self) -> &mut I {
        self.engine.io()
    }

    /// The back end's counters.
    pub fn io_stats(&self) -> IoStats {
        self.engine.io_ref().stats()
    }
}
