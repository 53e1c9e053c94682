//! `srd up`: runs the daemon. `srd down`: removes what a daemon may have left behind when it ended.

use std::path::{Path, PathBuf};

use anyhow::{Error, Result, bail};
use clap::Args;
use srd_daemon::config::{Config, HostPort, Mode, Protection};
use srd_daemon::control::{ClientError, RefusalKind};
use srd_daemon::control_plane::enrol;
use srd_daemon::run::Daemon;
use srd_guest::node::{Node, TakenOver};
use srd_trust::privileges;

use super::enrol::EnrolArgs;
use super::explain_of;
use super::first_try::{PORT_DEFAULT, Try, or_other_port};
use crate::failure::Missing;
use crate::nodes;
use crate::output;

const NOTES: &str = "\
EXAMPLES
  sudo srd up --try 192.0.2.2                          # no file: see A FIRST TRY
  srd up -c /etc/srd/srd0.toml --check
  sudo srd up -c /etc/srd/srd0.toml
  sudo srd up --control 192.0.2.10:4600 --token-file token
  sudo srd up -c /etc/srd/srd0.toml --take-over        # this build instead of the one that runs

A FIRST TRY
  Two machines, no file; each prints what to type on the other:
    sudo srd up --try 192.0.2.2
  It ends with Ctrl-C. The key that it makes stays in /run/srd-try/try.key until the next boot.

MODES
  mode = \"overlay\"      the interface has addresses of its own; programs use these
  mode = \"transparent\"  programs go on using the machines' real addresses
  mode = \"cloud\"        no interface: instances only

INSTANCES
  The table [cloud] describes instances of virtual private clouds on this machine. They share
  ports, sessions and keys with the interface. `srd card` shows them. It takes root at the start;
  the process that moves packets becomes the user srd, or one that no other process has, without
  capabilities.

TAKE-OVER
  sudo srd up -c /etc/srd/srd0.toml --take-over
  A new process takes over from the daemon that runs this file: connections through the tunnel
  continue, interface and routes stay. It refuses other values of name, mode, address, listen,
  mtu, paths, workers, table and kill_switch, of socket and group of [control], and of some keys of
  [cloud] and [enrol]. Connections of instances continue as well. If it fails, the daemon continues.
  A daemon of a unit of systemd starts the new process in its unit; the command then ends.

SIGNALS
  SIGHUP           read the configuration again, as `srd reload`
  SIGTERM, SIGINT  end; the interface, its routes and its rules go, hooks for the end run
  SIGKILL          the same, but nothing is said to the peers: they find out by themselves

EXIT CODES
  0  ended by SIGTERM or SIGINT, taken over by another process, or --check found nothing wrong
  1  it ran and failed; the last line says why
  2  the configuration is wrong: the message names line, column and remedy
  3  a privilege or a program is missing: it takes CAP_NET_ADMIN, and with [cloud] root

FILES
  /etc/srd/srd0.toml      the configuration of srd0: see srd.toml(5)
  /etc/srd/private.key    the usual place of the key, mode 0600, of the user that the daemon
                          runs as: root by hand, srd in the package's unit srd@.service
  /var/lib/srd/srd0.epoch when it last started, so that peers know a later start also where the
                          clock was set back; it may be removed while nothing runs
  /run/srd/srd0.sock      the control socket, for `srd status` and other commands

ENVIRONMENT
  RUST_LOG        what is logged, in place of -v
  NOTIFY_SOCKET   where systemd waits until the daemon is ready
  JOURNAL_STREAM  set by systemd: lines get severities for the journal, and no time

The log goes to standard error: what listens, which peers answer, who changes something. Times are
UTC. With -v it says more.";

