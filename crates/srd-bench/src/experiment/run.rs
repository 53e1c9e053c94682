//! Runs the cases of an experiment, with all repetitions and variants in turn.
//!
//! Each case has one fabric. Between two runs, only the counters of the earlier run remain in it.
//! The seed of the ECMP hash of a repetition is the same for all variants.

use super::measure::cpu::OwnCpu;
use super::measure::pulse::{Lateness, Pulse};
use super::measure::result::{CaseResult, Measured, Outcome, Run};
use super::variant::order;
use super::{Case, Experiment, Options, Stage, Variant};
use anyhow::{Context, Result, bail};
use srd_lab::config::FabricConfig;
use srd_lab::express::{Overlay, OverlayOptions};
use srd_lab::fabric::Fabric;
use srd_lab::priority::CpuUse;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Pause between two runs, in which the queues become empty.
const PAUSE: Duration = Duration::from_millis(200);
/// Name of a file that marks the directory of a run as in use, until the directory is removed or
/// deliberately kept.
const IN_USE: &str = "in-use";
/// Largest number of directory names that this process tries.
const DIRECTORIES_MAX: u32 = 100;

/// Runs an experiment, and calls `say` with a line of progress after each run.
pub fn run(
    experiment: &Experiment,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> Result<Outcome> {
    experiment.validate(options)?;
    let variants = experiment.chosen_variants(options)?;
    let options = &Options { variants: Some(variants.clone()), ..options.clone() };
    let cases = experiment.chosen_cases(options)?;
    experiment.require(options)?;
    let repetitions =
        options.repetitions.unwrap_or(if options.quick { 1 } else { experiment.repetitions });
    let &Experiment { name, summary, about, .. } = experiment;
    let title = Title { name, summary, about };
    in_turns(&title, &cases, &variants, repetitions, options, say)
}

/// Name and descriptions of an experiment, without its cases.
pub(crate) struct Title {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) about: &'static str,
}

