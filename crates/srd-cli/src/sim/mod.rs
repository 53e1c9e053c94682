//! `srd sim`: experiments in the simulator, which runs the production core.

mod card;
mod figures;
mod files;
mod goal;
mod list;
mod progress;

use crate::failure::{Usage, usage};
use crate::output::JsonOutput;
use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use srd_sim::run::{Job, RunResult};
use srd_sim::scenario::{Override, Scenario, ScenarioError, TimeUnitSpec, Transport, WorkloadSpec};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Maximum number of runs that one command starts.
const RUNS_MAX: u64 = 100_000;

const EXAMPLES: &str = "\
EXAMPLES
  srd sim list
  srd sim run scenarios/uplink-death.toml
  srd sim run paper-a-incast --transport srd --transport tcp --seeds 10 --json result.json
  srd sim run paper-a-incast --set workload.0.bytes=64KiB --set srd.paths=16 --out flows
  srd sim run paper-a-express --transport express --transport tcp
  srd sim run roce-slow-receiver --transport srd --transport roce
  srd sim run one-byte-writes --set tcp.nagle=linux
  srd sim figures --out figures
  srd sim card flow-limits pps
  srd sim run --topo ft128.topo --tm perm128_2M.cm --transport srd
  srd sim goal all-to-all --ranks 256 --bytes 64KiB --out a2a.goal
  srd sim run permutation-1024 --goal a2a.goal --transport srd --transport dctcp
  srd sim run permutation-1024 --chakra traces/step --transport srd --transport dctcp

A scenario without a slash or a suffix is looked for in ./scenarios, or with the
installed package. The same seed gives the same
result on every machine and with any number of threads.";

/// `srd sim`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum SimCommand {
    /// Run an experiment with one or several transports and seeds.
    #[command(after_help = EXAMPLES)]
    Run(Box<RunArgs>),
    /// Run the experiments of the SRD paper and draw its figures 2 to 6.
    Figures(figures::FiguresArgs),
    /// Repeat experiments of the talk NET402: what limits the network of an EC2 instance.
    Card(card::CardArgs),
    /// Write the schedule of a collective in GOAL, the format of LogGOPSim and ATLAHS.
    Goal(goal::GoalArgs),
    /// List the scenarios in a directory, and the transports.
    List(ListArgs),
}

/// `srd sim run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// A scenario: a TOML file, or the name of one in ./scenarios.
    #[arg(required_unless_present = "topo", conflicts_with = "topo")]
    scenario: Option<PathBuf>,
    /// A network in htsim's format, instead of a scenario.
    #[arg(long, value_name = "FILE", requires = "sent")]
    topo: Option<PathBuf>,
    /// A connection matrix in htsim's format, as the workload of --topo. That network must have at
    /// least as many hosts as the matrix (`Nodes`).
    #[arg(long, value_name = "FILE", requires = "topo", group = "sent")]
    tm: Option<PathBuf>,
    /// Operations of ranks in GOAL, as text or in the binary form of LogGOPSim's txt2bin, instead
    /// of the scenario's workload. Rank 0 is on host 0.
    #[arg(long, value_name = "FILE", group = "sent")]
    goal: Option<PathBuf>,
    /// A Chakra execution trace, instead of the scenario's workload: the files PREFIX.0.et,
    /// PREFIX.1.et and so on. Rank 0 is on host 0.
    #[arg(long, value_name = "PREFIX", group = "sent")]
    chakra: Option<PathBuf>,
    /// The ranks of the trace's process groups: a JSON object, {"NAME": [RANK, ...]}.
    #[arg(long, value_name = "FILE", requires = "chakra")]
    chakra_groups: Option<PathBuf>,
    /// The unit of `start` in the connection matrix; htsim's own programs use different units.
    #[arg(long, value_enum, default_value_t = Unit::Us, requires = "tm")]
    cm_time_unit: Unit,
    /// Change the scenario, for example workload.0.bytes=64KiB or srd.paths=16.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A transport to run; may be given several times, each transport runs once. Default: those of
    /// the scenario.
    #[arg(long, value_name = "NAME")]
    transport: Vec<String>,
    /// The first seed. Default: the scenario's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of consecutive seeds. Default: the scenario's.
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Number of runs at a time. Default: one per core.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    json: JsonOutput,
    /// Write to this directory: every flow as CSV; charts (SVG) of completion times, and of
    /// throughput, queues and paths if the scenario records them; and the paused links of lossless
    /// switches.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Capture the packets of a port for Wireshark, into --out, for example "host0->tor0"; may be
    /// given several times. The maximum is 100,000 packets, unless measure.capture_packets is set.
    #[arg(long, value_name = "PORT", requires = "out")]
    capture: Vec<String>,
}

/// `srd sim list`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    /// Directory of scenarios. Default: ./scenarios, or those of the installed package.
    directory: Option<PathBuf>,
    #[command(flatten)]
    json: JsonOutput,
}

/// The unit of times in a connection matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Unit {
    /// Picoseconds.
    Ps,
    /// Microseconds.
    Us,
}

/// Runs `srd sim`. Returns the exit code: 1 if flows did not finish, or if a run had another error.
pub(crate) fn run(command: &SimCommand, progress: bool) -> Result<u8> {
    match command {
        SimCommand::Run(args) => {
            // This call may restart the process, so it comes before anything is started or printed.
            srd_sim::process::prefer_huge_pages();
            run_scenario(args, progress)
        }
        SimCommand::Figures(args) => {
            srd_sim::process::prefer_huge_pages();
            figures::run(args, progress)
        }
        SimCommand::Card(args) => card::run(args, progress),
        SimCommand::Goal(args) => goal::run(args).map(|()| 0),
        SimCommand::List(args) => list::run(args.directory.as_deref(), &args.json).map(|()| 0),
    }
}

