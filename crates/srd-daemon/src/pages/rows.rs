//! Raw rows of flows and paths, which a worker copies and a reader sorts and names.

use std::net::SocketAddr;

use srd_card::FlowReport;
use srd_proto::PathReport;

use crate::plane::{Oneshot, PeerNumber};

/// The busiest flows of one worker.
#[derive(Debug)]
pub(crate) struct FlowList {
    pub(crate) most: usize,
    pub(crate) rows: Vec<FlowRow>,
    pub(crate) done: Oneshot<Vec<FlowRow>>,
}

/// One flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowRow {
    pub(crate) peer: PeerNumber,
    pub(crate) report: FlowReport,
}

/// The paths of peers, as one worker sees them.
#[derive(Debug)]
pub(crate) struct PathList {
    /// Peers whose paths are still to be copied; the next one is last.
    pub(crate) peers: Vec<PeerNumber>,
    pub(crate) rows: Vec<PathRow>,
    pub(crate) done: Oneshot<Vec<PathRow>>,
}

/// One path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathRow {
    pub(crate) peer: PeerNumber,
    pub(crate) path: u16,
    pub(crate) report: PathReport,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
}
