//! `srd card status`, `stats`, `flows` and `apply`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use srd_card::profile::InstanceType;
use srd_guest::Client;
use srd_guest::protocol::{Answer, Instance, Interface, PeerHost, Request, Status, VhostUser};

use super::{SocketArg, report};
use crate::failure::usage;
use crate::output::{JsonOutput, say, tell};

/// Arguments of `srd card status`.
#[derive(Args, Clone, Debug)]
#[command(after_help = super::with_codes!(
    "  srd card status\n  srd card status web\n  srd card status --json | jq '.instances[].name'"
))]
pub(crate) struct StatusArgs {
    /// Show only the instance with this name. Default: all of this host.
    instance: Option<String>,
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    json: JsonOutput,
}

/// Arguments of `srd card stats`.
#[derive(Args, Clone, Debug)]
#[command(after_help = super::with_codes!(
    "  srd card stats web\n  srd card stats web ens6\n  srd card stats web --json | jq \
     .bw_out_allowance_exceeded"
))]
pub(crate) struct StatsArgs {
    /// Name of the instance.
    instance: String,
    /// The device, as ens6. Default: the first device.
    device: Option<String>,
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    json: JsonOutput,
}

/// Arguments of `srd card flows`.
#[derive(Args, Clone, Debug)]
#[command(after_help = super::with_codes!(
    "  srd card flows web\n  srd card flows web --most 1000"
))]
pub(crate) struct FlowsArgs {
    /// Name of the instance.
    instance: String,
    /// Maximum number of flows of each interface.
    #[arg(long, value_name = "N", default_value_t = 100)]
    most: u16,
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    json: JsonOutput,
}

const APPLY: &str = "\
EXAMPLES
  srd card apply cloud.toml                           # other rules, and other instances
  srd card apply cloud.toml && ip netns exec srd-i-web ip address

The rules last until the next reload of a card that was started with -c, or the end of the card.
Namespaces, addresses and routes of instances that other programs have deleted are restored, also if
the file has not changed. The command waits for this for at most 20 seconds. It prints a warning for
each change that is left, as `srd card status` does, and the names of the instances that the file
has removed. An empty file is refused, and so is any file if a controller sends the instances of
this host ([enrol.instances]). A file without instances, as one that was cut off, is refused if the
file before has some, unless --remove-all is given.

EXIT CODES
  0  the rules are in force; a warning names each change by another program that is left
  1  no card answers, it failed and the rules before stay in force, or instances are still being
     restored after 20 seconds
  2  wrong arguments, a wrong file, or the card refuses the file: the rules before stay in force
  3  it needs root";

/// Arguments of `srd card apply`.
#[derive(Args, Clone, Debug)]
#[command(after_help = APPLY)]
pub(crate) struct ApplyArgs {
    /// The VPC's file (docs/vpc.md).
    file: PathBuf,
    /// Apply a file without instances, which ends all instances of the file before.
    #[arg(long)]
    remove_all: bool,
    #[command(flatten)]
    socket: SocketArg,
    #[command(flatten)]
    json: JsonOutput,
}

