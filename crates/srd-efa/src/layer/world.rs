//! Arguments and results of calls: the borrowed environment of a call, its peer, and reasons to
//! refuse it.

use core::fmt;
use core::net::SocketAddr;

use srd_proto::{AddPeerError, Endpoint, Instant, PeerConfig, PeerId};

use crate::memory::Memory;

/// A peer, as a small number: the lowest number that was free when the peer was added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Peer(pub u32);

/// Environment that a call of a layer borrows: time, transport and memory.
pub struct World<'a> {
    /// Time of the call.
    pub now: Instant,
    /// Endpoint of the transport.
    pub endpoint: &'a mut Endpoint,
    /// Memory of the application. Region 0 is its whole address space: offsets are addresses. Other
    /// regions are registrations.
    pub memory: &'a mut dyn Memory,
}

impl World<'_> {
    /// Returns the transport's peer at an address. Adds the peer if it is new, and prevents its
    /// removal.
    pub(crate) fn keep_peer(&mut self, address: SocketAddr) -> Result<PeerId, Refused> {
        let known = self.endpoint.peer_at(address);
        let id = match known {
            Some(id) => id,
            None => {
                let added = self.endpoint.add_peer(self.now, PeerConfig::at(address));
                added.map_err(|error| match error {
                    AddPeerError::TooManyPeers => Refused::Again,
                    _ => Refused::Invalid,
                })?
            }
        };
        self.endpoint.keep_peer(id);
        Ok(id)
    }
}

/// Reason why a call was refused. A refused call has no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// A table is full. Try again after progress.
    Again,
    /// The peer does not exist.
    NoSuchPeer,
    /// The operation has more bytes than the layer supports.
    TooLong,
    /// The arguments are invalid; for example, the local and the remote pieces have different
    /// lengths.
    Invalid,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Again => "there is no room now",
            Self::NoSuchPeer => "there is no such peer",
            Self::TooLong => "it has more bytes than an operation carries",
            Self::Invalid => "its pieces do not fit each other, or it makes no sense",
        })
    }
}
