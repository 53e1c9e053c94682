//! Clouds, subnets, route tables, access control lists, security groups and prefix lists.

use std::collections::BTreeSet;
use std::ops::Range;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use srd_vpc::id::*;
use srd_vpc::object::*;
use toml::Spanned;

use super::build::{Build, Result};
use super::document::{AclTable, Document, GroupTable, Named, VpcTable};
use super::names::{Kind, hash};
use super::phrase::{self, AddressSet};

/// Largest number of address blocks of one family in a cloud: the limit of EC2.
const BLOCKS_MAX: usize = 50;
/// Largest number of entries of an access control list in one direction: the limit of EC2.
const ENTRIES_MAX: usize = 40;
/// Largest number of rules of a group in one direction: the default of EC2.
const RULES_MAX: usize = 60;
/// Largest number of routes of a table: the limit of EC2.
const ROUTES_MAX: usize = 1000;
/// Largest product of the number of a security group's rules and the number of an interface's
/// groups: the limit of EC2.
const RULES_TIMES_GROUPS_MAX: usize = 1000;

pub(crate) fn build(build: &mut Build<'_>, document: &Document) -> Result<()> {
    vpcs(build, document)?;
    prefix_lists(build, document)?;
    acls(build, document)?;
    groups(build, &document.group)?;
    route_tables(build, document)?;
    subnets(build, document)
}

fn vpcs(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, table) in &document.vpc {
        let id = VpcId(build.find(Kind::Vpc, name)?);
        let vpc = vpc(build, name, table.as_ref())?;
        let (acl, group) = (vpc.default_acl, vpc.default_group);
        let main = vpc.main_route_table;
        let everything: [IpNet; 2] = everywhere();
        let entry = |egress, number, block| AclEntry {
            number,
            egress,
            allow: true,
            traffic: Traffic::All,
            block,
        };
        let entries = [false, true].into_iter().flat_map(|egress| {
            [(100, everything[0]), (101, everything[1])].map(|(n, b)| entry(egress, n, b))
        });
        let entries = entries.collect();
        let label = format!("{}-default", name.as_ref());
        build.world.acls.insert(acl, Acl { name: label.clone(), vpc: id, entries });
        let among = RulePeer::Group(group);
        let rules = [
            (false, among),
            (true, RulePeer::Block(everything[0])),
            (true, RulePeer::Block(everything[1])),
        ];
        let rules =
            rules.into_iter().map(|(egress, peer)| rule(&label, egress, Traffic::All, peer));
        let group_object = Group {
            name: String::from("default"),
            description: String::from("default VPC security group"),
            vpc: id,
            rules: rules.collect(),
        };
        build.world.groups.insert(group, group_object);
        let table = RouteTable { name: label, vpc: id, routes: Vec::new() };
        build.world.route_tables.insert(main, table);
        build.world.vpcs.insert(id, vpc);
    }
    Ok(())
}

/// Returns a cloud, and reserves identifiers for its main route table, its default access control
/// list and its default group.
fn vpc(build: &mut Build<'_>, name: &Spanned<String>, table: &VpcTable) -> Result<Vpc> {
    let (mut ipv4, mut ipv6): (Vec<Ipv4Net>, Vec<Ipv6Net>) = (Vec::new(), Vec::new());
    for text in &table.cidr {
        let block =
            phrase::block(text.as_ref()).map_err(|wrong| build.wrong(text.span(), wrong))?;
        let refuse = |what: &str, remedy: &str| Err(build.error(text.span(), what, remedy));
        if ipv4.len() == BLOCKS_MAX || ipv6.len() == BLOCKS_MAX {
            let what = format!("a cloud has at most {BLOCKS_MAX} blocks of a family");
            return refuse(&what, "join blocks into larger ones");
        }
        match block {
            IpNet::V4(block) if !(16..=28).contains(&block.prefix_len()) => {
                return refuse("a cloud's IPv4 block has 16 to 28 bits", "as in 10.0.0.0/16");
            }
            IpNet::V6(block) if !(44..=60).contains(&block.prefix_len()) => {
                return refuse("a cloud's IPv6 block has 44 to 60 bits", "as in fd12:3456::/56");
            }
            IpNet::V4(block)
                if ipv4.iter().any(|other| overlap(IpNet::V4(block), IpNet::V4(*other))) =>
            {
                return refuse("this block overlaps another of the cloud", "write another block");
            }
            IpNet::V6(block)
                if ipv6.iter().any(|other| overlap(IpNet::V6(block), IpNet::V6(*other))) =>
            {
                return refuse("this block overlaps another of the cloud", "write another block");
            }
            IpNet::V4(block) => ipv4.push(block),
            IpNet::V6(block) => ipv6.push(block),
        }
    }
    if ipv4.is_empty() {
        let what = "a cloud needs an IPv4 block";
        return Err(build.error(name.span(), what, "add cidr = [\"10.0.0.0/16\"]"));
    }
    let options = table.dhcp_options.as_ref();
    let options = options.map(|name| build.find(Kind::DhcpOptions, name)).transpose()?;
    let dhcp_options = options.map(DhcpOptionsId);
    // The names of the default objects contain a space, so no table of the file can have them.
    let hidden = format!("{} default", name.as_ref());
    Ok(Vpc {
        name: name.as_ref().clone(),
        ipv4,
        ipv6,
        main_route_table: RouteTableId(build.names.add(Kind::RouteTable, &hidden)),
        default_acl: AclId(build.names.add(Kind::Acl, &hidden)),
        default_group: GroupId(build.names.add(Kind::Group, &hidden)),
        dhcp_options,
        dns_support: table.dns_support.unwrap_or(true),
        dns_hostnames: table.dns_hostnames.unwrap_or(false),
    })
}

