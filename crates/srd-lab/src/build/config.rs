//! Configuration of a fabric: every option with its unit, default and permitted range.
//!
//! A [`FabricConfig`] is checked once, by [`FabricConfig::validate`]; the code that uses a checked
//! configuration relies on the ranges below (addresses fit their prefixes, bursts fit a token
//! bucket).

use crate::build::id::{HostId, LinkId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;

/// Longest `name_prefix`.
pub const NAME_BYTES_MAX: usize = 24;
/// Permitted number of leaves.
pub const LEAVES: RangeInclusive<u64> = 1..=32;
/// Permitted number of hosts under one leaf: each host takes a /29 of the leaf's /24.
pub const HOSTS_PER_LEAF: RangeInclusive<u64> = 1..=31;
/// Permitted number of spines.
pub const SPINES: RangeInclusive<u64> = 1..=64;
/// Permitted number of namespaces of a fabric, so that it does not exhaust the machine.
pub const NAMESPACES: RangeInclusive<u64> = 1..=256;
/// Permitted link rate in Mb/s. Zero is not permitted: a port without a rate limit lets 64 KB
/// super-packets through.
pub const RATE_MBPS: RangeInclusive<u64> = 1..=40_000;
/// Source ports that programs of experiments choose. The kernel of a host assigns none of them.
pub const CHOSEN_PORTS: RangeInclusive<u16> = 20_000..=49_999;
/// Permitted MTU: IPv6 needs 1280; beyond 9000 the burst would pass 64 KB super-packets unsplit.
pub const MTU: RangeInclusive<u64> = 1280..=9000;
/// Largest permitted queue limit; the smallest is one token bucket burst.
pub const QUEUE_BYTES_MAX: u64 = 256 << 20;
/// Packets of MTU size that a port may send back to back. With one packet a port loses about 5 % of
/// its rate, because the token bucket cannot catch up after a late timer; with three packets the
/// rate is exact.
pub const BURST_PACKETS: u32 = 3;
/// Bytes that a token bucket counts in addition to the MTU.
pub const ETHERNET_HEADER_BYTES: u32 = 14;

/// Configuration of a fabric. The default has two leaves with four 1 Gb/s hosts each, and four
/// spines with 250 Mb/s links: one host can fill all uplinks of its leaf, but over one path it gets
/// only a quarter of its rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FabricConfig {
    /// Name of the fabric: its namespaces are called `srdlab-<name_prefix>-...`. Lower-case letters
    /// and digits, 1 to 24 of them. Fabrics with different names can exist at the same time.
    pub name_prefix: String,
    /// Number of leaf (top-of-rack) switches.
    pub leaves: u16,
    /// Number of hosts under each leaf.
    pub hosts_per_leaf: u16,
    /// Number of spine switches; each leaf has one link to each spine.
    pub spines: u16,
    /// Rate of host links in each direction, in Mb/s.
    pub host_rate_mbps: u32,
    /// Rate of leaf to spine links in each direction, in Mb/s.
    pub uplink_rate_mbps: u32,
    /// Queue limit of every switch port, in bytes.
    pub queue_bytes: u32,
    /// Queue limit of every host's NIC, in bytes. The queue can be deep, because it exerts
    /// back-pressure on the kernel's TCP.
    pub host_queue_bytes: u32,
    /// MTU of every link, in bytes.
    pub mtu: u32,
    /// Seed of the leaves' ECMP hash: the same seed gives the same collisions. Zero is not
    /// permitted, because the kernel would then choose a seed.
    pub hash_seed: u32,
    /// Whether segmentation offload stays on in the hosts. The NIC's token bucket cuts
    /// super-packets to MTU size in both cases; without offload the hosts need more CPU.
    pub offloads: bool,
    /// Whether leaves also hash the IPv6 flow label, which Linux TCP changes after a timeout. False
    /// by default, because few datacenter switches hash it.
    pub hash_flow_label: bool,
}

