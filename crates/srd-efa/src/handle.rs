//! What callers name a device's objects by. A handle that is kept for longer than its object names
//! nothing.

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
