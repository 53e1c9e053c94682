//! Actions of the EC2 API on managed prefix lists.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::list::{self, Listing};
use super::support::{
    arn, get_live, get_mut, ipv4_block, ipv6_block, new_tags, not_found, show, trim,
};
use super::{Actions, Handler, group_size};
use crate::error::{ApiError, ApiResult};
use crate::state::network::PrefixListEntry;
use crate::state::{PrefixList, Region};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateManagedPrefixList", Handler::Region(create)),
    ("DescribeManagedPrefixLists", Handler::Region(describe)),
    ("DescribePrefixLists", Handler::Region(describe_provider)),
    ("GetManagedPrefixListEntries", Handler::Region(entries)),
    ("GetManagedPrefixListAssociations", Handler::Region(associations)),
    ("ModifyManagedPrefixList", Handler::Region(modify)),
    ("RestoreManagedPrefixListVersion", Handler::Region(restore)),
    ("DeleteManagedPrefixList", Handler::Region(delete)),
];

/// Largest number of entries of a list.
const ENTRIES_MAX: i64 = 1000;
/// Largest number of versions that are kept of a list.
const VERSIONS_MAX: usize = 1000;
/// Largest number of entries that one request adds or removes.
const CHANGES_MAX: usize = 100;

/// Reads entries of a request for a list of this family.
fn read(list: &[Value], family: &str) -> ApiResult<Vec<PrefixListEntry>> {
    if list.len() > CHANGES_MAX {
        let message = format!("A request adds or removes at most {CHANGES_MAX} entries");
        return Err(ApiError::limit("PrefixListMaxEntriesExceeded", message));
    }
    let mut entries: Vec<PrefixListEntry> = Vec::new();
    for of in list {
        let text = of["Cidr"].as_str().ok_or_else(|| ApiError::missing("Cidr"))?;
        let cidr = if family == "IPv6" {
            ipv6_block(text, "cidr")?.to_string()
        } else {
            ipv4_block(text, "cidr")?.to_string()
        };
        if entries.iter().any(|old| old.cidr == cidr) {
            return Err(ApiError::invalid(format!("The entry {cidr} is given twice")));
        }
        let description = of["Description"].as_str().map(str::to_owned);
        if description.as_ref().is_some_and(|text| text.chars().count() > 255) {
            return Err(ApiError::invalid("The description has at most 255 characters"));
        }
        entries.push(PrefixListEntry { cidr, description });
    }
    Ok(entries)
}

fn check_name(name: &str) -> ApiResult<()> {
    if name.starts_with("com.amazonaws") || name.chars().count() > 255 {
        let message = "The name has at most 255 characters and does not begin with com.amazonaws";
        return Err(ApiError::invalid(message));
    }
    Ok(())
}

fn check_size(entries: usize, max: i64) -> ApiResult<()> {
    if i64::try_from(entries).unwrap_or(i64::MAX) <= max {
        return Ok(());
    }
    let message = format!("The prefix list has more than {max} entries");
    Err(ApiError::limit("PrefixListMaxEntriesExceeded", message))
}

fn check_max(max: i64) -> ApiResult<i64> {
    if (1..=ENTRIES_MAX).contains(&max) {
        return Ok(max);
    }
    Err(ApiError::invalid(format!("MaxEntries is 1 to {ENTRIES_MAX}, not {max}")))
}

/// Returns a list as its description.
fn view(list: &PrefixList) -> Value {
    show(list)
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "prefix-list")?;
    let family = request.need("AddressFamily")?;
    if !["IPv4", "IPv6"].contains(&family) {
        let message = format!("Value ({family}) for parameter addressFamily is invalid.");
        return Err(ApiError::invalid(message));
    }
    let name = request.need("PrefixListName")?;
    check_name(name)?;
    let max = request.number("MaxEntries").ok_or_else(|| ApiError::missing("MaxEntries"))?;
    let max = check_max(max)?;
    let entries = read(request.list("Entries"), family)?;
    check_size(entries.len(), max)?;
    let id = region.ids.id("pl");
    let list = PrefixList {
        prefix_list_arn: arn(region, "prefix-list", &id),
        prefix_list_id: id,
        prefix_list_name: name.to_owned(),
        owner_id: region.account.clone(),
        address_family: family.to_owned(),
        state: "create-complete".to_owned(),
        max_entries: Some(max),
        version: Some(1),
        versions: vec![entries],
        tags,
    };
    let shown = view(&list);
    region.prefix_lists.insert(list);
    Ok(json!({"PrefixList": shown}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "PrefixListIds",
        id: "PrefixListId",
        not_found: |id| not_found("pl", id),
        filters: &[
            ("owner-id", "OwnerId"),
            ("prefix-list-id", "PrefixListId"),
            ("prefix-list-name", "PrefixListName"),
        ],
        result: "PrefixLists",
    };
    listing.answer(request, region.prefix_lists.iter().map(view).collect())
}

fn describe_provider(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let lists = region.prefix_lists.iter().filter(|list| list.owner_id == "AWS").map(|list| {
        let entries = list.versions.last().into_iter().flatten();
        json!({"PrefixListId": list.prefix_list_id, "PrefixListName": list.prefix_list_name,
               "Cidrs": entries.map(|entry| &entry.cidr).collect::<Vec<_>>()})
    });
    let listing = Listing {
        ids: "PrefixListIds",
        id: "PrefixListId",
        not_found: |id| not_found("pl", id),
        filters: &[("prefix-list-id", "PrefixListId"), ("prefix-list-name", "PrefixListName")],
        result: "PrefixLists",
    };
    listing.answer(request, lists.collect())
}

/// State of deleted lists, which are still shown.
pub(crate) const DELETED: &str = "delete-complete";

