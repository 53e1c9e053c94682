//! Types of a check: the rule, its finding, and the fix.
//!
//! A rule only reads. It returns an outcome, which holds the fix as data: the command for the user,
//! and the steps that `--fix` executes.

use super::system::System;
use anyhow::Result;
use serde::Serialize;
use std::fmt;

/// Component that has to work on the checked system; each requires other settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// ENA Express on an EC2 instance: the card sprays.
    Ena,
    /// `srd up`: the daemon of this project sprays.
    Daemon,
}

impl Purpose {
    /// Returns the value of `--for` that selects this purpose.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ena => "ena",
            Self::Daemon => "daemon",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ena => "ENA Express",
            Self::Daemon => "`srd up`",
        })
    }
}

/// Subject of the checks.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// The interface by which packets leave.
    pub(crate) interface: String,
    /// Driver of the interface, if it has one.
    pub(crate) driver: Option<String>,
    /// Purpose of the checks.
    pub(crate) purpose: Purpose,
    /// Whether peers are near; settings that only long round trips need are then not required.
    pub(crate) low_rtt: bool,
    /// Whether the daemon is in transparent mode: programs reach peers at the hosts' own addresses,
    /// not at addresses of an overlay.
    pub(crate) transparent: bool,
    /// Whether delays matter more than CPU and power.
    pub(crate) latency: bool,
}

impl Subject {
    /// Returns the path, relative to the root, of a file in the interface's sysfs directory.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("sys/class/net/{}/{name}", self.interface)
    }

    /// Returns the absolute path of a file in the interface's sysfs directory, quoted for a shell.
    pub(crate) fn typed_file(&self, name: &str) -> String {
        format!("/sys/class/net/{}/{name}", typed(&self.interface))
    }

    /// Returns the class of a check that is required for ENA Express on a card but only recommended
    /// for the daemon.
    pub(crate) fn required_by_card(&self) -> Class {
        match self.purpose {
            Purpose::Ena => Class::Required,
            Purpose::Daemon => Class::Recommended,
        }
    }
}

/// Importance of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Class {
    /// A failure means that the system does not work, or works badly.
    Required,
    /// A failure means that the system could work better.
    Recommended,
}

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// The value is as recommended.
    Ok,
    /// The system works, but not as well as it could.
    Warn,
    /// A required check that failed.
    Error,
    /// The check does not apply to this system; its outcome contains the reason.
    NotApplicable,
}

/// Quotes a word for a shell, if necessary. Names of interfaces need this because they may contain
/// any characters except white space and slashes.
pub(crate) fn typed(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.+@%:,/=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if !word.contains(char::is_control) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    let escaped = |c: char| match c {
        '\'' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\x{:02x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("$'{}'", word.chars().map(escaped).collect::<String>())
}

/// One step of a fix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Sets a kernel setting.
    Sysctl { key: String, value: String },
    /// Writes a file of sysfs.
    Write { file: String, value: String },
    /// Runs a program with these arguments; the first is the program's name.
    Run(Vec<String>),
}

impl Step {
    /// Executes the step.
    pub(crate) fn take(&self, system: &System) -> Result<()> {
        match self {
            Self::Sysctl { key, value } => system.set_sysctl(key, value),
            Self::Write { file, value } => system.write(file, value),
            Self::Run(argv) => {
                let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
                system.run(&argv).map(drop)
            }
        }
    }
}

/// Fix of a finding: a command for the user, and steps for `--fix`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fix {
    /// Command that applies the fix, for the user.
    pub(crate) command: String,
    /// Steps with which `--fix` applies the fix in place of the command.
    pub(crate) steps: Vec<Step>,
    /// Reason why the user has to apply the fix; `None` if `--fix` can apply it.
    pub(crate) by_hand: Option<&'static str>,
    /// Description of how the user makes the fix last. Kernel settings are not part of it, because
    /// all of them are made to last by one file.
    pub(crate) lasting: Option<String>,
}

impl Fix {
    /// Returns a fix that sets kernel settings, each given as key and value.
    pub(crate) fn sysctls(settings: Vec<(&str, String)>) -> Self {
        let quoted = |(key, value): &(&str, String)| {
            if value.contains(' ') { format!("'{key}={value}'") } else { format!("{key}={value}") }
        };
        let words: Vec<String> = settings.iter().map(quoted).collect();
        let step = |(key, value): (&str, String)| Step::Sysctl { key: key.to_owned(), value };
        Self {
            command: format!("sudo sysctl -w {}", words.join(" ")),
            steps: settings.into_iter().map(step).collect(),
            by_hand: None,
            lasting: None,
        }
    }

