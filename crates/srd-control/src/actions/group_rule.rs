//! Actions of the EC2 API on rules of security groups.

use serde_json::{Value, json};

use super::list::Listing;
use super::source::Source;
use super::support::{
    arn, get, get_mut, ipv4_block, ipv6_block, new_tags, not_found, plain_number, show, success,
};
use super::{Actions, Handler, group, group_size, prefix_list};
use crate::error::{ApiError, ApiResult};
use crate::state::interface::ReferencedGroup;
use crate::state::{Region, SecurityGroup, SecurityGroupRule};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("AuthorizeSecurityGroupIngress", Handler::Region(|r, q| authorize(r, q, false))),
    ("AuthorizeSecurityGroupEgress", Handler::Region(|r, q| authorize(r, q, true))),
    ("RevokeSecurityGroupIngress", Handler::Region(|r, q| revoke(r, q, false))),
    ("RevokeSecurityGroupEgress", Handler::Region(|r, q| revoke(r, q, true))),
    ("UpdateSecurityGroupRuleDescriptionsIngress", Handler::Region(|r, q| update(r, q, false))),
    ("UpdateSecurityGroupRuleDescriptionsEgress", Handler::Region(|r, q| update(r, q, true))),
    ("ModifySecurityGroupRules", Handler::Region(modify)),
    ("DescribeSecurityGroupRules", Handler::Region(describe)),
];

/// Returns the protocol in the form in which it is shown.
fn protocol(text: &str) -> ApiResult<String> {
    let text = plain_number(text.to_ascii_lowercase());
    Ok(match text.as_str() {
        "-1" | "all" => "-1".to_owned(),
        "6" => "tcp".to_owned(),
        "17" => "udp".to_owned(),
        "1" => "icmp".to_owned(),
        "58" => "icmpv6".to_owned(),
        "tcp" | "udp" | "icmp" | "icmpv6" => text,
        _ if text.parse::<u8>().is_ok() => text,
        _ => {
            let message = format!("Invalid value '{text}' for IP protocol. Unknown protocol.");
            return Err(ApiError::invalid(message));
        }
    })
}

/// Returns the ports, or type and code, that belong to a protocol.
fn ports(protocol: &str, from: Option<i64>, to: Option<i64>) -> ApiResult<(i64, i64)> {
    match protocol {
        "tcp" | "udp" => {
            let (Some(from), Some(to)) = (from, to) else {
                let message = "Invalid value for portRange. Must specify both from and to ports \
                               with TCP/UDP.";
                return Err(ApiError::invalid(message));
            };
            let ports = 0..=65_535;
            if from > to || !ports.contains(&from) || !ports.contains(&to) {
                let message = format!("Invalid TCP/UDP port range ({from}:{to})");
                return Err(ApiError::invalid(message));
            }
            Ok((from, to))
        }
        "icmp" | "icmpv6" => {
            let (kind, code) = (from.unwrap_or(-1), to.unwrap_or(-1));
            let values = -1..=255;
            if !values.contains(&kind) || !values.contains(&code) || (kind == -1 && code != -1) {
                let message = format!("ICMP code ({code}) out of range for type ({kind})");
                return Err(ApiError::invalid(message));
            }
            Ok((kind, code))
        }
        _ => Ok((-1, -1)),
    }
}

/// Reason why a request describes rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The rules are new.
    Add,
    /// The rules exist. They may name groups that a new rule cannot name any more.
    Find,
}

