//! `srd profile`: reports which requirements traffic has for an EC2 instance, from live packets or
//! a capture.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde::Serialize;
use srd_card::limits::FlowKind;
use srd_card::profile::{InstanceType, Profile};
use srd_chart::Table;
use srd_profile::{Filter, Report, capture, html, live, report, text};
use srd_watch::{file, input};

use crate::failure::{named_once, of_interface, usage};
use crate::output::{Attempts, JsonOutput, check_writable, to_stderr};
use crate::units::{bytes, parse_time};
use crate::watch::{parse_prefix, parse_ring};

const EXAMPLES: &str = "\
EXAMPLES
  sudo srd profile eth0 --for 1h                    # look for an hour; Ctrl-C ends it earlier
  srd profile --pcap trace.pcapng --family c7i,m7i  # a capture; types of two families
  srd profile --pcap trace.pcap --type c7i.large --replay
  tcpdump -i eth0 -c 100000 -w - | srd profile --pcap -
  sudo srd profile eth0 --for 10m --html profile.html --json profile.json

docs/profile.md says how each figure is found, and what is estimated.

EXIT CODES
  0  it worked
  1  an interface went away, a file was damaged, had no packets or none that could be read, or an
     output could not be written
  2  bad usage, or a file that is no capture: nothing was started
  3  the privilege CAP_NET_RAW is missing";

/// Arguments of `srd profile`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProfileArgs {
    /// The interfaces.
    #[arg(value_name = "IF", required_unless_present = "pcap", conflicts_with = "pcap")]
    interfaces: Vec<String>,
    /// Read packets from this file instead: pcap or pcapng, also compressed with gzip or zstd; a
    /// FIFO, or `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Duration of the observation; Ctrl-C ends it earlier, with a report of the packets so far.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, default_value = "1m",
          conflicts_with = "pcap")]
    time: Duration,
    /// Additional traffic that the type must carry, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 20,
          value_parser = clap::value_parser!(u16).range(0..=1000))]
    headroom: u16,
    /// Consider only types of these families, for example c7i,m7g.
    #[arg(long, value_name = "FAMILY", value_delimiter = ',')]
    family: Vec<String>,
    /// Also evaluate these types, limit by limit.
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    instance_type: Vec<String>,
    /// Only types with at least this many vCPUs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    vcpus: u32,
    /// Only types with at least this many interfaces.
    #[arg(long, value_name = "N", default_value_t = 1)]
    enis: u16,
    /// Destination of the flows, which decides the ceiling of one flow [default: the first of the
    /// possible values whose ceiling no flow exceeds].
    #[arg(long, value_enum)]
    flows_to: Option<FlowsTo>,
    /// Read the file a second time, and apply the limits of instance types to its packets: of each
    /// recommended type, of the next smaller type, and of the types of --type.
    #[arg(long, requires = "pcap")]
    replay: bool,
    /// With --pcap: this side's addresses, if the file does not record the direction of packets;
    /// for example 10.0.0.0/8,192.0.2.7 [default: the address that most packets have].
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', value_parser = parse_prefix,
          requires = "pcap")]
    local: Vec<srd_watch::Prefix>,
    /// With --pcap: a packet longer than this, counted from its IP header, is a super-packet that
    /// consists of packets of this length.
    #[arg(long, value_name = "BYTES", requires = "pcap",
          value_parser = clap::value_parser!(u16).range(68..))]
    mtu: Option<u16>,
    /// Memory for packets that wait to be read, for each interface.
    #[arg(long, value_name = "SIZE", value_parser = parse_ring, default_value = "32M")]
    ring: u32,
    /// Write a page with charts to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    json: JsonOutput,
}

/// Destination of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum FlowsTo {
    /// Outside of the cluster placement group: 5 Gb/s a flow.
    Exterior,
    /// Within the cluster placement group: 10 Gb/s a flow.
    Group,
    /// Over ENA Express: 25 Gb/s per flow.
    Express,
}

impl FlowsTo {
    fn kind(self) -> FlowKind {
        match self {
            Self::Exterior => FlowKind::Exterior,
            Self::Group => FlowKind::ClusterPlacementGroup,
            Self::Express => FlowKind::Express,
        }
    }
}

