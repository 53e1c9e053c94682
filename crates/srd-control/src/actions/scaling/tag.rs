//! Actions on the tags of groups. Instances that run already keep theirs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::check::{self, TAGS_MAX, invalid};
use super::view::page;
use crate::actions::list::{self, Filters};
use crate::actions::support::show;
use crate::actions::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::Region;
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateOrUpdateTags", Handler::Region(put)),
    ("DeleteTags", Handler::Region(delete)),
    ("DescribeTags", Handler::Region(describe)),
];

const FILTERS: Filters = &[
    ("auto-scaling-group", "ResourceId"),
    ("key", "Key"),
    ("propagate-at-launch", "PropagateAtLaunch"),
    ("value", "Value"),
];

/// Returns the tags of a request by the groups that they name.
fn by_group(request: &Request) -> ApiResult<BTreeMap<&str, Vec<Value>>> {
    let mut groups: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for tag in request.list("Tags") {
        let name = tag["ResourceId"].as_str().ok_or_else(|| ApiError::missing("ResourceId"))?;
        groups.entry(name).or_default().push(tag.clone());
    }
    Ok(groups)
}

fn put(region: &mut Region, request: &Request) -> ApiResult<Value> {
    for (name, tags) in by_group(request)? {
        let mut group = check::group(region, name)?.clone();
        let mut of = request.clone();
        of.parameters.insert("Tags".to_owned(), tags.into());
        for new in check::tags(name, &of)? {
            match group.tags.iter_mut().find(|old| old.key == new.key) {
                Some(old) => *old = new,
                None => group.tags.push(new),
            }
        }
        if group.tags.len() > TAGS_MAX {
            return Err(invalid(format!("A group has at most {TAGS_MAX} tags")));
        }
        region.scaling_groups.insert(group);
    }
    Ok(json!({}))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    for (name, tags) in by_group(request)? {
        let mut group = check::group(region, name)?.clone();
        group.tags.retain(|old| !tags.iter().any(|tag| tag["Key"] == *old.key));
        region.scaling_groups.insert(group);
    }
    Ok(json!({}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = region.scaling_groups.iter().flat_map(|group| &group.tags);
    let shown = tags.map(|tag| {
        let mut shown = show(tag);
        shown["Id"] = format!("{}:{}", tag.resource_id, tag.key).into();
        shown
    });
    let shown = list::filter(request, FILTERS, shown.collect())?;
    page(request, "Tags", "Id", shown)
}
