//! Warnings about valid files that probably contain a mistake: access control lists that block part
//! of the answers, and rules and routes that use an inactive peering connection.

use std::net::{IpAddr, Ipv4Addr};

use srd_vpc::id::{AclId, EniId, GroupId, SubnetId, VpcId};
use srd_vpc::judge::{INTERNET_PORTS, LINUX_PORTS, NAT_PORTS, partly_admitted};
use srd_vpc::object::{Destination, Eni, RulePeer, Target, World};
use srd_vpc::packet::{Inner, Packet};

use crate::words::rule_text;
use crate::{Kind, VpcFile};

/// An example address that stands for the internet.
const OUTSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
/// Smallest number of ports for which a warning is given. An access control list that admits fewer
/// ports probably admits services, not answers.
const PORTS_MIN: u32 = 1024;

/// Returns warnings about valid contents that are probably mistakes: one sentence each, with a
/// remedy.
pub fn warnings(file: &VpcFile) -> Vec<String> {
    let mut all = answers(file);
    let groups: Vec<GroupId> = file.world.groups.keys().copied().collect();
    all.extend(stale_rules(file, &groups));
    all.extend(routes_to_nowhere(file));
    all.extend(other_zones(file));
    all
}

/// Returns warnings about instances in another zone than a subnet of theirs, which EC2 does not
/// permit: one of the two is misspelt.
fn other_zones(file: &VpcFile) -> Vec<String> {
    let world = &file.world;
    let of_interface = |(id, eni): (&EniId, &Eni)| {
        let instance = eni.attachment.as_ref()?.instance;
        let (subnet, of) = (world.subnets.get(&eni.subnet)?, world.instances.get(&instance)?);
        (of.zone != subnet.zone).then(|| {
            format!(
                "{} is in the zone `{}`, and {}, in which its {} is, in the zone `{}`: write the \
                 same `zone` at both, or take that of the instance out",
                name(file, Kind::Instance, instance.0),
                of.zone,
                name(file, Kind::Subnet, eni.subnet.0),
                name(file, Kind::Interface, id.0),
                subnet.zone,
            )
        })
    };
    world.enis.iter().filter_map(of_interface).collect()
}

fn name(file: &VpcFile, kind: Kind, id: u64) -> String {
    format!("{} {}", kind.word(), file.names.name(kind, id).unwrap_or("?"))
}

/// Returns warnings about access control lists that admit answers to only part of the ports that
/// clients or NAT gateways use.
fn answers(file: &VpcFile) -> Vec<String> {
    let world = &file.world;
    let mut all = Vec::new();
    for (id, nat) in &world.nat_gateways {
        let Some(subnet) = world.subnets.get(&nat.subnet) else { continue };
        let who = format!("{} takes", name(file, Kind::NatGateway, id.0));
        let far = far_end(world, subnet.vpc, nat.address.is_some());
        let place = (nat.subnet, subnet.acl);
        all.extend(partly(file, place, false, (far, nat.private.into()), (&who, NAT_PORTS)));
    }
    for (id, subnet) in &world.subnets {
        let mut here =
            world.enis.values().filter(|eni| eni.subnet == *id && eni.attachment.is_some());
        let Some(own) = here.next().and_then(|eni| eni.ipv4.first()) else { continue };
        let (place, own) = ((*id, subnet.acl), IpAddr::V4(*own));
        let who = "clients under Linux take";
        all.extend(partly(file, place, false, (OUTSIDE, own), (who, LINUX_PORTS)));
        let has_public = world.addresses.values().any(|address| {
            let eni = address.association.and_then(|(eni, _)| world.enis.get(&eni));
            eni.is_some_and(|eni| eni.subnet == *id)
        });
        if has_public {
            let who = "clients of the internet take";
            all.extend(partly(file, place, true, (own, OUTSIDE), (who, INTERNET_PORTS)));
        }
    }
    all
}

