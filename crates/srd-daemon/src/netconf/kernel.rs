//! Our routes and rules in the kernel, and the changes that bring them to the required state.
//!
//! Our routes are the ones in our routing table, and our rules are the ones that carry
//! [`PROTOCOL`]; only these are changed or removed. If the table contains routes or rules of
//! another program, the daemon does not start.

mod link;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use rustix::io::Errno;

use super::netlink::Netlink;
use super::plan::{self, Mark, Rule, Spec};

/// Protocol number of our routes and rules: `ip` shows it as `proto 174`.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(174);
/// Metric of our routes in their table.
const METRIC: u32 = 1;
/// Value of `RTAX_FEATURES` that enables ECN for a route, because our queues mark packets instead
/// of dropping them.
const FEATURE_ECN: u32 = 1;
/// Value of the eight-bit field for the number of a routing table, if the number does not fit
/// (`RT_TABLE_COMPAT`): then the number is in an attribute.
const TABLE_ELSEWHERE: u8 = 252;
/// Largest number of errors that one synchronisation reports.
const ERRORS_MAX: usize = 8;

/// The required routes: the source address for packets to each prefix, if one is preferred.
pub(super) type Routes = BTreeMap<IpNet, Option<IpAddr>>;

/// A route in our table, as the kernel reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Installed {
    prefix: IpNet,
    source: Option<IpAddr>,
    device: Option<u32>,
    is_ours: bool,
}

/// Result of a synchronisation: numbers of added routes and rules, and errors.
#[derive(Debug, Default)]
pub(super) struct SyncReport {
    pub(super) routes_added: usize,
    pub(super) rules_added: usize,
    pub(super) errors: Vec<String>,
}

impl SyncReport {
    fn note(&mut self, what: impl std::fmt::Display, done: io::Result<()>) {
        if let Err(e) = done
            && self.errors.len() < ERRORS_MAX
        {
            self.errors.push(format!("{what}: {e}"));
        }
    }
}

/// Access to the part of the kernel's network configuration that a [`Spec`] describes.
#[derive(Debug)]
pub(super) struct Kernel {
    netlink: Netlink,
    spec: Spec,
    /// Index of our interface; `None` before [`Kernel::bring_up`].
    index: Option<u32>,
}

impl Kernel {
    pub(super) fn open(spec: Spec) -> io::Result<Self> {
        Ok(Self { netlink: Netlink::open()?, spec, index: None })
    }

    pub(super) fn spec(&self) -> &Spec {
        &self.spec
    }

    pub(super) fn index(&self) -> Option<u32> {
        self.index
    }

    /// Returns an error if the table contains routes of other programs, or if a rule of another
    /// program leads to it.
    pub(super) fn check_table(&mut self) -> Result<(), String> {
        let Some(table) = self.spec.table else { return Ok(()) };
        let remedy = "choose an unused number: `table` in [expert]";
        for v6 in [false, true] {
            let routes = self.installed(v6).map_err(|e| format!("reading routes: {e}"))?;
            if let Some(foreign) = routes.iter().find(|r| !r.is_ours) {
                let prefix = foreign.prefix;
                return Err(format!(
                    "routing table {table} holds a route to {prefix} that srd did not make: \
                     {remedy}"
                ));
            }
            let rules = self.dump_rules(v6).map_err(|e| format!("reading rules: {e}"))?;
            let foreign = |r: &RuleMessage| !has_protocol(r) && table_of(r) == table;
            if rules.iter().any(foreign) {
                return Err(format!(
                    "a rule that srd did not make leads to routing table {table}: {remedy}"
                ));
            }
        }
        Ok(())
    }

