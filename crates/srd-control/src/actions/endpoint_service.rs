//! Endpoint services of the account: configurations, permissions and connections.

use serde_json::{Value, json};

use super::list::{self, Filters, Listing};
use super::source::Source;
use super::support::{get, get_mut, new_tags, not_found, region_of, show};
use super::{Actions, Handler, endpoint};
use crate::error::{ApiError, ApiResult};
use crate::regions;
use crate::state::endpoint::{AllowedPrincipal, PrivateDnsProof, ServiceType, SupportedRegion};
use crate::state::{Cloud, EndpointService, Region};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateVpcEndpointServiceConfiguration", Handler::Cloud(create)),
    ("ModifyVpcEndpointServiceConfiguration", Handler::Cloud(modify)),
    ("DescribeVpcEndpointServiceConfigurations", Handler::Region(describe)),
    ("DeleteVpcEndpointServiceConfigurations", Handler::Region(delete)),
    ("ModifyVpcEndpointServicePermissions", Handler::Region(modify_permissions)),
    ("DescribeVpcEndpointServicePermissions", Handler::Region(describe_permissions)),
    ("DescribeVpcEndpointConnections", Handler::Region(describe_connections)),
    ("AcceptVpcEndpointConnections", Handler::Region(|r, q| answer(r, q, "available"))),
    ("RejectVpcEndpointConnections", Handler::Region(|r, q| answer(r, q, "rejected"))),
];

/// Largest number of load balancers of a service; also the largest number of its regions, and of
/// its principals.
const PARTS_MAX: usize = 50;
/// Parameters with load balancers, and the types of service that have them.
const BALANCERS: [(&str, &str); 2] =
    [("NetworkLoadBalancerArns", "Interface"), ("GatewayLoadBalancerArns", "GatewayLoadBalancer")];

/// Account and region that identify a state.
type Key = (String, String);

fn wrong(message: impl Into<String>) -> ApiError {
    ApiError::new("InvalidParameter", message)
}

/// Adds and removes values of a list.
fn change(list: &mut Vec<String>, added: &[&str], removed: &[&str], noun: &str) -> ApiResult<()> {
    list.retain(|old| !removed.contains(&old.as_str()));
    for new in added {
        if !list.iter().any(|old| old == new) {
            list.push((*new).to_owned());
        }
    }
    if list.len() > PARTS_MAX {
        return Err(wrong(format!("A service has at most {PARTS_MAX} {noun}")));
    }
    Ok(())
}

/// Returns the zones of load balancers, which must be of the type of the service.
fn zones(cloud: &Cloud, balancers: &[String], kind: &str) -> ApiResult<Vec<String>> {
    let mut zones: Vec<String> = Vec::new();
    for arn in balancers {
        let of = cloud
            .load_balancers
            .get(arn)
            .ok_or_else(|| wrong(format!("The load balancer '{arn}' does not exist")))?;
        let expected = if kind == "Interface" { "network" } else { "gateway" };
        if of.kind != expected {
            let message = format!("The load balancer '{arn}' is not of the type {expected}");
            return Err(wrong(message));
        }
        let new: Vec<&String> = of.zones.iter().filter(|zone| !zones.contains(zone)).collect();
        zones.extend(new.into_iter().cloned().collect::<Vec<_>>());
    }
    Ok(zones)
}

fn check_regions(names: &[&str]) -> ApiResult<()> {
    match names.iter().find(|name| !regions::exists(name)) {
        Some(name) => Err(wrong(format!("The region '{name}' does not exist"))),
        None => Ok(()),
    }
}

fn supported(region: &str) -> SupportedRegion {
    SupportedRegion { region: region.to_owned(), service_state: "Available".to_owned() }
}

/// Sets the private name of a service, which waits for a proof that the account owns the name. The
/// proof would be in the public DNS, which does not exist here, so the name keeps waiting.
fn set_private_name(
    region: &mut Region,
    service: &mut EndpointService,
    name: &str,
) -> ApiResult<()> {
    if service.service_type.iter().any(|of| of.service_type != "Interface") {
        let message = "Private DNS names need a service of the type Interface";
        return Err(wrong(message));
    }
    service.private_dns_name = Some(name.to_owned());
    service.private_dns_name_configuration = PrivateDnsProof {
        state: Some("pendingVerification".to_owned()),
        r#type: Some("TXT".to_owned()),
        value: Some(format!("vpce:{:016x}", region.ids.next_u64())),
        name: Some(format!("_{:013x}", region.ids.next_u64() >> 12)),
    };
    Ok(())
}

