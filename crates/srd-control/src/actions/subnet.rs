//! Actions of the EC2 API on subnets, and on reservations of addresses in them.

use std::net::Ipv4Addr;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::list::{self, Listing};
use super::source::Source;
use super::support::{
    get, get_mut, ipv4_block, ipv6_block, new_tags, not_found, overlap, show, success,
};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::network::{BlockState, Ipv6CidrAssociation};
use crate::state::{NetworkInterface, Region, Subnet, SubnetCidrReservation};
use crate::wire::Request;
use crate::{defaults, regions};

pub(super) const ACTIONS: Actions = &[
    ("CreateSubnet", Handler::Region(create)),
    ("CreateDefaultSubnet", Handler::Region(create_default)),
    ("DescribeSubnets", Handler::Region(describe)),
    ("ModifySubnetAttribute", Handler::Region(modify)),
    ("AssociateSubnetCidrBlock", Handler::Region(associate)),
    ("DisassociateSubnetCidrBlock", Handler::Region(disassociate)),
    ("DeleteSubnet", Handler::Region(delete)),
    ("CreateSubnetCidrReservation", Handler::Region(reserve)),
    ("GetSubnetCidrReservations", Handler::Region(reservations)),
    ("DeleteSubnetCidrReservation", Handler::Region(delete_reservation)),
];

pub(super) const LISTING: Listing = Listing {
    ids: "SubnetIds",
    id: "SubnetId",
    not_found: |id| not_found("subnet", id),
    filters: &[
        ("availability-zone", "AvailabilityZone"),
        ("availabilityZone", "AvailabilityZone"),
        ("availability-zone-id", "AvailabilityZoneId"),
        ("availabilityZoneId", "AvailabilityZoneId"),
        ("available-ip-address-count", "AvailableIpAddressCount"),
        ("cidr", "CidrBlock"),
        ("cidr-block", "CidrBlock"),
        ("cidrBlock", "CidrBlock"),
        ("default-for-az", "DefaultForAz"),
        ("defaultForAz", "DefaultForAz"),
        ("enable-dns64", "EnableDns64"),
        ("ipv6-cidr-block-association.association-id", "Ipv6CidrBlockAssociationSet.AssociationId"),
        (
            "ipv6-cidr-block-association.ipv6-cidr-block",
            "Ipv6CidrBlockAssociationSet.Ipv6CidrBlock",
        ),
        (
            "ipv6-cidr-block-association.state",
            "Ipv6CidrBlockAssociationSet.Ipv6CidrBlockState.State",
        ),
        ("ipv6-native", "Ipv6Native"),
        ("map-public-ip-on-launch", "MapPublicIpOnLaunch"),
        ("owner-id", "OwnerId"),
        ("outpost-arn", "OutpostArn"),
        ("state", "State"),
        ("subnet-arn", "SubnetArn"),
        ("subnet-id", "SubnetId"),
        ("vpc-id", "VpcId"),
    ],
    result: "Subnets",
};

/// Addresses of a subnet that EC2 keeps: the first four and the last.
pub(super) const KEPT: u32 = 5;

/// Whether EC2 reserves this address of a subnet for itself.
pub(super) fn is_kept(block: ipnet::Ipv4Net, address: Ipv4Addr) -> bool {
    let offset = u32::from(address).wrapping_sub(u32::from(block.network()));
    offset < KEPT - 1 || address == block.broadcast()
}

/// Number of the free IPv4 addresses of a subnet.
fn free_count(region: &Region, subnet: &Subnet) -> u64 {
    let Some(block) = subnet.cidr_block else { return 0 };
    let size = 1_u64 << (32 - block.prefix_len());
    let count = |of: &NetworkInterface| of.private_ip_addresses.len() + 16 * of.ipv4_prefixes.len();
    let used: usize = region.interfaces.linked(&subnet.subnet_id).map(count).sum();
    size.saturating_sub(u64::try_from(used).unwrap_or(u64::MAX).saturating_add(KEPT.into()))
}

