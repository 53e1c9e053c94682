//! State that the connections of the control socket share, and the limits of their number. Each
//! connection takes a slot, and frees it when it ends.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::socket::Socket;
use crate::config::{Config, ConfigError};
use crate::control_plane::pods::PodRequests;
use crate::plane::PlaneHandle;

/// Largest number of connections at once.
pub const CONNECTIONS_MAX: usize = 16;
/// Number of these connections that only root and the user that started the daemon may use. The
/// members of the socket's group cannot take their slots.
pub const CONNECTIONS_RESERVED: usize = 4;
/// Largest number of long-lived connections: watches and captures. The other slots are left for
/// short requests.
pub const STREAMS_MAX: usize = 8;
/// Number of long-lived connections that only root and the user that started the daemon may use.
pub const STREAMS_RESERVED: usize = 2;

/// Function that reads and checks the configuration file, for a reload.
pub type Loader = Arc<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>;

/// Function that serves requests about instances on a connection, until the client closes it.
pub type ServeInstances = Arc<dyn Fn(UnixStream) + Send + Sync>;

/// Requests that need more than the control thread.
#[derive(Clone, Default)]
pub struct Services {
    /// Serves requests about instances; `None` if the node has no instances.
    pub instances: Option<ServeInstances>,
    /// Sends requests about pods to the controller; `None` if this host accepts no pods.
    pub pods: Option<Arc<PodRequests>>,
}

/// State that all connections share.
pub(super) struct Shared {
    pub(super) plane: PlaneHandle,
    /// The socket that listens at present.
    pub(super) socket: Arc<Mutex<Arc<Socket>>>,
    pub(super) loader: Loader,
    /// The user that created the socket first: the one that started the daemon.
    pub(super) owner: u32,
    /// Whether all users that may connect may capture packets.
    pub(super) group_captures: bool,
    pub(super) services: Services,
    pub(super) connections: AtomicUsize,
    pub(super) streams: AtomicUsize,
    pub(super) is_ending: AtomicBool,
    /// Whether another process accepts the present connections: the successor of this process, or
    /// the process before it.
    pub(super) is_leaving: AtomicBool,
    pub(super) successor: Mutex<Option<Successor>>,
}

/// A process that this daemon has started to take over.
pub(super) struct Successor {
    /// Number of the process.
    pub(super) process: u32,
    /// Connection of the client that has requested it.
    pub(super) client: UnixStream,
}

impl Shared {
    /// Returns the socket that listens at present.
    pub(super) fn socket(&self) -> Arc<Socket> {
        Arc::clone(&self.socket.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the client of a connection is root or the user that started the daemon.
    pub(super) fn is_of_owner(&self, stream: &UnixStream) -> bool {
        srd_trust::peer::check_one(stream, self.owner).is_ok()
    }

    pub(super) fn successor(&self) -> MutexGuard<'_, Option<Successor>> {
        self.successor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of a limited number of slots; dropping it frees the slot.
pub(super) struct Slot {
    pub(super) shared: Arc<Shared>,
    count: fn(&Shared) -> &AtomicUsize,
}

impl Slot {
    /// Takes a slot, and increments the counter that `count` selects. Returns `None` if `max` slots
    /// are taken.
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
