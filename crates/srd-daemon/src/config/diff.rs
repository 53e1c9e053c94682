//! The difference between two configurations, and the part of it that a running daemon applies.
//!
//! A peer is identified by its key, or by its address if there is no encryption. Therefore a peer
//! with a new name is a change, but a peer with a new key is another peer.

use std::fmt;
use std::net::SocketAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Config, HostPort, Interface, PeerSettings, Protection};

/// Changes from one configuration to the next.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Difference {
    /// Peers that only the new configuration has.
    pub added: Vec<PeerSettings>,
    /// Peers that only the old configuration has.
    pub removed: Vec<PeerSettings>,
    /// Peers that both configurations have, with different settings.
    pub changed: Vec<PeerChange>,
    /// Keys in the file of changed settings that are applied while the daemon runs.
    pub live: Vec<&'static str>,
    /// Keys (of the configuration file) of those changed settings that take effect only after a
    /// restart.
    pub restart: Vec<&'static str>,
}

/// A peer that both configurations have, with different settings.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerChange {
    /// Settings before the change.
    pub old: PeerSettings,
    /// Settings after the change.
    pub new: PeerSettings,
    /// The keys of the changed settings, as the file writes them.
    pub keys: Vec<&'static str>,
}

impl PeerChange {
    /// Whether the change closes the context with the peer and opens a new context: this is
    /// necessary if its endpoint, its preshared key, or its name as a host of the clouds changed.
    pub fn is_anew(&self) -> bool {
        self.keys.iter().any(|key| matches!(*key, "endpoint" | "preshared_key_file" | "host"))
    }
}

/// Key of the file with the private key of this node.
pub(crate) const PRIVATE_KEY: &str = "private_key_file";
/// Keys of settings that no reload applies, and that a process that takes over applies. The state
/// of a hand-over compares other keys.
const BY_TAKE_OVER: [&str; 8] =
    [PRIVATE_KEY, "dscp", "link_rate", "metrics", "scale", "credits", "end_programs", "processors"];
/// Text after the name of a peer in a reload's report: the name stays, but the key was replaced.
pub(crate) const REKEYED: &str = " (another key)";

/// Result of a reload, for people: names of peers, and keys of settings in the file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadReport {
    /// Peers that were added.
    pub added: Vec<String>,
    /// Peers that were removed.
    pub removed: Vec<String>,
    /// Peers that were changed.
    pub changed: Vec<String>,
    /// Peers that could not be applied and are removed, each with the reason.
    pub failed: Vec<String>,
    /// Keys of changed settings that were applied.
    pub live: Vec<String>,
    /// Keys of changed settings that apply only after a restart, some of them also after a
    /// take-over.
    pub restart: Vec<String>,
    /// Whether the VPC's file has changed. Its rules and instances are in force.
    pub vpc: bool,
}

impl PeerChange {
    /// Text with the peer's new name, and its old name if that was different. Without the old name,
    /// one report could list the same name as removed and as changed, if another peer now has it.
    fn shown(&self) -> String {
        let (old, new) = (&self.old.name, &self.new.name);
        if old == new { new.clone() } else { format!("{old}, which is called {new} now") }
    }
}

impl Difference {
    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Text form of this difference, as it is reported after a reload.
    pub fn report(&self) -> ReloadReport {
        // The difference compares peers by key, but people compare them by name: a name that is
        // both added and removed is reported as changed.
        let has = |peers: &[PeerSettings], name: &str| peers.iter().any(|p| p.name == name);
        let rekeyed = |name: &str| has(&self.added, name) && has(&self.removed, name);
        let names = |peers: &[PeerSettings]| {
            peers.iter().map(|p| p.name.clone()).filter(|name| !rekeyed(name)).collect()
        };
        let anew = self.added.iter().map(|peer| &peer.name).filter(|name| rekeyed(name));
        let anew = anew.map(|name| format!("{name}{REKEYED}"));
        let words = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        ReloadReport {
            added: names(&self.added),
            removed: names(&self.removed),
            changed: self.changed.iter().map(PeerChange::shown).chain(anew).collect(),
            failed: Vec::new(),
            live: words(&self.live),
            restart: words(&self.restart),
            vpc: false,
        }
    }
}

impl ReloadReport {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = self.restart.iter().cloned();
        let (by_take_over, by_restart): (Vec<String>, Vec<String>) =
            waits.partition(|key| BY_TAKE_OVER.contains(&key.as_str()));
        let rows = [
            ("peers added", &self.added),
            ("peers removed", &self.removed),
            ("peers changed", &self.changed),
            ("peers that could not be taken over and are gone", &self.failed),
            ("settings taken over", &self.live),
            (
                "settings that wait for a take-over (`srd up` or `srd card up` with -c FILE \
                 --take-over) or a restart",
                &by_take_over,
            ),
            ("settings that wait for a restart", &by_restart),
        ];
        let rows = rows.iter().filter(|(_, names)| !names.is_empty());
        let rows = rows.map(|(what, names)| format!("{what}: {}", names.join(", ")));
        let vpc = self.vpc.then(|| String::from("changes in the VPC's file taken over"));
        let lines: Vec<String> = rows.chain(vpc).collect();
        f.write_str(if lines.is_empty() { "nothing has changed" } else { "" })?;
        f.write_str(&lines.join("\n"))
    }
}