/// Arguments of `srd up`.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct UpArgs {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", default_value = "/etc/srd/srd0.toml")]
    config: PathBuf,
    /// Only check the configuration, and print its meaning.
    #[arg(long)]
    check: bool,
    /// Take over from the daemon that runs this configuration: no connection ends. Use it after an
    /// upgrade, in place of a restart.
    #[arg(long, conflicts_with_all = ["check", "first_try", "control"])]
    take_over: bool,
    /// For a daemon of a unit: the connection to the daemon that runs is standard input.
    #[arg(long, hide = true, requires = "take_over")]
    by_input: bool,
    /// For a daemon of a unit: the control socket that its command line has chosen.
    #[arg(long, hide = true, requires = "by_input", value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Without a configuration: create an encrypted tunnel to the machine at ADDRESS, for a first
    /// try. Without --key, only print the command to type on that machine.
    #[arg(long = "try", value_name = "ADDRESS", conflicts_with_all = ["config", "check"])]
    first_try: Option<String>,
    /// The public key that the other machine printed.
    #[arg(long, value_name = "KEY", requires = "first_try")]
    key: Option<String>,
    /// First UDP port of the tunnel, the same on both machines.
    #[arg(long, value_name = "PORT", default_value_t = PORT_DEFAULT, requires = "first_try")]
    port: u16,
    #[command(flatten)]
    enrol: EnrolArgs,
}

/// Runs `srd up`. Returns the exit code.
pub(crate) fn run(args: &UpArgs) -> Result<u8> {
    if let Some(peer) = &args.first_try {
        let this = Try::prepare(peer, args.key.as_deref(), args.port)?;
        let Some(text) = this.configuration() else {
            output::say(this.first_words())?;
            return Ok(0);
        };
        let daemon = Daemon::new(Config::load(&Try::write(&text)?)?).map_err(or_other_port)?;
        output::say(this.words())?;
        daemon.run()?;
        return Ok(0);
    }
    let path = args.enrol.configuration()?.unwrap_or_else(|| args.config.clone());
    // A daemon that runs uses the keys of its start.
    if !args.check && !args.take_over {
        enrol::prepare(&path)?;
    }
    if args.check {
        for line in check(&path)? {
            output::say(line)?;
        }
        return Ok(0);
    }
    let mut config = Config::load(&path)?;
    if let Some(socket) = &args.socket {
        config.control.choose(socket.clone());
    }
    if !args.take_over {
        return run_node(srd_guest::node::start(config)?);
    }
    let taken = srd_guest::node::take_over(config, args.by_input);
    match taken.map_err(|error| of_take_over(error, &path))? {
        TakenOver::Here(node) => run_node(*node),
        TakenOver::InUnit(process) => {
            output::say(in_unit(process))?;
            Ok(0)
        }
    }
}

fn run_node(Node { daemon, instances }: Node) -> Result<u8> {
    for warning in instances.warnings {
        tracing::warn!("{warning}");
    }
    daemon.run()?;
    Ok(0)
}

/// Returns the output of a take-over by a process of the unit of the daemon that ran.
pub(crate) fn in_unit(process: u32) -> String {
    format!("process {process} of the unit has taken over; the log of the unit continues")
}

/// Converts the error of a take-over. The error that no daemon runs names `file`.
fn of_take_over(error: Error, file: &Path) -> Error {
    match error.downcast::<ClientError>() {
        Ok(error @ ClientError::NotRunning(_)) => explain_of(error, Some(file)),
        // Members of the socket's group may not take a daemon over either.
        Ok(ClientError::Denied { socket, .. }) => Missing(format!(
            "permission denied: {}: root, or the user that has started the daemon, takes it over: \
             use sudo",
            socket.display()
        ))
        .into(),
        Ok(ClientError::Refused(refusal)) if refusal.kind == RefusalKind::NotPermitted => {
            Missing(refusal.to_string()).into()
        }
        Ok(other) => other.into(),
        Err(other) => other,
    }
}

/// Arguments of `srd down`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DownArgs {
    /// The configuration file of the daemon.
    #[arg(short, long, value_name = "FILE", default_value = "/etc/srd/srd0.toml")]
    config: PathBuf,
}

/// Runs `srd down`.
pub(crate) fn down(args: &DownArgs) -> Result<()> {
    let config = Config::load_without_keys(&args.config)?;
    let name = &config.interface.name;
    let socket = &config.control.socket;
    if nodes::is_served(socket) {
        bail!(
            "a daemon serves {}: stop it first, by `systemctl stop`, Ctrl-C or SIGTERM",
            socket.display()
        );
    }
    match srd_daemon::run::release(&config)? {
        0 => crate::output::say(format!("{name}: nothing was left")),
        count => crate::output::say(format!("{name}: {count} routes and rules removed")),
    }
}

/// Checks a file, and returns the lines that `srd up --check` prints.
fn check(path: &Path) -> Result<Vec<String>> {
    let mut lines = match enrol::check(path)? {
        Some(config) => checked(config, false)?,
        None => checked(Config::load(path)?, true)?,
    };
    lines.extend(missing_account(privileges::has_own_account()));
    Ok(lines)
}

