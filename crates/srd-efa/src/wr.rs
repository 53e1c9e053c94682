//! Work requests: what an application asks a queue pair to do.

use srd_proto::Qpn;

use crate::handle::Ah;
use crate::memory::Sge;

/// Most bytes of one RDMA read or write.
pub const RDMA_BYTES_MAX: u32 = 1 << 30;
/// Most pieces of a message.
pub const SGES_MAX: usize = 2;
/// Where a message's bytes come from.
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

/// What is to be done (`ibv_wr_opcode`).
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
        /// What to write.
        local: Sge,
        /// Where to.
        remote: Remote,
        /// With it, the peer hears of the write when all of it has arrived.
        imm: Option<u32>,
    },
    /// Read a peer's memory: one piece, at most [`crate::RDMA_BYTES_MAX`].
    RdmaRead {
        /// Where to.
        local: Sge,
        /// What to read.
        remote: Remote,
    },
}

/// A request for the send queue (`ibv_send_wr`). Its completion always follows: EFA knows no
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
    /// What to do.
    pub op: SendOp<'a>,
    /// A read or write that is part of something larger, and not its last: says so to
    /// the peer, whose [`Note`](crate::device::Note) repeats it.
    pub part: bool,
}

/// A request for the receive queue (`ibv_recv_wr`): room for one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecvWr<'a> {
    /// Handed back in the completion.
    pub wr_id: u64,
    /// Where the message goes, at most [`crate::SGES_MAX`] pieces, filled in order.
    pub sges: &'a [Sge],
}
