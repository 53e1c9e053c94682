//! `srd sim card`: simulates the experiments of the talk NET402 about the network of EC2 instances.

use crate::failure::usage;
use crate::output::{JsonOutput, tell};
use anyhow::{Result, anyhow};
use clap::Args;
use serde::Serialize;
use srd_chart::Table;
use srd_sim::talk::figure::Figure;
use srd_sim::talk::{self, Experiment, Options, Outcome};

const NOTES: &str = "\
EXAMPLES
  srd sim card --list                          what there is
  srd sim card flow-limits pps                 two of them
  srd sim card --json result.json              all
  srd sim card --quick                         shorter runs of fewer cases

Simulated instances, each behind the production card of its host, at the full rates of their
type. The guests speak the simulator's TCP, or send UDP at a constant rate. The same seed gives the
same figures on every machine. `srd card lab` runs the same with real programs at a hundredth of
the rates.

EXIT CODES
  0  each figure is within 3 % of the talk's, or the result names the cause
  1  a figure is not
  2  wrong arguments: nothing was started";

/// Arguments of `srd sim card`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct CardArgs {
    /// Experiments to run, in this order; without names, all of them.
    #[arg(value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// Describe all experiments instead of running them.
    #[arg(long)]
    list: bool,
    /// Shorter runs of fewer cases. Their figures are not judged, because bursts above a limit
    /// count more in a short run.
    #[arg(long)]
    quick: bool,
    /// The seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    json: JsonOutput,
}

#[derive(Serialize)]
struct Results<'a> {
    experiments: &'a [Outcome],
}

/// Runs the experiments. Returns the exit code: 1 if a figure differs from the talk's without a
/// known cause.
pub(super) fn run(args: &CardArgs, speak: bool) -> Result<u8> {
    args.json.check()?;
    if args.list {
        for Experiment { name, about, .. } in talk::ALL {
            args.json.say(format!("{name}\n  {about}\n"))?;
        }
        return Ok(0);
    }
    let options = Options { quick: args.quick, seed: args.seed };
    let mut outcomes = Vec::new();
    for experiment in chosen(&args.experiments)? {
        if speak {
            tell!("{}", experiment.name);
        }
        let outcome = experiment.run(&options).map_err(|error| anyhow!(error))?;
        args.json.say(shown(&outcome, !args.quick))?;
        outcomes.push(outcome);
    }
    args.json.write(&Results { experiments: &outcomes })?;
    Ok(u8::from(!args.quick && !outcomes.iter().all(Outcome::is_explained)))
}

fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>> {
    if names.is_empty() {
        return Ok(talk::ALL.to_vec());
    }
    let find = |name: &String| match talk::find(name) {
        Some(experiment) => Ok(experiment),
        None => {
            let names: Vec<_> = talk::ALL.iter().map(|experiment| experiment.name).collect();
            usage(format!("there is no experiment `{name}`: {}", names.join(", ")))
        }
    };
    names.iter().map(find).collect()
}

/// Returns a table of the figures, the known causes of differences, and the notes. If `is_judged`
/// is false, as for short runs, the table does not state whether figures agree.
fn shown(outcome: &Outcome, is_judged: bool) -> String {
    let mut table = Table::new([outcome.experiment, "here", "wanted", "off", "source", ""]);
    let mut causes: Vec<&str> = Vec::new();
    for figure in &outcome.figures {
        let cause = figure.explanation().filter(|_| is_judged);
        let number = cause.map(|cause| {
            let known = causes.iter().position(|known| *known == cause);
            known.unwrap_or_else(|| {
                causes.push(cause);
                causes.len() - 1
            }) + 1
        });
        table.row(cells(figure, is_judged, number));
    }
    let mut text = format!("{table}");
    for (number, cause) in (1..).zip(causes) {
        text += &format!("\n  [{number}] {cause}");
    }
    for note in &outcome.notes {
        text += &format!("\n  {note}");
    }
    text + "\n"
}

fn cells(of: &Figure, is_judged: bool, cause: Option<usize>) -> [String; 6] {
    let (value, source) = of.shown_wanted();
    let off = of.off_percent().map_or(String::new(), |off| format!("{off:+.1} %"));
    let cause = cause.map_or(String::new(), |number| format!(" [{number}]"));
    let verdict = format!("{}{cause}", of.verdict(is_judged));
    [of.name.clone(), of.shown(), value, off, source.to_owned(), verdict]
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_sim::talk::figure::NOT_JUDGED;

    #[test]
    fn a_table_has_the_slides_figure_and_numbers_the_cause_of_a_miss() {
        let outcome = talk::find("untracked").unwrap();
        let outcome = outcome.run(&Options { quick: true, seed: 1 }).unwrap();
        let text = shown(&outcome, true);
        assert!(text.contains("NET402") && text.contains("met"), "{text}");
        let figure = || Figure::new("one flow", "Gb/s", 9.94).slide(9.54);
        let headers = || figure().because("headers", 5.0);
        let figures = vec![headers(), figure(), headers()];
        let outcome = Outcome { figures, notes: Vec::new(), ..outcome };
        let text = shown(&outcome, true);
        assert_eq!(text.matches("MISSED [1]").count(), 2, "{text}");
        assert!(text.contains("[1] headers") && text.contains("+4.2 %"), "{text}");
        let text = shown(&outcome, false);
        assert_eq!(text.matches(NOT_JUDGED).count(), 3, "{text}");
        assert!(!text.contains("MISSED") && !text.contains("[1]"), "{text}");
    }

    #[test]
    fn an_experiment_that_is_not_there_is_a_mistake_with_those_that_are() {
        let error = chosen(&["bursts".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`bursts`") && error.contains("microburst"), "{error}");
    }
}
