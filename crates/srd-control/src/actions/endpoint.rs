//! VPC endpoints.
//!
//! A gateway endpoint is a route to the prefix list of a service in each of its route tables. An
//! interface endpoint has an interface in each of its subnets.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::endpoint_catalogue::{self as catalogue, Service};
use super::list::Listing;
use super::source::Source;
use super::support::{get, get_live, get_mut, new_tags, not_found, now, show, success, trim};
use super::{Actions, Handler, interface, managed};
use crate::error::{ApiError, ApiResult};
use crate::state::endpoint::{DnsEntry, DnsOptions};
use crate::state::network::Route;
use crate::state::{Region, Subnet, VpcEndpoint};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateVpcEndpoint", Handler::Region(create)),
    ("DescribeVpcEndpoints", Handler::Region(describe)),
    ("ModifyVpcEndpoint", Handler::Region(modify)),
    ("DeleteVpcEndpoints", Handler::Region(delete)),
];

/// Policy that allows each request.
const DEFAULT_POLICY: &str = "{\"Version\":\"2008-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\
    \"Principal\":\"*\",\"Action\":\"*\",\"Resource\":\"*\"}]}";
/// Largest number of interface endpoints of a VPC.
const INTERFACES_MAX: usize = 50;
/// Largest number of gateway endpoints of a region.
const GATEWAYS_MAX: usize = 20;

fn wrong(message: impl Into<String>) -> ApiError {
    ApiError::new("InvalidParameter", message)
}

/// Whether an endpoint leads to this service and is not deleted.
pub(super) fn uses(endpoint: &VpcEndpoint, service: &str) -> bool {
    endpoint.service_name == service && !["deleted", "rejected"].contains(&&*endpoint.state)
}

/// Returns the access policy in a request.
fn policy(request: &Request) -> ApiResult<Option<String>> {
    let Some(text) = request.text("PolicyDocument") else { return Ok(None) };
    if serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object()) {
        return Ok(Some(text.to_owned()));
    }
    let message = "The policy document is not a valid JSON policy document.";
    Err(ApiError::new("InvalidPolicyDocument", message))
}

/// Checks that lists of a request fit the type of the endpoint.
fn check_lists(request: &Request, kind: &str, prefix: &str) -> ApiResult<()> {
    for (name, kinds) in [
        ("RouteTableIds", &["Gateway"][..]),
        ("SubnetIds", &["Interface", "GatewayLoadBalancer"]),
        ("SecurityGroupIds", &["Interface"]),
    ] {
        if !request.texts(&format!("{prefix}{name}")).is_empty() && !kinds.contains(&kind) {
            let message = format!("{name} cannot be given for an endpoint of the type {kind}.");
            return Err(wrong(message));
        }
    }
    Ok(())
}

/// Checks that a further endpoint of this type exceeds neither [`GATEWAYS_MAX`] nor
/// [`INTERFACES_MAX`].
fn check_count(region: &Region, kind: &str, vpc: &str) -> ApiResult<()> {
    let lives = region.endpoints.iter().filter(|of| of.state != "deleted");
    let is_gateway = |of: &&VpcEndpoint| of.vpc_endpoint_type == "Gateway";
    let (gateways, others): (Vec<_>, Vec<_>) = lives.partition(is_gateway);
    let full = match kind {
        "Gateway" => gateways.len() >= GATEWAYS_MAX,
        _ => others.iter().filter(|of| of.vpc_id == vpc).count() >= INTERFACES_MAX,
    };
    if full {
        let message = "The maximum number of VPC endpoints has been reached.";
        return Err(ApiError::limit("VpcEndpointLimitExceeded", message));
    }
    Ok(())
}