fn prefix_lists(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, table) in &document.prefix_list {
        let id = PrefixListId(build.find(Kind::PrefixList, name)?);
        let table = table.as_ref();
        let mut entries: Vec<IpNet> = Vec::new();
        for text in &table.entries {
            let block = phrase::block(text.as_ref());
            let block = block.map_err(|wrong| build.wrong(text.span(), wrong))?;
            if entries.first().is_some_and(|first| first.addr().is_ipv4() != block.addr().is_ipv4())
            {
                let remedy = "make one list for IPv4 and one for IPv6";
                return Err(build.error(text.span(), "a list has one family", remedy));
            }
            entries.push(block);
        }
        let most = u16::try_from(entries.len()).unwrap_or(u16::MAX);
        let max_entries = table.max_entries.as_ref().map_or(most, |most| *most.as_ref());
        if entries.len() > usize::from(max_entries) {
            let span = table.max_entries.as_ref().map_or(name.span(), Spanned::span);
            let what = format!("there are {} entries", entries.len());
            return Err(build.error(span, what, "raise max_entries, or take entries out"));
        }
        let list = PrefixList { name: name.as_ref().clone(), max_entries, entries };
        build.world.prefix_lists.insert(id, list);
    }
    Ok(())
}

fn acls(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, spanned) in &document.acl {
        let id = AclId(build.find(Kind::Acl, name)?);
        let table = spanned.as_ref();
        let vpc = build.vpc(&table.vpc, spanned.span())?;
        let entries = entries(build, table)?;
        build.world.acls.insert(id, Acl { name: name.as_ref().clone(), vpc, entries });
    }
    Ok(())
}

fn entries(build: &Build<'_>, table: &AclTable) -> Result<Vec<AclEntry>> {
    let mut all: Vec<AclEntry> = Vec::new();
    for (egress, list, word) in [(false, &table.ingress, "from"), (true, &table.egress, "to")] {
        for (at, text) in list.iter().enumerate() {
            if at == ENTRIES_MAX {
                let what = format!("there are more than {ENTRIES_MAX} entries in one direction");
                return Err(build.error(text.span(), what, "join entries, or take some out"));
            }
            let entry = phrase::entry(text.as_ref(), word);
            let entry = entry.map_err(|wrong| build.wrong(text.span(), wrong))?;
            let (number, allow, traffic, block) = entry;
            if all.iter().any(|other| (other.egress, other.number) == (egress, number)) {
                let what = format!("entry {number} is there already in this direction");
                return Err(build.error(text.span(), what, "take another number"));
            }
            all.push(AclEntry { number, egress, allow, traffic, block });
        }
    }
    all.sort_by_key(|entry| (entry.egress, entry.number));
    Ok(all)
}

/// Creates the groups of these tables.
pub(crate) fn groups(build: &mut Build<'_>, tables: &Named<GroupTable>) -> Result<()> {
    for (name, spanned) in tables {
        let id = GroupId(build.find(Kind::Group, name)?);
        let table = spanned.as_ref();
        let vpc = build.vpc(&table.vpc, spanned.span())?;
        let rules = rules(build, name.as_ref(), table)?;
        let description = table.description.clone().unwrap_or_default();
        let group = Group { name: name.as_ref().clone(), description, vpc, rules };
        build.world.groups.insert(id, group);
    }
    Ok(())
}

