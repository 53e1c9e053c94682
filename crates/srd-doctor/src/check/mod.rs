//! Are this system's settings fit for spraying, and what changes those that are not?
//!
//! | module | what |
//! |---|---|
//! | `system` | files and programs, below a root |
//! | `finding` | rules, outcomes, fixes, as data |
//! | `rules` | the list; `kernel` and `interface` look |
//! | `facts` | what the reader may want to know and no rule checks |
//! | `apply` | `--fix` |
//! | `show` | for people and for machines |
//!
//! Looking never writes.

mod apply;
mod facts;
pub(crate) mod finding;
mod interface;
mod kernel;
pub(crate) mod rules;
pub(crate) mod show;
pub(crate) mod system;
#[cfg(test)]
mod tests;

pub use finding::Purpose;
pub use show::Paint;

use anyhow::{Error, Result, bail};
use apply::Applied;
use facts::Fact;
use finding::{Finding, Status, Subject};
use serde_json::Value;
use std::path::PathBuf;
use system::System;

/// The largest count that an exit code can say.
const FAILED_MAX: u8 = 250;

/// What is to be checked.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interface that packets leave by; `None` for that of the default route.
    pub interface: Option<String>,
    /// What the system is checked for; `None` to go by the driver.
    pub purpose: Option<Purpose>,
    /// Peers are near: what only long round trips need is left out.
    pub low_rtt: bool,
    /// The daemon works in transparent mode: what only that needs is checked.
    pub transparent: bool,
    /// Change what can be changed, and check again.
    pub fix: bool,
    /// Only these checks, by number or name; all of them if it is empty.
    pub only: Vec<String>,
    /// The directory below which `/proc`, `/sys` and `/dev` are.
    pub root: PathBuf,
}

/// What was looked at, what came of it, and what was done about it.
pub struct Report {
    subject: Subject,
    facts: Vec<Fact>,
    findings: Vec<Finding>,
    /// With `fix`; the findings are then those after it.
    fixes: Option<Vec<Applied>>,
}

impl Report {
    /// The report as a text.
    #[must_use]
    pub fn people(&self, paint: Paint) -> String {
        show::people(self, paint)
    }

    /// The report for machines.
    #[must_use]
    pub fn machine(&self) -> Value {
        show::machine(self)
    }

    /// How many required checks failed, as far as an exit code can tell.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        exit_code(&self.findings)
    }
}

/// Checks this system.
///
/// # Errors
/// There is no such interface or check, or a fix was asked for without root.
pub fn examine(options: &Options) -> Result<Report> {
    examine_in(options, &System::below(&options.root))
}

fn examine_in(options: &Options, system: &System) -> Result<Report> {
    let rules = rules::select(&options.only).map_err(Error::msg)?;
    let subject = subject(options, system)?;
    if options.fix && system.is_this_one() && !is_root(system) {
        bail!("--fix needs root: run it with sudo, or type the commands that `srd check` prints");
    }
    let mut findings = rules::check(system, &subject, &rules);
    let fixes = options.fix.then(|| apply::fixes(system, &findings));
    if fixes.is_some() {
        findings = rules::check(system, &subject, &rules);
    }
    let facts = facts::facts(system, &subject);
    Ok(Report { subject, facts, findings, fixes })
}

/// How many required checks failed, as far as an exit code can tell.
pub(crate) fn exit_code(findings: &[Finding]) -> u8 {
    let failed = finding::count(findings, Status::Error);
    u8::try_from(failed).unwrap_or(FAILED_MAX).min(FAILED_MAX)
}

fn subject(options: &Options, system: &System) -> Result<Subject> {
    if !options.root.is_dir() {
        bail!("--root {}: no such directory", options.root.display());
    }
    let interface = match &options.interface {
        Some(name) => name.clone(),
        None => match system.default_interface() {
            Some(name) => name,
            None => {
                bail!(
                    "there is no default route: name the interface with --interface ({})",
                    known(system)
                );
            }
        },
    };
    if !system.has_interface(&interface) {
        bail!("no interface `{interface}`: there is {}", known(system));
    }
    let driver = system.link_target(&format!("sys/class/net/{interface}/device/driver"));
    let found = match driver.as_deref() {
        Some("ena") => Purpose::Ena,
        _ => Purpose::Daemon,
    };
    Ok(Subject {
        interface,
        driver,
        purpose: options.purpose.unwrap_or(found),
        low_rtt: options.low_rtt,
        transparent: options.transparent,
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
