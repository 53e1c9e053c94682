//! Two rules about rates from the SRD paper, which are off by default (C17): congestion if the
//! network delivers less than the sender sends, and a limit of the sending rate beside the window.
//!
//! Rates are measured over periods of about one round trip. The bytes that are acknowledged in a
//! period were sent about one period earlier. A period counts only if the window or the rate limit
//! limited the sender: the rate of a sender with little to send is no measure of the network.
//!
//! The rules change no result of the project's scenarios for the better (`docs/perf-notes.md`,
//! 2026-11-23, 2026-11-24 and 2026-11-30). They are here for comparisons in the simulator.

// Rates and times are far below 2^53; conversions are clamped.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]

use core::mem;

use crate::time::Duration;

/// Share of the sending rate below which the rate of acknowledged bytes shows congestion.
const SLOW_SHARE: f64 = 0.85;
/// Rate limit as a multiple of the rate of acknowledged bytes, in periods without congestion.
const HEADROOM: f64 = 1.25;

/// Bytes of a context after an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Bytes that the acknowledgement has settled: acknowledged or found lost.
    pub settled_bytes: u64,
}

/// Period of measurement that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    pub elapsed: Duration,
    pub acked_bytes: u64,
    /// Median queueing delay at the end of the period.
    pub median: Duration,
    /// Whether the window limited the sender in the period.
    pub is_limited: bool,
    /// Lower bound of the rate limit, in bits per second.
    pub least_bps: u64,
}

/// State of the two rules for one context.
#[derive(Debug)]
pub(super) struct RateRules {
    in_flight_bytes: u64,
    /// Bytes sent in the present period.
    sent_bytes: u64,
    /// Sending rate of the previous period in bits per second; zero before the first period ends.
    sent_bps: f64,
    /// Median queueing delay at the end of the previous period.
    median: Duration,
    /// Whether the context has met congestion. The sending rate has no limit until then.
    has_met_congestion: bool,
    /// Rate limit in bits per second; zero: there is no limit yet.
    limit_bps: u64,
}

impl RateRules {
    pub(super) fn new() -> Self {
        Self {
            in_flight_bytes: 0,
            sent_bytes: 0,
            sent_bps: 0.0,
            median: Duration::ZERO,
            has_met_congestion: false,
            limit_bps: 0,
        }
    }

    /// Counts the bytes that were sent since the previous acknowledgement.
    pub(super) fn on_ack(&mut self, flight: Flight) {
        let sent = flight.in_flight_bytes + flight.settled_bytes;
        self.sent_bytes += sent.saturating_sub(self.in_flight_bytes);
        self.in_flight_bytes = flight.in_flight_bytes;
    }

    /// Notes that the window was decreased because of congestion.
    pub(super) fn on_congestion(&mut self) {
        self.has_met_congestion = true;
    }

    /// The limit of the sending rate in bits per second; `None`: there is no limit.
    pub(super) fn limit_bps(&self) -> Option<u64> {
        (self.limit_bps > 0).then_some(self.limit_bps)
    }

    /// Ends a period: sets the rate limit. If the rates show congestion, the result is the share of
    /// the bytes sent in the previous period that was acknowledged in this period.
    pub(super) fn end_period(&mut self, period: &Period) -> Option<f64> {
        // C17: Rates of the paper
        let bps = |bytes: u64| bytes as f64 * 8e9 / period.elapsed.as_nanos().max(1) as f64;
        let acked_bps = bps(period.acked_bytes);
        let sent_bps = bps(mem::take(&mut self.sent_bytes));
        let sent_before_bps = mem::replace(&mut self.sent_bps, sent_bps);
        let has_risen = period.median > mem::replace(&mut self.median, period.median);
        let is_paced = self.limit_bps > 0 && sent_bps * HEADROOM >= self.limit_bps as f64;
        if !period.is_limited && !is_paced {
            return None;
        }
        let is_slow = has_risen && acked_bps < SLOW_SHARE * sent_before_bps;
        self.has_met_congestion |= is_slow;
        if self.has_met_congestion {
            let factor = if is_slow { 1.0 } else { HEADROOM };
            self.limit_bps = ((acked_bps * factor) as u64).max(period.least_bps);
        }
        is_slow.then(|| acked_bps / sent_before_bps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    /// Bytes that a rate of 1 Gb/s carries in a period of [`MS`].
    const GBPS_BYTES: u64 = 125_000;

    /// Sends and acknowledges bytes in a period, and ends it. Returns the result of the rules.
    fn period(rules: &mut RateRules, sent: u64, acked: u64, median_us: u64) -> Option<f64> {
        let in_flight_bytes = rules.in_flight_bytes + sent - acked;
        rules.on_ack(Flight { in_flight_bytes, settled_bytes: acked });
        rules.end_period(&Period {
            elapsed: MS,
            acked_bytes: acked,
            median: Duration::from_micros(median_us),
            is_limited: true,
            least_bps: 50_000_000,
        })
    }

    #[test]
    fn a_rate_below_the_sending_rate_is_congestion_if_the_delay_grows() {
        for (median_us, acked_percent, expected) in
            [(20, 80, Some(0.8)), (10, 80, None), (5, 80, None), (20, 86, None)]
        {
            let mut rules = RateRules::new();
            assert_eq!(period(&mut rules, 2 * GBPS_BYTES, GBPS_BYTES, 10), None);
            assert_eq!(period(&mut rules, GBPS_BYTES, GBPS_BYTES, 10), None);
            let acked = GBPS_BYTES * acked_percent / 100;
            let share = period(&mut rules, GBPS_BYTES, acked, median_us);
            assert_eq!(share, expected, "{median_us} us, {acked_percent} %");
            assert_eq!(rules.limit_bps(), expected.map(|_| 800_000_000));
        }
    }

    #[test]
    fn the_first_period_has_no_rate_before_it() {
        let mut rules = RateRules::new();
        assert_eq!(period(&mut rules, 4 * GBPS_BYTES, 1, 10), None);
        assert_eq!(rules.limit_bps(), None);
    }

    #[test]
    fn the_limit_follows_the_acknowledged_rate_from_the_first_congestion_on() {
        let mut rules = RateRules::new();
        period(&mut rules, GBPS_BYTES, GBPS_BYTES, 0);
        assert_eq!(rules.limit_bps(), None);
        rules.on_congestion();
        period(&mut rules, GBPS_BYTES, GBPS_BYTES, 0);
        assert_eq!(rules.limit_bps(), Some(1_250_000_000));
        period(&mut rules, GBPS_BYTES, 0, 0);
        assert_eq!(rules.limit_bps(), Some(50_000_000), "the lower bound");
    }

    /// A sender at its rate limit has few bytes in flight, so its window does not limit it.
    #[test]
    fn a_sender_at_its_limit_gets_a_higher_one_and_an_idle_one_keeps_its_limit() {
        let mut rules = RateRules::new();
        rules.on_congestion();
        period(&mut rules, GBPS_BYTES, GBPS_BYTES, 0);
        let idle = Period {
            elapsed: MS,
            acked_bytes: GBPS_BYTES / 2,
            median: Duration::ZERO,
            is_limited: false,
            least_bps: 50_000_000,
        };
        assert_eq!(rules.end_period(&idle), None);
        assert_eq!(rules.limit_bps(), Some(1_250_000_000));
        let full = GBPS_BYTES * 5 / 4;
        rules.on_ack(Flight { in_flight_bytes: 0, settled_bytes: full });
        assert_eq!(rules.end_period(&Period { acked_bytes: full, ..idle }), None);
        assert_eq!(rules.limit_bps(), Some(1_562_500_000));
    }
}
