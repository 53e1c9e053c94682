//! When the PSN window is full of packets that were all lost.
//!
//! A datagram keeps the PSN of its first sending as its identity until it is settled, and the
//! window spans from the oldest identity to the newest packet. Where losses fill it, nothing
//! can be sent any more, retransmissions included. Then, in two steps:
//!
//! 1. The answer to a probe shows what the receiver has. If the window is still full, the rest
//!    of it is given up: the floor moves past it, so that no packet of it can be delivered any
//!    more once the receiver knows the floor.
//! 2. The answer to a probe with that floor shows, by the receiver's count of bytes, whether
//!    anything was delivered in between. If nothing was, the datagrams are certainly not
//!    delivered and travel on under new identities. Otherwise it is not known which were: the
//!    peer is given up.

use super::{OutProbe, Tx, psn_window};
use crate::config::Config;

impl Tx {
    /// Whether there is no PSN left to send with.
    pub(super) fn is_exhausted(&self, config: &Config) -> bool {
        // One word less than the window, so that its two ends never share a bitmap word.
        self.abandoned.is_some() || self.sent.span() + 64 >= psn_window(config)
    }

    /// A probe was answered by an acknowledgement that counts `received` bytes. Returns false
    /// if the fate of what was sent can never be known.
    pub(super) fn resolve_exhaustion(
        &mut self,
        probe: &OutProbe,
        received: u32,
        config: &Config,
    ) -> bool {
        // D14
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
            // Only answers to probes with the new floor count from here on.
            self.probes.clear();
            self.probe_due = true;
        }
        true
    }
}
