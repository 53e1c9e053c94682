//! The state as keys and values of a store.

use std::collections::BTreeMap;

use crate::hosts::record;
use crate::state::{Cloud, IdGenerator, Region};
use crate::store::{KeyChange, copy};

/// Prefix of the keys of objects.
const OBJECT: &str = "object/";
/// Prefix of the keys of access keys.
const ACCESS: &str = "access/";

fn object_key(account: &str, region: &str, id: &str) -> String {
    format!("{OBJECT}{account}/{region}/{id}")
}

/// The key of an access key.
pub(super) fn access_key(id: &str) -> String {
    format!("{ACCESS}{id}")
}

/// Returns the changes of all regions since their last commit.
pub(super) fn changes(cloud: &Cloud) -> Result<Vec<KeyChange>, String> {
    let mut changes = Vec::new();
    for ((account, name), region) in &cloud.regions {
        let of_region = region.changes()?.into_iter();
        changes.extend(of_region.map(|(id, record)| (object_key(account, name, &id), record)));
    }
    Ok(changes)
}

/// Returns the state that a store contains.
pub(super) fn load(all: Vec<(String, String)>, ids: &mut IdGenerator) -> Result<Cloud, String> {
    copy::check(&all)?;
    let mut cloud = Cloud::default();
    for (key, value) in all {
        take(&mut cloud, &key, Some(&value), ids, true)
            .map_err(|error| format!("the store contains `{key}`: {error}"))?;
    }
    Ok(cloud)
}

/// Makes changes of other controllers. The undo logs remember the former objects.
pub(super) fn follow(
    cloud: &mut Cloud,
    changes: Vec<KeyChange>,
    ids: &mut IdGenerator,
) -> Result<(), String> {
    for (key, value) in changes {
        take(cloud, &key, value.as_deref(), ids, false)
            .map_err(|error| format!("the store contains `{key}`: {error}"))?;
    }
    Ok(())
}

fn take(
    cloud: &mut Cloud,
    key: &str,
    value: Option<&str>,
    ids: &mut IdGenerator,
    is_new: bool,
) -> Result<(), String> {
    if key.starts_with(record::PREFIX) {
        return cloud.hosts.read(key, value);
    }
    if let Some(id) = key.strip_prefix(ACCESS) {
        return match value {
            Some(value) => cloud.keys.read(id, value),
            None => {
                cloud.keys.remove(id);
                Ok(())
            }
        };
    }
    let mut parts = key.strip_prefix(OBJECT).unwrap_or_default().splitn(3, '/');
    let (Some(account), Some(name), Some(id)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("the key has none of the forms of keys".to_owned());
    };
    let at = (account.to_owned(), name.to_owned());
    let region = cloud
        .regions
        .entry(at)
        .or_insert_with(|| Region::empty(account, name, IdGenerator::new(ids.next_u64())));
    match value {
        Some(value) => {
            region.read(id, value, is_new)?;
            if is_new {
                region.ids.keep(value);
            }
        }
        None => region.forget(id),
    }
    Ok(())
}

/// Returns the changes that lead from a state to the content of a store, removals first.
pub(super) fn difference(
    cloud: &Cloud,
    all: Vec<(String, String)>,
) -> Result<Vec<KeyChange>, String> {
    copy::check(&all)?;
    let mut known = BTreeMap::new();
    for ((account, name), region) in &cloud.regions {
        let records = region.records()?.into_iter();
        known.extend(records.map(|(id, record)| (object_key(account, name, &id), record)));
    }
    for id in cloud.keys.ids() {
        known.insert(access_key(id), cloud.keys.record(id).unwrap_or_default());
    }
    known.extend(cloud.hosts.records());
    let is_new = |(key, value): &(String, String)| match known.remove(key) {
        Some(record) => record != *value,
        None => true,
    };
    let new: Vec<(String, String)> = all.into_iter().filter(is_new).collect();
    let removed = known.into_keys().map(|key| (key, None));
    Ok(removed.chain(new.into_iter().map(|(key, value)| (key, Some(value)))).collect())
}
