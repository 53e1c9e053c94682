//! The experiment `credits`: two flows send until the network credits of the instance are spent,
//! and an idle instance earns credits.

use srd_card::Direction;
use srd_proto::time::{Duration, Instant};

use super::figure::{Figure, Near, TALK};
use super::lab::{self, MTU, SECOND, SENDER};
use super::{Curve, Experiment, Findings, Options};
use crate::engine::world::{NS, World};
use crate::machines::card::{CardNode, Pair};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "credits",
    about: "c7i.large, `iperf3 -t 600 -P 2`: both directions' credits are full at first; two flows \
            burst until they are spent, and have the baseline then. Idle, the instance earns its \
            baseline.",
    run,
};

/// Second of the talk's experiment at which the rate falls to the baseline.
const TALK_SPENT_S: f64 = 304.0;
const TALK_BASELINE_GBPS: f64 = 0.772;
/// Time in seconds for which full credits last: the value of the instance type's profile, and the
/// value in a short run.
const CREDITS_S: u32 = 300;
const CREDITS_QUICK_S: u32 = 3;

fn run(options: &Options) -> Result<Findings, String> {
    let credits_s = options.quick_or(CREDITS_QUICK_S, CREDITS_S);
    let after_s = options.quick_or(4, 20);
    let burst = Some(Duration::from_secs(credits_s.into()));
    let pair = Pair { burst, ..Pair::of("c7i.large") };
    let mut world = lab::world(&pair, MTU, &lab::streams(2), options.seed)?;
    let full = credits(&mut world);
    // The end of the credits is found with a resolution of a tenth of a second.
    let tenths = lab::steps(&mut world, SECOND / 10, (credits_s + after_s) * 10);
    let left = credits(&mut world);
    lab::check(&world)?;
    let rates: Vec<f64> =
        tenths.iter().map(|flows| lab::gbps(flows.iter().sum(), SECOND / 10)).collect();
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let spent = rates.iter().take_while(|rate| **rate > 6.0).count();
    let last_s = spent as f64 / 10.0;
    let with = Figure::new("with credits", "Gb/s", mean(&rates[..spent * 2 / 3]));
    // At first, packets arrive that waited in queues; they do not count.
    let end = rates.len() - (after_s as usize * 10) / 2;
    let without = Figure::new("without credits", "Gb/s", mean(&rates[end..]));
    let talk_s = TALK_SPENT_S * f64::from(credits_s) / f64::from(CREDITS_S);
    let earned = earned(&pair, options)?;
    let points = (0..).zip(&rates).map(|(n, rate)| (f64::from(n) / 10.0, *rate)).collect();
    let name = "both flows".to_owned();
    Ok(Findings {
        figures: vec![
            Figure::new("credits at launch", "Gb", full as f64 / 1e9),
            with.slide(12.5),
            Figure::new("credits last", "s", last_s).slide(talk_s).given(),
            Figure::new("credits at the end", "Gb", left as f64 / 1e9),
            without.slide(TALK_BASELINE_GBPS),
            Figure::new("earned in 10 idle seconds", "Gb", earned)
                .wanted(7.81, Near::SIMULATED, TALK)
                .given(),
        ],
        lines: vec![Curve { name, x: "time, s", y: "Gb/s", points }],
        notes: vec![format!(
            "full credits carry the peak rate for {credits_s} s; the talk's last until second 304 \
             of its run, EC2's documentation says 5 to 60 minutes"
        )],
    })
}

fn credits(world: &mut World<CardNode>) -> u64 {
    let now = Instant::from_nanos(world.now_ps() / NS);
    world.node_mut(SENDER).credits_bits(now, Direction::Egress)
}

/// Returns the gigabits of credit that the instance earns in ten idle seconds, after a burst that
/// spends more than that. It earns credit at its baseline rate.
fn earned(pair: &Pair, options: &Options) -> Result<f64, String> {
    let burst = Some(Duration::from_secs(60));
    let plan = crate::machines::card::Datagrams {
        payload_bytes: 8972,
        rate_bps: 9_000_000_000,
        ports: crate::machines::card::Ports::One,
    };
    // In 1.2 seconds the burst spends 9.9 Gb, of which 7.8 Gb are earned again.
    let bytes = plan.rate_bps * 12 / 10 / 8;
    let traffic = [lab::Traffic::Datagrams { from_ps: 0, bytes, plan }];
    let pair = Pair { burst, ..pair.clone() };
    let mut world = lab::world(&pair, MTU, &traffic, options.seed)?;
    world.run_until(5 * SECOND / 2);
    let before = credits(&mut world);
    world.run_until(25 * SECOND / 2);
    let after = credits(&mut world);
    Ok(after.saturating_sub(before) as f64 / 1e9)
}
