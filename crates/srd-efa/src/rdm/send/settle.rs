//! The end of operations: by acknowledgements, refusals and failures of their datagrams, and by the
//! peer's RECEIPT or RESULT (H4, H6).

use alloc::vec::Vec;

use srd_proto::Status;

use crate::layer::completion::Outcome;
use crate::rdm::peers::connection::ControlKind;
use crate::rdm::send::operation::{Op, Stage, TRIES_MAX, Work, outcome_of};
use crate::rdm::state::Rdm;
use crate::rdm::wire::field::{STATUS_BAD_KEY, STATUS_OK};
use crate::slots::Key;

/// Largest number of retries of a control frame after a context was lost (H5).
const CONTROL_TRIES_MAX: u8 = 3;

impl Rdm {
    /// Handles the end of datagram `part` of an operation: it was acknowledged, refused or lost.
    pub(crate) fn settled(&mut self, key: Key, part: u16, status: Status) {
        let Some(op) = self.ops.get_mut(key) else { return };
        let index = op.conn;
        op.in_flight -= 1;
        match status {
            Status::Ok => op.acked += 1,
            Status::LocalBadLength => op.cut_again(part),
            Status::BadDestQpn => op.refused += 1,
            other => op.failure = Some(outcome_of(other)),
        }
        let is_message = !matches!(op.work, Work::Rma(_));
        let session = op.stage_mut().map(|(_, _, session)| *session);
        let lost = !matches!(status, Status::Ok | Status::LocalBadLength);
        if let Some(conn) = self.conn_mut(index) {
            conn.in_flight -= 1;
            let current = conn.session.map(|session| session.number);
            if lost && is_message && current == session {
                conn.session = None;
            }
        }
        self.on_idle(key);
        self.requeue_refused(index);
    }

    /// Ends or continues an operation that has no datagram and no work request in progress.
    pub(crate) fn on_idle(&mut self, key: Key) {
        let Some(op) = self.ops.get_mut(key) else { return };
        let requests = if let Work::Rma(rma) = &op.work { rma.requests } else { 0 };
        if op.in_flight + requests > 0 {
            return;
        }
        let (index, again) = (op.conn, op.is_again());
        if let Some(outcome) = op.failure {
            self.leave_queue(key);
            self.end(key, outcome);
        } else if op.refused > 0 {
            self.refused(key);
        } else if again {
            op.tries += 1;
            if matches!(op.work, Work::Rma(_)) {
                op.restart();
            }
            if op.tries > TRIES_MAX {
                op.failure = Some(Outcome::Protocol);
                self.on_idle(key);
            } else if !core::mem::replace(&mut op.queued, true) {
                let rma = matches!(op.work, Work::Rma(_));
                if let Some(conn) = self.conn_mut(index) {
                    let queue = if rma { &mut conn.rmas } else { &mut conn.messages };
                    queue.push_front(key);
                }
                self.wake(index);
            } else {
                self.wake(index);
            }
        } else if op.is_sent() {
            self.sent(key);
        } else if op.queued {
            self.wake(index); // the operation's last part may have waited for the others
        }
    }

    /// Handles an operation of which every datagram was acknowledged.
    fn sent(&mut self, key: Key) {
        let Some(op) = self.ops.get(key) else { return };
        match (op.wants_answer(), op.answer, &op.work) {
            (true, None, _) => {}
            (true, Some(STATUS_OK), _) | (false, _, Work::Message(_)) => self.end(key, Outcome::Ok),
            (true, Some(STATUS_BAD_KEY), _) => self.end(key, Outcome::BadKey),
            (true, Some(_), _) => self.end(key, Outcome::Protocol),
            (false, _, Work::Rma(_)) => self.rma_sent(key),
            (false, _, Work::Atomic(_)) => {}
        }
    }

    /// Handles a refusal because the peer has lost the session: nothing was delivered, so all of
    /// the operation can be sent again, in a new session (H4).
    fn refused(&mut self, key: Key) {
        let Some(op) = self.ops.get_mut(key) else { return };
        let index = op.conn;
        op.tries += 1;
        let partly = op.acked > 0 && !matches!(op.work, Work::Rma(_));
        if partly || op.tries > TRIES_MAX {
            op.failure = Some(Outcome::Restarted);
            self.on_idle(key);
            return;
        }
        op.refused = 0;
        self.counters.sent_again += 1;
        let waits = op.queued;
        op.restart();
        if let Some(conn) = self.conn_mut(index) {
            conn.in_doubt = conn.remote != 0;
            if !waits {
                conn.refused.push(key);
            }
        }
        self.wake(index);
    }

    /// Puts refused operations back at the head of the queue, in order, after the last datagram of
    /// an earlier session was settled (H4).
    pub(crate) fn requeue_refused(&mut self, index: u32) {
        let Some(conn) = self.conn_mut(index).filter(|l| l.in_flight == 0 && !l.refused.is_empty())
        else {
            return;
        };
        let mut again = core::mem::take(&mut conn.refused);
        let mut ids: Vec<(u32, Key)> = Vec::with_capacity(again.len());
        for key in again.drain(..) {
            if let Some(op) = self.ops.get_mut(key) {
                op.queued = true;
                let id = op.stage_mut().map_or(0, |(_, id, _)| *id);
                ids.push((id, key));
            }
        }
        let first = ids.first().map_or(0, |(id, _)| *id);
        ids.sort_by_key(|(id, _)| id.wrapping_sub(first).cast_signed());
        for (_, key) in ids.into_iter().rev() {
            let rma = matches!(self.ops.get(key).map(|op| &op.work), Some(Work::Rma(_)));
            if let Some(conn) = self.conn_mut(index) {
                let queue = if rma { &mut conn.rmas } else { &mut conn.messages };
                queue.push_front(key);
            }
        }
        self.wake(index);
    }

