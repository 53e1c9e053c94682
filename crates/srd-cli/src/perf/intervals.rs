//! Lines of progress of a measurement, in the form of iperf3.

use crate::output::JsonOutput;
use crate::units;
use anyhow::Result;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Data that was transferred between two lines of progress.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Interval {
    /// Beginning of the interval, in seconds since the start; `to_s` is its end.
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    /// Payload bytes: acknowledged (srd), accepted by the kernel (tcp, udp), both ways (rr).
    pub(super) bytes: u64,
    pub(super) gbps: f64,
}

/// Prints a line of progress for each interval.
pub(super) struct Intervals<'a> {
    output: &'a JsonOutput,
    every: Duration,
    start: Instant,
    next: Duration,
    begun: Duration,
    bytes_before: u64,
    all: Vec<Interval>,
}

impl<'a> Intervals<'a> {
    /// Starts the measurement of time, and prints the titles of the columns.
    pub(super) fn start(output: &'a JsonOutput, every: Duration) -> Result<Self> {
        output.say("      interval (s)        transfer         rate")?;
        let start = Instant::now();
        let (begun, next) = (Duration::ZERO, every);
        Ok(Self { output, every, start, next, begun, bytes_before: 0, all: Vec::new() })
    }

    /// Returns the time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the time until the next line is due.
    pub(super) fn until_due(&self) -> Duration {
        self.next.saturating_sub(self.start.elapsed())
    }

    /// Prints a line if it is due. `bytes` is the number of bytes since the start.
    pub(super) fn tick(&mut self, bytes: u64) -> Result<()> {
        let now = self.start.elapsed();
        if now < self.next {
            return Ok(());
        }
        self.line(now, bytes)?;
        while self.next <= now {
            self.next += self.every;
        }
        Ok(())
    }

    /// Prints a line for the last interval if it is longer than a tenth of a full interval. Returns
    /// all intervals.
    pub(super) fn finish(mut self, bytes: u64) -> Result<Vec<Interval>> {
        let now = self.start.elapsed();
        if now.saturating_sub(self.begun) > self.every / 10 {
            self.line(now, bytes)?;
        }
        Ok(self.all)
    }

    fn line(&mut self, now: Duration, bytes: u64) -> Result<()> {
        let span = now.saturating_sub(self.begun).as_secs_f64().max(1e-9);
        let moved = bytes.saturating_sub(self.bytes_before);
        let bps = moved as f64 * 8.0 / span;
        let (from_s, to_s) = (self.begun.as_secs_f64(), now.as_secs_f64());
        let (amount, rate) = (units::bytes(moved), units::rate(bps));
        self.output.say(format!("{from_s:>8.2} - {to_s:<7.2} {amount:>14} {rate:>14}"))?;
        self.all.push(Interval { from_s, to_s, bytes: moved, gbps: bps / 1e9 });
        self.begun = now;
        self.bytes_before = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_cover_the_time_and_add_up() {
        let quiet = JsonOutput { json: Some("-".into()) };
        let mut intervals = Intervals::start(&quiet, Duration::from_millis(5)).unwrap();
        let mut bytes = 0;
        while intervals.all.len() < 3 {
            bytes += 10;
            intervals.tick(bytes).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(intervals.elapsed() >= Duration::from_millis(15));
        let all = intervals.finish(bytes).unwrap();
        assert!(all.len() >= 2, "{all:?}");
        assert!(all.windows(2).all(|two| (two[0].to_s - two[1].from_s).abs() < 1e-9));
        assert!(all.iter().map(|i| i.bytes).sum::<u64>() <= bytes);
    }
}