/// Returns a subnet as its description, with the number of its free addresses.
fn view(region: &Region, subnet: &Subnet) -> Value {
    let mut shown = show(subnet);
    shown["AvailableIpAddressCount"] = free_count(region, subnet).into();
    shown
}

/// Returns the zone of a new subnet. If the request contains no zone, it is the first zone with the
/// fewest subnets of the VPC: endpoints and transit gateways take one subnet of each zone.
fn zone(region: &Region, request: &Request) -> ApiResult<String> {
    let zones = regions::zones(&region.name);
    if let Some(id) = request.text("AvailabilityZoneId") {
        let zone = zones.iter().find(|(_, zone)| zone == id);
        return zone.map(|(name, _)| name.clone()).ok_or_else(|| wrong_zone(id, &zones));
    }
    match request.text("AvailabilityZone") {
        Some(name) if zones.iter().any(|(zone, _)| zone == name) => Ok(name.to_owned()),
        Some(name) => Err(wrong_zone(name, &zones)),
        None => {
            let vpc = request.text("VpcId").unwrap_or_default();
            let count = |zone: &str| {
                let own = region.subnets.iter().filter(|subnet| subnet.vpc_id == vpc);
                own.filter(|subnet| subnet.availability_zone == zone).count()
            };
            let least = zones.into_iter().min_by_key(|(name, _)| count(name));
            Ok(least.map(|(name, _)| name).unwrap_or_default())
        }
    }
}

fn wrong_zone(zone: &str, zones: &[(String, String)]) -> ApiError {
    let names: Vec<&str> = zones.iter().map(|(name, _)| name.as_str()).collect();
    ApiError::invalid(format!(
        "Value ({zone}) for parameter availabilityZone is invalid. Subnets can currently only be \
         created in the following availability zones: {}.",
        names.join(", ")
    ))
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "subnet")?;
    let vpc = get(&region.vpcs, request.need("VpcId")?)?.clone();
    let native = request.flag("Ipv6Native") == Some(true);
    let zone = zone(region, request)?;
    let block = match request.text("CidrBlock") {
        _ if native && !request.has("Ipv6CidrBlock") => {
            let message = "Either 'ipv6CidrBlock' or 'ipv6IpamPoolId' should be provided.";
            return Err(ApiError::new("MissingParameter", message));
        }
        Some(_) if native => {
            let message = "When specifying ipv4 parameters, cidrBlock or ipv4IpamPoolId, you \
                           cannot set ipv6Native to true.";
            return Err(ApiError::combination(message));
        }
        Some(block) => Some(ipv4_block(block, "cidrBlock")?),
        None if native => None,
        None => return Err(ApiError::missing("cidrBlock")),
    };
    if let Some(block) = block {
        let of_vpc = vpc.cidr_block_association_set.iter().map(|of| of.cidr_block);
        let fits = of_vpc.into_iter().any(|vpc| vpc.contains(&block));
        if !fits || !(16..=28).contains(&block.prefix_len()) {
            let message = format!("The CIDR '{block}' is invalid.");
            return Err(ApiError::new("InvalidSubnet.Range", message));
        }
        let conflict = |subnet: &Subnet| {
            subnet.vpc_id == vpc.vpc_id && subnet.cidr_block.is_some_and(|old| overlap(old, block))
        };
        if region.subnets.find(conflict).is_some() {
            let message = format!("The CIDR '{block}' conflicts with another subnet");
            return Err(ApiError::new("InvalidSubnet.Conflict", message));
        }
    }
    let id = defaults::subnet(region, &vpc.vpc_id, &zone, block);
    if let Some(block) = request.text("Ipv6CidrBlock") {
        add_v6(region, &id, block)?;
    }
    let subnet = get_mut(&mut region.subnets, &id)?;
    subnet.ipv6_native = native;
    subnet.assign_ipv6_address_on_creation = native;
    subnet.tags = tags;
    Ok(json!({"Subnet": view(region, get(&region.subnets, &id)?)}))
}

