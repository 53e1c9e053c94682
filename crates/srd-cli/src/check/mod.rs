//! `srd check`: are this system's settings fit for spraying, and what mends those that are not?
//!
//! | module | what |
//! |---|---|
//! | [`system`] | files and programs, below a root |
//! | [`finding`] | rules, judgements, fixes, as data |
//! | [`rules`] | the list; [`kernel`] and [`interface`] look |
//! | [`facts`] | what is worth knowing and judged by nobody |
//! | [`mend`] | `--fix` |
//! | [`show`] | for people and for machines |
//!
//! Looking never writes. The exit code is a count, as scripts for Amazon's cards expect it, so
//! errors of usage are 255 here and not 2.

mod facts;
pub(crate) mod finding;
mod interface;
mod kernel;
mod mend;
pub(crate) mod rules;
pub(crate) mod show;
pub(crate) mod system;
#[cfg(test)]
mod tests;

use crate::failure::{Missing, Usage, usage};
use crate::output::{JsonOutput, is_broken_pipe};
use anyhow::Result;
use clap::Args;
use facts::Fact;
use finding::{Finding, Purpose, Status, Subject};
use mend::Mended;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use system::System;

/// The largest count that is told by the exit code.
const FAILED_MAX: u8 = 250;
/// Nothing was checked: usage, privilege, a program that failed.
pub(crate) const UNCHECKED: u8 = 255;

const EXIT_CODES: &str = "\
EXIT CODES
  0       every required check is as wanted; there may be warnings
  1..250  so many required checks failed (after --fix: still fail)
  255     nothing was checked: bad usage, no such interface, or --fix without root

EXAMPLES
  srd check
  srd check --interface eth0 --low-rtt
  sudo srd check --fix
  sudo srd check --fix --only tcp-autocorking,rx-ring
  srd check --json | jq '.checks[] | select(.status == \"error\")'";

/// Arguments of `srd check`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct CheckArgs {
    /// The interface that packets leave by [default: that of the default route].
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,
    /// Whom to check for [default: ena where the interface has the driver ena, else daemon].
    #[arg(long = "for", value_name = "WHOM", value_enum)]
    purpose: Option<Purpose>,
    /// Peers are near (one zone): leave out what only long round trips need.
    #[arg(long)]
    low_rtt: bool,
    /// The daemon works in transparent mode: check what only that needs.
    #[arg(long)]
    transparent: bool,
    /// Mend what can be mended, as root, and check again. Says what does not survive a restart.
    #[arg(long)]
    fix: bool,
    /// Only these checks, by number or name.
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    only: Vec<String>,
    /// The result as JSON, to FILE or to standard output, which then carries nothing else.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<OsString>,
    /// Look at /proc, /sys and /dev below this directory, as a container does that has its
    /// host's there. Programs such as ethtool are not run then.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// Runs `srd check`. Returns the exit code.
pub(crate) fn run(args: &CheckArgs) -> Result<u8> {
    match check(args, &System::below(&args.root)) {
        Err(error) if !is_broken_pipe(&error) => {
            eprintln!("srd: {error:#}");
            Ok(UNCHECKED)
        }
        result => result,
    }
}

/// Whether a command line that could not be understood was meant for a command that counts
/// failed checks: then bad usage must not look like two of them.
pub(crate) fn is_meant(mut words: impl Iterator<Item = OsString>) -> bool {
    let is_flag = |word: &OsStr| word.to_string_lossy().starts_with('-');
    words.find(|word| !is_flag(word)).is_some_and(|word| word == "check" || word == "mpi-check")
}

fn check(args: &CheckArgs, system: &System) -> Result<u8> {
    let json = JsonOutput { json: args.json.clone() };
    json.check()?;
    let report = examine(args, system)?;
    json.say(show::people(&report, show::Paint::of_terminal()))?;
    json.write(&show::machine(&report))?;
    Ok(exit_code(&report.findings))
}

/// What was looked at, what came of it, and what was done about it.
struct Report {
    subject: Subject,
    facts: Vec<Fact>,
    findings: Vec<Finding>,
    /// With `--fix`; the findings are then those after it.
    fixes: Option<Vec<Mended>>,
}

fn examine(args: &CheckArgs, system: &System) -> Result<Report> {
    let rules = rules::select(&args.only).map_err(Usage)?;
    let subject = subject(args, system)?;
    if args.fix && system.is_this_one() && !is_root(system) {
        let text = "--fix needs root: run it with sudo, or type the commands that \
                    `srd check` prints";
        return Err(Missing(text.to_owned()).into());
    }
    let mut findings = rules::judge(system, &subject, &rules);
    let fixes = args.fix.then(|| mend::mend(system, &findings));
    if fixes.is_some() {
        findings = rules::judge(system, &subject, &rules);
    }
    let facts = facts::facts(system, &subject);
    Ok(Report { subject, facts, findings, fixes })
}

/// How many required checks failed, as far as an exit code can tell.
pub(crate) fn exit_code(findings: &[Finding]) -> u8 {
    let failed = finding::count(findings, Status::Error);
    u8::try_from(failed).unwrap_or(FAILED_MAX).min(FAILED_MAX)
}

fn subject(args: &CheckArgs, system: &System) -> Result<Subject> {
    if !args.root.is_dir() {
        return usage(format!("--root {}: no such directory", args.root.display()));
    }
    let interface = match &args.interface {
        Some(name) => name.clone(),
        None => match system.default_interface() {
            Some(name) => name,
            None => {
                return usage(format!(
                    "there is no default route: name the interface with --interface ({})",
                    known(system)
                ));
            }
        },
    };
    if !system.has_interface(&interface) {
        return usage(format!("no interface `{interface}`: there is {}", known(system)));
    }
    let driver = system.link_target(&format!("sys/class/net/{interface}/device/driver"));
    let found = match driver.as_deref() {
        Some("ena") => Purpose::Ena,
        _ => Purpose::Daemon,
    };
    Ok(Subject {
        interface,
        driver,
        purpose: args.purpose.unwrap_or(found),
        low_rtt: args.low_rtt,
        transparent: args.transparent,
    })
}

fn known(system: &System) -> String {
    let names = system.entries("sys/class/net");
    let names: Vec<String> = names.into_iter().filter(|name| system.has_interface(name)).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn is_root(system: &System) -> bool {
    let status = system.read("proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}
