//! The findings of `srd check` as text and as JSON.

use super::Report;
use super::apply::{Applied, Effect, how_to_keep};
use super::facts::Fact;
use super::finding::{Class, Finding, Outcome, Status, Subject, count};
use serde_json::{Value, json};
use std::io::IsTerminal;

/// Largest width, in characters, of the table's column of values.
const FOUND_WIDTH_MAX: usize = 32;

/// Whether text output uses colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paint(pub(super) bool);

impl Paint {
    /// Returns a value that uses colours if standard output is a terminal and `NO_COLOR` is not
    /// set.
    #[must_use]
    pub fn of_terminal() -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self(std::io::stdout().is_terminal() && !plain)
    }

    fn status(self, status: Status) -> String {
        let (word, colour) = match status {
            Status::Ok => ("ok", "32"),
            Status::Warn => ("WARN", "1;33"),
            Status::Error => ("ERROR", "1;31"),
            Status::NotApplicable => ("n/a", "2"),
        };
        let padded = format!("{word:<5}");
        if self.0 { format!("\x1b[{colour}m{padded}\x1b[0m") } else { padded }
    }
}

/// Returns the whole report as text.
pub(super) fn people(report: &Report, paint: Paint) -> String {
    let Report { subject, facts, findings, fixes, persisted, unread } = report;
    let mut applied =
        fixes.as_ref().map(|fixes| applied(fixes, persisted.is_some()) + "\n").unwrap_or_default();
    if let Some(lines) = persisted {
        applied += &written(lines);
    }
    let (mut heading, verdict) = (heading(subject, facts), verdict(findings));
    heading.extend(unread.iter().map(|line| format!("  left out: {line}\n")));
    format!("{applied}{heading}\n{}\n{verdict}", list(findings, paint))
}

/// Returns the heading of the report: the subject of the checks and the facts about it.
fn heading(subject: &Subject, facts: &[Fact]) -> String {
    let near = if subject.low_rtt { ", near peers only" } else { "" };
    let near = if subject.latency { format!("{near}, for low delay") } else { near.to_owned() };
    let name = subject.interface.replace(char::is_control, "\u{fffd}");
    let mut text = format!("{name}, checked for {}{near}\n", subject.purpose);
    let width = facts.iter().map(|fact| fact.name.len()).max().unwrap_or(0);
    for fact in facts {
        text += &format!("  {:<width$}  {}\n", fact.name, fact.value);
    }
    text
}

/// Returns the list of findings as text: a line for each, and further lines for its fix.
pub(crate) fn list(findings: &[Finding], paint: Paint) -> String {
    let name_width = findings.iter().map(|f| f.name.len()).max().unwrap_or(0);
    let fitting = findings.iter().map(found_width).filter(|width| *width <= FOUND_WIDTH_MAX);
    let width = fitting.max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let status = paint.status(finding.status());
        let name = format!("{status}  {:>2}  {:<name_width$}", finding.number, finding.name);
        match &finding.outcome {
            Outcome::NotApplicable(reason) => text += &format!("{name}  {reason}\n"),
            Outcome::Checked { class, status, found, wanted, fix } => {
                let class = class_name(*class);
                let gap = if found_width(finding) > width { "\n         " } else { "" };
                text += &format!("{name}  {class:<11}  {found:<width$}{gap}  wanted: {wanted}\n");
                if *status != Status::Ok {
                    text += &format!("           why: {}\n", finding.why);
                }
                if let Some(fix) = fix {
                    text += &format!("           fix: {}\n", fix.command);
                    if let Some(reason) = fix.by_hand {
                        text += &format!("           by hand: {reason}\n");
                    }
                }
            }
        }
    }
    text
}

fn found_width(finding: &Finding) -> usize {
    match &finding.outcome {
        Outcome::NotApplicable(_) => 0,
        Outcome::Checked { found, .. } => found.chars().count(),
    }
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Required => "required",
        Class::Recommended => "recommended",
    }
}

