//! About how many bytes a B-tree takes that was filled in order.

use core::mem::size_of;

/// Places of a node of a B-tree, and entries of one that was filled in order.
const PLACES: usize = 11;
const FILLED: usize = 6;
/// Overhead of a node: its parent, its index there, and its length.
const NODE_BYTES: usize = 16;

/// Bytes of a B-tree of so many entries of `K` and `V`.
pub(super) fn tree_bytes<K, V>(entries: usize) -> usize {
    // The standard library's nodes hold keys and values in arrays of all their places.
    entries.div_ceil(FILLED) * (NODE_BYTES + PLACES * (size_of::<K>() + size_of::<V>()))
}
