//! Hadoop: HDFS, YARN and MapReduce as they are, and the jobs with which clusters are compared.

mod cluster;
mod conf;
mod jobs;

use super::machines::UNSHARE;
use super::result::{Figure, Measured};
use super::{Case, Experiment, Options, Stage, describe, hosts};
use anyhow::{Context, Result};
use cluster::{Cluster, JAVA, Roles};
use jobs::{DfsIo, Sort};
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use std::path::Path;

const MASTER: HostId = HostId { leaf: 0, host: 0 };
/// Spines; each of their links is half a host's, so two hosts under a leaf have all they need, and
/// one TCP connection half a host's link at most.
const SPINES: u16 = 4;
const QUEUE_BYTES: u32 = 100_000;

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "hadoop",
    summary: "How much faster does Hadoop read, write and sort if each connection has all paths?",
    about: "HDFS, YARN and MapReduce run in hosts of the fabric, a JVM each; the transports differ \
            in the addresses behind the names and in nothing else. `dfsio` has the nodes that \
            store under one leaf and those that compute under the other, so that every byte \
            crosses the spines (`one leaf`: all under one, and none does): TestDFSIO writes four \
            files with one copy and with two, and reads them. Its throughput is that of the tasks, \
            without the starts of JVMs. `terasort` has four workers that do both: TeraGen, \
            TeraSort and TeraValidate, and the run counts only if the output is in order. The CPU \
            share tells whether the network was the limit: above 70 % it was not.",
    repetitions: 3,
    variants: super::variant::USUAL,
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
    ];
    all.truncate(options.quick_or(1, all.len()));
    all
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

/// Where the nodes are that store, and those that compute.
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
    let cache = options.cache.clone();
    case(name, setting, fabric, &roles.clone(), move |stage| {
        measure_dfsio(stage, &roles, work, &cache)
    })
}

fn terasort(options: &Options, rate_mbps: u32, outage: Option<jobs::Outage>) -> Case {
    let fabric = fabric(options, rate_mbps);
    let all: Vec<HostId> = workers(0, 2).chain(workers(1, 2)).collect();
    let roles = Roles { master: MASTER, data: all.clone(), compute: all };
    let sort = Sort { outage, ..Sort::default() };
    let dies = if outage.is_some() { " dead spine" } else { "" };
    let setting = format!("{} MB of records", sort.rows / 10_000);
    let cache = options.cache.clone();
    let name = format!("terasort {rate_mbps} Mb/s{dies}");
    case(name, setting, fabric, &roles.clone(), move |stage| {
        cluster::check(stage.variant)?;
        let cluster = Cluster::up(stage, &roles, &cache)?;
        sort.run(stage, &cluster)
    })
}

fn case(
    name: String,
    setting: String,
    fabric: FabricConfig,
    roles: &Roles,
    measure: impl Fn(&mut Stage<'_>) -> Result<Measured> + 'static,
) -> Case {
    Case {
        name,
        setting: format!("{setting}; {}", describe(&fabric)),
        hosts: roles.hosts(),
        fabric,
        only: None,
        measure: Box::new(measure),
    }
}

fn measure_dfsio(stage: &Stage<'_>, roles: &Roles, work: DfsIo, cache: &Path) -> Result<Measured> {
    cluster::check(stage.variant)?;
    let cluster = Cluster::up(stage, roles, cache)?;
    let nodes = roles.data.len().min(roles.compute.len()) as f64;
    let config = stage.fabric.config();
    let mb = |mbps: f64| mbps * 1e6 / 8.0 / f64::from(1 << 20);
    // All links of the nodes that store, or that compute, by as many files at a time.
    let ideal = mb(config.goodput_mbps(config.host_rate_mbps)) * nodes / f64::from(work.files);
    let mut measured = Measured::default();
    // With as many copies as nodes that store, each of them receives every byte.
    let copies = roles.data.len().min(2);
    for (number, names) in (1..=copies).zip(WRITES) {
        let seen = work.write(&cluster, number).context(names[0])?;
        let ideal = ideal / number as f64;
        let throughput = Figure::new(names[0], "MB/s a file", seen.throughput);
        measured.figures.push(throughput.beside(ideal, "line rate of the receivers"));
        measured.figures.push(Figure::new(names[1], "s", seen.seconds));
    }
    let seen = work.read(&cluster).context("read")?;
    let throughput = Figure::new("read", "MB/s a file", seen.throughput);
    measured.figures.insert(0, throughput.beside(ideal, "line rate of the readers"));
    measured.figures.insert(1, Figure::new("average IO rate of reads", "MB/s a file", seen.rate));
    measured.figures.push(Figure::new("time to read", "s", seen.seconds));
    Ok(measured)
}

/// The figures of a write with one copy, and with two.
const WRITES: [[&str; 2]; 2] =
    [["write, one copy", "time to write, one copy"], ["write, two copies", "time to write, two"]];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::options;

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
