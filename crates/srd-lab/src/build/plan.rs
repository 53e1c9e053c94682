//! The commands that build a fabric: pure functions from a config to batch text.
//!
//! The parts have to run in this order: namespaces, sysctls (before links, because links copy
//! `default`), links, then per namespace `tc` (a port is shaped before it is up) and `ip`. The text
//! is for `ip -batch` and `tc -batch`, with one command per line.

use crate::build::address::{self, EXTRA_ADDRESSES_MAX, End};
use crate::build::config::{CHOSEN_PORTS, FabricConfig};
use crate::build::id::{Family, HostId, LinkId};
use std::fmt::Write as _;

/// Hashed fields of a switch: source, destination, protocol and both ports.
pub const HASH_FIELDS_5_TUPLE: u32 = 0x37;
/// The IPv6 flow label, as one more hashed field.
pub const HASH_FIELD_FLOW_LABEL: u32 = 0x08;
/// Name of a host's device.
pub const HOST_DEVICE: &str = "eth0";

/// One kernel setting: a file below `/proc/sys`, and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysctl {
    /// Path of the setting's file below `/proc/sys`.
    pub path: &'static str,
    /// Text that is written to the file.
    pub value: String,
    /// Whether older kernels lack this file and the fabric works without it.
    pub optional: bool,
}

/// All commands and settings for one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacePlan {
    /// Full name of the namespace.
    pub name: String,
    /// Lines for `/proc/sys`, which are written first.
    pub sysctls: Vec<Sysctl>,
    /// Commands for `tc -n <name> -batch -`.
    pub tc: String,
    /// Commands for `ip -n <name> -batch -`, after `tc`.
    pub ip: String,
    /// The device whose segmentation offloads are switched off; `None` if offloads stay on.
    pub offloads_off: Option<&'static str>,
}

/// All commands that build a fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Commands for `ip -batch -` that create the namespaces.
    pub create: String,
    /// Commands for `ip -batch -` that create the cables between the namespaces.
    pub links: String,
    /// Commands inside of each namespace.
    pub namespaces: Vec<NamespacePlan>,
}

/// Returns the name of the namespace of a host.
#[must_use]
pub fn host_namespace(fabric: &str, id: HostId) -> String {
    format!("srdlab-{fabric}-{id}")
}

/// Returns the name of the namespace of a leaf.
#[must_use]
pub fn leaf_namespace(fabric: &str, leaf: u16) -> String {
    format!("srdlab-{fabric}-l{leaf}")
}

/// Returns the name of the namespace of a spine.
#[must_use]
pub fn spine_namespace(fabric: &str, spine: u16) -> String {
    format!("srdlab-{fabric}-s{spine}")
}

/// Returns the name of the leaf's device towards a spine.
#[must_use]
pub fn up_device(spine: u16) -> String {
    format!("up{spine}")
}

/// Returns the name of the spine's device towards a leaf.
#[must_use]
pub fn down_device(leaf: u16) -> String {
    format!("dn{leaf}")
}

/// Returns the name of the leaf's device towards a host.
#[must_use]
pub fn host_port_device(host: u16) -> String {
    format!("p{host}")
}

/// Returns the names of all namespaces of a fabric.
#[must_use]
pub fn namespace_names(config: &FabricConfig) -> Vec<String> {
    let fabric = &config.name_prefix;
    let leaves = (0..config.leaves).map(|leaf| leaf_namespace(fabric, leaf));
    let spines = (0..config.spines).map(|spine| spine_namespace(fabric, spine));
    let hosts = config.hosts().map(|id| host_namespace(fabric, id));
    leaves.chain(spines).chain(hosts).collect()
}

/// Returns the plan of a validated config.
#[must_use]
pub fn plan(config: &FabricConfig) -> Plan {
    let leaves = (0..config.leaves).map(|leaf| leaf_plan(config, leaf));
    let spines = (0..config.spines).map(|spine| spine_plan(config, spine));
    let hosts = config.hosts().map(|id| host_plan(config, id));
    Plan {
        create: create_batch(&namespace_names(config)),
        links: links_batch(config),
        namespaces: leaves.chain(spines).chain(hosts).collect(),
    }
}

/// Returns commands for `ip -batch -` that create namespaces.
#[must_use]
pub fn create_batch(names: &[String]) -> String {
    names.iter().map(|name| format!("netns add {name}\n")).collect()
}

/// Returns commands for `ip -batch -` that delete namespaces with all objects inside.
#[must_use]
pub fn delete_batch(names: &[String]) -> String {
    names.iter().map(|name| format!("netns delete {name}\n")).collect()
}

