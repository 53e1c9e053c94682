//! Time: one axis for the core, for timers and for the kernel's receive stamps.
//!
//! The axis is `CLOCK_MONOTONIC` in nanoseconds. The kernel stamps arrivals with
//! `CLOCK_REALTIME`, which may be slewed or stepped, so the difference of the two is measured
//! anew every few milliseconds, and a mapped stamp never lies in the future nor far back.

use srd_proto::ids::Epoch;
use srd_proto::time::{Duration, Instant};

use crate::sys::os;

/// How long a measured difference of the clocks is used.
const OFFSET_LIFETIME: Duration = Duration::from_millis(5);
/// Samples taken per measurement; the tightest one counts.
const OFFSET_SAMPLES: usize = 3;
/// Stamps older than this are held to be wrong (the wall clock was stepped).
const STAMP_AGE_MAX: Duration = Duration::from_secs(1);

/// The clock of this machine.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Wall clock minus monotonic clock, wrapping.
    offset_ns: u64,
    measured_at: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that knows the present difference of wall and monotonic time.
    pub fn new() -> Self {
        let mut clock = Self { offset_ns: 0, measured_at: Instant::ZERO };
        clock.measure();
        clock
    }

    /// The present.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(os::monotonic_ns())
    }

    /// When a packet with the kernel's wall-clock stamp `stamp_ns` arrived. `now` is the
    /// present; it is the answer too if there is no stamp or an absurd one.
    pub fn arrival(&mut self, stamp_ns: u64, now: Instant) -> Instant {
        if stamp_ns == 0 {
            return now;
        }
        if now.since(self.measured_at) > OFFSET_LIFETIME {
            self.measure();
        }
        let mapped = Instant::from_nanos(stamp_ns.wrapping_sub(self.offset_ns));
        if mapped > now || now.since(mapped) > STAMP_AGE_MAX { now } else { mapped }
    }

    fn measure(&mut self) {
        let mut width_ns = u64::MAX;
        for _ in 0..OFFSET_SAMPLES {
            let before = os::monotonic_ns();
            let wall = os::realtime_ns();
            let after = os::monotonic_ns();
            let width = after.saturating_sub(before);
            if width < width_ns {
                width_ns = width;
                self.offset_ns = wall.wrapping_sub(before + width / 2);
                self.measured_at = Instant::from_nanos(after);
            }
        }
    }
}

/// The epoch of an endpoint that starts now: wall-clock nanoseconds, so that a restarted
/// endpoint has a larger one.
pub fn epoch() -> Epoch {
    Epoch(os::realtime_ns())
}

/// The present, on the axis of every endpoint of this machine.
pub fn now() -> Instant {
    Instant::from_nanos(os::monotonic_ns())
}

/// Thirty-two bytes from the kernel's random generator.
///
/// # Errors
/// The kernel's, on systems without `getrandom`.
pub fn seed() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    os::random(&mut bytes)?;
    Ok(bytes)
}

/// CPU time that this process has used, all threads together.
pub fn process_cpu() -> Duration {
    Duration::from_nanos(os::process_cpu_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_of_now_maps_to_about_now() {
        let mut clock = Clock::new();
        let stamp = os::realtime_ns();
        let now = clock.now();
        let mapped = clock.arrival(stamp, now);
        assert!(mapped <= now);
        assert!(now.since(mapped) < Duration::from_millis(100));
    }

    #[test]
    fn absent_future_and_ancient_stamps_count_as_now() {
        let mut clock = Clock::new();
        let now = clock.now();
        let wall = os::realtime_ns();
        assert_eq!(clock.arrival(0, now), now);
        assert_eq!(clock.arrival(wall + 60_000_000_000, now), now);
        assert_eq!(clock.arrival(wall - 60_000_000_000, now), now);
        assert_eq!(clock.arrival(1, now), now);
    }

    #[test]
    fn the_offset_is_measured_again_after_its_lifetime() {
        let mut clock = Clock::new();
        clock.offset_ns = 12345;
        clock.measured_at = Instant::ZERO;
        let now = clock.now();
        let mapped = clock.arrival(os::realtime_ns(), now + Duration::from_millis(1));
        assert!(now.since(mapped) < Duration::from_millis(100));
        assert_ne!(clock.offset_ns, 12345);
    }
}