    /// Adds missing routes and rules. Routes and rules of an earlier run are removed only if
    /// `prune` is set: until all new routes and rules are installed, the old routes and rules
    /// prevent that packets leave by another route.
    pub(super) fn synchronise(&mut self, wanted: &Routes, prune: bool) -> io::Result<SyncReport> {
        let mut done = SyncReport::default();
        if self.spec.table.is_none() {
            return Ok(done);
        }
        let is_up = self.is_up()? == Some(true);
        for v6 in [false, true] {
            let installed = self.installed(v6)?;
            if is_up {
                self.add_routes(wanted, &installed, v6, &mut done);
            }
            self.make_rules(wanted, v6, prune, &mut done)?;
            if prune {
                let surplus = |r: &&Installed| r.is_ours && !wanted.contains_key(&r.prefix);
                for route in installed.iter().filter(surplus) {
                    let gone = self.remove_route(route);
                    done.note(format_args!("removing the route to {}", route.prefix), gone);
                }
            }
        }
        Ok(done)
    }

    fn add_routes(
        &mut self,
        wanted: &Routes,
        installed: &[Installed],
        v6: bool,
        done: &mut SyncReport,
    ) {
        let key = |r: &Installed| (r.prefix, r.source, r.device);
        let there: BTreeSet<_> = installed.iter().filter(|r| r.is_ours).map(key).collect();
        for (prefix, source) in wanted.iter().filter(|(p, _)| p.addr().is_ipv6() == v6) {
            if there.contains(&(*prefix, *source, self.index)) {
                continue;
            }
            let added = self.add_route(*prefix, *source);
            done.routes_added += usize::from(added.is_ok());
            done.note(format_args!("adding a route to {prefix}"), added);
        }
    }

