//! The law by which the congestion window changes. `R` is the base round trip, `B` the
//! bandwidth-delay product, `T` the target queueing delay, and `d` the median queueing delay. In
//! each `R` the window changes as follows:
//!
//! * `d < T`: grows by `GROWTH * B * (1 - d / T)`;
//! * `d >= T`: times `max(1 - 0.4 (d - T) / d, 1/2)`, at most once in `R + d`, because the effect
//!   of the last decrease is visible only then;
//! * always: grows by `FAIR * B`, which moves unequal windows towards each other;
//! * loss of most of the sent bytes: the window becomes the bytes that arrived (quick adaptation).
//!
//! While a receiver's credit limit applies, the delay is mostly the receiver's own queue. Therefore
//! the target is wider, and no decrease goes below a quarter of B or below a grant: a grant that
//! cannot be used is lost to another sender.

// Windows are far below 2^53 bytes; conversions are clamped.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]

use alloc::boxed::Box;

use super::rate::Rate;
use super::rate_rules::{Flight, Period, RateRules};
use crate::config::Config;
use crate::send::credit::QUANTUM_PACKETS;
use crate::time::{Duration, Instant};

/// The first window, in bandwidth-delay products. A sprayed packet that meets the longest queue,
/// and its acknowledgement, take about that many base round trips.
const INITIAL: f64 = 2.25;
/// Growth of the window per round trip with empty queues, as a share of the bandwidth-delay
/// product.
const GROWTH: f64 = 0.08;
/// Unconditional growth of the window per round trip, as a share of the bandwidth-delay product.
const FAIR: f64 = 0.01;
/// Factor of the decrease: one decrease removes this part of the window, times `(d - T) / d`.
const DECREASE: f64 = 0.4;
/// Lower bound of the factor by which one decrease multiplies the window.
const DECREASE_FLOOR: f64 = 0.5;
/// The target queueing delay is at least the time of this number of packets of full size at the
/// known rate. On slow links a packet that waits for a few other packets has met no congestion.
const TARGET_PACKETS: u64 = 16;
/// Lower bound, in packets of full size, of a target that was reduced because a queue is short
/// (C16). Some links lose packets at random; with a smaller bound, the packets in flight would not
/// fill such a link (`docs/perf-notes.md`).
const HELD_PACKETS: u64 = 6;
/// The reduced target (C16) as a share of the delay at which a queue was found to be full.
const HELD_SHARE: f64 = 0.5;
/// A delay at which a queue was found to be full is multiplied by this factor in each period
/// without a loss (C16).
const HELD_GROWTH: f64 = 1.1;
/// The maximum of the window is at least this number of packets of full size: [`TARGET_PACKETS`]
/// packets that wait, and the packets that are being sent on each of eight slow paths.
const MAX_PACKETS: f64 = 48.0;
/// Factor by which the target queueing delay is larger while a credit limit applies.
const CREDIT_TARGET: u64 = 4;
/// The rate limit (C17) is at least this part of a known link rate.
const RATE_PART: u64 = 64;

/// Input of the controller from one acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckSignal {
    pub now: Instant,
    pub acked_bytes: u64,
    pub lost_bytes: u64,
    pub marked: bool,
    pub median: Duration,
    pub rtt_base: Duration,
    pub in_flight_bytes: u64,
    pub credit_limited: bool,
}

/// The window controller of a context.
#[derive(Debug)]
pub(crate) struct Window {
    bytes: f64,
    bytes_min: f64,
    bdp: f64,
    link_rate_bps: u64,
    target_percent: u32,
    target_min: Duration,
    max_percent: u32,
    made_at: Instant,
    decreased_at: Instant,
    /// Start of the period over which quick adaptation and the delivery rate are measured.
    period_start: Instant,
    period_acked: u64,
    period_lost: u64,
    /// Bytes lost in the previous period.
    lost_before: u64,
    /// Whether the sender used at least half of its window at any time in the period.
    period_limited: bool,
    rate_bps: u64,
    rate: Rate,
    rtt: Duration,
    /// Time that [`TARGET_PACKETS`] packets of full size take at the known rate; zero until a rate
    /// is known.
    target_packets: Duration,
    /// Least queueing delay, in nanoseconds, at which a short queue of a slow link was found to be
    /// full (C16). Infinite until a loss shows such a queue.
    full_at_ns: f64,
    /// Half of the window before a timeout, which the next acknowledgement restores; zero at all
    /// other times.
    restore: f64,
    /// A receiver that has lifted its credit limit still has a queue for some time. Until this
    /// time, measured delays may be caused by this queue (C13).
    limited_until: Instant,
    /// The rules about rates (C17), if the configuration has them.
    rate_rules: Option<Box<RateRules>>,
}

