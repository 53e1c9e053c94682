//! The workload of a scenario: flows, operations of ranks, or background load.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use srd_proto::rng::Rng;

use super::topology::GBPS;
use super::{Bytes, ScenarioError, us_to_ps};
use crate::engine::fault::Fault;
use crate::engine::hash;
use crate::engine::node::{HostId, PROTOCOL_UDP};
use crate::engine::topology::Topology;
use crate::runs::files;
use crate::workload::pattern::{self, Incast, Poisson};
use crate::workload::sizes::Sizes;
use crate::workload::{BACKGROUND_PORT, BackgroundPlan, Workload, WorkloadError, chakra, cm, goal};

/// Selection of hosts: a number of hosts that the pattern chooses, or a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Hosts {
    /// Number of hosts, which the pattern chooses.
    Count(u32),
    /// Numbers of the hosts.
    List(Vec<u32>),
}

/// Unit of the field `start` in a connection matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeUnitSpec {
    /// Picoseconds.
    Ps,
    /// Microseconds.
    #[default]
    Us,
}

/// Pattern of flows, with its parameters, or a file that describes flows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum WorkloadSpec {
    /// Many senders to one receiver. All flows of a round start together. With several `rounds`,
    /// the next round starts when all flows of a round are done.
    Incast {
        /// The senders: a number of hosts, spread over the network, or a list of hosts.
        senders: Hosts,
        /// Number of the receiving host.
        #[serde(default)]
        receiver: u32,
        /// Number of flows from each sender.
        #[serde(default = "one")]
        flows_per_sender: u32,
        /// Bytes of each flow; `"endless"` gives a persistent incast.
        bytes: Bytes,
        /// Number of rounds of the incast.
        #[serde(default = "one")]
        rounds: u32,
        /// Time in microseconds at which the first round starts.
        #[serde(default)]
        start_us: f64,
    },
    /// Every host sends to one other host and receives from one other host. The pairs are random.
    Permutation {
        /// Number of flows of each pair of hosts.
        #[serde(default = "one")]
        flows_per_host: u32,
        /// Bytes of each flow.
        bytes: Bytes,
    },
    /// Every host sends to the host that is half way round the network: half of the host numbers
    /// away.
    Tornado {
        /// Number of flows of each pair of hosts.
        #[serde(default = "one")]
        flows_per_host: u32,
        /// Bytes of each flow.
        bytes: Bytes,
    },
    /// Host `from + i` sends to host `to + i`, for `i` from 0 to `hosts - 1`.
    RackToRack {
        /// Number of the first sender.
        from: u32,
        /// Number of the first receiver.
        to: u32,
        /// Number of pairs of hosts.
        hosts: u32,
        /// Number of flows of each pair of hosts.
        #[serde(default = "one")]
        flows_per_pair: u32,
        /// Bytes of each flow.
        bytes: Bytes,
    },
    /// Flows between listed pairs of hosts.
    Pairs {
        /// Sender and receiver of each pair.
        pairs: Vec<[u32; 2]>,
        /// Number of flows of each pair of hosts.
        #[serde(default = "one")]
        flows_per_pair: u32,
        /// Bytes of each flow.
        bytes: Bytes,
        /// Time in microseconds at which the flows start.
        #[serde(default)]
        start_us: f64,
    },
    /// Every host sends to every other host.
    AllToAll {
        /// The hosts: a number of hosts counted from host 0, or a list; all hosts if absent.
        hosts: Option<Hosts>,
        /// Bytes of each flow.
        bytes: Bytes,
        /// Number of flows that a host sends at a time; all flows if absent.
        at_once: Option<u32>,
    },
    /// A ring all-reduce, in which each step sends a part of the data to the next host of the ring.
    AllReduce {
        /// The hosts: a number of hosts counted from host 0, or a list in ring order; all hosts if
        /// absent.
        hosts: Option<Hosts>,
        /// Bytes of the reduced data on each host.
        bytes: Bytes,
    },
    /// Flows between random hosts, with random sizes and random times of arrival (a Poisson
    /// process).
    Poisson {
        /// Average load of the hosts' links, as a share of their speed.
        load: f64,
        /// Distribution of flow sizes: `web-search`, `data-mining`, `hadoop`, `ali-storage`, or a
        /// CSV file.
        sizes: String,
        /// Time in microseconds after which no flow starts.
        duration_us: f64,
    },
    /// Flows from a connection matrix in htsim's format.
    Matrix {
        /// Path of the connection matrix, relative to the scenario's directory.
        path: PathBuf,
        /// Unit of the field `start` in the file.
        #[serde(default)]
        time_unit: TimeUnitSpec,
    },
    /// Operations of ranks from a GOAL file.
    Goal {
        /// Path of the GOAL file, relative to the scenario's directory.
        path: PathBuf,
        /// Hosts of the ranks, in the order of the ranks: a number of hosts, or a list; all hosts
        /// if absent.
        hosts: Option<Hosts>,
    },
    /// Calculations and messages of ranks from the files of a Chakra execution trace.
    Chakra {
        /// Prefix of the names of the trace's files, relative to the scenario's directory. The file
        /// of rank 0 is `PATH.0.et`.
        path: PathBuf,
        /// Path of a file of process groups: a JSON object with the ranks of each group.
        groups: Option<PathBuf>,
        /// Hosts of the ranks, in the order of the ranks: a number of hosts, or a list; all hosts
        /// if absent.
        hosts: Option<Hosts>,
    },
    /// Background load: a flow of fixed rate on a single path, without acknowledgements and
    /// congestion control.
    Background {
        /// Number of the sending host.
        src: u32,
        /// Number of the receiving host.
        dst: u32,
        /// Rate on the wire, in Gb/s.
        gbps: f64,
        /// Bytes of a packet on the wire; absent means the packet size of the scenario.
        packet_bytes: Option<u16>,
        /// Time in microseconds at which the flow begins.
        #[serde(default)]
        start_us: f64,
        /// Time in microseconds at which the flow ends; absent means that it does not end.
        stop_us: Option<f64>,
        /// Name of a port that must be on the flow's path. The source port of the flow is chosen
        /// accordingly.
        through: Option<String>,
        /// Source port of the flow, if `through` is absent.
        src_port: Option<u16>,
    },
}

