//! Results of the request generator, in memory that does not grow with the length of the run.
//!
//! All latencies of one kind of request are in one histogram ([`Counts`]). In addition, each time
//! step has a smaller histogram, which shows when requests were slow. A latency belongs to the step
//! in which its request was *due*, so a stall appears at the step of its beginning.
//!
//! Bound: at most [`STEPS_MAX`] steps; longer runs have longer steps.

use super::protocol::Kind;
use crate::experiment::measure::counts::{Counts, TIME_MAX};
use crate::experiment::measure::result::{Spread, SpreadLine};
use hdrhistogram::Histogram;
use std::ops::Range;
use std::time::Duration;

/// Largest number of steps of one run.
pub(super) const STEPS_MAX: u64 = 600;
/// Length of a step in milliseconds, in runs that are not short or very long.
const STEP_MS: u64 = 1000;
/// Length of a step in milliseconds in short runs, so that even smoke tests have several steps.
const STEP_SHORT_MS: u64 = 250;
/// Longest run in seconds that counts as short.
const SHORT_S: u64 = 12;
/// Significant digits in the histogram of a step: a value is at most one percent too high.
const STEP_DIGITS: u8 = 2;
/// Smallest number of samples in a step for which its 99th percentile is shown.
const P99_SAMPLES_MIN: u64 = 100;

/// Latencies of all requests of one kind.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Latencies {
    pub(in crate::experiment) all: Counts,
    steps: Vec<Histogram<u32>>,
    step: Duration,
}

/// Results of a load, or of one thread's part of it.
#[derive(Clone, Debug)]
pub(in crate::experiment) struct Answers {
    pub(in crate::experiment) get: Latencies,
    pub(in crate::experiment) set: Latencies,
    /// For each request, the delay of the generator itself.
    pub(in crate::experiment) late: Counts,
    /// Number of unanswered requests. They are also included in the latencies, with the time that
    /// they waited.
    pub(in crate::experiment) unanswered: u64,
    /// Number of answers that were errors, or that reported an existing key as missing.
    pub(in crate::experiment) wrong: u64,
    /// Length of the load in seconds.
    seconds: u64,
}

/// The 99th percentile and the longest of the latencies in a time range, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::experiment) struct Part {
    pub(in crate::experiment) p99_us: f64,
    pub(in crate::experiment) worst_us: f64,
}

impl Answers {
    pub(super) fn new(seconds: u64) -> Answers {
        let none = || Latencies::new(seconds);
        Answers {
            get: none(),
            set: none(),
            late: Counts::default(),
            unanswered: 0,
            wrong: 0,
            seconds,
        }
    }

    /// Adds the latency of a request that was due at the time `due` after the start.
    pub(super) fn add(&mut self, kind: Kind, due: Duration, latency: Duration) {
        match kind {
            Kind::Get => self.get.add(due, latency),
            Kind::Set => self.set.add(due, latency),
        }
    }

    /// Adds the results of another thread.
    pub(super) fn merge(&mut self, other: &Answers) {
        self.get.merge(&other.get);
        self.set.merge(&other.set);
        self.late.add(&other.late);
        self.unanswered += other.unanswered;
        self.wrong += other.wrong;
    }

    /// Returns the number of answered requests divided by the length of the load, in requests per
    /// second.
    pub(in crate::experiment) fn per_s(&self) -> f64 {
        let all = self.get.all.count() + self.set.all.count();
        all.saturating_sub(self.unanswered) as f64 / self.seconds.max(1) as f64
    }
}

impl Latencies {
    fn new(seconds: u64) -> Latencies {
        let step_ms = match seconds {
            0..=SHORT_S => STEP_SHORT_MS,
            _ => STEP_MS * seconds.div_ceil(STEPS_MAX),
        };
        let steps = (seconds * 1000).div_ceil(step_ms).max(1);
        let none = || Histogram::new(STEP_DIGITS).expect("a valid number of digits");
        Latencies {
            all: Counts::default(),
            steps: (0..steps).map(|_| none()).collect(),
            step: Duration::from_millis(step_ms),
        }
    }

    fn add(&mut self, due: Duration, latency: Duration) {
        self.all.record(latency);
        let at = usize::try_from(due.as_nanos() / self.step.as_nanos()).unwrap_or(usize::MAX);
        let at = at.min(self.steps.len() - 1);
        let us = u64::try_from(latency.min(TIME_MAX).as_micros()).expect("hours are few");
        // `saturating_record` would not extend the histogram for a larger value.
        self.steps[at].record(us).expect("a histogram that grows takes every value");
    }

    fn merge(&mut self, other: &Latencies) {
        self.all.add(&other.all);
        for (step, other) in self.steps.iter_mut().zip(&other.steps) {
            step.add(other).expect("a histogram that grows takes every value");
        }
    }