/// Returns commands for `tc -batch -` that set or change the rate and queue of a port.
#[must_use]
pub fn shape(config: &FabricConfig, device: &str, rate_mbps: u32, queue_bytes: u32) -> String {
    let burst = config.burst_bytes();
    format!(
        "qdisc replace dev {device} root tbf \
         rate {rate_mbps}mbit burst {burst} limit {queue_bytes}\n"
    )
}

fn links_batch(config: &FabricConfig) -> String {
    let fabric = &config.name_prefix;
    let mut text = String::new();
    let mtu = config.mtu;
    let mut cable = |lower: [&str; 3], upper: [&str; 3]| {
        let end = |[namespace, device, mac]: [&str; 3]| {
            format!("{device} netns {namespace} mtu {mtu} txqueuelen 1000 address {mac}")
        };
        let _ = writeln!(text, "link add {} type veth peer name {}", end(lower), end(upper));
    };
    for id in config.links() {
        cable(
            [
                &leaf_namespace(fabric, id.leaf),
                &up_device(id.spine),
                &address::link_mac(id, End::Lower),
            ],
            [
                &spine_namespace(fabric, id.spine),
                &down_device(id.leaf),
                &address::link_mac(id, End::Upper),
            ],
        );
    }
    for id in config.hosts() {
        cable(
            [&host_namespace(fabric, id), HOST_DEVICE, &address::host_mac(id, End::Lower)],
            [
                &leaf_namespace(fabric, id.leaf),
                &host_port_device(id.host),
                &address::host_mac(id, End::Upper),
            ],
        );
    }
    text
}

fn leaf_plan(config: &FabricConfig, leaf: u16) -> NamespacePlan {
    let (mut tc, mut ip) = (String::new(), String::from("link set lo up\n"));
    let mut next_hops = [String::new(), String::new()];
    for spine in 0..config.spines {
        let (id, device) = (LinkId { leaf, spine }, up_device(spine));
        tc += &shape(config, &device, config.uplink_rate_mbps, config.queue_bytes);
        ip += &link_end(id, End::Lower, &device);
        for (hops, family) in next_hops.iter_mut().zip([Family::V4, Family::V6]) {
            let via = address::link(id, End::Upper, family);
            let _ = write!(hops, " nexthop via {via} dev {device} weight 1");
        }
    }
    for host in 0..config.hosts_per_leaf {
        let (id, device) = (HostId { leaf, host }, host_port_device(host));
        tc += &shape(config, &device, config.host_rate_mbps, config.queue_bytes);
        for (family, bits) in [(Family::V4, 29), (Family::V6, 64)] {
            ip += &address_line(address::gateway(id, family), bits, &device);
        }
        ip += &format!("link set {device} up\n");
        let mac = address::host_mac(id, End::Lower);
        for extra in 0..=EXTRA_ADDRESSES_MAX {
            ip += &neighbour(address::host_v4(id, extra), &mac, &device);
        }
        ip += &neighbour(address::host(id, Family::V6), &mac, &device);
    }
    let [hops_v4, hops_v6] = next_hops;
    let _ = writeln!(ip, "route add 0.0.0.0/0{hops_v4}");
    let _ = writeln!(ip, "route add ::/0{hops_v6}");
    let name = leaf_namespace(&config.name_prefix, leaf);
    NamespacePlan { name, sysctls: switch_sysctls(config), tc, ip, offloads_off: None }
}

fn spine_plan(config: &FabricConfig, spine: u16) -> NamespacePlan {
    let (mut tc, mut ip) = (String::new(), String::from("link set lo up\n"));
    for leaf in 0..config.leaves {
        let (id, device) = (LinkId { leaf, spine }, down_device(leaf));
        tc += &shape(config, &device, config.uplink_rate_mbps, config.queue_bytes);
        ip += &link_end(id, End::Upper, &device);
        for family in [Family::V4, Family::V6] {
            ip += &spine_route(id, family);
        }
    }
    let name = spine_namespace(&config.name_prefix, spine);
    NamespacePlan { name, sysctls: switch_sysctls(config), tc, ip, offloads_off: None }
}

fn host_plan(config: &FabricConfig, id: HostId) -> NamespacePlan {
    let mut ip = String::from("link set lo up\n");
    for (family, bits) in [(Family::V4, 29), (Family::V6, 64)] {
        ip += &address_line(address::host(id, family), bits, HOST_DEVICE);
    }
    ip += &format!("link set {HOST_DEVICE} up\n");
    for (family, everything) in [(Family::V4, "0.0.0.0/0"), (Family::V6, "::/0")] {
        let gateway = address::gateway(id, family);
        ip += &neighbour(gateway, &address::host_mac(id, End::Upper), HOST_DEVICE);
        ip += &format!("route add {everything} via {gateway} dev {HOST_DEVICE}\n");
    }
    NamespacePlan {
        name: host_namespace(&config.name_prefix, id),
        sysctls: host_sysctls(),
        tc: shape(config, HOST_DEVICE, config.host_rate_mbps, config.host_queue_bytes),
        ip,
        offloads_off: if config.offloads { None } else { Some(HOST_DEVICE) },
    }
}

