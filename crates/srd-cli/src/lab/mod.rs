//! `srd lab`: builds a leaf-spine fabric of network namespaces, and runs experiments in it.

mod enter;
mod fetch;
mod flood;
mod impair;
mod run;
mod show;

use crate::failure::{Missing, usage};
use crate::output::JsonOutput;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use srd_lab::{Fabric, FabricConfig, HostId, LinkId};
use std::ffi::OsString;
use std::str::FromStr;

const EXAMPLES: &str = "\
EXAMPLES
  srd lab up                          2 leaves, 8 hosts at 1 Gb/s, 4 spines at 250 Mb/s
  srd lab exec h0.0 -- ping -c1 198.18.1.1
  srd lab exec h1.0 -- srd perf server &
  srd lab exec h0.0 -- srd perf client 198.18.1.1 --encrypt off --link-rate 1G
  srd lab fail 2                      spine 2 swallows everything, silently
  srd lab slow l0-s1 50               one link at 50 Mb/s
  srd lab impair h0.0 h1.0 --loss 1% -- ./test.sh
  srd lab heal                        everything works again
  srd lab status
  srd lab down

Host number H under leaf L is called hL.H and has the addresses 198.18.L.(8H+1) and
fd00:18:L:H::1. Needs root, iproute2 and Linux 5.14 or later.";

const EXEC: &str = "\
EXAMPLES
  srd lab exec h0.0 -- ping -c1 198.18.1.1
  srd lab exec h1.0 -- srd perf server &
  srd lab exec h0.0 -- srd perf client 198.18.1.1 --encrypt off --link-rate 1G

EXIT CODES
  that of the program; if it was not started: 1 it failed, 2 wrong arguments, 3 it needs root";

/// `srd lab`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum LabCommand {
    /// Build a fabric; it stays until `srd lab down`.
    ///
    /// Each host, leaf and spine is a network namespace, each cable a veth pair, each port a
    /// token bucket with a byte-limited queue. Leaves spread flows over spines by the hash of
    /// the 5-tuple, as switches do. A fabric of the same name is replaced.
    #[command(after_help = EXAMPLES)]
    Up(Box<UpArgs>),
    /// Remove a fabric, and end the programs that still run inside. A missing fabric is no error.
    Down(NameArgs),
    /// Run a program in a host, and exit with its exit code.
    #[command(after_help = EXEC)]
    Exec(ExecArgs),
    /// Show a fabric: hosts, faults, and the counters of every port.
    Status(StatusArgs),
    /// Let a spine or a link drop packets silently: no link goes down, and no device is notified.
    Fail(PartArgs),
    /// Change the rate of a link, or of every link of a spine.
    Slow(SlowArgs),
    /// Undo `fail` and `slow` of a spine or a link; without a name, of everything.
    Heal(HealArgs),
    /// Put a bad wire between two hosts while a command runs: loss, unequal delays, reordering.
    ///
    /// A process takes the place of the fabric between them. It drops packets by a seed, and delays
    /// each packet by the length of its path, so that packets of different paths overtake each
    /// other. At the end it prints its counters, and the fabric's cables are in use again.
    Impair(Box<impair::ImpairArgs>),
    /// Run experiments with real programs, with and without ENA Express, and write a report.
    Run(Box<run::RunArgs>),
    /// Fetch a program that experiments run and that the system's packages do not contain.
    Fetch(fetch::FetchArgs),
    /// Send handshake packets of unknown hosts: a part of the experiment `flood`.
    #[command(hide = true)]
    Flood(flood::FloodArgs),
    /// Run a command in a host. The arguments are those of `ssh`, because launchers of MPI call
    /// this command in place of `ssh`.
    #[command(hide = true)]
    Enter(enter::EnterArgs),
}

/// Selection of a fabric.
#[derive(Args, Clone, Debug)]
pub(crate) struct NameArgs {
    /// Name of the fabric: lower-case letters and digits. Fabrics of different names can run side
    /// by side, if they exchange no packets.
    #[arg(long, default_value = "lab")]
    name: String,
}