/// Whether the public names of a service lead to a new endpoint. This needs DNS in the VPC.
fn private_dns(
    region: &Region,
    request: &Request,
    service: &Service,
    vpc: &str,
) -> ApiResult<bool> {
    let vpc = get(&region.vpcs, vpc)?;
    let possible = vpc.enable_dns_support && vpc.enable_dns_hostnames;
    let has_name = service.kind == "Interface" && service.private_name.is_some();
    match request.flag("PrivateDnsEnabled") {
        Some(true) if !has_name => Err(wrong(format!(
            "Private DNS can't be enabled because the service {} does not provide a private DNS \
             name.",
            service.name
        ))),
        Some(true) if !possible => Err(wrong(
            "Enabling private DNS requires both enableDnsSupport and enableDnsHostnames VPC \
             attributes set to true.",
        )),
        given => Ok(given.unwrap_or(true) && possible && has_name),
    }
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "vpc-endpoint")?;
    let kind = request.text("VpcEndpointType").unwrap_or("Gateway").to_owned();
    let vpc_id = get(&region.vpcs, request.need("VpcId")?)?.vpc_id.clone();
    let unserved = ["ServiceNetworkArn", "ResourceConfigurationArn", "SubnetConfigurations"];
    let is_served = ["Gateway", "Interface", "GatewayLoadBalancer"].contains(&kind.as_str());
    if !is_served || unserved.iter().any(|name| request.has(name)) {
        let message = "Endpoints of this kind are not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    if request.text("ServiceRegion").is_some_and(|name| name != region.name) {
        let message = "Services of other regions are not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    let service = catalogue::find(region, request.need("ServiceName")?, &kind)?;
    check_lists(request, &kind, "")?;
    check_count(region, &kind, &vpc_id)?;
    let policy = match kind.as_str() {
        "GatewayLoadBalancer" => None,
        _ => Some(policy(request)?.unwrap_or_else(|| DEFAULT_POLICY.to_owned())),
    };
    let family = request.text("IpAddressType").unwrap_or("ipv4").to_owned();
    let options = request.part("DnsOptions");
    let record = options.and_then(|of| of["DnsRecordIpType"].as_str());
    let inbound = options.and_then(|of| of["PrivateDnsOnlyForInboundResolverEndpoint"].as_bool());
    let mut endpoint = VpcEndpoint {
        vpc_endpoint_id: region.ids.id("vpce"),
        vpc_endpoint_type: kind.clone(),
        owner_id: region.account.clone(),
        service_name: service.name.clone(),
        service_region: region.name.clone(),
        state: if service.acceptance { "pendingAcceptance" } else { "available" }.to_owned(),
        policy_document: policy,
        route_table_ids: Vec::new(),
        subnet_ids: Vec::new(),
        groups: Vec::new(),
        dns_options: DnsOptions {
            dns_record_ip_type: record.unwrap_or(&family).to_owned(),
            private_dns_only_for_inbound_resolver_endpoint: inbound,
        },
        ip_address_type: family,
        private_dns_enabled: private_dns(region, request, &service, &vpc_id)?,
        vpc_id,
        requester_managed: false,
        network_interface_ids: Vec::new(),
        dns_entries: Vec::new(),
        creation_timestamp: now(region),
        tags,
    };
    if kind == "Interface" {
        let ids = request.texts("SecurityGroupIds");
        endpoint.groups = interface::groups(region, &endpoint.vpc_id, &ids)?;
    }
    add_tables(region, &mut endpoint, &request.texts("RouteTableIds"))?;
    add_subnets(region, &mut endpoint, &request.texts("SubnetIds"))?;
    endpoint.dns_entries = names(region, &endpoint, &service);
    let shown = show(&endpoint);
    region.endpoints.insert(endpoint);
    Ok(json!({"VpcEndpoint": shown, "ClientToken": request.text("ClientToken")}))
}

/// Returns the DNS names of an endpoint that has interfaces: one name for all zones, one name for
/// each zone, and the private name of the service if it is enabled.
fn names(region: &mut Region, endpoint: &VpcEndpoint, service: &Service) -> Vec<DnsEntry> {
    if endpoint.vpc_endpoint_type == "Gateway" {
        return Vec::new();
    }
    let old = endpoint.dns_entries.first();
    let (own, zone) = match old.and_then(|of| Some((of.dns_name.split('.').next()?, of))) {
        Some((label, of)) => (label.to_owned(), of.hosted_zone_id.clone()),
        None => {
            let label = format!("{}-{:08x}", endpoint.vpc_endpoint_id, region.ids.next_u64() >> 32);
            (label, format!("Z{:016X}", region.ids.next_u64()))
        }
    };
    let mut labels = vec![own.clone()];
    let subnets = endpoint.subnet_ids.iter().filter_map(|id| region.subnets.get(id));
    labels.extend(subnets.map(|subnet| format!("{own}-{}", subnet.availability_zone)));
    let entry = |dns_name: String| DnsEntry { dns_name, hosted_zone_id: zone.clone() };
    let all = labels.into_iter().map(|label| format!("{label}.{}", service.dns_base));
    let mut entries: Vec<DnsEntry> = all.map(entry).collect();
    let private = service.private_name.clone().filter(|_| endpoint.private_dns_enabled);
    entries.extend(private.map(entry));
    entries
}

