//! Checks and conversions that several actions share.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{ApiError, ApiResult};
use crate::state::{Cloud, Object, Region, Table, Tag};
use crate::wire::Request;

/// Largest number of tags of an object.
const TAGS_MAX: usize = 50;

/// Returns the description of an object: its fields, under the names of EC2's API.
pub(super) fn show<T: Serialize>(object: &T) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// Returns the descriptions of all objects of a table.
pub(super) fn show_all<T: Object>(table: &Table<T>) -> Vec<Value> {
    table.iter().map(show).collect()
}

/// Returns the region that a key of account and region identifies.
pub(super) fn region_of<'a>(
    cloud: &'a mut Cloud,
    at: &(String, String),
) -> ApiResult<&'a mut Region> {
    cloud.regions.get_mut(at).ok_or_else(|| ApiError::internal("the region is missing"))
}

/// The answer of actions that return only success.
pub(super) fn success() -> ApiResult<Value> {
    Ok(json!({"Return": true}))
}

/// The error for an identifier that does not exist. The kind is the prefix of identifiers.
pub(super) fn not_found(kind: &str, id: &str) -> ApiError {
    if kind == "i" && !id.starts_with("i-") {
        let message = format!("Invalid id: \"{id}\" (expecting \"i-...\")");
        return ApiError::new("InvalidInstanceID.Malformed", message);
    }
    let transit = match kind {
        "tgw" => Some(("InvalidTransitGatewayID.NotFound", "")),
        "tgw-attach" => Some(("InvalidTransitGatewayAttachmentID.NotFound", " Attachment")),
        "tgw-rtb" => Some(("InvalidRouteTableID.NotFound", " Route Table")),
        _ => None,
    };
    if let Some((code, noun)) = transit {
        let message = format!("Transit Gateway{noun} {id} was deleted or does not exist.");
        return ApiError::new(code, message);
    }
    let (code, noun) = match kind {
        "vpc" => ("InvalidVpcID.NotFound", "vpc ID"),
        "subnet" => ("InvalidSubnetID.NotFound", "subnet ID"),
        "scr" => ("InvalidSubnetCidrReservationID.NotFound", "subnet-cidr-reservation ID"),
        "sg" => ("InvalidGroup.NotFound", "security group"),
        "sgr" => ("InvalidSecurityGroupRuleId.NotFound", "security group rule ID"),
        "acl" => ("InvalidNetworkAclID.NotFound", "networkAcl ID"),
        "aclassoc" => ("InvalidAssociationID.NotFound", "association ID"),
        "rtb" => ("InvalidRouteTableID.NotFound", "routeTable ID"),
        "rtbassoc" => ("InvalidAssociationID.NotFound", "association ID"),
        "igw" => ("InvalidInternetGatewayID.NotFound", "internetGateway ID"),
        "eigw" => ("InvalidGatewayID.NotFound", "eigw ID"),
        "nat" => ("NatGatewayNotFound", "NatGateway"),
        "eipalloc" => ("InvalidAllocationID.NotFound", "allocation ID"),
        "eipassoc" => ("InvalidAssociationID.NotFound", "association ID"),
        "eni" => ("InvalidNetworkInterfaceID.NotFound", "networkInterface ID"),
        "eni-attach" => ("InvalidAttachmentID.NotFound", "interface attachment ID"),
        "pcx" => ("InvalidVpcPeeringConnectionID.NotFound", "vpcPeeringConnection ID"),
        "pl" => ("InvalidPrefixListID.NotFound", "prefix list ID"),
        "dopt" => ("InvalidDhcpOptionID.NotFound", "dhcpOption ID"),
        "fl" => ("InvalidFlowLogId.NotFound", "flow log ID"),
        "i" => ("InvalidInstanceID.NotFound", "instance ID"),
        "vpce" => ("InvalidVpcEndpointId.NotFound", "Vpc Endpoint Id"),
        "vpce-svc" => ("InvalidVpcEndpointServiceId.NotFound", "VpcEndpointService Id"),
        "cagw" => ("InvalidCarrierGatewayID.NotFound", "CarrierGateway ID"),
        "cgw" => ("InvalidCustomerGatewayID.NotFound", "customerGateway ID"),
        "vgw" => ("InvalidVpnGatewayID.NotFound", "virtual private gateway ID"),
        "vpn" => ("InvalidVpnConnectionID.NotFound", "vpnConnection ID"),
        "tmf" => ("InvalidTrafficMirrorFilterId.NotFound", "traffic mirror filter ID"),
        "tmfr" => ("InvalidTrafficMirrorFilterRuleId.NotFound", "traffic mirror filter rule ID"),
        "tmt" => ("InvalidTrafficMirrorTargetId.NotFound", "traffic mirror target ID"),
        "tms" => ("InvalidTrafficMirrorSessionId.NotFound", "traffic mirror session ID"),
        "lt" => ("InvalidLaunchTemplateId.NotFound", "launch template ID"),
        "vol" => ("InvalidVolume.NotFound", "volume"),
        "snap" => ("InvalidSnapshot.NotFound", "snapshot"),
        "ami" => ("InvalidAMIID.NotFound", "image id"),
        _ => ("InvalidID", "ID"),
    };
    ApiError::new(code, format!("The {noun} '{id}' does not exist"))
}

