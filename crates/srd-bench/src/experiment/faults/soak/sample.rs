//! Samples of the daemons' resource usage, their processes and the hosts' network configurations.

use crate::experiment::measure::process::Status;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use srd_lab::command;
use srd_lab::express::Overlay;
use srd_lab::id::HostId;
use srd_lab::namespace;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// Resource usage of one daemon at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Seconds since the soak began.
    pub(super) at_s: f64,
    /// Seconds since the daemon's data plane started.
    pub(super) age_s: f64,
    pub(super) rss_kb: u64,
    pub(super) fds: u64,
    pub(super) threads: u64,
    pub(super) flows: u64,
    pub(super) peers: u64,
}

/// Network configuration of a host, as lines of text: equal text means an equal configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostNetwork {
    pub(super) routes: Vec<String>,
    pub(super) rules: Vec<String>,
    pub(super) devices: Vec<String>,
}

/// Reads the status of a host's daemon, and its resource usage from the kernel.
pub(super) fn daemon(overlay: &Overlay<'_>, host: HostId, at_s: f64) -> Result<Sample> {
    let pid = overlay.pid(host).with_context(|| format!("no daemon in {host}"))?;
    let daemon = overlay.status(host)?;
    let status = Status::of(pid)?;
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).context("/proc/PID/fd")?.count();
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    Ok(Sample {
        at_s,
        age_s: number(&daemon["uptime_s"]),
        rss_kb: status.number("VmRSS:")?,
        fds: fds as u64,
        threads: status.number("Threads:")?,
        flows: daemon["flows_total"].as_u64().unwrap_or(0),
        peers: daemon["peers"].as_array().map_or(0, Vec::len) as u64,
    })
}

/// Counts the processes in the hosts of a fabric by kind: daemons, their network processes, other
/// processes.
pub(super) fn processes(fabric: &str) -> Result<[usize; 3]> {
    let names = namespace::existing(fabric)?;
    let mut counts = [0; 3];
    for (pid, _) in namespace::processes(&names) {
        // A process that has just ended has an empty command line.
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        if line.is_empty() {
            continue;
        }
        let kind = match words.nth(1) {
            Some(b"up") => 0,
            Some(b"network") => 1,
            _ => 2,
        };
        counts[kind] += 1;
    }
    Ok(counts)
}

/// Reads the network configuration of each host.
pub(super) fn networks(
    overlay_hosts: &[HostId],
    space: impl Fn(HostId) -> Result<String>,
) -> Result<BTreeMap<HostId, HostNetwork>> {
    overlay_hosts.iter().map(|host| Ok((*host, network(&space(*host)?)?))).collect()
}

fn network(space: &str) -> Result<HostNetwork> {
    let ip = |words: &[&str]| -> Result<Vec<String>> {
        let mut command = Command::new(command::program("ip")?);
        let text = command::run(command.args(["-n", space]).args(words), "")?;
        let mut lines: Vec<String> = text.lines().map(plain).collect();
        lines.sort();
        Ok(lines)
    };
    let routes = ip(&["route", "show", "table", "all"])?;
    let mut rules = ip(&["rule", "show"])?;
    rules.extend(ip(&["-6", "rule", "show"])?);
    let devices = ip(&["-brief", "link", "show"])?;
    if devices.is_empty() {
        bail!("no device in {space}");
    }
    Ok(HostNetwork { routes, rules, devices })
}

/// Normalises a line of a configuration: replaces the link-local address, which is random for each
/// device.
fn plain(line: &str) -> String {
    let word = |word: &str| if word.starts_with("fe80::") { "fe80::" } else { word }.to_owned();
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

impl HostNetwork {
    /// Returns the lines of this configuration that `other` does not have, for an error message.
    pub(super) fn beyond(&self, other: &HostNetwork) -> Vec<String> {
        let all = |network: &HostNetwork| -> Vec<String> {
            let parts = [&network.routes, &network.rules, &network.devices];
            parts.into_iter().flatten().cloned().collect()
        };
        let there = all(other);
        all(self).into_iter().filter(|line| !there.contains(line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_is_drawn_anew() {
        assert_eq!(plain("local fe80::66f6:2fbf dev srd0  "), "local fe80:: dev srd0");
        assert_eq!(plain("fe80::/64 dev srd0"), "fe80:: dev srd0");
    }

    #[test]
    fn what_a_daemon_left_behind_is_named() {
        let lines = |lines: &[&str]| lines.iter().map(ToString::to_string).collect();
        let before = HostNetwork { routes: lines(&["a", "b"]), ..HostNetwork::default() };
        let after = HostNetwork {
            routes: lines(&["a", "b", "10.99.0.0/16 dev srd0"]),
            ..HostNetwork::default()
        };
        assert_eq!(after.beyond(&before), ["10.99.0.0/16 dev srd0"]);
        assert!(before.beyond(&after).is_empty());
    }
}
