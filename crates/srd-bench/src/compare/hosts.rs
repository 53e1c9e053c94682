//! A comparison between two real machines: the command runs with one address of the server for each
//! transport.
//!
//! The comparison changes nothing on the machines: the server must already listen at all addresses.

use super::command::Ended;
use super::{ABOUT, SUMMARY, Settings, headline, measured};
use crate::experiment::measure::pulse::Pulse;
use crate::experiment::measure::result::{CaseResult, Outcome, Run};
use crate::experiment::run::machine;
use crate::experiment::variant::order;
use crate::experiment::{Variant, measure::result};
use anyhow::{Context, Result, bail};
use srd_lab::priority::CpuMeter;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two runs, in which the network's queues become empty.
const PAUSE: Duration = Duration::from_millis(500);
/// Counter of inner packets that were sent over SRD.
const OVER_SRD: &str = "ena_srd_tx_pkts";

/// Function that reads the counters of the daemon on this machine.
pub type Counters<'a> = &'a dyn Fn() -> Result<BTreeMap<String, f64>>;

/// Runs the command over each transport in turn, and calls `say` with a line after each run. With
/// `counters`, every run of [`Variant::Express`] must have sent packets over SRD.
///
/// # Errors
/// If a run failed, or a run of [`Variant::Express`] sent no packet over SRD.
pub fn run(
    settings: &Settings,
    addresses: &BTreeMap<Variant, IpAddr>,
    counters: Option<Counters<'_>>,
    say: &mut dyn FnMut(&str),
) -> Result<Outcome> {
    let begun = Instant::now();
    let mut runs = Vec::new();
    for repetition in 0..settings.repetitions {
        for variant in order(&settings.variants, repetition) {
            let what = format!("{variant}, {} of {}", repetition + 1, settings.repetitions);
            let address = *addresses.get(&variant).context("a variant without an address")?;
            let run = one(settings, variant, repetition, address, counters)
                .with_context(|| what.clone())?;
            say(&format!("{what}: {}", headline(&run.measured)));
            runs.push(run);
            thread::sleep(PAUSE);
        }
    }
    let listed = addresses.iter().map(|(variant, address)| format!("{variant} {address}"));
    let setting = listed.collect::<Vec<_>>().join(", ");
    Ok(Outcome {
        experiment: "compare",
        summary: SUMMARY,
        about: ABOUT,
        machine: machine(),
        seed: 0,
        quick: false,
        took_s: begun.elapsed().as_secs_f64(),
        cases: vec![CaseResult::new(settings.words.shown(), setting, runs).between_machines()],
        left_out: Vec::new(),
    })
}

fn one(
    settings: &Settings,
    variant: Variant,
    repetition: u32,
    address: IpAddr,
    counters: Option<Counters<'_>>,
) -> Result<Run> {
    let counters = counters.filter(|_| variant == Variant::Express);
    let read = || counters.map(|read| read()).transpose();
    let before = read()?;
    let mut command = settings.words.command(&[], address)?;
    let (meter, pulse) = (CpuMeter::start()?, Pulse::start()?);
    let child = command.spawn().with_context(|| settings.words.shown())?;
    let ended = Ended::wait(child, settings.time_limit, &settings.stop)?;
    let (late, cpu) = (pulse.stop(), meter.stop()?);
    let measured: result::Measured = measured(settings, &ended)?;
    let express = before.zip(read()?).map(|(before, after)| since(&before, &after));
    let unmoved =
        |moved: &BTreeMap<String, f64>| moved.get(OVER_SRD).is_none_or(|sent| *sent < 1.0);
    if express.as_ref().is_some_and(unmoved) && !measured.is_failure() {
        bail!("no packet went over SRD to {address}: is it the address of a peer of `srd up`?");
    }
    // The load is that of the whole machine: it cannot be attributed to single programs.
    let own_cpu_share = cpu.busy_share();
    Ok(Run { variant, repetition, measured, cpu, own_cpu_share, late, express })
}

fn since(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let grown = |(name, now): (&String, &f64)| {
        (name.clone(), now - before.get(name).copied().unwrap_or(0.0))
    };
    after.iter().map(grown).collect()
}

#[cfg(test)]
mod tests {
    use super::super::command::CommandLine;
    use super::*;
    use std::cell::Cell;
    use std::sync::Arc;

    fn settings(shell: &str, variants: Vec<Variant>) -> Settings {
        let words = ["sh", "-c", shell].map(Into::into).to_vec();
        Settings {
            words: CommandLine::new(words).unwrap(),
            figures: vec!["last=\\.([0-9]+)$".parse().unwrap()],
            variants,
            repetitions: 2,
            time_limit: Duration::from_secs(60),
            keep_going: false,
            stop: Arc::default(),
        }
    }

    fn addresses() -> BTreeMap<Variant, IpAddr> {
        let plain = (Variant::Plain, "127.0.0.2".parse().unwrap());
        BTreeMap::from([plain, (Variant::Express, "127.0.0.9".parse().unwrap())])
    }

    #[test]
    fn each_variant_gets_its_own_address_and_the_order_alternates() {
        let both = vec![Variant::Plain, Variant::Express];
        let settings = settings("printf %s {server}", both);
        let mut said = Vec::new();
        let outcome =
            run(&settings, &addresses(), None, &mut |text| said.push(text.to_owned())).unwrap();
        let order: Vec<Variant> = outcome.cases[0].runs.iter().map(|run| run.variant).collect();
        use Variant::{Express, Plain};
        assert_eq!(order, [Plain, Express, Express, Plain]);
        for summary in &outcome.cases[0].summaries {
            let expected = if summary.variant == Plain { 2.0 } else { 9.0 };
            assert_eq!(summary.figures[1].median, expected);
        }
        assert!(said[0].starts_with("plain, 1 of 2: time"), "{said:?}");
    }

    #[test]
    fn regression_a_failure_that_is_counted_needs_no_packets_over_srd() {
        let still = || Ok(BTreeMap::from([(OVER_SRD.to_owned(), 5.0)]));
        let settings = Settings {
            keep_going: true,
            ..settings("exit 3", vec![Variant::Plain, Variant::Express])
        };
        let outcome = run(&settings, &addresses(), Some(&still), &mut |_| ()).unwrap();
        assert!(outcome.cases[0].runs.iter().all(|run| run.measured.is_failure()));
        assert_eq!(outcome.cases[0].label(Variant::Plain), "plain", "cubic is not known here");
    }

    #[test]
    fn a_run_that_bypasses_srd_is_no_run_of_express() {
        let settings = settings("printf %s {server}", vec![Variant::Express]);
        let sent = Cell::new(5.0);
        let counters = |step: f64| {
            let sent = &sent;
            move || {
                sent.set(sent.get() + step);
                Ok(BTreeMap::from([(OVER_SRD.to_owned(), sent.get())]))
            }
        };
        let still = counters(0.0);
        let error = run(&settings, &addresses(), Some(&still), &mut |_| ()).unwrap_err();
        assert!(format!("{error:#}").contains("no packet went over SRD"), "{error:#}");
        let moving = counters(1.0);
        let outcome = run(&settings, &addresses(), Some(&moving), &mut |_| ()).unwrap();
        assert_eq!(outcome.cases[0].runs[0].express.as_ref().unwrap()[OVER_SRD], 1.0);
    }
}
