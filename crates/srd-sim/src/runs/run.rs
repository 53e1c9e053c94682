//! Runs of the simulator. A run has one scenario, one transport and one seed; many runs execute on
//! all cores.
//!
//! Results are in the order of the jobs, and do not depend on the number of threads: every run is
//! single-threaded, and all its random values come from its seed. Only the value [`Cost`] of a run
//! depends on the machine.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use crate::engine::nic::Totals;
use crate::engine::node::{ENDLESS, FlowId};
use crate::engine::world::{ACK_BYTES, DropCause, Ended, HeldFlow, Observer, Series, World};
use crate::machines::any_node::AnyNode;
use crate::machines::roce;
use crate::runs::completion::Completion;
use crate::runs::ideal::Ideals;
use crate::runs::process::{peak_rss_bytes, thread_cpu_ns};
use crate::runs::report::fairness::{self, Shares};
use crate::runs::report::pauses::{Pauses, Victim};
use crate::runs::report::recovery::{self, Recovery};
use crate::scenario::{Scenario, ScenarioError, Transport};

/// Parameters of one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// The experiment: network, workload and faults.
    pub scenario: Scenario,
    /// Transport that every host uses.
    pub transport: Transport,
    /// Seed of all random values.
    pub seed: u64,
}

/// Quantiles of flow completion times, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct FctUs {
    /// Completion time of the fastest flow.
    pub min: f64,
    /// Median of the completion times of all flows.
    pub p50: f64,
    /// Mean of the completion times of all flows.
    pub mean: f64,
    /// Time that one in a hundred flows exceeds.
    pub p99: f64,
    /// Time that one in a thousand flows exceeds.
    pub p999: f64,
    /// Completion time of the slowest flow.
    pub max: f64,
}

/// Cost of a run; the only part of a result that does not follow from scenario and seed.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Cost {
    /// Elapsed time of the run, in seconds.
    pub wall_s: f64,
    /// CPU time of the run's thread, in seconds.
    pub cpu_s: f64,
    /// Number of transmissions of a packet over a link, per second of CPU time.
    pub packet_hops_per_cpu_s: f64,
    /// Peak memory of the whole process so far.
    pub peak_rss_bytes: u64,
}

/// Outcome of one flow.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowRecord {
    /// Number of the flow, or its label in a connection matrix.
    pub id: u32,
    /// Number of the host that sends the flow.
    pub src: u32,
    /// Number of the host that receives the flow.
    pub dst: u32,
    /// Application bytes of the flow; absent if the flow is endless.
    pub bytes: Option<u64>,
    /// Time in microseconds at which the flow started; absent if the flow did not start.
    pub start_us: Option<f64>,
    /// Time in microseconds from the start of the flow until the sender had the last
    /// acknowledgement; absent if the flow is unfinished.
    pub fct_us: Option<f64>,
    /// Ideal completion time of the flow in microseconds, with headers.
    pub ideal_us: f64,
    /// Application bytes of the flow that were delivered.
    pub delivered_bytes: u64,
    /// Number of pieces of the flow that the transport gave up.
    pub failed: u64,
    /// Number of pieces of the flow that arrived with changed content.
    pub damaged: u64,
}

