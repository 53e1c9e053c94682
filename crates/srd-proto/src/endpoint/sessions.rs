//! Opening of sessions, and the effect of a Reset.
//!
//! A stranger's opening always costs the check of one MAC. If the MAC is valid, it may cost a
//! Retry, within one allowance, and a handshake, within another allowance. This endpoint keeps
//! state for a stranger only after a cookie has proved that the stranger receives at its address.

use core::net::{IpAddr, SocketAddr};

use super::Endpoint;
use super::replies::Recipient;
use crate::config::Admission as AdmissionRule;
use crate::crypto::{Admission, HELLO_MAC_BYTES, Proof};
use crate::error::DropReason;
use crate::event::{Diagnosis, DownReason};
use crate::ids::PeerId;
use crate::node::shard_of_context;
use crate::peer::{Peer, ReplyRoute, with_port};
use crate::time::{Duration, Instant};
use crate::transmit::PacketMeta;
use crate::wire::handshake::{Hello, Reset, decode_hello_reply, decode_retry};
use crate::wire::{Header, Kind};

/// Average time between two openings from the IP address of a known peer that are processed in
/// preference to openings of strangers: ten a second.
const OPENING_PAUSE: Duration = Duration::from_millis(100);
/// Largest number of openings from the IP address of a known peer that, at one moment, are
/// processed in preference to openings of strangers.
const OPENINGS_AT_ONCE: u64 = 10;

impl Endpoint {
    pub(super) fn on_handshake(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        header: &Header,
        body: &[u8],
    ) -> Result<(), DropReason> {
        if !self.shared.security.is_on() {
            return Err(DropReason::WrongProtection);
        }
        if header.kind == Kind::Hello {
            return self.on_hello(now, meta, body);
        }
        if header.kind == Kind::Retry {
            return self.on_retry(now, body);
        }
        let id = self.find_named(now, meta, header, None)?;
        let shared = &mut self.shared;
        let peer = self.peers.peer(id).ok_or(DropReason::UnknownContext)?;
        let (token, answer) = decode_hello_reply(body)?;
        peer.on_hello_reply(now, token, answer, shared)?;
        peer.on_authentic(now, true, shared);
        self.peers.make_ready(id);
        Ok(())
    }

    /// Processes a Retry: a responder demands a cookie for a list of openings, some of which may be
    /// ours.
    fn on_retry(&mut self, now: Instant, body: &[u8]) -> Result<(), DropReason> {
        let (cookie, retried) = decode_retry(body)?;
        let mut taken = Err(DropReason::Unauthentic);
        for (context, token) in retried {
            let at = self.shared.numbers.index(context);
            let named = self.peers.at(at).filter(|peer| peer.is_named(context));
            if let Some(peer) = named.filter(|peer| peer.awaits(token)) {
                let id = peer.id;
                taken = peer.on_retry(now, cookie);
                self.peers.make_ready(id);
            }
        }
        taken
    }

