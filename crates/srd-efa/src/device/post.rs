//! Posting of work requests: checks whether the call is refused, and starts the request.

use bytes::{Bytes, BytesMut};
use srd_proto::{Endpoint, Instant, Qpn};

use crate::cq::{WcOpcode, WcStatus};
use crate::device::operation::{OPS_MAX, Op, Stage, Work};
use crate::device::sent_ranges::SentRanges;
use crate::device::state::Device;
use crate::error::PostError;
use crate::memory::{Memory, Sge};
use crate::mr::{MemoryLocation, Purpose, Range};
use crate::qp::{Piece, Posted, QpState, QpType};
use crate::slots::Key;
use crate::wire::check_of;
use crate::wr::{RDMA_BYTES_MAX, SGES_MAX};
use crate::wr::{RecvWr, SendOp, SendWr, Source};

impl Device {
    /// Posts a send request (`ibv_post_send`). A wrong local key or length is reported by the
    /// completion (S1, R7).
    ///
    /// # Errors
    /// [`PostError`], if the queue pair does not exist or is not in Rts or Sqd, if it does not
    /// support the request, or if the send queue or the completion queue is full (B8).
    pub fn post_send(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        memory: &mut dyn Memory,
        qpn: Qpn,
        wr: SendWr<'_>,
    ) -> Result<(), PostError> {
        let qp = self.qp(qpn).ok_or(PostError::NoSuchObject)?;
        let (init, state) = (qp.init, qp.state);
        if !matches!(state, QpState::Rts | QpState::Sqd) {
            return Err(PostError::BadState);
        }
        if qp.sends >= init.sq_wrs_max {
            return Err(PostError::QueueFull);
        }
        match &wr.op {
            SendOp::Send { source, .. } => check_source(source, init.inline_bytes_max)?,
            _ if init.qp_type == QpType::Ud => return Err(PostError::Unsupported),
            _ => {}
        }
        let ah = self.ahs.get(wr.ah.0).filter(|ah| ah.pd == init.pd.0).ok_or(PostError::BadAh)?;
        let peer = ah.peer;
        let queue = self.cqs.get_mut(init.send_cq.0).ok_or(PostError::NoSuchObject)?;
        if !queue.promise() {
            return Err(PostError::CqFull);
        }
        let opcode = match wr.op {
            SendOp::Send { .. } => WcOpcode::Send,
            SendOp::RdmaWrite { .. } => WcOpcode::RdmaWrite,
            SendOp::RdmaRead { .. } => WcOpcode::RdmaRead,
        };
        let (work, length, status) = self.work_of(memory, init.pd.0, wr.op);
        let op = Op {
            qpn,
            ah: Some(wr.ah.0),
            peer,
            remote_qpn: wr.remote_qpn,
            check: check_of(wr.remote_qkey),
            wr_id: wr.wr_id,
            opcode,
            length,
            part: wr.part,
            in_flight: 0,
            status,
            listed: false,
            ranges: SentRanges::default(),
            work,
        };
        // The sum of all send queues bounds the table.
        let Some(key) = self.ops.insert(op, OPS_MAX) else {
            return Err(PostError::QueueFull);
        };
        if let Some(Work::Read { number, .. }) = self.ops.get(key).map(|op| &op.work) {
            self.reads.insert(*number, key);
        }
        if let Some(qp) = self.qp_mut(qpn) {
            qp.sends += 1;
            if state == QpState::Sqd && status == WcStatus::Ok {
                qp.drained.push_back(key);
                return Ok(());
            }
        }
        if status == WcStatus::Ok {
            self.begin(now, endpoint, memory, key);
        } else {
            self.end(key, status);
        }
        Ok(())
    }

    /// Returns the work of a request, its length in bytes, and the status: `Ok`, or the fault of
    /// the request.
    fn work_of(
        &mut self,
        memory: &mut dyn Memory,
        pd: Key,
        op: SendOp<'_>,
    ) -> (Work, u32, WcStatus) {
        match op {
            SendOp::Send { source, imm } => {
                let gathered = self.gather(memory, pd, source);
                let status = gathered.as_ref().err().copied().unwrap_or(WcStatus::Ok);
                let payload = gathered.unwrap_or_default();
                let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                (Work::Send { payload: Some(payload), imm }, length, status)
            }
            SendOp::RdmaWrite { local, remote, imm } => {
                let (from, status) = self.local(pd, &local, Purpose::Gather);
                let number = self.next_transfer();
                let stage = Stage::Unsent;
                let work = Work::Write { number, from, to: remote, imm, sent: 0, stage };
                (work, local.length, status)
            }
            SendOp::RdmaRead { local, remote } => {
                let (to, status) = self.local(pd, &local, Purpose::Scatter);
                let number = self.next_transfer();
                let work = Work::Read { number, to, from: remote, asked: false, received: 0 };
                (work, local.length, status)
            }
        }
    }

