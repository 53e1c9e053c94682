//! The endpoint: owns the peers and the state that they share. The caller drives it.
//!
//! | file | content |
//! |---|---|
//! | `receive` | the peer of a received packet, and its processing |
//! | `sessions`, `replies` | opening of sessions, and the effect of a Reset; answers to strangers |
//! | `peers`, `peer_config` | the peers, the ready queue and the wake-ups; addresses and keys that the application names |
//! | `addresses` | indexes of the peers by address and by context number |
//! | `presence` | pauses of this endpoint, ICMP errors, whether there is anything to send |
//! | `teardown`, `reseed` | the end of contexts; another run after a copy of the state |
//! | `audit` | invariants that debug builds check |

mod addresses;
#[cfg(debug_assertions)]
mod audit;
mod peer_config;
mod peers;
mod presence;
mod receive;
mod replies;
mod reseed;
mod sessions;
mod teardown;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

pub use self::peer_config::PeerConfig;
use self::peers::Peers;
use self::replies::Replies;
use self::teardown::QueuedClose;
use crate::config::{Config, Protection};
use crate::crypto;
use crate::error::{AddPeerError, ConfigError, SendError};
use crate::event::{Datagram, Event, Status};
use crate::ids::{DatagramId, Entropy, Epoch, PeerId, Qpn};
use crate::node::Node;
use crate::peer::{DATAGRAM_HEADER_BYTES, Peer, packet_overhead, unreliable_overhead};
use crate::queue_pairs::{QueuePairs, ReceiveBuffers};
use crate::rng::Rng;
use crate::shared::Shared;
use crate::stats::{PathReport, PeerStats, Stats};
use crate::time::Instant;
use crate::transmit::{Transmit, TransmitBuf};

/// The address of a peer whose address is not known yet.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// One node's side of all its contexts, or of those of one shard: the protocol as a state machine
/// without clock, socket or thread.
///
/// # Calls
///
/// The caller passes the present time to each call, and has four kinds of calls:
///
/// - **Application**: [`send`](Self::send), [`send_unreliable`](Self::send_unreliable),
///   [`open_qp`](Self::open_qp), [`post_receives`](Self::post_receives),
///   [`add_peer`](Self::add_peer), [`remove_peer`](Self::remove_peer), [`close`](Self::close).
///   They queue work and send nothing.
/// - **`handle_*`**: input of the network and of time: [`handle_packet`](Self::handle_packet) for
///   each received packet, [`handle_timeout`](Self::handle_timeout) when the time of
///   [`poll_timeout`](Self::poll_timeout) has come, and
///   [`handle_unreachable`](Self::handle_unreachable) for ICMP errors.
/// - **`poll_*`**: output: [`poll_transmit`](Self::poll_transmit) returns one batch of packets for
///   each call, [`poll_event`](Self::poll_event) one event, and
///   [`poll_timeout`](Self::poll_timeout) the time of the earliest timer.
/// - **Getters**: statistics, paths, sizes. They change nothing.
///
/// # Order
///
/// After any call of the first two kinds, the caller drains `poll_transmit` and `poll_event` until
/// each returns `None`, and then reads `poll_timeout`, which is valid only after that. Packets that
/// have arrived should be handled before timers that are due (H8 of `docs/spec/srd.md`).
///
/// A received datagram is the return value of `handle_packet` and borrows the packet. No packet can
/// make a call panic: a packet that cannot be used is counted in [`Stats::drops`]. Each queue and
/// table has a limit in [`Config`]. A full send queue refuses the datagram
/// ([`SendError::QueueFull`]), and [`Event::Writable`] follows when there is space.
///
/// # Example: two endpoints, and the network between them
///
#[doc = concat!("```ignore\n", include_str!("../../tests/it/endpoint_example.rs"), "```\n")]
#[derive(Debug)]
pub struct Endpoint {
    /// State that the peers share.
    shared: Shared,
    rng: Rng,
    peers: Peers,
    /// Peers by address, and by the shard of their node that contacts this shard.
    by_address: BTreeMap<(SocketAddr, u8), PeerId>,
    /// Slots of the peers that the application named, by their present IP address.
    by_ip: BTreeSet<(IpAddr, u32)>,
    /// Last context number of each free slot. The number also identifies the slot.
    free: Vec<u32>,
    /// Number of peers created so far: the generation in the identifier of the newest peer.
    generation: u32,
    queue_pairs: QueuePairs,
    /// Peers whose sends were refused because too many events waited.
    refused: Vec<PeerId>,
    next_datagram: u64,
    /// Epoch bump of the next peer that is created. It is larger than the epoch bump of each
    /// removed peer, so that the remote node does not confuse the new context with a removed
    /// context.
    epoch_bump_next: u64,
    /// Peers by static public key, and by the shard of their node that contacts this shard.
    by_key: BTreeMap<([u8; 32], u8), PeerId>,
    /// Peers that openings of strangers have created, oldest first. Some of them may have a session
    /// now, or be gone.
    unconfirmed: VecDeque<PeerId>,
    replies: Replies,
    /// Close packets for removed peers, which wait to be sent.
    queued_closes: VecDeque<QueuedClose>,
    closed: bool,
    #[cfg(debug_assertions)]
    audit: audit::Audit,
}

