//! Experiments with real programs, with and without ENA Express in one run.
//!
//! An experiment is a list of cases; a case is a fabric and a measurement in it. All variants run
//! in the same fabric, over the same links and queues, one after the other; every second
//! repetition runs them in the opposite order. The *programs* are the same in all variants, and
//! only the addresses that they use differ.
//!
//! | module | content |
//! |---|---|
//! | [`variant`] | the transports below the programs |
//! | [`mod@run`] | cases, repetitions and variants in turn |
//! | `paths`, `faults`, `load`, `clusters` | the experiments, one in each module |
//! | `measure` | load generators, and figures of results |
//! | [`show`], [`mod@page`] | results as tables for a terminal, and as a page with charts |

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

/// Longest run of an experiment that keeps only a few bytes for each request or frame.
const SECONDS_MAX: u64 = 8 * 3600;
/// Longest run of the other experiments.
const SECONDS_MAX_SHORT: u64 = 3600;

/// Options of the caller of an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// Transports, in their order of the first repetition; default: those of the experiment.
    pub variants: Option<Vec<Variant>>,
    /// Number of repetitions; default: that of the experiment.
    pub repetitions: Option<u32>,
    /// Length of one run; default: that of the experiment. Experiments that count rounds instead
    /// scale their number.
    pub seconds: Option<u64>,
    /// Spines, for experiments that do not prescribe them.
    pub spines: Option<u16>,
    /// Names of the cases to run; all cases if the list is empty.
    pub only_cases: Vec<String>,
    /// One short repetition of the smallest case: a smoke test, not a measurement.
    pub quick: bool,
    /// Seed of hashes, ports and arrivals.
    pub seed: u32,
    /// Leaves the last fabric and the files of the daemons behind.
    pub keep: bool,
    /// Uses memcached in place of Redis.
    pub memcached: bool,
    /// Requests per second of `redis`; default: its own rate.
    pub rate: Option<u32>,
    /// Threads that send requests, for `redis`; default: one.
    pub threads: Option<u32>,
    /// The `srd` program, for the daemons of Express.
    pub program: PathBuf,
    /// Real-time priority of the daemons; with `None`, they run at normal priority.
    pub realtime_priority: Option<u8>,
    /// Whether Express and the libfabric provider encrypt.
    pub encrypted: bool,
    /// Launcher of the MPI that is measured; default: `mpirun`.
    pub mpirun: Option<PathBuf>,
    /// The libfabric provider, or its directory; with `None`, the usual places are searched.
    pub provider: Option<PathBuf>,
    /// Directory of the programs that `srd lab fetch` fetched.
    pub cache: PathBuf,
    /// Name of the fabric.
    pub name: String,
}

impl Options {
    /// Checks the ranges of the options.
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

    /// Returns the length of a run, from the experiment's default and that of a smoke test.
    fn seconds_or(&self, normal: u64, quick: u64) -> u64 {
        self.seconds.unwrap_or(if self.quick { quick } else { normal })
    }

    /// Whether a transport is among the chosen ones.
    fn compares(&self, variant: Variant) -> bool {
        self.variants.as_ref().is_some_and(|variants| variants.contains(&variant))
    }

    /// Returns the number of cases: a smoke test runs the first few, or all that are chosen by
    /// name.
    fn cases_or(&self, quick: usize, normal: usize) -> usize {
        if self.quick && self.only_cases.is_empty() { quick } else { normal }
    }

    /// Chooses the smaller number for a smoke test.
    fn quick_or<T>(&self, quick: T, normal: T) -> T {
        if self.quick { quick } else { normal }
    }
}

/// An experiment, as `--list` shows it.
#[derive(Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The question, in one sentence.
    pub summary: &'static str,
    /// Method of the measurement, in a paragraph.
    pub about: &'static str,
    /// Default number of repetitions.
    pub repetitions: u32,
    /// Default transports.
    pub variants: &'static [Variant],
    /// Programs that must be installed.
    pub(crate) programs: fn(&Options) -> Vec<Program>,
    /// The cases.
    pub(crate) cases: fn(&Options) -> Vec<Case>,
}

