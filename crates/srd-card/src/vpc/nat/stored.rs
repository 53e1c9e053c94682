//! The connections through NAT gateways as bytes.

use alloc::vec::Vec;

use srd_proto::time::Instant;

use super::{Back, ENTRIES_MAX, ENTRIES_OF_ONE_MAX, Inside, Nat, Outside};
use crate::store::{Reader, Stored, StoredError, stored, write_count};
use crate::vpc::stored;

stored!(Inside { nat, eni, source, remote, protocol });
stored!(Outside { public, remote, protocol });
stored!(Back { nat, eni, port });

impl Nat {
    /// All connections and first fragments, for another program: [`Nat::import`].
    pub fn export(&self) -> Vec<u8> {
        let mut out = stored::head(stored::Kind::Nat);
        self.swept.write(&mut out);
        write_count(self.by_inside.len(), &mut out);
        for (inside, (outside, used_at)) in &self.by_inside {
            inside.write(&mut out);
            outside.write(&mut out);
            used_at.write(&mut out);
        }
        self.leaving.write(&mut out);
        self.arriving.write(&mut out);
        out
    }

    /// Goes on where another ended.
    ///
    /// # Errors
    /// The bytes are not what [`Nat::export`] writes.
    pub fn import(bytes: &[u8]) -> Result<Self, StoredError> {
        let mut from = Reader(stored::body(stored::Kind::Nat, bytes)?);
        let mut nat = Self { swept: Stored::read(&mut from)?, ..Self::default() };
        let wrong = StoredError::Wrong("a connection through a NAT gateway");
        for _ in 0..from.count()? {
            let (inside, outside) = <(Inside, Outside)>::read(&mut from)?;
            let used_at = Instant::read(&mut from)?;
            let is_known = nat.by_inside.insert(inside, (outside, used_at)).is_some()
                || nat.by_outside.insert(outside, inside).is_some();
            let of_one = nat.of_one.get(inside.eni) + 1;
            nat.of_one.set(inside.eni, of_one);
            if is_known || of_one > ENTRIES_OF_ONE_MAX || nat.by_inside.len() > ENTRIES_MAX {
                return Err(wrong);
            }
        }
        (nat.leaving, nat.arriving) = Stored::read(&mut from)?;
        from.end()?;
        Ok(nat)
    }
}
