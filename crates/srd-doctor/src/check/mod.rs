//! Checks whether this system's settings are suitable for SRD, which sprays packets over paths, and
//! fixes settings that are not.
//!
//! | module | contents |
//! |---|---|
//! | `system` | files and programs, below a root |
//! | `files` | reading that never leaves an image; atomic writing |
//! | `finding` | rules, outcomes, fixes, as data |
//! | `rules` | the list of all rules |
//! | `kernel`, `interface`, `latency`, `spread`, `generation`, `sockets` | the rules |
//! | `version` | versions of drivers |
//! | `facts` | facts for the user that no rule checks |
//! | `apply` | `--fix` |
//! | `noted` | a record of what `--fix` did, for a later `--persist` |
//! | `persist` | `--persist`, `--unpersist` |
//! | `image` | settings in the files of a machine image |
//! | `show` | output as text and as JSON |
//!
//! A check itself never writes; only `--fix`, `--persist` and `--unpersist` do.

mod apply;
mod facts;
mod files;
pub(crate) mod finding;
mod generation;
mod image;
mod interface;
mod kernel;
mod latency;
mod noted;
mod persist;
pub(crate) mod rules;
pub(crate) mod show;
mod sockets;
mod spread;
pub(crate) mod system;
#[cfg(test)]
mod tests;
mod version;

pub use finding::Purpose;
pub use show::Paint;

use anyhow::{Error, Result, bail};
use apply::Applied;
use facts::Fact;
use finding::{Finding, Status, Subject};
use noted::Noted;
use serde_json::Value;
use std::path::PathBuf;
use system::System;

/// The largest number of failed checks that the exit code reports.
const FAILED_MAX: u8 = 250;

/// Options of `srd check`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The interface by which packets leave; `None` for the interface of the default route.
    pub interface: Option<String>,
    /// Component for which the system is checked; `None` derives it from the interface's driver.
    pub purpose: Option<Purpose>,
    /// Whether peers are near. Settings that only long round trips need are then not required.
    pub low_rtt: bool,
    /// Whether the daemon works in transparent mode, with the hosts' own addresses. Settings that
    /// only this mode needs are then checked.
    pub transparent: bool,
    /// Whether low delay matters more than CPU time and power. Settings that only low delay needs
    /// are then checked as well.
    pub latency: bool,
    /// Whether to apply the fixes, and then check again.
    pub fix: bool,
    /// With `fix`: whether to write the fixes to files, so that they hold after a restart.
    pub persist: bool,
    /// Whether the root is a machine image, without a running kernel.
    pub image: bool,
    /// Numbers or names of the checks to make; if empty, all checks are made.
    pub only: Vec<String>,
    /// The directory that contains the system: `/`, the directory of another root file system (with
    /// `/proc`, `/sys` and `/dev` below it), or the root of an image.
    pub root: PathBuf,
}

/// Report of `srd check`: subject, facts, findings, and applied fixes.
pub struct Report {
    subject: Subject,
    facts: Vec<Fact>,
    findings: Vec<Finding>,
    /// The fixes that were applied; `None` unless `fix` is set. If it is set, the findings are
    /// those after the fixes.
    fixes: Option<Vec<Applied>>,
    /// A line for each file that makes the fixes last; `None` unless `persist` is set or an image
    /// was fixed.
    persisted: Option<Vec<String>>,
    /// Files of an image that may contain settings and cannot be read.
    unread: Vec<String>,
}

impl Report {
    /// Returns the report as text.
    #[must_use]
    pub fn people(&self, paint: Paint) -> String {
        show::people(self, paint)
    }

    /// Returns the report as JSON.
    #[must_use]
    pub fn machine(&self) -> Value {
        show::machine(self)
    }

    /// Returns the number of required checks that failed, up to the largest count that an exit code
    /// can represent.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        exit_code(&self.findings)
    }
}

