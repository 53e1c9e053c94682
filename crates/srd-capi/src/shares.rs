//! Keys of memory that peers may use. Bound: [`SHARES_MAX`] keys.

use std::collections::{BTreeSet, HashMap};

use srd_host::RegionNumber;

use crate::{Error, Outcome, Status};

/// Largest number of memory areas that one endpoint shares.
pub const SHARES_MAX: usize = 1 << 16;

/// Memory that an endpoint shares.
#[derive(Debug, Default)]
pub struct Shares {
    by_key: HashMap<u64, RegionNumber>,
    /// Free numbers below the highest number in use.
    free: BTreeSet<u32>,
}

impl Shares {
    /// Records a memory area with its key. Returns the area's number inside the library.
    ///
    /// # Errors
    /// `Full` if there are already `most` areas; `Again` if the key is in use, so that the caller
    /// tries another key.
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
        // If there is no free number, the numbers in use are 1 to `by_key.len()`.
        let next = u32::try_from(self.by_key.len() + 1).map_err(|_| Status::Full)?;
        let number = RegionNumber(self.free.pop_first().unwrap_or(next));
        self.by_key.insert(key, number);
        Ok(number)
    }

    /// Removes a memory area. Returns its number.
    ///
    /// # Errors
    /// `Handle` if no area has the key.
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
