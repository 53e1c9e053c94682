//! Brings messages that are next in order to receives, or keeps them until one asks.

use alloc::boxed::Box;
use alloc::vec::Vec;

use srd_proto::PeerId;

use crate::memory::Memory;
use crate::rdm::api::{Done, Kind, Outcome, Peer};
use crate::rdm::iovec::Pieces;
use crate::rdm::receive::dispatch::Refusal;
use crate::rdm::receive::long::LongIn;
use crate::rdm::receive::matching::{MessageKey, Offer, ReceiveKey};
use crate::rdm::receive::reorder::{Partial, Place};
use crate::rdm::wire::batch::Joined;
use crate::rdm::wire::{Envelope, Frame, LongPiece};
use crate::rdm::{Rdm, wire};
use crate::slab::Key;

/// What is known of a message beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    /// The peer that it came from; none for ourselves.
    pub peer: Option<PeerId>,
    /// The run that sent it.
    pub run: u64,
    /// What it took of its sender's credit.
    pub charge: u64,
    pub source: u32,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    /// The sender wants to hear when it stands in the receiver's buffer.
    pub token: Option<u64>,
    pub length: u64,
}

impl Info {
    pub(crate) fn offer(&self) -> Offer {
        Offer { tag: self.tag.unwrap_or(0), source: self.source }
    }

    /// The charge of a message that travels in its sender's credit, which has fewer bits.
    fn charge_u32(&self) -> u32 {
        u32::try_from(self.charge).unwrap_or(u32::MAX)
    }
}

/// Where the bytes of a message are that nobody has asked for.
#[derive(Debug)]
pub(crate) enum Body {
    /// All are here.
    Whole(Box<[u8]>),
    /// Some are here: in the partial message of this id.
    Parts(u32),
    /// At the sender.
    Long(Box<LongIn>),
    /// In our own operation's buffer.
    Own(Key),
    /// Nowhere: its sender was lost before all of it had come, and somebody has claimed it.
    Lost(Outcome),
}

/// A message that nobody has asked for.
#[derive(Debug)]
pub(crate) struct Kept {
    pub info: Info,
    pub body: Body,
}

/// A receive that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub pieces: Pieces,
    pub context: u64,
    pub tell: bool,
    pub multi: Option<Key>,
}

/// A receive for many messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multi {
    pub size: u64,
    pub used: u64,
    /// With less than this left it is over.
    pub min: u64,
    /// Messages that are still landing.
    pub landing: u32,
    /// It takes no more messages.
    pub closed: bool,
}

/// A message on its way into a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing {
    pub info: Info,
    pub context: u64,
    pub tell: bool,
    pub pieces: Pieces,
    /// Where it begins in the pieces, and how many of its bytes have room.
    pub offset: u64,
    pub room: u64,
    pub multi: Option<Key>,
}

impl Landing {
    /// Places bytes of the message, as far as there is room.
    pub(crate) fn write(&self, memory: &mut dyn Memory, at: u64, bytes: &[u8]) {
        let room = usize::try_from(self.room.saturating_sub(at)).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        if !bytes.is_empty() {
            self.pieces.write(memory, self.offset + at, bytes);
        }
    }
}

impl Rdm {
    /// What a message from a link says of itself.
    fn info_of(&self, index: u32, envelope: &Envelope, length: u64, charge: u64) -> Option<Info> {
        let link = self.link(index)?;
        Some(Info {
            peer: Some(link.id),
            run: link.remote,
            charge,
            source: link.source?,
            tag: envelope.tag,
            data: envelope.data,
            token: envelope.token,
            length,
        })
    }

