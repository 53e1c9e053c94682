//! Computes the routes and rules that an interface needs; the module `kernel` installs them.
//!
//! All our routes are in one table of our own (T below), so that the routes of other programs stay
//! unchanged. Rules lead to this table, in this order:
//!
//! ```text
//!   7471   to SUBNET lookup T            the interface's own subnets: packets to them never
//!          to SUBNET unreachable         leave by another route, even if no peer has the address
//!   7472   not fwmark M lookup T         addresses of full length that lie behind peers
//!            suppress_prefixlength 31
//!          fwmark M lookup main          only for a prefix inside a blackhole of the main table,
//!          to PREFIX lookup T            which would end the lookup
//!   7473   from ADDRESS iif lo lookup T  packets of this machine from the interface's address
//!          from ADDRESS iif lo           reach a peer, or are refused
//!            unreachable
//!   32765  not fwmark M lookup main      for each length L of shorter prefixes, longest first:
//!            suppress_prefixlength L     a longer route of the main table wins,
//!          not fwmark M lookup T         then ours,
//!            suppress_prefixlength L-1
//!          fwmark M lookup main          with `kill_switch`: packets to prefixes behind peers
//!          to PREFIX unreachable         never leave by another route
//!   32766  lookup main                   the kernel's own
//! ```
//!
//! The rules at 32765 are directly before the rule of the main table, and after those of the
//! administrator. Together they find the route that a single table with all routes would contain;
//! if both tables have the same prefix, our route wins. M marks the daemon's own packets, which
//! never enter the interface.
//!
//! Bounds: [`PREFIXES_MAX`] prefixes; a few rules for each address and each prefix length; with
//! `kill_switch` one more for each of at most [`GUARDED_MAX`] prefixes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::{ALLOWED_MAX, PEERS_MAX};

/// The kernel's number of its main table.
pub(super) const MAIN: u32 = 254;
/// Largest number of prefixes behind all peers together.
pub(super) const PREFIXES_MAX: usize = PEERS_MAX * ALLOWED_MAX;
/// Largest number of prefixes, after adjacent ones are joined, that `kill_switch` may keep
/// unreachable. Each needs a rule that the kernel checks for each new flow.
pub const GUARDED_MAX: usize = 256;
/// Preference of our first rules.
const FIRST: u32 = 7471;
/// Preference of our last rules: directly before the rule of the main table.
const LAST: u32 = 32_765;

/// Specification of the network process's work, which it receives at its start. The process changes
/// nothing else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The only interface that the process changes.
    pub interface: String,
    /// Addresses of the interface.
    pub addresses: Vec<IpNet>,
    /// The only routing table that the process changes; `None`: it creates neither routes nor
    /// rules.
    pub table: Option<u32>,
    /// The firewall mark (`SO_MARK`) of the daemon's own packets.
    pub mark: u32,
    /// Whether the prefixes behind peers stay unreachable after the daemon has ended.
    pub kill_switch: bool,
}

/// A route whose packets go into the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Destination of the route.
    pub prefix: IpNet,
    /// Source address of packets for which the program selects none; `None`: the interface's
    /// address.
    pub source: Option<IpAddr>,
}

/// A rule of ours for the selection of a routing table (`ip rule`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    pub(super) v6: bool,
    pub(super) preference: u32,
    pub(super) to: Option<IpNet>,
    /// Selects packets of this machine with this source address; `None`: all packets.
    pub(super) from: Option<IpAddr>,
    pub(super) mark: Mark,
    /// The table that is searched; for a rule that rejects packets, the table with which the rule
    /// was created.
    pub(super) table: u32,
    pub(super) unreachable: bool,
    /// Routes whose prefix has at most this length are ignored; `None`: all routes count.
    pub(super) suppress: Option<u8>,
}

/// Condition of a rule on the firewall mark of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// The packet has any mark, or none at all.
    Any,
    /// The packet has exactly this mark.
    Is(u32),
    /// The packet has another mark, or no mark.
    Not(u32),
}

impl Rule {
    fn new(v6: bool, preference: u32, table: u32) -> Self {
        let (to, from, mark) = (None, None, Mark::Any);
        Self { v6, preference, to, from, mark, table, unreachable: false, suppress: None }
    }

