//! `srd control hosts` and `srd control token`: hosts that enrol themselves at `srd control up`.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use ipnet::IpNet;
use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use srd_control::control::Control;
use srd_control::fleet::{HostMachines, Parts};
use srd_control::hosts::admin::{self, HostEntry, Listing, NewToken, Removed, Request, TokenEntry};
use srd_control::hosts::hub::Hub;
use srd_control::hosts::serve;
use srd_trust::file_identity;

use crate::failure::{Usage, cannot_listen, usage};
use crate::output::{JsonOutput, say};
use crate::secret;
use crate::signals::AtEnd;

/// Block from which overlay addresses are assigned if the operator names no other.
const OVERLAY: &str = "10.77.0.0/16";

/// Target of the lines of the log about requests of the operator.
pub(crate) const LOG_TARGET: &str = "srd_control::hosts";

/// Largest number of lines about hosts that wait for the log.
const LINES_MAX: usize = 1024;

/// Returns the end of the help of a command for the operator of a server: its examples, and the
/// exit codes.
macro_rules! with_codes {
    ($examples:literal) => {
        concat!(
            "EXAMPLES\n",
            $examples,
            "\n\ndocs/control-hosts.md describes each step.\n\nEXIT CODES\n  0  it worked\n  \
             1  no server answers at the socket of --admin, or it refuses the request\n  \
             2  wrong arguments"
        )
    };
}

const HOSTS: &str = with_codes!(
    "  srd control up --state control.db --hosts 192.0.2.10:4600     # the server\n  \
     (umask 077; srd control token create --lifetime 1h --uses 3 > token)\n  \
     srd up --control 192.0.2.10:4600 --token-file token           # on each host\n  \
     srd control hosts\n  \
     srd control hosts --json | jq '.hosts[].name'\n  \
     srd control hosts rotate web-1\n  \
     srd control hosts remove web-1"
);
const REMOVE: &str = with_codes!("  srd control hosts remove web-1");
const ROTATE: &str = with_codes!("  srd control hosts rotate web-1\n  srd control hosts");
/// End of the text of `srd control token --help`.
pub(crate) const TOKENS: &str = with_codes!(
    "  (umask 077; srd control token create --lifetime 1h --uses 3 > token)\n  \
     srd control token list\n  \
     srd control token revoke ID"
);
const CREATE: &str = with_codes!(
    "  (umask 077; srd control token create --lifetime 1h --uses 3 > token)\n  \
     srd up --control 192.0.2.10:4600 --token-file token           # on each host"
);
const LIST: &str = with_codes!("  srd control token list\n  srd control token list --json");
const REVOKE: &str = with_codes!("  srd control token list\n  srd control token revoke ID");
/// End of the text of `srd control authority --help`.
pub(crate) const AUTHORITY: &str = with_codes!("  srd control authority rotate");

/// Arguments of `srd control up` for hosts.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeArgs {
    /// Address and port at which hosts enrol and receive their peers, by TLS.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket_address)]
    hosts: Option<SocketAddr>,
    /// Block from which hosts get overlay addresses. Default: the block of the state, or
    /// 10.77.0.0/16 in a new state.
    #[arg(long, value_name = "PREFIX", requires = "hosts")]
    overlay: Option<IpNet>,
    /// Start instances on the hosts that have enrolled, and none on this machine. This takes no
    /// root. A host accepts instances if its file has a table [enrol.instances].
    #[arg(long, requires = "hosts",
          conflicts_with_all = ["state_only", "user_data", "any_credentials"])]
    place_on_hosts: bool,
    /// Let hosts with `pods = true` in [enrol.instances] start instances of their own pods, in all
    /// subnets.
    #[arg(long, requires = "place_on_hosts")]
    host_pods: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// The local socket of a server.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdminArgs {
    /// Unix socket of the server for `srd control hosts`, `token`, `identity`, `authority` and
    /// `key`. A server without --hosts has it only if this option names it. Default:
    /// /run/srd-control.sock for root, and srd-control.sock in $XDG_RUNTIME_DIR for other users.
    #[arg(long, value_name = "PATH")]
    admin: Option<PathBuf>,
}

