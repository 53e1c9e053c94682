//! The receiver's share: if several contexts send to one receiver, it divides a window of
//! `credit_percent` of its own bandwidth-delay product among them, round robin.
//!
//! Each sender's credit limit is counted from the bytes that this receiver has *received*, so a
//! lost packet loses no credit: the sender retransmits it under the same limit. Arrivals free
//! credit. Credit is granted in quanta to the next sender that has more to send; senders with less
//! than an equal part of the credit come first. A lone sender has no credit limit. A sender that
//! leaves a grant unused is set aside until it uses the grant, or for a time that doubles.
//!
//! The round trip in that product is the largest base round trip of the contexts that are sending.
//! A context counts with the least value that its packets carried during the last five to ten
//! seconds, and only with a measured value. So one late packet, or a context that has ended, does
//! not enlarge the product for longer than these seconds.
//!
//! Bounds: each context has at most one entry in the ring and one in the list of unanswered grants.
//! Both hold at most `2 * peers_max + 16` entries, including those of contexts that have
//! ended. Each arrival grants at most two quanta to each sender.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use crate::ids::PeerId;
use crate::node::{Node, SenderCount};
use crate::time::{Duration, Instant};
use crate::wire::{self, RTT_UNKNOWN};

/// Size of one grant of credit, in packets of full size.
pub(crate) const QUANTUM_PACKETS: u64 = 4;
/// Lower bound of the total credit, in packets of full size: enough for a few packets on each of a
/// few slow paths.
const BUDGET_PACKETS_MIN: u64 = 8;
/// Number of round trips after which a sender that has not used its grant is set aside.
const SILENT_ROUND_TRIPS: u64 = 20;
/// Bounds of two times: the time within which a sender has to use a grant, and the time for which a
/// sender that leaves its grant unused is set aside.
const SILENT_MIN: Duration = Duration::from_micros(100);
const SILENT_MAX: Duration = Duration::from_secs(1);
/// Upper bound of a sender's reported round trip, in nanoseconds. A sender that reports nonsense
/// can enlarge the total credit up to this round trip, while it sends.
const RTT_MAX_NS: u64 = 1_000_000_000;
/// Duration of a generation. For each sender, the least round trip of the present and the previous
/// generation counts, so a value is remembered for five to ten seconds.
const RTT_GENERATION: Duration = Duration::from_secs(5);
/// Number of entries of ended contexts that each list may hold in addition to twice `peers_max`.
const STALE_MIN: usize = 16;
/// Time for which the largest number of senders is remembered, because a sender that pauses may
/// start again.
const SENDERS_MEMORY: Duration = Duration::from_millis(10);

/// The receiver's state about one sender. It is stored in the context with this sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Datagram bytes received from the sender, each datagram counted once.
    pub received: u64,
    /// Bytes that the sender has ever queued, as its packets report.
    pub queued: u64,
    /// Credit limit: upper bound of the sender's received and in-flight bytes.
    pub credit_limit: u64,
    /// Bytes that the sender may still send under its credit limit, as counted in the total of all
    /// senders.
    outstanding: u64,
    /// Time since which the sender has left a granted quantum unused; `FAR_FUTURE`: there is no
    /// such grant.
    unanswered_since: Instant,
    /// Value of `received` at which the sender has used the next quantum of its grant.
    answered_at: u64,
    /// Time until which the sender is set aside and not counted, because it left a grant unused;
    /// zero if it is not set aside.
    aside_until: Instant,
    /// Length of the time for which the sender was set aside last. It doubles each time, until the
    /// sender uses a grant; then it is zero.
    aside: Duration,
    /// Time at which the present generation of `rtt` ends.
    rtt_until: Instant,
    /// Least round trip that the sender reported in the present and in the previous generation,
    /// each as the code of the header.
    rtt: [u8; 2],
    /// Round-trip code under which the sender is counted in [`RoundTrips`]; `RTT_UNKNOWN` if it is
    /// not counted.
    rtt_counted: u8,
    /// Whether the sender has more to send than has arrived, and is not set aside.
    pub active: bool,
    /// Whether the sender has an entry in the ring of senders that wait for credit.
    in_ring: bool,
    /// Whether the sender has an entry in the list of grants.
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
    /// Accounts for a packet that arrived from the sender. The packet alone does not count as use
    /// of a grant: a grant is used when its remainder is too small for a packet, or when the sender
    /// has nothing more to send. After that the sender is expected to use the next quantum.
    fn note_use(&mut self, now: Instant, packet_bytes: u64) {
        // R7: Senders that leave credit unused
        let wants = self.queued > self.received;
        if wants && self.received + packet_bytes <= self.answered_at {
            return;
        }
        let more = wants && self.received + packet_bytes <= self.credit_limit;
        self.unanswered_since = if more { now } else { Instant::FAR_FUTURE };
        self.answered_at = self.quantum_end(packet_bytes);
        (self.aside_until, self.aside) = (Instant::ZERO, Duration::ZERO);
    }

    /// Value of `received` at which the sender has used the next quantum of its grant.
    fn quantum_end(&self, packet_bytes: u64) -> u64 {
        self.credit_limit.min(self.received + QUANTUM_PACKETS * packet_bytes)
    }

    /// Records the sender's base round trip, which the header of a packet carried as a code.
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

    /// The least round trip that the sender reported in the last five to ten seconds, as a code.
    fn rtt_least(&self) -> u8 {
        self.rtt.into_iter().filter(|code| *code != RTT_UNKNOWN).min().unwrap_or(RTT_UNKNOWN)
    }
}

