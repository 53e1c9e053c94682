//! Assigns messages that are next in order to receives, or stores them as unexpected messages (G6,
//! G7).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::layer::completion::{Kind, OperationCompletion, Outcome};
use crate::layer::world::Peer;
use crate::memory::Memory;
use crate::rdm::peers::connection::Connection;
use crate::rdm::receive::inbound::{
    Body, Destination, Landing, LongIn, MessageInfo, Partial, Posted, Refusal, UnexpectedMessage,
};
use crate::rdm::receive::matching::{MessageKey, ReceiveKey};
use crate::rdm::state::Rdm;
use crate::rdm::wire::batch::Batch;
use crate::rdm::wire::encode;
use crate::rdm::wire::field::{STATUS_FAILED, STATUS_OK};
use crate::rdm::wire::frame::LongIov;
use crate::rdm::wire::message::{MESSAGE_COST, MessageFrame, MessageHeader};

impl Rdm {
    /// Returns the description of a message from a connection; `None` if its peer has no number.
    fn info_of(
        &self,
        index: u32,
        header: &MessageHeader,
        length: u64,
        charge: u64,
    ) -> Option<MessageInfo> {
        let conn = self.conn(index)?;
        let incoming = conn.incoming.as_ref()?;
        Some(MessageInfo {
            peer: Some(conn.id),
            run: incoming.run,
            session: incoming.serial,
            charge,
            source: conn.source?,
            tag: header.tag,
            data: header.data,
            token: header.token,
            length,
        })
    }

    /// Handles a MESSAGE that is next in order: a whole message, or its first part.
    pub(crate) fn on_message(
        &mut self,
        index: u32,
        message: &MessageFrame<'_>,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let MessageFrame { ref header, length, bytes } = *message;
        let whole = length.map_or(bytes.len() as u64, u64::from);
        if whole > self.bounds.medium_bytes_max && length.is_some() {
            return Err(Refusal::Malformed);
        }
        let charge = message.charge();
        let info = self.info_of(index, header, whole, charge).ok_or(Refusal::Stale)?;
        if self.is_full() {
            return Err(Refusal::Rnr);
        }
        if let Some(landing) = self.match_message(&info) {
            self.give_back(index, charge);
            landing.write(memory, 0, bytes);
            if length.is_none() {
                self.landed(&landing, None);
            } else {
                let place = Destination::Landing(Box::new(landing));
                self.begin_partial(index, header.id, bytes.len() as u64, whole, place, memory);
            }
            return Ok(());
        }
        if length.is_none() {
            return self.keep(info, Body::Whole(bytes.into())).map(|_| ());
        }
        let kept = self.keep(info, Body::Parts(header.id))?;
        let mut buffer: Vec<u8> = Vec::with_capacity(usize::try_from(whole).unwrap_or(0));
        buffer.extend_from_slice(bytes);
        let place = Destination::Buffer { buffer, kept, tagged: info.tag.is_some() };
        self.begin_partial(index, header.id, bytes.len() as u64, whole, place, memory);
        Ok(())
    }

    /// Handles several messages: either all of them are accepted, or none (G11).
    pub(crate) fn on_batch(
        &mut self,
        index: u32,
        batch: &Batch<'_>,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let count = batch.count as usize;
        let full = self.done.len() + count > self.dones_now_max;
        if full || self.tagged.room() < count || self.plain.room() < count {
            return Err(Refusal::Rnr);
        }
        for message in batch.messages() {
            self.on_message(index, &message, memory)?;
        }
        Ok(())
    }

    /// Handles a long message: starts to read it if a receive matches, and stores its announcement
    /// otherwise (G3).
    pub(crate) fn on_long(
        &mut self,
        index: u32,
        header: &MessageHeader,
        iov: &[LongIov],
    ) -> Result<(), Refusal> {
        let charge = MESSAGE_COST;
        let length = iov.iter().map(|piece| piece.length).sum();
        let info = self.info_of(index, header, length, charge).ok_or(Refusal::Stale)?;
        if self.is_full() {
            return Err(Refusal::Rnr);
        }
        let run = self.conn(index).map_or(0, |conn| conn.remote);
        let from = LongIn::of(run, iov);
        if let Some(landing) = self.match_message(&info) {
            self.give_back(index, charge);
            self.begin_read(landing, &from);
            return Ok(());
        }
        self.keep(info, Body::Long(Box::new(from))).map(|_| ())
    }

    /// Stores an unexpected message until a receive matches it. `body`: location of its bytes.
    pub(crate) fn keep(&mut self, info: MessageInfo, body: Body) -> Result<MessageKey, Refusal> {
        let matcher = if info.tag.is_some() { &mut self.tagged } else { &mut self.plain };
        let kept = matcher
            .keep(info.envelope(), UnexpectedMessage { info, body })
            .map_err(|_| Refusal::Rnr)?;
        self.counters.unexpected += 1;
        Ok(kept)
    }

