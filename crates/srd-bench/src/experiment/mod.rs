//! Experiments: measurements of real programs, with ENA Express and without it in one run.
//!
//! An experiment is a list of cases; a case is a fabric and a measurement in it. A variant is a
//! transport. All variants run in the same fabric, over the same links and queues, one after the
//! other. Every second repetition runs them in the opposite order. The *programs* are the same in
//! all variants, and only the addresses that they use differ.
//!
//! | module | content |
//! |---|---|
//! | `variant` | the transports that the programs use |
//! | [`mod@run`] | runs cases, repetitions and variants in turn |
//! | `paths`, `faults`, `load`, `clusters` | the experiments, one in each module |
//! | `measure` | load generators, and figures of results |
//! | [`show`], [`mod@page`] | results as tables for a terminal, and as a page with charts |
//!
//! A new experiment needs four changes:
//!
//! 1. A module in `paths`, `faults`, `load` or `clusters` with a constant [`Experiment`];
//!    `paths/nconnect.rs` is a short example.
//! 2. An entry in [`ALL`].
//! 3. If its programs are fetched: an entry in `needed_by` of `clusters/fetched`.
//! 4. `tests/lab/lab_all.rs` of `srd-cli` runs it with the other experiments. If it compares
//!    speeds, its name belongs into `COMPARING` there, and if it starts a cluster, into `CLUSTERS`.

mod clusters;
mod faults;
pub(crate) mod load;
pub(crate) mod measure;
pub mod page;
mod paths;
pub mod run;
pub mod show;
pub mod variant;

pub use clusters::fetched::{NotFetched, check_fetched, fetch, names as fetchable};
pub use measure::programs::{MissingPrograms, Program};
pub use measure::result::Outcome;
pub use measure::{counts, distribution, programs, pulse, result};
pub use run::run;
pub use variant::Variant;

use crate::tcp::{Flows, Subflows};
use anyhow::Result;
use srd_lab::config::{CHOSEN_PORTS, ConfigError, FabricConfig, check};
use srd_lab::express::Overlay;
use srd_lab::fabric::Fabric;
use srd_lab::id::{HostId, Network};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Default directory of fetched programs.
pub const CACHE: &str = "/var/cache/srd";

/// Maximum duration, in seconds, of a run of an experiment that stores only a few bytes for each
/// request or frame.
const SECONDS_MAX: u64 = 8 * 3600;
/// Maximum duration, in seconds, of a run of the other experiments.
const SECONDS_MAX_SHORT: u64 = 3600;

/// Options for an experiment, as the user sets them.
#[derive(Clone, Debug)]
pub struct Options {
    /// The transports to compare, in the order of the first repetition; `None`: the transports of
    /// the experiment.
    pub variants: Option<Vec<Variant>>,
    /// Number of repetitions; `None`: the experiment's own number.
    pub repetitions: Option<u32>,
    /// Length of one run in seconds; `None`: the experiment's own length. An experiment with a
    /// number of rounds changes that number in proportion.
    pub seconds: Option<u64>,
    /// Number of spines, for experiments that do not prescribe it; `None`: the experiment's
    /// default.
    pub spines: Option<u16>,
    /// Names of the cases to run; all cases if the list is empty.
    pub only_cases: Vec<String>,
    /// Whether to run only a short repetition of the smallest case: a smoke test, not a
    /// measurement.
    pub quick: bool,
    /// Seed of ECMP hashes, ports, and arrival times of requests.
    pub seed: u32,
    /// Whether the last fabric and the files of its daemons are kept.
    pub keep: bool,
    /// Whether the experiment `redis` uses memcached instead of Redis.
    pub memcached: bool,
    /// Requests per second of the experiment `redis`; `None`: its default.
    pub rate: Option<u32>,
    /// Number of threads that send requests in the experiment `redis`; `None`: one.
    pub threads: Option<u32>,
    /// Path of the `srd` program, for the daemons of Express.
    pub program: PathBuf,
    /// Real-time priority of the daemons; with `None`, they run at normal priority.
    pub realtime_priority: Option<u8>,
    /// Whether Express and the libfabric provider use encryption.
    pub encrypted: bool,
    /// Path of the launcher of the MPI to measure; `None`: `mpirun`.
    pub mpirun: Option<PathBuf>,
    /// Path of the libfabric provider, or of its directory; `None`: the usual directories are
    /// searched.
    pub provider: Option<PathBuf>,
    /// Directory with the programs that `srd lab fetch` has fetched.
    pub cache: PathBuf,
    /// Name of the fabric, with which the names of its namespaces begin.
    pub name: String,
}