impl Config {
    /// The changes from `self` to `new`.
    pub fn diff(&self, new: &Self) -> Difference {
        let mut difference = Difference::default();
        for peer in &new.peers {
            match self.peers.iter().find(|old| is_same(old, peer)) {
                None => difference.added.push(peer.clone()),
                Some(old) => {
                    let keys = peer_keys(old, peer);
                    if !keys.is_empty() {
                        let (old, new) = (old.clone(), peer.clone());
                        difference.changed.push(PeerChange { old, new, keys });
                    }
                }
            }
        }
        let is_gone = |old: &&PeerSettings| !new.peers.iter().any(|peer| is_same(old, peer));
        difference.removed = self.peers.iter().filter(is_gone).cloned().collect();
        difference.live = live_keys(&self.interface, &new.interface);
        // The controller of a host that has enrolled also needs its key.
        let is_own = self.enrol.is_none() && new.enrol.is_none();
        let is_encrypted = |of: &Self| of.interface.protection.private_key().is_some();
        let is_live = is_own && is_encrypted(self) && is_encrypted(new);
        difference.restart = restart_keys(self, new);
        if is_live && let Some(at) = difference.restart.iter().position(|key| *key == PRIVATE_KEY) {
            difference.live.push(difference.restart.remove(at));
        }
        difference
    }
}

impl Interface {
    /// Returns why a peer cannot be added while the interface runs with these settings; `None` if
    /// it can. The peer may be valid with the new settings of the file, if those need a restart.
    pub(crate) fn unfit(&self, peer: &PeerSettings) -> Option<String> {
        let name = &peer.name;
        let own = |net: &&IpNet| self.address.iter().any(|a| IpNet::from(a.addr()) == **net);
        let why = match self.protection {
            _ if self.is_alone() => {
                format!(
                    "`{name}` is another host, and [interface] with `listen` waits for a restart"
                )
            }
            Protection::Encrypted(_) if peer.public_key.is_none() => {
                format!("`{name}` has no public_key, and `protection` waits for a restart")
            }
            Protection::Plain if peer.endpoint.is_none() => {
                format!("`{name}` has no endpoint, and `protection` waits for a restart")
            }
            _ if !peer.endpoints().all(|to| self.reaches(to.ip())) => {
                format!(
                    "`{name}` has an address of a family that `listen` has none of, and `listen` \
                     waits for a restart"
                )
            }
            _ if peer.endpoints().any(|to| self.is_inside(to.ip())) => {
                format!("the endpoint of `{name}` is inside the overlay, which leads to it")
            }
            _ => {
                let net = peer.allowed.iter().find(own)?;
                format!("{net} of `{name}` is our own, and `address` waits for a restart")
            }
        };
        Some(why)
    }
}

pub(crate) fn is_same(a: &PeerSettings, b: &PeerSettings) -> bool {
    match (&a.public_key, &b.public_key) {
        (Some(a), Some(b)) => a == b,
        (None, None) => a.endpoint == b.endpoint,
        _ => false,
    }
}

fn changed<const N: usize>(pairs: [(&'static str, bool); N]) -> Vec<&'static str> {
    pairs.iter().filter(|(_, is_changed)| *is_changed).map(|(key, _)| *key).collect()
}

fn peer_keys(old: &PeerSettings, new: &PeerSettings) -> Vec<&'static str> {
    changed([
        ("name", old.name != new.name),
        ("preshared_key_file", old.preshared_key != new.preshared_key),
        ("endpoint", place(old) != place(new)),
        ("host", old.cloud_host != new.cloud_host),
        ("allowed", old.allowed != new.allowed),
        ("express", old.express != new.express),
        ("express_udp", old.express_udp != new.express_udp),
    ])
}

/// The endpoint as the file contains it: a host name, or fixed addresses. Addresses that a name
/// resolved to are not included.
fn place(peer: &PeerSettings) -> (Option<&HostPort>, Vec<SocketAddr>) {
    let fixed = peer.endpoints().filter(|_| peer.host.is_none());
    (peer.host.as_ref(), fixed.collect())
}

fn live_keys(old: &Interface, new: &Interface) -> Vec<&'static str> {
    changed([
        ("express", old.express != new.express),
        ("express_udp", old.express_udp != new.express_udp),
        ("express_tunnels", old.express_tunnels != new.express_tunnels),
        ("udp_ordering", old.udp_ordering != new.udp_ordering),
        ("order_wait_ms", old.order_wait != new.order_wait),
        ("queue_delay_ms", old.queue_delay != new.queue_delay),
        ("poll", old.poll != new.poll),
    ])
}

fn restart_keys(old: &Config, new: &Config) -> Vec<&'static str> {
    let (from, to) = (&old.interface, &new.interface);
    let is_plain = |p: &Protection| *p == Protection::Plain;
    let key = |i: &Interface| i.protection.private_key().map(crate::keys::SecretKey::bytes);
    changed([
        ("name", from.name != to.name),
        ("mode", from.mode != to.mode),
        ("address", from.address != to.address),
        ("protection", is_plain(&from.protection) != is_plain(&to.protection)),
        (PRIVATE_KEY, key(from) != key(to)),
        ("listen", !from.listens().eq(to.listens())),
        ("mtu", from.mtu != to.mtu),
        ("paths", from.paths != to.paths),
        ("workers", from.workers != to.workers),
        ("io", from.io != to.io),
        ("dscp", from.dscp != to.dscp),
        ("link_rate", from.link_rate_bps != to.link_rate_bps),
        ("table", from.table != to.table),
        ("kill_switch", from.kill_switch != to.kill_switch),
        ("pre_up, post_up, pre_down or post_down", from.hooks != to.hooks),
        // If both files have instances, their card reports the keys that it cannot apply.
        ("cloud", old.cloud.is_some() != new.cloud.is_some()),
        ("enrol", old.enrol != new.enrol),
        ("control", old.control != new.control),
        ("metrics", old.metrics != new.metrics),
    ])
}