fn create(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "vpc-endpoint-service")?;
    let given: Vec<_> =
        BALANCERS.into_iter().filter(|(name, _)| !request.texts(name).is_empty()).collect();
    let [(name, kind)] = given[..] else {
        let message = "exactly one of network_load_balancer_arn or gateway_load_balancer_arn is a \
                       required member";
        return Err(wrong(message));
    };
    let mut balancers = Vec::new();
    change(&mut balancers, &request.texts(name), &[], "load balancers")?;
    let availability_zones = zones(cloud, &balancers, kind)?;
    let families = match request.texts("SupportedIpAddressTypes") {
        none if none.is_empty() => vec!["ipv4".to_owned()],
        given => families(&given)?,
    };
    let further = request.texts("SupportedRegions");
    check_regions(&further)?;
    let region = region_of(cloud, at)?;
    let id = region.ids.id("vpce-svc");
    let domain = regions::domain(&at.1);
    let is_interface = kind == "Interface";
    let mut service = EndpointService {
        service_name: format!("com.amazonaws.vpce.{}.{id}", at.1),
        service_type: vec![ServiceType { service_type: kind.to_owned() }],
        owner_id: region.account.clone(),
        service_state: "Available".to_owned(),
        availability_zones,
        acceptance_required: request.flag("AcceptanceRequired").unwrap_or(true),
        manages_vpc_endpoints: false,
        network_load_balancer_arns: is_interface.then(|| balancers.clone()),
        gateway_load_balancer_arns: (!is_interface).then_some(balancers),
        supported_ip_address_types: families,
        base_endpoint_dns_names: vec![format!("{id}.{}.vpce.{domain}", at.1)],
        service_id: id,
        private_dns_name: None,
        private_dns_name_configuration: PrivateDnsProof::default(),
        supported_regions: further.into_iter().map(supported).collect(),
        allowed_principals: Vec::new(),
        tags,
    };
    if let Some(name) = request.text("PrivateDnsName") {
        set_private_name(region, &mut service, name)?;
    }
    let shown = show(&service);
    region.endpoint_services.insert(service);
    Ok(json!({"ServiceConfiguration": shown, "ClientToken": request.text("ClientToken")}))
}

fn families(given: &[&str]) -> ApiResult<Vec<String>> {
    match given.iter().find(|name| !["ipv4", "ipv6"].contains(name)) {
        Some(name) => Err(wrong(format!("'{name}' is no type of IP address"))),
        None => Ok(given.iter().map(|name| (*name).to_owned()).collect()),
    }
}

fn modify(cloud: &mut Cloud, at: &Key, request: &Request) -> ApiResult<Value> {
    let region = region_of(cloud, at)?;
    let mut service = get(&region.endpoint_services, request.need("ServiceId")?)?.clone();
    let kind = service.service_type.first().map(|of| of.service_type.clone());
    let kind = kind.unwrap_or_default();
    for (name, of) in BALANCERS {
        let added = request.texts(&format!("Add{name}"));
        if of == kind {
            let list = match of {
                "Interface" => &mut service.network_load_balancer_arns,
                _ => &mut service.gateway_load_balancer_arns,
            };
            let list = list.get_or_insert_default();
            change(list, &added, &request.texts(&format!("Remove{name}")), "load balancers")?;
            if list.is_empty() {
                return Err(wrong("A service needs at least one load balancer"));
            }
            service.availability_zones = zones(cloud, list, &kind)?;
        } else if !added.is_empty() {
            return Err(wrong(format!("A service of the type {kind} has no {name}")));
        }
    }
    let removed = request.texts("RemoveSupportedIpAddressTypes");
    let added = request.texts("AddSupportedIpAddressTypes");
    families(&added)?;
    change(&mut service.supported_ip_address_types, &added, &removed, "types")?;
    let (added, removed) =
        (request.texts("AddSupportedRegions"), request.texts("RemoveSupportedRegions"));
    check_regions(&added)?;
    let mut names: Vec<String> =
        service.supported_regions.iter().map(|of| of.region.clone()).collect();
    change(&mut names, &added, &removed, "regions")?;
    service.supported_regions = names.iter().map(|name| supported(name)).collect();
    if let Some(required) = request.flag("AcceptanceRequired") {
        service.acceptance_required = required;
    }
    let region = region_of(cloud, at)?;
    if request.flag("RemovePrivateDnsName") == Some(true) {
        service.private_dns_name = None;
        service.private_dns_name_configuration = PrivateDnsProof::default();
    } else if let Some(name) = request.text("PrivateDnsName") {
        set_private_name(region, &mut service, name)?;
    }
    region.endpoint_services.insert(service);
    super::support::success()
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "ServiceIds",
        id: "ServiceId",
        not_found: |id| not_found("vpce-svc", id),
        filters: &[
            ("service-id", "ServiceId"),
            ("service-name", "ServiceName"),
            ("service-state", "ServiceState"),
            ("supported-ip-address-types", "SupportedIpAddressTypes"),
        ],
        result: "ServiceConfigurations",
    };
    listing.describe(request, &Source::new(&region.endpoint_services))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut unsuccessful = Vec::new();
    for id in request.texts("ServiceIds") {
        let failed = |code: &str, message: String| {
            let error = json!({"Code": code, "Message": message});
            json!({"ResourceId": id, "Error": error})
        };
        let Some(service) = region.endpoint_services.get(id) else {
            let message = not_found("vpce-svc", id).message;
            unsuccessful.push(failed("InvalidVpcEndpointService.NotFound", message));
            continue;
        };
        if region.endpoints.find(|of| endpoint::uses(of, &service.service_name)).is_some() {
            let message = format!("The service '{id}' has endpoint connections");
            unsuccessful.push(failed("ExistingVpcEndpointConnections", message));
            continue;
        }
        region.endpoint_services.remove(id);
    }
    Ok(json!({"Unsuccessful": unsuccessful}))
}