/// Parses a time in the form of other options. In addition, a number of whole hours may exceed a
/// day.
fn parse_duration(text: &str) -> Result<Duration, String> {
    match text.strip_suffix('h').and_then(|digits| digits.parse::<u32>().ok()) {
        Some(hours @ 1..) => Ok(Duration::from_secs(3600) * hours),
        _ => parse_time(text),
    }
}

/// Counters of an instance type after the packets of a file have passed its limits (`--replay`).
#[derive(Serialize)]
struct Replayed {
    name: String,
    /// Names and values of the counters that are not zero.
    moved: Vec<(&'static str, u64)>,
}

#[derive(Serialize)]
struct Results<'a> {
    profiles: &'a [Report],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    replayed: Vec<Replayed>,
    /// Remarks for the user on how the file was read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Runs `srd profile`. Returns the exit code.
pub(crate) fn run(args: &ProfileArgs) -> Result<u8> {
    args.check()?;
    let stop = crate::signals::stop_flag_then_end()?;
    let stopped = || stop.load(Ordering::Relaxed);
    match &args.pcap {
        Some(file) => args.read(file, &stopped),
        None => args.look(&stopped),
    }
}

impl ProfileArgs {
    /// Returns a usage error for impossible arguments, before the work starts.
    fn check(&self) -> Result<()> {
        self.json.check()?;
        named_once(&self.interfaces)?;
        if let Some(capture) = self.pcap.as_ref().filter(|_| self.replay)
            && (capture.as_os_str() == input::STDIN || capture.exists())
            && !input::is_read_again(capture)
        {
            return usage(format!(
                "{}: --replay reads the packets twice, which a stream cannot: write them to a \
                 file first",
                file::name_of(capture)
            ));
        }
        if let Some(file) = &self.html {
            check_writable(file)?;
        }
        for name in &self.instance_type {
            if let Err(error) = InstanceType::find(name) {
                return usage(format!("{name}: {error}"));
            }
        }
        for family in &self.family {
            if !InstanceType::all().any(|of| of.family() == family) {
                return usage(format!(
                    "there is no family `{family}` of instance types; write it as c7i"
                ));
            }
        }
        if !self.filter().has_types() {
            return usage(format!(
                "no instance type of {} has {} vCPUs and {} interfaces: ask for fewer",
                if self.family.is_empty() { "any family".into() } else { self.family.join(", ") },
                self.vcpus,
                self.enis
            ));
        }
        Ok(())
    }

    fn headroom(&self) -> f64 {
        f64::from(self.headroom) / 100.0
    }

    fn filter(&self) -> Filter {
        Filter {
            families: self.family.clone(),
            types: self.instance_type.clone(),
            vcpus: self.vcpus,
            enis: self.enis,
        }
    }

    fn reports(&self, seen: Vec<srd_profile::needs::TrafficSummary>) -> Vec<Report> {
        let kind = self.flows_to.map(FlowsTo::kind);
        seen.into_iter().map(|seen| report(seen, &self.filter(), kind)).collect()
    }

    /// Profiles live packets.
    fn look(&self, stop: &dyn Fn() -> bool) -> Result<u8> {
        let options = live::Options {
            interfaces: self.interfaces.clone(),
            headroom: self.headroom(),
            time: self.time,
            ring_bytes: self.ring,
        };
        let mut progress = Progress::begin(&self.interfaces.join(", "), self.time);
        let outcomes = live::run(&options, stop, &mut |now| progress.look(&now));
        progress.end();
        let outcomes =
            outcomes.map_err(|error| of_interface(&error, ["looking at packets", "look at"]))?;
        let gone: Vec<String> = outcomes
            .iter()
            .filter_map(|of| Some(format!("{}: {}", of.seen.name, of.error.as_ref()?)))
            .collect();
        let reports = self.reports(outcomes.into_iter().map(|outcome| outcome.seen).collect());
        self.write(&reports, Vec::new(), &[])?;
        anyhow::ensure!(gone.is_empty(), "{}", gone.join("; "));
        Ok(0)
    }