fn run_scenario(args: &RunArgs, progress: bool) -> Result<u8> {
    args.json.check()?;
    let scenario = scenario(args)?;
    let jobs = jobs(args, &scenario)?;
    if let Some(directory) = &args.out {
        files::prepare(directory)?;
    }
    let threads = threads(args.threads);
    let results = progress::run_all(&jobs, threads, progress)
        .into_iter()
        .map(|result| result.map_err(explain))
        .collect::<Result<Vec<RunResult>>>()?;
    // The files come first, because the reader of the text may close standard output early.
    let written = match &args.out {
        Some(directory) => Some((files::write(directory, &results)?, directory)),
        None => None,
    };
    args.json.say(heading(&scenario))?;
    args.json.say(srd_sim::report::table(&results).trim_end())?;
    if let Some((files, directory)) = written {
        args.json.say(format!("{files} files in {}", directory.display()))?;
    }
    args.json.write(&results)?;
    let mut complaints = Vec::new();
    for result in &results {
        for complaint in result.complaints() {
            complaints.push(format!("{}, seed {}: {complaint}", result.transport, result.seed));
        }
    }
    if complaints.is_empty() {
        return Ok(0);
    }
    bail!("{}", complaints.join("\nsrd: "))
}

/// Returns the number of runs at a time: the requested number, or one for each core.
fn threads(wanted: Option<usize>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    wanted.unwrap_or(cores).max(1)
}

fn heading(scenario: &Scenario) -> String {
    match scenario.description.trim() {
        "" => format!("{}\n", scenario.name),
        description => format!("{}: {description}\n", scenario.name),
    }
}

fn scenario(args: &RunArgs) -> Result<Scenario> {
    let mut scenario = described(args)?;
    scenario.measure.capture.extend(args.capture.iter().cloned());
    if let Some(goal) = &args.goal {
        exists(goal)?;
        let path = std::path::absolute(goal)?;
        scenario.description = format!("{} in {}", goal.display(), scenario.name);
        scenario.workload = vec![WorkloadSpec::Goal { path, hosts: None }];
    }
    if let Some(prefix) = &args.chakra {
        let path = std::path::absolute(prefix)?;
        let groups = args.chakra_groups.as_ref().map(std::path::absolute).transpose()?;
        scenario.description = format!("{} in {}", prefix.display(), scenario.name);
        scenario.workload = vec![WorkloadSpec::Chakra { path, groups, hosts: None }];
    }
    Ok(scenario)
}

/// Returns the scenario that the arguments select, with the changes of --set.
fn described(args: &RunArgs) -> Result<Scenario> {
    let parse = |text: &String| text.parse::<Override>();
    let overrides = args.set.iter().map(parse).collect::<Result<Vec<_>, ScenarioError>>()?;
    let sent = args.tm.as_ref().or(args.goal.as_ref()).or(args.chakra.as_ref());
    if let (Some(topo), Some(tm)) = (&args.topo, sent) {
        for file in [Some(topo), args.tm.as_ref()].into_iter().flatten() {
            exists(file)?;
        }
        let unit = match args.cm_time_unit {
            Unit::Ps => TimeUnitSpec::Ps,
            Unit::Us => TimeUnitSpec::Us,
        };
        let scenario = Scenario::from_files(topo, tm, unit);
        if overrides.is_empty() {
            return Ok(scenario);
        }
        let text = toml::to_string(&scenario)?;
        return Ok(Scenario::read("--topo, --tm", &text, Path::new("."), &overrides)?);
    }
    let Some(named) = &args.scenario else {
        return usage("name a scenario, or --topo with --tm, --goal or --chakra");
    };
    let file = list::find(named)?;
    Ok(Scenario::open(&file, &overrides)?)
}

fn exists(file: &Path) -> Result<()> {
    if file.is_file() {
        Ok(())
    } else {
        usage(format!("cannot read {}: no such file", file.display()))
    }
}

fn jobs(args: &RunArgs, scenario: &Scenario) -> Result<Vec<Job>> {
    let find = |name: &String| Transport::find(name);
    let mut transports = args.transport.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    if transports.is_empty() {
        transports.clone_from(&scenario.transports);
    }
    // The same run twice would have the same result, and the same files.
    let mut chosen = BTreeSet::new();
    transports.retain(|transport| chosen.insert(*transport));
    let seeds = args.seeds.unwrap_or(scenario.seeds);
    if seeds == 0 || transports.is_empty() {
        return usage("at least one transport and one seed are needed");
    }
    if seeds.saturating_mul(transports.len() as u64) > RUNS_MAX {
        return usage(format!("--seeds {seeds}: at most {RUNS_MAX} runs in all"));
    }
    let first = args.seed.unwrap_or(scenario.seed);
    Ok(srd_sim::run::jobs(scenario, &transports, first..first.saturating_add(seeds)))
}

/// Converts an error of a scenario. An invalid scenario is a usage error. If the simulator's
/// counters do not account for every packet ("packets are lost"), the error is one of the
/// simulator.
fn explain(error: ScenarioError) -> anyhow::Error {
    let ours = error.0.starts_with("packets are lost");
    if ours { anyhow::anyhow!(error.0) } else { Usage(error.0).into() }
}
