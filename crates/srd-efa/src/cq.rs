//! Completion queues and their entries.
//!
//! A completion queue never overflows. Each posted work request reserves an entry for its
//! completion. A request for which no entry is free is not accepted. Exception: some arrivals
//! complete without a work request. If no entry is free for such an arrival, it is refused as if
//! there were no receive buffer.

use alloc::collections::VecDeque;

use srd_proto::{PeerId, Qpn, Status};

use crate::handle::Ah;

/// Status of a completion: the numbers of `EFA_IO_COMP_STATUS_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum WcStatus {
    /// The request succeeded.
    Ok = 0,
    /// The queue pair failed, or the address handle was destroyed.
    Flushed = 1,
    /// The queue pair is broken.
    LocalQpInternal = 2,
    /// The queue pair does not support this operation.
    LocalUnsupportedOp = 3,
    /// The address handle does not exist.
    LocalInvalidAh = 4,
    /// A local key is wrong, or the range or the access rights of its registration do not suffice.
    LocalInvalidLkey = 5,
    /// The message is larger than the payload of one datagram.
    LocalBadLength = 6,
    /// The remote key is wrong, or the range or the access rights of its registration do not
    /// suffice.
    RemoteBadAddress = 7,
    /// The peer has given up the transfer, or has restarted.
    RemoteAbort = 8,
    /// The peer has no such queue pair, or the queue pair cannot receive in its state, or its Q key
    /// differs.
    RemoteBadDestQpn = 9,
    /// The peer's queue pair had no receive request at every attempt.
    RemoteRnr = 10,
    /// The peer's receive request was too small.
    RemoteBadLength = 11,
    /// The peer answered with an unknown status.
    RemoteBadStatus = 12,
    /// The peer has answered earlier, but answers no longer.
    UnrespRemote = 13,
    /// The peer has no address handle for this endpoint, which RDMA needs.
    RemoteUnknownPeer = 14,
    /// The peer never answered.
    UnreachRemote = 15,
}

impl WcStatus {
    pub(crate) const fn of(status: Status) -> Self {
        match status {
            Status::Ok => Self::Ok,
            Status::Flushed => Self::Flushed,
            Status::LocalBadLength => Self::LocalBadLength,
            Status::RemoteBadAddress => Self::RemoteBadAddress,
            Status::RemoteAbort => Self::RemoteAbort,
            Status::BadDestQpn => Self::RemoteBadDestQpn,
            Status::RemoteRnr => Self::RemoteRnr,
            Status::RemoteBadLength => Self::RemoteBadLength,
            Status::UnrespRemote => Self::UnrespRemote,
            Status::UnknownPeer => Self::RemoteUnknownPeer,
            Status::UnreachRemote => Self::UnreachRemote,
        }
    }

    /// Returns the `ibv_wc_status` into which EFA's library converts this status.
    pub const fn ibv_wc_status(self) -> u32 {
        match self {
            Self::Ok => 0,
            Self::LocalBadLength => 1,
            Self::LocalQpInternal | Self::LocalUnsupportedOp | Self::LocalInvalidAh => 2,
            Self::LocalInvalidLkey => 4,
            Self::Flushed => 5,
            Self::RemoteBadStatus => 7,
            Self::RemoteBadLength => 9,
            Self::RemoteBadAddress => 10,
            Self::RemoteUnknownPeer => 11,
            Self::RemoteRnr => 13,
            Self::RemoteBadDestQpn => 15,
            Self::RemoteAbort => 16,
            Self::UnrespRemote | Self::UnreachRemote => 20,
        }
    }
}

/// Operation that completed (`ibv_wc_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum WcOpcode {
    /// A send request has completed.
    Send,
    /// A write to the memory of a peer has completed.
    RdmaWrite,
    /// A read of the memory of a peer has completed.
    RdmaRead,
    /// A message has arrived.
    Recv,
    /// A peer's write with immediate data has arrived completely.
    RecvRdmaWithImm,
}

