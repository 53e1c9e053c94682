//! `srd control`: the control plane, which serves the EC2 Query API for virtual private clouds.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use clap::{ArgGroup, Args, Subcommand};
use serde::Serialize;
use srd_control::actions::{self, scaling};
use srd_control::control::{Access, Control, TRIAL_ACCOUNT, console, random_seed};
use srd_control::fleet::Parts;
use srd_control::machines::{Machines, NoMachines};
use srd_control::server;
use srd_control::sign::DrawnKey;
use srd_control::store::etcd::plain_remote;
use srd_control::store::{MemoryStore, Store, copy};

use crate::failure::{Missing, cannot_listen, usage};
use crate::hosts::{self, AuthorityCommand, HostsArgs, ServeArgs, TokenCommand};
use crate::https::{HttpsArgs, Prepared};
use crate::identity::{self, IdentityArgs};
use crate::keys::{self, KeyCommand};
use crate::node;
use crate::output::{JsonOutput, say, write_new};
use crate::signals::AtEnd;
use crate::state::{self, EtcdArgs, Location};

/// End of the text of `srd control --help`.
pub(crate) const NOTES: &str = "\
EXAMPLES
  srd control up --trial                               # until Ctrl-C; clients in another terminal
  sudo srd control up --state /var/lib/srd/control.db --key-file key.env
  srd control actions
  sudo srd control hosts

`up` is the server. `hosts`, `token`, `authority`, `identity` and `key` send requests to a server of
this machine, at the socket of --admin. docs/control.md describes the API, docs/control-hosts.md
hosts that enrol.";

const ACTIONS: &str = "\
EXAMPLES
  srd control actions
  srd control actions --json | jq -r '.missing[]'";

const COPY: &str = "\
EXAMPLES
  srd control store copy control.db http://10.0.0.1:2379
  srd control store copy https://10.0.0.1:2379 copy.db --etcd-ca ca.pem

A server that uses one of the two stores has to be stopped before.

EXIT CODES
  0  all keys are in TO
  1  a store cannot be read or written, or a server uses it; TO may be incomplete, and a further
     attempt completes it
  2  wrong arguments";

const EXAMPLES: &str = "\
EXAMPLES
  srd control up --trial
  srd control up --trial --listen 127.0.0.1:5000 --key-file key.env
  srd control up --state /var/lib/srd/control.db --key-file key.env
  srd control up --state http://10.0.0.1:2379,http://10.0.0.2:2379 --state-only
  srd control up --state control.db --listen 10.0.0.1:443 --ca-file ca.pem --key-file key.env
  srd control up --state control.db --listen 0.0.0.0:443 --tls-name ec2.example \\
      --tls-cert fullchain.pem --tls-key privkey.pem
  srd control up --state control.db --hosts 192.0.2.10:4600 --place-on-hosts

  set -a; . ./key.env; set +a
  aws ec2 create-vpc --cidr-block 10.0.0.0/16

As root, without --state-only and --place-on-hosts, the server starts instances on this machine.
docs/control.md describes the actions that are served, and those that are missing.

SIGNALS
  SIGTERM, SIGINT  end the server, and the instances that it has started
  SIGHUP           the same, if the server starts instances on this machine

EXIT CODES
  0  ended by a signal
  1  it was started and failed, or another program has the port
  2  wrong arguments: nothing was started
  3  it needs root, or a program is missing: the message says which";

/// Commands for the control plane.
#[derive(Debug, Subcommand)]
pub(crate) enum ControlCommand {
    /// Serve the EC2 API.
    #[command(after_help = EXAMPLES)]
    Up(Box<UpArgs>),
    /// List the actions that are served, and those on virtual private clouds that are missing.
    #[command(after_help = ACTIONS)]
    Actions(ActionsArgs),
    /// List the hosts that have enrolled, remove one, or change its key.
    Hosts(HostsArgs),
    /// Create, list and revoke the tokens with which hosts enrol.
    #[command(subcommand, after_help = hosts::TOKENS)]
    Token(TokenCommand),
    /// Replace the authority that issues the certificate of a server without --tls-cert.
    #[command(subcommand, after_help = hosts::AUTHORITY)]
    Authority(AuthorityCommand),
    /// Show or change the identity of the controller, by which hosts recognize it.
    Identity(IdentityArgs),
    /// Access keys, with which clients of the API sign their requests.
    #[command(subcommand, after_help = keys::EXAMPLES)]
    Key(KeyCommand),
    /// Copy the state of a server from one store to another.
    #[command(subcommand, after_help = COPY)]
    Store(StoreCommand),
}

/// Commands for stores.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy the state of a store that no server uses into an empty store.
    #[command(after_help = COPY)]
    Copy(CopyArgs),
}

/// Arguments of `srd control store copy`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CopyArgs {
    /// The store that is read: a file, or addresses of etcd's members, separated by commas.
    #[arg(value_name = "FROM")]
    from: Location,
    /// The store that is written: a file, which is created with mode 0600, or addresses of etcd's
    /// members. The store must be empty, or contain an incomplete copy.
    #[arg(value_name = "TO")]
    to: Location,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// Arguments of `srd control up`.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("store").required(true)))]
