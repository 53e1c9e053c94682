//! Doubly linked lists of entries in a [`Slots`] table. Any entry can be removed in constant time.
//!
//! Each entry stores its links. It may be in several lists (chains); each chain uses a separate
//! lane of links.

use crate::slots::{Key, Slots};

/// Neighbours of an entry in one chain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Links {
    before: Option<Key>,
    after: Option<Key>,
}

/// An entry that can be in chains.
pub(crate) trait Linked {
    /// Returns the entry's links in a lane, for changes.
    fn links(&mut self, lane: usize) -> &mut Links;
    /// Returns the entry's links in a lane, for reading.
    fn look(&self, lane: usize) -> &Links;
}

/// A list of entries. Bound: the entries of the table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Chain {
    first: Option<Key>,
    last: Option<Key>,
}

impl Chain {
    /// Adds an entry at the end of the chain, which uses the links in `lane`.
    pub(crate) fn push<T: Linked>(&mut self, slots: &mut Slots<T>, lane: usize, key: Key) {
        if let Some(entry) = slots.get_mut(key) {
            *entry.links(lane) = Links { before: self.last, after: None };
        }
        match self.last.and_then(|last| slots.get_mut(last)) {
            Some(last) => last.links(lane).after = Some(key),
            None => self.first = Some(key),
        }
        self.last = Some(key);
    }

    /// Removes an entry, which must be in this chain.
    pub(crate) fn remove<T: Linked>(&mut self, slots: &mut Slots<T>, lane: usize, key: Key) {
        let Some(entry) = slots.get_mut(key) else { return };
        let Links { before, after } = core::mem::take(entry.links(lane));
        match before.and_then(|before| slots.get_mut(before)) {
            Some(before) => before.links(lane).after = after,
            None => self.first = after,
        }
        match after.and_then(|after| slots.get_mut(after)) {
            Some(after) => after.links(lane).before = before,
            None => self.last = before,
        }
    }

    /// Returns the entries in order.
    pub(crate) fn iter<'a, T: Linked>(
        &self,
        slots: &'a Slots<T>,
        lane: usize,
    ) -> impl Iterator<Item = (Key, &'a T)> {
        let mut next = self.first;
        core::iter::from_fn(move || {
            let key = next?;
            let entry = slots.get(key)?;
            next = entry.look(lane).after;
            Some((key, entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    struct Entry(Links);

    impl Linked for Entry {
        fn links(&mut self, _lane: usize) -> &mut Links {
            &mut self.0
        }
        fn look(&self, _lane: usize) -> &Links {
            &self.0
        }
    }

    #[test]
    fn entries_leave_from_anywhere_and_the_others_keep_their_order() {
        let mut slots = Slots::default();
        let keys: Vec<Key> =
            (0..5).map(|_| slots.insert(Entry(Links::default()), 9).unwrap()).collect();
        // Each case: the entries that are removed, in this order, and the entries that remain.
        let cases: [(&[usize], &[usize]); 5] = [
            (&[0], &[1, 2, 3, 4]),
            (&[4], &[0, 1, 2, 3]),
            (&[2, 1, 3], &[0, 4]),
            (&[0, 1, 2, 3, 4], &[]),
            (&[4, 3, 2, 1, 0], &[]),
        ];
        for (gone, left) in cases {
            let mut chain = Chain::default();
            for key in &keys {
                chain.push(&mut slots, 0, *key);
            }
            for index in gone {
                chain.remove(&mut slots, 0, keys[*index]);
            }
            let rest: Vec<Key> = chain.iter(&slots, 0).map(|(key, _)| key).collect();
            assert_eq!(rest, left.iter().map(|index| keys[*index]).collect::<Vec<_>>());
            chain.push(&mut slots, 0, keys[gone[0]]);
            assert_eq!(chain.iter(&slots, 0).count(), left.len() + 1);
        }
    }
}
