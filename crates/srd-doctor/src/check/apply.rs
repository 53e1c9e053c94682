//! `--fix`: takes the steps of the fixes, and says what lasts.

use super::finding::{Finding, Step};
use super::system::System;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;

/// Where kernel settings are kept over a restart.
pub(super) const SYSCTL_FILE: &str = "etc/sysctl.d/90-srd.conf";

/// What became of one fix.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "result", content = "reason")]
pub(super) enum Effect {
    /// It was done.
    Done,
    /// It was tried, and this is why it failed.
    Failed(String),
    /// It is left to a person, for this reason.
    ByHand(String),
}

/// One fix.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Applied {
    pub(super) number: u8,
    pub(super) name: String,
    pub(super) command: String,
    #[serde(flatten)]
    pub(super) effect: Effect,
    /// How it is made to last, beyond kernel settings.
    pub(super) lasting: Option<String>,
    /// Kernel settings that were changed: what they are, and what they were.
    #[serde(skip)]
    pub(super) settings: Vec<(String, String, Option<String>)>,
    /// Whether something else was done, too, which a unit does again at boot.
    #[serde(skip)]
    pub(super) by_unit: bool,
}

/// Applies what can be applied, in the order of the findings: where two want the same setting, the
/// later one wants more.
pub(super) fn fixes(system: &System, findings: &[Finding]) -> Vec<Applied> {
    let mut applied = Vec::new();
    for finding in findings {
        let Some(fix) = finding.fix() else { continue };
        let setting = |step: &Step| match step {
            Step::Sysctl { key, value } => Some((key.clone(), value.clone(), system.sysctl(key))),
            Step::Write { .. } | Step::Run(_) => None,
        };
        let settings: Vec<_> = fix.steps.iter().filter_map(setting).collect();
        let effect = match fix.by_hand {
            Some(reason) => Effect::ByHand(reason.to_owned()),
            // An image has no kernel to be told: files are all that is written.
            None if system.is_image() => Effect::Done,
            None => match take(system, &fix.steps) {
                Ok(()) => Effect::Done,
                Err(error) => Effect::Failed(format!("{error:#}")),
            },
        };
        let by_unit = fix.steps.len() > settings.len();
        let settings = if effect == Effect::Done { settings } else { Vec::new() };
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

/// Takes all steps, also after one that failed; says why the first failed.
fn take(system: &System, steps: &[Step]) -> Result<()> {
    let results: Vec<Result<()>> = steps.iter().map(|step| step.take(system)).collect();
    results.into_iter().collect()
}

/// How to keep what was done beyond the next restart: a line per line.
pub(super) fn how_to_keep(applied: &[Applied]) -> Vec<String> {
    let done = || applied.iter().filter(|m| m.effect == Effect::Done);
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
