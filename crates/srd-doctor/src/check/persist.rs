//! Files that `--persist` writes so that fixes hold after a restart, and that `--unpersist`
//! restores or removes.
//!
//! Kernel settings are written to a separate file in `/etc/sysctl.d`. All other settings (rings,
//! idle states, interrupts) are set again at boot by the unit `srd-check`, which runs `srd check
//! --fix` for these checks. A list has the written files with their former contents; `--unpersist`
//! uses only this list. Lines of other programs in the file in `/etc/sysctl.d` stay. All texts are
//! on the disk before the first file is renamed, and the list is the first. So a full disk leaves
//! no half-written file, and after an interruption the changes can be undone.

use super::Options;
use super::apply::{Applied, SYSCTL_FILE};
use super::files::Batch;
use super::finding::Subject;
use super::noted::Noted;
use super::system::System;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use srd_trust::place::is_roots_alone;
use std::collections::BTreeMap;

/// File with the arguments of the unit.
const ARGS_FILE: &str = "etc/srd/check.env";
/// List of written files, with their former contents.
const LIST_FILE: &str = "etc/srd/check-persisted.json";
const UNIT: &str = "srd-check.service";
const UNIT_FILE: &str = "etc/systemd/system/srd-check.service";
const UNIT_LINK: &str = "etc/systemd/system/multi-user.target.wants/srd-check.service";
/// Paths of the unit in packages.
const PACKAGED: [&str; 2] =
    ["usr/lib/systemd/system/srd-check.service", "lib/systemd/system/srd-check.service"];
const UNIT_TEXT: &str = include_str!("../../../../packaging/srd-check.service");
const HEADER: &str = "# Written by `srd check --persist`; `srd check --unpersist` takes it back.\n";

/// A file that `--persist` wrote.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Written {
    /// Path of the file below the root.
    file: String,
    /// Former content; `None` if the file did not exist.
    before: Option<String>,
}

/// A kernel setting that was changed: values before and after the change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Changed {
    before: String,
    after: String,
}

/// Everything that `--persist` has written since the last `--unpersist`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct List {
    files: Vec<Written>,
    settings: BTreeMap<String, Changed>,
    /// Numbers of the checks that the unit fixes.
    checks: Vec<u8>,
}

