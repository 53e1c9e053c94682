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
    /// The size of packets that the network passes towards a peer has changed: only smaller packets
    /// than the configured size pass, or packets of the configured size pass again.
    PathMtu {
        /// Address of the peer.
        peer: SocketAddr,
        /// Largest UDP payload that the network passes, in bytes.
        works_bytes: u16,
        /// Configured largest UDP payload of a packet, in bytes (`packet_bytes_max`).
        configured_bytes: u16,
    },
    /// A condition that the sockets have detected, for example a packet larger than the MTU.
    Notice(Notice),
}

/// The state of an endpoint, for users and monitoring.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Counters of the protocol core.
    pub stats: Stats,
    /// Counters of the sockets.
    pub io: IoStats,
    /// Every peer that this endpoint has exchanged packets with, and its state.
    pub peers: Vec<(SocketAddr, PeerStats)>,
}