impl Options {
    /// Checks that all options are in their ranges.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let variants = self.variants.as_ref().map_or(1, Vec::len) as u64;
        check("variants", variants, 1..=Variant::ALL.len() as u64)?;
        check("reps", self.repetitions.unwrap_or(1).into(), 1..=1000)?;
        check("seconds", self.seconds.unwrap_or(1), 1..=SECONDS_MAX)?;
        let (rate, threads) = (self.rate.unwrap_or(measure::requests::THREADS_MAX), self.threads);
        check("rate", rate.into(), 1..=measure::requests::RATE_MAX.into())?;
        let threads_max = rate.min(measure::requests::THREADS_MAX).into();
        check("threads", threads.unwrap_or(1).into(), 1..=threads_max)?;
        check("spines", self.spines.unwrap_or(1).into(), srd_lab::config::SPINES)?;
        check("seed", self.seed.into(), 1..=u64::from(u32::MAX) - 1000)?;
        srd_lab::config::check_name(&self.name)
    }

    /// Returns the length of a run in seconds: the length that the user has set, or otherwise
    /// `quick` for a smoke test and `normal` for a measurement.
    fn seconds_or(&self, normal: u64, quick: u64) -> u64 {
        self.seconds.unwrap_or(if self.quick { quick } else { normal })
    }

    /// Whether the list of transports in the options contains `variant`; false if there is no list.
    fn compares(&self, variant: Variant) -> bool {
        self.variants.as_ref().is_some_and(|variants| variants.contains(&variant))
    }

    /// Returns `quick` for a smoke test in which the user has not selected cases by name, and
    /// otherwise `normal`.
    fn cases_or(&self, quick: usize, normal: usize) -> usize {
        if self.quick && self.only_cases.is_empty() { quick } else { normal }
    }

    /// Returns `quick` for a smoke test, and otherwise `normal`.
    fn quick_or<T>(&self, quick: T, normal: T) -> T {
        if self.quick { quick } else { normal }
    }
}

/// An experiment: its description, and its cases.
#[derive(Debug)]
pub struct Experiment {
    /// Name of the experiment on the command line.
    pub name: &'static str,
    /// The question that the experiment answers, in one sentence.
    pub summary: &'static str,
    /// Description of the method, in a paragraph.
    pub about: &'static str,
    /// Default number of repetitions.
    pub repetitions: u32,
    /// The transports that are compared by default.
    pub variants: &'static [Variant],
    /// Function that returns the programs that must be installed.
    pub(crate) programs: fn(&Options) -> Vec<Program>,
    /// Function that creates the cases.
    pub(crate) cases: fn(&Options) -> Vec<Case>,
}