    /// Profiles the packets of a file.
    fn read(&self, file: &Path, stop: &dyn Fn() -> bool) -> Result<u8> {
        let options = capture::Options {
            headroom: self.headroom(),
            local: self.local.clone(),
            mtu_bytes: self.mtu,
        };
        let name = file::name_of(file);
        let size = fs::metadata(file).map_or(0, |of| of.len());
        let mut progress = Progress::begin(&name, Duration::ZERO);
        let outcome = capture::run(file, &options, stop, &mut |read| progress.read(read, size));
        progress.end();
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return usage(format!("{name}: {error}")),
        };
        let (end, mut seen) = (outcome.end, outcome.seen);
        let mut others = end.others.clone();
        seen.iter().for_each(|seen| others.absorb(&seen.named_others));
        if seen.iter().all(|seen| seen.packets == 0) && end.error.is_none() {
            anyhow::bail!("{name}: {}: nothing to profile", end.nothing(&others));
        }
        // The report of an interface with packets contains its skipped packets. The skipped packets
        // of all other interfaces are listed as remarks.
        let mut others = end.others.clone();
        seen.retain(|seen| {
            if seen.packets == 0 {
                others.absorb(&seen.named_others);
            }
            seen.packets > 0
        });
        let mut notes = others.lines();
        if end.is_stopped {
            notes.push(format!(
                "stopped before the end of {name}, after {} packets",
                text::count(end.packets as f64)
            ));
        }
        if let Some((address, share)) = outcome.guessed {
            notes.push(format!(
                "{address} is taken for this side: {:.0} % of the packets have it; --local says \
                 otherwise",
                share * 100.0
            ));
        }
        if outcome.left_out > 0 {
            notes.push(format!(
                "{} packets of further interfaces are left out: at most {} interfaces of a file \
                 get a profile; cut the file by interface (`editcap`, Wireshark)",
                outcome.left_out,
                capture::PROFILED_MAX
            ));
        }
        let reports = self.reports(seen);
        let replayed = if self.replay && !stop() {
            self.replay(file, &outcome.local, &reports, stop)?
        } else {
            Vec::new()
        };
        self.write(&reports, replayed, &notes)?;
        match end.error {
            Some(error) => {
                Err(anyhow::anyhow!("{name}: {error}; the report is of what came before"))
            }
            None => Ok(0),
        }
    }

    fn replay(
        &self,
        file: &Path,
        local: &[srd_watch::Prefix],
        reports: &[Report],
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<Replayed>> {
        let Some(report) = reports.first() else { return Ok(Vec::new()) };
        let choices = &report.choices;
        let mut names: Vec<&str> = choices.asked.iter().map(|verdict| verdict.name).collect();
        for choice in choices.families.iter().take(REPLAYED_FAMILIES) {
            names.extend(choice.smaller.as_ref().map(|smaller| smaller.name));
            names.push(choice.sufficient.name);
        }
        let types: Vec<Profile> = names
            .iter()
            .filter_map(|name| InstanceType::find(name).ok())
            .map(Profile::of)
            .collect();
        let moved = capture::replay(file, (local, self.mtu), &types, choices.flows_to, stop);
        let moved = moved.with_context(|| file.display().to_string())?;
        let named = names.iter().map(|name| (*name).to_owned());
        Ok(named.zip(moved).map(|(name, moved)| Replayed { name, moved }).collect())
    }

    /// Writes each output even if another one fails, so that a closed standard output does not cost
    /// the result of an hour.
    fn write(&self, reports: &[Report], replayed: Vec<Replayed>, notes: &[String]) -> Result<()> {
        let mut attempts = Attempts::default();
        attempts.add(self.print(reports, &replayed, notes));
        if let Some(file) = &self.html {
            let page = html::page(reports.iter(), notes);
            let written = fs::write(file, page).with_context(|| file.display().to_string());
            let said = format!("wrote {}", file.display());
            attempts.add(written.and_then(|()| self.json.say(said)));
        }
        let notes = notes.to_vec();
        attempts.add(self.json.write(&Results { profiles: reports, replayed, notes }));
        attempts.end()
    }

    fn print(&self, reports: &[Report], replayed: &[Replayed], notes: &[String]) -> Result<()> {
        for report in reports {
            self.json.say(text::report(report))?;
        }
        for note in notes {
            self.json.say(note)?;
        }
        if !replayed.is_empty() {
            self.json.say(table(replayed))?;
        }
        Ok(())
    }
}

/// Maximum number of instance families whose types are checked by a replay.
const REPLAYED_FAMILIES: usize = 8;

fn table(replayed: &[Replayed]) -> String {
    let mut table = Table::new(["replayed", "counters that moved"]);
    for Replayed { name, moved } in replayed {
        let words: Vec<String> =
            moved.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let words = if words.is_empty() { "none".to_owned() } else { words.join(", ") };
        table.row([name.clone(), words]);
    }
    table.to_string()
}

/// Progress line on standard error. It is shown only if standard error is a terminal.
struct Progress {
    name: String,
    time: Duration,
    is_seen: bool,
    told: Instant,
    has_line: bool,
}

/// Interval between updates of the progress line.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

impl Progress {
    fn begin(name: &str, time: Duration) -> Self {
        let is_seen = std::io::stderr().is_terminal();
        let (name, told) = (name.to_owned(), Instant::now());
        Self { name, time, is_seen, told, has_line: false }
    }

