//! The memory of the receiving side: flows, and bytes of all that waits, shared by the peers. The
//! record of a flow costs bytes, too, whether anything of it waits or not.

use srd_proto::time::Duration;

use crate::flow::share::Shares;

/// Memory of one flow of which nothing waits: its entry in the table, which may be half empty
/// (and is copied when it grows), and its places in two queues, likewise.
pub(crate) const FLOW_BYTES: usize = 320;

/// Limits of the receiving side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) wait: Duration,
    pub(crate) flows_max: usize,
    pub(crate) bytes_max: usize,
}

/// The flows and bytes that each peer holds.
#[derive(Debug)]
pub(super) struct Budget {
    flows: Shares,
    bytes: Shares,
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Self {
        Self { flows: Shares::new(limits.flows_max), bytes: Shares::new(limits.bytes_max) }
    }

    /// So many peers share it from now on. // O5
    pub(super) fn set_peers(&mut self, peers: usize) {
        self.flows.set_peers(peers);
        self.bytes.set_peers(peers);
    }

    /// One more flow of a peer. Returns whether there is room for it.
    pub(super) fn open(&mut self, peer: u32) -> bool {
        if !self.flows.take(peer, 1) {
            return false;
        }
        let room = self.bytes.take(peer, FLOW_BYTES);
        if !room {
            self.flows.give_back(peer, 1);
        }
        room
    }

    /// A flow of a peer is forgotten.
    pub(super) fn close(&mut self, peer: u32) {
        self.flows.give_back(peer, 1);
        self.bytes.give_back(peer, FLOW_BYTES);
    }

    /// Takes bytes for a peer: buffers and records of one thing. A peer of which nothing waits may
    /// take one thing of any size. Returns whether it may have them.
    pub(super) fn take(&mut self, peer: u32, bytes: usize) -> bool {
        self.bytes.take_beside(peer, bytes, self.flows.held(peer) * FLOW_BYTES)
    }

    /// Gives back what a peer took.
    pub(super) fn give_back(&mut self, peer: u32, bytes: usize) {
        self.bytes.give_back(peer, bytes);
    }

    /// The peer that has to give up a flow for a new one of `peer`: itself, if it has used up its
    /// part of the limit that is reached, or the one that holds most.
    pub(super) fn gives_way(&self, peer: u32) -> Option<u32> {
        let full = if self.flows.has_room(peer, 1, 0) { &self.bytes } else { &self.flows };
        if full.is_beyond(peer) { Some(peer) } else { full.largest() }
    }

    /// The larger share of a limit that is in use, in percent.
    pub(super) fn utilization(&self) -> u64 {
        self.flows.utilization().max(self.bytes.utilization())
    }

    /// Bytes of everything that waits.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes.total() - self.flows.total() * FLOW_BYTES
    }
}
