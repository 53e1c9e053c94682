//! The experiment `hadoop`: unmodified HDFS, YARN and MapReduce, with jobs that are usual for
//! comparing clusters.

mod cluster;
mod conf;
mod jobs;

use crate::experiment::clusters::machines::UNSHARE;
use crate::experiment::measure::result::{Figure, Measured};
use crate::experiment::{Case, Experiment, Options, Stage, describe, hosts};
use anyhow::{Context, Result};
use cluster::{Cluster, JAVA, Roles};
use jobs::{DfsIo, Sort};
use srd_lab::config::{ConfigError, FabricConfig};
use srd_lab::id::HostId;

const MASTER: HostId = HostId { leaf: 0, host: 0 };
/// Number of spines. The link to each has half the rate of a host's link. Therefore two hosts under
/// a leaf have sufficient capacity, and one TCP connection gets at most half of a host's link.
const SPINES: u16 = 4;
const QUEUE_BYTES: u32 = 100_000;
/// End of the name of the case in which a spine dies, and stays dead until the end of the sort.
const DEAD_SPINE: &str = " dead spine";

/// The experiment `hadoop`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "hadoop",
    summary: "How much faster does Hadoop read, write and sort if each connection has all paths?",
    about: "HDFS, YARN and MapReduce run in hosts of the fabric, a JVM each; the transports differ \
            in the addresses behind the names and in nothing else. `dfsio` has the nodes that \
            store under one leaf and those that compute under the other, so that every byte \
            crosses the spines (`one leaf`: all under one, and none does): TestDFSIO writes four \
            files with one copy and with two, and reads them. Its throughput is that of the tasks, \
            without the starts of JVMs. With two copies each of two nodes that store receives \
            every byte, so their own links are the limit, whatever the spines do; `two copies` has \
            four of them. `terasort` has four workers that do both: TeraGen, TeraSort and \
            TeraValidate, and the run counts only if the output is in order. The CPU share tells \
            whether the network was the limit: above 70 % it was not.",
    repetitions: 3,
    variants: crate::experiment::variant::USUAL,
    programs: |_| vec![JAVA, UNSHARE],
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    let mut all = vec![
        dfsio(options, 200, Placement::TwoLeaves),
        terasort(options, 100, None),
        terasort(options, 50, None),
        terasort(options, 100, Some(jobs::OUTAGE)),
        dfsio(options, 1000, Placement::TwoLeaves),
        dfsio(options, 200, Placement::OneLeaf),
        two_copies(options),
    ];
    all.truncate(options.quick_or(1, all.len()));
    all
}

/// Checks that a spine is left in the case in which one dies. Without one, the sort could not end.
///
/// # Errors
/// If the fabric of that case has one spine.
pub(in crate::experiment) fn check(case: &Case) -> Result<(), ConfigError> {
    let spines = case.fabric.spines;
    if spines > jobs::OUTAGE.spine || !case.name.ends_with(DEAD_SPINE) {
        return Ok(());
    }
    let permitted = format!("2 or more for the case `{}`, or name other cases", case.name);
    Err(ConfigError { field: "spines", value: spines.to_string(), permitted })
}

fn fabric(options: &Options, rate_mbps: u32) -> FabricConfig {
    FabricConfig {
        hosts_per_leaf: 3,
        spines: options.spines.unwrap_or(SPINES),
        host_rate_mbps: rate_mbps,
        uplink_rate_mbps: rate_mbps / 2,
        queue_bytes: QUEUE_BYTES,
        ..FabricConfig::default()
    }
}

fn workers(leaf: u16, count: u16) -> impl Iterator<Item = HostId> {
    hosts(leaf, 1 + count).skip(1)
}

/// Placement of the nodes that store files and of the nodes that run tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Placement {
    TwoLeaves,
    OneLeaf,
}

fn dfsio(options: &Options, rate_mbps: u32, placement: Placement) -> Case {
    let mut fabric = fabric(options, rate_mbps);
    let each = options.quick_or(1, 2);
    let mut roles = Roles {
        master: MASTER,
        data: workers(0, each).collect(),
        compute: workers(1, each).collect(),
    };
    let mut name = format!("dfsio {rate_mbps} Mb/s");
    if placement == Placement::OneLeaf {
        name += " one leaf";
        fabric.hosts_per_leaf = 1 + 2 * each;
        roles.compute = workers(0, 2 * each).skip(each.into()).collect();
    }
    let work = if options.quick { DfsIo { files: 1, file_mb: 16 } } else { DfsIo::default() };
    let DfsIo { files, file_mb } = work;
    let setting = format!("{files} files of {file_mb} MB");
    case(options, name, setting, fabric, roles, move |stage, cluster, roles| {
        measure_dfsio(stage, cluster, roles, work)
    })
}

