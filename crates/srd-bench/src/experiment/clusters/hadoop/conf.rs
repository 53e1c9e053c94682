//! Writes the configuration files of a Hadoop cluster.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Name of the host of the name node and the resource manager.
pub(super) const MASTER: &str = "master";
/// TCP port of the name node.
pub(super) const NAME_NODE_PORT: u16 = 8020;

/// Settings that differ between clusters.
#[derive(Debug)]
pub(super) struct Settings<'a> {
    /// The directory of Hadoop's jars.
    pub(super) jars: &'a Path,
    /// The directory into which the configuration files are written.
    pub(super) directory: &'a Path,
    /// Options of each JVM, including those of tasks.
    pub(super) jvm: &'a str,
    /// Name, address and leaf of each host.
    pub(super) hosts: &'a [(String, std::net::IpAddr, u16)],
}

impl Settings<'_> {
    /// Writes all configuration files.
    pub(super) fn write(&self) -> Result<()> {
        let put = |name: &str, text: &str| {
            let file = self.directory.join(name);
            fs::write(&file, text).with_context(|| file.display().to_string())
        };
        // Hadoop's web servers search for these directories in the class path, and the jars contain
        // no entries for directories.
        for name in ["hdfs", "datanode", "secondary", "cluster", "node", "jobhistory"] {
            let directory = self.directory.join("webapps").join(name);
            fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        }
        put("hosts", &self.hosts_file())?;
        put("racks", &self.racks())?;
        put("log4j.properties", LOGGING)?;
        put("core-site.xml", &xml(&self.core()))?;
        put("hdfs-site.xml", &xml(&hdfs()))?;
        put("yarn-site.xml", &xml(&self.yarn()))?;
        put("mapred-site.xml", &xml(&self.mapreduce()))?;
        put("capacity-scheduler.xml", &xml(&scheduler()))
    }

    /// Returns the text of the hosts file, which maps names to addresses. It is the only difference
    /// between two transports.
    fn hosts_file(&self) -> String {
        let lines = self.hosts.iter().map(|(name, ip, _)| format!("{ip} {name}\n"));
        format!("127.0.0.1 localhost\n{}", lines.collect::<String>())
    }

    fn racks(&self) -> String {
        let line = |(name, ip, leaf): &(String, std::net::IpAddr, u16)| {
            format!("{name} /rack{leaf}\n{ip} /rack{leaf}\n")
        };
        self.hosts.iter().map(line).collect()
    }

    fn classpath(&self) -> String {
        format!("{},{}/*", self.directory.display(), self.jars.display())
    }

    fn core(&self) -> Vec<Property> {
        vec![
            ("fs.defaultFS", format!("hdfs://{MASTER}:{NAME_NODE_PORT}")),
            ("hadoop.tmp.dir", "${lab.dir}/tmp".into()),
            ("net.topology.node.switch.mapping.impl", "org.apache.hadoop.net.TableMapping".into()),
            ("net.topology.table.file.name", self.directory.join("racks").display().to_string()),
            ("ipc.client.connect.max.retries", "3".into()),
            ("io.file.buffer.size", "131072".into()),
        ]
    }

    fn yarn(&self) -> Vec<Property> {
        vec![
            ("yarn.resourcemanager.hostname", MASTER.into()),
            ("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", "250".into()),
            ("yarn.nodemanager.aux-services", "mapreduce_shuffle".into()),
            (
                "yarn.nodemanager.aux-services.mapreduce_shuffle.class",
                "org.apache.hadoop.mapred.ShuffleHandler".into(),
            ),
            ("yarn.nodemanager.resource.memory-mb", "2560".into()),
            ("yarn.nodemanager.resource.cpu-vcores", "4".into()),
            ("yarn.nodemanager.vmem-check-enabled", "false".into()),
            ("yarn.nodemanager.pmem-check-enabled", "false".into()),
            ("yarn.nodemanager.disk-health-checker.enable", "false".into()),
            (
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage",
                "100".into(),
            ),
            ("yarn.nodemanager.local-dirs", "${lab.dir}/nm-local".into()),
            ("yarn.nodemanager.log-dirs", "${lab.dir}/nm-log".into()),
            ("yarn.scheduler.minimum-allocation-mb", "128".into()),
            ("yarn.application.classpath", self.classpath()),
        ]
    }

    fn mapreduce(&self) -> Vec<Property> {
        let heap = |mb: u32| format!("-Xmx{mb}m {}", self.jvm);
        vec![
            ("mapreduce.framework.name", "yarn".into()),
            ("mapreduce.application.classpath", self.classpath()),
            ("yarn.app.mapreduce.am.staging-dir", "/staging".into()),
            ("yarn.app.mapreduce.am.resource.mb", "512".into()),
            ("yarn.app.mapreduce.am.command-opts", heap(384)),
            ("mapreduce.map.memory.mb", "640".into()),
            ("mapreduce.map.java.opts", heap(448)),
            ("mapreduce.reduce.memory.mb", "640".into()),
            ("mapreduce.reduce.java.opts", heap(512)),
            ("mapreduce.task.io.sort.mb", "180".into()),
            ("mapreduce.map.speculative", "false".into()),
            ("mapreduce.reduce.speculative", "false".into()),
            ("mapreduce.reduce.shuffle.parallelcopies", "4".into()),
            ("mapreduce.jobhistory.address", format!("{MASTER}:10020")),
            ("mapreduce.client.progressmonitor.pollinterval", "200".into()),
            ("mapreduce.client.completion.pollinterval", "500".into()),
            ("yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms", "250".into()),
        ]
    }
}

