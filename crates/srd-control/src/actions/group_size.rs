//! The largest number of rules of a security group. Blocks, prefix lists and groups count
//! differently.

use super::group;
use crate::error::{ApiError, ApiResult};
use crate::state::{PrefixList, Region, SecurityGroupRule};

/// Largest number of rules of a group in one direction, for IPv4 and for IPv6.
pub(super) const RULES_MAX: usize = 60;

/// Checks the number of a group's rules in a direction together with new ones, for each version of
/// IP.
pub(super) fn check(
    region: &Region,
    group: &str,
    egress: bool,
    new: &[SecurityGroupRule],
) -> ApiResult<()> {
    let number = |version: &str| -> usize {
        let rules = group::rules(region, group, egress).chain(new);
        rules.map(|rule| weight(region, rule, version)).sum()
    };
    if number("IPv4") <= RULES_MAX && number("IPv6") <= RULES_MAX {
        return Ok(());
    }
    Err(too_many())
}

/// The error for too many rules.
pub(super) fn too_many() -> ApiError {
    let message = "The maximum number of rules per security group has been reached.";
    ApiError::limit("RulesPerSecurityGroupLimitExceeded", message)
}

/// Returns as how many rules for a version of IP a rule counts. A block and a prefix list are of
/// one version. A list counts as many times as it may have entries. A rule with a group counts for
/// both versions.
fn weight(region: &Region, rule: &SecurityGroupRule, version: &str) -> usize {
    match (rule.cidr_ipv4, rule.cidr_ipv6, &rule.prefix_list_id) {
        (Some(_), ..) => usize::from(version == "IPv4"),
        (_, Some(_), _) => usize::from(version == "IPv6"),
        (_, _, Some(list)) => {
            let list = region.prefix_lists.get(list);
            list.filter(|list| list.address_family == version).map_or(0, entries_max)
        }
        _ => 1,
    }
}

/// Largest number of entries of a list. Lists of the provider do not change.
fn entries_max(list: &PrefixList) -> usize {
    let entries = list.versions.last().map_or(0, Vec::len);
    list.max_entries.and_then(|max| usize::try_from(max).ok()).unwrap_or(entries)
}