/// Files that `--persist` will write.
#[derive(Default)]
struct Plan {
    list: List,
    texts: Vec<(&'static str, String)>,
    /// Target of a new link that starts the unit at boot; `None` if the link exists or is not
    /// needed.
    link: Option<&'static str>,
    starts: bool,
    /// Further remarks for the user.
    notes: Vec<String>,
}

/// Writes to files the fixes of this run (`applied`) and of earlier runs (`noted`). Returns a line
/// for each written file.
pub(super) fn persist(
    system: &System,
    options: &Options,
    subject: &Subject,
    applied: &[Applied],
    noted: &Noted,
) -> Result<Vec<String>> {
    let plan = plan(system, options, subject, applied, noted)?;
    if plan.texts.is_empty() && !plan.starts {
        return Ok(Vec::new());
    }
    let list = serde_json::to_string_pretty(&plan.list).context("a list")?;
    let mut batch = Batch::default();
    system.stage(&mut batch, LIST_FILE, &(list + "\n"))?;
    for (file, text) in &plan.texts {
        system.stage(&mut batch, file, text)?;
    }
    batch.commit().context("files could not be given their names")?;
    if let Some(target) = plan.link {
        system.link(&format!("/{target}"), UNIT_LINK)?;
    }
    let wrote = plan.texts.iter().map(|(file, _)| format!("wrote {}", system.shown(file)));
    let starts = plan.starts.then(|| format!("{UNIT} starts at boot"));
    Ok(wrote.chain(starts).chain(plan.notes).collect())
}

fn plan(
    system: &System,
    options: &Options,
    subject: &Subject,
    applied: &[Applied],
    noted: &Noted,
) -> Result<Plan> {
    let mut plan = Plan { list: known(system)?.unwrap_or_default(), ..Plan::default() };
    let done = applied.iter().filter(|fix| fix.effect.is_made());
    let mut has_settings = false;
    let earlier = noted.values().flat_map(|fixed| &fixed.settings);
    for (key, value, before) in earlier.chain(done.clone().flat_map(|fix| &fix.settings)) {
        let before = before.clone().unwrap_or_default();
        let fresh = Changed { before, after: value.clone() };
        plan.list.settings.entry(key.clone()).or_insert(fresh).after.clone_from(value);
        has_settings = true;
    }
    let earlier = noted.iter().filter(|(_, fixed)| fixed.by_unit).map(|(number, _)| *number);
    let now = done.filter(|fix| fix.by_unit).map(|fix| fix.number);
    let checks: Vec<u8> = earlier.chain(now).collect();
    if !noted.is_empty() {
        let numbers: Vec<String> = noted.keys().map(ToString::to_string).collect();
        let numbers = numbers.join(", ");
        plan.notes.push(format!("what an earlier --fix has set is among it: checks {numbers}"));
    }
    let by_unit = !checks.is_empty();
    plan.list.checks.extend(checks);
    plan.list.checks.sort_unstable();
    plan.list.checks.dedup();
    if has_settings {
        let settings = plan.list.settings.iter();
        let text: String =
            settings.map(|(key, changed)| format!("{key} = {}\n", changed.after)).collect();
        let there = system.text(SYSCTL_FILE)?.unwrap_or_default();
        let others = of_others(&there, &plan.list).map(|line| format!("{line}\n"));
        let whole = others.collect::<String>() + HEADER + &text;
        plan.write(system, SYSCTL_FILE, whole)?;
    }
    // The unit is written even if it exists already, because an interrupted run may have left it
    // incomplete.
    if by_unit || (system.is_image() && system.program().is_some()) {
        let arguments = arguments(system, options, subject, &plan.list.checks)?;
        let before = system.text(ARGS_FILE)?.unwrap_or_default();
        let other = interface_of(&before).filter(|name| *name != subject.interface);
        if let Some(other) = other.filter(|_| !system.is_image()) {
            let note =
                format!("{UNIT} sets {} from now on, and {other} no longer", subject.interface);
            plan.notes.push(note);
        }
        plan.write(system, ARGS_FILE, format!("{HEADER}ARGS={arguments}\n"))?;
        if !PACKAGED.iter().any(|file| system.exists(file)) {
            let text = UNIT_TEXT.replace("/usr/bin/srd", &program(system)?);
            plan.write(system, UNIT_FILE, text)?;
        }
        plan.enable(system);
    }
    Ok(plan)
}

impl Plan {
    /// Plans to write `text` to a file. If it is the first write to this file, the list stores the
    /// file's former content.
    fn write(&mut self, system: &System, file: &'static str, text: String) -> Result<()> {
        if !self.list.files.iter().any(|written| written.file == file) {
            let before = system.text(file)?;
            self.list.files.push(Written { file: file.to_owned(), before });
        }
        self.texts.push((file, text));
        Ok(())
    }

    /// Plans the link that starts the unit `srd-check` at boot.
    fn enable(&mut self, system: &System) {
        self.starts = true;
        if !system.is_link(UNIT_LINK) {
            let target = PACKAGED.into_iter().find(|file| system.exists(file));
            self.link = Some(target.unwrap_or(UNIT_FILE));
            if !self.list.files.iter().any(|written| written.file == UNIT_LINK) {
                self.list.files.push(Written { file: UNIT_LINK.to_owned(), before: None });
            }
        }
    }
}

/// Returns the path of the program that the unit runs: of this program or, for an image, of the
/// program in the image.
fn program(system: &System) -> Result<String> {
    if system.is_image() {
        return Ok(format!("/{}", system.program().unwrap_or("usr/bin/srd")));
    }
    let path = system.own_program()?;
    let shown = path.display().to_string();
    if !shown.chars().all(is_plain) || !is_roots_alone(&path) {
        bail!(
            "the unit would run {shown} as root at each boot, and others than root may replace \
             it: install the package, or copy the program to /usr/local/bin and run it there"
        );
    }
    Ok(shown)
}

/// Whether a character has no special meaning for systemd.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "/-_.+@".contains(c)
}

/// Returns the interface that the arguments of the unit contain; `None` if they contain no
/// interface.
fn interface_of(arguments: &str) -> Option<&str> {
    arguments.split_whitespace().skip_while(|word| *word != "--interface").nth(1)
}

