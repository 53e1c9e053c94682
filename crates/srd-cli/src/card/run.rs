//! `srd run`: runs a program as an instance of a virtual private cloud.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use nix::unistd::{Uid, User};
use rustix::fs::{Access, access};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use srd_guest::Client;
use srd_guest::client::CardEnded;
use srd_guest::config::scale;
use srd_guest::protocol::{Attach, Instance, NamespaceName};
use srd_trust::process::Process;

use super::{SocketArg, report};
use crate::failure::{self, usage};
use crate::output::{JsonOutput, tell};

const EXAMPLES: &str = "\
EXAMPLES
  srd run --type c7i.large -- iperf3 -s                          # the instance run1
  srd run --type c7i.large --peer-of run1 -- iperf3 -c 172.31.0.4
  srd run --type c7i.large --scale 1/100 --internet -- curl https://example.com/
  srd run --vpc docs/vpc/web-app.toml --subnet app --group app -- sh
  srd run --user alice -- ./server                               # not as root

The first `srd run` holds the card; others on this machine join it. At the end standard error says
what limited the program. It takes root, iproute2, and for --internet nftables.

An instance is a network and no container: the program has this machine's files and sees its
processes. Without --user it is root there, and can leave its instance.

EXIT CODES
  that of the program, 128 and the signal's number if a signal ended it. If it was not started:
  127 there is no such program, 126 it cannot be run, 2 wrong arguments, 3 it needs root,
  1 anything else";