type Property = (&'static str, String);

fn hdfs() -> Vec<Property> {
    vec![
        ("dfs.namenode.name.dir", "file://${lab.dir}/name".into()),
        ("dfs.datanode.data.dir", "file://${lab.dir}/data".into()),
        ("dfs.blocksize", "134217728".into()),
        ("dfs.permissions.enabled", "false".into()),
        ("dfs.namenode.rpc-bind-host", "0.0.0.0".into()),
        ("dfs.namenode.safemode.extension", "0".into()),
        ("dfs.namenode.handler.count", "8".into()),
        ("dfs.datanode.handler.count", "4".into()),
    ]
}

fn scheduler() -> Vec<Property> {
    vec![
        ("yarn.scheduler.capacity.root.queues", "default".into()),
        ("yarn.scheduler.capacity.root.default.capacity", "100".into()),
        ("yarn.scheduler.capacity.maximum-am-resource-percent", "0.5".into()),
        // At most one task is assigned in each heartbeat, so that tasks are spread over the hosts.
        ("yarn.scheduler.capacity.per-node-heartbeat.multiple-assignments-enabled", "false".into()),
        ("yarn.scheduler.capacity.node-locality-delay", "8".into()),
    ]
}

const LOGGING: &str = "\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
";

fn xml(properties: &[Property]) -> String {
    let property = |(name, value): &Property| {
        let value = value.replace('&', "&amp;").replace('<', "&lt;");
        format!("<property><name>{name}</name><value>{value}</value></property>\n")
    };
    let all: String = properties.iter().map(property).collect();
    format!("<?xml version=\"1.0\"?>\n<configuration>\n{all}</configuration>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_the_hosts_file_and_the_racks_only() {
        let hosts = [("h0-1".to_owned(), "10.99.0.2".parse().unwrap(), 0)];
        let settings = Settings {
            jars: Path::new("/jars"),
            directory: Path::new("/conf"),
            jvm: "-Dx=a&b",
            hosts: &hosts,
        };
        assert_eq!(settings.hosts_file(), "127.0.0.1 localhost\n10.99.0.2 h0-1\n");
        assert_eq!(settings.racks(), "h0-1 /rack0\n10.99.0.2 /rack0\n");
        for properties in [settings.core(), settings.yarn(), settings.mapreduce(), hdfs()] {
            let text = xml(&properties);
            assert!(!text.contains("10.99"), "{text}");
            assert!(!text.contains("a&b"), "{text}");
        }
    }
}
