//! `srd shape`: an interface sends no faster than a rate, and no flow faster than another.
//!
//! ```text
//!   root 5d: htb --> class 5d:10, rate and ceiling --> fq, a most for each flow
//!                                                      or fq_codel, or a short queue
//! ```
//!
//! It runs `tc`. Nothing is kept in files: what stands at the interface says whether it is ours,
//! by its handle. It takes the place of the kernel's default only, so that its removal gives that
//! back.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::failure::{Missing, usage};
use crate::output::{JsonOutput, say};
use crate::units::{self, parse_rate};

const EXAMPLES: &str = "\
EXAMPLES
  sudo srd shape eth0 --rate 10G --flow 1G    # ten flows get 1 Gb/s each instead of what they grab
  sudo srd shape eth0 --rate 10G --dry-run    # the commands of tc, and nothing else
  srd shape eth0                              # what stands there, and what it has dropped
  sudo srd shape eth0 --off                   # as it was before

Only what leaves is shaped: what arrives was sent elsewhere. Before and after: `srd watch`.

EXIT CODES
  0  done
  1  tc or the kernel refused
  2  bad usage, or somebody else's queueing discipline stands there
  3  tc or CAP_NET_ADMIN is missing, or a queueing discipline that is needed";

/// Ours, by their numbers.
const ROOT: &str = "5d:";
const CLASS: &str = "5d:10";
/// What may leave at once, in time at the rate.
const BURST_NS: u64 = 1_000_000;
/// The least bytes of it: a super-packet.
const BURST_BYTES_MIN: u64 = 65_536;
/// How long a packet waits at most in a queue without fairness.
const QUEUE_NS: u64 = 10_000_000;

/// What to do with which interface.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShapeArgs {
    /// The interface.
    #[arg(value_name = "IF")]
    interface: String,
    /// The most that leaves, in bits a second. Without it and --off: show what stands there.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "off")]
    rate: Option<u64>,
    /// The most of one flow (a TCP connection, or UDP between two ports), in bits a second. The
    /// kernel needs the queueing discipline `fq`.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, requires = "rate")]
    flow: Option<u64>,
    /// Take away what this command has set.
    #[arg(long)]
    off: bool,
    /// Print the commands that would run, and run none.
    #[arg(long, conflicts_with = "json")]
    dry_run: bool,
    #[command(flatten)]
    json: JsonOutput,
}

/// A queueing discipline, as `tc -j qdisc show` lists it.
#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Discipline {
    kind: String,
    handle: String,
    #[serde(default)]
    root: bool,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    options: serde_json::Value,
    #[serde(default)]
    drops: u64,
    #[serde(default)]
    packets: u64,
    #[serde(default)]
    bytes: u64,
}

/// What stands at an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Shown {
    interface: String,
    /// Whether this command has set it.
    shaped: bool,
    /// The discipline at the root.
    root: String,
    /// Bits a second of all; null if it is not ours.
    rate_bps: Option<u64>,
    /// Bits a second of one flow; null without a most.
    flow_bps: Option<u64>,
    /// What shares the rate out.
    leaf: Option<String>,
    packets: u64,
    bytes: u64,
    dropped_packets: u64,
}

/// Runs `srd shape`. Returns the exit code.
pub(crate) fn run(args: &ShapeArgs) -> Result<u8> {
    args.json.check()?;
    let interface = args.interface.as_str();
    let there = disciplines(interface)?;
    match (args.rate, args.off) {
        (None, false) => {
            let shown = shown(interface, &there)?;
            args.json.say(words(&shown))?;
            args.json.write(&shown)?;
            return Ok(0);
        }
        (None, true) => off(args, &there)?,
        (Some(rate), _) => set(args, &there, rate)?,
    }
    if args.json.json.is_some() {
        args.json.write(&shown(interface, &disciplines(interface)?)?)?;
    }
    Ok(0)
}

