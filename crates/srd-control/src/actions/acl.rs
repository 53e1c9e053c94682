//! Actions of the EC2 API on network ACLs and their entries.

use serde_json::{Value, json};

use super::list::Listing;
use super::source::Source;
use super::support::{
    get, get_mut, ipv4_block, ipv6_block, new_tags, not_found, plain_number, show, success,
};
use super::{Actions, Handler};
use crate::defaults;
use crate::error::{ApiError, ApiResult};
use crate::state::network::{IcmpTypeCode, NetworkAclEntry, PortRange};
use crate::state::{NetworkAcl, Region};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateNetworkAcl", Handler::Region(create)),
    ("DescribeNetworkAcls", Handler::Region(describe)),
    ("DeleteNetworkAcl", Handler::Region(delete)),
    ("CreateNetworkAclEntry", Handler::Region(|r, q| put_entry(r, q, false))),
    ("ReplaceNetworkAclEntry", Handler::Region(|r, q| put_entry(r, q, true))),
    ("DeleteNetworkAclEntry", Handler::Region(delete_entry)),
    ("ReplaceNetworkAclAssociation", Handler::Region(replace_association)),
];

/// Largest number of entries of an ACL in one direction, beside the final rule.
const ENTRIES_MAX: usize = 40;

const LISTING: Listing = Listing {
    ids: "NetworkAclIds",
    id: "NetworkAclId",
    not_found: |id| not_found("acl", id),
    filters: &[
        ("association.association-id", "Associations.NetworkAclAssociationId"),
        ("association.network-acl-id", "Associations.NetworkAclId"),
        ("association.subnet-id", "Associations.SubnetId"),
        ("default", "IsDefault"),
        ("entry.cidr", "Entries.CidrBlock"),
        ("entry.icmp.code", "Entries.IcmpTypeCode.Code"),
        ("entry.icmp.type", "Entries.IcmpTypeCode.Type"),
        ("entry.ipv6-cidr", "Entries.Ipv6CidrBlock"),
        ("entry.port-range.from", "Entries.PortRange.From"),
        ("entry.port-range.to", "Entries.PortRange.To"),
        ("entry.protocol", "Entries.Protocol"),
        ("entry.rule-action", "Entries.RuleAction"),
        ("entry.egress", "Entries.Egress"),
        ("entry.rule-number", "Entries.RuleNumber"),
        ("network-acl-id", "NetworkAclId"),
        ("owner-id", "OwnerId"),
        ("vpc-id", "VpcId"),
    ],
    result: "NetworkAcls",
};

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "network-acl")?;
    let vpc_id = get(&region.vpcs, request.need("VpcId")?)?.vpc_id.clone();
    let network_acl_id = region.ids.id("acl");
    let acl = NetworkAcl {
        network_acl_id,
        owner_id: region.account.clone(),
        vpc_id,
        is_default: false,
        entries: defaults::default_entries(false),
        associations: Vec::new(),
        tags,
    };
    let shown = show(&acl);
    region.acls.insert(acl);
    Ok(json!({"NetworkAcl": shown, "ClientToken": request.text("ClientToken")}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    LISTING.describe(request, &Source::new(&region.acls))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("NetworkAclId")?;
    let acl = get(&region.acls, id)?;
    if acl.is_default {
        let message = format!("The default network ACL '{id}' cannot be deleted");
        return Err(ApiError::invalid(message));
    }
    if !acl.associations.is_empty() {
        let message = format!("The network ACL '{id}' has dependencies and cannot be deleted.");
        return Err(ApiError::in_use(message));
    }
    region.acls.remove(id);
    success()
}

/// Returns the number of a protocol as text.
fn protocol(text: &str) -> ApiResult<String> {
    Ok(match plain_number(text.to_ascii_lowercase()).as_str() {
        "-1" | "all" => "-1".to_owned(),
        "tcp" => "6".to_owned(),
        "udp" => "17".to_owned(),
        "icmp" => "1".to_owned(),
        "icmpv6" => "58".to_owned(),
        text if text.parse::<u8>().is_ok() => text.to_owned(),
        _ => {
            let message = format!("Invalid value '{text}' for protocol");
            return Err(ApiError::invalid(message));
        }
    })
}

fn entry(request: &Request) -> ApiResult<NetworkAclEntry> {
    let number = request.number("RuleNumber").ok_or_else(|| ApiError::missing("RuleNumber"))?;
    if !(1..defaults::FINAL_RULE).contains(&number) {
        let message = format!("Invalid value '{number}' for rule number. It is 1 to 32766");
        return Err(ApiError::invalid(message));
    }
    let protocol = protocol(request.need("Protocol")?)?;
    let v4 = request.text("CidrBlock").map(|text| ipv4_block(text, "cidrBlock")).transpose()?;
    let v6 = request.text("Ipv6CidrBlock").map(|t| ipv6_block(t, "ipv6CidrBlock")).transpose()?;
    match (v4, v6) {
        (None, None) => return Err(ApiError::missing("cidrBlock")),
        (Some(_), Some(_)) => {
            let message = "Only one of cidrBlock and ipv6CidrBlock can be given";
            return Err(ApiError::combination(message));
        }
        _ => {}
    }
    let has_ports = ["6", "17"].contains(&protocol.as_str());
    let port_range = match request.part("PortRange") {
        Some(range) if has_ports => {
            let port = |name: &str| range[name].as_i64().filter(|p| (0..=65_535).contains(p));
            match (port("From"), port("To")) {
                (Some(from), Some(to)) if from <= to => Some(PortRange { from, to }),
                _ => return Err(ApiError::invalid("Invalid TCP/UDP port range")),
            }
        }
        None if has_ports => return Err(ApiError::missing("portRange")),
        _ => None,
    };
    let icmp_type_code = match request.part("IcmpTypeCode") {
        Some(of) if ["1", "58"].contains(&protocol.as_str()) => {
            let number = |name: &str| of[name].as_i64().filter(|n| (-1..=255).contains(n));
            match (number("Type"), number("Code")) {
                (Some(kind), Some(code)) => Some(IcmpTypeCode { r#type: kind, code }),
                _ => return Err(ApiError::invalid("Invalid ICMP type or code")),
            }
        }
        None if protocol == "1" || protocol == "58" => {
            return Err(ApiError::missing("icmpTypeCode.code"));
        }
        _ => None,
    };
    Ok(NetworkAclEntry {
        rule_number: number,
        egress: request.flag("Egress").ok_or_else(|| ApiError::missing("Egress"))?,
        protocol,
        rule_action: request.need("RuleAction")?.to_owned(),
        cidr_block: v4,
        ipv6_cidr_block: v6,
        port_range,
        icmp_type_code,
    })
}

fn no_entry(egress: bool, number: i64, id: &str) -> ApiError {
    let direction = if egress { "egress" } else { "ingress" };
    let message =
        format!("The specified {direction} network ACL entry {number} does not exist in {id}.");
    ApiError::new("InvalidNetworkAclEntry.NotFound", message)
}

fn put_entry(region: &mut Region, request: &Request, replace: bool) -> ApiResult<Value> {
    let acl = get_mut(&mut region.acls, request.need("NetworkAclId")?)?;
    let entry = entry(request)?;
    let same =
        |old: &NetworkAclEntry| (old.egress, old.rule_number) == (entry.egress, entry.rule_number);
    let exists = acl.entries.iter().any(same);
    if exists && !replace {
        let message =
            format!("The network acl entry identified by {} already exists.", entry.rule_number);
        return Err(ApiError::new("NetworkAclEntryAlreadyExists", message));
    }
    if replace && !exists {
        return Err(no_entry(entry.egress, entry.rule_number, &acl.network_acl_id));
    }
    acl.entries.retain(|old| !same(old));
    let number = acl.entries.iter().filter(|old| old.egress == entry.egress).count();
    if number > ENTRIES_MAX {
        let message = format!("A network ACL has at most {ENTRIES_MAX} entries in a direction");
        return Err(ApiError::limit("NetworkAclEntryLimitExceeded", message));
    }
    acl.entries.push(entry);
    acl.entries.sort_by_key(|entry| (!entry.egress, entry.rule_number));
    success()
}

fn delete_entry(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let acl = get_mut(&mut region.acls, request.need("NetworkAclId")?)?;
    let number = request.number("RuleNumber").ok_or_else(|| ApiError::missing("RuleNumber"))?;
    let egress = request.flag("Egress") == Some(true);
    if number == defaults::FINAL_RULE {
        let message = "The final rule of a network ACL cannot be deleted";
        return Err(ApiError::invalid(message));
    }
    let before = acl.entries.len();
    acl.entries.retain(|entry| (entry.egress, entry.rule_number) != (egress, number));
    if acl.entries.len() == before {
        return Err(no_entry(egress, number, &acl.network_acl_id));
    }
    success()
}

fn replace_association(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("AssociationId")?;
    let is = |a: &crate::state::network::NetworkAclAssociation| a.network_acl_association_id == id;
    let old = region.acls.find(|acl| acl.associations.iter().any(is));
    let old = old.ok_or_else(|| not_found("aclassoc", id))?.clone();
    let to = get(&region.acls, request.need("NetworkAclId")?)?;
    if to.vpc_id != old.vpc_id {
        let message = format!("The networkAcl {} belongs to another VPC", to.network_acl_id);
        return Err(ApiError::invalid(message));
    }
    let to = to.network_acl_id.clone();
    let new_id = region.ids.id("aclassoc");
    let from = get_mut(&mut region.acls, &old.network_acl_id)?;
    let Some(at) = from.associations.iter().position(is) else {
        return Err(not_found("aclassoc", id));
    };
    let mut association = from.associations.remove(at);
    association.network_acl_association_id.clone_from(&new_id);
    association.network_acl_id.clone_from(&to);
    get_mut(&mut region.acls, &to)?.associations.push(association);
    Ok(json!({"NewAssociationId": new_id}))
}
