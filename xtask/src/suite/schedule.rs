//! The order of the tests, and the number of tests that run at the same time.
//!
//! Most tests that need root wait most of the time: for a daemon, a timer or a retransmission.
//! Several of them share a processor. Tests of pure crates compute all the time: one test runs per
//! processor, at a low priority, so that it uses the time in which other tests wait. A few tests
//! compare speeds on this machine: they run before the waiting tests, and no waiting tests run at
//! the same time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use anyhow::{Result, bail};

use super::programs::Test;

/// List of the tests that take seconds, the slowest first: a long test that started last would keep
/// one processor busy while the other processors are idle.
const SLOW: &str = include_str!("slow.txt");

/// Number of waiting tests that run at the same time per processor.
const WAITING_PER_PROCESSOR: usize = 4;

/// Time limit of a test that is not in [`SLOW`]. On a slow machine, while other tests run, the
/// longest of these tests takes a minute.
const LIMIT: Duration = Duration::from_secs(480);

/// Factor of time limits. A test in [`SLOW`] may take this multiple of its listed seconds, but at
/// least [`LIMIT`].
const LIMIT_TIMES: u32 = 8;

/// Multiple of [`LIMIT`] that a computing test may take. It has the lowest priority, so that other
/// tests delay it.
const LIMIT_TIMES_COMPUTING: u32 = 4;

/// Factor of all time limits while a loop keeps each processor busy. The tests then get about half
/// of the time, and less than that beside other programs.
const LIMIT_TIMES_BUSY: u32 = 4;

/// Beginnings of the names of tests that compare speeds. These tests run before the waiting tests,
/// one at a time, so that only tests of a low priority run at the same time.
const COMPARING: [&str; 3] = [
    "srd-cli::lab lab_all::experiments_that_compare",
    "srd-cli::lab lab_run::losses_of_one_flow",
    "srd-cli::lab lab_run::one_plain_flow",
];

/// Number of comparing tests that run at the same time; two of them would disturb each other.
const COMPARING_AT_A_TIME: usize = 1;

/// Beginnings of the names of tests that cannot run in a network namespace: their fabrics use a
/// congestion control that only the machine's own network can allow.
const IN_THE_MACHINES_NETWORK: [&str; 3] =
    ["srd-bench::it ", "srd-cli::lab ", "srd-cli::overlay compare::a_command_and_its_server"];

/// Crates whose tests only compute and never wait.
const COMPUTING: [&str; 11] = [
    "srd-card",
    "srd-chart",
    "srd-crypto",
    "srd-efa",
    "srd-pcapng",
    "srd-proto",
    "srd-sim",
    "srd-vpc",
    "srd-vpc-file",
    "srd-watch",
    "xtask",
];

/// Crates in [`COMPUTING`] whose integration tests use interfaces or start programs.
const COMPUTING_WITH_PROGRAMS: [&str; 2] = ["srd-watch", "xtask"];

/// Kind of use that a test makes of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// The test computes all the time.
    Computes,
    /// The test waits most of the time.
    Waits,
    /// The test compares speeds, so other load would disturb it.
    Compares,
}

/// A test that can be started, with its slot and its time limit.
pub(super) struct Turn {
    /// The test to start.
    pub(super) test: Test,
    /// Number of the slot that the test occupies; tests that run at the same time have different
    /// slots.
    pub(super) place: usize,
    /// Time after which the test is stopped.
    pub(super) limit: Duration,
}

/// The tests that have not been started, and the free slots for running tests.
pub(super) struct Queue {
    waiting: BTreeMap<Use, VecDeque<Test>>,
    free: BTreeMap<Use, BTreeSet<usize>>,
    slow: BTreeMap<&'static str, u64>,
    /// Factor of time limits.
    times: u32,
}

