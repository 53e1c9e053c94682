//! The paths of plain packets of clouds: few for each interface, one of them for each flow (C5).
//!
//! Bound: [`NEAR_SETS`] sets of slots that were used last.

use alloc::vec;
use alloc::vec::Vec;

use srd_proto::Secret;

use crate::hash::Product;
use crate::meta::key::FlowKey;

/// Paths that plain packets of one interface take, each flow one of them. // C5
const PLAIN_PATHS: usize = 8;
/// Sets of slots of an interface's paths to a peer that are found without a search.
const NEAR_SETS: usize = 64;

/// The paths of plain packets: which one a flow takes, and where the queues of those that were used
/// last are.
#[derive(Debug)]
pub(super) struct Paths {
    /// Only one of eight paths and one of 64 bits follow from it. Flows that an attacker aims at
    /// one path share the path that a single flow would have. Flows with one bit cost a search
    /// each.
    secret: Product,
    near: Vec<[u32; PLAIN_PATHS]>,
}

/// The choice that follows from a flow's hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// The path, by its number among those of the interface.
    pub(super) path: u8,
    /// The bit of the flow among the members of the path's queue.
    pub(super) bit: u64,
}

impl Paths {
    pub(super) fn new(secret: Secret) -> Self {
        Self { secret: Product::new(secret), near: Vec::new() }
    }

    #[inline]
    pub(super) fn choose(&self, key: &FlowKey) -> Choice {
        let hash = key.product_under(&self.secret);
        // Eight paths, 64 bits.
        let path = u8::try_from(hash >> 61).unwrap_or(0);
        Choice { path, bit: 1 << (hash >> 55 & 63) }
    }

    /// The place of the slot that such a path had last.
    #[inline]
    pub(super) fn near(&mut self, (peer, interface, path): (u32, u64, u8)) -> &mut u32 {
        if self.near.is_empty() {
            self.near = vec![[u32::MAX; PLAIN_PATHS]; NEAR_SETS];
        }
        // Identifiers of interfaces are drawn, or counted from one.
        let mixed = (interface ^ u64::from(peer) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let set = usize::try_from(mixed >> 58).unwrap_or(0);
        &mut self.near[set % NEAR_SETS][usize::from(path) % PLAIN_PATHS]
    }
}
