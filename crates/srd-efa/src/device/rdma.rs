//! Admits or refuses peers' datagrams of reads and writes.
//!
//! A write of one datagram leaves no state. A write of several datagrams has state from its first
//! datagram, which the initiator sends ahead of the other datagrams (R2), until its last byte (R3).
//! Bounds: `writes_in_max`, `reads_in_max`.

use srd_proto::{Delivery, Instant};

use crate::cq::{WcOpcode, WcStatus};
use crate::device::arrive::{Arrival, Refusal};
use crate::device::operation::{OPS_MAX, Op, Work};
use crate::device::sent_ranges::SentRanges;
use crate::device::state::{Device, Note, TransferId, WriteIn};
use crate::memory::Memory;
use crate::mr::{MemoryLocation, Purpose, Range};
use crate::wire::RdmaHeader;
use crate::wr::RDMA_BYTES_MAX;

impl Device {
    /// Returns the memory that a peer's request names, if the request has the right to use it (R1,
    /// R8).
    fn target_of(
        &self,
        delivery: &Delivery<'_>,
        header: &RdmaHeader,
        purpose: Purpose,
    ) -> Result<MemoryLocation, Refusal> {
        let pd = self.qp(delivery.dst_qpn).ok_or(Refusal::BadQpn)?.init.pd.0;
        if !self.ah_of.contains_key(&(pd, delivery.peer)) {
            return Err(Refusal::UnknownPeer);
        }
        if header.length > RDMA_BYTES_MAX {
            return Err(Refusal::BadAddress);
        }
        let length = u64::from(header.length);
        let range = Range { addr: header.addr, length, key: header.rkey };
        self.regions.check(pd, range, purpose).ok_or(Refusal::BadAddress)
    }

    /// Handles a write of one datagram, or the first datagram of a write (R2).
    pub(super) fn on_write(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        (imm, part): (Option<u32>, bool),
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let (header, data) = RdmaHeader::decode(delivery.payload).ok_or(Refusal::Malformed)?;
        let bytes = u32::try_from(data.len()).map_err(|_| Refusal::Malformed)?;
        if bytes > header.length || bytes == 0 && header.length > 0 {
            return Err(Refusal::Malformed);
        }
        let to = self.target_of(delivery, &header, Purpose::RemoteWrite)?;
        if bytes == header.length {
            self.can_complete(delivery, imm)?;
            self.place(to, 0, data, memory);
            self.complete_write(delivery, (imm, part), (header.length, to.key));
            return Ok(());
        }
        let id = (delivery.peer, delivery.src_qpn, header.number);
        self.make_room(now, &id)?;
        self.place(to, 0, data, memory);
        let write = WriteIn {
            qpn: delivery.dst_qpn,
            to,
            length: header.length,
            received: bytes,
            imm,
            part,
            touched: now,
        };
        self.writes_in.insert(id, write);
        Ok(())
    }

    /// Ensures that the table has space for one more write of several datagrams. If the table is
    /// full, writes that have been idle for too long are removed (R6).
    fn make_room(&mut self, now: Instant, id: &TransferId) -> Result<(), Refusal> {
        let full = self.writes_in.len() >= self.config.writes_in_max as usize;
        if !full || self.writes_in.contains_key(id) {
            return Ok(());
        }
        let idle = self.config.write_idle;
        self.writes_in.retain(|_, write| now.since(write.touched) < idle);
        let gone = self.config.writes_in_max as usize - self.writes_in.len();
        self.counters.writes_forgotten += gone as u64;
        if gone > 0 { Ok(()) } else { Err(Refusal::Rnr) }
    }

