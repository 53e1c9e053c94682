//! What can go wrong, one small enum per call; what the network does wrong is a
//! [`DropReason`] counter instead.

use core::fmt;

/// Why a configuration was refused. The text names the knob, the value and the range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The knob.
    pub field: &'static str,
    /// What it was.
    pub value: u64,
    /// The least that is accepted.
    pub min: u64,
    /// The most that is accepted.
    pub max: u64,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, min, max } = self;
        write!(f, "`{field}` is {value}; it must be between {min} and {max}")
    }
}

impl core::error::Error for ConfigError {}

/// Why a peer was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AddPeerError {
    /// The endpoint has `peers_max` peers already.
    TooManyPeers,
    /// A peer with this address exists.
    AddressInUse,
    /// The endpoint runs encrypted, or the peer has no address, and no key was given for it.
    KeyMissing,
    /// Another peer holds this key.
    KeyInUse,
    /// The peer at this address has another public key than the one that was named.
    KeyMismatch,
    /// The public key is of small order: every secret shared with it would be zero.
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

/// Why a datagram was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SendError {
    /// No such peer.
    UnknownPeer,
    /// Larger than one packet carries: segmentation lives in the layer above.
    TooLarge {
        /// The most bytes that fit.
        max_bytes: usize,
    },
    /// The context's send queue is full; [`crate::Event::Writable`] follows when it is not.
    QueueFull,
    /// More queue pairs, each class counted apart, send to this peer than `flows_max` allows.
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

/// Why a received packet was dropped. Each has a counter in [`crate::Stats`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// Shorter than its header claims, or with fields that no sender writes.
    Malformed,
    /// A version of the protocol that we do not speak.
    Version,
    /// For a context that does not exist (a reset was sent, within its rate limit).
    UnknownContext,
    /// Failed authentication.
    Unauthentic,
    /// A packet number seen before.
    Replay,
    /// A packet number outside the receive window.
    OutsideWindow,
    /// Plain where the configuration demands encryption, or the reverse.
    WrongProtection,
    /// No room for another peer.
    PeersFull,
    /// Handshake refused under load until the sender returns its cookie.
    CookieDemanded,
    /// From an earlier epoch of the peer.
    StaleEpoch,
    /// A verdict was due and too many verdicts wait for acknowledgement.
    VerdictsFull,
    /// An unreliable datagram for a queue pair that is not there or has no receive buffer.
    NoReceiver,
}

impl DropReason {
    /// How many reasons there are.
    pub const COUNT: usize = 12;
    /// Every reason, in counter order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Malformed,
        Self::Version,
        Self::UnknownContext,
        Self::Unauthentic,
        Self::Replay,
        Self::OutsideWindow,
        Self::WrongProtection,
        Self::PeersFull,
        Self::CookieDemanded,
        Self::StaleEpoch,
        Self::VerdictsFull,
        Self::NoReceiver,
    ];
}