fn rules(build: &Build<'_>, group: &str, table: &GroupTable) -> Result<Vec<GroupRule>> {
    let mut all: Vec<GroupRule> = Vec::new();
    let mut known = BTreeSet::new();
    let none = Vec::new();
    let egress = table.egress.as_ref().unwrap_or(&none);
    for (out, list, word) in [(false, &table.ingress, "from"), (true, egress, "to")] {
        for text in list {
            let found = phrase::rule(text.as_ref(), word);
            let (traffic, other) = found.map_err(|wrong| build.wrong(text.span(), wrong))?;
            let peer = match other {
                AddressSet::Block(block) => RulePeer::Block(block),
                AddressSet::Group(name) => {
                    RulePeer::Group(GroupId(build.find_at(Kind::Group, name, text.span())?))
                }
                AddressSet::List(name) => RulePeer::List(PrefixListId(build.find_at(
                    Kind::PrefixList,
                    name,
                    text.span(),
                )?)),
            };
            let rule = rule(group, out, traffic, peer);
            if !known.insert(rule.id) {
                return Err(build.error(text.span(), "this rule is there already", "take it out"));
            }
            all.push(rule);
        }
    }
    if table.egress.is_none() {
        // A new group allows all outgoing traffic.
        let open =
            everywhere().map(|block| rule(group, true, Traffic::All, RulePeer::Block(block)));
        all.extend(open);
    }
    Ok(all)
}

fn rule(group: &str, egress: bool, traffic: Traffic, peer: RulePeer) -> GroupRule {
    // Debug form: it is only hashed.
    let text = format!("{group} rule {egress} {traffic:?} {peer:?}");
    let id = GroupRuleId(hash(Kind::Group, &text));
    GroupRule { id, egress, traffic, peer, description: String::new() }
}

fn route_tables(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, spanned) in &document.route_table {
        let id = RouteTableId(build.find(Kind::RouteTable, name)?);
        let table = spanned.as_ref();
        let vpc = build.vpc(&table.vpc, spanned.span())?;
        let mut routes: Vec<Route> = Vec::new();
        for text in &table.routes {
            let route = route(build, vpc, text)?;
            let key = |route: &Route| (route.destination, route.propagated);
            if routes.iter().any(|other| key(other) == key(&route)) {
                let remedy = "leave one of them";
                return Err(build.error(
                    text.span(),
                    "this destination has a route already",
                    remedy,
                ));
            }
            if routes.len() == ROUTES_MAX {
                let what = format!("there are more than {ROUTES_MAX} routes");
                return Err(build.error(text.span(), what, "join blocks into larger ones"));
            }
            routes.push(route);
        }
        if table.main == Some(true)
            && let Some(cloud) = build.world.vpcs.get_mut(&vpc)
        {
            cloud.main_route_table = id;
        }
        let table = RouteTable { name: name.as_ref().clone(), vpc, routes };
        build.world.route_tables.insert(id, table);
    }
    Ok(())
}

fn route(build: &Build<'_>, vpc: VpcId, text: &Spanned<String>) -> Result<Route> {
    let span = text.span();
    let found = phrase::route(text.as_ref()).map_err(|wrong| build.wrong(span.clone(), wrong))?;
    let destination = match found.0 {
        AddressSet::Block(block) => {
            check_destination(build, vpc, block, &found.1, span.clone())?;
            Destination::Block(block)
        }
        AddressSet::List(name) | AddressSet::Group(name) => {
            Destination::List(PrefixListId(build.find_at(Kind::PrefixList, name, span.clone())?))
        }
    };
    let find = |kind, name| build.find_at(kind, name, span.clone());
    let target = match found.1 {
        phrase::Target::Blackhole => Target::Blackhole,
        phrase::Target::Object("internet_gateway", name) => {
            Target::InternetGateway(InternetGatewayId(find(Kind::InternetGateway, name)?))
        }
        phrase::Target::Object("egress_only_gateway", name) => {
            Target::EgressOnlyGateway(EgressOnlyGatewayId(find(Kind::EgressOnlyGateway, name)?))
        }
        phrase::Target::Object("nat_gateway", name) => {
            Target::NatGateway(NatGatewayId(find(Kind::NatGateway, name)?))
        }
        phrase::Target::Object("peering", name) => {
            Target::Peering(PeeringId(find(Kind::Peering, name)?))
        }
        phrase::Target::Object("endpoint", name) => {
            Target::Endpoint(EndpointId(find(Kind::Endpoint, name)?))
        }
        phrase::Target::Object("interface", name) => {
            Target::Eni(EniId(find(Kind::Interface, name)?))
        }
        phrase::Target::Object(kind, _) => {
            let remedy = "internet_gateway, egress_only_gateway, nat_gateway, peering, endpoint, \
                          interface and blackhole are";
            return Err(build.error(span, format!("`{kind}` is no target of a route"), remedy));
        }
    };
    Ok(Route { destination, target, propagated: found.2 })
}

