//! One long flow; the spine that it uses fails silently and heals again.
//!
//! The flow's spine is identified by the spines' counters while the flow runs. With MPTCP, the
//! busiest spine of the flow fails.

use super::single::{Flow, Interval, Throughput, single_flow_with};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use srd_lab::config::check;
use srd_lab::fabric::Fabric;
use srd_lab::status::SpineShare;
use std::thread;
use std::time::{Duration, Instant};

/// Time for which the counters of the sender's leaf are watched to identify the flow's spine.
const WATCH: Duration = Duration::from_millis(200);
/// Earliest time of the failure: earlier, the counters may not show the flow yet.
const FAIL_AT_MS_MIN: u64 = 500;

/// Parameters of a failover measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Failover {
    /// The flow that is measured; it must last longer than the failure.
    pub flow: Flow,
    /// Time of the spine's failure, in ms since the start of the flow.
    pub fail_at_ms: u64,
    /// Time of the spine's repair, in ms since the start of the flow.
    pub heal_at_ms: u64,
}

impl Default for Failover {
    fn default() -> Self {
        let flow = Flow { seconds: 12, ..Flow::default() };
        Failover { flow, fail_at_ms: 2000, heal_at_ms: 5000 }
    }
}

/// Results of a failover measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailoverResult {
    /// Delivered bytes of the flow over time.
    pub throughput: Throughput,
    /// The spine that failed, and the number of bytes that each spine carried just before.
    pub spine: SpineShare,
    /// Time at which the failure of the spine was complete, in ms since the start of the flow.
    pub failed_ms: u64,
    /// Time at which the repair of the spine was complete, in ms since the start of the flow.
    pub healed_ms: u64,
    /// The longest time without a delivered byte since the failure, in ms: a number of whole
    /// intervals of the measurement.
    pub silence_ms: u64,
    /// Whether delivery resumed: after the longest silence, further bytes arrived before the end of
    /// the flow.
    pub recovered: bool,
}

/// Returns the duration in ms of the longest run of intervals without a byte that ends after
/// `since_ms`. A run that began earlier counts from `since_ms` on; a run may last to the end of the
/// timeline.
#[must_use]
pub fn silence_ms(intervals: &[Interval], interval_ms: u64, since_ms: u64) -> u64 {
    let (mut longest, mut run) = (0, 0);
    for (start, bytes) in intervals.iter().filter(|(start, _)| start + interval_ms > since_ms) {
        let counted = start + interval_ms - since_ms.max(*start);
        run = if *bytes == 0 { run + counted } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// Runs a flow, lets the spine that it uses fail, heals the spine, and reports the longest silence.
/// The spine is healed even if the measurement fails.
pub fn failover(fabric: &Fabric, failover: &Failover) -> Result<FailoverResult> {
    let Failover { flow, fail_at_ms, heal_at_ms } = *failover;
    let end_ms = flow.seconds.saturating_mul(1000);
    check("heal_at_ms", heal_at_ms, FAIL_AT_MS_MIN + 1..=end_ms)?;
    check("fail_at_ms", fail_at_ms, FAIL_AT_MS_MIN..=heal_at_ms - 1)?;
    let at = |start: Instant, ms| start + Duration::from_millis(ms);
    let break_and_heal = |start: Instant| {
        sleep_until(at(start, fail_at_ms).checked_sub(WATCH).unwrap_or(start));
        let spine = fabric.busiest_spine(flow.from.leaf, WATCH)?;
        sleep_until(at(start, fail_at_ms));
        let healing = HealOnDrop { fabric, spine: spine.busiest };
        fabric.fail_spine(spine.busiest)?;
        let failed_ms = ms_since(start);
        sleep_until(at(start, heal_at_ms));
        drop(healing);
        Ok((spine, failed_ms, ms_since(start)))
    };
    let (throughput, (spine, failed_ms, healed_ms)) =
        single_flow_with(fabric, &flow, break_and_heal)?;
    let silence_ms = silence_ms(&throughput.intervals, flow.interval_ms, failed_ms);
    let last_byte_ms =
        throughput.intervals.iter().rfind(|(_, bytes)| *bytes > 0).map_or(0, |i| i.0);
    let quiet_at_the_end_ms = end_ms - flow.interval_ms.min(end_ms) - last_byte_ms;
    let recovered = quiet_at_the_end_ms < silence_ms.max(flow.interval_ms);
    Ok(FailoverResult { throughput, spine, failed_ms, healed_ms, silence_ms, recovered })
}

/// Heals a failed spine when dropped.
pub(crate) struct HealOnDrop<'a> {
    pub(crate) fabric: &'a Fabric,
    pub(crate) spine: u16,
}

impl Drop for HealOnDrop<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.fabric.heal_spine(self.spine) {
            tracing::error!("spine {} stays failed: {error:#}", self.spine);
        }
    }
}

/// Sleeps until a moment; returns at once if it has passed.
pub(crate) fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}

fn ms_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(bytes: &[u64]) -> Vec<Interval> {
        (0u64..).zip(bytes).map(|(i, bytes)| (i * 5, *bytes)).collect()
    }

    #[test]
    fn silence_is_the_longest_empty_run_after_the_failure() {
        let line = timeline(&[0, 0, 0, 0, 9, 9, 0, 9, 0, 0, 9]);
        assert_eq!(silence_ms(&line, 5, 20), 10);
        assert_eq!(silence_ms(&line, 5, 42), 8);
    }

    #[test]
    fn silence_that_never_ends_lasts_to_the_end() {
        assert_eq!(silence_ms(&timeline(&[9, 9, 0, 0, 0]), 5, 10), 15);
        assert_eq!(silence_ms(&timeline(&[9, 9]), 5, 0), 0);
    }
}
