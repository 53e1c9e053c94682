//! The driver: one thread per endpoint that owns the core and the sockets.
//!
//! Application threads put commands in a queue behind a lock that is held for a few nanoseconds,
//! and wake the driver only if the driver sleeps. The driver takes the whole queue at once. Every
//! wait is bounded: a number of permits for each peer bounds the commands, the number of receive
//! buffers bounds the arrivals.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use srd_proto::time::{Duration, Instant};
use srd_proto::{
    AddPeerError, Class, Datagram, Delivery, Event, PeerId, Qpn, ReceiveBuffers, SendError, Status,
};

use crate::back_ends::io::{Notice, PacketIo};
use crate::endpoints::engine::{Application, Context, Engine};
use crate::endpoints::events::{EndpointEvent, Report};
use crate::endpoints::sync::{Inbox, OneshotSender, Semaphore, lock};
use crate::endpoints::wake::IoWaker;
use crate::sys::os;

/// The queue pair of an endpoint that is used through [`crate::Endpoint`].
pub(crate) const QPN: Qpn = Qpn(1);
/// Largest number of events that wait to be read; further events are dropped.
const EVENTS_MAX: usize = 256;
/// Time for which a closing endpoint continues to acknowledge datagrams that its peers have in
/// flight.
const CLOSE_QUIET: Duration = Duration::from_millis(2);
/// Interval at which a closing endpoint checks whether all datagrams have ended.
const CLOSE_LOOK: Duration = Duration::from_millis(1);

/// Commands of application threads to the driver.
#[derive(Debug)]
pub(crate) enum Command {
    Connect {
        address: SocketAddr,
        public_key: Option<[u8; 32]>,
        reply: OneshotSender<Result<Arc<PeerState>, AddPeerError>>,
    },
    Send(Outgoing),
    PostReceives(u32),
    Report(OneshotSender<Report>),
    Close {
        linger: Duration,
    },
}

/// A datagram on its way from the application to the core. If this value is dropped before the core
/// has accepted the datagram, the datagram has failed.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub permit: Permit,
    pub payload: Bytes,
    pub class: Class,
    pub reply: Option<OneshotSender<Status>>,
}

/// The permit of one datagram. The number of permits bounds the outstanding datagrams to a peer; a
/// permit is released when its datagram ends.
#[derive(Debug)]
pub(crate) struct Permit {
    pub peer: Arc<PeerState>,
    /// Whether the core has accepted the datagram. If it has, the core reports the completion of
    /// the datagram, and this releases the permit.
    handed_over: bool,
}

impl Permit {
    /// Returns the permit that was acquired for a datagram to this peer.
    pub(crate) fn of(peer: Arc<PeerState>) -> Self {
        Self { peer, handed_over: false }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.handed_over {
            self.peer.ended(Status::Flushed);
        }
    }
}

/// State of a peer that application threads and the driver share.
#[derive(Debug)]
pub(crate) struct PeerState {
    pub shared: Arc<Shared>,
    pub address: SocketAddr,
    public_key: Option<[u8; 32]>,
    pub permits: Semaphore,
    /// Number of datagrams that ended with an error.
    pub failures: AtomicU64,
    /// Status of the last failed datagram; the next flush reports and removes it.
    pub failure: Mutex<Option<Status>>,
    /// The core's identifier of the peer; the driver renews it after the core has removed the peer.
    id: Mutex<PeerId>,
}

impl PeerState {
    /// Records that a datagram to the peer has ended with this status.
    fn ended(&self, status: Status) {
        if status != Status::Ok {
            self.failures.fetch_add(1, Ordering::Relaxed);
            *lock(&self.failure) = Some(status);
        }
        self.permits.release(1);
    }
}

/// A datagram that arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub peer: Arc<PeerState>,
    pub payload: Bytes,
}

/// State that the driver shares with application threads.
#[derive(Debug)]
pub(crate) struct Shared {
    commands: Mutex<Commands>,
    waker: Arc<IoWaker>,
    pub inbox: Inbox<Arrived>,
    /// Number of datagrams that were taken from the inbox, and whose receive buffers were not
    /// returned to the core yet.
    taken: AtomicU32,
    post_batch: u32,
    events: Mutex<VecDeque<EndpointEvent>>,
    pub local_address: SocketAddr,
    pub payload_bytes_max: usize,
    permits_max: u32,
    pub busy_poll: bool,
    /// Whether the driver has ended after all datagrams were acknowledged.
    pub ended_clean: AtomicBool,
    pub ended: Semaphore,
}

#[derive(Debug, Default)]
struct Commands {
    queue: Vec<Command>,
    closed: bool,
}

