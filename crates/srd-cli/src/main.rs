//! The `srd` command: one tool for the transport, its laboratory and its simulator.
//!
//! Each command is implemented in the crate to which it belongs. This crate contains the arguments,
//! the files, the exit codes, and the output of results that the other crates do not print.
//!
//! | module | command |
//! |---|---|
//! | [`daemon`] | `srd status`, `top`, `set` and similar: commands for a running daemon; keys |
//! | [`lab`] | `srd lab`: a fabric of network namespaces |
//! | [`perf`] | `srd perf`: throughput and round trips of SRD, TCP and UDP |
//! | [`sim`] | `srd sim`: experiments in the simulator |
//! | [`watch`] | `srd watch`: detects bursts on interfaces and in capture files |
//! | [`shape`] | `srd shape`: limits the rate at which an interface sends |
//! | [`profile`] | `srd profile`: requirements of traffic on an instance |
//! | [`vpc`] | `srd vpc`: virtual private clouds from a file |
//! | [`card`] | `srd card`, `srd run`: instances of a cloud on this machine |
//! | [`control`] | `srd control`: the EC2 API for virtual private clouds |
//! | [`hosts`] | `srd control hosts`, `srd control token`: hosts that enrol themselves |
//! | [`identity`] | `srd control identity`: the identity of the controller |
//! | [`keys`] | `srd control key`: access keys of the API |
//! | [`state`], [`https`] | locations of the state of `srd control`; its HTTPS |
//! | [`node`] | machines for `srd control up` |
//! | [`nfs_proxy`] | `srd nfs-proxy`: NFS through TLS and several connections |
//! | [`compare`] | `srd compare`: the user's own command, with and without SRD |
//! | [`check`] | `srd check`: whether the settings of this system are fit for spraying |
//! | [`mpi_check`] | `srd mpi-check`: whether MPI finds SRD through libfabric and uses it |
//! | [`demo`] | `srd demo`: kernel TCP and SRD on the same wires, and a report |
//! | [`man`] | `srd man`: a page for every command, for packages |
//! | [`log`] | messages on standard error |
//! | [`advice`] | advice on a command line that was not understood |
//! | [`help`] | exit codes in the help of each command |
//! | `srd_cni` | `srd-cni`, the same program under the name of a CNI plugin |
//! | [`nodes`] | control sockets of the nodes that run |
//! | [`failure`], [`output`], [`secret`], [`signals`], [`units`] | helpers that the commands share |

#![warn(clippy::print_stdout, clippy::print_stderr)] // the macros end a program whose output fails

mod advice;
#[cfg(test)]
mod book_tests;
mod card;
mod check;
mod compare;
mod control;
mod daemon;
mod demo;
mod failure;
mod help;
mod hosts;
mod https;
mod identity;
mod keys;
mod lab;
mod log;
mod man;
mod mpi_check;
mod nfs_proxy;
mod node;
mod nodes;
mod output;
mod perf;
mod profile;
mod secret;
mod shape;
mod signals;
mod sim;
mod state;
mod units;
mod vpc;
mod watch;

use anyhow::{Context, Result};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::CompleteEnv;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::output::tell;

/// End of the text of `srd --help`.
const NOTES: &str = "\
WHERE TO BEGIN
  sudo srd demo                     SRD beside kernel TCP on this machine
  sudo srd up --try ADDRESS         an encrypted tunnel between two machines, without a file
  sudo srd run -- iperf3 -s         a program with the network of an EC2 instance
  srd control up --trial            the EC2 API for virtual private clouds
  srd sim run uplink-death          an experiment in the simulator

Commands for a running node (status, top, stats, paths, set, peer, reload, capture, and those of
`srd card`) find the only one of this machine. If several run, they name them and end.
--json FILE writes the result to a file as well; --json alone or --json - prints JSON only.

EXIT CODES
  0  it worked
  1  it ran and failed, a target was missed, or flows stayed unfinished
  2  wrong arguments or configuration: nothing was started
  3  a privilege or a program is missing: the message says which
`srd check` and `srd mpi-check` count failed checks instead. `srd run`, `srd lab exec` and `srd lab
impair` end with the code of the program that they run. `srd COMMAND --help` has more.";