    /// Returns the figures of the requests that were due in a time range. Steps that are only
    /// partly in the range are left out.
    pub(in crate::experiment) fn part(&self, time: Range<Duration>) -> Part {
        let steps = |time: Duration| time.as_nanos() as f64 / self.step.as_nanos() as f64;
        let (first, end) = (steps(time.start).ceil(), steps(time.end).floor());
        let mut part = Histogram::<u32>::new(STEP_DIGITS).expect("a valid number of digits");
        for (number, step) in (0u32..).zip(&self.steps) {
            if f64::from(number) >= first && f64::from(number) < end {
                part.add(step).expect("a histogram that grows takes every value");
            }
        }
        Part { p99_us: part.value_at_quantile(0.99) as f64, worst_us: part.max() as f64 }
    }

    /// Returns the median, the 99th percentile and the longest latency of each step.
    pub(in crate::experiment) fn over_time(
        &self,
        name: &'static str,
        marks: Vec<(u64, String)>,
    ) -> Spread {
        let line = |label, wanted, value: fn(&Histogram<u32>) -> u64| {
            let known = |step: &Histogram<u32>| (step.len() >= wanted).then(|| value(step) as f64);
            SpreadLine { label, values: self.steps.iter().map(known).collect() }
        };
        Spread {
            name,
            unit: "us",
            step_ms: u64::try_from(self.step.as_millis()).unwrap_or(u64::MAX),
            lines: vec![
                line("p50", 1, |step| step.value_at_quantile(0.5)),
                line("p99", P99_SAMPLES_MIN, |step| step.value_at_quantile(0.99)),
                line("worst", 1, Histogram::max),
            ],
            marks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const S: Duration = Duration::from_secs(1);

    #[test]
    fn eight_hours_have_as_many_steps_as_ten_minutes() {
        for (seconds, steps, step_s) in [(60, 60, 1), (600, 600, 1), (28_800, 600, 48)] {
            let seen = Latencies::new(seconds);
            assert_eq!((seen.steps.len(), seen.step), (steps, S * step_s), "{seconds}");
            assert!(seen.steps.len() as u64 <= STEPS_MAX);
        }
        assert_eq!(Latencies::new(6).steps.len(), 24, "a smoke test");
    }

    #[test]
    fn a_latency_belongs_to_the_step_in_which_it_was_due() {
        let mut seen = Answers::new(60);
        for n in 0..200 {
            seen.add(Kind::Get, S * 3 + MS * n, MS);
        }
        // This request is due in the fourth second, and is answered in the ninth.
        seen.add(Kind::Get, S * 3, S * 5);
        seen.add(Kind::Set, S * 8, MS * 2);
        let spread = seen.get.over_time("GET latency", vec![(3000, "stall".into())]);
        let value = |line: usize, step: usize| spread.lines[line].values[step];
        assert!((1000.0..1011.0).contains(&value(1, 3).unwrap()), "{:?}", value(1, 3));
        assert!((5e6..5.06e6).contains(&value(2, 3).unwrap()), "{:?}", value(2, 3));
        assert_eq!((value(0, 8), value(2, 8)), (None, None), "SETs are apart");
        let set = seen.set.over_time("SET latency", Vec::new());
        assert!(set.lines[0].values[8].is_some());
        assert_eq!(set.lines[1].values[8], None, "no p99 of one sample");
        assert_eq!((seen.get.all.count(), seen.set.all.count()), (201, 1));
    }

    #[test]
    fn a_part_of_the_run_has_whole_steps_only() {
        let mut seen = Answers::new(60);
        for second in 0..60 {
            seen.add(Kind::Get, S * second, MS * (second + 1));
        }
        let part = seen.get.part(S * 10..S * 20);
        assert!((20_000.0..20_200.0).contains(&part.worst_us), "{part:?}");
        let shorter = seen.get.part(MS * 9500..MS * 19_500);
        assert!((19_000.0..19_200.0).contains(&shorter.worst_us), "{shorter:?}");
        assert_eq!(seen.set.part(S * 10..S * 20), Part::default());
    }

    #[test]
    fn threads_add_up_and_requests_after_the_end_count_in_the_last_step() {
        let (mut one, mut other) = (Answers::new(60), Answers::new(60));
        one.add(Kind::Get, S, MS);
        other.add(Kind::Get, S * 70, S * 100);
        other.unanswered = 1;
        other.late.record(MS);
        one.merge(&other);
        assert_eq!((one.get.all.count(), one.unanswered, one.late.count()), (2, 1, 1));
        assert!((one.per_s() - 1.0 / 60.0).abs() < 1e-9);
        assert!(one.get.part(S * 59..S * 60).worst_us >= 1e8);
    }
}