/// Returns the line of a check on a machine without the user `srd`.
fn missing_account(is_there: bool) -> Option<String> {
    let name = privileges::OWN_ACCOUNT;
    (!is_there).then(|| {
        format!(
            "there is no user {name}: the unit srd@.service does not start without it. A daemon \
             that root starts becomes a user with a number of no account, or, if such a user \
             cannot read its files, stays root without capabilities. To create the user {name}: \
             adduser --system --group --no-create-home {name}"
        )
    })
}

/// Checks a configuration and its instances, and returns the lines that `srd up --check` prints.
/// `has_address`: whether the host has its overlay address; otherwise it has to enrol first.
fn checked(config: Config, has_address: bool) -> Result<Vec<String>> {
    let resolve = |host: &HostPort| host.resolve(config.interface.is_ipv4_only());
    let mut lines = vec![meaning(&config, has_address, resolve)];
    if let (Some(of), false) = (&config.enrol, has_address) {
        lines.push(format!(
            "the host has to enrol: `srd up` enrols it as {} at {}, and gets the overlay address \
             and the peers",
            of.name, of.controller
        ));
    }
    let Some(cloud) = &config.cloud else { return Ok(lines) };
    let is_sent = |file: &PathBuf| cloud.is_of_controller && !file.exists();
    if cloud.vpc.as_ref().is_some_and(is_sent) {
        lines.push("no instances yet: the controller sends them".to_owned());
    } else {
        lines.extend(srd_guest::check(config)?);
    }
    Ok(lines)
}