/// All experiments.
pub const ALL: [&Experiment; 24] = [
    &paths::single_flow::EXPERIMENT,
    &paths::nconnect::EXPERIMENT,
    &load::redis::EXPERIMENT,
    &load::video::EXPERIMENT,
    &load::video_srt::EXPERIMENT,
    &load::incast::EXPERIMENT,
    &faults::failover::EXPERIMENT,
    &load::fairness::EXPERIMENT,
    &load::copies::EXPERIMENT,
    &paths::collisions::EXPERIMENT,
    &faults::loss::EXPERIMENT,
    &paths::ordering::EXPERIMENT,
    &faults::flood::EXPERIMENT,
    &clusters::shuffle::EXPERIMENT,
    &load::nfs::EXPERIMENT,
    &clusters::hadoop::EXPERIMENT,
    &clusters::objects::EXPERIMENT,
    &clusters::records::spark::EXPERIMENT,
    &clusters::records::dask::EXPERIMENT,
    &clusters::mpi::EXPERIMENT,
    &clusters::mpi::INCAST,
    &clusters::training::EXPERIMENT,
    &clusters::training::MPI,
    &faults::soak::EXPERIMENT,
];

/// Finds an experiment by its name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    ALL.into_iter().find(|experiment| experiment.name == name)
}

impl Experiment {
    /// Returns the names of the experiment's cases with these options.
    #[must_use]
    pub fn case_names(&self, options: &Options) -> Vec<String> {
        (self.cases)(options).into_iter().map(|case| case.name).collect()
    }

    /// Returns the cases that the options select.
    ///
    /// # Errors
    /// If the experiment has no case with a selected name, or a case needs more spines.
    fn chosen_cases(&self, options: &Options) -> Result<Vec<Case>, ConfigError> {
        let names = self.case_names(options);
        let chosen = whole_names(&options.only_cases, &names);
        if let Some(missing) = chosen.iter().find(|name| !names.contains(name)) {
            let short = if options.quick { ", with --quick" } else { "" };
            let permitted = format!("one of `{}`{short}: {}", self.name, names.join("; "));
            return Err(ConfigError { field: "case", value: missing.clone(), permitted });
        }
        let mut cases = (self.cases)(options);
        cases.retain(|c| chosen.is_empty() || chosen.contains(&c.name));
        if self.name == clusters::hadoop::EXPERIMENT.name {
            cases.iter().try_for_each(clusters::hadoop::check)?;
        }
        Ok(cases)
    }

    /// Checks the options before anything is started.
    ///
    /// # Errors
    /// If an option is out of its range, or is not valid for this experiment.
    pub fn check(&self, options: &Options) -> Result<(), ConfigError> {
        self.validate(options)?;
        let variants = Some(self.chosen_variants(options)?);
        self.chosen_cases(&Options { variants, ..options.clone() }).map(drop)
    }

    /// Checks that all programs that the experiment needs are installed, or fetched.
    ///
    /// # Errors
    /// If a program is missing: [`MissingPrograms`], [`NotFetched`].
    pub fn require(&self, options: &Options) -> Result<()> {
        let variants = Some(self.chosen_variants(options)?);
        let options = &Options { variants, ..options.clone() };
        let mut needed = self.programs(options);
        needed.extend(measure::programs::of_variants(options));
        measure::programs::require(&needed)?;
        self.fetched().map_or(Ok(()), |name| check_fetched(name, &options.cache))
    }

    /// Returns the name of the program that `srd lab fetch` has to fetch for this experiment;
    /// `None` if it needs no fetched program.
    #[must_use]
    pub fn fetched(&self) -> Option<&'static str> {
        clusters::fetched::needed_by(self.name)
    }

    /// Checks options whose range depends on the experiment.
    ///
    /// # Errors
    /// If an option is out of its range, for example because a run would be too long.
    fn validate(&self, options: &Options) -> Result<(), ConfigError> {
        options.validate()?;
        let long =
            [load::redis::EXPERIMENT.name, load::video::EXPERIMENT.name].contains(&self.name);
        let most = if long { SECONDS_MAX } else { SECONDS_MAX_SHORT };
        check("seconds", options.seconds.unwrap_or(1), 1..=most)
    }

    /// Returns the transports that are compared with these options.
    ///
    /// # Errors
    /// If the programs of the experiment cannot use one of the transports.
    fn chosen_variants(&self, options: &Options) -> Result<Vec<Variant>, ConfigError> {
        let chosen = options.variants.clone().unwrap_or_else(|| self.variants.to_vec());
        if chosen.contains(&Variant::Srd) && !self.variants.contains(&Variant::Srd) {
            let permitted = format!("another for `{}`: its programs know no libfabric", self.name);
            return Err(ConfigError { field: "variants", value: "srd".into(), permitted });
        }
        Ok(chosen)
    }

    /// Returns the programs that the experiment needs under these options.
    #[must_use]
    pub fn programs(&self, options: &Options) -> Vec<Program> {
        (self.programs)(options)
    }
}

