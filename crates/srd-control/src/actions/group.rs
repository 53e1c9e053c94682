//! Actions of the EC2 API on security groups.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::field::found;
use super::list::{self, Listing};
use super::source::Source;
use super::support::{arn, get, new_tags, not_found, show};
use super::{Actions, Handler};
use crate::defaults;
use crate::error::{ApiError, ApiResult};
use crate::state::{Region, SecurityGroup, SecurityGroupRule};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateSecurityGroup", Handler::Region(create)),
    ("DescribeSecurityGroups", Handler::Region(describe)),
    ("GetSecurityGroupsForVpc", Handler::Region(for_vpc)),
    ("DescribeSecurityGroupReferences", Handler::Region(references)),
    ("DeleteSecurityGroup", Handler::Region(delete)),
];

pub(super) const LISTING: Listing = Listing {
    ids: "GroupIds",
    id: "GroupId",
    not_found: |id| not_found("sg", id),
    filters: &[
        ("description", "Description"),
        ("egress.ip-permission.cidr", "IpPermissionsEgress.IpRanges.CidrIp"),
        ("egress.ip-permission.from-port", "IpPermissionsEgress.FromPort"),
        ("egress.ip-permission.group-id", "IpPermissionsEgress.UserIdGroupPairs.GroupId"),
        ("egress.ip-permission.group-name", "IpPermissionsEgress.UserIdGroupPairs.GroupName"),
        ("egress.ip-permission.ipv6-cidr", "IpPermissionsEgress.Ipv6Ranges.CidrIpv6"),
        ("egress.ip-permission.prefix-list-id", "IpPermissionsEgress.PrefixListIds.PrefixListId"),
        ("egress.ip-permission.protocol", "IpPermissionsEgress.IpProtocol"),
        ("egress.ip-permission.to-port", "IpPermissionsEgress.ToPort"),
        ("egress.ip-permission.user-id", "IpPermissionsEgress.UserIdGroupPairs.UserId"),
        ("group-id", "GroupId"),
        ("group-name", "GroupName"),
        ("ip-permission.cidr", "IpPermissions.IpRanges.CidrIp"),
        ("ip-permission.from-port", "IpPermissions.FromPort"),
        ("ip-permission.group-id", "IpPermissions.UserIdGroupPairs.GroupId"),
        ("ip-permission.group-name", "IpPermissions.UserIdGroupPairs.GroupName"),
        ("ip-permission.ipv6-cidr", "IpPermissions.Ipv6Ranges.CidrIpv6"),
        ("ip-permission.prefix-list-id", "IpPermissions.PrefixListIds.PrefixListId"),
        ("ip-permission.protocol", "IpPermissions.IpProtocol"),
        ("ip-permission.to-port", "IpPermissions.ToPort"),
        ("ip-permission.user-id", "IpPermissions.UserIdGroupPairs.UserId"),
        ("owner-id", "OwnerId"),
        ("vpc-id", "VpcId"),
    ],
    result: "SecurityGroups",
};

/// Returns a group by the parameter `GroupId`, or by its name in the default VPC.
pub(super) fn named<'a>(region: &'a Region, request: &Request) -> ApiResult<&'a SecurityGroup> {
    match (request.text("GroupId"), request.text("GroupName")) {
        (Some(id), _) => get(&region.groups, id),
        (None, Some(name)) => {
            let vpc = region.vpcs.find(|vpc| vpc.is_default).map(|vpc| vpc.vpc_id.as_str());
            by_name(region, vpc, name).ok_or_else(|| {
                let message = format!("The security group '{name}' does not exist");
                ApiError::new("InvalidGroup.NotFound", message)
            })
        }
        (None, None) => {
            let message = "The request must contain the parameter groupName or groupId";
            Err(ApiError::new("MissingParameter", message))
        }
    }
}

