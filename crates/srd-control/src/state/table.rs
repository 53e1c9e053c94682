//! Tables of objects with an undo log.
//!
//! A request works on the tables directly. The log keeps the former value of each changed row, so
//! that a failed request is undone, and the keys that a successful request changed are passed to
//! the store.
//!
//! A table also finds some objects without a look at all rows: those that refer to another object
//! ([`Row::links`]), for example the interfaces of an instance, and those that use a number
//! ([`Row::ranges`]), for example an address of a subnet.
//!
//! A row is a shared object. A change replaces the object, and leaves others that share it alone;
//! an undone change brings the former object back. So an object of [`Table::shared`] has changed
//! if and only if it is another one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Tag;

/// A row of a table.
pub trait Row: Clone + Serialize + DeserializeOwned {
    /// Prefix of identifiers, for example `vpc` for `vpc-0123`. It names the table in the store.
    const PREFIX: &'static str;
    /// The identifier.
    fn id(&self) -> &str;
    /// Identifiers of other objects by which [`Table::linked`] finds this object.
    fn links(&self) -> impl Iterator<Item = &str> {
        std::iter::empty::<&str>()
    }
    /// Ranges of numbers that this object uses, for example addresses: the group of the numbers,
    /// and the first and the last number.
    fn ranges(&self) -> impl Iterator<Item = (&str, u128, u128)> {
        std::iter::empty::<(&str, u128, u128)>()
    }
    /// Number of bytes that count for a limit of all rows; see [`Table::bytes`].
    fn bytes(&self) -> usize {
        0
    }
}

/// An object of a region: it has an identifier and tags.
pub trait Object: Row {
    /// Resource type in tag specifications, for example `vpc`.
    const RESOURCE: &'static str;
    /// The tags.
    fn tags(&self) -> &[Tag];
    /// The tags, to change them.
    fn tags_mut(&mut self) -> &mut Vec<Tag>;
}

/// Former value of a row: `None` if the row did not exist.
type Former<T> = Option<(u64, Arc<T>)>;

/// Objects of one kind in the order of their creation.
#[derive(Clone, Debug)]
pub struct Table<T> {
    rows: BTreeMap<u64, Arc<T>>,
    index: BTreeMap<String, u64>,
    next: u64,
    undo: BTreeMap<String, Former<T>>,
    /// Rows by the identifiers in [`Row::links`], without the loose rows.
    links: BTreeMap<String, BTreeSet<u64>>,
    /// The ranges in [`Row::ranges`] of each group, without those of the loose rows.
    ranges: BTreeMap<String, Ranges>,
    /// Sum of [`Row::bytes`], without the loose rows.
    bytes: usize,
    /// Rows that a caller of [`Table::get_mut`] may have changed.
    loose: BTreeSet<u64>,
}

/// Last numbers of ranges, by first number and row.
type Ranges = BTreeMap<(u128, u64), u128>;

/// No rows.
static NO_ROWS: BTreeSet<u64> = BTreeSet::new();
/// No ranges.
static NO_RANGES: Ranges = BTreeMap::new();

/// A changed row: its identifier, and its record for the store, or `None` if it was removed.
pub type Change = (String, Option<String>);

/// Returns the record of a row for the store: the prefix, the number of the row, and the row in
/// JSON, each separated by a space.
fn record<T: Row>(row: u64, value: &T) -> Result<String, String> {
    let json = serde_json::to_string(value).map_err(|error| error.to_string())?;
    Ok(format!("{} {row} {json}", T::PREFIX))
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            index: BTreeMap::new(),
            next: 1,
            undo: BTreeMap::new(),
            links: BTreeMap::new(),
            ranges: BTreeMap::new(),
            bytes: 0,
            loose: BTreeSet::new(),
        }
    }
}

impl<T: Row> Table<T> {
    /// Returns the object in a row.
    fn at(&self, row: u64) -> Option<&T> {
        self.rows.get(&row).map(|object| &**object)
    }

    /// Puts an object into a row, in place of the object that is there.
    fn set(&mut self, row: u64, object: Arc<T>) {
        self.unset(row);
        self.rows.insert(row, object);
        self.fasten(row);
    }

    /// Removes and returns the object in a row.
    fn unset(&mut self, row: u64) -> Option<Arc<T>> {
        self.loosen(row);
        self.loose.remove(&row);
        self.rows.remove(&row)
    }

