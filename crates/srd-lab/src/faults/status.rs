//! Status of a fabric: its namespaces, its faults, and the counters of every port.

use crate::build::config::FabricConfig;
use crate::build::fabric::Fabric;
use crate::build::id::{HostId, LinkId};
use crate::build::state::Owner;
use crate::faults::fault::Faults;
use crate::programs::command;
use crate::{build::plan, programs::namespace};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::thread;
use std::time::Duration;

/// A port of the fabric, named by its owner and the device to which it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortKind {
    /// A host's own network card.
    HostNic(HostId),
    /// A leaf's port to a host; its queue overflows in an incast.
    LeafToHost(HostId),
    /// A leaf's port to a spine; flows collide in it.
    LeafToSpine(LinkId),
    /// A spine's port to a leaf.
    SpineToLeaf(LinkId),
}

/// One port and its counters since the fabric was built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Namespace of the port.
    pub namespace: String,
    /// Device of the port in its namespace.
    pub device: String,
    /// Position of the port.
    pub kind: PortKind,
    /// Rate in Mb/s that the kernel reports.
    pub rate_mbps: f64,
    /// Queue limit in bytes.
    pub queue_bytes: u32,
    /// Bytes sent, including 14 bytes of Ethernet header per packet.
    pub sent_bytes: u64,
    /// Packets sent. A super-packet counts once per segment.
    pub sent_packets: u64,
    /// Packets dropped because the queue was full.
    pub dropped_packets: u64,
    /// Bytes that wait in the queue now.
    pub backlog_bytes: u64,
}

/// Status of one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceStatus {
    /// Name of the namespace.
    pub name: String,
    /// Whether the namespace exists; if not, another program has removed it.
    pub present: bool,
    /// Ids of the processes inside, except this process.
    pub processes: Vec<i32>,
}

/// Status of a fabric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Configuration of the fabric.
    pub config: FabricConfig,
    /// Time of creation, in seconds of Unix time.
    pub created_unix_s: u64,
    /// The process at whose end the fabric is removed; `None` if it stays until `srd lab down`.
    pub owner: Option<Owner>,
    /// Faults that are in force now.
    pub faults: Faults,
    /// Number of extra MPTCP subflows per connection.
    pub mptcp_subflows: u16,
    /// Minimum retransmission timeout of the hosts in milliseconds, if it was set.
    pub rto_min_ms: Option<u32>,
    /// Default congestion control of the hosts, if it was set.
    pub congestion: Option<String>,
    /// All namespaces: leaves, spines, hosts.
    pub namespaces: Vec<NamespaceStatus>,
    /// All ports, in the order of the namespaces.
    pub ports: Vec<PortStatus>,
}

/// Bytes that one leaf sent to each spine during a measured interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpineShare {
    /// The spine that got the most bytes.
    pub busiest: u16,
    /// Number of bytes sent to each spine, in the order of the spines.
    pub bytes: Vec<u64>,
}

#[derive(Deserialize)]
struct Qdisc {
    kind: String,
    dev: String,
    bytes: u64,
    packets: u64,
    drops: u64,
    backlog: u64,
    options: QdiscOptions,
}

#[derive(Deserialize)]
struct QdiscOptions {
    #[serde(default)]
    rate: u64,
}

impl Fabric {
    /// Reads the full status from the kernel.
    pub fn status(&self) -> Result<Status> {
        let state = self.state()?;
        let inside = namespace::processes(&state.namespaces);
        let namespaces = state.namespaces.iter().map(|name| NamespaceStatus {
            name: name.clone(),
            present: namespace::path(name).exists(),
            processes: inside
                .iter()
                .filter(|(_, space)| space == name)
                .map(|(pid, _)| pid.as_raw_nonzero().get())
                .collect(),
        });
        Ok(Status {
            namespaces: namespaces.collect(),
            ports: self.ports()?,
            config: state.config,
            created_unix_s: state.created_unix_s,
            owner: state.owner,
            faults: state.faults,
            mptcp_subflows: state.mptcp_subflows,
            rto_min_ms: state.rto_min_ms,
            congestion: state.congestion,
        })
    }

