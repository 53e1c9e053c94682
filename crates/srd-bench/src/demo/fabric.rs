//! Three parts of the demonstration in a fabric of network namespaces, with kernel TCP and SRD in
//! turns: one flow (a), an incast (b), and a failed spine (c).

use super::srd_incast::{self, SrdIncast};
use super::srd_probe::{self, Flow, Setup};
use super::story::{CUBIC, Contestant, Failover, Incast, IncastRun, Single, Story, size};
use super::{Options, Part, Say};
use crate::tcp::{self, Congestion, HealOnDrop, sleep_until};
use anyhow::Result;
use srd_lab::{Fabric, FabricConfig, HostId, priority};
use std::thread;
use std::time::{Duration, Instant};

const FROM: HostId = HostId { leaf: 0, host: 0 };
const TO: HostId = HostId { leaf: 1, host: 0 };
/// Length of an interval of the timelines.
const INTERVAL_MS: u64 = 5;
/// Number of MPTCP subflows in addition to the first subflow.
const EXTRA_SUBFLOWS: u16 = 4;
/// Linux's default for the minimum retransmission timeout.
const RTO_MIN_DEFAULT_MS: u32 = 200;
/// Longest wait for another measurement on this machine to end.
const TURN_MAX: Duration = Duration::from_secs(60);
/// Time for which a leaf's counters are observed to find the spine that the flow uses.
const WATCH: Duration = Duration::from_millis(200);
/// Number of flows of each sending host.
const FLOWS: u16 = 12;
/// Pause between two rounds of an incast, in milliseconds.
const GAP_MS: u64 = 50;

const MPTCP: Contestant = Contestant::Mptcp { subflows: EXTRA_SUBFLOWS + 1 };
const ONE_FLOW: [Contestant; 4] = [CUBIC, Contestant::Bbr, MPTCP, Contestant::Srd];
const INCAST: [Contestant; 6] = [
    CUBIC,
    Contestant::Cubic { rto_min_ms: 50 },
    Contestant::Cubic { rto_min_ms: 5 },
    Contestant::Bbr,
    MPTCP,
    Contestant::Srd,
];

/// Parameters of one of the incasts.
struct Course {
    bytes: u64,
    rounds: usize,
    limit_s: u64,
    /// Number of times that all compared transports are measured, one after the other.
    passes: usize,
}

/// Runs all parts that the user has selected.
pub(super) fn measure(options: &Options, say: Say<'_>) -> Result<Story> {
    let scale = options.seconds_scale;
    let setup = Setup::new(options.plain)?;
    let quarter = FabricConfig { name_prefix: "demo".into(), ..FabricConfig::default() };
    let full = FabricConfig { uplink_rate_mbps: quarter.host_rate_mbps, ..quarter.clone() };
    let mut story = Story {
        uplinks_mbps: f64::from(quarter.uplink_rate_mbps) * f64::from(quarter.spines),
        setting: vec![describe(&quarter, options.plain), conditions()],
        ..Story::default()
    };
    say(&format!("{}\n", story.setting.join("\n")))?;
    let _priority = priority::raise(TURN_MAX)?;
    if options.wants(Part::OneFlow) || options.wants(Part::Failover) {
        let fabric = Fabric::up_guarded(quarter)?;
        if options.wants(Part::OneFlow) {
            story.singles = singles(&fabric, &setup, scale, say)?;
        }
        if options.wants(Part::Failover) {
            story.failovers = failovers(&fabric, &setup, scale, say)?;
        }
        fabric.down()?;
    }
    if options.wants(Part::Incast) {
        let fabric = Fabric::up_guarded(full)?;
        for course in &courses(scale) {
            story.incasts.push(incast(&fabric, &setup, course, say)?);
        }
        fabric.down()?;
    }
    if options.wants(Part::Program) {
        story.programs = super::program::measure(scaled(8.0, scale, 3), options.plain, say)?;
    }
    if options.wants(Part::Cloud) {
        story.cloud = super::cloud::measure(say)?;
    }
    Ok(story)
}

fn courses(scale: f64) -> [Course; 2] {
    let passes = |at_scale_one: f64| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a small number
        let passes = (at_scale_one * scale).round().max(1.0) as usize;
        passes
    };
    [
        Course { bytes: 2 << 20, rounds: 2, limit_s: 8, passes: passes(1.0) },
        Course { bytes: 512 << 10, rounds: 3, limit_s: 4, passes: passes(2.0) },
    ]
}

/// Returns the result of a contestant. If this kernel does not support it, for example bbr, prints
/// the reason and returns `None`.
fn or_left_out<T>(contestant: Contestant, seen: Result<T>, say: Say<'_>) -> Result<Option<T>> {
    match seen {
        Ok(seen) => Ok(Some(seen)),
        Err(error) if contestant == Contestant::Srd => Err(error),
        Err(error) => {
            say(&format!("    {:<24} left out: {error:#}", contestant.to_string()))?;
            Ok(None)
        }
    }
}