fn one() -> u32 {
    1
}

/// Network and settings from which a workload is built.
pub(super) struct WorkloadContext<'a> {
    pub(super) topology: &'a Topology,
    pub(super) directory: &'a Path,
    pub(super) packet_bytes: u16,
}

impl From<WorkloadError> for ScenarioError {
    fn from(error: WorkloadError) -> Self {
        Self(error.0)
    }
}

fn first_hosts(hosts: Option<&Hosts>, all: u32) -> Result<Vec<u32>, ScenarioError> {
    match hosts {
        None => Ok((0..all).collect()),
        Some(Hosts::List(list)) => Ok(list.clone()),
        Some(Hosts::Count(n)) if *n <= all => Ok((0..*n).collect()),
        Some(Hosts::Count(n)) => {
            Err(ScenarioError(format!("{n} hosts, but the network has {all}")))
        }
    }
}

impl WorkloadSpec {
    /// Returns the workload, and the faults that a connection matrix contains.
    pub(super) fn plan(
        &self,
        place: &WorkloadContext<'_>,
        rng: &mut Rng,
    ) -> Result<(Workload, Vec<Fault>), ScenarioError> {
        let all = place.topology.hosts;
        let workload = match self {
            Self::Incast { .. } => self.incast(all)?,
            Self::Permutation { flows_per_host, bytes } => {
                pattern::permutation(all, *flows_per_host, bytes.0, rng)?
            }
            Self::Tornado { flows_per_host, bytes } => {
                pattern::tornado(all, *flows_per_host, bytes.0)?
            }
            Self::RackToRack { from, to, hosts, flows_per_pair, bytes } => {
                let pairs = (0..*hosts).map(|i| (from.saturating_add(i), to.saturating_add(i)));
                pattern::pairs(pairs, *flows_per_pair, bytes.0)?
            }
            Self::Pairs { pairs, flows_per_pair, bytes, start_us } => {
                let pairs = pairs.iter().map(|&[src, dst]| (src, dst));
                let mut workload = pattern::pairs(pairs, *flows_per_pair, bytes.0)?;
                workload.delay(us_to_ps("start_us", *start_us)?);
                workload
            }
            Self::AllToAll { hosts, bytes, at_once } => {
                pattern::all_to_all(&first_hosts(hosts.as_ref(), all)?, bytes.0, *at_once)?
            }
            Self::AllReduce { hosts, bytes } => {
                pattern::all_reduce_ring(&first_hosts(hosts.as_ref(), all)?, bytes.0)?
            }
            Self::Poisson { load, sizes, duration_us } => {
                let poisson = Poisson {
                    hosts: all,
                    host_bps: place.topology.host_rate_bps(0),
                    load: *load,
                    sizes: Sizes::find(sizes, place.directory)?,
                    duration_ps: us_to_ps("duration_us", *duration_us)?,
                };
                poisson.plan(rng)?
            }
            Self::Matrix { path, time_unit } => return matrix(place, path, *time_unit),
            Self::Goal { path, hosts } => {
                goal_file(place, path, &first_hosts(hosts.as_ref(), all)?)?
            }
            Self::Chakra { path, groups, hosts } => {
                chakra_files(place, path, groups.as_deref(), &first_hosts(hosts.as_ref(), all)?)?
            }
            Self::Background { .. } => self.background(place)?,
        };
        Ok((workload, Vec::new()))
    }

