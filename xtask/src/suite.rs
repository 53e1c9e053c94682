//! `cargo xtask test`: builds all tests and runs each in a separate process, several at a time.
//!
//! | module | contents |
//! |---|---|
//! | [`programs`] | the test programs that cargo builds, and the tests in them |
//! | [`schedule`] | the order of the tests, and how many run at a time |
//! | [`process`] | one test as a process, in separate namespaces if the user is root |
//! | [`outcome`] | whether a test passed, failed or was skipped, read from its output |
//! | [`report`] | summary at the end: slow programs, skipped tests, failures by name |
//! | [`speed`] | the speed of the processors meanwhile |
//! | [`busy`] | additional load, to find tests that depend on an idle machine |
//!
//! Each test runs in a separate process, so one test cannot affect another. As root, an integration
//! test has its own ports, interfaces, routing tables, `/run` and child processes, and everything
//! that it leaves behind ends with its process. A test that waits does not occupy a processor that
//! other tests could use.

mod busy;
mod outcome;
mod process;
mod programs;
mod report;
mod schedule;
mod speed;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::outcome::Outcome;
use self::process::{End, Isolation, Running};
use self::programs::Test;
use self::report::{FinishedTest, Report};
use self::schedule::Queue;
use self::speed::Speed;
use crate::tidy::ratchet;

/// Time between two checks of the running test processes.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Largest number of failed tests that are run once more in CI.
const UNSTEADY_MAX: usize = 3;

/// Permitted ratio of processor seconds to the bound: two processors that compute at the same speed
/// may differ by this much in system calls and starts of programs.
const TOLERANCE: f64 = 1.25;

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only tests whose name contains one of these texts, for example `srd-cli::overlay`,
    /// `routes::`
    filters: Vec<String>,
    /// Number of processors to use; 0: all processors of the machine
    #[arg(short, long, default_value_t = 0)]
    jobs: u16,
    /// Run all tests this number of times, and count failures by name
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Keep each processor busy with a loop during the tests
    #[arg(long)]
    busy: bool,
    /// Print the names of the tests instead of running them
    #[arg(long)]
    list: bool,
    /// Print a line for each test, and not only for each program
    #[arg(short, long)]
    verbose: bool,
    /// Lower the processor seconds that all tests may take, if they took less
    #[arg(long, conflicts_with = "filters")]
    write: bool,
    /// Write the seconds of each test to this file
    #[arg(long, value_name = "FILE")]
    times: Option<PathBuf>,
}

/// Builds the tests and runs them.
///
/// # Errors
/// An error, if the tests do not build, a test fails, or a test was skipped and `CI=true`.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let built = programs::build(root)?;
    let found = programs::tests(&built)?;
    schedule::check_lists(&found.tests)?;
    let chosen = |name: &str| {
        options.filters.is_empty() || options.filters.iter().any(|f| name.contains(f.as_str()))
    };
    let tests: Vec<Test> = found.tests.into_iter().filter(|t| chosen(&t.full_name())).collect();
    if options.list {
        for test in &tests {
            println!("{}", test.full_name());
        }
        return Ok(());
    }
    for filter in &options.filters {
        let is_met = tests.iter().any(|test| test.full_name().contains(filter.as_str()));
        ensure!(is_met, "no test has a name that contains {filter:?}");
    }
    ensure!(!tests.is_empty(), "there are no tests");
    let on_demand: Vec<_> = found.on_demand.into_iter().filter(|t| chosen(&t.name)).collect();
    let in_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    let isolation = Isolation::of_this_machine(&tests[0].command().0);
    if let Isolation::None(why) = &isolation {
        println!("tests share this machine's network and processes: {why}");
        ensure!(!in_ci, "in CI each test must have namespaces of its own");
    }
    let _load = if options.busy { Some(busy::Load::start()?) } else { None };
    let mut speed = Speed::default();
    let mut report = Report::new(programs::count(&built), on_demand, options.verbose);
    for round in 1..=options.repeat {
        if options.repeat > 1 {
            println!("round {round} of {}", options.repeat);
        }
        report.begin_round();
        run_once(tests.clone(), options, &isolation, (&mut report, &mut speed))?;
        report.end_round();
    }
    // A change should not be refused because one of thousands of tests fails on a busy machine. The
    // output of both runs stays in the log.
    if in_ci && options.repeat == 1 {
        let again = report.take_few_failed(UNSTEADY_MAX);
        run_once(again, options, &isolation, (&mut report, &mut speed))?;
    }
    // The summary comes first, so that it is not lost if the file cannot be written.
    print!("{}", report.summary());
    if let Some(file) = &options.times {
        std::fs::write(file, report.times()).with_context(|| file.display().to_string())?;
    }
    if let Some(complaint) = report.complaint(in_ci) {
        bail!("{complaint}");
    }
    // The bound is compared in CI only: other machines may do other things at the same time.
    let is_comparable = options.filters.is_empty() && !options.busy && (in_ci || options.write);
    if is_comparable { check_seconds(root, report.cpu_s(), &speed, options.write) } else { Ok(()) }
}