impl Shared {
    /// Queues a command for the driver. If the driver has ended, drops the command and returns
    /// false.
    pub(crate) fn command(&self, command: Command) -> bool {
        {
            let mut commands = lock(&self.commands);
            if commands.closed {
                return false;
            }
            commands.queue.push(command);
        }
        self.waker.wake();
        true
    }

    /// Records that one datagram was taken from the inbox. Returns receive buffers to the core in
    /// batches.
    pub(crate) fn took_one(&self) {
        if self.taken.fetch_add(1, Ordering::Relaxed) + 1 >= self.post_batch {
            let n = self.taken.swap(0, Ordering::Relaxed);
            if n > 0 {
                self.command(Command::PostReceives(n));
            }
        }
    }

    /// Takes all waiting events.
    pub(crate) fn take_events(&self) -> Vec<EndpointEvent> {
        lock(&self.events).drain(..).collect()
    }
}

/// The driver's state of an endpoint, in addition to the core and the sockets.
struct Ledger {
    shared: Arc<Shared>,
    /// State of each peer, with the core's identifier of the peer. The position in this list is the
    /// index that the identifier contains; the core uses an index again for another peer.
    peers: Vec<Option<(PeerId, Arc<PeerState>)>>,
    arrivals: VecDeque<Arrived>,
    /// Threads and futures that wait for the final status of a datagram. The number `user` of the
    /// datagram is the index in this list plus one; 0 if none waits.
    replies: Vec<Option<OneshotSender<Status>>>,
    free_replies: Vec<usize>,
    /// Datagrams that the application has handed over, and that the core cannot accept yet.
    deferred: VecDeque<Outgoing>,
}

/// Guard of the driver's thread. When the driver ends, even by a panic, the guard drops the queued
/// commands, refuses further commands, and closes the inbox and `ended`. So no thread waits for a
/// driver that has ended.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        let rest = {
            let mut commands = lock(&self.0.commands);
            commands.closed = true;
            std::mem::take(&mut commands.queue)
        };
        // Dropping a sender ends the wait of its receiver.
        drop(rest);
        self.0.inbox.close();
        self.0.ended.close();
    }
}

/// Starts the driver's thread.
pub(crate) fn start<I: PacketIo + Send + 'static>(
    engine: Engine<I>,
    receive_queue_datagrams: u32,
    busy_poll: bool,
) -> io::Result<Arc<Shared>> {
    let mut engine = engine;
    let config = engine.core_ref().config();
    let permits_max = config.send_queue_datagrams_max;
    let ended = Semaphore::new(1);
    ended.try_acquire();
    let shared = Arc::new(Shared {
        commands: Mutex::default(),
        waker: engine.io().waker()?,
        inbox: Inbox::new(),
        taken: AtomicU32::new(0),
        post_batch: (receive_queue_datagrams / 8).max(1),
        events: Mutex::default(),
        local_address: engine.io_ref().local_address(),
        payload_bytes_max: engine.core_ref().payload_bytes_max(),
        permits_max,
        busy_poll,
        ended_clean: AtomicBool::new(false),
        ended,
    });
    engine.core().open_qp(QPN, ReceiveBuffers::Counted(receive_queue_datagrams.max(1)));
    let ledger = Ledger {
        shared: shared.clone(),
        peers: Vec::new(),
        arrivals: VecDeque::new(),
        replies: Vec::new(),
        free_replies: Vec::new(),
        deferred: VecDeque::new(),
    };
    let name = format!("srd-{}", shared.local_address.port());
    std::thread::Builder::new().name(name).spawn(move || {
        os::timer_slack_minimum();
        if let Err(e) = drive(engine, ledger) {
            tracing::error!("the endpoint has ended: {e}");
        }
    })?;
    Ok(shared)
}

