//! `srd control`: the control plane, which serves the EC2 Query API for virtual private clouds.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde::Serialize;
use srd_control::actions;
use srd_control::control::{Access, Control, TRIAL_ACCOUNT, random_seed};
use srd_control::machines::{Machines, NoMachines};
use srd_control::server;
use srd_control::sign::DrawnKey;
use srd_control::store::MemoryStore;

use crate::failure::{Missing, usage};
use crate::node;
use crate::output::{JsonOutput, say};

const EXAMPLES: &str = "\
EXAMPLES
  srd control up --trial
  srd control up --trial --listen 127.0.0.1:5000 --key-file key.env
  srd control actions
  srd control actions --json -

  set -a; . ./key.env; set +a
  aws ec2 create-vpc --cidr-block 10.0.0.0/16

docs/control.md describes what is served, and what is missing.";

/// Commands for the control plane.
#[derive(Debug, Subcommand)]
pub(crate) enum ControlCommand {
    /// Serve the EC2 API to clients of this machine.
    #[command(after_help = EXAMPLES)]
    Up(UpArgs),
    /// List the actions that are served, and those on virtual private clouds that are missing.
    #[command(after_help = EXAMPLES)]
    Actions(ActionsArgs),
}

/// Arguments of `srd control up`.
#[derive(Args, Clone, Debug)]
pub(crate) struct UpArgs {
    /// Serve clients of this machine over plain HTTP, and keep the state in memory. An access key
    /// is generated and printed; requests need a signature with this key. Only addresses of the
    /// loopback interface are served. This option is required, because there is no other mode yet.
    #[arg(long)]
    trial: bool,
    /// Write the access key, the region and the endpoint to this file, as assignments for a shell.
    /// The file has mode 0600 and belongs to the user who runs this command. An older file is
    /// replaced.
    #[arg(long, value_name = "PATH", conflicts_with = "any_credentials")]
    key_file: Option<PathBuf>,
    /// For test suites: accept any credentials, and answer POST /reset without a signature. Each
    /// process of this machine can then change the state, so instances run no programs.
    #[arg(long, requires = "trial")]
    any_credentials: bool,
    /// Address and port; port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4599")]
    listen: SocketAddr,
    /// Keep instances in the state only, and start no machine. Without root, this is always so.
    #[arg(long)]
    state_only: bool,
    /// Run user data that begins with `#!` as root in the namespace of its instance. Each client
    /// that has the access key can then run programs as root.
    #[arg(long, conflicts_with = "state_only")]
    user_data: bool,
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
    }
}

fn up(args: &UpArgs) -> Result<u8> {
    if !args.trial {
        return usage(
            "`srd control up` serves trials only: add --trial, with which it serves clients of \
             this machine",
        );
    }
    if !args.listen.ip().is_loopback() {
        return usage(server::not_loopback(args.listen));
    }
    let listener =
        server::listen(args.listen).with_context(|| format!("cannot listen at {}", args.listen))?;
    let address = listener.local_addr().context("the address of the socket")?;
    let store = Box::new(MemoryStore::default());
    let is_root = rustix::process::geteuid().is_root();
    if args.user_data && !is_root {
        return Err(Missing("--user-data needs root: run it with sudo".into()).into());
    }
    let starts = is_root && !args.state_only;
    if starts && args.any_credentials {
        return usage(
            "--any-credentials lets every process of this machine start instances: add \
             --state-only, which starts none",
        );
    }
    let machines: Box<dyn Machines> = match starts {
        true => Box::new(node::machines(args.user_data)?),
        false => Box::new(NoMachines),
    };
    let key = match args.any_credentials {
        true => None,
        false => Some(DrawnKey::draw().map_err(anyhow::Error::msg)?),
    };
    let access = match &key {
        None => Access::AnyCredentials,
        Some(key) => Access::Trial(key.only(TRIAL_ACCOUNT)),
    };
    let seed = random_seed().map_err(anyhow::Error::msg)?;
    let control = Control::new(access, seed, store, machines).map_err(anyhow::Error::msg)?;
    let settings = key.as_ref().map(|key| settings(key, address));
    if let (Some(path), Some(settings)) = (&args.key_file, &settings) {
        write_key(path, settings)
            .with_context(|| format!("cannot write the key file {}", path.display()))?;
    }
    say(format!("EC2 API: http://{address} (account {TRIAL_ACCOUNT}, state in memory)"))?;
    match &settings {
        Some(settings) => say(format!("export {}", settings.join(" ")))?,
        None => say("any credentials are accepted")?,
    }
    say(match (starts, is_root) {
        (true, _) => "an instance is the namespace srd-i-ID",
        (false, true) => "instances exist in the state only",
        (false, false) => "instances exist in the state only: machines need root",
    })?;
    match server::serve(listener, control).context("the server ended")? {}
}

/// The environment of clients, as assignments for a shell.
fn settings(key: &DrawnKey, address: SocketAddr) -> [String; 4] {
    [
        format!("AWS_ACCESS_KEY_ID={}", key.id),
        format!("AWS_SECRET_ACCESS_KEY={}", key.secret),
        "AWS_DEFAULT_REGION=us-east-1".to_owned(),
        format!("AWS_ENDPOINT_URL=http://{address}"),
    ]
}

/// Writes a file that only its owner can read. The file is complete when it gets its name, and a
/// link of that name is replaced, not followed.
fn write_key(path: &Path, settings: &[String]) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file
        .write_all(format!("{}\n", settings.join("\n")).as_bytes())
        .and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}

/// The actions, for JSON.
#[derive(Serialize)]
struct Actions {
    served: Vec<&'static str>,
    missing: Vec<&'static str>,
}

fn list(args: &ActionsArgs) -> Result<u8> {
    args.json.check()?;
    let actions = Actions { served: actions::names(), missing: actions::missing() };
    args.json.write(&actions)?;
    args.json.say(format!("served ({}):", actions.served.len()))?;
    for name in &actions.served {
        args.json.say(format!("  {name}"))?;
    }
    args.json.say(format!("not served ({}):", actions.missing.len()))?;
    for name in &actions.missing {
        args.json.say(format!("  {name}"))?;
    }
    Ok(0)
}