/// Returns an address beyond a NAT gateway: in the internet, or in a peered cloud.
fn far_end(world: &World, vpc: VpcId, public: bool) -> IpAddr {
    let peer = world.peerings.values().find_map(|peering| {
        let other = match [peering.requester, peering.accepter] {
            [own, other] | [other, own] if own == vpc => other,
            _ => return None,
        };
        let block = world.vpcs.get(&other)?.ipv4.first()?;
        block.hosts().nth(9)
    });
    peer.filter(|_| !public).map_or(OUTSIDE, IpAddr::V4)
}

fn partly(
    file: &VpcFile,
    (subnet, acl): (SubnetId, AclId),
    egress: bool,
    (source, destination): (IpAddr, IpAddr),
    (who, wanted): (&str, (u16, u16)),
) -> Vec<String> {
    let Some(list) = file.world.acls.get(&acl) else { return Vec::new() };
    let of = |protocol: &str, inner: Inner| {
        let packet = Packet { source, destination, inner };
        let good = partly_admitted(list, egress, &packet, wanted)?;
        let count: u32 = good.iter().map(|(first, last)| u32::from(last - first) + 1).sum();
        if count < PORTS_MIN {
            return None;
        }
        let (way, from) = if egress { ("egress", "to") } else { ("ingress", "from") };
        let other = if egress { destination } else { source };
        let other = match other {
            OUTSIDE => String::from("0.0.0.0/0"),
            other => other.to_string(),
        };
        Some(format!(
            "{}, {way} of {}: of the {protocol} ports {} that {who} it passes {} only, and answers \
             to the others are lost: allow {protocol} {} {from} {other}",
            name(file, Kind::Acl, acl.0),
            name(file, Kind::Subnet, subnet.0),
            range(wanted),
            ranges(&good),
            range(wanted),
        ))
    };
    let both = [of("tcp", Inner::Tcp(443, 0)), of("udp", Inner::Udp(443, 0))];
    both.into_iter().flatten().collect()
}

/// Returns the text for a range of ports.
pub fn range((first, last): (u16, u16)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// Returns the text for several ranges of ports.
pub fn ranges(all: &[(u16, u16)]) -> String {
    let all: Vec<String> = all.iter().map(|ports| range(*ports)).collect();
    all.join(", ")
}

/// Returns warnings about rules of these groups that name a group of a cloud that is not peered.
/// EC2 calls such rules stale.
pub fn stale_rules(file: &VpcFile, groups: &[GroupId]) -> Vec<String> {
    let world = &file.world;
    let mut all = Vec::new();
    for id in groups {
        let Some(group) = world.groups.get(id) else { continue };
        for rule in &group.rules {
            let RulePeer::Group(named) = rule.peer else { continue };
            let Some(other) = world.groups.get(&named).filter(|of| of.vpc != group.vpc) else {
                continue;
            };
            let ends = [group.vpc, other.vpc];
            let is_joined = world.peerings.values().any(|peering| {
                peering.active
                    && ends.contains(&peering.requester)
                    && ends.contains(&peering.accepter)
            });
            if !is_joined {
                all.push(format!(
                    "{}: the rule \"{}\" is stale, and admits nobody: no active peering joins {} \
                     with {}, which the named group is of",
                    name(file, Kind::Group, id.0),
                    rule_text(file, *id, rule.id),
                    name(file, Kind::Vpc, group.vpc.0),
                    name(file, Kind::Vpc, other.vpc.0),
                ));
            }
        }
    }
    all
}

/// Returns warnings about routes through inactive peering connections.
fn routes_to_nowhere(file: &VpcFile) -> Vec<String> {
    let world = &file.world;
    let tables = world.route_tables.iter();
    let routes = tables.flat_map(|(id, table)| table.routes.iter().map(move |route| (id, route)));
    let over = routes.filter_map(|(id, route)| {
        let Target::Peering(peering) = route.target else { return None };
        world.peerings.get(&peering).filter(|peering| !peering.active)?;
        let to = match route.destination {
            Destination::Block(block) => block.to_string(),
            Destination::List(list) => name(file, Kind::PrefixList, list.0),
        };
        Some(format!(
            "{}: the route to {to} leads to {}, which is not active: its packets are dropped",
            name(file, Kind::RouteTable, id.0),
            name(file, Kind::Peering, peering.0),
        ))
    });
    over.collect()
}
