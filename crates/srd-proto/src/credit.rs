//! The receiver's share: when several contexts send to one receiver, it divides a window of
//! `credit_percent` of its own bandwidth-delay product among them, round robin.
//!
//! Each sender's credit limit is counted from what this receiver has *received*, so a lost packet
//! loses no credit: the sender repeats it under the same limit. Arrivals free credit; credit is
//! granted in quanta to the next sender that has more to send, and that holds no more than its part
//! of the credit if there is such a one. A sender alone has no credit limit.
//! A sender that leaves a grant unused is set aside until it uses it, or for a time that doubles.
//!
//! The round trip in that product is the largest base round trip of the contexts that send now.
//! A context counts with the least that it has written during the last five to ten seconds, and
//! only with what it has measured, so that one late packet, or a context that has gone, sizes
//! nothing for longer.
//!
//! Bounds: each context waits in the ring once, and stands once in the list of grants that were
//! not answered; both hold at most `2 * peers_max` entries, those of contexts that have ended
//! included. Each arrival grants at most two quanta for each sender.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use crate::ids::PeerId;
use crate::node::{Node, SenderCount};
use crate::time::{Duration, Instant};
use crate::wire::{self, RTT_UNKNOWN};

/// Packets per grant.
pub(crate) const QUANTUM_PACKETS: u64 = 4;
/// Least outstanding credit: enough for a few packets on each of a few slow paths.
const BUDGET_PACKETS_MIN: u64 = 8;
/// Round trips after which a grant that its sender has not used counts for nothing.
const SILENT_ROUND_TRIPS: u64 = 20;
/// A sender is set aside after at least and at most so long.
const SILENT_MIN: Duration = Duration::from_micros(100);
const SILENT_MAX: Duration = Duration::from_secs(1);
/// No round trip counts as a longer one: a sender that writes nonsense can make the share too
/// generous while it sends, but within a bound.
const RTT_MAX_NS: u64 = 1_000_000_000;
/// How long a generation of a sender's least round trip lives.
const RTT_GENERATION: Duration = Duration::from_secs(5);
/// Entries of ended contexts that the lists may hold beside those of `peers_max` live ones.
const STALE_MIN: usize = 16;
/// How long the number of senders is remembered for those that start afresh.
const SENDERS_MEMORY: Duration = Duration::from_millis(10);

/// What the receiver knows of one sender. Lives in the context, so the table is free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Datagram bytes received, each datagram once.
    pub received: u64,
    /// Bytes the sender has ever queued, as its packets report.
    pub queued: u64,
    /// Bytes received plus bytes in flight may reach this credit limit.
    pub credit_limit: u64,
    /// Bytes of the limit that count as outstanding now.
    outstanding: u64,
    /// Since when the sender has left a quantum unused that it was granted, and what will have been
    /// received when it has used it.
    unanswered_since: Instant,
    answered_at: u64,
    /// Until then it does not count, because it left a grant unused, and how long that lasts: twice
    /// as long each time until it uses one.
    aside_until: Instant,
    aside: Duration,
    /// When the present generation of `rtt` ends.
    rtt_until: Instant,
    /// Least round trip, as a code, of this and of the previous generation.
    rtt: [u8; 2],
    /// The code that counts in the endpoint's round trip.
    rtt_counted: u8,
    /// Whether the sender has more to send.
    pub active: bool,
    /// Whether it waits in the ring.
    in_ring: bool,
    /// Whether it stands in the list of grants.
    in_granted: bool,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            received: 0,
            queued: 0,
            credit_limit: 0,
            outstanding: 0,
            unanswered_since: Instant::FAR_FUTURE,
            answered_at: 0,
            aside_until: Instant::ZERO,
            aside: Duration::ZERO,
            rtt_until: Instant::ZERO,
            rtt: [RTT_UNKNOWN; 2],
            rtt_counted: RTT_UNKNOWN,
            active: false,
            in_ring: false,
            in_granted: false,
        }
    }
}

