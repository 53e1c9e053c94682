//! Writes the tables of VPCs, subnets, network ACLs, security groups, prefix lists and DHCP options
//! into the text of a `vpc.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Scope;
use super::phrase;
use super::toml_text::Text;
use crate::actions::prefix_list::DELETED;
use crate::state::network::{DhcpConfiguration, NetworkAclEntry, PrefixListEntry};
use crate::state::{DhcpOptions, PrefixList, SecurityGroupRule, Subnet, Vpc};

/// Number of the last entry of each network ACL, which denies all packets.
const LAST_ENTRY: i64 = 32_767;
/// Largest number of servers of one address family in a set of DHCP options.
const SERVERS_MAX: usize = 4;
/// The cloud's own resolver in a set of DHCP options.
const OWN_RESOLVER: &str = "AmazonProvidedDNS";

pub(super) fn write(scope: &mut Scope<'_>, text: &mut Text) {
    let region = scope.region;
    let (vpcs, subnets) = (scope.vpcs.clone(), scope.subnets.clone());
    for vpc in region.vpcs.iter().filter(|vpc| vpcs.contains(vpc.vpc_id.as_str())) {
        write_vpc(scope, text, vpc);
    }
    for list in region.prefix_lists.iter().filter(|list| list.state != DELETED) {
        write_list(scope, text, list);
    }
    for acl in region.acls.iter().filter(|acl| vpcs.contains(acl.vpc_id.as_str())) {
        text.table("acl", &acl.network_acl_id);
        text.string("vpc", &acl.vpc_id);
        for (egress, key) in [(false, "ingress"), (true, "egress")] {
            let own = acl.entries.iter().filter(|entry| entry.egress == egress);
            let own = own.filter(|entry| entry.rule_number < LAST_ENTRY);
            let phrases: Vec<String> =
                own.filter_map(|entry| entry_phrase(scope, &acl.network_acl_id, entry)).collect();
            text.list(key, phrases);
        }
    }
    write_groups(scope, text, |_| true);
    for subnet in region.subnets.iter().filter(|s| subnets.contains(s.subnet_id.as_str())) {
        write_subnet(scope, text, subnet);
    }
}

/// Writes the groups that a function selects by their identifiers.
pub(super) fn write_groups(
    scope: &mut Scope<'_>,
    text: &mut Text,
    is_selected: impl Fn(&str) -> bool,
) {
    let region = scope.region;
    let vpcs = scope.vpcs.clone();
    let mut rules: BTreeMap<(&str, bool), Vec<&SecurityGroupRule>> = BTreeMap::new();
    for rule in region.group_rules.iter().filter(|rule| is_selected(&rule.group_id)) {
        rules.entry((&rule.group_id, rule.is_egress)).or_default().push(rule);
    }
    let groups = region.groups.iter().filter(|group| vpcs.contains(group.vpc_id.as_str()));
    for group in groups.filter(|group| is_selected(&group.group_id)) {
        text.table("group", &group.group_id);
        text.string("vpc", &group.vpc_id);
        text.string("description", &group.description);
        for (egress, key) in [(false, "ingress"), (true, "egress")] {
            let rules = rules.get(&(group.group_id.as_str(), egress)).into_iter().flatten();
            let mut known = BTreeSet::new();
            let mut phrases: Vec<String> =
                rules.filter_map(|rule| rule_phrase(scope, rule)).collect();
            phrases.retain(|phrase| known.insert(phrase.clone()));
            text.list(key, phrases);
        }
    }
}

fn write_vpc(scope: &mut Scope<'_>, text: &mut Text, vpc: &Vpc) {
    let is_associated = |state: &str| state == "associated";
    let own = vpc.cidr_block_association_set.iter();
    let ipv4 = own.filter(|own| is_associated(&own.cidr_block_state.state));
    let mut blocks: Vec<String> = ipv4.map(|own| own.cidr_block.trunc().to_string()).collect();
    let own = vpc.ipv6_cidr_block_association_set.iter();
    let ipv6 = own.filter(|own| is_associated(&own.ipv6_cidr_block_state.state));
    blocks.extend(ipv6.map(|own| own.ipv6_cidr_block.trunc().to_string()));
    let options = scope.region.dhcp_options.get(&vpc.dhcp_options_id);
    if let Some(options) = options {
        write_options(scope, text, &vpc.vpc_id, options);
    }
    text.table("vpc", &vpc.vpc_id);
    text.list("cidr", blocks);
    text.value("dns_support", vpc.enable_dns_support);
    text.value("dns_hostnames", vpc.enable_dns_hostnames);
    if options.is_some() {
        text.string("dhcp_options", &vpc.vpc_id);
    }
}

/// Writes the DHCP options of a VPC under the name of the VPC, because several VPCs may share a
/// set.
fn write_options(scope: &mut Scope<'_>, text: &mut Text, vpc: &str, options: &DhcpOptions) {
    text.table("dhcp_options", vpc);
    for DhcpConfiguration { key, values } in &options.dhcp_configurations {
        let values: Vec<&str> = values.iter().map(|value| value.value.as_str()).collect();
        let ignored = match key.as_str() {
            "domain-name" => match values[..] {
                [name] if is_domain(name) => {
                    text.string("domain_name", name);
                    Vec::new()
                }
                _ => values,
            },
            "domain-name-servers" if values == [OWN_RESOLVER] => {
                text.list("name_servers", &values);
                Vec::new()
            }
            "domain-name-servers" => servers(text, "name_servers", &values),
            "ntp-servers" => servers(text, "ntp_servers", &values),
            _ => values,
        };
        if !ignored.is_empty() {
            let what = format!("the DHCP option {key} `{}` has no effect", ignored.join(" "));
            scope.warn(&options.dhcp_options_id, what);
        }
    }
}

