//! The experiments `mpi` and `mpi-incast`: MPI operations over kernel TCP and over SRD, compared
//! with the ideal time on the links.

mod ideal;
mod job;
mod outage;

use crate::experiment::measure::programs::Program;
use crate::experiment::measure::result::{Figure, Measured, Samples};
use crate::experiment::{Case, Experiment, Options, Stage, Variant, describe, hosts, size};
use anyhow::Result;
use ideal::Operation;
use job::Job;
pub(in crate::experiment) use job::{NAME as LAUNCHER, Ranks, Setup};
use srd_doctor::mpi::ranks::Measurements;
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use std::num::NonZero;
use std::thread;

/// Rate of a host's link that two cores can handle even if ranks spin on them.
const RATE_MBPS: u32 = 200;
const QUEUE_BYTES: u32 = 100_000;
/// Number of hosts that send in an incast (`SENDERS`), and of ranks in each if there are enough
/// cores (`SENDING_RANKS`).
const SENDERS: u16 = 4;
const SENDING_RANKS: u32 = 12;
const COMPARED: &[Variant] = &[Variant::Plain, Variant::Srd];

/// The experiment `mpi`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "mpi",
    summary: "How long do the operations of MPI take over one path of TCP, and over all of SRD's?",
    about: "A program of ours, compiled with the MPI's own compiler, repeats one operation for a \
            few seconds and checks every word. A time is that of the slowest rank, from when it \
            left a barrier. The ideal is what the busiest link needs for the bytes. `plain` is \
            the MPI's own way over TCP, `srd` libfabric with our provider. Between racks, \
            `collisions` has twice as many uplinks as needed, and TCP's flows meet on some; in \
            `dead spine` the spine that carries most dies silently in mid-run and comes back six \
            seconds later, and silence is the longest time in which no iteration ended. Ranks \
            spin while they wait, so the CPU is always busy, whatever share of it is told: ranks \
            on other hosts outlive who started them.",
    repetitions: 3,
    variants: COMPARED,
    programs,
    cases,
};

/// The experiment `mpi-incast`, in which many ranks send to one rank.
pub(in crate::experiment) const INCAST: Experiment = Experiment {
    name: "mpi-incast",
    summary: "When many ranks send to one at the same moment, when has it everything?",
    about: "4 hosts send to a rank of a fifth: in every round each of their ranks sends one \
            message, all at one moment, and the round is over when the last one is there. 12 \
            ranks on each host where the machine has 12 cores, otherwise as many as it has cores: \
            waiting ranks spin. Times are shown over what the receiver's link needs for the \
            payload.",
    repetitions: 3,
    variants: COMPARED,
    programs,
    cases: incast_cases,
};

pub(in crate::experiment) fn programs(options: &Options) -> Vec<Program> {
    if options.mpirun.is_some() {
        // If the user has selected a launcher, that launcher reports missing programs.
        return Vec::new();
    }
    vec![
        Program { name: "mpirun", package: "openmpi-bin" },
        Program { name: "mpicc", package: "libopenmpi-dev" },
    ]
}

fn cases(options: &Options) -> Vec<Case> {
    use Operation::{Across, AllReduce, AllToAll, Bandwidth, Gather, PingPong};
    let pair = || two_hosts(options);
    let racks = || two_racks(options);
    let mut all = vec![
        case(options, "ping-pong 8 B".into(), pair(), PingPong, 8),
        case(options, "ping-pong 256 KB".into(), pair(), PingPong, 256 << 10),
        case(options, "bandwidth 1 MB".into(), pair(), Bandwidth, 1 << 20),
        case(options, "all-to-all 256 KB".into(), racks(), AllToAll, 256 << 10),
        case(options, "all-reduce 1 MB".into(), racks(), AllReduce, 1 << 20),
        case(options, "gather 256 KB".into(), racks(), Gather, 256 << 10),
        case(options, "collisions 256 KB".into(), many_uplinks(options), Across, 256 << 10),
        outage::case(options, two_racks(options)),
    ];
    all.truncate(options.quick_or(1, all.len()));
    all
}

fn incast_cases(options: &Options) -> Vec<Case> {
    let sizes = [64 << 10, 512 << 10, 2 << 20];
    let chosen = sizes.into_iter().take(options.quick_or(1, sizes.len()));
    chosen.map(|bytes| incast(options, cores(), bytes)).collect()
}