fn create_default(region: &mut Region, request: &Request) -> ApiResult<Value> {
    if !request.has("AvailabilityZone") && !request.has("AvailabilityZoneId") {
        return Err(ApiError::missing("availabilityZone"));
    }
    let zone = zone(region, request)?;
    let none = || {
        let message = "No default VPC exists for this account in this region.";
        ApiError::new("DefaultVpcDoesNotExist", message)
    };
    let vpc = region.vpcs.find(|vpc| vpc.is_default).ok_or_else(none)?.clone();
    let is_there = |s: &Subnet| s.default_for_az && s.availability_zone == zone;
    if let Some(subnet) = region.subnets.find(is_there) {
        let message = format!("'{}' is already the default subnet in {zone}.", subnet.subnet_id);
        return Err(ApiError::new("DefaultSubnetAlreadyExistsInAvailabilityZone", message));
    }
    let mut blocks = vpc.cidr_block.subnets(20).into_iter().flatten();
    let free = blocks.find(|block| {
        let conflict = |s: &Subnet| {
            s.vpc_id == vpc.vpc_id && s.cidr_block.is_some_and(|old| overlap(old, *block))
        };
        region.subnets.find(conflict).is_none()
    });
    let Some(block) = free else {
        let message = "The default VPC has no free address block for a subnet";
        return Err(ApiError::new("InsufficientCidrBlocks", message));
    };
    let id = defaults::default_subnet(region, &vpc.vpc_id, &zone, block);
    Ok(json!({"Subnet": view(region, get(&region.subnets, &id)?)}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    LISTING.describe(request, &source(region))
}

/// The subnets of a region with their descriptions.
pub(super) fn source(region: &Region) -> Source<'_, Subnet> {
    Source::new(&region.subnets).shown(
        move |subnet| view(region, subnet),
        move |subnet, path, condition| match path {
            ["AvailableIpAddressCount"] => Some(condition(&free_count(region, subnet).to_string())),
            _ => None,
        },
    )
}

fn modify(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let subnet = get_mut(&mut region.subnets, request.need("SubnetId")?)?;
    let attributes = request.parameters.keys().filter(|name| *name != "SubnetId").count();
    let pool = request.has("CustomerOwnedIpv4Pool") && request.has("MapCustomerOwnedIpOnLaunch");
    if attributes > 1 && !(attributes == 2 && pool) {
        let message = "Only one attribute can be changed with a request";
        return Err(ApiError::combination(message));
    }
    if let Some(value) = request.flag_value("AssignIpv6AddressOnCreation") {
        if value && subnet.ipv6_cidr_block_association_set.is_empty() {
            let message = format!(
                "Invalid value 'true' for assignIpv6AddressOnCreation. Subnet '{}' has no \
                 associated IPv6 CIDR block",
                subnet.subnet_id
            );
            return Err(ApiError::invalid(message));
        }
        subnet.assign_ipv6_address_on_creation = value;
    }
    let names = &mut subnet.private_dns_name_options_on_launch;
    for (name, field) in [
        ("MapPublicIpOnLaunch", &mut subnet.map_public_ip_on_launch),
        ("MapCustomerOwnedIpOnLaunch", &mut subnet.map_customer_owned_ip_on_launch),
        ("EnableDns64", &mut subnet.enable_dns64),
        ("EnableResourceNameDnsARecordOnLaunch", &mut names.enable_resource_name_dns_a_record),
        (
            "EnableResourceNameDnsAAAARecordOnLaunch",
            &mut names.enable_resource_name_dns_aaaa_record,
        ),
    ] {
        if let Some(value) = request.flag_value(name) {
            *field = value;
        }
    }
    if let Some(kind) = request.text("PrivateDnsHostnameTypeOnLaunch") {
        kind.clone_into(&mut names.hostname_type);
    }
    if let Some(pool) = request.text("CustomerOwnedIpv4Pool") {
        subnet.customer_owned_ipv4_pool = Some(pool.to_owned());
    }
    if let Some(index) = request.number("EnableLniAtDeviceIndex") {
        subnet.enable_lni_at_device_index = Some(index);
    }
    if request.flag_value("DisableLniAtDeviceIndex") == Some(true) {
        subnet.enable_lni_at_device_index = None;
    }
    success()
}

/// Adds an IPv6 block of the VPC to a subnet.
fn add_v6(region: &mut Region, subnet_id: &str, block: &str) -> ApiResult<Ipv6CidrAssociation> {
    let block = ipv6_block(block, "ipv6CidrBlock")?;
    let subnet = get(&region.subnets, subnet_id)?;
    let vpc = get(&region.vpcs, &subnet.vpc_id)?;
    let mut of_vpc = vpc.ipv6_cidr_block_association_set.iter();
    let sizes = 44..=64;
    let fits = of_vpc.any(|of| of.ipv6_cidr_block.contains(&block));
    if !fits || !sizes.contains(&block.prefix_len()) || block.prefix_len() % 4 != 0 {
        let message = format!("The CIDR '{block}' is invalid.");
        return Err(ApiError::new("InvalidSubnet.Range", message));
    }
    let conflict = |other: &Subnet| {
        other.vpc_id == subnet.vpc_id
            && other.ipv6_cidr_block_association_set.iter().any(|of| {
                of.ipv6_cidr_block.contains(&block) || block.contains(&of.ipv6_cidr_block)
            })
    };
    if region.subnets.find(conflict).is_some() {
        let message = format!("The CIDR '{block}' conflicts with another subnet");
        return Err(ApiError::new("InvalidSubnet.Conflict", message));
    }
    if !subnet.ipv6_cidr_block_association_set.is_empty() {
        let message = format!("The subnet '{subnet_id}' already has an IPv6 CIDR block");
        return Err(ApiError::new("SubnetCidrBlockLimitExceeded", message));
    }
    let association = Ipv6CidrAssociation {
        association_id: region.ids.id("subnet-cidr-assoc"),
        ipv6_cidr_block: block,
        ipv6_cidr_block_state: BlockState { state: "associated".to_owned() },
        network_border_group: None,
        ipv6_pool: None,
    };
    let subnet = get_mut(&mut region.subnets, subnet_id)?;
    subnet.ipv6_cidr_block_association_set.push(association.clone());
    Ok(association)
}

fn associate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("SubnetId")?;
    get(&region.subnets, id)?;
    let added = add_v6(region, id, request.need("Ipv6CidrBlock")?)?;
    let mut shown = show(&added);
    shown["Ipv6CidrBlockState"]["State"] = "associating".into();
    Ok(json!({"SubnetId": id, "Ipv6CidrBlockAssociation": shown}))
}

