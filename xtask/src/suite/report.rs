//! Results of all tests, and the summary at the end: slow programs, tests that were skipped for
//! missing packages, and failures by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::outcome::Outcome;
use super::process::End;
use super::programs::{OnDemand, Test};

/// Number of slow programs that the summary lists.
const SLOWEST: usize = 10;

/// A test that has ended.
pub(super) struct FinishedTest {
    /// The test that has ended.
    pub(super) test: Test,
    /// Result of the test's process.
    pub(super) end: End,
    /// Whether the test passed, failed or was skipped.
    pub(super) outcome: Outcome,
}

impl FinishedTest {
    /// Prints a failure with all its output. With `verbose`, also prints a line for a test that did
    /// not fail.
    fn print(&self, verbose: bool) {
        let name = self.test.full_name();
        let seconds = self.end.wall.as_secs_f64();
        match &self.outcome {
            Outcome::Failed(cause) => {
                println!("FAILED {name} ({cause}, {seconds:.1} s)");
                println!("{}", self.end.output.trim_end());
                println!("FAILED {name}: that was its output");
            }
            Outcome::Skipped(reason) if verbose => println!("skipped {name}: {reason}"),
            Outcome::Unjudged(what) if verbose => println!("ok {name} ({seconds:.1} s): {what}"),
            Outcome::Passed if verbose => println!("ok {name} ({seconds:.1} s)"),
            Outcome::Skipped(_) | Outcome::Unjudged(_) | Outcome::Passed => {}
        }
    }
}

/// Counters over the tests of one program.
#[derive(Default)]
struct Sums {
    passed: u32,
    skipped: u32,
    failed: u32,
    wall: Duration,
    cpu: Duration,
    slowest: Option<(Duration, String)>,
}

/// Results of all tests that have ended.
pub(super) struct Report {
    integration_programs: usize,
    on_demand: Vec<OnDemand>,
    programs: BTreeMap<String, Sums>,
    /// Names of the skipped tests, by the reason for skipping.
    skipped: BTreeMap<String, BTreeSet<String>>,
    /// Names of the tests that omitted a comparison, each with its reason.
    unjudged: BTreeSet<String>,
    /// Number and causes of the failures of each failed test.
    failed: BTreeMap<String, (u32, BTreeSet<String>)>,
    /// Failed tests that were not run once more.
    again: Vec<Test>,
    times: String,
    verbose: bool,
    began: Instant,
    rounds: Vec<Duration>,
}

impl Report {
    /// Returns an empty report. With `verbose`, the report later prints a line for each test.
    pub(super) fn new(programs: usize, on_demand: Vec<OnDemand>, verbose: bool) -> Self {
        Self {
            integration_programs: programs,
            on_demand,
            programs: BTreeMap::new(),
            skipped: BTreeMap::new(),
            unjudged: BTreeSet::new(),
            failed: BTreeMap::new(),
            again: Vec::new(),
            times: String::new(),
            verbose,
            began: Instant::now(),
            rounds: Vec::new(),
        }
    }

    /// Starts the clock of a new round of all tests.
    pub(super) fn begin_round(&mut self) {
        self.began = Instant::now();
    }

    /// Adds a test that has ended. Prints a failure with all its output.
    pub(super) fn add(&mut self, done: &FinishedTest) {
        done.print(self.verbose);
        let name = done.test.full_name();
        let (wall, cpu) = (done.end.wall, done.end.cpu);
        let sums = self.programs.entry(done.test.program.name.clone()).or_default();
        sums.wall += wall;
        sums.cpu += cpu;
        if sums.slowest.as_ref().is_none_or(|(longest, _)| *longest < wall) {
            sums.slowest = Some((wall, done.test.path.clone()));
        }
        match &done.outcome {
            Outcome::Passed => sums.passed += 1,
            Outcome::Unjudged(what) => {
                sums.passed += 1;
                self.unjudged.insert(format!("{name}: {what}"));
            }
            Outcome::Skipped(reason) => {
                sums.skipped += 1;
                self.skipped.entry(reason.clone()).or_default().insert(name.clone());
            }
            Outcome::Failed(cause) => {
                sums.failed += 1;
                let failed = self.failed.entry(name.clone()).or_default();
                failed.0 += 1;
                failed.1.insert(cause.clone());
                self.again.push(done.test.clone());
            }
        }
        let line = format!("{:.2} {:.2} {name}", wall.as_secs_f64(), cpu.as_secs_f64());
        let _ = writeln!(self.times, "{line}"); // writing to a string never fails
    }

