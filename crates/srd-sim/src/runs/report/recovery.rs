//! Effect of a link fault on the goodput of all flows together, and the time until goodput
//! recovered.
//!
//! Single intervals of a busy network differ by some percent. So the mean of a few intervals
//! decides whether goodput has recovered. The timeline around the fault shows single intervals.

use serde::Serialize;

use crate::engine::fault::Fault;
use crate::engine::world::{Series, US};

/// Number of intervals that are averaged, so that one unusual interval has no effect.
const SMOOTH: usize = 5;
/// Share of the goodput before the fault from which goodput counts as recovered.
const RECOVERED: f64 = 7.0 / 8.0;
/// Number of base round trips in the limit of the recovery time. The limit is this number of round
/// trips, plus `BOUND_US`.
const BOUND_RTTS: f64 = 5.0;
const BOUND_US: f64 = 100.0;
/// Start of the timeline, in microseconds before the fault. The end is `AFTER_US` after the fault.
const BEFORE_US: f64 = 50.0;
const AFTER_US: f64 = 500.0;
/// Largest number of intervals in the timeline.
const TIMELINE_MAX: usize = 1000;

/// Effect of a link fault on the goodput of all flows together. Levels are relative to the goodput
/// before the fault. Times count from the fault, except `at_us` and `until_us`. A time is absent if
/// its event did not happen before the repair.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Recovery {
    /// Names of the links that failed.
    pub links: String,
    /// Time of the fault in microseconds since the start of the run.
    pub at_us: f64,
    /// Time of the repair in microseconds since the start of the run; `None` if there was no
    /// repair.
    pub until_us: Option<f64>,
    /// Goodput before the fault, in bits per second.
    pub before_bps: f64,
    /// Limit of the recovery time, in microseconds after the fault.
    pub bound_us: f64,
    /// Time in microseconds from the fault until goodput was back at 7/8 of its value before the
    /// fault; `None` if it was not back before the repair.
    pub back_us: Option<f64>,
    /// Time in microseconds from the fault until goodput was back at 7/8 of its value before the
    /// fault, and stayed there until the repair; `None` if this did not happen.
    pub steady_us: Option<f64>,
    /// Share of the recorded load that links other than the failed link carried before the fault;
    /// `None` if the load of the failed link was not recorded.
    pub left: Option<f64>,
    /// Time in microseconds from the fault until goodput reached 7/8 of the share `left` of its
    /// value before the fault, and stayed there until the repair; `None` if this did not happen.
    pub steady_of_left_us: Option<f64>,
    /// Goodput in the worst interval between fault and repair, relative to the goodput before the
    /// fault.
    pub worst: f64,
    /// Time in microseconds from the fault to the beginning of the worst interval.
    pub worst_us: f64,
    /// Mean goodput from the fault to the repair, relative to the goodput before the fault.
    pub during: f64,
    /// Mean goodput from the limit of the recovery time to the repair, relative to the goodput
    /// before the fault. In contrast to means of a few intervals, this mean varies little in a
    /// network at its capacity. `None` if the repair, or the end of the run, came before the limit.
    pub from_bound: Option<f64>,
    /// Mean goodput in the second half of the time after the repair, relative to the goodput before
    /// the fault; `None` if the run ended too early.
    pub repaired: Option<f64>,
    /// Time in microseconds from the repair until the link carried half of its load before the
    /// fault; `None` if it did not, or if its load was not recorded.
    pub used_again_us: Option<f64>,
    /// Length of an interval in microseconds.
    pub interval_us: f64,
    /// Goodput around the fault: start of each interval in microseconds from the fault, and bits
    /// per second in the interval.
    pub timeline: Vec<(f64, f64)>,
}

/// Returns the effects of all faults that break or slow links during a run. `rtt_us` is the
/// network's base round trip.
pub fn recoveries(series: &Series, faults: &[Fault], rtt_us: f64) -> Vec<Recovery> {
    let goodput = series.goodput_bps();
    let bound_us = BOUND_RTTS * rtt_us + BOUND_US;
    faults.iter().filter_map(|fault| recovery(series, &goodput, fault, bound_us)).collect()
}

