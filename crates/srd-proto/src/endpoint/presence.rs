//! Pauses of this endpoint itself, ICMP errors about peers, and whether there is anything to send.

use core::net::SocketAddr;

use super::Endpoint;
use crate::event::Unreachable;
use crate::ids::PeerId;
use crate::peer::{Plan, same_ip};
use crate::time::{Duration, Instant};

/// Largest number of peers that [`Endpoint::has_nothing_to_send`] examines.
const EXAMINED_MAX: usize = 4;

impl Endpoint {
    /// Whether [`Endpoint::poll_transmit`] would write no packet now. Only that call sets timers,
    /// so a caller may put it off for a short time only. The result is false, too, if more than a
    /// few peers would have to be examined.
    pub fn has_nothing_to_send(&self, now: Instant) -> bool {
        let now = now.max(self.shared.now);
        let is_silent = |id: &PeerId| {
            let peer = self.peers.look(*id);
            peer.is_none_or(|peer| peer.plan(now, &self.shared) == Plan::Nothing)
        };
        self.queued_closes.is_empty()
            && self.replies.is_empty()
            && self.shared.egress.waiting.is_empty()
            && self.peers.ready.len() <= EXAMINED_MAX
            && self.peers.ready.iter().all(is_silent)
    }

    /// Returns the time of a call as this endpoint uses it: a time that runs backwards counts as
    /// standing still. Each call that passes a time uses this function, so it detects pauses of the
    /// endpoint: calls that come much later than a timer was due.
    pub(super) fn at(&mut self, now: Instant) -> Instant {
        // E8: Time that runs backwards
        if now < self.shared.now {
            self.shared.stats.clock_clamped += 1;
            return self.shared.now;
        }
        if now.since(self.shared.now) >= self.shared.node.config.own_pause_min() {
            self.forgive_own_pause(now);
        }
        self.shared.now = now;
        now
    }

    /// Excludes the pause before a late call from the silence of peers. The pause begins when the
    /// earliest timer was due.
    #[cold]
    fn forgive_own_pause(&mut self, now: Instant) {
        let due = self.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        let pause: Duration = now.since(due.max(self.shared.now));
        if pause < self.shared.node.config.own_pause_min() {
            return;
        }
        self.shared.stats.own_pauses += 1;
        for peer in self.peers.slots.iter_mut().flatten() {
            peer.forgive(pause, &self.shared.node.config);
        }
    }

    /// Processes an ICMP error: a packet to `to` was not delivered. Such errors are forgeable, so
    /// they are hints. A peer that answered before and is silent now is given up 700 ms after the
    /// first of several hints, and any authentic packet of the peer cancels them. Hints do not
    /// shorten the time of a peer that has never answered, because it may be about to start.
    pub fn handle_unreachable(&mut self, now: Instant, to: SocketAddr, kind: Unreachable) {
        let now = self.at(now);
        self.shared.stats.unreachable_hints += 1;
        let Some(id) = self.peer_at(to) else { return };
        // An error about an address that the peer has left is not a hint.
        if let Some(peer) = self.peers.peer(id).filter(|p| same_ip(p.address.ip(), to.ip())) {
            peer.on_unreachable(now, kind);
            self.peers.schedule(id, now, &self.shared.node.config);
        }
    }

    /// The newest ICMP error about a peer. `None` if there was no error since the last packet of
    /// the peer.
    pub fn last_unreachable(&self, peer: PeerId) -> Option<Unreachable> {
        self.peers.look(peer).and_then(crate::peer::Peer::unreachable)
    }
}