    /// Returns the counters of every port. Ports in removed namespaces are left out.
    pub fn ports(&self) -> Result<Vec<PortStatus>> {
        let mut all = Vec::new();
        for name in plan::namespace_names(self.config()) {
            let is_there = || namespace::path(&name).exists();
            if !is_there() {
                continue;
            }
            match self.ports_in(&name) {
                Ok(ports) => all.extend(ports),
                // The namespace was removed during the call.
                Err(_) if !is_there() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Returns the number of packets that all ports have dropped since the fabric was built.
    pub fn dropped_packets(&self) -> Result<u64> {
        Ok(self.ports()?.iter().map(|port| port.dropped_packets).sum())
    }

    /// Returns the counters of a leaf's ports to each spine, since the fabric was built.
    pub fn uplink_ports(&self, leaf: u16) -> Result<Vec<PortStatus>> {
        self.config().check_leaf(leaf)?;
        let mut ports = self.ports_in(&plan::leaf_namespace(self.name(), leaf))?;
        ports.retain(|port| matches!(port.kind, PortKind::LeafToSpine(_)));
        ports.sort_by_key(|port| match port.kind {
            PortKind::LeafToSpine(link) => link.spine,
            _ => u16::MAX,
        });
        Ok(ports)
    }

    /// Watches a leaf for `watch` and returns the spine to which it sends most bytes. If only one
    /// flow is active, this is the spine of that flow. If the leaf sends nothing, this is an error:
    /// the failure of any spine would have no effect.
    pub fn busiest_spine(&self, leaf: u16, watch: Duration) -> Result<SpineShare> {
        let before = self.uplink_ports(leaf)?;
        thread::sleep(watch);
        let after = self.uplink_ports(leaf)?;
        let bytes: Vec<u64> = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after.sent_bytes.saturating_sub(before.sent_bytes))
            .collect();
        let busiest = busiest(&bytes).with_context(|| {
            format!("leaf {leaf} sends nothing to the spines, so none of them is the busiest")
        })?;
        Ok(SpineShare { busiest, bytes })
    }

    fn ports_in(&self, name: &str) -> Result<Vec<PortStatus>> {
        let json = command::qdisc_json(name)?;
        parse_ports(self.config(), name, &json)
            .with_context(|| format!("tc -s -j qdisc show in {name}"))
    }
}

/// Returns the number of the spine with the most bytes; `None` if no spine has any.
fn busiest(bytes: &[u64]) -> Option<u16> {
    let busiest = (0u16..).zip(bytes).max_by_key(|(_, bytes)| **bytes);
    busiest.filter(|(_, bytes)| **bytes > 0).map(|(spine, _)| spine)
}

fn parse_ports(config: &FabricConfig, name: &str, json: &str) -> Result<Vec<PortStatus>> {
    let qdiscs: Vec<serde_json::Value> = serde_json::from_str(json)?;
    let mut ports = Vec::new();
    for qdisc in qdiscs {
        if qdisc["kind"] != "tbf" {
            continue;
        }
        let qdisc: Qdisc = serde_json::from_value(qdisc)?;
        debug_assert_eq!(qdisc.kind, "tbf");
        let Some(kind) = port_kind(config, name, &qdisc.dev) else { continue };
        let host_nic = matches!(kind, PortKind::HostNic(_));
        ports.push(PortStatus {
            namespace: name.into(),
            device: qdisc.dev,
            kind,
            rate_mbps: qdisc.options.rate as f64 * 8.0 / 1e6,
            queue_bytes: if host_nic { config.host_queue_bytes } else { config.queue_bytes },
            sent_bytes: qdisc.bytes,
            sent_packets: qdisc.packets,
            dropped_packets: qdisc.drops,
            backlog_bytes: qdisc.backlog,
        });
    }
    Ok(ports)
}

fn port_kind(config: &FabricConfig, namespace: &str, device: &str) -> Option<PortKind> {
    let part = namespace.strip_prefix(&format!("srdlab-{}-", config.name_prefix))?;
    if let Some(leaf) = part.strip_prefix('l') {
        let leaf = leaf.parse().ok()?;
        if let Some(spine) = device.strip_prefix("up") {
            return Some(PortKind::LeafToSpine(LinkId { leaf, spine: spine.parse().ok()? }));
        }
        let host = device.strip_prefix('p')?.parse().ok()?;
        return Some(PortKind::LeafToHost(HostId { leaf, host }));
    }
    if let Some(spine) = part.strip_prefix('s') {
        let leaf = device.strip_prefix("dn")?.parse().ok()?;
        return Some(PortKind::SpineToLeaf(LinkId { leaf, spine: spine.parse().ok()? }));
    }
    let host = part.parse().ok()?;
    (device == plan::HOST_DEVICE).then_some(PortKind::HostNic(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"[
        {"kind":"noqueue","handle":"0:","dev":"lo","root":true,"refcnt":2,"options":{},"bytes":0,
         "packets":0,"drops":0,"overlimits":0,"requeues":0,"backlog":0,"qlen":0},
        {"kind":"tbf","handle":"8001:","dev":"up3","root":true,"refcnt":3,
         "options":{"rate":31250000,"burst":27031,"lat":5535},"bytes":900,"packets":7,"drops":2,
         "overlimits":0,"requeues":0,"backlog":80,"qlen":0}]"#;

    /// In an earlier version, the last spine was the busiest if none was in use.
    #[test]
    fn regression_no_spine_is_the_busiest_without_traffic() {
        assert_eq!(busiest(&[0, 7, 3]), Some(1));
        assert_eq!(busiest(&[0, 0, 0]), None);
    }

    #[test]
    fn counters_are_read_from_token_buckets_only() {
        let config = FabricConfig::default();
        let ports = parse_ports(&config, "srdlab-lab-l1", JSON).unwrap();
        assert_eq!(ports.len(), 1);
        let port = &ports[0];
        assert_eq!(port.kind, PortKind::LeafToSpine(LinkId { leaf: 1, spine: 3 }));
        assert!((port.rate_mbps - 250.0).abs() < 1e-9);
        assert_eq!(
            (port.sent_bytes, port.sent_packets, port.dropped_packets, port.backlog_bytes),
            (900, 7, 2, 80)
        );
    }

    #[test]
    fn every_port_knows_where_it_leads() {
        let config = FabricConfig::default();
        let kind = |space, device| port_kind(&config, space, device);
        let host = HostId { leaf: 1, host: 2 };
        let link = LinkId { leaf: 1, spine: 0 };
        assert_eq!(kind("srdlab-lab-h1.2", "eth0"), Some(PortKind::HostNic(host)));
        assert_eq!(kind("srdlab-lab-l1", "p2"), Some(PortKind::LeafToHost(host)));
        assert_eq!(kind("srdlab-lab-s0", "dn1"), Some(PortKind::SpineToLeaf(link)));
        assert_eq!(kind("srdlab-other-s0", "dn1"), None);
    }
}
