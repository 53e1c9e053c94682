//! Calls of the application that start operations, and the processing of each connection's queues.

use bytes::{Bytes, BytesMut};

use crate::layer::completion::{Kind, OperationCompletion, Outcome};
use crate::layer::request::{Iov, Message, Until};
use crate::layer::world::{Peer, Refused, World};
use crate::rdm::iovec::IoVec;
use crate::rdm::peers::connection::{Control, ControlKind};
use crate::rdm::send::operation::{Handed, MessageOut, Op, Source, Stage, Step, Work};
use crate::rdm::state::Rdm;
use crate::rdm::wire::field;
use crate::slots::Key;

impl Rdm {
    /// Sends a message.
    ///
    /// # Errors
    /// `NoSuchPeer` if there is no such peer; `Again` if a table is full; `TooLong` if an injected
    /// message is too long; `Invalid` if there are too many pieces, or if a piece exceeds the
    /// address space.
    pub fn send(&mut self, world: &mut World<'_>, message: Message<'_>) -> Result<(), Refused> {
        self.at_once = false;
        if let Some(sent) = self.send_at_once(world, &message) {
            return sent;
        }
        let source = self.source_of(world, message.iov, message.until)?;
        let out = MessageOut {
            stage: Stage::Waiting,
            id: 0,
            session: 0,
            first_bytes: 0,
            part_bytes: 0,
            again: alloc::vec::Vec::new(),
            shared: alloc::vec::Vec::new(),
            source,
        };
        let op = self.new_op(message.to, Kind::Send, Work::Message(out))?;
        self.submit(
            world,
            Op {
                context: message.context,
                until: message.until,
                signaled: message.signaled,
                tag: message.tag,
                data: message.data,
                ..op
            },
        )
    }

    /// Returns the source of an operation's bytes.
    pub(crate) fn source_of(
        &self,
        world: &mut World<'_>,
        iov: &[Iov],
        until: Until,
    ) -> Result<Source, Refused> {
        let iov = IoVec::of(iov).ok_or(Refused::Invalid)?;
        if until != Until::Injected {
            return Ok(Source::IoVec(iov));
        }
        if iov.length() > self.inject_bytes_max() {
            return Err(Refused::TooLong);
        }
        let length = usize::try_from(iov.length()).map_err(|_| Refused::TooLong)?;
        let mut copy = BytesMut::with_capacity(length);
        iov.append(world.memory, 0, length, &mut copy);
        Ok(Source::Owned(copy.freeze()))
    }

    /// Makes a record for an operation, without the options of its call.
    pub(crate) fn new_op(&self, to: Peer, kind: Kind, work: Work) -> Result<Op, Refused> {
        let entry = self.entry(to).ok_or(Refused::NoSuchPeer)?;
        if self.ops.len() >= self.bounds.operations_max as usize || self.is_full() {
            return Err(Refused::Again);
        }
        let length = match &work {
            Work::Message(m) => m.source.length(),
            Work::Rma(rma) => rma.source.length(),
            Work::Atomic(a) => a.remote.length().unwrap_or(0),
        };
        let own = entry.address == self.local_address;
        if entry.conn.is_none() && !own {
            return Err(Refused::NoSuchPeer);
        }
        Ok(Op {
            kind,
            peer: to.0,
            conn: if own { u32::MAX } else { entry.conn.unwrap_or(u32::MAX) },
            aim: entry.incarnation,
            context: 0,
            until: Until::Transmitted,
            signaled: true,
            reported: false,
            tag: None,
            data: None,
            length,
            in_flight: 0,
            acked: 0,
            refused: 0,
            tries: 0,
            failure: None,
            leaving: None,
            answer: None,
            queued: false,
            counted: false,
            work,
        })
    }

    /// Starts an operation; immediately, if no operation waits before it.
    pub(crate) fn submit(&mut self, world: &mut World<'_>, op: Op) -> Result<(), Refused> {
        let (index, is_rma) = (op.conn, matches!(op.work, Work::Rma(_)));
        let message_bytes = matches!(op.work, Work::Message(_)).then_some(op.length);
        let injected = op.until == Until::Injected && !matches!(op.work, Work::Atomic(_));
        let key = self.ops.insert(op, self.bounds.operations_max).ok_or(Refused::Again)?;
        if index == u32::MAX {
            return self.submit_loopback(world, key);
        }
        if injected {
            self.report_injected(key);
        }
        if self.wait_turn(index, key) {
            return Ok(());
        }
        let Some(conn) = self.conn_mut(index) else { return Err(Refused::NoSuchPeer) };
        let coalescing = conn.coalescing && !is_rma;
        let queue = if is_rma { &mut conn.rmas } else { &mut conn.messages };
        queue.push_back(key);
        let first = (queue.len() == 1 || coalescing) && !conn.blocked;
        if let Some(op) = self.ops.get_mut(key) {
            op.queued = true;
        }
        if first && !self.coalesce(index, message_bytes) {
            self.flush(world, index);
        }
        Ok(())
    }

    /// Reports the success of an injected operation immediately. A later failure is reported, too
    /// (H6).
    pub(crate) fn report_injected(&mut self, key: Key) {
        if let Some(op) = self.ops.get_mut(key) {
            op.reported = true;
            let done = done_of(op, Outcome::Ok);
            self.done.push_back(done);
        }
    }

