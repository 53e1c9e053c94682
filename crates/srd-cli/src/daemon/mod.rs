//! Commands for a running daemon, and for the keys that it needs.
//!
//! | module | command |
//! |---|---|
//! | [`show`] | `srd status`, `srd stats`, `srd paths`: their output |
//! | [`top`] | `srd top`: the state of the daemon, live |
//! | [`set`] | `srd set` |
//! | [`peer`] | `srd peer` |
//! | [`complete`] | names of peers, for shells |
//! | [`capture`] | `srd capture` |
//! | [`keys`] | `srd genkey`, `srd pubkey`, `srd genpsk` |
//! | [`import`] | `srd import` |
//! | [`enrol`] | `srd up --control`: a host that enrols |
//! | [`first_try`] | `srd up --try`: two machines without a file |
//! | [`up`] | `srd up`, the daemon; `srd down`, which removes what a daemon left behind |

mod capture;
mod complete;
mod enrol;
mod first_try;
mod import;
mod keys;
mod peer;
mod set;
mod show;
mod top;
pub(crate) mod up;

use crate::failure::{Missing, Usage};
use crate::output;
use anyhow::{Context, Error, Result};
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use serde::Serialize;
use serde::de::DeserializeOwned;
use srd_daemon::config::{Config, ReloadReport};
use srd_daemon::control::{Client, ClientError, RefusalKind, Request, Stats, socket};
use srd_daemon::snapshot::{PeerSnapshot, Snapshot};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Commands of the daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// Carry TCP and UDP between machines over SRD, without a change to the applications.
    Up(up::UpArgs),
    /// Remove what a daemon left when it ended: the routes and rules of `kill_switch`.
    Down(up::DownArgs),
    /// Process that sets up addresses and routes for `srd up`.
    #[command(hide = true)]
    Network {
        /// Permitted operations, in the form in which `srd up` passes them.
        spec: String,
    },
    /// Process that runs the commands of `pre_down` and `post_down` for `srd up`.
    #[command(hide = true)]
    Hooks,
    /// Show the daemon's interface and its peers.
    Status(ShowArgs),
    /// Show the daemon live: peers, paths, flows. Ends with q.
    Top(top::TopArgs),
    /// Print the interface's counters as `ethtool -S` prints those of an ENA interface.
    Stats(ShowArgs),
    /// Show every path to a peer.
    Paths(PathsArgs),
    /// Change a setting until the next restart or reload.
    Set(set::SetArgs),
    /// Add and remove peers of the running daemon.
    #[command(subcommand)]
    Peer(peer::PeerCommand),
    /// Make the daemon read its configuration again.
    Reload(ReloadArgs),
    /// Capture packets for Wireshark: inner packets as applications see them, outer packets as the
    /// network sees them. tcpdump reads only one of the two at a time: --inner or --outer. It takes
    /// root, or `group_captures` in the daemon's configuration.
    Capture(capture::CaptureArgs),
    /// Print a new private key: umask 077; srd genkey > private.key
    Genkey,
    /// Print the public key of a private key: srd pubkey < private.key
    Pubkey,
    /// Print a new preshared key: umask 077; srd genpsk > b.psk
    Genpsk,
    /// Print a WireGuard configuration in our own form: srd import wg0.conf > srd0.toml
    Import(import::ImportArgs),
}

/// Selection of a daemon.
#[derive(Args, Clone, Debug)]
pub(crate) struct Target {
    /// The daemon's interface. Default: srd0, or the interface of the only daemon that runs.
    #[arg(long, short, value_name = "NAME", conflicts_with = "socket")]
    interface: Option<String>,
    /// The daemon's control socket, if it is not in /run/srd.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Arguments of a command that shows something.
#[derive(Args, Clone, Debug)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    target: Target,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// `srd reload`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReloadArgs {
    /// The daemon that runs this configuration file: the one at the control socket that the file
    /// names.
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["interface", "socket"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    show: ShowArgs,
}

/// `srd paths`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PathsArgs {
    /// The peer's name, or the beginning of its public key.
    #[arg(add = ArgValueCandidates::new(complete::peer_names))]
    peer: String,
    #[command(flatten)]
    show: ShowArgs,
}

