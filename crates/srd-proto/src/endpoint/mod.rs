//! The endpoint: owns the peers and everything they share, and is what the caller drives.

/// Splits the endpoint into a peer and what the peer needs of the rest.
macro_rules! shared {
    ($self:ident) => {
        &mut Shared {
            config: &$self.config,
            stats: &mut $self.stats,
            events: &mut $self.events,
            epoch: $self.epoch,
            security: &mut $self.security,
            limit_binds: $self.share.binds(),
            link_open: $self.egress.is_open($self.now),
            senders: u16::try_from($self.share.senders($self.now)).unwrap_or(u16::MAX),
            share: &mut $self.share,
            rnr_retries: &$self.rnr_retries,
        }
    };
}

mod egress;
mod peers;
mod receive;
mod replies;
mod sessions;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use self::egress::Egress;
use self::peers::Peers;
use self::replies::Replies;
use crate::config::{Config, Protection};
use crate::credit::ReceiverShare;
use crate::error::{AddPeerError, ConfigError, SendError};
use crate::event::{Datagram, Event, Status};
use crate::ids::{DatagramId, Entropy, Epoch, PeerId, Qpn};
use crate::peer::{DATAGRAM_HEADER_BYTES, Peer, Shared, packet_overhead, unreliable_overhead};
use crate::queue_pairs::{QueuePairs, ReceiveBuffers};
use crate::rng::Rng;
use crate::security::Security;
use crate::stats::{PathReport, PeerStats, Stats};
use crate::time::Instant;
use crate::transmit::{Transmit, TransmitBuf};

/// Bits of a context number that are the peer's index plus one.
const INDEX_MASK: u32 = (1 << 20) - 1;

/// The address of a peer that has not called yet.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// What is known of a peer beforehand.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerConfig {
    /// Its address and well-known port. `None`: not known until it calls, which takes a key.
    pub address: Option<SocketAddr>,
    /// Its static public key, when the endpoint runs with static keys.
    pub public_key: Option<[u8; 32]>,
    /// A secret that both share beside their keys (`psk2` of Noise): a recorded session stays
    /// secret even from whoever breaks the curve.
    pub preshared_key: Option<[u8; 32]>,
}

impl PeerConfig {
    /// A peer at an address, without keys.
    pub fn at(address: SocketAddr) -> Self {
        Self { address: Some(address), ..Self::default() }
    }

    /// With its public key.
    pub fn with_key(self, public_key: Option<[u8; 32]>) -> Self {
        Self { public_key, ..self }
    }
}

/// One node's end of every context it has.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    epoch: Epoch,
    now: Instant,
    rng: Rng,
    peers: Peers,
    egress: Egress,
    by_address: BTreeMap<SocketAddr, PeerId>,
    /// Slots that are free, and how many peers there have been.
    free: Vec<u32>,
    generation: u32,
    share: ReceiverShare,
    queue_pairs: QueuePairs,
    /// Bound: as many entries as there are queue pair numbers.
    rnr_retries: BTreeMap<Qpn, u8>,
    events: VecDeque<Event>,
    /// Peers whose sends were refused because too many events waited.
    refused: Vec<PeerId>,
    stats: Stats,
    next_datagram: u64,
    /// Above the epoch bump of every peer that was removed: a context that is made anew must
    /// not be taken for its former self.
    epoch_bump_next: u64,
    security: Security,
    by_key: BTreeMap<[u8; 32], PeerId>,
    replies: Replies,
}

impl Endpoint {
    /// An endpoint with no peers. `epoch` must be larger than at any earlier run under the
    /// same address; `seed` must be secret and fresh where packets are protected.
    ///
    /// # Errors
    /// The first knob that is out of range.
    pub fn new(
        config: Config,
        epoch: Epoch,
        seed: [u8; 32],
        now: Instant,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let mut low = [0; 8];
        low.copy_from_slice(&seed[..8]);
        let security = Security::new(&config, &seed, now);
        Ok(Self {
            share: ReceiverShare::new(&config),
            egress: Egress::new(&config, now),
            config,
            epoch,
            now,
            rng: Rng::new(u64::from_le_bytes(low)),
            peers: Peers::default(),
            by_address: BTreeMap::new(),
            free: Vec::new(),
            generation: 0,
            queue_pairs: QueuePairs::default(),
            rnr_retries: BTreeMap::new(),
            events: VecDeque::new(),
            refused: Vec::new(),
            stats: Stats::default(),
            next_datagram: 0,
            epoch_bump_next: 0,
            security,
            by_key: BTreeMap::new(),
            replies: Replies::new(now),
        })
    }

