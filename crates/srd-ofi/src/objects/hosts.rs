//! The endpoints that an object drives. Queues, counters, vectors and domains each have a list of
//! them.

use std::fmt::Debug;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use srd_efa::layer::Shared;
use srd_host::{RegionNumber, Span};

use crate::Outcome;

/// Calls that objects of a domain make on an endpoint.
pub trait Driven: Debug + Send + Sync {
    /// Returns a number that identifies this endpoint among all open endpoints.
    fn id(&self) -> usize;

    /// Does one round of the endpoint's work, such as receiving packets, without waiting.
    fn poll(&self);

    /// Makes the endpoint's progress thread do the work from now on, until the application polls
    /// again.
    fn hand_over(&self);

    /// Makes registered memory accessible to the endpoint's peers.
    ///
    /// # Errors
    /// `FI_ENOSPC` if the endpoint's table of regions is full.
    ///
    /// # Safety
    /// The memory stays where it is until [`Driven::unshare`].
    #[allow(unsafe_code, reason = "names memory of the application's")]
    unsafe fn share(&self, number: RegionNumber, spans: Box<[Span]>, shared: Shared) -> Outcome;

    /// Ends the registration of memory: afterwards the endpoint and its peers do not access the
    /// memory.
    fn unshare(&self, key: u64, number: RegionNumber);

    /// Forgets the peer with this number: its address was removed from the endpoint's vector.
    fn forget(&self, number: u64);
}

/// List of the endpoints that an object drives. Their number is limited by the number of endpoints
/// of the domain.
#[derive(Debug, Default)]
pub struct Hosts(RwLock<Vec<Box<dyn Driven>>>);

impl Hosts {
    /// Adds an endpoint that is bound to the object. Adding an endpoint twice has no further
    /// effect.
    pub fn add<H: Driven + Clone + 'static>(&self, host: &H) {
        let mut hosts = self.write();
        if !hosts.iter().any(|known| known.id() == host.id()) {
            hosts.push(Box::new(host.clone()));
        }
    }

    /// Removes an endpoint from the list, because it is being closed.
    pub fn remove(&self, host: &dyn Driven) {
        self.write().retain(|known| known.id() != host.id());
    }

    /// Does one round of work of each endpoint, without waiting.
    pub fn poll(&self) {
        for host in self.read().iter() {
            host.poll();
        }
    }

    /// Makes the progress threads of all endpoints do the work from now on, until the application
    /// polls again.
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
