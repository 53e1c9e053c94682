//! `srd watch`: bursts on interfaces and in capture files.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use signal_hook::consts::{SIGINT, SIGTERM};
use srd_watch::live::{self, Outcome};
use srd_watch::session::{Report, Session};
use srd_watch::text::{self, Tally};
use srd_watch::{Burst, Model, Settings};

use crate::card::scale;
use crate::failure::{Missing, usage};
use crate::output::{check_writable, say};
use crate::units::{parse_rate, parse_time};

const EXAMPLES: &str = "\
EXAMPLES
  srd watch eth0 --type c7i.large            # against the limits of an instance type
  srd watch eth0 --rate 10G --pps 1000000    # against a rate
  srd watch eth0 --type c7i.large --seconds 60 --summary --html bursts.html --json bursts.jsonl
  srd watch -r trace.pcapng --rate 10G       # a file of tcpdump, Wireshark or `srd capture`

docs/watch.md says how bursts are defined, and what is not seen.

EXIT CODES
  0  it worked, bursts or none
  1  an interface went away, or an output could not be written
  2  bad usage: nothing was started
  3  the privilege CAP_NET_RAW is missing";

/// Memory for packets that may be saved, of each interface.
const KEPT_BYTES: usize = 64 << 20;

/// What to watch, and against which limits.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchArgs {
    /// The interfaces.
    #[arg(value_name = "IF", required_unless_present = "read", conflicts_with = "read")]
    interfaces: Vec<String>,
    /// Read packets from this file (pcap or pcapng) instead.
    #[arg(short, long, value_name = "FILE")]
    read: Option<PathBuf>,
    /// Hold packets against the limits of this instance type.
    #[arg(long = "type", value_name = "TYPE", required_unless_present = "rate")]
    instance_type: Option<String>,
    /// Divide all rates of the instance type by N, for a lab that is so much slower.
    #[arg(long, value_name = "1/N", value_parser = scale, requires = "instance_type")]
    scale: Option<u32>,
    /// Where flows go, which decides the ceiling of one flow of an instance type.
    #[arg(long, value_enum, default_value = "exterior", requires = "instance_type")]
    flows_to: FlowsTo,
    /// The instance has used up its credits: its baseline is the limit.
    #[arg(long, requires = "instance_type")]
    no_credits: bool,
    /// Hold each direction against this rate, in bits a second.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "instance_type")]
    rate: Option<u64>,
    /// Packets a second of both directions together.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pps: Option<u64>,
    /// The ceiling of one flow, in bits a second.
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    flow_rate: Option<u64>,
    /// What may pass at once above a rate, in time at that rate [default: 1ms, or more at low
    /// rates].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    tolerance: Option<Duration>,
    /// Length of a bin: 100us to 1ms.
    #[arg(long, value_name = "TIME", value_parser = parse_bin, default_value = "1ms")]
    bin: u64,
    /// Percent of a limit that, arriving in a bin, make it part of a burst.
    #[arg(long, value_name = "PERCENT", default_value_t = 90,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    threshold: u64,
    /// Two bursts that are nearer than this are one.
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5ms")]
    gap: Duration,
    /// Flows of a burst that are named.
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    top: u64,
    /// End after this time; otherwise Ctrl-C ends it.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    seconds: Option<Duration>,
    /// Print a summary at the end.
    #[arg(long)]
    summary: bool,
    /// Write each burst as a line of JSON to this file; `-` is standard output, which then carries
    /// nothing else.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Where flows go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FlowsTo {
    /// Outside of the cluster placement group: 5 Gb/s a flow.
    Exterior,
    /// Within the cluster placement group: 10 Gb/s a flow.
    Group,
    /// Over ENA Express: 25 Gb/s a flow.
    Express,
}

/// Nanoseconds of a bin.
fn parse_bin(text: &str) -> Result<u64, String> {
    let expected = "write a length from 100us to 1ms, as 250us";
    let number = |digits: &str| digits.parse::<u64>().map_err(|_| expected.to_owned());
    let ns = match (text.strip_suffix("us"), text.strip_suffix("ms")) {
        (Some(digits), _) => number(digits)?.checked_mul(1_000),
        (_, Some(digits)) => number(digits)?.checked_mul(1_000_000),
        _ => None,
    };
    ns.filter(|ns| srd_watch::watch::BIN_NS.contains(ns)).ok_or_else(|| expected.to_owned())
}