/// Returns the object with this identifier.
pub(super) fn get<'a, T: Object>(table: &'a Table<T>, id: &str) -> ApiResult<&'a T> {
    table.get(id).ok_or_else(|| not_found(T::PREFIX, id))
}

/// Returns the object with this identifier, to change it.
pub(super) fn get_mut<'a, T: Object>(table: &'a mut Table<T>, id: &str) -> ApiResult<&'a mut T> {
    table.get_mut(id).ok_or_else(|| not_found(T::PREFIX, id))
}

/// Returns the object with this identifier if it is not deleted: `lives` is false for an object
/// that is deleted, and still shown. The error for such an object is that of an unknown identifier.
pub(super) fn get_live<'a, T: Object>(
    table: &'a Table<T>,
    id: &str,
    lives: impl Fn(&T) -> bool,
) -> ApiResult<&'a T> {
    table.get(id).filter(|object| lives(object)).ok_or_else(|| not_found(T::PREFIX, id))
}

/// Returns a number of a protocol without a sign and leading zeros; another text as it is.
pub(super) fn plain_number(text: String) -> String {
    text.parse::<u8>().map_or(text, |number| number.to_string())
}

/// Returns an IPv4 block in its canonical form.
pub(super) fn ipv4_block(text: &str, parameter: &str) -> ApiResult<Ipv4Net> {
    block::<Ipv4Net>(text, parameter).map(|block| block.trunc())
}

/// Returns an IPv6 block in its canonical form.
pub(super) fn ipv6_block(text: &str, parameter: &str) -> ApiResult<Ipv6Net> {
    block::<Ipv6Net>(text, parameter).map(|block| block.trunc())
}

fn block<T: FromStr>(text: &str, parameter: &str) -> ApiResult<T> {
    text.parse().map_err(|_| {
        ApiError::invalid(format!(
            "Value ({text}) for parameter {parameter} is invalid. This is not a valid CIDR block."
        ))
    })
}

/// Returns an IPv4 address.
pub(super) fn ipv4(text: &str) -> ApiResult<Ipv4Addr> {
    text.parse().map_err(|_| ApiError::invalid(format!("invalid value for IP address: {text}")))
}

/// Returns an IPv6 address.
pub(super) fn ipv6(text: &str) -> ApiResult<Ipv6Addr> {
    text.parse().map_err(|_| ApiError::invalid(format!("Invalid IPv6 address: {text}")))
}

/// Whether two blocks have addresses in common.
pub(super) fn overlap(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b) || b.contains(&a)
}

/// Returns the tags that a request gives to a new object.
pub(super) fn new_tags(request: &Request, resource: &str) -> ApiResult<Vec<Tag>> {
    tags_for(request, &[resource], resource)
}

/// Returns the tags that a request gives to a new object of one of several kinds.
pub(super) fn tags_for(
    request: &Request,
    accepted: &[&str],
    resource: &str,
) -> ApiResult<Vec<Tag>> {
    // Two families of actions report these errors with different codes.
    let machines = ["RunInstances", "CreateVolume", "CreateSnapshot", "CreateImage"];
    let code = match machines.contains(&request.action.as_str()) {
        true => "InvalidParameterValue",
        false => "InvalidParameter",
    };
    let mut tags = Vec::new();
    for specification in request.list("TagSpecifications") {
        let Some(kind) = specification["ResourceType"].as_str() else {
            let message = "Tag specification resource type must have a value";
            return Err(ApiError::new(code, message));
        };
        if !accepted.contains(&kind) {
            let message =
                format!("'{kind}' is not a valid taggable resource type for this operation.");
            return Err(ApiError::new(code, message));
        }
        if specification["Tags"].as_array().is_none_or(Vec::is_empty) {
            let message = "Tag specification must have at least one tag";
            return Err(ApiError::new(code, message));
        }
        if kind == resource {
            put_tags(&mut tags, read_tags(&specification["Tags"])?)?;
        }
    }
    Ok(tags)
}