/// Runs each case with every variant, for the given number of repetitions.
pub(crate) fn in_turns(
    title: &Title,
    cases: &[Case],
    variants: &[Variant],
    repetitions: u32,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> Result<Outcome> {
    let begun = Instant::now();
    let kept = last_that_runs(cases, variants).filter(|_| options.keep);
    let directory = Directory::new(&options.name, kept.is_some())?;
    let mut outcome = Outcome {
        experiment: title.name,
        summary: title.summary,
        about: title.about,
        machine: machine(),
        seed: options.seed,
        quick: options.quick,
        took_s: 0.0,
        cases: Vec::new(),
        left_out: Vec::new(),
    };
    let last = cases.len();
    for (number, case) in (1..).zip(cases) {
        let mut say = |text: &str| say(&format!("[{number}/{last}] {text}"));
        let turns = Turns {
            case,
            options,
            variants,
            repetitions,
            keep: kept.is_some_and(|kept| kept + 1 == number),
            directory: directory.guard.path(),
        };
        let runs = turns.run(&mut outcome.left_out, &mut say)?;
        if !runs.is_empty() {
            let (name, setting) = (case.name.clone(), case.setting.clone());
            outcome.cases.push(CaseResult::new(name, setting, runs));
        }
    }
    if kept.is_some() {
        let (name, path) = (&options.name, directory.guard.path().display());
        say(&format!("kept: fabric `{name}` (srd lab down --name {name}), {path}"));
    }
    outcome.took_s = begun.elapsed().as_secs_f64();
    Ok(outcome)
}

/// Error: the reason why a transport cannot be used on this machine. Such a transport is left out,
/// even if the experiment requires it.
#[derive(Debug)]
pub(super) struct Unavailable(pub(super) String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Returns the variants with which a case runs.
fn variants_of(case: &Case, variants: &[Variant]) -> Vec<Variant> {
    let runs = |variant: &&Variant| case.only.is_none_or(|only| only == **variant);
    variants.iter().filter(runs).copied().collect()
}

/// Returns the index of the last case that runs with one of the variants: its fabric may be kept.
fn last_that_runs(cases: &[Case], variants: &[Variant]) -> Option<usize> {
    cases.iter().rposition(|case| !variants_of(case, variants).is_empty())
}

/// All runs of one case: the variants in turn, for each repetition.
struct Turns<'a> {
    case: &'a Case,
    options: &'a Options,
    variants: &'a [Variant],
    repetitions: u32,
    keep: bool,
    directory: &'a Path,
}

impl Turns<'_> {
    fn run(&self, left_out: &mut Vec<String>, say: &mut dyn FnMut(&str)) -> Result<Vec<Run>> {
        let Turns { case, options, repetitions, .. } = *self;
        let variants = variants_of(case, self.variants);
        if variants.is_empty() {
            return Ok(Vec::new());
        }
        let config = FabricConfig { name_prefix: options.name.clone(), ..case.fabric.clone() };
        let fabric = Standing::up(config, self.keep)?;
        let mut runs = Vec::new();
        for repetition in 0..repetitions {
            for variant in order(&variants, repetition) {
                let what = format!("{}, {variant}, {} of {repetitions}", case.name, repetition + 1);
                let begun = Instant::now();
                match self.run_once(&fabric, variant, options.seed + repetition) {
                    Ok(Observed { measured, cpu, own_cpu_share, late, express }) => {
                        let (headline, took) = (headline(&measured), begun.elapsed().as_secs());
                        let busy = own_cpu_share * 100.0;
                        say(&format!("{what}: {headline} ({took} s, CPU {busy:.0} %)"));
                        runs.push(Run {
                            variant,
                            repetition,
                            measured,
                            cpu,
                            own_cpu_share,
                            late,
                            express,
                        });
                    }
                    Err(error) if !variant.must_run() || error.is::<Unavailable>() => {
                        let text = format!("{what}: left out: {error:#}");
                        say(&text);
                        left_out.push(text);
                    }
                    Err(error) => return Err(error.context(what)),
                }
                fabric.heal_all()?;
                thread::sleep(PAUSE);
            }
        }
        fabric.down()?;
        Ok(runs)
    }

    fn run_once(&self, fabric: &Fabric, variant: Variant, seed: u32) -> Result<Observed> {
        let Turns { case, options, directory, .. } = *self;
        fabric.set_tcp_cc(variant.congestion().name())?;
        let rto_min_ms = fabric.rto_min_ms()?.unwrap_or(Variant::Plain.rto_min_ms());
        if rto_min_ms != variant.rto_min_ms() {
            fabric.set_rto_min_ms(variant.rto_min_ms())?;
        }
        fabric.set_hash_seed(seed)?;
        let daemons = overlay_options(options, directory);
        let overlay = match variant {
            Variant::Express => Some(Overlay::up(fabric, &case.hosts, &daemons)?),
            _ => None,
        };
        let mut stage = Stage { fabric, variant, seed, overlay, directory };
        let cpu = OwnCpu::start(fabric)?;
        let pulse = Pulse::start()?;
        let mut measured = (case.measure)(&mut stage)?;
        let late = pulse.stop();
        let (cpu, own_cpu_share) = cpu.stop(fabric)?;
        let Some(overlay) = stage.overlay else {
            return Ok(Observed { measured, cpu, own_cpu_share, late, express: None });
        };
        let counters = overlay.counters()?;
        overlay.down()?;
        let counted = |name: &str| counters.get(name).copied().unwrap_or(0.0);
        // A run whose command failed may have sent nothing, if failures are counted.
        if counted("ena_srd_tx_pkts") < 1.0 && !measured.is_failure() {
            bail!(
                "no packet of the programs went over SRD: {} could have, {} went plain",
                counted("ena_srd_eligible_tx_pkts"),
                counted("plain_tx_pkts")
            );
        }
        measured.notes.extend(share_note(&counters));
        Ok(Observed { measured, cpu, own_cpu_share, late, express: Some(counters) })
    }
}

/// Results of one run.
struct Observed {
    measured: Measured,
    cpu: CpuUse,
    own_cpu_share: f64,
    late: Lateness,
    express: Option<BTreeMap<String, f64>>,
}

/// Returns a note if less than 99 % of the packets that could use SRD did.
fn share_note(counters: &BTreeMap<String, f64>) -> Option<String> {
    let sent = counters.get("ena_srd_tx_pkts")?;
    let eligible = counters.get("ena_srd_eligible_tx_pkts").filter(|count| **count > 0.0)?;
    let share = 100.0 * sent / eligible;
    (share < 99.0).then(|| format!("only {share:.1} % of the eligible packets went over SRD"))
}

fn overlay_options(options: &Options, directory: &Path) -> OverlayOptions {
    OverlayOptions {
        program: options.program.clone(),
        directory: directory.to_owned(),
        realtime_priority: options.realtime_priority,
        encrypted: options.encrypted,
    }
}

/// Formats the first two figures, for a line of progress.
fn headline(measured: &Measured) -> String {
    let figures = measured.figures.iter().take(2);
    let said = figures.map(|f| format!("{} {:.3} {}", f.name, f.value, f.unit).trim().to_owned());
    said.collect::<Vec<_>>().join(", ")
}

/// A fabric that is removed when this process ends, or that is kept at the user's request.
enum Standing {
    Guarded(srd_lab::FabricGuard),
    Kept(Fabric),
}

