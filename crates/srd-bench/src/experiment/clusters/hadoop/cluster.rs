//! A Hadoop cluster in the hosts of a fabric: HDFS, YARN and the job history server. Each process
//! is a JVM.

use super::conf::{MASTER, NAME_NODE_PORT, Settings};
use crate::experiment::clusters::fetched::HADOOP;
use crate::experiment::clusters::machines::UNSHARE;
use crate::experiment::measure::programs::{self, Program, complaint};
use crate::experiment::{Stage, Variant};
use anyhow::{Context, Result, bail};
use srd_lab::enter::host_name;
use srd_lab::id::HostId;
use srd_lab::running::Running;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub(super) const JAVA: Program = Program { name: "java", package: "default-jre-headless" };
/// Longest wait until all nodes of a cluster have registered.
const READY_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest time to format the name node.
const FORMAT_MAX: Duration = Duration::from_secs(60);
/// Options of each JVM: access to modules that Hadoop's libraries need, and settings that save CPU
/// time for compilation.
const JVM: &str = "--add-opens=java.base/java.lang=ALL-UNNAMED -XX:+UseSerialGC \
                   -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djava.net.preferIPv4Stack=true";
const NAME_NODE: &str = "org.apache.hadoop.hdfs.server.namenode.NameNode";
const RESOURCE_MANAGER: &str = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager";
const HISTORY: &str = "org.apache.hadoop.mapreduce.v2.hs.JobHistoryServer";
const DATA_NODE: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";
const NODE_MANAGER: &str = "org.apache.hadoop.yarn.server.nodemanager.NodeManager";
/// Sizes of the heaps of JVMs, in MB.
const HEAP_MB: u32 = 256;
const HEAP_NODE_MANAGER_MB: u32 = 320;

/// Roles of the hosts in the cluster.
#[derive(Clone, Debug)]
pub(super) struct Roles {
    pub(super) master: HostId,
    /// Hosts with a data node, which store files.
    pub(super) data: Vec<HostId>,
    /// Hosts with a node manager, which run tasks.
    pub(super) compute: Vec<HostId>,
}

impl Roles {
    /// Returns all hosts of the cluster, each once.
    pub(super) fn hosts(&self) -> Vec<HostId> {
        let mut hosts = vec![self.master];
        for host in self.data.iter().chain(&self.compute) {
            if !hosts.contains(host) {
                hosts.push(*host);
            }
        }
        hosts
    }

    fn name(&self, host: HostId) -> String {
        if host == self.master { MASTER.into() } else { host_name(host) }
    }
}

/// A running cluster. Dropping it ends the cluster and removes its data.
pub(super) struct Cluster<'a> {
    stage: &'a Stage<'a>,
    roles: &'a Roles,
    jars: PathBuf,
    directory: PathBuf,
    jvm: String,
    /// The running processes, in the order in which they are ended: nodes before the master's
    /// processes.
    running: Vec<Running>,
}

