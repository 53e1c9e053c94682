//! The experiment `ordering`: two UDP flows between two hosts, and losses of packets of only one of
//! them.
//!
//! Outer packets are encrypted and spread over all paths, so the fabric can distinguish the flows
//! only by the size of packets. The spines lose packets that are longer than those of one flow and
//! shorter than those of the other. One datagram is one packet (F2 of the specification of
//! Express), and the hosts send no super-packets in this experiment. The mean length of the lost
//! packets shows that packets of the right flow were lost.

use crate::experiment::measure::datagrams::{self, Account, Arrivals, Paced};
use crate::experiment::measure::distribution::Distribution;
use crate::experiment::measure::result::{Figure, Measured, Samples};
use crate::experiment::{Case, Experiment, Options, Stage, Variant, describe};
use anyhow::{Context, Result};
use srd_lab::config::FabricConfig;
use srd_lab::fault::Lost;
use srd_lab::id::HostId;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

const FROM: HostId = HostId { leaf: 0, host: 0 };
const TO: HostId = HostId { leaf: 1, host: 0 };
/// Flow A, whose packets the spines lose, and flow B beside it.
const A: Paced =
    Paced { from: FROM, to: TO, port: 5006, bytes: 4000, period: Duration::from_micros(1000) };
const B: Paced =
    Paced { from: FROM, to: TO, port: 5008, bytes: 1000, period: Duration::from_micros(500) };
/// Longest packet in bytes that is never lost. All packets of B and all control packets are
/// shorter, whatever their headers.
const SPARED_BYTES: u32 = 2500;
/// Number of lost packets of A per thousand.
const LOSS_PERMILLE: u16 = 20;
/// Time at the start of each phase that is not counted.
const SETTLE: Duration = Duration::from_millis(300);
/// Number of pairs of phases. Phases without and with loss alternate, so that a slow change of the
/// machine affects both equally.
const TURNS: u32 = 3;

/// The experiment `ordering`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "ordering",
    summary: "One UDP flow loses packets: does the flow beside it wait, and does either get out \
              of order?",
    about: "Two flows of numbered UDP datagrams between the same two hosts over four paths: A of \
            4,000 bytes, 1000 a second, B of 1,000 bytes, 2000 a second. In every second phase \
            each spine loses 2 % of all packets above 2,500 bytes: only those of A. Delays are \
            one-way, from the moment a datagram was due, with one clock for both ends. An \
            inversion is a datagram behind one of a higher number. With Express, once with order \
            kept (the default) and once without (udp_ordering = \"bypass\").",
    repetitions: 2,
    variants: crate::experiment::variant::USUAL,
    programs: |_| Vec::new(),
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    let phase = Duration::from_secs(options.seconds_or(6, 2));
    let turns = if options.quick { 1 } else { TURNS };
    vec![case(options, (phase, turns), false), case(options, (phase, turns), true)]
}

fn case(options: &Options, (phase, turns): (Duration, u32), bypass: bool) -> Case {
    let fabric = FabricConfig { hosts_per_leaf: 1, offloads: false, ..FabricConfig::default() };
    let fabric = FabricConfig { spines: options.spines.unwrap_or(fabric.spines), ..fabric };
    let name = if bypass { "any order" } else { "in order" };
    Case {
        name: name.into(),
        setting: format!(
            "{name}; {turns} x {} s without loss and with it; {}",
            phase.as_secs(),
            describe(&fabric)
        ),
        fabric,
        hosts: vec![FROM, TO],
        // Without Express there is no ordering that could be bypassed.
        only: bypass.then_some(Variant::Express),
        measure: Box::new(move |stage| measure(stage, (phase, turns), bypass)),
    }
}

/// Times of the phases without and with loss, in seconds since the start, and the packets that the
/// spines lost.
#[derive(Default)]
struct Phases {
    without_s: Vec<Range<f64>>,
    with_s: Vec<Range<f64>>,
    lost: Lost,
}