    /// Handles a later datagram of a write (R3).
    pub(super) fn on_write_data(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        number: u32,
        offset: u32,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let id = (delivery.peer, delivery.src_qpn, number);
        let known = self.writes_in.get_mut(&id).filter(|write| write.qpn == delivery.dst_qpn);
        let write = known.ok_or(Refusal::NoTransfer)?;
        let bytes = u32::try_from(delivery.payload.len()).map_err(|_| Refusal::Malformed)?;
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= write.length);
        if bytes == 0 || !inside || bytes > write.length - write.received {
            return Err(Refusal::BadAddress);
        }
        let (to, length, imm, part) = (write.to, write.length, write.imm, write.part);
        let last = write.received + bytes == length;
        if !self.regions.is_live(to.key) {
            return Err(Refusal::BadAddress);
        }
        if last {
            self.can_complete(delivery, imm)?;
            self.writes_in.remove(&id);
        } else if let Some(write) = self.writes_in.get_mut(&id) {
            write.received += bytes;
            write.touched = now;
        }
        self.place(to, offset, delivery.payload, memory);
        if last {
            self.complete_write(delivery, (imm, part), (length, to.key));
        }
        Ok(())
    }

    /// Handles the notice that the initiator has given up the write (R5).
    pub(super) fn on_write_abort(
        &mut self,
        delivery: &Delivery<'_>,
        number: u32,
    ) -> Result<(), Refusal> {
        let id = (delivery.peer, delivery.src_qpn, number);
        self.writes_in.remove(&id).ok_or(Refusal::NoTransfer)?;
        self.counters.writes_forgotten += 1;
        Ok(())
    }

    fn place(&mut self, to: MemoryLocation, offset: u32, data: &[u8], memory: &mut dyn Memory) {
        if !data.is_empty() {
            memory.write(to.region, to.offset + u64::from(offset), data);
        }
        self.counters.rdma_write_recv_bytes += data.len() as u64;
    }

    /// Checks that a write can complete on this device. A write with immediate data needs a receive
    /// request, or a free completion entry if it uses no receive request (R4).
    fn can_complete(&self, delivery: &Delivery<'_>, imm: Option<u32>) -> Result<(), Refusal> {
        let qp = self.qp(delivery.dst_qpn).ok_or(Refusal::BadQpn)?;
        let room = if qp.init.unsolicited_write_recv {
            self.cqs.get(qp.init.recv_cq.0).is_some_and(crate::cq::CompletionQueue::has_room)
        } else {
            !qp.receives.is_empty()
        };
        if imm.is_none() || room { Ok(()) } else { Err(Refusal::Rnr) }
    }

    /// Completes a write whose completion [`Device::can_complete`] has permitted (R4).
    fn complete_write(
        &mut self,
        delivery: &Delivery<'_>,
        (imm, part): (Option<u32>, bool),
        (byte_len, lkey): (u32, u32),
    ) {
        if imm.is_none() {
            let (peer, length) = (delivery.peer, byte_len);
            self.take_note(Note { peer, read: false, length, lkey, whole: true, part });
            return;
        }
        let qpn = delivery.dst_qpn;
        let arrival = Arrival { qpn, opcode: WcOpcode::RecvRdmaWithImm, byte_len, imm };
        let Some(qp) = self.qp_mut(qpn) else { return };
        if !qp.init.unsolicited_write_recv {
            if let Some(posted) = qp.receives.pop_front() {
                self.complete_receive(delivery, &arrival, &posted, WcStatus::Ok);
            }
            return;
        }
        let cq = qp.init.recv_cq;
        let mut completion = self.completion_of(delivery, &arrival, 0, WcStatus::Ok);
        completion.unsolicited = true;
        if let Some(queue) = self.cqs.get_mut(cq.0) {
            queue.push_unsolicited(completion);
        }
    }

    /// Handles a peer's read: the answer joins the queue of transfers to the peer (R8).
    pub(super) fn on_read(&mut self, delivery: &Delivery<'_>, part: bool) -> Result<(), Refusal> {
        let (header, rest) = RdmaHeader::decode(delivery.payload).ok_or(Refusal::Malformed)?;
        if !rest.is_empty() {
            return Err(Refusal::Malformed);
        }
        let from = self.target_of(delivery, &header, Purpose::RemoteRead)?;
        if header.length == 0 {
            return Ok(()); // R8: a read of zero bytes has no answer
        }
        // R11: Limit of reads
        if self.responding >= self.config.reads_in_max {
            return Err(Refusal::Rnr);
        }
        let op = Op {
            qpn: delivery.dst_qpn,
            ah: None,
            peer: delivery.peer,
            remote_qpn: delivery.src_qpn,
            check: 0,
            wr_id: 0,
            opcode: WcOpcode::RdmaRead,
            length: header.length,
            part,
            in_flight: 0,
            status: WcStatus::Ok,
            listed: false,
            ranges: SentRanges::default(),
            work: Work::Respond { number: header.number, from, sent: 0 },
        };
        let key = self.ops.insert(op, OPS_MAX).ok_or(Refusal::Rnr)?;
        self.responding += 1;
        self.regions.lend(from.key, 1);
        self.counters.rdma_read_resp_bytes += u64::from(header.length);
        self.list(key);
        Ok(())
    }

    /// Handles bytes of a read that this device has requested (R9).
    pub(super) fn on_read_data(
        &mut self,
        delivery: &Delivery<'_>,
        number: u32,
        offset: u32,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let key = *self.reads.get(&number).ok_or(Refusal::NoTransfer)?;
        let op = self.ops.get_mut(key).filter(|op| op.is_asked_of(delivery));
        let op = op.ok_or(Refusal::NoTransfer)?;
        let length = op.length;
        let (quiet, Work::Read { to, received, .. }) = (op.in_flight == 0, &mut op.work) else {
            return Err(Refusal::NoTransfer);
        };
        let bytes = u32::try_from(delivery.payload.len()).map_err(|_| Refusal::Malformed)?;
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= length);
        if bytes == 0 || !inside || bytes > length - *received {
            return Err(Refusal::BadAddress);
        }
        let to = *to;
        if !self.regions.is_live(to.key) {
            self.end(key, WcStatus::LocalInvalidLkey);
            return Err(Refusal::NoTransfer);
        }
        *received += bytes;
        let over = *received == length && quiet;
        memory.write(to.region, to.offset + u64::from(offset), delivery.payload);
        if over {
            self.end(key, WcStatus::Ok);
        }
        Ok(())
    }

    /// Handles the notice that the peer can no longer answer a read of this device (R10).
    pub(super) fn on_read_error(
        &mut self,
        delivery: &Delivery<'_>,
        number: u32,
        status: u32,
    ) -> Result<(), Refusal> {
        let key = *self.reads.get(&number).ok_or(Refusal::NoTransfer)?;
        self.ops.get(key).filter(|op| op.is_asked_of(delivery)).ok_or(Refusal::NoTransfer)?;
        let known = [WcStatus::RemoteBadAddress, WcStatus::RemoteAbort];
        let named = known.into_iter().find(|known| *known as u32 == status);
        self.end(key, named.unwrap_or(WcStatus::RemoteBadStatus));
        Ok(())
    }
}

impl Op {
    /// Whether a datagram comes from the peer and the queue pair to which this read was sent (R9).
    fn is_asked_of(&self, delivery: &Delivery<'_>) -> bool {
        (self.peer, self.remote_qpn, self.qpn)
            == (delivery.peer, delivery.src_qpn, delivery.dst_qpn)
    }
}