/// Results of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunResult {
    /// Name of the scenario.
    pub scenario: String,
    /// Name of the transport.
    pub transport: &'static str,
    /// Seed of all random values of the run.
    pub seed: u64,
    /// Number of flows in the workload.
    pub flows: usize,
    /// Number of flows that did not finish before the end of the run. Endless flows do not count.
    pub unfinished: usize,
    /// Number of pieces of flows that the transport gave up.
    pub failed: u64,
    /// Number of pieces of flows that arrived with changed content.
    pub damaged: u64,
    /// Longest ideal completion time of a flow in microseconds: its payload on the bottleneck, and
    /// a round trip.
    pub ideal_us: f64,
    /// Longest ideal completion time of a flow in microseconds, with headers.
    pub ideal_wire_us: f64,
    /// Completion times of the flows that finished, in microseconds.
    pub fct_us: FctUs,
    /// Completion times of flows divided by each flow's ideal time for the payload alone.
    pub over_ideal: FctUs,
    /// Completion times of flows divided by each flow's ideal time with headers.
    pub over_ideal_wire: FctUs,
    /// Largest ratio of a flow's completion time to its ideal time with headers.
    pub max_over_ideal: f64,
    /// Completion time of the slowest flow divided by the completion time of the fastest flow.
    pub max_over_min: f64,
    /// Jain's fairness index of the flows' goodputs.
    pub jain: f64,
    /// Application bits per second that all flows together delivered, from the beginning to the end
    /// of the run.
    pub goodput_bps: f64,
    /// Application bits per second that the links of all senders, or of all receivers, can carry.
    pub ideal_goodput_bps: f64,
    /// Number of packets of any kind that hosts sent.
    pub packets: u64,
    /// Number of bytes that hosts sent, headers and acknowledgements included.
    pub wire_bytes: u64,
    /// Number of transmissions of a packet over a link.
    pub packet_hops: u64,
    /// Packets that the transports of all hosts sent.
    pub sent: SentCounts,
    /// Retransmitted data packets divided by all data packets.
    pub retransmitted_share: f64,
    /// Number of packets that did not arrive.
    pub drops: u64,
    /// Number of packets that did not arrive, by cause.
    pub drops_by_cause: BTreeMap<&'static str, u64>,
    /// Number of frames and packets that the cards of all hosts dropped, by the card's counter.
    /// Absent if the hosts have no cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_drops: Option<BTreeMap<&'static str, u64>>,
    /// Number of packets that switches marked (ECN).
    pub marked: u64,
    /// Number of packets that switches trimmed.
    pub trimmed: u64,
    /// Largest number of bytes that ever waited at a switch port.
    pub queue_bytes_max: u64,
    /// Number of times that a node's deadline was still due after it had been served: an error of
    /// the node.
    pub timer_livelocks: u64,
    /// Simulated time in microseconds at which the run ended.
    pub sim_end_us: f64,
    /// Whether every flow was done at the end.
    pub finished: bool,
    /// Time and memory that the run needed.
    #[serde(flatten)]
    pub cost: Cost,
    /// Outcome of every flow.
    #[serde(skip)]
    pub flow_records: Vec<FlowRecord>,
    /// Shares of flows relative to the fair share; absent unless all flows are endless, goodput was
    /// recorded over time, and there was no fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
    /// Effects of pause frames; absent unless the switches were lossless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pauses: Option<Pauses>,
    /// Result of the workload's schedule of operations; absent if the workload has no schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Completion>,
    /// Effects of faults on the goodput; empty unless goodput was recorded over time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recoveries: Vec<Recovery>,
    /// Values recorded over time; absent unless the scenario requests them.
    #[serde(skip)]
    pub series: Option<Series>,
    /// Packets of selected ports, as a file in the pcapng format; absent unless the scenario
    /// requests a capture.
    #[serde(skip)]
    pub capture: Option<Vec<u8>>,
}

/// Packets that the transports of all hosts sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SentCounts {
    /// Number of data packets sent, retransmissions included.
    pub data_packets: u64,
    /// Number of data packets that were retransmitted.
    pub retransmitted_packets: u64,
    /// Number of acknowledgements sent.
    pub ack_packets: u64,
    /// Number of retransmission timeouts.
    pub timeouts: u64,
}

impl RunResult {
    /// Returns descriptions of what went wrong in the run, such as unfinished flows; empty if
    /// nothing went wrong.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.unfinished > 0 {
            let open = self.flow_records.iter().filter(|f| f.bytes.is_some() && f.fct_us.is_none());
            let some: Vec<_> =
                open.take(10).map(|f| format!("{} ({}->{})", f.id, f.src, f.dst)).collect();
            let dots = if self.unfinished > some.len() { ", ..." } else { "" };
            complaints.push(format!(
                "{} of {} flows unfinished at {:.1} us: {}{dots}",
                self.unfinished,
                self.flows,
                self.sim_end_us,
                some.join(", ")
            ));
        }
        if let Some(schedule) = self.schedule.filter(|schedule| schedule.undone > 0) {
            let (undone, all) = (schedule.undone, schedule.operations);
            let end_us = self.sim_end_us;
            complaints.push(format!("{undone} of {all} operations undone at {end_us:.1} us"));
        }
        complaints.extend(self.pauses.as_ref().and_then(Pauses::deadlock));
        for (count, what) in [
            (self.failed, "datagrams failed"),
            (self.damaged, "datagrams arrived changed"),
            (self.timer_livelocks, "timer livelocks"),
        ] {
            if count > 0 {
                complaints.push(format!("{count} {what}"));
            }
        }
        complaints
    }
}

