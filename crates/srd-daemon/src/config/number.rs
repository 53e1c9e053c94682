//! Reads whole numbers of the file, and checks their bounds.

use std::ops::RangeInclusive;

use toml::Spanned;

use srd_config::{ConfigError, Source};

/// Reads a whole number and checks its bounds. Returns `None` if the file does not set it.
pub(super) fn whole(
    source: &Source<'_>,
    value: Option<&Spanned<i64>>,
    key: &str,
    bounds: &RangeInclusive<i64>,
) -> Result<Option<i64>, ConfigError> {
    let Some(value) = value else { return Ok(None) };
    if bounds.contains(value.as_ref()) {
        return Ok(Some(*value.as_ref()));
    }
    let remedy = format!("write a number from {} to {}", bounds.start(), bounds.end());
    let what = format!("`{key}` cannot be {}", value.as_ref());
    Err(source.error(Some(value.span()), what, remedy))
}
