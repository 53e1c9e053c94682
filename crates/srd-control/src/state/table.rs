//! Tables of objects with an undo log.
//!
//! A request works on the tables directly. The log keeps the former value of each changed row, so
//! that a failed request is undone, and the keys that a successful request changed are passed to
//! the store.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Tag;

/// A row of a table.
pub trait Row: Clone + Serialize + DeserializeOwned {
    /// Prefix of identifiers, for example `vpc` for `vpc-0123`. It names the table in the store.
    const PREFIX: &'static str;
    /// The identifier.
    fn id(&self) -> &str;
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
type Former<T> = Option<(u64, T)>;

/// Objects of one kind in the order of their creation.
#[derive(Clone, Debug)]
pub struct Table<T> {
    rows: BTreeMap<u64, T>,
    index: BTreeMap<String, u64>,
    next: u64,
    undo: BTreeMap<String, Former<T>>,
}

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
        Self { rows: BTreeMap::new(), index: BTreeMap::new(), next: 1, undo: BTreeMap::new() }
    }
}

impl<T: Row> Table<T> {
    fn remember(&mut self, id: &str) {
        if !self.undo.contains_key(id) {
            let former = self.index.get(id).and_then(|row| Some((*row, self.rows.get(row)?)));
            let former = former.map(|(row, value)| (row, value.clone()));
            self.undo.insert(id.to_owned(), former);
        }
    }

    /// Adds an object, or replaces the object with the same identifier.
    pub fn insert(&mut self, object: T) {
        let id = object.id().to_owned();
        self.remember(&id);
        let row = *self.index.entry(id).or_insert(self.next);
        self.next = self.next.max(row + 1);
        self.rows.insert(row, object);
    }

    /// Adds an object that the store had kept under this row number. The undo log does not change.
    ///
    /// # Errors
    /// If another object has this number or this identifier.
    pub fn restore(&mut self, row: u64, object: T) -> Result<(), String> {
        if self.rows.contains_key(&row) || self.index.contains_key(object.id()) {
            return Err(format!("another object has the row {row} or `{}`", object.id()));
        }
        self.index.insert(object.id().to_owned(), row);
        self.next = self.next.max(row.saturating_add(1));
        self.rows.insert(row, object);
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
            self.rows.remove(&old);
        }
        self.next = self.next.max(row.saturating_add(1));
        self.rows.insert(row, object);
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
        self.index.get(id).and_then(|row| self.rows.get(row))
    }

    /// Returns the object with this identifier, to change it.
    pub fn get_mut(&mut self, id: &str) -> Option<&mut T> {
        let row = *self.index.get(id)?;
        self.remember(id);
        self.rows.get_mut(&row)
    }

    /// Removes and returns the object with this identifier.
    pub fn remove(&mut self, id: &str) -> Option<T> {
        if !self.index.contains_key(id) {
            return None;
        }
        self.remember(id);
        let row = self.index.remove(id)?;
        self.rows.remove(&row)
    }

    /// The objects in the order of their creation.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.rows.values()
    }

    /// The objects with their row numbers, in the order of their creation.
    pub fn rows(&self) -> impl Iterator<Item = (u64, &T)> {
        self.rows.iter().map(|(row, value)| (*row, value))
    }

    /// Returns the first object that meets the condition.
    pub fn find(&self, condition: impl Fn(&T) -> bool) -> Option<&T> {
        self.iter().find(|object| condition(object))
    }

    /// Returns the identifiers of the objects that meet the condition.
    pub fn ids_where(&self, condition: impl Fn(&T) -> bool) -> Vec<String> {
        self.iter().filter(|object| condition(object)).map(|o| o.id().to_owned()).collect()
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
        for (id, former) in std::mem::take(&mut self.undo) {
            if let Some(row) = self.index.remove(&id) {
                self.rows.remove(&row);
            }
            if let Some((row, value)) = former {
                self.index.insert(id, row);
                self.rows.insert(row, value);
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
            let row = self.index.get(id).and_then(|row| Some((*row, self.rows.get(row)?)));
            let record = row.map(|(row, value)| record(row, value)).transpose()?;
            Ok((id.clone(), record))
        };
        self.undo.keys().map(change).collect()
    }

    /// The identifiers and records of all rows.
    ///
    /// # Errors
    /// If an object cannot be written as JSON.
    pub fn records(&self) -> Result<Vec<(String, String)>, String> {
        let all = self.rows.iter();
        all.map(|(row, value)| Ok((value.id().to_owned(), record(*row, value)?))).collect()
    }

    /// The changed rows: former and new object.
    pub fn changed(&self) -> impl Iterator<Item = (Option<&T>, Option<&T>)> {
        self.undo.iter().map(|(id, former)| (former.as_ref().map(|(_, v)| v), self.get(id)))
    }

    /// Keeps all changes.
    pub fn commit(&mut self) {
        self.undo.clear();
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