/// Runs `srd watch`. Returns the exit code.
pub(crate) fn run(args: &WatchArgs) -> Result<u8> {
    let model = args.model()?;
    let mut outputs = Outputs::open(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("signals")?;
    }
    outputs.begin(args, &model)?;
    let options = live::Options {
        interfaces: args.interfaces.clone(),
        model,
        settings: args.settings(),
        time: args.seconds,
        ring_bytes: 32 << 20,
        kept_bytes: 0,
        counters_every: Duration::from_millis(250),
    };
    let ended = || stop.load(Ordering::Relaxed) || outputs_failed();
    let outcomes = live::run(&options, &ended, &mut |report| outputs.report(report))
        .map_err(|error| opened(&error))?;
    outputs.end(&outcomes)
}

fn outputs_failed() -> bool {
    false
}

fn opened(error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            Missing(format!("{error}: watching takes CAP_NET_RAW: run it as root")).into()
        }
        _ => anyhow::anyhow!("cannot watch {error}"),
    }
}

impl WatchArgs {
    fn model(&self) -> Result<Model> {
        let mut model = match (&self.instance_type, self.rate) {
            (Some(name), _) => {
                let mut profile = match Model::find(name) {
                    Ok(profile) => profile,
                    Err(error) => return usage(format!("{name}: {error}")),
                };
                if let Some(pps) = self.pps {
                    profile = profile.with_packets_per_second(pps);
                }
                if self.no_credits {
                    profile = profile.with_burst(srd_proto::time::Duration::ZERO);
                }
                let kind = match self.flows_to {
                    FlowsTo::Exterior => srd_watch::model::FlowKind::Exterior,
                    FlowsTo::Group => srd_watch::model::FlowKind::ClusterPlacementGroup,
                    FlowsTo::Express => srd_watch::model::FlowKind::Express,
                };
                Model::of_type(&profile, kind, self.scale.unwrap_or(1))
            }
            (None, Some(rate)) => Model::of_rate(rate, self.pps),
            (None, None) => return usage("say what to hold packets against: --type or --rate"),
        };
        if let Some(rate) = self.flow_rate {
            model = model.with_flow_rate(rate);
        }
        if let Some(tolerance) = self.tolerance {
            model = model.with_tolerance(nanos(tolerance));
        }
        Ok(model)
    }

    fn settings(&self) -> Settings {
        Settings {
            bin_ns: self.bin,
            threshold_percent: self.threshold,
            gap_ns: nanos(self.gap).as_nanos(),
            flows: usize::try_from(self.top).unwrap_or(usize::MAX),
            ..Settings::default()
        }
    }
}

fn nanos(time: Duration) -> srd_proto::time::Duration {
    srd_proto::time::Duration::from_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Where results go.
struct Outputs {
    json: Option<Box<dyn Write>>,
    owns_stdout: bool,
    summary: bool,
    tally: Tally,
    failed: Option<anyhow::Error>,
}

impl Outputs {
    fn open(args: &WatchArgs) -> Result<Self> {
        let owns_stdout = args.json.as_deref() == Some(Path::new("-"));
        let json: Option<Box<dyn Write>> = match &args.json {
            None => None,
            Some(_) if owns_stdout => Some(Box::new(std::io::stdout())),
            Some(file) => {
                check_writable(file)?;
                let made = File::create(file).with_context(|| file.display().to_string())?;
                Some(Box::new(BufWriter::new(made)))
            }
        };
        let (summary, tally) = (args.summary, Tally::default());
        Ok(Self { json, owns_stdout, summary, tally, failed: None })
    }

    fn say(&self, text: impl std::fmt::Display) -> Result<()> {
        if self.owns_stdout { Ok(()) } else { say(text) }
    }

    fn begin(&self, args: &WatchArgs, model: &Model) -> Result<()> {
        self.say(format!("watching {} against {model}; Ctrl-C ends it", args.interfaces.join(", ")))
    }

    fn report(&mut self, report: Report) {
        let done = match report {
            Report::Began(burst) => self.say(text::burst(&burst, true)),
            Report::Ended(burst, _) => self.ended(&burst),
        };
        self.failed = self.failed.take().or(done.err());
    }

    fn ended(&mut self, burst: &Burst) -> Result<()> {
        self.tally.add(burst);
        self.say(text::burst(burst, false))?;
        if let Some(json) = &mut self.json {
            let mut line = serde_json::to_vec(burst)?;
            line.push(b'\n');
            json.write_all(&line).and_then(|()| json.flush()).context("standard output")?;
        }
        Ok(())
    }

    fn end(mut self, outcomes: &[Outcome]) -> Result<u8> {
        for outcome in outcomes {
            self.session(&outcome.session, outcome.lost)?;
        }
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(0),
        }
    }

    fn session(&self, session: &Session, lost: u64) -> Result<()> {
        if self.summary { self.say(text::summary(session, &self.tally, lost)) } else { Ok(()) }
    }
}