impl Share {
    /// A packet of the sender arrived. That is not enough: a grant is used when what is left
    /// of it is too little for a packet, or when there is nothing more to send. Then the next
    /// quantum is waited for.
    fn note_use(&mut self, now: Instant, packet_bytes: u64) {
        // R7
        let wants = self.queued > self.received;
        if wants && self.received + packet_bytes <= self.answered_at {
            return;
        }
        let more = wants && self.received + packet_bytes <= self.credit_limit;
        self.unanswered_since = if more { now } else { Instant::FAR_FUTURE };
        self.answered_at = self.quantum_end(packet_bytes);
        (self.aside_until, self.aside) = (Instant::ZERO, Duration::ZERO);
    }

    /// What will have been received when the sender has used the next quantum of its grant.
    fn quantum_end(&self, packet_bytes: u64) -> u64 {
        self.credit_limit.min(self.received + QUANTUM_PACKETS * packet_bytes)
    }

    /// Records the sender's base round trip that a packet carried.
    fn note_rtt(&mut self, now: Instant, code: u8) {
        if now >= self.rtt_until {
            let fresh = now < self.rtt_until + RTT_GENERATION;
            self.rtt = [RTT_UNKNOWN, if fresh { self.rtt[0] } else { RTT_UNKNOWN }];
            self.rtt_until = now + RTT_GENERATION;
        }
        if code != RTT_UNKNOWN && (self.rtt[0] == RTT_UNKNOWN || code < self.rtt[0]) {
            self.rtt[0] = code;
        }
    }

    /// The least round trip of the last five to ten seconds, as a code.
    fn rtt_least(&self) -> u8 {
        self.rtt.into_iter().filter(|code| *code != RTT_UNKNOWN).min().unwrap_or(RTT_UNKNOWN)
    }
}

/// The largest of the senders' round trips: how many senders there are for each code.
#[derive(Debug)]
struct RoundTrips {
    senders: Box<[u32; 256]>,
    /// No larger code has a sender; the code itself has, unless it is `RTT_UNKNOWN`.
    largest: u8,
}

impl RoundTrips {
    fn new() -> Self {
        Self { senders: Box::new([0; 256]), largest: RTT_UNKNOWN }
    }

    /// A sender's code changes; `RTT_UNKNOWN` is that of a sender that does not count.
    fn replace(&mut self, before: u8, after: u8) {
        if after != RTT_UNKNOWN {
            self.senders[usize::from(after)] += 1;
            self.largest = self.largest.max(after);
        }
        if before != RTT_UNKNOWN {
            self.senders[usize::from(before)] -= 1;
        }
        while self.largest != RTT_UNKNOWN && self.senders[usize::from(self.largest)] == 0 {
            self.largest -= 1;
        }
    }

    fn largest(&self) -> Option<Duration> {
        (self.largest != RTT_UNKNOWN).then(|| Duration::from_nanos(wire::decode_rtt(self.largest)))
    }
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
    /// The round trip while no sender has measured one.
    rtt_initial: Duration,
    rtt_code_max: u8,
    entries_max: usize,
    active: u32,
    outstanding: u64,
    ring: VecDeque<PeerId>,
    round_trips: RoundTrips,
    senders_recent: u32,
    senders_until: Instant,
    /// What this shard reports to the others of its node, and how many senders those have.
    count: SenderCount,
    others: u32,
    /// Contexts with a grant, each with the time of the oldest that was not answered when it was
    /// put here: what nothing came of is found from the front.
    granted: VecDeque<(PeerId, Instant)>,
}

/// Access to the shares of other contexts.
pub(crate) trait Shares {
    fn share(&mut self, peer: PeerId) -> Option<&mut Share>;
    /// The peer's credit limit moved: an acknowledgement carries it to the peer.
    fn announce(&mut self, peer: PeerId);
}

