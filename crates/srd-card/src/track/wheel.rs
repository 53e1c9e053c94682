//! Expiry of entries: a timing wheel of lists through a table of links.
//!
//! Each slot is one tick. An entry whose time lies beyond one turn of the wheel waits in the last
//! slot of the turn, and is put into a slot again when the cursor arrives there. If the time of an
//! entry becomes later, the entry moves only when the cursor arrives at its slot. If the time
//! becomes earlier, the entry moves at once.
//!
//! Bound: one list head for each slot, one link for each entry. One step of work visits one entry
//! or leaves one slot. A turn of the cursor leaves each slot once, however far time has jumped.

use alloc::vec;
use alloc::vec::Vec;

/// Number of slots, which is also the number of ticks in one turn.
const SLOTS: u32 = 1024;
/// Number that stands for no entry, and for no tick.
const NONE: u32 = u32::MAX;

/// Slot of an entry in the wheel, and its neighbours in the list of that slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    before: u32,
    after: u32,
    /// Tick of the slot that contains the entry; [`NONE`] if the entry is in no slot.
    tick: u32,
}

impl Link {
    pub(super) const NONE: Self = Self { before: NONE, after: NONE, tick: NONE };

    /// Tick of the slot that contains the entry.
    pub(super) fn tick(&self) -> u32 {
        self.tick
    }
}

/// A table that contains the links of entries.
pub(super) trait Links {
    /// Returns the link of an entry.
    fn link(&mut self, entry: u32) -> &mut Link;
}

/// The timing wheel.
pub(super) struct Wheel {
    heads: Vec<u32>,
    /// Tick up to which the wheel has turned: all earlier slots were visited and are empty.
    cursor: u32,
}

impl Wheel {
    pub(super) fn new(tick: u32) -> Self {
        Self { heads: vec![NONE; SLOTS as usize], cursor: tick }
    }

    /// Tick up to which the wheel has turned: all earlier slots were visited and are empty.
    pub(super) fn cursor(&self) -> u32 {
        self.cursor
    }

    /// Puts an entry into the slot of `tick`. An entry that is in the wheel already moves only if
    /// its time has become earlier.
    pub(super) fn file(&mut self, links: &mut impl Links, entry: u32, tick: u32) {
        let filed = links.link(entry).tick;
        if filed != NONE {
            if filed <= tick {
                return;
            }
            self.remove(links, entry);
        }
        let last = self.cursor.saturating_add(SLOTS - 1);
        let tick = tick.clamp(self.cursor, last);
        let head = &mut self.heads[(tick % SLOTS) as usize];
        let after = core::mem::replace(head, entry);
        *links.link(entry) = Link { before: NONE, after, tick };
        if after != NONE {
            links.link(after).before = entry;
        }
    }

    /// Removes an entry from its slot, if the entry is in a slot.
    pub(super) fn remove(&mut self, links: &mut impl Links, entry: u32) {
        let Link { before, after, tick } = core::mem::replace(links.link(entry), Link::NONE);
        if tick == NONE {
            return;
        }
        if before == NONE {
            self.heads[(tick % SLOTS) as usize] = after;
        } else {
            links.link(before).after = after;
        }
        if after != NONE {
            links.link(after).before = before;
        }
    }

    /// Does one step up to the tick `now`: removes and returns an entry of the cursor's slot, or,
    /// if the slot is empty, moves the cursor and returns `Some(None)`. Returns `None` when all
    /// slots up to `now` are empty.
    pub(super) fn step(&mut self, links: &mut impl Links, now: u32) -> Option<Option<u32>> {
        if self.cursor > now {
            return None;
        }
        let entry = self.heads[(self.cursor % SLOTS) as usize];
        if entry == NONE {
            // After one turn all slots are empty. So after a large jump of time, most ticks are
            // skipped.
            let behind = now - self.cursor;
            self.cursor += if behind > 2 * SLOTS { behind - 2 * SLOTS } else { 1 };
            return Some(None);
        }
        self.remove(links, entry);
        Some(Some(entry))
    }
}