fn recovery(series: &Series, goodput: &[f64], fault: &Fault, bound_us: f64) -> Option<Recovery> {
    let (Fault::LinkDown { links, at_us, until_us }
    | Fault::LinkSlow { links, at_us, until_us, .. }) = fault
    else {
        return None;
    };
    let interval_us = series.interval_ps as f64 / US as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    let bin = |us: f64| (us / interval_us).round() as usize;
    let (at, end) = (bin(*at_us), until_us.map_or(goodput.len(), bin).min(goodput.len()));
    if at < 2 * SMOOTH || end < at + 2 * SMOOTH {
        return None;
    }
    // Without goodput before the fault, there is nothing that could recover.
    let before_bps = Some(mean(&goodput[at / 2..at])).filter(|bps| *bps > 0.0)?;
    let after = &goodput[at..end];
    let time = |bin: usize| bin as f64 * interval_us;
    let (worst_bin, worst) = after.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1))?;
    let repaired = &goodput[end..];
    let load = Load::find(series, links, at);
    let left = load.as_ref().map(|l| 1.0 - l.share);
    let steady = |share: f64| steady(after, before_bps * share * RECOVERED).map(time);
    let shown = at.saturating_sub(bin(BEFORE_US))..goodput.len().min(at + bin(AFTER_US));
    Some(Recovery {
        links: links.clone(),
        at_us: *at_us,
        until_us: *until_us,
        before_bps,
        bound_us,
        back_us: back(after, before_bps * RECOVERED).map(time),
        steady_us: steady(1.0),
        left,
        steady_of_left_us: left.and_then(steady),
        worst: worst / before_bps,
        worst_us: time(worst_bin),
        during: mean(after) / before_bps,
        from_bound: after
            .get(bin(bound_us)..)
            .filter(|rest| !rest.is_empty())
            .map(|rest| mean(rest) / before_bps),
        repaired: (repaired.len() >= 2 * SMOOTH)
            .then(|| mean(&repaired[repaired.len() / 2..]) / before_bps),
        used_again_us: load.and_then(|l| l.back(series, end)).map(time),
        interval_us,
        timeline: shown.take(TIMELINE_MAX).map(|n| (time(n) - time(at), goodput[n])).collect(),
    })
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Returns the index of the first interval, after goodput has fallen below `level`, from which the
/// mean of a few intervals is at least `level`.
fn back(after: &[f64], level: f64) -> Option<usize> {
    let well = |w: &[f64]| mean(w) >= level;
    // Packets in flight still arrive, so goodput falls a little later than the link fails.
    let Some(dip) = after.windows(SMOOTH).position(|w| !well(w)) else { return Some(0) };
    after.windows(SMOOTH).skip(dip).position(well).map(|n| n + dip)
}

/// Returns the index of the first interval from which the mean of a few intervals stays at least at
/// `level` to the end.
fn steady(after: &[f64], level: f64) -> Option<usize> {
    let last_low = after.windows(SMOOTH).rposition(|w| mean(w) < level);
    let steady = last_low.map_or(0, |n| n + 1);
    (steady + SMOOTH <= after.len()).then_some(steady)
}

/// Load of the failed link before the fault.
struct Load {
    column: usize,
    bytes: f64,
    // Share of the link in the load of all recorded links.
    share: f64,
}

impl Recovery {
    /// Whether, after the limit of the recovery time, goodput was at least 7/8 of its value before
    /// the fault; `None` if no interval was recorded after the limit.
    pub fn is_used_from_bound(&self) -> Option<bool> {
        self.from_bound.map(|share| share >= RECOVERED)
    }
}

impl Load {
    /// Returns the load of the failed link before the interval `at`; `None` if the load was not
    /// recorded.
    fn find(series: &Series, links: &str, at: usize) -> Option<Self> {
        let plain = |name: &str| name.replace("->", "-");
        let column = series.loads.iter().position(|name| plain(name) == plain(links))?;
        let before = series.load_bytes.get(at / 2..at)?;
        let sum = |row: &Vec<u64>| row.iter().sum::<u64>() as f64;
        let bytes = mean(&before.iter().map(|row| row[column] as f64).collect::<Vec<_>>());
        let all = mean(&before.iter().map(sum).collect::<Vec<_>>());
        Some(Self { column, bytes, share: bytes / all.max(1.0) })
    }