/// A completion (`ibv_wc`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Number of the work request; 0 for an unsolicited completion.
    pub wr_id: u64,
    /// Status of the operation.
    pub status: WcStatus,
    /// Operation that completed.
    pub opcode: WcOpcode,
    /// The local queue pair.
    pub qpn: Qpn,
    /// Bytes of the message; after an error, bytes of the request.
    pub byte_len: u32,
    /// The sender's immediate data, for a received message or write; `None` if there is no
    /// immediate data.
    pub imm: Option<u32>,
    /// Queue pair of the sender, for a received message or write; `None` for other completions.
    pub src_qpn: Option<Qpn>,
    /// Address handle of the sender of a received message; `None` if the sender has no address
    /// handle. EFA reports 0xFFFF then.
    pub ah: Option<Ah>,
    /// The peer; `None` for receive requests that were flushed. EFA's wide completions name the
    /// peer of a message whose sender has no address handle.
    pub peer: Option<PeerId>,
    /// Whether the completion reports a write with immediate data that used no receive request.
    pub unsolicited: bool,
}

/// A completion queue. Bound: `entries_max` completions and reserved entries together.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    entries: VecDeque<Completion>,
    promised: u32,
    entries_max: u32,
    /// Number of uses of the queue by queue pairs; sends and receives of a queue pair count
    /// separately.
    pub(crate) users: u32,
}

impl CompletionQueue {
    pub(crate) fn new(entries_max: u32) -> Self {
        Self { entries: VecDeque::new(), promised: 0, entries_max, users: 0 }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.entries.len() + (self.promised as usize) < self.entries_max as usize
    }

    /// Reserves an entry for the completion of a request. Returns false if no entry is free.
    pub(crate) fn promise(&mut self) -> bool {
        let room = self.has_room();
        self.promised += u32::from(room);
        room
    }

    /// Releases a reserved entry without filling it.
    pub(crate) fn release(&mut self) {
        debug_assert!(self.promised > 0, "an entry was promised");
        self.promised = self.promised.saturating_sub(1);
    }

    /// Fills a reserved entry with the completion of its request.
    pub(crate) fn fulfil(&mut self, completion: Completion) {
        self.release();
        self.entries.push_back(completion);
    }

    /// Fills an entry that was not reserved. The caller has checked that an entry is free.
    pub(crate) fn push_unsolicited(&mut self, completion: Completion) {
        debug_assert!(self.has_room(), "the caller has asked");
        self.entries.push_back(completion);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn poll(&mut self) -> Option<Completion> {
        self.entries.pop_front()
    }

    /// Removes the completions of a queue pair that is destroyed.
    pub(crate) fn forget(&mut self, qpn: Qpn) {
        self.entries.retain(|completion| completion.qpn != qpn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_the_transport_has_its_number_here() {
        let all = [
            Status::Ok,
            Status::Flushed,
            Status::LocalBadLength,
            Status::RemoteBadAddress,
            Status::RemoteAbort,
            Status::BadDestQpn,
            Status::RemoteRnr,
            Status::RemoteBadLength,
            Status::UnrespRemote,
            Status::UnknownPeer,
            Status::UnreachRemote,
        ];
        for status in all {
            assert_eq!(WcStatus::of(status) as u8, status as u8);
        }
    }

    #[test]
    fn statuses_become_those_of_the_verbs_as_in_rdma_core() {
        // IBV_WC_SUCCESS, WR_FLUSH_ERR, LOC_QP_OP_ERR (three), LOC_PROT_ERR, LOC_LEN_ERR, ...
        let expected = [0, 5, 2, 2, 2, 4, 1, 10, 16, 15, 13, 9, 7, 20, 11, 20];
        let all = [
            WcStatus::Ok,
            WcStatus::Flushed,
            WcStatus::LocalQpInternal,
            WcStatus::LocalUnsupportedOp,
            WcStatus::LocalInvalidAh,
            WcStatus::LocalInvalidLkey,
            WcStatus::LocalBadLength,
            WcStatus::RemoteBadAddress,
            WcStatus::RemoteAbort,
            WcStatus::RemoteBadDestQpn,
            WcStatus::RemoteRnr,
            WcStatus::RemoteBadLength,
            WcStatus::RemoteBadStatus,
            WcStatus::UnrespRemote,
            WcStatus::RemoteUnknownPeer,
            WcStatus::UnreachRemote,
        ];
        for (number, (status, expected)) in (0u8..).zip(all.into_iter().zip(expected)) {
            assert_eq!(status as u8, number);
            assert_eq!(status.ibv_wc_status(), expected, "{status:?}");
        }
    }
}
