//! Actions of the EC2 API on address blocks of VPCs.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde_json::{Value, json};

use super::support::{get, get_mut, ipv4_block, ipv6_block, not_found, overlap, show};
use super::{Actions, Handler};
use crate::defaults;
use crate::error::{ApiError, ApiResult};
use crate::state::network::{BlockState, CidrAssociation, Ipv6CidrAssociation, Route};
use crate::state::{Region, Vpc};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("AssociateVpcCidrBlock", Handler::Region(associate)),
    ("DisassociateVpcCidrBlock", Handler::Region(disassociate)),
];

/// Largest number of IPv4 blocks, and of IPv6 blocks, of a VPC.
const BLOCKS_MAX: usize = 5;

/// Checks the size of an IPv4 block of a VPC.
pub(super) fn check_size(block: Ipv4Net) -> ApiResult<()> {
    if (16..=28).contains(&block.prefix_len()) {
        return Ok(());
    }
    Err(ApiError::new("InvalidVpc.Range", format!("The CIDR '{block}' is invalid.")))
}

/// Adds the IPv6 block to a VPC that a request describes: one of the provider, or one of a pool of
/// the account. The pools themselves are not checked, because there is no catalogue of them.
pub(super) fn add_v6(
    region: &mut Region,
    vpc_id: &str,
    request: &Request,
) -> ApiResult<Option<Ipv6CidrAssociation>> {
    let provided = request.flag("AmazonProvidedIpv6CidrBlock") == Some(true);
    let (block, pool) = match (request.text("Ipv6CidrBlock"), request.text("Ipv6Pool")) {
        (None, None) if provided => (provided_block(region), "Amazon"),
        (None, None) => return Ok(None),
        (Some(block), Some(pool)) if !provided => (ipv6_block(block, "ipv6CidrBlock")?, pool),
        (Some(_), None) => return Err(ApiError::missing("ipv6Pool")),
        (None, Some(_)) => return Err(ApiError::missing("ipv6CidrBlock")),
        _ => {
            let message = "Only one of Ipv6CidrBlock and AmazonProvidedIpv6CidrBlock can be given";
            return Err(ApiError::combination(message));
        }
    };
    let sizes = 44..=60;
    if !sizes.contains(&block.prefix_len()) || block.prefix_len() % 4 != 0 {
        return Err(ApiError::new("InvalidVpc.Range", format!("The CIDR '{block}' is invalid.")));
    }
    let vpc = get(&region.vpcs, vpc_id)?;
    let blocks = &vpc.ipv6_cidr_block_association_set;
    if blocks.len() >= BLOCKS_MAX {
        return Err(too_many(vpc_id));
    }
    let overlaps = |old: Ipv6Net| old.contains(&block) || block.contains(&old);
    if blocks.iter().any(|of| overlaps(of.ipv6_cidr_block)) {
        let message = format!("The CIDR '{block}' conflicts with another CIDR of the VPC");
        return Err(ApiError::new("InvalidVpc.Conflict", message));
    }
    check_peers(region, vpc_id, IpNet::V6(block))?;
    let border_group = request.text("Ipv6CidrBlockNetworkBorderGroup").unwrap_or(&region.name);
    let association = Ipv6CidrAssociation {
        association_id: region.ids.id("vpc-cidr-assoc"),
        ipv6_cidr_block: block,
        ipv6_cidr_block_state: BlockState { state: "associated".to_owned() },
        network_border_group: Some(border_group.to_owned()),
        ipv6_pool: Some(pool.to_owned()),
    };
    let vpc = get_mut(&mut region.vpcs, vpc_id)?;
    vpc.ipv6_cidr_block_association_set.push(association.clone());
    add_local(region, vpc_id, &defaults::local_v6(block));
    Ok(Some(association))
}

/// Returns a block of /56 below 2600:1f00::/24, an allocation of AWS.
fn provided_block(region: &mut Region) -> Ipv6Net {
    let number = u128::from(region.ids.next_u64() & 0xffff_ffff);
    Ipv6Net::new_assert(((0x2600_1f00_u128 << 96) | (number << 72)).into(), 56)
}

/// Checks that a new block of a VPC has no addresses in common with VPCs that an active peering
/// connection joins with it.
fn check_peers(region: &Region, vpc_id: &str, block: IpNet) -> ApiResult<()> {
    for peering in region.peerings.iter().filter(|of| of.status.code == "active") {
        let [requester, accepter] = [&peering.requester_vpc_info, &peering.accepter_vpc_info];
        let peer = if requester.vpc_id == vpc_id {
            accepter
        } else if accepter.vpc_id == vpc_id {
            requester
        } else {
            continue;
        };
        let taken: Vec<IpNet> = match region.vpcs.get(&peer.vpc_id) {
            Some(vpc) => blocks(vpc).collect(),
            // A VPC of another region.
            None => peer.blocks().collect(),
        };
        if taken.iter().any(|of| of.contains(&block) || block.contains(of)) {
            let peering = &peering.vpc_peering_connection_id;
            let message = format!(
                "The CIDR '{block}' conflicts with a CIDR of the VPC {} of the peering connection \
                 {peering}",
                peer.vpc_id
            );
            return Err(ApiError::new("InvalidVpc.Conflict", message));
        }
    }
    Ok(())
}

/// All blocks of a VPC.
fn blocks(vpc: &Vpc) -> impl Iterator<Item = IpNet> {
    let v4 = vpc.cidr_block_association_set.iter().map(|of| IpNet::V4(of.cidr_block));
    v4.chain(vpc.ipv6_cidr_block_association_set.iter().map(|of| IpNet::V6(of.ipv6_cidr_block)))
}