pub(super) fn status(args: &StatusArgs) -> Result<u8> {
    args.json.check()?;
    let mut status = Client::connect(&args.socket.path()?)?.status()?;
    let processor = processor_time(&status);
    if let Some(name) = &args.instance {
        if !status.instances.iter().any(|instance| instance.name == *name) {
            return usage(no_instance(name, &status.instances));
        }
        status.instances.retain(|instance| instance.name == *name);
    }
    args.json.write(&status)?;
    if args.json.owns_stdout() {
        return Ok(0);
    }
    let internet = if status.internet { "with" } else { "without" };
    say(format!("host {}, rates 1/{}, {internet} internet", status.host, status.scale))?;
    say(processor)?;
    if let Some(stale_s) = status.stale_s {
        say(format!(
            "STALE: the card has written no figures for {stale_s:.1} s. It may wait for a program \
             that makes or removes a device, or for a processor: look at its log"
        ))?;
    }
    if let Some(why) = &status.internet_gone {
        say(format!("the device of the internet's side: {why}"))?;
    }
    for warning in &status.warnings {
        say(format!("WARNING: {warning}"))?;
    }
    if status.rules_restored > 0 {
        say(format!(
            "packet rules: put back {} times, since another program had removed or changed them \
             (`nft flush ruleset`, a reload of a firewall): let it replace its own tables only",
            status.rules_restored
        ))?;
    }
    let of = &status.tables;
    say(format!(
        "tables: {} interfaces here, {} addresses in groups, {} answers, about {} bytes",
        of.interfaces, of.members, of.answers, of.bytes
    ))?;
    say(format!(
        "questions: {} asked, {} answered, {} refused, {} not asked",
        of.asked, of.answered, of.refused, of.not_asked
    ))?;
    status.hosts.iter().try_for_each(show_host)?;
    for instance in &status.instances {
        say("")?;
        say(title(instance, status.workers))?;
        show(instance, status.scale)?;
    }
    if !status.drops.is_empty() {
        say("\ndropped, of no interface")?;
        for (cause, packets) in &status.drops {
            say(format!("  {cause:<42} {packets}"))?;
        }
    }
    Ok(0)
}

/// Returns the error for a name that none of the instances of this host has.
fn no_instance(name: &str, instances: &[Instance]) -> String {
    let all: Vec<&str> = instances.iter().map(|instance| instance.name.as_str()).collect();
    let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    format!("there is no instance `{name}` on this host: there are {all}")
}

/// Smallest number of packets for which their processor time is shown. After fewer packets, it is
/// mostly the time of other work, such as the start.
const PACKETS_MIN: u64 = 10_000;

/// Describes the processor time of the card, and its part for each packet of all instances.
fn processor_time(status: &Status) -> String {
    let interfaces = status.instances.iter().flat_map(|of| &of.interfaces);
    let both = |of: &Interface| of.counter("tx_packets") + of.counter("rx_packets");
    let packets: u64 = interfaces.map(both).sum();
    let each = match packets {
        0..PACKETS_MIN => String::new(),
        packets => format!(", {:.1} us for each packet", status.cpu_s * 1e6 / packets as f64),
    };
    let (cpu_s, uptime_s) = (status.cpu_s, status.uptime_s);
    format!("processor time of the card: {cpu_s:.1} s in {uptime_s:.0} s{each}")
}

fn show_host(of: &PeerHost) -> Result<()> {
    let heard = of.heard_s.map_or_else(
        || String::from("never heard"),
        |heard_s| format!("last heard {heard_s:.1} s ago"),
    );
    let state = if of.up { "up" } else { "down" };
    say(format!(
        "host {} at {}: {state}, sent {} frames ({} by SRD), received {} ({} by SRD), {heard}",
        of.name,
        of.address,
        of.sent_frames,
        of.sent_by_srd_frames,
        of.received_frames,
        of.received_by_srd_frames
    ))?;
    if let Some(problem) = &of.problem {
        say(format!("  {problem}"))?;
    }
    if of.silent {
        say(format!(
            "  SILENT: no answer for {:.1} s. Does its card run, with this host among its peers \
             and the right keys on both sides? Do packets of UDP to that address and port pass?",
            of.down_s.unwrap_or_default()
        ))?;
    }
    Ok(())
}

/// Returns the line that names an instance. If there are several workers, it has the number of the
/// worker of the instance.
fn title(instance: &Instance, workers: u8) -> String {
    let Instance { name, id, instance_type, namespace, worker, .. } = instance;
    let place = namespace.as_ref().map_or_else(String::new, |name| format!(", namespace {name}"));
    let worker = if workers > 1 { format!(", worker {worker}") } else { String::new() };
    format!("{name} ({id}), {instance_type}{place}{worker}")
}