impl Window {
    pub(crate) fn new(config: &Config, now: Instant) -> Self {
        let mut window = Self {
            bytes: 0.0,
            bytes_min: f64::from(config.packet_bytes_max),
            bdp: 0.0,
            link_rate_bps: config.link_rate_bps,
            target_percent: config.delay_target_percent,
            target_min: config.delay_target_min,
            max_percent: config.window_max_percent,
            made_at: now,
            decreased_at: now,
            period_start: now,
            period_acked: 0,
            period_lost: 0,
            lost_before: 0,
            period_limited: false,
            rate_bps: 0,
            rate: Rate::new(now),
            rtt: config.rtt_initial,
            target_packets: Duration::ZERO,
            full_at_ns: f64::INFINITY,
            restore: 0.0,
            limited_until: Instant::ZERO,
            rate_rules: config.rate_rules.then(|| Box::new(RateRules::new())),
        };
        window.update_bdp(config.rtt_initial);
        // C7: Bounds of the window
        window.bytes = if config.window_initial_bytes > 0 {
            config.window_initial_bytes as f64
        } else {
            window.bdp * INITIAL
        };
        window.bytes = window.bytes.max(window.bytes_min);
        if window.link_rate_bps == 0 {
            window.bdp = window.bytes;
        }
        window
    }

    /// The window in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// The bandwidth-delay product in bytes, as far as it is known.
    pub(crate) fn bdp_bytes(&self) -> u64 {
        self.bdp as u64
    }

    /// Delivery rate of the last complete period, in bits per second.
    pub(crate) fn delivery_rate_bps(&self) -> u64 {
        self.rate_bps
    }

    /// Whether the controller has information that a new controller would not have: the rate of the
    /// network, or that the network was congested.
    pub(crate) fn has_learnt(&self) -> bool {
        self.rate.bps() > 0 || self.restore > 0.0 || self.decreased_at > self.made_at
    }

    /// The target queueing delay.
    pub(crate) fn target(&self) -> Duration {
        // C5: Delay target
        self.target_share().max(self.target_least())
    }

    /// Lower bound of the target, for the host's jitter and for slow links.
    fn target_least(&self) -> Duration {
        self.target_min.max(self.target_packets)
    }

    /// The target without its lower bound: `delay_target_percent` of the base round trip.
    fn target_share(&self) -> Duration {
        self.rtt.times(self.target_percent.into()).over(100)
    }

    /// Queueing delay that does not count as congestion yet. It is longer while a credit limit
    /// applies, because the delay is then mostly the receiver's own queue.
    pub(crate) fn allowed(&self, credit_limited: bool) -> Duration {
        // C13: Target while a credit limit applies
        let target = self.target();
        if credit_limited { target.times(CREDIT_TARGET) } else { target }
    }

    /// Pacing rate: a quarter more than the window per round trip, so that the window limits the
    /// sender, not the pacer.
    pub(crate) fn pacing_rate_bps(&self, rtt_smoothed: Duration) -> u64 {
        // C12: Pacing
        let rtt = rtt_smoothed.max(Duration::from_nanos(1000)).as_nanos() as f64;
        let rate = (self.bytes * 1.25 * 8e9 / rtt) as u64;
        let rate = if self.link_rate_bps > 0 { rate.min(self.link_rate_bps * 2) } else { rate };
        // C17: Rates of the paper
        let limit = self.rate_rules.as_ref().and_then(|rules| rules.limit_bps());
        limit.map_or(rate, |limit| rate.min(limit))
    }

