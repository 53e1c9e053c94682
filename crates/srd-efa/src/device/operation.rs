//! Operations in progress: a work request, or the answer to a peer's read, and its datagrams.

use bytes::{Bytes, BytesMut};
use srd_proto::{PeerId, Qpn};

use crate::cq::{WcOpcode, WcStatus};
use crate::device::sent_ranges::SentRanges;
use crate::memory::Memory;
use crate::mr::MemoryLocation;
use crate::slots::Key;
use crate::wire::{Opaque, RDMA_HEADER_BYTES, RdmaHeader};
use crate::wr::Remote;

/// Upper byte of the numbers with which operations' datagrams complete.
pub(super) const TAG: u8 = 0xef;

/// Upper bound of the number of operations, independent of the configuration.
pub(super) const OPS_MAX: u32 = crate::slots::INDEX_MASK + 1;

/// Progress of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// No datagram of the write was sent.
    Unsent,
    /// The first datagram is in flight; the other datagrams wait for its acknowledgement (R2).
    Opening,
    /// The first datagram was acknowledged: the peer has an entry for the transfer.
    Open,
}

/// Remaining work of an operation.
#[derive(Debug)]
pub(super) enum Work {
    /// A message; `payload` is `None` after the message was handed over.
    Send { payload: Option<Bytes>, imm: Option<u32> },
    /// A write to the peer's memory `to`; `sent` bytes were handed over.
    Write {
        number: u32,
        from: MemoryLocation,
        to: Remote,
        imm: Option<u32>,
        sent: u32,
        stage: Stage,
    },
    /// A read that this device requests. `asked`: whether the request was handed over to the
    /// transport; `received`: bytes that have arrived.
    Read { number: u32, to: MemoryLocation, from: Remote, asked: bool, received: u32 },
    /// An answer to a peer's read; `sent` bytes were handed over.
    Respond { number: u32, from: MemoryLocation, sent: u32 },
}

/// An operation that sends datagrams: a work request, or the answer to a peer's read.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) qpn: Qpn,
    /// Address handle of the work request; `None` for an answer.
    pub(super) ah: Option<Key>,
    pub(super) peer: PeerId,
    pub(super) remote_qpn: Qpn,
    /// Value derived from the remote Q key, which the peer's device checks (M3).
    pub(super) check: u32,
    pub(super) wr_id: u64,
    pub(super) opcode: WcOpcode,
    pub(super) length: u32,
    /// Whether the request is part of a larger operation, and not its last part.
    pub(super) part: bool,
    /// Number of datagrams that were handed over and not settled.
    pub(super) in_flight: u32,
    pub(super) status: WcStatus,
    /// Whether the operation is in one of its peer's queues.
    pub(super) listed: bool,
    pub(super) ranges: SentRanges,
    pub(super) work: Work,
}

/// Result of an attempt to send one datagram of an operation.
pub(super) enum Step {
    /// The datagram was handed over, and there are more to send.
    More,
    /// The datagram was handed over, and no other can be sent now.
    Handed,
    /// There is nothing to send until one of the operation's datagrams is settled.
    Idle,
    /// The transport's queue for the peer is full; an event follows when the queue has space.
    Full,
    /// No datagram was handed over, because enough datagrams wait in the transport. The next call
    /// of [`Device::pump`](crate::device::Device::pump) tries to send it.
    Later,
    /// The operation fails with this status.
    Failed(WcStatus),
}

impl Op {
    /// Returns the index of the peer's queue in which the operation waits.
    pub(super) fn queue_number(&self) -> usize {
        match self.work {
            Work::Send { .. } | Work::Read { .. } => 0,
            Work::Write { .. } | Work::Respond { .. } => 1,
        }
    }

    /// Whether all bytes of a transfer were handed over.
    pub(super) fn is_sent(&self) -> bool {
        let sent = match self.work {
            Work::Write { sent, .. } | Work::Respond { sent, .. } => sent == self.length,
            Work::Send { .. } | Work::Read { .. } => true,
        };
        sent && self.ranges.again().is_none()
    }

    /// Handles a datagram that was too large for the path. Returns whether its bytes can be sent
    /// again in smaller datagrams (R13).
    pub(super) fn cut_again(&mut self, part: u16) -> bool {
        match &mut self.work {
            Work::Write { sent, stage, .. } if *stage != Stage::Open => {
                // No other datagram is in flight while the first datagram of the transfer is.
                (*sent, *stage) = (0, Stage::Unsent);
                self.ranges.forget();
            }
            Work::Write { .. } | Work::Respond { .. } => self.ranges.refuse(part),
            Work::Send { .. } | Work::Read { .. } => return false,
        }
        true
    }

