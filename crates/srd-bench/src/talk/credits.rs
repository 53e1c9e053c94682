//! The experiment `credits`: two flows until the network credits of the instance are spent.

use crate::experiment::measure::programs::IPERF3;
use anyhow::Result;

use super::cloud::{Cloud, IP, Pair, SETPRIV, UNSHARE};
use super::curve::Curve;
use super::{Context, Experiment, Findings, iperf};
use srd_sim::talk::figure::{Figure, Near};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "credits",
    about: "c7i.large: `iperf3 -t 600 -P 2` bursts until the credits are spent, and has the \
            baseline then. They last 300 s here; EC2 says 5 to 60 minutes.",
    scale: 100,
    takes_s: 345,
    needs: &[IPERF3, IP, SETPRIV, UNSHARE],
    run,
};

/// Seconds for which a full stock of network credits lasts in a short run.
const QUICK_CREDITS_S: u32 = 5;

/// Rates of two flows before and after the network credits were spent.
pub(super) struct Spent {
    /// Mean rate while the instance had credits, in Mb/s.
    pub(super) with_mbps: f64,
    /// Mean rate after the credits were spent, in Mb/s.
    pub(super) without_mbps: f64,
    /// Seconds from the start for which the rate was above the mean of the two rates.
    pub(super) lasted_s: usize,
    /// Seconds since the start, and the rate in Mb/s, for each second.
    pub(super) line: Vec<(f64, f64)>,
}

/// Sends with two flows for `credits_s` seconds, in which the credits are spent, and for `after_s`
/// more seconds.
pub(super) fn spend(context: &Context<'_>, credits_s: u32, after_s: u32) -> Result<Spent> {
    let cloud = Cloud::of(&Context { credits_s, ..*context }, &Pair::of("c7i.large"))?;
    let report = iperf::run(&cloud, &["-l", "9000", "-P", "2"], credits_s + after_s)?;
    let seconds = &report.seconds_mbps;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let with_mbps = mean(&seconds[..seconds.len().min(credits_s as usize * 2 / 3)]);
    // The queues of the sender have to empty first; the mean leaves that time out.
    let without_mbps = mean(&seconds[seconds.len().saturating_sub(after_s as usize * 3 / 4)..]);
    let half = (with_mbps + without_mbps) / 2.0;
    let lasted_s = seconds.iter().take_while(|rate| **rate > half).count();
    let line = (0..).zip(seconds).map(|(at, rate)| (f64::from(at), *rate)).collect();
    Ok(Spent { with_mbps, without_mbps, lasted_s, line })
}

fn run(context: &Context<'_>) -> Result<Findings> {
    let credits_s = context.quick_or(QUICK_CREDITS_S, context.credits_s);
    let after_s = context.quick_or(5, 40);
    (context.say)(&format!("-l 9000 -P 2, {} s", credits_s + after_s));
    let spent = spend(context, credits_s, after_s)?;
    let lasted = Figure::new("credits last", "s", spent.lasted_s as f64);
    Ok(Findings {
        figures: vec![
            Figure::new("with credits", "Mb/s", spent.with_mbps).talk(context.mbps(12.5)),
            lasted.wanted(f64::from(credits_s), Near::Percent(5.0), "the profile").given(),
            Figure::new("without credits", "Mb/s", spent.without_mbps).talk(context.mbps(0.772)),
        ],
        curves: vec![Curve {
            title: "Two flows of a c7i.large from a full stock of credits".into(),
            x: "time, s",
            y: "Mb/s",
            lines: vec![("both flows".into(), spent.line)],
        }],
        notes: Vec::new(),
    })
}
