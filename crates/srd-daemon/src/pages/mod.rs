//! Statistics as pages: memory that workers write and any thread may read without sending a
//! request.
//!
//! ```text
//!   worker 0 --- totals, rows of peers ---+
//!   worker 1 --- totals, rows of peers ---+--> pages --> reader: adds up, names, writes a Snapshot
//!   control thread --- directory, rates --+              (control socket, metrics, `srd top`)
//! ```
//!
//! A reader works on its own thread and takes no lock that a worker uses. The names and keys of
//! peers and other strings are in the [`Directory`]. The control thread replaces it as a whole when
//! settings change. Lists of flows and paths are too long for pages: see [`lists`].
//!
//! Bounds: one page for each worker, and one row for each worker and peer.
//!
//! | module | contents |
//! |---|---|
//! | [`figure`] | figures as words, and their sums |
//! | [`page`] | words that one thread writes and any thread reads |
//! | [`totals`] | counters of a worker |
//! | [`peer`] | figures of a peer from each worker, and their combination |
//! | [`lists`] | flows and paths, on request |
//! | [`rows`] | the rows of such lists |
//! | [`controller`] | the connection to the controller, if this host has enrolled at one |
//! | `read` | builds a [`Snapshot`] from all of these |

pub(crate) mod controller;
pub(crate) mod figure;
pub(crate) mod lists;
pub(crate) mod page;
pub(crate) mod peer;
mod read;
#[cfg(test)]
mod read_tests;
pub(crate) mod rows;
pub(crate) mod totals;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use srd_proto::Instant;

use self::controller::ControllerPage;
use self::lists::Lists;
use self::page::Page;
use self::peer::PeerPage;
use self::totals::Totals;
use crate::config::{HostPort, Mode, UdpOrdering};
use crate::plane::{Detail, PeerNumber, PlaneError, Statistics};
use crate::run::orders::Orders;
use crate::snapshot::Snapshot;

/// Properties of the daemon that do not change while it runs.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) interface: String,
    pub(crate) file: String,
    pub(crate) mode: Mode,
    pub(crate) encrypted: bool,
    pub(crate) listen: String,
    pub(crate) mtu: u16,
    pub(crate) paths: u16,
    pub(crate) link_rate_bps: u64,
    pub(crate) started_at: Instant,
}

/// One peer in the [`Directory`], with the settings that readers need.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) number: PeerNumber,
    pub(crate) name: String,
    pub(crate) public_key: Option<String>,
    pub(crate) host: Option<HostPort>,
    /// Error text of the resolver for the peer's host name; empty if there is no name or it
    /// resolves.
    pub(crate) lookup_error: String,
    pub(crate) allowed: Vec<String>,
    /// Whether SRD to this peer is switched on in our configuration.
    pub(crate) express: bool,
    pub(crate) page: Arc<PeerPage>,
}

/// The settings that are in use at present, with the peers in the order of the configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    pub(crate) express: bool,
    pub(crate) udp_ordering: UdpOrdering,
    /// Public key of this node; `None` without encryption.
    pub(crate) public_key: Option<String>,
    pub(crate) peers: Vec<Listed>,
}

/// Everything that readers need to build a [`Snapshot`].
#[derive(Debug)]
pub(crate) struct Pages {
    about: About,
    /// One page for each worker; only that worker writes it.
    totals: Vec<Arc<Page<Totals>>>,
    lists: Lists,
    /// Workers never take this lock.
    directory: Mutex<Arc<Directory>>,
    controller: Arc<ControllerPage>,
    is_over: AtomicBool,
}

impl Pages {
    pub(crate) fn new(about: About, totals: Vec<Arc<Page<Totals>>>, workers: Vec<Orders>) -> Self {
        let (directory, controller) = (Mutex::default(), Arc::default());
        let is_over = AtomicBool::new(false);
        Self { about, totals, lists: Lists::new(workers), directory, controller, is_over }
    }

    /// Returns the page of the connection to the controller.
    pub(crate) fn controller(&self) -> Arc<ControllerPage> {
        Arc::clone(&self.controller)
    }

    /// Replaces the directory with a new directory.
    pub(crate) fn list(&self, directory: Directory) {
        *self.directory.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(directory);
    }

    /// Makes all further requests of readers fail, because the daemon is ending.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns the counters of all workers together.
    pub(crate) fn totals(&self) -> Totals {
        Totals::together(self.totals.iter().map(|page| page.read()))
    }

    fn directory(&self) -> Arc<Directory> {
        Arc::clone(&self.directory.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Statistics for Pages {
    fn snapshot(&self, detail: &Detail) -> Result<Snapshot, PlaneError> {
        if self.is_over.load(Ordering::Relaxed) {
            return Err(PlaneError::Gone);
        }
        read::snapshot(self, detail)
    }
}

/// Returns the name of each peer by its number.
fn names(directory: &Directory) -> BTreeMap<PeerNumber, &str> {
    directory.peers.iter().map(|peer| (peer.number, peer.name.as_str())).collect()
}
