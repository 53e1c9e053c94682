//! The connections as bytes: keys, states, and expiry times.
//!
//! Numbers of entries, and their order in a slot of the wheel, are not kept: they only decide
//! which of two expired entries is removed first.

use alloc::vec::Vec;

use super::{Entry, TICK_MAX, Table, TrackId};
use crate::store::{Reader, Stored, StoredError, write_count};
use crate::track::key::Key;
use crate::track::state::Progress;
use crate::track::wheel::Wheel;

/// Longest time from the present to the expiry of an entry, in ticks.
const TICKS_MAX: u32 = (1 << 19) + 2;

impl<T> Table<T> {
    /// Writes all entries; the function `value` writes the caller's value of an entry.
    pub(crate) fn export(&self, out: &mut Vec<u8>, value: impl Fn(&T, &mut Vec<u8>)) {
        self.epoch.write(out);
        self.now.write(out);
        self.wheel.cursor().write(out);
        write_count(self.index.len(), out);
        for number in 0..self.entries.places() {
            let Some(entry) = self.entries.get(number) else { continue };
            let Some(key) = self.entries.key(number) else { continue };
            key.write(out);
            entry.progress.write(out);
            entry.is_local_first().write(out);
            entry.is_tracked().write(out);
            entry.expires.write(out);
            self.entries.link_of(number).tick().write(out);
            value(&entry.value, out);
        }
    }

    /// Creates an empty table with the same allowance, times and secret.
    pub(crate) fn unused(&self) -> Self {
        let empty = Self::with_hash(self.allowance, &self.timeouts, self.hash, self.epoch);
        empty.with_untracked(self.untracked_max)
    }

    /// Reads the entries that another card has written for an instance with `enis` interfaces. This
    /// table must be empty; its allowance and idle times do not change. Connections beyond the
    /// allowance are read as well: no active connection is given up (T5).
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
            let is_key = Key::of_short(key.short(), || key.addresses()) == key;
            if !is_key || key.eni() >= enis || self.find(&key).is_some() {
                return Err(StoredError::Wrong("a connection"));
            }
            if expires.max(filed) > self.now + TICKS_MAX {
                return Err(StoredError::Wrong("the time of a connection"));
            }
            let mut entry = Entry::new(&key, progress, local_first, value);
            entry.set_tracked(tracked);
            entry.expires = expires;
            let TrackId(number) = self
                .place(&key, entry)
                .ok_or(StoredError::Wrong("more connections than numbers"))?;
            self.wheel.file(&mut self.entries, number, filed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::key::Direction;
    use crate::meta::packet::{Packet, protocol};
    use crate::testing::v4;
    use crate::track::{PacketKind, Timeouts};
    use srd_proto::Secret;
    use srd_proto::time::{Duration, Instant};

    fn key(number: u8, port: u16) -> Key {
        let bytes = v4(number, (port, 80), b"data");
        Key::of(&Packet::read(&bytes).unwrap(), &bytes, Direction::Egress, 0)
    }

    /// Builds a table with connections in all states, begun at different times, some of them
    /// expired.
    fn table() -> (Table, Vec<Key>, Instant) {
        let times = Timeouts::new(60, 60, 30).unwrap();
        let mut table =
            Table::new(100, &[times], Secret::known(1), Instant::ZERO).with_untracked(100);
        let (mut now, mut keys) = (Instant::ZERO + Duration::from_millis(700), Vec::new());
        for port in 1..=40_u16 {
            now += Duration::from_millis(1370);
            let number = [protocol::TCP, protocol::UDP, protocol::ICMP, 47][usize::from(port % 4)];
            let seen = match number {
                protocol::TCP => PacketKind::Tcp(2),
                protocol::UDP => PacketKind::Udp,
                _ => PacketKind::Other,
            };
            let one = key(number, port);
            match port % 3 {
                0 => drop(table.remember(now, &one, true, seen, ())),
                _ => drop(table.insert(now, &one, true, seen, ())),
            }
            for step in 0..port % 5 {
                let seen = if number == protocol::TCP { PacketKind::Tcp(16) } else { seen };
                table.packet(now, &one, step % 2 == 1, seen);
            }
            keys.push(one);
        }
        (table, keys, now)
    }

    fn exported(table: &Table) -> Vec<u8> {
        let mut bytes = Vec::new();
        table.export(&mut bytes, |(), _| ());
        bytes
    }

    fn imported(bytes: &[u8], of: &Table) -> Result<Table, StoredError> {
        let mut table = of.unused();
        let mut from = Reader(bytes);
        table.import(&mut from, 1, |_| Ok(()))?;
        from.end().map(|()| table)
    }

    #[test]
    fn connections_end_at_the_same_time_and_free_their_places() {
        let (mut stays, keys, mut now) = table();
        let mut next = imported(&exported(&stays), &stays).unwrap();
        assert_eq!((next.tracked(), next.untracked()), (stays.tracked(), stays.untracked()));
        for _ in 0..1400 {
            now += Duration::from_millis(500);
            for key in &keys {
                let found = |table: &mut Table| table.related(now, key).is_some();
                assert_eq!(found(&mut stays), found(&mut next), "{key:?} at {now:?}");
            }
            stays.expire(now, 200, |_, _| ());
            next.expire(now, 200, |_, _| ());
            assert_eq!((next.tracked(), next.untracked()), (stays.tracked(), stays.untracked()));
        }
        assert_eq!(next.tracked() + next.untracked(), 0, "all are over");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (table, ..) = table();
        let bytes = exported(&table);
        for end in 0..bytes.len() {
            assert_eq!(imported(&bytes[..end], &table).err(), Some(StoredError::Short), "{end}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(imported(&longer, &table).err(), Some(StoredError::Long));
        // The first entry follows the times of the table and the number of entries.
        let entry = 8 + 4 + 4 + 4;
        let length = (bytes.len() - entry) / table.index.len();
        let mut twice = bytes.clone();
        twice.copy_within(entry..entry + length, entry + length);
        assert_eq!(imported(&twice, &table).err(), Some(StoredError::Wrong("a connection")));
        // The first key is IPv4, and its addresses have 32 bits.
        let mut wide = bytes.clone();
        wide[entry + 7] = 1;
        assert_eq!(imported(&wide, &table).err(), Some(StoredError::Wrong("a connection")));
        let mut late = bytes;
        late[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(imported(&late, &table).err(), Some(StoredError::Wrong("the time of a table")));
    }
}