/// Function that measures a case in a stage that is ready.
type Measure = Box<dyn Fn(&mut Stage<'_>) -> Result<measure::result::Measured>>;

/// A case: one setting of an experiment, and the measurement in it.
pub(crate) struct Case {
    /// Name of the case, which is unique within the experiment.
    pub(crate) name: String,
    /// Description of links, queues and load in words.
    pub(crate) setting: String,
    /// Description of the fabric.
    pub(crate) fabric: FabricConfig,
    /// The hosts in which programs run. With Express, each of them gets a daemon.
    pub(crate) hosts: Vec<HostId>,
    /// The only variant that the case supports; `None`: it supports all variants of the experiment.
    pub(crate) only: Option<Variant>,
    /// Function that runs the measurement.
    pub(crate) measure: Measure,
}

/// A fabric in which one variant has been set up, so that a measurement can run in it.
pub(crate) struct Stage<'a> {
    /// Fabric in which the measurement runs.
    pub(crate) fabric: &'a Fabric,
    /// The transport that is being measured.
    pub(crate) variant: Variant,
    /// Seed of this repetition, which is the same for all variants.
    pub(crate) seed: u32,
    /// The daemons of Express; `None` if the variant needs no daemons.
    pub(crate) overlay: Option<Overlay<'a>>,
    /// Directory for output and other files of programs.
    pub(crate) directory: &'a Path,
}

impl Stage<'_> {
    /// Returns the network whose addresses the programs use: the fabric itself, or the overlay.
    pub(crate) fn network(&self) -> Network {
        self.variant.network()
    }

    /// Returns the address of a host that programs use.
    pub(crate) fn address(&self, host: HostId) -> Result<IpAddr> {
        self.fabric.address_in(host, self.network())
    }

    /// Sets the number of MPTCP subflows in the hosts, as the variant requires. It is reset when
    /// the result is dropped.
    pub(crate) fn subflows(&self) -> Result<Subflows<'_>> {
        Subflows::set(self.fabric, self.variant.mptcp_subflows(), self.network().family())
    }

    /// Returns the source port of the first connection. It is derived from the seed, so that the
    /// paths of all variants of a repetition collide in the same way.
    pub(crate) fn first_port(&self) -> Option<u16> {
        let number = u32::try_from(CHOSEN_PORTS.len()).ok()?;
        let port =
            u32::from(*CHOSEN_PORTS.start()) + self.seed.wrapping_mul(2_654_435_761) % number;
        u16::try_from(port).ok()
    }

    /// Returns the parameters of TCP connections between pairs of hosts, for the measured
    /// transport.
    pub(crate) fn flows(&self, pairs: &[(HostId, HostId)], flows_per_pair: usize) -> Flows {
        Flows {
            pairs: pairs.to_vec(),
            flows_per_pair,
            network: self.network(),
            congestion: self.variant.congestion(),
            mptcp_subflows: self.variant.mptcp_subflows(),
            first_port: self.first_port(),
        }
    }
}

/// Returns the first `count` hosts of a leaf.
pub(crate) fn hosts(leaf: u16, count: u16) -> impl Iterator<Item = HostId> {
    (0..count).map(move |host| HostId { leaf, host })
}

