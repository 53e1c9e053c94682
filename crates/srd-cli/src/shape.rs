//! `srd shape`: limits the sending rate of an interface, and the rate of each of its flows.
//!
//! ```text
//!   root 5d: htb --> class 5d:10, rate and ceiling --> fq, with a maximum for each flow
//!                                                      or fq_codel, or a short queue
//!                                                  --> classes of flows ([`classes`])
//! ```
//!
//! The command runs `tc`, and keeps no state in files: the handle of the root discipline shows
//! whether this command has set it. Only the kernel's default discipline is replaced, so that
//! removing the new discipline restores the default.

mod classes;

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::process::{Command, Output};

use anyhow::{Context, Error, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::failure::{Missing, usage};
use crate::output::{JsonOutput, say};
use crate::units::{self, parse_rate};

const EXAMPLES: &str = "\
EXAMPLES
  sudo srd shape eth0 --rate 10G --flow 1G    # ten flows get 1 Gb/s each instead of what they grab
  sudo srd shape eth0 --rate 10G --dry-run    # the commands of tc, and nothing else
  srd shape eth0                              # how it is shaped, and what was dropped
  sudo srd shape eth0 --off                   # as it was before

Only what leaves is shaped: what arrives was sent elsewhere. Before and after: `srd watch`.

EXIT CODES
  0  done
  1  tc or the kernel refused
  2  bad usage, or the interface has a queueing discipline of another program's
  3  tc or CAP_NET_ADMIN is missing, or a queueing discipline that is needed";

/// Handle of the root discipline that this command sets. [`CLASS`] is the number of its class.
const ROOT: &str = "5d:";
const CLASS: &str = "5d:10";
/// Length of the burst that may leave at once: the time, in nanoseconds, that it takes at the rate.
const BURST_NS: u64 = 1_000_000;
/// Minimum length of this burst in bytes: one super-packet.
const BURST_BYTES_MIN: u64 = 65_536;
/// Longest time, in nanoseconds, that a packet may wait in a queue without fairness; the length of
/// the queue follows from it.
const QUEUE_NS: u64 = 10_000_000;
/// Minimum rate in bits per second: one byte, because the kernel counts in bytes.
const RATE_BPS_MIN: u64 = 8;

/// Arguments of `srd shape`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShapeArgs {
    /// The interface.
    #[arg(value_name = "IF")]
    interface: String,
    /// Maximum rate of all that leaves, in bits a second. Without it and without --off: show the
    /// present shape.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, conflicts_with = "off")]
    rate: Option<u64>,
    /// Maximum rate of one flow (a TCP connection, or UDP between two ports), in bits a second.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, requires = "rate")]
    flow: Option<u64>,
    /// Remove the shape that this command has set.
    #[arg(long)]
    off: bool,
    /// Print the commands, and do not run them.
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

/// Present shape (rate limits) of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Shown {
    interface: String,
    /// Whether this command has limited the rate of the interface.
    shaped: bool,
    /// Whether an earlier run of this command was interrupted, so that only a part of its
    /// disciplines exists.
    begun: bool,
    /// Kind of the queueing discipline at the root.
    root: String,
    /// Rate limit of the interface in bits per second; null if this command has not set the
    /// discipline.
    rate_bps: Option<u64>,
    /// Maximum rate of one flow in bits per second; null if there is no maximum.
    flow_bps: Option<u64>,
    /// Kind of the discipline that shares the rate between flows; null if there is no such
    /// discipline.
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
    if [Some(rate), args.flow].into_iter().flatten().any(|rate| rate < RATE_BPS_MIN) {
        return usage(format!("a rate is at least {RATE_BPS_MIN} bits a second"));
    }
    let leaves = leaves(args.flow, rate);
    if args.dry_run {
        if args.flow.is_some() {
            say("# where the kernel lacks fq: a class of htb for each flow, by a filter")?;
        }
        return would_run(interface, rate, &leaves, there).iter().try_for_each(say);
    }
    let words = match (args.flow, make(interface, rate, &leaves, there)) {
        (_, Ok(leaf)) => leaf.words.to_owned(),
        (Some(flow), Err(error)) if error.is::<Missing>() => {
            match by_classes(interface, rate, flow) {
                Ok(words) => words,
                Err(other) if format!("{other:#}").contains("classifier not found") => {
                    return Err(error);
                }
                Err(other) => return Err(other),
            }
        }
        (_, Err(error)) => return Err(error),
    };
    let flow = args.flow.map_or_else(String::new, |flow| {
        format!(", one flow at most {}", units::rate(flow as f64))
    });
    args.json.say(format!(
        "{interface} sends at most {}{flow}, {}; `srd shape {interface} --off` undoes it",
        units::rate(rate as f64),
        words
    ))
}