fn show(instance: &Instance, scale: u32) -> Result<()> {
    let [peak, baseline] = instance.bandwidth_bps.map(report::rate);
    let pps = instance.packets_per_second;
    say(format!("  bandwidth {peak}, baseline {baseline}; {pps} packets/s"))?;
    let kind = InstanceType::find(&instance.instance_type).ok();
    if let Some(generation) = kind.and_then(|kind| kind.generation()) {
        say(format!("  {generation}"))?;
    }
    if let Some(credits) = report::credits(instance) {
        say(format!("  {credits}"))?;
    }
    let (tracked, untracked) = (instance.tracked, instance.untracked);
    say(format!("  connections tracked {tracked}, flows remembered untracked {untracked}"))?;
    for interface in &instance.interfaces {
        let addresses = interface.addresses.join(" ");
        say(format!("  {} {} ({})  {addresses}", interface.device, interface.name, interface.id))?;
        if let Some(VhostUser { path, connected, running, pairs }) = &interface.vhost_user {
            let state = match (connected, running) {
                (false, _) => String::from("no front end is connected"),
                (true, false) => {
                    String::from("a front end is connected, its driver takes no frames yet")
                }
                (true, true) => format!("a front end is connected, pairs of rings: {pairs}"),
            };
            let mac = &interface.mac;
            say(format!("    vhost-user at {path}, hardware address {mac}: {state}"))?;
        }
        if let Some(why) = &interface.gone {
            say(format!("    the device {}: {why}", interface.device))?;
        }
        let packets = |way: &str| interface.counter(&format!("{way}_packets"));
        let judged = interface.counter("judged_packets");
        say(format!(
            "    sent {}, received {}, judged by the rules {judged}",
            packets("tx"),
            packets("rx")
        ))?;
        for (cause, packets) in &interface.drops {
            say(format!("    dropped {cause:<42} {packets}"))?;
        }
    }
    for finding in report::findings(instance, scale) {
        say(format!("  {finding}"))?;
    }
    Ok(())
}

pub(super) fn stats(args: &StatsArgs) -> Result<u8> {
    args.json.check()?;
    let status = Client::connect(&args.socket.path()?)?.status()?;
    let instance = status.instances.iter().find(|instance| instance.name == args.instance);
    let Some(instance) = instance else {
        return usage(no_instance(&args.instance, &status.instances));
    };
    let mut all = instance.interfaces.iter();
    let found = match &args.device {
        Some(device) => all.find(|interface| interface.device == *device),
        None => all.next(),
    };
    let Some(interface) = found else {
        let all: Vec<_> = instance.interfaces.iter().map(|of| of.device.as_str()).collect();
        let (instance, all) = (&args.instance, all.join(", "));
        return usage(format!("the instance `{instance}` has no such device; it has {all}"));
    };
    args.json
        .write(&interface.counters.iter().cloned().collect::<std::collections::BTreeMap<_, _>>())?;
    if !args.json.owns_stdout() {
        say("NIC statistics:")?;
        for (name, value) in &interface.counters {
            say(format!("     {name}: {value}"))?;
        }
    }
    Ok(0)
}

pub(super) fn flows(args: &FlowsArgs) -> Result<u8> {
    args.json.check()?;
    let mut client = Client::connect(&args.socket.path()?)?;
    let request = Request::Flows { instance: args.instance.clone(), most: args.most };
    let Answer::Flows { flows } = client.ask(&request).map_err(super::or_usage)? else {
        bail!("the card answers something else");
    };
    args.json.write(&flows)?;
    if args.json.owns_stdout() {
        return Ok(0);
    }
    say(format!(
        "{:<6} {:<6} {:<24}    {:<24} {:<12} {:<20} {:<20} rides SRD",
        "device", "proto", "local", "remote", "connection", "sent", "received"
    ))?;
    for flow in &flows {
        let arrow = if flow.local_first { "->" } else { "<-" };
        let connection = flow.connection.as_deref().unwrap_or("untracked");
        let rides = match (flow.rides_srd, &flow.plainly) {
            (Some(true), _) => String::from("yes"),
            (Some(false), Some(why)) => format!("no: {why}"),
            (Some(false), None) => String::from("no"),
            (None, _) => String::from("-"),
        };
        say(format!(
            "{:<6} {:<6} {:<24} {arrow} {:<24} {connection:<12} {:<20} {:<20} {rides}",
            flow.device, flow.protocol, flow.local, flow.remote, flow.sent, flow.received
        ))?;
    }
    Ok(0)
}