    fn add_route(&mut self, prefix: IpNet, source: Option<IpAddr>) -> io::Result<()> {
        let mut message = self.route(prefix, self.index);
        if let Some(source) = source {
            message.attributes.push(RouteAttribute::PrefSource(source.into()));
        }
        message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Features(FEATURE_ECN)]));
        self.netlink.change(Message::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    fn remove_route(&mut self, route: &Installed) -> io::Result<()> {
        let message = self.route(route.prefix, route.device);
        match self.netlink.change(Message::DelRoute(message), 0) {
            // The route was removed with its interface in the meantime.
            Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(()),
            done => done,
        }
    }

    fn route(&self, prefix: IpNet, device: Option<u32>) -> RouteMessage {
        let mut message = RouteMessage::default();
        let table = self.spec.table.unwrap_or(0);
        message.header.address_family = family(prefix.addr().is_ipv6());
        message.header.destination_prefix_length = prefix.prefix_len();
        message.header.table = short(table);
        message.header.protocol = PROTOCOL;
        message.header.scope = RouteScope::Link;
        message.header.kind = RouteType::Unicast;
        if prefix.addr().is_ipv6() {
            message.header.scope = RouteScope::Universe;
        }
        message.attributes = vec![
            RouteAttribute::Destination(prefix.network().into()),
            RouteAttribute::Table(table),
            RouteAttribute::Priority(METRIC),
        ];
        message.attributes.extend(device.map(RouteAttribute::Oif));
        message
    }

    /// Returns the routes in our table.
    fn installed(&mut self, v6: bool) -> io::Result<Vec<Installed>> {
        let Some(table) = self.spec.table else { return Ok(Vec::new()) };
        let found = self.dump_routes(v6, table, RouteType::Unspec)?;
        Ok(found.iter().filter_map(|route| read_route(route, table, v6)).collect())
    }

    /// Returns the prefixes whose packets the main table rejects or drops.
    fn refused(&mut self, v6: bool) -> io::Result<Vec<IpNet>> {
        let mut found = Vec::new();
        for kind in [RouteType::BlackHole, RouteType::Unreachable, RouteType::Prohibit] {
            let routes = self.dump_routes(v6, plan::MAIN, kind)?;
            let of_kind = routes.iter().filter(|route| route.header.kind == kind);
            found.extend(of_kind.filter_map(|r| read_route(r, plan::MAIN, v6)).map(|r| r.prefix));
        }
        Ok(found)
    }

    /// Returns the routes of a table: of one kind, or of all kinds.
    fn dump_routes(
        &mut self,
        v6: bool,
        table: u32,
        kind: RouteType,
    ) -> io::Result<Vec<RouteMessage>> {
        let mut filter = RouteMessage::default();
        filter.header.address_family = family(v6);
        filter.header.table = short(table);
        filter.header.kind = kind;
        filter.attributes.push(RouteAttribute::Table(table));
        let found = match self.netlink.dump(Message::GetRoute(filter)) {
            Err(e) if is_absent(&e) => Vec::new(),
            found => found?,
        };
        let route = |message| match message {
            Message::NewRoute(route) => Some(route),
            _ => None,
        };
        Ok(found.into_iter().filter_map(route).collect())
    }

    fn dump_rules(&mut self, v6: bool) -> io::Result<Vec<RuleMessage>> {
        let mut filter = RuleMessage::default();
        filter.header.family = family(v6);
        let found = match self.netlink.dump(Message::GetRule(filter)) {
            Err(e) if is_absent(&e) => Vec::new(),
            found => found?,
        };
        let rule = |message| match message {
            Message::NewRule(rule) if rule.header.family == family(v6) => Some(rule),
            _ => None,
        };
        Ok(found.into_iter().filter_map(rule).collect())
    }

    /// Returns our rules, in the kernel's order.
    fn our_rules(&mut self, v6: bool) -> io::Result<Vec<Rule>> {
        let found = self.dump_rules(v6)?;
        let ours = found.iter().filter(|rule| has_protocol(rule)).filter_map(read_rule);
        Ok(ours.filter(|rule| rule.belongs_to(&self.spec)).collect())
    }

    /// Updates our rules. All rules with one preference are replaced together, because their order
    /// matters: the new rules are added after the old rules, and then the old rules are removed.
    fn make_rules(
        &mut self,
        wanted: &Routes,
        v6: bool,
        prune: bool,
        done: &mut SyncReport,
    ) -> io::Result<()> {
        let there = self.our_rules(v6)?;
        let refused = self.refused(v6)?;
        let wanted = plan::rules(&self.spec, wanted, &refused, v6);
        let numbers: BTreeSet<u32> = there.iter().chain(&wanted).map(|r| r.preference).collect();
        for number in numbers {
            let of = |rules: &[Rule]| -> Vec<Rule> {
                rules.iter().filter(|r| r.preference == number).cloned().collect()
            };
            let (old, new) = (of(&there), of(&wanted));
            if old == new || (!prune && new.iter().all(|rule| old.contains(rule))) {
                continue;
            }
            for rule in &new {
                let added = self.netlink.change(Message::NewRule(rule_message(rule)), NLM_F_CREATE);
                done.rules_added += usize::from(added.is_ok());
                done.note(format_args!("adding a rule at {number}"), added);
            }
            for rule in old.iter().filter(|_| prune) {
                let gone = self.netlink.change(Message::DelRule(rule_message(rule)), 0);
                done.note(format_args!("removing a rule at {number}"), gone);
            }
        }
        Ok(())
    }

    /// Removes all our routes and rules, except the rules that reject packets from the addresses in
    /// `held`. Returns the number of removed routes and rules. After an error it goes on, and then
    /// returns the first error.
    pub(super) fn clean(&mut self, held: &[IpAddr]) -> io::Result<usize> {
        // Without a table this daemon has created none. Other daemons may use the same mark.
        if self.spec.table.is_none() {
            return Ok(0);
        }
        let mut done = Ok(0);
        for v6 in [false, true] {
            self.clean_family(v6, held, &mut done);
        }
        done
    }

    fn clean_family(&mut self, v6: bool, held: &[IpAddr], done: &mut io::Result<usize>) {
        // Rules that reject packets are removed last: until then no packet can leave by another
        // route.
        let rules = self.our_rules(v6);
        let (refusing, leading): (Vec<Rule>, Vec<Rule>) =
            found(rules, done).into_iter().partition(|rule| rule.unreachable);
        let is_held = |rule: &&Rule| rule.from.is_some_and(|from| held.contains(&from));
        for rule in leading.iter().chain(refusing.iter().filter(|rule| !is_held(rule))) {
            let gone = self.netlink.change(Message::DelRule(rule_message(rule)), 0);
            // Another program may have removed the rule in the meantime.
            if !gone.as_ref().is_err_and(is_absent) {
                count(gone, done);
            }
        }
        let routes = self.installed(v6);
        for route in found(routes, done).iter().filter(|route| route.is_ours) {
            count(self.remove_route(route), done);
        }
    }

    /// Opens a socket that receives notifications about links, addresses and rules.
    pub(super) fn watch() -> io::Result<Netlink> {
        // RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR,
        // RTNLGRP_IPV6_RULE
        Netlink::watch(&[1, 5, 8, 9, 19])
    }
}