/// Limits each flow by classes, if the kernel lacks `fq`. Returns a text for the user.
fn by_classes(interface: &str, rate: u64, flow: u64) -> Result<String> {
    if root_of(&disciplines(interface)?).is_some_and(is_ours) {
        tc(&remove(interface))?;
    }
    classes::make(interface, rate, flow)?;
    let classes = classes::CLASSES;
    Ok(format!("in {classes} classes, since this kernel lacks `fq`: flows seldom meet in one"))
}

/// Sets the rate with the first discipline of `leaves` that the kernel supports. If it fails, the
/// interface has the same disciplines as before.
fn make<'a>(
    interface: &str,
    rate: u64,
    leaves: &'a [Leaf],
    there: &[Discipline],
) -> Result<&'a Leaf> {
    let first = leaves.first().context("no queueing discipline to try")?;
    let Commands { root, class, .. } = commands(interface, rate, first);
    let mut is_new = !root_of(there).is_some_and(is_ours);
    if !is_new && classes::stand_at(interface)? {
        tc(&remove(interface))?;
        is_new = true;
    }
    if is_new && let Err(error) = tc(&root) {
        // Another `srd shape` may have created the root in the meantime, so it must not be removed
        // here.
        if !root_of(&disciplines(interface)?).is_some_and(is_ours) {
            return Err(error);
        }
        is_new = false;
    }
    let is_whole = !is_new && class_rate(interface)?.is_some();
    let undone = |error: Error| {
        // The disciplines that exist so far are useless without the rest, so they are removed.
        if is_new {
            let _ = tc(&remove(interface));
        }
        error
    };
    if !is_whole {
        tc(&class).map_err(undone)?;
    }
    let leaf = attempt(interface, rate, leaves).map_err(undone)?;
    if is_whole {
        // The leaf was set first, because the kernel may not support it. Until this point, no rate
        // was changed.
        tc(&class)?;
    }
    Ok(leaf)
}

/// Sets the first discipline of `leaves` that the kernel supports as the child of the class.
fn attempt<'a>(interface: &str, rate: u64, leaves: &'a [Leaf]) -> Result<&'a Leaf> {
    let mut lacks = "";
    for leaf in leaves {
        match tc(&commands(interface, rate, leaf).leaf) {
            Ok(_) => return Ok(leaf),
            Err(error) if is_unknown_kind(&error) => lacks = leaf.kind,
            Err(error) => return Err(error),
        }
    }
    let only_fq = if leaves.len() == 1 {
        ", which holds each flow to a rate (module sch_fq; on most distributions part of the \
         kernel's package)"
    } else {
        ""
    };
    Err(Missing(format!(
        "this kernel lacks the queueing discipline `{lacks}`{only_fq}: {interface} is as it was"
    ))
    .into())
}