    /// Removes the failures from the report and returns the failed tests, so that they can be run
    /// once more; prints their names as unsteady. If more than `most` tests failed, removes and
    /// returns nothing, because so many failures are not accidental.
    pub(super) fn take_few_failed(&mut self, most: usize) -> Vec<Test> {
        if self.again.len() > most {
            return Vec::new();
        }
        for name in std::mem::take(&mut self.failed).into_keys() {
            println!("unsteady unless it fails again: {name}");
        }
        for test in &self.again {
            if let Some(sums) = self.programs.get_mut(&test.program.name) {
                sums.failed -= 1;
            }
        }
        std::mem::take(&mut self.again)
    }

    /// Stops the clock of a round.
    pub(super) fn end_round(&mut self) {
        self.rounds.push(self.began.elapsed());
    }

    /// Returns a line for each ended test: its seconds, its processor seconds and its name.
    pub(super) fn times(&self) -> &str {
        &self.times
    }

    /// Returns the processor seconds of all tests, averaged over the rounds.
    pub(super) fn cpu_s(&self) -> f64 {
        let rounds = f64::from(u32::try_from(self.rounds.len().max(1)).unwrap_or(u32::MAX));
        self.programs.values().map(|sums| sums.cpu.as_secs_f64()).sum::<f64>() / rounds
    }

    /// Returns the summary at the end of all rounds. Its last line has the numbers of passed,
    /// failed and skipped tests.
    pub(super) fn summary(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a string takes everything");
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let mut programs: Vec<_> = self.programs.iter().collect();
        programs.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.wall));
        writeln!(text, "slowest programs (sum of their tests):")?;
        for (name, sums) in programs.iter().take(SLOWEST) {
            let (wall, cpu) = (sums.wall.as_secs_f64(), sums.cpu.as_secs_f64());
            let tests = sums.passed + sums.failed + sums.skipped;
            write!(text, "  {wall:7.1} s, {cpu:6.1} s of processor, {tests:4} tests: {name}")?;
            match &sums.slowest {
                Some((longest, test)) => {
                    writeln!(text, " (longest {test}, {:.1} s)", longest.as_secs_f64())?;
                }
                None => writeln!(text)?,
            }
        }
        writeln!(text, "tests on demand: {}", self.on_demand.len())?;
        for OnDemand { name, reason } in &self.on_demand {
            match reason {
                Some(reason) => writeln!(text, "  {name}: {reason}")?,
                None => writeln!(text, "  {name}")?,
            }
        }
        self.write_skipped(text)?;
        for what in &self.unjudged {
            writeln!(text, "not judged: {what}")?;
        }
        self.write_failed(text)?;
        let count = |of: fn(&Sums) -> u32| self.programs.values().map(of).sum::<u32>();
        let rounds: Vec<_> =
            self.rounds.iter().map(|r| format!("{:.0} s", r.as_secs_f64())).collect();
        writeln!(
            text,
            "took {}; {:.0} s of processor; {} integration programs",
            rounds.join(", "),
            self.cpu_s(),
            self.integration_programs
        )?;
        let (passed, failed, skipped) =
            (count(|s| s.passed), count(|s| s.failed), count(|s| s.skipped));
        writeln!(text, "{passed} passed, {failed} failed, {skipped} skipped")
    }

    /// Writes the skipped tests, grouped by reason, and the command that installs the missing
    /// packages.
    fn write_skipped(&self, text: &mut String) -> std::fmt::Result {
        if self.skipped.is_empty() {
            return writeln!(text, "skipped tests: none");
        }
        let count: usize = self.skipped.values().map(BTreeSet::len).sum();
        writeln!(text, "skipped tests: {count}")?;
        for (reason, tests) in &self.skipped {
            writeln!(text, "  {reason}")?;
            for test in tests {
                writeln!(text, "    {test}")?;
            }
        }
        let packages: BTreeSet<_> = self.skipped.keys().flat_map(|why| packages(why)).collect();
        if !packages.is_empty() {
            let packages: Vec<_> = packages.into_iter().collect();
            writeln!(
                text,
                "to run those that lack a package: apt-get install {}",
                packages.join(" ")
            )?;
        }
        Ok(())
    }

    fn write_failed(&self, text: &mut String) -> std::fmt::Result {
        if self.failed.is_empty() {
            return Ok(());
        }
        writeln!(text, "failures by name:")?;
        for (name, (times, causes)) in &self.failed {
            let causes: Vec<_> = causes.iter().map(String::as_str).collect();
            writeln!(text, "  {times} of {}: {name}: {}", self.rounds.len(), causes.join("; "))?;
        }
        Ok(())
    }

    /// Returns the reason why the whole run fails; `None` if it succeeds.
    pub(super) fn complaint(&self, in_ci: bool) -> Option<String> {
        if !self.failed.is_empty() {
            return Some(format!("{} tests failed", self.failed.len()));
        }
        (in_ci && !self.skipped.is_empty()).then(|| "in CI every test must run".to_owned())
    }
}

