//! What the connections of the control socket share, and how many there may be: each holds a slot
//! while it lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::config::{Config, ConfigError};
use crate::plane::PlaneHandle;

/// Connections at once.
pub const CONNECTIONS_MAX: usize = 16;
/// Of them, those that may last: watches and captures. The rest is left for short requests.
pub const STREAMS_MAX: usize = 8;

/// Reads the configuration anew, when a reload is asked for.
pub type Loader = Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// What all connections share.
pub(super) struct Shared {
    pub(super) plane: PlaneHandle,
    pub(super) loader: Loader,
    pub(super) connections: AtomicUsize,
    pub(super) streams: AtomicUsize,
    pub(super) is_ending: AtomicBool,
}

/// One of a bounded number of slots; given back when dropped.
pub(super) struct Slot {
    pub(super) shared: Arc<Shared>,
    count: fn(&Shared) -> &AtomicUsize,
}

impl Slot {
    /// A slot, if one is free.
    pub(super) fn take(
        shared: &Arc<Shared>,
        count: fn(&Shared) -> &AtomicUsize,
        max: usize,
    ) -> Option<Self> {
        let one_more = |taken: usize| (taken < max).then_some(taken + 1);
        let taken = count(shared).fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.ok().map(|_| Self { shared: Arc::clone(shared), count })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        (self.count)(&self.shared).fetch_sub(1, Ordering::Relaxed);
    }
}
