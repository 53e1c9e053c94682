//! Registered memory: what peers may read and write, by key.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::abi::errno::{FI_ENOKEY, FI_ENOSPC};
use crate::domain::Domain;
use crate::{Errno, Outcome};

/// A piece of the application's memory: an address that is only compared, and bytes.
pub type Piece = (usize, usize);

/// A registered region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its pieces, one after the other.
    pub pieces: Vec<Piece>,
    /// What may be done with it: `FI_READ`, `FI_REMOTE_WRITE` and so on.
    pub access: u64,
    /// What peers call its first byte.
    pub first: u64,
}

/// The regions of a domain.
#[derive(Debug)]
pub struct Regions {
    by_key: BTreeMap<u64, Region>,
    next_key: u64,
    limit: usize,
}

impl Regions {
    pub(crate) fn new(limit: usize) -> Self {
        Self { by_key: BTreeMap::new(), next_key: 1, limit }
    }

    /// Registers a region under the key that is given, or one that nothing had before.
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
        self.by_key.insert(key, region);
        Ok(key)
    }

    /// The region of a key.
    #[must_use]
    pub fn find(&self, key: u64) -> Option<&Region> {
        self.by_key.get(&key)
    }

    fn remove(&mut self, key: u64) {
        self.by_key.remove(&key);
    }
}

/// A registration, which ends when it is dropped.
#[derive(Debug)]
pub struct Registration {
    domain: Arc<Domain>,
    /// The region's key.
    pub key: u64,
}

impl Registration {
    /// Registers memory in a domain. A domain with `basic_mr` chooses the key itself.
    ///
    /// # Errors
    /// What [`Regions::add`] says.
    pub fn new(domain: &Arc<Domain>, pieces: Vec<Piece>, access: u64, key: u64) -> Outcome<Self> {
        let start = pieces.first().map_or(0, |piece| piece.0 as u64);
        let first = if domain.basic_mr { start } else { 0 };
        let key = if domain.basic_mr { None } else { Some(key) };
        let key = domain.regions().add(Region { pieces, access, first }, key)?;
        Ok(Self { domain: Arc::clone(domain), key })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.domain.regions().remove(self.key);
    }
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

    #[test]
    fn a_registration_ends_when_it_is_dropped() {
        let domain = crate::domain::tests::domain();
        let registration = Registration::new(&domain, vec![(4096, 10)], 0, 5).unwrap();
        assert_eq!(domain.regions().find(5).unwrap().first, 0);
        drop(registration);
        assert_eq!(domain.regions().find(5), None);
    }

    #[test]
    fn the_basic_model_chooses_keys_and_speaks_of_pointers() {
        let fabric = crate::fabric::tests::fabric();
        let domain = Arc::new(Domain::new(fabric, [127, 0, 0, 1].into(), true));
        let registration = Registration::new(&domain, vec![(4096, 10)], 0, 5).unwrap();
        assert_ne!(registration.key, 5);
        assert_eq!(domain.regions().find(registration.key).unwrap().first, 4096);
    }
}