/// Whether a block belongs to services of the network's own: 169.254.168.0/22 and fd00:ec2::/32. No
/// route has such a destination.
pub fn is_reserved(block: &IpNet) -> bool {
    let reserved: [IpNet; 2] = [
        IpNet::V4(Ipv4Net::new_assert([169, 254, 168, 0].into(), 22)),
        IpNet::V6(Ipv6Net::new_assert([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0].into(), 32)),
    ];
    reserved.iter().any(|reserved| reserved.contains(block))
}

/// Returns an error for destinations that EC2 refuses.
fn check_destination(
    build: &Build<'_>,
    vpc: VpcId,
    block: IpNet,
    target: &phrase::Target<'_>,
    span: Range<usize>,
) -> Result<()> {
    if is_reserved(&block) {
        let what = format!("{block} belongs to services of the network's own");
        return Err(build.error(span, what, "take the route out"));
    }
    let Some(cloud) = build.world.vpcs.get(&vpc) else { return Ok(()) };
    let own = cloud.ipv4.iter().map(|block| IpNet::V4(*block));
    let mut own = own.chain(cloud.ipv6.iter().map(|block| IpNet::V6(*block)));
    let to_appliance = matches!(target, phrase::Target::Object("interface" | "nat_gateway", _));
    if own.any(|own| own.contains(&block)) && !to_appliance {
        let what = format!("{block} is inside the cloud, where the local route leads");
        let remedy = "only an interface or a nat_gateway may take packets inside the cloud";
        return Err(build.error(span, what, remedy));
    }
    Ok(())
}

fn subnets(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, spanned) in &document.subnet {
        let id = SubnetId(build.find(Kind::Subnet, name)?);
        let table = spanned.as_ref();
        let vpc_id = build.vpc(&table.vpc, spanned.span())?;
        let (ipv4, ipv6) =
            subnet_blocks(build, (vpc_id, id), table.cidr.clone(), table.ipv6_cidr.clone())?;
        let route_table = match &table.route_table {
            Some(name) => Some(RouteTableId(build.find(Kind::RouteTable, name)?)),
            None => None,
        };
        let acl = match &table.acl {
            Some(name) => AclId(build.find(Kind::Acl, name)?),
            None => build.world.vpcs.get(&vpc_id).map_or(AclId(0), |vpc| vpc.default_acl),
        };
        let tables = &build.world.route_tables;
        let strange = route_table
            .is_some_and(|id| tables.get(&id).is_some_and(|t| t.vpc != vpc_id))
            || build.world.acls.get(&acl).is_some_and(|acl| acl.vpc != vpc_id);
        if strange {
            let what = "the route table or the list of another cloud";
            return Err(build.error(spanned.span(), what, "name one of the subnet's own cloud"));
        }
        let subnet = Subnet {
            name: name.as_ref().clone(),
            vpc: vpc_id,
            zone: table.zone.clone().unwrap_or_else(|| String::from("a")),
            ipv4,
            ipv6,
            route_table,
            acl,
            map_public_ip: table.map_public_ip.unwrap_or(false),
        };
        build.world.subnets.insert(id, subnet);
    }
    Ok(())
}

fn subnet_blocks(
    build: &mut Build<'_>,
    (vpc_id, id): (VpcId, SubnetId),
    cidr: Spanned<String>,
    ipv6_cidr: Option<Spanned<String>>,
) -> Result<(Ipv4Net, Option<Ipv6Net>)> {
    let vpc = build.world.vpcs.get(&vpc_id);
    let block = |text: &Spanned<String>| {
        phrase::block(text.as_ref()).map_err(|wrong| build.wrong(text.span(), wrong))
    };
    let refuse = |text: &Spanned<String>, what: &str, remedy: &str| {
        Err(build.error(text.span(), what, remedy))
    };
    let overlaps = "this block overlaps that of another subnet";
    let IpNet::V4(ipv4) = block(&cidr)? else {
        return refuse(&cidr, "`cidr` is the IPv4 block", "write IPv6 in `ipv6_cidr`");
    };
    if !(16..=28).contains(&ipv4.prefix_len()) {
        return refuse(&cidr, "a subnet has 16 to 28 bits", "as in 10.0.1.0/24");
    }
    if !vpc.is_some_and(|vpc| vpc.ipv4.iter().any(|own| own.contains(&ipv4))) {
        return refuse(&cidr, "this block lies in none of the cloud's", "take one inside `cidr`");
    }
    if build.subnet_blocks.owner(vpc_id, IpNet::V4(ipv4)).is_some() {
        return refuse(&cidr, overlaps, "write another block");
    }
    let Some(text) = ipv6_cidr else {
        build.subnet_blocks.take(vpc_id, IpNet::V4(ipv4), id);
        return Ok((ipv4, None));
    };
    let IpNet::V6(ipv6) = block(&text)? else {
        return refuse(&text, "`ipv6_cidr` is the IPv6 block", "write IPv4 in `cidr`");
    };
    if ipv6.prefix_len() != 64 {
        return refuse(&text, "a subnet's IPv6 block has 64 bits", "as in fd12:3456:0:1::/64");
    }
    if !vpc.is_some_and(|vpc| vpc.ipv6.iter().any(|own| own.contains(&ipv6))) {
        return refuse(&text, "this block lies in none of the cloud's", "take one inside `cidr`");
    }
    if build.subnet_blocks.owner(vpc_id, IpNet::V6(ipv6)).is_some() {
        return refuse(&text, overlaps, "write another block");
    }
    build.subnet_blocks.take(vpc_id, IpNet::V4(ipv4), id);
    build.subnet_blocks.take(vpc_id, IpNet::V6(ipv6), id);
    Ok((ipv4, Some(ipv6)))
}

