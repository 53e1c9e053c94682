//! The connections through NAT gateways as bytes.

use alloc::vec::Vec;

use srd_proto::time::Instant;

use super::{ENTRIES_MAX, ENTRIES_OF_ONE_MAX, End, Inside, Nat, NatConnection, Outside};
use crate::store::{Reader, Stored, StoredError, stored, write_count};
use crate::vpc::tables::stored;

stored!(Inside { nat, eni, source, remote, protocol });
stored!(Outside { public, remote, protocol });
stored!(NatConnection { nat, eni, port });

impl Stored for End {
    fn write(&self, out: &mut Vec<u8>) {
        let (sender, eni) = match self {
            Self::Sender(sender) => (Some(sender.clone()), None),
            Self::Receiver(eni) => (None, Some(*eni)),
        };
        (sender, eni).write(out);
    }
    fn read(from: &mut Reader<'_>) -> Result<Self, StoredError> {
        match Stored::read(from)? {
            (Some(sender), None) => Ok(Self::Sender(sender)),
            (None, Some(eni)) => Ok(Self::Receiver(eni)),
            _ => Err(StoredError::Wrong("the owner of a first fragment")),
        }
    }
}

impl Nat {
    /// Writes all connections and first fragments, for [`Nat::import`] in another program.
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

    /// Creates gateways that continue with the connections of another program.
    ///
    /// # Errors
    /// [`StoredError`] if the bytes were not written by [`Nat::export`].
    pub fn import(bytes: &[u8]) -> Result<Self, StoredError> {
        let mut from = Reader(stored::body(stored::Kind::Nat, bytes)?);
        let mut nat = Self { swept: Stored::read(&mut from)?, ..Self::default() };
        let wrong = StoredError::Wrong("a connection through a NAT gateway");
        for _ in 0..from.count()? {
            let (inside, outside) = <(Inside, Outside)>::read(&mut from)?;
            let used_at = Instant::read(&mut from)?;
            let is_known =
                nat.by_inside.contains_key(&inside) || nat.by_outside.contains_key(&outside);
            let are_too_many = nat.of_one.get(&inside.eni) >= ENTRIES_OF_ONE_MAX
                || nat.by_inside.len() >= ENTRIES_MAX;
            if is_known || are_too_many {
                return Err(wrong);
            }
            nat.know(inside, outside, used_at);
        }
        (nat.leaving, nat.arriving) = Stored::read(&mut from)?;
        from.end()?;
        Ok(nat)
    }
}
