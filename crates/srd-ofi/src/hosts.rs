//! Hosts by the objects that drive them: queues, counters, vectors and domains know their
//! endpoints.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use srd_host::Handle;

use crate::sink::EndpointSink;

/// What an endpoint's host is called through.
pub type HostHandle = Handle<EndpointSink>;

/// The hosts of an object. Bound: the endpoints of a domain.
#[derive(Debug, Default)]
pub struct Hosts(RwLock<Vec<HostHandle>>);

impl Hosts {
    /// An endpoint is bound to the object; more than once counts once.
    pub fn add(&self, host: &HostHandle) {
        let mut hosts = self.write();
        if !hosts.iter().any(|known| known.is_of(host)) {
            hosts.push(host.clone());
        }
    }

    /// An endpoint is closed.
    pub fn remove(&self, host: &HostHandle) {
        self.write().retain(|known| !known.is_of(host));
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

    /// Calls `each` for every host.
    pub fn each(&self, each: impl FnMut(&HostHandle)) {
        self.read().iter().for_each(each);
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<HostHandle>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<HostHandle>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
