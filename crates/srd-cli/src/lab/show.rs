//! Text output of `srd lab`.

use crate::units;
use anyhow::Result;
use srd_chart::Table;
use srd_lab::status::Status;
use srd_lab::{DownReport, Fabric, FabricConfig, Family, Faults, PortKind};

/// Returns the text that `srd lab up` prints.
pub(super) fn built(fabric: &Fabric) -> Result<String> {
    let config = fabric.config();
    let mut text = shape(config);
    for leaf in 0..config.leaves {
        text += &format!("\nleaf {leaf}:");
        for host in config.hosts().filter(|host| host.leaf == leaf) {
            text += &format!(" {host}={}", fabric.host_address(host, Family::V4)?);
        }
    }
    let name = fabric.name();
    let flag = if name == "lab" { String::new() } else { format!(" --name {name}") };
    text += &format!("\n`srd lab exec{flag} h0.0 -- PROGRAM` runs a program in a host, ");
    text += &format!("`srd lab down{flag}` removes the fabric");
    Ok(text)
}

/// Returns the text that `srd lab down` prints.
pub(super) fn removed(name: &str, report: &DownReport) -> String {
    if report.namespaces.is_empty() {
        return format!("fabric `{name}`: nothing to remove");
    }
    let mut text = format!("fabric `{name}`: {} namespaces removed", report.namespaces.len());
    if report.processes_ended > 0 {
        text += &format!(", {} processes in them ended", report.processes_ended);
    }
    text
}

fn shape(config: &FabricConfig) -> String {
    format!(
        "fabric `{}`: {} leaves x {} hosts at {} Mb/s, {} spines at {} Mb/s a link, \
         queues {}, MTU {}",
        config.name_prefix,
        config.leaves,
        config.hosts_per_leaf,
        config.host_rate_mbps,
        config.spines,
        config.uplink_rate_mbps,
        units::bytes(config.queue_bytes.into()),
        config.mtu
    )
}

/// Returns the state of one fabric as text.
pub(super) fn status(status: &Status) -> String {
    let mut text = shape(&status.config);
    if let Some(owner) = &status.owner {
        text += &format!("\nguarded by process {}", owner.pid);
    }
    text += &format!("\nfaults: {}", faults(&status.faults));
    let gone: Vec<&str> =
        status.namespaces.iter().filter(|n| !n.present).map(|n| n.name.as_str()).collect();
    if !gone.is_empty() {
        text += &format!("\nremoved behind our back: {}", gone.join(" "));
    }
    let mut table = Table::new(["port", "Mb/s", "sent", "packets", "dropped", "waiting"]);
    for port in &status.ports {
        let name = match port.kind {
            PortKind::HostNic(host) => format!("{host} out"),
            PortKind::LeafToHost(host) => format!("leaf -> {host}"),
            PortKind::LeafToSpine(link) => format!("l{} -> s{}", link.leaf, link.spine),
            PortKind::SpineToLeaf(link) => format!("s{} -> l{}", link.spine, link.leaf),
        };
        table.row([
            name,
            format!("{:.0}", port.rate_mbps),
            units::bytes(port.sent_bytes),
            port.sent_packets.to_string(),
            port.dropped_packets.to_string(),
            units::bytes(port.backlog_bytes),
        ]);
    }
    format!("{text}\n{table}")
}

fn faults(faults: &Faults) -> String {
    let spines = faults.failed_spines.iter().map(|spine| format!("spine {spine} dead"));
    let links = faults.failed_links.iter().map(|link| format!("{link} dead"));
    let slow = faults.slowed_links.iter().map(|(link, mbps)| format!("{link} at {mbps} Mb/s"));
    let loss = faults.loss_permille.iter();
    let loss = loss.map(|(spine, n)| format!("spine {spine} loses {n} of 1000"));
    let all: Vec<String> = spines.chain(links).chain(slow).chain(loss).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_lab::LinkId;

    #[test]
    fn faults_read_as_sentences() {
        let mut broken = Faults::default();
        assert_eq!(faults(&broken), "none");
        broken.failed_spines.insert(2);
        broken.slowed_links.insert(LinkId { leaf: 0, spine: 1 }, 50);
        broken.loss_permille.insert(3, 10);
        assert_eq!(faults(&broken), "spine 2 dead, l0-s1 at 50 Mb/s, spine 3 loses 10 of 1000");
    }
}
