//! Probes of peers for which operations wait (H8).
//!
//! The transport notices that a peer has failed while the peer owes it an acknowledgement. An
//! operation may also wait for an answer of the peer's layer: a RECEIPT, a RESULT, an ANSWER,
//! credit, the data of a read, or the rest of a message. If the peer ends after it has acknowledged
//! every datagram, the operation would wait for ever. So while anything waits, the caller calls
//! [`Rdm::probe`] at intervals, which probes each peer for which something has waited since the
//! last call. A probe is a frame without effect, which the peer's transport has to acknowledge.
//!
//! Bound: one probe for each connection at a time. An endpoint for which nothing waits sends none.

use alloc::collections::BTreeSet;

use crate::rdm::peers::connection::ControlKind;
use crate::rdm::state::Rdm;
use crate::rdm::wire::{encode, field};
use crate::slots::Key;

impl Rdm {
    /// Whether anything waits for a peer: an operation, the bytes of a long message, or parts of a
    /// message.
    pub fn awaits_peers(&self) -> bool {
        !(self.ops.is_empty() && self.readings.is_empty() && self.partials.is_empty())
    }

    /// Queues a probe for each peer for which something has waited since the last call, unless the
    /// transport waits for an acknowledgement of this peer anyway. The caller chooses the interval
    /// between two calls.
    pub fn probe(&mut self) {
        let operations = self.ops.iter().map(|(_, op)| op.conn);
        let readings = self.readings.iter();
        let readings = readings.filter_map(|(_, reading)| self.conn_of(reading.peer));
        let partials = self.partials.keys().map(|(index, _)| *index);
        // Operations whose peer is this endpoint have the index of no connection.
        let now: BTreeSet<u32> = operations.chain(readings).chain(partials).collect();
        let before = core::mem::take(&mut self.awaited);
        for index in now.intersection(&before) {
            self.probe_peer(*index);
        }
        self.awaited = now;
    }

    fn probe_peer(&mut self, index: u32) {
        let Some(conn) = self.conn(index) else { return };
        let busy = conn.in_flight > 0 || !conn.control.is_empty();
        let remote = conn.remote;
        if busy || !self.probed.insert(index) {
            return;
        }
        let check = if remote == 0 { 0 } else { field::run_check(remote) };
        self.counters.probes += 1;
        self.queue_control(index, ControlKind::Probe, check, encode::credit(0, 0).freeze());
    }

    /// Removes a control frame that was settled, or that the transport does not accept.
    pub(crate) fn remove_control(&mut self, key: Key) {
        let Some(control) = self.controls.remove(key) else { return };
        if control.kind == ControlKind::Probe {
            self.probed.remove(&control.conn);
        }
    }
}
