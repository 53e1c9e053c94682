//! Events of the transport: datagrams were settled, peers were lost, a full transport has space
//! again.

use alloc::vec::Vec;

use srd_proto::{DownReason, Event, Instant, PeerId, Status};

use crate::cq::{Completion, WcOpcode, WcStatus};
use crate::device::operation::{Op, Stage, TAG, Work};
use crate::device::state::{Device, Note};
use crate::mr::MemoryLocation;
use crate::slots::Key;

impl Device {
    /// Handles an event of the transport. Events of datagrams that were sent by other users of
    /// the same endpoint are ignored.
    pub fn event(&mut self, _now: Instant, event: &Event) {
        match event {
            Event::Completed { user, status, .. } => {
                let part = Key::of_user_part(*user, TAG);
                if let Some((index, generation, part)) = part
                    && let Some(key) = self.ops.key_like(index, generation)
                {
                    self.settled(key, part, *status);
                }
            }
            Event::PeerDown { peer, reason } => self.peer_down(*peer, *reason),
            Event::Writable { peer } => self.outbox.unblock(*peer),
            // No action: the size of each datagram is determined when the datagram is made.
            Event::PathMtu { .. } | Event::PeerUp { .. } | Event::Diagnosis { .. } => {}
        }
    }

    /// Handles the end of datagram `part` of an operation: it was acknowledged, refused or lost.
    fn settled(&mut self, key: Key, part: u16, status: Status) {
        let Some(op) = self.ops.get_mut(key) else { return };
        op.in_flight -= 1;
        let live = op.status == WcStatus::Ok;
        if live && status == Status::LocalBadLength && op.cut_again(part) {
            self.list(key);
            return;
        }
        // S4: Success after placement
        if status != Status::Ok && op.status == WcStatus::Ok {
            op.status = WcStatus::of(status);
        }
        let failed = op.status != WcStatus::Ok;
        let (quiet, all, length) = (op.in_flight == 0, op.is_sent(), op.length);
        let mut reopened = false;
        let over = match &mut op.work {
            Work::Send { .. } => true,
            Work::Write { sent, stage, .. } => {
                reopened = *stage == Stage::Opening && *sent < length && !failed;
                if *stage == Stage::Opening && !failed {
                    *stage = Stage::Open;
                }
                quiet && (failed || all)
            }
            Work::Read { received, .. } => failed || *received == length,
            // Datagrams in flight refer to the memory that is read.
            Work::Respond { .. } => quiet && (failed || all),
        };
        if reopened {
            self.list(key);
        } else if over {
            self.over(key);
        }
    }

    /// Ends an operation with its stored status. If a transfer has failed that the other end
    /// processes, the other end is notified.
    fn over(&mut self, key: Key) {
        let Some(op) = self.ops.get(key) else { return };
        let status = op.status;
        let opened = matches!(op.work, Work::Write { stage: Stage::Open, .. });
        let tells = opened || matches!(op.work, Work::Respond { .. });
        if tells && status != WcStatus::Ok {
            self.fail(key, status);
        } else {
            self.end(key, status);
        }
    }

    /// Ends an operation: frees its entry in the send queue, and puts its completion into the
    /// completion queue. An answer to a peer's read is only removed.
    pub(super) fn end(&mut self, key: Key, status: WcStatus) {
        let Some(op) = self.ops.remove(key) else { return };
        if let Work::Respond { from, .. } = op.work {
            self.responded(&op, from, status == WcStatus::Ok);
            return;
        }
        if let Work::Read { number, .. } = op.work {
            self.reads.remove(&number);
        }
        self.count(op.opcode, status, op.length);
        let Some(qp) = self.qp_mut(op.qpn) else { return };
        qp.sends -= 1;
        let cq = qp.init.send_cq;
        if let Some(queue) = self.cqs.get_mut(cq.0) {
            queue.fulfil(Completion {
                wr_id: op.wr_id,
                status,
                opcode: op.opcode,
                qpn: op.qpn,
                byte_len: op.length,
                imm: None,
                src_qpn: None,
                ah: None,
                peer: Some(op.peer),
                unsolicited: false,
            });
        }
    }

