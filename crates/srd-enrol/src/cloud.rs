//! The part of a cloud that a host needs, as tables of a file that describes the cloud
//! (`docs/vpc.md`).
//!
//! ```text
//!  controller: tables --since--> updates --- session ---> take: tables --text--> file
//! ```
//!
//! The first update of a session is a snapshot. Each further one contains the tables that differ.
//! A large update is sent in several sections, of which the last one has `is_last`.
//!
//! Bounds: a table has at most [`TABLE_BYTES_MAX`] bytes, a host has at most [`TABLES_MAX`] tables
//! with at most [`TABLES_BYTES_MAX`] bytes, and the tables of a section have at most
//! [`SECTION_BYTES_MAX`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Largest table, with its name, in bytes.
pub const TABLE_BYTES_MAX: usize = 256 << 10;
/// Largest number of tables of a host.
pub const TABLES_MAX: usize = 1 << 16;
/// Largest sum of the tables of a host, in bytes.
pub const TABLES_BYTES_MAX: usize = 48 << 20;
/// Largest sum of the tables of a section, in bytes. As JSON, they have at most twice as many.
pub const SECTION_BYTES_MAX: usize = 512 << 10;
/// Beginning of the names of tables that no host accepts. Such a table would choose a directory of
/// the host, in which root writes files.
const REFUSED: &str = "flow_log";

/// A section of an update.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CloudUpdate {
    /// Generation after the update.
    pub generation: u64,
    /// Whether all earlier tables are removed first.
    pub is_snapshot: bool,
    /// Whether the update is complete with this section.
    pub is_last: bool,
    /// New and changed tables: the name with its kind, as in the header, and the content. The name
    /// of the keys before the first table is empty.
    pub changed: Vec<(String, String)>,
    /// Names of tables that are gone.
    pub removed: Vec<String>,
}

/// Contents of tables by the names of the tables.
type Contents = BTreeMap<String, String>;

/// Tables by their names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CloudTables {
    tables: Contents,
    bytes: usize,
}

fn bytes_of(name: &str, text: &str) -> usize {
    name.len() + text.len()
}

/// Returns the names of tables that are gone, and the new and changed tables. Both maps are read
/// once, in their order.
fn difference<'a>(
    former: &'a Contents,
    present: &'a Contents,
) -> (Vec<&'a String>, Vec<(&'a String, &'a String)>) {
    let (mut removed, mut changed) = (Vec::new(), Vec::new());
    let mut former = former.iter().peekable();
    for (name, text) in present {
        while let Some((gone, _)) = former.next_if(|(of, _)| *of < name) {
            removed.push(gone);
        }
        let own = former.next_if(|(of, _)| *of == name);
        if own.is_none_or(|(_, of)| of != text) {
            changed.push((name, text));
        }
    }
    removed.extend(former.map(|(gone, _)| gone));
    (removed, changed)
}

impl CloudTables {
    /// Adds a table, or replaces it.
    ///
    /// # Errors
    /// If the table is not accepted, or a bound is exceeded.
    pub fn insert(&mut self, name: String, text: String) -> Result<(), String> {
        let bytes = bytes_of(&name, &text);
        if name.starts_with(REFUSED) {
            return Err(format!("the table [{name}] is not accepted from a controller"));
        }
        if bytes > TABLE_BYTES_MAX {
            return Err(format!(
                "the table [{name}] has {bytes} bytes, and {TABLE_BYTES_MAX} are the most"
            ));
        }
        self.remove(&name);
        if self.tables.len() >= TABLES_MAX {
            return Err(format!("a host has more than {TABLES_MAX} tables"));
        }
        if self.bytes + bytes > TABLES_BYTES_MAX {
            return Err(format!("the tables of a host have more than {TABLES_BYTES_MAX} bytes"));
        }
        self.bytes += bytes;
        self.tables.insert(name, text);
        Ok(())
    }

    /// Removes a table.
    pub fn remove(&mut self, name: &str) {
        if let Some(text) = self.tables.remove(name) {
            self.bytes -= bytes_of(name, &text);
        }
    }