/// The number of active senders with each round-trip code, and the largest of these codes.
#[derive(Debug)]
struct RoundTrips {
    senders: Box<[u32; 256]>,
    /// Largest code under which a sender is counted; `RTT_UNKNOWN` if no sender is counted.
    largest: u8,
}

impl RoundTrips {
    fn new() -> Self {
        Self { senders: Box::new([0; 256]), largest: RTT_UNKNOWN }
    }

    /// Counts a sender under the round-trip code `after` instead of `before`. A sender with the
    /// code `RTT_UNKNOWN` is not counted.
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

/// One shard's state for dividing the receiver's credit among its senders.
#[derive(Debug)]
pub(crate) struct ReceiverShare {
    enabled: bool,
    link_rate_bps: u64,
    percent: u32,
    packet_bytes: u64,
    /// Time that the two hosts add to the round trip: `delay_target_min` of the configuration.
    host_time: Duration,
    /// Round trip that is assumed while no active sender has measured one.
    rtt_initial: Duration,
    rtt_code_max: u8,
    entries_max: usize,
    active: u32,
    outstanding: u64,
    ring: VecDeque<PeerId>,
    round_trips: RoundTrips,
    senders_recent: u32,
    senders_until: Instant,
    /// Reports this shard's number of senders to the other shards of its node.
    count: SenderCount,
    /// Number of senders of the node's other shards, as of the last exchange.
    others: u32,
    /// Contexts with a grant. Each has the time since which its oldest grant was unused when the
    /// entry was added. The entries with the oldest times are at the front.
    granted: VecDeque<(PeerId, Instant)>,
}

/// Access to the receiver's state about each sender.
pub(crate) trait Shares {
    fn share(&mut self, peer: PeerId) -> Option<&mut Share>;
    /// Requests an acknowledgement to the peer, because its credit limit has changed.
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
        // R1: Credit limits for several senders
        self.enabled && self.sending() >= 2
    }

    /// Number of contexts of the node that are sending.
    fn sending(&self) -> u32 {
        self.active.saturating_add(self.others)
    }

    /// Number of contexts of the node that are sending, or were within the last 10 ms.
    pub(crate) fn senders(&self, now: Instant) -> u32 {
        // R9: Number of senders in an Ack
        self.recent(now).saturating_add(self.others)
    }

    fn recent(&self, now: Instant) -> u32 {
        if now < self.senders_until { self.senders_recent.max(self.active) } else { self.active }
    }

    /// Exchanges the numbers of senders with the node's other shards: each shard grants a part of
    /// the whole credit in proportion to its number of senders.
    pub(crate) fn sync(&mut self, now: Instant) {
        if self.enabled {
            self.others = self.count.say(self.recent(now));
        }
    }

    /// Time when this shard reports its smaller number of senders to the other shards, unless a
    /// packet arrives earlier. `None`: the number that was reported is not too large.
    pub(crate) fn sync_at(&self) -> Option<Instant> {
        (self.count.said() > self.active).then_some(self.senders_until)
    }

    /// Largest base round trip that an active sender has reported.
    fn rtt(&self) -> Duration {
        self.round_trips.largest().unwrap_or(self.rtt_initial)
    }

