//! `srd control`: the control plane, which serves the EC2 Query API for virtual private clouds.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde::Serialize;
use srd_control::actions;
use srd_control::control::{Access, Control, TRIAL_ACCOUNT, random_seed};
use srd_control::machines::{Machines, NoMachines};
use srd_control::server;
use srd_control::store::MemoryStore;

use crate::failure::{Missing, usage};
use crate::node;
use crate::output::{JsonOutput, say};

const EXAMPLES: &str = "\
EXAMPLES
  srd control up --trial
  srd control up --trial --listen 127.0.0.1:5000
  srd control actions
  srd control actions --json -

  export AWS_ACCESS_KEY_ID=x AWS_SECRET_ACCESS_KEY=x AWS_DEFAULT_REGION=us-east-1
  aws --endpoint-url http://127.0.0.1:4599 ec2 create-vpc --cidr-block 10.0.0.0/16

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
    /// Accept any credentials over plain HTTP, and keep the state in memory. Only addresses of the
    /// loopback interface are served. Without this option, nothing is served yet.
    #[arg(long)]
    trial: bool,
    /// Address and port; port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4599")]
    listen: SocketAddr,
    /// Keep instances in the state only, and start no machine. Without root, this is always so.
    #[arg(long)]
    state_only: bool,
    /// Run user data that begins with `#!` as root in the namespace of its instance. Each process
    /// of this machine that sends requests can then run programs as root.
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
            "`srd control up` serves trials only: add --trial, with which any credentials are \
             accepted",
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
    let machines: Box<dyn Machines> = match starts {
        true => Box::new(node::machines(args.user_data)?),
        false => Box::new(NoMachines),
    };
    let control =
        Control::new(Access::Trial, random_seed(), store, machines).map_err(anyhow::Error::msg)?;
    say(format!("EC2 API: http://{address} (account {TRIAL_ACCOUNT}, state in memory)"))?;
    say(match (starts, is_root) {
        (true, _) => "any credentials are accepted; an instance is the namespace srd-i-ID",
        (false, true) => "any credentials are accepted; instances exist in the state only",
        (false, false) => {
            "any credentials are accepted; instances exist in the state only: machines need root"
        }
    })?;
    match server::serve(listener, control).context("the server ended")? {}
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