/// Counts a removal, or keeps its error if it is the first one.
fn count(gone: io::Result<()>, done: &mut io::Result<usize>) {
    match (gone, &mut *done) {
        (Ok(()), Ok(count)) => *count += 1,
        (Err(error), Ok(_)) => *done = Err(error),
        (_, Err(_)) => {}
    }
}

/// Returns what was found; after an error nothing, and keeps the error if it is the first one.
fn found<T>(list: io::Result<Vec<T>>, done: &mut io::Result<usize>) -> Vec<T> {
    list.unwrap_or_else(|error| {
        if done.is_ok() {
            *done = Err(error);
        }
        Vec::new()
    })
}

/// Whether the error means that the kernel does not support the address family, or that the table
/// does not exist yet.
fn is_absent(error: &io::Error) -> bool {
    let absent = [Errno::NOENT, Errno::AFNOSUPPORT, Errno::OPNOTSUPP];
    absent.iter().any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

fn family(v6: bool) -> AddressFamily {
    if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet }
}

/// The number of a table for the eight-bit field of a header.
fn short(table: u32) -> u8 {
    u8::try_from(table).unwrap_or(TABLE_ELSEWHERE)
}

fn read_route(message: &RouteMessage, table: u32, v6: bool) -> Option<Installed> {
    let (mut address, mut source, mut device) = (None, None, None);
    let mut found = u32::from(message.header.table);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(a) => address = plain(a),
            RouteAttribute::PrefSource(a) => source = plain(a),
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::Table(number) => found = *number,
            _ => {}
        }
    }
    if found != table || message.header.address_family != family(v6) {
        return None;
    }
    let any = if v6 { IpAddr::from([0_u8; 16]) } else { IpAddr::from([0_u8; 4]) };
    let length = message.header.destination_prefix_length;
    let prefix = IpNet::new(address.unwrap_or(any), length).ok()?;
    let is_ours = message.header.protocol == PROTOCOL;
    Some(Installed { prefix, source, device, is_ours })
}

fn plain(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn has_protocol(rule: &RuleMessage) -> bool {
    rule.attributes.contains(&RuleAttribute::Protocol(PROTOCOL))
}

fn table_of(rule: &RuleMessage) -> u32 {
    let table = rule.attributes.iter().find_map(|attribute| match attribute {
        RuleAttribute::Table(table) => Some(*table),
        _ => None,
    });
    table.unwrap_or(rule.header.table.into())
}

fn rule_message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    let header = &mut message.header;
    header.family = family(rule.v6);
    header.table = short(rule.table);
    header.action = if rule.unreachable { RuleAction::Unreachable } else { RuleAction::ToTable };
    let mut attributes = vec![
        RuleAttribute::Priority(rule.preference),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Protocol(PROTOCOL),
    ];
    if let Some(net) = rule.to {
        header.dst_len = net.prefix_len();
        attributes.push(RuleAttribute::Destination(net.network()));
    }
    if let Some(address) = rule.from {
        header.src_len = if rule.v6 { 128 } else { 32 };
        attributes.push(RuleAttribute::Source(address));
        attributes.push(RuleAttribute::Iifname("lo".into()));
    }
    match rule.mark {
        Mark::Any => {}
        Mark::Is(mark) => attributes.push(RuleAttribute::FwMark(mark)),
        Mark::Not(mark) => {
            header.flags = RuleFlags::Invert;
            attributes.push(RuleAttribute::FwMark(mark));
        }
    }
    if let Some(length) = rule.suppress {
        attributes.push(RuleAttribute::SuppressPrefixLen(length.into()));
    }
    message.attributes = attributes;
    message
}

