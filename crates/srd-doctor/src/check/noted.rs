//! List of the settings that `--fix` has changed since boot and that are not yet persistent, so
//! that a later `--persist` can write them to files. The list is in `/run`, so it is lost at
//! shutdown, as are the settings.

use super::apply::{Applied, Effect};
use super::finding::Finding;
use super::system::System;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const DIRECTORY: &str = "run";
const FILE: &str = "run/srd-check-fixed.json";

/// Effects of the fix of one check.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Fixed {
    /// Changed kernel settings: key, new value, and value before the first change (`None` if it was
    /// unknown).
    pub(super) settings: Vec<(String, String, Option<String>)>,
    /// Whether the fix also changed something other than kernel settings, which the unit
    /// `srd-check` has to set again at boot.
    pub(super) by_unit: bool,
}

/// Effects of fixes; the key is the number of the check.
pub(super) type Noted = BTreeMap<u8, Fixed>;

/// Adds the effects of fixes to the list. An error is ignored if the list cannot be written, so
/// that `--fix` also works on a system with a read-only `/run`. In this case, a later `--persist`
/// writes only the fixes of its own run.
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

/// Returns the listed effects of the fixes of these findings, without settings that have been
/// changed again after the fix.
pub(super) fn of(system: &System, findings: &[Finding]) -> Noted {
    let mut all = read(system);
    all.retain(|number, _| findings.iter().any(|finding| finding.number == *number));
    for fixed in all.values_mut() {
        fixed.settings.retain(|(key, after, _)| system.sysctl_is(key, after));
    }
    all.retain(|_, fixed| fixed.by_unit || !fixed.settings.is_empty());
    all
}

/// Removes the effects of fixes of these checks from the list, because they are persistent now.
pub(super) fn forget(system: &System, findings: &[Finding]) {
    let mut all = read(system);
    all.retain(|number, _| findings.iter().all(|finding| finding.number != *number));
    let _ = write(system, &all);
}

/// Reads the list of effects. A damaged list counts as empty, because the list is optional.
fn read(system: &System) -> Noted {
    let text = system.text(FILE).ok().flatten();
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn write(system: &System, all: &Noted) -> Result<()> {
    if all.is_empty() {
        return system.remove(FILE);
    }
    // If `/run` is missing, as below another root, nothing is created.
    if !system.is_directory(DIRECTORY) {
        return Ok(());
    }
    system.put(FILE, &(serde_json::to_string(all).context("a list")? + "\n"))
}