    /// Returns the number of intervals from the repair, which is at `end`, until the link carried
    /// half of its load before the fault.
    fn back(&self, series: &Series, end: usize) -> Option<usize> {
        let column = |row: &Vec<u64>| row[self.column] as f64;
        let after: Vec<f64> = series.load_bytes.get(end..)?.iter().map(column).collect();
        after.windows(SMOOTH).position(|w| mean(w) >= self.bytes / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of bytes in 10 us at 100 Gb/s.
    const FULL: u64 = 125_000;

    /// Returns the recovery in a run with two links. The second link fails after 40 intervals and
    /// is repaired after 100 intervals.
    fn recovery_of(goodput: impl Fn(usize) -> f64) -> Recovery {
        recovery_until(1000.0, goodput).unwrap()
    }

    fn recovery_until(until_us: f64, goodput: impl Fn(usize) -> f64) -> Option<Recovery> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small
        let bytes = |n: usize| (goodput(n) * FULL as f64) as u64;
        let series = Series {
            interval_ps: 10 * US,
            at_ps: (1..=160).map(|n| n * 10 * US).collect(),
            flow_bytes: (0..160).map(|n| vec![bytes(n)]).collect(),
            loads: vec!["a->b".to_owned(), "a->c".to_owned()],
            load_bytes: (0..160)
                .map(|n| if (40..104).contains(&n) { vec![20, 0] } else { vec![10, 10] })
                .collect(),
            ..Series::default()
        };
        let fault =
            Fault::LinkDown { links: "a-c".to_owned(), at_us: 400.0, until_us: Some(until_us) };
        recoveries(&series, &[fault], 8.0).pop()
    }

    #[test]
    fn a_dip_and_its_end_are_found() {
        let r = recovery_of(|n| if (42..50).contains(&n) { 0.2 } else { 1.0 });
        assert!((r.before_bps - 100e9).abs() < 1e6 && (r.worst - 0.2).abs() < 1e-6);
        assert_eq!((r.bound_us, r.worst_us, r.left), (140.0, 20.0, Some(0.5)));
        assert_eq!((r.back_us, r.steady_us), (Some(100.0), Some(100.0)));
        assert_eq!(r.used_again_us, Some(20.0), "three of five intervals at a full load");
        assert_eq!(r.timeline.len(), 55);
        assert_eq!(r.timeline[0].0, -50.0);
    }

    #[test]
    fn a_second_dip_counts_against_staying_back() {
        let r = recovery_of(|n| if (42..50).contains(&n) || n == 80 { 0.2 } else { 1.0 });
        assert_eq!((r.back_us, r.steady_us), (Some(100.0), Some(410.0)));
        assert_eq!(r.steady_of_left_us, Some(70.0));
        // One of the 46 intervals from 140 us on has a fifth of the goodput.
        let from_bound = r.from_bound.unwrap();
        assert!((from_bound - (1.0 - 0.8 / 46.0)).abs() < 1e-6, "{from_bound}");
    }

    #[test]
    fn what_never_comes_back_has_no_time() {
        let r = recovery_of(|n| if (40..100).contains(&n) { 0.5 } else { 1.0 });
        assert_eq!((r.back_us, r.steady_us), (None, None));
        assert_eq!(r.steady_of_left_us, Some(0.0));
        assert!(r.repaired.is_some_and(|level| (level - 1.0).abs() < 1e-6));
    }

    /// In an earlier version, the goodput after a limit that was later than the repair was 0, which
    /// missed the goal.
    #[test]
    fn regression_a_repair_before_the_limit_leaves_nothing_to_judge_after_it() {
        let r = recovery_until(520.0, |_| 1.0).unwrap();
        assert_eq!((r.bound_us, r.from_bound, r.is_used_from_bound()), (140.0, None, None));
        let r = recovery_until(550.0, |_| 1.0).unwrap();
        assert!((r.from_bound.unwrap() - 1.0).abs() < 1e-6);
        assert_eq!(r.is_used_from_bound(), Some(true));
    }

    /// In an earlier version, the levels after the fault were infinite.
    #[test]
    fn regression_flows_that_start_after_the_fault_do_not_recover_from_it() {
        assert!(recovery_until(1000.0, |n| if n < 40 { 0.0 } else { 1.0 }).is_none());
    }
}
