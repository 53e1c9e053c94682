//! Credit: the number of bytes that a peer may send before receives match its messages (G4, G5).

use crate::rdm::peers::connection::Connection;
use crate::rdm::state::Rdm;
use crate::rdm::wire::encode;

/// Largest number of control frames that wait for a peer; above it the peer gets no more credit.
pub(crate) const CONTROL_MAX: usize = 64;

impl Rdm {
    /// Returns the window of one sender: its share of all credit (G5), in bytes.
    pub(crate) fn window(&self) -> u64 {
        let b = &self.bounds;
        let share = b.credit_bytes / u64::from(self.conn_count.max(1));
        share.clamp(b.window_bytes_min, b.window_bytes_max)
    }

    /// Handles CREDIT, with which a peer raises the credit limit. Returns false if the frame is for
    /// another session. Session zero, which is never opened, stands for a probe (H8).
    pub(crate) fn on_credit(&mut self, index: u32, session: u32, limit: u64) -> bool {
        if session == 0 {
            return true;
        }
        let ours = self.conn_mut(index).and_then(|conn| conn.session_numbered(session));
        let Some(ours) = ours else { return false };
        ours.limit = ours.limit.max(limit);
        self.wake(index);
        true
    }

    /// Gives back the credit of a message, because the message no longer uses memory. The message
    /// may belong to an earlier session. A new grant is due when half of the window is free (G5).
    pub(crate) fn give_back(&mut self, index: u32, charge: u64) {
        let window = self.window();
        let Some(incoming) = self.incoming_mut(index) else { return };
        incoming.consumed = incoming.consumed.saturating_add_unsigned(charge);
        let due = incoming.limit(window) >= incoming.granted + window / 2;
        if due && !core::mem::replace(&mut incoming.credit_due, true) {
            self.wake(index);
        }
    }

    /// Sends CREDIT with a higher credit limit to a peer, if a grant is due.
    pub(crate) fn grant(&mut self, index: u32) {
        let window = self.window();
        // A peer that does not accept its control frames gets no more credit, which bounds their
        // number (G5).
        let heard = |conn: &Connection| !conn.blocked && conn.control.len() < CONTROL_MAX;
        if !self.conn(index).is_some_and(heard) {
            return;
        }
        let Some(incoming) = self.incoming_mut(index).filter(|i| i.credit_due) else { return };
        incoming.credit_due = false;
        let limit = incoming.limit(window);
        if limit <= incoming.granted {
            return;
        }
        incoming.granted = limit;
        let number = incoming.number;
        self.queue_reply(index, encode::credit(number, limit));
    }
}
