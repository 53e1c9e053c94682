//! `srd watch`: detects bursts on interfaces and in capture files.

mod outputs;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use srd_guest::config::scale;
use srd_watch::live::Output as _;
use srd_watch::session::Session;
use srd_watch::source::Choice;
use srd_watch::{Model, Settings, file, live};

use self::outputs::{OutputOptions, Outputs};
use crate::failure::{Missing, named_once, of_interface, usage};
use crate::output::JsonOutput;
use crate::signals;
use crate::units::{parse_bytes, parse_rate, parse_time};

const EXAMPLES: &str = "\
EXAMPLES
  srd watch eth0 --type c7i.large            # against the limits of an instance type
  srd watch eth0 --rate 10G --pps 1000000    # against a rate
  srd watch eth0 --type c7i.large --seconds 60 --summary --html bursts.html --json bursts.jsonl
  srd watch -r trace.pcapng --rate 10G       # a file of tcpdump, Wireshark or `srd capture`
  tcpdump -i eth0 -w - | srd watch -r - --rate 10G     # a pipe; a FIFO has a name
  srd watch eth0 --rate 10G --metrics 127.0.0.1:9100   # for Prometheus

Packets come from programs at tc (eBPF, Linux 6.6), which cost least, or from packet sockets.
docs/watch.md says how bursts are defined, and what is not seen. --json writes lines of JSON: one
for each interface, with the source of its packets, then one for each burst.

EXIT CODES
  0  it worked, bursts or none
  1  an interface went away, a file was damaged, had no packets or none that could be read, or an
     output could not be written
  2  bad usage, or a file that is no capture: nothing was started
  3  a privilege is missing: CAP_BPF and CAP_NET_ADMIN for eBPF, CAP_NET_RAW for packet sockets";

/// Bytes of memory for each interface, for packets that are kept to be saved.
const KEPT_BYTES: usize = 64 << 20;

/// Arguments of `srd watch`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WatchArgs {
    /// The interfaces.
    #[arg(value_name = "IF", required_unless_present = "read", conflicts_with = "read")]
    interfaces: Vec<String>,
    /// Read packets from this file instead: pcap or pcapng, also compressed with gzip or zstd; a
    /// FIFO, or `-` for standard input.
    #[arg(short, long, value_name = "FILE")]
    read: Option<PathBuf>,
    /// Compare packets with the limits of this instance type.
    #[arg(long = "type", value_name = "TYPE")]
    instance_type: Option<String>,
    /// Divide all rates of the instance type by N, for a lab that is slower by this factor.
    #[arg(long, value_name = "1/N", value_parser = scale, requires = "instance_type")]
    scale: Option<u32>,
    /// Destination of the flows, which decides the ceiling of one flow of an instance type.
    #[arg(long, value_enum, default_value = "exterior", requires = "instance_type")]
    flows_to: FlowsTo,
    /// Assume that the instance has used up its credits: its baseline is the limit.
    #[arg(long, requires = "instance_type")]
    no_credits: bool,
    /// Compare each direction with this rate, in bits a second.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "instance_type")]
    rate: Option<u64>,
    /// Limit of packets a second, of both directions together.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pps: Option<u64>,
    /// Ceiling of one flow, in bits a second.
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    flow_rate: Option<u64>,
    /// Amount that may pass at once above a rate, as a time at that rate [default: 1ms, or more at
    /// low rates].
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    tolerance: Option<Duration>,
    /// Length of a bin: 100us to 1ms.
    #[arg(long, value_name = "TIME", value_parser = parse_bin, default_value = "1ms")]
    bin: u64,
    /// Percentage of a limit from which on a bin is part of a burst.
    #[arg(long, value_name = "PERCENT", default_value_t = 90,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    threshold: u64,
    /// Two bursts with a gap shorter than this count as one.
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5ms")]
    gap: Duration,
    /// Maximum number of flows that are named for a burst.
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    top: u64,
    /// End after this time; otherwise Ctrl-C ends it.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    seconds: Option<Duration>,
    /// Print a summary at the end.
    #[arg(long)]
    summary: bool,
    /// Write a page with charts of bursts, averages and limits to this file at the end.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Save the headers of each burst's packets in this directory, a pcapng file for each.
    #[arg(long, value_name = "DIR")]
    save_burst: Option<PathBuf>,
    /// Maximum number of files that --save-burst writes.
    #[arg(long, value_name = "N", default_value_t = 100, requires = "save_burst")]
    save_max: u64,
    /// With -r: packets from these addresses are outgoing, if the file does not record the
    /// direction; for example 10.0.0.0/8,192.0.2.7.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', value_parser = parse_prefix,
          requires = "read")]
    local: Vec<srd_watch::Prefix>,
    /// With -r: a packet longer than this, counted from its IP header, is a super-packet that
    /// consists of packets of this length.
    #[arg(long, value_name = "BYTES", requires = "read",
          value_parser = clap::value_parser!(u16).range(68..))]
    mtu: Option<u16>,
    /// Source of the packets.
    #[arg(long, value_enum, default_value = "auto", conflicts_with = "read")]
    source: PacketSource,
    /// Memory for packets that wait to be read, for each interface; eBPF takes the next smaller
    /// power of two [default: 8M with eBPF, 32M with a packet socket].
    #[arg(long, value_name = "SIZE", value_parser = parse_ring)]
    ring: Option<u32>,
    /// Interval between two reads of the driver's counters, if it has any.
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "250ms")]
    counters: Duration,
    /// Serve counters and histograms of bursts in OpenMetrics at http://ADDR:PORT/metrics.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "read")]
    metrics: Option<SocketAddr>,
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

