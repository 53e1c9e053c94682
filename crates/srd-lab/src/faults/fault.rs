//! Faults of a fabric, and the commands that set and remove them.
//!
//! A failure here is *silent*: packets are dropped, no link goes down and no route changes at the
//! leaves. So a transport gets no notification and has to detect the failure itself. [`Faults`]
//! holds the current faults; [`changes`], a pure function, returns the commands that lead from one
//! set of faults to another.

use crate::build::config::FabricConfig;
use crate::build::id::{Family, LinkId};
use crate::{build::address, build::plan};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The faults of a fabric that are in force now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Faults {
    /// Spines that drop all packets.
    pub failed_spines: BTreeSet<u16>,
    /// Links that drop all packets in both directions.
    pub failed_links: BTreeSet<LinkId>,
    /// Links with a changed rate in both directions, in Mb/s.
    pub slowed_links: BTreeMap<LinkId, u32>,
    /// Spines that drop packets randomly, with the number of dropped packets per thousand.
    pub loss_permille: BTreeMap<u16, u16>,
    /// Size up to which a spine in `loss_permille` drops no packets, in bytes including the IP
    /// header.
    pub loss_spares_bytes: BTreeMap<u16, u32>,
}

/// Packets that spines dropped randomly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// Number of packets that spines dropped randomly.
    pub packets: u64,
    /// Bytes of the packets that spines dropped randomly, including IP headers.
    pub bytes: u64,
}

impl Faults {
    /// Whether there is no fault.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Faults::default()
    }

    fn blackholes(&self, link: LinkId) -> bool {
        self.failed_spines.contains(&link.spine) || self.failed_links.contains(&link)
    }
}

/// Commands that change the faults in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Name of the namespace in which the commands run.
    pub namespace: String,
    /// Commands for `ip -batch -`.
    pub ip: String,
    /// Commands for `ip -6 -batch -`: rules, whose address family cannot be derived from an
    /// address.
    pub ip_v6: String,
    /// Commands for `tc -batch -`.
    pub tc: String,
    /// Commands for `nft -f -`.
    pub nft: String,
}

/// Returns the commands that lead from `old` to `new`; empty if they are equal.
#[must_use]
pub fn changes(config: &FabricConfig, old: &Faults, new: &Faults) -> Vec<Change> {
    let fabric = &config.name_prefix;
    let mut all = Vec::new();
    for spine in 0..config.spines {
        let mut change =
            Change { namespace: plan::spine_namespace(fabric, spine), ..Change::default() };
        for leaf in 0..config.leaves {
            spine_link(config, LinkId { leaf, spine }, [old, new], &mut change);
        }
        let loss = |faults: &Faults| {
            let permille = faults.loss_permille.get(&spine).copied().unwrap_or(0);
            (permille, faults.loss_spares_bytes.get(&spine).copied().unwrap_or(0))
        };
        if loss(old) != loss(new) {
            let (permille, spares_bytes) = loss(new);
            change.nft = loss_rules(permille, spares_bytes);
        }
        all.push(change);
    }
    for leaf in 0..config.leaves {
        let mut change =
            Change { namespace: plan::leaf_namespace(fabric, leaf), ..Change::default() };
        for spine in 0..config.spines {
            let rates = [old, new].map(|faults| rate(config, faults, LinkId { leaf, spine }));
            if rates[0] != rates[1] {
                let device = plan::up_device(spine);
                change.tc += &plan::shape(config, &device, rates[1], config.queue_bytes);
            }
        }
        all.push(change);
    }
    all.retain(|c| !(c.ip.is_empty() && c.ip_v6.is_empty() && c.tc.is_empty() && c.nft.is_empty()));
    all
}

/// Adds the commands for the spine's end of one link.
fn spine_link(config: &FabricConfig, link: LinkId, faults: [&Faults; 2], change: &mut Change) {
    let [old, new] = faults;
    if old.blackholes(link) != new.blackholes(link) {
        for family in [Family::V4, Family::V6] {
            change.ip += &if new.blackholes(link) {
                format!("route replace blackhole {}\n", address::leaf_prefix(link.leaf, family))
            } else {
                plan::spine_route(link, family)
            };
        }
    }
    // The route drops packets that the spine sends down the link; this rule drops packets that
    // arrive from the leaf.
    let rule = match [old, new].map(|f| f.failed_links.contains(&link)) {
        [false, true] => "add",
        [true, false] => "del",
        _ => "",
    };
    if !rule.is_empty() {
        let line = format!("rule {rule} iif {} blackhole\n", plan::down_device(link.leaf));
        change.ip += &line;
        change.ip_v6 += &line;
    }
    let [was, is] = [old, new].map(|faults| rate(config, faults, link));
    if was != is {
        let device = plan::down_device(link.leaf);
        change.tc += &plan::shape(config, &device, is, config.queue_bytes);
    }
}

fn rate(config: &FabricConfig, faults: &Faults, link: LinkId) -> u32 {
    faults.slowed_links.get(&link).copied().unwrap_or(config.uplink_rate_mbps)
}

fn loss_rules(permille: u16, spares_bytes: u32) -> String {
    // The table is added before it is deleted, because deleting a missing table is an error.
    let mut text = String::from("add table inet srdlab\ndelete table inet srdlab\n");
    if permille > 0 {
        text += "add table inet srdlab\n\
                 add chain inet srdlab loss \
                 { type filter hook forward priority 0; policy accept; }\n";
        // nft refuses a comparison that is always true.
        let some = if permille < 1000 {
            format!("numgen random mod 1000 < {permille} ")
        } else {
            String::new()
        };
        let large =
            if spares_bytes > 0 { format!("meta length > {spares_bytes} ") } else { String::new() };
        text += &format!("add rule inet srdlab loss {large}{some}counter drop\n");
    }
    text
}

