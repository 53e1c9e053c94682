//! Memory that peers may use, by key. Bound: [`SHARES_MAX`].

use std::collections::{BTreeSet, HashMap};

use srd_host::RegionNumber;

use crate::{Error, Outcome, Status};

/// Pieces of memory that one endpoint shares.
pub const SHARES_MAX: usize = 1 << 16;

/// Memory that an endpoint shares.
#[derive(Debug, Default)]
pub struct Shares {
    by_key: HashMap<u64, RegionNumber>,
    /// Numbers below the highest that are free.
    free: BTreeSet<u32>,
}

impl Shares {
    /// Notes a piece under a key; the number that it has inside.
    ///
    /// # Errors
    /// `Full` when there are `most`; `Again` if the key is taken: then try another.
    pub fn add(&mut self, key: u64, most: usize) -> Outcome<RegionNumber> {
        if self.by_key.len() >= most {
            return Err(Error::new(
                Status::Full,
                format!("{most} pieces of memory are shared: take one back with srd_unshare"),
            ));
        }
        if self.by_key.contains_key(&key) {
            return Err(Status::Again.into());
        }
        // Without a gap the numbers in use are those from one on.
        let next = u32::try_from(self.by_key.len() + 1).map_err(|_| Status::Full)?;
        let number = RegionNumber(self.free.pop_first().unwrap_or(next));
        self.by_key.insert(key, number);
        Ok(number)
    }

    /// Forgets a piece; the number that it had.
    ///
    /// # Errors
    /// `Handle` if nothing has the key.
    pub fn remove(&mut self, key: u64) -> Outcome<RegionNumber> {
        let number = self.by_key.remove(&key).ok_or_else(|| {
            Error::new(Status::Handle, "the key is none of this endpoint, or was taken back")
        })?;
        self.free.insert(number.0);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_small_and_used_again() {
        let mut shares = Shares::default();
        let number = |shares: &mut Shares, key| shares.add(key, 8).unwrap().0;
        assert_eq!([1, 2, 3].map(|key| number(&mut shares, key * 100)), [1, 2, 3]);
        assert_eq!(shares.remove(200), Ok(RegionNumber(2)));
        assert_eq!(shares.remove(200).unwrap_err().status, Status::Handle);
        assert_eq!([7, 8].map(|key| number(&mut shares, key)), [2, 4]);
        assert_eq!(shares.add(7, 8).unwrap_err().status, Status::Again);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes many minutes there")]
    fn shares_have_a_limit() {
        let mut shares = Shares::default();
        for key in 0..SHARES_MAX as u64 {
            shares.add(key, SHARES_MAX).unwrap();
        }
        assert_eq!(shares.add(u64::MAX, SHARES_MAX).unwrap_err().status, Status::Full);
        shares.remove(5).unwrap();
        shares.add(u64::MAX, SHARES_MAX).unwrap();
    }
}