/// SRD: a reliable datagram transport that sprays one flow over every path of a network.
///
/// `srd demo` shows its use, and `srd perf` measures it between two machines. `srd lab` builds a
/// small datacenter of network namespaces for experiments. `srd sim` runs the same transport in a
/// simulator.
#[derive(Debug, Parser)]
#[command(name = "srd", version, propagate_version = true, after_help = NOTES)]
struct Cli {
    /// Log to standard error: -v events, -vv details, -vvv everything. RUST_LOG overrides.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show SRD beside kernel TCP on the same wires, and write a report.
    Demo(demo::DemoArgs),
    /// Measure throughput and round trips of SRD, kernel TCP or raw UDP between two machines.
    #[command(subcommand)]
    Perf(perf::PerfCommand),
    /// Run experiments in the packet-level simulator.
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// Build and break a leaf-spine fabric of network namespaces on this machine.
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Check virtual private clouds, and show what happens to a packet in them.
    #[command(subcommand)]
    Vpc(vpc::VpcCommand),
    /// Run instances of a virtual private cloud on this machine, with the limits of their types.
    #[command(subcommand, after_help = card::NOTES)]
    Card(card::CardCommand),
    /// Serve the EC2 API for virtual private clouds, and manage hosts that enrol at the server.
    #[command(subcommand, after_help = control::NOTES)]
    Control(control::ControlCommand),
    /// Process that keeps the privileges for `srd card up`.
    #[command(hide = true)]
    CardHelper,
    /// Process that keeps a card running for `srd control up`.
    #[command(hide = true)]
    ControlKeeper(node::keeper::KeeperArgs),
    /// Run a program as an instance, with the address, the rules and the limits of that instance.
    Run(Box<card::run::RunArgs>),
    /// Find bursts of packets on any interface, and name their flows and the limits they exceed.
    Watch(Box<watch::WatchArgs>),
    /// Report what traffic needs: its kinds and rates, the instance types that carry it, the
    /// tuning.
    Profile(Box<profile::ProfileArgs>),
    /// Carry NFS between machines through TLS and several connections.
    NfsProxy(Box<nfs_proxy::NfsProxyArgs>),
    /// Limit the sending rate of an interface, and the rate of each of its flows.
    Shape(shape::ShapeArgs),
    /// Run your own command with and without SRD in turns, and show which differences are real.
    Compare(Box<compare::CompareArgs>),
    /// Check the settings of this system that matter for ENA Express, and fix them.
    Check(check::CheckArgs),
    /// Check whether the MPI of this machine will use SRD through libfabric, and show the command.
    MpiCheck(Box<mpi_check::MpiCheckArgs>),
    #[command(flatten)]
    Daemon(daemon::DaemonCommand),
    /// Print the completion script of a shell.
    ///
    /// For example: srd completions bash > /etc/bash_completion.d/srd
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write a man page for every command into a directory.
    #[command(hide = true)]
    Man {
        /// The directory; it is created if it does not exist.
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    // A container runtime starts a plugin by its name.
    let name = std::env::args_os().next().map(PathBuf::from);
    if name.as_deref().and_then(Path::file_name) == Some(OsStr::new(srd_cni::PROGRAM)) {
        return ExitCode::from(srd_cni::main());
    }
    // If a shell requests completions, this call answers the request and exits.
    CompleteEnv::with_factory(command).complete();
    let matches = command().try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return not_understood(error),
    };
    let daemon = matches!(
        cli.command,
        Command::Daemon(daemon::DaemonCommand::Up(_))
            | Command::NfsProxy(_)
            | Command::CardHelper
            | Command::Control(control::ControlCommand::Up(_))
    ) || matches!(&cli.command, Command::Card(card::CardCommand::Up(args)) if args.is_daemon());
    log::to_stderr(cli.verbose, daemon);
    let code = match run(cli.command, cli.verbose > 0) {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => 0,
        Err(error) => {
            tell!("srd: {error:#}");
            failure::exit_code(&error)
        }
    };
    ExitCode::from(code)
}

/// Returns the description of the command line.
fn command() -> clap::Command {
    help::with_exit_codes(Cli::command())
}

/// Prints clap's text: help, the version or an error. Returns the exit code.
fn not_understood(mut error: clap::Error) -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    advice::add(&mut error, &command(), &words);
    // Printing fails if the reader has closed the output. No message is needed in this case.
    let _ = error.print();
    if error.use_stderr() && check::is_meant(words.into_iter()) {
        return ExitCode::from(check::UNCHECKED);
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::USAGE))
}

fn run(command: Command, verbose: bool) -> Result<u8> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Perf(command) => perf::run(&command),
        Command::Sim(command) => sim::run(&command, verbose || std::io::stderr().is_terminal()),
        Command::Lab(command) => lab::run(command),
        Command::Vpc(command) => vpc::run(&command),
        Command::Card(command) => card::run(&command),
        Command::Control(command) => control::run(&command),
        Command::CardHelper => card::helper(),
        Command::ControlKeeper(args) => node::keeper::run(&args),
        Command::Run(args) => card::run::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::NfsProxy(args) => nfs_proxy::run(&args),
        Command::Shape(args) => shape::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Check(args) => check::run(&args),
        Command::MpiCheck(args) => mpi_check::run(&args),
        Command::Daemon(command) => daemon::run(&command),
        Command::Completions { shell } => {
            completions(shell)?;
            Ok(0)
        }
        Command::Man { directory } => {
            man::write(crate::command(), &directory)?;
            Ok(0)
        }
    }
}

/// Prints the script with which a shell requests completions from this program. The completions
/// include the names of peers, and leave out hidden commands.
fn completions(shell: clap_complete::Shell) -> Result<()> {
    let shells = clap_complete::env::Shells::builtins();
    let name = shell.to_string();
    let shell = shells.completer(&name).context("no completions for this shell")?;
    let mut script = Vec::new();
    shell.write_registration("COMPLETE", "srd", "srd", "srd", &mut script)?;
    output::say(String::from_utf8_lossy(&script).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }
}