/// Reads a list of tags; a tag without a value has an empty value.
pub(super) fn read_tags(list: &Value) -> ApiResult<Vec<Tag>> {
    let list = list.as_array().map_or(&[][..], Vec::as_slice);
    if list.len() > TAGS_MAX {
        return Err(too_many_tags());
    }
    let mut tags: Vec<Tag> = Vec::new();
    for tag in list {
        let key = tag["Key"].as_str().ok_or_else(|| ApiError::missing("Tag.Key"))?;
        let value = tag["Value"].as_str().unwrap_or_default();
        if key.is_empty() || key.chars().count() > 128 {
            return Err(ApiError::invalid("Tag keys have 1 to 128 characters"));
        }
        if value.chars().count() > 256 {
            return Err(ApiError::invalid("Tag values have at most 256 characters"));
        }
        if is_reserved(key) {
            let message = "Tag keys starting with 'aws:' are reserved for internal use";
            return Err(ApiError::invalid(message));
        }
        if tags.iter().any(|tag| tag.key == key) {
            let message = format!("Duplicate tag key '{key}' specified.");
            return Err(ApiError::invalid(message));
        }
        tags.push(Tag { key: key.to_owned(), value: value.to_owned() });
    }
    Ok(tags)
}

/// Whether only the service can give and remove tags with this key.
pub(super) fn is_reserved(key: &str) -> bool {
    key.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("aws:"))
}

fn too_many_tags() -> ApiError {
    let message = "The maximum number of Tags for a resource has been reached.";
    ApiError::new("TagLimitExceeded", message)
}

/// Adds tags, or replaces the values of tags with the same keys.
pub(super) fn put_tags(tags: &mut Vec<Tag>, new: Vec<Tag>) -> ApiResult<()> {
    for tag in new {
        match tags.iter_mut().find(|old| old.key == tag.key) {
            Some(old) => old.value = tag.value,
            None => tags.push(tag),
        }
    }
    // Tags of the service do not count.
    if tags.iter().filter(|tag| !is_reserved(&tag.key)).count() > TAGS_MAX {
        return Err(too_many_tags());
    }
    Ok(())
}

/// Largest number of deleted objects of one kind that are still shown.
const DELETED_MAX: usize = 1000;

/// Removes the oldest deleted objects of a table, so that [`DELETED_MAX`] of them remain.
pub(super) fn trim<T: Object>(table: &mut Table<T>, is_deleted: impl Fn(&T) -> bool) {
    let deleted = table.ids_where(is_deleted);
    for old in deleted.iter().rev().skip(DELETED_MAX) {
        table.remove(old);
    }
}

/// Returns a block of either address family in its canonical form.
pub(super) fn any_block(text: &str, parameter: &str) -> ApiResult<IpNet> {
    block::<IpNet>(text, parameter).map(|block| block.trunc())
}

/// Returns a text of a structure of the request.
pub(super) fn text_of<'a>(part: Option<&'a Value>, name: &str) -> Option<&'a str> {
    part.and_then(|part| part[name].as_str())
}

/// Name of a resource of a region.
pub(crate) fn arn(region: &Region, kind: &str, id: &str) -> String {
    let partition = crate::regions::partition(&region.name);
    format!("arn:{partition}:ec2:{}:{}:{kind}/{id}", region.name, region.account)
}

/// The time of the current request in ISO 8601.
pub(crate) fn now(region: &Region) -> String {
    time(region.now)
}

/// A time in ISO 8601, from seconds since 1970.
pub(crate) fn time(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Civil date from days, in the Gregorian calendar; the year begins in March.
    let z = days + 719_468;
    let (era, day) = (z / 146_097, z % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let m = (5 * of_year + 2) / 153;
    let (date, month) = (of_year - (153 * m + 2) / 5 + 1, if m < 10 { m + 3 } else { m - 9 });
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_of_the_calendar() {
        assert_eq!(time(1_440_938_160), "2015-08-30T12:36:00.000Z");
        assert_eq!(time(951_782_399), "2000-02-28T23:59:59.000Z");
        assert_eq!(time(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn tags_are_checked() {
        let code = |tags: Value| read_tags(&tags).map(|_| ()).unwrap_err().code;
        assert_eq!(code(json!([{"Key": "aws:x"}])), "InvalidParameterValue");
        assert_eq!(code(json!([{"Key": ""}])), "InvalidParameterValue");
        assert_eq!(code(json!([{"Key": "a"}, {"Key": "a"}])), "InvalidParameterValue");
        let many: Vec<Value> = (0..51).map(|n| json!({"Key": n.to_string()})).collect();
        let most = read_tags(&many[..50].into()).unwrap();
        let more = read_tags(&many[50..].into()).unwrap();
        let mut tags = Vec::new();
        put_tags(&mut tags, most).unwrap();
        assert_eq!(put_tags(&mut tags, more).unwrap_err().code, "TagLimitExceeded");
        // The number is checked before duplicates are searched.
        let same = vec![json!({"Key": "a"}); 51];
        assert_eq!(code(same.into()), "TagLimitExceeded");
    }
}
