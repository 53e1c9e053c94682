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
use crate::nodes;
use crate::output::JsonOutput;
use anyhow::{Error, Result};
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use serde::Serialize;
use serde::de::DeserializeOwned;
use srd_daemon::config::{Config, Mode, ReloadReport, socket_default};
use srd_daemon::control::{Client, ClientError, RefusalKind, Request, Stats};
use srd_daemon::snapshot::{PeerSnapshot, Snapshot};
use std::path::{Path, PathBuf};

/// Maximum number of flows in the JSON of `srd status`.
const FLOWS: usize = 100;

/// Returns the end of the help of a command that sends a request to a daemon: its examples, and the
/// exit codes.
macro_rules! with_codes {
    ($examples:literal) => {
        concat!(
            "EXAMPLES\n",
            $examples,
            "\n\nEXIT CODES\n  0  it worked\n  1  no daemon answers, or it failed\n  \
             2  wrong arguments, or the daemon refuses them; or several daemons run, and none is \
             named\n  3  this user has no right to send the request: the message contains the \
             remedy"
        )
    };
}

use with_codes;

const STATUS: &str = with_codes!(
    "  srd status\n  srd status -i srd1\n  srd status --json | jq '.peers[] | {name, state}'"
);
const TOP: &str = with_codes!("  srd top\n  srd top --interval 250ms");
const STATS: &str = with_codes!("  srd stats\n  srd stats --json | jq .counters.retransmissions");
const PATHS: &str = with_codes!("  srd paths b\n  srd paths b --json");
const SET: &str = with_codes!(
    "  srd set b express off               # packets to the peer b are sent plainly\n  \
     srd set all udp-ordering bypass\n  \
     srd reload                          # the settings of the file again"
);
const PEER: &str = "\
EXAMPLES
  srd peer add b --public-key KEY --endpoint 192.0.2.2:7471 --allowed 10.77.0.2
  srd peer remove b --save";
const CAPTURE: &str = with_codes!(
    "  srd capture -w x.pcapng --peer b --seconds 10\n  \
     srd capture --inner -w - | wireshark -k -i -\n  \
     srd capture --outer -w - -c 100 | tcpdump -r -"
);
const DOWN: &str = "\
EXAMPLES
  sudo srd down
  sudo srd down -c /etc/srd/srd1.toml

A daemon removes its routes and rules when it ends, except with kill_switch = true: then addresses
behind peers stay unreachable until the next start, or this command.

EXIT CODES
  0  nothing is left
  1  the daemon runs, or the kernel refuses
  2  wrong arguments, or the file is wrong
  3  it takes CAP_NET_ADMIN";

const RELOAD: &str = "\
EXAMPLES
  srd reload                             # the only daemon or card that runs
  srd reload -i srd1
  srd reload -c /etc/srd/srd0.toml
  srd reload --socket /run/srd-card/card.sock

It prints the changes, and the settings that wait for a take-over or a restart. If a file is wrong,
nothing changes. A card that was started with options has no file of settings: `srd card apply FILE`
gives it other rules.

EXIT CODES
  0  the files were read, and all changes are in force, except those that wait for a take-over or a
     restart
  1  no daemon answers, or a peer could not be added
  2  a file is wrong: nothing was changed; or several daemons run, and none is named
  3  this user has no right to send the request: the message contains the remedy";

/// Commands of the daemon.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonCommand {
    /// Carry TCP and UDP between machines over SRD, without a change to the applications.
    Up(up::UpArgs),
    /// Remove what a daemon left when it ended: the routes and rules of `kill_switch`.
    #[command(after_help = DOWN)]
    Down(up::DownArgs),
    /// Process that sets up addresses and routes for `srd up`.
    #[command(hide = true)]
    Network {
        /// Permitted operations, in the form in which `srd up` passes them.
        spec: String,
    },
    /// Process that runs the commands of `pre_down` and `post_down` for `srd up`, and removes its
    /// control socket.
    #[command(hide = true)]
    Hooks,
    /// Show the daemon's interface and its peers.
    #[command(after_help = STATUS)]
    Status(ShowArgs),
    /// Show the daemon live: peers, paths, flows. Ends with q.
    #[command(after_help = TOP)]
    Top(top::TopArgs),
    /// Print the interface's counters as `ethtool -S` prints those of an ENA interface.
    #[command(after_help = STATS)]
    Stats(ShowArgs),
    /// Show every path to a peer.
    #[command(after_help = PATHS)]
    Paths(PathsArgs),
    /// Change a setting until the next restart or reload.
    #[command(after_help = SET)]
    Set(set::SetArgs),
    /// Add and remove peers of the running daemon.
    #[command(subcommand, after_help = PEER)]
    Peer(peer::PeerCommand),
    /// Make the daemon, or the card of `srd card up -c`, read its configuration again.
    #[command(after_help = RELOAD)]
    Reload(ReloadArgs),
    /// Capture packets for Wireshark: inner packets as applications see them, outer packets as the
    /// network sees them. tcpdump reads only one of the two at a time: --inner or --outer. It takes
    /// root, or `group_captures` in the daemon's configuration.
    #[command(after_help = CAPTURE)]
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
    /// The daemon's interface. Without this option and --socket, the command uses the only daemon
    /// or card that runs on this machine; if several run, it names them and ends.
    #[arg(long, short, value_name = "NAME", conflicts_with = "socket")]
    interface: Option<String>,
    /// The control socket of the daemon or of the card, if it has another path than
    /// /run/srd/NAME.sock.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Arguments of a command that shows something.