/// Source of the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum PacketSource {
    /// eBPF if the kernel and this process's privileges allow it, otherwise packet sockets.
    Auto,
    /// Programs at tc, which record each packet into memory: Linux 6.6, CAP_BPF, CAP_NET_ADMIN.
    Ebpf,
    /// Packet sockets, which cost more if packets are many and small: CAP_NET_RAW.
    Packet,
}

impl PacketSource {
    fn choice(self) -> Choice {
        match self {
            Self::Auto => Choice::Auto,
            Self::Ebpf => Choice::Ebpf,
            Self::Packet => Choice::Packet,
        }
    }
}

/// Parses the length of a bin, a number with a unit of time; returns nanoseconds.
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

/// Parses a prefix of addresses, such as `10.0.0.0/8`; a single address is a prefix of its full
/// length.
pub(crate) fn parse_prefix(text: &str) -> Result<srd_watch::Prefix, String> {
    let address = text.parse().ok();
    let whole = |address: std::net::IpAddr| {
        srd_watch::Prefix::new(address, if address.is_ipv4() { 32 } else { 128 })
    };
    let prefix = address.and_then(whole).or_else(|| text.parse().ok());
    prefix.ok_or_else(|| "write a prefix as 10.0.0.0/8, or an address".to_owned())
}

/// Parses the size in bytes of the memory for packets that wait to be read.
pub(crate) fn parse_ring(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    let range = (1 << 20)..=(1 << 30);
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| range.contains(bytes))
        .ok_or_else(|| "write a size from 1M to 1G".to_owned())
}

/// Runs `srd watch`. Returns the exit code.
pub(crate) fn run(args: &WatchArgs) -> Result<u8> {
    let model = args.model()?;
    named_once(&args.interfaces)?;
    let names = args.interfaces.join(", ");
    let greeting = format!("watching {names} against {model}; Ctrl-C ends it");
    let mut outputs = Outputs::open(OutputOptions { greeting: Some(greeting), ..args.wanted() })?;
    let stop = signals::stop_flag_then_end()?;
    match &args.read {
        Some(file) => read(args, file, model, outputs, &stop),
        None => {
            let failed = Arc::clone(&outputs.failing);
            let stopped = || stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
            let outcomes = live::run(&args.live(model), &stopped, &mut outputs);
            let outcomes = outcomes.map_err(|error| args.refused(&error))?;
            let gone: Vec<String> = outcomes
                .iter()
                .filter_map(|outcome| {
                    let error = outcome.error.as_ref()?;
                    Some(format!("{}: {error}", outcome.session.watch.name()))
                })
                .collect();
            let sessions: Vec<(Session, u64)> =
                outcomes.into_iter().map(|outcome| (outcome.session, outcome.lost)).collect();
            outputs.end(&sessions, &[])?;
            anyhow::ensure!(gone.is_empty(), "{}", gone.join("; "));
            Ok(0)
        }
    }
}