    /// Whether a write has bytes to send and need not wait for an acknowledgement. If this is true
    /// but [`Op::next_datagram`] returns `None`, the memory of the write was deregistered.
    pub(super) fn is_unfinished(&self) -> bool {
        match self.work {
            Work::Write { stage: Stage::Unsent, .. } => true,
            Work::Write { stage: Stage::Open, .. } => !self.is_sent(),
            _ => false,
        }
    }

    /// Returns the next datagram to send, with at most `room` bytes of payload; `None` if there is
    /// no datagram to send, or its memory was deregistered.
    pub(super) fn next_datagram(
        &self,
        memory: &mut dyn Memory,
        room: usize,
        live: impl Fn(&MemoryLocation) -> bool,
    ) -> Option<(Opaque, Bytes)> {
        let mut piece = |from: &MemoryLocation, sent: u32, room: usize| {
            let bytes = room.min((self.length - sent) as usize);
            if bytes == 0 {
                return Bytes::new();
            }
            memory.read(from.region, from.offset + u64::from(sent), bytes)
        };
        if let Some((offset, to)) = self.ranges.again() {
            return self.repeat(offset, room.min((to - offset) as usize), memory, live);
        }
        match &self.work {
            Work::Send { payload, imm } => {
                let payload = payload.clone()?;
                Some((Opaque::Send { check: self.check, imm: *imm }, payload))
            }
            Work::Write { number, from, to, imm, sent, stage } => match stage {
                _ if !live(from) => None,
                Stage::Unsent => {
                    let (number, length) = (*number, self.length);
                    let header = RdmaHeader { addr: to.addr, rkey: to.rkey, length, number };
                    let data = piece(from, 0, room.saturating_sub(RDMA_HEADER_BYTES));
                    let mut whole = BytesMut::with_capacity(RDMA_HEADER_BYTES + data.len());
                    whole.extend_from_slice(&header.encode());
                    whole.extend_from_slice(&data);
                    let opaque = Opaque::Write { check: self.check, imm: *imm, part: self.part };
                    Some((opaque, whole.freeze()))
                }
                Stage::Opening => None,
                Stage::Open if *sent == self.length => None,
                Stage::Open => {
                    let opaque = Opaque::WriteData { number: *number, offset: *sent };
                    Some((opaque, piece(from, *sent, room)))
                }
            },
            Work::Read { asked: true, .. } => None,
            Work::Read { number, from, .. } => {
                let (length, number) = (self.length, *number);
                let header = RdmaHeader { addr: from.addr, rkey: from.rkey, length, number };
                let opaque = Opaque::Read { check: self.check, part: self.part };
                Some((opaque, Bytes::copy_from_slice(&header.encode())))
            }
            Work::Respond { from, sent, .. } if *sent == self.length || !live(from) => None,
            Work::Respond { number, from, sent } => {
                let opaque = Opaque::ReadData { number: *number, offset: *sent };
                Some((opaque, piece(from, *sent, room)))
            }
        }
    }

    /// Makes a datagram of bytes that are sent again; `None` if their memory was deregistered.
    pub(super) fn repeat(
        &self,
        offset: u32,
        bytes: usize,
        memory: &mut dyn Memory,
        live: impl Fn(&MemoryLocation) -> bool,
    ) -> Option<(Opaque, Bytes)> {
        let (from, opaque) = match self.work {
            Work::Write { number, from, .. } => (from, Opaque::WriteData { number, offset }),
            Work::Respond { number, from, .. } => (from, Opaque::ReadData { number, offset }),
            Work::Send { .. } | Work::Read { .. } => return None,
        };
        live(&from)
            .then(|| (opaque, memory.read(from.region, from.offset + u64::from(offset), bytes)))
    }

    /// Records that a datagram with `bytes` payload bytes was handed over. Returns whether there
    /// are more datagrams to send.
    pub(super) fn sent(&mut self, bytes: usize) -> Step {
        self.in_flight += 1;
        let count = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Some((offset, _)) = self.ranges.again() {
            self.ranges.note(offset, count(bytes));
            return if self.is_sent() { Step::Handed } else { Step::More };
        }
        match &mut self.work {
            Work::Send { payload, .. } => *payload = None,
            Work::Write { sent, stage, .. } => {
                if *stage == Stage::Unsent {
                    *sent = count(bytes - RDMA_HEADER_BYTES);
                    *stage = Stage::Opening;
                    self.ranges.note(0, *sent);
                } else {
                    self.ranges.note(*sent, count(bytes));
                    *sent += count(bytes);
                    if *sent < self.length {
                        return Step::More;
                    }
                }
            }
            Work::Read { asked, .. } => *asked = true,
            Work::Respond { sent, .. } => {
                self.ranges.note(*sent, count(bytes));
                *sent += count(bytes);
                if *sent < self.length {
                    return Step::More;
                }
            }
        }
        Step::Handed
    }
}