pub(crate) struct UpArgs {
    /// Keep the state in memory, and accept requests that reset it. An access key is
    /// generated and printed; requests need a signature with this key. Either this option or
    /// --state is required.
    #[arg(long, group = "store")]
    trial: bool,
    /// Keep the state in this file, which is created with mode 0600, or in etcd: addresses
    /// http://HOST:PORT or https://HOST:PORT of its members, separated by commas. A request is
    /// answered after its change is durable. The access key is a part of the state. At the start,
    /// instances that were running start again. A server that starts machines refuses http:// to
    /// other machines.
    #[arg(long, value_name = "STORE", group = "store")]
    state: Option<Location>,
    #[command(flatten)]
    etcd: EtcdArgs,
    /// Write the access key, the region and the endpoint to this file, as assignments for a shell,
    /// and do not print the secret. The file has mode 0600 and belongs to the user who runs this
    /// command. An older file is replaced.
    #[arg(long, value_name = "PATH", conflicts_with = "any_credentials")]
    key_file: Option<PathBuf>,
    /// For test suites: accept any credentials, and answer POST /reset without a signature. An
    /// access key of twelve digits belongs to the account with this number. Each process of this
    /// machine can then change the state, so instances run no programs.
    #[arg(long, requires = "trial")]
    any_credentials: bool,
    /// Address and port; port 0 selects a free port. At addresses of the loopback interface, the
    /// server uses plain HTTP unless an option of TLS is given, at others HTTPS.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4599",
          value_parser = hosts::socket_address)]
    listen: SocketAddr,
    #[command(flatten)]
    https: HttpsArgs,
    /// Keep instances in the state only, and start no machine. Without root, this is always so.
    #[arg(long)]
    state_only: bool,
    /// Run user data that begins with `#!` as root in the namespace of its instance. Each client
    /// that has the access key can then run programs as root.
    #[arg(long, conflicts_with = "state_only")]
    user_data: bool,
    #[command(flatten)]
    hosts: ServeArgs,
}

/// Arguments of `srd control actions`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ActionsArgs {
    #[command(flatten)]
    json: JsonOutput,
}

/// Runs the command.
pub(crate) fn run(command: &ControlCommand) -> Result<u8> {
    match command {
        ControlCommand::Up(args) => up(args),
        ControlCommand::Actions(args) => list(args),
        ControlCommand::Hosts(args) => hosts::hosts(args),
        ControlCommand::Token(command) => hosts::token(command),
        ControlCommand::Authority(command) => hosts::authority(command),
        ControlCommand::Identity(args) => identity::run(args),
        ControlCommand::Key(command) => keys::run(command),
        ControlCommand::Store(StoreCommand::Copy(args)) => copy_store(args),
    }
}

fn up(args: &UpArgs) -> Result<u8> {
    let is_https = args.https.is_on(args.listen)?;
    if args.any_credentials && !args.listen.ip().is_loopback() {
        return usage("--any-credentials is for clients of this machine: listen at 127.0.0.1");
    }
    let listener = match is_https {
        true => server::listen_https(args.listen),
        false => server::listen(args.listen),
    };
    let listener = listener.map_err(|error| cannot_listen(args.listen, "--listen", &error))?;
    let address = listener.local_addr().context("the address of the socket")?;
    let is_root = rustix::process::geteuid().is_root();
    if args.user_data && !is_root {
        return Err(Missing("--user-data needs root: run it with sudo".into()).into());
    }
    let parts = Parts::default();
    let on_hosts = args.hosts.machines(&parts);
    let starts = is_root && !args.state_only && on_hosts.is_none();
    if starts && args.any_credentials {
        return usage(
            "--any-credentials lets every process of this machine start instances: add \
             --state-only, which starts none",
        );
    }
    if starts
        && let Some(Location::Etcd(members)) = &args.state
        && let Some(member) = plain_remote(members)
    {
        return usage(format!(
            "the instances in etcd run on this machine as root, and {member} has no TLS: use \
             https with --etcd-ca, or add --state-only"
        ));
    }
    let at_end = AtEnd::default();
    at_end.handle_signals(starts)?;
    let places = on_hosts.is_some();
    let machines: Box<dyn Machines> = match on_hosts {
        Some(machines) => Box::new(machines),
        None if starts => Box::new(node::machines(args.user_data, args.state.is_some(), &at_end)?),
        None => Box::new(NoMachines),
    };
    let seed = random_seed().map_err(anyhow::Error::msg)?;
    let new = |access, store: Box<dyn Store>| {
        Control::new(access, seed, store, machines).map_err(anyhow::Error::msg)
    };
    let (mut control, key, location) = match &args.state {
        Some(location) => {
            let control = new(Access::Local, state::open(location, &args.etcd)?)?;
            let key = control.key();
            (control, key, location.to_string())
        }
        None => {
            let key = match args.any_credentials {
                true => None,
                false => Some(DrawnKey::draw().map_err(anyhow::Error::msg)?),
            };
            let access = match &key {
                None => Access::AnyCredentials,
                Some(key) => Access::Trial(key.only(TRIAL_ACCOUNT)),
            };
            (new(access, Box::<MemoryStore>::default())?, key, "memory".to_owned())
        }
    };
    let prepared = match is_https {
        true => Some(args.https.prepare(address, &mut control)?),
        false => None,
    };
    let plain = format!("http://{address}");
    let url = prepared.as_ref().map_or(&plain, |prepared| &prepared.url);
    let first = format!("EC2 API: {url} (account {TRIAL_ACCOUNT}, state in {location})");
    let token = key.as_ref().map_or(String::new(), |key| format!("#token={}", console::token(key)));
    let console = format!("{url}/console{token}");
    let settings = key.as_ref().map(|key| settings(key, url));
    // All sockets are open before the secret is shown.
    let control = Arc::new(Mutex::new(control));
    let of_hosts = args.hosts.start(&control, parts, &at_end)?;
    announce(args, first, settings, console, prepared.as_ref())?;
    say(match (starts, is_root) {
        _ if places => "an instance is the namespace srd-i-ID of a host",
        (true, _) => "an instance is the namespace srd-i-ID",
        (false, true) => "instances exist in the state only",
        (false, false) => "instances exist in the state only: machines need root",
    })?;
    of_hosts.iter().try_for_each(say)?;
    let https = prepared.map(|prepared| prepared.https);
    match server::serve_shared(listener, control, https).context("the server ended")? {}
}

