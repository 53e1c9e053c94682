//! What `--fix` has set since the system began without writing it down, so that a later `--persist`
//! does. The list is in `/run`, and goes when the system ends, as the settings do.

use super::apply::{Applied, Effect};
use super::finding::Finding;
use super::system::System;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const DIRECTORY: &str = "run";
const FILE: &str = "run/srd-check-fixed.json";

/// What was done for a check.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Fixed {
    /// Kernel settings: what they are, and what they were before the first time.
    pub(super) settings: Vec<(String, String, Option<String>)>,
    /// Whether something else was done, too, which a unit does again at boot.
    pub(super) by_unit: bool,
}

/// By the numbers of checks.
pub(super) type Noted = BTreeMap<u8, Fixed>;

/// Adds what was done. Without the list a later `--persist` writes down what it fixes itself, and
/// says so: a system whose `/run` cannot be written is fixed all the same.
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

/// What was done for these checks, as far as settings are still as they were left.
pub(super) fn of(system: &System, findings: &[Finding]) -> Noted {
    let mut all = read(system);
    all.retain(|number, _| findings.iter().any(|finding| finding.number == *number));
    for fixed in all.values_mut() {
        fixed.settings.retain(|(key, after, _)| system.sysctl_is(key, after));
    }
    all.retain(|_, fixed| fixed.by_unit || !fixed.settings.is_empty());
    all
}

/// What was done for these checks is written down elsewhere now.
pub(super) fn forget(system: &System, findings: &[Finding]) {
    let mut all = read(system);
    all.retain(|number, _| findings.iter().all(|finding| finding.number != *number));
    let _ = write(system, &all);
}

/// A list that is damaged is none: it is no more than a help.
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
