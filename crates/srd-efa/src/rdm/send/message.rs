//! Sending of messages: short messages in one datagram, medium ones in parts (G2), long ones for
//! the receiver to read (G3).

use bytes::Bytes;

use crate::layer::completion::Outcome;
use crate::layer::request::Until;
use crate::layer::world::World;
use crate::mr::{Access, Registration};
use crate::rdm::iovec::IOV_COUNT_MAX;
use crate::rdm::send::operation::{Handed, Op, Source, Stage, Step, Work};
use crate::rdm::state::Rdm;
use crate::rdm::wire::frame::LongIov;
use crate::rdm::wire::message::MESSAGE_COST;
use crate::rdm::wire::{encode, field, message};
use crate::slots::Key;

impl Rdm {
    /// Continues the message at the head of its connection's queue.
    pub(crate) fn step_message(&mut self, world: &mut World<'_>, index: u32, key: Key) -> Step {
        let Some(session) = self.conn(index).and_then(|conn| conn.session) else {
            return Step::Wait;
        };
        let Some(Op { work: Work::Message(message), acked, failure, .. }) = self.ops.get_mut(key)
        else {
            return Step::Over;
        };
        if message.stage != Stage::Waiting && message.session != session.number {
            if *acked > 0 {
                // The message ends when its parts in the old session are settled.
                *failure = Some(Outcome::Restarted);
                self.on_idle(key);
                return Step::Over;
            }
            message.stage = Stage::Waiting;
        }
        if message.stage == Stage::Waiting && !self.admit_message(index, key) {
            return Step::Wait;
        }
        loop {
            let Some(Op { work: Work::Message(message), .. }) = self.ops.get(key) else {
                return Step::Over;
            };
            let handed = match (message.again.last(), message.stage) {
                (Some(&(from, to)), _) => self.send_again(world, index, key, (from, to)),
                (None, Stage::Waiting | Stage::Sent | Stage::Stored(_)) => return Step::Over,
                (None, Stage::Sending { .. }) if !message.shared.is_empty() => {
                    self.send_long(world, index, key)
                }
                (None, Stage::Sending { sent: 0 }) => self.send_first(world, index, key),
                (None, Stage::Sending { sent }) => self.send_part(world, index, key, sent),
            };
            if let Some(step) = self.note_handed(index, key, handed) {
                return step;
            }
        }
    }

    /// Gives a message its id (G1), and takes its credit (G4) or makes it a long message. Returns
    /// false if there is too little credit.
    pub(crate) fn admit_message(&mut self, index: u32, key: Key) -> bool {
        let Some(op) = self.ops.get(key) else { return false };
        let Work::Message(message) = &op.work else { return false };
        let length = op.length;
        let Some(session) = self.conn(index).and_then(|conn| conn.session) else { return false };
        let room = session.limit.saturating_sub(session.used);
        let by_reference = matches!(message.source, Source::IoVec(_));
        let medium = length <= self.bounds.medium_bytes_max;
        // A message that was refused as a long message is sent again as a long message: its keys
        // are still valid, and its receiver may be reading.
        let shared = !message.shared.is_empty();
        let whole = medium && !shared && MESSAGE_COST + length <= room;
        let long = by_reference && (!medium || length >= self.bounds.long_bytes_min);
        if !whole && (!long || MESSAGE_COST > room) {
            return false;
        }
        if !whole {
            self.counters.long_for_credit += u64::from(medium);
            if !shared && !self.share_message(key) {
                return false;
            }
        }
        let cost = MESSAGE_COST + if whole { length } else { 0 };
        let Some(session) = self.conn_mut(index).and_then(|conn| conn.session.as_mut()) else {
            return false;
        };
        session.used += cost;
        let (id, number) = (session.next_id, session.number);
        session.next_id = id.wrapping_add(1);
        if let Some((stage, to_id, to_session)) = self.ops.get_mut(key).and_then(Op::stage_mut) {
            (*stage, *to_id, *to_session) = (Stage::Sending { sent: 0 }, id, number);
        }
        true
    }