/// Returns the case with four nodes that store files and four that run tasks. Their links have the
/// capacity for two copies of every byte, so the spines are the limit.
fn two_copies(options: &Options) -> Case {
    const NODES: u16 = 4;
    const RATE_MBPS: u32 = 100;
    let fabric = FabricConfig { hosts_per_leaf: 1 + NODES, ..fabric(options, RATE_MBPS) };
    let roles = Roles {
        master: MASTER,
        data: workers(0, NODES).collect(),
        compute: workers(1, NODES).collect(),
    };
    let work = DfsIo::default();
    let setting = format!("{} files of {} MB", work.files, work.file_mb);
    let name = format!("dfsio {RATE_MBPS} Mb/s two copies");
    case(options, name, setting, fabric, roles, move |stage, cluster, roles| {
        let mut measured = Measured::default();
        measured.figures.extend(write(stage, roles, work, cluster, 2)?);
        Ok(measured)
    })
}

fn terasort(options: &Options, rate_mbps: u32, outage: Option<jobs::Outage>) -> Case {
    let fabric = fabric(options, rate_mbps);
    let all: Vec<HostId> = workers(0, 2).chain(workers(1, 2)).collect();
    let roles = Roles { master: MASTER, data: all.clone(), compute: all };
    let sort = Sort { outage, ..Sort::default() };
    let dies = if outage.is_some() { DEAD_SPINE } else { "" };
    let setting = format!("{} MB of records", sort.rows / 10_000);
    let name = format!("terasort {rate_mbps} Mb/s{dies}");
    case(options, name, setting, fabric, roles, move |stage, cluster, _| sort.run(stage, cluster))
}

/// Creates a case that starts a cluster with these roles, and measures on it.
fn case(
    options: &Options,
    name: String,
    setting: String,
    fabric: FabricConfig,
    roles: Roles,
    measure: impl Fn(&Stage<'_>, &Cluster<'_>, &Roles) -> Result<Measured> + 'static,
) -> Case {
    let cache = options.cache.clone();
    Case {
        name,
        setting: format!("{setting}; {}", describe(&fabric)),
        hosts: roles.hosts(),
        fabric,
        only: None,
        measure: Box::new(move |stage| {
            cluster::check(stage.variant)?;
            let cluster = Cluster::up(stage, &roles, &cache)?;
            measure(stage, &cluster, &roles)
        }),
    }
}

fn measure_dfsio(
    stage: &Stage<'_>,
    cluster: &Cluster<'_>,
    roles: &Roles,
    work: DfsIo,
) -> Result<Measured> {
    let mut measured = Measured::default();
    for copies in 1..=roles.data.len().min(WRITES.len()) {
        measured.figures.extend(write(stage, roles, work, cluster, copies)?);
    }
    let seen = work.read(cluster).context("read")?;
    let throughput = Figure::new("read", "MB/s a file", seen.throughput);
    let ideal = ideal(stage, roles.compute.len(), work);
    measured.figures.insert(0, throughput.beside(ideal, "line rate of the readers"));
    measured.figures.insert(1, Figure::new("average IO rate of reads", "MB/s a file", seen.rate));
    measured.figures.push(Figure::new("time to read", "s", seen.seconds));
    Ok(measured)
}

/// Writes the files of TestDFSIO with `copies` copies each. Returns the throughput, the average IO
/// rate and the time.
fn write(
    stage: &Stage<'_>,
    roles: &Roles,
    work: DfsIo,
    cluster: &Cluster,
    copies: usize,
) -> Result<[Figure; 3]> {
    let [throughput, rate, time] = WRITES[copies - 1];
    let seen = work.write(cluster, copies).context(throughput)?;
    // Every copy is sent to one of the nodes that store files.
    let ideal = ideal(stage, roles.data.len(), work) / copies as f64;
    let throughput = Figure::new(throughput, "MB/s a file", seen.throughput);
    Ok([
        throughput.beside(ideal, "line rate of the receivers"),
        Figure::new(rate, "MB/s a file", seen.rate),
        Figure::new(time, "s", seen.seconds),
    ])
}

/// Returns the rate of the links of `nodes` nodes, divided by the number of files that are
/// transferred at the same time, in MB/s for each file.
fn ideal(stage: &Stage<'_>, nodes: usize, work: DfsIo) -> f64 {
    let config = stage.fabric.config();
    let link = config.goodput_mbps(config.host_rate_mbps) * 1e6 / 8.0 / f64::from(1 << 20);
    link * nodes as f64 / f64::from(work.files)
}

/// Names of the three figures of a write with one copy, and of a write with two copies.
const WRITES: [[&str; 3]; 2] = [
    ["write, one copy", "average IO rate of writes, one copy", "time to write, one copy"],
    ["write, two copies", "average IO rate of writes, two", "time to write, two"],
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::options;

    #[test]
    fn two_copies_are_written_to_more_nodes_than_two() {
        let case = two_copies(&options());
        let under = |leaf| case.hosts.iter().filter(|host| host.leaf == leaf).count();
        assert_eq!((under(0), under(1)), (5, 4), "a master, four store, four compute");
    }

    #[test]
    fn nodes_that_store_do_not_compute() {
        for placement in [Placement::TwoLeaves, Placement::OneLeaf] {
            let case = dfsio(&options(), 200, placement);
            assert_eq!(case.hosts.len(), 5, "{placement:?}: a master, two store, two compute");
            let leaves = case.hosts.iter().filter(|host| host.leaf == 1).count();
            assert_eq!(leaves, if placement == Placement::OneLeaf { 0 } else { 2 });
        }
    }
}