/// Returns a description of a valid configuration, for `srd up --check`.
fn meaning(
    config: &Config,
    has_address: bool,
    resolve: impl Fn(&HostPort) -> Result<Vec<std::net::SocketAddr>, String>,
) -> String {
    let interface = &config.interface;
    if interface.is_alone() {
        let file = config.file.display();
        return format!("{file} is fine: instances only, no interface, no other hosts");
    }
    let name = &interface.name;
    let how = match interface.mode {
        Mode::Overlay if !has_address => format!("{name}, overlay"),
        Mode::Overlay => {
            let list: Vec<String> = interface.address.iter().map(ToString::to_string).collect();
            format!("{name}, overlay {}", list.join(", "))
        }
        Mode::Transparent => format!("{name}, transparent"),
        Mode::Cloud => "instances only, no interface".to_owned(),
    };
    let protection = match interface.protection {
        Protection::Encrypted(_) => "encrypted",
        Protection::Plain => "NOT ENCRYPTED",
    };
    let mut text = format!(
        "{} is fine: {how}, {protection}, listening on {}",
        config.file.display(),
        interface.listens_in_words()
    );
    if config.peers.is_empty() {
        text += match (&config.enrol, interface.mode) {
            (Some(_), _) if !has_address => "",
            (Some(_), _) => "\nno peers of the controller at present",
            (None, Mode::Cloud) => "",
            (None, _) => "\nno peers: add a [[peer]], then `srd reload`",
        };
    }
    for peer in &config.peers {
        let at = match (&peer.host, peer.endpoint) {
            (Some(host), _) => match resolve(host) {
                Ok(list) => {
                    let list: Vec<String> = list.iter().map(|a| a.ip().to_string()).collect();
                    format!("at {host} ({})", list.join(", "))
                }
                Err(error) => format!(
                    "at {host}, which does not resolve here and now ({error}): `srd up` starts \
                     all the same and tries again"
                ),
            },
            (None, Some(_)) => format!("at {}", peer.endpoints_in_words()),
            (None, None) => "wherever it comes from: it has no endpoint".to_owned(),
        };
        text += &format!("\npeer {} {at}", peer.name);
        let behind: Vec<String> = peer.allowed.iter().map(ToString::to_string).collect();
        if !behind.is_empty() {
            text += &format!(", with {}", behind.join(", "));
        }
        if let Some(host) = &peer.cloud_host {
            text += &format!(", the host {host} of the cloud");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_finds_nothing_wrong_says_what_the_file_means() {
        let text = "[interface]\nmode = \"transparent\"\nlisten = \"0.0.0.0:7471\"\n\
                    protection = \"plain\"\n[[peer]]\nname = \"b\"\n\
                    endpoint = \"192.0.2.2:7471\"\nallowed = [\"192.0.2.2\"]\n";
        let mut config = Config::parse(text, Path::new("a.toml")).unwrap();
        let said = meaning(&config, true, |_| Err(String::new()));
        assert!(said.starts_with("a.toml is fine: srd0, transparent, NOT ENCRYPTED,"), "{said}");
        assert!(said.ends_with("\npeer b at 192.0.2.2:7471, with 192.0.2.2/32"), "{said}");
        config.peers[0].host = Some(HostPort { host: "b.example".into(), port: 7471 });
        let said = meaning(&config, true, |_| Err("not known".into()));
        assert!(said.contains("at b.example:7471, which does not resolve"), "{said}");
        let said = meaning(&config, true, |_| Ok(vec!["192.0.2.9:7471".parse().unwrap()]));
        assert!(said.contains("at b.example:7471 (192.0.2.9), with"), "{said}");
        config.peers.clear();
        assert!(meaning(&config, true, |_| Err(String::new())).contains("no peers"));
        let config = Config::parse("[cloud]\n", Path::new("a.toml")).unwrap();
        let said = meaning(&config, true, |_| Err(String::new()));
        // Regression: the text named an interface, which does not exist.
        assert_eq!(said, "a.toml is fine: instances only, no interface, no other hosts");
        let text = "[interface]\nmode = \"cloud\"\nlisten = \"192.0.2.1:7471\"\n\
                    protection = \"plain\"\n[cloud]\n";
        let config = Config::parse(text, Path::new("a.toml")).unwrap();
        let said = meaning(&config, true, |_| Err(String::new()));
        assert!(said.starts_with("a.toml is fine: instances only, no interface, NOT"), "{said}");
    }

    /// The advice was to give the socket a group, whose members may not take a daemon over.
    #[test]
    fn regression_only_root_and_the_user_of_a_daemon_are_advised_to_take_it_over() {
        let file = Path::new("/etc/srd/srd0.toml");
        let denied = ClientError::Denied { socket: "/run/srd/srd0.sock".into(), group: None };
        let error = of_take_over(denied.into(), file);
        let text = error.to_string();
        assert!(text.ends_with("use sudo") && !text.contains("group"), "{text}");
        assert!(error.is::<Missing>());
    }

    #[test]
    fn a_check_of_a_host_that_has_to_enrol_names_no_address() {
        let text = "[interface]\nlisten = \"127.0.0.1:7471\"\n[enrol]\nname = \"a\"\n\
                    controller = \"192.0.2.9:4600\"\ndirectory = \"state\"\n\
                    [enrol.instances]\nzone = \"us-east-1a\"\n";
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.toml");
        std::fs::write(&file, text).unwrap();
        let config = Config::load_without_keys(&file).unwrap();
        let lines = checked(config, false).unwrap();
        let [fine, enrols, instances] = &lines[..] else { panic!("{lines:?}") };
        assert!(fine.contains("srd0, overlay, encrypted, listening on 127.0.0.1:7471"), "{fine}");
        assert!(enrols.contains("enrols it as a at 192.0.2.9:4600"), "{enrols}");
        assert!(instances.contains("the controller sends them"), "{instances}");
    }

    #[test]
    fn a_check_says_that_the_user_of_the_unit_is_missing() {
        assert_eq!(missing_account(true), None);
        let said = missing_account(false).unwrap();
        assert!(said.contains("no user srd") && said.contains("adduser"), "{said}");
        assert!(said.contains("stays root"), "{said}");
    }

    #[test]
    fn a_check_of_a_node_names_the_socket_that_the_node_uses() {
        let text = "[cloud]\n[control]\nsocket = \"/run/my.sock\"\n";
        let config = Config::parse(text, Path::new("a.toml")).unwrap();
        let lines = checked(config, true).unwrap();
        assert!(lines.iter().any(|line| line == "requests: /run/my.sock"), "{lines:?}");
    }

    #[test]
    fn a_check_reads_the_file_of_the_vpc_before_it_says_that_all_is_fine() {
        let text = "[cloud]\nvpc = \"/nonexistent/cloud.toml\"\n";
        let config = Config::parse(text, Path::new("a.toml")).unwrap();
        assert!(checked(config, true).is_err());
    }
}