fn measure(stage: &Stage<'_>, (phase, turns): (Duration, u32), bypass: bool) -> Result<Measured> {
    if bypass {
        let overlay = stage.overlay.as_ref().context("no daemons")?;
        overlay.set(&["all", "udp-ordering", "bypass"])?;
    }
    let (seen, phases) =
        datagrams::run(stage, &[A, B], |start| take_turns(stage, (phase, turns), start))?;
    let counters = stage.overlay.as_ref().map(|overlay| overlay.counters()).transpose()?;
    let timeouts = counters.and_then(|all| all.get("order_timeouts").copied());
    Ok(summarise(&seen, &phases, timeouts))
}

fn take_turns(
    stage: &Stage<'_>,
    (phase, turns): (Duration, u32),
    start: Instant,
) -> Result<Phases> {
    let fabric = stage.fabric;
    let wait = |until: Instant| thread::sleep(until.saturating_duration_since(Instant::now()));
    let settled = || -> Range<f64> {
        let from = Instant::now() + SETTLE;
        wait(from + phase);
        let since = |moment: Instant| moment.saturating_duration_since(start).as_secs_f64();
        since(from)..since(from + phase)
    };
    let mut phases = Phases::default();
    for _ in 0..turns {
        phases.without_s.push(settled());
        for spine in 0..fabric.config().spines {
            fabric.loss_above(spine, LOSS_PERMILLE, SPARED_BYTES)?;
        }
        phases.with_s.push(settled());
        let lost = fabric.lost()?;
        phases.lost.packets += lost.packets;
        phases.lost.bytes += lost.bytes;
        for spine in 0..fabric.config().spines {
            fabric.loss(spine, 0)?;
        }
    }
    Ok(phases)
}

fn summarise(seen: &[Arrivals], phases: &Phases, timeouts: Option<f64>) -> Measured {
    let [a, b] = [(&seen[0], A), (&seen[1], B)].map(|(arrivals, flow)| {
        [&phases.without_s, &phases.with_s].map(|times| arrivals.account(flow.period, times))
    });
    let p99_ms = |account: &Account| {
        let delays = Distribution::new("", "ms", account.delay_ms.clone());
        delays.percentile(99.0).unwrap_or(0.0)
    };
    let ratio = |accounts: &[Account; 2]| {
        let [without, with] = [p99_ms(&accounts[0]), p99_ms(&accounts[1])];
        if without > 0.0 { with / without } else { 0.0 }
    };
    let both = |accounts: &[Account; 2], count: fn(&Account) -> usize| {
        accounts.iter().map(count).sum::<usize>() as f64
    };
    let lost_percent = |account: &Account| 100.0 * account.lost as f64 / account.sent.max(1) as f64;
    let mean_lost_bytes = phases.lost.bytes as f64 / phases.lost.packets.max(1) as f64;
    let mut figures = vec![
        Figure::new("B's P99 while A loses packets", "x without", ratio(&b))
            .beside(1.0, "as without loss"),
        Figure::new("A's P99 while A loses packets", "x without", ratio(&a)),
        Figure::new("B's P99 without loss", "ms", p99_ms(&b[0])),
        Figure::new("A lost", "% of datagrams with loss", lost_percent(&a[1])),
        Figure::new("B lost", "% of datagrams with loss", lost_percent(&b[1])),
        Figure::new("inversions of A", "datagrams", both(&a, |one| one.inversions)),
        Figure::new("inversions of B", "datagrams", both(&b, |one| one.inversions)),
        Figure::new("lost by the spines", "packets", phases.lost.packets as f64),
        Figure::new("mean length of these", "bytes", mean_lost_bytes),
    ];
    figures.extend(timeouts.map(|count| Figure::new("waits for order given up", "", count)));
    let twice = both(&a, |one| one.twice) + both(&b, |one| one.twice);
    let notes = (twice > 0.0).then(|| format!("{twice} datagrams came twice"));
    let [a_without, a_with] = a.map(|account| account.delay_ms);
    let [b_without, b_with] = b.map(|account| account.delay_ms);
    let samples = |name, values| Samples { name, unit: "ms", values };
    Measured {
        figures,
        samples: vec![
            samples("delay of B without loss", b_without),
            samples("delay of B while A loses packets", b_with),
            samples("delay of A without loss", a_without),
            samples("delay of A while A loses packets", a_with),
        ],
        notes: notes.into_iter().collect(),
        ..Measured::default()
    }
}