    /// Processes an opening of a session.
    fn on_hello(&mut self, now: Instant, meta: &PacketMeta, body: &[u8]) -> Result<(), DropReason> {
        let hello = Hello::decode(body)?;
        let ip = meta.source.ip();
        // S27: MAC of a Hello
        if !self.shared.security.is_for_us(&hello.mac, &body[HELLO_MAC_BYTES..]) {
            self.diagnose(now, ip, Diagnosis::OtherKeyForUs);
            return Err(DropReason::Unauthentic);
        }
        if let Some(known) = self.seen_before(now, meta, &hello) {
            return known;
        }
        let proven = self.shared.security.is_proven(now, meta.source, &hello.cookie);
        match self.admit(now, ip, proven) {
            Admission::Accept => {}
            Admission::DemandCookie => return self.demand_cookie(now, meta, &hello),
            Admission::Drop => return Err(DropReason::CookieDemanded),
        }
        let request = self.shared.security.read(hello.noise, now)?;
        let address = with_port(meta.source, request.greeting.port);
        let partner = shard_of_context(request.greeting.context);
        // H16. The number outside of the sealed greeting, by which the packet was steered, is not
        // authenticated: an opening that was sealed for another shard is a replay.
        if partner % self.shared.node.shards() != self.shared.shard {
            return Err(DropReason::Replay);
        }
        let known = match request.public {
            Some(key) => self.by_key.get(&(key, partner)).copied(),
            None => self.at_source(address, partner),
        };
        let sibling = request.public.and_then(|key| self.by_key.get(&(key, self.shared.shard)));
        let sibling = sibling.copied();
        let id = match (known, request.public) {
            (Some(id), _) => id,
            // S14: Admission before an answer
            (None, Some(key)) if sibling.is_none() && !self.admits_stranger(address) => {
                self.diagnose(now, ip, Diagnosis::UnknownKey(key));
                return Err(DropReason::Unauthentic);
            }
            // S28: No state for strangers
            _ if !proven => return self.demand_cookie(now, meta, &hello),
            (None, key) => {
                let inserted = self.insert_peer(now, Some(address), partner);
                let id = inserted.ok_or(DropReason::PeersFull)?;
                self.share_secret(sibling, id);
                self.set_key(id, key);
                self.note_unconfirmed(id);
                if key.is_none() {
                    self.list(id); // only its address identifies it
                }
                id
            }
        };
        let shared = &mut self.shared;
        let peer = self.peers.peer(id).ok_or(DropReason::UnknownContext)?;
        let again = peer.repeats_answer(hello.noise, address);
        if !again {
            if peer.opening_wins(hello.noise, ip) {
                return Err(DropReason::Replay); // ours was sent already and wins
            }
            let stale = peer.remote_epoch.is_some_and(|e| e.0 > request.greeting.epoch);
            if stale
                || request.public.is_some() && peer.has_newer_session(&request.greeting, ip)
                || peer.has_newer_opening(request.stamp(), now, &shared.node.config)
            {
                // This is an old opening, or the peer has restarted and its clock was set back.
                peer.probe_known_run(now, shared);
                self.peers.make_ready(id);
                return Err(if stale { DropReason::StaleEpoch } else { DropReason::Replay });
            }
            peer.on_hello(now, hello.noise, request, address, shared)?;
        }
        peer.control_paths.note_opening(
            meta.source.port(),
            address.port(),
            self.shared.node.config.paths,
            again,
        );
        self.peers.make_ready(id);
        Ok(())
    }

    /// Records a peer that an opening of a stranger has created.
    fn note_unconfirmed(&mut self, id: PeerId) {
        // The queue has space for each peer twice, so most calls examine one entry at most.
        if self.unconfirmed.len() >= 2 * self.shared.node.config.peers_max as usize {
            let peers = &self.peers;
            self.unconfirmed.retain(|id| is_unconfirmed(peers.look(*id)));
        }
        self.unconfirmed.push_back(id);
    }

    /// Drops the oldest peer that an opening of a stranger has created and that has no session.
    /// `None`: there is no such peer.
    pub(super) fn drop_unconfirmed(&mut self) -> Option<()> {
        // S28: No state for strangers
        while let Some(id) = self.unconfirmed.pop_front() {
            if is_unconfirmed(self.peers.look(id)) {
                self.drop_peer(id);
                return Some(());
            }
        }
        None
    }

    /// Copies the keys of the peer `known`, a shard of a node, to the peer `id`, another shard of
    /// this node.
    fn share_secret(&mut self, known: Option<PeerId>, id: PeerId) {
        let keys = known.and_then(|known| self.peers.look(known)?.keys.clone());
        if let (Some(keys), Some(peer)) = (keys, self.peers.peer(id)) {
            peer.keys = Some(keys);
        }
    }

    /// Adds a peer whose plain packet introduces it.
    pub(super) fn introduce(
        &mut self,
        now: Instant,
        address: SocketAddr,
        partner: u8,
    ) -> Option<PeerId> {
        // H2: No packet opens a plain context
        let id = self.insert_peer(now, Some(address), partner)?;
        self.list(id);
        Some(id)
    }

    /// Whether a peer with an unknown key may open a session from this address. It may not if the
    /// application has named a peer at this address.
    fn admits_stranger(&self, address: SocketAddr) -> bool {
        let owner = self.at_source(address, self.shared.shard).and_then(|id| self.peers.look(id));
        self.shared.node.config.admission == AdmissionRule::Anyone
            && owner.is_none_or(|p| !p.configured)
    }