impl<'a> Cluster<'a> {
    /// Formats HDFS, starts all processes, and waits until all nodes have registered.
    pub(super) fn up(stage: &'a Stage<'a>, roles: &'a Roles, cache: &Path) -> Result<Cluster<'a>> {
        let jars = HADOOP.require(cache)?;
        let directory = stage.directory.join("hadoop");
        let mut cluster =
            Cluster { stage, roles, jvm: String::new(), jars, directory, running: Vec::new() };
        cluster.remove();
        let conf = cluster.conf();
        fs::create_dir_all(&conf).with_context(|| conf.display().to_string())?;
        // The JVM resolves host names from this file instead of through the system, so `/etc/hosts`
        // stays unchanged.
        cluster.jvm = format!("{JVM} -Djdk.net.hosts.file={}", conf.join("hosts").display());
        let addresses = |host: HostId| -> Result<(String, IpAddr, u16)> {
            Ok((roles.name(host), stage.address(host)?, host.leaf))
        };
        let hosts = roles.hosts().into_iter().map(addresses).collect::<Result<Vec<_>>>()?;
        let settings =
            Settings { jars: &cluster.jars, directory: &conf, jvm: &cluster.jvm, hosts: &hosts };
        settings.write()?;
        cluster.start()?;
        Ok(cluster)
    }

    fn start(&mut self) -> Result<()> {
        let Roles { master, data, compute } = self.roles.clone();
        let format = ["-format", "-force", "-nonInteractive"];
        let mut command = self.java(master, HEAP_MB, NAME_NODE, &format)?;
        programs::run_to_end(self.stage, master, "format", &mut command, FORMAT_MAX)?;
        let mut all = vec![
            (master, "namenode", HEAP_MB, NAME_NODE),
            (master, "resourcemanager", HEAP_MB, RESOURCE_MANAGER),
            (master, "history", HEAP_MB, HISTORY),
        ];
        all.extend(data.iter().map(|host| (*host, "datanode", HEAP_MB, DATA_NODE)));
        let compute_node =
            |host: &HostId| (*host, "nodemanager", HEAP_NODE_MANAGER_MB, NODE_MANAGER);
        all.extend(compute.iter().map(compute_node));
        let mut started = Vec::new();
        for (host, name, heap_mb, class) in all {
            let mut command = self.java(host, heap_mb, class, &[])?;
            let mut running = programs::start(self.stage, host, name, &mut command)?;
            if name == "namenode" {
                let stage = self.stage;
                programs::wait_for_listener(stage, host, NAME_NODE_PORT, &mut running, name)?;
            }
            started.push((host, name, running));
        }
        let registered = |name: &str, line: &str| {
            complaint_lines(self.stage, master, name).filter(|l| l.contains(line)).count()
        };
        let deadline = Instant::now() + READY_MAX;
        while registered("namenode", "registerDatanode: from") < data.len()
            || registered("resourcemanager", "registered with capability") < compute.len()
        {
            for (host, name, running) in &mut started {
                if let Some(status) = running.ended()? {
                    let why = complaint(self.stage, *host, name);
                    bail!("{name} in {host} ended with {status}: {why}");
                }
            }
            if Instant::now() > deadline {
                let wait = READY_MAX.as_secs();
                bail!("nodes did not register within {wait} s; `--keep` leaves the logs behind");
            }
            thread::sleep(LOOK_EVERY);
        }
        self.running = started.into_iter().rev().map(|(.., running)| running).collect();
        Ok(())
    }

    /// Returns a command that runs a class of Hadoop in a JVM in a host.
    fn java(&self, host: HostId, heap_mb: u32, class: &str, words: &[&str]) -> Result<Command> {
        let name = self.roles.name(host);
        let own = self.directory.join(&name);
        let mut command = programs::command(self.stage, UNSHARE)?;
        command.args(["--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", &name]);
        command.arg("java").arg(format!("-Xmx{heap_mb}m")).args(self.jvm.split(' '));
        command.arg(format!("-Dlab.dir={}", own.display()));
        command.arg("-cp").arg(format!("{}:{}/*", self.conf().display(), self.jars.display()));
        command.arg(class).args(words);
        if let Some(home) = java_home() {
            // Node managers use this variable to find the `java` program for tasks.
            command.env("JAVA_HOME", home);
        }
        command.current_dir(&self.directory);
        Ok(command)
    }

    /// Starts a client program on the master.
    pub(super) fn client(&self, name: &str, class: &str, words: &[&str]) -> Result<Running> {
        let mut command = self.java(self.roles.master, HEAP_MB, class, words)?;
        programs::start(self.stage, self.roles.master, name, &mut command)
    }

    /// Runs a client program on the master until it ends. Returns its standard output.
    pub(super) fn run(
        &self,
        name: &str,
        class: &str,
        words: &[&str],
        at_most: Duration,
    ) -> Result<String> {
        let mut command = self.java(self.roles.master, HEAP_MB, class, words)?;
        programs::run_to_end(self.stage, self.roles.master, name, &mut command, at_most)
    }

    /// Returns the directory in which clients can store files.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn conf(&self) -> PathBuf {
        self.directory.join("conf")
    }

    fn remove(&self) {
        // If files remain, the next run removes them or fails with an error that names them.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        for running in &self.running {
            running.ask_to_leave();
        }
        self.running.clear();
        self.remove();
    }
}

/// Returns the lines of the log of a process.
fn complaint_lines(stage: &Stage<'_>, host: HostId, name: &str) -> impl Iterator<Item = String> {
    let text = programs::logged(stage, host, name).unwrap_or_default();
    text.lines().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Returns the home directory of the first `java` program in the search path.
fn java_home() -> Option<PathBuf> {
    let program = srd_lab::command::find_program(JAVA.name)?;
    let real = fs::canonicalize(program).ok()?;
    Some(real.parent()?.parent()?.to_owned())
}

/// Refuses a variant that a JVM cannot use: libfabric.
pub(super) fn check(variant: Variant) -> Result<()> {
    if variant == Variant::Srd {
        bail!("Hadoop knows no libfabric");
    }
    Ok(())
}
