//! The tables of the hosts of a region.
//!
//! ```text
//!  region --needs--> units --excerpts--> objects --part, check--> tables of each unit
//!                      |                                               |
//!                      +----- units of each host ----------- add ------+--> tables of each host
//! ```
//!
//! The tables of a unit are made, and read as a host reads them, only if one of the objects on
//! which they depend has changed. If only rules of groups have changed, the tables of their groups
//! are made and read, and the others stay as they are. The tables of a host with several units are
//! put together only if the tables of a unit have changed. Hosts share tables. Every result is
//! found by the inputs from which it was made, and keeps these alive, so it is never used for other
//! inputs.
//!
//! Bounds: only the results of the last call are kept: one for each unit that a host needs, and one
//! for each combination of units. Each has at most the bytes of
//! [`srd_enrol::cloud::TABLES_BYTES_MAX`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use srd_enrol::CloudTables;
use srd_vpc_file::GroupCheck;

use crate::project::excerpt::{Excerpt, excerpts};
use crate::project::needs::needs;
use crate::project::part::{Part, part, part_of_groups};
use crate::state::Region;

/// The tables of a unit.
#[derive(Debug)]
struct Unit {
    /// The objects from which the tables were made.
    from: Excerpt,
    tables: Arc<CloudTables>,
    groups: Arc<GroupCheck>,
}

/// Tables that a host accepts, and the check of other tables of their groups.
type Checked = (Arc<CloudTables>, Arc<GroupCheck>);

impl Unit {
    fn checked(&self) -> Checked {
        (Arc::clone(&self.tables), Arc::clone(&self.groups))
    }

    /// Makes the tables of groups whose rules have changed. Returns the tables of the unit with
    /// these, and warnings about them; `None` if other objects have changed, or if the acceptance
    /// by a host depends on more than these tables.
    fn with_rules(
        &self,
        region: &Region,
        from: &Excerpt,
        vpcs: &BTreeSet<&str>,
    ) -> Option<(Checked, Vec<String>)> {
        let groups = self.from.changed_groups(from)?;
        let Part { tables: new, warnings } = part_of_groups(region, vpcs, &groups).ok()?;
        if new.iter().all(|(name, text)| self.tables.get(name) == Some(text)) {
            return Some((self.checked(), warnings));
        }
        if !self.groups.accepts(&new.text()) {
            return None;
        }
        let mut tables = CloudTables::clone(&self.tables);
        tables.add(&new).ok()?;
        Some(((Arc::new(tables), Arc::clone(&self.groups)), warnings))
    }
}

/// The tables of several units together.
#[derive(Debug)]
struct Union {
    /// The tables of the units.
    #[expect(dead_code, reason = "the addresses of these tables stay in use")]
    from: Vec<Arc<CloudTables>>,
    tables: Arc<CloudTables>,
}

impl Union {
    fn new(from: Vec<Arc<CloudTables>>) -> Result<Self, String> {
        let mut tables = CloudTables::default();
        from.iter().try_for_each(|unit| tables.add(unit))?;
        Ok(Self { from, tables: Arc::new(tables) })
    }
}

/// The tables that a region needs, which are made again if their objects change.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// Units by their VPCs.
    units: BTreeMap<BTreeSet<String>, Unit>,
    /// Unions by the addresses of the tables of their units, which stay in use as long as the
    /// union.
    unions: BTreeMap<Vec<usize>, Arc<Union>>,
    /// Number of units whose tables were made.
    made: u64,
    /// Number of these units of which all tables were made and read.
    read: u64,
}

/// The tables of the hosts of a region.
#[derive(Debug)]
pub(super) struct HostTables<'a> {
    /// Each host with running instances of the region, and its tables.
    pub(super) hosts: Vec<(&'a str, Arc<CloudTables>)>,
    /// Contents of the state that new tables do not express, one sentence for each.
    pub(super) warnings: Vec<String>,
}

impl Texts {
    /// Returns the tables of each host with running instances of the region.
    ///
    /// # Errors
    /// If a host would refuse the tables. The next call goes on from the former tables.
    pub(super) fn make<'a>(&mut self, region: &'a Region) -> Result<HostTables<'a>, String> {
        let needs = needs(region);
        let mut made = HostTables { hosts: Vec::new(), warnings: Vec::new() };
        let (mut units, mut all) = (BTreeMap::new(), Vec::new());
        for (vpcs, from) in needs.units.iter().zip(excerpts(region, &needs.units)) {
            let key: BTreeSet<String> = vpcs.iter().map(|vpc| (*vpc).to_owned()).collect();
            let former = self.units.get(&key);
            let (tables, groups) = match former {
                Some(unit) if unit.from.is_same(&from) => unit.checked(),
                _ => {
                    self.made += 1;
                    let changed = former.and_then(|unit| unit.with_rules(region, &from, vpcs));
                    let (checked, warnings) = match changed {
                        Some(changed) => changed,
                        None => {
                            self.read += 1;
                            whole(region, (&from, vpcs), former)?
                        }
                    };
                    made.warnings.extend(warnings);
                    checked
                }
            };
            all.push(Arc::clone(&tables));
            units.insert(key, Unit { from, tables, groups });
        }
        let mut unions = BTreeMap::new();
        for (host, numbers) in needs.hosts {
            let of_units = numbers.iter().map(|number| Arc::clone(&all[*number])).collect();
            made.hosts.push((host, self.together(of_units, &mut unions)?));
        }
        (self.units, self.unions) = (units, unions);
        Ok(made)
    }

    /// Returns the tables of several units together. `unions`: the unions of this call.
    ///
    /// # Errors
    /// If there are more tables than a host can have.
    fn together(
        &self,
        units: Vec<Arc<CloudTables>>,
        unions: &mut BTreeMap<Vec<usize>, Arc<Union>>,
    ) -> Result<Arc<CloudTables>, String> {
        if let [only] = &units[..] {
            return Ok(Arc::clone(only));
        }
        let key: Vec<usize> = units.iter().map(|unit| Arc::as_ptr(unit).addr()).collect();
        if let Some(union) = unions.get(&key) {
            return Ok(Arc::clone(&union.tables));
        }
        let union = match self.unions.get(&key) {
            Some(union) => Arc::clone(union),
            None => Arc::new(Union::new(units)?),
        };
        let tables = Arc::clone(&union.tables);
        unions.insert(key, union);
        Ok(tables)
    }
}

/// Makes the tables of a unit, and reads them as a host does. Returns them, with warnings about
/// them. Tables that are equal to those of the `former` unit are the former ones.
///
/// # Errors
/// If a host would refuse the tables.
fn whole(
    region: &Region,
    (from, vpcs): (&Excerpt, &BTreeSet<&str>),
    former: Option<&Unit>,
) -> Result<(Checked, Vec<String>), String> {
    let Part { tables, warnings } = part(&from.region(region)?, vpcs)?;
    let file = srd_vpc_file::parse(&tables.text(), Path::new("the state"))
        .map_err(|error| format!("the hosts cannot have this: {error}"))?;
    let tables = match former {
        Some(unit) if *unit.tables == tables => Arc::clone(&unit.tables),
        _ => Arc::new(tables),
    };
    Ok(((tables, Arc::new(GroupCheck::new(&file))), warnings))
}

#[cfg(test)]
mod tests;