fn incast(options: &Options, cores: u32, bytes: u64) -> Case {
    let fabric = FabricConfig::default();
    let spines = options.spines.unwrap_or(fabric.spines);
    let fabric = FabricConfig { uplink_rate_mbps: fabric.host_rate_mbps, spines, ..fabric };
    let ranks = cores.clamp(1, SENDING_RANKS);
    let root = [(HostId { leaf: 1, host: 0 }, 1)];
    let nodes = root.into_iter().chain(hosts(0, SENDERS).map(|host| (host, ranks))).collect();
    let mut case =
        case(options, size(bytes), RankPlacement { fabric, nodes }, Operation::Incast, bytes);
    if ranks < SENDING_RANKS {
        case.setting = format!(
            "{SENDERS} x {ranks} senders, for {cores} cores ({SENDERS} x {SENDING_RANKS} need \
             {SENDING_RANKS}); {}",
            case.setting
        );
    }
    case
}

/// A fabric, and the number of ranks in each host.
struct RankPlacement {
    fabric: FabricConfig,
    nodes: Vec<(HostId, u32)>,
}

/// Returns a fabric with one host under each leaf, and four paths with a quarter of the rate of a
/// host's link each.
fn two_hosts(options: &Options) -> RankPlacement {
    let fabric = FabricConfig { hosts_per_leaf: 1, ..FabricConfig::default() };
    let spines = options.spines.unwrap_or(fabric.spines);
    let uplink_rate_mbps = (fabric.host_rate_mbps / u32::from(spines)).max(1);
    let fabric = FabricConfig { spines, uplink_rate_mbps, ..fabric };
    RankPlacement { nodes: fabric.hosts().map(|host| (host, 1)).collect(), fabric }
}

/// Returns a fabric with two hosts under each leaf. Four uplinks have half the rate of a host's
/// link each, so together they have enough capacity.
fn two_racks(options: &Options) -> RankPlacement {
    let spines = options.spines.unwrap_or(4);
    let fabric = FabricConfig {
        hosts_per_leaf: 2,
        spines,
        host_rate_mbps: RATE_MBPS,
        uplink_rate_mbps: (2 * RATE_MBPS / u32::from(spines)).max(1),
        queue_bytes: QUEUE_BYTES,
        ..FabricConfig::default()
    };
    RankPlacement { nodes: fabric.hosts().map(|host| (host, 1)).collect(), fabric }
}

/// Returns a fabric with four hosts under each leaf, and eight uplinks with the rate of a host's
/// link. This is twice the necessary capacity.
fn many_uplinks(options: &Options) -> RankPlacement {
    let fabric = FabricConfig {
        hosts_per_leaf: 4,
        spines: options.spines.unwrap_or(8),
        host_rate_mbps: RATE_MBPS,
        uplink_rate_mbps: RATE_MBPS,
        queue_bytes: QUEUE_BYTES,
        ..FabricConfig::default()
    };
    RankPlacement { nodes: fabric.hosts().map(|host| (host, 1)).collect(), fabric }
}

fn case(
    options: &Options,
    name: String,
    place: RankPlacement,
    operation: Operation,
    bytes: u64,
) -> Case {
    let RankPlacement { fabric, nodes } = place;
    let ranks: u32 = nodes.iter().map(|(_, ranks)| ranks).sum();
    let job = Job {
        setup: Setup::of(options),
        operation,
        bytes,
        seconds: options.seconds_or(5, 1),
        nodes,
        yields: ranks > cores(),
    };
    Case {
        name,
        setting: format!("{ranks} ranks for {} s; {}", job.seconds, describe(&fabric)),
        hosts: job.nodes.iter().map(|(host, _)| *host).collect(),
        fabric,
        only: None,
        measure: Box::new(move |stage| measure(stage, &job)),
    }
}

fn measure(stage: &Stage<'_>, job: &Job) -> Result<Measured> {
    let (fabric, taking_part) = (stage.fabric, job.hosts());
    let (dropped, tcp) = (fabric.dropped_packets()?, fabric.tcp_counters(&taking_part)?);
    let seen = job.start(stage)?.finish(stage)?;
    let dropped = fabric.dropped_packets()?.saturating_sub(dropped);
    let tcp = fabric.tcp_counters(&taking_part)?.since(&tcp);
    let mut measured = summarise(&seen, job, fabric.config());
    measured.figures.extend([
        Figure::new("dropped by ports", "packets", dropped as f64),
        Figure::new("TCP timeouts", "", tcp.timeouts as f64),
    ]);
    Ok(measured)
}

