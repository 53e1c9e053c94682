//! The endpoint: owns the peers, finds the one a packet is for, and fans `poll_*` in through
//! a ready queue and a heap of wake-ups.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::SocketAddr;

use crate::config::{Config, Protection};
use crate::credit::{ReceiverShare, Share, Shares};
use crate::crypto::Admission;
use crate::error::{AddPeerError, ConfigError, DropReason, SendError};
use crate::event::{Datagram, Delivery, Event, Status};
use crate::ids::{DatagramId, Epoch, PeerId, Qpn};
use crate::peer::{
    Accepted, DATAGRAM_HEADER_BYTES, DataPacket, Peer, Shared, bare_header, packet_overhead,
};
use crate::queue_pairs::{QueuePairs, ReceiveBuffers};
use crate::rng::Rng;
use crate::security::Security;
use crate::stats::{PathReport, PeerStats, Stats};
use crate::time::{Duration, Instant};
use crate::transmit::{Ecn, PacketMeta, PacketRef, Transmit, TransmitBuf};
use crate::wire::ack::AckView;
use crate::wire::data::Data;
use crate::wire::greeting::Greeting;
use crate::wire::handshake::{Hello, Reset, decode_retry};
use crate::wire::probe::Probe;
use crate::wire::{self, FLAG_GREETING, HEADER_BYTES, Header, Kind, WireError};

/// Bits of a context number that are the peer's index plus one.
const INDEX_MASK: u32 = (1 << 20) - 1;
/// Answers to strangers that may wait to be sent, and that may be sent per millisecond.
const REPLIES_MAX: usize = 16;

/// When to look again at something that was due and could not be done.
const RETRY_AFTER: Duration = Duration::from_micros(10);

/// What is known of a peer beforehand.
#[derive(Clone, Copy, Debug)]
pub struct PeerConfig {
    /// Its address and well-known port.
    pub address: SocketAddr,
    /// Its static public key, when the endpoint runs with static keys.
    pub public_key: Option<[u8; 32]>,
}

/// One node's end of every context it has.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    epoch: Epoch,
    now: Instant,
    rng: Rng,
    peers: Peers,
    by_address: BTreeMap<SocketAddr, PeerId>,
    free: Vec<u32>,
    share: ReceiverShare,
    queue_pairs: QueuePairs,
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
    /// Answers to strangers: resets and cookies. No state is kept for them.
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    replies_left: usize,
    replies_refill_at: Instant,
}