fn disassociate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("AssociationId")?;
    let has = |subnet: &Subnet| {
        subnet.ipv6_cidr_block_association_set.iter().any(|of| of.association_id == id)
    };
    let Some(subnet) = region.subnets.find(has).map(|subnet| subnet.subnet_id.clone()) else {
        let message = format!("The subnet CIDR block association ID '{id}' does not exist");
        return Err(ApiError::new("InvalidSubnetCidrBlockAssociationID.NotFound", message));
    };
    let used = |i: &NetworkInterface| !(i.ipv6_addresses.is_empty() && i.ipv6_prefixes.is_empty());
    if region.interfaces.linked(&subnet).any(used) {
        let message = format!("The IPv6 block of {subnet} has addresses in use");
        return Err(ApiError::in_use(message));
    }
    let kept = get_mut(&mut region.subnets, &subnet)?;
    let set = &mut kept.ipv6_cidr_block_association_set;
    let Some(at) = set.iter().position(|of| of.association_id == id) else {
        return Err(not_found("subnet", &subnet));
    };
    let mut shown = show(&set.remove(at));
    kept.assign_ipv6_address_on_creation = false;
    shown["Ipv6CidrBlockState"]["State"] = "disassociating".into();
    Ok(json!({"SubnetId": subnet, "Ipv6CidrBlockAssociation": shown}))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("SubnetId")?;
    get(&region.subnets, id)?;
    if region.interfaces.linked(id).next().is_some() {
        let message = format!("The subnet '{id}' has dependencies and cannot be deleted.");
        return Err(ApiError::in_use(message));
    }
    for acl in region.acls.ids_where(|acl| acl.associations.iter().any(|a| a.subnet_id == id)) {
        get_mut(&mut region.acls, &acl)?.associations.retain(|a| a.subnet_id != id);
    }
    let is = |a: &crate::state::network::RouteTableAssociation| a.subnet_id.as_deref() == Some(id);
    for table in region.route_tables.ids_where(|table| table.associations.iter().any(is)) {
        get_mut(&mut region.route_tables, &table)?.associations.retain(|a| !is(a));
    }
    for reservation in region.reservations.ids_where(|of| of.subnet_id == id) {
        region.reservations.remove(&reservation);
    }
    region.subnets.remove(id);
    success()
}

