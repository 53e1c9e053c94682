//! Scenarios: a scenario is an experiment as one file, for the command line, tests and plots.
//!
//! A scenario names a network, a workload, faults, values to measure, and the transports to
//! compare. Everything except the network and the workload has a default. [`Scenario::read`] takes
//! a file's text and overrides such as `workload.0.bytes=65536`. An unknown key is an error that
//! names its position.

mod build;
mod card;
mod limits;
mod overrides;
mod roce;
mod srd;
mod tcp;
mod topology;
mod value;
mod workload;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use srd_proto::Duration;

pub use build::Built;
pub use card::CardKnobs;
pub use overrides::Override;
pub use roce::RoceKnobs;
pub use srd::SrdKnobs;
pub use tcp::TcpKnobs;
pub use topology::TopologySpec;
pub use value::Bytes;
pub use workload::{Hosts, WorkloadSpec};

use crate::engine::fault::Fault;
use crate::engine::world::{CaptureRules, PortRules, QueueSize, Sampling, US};

/// Reason why a scenario was refused. The text contains the position and a solution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScenarioError(pub String);

impl std::fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScenarioError {}

/// The transport that every host of a run uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// SRD with adaptive spraying over many paths.
    Srd,
    /// SRD on a single path.
    SrdSingle,
    /// SRD that sprays over its paths without regard to their state.
    SrdBlind,
    /// TCP with CUBIC, SACK and RACK (the TCP model).
    Tcp,
    /// DCTCP (the TCP model). Switches mark packets.
    Dctcp,
    /// RoCE with DCQCN. Switches pause their senders (PFC) and mark packets.
    Roce,
    /// RoCE without DCQCN: only pauses (PFC) slow a sender.
    RocePfc,
    /// TCP with CUBIC from guests whose ENA Express cards carry the TCP packets over SRD.
    Express,
    /// Ranks of a parallel program over EFA's Messaging Layer. Each flow is a message.
    Efa,
    /// Not a transport: the load generator for tests of the engine.
    Blast,
}

impl Transport {
    /// All transports, with their names.
    pub const ALL: [(Self, &str); 10] = [
        (Self::Srd, "srd"),
        (Self::SrdSingle, "srd-single"),
        (Self::SrdBlind, "srd-blind"),
        (Self::Tcp, "tcp"),
        (Self::Dctcp, "dctcp"),
        (Self::Roce, "roce"),
        (Self::RocePfc, "roce-pfc"),
        (Self::Express, "express"),
        (Self::Efa, "efa"),
        (Self::Blast, "blast"),
    ];

    /// Returns the name of the transport.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(t, _)| *t == self).map_or("", |(_, name)| name)
    }

    /// Returns the transport with a name.
    ///
    /// # Errors
    /// If no transport has this name; the text lists the valid names.
    pub fn find(name: &str) -> Result<Self, ScenarioError> {
        let found = Self::ALL.iter().find(|(_, n)| *n == name).map(|(t, _)| *t);
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(_, n)| *n).collect();
            ScenarioError(format!("no transport `{name}`; there are {}", names.join(", ")))
        })
    }
}

/// An experiment: network, workload, faults, values to record, and parameters of the transports.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the scenario. By default it is the name of its file, without the extension.
    #[serde(default)]
    pub name: String,
    /// Purpose of the experiment, in words.
    #[serde(default)]
    pub description: String,
    /// Network of the experiment.
    pub topology: TopologySpec,
    /// Queues of the switches.
    #[serde(default)]
    pub queue: QueueSpec,
    /// Bytes of a full packet on the wire, every header included.
    #[serde(default = "defaults::packet_bytes")]
    pub packet_bytes: u16,
    /// Flows to send. If there are several entries, they run at the same time.
    #[serde(default)]
    pub workload: Vec<WorkloadSpec>,
    /// Faults of links and hosts, with their times.
    #[serde(default)]
    pub fault: Vec<Fault>,
    /// Time in microseconds until switches stop choosing routes over a failed link, and until they
    /// choose a repaired link again. Without this value, switches never react. Routing protocols
    /// take 10 ms to some seconds.
    #[serde(default)]
    pub convergence_us: Option<f64>,
    /// Whether packets with flipped bits reach the hosts, as if checksums missed the errors.
    #[serde(default)]
    pub corruption_undetected: bool,
    /// Values to record over time.
    #[serde(default)]
    pub measure: Measure,
    /// Transports to compare, unless the caller selects other transports.
    #[serde(default = "defaults::transports")]
    pub transports: Vec<Transport>,
    /// Parameters of SRD. Absent parameters have default values.
    #[serde(default)]
    pub srd: SrdKnobs,
    /// Parameters of the TCP model, for TCP, DCTCP and guests behind ENA Express cards.
    #[serde(default)]
    pub tcp: TcpKnobs,
    /// Parameters of RoCE, of DCQCN, and of the lossless switches.
    #[serde(default)]
    pub roce: RoceKnobs,
    /// Parameters of ENA Express cards.
    #[serde(default)]
    pub card: CardKnobs,
    /// Time in microseconds at which the run ends, even if flows are unfinished. Endless flows run
    /// until this time.
    #[serde(default = "defaults::horizon_us")]
    pub horizon_us: f64,
    /// First seed, unless the caller sets another seed.
    #[serde(default = "defaults::one")]
    pub seed: u64,
    /// Number of seeds, unless the caller sets it.
    #[serde(default = "defaults::one")]
    pub seeds: u64,
    /// Directory from which relative paths in the scenario start.
    #[serde(skip)]
    pub directory: PathBuf,
}

