//! Completion time of a schedule of operations, and the ideal completion time.
//!
//! The ideal is the longest of three times. No transport can be faster than any of them:
//! 1. the longest chain of operations, with each message alone on its links;
//! 2. the total time of the calculations on the busiest processor;
//! 3. the time that a host's link needs for all bytes that the host sends, or for all bytes that it
//!    receives; the busiest host counts.
//!
//! The ideal time of a message is the time of its payload on the slower of the two hosts' links,
//! plus the latency of an empty network.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::engine::topology::Topology;
use crate::engine::world::{ACK_BYTES, Progress};
use crate::workload::schedule::LeastCost;
use crate::workload::{FlowPlan, Start, Workload};

/// Result of a schedule of operations.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Completion {
    /// Number of ranks that have operations.
    pub ranks: usize,
    /// Number of operations in the schedule.
    pub operations: usize,
    /// Number of operations that were not done when the run ended.
    pub undone: usize,
    /// Time in microseconds at which the last operation was done; absent if an operation was not
    /// done.
    pub completion_us: Option<f64>,
    /// Lower bound of the time in microseconds from the start of the schedule to the end of its
    /// last operation.
    pub ideal_us: f64,
    /// `completion_us` divided by `ideal_us`; absent if an operation was not done, or if the ideal
    /// is 0.
    pub over_ideal: Option<f64>,
    /// Time in microseconds at which half of the ranks had done their last operation. An unfinished
    /// rank counts with its last operation so far.
    pub median_rank_us: f64,
}

/// Picoseconds in a microsecond.
const US: f64 = 1e6;

impl Completion {
    /// Returns the result of a schedule that takes at least `ideal_ps` picoseconds.
    pub(crate) fn of(progress: &Progress, ideal_ps: u64) -> Self {
        let operations = &progress.schedule().operations;
        let ranks: BTreeSet<u32> = operations.iter().map(|operation| operation.rank).collect();
        let at = |rank: &u32| progress.done_ps().get(*rank as usize).copied().unwrap_or(0);
        let mut done: Vec<u64> = ranks.iter().map(at).collect();
        done.sort_unstable();
        let last_us = done.last().copied().unwrap_or(0) as f64 / US;
        let completion_us = progress.is_done().then_some(last_us);
        let ideal_us = ideal_ps as f64 / US;
        Self {
            ranks: done.len(),
            operations: operations.len(),
            undone: progress.left(),
            completion_us,
            ideal_us,
            over_ideal: completion_us.filter(|_| ideal_ps > 0).map(|us| us / ideal_us),
            median_rank_us: half_done_ps(&done) as f64 / US,
        }
    }
}

/// Returns the first of the given times, in ascending order, at which half of the ranks are done.
fn half_done_ps(done: &[u64]) -> u64 {
    let half = done.len().div_ceil(2);
    half.checked_sub(1).map_or(0, |at| done[at])
}

/// A network in which each message has its links to itself, for the computation of ideals.
struct Alone<'a> {
    topology: &'a Topology,
    flows: &'a [FlowPlan],
}

/// Returns the time that bytes take on a link, in picoseconds.
fn serialize_ps(bytes: u64, rate_bps: u64) -> u64 {
    let ps = u128::from(bytes) * 8_000_000_000_000 / u128::from(rate_bps.max(1));
    u64::try_from(ps).unwrap_or(u64::MAX)
}

impl LeastCost for Alone<'_> {
    fn flow_ps(&self, flow: u32) -> (u64, u64) {
        let FlowPlan { src, dst, bytes, .. } = self.flows[flow as usize];
        let (src, dst) = (src.0, dst.0);
        let rate_bps = self.topology.host_rate_bps(src).min(self.topology.host_rate_bps(dst));
        let (least, payload_ps) = (u32::from(ACK_BYTES), serialize_ps(bytes, rate_bps));
        let there_and_back_ps = self.topology.base_rtt_ps(src, dst, least, least);
        let arrives_ps = payload_ps.saturating_add(there_and_back_ps / 2);
        (arrives_ps, payload_ps.saturating_add(there_and_back_ps))
    }
}

