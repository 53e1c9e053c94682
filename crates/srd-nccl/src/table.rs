//! Table of objects with checked handles. Bound: [`OBJECTS_MAX`].

use std::sync::{Arc, PoisonError, RwLock};

use crate::{Fault, Outcome};

/// Largest number of objects in a table.
pub const OBJECTS_MAX: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 18;
/// Bits of a handle: slot and generation. The caller may use the other bits of a 64-bit number.
pub const HANDLE_BITS: u32 = 40;
const GENERATION_MASK: u64 = (1 << (HANDLE_BITS - INDEX_BITS)) - 1;
/// Position of the tag of a table in the first generation of its slots.
const TAG_SHIFT: u32 = HANDLE_BITS - INDEX_BITS - u8::BITS;

#[derive(Debug)]
struct Entry<T> {
    /// Generation of the slot, which increases when an object is removed. It is never zero, so that
    /// no handle is zero.
    generation: u64,
    object: Option<Arc<T>>,
}

#[derive(Debug)]
struct State<T> {
    entries: Vec<Entry<T>>,
    free: Vec<usize>,
    /// First generation of each slot.
    first: u64,
}

/// Table of objects, each under its handle.
#[derive(Debug)]
pub struct Table<T>(RwLock<State<T>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T> Table<T> {
    /// Returns an empty table. Tables with different tags have no handle in common, as long as no
    /// slot is used again 2^14 times.
    #[must_use]
    pub fn new(tag: u8) -> Self {
        let first = u64::from(tag) << TAG_SHIFT | 1;
        Self(RwLock::new(State { entries: Vec::new(), free: Vec::new(), first }))
    }

    /// Adds an object. Returns its handle, which is above zero and below 2^[`HANDLE_BITS`].
    ///
    /// # Errors
    /// A [`Fault`], if the table is full.
    pub fn add(&self, object: Arc<T>) -> Outcome<u64> {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let at = match state.free.pop() {
            Some(at) => at,
            None if state.entries.len() < OBJECTS_MAX => {
                let generation = state.first;
                state.entries.push(Entry { generation, object: None });
                state.entries.len() - 1
            }
            None => return Err(Fault::system(format!("more than {OBJECTS_MAX} objects are open"))),
        };
        let entry = &mut state.entries[at];
        entry.generation = (entry.generation & GENERATION_MASK).max(1);
        entry.object = Some(object);
        Ok(entry.generation << INDEX_BITS | at as u64)
    }

    /// Returns the object of a handle.
    #[must_use]
    pub fn find(&self, handle: u64) -> Option<Arc<T>> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let entry = state.entries.get(place(handle))?;
        entry.object.clone().filter(|_| entry.generation == handle >> INDEX_BITS)
    }

    /// Removes an object. After that its handle is invalid.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let at = place(handle);
        let entry = state.entries.get_mut(at)?;
        if entry.generation != handle >> INDEX_BITS {
            return None;
        }
        let object = entry.object.take()?;
        entry.generation += 1;
        state.free.push(at);
        Some(object)
    }
}

fn place(handle: u64) -> usize {
    usize::try_from(handle & ((1 << INDEX_BITS) - 1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process and its forked child had the same handles, so that the child could close an object
    /// of its own by a handle of its parent.
    #[test]
    fn regression_tables_with_different_tags_have_no_handle_in_common() {
        let tables = [0, 1, 255].map(Table::new);
        let handles = tables.each_ref().map(|table| table.add(Arc::new(())).unwrap());
        for (at, table) in tables.iter().enumerate() {
            let found = handles.map(|handle| table.find(handle).is_some());
            assert_eq!(found, [0, 1, 2].map(|own| own == at));
        }
        assert!(handles.iter().all(|handle| *handle < 1 << HANDLE_BITS));
    }

    #[test]
    fn a_handle_means_its_object_until_that_is_removed() {
        let table = Table::new(0);
        let one = table.add(Arc::new(1)).unwrap();
        let two = table.add(Arc::new(2)).unwrap();
        assert_eq!((table.find(one).as_deref(), table.find(two).as_deref()), (Some(&1), Some(&2)));
        assert_eq!(table.remove(one).as_deref(), Some(&1));
        assert_eq!((table.find(one), table.remove(one)), (None, None));
        let three = table.add(Arc::new(3)).unwrap();
        assert_ne!(one, three);
        assert_eq!((table.find(one), table.find(three).as_deref()), (None, Some(&3)));
        assert_eq!((table.find(0), table.find(u64::MAX)), (None, None));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let table = Table::new(0);
        let object = Arc::new(());
        let first = table.add(Arc::clone(&object)).unwrap();
        for _ in 1..OBJECTS_MAX {
            assert!(table.add(Arc::clone(&object)).unwrap() < 1 << HANDLE_BITS);
        }
        assert!(table.add(Arc::clone(&object)).is_err());
        table.remove(first);
        assert!(table.add(object).is_ok());
    }
}