    /// Whether a rule that carries our protocol number was created for this specification: by its
    /// mark or its table.
    pub(super) fn belongs_to(&self, spec: &Spec) -> bool {
        let marked = [Mark::Is(spec.mark), Mark::Not(spec.mark)].contains(&self.mark);
        marked || spec.table == Some(self.table)
    }
}

/// Returns the rules of one address family, in the order in which the kernel applies them.
///
/// `refused` contains the prefixes whose packets the main table rejects or drops, such as
/// blackholes.
pub(super) fn rules(
    spec: &Spec,
    routes: &BTreeMap<IpNet, Option<IpAddr>>,
    refused: &[IpNet],
    v6: bool,
) -> Vec<Rule> {
    let Some(table) = spec.table else { return Vec::new() };
    let family = |net: &&IpNet| net.addr().is_ipv6() == v6;
    let full: u8 = if v6 { 128 } else { 32 };
    let subnets: BTreeSet<IpNet> = subnets(spec).filter(|net| family(&net)).collect();
    let is_inside = |net: &IpNet| subnets.iter().any(|subnet| subnet.contains(net));
    let outside: Vec<IpNet> = routes.keys().filter(family).copied().collect();
    let outside: Vec<IpNet> = outside.into_iter().filter(|net| !is_inside(net)).collect();
    let rule = |preference| Rule::new(v6, preference, table);
    let unmarked = |preference| Rule { mark: Mark::Not(spec.mark), ..rule(preference) };
    let mut rules = Vec::new();
    for subnet in &subnets {
        rules.push(Rule { to: Some(*subnet), ..rule(FIRST) });
        rules.push(Rule { to: Some(*subnet), unreachable: true, ..rule(FIRST) });
    }
    if outside.iter().any(|net| net.prefix_len() == full) {
        rules.push(Rule { suppress: Some(full - 1), ..unmarked(FIRST + 1) });
    }
    let is_refused = |net: &IpNet| net.prefix_len() > 0 && refused.iter().any(|r| r.contains(net));
    let hidden = outside.iter().filter(|net| net.prefix_len() < full && is_refused(net));
    let hidden: Vec<IpNet> = hidden.copied().take(GUARDED_MAX).collect();
    if !hidden.is_empty() {
        rules.push(Rule { table: MAIN, mark: Mark::Is(spec.mark), ..rule(FIRST + 1) });
        rules.extend(hidden.into_iter().map(|net| Rule { to: Some(net), ..rule(FIRST + 1) }));
    }
    for address in spec.addresses.iter().filter(family) {
        let from = Some(address.addr());
        rules.push(Rule { from, ..rule(FIRST + 2) });
        rules.push(Rule { from, unreachable: true, ..rule(FIRST + 2) });
    }
    let lengths: BTreeSet<u8> =
        outside.iter().map(IpNet::prefix_len).filter(|length| *length < full).collect();
    for length in lengths.into_iter().rev() {
        rules.push(Rule { table: MAIN, suppress: Some(length), ..unmarked(LAST) });
        rules.push(Rule { suppress: length.checked_sub(1), ..unmarked(LAST) });
    }
    if spec.kill_switch {
        let mut guarded = IpNet::aggregate(&outside);
        guarded.truncate(GUARDED_MAX);
        if !guarded.is_empty() {
            rules.push(Rule { table: MAIN, mark: Mark::Is(spec.mark), ..rule(LAST) });
        }
        let guard = |net| Rule { to: Some(net), unreachable: true, ..rule(LAST) };
        rules.extend(guarded.into_iter().map(guard));
    }
    rules
}

