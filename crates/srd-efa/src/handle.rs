//! Handles of a device's objects. The handle of a destroyed object refers to no object.

use crate::slots::Key;

/// A protection domain: objects of the same domain may be used together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Pd(pub(crate) Key);

/// An address handle: it represents a peer for the queue pairs of one protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Ah(pub(crate) Key);

/// A completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Cq(pub(crate) Key);
