//! Approximate size in bytes of a B-tree that was filled in ascending order.

use core::mem::size_of;

/// Largest number of entries of a B-tree node.
const PLACES: usize = 11;
/// Number of entries of a B-tree node after entries were inserted in ascending order.
const FILLED: usize = 6;
/// Overhead of a node in bytes: its parent, its index in the parent, and its length.
const NODE_BYTES: usize = 16;

/// Returns the approximate bytes of a B-tree with `entries` entries of `K` and `V`.
pub(super) fn tree_bytes<K, V>(entries: usize) -> usize {
    // A node of the standard library's B-tree allocates keys and values for its full capacity.
    entries.div_ceil(FILLED) * (NODE_BYTES + PLACES * (size_of::<K>() + size_of::<V>()))
}
