//! Errors that calls return, one small enum for each call. Faulty packets from the network are
//! counted by [`DropReason`] instead.

use core::fmt;

/// Reason for refusing a configuration. The text contains the parameter, its value and the range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// Name of the parameter.
    pub field: &'static str,
    /// Value of the parameter.
    pub value: u64,
    /// Minimum of the range.
    pub min: u64,
    /// Maximum of the range.
    pub max: u64,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, min, max } = self;
        write!(f, "`{field}` is {value}; it must be between {min} and {max}")
    }
}

impl core::error::Error for ConfigError {}

/// Reason for not adding a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AddPeerError {
    /// The endpoint already has `peers_max` peers.
    TooManyPeers,
    /// A peer with this address exists.
    AddressInUse,
    /// Protection is on, or the peer has no address, and the peer was named without a key.
    KeyMissing,
    /// Another peer has this key.
    KeyInUse,
    /// The peer at this address has a public key different from the key in the call.
    KeyMismatch,
    /// The public key is of small order: each secret shared with it would be zero.
    WeakKey,
}

impl fmt::Display for AddPeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyPeers => "the endpoint has as many peers as `peers_max` allows",
            Self::AddressInUse => "a peer with this address exists already",
            Self::KeyMissing => "without a public key the peer would not be known",
            Self::KeyInUse => "another peer has this public key already",
            Self::KeyMismatch => "the peer at this address has another public key",
            Self::WeakKey => "the public key is of small order, which is nobody's key",
        })
    }
}

impl core::error::Error for AddPeerError {}

/// Reason for not accepting a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SendError {
    /// The endpoint has no peer with this identifier.
    UnknownPeer,
    /// The datagram is larger than one packet can carry. Segmentation is a task of the layer above
    /// SRD.
    TooLarge {
        /// Maximum number of payload bytes of a datagram to this peer.
        max_bytes: usize,
    },
    /// The context's send queue is full. [`crate::Event::Writable`] follows when it has space
    /// again.
    QueueFull,
    /// `flows_max` flows already have datagrams waiting for this peer, and the datagram belongs to
    /// another flow. A flow is the datagrams of one queue pair in one class.
    TooManyFlows,
    /// The endpoint has been closed.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPeer => f.write_str("no such peer"),
            Self::TooLarge { max_bytes } => {
                write!(f, "the datagram is larger than one packet carries ({max_bytes} bytes)")
            }
            Self::QueueFull => f.write_str("the send queue to this peer is full"),
            Self::Closed => f.write_str("the endpoint has been closed"),
            Self::TooManyFlows => f.write_str("too many queue pairs send to this peer"),
        }
    }
}

impl core::error::Error for SendError {}

macro_rules! drop_reasons {
    ($($(#[doc = $meaning:literal])+ $reason:ident,)+) => {
        /// Reason for dropping a received packet. Each reason has a counter in [`crate::Stats`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $meaning])+ $reason,)+
        }

        impl DropReason {
            /// Each reason, in the order of the counters.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$reason),+];
            /// Number of reasons in this enum.
            pub const COUNT: usize = [$(stringify!($reason)),+].len();
        }
    };
}

drop_reasons! {
    /// The packet is shorter than its header requires, or has a field with a value that no sender
    /// writes.
    Malformed,
    /// The packet has another version of the protocol.
    Version,
    /// The packet names a context that does not exist. A Reset answers it, within a rate limit.
    UnknownContext,
    /// The packet failed authentication.
    Unauthentic,
    /// The packet number was received before.
    Replay,
    /// The packet number is outside of the receive window.
    OutsideWindow,
    /// The packet is plain while protection is on, or protected while protection is off.
    WrongProtection,
    /// The packet would create a peer, and the table of peers is full.
    PeersFull,
    /// The packet is an opening, and was answered by a Retry: its sender must first return the
    /// cookie.
    CookieDemanded,
    /// The packet is from an earlier epoch of the peer.
    StaleEpoch,
    /// An unreliable datagram for a queue pair that does not exist or has no receive buffer.
    NoReceiver,
}
