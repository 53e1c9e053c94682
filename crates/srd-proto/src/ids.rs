//! Identifiers: one type for each kind, so that the compiler detects a confusion of two kinds.

/// Identifies a peer (a remote node and its context) within one endpoint. It is never sent, and
/// never assigned twice: an identifier that the application keeps after the removal of its peer
/// matches no other peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PeerId {
    index: u32,
    generation: u32,
}

/// A packet sequence number. Each direction of a context has its own number space. No number is
/// used twice: a retransmission has a new number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Psn(pub u64);

/// Index of a slot in a context's table of paths. It is never sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct PathId(pub u8);

/// Index of an entropy value, by which the ECMP hash of switches distinguishes paths. The world
/// maps the index to a UDP source port (base + index) and an IPv6 flow label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Entropy(pub u16);

/// Number of a queue pair, unique within its endpoint. The sending queue pair distinguishes the
/// flows of one context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Qpn(pub u16);

/// Identifier of a datagram that was accepted for sending, unique within its endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct DatagramId(pub u64);

/// The run of an endpoint to which a context belongs. A restarted endpoint must present a larger
/// epoch; a socket driver uses the nanoseconds of the wall clock at its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Epoch(pub u64);

impl PeerId {
    pub(crate) const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation }
    }

    /// A small number, dense over the peers of an endpoint, for use as an index of the
    /// application's tables. A new peer may have the index of a removed peer, so a table must
    /// compare the whole identifier.
    pub const fn index(self) -> u32 {
        self.index
    }

    pub(crate) const fn slot(self) -> usize {
        self.index as usize
    }
}
