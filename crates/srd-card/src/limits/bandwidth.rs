//! The bandwidth of one direction of an instance: a peak rate, and credits above a baseline.
//!
//! Source: Amazon EC2 User Guide, *Amazon EC2 instance network bandwidth*. The rate of accrual and
//! the size of the bucket are unpublished; according to the guide, a burst lasts 5 to 60 minutes.

use alloc::vec::Vec;

use srd_proto::time::{Duration, Instant};

use crate::limits::bucket::{Bucket, TooLong};
use crate::store::{Reader, Stored, StoredError};

/// Bandwidth settings of one direction of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rates {
    /// Rate that is available without limit in time, bits per second.
    pub baseline_bps: u64,
    /// Rate while credits are left, bits per second.
    pub peak_bps: u64,
    /// T: time for which a full bucket of credits sustains the peak rate.
    pub burst: Duration,
    /// Largest burst above the peak rate, as the time that it takes at the peak rate.
    pub tolerance: Duration,
}

impl Rates {
    /// Capacity for credits, in bits: (peak - baseline) x T (L2).
    pub fn credits_bits_max(&self) -> u64 {
        bits_in(self.peak_bps.saturating_sub(self.baseline_bps), self.burst)
    }
}

/// Bits that a rate carries in a time, rounded down.
pub(crate) fn bits_in(rate_bps: u64, time: Duration) -> u64 {
    let bits = u128::from(rate_bps) * u128::from(time.as_nanos()) / 1_000_000_000;
    u64::try_from(bits).unwrap_or(u64::MAX)
}

/// Bandwidth of one direction of an instance. Each direction has its own (L2).
#[derive(Clone, Copy, Debug)]
pub struct Bandwidth {
    peak: Bucket,
    /// Earns the baseline rate and pays for every bit; absent if the peak is the baseline.
    credits: Option<Bucket>,
}

impl Bandwidth {
    /// Creates the bandwidth of one direction with all credits, as at launch (L2).
    pub fn new(rates: &Rates, now: Instant) -> Self {
        let depth = bits_in(rates.peak_bps, rates.tolerance);
        let bursts = rates.peak_bps > rates.baseline_bps;
        let credits = rates.credits_bits_max();
        Self {
            peak: Bucket::new(rates.peak_bps, depth, now),
            credits: bursts.then(|| Bucket::new(rates.baseline_bps, credits, now)),
        }
    }

    /// Whether this number of bits passes without a wait. If so, [`Bandwidth::pay`] does all that
    /// `take` would do.
    #[inline]
    pub(super) fn has(&mut self, now: Instant, bits: u64) -> bool {
        self.peak.has(now, bits)
            && self.credits.as_mut().is_none_or(|credits| credits.has(now, bits))
    }

    /// Takes bits from both buckets (peak rate and credits), which have them.
    #[inline]
    pub(super) fn pay(&mut self, bits: u64) {
        self.peak.pay(bits);
        self.credits.iter_mut().for_each(|credits| credits.pay(bits));
    }

    /// Takes `bits`, and returns the time that the packet waits.
    ///
    /// # Errors
    /// [`TooLong`] if the wait would exceed `wait_max`; nothing is taken then.
    pub fn take(
        &mut self,
        now: Instant,
        bits: u64,
        wait_max: Duration,
    ) -> Result<Duration, TooLong> {
        let Some(credits) = &mut self.credits else {
            return self.peak.take(now, bits, wait_max);
        };
        if !self.peak.admits(now, bits, wait_max) || !credits.admits(now, bits, wait_max) {
            return Err(TooLong);
        }
        let peak = self.peak.take(now, bits, wait_max)?;
        Ok(peak.max(credits.take(now, bits, wait_max)?))
    }

    /// Sets the time by which the caller is late, as [`Bucket::set_late`] does.
    pub(super) fn set_late(&mut self, late: Duration) {
        self.peak.set_late(late);
        self.credits.iter_mut().for_each(|credits| credits.set_late(late));
    }

    /// Returns the credits that are left, in bits; zero for a direction without bursts.
    pub fn credits_bits(&mut self, now: Instant) -> u64 {
        self.credits.as_mut().map_or(0, |credits| credits.tokens(now))
    }

    /// Stops the instance: neither bucket earns tokens until [`Bandwidth::start`] (L3).
    pub fn stop(&mut self, now: Instant) {
        self.peak.stop(now);
        self.credits.iter_mut().for_each(|credits| credits.stop(now));
    }

    /// Starts the instance with the credits that it had when it stopped (L3).
    pub fn start(&mut self, now: Instant) {
        self.peak.start(now);
        self.credits.iter_mut().for_each(|credits| credits.start(now));
    }
}

impl Bandwidth {
    /// Writes the levels of the buckets for peak rate and credits.
    pub(super) fn export(&self, out: &mut Vec<u8>) {
        self.peak.export(out);
        self.credits.is_some().write(out);
        self.credits.iter().for_each(|credits| credits.export(out));
    }

    /// Reads the levels that another card has written for this direction. If this direction has no
    /// bucket of credits, their level is ignored.
    pub(super) fn import(&mut self, from: &mut Reader<'_>) -> Result<(), StoredError> {
        self.peak.import(from)?;
        if bool::read(from)? {
            let mut none = self.peak;
            self.credits.as_mut().unwrap_or(&mut none).import(from)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c7i_large(burst: Duration) -> Rates {
        let tolerance = Duration::from_millis(1);
        Rates { baseline_bps: 781_000_000, peak_bps: 12_500_000_000, burst, tolerance }
    }

    #[test]
    fn capacity_is_burst_above_baseline_times_t() {
        let rates = c7i_large(Duration::from_secs(300));
        assert_eq!(rates.credits_bits_max(), (12_500_000_000 - 781_000_000) * 300);
    }

    #[test]
    fn without_credits_a_packet_waits_for_the_baseline() {
        let rates = c7i_large(Duration::ZERO);
        let mut out = Bandwidth::new(&rates, Instant::ZERO);
        let wait = out.take(Instant::ZERO, 781_000, Duration::from_millis(5));
        assert_eq!(wait, Ok(Duration::from_millis(1)));
    }

    #[test]
    fn a_stop_neither_earns_nor_loses_credits() {
        let rates = c7i_large(Duration::from_secs(300));
        let mut out = Bandwidth::new(&rates, Instant::ZERO);
        let hour = Duration::from_secs(3600);
        let (bits, at) = (1_000_000_000, Instant::ZERO + hour);
        out.take(at, bits, Duration::from_secs(1)).unwrap();
        out.stop(at);
        let before = out.credits_bits(at);
        out.start(at + hour);
        assert_eq!(out.credits_bits(at + hour), before);
        assert!(out.credits_bits(at + hour + Duration::from_secs(2)) > before);
    }

    #[test]
    fn a_packet_that_may_not_wait_takes_from_neither_bucket() {
        let mut out = Bandwidth::new(&c7i_large(Duration::from_secs(1)), Instant::ZERO);
        let (wait, credits) = (Duration::from_millis(1), out.credits_bits(Instant::ZERO));
        assert_eq!(out.take(Instant::ZERO, 25_000_001, Duration::ZERO), Err(TooLong));
        assert_eq!(out.credits_bits(Instant::ZERO), credits);
        assert_eq!(out.take(Instant::ZERO, 25_000_000, wait), Ok(wait), "tolerance, and 1 ms");
        assert_eq!(out.take(Instant::ZERO, 1, wait), Err(TooLong));
        assert_eq!(out.credits_bits(Instant::ZERO), credits - 25_000_000);
    }
}