impl Default for FabricConfig {
    fn default() -> Self {
        FabricConfig {
            name_prefix: "lab".into(),
            leaves: 2,
            hosts_per_leaf: 4,
            spines: 4,
            host_rate_mbps: 1000,
            uplink_rate_mbps: 250,
            queue_bytes: 200_000,
            host_queue_bytes: 2_000_000,
            mtu: 9000,
            hash_seed: 8,
            offloads: true,
            hash_flow_label: false,
        }
    }
}

/// A field with a value that is not permitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field's name.
    pub field: &'static str,
    /// Value of the field.
    pub value: String,
    /// Range of permitted values, as text.
    pub permitted: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: must be {}", self.field, self.value, self.permitted)
    }
}

impl std::error::Error for ConfigError {}

impl FabricConfig {
    /// Checks every field; the error describes the first field that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_name(&self.name_prefix)?;
        check("leaves", self.leaves.into(), LEAVES)?;
        check("hosts_per_leaf", self.hosts_per_leaf.into(), HOSTS_PER_LEAF)?;
        check("spines", self.spines.into(), SPINES)?;
        let leaves = u64::from(self.leaves);
        let namespaces = leaves + u64::from(self.spines) + leaves * u64::from(self.hosts_per_leaf);
        check("leaves + spines + leaves * hosts_per_leaf", namespaces, NAMESPACES)?;
        check("host_rate_mbps", self.host_rate_mbps.into(), RATE_MBPS)?;
        check("uplink_rate_mbps", self.uplink_rate_mbps.into(), RATE_MBPS)?;
        check("mtu", self.mtu.into(), MTU)?;
        let queue = u64::from(self.burst_bytes())..=QUEUE_BYTES_MAX;
        check("queue_bytes", self.queue_bytes.into(), queue.clone())?;
        check("host_queue_bytes", self.host_queue_bytes.into(), queue)?;
        check("hash_seed", self.hash_seed.into(), 1..=u64::from(u32::MAX))
    }

    /// Returns the largest rate of a host between racks in Mb/s: the rate of its link or, if lower,
    /// the sum of its leaf's uplinks.
    #[must_use]
    pub fn host_rate_mbps_at_most(&self) -> u32 {
        self.host_rate_mbps.min(self.uplink_rate_mbps.saturating_mul(self.spines.into()))
    }

    /// Returns the bytes that a port may send back to back.
    #[must_use]
    pub fn burst_bytes(&self) -> u32 {
        BURST_PACKETS * (self.mtu + ETHERNET_HEADER_BYTES)
    }

    /// Returns all hosts, leaf by leaf.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> + use<> {
        let hosts_per_leaf = self.hosts_per_leaf;
        (0..self.leaves)
            .flat_map(move |leaf| (0..hosts_per_leaf).map(move |host| HostId { leaf, host }))
    }

    /// Returns all leaf to spine links, leaf by leaf.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        let spines = self.spines;
        (0..self.leaves).flat_map(move |leaf| (0..spines).map(move |spine| LinkId { leaf, spine }))
    }

    /// Checks that the fabric has this host.
    pub fn check_host(&self, host: HostId) -> Result<(), ConfigError> {
        check("leaf of the host", host.leaf.into(), 0..=u64::from(self.leaves - 1))?;
        check("number of the host", host.host.into(), 0..=u64::from(self.hosts_per_leaf - 1))
    }

    /// Checks that the fabric has this link.
    pub fn check_link(&self, link: LinkId) -> Result<(), ConfigError> {
        self.check_leaf(link.leaf)?;
        self.check_spine(link.spine)
    }

    /// Checks that the fabric has this leaf.
    pub fn check_leaf(&self, leaf: u16) -> Result<(), ConfigError> {
        check("leaf", leaf.into(), 0..=u64::from(self.leaves - 1))
    }

    /// Checks that the fabric has this spine.
    pub fn check_spine(&self, spine: u16) -> Result<(), ConfigError> {
        check("spine", spine.into(), 0..=u64::from(self.spines - 1))
    }

    /// Returns the payload rate in Mb/s of a TCP stream that fills a link of `rate_mbps` with
    /// full-size segments.
    #[must_use]
    pub fn goodput_mbps(&self, rate_mbps: u32) -> f64 {
        let headers = 52; // IPv4 20, TCP 20, timestamps 12
        f64::from(rate_mbps) * f64::from(self.mtu - headers)
            / f64::from(self.mtu + ETHERNET_HEADER_BYTES)
    }
}