    /// Ends an operation that cannot continue, and notifies the other end of its transfer (R5,
    /// R10).
    pub(super) fn fail(&mut self, key: Key, status: WcStatus) {
        self.abandon(key, status);
        self.end_or_wait(key, status);
    }

    /// Ends an operation. An answer to a peer's read ends only when none of its datagrams is in
    /// flight.
    fn end_or_wait(&mut self, key: Key, status: WcStatus) {
        match self.ops.get_mut(key) {
            Some(op) if op.in_flight > 0 && matches!(op.work, Work::Respond { .. }) => {
                op.status = status;
            }
            _ => self.end(key, status),
        }
    }

    /// Notifies the other end of a transfer that the transfer has ended (R5, R10).
    fn abandon(&mut self, key: Key, status: WcStatus) {
        let Some(op) = self.ops.get(key) else { return };
        match op.work {
            Work::Write { number, stage, .. } if stage != Stage::Unsent => {
                self.abort_write(key, number);
            }
            Work::Respond { number, .. } => {
                let own = status == WcStatus::RemoteBadAddress;
                let status = if own { status } else { WcStatus::RemoteAbort };
                self.deny_read(op.peer, op.qpn, op.remote_qpn, number, status);
            }
            _ => {}
        }
    }

    /// Ends an operation without a completion, and notifies the other end of its transfer.
    pub(super) fn cancel(&mut self, key: Key) {
        self.abandon(key, WcStatus::RemoteAbort);
        let Some(op) = self.ops.remove(key) else { return };
        match op.work {
            Work::Respond { from, .. } => {
                self.responded(&op, from, false);
                return;
            }
            Work::Read { number, .. } => {
                self.reads.remove(&number);
            }
            Work::Send { .. } | Work::Write { .. } => {}
        }
        let Some(qp) = self.qp_mut(op.qpn) else { return };
        qp.sends -= 1;
        let cq = qp.init.send_cq;
        if let Some(queue) = self.cqs.get_mut(cq.0) {
            queue.release();
        }
    }

    /// Handles the end of an answer to a peer's read.
    fn responded(&mut self, op: &Op, from: MemoryLocation, whole: bool) {
        self.responding -= 1;
        self.regions.lend(from.key, -1);
        let (peer, length, part) = (op.peer, op.length, op.part);
        self.take_note(Note { peer, read: true, length, lkey: from.key, whole, part });
    }

    fn count(&mut self, opcode: WcOpcode, status: WcStatus, length: u32) {
        let c = &mut self.counters;
        let (wrs, bytes, errors) = match opcode {
            WcOpcode::RdmaRead => {
                (&mut c.rdma_read_wrs, &mut c.rdma_read_bytes, Some(&mut c.rdma_read_wr_err))
            }
            WcOpcode::RdmaWrite => {
                (&mut c.rdma_write_wrs, &mut c.rdma_write_bytes, Some(&mut c.rdma_write_wr_err))
            }
            _ => (&mut c.send_wrs, &mut c.send_bytes, None),
        };
        if status == WcStatus::Ok {
            *wrs += 1;
            *bytes += u64::from(length);
        } else if let Some(errors) = errors {
            *errors += 1;
        }
    }

    /// Handles the loss of the context with a peer: ends the transfers that wait for the peer,
    /// because they would never end otherwise (R5, R10).
    fn peer_down(&mut self, peer: PeerId, reason: DownReason) {
        let status = match reason {
            DownReason::Unreachable => WcStatus::UnreachRemote,
            DownReason::Unresponsive | DownReason::Closed => WcStatus::UnrespRemote,
            DownReason::Restarted => WcStatus::RemoteAbort,
        };
        // A read whose request was not sent yet goes to the peer's new run.
        let lost = |op: &Op| match op.work {
            Work::Read { asked, .. } => asked && op.in_flight == 0,
            Work::Respond { .. } => true,
            Work::Send { .. } | Work::Write { .. } => false,
        };
        let theirs = self.ops.iter().filter(|(_, op)| op.peer == peer && lost(op));
        for key in theirs.map(|(key, _)| key).collect::<Vec<_>>() {
            self.end_or_wait(key, status);
        }
        let before = self.writes_in.len();
        self.writes_in.retain(|(from, _, _), _| *from != peer);
        self.counters.writes_forgotten += (before - self.writes_in.len()) as u64;
    }
}