    fn update_bdp(&mut self, rtt: Duration) {
        self.rtt = rtt;
        // C6: Bandwidth-delay product
        let known = self.link_rate_bps > 0;
        let rate = if known { self.link_rate_bps } else { self.rate.bps() };
        let packets = TARGET_PACKETS * 8_000_000_000 * self.bytes_min as u64;
        if let Some(packets_ns) = packets.checked_div(rate) {
            self.target_packets = Duration::from_nanos(packets_ns);
            // The time that the host needs in addition to the wire, its jitter, counts as transit.
            let bdp = rate as f64 * (rtt + self.target_min).as_nanos() as f64 / 8e9;
            self.bdp = bdp.max(2.0 * self.bytes_min);
        }
    }

    /// Updates the window after an acknowledgement.
    pub(crate) fn on_ack(&mut self, s: &AckSignal) {
        let s = &self.with_credit_memory(s);
        self.update_bdp(s.rtt_base);
        self.period_acked += s.acked_bytes;
        self.period_lost += s.lost_bytes;
        if let Some(rules) = &mut self.rate_rules {
            let settled_bytes = s.acked_bytes + s.lost_bytes;
            rules.on_ack(Flight { in_flight_bytes: s.in_flight_bytes, settled_bytes });
        }
        let delay = s.median.as_nanos() as f64;
        let target = self.held(s, self.allowed(s.credit_limited).as_nanos() as f64);
        // A mark shows that a queue is long. If most paths are late, the queue is that of this
        // context, and this suffices without marks (C14).
        let congested = delay >= target || s.marked && delay * 2.0 >= target;
        if s.acked_bytes > 0 && self.restore > 0.0 {
            self.bytes = self.bytes.max(self.restore);
            self.restore = 0.0;
        }
        // C8. The window grows only while the window, and not the application, limits the sender.
        let used = (s.in_flight_bytes + s.acked_bytes) as f64;
        let limited = used * 1.25 >= self.bytes || used + self.bytes_min > self.bytes;
        self.period_limited |= used * 2.0 >= self.bytes;
        let share = s.acked_bytes as f64 / self.bytes;
        if !congested && limited {
            // The bytes that a slow link holds at the target are many B.
            let slow = self.target_least() > self.rtt;
            let gain = if self.link_rate_bps == 0 || slow { 4.0 * GROWTH } else { GROWTH };
            self.bytes += gain * self.bdp * (1.0 - delay / target) * share;
        }
        if limited {
            self.bytes += FAIR * self.bdp * share;
        }
        // C9: Decrease
        if congested && self.may_decrease(s) {
            // If a packet was marked, half of the target suffices for a decrease.
            let over = if delay >= target { target } else { target / 2.0 };
            self.decrease(s, 1.0 - DECREASE * (delay - over) / delay);
        }
        self.end_period(s, delay, target);
        self.clamp();
    }

    /// Whether the last decrease has had its effect.
    fn may_decrease(&self, s: &AckSignal) -> bool {
        s.now.since(self.decreased_at) >= s.rtt_base + s.median
    }

    /// Multiplies the window by a factor, which counts as at least [`DECREASE_FLOOR`].
    fn decrease(&mut self, s: &AckSignal, factor: f64) {
        self.decreased_at = s.now;
        // C13: Target while a credit limit applies
        let grant = QUANTUM_PACKETS as f64 * self.bytes_min;
        let floor = if s.credit_limited { self.bytes.min(grant.max(self.bdp / 4.0)) } else { 0.0 };
        self.bytes = (self.bytes * factor.max(DECREASE_FLOOR)).max(floor);
        if let Some(rules) = &mut self.rate_rules {
            rules.on_congestion();
        }
    }

    /// Treats the signal of a sender with a recently lifted credit limit like the signal of a
    /// sender with a limit: the receiver's own queue still caused the delays of the last round
    /// trips.
    fn with_credit_memory(&mut self, s: &AckSignal) -> AckSignal {
        // C13: Target while a credit limit applies
        if s.credit_limited {
            self.limited_until = s.now + (s.rtt_base + s.median).times(2);
        }
        AckSignal { credit_limited: s.credit_limited || s.now < self.limited_until, ..*s }
    }

