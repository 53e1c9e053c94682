//! Resolution of an exhausted PSN window, which is full of lost packets.
//!
//! A datagram keeps the PSN of its first transmission as its identity until it is settled, and the
//! window spans from the oldest identity to the newest packet. If losses fill it, no packet can be
//! sent any more, not even a retransmission. The two steps of the solution are:
//!
//! 1. An answer to a probe shows which packets the receiver has. If the window is still full, the
//!    rest of it is given up: the floor moves past the whole window. After the receiver has
//!    received this floor, it accepts no packet below.
//! 2. An answer to a probe with that floor contains the receiver's count of bytes. If the count has
//!    not grown since the first answer, no datagram was delivered in between, and the datagrams are
//!    sent again, each with a new identity (D4). Otherwise it is unknown which of them were
//!    delivered, and the peer is given up.

use super::{OutProbe, Tx, psn_window};
use crate::config::Config;

impl Tx {
    /// Whether the PSN window is full, so that the sender can send no data.
    pub(super) fn is_exhausted(&self, config: &Config) -> bool {
        // One word less than the window, so that its two ends never share a bitmap word.
        self.abandoned.is_some() || self.sent.span() + 64 >= psn_window(config)
    }

    /// Processes the answer to the probe `probe`. `received` is the receiver's count of bytes in
    /// this answer. Returns false if it can never be determined which datagrams were delivered.
    pub(super) fn resolve_exhaustion(
        &mut self,
        probe: &OutProbe,
        received: u32,
        config: &Config,
    ) -> bool {
        // D14: A window full of losses
        if let Some(before) = self.abandoned.take() {
            if before == received {
                self.queue.forget_identities();
            }
            return before == received;
        }
        let newest = self.sent.newest_sent_at();
        let seen = newest.is_some_and(|at| at <= probe.sent_at);
        if seen && self.sent.in_flight_packets() == 0 && self.is_exhausted(config) {
            self.abandoned = Some(received);
            self.sent.abandon();
            self.known.fill(0);
            // From here on only answers to probes with the new floor count.
            self.probes.clear();
            self.probe_due = true;
        }
        true
    }
}