impl Queue {
    /// Returns a queue of `tests` for the given number of processors; 0 means all processors of
    /// this machine. `is_busy`: whether loops keep the processors busy.
    pub(super) fn new(mut tests: Vec<Test>, processors: usize, is_busy: bool) -> Self {
        let there = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let processors = if processors == 0 { there } else { processors };
        let slow = slow(SLOW);
        tests.sort_by_key(|test| {
            std::cmp::Reverse(slow.get(test.full_name().as_str()).copied().unwrap_or(0))
        });
        let mut waiting: BTreeMap<Use, VecDeque<Test>> = BTreeMap::new();
        for test in tests {
            let class = class(&test);
            waiting.entry(class).or_default().push_back(test);
        }
        // Slots of all kinds of use are numbered together, so that no two running tests have the
        // same number.
        let waits = processors * WAITING_PER_PROCESSOR;
        let free = BTreeMap::from([
            (Use::Compares, (0..COMPARING_AT_A_TIME).collect()),
            (Use::Waits, (0..waits).map(|n| n + COMPARING_AT_A_TIME).collect()),
            (Use::Computes, (0..processors).map(|n| n + COMPARING_AT_A_TIME + waits).collect()),
        ]);
        Self { waiting, free, slow, times: if is_busy { LIMIT_TIMES_BUSY } else { 1 } }
    }

    /// Whether every test has been started.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.values().all(VecDeque::is_empty)
    }

    /// Removes and returns a test that can be started now; `None` if no slot is free or no test is
    /// left. Comparing tests come before waiting tests.
    pub(super) fn next(&mut self) -> Option<Turn> {
        if let Some(begun) = self.take(Use::Computes) {
            return Some(begun);
        }
        if let Some(begun) = self.take(Use::Compares) {
            return Some(begun);
        }
        let comparing =
            COMPARING_AT_A_TIME - self.free.get(&Use::Compares).map_or(0, BTreeSet::len);
        if comparing > 0 { None } else { self.take(Use::Waits) }
    }

    fn take(&mut self, class: Use) -> Option<Turn> {
        let tests = self.waiting.get_mut(&class)?;
        let places = self.free.get_mut(&class)?;
        let place = *places.first()?;
        let test = tests.pop_front()?;
        places.remove(&place);
        let seconds = self.slow.get(test.full_name().as_str()).copied().unwrap_or(0);
        let least = if class == Use::Computes { LIMIT * LIMIT_TIMES_COMPUTING } else { LIMIT };
        let limit = least.max(Duration::from_secs(seconds) * LIMIT_TIMES) * self.times;
        Some(Turn { test, place, limit })
    }

    /// Frees the slot that an ended test occupied.
    pub(super) fn give_back(&mut self, test: &Test, place: usize) {
        let class = class(test);
        self.free.entry(class).or_default().insert(place);
    }
}

/// Returns the kind of use that a test makes of the machine.
fn class(test: &Test) -> Use {
    let name = test.full_name();
    if COMPARING.iter().any(|begin| name.starts_with(begin)) {
        return Use::Compares;
    }
    if COMPUTING.contains(&package(&name)) { Use::Computes } else { Use::Waits }
}

/// Whether a test computes all the time, so that it runs at a low priority.
pub(super) fn computes(test: &Test) -> bool {
    class(test) == Use::Computes
}

/// Whether an integration test runs in separate namespaces. A test that only computes needs none;
/// to create them takes more processor time than most of these tests.
pub(super) fn runs_apart(test: &Test) -> bool {
    let name = test.full_name();
    let only_computes = computes(test) && !COMPUTING_WITH_PROGRAMS.contains(&package(&name));
    !only_computes && !IN_THE_MACHINES_NETWORK.iter().any(|begin| name.starts_with(begin))
}

/// Checks that each entry in the lists of this file matches an existing test. Without this check, a
/// renamed test would silently lose its kind of use and its time limit.
///
/// # Errors
/// An error, if an entry matches no test.
pub(super) fn check_lists(tests: &[Test]) -> Result<()> {
    let names: Vec<String> = tests.iter().map(Test::full_name).collect();
    for package in COMPUTING {
        if !names.iter().any(|name| self::package(name) == package) {
            bail!("xtask/src/suite/schedule.rs: {package:?} in COMPUTING has no test; correct it");
        }
    }
    let compared = COMPARING.map(|begin| (begin, "COMPARING"));
    let shared = IN_THE_MACHINES_NETWORK.map(|begin| (begin, "IN_THE_MACHINES_NETWORK"));
    for (begin, list) in compared.into_iter().chain(shared) {
        if !names.iter().any(|name| name.starts_with(begin)) {
            bail!("xtask/src/suite/schedule.rs: {begin:?} in {list} names no test; correct it");
        }
    }
    for (number, line) in (1..).zip(SLOW.lines()) {
        let entry = slow(line);
        let is_remark = line.starts_with('#') || line.is_empty();
        if !is_remark && !entry.keys().any(|name| names.iter().any(|there| there == name)) {
            bail!("xtask/src/suite/slow.txt:{number}: no SECONDS and name of a test: {line:?}");
        }
    }
    Ok(())
}

