//! Messages that arrived early, and messages of which some parts have arrived (G1, G2).
//!
//! Datagrams take many paths. So the parts of a message, its header among them, arrive in any
//! order, and messages arrive before messages that were sent earlier. This module stores all of
//! them by message id until they are next in order. Bounds: `reorder_bytes_max` bytes for all
//! peers; for each peer a quarter of the space that other peers leave, and one and a half times its
//! credit; ids at most `reorder_ids_max` ahead. The credit of a sender bounds the buffers of its
//! incomplete messages.

use alloc::vec::Vec;

use srd_proto::Delivery;

use crate::layer::completion::Outcome;
use crate::memory::Memory;
use crate::rdm::config::IDS_APART_MAX;
use crate::rdm::receive::inbound::{Body, Destination, Partial, Refusal};
use crate::rdm::state::Rdm;
use crate::rdm::wire::field::STATUS_OK;
use crate::rdm::wire::frame::Frame;

/// Overhead in bytes that is counted for each buffered frame or part.
const PIECE_COST: usize = 128;
/// Number of ids, a power of two, between two checks that parts can be assigned to their messages.
const BLOCK_IDS: u32 = IDS_APART_MAX / 2;

impl Rdm {
    /// Stores a frame that arrived early until it is next in order.
    pub(crate) fn keep_early(
        &mut self,
        index: u32,
        id: u32,
        payload: &[u8],
    ) -> Result<(), Refusal> {
        let cost = payload.len() + PIECE_COST;
        if !self.has_room_ahead(index, cost) {
            return Err(Refusal::Rnr);
        }
        let partial = self.partials.entry((index, id));
        let partial = partial.or_insert_with(|| Partial::new(Destination::Unknown(Vec::new())));
        if partial.early.is_some() {
            return Err(Refusal::Malformed);
        }
        partial.early = Some(payload.into());
        self.take_room_ahead(index, cost);
        self.counters.early += 1;
        if let Some(incoming) = self.incoming_mut(index) {
            incoming.early += 1;
        }
        Ok(())
    }

    /// Delivers early messages that are next in order now. Returns whether any message was
    /// delivered.
    pub(crate) fn advance(&mut self, index: u32, memory: &mut dyn Memory) -> bool {
        let mut any = false;
        while let Some(incoming) = self.conn(index).and_then(|conn| conn.incoming) {
            let key = (index, incoming.expected);
            if incoming.early == 0 {
                break;
            }
            let Some(partial) = self.partials.get_mut(&key) else { break };
            let Some(payload) = partial.early.take() else { break };
            let frame = Frame::decode(&payload);
            let span = frame.as_ref().map_or(1, Frame::span);
            let charge = frame.as_ref().map_or(0, Frame::charge);
            let turn = match frame {
                Some(frame) => self.on_turn(index, &frame, memory),
                None => Err(Refusal::Malformed),
            };
            if turn == Err(Refusal::Rnr) {
                if let Some(partial) = self.partials.get_mut(&key) {
                    partial.early = Some(payload);
                }
                if !self.stalled.contains(&index) {
                    self.stalled.push(index);
                }
                break;
            }
            any = true;
            if turn.is_err() {
                self.give_back(index, charge);
            }
            self.give_room_ahead(index, payload.len() + PIECE_COST);
            self.forget_unknown(index, key.1);
            if let Some(incoming) = self.incoming_mut(index) {
                incoming.early -= 1;
                incoming.expected = incoming.expected.wrapping_add(span);
            }
        }
        any
    }

    /// Whether a part of an incomplete message could be taken for a part of a later message, if the
    /// next `span` ids were processed now (G2). The check takes place once in `BLOCK_IDS` ids: it
    /// requires that no message is incomplete that is `BLOCK_IDS` ids or more behind. So until the
    /// next check each incomplete message is less than twice as far behind.
    pub(crate) fn outruns_parts(&self, index: u32, span: u32) -> bool {
        let incoming = self.conn(index).and_then(|conn| conn.incoming.as_ref());
        let Some(expected) = incoming.map(|incoming| incoming.expected) else { return false };
        let next = expected.wrapping_add(span);
        if (expected ^ next) < BLOCK_IDS || self.partials.is_empty() {
            return false;
        }
        let first = (next & !(BLOCK_IDS - 1)).wrapping_sub(2 * BLOCK_IDS);
        let last = first + (BLOCK_IDS - 1);
        self.partials.range((index, first)..=(index, last)).next().is_some()
    }

