//! Arguments and results of calls: what a call borrows, its peer, and reasons to refuse it.

use core::fmt;
use core::net::SocketAddr;

use srd_proto::{AddPeerError, Endpoint, Instant, PeerConfig, PeerId};

use crate::memory::Memory;

/// A peer, by a small number: the lowest free one when it became known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Peer(pub u32);

/// Parts of the world that a call borrows.
pub struct World<'a> {
    /// The present.
    pub now: Instant,
    /// The transport.
    pub endpoint: &'a mut Endpoint,
    /// The application's memory. Region 0 is all of its own address space: offsets are addresses.
    /// Others are those of registrations.
    pub memory: &'a mut dyn Memory,
}

impl World<'_> {
    /// The transport's peer at an address, added if it was not known, and kept.
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

/// Reason why a call was refused: it has had no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no room now. Try again after progress.
    Again,
    /// There is no such peer.
    NoSuchPeer,
    /// More bytes than this can carry.
    TooLong,
    /// The pieces do not fit each other, or the operation makes no sense.
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
