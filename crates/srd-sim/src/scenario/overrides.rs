//! Overrides of values in a scenario: `key=value`, with a dotted path as the key.

use toml::{Table, Value};

use super::{Scenario, ScenarioError};

/// An override of one value in a scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct Override {
    path: Vec<String>,
    value: Value,
}

impl std::str::FromStr for Override {
    type Err = ScenarioError;

    /// Parses text such as `workload.0.bytes=65536`. The value is parsed as TOML; if this fails, it
    /// is a string.
    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let fail = || ScenarioError(format!("`{text}` is not of the form key.path=value"));
        let (path, value) = text.split_once('=').ok_or_else(fail)?;
        let path: Vec<String> = path.trim().split('.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            return Err(fail());
        }
        let parsed = toml::from_str::<Table>(&format!("v = {value}"));
        let value = match parsed.ok().and_then(|mut table| table.remove("v")) {
            Some(value) => value,
            None => Value::String(value.trim().to_owned()),
        };
        Ok(Self { path, value })
    }
}

/// Applies overrides to a scenario's table, in their order, and parses the result.
pub(super) fn apply(table: Table, overrides: &[Override]) -> Result<Scenario, String> {
    let mut root = Value::Table(table);
    for change in overrides {
        let mut place = &mut root;
        let mut walked = String::new();
        for (depth, key) in change.path.iter().enumerate() {
            let last = depth + 1 == change.path.len();
            place = step(place, key, last).map_err(|what| {
                format!("override `{}`: {what} in `{walked}`", change.path.join("."))
            })?;
            if !walked.is_empty() {
                walked.push('.');
            }
            walked.push_str(key);
        }
        *place = change.value.clone();
    }
    let text = toml::to_string(&root).map_err(|e| e.to_string())?;
    toml::from_str(&text).map_err(|e| format!("with the overrides applied: {e}"))
}

/// Returns the value under a key of a table or list. If the key is missing in a table, creates a
/// table, or, if the key is the `last`, space for the value.
fn step<'a>(place: &'a mut Value, key: &str, last: bool) -> Result<&'a mut Value, String> {
    match place {
        Value::Table(table) => {
            let fresh = if last { Value::Boolean(false) } else { Value::Table(Table::new()) };
            Ok(table.entry(key).or_insert(fresh))
        }
        Value::Array(items) => {
            let count = items.len();
            let index = key.parse::<usize>().ok().filter(|&i| i < count);
            let missing = format!("there is no `{key}` among {count} entries");
            index.and_then(|i| items.get_mut(i)).ok_or(missing)
        }
        _ => Err(format!("there is no `{key}`: it is a value")),
    }
}
