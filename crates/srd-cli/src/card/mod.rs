//! `srd card` and `srd run`: instances of a virtual private cloud on this machine.
//!
//! | module | contents |
//! |---|---|
//! | [`up`] | `srd card up` |
//! | [`export`] | `srd card export` |
//! | [`lab`] | `srd card lab` |
//! | [`logs`] | `srd card logs` |
//! | [`set`] | `srd card set` |
//! | [`show`] | `srd card status`, `stats`, `flows`, `apply` |
//! | [`trace`] | `srd card trace`, `capture` |
//! | [`mod@run`] | `srd run` |
//! | [`report`] | limits that an instance exceeded, and remedies |

mod export;
mod lab;
mod logs;
mod report;
pub(crate) mod run;
mod set;
mod show;
mod trace;
mod up;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use nix::sys::signal::{SigSet, Signal};
use srd_guest::client::Refused;

use crate::failure::{self, Missing, Usage};
use crate::nodes;

/// End of the text of `srd card --help`.
pub(crate) const NOTES: &str = "\
EXAMPLES
  sudo srd card up docs/vpc/web-app.toml --internet   # until Ctrl-C; the rest in another terminal
  sudo srd card status
  sudo srd card trace web tcp port 443
  sudo srd card apply new.toml
  sudo srd run --peer-of web -- curl http://10.0.1.10:443/

The commands need root, or the user that has started the card. They use the card at the socket of
--socket, or the only card, or daemon with instances, that runs on this machine. docs/card.md
describes cards, docs/vpc.md the file of a VPC.

EXIT CODES
  0  it worked
  1  no card answers, or it failed
  2  wrong arguments, or the card refuses them; or several cards run, and none is named
  3  it needs root";

/// Returns the end of the help of a command that sends requests to a card: its examples, and the
/// exit codes. Some commands have codes of their own instead.
macro_rules! with_codes {
    ($examples:literal) => {
        concat!(
            "EXAMPLES\n",
            $examples,
            "\n\nEXIT CODES\n  0  it worked\n  1  no card answers, or it failed\n  \
             2  wrong arguments, or the card refuses them; or several cards run, and none is named\
             \n  3  it needs root"
        )
    };
}
use with_codes;

/// Commands for the card of this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum CardCommand {
    /// Run instances of a virtual private cloud as network namespaces of this machine, until Ctrl-C
    /// or SIGTERM ends it.
    Up(up::UpArgs),
    /// Show instances: limits in use, credits left, drops by cause.
    Status(show::StatusArgs),
    /// Print the counters of an instance as `ethtool -S` does.
    Stats(show::StatsArgs),
    /// Change the device of an instance, or show its settings: queues, rings, RSS, n-tuple rules
    /// and interrupts.
    Set(set::SetArgs),
    /// Show the flows of an instance: the state of each connection, and the card's records of its
    /// two directions.
    Flows(show::FlowsArgs),
    /// Follow packets of an instance: the decision of each table, the limits that delayed them, and
    /// where they went.
    Trace(trace::TraceArgs),
    /// Write packets of an instance to a file for Wireshark, each with its outcome as a comment.
    Capture(trace::CaptureArgs),
    /// Show the flow logs: the directories of their files, and the records written and dropped.
    Logs(logs::LogsArgs),
    /// Print the figures of the card as lines of JSON for a collector of OpenTelemetry, or for the
    /// agent of CloudWatch.
    Export(export::ExportArgs),
    /// Run the experiments of the talk NET402 on EC2's network, with instances of this machine and
    /// iperf3, and compare each figure with the talk's.
    Lab(lab::LabArgs),
    /// Apply the rules of a file. When the command ends, the old rules apply to no packet any more,
    /// and the namespaces of instances are there.
    Apply(show::ApplyArgs),
}

/// Socket of the card.
#[derive(Args, Clone, Debug)]
pub(crate) struct SocketArg {
    /// The control socket of the card. Default: that of the only card, or daemon with instances,
    /// that runs on this machine. A card that starts listens at /run/srd-card/card.sock by default.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl SocketArg {
    /// Returns the path that the command line contains.
    fn given(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// Returns the path at which a card that starts listens, if it has no file of settings.
    fn own(&self) -> PathBuf {
        self.given().unwrap_or(srd_guest::SOCKET_DEFAULT.as_ref()).to_owned()
    }

    /// Returns the path of the socket to which requests are sent.
    ///
    /// # Errors
    /// Several nodes with instances run, and the command line names none.
    fn path(&self) -> Result<PathBuf> {
        self.given().map_or_else(nodes::only_with_instances, |path| Ok(path.to_owned()))
    }
}

/// Runs the process that keeps the privileges for a card that has dropped them. It ends when the
/// card ends; signals of a terminal or of a service do not end it.
pub(crate) fn helper() -> Result<u8> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        signals.add(signal);
    }
    signals.thread_block().context("signals")?;
    srd_guest::helper::serve()?;
    Ok(0)
}

/// Adds to an error at the start of the command that root is needed, if the process was not root.
fn or_root(error: anyhow::Error, was_root: bool, command: &str) -> anyhow::Error {
    if was_root || failure::exit_code(&error) != failure::RUN {
        return error;
    }
    error.context(Missing(format!(
        "`{command}` needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN) for network namespaces and their \
         devices: run it with sudo"
    )))
}

/// Converts the error that the card refused the arguments of a command to a usage error.
fn or_usage(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Refused>() {
        Some(Refused(what)) => Usage(what.clone()).into(),
        None => error,
    }
}

/// Runs the command.
pub(crate) fn run(command: &CardCommand) -> Result<u8> {
    match command {
        CardCommand::Up(args) => up::run(args),
        CardCommand::Status(args) => show::status(args),
        CardCommand::Stats(args) => show::stats(args),
        CardCommand::Set(args) => set::run(args),
        CardCommand::Flows(args) => show::flows(args),
        CardCommand::Trace(args) => trace::trace(args),
        CardCommand::Capture(args) => trace::capture(args),
        CardCommand::Logs(args) => logs::run(args),
        CardCommand::Export(args) => export::run(args),
        CardCommand::Lab(args) => lab::run(args),
        CardCommand::Apply(args) => show::apply(args),
    }
}
