//! Steady times: times that never decrease by much, derived from a clock that the user or NTP may
//! set.
//!
//! ```text
//! time 1 2 3 4 | 1 1 2 3 many times in a row far behind: the clock was set back
//! steady 1 2 3 4 | 4 4 5 6 from then on the difference is added to each time
//! ```
//!
//! A packet whose time is slightly earlier than the latest one came over another CPU. A few packets
//! with a much earlier time have an outdated time stamp. All of these packets keep their times and
//! count as late. If the clock was set back, packets would count as simultaneous until the clock
//! reached its former time; steady times prevent this.

use srd_proto::time::Instant;

/// Difference in nanoseconds beyond which a packet's time is far behind the latest time.
const FAR_NS: u64 = 50_000_000;
/// Number of consecutive packets far behind the latest time that show that the clock was set back.
const ROW: u32 = 16;
/// Difference in nanoseconds beyond which a reading of the clock is far behind the latest time. The
/// clock may be read shortly before packets that are added earlier, but the difference is then much
/// smaller.
const CLOCK_FAR_NS: u64 = 2_000_000_000;
/// Largest time in nanoseconds that is used. A later time, as from an invalid file, is replaced by
/// it.
const LAST_NS: u64 = u64::MAX / 2;

/// A clock with steady times.
#[derive(Clone, Debug)]
pub struct Steady {
    last_ns: u64,
    shift_ns: u64,
    row: u32,
    set_back: u64,
}

impl Steady {
    /// Returns a clock that begins at `now`.
    pub fn new(now: Instant) -> Self {
        Self { last_ns: now.as_nanos().min(LAST_NS), shift_ns: 0, row: 0, set_back: 0 }
    }

    /// Returns the steady time of a packet. The number [`Steady::set_back`] increases with the
    /// packet that shows that the clock was set back.
    pub fn packet(&mut self, time: Instant) -> Instant {
        let at = self.at(time);
        if at.saturating_add(FAR_NS) >= self.last_ns {
            self.row = 0;
        } else {
            self.row += 1;
            if self.row < ROW {
                return Instant::from_nanos(at);
            }
        }
        self.reach(at)
    }

    /// Returns the steady time of a reading of the clock. The reading was made at this moment, or
    /// shortly before the latest packet.
    pub fn now(&mut self, now: Instant) -> Instant {
        let at = self.at(now);
        if at.saturating_add(CLOCK_FAR_NS) < self.last_ns {
            return self.reach(at);
        }
        self.last_ns = self.last_ns.max(at);
        Instant::from_nanos(at)
    }

    /// Whether a steady time is far behind the latest steady time, so that it is not the current
    /// time.
    pub fn is_far(&self, time: Instant) -> bool {
        time.as_nanos().saturating_add(FAR_NS) < self.last_ns
    }

    /// Returns the latest steady time so far.
    pub fn last(&self) -> Instant {
        Instant::from_nanos(self.last_ns)
    }

    /// Returns the time that the clock itself showed at a recent steady time, in nanoseconds.
    pub fn shown_ns(&self, steady_ns: u64) -> u64 {
        steady_ns.saturating_sub(self.shift_ns)
    }

    /// Returns the number of times that the clock was set back.
    pub fn set_back(&self) -> u64 {
        self.set_back
    }

    fn at(&self, time: Instant) -> u64 {
        time.as_nanos().saturating_add(self.shift_ns).min(LAST_NS)
    }

    /// Advances the latest time to `at`. If `at` is far behind, the clock was set back: steady time
    /// then continues from the latest time.
    fn reach(&mut self, at: u64) -> Instant {
        let behind = self.last_ns.saturating_sub(at);
        if behind > FAR_NS {
            self.shift_ns = self.shift_ns.saturating_add(behind);
            self.set_back += 1;
            self.row = 0;
            return self.last();
        }
        self.last_ns = self.last_ns.max(at);
        Instant::from_nanos(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * MS)
    }

    #[test]
    fn a_clock_that_was_set_back_goes_on_and_one_that_jumps_ahead_is_believed() {
        let mut clock = Steady::new(ms(0));
        assert_eq!((clock.packet(ms(1000)), clock.packet(ms(999))), (ms(1000), ms(999)));
        for n in 1..u64::from(ROW) {
            assert_eq!(clock.packet(ms(n)), ms(n), "late, for all that is known");
        }
        assert_eq!((clock.packet(ms(20)), clock.set_back()), (ms(1000), 1));
        assert_eq!(clock.packet(ms(25)), ms(1005));
        assert_eq!(clock.shown_ns(1005 * MS), 25 * MS);
        assert_eq!(clock.packet(ms(60_000)), ms(60_980));
        assert_eq!(clock.set_back(), 1);
        // While no packets arrive, only readings of the clock advance time.
        assert_eq!(clock.now(ms(59_000)), ms(59_980), "it is read late");
        assert_eq!((clock.now(ms(100)), clock.set_back()), (ms(60_980), 2));
        assert_eq!(clock.now(ms(101)), ms(60_981));
    }

    #[test]
    fn stale_packets_between_others_set_nothing_back() {
        let mut clock = Steady::new(ms(0));
        for n in 1..10_000 {
            assert_eq!(clock.packet(ms(1000 + n)), ms(1000 + n));
            assert_eq!(clock.packet(ms(n)), ms(n));
        }
        assert_eq!(clock.set_back(), 0);
    }

    #[test]
    fn times_that_a_file_made_up_overflow_nothing() {
        let mut clock = Steady::new(ms(0));
        for _ in 0..20 {
            clock.packet(Instant::from_nanos(u64::MAX));
            for _ in 0..ROW {
                clock.packet(ms(5));
            }
        }
        assert_eq!(clock.last().as_nanos(), LAST_NS);
        assert!(clock.shown_ns(0) == 0 && clock.set_back() > 0);
    }
}