impl ReceiverShare {
    pub(crate) fn new(node: &Arc<Node>) -> Self {
        let config = &node.config;
        Self {
            enabled: config.receiver_share && config.link_rate_bps > 0,
            link_rate_bps: config.link_rate_bps,
            percent: config.credit_percent,
            packet_bytes: config.packet_bytes_most().into(),
            host_time: config.delay_target_min,
            rtt_initial: config.rtt_initial,
            rtt_code_max: wire::encode_rtt(RTT_MAX_NS),
            entries_max: 2 * config.peers_max as usize + STALE_MIN,
            active: 0,
            outstanding: 0,
            ring: VecDeque::new(),
            round_trips: RoundTrips::new(),
            senders_recent: 0,
            senders_until: Instant::ZERO,
            count: SenderCount::new(node.clone()),
            others: 0,
            granted: VecDeque::new(),
        }
    }

    /// Whether credit limits apply: two or more contexts are sending.
    pub(crate) fn binds(&self) -> bool {
        // R1
        self.enabled && self.sending() >= 2
    }

    /// How many contexts of the node are sending.
    fn sending(&self) -> u32 {
        self.active.saturating_add(self.others)
    }

    /// How many contexts of the node are sending, or were within the last 10 ms.
    pub(crate) fn senders(&self, now: Instant) -> u32 {
        // R9
        self.recent(now).saturating_add(self.others)
    }

    fn recent(&self, now: Instant) -> u32 {
        if now < self.senders_until { self.senders_recent.max(self.active) } else { self.active }
    }

    /// Exchanges the numbers of senders with the node's other shards: each
    /// shard grants as large a part of the whole as it has of the senders.
    pub(crate) fn sync(&mut self, now: Instant) {
        if self.enabled {
            self.others = self.count.say(self.recent(now));
        }
    }

    /// When fewer senders are reported to the other shards, unless something arrives before.
    pub(crate) fn sync_at(&self) -> Option<Instant> {
        (self.count.said() > self.active).then_some(self.senders_until)
    }

    /// The largest base round trip of those that send.
    fn rtt(&self) -> Duration {
        self.round_trips.largest().unwrap_or(self.rtt_initial)
    }

    fn bdp_bytes(&self) -> u64 {
        let transit = self.rtt() + self.host_time;
        let bits = u128::from(self.link_rate_bps) * u128::from(transit.as_nanos());
        u64::try_from(bits / 8_000_000_000).unwrap_or(u64::MAX).max(2 * self.packet_bytes)
    }

    fn budget_bytes(&self) -> u64 {
        let whole = self.bdp_bytes().saturating_mul(self.percent.into()) / 100;
        let part = if self.others == 0 {
            whole
        } else {
            whole.saturating_mul(self.active.into()) / u64::from(self.sending())
        };
        part.max(BUDGET_PACKETS_MIN * self.packet_bytes)
    }

    /// What a sender without a grant may have in flight.
    pub(crate) fn unsolicited_bytes(&self, now: Instant) -> u64 {
        let senders = u64::from(self.senders(now).max(1));
        let share = self.bdp_bytes().saturating_mul(3) / 2 / senders;
        share.min(self.bdp_bytes()).max(self.packet_bytes)
    }