    /// Returns a fix that runs a program with arguments.
    pub(crate) fn run(argv: &[&str], lasting: String) -> Self {
        Self {
            command: argv.iter().fold("sudo".to_owned(), |all, word| all + " " + &typed(word)),
            steps: vec![Step::Run(argv.iter().map(ToString::to_string).collect())],
            by_hand: None,
            lasting: Some(lasting),
        }
    }

    /// Returns a fix that the user has to decide on and apply.
    pub(crate) fn by_hand(command: String, why: &'static str) -> Self {
        Self { command, steps: Vec::new(), by_hand: Some(why), lasting: None }
    }
}

/// Outcome of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The rule does not apply to this system, for this reason.
    NotApplicable(String),
    /// The rule was checked.
    Checked { class: Class, status: Status, found: String, wanted: String, fix: Option<Fix> },
}

impl Outcome {
    /// Returns the outcome of a rule that does not apply to this system.
    pub(crate) fn not_applicable(reason: impl Into<String>) -> Self {
        Self::NotApplicable(reason.into())
    }

    /// Returns the outcome of a check whose value is as recommended.
    pub(crate) fn ok(class: Class, found: impl Into<String>, wanted: impl Into<String>) -> Self {
        let (found, wanted) = (found.into(), wanted.into());
        Self::Checked { class, status: Status::Ok, found, wanted, fix: None }
    }

    /// Returns the outcome of a check whose value is not as recommended: an error if the check is
    /// required, and a warning if it is only recommended.
    pub(crate) fn failed(
        class: Class,
        found: impl Into<String>,
        wanted: impl Into<String>,
        fix: Fix,
    ) -> Self {
        let status = match class {
            Class::Required => Status::Error,
            Class::Recommended => Status::Warn,
        };
        Self::Checked { class, status, found: found.into(), wanted: wanted.into(), fix: Some(fix) }
    }

    /// Returns a warning for a value that passes a required check but is not as recommended.
    pub(crate) fn weak(found: impl Into<String>, wanted: impl Into<String>, fix: Fix) -> Self {
        let (found, wanted) = (found.into(), wanted.into());
        let (class, status) = (Class::Required, Status::Warn);
        Self::Checked { class, status, found, wanted, fix: Some(fix) }
    }
}

/// A rule in the list of checks.
pub(crate) struct Rule {
    /// Number of the rule. The numbers 1 to 10 are those of Amazon's
    /// `check-ena-express-settings.sh`.
    pub(crate) number: u8,
    /// Name of the rule.
    pub(crate) name: &'static str,
    /// Purpose of the rule, in a sentence.
    pub(crate) why: &'static str,
    /// Whether the value can be read from files, without a running kernel.
    pub(crate) in_image: bool,
    /// Function that checks the rule.
    pub(crate) check: fn(&System, &Subject) -> Outcome,
}

/// A rule with its outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    pub(crate) number: u8,
    pub(crate) name: String,
    pub(crate) why: &'static str,
    pub(crate) outcome: Outcome,
}

impl Finding {
    /// Returns the status of the outcome.
    pub(crate) fn status(&self) -> Status {
        match &self.outcome {
            Outcome::NotApplicable(_) => Status::NotApplicable,
            Outcome::Checked { status, .. } => *status,
        }
    }

    /// Returns the fix of the finding, if it has one.
    pub(crate) fn fix(&self) -> Option<&Fix> {
        match &self.outcome {
            Outcome::NotApplicable(_) => None,
            Outcome::Checked { fix, .. } => fix.as_ref(),
        }
    }
}

/// Returns the number of findings that have this status.
pub(crate) fn count(findings: &[Finding], status: Status) -> usize {
    findings.iter().filter(|finding| finding.status() == status).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_names_of_interfaces_are_no_commands() {
        let all = [
            ("eth0.7@if3", "eth0.7@if3"),
            ("a;reboot", "'a;reboot'"),
            ("$(id)", "'$(id)'"),
            ("it's", "'it'\\''s'"),
            ("a\u{1b}[31m'b", "$'a\\x1b[31m\\'b'"),
            ("", "''"),
        ];
        for (name, expected) in all {
            assert_eq!(typed(name), expected);
        }
        let fix = Fix::run(&["ethtool", "-L", "a;reboot", "combined", "8"], String::new());
        assert_eq!(fix.command, "sudo ethtool -L 'a;reboot' combined 8");
        assert_eq!(
            fix.steps,
            [Step::Run(["ethtool", "-L", "a;reboot", "combined", "8"].map(str::to_owned).to_vec())]
        );
    }
}
