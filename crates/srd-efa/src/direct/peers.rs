//! Peers: those that the application added, and those that have sent to this endpoint. Bound:
//! `peers_max`.
//!
//! The number of a peer is its index in the transport. Every peer gets an address handle, even if
//! it has only sent to this endpoint: the device executes only reads and writes of peers with an
//! address handle (R1).

use core::net::SocketAddr;

use srd_proto::{Endpoint, PeerId};

use crate::direct::state::{Direct, Entry};
use crate::layer::world::{Peer, Refused, World};

impl Direct {
    pub(super) fn entry(&self, peer: Peer) -> Option<&Entry> {
        self.peers.get(peer.0 as usize)?.as_ref()
    }

    /// Returns the peer at an address. Its entry exists as long as the endpoint.
    ///
    /// # Errors
    /// `Again` if there are too many peers; `Invalid` for this endpoint's own address, or if the
    /// transport has no key of the peer.
    pub fn add_peer(
        &mut self,
        world: &mut World<'_>,
        address: SocketAddr,
    ) -> Result<Peer, Refused> {
        if address == self.local_address {
            return Err(Refused::Invalid);
        }
        let id = world.keep_peer(address)?;
        let index = self.ensure_peer(id).ok_or(Refused::Again)?;
        if let Some(Some(entry)) = self.peers.get_mut(index as usize) {
            entry.address = Some(address);
        }
        Ok(Peer(index))
    }

    /// Returns the address of a peer; `None` if the peer does not exist, or its address was not
    /// looked up yet.
    pub fn address_of(&self, peer: Peer) -> Option<SocketAddr> {
        self.entry(peer)?.address
    }

    /// Returns the number of a peer of the transport; ensures that the peer has an address handle.
    /// `None` if there are too many peers.
    pub(super) fn ensure_peer(&mut self, id: PeerId) -> Option<u32> {
        let index = id.index();
        match self.entry(Peer(index)).copied() {
            Some(entry) if entry.id == id => return Some(index),
            // The transport has reused the number for another peer.
            Some(other) => {
                let _ = self.device.destroy_ah(other.ah);
                self.peers[index as usize] = None;
            }
            None => {}
        }
        let ah = self.device.create_ah(self.pd, id).ok()?;
        if self.peers.len() <= index as usize {
            self.peers.resize(index as usize + 1, None);
        }
        self.peers[index as usize] = Some(Entry { id, ah, address: None });
        self.strangers.push(id);
        Some(index)
    }

    /// Looks up the addresses of peers that have sent to this endpoint.
    pub(super) fn resolve_addresses(&mut self, endpoint: &Endpoint) {
        for id in core::mem::take(&mut self.strangers) {
            let address = endpoint.address_of(id);
            if let Some(Some(entry)) = self.peers.get_mut(id.index() as usize)
                && entry.id == id
            {
                entry.address = entry.address.or(address);
            }
        }
    }
}