/// Returns the rules that permissions describe, without identifiers.
fn rules_of(
    region: &Region,
    group: &SecurityGroup,
    permissions: &[Value],
    is_egress: bool,
    purpose: Purpose,
) -> ApiResult<Vec<SecurityGroupRule>> {
    let mut rules = Vec::new();
    for permission in permissions {
        let ip_protocol = permission["IpProtocol"].as_str();
        let ip_protocol = protocol(ip_protocol.ok_or_else(|| ApiError::missing("ipProtocol"))?)?;
        let (from, to) = (permission["FromPort"].as_i64(), permission["ToPort"].as_i64());
        let (from_port, to_port) = ports(&ip_protocol, from, to)?;
        let base = SecurityGroupRule {
            group_id: group.group_id.clone(),
            group_owner_id: group.owner_id.clone(),
            ip_protocol,
            from_port,
            to_port,
            ..SecurityGroupRule::any(is_egress)
        };
        let before = rules.len();
        let mut add =
            |element: &Value, change: &dyn Fn(&mut SecurityGroupRule) -> ApiResult<()>| {
                let mut rule = base.clone();
                change(&mut rule)?;
                if let Some(description) = element["Description"].as_str() {
                    check_description(description)?;
                    rule.description = Some(description.to_owned());
                }
                rules.push(rule);
                Ok::<(), ApiError>(())
            };
        let elements = |list: &str| permission[list].as_array().cloned().unwrap_or_default();
        for range in elements("IpRanges") {
            add(&range, &|rule| {
                rule.cidr_ipv4 = Some(malformed_v4(range["CidrIp"].as_str().unwrap_or_default())?);
                Ok(())
            })?;
        }
        for range in elements("Ipv6Ranges") {
            add(&range, &|rule| {
                let block = range["CidrIpv6"].as_str().unwrap_or_default();
                rule.cidr_ipv6 = Some(ipv6_block(block, "cidrIpv6")?);
                Ok(())
            })?;
        }
        for list in elements("PrefixListIds") {
            add(&list, &|rule| {
                let id = list["PrefixListId"].as_str().unwrap_or_default();
                rule.prefix_list_id = Some(prefix_list::find(region, id)?.prefix_list_id.clone());
                Ok(())
            })?;
        }
        for pair in elements("UserIdGroupPairs") {
            add(&pair, &|rule| {
                rule.referenced_group_info = Some(reference(region, group, &pair, purpose)?);
                Ok(())
            })?;
        }
        // A group has no more rules in a direction, half of them of each version of IP.
        if rules.len() > 2 * group_size::RULES_MAX {
            return Err(group_size::too_many());
        }
        if rules.len() == before {
            let message = "A rule needs a CIDR block, a prefix list or a security group";
            return Err(ApiError::invalid(message));
        }
    }
    Ok(rules)
}

fn malformed_v4(text: &str) -> ApiResult<ipnet::Ipv4Net> {
    ipv4_block(text, "cidrIp")
        .map_err(|_| ApiError::invalid(format!("CIDR block {text} is malformed")))
}

fn check_description(text: &str) -> ApiResult<()> {
    if text.is_empty() { Ok(()) } else { group::check_text(text, "group rule description") }
}

/// Returns the group that a rule names, by its identifier or by its name in the same VPC. A new
/// rule names a group of another VPC only if a peering connection with it is active.
fn reference(
    region: &Region,
    group: &SecurityGroup,
    pair: &Value,
    purpose: Purpose,
) -> ApiResult<ReferencedGroup> {
    let (id, name) = (pair["GroupId"].as_str(), pair["GroupName"].as_str());
    let user = pair["UserId"].as_str().filter(|user| *user != region.account);
    let other = |group_id: &str, vpc_id: Option<String>, peering: Option<String>| ReferencedGroup {
        group_id: group_id.to_owned(),
        user_id: Some(user.unwrap_or(&region.account).to_owned()),
        vpc_id,
        peering_status: peering.as_ref().map(|_| "active".to_owned()),
        vpc_peering_connection_id: peering,
    };
    let found = match (id, name) {
        (Some(id), _) => {
            if user.is_some() {
                return Ok(other(id, None, None));
            }
            region.groups.get(id).ok_or_else(|| not_found("sg", id))?
        }
        (None, Some(name)) => group::by_name(region, Some(&group.vpc_id), name)
            .ok_or_else(|| not_found("sg", name))?,
        (None, None) => return Err(ApiError::missing("GroupId")),
    };
    if found.vpc_id == group.vpc_id || purpose == Purpose::Find {
        return Ok(other(&found.group_id, None, None));
    }
    let connects = |peering: &crate::state::PeeringConnection| {
        let sides = [&peering.requester_vpc_info.vpc_id, &peering.accepter_vpc_info.vpc_id];
        peering.status.code == "active"
            && sides.contains(&&found.vpc_id)
            && sides.contains(&&group.vpc_id)
    };
    let Some(peering) = region.peerings.find(connects) else {
        let message = format!(
            "You have specified two resources that belong to different networks: {} and {}",
            group.group_id, found.group_id
        );
        return Err(ApiError::new("InvalidGroup.NotFound", message));
    };
    let peering = peering.vpc_peering_connection_id.clone();
    Ok(other(&found.group_id, Some(found.vpc_id.clone()), Some(peering)))
}

/// Returns the permissions of a request: the list, or the permission in single parameters.
fn permissions(request: &Request) -> ApiResult<Vec<Value>> {
    let list = request.list("IpPermissions");
    if !list.is_empty() {
        return Ok(list.to_vec());
    }
    let Some(protocol) = request.text("IpProtocol") else {
        if request.text("SourceSecurityGroupName").is_some() {
            return Ok(vec![
                json!({"IpProtocol": "-1", "UserIdGroupPairs": single_group(request)}),
            ]);
        }
        return Err(ApiError::new(
            "MissingParameter",
            "The request must contain the parameter ipPermissions or ipProtocol",
        ));
    };
    let mut one = json!({"IpProtocol": protocol});
    for port in ["FromPort", "ToPort"] {
        if let Some(number) = request.number(port) {
            one[port] = number.into();
        }
    }
    if let Some(block) = request.text("CidrIp") {
        one["IpRanges"] = json!([{"CidrIp": block}]);
    }
    if request.has("SourceSecurityGroupName") {
        one["UserIdGroupPairs"] = single_group(request);
    }
    Ok(vec![one])
}