    /// Returns the local memory of an RDMA request, and the status of its check.
    fn local(&self, pd: Key, sge: &Sge, purpose: Purpose) -> (MemoryLocation, WcStatus) {
        let nowhere = MemoryLocation { region: 0, offset: 0, key: 0 };
        if sge.length > RDMA_BYTES_MAX {
            return (nowhere, WcStatus::LocalBadLength);
        }
        match self.regions.check(pd, range(sge), purpose) {
            Some(place) => (place, WcStatus::Ok),
            None => (nowhere, WcStatus::LocalInvalidLkey),
        }
    }

    /// Returns the bytes of a message. One piece is used without a copy; two pieces are copied
    /// together.
    fn gather(
        &self,
        memory: &mut dyn Memory,
        pd: Key,
        source: Source<'_>,
    ) -> Result<Bytes, WcStatus> {
        let sges = match source {
            Source::Inline(bytes) => return Ok(Bytes::copy_from_slice(bytes)),
            Source::Gather(sges) => sges,
        };
        let total: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
        if total > self.outbox.payload_bytes_max as u64 {
            return Err(WcStatus::LocalBadLength);
        }
        let place = |sge: &Sge| self.regions.check(pd, range(sge), Purpose::Gather);
        if let [sge] = sges {
            let at = place(sge).ok_or(WcStatus::LocalInvalidLkey)?;
            return Ok(memory.read(at.region, at.offset, sge.length as usize));
        }
        let mut whole = BytesMut::with_capacity(usize::try_from(total).unwrap_or(0));
        for sge in sges {
            let at = place(sge).ok_or(WcStatus::LocalInvalidLkey)?;
            whole.extend_from_slice(&memory.read(at.region, at.offset, sge.length as usize));
        }
        Ok(whole.freeze())
    }

    /// Posts a receive request (`ibv_post_recv`).
    ///
    /// # Errors
    /// [`PostError`], if there is no such queue pair, it is in Reset or Error, a local key does not
    /// fit, or the receive queue or the completion queue is full (B8).
    pub fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let qp = self.qp(qpn).ok_or(PostError::NoSuchObject)?;
        if matches!(qp.state, QpState::Reset | QpState::Error) {
            return Err(PostError::BadState);
        }
        if wr.sges.len() > SGES_MAX {
            return Err(PostError::TooMany);
        }
        if qp.receives.len() >= qp.init.rq_wrs_max as usize {
            return Err(PostError::QueueFull);
        }
        let (pd, cq) = (qp.init.pd.0, qp.init.recv_cq);
        let mut pieces = [None; SGES_MAX];
        let mut length = 0u32;
        for (piece, sge) in pieces.iter_mut().zip(wr.sges) {
            let place = self.regions.check(pd, range(sge), Purpose::Scatter);
            let place = place.ok_or(PostError::BadKey)?;
            *piece = Some(Piece { place, length: sge.length });
            length = length.saturating_add(sge.length);
        }
        if !self.cqs.get_mut(cq.0).is_some_and(crate::cq::CompletionQueue::promise) {
            return Err(PostError::CqFull);
        }
        if let Some(qp) = self.qp_mut(qpn) {
            qp.receives.push_back(Posted { wr_id: wr.wr_id, pieces, length });
        }
        Ok(())
    }
}

fn range(sge: &Sge) -> Range {
    Range { addr: sge.addr, length: u64::from(sge.length), key: sge.lkey.into() }
}

fn check_source(source: &Source<'_>, inline_bytes_max: u32) -> Result<(), PostError> {
    let fits = match source {
        Source::Inline(bytes) => bytes.len() <= inline_bytes_max as usize,
        Source::Gather(sges) => sges.len() <= SGES_MAX,
    };
    if fits { Ok(()) } else { Err(PostError::TooMany) }
}
