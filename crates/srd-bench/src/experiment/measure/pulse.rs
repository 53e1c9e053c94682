//! Detects whether the machine itself has delayed a run.
//!
//! A thread with the priority of the run wakes up every two milliseconds. If it wakes up late, the
//! processors were occupied by a task of higher priority, or by the host of a virtual machine; no
//! counter shows these effects. The figures of a delayed run are those of the machine, not those of
//! the transport.

use crate::experiment::measure::counts::Counts;
use crate::experiment::measure::distribution::Distribution;
use anyhow::{Context, Result};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval at which the thread wakes up.
const PERIOD: Duration = Duration::from_millis(2);
/// Delay in milliseconds beyond which a run is suspect: more than a tick of the kernel.
const LATE_MS: f64 = 5.0;

/// Delays of the thread's wake-ups during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lateness {
    /// 99th percentile of the delays, in milliseconds.
    pub p99_ms: f64,
    /// The longest delay, in milliseconds.
    pub p100_ms: f64,
}

impl Lateness {
    /// Whether the machine delayed the run so much that its figures are suspect.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.p99_ms > LATE_MS
    }
}

/// A running measurement of delays, which ends when this is dropped.
pub(crate) struct Pulse {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Counts>>,
}

impl Pulse {
    /// Starts the thread, which has the nice level of the caller.
    pub(crate) fn start() -> Result<Pulse> {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let thread = thread::Builder::new().name("pulse".into()).spawn(move || beat(&seen));
        Ok(Pulse { over, thread: Some(thread.context("cannot start a thread")?) })
    }

    /// Stops the thread, and returns its delays.
    pub(crate) fn stop(mut self) -> Lateness {
        self.over.store(true, Ordering::Release);
        let late = self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let late = Distribution::counted("", "ms", late);
        let percentile = |percent| late.percentile(percent).unwrap_or(0.0);
        let p100_ms = percentile(100.0);
        Lateness { p99_ms: late.percentile(99.0).unwrap_or(p100_ms), p100_ms }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

/// Records one delay for each interval, including those in which the thread did not wake up: if the
/// thread is late by ten intervals, ten delays are recorded.
fn beat(over: &AtomicBool) -> Counts {
    let mut late = Counts::default();
    let mut due = Instant::now() + PERIOD;
    while !over.load(Ordering::Acquire) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        while due <= now {
            late.record(now - due);
            due += PERIOD;
        }
    }
    late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_beats_until_it_is_stopped() {
        // On a busy machine the thread may be stopped before it has started; the test then tries a
        // longer time.
        let beats = |periods| {
            let pulse = Pulse::start().unwrap();
            thread::sleep(PERIOD * periods);
            Some(pulse.stop()).filter(|late| late.p100_ms > 0.0)
        };
        let late = [20, 200, 2000, 20_000].into_iter().find_map(beats).expect("it beats");
        assert!(late.p99_ms <= late.p100_ms, "{late:?}");
    }

    #[test]
    fn late_beyond_a_tick_is_suspect() {
        assert!(!Lateness { p99_ms: 1.0, p100_ms: 30.0 }.is_suspect());
        assert!(Lateness { p99_ms: 8.0, p100_ms: 30.0 }.is_suspect());
    }
}