fn describe(config: &FabricConfig, plain: bool) -> String {
    format!(
        "{} leaves x {} hosts at {} Mb/s, {} spines; uplinks at {} Mb/s for (a) and (c), at {} \
         Mb/s for (b); queues of {} bytes per port, drop-tail, no marks; MTU {}. ECMP by the \
         5-tuple. TCP runs as the kernel has it; SRD runs in user space over UDP sockets, {}, on \
         threads of real-time priority, as TCP runs in the kernel's interrupts.",
        config.leaves,
        config.hosts_per_leaf,
        config.host_rate_mbps,
        config.spines,
        config.uplink_rate_mbps,
        config.host_rate_mbps,
        config.queue_bytes,
        config.mtu,
        if plain { "plain" } else { "authenticated and encrypted (AES-256-GCM)" }
    )
}

fn conditions() -> String {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "Linux {}, {cores} cores; other load on the machine makes every figure worse.",
        kernel.trim()
    )
}

fn scaled(seconds: f64, scale: f64, least_s: u64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    let seconds = (seconds * scale).round() as u64;
    seconds.max(least_s)
}

fn singles(fabric: &Fabric, setup: &Setup, scale: f64, say: Say<'_>) -> Result<Vec<Single>> {
    say("(a) one flow")?;
    let seconds = scaled(3.0, scale, 1);
    let mut singles: Vec<Single> =
        ONE_FLOW.into_iter().map(|contestant| Single { contestant, mbps: Vec::new() }).collect();
    for _ in 0..2 {
        for single in &mut singles {
            let mbps = one_flow(fabric, setup, single.contestant, seconds);
            let Some(mbps) = or_left_out(single.contestant, mbps, say)? else { continue };
            say(&format!("    {:<24} {mbps:>6.0} Mb/s", single.contestant.to_string()))?;
            single.mbps.push(mbps);
        }
    }
    Ok(singles)
}

/// Returns the goodput of one flow in Mb/s. The first fifth of its time is the start-up, and is
/// skipped for every contestant.
fn one_flow(fabric: &Fabric, setup: &Setup, contestant: Contestant, seconds: u64) -> Result<f64> {
    let intervals = match tcp_flow(contestant, seconds) {
        Some(flow) => tcp::single_flow(fabric, &flow)?.intervals,
        None => srd_probe::single_flow(fabric, setup, &srd_flow(seconds), |_| Ok(()))?.0,
    };
    let skipped = intervals.len() / 5;
    let counted = &intervals[skipped..];
    let bytes: u64 = counted.iter().map(|(_, bytes)| bytes).sum();
    let ms = counted.len() as u64 * INTERVAL_MS;
    Ok(bytes as f64 * 8.0 / 1e3 / ms.max(1) as f64)
}

fn srd_flow(seconds: u64) -> Flow {
    let lasts = Duration::from_secs(seconds);
    Flow { from: FROM, to: TO, lasts, interval_ms: INTERVAL_MS }
}

/// Returns the parameters of a contestant's flow of kernel TCP; `None` if the contestant is SRD.
fn tcp_flow(contestant: Contestant, seconds: u64) -> Option<tcp::Flow> {
    let (congestion, mptcp_subflows) = kernel(contestant)?;
    Some(tcp::Flow {
        from: FROM,
        to: TO,
        seconds,
        congestion,
        mptcp_subflows,
        interval_ms: INTERVAL_MS,
        ..tcp::Flow::default()
    })
}

/// Returns congestion control and number of extra subflows of a contestant of kernel TCP; `None` if
/// it is SRD.
fn kernel(contestant: Contestant) -> Option<(Congestion, u16)> {
    match contestant {
        Contestant::Cubic { .. } => Some((Congestion::Cubic, 0)),
        Contestant::Bbr => Some((Congestion::Bbr, 0)),
        Contestant::Mptcp { .. } => Some((Congestion::Cubic, EXTRA_SUBFLOWS)),
        Contestant::Srd | Contestant::OnePath => None,
    }
}

fn failovers(fabric: &Fabric, setup: &Setup, scale: f64, say: Say<'_>) -> Result<Vec<Failover>> {
    say("(c) a spine dies")?;
    let seconds = scaled(6.0, scale, 3);
    let (fail_at_ms, heal_at_ms) = (seconds * 1000 / 6, seconds * 1000 / 2);
    let fail_at_ms = fail_at_ms.max(500);
    let mut failovers = Vec::new();
    for contestant in ONE_FLOW {
        let run = match tcp_flow(contestant, seconds) {
            Some(flow) => {
                tcp_failover(fabric, contestant, &tcp::Failover { flow, fail_at_ms, heal_at_ms })
            }
            None => srd_failover(fabric, setup, seconds, fail_at_ms, heal_at_ms),
        };
        let Some(run) = or_left_out(contestant, run, say)? else { continue };
        say(&format!(
            "    {:<24} silent for {} ms, {:.0} Mb/s while the spine is dead",
            contestant.to_string(),
            run.silence(),
            run.mbps_between(run.failed_ms, run.healed_ms)
        ))?;
        failovers.push(run);
    }
    Ok(failovers)
}

