//! Reports of an endpoint beside arrivals: events and statistics.

use std::net::SocketAddr;

use srd_proto::{DownReason, PeerStats, Stats};

use crate::io::{IoStats, Notice};

/// Something that happened to an endpoint, other than an arrival.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EndpointEvent {
    /// A peer has answered, or has sent its first packet.
    PeerUp(SocketAddr),
    /// Everything outstanding to a peer has failed. It stays usable.
    PeerDown(SocketAddr, DownReason),
    /// The fabric passes less than the configured packet size to a peer.
    PathMtu {
        /// The peer.
        peer: SocketAddr,
        /// UDP payload bytes that work (`packet_bytes_max`).
        works_bytes: u16,
        /// UDP payload bytes that were configured.
        configured_bytes: u16,
    },
    /// A notice of the sockets.
    Notice(Notice),
}

/// The state of an endpoint, for people and monitoring.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The core's counters.
    pub stats: Stats,
    /// The sockets' counters.
    pub io: IoStats,
    /// Every peer that this endpoint has talked to.
    pub peers: Vec<(SocketAddr, PeerStats)>,
}
