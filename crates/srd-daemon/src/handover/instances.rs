//! The instances of a node in a hand-over: what the card of the instances does for it.

use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Result;

/// Functions of the card of the instances, which the control thread calls.
#[derive(Clone)]
pub struct InstancesHandOver {
    /// Returns the descriptors that the other process needs before the card stops.
    pub descriptors: Arc<dyn Fn() -> Result<Vec<OwnedFd>> + Send + Sync>,
    /// Stops the card, and returns its state.
    pub hold: Arc<dyn Fn() -> Result<HeldInstances> + Send + Sync>,
}

/// Instances that move no packets. If this is dropped, they continue as before.
pub struct HeldInstances {
    /// The file with the state of the card.
    pub state: File,
    /// Descriptors of the devices, in the order that the state defines.
    pub descriptors: Vec<Arc<OwnedFd>>,
    /// Ends the card, whose objects belong to the other process from now on. Waits until files are
    /// complete, for a limited time.
    pub leave: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for InstancesHandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InstancesHandOver")
    }
}

impl fmt::Debug for HeldInstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldInstances")
    }
}
