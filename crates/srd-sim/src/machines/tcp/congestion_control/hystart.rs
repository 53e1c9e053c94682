//! HyStart (Ha and Rhee, 2011) as in Linux's CUBIC. It ends slow start when the acknowledgements of
//! one round trip arrive as one long train, or when round trips grow.

use srd_proto::time::{Duration, Instant};

use crate::machines::tcp::congestion_control::window::RttSample;

/// Window in segments below which HyStart does not end slow start.
const WINDOW_MIN: u32 = 16;
/// Number of samples in a round before the round's smallest round trip is compared.
const SAMPLES_MIN: u8 = 8;
/// Longest gap between two acknowledgements of one train.
const TRAIN_GAP_MAX: Duration = Duration::from_millis(2);
/// Bounds of the tolerated growth of the round trip. The growth itself is an eighth of the smallest
/// round trip.
const GROWTH_MIN: Duration = Duration::from_millis(4);
const GROWTH_MAX: Duration = Duration::from_millis(16);

/// State of HyStart during one slow start.
#[derive(Clone, Copy, Debug)]
pub struct HyStart {
    found: bool,
    samples: u8,
    round_start: Instant,
    // The round ends when this byte is acknowledged.
    round_end: u64,
    last_ack: Instant,
    round_rtt_min: Duration,
}

impl Default for HyStart {
    fn default() -> Self {
        Self::starting(Instant::ZERO, 0)
    }
}

impl HyStart {
    /// Begins a round at `now`. The round ends when byte `nxt` is acknowledged.
    pub const fn starting(now: Instant, nxt: u64) -> Self {
        Self {
            found: false,
            samples: 0,
            round_start: now,
            round_end: nxt,
            last_ack: now,
            round_rtt_min: Duration::MAX,
        }
    }

    /// Prepares the state for a new flow on the connection, with stream offsets from zero.
    pub fn rebase(&mut self, now: Instant) {
        *self = Self { found: self.found, ..Self::starting(now, 0) };
    }

    /// Processes a round-trip sample. Returns whether slow start should end.
    pub fn on_rtt(&mut self, sample: &RttSample, rtt_min: Duration, window: u32) -> bool {
        if self.found || window < WINDOW_MIN {
            return false;
        }
        if sample.una > self.round_end {
            *self = Self::starting(sample.now, sample.nxt);
        }
        if sample.now.since(self.last_ack) <= TRAIN_GAP_MAX {
            self.last_ack = sample.now;
            // The threshold is half of the smallest round trip, as for a sender that does not pace.
            self.found = sample.now.since(self.round_start) > rtt_min.over(2);
        }
        self.round_rtt_min = self.round_rtt_min.min(sample.rtt);
        if self.samples < SAMPLES_MIN {
            self.samples += 1;
        } else {
            let growth = rtt_min.over(8).clamp(GROWTH_MIN, GROWTH_MAX);
            self.found |= self.round_rtt_min > rtt_min + growth;
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_micros(200);

    fn sample(us: u64, rtt_us: u64, una: u64, nxt: u64) -> RttSample {
        RttSample {
            now: Instant::from_nanos(us * 1000),
            rtt: Duration::from_micros(rtt_us),
            una,
            nxt,
        }
    }

    #[test]
    fn train_longer_than_half_a_round_trip_ends_slow_start() {
        let mut hystart = HyStart::default();
        assert!(!hystart.on_rtt(&sample(1000, 200, 10, 100), MIN, 16), "the round begins");
        assert!(!hystart.on_rtt(&sample(1090, 200, 20, 120), MIN, 18));
        assert!(hystart.on_rtt(&sample(1101, 200, 30, 140), MIN, 20));
        assert!(!hystart.on_rtt(&sample(1102, 200, 40, 140), MIN, 22), "said once");
    }

    #[test]
    fn small_window_is_left_alone() {
        let mut hystart = HyStart::default();
        for k in 0..100 {
            assert!(!hystart.on_rtt(&sample(k * 50, 900, k * 10, k * 10 + 50), MIN, 15));
        }
    }

    #[test]
    fn growing_round_trips_end_slow_start_after_eight_samples() {
        let mut hystart = HyStart::default();
        // The samples are 3 ms apart, so they never form a train. The queueing delay is 5 ms.
        let mut ended_at = None;
        for k in 0..12_u64 {
            if hystart.on_rtt(&sample(3000 * (k + 1), 5200, 1, 1000), MIN, 32) {
                ended_at.get_or_insert(k);
            }
        }
        assert_eq!(ended_at, Some(8));
    }
}