#[derive(Args, Clone, Debug)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    json: JsonOutput,
}

/// `srd reload`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReloadArgs {
    /// The daemon or card that runs this configuration file.
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
            let flows = if args.json.is_wanted() { FLOWS } else { 0 };
            let status = Request::Status { paths: false, flows };
            print(args, &args.ask::<Snapshot>(&status)?, show::status)?;
        }
        DaemonCommand::Stats(args) => {
            print(args, &args.ask::<Stats>(&Request::Stats)?, show::stats)?;
        }
        DaemonCommand::Paths(PathsArgs { peer, show: args }) => {
            let request = Request::Paths { peer: peer.clone() };
            print(args, &args.ask::<PeerSnapshot>(&request)?, show::paths)?;
        }
        DaemonCommand::Reload(ReloadArgs { config, show: args }) => {
            args.json.check()?;
            let path = match config {
                Some(file) => socket_of(file)?,
                None => args.target.path()?,
            };
            let file = config.as_deref();
            let connected = Client::connect(&path);
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
    args.json.write(value)?;
    args.json.say(text(value))
}

/// Returns the socket of the node that runs a configuration file. `srd card up` has another default
/// than `srd up`.
fn socket_of(file: &Path) -> Result<PathBuf> {
    let Config { interface, control, .. } = Config::load_without_keys(file)?;
    let card = Path::new(srd_guest::SOCKET_DEFAULT);
    let may_be_card = interface.mode == Mode::Cloud && !control.is_named;
    if may_be_card && !nodes::is_served(&control.socket) && runs(card, file) {
        return Ok(card.to_owned());
    }
    Ok(control.socket)
}

/// Whether the node at a socket runs a configuration file.
pub(crate) fn runs(socket: &Path, file: &Path) -> bool {
    let Ok(client) = Client::connect(socket) else { return false };
    let Ok(snapshot) = client.ask::<Snapshot>(&Request::status()) else { return false };
    let whole = |path: &Path| path.canonicalize().ok();
    whole(file).is_some_and(|file| whole(Path::new(&snapshot.file)) == Some(file))
}

impl ShowArgs {
    fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T> {
        self.json.check()?;
        self.target.ask(request)
    }
}

impl Target {
    /// Returns the socket of the selected node.
    fn path(&self) -> Result<PathBuf> {
        match (&self.socket, &self.interface) {
            (Some(path), _) => Ok(path.clone()),
            (None, Some(name)) => Ok(socket_default(name)),
            (None, None) => nodes::only(),
        }
    }

    fn connect(&self) -> Result<Client> {
        Client::connect(&self.path()?).map_err(explain)
    }

    pub(crate) fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T> {
        self.connect()?.ask(request).map_err(explain)
    }
}

/// Returns the text for a socket that no daemon serves. `file`: the configuration of the daemon, if
/// the command names it. `has_card`: whether a card runs, which is no daemon.
fn not_running(socket: &Path, file: Option<&Path>, has_card: bool) -> String {
    let shown = socket.display();
    match file {
        _ if has_card => format!(
            "no daemon of `srd up` serves {shown}. But a card of `srd card up` runs: \
             `srd card status` shows it, `srd card apply FILE` gives it other rules, and \
             `srd reload --socket {}` makes a card that was started with -c read its file again",
            srd_guest::SOCKET_DEFAULT
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
        ClientError::NotRunning(socket) => {
            let has_card = nodes::may_be_served(srd_guest::SOCKET_DEFAULT.as_ref());
            Error::msg(not_running(&socket, file, has_card))
        }
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