fn reserve(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "subnet-cidr-reservation")?;
    let subnet = get(&region.subnets, request.need("SubnetId")?)?.clone();
    let text = request.need("Cidr")?;
    let block: IpNet = if text.contains(':') {
        ipv6_block(text, "cidr")?.into()
    } else {
        ipv4_block(text, "cidr")?.into()
    };
    let v6 = subnet.ipv6_cidr_block_association_set.iter();
    let mut blocks: Vec<IpNet> = v6.map(|of| of.ipv6_cidr_block.into()).collect();
    blocks.extend(subnet.cidr_block.map(IpNet::from));
    blocks.retain(|of| of.addr().is_ipv4() == block.addr().is_ipv4());
    if !blocks.iter().any(|of| of.contains(&block)) {
        let blocks: Vec<String> = blocks.iter().map(ToString::to_string).collect();
        let message =
            format!("Reservation CIDR should be within subnet CIDR block ({})", blocks.join(", "));
        return Err(ApiError::invalid(message));
    }
    let overlaps = |old: &SubnetCidrReservation| {
        let old_block = old.cidr.parse::<IpNet>().ok();
        old.subnet_id == subnet.subnet_id
            && old_block.is_some_and(|old| old.contains(&block) || block.contains(&old))
    };
    if region.reservations.find(overlaps).is_some() {
        let message =
            format!("Reservation CIDR {block} has overlap with existing reserved CIDR block");
        return Err(ApiError::invalid(message));
    }
    let id = region.ids.id("scr");
    let reservation = SubnetCidrReservation {
        subnet_cidr_reservation_id: id,
        subnet_id: subnet.subnet_id,
        cidr: block.to_string(),
        reservation_type: request.need("ReservationType")?.to_owned(),
        owner_id: region.account.clone(),
        description: request.text("Description").map(str::to_owned),
        tags,
    };
    let shown = show(&reservation);
    region.reservations.insert(reservation);
    Ok(json!({"SubnetCidrReservation": shown}))
}

fn reservations(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let subnet = get(&region.subnets, request.need("SubnetId")?)?.subnet_id.clone();
    let of_subnet = region.reservations.iter().filter(|of| of.subnet_id == subnet);
    let filters: list::Filters =
        &[("reservationType", "ReservationType"), ("subnet-id", "SubnetId")];
    let all = list::filter(request, filters, of_subnet.map(show).collect())?;
    let (v6, v4): (Vec<Value>, Vec<Value>) =
        all.into_iter().partition(|of| of["Cidr"].as_str().is_some_and(|c| c.contains(':')));
    Ok(json!({"SubnetIpv4CidrReservations": v4, "SubnetIpv6CidrReservations": v6}))
}

fn delete_reservation(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("SubnetCidrReservationId")?;
    let removed = region.reservations.remove(id).ok_or_else(|| not_found("scr", id))?;
    Ok(json!({"DeletedSubnetCidrReservation": show(&removed)}))
}
