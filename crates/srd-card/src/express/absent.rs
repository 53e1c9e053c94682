//! Common limit of the queues for absent peers. A peer is absent while it has made no offer: it was
//! not reached yet, or does not answer any more.
//!
//! The queue for an absent peer has at most half of the bytes that the queues for all other absent
//! peers leave free. So no queue takes all space, and the sum stays within the limit.
//!
//! Bound: `absent_bytes_max` bytes for all absent peers together, the records of frames included.

use super::peer::Peer;
use crate::queue::scheduler::Aqm;

/// Bytes that wait for absent peers.
#[derive(Debug)]
pub(super) struct Absent {
    bytes_max: usize,
    /// Sum of the peers' `absent_bytes`.
    held_bytes: usize,
}

impl Absent {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, held_bytes: 0 }
    }

    /// Returns the parameters of the queue for a peer, with the limit that applies at present.
    // Q4: Full queue
    #[inline]
    pub(super) fn limit(&self, peer: &Peer, aqm: &Aqm) -> Aqm {
        if peer.offer.is_some() {
            return *aqm;
        }
        let others = self.held_bytes - peer.absent_bytes;
        let free = self.bytes_max.saturating_sub(others);
        Aqm { bytes_max: aqm.bytes_max.min(free / 2), ..*aqm }
    }

    /// Updates the sum after a change of a peer's queue or offer.
    #[inline]
    pub(super) fn count(&mut self, peer: &mut Peer) {
        if peer.offer.is_none() || peer.absent_bytes > 0 {
            self.update(peer);
        }
    }

    #[inline(never)]
    fn update(&mut self, peer: &mut Peer) {
        let bytes = if peer.offer.is_some() { 0 } else { peer.scheduler.cost() };
        self.held_bytes = self.held_bytes - peer.absent_bytes + bytes;
        peer.absent_bytes = bytes;
    }

    /// Subtracts the bytes of a peer that is removed.
    pub(super) fn forget(&mut self, peer: &Peer) {
        self.held_bytes -= peer.absent_bytes;
    }
}