    fn incast(&self, all: u32) -> Result<Workload, ScenarioError> {
        let Self::Incast { senders, receiver, flows_per_sender, bytes, rounds, start_us } = self
        else {
            unreachable!("called for an incast")
        };
        let senders = match senders {
            Hosts::List(list) => list.clone(),
            Hosts::Count(n) if *n > 0 && *n < all && *receiver < all => {
                Incast::spread(all, *n, *receiver)
            }
            Hosts::Count(n) => {
                let what = format!("{n} senders to host {receiver}, but the network has {all}");
                return Err(ScenarioError(what));
            }
        };
        let incast = Incast {
            senders,
            receiver: *receiver,
            flows_per_sender: *flows_per_sender,
            bytes: bytes.0,
            start_ps: us_to_ps("start_us", *start_us)?,
            rounds: *rounds,
        };
        Ok(incast.plan()?)
    }

    fn background(&self, place: &WorkloadContext<'_>) -> Result<Workload, ScenarioError> {
        let Self::Background {
            src,
            dst,
            gbps,
            packet_bytes,
            start_us,
            stop_us,
            through,
            src_port: port,
        } = self
        else {
            unreachable!("called for background load")
        };
        if !GBPS.contains(gbps) {
            return Err(ScenarioError(format!("`gbps` must be 0.00001 to 100000, not {gbps}")));
        }
        let src_port = match (through, port) {
            (Some(_), Some(_)) => {
                let what = "`through` and `src_port` exclude each other".to_owned();
                return Err(ScenarioError(what));
            }
            (Some(name), None) => port_through(place.topology, *src, *dst, name)?,
            (None, port) => port.unwrap_or(1000),
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 10^4..=10^14
        let rate_bps = (gbps * 1e9).round() as u64;
        let plan = BackgroundPlan {
            src: HostId(*src),
            dst: HostId(*dst),
            rate_bps,
            packet_bytes: packet_bytes.unwrap_or(place.packet_bytes),
            start_ps: us_to_ps("start_us", *start_us)?,
            stop_ps: match stop_us {
                Some(us) => us_to_ps("stop_us", *us)?,
                None => u64::MAX,
            },
            src_port,
        };
        Ok(Workload { background: vec![plan], ..Workload::default() })
    }
}

/// Returns a UDP source port with which packets from `src` to `dst` cross a port named `name`.
fn port_through(topology: &Topology, src: u32, dst: u32, name: &str) -> Result<u16, ScenarioError> {
    let wanted = topology.select(name).map_err(|e| ScenarioError(e.0))?;
    if src >= topology.hosts || dst >= topology.hosts || src == dst {
        return Err(ScenarioError(format!("background load cannot run from {src} to {dst}")));
    }
    (1..=u16::MAX)
        .find(|&port| {
            let hash = hash::five_tuple(src, dst, port, BACKGROUND_PORT, PROTOCOL_UDP);
            topology.path(src, dst, hash).iter().any(|p| wanted.contains(p))
        })
        .ok_or_else(|| ScenarioError(format!("no path from {src} to {dst} uses `{name}`")))
}

fn goal_file(
    place: &WorkloadContext<'_>,
    path: &Path,
    hosts: &[u32],
) -> Result<Workload, ScenarioError> {
    let path = place.directory.join(path);
    let fail = |what: &dyn std::fmt::Display| ScenarioError(format!("{}: {what}", path.display()));
    let parsed = files::bytes(&path)
        .map_err(|e| fail(&e))
        .and_then(|bytes| goal::read(&bytes, hosts).map_err(|e| fail(&e)));
    parsed.map_err(|error| match chakra::prefix_of(&path) {
        Some(prefix) => ScenarioError(format!(
            "{}; it has the name of a Chakra trace: run it with --chakra {}",
            error.0,
            prefix.display()
        )),
        None => error,
    })
}

fn chakra_files(
    place: &WorkloadContext<'_>,
    path: &Path,
    groups: Option<&Path>,
    hosts: &[u32],
) -> Result<Workload, ScenarioError> {
    let path = place.directory.join(path);
    let fail = |path: &Path, what: &dyn std::fmt::Display| {
        ScenarioError(format!("{}: {what}", path.display()))
    };
    let groups = match groups.map(|groups| place.directory.join(groups)) {
        None => chakra::Groups::new(),
        Some(file) => {
            let text = files::text(&file).map_err(|e| fail(&file, &e))?;
            chakra::groups(&text).map_err(|e| fail(&file, &e))?
        }
    };
    let files = chakra::files(&path).map_err(|e| ScenarioError(e.to_string()))?;
    let workload = chakra::read(&files, &groups, hosts).map_err(|e| fail(&path, &e))?;
    if workload.flows.is_empty() {
        let what = format!(
            "no rank sends to another one: nothing crosses the network; a trace has a file for \
             each rank, and this one has {}",
            files.len()
        );
        return Err(fail(&path, &what));
    }
    Ok(workload)
}

fn matrix(
    place: &WorkloadContext<'_>,
    path: &Path,
    unit: TimeUnitSpec,
) -> Result<(Workload, Vec<Fault>), ScenarioError> {
    let path = place.directory.join(path);
    let fail = |what: &dyn std::fmt::Display| ScenarioError(format!("{}: {what}", path.display()));
    let text = files::text(&path).map_err(|e| fail(&e))?;
    let unit = match unit {
        TimeUnitSpec::Ps => cm::TimeUnit::Picoseconds,
        TimeUnitSpec::Us => cm::TimeUnit::Microseconds,
    };
    let matrix = cm::parse(&text, unit).map_err(|e| fail(&e))?;
    matrix.check_hosts(place.topology.hosts).map_err(|e| fail(&e))?;
    let mut faults = Vec::new();
    for failure in &matrix.failures {
        let links = failure.link_name(place.topology).map_err(|e| fail(&e))?;
        faults.push(Fault::LinkDown { links, at_us: 0.0, until_us: None });
    }
    matrix.workload.check(place.topology.hosts).map_err(|e| fail(&e))?;
    Ok((matrix.workload, faults))
}
