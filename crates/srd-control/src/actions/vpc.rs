//! Actions of the EC2 API on VPCs.

use serde_json::{Value, json};

use super::list::Listing;
use super::source::Source;
use super::support::{get, get_mut, ipv4_block, new_tags, not_found, show, success};
use super::{Actions, Handler, vpc_block};
use crate::defaults;
use crate::error::{ApiError, ApiResult};
use crate::state::{Region, Vpc};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateVpc", Handler::Region(create)),
    ("CreateDefaultVpc", Handler::Region(create_default)),
    ("DescribeVpcs", Handler::Region(describe)),
    ("DescribeVpcAttribute", Handler::Region(describe_attribute)),
    ("ModifyVpcAttribute", Handler::Region(modify_attribute)),
    ("ModifyVpcTenancy", Handler::Region(modify_tenancy)),
    ("DeleteVpc", Handler::Region(delete)),
];

const LISTING: Listing = Listing {
    ids: "VpcIds",
    id: "VpcId",
    not_found: |id| not_found("vpc", id),
    filters: &[
        ("cidr", "CidrBlock"),
        ("cidr-block", "CidrBlock"),
        ("cidrBlock", "CidrBlock"),
        ("cidr-block-association.association-id", "CidrBlockAssociationSet.AssociationId"),
        ("cidr-block-association.cidr-block", "CidrBlockAssociationSet.CidrBlock"),
        ("cidr-block-association.state", "CidrBlockAssociationSet.CidrBlockState.State"),
        ("dhcp-options-id", "DhcpOptionsId"),
        ("dhcpOptionsId", "DhcpOptionsId"),
        ("ipv6-cidr-block-association.association-id", "Ipv6CidrBlockAssociationSet.AssociationId"),
        (
            "ipv6-cidr-block-association.ipv6-cidr-block",
            "Ipv6CidrBlockAssociationSet.Ipv6CidrBlock",
        ),
        ("ipv6-cidr-block-association.ipv6-pool", "Ipv6CidrBlockAssociationSet.Ipv6Pool"),
        (
            "ipv6-cidr-block-association.state",
            "Ipv6CidrBlockAssociationSet.Ipv6CidrBlockState.State",
        ),
        ("instance-tenancy", "InstanceTenancy"),
        ("is-default", "IsDefault"),
        ("isDefault", "IsDefault"),
        ("owner-id", "OwnerId"),
        ("state", "State"),
        ("vpc-id", "VpcId"),
    ],
    result: "Vpcs",
};

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "vpc")?;
    if request.has("Ipv4IpamPoolId") || request.has("Ipv6IpamPoolId") {
        let message = "Pools of the IP Address Manager are not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    let block = request.text("CidrBlock").ok_or_else(|| {
        ApiError::new(
            "MissingParameter",
            "Either 'cidrBlock' or 'ipv4IpamPoolId' should be provided.",
        )
    })?;
    let block = ipv4_block(block, "cidrBlock")?;
    vpc_block::check_size(block)?;
    let tenancy = request.text("InstanceTenancy").unwrap_or("default");
    let id = defaults::vpc(region, block, tenancy, false);
    vpc_block::add_v6(region, &id, request)?;
    let vpc = get_mut(&mut region.vpcs, &id)?;
    vpc.tags = tags;
    let mut answer = show(vpc);
    answer["State"] = "pending".into();
    Ok(json!({"Vpc": answer}))
}