/// Returns the group with this name in a VPC.
pub(super) fn by_name<'a>(
    region: &'a Region,
    vpc: Option<&str>,
    name: &str,
) -> Option<&'a SecurityGroup> {
    region.groups.find(|g| Some(g.vpc_id.as_str()) == vpc && g.group_name == name)
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (name, description) = (request.need("GroupName")?, request.need("Description")?);
    let tags = new_tags(request, "security-group")?;
    if description.is_empty() {
        return Err(ApiError::missing("GroupDescription"));
    }
    check_text(name, "group name")?;
    check_text(description, "group description")?;
    if name.starts_with("sg-") {
        let message = "Group names may not be in the format sg-*";
        return Err(ApiError::invalid(message));
    }
    let vpc_id = match request.text("VpcId") {
        Some(vpc) => get(&region.vpcs, vpc)?.vpc_id.clone(),
        None => {
            let vpc = region.vpcs.find(|vpc| vpc.is_default);
            let none = || ApiError::new("VPCIdNotSpecified", "No default VPC for this user");
            vpc.ok_or_else(none)?.vpc_id.clone()
        }
    };
    if name == "default" {
        let message = "Cannot use reserved security group name: default";
        return Err(ApiError::invalid(message));
    }
    if by_name(region, Some(&vpc_id), name).is_some() {
        let message = format!("The security group '{name}' already exists for VPC '{vpc_id}'");
        return Err(ApiError::new("InvalidGroup.Duplicate", message));
    }
    let group_id = region.ids.id("sg");
    let group = SecurityGroup {
        security_group_arn: arn(region, "security-group", &group_id),
        group_id: group_id.clone(),
        owner_id: region.account.clone(),
        vpc_id,
        group_name: name.to_owned(),
        description: description.to_owned(),
        tags,
    };
    let answer = json!({"GroupId": group_id, "Tags": group.tags,
                        "SecurityGroupArn": group.security_group_arn});
    region.groups.insert(group);
    defaults::default_egress(region, &group_id);
    Ok(answer)
}

/// Checks a name or a description: at most 255 letters, digits, spaces and `._-:/()#,@[]+=&;{}!$*`.
pub(super) fn check_text(text: &str, noun: &str) -> ApiResult<()> {
    let accepted = |c: char| c.is_ascii_alphanumeric() || " ._-:/()#,@[]+=&;{}!$*".contains(c);
    if !text.is_empty() && text.len() <= 255 && text.chars().all(accepted) {
        return Ok(());
    }
    let message = format!(
        "Invalid security {noun}. It has 1 to 255 characters of a-z, A-Z, 0-9, spaces, and \
         ._-:/()#,@[]+=&;{{}}!$*"
    );
    Err(ApiError::invalid(message))
}

/// Rules of a group in one direction.
pub(super) fn rules<'a>(
    region: &'a Region,
    group: &'a str,
    egress: bool,
) -> impl Iterator<Item = &'a SecurityGroupRule> {
    region.group_rules.linked(group).filter(move |rule| rule.is_egress == egress)
}

/// Returns rules as permissions: rules with the same protocol and ports form one permission.
pub(super) fn permissions<'a>(rules: impl Iterator<Item = &'a SecurityGroupRule>) -> Vec<Value> {
    let mut order = Vec::new();
    let mut all: BTreeMap<(String, i64, i64), Map<String, Value>> = BTreeMap::new();
    for rule in rules {
        let key = (rule.ip_protocol.clone(), rule.from_port, rule.to_port);
        let permission = all.entry(key.clone()).or_insert_with(|| {
            order.push(key.clone());
            let mut permission = Map::new();
            permission.insert("IpProtocol".to_owned(), rule.ip_protocol.clone().into());
            if ["tcp", "udp", "icmp", "icmpv6"].contains(&rule.ip_protocol.as_str()) {
                permission.insert("FromPort".to_owned(), rule.from_port.into());
                permission.insert("ToPort".to_owned(), rule.to_port.into());
            }
            for list in ["UserIdGroupPairs", "IpRanges", "Ipv6Ranges", "PrefixListIds"] {
                permission.insert(list.to_owned(), Value::Array(Vec::new()));
            }
            permission
        });
        let (list, mut value) = peer(rule);
        if let Some(description) = &rule.description {
            value["Description"] = description.clone().into();
        }
        if let Some(Value::Array(list)) = permission.get_mut(list) {
            list.push(value);
        }
    }
    // The permission for all protocols comes last.
    order.sort_by_key(|(protocol, ..)| protocol == "-1");
    order.into_iter().filter_map(|key| all.remove(&key)).map(Value::Object).collect()
}