impl Endpoint {
    /// Creates an endpoint without peers. `epoch` must be larger than at any earlier run under the
    /// same address; `seed` must be fresh, and secret if protection is on.
    ///
    /// # Errors
    /// Returns the first parameter that is out of range.
    pub fn new(
        config: Config,
        epoch: Epoch,
        seed: [u8; 32],
        now: Instant,
    ) -> Result<Self, ConfigError> {
        let node = Node::new(config, epoch, 1)?;
        Ok(Self::of_node(Arc::new(node), 0, seed, now))
    }

    /// Creates a shard of a node, without peers. Each shard needs a seed of its own.
    ///
    /// # Panics
    /// Panics if the node has no such shard.
    pub fn of_node(node: Arc<Node>, shard: u8, seed: [u8; 32], now: Instant) -> Self {
        assert!(shard < node.shards(), "the node has {} shards", node.shards());
        // The values of this generator are visible on the wire, so its eight bytes may become
        // known. The generator of keys uses all 32. (S1)
        let mut low = [0; 8];
        low.copy_from_slice(&seed[..8]);
        let mut shared = Shared::new(node, shard, &seed, now);
        let replies = Replies::new(now, shared.security.word());
        Self {
            shared,
            rng: Rng::new(u64::from_le_bytes(low)),
            peers: Peers::default(),
            by_address: BTreeMap::new(),
            by_ip: BTreeSet::new(),
            free: Vec::new(),
            generation: 0,
            queue_pairs: QueuePairs::default(),
            refused: Vec::new(),
            next_datagram: 0,
            epoch_bump_next: 0,
            by_key: BTreeMap::new(),
            unconfirmed: VecDeque::new(),
            replies,
            queued_closes: VecDeque::new(),
            closed: false,
            #[cfg(debug_assertions)]
            audit: audit::Audit::default(),
        }
    }