    /// A message, or its beginning.
    pub(crate) fn on_message(
        &mut self,
        index: u32,
        envelope: &Envelope,
        length: Option<u32>,
        bytes: &[u8],
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let whole = length.map_or(bytes.len() as u64, u64::from);
        if whole > self.bounds.medium_bytes_max && length.is_some() {
            return Err(Refusal::Malformed);
        }
        let charge = crate::rdm::peers::connection::MESSAGE_COST + whole;
        let info = self.info_of(index, envelope, whole, charge).ok_or(Refusal::Stale)?;
        if self.is_full() {
            return Err(Refusal::Rnr);
        }
        if let Some(landing) = self.match_message(&info) {
            self.give_back(index, charge);
            landing.write(memory, 0, bytes);
            if length.is_none() {
                self.landed(&landing, None);
            } else {
                let place = Place::Landing(Box::new(landing));
                self.begin_partial(index, envelope.id, bytes.len() as u64, whole, place, memory);
            }
            return Ok(());
        }
        if length.is_none() {
            return self.keep(info, Body::Whole(bytes.into())).map(|_| ());
        }
        let kept = self.keep(info, Body::Parts(envelope.id))?;
        let mut buffer: Vec<u8> = Vec::with_capacity(usize::try_from(whole).unwrap_or(0));
        buffer.extend_from_slice(bytes);
        buffer.resize(usize::try_from(whole).unwrap_or(0), 0);
        let place = Place::Buffer { buffer, kept, tagged: info.tag.is_some() };
        self.begin_partial(index, envelope.id, bytes.len() as u64, whole, place, memory);
        Ok(())
    }

    /// Several messages: all are taken, or none.
    pub(crate) fn on_joined(
        &mut self,
        index: u32,
        joined: &Joined<'_>,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let count = joined.count as usize;
        let full = self.done.len() + count > self.bounds.dones_max;
        if full || self.tagged.room() < count || self.plain.room() < count {
            return Err(Refusal::Rnr);
        }
        for frame in joined.messages() {
            if let Frame::Message { envelope, length: None, bytes } = frame {
                self.on_message(index, &envelope, None, bytes, memory)?;
            }
        }
        Ok(())
    }

    /// A long message.
    pub(crate) fn on_long(
        &mut self,
        index: u32,
        envelope: &Envelope,
        pieces: &[LongPiece],
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let _ = memory;
        let charge = crate::rdm::peers::connection::MESSAGE_COST;
        let length = pieces.iter().map(|piece| piece.length).sum();
        let info = self.info_of(index, envelope, length, charge).ok_or(Refusal::Stale)?;
        if self.is_full() {
            return Err(Refusal::Rnr);
        }
        let run = self.link(index).map_or(0, |link| link.remote);
        let from = LongIn::of(run, pieces);
        if let Some(landing) = self.match_message(&info) {
            self.give_back(index, charge);
            self.begin_read(landing, &from);
            return Ok(());
        }
        self.keep(info, Body::Long(Box::new(from))).map(|_| ())
    }

    /// Keeps a message that nobody has asked for.
    pub(crate) fn keep(&mut self, info: Info, body: Body) -> Result<MessageKey, Refusal> {
        let matcher = if info.tag.is_some() { &mut self.tagged } else { &mut self.plain };
        let kept = matcher.keep(info.offer(), Kept { info, body }).map_err(|_| Refusal::Rnr)?;
        self.counters.unexpected += 1;
        if let Some(link) = self.index_of(&info).and_then(|index| self.link_mut(index)) {
            link.kept = link.kept.saturating_add(info.charge_u32());
        }
        Ok(kept)
    }

    /// The receive for a message, with room for it taken.
    pub(crate) fn match_message(&mut self, info: &Info) -> Option<Landing> {
        let matcher = if info.tag.is_some() { &mut self.tagged } else { &mut self.plain };
        let key = matcher.receive_for(&info.offer())?;
        let posted = *matcher.receive_mut(key)?;
        Some(self.land(info, &posted, Some(key)))
    }