const US: f64 = 1e6;

/// Runs one job.
///
/// # Errors
/// If no world can be built from the scenario.
pub fn run(job: &Job) -> Result<RunResult, ScenarioError> {
    let result = run_while(job, &|| true)?;
    Ok(result.expect("a run that is always wanted is not stopped"))
}

/// Runs one job while `wanted` returns true. Returns `None` soon after `wanted` has returned false.
/// `wanted` is called every few milliseconds, except while the world is built.
///
/// # Errors
/// If no world can be built from the scenario.
pub fn run_while(job: &Job, wanted: &dyn Fn() -> bool) -> Result<Option<RunResult>, ScenarioError> {
    run_with(job, None, wanted)
}

/// Runs one job, and shows `observer` what happens in the world.
///
/// # Errors
/// If no world can be built from the scenario.
pub fn run_observed(job: &Job, observer: Box<dyn Observer>) -> Result<RunResult, ScenarioError> {
    let result = run_with(job, Some(observer), &|| true)?;
    Ok(result.expect("a run that is always wanted is not stopped"))
}

fn run_with(
    job: &Job,
    observer: Option<Box<dyn Observer>>,
    wanted: &dyn Fn() -> bool,
) -> Result<Option<RunResult>, ScenarioError> {
    let begin = std::time::Instant::now();
    let built = job.scenario.build(job.transport, job.seed)?;
    let (mut world, ideals, least_ps) = (built.world, built.ideals, built.schedule_least_ps);
    if let Some(observer) = observer {
        world.observe(observer);
    }
    let begin_cpu_ns = thread_cpu_ns();
    let Some(ended) = world.run_while(built.horizon_ps, wanted) else { return Ok(None) };
    let cpu_s = (thread_cpu_ns() - begin_cpu_ns) as f64 / 1e9;
    world.check_conservation().map_err(|e| ScenarioError(format!("packets are lost: {e}")))?;
    let mut result = summarise(job, &world, &ideals, ended);
    result.capture = world.take_capture();
    result.schedule = world.progress().zip(least_ps).map(|(p, ps)| Completion::of(p, ps));
    result.cost = Cost {
        wall_s: begin.elapsed().as_secs_f64(),
        cpu_s,
        packet_hops_per_cpu_s: if cpu_s > 0.0 { result.packet_hops as f64 / cpu_s } else { 0.0 },
        peak_rss_bytes: peak_rss_bytes(),
    };
    Ok(Some(result))
}

fn flow_records(world: &World<AnyNode>, ideals: &Ideals) -> Vec<FlowRecord> {
    let one = |(n, flow): (usize, &crate::engine::world::FlowState)| {
        let plan = &flow.plan;
        let number = u32::try_from(n).expect("fewer than 2^32 flows");
        let start_ps = flow.started_ps;
        let fct = |at_ps: u64| (at_ps - start_ps.unwrap_or(0)) as f64 / US;
        FlowRecord {
            id: if plan.label == 0 { number } else { plan.label },
            src: plan.src.0,
            dst: plan.dst.0,
            bytes: (plan.bytes != ENDLESS).then_some(plan.bytes),
            start_us: start_ps.map(|ps| ps as f64 / US),
            fct_us: flow.finished_ps.map(fct),
            ideal_us: ideals.of(n).1 as f64 / US,
            delivered_bytes: flow.delivered_bytes,
            failed: flow.failed,
            damaged: flow.damaged,
        }
    };
    world.flows().iter().enumerate().map(one).collect()
}

