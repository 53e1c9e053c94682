//! Small messages share a datagram, the frame BATCH (G11), and the datagrams of short messages
//! share a system call.
//!
//! A system call and a datagram cost far more than the bytes of a short message. So the first
//! message to a peer is sent immediately. The following messages of one datagram or less wait until
//! the application polls ([`Rdm::flush_coalesced`]), or until enough of them wait. The caller of
//! the endpoint bounds the wait if the application never polls.

use alloc::vec::Vec;

use crate::layer::request::Until;
use crate::layer::world::World;
use crate::rdm::send::operation::TAG_BATCH;
use crate::rdm::send::operation::{BatchInFlight, Handed, Op, Out, Stage, Work};
use crate::rdm::state::Rdm;
use crate::rdm::wire::batch::{BATCH_MESSAGES_MAX, BatchBuilder, ENTRY_BYTES};
use crate::rdm::wire::field::BASE_BYTES;
use crate::rdm::wire::message;
use crate::rdm::wire::message::MESSAGE_HEADER_MAX;
use crate::slots::Key;

/// Largest message in a BATCH, in bytes. Each byte of a BATCH is copied once more than the bytes of
/// a message alone.
pub(crate) const BYTES_MAX: u64 = 2048;
/// Largest number of bytes of messages that wait: as many as one system call can send.
const WAITING_BYTES_MAX: u32 = 60_000;

impl Rdm {
    /// Sends the messages that wait for further messages to share their datagram. To be called when
    /// the application polls.
    pub fn flush_coalesced(&mut self) {
        for index in core::mem::take(&mut self.bursts) {
            let Some(conn) = self.conn_mut(index) else { continue };
            conn.bursting = false;
            if core::mem::take(&mut conn.coalescing) {
                self.coalescing -= 1;
                self.wake(index);
            }
        }
    }

    /// Returns whether nothing that the application's last call queued has to be sent at once: the
    /// call posted a receive, or a message that waits for a batch. Sets this flag to false.
    pub fn take_deferred(&mut self) -> bool {
        core::mem::take(&mut self.deferred)
    }

    /// Whether messages of any connection wait for a batch.
    pub fn is_coalescing(&self) -> bool {
        self.coalescing > 0
    }

    /// Whether a message that was just queued waits for further messages. `message_bytes`: length
    /// of the message; `None` for an operation that does not wait.
    pub(crate) fn coalesce(&mut self, index: u32, message_bytes: Option<u64>) -> bool {
        let Some(conn) = self.conn_mut(index) else { return false };
        let Some(bytes) = message_bytes.filter(|_| conn.bursting) else { return false };
        let more = u32::try_from(bytes).unwrap_or(u32::MAX);
        let waiting_bytes = conn.waiting_bytes.saturating_add(more);
        let is_whole =
            bytes.saturating_add(MESSAGE_HEADER_MAX as u64) <= conn.payload_bytes_max as u64;
        let is_full =
            waiting_bytes > WAITING_BYTES_MAX || conn.messages.len() >= BATCH_MESSAGES_MAX;
        if !is_whole || is_full {
            return false;
        }
        conn.waiting_bytes = waiting_bytes;
        if !core::mem::replace(&mut conn.coalescing, true) {
            self.coalescing += 1;
        }
        self.deferred = true;
        true
    }

    /// Ends the wait of a connection's messages for further messages.
    pub(crate) fn stop_coalescing(&mut self, index: u32) {
        let Some(conn) = self.conn_mut(index) else { return };
        conn.waiting_bytes = 0;
        if core::mem::take(&mut conn.coalescing) {
            self.coalescing -= 1;
        }
    }

    /// Records that a message was handed over: the next messages wait for a batch.
    pub(crate) fn burst(&mut self, index: u32) {
        if let Some(conn) = self.conn_mut(index)
            && !core::mem::replace(&mut conn.bursting, true)
        {
            self.bursts.push(index);
        }
    }