fn too_many(vpc_id: &str) -> ApiError {
    let message =
        format!("This network {vpc_id} has met its maximum number of allowed CIDRs: {BLOCKS_MAX}");
    ApiError::limit("CidrLimitExceeded", message)
}

/// Adds a local route to all route tables of a VPC.
fn add_local(region: &mut Region, vpc_id: &str, route: &Route) {
    for table in region.route_tables.ids_where(|table| table.vpc_id == vpc_id) {
        if let Some(table) = region.route_tables.get_mut(&table) {
            let local = table.routes.iter().filter(|r| r.gateway_id.as_deref() == Some("local"));
            let at = local.count().min(table.routes.len());
            table.routes.insert(at, route.clone());
        }
    }
}

fn associate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let vpc_id = request.need("VpcId")?;
    let vpc = get(&region.vpcs, vpc_id)?;
    let vpc = vpc.clone();
    let has_v4 = request.has("CidrBlock");
    if let Some(added) = add_v6(region, vpc_id, request)? {
        if has_v4 {
            let message = "Only one of an IPv4 block and an IPv6 block can be given";
            return Err(ApiError::combination(message));
        }
        let mut shown = show(&added);
        shown["Ipv6CidrBlockState"]["State"] = "associating".into();
        return Ok(json!({"VpcId": vpc_id, "Ipv6CidrBlockAssociation": shown}));
    }
    let block = request.text("CidrBlock").ok_or_else(|| ApiError::missing("CidrBlock"))?;
    let block = ipv4_block(block, "cidrBlock")?;
    check_size(block)?;
    let blocks = &vpc.cidr_block_association_set;
    if blocks.len() >= BLOCKS_MAX {
        return Err(too_many(vpc_id));
    }
    if blocks.iter().any(|of| overlap(of.cidr_block, block)) {
        let message = format!("The CIDR '{block}' conflicts with another CIDR of the VPC");
        return Err(ApiError::new("InvalidVpc.Conflict", message));
    }
    check_peers(region, vpc_id, IpNet::V4(block))?;
    let association = CidrAssociation {
        association_id: region.ids.id("vpc-cidr-assoc"),
        cidr_block: block,
        cidr_block_state: BlockState { state: "associated".to_owned() },
    };
    get_mut(&mut region.vpcs, vpc_id)?.cidr_block_association_set.push(association.clone());
    add_local(region, vpc_id, &defaults::local_v4(block));
    let mut shown = show(&association);
    shown["CidrBlockState"]["State"] = "associating".into();
    Ok(json!({"VpcId": vpc_id, "CidrBlockAssociation": shown}))
}

fn disassociate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("AssociationId")?;
    let missing = || {
        let message = format!("The vpc CIDR block association ID '{id}' does not exist");
        ApiError::new("InvalidVpcCidrBlockAssociationID.NotFound", message)
    };
    let has = |vpc: &crate::state::Vpc| {
        vpc.cidr_block_association_set.iter().any(|of| of.association_id == id)
            || vpc.ipv6_cidr_block_association_set.iter().any(|of| of.association_id == id)
    };
    let vpc = region.vpcs.find(has).ok_or_else(missing)?.clone();
    let v4 = vpc.cidr_block_association_set.iter().find(|of| of.association_id == id);
    let v6 = vpc.ipv6_cidr_block_association_set.iter().find(|of| of.association_id == id);
    let in_use = |block: String| {
        Err(ApiError::new(
            "InvalidCidrBlock.InUse",
            format!("The vpc {} currently has a subnet within CIDR block {block}", vpc.vpc_id),
        ))
    };
    let mut subnets = region.subnets.iter().filter(|subnet| subnet.vpc_id == vpc.vpc_id);
    let shown = if let Some(of) = v4 {
        if of.cidr_block == vpc.cidr_block {
            let message = format!(
                "The vpc CIDR block with association ID {id} may not be disassociated. It is the \
                 primary IPv4 CIDR block of the VPC"
            );
            return Err(ApiError::new("OperationNotPermitted", message));
        }
        if subnets.any(|subnet| subnet.cidr_block.is_some_and(|b| of.cidr_block.contains(&b))) {
            return in_use(of.cidr_block.to_string());
        }
        let mut shown = show(of);
        shown["CidrBlockState"]["State"] = "disassociating".into();
        json!({"VpcId": vpc.vpc_id, "CidrBlockAssociation": shown})
    } else if let Some(of) = v6 {
        let inside = |subnet: &crate::state::Subnet| {
            let mut blocks = subnet.ipv6_cidr_block_association_set.iter();
            blocks.any(|b| of.ipv6_cidr_block.contains(&b.ipv6_cidr_block))
        };
        if subnets.any(inside) {
            return in_use(of.ipv6_cidr_block.to_string());
        }
        let mut shown = show(of);
        shown["Ipv6CidrBlockState"]["State"] = "disassociating".into();
        json!({"VpcId": vpc.vpc_id, "Ipv6CidrBlockAssociation": shown})
    } else {
        return Err(not_found("vpc", &vpc.vpc_id));
    };
    let (v4, v6) = (v4.map(|of| of.cidr_block), v6.map(|of| of.ipv6_cidr_block));
    for table in region.route_tables.ids_where(|table| table.vpc_id == vpc.vpc_id) {
        if let Some(table) = region.route_tables.get_mut(&table) {
            table.routes.retain(|route| {
                route.gateway_id.as_deref() != Some("local")
                    || (v4.is_none() || route.destination_cidr_block != v4)
                        && (v6.is_none() || route.destination_ipv6_cidr_block != v6)
            });
        }
    }
    let kept = get_mut(&mut region.vpcs, &vpc.vpc_id)?;
    kept.cidr_block_association_set.retain(|of| of.association_id != id);
    kept.ipv6_cidr_block_association_set.retain(|of| of.association_id != id);
    Ok(shown)
}