/// The peers, with what `poll_transmit` and `poll_timeout` walk.
#[derive(Debug, Default)]
struct Peers {
    slots: Vec<Option<Box<Peer>>>,
    ready: VecDeque<PeerId>,
    wakes: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Peers {
    fn peer(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.slots.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// Puts a peer into the ready queue, once.
    fn make_ready(&mut self, id: PeerId) {
        if let Some(Some(peer)) = self.slots.get_mut(id.0 as usize)
            && !peer.queued_ready
        {
            peer.queued_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Makes sure that the heap wakes a peer in time. Entries are never removed early: one
    /// that comes due finds out by itself whether it is still wanted.
    fn schedule(&mut self, id: PeerId, now: Instant, config: &Config) {
        if let Some(Some(peer)) = self.slots.get_mut(id.0 as usize) {
            let mut at = peer.next_timeout(config);
            if at <= now {
                // What is due is something to send. While the peer is in the ready queue,
                // `poll_transmit` sees to it; if it could not, it tries again shortly.
                if peer.queued_ready {
                    return;
                }
                at = now + RETRY_AFTER;
            }
            if at < peer.wake_at {
                peer.wake_at = at;
                self.wakes.push(Reverse((at, id.0)));
            }
        }
    }
}

impl Shares for Peers {
    fn share(&mut self, id: PeerId) -> Option<&mut Share> {
        Some(&mut self.peer(id)?.rx.as_mut()?.share)
    }

    fn announce(&mut self, id: PeerId) {
        if let Some(rx) = self.peer(id).and_then(|p| p.rx.as_mut()) {
            rx.ack_now = true;
        }
        self.make_ready(id);
    }
}

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
            senders: u16::try_from($self.share.senders($self.now)).unwrap_or(u16::MAX),
            share: &mut $self.share,
        }
    };
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
        let packet = u64::from(config.packet_bytes_max);
        let security = Security::new(&config, &seed, now);
        Ok(Self {
            share: ReceiverShare::new(
                config.receiver_share,
                config.link_rate_bps,
                config.credit_percent,
                packet,
            ),
            config,
            epoch,
            now,
            rng: Rng::new(u64::from_le_bytes(low)),
            peers: Peers::default(),
            by_address: BTreeMap::new(),
            free: Vec::new(),
            queue_pairs: QueuePairs::default(),
            events: VecDeque::new(),
            refused: Vec::new(),
            stats: Stats::default(),
            next_datagram: 0,
            epoch_bump_next: 0,
            security,
            by_key: BTreeMap::new(),
            replies: VecDeque::new(),
            replies_left: REPLIES_MAX,
            replies_refill_at: now,
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
        if self.by_address.contains_key(&peer.address) {
            return Err(AddPeerError::AddressInUse);
        }
        if matches!(self.config.protection, Protection::Static(_)) && peer.public_key.is_none() {
            return Err(AddPeerError::KeyMissing);
        }
        let id = self.insert_peer(now, peer.address).ok_or(AddPeerError::TooManyPeers)?;
        if let Some(peer) = self.peers.peer(id) {
            peer.configured = true;
        }
        self.set_key(id, peer.public_key);
        Ok(id)
    }

    /// The peer at an address, if there is one.
    pub fn peer_at(&self, address: SocketAddr) -> Option<PeerId> {
        self.by_address.get(&address).copied()
    }

    /// The address of a peer.
    pub fn address_of(&self, peer: PeerId) -> Option<SocketAddr> {
        self.peers.slots.get(peer.0 as usize)?.as_ref().map(|p| p.address)
    }

    fn set_key(&mut self, id: PeerId, key: Option<[u8; 32]>) {
        if let (Some(peer), Some(key)) = (self.peers.peer(id), key) {
            peer.public_key = Some(key);
            self.by_key.insert(key, id);
        }
    }

    /// Our static public key, in that mode.
    pub fn public_key(&self) -> Option<[u8; 32]> {
        self.security.public()
    }

    fn insert_peer(&mut self, now: Instant, address: SocketAddr) -> Option<PeerId> {
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
        let id = PeerId(index);
        let seed = self.rng.next_u64();
        // The generation starts anywhere, so that a number says nothing about its age.
        #[allow(clippy::cast_possible_truncation)] // twelve random bits
        let generation = (self.rng.next_u64() as u32) & !INDEX_MASK;
        let context = generation | (index + 1);
        let mut peer = Box::new(Peer::new(id, address, context, seed, now));
        peer.epoch_bump = self.epoch_bump_next;
        self.peers.slots[index as usize] = Some(peer);
        self.by_address.insert(address, id);
        Some(id)
    }

    /// Forgets a peer: everything outstanding to it completes as flushed.
    pub fn remove_peer(&mut self, now: Instant, id: PeerId) {
        self.at(now);
        let Some(slot) = self.peers.slots.get_mut(id.0 as usize) else { return };
        let Some(mut peer) = slot.take() else { return };
        let shared = shared!(self);
        peer.fail_all(Status::Flushed, None, shared);
        peer.drop_rx(shared);
        self.by_address.remove(&peer.address);
        if let Some(key) = peer.public_key {
            self.by_key.remove(&key);
        }
        self.epoch_bump_next = self.epoch_bump_next.max(peer.epoch_bump + 1);
        self.free.push(id.0);
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

    /// Closes a queue pair: what it has outstanding completes as flushed, what arrives for it
    /// is refused.
    pub fn close_qp(&mut self, now: Instant, qpn: Qpn) {
        self.at(now);
        self.queue_pairs.close(qpn);
        for peer in self.peers.slots.iter_mut().flatten() {
            peer.fail_all(Status::Flushed, Some(qpn), shared!(self));
        }
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

    /// Takes a received packet. A datagram is delivered at once, borrowed from the packet.
    pub fn handle_packet<'a>(
        &mut self,
        now: Instant,
        meta: PacketMeta,
        packet: PacketRef<'a>,
    ) -> Option<Delivery<'a>> {
        let now = self.at(now);
        let (size, taken) = match packet {
            PacketRef::Whole(bytes) => (bytes.len(), self.take_whole(now, &meta, bytes)),
            PacketRef::Split(head, payload) => {
                (head.len() + payload.len(), self.take_plain(now, &meta, head, payload))
            }
        };
        match taken {
            Ok(delivery) => {
                self.stats.rx_pkts += 1;
                self.stats.rx_bytes += size as u64;
                delivery
            }
            Err(reason) => {
                self.stats.drop(reason);
                None
            }
        }
    }

    /// A packet in one piece: a handshake, or sealed, or plain.
    fn take_whole<'a>(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        bytes: &'a mut [u8],
    ) -> Result<Option<Delivery<'a>>, DropReason> {
        let (header, _) = Header::decode(bytes)?;
        match header.kind {
            Kind::Hello | Kind::HelloReply | Kind::Retry => {
                let (_, body) = Header::decode(bytes)?;
                return self.on_handshake(now, meta, &header, body).map(|()| None);
            }
            _ if !self.security.is_on() || header.kind == Kind::Reset => {
                return self.take_plain(now, meta, bytes, &[]);
            }
            _ => {}
        }
        if header.flags & FLAG_GREETING != 0 || header.dst_context == 0 {
            return Err(DropReason::WrongProtection);
        }
        let id = self.find_named(now, meta, &header, None)?;
        let (head, sealed) =
            bytes.split_first_chunk_mut::<HEADER_BYTES>().ok_or(DropReason::Malformed)?;
        let shared = shared!(self);
        let peer = self.peers.peer(id).ok_or(DropReason::UnknownContext)?;
        let body = peer.unseal(now, &header, head, sealed, shared)?;
        peer.heard_from(now, meta, shared);
        self.dispatch(now, id, meta, &header, body, &[])
    }

