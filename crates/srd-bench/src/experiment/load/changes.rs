//! Changes while a load runs: neighbours start and end their flows, links slow down and recover.
//!
//! The time is divided into [`PHASES`] of equal length. Neighbours are active in two of them. Half
//! of the uplinks of the client's leaf have a tenth of their rate for two phases; in the second of
//! these the neighbours are active, so that the load exceeds the capacity of the remaining links.

use crate::experiment::Stage;
use crate::experiment::load::elephants::FLOWS_PER_PAIR;
use crate::experiment::measure::requests::Clock;
use crate::experiment::measure::result::Figure;
use crate::experiment::show::BUSY_MAX;
use crate::tcp::LongFlows;
use anyhow::Result;
use srd_lab::config::FabricConfig;
use srd_lab::id::{HostId, LinkId};
use srd_lab::priority::CpuMeter;
use std::ops::Range;
use std::time::Duration;

/// Names of the phases, in order.
pub(in crate::experiment) const PHASES: [&str; 6] =
    ["quiet", "neighbours", "quiet again", "slow links", "slow links, neighbours", "recovered"];
/// Numbers of the phases in which the neighbours are active.
const NEIGHBOURS: [u32; 2] = [1, 4];
/// Numbers of the first and the last phase with slow links.
const SLOW: [u32; 2] = [3, 4];
/// Divisor of the rate of a slow link.
const SLOW_PART: u32 = 10;
/// Length of an interval in which the neighbours' bytes are counted; only their mean is used.
const INTERVAL_MS: u64 = 100;

/// Schedule of the changes in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::experiment) struct Changes {
    leaf: u16,
    pairs: Vec<(HostId, HostId)>,
    phase: Duration,
}

/// Times and effects of the changes in one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::experiment) struct ChangeResults {
    /// Start of each phase except the first in milliseconds since the start of the load, and its
    /// name.
    pub(in crate::experiment) marks: Vec<(u64, String)>,
    /// Mean goodput of the neighbours in Mb/s while they were active.
    pub(in crate::experiment) elephants_mbps: f64,
    /// Busy share of the machine's processors in each phase, 0 to 1.
    pub(in crate::experiment) busy: Vec<f64>,
}

impl ChangeResults {
    /// Returns the busy share of the processors in each phase, and a note for each phase in which
    /// they were so busy that its latencies may be the machine's. The mean of the whole run does
    /// not show such a phase.
    pub(in crate::experiment) fn processors(&self) -> (Vec<Figure>, Vec<String>) {
        let (mut figures, mut notes) = (Vec::new(), Vec::new());
        for (phase, share) in PHASES.into_iter().zip(&self.busy) {
            let percent = share * 100.0;
            figures.push(Figure::new(format!("CPU, {phase}"), "%", percent));
            if *share > BUSY_MAX {
                notes.push(format!(
                    "{phase}: {percent:.0} % of all CPU were busy; its latencies may be the \
                     machine's"
                ));
            }
        }
        (figures, notes)
    }
}

impl Changes {
    /// Creates a schedule for a run of length `time`. `pairs` are the neighbours, and the slow
    /// links are those of `leaf`.
    pub(in crate::experiment) fn new(
        leaf: u16,
        pairs: &[(HostId, HostId)],
        time: Duration,
    ) -> Changes {
        Changes { leaf, pairs: pairs.to_vec(), phase: time / 6 }
    }

    /// Returns the start and the end of a phase, counted from the start of the load.
    pub(in crate::experiment) fn phase(&self, number: u32) -> Range<Duration> {
        self.phase * number..self.phase * (number + 1)
    }

    /// Applies all changes at their times. Returns at the end of the last phase.
    pub(in crate::experiment) fn make(
        &self,
        stage: &Stage<'_>,
        clock: &Clock<'_>,
    ) -> Result<ChangeResults> {
        let mut seen = ChangeResults::default();
        let links = self.slow_links(stage.fabric.config());
        for number in 0..u32::try_from(PHASES.len())? {
            clock.sleep_until(self.phase(number).start)?;
            if number == SLOW[0] {
                let slow_mbps = (stage.fabric.config().uplink_rate_mbps / SLOW_PART).max(1);
                for link in &links {
                    stage.fabric.slow_link(*link, slow_mbps)?;
                }
            }
            if number == SLOW[1] + 1 {
                for link in &links {
                    stage.fabric.heal_link(*link)?;
                }
            }
            if number > 0 {
                let at = u64::try_from(clock.start.elapsed().as_millis())?;
                seen.marks.push((at, PHASES[number as usize].into()));
            }
            let (cpu, end) = (CpuMeter::start()?, self.phase(number).end);
            if NEIGHBOURS.contains(&number) {
                let mbps = self.neighbours(stage, clock, end)?;
                seen.elephants_mbps += mbps / NEIGHBOURS.len() as f64;
            } else {
                clock.sleep_until(end)?;
            }
            seen.busy.push(cpu.stop()?.busy_share());
        }
        Ok(seen)
    }

    fn neighbours(&self, stage: &Stage<'_>, clock: &Clock<'_>, until: Duration) -> Result<f64> {
        let flows = stage.flows(&self.pairs, FLOWS_PER_PAIR);
        let flows = LongFlows { flows, interval_ms: INTERVAL_MS };
        let (seen, ()) = flows.run(stage.fabric, |_| clock.sleep_until(until))?;
        Ok(seen.mbps_between(0, u64::MAX))
    }

    /// Returns the links that slow down: half of the leaf's links to spines, at least one.
    fn slow_links(&self, config: &FabricConfig) -> Vec<LinkId> {
        let count = (config.spines / 2).max(1);
        (0..count).map(|spine| LinkId { leaf: self.leaf, spine }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_fill_the_time_and_half_of_the_links_slow_down() {
        let changes = Changes::new(0, &[], Duration::from_secs(60));
        assert_eq!(changes.phase(0).start, Duration::ZERO);
        assert_eq!(changes.phase(5).end, Duration::from_secs(60));
        assert!((0..5).all(|n| changes.phase(n).end == changes.phase(n + 1).start));
        let links = |spines| {
            let config = FabricConfig { spines, ..FabricConfig::default() };
            changes.slow_links(&config)
        };
        assert_eq!(links(4), [0, 1].map(|spine| LinkId { leaf: 0, spine }));
        assert_eq!(links(1).len(), 1, "the only one");
    }

    #[test]
    fn a_phase_that_uses_up_the_processors_is_named_though_the_mean_is_low() {
        let busy = vec![0.4, 0.97, 0.4, 0.4, 0.7, 0.4];
        let (figures, notes) = ChangeResults { busy, ..ChangeResults::default() }.processors();
        let names: Vec<_> = figures.iter().map(|figure| &*figure.name).collect();
        let expected = PHASES.map(|phase| format!("CPU, {phase}"));
        assert_eq!(names, expected);
        assert!((figures[1].value - 97.0).abs() < 1e-9);
        assert_eq!(
            notes,
            ["neighbours: 97 % of all CPU were busy; its latencies may be the machine's"]
        );
    }

    #[test]
    fn neighbours_come_twice_once_beside_links_that_are_whole() {
        let slow = SLOW[0]..=SLOW[1];
        let beside: Vec<_> = NEIGHBOURS.iter().map(|phase| slow.contains(phase)).collect();
        assert_eq!(beside, [false, true]);
        assert_eq!(PHASES[SLOW[0] as usize], "slow links");
        assert_eq!(PHASES[(SLOW[1] + 1) as usize], "recovered");
    }
}
