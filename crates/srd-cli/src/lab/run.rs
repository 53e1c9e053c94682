//! `srd lab run`: runs experiments with real programs, with and without ENA Express.

use crate::failure::usage;
use crate::output::{self, JsonOutput, tell};
use anyhow::{Context, Result, bail};
use clap::{ArgAction, Args};
use serde::Serialize;
use srd_bench::experiment::{self, Experiment, Options, Outcome, Variant, page, show};
use srd_lab::priority;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum time to wait for the end of another measurement on this machine.
const TURN_MAX: Duration = Duration::from_secs(60);

const NOTES: &str = "\
EXAMPLES
  srd lab run --list                       what there is, and what each needs
  sudo srd lab run incast --quick          does it work here? a smoke test
  sudo srd lab run incast failover --report /tmp/report.html --json /tmp/report.json
  sudo srd lab run --all --quick --report /tmp/all.html
  sudo srd lab run --all --except hadoop,spark --quick
  sudo srd lab run redis --variants plain,express,bbr --reps 5 --seconds 30
  sudo srd lab run redis --case changes --report /tmp/changes.html
  sudo srd lab run redis --case incast --rate 20000 --threads 2 --seconds 28800
  sudo srd lab run video --case 'HD collisions,4K collisions' --seconds 300
  sudo srd lab run mpi mpi-incast --mpirun /opt/openmpi/bin/mpirun

Each variant runs in the same fabric of network namespaces, one after the other, and every second
repetition in the opposite order. With `express` every host runs `srd up`, and the programs use
the addresses behind it. Figures are medians over the repetitions, with the least and the
greatest; percentiles are those of the samples of all repetitions together.

VARIANTS
  plain    kernel TCP with cubic, and UDP, on the fabric's own addresses
  express  the same programs over ENA Express
  bbr      kernel TCP with bbr
  mptcp    Multipath TCP of five subflows
  rto50    plain with a smallest retransmission timeout of 50 ms
  rto5     plain with a smallest retransmission timeout of 5 ms
  srd      SRD itself, through libfabric: for the experiments with MPI

EXIT CODES
  0 all ran, with --all all whose programs are there; 1 one failed; 2 the command line is wrong;
  3 root, a program or something to be fetched is missing";

/// `srd lab run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct RunArgs {
    /// Experiments to run, in this order.
    #[arg(value_name = "EXPERIMENT", required_unless_present_any = ["list", "all"])]
    experiments: Vec<String>,
    /// Run all experiments whose programs are installed; for the other experiments, report what to
    /// install.
    #[arg(long, conflicts_with_all = ["experiments", "cases", "list"])]
    all: bool,
    /// With --all: leave these experiments out.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "all")]
    except: Vec<String>,
    /// Describe all experiments instead of running one.
    #[arg(long)]
    list: bool,
    /// Run only these cases of the experiment; `--list` names them.
    #[arg(long = "case", value_name = "NAMES", value_delimiter = ',')]
    cases: Vec<String>,
    /// Variants to compare [default: plain,express; for MPI plain,srd].
    #[arg(long, value_delimiter = ',', value_name = "VARIANTS")]
    variants: Option<Vec<Variant>>,
    /// Number of runs of each variant. Default: a number of the experiment.
    #[arg(long, value_name = "N")]
    reps: Option<u32>,
    /// Length of one run, at most an hour, of `redis` and `video` eight. Default: a length of the
    /// experiment. Experiments that count rounds scale their number.
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Spines of the fabric. Default: a number of the experiment.
    #[arg(long, value_name = "N")]
    spines: Option<u16>,
    /// One short repetition of the smallest case: shows that it works, measures nothing.
    #[arg(long)]
    quick: bool,
    /// Seed of path hashes, source ports and arrivals.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u32,
    /// Keep the last fabric, and the daemons' configurations and logs.
    #[arg(long)]
    keep: bool,
    /// Name of the fabric.
    #[arg(long, default_value = "exp")]
    name: String,
    /// Use memcached in the experiment `redis`.
    #[arg(long)]
    memcached: bool,
    /// Requests per second of `redis`, over all its threads, up to the capacity of the machine
    /// [default: 2000].
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// Client threads of `redis` [default: 1].
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// The `srd` program whose daemons are measured, to compare two builds. Default: this program.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Run `srd up` and the libfabric provider without encryption.
    #[arg(long)]
    no_encryption: bool,
    /// Launcher of the MPI to measure, Open MPI's, MPICH's or Intel's [default: mpirun].
    #[arg(long, value_name = "FILE")]
    mpirun: Option<PathBuf>,
    /// The libfabric provider libsrd-fi.so, or its directory [default: from FI_PROVIDER_PATH,
    /// beside this program, or where packages install it].
    #[arg(long, value_name = "FILE")]
    provider: Option<PathBuf>,
    /// Directory of the programs that `srd lab fetch` fetched.
    #[arg(long, value_name = "DIR", default_value = experiment::CACHE)]
    cache: PathBuf,
    /// Real-time priority of the daemons, 1 to 50. With it, busy daemons prevent programs from
    /// running if there are few processors [default: none, as every process].
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=50))]
    daemon_priority: Option<u8>,
    /// Run with a higher priority than the machine's other load, as measurements should.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set,
          num_args = 0..=1, default_missing_value = "true")]
    high_priority: bool,
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

