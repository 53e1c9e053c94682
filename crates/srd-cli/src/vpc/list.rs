//! `srd vpc show`, `diff` and `nau`: list and compare the objects of a file.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};

use anyhow::Result;
use serde::Serialize;
use srd_vpc::nau;
use srd_vpc::object::{Group, RulePeer, World};
use srd_vpc_file::{Kind, VpcFile};

use super::{DiffArgs, FileArgs, others, read};
use crate::failure::RUN;
use srd_vpc_file::words::{target_text, traffic_text};

/// Returns the number of objects of each kind; kinds without objects are left out.
pub(super) fn counts(world: &World) -> Vec<(&'static str, usize)> {
    let all = [
        ("vpc", world.vpcs.len()),
        ("subnet", world.subnets.len()),
        ("route_table", world.route_tables.len()),
        ("acl", world.acls.len()),
        ("group", world.groups.len()),
        ("prefix_list", world.prefix_lists.len()),
        ("interface", world.enis.len()),
        ("instance", world.instances.len()),
        ("placement", world.placements.len()),
        ("internet_gateway", world.internet_gateways.len()),
        ("egress_only_gateway", world.egress_only_gateways.len()),
        ("nat_gateway", world.nat_gateways.len()),
        ("elastic_address", world.addresses.len()),
        ("peering", world.peerings.len()),
        ("endpoint", world.endpoints.len()),
        ("dhcp_options", world.dhcp_options.len()),
        ("flow_log", world.flow_logs.len()),
        ("mirror_filter", world.mirror_filters.len()),
        ("mirror_target", world.mirror_targets.len()),
        ("mirror_session", world.mirror_sessions.len()),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// An object of a file, for text and JSON.
#[derive(Debug, Serialize)]
struct Row {
    kind: &'static str,
    name: String,
    id: String,
    says: Vec<String>,
}

pub(super) fn show(args: &FileArgs) -> Result<u8> {
    args.json.check()?;
    let file = read(&args.file)?;
    let rows = rows(&file);
    args.json.write(&rows)?;
    for Row { kind, name, id, says } in &rows {
        args.json.say(format!("{kind} {name} ({id})"))?;
        for line in says {
            args.json.say(format!("    {line}"))?;
        }
    }
    Ok(0)
}

fn rows(file: &VpcFile) -> Vec<Row> {
    let world = &file.world;
    let mut rows = Vec::new();
    let mut add = |kind: Kind, number: u64, id: &dyn Display, says: Vec<String>| {
        let name = file.names.name(kind, number).unwrap_or_default().to_owned();
        rows.push(Row { kind: kind.word(), name, id: id.to_string(), says });
    };
    let name = |kind: Kind, number: u64| file.names.name(kind, number).unwrap_or("?").to_owned();
    for (id, vpc) in &world.vpcs {
        let blocks = vpc.ipv4.iter().map(ToString::to_string);
        let blocks: Vec<_> = blocks.chain(vpc.ipv6.iter().map(ToString::to_string)).collect();
        add(Kind::Vpc, id.0, id, vec![blocks.join(", ")]);
    }
    for (id, subnet) in &world.subnets {
        let blocks = match subnet.ipv6 {
            Some(ipv6) => format!("{}, {ipv6}", subnet.ipv4),
            None => subnet.ipv4.to_string(),
        };
        let main = world.vpcs.get(&subnet.vpc).map(|vpc| vpc.main_route_table);
        let table = subnet.route_table.or(main).map_or(0, |table| table.0);
        add(
            Kind::Subnet,
            id.0,
            id,
            vec![format!(
                "{blocks} in {}, zone {}, {}, {}",
                name(Kind::Vpc, subnet.vpc.0),
                subnet.zone,
                name(Kind::RouteTable, table),
                name(Kind::Acl, subnet.acl.0),
            )],
        );
    }
    for (id, table) in &world.route_tables {
        let routes = table.routes.iter().map(|route| {
            let destination = match route.destination {
                srd_vpc::object::Destination::Block(block) => block.to_string(),
                srd_vpc::object::Destination::List(id) => {
                    format!("list {}", name(Kind::PrefixList, id.0))
                }
            };
            format!("{destination} -> {}", target_text(file, route.target))
        });
        add(Kind::RouteTable, id.0, id, routes.collect());
    }
    for (id, acl) in &world.acls {
        let entries = acl.entries.iter().map(|entry| {
            let (way, word) = if entry.egress { ("out", "to") } else { ("in", "from") };
            let verb = if entry.allow { "allow" } else { "deny" };
            let traffic = traffic_text(entry.traffic);
            format!("{way} {} {verb} {traffic} {word} {}", entry.number, entry.block)
        });
        add(Kind::Acl, id.0, id, entries.chain([String::from("in and out * deny all")]).collect());
    }
    for (id, group) in &world.groups {
        add(Kind::Group, id.0, id, rules(file, group));
    }
    for (id, eni) in &world.enis {
        let addresses = eni.ipv4.iter().map(ToString::to_string);
        let addresses: Vec<_> = addresses.chain(eni.ipv6.iter().map(ToString::to_string)).collect();
        let groups: Vec<_> = eni.groups.iter().map(|group| name(Kind::Group, group.0)).collect();
        let mut says = vec![format!(
            "{} in {}, groups {}",
            addresses.join(", "),
            name(Kind::Subnet, eni.subnet.0),
            groups.join(", ")
        )];
        if let Some(at) = &eni.attachment {
            let instance = name(Kind::Instance, at.instance.0);
            let express = match (at.express.enabled, at.express.udp) {
                (false, _) => "",
                (true, false) => ", ENA Express for TCP",
                (true, true) => ", ENA Express for TCP and UDP",
            };
            says.push(format!("interface {} of instance {instance}{express}", at.device_index));
        }
        add(Kind::Interface, id.0, id, says);
    }
    for (id, instance) in &world.instances {
        let host = instance.host.iter().map(|host| format!("host {host}"));
        let says = [instance.instance_type.clone()].into_iter().chain(host).collect();
        add(Kind::Instance, id.0, id, says);
    }
    for (kind, number, id, says) in others::all(file) {
        add(kind, number, &id, says);
    }
    rows
}

fn rules(file: &VpcFile, group: &Group) -> Vec<String> {
    let text = |rule: &srd_vpc::object::GroupRule| {
        let word = if rule.egress { "to" } else { "from" };
        let name = |kind, number| file.names.name(kind, number).unwrap_or("?");
        let peer = match rule.peer {
            RulePeer::Block(block) => block.to_string(),
            RulePeer::List(id) => format!("list {}", name(Kind::PrefixList, id.0)),
            RulePeer::Group(id) => format!("group {}", name(Kind::Group, id.0)),
        };
        format!("{} {word} {peer}", traffic_text(rule.traffic))
    };
    group.rules.iter().map(text).collect()
}

/// An object that differs between two files.
#[derive(Debug, Serialize)]
struct Difference {
    change: &'static str,
    object: String,
}

pub(super) fn diff(args: &DiffArgs) -> Result<u8> {
    args.json.check()?;
    let (old, new) = (objects(&read(&args.old)?), objects(&read(&args.new)?));
    let mut all = Vec::new();
    for (object, text) in &new {
        match old.get(object) {
            None => all.push(Difference { change: "added", object: object.clone() }),
            Some(before) if before != text => {
                all.push(Difference { change: "changed", object: object.clone() });
            }
            Some(_) => {}
        }
    }
    let gone = old.keys().filter(|object| !new.contains_key(*object));
    all.extend(gone.map(|object| Difference { change: "removed", object: object.clone() }));
    args.json.write(&all)?;
    for Difference { change, object } in &all {
        args.json.say(format!("{change:<8} {object}"))?;
    }
    if all.is_empty() {
        args.json.say("no difference")?;
    }
    Ok(if all.is_empty() { 0 } else { RUN })
}

/// Returns every object of a file. The key is its kind and name; the value is all of its
/// attributes, as text for comparison.
fn objects(file: &VpcFile) -> BTreeMap<String, String> {
    fn all<I: Copy, T: Debug>(
        file: &VpcFile,
        out: &mut BTreeMap<String, String>,
        kind: Kind,
        table: &BTreeMap<I, T>,
        number: impl Fn(I) -> u64,
    ) {
        for (id, object) in table {
            let name = file.names.name(kind, number(*id)).unwrap_or_default();
            // Debug form: it is compared, and never shown.
            out.insert(format!("{} {name}", kind.word()), format!("{object:?}"));
        }
    }
    let (world, mut out) = (&file.world, BTreeMap::new());
    let to = &mut out;
    all(file, to, Kind::Vpc, &world.vpcs, |id| id.0);
    all(file, to, Kind::Subnet, &world.subnets, |id| id.0);
    all(file, to, Kind::RouteTable, &world.route_tables, |id| id.0);
    all(file, to, Kind::Acl, &world.acls, |id| id.0);
    all(file, to, Kind::Group, &world.groups, |id| id.0);
    all(file, to, Kind::PrefixList, &world.prefix_lists, |id| id.0);
    all(file, to, Kind::Interface, &world.enis, |id| id.0);
    all(file, to, Kind::Instance, &world.instances, |id| id.0);
    all(file, to, Kind::Placement, &world.placements, |id| id.0);
    all(file, to, Kind::InternetGateway, &world.internet_gateways, |id| id.0);
    all(file, to, Kind::EgressOnlyGateway, &world.egress_only_gateways, |id| id.0);
    all(file, to, Kind::NatGateway, &world.nat_gateways, |id| id.0);
    all(file, to, Kind::ElasticAddress, &world.addresses, |id| id.0);
    all(file, to, Kind::Peering, &world.peerings, |id| id.0);
    all(file, to, Kind::Endpoint, &world.endpoints, |id| id.0);
    all(file, to, Kind::DhcpOptions, &world.dhcp_options, |id| id.0);
    all(file, to, Kind::FlowLog, &world.flow_logs, |id| id.0);
    all(file, to, Kind::MirrorFilter, &world.mirror_filters, |id| id.0);
    all(file, to, Kind::MirrorTarget, &world.mirror_targets, |id| id.0);
    all(file, to, Kind::MirrorSession, &world.mirror_sessions, |id| id.0);
    for (word, value) in [("account", &world.account), ("region", &world.region)] {
        out.extend(value.iter().map(|value| (word.to_owned(), value.clone())));
    }
    out
}

pub(super) fn nau(args: &FileArgs) -> Result<u8> {
    args.json.check()?;
    let file = read(&args.file)?;
    let mut rows = Vec::new();
    let mut within = true;
    for (id, vpc) in &file.world.vpcs {
        let (own, peered) = (nau::of(&file.world, *id), nau::peered(&file.world, *id));
        within &= own <= nau::UNITS_MAX && peered <= nau::PEERED_UNITS_MAX;
        args.json.say(format!(
            "{}: {own} of {} units; with peered clouds {peered} of {}",
            vpc.name,
            nau::UNITS_MAX,
            nau::PEERED_UNITS_MAX
        ))?;
        rows.push(serde_json::json!({
            "vpc": vpc.name, "NetworkAddressUsage": own, "NetworkAddressUsagePeered": peered,
            "max": nau::UNITS_MAX, "peered_max": nau::PEERED_UNITS_MAX,
        }));
    }
    args.json.write(&rows)?;
    Ok(if within { 0 } else { RUN })
}