/// Arguments of `srd control hosts`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, after_help = HOSTS)]
pub(crate) struct HostsArgs {
    #[command(subcommand)]
    command: Option<HostsCommand>,
    #[command(flatten)]
    list: ListArgs,
}

/// Arguments of a command that lists something.
#[derive(Args, Clone, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) json: JsonOutput,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Commands for hosts.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum HostsCommand {
    /// Remove a host: all others drop their connections with it at once.
    #[command(after_help = REMOVE)]
    Remove(HostArgs),
    /// Change the key of a host: at once if it is connected, otherwise when it connects next. Its
    /// sessions with the other hosts begin anew; connections of programs continue.
    #[command(after_help = ROTATE)]
    Rotate(HostArgs),
}

/// A host.
#[derive(Args, Clone, Debug)]
pub(crate) struct HostArgs {
    /// Name of the host.
    name: String,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Commands for the authority of the server's certificates.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum AuthorityCommand {
    /// Replace the authority, and the certificate of each server of this state. Clients have to
    /// trust the certificate of the new authority from then on.
    #[command(after_help = AUTHORITY)]
    Rotate(AdminArgs),
}

/// Commands for enrolment tokens.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum TokenCommand {
    /// Print a new token, with which hosts can enrol.
    #[command(after_help = CREATE)]
    Create(CreateArgs),
    /// List the tokens, without their secrets.
    #[command(after_help = LIST)]
    List(ListArgs),
    /// Make a token useless. Hosts that have enrolled with it stay.
    #[command(after_help = REVOKE)]
    Revoke(RevokeArgs),
}

/// Arguments of `srd control token create`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CreateArgs {
    /// Time until the token expires: a number with s, m, h or d, from 1s to 366d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = lifetime)]
    lifetime: Duration,
    /// Number of hosts that can enrol with the token, 1 to 1024.
    #[arg(long, value_name = "N", default_value_t = 1)]
    uses: u32,
    #[command(flatten)]
    list: ListArgs,
}

/// Arguments of `srd control token revoke`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RevokeArgs {
    /// Identifier of the token, as `srd control token list` prints it.
    #[arg(allow_hyphen_values = true)]
    id: String,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Parses an address with a port.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |_| "write ADDRESS:PORT, as in 192.0.2.10:4600 or [2001:db8::10]:4600".to_owned();
    text.parse().map_err(wrong)
}

/// Parses a lifetime, such as `90s`, `30m`, `24h` or `7d`.
fn lifetime(text: &str) -> Result<Duration, String> {
    let wrong = || "write a time as 90s, 30m, 24h or 7d".to_owned();
    let (at, unit) = text.char_indices().last().ok_or_else(wrong)?;
    let unit_s: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..at].parse().map_err(|_| wrong())?;
    number.checked_mul(unit_s).map(Duration::from_secs).ok_or_else(wrong)
}

impl AdminArgs {
    fn path(&self) -> Result<PathBuf> {
        if let Some(path) = &self.admin {
            return Ok(path.clone());
        }
        if geteuid().is_root() {
            return Ok(PathBuf::from("/run/srd-control.sock"));
        }
        match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(directory) => Ok(Path::new(&directory).join("srd-control.sock")),
            None => usage("$XDG_RUNTIME_DIR is not set: name the socket of the server by --admin"),
        }
    }

    /// Sends a request to the server, and returns its answer.
    pub(crate) fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T> {
        admin::ask(&self.path()?, request).map_err(anyhow::Error::msg)
    }
}

impl ServeArgs {
    /// Returns the machines that run on hosts; `None`: instances do not run on hosts. The parts of
    /// the cloud are sent to the hosts.
    pub(crate) fn machines(&self, parts: &Parts) -> Option<HostMachines> {
        let report = |what: &str| tracing::warn!("{what}");
        self.place_on_hosts.then(|| HostMachines::new(parts.clone(), Box::new(report)))
    }