fn single_group(request: &Request) -> Value {
    let mut pair = json!({"GroupName": request.text("SourceSecurityGroupName")});
    if let Some(user) = request.text("SourceSecurityGroupOwnerId") {
        pair["UserId"] = user.into();
    }
    json!([pair])
}

/// Whether two rules match the same packets.
fn same(a: &SecurityGroupRule, b: &SecurityGroupRule) -> bool {
    let group = |rule: &SecurityGroupRule| {
        rule.referenced_group_info.as_ref().map(|info| info.group_id.clone())
    };
    a.group_id == b.group_id
        && a.is_egress == b.is_egress
        && a.ip_protocol == b.ip_protocol
        && (a.from_port, a.to_port) == (b.from_port, b.to_port)
        && a.cidr_ipv4 == b.cidr_ipv4
        && a.cidr_ipv6 == b.cidr_ipv6
        && a.prefix_list_id == b.prefix_list_id
        && group(a) == group(b)
}

fn authorize(region: &mut Region, request: &Request, egress: bool) -> ApiResult<Value> {
    let group = group::named(region, request)?.clone();
    let tags = new_tags(request, "security-group-rule")?;
    let rules = rules_of(region, &group, &permissions(request)?, egress, Purpose::Add)?;
    group_size::check(region, &group.group_id, egress, &rules)?;
    let mut shown = Vec::new();
    for mut rule in rules {
        if group::rules(region, &group.group_id, egress).any(|old| same(old, &rule)) {
            return Err(duplicate(&rule));
        }
        let id = region.ids.id("sgr");
        rule.security_group_rule_arn = arn(region, "security-group-rule", &id);
        rule.security_group_rule_id = id;
        rule.tags.clone_from(&tags);
        shown.push(show(&rule));
        region.group_rules.insert(rule);
    }
    Ok(json!({"Return": true, "SecurityGroupRules": shown}))
}

fn duplicate(rule: &SecurityGroupRule) -> ApiError {
    let peer = rule.cidr_ipv4.map(|b| b.to_string());
    let peer = peer.or_else(|| rule.cidr_ipv6.map(|b| b.to_string()));
    let peer = peer.or_else(|| rule.prefix_list_id.clone());
    let group = rule.referenced_group_info.as_ref().map(|info| info.group_id.clone());
    let peer = peer.or(group).unwrap_or_default();
    let ports = match rule.ip_protocol.as_str() {
        "-1" => "ALL, ALLOW".to_owned(),
        "tcp" | "udp" => {
            let protocol = rule.ip_protocol.to_ascii_uppercase();
            format!("{protocol}, from port: {}, to port: {}, ALLOW", rule.from_port, rule.to_port)
        }
        protocol => format!("{}, ALLOW", protocol.to_ascii_uppercase()),
    };
    let message = format!("the specified rule \"peer: {peer}, {ports}\" already exists");
    ApiError::new("InvalidPermission.Duplicate", message)
}

fn revoke(region: &mut Region, request: &Request, egress: bool) -> ApiResult<Value> {
    let group = group::named(region, request)?.clone();
    let ids = request.texts("SecurityGroupRuleIds");
    let mut revoked = Vec::new();
    if ids.is_empty() {
        for rule in rules_of(region, &group, &permissions(request)?, egress, Purpose::Find)? {
            let mut existing = group::rules(region, &group.group_id, egress);
            let Some(rule) = existing.find(|old| same(old, &rule)) else {
                let message = "The specified rule does not exist in this security group.";
                return Err(ApiError::new("InvalidPermission.NotFound", message));
            };
            revoked.push(rule.security_group_rule_id.clone());
        }
    }
    for id in ids {
        let rule = get(&region.group_rules, id)?;
        if rule.group_id != group.group_id || rule.is_egress != egress {
            return Err(not_found("sgr", id));
        }
        revoked.push(id.to_owned());
    }
    let mut shown = Vec::new();
    for id in revoked {
        if let Some(rule) = region.group_rules.remove(&id) {
            let mut rule_shown = show(&rule);
            let group = rule.referenced_group_info.map(|info| info.group_id);
            rule_shown["ReferencedGroupId"] = group.into();
            shown.push(rule_shown);
        }
    }
    Ok(json!({"Return": true, "RevokedSecurityGroupRules": shown}))
}