    /// Time as this endpoint knows it: never backwards.
    fn at(&mut self, now: Instant) -> Instant {
        if now < self.now {
            self.stats.clock_clamped += 1;
        }
        self.now = self.now.max(now);
        self.now
    }

    /// Makes a peer known. The context itself is made by the first packet.
    ///
    /// # Errors
    /// When there is no room, or the address has a peer.
    pub fn add_peer(&mut self, now: Instant, peer: PeerConfig) -> Result<PeerId, AddPeerError> {
        let now = self.at(now);
        if peer.address.is_some_and(|address| self.by_address.contains_key(&address)) {
            return Err(AddPeerError::AddressInUse);
        }
        let keyed = matches!(self.config.protection, Protection::Static(_));
        if (keyed || peer.address.is_none()) && peer.public_key.is_none() {
            return Err(AddPeerError::KeyMissing);
        }
        if peer.public_key.is_some_and(|key| self.by_key.contains_key(&key)) {
            return Err(AddPeerError::KeyInUse);
        }
        let id = self.insert_peer(now, peer.address).ok_or(AddPeerError::TooManyPeers)?;
        let PeerConfig { public_key, preshared_key, .. } = peer;
        if let Some(peer) = self.peers.peer(id) {
            peer.configured = true;
            if let Some(preshared_key) = preshared_key {
                peer.keys.get_or_insert_default().preshared_key = preshared_key;
            }
        }
        self.set_key(id, public_key);
        Ok(id)
    }

    /// Keeps a peer that introduced itself as if it had been added: its number stays its own
    /// however long it is silent.
    pub fn keep_peer(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.peer(id) {
            peer.configured = true;
        }
    }

    /// The peer at an address, if there is one.
    pub fn peer_at(&self, address: SocketAddr) -> Option<PeerId> {
        self.by_address.get(&address).copied()
    }

    /// The address of a peer.
    pub fn address_of(&self, peer: PeerId) -> Option<SocketAddr> {
        self.peers.look(peer).map(|p| p.address)
    }

    fn set_key(&mut self, id: PeerId, key: Option<[u8; 32]>) {
        if let (Some(peer), Some(key)) = (self.peers.peer(id), key) {
            peer.keys.get_or_insert_default().public_key = Some(key);
            self.by_key.insert(key, id);
        }
    }

    /// Our static public key, in that mode.
    pub fn public_key(&self) -> Option<[u8; 32]> {
        self.security.public()
    }

