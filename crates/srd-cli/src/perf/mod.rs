//! `srd perf`: measures throughput and round trips of SRD, kernel TCP and raw UDP between two
//! machines.
//!
//! One tool measures all three, so that they can be compared in the same minute over the same
//! wires. A TCP connection carries parameters and results ([`control`]). Data travels over the
//! chosen transport, to the same port number.

mod client;
mod control;
mod intervals;
mod keys;
mod params;
mod received;
mod report;
mod running;
mod server;
mod srd;
mod tcp;
mod udp;

use crate::failure::usage;
use crate::output::JsonOutput;
use crate::units;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use params::{Mode, Transport};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Default port of control connections and data.
pub(crate) const PORT: u16 = 7471;
/// Maximum number of threads that send and receive packets.
const WORKERS_MAX: u8 = 8;

const EXAMPLES: &str = "\
EXAMPLES
  On the server:
    srd perf server                                  prints its public key
  On the client:
    srd perf client 10.0.0.2 --peer-key KEY          SRD, encrypted, 10 seconds
    srd perf client 10.0.0.2 --encrypt off           SRD, plain
    srd perf client 10.0.0.2 --encrypt off --workers 4    by four threads of this end
    srd perf client 10.0.0.2 --transport tcp         kernel TCP beside it
    srd perf client 10.0.0.2 --transport udp         raw UDP: the ceiling
    srd perf client 10.0.0.2 --mode rr --encrypt off --busy-poll --time 5 --json -

  A server with --key-file, --job-key or --job-key-file measures nothing that is not encrypted
  unless it has --allow-plain.

Data uses the same port number as control: UDP ports from it on (one per path and worker) for SRD,
the port itself for TCP and UDP. A firewall must let these through.";

/// `srd perf`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum PerfCommand {
    /// Wait for clients and serve one measurement after the other.
    #[command(after_help = EXAMPLES)]
    Server(ServerArgs),
    /// Measure against a server.
    #[command(after_help = EXAMPLES)]
    Client(Box<ClientArgs>),
}

/// Secrets of a server or a client.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct KeyArgs {
    /// A key that server and client share: 44 characters of base64 or 64 hexadecimal digits. Other
    /// users of this machine may see it in the list of processes; prefer --job-key-file.
    #[arg(long, value_name = "KEY", conflicts_with = "job_key_file")]
    job_key: Option<String>,
    /// File with a key that server and client share.
    #[arg(long, value_name = "FILE")]
    job_key_file: Option<PathBuf>,
}

/// `srd perf server`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// Listen on this address only.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0")]
    bind: IpAddr,
    /// Listen on this port. 0: on a port that is free for TCP and for UDP.
    #[arg(long, short, default_value_t = PORT)]
    port: u16,
    /// File with this server's private key, as `srd genkey` prints it or in 64 hexadecimal digits,
    /// so that its public key stays the same; it is created if it does not exist. Without this
    /// option, a new key is generated.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyArgs,
    /// Threads that move SRD's packets, each with a shard of the endpoint: 1 to 8. Default: one for
    /// every two cores.
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=i64::from(WORKERS_MAX)))]
    workers: Option<u8>,
    /// Also measure without encryption (kernel TCP, UDP, and SRD with `--encrypt off`), although a
    /// key was given. Otherwise a server with --key-file or a job key serves protected SRD only.
    #[arg(long)]
    allow_plain: bool,
    /// Serve one client and exit.
    #[arg(long, short = '1')]
    one_off: bool,
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

/// `srd perf client`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientArgs {
    /// The server: a name or an address.
    host: String,
    /// The server's port.
    #[arg(long, short, default_value_t = PORT)]
    port: u16,
    /// Transport of the data.
    #[arg(long, value_enum, default_value_t = Transport::Srd)]
    transport: Transport,
    /// bulk: as much data as possible in one direction. rr: one request and its answer at a time.
    #[arg(long, value_enum, default_value_t = Mode::Bulk)]
    mode: Mode,
    /// Bytes per datagram (srd, udp), write (tcp) or request (rr), for example 8K. Default: as many
    /// as fit into one packet; 128K for tcp; 64 for rr.
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    size: Option<u64>,
    /// Duration of the measurement, for example 10, 500ms or 2m; at most a day.
    #[arg(long, short, value_name = "TIME", default_value = "10", value_parser = units::parse_time)]
    time: Duration,
    /// Flows in parallel: queue pairs of a worker's context (srd), connections (tcp), sockets
    /// (udp).
    #[arg(long, short = 'P', value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=64))]
    streams: u16,
    /// Paths that SRD sprays over: source ports, 1 to 256.
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    paths: u16,
    /// Threads of this end that move SRD's packets, each with a shard of the endpoint: 1 to 8.
    /// Default: one for every two cores.
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=i64::from(WORKERS_MAX)))]
    workers: Option<u8>,
    /// Whether SRD authenticates and encrypts (AES-256-GCM). On needs --peer-key or a job key.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    encrypt: Switch,
    /// The server's public key, which the server prints: 44 characters of base64, or 64 hexadecimal
    /// digits.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["job_key", "job_key_file"])]
    peer_key: Option<String>,
    #[command(flatten)]
    keys: KeyArgs,
    /// Poll the sockets instead of sleeping: less latency, but one busy core at each end.
    #[arg(long)]
    busy_poll: bool,
    /// Speed of the slowest link at either end, for example 1G. Default: the speed that the network
    /// card reports, otherwise found out by sending.
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    link_rate: Option<u64>,
    /// Time between lines of progress.
    #[arg(long, short, value_name = "TIME", default_value = "1", value_parser = units::parse_time)]
    interval: Duration,
    #[command(flatten)]
    json: JsonOutput,
}

/// Runs `srd perf`. Returns the exit code.
pub(crate) fn run(command: &PerfCommand) -> Result<u8> {
    srd_net::raw::timer_slack_minimum();
    match command {
        PerfCommand::Server(args) => server::run(args)?,
        PerfCommand::Client(args) => {
            check(args)?;
            client::run(args)?;
        }
    }
    Ok(0)
}

/// Returns the default number of workers: one for every two cores.
fn usual_workers() -> u8 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u8::try_from(cores / 2).unwrap_or(WORKERS_MAX).clamp(1, WORKERS_MAX)
}

fn check(args: &ClientArgs) -> Result<()> {
    args.json.check()?;
    if args.mode == Mode::RequestResponse && args.streams > 1 {
        return usage("--mode rr keeps one request in flight: leave --streams at 1");
    }
    if args.transport != Transport::Srd && args.workers.is_some() {
        return usage("--workers is for --transport srd: tcp has a thread for each stream");
    }
    if args.mode == Mode::RequestResponse && args.workers.is_some_and(|workers| workers > 1) {
        return usage("--mode rr keeps one request in flight: leave --workers at 1");
    }
    if args.size == Some(0) || args.size.is_some_and(|size| size > params::SIZE_MAX) {
        return usage(format!("--size must be between 1 and {} bytes", params::SIZE_MAX));
    }
    if args.time.as_millis() > u128::from(params::TIME_MS_MAX) {
        return usage("--time must be a day at most");
    }
    let KeyArgs { job_key, job_key_file } = &args.keys;
    if args.peer_key.is_some() || job_key.is_some() || job_key_file.is_some() {
        if args.transport != Transport::Srd {
            return usage("a key is for --transport srd: tcp and udp are not encrypted here");
        }
        if args.encrypt == Switch::Off {
            return usage("a key has no effect with --encrypt off: leave one of them out");
        }
    }
    Ok(())
}
