//! Registered memory: the memory that peers may read and write, by key.
//!
//! A registration belongs to its domain, and so to all present and future endpoints of the
//! domain.

use std::collections::{BTreeMap, BTreeSet};

use srd_efa::Access;
use srd_efa::layer::Shared;
use srd_host::{RegionNumber, Span};

use crate::abi::bits::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use crate::abi::errno::{FI_ENOKEY, FI_ENOSPC};
use crate::objects::hosts::Driven;
use crate::{Errno, Outcome};

/// A piece of the application's memory: its address, which is only compared, and its number of
/// bytes.
pub type Iov = (usize, usize);

/// A registered region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// Pieces of the region, in order.
    pub pieces: Vec<Iov>,
    /// Access rights: `FI_READ`, `FI_REMOTE_WRITE` and so on.
    pub access: u64,
    /// Address that peers use for the first byte.
    pub first: u64,
}

impl Region {
    /// Whether peers may access the region.
    fn is_shared(&self) -> bool {
        self.access & (FI_REMOTE_READ | FI_REMOTE_WRITE) != 0
    }
}

/// The regions of a domain.
#[derive(Debug)]
pub struct Regions {
    by_key: BTreeMap<u64, (Region, RegionNumber)>,
    /// Free numbers below the highest number in use.
    free: BTreeSet<u32>,
    next_key: u64,
    limit: usize,
}

impl Regions {
    pub(crate) fn new(limit: usize) -> Self {
        Self { by_key: BTreeMap::new(), free: BTreeSet::new(), next_key: 1, limit }
    }

    /// Registers a region under `key` or, if it is `None`, under a new key. Returns the key.
    ///
    /// # Errors
    /// `FI_ENOSPC` at the limit; `FI_ENOKEY` if another region has the key.
    pub fn add(&mut self, region: Region, key: Option<u64>) -> Outcome<u64> {
        if self.by_key.len() >= self.limit {
            return Err(Errno(FI_ENOSPC));
        }
        let key = key.unwrap_or(self.next_key);
        if self.by_key.contains_key(&key) {
            return Err(Errno(FI_ENOKEY));
        }
        self.next_key = self.next_key.max(key.wrapping_add(1));
        // If no number is free, the numbers in use are consecutive from one.
        let next = u32::try_from(self.by_key.len() + 1).map_err(|_| Errno(FI_ENOSPC))?;
        let number = RegionNumber(self.free.pop_first().unwrap_or(next));
        self.by_key.insert(key, (region, number));
        Ok(key)
    }

    /// Returns the region of a key.
    #[must_use]
    pub fn find(&self, key: u64) -> Option<&Region> {
        self.by_key.get(&key).map(|(region, _)| region)
    }

    /// Returns the number of the region with this key.
    pub(crate) fn number_of(&self, key: u64) -> Option<RegionNumber> {
        self.by_key.get(&key).map(|(_, number)| *number)
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<RegionNumber> {
        let (_, number) = self.by_key.remove(&key)?;
        self.free.insert(number.0);
        Some(number)
    }

    /// Makes every region accessible to the peers of an endpoint.
    ///
    /// # Errors
    /// The errors of [`Driven::share`].
    pub fn share_all(&self, host: &dyn Driven) -> Outcome {
        self.by_key
            .iter()
            .try_for_each(|(key, (region, number))| share(host, *key, region, *number))
    }
}

/// Makes a region accessible to the peers of an endpoint, if the region permits access by peers.
#[allow(unsafe_code, reason = "names memory of the application's")]
pub(crate) fn share(host: &dyn Driven, key: u64, region: &Region, number: RegionNumber) -> Outcome {
    if !region.is_shared() {
        return Ok(());
    }
    let span = |&(addr, length): &Iov| Span { addr, length };
    let spans: Box<[Span]> = region.pieces.iter().map(span).collect();
    let length = region.pieces.iter().map(|piece| piece.1 as u64).sum();
    let write = region.access & FI_REMOTE_WRITE != 0;
    let access = Access {
        local_write: write,
        remote_write: write,
        remote_read: region.access & FI_REMOTE_READ != 0,
    };
    let shared =
        Shared { region: u64::from(number.0), addr: region.first, length, rkey: key, access };
    // SAFETY: the application leaves registered memory where it is until `fi_close`, which ends the
    // registration.
    unsafe { host.share(number, spans, shared) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Region {
        Region { pieces: vec![(4096, 10)], access: 0, first: 0 }
    }

    #[test]
    fn keys_are_the_applications_or_new() {
        let mut regions = Regions::new(8);
        assert_eq!(regions.add(region(), Some(7)), Ok(7));
        assert_eq!(regions.add(region(), Some(7)), Err(Errno(FI_ENOKEY)));
        assert_eq!(regions.add(region(), None), Ok(8));
        regions.remove(8);
        assert_eq!(regions.add(region(), None), Ok(9));
    }

    #[test]
    fn regions_have_a_limit() {
        let mut regions = Regions::new(2);
        regions.add(region(), None).unwrap();
        regions.add(region(), None).unwrap();
        assert_eq!(regions.add(region(), None), Err(Errno(FI_ENOSPC)));
    }
}
