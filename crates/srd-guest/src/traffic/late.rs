//! Delay of the loop: the packets that it reads may have arrived at any time since its last read.
//!
//! The loop is late by the time in which it did other work, or had no processor. After a sleep it
//! is late by the time for which it was runnable and waited for a processor. The kernel counts this
//! time for each thread ([schedstat]). The limits delay and count late packets as if they had been
//! read on arrival (L11).
//!
//! [schedstat]: https://docs.kernel.org/scheduler/sched-stats.html

use std::fs::File;
use std::os::unix::fs::FileExt;

use srd_proto::time::{Duration, Instant};

/// Shortest gap between two reads of packets for which the delay is measured. A shorter gap is
/// within the tolerance of limits, so the kernel's counters need not be read.
const LATE_MIN: Duration = Duration::from_micros(500);
/// Maximum size in bytes of the kernel's line, which contains three numbers.
const LINE_BYTES_MAX: usize = 80;

/// Measures the delay with which the loop reads packets, from its sleep and its waits for a
/// processor.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// Time of the last read of packets.
    looked: Option<Instant>,
    /// Time for which the loop has slept since `looked`.
    slept: Duration,
    /// The kernel's counters of this thread, opened at their first use.
    counts: Option<File>,
    /// Total time for which this thread had waited for a processor at the last read of the kernel's
    /// counters.
    waited: Duration,
    /// Delay of the loop until it has read all packets.
    late: Duration,
}

impl Late {
    /// Records that the loop has slept between these times.
    pub(crate) fn slept(&mut self, from: Instant, to: Instant) {
        self.slept = self.slept + to.since(from);
    }

    /// Records that all packets have been read, so that the loop is not late any more.
    pub(crate) fn rest(&mut self) {
        self.late = Duration::ZERO;
    }

    /// Records that the loop reads packets now. Returns the delay of the loop, which counts until
    /// [`Late::rest`].
    pub(crate) fn look(&mut self, now: Instant) -> Duration {
        let Some(looked) = self.looked.replace(now) else { return Duration::ZERO };
        let gap = now.since(looked);
        let slept = std::mem::take(&mut self.slept).min(gap);
        if gap >= LATE_MIN {
            let waited = if slept > Duration::ZERO { self.waited() } else { Duration::ZERO };
            self.late = self.late.max(late_by(gap, slept, waited));
        }
        self.late
    }

    /// Returns the time for which this thread waited for a processor since the last call.
    fn waited(&mut self) -> Duration {
        if self.counts.is_none() {
            self.counts = File::open("/proc/thread-self/schedstat").ok();
        }
        let mut line = [0; LINE_BYTES_MAX];
        let read = self.counts.as_ref().and_then(|file| file.read_at(&mut line, 0).ok());
        let text = str::from_utf8(&line[..read.unwrap_or_default()]).unwrap_or_default();
        // Without the kernel's counters, the loop counts as not delayed after a sleep.
        let Some(total) = waited_of(text) else { return Duration::ZERO };
        let before = std::mem::replace(&mut self.waited, total);
        total - before
    }
}

/// Returns the delay of the loop after a gap between two reads. `slept` is the part of the gap in
/// which the thread slept, each sleep counted until it returned. `waited` is the time in the gap
/// for which the thread waited for a processor. The delay is the part of the gap outside of sleeps,
/// and the wait for a processor at the end of sleeps, which is at most `slept`.
fn late_by(gap: Duration, slept: Duration, waited: Duration) -> Duration {
    gap - slept + waited.min(slept)
}

/// Returns the total time for which the thread waited for a processor: the second of the three
/// numbers in the kernel's line.
fn waited_of(line: &str) -> Option<Duration> {
    line.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn sleep_is_no_delay_but_work_and_waits_for_a_processor_are() {
        assert_eq!(late_by(ms(500), ms(500), Duration::ZERO), Duration::ZERO);
        assert_eq!(late_by(ms(500), ms(500), ms(20)), ms(20));
        assert_eq!(late_by(ms(50), Duration::ZERO, Duration::ZERO), ms(50));
        assert_eq!(late_by(ms(50), ms(30), ms(90)), ms(50), "no more than all");
    }

    #[test]
    fn the_loop_is_late_until_it_has_read_all() {
        let mut late = Late::default();
        let at = |n| Instant::ZERO + ms(n);
        assert_eq!(late.look(at(1)), Duration::ZERO);
        assert_eq!(late.look(at(51)), ms(50));
        assert_eq!(late.look(at(51)), ms(50), "some of it is still there");
        assert_eq!(late.look(at(71)), ms(50));
        late.rest();
        assert_eq!(late.look(at(71)), Duration::ZERO);
        // The loop sleeps until a packet arrives.
        late.slept(at(71), at(571));
        assert!(late.look(at(571)) < ms(500), "nobody keeps it from waking for so long");
    }

    #[test]
    fn the_kernel_s_counts_are_read() {
        assert_eq!(waited_of("1234 5678 9\n"), Some(Duration::from_nanos(5678)));
        assert_eq!((waited_of(""), waited_of("1 x 2")), (None, None));
    }
}