    /// Adds a peer. The context with the peer is created with the first packet.
    ///
    /// # Errors
    /// Returns an error if the table of peers is full, if an address occurs twice or belongs to
    /// another peer, if the key belongs to another peer, or if the key is missing or weak.
    pub fn add_peer(&mut self, now: Instant, peer: PeerConfig) -> Result<PeerId, AddPeerError> {
        let now = self.at(now);
        let addresses = || peer.address.into_iter().chain(peer.further.into_iter().flatten());
        let own = self.shared.shard;
        let twice = addresses().enumerate().any(|(n, a)| addresses().take(n).any(|b| a == b));
        if twice || addresses().any(|address| self.by_address.contains_key(&(address, own))) {
            return Err(AddPeerError::AddressInUse);
        }
        let keyed = matches!(self.shared.node.config.protection, Protection::Static(_));
        let first = addresses().next();
        let mut others = addresses().skip(1);
        let further = core::array::from_fn(|_| others.next());
        if (keyed || first.is_none()) && peer.public_key.is_none() {
            return Err(AddPeerError::KeyMissing);
        }
        if peer.public_key.is_some_and(|key| self.by_key.contains_key(&(key, own))) {
            return Err(AddPeerError::KeyInUse);
        }
        // S29: Keys of small order
        if peer.public_key.as_ref().is_some_and(crypto::is_weak) {
            return Err(AddPeerError::WeakKey);
        }
        let id = self.insert_peer(now, first, own).ok_or(AddPeerError::TooManyPeers)?;
        let PeerConfig { public_key, preshared_key, .. } = peer;
        if let Some(peer) = self.peers.peer(id) {
            peer.configured = true;
            if further[0].is_some() {
                peer.keys.get_or_insert_default().further = further;
            }
            if let Some(preshared_key) = preshared_key {
                peer.keys.get_or_insert_default().preshared_key = preshared_key;
            }
        }
        self.set_key(id, public_key);
        self.list(id);
        self.watch(id);
        #[cfg(debug_assertions)]
        self.audit();
        Ok(id)
    }

    fn set_key(&mut self, id: PeerId, key: Option<[u8; 32]>) {
        if let (Some(peer), Some(key)) = (self.peers.peer(id), key) {
            peer.keys.get_or_insert_default().public_key = Some(key);
            self.by_key.insert((key, peer.partner), id);
        }
    }

    /// Our static public key; `None` without static keys.
    pub fn public_key(&self) -> Option<[u8; 32]> {
        self.shared.security.public()
    }

    fn insert_peer(
        &mut self,
        now: Instant,
        address: Option<SocketAddr>,
        partner: u8,
    ) -> Option<PeerId> {
        if self.peer_count() >= self.shared.node.config.peers_max as usize {
            self.drop_unconfirmed()?;
        }
        let (seed, random) = (self.rng.next_u64(), self.rng.next_u64());
        let numbers = self.shared.numbers;
        let (index, context) = match self.free.pop() {
            // H2a. Packets to the former peer of this slot may still arrive.
            Some(last) => (numbers.index(last), numbers.next(last)),
            None => {
                let index = u32::try_from(self.peers.slots.len()).ok()?;
                self.peers.slots.push(None);
                #[allow(clippy::cast_possible_truncation)] // a few random bits
                (index, numbers.first(random as u32, index))
            }
        };
        self.generation = self.generation.wrapping_add(1);
        let id = PeerId::new(index, self.generation);
        let at = address.unwrap_or(NOWHERE);
        let mut peer = Box::new(Peer::new(id, at, context, seed, now));
        peer.partner = partner;
        peer.epoch_bump = self.epoch_bump_next;
        self.peers.slots[index as usize] = Some(peer);
        Some(id)
    }

    /// Opens a queue pair for receiving.
    pub fn open_qp(&mut self, qpn: Qpn, buffers: ReceiveBuffers) {
        self.queue_pairs.open(qpn, buffers);
    }

    /// Adds `n` receive buffers to a queue pair with counted buffers. A queue pair with unlimited
    /// buffers ignores the call.
    pub fn post_receives(&mut self, qpn: Qpn, n: u32) {
        self.queue_pairs.post(qpn, n);
    }

    /// Sets how many times a datagram of this sending queue pair is sent again after RNR refusals,
    /// instead of the endpoint's `rnr_retries`; 7 and above mean without limit. The value applies
    /// until the queue pair is closed.
    pub fn set_rnr_retries(&mut self, qpn: Qpn, retries: u8) {
        self.shared.rnr_retries.insert(qpn, retries.min(7));
    }