    /// Registers a message for its receiver, with keys for this message only (G3).
    fn share_message(&mut self, key: Key) -> bool {
        let Some(Op { work: Work::Message(message), .. }) = self.ops.get_mut(key) else {
            return false;
        };
        let Source::IoVec(iov) = message.source else { return false };
        let access = Access { remote_read: true, ..Access::default() };
        for piece in iov.as_slice().iter().filter(|piece| piece.length > 0) {
            let to = Registration { region: 0, addr: 0, length: piece.length, access };
            let rkey = self.numbers.next_u64() | 1 << 63;
            let Ok(mr) = self.device.reg_mr_at(self.pd, to, rkey, piece.addr) else {
                let shared = core::mem::take(&mut message.shared);
                for mr in shared {
                    let _ = self.device.dereg_mr(mr);
                    self.shared_by.remove(&mr.lkey);
                }
                return false;
            };
            self.shared_by.insert(mr.lkey, key);
            message.shared.push(mr);
        }
        true
    }

    /// Sends the first datagram of a message, with its header and as many bytes as fit.
    fn send_first(&mut self, world: &mut World<'_>, index: u32, key: Key) -> Handed {
        let (Some(conn), Some(op)) = (self.conn(index), self.ops.get(key)) else {
            return Handed::Never;
        };
        let (Some(session), Work::Message(message)) = (conn.session, &op.work) else {
            return Handed::Never;
        };
        let token = (op.until == Until::Delivered).then(|| key.to_bits());
        let header = op.header(message.id, token);
        let room = conn.payload_bytes_max as u64;
        let header_bytes = |parts| message::header_bytes(&header, parts) as u64;
        let in_parts = header_bytes(false) + op.length > room;
        let part = even_part(header_bytes(true) + op.length, room);
        let first = if in_parts { part - header_bytes(true) } else { op.length };
        let length = in_parts.then(|| u32::try_from(op.length).unwrap_or(u32::MAX));
        let bytes = usize::try_from(first).unwrap_or(0);
        let mut frame = message::encode(&header, length, bytes);
        message.source.append(world.memory, 0, bytes, &mut frame);
        let handed = self.hand_op(world, index, key, 0, (session.check, None, frame.freeze()));
        if handed == Handed::Yes
            && let Some(Op { work: Work::Message(message), .. }) = self.ops.get_mut(key)
        {
            message.first_bytes = first;
            // If a datagram is too large for the path, its size was chosen before the path was
            // known.
            message.part_bytes = message.part_bytes.max(part);
            message.stage = if in_parts { Stage::Sending { sent: first } } else { Stage::Sent };
            self.burst(index);
        }
        handed
    }

    /// Sends a part of a message: bytes from `from` to at most `to`, without a header. Returns the
    /// result, and the end of the bytes that were sent.
    fn part(
        &mut self,
        world: &mut World<'_>,
        index: u32,
        key: Key,
        from: u64,
        to: u64,
    ) -> (Handed, u64) {
        let (Some(conn), Some(op)) = (self.conn(index), self.ops.get(key)) else {
            return (Handed::Never, to);
        };
        let (Some(session), Work::Message(message)) = (conn.session, &op.work) else {
            return (Handed::Never, to);
        };
        let bytes = (to - from).min(conn.payload_bytes_max as u64).min(message.part_bytes);
        let Ok(offset) = u16::try_from(from) else { return (Handed::Never, to) };
        let payload: Bytes =
            message.source.read(world.memory, from, usize::try_from(bytes).unwrap_or(0));
        let imm = Some(field::part(message.id, offset));
        let handed = self.hand_op(world, index, key, offset, (session.check, imm, payload));
        (handed, from + bytes)
    }

    fn send_part(&mut self, world: &mut World<'_>, index: u32, key: Key, sent: u64) -> Handed {
        let length = self.ops.get(key).map_or(0, |op| op.length);
        let (handed, end) = self.part(world, index, key, sent, length);
        if handed == Handed::Yes
            && let Some((stage, _, _)) = self.ops.get_mut(key).and_then(Op::stage_mut)
        {
            *stage = if end == length { Stage::Sent } else { Stage::Sending { sent: end } };
        }
        handed
    }