mod defaults {
    use super::Transport;

    pub(super) const fn packet_bytes() -> u16 {
        4150
    }

    pub(super) fn transports() -> Vec<Transport> {
        vec![Transport::Srd]
    }

    pub(super) const fn horizon_us() -> f64 {
        10_000_000.0
    }

    pub(super) const fn one() -> u64 {
        1
    }
}

/// Parameters of the queue of every switch port.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSpec {
    /// Size of the queue in bandwidth-delay products (port speed times base round trip). The value
    /// is 5 if neither `bdp` nor `bytes` is given.
    pub bdp: Option<f64>,
    /// Size of the queue in bytes.
    pub bytes: Option<Bytes>,
    /// Bounds of marking in bandwidth-delay products: marks begin at the first bound and are
    /// certain at the second. The values in htsim are 0.2 and 0.8. Without bounds, switches mark
    /// only for DCTCP.
    pub mark_bdp: Option<[f64; 2]>,
    /// Bounds of marking in bytes: marks begin at the first bound and are certain at the second.
    pub mark_bytes: Option<[u64; 2]>,
    /// Whether a full queue trims the payload off a packet instead of dropping the packet.
    #[serde(default)]
    pub trim: bool,
    /// Whether ports send control packets before data packets.
    #[serde(default)]
    pub control_first: bool,
}

/// Marking threshold of DCTCP if the scenario sets no bounds, in bandwidth-delay products. The
/// DCTCP paper (SIGCOMM 2010, section 3.4) recommends a seventh of this product; 0.15 is this
/// value, rounded up.
const DCTCP_MARK_BDP: f64 = 0.15;

impl QueueSpec {
    fn rules(&self, packet_bytes: u16, transport: Transport) -> Result<PortRules, ScenarioError> {
        let fail = |what: &str| Err(ScenarioError(format!("`queue`: {what}")));
        let positive = |bdp: f64| bdp > 0.0 && bdp < 1e9;
        let queue = match (self.bdp, self.bytes) {
            (Some(_), Some(_)) => return fail("`bdp` and `bytes` exclude each other"),
            (Some(bdp), None) if positive(bdp) => QueueSize::Bdp(bdp),
            (Some(_), None) => return fail("`bdp` must be above zero"),
            (None, Some(bytes)) => QueueSize::Bytes(bytes.0),
            (None, None) => QueueSize::Bdp(5.0),
        };
        let mark = match (self.mark_bdp, self.mark_bytes) {
            (Some(_), Some(_)) => return fail("`mark_bdp` and `mark_bytes` exclude each other"),
            (Some([low, high]), None) if positive(high) && (0.0..=high).contains(&low) => {
                Some((QueueSize::Bdp(low), QueueSize::Bdp(high)))
            }
            (None, Some([low, high])) if low <= high => {
                Some((QueueSize::Bytes(low), QueueSize::Bytes(high)))
            }
            (None, None) if transport == Transport::Dctcp => {
                Some((QueueSize::Bdp(DCTCP_MARK_BDP), QueueSize::Bdp(DCTCP_MARK_BDP)))
            }
            (None, None) => None,
            _ => return fail("marks need a lower and then a higher bound"),
        };
        let (trim, control_first) = (self.trim, self.control_first);
        Ok(PortRules { queue, mark, trim, control_first, packet_bytes, ..PortRules::default() })
    }
}

/// Values to record over time, and packets to capture.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Time between samples in microseconds. If it is absent, no values are recorded.
    pub interval_us: Option<f64>,
    /// Whether the goodput of every flow is recorded.
    #[serde(default)]
    pub flows: bool,
    /// Names of ports whose queue length is recorded.
    #[serde(default)]
    pub queues: Vec<String>,
    /// Names of ports whose load is recorded.
    #[serde(default)]
    pub loads: Vec<String>,
    /// Names of ports whose packets are captured, also if `interval_us` is absent.
    #[serde(default)]
    pub capture: Vec<String>,
    /// Largest number of packets in the capture; 100,000 if absent.
    pub capture_packets: Option<u64>,
}

/// Smallest number of samples during the ideal time of the flows.
const SAMPLES_MIN: u64 = 20;
/// Shortest time between samples unless the scenario sets a shorter time: a microsecond.
const SAMPLE_PS_MIN: u64 = 1_000_000;

/// Largest number of packets in a capture, unless the scenario sets it.
const CAPTURE_PACKETS: u64 = 100_000;
const CAPTURE_PACKETS_MAX: u64 = 10_000_000;

