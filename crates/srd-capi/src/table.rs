//! Things by a word that can be checked: what is gone, or never was, is not found.
//!
//! A word is a place and how often the place was used, never zero, and looks like no pointer:
//! places are in the lower 16 bits. Bound: as many as the table was made for, [`PLACES_MAX`] at
//! most.

use crate::{Error, Outcome, Status};

/// Places that a table may have.
pub const PLACES_MAX: usize = (1 << PLACE_BITS) - 1;
const PLACE_BITS: u32 = 16;

/// Things by their words.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    limit: usize,
    /// Where generations begin.
    first: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    thing: Option<T>,
}

impl<T> Table<T> {
    /// An empty table for `limit` things.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self::after(limit, 0)
    }

    /// The same, whose words are others than those of a table that begins elsewhere: for 16
    /// million uses of each place.
    #[must_use]
    pub const fn after(limit: usize, first: u32) -> Self {
        assert!(limit <= PLACES_MAX, "places fit their bits");
        Self { slots: Vec::new(), limit, first: first << 24 }
    }

    /// Adds a thing; its word.
    ///
    /// # Errors
    /// `Full` at the limit.
    pub fn add(&mut self, thing: T) -> Outcome<usize> {
        let free = self.slots.iter().position(|slot| slot.thing.is_none());
        let at = free.unwrap_or(self.slots.len());
        if at == self.limit {
            let text = format!("{} endpoints are open: close one first", self.limit);
            return Err(Error::new(Status::Full, text));
        }
        if at == self.slots.len() {
            self.slots.push(Slot { generation: self.first, thing: None });
        }
        let slot = &mut self.slots[at];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        slot.thing = Some(thing);
        Ok((slot.generation as usize) << PLACE_BITS | at)
    }

    /// The thing of a word.
    #[must_use]
    pub fn find(&self, word: usize) -> Option<&T> {
        let slot = self.slots.get(word & PLACES_MAX)?;
        slot.thing.as_ref().filter(|_| word >> PLACE_BITS == slot.generation as usize)
    }

    /// Takes a thing out.
    pub fn remove(&mut self, word: usize) -> Option<T> {
        self.find(word)?;
        self.slots.get_mut(word & PLACES_MAX)?.thing.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_begin_elsewhere_give_other_words() {
        let (mut one, mut other) = (Table::new(2), Table::after(2, 1));
        let words = (one.add('1').unwrap(), other.add('2').unwrap());
        assert_ne!(words.0, words.1);
        assert_eq!((one.find(words.1), other.find(words.0)), (None, None));
    }

    #[test]
    fn a_word_is_good_until_its_thing_is_taken_out() {
        let mut table = Table::new(8);
        let (one, two) = (table.add('1').unwrap(), table.add('2').unwrap());
        assert!(one != 0 && one != two);
        assert_eq!((table.find(one), table.find(two)), (Some(&'1'), Some(&'2')));
        assert_eq!(table.remove(one), Some('1'));
        assert_eq!(table.find(one), None);
        assert_eq!(table.remove(one), None);
        let three = table.add('3').unwrap();
        assert_eq!((table.find(one), table.find(three)), (None, Some(&'3')));
        for word in [0, 1, usize::MAX, 0x7ffd_1234_5678] {
            assert_eq!(table.find(word), None, "{word:x}");
        }
    }

    #[test]
    fn a_table_has_a_limit() {
        let mut table = Table::new(3);
        let words: Vec<usize> = (0..3).map(|thing| table.add(thing).unwrap()).collect();
        assert_eq!(table.add(3).unwrap_err().status, Status::Full);
        table.remove(words[1]);
        let word = table.add(3).unwrap();
        assert_eq!(table.find(word), Some(&3));
    }
}
