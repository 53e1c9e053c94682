//! What `--persist` writes down, so that it holds after a restart, and `--unpersist` takes back.
//!
//! Kernel settings go to a file of their own in `/etc/sysctl.d`. Everything else (rings, idle
//! states, interrupts) is set again at boot by the unit `srd-check`, which runs `srd check --fix`
//! for these checks. A list of what was written, with what was there before, is beside it: taking
//! back goes by that list alone.

use super::Options;
use super::apply::{Applied, Effect, SYSCTL_FILE};
use super::finding::{Purpose, Subject};
use super::system::System;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the unit runs with.
const ARGS_FILE: &str = "etc/srd/check.env";
/// What was written, and what was there before.
const LIST_FILE: &str = "etc/srd/check-persisted.json";
const UNIT: &str = "srd-check.service";
const UNIT_FILE: &str = "etc/systemd/system/srd-check.service";
const UNIT_LINK: &str = "etc/systemd/system/multi-user.target.wants/srd-check.service";
/// Where packages put the unit.
const PACKAGED: [&str; 2] =
    ["usr/lib/systemd/system/srd-check.service", "lib/systemd/system/srd-check.service"];
const UNIT_TEXT: &str = include_str!("../../../../packaging/srd-check.service");
const HEADER: &str = "# Written by `srd check --persist`; `srd check --unpersist` takes it back.\n";

/// A file that was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Written {
    /// Its name below the root.
    file: String,
    /// What it had before; `None` if it was not there.
    before: Option<String>,
}

/// A kernel setting that was changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Changed {
    before: String,
    after: String,
}

/// Everything that was written.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct List {
    files: Vec<Written>,
    settings: BTreeMap<String, Changed>,
    /// Checks that the unit fixes.
    checks: Vec<u8>,
}

/// Writes down what was done. Returns what was written, a line for each.
pub(super) fn persist(
    system: &System,
    options: &Options,
    subject: &Subject,
    applied: &[Applied],
) -> Result<Vec<String>> {
    let mut list = known(system)?.unwrap_or_default();
    let mut lines = Vec::new();
    let done = applied.iter().filter(|fix| fix.effect == Effect::Done);
    let mut has_settings = false;
    for (key, value, before) in done.clone().flat_map(|fix| &fix.settings) {
        let before = before.clone().unwrap_or_default();
        let fresh = Changed { before, after: value.clone() };
        list.settings.entry(key.clone()).or_insert(fresh).after.clone_from(value);
        has_settings = true;
    }
    let checks: Vec<u8> = done.filter(|fix| fix.by_unit).map(|fix| fix.number).collect();
    let is_new = checks.iter().any(|number| !list.checks.contains(number));
    list.checks.extend(checks);
    list.checks.sort_unstable();
    list.checks.dedup();
    if has_settings {
        let settings = list.settings.iter();
        let text: String =
            settings.map(|(key, changed)| format!("{key} = {}\n", changed.after)).collect();
        write(system, &mut list, SYSCTL_FILE, &format!("{HEADER}{text}"), &mut lines)?;
    }
    if is_new || system.is_image() {
        let arguments = arguments(system, options, subject, &list.checks);
        let text = format!("{HEADER}ARGS={arguments}\n");
        write(system, &mut list, ARGS_FILE, &text, &mut lines)?;
        if !PACKAGED.iter().any(|file| system.exists(file)) {
            let text = UNIT_TEXT.replace("/usr/bin/srd", &program(system)?);
            write(system, &mut list, UNIT_FILE, &text, &mut lines)?;
        }
        enable(system, &mut list, &mut lines)?;
    }
    if !lines.is_empty() {
        let text = serde_json::to_string_pretty(&list).context("a list")?;
        system.put(LIST_FILE, &(text + "\n"))?;
    }
    Ok(lines)
}

/// The program that the unit runs: this one, but in an image the one that a package has.
fn program(system: &System) -> Result<String> {
    let this = std::env::current_exe().ok().filter(|_| !system.is_image());
    let Some(path) = this else { return Ok("/usr/bin/srd".to_owned()) };
    let shown = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.+".contains(c);
    if !shown.chars().all(is_plain) || !path.ancestors().all(is_roots_alone) {
        bail!(
            "the unit would run {shown} as root at each boot, and others than root may replace \
             it: install the package, or copy the program to /usr/local/bin and run it there"
        );
    }
    Ok(shown)
}