    fn bdp_bytes(&self) -> u64 {
        let transit_ns = (self.rtt() + self.host_time).as_nanos();
        let bytes = match self.link_rate_bps.checked_mul(transit_ns) {
            Some(bits) => bits / 8_000_000_000,
            None => {
                let bits = u128::from(self.link_rate_bps) * u128::from(transit_ns);
                u64::try_from(bits / 8_000_000_000).unwrap_or(u64::MAX)
            }
        };
        bytes.max(2 * self.packet_bytes)
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

    /// Bytes that a sender may have in flight before it receives a grant.
    pub(crate) fn unsolicited_bytes(&self, now: Instant) -> u64 {
        let senders = u64::from(self.senders(now).max(1));
        let share = self.bdp_bytes().saturating_mul(3) / 2 / senders;
        share.min(self.bdp_bytes()).max(self.packet_bytes)
    }

    /// Accounts for a packet of the sender `from` whose header has the round-trip code `rtt_code`.
    /// The caller has already updated `received` and `queued` of the sender's share.
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
                // R6. Bytes of the next message that it may send before our next acknowledgement.
                share.credit_limit = share.received + self.unsolicited_bytes(now);
                self.active -= 1;
            }
            if self.active >= self.senders_recent || now >= self.senders_until {
                self.senders_recent = self.active;
                self.senders_until = now + SENDERS_MEMORY;
            }
        } else if was_aside && share.queued <= share.received {
            share.credit_limit = share.received + self.unsolicited_bytes(now);
        }
        if comes_back {
            // The sender's next datagram may be larger than the rest of its credit.
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

    /// Ends the credit limits of all senders: each sender that waits for a grant gets an
    /// acknowledgement, because its credit limit has changed.
    fn release(&mut self, shares: &mut impl Shares) {
        // R8: End of credit limits
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

    /// Updates the entry of a sender in the count of round-trip codes: it has an entry while it is
    /// active.
    fn count_rtt(&mut self, share: &mut Share) {
        let code = if share.active { share.rtt_least() } else { RTT_UNKNOWN };
        if code != share.rtt_counted {
            self.round_trips.replace(share.rtt_counted, code);
            share.rtt_counted = code;
        }
    }

    fn recount(&mut self, share: &mut Share) {
        let granted = share.credit_limit.min(share.queued).saturating_sub(share.received);
        // A remainder that is too small for a packet may never be used. If it counted, a few of
        // them could use up the budget, and no sender would get a grant.
        let usable = granted >= self.packet_bytes || share.credit_limit >= share.queued;
        let now_out = if share.active && usable { granted } else { 0 };
        self.outstanding = self.outstanding + now_out - share.outstanding;
        share.outstanding = now_out;
    }

    /// Grants quanta round robin while the budget lasts: first to senders that hold less than their
    /// equal part of it, then to the other senders. Otherwise a sender that leaves its grants
    /// unused, because it is slow or on purpose, would in time hold the whole budget.
    fn grant(&mut self, now: Instant, quantum: u64, shares: &mut impl Shares) {
        // R3: Total of credit
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

    /// Grants a quantum to a sender, which enters the ring again if it has more to send.
    fn grant_to(&mut self, now: Instant, next: PeerId, quantum: u64, shares: &mut impl Shares) {
        let Some(share) = shares.share(next) else { return };
        // R3: Total of credit
        share.credit_limit = (share.credit_limit.max(share.received) + quantum).min(
            share.queued + self.packet_bytes, // at most one packet beyond its queued bytes
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

    /// Records since when a sender has had an unused grant, so that the sender is set aside if it
    /// does not use the grant in time.
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

    /// Sets aside senders that have left their grants unused for too long. Each call examines the
    /// two oldest entries of the list.
    fn set_aside_silent(&mut self, now: Instant, shares: &mut impl Shares) {
        // R7: Senders that leave credit unused
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
                // The sender used its grant, and got another, after this entry was added.
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

    /// Checks three totals against the sums over all shares: active senders, outstanding credit,
    /// and the senders of each coded round-trip time.
    ///
    /// # Panics
    /// Panics if a count differs from the sum over the shares.
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

    /// Stops counting a context that has ended or whose sender is set aside, and withdraws its
    /// grant.
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

/// Drops from a list the entries of contexts that have ended, and all but one entry of each other
/// context. `mark` selects the flag of a share that has an entry in this list.
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
