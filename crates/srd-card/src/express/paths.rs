//! Paths of clouds' packets outside of SRD. Each interface uses a few paths, and each of its flows
//! uses one of these (C5).
//!
//! Bound: [`NEAR_SETS`] sets of recently used slots.

use alloc::vec;
use alloc::vec::Vec;

use srd_proto::Secret;

use crate::hash::Product;
use crate::meta::key::FlowKey;

/// Number of paths that one interface's packets outside of SRD use; each flow uses one. // C5
const PLAIN_PATHS: usize = 8;
/// Number of sets in a cache of slots of the flow table. A set contains the slot last used for each
/// path of one interface to one peer. A slot in the cache is found without a search in the table.
const NEAR_SETS: usize = 64;

/// Selection of a path for each flow, and a cache of the slots that paths have in the flow table.
#[derive(Debug)]
pub(super) struct Paths {
    /// Secret of the selection. It determines only which of eight paths and which of 64 bits a flow
    /// gets, so little is lost if an attacker learns it. Flows that all use one path get as much as
    /// a single flow would; flows with equal bits cost one search each.
    secret: Product,
    near: Vec<[u32; PLAIN_PATHS]>,
}

/// Path and bit of a flow, which follow from the flow's hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Number of the path among the eight paths of the interface.
    pub(super) path: u8,
    /// Bit that represents the flow in the set of flows with frames in the path's queue.
    pub(super) bit: u64,
}

impl Paths {
    pub(super) fn new(secret: Secret) -> Self {
        Self { secret: Product::new(secret), near: Vec::new() }
    }

    #[inline]
    pub(super) fn choose(&self, key: &FlowKey) -> Choice {
        let hash = key.product_under(&self.secret);
        // Three bits of the hash select one of eight paths; six more bits select one of 64 bits.
        let path = u8::try_from(hash >> 61).unwrap_or(0);
        Choice { path, bit: 1 << (hash >> 55 & 63) }
    }

    /// Returns the cached slot of a path from an interface to a peer, which the caller checks and
    /// updates. It is `u32::MAX`, or the slot of another path, if the cache does not contain the
    /// path.
    #[inline]
    pub(super) fn near(&mut self, (peer, interface, path): (u32, u64, u8)) -> &mut u32 {
        if self.near.is_empty() {
            self.near = vec![[u32::MAX; PLAIN_PATHS]; NEAR_SETS];
        }
        // Identifiers of interfaces are random, or consecutive from one on.
        let mixed = (interface ^ u64::from(peer) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = usize::try_from(mixed >> 58).unwrap_or(0);
        &mut self.near[set % NEAR_SETS][usize::from(path) % PLAIN_PATHS]
    }
}
