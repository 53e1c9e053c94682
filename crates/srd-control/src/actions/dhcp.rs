//! Actions of the EC2 API on sets of DHCP options.

use serde_json::{Value, json};

use super::list::Listing;
use super::source::Source;
use super::support::{get, get_mut, ipv4, new_tags, not_found, show, success};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::network::{AttributeValue, DhcpConfiguration};
use crate::state::{DhcpOptions, Region};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateDhcpOptions", Handler::Region(create)),
    ("DescribeDhcpOptions", Handler::Region(describe)),
    ("AssociateDhcpOptions", Handler::Region(associate)),
    ("DeleteDhcpOptions", Handler::Region(delete)),
];

/// Largest number of servers of an option.
const SERVERS_MAX: usize = 4;

/// Checks an option, and returns it.
fn option(key: &str, values: Vec<&str>) -> ApiResult<DhcpConfiguration> {
    let wrong =
        |value: &str| ApiError::invalid(format!("Value ({value}) for parameter value is invalid."));
    match key {
        "domain-name" => {}
        "domain-name-servers" | "ntp-servers" | "netbios-name-servers" => {
            if values.len() > SERVERS_MAX {
                return Err(wrong(&values.join(", ")));
            }
            for value in &values {
                let is_v6 = value.parse::<std::net::Ipv6Addr>().is_ok();
                if *value != "AmazonProvidedDNS" && !is_v6 && ipv4(value).is_err() {
                    return Err(wrong(value));
                }
            }
        }
        "netbios-node-type" => {
            if values.len() != 1 || !["1", "2", "4", "8"].contains(&values[0]) {
                return Err(wrong(&values.join(", ")));
            }
        }
        "ipv6-address-preferred-lease-time" => {
            let seconds = values.first().and_then(|value| value.parse::<u32>().ok());
            if values.len() != 1 || !seconds.is_some_and(|s| (140..=2_147_483_647).contains(&s)) {
                return Err(wrong(&values.join(", ")));
            }
        }
        _ => {
            let message =
                format!("Value ({key}) for parameter name is invalid. Unknown DHCP option");
            return Err(ApiError::invalid(message));
        }
    }
    let values = values.into_iter().map(|value| AttributeValue { value: value.to_owned() });
    Ok(DhcpConfiguration { key: key.to_owned(), values: values.collect() })
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "dhcp-options")?;
    let mut options: Vec<DhcpConfiguration> = Vec::new();
    for of in request.list("DhcpConfigurations") {
        let key = of["Key"].as_str().ok_or_else(|| ApiError::missing("DhcpConfiguration.Key"))?;
        let values = of["Values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if options.iter().any(|old| old.key == key) {
            return Err(ApiError::invalid(format!("The option {key} is given twice")));
        }
        options.push(option(key, values.collect())?);
    }
    if options.is_empty() {
        return Err(ApiError::missing("DhcpConfiguration"));
    }
    let set = DhcpOptions {
        dhcp_options_id: region.ids.id("dopt"),
        owner_id: region.account.clone(),
        dhcp_configurations: options,
        tags,
    };
    let shown = show(&set);
    region.dhcp_options.insert(set);
    Ok(json!({"DhcpOptions": shown}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "DhcpOptionsIds",
        id: "DhcpOptionsId",
        not_found: |id| not_found("dopt", id),
        filters: &[
            ("dhcp-options-id", "DhcpOptionsId"),
            ("key", "DhcpConfigurations.Key"),
            ("value", "DhcpConfigurations.Values.Value"),
            ("owner-id", "OwnerId"),
        ],
        result: "DhcpOptions",
    };
    listing.describe(request, &Source::new(&region.dhcp_options))
}

fn associate(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("DhcpOptionsId")?;
    if id != "default" {
        get(&region.dhcp_options, id)?;
    }
    id.clone_into(&mut get_mut(&mut region.vpcs, request.need("VpcId")?)?.dhcp_options_id);
    success()
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("DhcpOptionsId")?;
    if !id.starts_with("dopt-") {
        let message = format!("Invalid id: \"{id}\" (expecting \"dopt-...\")");
        return Err(ApiError::new("InvalidDhcpOptionsId.Malformed", message));
    }
    get(&region.dhcp_options, id)?;
    if region.vpcs.find(|vpc| vpc.dhcp_options_id == id).is_some() {
        let message = format!("The dhcpOptions '{id}' has dependencies and cannot be deleted.");
        return Err(ApiError::in_use(message));
    }
    region.dhcp_options.remove(id);
    success()
}