    /// Hands over messages at the head of a connection's queue that fit into one datagram; `None`
    /// if there are fewer than two.
    pub(crate) fn send_batch(&mut self, world: &mut World<'_>, index: u32) -> Option<Handed> {
        let (frame, keys) = self.gather(world, index)?;
        let check = self.conn(index)?.session?.check;
        let count = keys.len();
        let batch = self.batches.insert(BatchInFlight(keys), u32::MAX)?;
        let out = Out {
            check,
            imm: None,
            payload: frame.finish().freeze(),
            user: batch.to_user(TAG_BATCH),
        };
        let handed = self.hand(world, index, out);
        if handed != Handed::Yes {
            self.batches.remove(batch);
            return (handed == Handed::Full).then_some(handed);
        }
        self.burst(index);
        for _ in 0..count {
            let Some(key) = self.conn_mut(index)?.messages.pop_front() else { break };
            if let Some(op) = self.ops.get_mut(key) {
                op.queued = false;
                op.in_flight += 1;
                let length = op.length;
                if let Work::Message(message) = &mut op.work {
                    message.stage = Stage::Sent;
                    message.first_bytes = length;
                }
            }
        }
        let conn = self.conn_mut(index)?;
        conn.in_flight += u32::try_from(count).unwrap_or(0);
        Some(Handed::Yes)
    }

    /// Builds a BATCH of messages from the head of the queue, with their ids and credit.
    fn gather(&mut self, world: &mut World<'_>, index: u32) -> Option<(BatchBuilder, Vec<Key>)> {
        let queued = self.conn(index)?.messages.len().min(BATCH_MESSAGES_MAX);
        if queued < 2 {
            return None;
        }
        let room = self.conn(index)?.payload_bytes_max;
        let mut keys: Vec<Key> = Vec::new();
        let mut frame: Option<BatchBuilder> = None;
        while keys.len() < BATCH_MESSAGES_MAX {
            let Some(&key) = self.conn(index)?.messages.get(keys.len()) else { break };
            let Some(bytes) = self.entry_bytes(index, key) else { break };
            let so_far = frame.as_ref().map_or(BASE_BYTES, BatchBuilder::len);
            if so_far + ENTRY_BYTES + bytes > room {
                break;
            }
            let Some(op) = self.ops.get_mut(key) else { break };
            let waiting = op.stage_mut().is_some_and(|(stage, ..)| *stage == Stage::Waiting);
            if waiting && !self.admit_message(index, key) {
                break;
            }
            let op = self.ops.get(key)?;
            let Work::Message(message) = &op.work else { break };
            if !message.shared.is_empty() {
                break; // the credit did not suffice for the message's bytes (G4)
            }
            let alike = BASE_BYTES + (ENTRY_BYTES + bytes) * queued;
            let frame = frame.get_or_insert_with(|| BatchBuilder::new(message.id, room.min(alike)));
            let token = (op.until == Until::Delivered).then(|| key.to_bits());
            let into = frame.entry(u16::try_from(bytes).ok()?);
            message::put(into, &op.header(message.id, token), None);
            let length = usize::try_from(op.length).ok()?;
            message.source.append(world.memory, 0, length, into);
            keys.push(key);
        }
        frame.filter(|_| keys.len() > 1).map(|frame| (frame, keys))
    }

    /// Returns the bytes that a message takes in a BATCH, if the message may be part of a BATCH.
    fn entry_bytes(&self, index: u32, key: Key) -> Option<usize> {
        let (conn, op) = (self.conn(index)?, self.ops.get(key)?);
        let Work::Message(message) = &op.work else { return None };
        let session = conn.session?;
        let fresh = match message.stage {
            Stage::Waiting => true,
            Stage::Sending { sent } => sent == 0 && message.session == session.number,
            Stage::Sent | Stage::Stored(_) => false,
        };
        let simple = message.again.is_empty() && message.shared.is_empty();
        if !(fresh && simple && is_small(op) && conn.is_open_for(op.aim)) {
            return None;
        }
        let token = (op.until == Until::Delivered).then_some(0);
        let header = message::header_bytes(&op.header(0, token), false);
        Some(header + usize::try_from(op.length).ok()?)
    }

    /// Handles the end of a BATCH's datagram.
    pub(crate) fn batch_settled(&mut self, key: Key, status: srd_proto::Status) {
        let Some(BatchInFlight(keys)) = self.batches.remove(key) else { return };
        for key in keys {
            self.settled(key, 0, status);
        }
    }
}

/// Whether a message may be part of a BATCH.
fn is_small(op: &Op) -> bool {
    matches!(op.work, Work::Message(_)) && op.length <= BYTES_MAX
}