/// Maximum number of further attempts to attach the instance, if the card ends during an attempt.
const TRIES_MAX: u32 = 50;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Exit code of shells for a program that cannot be run. [`NOT_FOUND`] is that for a program that
/// does not exist.
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Arguments of `srd run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The instance type whose limits apply.
    #[arg(long = "type", value_name = "TYPE", default_value = "c7i.large")]
    instance_type: String,
    /// Divide all rates of instance types by N, for machines that are slower by this factor.
    #[arg(long, value_name = "1/N", value_parser = scale)]
    scale: Option<u32>,
    /// Time for which a full stock of credits lasts at the full rate; 5 to 60 minutes on EC2
    /// [default: 300].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    credits: Option<u32>,
    /// The VPC's file (docs/vpc.md). Without it: EC2's default VPC.
    #[arg(long, value_name = "FILE")]
    vpc: Option<PathBuf>,
    /// The subnet, by name; not needed if there is only one.
    #[arg(long)]
    subnet: Option<String>,
    /// A security group, by name; may be given several times. Without it: the VPC's default group.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Run in the subnet and the security groups of this instance.
    #[arg(long, value_name = "INSTANCE")]
    peer_of: Option<String>,
    /// The name of the instance. Without it, the card chooses one.
    #[arg(long)]
    name: Option<String>,
    /// Use the network of this machine as the internet.
    #[arg(long)]
    internet: bool,
    /// For experiments: let the internet of --internet carry private addresses, too.
    #[arg(long, requires = "internet")]
    internet_private: bool,
    /// Run the program as this user (the name or the number of an account), with the user's groups
    /// and no capabilities, and with HOME, USER and LOGNAME set.
    #[arg(long, value_name = "NAME", value_parser = account)]
    user: Option<User>,
    #[command(flatten)]
    socket: SocketArg,
    /// At the end, also write the instance with its counters as JSON to this file. Standard output
    /// is the program's.
    #[arg(long, value_name = "FILE")]
    json: Option<OsString>,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// A card that this process started; it ends when this value is dropped.
struct Own {
    card: Child,
}

impl Own {
    /// Starts a card as a separate process, because this process stays root for the program, and a
    /// process that is root must not process packets. The inner error is the exit code of a card
    /// that did not start.
    fn start(args: &RunArgs) -> Result<Result<Self, u8>> {
        let program = std::env::current_exe().context("where is this program")?;
        let mut command = Command::new(program);
        command.args(["card", "up", "--for-run", "--socket"]).arg(args.socket.own());
        if let Some(scale) = args.scale {
            command.args(["--scale", &format!("1/{scale}")]);
        }
        if let Some(credits) = args.credits {
            command.args(["--credits", &credits.to_string()]);
        }
        let flags = [(args.internet, "--internet"), (args.internet_private, "--internet-private")];
        command.args(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag));
        if let Some(file) = &args.vpc {
            command.arg("--").arg(file);
        }
        // In a separate process group, the card does not receive the signals of the terminal, and
        // so ends after the program.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        // If this process is a service, it does not become ready when the card does.
        command.env_remove("NOTIFY_SOCKET");
        let mut card = command.spawn().context("the card cannot be started")?;
        let mut said = String::new();
        if let Some(stdout) = card.stdout.take() {
            BufReader::new(stdout).read_line(&mut said).context("the card")?;
        }
        if said.trim_end() == "ready" {
            return Ok(Ok(Self { card }));
        }
        // A card that fails prints the reason itself.
        drop(card.stdin.take());
        let code = card.wait().context("the card")?.code();
        Ok(Err(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(failure::RUN)))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        drop(self.card.stdin.take());
        match self.card.wait() {
            Ok(ended) if ended.success() => {}
            Ok(ended) => tell!("srd: the card: {ended}"),
            Err(error) => tell!("srd: the card: {error}"),
        }
    }
}

pub(crate) fn run(args: &RunArgs) -> Result<u8> {
    let json = JsonOutput { json: args.json.clone() };
    json.check_beside_program()?;
    if let Err((code, what)) = args.command.first().map_or(Ok(()), |program| find(program)) {
        tell!("srd: {what}");
        return Ok(code);
    }
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("signals")?;
    let mut tries = TRIES_MAX;
    let (own, mut client, instance) = loop {
        let (own, mut client) = match Client::connect(&args.socket.path()?) {
            Ok(client) => (None, client),
            Err(_) => match Own::start(args)? {
                Ok(own) => (Some(own), Client::connect(&args.socket.own())?),
                Err(code) => return Ok(code),
            },
        };
        let of_card = [args.vpc.is_some(), args.scale.is_some(), args.credits.is_some()];
        if own.is_none() && (args.internet || of_card.contains(&true)) {
            return usage(
                "a card runs already: --vpc, --scale, --credits and --internet are for the \
                 first; --socket names another card",
            );
        }
        let attached = client.attach(Attach {
            name: args.name.clone(),
            instance_type: args.instance_type.clone(),
            peer_of: args.peer_of.clone(),
            subnet: args.subnet.clone(),
            groups: args.groups.clone(),
        });
        match attached {
            // The card belonged to another `srd run`, which has just ended. The next attempt finds
            // or starts another card.
            Err(error) if own.is_none() && error.is::<CardEnded>() && tries > 0 => {
                tries -= 1;
                std::thread::sleep(PAUSE);
            }
            attached => break (own, client, attached.map_err(super::or_usage)?),
        }
    };
    let namespace = instance.namespace.as_ref().context("the instance has no namespace")?;
    announce(&instance, namespace);
    let mut program = program(namespace, args.user.as_ref(), &args.command);
    let child = program.spawn().context("`ip` cannot be run: apt-get install iproute2")?;
    let ended = wait(child, signals)?;
    match client.status() {
        Ok(status) => {
            let mut all = status.instances.into_iter();
            if let Some(instance) = all.find(|other| other.name == instance.name) {
                say_limits(&instance, status.scale);
                json.write(&instance)?;
            }
        }
        // The card belonged to another `srd run`, which ended before this one.
        Err(error) => tell!("srd: what limited the program is not known: {error:#}"),
    }
    drop(client);
    drop(own);
    let signal = std::os::unix::process::ExitStatusExt::signal(&ended);
    let code = ended.code().or(signal.map(|signal| 128 + signal)).unwrap_or(1);
    Ok(u8::try_from(code).unwrap_or(1))
}

/// Parses an account, by its name or its number.
fn account(text: &str) -> Result<User, String> {
    let by_number = || text.parse().ok().map(|number| User::from_uid(Uid::from_raw(number)));
    let found = match User::from_name(text) {
        Ok(None) => by_number().unwrap_or(Ok(None)),
        found => found,
    };
    match found {
        Ok(Some(user)) => Ok(user),
        Ok(None) => {
            Err(String::from("this machine has no such account: `getent passwd` lists all"))
        }
        Err(error) => Err(format!("the account cannot be looked up: {error}")),
    }
}

/// Returns the command that runs the program in its namespace, as its user.
fn program(namespace: &NamespaceName, user: Option<&User>, words: &[OsString]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace.as_str()]);
    if let Some(user) = user {
        // `ip` itself needs root.
        command.arg("setpriv").arg(format!("--reuid={}", user.uid));
        command.arg(format!("--regid={}", user.gid));
        command.args(["--init-groups", "--inh-caps=-all", "--ambient-caps=-all", "--"]);
        command.env("HOME", &user.dir).env("USER", &user.name).env("LOGNAME", &user.name);
    }
    command.args(words);
    command
}

/// Checks that the program can be found as `ip netns exec` will find it, before an instance is
/// created for it. The error is an exit code and a text.
fn find(program: &OsStr) -> Result<(), (u8, String)> {
    let is_file = |path: &Path| path.metadata().is_ok_and(|facts| facts.is_file());
    let may_run = |path: &Path| is_file(path) && access(path, Access::EXEC_OK).is_ok();
    let shown = program.to_string_lossy();
    if program.as_encoded_bytes().contains(&b'/') {
        let path = Path::new(program);
        if may_run(path) {
            return Ok(());
        }
        return Err(match path.exists() {
            true => (NOT_RUNNABLE, format!("`{shown}` is no program that may be run")),
            false => (NOT_FOUND, format!("there is no program `{shown}`")),
        });
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|directory| may_run(&directory.join(program))) {
        return Ok(());
    }
    let hint = "install it, or give its path: `sudo` may have another PATH than you";
    Err((NOT_FOUND, format!("there is no program `{shown}` in PATH; {hint}")))
}

/// Waits for the end of the program, so that the caller can then print its limits. SIGTERM is
/// passed on to the program. SIGINT is not, because the terminal also sends it to the program.
fn wait(mut child: Child, mut signals: Signals) -> Result<ExitStatus> {
    // A signal that arrives at the end of the program must not reach a later process with its
    // number.
    let program = Process::open(child.id()).context("the program")?;
    let handle = signals.handle();
    let pass_on = move || {
        for signal in signals.forever() {
            if signal == SIGTERM {
                let _ = program.send(Signal::TERM);
            }
        }
    };
    let thread = std::thread::Builder::new().name("srd-signals".into());
    let thread = thread.spawn(pass_on).context("a thread")?;
    let ended = child.wait().context("waiting for the program");
    handle.close();
    let _ = thread.join();
    ended
}

fn announce(instance: &Instance, namespace: &NamespaceName) {
    let addresses = instance.interfaces.iter().flat_map(|i| &i.addresses);
    let addresses: Vec<&str> = addresses.map(String::as_str).collect();
    let Instance { name, instance_type, .. } = instance;
    tell!("srd: instance {name}, {instance_type}, {}, namespace {namespace}", addresses.join(" "));
}

fn say_limits(instance: &Instance, scale: u32) {
    let [into, out] = instance.credits_bits.map(report::bits);
    let sum = |name: &str| instance.interfaces.iter().map(|i| i.counter(name)).sum::<u64>();
    let (sent, received) = (sum("tx_packets"), sum("rx_packets"));
    tell!(
        "srd: {}: sent {sent} packets, received {received}; credits left in {into}, out {out}",
        instance.name
    );
    let findings = report::findings(instance, scale);
    for finding in &findings {
        tell!("srd: {finding}");
    }
    if findings.is_empty() {
        tell!("srd: no limit of the type was met");
    }
    for interface in &instance.interfaces {
        for (cause, packets) in &interface.drops {
            tell!("srd: {}: {packets} packets dropped: {cause}", interface.name);
        }
    }
}