    /// Starts the listener for hosts and the socket of the operator, if they are requested.
    /// `parts`: the parts of the cloud that are sent to the hosts. Returns the lines that describe
    /// them. `at_end` removes the socket of the operator.
    ///
    /// # Errors
    /// If a socket cannot be opened, or the store refuses the overlay.
    pub(crate) fn start(
        &self,
        control: &Arc<Mutex<Control>>,
        parts: Parts,
        at_end: &AtEnd,
    ) -> Result<Vec<String>> {
        if self.hosts.is_none() && self.admin.admin.is_none() {
            return Ok(Vec::new());
        }
        let parts = self.place_on_hosts.then_some(parts);
        let mut hub = Hub::new(Arc::clone(control), parts);
        if self.host_pods {
            hub.permit_pods();
        }
        hub.log_by(Box::new(log_of_hosts()?));
        let hub = Arc::new(hub);
        let listener = self.hosts.map(|address| self.listen(address, &hub)).transpose()?;
        let path = self.admin.path()?;
        let socket = admin::listen(&path).map_err(anyhow::Error::msg)?;
        if let Some(identity) = file_identity::identity(&path) {
            let path = path.clone();
            at_end.add(move || drop(file_identity::remove(&path, identity)));
        }
        let mut lines = Vec::new();
        if let Some(listener) = listener {
            let at = listener.local_addr().context("the address of the socket")?;
            let (fingerprint, overlay) = {
                let table = hub.hosts().table();
                (table.fingerprint(), table.overlay())
            };
            serve::start(listener, Arc::clone(&hub)).context("cannot serve hosts")?;
            let fingerprint = fingerprint.map(|own| own.to_string()).unwrap_or_default();
            let overlay = overlay.map(|block| block.to_string()).unwrap_or_default();
            lines.push(format!("hosts: {at}, overlay {overlay}, fingerprint {fingerprint}"));
        }
        let log = |line: &str| tracing::info!(target: LOG_TARGET, "{line}");
        admin::start(socket, hub, Box::new(log)).context("cannot serve the operator")?;
        lines.push(format!("admin: {}", path.display()));
        Ok(lines)
    }

    /// Prepares the state for hosts, and opens the socket at which they connect.
    fn listen(&self, address: SocketAddr, hub: &Hub) -> Result<TcpListener> {
        let default: IpNet = OVERLAY.parse().context("the default of --overlay")?;
        hub.decide(|table| table.begin(self.overlay, default))
            .map_err(|refusal| Usage(refusal.message))?;
        serve::listen(address).map_err(|error| cannot_listen(address, "--hosts", &error))
    }
}

/// Returns the function that logs lines about hosts. It does not wait for a log that accepts no
/// lines, because the thread of its caller serves all hosts. Lines beyond the queue are lost.
fn log_of_hosts() -> Result<impl Fn(&str) + Send + Sync + 'static> {
    let (lines, queued) = mpsc::sync_channel::<String>(LINES_MAX);
    let log = move || {
        queued.iter().for_each(|line| tracing::info!(target: LOG_TARGET, "{line}"));
    };
    std::thread::Builder::new().name("srd-log".to_owned()).spawn(log).context("a thread")?;
    Ok(move |line: &str| drop(lines.try_send(line.to_owned())))
}

/// Runs `srd control authority`.
pub(crate) fn authority(AuthorityCommand::Rotate(admin): &AuthorityCommand) -> Result<u8> {
    let () = admin.ask(&Request::RotateAuthority)?;
    say(
        "the server has another authority: clients need its certificate, which the server writes \
         to the file of --ca-file",
    )?;
    Ok(0)
}

/// Runs `srd control hosts`.
pub(crate) fn hosts(args: &HostsArgs) -> Result<u8> {
    match &args.command {
        None => list(&args.list)?,
        Some(HostsCommand::Remove(HostArgs { name, admin })) => {
            let removed: Removed = admin.ask(&Request::Remove { name: name.clone() })?;
            for line in removal(name, &removed) {
                say(line)?;
            }
        }
        Some(HostsCommand::Rotate(HostArgs { name, admin })) => {
            let () = admin.ask(&Request::Rotate { name: name.clone() })?;
            say(rotation(name))?;
        }
    }
    Ok(0)
}

