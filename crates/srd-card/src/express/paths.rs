//! Paths of clouds' packets outside of SRD: a few for each interface, one of them for each flow
//! (C5).
//!
//! Bound: [`NEAR_SETS`] sets of recently used slots.

use alloc::vec;
use alloc::vec::Vec;

use srd_proto::Secret;

use crate::hash::Product;
use crate::meta::key::FlowKey;

/// Number of paths of one interface's packets outside of SRD; each flow uses one of them. // C5
const PLAIN_PATHS: usize = 8;
/// Number of sets of recently used slots. One set has a slot for each path of one interface to one
/// peer. A slot in a set is found without a search.
const NEAR_SETS: usize = 64;

/// Selection of a path for each flow, and the slots of recently used paths.
#[derive(Debug)]
pub(super) struct Paths {
    /// Secret of the selection. Only one of eight paths and one of 64 bits depend on the secret.
    /// Flows that an attacker directs to one path get as much as a single flow would. Flows with
    /// the same bit cost one search each.
    secret: Product,
    near: Vec<[u32; PLAIN_PATHS]>,
}

/// Choice for a flow, which follows from its hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Path, by its number among those of the interface.
    pub(super) path: u8,
    /// Bit of the flow among the members of the path's queue.
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

    /// Returns the slot that a path of an interface to a peer used last.
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