fn set(args: &ShapeArgs, there: &[Discipline], rate: u64) -> Result<()> {
    let interface = &args.interface;
    let root = root_of(there);
    if let Some(other) = root.filter(|root| !is_ours(root) && !is_default(root)) {
        return usage(format!(
            "`{} {}` stands at {interface}, which this command has not set: remove it first (tc \
             qdisc del dev {interface} root), if nobody needs it",
            other.kind, other.handle
        ));
    }
    if args.flow.is_some_and(|flow| flow > rate) {
        return usage("--flow is more than --rate: no flow can be faster than all");
    }
    if args.dry_run {
        return would_run(interface, rate, &leaves(args.flow, rate), there)
            .iter()
            .try_for_each(say);
    }
    let mut refusal = None;
    for leaf in leaves(args.flow, rate) {
        match attempt(interface, rate, &leaf, there) {
            Ok(()) => {
                return args.json.say(format!(
                    "{interface} sends at most {}{}, {}; `srd shape {interface} --off` undoes it",
                    units::rate(rate as f64),
                    args.flow.map_or_else(String::new, |flow| {
                        format!(", one flow at most {}", units::rate(flow as f64))
                    }),
                    leaf.words
                ));
            }
            Err(error) if is_unknown_kind(&error) => refusal = Some((leaf, error)),
            Err(error) => return Err(error),
        }
    }
    let (leaf, _) = refusal.context("no queueing discipline was tried")?;
    Err(Missing(format!(
        "this kernel lacks the queueing discipline `{}`{}: {interface} is as it was",
        leaf.kind,
        if args.flow.is_some() {
            ", which alone holds each flow to a rate (module sch_fq; on most distributions part of \
             the kernel's package). Without --flow the rate of all is shaped"
        } else {
            ""
        }
    ))
    .into())
}

/// The commands as a shell takes them: a leaf that the kernel lacks gives way to the next.
fn would_run(interface: &str, rate: u64, leaves: &[Leaf], there: &[Discipline]) -> Vec<String> {
    let line = |words: &Vec<String>| format!("tc {}", words.join(" "));
    let all = leaves.iter().map(|leaf| commands_now(interface, rate, leaf, there));
    let all: Vec<Vec<Vec<String>>> = all.collect();
    let Some(first) = all.first() else { return Vec::new() };
    let alternatives = |step: usize| {
        let mut lines: Vec<String> = all.iter().map(|commands| line(&commands[step])).collect();
        lines.dedup();
        lines.join(" || ")
    };
    (0..first.len()).map(alternatives).collect()
}

/// The commands at what stands there: what is ours already gets other rates.
fn commands_now(interface: &str, rate: u64, leaf: &Leaf, there: &[Discipline]) -> Vec<Vec<String>> {
    let mut commands = commands(interface, rate, leaf);
    if root_of(there).is_some_and(is_ours) {
        // The root cannot be replaced by its like. What this kernel may lack comes first.
        commands.remove(0);
        commands.reverse();
    }
    commands
}

/// Makes it, or leaves the interface as it was.
fn attempt(interface: &str, rate: u64, leaf: &Leaf, there: &[Discipline]) -> Result<()> {
    let commands = commands_now(interface, rate, leaf, there);
    if root_of(there).is_some_and(is_ours) {
        return commands.iter().try_for_each(|words| tc(words).map(|_| ()));
    }
    for words in commands {
        if let Err(error) = tc(&words) {
            // What was made so far is nothing without the rest.
            let _ = tc(&remove(interface));
            return Err(error);
        }
    }
    Ok(())
}

fn off(args: &ShapeArgs, there: &[Discipline]) -> Result<()> {
    let interface = &args.interface;
    if !root_of(there).is_some_and(is_ours) {
        return args.json.say(format!("{interface} is not shaped: nothing to undo"));
    }
    if args.dry_run {
        return say(format_args!("tc {}", remove(interface).join(" ")));
    }
    tc(&remove(interface))?;
    let root = disciplines(interface)?;
    let kind = root_of(&root).map_or("the kernel's default", |root| root.kind.as_str());
    args.json.say(format!("{interface} is not shaped any more: {kind} stands there again"))
}

