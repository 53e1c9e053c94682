//! Instances, placement groups and interfaces.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use srd_vpc::id::*;
use srd_vpc::object::*;
use toml::Spanned;

use super::build::{Build, Result};
use super::document::{Document, InterfaceTable, Maybe};
use super::names::{Kind, hash};
use super::phrase;

/// Largest number of security groups of an interface: the limit of EC2.
const GROUPS_MAX: usize = 16;

pub(crate) fn build(build: &mut Build<'_>, document: &Document) -> Result<()> {
    placements(build, document)?;
    instances(build, document)?;
    for (name, spanned) in &document.interface {
        let id = EniId(build.find(Kind::Interface, name)?);
        let eni = interface(build, id, name, spanned.as_ref())?;
        build.world.enis.insert(id, eni);
    }
    zones(build, document)
}

/// Gives each instance without a `zone` the zone of the subnet of its primary interface.
fn zones(build: &mut Build<'_>, document: &Document) -> Result<()> {
    let of_eni = |eni: &Eni| {
        let attachment = eni.attachment.as_ref().filter(|at| at.device_index == 0)?;
        Some((attachment.instance, build.world.subnets.get(&eni.subnet)?.zone.clone()))
    };
    let mut zones: BTreeMap<InstanceId, String> =
        build.world.enis.values().filter_map(of_eni).collect();
    for (name, spanned) in &document.instance {
        let id = InstanceId(build.find(Kind::Instance, name)?);
        let zone = zones.remove(&id).filter(|_| spanned.as_ref().zone.is_none());
        if let (Some(zone), Some(instance)) = (zone, build.world.instances.get_mut(&id)) {
            instance.zone = zone;
        }
    }
    Ok(())
}

fn placements(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, spanned) in &document.placement {
        let id = PlacementId(build.find(Kind::Placement, name)?);
        let table = spanned.as_ref();
        let text = table.strategy.as_ref();
        let strategy = match text.as_str() {
            "cluster" => Strategy::Cluster,
            "spread" => Strategy::Spread,
            "partition" => {
                let given = table.partitions.as_ref().map_or(2, |p| *p.as_ref());
                if !(1..=7).contains(&given) {
                    let span = table.partitions.as_ref().map_or(name.span(), Spanned::span);
                    return Err(build.error(
                        span,
                        "there are 1 to 7 partitions",
                        "write such a number",
                    ));
                }
                Strategy::Partition(given)
            }
            _ => {
                let remedy = "cluster, partition and spread are";
                let what = format!("`{text}` is no strategy");
                return Err(build.error(table.strategy.span(), what, remedy));
            }
        };
        let placement = Placement { name: name.as_ref().clone(), strategy };
        build.world.placements.insert(id, placement);
    }
    Ok(())
}

fn instances(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, spanned) in &document.instance {
        let id = InstanceId(build.find(Kind::Instance, name)?);
        let table = spanned.as_ref();
        let placement = match &table.placement {
            Some(name) => Some(PlacementId(build.find(Kind::Placement, name)?)),
            None => None,
        };
        for name in [&table.host, &table.pod].into_iter().flatten() {
            build.check_name(name)?;
        }
        let instance = Instance {
            name: name.as_ref().clone(),
            instance_type: table.instance_type.as_ref().clone(),
            zone: table.zone.clone().unwrap_or_else(|| String::from("a")),
            placement,
            host: table.host.as_ref().map(|host| host.as_ref().clone()),
            pod: table.pod.as_ref().map(|pod| pod.as_ref().clone()),
        };
        build.world.instances.insert(id, instance);
    }
    Ok(())
}