    /// Whether an early frame of this id is stored.
    pub(crate) fn is_early(&self, index: u32, id: u32) -> bool {
        self.partials.get(&(index, id)).is_some_and(|partial| partial.early.is_some())
    }

    /// Removes the partial state of a message that was processed and that consists of a single
    /// frame.
    pub(crate) fn forget_unknown(&mut self, index: u32, id: u32) {
        if self.partials.is_empty() {
            return;
        }
        let unknown = |partial: &Partial| matches!(partial.place, Destination::Unknown(_));
        if self.partials.get(&(index, id)).is_some_and(unknown)
            && let Some(partial) = self.partials.remove(&(index, id))
        {
            self.forget_pieces(index, &partial);
        }
    }

    fn forget_pieces(&mut self, index: u32, partial: &Partial) {
        if let Destination::Unknown(iov) = &partial.place {
            let bytes: usize = iov.iter().map(|(_, bytes)| bytes.len() + PIECE_COST).sum();
            self.give_room_ahead(index, bytes);
        }
    }

    /// Whether `cost` more bytes of a peer's early frames may be buffered (G5). A peer that
    /// respects its credit is refused only if other peers use the memory, and always leaves some of
    /// it to other peers.
    fn has_room_ahead(&self, index: u32, cost: usize) -> bool {
        let incoming = self.conn(index).and_then(|conn| conn.incoming.as_ref());
        let Some(incoming) = incoming else { return false };
        let own = incoming.ahead_bytes as usize;
        let others = self.reorder_bytes.saturating_sub(own);
        let left = self.bounds.reorder_bytes_max.saturating_sub(others);
        own + cost <= incoming.ahead_bytes_max().min(left / 4)
    }

    fn take_room_ahead(&mut self, index: u32, cost: usize) {
        self.reorder_bytes += cost;
        if let Some(incoming) = self.incoming_mut(index) {
            let cost = u32::try_from(cost).unwrap_or(u32::MAX);
            incoming.ahead_bytes = incoming.ahead_bytes.saturating_add(cost);
        }
    }

    fn give_room_ahead(&mut self, index: u32, cost: usize) {
        self.reorder_bytes -= cost;
        // If the session has ended, its count has ended too.
        if let Some(incoming) = self.incoming_mut(index) {
            let cost = u32::try_from(cost).unwrap_or(u32::MAX);
            incoming.ahead_bytes = incoming.ahead_bytes.saturating_sub(cost);
        }
    }

    /// Handles a message's header that is next in order. The caller has placed the first `got`
    /// bytes of the message. Parts that have arrived already are placed into `place` immediately,
    /// later parts when they arrive.
    pub(crate) fn begin_partial(
        &mut self,
        index: u32,
        id: u32,
        got: u64,
        length: u64,
        place: Destination,
        memory: &mut dyn Memory,
    ) {
        let before = self.partials.remove(&(index, id));
        let mut partial = Partial { early: None, got, length, place };
        if let Some(before) = before {
            self.forget_pieces(index, &before);
            if let Destination::Unknown(iov) = before.place {
                for (offset, bytes) in iov {
                    if !partial.put(u64::from(offset), &bytes, memory) {
                        self.counters.malformed += 1;
                    }
                }
            }
        }
        self.put_back(index, id, partial);
    }

    /// Stores a message that is incomplete, or ends a message that is complete.
    fn put_back(&mut self, index: u32, id: u32, partial: Partial) {
        if partial.got < partial.length {
            self.partials.insert((index, id), partial);
            return;
        }
        match partial.place {
            Destination::Unknown(_) => {}
            Destination::Landing(landing) => self.landed(&landing, None),
            Destination::Nowhere(info) => self.confirm(&info, STATUS_OK),
            Destination::Buffer { mut buffer, kept, tagged } => {
                // Shorter only if the peer has sent some bytes twice, and others not at all.
                buffer.resize(usize::try_from(partial.length).unwrap_or(0), 0);
                let matcher = if tagged { &mut self.tagged } else { &mut self.plain };
                if let Some(kept) = matcher.message_mut(kept) {
                    kept.body = Body::Whole(buffer.into_boxed_slice());
                }
            }
        }
    }

