//! Completions: the operations of a layer that have ended.

use crate::layer::world::Peer;

/// Kind of an operation that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A message was sent.
    Send,
    /// A message was received.
    Receive,
    /// A peer's memory was read.
    Read,
    /// A peer's memory was written.
    Write,
    /// An atomic operation that fetches nothing.
    Atomic,
    /// An atomic operation that fetches.
    FetchAtomic,
    /// A peer wrote our memory; reported with the peer's data, or if `report_remote` is set.
    RemoteWrite,
    /// A peer read our memory; reported if `report_remote` is set.
    RemoteRead,
}

/// Outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Well.
    Ok,
    /// The operation was cancelled.
    Cancelled,
    /// The message was longer than its receive: so many bytes found no room.
    Truncated(u64),
    /// Nothing was found ([`crate::layer::Peek`]).
    NoMessage,
    /// The peer never answered.
    Unreachable,
    /// The peer answered before and has gone silent.
    Unresponsive,
    /// The peer has restarted, or its address belongs to another run than the one meant.
    Restarted,
    /// The peer was removed.
    Removed,
    /// The peer's memory: no such key, out of its bounds, or no right to it.
    BadKey,
    /// The peer does not do this, or answered with what makes no sense.
    Protocol,
    /// A message of one datagram that the path does not pass, or the peer's receive does not hold:
    /// never here, only of [`crate::direct`].
    TooLong,
}

/// An operation has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationCompletion {
    /// Kind of the operation.
    pub kind: Kind,
    /// Outcome of the operation.
    pub outcome: Outcome,
    /// The number given with it; zero for what peers did.
    pub context: u64,
    /// Whether it was a message with a tag.
    pub tagged: bool,
    /// Whether it belongs in a completion queue. A success that is not signaled still counts.
    pub signaled: bool,
    /// The peer at the other end, if there is one.
    pub peer: Option<Peer>,
    /// Bytes received, or bytes of the request.
    pub length: u64,
    /// Offset of this message's bytes in its buffer, for a receive for many messages.
    pub offset: u64,
    /// The message's tag, or zero.
    pub tag: u64,
    /// The sender's data.
    pub data: Option<u64>,
    /// A receive for many messages is over with this: no more will come.
    pub released: bool,
}
