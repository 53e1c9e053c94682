//! Doubly linked lists through the entries of a table. An entry is in one list at a time, and can
//! be removed from any position in constant time.
//!
//! Invariant: an entry is in at most one of the chains that share a [`Links`]; the caller keeps
//! track of which one. Bound: one link for each entry of the table.

use alloc::vec::Vec;

/// Value of a link at the end of a chain.
const NONE: u32 = u32::MAX;

/// For each entry of the table, the index of the entry before it and of the entry after it in its
/// chain.
#[derive(Debug, Default)]
pub(crate) struct Links(Vec<[u32; 2]>);

/// A chain of entries, which are indices into the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    first: u32,
    last: u32,
}

const BEFORE: usize = 0;
const AFTER: usize = 1;

impl Links {
    /// Adds the links of a new entry of the table. The entry is in no chain yet.
    pub(crate) fn grow(&mut self) {
        self.0.push([NONE; 2]);
    }
}

impl Default for Chain {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl Chain {
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Iterates over the entries from first to last.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn iter(self, links: &Links) -> impl Iterator<Item = u32> {
        let after = |at: &u32| Some(links.0[*at as usize][AFTER]).filter(|next| *next != NONE);
        core::iter::successors(self.first(), after)
    }

    /// Appends an entry that is in no chain.
    pub(crate) fn push_back(&mut self, links: &mut Links, at: u32) {
        links.0[at as usize] = [self.last, NONE];
        match self.last {
            NONE => self.first = at,
            last => links.0[last as usize][AFTER] = at,
        }
        self.last = at;
    }

    /// Removes an entry of this chain.
    pub(crate) fn remove(&mut self, links: &mut Links, at: u32) {
        let [before, after] = core::mem::replace(&mut links.0[at as usize], [NONE; 2]);
        match before {
            NONE => self.first = after,
            before => links.0[before as usize][AFTER] = after,
        }
        match after {
            NONE => self.last = before,
            after => links.0[after as usize][BEFORE] = before,
        }
    }

    /// Removes and returns the first entry.
    pub(crate) fn pop_front(&mut self, links: &mut Links) -> Option<u32> {
        let first = self.first()?;
        self.remove(links, first);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_queues(ops in proptest::collection::vec((0u32..12, 0u8..4), 1..200)) {
            let mut links = Links::default();
            (0..12).for_each(|_| links.grow());
            let mut chains = [Chain::default(), Chain::default()];
            let mut model = [VecDeque::new(), VecDeque::new()];
            for (at, op) in ops {
                let which = usize::from(op % 2);
                let found = (0..2).find(|n| model[*n].contains(&at));
                match (op / 2, found) {
                    (0, None) => {
                        chains[which].push_back(&mut links, at);
                        model[which].push_back(at);
                    }
                    (0, Some(n)) => {
                        chains[n].remove(&mut links, at);
                        model[n].retain(|x| *x != at);
                    }
                    _ => {
                        let popped = chains[which].pop_front(&mut links);
                        prop_assert_eq!(popped, model[which].pop_front());
                    }
                }
                for n in 0..2 {
                    prop_assert_eq!(chains[n].first(), model[n].front().copied());
                    prop_assert_eq!(chains[n].is_empty(), model[n].is_empty());
                    let all: VecDeque<u32> = chains[n].iter(&links).collect();
                    prop_assert_eq!(&all, &model[n]);
                }
            }
        }
    }
}