    /// Processes an opening that was already answered for a peer at its source address. The last
    /// opening that was answered is answered again; an earlier opening is a replay. `None`: the
    /// opening is new.
    fn seen_before(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        hello: &Hello<'_>,
    ) -> Option<Result<(), DropReason>> {
        let ip = meta.source.ip();
        let seen = |id: PeerId| Some((id, self.peers.look(id)?.has_answered(hello.noise)?));
        let (id, last) = self.neighbours(ip).find_map(seen)?;
        if !last {
            return Some(Err(DropReason::Replay));
        }
        let peer = self.peers.peer(id)?;
        peer.repeat_at_once(now, meta.source);
        let listens = peer.address.port();
        peer.control_paths.note_opening(
            meta.source.port(),
            listens,
            self.shared.node.config.paths,
            true,
        );
        self.peers.make_ready(id);
        Some(Ok(()))
    }

    /// Decides whether the rate of openings allows an opening to be processed now.
    fn admit(&mut self, now: Instant, ip: IpAddr, proven: bool) -> Admission {
        let known = if proven { self.neighbours(ip).next() } else { None };
        let mut proof = if proven { Proof::Cookie } else { Proof::None };
        if let Some(peer) = known.and_then(|id| self.peers.peer(id)) {
            let due = &mut peer.guard.openings_due;
            // S22: Cookies beyond the handshake rate
            if due.since(now) <= OPENING_PAUSE.times(OPENINGS_AT_ONCE - 1) {
                *due = (*due).max(now) + OPENING_PAUSE;
                proof = Proof::Known;
            }
        }
        self.shared.security.admit(now, proof)
    }

    /// Demands a proof that the sender of an opening receives at its source address.
    fn demand_cookie(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        hello: &Hello<'_>,
    ) -> Result<(), DropReason> {
        let mut recipient =
            if self.shared.security.is_job() { Recipient::Member } else { Recipient::Stranger };
        let mut to = meta.source;
        let mut near = self.neighbours(to.ip());
        let known = near.next();
        let alone = near.next().is_none();
        drop(near);
        if let Some(peer) = known.and_then(|id| self.peers.look(id)) {
            // A forged opening may name any shard. The allowance for known peers is reserved for
            // openings of the shard that contacts this one if both nodes have the same number of
            // shards.
            if shard_of_context(hello.context) == self.shared.shard {
                recipient = Recipient::Known;
            }
            if alone {
                // One Retry answers all openings from this address, whatever their paths.
                to.set_port(peer.port_at(to.ip()));
            }
        }
        let cookie = || self.shared.security.cookie_for(now, meta.source);
        let route = ReplyRoute { to, local: meta.local };
        self.replies.push_retry(now, (route, recipient), hello, cookie);
        Err(DropReason::CookieDemanded)
    }

    /// Processes a Reset: the peer does not have the context that our packet named, or has removed
    /// its part of our context, because it has restarted or given us up. A Reset is accepted only
    /// if it names that context and a packet that is in flight in it.
    pub(super) fn on_reset(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        reset: &Reset,
    ) -> Result<(), DropReason> {
        // H7: Conditions for a plain Reset
        let id = self.named_by_reset(meta.source.ip(), reset.context, reset.number);
        let id = id.ok_or(DropReason::UnknownContext)?;
        let shared = &mut self.shared;
        let Some(peer) = self.peers.peer(id) else { return Ok(()) };
        if shared.security.is_on() {
            // S26. A Reset is not signed: it is only a hint to open a new session.
            peer.protected.reopen = true;
        } else if reset.context == peer.remote_context {
            // H7a. Either the context of the peer has ended, or ours.
            peer.restart(now, shared, DownReason::Restarted);
        } else {
            peer.begin_anew(now, shared);
        }
        self.peers.make_ready(id);
        Ok(())
    }
}

/// Whether a peer that an opening of a stranger has created has no session yet, and may be dropped.
fn is_unconfirmed(peer: Option<&Peer>) -> bool {
    peer.is_some_and(|peer| !peer.configured && !peer.has_context())
}