/// Returns the text about the fixes that `--fix` applied.
fn applied(applied: &[Applied], is_kept: bool) -> String {
    if applied.is_empty() {
        return "nothing to fix\n".to_owned();
    }
    let mut text = String::new();
    for fix in applied {
        let (word, reason) = match &fix.effect {
            Effect::Done => ("done", String::new()),
            Effect::Written => ("written", String::new()),
            Effect::AtBoot => ("at boot", String::new()),
            Effect::Failed(reason) => ("FAILED", format!("\n         {reason}")),
            Effect::ByHand(reason) => ("by hand", format!("\n         {reason}")),
        };
        // The command was not run if a file contains the fix, or a unit applies it.
        let did = match &fix.effect {
            Effect::Written | Effect::AtBoot => String::new(),
            _ => format!(": {}", fix.command),
        };
        text += &format!("{word:<7}  {:>2}  {}{did}{reason}\n", fix.number, fix.name);
    }
    let lines = how_to_keep(applied);
    if !lines.is_empty() && !is_kept {
        text += "\nNone of this survives a restart. To keep it:\n";
        text.extend(lines.iter().map(|line| format!("  {line}\n")));
    }
    text
}

/// Returns the text about the files that `--persist` wrote.
fn written(lines: &[String]) -> String {
    if lines.is_empty() {
        return "nothing was changed, so nothing is written down\n\n".to_owned();
    }
    let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
    format!("so that it holds after a restart (--unpersist takes it back):\n{lines}\n")
}

/// Returns the last line of the report, which counts the findings by status.
pub(crate) fn verdict(findings: &[Finding]) -> String {
    let (errors, warnings) = (count(findings, Status::Error), count(findings, Status::Warn));
    let skipped = count(findings, Status::NotApplicable);
    let checked = findings.len() - skipped;
    if errors + warnings == 0 {
        return format!("{checked} checks, all as wanted ({skipped} not applicable)");
    }
    format!(
        "{checked} checks: {errors} required failed, {warnings} warnings ({skipped} not applicable)"
    )
}

/// Returns the whole report as JSON.
pub(super) fn machine(report: &Report) -> Value {
    let Report { subject, facts, findings, fixes, persisted, unread } = report;
    let facts: serde_json::Map<String, Value> =
        facts.iter().map(|fact| (fact.name.to_owned(), json!(fact.value))).collect();
    let mut value = json!({
        "interface": subject.interface,
        "driver": subject.driver,
        "for": subject.purpose,
        "low_rtt": subject.low_rtt,
        "transparent": subject.transparent,
        "latency": subject.latency,
        "facts": facts,
        "checks": findings.iter().map(check).collect::<Vec<Value>>(),
        "required_failed": count(findings, Status::Error),
        "warnings": count(findings, Status::Warn),
    });
    if !unread.is_empty() {
        value["left_out"] = json!(unread);
    }
    if let Some(fixes) = fixes {
        value["fixes"] = json!(fixes);
        value["to_keep"] = json!(how_to_keep(fixes));
    }
    if let Some(persisted) = persisted {
        value["persisted"] = json!(persisted);
    }
    value
}

pub(crate) fn check(finding: &Finding) -> Value {
    let mut value = json!({
        "number": finding.number,
        "name": finding.name,
        "status": finding.status(),
        "why": finding.why,
    });
    match &finding.outcome {
        Outcome::NotApplicable(reason) => value["reason"] = json!(reason),
        Outcome::Checked { class, found, wanted, fix, .. } => {
            value["class"] = json!(class);
            value["found"] = json!(found);
            value["wanted"] = json!(wanted);
            value["fix"] = fix.as_ref().map_or(Value::Null, |fix| {
                json!({
                    "command": fix.command,
                    "automatic": fix.by_hand.is_none(),
                    "by_hand": fix.by_hand,
                    "lasting": fix.lasting,
                })
            });
        }
    }
    value
}