fn drive<I: PacketIo>(mut engine: Engine<I>, mut ledger: Ledger) -> io::Result<()> {
    let shared = ledger.shared.clone();
    let ending = Ending(shared.clone());
    let mut commands = Vec::new();
    let mut closing: Option<Instant> = None;
    let result = loop {
        std::mem::swap(&mut lock(&shared.commands).queue, &mut commands);
        for command in commands.drain(..) {
            if let Command::Close { linger } = command {
                closing.get_or_insert(engine.now() + linger);
            } else {
                ledger.obey(&mut engine, command);
            }
        }
        ledger.retry_deferred(&mut engine);
        let mut until = Instant::FAR_FUTURE;
        if let Some(deadline) = closing {
            let clean = ledger.is_idle();
            shared.ended_clean.store(clean, Ordering::SeqCst);
            if clean || engine.now() >= deadline {
                break Ok(());
            }
            until = deadline.min(engine.now() + CLOSE_LOOK);
        }
        if let Err(e) = engine.send_and_notify(&mut ledger) {
            break Err(e);
        }
        // After a stall the engine receives packets while it sends, and the following wait may be
        // long.
        shared.inbox.append(&mut ledger.arrivals);
        if let Err(e) = engine.receive(until, &mut ledger) {
            break Err(e);
        }
        shared.inbox.append(&mut ledger.arrivals);
    };
    if result.is_ok() {
        // Sends the last acknowledgements, and then a Close, so that peers do not wait for an
        // endpoint that has ended.
        let quiet = engine.now() + CLOSE_QUIET;
        while engine.now() < quiet {
            engine.round(quiet, &mut ledger)?;
            // The next round acknowledges these datagrams, so the application must be able to read
            // them.
            shared.inbox.append(&mut ledger.arrivals);
        }
        // From here on, a datagram that ends unsent must not free a permit: an application would
        // use the permit for another datagram, which would be lost without a report.
        ledger.close_rooms();
        let now = engine.look();
        engine.core().close(now);
        engine.send_closes(&mut ledger)?;
    }
    drop(ledger);
    // Releases the ports before the close returns.
    drop(engine);
    drop(ending);
    result
}

/// Ends all waits of application threads: the driver sends nothing after this.
impl Drop for Ledger {
    fn drop(&mut self) {
        self.deferred.clear();
        self.replies.clear();
        self.close_rooms();
    }
}

impl Ledger {
    /// Closes the permits: no more datagrams are accepted from the application.
    fn close_rooms(&self) {
        for (_, peer) in self.peers.iter().flatten() {
            peer.permits.close();
        }
    }

    fn obey<I: PacketIo>(&mut self, engine: &mut Engine<I>, command: Command) {
        match command {
            Command::Connect { address, public_key, reply } => {
                reply.send(self.connect(engine, address, public_key));
            }
            Command::Send(outgoing) => self.send(engine, outgoing),
            Command::PostReceives(n) => engine.core().post_receives(QPN, n),
            Command::Report(reply) => reply.send(self.report(engine)),
            Command::Close { .. } => {}
        }
    }

    fn connect<I: PacketIo>(
        &mut self,
        engine: &mut Engine<I>,
        address: SocketAddr,
        public_key: Option<[u8; 32]>,
    ) -> Result<Arc<PeerState>, AddPeerError> {
        let now = engine.look();
        let id = engine.core().peer_with(now, address, public_key)?;
        let bytes = engine.core().packet_bytes_max_to(id);
        engine.io().check_destination(address, bytes);
        Ok(self.peer(id, address, public_key))
    }

    /// Returns the state of the core's peer `id`; creates it if the peer is new.
    fn peer(
        &mut self,
        id: PeerId,
        address: SocketAddr,
        public_key: Option<[u8; 32]>,
    ) -> Arc<PeerState> {
        if let Some(peer) = self.known(id) {
            return peer.clone();
        }
        let peer = Arc::new(PeerState {
            shared: self.shared.clone(),
            address,
            public_key,
            permits: Semaphore::new(self.shared.permits_max),
            failures: AtomicU64::new(0),
            failure: Mutex::new(None),
            id: Mutex::new(id),
        });
        self.keep(id, peer.clone());
        peer
    }

    /// Returns the state of the core's peer `id`; `None` if the list has no peer, or another peer,
    /// at the index of this identifier.
    fn known(&self, id: PeerId) -> Option<&Arc<PeerState>> {
        let (kept, peer) = self.peers.get(id.index() as usize)?.as_ref()?;
        (*kept == id).then_some(peer)
    }

    fn keep(&mut self, id: PeerId, peer: Arc<PeerState>) {
        let index = id.index() as usize;
        if self.peers.len() <= index {
            self.peers.resize(index + 1, None);
        }
        self.peers[index] = Some((id, peer));
    }

    fn send<I: PacketIo>(&mut self, engine: &mut Engine<I>, outgoing: Outgoing) {
        let now = engine.last_look();
        let mut outgoing = outgoing;
        let Some(id) = self.resolve(engine.core(), now, &outgoing.permit.peer) else { return };
        let user = outgoing.reply.take().map_or(0, |reply| self.register(reply));
        let datagram = Datagram {
            src_qpn: QPN,
            dst_qpn: QPN,
            imm: 0,
            payload: outgoing.payload.clone(),
            class: outgoing.class,
            user,
        };
        match engine.core().send(now, id, datagram) {
            Ok(_) => outgoing.permit.handed_over = true,
            Err(SendError::QueueFull) => {
                outgoing.reply = self.unregister(user);
                self.deferred.push_back(outgoing);
            }
            Err(_) => drop(self.unregister(user)),
        }
    }

