//! Operations whose peer is this endpoint: matched locally and copied once, without a datagram
//! (G9).

use bytes::Bytes;

use crate::layer::completion::Outcome;
use crate::layer::request::Until;
use crate::layer::world::{Refused, World};
use crate::memory::Memory;
use crate::rdm::receive::inbound::{Body, Landing, MessageInfo};
use crate::rdm::send::operation::{MessageOut, Op, Source, Stage, Work};
use crate::rdm::state::Rdm;
use crate::rdm::wire::message::MESSAGE_COST;
use crate::slots::Key;

/// Largest number of unexpected messages before a message to this endpoint that is copied. So the
/// copies take at most 32 MiB.
const STORED_BEFORE_MAX: u64 = 4096;

impl Rdm {
    /// Executes an operation whose peer is this endpoint.
    pub(crate) fn submit_loopback(
        &mut self,
        world: &mut World<'_>,
        key: Key,
    ) -> Result<(), Refused> {
        let Some(op) = self.ops.get(key) else { return Ok(()) };
        if op.aim != 0 && op.aim != self.incarnation {
            self.end(key, Outcome::Restarted);
            return Ok(());
        }
        match &op.work {
            Work::Message(_) => self.send_loopback(world, key),
            Work::Atomic(_) => self.atomic_loopback(world, key),
            Work::Rma(_) => self.rma_loopback(world, key),
        }
    }

    fn send_loopback(&mut self, world: &mut World<'_>, key: Key) -> Result<(), Refused> {
        let Some(op) = self.ops.get(key) else { return Ok(()) };
        let Work::Message(message) = &op.work else { return Ok(()) };
        let info = MessageInfo {
            peer: None,
            run: 0,
            session: 0,
            charge: 0,
            source: op.peer,
            tag: op.tag,
            data: op.data,
            token: None,
            length: op.length,
        };
        let copied = matches!(message.source, Source::Owned(_));
        let copy = copied || op.until != Until::Delivered && op.length <= self.inject_bytes_max();
        if let Some(landing) = self.match_message(&info) {
            self.copy_loopback(key, &landing, world.memory);
            self.end(key, Outcome::Ok);
            self.landed(&landing, None);
            return Ok(());
        }
        // Behind so many unexpected messages, further messages wait in their buffers.
        let most = (self.window() / MESSAGE_COST).min(STORED_BEFORE_MAX);
        let many = self.matcher(info.tag.is_some()).len().1 as u64 >= most;
        let copy = copy && (copied || !many);
        let body = if copy {
            Body::Whole(self.bytes_loopback(key, world.memory).as_ref().into())
        } else {
            Body::Loopback(key)
        };
        let Ok(stored) = self.keep(info, body) else {
            self.ops.remove(key);
            return Err(Refused::Again);
        };
        if copy {
            self.end(key, Outcome::Ok);
        } else if let Some((stage, ..)) = self.ops.get_mut(key).and_then(Op::stage_mut) {
            *stage = Stage::Stored(stored);
        }
        Ok(())
    }

    /// Discards the stored message of an operation that has failed: its bytes are in the
    /// operation's buffer. If the application has claimed the message, the receive for it fails.
    #[cold]
    pub(crate) fn take_back(&mut self, op: &Op, outcome: Outcome) {
        let Work::Message(MessageOut { stage: Stage::Stored(stored), .. }) = op.work else {
            return;
        };
        let matcher = self.matcher(op.tag.is_some());
        if !matcher.is_claimed(stored) {
            matcher.take(stored);
        } else if let Some(message) = matcher.message_mut(stored) {
            message.body = Body::Lost(outcome);
        }
    }

    fn bytes_loopback(&self, key: Key, memory: &mut dyn Memory) -> Bytes {
        let Some(Op { work: Work::Message(message), length, .. }) = self.ops.get(key) else {
            return Bytes::new();
        };
        message.source.read(memory, 0, usize::try_from(*length).unwrap_or(0))
    }

    /// Copies a message to this endpoint into its receive.
    pub(crate) fn copy_loopback(&mut self, key: Key, landing: &Landing, memory: &mut dyn Memory) {
        let bytes = self.bytes_loopback(key, memory);
        landing.write(memory, 0, &bytes);
    }
}