/// Writes addresses of servers, and returns values that are not written.
fn servers<'a>(text: &mut Text, key: &str, values: &[&'a str]) -> Vec<&'a str> {
    let (mut all, mut ignored): (Vec<IpAddr>, Vec<&str>) = (Vec::new(), Vec::new());
    for value in values {
        let address = value.parse::<IpAddr>().ok();
        let address = address.filter(|at| !at.is_unspecified() && !at.is_multicast());
        let of_family = |at: &IpAddr| all.iter().filter(|a| a.is_ipv4() == at.is_ipv4()).count();
        match address.filter(|at| of_family(at) < SERVERS_MAX) {
            Some(address) if all.contains(&address) => {}
            Some(address) => all.push(address),
            None => ignored.push(*value),
        }
    }
    text.list(key, all);
    ignored
}

fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let ends = label.starts_with('-') || label.ends_with('-');
        (1..=63).contains(&label.len()) && label.chars().all(good) && !ends
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// The entries of a prefix list in its current version.
pub(super) fn entries_of(list: &PrefixList) -> &[PrefixListEntry] {
    let current = list.version.and_then(|version| usize::try_from(version).ok());
    let current = current.and_then(|version| list.versions.get(version.checked_sub(1)?));
    current.or(list.versions.last()).map_or(&[], Vec::as_slice)
}

fn write_list(scope: &mut Scope<'_>, text: &mut Text, list: &PrefixList) {
    let of_family =
        |block: &ipnet::IpNet| block.addr().is_ipv4() == (list.address_family == "IPv4");
    let mut blocks = Vec::new();
    for entry in entries_of(list) {
        match entry.cidr.parse::<ipnet::IpNet>().ok().filter(of_family) {
            Some(block) => blocks.push(block.trunc()),
            None => {
                let what = format!("`{}` is no block of its address family", entry.cidr);
                scope.warn(&list.prefix_list_id, what);
            }
        }
    }
    text.table("prefix_list", &list.prefix_list_id);
    text.list("entries", blocks);
}

fn entry_phrase(scope: &mut Scope<'_>, acl: &str, entry: &NetworkAclEntry) -> Option<String> {
    let words = phrase::entry_traffic(
        &entry.protocol,
        entry.port_range.as_ref(),
        entry.icmp_type_code.as_ref(),
    );
    let number = entry.rule_number;
    let words = words.map_err(|wrong| scope.warn(acl, format!("entry {number}: {wrong}"))).ok()?;
    let ipv4 = entry.cidr_block.map(|block| block.trunc().to_string());
    let block = ipv4.or_else(|| entry.ipv6_cidr_block.map(|block| block.trunc().to_string()));
    let Some(block) = block else {
        scope.warn(acl, format!("entry {number} names no block"));
        return None;
    };
    let word = if entry.egress { "to" } else { "from" };
    Some(format!("{number} {} {words} {word} {block}", entry.rule_action))
}

fn rule_phrase(scope: &mut Scope<'_>, rule: &SecurityGroupRule) -> Option<String> {
    let id = &rule.security_group_rule_id;
    let words = phrase::traffic(&rule.ip_protocol, rule.from_port, rule.to_port);
    let words = words.map_err(|wrong| scope.warn(id, wrong)).ok()?;
    let other = if let Some(block) = rule.cidr_ipv4 {
        block.trunc().to_string()
    } else if let Some(block) = rule.cidr_ipv6 {
        block.trunc().to_string()
    } else if let Some(list) = &rule.prefix_list_id {
        if scope.region.prefix_lists.get(list).is_none() {
            scope.warn(id, format!("the prefix list {list} does not exist in this region"));
            return None;
        }
        format!("list {list}")
    } else if let Some(group) = rule.referenced_group_info.as_ref().map(|info| &info.group_id) {
        let Some(of) = scope.region.groups.get(group) else {
            scope.warn(id, format!("the group {group} belongs to another region or account"));
            return None;
        };
        // A group of a VPC that is left out has no members, so the rule matches no packet.
        scope.vpcs.contains(of.vpc_id.as_str()).then(|| format!("group {group}"))?
    } else {
        scope.warn(id, "it names no source or destination");
        return None;
    };
    Some(format!("{words} {} {other}", if rule.is_egress { "to" } else { "from" }))
}

fn write_subnet(scope: &mut Scope<'_>, text: &mut Text, subnet: &Subnet) {
    let id = &subnet.subnet_id;
    text.table("subnet", id);
    text.string("vpc", &subnet.vpc_id);
    if let Some(block) = subnet.cidr_block {
        text.string("cidr", &block.trunc().to_string());
    }
    let mut blocks = subnet.ipv6_cidr_block_association_set.iter();
    let mut blocks = blocks.by_ref().filter(|own| own.ipv6_cidr_block_state.state == "associated");
    if let Some(own) = blocks.next() {
        text.string("ipv6_cidr", &own.ipv6_cidr_block.trunc().to_string());
    }
    for own in blocks {
        scope.warn(id, format!("the second IPv6 block {} is not used", own.ipv6_cidr_block));
    }
    text.string("zone", &subnet.availability_zone_id);
    let region = scope.region;
    let of_table = |table: &&crate::state::RouteTable| {
        table.associations.iter().any(|use_| use_.subnet_id.as_ref() == Some(id))
    };
    if let Some(table) = region.route_tables.iter().find(of_table) {
        text.string("route_table", &table.route_table_id);
    }
    let acl = region.acls.find(|acl| acl.associations.iter().any(|use_| &use_.subnet_id == id));
    if let Some(acl) = acl {
        text.string("acl", &acl.network_acl_id);
    }
    text.value("map_public_ip", subnet.map_public_ip_on_launch);
}
