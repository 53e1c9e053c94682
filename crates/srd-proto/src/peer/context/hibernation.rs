//! A hibernated context: after it has been idle for a while, it releases the tables of its sender
//! and keeps the state that the protocol needs later. The next datagram wakes it.
//!
//! A node that exchanges a few messages with thousands of other nodes uses few contexts at a time,
//! so most of its memory is that of hibernated contexts. When the context is in use again, it
//! measures anew which paths are fast and how late packets usually are. A context with a bad path,
//! or with anything in progress, does not hibernate.

use alloc::boxed::Box;
use core::net::IpAddr;

use crate::config::Config;
use crate::ids::Psn;
use crate::peer::mtu::Mtu;
use crate::peer::{CreditSeen, Peer, Tx};
use crate::send::cc::Window;
use crate::send::delay::RttEstimator;
use crate::send::sent_packets::SentPackets;
use crate::time::{Duration, Instant};
use crate::wire::{self, RTT_UNKNOWN};

/// State of the sending half that is kept during hibernation.
#[derive(Debug)]
pub(crate) struct Hibernated {
    /// PSN of the next packet: no PSN is ever used twice.
    next: Psn,
    unreliable_sent: u64,
    queued_bytes: u64,
    settled_bytes: u64,
    credit_limit: u64,
    credit_limited: bool,
    credit_seen: Option<CreditSeen>,
    largest_packet: u16,
    /// Maximum size of a packet to this peer that is known to pass, in UDP payload bytes.
    mtu_limit: u16,
    rtt: RttEstimator,
    /// The congestion window; `None` if it had no more information than a new window.
    window: Option<Box<Window>>,
    last_sent_at: Instant,
    retrans_pkts: u64,
}

impl Peer {
    /// Whether the configuration and the state of the context allow it to hibernate.
    pub(in crate::peer) fn may_hibernate(&self, config: &Config) -> bool {
        if config.idle_hibernate == Duration::MAX || config.keepalive != Duration::MAX {
            return false;
        }
        let receives = || self.rx.as_ref().is_some_and(|rx| rx.received.may_shrink());
        self.tx.as_ref().map_or_else(receives, |tx| tx.may_hibernate())
    }

    /// Releases the tables of the sending and the receiving half.
    pub(in crate::peer) fn hibernate(&mut self) {
        if let Some(tx) = self.tx.take() {
            self.hibernated = Some(Box::new(Hibernated::of(*tx)));
        }
        if let Some(rx) = self.rx.as_deref_mut() {
            rx.received.shrink();
            rx.tuples.shrink_to_fit();
            rx.verdicts.shrink_to_fit();
            rx.echoes.shrink_to_fit();
        }
    }

    /// Base round trip, as the code that packets to this peer carry; [`RTT_UNKNOWN`] if it was not
    /// measured.
    pub(in crate::peer) fn rtt_code(&self) -> u8 {
        let hibernated = self.hibernated.as_ref().map(|kept| &kept.rtt);
        let rtt = self.tx.as_ref().map(|tx| &tx.rtt).or(hibernated);
        let reported = rtt.and_then(RttEstimator::reported);
        reported.map_or(RTT_UNKNOWN, |rtt| wire::encode_rtt(rtt.as_nanos()))
    }
}

impl Tx {
    /// Whether the sending half has nothing in progress, unanswered or in doubt.
    fn may_hibernate(&self) -> bool {
        !self.has_work()
            && !self.queue.has_refused()
            && self.sent.span() == 0
            && self.abandoned.is_none()
            && !self.probe_due
            && !self.silence.is_on()
            && self.mtu.probe_at == Instant::FAR_FUTURE
            && self.paths.may_be_forgotten()
    }
}

impl Hibernated {
    fn of(tx: Tx) -> Self {
        Self {
            next: tx.sent.next(),
            unreliable_sent: tx.unreliable_sent,
            queued_bytes: tx.queued_bytes,
            settled_bytes: tx.settled_bytes,
            credit_limit: tx.credit_limit,
            credit_limited: tx.credit_limited,
            credit_seen: tx.credit_seen,
            largest_packet: tx.largest_packet,
            mtu_limit: tx.mtu.limit(),
            rtt: tx.rtt,
            window: tx.window.has_learnt().then(|| Box::new(tx.window)),
            last_sent_at: tx.last_sent_at,
            retrans_pkts: tx.retrans_pkts,
        }
    }

    /// Creates the sending half again, from the state that was kept, with empty tables.
    pub(in crate::peer) fn wake(self, config: &Config, ip: IpAddr, seed: u64, now: Instant) -> Tx {
        // The order of paths differs each time.
        let mut tx = Tx::new(config, ip, seed.wrapping_add(self.next.0), now);
        tx.sent = SentPackets::from(self.next);
        tx.cumulative = self.next.0;
        tx.largest_acked = self.next.0.checked_sub(1);
        tx.unreliable_sent = self.unreliable_sent;
        tx.queued_bytes = self.queued_bytes;
        tx.settled_bytes = self.settled_bytes;
        tx.credit_limit = self.credit_limit;
        tx.credit_limited = self.credit_limited;
        tx.credit_seen = self.credit_seen;
        tx.largest_packet = self.largest_packet;
        tx.mtu = Mtu::known(config, ip, now, self.mtu_limit);
        tx.rtt = self.rtt;
        if let Some(window) = self.window {
            tx.window = *window;
        }
        tx.last_sent_at = self.last_sent_at;
        tx.retrans_pkts = self.retrans_pkts;
        tx.set_pace(now, config);
        tx
    }

    pub(in crate::peer) fn mtu_limit(&self) -> u16 {
        self.mtu_limit
    }

    pub(in crate::peer) fn unreliable_sent(&self) -> u64 {
        self.unreliable_sent
    }

    pub(in crate::peer) fn last_sent_at(&self) -> Instant {
        self.last_sent_at
    }
}

#[cfg(test)]
mod tests {
    use std::println;

    use super::Hibernated;
    use crate::peer::{Peer, Rx, Tx};

    #[test]
    fn a_hibernated_context_is_small() {
        let sizes = [size_of::<Peer>(), size_of::<Hibernated>(), size_of::<Rx>()];
        println!("peer, hibernated, receiving half: {sizes:?}; sending half: {}", size_of::<Tx>());
        assert!(sizes.iter().sum::<usize>() <= 800, "{sizes:?}");
    }
}
