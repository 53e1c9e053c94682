//! Services to which endpoints lead: those of the provider, and endpoint services of the account.
//!
//! The provider's services exist by name only: no program answers behind their endpoints.

use serde_json::{Value, json};

use super::list::Listing;
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::regions;
use crate::state::{EndpointService, Region, Tag};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[("DescribeVpcEndpointServices", Handler::Region(describe))];

/// Services with gateway endpoints. The names of their prefix lists end with these names.
const GATEWAYS: [&str; 2] = ["s3", "dynamodb"];
/// Services with interface endpoints.
const INTERFACES: [&str; 24] = [
    "autoscaling",
    "cloudformation",
    "dynamodb",
    "ec2",
    "ec2messages",
    "ecr.api",
    "ecr.dkr",
    "ecs",
    "elasticloadbalancing",
    "events",
    "execute-api",
    "kinesis-streams",
    "kms",
    "lambda",
    "logs",
    "monitoring",
    "s3",
    "secretsmanager",
    "sns",
    "sqs",
    "ssm",
    "ssmmessages",
    "states",
    "sts",
];

/// A service, as the owner of an endpoint sees it.
pub(super) struct Service {
    /// Name of the service, for example `com.amazonaws.us-east-1.s3`.
    pub(super) name: String,
    /// Identifier; absent for services of the provider.
    pub(super) id: Option<String>,
    /// `Gateway`, `Interface` or `GatewayLoadBalancer`.
    pub(super) kind: &'static str,
    /// Account that owns the service, or `amazon`.
    pub(super) owner: String,
    /// Names of the zones in which the service has endpoints.
    pub(super) zones: Vec<String>,
    /// Ending of the DNS names of endpoints of the service.
    pub(super) dns_base: String,
    /// Private DNS name of the service, if it has one.
    pub(super) private_name: Option<String>,
    /// Whether each endpoint has to be accepted.
    pub(super) acceptance: bool,
    /// Tags of the service.
    tags: Vec<Tag>,
}

fn of_provider(region: &Region, name: &str, kind: &'static str) -> Service {
    let at = &region.name;
    let domain = regions::domain(at);
    let is_gateway = kind == "Gateway";
    Service {
        name: format!("com.amazonaws.{at}.{name}"),
        id: None,
        kind,
        owner: "amazon".to_owned(),
        zones: regions::zones(at).into_iter().map(|(zone, _)| zone).collect(),
        dns_base: match is_gateway {
            true => format!("{name}.{at}.{domain}"),
            false => format!("{name}.{at}.vpce.{domain}"),
        },
        private_name: (!is_gateway).then(|| format!("{name}.{at}.{domain}")),
        acceptance: false,
        tags: Vec::new(),
    }
}

fn of_account(service: &EndpointService) -> Service {
    let is_interface = service.service_type.iter().any(|of| of.service_type == "Interface");
    let verified = service.private_dns_name_configuration.state.as_deref() == Some("verified");
    Service {
        name: service.service_name.clone(),
        id: Some(service.service_id.clone()),
        kind: if is_interface { "Interface" } else { "GatewayLoadBalancer" },
        owner: service.owner_id.clone(),
        zones: service.availability_zones.clone(),
        dns_base: service.base_endpoint_dns_names.first().cloned().unwrap_or_default(),
        private_name: service.private_dns_name.clone().filter(|_| verified),
        acceptance: service.acceptance_required,
        tags: service.tags.clone(),
    }
}

/// All services of a region.
fn all(region: &Region) -> Vec<Service> {
    let gateways = GATEWAYS.iter().map(|name| of_provider(region, name, "Gateway"));
    let interfaces = INTERFACES.iter().map(|name| of_provider(region, name, "Interface"));
    let own = region.endpoint_services.iter().map(of_account);
    gateways.chain(interfaces).chain(own).collect()
}

/// Returns the service with this name that has endpoints of this kind.
pub(super) fn find(region: &Region, name: &str, kind: &str) -> ApiResult<Service> {
    let services: Vec<Service> = all(region).into_iter().filter(|of| of.name == name).collect();
    if services.is_empty() {
        let message = format!("The Vpc Endpoint Service '{name}' does not exist");
        return Err(ApiError::new("InvalidServiceName", message));
    }
    services.into_iter().find(|of| of.kind == kind).ok_or_else(|| {
        let message = format!("The Vpc Endpoint Service '{name}' has no endpoints of type {kind}");
        ApiError::new("InvalidParameter", message)
    })
}

fn view(region: &Region, service: &Service) -> Value {
    let is_own = service.id.is_some();
    let ids = regions::zones(&region.name);
    let ids = ids.into_iter().filter(|(zone, _)| service.zones.contains(zone)).map(|(_, id)| id);
    let mut shown = json!({
        "ServiceName": service.name,
        "ServiceId": service.id,
        "ServiceType": [{"ServiceType": service.kind}],
        "ServiceRegion": region.name,
        "AvailabilityZones": service.zones,
        "AvailabilityZoneIds": ids.collect::<Vec<_>>(),
        "Owner": service.owner,
        "BaseEndpointDnsNames": [service.dns_base],
        "VpcEndpointPolicySupported": !is_own,
        "AcceptanceRequired": service.acceptance,
        "ManagesVpcEndpoints": false,
        "SupportedIpAddressTypes": ["ipv4"],
        "Tags": service.tags,
    });
    if let Some(name) = &service.private_name {
        shown["PrivateDnsName"] = name.clone().into();
        shown["PrivateDnsNames"] = json!([{"PrivateDnsName": name}]);
        shown["PrivateDnsNameVerificationState"] = "verified".into();
    }
    shown
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let regions = request.texts("ServiceRegions");
    let is_here = regions.is_empty() || regions.contains(&region.name.as_str());
    let services = all(region).into_iter().filter(|_| is_here);
    let listing = Listing {
        ids: "ServiceNames",
        id: "ServiceName",
        not_found: |name| {
            let message = format!("The Vpc Endpoint Service '{name}' does not exist");
            ApiError::new("InvalidServiceName", message)
        },
        filters: &[
            ("owner", "Owner"),
            ("service-name", "ServiceName"),
            ("service-region", "ServiceRegion"),
            ("service-type", "ServiceType.ServiceType"),
            ("supported-ip-address-types", "SupportedIpAddressTypes"),
        ],
        result: "ServiceDetails",
    };
    let shown = services.map(|service| view(region, &service)).collect();
    let mut answer = listing.answer(request, shown)?;
    let details = answer["ServiceDetails"].as_array().into_iter().flatten();
    let mut names: Vec<Value> = details.map(|of| of["ServiceName"].clone()).collect();
    names.dedup();
    answer["ServiceNames"] = names.into();
    Ok(answer)
}