    /// Something arrived from `from`, whose share the caller has updated (received, queued), in
    /// a packet that carried `rtt_code`.
    pub(crate) fn on_arrival(
        &mut self,
        now: Instant,
        from: PeerId,
        rtt_code: u8,
        shares: &mut impl Shares,
    ) {
        if !self.enabled {
            return;
        }
        let quantum = QUANTUM_PACKETS * self.packet_bytes;
        let unsolicited = self.unsolicited_bytes(now);
        let Some(share) = shares.share(from) else { return };
        let was_aside = share.aside_until != Instant::ZERO;
        share.note_use(now, self.packet_bytes);
        share.note_rtt(now, rtt_code.min(self.rtt_code_max));
        let wants = share.queued > share.received && now >= share.aside_until;
        let comes_back = wants && !share.active && share.aside_until != Instant::ZERO;
        if wants != share.active {
            share.active = wants;
            if wants {
                self.active += 1;
                share.credit_limit = share.credit_limit.max(share.received);
            } else {
                self.active -= 1;
                // R6. What it may send of the next message before our next acknowledgement.
                share.credit_limit = share.received + unsolicited;
            }
            if self.active >= self.senders_recent || now >= self.senders_until {
                self.senders_recent = self.active;
                self.senders_until = now + SENDERS_MEMORY;
            }
        } else if was_aside && share.queued <= share.received {
            share.credit_limit = share.received + unsolicited;
        }
        if comes_back {
            // Perhaps its next datagram is larger than what is left to it.
            share.unanswered_since = now;
            share.credit_limit =
                (share.credit_limit + quantum).min(share.queued + self.packet_bytes);
        }
        self.count_rtt(share);
        self.recount(share);
        let waits = self.sending() >= 2 && share.active && share.credit_limit < share.queued;
        let has_grant = share.active && share.unanswered_since != Instant::FAR_FUTURE;
        if waits && !core::mem::replace(&mut share.in_ring, true) {
            if self.ring.len() >= self.entries_max {
                tidy(&mut self.ring, |id| *id, |share| &mut share.in_ring, shares);
            }
            self.ring.push_back(from);
        }
        if self.sending() <= 1 {
            self.release(shares);
        } else {
            if has_grant {
                self.await_use(now, from, shares);
            }
            self.set_aside_silent(now, shares);
            self.grant(now, quantum, shares);
        }
    }

    /// Credit limits do not apply any more: each sender that waits for a grant is notified.
    fn release(&mut self, shares: &mut impl Shares) {
        // R8
        while let Some(peer) = self.ring.pop_front() {
            if let Some(share) = shares.share(peer) {
                share.in_ring = false;
            }
            shares.announce(peer);
        }
        while let Some((peer, _)) = self.granted.pop_front() {
            if let Some(share) = shares.share(peer) {
                share.in_granted = false;
                share.unanswered_since = Instant::FAR_FUTURE;
            }
        }
    }

    /// A share's round trip counts while its sender is active.
    fn count_rtt(&mut self, share: &mut Share) {
        let code = if share.active { share.rtt_least() } else { RTT_UNKNOWN };
        if code != share.rtt_counted {
            self.round_trips.replace(share.rtt_counted, code);
            share.rtt_counted = code;
        }
    }

    fn recount(&mut self, share: &mut Share) {
        let granted = share.credit_limit.min(share.queued).saturating_sub(share.received);
        // What is too little for a packet may never be used: if it counted, a few such rests
        // could leave no room to grant anything to anyone.
        let usable = granted >= self.packet_bytes || share.credit_limit >= share.queued;
        let now_out = if share.active && usable { granted } else { 0 };
        self.outstanding = self.outstanding + now_out - share.outstanding;
        share.outstanding = now_out;
    }

    /// Grants quanta round robin while there is room: first to senders that hold less than their
    /// equal part of it, then to the others. A sender that leaves its grants unused, because it is
    /// slow or because it wants to, would else come to hold all of the room.
    fn grant(&mut self, now: Instant, quantum: u64, shares: &mut impl Shares) {
        // R3
        let budget = self.budget_bytes();
        let part = (budget / u64::from(self.active.max(1))).max(self.packet_bytes);
        for beyond_part in [false, true] {
            for _ in 0..self.ring.len() {
                if self.outstanding + quantum > budget {
                    return;
                }
                let Some(next) = self.ring.pop_front() else { return };
                let Some(share) = shares.share(next) else { continue };
                if share.active && share.outstanding >= part && !beyond_part {
                    self.ring.push_back(next);
                    continue;
                }
                share.in_ring = false;
                if share.active {
                    self.grant_to(now, next, quantum, shares);
                }
            }
        }
    }

