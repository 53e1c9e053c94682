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
    /// An atomic operation without a fetch.
    Atomic,
    /// An atomic operation with a fetch.
    FetchAtomic,
    /// A peer wrote memory of this endpoint; reported if the write has data, or if `report_remote`
    /// is set.
    RemoteWrite,
    /// A peer read memory of this endpoint; reported if `report_remote` is set.
    RemoteRead,
}

/// Outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The operation succeeded.
    Ok,
    /// The operation was cancelled.
    Cancelled,
    /// The message was longer than its receive by this number of bytes.
    Truncated(u64),
    /// A search for an unexpected message ([`crate::layer::Peek`]) found no matching message.
    NoMessage,
    /// The peer never answered.
    Unreachable,
    /// The peer has answered earlier, but answers no longer.
    Unresponsive,
    /// The peer has restarted, or its address now belongs to another run than the requested run.
    Restarted,
    /// The peer was removed.
    Removed,
    /// A key of the peer's memory does not exist, the range is out of its bounds, or the access
    /// right is missing.
    BadKey,
    /// The peer does not support the operation, or its answer was invalid.
    Protocol,
    /// A message of one datagram is larger than the largest packet that the path passes, or than
    /// the buffer of the peer's receive. Only [`crate::direct`] reports this.
    TooLong,
}

/// Completion of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationCompletion {
    /// Kind of the operation.
    pub kind: Kind,
    /// Outcome of the operation.
    pub outcome: Outcome,
    /// Context of the request; zero for an operation that a peer started.
    pub context: u64,
    /// Whether the message had a tag.
    pub tagged: bool,
    /// Whether the completion belongs into a completion queue. A success that is not signaled is
    /// only counted by counters.
    pub signaled: bool,
    /// The peer of the operation; `None` if there is no peer, as for a receive that was cancelled.
    pub peer: Option<Peer>,
    /// Bytes received, or bytes of the request.
    pub length: u64,
    /// Offset of the message's bytes in the buffer of a receive for many messages; otherwise zero.
    pub offset: u64,
    /// Tag of the message; zero if the message has no tag.
    pub tag: u64,
    /// Data that the sender attached to the message or write; `None` if there is no data.
    pub data: Option<u64>,
    /// Whether this completion ends a receive for many messages.
    pub released: bool,
}
