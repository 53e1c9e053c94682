//! The program's handles for peers: 64-bit numbers that also contain the endpoint.
//!
//! ```text
//!  63        44 43                 20 19                0
//! +------------+---------------------+-------------------+
//! |  endpoint  |      generation     |      number       |
//! +------------+---------------------+-------------------+
//! ```
//!
//! The endpoint's number is never zero, so no handle equals [`ANY`]. Bound: one slot for each peer
//! number of the Messaging Layer; these numbers are below 2^20.

use srd_efa::layer::Peer;

use crate::{Error, Outcome, Status};

/// Handle that stands for no peer, or for any peer.
pub const ANY: u64 = 0;

const NUMBER_BITS: u32 = 20;
const GENERATION_BITS: u32 = 24;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
/// Upper limit of endpoint numbers in handles; the numbers start at one.
pub const ENDPOINTS: u32 = 1 << (64 - NUMBER_BITS - GENERATION_BITS);

/// The peers of an endpoint.
#[derive(Debug)]
pub struct Peers {
    endpoint: u32,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Number of times that the program has disconnected from the peer of this number.
    disconnected: u32,
    /// Number of times that the program has connected to the peer and not disconnected yet.
    references: u32,
    /// Whether the program has a handle for the peer.
    known: bool,
}

impl Slot {
    /// Returns the generation of the number's handle, which differs after the program has
    /// disconnected, and after the Messaging Layer has freed the number.
    fn generation(&self, uses: u32) -> u32 {
        self.disconnected.wrapping_add(uses) & GENERATION_MASK
    }
}

impl Peers {
    /// Returns an empty table. `endpoint`: the endpoint's number in handles.
    #[must_use]
    pub fn new(endpoint: u32) -> Self {
        assert!(endpoint > 0 && endpoint < ENDPOINTS, "names of endpoints fit their bits");
        Self { endpoint, slots: Vec::new() }
    }

    /// Returns the handle for a peer. `uses`: how many times the Messaging Layer has freed the
    /// peer's number ([`srd_efa::rdm::Rdm::uses`]).
    pub fn handle(&mut self, peer: Peer, uses: u32) -> u64 {
        let at = peer.0 as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, Slot::default());
        }
        self.slots[at].known = true;
        u64::from(self.endpoint) << (NUMBER_BITS + GENERATION_BITS)
            | u64::from(self.slots[at].generation(uses)) << NUMBER_BITS
            | u64::from(peer.0) & NUMBER_MASK
    }

    /// Returns the peer of a handle. `uses` returns how many times the Messaging Layer has freed
    /// the number of a peer.
    ///
    /// # Errors
    /// `Handle`, if the handle belongs to another endpoint or is no longer valid.
    pub fn find(&self, handle: u64, uses: impl FnOnce(Peer) -> u32) -> Outcome<Peer> {
        let number = u32::try_from(handle & NUMBER_MASK).map_err(|_| Status::Handle)?;
        if handle == ANY {
            return Err(Error::new(Status::Handle, "peer: SRD_ANY is no peer to send to"));
        }
        if handle >> (NUMBER_BITS + GENERATION_BITS) != u64::from(self.endpoint) {
            return Err(Error::new(Status::Handle, "the peer is one of another endpoint, or none"));
        }
        let generation = handle >> NUMBER_BITS & u64::from(GENERATION_MASK);
        let peer = Peer(number);
        let slot = self.slots.get(number as usize).filter(|slot| slot.known);
        if slot.is_none_or(|slot| u64::from(slot.generation(uses(peer))) != generation) {
            let text = "the peer was disconnected, or has gone: connect again";
            return Err(Error::new(Status::Handle, text));
        }
        Ok(peer)
    }

    /// Records that the program has connected to a peer. Returns the handle for the peer.
    pub fn connected(&mut self, peer: Peer, uses: u32) -> u64 {
        let handle = self.handle(peer, uses);
        let slot = &mut self.slots[peer.0 as usize];
        slot.references = slot.references.saturating_add(1);
        handle
    }

    /// Records that the program has disconnected from a peer. After the last disconnection the
    /// handle is no longer valid.
    pub fn disconnected(&mut self, peer: Peer) {
        let Some(slot) = self.slots.get_mut(peer.0 as usize) else { return };
        slot.references = slot.references.saturating_sub(1);
        if slot.references == 0 {
            slot.disconnected = slot.disconnected.wrapping_add(1);
            slot.known = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_back_to_their_peer_and_to_no_other_endpoint() {
        let (mut one, mut other) = (Peers::new(1), Peers::new(ENDPOINTS - 1));
        for number in [0, 1, 77, (1 << 20) - 1] {
            let handle = one.handle(Peer(number), 5);
            assert_ne!(handle, ANY);
            assert_eq!(one.find(handle, |_| 5), Ok(Peer(number)));
            other.handle(Peer(number), 5);
            assert_eq!(other.find(handle, |_| 5).unwrap_err().status, Status::Handle);
        }
        for handle in [ANY, 1, u64::MAX, 1 << 44 | 5] {
            assert!(one.find(handle, |_| 5).is_err(), "{handle:x}");
        }
    }

    #[test]
    fn a_word_ends_with_the_last_disconnect() {
        let mut peers = Peers::new(3);
        let handle = peers.connected(Peer(4), 0);
        assert_eq!(peers.connected(Peer(4), 0), handle);
        peers.disconnected(Peer(4));
        assert_eq!(peers.find(handle, |_| 0), Ok(Peer(4)));
        peers.disconnected(Peer(4));
        assert!(peers.find(handle, |_| 0).is_err());
        let next = peers.connected(Peer(4), 0);
        assert!(peers.find(handle, |_| 0).is_err());
        assert_eq!(peers.find(next, |_| 0), Ok(Peer(4)));
    }

    #[test]
    fn regression_the_handle_of_a_peer_that_has_gone_is_not_that_of_the_next_with_its_number() {
        let mut peers = Peers::new(3);
        let gone = peers.handle(Peer(4), 0);
        assert_eq!(peers.find(gone, |_| 0), Ok(Peer(4)));
        let next = peers.handle(Peer(4), 1);
        assert_ne!(gone, next);
        assert_eq!(peers.find(gone, |_| 1).unwrap_err().status, Status::Handle);
        assert_eq!(peers.find(next, |_| 1), Ok(Peer(4)));
    }
}