/// Arguments of `srd lab up`. The defaults are the library's.
#[derive(Args, Clone, Debug)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Leaf (top-of-rack) switches, 1 to 32.
    #[arg(long, value_name = "N", default_value_t = FabricConfig::default().leaves)]
    leaves: u16,
    /// Hosts under each leaf, 1 to 31.
    #[arg(long, value_name = "N", default_value_t = FabricConfig::default().hosts_per_leaf)]
    hosts: u16,
    /// Spine switches, 1 to 64; each leaf has a link to each.
    #[arg(long, value_name = "N", default_value_t = FabricConfig::default().spines)]
    spines: u16,
    /// Rate of each host's link, in Mb/s.
    #[arg(long, value_name = "MBPS", default_value_t = FabricConfig::default().host_rate_mbps)]
    host_rate: u32,
    /// Rate of each leaf-spine link, in Mb/s.
    #[arg(long, value_name = "MBPS", default_value_t = FabricConfig::default().uplink_rate_mbps)]
    uplink_rate: u32,
    /// Queue of each switch port, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = FabricConfig::default().queue_bytes)]
    queue_bytes: u32,
    /// Queue of each host's own network card, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = FabricConfig::default().host_queue_bytes)]
    host_queue_bytes: u32,
    /// MTU of every link, 1280 to 9000.
    #[arg(long, value_name = "BYTES", default_value_t = FabricConfig::default().mtu)]
    mtu: u32,
    /// Seed of the leaves' ECMP hash: the same seed gives the same collisions.
    #[arg(long, value_name = "N", default_value_t = FabricConfig::default().hash_seed)]
    hash_seed: u32,
    /// Switch off segmentation offloads in the hosts.
    #[arg(long)]
    no_offloads: bool,
    /// Let leaves include the IPv6 flow label in their hash.
    #[arg(long)]
    hash_flow_label: bool,
}