/// Runs `srd control token`.
pub(crate) fn token(command: &TokenCommand) -> Result<u8> {
    match command {
        TokenCommand::Create(args) => {
            let json = &args.list.json;
            json.check()?;
            let lifetime_s = args.lifetime.as_secs();
            let request = Request::CreateToken { lifetime_s, uses: args.uses };
            let admin = &args.list.admin;
            secret::warn_of_open_output("token");
            let token: NewToken = admin.ask(&request)?;
            let outcome = json.write_private(&token).and_then(|()| json.say(&token.token));
            let id = &token.id;
            let revoke = || admin.ask::<()>(&Request::RevokeToken { id: id.clone() });
            let remedy = format!("srd control token revoke {id}");
            secret::shown(outcome, &format!("the token {id}"), revoke, &remedy)?;
        }
        TokenCommand::List(args) => {
            args.json.check()?;
            let tokens: Vec<TokenEntry> = args.admin.ask(&Request::Tokens)?;
            args.json.write(&tokens)?;
            if !args.json.owns_stdout() {
                let row = |token: &TokenEntry| {
                    let left = token.expires_at.saturating_sub(now_s());
                    let end = match left {
                        0 => "expired".to_owned(),
                        left => format!("expires in {}", span(left)),
                    };
                    [token.id.clone(), format!("{} uses left", token.uses), end]
                };
                columns(&tokens.iter().map(row).collect::<Vec<_>>())?;
            }
        }
        TokenCommand::Revoke(RevokeArgs { id, admin }) => {
            let () = admin.ask(&Request::RevokeToken { id: id.clone() })?;
            say(format!("the token {id} is revoked"))?;
        }
    }
    Ok(0)
}

/// Returns the lines about a host that was requested to change its key.
fn rotation(name: &str) -> String {
    format!(
        "{name} has to change its key. If it is connected, it draws a new key at once, otherwise \
         when it connects next. Its sessions with the other hosts then begin anew, and connections \
         of programs continue. `srd control hosts` shows the progress in the column STATE: `key: \
         requested`, `key: not in use yet`, and no such text when the new key is in use"
    )
}

/// Returns the lines about a host that was removed. A host whose file of a token is still there
/// enrols again at its next start, if the token has a use left.
fn removal(name: &str, Removed { stopped, tokens }: &Removed) -> Vec<String> {
    let instances = match stopped.len() {
        0 => String::new(),
        count => format!(", and its instances are stopped ({count}): {}", stopped.join(", ")),
    };
    let mut lines = vec![format!("{name} is removed{instances}")];
    if *tokens > 0 {
        lines.push(format!(
            "enrolment tokens with uses left: {tokens}. With the file of such a token, {name} \
             enrols again at its next start: `srd control token list` shows the tokens, and `srd \
             control token revoke ID` makes one useless"
        ));
    }
    lines
}

fn list(args: &ListArgs) -> Result<()> {
    args.json.check()?;
    let listing: Listing = args.admin.ask(&Request::Hosts)?;
    args.json.write(&listing)?;
    if args.json.owns_stdout() {
        return Ok(());
    }
    let mut rows =
        vec![["NAME", "ADDRESS", "ENDPOINT", "STATE", "GENERATION", "CAPACITY"].map(str::to_owned)];
    rows.extend(listing.hosts.iter().map(|host| row(host, listing.generation)));
    columns(&rows)?;
    if listing.strangers > 0 {
        let count = listing.strangers;
        say(format!("connections that ended before a host was identified: {count}"))?;
    }
    if listing.unread > 0 {
        say(format!("closed, because the host took no message: {}", listing.unread))?;
    }
    for (reason, count) in &listing.refused {
        say(format!("refused ({}): {count}", reason.replace('_', " ")))?;
    }
    Ok(())
}

