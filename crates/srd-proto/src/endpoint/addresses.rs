//! Indexes of the peers: by address, by the present IP address of peers that the application named,
//! and by the context number that a peer has assigned. A search for the peer of a stranger's packet
//! costs no more than the logarithm of the number of peers.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::{Endpoint, PeerConfig};
use crate::config::Protection;
use crate::error::{AddPeerError, DropReason};
use crate::event::Diagnosis;
use crate::ids::{Entropy, PeerId};
use crate::node::SHARDS_MAX;
use crate::peer::{Peer, same_ip, without_link};
use crate::time::Instant;

/// Maximum number of peers at one IP address that are examined for a stranger's packet.
const NEIGHBOURS_MAX: usize = 8;
/// Maximum number of contexts that are examined for a Reset, because different peers may have
/// assigned the same number.
const NAMESAKES_MAX: usize = 256;

impl Endpoint {
    /// Treats a peer that introduced itself as if the application had added it: its identifier
    /// stays valid, however long the peer is silent.
    pub fn keep_peer(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.peer(id) {
            peer.configured = true;
            self.watch(id);
        }
    }

    /// Returns the peer at an address, and adds it if there is no such peer. If `public_key` is
    /// given, the peer must have this key. Nothing is sent.
    ///
    /// # Errors
    /// Returns an error if the peer at this address has another key, and the errors of
    /// [`Endpoint::add_peer`].
    pub fn peer_with(
        &mut self,
        now: Instant,
        address: SocketAddr,
        public_key: Option<[u8; 32]>,
    ) -> Result<PeerId, AddPeerError> {
        let Some(id) = self.peer_at(address) else {
            return self.add_peer(now, PeerConfig::at(address).with_key(public_key));
        };
        let known = self.public_key_of(id);
        let authenticates = matches!(self.shared.node.config.protection, Protection::Static(_));
        // Without static keys no peer has proved the ownership of one.
        let differs = known != public_key && (authenticates || known.is_some());
        if public_key.is_some() && differs {
            return Err(AddPeerError::KeyMismatch);
        }
        Ok(id)
    }

    /// Reverses [`Endpoint::keep_peer`] or [`Endpoint::add_peer`] without removing the peer: it is
    /// removed when it has been idle for `idle_reclaim`, like a peer that introduced itself. An
    /// endpoint with static keys ignores the call, because a removed peer would lose its key.
    pub fn release_peer(&mut self, now: Instant, id: PeerId) {
        let now = self.at(now);
        let keyed = matches!(self.shared.node.config.protection, Protection::Static(_));
        if let Some(peer) = self.peers.peer(id).filter(|_| !keyed) {
            peer.configured = false;
            let ip = peer.address.ip().to_canonical();
            self.by_ip.remove(&(ip, id.index()));
            self.peers.schedule(id, now, &self.shared.node.config);
        }
    }

    /// Static public key of a peer, which the application named or the peer has proved. `None` if
    /// the peer has no static key, or does not exist.
    pub fn public_key_of(&self, peer: PeerId) -> Option<[u8; 32]> {
        self.peers.look(peer)?.keys.as_ref()?.public_key
    }

    /// The peer at an address; `None` if there is no such peer.
    pub fn peer_at(&self, address: SocketAddr) -> Option<PeerId> {
        self.by_address.get(&(address, self.shared.shard)).copied()
    }

    /// The peer at the address `source` of a packet, which represents this shard of its node. A
    /// peer that the application named by a link-local address without the link is found on every
    /// link.
    pub(super) fn at_source(&self, source: SocketAddr, partner: u8) -> Option<PeerId> {
        let listed = |at| self.by_address.get(&(at, partner)).copied();
        listed(source).or_else(|| without_link(source).and_then(listed))
    }

    /// Number of peers. If a remote node has several contexts with this endpoint, each of them
    /// counts.
    pub fn peer_count(&self) -> usize {
        self.peers.slots.len() - self.free.len()
    }

    /// Returns the peer that represents the remote node of `peer`. It is `peer` itself, except if
    /// the remote node has more shards than ours, so that several of its shards have a context with
    /// this endpoint (H16).
    pub fn node_of(&self, peer: PeerId) -> PeerId {
        self.context_with(peer, self.shared.shard).unwrap_or(peer)
    }

    /// Shard of the peer's node at the other end of this context. Shard `i` contacts shard `i`. A
    /// node with more shards than ours has several contexts with one of our shards (H16).
    pub fn partner_of(&self, peer: PeerId) -> u8 {
        self.peers.look(peer).map_or(0, |peer| peer.partner)
    }

    /// Returns a peer, and the peers that represent other shards of its node.
    pub(super) fn contexts_with(&self, peer: PeerId) -> Vec<PeerId> {
        let mut all: Vec<PeerId> =
            (0..SHARDS_MAX).filter_map(|partner| self.context_with(peer, partner)).collect();
        if !all.contains(&peer) {
            all.push(peer);
        }
        all
    }

    /// Returns the peer that represents shard `partner` of the node of the peer `id`.
    fn context_with(&self, id: PeerId, partner: u8) -> Option<PeerId> {
        let peer = self.peers.look(id)?;
        let key = peer.keys.as_ref().and_then(|keys| keys.public_key);
        match key {
            _ if peer.partner == partner => Some(id),
            Some(key) => self.by_key.get(&(key, partner)).copied(),
            None => self.by_address.get(&(peer.listed_at?, partner)).copied(),
        }
    }

