//! The part of a region that hosts need.
//!
//! Of the VPCs of its instances ([`super::needs`]), a host gets the running instances with their
//! hosts and interfaces, and the rules. Prefix lists, addresses and filters are left out unless
//! another table names them.

use std::collections::BTreeSet;

use srd_enrol::CloudTables;

use super::toml_text::Text;
use super::{Scope, network, write};
use crate::machines::RUNNING;
use crate::state::{NetworkInterface, Region};

/// Kinds of tables that are left out unless another table names them.
const NAMED_KINDS: [&str; 3] = ["prefix_list", "elastic_address", "mirror_filter"];

/// The part of a region that some hosts need.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// Tables of the file that describes the cloud.
    pub tables: CloudTables,
    /// Contents of the state that the tables do not express, one sentence for each.
    pub warnings: Vec<String>,
}

/// Returns the host on which the instance of an interface runs; `None` if it does not run on a
/// host.
pub(super) fn host_of<'a>(region: &'a Region, interface: &NetworkInterface) -> Option<&'a str> {
    let instance = interface.attachment.as_ref()?.instance_id.as_ref()?;
    let instance = region.instances.get(instance).filter(|i| i.state.code == RUNNING)?;
    instance.host.as_deref()
}

/// Returns the part that hosts need whose VPCs are these.
///
/// # Errors
/// If it is larger than the part of a host can be.
pub fn part(region: &Region, vpcs: &BTreeSet<&str>) -> Result<Part, String> {
    let mut scope = Scope::new(region, Some(vpcs));
    let text = write(&mut scope, None);
    let named: BTreeSet<&str> = text.tables().flat_map(|(_, content)| words(content)).collect();
    let is_needed = |name: &str, content: &str| {
        let (kind, id) = name.split_once('.').unwrap_or((name, ""));
        !NAMED_KINDS.contains(&kind)
            || named.contains(id.trim_matches('"'))
            || content.contains("\ninterface = ")
    };
    let mut tables = CloudTables::default();
    for (name, content) in text.tables().filter(|(name, content)| is_needed(name, content)) {
        tables.insert(name.to_owned(), content.to_owned())?;
    }
    Ok(Part { tables, warnings: scope.warnings })
}

/// Returns the tables that the part of these VPCs has for some groups.
///
/// # Errors
/// As [`part`].
pub fn part_of_groups(
    region: &Region,
    vpcs: &BTreeSet<&str>,
    groups: &BTreeSet<&str>,
) -> Result<Part, String> {
    let mut scope = Scope::of_vpcs(region, Some(vpcs));
    let mut text = Text::default();
    network::write_groups(&mut scope, &mut text, |group| groups.contains(group));
    let mut tables = CloudTables::default();
    for (name, content) in text.tables().filter(|(name, _)| !name.is_empty()) {
        tables.insert(name.to_owned(), content.to_owned())?;
    }
    Ok(Part { tables, warnings: scope.warnings })
}

/// The words of a text that may be identifiers.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.split(move |c| !is_part(c)).filter(|word| word.contains('-'))
}