fn row(host: &HostEntry, generation: u64) -> [String; 6] {
    let endpoints: Vec<String> = host.endpoints.iter().map(ToString::to_string).collect();
    let mut state = match (host.connected, host.seen_at) {
        (true, _) => "connected".to_owned(),
        (false, Some(at)) => format!("seen {} ago", span(now_s().saturating_sub(at))),
        (false, None) => "not seen yet".to_owned(),
    };
    if let Some(rotation) = &host.rotation {
        state += &format!(", key: {rotation}");
    }
    let applied = host.applied.map_or("-".to_owned(), |applied| applied.to_string());
    let mut capacity = capacity(host);
    if let Some(of) = &host.instances {
        let noun = if of.count == 1 { "instance" } else { "instances" };
        capacity += &format!(
            "; {} {noun}, {} of {} vCPUs in {}, {} of {}",
            of.count, of.vcpus_used, of.vcpus, of.zone, of.applied, of.generation
        );
    }
    [
        host.name.clone(),
        host.address.clone(),
        endpoints.join(","),
        state,
        format!("{applied} of {generation}"),
        capacity,
    ]
}

/// Describes the processors and the memory of a host.
fn capacity(host: &HostEntry) -> String {
    let memory_gib = host.memory_bytes as f64 / f64::from(1 << 30);
    format!("{} processors, {memory_gib:.1} GiB", host.processors)
}

/// Returns the time in seconds since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Returns a time in its largest whole unit.
pub(crate) fn span(s: u64) -> String {
    match s {
        0..120 => format!("{s} s"),
        120..7200 => format!("{} min", s / 60),
        7200..172_800 => format!("{} h", s / 3600),
        _ => format!("{} days", s / 86_400),
    }
}

/// Prints rows in columns.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> Result<()> {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        say(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command did not mention that a file of a token lets the host enrol again.
    #[test]
    fn regression_a_removal_names_tokens_with_which_the_host_can_return() {
        let lines = |stopped: &[&str], tokens| {
            let stopped = stopped.iter().map(|id| (*id).to_owned()).collect();
            removal("web-1", &Removed { stopped, tokens })
        };
        assert_eq!(lines(&[], 0), ["web-1 is removed"]);
        let some = lines(&["i-1", "i-2"], 3);
        assert_eq!(some[0], "web-1 is removed, and its instances are stopped (2): i-1, i-2");
        assert!(
            some[1].contains("uses left: 3") && some[1].contains("token revoke ID"),
            "{some:?}"
        );
    }

    /// The text was that the host uses the key as soon as it is connected, for connected hosts too.
    #[test]
    fn regression_a_rotation_says_when_the_key_changes_and_how_that_is_seen() {
        let text = rotation("web-1");
        for words in ["web-1 has to change its key", "at once", "connects next", "key: requested"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    #[test]
    fn the_help_has_the_limits_of_tokens() {
        use clap::CommandFactory;
        use srd_control::hosts::decide::{LIFETIME_MAX_S, USES_MAX};
        let program = crate::Cli::command();
        let create = ["control", "token", "create"].iter();
        let create = create.fold(&program, |of, name| of.find_subcommand(name).unwrap());
        let text = create.clone().render_help().to_string().replace('\n', " ");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let days = LIFETIME_MAX_S / 86_400;
        assert!(words.contains(&format!("from 1s to {days}d")), "{words}");
        assert!(words.contains(&format!("1 to {USES_MAX}")), "{words}");
    }

    /// The text was `invalid socket address syntax`.
    #[test]
    fn regression_an_address_without_a_port_is_refused_with_an_example() {
        assert_eq!(socket_address("[::1]:4600"), Ok("[::1]:4600".parse().unwrap()));
        for text in ["192.0.2.1", "4600", "host:4600", ""] {
            assert!(socket_address(text).unwrap_err().contains("192.0.2.10:4600"), "{text}");
        }
    }

    #[test]
    fn lifetimes_are_numbers_with_a_unit() {
        for (text, s) in [("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(lifetime(text), Ok(Duration::from_secs(s)));
        }
        for bad in ["", "h", "1", "-1h", "1.5h", "1w", "99999999999999999d", "1ä"] {
            lifetime(bad).unwrap_err();
        }
        assert_eq!(
            [span(119), span(120), span(7200), span(172_800)],
            ["119 s", "2 min", "2 h", "2 days"]
        );
    }
}