/// Prints how clients reach the server, beginning with the line `first`. The secret and the token
/// of the console are printed only if they are not written to a file, because the output of a
/// service is kept in a log.
fn announce(
    args: &UpArgs,
    first: String,
    settings: Option<Vec<String>>,
    console: String,
    prepared: Option<&Prepared>,
) -> Result<()> {
    let mut lines = vec![first];
    match (settings, &args.key_file) {
        (None, _) => {
            lines.push("any credentials are accepted".to_owned());
            lines.push(format!("console: {console}"));
        }
        (Some(mut settings), file) => {
            let bundle = prepared.and_then(|prepared| prepared.bundle.as_ref());
            settings.extend(bundle.map(|path| format!("AWS_CA_BUNDLE={}", path.display())));
            match file {
                Some(path) => {
                    settings.push(format!("SRD_CONSOLE={console}"));
                    write_new(path, &format!("{}\n", settings.join("\n")), 0o600)
                        .with_context(|| format!("cannot write the key file {}", path.display()))?;
                    let shown = path.display();
                    lines.push(format!("the access key is in {shown}"));
                    lines.push(format!("console: its address is SRD_CONSOLE in {shown}"));
                }
                None => {
                    lines.push(format!("export {}", settings.join(" ")));
                    lines.push(format!("console: {console}"));
                }
            }
        }
    }
    lines.extend(prepared.iter().flat_map(|prepared| prepared.notes.iter().cloned()));
    lines.iter().try_for_each(say)
}

fn copy_store(args: &CopyArgs) -> Result<u8> {
    if args.from == args.to {
        return usage("FROM and TO are the same store");
    }
    let mut from = state::open_existing(&args.from, &args.etcd)?;
    let mut to = state::open(&args.to, &args.etcd)?;
    let count = copy::copy(from.as_mut(), to.as_mut()).map_err(anyhow::Error::msg)?;
    say(format!("{count} keys of {} are in {}", args.from, args.to))?;
    Ok(0)
}

/// The environment of clients, as assignments for a shell.
fn settings(key: &DrawnKey, url: &str) -> Vec<String> {
    vec![
        format!("AWS_ACCESS_KEY_ID={}", key.id),
        format!("AWS_SECRET_ACCESS_KEY={}", key.secret),
        // The SDKs of Java and JavaScript read the first name, boto3 reads the second one.
        "AWS_REGION=us-east-1".to_owned(),
        "AWS_DEFAULT_REGION=us-east-1".to_owned(),
        format!("AWS_ENDPOINT_URL={url}"),
    ]
}

/// The actions, for JSON.
#[derive(Serialize)]
struct Actions {
    served: Vec<&'static str>,
    missing: Vec<&'static str>,
    autoscaling: Vec<&'static str>,
}

fn list(args: &ActionsArgs) -> Result<u8> {
    args.json.check()?;
    let actions = Actions {
        served: actions::names(),
        missing: actions::missing(),
        autoscaling: scaling::names(),
    };
    args.json.write(&actions)?;
    for (title, names) in [
        ("served", &actions.served),
        ("served of Auto Scaling", &actions.autoscaling),
        ("not served", &actions.missing),
    ] {
        args.json.say(format!("{title} ({}):", names.len()))?;
        for name in names {
            args.json.say(format!("  {name}"))?;
        }
    }
    Ok(0)
}
