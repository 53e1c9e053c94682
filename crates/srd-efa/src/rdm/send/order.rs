//! The order of reads and writes, for applications that request one (A6).
//!
//! Messages and atomic operations keep their order by their ids. Reads and writes have none:
//! their datagrams take every path. An operation that must not overtake earlier ones to its peer
//! is held back here until those have ended: bytes that are read have arrived, and bytes that are
//! written are in the peer's memory. Without an order to keep, nothing waits. Bound:
//! `operations_max`.

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

    /// Whether an operation that was just posted has to wait for its turn.
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

    /// Moves operations whose turn has come into their queue.
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

    /// Counts an operation as begun, if nothing holds it.
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

    /// An operation has ended: those that waited for it may go on.
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
