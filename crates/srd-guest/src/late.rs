//! How late the loop is: packets that it reads may have arrived since it looked for them last.
//!
//! The loop is late by the time in which it did other work, or had no processor. When it sleeps
//! until something comes it is late by what the scheduler let it wait for a processor, as the
//! kernel counts it for the thread ([schedstat]). Limits give packets that were read late what they
//! have earned meanwhile (L11).
//!
//! [schedstat]: https://docs.kernel.org/scheduler/sched-stats.html

use std::fs::File;
use std::os::unix::fs::FileExt;

use srd_proto::time::{Duration, Instant};

/// A shorter wait is within the tolerance of limits, and costs no look at the kernel's counts.
const LATE_MIN: Duration = Duration::from_micros(500);
/// Bytes of the kernel's line: three numbers.
const LINE_BYTES_MAX: usize = 80;

/// The loop's own time: its sleep, and its waits for a processor.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// When it looked for packets last.
    looked: Option<Instant>,
    /// How long it has slept since.
    slept: Duration,
    /// The kernel's counts of this thread, which reads them first.
    counts: Option<File>,
    /// How long it had waited for a processor, at the last look at those.
    waited: Duration,
    /// By how much it is late until it has read all that is there.
    late: Duration,
}

impl Late {
    /// The loop has slept.
    pub(crate) fn slept(&mut self, from: Instant, to: Instant) {
        self.slept = self.slept + to.since(from);
    }

    /// Nothing is there that has not been read: the loop is in time.
    pub(crate) fn rest(&mut self) {
        self.late = Duration::ZERO;
    }

    /// The loop looks for packets. Returns by how much it is late until [`Late::rest`].
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

    /// How long this thread waited for a processor since the last call.
    fn waited(&mut self) -> Duration {
        if self.counts.is_none() {
            self.counts = File::open("/proc/thread-self/schedstat").ok();
        }
        let mut line = [0; LINE_BYTES_MAX];
        let read = self.counts.as_ref().and_then(|file| file.read_at(&mut line, 0).ok());
        let text = str::from_utf8(&line[..read.unwrap_or_default()]).unwrap_or_default();
        // Without the kernel's word for it the loop was woken in time.
        let Some(total) = waited_of(text) else { return Duration::ZERO };
        let before = std::mem::replace(&mut self.waited, total);
        total - before
    }
}

/// By how much the loop is late that looks after a gap, in which it slept and waited for a
/// processor. A part of that wait is from before the sleep, or the sleep ended with it.
fn late_by(gap: Duration, slept: Duration, waited: Duration) -> Duration {
    gap - slept + waited.min(slept)
}

/// The wait for a processor, of the kernel's three numbers.
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
        // It sleeps until something comes.
        late.slept(at(71), at(571));
        assert!(late.look(at(571)) < ms(500), "nobody keeps it from waking for so long");
    }

    #[test]
    fn the_kernel_s_counts_are_read() {
        assert_eq!(waited_of("1234 5678 9\n"), Some(Duration::from_nanos(5678)));
        assert_eq!((waited_of(""), waited_of("1 x 2")), (None, None));
    }
}
