//! Kernel settings of the hosts: retransmission timeout, congestion control, MPTCP subflows.

use super::Fabric;
use crate::build::address::{self, EXTRA_ADDRESSES_MAX};
use crate::build::config::check;
use crate::build::id::HostId;
use crate::build::plan::HOST_DEVICE;
use crate::build::state::{State, Store};
use crate::{build::plan, programs::command, programs::namespace};
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::ErrorKind;

const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const RTO_MIN: &str = "/proc/sys/net/ipv4/tcp_rto_min_us";
const HASH_SEED: &str = "/proc/sys/net/ipv4/fib_multipath_hash_seed";
/// Permitted minimum retransmission timeout in milliseconds; Linux's own default is 200 ms.
const RTO_MIN_MS: std::ops::RangeInclusive<u64> = 1..=10_000;

impl Fabric {
    /// Sets TCP's minimum retransmission timeout on all hosts, for later connections.
    pub fn set_rto_min_ms(&self, rto_min_ms: u32) -> Result<()> {
        check("rto_min_ms", rto_min_ms.into(), RTO_MIN_MS)?;
        self.update(|state| {
            for host in state.config.hosts() {
                let space = plan::host_namespace(&state.config.name_prefix, host);
                let value = (u64::from(rto_min_ms) * 1000).to_string();
                namespace::within(&space, || fs::write(RTO_MIN, value))?
                    .with_context(|| format!("{RTO_MIN} (needs Linux 6.11 or later)"))?;
            }
            state.rto_min_ms = Some(rto_min_ms);
            Ok(())
        })
    }

    /// Sets the default TCP congestion control of all hosts. Linux permits a namespace only the
    /// algorithms of the machine's list, so this list may grow until the fabric is removed.
    pub fn set_tcp_cc(&self, name: &str) -> Result<()> {
        let available = words(AVAILABLE)?;
        if !available.iter().any(|other| other == name) {
            bail!(
                "this kernel has no congestion control `{name}`; it has {} \
                 (`modprobe tcp_{name}` may add it)",
                available.join(", ")
            );
        }
        // The lock is needed because a fabric that is removed during this change removes its
        // algorithms from the list.
        let set = |state: &mut State| {
            let mut allowed = words(ALLOWED)?;
            if !allowed.iter().any(|other| other == name) {
                allowed.push(name.to_owned());
                fs::write(ALLOWED, allowed.join(" ")).with_context(|| {
                    format!(
                        "cannot allow `{name}` in namespaces: {ALLOWED} \
                         (in a container, ask the host)"
                    )
                })?;
                state.congestion_allowed.push(name.to_owned());
            }
            for host in state.config.hosts() {
                let space = plan::host_namespace(&state.config.name_prefix, host);
                namespace::within(&space, || fs::write(DEFAULT, name))?
                    .with_context(|| format!("{DEFAULT} = {name} in {space}"))?;
            }
            state.congestion = Some(name.to_owned());
            Ok(())
        };
        self.update(|state| self.store.with_congestion(|| set(state)))
    }

    /// Gives every host this many extra IPv4 addresses and MPTCP subflows from them, in addition to
    /// the first subflow of a connection; zero removes all of them. ECMP hashes each subflow
    /// separately.
    pub fn mptcp(&self, subflows: u16) -> Result<()> {
        check("subflows", subflows.into(), 0..=u64::from(EXTRA_ADDRESSES_MAX))?;
        self.update(|state| {
            let old = state.mptcp_subflows;
            if old == subflows {
                return Ok(());
            }
            for host in state.config.hosts() {
                let space = plan::host_namespace(&state.config.name_prefix, host);
                command::ip_batch_in(&space, &mptcp_batch(host, old, subflows))?;
            }
            state.mptcp_subflows = subflows;
            Ok(())
        })
    }

    /// Returns the hosts' minimum retransmission timeout, if it was set.
    pub fn rto_min_ms(&self) -> Result<Option<u32>> {
        Ok(self.state()?.rto_min_ms)
    }

    /// Changes the seed of the leaves' ECMP hash, also for existing flows. A kernel before 6.11
    /// does not support this and keeps its own seed.
    pub fn set_hash_seed(&self, seed: u32) -> Result<()> {
        check("hash_seed", seed.into(), 1..=u64::from(u32::MAX))?;
        for leaf in 0..self.config().leaves {
            let space = plan::leaf_namespace(self.name(), leaf);
            match namespace::within(&space, || fs::write(HASH_SEED, seed.to_string()))? {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                result => result.with_context(|| format!("{HASH_SEED} in {space}"))?,
            }
        }
        Ok(())
    }

    /// Returns the number of extra MPTCP subflows of the hosts.
    pub fn mptcp_subflows(&self) -> Result<u16> {
        Ok(self.state()?.mptcp_subflows)
    }
}

/// Returns the commands for `ip -batch -` in a host that change the number of extra subflows from
/// `old` to `new`.
fn mptcp_batch(host: HostId, old: u16, new: u16) -> String {
    let mut text = String::from("mptcp limits set subflow 8 add_addr_accepted 8\n");
    text += "mptcp endpoint flush\n";
    let line = |verb: &str, extra| {
        format!("addr {verb} {}/29 dev {HOST_DEVICE}\n", address::host_v4(host, extra))
    };
    text.extend((new + 1..=old).map(|extra| line("del", extra)));
    text.extend((old + 1..=new).map(|extra| line("add", extra)));
    for extra in 1..=new {
        let address = address::host_v4(host, extra);
        text += &format!("mptcp endpoint add {address} dev {HOST_DEVICE} subflow\n");
    }
    text
}

/// Removes congestion controls from the machine's list.
pub(super) fn disallow_congestion(names: &[String], store: &Store) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    store.with_congestion(|| {
        let mut allowed = words(ALLOWED)?;
        allowed.retain(|name| !names.contains(name));
        match fs::write(ALLOWED, allowed.join(" ")) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context(ALLOWED),
            _ => Ok(()),
        }
    })
}

fn words(path: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).context(path.to_owned())?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostId = HostId { leaf: 1, host: 0 };

    #[test]
    fn subflows_come_with_their_addresses_and_go_with_them() {
        let on = mptcp_batch(HOST, 0, 2);
        assert_eq!(on.matches("addr add").count(), 2);
        assert!(on.contains("addr add 198.18.1.3/29 dev eth0\n"));
        assert!(on.ends_with("mptcp endpoint add 198.18.1.3 dev eth0 subflow\n"));
        let off = mptcp_batch(HOST, 2, 0);
        assert_eq!(off.matches("addr del").count(), 2);
        assert!(!off.contains("endpoint add"));
    }

    #[test]
    fn more_subflows_add_only_what_is_new() {
        let text = mptcp_batch(HOST, 1, 3);
        assert_eq!(text.matches("addr add").count(), 2);
        assert_eq!(text.matches("endpoint add").count(), 3);
    }
}
