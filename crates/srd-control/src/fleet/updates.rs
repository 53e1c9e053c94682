//! Updates of the tables of hosts, which are found once for all hosts.
//!
//! Hosts share tables, so a change of a VPC leads all its hosts from the same tables to the same
//! other ones.
//!
//! Bounds: [`UPDATES_MAX`] updates are remembered, each with one section.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use srd_enrol::{CloudTables, CloudUpdate};

/// Largest number of remembered updates.
const UPDATES_MAX: usize = 16;

/// Sections of an update, with the generation 0.
type Sections = Arc<Vec<CloudUpdate>>;

/// The sections that lead from some tables to other ones.
#[derive(Debug)]
struct Update {
    /// Tables before and after the update. No other tables get their addresses as long as these
    /// references exist.
    ends: [Weak<CloudTables>; 2],
    sections: Sections,
}

/// The newest updates.
#[derive(Debug, Default)]
pub(super) struct Updates(VecDeque<Update>);

impl Updates {
    /// Returns the sections that lead from some tables to other ones.
    pub(super) fn between(&mut self, from: &Arc<CloudTables>, to: &Arc<CloudTables>) -> Sections {
        let addresses = [from, to].map(Arc::as_ptr);
        let is_meant = |known: &&Update| known.ends.each_ref().map(Weak::as_ptr) == addresses;
        if let Some(known) = self.0.iter().find(is_meant) {
            return Arc::clone(&known.sections);
        }
        let sections = Arc::new(to.since(Some(from.as_ref()), 0));
        if sections.len() == 1 {
            if self.0.len() >= UPDATES_MAX {
                self.0.pop_front();
            }
            let ends = [from, to].map(Arc::downgrade);
            self.0.push_back(Update { ends, sections: Arc::clone(&sections) });
        }
        sections
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_enrol::cloud::TABLE_BYTES_MAX;

    fn tables(text: &str) -> Arc<CloudTables> {
        let mut tables = CloudTables::default();
        tables.insert("group.\"a\"".to_owned(), text.to_owned()).unwrap();
        tables.insert("group.\"b\"".to_owned(), "same".to_owned()).unwrap();
        Arc::new(tables)
    }

    #[test]
    fn an_update_is_found_once_and_leads_to_its_own_tables() {
        let mut updates = Updates::default();
        let [a, b, c] = ["a", "b", "c"].map(tables);
        let first = updates.between(&a, &b);
        assert!(Arc::ptr_eq(&first, &updates.between(&a, &b)));
        for (from, to) in [(&a, &b), (&b, &c), (&a, &c), (&c, &a), (&b, &a), (&a, &b)] {
            let mut host = CloudTables::clone(from);
            for section in updates.between(from, to).iter().cloned() {
                host.take(section).unwrap();
            }
            assert_eq!(host, **to);
        }
    }

    #[test]
    fn the_newest_updates_are_remembered_also_if_their_tables_are_gone() {
        let mut updates = Updates::default();
        let from = tables("x");
        for number in 0..3 * UPDATES_MAX {
            let text = number.to_string();
            let sections = updates.between(&from, &tables(&text));
            assert_eq!(sections[0].changed, [("group.\"a\"".to_owned(), text)]);
            assert_eq!(updates.0.len(), UPDATES_MAX.min(number + 1));
        }
        assert!(updates.0.iter().all(|known| known.ends[1].strong_count() == 0));
    }

    #[test]
    fn an_update_of_several_sections_is_not_remembered() {
        let mut large = CloudTables::default();
        for number in 0..3 {
            large.insert(number.to_string(), "x".repeat(TABLE_BYTES_MAX - 8)).unwrap();
        }
        let mut updates = Updates::default();
        assert_eq!(updates.between(&Arc::default(), &Arc::new(large)).len(), 2);
        assert!(updates.0.is_empty());
    }
}
