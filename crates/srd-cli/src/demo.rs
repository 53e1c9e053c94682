//! `srd demo`: arguments and output files. The demonstration itself is in `srd_bench::demo`.

use crate::failure::usage;
use crate::output::{self, JsonOutput, tell};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use srd_bench::demo;
use std::fs;
use std::path::PathBuf;

const NOTES: &str = "\
WHAT IT SHOWS
  (a) one flow: four paths of a quarter of the host's link each; how much does one flow get?
  (b) incast: 4 hosts x 12 flows start at one moment towards one host; when is the last one done?
  (c) a spine dies silently in mid-transfer, and heals: for how long does nothing arrive?
  (d) iperf3, which knows nothing of SRD, over kernel TCP and through `srd up`: how much does its
      one connection get?
  (e) a VPC on this machine (`srd card`): a port that a security group allows, one that none does, a
      network ACL that changes in mid-transfer, credits that run out

As root it builds a fabric of network namespaces (nothing is left behind, also after Ctrl-C) and
takes two to five minutes. Without root it runs (a) to (c) in the simulator, and says so.

EXAMPLES
  sudo srd demo
  sudo srd demo --seconds-scale 0.3 --out /tmp/report.html --json /tmp/report.json
  srd demo --simulate

EXIT CODES
  0  all goals in the last table are reached
  1  a goal is missed, or a part failed
  2  wrong arguments: nothing was started
  3  a program is missing: the message says which";

/// `srd demo`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct DemoArgs {
    /// File for the page with the charts, which needs no other file.
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// Factor for the duration of all parts: 0.3 gives a first impression, 3 steadier figures.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    seconds_scale: f64,
    /// Use the simulator, even as root.
    #[arg(long)]
    simulate: bool,
    /// Run SRD without encryption. By default it authenticates and encrypts, which TCP does not.
    #[arg(long)]
    plain: bool,
    /// Run only these parts.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PARTS",
          default_values_t = [Part::A, Part::B, Part::C, Part::D, Part::E])]
    only: Vec<Part>,
    #[command(flatten)]
    json: JsonOutput,
}

/// A part of the demonstration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// One flow.
    A,
    /// Incast.
    B,
    /// A spine switch fails.
    C,
    /// An ordinary program.
    D,
    /// A virtual private cloud.
    E,
}

impl From<Part> for demo::Part {
    fn from(part: Part) -> demo::Part {
        match part {
            Part::A => demo::Part::OneFlow,
            Part::B => demo::Part::Incast,
            Part::C => demo::Part::Failover,
            Part::D => demo::Part::Program,
            Part::E => demo::Part::Cloud,
        }
    }
}

/// Runs `srd demo`. Returns the exit code: 1 if a goal is missed.
pub(crate) fn run(args: &DemoArgs) -> Result<u8> {
    if !(0.1..=20.0).contains(&args.seconds_scale) {
        return usage("--seconds-scale must be between 0.1 and 20");
    }
    args.json.check()?;
    output::check_writable(&args.out)?;
    let missing: Vec<String> = srd_lab::requirements()
        .iter()
        .filter(|missing| missing.required)
        .map(ToString::to_string)
        .collect();
    let simulated = args.simulate || !missing.is_empty();
    if simulated {
        for missing in &missing {
            tell!("srd: {missing}");
        }
        args.json.say("Everything below happens in the SIMULATOR, not on real wires.")?;
    }
    let options = demo::Options {
        simulated,
        seconds_scale: args.seconds_scale,
        plain: args.plain,
        parts: args.only.iter().map(|part| (*part).into()).collect(),
    };
    let report = demo::run(&options, &|line| args.json.say(line))?;
    // The files come first, because the reader of the text may close standard output early.
    let file = &args.out;
    fs::write(file, report.page()).with_context(|| format!("cannot write {}", file.display()))?;
    args.json.say(report.tables())?;
    args.json.say(format!("\n{:.0} s. Charts: {}", report.took_s(), file.display()))?;
    args.json.write(&report)?;
    Ok(u8::from(!report.all_met()))
}