/// Identifier of the prefix list of an endpoint's service.
fn list_of(region: &Region, endpoint: &VpcEndpoint) -> ApiResult<String> {
    let list = region.prefix_lists.find(|list| list.prefix_list_name == endpoint.service_name);
    let list = list.map(|list| list.prefix_list_id.clone());
    list.ok_or_else(|| ApiError::internal("the service has no prefix list"))
}

/// Adds route tables to a gateway endpoint. Tables that the endpoint already has are skipped.
fn add_tables(region: &mut Region, endpoint: &mut VpcEndpoint, ids: &[&str]) -> ApiResult<()> {
    for id in ids {
        if endpoint.route_table_ids.iter().any(|old| old == id) {
            continue;
        }
        let list = list_of(region, endpoint)?;
        let table = get(&region.route_tables, id)?;
        if table.vpc_id != endpoint.vpc_id {
            let message = format!("The route table '{id}' belongs to another VPC");
            return Err(ApiError::new("InvalidRouteTableId.NotFound", message));
        }
        if table.routes.iter().any(|r| r.destination_prefix_list_id.as_ref() == Some(&list)) {
            let message = format!(
                "route table {id} already has a route with destination-prefix-list-id {list}"
            );
            return Err(ApiError::new("RouteAlreadyExists", message));
        }
        let route = Route {
            destination_prefix_list_id: Some(list),
            gateway_id: Some(endpoint.vpc_endpoint_id.clone()),
            origin: "CreateRoute".to_owned(),
            state: "active".to_owned(),
            ..Route::default()
        };
        get_mut(&mut region.route_tables, id)?.routes.push(route);
        endpoint.route_table_ids.push((*id).to_owned());
    }
    Ok(())
}

/// Removes the routes to an endpoint from a table.
fn remove_table(region: &mut Region, endpoint: &str, table: &str) {
    if let Some(table) = region.route_tables.get_mut(table) {
        table.routes.retain(|route| route.gateway_id.as_deref() != Some(endpoint));
    }
}

/// Adds subnets to an endpoint, each in another zone. Subnets that the endpoint already has are
/// skipped.
fn add_subnets(region: &mut Region, endpoint: &mut VpcEndpoint, ids: &[&str]) -> ApiResult<()> {
    let zone = |id: &String| region.subnets.get(id).map(|subnet| subnet.availability_zone.clone());
    let mut zones: BTreeSet<String> = endpoint.subnet_ids.iter().filter_map(zone).collect();
    for id in ids {
        if endpoint.subnet_ids.iter().any(|old| old == id) {
            continue;
        }
        let subnet = get(&region.subnets, id)?.clone();
        if subnet.vpc_id != endpoint.vpc_id {
            let message = format!("The subnet '{id}' belongs to another VPC");
            return Err(ApiError::new("InvalidSubnetId.NotFound", message));
        }
        if !zones.insert(subnet.availability_zone.clone()) {
            let message = format!(
                "Found another VPC endpoint subnet in the availability zone of {id}. VPC endpoint \
                 subnets should be in different availability zones supported by the VPC endpoint \
                 service."
            );
            return Err(ApiError::new("DuplicateSubnetsInSameZone", message));
        }
        if endpoint.vpc_endpoint_type == "GatewayLoadBalancer" && !endpoint.subnet_ids.is_empty() {
            return Err(wrong("A Gateway Load Balancer endpoint has one subnet."));
        }
        add_subnet(region, endpoint, &subnet)?;
    }
    Ok(())
}

fn add_subnet(region: &mut Region, endpoint: &mut VpcEndpoint, subnet: &Subnet) -> ApiResult<()> {
    let interface_type = match endpoint.vpc_endpoint_type.as_str() {
        "Interface" => "vpc_endpoint",
        _ => "gateway_load_balancer_endpoint",
    };
    let kind = managed::Kind {
        interface_type,
        description: format!("VPC Endpoint Interface {}", endpoint.vpc_endpoint_id),
        requester: "amazon-vpce",
    };
    let own = managed::add(region, subnet, endpoint.groups.clone(), kind)?;
    endpoint.subnet_ids.push(subnet.subnet_id.clone());
    endpoint.network_interface_ids.push(own);
    Ok(())
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "VpcEndpointIds",
        id: "VpcEndpointId",
        not_found: |id| not_found("vpce", id),
        filters: &[
            ("ip-address-type", "IpAddressType"),
            ("service-name", "ServiceName"),
            ("service-region", "ServiceRegion"),
            ("vpc-endpoint-id", "VpcEndpointId"),
            ("vpc-endpoint-state", "State"),
            ("vpc-endpoint-type", "VpcEndpointType"),
            ("vpc-id", "VpcId"),
        ],
        result: "VpcEndpoints",
    };
    listing.describe(request, &Source::new(&region.endpoints))
}