/// Runs a command. Returns the exit code.
pub(crate) fn run(command: &DaemonCommand) -> Result<u8> {
    match command {
        DaemonCommand::Up(args) => return up::run(args),
        DaemonCommand::Down(args) => up::down(args)?,
        DaemonCommand::Hooks => srd_daemon::hooks::serve()?,
        DaemonCommand::Network { spec } => srd_daemon::netconf::serve(spec)?,
        DaemonCommand::Status(args) => {
            let status = Request::Status { paths: false, flows: if args.json { 100 } else { 0 } };
            print(args, &args.target.ask::<Snapshot>(&status)?, show::status)?;
        }
        DaemonCommand::Stats(args) => {
            print(args, &args.target.ask::<Stats>(&Request::Stats)?, show::stats)?;
        }
        DaemonCommand::Paths(PathsArgs { peer, show: args }) => {
            let request = Request::Paths { peer: peer.clone() };
            print(args, &args.target.ask::<PeerSnapshot>(&request)?, show::paths)?;
        }
        DaemonCommand::Reload(ReloadArgs { config, show: args }) => {
            let target = match config {
                Some(file) => Target::of_file(file)?,
                None => args.target.clone(),
            };
            let file = config.as_deref();
            let connected = Client::connect(&target.path()?);
            let answer = connected.and_then(|client| client.ask(&Request::Reload));
            let report: ReloadReport = answer.map_err(|error| explain_of(error, file))?;
            print(args, &report, ReloadReport::to_string)?;
            if !report.failed.is_empty() {
                return Ok(crate::failure::RUN);
            }
        }
        DaemonCommand::Set(args) => set::run(args)?,
        DaemonCommand::Peer(command) => return peer::run(command),
        DaemonCommand::Top(args) => top::run(args)?,
        DaemonCommand::Capture(args) => capture::run(args)?,
        DaemonCommand::Genkey => keys::generate(keys::Kind::Private)?,
        DaemonCommand::Genpsk => keys::generate(keys::Kind::Preshared)?,
        DaemonCommand::Import(args) => import::run(args)?,
        DaemonCommand::Pubkey => keys::public(std::io::stdin().lock())?,
    }
    Ok(0)
}

fn print<T: Serialize>(args: &ShowArgs, value: &T, text: impl Fn(&T) -> String) -> Result<()> {
    if args.json {
        let json = serde_json::to_string_pretty(value).context("the answer as JSON")?;
        return output::say(json);
    }
    output::say(text(value))
}

impl Target {
    /// Returns the daemon that runs a configuration file.
    fn of_file(file: &Path) -> Result<Self> {
        let config = Config::load_without_keys(file)?;
        Ok(Self { interface: None, socket: Some(config.control.socket) })
    }

    /// Returns the socket of the selected daemon.
    fn path(&self) -> Result<PathBuf> {
        let found = socket::find(self.interface.as_deref(), self.socket.as_deref());
        found.map_err(|names| {
            let names = names.join(", ");
            Usage(format!("several daemons run: {names}; name one with --interface")).into()
        })
    }

    fn connect(&self) -> Result<Client> {
        Client::connect(&self.path()?).map_err(explain)
    }

    pub(crate) fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T> {
        self.connect()?.ask(request).map_err(explain)
    }
}

/// Whether a process listens at the default socket of `srd card up`.
fn has_card() -> bool {
    let connected = srd_trust::socket::connect(srd_guest::SOCKET_DEFAULT.as_ref());
    connected.err().is_none_or(|error| {
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::PermissionDenied)
    })
}

/// Returns the text for a socket that no daemon serves. `file`: the configuration of the daemon, if
/// the command names it. `has_card`: whether a card runs, which is no daemon.
fn not_running(socket: &Path, file: Option<&Path>, has_card: bool) -> String {
    let shown = socket.display();
    match file {
        _ if has_card => format!(
            "no daemon of `srd up` serves {shown}. But a card of `srd card up` runs: \
             `srd card status` shows it, `srd card apply FILE` gives it other rules, and SIGHUP \
             makes a card that was started with -c read its file again"
        ),
        Some(file) => {
            format!("no daemon serves {shown}; start one: srd up -c {}", file.display())
        }
        None => ClientError::NotRunning(socket.to_owned()).to_string(),
    }
}

/// Converts an error of a request to the daemon to an error with the right exit code.
fn explain(error: ClientError) -> Error {
    explain_of(error, None)
}

/// As [`explain`]. `file`: the configuration of the daemon, if the command names it.
fn explain_of(error: ClientError, file: Option<&Path>) -> Error {
    let text = error.to_string();
    match error {
        ClientError::NotRunning(socket) => Error::msg(not_running(&socket, file, has_card())),
        ClientError::Denied { .. } => Missing(text).into(),
        ClientError::Refused(refusal) if refusal.kind == RefusalKind::NotPermitted => {
            Missing(text).into()
        }
        ClientError::Refused(refusal) if refusal.kind != RefusalKind::Busy => Usage(text).into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text named a file that the command had not named, and ignored a card that runs.
    #[test]
    fn regression_a_socket_without_a_daemon_names_the_file_of_the_command_or_the_card() {
        let socket = Path::new("/run/srd/srd0.sock");
        let own = not_running(socket, Some(Path::new("/root/b.toml")), false);
        assert!(own.ends_with("start one: srd up -c /root/b.toml"), "{own}");
        let unknown = not_running(Path::new("/run/srd/none-such.sock"), None, false);
        assert!(unknown.contains("srd up -c FILE"), "{unknown}");
        for file in [None, Some(Path::new("/etc/srd/card.toml"))] {
            let text = not_running(socket, file, true);
            assert!(text.contains("srd card status") && !text.contains("srd up -c"), "{text}");
        }
    }
}
