//! Part (d) of the demonstration: the installed iperf3, over kernel TCP and through `srd up`. The
//! fabric is like that of part (a).

use super::Say;
use super::story::Program;
use crate::experiment::{self, MissingPrograms, Options, Variant};
use anyhow::{Context, Result};
use std::io::Write as _;

/// Measures iperf3. If it is not installed, prints a message and returns an empty list.
pub(super) fn measure(seconds: u64, plain: bool, say: Say<'_>) -> Result<Vec<Program>> {
    say("(d) iperf3, over kernel TCP and through srd up")?;
    let options = Options {
        variants: Some(vec![Variant::Plain, Variant::Express]),
        repetitions: Some(1),
        seconds: Some(seconds),
        spines: Some(4),
        only_cases: Vec::new(),
        quick: false,
        seed: 1,
        keep: false,
        memcached: false,
        rate: None,
        threads: None,
        program: std::env::current_exe().context("where is this program")?,
        realtime_priority: None,
        encrypted: !plain,
        mpirun: None,
        provider: None,
        cache: experiment::CACHE.into(),
        name: "demoapp".into(),
    };
    let experiment = experiment::find("single-flow").context("the experiment exists")?;
    let outcome = match experiment::run(experiment, &options, &mut |_| {}) {
        Ok(outcome) => outcome,
        Err(error) if error.is::<MissingPrograms>() => {
            let _ = writeln!(std::io::stderr(), "srd: part (d) is left out: {error:#}");
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.context("part (d), iperf3 through srd up")),
    };
    let mut programs = Vec::new();
    for summary in outcome.cases.iter().flat_map(|case| &case.summaries) {
        let goodput = summary.figures.iter().find(|figure| figure.name == "goodput");
        if let Some(goodput) = goodput {
            let through_srd = summary.variant == Variant::Express;
            programs.push(Program { through_srd, mbps: goodput.median });
        }
    }
    Ok(programs)
}
