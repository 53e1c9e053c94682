//! Requirements of a fabric that this machine lacks, each with its remedy.

use crate::build::config::FabricConfig;
use crate::programs::command::find_program;
use anyhow::{Result, bail};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::Path;

/// A missing requirement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Name of the requirement.
    pub what: &'static str,
    /// Feature that needs the requirement.
    pub needed_for: &'static str,
    /// Command or action that provides the requirement.
    pub remedy: &'static str,
    /// Whether no fabric can be built without it.
    pub required: bool,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is missing (needed for {}): {}", self.what, self.needed_for, self.remedy)
    }
}

const INSTALL: &str = "apt-get install iproute2 nftables ethtool";
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// Returns all missing requirements, first the requirements without which no fabric works. If the
/// list is empty, all features work.
#[must_use]
pub fn requirements() -> Vec<Missing> {
    let missing = |present: bool, what, needed_for, remedy, required| {
        (!present).then_some(Missing { what, needed_for, remedy, required })
    };
    let installed = |name| find_program(name).is_some();
    [
        missing(
            has_capabilities(),
            "root (CAP_SYS_ADMIN and CAP_NET_ADMIN)",
            "network namespaces",
            "run as root, for example with sudo",
            true,
        ),
        missing(installed("ip"), "`ip`", "building a fabric", INSTALL, true),
        missing(installed("tc"), "`tc`", "building a fabric", INSTALL, true),
        missing(
            exists("/proc/sys/net/ipv4/fib_multipath_hash_fields"),
            "multipath routing by chosen fields",
            "ECMP that behaves like a switch",
            "run on Linux 5.14 or later with CONFIG_IP_ROUTE_MULTIPATH",
            true,
        ),
        missing(
            exists("/proc/sys/net/ipv6/fib_multipath_hash_fields"),
            "IPv6",
            "building a fabric",
            "boot without ipv6.disable=1",
            true,
        ),
        missing(installed("nft"), "`nft`", "packet loss", INSTALL, false),
        missing(installed("ethtool"), "`ethtool`", "offloads = false", INSTALL, false),
        missing(
            exists("/proc/sys/net/mptcp/enabled"),
            "Multipath TCP",
            "MPTCP measurements",
            "run on a kernel with CONFIG_MPTCP",
            false,
        ),
        missing(
            exists("/proc/sys/net/ipv4/tcp_rto_min_us"),
            "the sysctl tcp_rto_min_us",
            "set_rto_min_ms",
            "run on Linux 6.11 or later",
            false,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns an error that lists the missing requirements of this configuration, if there are any.
pub(crate) fn check(config: &FabricConfig) -> Result<()> {
    let needed = |m: &Missing| m.required || (m.what == "`ethtool`" && !config.offloads);
    let missing: Vec<_> =
        requirements().iter().filter(|m| needed(m)).map(ToString::to_string).collect();
    if !missing.is_empty() {
        bail!("{}", missing.join("\n"));
    }
    Ok(())
}

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}

fn has_capabilities() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let needed = CAP_NET_ADMIN | CAP_SYS_ADMIN;
    bits & needed == needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_says_what_to_do() {
        let missing = Missing { what: "`ip`", needed_for: "x", remedy: INSTALL, required: true };
        let text = missing.to_string();
        assert_eq!(
            text,
            "`ip` is missing (needed for x): apt-get install iproute2 nftables ethtool"
        );
    }

    #[test]
    fn required_things_come_first() {
        let required: Vec<bool> = requirements().iter().map(|m| m.required).collect();
        assert!(required.is_sorted_by(|a, b| a >= b));
    }
}