fn summarise(job: &Job, world: &World<AnyNode>, ideals: &Ideals, ended: Ended) -> RunResult {
    let records = flow_records(world, ideals);
    let end_us = world.now_ps() as f64 / US;
    let steady = job.scenario.fault.is_empty() && records.iter().all(|f| f.bytes.is_none());
    let finite = |f: &&FlowRecord| f.bytes.is_some();
    let done: Vec<(usize, f64)> =
        records.iter().enumerate().filter_map(|(n, f)| Some((n, f.fct_us?))).collect();
    let fct_us = quantiles(done.iter().map(|d| d.1).collect());
    let over = |pick: fn((u64, u64)) -> u64| {
        let ratio = |&(n, fct): &(usize, f64)| fct * US / pick(ideals.of(n)).max(1) as f64;
        quantiles(done.iter().map(ratio).collect())
    };
    let (over_ideal, over_ideal_wire) = (over(|i| i.0), over(|i| i.1));
    let mut sent = SentCounts::default();
    for Totals { data, again, acks, timeouts } in world.nodes().iter().map(AnyNode::sent) {
        sent.data_packets += data;
        sent.retransmitted_packets += again;
        sent.ack_packets += acks;
        sent.timeouts += timeouts;
    }
    let counters = world.counters();
    let delivered: u64 = records.iter().map(|f| f.delivered_bytes).sum();
    let (ideal_ps, ideal_wire_ps) = ideals.longest();
    let packet_bytes = u32::from(job.scenario.packet_bytes);
    let hash = |id: FlowId| {
        let plan = &world.flows()[id.index()].plan;
        roce::flow_hash(plan.src, plan.dst, id)
    };
    let victim = |held: &HeldFlow| victim(held, &records[held.flow.index()], end_us);
    let pauses = world.pauses(hash).map(|report| Pauses::new(report, victim));
    let rtt_us = world.topology().diameter_rtt_ps(packet_bytes, ACK_BYTES.into()) as f64 / US;
    RunResult {
        scenario: job.scenario.name.clone(),
        transport: job.transport.name(),
        seed: job.seed,
        flows: records.len(),
        unfinished: records.iter().filter(finite).count() - done.len(),
        failed: records.iter().map(|f| f.failed).sum(),
        damaged: records.iter().map(|f| f.damaged).sum(),
        ideal_us: ideal_ps as f64 / US,
        ideal_wire_us: ideal_wire_ps as f64 / US,
        fct_us,
        over_ideal,
        over_ideal_wire,
        max_over_ideal: over_ideal_wire.max,
        max_over_min: ratio(fct_us.max, fct_us.min),
        jain: jain(&records, end_us),
        goodput_bps: ratio(delivered as f64 * 8.0, end_us / 1e6),
        ideal_goodput_bps: ideals.goodput_bps(),
        packets: counters.injected,
        wire_bytes: world.host_bytes(),
        packet_hops: world.packet_hops(),
        sent,
        retransmitted_share: ratio(sent.retransmitted_packets as f64, sent.data_packets as f64),
        drops: counters.dropped_total(),
        drops_by_cause: DropCause::ALL
            .into_iter()
            .map(|(cause, name)| (name, counters.dropped[cause as usize]))
            .collect(),
        card_drops: card_drops(world),
        marked: counters.marked,
        trimmed: counters.trimmed,
        queue_bytes_max: world.queue_bytes_max(),
        timer_livelocks: counters.timer_livelocks,
        sim_end_us: end_us,
        finished: ended == Ended::Finished,
        cost: Cost::default(),
        flow_records: records,
        shares: world.series().filter(|_| steady).and_then(fairness::shares),
        pauses,
        schedule: None,
        recoveries: world
            .series()
            .map(|s| recovery::recoveries(s, &job.scenario.fault, rtt_us))
            .unwrap_or_default(),
        series: world.series().cloned(),
        capture: None,
    }
}

/// Returns the sums of the cards' counters of drops; `None` if no host has a card.
fn card_drops(world: &World<AnyNode>) -> Option<BTreeMap<&'static str, u64>> {
    let mut sums: Option<BTreeMap<&'static str, u64>> = None;
    for card in world.nodes().iter().filter_map(AnyNode::card) {
        for (name, dropped) in card.drops() {
            *sums.get_or_insert_default().entry(name).or_default() += dropped;
        }
    }
    sums
}

