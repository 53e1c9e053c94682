//! Work requests: operations that an application posts to a queue pair.

use srd_proto::Qpn;

use crate::handle::Ah;
use crate::memory::Sge;

/// Largest number of bytes of one RDMA read or write.
pub const RDMA_BYTES_MAX: u32 = 1 << 30;
/// Largest number of pieces (scatter/gather elements) of a message.
pub const SGES_MAX: usize = 2;
/// Source of a message's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source<'a> {
    /// In the request itself (`IBV_SEND_INLINE`), at most the queue pair's `inline_bytes_max`.
    Inline(&'a [u8]),
    /// In registered memory, at most [`crate::SGES_MAX`] pieces.
    Gather(&'a [Sge]),
}

/// A location in a peer's registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Address of the first byte, as the peer registered it.
    pub addr: u64,
    /// Remote key of the registration.
    pub rkey: u64,
}

/// Operation of a send request (`ibv_wr_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp<'a> {
    /// Sends a message of at most one datagram into the peer's next receive request.
    Send {
        /// Bytes of the message.
        source: Source<'a>,
        /// Immediate data for the peer's completion.
        imm: Option<u32>,
    },
    /// Writes to a peer's memory: one piece, at most [`crate::RDMA_BYTES_MAX`].
    RdmaWrite {
        /// Local memory to write from.
        local: Sge,
        /// Remote memory to write to.
        remote: Remote,
        /// Immediate data. If it is present, the peer gets a completion when the whole write has
        /// arrived.
        imm: Option<u32>,
    },
    /// Reads a peer's memory: one piece, at most [`crate::RDMA_BYTES_MAX`].
    RdmaRead {
        /// Local memory to read into.
        local: Sge,
        /// Remote memory to read from.
        remote: Remote,
    },
}

/// A request for the send queue (`ibv_send_wr`). It always has a completion, because EFA has no
/// unsignalled requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendWr<'a> {
    /// Number that the completion returns.
    pub wr_id: u64,
    /// Address handle of the peer.
    pub ah: Ah,
    /// Queue pair of the peer.
    pub remote_qpn: Qpn,
    /// Q key of the peer's queue pair.
    pub remote_qkey: u32,
    /// Operation to execute.
    pub op: SendOp<'a>,
    /// Whether this read or write is part of a larger operation, and not its last part. The peer
    /// gets this value in its [`Note`](crate::device::Note).
    pub part: bool,
}

/// A request for the receive queue (`ibv_recv_wr`): buffers for one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvWr<'a> {
    /// Number that the completion returns.
    pub wr_id: u64,
    /// Buffers for the message, at most [`crate::SGES_MAX`] pieces, filled in order.
    pub sges: &'a [Sge],
}
