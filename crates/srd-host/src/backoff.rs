//! Time after which a thread that polls without success yields its core.
//!
//! MPI's ranks wait by polling. If there are more ranks than cores, ranks that only poll use their
//! whole time slices, of milliseconds, while ranks with work wait for the core. So a thread that
//! has polled for some time without an arrival yields after each poll. This time is long while no
//! other thread seems to need the core. It is short for a while after a yield that let another
//! thread run.

use std::sync::atomic::{AtomicU64, Ordering};

use srd_proto::{Duration, Instant};

/// Time without an arrival after which a thread yields while no other thread needs the core.
/// Answers within a data center take less, so waiting for an answer costs no further system call. A
/// shorter time gives whole time slices away beside programs that compute (`docs/perf-notes.md`,
/// 2026-11-29).
const IDLE_ALONE: Duration = Duration::from_micros(300);
/// Time without an arrival after which a thread yields while another thread needs the core. If an
/// answer takes longer than this, the rank that has to answer is probably not running.
const IDLE_SHARED: Duration = Duration::from_micros(5);
/// Shortest yield that counts as taken by another thread. A yield that no thread takes is shorter,
/// even with interrupts. A yield that a rank takes lasts for the rank's poll and two context
/// switches.
const YIELD_UNTAKEN: Duration = Duration::from_micros(6);
/// Shortest yield that counts as taken by a thread that computes until its time slice ends; a rank
/// that polls returns the core earlier. After such a yield, the core does not count as shared:
/// yields after a short time would make each answer wait for a whole time slice.
const YIELD_SLICE: Duration = Duration::from_millis(1);
/// Time for which the core counts as shared after a yield that let another thread run. If ranks
/// share a core, each yield lets another rank run.
const SHARED_FOR: Duration = Duration::from_millis(2);

/// State that all hosts of this process share, so that an idle host does not yield the core while
/// another host of the process is active.
pub(crate) static PROCESS: Backoff = Backoff::new();

/// Time of the last arrival, and of the last yield that another thread took. Times are nanoseconds
/// on the clock of the transport; zero: never.
pub(crate) struct Backoff {
    /// Time of the last arrival.
    arrived_at_ns: AtomicU64,
    /// Time of the last yield that let another thread run.
    taken_at_ns: AtomicU64,
}

impl Backoff {
    const fn new() -> Self {
        Self { arrived_at_ns: AtomicU64::new(0), taken_at_ns: AtomicU64::new(0) }
    }

    /// Records the result of a poll. Returns whether the thread must yield now.
    pub(crate) fn should_yield(&self, now: Instant, arrived: bool) -> bool {
        if arrived {
            self.arrived_at_ns.store(now.as_nanos(), Ordering::Relaxed);
            return false;
        }
        let since = |at_ns: &AtomicU64| match at_ns.load(Ordering::Relaxed) {
            0 => Duration::MAX,
            at_ns => now.since(Instant::from_nanos(at_ns)),
        };
        let is_shared = since(&self.taken_at_ns) < SHARED_FOR;
        since(&self.arrived_at_ns) > if is_shared { IDLE_SHARED } else { IDLE_ALONE }
    }

    /// Records the duration of a yield.
    fn yielded(&self, now: Instant, took: Duration) {
        if took > YIELD_UNTAKEN && took < YIELD_SLICE {
            self.taken_at_ns.store(now.as_nanos(), Ordering::Relaxed);
        }
    }
}

/// Lets another thread run, if one waits for the core.
pub(crate) fn yield_core() {
    let before = srd_net::clock::now();
    std::thread::yield_now();
    let now = srd_net::clock::now();
    PROCESS.yielded(now, now.since(before));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_nanos(1);
    const ARRIVAL: Instant = Instant::from_nanos(1_000_000);

    #[test]
    fn a_thread_yields_some_time_after_the_last_arrival() {
        let backoff = Backoff::new();
        assert!(backoff.should_yield(ARRIVAL, false));
        assert!(!backoff.should_yield(ARRIVAL, true));
        assert!(!backoff.should_yield(ARRIVAL + IDLE_ALONE, false));
        assert!(backoff.should_yield(ARRIVAL + IDLE_ALONE + TICK, false));
        assert!(!backoff.should_yield(ARRIVAL + IDLE_ALONE.times(2), true));
        assert!(!backoff.should_yield(ARRIVAL + IDLE_ALONE.times(3), false));
        // Another thread has recorded a later arrival in the meantime.
        assert!(!backoff.should_yield(ARRIVAL, false));
    }

    #[test]
    fn it_yields_soon_for_a_while_after_a_yield_was_taken() {
        let backoff = Backoff::new();
        backoff.should_yield(ARRIVAL, true);
        backoff.yielded(ARRIVAL, YIELD_UNTAKEN);
        assert!(!backoff.should_yield(ARRIVAL + IDLE_ALONE, false));
        backoff.yielded(ARRIVAL, YIELD_UNTAKEN + TICK);
        assert!(!backoff.should_yield(ARRIVAL + IDLE_SHARED, false));
        assert!(backoff.should_yield(ARRIVAL + IDLE_SHARED + TICK, false));
        let later = ARRIVAL + SHARED_FOR;
        backoff.should_yield(later, true);
        assert!(!backoff.should_yield(later + IDLE_SHARED + TICK, false));
    }
    #[test]
    fn a_yield_that_took_a_time_slice_does_not_bring_the_next_one_forward() {
        let backoff = Backoff::new();
        backoff.should_yield(ARRIVAL, true);
        backoff.yielded(ARRIVAL, YIELD_SLICE);
        assert!(!backoff.should_yield(ARRIVAL + IDLE_ALONE, false));
        assert!(backoff.should_yield(ARRIVAL + IDLE_ALONE + TICK, false));
        backoff.yielded(ARRIVAL, YIELD_SLICE - TICK);
        assert!(backoff.should_yield(ARRIVAL + IDLE_SHARED + TICK, false));
    }
}
