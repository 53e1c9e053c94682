//! Reports of an endpoint other than arrivals: events and statistics.

use std::net::SocketAddr;

use srd_proto::{DownReason, PeerStats, Stats};

use crate::back_ends::io::{IoStats, Notice};

/// Something that happened to an endpoint, other than an arrival.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EndpointEvent {
    /// A peer has answered, or this endpoint has received the first packet from the peer.
    PeerUp(SocketAddr),
    /// Every outstanding datagram to a peer has failed. The peer stays usable.
    PeerDown(SocketAddr, DownReason),
    /// The network towards a peer passes only packets that are smaller than the configured size.
    PathMtu {
        /// Address of the peer.
        peer: SocketAddr,
        /// Largest UDP payload in bytes that passes (`packet_bytes_max`).
        works_bytes: u16,
        /// Configured UDP payload in bytes.
        configured_bytes: u16,
    },
    /// A notice of the sockets.
    Notice(Notice),
}

/// The state of an endpoint, for users and monitoring.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The core's counters.
    pub stats: Stats,
    /// The sockets' counters.
    pub io: IoStats,
    /// Every peer that this endpoint has exchanged packets with, and its state.
    pub peers: Vec<(SocketAddr, PeerStats)>,
}
