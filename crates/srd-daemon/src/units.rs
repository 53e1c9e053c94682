//! Converts rates from the form that people write, and measures rates.

use std::time::{Duration, Instant};

/// Parses a rate such as `250M`, `1G` or `100G` (powers of 1000). Returns bits per second.
///
/// # Errors
/// A description of the expected form, as a text for people.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let expected = "write a rate in bits per second as 250M, 1G or 100G";
    let plain = text.trim_end_matches("bit/s").trim_end_matches("b/s").trim_end_matches("bps");
    let (digits, factor) = match plain.char_indices().last() {
        Some((at, 'k' | 'K')) => (&plain[..at], 1e3),
        Some((at, 'm' | 'M')) => (&plain[..at], 1e6),
        Some((at, 'g' | 'G')) => (&plain[..at], 1e9),
        _ => (plain, 1.0),
    };
    let number: f64 = digits.parse().map_err(|_| expected.to_owned())?;
    let bps = number * factor;
    if !(1.0..=1e13).contains(&bps) {
        return Err(format!("must be between 1 bit/s and 10,000 G; {expected}"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked above
    let bps = bps.round() as u64;
    Ok(bps)
}

/// Returns the rate in bits per second for a number of bytes and a number of nanoseconds.
pub fn rate_bps(bytes: u64, elapsed_ns: u64) -> u64 {
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    u64::try_from(bits / u128::from(elapsed_ns.max(1))).unwrap_or(u64::MAX)
}

/// Shortest time between two readings of a counter from which a rate is computed.
const RATE_WINDOW: Duration = Duration::from_millis(500);

/// Computes the rate of a growing counter of bytes, which is read at intervals.
#[derive(Clone, Debug)]
pub struct RateMeter {
    began: Instant,
    began_bytes: u64,
    bps: f64,
}

impl RateMeter {
    /// Creates a meter for a counter with the present value `bytes`.
    pub fn new(now: Instant, bytes: u64) -> Self {
        Self { began: now, began_bytes: bytes, bps: 0.0 }
    }

    /// Takes the present value of the counter. If half a second has passed since the last
    /// computation, computes a new rate. Call this at least that often, so that the rate is
    /// current.
    pub fn show(&mut self, now: Instant, bytes: u64) {
        let passed = now.saturating_duration_since(self.began);
        if passed >= RATE_WINDOW {
            let grown = bytes.saturating_sub(self.began_bytes);
            self.bps = grown as f64 * 8.0 / passed.as_secs_f64();
            (self.began, self.began_bytes) = (now, bytes);
        }
    }

    /// Returns the last computed rate in bits per second; 0 before the first computation.
    pub fn bps(&self) -> u64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it saturates
        let bps = self.bps.round() as u64;
        bps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_rate_is_of_the_time_that_passed_not_of_a_second() {
        assert_eq!(rate_bps(125_000_000, 1_000_000_000), 1_000_000_000);
        assert_eq!(rate_bps(125_000_000, 2_000_000_000), 500_000_000);
        assert_eq!(rate_bps(1, 0), 8_000_000_000);
        assert_eq!(rate_bps(u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn rates_as_people_write_them() {
        assert_eq!(parse_rate("250M"), Ok(250_000_000));
        assert_eq!(parse_rate("2.5Gbit/s"), Ok(2_500_000_000));
        for text in ["", "fast", "0", "-1G", "inf", "NaN"] {
            assert!(parse_rate(text).expect_err(text).contains("100G"), "{text}");
        }
    }

    #[test]
    fn a_rate_is_taken_over_half_a_second_and_falls_to_zero() {
        let start = Instant::now();
        let mut meter = RateMeter::new(start, 1000);
        meter.show(start + Duration::from_millis(100), 500_000);
        assert_eq!(meter.bps(), 0);
        meter.show(start + Duration::from_secs(1), 1_001_000);
        assert_eq!(meter.bps(), 8_000_000);
        meter.show(start + Duration::from_secs(2), 1_001_000);
        assert_eq!(meter.bps(), 0);
        // If the counter has become smaller, the rate is zero, without a panic.
        meter.show(start + Duration::from_secs(3), 0);
        assert_eq!(meter.bps(), 0);
    }
}
