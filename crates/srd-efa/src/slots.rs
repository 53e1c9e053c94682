//! A table of entries with keys. The key of a removed entry stays invalid when its slot is used
//! again.
//!
//! The generation of a slot increases each time the slot is freed, so that the key of a removed
//! entry stays invalid for 16 million uses of its slot. Freed slots are used again in the order in
//! which they were freed, so that all generations increase evenly. Bound: `entries_max`, an
//! argument of [`Slots::insert`].

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Key of an entry in a [`Slots`] table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Largest index that [`Key::to_user_part`] can represent.
pub(crate) const INDEX_MASK: u32 = (1 << 24) - 1;
/// Mask of a generation, which has 24 bits and is never zero.
const GENERATION_MASK: u32 = (1 << 24) - 1;

impl Key {
    /// Returns the key as a number, which is never zero: 24 bits of generation above 32 bits of the
    /// slot's index.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Converts a number that [`Key::to_bits`] returned back to a key. A number that no key has
    /// gives an invalid key.
    #[allow(clippy::cast_possible_truncation)] // the two halves of the number
    pub fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }

    /// Returns the key as a number with which a datagram completes, with `tag` in the upper byte.
    /// The tag distinguishes these datagrams from the datagrams of other users of the same
    /// endpoint.
    pub(crate) fn to_user(self, tag: u8) -> u64 {
        u64::from(tag) << 56 | self.to_bits()
    }

    /// Returns the number with which datagram `part` of an operation completes. The number contains
    /// `tag`, the index, which must be below 2^24, and the low half of the generation of the
    /// operation's key.
    pub(crate) fn to_user_part(self, tag: u8, part: u16) -> u64 {
        let generation = u64::from(self.generation & 0xffff);
        u64::from(tag) << 56 | u64::from(part) << 40 | generation << 24 | u64::from(self.index)
    }

    /// Splits a number that [`Key::to_user_part`] returned into index, low half of the generation,
    /// and part. Returns `None` if the number has another tag.
    #[allow(clippy::cast_possible_truncation)] // fields of the number
    pub(crate) fn of_user_part(user: u64, tag: u8) -> Option<(u32, u32, u16)> {
        let index = user as u32 & INDEX_MASK;
        let fields = (index, (user >> 24) as u32 & 0xffff, (user >> 40) as u16);
        (user >> 56 == u64::from(tag)).then_some(fields)
    }

    /// Converts a number that [`Key::to_user`] returned back to a key; `None` if the number has
    /// another tag.
    pub(crate) fn of_user(user: u64, tag: u8) -> Option<Self> {
        (user >> 56 == u64::from(tag)).then_some(Self::from_bits(user & !(0xff << 56)))
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

/// A table of entries with keys.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: VecDeque::new() }
    }
}

impl<T> Slots<T> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an entry and returns its key; `None` if there are `entries_max` entries already.
    pub fn insert(&mut self, entry: T, entries_max: u32) -> Option<Key> {
        if self.len() >= entries_max as usize {
            return None;
        }
        if let Some(index) = self.free.pop_front() {
            let slot = &mut self.slots[index as usize];
            slot.entry = Some(entry);
            return Some(Key { index, generation: slot.generation });
        }
        let index = u32::try_from(self.slots.len()).ok()?;
        self.slots.push(Slot { generation: 1, entry: Some(entry) });
        Some(Key { index, generation: 1 })
    }

    /// Returns the entry, if the key is valid.
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        slot.entry.as_ref().filter(|_| slot.generation == key.generation)
    }

    /// Returns the entry for changes, if the key is valid.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        slot.entry.as_mut().filter(|_| slot.generation == key.generation)
    }

    /// Removes and returns the entry, if the key is valid.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        let slot = &mut self.slots[key.index as usize];
        slot.generation = slot.generation % GENERATION_MASK + 1;
        self.free.push_back(key.index);
        slot.entry.take()
    }

    /// Returns the key of the entry in a slot, for any generation.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize).filter(|slot| slot.entry.is_some())?;
        Some(Key { index, generation: slot.generation })
    }

    /// Returns the key of the entry at an index, if the low half of its generation is `generation`.
    pub(crate) fn key_like(&self, index: u32, generation: u32) -> Option<Key> {
        self.key_at(index).filter(|key| key.generation & 0xffff == generation)
    }

    /// Returns every entry with its key, in the order of slots.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0u32..).zip(&self.slots).filter_map(|(index, slot)| {
            let entry = slot.entry.as_ref()?;
            Some((Key { index, generation: slot.generation }, entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_its_own_entry_or_nothing() {
        let mut slots = Slots::default();
        let a = slots.insert("a", 2).unwrap();
        let b = slots.insert("b", 2).unwrap();
        assert_eq!(slots.insert("c", 2), None, "full");
        assert_eq!(slots.remove(a), Some("a"));
        assert_eq!(slots.remove(a), None);
        let c = slots.insert("c", 2).unwrap();
        assert_eq!(c.index, a.index);
        assert_eq!((slots.get(a), slots.get(b), slots.get(c)), (None, Some(&"b"), Some(&"c")));
        assert_eq!(Key::of_user(c.to_user(7), 7), Some(c));
        assert_eq!(Key::of_user(c.to_user(7), 8), None);
        assert_eq!(Key::from_bits(c.to_bits()), c);
        assert_eq!(slots.iter().map(|(key, _)| key).collect::<Vec<_>>(), [c, b]);
        assert_eq!((slots.key_at(0), slots.key_at(7)), (Some(c), None));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes many minutes there")]
    fn slots_are_used_again_and_no_key_is_zero_when_generations_wrap() {
        let mut slots = Slots::default();
        let mut key = slots.insert((), 1).unwrap();
        for _ in 0..=GENERATION_MASK {
            slots.remove(key).unwrap();
            let next = slots.insert((), 1).unwrap();
            assert!(next.to_bits() != 0 && next != key && next.index == 0);
            key = next;
        }
    }
}
