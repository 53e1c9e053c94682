//! A domain: an interface in use, and the objects that share it.
//!
//! Each object that was opened in a domain holds a [`Slot`], which counts the objects of its kind
//! up to the limit, and keeps the domain open.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use srd_host::Process;

use crate::abi::errno::FI_ENOSPC;
use crate::objects::fabric::{Fabric, same_process};
use crate::objects::hosts::Hosts;
use crate::objects::region::Regions;
use crate::requests::offers::OBJECTS_MAX;
use crate::{Errno, Outcome};

/// An open domain.
#[derive(Debug)]
pub struct Domain {
    /// The fabric that the domain belongs to.
    pub fabric: Arc<Fabric>,
    /// IP address of the interface.
    pub ip: IpAddr,
    /// Whether the provider chooses the keys of memory regions, and remote addresses are pointers
    /// of the owning process (`FI_MR_BASIC`). If this is false, the application chooses keys, and
    /// addresses start at zero.
    pub basic_mr: bool,
    /// Endpoints of the domain.
    pub hosts: Hosts,
    regions: Mutex<Regions>,
    objects: [AtomicUsize; 4],
}

/// Kinds of objects that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Address vectors of the domain.
    Vector,
    /// Completion queues of the domain.
    CompletionQueue,
    /// Counters (`fid_cntr`) of the domain.
    Counter,
    /// Endpoints of the domain.
    Endpoint,
}

impl Domain {
    /// Returns a domain on the interface with the address `ip`.
    #[must_use]
    pub fn new(fabric: Arc<Fabric>, ip: IpAddr, basic_mr: bool) -> Self {
        let regions = Mutex::new(Regions::new(crate::requests::offers::REGIONS_MAX));
        Self {
            fabric,
            ip,
            basic_mr,
            hosts: Hosts::default(),
            regions,
            objects: [const { AtomicUsize::new(0) }; 4],
        }
    }

    /// Locks and returns the registered memory.
    pub fn regions(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the limited number of objects of a kind that a domain may have. Dropping this value
/// releases it.
#[derive(Debug)]
pub struct Slot {
    domain: Arc<Domain>,
    kind: Kind,
    process: Process,
}

impl Slot {
    /// Reserves a slot for one more object.
    ///
    /// # Errors
    /// `FI_ENOSPC` if there are [`OBJECTS_MAX`] of its kind; `FI_EOPBADSTATE` in the child of a
    /// fork.
    pub fn take(domain: &Arc<Domain>, kind: Kind) -> Outcome<Self> {
        let process = domain.fabric.process;
        same_process(process)?;
        let slot = Self { domain: Arc::clone(domain), kind, process };
        // A slot that was not free is given back when it is dropped.
        let before = domain.objects[kind as usize].fetch_add(1, Ordering::Relaxed);
        if before < OBJECTS_MAX { Ok(slot) } else { Err(Errno(FI_ENOSPC)) }
    }

    /// Checks that this process opened the object.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` in the child of a fork.
    pub fn check(&self) -> Outcome {
        same_process(self.process)
    }

    /// Returns the domain.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.domain.objects[self.kind as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a domain on loopback.
    pub(crate) fn domain() -> Arc<Domain> {
        let fabric = crate::objects::fabric::tests::fabric();
        Arc::new(Domain::new(fabric, [127, 0, 0, 1].into(), false))
    }

    #[test]
    fn objects_have_a_limit_per_kind_and_give_their_place_back() {
        let domain = domain();
        let mut slots: Vec<_> =
            (0..OBJECTS_MAX).map(|_| Slot::take(&domain, Kind::Counter).unwrap()).collect();
        assert_eq!(Slot::take(&domain, Kind::Counter).unwrap_err(), Errno(FI_ENOSPC));
        assert!(Slot::take(&domain, Kind::Endpoint).is_ok());
        slots.pop();
        assert!(Slot::take(&domain, Kind::Counter).is_ok());
        assert!(Slot::take(&domain, Kind::Counter).is_ok());
    }
}