fn interface(
    build: &mut Build<'_>,
    id: EniId,
    name: &Spanned<String>,
    table: &InterfaceTable,
) -> Result<Eni> {
    let subnet_id = SubnetId(build.find(Kind::Subnet, &table.subnet)?);
    let Some(subnet) = build.world.subnets.get(&subnet_id) else {
        return Err(build.error(table.subnet.span(), "there is no such subnet", ""));
    };
    let vpc = subnet.vpc;
    let subnet = &subnet.clone();
    let groups = groups(build, table, subnet)?;
    let mut eni = Eni {
        name: name.as_ref().clone(),
        subnet: subnet_id,
        mac: id.mac(),
        ipv4: Vec::new(),
        ipv6: Vec::new(),
        ipv4_prefixes: Vec::new(),
        ipv6_prefixes: Vec::new(),
        groups,
        source_dest_check: table.source_dest_check.unwrap_or(true),
        attachment: attachment(build, id, name, table)?,
        tracking: tracking(build, table)?,
    };
    for text in &table.address {
        let Ok(address) = text.as_ref().parse::<IpAddr>() else {
            let what = format!("`{}` is no address", text.as_ref());
            return Err(build.error(text.span(), what, "as in 10.0.1.10 or fd12:3456::10"));
        };
        check_address(build, id, subnet, address, text)?;
        match address {
            IpAddr::V4(address) => eni.ipv4.push(address),
            IpAddr::V6(address) => eni.ipv6.push(address),
        }
    }
    if eni.ipv4.is_empty() {
        let remedy = "write one of its subnet's, the primary one first";
        return Err(build.error(name.span(), "an interface needs an IPv4 address", remedy));
    }
    for text in &table.prefixes {
        let block = prefix(build, subnet, text)?;
        build.addresses.take(vpc, block, id);
        match block {
            IpNet::V4(prefix) => eni.ipv4_prefixes.push(prefix),
            IpNet::V6(prefix) => eni.ipv6_prefixes.push(prefix),
        }
    }
    Ok(eni)
}

fn groups(build: &Build<'_>, table: &InterfaceTable, subnet: &Subnet) -> Result<Vec<GroupId>> {
    let mut groups = Vec::new();
    for name in &table.groups {
        let id = GroupId(build.find(Kind::Group, name)?);
        if build.world.groups.get(&id).is_some_and(|group| group.vpc != subnet.vpc) {
            let what = format!("group `{}` is of another cloud", name.as_ref());
            return Err(build.error(name.span(), what, "name one of the interface's own cloud"));
        }
        if groups.len() == GROUPS_MAX {
            let what = format!("an interface has at most {GROUPS_MAX} groups");
            return Err(build.error(name.span(), what, "take some out"));
        }
        groups.push(id);
    }
    if groups.is_empty() {
        groups.extend(build.world.vpcs.get(&subnet.vpc).map(|vpc| vpc.default_group));
    }
    Ok(groups)
}

/// Checks that an address is inside the subnet, is not one of the five addresses that EC2 reserves,
/// and is not in use.
fn check_address(
    build: &mut Build<'_>,
    id: EniId,
    subnet: &Subnet,
    address: IpAddr,
    text: &Spanned<String>,
) -> Result<()> {
    let refuse = |what: String, remedy: &str| Err(build.error(text.span(), what, remedy));
    let block = match address {
        IpAddr::V4(_) => Some(IpNet::V4(subnet.ipv4)),
        IpAddr::V6(_) => subnet.ipv6.map(IpNet::V6),
    };
    let Some(block) = block.filter(|block| block.contains(&address)) else {
        let remedy = "take one inside the subnet's `cidr` or `ipv6_cidr`";
        return refuse(format!("{address} is not in subnet `{}`", subnet.name), remedy);
    };
    let reserved = |address: Ipv4Addr| {
        let from_begin = u32::from(address) - u32::from(subnet.ipv4.network());
        from_begin < 4 || address == subnet.ipv4.broadcast()
    };
    if matches!(address, IpAddr::V4(address) if reserved(address)) {
        let remedy = "the first four addresses of a subnet and its last are not for interfaces";
        return refuse(format!("{address} is reserved in {block}"), remedy);
    }
    match build.addresses.owner(subnet.vpc, IpNet::from(address)) {
        Some(own) if own == id => refuse("this address stands twice".into(), "take one out"),
        Some(other) => {
            let other = build.interface_name(other);
            refuse(format!("{address} belongs to interface `{other}`"), "take another")
        }
        None => {
            build.addresses.take(subnet.vpc, IpNet::from(address), id);
            Ok(())
        }
    }
}