/// Checks the system that the options describe and, if `fix` is set, applies the fixes.
///
/// # Errors
/// A text for the user, if the interface or check does not exist, or a fix was requested without
/// root.
pub fn examine(options: &Options) -> Result<Report> {
    examine_in(options, &system_of(options))
}

/// Undoes the changes that `--persist` made. Returns a line for each change.
///
/// # Errors
/// A text for the user, if nothing was written, the list of written files is damaged, or root is
/// needed.
pub fn take_back(options: &Options) -> Result<Vec<String>> {
    let system = system_of(options);
    if system.is_this_one() && !is_root(&system) {
        bail!("--unpersist needs root: run it with sudo");
    }
    persist::unpersist(&system).map_err(or_sudo)
}

/// Adds advice (use sudo) to an error about a file that this user may not access.
fn or_sudo(error: Error) -> Error {
    let is_denied = |cause: &(dyn std::error::Error + 'static)| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::PermissionDenied)
    };
    if error.chain().any(is_denied) { error.context("run it with sudo") } else { error }
}

fn system_of(options: &Options) -> System {
    if options.image { System::image(&options.root) } else { System::below(&options.root) }
}

fn examine_in(options: &Options, system: &System) -> Result<Report> {
    let rules = rules::select(&options.only).map_err(Error::msg)?;
    let subject = subject(options, system)?;
    if options.fix && system.is_this_one() && !is_root(system) {
        bail!("--fix needs root: run it with sudo, or type the commands that `srd check` prints");
    }
    let mut findings = rules::check(system, &subject, &rules);
    let fixes = options.fix.then(|| apply::fixes(system, &findings));
    let persisted = match &fixes {
        Some(fixes) if system.is_image() => {
            let written = persist::persist(system, options, &subject, fixes, &Noted::new());
            Some(written.map_err(|error| not_kept(system, error))?)
        }
        Some(fixes) if options.persist => {
            let before = noted::of(system, &findings);
            match persist::persist(system, options, &subject, fixes, &before) {
                Ok(written) => {
                    noted::forget(system, &findings);
                    Some(written)
                }
                Err(error) => {
                    noted::add(system, fixes);
                    return Err(not_kept(system, error));
                }
            }
        }
        Some(fixes) => {
            noted::add(system, fixes);
            None
        }
        None => None,
    };
    if fixes.is_some() {
        findings = rules::check(system, &subject, &rules);
    }
    let facts = if system.is_image() { Vec::new() } else { facts::facts(system, &subject) };
    let unread = system.unread();
    Ok(Report { subject, facts, findings, fixes, persisted, unread })
}

/// Adds to an error that the fixes could not be written to files, and so will not last.
fn not_kept(system: &System, error: Error) -> Error {
    let what = if system.is_image() {
        "the image is not fixed"
    } else {
        "what was fixed holds until the next restart only, and could not be written down"
    };
    or_sudo(error).context(what)
}

/// Returns the number of required checks that failed, up to the largest count that an exit code can
/// represent.
pub(crate) fn exit_code(findings: &[Finding]) -> u8 {
    let failed = finding::count(findings, Status::Error);
    u8::try_from(failed).unwrap_or(FAILED_MAX).min(FAILED_MAX)
}

fn subject(options: &Options, system: &System) -> Result<Subject> {
    if !options.root.is_dir() {
        let name = if options.image { "--image" } else { "--root" };
        bail!("{name} {}: no such directory", options.root.display());
    }
    if options.image {
        return of_image(options, system);
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
        latency: options.latency,
    })
}

/// Returns the subject of the checks of an image. An image has no interface yet.
fn of_image(options: &Options, system: &System) -> Result<Subject> {
    let Some(purpose) = options.purpose else {
        bail!("an image has no card to go by: say --for ena or --for daemon");
    };
    if !system.is_directory("etc") {
        bail!("--image {}: no root directory of a system: it has no etc", options.root.display());
    }
    Ok(Subject {
        interface: "image".to_owned(),
        driver: None,
        purpose,
        low_rtt: options.low_rtt,
        transparent: options.transparent,
        latency: options.latency,
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
