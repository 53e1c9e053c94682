//! Checks whether the machine delayed a run.
//!
//! A thread with the run's own priority wakes up every two milliseconds. Its delay shows an effect
//! that no counter shows: a task of higher priority, or the host below a virtual machine, occupied
//! the processors. A run that was delayed measures this delay, and not a transport.

use crate::experiment::measure::counts::Counts;
use crate::experiment::measure::distribution::Distribution;
use anyhow::{Context, Result};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Wake-up period.
const PERIOD: Duration = Duration::from_millis(2);
/// Lateness beyond which a run is suspect: more than a tick of the kernel.
const LATE_MS: f64 = 5.0;

/// Wake-up delays of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lateness {
    /// 99th percentile, in ms.
    pub p99_ms: f64,
    /// The longest delay, in ms.
    pub p100_ms: f64,
}

impl Lateness {
    /// Whether figures of the run are suspect.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.p99_ms > LATE_MS
    }
}

/// Measures delays as long as it lives.
pub(crate) struct Pulse {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Counts>>,
}

impl Pulse {
    /// Starts the thread, which has the caller's nice level.
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

/// Records one value for each period, including periods in which the thread slept: a thread that
/// is late by ten periods was late for all ten.
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
        // On a busy machine the thread may not have started when it is stopped.
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
