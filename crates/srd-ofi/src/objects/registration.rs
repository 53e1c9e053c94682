//! A registration: memory in the table of a domain, shared with each endpoint of the domain.

use std::sync::Arc;

use crate::Outcome;
use crate::objects::domain::Domain;
use crate::objects::fabric::same_process;
use crate::objects::region::{Iov, Region, share};

/// A registration, which ends when it is dropped.
#[derive(Debug)]
pub struct Registration {
    /// The domain of the memory.
    pub domain: Arc<Domain>,
    /// Key of the registered region.
    pub key: u64,
}

impl Registration {
    /// Registers memory in a domain. A domain with `basic_mr` chooses the key itself.
    ///
    /// # Errors
    /// `FI_ENOSPC` at the limit; `FI_ENOKEY` if another region has the key.
    pub fn new(domain: &Arc<Domain>, pieces: Vec<Iov>, access: u64, key: u64) -> Outcome<Self> {
        same_process(domain.fabric.process)?;
        let start = pieces.first().map_or(0, |piece| piece.0 as u64);
        let first = if domain.basic_mr { start } else { 0 };
        let key = if domain.basic_mr { None } else { Some(key) };
        let region = Region { pieces, access, first };
        // An endpoint that another thread opens during this call waits for the lock, and then finds
        // the region.
        let mut regions = domain.regions();
        let key = regions.add(region.clone(), key)?;
        let registration = Self { domain: Arc::clone(domain), key };
        let number = regions.number_of(key);
        let mut shared = Ok(());
        if let Some(number) = number {
            domain.hosts.each(|host| {
                if shared.is_ok() {
                    shared = share(host, key, &region, number);
                }
            });
        }
        drop(regions);
        // If one endpoint has no space for the region, dropping the registration removes it from
        // all endpoints.
        shared.map(|()| registration)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut regions = self.domain.regions();
        if let Some(number) = regions.remove(self.key) {
            self.domain.hosts.each(|host| host.unshare(self.key, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_ends_when_it_is_dropped() {
        let domain = crate::objects::domain::tests::domain();
        let registration = Registration::new(&domain, vec![(4096, 10)], 0, 5).unwrap();
        assert_eq!(domain.regions().find(5).unwrap().first, 0);
        drop(registration);
        assert_eq!(domain.regions().find(5), None);
    }

    #[test]
    fn the_basic_model_chooses_keys_and_speaks_of_pointers() {
        let fabric = crate::objects::fabric::tests::fabric();
        let domain = Arc::new(Domain::new(fabric, [127, 0, 0, 1].into(), true));
        let registration = Registration::new(&domain, vec![(4096, 10)], 0, 5).unwrap();
        assert_ne!(registration.key, 5);
        assert_eq!(domain.regions().find(registration.key).unwrap().first, 4096);
    }
}
