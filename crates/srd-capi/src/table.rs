//! Table of objects with checked handles: a look-up with an invalid handle, or the handle of a
//! removed object, finds no object.
//!
//! ```text
//!  47    40 39                 16 15                0
//! +--------+---------------------+-------------------+
//! |  tag   |     generation      |       index       |
//! +--------+---------------------+-------------------+
//! ```
//!
//! A handle is never zero. Bound: the limit with which the table was created, which is at most
//! [`OBJECTS_MAX`].

use srd_efa::slots::{Key, Slots};

use crate::{Error, Outcome, Status};

/// Largest number of objects in a table.
pub const OBJECTS_MAX: u32 = (1 << INDEX_BITS) - 1;
const INDEX_BITS: u32 = 16;
const GENERATION_BITS: u32 = 24;

/// Objects by their handles.
#[derive(Debug)]
pub struct Table<T> {
    slots: Slots<T>,
    limit: u32,
    tag: u8,
}

impl<T> Table<T> {
    /// Returns an empty table for `limit` objects. Tables with different tags have no handle in
    /// common.
    #[must_use]
    pub fn new(limit: u32, tag: u8) -> Self {
        assert!(limit <= OBJECTS_MAX, "indices fit their bits");
        Self { slots: Slots::default(), limit, tag }
    }

    /// Adds an object. Returns its handle.
    ///
    /// # Errors
    /// `Full` if the table has reached its limit.
    pub fn add(&mut self, object: T) -> Outcome<usize> {
        let key = self.slots.insert(object, self.limit).ok_or_else(|| {
            let text = format!("{} endpoints are open: close one first", self.limit);
            Error::new(Status::Full, text)
        })?;
        let bits = key.to_bits();
        let (generation, index) = (bits >> 32, bits & u64::from(OBJECTS_MAX));
        let above = u64::from(self.tag) << GENERATION_BITS | generation;
        usize::try_from(above << INDEX_BITS | index).map_err(|_| Status::Full.into())
    }

    /// Returns the object of a handle.
    #[must_use]
    pub fn find(&self, handle: usize) -> Option<&T> {
        self.slots.get(self.key(handle)?)
    }

    /// Removes an object. Returns it.
    pub fn remove(&mut self, handle: usize) -> Option<T> {
        self.slots.remove(self.key(handle)?)
    }

    fn key(&self, handle: usize) -> Option<Key> {
        let handle = handle as u64;
        let (index, above) = (handle & u64::from(OBJECTS_MAX), handle >> INDEX_BITS);
        let (generation, tag) = (above & ((1 << GENERATION_BITS) - 1), above >> GENERATION_BITS);
        (tag == u64::from(self.tag)).then(|| Key::from_bits(generation << 32 | index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_with_other_tags_give_other_words() {
        let (mut one, mut other) = (Table::new(2, 0), Table::new(2, 1));
        let handles = (one.add('1').unwrap(), other.add('2').unwrap());
        assert_ne!(handles.0, handles.1);
        assert_eq!((one.find(handles.1), other.find(handles.0)), (None, None));
    }

    #[test]
    fn a_word_is_good_until_its_thing_is_taken_out() {
        let mut table = Table::new(8, 0);
        let (one, two) = (table.add('1').unwrap(), table.add('2').unwrap());
        assert!(one != 0 && one != two);
        assert_eq!((table.find(one), table.find(two)), (Some(&'1'), Some(&'2')));
        assert_eq!(table.remove(one), Some('1'));
        assert_eq!(table.find(one), None);
        assert_eq!(table.remove(one), None);
        let three = table.add('3').unwrap();
        assert_eq!((table.find(one), table.find(three)), (None, Some(&'3')));
        for handle in [0, 1, usize::MAX, 0x7ffd_1234_5678] {
            assert_eq!(table.find(handle), None, "{handle:x}");
        }
    }

    #[test]
    fn a_table_has_a_limit() {
        let mut table = Table::new(3, 0);
        let handles: Vec<usize> = (0..3).map(|object| table.add(object).unwrap()).collect();
        assert_eq!(table.add(3).unwrap_err().status, Status::Full);
        table.remove(handles[1]);
        let handle = table.add(3).unwrap();
        assert_eq!(table.find(handle), Some(&3));
    }
}