/// Returns the earliest time at which the schedule of a workload can be complete, in picoseconds;
/// `None` if the workload has no schedule. If operations wait for each other in a circle, the
/// schedule never completes, and only the time of the busiest link counts.
pub(crate) fn least_ps(topology: &Topology, workload: &Workload) -> Option<u64> {
    let schedule = workload.schedule.as_ref()?;
    let alone = Alone { topology, flows: &workload.flows };
    let chain_ps = schedule.least_ps(workload.flows.len(), &alone).unwrap_or(0);
    let (mut sends, mut receives) =
        (vec![0_u64; topology.hosts as usize], vec![0_u64; topology.hosts as usize]);
    for flow in workload.flows.iter().filter(|flow| flow.start == Start::Scheduled) {
        let add = |sum: &mut u64| *sum = sum.saturating_add(flow.bytes);
        add(&mut sends[flow.src.index()]);
        add(&mut receives[flow.dst.index()]);
    }
    let link_ps = (0..)
        .zip(sends.iter().zip(&receives))
        .map(|(host, (out, into))| serialize_ps(*out.max(into), topology.host_rate_bps(host)));
    Some(chain_ps.max(link_ps.max().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::run::{Job, run};
    use crate::scenario::{Scenario, Transport};
    use crate::workload::goal::write::Collective;

    fn scenario(goal: &str) -> (tempfile::TempDir, Scenario) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.goal"), goal).unwrap();
        let text = "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 4\nleaf_hosts = 4\n\
                    [[workload]]\nkind = \"goal\"\npath = \"a.goal\"\n";
        let scenario = Scenario::read("test", text, directory.path(), &[]).unwrap();
        (directory, scenario)
    }

    fn completion(goal: &str, transport: Transport) -> Completion {
        let (_directory, scenario) = scenario(goal);
        let result = run(&Job { scenario, transport, seed: 1 }).unwrap();
        assert_eq!(result.complaints(), Vec::<String>::new());
        result.schedule.unwrap()
    }

    #[test]
    fn collectives_end_after_their_ideal_over_every_transport() {
        for (collective, name) in Collective::ALL {
            let goal = collective.write(8, 1 << 20).unwrap();
            for transport in [Transport::Srd, Transport::Dctcp, Transport::Efa] {
                let seen = completion(&goal, transport);
                assert_eq!((seen.ranks, seen.undone), (8, 0), "{name}");
                let ratio = seen.over_ideal.unwrap();
                assert!((1.0..2.5).contains(&ratio), "{name}, {transport:?}: {seen:?}");
            }
        }
    }

    #[test]
    fn calculations_of_a_processor_run_one_by_one_and_others_beside_them() {
        let one = "num_ranks 1\nrank 0 {\ncalc 3000\ncalc 4000\ncalc 5000 cpu 1\n}";
        let seen = completion(one, Transport::Srd);
        assert_eq!((seen.completion_us, seen.ideal_us), (Some(7.0), 7.0));
    }

    #[test]
    fn what_takes_no_time_is_complete_at_once() {
        let seen = completion("num_ranks 2\nrank 0 { calc 0 }\nrank 1 { calc 0 }", Transport::Srd);
        assert_eq!((seen.ranks, seen.operations, seen.undone), (2, 2, 0));
        assert_eq!((seen.completion_us, seen.over_ideal), (Some(0.0), None));
    }

    #[test]
    fn what_waits_begins_when_it_may_and_not_before() {
        let waits = |word: &str| {
            format!(
                "num_ranks 2\nrank 0 {{\na: send 125000b to 1\nb: calc 1000\nb {word} a\n}}\n\
                 rank 1 {{\na: calc 50000\nb: recv 125000b from 0\nb requires a\nc: calc 2000\n\
                 c requires b\n}}"
            )
        };
        // The message takes a little more than 10 us, but its receive begins at 50 us.
        let seen = completion(&waits("requires"), Transport::Srd);
        assert_eq!(seen.completion_us, Some(52.0));
        let (_directory, scenario) = scenario("num_ranks 2\nrank 0 { send 9b to 1 }\nrank 1 {}");
        let error = run(&Job { scenario, transport: Transport::Srd, seed: 1 }).unwrap_err();
        assert!(error.0.contains("a.goal: line 2: no receive fits"), "{error}");
        let early = completion(&waits("irequires"), Transport::Srd);
        assert_eq!(early.completion_us, Some(52.0));
    }

    /// In an earlier version, the median of two ranks was the time of the later one.
    #[test]
    fn regression_half_of_an_even_number_of_ranks_is_done_with_the_earlier_one() {
        let ranks = "num_ranks 2\nrank 0 { calc 1000 }\nrank 1 { calc 3000 }";
        let seen = completion(ranks, Transport::Srd);
        assert_eq!((seen.median_rank_us, seen.completion_us), (1.0, Some(3.0)));
        let odd = "num_ranks 3\nrank 0 { calc 1000 }\nrank 1 { calc 3000 }\nrank 2 { calc 9000 }";
        assert_eq!(completion(odd, Transport::Srd).median_rank_us, 3.0);
        assert_eq!(half_done_ps(&[]), 0);
    }

    /// In an earlier version, a flow that was not in the schedule ended the first operation, once
    /// when it arrived and once when it was acknowledged.
    #[test]
    fn regression_flows_beside_a_schedule_end_no_operations() {
        let text = "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 4\nleaf_hosts = 4\n\
                    [[workload]]\nkind = \"goal\"\npath = \"a.goal\"\n\
                    [[workload]]\nkind = \"pairs\"\npairs = [[1, 5], [2, 6]]\nbytes = 1000\n";
        let directory = tempfile::tempdir().unwrap();
        let goal = "num_ranks 1\nrank 0 {\na: calc 50000\nb: calc 2000\nb requires a\n}";
        std::fs::write(directory.path().join("a.goal"), goal).unwrap();
        let scenario = Scenario::read("test", text, directory.path(), &[]).unwrap();
        for (transport, _) in Transport::ALL {
            let result = run(&Job { scenario: scenario.clone(), transport, seed: 1 }).unwrap();
            assert_eq!(result.complaints(), Vec::<String>::new());
            assert_eq!(result.schedule.unwrap().completion_us, Some(52.0), "{transport:?}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_run() {
        let goal = Collective::AllToAll.write(8, 100_000).unwrap();
        assert_eq!(completion(&goal, Transport::Srd), completion(&goal, Transport::Srd));
    }

    #[test]
    fn a_schedule_that_does_not_end_before_the_horizon_is_a_complaint() {
        let (_directory, mut scenario) = scenario("num_ranks 1\nrank 0 { calc 2000000 }");
        scenario.horizon_us = 1000.0;
        let result = run(&Job { scenario, transport: Transport::Srd, seed: 1 }).unwrap();
        assert_eq!(result.complaints(), ["1 of 1 operations undone at 1000.0 us"]);
    }
}