    /// Ends an operation: removes its record and reports the outcome. If the transport still sends
    /// from the memory of a long message, the operation ends later.
    pub(crate) fn end(&mut self, key: Key, outcome: Outcome) {
        let Some(op) = self.ops.get_mut(key) else { return };
        if let Work::Message(message) = &op.work {
            let mut lent = false;
            for mr in &message.shared {
                let _ = self.device.dereg_mr(*mr);
                lent |= self.device.is_lent(*mr);
            }
            if lent {
                // The device's note about the end of the last read calls this function again.
                op.leaving = op.leaving.or(Some(outcome));
                return;
            }
            for mr in &message.shared {
                self.shared_by.remove(&mr.lkey);
            }
        }
        let Some(op) = self.ops.remove(key) else { return };
        self.end_turn(&op);
        if outcome != Outcome::Ok {
            self.take_back(&op, outcome);
        }
        if !op.reported || outcome != Outcome::Ok {
            self.done.push_back(done_of(&op, outcome));
        }
    }

    /// Handles the end of a peer's read of a long message: ends the operation, if it waits for the
    /// end of this read.
    pub(crate) fn given_back(&mut self, key: Key) {
        if let Some(outcome) = self.ops.get(key).and_then(|op| op.leaving) {
            self.end(key, outcome);
        }
    }

    /// Queues a control frame.
    pub(crate) fn queue_control(
        &mut self,
        index: u32,
        kind: ControlKind,
        check: u32,
        bytes: Bytes,
    ) {
        let control = Control { conn: index, kind, check, bytes, tries: 0 };
        // Bound: one for each message that credit allowed, and a few for each connection.
        if let Some(key) = self.controls.insert(control, u32::MAX)
            && let Some(conn) = self.conn_mut(index)
        {
            conn.control.push_back(key);
            self.wake(index);
        }
    }

    /// Queues a control frame to the peer's current run.
    pub(crate) fn queue_reply(&mut self, index: u32, bytes: BytesMut) {
        let Some(conn) = self.conn(index).filter(|conn| conn.remote != 0) else { return };
        let check = field::run_check(conn.remote);
        self.queue_control(index, ControlKind::Reply, check, bytes.freeze());
    }

    /// Hands over the waiting datagrams of a connection, as many as the transport accepts. Returns
    /// whether it accepted any.
    pub(crate) fn flush(&mut self, world: &mut World<'_>, index: u32) -> bool {
        self.let_through(index);
        if let Some(aim) = self.hello_due(index) {
            self.send_hello(index, aim);
        }
        let mut took = self.flush_control(world, index);
        took |= self.flush_queue(world, index, false);
        took |= self.flush_queue(world, index, true);
        // After an operation has failed, the next operation may be for another run.
        if self.hello_due(index).is_some() && took {
            self.wake(index);
        }
        took
    }

    fn flush_control(&mut self, world: &mut World<'_>, index: u32) -> bool {
        self.grant(index);
        let mut took = false;
        while let Some(conn) = self.conn(index).filter(|conn| !conn.blocked) {
            let Some(&key) = conn.control.front() else { break };
            if !self.hand_control(world, key) {
                break;
            }
            took = true;
            if let Some(conn) = self.conn_mut(index) {
                conn.control.pop_front();
            }
        }
        took
    }

    fn flush_queue(&mut self, world: &mut World<'_>, index: u32, rmas: bool) -> bool {
        let mut took = false;
        if !rmas {
            self.stop_coalescing(index);
        }
        while let Some(conn) = self.conn(index).filter(|conn| !conn.blocked) {
            let queue = if rmas { &conn.rmas } else { &conn.messages };
            let Some(&key) = queue.front() else { break };
            let open = self.ops.get(key).is_some_and(|op| conn.is_open_for(op.aim));
            if open && !rmas {
                match self.send_batch(world, index) {
                    None => {}
                    Some(Handed::Yes) => {
                        took = true;
                        continue;
                    }
                    Some(_) => break,
                }
            }
            let step = if open { self.step(world, index, key) } else { Step::Wait };
            let Step::Over = step else { break };
            took = true;
            if let Some(conn) = self.conn_mut(index) {
                let queue = if rmas { &mut conn.rmas } else { &mut conn.messages };
                // A failed operation has been removed from the queue already.
                if queue.front() == Some(&key) {
                    queue.pop_front();
                }
            }
            if let Some(op) = self.ops.get_mut(key) {
                op.queued = false;
            }
        }
        took
    }

    fn step(&mut self, world: &mut World<'_>, index: u32, key: Key) -> Step {
        match self.ops.get(key).map(|op| &op.work) {
            Some(Work::Message(_)) => self.step_message(world, index, key),
            Some(Work::Atomic(_)) => self.step_atomic(world, index, key),
            Some(Work::Rma(_)) => self.step_rma(world, index, key),
            None => Step::Over,
        }
    }

    /// Updates the state after an attempt to hand a datagram over. Returns `None` if the datagram
    /// was handed over, and otherwise the result of the operation's step.
    pub(crate) fn note_handed(&mut self, index: u32, key: Key, handed: Handed) -> Option<Step> {
        match handed {
            Handed::Yes => {
                if let Some(op) = self.ops.get_mut(key) {
                    op.in_flight += 1;
                }
                if let Some(conn) = self.conn_mut(index) {
                    conn.in_flight += 1;
                }
                None
            }
            Handed::Full => Some(Step::Wait),
            Handed::Never => {
                if let Some(op) = self.ops.get_mut(key) {
                    op.failure = op.failure.or(Some(Outcome::Protocol));
                }
                self.on_idle(key);
                Some(Step::Over)
            }
        }
    }
}

/// Returns the completion of an operation.
pub(crate) fn done_of(op: &Op, outcome: Outcome) -> OperationCompletion {
    OperationCompletion {
        kind: op.kind,
        outcome,
        context: op.context,
        tagged: op.tag.is_some(),
        signaled: op.signaled || outcome != Outcome::Ok,
        peer: Some(Peer(op.peer)),
        length: op.length,
        offset: 0,
        tag: op.tag.unwrap_or(0),
        data: op.data,
        released: false,
    }
}
