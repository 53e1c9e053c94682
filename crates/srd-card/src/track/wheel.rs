//! Expiry of entries: a timing wheel of lists through a table of links.
//!
//! Each slot is one tick. An entry whose time lies beyond one turn waits in the last slot before
//! the cursor, and is filed again when the cursor arrives there. If a time is postponed, the entry
//! moves only when the cursor arrives. If a time becomes earlier, the entry moves at once.
//!
//! Bound: one list head for each slot, one link for each entry. One step of work visits one entry
//! or leaves one slot. A turn of the cursor leaves each slot once, however far time has jumped.

use alloc::vec;
use alloc::vec::Vec;

/// Number of slots, and so of ticks in one turn.
const SLOTS: u32 = 1024;
/// Marks the absence of an entry.
const NONE: u32 = u32::MAX;

/// Links of an entry in its slot's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    before: u32,
    after: u32,
    /// Tick under which the entry is filed; [`NONE`] if it is not filed.
    tick: u32,
}

impl Link {
    pub(super) const NONE: Self = Self { before: NONE, after: NONE, tick: NONE };

    /// Tick under which the entry is filed.
    pub(super) fn tick(&self) -> u32 {
        self.tick
    }
}

/// Container of links.
pub(super) trait Links {
    /// Returns the link of an entry.
    fn link(&mut self, entry: u32) -> &mut Link;
}

/// The timing wheel.
pub(super) struct Wheel {
    heads: Vec<u32>,
    /// Tick before which all entries were visited.
    cursor: u32,
}

impl Wheel {
    pub(super) fn new(tick: u32) -> Self {
        Self { heads: vec![NONE; SLOTS as usize], cursor: tick }
    }

    /// Tick before which all entries were visited.
    pub(super) fn cursor(&self) -> u32 {
        self.cursor
    }

    /// Puts an entry into the wheel, or moves it if its time has become earlier.
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

    /// Removes an entry.
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

    /// Does one step: removes an entry whose slot `now` has reached, or leaves an empty slot.
    /// Returns `None` when all slots up to `now` are empty.
    pub(super) fn step(&mut self, links: &mut impl Links, now: u32) -> Option<Option<u32>> {
        if self.cursor > now {
            return None;
        }
        let entry = self.heads[(self.cursor % SLOTS) as usize];
        if entry == NONE {
            // After a turn all slots are empty, so the other ticks of a jump are skipped.
            let behind = now - self.cursor;
            self.cursor += if behind > 2 * SLOTS { behind - 2 * SLOTS } else { 1 };
            return Some(None);
        }
        self.remove(links, entry);
        Some(Some(entry))
    }
}