pub(super) fn apply(args: &ApplyArgs) -> Result<u8> {
    args.json.check()?;
    // The card reads the file itself. This command reads it first, so that a missing or an invalid
    // file is a usage error with a remedy.
    if let Err(error) = srd_vpc_file::read(&args.file) {
        return usage(error.to_string());
    }
    let file = match std::fs::canonicalize(&args.file) {
        Ok(file) => file,
        Err(error) => return usage(format!("cannot read {}: {error}", args.file.display())),
    };
    let mut client = Client::connect(&args.socket.path()?)?;
    let request = Request::Apply { file, removes_all: args.remove_all };
    let Answer::Applied { microseconds, removed, .. } =
        client.ask(&request).map_err(super::or_usage)?
    else {
        bail!("the card answers something else");
    };
    let (warnings, unfinished_s) = client.repaired()?;
    args.json.write(&serde_json::json!({
        "microseconds": microseconds, "removed": removed, "warnings": warnings
    }))?;
    args.json.say(format!(
        "applied in {:.1} ms: no packet is judged by the old rules any more",
        f64::from(u32::try_from(microseconds).unwrap_or(u32::MAX)) / 1000.0
    ))?;
    if !removed.is_empty() {
        args.json.say(format!("removed: {}", removed.join(", ")))?;
    }
    for warning in warnings {
        tell!("srd: warning: {warning}");
    }
    match unfinished_s {
        None => Ok(0),
        Some(seconds) => bail!(not_back(seconds)),
    }
}

/// Returns the error for instances that were not there again after a time.
fn not_back(seconds: u64) -> String {
    format!(
        "the rules are in force, but what other programs have changed of instances is still being \
         restored after {seconds} s: `srd card status` lists it as WARNING until all is there; the \
         log of the card has the reason"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error was only that of the operating system.
    #[test]
    fn regression_a_missing_file_to_apply_is_an_error_with_a_remedy() {
        let args = ApplyArgs {
            file: PathBuf::from("/no/such/cloud.toml"),
            remove_all: false,
            socket: SocketArg { socket: None },
            json: JsonOutput { json: None },
        };
        let error = apply(&args).unwrap_err().to_string();
        assert!(error.contains("/no/such/cloud.toml") && error.contains("remedy: "), "{error}");
    }

    #[test]
    fn an_instance_has_its_worker_if_there_are_several_and_an_unknown_one_is_refused() {
        let instance = |worker: serde_json::Value| -> Instance {
            let mut text = serde_json::json!({
                "name": "web", "id": "i-1", "instance_type": "c7i.large", "namespace": null,
                "interfaces": [], "tracked": 0, "untracked": 0, "credits_bits": [0, 0],
                "bandwidth_bps": [0, 0], "packets_per_second": 0
            });
            if !worker.is_null() {
                text["worker"] = worker;
            }
            serde_json::from_value(text).unwrap()
        };
        let of_second = instance(1.into());
        assert_eq!(title(&of_second, 2), "web (i-1), c7i.large, worker 1");
        assert_eq!(title(&of_second, 1), "web (i-1), c7i.large");
        // A card of an earlier version.
        assert_eq!(title(&instance(serde_json::Value::Null), 0), "web (i-1), c7i.large");
        let said = no_instance("app", &[of_second]);
        assert_eq!(said, "there is no instance `app` on this host: there are web");
        assert!(no_instance("app", &[]).ends_with("there are none"));
    }
}