/// Describes the links and queues of a fabric in words.
pub(crate) fn describe(config: &FabricConfig) -> String {
    format!(
        "{} leaves x {} hosts at {} Mb/s, {} spines at {} Mb/s a link, {} KB queues, MTU {}",
        config.leaves,
        config.hosts_per_leaf,
        config.host_rate_mbps,
        config.spines,
        config.uplink_rate_mbps,
        config.queue_bytes / 1000,
        config.mtu
    )
}

/// Formats a number of bytes as `512 KB` or `2 MB`, with units that are powers of 1024.
pub(crate) fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MB", bytes >> 20) } else { format!("{} KB", bytes >> 10) }
}

/// Joins parts of a list into names of cases. The list was split at its commas, but names may
/// contain commas themselves. If several names match, the longest name is used.
fn whole_names(parts: &[String], names: &[String]) -> Vec<String> {
    let mut whole = Vec::new();
    let mut rest = parts;
    while let Some(first) = rest.first() {
        let joined = (1..=rest.len()).rev().map(|count| (count, rest[..count].join(",")));
        let mut named = joined.map(|(count, text)| (count, text.trim().to_owned()));
        let (count, name) = named
            .find(|(_, text)| names.contains(text))
            .unwrap_or_else(|| (1, first.trim().to_owned()));
        whole.push(name);
        rest = &rest[count..];
    }
    whole
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeSet;

    pub(crate) fn options() -> Options {
        Options {
            variants: None,
            repetitions: None,
            seconds: None,
            spines: None,
            only_cases: Vec::new(),
            quick: false,
            seed: 1,
            keep: false,
            memcached: false,
            rate: None,
            threads: None,
            program: "srd".into(),
            realtime_priority: None,
            encrypted: true,
            mpirun: None,
            provider: None,
            cache: CACHE.into(),
            name: "exp".into(),
        }
    }

    #[test]
    fn every_case_has_a_name_of_its_own_and_a_valid_fabric() {
        for quick in [false, true] {
            let options = Options { quick, ..options() };
            for experiment in ALL {
                let cases = (experiment.cases)(&options);
                assert!(!cases.is_empty(), "{}", experiment.name);
                let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
                assert_eq!(names.len(), cases.len(), "{}", experiment.name);
                for case in &cases {
                    case.fabric.validate().unwrap();
                    assert!(case.hosts.len() >= 2, "{}", case.name);
                    for host in &case.hosts {
                        case.fabric.check_host(*host).unwrap();
                    }
                }
            }
        }
    }

    /// The command line splits a list of names at each comma.
    #[test]
    fn names_of_cases_may_have_commas() {
        let names = ["idle", "spine dies", "spine dies, 16 flows"].map(String::from);
        let whole = |text: &str| {
            let parts: Vec<String> = text.split(',').map(String::from).collect();
            whole_names(&parts, &names)
        };
        assert_eq!(whole("spine dies, 16 flows"), ["spine dies, 16 flows"]);
        assert_eq!(whole("idle,spine dies, 16 flows"), ["idle", "spine dies, 16 flows"]);
        assert_eq!(whole("spine dies, idle"), ["spine dies", "idle"]);
        assert_eq!(whole("spine dies, 17 flows"), ["spine dies", "17 flows"]);
        let options =
            Options { only_cases: vec!["spine dies".into(), " 16 flows".into()], ..options() };
        let cases = find("failover").unwrap().chosen_cases(&options).unwrap();
        assert_eq!(cases.iter().map(|case| &*case.name).collect::<Vec<_>>(), [&names[2]]);
    }

    #[test]
    fn cases_are_chosen_by_name_and_an_unknown_one_is_refused() {
        let chosen = |name: &str| {
            let options = Options { only_cases: vec![name.into()], ..options() };
            find("video").unwrap().chosen_cases(&options)
        };
        assert_eq!(chosen("incast").unwrap().len(), 1);
        let error = chosen("nonesuch").err().unwrap().to_string();
        assert!(
            error.contains(
                "case = nonesuch: must be one of `video`: collisions; incast; idle; HD collisions"
            ),
            "{error}"
        );
    }

    /// Regression: a fabric whose only spine was to die was measured for minutes, until the lab
    /// refused the fault.
    #[test]
    fn regression_the_only_spine_of_a_fabric_cannot_die() {
        let hadoop = find("hadoop").unwrap();
        let check = |spines, case: &str| {
            let only_cases = if case.is_empty() { Vec::new() } else { vec![case.into()] };
            hadoop.check(&Options { spines: Some(spines), only_cases, ..options() })
        };
        let refused = "spines = 1: must be 2 or more for the case `terasort 100 Mb/s dead spine`";
        for case in ["", "terasort 100 Mb/s dead spine"] {
            let error = check(1, case).expect_err("no spine is left").to_string();
            assert!(error.starts_with(refused), "{error}");
            assert_eq!(check(2, case), Ok(()));
        }
        assert_eq!(check(1, "terasort 100 Mb/s"), Ok(()));
        let quick = Options { spines: Some(1), quick: true, ..options() };
        assert_eq!(hadoop.check(&quick), Ok(()), "the short form has no dead spine");
    }

    #[test]
    fn what_is_to_be_fetched_is_known_before_anything_starts() {
        let fetched: Vec<_> =
            ALL.iter().filter_map(|all| Some((all.name, all.fetched()?))).collect();
        let each = [
            ("hadoop", "hadoop"),
            ("objects", "moto"),
            ("spark", "spark"),
            ("dask", "dask"),
            ("training", "jax"),
            ("training-mpi", "jax"),
        ];
        assert_eq!(fetched, each);
        let options = Options { cache: "/no/such/cache".into(), ..options() };
        assert!(find("incast").unwrap().require(&options).is_ok());
    }

    #[test]
    fn libfabric_is_only_for_programs_that_use_it() {
        let chosen = |name: &str, variants| {
            let options = Options { variants, ..options() };
            find(name).unwrap().chosen_variants(&options)
        };
        let both = vec![Variant::Srd, Variant::Plain];
        assert_eq!(chosen("mpi", Some(both.clone())), Ok(both.clone()));
        assert_eq!(chosen("mpi", None), Ok(vec![Variant::Plain, Variant::Srd]));
        assert_eq!(chosen("incast", None), Ok(vec![Variant::Plain, Variant::Express]));
        let error = chosen("incast", Some(both)).expect_err("refused").to_string();
        assert!(error.starts_with("variants = srd: must be another for `incast`"), "{error}");
    }

    #[test]
    fn names_are_found_and_unique() {
        let names: BTreeSet<_> = ALL.into_iter().map(|experiment| experiment.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(find("incast").is_some() && find("nonesuch").is_none());
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let error = |change: fn(&mut Options)| {
            let mut options = options();
            change(&mut options);
            options.validate().expect_err("refused").to_string()
        };
        assert!(error(|o| o.repetitions = Some(0)).contains("reps = 0: must be 1 to 1000"));
        assert!(error(|o| o.seconds = Some(28_801)).contains("must be 1 to 28800"));
        assert!(error(|o| o.rate = Some(0)).contains("rate = 0: must be 1 to 1000000"));
        assert!(error(|o| o.threads = Some(65)).contains("threads = 65: must be 1 to 64"));
        let starved = error(|o| (o.rate, o.threads) = (Some(2), Some(3)));
        assert!(starved.contains("threads = 3: must be 1 to 2"), "a thread with nothing to ask");
        assert!(error(|o| o.variants = Some(Vec::new())).contains("variants"));
        assert!(error(|o| o.name = "a b".into()).contains("name"));
        assert_eq!(options().validate(), Ok(()));
        let hours = Options { seconds: Some(28_800), ..options() };
        assert_eq!(find("redis").unwrap().validate(&hours), Ok(()));
        let error = find("incast").unwrap().validate(&hours).expect_err("it keeps every flow");
        assert_eq!(error.to_string(), "seconds = 28800: must be 1 to 3600");
    }
}