fn read_rule(message: &RuleMessage) -> Option<Rule> {
    let header = &message.header;
    let mut rule = Rule {
        v6: header.family == AddressFamily::Inet6,
        preference: 0,
        to: None,
        from: None,
        mark: Mark::Any,
        table: table_of(message),
        unreachable: header.action == RuleAction::Unreachable,
        suppress: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(number) => rule.preference = *number,
            RuleAttribute::Destination(to) => rule.to = IpNet::new(*to, header.dst_len).ok(),
            RuleAttribute::Source(from) => rule.from = Some(*from),
            RuleAttribute::FwMark(mark) if header.flags.contains(RuleFlags::Invert) => {
                rule.mark = Mark::Not(*mark);
            }
            RuleAttribute::FwMark(mark) => rule.mark = Mark::Is(*mark),
            // If all bits are set, no prefix length is suppressed.
            RuleAttribute::SuppressPrefixLen(length) => rule.suppress = u8::try_from(*length).ok(),
            _ => {}
        }
    }
    // For a destination of length zero (any address), the kernel sends no attribute.
    if rule.unreachable && rule.to.is_none() && rule.from.is_none() {
        let any = if rule.v6 { IpAddr::from([0_u8; 16]) } else { IpAddr::from([0_u8; 4]) };
        rule.to = IpNet::new(any, 0).ok();
    }
    Some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netconf::namespace::{in_new_namespace, ip};

    fn spec(table: Option<u32>) -> Spec {
        Spec {
            interface: "srd0".into(),
            addresses: vec!["10.78.0.1/24".parse().unwrap()],
            table,
            mark: 7471,
            kill_switch: false,
        }
    }

    /// The kernel does not find the first rule, which lacks the `iif lo` of such a rule of ours.
    #[test]
    fn regression_a_rule_that_cannot_be_removed_does_not_keep_the_others() {
        in_new_namespace(|| {
            ip("rule add preference 7471 from 10.78.0.9 lookup 7471 protocol 174");
            ip("rule add preference 7472 not fwmark 7471 lookup 7471 protocol 174");
            let done = Kernel::open(spec(Some(7471))).unwrap().clean(&[]);
            let left = ip("rule list");
            assert!(!left.contains("7472:"), "{done:?} {left}");
            assert_eq!(done.unwrap(), 1);
        });
    }

    /// The mark of a daemon is by default the number of the usual table, even if it uses no table.
    #[test]
    fn regression_a_daemon_without_a_table_removes_no_rules_of_another_one() {
        in_new_namespace(|| {
            ip("rule add preference 7472 not fwmark 7471 lookup 7471 protocol 174");
            assert_eq!(Kernel::open(spec(None)).unwrap().clean(&[]).unwrap(), 0);
            assert!(ip("rule list").contains("7472:"));
        });
    }

    #[test]
    fn a_rule_survives_the_way_through_a_message() {
        let mut spec = Spec { kill_switch: true, ..spec(Some(7471)) };
        spec.addresses.push("fd78::1/64".parse().unwrap());
        let routes = ["0.0.0.0/0", "192.0.2.1/32", "10.0.0.0/8", "fd79::/48", "fd80::1/128"];
        let routes: Routes = routes.iter().map(|r| (r.parse().unwrap(), None)).collect();
        for v6 in [false, true] {
            let rules = plan::rules(&spec, &routes, &[], v6);
            assert!(rules.len() > 8, "{rules:?}");
            for rule in rules {
                assert!(rule.belongs_to(&spec), "{rule:?}");
                let message = rule_message(&rule);
                assert!(has_protocol(&message));
                assert_eq!(read_rule(&message), Some(rule));
            }
        }
    }
}
