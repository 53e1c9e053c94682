//! `srd card lab`: arguments and output files. The experiments themselves are in `srd_bench::talk`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use srd_bench::talk::{self, Experiment, Options, Outcome, page, show};

use crate::failure::{Missing, usage};
use crate::output::{self, JsonOutput, tell};

const NOTES: &str = "\
EXAMPLES
  srd card lab --list                          # what there is, and how long it takes
  sudo srd card lab burst pps                  # two of them
  sudo srd card lab --report page.html         # all, 13 minutes
  sudo srd card lab --quick                    # short runs: shows that it works, measures nothing

Each experiment starts a card of its own, in a network namespace of its own. A machine does not
carry the rates of EC2 through namespaces, so all rates are divided by one number, the talk's
figures by the same.
It takes root, iperf3, iproute2 and util-linux.

EXIT CODES
  0  all figures are as near to the talk's as they should be; with --quick they are not judged
  1  a figure is not, or an experiment failed
  2  wrong arguments: nothing was started
  3  root or a program is missing";

/// Arguments of `srd card lab`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct LabArgs {
    /// Experiments to run, in this order; without names, all of them.
    #[arg(value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// Describe all experiments instead of running them.
    #[arg(long)]
    list: bool,
    /// Run fewer cases, each for a shorter time. Such runs show only that the experiments work;
    /// their figures are not judged.
    #[arg(long)]
    quick: bool,
    /// The `srd` program whose card is measured, to compare two builds. Default: this program.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Write a page with tables and charts to one file that needs no other.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    json: JsonOutput,
}

#[derive(Serialize)]
struct Results<'a> {
    experiments: &'a [Outcome],
}

/// Runs the experiments. Returns the exit code: 1 if a measured figure does not agree with the
/// figure of the talk NET402 (AWS re:Invent 2024).
pub(super) fn run(args: &LabArgs) -> Result<u8> {
    if args.list {
        output::say(show::list())?;
        return Ok(0);
    }
    let chosen = args.chosen()?;
    args.json.check()?;
    if let Some(file) = &args.report {
        output::check_writable(file)?;
    }
    if !rustix::process::geteuid().is_root() {
        let what = "network namespaces need root: run it with sudo";
        return Err(Missing(what.to_owned()).into());
    }
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("the path of this program")?,
    };
    let options = Options { program, quick: args.quick };
    let mut outcomes = Vec::new();
    let measured = args.measure(&chosen, &options, &mut outcomes);
    // Results are written even if a later experiment failed, because they took minutes.
    if outcomes.is_empty() {
        measured?;
        return Ok(0);
    }
    let reported = args.report(&outcomes);
    args.json.write(&Results { experiments: &outcomes })?;
    measured.and(reported)?;
    Ok(u8::from(!args.quick && !outcomes.iter().all(Outcome::all_met)))
}

impl LabArgs {
    /// Runs experiments, one after the other, until one fails.
    fn measure(
        &self,
        chosen: &[&Experiment],
        options: &Options,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<()> {
        for experiment in chosen {
            let say = |text: &str| tell!("{}: {text}", experiment.name);
            let outcome = talk::run(experiment, options, &say).context(experiment.name)?;
            let text = show::outcome(&outcome, !self.quick);
            outcomes.push(outcome);
            self.json.say(text)?;
        }
        Ok(())
    }

    fn report(&self, outcomes: &[Outcome]) -> Result<()> {
        let Some(file) = &self.report else { return Ok(()) };
        fs::write(file, page::page(outcomes, !self.quick))
            .with_context(|| format!("cannot write {}", file.display()))?;
        self.json.say(format!("report: {}", file.display()))
    }

    fn chosen(&self) -> Result<Vec<&'static Experiment>> {
        if self.experiments.is_empty() {
            return Ok(talk::ALL.to_vec());
        }
        let mut chosen = Vec::new();
        for name in &self.experiments {
            let Some(experiment) = talk::find(name) else {
                let names: Vec<_> = talk::ALL.iter().map(|e| e.name).collect();
                return usage(format!("there is no experiment `{name}`: {}", names.join(", ")));
            };
            chosen.push(experiment);
        }
        Ok(chosen)
    }
}