    /// Closes a queue pair: its outstanding datagrams complete as flushed, and datagrams that
    /// arrive for it are refused.
    pub fn close_qp(&mut self, now: Instant, qpn: Qpn) {
        self.at(now);
        self.queue_pairs.close(qpn);
        for peer in self.peers.slots.iter_mut().flatten() {
            peer.fail_all(Status::Flushed, Some(qpn), &mut self.shared);
        }
        self.shared.rnr_retries.remove(&qpn);
        #[cfg(debug_assertions)]
        self.audit();
    }

    /// Maximum payload of one datagram, in bytes.
    pub fn payload_bytes_max(&self) -> usize {
        usize::from(self.shared.node.config.packet_bytes_max)
            - packet_overhead(&self.shared.node.config)
    }

    /// Maximum payload of one datagram to this peer at present, in bytes. It is less than
    /// [`Endpoint::payload_bytes_max`] if the network was found to pass only smaller packets.
    pub fn payload_bytes_max_to(&self, peer: PeerId) -> usize {
        let known = self.peers.look(peer).map(|p| p.payload_bytes_max(&self.shared.node.config));
        known.unwrap_or_else(|| self.payload_bytes_max())
    }

    /// Maximum packet size to this peer at present, in UDP payload bytes.
    pub fn packet_bytes_max_to(&self, peer: PeerId) -> u16 {
        let known = self.peers.look(peer).map(|p| p.packet_bytes_max(&self.shared.node.config));
        known.unwrap_or(self.shared.node.config.packet_bytes_max)
    }

    /// Returns the configuration of the endpoint.
    pub fn config(&self) -> &Config {
        &self.shared.node.config
    }

    /// Accepts a datagram for sending. Its completion follows as an event.
    ///
    /// # Errors
    /// Returns an error if the peer is unknown, the datagram too large, or the queue full.
    pub fn send(
        &mut self,
        now: Instant,
        to: PeerId,
        datagram: Datagram,
    ) -> Result<DatagramId, SendError> {
        let now = self.at(now);
        if self.closed {
            return Err(SendError::Closed);
        }
        let (datagrams_max, flows_max) =
            (self.shared.node.config.send_queue_datagrams_max, self.shared.node.config.flows_max);
        let full = self.shared.events.len() >= self.shared.node.config.events_max as usize;
        let peer = self.peers.peer(to).ok_or(SendError::UnknownPeer)?;
        let max_bytes = peer.payload_bytes_max(&self.shared.node.config);
        // D3: One datagram in one packet
        if datagram.payload.len() > max_bytes {
            return Err(SendError::TooLarge { max_bytes });
        }
        let tx = peer.tx(&self.shared.node.config, now);
        if full {
            if !tx.queue.has_refused() {
                tx.queue.refuse();
                self.refused.push(to);
            }
            return Err(SendError::QueueFull);
        }
        let id = DatagramId(self.next_datagram);
        let bytes = datagram.payload.len() + DATAGRAM_HEADER_BYTES;
        tx.queue.push(id, datagram, datagrams_max, flows_max)?;
        // D13: Count of queued bytes
        tx.on_queued(bytes as u64, &self.shared.node.config);
        self.next_datagram += 1;
        self.peers.make_ready(to);
        #[cfg(debug_assertions)]
        self.audit();
        Ok(id)
    }

    /// Maximum payload of one unreliable datagram, in bytes. In plain mode an unreliable datagram
    /// may carry a greeting as well; the configured packet size leaves space for it.
    pub fn unreliable_bytes_max(&self) -> usize {
        usize::from(self.shared.node.config.packet_bytes_max)
            - unreliable_overhead(&self.shared.node.config)
    }

    /// Maximum payload of one unreliable datagram to this peer at present, in bytes.
    pub fn unreliable_bytes_max_to(&self, peer: PeerId) -> usize {
        usize::from(self.packet_bytes_max_to(peer)) - unreliable_overhead(&self.shared.node.config)
    }