/// Whether nobody but root may put another file in the place of this one.
fn is_roots_alone(path: &Path) -> bool {
    let others_may_write = 0o022;
    fs::metadata(path).is_ok_and(|file| file.uid() == 0 && file.mode() & others_may_write == 0)
}

fn arguments(system: &System, options: &Options, subject: &Subject, checks: &[u8]) -> String {
    let purpose = match subject.purpose {
        Purpose::Ena => "ena",
        Purpose::Daemon => "daemon",
    };
    let mut words = vec!["--for".to_owned(), purpose.to_owned()];
    for (is_on, word) in [
        (options.low_rtt, "--low-rtt"),
        (options.latency, "--latency"),
        (options.transparent, "--transparent"),
    ] {
        words.extend(is_on.then(|| word.to_owned()));
    }
    if !system.is_image() {
        let numbers: Vec<String> = checks.iter().map(ToString::to_string).collect();
        let only = ["--interface".to_owned(), subject.interface.clone(), "--only".to_owned()];
        words.extend(only);
        words.push(numbers.join(","));
    }
    words.join(" ")
}

/// Writes a file, and notes what was there before the first time.
fn write(
    system: &System,
    list: &mut List,
    file: &str,
    text: &str,
    lines: &mut Vec<String>,
) -> Result<()> {
    if !list.files.iter().any(|written| written.file == file) {
        let before = system.text(file);
        list.files.push(Written { file: file.to_owned(), before });
    }
    system.put(file, text)?;
    lines.push(format!("wrote /{file}"));
    Ok(())
}

/// Has the unit start at boot.
fn enable(system: &System, list: &mut List, lines: &mut Vec<String>) -> Result<()> {
    if !system.is_link(UNIT_LINK) {
        let target = PACKAGED.iter().find(|file| system.exists(file)).unwrap_or(&UNIT_FILE);
        system.link(&format!("/{target}"), UNIT_LINK)?;
        list.files.push(Written { file: UNIT_LINK.to_owned(), before: None });
    }
    lines.push(format!("{UNIT} starts at boot"));
    Ok(())
}

fn known(system: &System) -> Result<Option<List>> {
    let Some(text) = system.text(LIST_FILE) else { return Ok(None) };
    let list = serde_json::from_str(&text)
        .with_context(|| format!("/{LIST_FILE} is damaged: look at it, and remove it"))?;
    Ok(Some(list))
}

/// Takes back what was written. Returns what was done, a line for each.
pub(super) fn unpersist(system: &System) -> Result<Vec<String>> {
    let Some(list) = known(system)? else {
        bail!("there is no /{LIST_FILE}: `srd check --persist` has written nothing here");
    };
    let mut lines = Vec::new();
    for written in list.files.iter().rev() {
        // Only what it may have written: the list is a file that anybody could have changed.
        if ![SYSCTL_FILE, ARGS_FILE, UNIT_FILE, UNIT_LINK].contains(&written.file.as_str()) {
            bail!("/{LIST_FILE} names /{}, which is not of `srd check`", written.file);
        }
        match &written.before {
            Some(text) => {
                system.put(&written.file, text)?;
                lines.push(format!("/{} is as it was", written.file));
            }
            None => {
                system.remove(&written.file)?;
                lines.push(format!("removed /{}", written.file));
            }
        }
    }
    if !system.is_image() {
        for (key, Changed { before, after }) in &list.settings {
            let now = system.sysctl(key);
            if now.as_deref().is_some_and(|now| same(now, after)) && !before.is_empty() {
                system.set_sysctl(key, before)?;
                lines.push(format!("{key} is {before} again"));
            } else {
                let now = now.unwrap_or_default();
                lines.push(format!("{key} is {now}, which is not of `srd check`: left alone"));
            }
        }
        if !list.checks.is_empty() {
            let numbers: Vec<String> = list.checks.iter().map(ToString::to_string).collect();
            lines.push(format!(
                "what checks {} have set holds until the next restart",
                numbers.join(", ")
            ));
        }
    }
    system.remove(LIST_FILE)?;
    Ok(lines)
}

/// Whether two values are the same to the kernel, which separates by tabs.
fn same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}