/// Returns the name of the crate at the beginning of a test's full name.
fn package(name: &str) -> &str {
    name.split([':', ' ']).next().unwrap_or_default()
}

/// Returns the names and seconds in a list with lines of the form `SECONDS NAME`.
fn slow(list: &str) -> BTreeMap<&str, u64> {
    list.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (seconds, name) = line.split_once(' ')?;
            Some((name, seconds.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::programs::Program;

    fn test(program: &str, path: &str) -> Test {
        Test { program: Program::named(program), path: path.to_owned() }
    }

    #[test]
    fn tests_that_wait_share_a_processor_and_those_that_compute_do_not() {
        let many = |program: &str| (0..20).map(|n| test(program, &format!("t{n}"))).collect();
        let mut waiting = Queue::new(many("srd-net::it"), 2, false);
        assert_eq!(std::iter::from_fn(|| waiting.next()).count(), 2 * WAITING_PER_PROCESSOR);
        let mut computing = Queue::new(many("srd-proto::it"), 2, false);
        assert_eq!(std::iter::from_fn(|| computing.next()).count(), 2);
        assert!(!computing.is_empty());
    }

    #[test]
    fn nothing_that_waits_runs_beside_a_test_that_compares() {
        let comparing = test("srd-cli::lab", "lab_run::losses_of_one_flow_hit");
        let tests = vec![test("srd-net::it", "a"), comparing, test("srd-proto", "b")];
        let mut queue = Queue::new(tests, 2, false);
        let first: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        let paths: Vec<_> = first.iter().map(|turn| turn.test.path.as_str()).collect();
        assert_eq!(paths, ["b", "lab_run::losses_of_one_flow_hit"]);
        queue.give_back(&first[1].test, first[1].place);
        assert_eq!(queue.next().unwrap().test.path, "a");
    }

    #[test]
    fn tests_that_only_compute_have_no_namespaces() {
        let apart = |program: &str| runs_apart(&test(program, "a"));
        let programs = ["srd-proto::it", "srd-watch::it", "srd-net::it", "srd-cli::lab"];
        assert_eq!(programs.map(apart), [false, true, true, false]);
    }

    /// Five tests were stopped after 240 s on a slow machine with busy processors.
    #[test]
    fn regression_a_test_may_take_longer_beside_a_load() {
        let limit = |is_busy| {
            let mut queue = Queue::new(vec![test("srd-net::it", "a")], 2, is_busy);
            queue.next().unwrap().limit
        };
        assert_eq!(limit(true), limit(false) * LIMIT_TIMES_BUSY);
    }

    #[test]
    fn a_test_that_is_known_to_be_slow_begins_first_and_may_take_longer() {
        let list = slow("# seconds and name\n90 srd-a::it b::c\n3 srd-a::it d\n");
        assert_eq!(list, BTreeMap::from([("srd-a::it b::c", 90), ("srd-a::it d", 3)]));
    }

    #[test]
    fn an_entry_of_a_list_that_names_no_test_is_an_error() {
        let mut tests: Vec<_> = slow(SLOW)
            .keys()
            .copied()
            .chain(IN_THE_MACHINES_NETWORK)
            .map(|name| {
                let (program, path) = name.split_once(' ').unwrap();
                test(program, path)
            })
            .chain(COMPUTING.map(|package| test(package, "a")))
            .chain(COMPARING.map(|name| test("srd-cli::lab", &name["srd-cli::lab ".len()..])))
            .collect();
        check_lists(&tests).unwrap();
        // The names of other crates begin with this one.
        tests.retain(|test| package(&test.full_name()) != "srd-vpc");
        let said = check_lists(&tests).unwrap_err().to_string();
        assert!(said.contains("\"srd-vpc\" in COMPUTING"), "{said}");
    }
}