impl Standing {
    fn up(config: FabricConfig, keep: bool) -> Result<Standing> {
        if keep {
            return Fabric::up(config).map(Standing::Kept);
        }
        Fabric::up_guarded(config).map(Standing::Guarded)
    }

    fn down(self) -> Result<()> {
        match self {
            Standing::Guarded(fabric) => fabric.down().map(drop),
            Standing::Kept(_) => Ok(()),
        }
    }
}

impl std::ops::Deref for Standing {
    type Target = Fabric;

    fn deref(&self) -> &Fabric {
        match self {
            Standing::Guarded(fabric) => fabric,
            Standing::Kept(fabric) => fabric,
        }
    }
}

/// A private directory for keys, sockets and logs, which is removed when this process ends.
struct Directory {
    guard: srd_lab::DirectoryGuard,
    keep: bool,
}

impl Directory {
    fn new(name: &str, keep: bool) -> Result<Directory> {
        let prefix = format!("srd-lab-{name}-");
        remove_left_behind(&prefix);
        for number in 0..DIRECTORIES_MAX {
            let path =
                std::env::temp_dir().join(format!("{prefix}{}-{number}", std::process::id()));
            if let Some(guard) = srd_lab::DirectoryGuard::make(&path)? {
                let mark = path.join(IN_USE);
                fs::write(&mark, "").with_context(|| mark.display().to_string())?;
                return Ok(Directory { guard, keep });
            }
        }
        bail!("{} is full of directories of earlier runs", std::env::temp_dir().display())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.keep {
            let _ = fs::remove_file(self.guard.path().join(IN_USE));
            self.guard.keep();
        }
    }
}

/// Removes directories whose names begin with `prefix`, and that killed runs have left behind. The
/// directories contain keys.
fn remove_left_behind(prefix: &str) {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let file = entry.file_name();
        let rest = file.to_str().and_then(|file| file.strip_prefix(prefix));
        let Some((pid, number)) = rest.and_then(|rest| rest.split_once('-')) else { continue };
        let is_one = pid.parse::<u32>().is_ok() && number.parse::<u32>().is_ok();
        let is_over = !Path::new("/proc").join(pid).exists();
        let path = entry.path();
        // Every user can create entries in this directory, so those of other users are skipped.
        let is_ours = fs::symlink_metadata(&path)
            .is_ok_and(|data| data.is_dir() && data.uid() == rustix::process::geteuid().as_raw());
        if is_one && is_over && is_ours && path.join(IN_USE).is_file() {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Returns the version of the kernel and the number of cores, in words.
pub(crate) fn machine() -> String {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}, {cores} cores", kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the keys and logs of a run that was killed were never removed.
    #[test]
    fn regression_what_killed_runs_left_behind_is_removed_by_the_next() {
        // No process has such a high number. That of an ended process may get another owner.
        let gone = 4_194_305_u32;
        let name = format!("killed{}", std::process::id());
        let place = |pid: u32, number: u32| {
            std::env::temp_dir().join(format!("srd-lab-{name}-{pid}-{number}"))
        };
        let (left, kept) = (place(gone, 0), place(gone, 1));
        for directory in [&left, &kept] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("key"), "").unwrap();
        }
        fs::write(left.join(IN_USE), "").unwrap();
        let own = Directory::new(&name, false).unwrap();
        assert!(!left.exists() && kept.join("key").exists());
        let path = own.guard.path().to_owned();
        drop(Directory::new(&name, false).unwrap());
        assert!(path.exists(), "it is in use");
        drop(own);
        assert!(!path.exists());
        let other = Directory::new(&name, true).unwrap();
        let path = other.guard.path().to_owned();
        drop(other);
        assert!(path.exists() && !path.join(IN_USE).exists(), "it was left on purpose");
        fs::remove_dir_all(path).unwrap();
        fs::remove_dir_all(kept).unwrap();
    }

    /// Regression: nothing was kept if the last case did not run with any of the variants, though
    /// the name of a kept fabric was printed.
    #[test]
    fn regression_the_fabric_of_the_last_case_that_runs_is_kept() {
        let case = |only| Case {
            name: String::new(),
            setting: String::new(),
            fabric: FabricConfig::default(),
            hosts: Vec::new(),
            only,
            measure: Box::new(|_| Ok(Measured::default())),
        };
        let cases = [case(None), case(None), case(Some(Variant::Express))];
        assert_eq!(last_that_runs(&cases, &[Variant::Plain]), Some(1));
        assert_eq!(last_that_runs(&cases, &[Variant::Plain, Variant::Express]), Some(2));
        assert_eq!(last_that_runs(&cases[2..], &[Variant::Plain]), None);
    }
}
