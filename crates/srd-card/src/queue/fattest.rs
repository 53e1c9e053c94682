//! Search for the largest flow of a peer's queue without a scan of all flows. Each flow is in the
//! list for its class of sizes; there are four classes for each doubling of the size. A flow from
//! the highest list has at least four fifths of the largest flow's bytes. The cost of each step
//! does not depend on the number of flows. The largest tenant is found in the same way.
//!
//! Bound: one entry in one list for each flow, [`CLASSES`] lists.

/// Number of lists: four for each doubling of the size, up to 2^32 bytes.
const CLASSES: usize = 128;
/// Value in place of a slot where a list has no flow.
const NONE: u32 = u32::MAX;

/// List that contains a flow, by the flow's size, and the neighbours of the flow in this list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    class: Option<u8>,
    before: u32,
    after: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self { class: None, before: NONE, after: NONE }
    }
}

/// A table that contains the links of flows, or of tenants, by slot.
pub(crate) trait Linked {
    /// Returns the link of a flow.
    fn link(&mut self, slot: u32) -> &mut Link;
}

/// Lists of flows, or of tenants, by size.
#[derive(Debug)]
pub(crate) struct Fattest {
    first: [u32; CLASSES],
    /// One bit for each list that is not empty.
    filled: u128,
}

impl Default for Fattest {
    fn default() -> Self {
        Self { first: [NONE; CLASSES], filled: 0 }
    }
}

/// Index of the list for flows of this size; `None` for an empty flow, which is in no list.
fn class(bytes: usize) -> Option<u8> {
    let octave = bytes.checked_ilog2()?;
    let quarter = (bytes << 2 >> octave) & 3;
    let class = octave as usize * 4 + quarter;
    u8::try_from(class.min(CLASSES - 1)).ok()
}

impl Fattest {
    /// Moves a flow to the list of its present size.
    #[inline]
    pub(crate) fn place<L: Linked + ?Sized>(&mut self, flows: &mut L, slot: u32, bytes: usize) {
        let class = class(bytes);
        let link = *flows.link(slot);
        if link.class == class {
            return;
        }
        if let Some(old) = link.class {
            if link.after != NONE {
                flows.link(link.after).before = link.before;
            }
            if link.before == NONE {
                self.first[usize::from(old)] = link.after;
                if link.after == NONE {
                    self.filled &= !(1 << old);
                }
            } else {
                flows.link(link.before).after = link.after;
            }
        }
        let mut link = Link { class, ..Link::default() };
        if let Some(new) = class {
            let first = &mut self.first[usize::from(new)];
            link.after = *first;
            if *first != NONE {
                flows.link(*first).before = slot;
            }
            *first = slot;
            self.filled |= 1 << new;
        }
        *flows.link(slot) = link;
    }

    /// Returns a flow with at least four fifths of the bytes of the largest flow; `None` if all
    /// flows are empty.
    pub(crate) fn find(&self) -> Option<u32> {
        let class = self.filled.checked_ilog2()?;
        Some(self.first[class as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    impl Linked for Vec<Link> {
        fn link(&mut self, slot: u32) -> &mut Link {
            &mut self[slot as usize]
        }
    }

    proptest! {
        #[test]
        fn the_flow_found_holds_nearly_most_whatever_changed_before(
            steps in prop::collection::vec((0u32..20, 0u32..27, 0usize..1000), 1..300),
        ) {
            let mut links = vec![Link::default(); 20];
            let mut held = [0usize; 20];
            let mut fattest = Fattest::default();
            for (slot, octave, part) in steps {
                held[slot as usize] = (part << octave) / 1000;
                fattest.place(&mut links, slot, held[slot as usize]);
                let most = held.iter().copied().max().unwrap();
                match fattest.find() {
                    Some(found) => prop_assert!(held[found as usize] * 5 >= most * 4),
                    None => prop_assert_eq!(most, 0),
                }
            }
            for slot in 0..20 {
                fattest.place(&mut links, slot, 0);
            }
            prop_assert_eq!(fattest.find(), None);
        }
    }
}