    /// Sends the bytes of a datagram again that was too large for the path (G10). If it was the
    /// message's first datagram, the header and as many bytes as fit are sent in a smaller first
    /// datagram, and the other bytes of the old datagram as parts. Bytes of a later datagram are
    /// sent as parts.
    fn send_again(
        &mut self,
        world: &mut World<'_>,
        index: u32,
        key: Key,
        (from, to): (u64, u64),
    ) -> Handed {
        if from > 0 {
            let (handed, end) = self.part(world, index, key, from, to);
            if handed == Handed::Yes
                && let Some(Op { work: Work::Message(message), .. }) = self.ops.get_mut(key)
            {
                message.again.pop();
                if end < to {
                    message.again.push((end, to));
                }
            }
            return handed;
        }
        let before = match self.ops.get_mut(key).and_then(Op::stage_mut) {
            Some((stage, _, _)) => *stage,
            None => return Handed::Never,
        };
        let handed = self.send_first(world, index, key);
        if handed == Handed::Yes
            && let Some(Op { work: Work::Message(message), .. }) = self.ops.get_mut(key)
        {
            message.stage = before;
            message.again.pop();
            if message.first_bytes < to {
                message.again.push((message.first_bytes, to));
            }
        }
        handed
    }

    /// Sends the header of a long message.
    fn send_long(&mut self, world: &mut World<'_>, index: u32, key: Key) -> Handed {
        let (Some(conn), Some(op)) = (self.conn(index), self.ops.get(key)) else {
            return Handed::Never;
        };
        let (Some(session), Work::Message(message)) = (conn.session, &op.work) else {
            return Handed::Never;
        };
        let Source::IoVec(iov) = &message.source else { return Handed::Never };
        let mut list = [LongIov::default(); IOV_COUNT_MAX];
        let filled = iov.as_slice().iter().filter(|piece| piece.length > 0);
        let count = message.shared.len();
        for ((to, piece), mr) in list.iter_mut().zip(filled).zip(&message.shared) {
            *to = LongIov { rkey: mr.rkey, length: piece.length };
        }
        let header = op.header(message.id, None);
        let frame = encode::long(&header, key.to_bits(), &list[..count]).freeze();
        let handed = self.hand_op(world, index, key, 0, (session.check, None, frame));
        if handed == Handed::Yes
            && let Some((stage, _, _)) = self.ops.get_mut(key).and_then(Op::stage_mut)
        {
            *stage = Stage::Sent;
        }
        handed
    }
}

/// Returns the size of datagrams that carry `bytes` bytes, all of one size except the last. They
/// are as few as with the largest size, `room`, or one more if all of them then have one size.
/// Datagrams of one size, of one or several messages, need one system call; a smaller one is the
/// last of its call.
fn even_part(bytes: u64, room: u64) -> u64 {
    let least = bytes.div_ceil(room).max(1);
    let is_even = |count| bytes.is_multiple_of(count);
    let count = if !is_even(least) && is_even(least + 1) { least + 1 } else { least };
    bytes.div_ceil(count)
}

#[cfg(test)]
mod tests {
    use super::even_part;

    #[test]
    fn parts_are_as_few_as_possible_and_of_one_size() {
        assert_eq!(even_part(65_556, 8_928), 65_556 / 9);
        assert_eq!(even_part(65_552, 8_928), 65_552 / 8);
        assert_eq!(even_part(65_555, 8_928), 8_195, "neither 8 nor 9 divides the size");
        for (bytes, room) in [(1, 8_928), (8_928, 8_928), (8_929, 8_928), (65_535, 504)] {
            let part = even_part(bytes, room);
            assert!(part <= room);
            let (count, least) = (bytes.div_ceil(part), bytes.div_ceil(room));
            let is_even = count == least + 1 && bytes.is_multiple_of(part);
            assert!(count == least || is_even, "{bytes} {room}");
        }
    }
}