    fn look(&mut self, now: &live::Progress) {
        let (elapsed, all) = (now.elapsed.as_secs(), self.time.as_secs());
        let seen = format!("{} packets, {}", text::count(now.packets as f64), bytes(now.bytes));
        self.line(&format!("{elapsed} of {all} s, {seen}; Ctrl-C ends it with the report"));
    }

    fn read(&mut self, read: u64, size: u64) {
        if self.told.elapsed() >= PROGRESS_EVERY {
            self.told = Instant::now();
            // A stream has no size, so no percentage is shown for it.
            self.line(&match (read * 100).checked_div(size) {
                Some(percent) => format!("{} of {} read, {percent} %", bytes(read), bytes(size)),
                None => format!("{} read; Ctrl-C ends it with the report", bytes(read)),
            });
        }
    }

    fn line(&mut self, text: &str) {
        if self.is_seen {
            to_stderr(format_args!("\r{}: {text}\x1b[K", self.name));
            self.has_line = true;
        }
    }

    fn end(&mut self) {
        if self.has_line {
            to_stderr("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure;

    #[test]
    fn times_may_be_hours() {
        assert_eq!(parse_duration("48h"), Ok(Duration::from_secs(48 * 3600)));
        assert_eq!(parse_duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert!(parse_duration("0s").is_err() && parse_duration("h").is_err());
    }

    #[test]
    fn a_file_that_is_no_capture_is_bad_usage_and_an_empty_one_says_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("file");
        let args = |extra: &[&str]| {
            #[derive(clap::Parser)]
            struct CommandLine {
                #[command(flatten)]
                args: ProfileArgs,
            }
            let words = ["srd", "--pcap"].into_iter().map(str::to_owned);
            let words = words.chain([file.display().to_string()]);
            let words = words.chain(extra.iter().map(|word| (*word).to_owned()));
            <CommandLine as clap::Parser>::try_parse_from(words).expect("a command line").args
        };
        let code = |extra: &[&str]| match run(&args(extra)) {
            Ok(code) => (code, String::new()),
            Err(error) => (failure::exit_code(&error), format!("{error:#}")),
        };
        assert_eq!(code(&[]).0, failure::USAGE, "no such file");
        fs::write(&file, "no capture").expect("a file");
        let (number, said) = code(&[]);
        assert!(number == failure::USAGE && said.contains("neither a pcap nor"), "{said}");
        let header =
            [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0];
        fs::write(&file, header).expect("a file");
        let (number, said) = code(&[]);
        assert!(number == failure::RUN && said.contains("it has no packets"), "{said}");
        let (number, said) = code(&["--type", "c7i.lrage"]);
        assert!(number == failure::USAGE && said.contains("c7i.large"), "{said}");
        assert_eq!(code(&["--family", "nosuch"]).0, failure::USAGE);
        let (number, said) = code(&["--vcpus", "99999"]);
        assert!(number == failure::USAGE && said.contains("99999 vCPUs"), "{said}");
    }
}