    /// Returns the receive for a message, and reserves its space for the message.
    pub(crate) fn match_message(&mut self, info: &MessageInfo) -> Option<Landing> {
        let matcher = if info.tag.is_some() { &mut self.tagged } else { &mut self.plain };
        let key = matcher.receive_for(&info.envelope())?;
        let posted = *matcher.receive_mut(key)?;
        Some(self.land(info, &posted, Some(key)))
    }

    /// Assigns a receive, or a part of its buffer, to a message. `key`: key of the receive, which
    /// is withdrawn if it accepts no further message; `None` if the receive is not posted.
    pub(crate) fn land(
        &mut self,
        info: &MessageInfo,
        posted: &Posted,
        key: Option<ReceiveKey>,
    ) -> Landing {
        let mut landing = Landing {
            info: *info,
            context: posted.context,
            signaled: posted.signaled,
            iov: posted.iov,
            offset: 0,
            room: posted.iov.length().min(info.length),
            multi: posted.multi,
        };
        let mut over = true;
        if let Some(multi) = posted.multi.and_then(|multi| self.multis.get_mut(multi)) {
            landing.offset = multi.used;
            landing.room = (multi.size - multi.used).min(info.length);
            multi.used += landing.room;
            multi.landing += 1;
            over = multi.size - multi.used < multi.min.max(1);
            multi.closed = over;
        }
        if over && let Some(key) = key {
            let matcher = if info.tag.is_some() { &mut self.tagged } else { &mut self.plain };
            matcher.withdraw(key);
        }
        landing
    }

    /// Reports the end of a message that was placed into a receive. `failure`: outcome of a message
    /// that has failed (G7).
    pub(crate) fn landed(&mut self, landing: &Landing, failure: Option<Outcome>) {
        let Landing { info, room, .. } = landing;
        let over = info.length - room;
        let fits = if over > 0 { Outcome::Truncated(over) } else { Outcome::Ok };
        let mut released = false;
        if let Some(key) = landing.multi
            && let Some(multi) = self.multis.get_mut(key)
        {
            multi.landing -= 1;
            released = multi.closed && multi.landing == 0;
            if released {
                self.multis.remove(key);
            }
        }
        let outcome = failure.unwrap_or(fits);
        self.done.push_back(OperationCompletion {
            kind: Kind::Receive,
            outcome,
            context: landing.context,
            tagged: info.tag.is_some(),
            signaled: landing.signaled || outcome != Outcome::Ok || released,
            peer: Some(Peer(info.source)),
            length: *room,
            offset: landing.offset,
            tag: info.tag.unwrap_or(0),
            data: info.data,
            released,
        });
        let status = if failure.is_some() { STATUS_FAILED } else { STATUS_OK };
        self.confirm(info, status);
    }

    /// Sends RECEIPT to a sender that waits for it (G8). If another run has replaced the sender,
    /// nothing is sent, because the token of the message may belong to another operation there.
    pub(crate) fn confirm(&mut self, info: &MessageInfo, status: u8) {
        let same = |conn: &Connection| conn.remote == info.run;
        if let (Some(token), Some(index)) = (info.token, self.index_of(info))
            && self.conn(index).is_some_and(same)
        {
            self.queue_reply(index, encode::receipt(token, status));
        }
    }

    /// Delivers a stored unexpected message into a receive.
    pub(crate) fn deliver(
        &mut self,
        kept: UnexpectedMessage,
        landing: Landing,
        memory: &mut dyn Memory,
    ) {
        self.release(&kept.info);
        match kept.body {
            Body::Whole(bytes) => {
                landing.write(memory, 0, &bytes);
                self.landed(&landing, None);
            }
            Body::Parts(id) => {
                let index = self.index_of(&kept.info);
                let partial = index.and_then(|index| self.partials.get_mut(&(index, id)));
                if let Some(Partial { place: place @ Destination::Buffer { .. }, .. }) = partial {
                    if let Destination::Buffer { buffer, .. } = &place {
                        landing.write(memory, 0, buffer);
                    }
                    *place = Destination::Landing(Box::new(landing));
                }
            }
            Body::Long(from) => self.begin_read(landing, &from),
            Body::Lost(outcome) => self.landed(&landing, Some(outcome)),
            Body::Loopback(key) => {
                self.copy_loopback(key, &landing, memory);
                self.landed(&landing, None);
                self.end(key, Outcome::Ok);
            }
        }
    }

    /// Discards a stored unexpected message.
    pub(crate) fn throw_away(&mut self, kept: UnexpectedMessage) {
        self.release(&kept.info);
        match kept.body {
            Body::Whole(_) | Body::Long(_) => self.confirm(&kept.info, STATUS_OK),
            Body::Parts(id) => {
                let index = self.index_of(&kept.info);
                let partial = index.and_then(|index| self.partials.get_mut(&(index, id)));
                if let Some(partial) = partial {
                    partial.place = Destination::Nowhere(Box::new(kept.info));
                }
            }
            Body::Loopback(key) => self.end(key, Outcome::Ok),
            Body::Lost(_) => {}
        }
    }

    /// Returns the connection through which a message arrived, if the connection still exists.
    pub(crate) fn index_of(&self, info: &MessageInfo) -> Option<u32> {
        self.conn_of(info.peer?)
    }
}