/// Describes a flow that pauses delayed, in a run that ended at `end_us`.
fn victim(held: &HeldFlow, flow: &FlowRecord, end_us: f64) -> Victim {
    let lasted_us = flow.fct_us.unwrap_or(end_us - flow.start_us.unwrap_or(0.0));
    let &HeldFlow { held_us, .. } = held;
    let &FlowRecord { id, src, dst, .. } = flow;
    Victim { flow: id, src, dst, held_us, held_share: ratio(held_us, lasted_us) }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// Returns quantiles of values by the nearest-rank method.
pub(crate) fn quantiles(mut values: Vec<f64>) -> FctUs {
    values.sort_by(f64::total_cmp);
    let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
        return FctUs::default();
    };
    let n = values.len();
    let at = |per_mille: usize| values[(n * per_mille).div_ceil(1000).clamp(1, n) - 1];
    let mean = values.iter().sum::<f64>() / n as f64;
    FctUs { min, p50: at(500), mean, p99: at(990), p999: at(999), max }
}

/// Returns Jain's index of the flows' goodputs. A goodput is the number of delivered bytes divided
/// by the completion time. An unfinished flow counts with the time until the end of the run.
fn jain(records: &[FlowRecord], end_us: f64) -> f64 {
    let rate = |f: &FlowRecord| {
        let start_us = f.start_us?;
        Some(ratio(f.delivered_bytes as f64, f.fct_us.unwrap_or(end_us - start_us)))
    };
    let rates: Vec<f64> = records.iter().filter_map(rate).collect();
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(s, q), r| (s + r, q + r * r));
    ratio(sum * sum, rates.len() as f64 * squares)
}

/// Function that is called after each finished job, with the number of finished jobs and the newest
/// result.
pub type Progress<'a> = &'a (dyn Fn(usize, &Result<RunResult, ScenarioError>) + Sync);

/// Runs jobs on `threads` threads. The results are in the order of the jobs.
pub fn run_all(
    jobs: &[Job],
    threads: usize,
    progress: Progress<'_>,
) -> Vec<Result<RunResult, ScenarioError>> {
    let results = run_all_while(jobs, threads, &|| true, progress);
    results.into_iter().map(|result| result.expect("every job was run")).collect()
}

/// Runs jobs as [`run_all`] does, while `wanted` returns true. A job that was not done when
/// `wanted` returned false has no result.
pub fn run_all_while(
    jobs: &[Job],
    threads: usize,
    wanted: &(dyn Fn() -> bool + Sync),
    progress: Progress<'_>,
) -> Vec<Option<Result<RunResult, ScenarioError>>> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let slots: Vec<_> = jobs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(|| {
                while wanted() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(number) else { return };
                    let Some(result) = run_while(job, wanted).transpose() else { return };
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, &result);
                    let mut slot = slots[number].lock().expect("no thread panics with the lock");
                    *slot = Some(result);
                }
            });
        }
    });
    let take =
        |slot: Mutex<Option<_>>| slot.into_inner().expect("no thread panicked with the lock");
    slots.into_iter().map(take).collect()
}

/// Returns the jobs of a scenario: every transport with every seed.
pub fn jobs(
    scenario: &Scenario,
    transports: &[Transport],
    seeds: std::ops::Range<u64>,
) -> Vec<Job> {
    let one = |transport| {
        seeds.clone().map(move |seed| Job { scenario: scenario.clone(), transport, seed })
    };
    transports.iter().copied().flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_not_wanted_any_more_ends_without_a_result() {
        let text = "topology = { kind = \"dumbbell\", side_hosts = 2 }\nhorizon_us = 1e9\n\
                    [[workload]]\nkind = \"tornado\"\nbytes = \"endless\"\n";
        let scenario = Scenario::read("test", text, std::path::Path::new("."), &[]).unwrap();
        let jobs = jobs(&scenario, &[Transport::Srd], 1..3);
        let asked = AtomicUsize::new(0);
        let wanted = || asked.fetch_add(1, Ordering::Relaxed) < 5;
        let results = run_all_while(&jobs, 1, &wanted, &|_, _| {});
        assert_eq!(results, [None, None]);
        assert_eq!(
            asked.load(Ordering::Relaxed),
            6,
            "once before the job, four times within it, and before the next"
        );
    }

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let q = quantiles((1..=100).map(f64::from).collect());
        assert_eq!((q.min, q.p50, q.p99, q.p999, q.max), (1.0, 50.0, 99.0, 100.0, 100.0));
        assert!((q.mean - 50.5).abs() < 1e-9);
        assert_eq!(quantiles(Vec::new()), FctUs::default());
        let one = quantiles(vec![3.0]);
        assert_eq!((one.min, one.p50, one.max), (3.0, 3.0, 3.0));
    }
}