    fn leave_queue(&mut self, key: Key) {
        let Some(op) = self.ops.get_mut(key) else { return };
        if !core::mem::replace(&mut op.queued, false) {
            return;
        }
        let index = op.conn;
        if let Some(conn) = self.conn_mut(index) {
            for queue in [&mut conn.messages, &mut conn.rmas, &mut conn.ordered] {
                if queue.front() == Some(&key) {
                    queue.pop_front();
                } else {
                    queue.retain(|other| *other != key);
                }
            }
        }
    }

    pub(crate) fn control_settled(&mut self, key: Key, status: Status) {
        let Some(control) = self.controls.get_mut(key) else { return };
        let (index, kind) = (control.conn, control.kind);
        control.tries += 1;
        let again = status == Status::RemoteAbort && control.tries < CONTROL_TRIES_MAX;
        if kind == ControlKind::Reply && again {
            if let Some(conn) = self.conn_mut(index) {
                conn.control.push_back(key);
            }
            self.wake(index);
            return;
        }
        self.remove_control(key);
        if kind != ControlKind::Hello || status == Status::Ok {
            return;
        }
        match status {
            Status::BadDestQpn => self.on_hello_refused(index),
            Status::RemoteAbort | Status::Flushed => {
                if let Some(conn) = self.conn_mut(index) {
                    conn.hello = None;
                }
                self.wake(index);
            }
            other => {
                if let Some(conn) = self.conn_mut(index) {
                    conn.hello = None;
                }
                self.fail_conn(index, outcome_of(other));
            }
        }
    }

    /// Handles the status of a RECEIPT or RESULT. Returns false if no operation waits for it.
    pub(crate) fn on_status(&mut self, index: u32, token: u64, status: u8) -> bool {
        let key = Key::from_bits(token);
        let Some(op) = self.ops.get_mut(key).filter(|op| op.conn == index) else { return false };
        if !op.wants_answer() || op.answer.or(op.leaving.map(|_| 0)).is_some() {
            return false;
        }
        op.answer = Some(status);
        if op.in_flight == 0 && op.is_sent() {
            self.sent(key);
        }
        true
    }

    /// Fails every operation of a connection: immediately, or when its datagrams are settled.
    pub(crate) fn fail_conn(&mut self, index: u32, outcome: Outcome) {
        self.fail_where(outcome, |op| op.conn == index);
    }

    /// Fails every operation of a connection that is for run `run`, or of which a datagram was
    /// sent.
    pub(crate) fn fail_run(&mut self, index: u32, run: u64) {
        self.fail_where(Outcome::Restarted, |op| {
            let begun = op.acked > 0 || op.in_flight > 0;
            op.conn == index && (op.aim == run || begun)
        });
    }

    /// Fails every operation to the peer with this number.
    pub(crate) fn fail_peer(&mut self, peer: u32, outcome: Outcome) {
        self.fail_where(outcome, |op| op.peer == peer);
    }

    /// Cancels messages with this context: each ends as cancelled when the transport has released
    /// it. A long message that its receiver has not started to read ends immediately. A message
    /// that is being handed over continues.
    pub fn cancel_send(&mut self, context: u64) {
        self.fail_where(Outcome::Cancelled, |op| {
            op.context == context && matches!(op.work, Work::Message(_)) && !op.is_begun()
        });
    }

    fn fail_where(&mut self, outcome: Outcome, hit: impl Fn(&Op) -> bool) {
        let hits = self.ops.iter();
        let hits = hits.filter(|(_, op)| hit(op) && op.failure.or(op.leaving).is_none());
        for key in hits.map(|(key, _)| key).collect::<Vec<_>>() {
            let Some(op) = self.ops.get_mut(key) else { continue };
            op.failure = Some(outcome);
            let index = op.conn;
            if op.is_begun()
                && let Some(conn) = self.conn_mut(index)
            {
                // The receiver waits for this message: a new session notifies the receiver that the
                // message will not arrive.
                conn.session = None;
                conn.in_doubt = conn.remote != 0;
                self.wake(index);
            }
            self.leave_queue(key);
            self.on_idle(key);
        }
    }
}

impl Op {
    /// Handles a datagram that was too large for the path: its bytes are sent again.
    fn cut_again(&mut self, part: u16) {
        let length = self.length;
        match &mut self.work {
            Work::Message(message) => {
                let from = u64::from(part);
                let bytes = if part == 0 { message.first_bytes } else { message.part_bytes };
                message.again.push((from, length.min(from + bytes)));
            }
            Work::Rma(rma) => rma.again = true,
            Work::Atomic(_) => self.failure = Some(Outcome::Protocol),
        }
    }

    fn is_again(&self) -> bool {
        match &self.work {
            Work::Message(message) => !message.again.is_empty(),
            Work::Rma(rma) => rma.again,
            Work::Atomic(_) => false,
        }
    }

    /// Whether the operation is a message that has an id and was not handed over completely.
    fn is_begun(&self) -> bool {
        let Work::Message(message) = &self.work else { return false };
        match message.stage {
            Stage::Waiting | Stage::Stored(_) => false,
            Stage::Sending { .. } => true,
            Stage::Sent => !message.again.is_empty(),
        }
    }

    /// Starts an operation again, because nothing of it was delivered.
    fn restart(&mut self) {
        match &mut self.work {
            Work::Message(message) => {
                message.stage = Stage::Waiting;
                message.again.clear();
            }
            Work::Atomic(atomic) => atomic.stage = Stage::Waiting,
            Work::Rma(rma) => {
                (rma.asked, rma.begun, rma.notified) = (0, false, false);
            }
        }
    }
}