fn create_default(region: &mut Region, _: &Request) -> ApiResult<Value> {
    if region.vpcs.find(|vpc| vpc.is_default).is_some() {
        let message = "A Default VPC already exists for this account in this region.";
        return Err(ApiError::new("DefaultVpcAlreadyExists", message));
    }
    let id = defaults::default_vpc(region);
    Ok(json!({"Vpc": show(get(&region.vpcs, &id)?)}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    LISTING.describe(request, &Source::new(&region.vpcs))
}

fn describe_attribute(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let vpc = get(&region.vpcs, request.need("VpcId")?)?;
    let (name, value) = match request.need("Attribute")? {
        "enableDnsSupport" => ("EnableDnsSupport", vpc.enable_dns_support),
        "enableDnsHostnames" => ("EnableDnsHostnames", vpc.enable_dns_hostnames),
        _ => ("EnableNetworkAddressUsageMetrics", vpc.enable_network_address_usage_metrics),
    };
    Ok(json!({"VpcId": vpc.vpc_id, name: {"Value": value}}))
}

fn modify_attribute(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let vpc = get_mut(&mut region.vpcs, request.need("VpcId")?)?;
    let names = ["EnableDnsSupport", "EnableDnsHostnames", "EnableNetworkAddressUsageMetrics"];
    let given: Vec<&str> = names.into_iter().filter(|name| request.has(name)).collect();
    match given.as_slice() {
        [] => return Err(ApiError::missing("an attribute")),
        [name] => {
            let value = request.flag_value(name).ok_or_else(|| ApiError::missing("Value"))?;
            *attribute(vpc, name) = value;
        }
        _ => {
            let message = "Only one attribute can be changed with a request";
            return Err(ApiError::combination(message));
        }
    }
    success()
}

fn attribute<'a>(vpc: &'a mut Vpc, name: &str) -> &'a mut bool {
    match name {
        "EnableDnsSupport" => &mut vpc.enable_dns_support,
        "EnableDnsHostnames" => &mut vpc.enable_dns_hostnames,
        _ => &mut vpc.enable_network_address_usage_metrics,
    }
}

fn modify_tenancy(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let vpc = get_mut(&mut region.vpcs, request.need("VpcId")?)?;
    vpc.instance_tenancy = request.need("InstanceTenancy")?.to_owned();
    Ok(json!({"ReturnValue": true}))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("VpcId")?;
    get(&region.vpcs, id)?;
    let attached = |attachments: &[crate::state::interface::GatewayAttachment]| {
        attachments.iter().any(|attachment| attachment.vpc_id == id)
    };
    let peered =
        |side: &crate::state::network::PeeringVpc| side.vpc_id == id && side.region == region.name;
    let used = region.subnets.find(|subnet| subnet.vpc_id == id).is_some()
        || region.interfaces.find(|interface| interface.vpc_id == id).is_some()
        || region.internet_gateways.find(|gateway| attached(&gateway.attachments)).is_some()
        || region.egress_only_gateways.find(|gateway| attached(&gateway.attachments)).is_some()
        || region.endpoints.find(|of| of.vpc_id == id && of.state != "deleted").is_some()
        || region.carrier_gateways.find(|gateway| gateway.vpc_id == id).is_some()
        || region.vpn_gateways.find(|of| of.vpc() == Some(id)).is_some()
        || region.groups.find(|g| g.vpc_id == id && g.group_name != "default").is_some()
        || region.acls.find(|acl| acl.vpc_id == id && !acl.is_default).is_some()
        || region
            .peerings
            .find(|peering| {
                ["active", "pending-acceptance", "provisioning"].contains(&&*peering.status.code)
                    && (peered(&peering.requester_vpc_info) || peered(&peering.accepter_vpc_info))
            })
            .is_some()
        || region
            .route_tables
            .find(|table| table.vpc_id == id && !table.associations.iter().any(|a| a.main))
            .is_some();
    if used {
        let message = format!("The vpc '{id}' has dependencies and cannot be deleted.");
        return Err(ApiError::in_use(message));
    }
    for group in region.groups.ids_where(|group| group.vpc_id == id) {
        super::group::remove(region, &group);
    }
    for acl in region.acls.ids_where(|acl| acl.vpc_id == id) {
        region.acls.remove(&acl);
    }
    for table in region.route_tables.ids_where(|table| table.vpc_id == id) {
        region.route_tables.remove(&table);
    }
    region.vpcs.remove(id);
    success()
}
