//! Admits or refuses datagrams of peers. This module handles messages; `rdma` handles reads and
//! writes.
//!
//! An admitted datagram is placed and completed immediately. A refused datagram changes nothing
//! (M2), so the peer may send it again.

use srd_proto::{Delivery, Instant, Qpn, Status};

use crate::cq::{Completion, WcOpcode, WcStatus};
use crate::device::state::Device;
use crate::handle::Ah;
use crate::memory::Memory;
use crate::qp::UD_HEADER_BYTES;
use crate::qp::{Piece, Posted, QpType};
use crate::wire::{Opaque, check_of};

/// Reason why a datagram is refused (M1, M2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    BadQpn,
    BadQkey,
    Malformed,
    BadAddress,
    UnknownPeer,
    Rnr,
    BadLength,
    NoTransfer,
}

/// A message that has arrived completely.
pub(super) struct Arrival {
    pub(super) qpn: Qpn,
    pub(super) opcode: WcOpcode,
    pub(super) byte_len: u32,
    pub(super) imm: Option<u32>,
}

impl Device {
    /// Admits a datagram, for [`srd_proto::Endpoint::handle_packet_with`]. Places its bytes and
    /// completes its request, or returns the status with which the datagram is refused.
    pub fn admit(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        memory: &mut dyn Memory,
    ) -> Status {
        match self.take(now, delivery, memory) {
            Ok(()) => Status::Ok,
            Err(refusal) => self.refuse(refusal),
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> Status {
        let c = &mut self.counters;
        let (counter, status) = match refusal {
            Refusal::BadQpn => (&mut c.bad_qpn, Status::BadDestQpn),
            Refusal::BadQkey => (&mut c.bad_qkey, Status::BadDestQpn),
            Refusal::Malformed => (&mut c.malformed, Status::BadDestQpn),
            Refusal::BadAddress => (&mut c.bad_address, Status::RemoteBadAddress),
            Refusal::UnknownPeer => (&mut c.unknown_peer, Status::UnknownPeer),
            Refusal::Rnr => (&mut c.rnr, Status::RemoteRnr),
            Refusal::BadLength => (&mut c.bad_length, Status::RemoteBadLength),
            Refusal::NoTransfer => (&mut c.no_transfer, Status::RemoteAbort),
        };
        *counter += 1;
        status
    }

    fn take(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let opaque = Opaque::decode(delivery.imm).ok_or(Refusal::Malformed)?;
        let qp = self.qp(delivery.dst_qpn).ok_or(Refusal::BadQpn)?;
        let reliable = qp.init.qp_type == QpType::Srd;
        if !qp.state.receives() || reliable != delivery.reliable {
            return Err(Refusal::BadQpn);
        }
        let key_fits = |check: u32| {
            if check == check_of(qp.qkey) { Ok(()) } else { Err(Refusal::BadQkey) }
        };
        match opaque {
            Opaque::Send { check, imm } => {
                key_fits(check)?;
                self.on_send(delivery, imm, memory)
            }
            _ if !reliable => Err(Refusal::Malformed),
            Opaque::Write { check, imm, part } => {
                key_fits(check)?;
                self.on_write(now, delivery, (imm, part), memory)
            }
            Opaque::WriteData { number, offset } => {
                self.on_write_data(now, delivery, number, offset, memory)
            }
            Opaque::WriteAbort { number } => self.on_write_abort(delivery, number),
            Opaque::Read { check, part } => {
                key_fits(check)?;
                self.on_read(delivery, part)
            }
            Opaque::ReadData { number, offset } => {
                self.on_read_data(delivery, number, offset, memory)
            }
            Opaque::ReadError { number, status } => self.on_read_error(delivery, number, status),
        }
    }

    /// Handles a message: places it into the oldest receive request (S2).
    fn on_send(
        &mut self,
        delivery: &Delivery<'_>,
        imm: Option<u32>,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let qpn = delivery.dst_qpn;
        let qp = self.qp_mut(qpn).ok_or(Refusal::BadQpn)?;
        let skip = if qp.init.qp_type == QpType::Ud { UD_HEADER_BYTES } else { 0 };
        let bytes = u32::try_from(delivery.payload.len()).map_err(|_| Refusal::BadLength)?;
        let byte_len = bytes.saturating_add(skip);
        let posted = qp.receives.front().ok_or(Refusal::Rnr)?;
        if byte_len > posted.length {
            return Err(Refusal::BadLength);
        }
        // B9: Every request completes
        let posted = qp.receives.pop_front().ok_or(Refusal::Rnr)?;
        let live =
            posted.pieces.iter().flatten().all(|piece| self.regions.is_live(piece.place.key));
        let status = if live {
            scatter(&posted.pieces, skip, delivery.payload, memory);
            WcStatus::Ok
        } else {
            WcStatus::LocalInvalidLkey
        };
        let arrival = Arrival { qpn, opcode: WcOpcode::Recv, byte_len, imm };
        self.complete_receive(delivery, &arrival, &posted, status);
        self.counters.recv_wrs += 1;
        self.counters.recv_bytes += u64::from(bytes);
        Ok(())
    }

    /// Completes a receive request: fills its reserved entry in the completion queue.
    pub(super) fn complete_receive(
        &mut self,
        delivery: &Delivery<'_>,
        arrival: &Arrival,
        posted: &Posted,
        status: WcStatus,
    ) {
        let completion = self.completion_of(delivery, arrival, posted.wr_id, status);
        let Some(cq) = self.qp(arrival.qpn).map(|qp| qp.init.recv_cq) else { return };
        if let Some(queue) = self.cqs.get_mut(cq.0) {
            queue.fulfil(completion);
        }
    }

    /// Returns the completion that reports an arrived message, or an arrived write with immediate
    /// data.
    pub(super) fn completion_of(
        &self,
        delivery: &Delivery<'_>,
        arrival: &Arrival,
        wr_id: u64,
        status: WcStatus,
    ) -> Completion {
        // S5: Source of a message
        let pd = self.qp(arrival.qpn).map(|qp| qp.init.pd.0);
        let ah = pd.and_then(|pd| self.ah_of.get(&(pd, delivery.peer)).copied());
        Completion {
            wr_id,
            status,
            opcode: arrival.opcode,
            qpn: arrival.qpn,
            byte_len: arrival.byte_len,
            imm: arrival.imm,
            src_qpn: Some(delivery.src_qpn),
            ah: ah.map(Ah),
            peer: Some(delivery.peer),
            unsolicited: false,
        }
    }
}

/// Places a message into the pieces of a receive request (S2). The first `skip` bytes of the pieces
/// stay unchanged (S6).
fn scatter(pieces: &[Option<Piece>], skip: u32, mut payload: &[u8], memory: &mut dyn Memory) {
    let mut skip = skip;
    for piece in pieces.iter().flatten() {
        let skipped = skip.min(piece.length);
        skip -= skipped;
        let room = (piece.length - skipped) as usize;
        let (now, later) = payload.split_at(room.min(payload.len()));
        if !now.is_empty() {
            memory.write(piece.place.region, piece.place.offset + u64::from(skipped), now);
        }
        payload = later;
    }
}