    /// A plain packet, in one piece or two.
    fn take_plain<'a>(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        head: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Option<Delivery<'a>>, DropReason> {
        let (header, body) = Header::decode(head)?;
        if header.kind == Kind::Reset {
            return self.on_reset(now, meta, &Reset::decode(body)?).map(|()| None);
        }
        if self.security.is_on() {
            return Err(DropReason::WrongProtection);
        }
        let (greeting, body) = if header.flags & FLAG_GREETING != 0 {
            let (g, rest) = Greeting::decode(body)?;
            (Some(g), rest)
        } else {
            (None, body)
        };
        let id = self.find_peer(now, meta, &header, greeting.as_ref())?;
        self.dispatch(now, id, meta, &header, body, payload)
    }

    /// An authentic packet of a known peer.
    fn dispatch<'a>(
        &mut self,
        now: Instant,
        id: PeerId,
        meta: &PacketMeta,
        header: &Header,
        body: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Option<Delivery<'a>>, DropReason> {
        self.share.hear_rtt(wire::decode_rtt(header.rtt_code));
        let delivery = match header.kind {
            Kind::Data => self.on_data(now, id, meta, header, body, payload)?,
            Kind::Ack => {
                let ack = AckView::decode(body)?;
                let shared = shared!(self);
                if let Some(peer) = self.peers.peer(id) {
                    peer.on_ack(now, &ack, shared);
                }
                None
            }
            Kind::Probe => {
                let probe = Probe::decode(body)?;
                let shared = shared!(self);
                if let Some(peer) = self.peers.peer(id) {
                    peer.on_probe(meta, header, &probe, shared);
                }
                self.share.on_arrival(now, id, &mut self.peers);
                None
            }
            Kind::Hello | Kind::HelloReply | Kind::Retry | Kind::Reset => {
                return Err(DropReason::WrongProtection);
            }
        };
        self.peers.make_ready(id);
        self.peers.schedule(id, now, &self.config);
        Ok(delivery)
    }

    /// The peer whose context a packet names.
    fn find_named(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        header: &Header,
        greeting: Option<&Greeting>,
    ) -> Result<PeerId, DropReason> {
        let id = PeerId((header.dst_context & INDEX_MASK).wrapping_sub(1));
        match self.peers.peer(id) {
            Some(peer) if peer.is_named(header.dst_context) => Ok(id),
            _ => {
                self.queue_reset(now, meta, header, greeting);
                Err(DropReason::UnknownContext)
            }
        }
    }

    /// The peer that a packet belongs to, made if the packet introduces it.
    fn find_peer(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        header: &Header,
        greeting: Option<&Greeting>,
    ) -> Result<PeerId, DropReason> {
        let named = header.dst_context != 0;
        let id = if named {
            self.find_named(now, meta, header, greeting)?
        } else {
            let greeting = greeting.ok_or(DropReason::Malformed)?;
            let address = SocketAddr::new(meta.source.ip(), greeting.port);
            match self.by_address.get(&address) {
                Some(id) => *id,
                None => self.insert_peer(now, address).ok_or(DropReason::PeersFull)?,
            }
        };
        if let (Some(greeting), Some(peer)) = (greeting, self.peers.peer(id))
            && peer.is_buried(greeting)
        {
            let reset = Reset { context: greeting.context, number: header.number };
            self.reply_reset(now, SocketAddr::new(meta.source.ip(), greeting.port), &reset);
            return Err(DropReason::StaleEpoch);
        }
        let shared = shared!(self);
        if let Some(peer) = self.peers.peer(id) {
            if let Some(greeting) = greeting {
                peer.on_greeting(now, greeting, named, shared)?;
            }
            peer.on_heard(now, named, shared);
        }
        Ok(id)
    }

    fn on_data<'a>(
        &mut self,
        now: Instant,
        id: PeerId,
        meta: &PacketMeta,
        header: &Header,
        body: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Option<Delivery<'a>>, DropReason> {
        let (data, rest) = Data::decode(body)?;
        let payload = if rest.is_empty() { payload } else { rest };
        let packet = DataPacket { header, data, payload_bytes: payload.len() };
        let shared = shared!(self);
        let queue_pairs = &mut self.queue_pairs;
        let Some(peer) = self.peers.peer(id) else { return Ok(None) };
        let accepted =
            peer.on_data(now, meta, &packet, shared, || queue_pairs.take_buffer(Qpn(data.dst_qpn)));
        self.share.on_arrival(now, id, &mut self.peers);
        match accepted {
            Ok(Accepted::Noted) => Ok(None),
            Ok(Accepted::Deliver(data)) => {
                self.stats.recv_wrs += 1;
                self.stats.recv_bytes += payload.len() as u64;
                Ok(Some(Delivery {
                    peer: id,
                    src_qpn: Qpn(data.src_qpn),
                    dst_qpn: Qpn(data.dst_qpn),
                    imm: data.imm,
                    payload,
                }))
            }
            Err(reason) => {
                self.peers.make_ready(id);
                Err(reason)
            }
        }
    }

    /// Someone uses a context that we do not have: say so, within the limit.
    fn queue_reset(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        header: &Header,
        greeting: Option<&Greeting>,
    ) {
        // Data comes from an entropy port: answer to where the sender listens if it says so,
        // else to the port it used, which it listens on as well.
        let port = greeting.map_or(meta.source.port(), |g| g.port);
        let reset = Reset { context: header.dst_context, number: header.number };
        self.reply_reset(now, SocketAddr::new(meta.source.ip(), port), &reset);
    }

    fn reply_reset(&mut self, now: Instant, to: SocketAddr, reset: &Reset) {
        let mut bytes = Vec::new();
        bare_header(Kind::Reset, 0).encode(&mut bytes);
        reset.encode(&mut bytes);
        self.reply(now, to, bytes);
    }

    /// Answers a stranger, within the limits.
    fn reply(&mut self, now: Instant, to: SocketAddr, bytes: Vec<u8>) {
        if now >= self.replies_refill_at {
            self.replies_refill_at = now + Duration::from_millis(1);
            self.replies_left = REPLIES_MAX;
        }
        if self.replies_left > 0 && self.replies.len() < REPLIES_MAX {
            self.replies_left -= 1;
            self.replies.push_back((to, bytes));
        }
    }

    fn on_handshake(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        header: &Header,
        body: &[u8],
    ) -> Result<(), DropReason> {
        if !self.security.is_on() {
            return Err(DropReason::WrongProtection);
        }
        if header.kind == Kind::Hello {
            return self.on_hello(now, meta, &Hello::decode(body)?);
        }
        let id = self.find_named(now, meta, header, None)?;
        let shared = shared!(self);
        let peer = self.peers.peer(id).ok_or(DropReason::UnknownContext)?;
        if header.kind == Kind::Retry {
            peer.on_retry(now, decode_retry(body)?);
        } else {
            peer.on_hello_reply(now, body, shared)?;
            peer.on_heard(now, true, shared);
        }
        self.peers.make_ready(id);
        self.peers.schedule(id, now, &self.config);
        Ok(())
    }

    /// Someone opens a session.
    fn on_hello(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        hello: &Hello<'_>,
    ) -> Result<(), DropReason> {
        let reply_to = meta.source;
        match self.security.admit(now, reply_to, &hello.cookie) {
            Admission::Accept => {}
            Admission::DemandCookie => {
                let mut bytes = Vec::new();
                bare_header(Kind::Retry, hello.context).encode(&mut bytes);
                bytes.extend_from_slice(&self.security.cookie_for(now, reply_to));
                self.reply(now, reply_to, bytes);
                return Err(DropReason::CookieDemanded);
            }
            Admission::Drop => return Err(DropReason::CookieDemanded),
        }
        let request = self.security.read(hello.noise, now)?;
        let address = SocketAddr::new(meta.source.ip(), request.greeting.port);
        let known = match &request.public {
            Some(key) => self.by_key.get(key).copied(),
            None => self.by_address.get(&address).copied(),
        };
        let stranger_ok =
            request.public.is_none() || self.config.admission == crate::config::Admission::Anyone;
        let id = match known {
            Some(id) => id,
            None if stranger_ok => {
                if self.by_address.contains_key(&address) {
                    return Err(DropReason::Unauthentic); // another key lives there
                }
                let id = self.insert_peer(now, address).ok_or(DropReason::PeersFull)?;
                self.set_key(id, request.public);
                id
            }
            None => return Err(DropReason::Unauthentic),
        };
        let shared = shared!(self);
        let peer = self.peers.peer(id).ok_or(DropReason::UnknownContext)?;
        if !peer.repeats_answer(hello.noise) {
            if peer.opening_wins(hello.noise) {
                return Err(DropReason::Replay); // ours is on its way and wins
            }
            if peer.remote_epoch.is_some_and(|e| e.0 > request.greeting.epoch) {
                return Err(DropReason::StaleEpoch);
            }
            peer.on_hello(now, hello.noise, request, shared)?;
        }
        self.peers.make_ready(id);
        self.peers.schedule(id, now, &self.config);
        Ok(())
    }

    /// A peer says that it does not know the context that we name, or has forgotten what came
    /// from ours: it has restarted, or has given us up. Believed only if it names that context
    /// and a packet that is in flight there.
    fn on_reset(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        reset: &Reset,
    ) -> Result<(), DropReason> {
        let named = |p: &Peer| {
            [p.remote_context, p.local_context].contains(&reset.context)
                && p.address.ip() == meta.source.ip()
        };
        let slot = self.peers.slots.iter().flatten().find(|p| named(p));
        let id = slot.map(|p| p.id).ok_or(DropReason::UnknownContext)?;
        let shared = shared!(self);
        let Some(peer) = self.peers.peer(id) else { return Ok(()) };
        if !peer.has_outstanding(reset.number) {
            return Err(DropReason::UnknownContext);
        }
        if shared.security.is_on() {
            // Nobody signed this: it is a hint to open a new session, no more.
            peer.protected.reopen = true;
        } else {
            peer.restart(now, shared, crate::event::DownReason::Restarted);
        }
        self.peers.make_ready(id);
        self.peers.schedule(id, now, &self.config);
        Ok(())
    }

    /// Runs every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        let now = self.at(now);
        while let Some(&Reverse((at, index))) = self.peers.wakes.peek() {
            if at > now {
                return;
            }
            self.peers.wakes.pop();
            self.wake(now, PeerId(index), at);
        }
    }

    fn wake(&mut self, now: Instant, id: PeerId, at: Instant) {
        let shared = shared!(self);
        let Some(peer) = self.peers.peer(id) else { return };
        if peer.wake_at != at {
            return; // superseded by an earlier one, which has run
        }
        peer.wake_at = Instant::FAR_FUTURE;
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

    /// When to call [`Endpoint::handle_timeout`] at the latest. May be early, never late.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.peers.wakes.peek().map(|Reverse((at, _))| *at)
    }

    /// Writes the next batch into `buf`, which the caller has cleared.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let now = self.at(now);
        if let Some((to, bytes)) = self.replies.pop_front() {
            return Some(self.write_reply(to, &bytes, buf));
        }
        while let Some(&id) = self.peers.ready.front() {
            let shared = shared!(self);
            let Some(peer) = self.peers.peer(id) else {
                self.peers.ready.pop_front();
                continue;
            };
            let transmit = peer.poll_transmit(now, shared, buf);
            if transmit.is_some() {
                self.peers.ready.rotate_left(1);
                self.peers.schedule(id, now, &self.config);
                return transmit;
            }
            peer.queued_ready = false;
            self.peers.ready.pop_front();
            self.peers.schedule(id, now, &self.config);
        }
        None
    }

    fn write_reply(&mut self, to: SocketAddr, bytes: &[u8], buf: &mut TransmitBuf) -> Transmit {
        buf.bytes.extend_from_slice(bytes);
        buf.finish_segment(bytes::Bytes::new());
        self.stats.tx_pkts += 1;
        self.stats.tx_bytes += buf.total_bytes() as u64;
        Transmit {
            destination: to,
            entropy: crate::ids::Entropy(0),
            ecn: Ecn::NotEct,
            segment_bytes: buf.first_segment_bytes(),
            segments: 1,
            total_bytes: buf.total_bytes(),
            control: true,
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
    pub fn deny_path(&mut self, peer: PeerId, entropy: crate::ids::Entropy, denied: bool) -> bool {
        let tx = self.peers.peer(peer).and_then(|p| p.tx.as_mut());
        tx.is_some_and(|tx| tx.paths.deny(entropy, denied))
    }

    /// One context's state, if there is one.
    pub fn peer_stats(&self, peer: PeerId) -> Option<PeerStats> {
        let peer = self.peers.slots.get(peer.0 as usize)?.as_ref()?;
        peer.has_context().then(|| peer.stats())
    }

    /// The paths to a peer; empty before anything was sent to it.
    pub fn paths(&self, peer: PeerId) -> Vec<PathReport> {
        let peer = self.peers.slots.get(peer.0 as usize).and_then(Option::as_ref);
        peer.and_then(|p| p.tx.as_ref()).map(|tx| tx.paths.reports()).unwrap_or_default()
    }
}

impl From<WireError> for DropReason {
    fn from(e: WireError) -> Self {
        match e {
            WireError::Malformed => Self::Malformed,
            WireError::Version => Self::Version,
        }
    }
}