/// Returns a list that is not deleted.
pub(super) fn find<'a>(region: &'a Region, id: &str) -> ApiResult<&'a PrefixList> {
    get_live(&region.prefix_lists, id, |list| list.state != DELETED)
}

/// Returns the entries of a version.
fn version(list: &PrefixList, number: Option<i64>) -> ApiResult<&Vec<PrefixListEntry>> {
    let Some(number) = number else {
        return list.versions.last().ok_or_else(|| not_found("pl", &list.prefix_list_id));
    };
    let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
    at.and_then(|at| list.versions.get(at)).ok_or_else(|| {
        let message = format!("The version {number} of {} does not exist", list.prefix_list_id);
        ApiError::new("PrefixListVersionNotFound", message)
    })
}

fn entries(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let list = find(region, request.need("PrefixListId")?)?;
    let entries = version(list, request.number("TargetVersion"))?;
    list::page(request, "Entries", "Cidr", entries.iter().map(show).collect())
}

/// Objects that use a prefix list, each once.
fn users(region: &Region, id: &str) -> BTreeSet<String> {
    let rules = region.group_rules.iter();
    let rules = rules.filter(|rule| rule.prefix_list_id.as_deref() == Some(id));
    let tables = region.route_tables.iter().filter(|table| {
        table.routes.iter().any(|r| r.destination_prefix_list_id.as_deref() == Some(id))
    });
    let groups = rules.map(|rule| rule.group_id.clone());
    groups.chain(tables.map(|table| table.route_table_id.clone())).collect()
}

fn associations(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("PrefixListId")?;
    find(region, id)?;
    let users = users(region, id).into_iter();
    let shown = users.map(|user| json!({"ResourceId": user, "ResourceOwner": region.account}));
    list::page(request, "PrefixListAssociations", "ResourceId", shown.collect())
}

/// Returns the list of a request that may be changed. If the request gives a current version, it
/// must be the list's version.
fn own<'a>(
    region: &'a mut Region,
    request: &Request,
    current: &str,
) -> ApiResult<&'a mut PrefixList> {
    let id = request.need("PrefixListId")?;
    find(region, id)?;
    let list = get_mut(&mut region.prefix_lists, id)?;
    if list.owner_id == "AWS" {
        let message = "A prefix list of the provider cannot be changed";
        return Err(ApiError::new("OperationNotPermitted", message));
    }
    let given = request.number(current);
    if given.is_some() && given != list.version {
        let message = "The prefix list has the incorrect version number";
        return Err(ApiError::new("PrefixListVersionMismatch", message));
    }
    Ok(list)
}

fn modify(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let list = own(region, request, "CurrentVersion")?;
    if let Some(name) = request.text("PrefixListName") {
        check_name(name)?;
        name.clone_into(&mut list.prefix_list_name);
    }
    if let Some(max) = request.number("MaxEntries") {
        list.max_entries = Some(check_max(max)?);
    }
    let mut entries = list.versions.last().cloned().unwrap_or_default();
    for removed in read(request.list("RemoveEntries"), &list.address_family)? {
        let before = entries.len();
        entries.retain(|entry| entry.cidr != removed.cidr);
        if entries.len() == before {
            let message = format!("The entry {} does not exist", removed.cidr);
            return Err(ApiError::invalid(message));
        }
    }
    for added in read(request.list("AddEntries"), &list.address_family)? {
        match entries.iter_mut().find(|entry| entry.cidr == added.cidr) {
            Some(entry) => *entry = added,
            None => entries.push(added),
        }
    }
    check_size(entries.len(), list.max_entries.unwrap_or(ENTRIES_MAX))?;
    if request.has("AddEntries") || request.has("RemoveEntries") {
        add_version(list, entries)?;
    }
    "modify-complete".clone_into(&mut list.state);
    let shown = view(list);
    if request.has("MaxEntries") {
        check_groups(region, request.need("PrefixListId")?)?;
    }
    Ok(json!({"PrefixList": shown}))
}

/// Checks that the groups with rules for a list still have at most the largest number of rules.
fn check_groups(region: &Region, id: &str) -> ApiResult<()> {
    for group in users(region, id).iter().filter(|user| user.starts_with("sg-")) {
        for egress in [false, true] {
            group_size::check(region, group, egress, &[])?;
        }
    }
    Ok(())
}

fn add_version(list: &mut PrefixList, entries: Vec<PrefixListEntry>) -> ApiResult<()> {
    if list.versions.len() >= VERSIONS_MAX {
        let message = format!("A prefix list has at most {VERSIONS_MAX} versions");
        return Err(ApiError::limit("PrefixListVersionLimitExceeded", message));
    }
    list.versions.push(entries);
    list.version = i64::try_from(list.versions.len()).ok();
    Ok(())
}

fn restore(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let list = own(region, request, "CurrentVersion")?;
    let entries = version(list, request.number("PreviousVersion"))?.clone();
    check_size(entries.len(), list.max_entries.unwrap_or(ENTRIES_MAX))?;
    add_version(list, entries)?;
    "restore-complete".clone_into(&mut list.state);
    Ok(json!({"PrefixList": view(list)}))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("PrefixListId")?;
    let list = own(region, request, "")?;
    let mut shown = view(list);
    shown["State"] = "delete-in-progress".into();
    if !users(region, id).is_empty() {
        let message = format!("The prefix list '{id}' is in use");
        return Err(ApiError::in_use(message));
    }
    DELETED.clone_into(&mut get_mut(&mut region.prefix_lists, id)?.state);
    trim(&mut region.prefix_lists, |list| list.state == DELETED);
    Ok(json!({"PrefixList": shown}))
}
