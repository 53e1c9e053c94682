//! The connections as bytes: keys, states, and until when.
//!
//! Numbers of entries and the order in one slot of the wheel are not kept: they decide which of two
//! entries that are past their time is freed first.

use alloc::vec::Vec;

use super::{Entry, TICK_MAX, Table, TrackId};
use crate::store::{Reader, Stored, StoredError, write_count};
use crate::track::key::Key;
use crate::track::state::Progress;
use crate::track::wheel::{Link, Wheel};

/// No entry lives for more ticks.
const TICKS_MAX: u32 = (1 << 19) + 2;

impl<T> Table<T> {
    /// Writes all entries, the values by `value`.
    pub(crate) fn export(&self, out: &mut Vec<u8>, value: impl Fn(&T, &mut Vec<u8>)) {
        self.epoch.write(out);
        self.now.write(out);
        self.wheel.cursor().write(out);
        write_count(self.index.len(), out);
        for number in 0..self.entries.places {
            let Some(entry) = self.entries.get(number) else { continue };
            let Entry { key, progress, local_first, tracked, expires, link, value: of } = entry;
            key.write(out);
            progress.write(out);
            local_first.write(out);
            tracked.write(out);
            expires.write(out);
            link.tick().write(out);
            value(of, out);
        }
    }

    /// A table with the allowance, the times and the secret of this one, and without entries.
    pub(crate) fn unused(&self) -> Self {
        let empty = Self::new(self.allowance, &self.timeouts, 0, self.epoch);
        Self { hash: self.hash, ..empty }.with_untracked(self.untracked_max)
    }

    /// Takes the entries of another table of an instance with so many interfaces into this one,
    /// which has none; its allowance and its times are this one's. Connections beyond the allowance
    /// stay: none that lives is given up (T5).
    pub(crate) fn import(
        &mut self,
        from: &mut Reader<'_>,
        enis: u16,
        mut value: impl FnMut(&mut Reader<'_>) -> Result<T, StoredError>,
    ) -> Result<(), StoredError> {
        self.epoch = Stored::read(from)?;
        self.now = u32::read(from)?;
        let cursor = u32::read(from)?;
        if self.now > TICK_MAX || cursor > self.now + 1 {
            return Err(StoredError::Wrong("the time of a table"));
        }
        self.wheel = Wheel::new(cursor);
        for _ in 0..from.count()? {
            let key = Key::read(from)?;
            let progress = Progress::read(from)?;
            let (local_first, tracked) = Stored::read(from)?;
            let (expires, filed) = <(u32, u32)>::read(from)?;
            let value = value(from)?;
            if key.eni() >= enis || self.find(&key).is_some() {
                return Err(StoredError::Wrong("a connection"));
            }
            if expires.max(filed) > self.now + TICKS_MAX {
                return Err(StoredError::Wrong("the time of a connection"));
            }
            let link = Link::NONE;
            let entry = Entry { key, progress, local_first, tracked, expires, link, value };
            let TrackId(number) =
                self.place(entry).ok_or(StoredError::Wrong("more connections than numbers"))?;
            self.wheel.file(&mut self.entries, number, filed);
        }
        Ok(())
    }
}
