//! Customer gateways: the far ends of VPN connections.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::list::Listing;
use super::source::Source;
use super::support::{get_live, get_mut, new_tags, not_found, show, success, trim};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::{CustomerGateway, Region};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateCustomerGateway", Handler::Region(create)),
    ("DescribeCustomerGateways", Handler::Region(describe)),
    ("DeleteCustomerGateway", Handler::Region(delete)),
];

/// Number of the autonomous system of a gateway if the request contains no number.
const DEFAULT_ASN: i64 = 65_000;

/// Returns the address of the gateway in a request. The result is `None` if the request contains a
/// certificate instead of an address.
fn address(request: &Request) -> ApiResult<Option<String>> {
    let given = match (request.text("IpAddress"), request.text("PublicIp")) {
        (Some(a), Some(b)) if a != b => {
            let message = "Only one of IpAddress and PublicIp can be given";
            return Err(ApiError::combination(message));
        }
        (a, b) => a.or(b),
    };
    let Some(text) = given else {
        if request.has("CertificateArn") {
            return Ok(None);
        }
        return Err(ApiError::missing("IpAddress"));
    };
    match text.parse::<IpAddr>() {
        Ok(ip) if !ip.is_unspecified() && !ip.is_multicast() => Ok(Some(ip.to_string())),
        _ => Err(ApiError::invalid(format!("Value ({text}) for parameter ipAddress is invalid."))),
    }
}

/// Returns the number of the autonomous system in a request, as `BgpAsn` if it is below 2^31, and
/// as `BgpAsnExtended` otherwise. The other value is `None`.
fn asn(request: &Request) -> ApiResult<(Option<String>, Option<String>)> {
    let wrong = |name: &str, asn: i64| {
        ApiError::invalid(format!("Value ({asn}) for parameter {name} is invalid."))
    };
    match (request.number("BgpAsn"), request.number("BgpAsnExtended")) {
        (Some(_), Some(_)) => {
            let message = "Only one of BgpAsn and BgpAsnExtended can be given";
            Err(ApiError::combination(message))
        }
        (None, Some(asn)) if (2_147_483_648..=4_294_967_295).contains(&asn) => {
            Ok((None, Some(asn.to_string())))
        }
        (None, Some(asn)) => Err(wrong("bgpAsnExtended", asn)),
        (short, None) => match short.unwrap_or(DEFAULT_ASN) {
            asn @ 1..=2_147_483_647 => Ok((Some(asn.to_string()), None)),
            asn => Err(wrong("bgpAsn", asn)),
        },
    }
}

/// Creates a gateway, or returns an available gateway with the same type, address and autonomous
/// system.
fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "customer-gateway")?;
    let kind = request.need("Type")?;
    let ip_address = address(request)?;
    let (bgp_asn, bgp_asn_extended) = asn(request)?;
    let certificate_arn = request.text("CertificateArn").map(str::to_owned);
    let same = |old: &CustomerGateway| {
        old.state == "available"
            && old.r#type == kind
            && old.ip_address == ip_address
            && old.bgp_asn == bgp_asn
            && old.bgp_asn_extended == bgp_asn_extended
            && old.certificate_arn == certificate_arn
    };
    if let Some(old) = region.customer_gateways.find(same) {
        return Ok(json!({"CustomerGateway": show(old)}));
    }
    let gateway = CustomerGateway {
        customer_gateway_id: region.ids.id("cgw"),
        state: "available".to_owned(),
        r#type: kind.to_owned(),
        ip_address,
        bgp_asn,
        bgp_asn_extended,
        device_name: request.text("DeviceName").map(str::to_owned),
        certificate_arn,
        tags,
    };
    let shown = show(&gateway);
    region.customer_gateways.insert(gateway);
    Ok(json!({"CustomerGateway": shown}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "CustomerGatewayIds",
        id: "CustomerGatewayId",
        not_found: |id| not_found("cgw", id),
        filters: &[
            ("bgp-asn", "BgpAsn"),
            ("customer-gateway-id", "CustomerGatewayId"),
            ("ip-address", "IpAddress"),
            ("state", "State"),
            ("type", "Type"),
        ],
        result: "CustomerGateways",
    };
    listing.describe(request, &Source::new(&region.customer_gateways))
}

/// Returns a gateway that is not deleted.
pub(super) fn find<'a>(region: &'a Region, id: &str) -> ApiResult<&'a CustomerGateway> {
    get_live(&region.customer_gateways, id, |gateway| gateway.state == "available")
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("CustomerGatewayId")?;
    find(region, id)?;
    let uses =
        |of: &crate::state::VpnConnection| of.state == "available" && of.customer_gateway_id == id;
    if region.vpn_connections.find(uses).is_some() {
        let message = "The customer gateway is in use.";
        return Err(ApiError::new("IncorrectState", message));
    }
    "deleted".clone_into(&mut get_mut(&mut region.customer_gateways, id)?.state);
    trim(&mut region.customer_gateways, |gateway| gateway.state == "deleted");
    success()
}
