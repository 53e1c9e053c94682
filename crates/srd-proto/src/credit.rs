//! The receiver's share: when several contexts send to one receiver, it divides a window of
//! `credit_percent` of its own bandwidth-delay product among them, round robin.
//!
//! Each sender's limit is counted from what this receiver has *received*, so a lost packet
//! leaks nothing: the sender repeats it under the same limit. Arrivals free room; room is
//! granted in quanta to the next sender that has more to send. A sender alone has no limit.
//! A sender that stays silent on a grant is set aside until it is heard again.
//!
//! Bound: one entry per context; each arrival grants at most as many quanta as there are
//! senders.

use alloc::collections::VecDeque;

use crate::config::Config;
use crate::ids::PeerId;
use crate::time::{Duration, Instant};

/// Packets per grant.
const QUANTUM_PACKETS: u64 = 4;
/// Least outstanding credit: enough for a few packets on each of a few slow paths.
const BUDGET_PACKETS_MIN: u64 = 8;
/// Round trips after which a silent sender's grant counts for nothing.
const SILENT_ROUND_TRIPS: u64 = 20;
/// How long the number of senders is remembered for those that start afresh.
const SENDERS_MEMORY: Duration = Duration::from_millis(10);

/// What the receiver knows of one sender. Lives in the context, so the table is free.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    /// Datagram bytes received, each datagram once.
    pub received: u64,
    /// Bytes the sender has ever queued, as far as it has said.
    pub queued: u64,
    /// Received plus in flight may reach this.
    pub limit: u64,
    /// Bytes of the limit that count as outstanding now.
    outstanding: u64,
    /// Whether the sender has more to send.
    pub active: bool,
    /// Whether it waits in the ring.
    in_ring: bool,
    heard_at: Instant,
}

/// The receiver's side of the bargain.
#[derive(Debug)]
pub(crate) struct ReceiverShare {
    enabled: bool,
    link_rate_bps: u64,
    percent: u32,
    packet_bytes: u64,
    /// What hosts add to the round trip.
    host_time: Duration,
    active: u32,
    outstanding: u64,
    ring: VecDeque<PeerId>,
    rtt: Duration,
    senders_recent: u32,
    senders_until: Instant,
    /// Grants in order of time, to find the ones that nothing came of.
    granted: VecDeque<(PeerId, Instant)>,
}

/// Access to the shares of other contexts.
pub(crate) trait Shares {
    fn share(&mut self, peer: PeerId) -> Option<&mut Share>;
    /// The peer's limit moved: tell it.
    fn announce(&mut self, peer: PeerId);
}