    /// Handles a datagram with a further part of a message. `part` contains the low half of the
    /// message's id, and the offset of the bytes.
    pub(crate) fn on_part(
        &mut self,
        delivery: &Delivery<'_>,
        check: u32,
        part: u32,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let index = self.conn_of(delivery.peer).ok_or(Refusal::Stale)?;
        let incoming = self.conn(index).and_then(|conn| conn.incoming);
        let incoming = incoming.filter(|i| i.check == check).ok_or(Refusal::Stale)?;
        let id = nearest(incoming.expected, part >> 16);
        let offset = u16::try_from(part & 0xffff).map_err(|_| Refusal::Malformed)?;
        let bytes = delivery.payload;
        if bytes.is_empty() || offset == 0 {
            return Err(Refusal::Malformed);
        }
        let ahead = id.wrapping_sub(incoming.expected).cast_signed() >= 0;
        match self.partials.get_mut(&(index, id)) {
            Some(partial) if !matches!(partial.place, Destination::Unknown(_)) => {
                if matches!(partial.place, Destination::Landing(_))
                    && self.done.len() >= self.bounds.dones_max
                {
                    return Err(Refusal::Rnr);
                }
                if !partial.put(u64::from(offset), bytes, memory) {
                    return Err(Refusal::Malformed);
                }
                if partial.got == partial.length
                    && let Some(partial) = self.partials.remove(&(index, id))
                {
                    self.put_back(index, id, partial);
                }
                Ok(())
            }
            _ if !ahead => Err(Refusal::Malformed),
            _ => self.keep_part(index, id, offset, bytes),
        }
    }

    /// Stores a part of a message whose header has not been processed yet.
    fn keep_part(&mut self, index: u32, id: u32, offset: u16, bytes: &[u8]) -> Result<(), Refusal> {
        let cost = bytes.len() + PIECE_COST;
        if !self.has_room_ahead(index, cost) {
            return Err(Refusal::Rnr);
        }
        self.take_room_ahead(index, cost);
        let partial = self.partials.entry((index, id));
        let partial = partial.or_insert_with(|| Partial::new(Destination::Unknown(Vec::new())));
        if let Destination::Unknown(iov) = &mut partial.place {
            iov.push((offset, bytes.into()));
        }
        Ok(())
    }

    /// Handles a message whose remaining bytes will not arrive.
    pub(crate) fn drop_partial(&mut self, index: u32, partial: Partial, outcome: Outcome) {
        if let Some(early) = &partial.early {
            self.give_room_ahead(index, early.len() + PIECE_COST);
            let charge = Frame::decode(early).map_or(0, |frame| frame.charge());
            self.free_credit(index, charge);
        }
        self.forget_pieces(index, &partial);
        match partial.place {
            Destination::Landing(landing) => self.landed(&landing, Some(outcome)),
            Destination::Buffer { kept, tagged, .. } => {
                let matcher = if tagged { &mut self.tagged } else { &mut self.plain };
                if matcher.is_claimed(kept)
                    && let Some(kept) = matcher.message_mut(kept)
                {
                    // The application gets the outcome when it receives the message that it has
                    // claimed.
                    kept.body = Body::Lost(outcome);
                } else if let Some(kept) = matcher.take(kept) {
                    self.forget_kept(&kept.info);
                }
            }
            Destination::Unknown(_) | Destination::Nowhere(_) => {}
        }
    }
}

/// Returns the id that has `low` as its lower 16 bits and is nearest to `to`.
#[allow(clippy::cast_possible_truncation)] // the lower 16 bits
fn nearest(to: u32, low: u32) -> u32 {
    let ahead = (low as u16).wrapping_sub(to as u16).cast_signed();
    to.wrapping_add_signed(i32::from(ahead))
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_id_may_lie_before_or_behind_and_across_the_wrap() {
        assert_eq!(nearest(0x1_0005, 0x0007), 0x1_0007);
        assert_eq!(nearest(0x1_0005, 0xfffe), 0xfffe);
        assert_eq!(nearest(0xffff_ffff, 0x0001), 1);
        assert_eq!(nearest(1, 0xffff), 0xffff_ffff);
    }
}