/// Returns the commands that set the rate, in the syntax of a shell. If the kernel does not support
/// a leaf, the shell tries the next leaf. If this command has already set the root, only rates are
/// changed.
fn would_run(interface: &str, rate: u64, leaves: &[Leaf], there: &[Discipline]) -> Vec<String> {
    let all: Vec<Commands> = leaves.iter().map(|leaf| commands(interface, rate, leaf)).collect();
    let Some(Commands { root, class, .. }) = all.first() else { return Vec::new() };
    let line = |words: &[String]| format!("tc {}", words.join(" "));
    let leaf = all.iter().map(|commands| line(&commands.leaf)).collect::<Vec<_>>().join(" || ");
    if root_of(there).is_some_and(is_ours) {
        vec![leaf, line(class)]
    } else {
        vec![line(root), line(class), leaf]
    }
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
    args.json
        .say(format!("{interface} is not shaped any more: its queueing discipline is {kind} again"))
}

fn shown(interface: &str, there: &[Discipline]) -> Result<Shown> {
    let root = root_of(there).context("tc lists no queueing discipline of this interface")?;
    let is_ours = is_ours(root);
    let leaf = there.iter().find(|one| one.parent.as_deref() == Some(CLASS));
    let rate_bps = if is_ours { class_rate(interface)? } else { None };
    let flow_bps = match leaf {
        // tc prints the maximum rate in bytes per second.
        Some(leaf) if leaf.kind == "fq" => leaf.options["maxrate"].as_u64().map(|bytes| bytes * 8),
        None if is_ours => classes::flow_rate(interface)?,
        _ => None,
    };
    let classes = flow_bps.filter(|_| leaf.is_none()).map(|_| "classes".to_owned());
    Ok(Shown {
        interface: interface.to_owned(),
        shaped: rate_bps.is_some(),
        begun: is_ours && rate_bps.is_none(),
        root: format!("{} {}", root.kind, root.handle),
        rate_bps,
        flow_bps,
        leaf: leaf.map(|leaf| leaf.kind.clone()).or(classes),
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
            leaf.as_deref().unwrap_or("the kernel's default queue")
        ),
        (None, ..) if shown.begun => format!(
            "{interface} is not shaped: a command was ended before it was done, and left {root}; \
             --rate does it again, --off takes it away; {counts}"
        ),
        (None, ..) => {
            format!("{interface} is not shaped: its queueing discipline is {root}; {counts}")
        }
    }
}

/// A queueing discipline below the class, which shares the rate between flows.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Leaf {
    kind: &'static str,
    options: Vec<String>,
    words: &'static str,
}

/// Returns the disciplines that may share the rate between flows, the best discipline first. If
/// each flow has a maximum (`flow`), only `fq` supports it.
fn leaves(flow: Option<u64>, rate: u64) -> Vec<Leaf> {
    let leaf = |kind, options: &[String], words| Leaf { kind, options: options.to_vec(), words };
    let shared = "flows take turns";
    if let Some(flow) = flow {
        let options = ["maxrate".to_owned(), format!("{flow}bit")];
        return vec![leaf("fq", &options, shared)];
    }
    let limit = bytes_in(rate, QUEUE_NS).clamp(BURST_BYTES_MIN, u32::MAX.into());
    let short = ["limit".to_owned(), limit.to_string()];
    vec![
        leaf("fq", &[], shared),
        leaf("fq_codel", &[], shared),
        leaf("bfifo", &short, "in one short queue, since this kernel has none that takes turns"),
    ]
}

/// Arguments of the three `tc` commands that set the rate.
struct Commands {
    root: Vec<String>,
    class: Vec<String>,
    leaf: Vec<String>,
}

fn commands(interface: &str, rate: u64, leaf: &Leaf) -> Commands {
    let burst = bytes_in(rate, BURST_NS).max(BURST_BYTES_MIN);
    let root = format!("qdisc replace dev IF root handle {ROOT} htb default 10");
    // The quantum only matters between classes, and there is only one class.
    let class = format!(
        "class replace dev IF parent {ROOT} classid {CLASS} htb rate {rate}bit ceil {rate}bit \
         burst {burst} cburst {burst} quantum 60000"
    );
    // The kernel assigns the handle, so that a leaf of another kind can replace this leaf later.
    let below = format!("qdisc replace dev IF parent {CLASS} {}", leaf.kind);
    Commands {
        root: split(&root, interface),
        class: split(&class, interface),
        leaf: [split(&below, interface), leaf.options.clone()].concat(),
    }
}

