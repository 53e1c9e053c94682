//! Speed of the processors while the tests run: the processor time of a fixed computation.
//!
//! Machines differ by a factor of three, and a processor is slower while its neighbour works. The
//! processor seconds of all tests, divided by this time, depend on the tests alone.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Time between two samples.
const EVERY: Duration = Duration::from_secs(2);

/// Steps of the computation, and the number of words in the table that it reads and writes.
const STEPS: u32 = 400_000;
const WORDS: usize = 1 << 16;

/// Processor time of the computation on the reference processor, the slowest that is in use.
const REFERENCE_S: f64 = 0.004;

/// Samples of the speed.
#[derive(Default)]
pub(super) struct Speed {
    last: Option<Instant>,
    seconds: f64,
    samples: u32,
}

impl Speed {
    /// Takes a sample if the last one is old enough.
    pub(super) fn look(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now.duration_since(last) < EVERY) {
            return;
        }
        self.last = Some(now);
        let before = thread_seconds();
        compute();
        if let (Some(before), Some(after)) = (before, thread_seconds()) {
            self.seconds += after - before;
            self.samples += 1;
        }
    }

    /// Returns the factor by which the processors were slower than the reference processor.
    pub(super) fn slower(&self) -> f64 {
        if self.samples == 0 { 1.0 } else { self.seconds / f64::from(self.samples) / REFERENCE_S }
    }
}

/// Computes, and reads and writes memory at places that the processor cannot guess.
fn compute() {
    let mut table = vec![1_u64; WORDS];
    let mut value = black_box(1_u64);
    for _ in 0..STEPS {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x1405_7b7e_f767_814f);
        let place = usize::from((value >> 48).to_le_bytes()[0]) << 8;
        let place = place | usize::from((value >> 56).to_le_bytes()[0]);
        table[place] = table[place].rotate_left(7) ^ value;
        value ^= table[place];
    }
    black_box(value);
}

/// Returns the processor time of this thread.
fn thread_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split(' ').next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_pauses_and_a_plausible_time() {
        let (mut speed, begin) = (Speed::default(), Instant::now());
        assert_eq!(speed.slower(), 1.0);
        for quarter in 0..12 {
            speed.look(begin + EVERY / 4 * quarter);
        }
        assert_eq!(speed.samples, 3);
        assert!((0.02..50.0).contains(&speed.slower()), "{}", speed.slower());
    }
}