/// Counts the rules of a group in one direction and for one address family. A rule that names a
/// prefix list counts as many rules as the list's largest number of entries.
fn rules_of(build: &Build<'_>, group: &Group, egress: bool, ipv4: bool) -> usize {
    let rules = group.rules.iter().filter(|rule| rule.egress == egress);
    let count = |rule: &GroupRule| match rule.peer {
        RulePeer::Block(block) => usize::from(block.addr().is_ipv4() == ipv4),
        RulePeer::Group(_) => 1,
        RulePeer::List(id) => build.world.prefix_lists.get(&id).map_or(1, |list| {
            // All blocks of a list are of one address family.
            let first = list.entries.first();
            let of_family = first.is_none_or(|block| block.addr().is_ipv4() == ipv4);
            if of_family { usize::from(list.max_entries) } else { 0 }
        }),
    };
    rules.map(count).sum()
}

/// Returns the largest number of rules of a group in one direction and for one address family.
fn fullest(build: &Build<'_>, group: &Group) -> usize {
    let sides = [(false, true), (false, false), (true, true), (true, false)];
    let counts = sides.map(|(egress, ipv4)| rules_of(build, group, egress, ipv4));
    counts.into_iter().max().unwrap_or(0)
}

/// Whether a group keeps to the quotas of [`check_quotas`]. `together`: largest number of groups of
/// an interface that has the group.
pub(crate) fn is_within_quotas(build: &Build<'_>, group: &Group, together: usize) -> bool {
    let count = fullest(build, group);
    count <= RULES_TIMES_GROUPS_MAX && count.max(RULES_MAX) * together <= RULES_TIMES_GROUPS_MAX
}

/// Checks EC2's quotas for the rules of a group, and for the groups of an interface times their
/// rules.
pub(crate) fn check_quotas(build: &Build<'_>, document: &Document) -> Result<()> {
    for name in document.group.keys() {
        let Ok(id) = build.find(Kind::Group, name) else { continue };
        let group = build.world.groups.get(&GroupId(id));
        let count = group.map_or(0, |group| fullest(build, group));
        if count > RULES_TIMES_GROUPS_MAX {
            let what = format!(
                "{count} rules in one direction (prefix lists count with their most entries)"
            );
            let remedy =
                format!("{RULES_MAX} are EC2's default, {RULES_TIMES_GROUPS_MAX} its most");
            return Err(build.error(name.span(), what, remedy));
        }
    }
    for name in document.interface.keys() {
        let Ok(id) = build.find(Kind::Interface, name) else { continue };
        let Some(eni) = build.world.enis.get(&EniId(id)) else { continue };
        let groups = eni.groups.iter().filter_map(|id| build.world.groups.get(id));
        let most = groups.map(|group| fullest(build, group)).max().unwrap_or(0).max(RULES_MAX);
        if most * eni.groups.len() > RULES_TIMES_GROUPS_MAX {
            let what = format!("{} groups of up to {most} rules", eni.groups.len());
            let remedy = format!("groups times rules are {RULES_TIMES_GROUPS_MAX} at most");
            return Err(build.error(name.span(), what, remedy));
        }
    }
    Ok(())
}

fn everywhere() -> [IpNet; 2] {
    [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())]
}

fn overlap(a: IpNet, b: IpNet) -> bool {
    a.contains(&b) || b.contains(&a)
}
