//! Identifiers: one newtype per idea, so that none can stand in for another.

/// A peer (a remote node and its context) of one endpoint. Local, never on the wire. Never
/// given out twice: one that is kept for longer than its peer names no peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerId {
    index: u32,
    generation: u32,
}

/// A packet sequence number: one space per direction of a context, never reused. A
/// retransmission travels under a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Psn(pub u64);

/// A slot in a context's set of paths. Local, never on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PathId(pub u8);

/// What the switches' ECMP hash sees of a path: an index that the world maps to a UDP source
/// port (base + index) and an IPv6 flow label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Entropy(pub u16);

/// The number of a queue pair, unique within its endpoint. Flows of one context are told
/// apart by the sending queue pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Qpn(pub u16);

/// A datagram that was accepted for sending, unique within its endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct DatagramId(pub u64);

/// Which run of an endpoint a context belongs to. A restarted endpoint must present a larger
/// one; a socket driver uses nanoseconds of wall-clock time at start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Epoch(pub u64);

impl PeerId {
    pub(crate) const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// A small dense number, for tables beside the endpoint's own. Peers that are forgotten
    /// leave theirs to others: such a table must compare the whole.
    pub const fn index(self) -> u32 {
        self.index
    }

    pub(crate) const fn slot(self) -> usize {
        self.index as usize
    }
}