    /// Returns the core's identifier of a peer. `None` if the core has removed the idle peer and
    /// reused its index, or if the peer at its address has another key.
    fn resolve(
        &mut self,
        core: &mut srd_proto::Endpoint,
        now: Instant,
        peer: &Arc<PeerState>,
    ) -> Option<PeerId> {
        let address = peer.address;
        let mut id = lock(&peer.id);
        if core.address_of(*id) == Some(address) {
            return Some(*id);
        }
        *id = core.peer_with(now, address, peer.public_key).ok()?;
        self.keep(*id, peer.clone());
        Some(*id)
    }

    fn retry_deferred<I: PacketIo>(&mut self, engine: &mut Engine<I>) {
        for _ in 0..self.deferred.len() {
            if let Some(outgoing) = self.deferred.pop_front() {
                self.send(engine, outgoing);
            }
        }
    }

    fn register(&mut self, reply: OneshotSender<Status>) -> u64 {
        let slot = self.free_replies.pop().unwrap_or_else(|| {
            self.replies.push(None);
            self.replies.len() - 1
        });
        self.replies[slot] = Some(reply);
        slot as u64 + 1
    }

    fn unregister(&mut self, user: u64) -> Option<OneshotSender<Status>> {
        let slot = usize::try_from(user.checked_sub(1)?).ok()?;
        let reply = self.replies.get_mut(slot)?.take();
        self.free_replies.push(slot);
        reply
    }

    fn is_idle(&self) -> bool {
        self.deferred.is_empty() && self.peers.iter().flatten().all(|(_, p)| p.permits.is_idle())
    }

    fn report<I: PacketIo>(&self, engine: &Engine<I>) -> Report {
        let core = engine.core_ref();
        let peers = self
            .peers
            .iter()
            .flatten()
            .filter_map(|(id, peer)| core.peer_stats(*id).map(|stats| (peer.address, stats)));
        Report { stats: core.stats().clone(), io: engine.io_ref().stats(), peers: peers.collect() }
    }

    fn push_event(&self, event: EndpointEvent) {
        let mut waiting = lock(&self.shared.events);
        if waiting.len() < EVENTS_MAX {
            waiting.push_back(event);
        }
    }

    fn address(&self, peer: PeerId) -> Option<SocketAddr> {
        Some(self.known(peer)?.address)
    }
}

impl Application for Ledger {
    fn delivered(&mut self, context: &mut Context<'_>, delivery: Delivery<'_>) {
        let Some(address) = context.core().address_of(delivery.peer) else { return };
        let public_key = context.core().public_key_of(delivery.peer);
        let peer = self.peer(delivery.peer, address, public_key);
        let payload = Bytes::copy_from_slice(delivery.payload);
        self.arrivals.push_back(Arrived { peer, payload });
    }

    fn event(&mut self, context: &mut Context<'_>, event: Event) {
        match event {
            Event::Completed { peer, user, status, .. } => {
                let reply = self.unregister(user);
                if let Some(peer) = self.known(peer) {
                    if let Some(reply) = reply {
                        reply.send(status);
                    }
                    peer.ended(status);
                }
            }
            Event::PeerUp { peer } => {
                if let Some(address) = context.core().address_of(peer) {
                    self.push_event(EndpointEvent::PeerUp(address));
                }
            }
            Event::PeerDown { peer, reason } => {
                if let Some(address) = self.address(peer) {
                    match context.core().last_unreachable(peer) {
                        Some(hint) => tracing::info!("peer {address} is down: {reason}: {hint}"),
                        None => tracing::info!("peer {address} is down: {reason}"),
                    }
                    self.push_event(EndpointEvent::PeerDown(address, reason));
                }
            }
            Event::Writable { .. } => {}
            Event::Diagnosis { peer, what } => {
                if let Some(address) = self.address(peer) {
                    tracing::warn!("no session with {address}: {what}");
                }
            }
            Event::PathMtu { peer, works_bytes, configured_bytes } => {
                if let Some(peer) = self.address(peer) {
                    if works_bytes < configured_bytes {
                        tracing::warn!(
                            "the path to {peer} passes packets of {works_bytes} bytes, not of \
                             {configured_bytes} (packet_bytes_max): larger datagrams fail"
                        );
                    } else {
                        tracing::info!("the path to {peer} passes {works_bytes} bytes again");
                    }
                    self.push_event(EndpointEvent::PathMtu { peer, works_bytes, configured_bytes });
                }
            }
        }
    }

    fn notice(&mut self, notice: Notice) {
        tracing::warn!("{notice}");
        self.push_event(EndpointEvent::Notice(notice));
    }
}
