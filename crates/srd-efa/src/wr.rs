//! Work requests: operations that an application posts to a queue pair.

use srd_proto::Qpn;

use crate::handle::Ah;
use crate::memory::Sge;

/// Largest number of bytes of one RDMA read or write.
pub const RDMA_BYTES_MAX: u32 = 1 << 30;
/// Largest number of pieces of a message.
pub const SGES_MAX: usize = 2;
/// Source of a message's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source<'a> {
    /// In the request itself (`IBV_SEND_INLINE`), at most the queue pair's `inline_bytes_max`.
    Inline(&'a [u8]),
    /// In registered memory, at most [`crate::SGES_MAX`] pieces.
    Gather(&'a [Sge]),
}

/// A peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Address of the first byte, as the peer registered it.
    pub addr: u64,
    /// The registration's remote key.
    pub rkey: u64,
}

/// Operation of a send request (`ibv_wr_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp<'a> {
    /// Send a message of at most one datagram into the peer's next receive request.
    Send {
        /// The message.
        source: Source<'a>,
        /// Data for the completion at the other end.
        imm: Option<u32>,
    },
    /// Write to a peer's memory: one piece, at most [`crate::RDMA_BYTES_MAX`].
    RdmaWrite {
        /// Local memory to write from.
        local: Sge,
        /// Remote memory to write to.
        remote: Remote,
        /// Immediate data: with it, the peer gets a completion when all of the write has arrived.
        imm: Option<u32>,
    },
    /// Read a peer's memory: one piece, at most [`crate::RDMA_BYTES_MAX`].
    RdmaRead {
        /// Local memory to read into.
        local: Sge,
        /// Remote memory to read from.
        remote: Remote,
    },
}

/// A request for the send queue (`ibv_send_wr`). It always has a completion: EFA has no
/// unsignalled requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendWr<'a> {
    /// Handed back in the completion.
    pub wr_id: u64,
    /// The peer.
    pub ah: Ah,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// Its Q key.
    pub remote_qkey: u32,
    /// Operation.
    pub op: SendOp<'a>,
    /// Whether this read or write is part of something larger, and not its last part. The peer
    /// gets this in its [`Note`](crate::device::Note).
    pub part: bool,
}

/// A request for the receive queue (`ibv_recv_wr`): room for one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvWr<'a> {
    /// Handed back in the completion.
    pub wr_id: u64,
    /// Buffers for the message, at most [`crate::SGES_MAX`] pieces, filled in order.
    pub sges: &'a [Sge],
}