fn update(region: &mut Region, request: &Request, egress: bool) -> ApiResult<Value> {
    let group = group::named(region, request)?.clone();
    let mut changes = Vec::new();
    if request.has("IpPermissions") {
        for rule in rules_of(region, &group, request.list("IpPermissions"), egress, Purpose::Find)?
        {
            let mut existing = group::rules(region, &group.group_id, egress);
            let Some(old) = existing.find(|old| same(old, &rule)) else {
                let message = "The specified rule does not exist in this security group.";
                return Err(ApiError::new("InvalidPermission.NotFound", message));
            };
            changes.push((old.security_group_rule_id.clone(), rule.description));
        }
    }
    for of in request.list("SecurityGroupRuleDescriptions") {
        let id = of["SecurityGroupRuleId"].as_str().unwrap_or_default();
        let rule = get(&region.group_rules, id)?;
        if rule.group_id != group.group_id || rule.is_egress != egress {
            return Err(not_found("sgr", id));
        }
        let description = of["Description"].as_str();
        check_description(description.unwrap_or_default())?;
        changes.push((id.to_owned(), description.map(str::to_owned)));
    }
    if changes.is_empty() {
        return Err(ApiError::missing("IpPermissions"));
    }
    for (id, description) in changes {
        get_mut(&mut region.group_rules, &id)?.description = description.filter(|d| !d.is_empty());
    }
    success()
}

fn modify(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let group = get(&region.groups, request.need("GroupId")?)?.clone();
    for of in request.list("SecurityGroupRules") {
        let id = of["SecurityGroupRuleId"].as_str().unwrap_or_default();
        let old = get(&region.group_rules, id)?.clone();
        if old.group_id != group.group_id {
            return Err(not_found("sgr", id));
        }
        let new = &of["SecurityGroupRule"];
        let Some(protocol) = new["IpProtocol"].as_str() else {
            let message = "Invalid value 'null' for protocol. VPC security group rules must \
                           specify protocols explicitly.";
            return Err(ApiError::invalid(message));
        };
        let mut permission = json!({"IpProtocol": protocol});
        for port in ["FromPort", "ToPort"] {
            permission[port] = new[port].clone();
        }
        let peers = [
            ("CidrIpv4", "IpRanges", "CidrIp"),
            ("CidrIpv6", "Ipv6Ranges", "CidrIpv6"),
            ("PrefixListId", "PrefixListIds", "PrefixListId"),
            ("ReferencedGroupId", "UserIdGroupPairs", "GroupId"),
        ];
        let given: Vec<_> = peers.iter().filter(|(name, ..)| new[*name].is_string()).collect();
        let [(name, list, member)] = given.as_slice() else {
            if given.is_empty() {
                let message = "The request must contain exactly one of: cidrIp, cidrIpv6, \
                               prefixListId, or referencedGroupId";
                return Err(ApiError::new("MissingParameter", message));
            }
            let message = "Only one of cidrIp, cidrIpv6, prefixListId, or referencedGroupId can \
                           be specified";
            return Err(ApiError::combination(message));
        };
        let mut element = json!({*member: new[*name]});
        if let Some(description) = new["Description"].as_str() {
            element["Description"] = description.into();
        }
        permission[*list] = json!([element]);
        for mut rule in rules_of(region, &group, &[permission], old.is_egress, Purpose::Add)? {
            let other = |other: &SecurityGroupRule| {
                other.security_group_rule_id != id && same(other, &rule)
            };
            if region.group_rules.linked(&group.group_id).any(other) {
                return Err(duplicate(&rule));
            }
            rule.security_group_rule_id.clone_from(&old.security_group_rule_id);
            rule.security_group_rule_arn.clone_from(&old.security_group_rule_arn);
            rule.tags.clone_from(&old.tags);
            region.group_rules.insert(rule);
        }
        group_size::check(region, &group.group_id, old.is_egress, &[])?;
    }
    success()
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    for filter in request.list("Filters").iter().filter(|filter| filter["Name"] == "group-id") {
        for id in filter["Values"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !id.starts_with("sg-") && !id.contains(['*', '?']) {
                let message = format!("The security group ID '{id}' is malformed");
                return Err(ApiError::new("InvalidGroupId.Malformed", message));
            }
        }
    }
    let listing = Listing {
        ids: "SecurityGroupRuleIds",
        id: "SecurityGroupRuleId",
        not_found: |id| not_found("sgr", id),
        filters: &[("group-id", "GroupId"), ("security-group-rule-id", "SecurityGroupRuleId")],
        result: "SecurityGroupRules",
    };
    listing.describe(request, &Source::new(&region.group_rules))
}
