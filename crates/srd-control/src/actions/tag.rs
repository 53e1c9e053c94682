//! Actions of the EC2 API on tags.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::list::{Filter, Filters, Page};
use super::support::{is_reserved, put_tags, read_tags, success};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::Region;
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateTags", Handler::Region(create)),
    ("DeleteTags", Handler::Region(delete)),
    ("DescribeTags", Handler::Region(describe)),
];

/// Largest number of objects of a request.
const RESOURCES_MAX: usize = 1000;

const FILTERS: Filters = &[
    ("key", "Key"),
    ("resource-id", "ResourceId"),
    ("resource-type", "ResourceType"),
    ("value", "Value"),
];

fn resources(request: &Request) -> ApiResult<Vec<&str>> {
    let resources = request.texts("Resources");
    if resources.is_empty() {
        return Err(ApiError::missing("resourceIdSet"));
    }
    if resources.len() > RESOURCES_MAX {
        let message = format!("A request names at most {RESOURCES_MAX} resources");
        return Err(ApiError::invalid(message));
    }
    Ok(resources)
}

fn no_such(id: &str) -> ApiError {
    let kind = id.rsplit_once('-').map_or(id, |(kind, _)| kind);
    let error = super::support::not_found(kind, id);
    let digits = id.rsplit_once('-').map_or("", |(_, digits)| digits);
    let is_well_formed = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if error.code == "InvalidID" || !is_well_formed {
        return ApiError::new("InvalidID", format!("The ID '{id}' is not valid"));
    }
    error
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = read_tags(&request.list("Tags").to_vec().into())?;
    if tags.is_empty() {
        return Err(ApiError::missing("tagSet"));
    }
    for id in resources(request)? {
        let put = region.with_tags(id, |old| put_tags(old, tags.clone()));
        put.ok_or_else(|| no_such(id))??;
    }
    success()
}

/// Removes the tags with the key, and with the value if the request gives a value. Without tags in
/// the request, all tags are removed, except those of the service.
fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = request.list("Tags");
    let mut named: BTreeMap<&str, Vec<Option<&str>>> = BTreeMap::new();
    for tag in tags {
        let key = tag["Key"].as_str().unwrap_or_default();
        if is_reserved(key) {
            let message = "Tag keys starting with 'aws:' are reserved for internal use";
            return Err(ApiError::invalid(message));
        }
        named.entry(key).or_default().push(tag["Value"].as_str());
    }
    for id in resources(request)? {
        let removed = region.with_tags(id, |old| {
            old.retain(|old| {
                let is_named = named.get(old.key.as_str()).is_some_and(|values| {
                    values.iter().any(|value| value.is_none_or(|value| value == old.value))
                });
                is_reserved(&old.key) || !(is_named || tags.is_empty())
            });
        });
        removed.ok_or_else(|| no_such(id))?;
    }
    success()
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut all = region.all_tags();
    for filter in Filter::all(request, FILTERS)? {
        all.retain(|(id, resource, tag)| {
            let (key, value) = (tag.key.as_str(), tag.value.as_str());
            let own = std::iter::once((key, value));
            filter.accepts(own, |path, condition| match path {
                ["ResourceId"] => condition(id),
                ["ResourceType"] => condition(resource),
                ["Key"] => condition(key),
                _ => condition(value),
            })
        });
    }
    let id = |at: usize| format!("{} {}", all[at].0, all[at].2.key).into();
    let page = Page::of_ids(request, all.len(), id)?;
    let shown = all[page.shown.clone()].iter().map(|(id, resource, tag)| {
        json!({"ResourceId": id, "ResourceType": resource, "Key": tag.key, "Value": tag.value})
    });
    let shown = shown.collect();
    Ok(page.answer("Tags", shown))
}
