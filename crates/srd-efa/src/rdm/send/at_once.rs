//! A short message to a peer for which nothing else waits: it passes no queue, and its frame is
//! written once, from the application's memory.

use alloc::vec::Vec;

use crate::layer::completion::Kind;
use crate::layer::request::{Message, Order, Until};
use crate::layer::world::{Refused, World};
use crate::rdm::iovec::IoVec;
use crate::rdm::send::operation::{Handed, MessageOut, Op, Source, Stage, Work};
use crate::rdm::state::Rdm;
use crate::rdm::wire::message;
use crate::rdm::wire::message::{MESSAGE_COST, MessageHeader};

impl Rdm {
    /// Sends a message that fits into one datagram, if its session is open, its credit suffices,
    /// and nothing else waits for its peer. Returns `None` if the message must take the usual way,
    /// and then has changed nothing.
    pub(crate) fn send_at_once(
        &mut self,
        world: &mut World<'_>,
        message: &Message<'_>,
    ) -> Option<Result<(), Refused>> {
        let index = self.open_way(message)?;
        let iov = IoVec::of(message.iov)?;
        let length = iov.length();
        let conn = self.conn(index)?;
        let session = conn.session?;
        let header = MessageHeader {
            id: session.next_id,
            tag: message.tag,
            data: message.data,
            token: None,
        };
        let header_bytes = message::header_bytes(&header, false);
        let cost = MESSAGE_COST.checked_add(length)?;
        let injected = message.until == Until::Injected;
        let is_too_long = header_bytes as u64 + length > conn.payload_bytes_max as u64
            || injected && length > self.inject_bytes_max();
        if is_too_long || session.used + cost > session.limit {
            return None;
        }
        let bytes = usize::try_from(length).ok()?;
        let mut frame = message::encode(&header, None, bytes);
        iov.append(world.memory, 0, bytes, &mut frame);
        let frame = frame.freeze();
        // The application may reuse its memory at once, and the frame has a copy.
        let owned = || Source::Owned(frame.slice(header_bytes..));
        let out = MessageOut {
            stage: Stage::Sent,
            id: session.next_id,
            session: session.number,
            first_bytes: length,
            part_bytes: 0,
            again: Vec::new(),
            shared: Vec::new(),
            source: if injected { owned() } else { Source::IoVec(iov) },
        };
        let op = match self.new_op(message.to, Kind::Send, Work::Message(out)) {
            Ok(op) => Op {
                context: message.context,
                until: message.until,
                signaled: message.signaled,
                tag: message.tag,
                data: message.data,
                ..op
            },
            Err(refused) => return Some(Err(refused)),
        };
        let Some(key) = self.ops.insert(op, self.bounds.operations_max) else {
            return Some(Err(Refused::Again));
        };
        if let Some(session) = self.conn_mut(index).and_then(|conn| conn.session.as_mut()) {
            session.used += cost;
            session.next_id = session.next_id.wrapping_add(1);
        }
        if injected {
            self.report_injected(key);
        }
        let handed = self.hand_op(world, index, key, 0, (session.check, None, frame));
        if handed == Handed::Yes {
            self.burst(index);
            self.at_once = true;
        } else {
            // The message has its id, so it is the next of its connection.
            if let Some(op) = self.ops.get_mut(key) {
                op.queued = true;
                if let Some((stage, ..)) = op.stage_mut() {
                    *stage = Stage::Sending { sent: 0 };
                }
            }
            if let Some(conn) = self.conn_mut(index) {
                conn.messages.push_back(key);
            }
        }
        self.note_handed(index, key, handed);
        Some(Ok(()))
    }

    /// Returns the connection of a message's peer, if the message may leave before anything else:
    /// nothing waits for the peer, and no message was sent to it since the application last polled.
    fn open_way(&self, message: &Message<'_>) -> Option<u32> {
        if message.until == Until::Delivered || self.order != Order::default() {
            return None;
        }
        let entry = self.entry(message.to)?;
        let index = entry.conn.filter(|_| entry.address != self.local_address)?;
        let conn = self.conn(index)?;
        let is_free = conn.messages.is_empty()
            && conn.rmas.is_empty()
            && conn.ordered.is_empty()
            && conn.control.is_empty()
            && conn.refused.is_empty()
            && !conn.incoming.is_some_and(|incoming| incoming.credit_due)
            && !conn.blocked
            && !conn.bursting;
        (is_free && conn.is_open_for(entry.incarnation)).then_some(index)
    }

    /// Returns whether the application's last call did nothing but send a message at once. Sets
    /// this flag to false.
    pub fn take_at_once(&mut self) -> bool {
        core::mem::take(&mut self.at_once)
    }
}