/// Changes the groups of an endpoint and of its interfaces.
fn modify_groups(
    region: &mut Region,
    endpoint: &mut VpcEndpoint,
    request: &Request,
) -> ApiResult<()> {
    let (added, removed) =
        (request.texts("AddSecurityGroupIds"), request.texts("RemoveSecurityGroupIds"));
    if added.is_empty() && removed.is_empty() {
        return Ok(());
    }
    let old: Vec<String> = endpoint.groups.iter().map(|of| of.group_id.clone()).collect();
    let kept = old.iter().map(String::as_str).filter(|id| !removed.contains(id));
    let all: Vec<&str> = kept.chain(added.iter().copied()).collect();
    if all.is_empty() {
        return Err(wrong("An interface endpoint needs at least one security group."));
    }
    endpoint.groups = interface::groups(region, &endpoint.vpc_id, &all)?;
    for id in &endpoint.network_interface_ids {
        get_mut(&mut region.interfaces, id)?.groups.clone_from(&endpoint.groups);
    }
    Ok(())
}

fn modify(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("VpcEndpointId")?;
    let mut endpoint = get_live(&region.endpoints, id, |of| of.state != "deleted")?.clone();
    let kind = endpoint.vpc_endpoint_type.clone();
    if request.has("SubnetConfigurations") {
        let message = "The parameter SubnetConfigurations is not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    check_lists(request, &kind, "Add")?;
    check_lists(request, &kind, "Remove")?;
    if request.has("PolicyDocument") || request.flag("ResetPolicy") == Some(true) {
        if kind == "GatewayLoadBalancer" {
            return Err(wrong("A Gateway Load Balancer endpoint has no policy."));
        }
        let new = policy(request)?.unwrap_or_else(|| DEFAULT_POLICY.to_owned());
        endpoint.policy_document = Some(new);
    }
    for table in request.texts("RemoveRouteTableIds") {
        endpoint.route_table_ids.retain(|old| old != table);
        remove_table(region, id, table);
    }
    add_tables(region, &mut endpoint, &request.texts("AddRouteTableIds"))?;
    modify_groups(region, &mut endpoint, request)?;
    for subnet in request.texts("RemoveSubnetIds") {
        if let Some(at) = endpoint.subnet_ids.iter().position(|old| old == subnet) {
            endpoint.subnet_ids.remove(at);
            interface::remove(region, &endpoint.network_interface_ids.remove(at));
        }
    }
    add_subnets(region, &mut endpoint, &request.texts("AddSubnetIds"))?;
    if let Some(family) = request.text("IpAddressType") {
        family.clone_into(&mut endpoint.ip_address_type);
    }
    if let Some(options) = request.part("DnsOptions") {
        if let Some(record) = options["DnsRecordIpType"].as_str() {
            record.clone_into(&mut endpoint.dns_options.dns_record_ip_type);
        }
        if let Some(inbound) = options["PrivateDnsOnlyForInboundResolverEndpoint"].as_bool() {
            endpoint.dns_options.private_dns_only_for_inbound_resolver_endpoint = Some(inbound);
        }
    }
    let service = catalogue::find(region, &endpoint.service_name, &kind)?;
    if request.has("PrivateDnsEnabled") {
        endpoint.private_dns_enabled = private_dns(region, request, &service, &endpoint.vpc_id)?;
    }
    endpoint.dns_entries = names(region, &endpoint, &service);
    region.endpoints.insert(endpoint);
    success()
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut unsuccessful = Vec::new();
    for id in request.texts("VpcEndpointIds") {
        let endpoint = region.endpoints.get(id).filter(|of| of.state != "deleted").cloned();
        let Some(mut endpoint) = endpoint else {
            let error = not_found("vpce", id);
            let error = json!({"Code": error.code, "Message": error.message});
            unsuccessful.push(json!({"ResourceId": id, "Error": error}));
            continue;
        };
        for table in std::mem::take(&mut endpoint.route_table_ids) {
            remove_table(region, id, &table);
        }
        for own in std::mem::take(&mut endpoint.network_interface_ids) {
            interface::remove(region, &own);
        }
        region.blackhole_routes(|route| route.gateway_id.as_deref() == Some(id));
        endpoint.subnet_ids.clear();
        endpoint.dns_entries.clear();
        "deleted".clone_into(&mut endpoint.state);
        region.endpoints.insert(endpoint);
    }
    trim(&mut region.endpoints, |of| of.state == "deleted");
    Ok(json!({"Unsuccessful": unsuccessful}))
}