/// Arguments of `srd lab exec`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Run with a higher priority than the machine's other load, for measurements.
    #[arg(long)]
    high_priority: bool,
    /// The host, for example h0.1.
    host: String,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Arguments of `srd lab status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct StatusArgs {
    /// Name of the fabric. Without it, every fabric that is up is listed.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    json: JsonOutput,
}

/// Arguments of commands for a spine or a link.
#[derive(Args, Clone, Debug)]
pub(crate) struct PartArgs {
    #[command(flatten)]
    name: NameArgs,
    /// A spine (2 or s2) or a link (l0-s2).
    part: String,
}

/// Arguments of `srd lab slow`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SlowArgs {
    #[command(flatten)]
    part: PartArgs,
    /// New rate, in Mb/s.
    rate_mbps: u32,
}

/// Arguments of `srd lab heal`.
#[derive(Args, Clone, Debug)]
pub(crate) struct HealArgs {
    #[command(flatten)]
    name: NameArgs,
    /// A spine (2 or s2) or a link (l0-s2). Default: everything.
    part: Option<String>,
}

/// Part of a fabric that can fail: a spine, or a link between a leaf and a spine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Spine(u16),
    Link(LinkId),
}

impl FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = text.strip_prefix('s').unwrap_or(text);
        if let Ok(spine) = number.parse() {
            return Ok(Part::Spine(spine));
        }
        match text.parse() {
            Ok(link) => Ok(Part::Link(link)),
            Err(_) => usage(format!(
                "`{text}` is neither a spine (write 2 or s2) nor a link (write l0-s2)"
            )),
        }
    }
}

/// Runs `srd lab`. Returns the exit code.
pub(crate) fn run(command: LabCommand) -> Result<u8> {
    match command {
        LabCommand::Up(args) => up(&args)?,
        LabCommand::Flood(args) => flood::run(&args)?,
        LabCommand::Enter(args) => enter::run(&args)?,
        LabCommand::Impair(args) => return impair::run(&args),
        LabCommand::Down(args) => {
            srd_lab::config::check_name(&args.name)?;
            require_root()?;
            let report = Fabric::down_by_name(&args.name)?;
            crate::output::say(show::removed(&args.name, &report))?;
        }
        LabCommand::Exec(args) => return exec(&args),
        LabCommand::Status(args) => status(&args)?,
        LabCommand::Fail(args) => {
            let part = args.part.parse()?;
            let fabric = open(&args.name)?;
            match part {
                Part::Spine(spine) => fabric.fail_spine(spine)?,
                Part::Link(link) => fabric.fail_link(link)?,
            }
        }
        LabCommand::Slow(args) => slow(&args)?,
        LabCommand::Heal(args) => heal(&args)?,
        LabCommand::Run(args) => run::run(&args)?,
        LabCommand::Fetch(args) => fetch::run(&args)?,
    }
    Ok(0)
}

fn up(args: &UpArgs) -> Result<()> {
    let config = FabricConfig {
        name_prefix: args.name.name.clone(),
        leaves: args.leaves,
        hosts_per_leaf: args.hosts,
        spines: args.spines,
        host_rate_mbps: args.host_rate,
        uplink_rate_mbps: args.uplink_rate,
        queue_bytes: args.queue_bytes,
        host_queue_bytes: args.host_queue_bytes,
        mtu: args.mtu,
        hash_seed: args.hash_seed,
        offloads: !args.no_offloads,
        hash_flow_label: args.hash_flow_label,
    };
    config.validate()?;
    require_fabric()?;
    let fabric = Fabric::up(config)?;
    crate::output::say(show::built(&fabric)?)
}

fn exec(args: &ExecArgs) -> Result<u8> {
    let host: HostId = args.host.parse()?;
    let fabric = open(&args.name)?;
    let code = if args.high_priority {
        fabric.exec_at_high_priority(host, &args.command)?
    } else {
        fabric.exec(host, &args.command)?
    };
    Ok(u8::try_from(code).unwrap_or(1))
}

fn status(args: &StatusArgs) -> Result<()> {
    args.json.check()?;
    require_root()?;
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => Fabric::list()?,
    };
    let mut all = Vec::new();
    for name in &names {
        let status = match Fabric::open(name).and_then(|fabric| fabric.status()) {
            Ok(status) => status,
            // The user did not name this fabric, and it was removed after the list was read.
            Err(_) if args.name.is_none() && !Fabric::list()?.contains(name) => continue,
            Err(error) => return Err(error),
        };
        args.json.say(show::status(&status))?;
        all.push(status);
    }
    if all.is_empty() {
        args.json.say("no fabric is up; `srd lab up` builds one")?;
    }
    args.json.write(&all)
}

fn slow(args: &SlowArgs) -> Result<()> {
    let part = args.part.part.parse()?;
    let fabric = open(&args.part.name)?;
    match part {
        Part::Link(link) => fabric.slow_link(link, args.rate_mbps),
        Part::Spine(spine) => {
            fabric.config().check_spine(spine)?;
            for leaf in 0..fabric.config().leaves {
                fabric.slow_link(LinkId { leaf, spine }, args.rate_mbps)?;
            }
            Ok(())
        }
    }
}

fn heal(args: &HealArgs) -> Result<()> {
    let part = args.part.as_deref().map(Part::from_str).transpose()?;
    let fabric = open(&args.name)?;
    match part {
        None => fabric.heal_all(),
        Some(Part::Link(link)) => fabric.heal_link(link),
        Some(Part::Spine(spine)) => {
            fabric.heal_spine(spine)?;
            for leaf in 0..fabric.config().leaves {
                fabric.heal_link(LinkId { leaf, spine })?;
            }
            Ok(())
        }
    }
}

fn open(args: &NameArgs) -> Result<Fabric> {
    srd_lab::config::check_name(&args.name)?;
    require_root()?;
    if !Fabric::list()?.contains(&args.name) {
        bail!("no fabric `{}` is up: `srd lab up --name {0}` builds it", args.name);
    }
    Fabric::open(&args.name)
}

/// Returns an error if this machine cannot build a fabric.
pub(crate) fn require_fabric() -> Result<()> {
    let all = srd_lab::requirements();
    let missing: Vec<String> = all.iter().filter(|m| m.required).map(ToString::to_string).collect();
    if missing.is_empty() { Ok(()) } else { Err(Missing(missing.join("\n")).into()) }
}

/// Returns an error if the privilege to enter namespaces is missing.
fn require_root() -> Result<()> {
    let all = srd_lab::requirements();
    match all.iter().find(|m| m.required && m.what.starts_with("root")) {
        Some(missing) => Err(Missing(missing.to_string()).into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_spine_or_a_link() {
        assert_eq!("2".parse::<Part>().unwrap(), Part::Spine(2));
        assert_eq!("s13".parse::<Part>().unwrap(), Part::Spine(13));
        let link = LinkId { leaf: 0, spine: 2 };
        assert_eq!("l0-s2".parse::<Part>().unwrap(), Part::Link(link));
        let error = "leaf".parse::<Part>().expect_err("no part").to_string();
        assert!(error.contains("l0-s2"), "{error}");
    }
}
