//! Resolution of an exhausted PSN window, which is full of lost packets.
//!
//! A datagram keeps the PSN of its first transmission as its identity until it is settled, and the
//! window spans from the oldest identity to the newest packet. If losses fill it, no packet can be
//! sent any more, not even a retransmission. Then there are two steps:
//!
//! 1. The answer to a probe shows which packets the receiver has. If the window is still full, the
//!    rest of it is given up: the floor moves past it. No packet of it can be delivered any more
//!    once the receiver has received this floor.
//! 2. The answer to a probe with that floor contains the receiver's count of bytes, and so shows
//!    whether a datagram was delivered in between. If not, the datagrams are certainly not
//!    delivered and are sent again under new identities. Otherwise it is unknown which were
//!    delivered, and the peer is given up.

use super::{OutProbe, Tx, psn_window};
use crate::config::Config;

impl Tx {
    /// Whether the sender has no PSN left.
    pub(super) fn is_exhausted(&self, config: &Config) -> bool {
        // One word less than the window, so that its two ends never share a bitmap word.
        self.abandoned.is_some() || self.sent.span() + 64 >= psn_window(config)
    }

    /// Processes the answer to a probe, an acknowledgement that counts `received` bytes. Returns
    /// false if the fate of the sent datagrams can never be determined.
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