fn shown(interface: &str, there: &[Discipline]) -> Result<Shown> {
    let root = root_of(there).context("tc lists no queueing discipline of this interface")?;
    let shaped = is_ours(root);
    let leaf = there.iter().find(|one| one.parent.as_deref() == Some(CLASS));
    let rate_bps = if shaped { Some(class_rate(interface)?) } else { None };
    let flow_bps = leaf.filter(|leaf| leaf.kind == "fq").and_then(|leaf| {
        // tc prints bytes a second.
        leaf.options["maxrate"].as_u64().map(|bytes| bytes * 8)
    });
    Ok(Shown {
        interface: interface.to_owned(),
        shaped,
        root: format!("{} {}", root.kind, root.handle),
        rate_bps,
        flow_bps,
        leaf: leaf.map(|leaf| leaf.kind.clone()),
        packets: root.packets,
        bytes: root.bytes,
        dropped_packets: root.drops,
    })
}

fn words(shown: &Shown) -> String {
    let Shown { interface, root, packets, bytes, dropped_packets, .. } = shown;
    let bytes = units::bytes(*bytes);
    let counts = format!("{packets} packets ({bytes}) sent, {dropped_packets} dropped");
    match (shown.rate_bps, shown.flow_bps, &shown.leaf) {
        (Some(rate), flow, leaf) => format!(
            "{interface} sends at most {}{}, shared out by {}; {counts}",
            units::rate(rate as f64),
            flow.map_or_else(String::new, |flow| {
                format!(", one flow at most {}", units::rate(flow as f64))
            }),
            leaf.as_deref().unwrap_or("nothing")
        ),
        (None, ..) => format!("{interface} is not shaped: {root} stands there; {counts}"),
    }
}

/// A discipline below the class.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Leaf {
    kind: &'static str,
    options: Vec<String>,
    words: &'static str,
}

/// What may share the rate out, the best first. Only `fq` has a most for each flow.
fn leaves(flow: Option<u64>, rate: u64) -> Vec<Leaf> {
    let leaf = |kind, options: &[String], words| Leaf { kind, options: options.to_vec(), words };
    let shared = "flows take turns";
    if let Some(flow) = flow {
        let options = ["maxrate".to_owned(), format!("{flow}bit")];
        return vec![leaf("fq", &options, shared)];
    }
    let limit = bytes_in(rate, QUEUE_NS).max(BURST_BYTES_MIN);
    let short = ["limit".to_owned(), limit.to_string()];
    vec![
        leaf("fq", &[], shared),
        leaf("fq_codel", &[], shared),
        leaf("bfifo", &short, "in one short queue, since this kernel has none that takes turns"),
    ]
}

fn commands(interface: &str, rate: u64, leaf: &Leaf) -> Vec<Vec<String>> {
    let burst = bytes_in(rate, BURST_NS).max(BURST_BYTES_MIN);
    let root = format!("qdisc replace dev {interface} root handle {ROOT} htb default 10");
    // A quantum decides between classes, of which there is one.
    let class = format!(
        "class replace dev {interface} parent {ROOT} classid {CLASS} htb rate {rate}bit ceil \
         {rate}bit burst {burst} cburst {burst} quantum 60000"
    );
    // The kernel gives it a handle, so that another sort can take its place.
    let below = format!("qdisc replace dev {interface} parent {CLASS} {}", leaf.kind);
    let split = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    vec![split(&root), split(&class), [split(&below), leaf.options.clone()].concat()]
}

fn remove(interface: &str) -> Vec<String> {
    ["qdisc", "del", "dev", interface, "root"].map(str::to_owned).to_vec()
}

fn bytes_in(rate_bps: u64, ns: u64) -> u64 {
    u64::try_from(u128::from(rate_bps) * u128::from(ns) / 8_000_000_000).unwrap_or(u64::MAX)
}

fn root_of(there: &[Discipline]) -> Option<&Discipline> {
    there.iter().find(|one| one.root)
}

fn is_ours(root: &Discipline) -> bool {
    root.kind == "htb" && root.handle == ROOT
}

/// The kernel gives its own no number.
fn is_default(root: &Discipline) -> bool {
    root.handle == "0:"
}

fn disciplines(interface: &str) -> Result<Vec<Discipline>> {
    let words = ["-j", "-s", "qdisc", "show", "dev", interface].map(str::to_owned);
    let text = match tc(&words) {
        Ok(text) => text,
        Err(error) if format!("{error:#}").contains("Cannot find device") => {
            return usage(format!("there is no interface `{interface}`: `ip -br link` lists them"));
        }
        Err(error) => return Err(error),
    };
    serde_json::from_str(&text).context("what tc prints")
}