    /// Accepts an unreliable datagram. It is sent once, on the path with this entropy, and is
    /// neither acknowledged nor retransmitted. It does not wait for window or pacer, and stays in
    /// order with other packets of its path. No completion follows.
    ///
    /// # Errors
    /// Returns an error if the peer is unknown, the datagram too large, or the queue full.
    pub fn send_unreliable(
        &mut self,
        now: Instant,
        to: PeerId,
        entropy: Entropy,
        datagram: Datagram,
    ) -> Result<(), SendError> {
        let now = self.at(now);
        if self.closed {
            return Err(SendError::Closed);
        }
        let max_bytes = self.unreliable_bytes_max_to(to);
        if datagram.payload.len() > max_bytes {
            return Err(SendError::TooLarge { max_bytes });
        }
        let peer = self.peers.peer(to).ok_or(SendError::UnknownPeer)?;
        peer.push_unreliable(now, entropy, datagram, &self.shared.node.config)?;
        self.peers.make_ready(to);
        Ok(())
    }

    /// Payload bytes of datagrams to this peer that wait for their first transmission. A caller
    /// with its own queues sends only while this number is low.
    pub fn unsent_bytes(&self, peer: PeerId) -> u64 {
        let tx = self.peers.look(peer).and_then(|p| p.tx.as_ref());
        tx.map_or(0, |tx| tx.queue.unsent_bytes())
    }

    /// Number of datagrams that [`Endpoint::send`] would accept for this peer now; zero while
    /// `events_max` events wait.
    pub fn send_room(&self, peer: PeerId) -> usize {
        if self.shared.events.len() >= self.shared.node.config.events_max as usize {
            return 0;
        }
        let tx = self.peers.look(peer).and_then(|p| p.tx.as_ref());
        let most = self.shared.node.config.send_queue_datagrams_max as usize;
        most.saturating_sub(tx.map_or(0, |tx| tx.queue.len()))
    }

    /// Number of unreliable datagrams to this peer that wait to be sent.
    pub fn unreliable_waiting(&self, peer: PeerId) -> usize {
        let tx = self.peers.look(peer).and_then(|p| p.tx.as_ref());
        tx.map_or(0, |tx| tx.unreliable.len())
    }

    /// Delivery rate to this peer in the last complete measuring period of about a round trip, in
    /// bits per second; zero before the first.
    pub fn delivery_rate_bps(&self, peer: PeerId) -> u64 {
        let tx = self.peers.look(peer).and_then(|p| p.tx.as_ref());
        tx.map_or(0, |tx| tx.window.delivery_rate_bps())
    }