/// Returns those lines of the file of kernel settings that other programs wrote.
fn of_others<'a>(text: &'a str, list: &'a List) -> impl Iterator<Item = &'a str> {
    let is_ours = |line: &&str| {
        let name = line.split_once('=').map(|(name, _)| name.trim().trim_start_matches('-'));
        let key = name.map(|name| name.replace('/', "."));
        *line == HEADER.trim_end() || key.is_some_and(|key| list.settings.contains_key(&key))
    };
    text.lines().filter(move |line| !is_ours(line))
}

fn arguments(
    system: &System,
    options: &Options,
    subject: &Subject,
    checks: &[u8],
) -> Result<String> {
    let mut words = vec!["--for".to_owned(), subject.purpose.word().to_owned()];
    for (is_on, word) in [
        (options.low_rtt, "--low-rtt"),
        (options.latency, "--latency"),
        (options.transparent, "--transparent"),
    ] {
        words.extend(is_on.then(|| word.to_owned()));
    }
    if !system.is_image() {
        let name = &subject.interface;
        if !name.chars().all(is_plain) {
            bail!("systemd would not take `{name}` for one word: give the interface a plain name");
        }
        let numbers: Vec<String> = checks.iter().map(ToString::to_string).collect();
        let only = ["--interface".to_owned(), subject.interface.clone(), "--only".to_owned()];
        words.extend(only);
        words.push(numbers.join(","));
    }
    Ok(words.join(" "))
}

fn known(system: &System) -> Result<Option<List>> {
    let Some(text) = system.text(LIST_FILE)? else { return Ok(None) };
    let shown = system.shown(LIST_FILE);
    let list: List = serde_json::from_str(&text)
        .with_context(|| format!("{shown} is damaged: look at it, and remove it"))?;
    // The list may have been changed by another program, so only files that this program writes are
    // accepted.
    let is_ours = |file: &str| [SYSCTL_FILE, ARGS_FILE, UNIT_FILE, UNIT_LINK].contains(&file);
    if let Some(other) = list.files.iter().find(|written| !is_ours(&written.file)) {
        bail!("{shown} names /{}, which is not of `srd check`", other.file);
    }
    Ok(Some(list))
}

/// Restores the former contents of all written files, and the former kernel settings. Returns a
/// line for each change.
pub(super) fn unpersist(system: &System) -> Result<Vec<String>> {
    let Some(list) = known(system)? else {
        let shown = system.shown(LIST_FILE);
        bail!("there is no {shown}: `srd check --persist` has written nothing here");
    };
    let mut lines = Vec::new();
    for written in list.files.iter().rev() {
        let shown = system.shown(&written.file);
        let later = if written.file == SYSCTL_FILE { later(system, &list, written)? } else { None };
        match (&written.before, later) {
            (before, Some(later)) => {
                system.put(SYSCTL_FILE, &format!("{}{later}", before.as_deref().unwrap_or("")))?;
                lines.push(format!("{shown} keeps lines that others have added"));
            }
            (Some(text), None) => {
                system.put(&written.file, text)?;
                lines.push(format!("{shown} is as it was"));
            }
            (None, None) => {
                system.remove(&written.file)?;
                lines.push(format!("removed {shown}"));
            }
        }
    }
    if !system.is_image() {
        lines.extend(settings_back(system, &list)?);
    }
    system.remove(LIST_FILE)?;
    Ok(lines)
}

/// Returns the lines that other programs have added to the file of kernel settings since
/// `--persist` first wrote it; `None` if there are no such lines.
fn later(system: &System, list: &List, written: &Written) -> Result<Option<String>> {
    let now = system.text(SYSCTL_FILE)?.unwrap_or_default();
    let before = written.before.as_deref().unwrap_or_default();
    let is_new = |line: &&str| !line.is_empty() && before.lines().all(|known| known != *line);
    let added = of_others(&now, list).filter(is_new);
    let added: String = added.map(|line| format!("{line}\n")).collect();
    let begin = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    Ok((!added.is_empty()).then(|| format!("{begin}{added}")))
}

/// Restores the former values of kernel settings, except those that another program has changed
/// since. Returns a line for each setting.
fn settings_back(system: &System, list: &List) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for (key, Changed { before, after }) in &list.settings {
        let now = system.sysctl(key);
        if system.sysctl_is(key, after) && !before.is_empty() {
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
    Ok(lines)
}