/// Type of a principal by its name.
fn principal_type(name: &str) -> Option<String> {
    let kind = match name {
        "*" => "All",
        name if name.ends_with(":root") => "Account",
        name if name.contains(":role/") => "Role",
        name if name.contains(":user/") => "User",
        name if name.ends_with(".amazonaws.com") => "Service",
        _ => return None,
    };
    Some(kind.to_owned())
}

fn modify_permissions(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("ServiceId")?;
    let mut service = get(&region.endpoint_services, id)?.clone();
    if request.text("PermissionType").is_some_and(|kind| kind != "vpc-endpoint") {
        let message = "Permissions of this type are not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    let removed = request.texts("RemoveAllowedPrincipals");
    service.allowed_principals.retain(|old| !removed.contains(&old.principal.as_str()));
    let mut added = Vec::new();
    for name in request.texts("AddAllowedPrincipals") {
        if service.allowed_principals.iter().any(|old| old.principal == name) {
            continue;
        }
        let principal = AllowedPrincipal {
            principal: name.to_owned(),
            principal_type: principal_type(name),
            service_permission_id: region.ids.id("vpce-svc-perm"),
        };
        let mut shown = show(&principal);
        shown["ServiceId"] = id.into();
        added.push(shown);
        service.allowed_principals.push(principal);
    }
    if service.allowed_principals.len() > PARTS_MAX {
        return Err(wrong(format!("A service has at most {PARTS_MAX} principals")));
    }
    region.endpoint_services.insert(service);
    Ok(json!({"AddedPrincipals": added, "ReturnValue": true}))
}

fn describe_permissions(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let service = get(&region.endpoint_services, request.need("ServiceId")?)?;
    let shown = service.allowed_principals.iter().map(|of| {
        let mut shown = show(of);
        shown["ServiceId"] = service.service_id.clone().into();
        shown["PermissionType"] = "vpc-endpoint".into();
        shown
    });
    let filters: Filters = &[
        ("permission-type", "PermissionType"),
        ("principal", "Principal"),
        ("principal-type", "PrincipalType"),
    ];
    let shown = list::filter(request, filters, shown.collect())?;
    list::page(request, "AllowedPrincipals", "Principal", shown)
}

fn describe_connections(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut shown = Vec::new();
    for service in region.endpoint_services.iter() {
        let name = &service.service_name;
        for of in region.endpoints.iter().filter(|of| of.service_name == *name) {
            shown.push(json!({
                "ServiceId": service.service_id,
                "VpcEndpointId": of.vpc_endpoint_id,
                "VpcEndpointOwner": of.owner_id,
                "VpcEndpointState": of.state,
                "CreationTimestamp": of.creation_timestamp,
                "DnsEntries": of.dns_entries,
                "IpAddressType": of.ip_address_type,
                "VpcEndpointRegion": region.name,
            }));
        }
    }
    let filters: Filters = &[
        ("ip-address-type", "IpAddressType"),
        ("service-id", "ServiceId"),
        ("vpc-endpoint-id", "VpcEndpointId"),
        ("vpc-endpoint-owner", "VpcEndpointOwner"),
        ("vpc-endpoint-region", "VpcEndpointRegion"),
        ("vpc-endpoint-state", "VpcEndpointState"),
    ];
    let shown = list::filter(request, filters, shown)?;
    list::page(request, "VpcEndpointConnections", "VpcEndpointId", shown)
}

/// Accepts or rejects endpoints of a service.
fn answer(region: &mut Region, request: &Request, state: &str) -> ApiResult<Value> {
    let service = get(&region.endpoint_services, request.need("ServiceId")?)?;
    let name = service.service_name.clone();
    let mut unsuccessful = Vec::new();
    for id in request.texts("VpcEndpointIds") {
        let waits = region.endpoints.get(id).is_some_and(|of| {
            endpoint::uses(of, &name)
                && (of.state == "pendingAcceptance"
                    || state == "rejected" && of.state == "available")
        });
        if waits {
            state.clone_into(&mut get_mut(&mut region.endpoints, id)?.state);
        } else {
            let message = format!("The endpoint '{id}' is not in a state for this request");
            let error = json!({"Code": "InvalidState", "Message": message});
            unsuccessful.push(json!({"ResourceId": id, "Error": error}));
        }
    }
    Ok(json!({"Unsuccessful": unsuccessful}))
}
