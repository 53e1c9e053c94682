//! The experiment `failover`: during a transfer, a path fails silently or slows down, or a daemon
//! crashes.
//!
//! The busiest spine fails; it is determined while the flows run. Therefore a single flow always
//! uses the spine that fails.

use crate::experiment::measure::result::{Figure, Measured, Timeline};
use crate::experiment::{Case, Experiment, Options, Stage, Variant, describe};
use crate::tcp::{LongFlows, Timelines};
use anyhow::{Context, Result};
use srd_lab::config::FabricConfig;
use srd_lab::id::{HostId, LinkId};
use std::thread;
use std::time::{Duration, Instant};

const FROM: HostId = HostId { leaf: 0, host: 0 };
const TO: HostId = HostId { leaf: 1, host: 0 };
/// Length of an interval in which the receiver counts bytes, which limits the precision of a
/// silence.
const INTERVAL_MS: u64 = 5;
/// Length of a step in the chart.
const STEP_MS: u64 = 50;
/// Time for which the leaf's counters are observed to find the busiest spine.
const WATCH: Duration = Duration::from_millis(300);
/// Silence of a flow beyond which it counts as stalled.
const STALL_MS: u64 = 100;
/// Time between the end of a daemon and its restart.
const AWAY: Duration = Duration::from_millis(500);
/// Divisor of the rate of a slow link.
const SLOW_PART: u32 = 10;
/// Time in milliseconds after a link has slowed down that is not counted, because transports adapt
/// during this time; but at most half of the outage.
const ADAPT_MS: u64 = 1000;

/// The experiment `failover`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "failover",
    summary: "For how long does a transfer stop when a spine dies silently, slows down, or srd \
              itself crashes?",
    about: "Long TCP flows from one host to another over four paths of a quarter of the host's \
            link. After two seconds the spine that carries most of them swallows everything, \
            silently, for six seconds; or its link falls to a tenth of its rate; or (with Express) \
            the sender's daemon is killed and started again half a second later. Silence is the \
            longest time without a byte at the receiving application, known to 5 ms, of the flow \
            that suffers most.",
    repetitions: 3,
    variants: crate::experiment::variant::USUAL,
    programs: |_| Vec::new(),
    cases,
};

/// Kinds of failures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    SpineDies,
    LinkSlows,
    DaemonCrashes,
}

/// Plan of a run: kind of failure, number of flows, and durations before, during and after the
/// failure.
#[derive(Clone, Copy, Debug)]
struct Plan {
    fault: Fault,
    flows: usize,
    fail_at: Duration,
    outage: Duration,
    after: Duration,
}

/// Actual times of the failure and the repair, in milliseconds since the flows started.
struct Happened {
    broken_ms: u64,
    healed_ms: u64,
    spine: Option<u16>,
}

fn cases(options: &Options) -> Vec<Case> {
    let outage = Duration::from_secs(options.seconds_or(6, 1));
    let all = [
        (Fault::SpineDies, 1),
        (Fault::SpineDies, 16),
        (Fault::LinkSlows, 1),
        (Fault::LinkSlows, 16),
        (Fault::DaemonCrashes, 1),
    ];
    let chosen = all.into_iter().take(options.quick_or(1, all.len()));
    chosen
        .map(|(fault, flows)| {
            let before = options.quick_or(1000, 2000);
            let plan = Plan {
                fault,
                flows,
                fail_at: Duration::from_millis(before),
                outage: if fault == Fault::DaemonCrashes { AWAY } else { outage },
                after: options.quick_or(Duration::from_secs(1), Duration::from_secs(4)),
            };
            case(options, plan)
        })
        .collect()
}

fn case(options: &Options, plan: Plan) -> Case {
    let fabric = FabricConfig { hosts_per_leaf: 1, ..FabricConfig::default() };
    let spines = options.spines.unwrap_or(fabric.spines);
    let uplink_rate_mbps = (fabric.host_rate_mbps / u32::from(spines)).max(1);
    let fabric = FabricConfig { spines, uplink_rate_mbps, ..fabric };
    let what = match plan.fault {
        Fault::SpineDies => "spine dies",
        Fault::LinkSlows => "link slows to a tenth",
        Fault::DaemonCrashes => "daemon crashes",
    };
    let flows = if plan.flows == 1 { "1 flow".into() } else { format!("{} flows", plan.flows) };
    Case {
        name: format!("{what}, {flows}"),
        setting: format!(
            "{flows}; {what} for {:.1} s; {}",
            plan.outage.as_secs_f64(),
            describe(&fabric)
        ),
        fabric,
        hosts: vec![FROM, TO],
        only: (plan.fault == Fault::DaemonCrashes).then_some(Variant::Express),
        measure: Box::new(move |stage| measure(stage, plan)),
    }
}