impl Job {
    fn hosts(&self) -> Vec<HostId> {
        self.nodes.iter().map(|(host, _)| *host).collect()
    }
}

fn summarise(seen: &Measurements, job: &Job, config: &FabricConfig) -> Measured {
    let ideal = ideal::ideal_us(config, job.operation, job.bytes, &job.nodes);
    let median_us = seen.median_us();
    let mut measured = Measured { notes: vec![seen.mpi.clone()], ..Measured::default() };
    match ideal {
        None => {
            let name = "half a round trip, median";
            measured.figures.push(Figure::new(name, "us", median_us));
            let samples =
                Samples { name: "half a round trip", unit: "us", values: seen.us.clone() };
            measured.samples.push(samples);
        }
        Some(ideal_us) => {
            let bytes = ideal::bytes_between_hosts(job.operation, job.bytes, &job.nodes);
            let ratio = |us: &f64| us / ideal_us;
            measured.figures.extend([
                Figure::new("median", "x ideal", ratio(&median_us)).beside(1.0, "ideal"),
                Figure::new("median time", "ms", median_us / 1e3),
                Figure::new("between hosts", "Mb/s", bytes as f64 * 8.0 / median_us),
            ]);
            let values = seen.us.iter().map(ratio).collect();
            measured.samples.push(Samples { name: "time", unit: "x ideal", values });
        }
    }
    measured.figures.push(Figure::new("iterations", "", seen.us.len() as f64));
    measured
}

pub(in crate::experiment) fn cores() -> u32 {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(cores).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::options;

    #[test]
    fn as_many_senders_as_cores_and_said_so() {
        let few = incast(&options(), 2, 64 << 10);
        assert!(few.setting.starts_with("4 x 2 senders, for 2 cores"), "{}", few.setting);
        let many = incast(&options(), 64, 64 << 10);
        assert!(many.setting.starts_with("49 ranks"), "{}", many.setting);
        assert_eq!(few.hosts[0], HostId { leaf: 1, host: 0 }, "the root is rank 0");
    }

    fn seen(us: &[f64]) -> Measurements {
        let at_ms = us.iter().map(|us| us / 1e3).collect();
        Measurements { begin_ns: 0, mpi: "MPI".into(), hosts: Vec::new(), us: us.to_vec(), at_ms }
    }

    fn job(operation: Operation, bytes: u64) -> (Job, FabricConfig) {
        let RankPlacement { fabric, nodes } = two_hosts(&options());
        let setup = Setup::of(&options());
        (Job { setup, operation, bytes, seconds: 1, nodes, yields: false }, fabric)
    }

    #[test]
    fn times_stand_beside_the_ideal_and_small_messages_alone() {
        let (large, config) = job(Operation::Bandwidth, 1 << 20);
        let ideal_us =
            ideal::ideal_us(&config, large.operation, large.bytes, &large.nodes).unwrap();
        let measured =
            summarise(&seen(&[ideal_us, 4.0 * ideal_us, 9.0 * ideal_us]), &large, &config);
        assert!((measured.figures[0].value - 4.0).abs() < 1e-9);
        let mbps = config.goodput_mbps(config.host_rate_mbps) / 4.0;
        assert!((measured.figures[2].value - mbps).abs() < 1e-6);
        let (small, config) = job(Operation::PingPong, 8);
        let measured = summarise(&seen(&[50.0, 60.0, 90.0]), &small, &config);
        assert_eq!((measured.figures[0].value, measured.figures[0].unit), (60.0, "us"));
    }

    #[test]
    fn a_smoke_test_is_the_smallest_case_alone() {
        let quick = Options { quick: true, ..options() };
        assert_eq!(EXPERIMENT.case_names(&quick), ["ping-pong 8 B"]);
        assert_eq!(INCAST.case_names(&quick), ["64 KB"]);
        assert_eq!(EXPERIMENT.case_names(&options()).len(), 8);
    }
}
