//! Two flows until the credits of the instance are spent.

use crate::experiment::programs::IPERF3;
use anyhow::Result;

use super::cloud::{Cloud, IP, Pair, SETPRIV, UNSHARE};
use super::figure::{Curve, Figure, Near};
use super::{Context, Experiment, Found, iperf};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "credits",
    about: "c7i.large: `iperf3 -t 600 -P 2` bursts until the credits are spent, and has the baseline then. They \
            last 300 s here; EC2 says 5 to 60 minutes.",
    scale: 100,
    takes_s: 345,
    needs: &[IPERF3, IP, SETPRIV, UNSHARE],
    run,
};

/// How long a full stock lasts in a short run.
const QUICK_CREDITS_S: u32 = 5;

fn run(context: &Context<'_>) -> Result<Found> {
    let credits_s = context.quick_or(QUICK_CREDITS_S, context.credits_s);
    let lasts = f64::from(credits_s);
    let context = &Context { credits_s, ..*context };
    // Then the sender's queues run empty, and the baseline is seen.
    let after = context.quick_or(5, 40);
    let seconds = credits_s + after;
    let cloud = Cloud::of(context, &Pair::of("c7i.large"))?;
    (context.say)(&format!("-l 9000 -P 2, {seconds} s"));
    let report = iperf::run(&cloud, &["-l", "9000", "-P", "2"], seconds)?;
    let seconds = &report.seconds_mbps;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let burst = mean(&seconds[..seconds.len().min(credits_s as usize * 2 / 3)]);
    let tail = mean(&seconds[seconds.len().saturating_sub(after as usize * 3 / 4)..]);
    let half = (burst + tail) / 2.0;
    let lasted = seconds.iter().take_while(|rate| **rate > half).count();
    let points = (0..).zip(seconds).map(|(at, rate)| (f64::from(at), *rate));
    Ok(Found {
        figures: vec![
            Figure::new("with credits", "Mb/s", burst).talk(context.mbps(12.5)),
            Figure::new("credits last", "s", lasted as f64).wanted(
                lasts,
                Near::Percent(5.0),
                "the profile",
            ),
            Figure::new("without credits", "Mb/s", tail).talk(context.mbps(0.772)),
        ],
        curves: vec![Curve {
            title: "Two flows of a c7i.large from a full stock of credits".into(),
            x: "time, s",
            y: "Mb/s",
            lines: vec![("both flows".into(), points.collect())],
        }],
        notes: Vec::new(),
    })
}