/// Splits a command into words. The word `IF` is replaced by the name of the interface, which may
/// contain any characters.
fn split(text: &str, interface: &str) -> Vec<String> {
    let word = |word: &str| if word == "IF" { interface.to_owned() } else { word.to_owned() };
    text.split(' ').map(word).collect()
}

fn remove(interface: &str) -> Vec<String> {
    split("qdisc del dev IF root", interface)
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

/// Whether a root discipline is the kernel's default, whose handle is zero.
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

/// Returns the rate limit in bits per second of the class that this command sets; `None` if the
/// class does not exist.
fn class_rate(interface: &str) -> Result<Option<u64>> {
    class_value(interface, CLASS, "rate")
}

/// Returns the value after the keyword `word` in the line that `tc class show` prints for a class;
/// `None` if the class does not exist. tc prints this line only as text, not as JSON.
fn class_value(interface: &str, class: &str, word: &str) -> Result<Option<u64>> {
    let text = tc(&["class", "show", "dev", interface].map(str::to_owned))?;
    let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(class));
    let Some(line) = line else { return Ok(None) };
    let mut words = line.split_whitespace().skip_while(|other| *other != word);
    words.nth(1).and_then(bits).map(Some).with_context(|| format!("what tc prints: {line}"))
}

/// Parses a rate as `tc` prints it, such as `100Mbit`, `12500Kbit` or `999bit`. Returns bits per
/// second.
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

    fn discipline(kind: &str, handle: &str) -> Discipline {
        Discipline {
            kind: kind.into(),
            handle: handle.into(),
            root: true,
            parent: None,
            options: serde_json::Value::Null,
            drops: 0,
            packets: 0,
            bytes: 0,
        }
    }

    #[test]
    fn the_talks_recipe_in_its_valid_form() {
        let leaf = &leaves(Some(1_000_000_000), 10_000_000_000)[0];
        let leaves = std::slice::from_ref(leaf);
        let lines = |there: &[Discipline]| would_run("eth0", 10_000_000_000, leaves, there);
        let all = lines(&[discipline("noqueue", "0:")]);
        assert_eq!(
            all,
            [
                "tc qdisc replace dev eth0 root handle 5d: htb default 10",
                "tc class replace dev eth0 parent 5d: classid 5d:10 htb rate 10000000000bit ceil \
                 10000000000bit burst 1250000 cburst 1250000 quantum 60000",
                "tc qdisc replace dev eth0 parent 5d:10 fq maxrate 1000000000bit",
            ]
        );
        // An existing root cannot be replaced by another root of the same kind.
        assert_eq!(lines(&[discipline("htb", "5d:")]), [&*all[2], &*all[1]]);
    }

    #[test]
    fn regression_an_interface_is_one_word_whatever_its_name() {
        // The kernel accepts Unicode spaces in names, because they are ordinary characters for it.
        for name in ["eth0\u{2003}x", "IF", "$(id)", "-x"] {
            let leaf = &leaves(None, 1_000_000)[0];
            let Commands { root, class, leaf } = commands(name, 1_000_000, leaf);
            for words in [root, class, leaf, remove(name)] {
                assert_eq!((&*words[2], &*words[3]), ("dev", name));
            }
        }
    }

    #[test]
    fn regression_limits_are_what_tc_takes() {
        let fastest = leaves(None, 10_000_000_000_000);
        let limit: u64 = fastest[2].options[1].parse().unwrap();
        assert_eq!(limit, u64::from(u32::MAX));
        assert_eq!(leaves(None, 8)[2].options[1], "65536");
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
        let root = discipline;
        assert!(is_default(&root("pfifo_fast", "0:")) && is_default(&root("noqueue", "0:")));
        assert!(is_ours(&root("htb", "5d:")));
        for other in [root("htb", "1:"), root("fq", "8001:"), root("tbf", "5d:")] {
            assert!(!is_ours(&other) && !is_default(&other));
        }
    }
}