/// Checks a fabric name. A hyphen is not permitted, because `srdlab-a-` must not be a prefix of
/// another fabric's namespaces.
pub fn check_name(name: &str) -> Result<(), ConfigError> {
    let ok = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if ok {
        return Ok(());
    }
    Err(ConfigError {
        field: "name_prefix",
        value: format!("{name:?}"),
        permitted: format!("1 to {NAME_BYTES_MAX} lower-case letters and digits"),
    })
}

/// Checks one number against its range.
pub fn check(
    field: &'static str,
    value: u64,
    permitted: RangeInclusive<u64>,
) -> Result<(), ConfigError> {
    if permitted.contains(&value) {
        return Ok(());
    }
    let permitted = format!("{} to {}", permitted.start(), permitted.end());
    Err(ConfigError { field, value: value.to_string(), permitted })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(change: impl FnOnce(&mut FabricConfig)) -> String {
        let mut config = FabricConfig::default();
        change(&mut config);
        config.validate().expect_err("must be refused").to_string()
    }

    #[test]
    fn default_is_valid() {
        assert_eq!(FabricConfig::default().validate(), Ok(()));
    }

    #[test]
    fn error_names_field_value_and_range() {
        assert_eq!(error_of(|c| c.leaves = 0), "leaves = 0: must be 1 to 32");
        assert_eq!(error_of(|c| c.hosts_per_leaf = 32), "hosts_per_leaf = 32: must be 1 to 31");
        assert_eq!(error_of(|c| c.spines = 65), "spines = 65: must be 1 to 64");
        assert_eq!(error_of(|c| c.mtu = 9001), "mtu = 9001: must be 1280 to 9000");
        assert_eq!(error_of(|c| c.host_rate_mbps = 0), "host_rate_mbps = 0: must be 1 to 40000");
        assert_eq!(
            error_of(|c| c.queue_bytes = 20_000),
            "queue_bytes = 20000: must be 27042 to 268435456"
        );
        assert_eq!(error_of(|c| c.hash_seed = 0), "hash_seed = 0: must be 1 to 4294967295");
        let many = error_of(|c| (c.leaves, c.hosts_per_leaf) = (32, 31));
        assert_eq!(many, "leaves + spines + leaves * hosts_per_leaf = 1028: must be 1 to 256");
    }

    #[test]
    fn name_cannot_reach_into_another_fabric_or_the_shell() {
        for bad in ["", "a-b", "A", "a b", "../x", "a;b", "abcdefghijklmnopqrstuvwxyz"] {
            let error = error_of(|c| c.name_prefix = bad.into());
            assert!(error.starts_with("name_prefix = "), "{error}");
        }
    }

    #[test]
    fn json_refuses_unknown_fields_and_fills_missing_ones() {
        let config: FabricConfig = serde_json::from_str(r#"{"spines": 8}"#).unwrap();
        assert_eq!(config, FabricConfig { spines: 8, ..FabricConfig::default() });
        assert!(serde_json::from_str::<FabricConfig>(r#"{"spine": 8}"#).is_err());
    }

    #[test]
    fn hosts_and_links_are_checked_against_the_fabric() {
        let config = FabricConfig::default();
        assert_eq!(config.hosts().count(), 8);
        assert_eq!(config.links().count(), 8);
        assert!(config.check_host(HostId { leaf: 1, host: 3 }).is_ok());
        assert!(config.check_host(HostId { leaf: 2, host: 0 }).is_err());
        let error = config.check_link(LinkId { leaf: 0, spine: 4 }).expect_err("no such spine");
        assert_eq!(error.to_string(), "spine = 4: must be 0 to 3");
    }
}