/// The rate of our class, which tc prints for people only.
fn class_rate(interface: &str) -> Result<u64> {
    let text = tc(&["class", "show", "dev", interface].map(str::to_owned))?;
    let rate = text.lines().filter(|line| line.contains(CLASS)).find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "rate");
        bits(words.nth(1)?)
    });
    rate.context("tc lists no class of ours")
}

/// `100Mbit`, `12500Kbit`, `999bit`, `1Tbit`.
fn bits(text: &str) -> Option<u64> {
    let digits = text.strip_suffix("bit")?;
    let (digits, scale) = match digits.as_bytes().last()? {
        b'K' => (&digits[..digits.len() - 1], 1_000),
        b'M' => (&digits[..digits.len() - 1], 1_000_000),
        b'G' => (&digits[..digits.len() - 1], 1_000_000_000),
        b'T' => (&digits[..digits.len() - 1], 1_000_000_000_000),
        _ => (digits, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

fn tc(words: &[impl AsRef<OsStr>]) -> Result<String> {
    let output = match Command::new("tc").args(words).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Missing("`tc` is missing: install iproute2".into()).into());
        }
        Err(error) => return Err(error).context("tc"),
    };
    let Output { status, stdout, stderr } = output;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&stderr).trim().to_owned();
    if said.contains("Operation not permitted") {
        return Err(Missing("only root may change this: run it by sudo".into()).into());
    }
    let words: Vec<_> = words.iter().map(|word| word.as_ref().to_string_lossy()).collect();
    bail!("tc {}: {said}", words.join(" "))
}

fn is_unknown_kind(error: &anyhow::Error) -> bool {
    let text = format!("{error:#}");
    ["qdisc kind is unknown", "Unknown qdisc", "No such file or directory"]
        .iter()
        .any(|said| text.contains(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_talks_recipe_in_its_valid_form() {
        let leaf = &leaves(Some(1_000_000_000), 10_000_000_000)[0];
        let lines: Vec<String> =
            commands("eth0", 10_000_000_000, leaf).iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            lines,
            [
                "qdisc replace dev eth0 root handle 5d: htb default 10",
                "class replace dev eth0 parent 5d: classid 5d:10 htb rate 10000000000bit ceil \
                 10000000000bit burst 1250000 cburst 1250000 quantum 60000",
                "qdisc replace dev eth0 parent 5d:10 fq maxrate 1000000000bit",
            ]
        );
    }

    #[test]
    fn what_would_run_names_the_leaves_that_may_take_its_place() {
        let lines = would_run("eth0", 100_000_000, &leaves(None, 100_000_000), &[]);
        assert_eq!(lines.len(), 3);
        assert!(!lines[0].contains("||") && !lines[1].contains("||"), "{lines:?}");
        let below = "tc qdisc replace dev eth0 parent 5d:10";
        assert_eq!(
            lines[2],
            format!("{below} fq || {below} fq_codel || {below} bfifo limit 125000")
        );
    }

    #[test]
    fn rates_are_read_as_tc_prints_them() {
        let read =
            ["100Mbit", "12500Kbit", "999bit", "10Gbit", "1Tbit", "Mbit", "100", "99999999999Gbit"];
        assert_eq!(
            read.map(bits),
            [
                Some(100_000_000),
                Some(12_500_000),
                Some(999),
                Some(10_000_000_000),
                Some(1_000_000_000_000),
                None,
                None,
                None
            ]
        );
    }

    #[test]
    fn only_the_kernels_default_gives_way() {
        let root = |kind: &str, handle: &str| Discipline {
            kind: kind.into(),
            handle: handle.into(),
            root: true,
            parent: None,
            options: serde_json::Value::Null,
            drops: 0,
            packets: 0,
            bytes: 0,
        };
        assert!(is_default(&root("pfifo_fast", "0:")) && is_default(&root("noqueue", "0:")));
        assert!(is_ours(&root("htb", "5d:")));
        for other in [root("htb", "1:"), root("fq", "8001:"), root("tbf", "5d:")] {
            assert!(!is_ours(&other) && !is_default(&other));
        }
    }
}