    /// The target, reduced if the queue of a slow link cannot hold the packets that wait at the
    /// target (C16). If several packets are lost while many wait, the queue was full, and a window
    /// that grows until then would lose packets in each round trip. A single loss is no evidence,
    /// because links lose packets at random.
    fn held(&mut self, s: &AckSignal, target: f64) -> f64 {
        // C16. If the sixteen packets do not determine the target, the queues of the fabric can
        // hold it.
        let share = self.target_share().max(self.target_min);
        if self.target_packets <= share {
            return target;
        }
        let packets = self.target_packets.times(HELD_PACKETS).over(TARGET_PACKETS);
        let least = packets.max(share).as_nanos() as f64;
        let delay = s.median.as_nanos() as f64;
        let several = (self.period_lost + self.lost_before) as f64 > self.bytes_min;
        if s.lost_bytes > 0 && several && delay > least {
            self.full_at_ns = self.full_at_ns.min(delay);
        }
        target.min((self.full_at_ns * HELD_SHARE).max(least))
    }

    /// Ends the period if it has lasted for a base round trip plus the target: updates the delivery
    /// rate, and applies quick adaptation (C10).
    fn end_period(&mut self, s: &AckSignal, delay: f64, target: f64) {
        let elapsed = s.now.since(self.period_start);
        if elapsed < s.rtt_base + self.target() {
            return;
        }
        self.rate_bps = (self.period_acked as f64 * 8e9 / elapsed.as_nanos() as f64) as u64;
        if self.period_limited {
            self.rate.on_period(s.now, self.period_acked, elapsed);
        }
        self.apply_rate_rules(s, elapsed);
        self.period_limited = false;
        // C10: Collapse to the acknowledged bytes
        let swamped = self.period_lost > self.period_acked || delay > 4.0 * target;
        if swamped && !s.credit_limited && (self.period_acked as f64) < self.bdp / 4.0 {
            self.bytes = self.bytes.min(self.period_acked as f64);
        }
        if self.period_lost == 0 {
            self.full_at_ns *= HELD_GROWTH;
        }
        self.period_start = s.now;
        self.period_acked = 0;
        self.lost_before = core::mem::take(&mut self.period_lost);
    }

    /// Applies the rules about rates to a period that has ended, if the configuration has them.
    fn apply_rate_rules(&mut self, s: &AckSignal, elapsed: Duration) {
        let Some(rules) = &mut self.rate_rules else { return };
        // C17: Rates of the paper
        let packet_bps = self.bytes_min * 8e9 / s.rtt_base.as_nanos().max(1000) as f64;
        let share = rules.end_period(&Period {
            elapsed,
            acked_bytes: self.period_acked,
            median: s.median,
            is_limited: self.period_limited,
            least_bps: (packet_bps as u64).max(self.link_rate_bps / RATE_PART),
        });
        if let Some(share) = share
            && self.may_decrease(s)
        {
            self.decrease(s, share);
        }
    }

    /// Reduces the window to one packet after a retransmission timeout. The first acknowledgement
    /// restores half of the former window.
    pub(crate) fn on_timeout(&mut self) {
        // C11: Window after a timeout
        self.restore = self.restore.max(self.bytes / 2.0);
        self.bytes = self.bytes_min;
    }

    /// Keeps the window between one packet and a maximum. The maximum is a multiple of a sum: the
    /// bandwidth-delay product plus the bytes that may wait in queues.
    fn clamp(&mut self) {
        // C7: Bounds of the window
        let waits = if self.link_rate_bps > 0 { 0.0 } else { self.waiting_bytes() };
        let share = f64::from(self.max_percent) / 100.0;
        let max = ((self.bdp + waits) * share).max(MAX_PACKETS * self.bytes_min);
        self.bytes = self.bytes.clamp(self.bytes_min, max);
    }

    /// Bytes that wait in queues at the target delay. If the rate is measured and not configured, a
    /// maximum without these bytes could limit the rate from which it is derived.
    fn waiting_bytes(&self) -> f64 {
        self.rate.bps() as f64 * self.target().as_nanos() as f64 / 8e9
    }
}

#[cfg(test)]
mod tests;
