//! Judges what peers send: whose it is, whether it is for this run of us, and what it says.
//!
//! A frame that is refused has changed nothing, and may come again.

use alloc::vec::Vec;

use srd_proto::{Delivery, Instant, Status};

use crate::memory::Memory;
use crate::rdm::peers::connection::MESSAGE_COST;
use crate::rdm::peers::handshake::Hello;
use crate::rdm::wire::Frame;
use crate::rdm::{QPN, Rdm};
use crate::wire::Opaque;

/// Frames of our own that may wait for a peer before it gets no more credit.
const CONTROL_MAX: usize = 64;

/// Why a frame is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// No sender writes that.
    Malformed,
    /// It is for another run of us, or its session is not open.
    Stale,
    /// There is no room now.
    Rnr,
    /// It may not use that memory so.
    BadAddress,
}

impl Rdm {
    /// Judges a datagram, for [`srd_proto::Endpoint::handle_packet_with`].
    pub fn judge(
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

    /// Reads and writes are the device's.
    fn judge_transfer(
        &mut self,
        now: Instant,
        delivery: &Delivery<'_>,
        memory: &mut dyn Memory,
    ) -> Status {
        if self.config.tell_remote && self.is_full() {
            return self.refuse(Refusal::Rnr);
        }
        let status = self.device.judge(now, delivery, memory);
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
        let index = self.link_of(delivery.peer).ok_or(Refusal::Stale)?;
        if let Some(id) = frame.message_id() {
            return self.on_numbered(index, check, id, &frame, delivery.payload, memory);
        }
        if check != self.own_check {
            return Err(Refusal::Stale);
        }
        let heard = match frame {
            Frame::Answer { version, session, incarnation, limit } => {
                let hello = Hello { version, session, incarnation };
                self.on_answer(index, session, &hello, limit)
            }
            Frame::Credit { session, limit } => self.on_credit(index, session, limit),
            Frame::Receipt { token, status } => self.on_word(index, token, status),
            Frame::Result { token, status, bytes } => {
                self.on_result(index, token, status, bytes, memory)
            }
            Frame::Put { .. } | Frame::Note { .. } => {
                self.on_write(index, &frame, memory)?;
                true
            }
            Frame::Hello { .. }
            | Frame::Message { .. }
            | Frame::Long { .. }
            | Frame::Joined(_)
            | Frame::Atomic { .. } => true,
        };
        if !heard {
            self.counters.unasked += 1;
        }
        Ok(())
    }

    fn on_hello(
        &mut self,
        delivery: &Delivery<'_>,
        check: u32,
        hello: Hello,
    ) -> Result<(), Refusal> {
        if check != 0 && check != self.own_check {
            return Err(Refusal::Stale);
        }
        if hello.incarnation == 0 {
            return Err(Refusal::Malformed);
        }
        // Who greets without hearing the answers gets no more of them.
        let deaf = |link: &crate::rdm::peers::connection::Link| link.control.len() >= CONTROL_MAX;
        let deaf = self.link_of(delivery.peer).and_then(|at| self.link(at)).is_some_and(deaf);
        let is_new = self.link_of(delivery.peer).is_none();
        let waiting = u32::try_from(self.hellos.len()).unwrap_or(u32::MAX);
        let strangers = self.strangers_count.saturating_add(waiting);
        let crowded = is_new && strangers >= self.bounds.strangers_max;
        // One of those that are there may have gone.
        self.crowded |= crowded;
        if deaf || crowded || self.hellos.len() >= self.bounds.hellos_max {
            return Err(Refusal::Rnr);
        }
        self.hellos.push_back((delivery.peer, hello));
        Ok(())
    }

    /// A message or atomic operation: in its turn, or kept until it is.
    fn on_numbered(
        &mut self,
        index: u32,
        check: u32,
        id: u32,
        frame: &Frame<'_>,
        payload: &[u8],
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let incoming = self.link(index).and_then(|link| link.incoming);
        let incoming = incoming.filter(|i| i.check == check).ok_or(Refusal::Stale)?;
        let charge = frame.charge();
        if incoming.charged + charge > incoming.granted {
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
        incoming.charged += charge;
        if ahead == 0 {
            incoming.expected = incoming.expected.wrapping_add(frame.span());
            if incoming.early > 0 {
                self.advance(index, memory);
            }
        }
        Ok(())
    }

    /// The message that is next in order.
    pub(crate) fn on_turn(
        &mut self,
        index: u32,
        frame: &Frame<'_>,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        match frame {
            Frame::Message { envelope, length, bytes } => {
                self.on_message(index, envelope, *length, bytes, memory)
            }
            Frame::Long { envelope, pieces, count } => {
                self.on_long(index, envelope, &pieces[..*count], memory)
            }
            Frame::Joined(joined) => self.on_joined(index, joined, memory),
            _ => self.on_atomic(index, frame, memory),
        }
    }

    /// The receiver's share of credit for one sender.
    pub(crate) fn window(&self) -> u64 {
        let b = &self.bounds;
        let share = b.credit_bytes / u64::from(self.links_count.max(1));
        share.clamp(b.window_bytes_min, b.window_bytes_max)
    }

    /// More credit from a peer; false if it is for another session.
    fn on_credit(&mut self, index: u32, session: u32, limit: u64) -> bool {
        let ours = self.link_mut(index).and_then(|link| link.session_numbered(session));
        let Some(ours) = ours else { return false };
        ours.limit = ours.limit.max(limit);
        self.wake(index);
        true
    }

    /// A message does not take room any more, of this session or of one before: when half of the
    /// window is free, its sender is told.
    pub(crate) fn give_back(&mut self, index: u32, charge: u64) {
        let window = self.window();
        let Some(incoming) = self.incoming_mut(index) else { return };
        incoming.consumed = incoming.consumed.saturating_add_unsigned(charge);
        let due = incoming.limit(window) >= incoming.granted + window / 2;
        if due && !core::mem::replace(&mut incoming.credit_due, true) {
            self.wake(index);
        }
    }

    /// Says how much more a peer may send, if that is due.
    pub(crate) fn grant(&mut self, index: u32) {
        let window = self.window();
        // Who does not hear us gets no more: what we owe it is bounded by its credit.
        let heard = |link: &crate::rdm::peers::connection::Link| {
            !link.blocked && link.control.len() < CONTROL_MAX
        };
        if !self.link(index).is_some_and(heard) {
            return;
        }
        let Some(incoming) = self.incoming_mut(index).filter(|i| i.credit_due) else { return };
        incoming.credit_due = false;
        let limit = incoming.limit(window);
        if limit <= incoming.granted {
            return;
        }
        incoming.granted = limit;
        let number = incoming.number;
        self.say_word(index, crate::rdm::wire::credit(number, limit));
    }

    /// What a link's receiving half held is dropped: receives that it had begun end so.
    pub(crate) fn drop_incoming(&mut self, index: u32, outcome: crate::rdm::api::Outcome) {
        let Some(link) = self.link_mut(index) else { return };
        if link.incoming.take().is_none() {
            return;
        }
        let keys = self.partials.range((index, 0)..=(index, u32::MAX)).map(|(key, _)| *key);
        for key in keys.collect::<Vec<_>>() {
            if let Some(partial) = self.partials.remove(&key) {
                self.drop_partial(index, partial, outcome);
            }
        }
    }

    pub(crate) fn incoming_mut(
        &mut self,
        index: u32,
    ) -> Option<&mut crate::rdm::peers::connection::Incoming> {
        self.link_mut(index)?.incoming.as_mut()
    }
}

impl Frame<'_> {
    /// The id, of what comes in order.
    fn message_id(&self) -> Option<u32> {
        match self {
            Self::Message { envelope, .. } | Self::Long { envelope, .. } => Some(envelope.id),
            Self::Atomic { id, .. } => Some(*id),
            Self::Joined(joined) => Some(joined.first),
            _ => None,
        }
    }

    /// How many ids it has.
    pub(crate) fn span(&self) -> u32 {
        if let Self::Joined(joined) = self { joined.count } else { 1 }
    }

    /// What it costs of its sender's credit.
    pub(crate) fn charge(&self) -> u64 {
        match self {
            Self::Message { length, bytes, .. } => {
                MESSAGE_COST + length.map_or(bytes.len() as u64, u64::from)
            }
            Self::Joined(joined) => joined.charge,
            _ => MESSAGE_COST,
        }
    }
}