    /// Takes a message's room of a receive, and the receive out of the queue (`key`) if it takes
    /// no more.
    pub(crate) fn land(
        &mut self,
        info: &Info,
        posted: &Posted,
        key: Option<ReceiveKey>,
    ) -> Landing {
        let mut landing = Landing {
            info: *info,
            context: posted.context,
            tell: posted.tell,
            pieces: posted.pieces,
            offset: 0,
            room: posted.pieces.length().min(info.length),
            multi: posted.multi,
        };
        let mut over = true;
        if let Some(multi) = posted.multi.and_then(|multi| self.multis.at_mut(multi)) {
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

    /// A message stands in its receive, or never will.
    pub(crate) fn landed(&mut self, landing: &Landing, failure: Option<Outcome>) {
        let Landing { info, room, .. } = landing;
        let over = info.length - room;
        let fits = if over > 0 { Outcome::Truncated(over) } else { Outcome::Ok };
        let mut released = false;
        if let Some(key) = landing.multi
            && let Some(multi) = self.multis.at_mut(key)
        {
            multi.landing -= 1;
            released = multi.closed && multi.landing == 0;
            if released {
                self.multis.remove(key);
            }
        }
        let outcome = failure.unwrap_or(fits);
        self.done.push_back(Done {
            kind: Kind::Receive,
            outcome,
            context: landing.context,
            tagged: info.tag.is_some(),
            tell: landing.tell || outcome != Outcome::Ok || released,
            peer: Some(Peer(info.source)),
            length: *room,
            offset: landing.offset,
            tag: info.tag.unwrap_or(0),
            data: info.data,
            released,
        });
        let status = if failure.is_some() { wire::STATUS_FAILED } else { wire::STATUS_OK };
        self.confirm(info, status);
    }

    /// Tells a sender that waits for it what became of its message. To another run at the same
    /// place the token would mean something else.
    pub(crate) fn confirm(&mut self, info: &Info, status: u8) {
        let same = |link: &crate::rdm::peers::connection::Link| link.remote == info.run;
        if let (Some(token), Some(index)) = (info.token, self.index_of(info))
            && self.link(index).is_some_and(same)
        {
            self.say_word(index, wire::receipt(token, status));
        }
    }

    /// Brings a kept message that was taken into a receive.
    pub(crate) fn deliver(&mut self, kept: Kept, landing: Landing, memory: &mut dyn Memory) {
        self.release(&kept.info);
        match kept.body {
            Body::Whole(bytes) => {
                landing.write(memory, 0, &bytes);
                self.landed(&landing, None);
            }
            Body::Parts(id) => {
                let index = self.index_of(&kept.info);
                let partial = index.and_then(|index| self.partials.get_mut(&(index, id)));
                if let Some(Partial { place: place @ Place::Buffer { .. }, .. }) = partial {
                    if let Place::Buffer { buffer, .. } = &place {
                        landing.write(memory, 0, buffer);
                    }
                    *place = Place::Landing(Box::new(landing));
                }
            }
            Body::Long(from) => self.begin_read(landing, &from),
            Body::Lost(outcome) => self.landed(&landing, Some(outcome)),
            Body::Own(key) => {
                self.copy_own(key, &landing, memory);
                self.landed(&landing, None);
                self.end(key, Outcome::Ok);
            }
        }
    }

    /// Throws a kept message away that was taken.
    pub(crate) fn throw_away(&mut self, kept: Kept) {
        self.release(&kept.info);
        match kept.body {
            Body::Whole(_) | Body::Long(_) => self.confirm(&kept.info, wire::STATUS_OK),
            Body::Parts(id) => {
                let index = self.index_of(&kept.info);
                let partial = index.and_then(|index| self.partials.get_mut(&(index, id)));
                if let Some(partial) = partial {
                    partial.place = Place::Nowhere(Box::new(kept.info));
                }
            }
            Body::Own(key) => self.end(key, Outcome::Ok),
            Body::Lost(_) => {}
        }
    }

    /// A message does not wait any more.
    fn release(&mut self, info: &Info) {
        if let Some(index) = self.forget_kept(info) {
            self.give_back(index, info.charge);
        }
    }

    /// A message is not kept any more. Returns its link.
    pub(crate) fn forget_kept(&mut self, info: &Info) -> Option<u32> {
        let index = self.index_of(info)?;
        let link = self.link_mut(index)?;
        link.kept = link.kept.saturating_sub(info.charge_u32());
        Some(index)
    }

    /// The link that a message came by, if it is still there.
    pub(crate) fn index_of(&self, info: &Info) -> Option<u32> {
        self.link_of(info.peer?)
    }
}