/// Returns the source or destination of a rule: the list of a permission, and the element there.
fn peer(rule: &SecurityGroupRule) -> (&'static str, Value) {
    if let Some(block) = rule.cidr_ipv4 {
        ("IpRanges", json!({"CidrIp": block}))
    } else if let Some(block) = rule.cidr_ipv6 {
        ("Ipv6Ranges", json!({"CidrIpv6": block}))
    } else if let Some(list) = &rule.prefix_list_id {
        ("PrefixListIds", json!({"PrefixListId": list}))
    } else {
        ("UserIdGroupPairs", rule.referenced_group_info.as_ref().map(show).unwrap_or_default())
    }
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let region = &*region;
    let names = request.texts("GroupNames");
    let wanted: BTreeSet<&str> = names.iter().copied().collect();
    let is_wanted = |group: &SecurityGroup| wanted.contains(group.group_name.as_str());
    let named = region.groups.iter().filter(|group| is_wanted(group));
    let there: BTreeSet<&str> = named.map(|group| group.group_name.as_str()).collect();
    if let Some(name) = names.iter().find(|name| !there.contains(**name)) {
        return Err(not_found("sg", name));
    }
    let source = source(region).only(|group| wanted.is_empty() || is_wanted(group));
    LISTING.describe(request, &source)
}

/// The security groups of a region with their descriptions.
pub(super) fn source(region: &Region) -> Source<'_, SecurityGroup> {
    let all = move |group: &SecurityGroup, egress| {
        Value::from(permissions(rules(region, &group.group_id, egress)))
    };
    let view = move |group: &SecurityGroup| {
        let mut shown = show(group);
        shown["IpPermissions"] = all(group, false);
        shown["IpPermissionsEgress"] = all(group, true);
        shown
    };
    Source::new(&region.groups).shown(view, move |group, path, condition| match path {
        ["IpPermissions", rest @ ..] => Some(found(&all(group, false), rest, condition)),
        ["IpPermissionsEgress", rest @ ..] => Some(found(&all(group, true), rest, condition)),
        _ => None,
    })
}

fn for_vpc(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let vpc = get(&region.vpcs, request.need("VpcId")?)?.vpc_id.clone();
    let groups = region.groups.iter().filter(|group| group.vpc_id == vpc).map(|group| {
        let mut shown = show(group);
        shown["PrimaryVpcId"] = shown["VpcId"].take();
        shown
    });
    let filters: list::Filters = &[
        ("group-id", "GroupId"),
        ("description", "Description"),
        ("group-name", "GroupName"),
        ("owner-id", "OwnerId"),
        ("primary-vpc-id", "PrimaryVpcId"),
    ];
    let groups = list::filter(request, filters, groups.collect())?;
    list::page(request, "SecurityGroupForVpcs", "GroupId", groups)
}

fn references(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut set = Vec::new();
    for id in request.texts("GroupId") {
        get(&region.groups, id)?;
        for rule in region.group_rules.iter() {
            let Some(to) = &rule.referenced_group_info else { continue };
            let group = region.groups.get(&rule.group_id);
            if to.group_id == id
                && let (Some(group), Some(peering)) = (group, &to.vpc_peering_connection_id)
            {
                set.push(json!({"GroupId": id, "ReferencingVpcId": group.vpc_id,
                                "VpcPeeringConnectionId": peering}));
            }
        }
    }
    Ok(json!({"SecurityGroupReferenceSet": set}))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let group = named(region, request)?.clone();
    let id = &group.group_id;
    if group.group_name == "default" {
        let message =
            format!("the specified group: \"{id}\" name: \"default\" cannot be deleted by a user");
        return Err(ApiError::new("CannotDelete", message));
    }
    let used = region.interfaces.linked(id).next().is_some();
    let names = |rule: &SecurityGroupRule| {
        rule.group_id != *id
            && rule.referenced_group_info.as_ref().is_some_and(|info| info.group_id == *id)
    };
    let of_endpoint = |endpoint: &crate::state::VpcEndpoint| {
        endpoint.state != "deleted" && endpoint.groups.iter().any(|g| g.group_id == *id)
    };
    let used = used || region.endpoints.find(of_endpoint).is_some();
    if used || region.group_rules.find(names).is_some() {
        return Err(ApiError::in_use(format!("resource {id} has a dependent object")));
    }
    remove(region, id);
    Ok(json!({"Return": true, "GroupId": id}))
}

/// Removes a group with its rules.
pub(super) fn remove(region: &mut Region, id: &str) {
    for rule in region.group_rules.linked_ids(id) {
        region.group_rules.remove(&rule);
    }
    region.groups.remove(id);
}
