//! Dispatches frames of peers: finds the connection, checks that the frame is for this run, and
//! calls the function for its type.
//!
//! A refused frame has changed nothing, and may be sent again (U2, U4).

use alloc::vec::Vec;

use srd_proto::{Delivery, Instant, Status};

use crate::layer::completion::Outcome;
use crate::memory::Memory;
use crate::rdm::peers::connection::{Hello, Incoming};
use crate::rdm::receive::inbound::Refusal;
use crate::rdm::state::{QPN, Rdm};
use crate::rdm::wire::frame::Frame;
use crate::wire::Opaque;

impl Rdm {
    /// Admits or refuses a datagram, for [`srd_proto::Endpoint::handle_packet_with`].
    pub fn admit(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        memory: &mut dyn Memory,
    ) -> Status {
        if delivery.dst_qpn != QPN || !delivery.reliable {
            return self.judge_transfer(now, delivery, memory);
        }
        let taken = match Opaque::decode(delivery.imm) {
            Some(Opaque::Send { check, imm: None }) => self.on_frame(delivery, check, memory),
            Some(Opaque::Send { check, imm: Some(part) }) => {
                self.on_part(delivery, check, part, memory)
            }
            _ => return self.judge_transfer(now, delivery, memory),
        };
        match taken {
            Ok(()) => Status::Ok,
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// Passes a datagram that is not a frame of the messaging layer to the device, which handles
    /// reads and writes.
    fn judge_transfer(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        memory: &mut dyn Memory,
    ) -> Status {
        if self.config.report_remote && self.is_full() {
            return self.refuse(Refusal::Rnr);
        }
        let status = self.device.admit(now, delivery, memory);
        self.take_notes();
        status
    }

    fn refuse(&mut self, refusal: Refusal) -> Status {
        let c = &mut self.counters;
        let (counter, status) = match refusal {
            Refusal::Malformed => (&mut c.malformed, Status::RemoteBadLength),
            Refusal::Stale => (&mut c.stale, Status::BadDestQpn),
            Refusal::Rnr => (&mut c.rnr, Status::RemoteRnr),
            Refusal::BadAddress => (&mut c.bad_address, Status::RemoteBadAddress),
        };
        *counter += 1;
        status
    }

    fn on_frame(
        &mut self,
        delivery: &Delivery<'_>,
        check: u32,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let frame = Frame::decode(delivery.payload).ok_or(Refusal::Malformed)?;
        if let Frame::Hello { version, session, incarnation } = frame {
            return self.on_hello(delivery, check, Hello { version, session, incarnation });
        }
        let index = self.conn_of(delivery.peer).ok_or(Refusal::Stale)?;
        if let Some(id) = frame.message_id() {
            return self.on_numbered(index, check, id, &frame, delivery.payload, memory);
        }
        if check != self.local_check {
            return Err(Refusal::Stale);
        }
        let awaited = match frame {
            Frame::Answer { version, session, incarnation, limit } => {
                let hello = Hello { version, session, incarnation };
                self.on_answer(index, session, &hello, limit)
            }
            Frame::Credit { session, limit } => self.on_credit(index, session, limit),
            Frame::Receipt { token, status } => self.on_status(index, token, status),
            Frame::Result { token, status, bytes } => {
                self.on_result(index, token, status, bytes, memory)
            }
            Frame::Put { .. } | Frame::Note { .. } => {
                self.on_write(index, &frame, memory)?;
                true
            }
            Frame::Hello { .. }
            | Frame::Message(_)
            | Frame::Long { .. }
            | Frame::Batch(_)
            | Frame::Atomic { .. } => true,
        };
        if !awaited {
            self.counters.unasked += 1;
        }
        Ok(())
    }

    /// Handles a message or atomic operation: processes it if it is next in order, otherwise stores
    /// it until then (G1).
    fn on_numbered(
        &mut self,
        index: u32,
        check: u32,
        id: u32,
        frame: &Frame<'_>,
        payload: &[u8],
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let incoming = self.conn(index).and_then(|conn| conn.incoming);
        let incoming = incoming.filter(|i| i.check == check).ok_or(Refusal::Stale)?;
        let charge = frame.charge(); // G4
        let charge = u32::try_from(charge).map_err(|_| Refusal::Malformed)?;
        if charge > incoming.unused {
            return Err(Refusal::Malformed);
        }
        let ahead = id.wrapping_sub(incoming.expected);
        if ahead == 0 {
            if incoming.early > 0 && self.is_early(index, id) {
                return Err(Refusal::Malformed);
            }
            self.on_turn(index, frame, memory)?;
            self.forget_unknown(index, id);
        } else if ahead < self.bounds.reorder_ids_max {
            self.keep_early(index, id, payload)?;
        } else if ahead < 1 << 31 {
            return Err(Refusal::Rnr);
        } else {
            return Err(Refusal::Malformed);
        }
        let Some(incoming) = self.incoming_mut(index) else { return Ok(()) };
        incoming.unused = incoming.unused.saturating_sub(charge);
        if ahead == 0 {
            incoming.expected = incoming.expected.wrapping_add(frame.span());
            if incoming.early > 0 {
                self.advance(index, memory);
            }
        }
        Ok(())
    }

    /// Processes the message that is next in order.
    pub(crate) fn on_turn(
        &mut self,
        index: u32,
        frame: &Frame<'_>,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        if self.outruns_parts(index, frame.span()) {
            return Err(Refusal::Rnr);
        }
        match frame {
            Frame::Message(message) => self.on_message(index, message, memory),
            Frame::Long { header, iov, count } => self.on_long(index, header, &iov[..*count]),
            Frame::Batch(batch) => self.on_batch(index, batch, memory),
            _ => self.on_atomic(index, frame, memory),
        }
    }

    /// Drops the peer's session: receives that were filled in part end with the outcome (H3). The
    /// messages that stay stored are then those of an earlier session (G5).
    pub(crate) fn drop_incoming(&mut self, index: u32, outcome: Outcome) {
        if self.incoming_mut(index).is_none() {
            return;
        }
        let keys = self.partials.range((index, 0)..=(index, u32::MAX)).map(|(key, _)| *key);
        for key in keys.collect::<Vec<_>>() {
            if let Some(partial) = self.partials.remove(&key) {
                self.drop_partial(index, partial, outcome);
            }
        }
        let Some(conn) = self.conn_mut(index) else { return };
        let Some(incoming) = conn.incoming.take() else { return };
        let stored = conn.former_charge.saturating_add(incoming.held);
        conn.former_charge = stored.saturating_sub(incoming.unused);
        self.credit_held = self.credit_held.saturating_sub(incoming.held.into());
    }

    pub(crate) fn incoming_mut(&mut self, index: u32) -> Option<&mut Incoming> {
        self.conn_mut(index)?.incoming.as_mut()
    }
}