    fn insert_peer(&mut self, now: Instant, address: Option<SocketAddr>) -> Option<PeerId> {
        let live = self.peers.slots.len() - self.free.len();
        if live >= self.config.peers_max as usize {
            return None;
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.peers.slots.push(None);
                u32::try_from(self.peers.slots.len() - 1).ok()?
            }
        };
        self.generation = self.generation.wrapping_add(1);
        let id = PeerId::new(index, self.generation);
        let seed = self.rng.next_u64();
        // The generation starts anywhere, so that a number says nothing about its age.
        #[allow(clippy::cast_possible_truncation)] // twelve random bits
        let generation = (self.rng.next_u64() as u32) & !INDEX_MASK;
        let context = generation | (index + 1);
        let at = address.unwrap_or(NOWHERE);
        let mut peer = Box::new(Peer::new(id, at, context, seed, now));
        peer.epoch_bump = self.epoch_bump_next;
        self.peers.slots[index as usize] = Some(peer);
        if let Some(address) = address {
            self.by_address.insert(address, id);
        }
        Some(id)
    }

    /// Forgets a peer: everything outstanding to it completes as flushed.
    pub fn remove_peer(&mut self, now: Instant, id: PeerId) {
        self.at(now);
        let Some(mut peer) = self.peers.take(id) else { return };
        let shared = shared!(self);
        peer.fail_all(Status::Flushed, None, shared);
        peer.drop_rx(shared);
        self.by_address.retain(|_, named| *named != id);
        if let Some(key) = peer.keys.as_ref().and_then(|keys| keys.public_key) {
            self.by_key.remove(&key);
        }
        self.epoch_bump_next = self.epoch_bump_next.max(peer.epoch_bump + 1);
        self.free.push(id.index());
    }

    /// A context has been idle for long enough: its memory goes. A peer that the application
    /// named stays known, with its number and key.
    fn reclaim(&mut self, now: Instant, id: PeerId) {
        let shared = shared!(self);
        match self.peers.peer(id) {
            Some(peer) if peer.configured => peer.forget(shared),
            _ => self.remove_peer(now, id),
        }
    }

    /// Opens a queue pair for receiving.
    pub fn open_qp(&mut self, qpn: Qpn, buffers: ReceiveBuffers) {
        self.queue_pairs.open(qpn, buffers);
    }

    /// Adds receive buffers to a queue pair that counts them.
    pub fn post_receives(&mut self, qpn: Qpn, n: u32) {
        self.queue_pairs.post(qpn, n);
    }

    /// RNR verdicts before a datagram of this sending queue pair fails, in place of the
    /// endpoint's `rnr_retries`; 7 and above mean for ever. Until the queue pair is closed.
    pub fn set_rnr_retries(&mut self, qpn: Qpn, retries: u8) {
        self.rnr_retries.insert(qpn, retries.min(7));
    }

    /// Closes a queue pair: what it has outstanding completes as flushed, what arrives for it
    /// is refused.
    pub fn close_qp(&mut self, now: Instant, qpn: Qpn) {
        self.at(now);
        self.queue_pairs.close(qpn);
        for peer in self.peers.slots.iter_mut().flatten() {
            peer.fail_all(Status::Flushed, Some(qpn), shared!(self));
        }
        self.rnr_retries.remove(&qpn);
    }

    /// The most payload bytes that one datagram carries.
    pub fn payload_bytes_max(&self) -> usize {
        usize::from(self.config.packet_bytes_max) - packet_overhead(&self.config)
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Accepts a datagram for sending. Its completion follows as an event.
    ///
    /// # Errors
    /// When the peer is unknown, the datagram too large, or the queue full.
    pub fn send(
        &mut self,
        now: Instant,
        to: PeerId,
        datagram: Datagram,
    ) -> Result<DatagramId, SendError> {
        let now = self.at(now);
        let (datagrams_max, flows_max) =
            (self.config.send_queue_datagrams_max, self.config.flows_max);
        let full = self.events.len() >= self.config.events_max as usize;
        let peer = self.peers.peer(to).ok_or(SendError::UnknownPeer)?;
        let max_bytes = peer.payload_bytes_max(&self.config);
        if datagram.payload.len() > max_bytes {
            return Err(SendError::TooLarge { max_bytes });
        }
        let tx = peer.tx(&self.config, now);
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
        tx.queued_bytes += bytes as u64;
        self.next_datagram += 1;
        self.peers.make_ready(to);
        Ok(id)
    }

    /// The most payload bytes that one unreliable datagram carries. Plain contexts carry a
    /// greeting beside the first ones, which the configured packet size leaves room for.
    pub fn unreliable_bytes_max(&self) -> usize {
        usize::from(self.config.packet_bytes_max) - unreliable_overhead(&self.config)
    }

    /// Accepts a datagram to be sent once, on the path with this entropy: never repeated,
    /// never acknowledged, outside of window and pacer, in order on its path. No completion
    /// follows.
    ///
    /// # Errors
    /// When the peer is unknown, the datagram too large, or too many wait already.
    pub fn send_unreliable(
        &mut self,
        now: Instant,
        to: PeerId,
        entropy: Entropy,
        datagram: Datagram,
    ) -> Result<(), SendError> {
        let now = self.at(now);
        let max_bytes = self.unreliable_bytes_max();
        if datagram.payload.len() > max_bytes {
            return Err(SendError::TooLarge { max_bytes });
        }
        let peer = self.peers.peer(to).ok_or(SendError::UnknownPeer)?;
        peer.push_unreliable(now, entropy, datagram, &self.config)?;
        self.peers.make_ready(to);
        Ok(())
    }

    /// Payload bytes of datagrams to this peer that wait for their first sending: what a caller
    /// with queues of its own keeps low.
    pub fn unsent_bytes(&self, peer: PeerId) -> u64 {
        let tx = self.peers.look(peer).and_then(|p| p.tx.as_ref());
        tx.map_or(0, |tx| tx.queue.unsent_bytes())
    }

    /// Unreliable datagrams to this peer that wait to be sent.
    pub fn unreliable_waiting(&self, peer: PeerId) -> usize {
        let tx = self.peers.look(peer).and_then(|p| p.tx.as_ref());
        tx.map_or(0, |tx| tx.unreliable.len())
    }

    /// The rate at which this peer has been taking data, in bits per second.
    pub fn delivery_rate_bps(&self, peer: PeerId) -> u64 {
        let tx = self.peers.look(peer).and_then(|p| p.tx.as_ref());
        tx.map_or(0, |tx| tx.window.delivery_rate_bps())
    }

    /// Runs every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.at(now);
        while let Some(id) = self.peers.take_due(now) {
            self.wake(now, id);
        }
    }

    fn wake(&mut self, now: Instant, id: PeerId) {
        let shared = shared!(self);
        let Some(peer) = self.peers.peer(id) else { return };
        let ready = peer.on_timeout(now, shared);
        if peer.is_reclaimable(now, &self.config) {
            self.reclaim(now, id);
            return;
        }
        if ready {
            self.peers.make_ready(id);
        }
        self.peers.schedule(id, now, &self.config);
    }

    /// When to call [`Endpoint::handle_timeout`] at the latest. May be early, never late, once
    /// [`Endpoint::poll_transmit`] has said that there is nothing more to send.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.peers.next_wake().into_iter().chain(self.egress.opens_at()).min()
    }

    /// Writes the next batch into `buf`, which the caller has cleared.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let now = self.at(now);
        if let Some(transmit) = self.replies.poll_transmit(&mut self.stats, buf) {
            self.egress.on_sent(now, &transmit);
            return Some(transmit);
        }
        loop {
            self.let_one_on();
            let id = *self.peers.ready.front()?;
            let shared = shared!(self);
            let Some(peer) = self.peers.peer(id) else {
                self.peers.ready.pop_front();
                continue;
            };
            let transmit = peer.poll_transmit(now, shared, buf);
            if let Some(transmit) = transmit {
                self.egress.on_sent(now, &transmit);
                let unwatched = peer.wake_at == Instant::FAR_FUTURE;
                self.peers.ready.rotate_left(1);
                if unwatched {
                    // A socket that never empties must not keep a silent peer from being found out.
                    self.peers.schedule(id, now, &self.config);
                }
                return Some(transmit);
            }
            if !peer.awaits_link && peer.is_held_by_link(now, shared) {
                peer.awaits_link = true;
                self.egress.waiting.push_back(id);
            }
            peer.queued_ready = false;
            self.peers.ready.pop_front();
            self.peers.schedule(id, now, &self.config);
        }
    }

    /// Who has waited longest for the link is the next to send, if it takes more.
    fn let_one_on(&mut self) {
        if !self.egress.is_open(self.now) {
            return;
        }
        while let Some(id) = self.egress.waiting.pop_front() {
            if let Some(peer) = self.peers.peer(id) {
                peer.awaits_link = false;
                self.peers.make_next(id);
                return;
            }
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.events.is_empty() && !self.refused.is_empty() {
            for id in core::mem::take(&mut self.refused) {
                let shared = shared!(self);
                if let Some(peer) = self.peers.peer(id) {
                    peer.tell_writable(shared);
                }
            }
        }
        self.events.pop_front()
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Takes a path out of use, or puts it back: an operator's word, which no probe overrules.
    /// Returns whether there is such a path.
    pub fn deny_path(&mut self, peer: PeerId, entropy: Entropy, denied: bool) -> bool {
        let tx = self.peers.peer(peer).and_then(|p| p.tx.as_mut());
        tx.is_some_and(|tx| tx.paths.deny(entropy, denied))
    }

    /// One context's state, if there is one.
    pub fn peer_stats(&self, peer: PeerId) -> Option<PeerStats> {
        let peer = self.peers.look(peer)?;
        peer.has_context().then(|| peer.stats())
    }

    /// The paths to a peer; empty before anything was sent to it.
    pub fn paths(&self, peer: PeerId) -> Vec<PathReport> {
        let peer = self.peers.look(peer);
        peer.and_then(|p| p.tx.as_ref()).map(|tx| tx.paths.reports()).unwrap_or_default()
    }
}
