//! Raw rows for lists of flows and paths. A worker copies them, and a reader sorts them and adds
//! names.

use std::net::SocketAddr;

use srd_card::FlowReport;
use srd_proto::PathReport;

use crate::plane::{Oneshot, PeerNumber};

/// A request to one worker for its busiest flows, with the rows copied so far.
#[derive(Debug)]
pub(crate) struct FlowList {
    pub(crate) most: usize,
    pub(crate) rows: Vec<FlowRow>,
    pub(crate) done: Oneshot<Vec<FlowRow>>,
}

/// One flow of one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowRow {
    pub(crate) peer: PeerNumber,
    pub(crate) report: FlowReport,
}

/// A request to one worker for the paths of peers, with the rows copied so far.
#[derive(Debug)]
pub(crate) struct PathList {
    /// Peers whose paths are still to be copied, from the last to the first.
    pub(crate) peers: Vec<PeerNumber>,
    pub(crate) rows: Vec<PathRow>,
    pub(crate) done: Oneshot<Vec<PathRow>>,
}

/// One path to a peer, as one worker sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathRow {
    pub(crate) peer: PeerNumber,
    pub(crate) path: u16,
    pub(crate) report: PathReport,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
}