    /// Removes the links, the ranges and the bytes of a row.
    fn loosen(&mut self, row: u64) {
        let Some(object) = self.rows.get(&row).filter(|_| self.loose.insert(row)) else { return };
        self.bytes -= object.bytes();
        for id in object.links() {
            if let Some(rows) = self.links.get_mut(id) {
                rows.remove(&row);
                if rows.is_empty() {
                    self.links.remove(id);
                }
            }
        }
        for (group, first, _) in object.ranges() {
            if let Some(ranges) = self.ranges.get_mut(group) {
                ranges.remove(&(first, row));
                if ranges.is_empty() {
                    self.ranges.remove(group);
                }
            }
        }
    }

    /// Adds the links, the ranges and the bytes of a row.
    fn fasten(&mut self, row: u64) {
        let Some(object) = self.rows.get(&row) else { return };
        self.bytes += object.bytes();
        for id in object.links() {
            self.links.entry(id.to_owned()).or_default().insert(row);
        }
        for (group, first, last) in object.ranges() {
            self.ranges.entry(group.to_owned()).or_default().insert((first, row), last);
        }
    }

    fn remember(&mut self, id: &str) {
        if !self.undo.contains_key(id) {
            let former = self.shared_row(id).map(|(row, object)| (row, Arc::clone(object)));
            self.undo.insert(id.to_owned(), former);
        }
    }

    /// Adds an object, or replaces the object with the same identifier.
    pub fn insert(&mut self, object: T) {
        let id = object.id().to_owned();
        self.remember(&id);
        let row = *self.index.entry(id).or_insert(self.next);
        self.next = self.next.max(row + 1);
        self.set(row, Arc::new(object));
    }

    /// Adds an object that the store had kept under this row number. The undo log does not change.
    ///
    /// # Errors
    /// If another object has this number or this identifier.
    pub fn restore(&mut self, row: u64, object: T) -> Result<(), String> {
        self.share(row, Arc::new(object))
    }

    /// Adds an object of another table under this row number. The undo log does not change.
    ///
    /// # Errors
    /// If another object has this number or this identifier.
    pub fn share(&mut self, row: u64, object: Arc<T>) -> Result<(), String> {
        if self.rows.contains_key(&row) || self.index.contains_key(object.id()) {
            return Err(format!("another object has the row {row} or `{}`", object.id()));
        }
        self.index.insert(object.id().to_owned(), row);
        self.next = self.next.max(row.saturating_add(1));
        self.set(row, object);
        Ok(())
    }

    /// Adds or replaces an object that another controller has stored under this row number. The
    /// undo log remembers the former object.
    ///
    /// # Errors
    /// If another object has this number.
    pub fn put(&mut self, row: u64, object: T) -> Result<(), String> {
        let id = object.id().to_owned();
        if self.rows.get(&row).is_some_and(|other| other.id() != id) {
            return Err(format!("another object than `{id}` has the row {row}"));
        }
        self.remember(&id);
        if let Some(old) = self.index.insert(id, row) {
            self.unset(old);
        }
        self.next = self.next.max(row.saturating_add(1));
        self.set(row, Arc::new(object));
        Ok(())
    }

    /// Adds an object with this identifier and row number from JSON, by [`Self::restore`] if
    /// `is_new` is set and by [`Self::put`] otherwise.
    ///
    /// # Errors
    /// If the text is no such object, or another object has its row.
    pub fn read(&mut self, id: &str, row: u64, json: &str, is_new: bool) -> Result<(), String> {
        let object: T = serde_json::from_str(json).map_err(|error| error.to_string())?;
        if object.id() != id {
            return Err(format!("the record is the one of `{}`", object.id()));
        }
        if is_new { self.restore(row, object) } else { self.put(row, object) }
    }

    /// Returns the object with this identifier.
    pub fn get(&self, id: &str) -> Option<&T> {
        self.index.get(id).and_then(|row| self.at(*row))
    }

    /// Returns the object with this identifier, with the number of its row.
    pub fn row(&self, id: &str) -> Option<(u64, &T)> {
        let row = *self.index.get(id)?;
        Some((row, self.at(row)?))
    }

    /// Returns the shared object with this identifier, with the number of its row.
    pub fn shared_row(&self, id: &str) -> Option<(u64, &Arc<T>)> {
        let row = *self.index.get(id)?;
        Some((row, self.rows.get(&row)?))
    }

