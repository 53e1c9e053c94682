//! Carrier gateways. They have no effect on packets, because there is no network of a mobile
//! carrier.

use serde_json::{Value, json};

use super::list::Listing;
use super::source::Source;
use super::support::{get, new_tags, not_found, show};
use super::{Actions, Handler};
use crate::error::ApiResult;
use crate::state::{CarrierGateway, Region};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateCarrierGateway", Handler::Region(create)),
    ("DescribeCarrierGateways", Handler::Region(describe)),
    ("DeleteCarrierGateway", Handler::Region(delete)),
];

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "carrier-gateway")?;
    let vpc_id = get(&region.vpcs, request.need("VpcId")?)?.vpc_id.clone();
    let gateway = CarrierGateway {
        carrier_gateway_id: region.ids.id("cagw"),
        vpc_id,
        state: "available".to_owned(),
        owner_id: region.account.clone(),
        tags,
    };
    let shown = show(&gateway);
    region.carrier_gateways.insert(gateway);
    Ok(json!({"CarrierGateway": shown}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "CarrierGatewayIds",
        id: "CarrierGatewayId",
        not_found: |id| not_found("cagw", id),
        filters: &[
            ("carrier-gateway-id", "CarrierGatewayId"),
            ("owner-id", "OwnerId"),
            ("state", "State"),
            ("vpc-id", "VpcId"),
        ],
        result: "CarrierGateways",
    };
    listing.describe(request, &Source::new(&region.carrier_gateways))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("CarrierGatewayId")?;
    let gateway = region.carrier_gateways.remove(id).ok_or_else(|| not_found("cagw", id))?;
    region.blackhole_routes(|route| route.carrier_gateway_id.as_deref() == Some(id));
    let mut shown = show(&gateway);
    shown["State"] = "deleted".into();
    Ok(json!({"CarrierGateway": shown}))
}
