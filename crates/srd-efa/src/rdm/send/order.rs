//! Order of reads and writes, for applications that request it (A6).
//!
//! Messages and atomic operations are ordered by their ids. Reads and writes have no ids, and their
//! datagrams take every path. So an operation that must not overtake earlier operations to its peer
//! waits in this module until those have ended: a read has ended when its bytes have arrived, and a
//! write when its bytes are in the peer's memory. If no order is requested, no operation waits.
//! Bound: `operations_max`.

use crate::layer::completion::Kind;
use crate::layer::request::{Family, Order};
use crate::rdm::send::operation::{Op, Work};
use crate::rdm::state::Rdm;
use crate::slots::Key;

impl Op {
    fn family(&self) -> Family {
        match (&self.work, self.kind) {
            (Work::Message(_), _) => Family::Message,
            (Work::Atomic(_), _) => Family::Atomic,
            (Work::Rma(_), Kind::Read) => Family::Read,
            (Work::Rma(_), _) => Family::Write,
        }
    }
}

impl Rdm {
    /// Sets the order of operations that are posted from now on.
    pub fn set_order(&mut self, order: Order) {
        self.order = order;
    }

    /// Puts an operation that was just posted into the queue `ordered`, if it has to wait for
    /// earlier operations. Returns whether it has to wait.
    pub(crate) fn wait_turn(&mut self, index: u32, key: Key) -> bool {
        if self.order == Order::default() {
            return false;
        }
        let waits = self.conn(index).is_some_and(|conn| !conn.ordered.is_empty());
        if !waits && self.take_turn(index, key) {
            return false;
        }
        if let Some(op) = self.ops.get_mut(key) {
            op.queued = true;
        }
        if let Some(conn) = self.conn_mut(index) {
            conn.ordered.push_back(key);
        }
        true
    }

    /// Moves operations that no longer have to wait into the queue of reads and writes, or into the
    /// queue of messages.
    pub(crate) fn let_through(&mut self, index: u32) {
        while let Some(&key) = self.conn(index).and_then(|conn| conn.ordered.front()) {
            if !self.take_turn(index, key) {
                return;
            }
            let rma = matches!(self.ops.get(key).map(|op| &op.work), Some(Work::Rma(_)));
            if let Some(conn) = self.conn_mut(index) {
                conn.ordered.pop_front();
                let queue = if rma { &mut conn.rmas } else { &mut conn.messages };
                queue.push_back(key);
            }
        }
    }

    /// Counts an operation as started, if it does not have to wait. Returns whether it was counted.
    fn take_turn(&mut self, index: u32, key: Key) -> bool {
        let order = self.order;
        let Some(family) = self.ops.get(key).map(Op::family) else { return true };
        let Some(conn) = self.conn_mut(index) else { return true };
        if order.holds(family, &conn.unfinished) {
            return false;
        }
        conn.unfinished[family as usize] += 1;
        if let Some(op) = self.ops.get_mut(key) {
            op.counted = true;
        }
        true
    }

    /// Handles the end of an operation: operations that waited for it may continue.
    pub(crate) fn end_turn(&mut self, op: &Op) {
        if !op.counted {
            return;
        }
        if let Some(conn) = self.conn_mut(op.conn) {
            conn.unfinished[op.family() as usize] -= 1;
            if !conn.ordered.is_empty() {
                self.wake(op.conn);
            }
        }
    }
}