/// All experiments.
pub const ALL: [&Experiment; 22] = [
    &paths::single_flow::EXPERIMENT,
    &paths::nconnect::EXPERIMENT,
    &load::redis::EXPERIMENT,
    &load::video::EXPERIMENT,
    &load::incast::EXPERIMENT,
    &faults::failover::EXPERIMENT,
    &load::fairness::EXPERIMENT,
    &paths::collisions::EXPERIMENT,
    &faults::loss::EXPERIMENT,
    &paths::ordering::EXPERIMENT,
    &faults::flood::EXPERIMENT,
    &clusters::shuffle::EXPERIMENT,
    &load::nfs::EXPERIMENT,
    &clusters::hadoop::EXPERIMENT,
    &clusters::records::spark::EXPERIMENT,
    &clusters::records::dask::EXPERIMENT,
    &clusters::records::ray::EXPERIMENT,
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
    /// Returns the names of its cases under these options.
    #[must_use]
    pub fn case_names(&self, options: &Options) -> Vec<String> {
        (self.cases)(options).into_iter().map(|case| case.name).collect()
    }

    /// Returns the chosen cases.
    ///
    /// # Errors
    /// The experiment has no case of that name.
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
        Ok(cases)
    }

    /// Checks the chosen options, before anything starts.
    ///
    /// # Errors
    /// An option is out of its range, or is not one of this experiment's.
    pub fn check(&self, options: &Options) -> Result<(), ConfigError> {
        self.validate(options)?;
        let variants = Some(self.chosen_variants(options)?);
        self.chosen_cases(&Options { variants, ..options.clone() }).map(drop)
    }

    /// Checks that all its programs are installed, or fetched.
    ///
    /// # Errors
    /// A program is missing: [`MissingPrograms`], [`NotFetched`].
    pub fn require(&self, options: &Options) -> Result<()> {
        let variants = Some(self.chosen_variants(options)?);
        let options = &Options { variants, ..options.clone() };
        let mut needed = self.programs(options);
        needed.extend(measure::programs::of_variants(options));
        measure::programs::require(&needed)?;
        self.fetched().map_or(Ok(()), |name| check_fetched(name, &options.cache))
    }

    /// Returns the name that `srd lab fetch` needs for this experiment, if any.
    #[must_use]
    pub fn fetched(&self) -> Option<&'static str> {
        clusters::fetched::needed_by(self.name)
    }

    /// Checks options whose range depends on the experiment.
    ///
    /// # Errors
    /// A run would be too long.
    fn validate(&self, options: &Options) -> Result<(), ConfigError> {
        options.validate()?;
        let long =
            [load::redis::EXPERIMENT.name, load::video::EXPERIMENT.name].contains(&self.name);
        let most = if long { SECONDS_MAX } else { SECONDS_MAX_SHORT };
        check("seconds", options.seconds.unwrap_or(1), 1..=most)
    }

    /// Returns the transports to compare under these options.
    ///
    /// # Errors
    /// Its programs cannot use one of the transports.
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

/// Measurement of a case, in a stage that is ready.
type Measure = Box<dyn Fn(&mut Stage<'_>) -> Result<measure::result::Measured>>;

/// One setting of an experiment.
pub(crate) struct Case {
    /// Its name; unique within the experiment.
    pub(crate) name: String,
    /// Links, queues and loads in words.
    pub(crate) setting: String,
    /// The fabric.
    pub(crate) fabric: FabricConfig,
    /// The hosts that take part; with Express each gets a daemon.
    pub(crate) hosts: Vec<HostId>,
    /// The only variant that the case supports, if there is one.
    pub(crate) only: Option<Variant>,
    /// The measurement.
    pub(crate) measure: Measure,
}

/// A fabric with one variant in place, ready to be measured in.
pub(crate) struct Stage<'a> {
    /// The fabric.
    pub(crate) fabric: &'a Fabric,
    /// The transport that is measured.
    pub(crate) variant: Variant,
    /// Seed of this repetition: the same for all variants.
    pub(crate) seed: u32,
    /// The daemons, if the variant needs them.
    pub(crate) overlay: Option<Overlay<'a>>,
    /// Directory for files of programs.
    pub(crate) directory: &'a Path,
}

impl Stage<'_> {
    /// Returns the network whose addresses the programs use.
    pub(crate) fn network(&self) -> Network {
        self.variant.network()
    }

    /// Returns the address that programs use for a host.
    pub(crate) fn address(&self, host: HostId) -> Result<IpAddr> {
        self.fabric.address_in(host, self.network())
    }

    /// Sets the MPTCP subflows of the variant on the hosts, for programs, as long as the result
    /// lives.
    pub(crate) fn subflows(&self) -> Result<Subflows<'_>> {
        Subflows::set(self.fabric, self.variant.mptcp_subflows(), self.network().family())
    }

    /// Source port of the first measured connection. The port is derived from the seed, so that
    /// all variants of a repetition have the same hash collisions.
    pub(crate) fn first_port(&self) -> Option<u16> {
        let number = u32::try_from(CHOSEN_PORTS.len()).ok()?;
        let port =
            u32::from(*CHOSEN_PORTS.start()) + self.seed.wrapping_mul(2_654_435_761) % number;
        u16::try_from(port).ok()
    }

    /// Returns parameters for TCP connections between hosts, with the settings of the variant.
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

/// Returns the ids of the first hosts of a leaf.
pub(crate) fn hosts(leaf: u16, count: u16) -> impl Iterator<Item = HostId> {
    (0..count).map(move |host| HostId { leaf, host })
}

/// Describes links and queues of a fabric.
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

/// Formats a size in its usual unit.
pub(crate) fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MB", bytes >> 20) } else { format!("{} KB", bytes >> 10) }
}

/// Joins the parts of a list that was split at its commas into names, which may contain commas
/// themselves. Where several names match, the longest one counts.
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

    /// The command line splits names at each comma.
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

    #[test]
    fn what_is_to_be_fetched_is_known_before_anything_starts() {
        let fetched: Vec<_> =
            ALL.iter().filter_map(|all| Some((all.name, all.fetched()?))).collect();
        let each = ["hadoop", "spark", "dask", "ray"].map(|name| (name, name));
        assert_eq!(fetched, [&each[..], &[("training", "jax"), ("training-mpi", "jax")]].concat());
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