/// Compares the processor seconds of one run, on processors of a measured speed, with the permitted
/// maximum; with `write`, lowers the maximum if possible.
///
/// # Errors
/// An error, if the tests took more, or the file cannot be read or written.
fn check_seconds(root: &Path, cpu_s: f64, speed: &Speed, write: bool) -> Result<()> {
    let file = root.join(ratchet::FILE);
    let mut counts = ratchet::read(&std::fs::read_to_string(&file)?);
    let key = (ratchet::TEST_SECONDS.0.to_owned(), ratchet::TEST_SECONDS.1.to_owned());
    let allowed = counts.get(&key).copied().unwrap_or(0);
    let bound = f64::from(u32::try_from(allowed)?);
    let slower = speed.slower();
    let of_reference = (cpu_s / slower).ceil();
    println!(
        "processor seconds of the tests: {cpu_s:.0}; processors were {slower:.2} times as slow as \
         the reference: {of_reference:.0} ({allowed} allowed)"
    );
    ensure!(
        of_reference <= bound * TOLERANCE,
        "the tests take more of the processor than {} allows",
        ratchet::FILE
    );
    if write && of_reference < bound {
        // The new value is less than `bound`, which is a whole number, so it can be parsed.
        counts.insert(key, format!("{of_reference:.0}").parse()?);
        std::fs::write(file, ratchet::write(&counts))?;
    }
    Ok(())
}

/// Runs each of `tests` once, and adds the results to `report`.
fn run_once(
    tests: Vec<Test>,
    options: &Options,
    isolation: &Isolation,
    (report, speed): (&mut Report, &mut Speed),
) -> Result<()> {
    let mut queue = Queue::new(tests, options.jobs.into(), options.busy);
    let mut running: Vec<Running> = Vec::new();
    let mut cpu_seen = process::cpu_of_children();
    while !queue.is_empty() || !running.is_empty() {
        while let Some(turn) = queue.next() {
            let (test, place) = (turn.test.clone(), turn.place);
            match Running::start(turn, isolation) {
                Ok(begun) => running.push(begun),
                Err(error) => {
                    queue.give_back(&test, place);
                    let outcome = Outcome::Failed(format!("{error:#}"));
                    report.add(&FinishedTest { outcome, test, end: End::of_none() });
                }
            }
        }
        let mut ended = false;
        let mut index = 0;
        while index < running.len() {
            let Some(end) = running[index].look(Instant::now(), &mut cpu_seen)? else {
                index += 1;
                continue;
            };
            let Running { test, place, .. } = &running[index];
            queue.give_back(test, *place);
            report.add(&FinishedTest {
                outcome: outcome::read(test, &end),
                test: test.clone(),
                end,
            });
            running.swap_remove(index);
            ended = true;
        }
        speed.look(Instant::now());
        if !ended {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    Ok(())
}