fn measure(stage: &mut Stage<'_>, plan: Plan) -> Result<Measured> {
    let flows =
        LongFlows { flows: stage.flows(&[(FROM, TO)], plan.flows), interval_ms: INTERVAL_MS };
    let before = stage.fabric.tcp_counters(&[FROM])?;
    let fabric = stage.fabric;
    let (seen, happened) = flows.run(fabric, |start| break_and_heal(stage, plan, start))?;
    let tcp = fabric.tcp_counters(&[FROM])?.since(&before);
    let mut measured = summarise(&seen, plan, &happened, fabric.config());
    measured.figures.push(Figure::new("TCP timeouts", "", tcp.timeouts as f64));
    measured.figures.push(Figure::new("TCP sent again", "segments", tcp.segments_again as f64));
    Ok(measured)
}

fn break_and_heal(stage: &mut Stage<'_>, plan: Plan, start: Instant) -> Result<Happened> {
    let fabric = stage.fabric;
    let now_ms = || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    sleep_until(start + plan.fail_at.saturating_sub(WATCH));
    let spine = fabric.busiest_spine(FROM.leaf, WATCH)?.busiest;
    let link = LinkId { leaf: FROM.leaf, spine };
    let slow_mbps = slow_mbps(fabric.config());
    match plan.fault {
        Fault::SpineDies => fabric.fail_spine(spine)?,
        Fault::LinkSlows => fabric.slow_link(link, slow_mbps)?,
        Fault::DaemonCrashes => stage.overlay.as_mut().context("no daemons")?.kill(FROM)?,
    }
    let broken_ms = now_ms();
    sleep_until(start + Duration::from_millis(broken_ms) + plan.outage);
    match plan.fault {
        Fault::SpineDies => fabric.heal_spine(spine)?,
        Fault::LinkSlows => fabric.heal_link(link)?,
        Fault::DaemonCrashes => stage.overlay.as_mut().context("no daemons")?.start(FROM)?,
    }
    let healed_ms = now_ms();
    sleep_until(start + Duration::from_millis(healed_ms) + plan.after);
    if let (Fault::DaemonCrashes, Some(overlay)) = (plan.fault, stage.overlay.as_mut()) {
        overlay.wait_until_up()?;
    }
    let spine = (plan.fault != Fault::DaemonCrashes).then_some(spine);
    Ok(Happened { broken_ms, healed_ms, spine })
}

fn summarise(seen: &Timelines, plan: Plan, happened: &Happened, config: &FabricConfig) -> Measured {
    let Happened { broken_ms, healed_ms, .. } = *happened;
    let silences = seen.silences_ms(broken_ms);
    let longest = silences.iter().copied().max().unwrap_or(0);
    let stalled = silences.iter().filter(|ms| **ms > STALL_MS).count();
    let alive = seen.ended.iter().filter(|ended| ended.is_none()).count();
    let left_mbps = remaining_mbps(config, plan.fault);
    let adapt_ms = if plan.fault == Fault::LinkSlows { ADAPT_MS } else { 0 };
    let lasted_ms = healed_ms.saturating_sub(broken_ms);
    let meanwhile = seen.mbps_between(broken_ms + adapt_ms.min(lasted_ms / 2), healed_ms);
    let mut figures = vec![
        Figure::new("longest silence", "ms", longest as f64).beside(0.0, "none"),
        Figure::new("stalled flows", "flows", stalled as f64),
        Figure::new("connections alive", "flows", alive as f64),
        Figure::new("before", "Mb/s", seen.mbps_between(broken_ms.saturating_sub(1000), broken_ms)),
        Figure::new("meanwhile", "Mb/s", meanwhile),
    ];
    // With one spine, nothing is left.
    if plan.fault != Fault::DaemonCrashes && left_mbps > 0.0 {
        figures.push(
            Figure::new("of what was left", "", meanwhile / left_mbps)
                .beside(1.0, "all that was left"),
        );
    }
    let notes = happened.spine.map(|spine| format!("spine {spine} was the busiest"));
    let ended = seen.ended.iter().flatten().map(|why| format!("a connection ended: {why}"));
    Measured {
        figures,
        timelines: vec![Timeline {
            name: "arrived",
            unit: "Mb/s",
            step_ms: STEP_MS,
            values: steps(&seen.total_mbps()),
            marks: vec![(broken_ms, "breaks".into()), (healed_ms, "heals".into())],
        }],
        notes: notes.into_iter().chain(ended).collect(),
        ..Measured::default()
    }
}

