//! The endpoints that an object drives. Queues, counters, vectors and domains each have a list of
//! them.

use std::fmt::Debug;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use srd_efa::layer::Shared;
use srd_host::{RegionNumber, Span};

use crate::Outcome;

/// Calls that objects of a domain make on an endpoint.
pub trait Driven: Debug + Send + Sync {
    /// A number that no other endpoint has while this one is known.
    fn id(&self) -> usize;

    /// One round of work, without waiting.
    fn poll(&self);

    /// The progress thread does the work from now on.
    fn hand_over(&self);

    /// Registers memory with the endpoint.
    ///
    /// # Errors
    /// `FI_ENOSPC` if there is no room for it.
    ///
    /// # Safety
    /// The memory stays where it is until [`Driven::unshare`].
    #[allow(unsafe_code, reason = "names memory of the application's")]
    unsafe fn share(&self, number: RegionNumber, spans: Box<[Span]>, shared: Shared) -> Outcome;

    /// Ends the registration of memory. The endpoint does not access this memory afterwards.
    fn unshare(&self, key: u64, number: RegionNumber);

    /// The address with this number was removed from the endpoint's vector.
    fn forget(&self, number: u64);
}

/// The endpoints of an object. Bound: those of a domain.
#[derive(Debug, Default)]
pub struct Hosts(RwLock<Vec<Box<dyn Driven>>>);

impl Hosts {
    /// An endpoint is bound to the object; more than once counts once.
    pub fn add<H: Driven + Clone + 'static>(&self, host: &H) {
        let mut hosts = self.write();
        if !hosts.iter().any(|known| known.id() == host.id()) {
            hosts.push(Box::new(host.clone()));
        }
    }

    /// An endpoint is closed.
    pub fn remove(&self, host: &dyn Driven) {
        self.write().retain(|known| known.id() != host.id());
    }

    /// One round of work of each, without waiting.
    pub fn poll(&self) {
        for host in self.read().iter() {
            host.poll();
        }
    }

    /// Their progress threads do the work from now on.
    pub fn hand_over(&self) {
        for host in self.read().iter() {
            host.hand_over();
        }
    }

    /// Calls `each` for every endpoint.
    pub fn each(&self, mut each: impl FnMut(&dyn Driven)) {
        self.read().iter().for_each(|host| each(host.as_ref()));
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Box<dyn Driven>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Box<dyn Driven>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
