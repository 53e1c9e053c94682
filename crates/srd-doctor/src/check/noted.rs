//! Settings that `--fix` has changed since the system began without writing them down, so that a
//! later `--persist` can. The list is in `/run`, and is lost when the system ends, like the
//! settings.

use super::apply::{Applied, Effect};
use super::finding::Finding;
use super::system::System;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const DIRECTORY: &str = "run";
const FILE: &str = "run/srd-check-fixed.json";

/// Effects of the fix of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Fixed {
    /// Kernel settings: what they are, and what they were before the first time.
    pub(super) settings: Vec<(String, String, Option<String>)>,
    /// Whether something else was done, too, which a unit does again at boot.
    pub(super) by_unit: bool,
}

/// By the numbers of checks.
pub(super) type Noted = BTreeMap<u8, Fixed>;

/// Adds the effects of fixes. If the list cannot be written, a later `--persist` writes only its
/// own fixes down, and prints that. So a system whose `/run` cannot be written is fixed
/// nevertheless.
pub(super) fn add(system: &System, applied: &[Applied]) {
    let mut all = read(system);
    for fix in applied.iter().filter(|fix| fix.effect == Effect::Done) {
        let known = all.entry(fix.number).or_default();
        known.by_unit |= fix.by_unit;
        for (key, value, before) in &fix.settings {
            match known.settings.iter_mut().find(|(name, ..)| name == key) {
                Some((_, after, _)) => after.clone_from(value),
                None => known.settings.push((key.clone(), value.clone(), before.clone())),
            }
        }
    }
    let _ = write(system, &all);
}

/// Effects for these checks, as far as the settings are unchanged since.
pub(super) fn of(system: &System, findings: &[Finding]) -> Noted {
    let mut all = read(system);
    all.retain(|number, _| findings.iter().any(|finding| finding.number == *number));
    for fixed in all.values_mut() {
        fixed.settings.retain(|(key, after, _)| system.sysctl_is(key, after));
    }
    all.retain(|_, fixed| fixed.by_unit || !fixed.settings.is_empty());
    all
}

/// Removes the effects for these checks, which are now written down elsewhere.
pub(super) fn forget(system: &System, findings: &[Finding]) {
    let mut all = read(system);
    all.retain(|number, _| findings.iter().all(|finding| finding.number != *number));
    let _ = write(system, &all);
}

/// Reads the list. A damaged list counts as empty, since the list is only a help.
fn read(system: &System) -> Noted {
    let text = system.text(FILE).ok().flatten();
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn write(system: &System, all: &Noted) -> Result<()> {
    if all.is_empty() {
        return system.remove(FILE);
    }
    // Nothing is made up below another root.
    if !system.is_directory(DIRECTORY) {
        return Ok(());
    }
    system.put(FILE, &(serde_json::to_string(all).context("a list")? + "\n"))
}