    /// Returns the object with this identifier, to change it.
    pub fn get_mut(&mut self, id: &str) -> Option<&mut T> {
        let row = *self.index.get(id)?;
        self.remember(id);
        self.loosen(row);
        self.rows.get_mut(&row).map(Arc::make_mut)
    }

    /// The objects that refer to the object with this identifier, in the order of their creation.
    pub fn linked(&self, id: &str) -> impl Iterator<Item = &T> {
        let rows = self.links.get(id).unwrap_or(&NO_ROWS).union(&self.loose);
        let objects = rows.filter_map(|row| self.at(*row));
        objects.filter(move |object| object.links().any(|link| link == id))
    }

    /// Identifiers of the objects that refer to the object with this identifier.
    pub fn linked_ids(&self, id: &str) -> Vec<String> {
        self.linked(id).map(|object| object.id().to_owned()).collect()
    }

    /// Returns an object that uses a number from `first` to `last` of a group. `size`: largest
    /// number of numbers of a range.
    pub fn user(&self, group: &str, first: u128, last: u128, size: u128) -> Option<&T> {
        let ranges = self.ranges.get(group).unwrap_or(&NO_RANGES);
        let begin = first.saturating_sub(size - 1);
        let mut near = ranges.range((begin, 0)..=(last, u64::MAX));
        let found = near.find(|(_, end)| **end >= first).map(|((_, row), _)| row);
        let meets = |of: (&str, u128, u128)| of.0 == group && of.1 <= last && of.2 >= first;
        let is_user = |row: &&u64| self.at(**row).is_some_and(|of| of.ranges().any(meets));
        let found = found.or_else(|| self.loose.iter().find(is_user));
        found.and_then(|row| self.at(*row))
    }

    /// The ranges of a group that objects use: first and last number, in the order of the first.
    pub fn used(&self, group: &str) -> impl Iterator<Item = (u128, u128)> {
        let loose = self.loose.iter().filter_map(|row| self.at(*row));
        let loose = loose.flat_map(|object| object.ranges()).filter(|of| of.0 == group);
        let mut loose: Vec<(u128, u128)> = loose.map(|(_, first, last)| (first, last)).collect();
        loose.sort_unstable();
        let mut loose = loose.into_iter().peekable();
        let ranges = self.ranges.get(group).unwrap_or(&NO_RANGES).iter();
        let mut ranges = ranges.map(|((first, _), last)| (*first, *last)).peekable();
        std::iter::from_fn(move || match (loose.peek(), ranges.peek()) {
            (Some(of), Some(next)) if of < next => loose.next(),
            (Some(_), None) => loose.next(),
            _ => ranges.next(),
        })
    }

    /// Removes and returns the object with this identifier.
    pub fn remove(&mut self, id: &str) -> Option<T> {
        if !self.index.contains_key(id) {
            return None;
        }
        self.remember(id);
        let row = self.index.remove(id)?;
        self.unset(row).map(Arc::unwrap_or_clone)
    }