/// Returns the counter of a loss rule, from `nft -j list chain`.
pub(crate) fn counted(json: &str) -> Result<Lost> {
    let list: Value = serde_json::from_str(json).context("what nft lists")?;
    let parts = list["nftables"].as_array().into_iter().flatten();
    let statements = parts.flat_map(|part| part["rule"]["expr"].as_array()).flatten();
    let counter = statements.map(|one| &one["counter"]).find(|counter| counter.is_object());
    let number = |name| counter.and_then(|counter| counter[name].as_u64());
    let (packets, bytes) =
        number("packets").zip(number("bytes")).context("nft lists no counter")?;
    Ok(Lost { packets, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> FabricConfig {
        FabricConfig { name_prefix: "t".into(), spines: 2, ..FabricConfig::default() }
    }

    fn with<T>(change: impl FnOnce(&mut Faults) -> T) -> Faults {
        let mut faults = Faults::default();
        change(&mut faults);
        faults
    }

    #[test]
    fn equal_faults_need_no_commands() {
        let faults = with(|f| f.failed_spines.insert(1));
        assert_eq!(changes(&small(), &faults, &faults), []);
    }

    #[test]
    fn failed_spine_blackholes_every_leaf_and_touches_nobody_else() {
        let failed = with(|f| f.failed_spines.insert(1));
        let list = changes(&small(), &Faults::default(), &failed);
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].namespace, "srdlab-t-s1");
        assert_eq!(
            list[0].ip,
            "route replace blackhole 198.18.0.0/24\nroute replace blackhole fd00:18::/48\n\
             route replace blackhole 198.18.1.0/24\nroute replace blackhole fd00:18:1::/48\n"
        );
        let healed = changes(&small(), &failed, &Faults::default());
        assert!(healed[0].ip.contains("route replace 198.18.1.0/24 via 198.19.1.2 dev dn1\n"));
        assert!(healed[0].ip.contains("route replace fd00:18:1::/48 via fd00:19:1:1::1 dev dn1\n"));
    }

    #[test]
    fn failed_link_swallows_both_directions() {
        let link = LinkId { leaf: 0, spine: 1 };
        let failed = with(|f| f.failed_links.insert(link));
        let list = changes(&small(), &Faults::default(), &failed);
        assert_eq!(list.len(), 1);
        assert!(list[0].ip.starts_with("route replace blackhole 198.18.0.0/24\n"));
        assert!(list[0].ip.ends_with("rule add iif dn0 blackhole\n"));
        assert_eq!(list[0].ip_v6, "rule add iif dn0 blackhole\n");
        assert_eq!(
            changes(&small(), &failed, &Faults::default())[0].ip_v6,
            "rule del iif dn0 blackhole\n"
        );
    }

    #[test]
    fn healing_a_spine_leaves_its_failed_link_dead() {
        let link = LinkId { leaf: 0, spine: 1 };
        let both = with(|f| {
            f.failed_spines.insert(1);
            f.failed_links.insert(link);
        });
        let link_only = with(|f| f.failed_links.insert(link));
        let list = changes(&small(), &both, &link_only);
        assert!(!list[0].ip.contains("198.18.0.0/24"), "{}", list[0].ip);
        assert!(list[0].ip.contains("route replace 198.18.1.0/24 via"), "{}", list[0].ip);
    }

    #[test]
    fn slow_link_changes_both_ends_and_back() {
        let slow = with(|f| f.slowed_links.insert(LinkId { leaf: 1, spine: 0 }, 50));
        let list = changes(&small(), &Faults::default(), &slow);
        let seen: Vec<_> = list.iter().map(|c| (c.namespace.as_str(), c.tc.as_str())).collect();
        let line = |device| {
            format!("qdisc replace dev {device} root tbf rate 50mbit burst 27042 limit 200000\n")
        };
        assert_eq!(
            seen,
            [("srdlab-t-s0", line("dn1").as_str()), ("srdlab-t-l1", line("up0").as_str())]
        );
        let back = changes(&small(), &slow, &Faults::default());
        assert!(back.iter().all(|c| c.tc.contains("rate 250mbit")));
    }

    #[test]
    fn loss_replaces_its_own_table_and_zero_removes_it() {
        let lossy = with(|f| f.loss_permille.insert(0, 10));
        let on = changes(&small(), &Faults::default(), &lossy);
        assert!(on[0].nft.contains("numgen random mod 1000 < 10 counter drop"));
        let all = with(|f| f.loss_permille.insert(0, 1000));
        let list = changes(&small(), &lossy, &all);
        assert!(list[0].nft.ends_with("add rule inet srdlab loss counter drop\n"));
        let off = changes(&small(), &lossy, &Faults::default());
        assert_eq!(off[0].nft, "add table inet srdlab\ndelete table inet srdlab\n");
    }

    #[test]
    fn loss_may_spare_small_packets() {
        let lossy = with(|f| {
            f.loss_permille.insert(0, 20);
            f.loss_spares_bytes.insert(0, 2500);
        });
        let on = changes(&small(), &Faults::default(), &lossy);
        assert!(on[0].nft.contains(
            "rule inet srdlab loss meta length > 2500 numgen random mod 1000 < 20 counter drop"
        ));
    }

    #[test]
    fn what_a_rule_counted_is_found_among_what_nft_lists() {
        let json = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"chain": {"name": "loss"}},
            {"rule": {"chain": "loss", "expr": [{"match": {"op": ">"}},
                {"counter": {"packets": 7, "bytes": 28826}}, {"drop": null}]}}]}"#;
        assert_eq!(counted(json).unwrap(), Lost { packets: 7, bytes: 28826 });
        assert!(counted(r#"{"nftables": []}"#).is_err());
    }
}