impl Measure {
    /// Returns the ports whose packets are captured, and the largest number of packets; `None` if
    /// the scenario requests no capture.
    fn captures(&self) -> Result<Option<CaptureRules>, ScenarioError> {
        let packets_max = self.capture_packets.unwrap_or(CAPTURE_PACKETS);
        if !(1..=CAPTURE_PACKETS_MAX).contains(&packets_max) {
            return Err(ScenarioError(format!(
                "`measure.capture_packets` must be 1 to {CAPTURE_PACKETS_MAX}, not {packets_max}"
            )));
        }
        let ports = self.capture.clone();
        Ok((!ports.is_empty()).then_some(CaptureRules { ports, packets_max }))
    }

    /// Returns the values to record. `ideal_ps` is the shortest possible time of the longest flow.
    /// If flows were made shorter than in the scenario's file, samples are more frequent, so that a
    /// chart has enough points.
    fn sampling(&self, ideal_ps: u64) -> Result<Option<Sampling>, ScenarioError> {
        let Some(interval_us) = self.interval_us else { return Ok(None) };
        if !(0.001..=1e12).contains(&interval_us) {
            return Err(ScenarioError("`measure.interval_us` must be above zero".to_owned()));
        }
        let Self { flows, queues, loads, .. } = self.clone();
        let mut interval_ps = us_to_ps("measure.interval_us", interval_us)?;
        if ideal_ps > 0 {
            interval_ps = interval_ps.min((ideal_ps / SAMPLES_MIN).max(SAMPLE_PS_MIN));
        }
        Ok(Some(Sampling { interval_ps, flows, queues, loads }))
    }
}

/// Converts a time from microseconds to picoseconds. `key` names the value in errors.
fn us_to_ps(key: &str, us: f64) -> Result<u64, ScenarioError> {
    if !(0.0..=1e12).contains(&us) {
        return Err(ScenarioError(format!("`{key}` must be between 0 and 1e12, not {us}")));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within 0..=1e18
    Ok((us * US as f64).round() as u64)
}

/// Sets a parameter, if the scenario contains a value for it.
fn set<T: Copy>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// Sets a time, if the scenario contains a value for it in microseconds.
fn set_us(place: &mut Duration, us: Option<f64>) {
    if let Some(us) = us {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
        let ns = (us * 1000.0).round() as u64;
        *place = Duration::from_nanos(ns);
    }
}

impl Scenario {
    /// Parses a scenario. `origin` names the text in errors. Relative paths in the scenario start
    /// from `directory`.
    ///
    /// # Errors
    /// A description of the first entry that cannot be parsed, with its position.
    pub fn read(
        origin: &str,
        text: &str,
        directory: &Path,
        overrides: &[Override],
    ) -> Result<Self, ScenarioError> {
        let fail = |what: String| ScenarioError(format!("{origin}: {what}"));
        let mut scenario: Self = toml::from_str(text).map_err(|e| fail(e.to_string()))?;
        if !overrides.is_empty() {
            let table = toml::from_str(text).map_err(|e| fail(e.to_string()))?;
            scenario = overrides::apply(table, overrides).map_err(fail)?;
        }
        directory.clone_into(&mut scenario.directory);
        if scenario.packet_bytes < 300 {
            return Err(fail("`packet_bytes` must be at least 300".to_owned()));
        }
        limits::check(&scenario).map_err(fail)?;
        Ok(scenario)
    }

    /// Reads and parses the file of a scenario.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub fn open(path: &Path, overrides: &[Override]) -> Result<Self, ScenarioError> {
        let origin = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|e| ScenarioError(format!("{origin}: {e}")))?;
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        let mut scenario = Self::read(&origin, &text, directory, overrides)?;
        if scenario.name.is_empty() {
            scenario.name =
                path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        }
        Ok(scenario)
    }

    /// Creates the scenario of a topology file and a connection matrix. All other values have their
    /// defaults.
    pub fn from_files(topology: &Path, matrix: &Path, unit: workload::TimeUnitSpec) -> Self {
        let name = matrix.file_stem().map(|s| s.to_string_lossy().into_owned());
        Self {
            name: name.unwrap_or_default(),
            description: format!("{} on {}", matrix.display(), topology.display()),
            topology: TopologySpec::File { path: topology.to_owned() },
            queue: QueueSpec::default(),
            packet_bytes: defaults::packet_bytes(),
            workload: vec![WorkloadSpec::Matrix { path: matrix.to_owned(), time_unit: unit }],
            fault: Vec::new(),
            convergence_us: None,
            corruption_undetected: false,
            measure: Measure::default(),
            transports: defaults::transports(),
            srd: SrdKnobs::default(),
            tcp: TcpKnobs::default(),
            roce: RoceKnobs::default(),
            card: CardKnobs::default(),
            horizon_us: defaults::horizon_us(),
            seed: 1,
            seeds: 1,
            directory: PathBuf::from("."),
        }
    }
}

pub use workload::TimeUnitSpec;

#[cfg(test)]
mod tests;
