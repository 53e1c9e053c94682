//! How sessions are opened, and what happens when a peer says that it has lost ours.

use core::net::SocketAddr;

use super::Endpoint;
use crate::config::Admission as AdmissionRule;
use crate::crypto::Admission;
use crate::error::DropReason;
use crate::event::DownReason;
use crate::peer::{Peer, Shared};
use crate::time::Instant;
use crate::transmit::PacketMeta;
use crate::wire::handshake::{Hello, Reset, decode_retry};
use crate::wire::{Header, Kind};

impl Endpoint {
    pub(super) fn on_handshake(
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
        Ok(())
    }

    /// Someone opens a session.
    pub(super) fn on_hello(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        hello: &Hello<'_>,
    ) -> Result<(), DropReason> {
        let reply_to = meta.source;
        match self.security.admit(now, reply_to, &hello.cookie) {
            Admission::Accept => {}
            Admission::DemandCookie => {
                let cookie = || self.security.cookie_for(now, reply_to);
                self.replies.push_retry(now, reply_to, hello.context, cookie);
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
            request.public.is_none() || self.config.admission == AdmissionRule::Anyone;
        let id = match known {
            Some(id) => id,
            None if stranger_ok => {
                if self.by_address.contains_key(&address) {
                    return Err(DropReason::Unauthentic); // another key lives there
                }
                let id = self.insert_peer(now, Some(address)).ok_or(DropReason::PeersFull)?;
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
            peer.on_hello(now, hello.noise, request, address, shared)?;
        }
        self.peers.make_ready(id);
        Ok(())
    }

    /// A peer says that it does not know the context that we name, or has forgotten what came
    /// from ours: it has restarted, or has given us up. Believed only if it names that context
    /// and a packet that is in flight there.
    pub(super) fn on_reset(
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
            peer.restart(now, shared, DownReason::Restarted);
        }
        self.peers.make_ready(id);
        Ok(())
    }
}