    /// Adds the tables of another part of the cloud, and replaces tables of the same names.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn add(&mut self, other: &Self) -> Result<(), String> {
        let mut new = other.tables.iter();
        new.try_for_each(|(name, text)| self.insert(name.clone(), text.clone()))
    }

    /// Returns the content of the table with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.tables.get(name).map(String::as_str)
    }

    /// The tables, each with its name and its content.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tables.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Whether there is no table.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Returns the tables as the text of a file.
    pub fn text(&self) -> String {
        let mut all = String::with_capacity(self.bytes + 4 * self.tables.len());
        for (name, text) in &self.tables {
            if !name.is_empty() {
                all.push_str("\n[");
                all.push_str(name);
                all.push_str("]\n");
            }
            all.push_str(text);
        }
        all
    }

    /// Returns the sections of an update that leads from earlier tables to these; `None` stands for
    /// a host whose tables are not known.
    pub fn since(&self, former: Option<&Self>, generation: u64) -> Vec<CloudUpdate> {
        let new = |is_snapshot| CloudUpdate {
            generation,
            is_snapshot,
            is_last: false,
            changed: Vec::new(),
            removed: Vec::new(),
        };
        let none = Contents::new();
        let (removed, changed) = difference(former.map_or(&none, |of| &of.tables), &self.tables);
        let mut sections = Vec::new();
        let (mut section, mut bytes) = (new(former.is_none()), 0);
        let tables = removed.into_iter().map(|name| (name, None));
        let changed = changed.into_iter().map(|(name, text)| (name, Some(text)));
        for (name, text) in tables.chain(changed) {
            let more = bytes_of(name, text.map_or("", String::as_str));
            if bytes + more > SECTION_BYTES_MAX {
                sections.push(std::mem::replace(&mut section, new(false)));
                bytes = 0;
            }
            bytes += more;
            match text {
                Some(text) => section.changed.push((name.clone(), text.clone())),
                None => section.removed.push(name.clone()),
            }
        }
        section.is_last = true;
        sections.push(section);
        sections
    }

    /// Makes the changes of a section.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn take(&mut self, section: CloudUpdate) -> Result<(), String> {
        if section.is_snapshot {
            *self = Self::default();
        }
        section.removed.iter().for_each(|name| self.remove(name));
        section.changed.into_iter().try_for_each(|(name, text)| self.insert(name, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{CONTROLLER_BYTES_MAX, encode};
    use crate::message::FromController;

    fn tables(all: &[(&str, &str)]) -> CloudTables {
        let mut tables = CloudTables::default();
        for (name, text) in all {
            tables.insert((*name).to_owned(), (*text).to_owned()).unwrap();
        }
        tables
    }

    #[test]
    fn a_snapshot_and_deltas_lead_to_the_tables_of_the_controller() {
        let first = tables(&[("", "region = \"r\"\n"), ("group.\"a\"", "x = 1\n")]);
        let second = tables(&[("", "region = \"r\"\n"), ("group.\"b\"", "x = 2\n")]);
        let mut host = tables(&[("group.\"old\"", "")]);
        for (former, new) in [(None, &first), (Some(&first), &second)] {
            for section in new.since(former, 7) {
                host.take(section).unwrap();
            }
            assert_eq!(&host, new);
        }
        assert_eq!(host.text(), "region = \"r\"\n\n[group.\"b\"]\nx = 2\n");
        let delta = second.since(Some(&first), 7);
        let [section] = &delta[..] else { panic!("{delta:?}") };
        assert_eq!(section.changed, [("group.\"b\"".to_owned(), "x = 2\n".to_owned())]);
        assert_eq!(section.removed, ["group.\"a\""]);
        assert_eq!(second.since(Some(&second), 8)[0].changed, []);
    }

    /// A state of five tables is a number with a bit for each table. The table `e` has another
    /// content in each state.
    #[test]
    fn an_update_has_the_tables_that_differ_and_no_others() {
        let names_of = |bits: u32| -> Vec<&'static str> {
            let all = ["a", "b", "c", "d", "e"].into_iter().enumerate();
            all.filter(|(at, _)| bits >> *at & 1 == 1).map(|(_, name)| name).collect()
        };
        let state = |bits: u32, content: &str| {
            let mut tables = CloudTables::default();
            for name in names_of(bits) {
                let text = if name == "e" { content } else { "" };
                tables.insert(name.to_owned(), text.to_owned()).unwrap();
            }
            tables
        };
        for bits in 0..1_u32 << 10 {
            let (former, present) = (bits & 31, bits >> 5);
            let update = state(present, "y").since(Some(&state(former, "x")), 1);
            let [section] = &update[..] else { panic!("{update:?}") };
            assert_eq!(section.removed, names_of(former & !present), "{bits}");
            let changed = section.changed.iter().map(|(name, _)| name.as_str());
            let changed: Vec<&str> = changed.collect();
            assert_eq!(changed, names_of(present & (!former | 1 << 4)), "{bits}");
        }
    }

    #[test]
    fn tables_of_several_parts_are_those_of_one() {
        let mut all = tables(&[("", "region = \"r\"\n"), ("vpc.\"a\"", "x = 1\n")]);
        all.add(&tables(&[("", "region = \"r\"\n"), ("vpc.\"b\"", "x = 2\n")])).unwrap();
        assert_eq!(all.text(), "region = \"r\"\n\n[vpc.\"a\"]\nx = 1\n\n[vpc.\"b\"]\nx = 2\n");
        let text = "x".repeat(TABLE_BYTES_MAX - 8);
        let mut full = CloudTables::default();
        for n in 0..TABLES_BYTES_MAX / TABLE_BYTES_MAX {
            full.insert(format!("{n:08}"), text.clone()).unwrap();
        }
        assert!(full.add(&all).unwrap_err().contains("have more than"));
    }

    /// Each byte of these tables needs two bytes in JSON.
    #[test]
    fn a_large_update_has_sections_that_fit_into_messages() {
        let text = "\"".repeat(TABLE_BYTES_MAX - 20);
        let names: Vec<String> = (0..9).map(|n| format!("group.\"{n}\"")).collect();
        let all: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*text)).collect();
        let large = tables(&all);
        let sections = large.since(None, 1);
        assert_eq!(sections.len(), 5);
        assert_eq!(sections.iter().filter(|section| section.is_last).count(), 1);
        assert!(sections[0].is_snapshot && sections[4].is_last);
        let mut host = CloudTables::default();
        for section in sections {
            encode(&FromController::Cloud(section.clone()), CONTROLLER_BYTES_MAX).unwrap();
            host.take(section).unwrap();
        }
        assert_eq!(host, large);
    }

    #[test]
    fn a_host_has_at_most_the_largest_number_of_tables() {
        let mut host = CloudTables::default();
        for n in 0..TABLES_MAX {
            host.insert(n.to_string(), String::new()).unwrap();
        }
        host.insert("0".to_owned(), "x = 1\n".to_owned()).unwrap();
        assert!(host.insert("a".to_owned(), String::new()).unwrap_err().contains("tables"));
        host.remove("0");
        host.insert("a".to_owned(), String::new()).unwrap();
    }

    #[test]
    fn tables_beyond_the_bounds_and_tables_with_directories_are_refused() {
        let mut host = CloudTables::default();
        let long = "x".repeat(TABLE_BYTES_MAX);
        assert!(host.insert("a".to_owned(), long).unwrap_err().contains("are the most"));
        let log = host.insert("flow_log.\"fl-1\"".to_owned(), String::new());
        assert!(log.unwrap_err().contains("not accepted"));
        let text = "x".repeat(TABLE_BYTES_MAX - 8);
        let most = TABLES_BYTES_MAX / TABLE_BYTES_MAX;
        for n in 0..most {
            host.insert(format!("{n:08}"), text.clone()).unwrap();
        }
        host.insert("00000000".to_owned(), text.clone()).unwrap();
        host.insert(String::new(), "x".to_owned()).unwrap_err();
        host.remove("00000000");
        host.insert(String::new(), "x".to_owned()).unwrap();
    }
}