/// Returns the command for the working route of a spine to a leaf. The command is `replace`, so
/// that it also replaces a blackhole route.
#[must_use]
pub fn spine_route(id: LinkId, family: Family) -> String {
    let prefix = address::leaf_prefix(id.leaf, family);
    let via = address::link(id, End::Lower, family);
    format!("route replace {prefix} via {via} dev {}\n", down_device(id.leaf))
}

/// Returns the commands for one end of a leaf to spine link: set its addresses, set it up, and add
/// the neighbour at the other end.
fn link_end(id: LinkId, end: End, device: &str) -> String {
    let other = if end == End::Lower { End::Upper } else { End::Lower };
    let mut text = String::new();
    for (family, bits) in [(Family::V4, 31), (Family::V6, 64)] {
        text += &address_line(address::link(id, end, family), bits, device);
    }
    text += &format!("link set {device} up\n");
    let mac = address::link_mac(id, other);
    for family in [Family::V4, Family::V6] {
        text += &neighbour(address::link(id, other, family), &mac, device);
    }
    text
}

fn address_line(address: impl Into<std::net::IpAddr>, bits: u8, device: &str) -> String {
    let address = address.into();
    // Duplicate address detection would keep an IPv6 address unusable for a second.
    let nodad = if address.is_ipv6() { " nodad" } else { "" };
    format!("addr add {address}/{bits} dev {device}{nodad}\n")
}

/// Returns the command for a permanent neighbour entry, so that ARP or neighbour discovery does not
/// disturb first packets or failure tests.
fn neighbour(address: impl Into<std::net::IpAddr>, mac: &str, device: &str) -> String {
    format!("neigh replace {} lladdr {mac} dev {device} nud permanent\n", address.into())
}

fn sysctl(path: &'static str, value: impl ToString) -> Sysctl {
    Sysctl { path, value: value.to_string(), optional: false }
}

fn common_sysctls() -> Vec<Sysctl> {
    vec![
        sysctl("net/ipv4/conf/all/rp_filter", 0),
        sysctl("net/ipv4/conf/default/rp_filter", 0),
        sysctl("net/ipv6/conf/all/disable_ipv6", 0),
        sysctl("net/ipv6/conf/default/disable_ipv6", 0),
        sysctl("net/ipv6/conf/all/accept_dad", 0),
        sysctl("net/ipv6/conf/default/accept_dad", 0),
        sysctl("net/ipv6/conf/default/router_solicitations", 0),
        sysctl("net/ipv6/conf/default/accept_ra", 0),
    ]
}

/// Returns the settings of a switch, with ECMP hash policy 3. Policy 1 uses the hash of the
/// *sending socket* if a packet has one: that hash is kept across veth and namespaces, and TCP
/// changes it after every timeout. A flow would then leave a failed path without help of the
/// transport, which no real switch can do.
fn switch_sysctls(config: &FabricConfig) -> Vec<Sysctl> {
    let v6_fields =
        HASH_FIELDS_5_TUPLE | if config.hash_flow_label { HASH_FIELD_FLOW_LABEL } else { 0 };
    let mut all = common_sysctls();
    all.extend([
        sysctl("net/ipv4/ip_forward", 1),
        sysctl("net/ipv6/conf/all/forwarding", 1),
        sysctl("net/ipv4/icmp_ratelimit", 0),
        sysctl("net/ipv4/fib_multipath_hash_policy", 3),
        sysctl("net/ipv6/fib_multipath_hash_policy", 3),
        sysctl("net/ipv4/fib_multipath_hash_fields", HASH_FIELDS_5_TUPLE),
        sysctl("net/ipv6/fib_multipath_hash_fields", v6_fields),
        Sysctl {
            optional: true, // since Linux 6.11
            ..sysctl("net/ipv4/fib_multipath_hash_seed", config.hash_seed)
        },
    ]);
    all
}

fn host_sysctls() -> Vec<Sysctl> {
    let mut all = common_sysctls();
    all.extend([
        // A run must not use path metrics that an earlier run has stored.
        sysctl("net/ipv4/tcp_no_metrics_save", 1),
        sysctl("net/ipv4/ip_local_port_range", "10000 60999"),
        sysctl(
            "net/ipv4/ip_local_reserved_ports",
            format!("{}-{}", CHOSEN_PORTS.start(), CHOSEN_PORTS.end()),
        ),
    ]);
    all
}

#[cfg(test)]
mod tests;