    /// Grants a quantum to a sender, which stands in the ring again if it wants more.
    fn grant_to(&mut self, now: Instant, next: PeerId, quantum: u64, shares: &mut impl Shares) {
        let Some(share) = shares.share(next) else { return };
        // R3
        share.credit_limit = (share.credit_limit.max(share.received) + quantum).min(
            share.queued + self.packet_bytes, // never far past what it has
        );
        let more = share.credit_limit < share.queued;
        share.in_ring = more;
        self.recount(share);
        if more {
            self.ring.push_back(next);
        }
        self.await_use(now, next, shares);
        shares.announce(next);
    }

    /// Notes that a sender has a grant, which it should use soon.
    fn await_use(&mut self, now: Instant, id: PeerId, shares: &mut impl Shares) {
        let Some(share) = shares.share(id) else { return };
        if share.unanswered_since == Instant::FAR_FUTURE {
            share.unanswered_since = now;
            share.answered_at = share.quantum_end(self.packet_bytes);
        }
        if !core::mem::replace(&mut share.in_granted, true) {
            if self.granted.len() >= self.entries_max {
                tidy(&mut self.granted, |(id, _)| *id, |share| &mut share.in_granted, shares);
            }
            self.granted.push_back((id, now));
        }
    }

    /// Sets aside the grants of senders that have gone silent: looks at the oldest few.
    fn set_aside_silent(&mut self, now: Instant, shares: &mut impl Shares) {
        // R7
        let patience = self.rtt().times(SILENT_ROUND_TRIPS).clamp(SILENT_MIN, SILENT_MAX);
        for _ in 0..2 {
            match self.granted.front() {
                Some((_, at)) if now.since(*at) > patience => {}
                _ => return,
            }
            let Some((peer, _)) = self.granted.pop_front() else { return };
            let Some(share) = shares.share(peer) else { continue };
            let since = share.unanswered_since;
            if share.active && since != Instant::FAR_FUTURE && now.since(since) <= patience {
                // It used the grant, and was granted something again, since it was put here.
                self.granted.push_back((peer, since));
                continue;
            }
            share.in_granted = false;
            if share.active && since != Instant::FAR_FUTURE {
                share.aside = share.aside.times(2).max(patience).min(SILENT_MAX);
                share.aside_until = now + share.aside;
                self.forget(share);
            }
        }
    }

    /// Looks whether the sums are those of all shares.
    ///
    /// # Panics
    /// If they are not.
    #[cfg(debug_assertions)]
    pub(crate) fn audit<'a>(&self, shares: impl Iterator<Item = &'a Share>) {
        let (mut active, mut outstanding, mut counted) = (0, 0, [0; 256]);
        for share in shares {
            active += u32::from(share.active);
            outstanding += share.outstanding;
            counted[usize::from(share.rtt_counted)] += 1;
            assert!(share.active || share.outstanding == 0 && share.rtt_counted == RTT_UNKNOWN);
        }
        assert_eq!((active, outstanding), (self.active, self.outstanding), "receiver's share");
        counted[usize::from(RTT_UNKNOWN)] = 0;
        assert_eq!(counted, *self.round_trips.senders, "round trips that count");
        let listed = self.ring.len().max(self.granted.len());
        assert!(listed <= self.entries_max, "{listed} entries");
    }

    /// A context is gone, or its sender silent: its grant counts no more.
    pub(crate) fn forget(&mut self, share: &mut Share) {
        if share.active {
            self.active -= 1;
        }
        self.outstanding -= share.outstanding;
        share.outstanding = 0;
        share.active = false;
        self.count_rtt(share);
    }
}

/// Drops the entries of contexts that have ended, and all but one of each other: `mark` is the
/// flag of a share that stands in this list.
#[cold]
fn tidy<T>(
    list: &mut VecDeque<T>,
    id: impl Fn(&T) -> PeerId,
    mark: impl Fn(&mut Share) -> &mut bool,
    shares: &mut impl Shares,
) {
    list.retain(|entry| shares.share(id(entry)).is_some_and(|s| core::mem::take(mark(s))));
    for entry in list {
        if let Some(share) = shares.share(id(entry)) {
            *mark(share) = true;
        }
    }
}

#[cfg(test)]
mod tests;