/// Returns the subnets of the interface's addresses. An address of full length has no subnet.
fn subnets(spec: &Spec) -> impl Iterator<Item = IpNet> {
    let is_shared = |net: &IpNet| net.prefix_len() < net.max_prefix_len();
    spec.addresses.iter().map(IpNet::trunc).filter(is_shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(addresses: &[&str], kill_switch: bool) -> Spec {
        Spec {
            interface: "srd0".into(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            table: Some(7000),
            mark: 7,
            kill_switch,
        }
    }

    fn planned(spec: &Spec, prefixes: &[&str]) -> Vec<Rule> {
        let routes = prefixes.iter().map(|p| (p.parse().unwrap(), None)).collect();
        rules(spec, &routes, &[], false)
    }

    #[test]
    fn the_interface_s_subnet_is_refused_behind_its_table_and_full_addresses_come_early() {
        let rules = planned(&spec(&["10.78.0.1/24"], false), &["10.78.0.2/32", "192.0.2.9/32"]);
        let numbers: Vec<u32> = rules.iter().map(|r| r.preference).collect();
        assert_eq!(numbers, [7471, 7471, 7472, 7473, 7473]);
        let subnet = Some("10.78.0.0/24".parse().unwrap());
        assert!(rules[..2].iter().all(|r| r.to == subnet && r.mark == Mark::Any));
        assert_eq!([rules[0].unreachable, rules[1].unreachable], [false, true]);
        assert_eq!((rules[2].suppress, rules[2].mark), (Some(31), Mark::Not(7)));
        assert_eq!(rules[4].from, Some("10.78.0.1".parse().unwrap()));
    }

    #[test]
    fn shorter_prefixes_yield_to_longer_routes_of_the_main_table() {
        let rules = planned(&spec(&[], false), &["0.0.0.0/0", "10.0.0.0/8", "172.16.0.0/12"]);
        let steps: Vec<(u32, Option<u8>)> = rules.iter().map(|r| (r.table, r.suppress)).collect();
        let expected = [
            (MAIN, Some(12)),
            (7000, Some(11)),
            (MAIN, Some(8)),
            (7000, Some(7)),
            (MAIN, Some(0)),
            (7000, None),
        ];
        assert_eq!(steps, expected);
        assert!(rules.iter().all(|r| r.preference == 32_765 && r.mark == Mark::Not(7)));
    }

    #[test]
    fn a_kill_switch_refuses_what_lies_behind_peers_but_for_the_daemon_itself() {
        let rules = planned(&spec(&["10.78.0.1/32"], true), &["10.0.0.0/9", "10.128.0.0/9"]);
        let [.., exempt, guard] = rules.as_slice() else { panic!("{rules:?}") };
        assert_eq!((exempt.table, exempt.mark), (MAIN, Mark::Is(7)));
        assert!(guard.unreachable && guard.to == Some("10.0.0.0/8".parse().unwrap()));
        let many: Vec<String> =
            (0..=255).flat_map(|i| [0, 2].map(|j| format!("10.{i}.{j}.0/24"))).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let rules = planned(&spec(&[], true), &many);
        assert_eq!(rules.iter().filter(|r| r.unreachable).count(), GUARDED_MAX);
    }

    #[test]
    fn a_prefix_within_a_blackhole_has_a_rule_of_its_own() {
        let routes = ["10.1.0.0/16", "10.0.0.0/8", "192.0.2.0/24", "0.0.0.0/0"];
        let routes = routes.iter().map(|p| (p.parse().unwrap(), None)).collect();
        let refused = ["10.0.0.0/8", "0.0.0.0/0"].map(|p| p.parse().unwrap());
        let spec = spec(&[], false);
        let early = |refused: &[IpNet]| -> Vec<Option<IpNet>> {
            let rules = rules(&spec, &routes, refused, false);
            rules.iter().filter(|r| r.preference == 7472).map(|r| r.to).collect()
        };
        let of = |net: &str| Some(net.parse().unwrap());
        assert_eq!(early(&refused[..1]), [None, of("10.0.0.0/8"), of("10.1.0.0/16")]);
        // No rule is created for the default route: it would cut off other networks of this
        // machine.
        assert_eq!(early(&refused).len(), 4);
        assert!(!early(&refused).contains(&of("0.0.0.0/0")));
        assert!(early(&[]).is_empty());
    }

    #[test]
    fn without_a_table_there_are_no_rules_and_each_family_has_its_own() {
        let off = Spec { table: None, ..spec(&["10.78.0.1/24"], false) };
        assert!(planned(&off, &["10.0.0.0/8"]).is_empty());
        let routes = BTreeMap::from([("fd78::2/128".parse().unwrap(), None)]);
        let both = spec(&["10.78.0.1/32"], false);
        let six = rules(&both, &routes, &[], true);
        assert_eq!(six.len(), 1);
        assert_eq!((six[0].suppress, six[0].v6), (Some(127), true));
    }
}