fn tcp_failover(
    fabric: &Fabric,
    contestant: Contestant,
    failover: &tcp::Failover,
) -> Result<Failover> {
    let seen = tcp::failover(fabric, failover)?;
    Ok(Failover {
        contestant,
        failed_ms: seen.failed_ms,
        healed_ms: seen.healed_ms,
        silence_ms: seen.silence_ms,
        interval_ms: INTERVAL_MS,
        intervals: seen.throughput.intervals,
    })
}

fn srd_failover(
    fabric: &Fabric,
    setup: &Setup,
    seconds: u64,
    fail_at_ms: u64,
    heal_at_ms: u64,
) -> Result<Failover> {
    let break_and_heal = |start: Instant| {
        let at = |ms| start + Duration::from_millis(ms);
        let ms_since = || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        sleep_until(at(fail_at_ms).checked_sub(WATCH).unwrap_or(start));
        let spine = fabric.busiest_spine(FROM.leaf, WATCH)?.busiest;
        sleep_until(at(fail_at_ms));
        let healing = HealOnDrop { fabric, spine };
        fabric.fail_spine(spine)?;
        let failed_ms = ms_since();
        sleep_until(at(heal_at_ms));
        drop(healing);
        Ok((failed_ms, ms_since()))
    };
    let (intervals, (failed_ms, healed_ms)) =
        srd_probe::single_flow(fabric, setup, &srd_flow(seconds), break_and_heal)?;
    Ok(Failover {
        contestant: Contestant::Srd,
        failed_ms,
        healed_ms,
        silence_ms: tcp::silence_ms(&intervals, INTERVAL_MS, failed_ms),
        interval_ms: INTERVAL_MS,
        intervals,
    })
}

fn incast(fabric: &Fabric, setup: &Setup, course: &Course, say: Say<'_>) -> Result<Incast> {
    say(&format!("(b) incast, 48 x {} -> 1", size(course.bytes)))?;
    let mut runs: Vec<IncastRun> = Vec::new();
    for _ in 0..course.passes {
        for contestant in INCAST {
            let run = incast_run(fabric, setup, course, contestant);
            let Some(run) = or_left_out(contestant, run, say)? else { continue };
            let ratio = |ratio: Option<f64>| ratio.map_or("-".into(), |r| format!("{r:.2}x"));
            say(&format!(
                "    {:<24} slowest {} of the ideal, at worst {}",
                contestant.to_string(),
                ratio(run.median_ratio()),
                ratio(run.worst_ratio())
            ))?;
            match runs.iter_mut().find(|earlier| earlier.contestant == contestant) {
                Some(earlier) => earlier.rounds_ms.extend(run.rounds_ms),
                None => runs.push(run),
            }
        }
    }
    Ok(Incast { bytes: course.bytes, runs })
}

fn incast_run(
    fabric: &Fabric,
    setup: &Setup,
    course: &Course,
    contestant: Contestant,
) -> Result<IncastRun> {
    let senders: Vec<HostId> = (0..4).map(|host| HostId { leaf: 0, host }).collect();
    let limit_ms = course.limit_s as f64 * 1e3;
    let Some((congestion, mptcp_subflows)) = kernel(contestant) else {
        let incast = SrdIncast {
            senders,
            flows_per_sender: FLOWS,
            receiver: TO,
            bytes: course.bytes,
            rounds: course.rounds,
            gap: Duration::from_millis(GAP_MS),
            limit: Duration::from_secs(course.limit_s),
        };
        let seen = srd_incast::run(fabric, setup, &incast)?;
        let (ideal_ms, rounds_ms) = (seen.ideal_ms, seen.rounds_ms);
        return Ok(IncastRun { contestant, ideal_ms, rounds_ms, limit_ms });
    };
    let rto_min_ms = match contestant {
        Contestant::Cubic { rto_min_ms } => rto_min_ms,
        _ => RTO_MIN_DEFAULT_MS,
    };
    fabric.set_rto_min_ms(rto_min_ms)?;
    let incast = tcp::Incast {
        senders,
        flows_per_sender: FLOWS.into(),
        receiver: TO,
        bytes: course.bytes,
        rounds: course.rounds,
        congestion,
        mptcp_subflows,
        gap_ms: GAP_MS,
        round_limit_s: course.limit_s,
        ..tcp::Incast::default()
    };
    let seen = tcp::barrier_incast(fabric, &incast)?;
    let ms = |us: u64| us as f64 / 1e3;
    let round = |round: &tcp::Round| round.fct_us.iter().map(|fct| fct.map(ms)).collect();
    let rounds_ms = seen.rounds.iter().map(round).collect();
    Ok(IncastRun { contestant, ideal_ms: ms(seen.ideal_us), rounds_ms, limit_ms })
}