/// Returns the payload rate in Mb/s of the links that still work during the failure.
fn remaining_mbps(config: &FabricConfig, fault: Fault) -> f64 {
    let whole = config.uplink_rate_mbps * u32::from(config.spines - 1);
    let slow = if fault == Fault::LinkSlows { slow_mbps(config) } else { 0 };
    config.goodput_mbps((whole + slow).min(config.host_rate_mbps))
}

/// Returns the rate in Mb/s of a link that slows down.
fn slow_mbps(config: &FabricConfig) -> u32 {
    (config.uplink_rate_mbps / SLOW_PART).max(1)
}

fn steps(intervals: &[f64]) -> Vec<f64> {
    let per_step = usize::try_from(STEP_MS / INTERVAL_MS).unwrap_or(1);
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len() as f64;
    intervals.chunks(per_step).map(mean).collect()
}

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan {
        fault: Fault::SpineDies,
        flows: 2,
        fail_at: Duration::from_millis(500),
        outage: Duration::from_millis(500),
        after: Duration::from_millis(500),
    };

    fn figure(measured: &Measured, name: &str) -> f64 {
        measured.figures.iter().find(|figure| figure.name == name).expect(name).value
    }

    #[test]
    fn silence_is_that_of_the_flow_that_suffers_most() {
        // Two flows of 5-ms intervals over 1.5 s; the second is silent from 500 to 1000 ms.
        let busy = vec![1000u64; 300];
        let mut stalled = busy.clone();
        stalled[100..200].fill(0);
        let seen = Timelines {
            interval_ms: INTERVAL_MS,
            flows: vec![busy, stalled],
            ended: vec![None, Some("reset".into())],
        };
        let happened = Happened { broken_ms: 500, healed_ms: 1000, spine: Some(3) };
        let measured = summarise(&seen, PLAN, &happened, &FabricConfig::default());
        assert_eq!(figure(&measured, "longest silence"), 500.0);
        assert_eq!(figure(&measured, "stalled flows"), 1.0);
        assert_eq!(figure(&measured, "connections alive"), 1.0);
        assert!((figure(&measured, "meanwhile") - 1.6).abs() < 1e-9);
        assert_eq!(measured.notes, ["spine 3 was the busiest", "a connection ended: reset"]);
        assert_eq!(measured.timelines[0].values.len(), 30);
    }

    #[test]
    fn what_is_left_is_the_other_links_and_a_tenth() {
        let config = FabricConfig::default();
        let dead = remaining_mbps(&config, Fault::SpineDies);
        let slow = remaining_mbps(&config, Fault::LinkSlows);
        assert!((dead - config.goodput_mbps(750)).abs() < 1e-9);
        assert!((slow - config.goodput_mbps(775)).abs() < 1e-9);
    }

    /// In an earlier version, a figure was a quotient by zero if there was only one spine.
    #[test]
    fn regression_with_one_spine_nothing_is_left_to_compare_with() {
        let line = vec![1000u64; 300];
        let seen =
            Timelines { interval_ms: INTERVAL_MS, flows: vec![line.clone(), line], ended: vec![] };
        let happened = Happened { broken_ms: 500, healed_ms: 1000, spine: Some(0) };
        let config = FabricConfig { spines: 1, uplink_rate_mbps: 1000, ..FabricConfig::default() };
        let measured = summarise(&seen, PLAN, &happened, &config);
        assert!(measured.figures.iter().all(|figure| figure.value.is_finite()), "{measured:?}");
        // In a short outage, half of it counts.
        let slows = Plan { fault: Fault::LinkSlows, ..PLAN };
        let measured = summarise(&seen, slows, &happened, &config);
        assert!(figure(&measured, "of what was left") > 0.0);
        // The lab's slowest link has 1 Mb/s.
        let slowest = FabricConfig { uplink_rate_mbps: 5, ..config };
        assert_eq!(remaining_mbps(&slowest, Fault::LinkSlows), slowest.goodput_mbps(1));
    }
}
