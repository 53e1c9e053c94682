//! The end of contexts: removal of peers, release of memory, and the end of the endpoint.

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::Endpoint;
use crate::error::DropReason;
use crate::event::Status;
use crate::ids::{Entropy, PeerId};
use crate::peer::CLOSES;
use crate::time::Instant;
use crate::transmit::{PacketMeta, TransmitBuf};
use crate::wire::ack::AckView;
use crate::wire::greeting::Greeting;
use crate::wire::handshake::Token;
use crate::wire::{Header, Kind};

/// Maximum number of Closes to removed peers that wait to be sent. Beyond this bound a removed peer
/// gets no Close, and detects the end by its timeout.
pub(super) const QUEUED_CLOSES_MAX: usize = 1024;

/// A Close packet for a removed peer.
#[derive(Debug)]
pub(super) struct QueuedClose {
    pub(super) to: SocketAddr,
    pub(super) entropy: Entropy,
    pub(super) bytes: Vec<u8>,
}

impl Endpoint {
    /// Removes a peer and sends it a Close. All datagrams to the peer that have not ended complete
    /// as [`Status::Flushed`]. The remote endpoint reports [`crate::DownReason::Closed`].
    pub fn remove_peer(&mut self, now: Instant, id: PeerId) {
        let now = self.at(now);
        for id in self.contexts_with(id) {
            self.queue_close(now, id);
            self.drop_peer(id);
        }
        #[cfg(debug_assertions)]
        self.audit();
    }

    /// Ends the endpoint: all datagrams that have not ended complete as [`Status::Flushed`], and
    /// [`Endpoint::poll_transmit`] returns Closes for each peer that has a context. Each remote
    /// endpoint reports [`crate::DownReason::Closed`] at once; the Close shows it which of its
    /// datagrams arrived. After this call sends are refused, and received packets are dropped.
    pub fn close(&mut self, now: Instant) {
        self.at(now);
        self.closed = true;
        for slot in 0..self.peers.slots.len() {
            let shared = &mut self.shared;
            let Some(peer) = self.peers.slots[slot].as_deref_mut() else { continue };
            peer.begin_close(shared);
            if peer.close_left > 0 {
                let id = peer.id;
                self.peers.make_ready(id);
            }
        }
    }

    fn queue_close(&mut self, now: Instant, id: PeerId) {
        let shared = &mut self.shared;
        let Some(peer) = self.peers.peer(id) else { return };
        if self.queued_closes.len() + usize::from(CLOSES) > QUEUED_CLOSES_MAX {
            return;
        }
        let bytes_max = usize::from(shared.node.config.packet_bytes_max);
        let mut buf = TransmitBuf::new(1, bytes_max);
        peer.begin_close(shared);
        while peer.close_left > 0 {
            buf.clear();
            let Some(entropy) = peer.write_close(now, shared, &mut buf) else { return };
            let to = peer.destination(entropy);
            self.queued_closes.push_back(QueuedClose { to, entropy, bytes: buf.bytes.clone() });
        }
    }

    pub(super) fn drop_peer(&mut self, id: PeerId) {
        let Some(mut peer) = self.peers.take(id) else { return };
        let shared = &mut self.shared;
        peer.fail_all(Status::Flushed, None, shared);
        peer.drop_rx(shared);
        self.unlist(&peer);
        if let Some(key) = peer.keys.as_ref().and_then(|keys| keys.public_key) {
            self.by_key.remove(&(key, peer.partner));
        }
        self.epoch_bump_next = self.epoch_bump_next.max(peer.epoch_bump + 1);
        self.free.push(peer.newest_context());
    }

    /// Releases the memory of a context that has been idle for long enough. A peer that the
    /// application named stays, with its number and key.
    pub(super) fn reclaim(&mut self, id: PeerId) {
        let shared = &mut self.shared;
        match self.peers.peer(id) {
            Some(peer) if peer.configured => peer.forget(shared),
            _ => self.drop_peer(id),
        }
    }

    /// Processes a Close of the peer.
    pub(super) fn on_close(
        &mut self,
        now: Instant,
        id: PeerId,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let ack = if body.is_empty() { None } else { Some(AckView::decode(body)?) };
        let shared = &mut self.shared;
        if let Some(peer) = self.peers.peer(id) {
            peer.on_close(now, ack.as_ref(), shared);
        }
        Ok(())
    }

    /// Processes a Close in plain mode. It is not signed, so it must contain data that only the
    /// peer, and observers of its packets, can have.
    pub(super) fn on_plain_close(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        header: &Header,
        greeting: Option<&Greeting>,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let greeting = greeting.ok_or(DropReason::Malformed)?;
        // H15: Close
        let peer = self.peers.at(self.shared.numbers.index(header.dst_context)).filter(|peer| {
            peer.local_context == header.dst_context
                && peer.is_closed_by(greeting)
                && peer.is_at(meta.source.ip())
        });
        let id = peer.map(|peer| peer.id).ok_or(DropReason::UnknownContext)?;
        self.on_close(now, id, body)?;
        self.peers.make_ready(id);
        Ok(())
    }

    /// Processes a challenge, or the answer to a challenge.
    pub(super) fn on_token(
        &mut self,
        id: PeerId,
        kind: Kind,
        token: Token,
    ) -> Result<(), DropReason> {
        if !self.shared.security.is_on() {
            return Err(DropReason::WrongProtection);
        }
        if let Some(peer) = self.peers.peer(id) {
            if kind == Kind::Challenge {
                peer.protected.echo = Some(token);
            } else {
                peer.on_challenge_reply(token);
            }
        }
        Ok(())
    }
}