    /// Address of a peer to which its packets are sent. If the peer has several addresses, the
    /// first.
    pub fn address_of(&self, peer: PeerId) -> Option<SocketAddr> {
        self.peers.look(peer).map(|p| p.address)
    }

    /// Destination of packets to a peer on the path with this entropy; `None` if the peer does not
    /// exist.
    pub fn destination(&self, peer: PeerId, entropy: Entropy) -> Option<SocketAddr> {
        self.peers.look(peer).map(|p| p.destination(entropy))
    }

    /// All addresses of a peer, in the order in which the application named them.
    pub fn addresses_of(&self, peer: PeerId) -> Vec<SocketAddr> {
        self.peers.look(peer).map(|p| p.addresses().collect()).unwrap_or_default()
    }

    /// Enters a peer into the index by address, unless the address belongs to a peer that the
    /// application named.
    pub(super) fn list(&mut self, id: PeerId) {
        let Some((address, partner)) = self.peers.look(id).map(|p| (p.address, p.partner)) else {
            return;
        };
        let before = self.by_address.get(&(address, partner)).copied().filter(|other| *other != id);
        if let Some(other) = before.and_then(|before| self.peers.peer(before)) {
            // S28: No state for strangers
            if other.configured {
                return;
            }
            other.listed_at = None;
        }
        let Some(peer) = self.peers.peer(id) else { return };
        if let Some(former) = peer.listed_at.replace(address).filter(|former| *former != address) {
            self.by_address.remove(&(former, partner));
        }
        self.by_address.insert((address, partner), id);
        // The application has named these addresses, and no other peer is listed there.
        let further = peer.addresses().skip(1);
        self.by_address.extend(further.map(|address| ((address, partner), id)));
    }

    /// Removes a peer from all indexes.
    pub(super) fn unlist(&mut self, peer: &Peer) {
        for address in peer.listed_at.into_iter().chain(peer.addresses().skip(1)) {
            self.by_address.remove(&(address, peer.partner));
        }
        for address in peer.addresses() {
            self.by_ip.remove(&(address.ip().to_canonical(), peer.id.index()));
        }
        self.shared.contexts.remove(&(peer.remote_context, peer.id.index()));
    }

    /// Enters a peer that the application named into the index by IP address.
    pub(super) fn watch(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.look(id).filter(|p| p.address.port() != 0) {
            let places = peer.addresses().map(|at| (at.ip().to_canonical(), id.index()));
            self.by_ip.extend(places);
        }
    }

    /// Updates the indexes for a peer after a packet that may have changed its address. `before` is
    /// its address before the packet.
    pub(super) fn follow(&mut self, id: PeerId, before: SocketAddr) {
        let shared = &mut self.shared;
        let Some(peer) = self.peers.peer(id) else { return };
        if peer.address == before {
            return;
        }
        let configured = peer.configured;
        if before.port() != 0 {
            peer.on_moved(shared);
        }
        let (now_at, slot) = (peer.address.ip(), id.index());
        if configured && !same_ip(now_at, before.ip()) {
            self.by_ip.remove(&(before.ip().to_canonical(), slot));
            self.by_ip.insert((now_at.to_canonical(), slot));
        }
        self.peers.make_ready(id);
    }

    /// Up to [`NEIGHBOURS_MAX`] peers that the application named and that are at the IP address
    /// `ip`.
    pub(super) fn neighbours(&self, ip: IpAddr) -> impl Iterator<Item = PeerId> {
        let ip = ip.to_canonical();
        let slots = self.by_ip.range((ip, 0)..=(ip, u32::MAX)).map(|(_, slot)| *slot);
        let peers = slots.filter_map(|slot| self.peers.slots.get(slot as usize)?.as_deref());
        peers.map(|peer| peer.id).take(NEIGHBOURS_MAX)
    }

    /// Returns the peer at the IP address `ip` to which we sent the packet that a Reset names by
    /// its context and number.
    pub(super) fn named_by_reset(&self, ip: IpAddr, context: u32, number: u32) -> Option<PeerId> {
        let theirs =
            self.shared.contexts.range((context, 0)..=(context, u32::MAX)).map(|(_, slot)| *slot);
        let ours = self.shared.numbers.index(context);
        let slots = theirs.take(NAMESAKES_MAX).chain([ours]);
        let mut peers = slots.filter_map(|slot| self.peers.slots.get(slot as usize)?.as_deref());
        let named = |p: &&Peer| {
            [p.remote_context, p.local_context].contains(&context)
                && (p.is_at(ip) || p.may_be_at(ip))
                && p.has_outstanding(number)
        };
        peers.find(named).map(|p| p.id)
    }

    /// Reports why there is no session with a known peer, as a packet from the peer's IP address
    /// shows it. Does nothing if there is a session.
    pub(super) fn diagnose(&mut self, now: Instant, ip: IpAddr, what: Diagnosis) {
        let lost = |id: &PeerId| self.peers.look(*id).is_some_and(|p| !p.has_received);
        let Some(id) = self.neighbours(ip).find(lost) else { return };
        let shared = &mut self.shared;
        if let Some(peer) = self.peers.peer(id) {
            peer.diagnose(now, what, shared);
        }
    }

    /// Reports a dropped packet as a diagnosis, if the drop reason explains why there is no
    /// session.
    pub(super) fn diagnose_drop(&mut self, now: Instant, ip: IpAddr, reason: DropReason) {
        match reason {
            DropReason::Version => self.diagnose(now, ip, Diagnosis::OtherVersion),
            DropReason::WrongProtection => self.diagnose(now, ip, Diagnosis::OtherProtection),
            _ => {}
        }
    }
}