/// Returns the packages that a reason for skipping names in the form `... apt-get install a b`.
fn packages(reason: &str) -> Vec<&str> {
    let Some((_, behind)) = reason.split_once("apt-get install ") else { return Vec::new() };
    let end = behind.find([')', ';', ',']).unwrap_or(behind.len());
    behind[..end].split_ascii_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::programs::Program;

    fn done(name: &str, outcome: Outcome) -> FinishedTest {
        let test = Test { program: Program::named("srd-x::it"), path: name.to_owned() };
        let seconds = Duration::from_secs(2);
        let (success, output) = (true, String::new());
        let end = End { success, stopped: None, output, wall: seconds, cpu: seconds / 2 };
        FinishedTest { test, end, outcome }
    }

    fn report(of: Vec<FinishedTest>) -> Report {
        let mut report = Report::new(27, Vec::new(), false);
        report.begin_round();
        of.iter().for_each(|done| report.add(done));
        report.end_round();
        report
    }

    #[test]
    fn skipped_tests_are_grouped_by_reason_and_one_line_installs_all() {
        let lacks = |what: &str| Outcome::Skipped(format!("no {what} (apt-get install {what})"));
        let report = report(vec![done("a", lacks("tshark")), done("b", lacks("tshark"))]);
        let said = report.summary();
        let group = "skipped tests: 2\n  no tshark (apt-get install tshark)\n    srd-x::it a\n    \
                     srd-x::it b\n";
        assert!(said.contains(group), "{said}");
        assert!(said.contains("apt-get install tshark\n"), "{said}");
        assert!(said.ends_with("\n0 passed, 0 failed, 2 skipped\n"), "{said}");
    }

    #[test]
    fn a_skipped_test_fails_the_run_in_ci_and_nowhere_else() {
        let report = report(vec![done("a", Outcome::Skipped("no root".into()))]);
        assert!(report.complaint(false).is_none());
        assert!(report.complaint(true).is_some_and(|why| why.contains("must run")));
    }

    #[test]
    fn failures_are_counted_by_name_over_all_rounds() {
        let failed = || Outcome::Failed("stopped after 240 s".into());
        let report =
            report(vec![done("a", failed()), done("a", failed()), done("b", Outcome::Passed)]);
        let said = report.summary();
        assert!(said.contains("2 of 1: srd-x::it a: stopped after 240 s\n"), "{said}");
        assert!(said.ends_with("1 passed, 2 failed, 0 skipped\n"), "{said}");
        assert!(report.complaint(false).is_some());
    }

    #[test]
    fn packages_are_read_from_reasons() {
        assert_eq!(packages("no x: apt-get install a b"), ["a", "b"]);
        assert_eq!(packages("no x (apt-get install a); no y"), ["a"]);
        assert!(packages("needs root").is_empty());
    }
}
