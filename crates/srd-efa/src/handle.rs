//! Handles of a device's objects. A handle that outlives its object refers to nothing.

use crate::slots::Key;

/// A protection domain: what belongs together may work together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Pd(pub(crate) Key);

/// An address handle: a peer, for the queue pairs of one protection domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Ah(pub(crate) Key);

/// A completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Cq(pub(crate) Key);