fn read(
    args: &WatchArgs,
    file: &Path,
    model: Model,
    mut outputs: Outputs,
    stop: &AtomicBool,
) -> Result<u8> {
    let options = file::Options {
        model,
        settings: args.settings(),
        local: args.local.clone(),
        mtu_bytes: args.mtu,
        kept_bytes: args.kept_bytes(),
    };
    let failed = Arc::clone(&outputs.failing);
    let stopped = || stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
    let outcome = file::run(file, &options, &stopped, &mut |report| outputs.report(report));
    let name = file::name_of(file);
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return usage(format!("{name}: {error}")),
    };
    let end = outcome.end;
    let packets: u64 = outcome.sessions.iter().map(|session| session.watch.packets()).sum();
    // All skipped packets of the file. The summary of a session contains the skipped packets of the
    // session.
    let mut others = end.others.clone();
    outcome.sessions.iter().for_each(|session| others.absorb(session.others()));
    let is_nothing = packets == 0;
    let not_read = match (is_nothing, args.summary) {
        // The error at the end of this function contains the skipped packets.
        (true, _) => Vec::new(),
        (false, true) => end.others.lines(),
        (false, false) => others.lines(),
    };
    let not_read: Vec<String> =
        not_read.into_iter().map(|line| format!("{name}: {line}")).collect();
    // A file without IP packets has sessions, but they have no results.
    let sessions = if is_nothing { Vec::new() } else { outcome.sessions };
    let sessions: Vec<(Session, u64)> = sessions.into_iter().map(|session| (session, 0)).collect();
    outputs.end(&sessions, &not_read)?;
    if let Some(error) = &end.error {
        anyhow::bail!("{name}: {error}");
    }
    anyhow::ensure!(!is_nothing, "{name}: {}", end.nothing(&others));
    Ok(0)
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
            (None, None) => {
                return usage("say what to hold packets against: --type c7i.large, or --rate 10G");
            }
        };
        if let Some(rate) = self.flow_rate {
            model = model.with_flow_rate(rate);
        }
        if let Some(tolerance) = self.tolerance {
            model = model.with_tolerance(nanos(tolerance));
        }
        Ok(model)
    }

    /// Converts the error that prevented the watch to an error with advice and the right exit code.
    fn refused(&self, error: &std::io::Error) -> anyhow::Error {
        if self.source == PacketSource::Ebpf && error.kind() == std::io::ErrorKind::PermissionDenied
        {
            return Missing(format!("{error}: run it as root, or with --source packet")).into();
        }
        of_interface(error, ["watching", "watch"])
    }

    fn wanted(&self) -> OutputOptions {
        OutputOptions {
            json: self.json.clone(),
            html: self.html.clone(),
            save_burst: self.save_burst.clone(),
            save_max: self.save_max,
            summary: self.summary,
            metrics: self.metrics,
            greeting: None,
        }
    }

    fn live(&self, model: Model) -> live::Options {
        live::Options {
            interfaces: self.interfaces.clone(),
            source: self.source.choice(),
            model,
            settings: self.settings(),
            time: self.seconds,
            ring_bytes: self.ring,
            kept_bytes: self.kept_bytes(),
            counters_every: self.counters,
        }
    }

    /// Returns the bytes of memory for packets that are kept to be saved; zero without
    /// --save-burst.
    fn kept_bytes(&self) -> usize {
        if self.save_burst.is_some() { KEPT_BYTES } else { 0 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_prefixes_and_rings_as_people_write_them() {
        assert_eq!(parse_bin("250us"), Ok(250_000));
        assert_eq!(parse_bin("1ms"), Ok(1_000_000));
        for text in ["", "99us", "2ms", "1", "1s", "-1ms", "99999999999999999999us"] {
            assert!(parse_bin(text).expect_err(text).contains("100us"), "{text}");
        }
        let prefix = parse_prefix("10.0.0.0/8").unwrap();
        assert!(prefix.contains("10.9.9.9".parse().unwrap()));
        assert!(parse_prefix("fd00::7").unwrap().contains("fd00::7".parse().unwrap()));
        assert!(parse_prefix("ten").is_err());
        assert_eq!(parse_ring("4M"), Ok(4 << 20));
        assert!(parse_ring("4G").is_err() && parse_ring("1K").is_err());
    }
}