/// Runs the experiments.
pub(super) fn run(args: &RunArgs) -> Result<()> {
    if args.list {
        return output::say(show::list(&args.options()?));
    }
    let experiments = args.chosen()?;
    let options = args.options()?;
    options.validate()?;
    // Without --all, it is an error if a chosen experiment cannot be run. With --all, such
    // experiments are left out.
    let named = if args.all { &[][..] } else { &experiments[..] };
    named.iter().try_for_each(|experiment| experiment.check(&options))?;
    args.json.check()?;
    if let Some(file) = &args.report {
        output::check_writable(file)?;
    }
    super::require_fabric()?;
    // All programs are checked before the first experiment, which may run for an hour.
    named.iter().try_for_each(|experiment| experiment.require(&options))?;
    let _priority = args.high_priority.then(|| priority::raise(TURN_MAX)).transpose()?;
    let mut found = ExperimentResults::default();
    let measured = measure(args, &experiments, &options, &mut found);
    // Results are written even if something else fails, because they may have taken hours.
    let ExperimentResults { outcomes, failed } = found;
    let is_something = !outcomes.is_empty() || measured.is_ok();
    let not_run: Vec<_> = failed.iter().map(|(name, _, why)| (*name, why.clone())).collect();
    let reported = match &args.report {
        Some(file) if is_something => fs::write(file, page::page(&outcomes, &not_run))
            .with_context(|| format!("cannot write {}", file.display()))
            .and_then(|()| args.json.say(format!("report: {}", file.display()))),
        _ => Ok(()),
    };
    let written = is_something.then(|| args.json.write(&Results { experiments: &outcomes }));
    measured?;
    reported?;
    written.transpose()?;
    let names = |missing: bool| {
        let of_kind = failed.iter().filter(|(_, kind, _)| *kind == missing);
        of_kind.map(|(name, ..)| *name).collect::<Vec<_>>().join(", ")
    };
    let (broken, missing) = (names(false), names(true));
    if !missing.is_empty() {
        args.json.say(format!("not run, since programs are missing: {missing}"))?;
    }
    if !broken.is_empty() {
        bail!("failed: {broken}");
    }
    Ok(())
}

/// Results of experiments.
#[derive(Default)]
struct ExperimentResults {
    outcomes: Vec<Outcome>,
    /// Failed experiments, each with its name, whether it failed only because a program is missing,
    /// and the reason.
    failed: Vec<(&'static str, bool, String)>,
}

/// Runs experiments, one after the other. With --all, a failed experiment is recorded; otherwise
/// the first failure ends the run.
fn measure(
    args: &RunArgs,
    experiments: &[&'static Experiment],
    options: &Options,
    found: &mut ExperimentResults,
) -> Result<()> {
    for experiment in experiments {
        let mut say = |text: &str| tell!("{}: {text}", experiment.name);
        let outcome = match experiment::run(experiment, options, &mut say) {
            Ok(outcome) => outcome,
            Err(error) if args.all => {
                // The remaining experiments still run, and the report contains their results.
                let why = format!("{error:#}");
                say(&why);
                let missing = error.is::<experiment::MissingPrograms>()
                    || error.is::<experiment::NotFetched>();
                found.failed.push((experiment.name, missing, why));
                continue;
            }
            Err(error) => return Err(error),
        };
        let text = show::outcome(&outcome);
        found.outcomes.push(outcome);
        args.json.say(text)?;
    }
    Ok(())
}

impl RunArgs {
    fn chosen(&self) -> Result<Vec<&'static Experiment>> {
        let named = if self.all { &self.except } else { &self.experiments };
        let mut chosen = Vec::new();
        for name in named {
            let Some(experiment) = experiment::find(name) else {
                let names: Vec<_> = experiment::ALL.iter().map(|e| e.name).collect();
                return usage(format!("there is no experiment `{name}`: {}", names.join(", ")));
            };
            chosen.push(experiment);
        }
        if self.all {
            let is_wanted = |e: &&Experiment| !self.except.iter().any(|name| name == e.name);
            let wanted: Vec<_> = experiment::ALL.into_iter().filter(is_wanted).collect();
            if wanted.is_empty() {
                return usage("--except leaves no experiment".to_owned());
            }
            return Ok(wanted);
        }
        Ok(chosen)
    }

    fn options(&self) -> Result<Options> {
        if let Some(path) = &self.provider
            && let Err(error) = srd_doctor::mpi::provider::find(Some(path), Path::new(""))
        {
            return usage(format!("--provider {}: {error}", path.display()));
        }
        let mut variants = self.variants.clone();
        if let Some(variants) = &mut variants {
            let mut seen = Vec::new();
            variants.retain(|variant| {
                !seen.contains(variant) && {
                    seen.push(*variant);
                    true
                }
            });
        }
        Ok(Options {
            variants,
            repetitions: self.reps,
            seconds: self.seconds,
            spines: self.spines,
            only_cases: self.cases.clone(),
            quick: self.quick,
            seed: self.seed,
            keep: self.keep,
            memcached: self.memcached,
            rate: self.rate,
            threads: self.threads,
            program: match &self.program {
                Some(program) => program.clone(),
                None => std::env::current_exe().context("the path of this program")?,
            },
            realtime_priority: self.daemon_priority,
            encrypted: !self.no_encryption,
            mpirun: self.mpirun.clone(),
            provider: self.provider.clone(),
            cache: self.cache.clone(),
            name: self.name.clone(),
        })
    }
}