fn prefix(build: &Build<'_>, subnet: &Subnet, text: &Spanned<String>) -> Result<IpNet> {
    let block = phrase::block(text.as_ref()).map_err(|wrong| build.wrong(text.span(), wrong))?;
    let refuse = |what: &str, remedy: &str| Err(build.error(text.span(), what, remedy));
    let inside = match block {
        IpNet::V4(block) => block.prefix_len() == 28 && subnet.ipv4.contains(&block),
        IpNet::V6(block) => {
            block.prefix_len() == 80 && subnet.ipv6.is_some_and(|own| own.contains(&block))
        }
    };
    if !inside {
        return refuse(
            "a delegated prefix has 28 bits (IPv6: 80) and lies in the subnet",
            "as in 10.0.1.16/28",
        );
    }
    let taken = build.addresses.owner(subnet.vpc, block).is_some();
    if taken {
        refuse("part of this prefix is an interface's already", "take another")
    } else {
        Ok(block)
    }
}

fn attachment(
    build: &mut Build<'_>,
    eni: EniId,
    name: &Spanned<String>,
    table: &InterfaceTable,
) -> Result<Option<Attachment>> {
    let express = ExpressSpec {
        enabled: table.express.unwrap_or(false),
        udp: table.express_udp.as_ref().is_some_and(|udp| *udp.as_ref()),
    };
    if let (Some(udp), false, true) = (&table.express_udp, express.enabled, express.udp) {
        let remedy = "add express = true";
        return Err(build.error(udp.span(), "`express_udp` needs `express`", remedy));
    }
    let Some(instance_name) = &table.instance else {
        if express.enabled {
            let what = "ENA Express belongs to the attachment, and this interface has none";
            return Err(build.error(name.span(), what, "add instance = \"NAME\""));
        }
        return Ok(None);
    };
    let instance = InstanceId(build.find(Kind::Instance, instance_name)?);
    let device_index = table.device_index.as_ref().map_or(0, |index| *index.as_ref());
    if let Some(other) = build.devices.get(&(instance, device_index)) {
        let span = table.device_index.as_ref().map_or(instance_name.span(), Spanned::span);
        let other = build.interface_name(*other);
        let what = format!("interface `{other}` has device index {device_index} of it");
        return Err(build.error(span, what, "write another device_index"));
    }
    build.devices.insert((instance, device_index), eni);
    let id = AttachmentId(hash(Kind::Interface, &format!("{} attachment", name.as_ref())));
    Ok(Some(Attachment { id, instance, device_index, express }))
}

/// Returns the idle timeouts of connection tracking, checked against the limits of EC2.
fn tracking(build: &Build<'_>, table: &InterfaceTable) -> Result<TrackingSpec> {
    let within = |given: &Maybe<u32>, name: &str, least: u32, most: u32| match given {
        None => Ok(None),
        Some(given) if (least..=most).contains(given.as_ref()) => Ok(Some(*given.as_ref())),
        Some(given) => {
            let what = format!("`{name}` cannot be {}", given.as_ref());
            Err(build.error(given.span(), what, format!("write {least} to {most} seconds")))
        }
    };
    Ok(TrackingSpec {
        tcp_established: within(
            &table.tcp_established_timeout,
            "tcp_established_timeout",
            60,
            432_000,
        )?,
        udp_stream: within(&table.udp_stream_timeout, "udp_stream_timeout", 60, 180)?,
        udp: within(&table.udp_timeout, "udp_timeout", 30, 60)?,
    })
}
