//! `srd check --fix`: executes the steps of the fixes, and reports which fixes still hold after a
//! restart.

use super::finding::{Finding, Step};
use super::system::System;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;

/// File for the kernel settings that have to hold after a restart.
pub(super) const SYSCTL_FILE: &str = "etc/sysctl.d/90-srd.conf";

/// Result of one fix.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "result", content = "reason")]
pub(super) enum Effect {
    /// The fix was applied.
    Done,
    /// The fix was written into a file of the image.
    Written,
    /// The unit `srd-check` in the image will apply the fix at boot.
    AtBoot,
    /// The fix failed, for this reason.
    Failed(String),
    /// The user has to apply the fix, for this reason: `--fix` does not.
    ByHand(String),
}

impl Effect {
    /// Whether the fix is applied, or will be applied at boot.
    pub(super) fn is_made(&self) -> bool {
        matches!(self, Self::Done | Self::Written | Self::AtBoot)
    }
}

/// Reason why an image cannot be prepared for a fix that needs a running system.
const NO_PROGRAM: &str = "the image has neither /usr/bin/srd nor /usr/local/bin/srd, which would \
                          set it at boot: install the package there, and repeat this";

/// A fix with its effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Applied {
    pub(super) number: u8,
    pub(super) name: String,
    pub(super) command: String,
    #[serde(flatten)]
    pub(super) effect: Effect,
    /// Description of how the user makes the fix last. Kernel settings are not part of it.
    pub(super) lasting: Option<String>,
    /// Changed kernel settings: key, new value, and former value.
    #[serde(skip)]
    pub(super) settings: Vec<(String, String, Option<String>)>,
    /// Whether the fix also changed something other than kernel settings, which the unit
    /// `srd-check` has to set again at boot.
    #[serde(skip)]
    pub(super) by_unit: bool,
}

/// Applies the fixes of the findings in order, except those that the user has to apply. The order
/// matters if two fixes change one setting: the later fix then has the larger value. Returns every
/// fix with its effect.
pub(super) fn fixes(system: &System, findings: &[Finding]) -> Vec<Applied> {
    let mut applied = Vec::new();
    for finding in findings {
        let Some(fix) = finding.fix() else { continue };
        let setting = |step: &Step| match step {
            Step::Sysctl { key, value } => Some((key.clone(), value.clone(), system.sysctl(key))),
            Step::Write { .. } | Step::Run(_) => None,
        };
        let settings: Vec<_> = fix.steps.iter().filter_map(setting).collect();
        let by_unit = fix.steps.len() > settings.len();
        let effect = match fix.by_hand {
            Some(reason) => Effect::ByHand(reason.to_owned()),
            // An image has no running kernel: only files are written.
            None if system.is_image() => in_image(system, by_unit),
            None => match take(system, &fix.steps) {
                Ok(()) => Effect::Done,
                Err(error) => Effect::Failed(format!("{error:#}")),
            },
        };
        let settings = if effect.is_made() { settings } else { Vec::new() };
        applied.push(Applied {
            number: finding.number,
            name: finding.name.clone(),
            command: fix.command.clone(),
            effect,
            lasting: fix.lasting.clone(),
            settings,
            by_unit,
        });
    }
    applied
}

/// Returns the effect of a fix in an image. `by_unit` is set if the unit `srd-check` has to apply
/// the fix at boot, because a file of settings is not enough.
fn in_image(system: &System, by_unit: bool) -> Effect {
    match (by_unit, system.program()) {
        (false, _) => Effect::Written,
        (true, Some(_)) => Effect::AtBoot,
        (true, None) => Effect::ByHand(NO_PROGRAM.to_owned()),
    }
}

/// Executes all steps, even if one fails. Returns the error of the first step that failed.
fn take(system: &System, steps: &[Step]) -> Result<()> {
    let results: Vec<Result<()>> = steps.iter().map(|step| step.take(system)).collect();
    results.into_iter().collect()
}

/// Returns instructions with which the user keeps the fixes after a restart, one for each line.
pub(super) fn how_to_keep(applied: &[Applied]) -> Vec<String> {
    let done = || applied.iter().filter(|m| m.effect.is_made());
    let settings: BTreeMap<&String, &String> =
        done().flat_map(|m| &m.settings).map(|(key, value, _)| (key, value)).collect();
    let mut lines = Vec::new();
    if !settings.is_empty() {
        lines.push(format!("in /{SYSCTL_FILE}:"));
        lines.extend(settings.iter().map(|(key, value)| format!("    {key} = {value}")));
    }
    let others = done().filter_map(|m| Some((&m.name, m.lasting.as_ref()?)));
    lines.extend(others.map(|(name, how)| format!("{name}: {how}")));
    lines
}