    /// The objects in the order of their creation.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.rows.values().map(|object| &**object)
    }

    /// The objects with their row numbers, in the order of their creation.
    pub fn rows(&self) -> impl Iterator<Item = (u64, &T)> {
        self.rows.iter().map(|(row, object)| (*row, &**object))
    }

    /// The shared objects with their row numbers, in the order of their creation.
    pub fn shared(&self) -> impl Iterator<Item = (u64, &Arc<T>)> {
        self.rows.iter().map(|(row, object)| (*row, object))
    }

    /// Returns the first object that meets the condition.
    pub fn find(&self, condition: impl Fn(&T) -> bool) -> Option<&T> {
        self.iter().find(|object| condition(object))
    }

    /// Returns the identifiers of the objects that meet the condition.
    pub fn ids_where(&self, condition: impl Fn(&T) -> bool) -> Vec<String> {
        self.iter().filter(|object| condition(object)).map(|o| o.id().to_owned()).collect()
    }

    /// Returns the sum of [`Row::bytes`] of all rows. The sum is kept while rows change.
    pub fn bytes(&self) -> usize {
        let loose = self.loose.iter().filter_map(|row| self.at(*row));
        self.bytes + loose.map(Row::bytes).sum::<usize>()
    }

    /// Returns the number of objects in the table.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Undoes all changes since the last [`Self::commit`].
    pub fn rollback(&mut self) {
        let undo = std::mem::take(&mut self.undo);
        // All changes are removed first, because objects may have exchanged their rows.
        for id in undo.keys() {
            if let Some(row) = self.index.remove(id) {
                self.unset(row);
            }
        }
        for (id, former) in undo {
            if let Some((row, value)) = former {
                self.index.insert(id, row);
                self.set(row, value);
            }
        }
    }

    /// Whether rows have changed since the last [`Self::commit`].
    pub fn is_changed(&self) -> bool {
        !self.undo.is_empty()
    }

    /// Whether the changes since the last [`Self::commit`] leave more rows than there were, and
    /// more than this number.
    pub fn has_grown_beyond(&self, max: usize) -> bool {
        let count = |former: bool| {
            let is = |(id, old): &(&String, &Former<T>)| {
                old.is_some() == former && self.index.contains_key(*id) != former
            };
            self.undo.iter().filter(is).count()
        };
        self.len() > max && count(false) > count(true)
    }

    /// The changed rows with their new records.
    ///
    /// # Errors
    /// If an object cannot be written as JSON.
    pub fn changes(&self) -> Result<Vec<Change>, String> {
        let change = |id: &String| {
            let record = self.row(id).map(|(row, value)| record(row, value)).transpose()?;
            Ok((id.clone(), record))
        };
        self.undo.keys().map(change).collect()
    }

    /// The identifiers and records of all rows.
    ///
    /// # Errors
    /// If an object cannot be written as JSON.
    pub fn records(&self) -> Result<Vec<(String, String)>, String> {
        self.rows().map(|(row, value)| Ok((value.id().to_owned(), record(row, value)?))).collect()
    }

    /// The changed rows: former and new object.
    pub fn changed(&self) -> impl Iterator<Item = (Option<&T>, Option<&T>)> {
        self.undo.iter().map(|(id, former)| (former.as_ref().map(|(_, v)| &**v), self.get(id)))
    }

    /// Keeps all changes.
    pub fn commit(&mut self) {
        self.undo.clear();
        for row in std::mem::take(&mut self.loose) {
            self.fasten(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::InternetGateway;

    fn gateway(id: &str) -> InternetGateway {
        InternetGateway {
            internet_gateway_id: id.to_owned(),
            owner_id: "1".to_owned(),
            attachments: Vec::new(),
            tags: Vec::new(),
        }
    }

    #[test]
    fn a_rollback_restores_rows_and_their_order() {
        let mut table = Table::default();
        for id in ["igw-c", "igw-a", "igw-b"] {
            table.insert(gateway(id));
        }
        assert_eq!(table.changes().unwrap().len(), 3);
        table.commit();
        table.remove("igw-c");
        table.get_mut("igw-a").unwrap().owner_id = "2".to_owned();
        table.insert(gateway("igw-d"));
        table.remove("igw-d");
        table.insert(gateway("igw-c"));
        assert_eq!(table.changed().count(), 3);
        assert!(!table.has_grown_beyond(2));
        table.insert(gateway("igw-e"));
        assert!(table.has_grown_beyond(2));
        assert!(!table.has_grown_beyond(4));
        table.remove("igw-a");
        assert!(!table.has_grown_beyond(2));
        table.rollback();
        assert!(!table.is_changed());
        let ids: Vec<&str> = table.iter().map(Row::id).collect();
        assert_eq!(ids, ["igw-c", "igw-a", "igw-b"]);
        assert!(table.iter().all(|gateway| gateway.owner_id == "1"));
    }

    #[test]
    fn a_change_replaces_a_shared_object_and_a_rollback_brings_it_back() {
        let mut table = Table::default();
        table.insert(gateway("igw-a"));
        table.commit();
        let shared = |of: &Table<InternetGateway>| Arc::clone(of.shared_row("igw-a").unwrap().1);
        let first = shared(&table);
        table.get_mut("igw-a").unwrap().owner_id = "2".to_owned();
        let second = shared(&table);
        table.get_mut("igw-a").unwrap().owner_id = "3".to_owned();
        assert!(!Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&second, &shared(&table)));
        assert_eq!((first.owner_id.as_str(), second.owner_id.as_str()), ("1", "2"));
        table.rollback();
        assert!(Arc::ptr_eq(&first, &shared(&table)));
        table.insert(gateway("igw-a"));
        assert!(!Arc::ptr_eq(&first, &shared(&table)));
        let mut other = Table::default();
        other.share(7, shared(&table)).unwrap();
        assert!(other.share(8, shared(&table)).is_err());
        other.get_mut("igw-a").unwrap().owner_id = "4".to_owned();
        assert_eq!(table.get("igw-a").unwrap().owner_id, "1");
    }

    /// An object with a link and up to two ranges.
    #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
    struct Linked {
        id: String,
        to: Option<String>,
        ranges: Vec<(u128, u128)>,
    }

    impl Row for Linked {
        const PREFIX: &'static str = "linked";
        fn id(&self) -> &str {
            &self.id
        }
        fn links(&self) -> impl Iterator<Item = &str> {
            self.to.as_deref().into_iter()
        }
        fn ranges(&self) -> impl Iterator<Item = (&str, u128, u128)> {
            let group = self.to.as_deref().unwrap_or_default();
            self.ranges.iter().map(move |(first, last)| (group, *first, *last))
        }
        fn bytes(&self) -> usize {
            self.ranges.len()
        }
    }

    /// Compares what a table finds with a search through all rows.
    fn check(table: &Table<Linked>, group: &str, step: u32) {
        let is = |of: &&Linked| of.to.as_deref() == Some(group);
        let searched: Vec<&str> = table.iter().filter(is).map(Row::id).collect();
        let linked: Vec<&str> = table.linked(group).map(Row::id).collect();
        assert_eq!(linked, searched, "step {step}");
        assert_eq!(table.bytes(), table.iter().map(Row::bytes).sum::<usize>(), "step {step}");
        let mut searched: Vec<(u128, u128)> =
            table.iter().filter(is).flat_map(|of| of.ranges.clone()).collect();
        searched.sort_unstable();
        let mut used: Vec<(u128, u128)> = table.used(group).collect();
        assert!(used.is_sorted_by_key(|(first, _)| *first), "step {step}");
        used.sort_unstable();
        assert_eq!(used, searched, "step {step}");
        for number in 0..20 {
            let meets = |of: &(u128, u128)| of.0 <= number + 1 && of.1 >= number;
            let user = table.user(group, number, number + 1, 4);
            assert_eq!(user.is_some(), searched.iter().any(meets), "step {step}");
            assert!(user.is_none_or(|of| of.ranges.iter().any(meets)), "step {step}");
        }
    }

    #[test]
    fn objects_are_found_by_their_links_and_ranges_and_are_summed_after_each_change() {
        let mut ids = crate::state::IdGenerator::new(3);
        let mut number = |end: u64| ids.next_u64() % end;
        let mut table = Table::default();
        for step in 0..3000 {
            let to = number(4);
            let to = (to > 0).then(|| format!("to-{to}"));
            let ranges: Vec<(u128, u128)> = (0..number(3))
                .map(|part| {
                    // The two ranges of an object do not begin at the same number.
                    let first = u128::from(number(8) * 2 + part);
                    (first, first + u128::from(number(4)))
                })
                .collect();
            let object = Linked { id: format!("linked-{}", number(12)), to, ranges };
            match number(10) {
                0..=3 => table.insert(object),
                4..=5 => drop(table.remove(&object.id)),
                6..=7 => {
                    if let Some(of) = table.get_mut(&object.id) {
                        *of = object;
                    }
                }
                8 => table.commit(),
                _ => table.rollback(),
            }
            ["to-1", "to-2", "to-3"].iter().for_each(|group| check(&table, group, step));
        }
        table.iter().map(|of| of.id.clone()).collect::<Vec<_>>().iter().for_each(|id| {
            table.remove(id);
        });
        table.commit();
        assert!(table.links.is_empty() && table.ranges.is_empty() && table.loose.is_empty());
    }

    #[test]
    fn objects_of_other_controllers_move_between_rows() {
        let mut table = Table::default();
        table.restore(3, gateway("igw-a")).unwrap();
        assert!(table.restore(3, gateway("igw-b")).is_err());
        assert!(table.restore(4, gateway("igw-a")).is_err());
        table.put(7, gateway("igw-a")).unwrap();
        assert!(table.put(7, gateway("igw-b")).is_err());
        table.put(5, gateway("igw-b")).unwrap();
        let rows: Vec<_> = table.rows().map(|(row, of)| (row, of.id().to_owned())).collect();
        assert_eq!(rows, [(5, "igw-b".to_owned()), (7, "igw-a".to_owned())]);
        table.insert(gateway("igw-c"));
        assert_eq!(table.rows().last().unwrap().0, 8);
        table.rollback();
        let rows: Vec<_> = table.rows().map(|(row, of)| (row, of.id())).collect();
        assert_eq!(rows, [(3, "igw-a")]);
    }
}
