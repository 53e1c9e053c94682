//! `srd check`: arguments and exit code. The checks themselves are in `srd_doctor::check`. The exit
//! code is the number of failed checks, as scripts for Amazon's cards expect. So usage errors have
//! the code 255 instead of 2.

use crate::output::{JsonOutput, is_broken_pipe, say, tell, unless_closed};
use anyhow::Result;
use clap::{Args, ValueEnum};
use srd_doctor::check::{self, Options, Paint, Purpose};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Exit code if nothing was checked: a usage error, a missing privilege, or a program that failed.
pub(crate) const UNCHECKED: u8 = 255;

const EXIT_CODES: &str = "\
EXIT CODES
  0       every required check is as wanted; there may be warnings
  1..250  so many required checks failed (after --fix: still fail)
  255     nothing was checked: bad usage, no such interface, or --fix without root

EXAMPLES
  srd check
  srd check --interface eth0 --low-rtt
  sudo srd check --fix
  sudo srd check --fix --only tcp-autocorking,rx-ring
  sudo srd check --latency --fix --persist
  sudo srd check --unpersist
  sudo srd check --image /mnt/image --for ena --fix
  srd check --json | jq '.checks[] | select(.status == \"error\")'";

/// Arguments of `srd check`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct CheckArgs {
    /// The interface that packets leave by [default: the interface of the default route].
    #[arg(short, long, value_name = "IF")]
    interface: Option<String>,
    /// Purpose of the checks [default: ena if the interface has the driver ena, otherwise daemon].
    #[arg(long = "for", value_name = "WHOM", value_enum)]
    purpose: Option<For>,
    /// Peers are near (one zone): skip the checks that only long round trips need.
    #[arg(long)]
    low_rtt: bool,
    /// The daemon works in transparent mode: add the checks that only this mode needs.
    #[arg(long)]
    transparent: bool,
    /// Delays matter more than CPU and power: also check idle states and busy polling, and require
    /// interrupts without delay.
    #[arg(long)]
    latency: bool,
    /// Fix what can be fixed, as root, and check again. Lists the fixes that a restart undoes.
    #[arg(long)]
    fix: bool,
    /// With --fix: make the fixes permanent. Kernel settings are written to /etc/sysctl.d, and a
    /// unit applies all other fixes again at boot.
    #[arg(long, requires = "fix", conflicts_with = "root")]
    persist: bool,
    /// Remove what --persist wrote, and restore the kernel settings that it changed.
    #[arg(long, conflicts_with_all = ["fix", "only", "interface", "root", "json"])]
    unpersist: bool,
    /// Check the files of a machine image below this directory instead of a running system; with
    /// --fix, write them there. Needs --for.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["root", "interface"])]
    image: Option<PathBuf>,
    /// Run only these checks, by number or name.
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    json: JsonOutput,
    /// Read /proc, /sys and /dev below this directory, for example in a container that has those of
    /// its host there. Programs such as ethtool are not run then.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// Purpose of the checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum For {
    /// ENA Express on an EC2 instance: the card sprays.
    Ena,
    /// `srd up`: the daemon of this project sprays.
    Daemon,
}

impl From<For> for Purpose {
    fn from(what: For) -> Purpose {
        match what {
            For::Ena => Purpose::Ena,
            For::Daemon => Purpose::Daemon,
        }
    }
}

impl CheckArgs {
    fn options(&self) -> Options {
        Options {
            interface: self.interface.clone(),
            purpose: self.purpose.map(Purpose::from),
            low_rtt: self.low_rtt,
            transparent: self.transparent,
            latency: self.latency,
            fix: self.fix,
            persist: self.persist,
            image: self.image.is_some(),
            only: self.only.clone(),
            root: self.image.as_ref().unwrap_or(&self.root).clone(),
        }
    }
}

/// Runs `srd check`. Returns the exit code.
pub(crate) fn run(args: &CheckArgs) -> Result<u8> {
    or_unchecked(examine(args))
}

/// Returns the exit code of a command that counts failed checks. An error is printed, and the exit
/// code is then 255.
pub(crate) fn or_unchecked(result: Result<u8>) -> Result<u8> {
    match result {
        Err(error) if !is_broken_pipe(&error) => {
            tell!("srd: {error:#}");
            Ok(UNCHECKED)
        }
        result => result,
    }
}

fn examine(args: &CheckArgs) -> Result<u8> {
    let json = &args.json;
    json.check()?;
    if args.unpersist {
        for line in check::take_back(&args.options())? {
            say(line)?;
        }
        return Ok(0);
    }
    let report = check::examine(&args.options())?;
    // The exit code counts the failed checks, even if the text has no reader.
    unless_closed(json.say(report.people(Paint::of_terminal())))?;
    json.write(&report.machine())?;
    Ok(report.exit_code())
}

/// Whether the words of a command line are for a command whose exit code counts failed checks. The
/// exit code of a usage error must then not be 2, which would mean two failed checks.
pub(crate) fn is_meant(mut words: impl Iterator<Item = OsString>) -> bool {
    let is_flag = |word: &OsStr| word.to_string_lossy().starts_with('-');
    words.find(|word| !is_flag(word)).is_some_and(|word| word == "check" || word == "mpi-check")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_usage_is_told_apart_from_that_of_other_commands() {
        let meant = |words: &[&str]| is_meant(words.iter().map(OsString::from));
        assert!(meant(&["check", "--nonsense"]));
        assert!(meant(&["-v", "check"]));
        assert!(!meant(&["perf", "check"]));
        assert!(!meant(&[]));
    }
}