    /// Runs all timers that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.at(now);
        while let Some(id) = self.peers.take_due(now) {
            self.wake(now, id);
        }
        self.shared.share.sync(now);
        #[cfg(debug_assertions)]
        self.audit_timers_ran();
    }

    fn wake(&mut self, now: Instant, id: PeerId) {
        let shared = &mut self.shared;
        let Some(peer) = self.peers.peer(id) else { return };
        let before = peer.address;
        let ready = peer.on_timeout(now, shared);
        let reclaimable = peer.is_reclaimable(now, &self.shared.node.config);
        self.follow(id, before);
        if reclaimable {
            self.reclaim(id);
            return;
        }
        if ready {
            self.peers.make_ready(id);
        }
        self.peers.schedule(id, now, &self.shared.node.config);
    }

    /// Time at which [`Endpoint::handle_timeout`] must be called at the latest; `None` if no timer
    /// is set. The time is valid after [`Endpoint::poll_transmit`] has returned `None`. It may be
    /// earlier than necessary.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let link = self.shared.egress.opens_at(&self.shared.node);
        let wakes = self.peers.next_wake().into_iter().chain(link);
        wakes.chain(self.shared.share.sync_at()).min()
    }

    /// Writes the next batch into `buf`, which the caller has cleared.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        debug_assert!(buf.is_untouched(), "the caller clears the buffer");
        let now = self.at(now);
        let transmit = self.next_transmit(now, buf);
        #[cfg(debug_assertions)]
        if transmit.is_none() {
            self.audit_drained()
        } else {
            self.audit()
        }
        transmit
    }

    fn next_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if let Some(close) = self.queued_closes.pop_front() {
            let QueuedClose { to, entropy, bytes } = close;
            let transmit = replies::write_alone(to, entropy, &bytes, &mut self.shared.stats, buf);
            self.shared.egress.on_sent(&self.shared.node, now, &transmit);
            return Some(transmit);
        }
        if let Some(transmit) = self.replies.poll_transmit(&mut self.shared.stats, buf) {
            self.shared.egress.on_sent(&self.shared.node, now, &transmit);
            return Some(transmit);
        }
        loop {
            self.let_one_on();
            let id = *self.peers.ready.front()?;
            let shared = &mut self.shared;
            let Some(peer) = self.peers.peer(id) else {
                self.peers.ready.pop_front();
                continue;
            };
            let transmit = peer.poll_transmit(now, shared, buf);
            if let Some(transmit) = transmit {
                self.shared.egress.on_sent(&self.shared.node, now, &transmit);
                let unwatched = peer.wake_at == Instant::FAR_FUTURE;
                self.peers.ready.rotate_left(1);
                if unwatched {
                    // Timers must detect a silent peer even if the caller's socket never empties.
                    self.peers.schedule(id, now, &self.shared.node.config);
                }
                return Some(transmit);
            }
            debug_assert!(buf.is_untouched(), "what a peer wrote goes to no other");
            if !peer.awaits_link && peer.is_held_by_link(now, shared) {
                peer.awaits_link = true;
                self.shared.egress.waiting.push_back(id);
            }
            peer.queued_ready = false;
            self.peers.ready.pop_front();
            self.peers.schedule(id, now, &self.shared.node.config);
        }
    }

    /// If egress pacing allows more data to leave, makes the peer that has waited for it longest
    /// the next to send.
    fn let_one_on(&mut self) {
        if !self.shared.link_open() {
            return;
        }
        while let Some(id) = self.shared.egress.waiting.pop_front() {
            if let Some(peer) = self.peers.peer(id) {
                peer.awaits_link = false;
                self.peers.make_next(id);
                return;
            }
        }
    }

    /// Returns the next event; `None` if no event waits.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.shared.events.is_empty() && !self.refused.is_empty() {
            for id in core::mem::take(&mut self.refused) {
                let shared = &mut self.shared;
                if let Some(peer) = self.peers.peer(id) {
                    peer.notify_writable(shared);
                }
            }
        }
        self.shared.events.pop_front()
    }

    /// Counters of the endpoint.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// Excludes a path from use, or allows it again. This is an operator's decision, so results of
    /// probes do not change it. Returns whether the path exists.
    pub fn deny_path(&mut self, peer: PeerId, entropy: Entropy, denied: bool) -> bool {
        let tx = self.peers.peer(peer).and_then(|p| p.tx.as_mut());
        tx.is_some_and(|tx| tx.paths.deny(entropy, denied))
    }

    /// The state of the context with a peer; `None` if there is no context.
    pub fn peer_stats(&self, peer: PeerId) -> Option<PeerStats> {
        let peer = self.peers.look(peer)?;
        peer.has_context().then(|| peer.stats(self.shared.now))
    }

    /// The paths to a peer; empty before the first transmission.
    pub fn paths(&self, peer: PeerId) -> Vec<PathReport> {
        let peer = self.peers.look(peer);
        peer.and_then(|p| p.tx.as_ref())
            .map(|tx| tx.paths.reports(self.shared.now))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