impl ReceiverShare {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            enabled: config.receiver_share && config.link_rate_bps > 0,
            link_rate_bps: config.link_rate_bps,
            percent: config.credit_percent,
            packet_bytes: config.packet_bytes_max.into(),
            host_time: config.delay_target_min,
            active: 0,
            outstanding: 0,
            ring: VecDeque::new(),
            rtt: Duration::ZERO,
            senders_recent: 0,
            senders_until: Instant::ZERO,
            granted: VecDeque::new(),
        }
    }

    /// Whether limits bind: two or more contexts are sending.
    pub(crate) fn binds(&self) -> bool {
        self.enabled && self.active >= 2
    }

    /// How many contexts are sending, or were within the last 10 ms.
    pub(crate) fn senders(&self, now: Instant) -> u32 {
        if now < self.senders_until { self.senders_recent.max(self.active) } else { self.active }
    }

    /// A sender's base round trip: the largest counts.
    pub(crate) fn hear_rtt(&mut self, ns: u64) {
        self.rtt = self.rtt.max(Duration::from_nanos(ns));
    }

    fn bdp_bytes(&self) -> u64 {
        let transit = self.rtt + self.host_time;
        let bits = u128::from(self.link_rate_bps) * u128::from(transit.as_nanos());
        u64::try_from(bits / 8_000_000_000).unwrap_or(u64::MAX).max(2 * self.packet_bytes)
    }

    fn budget_bytes(&self) -> u64 {
        (self.bdp_bytes().saturating_mul(self.percent.into()) / 100)
            .max(BUDGET_PACKETS_MIN * self.packet_bytes)
    }

    /// What a sender without a grant may have in flight.
    pub(crate) fn unsolicited_bytes(&self, now: Instant) -> u64 {
        let senders = u64::from(self.senders(now).max(1));
        let share = self.bdp_bytes() * 3 / 2 / senders;
        share.min(self.bdp_bytes()).max(self.packet_bytes)
    }

    /// Something arrived from `from` whose share the caller has updated (received, queued).
    pub(crate) fn on_arrival(&mut self, now: Instant, from: PeerId, shares: &mut impl Shares) {
        if !self.enabled {
            return;
        }
        let quantum = QUANTUM_PACKETS * self.packet_bytes;
        let unsolicited = self.unsolicited_bytes(now);
        let Some(share) = shares.share(from) else { return };
        share.heard_at = now;
        let wants = share.queued > share.received;
        if wants != share.active {
            share.active = wants;
            if wants {
                self.active += 1;
                share.limit = share.limit.max(share.received);
            } else {
                self.active -= 1;
                // What it may send of the next message before it hears from us.
                share.limit = share.received + unsolicited;
            }
            if self.active >= self.senders_recent || now >= self.senders_until {
                self.senders_recent = self.active;
                self.senders_until = now + SENDERS_MEMORY;
            }
        }
        self.recount(share);
        if self.active >= 2 && share.active && !share.in_ring && share.limit < share.queued {
            share.in_ring = true;
            self.ring.push_back(from);
        }
        if self.active <= 1 {
            self.release(shares);
        } else {
            self.set_aside_silent(now, shares);
            self.grant(now, quantum, shares);
        }
    }

    /// Limits bind no more: whoever waits for a grant is told so.
    fn release(&mut self, shares: &mut impl Shares) {
        while let Some(peer) = self.ring.pop_front() {
            if let Some(share) = shares.share(peer) {
                share.in_ring = false;
            }
            shares.announce(peer);
        }
        self.granted.clear();
    }

    fn recount(&mut self, share: &mut Share) {
        let granted = share.limit.min(share.queued).saturating_sub(share.received);
        // What is too little for a packet may never be used: if it counted, a few such rests
        // could leave no room to grant anything to anyone.
        let usable = granted >= self.packet_bytes || share.limit >= share.queued;
        let now_out = if share.active && usable { granted } else { 0 };
        self.outstanding = self.outstanding + now_out - share.outstanding;
        share.outstanding = now_out;
    }

    /// Grants quanta round robin while there is room.
    fn grant(&mut self, now: Instant, quantum: u64, shares: &mut impl Shares) {
        let budget = self.budget_bytes();
        for _ in 0..self.ring.len() {
            if self.outstanding + quantum > budget {
                return;
            }
            let Some(next) = self.ring.pop_front() else { return };
            let Some(share) = shares.share(next) else { continue };
            share.in_ring = false;
            if !share.active {
                continue;
            }
            share.limit = (share.limit.max(share.received) + quantum).min(
                share.queued + self.packet_bytes, // never far past what it has
            );
            let more = share.limit < share.queued;
            share.in_ring = more;
            self.recount(share);
            if more {
                self.ring.push_back(next);
            }
            self.granted.push_back((next, now));
            shares.announce(next);
        }
    }

    /// Sets aside the grants of senders that have gone silent: looks at the oldest few.
    fn set_aside_silent(&mut self, now: Instant, shares: &mut impl Shares) {
        let patience = self.rtt.times(SILENT_ROUND_TRIPS).max(Duration::from_micros(100));
        for _ in 0..2 {
            match self.granted.front() {
                Some((_, at)) if now.since(*at) > patience => {}
                _ => return,
            }
            let Some((peer, at)) = self.granted.pop_front() else { return };
            if let Some(share) = shares.share(peer)
                && share.active
                && share.heard_at <= at
            {
                self.forget(share);
            }
        }
    }

    /// A context is gone, or its sender silent: its grant counts no more.
    pub(crate) fn forget(&mut self, share: &mut Share) {
        if share.active {
            self.active -= 1;
        }
        self.outstanding -= share.outstanding;
        share.outstanding = 0;
        share.active = false;
    }
}
