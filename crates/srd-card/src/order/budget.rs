//! Memory of the receiving side, which the peers share: a number of flows, and bytes of waiting
//! frames and their records. The record of each flow counts in bytes as well.

use srd_proto::time::Duration;

use crate::flow::share::Shares;

/// Memory of a flow without waiting frames: its entry in the table, which may be half empty (and
/// is copied when it grows), and its entries in the queue of waits and in the list of the flows of
/// its interface, which may be half empty as well.
pub(crate) const FLOW_BYTES: usize = 448;

/// Limits of the receiving side: longest wait for a missing frame, number of flows, and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) wait: Duration,
    pub(crate) flows_max: usize,
    pub(crate) bytes_max: usize,
}

/// Flows and bytes that are charged to each peer.
#[derive(Debug)]
pub(super) struct Budget {
    flows: Shares,
    bytes: Shares,
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Self {
        Self { flows: Shares::new(limits.flows_max), bytes: Shares::new(limits.bytes_max) }
    }

    /// Sets the number of peers that share the memory. // O5
    pub(super) fn set_peers(&mut self, peers: usize) {
        self.flows.set_peers(peers);
        self.bytes.set_peers(peers);
    }

    /// Charges a peer for one more flow. Returns whether the flow is within the limits.
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

    /// Releases a flow of a peer.
    pub(super) fn close(&mut self, peer: u32) {
        self.flows.give_back(peer, 1);
        self.bytes.give_back(peer, FLOW_BYTES);
    }

    /// Charges a peer for the buffers and records of one frame or chunk. A peer without frames that
    /// wait may take a frame or chunk of any size that the total limit permits. Returns whether the
    /// bytes are within the limits.
    pub(super) fn take(&mut self, peer: u32, bytes: usize) -> bool {
        self.bytes.take_beside(peer, bytes, self.flows.held(peer) * FLOW_BYTES)
    }

    /// Releases bytes of a peer.
    pub(super) fn give_back(&mut self, peer: u32, bytes: usize) {
        self.bytes.give_back(peer, bytes);
    }

    /// Returns the peer that has to give up a flow for a new flow of `peer`: `peer` itself, if it
    /// has used up its part of the exhausted limit, or otherwise the peer that holds most.
    pub(super) fn gives_way(&self, peer: u32) -> Option<u32> {
        let full = if self.flows.has_room(peer, 1, 0) { &self.bytes } else { &self.flows };
        if full.is_beyond(peer) { Some(peer) } else { full.largest() }
    }

    /// Returns the larger of two shares in percent: the used share of the limit of flows, and of
    /// the limit of bytes.
    pub(super) fn utilization(&self) -> u64 {
        self.flows.utilization().max(self.bytes.utilization())
    }

    /// Largest number of replaced flows that are recorded for each peer.
    pub(super) fn replaced_max(&self) -> usize {
        self.flows.equal_part()
    }

    /// Bytes of all waiting frames.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes.total() - self.flows.total() * FLOW_BYTES
    }
}
