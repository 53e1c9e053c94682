//! Credit: the number of bytes that a peer may send before receives match its messages (G4, G5).
//!
//! All senders share `credit_bytes`. A sender **holds** the credit that it may still use, and the
//! credit of its messages that are stored here. The credit of a message returns when the message is
//! matched, and is then divided anew: a sender that held more than its present share holds at most
//! its share after it has used what it was granted.

use crate::rdm::peers::connection::{Connection, Incoming};
use crate::rdm::receive::inbound::MessageInfo;
use crate::rdm::state::Rdm;
use crate::rdm::wire::encode;

/// Largest number of control frames that wait for a peer; above it the peer gets no more credit.
pub(crate) const CONTROL_MAX: usize = 64;

impl Rdm {
    /// Returns the window of one sender: its share of all credit (G5), in bytes. A sender that the
    /// transport has removed counts as long as messages from it are stored; receives that name it
    /// do not count.
    pub(crate) fn window(&self) -> u64 {
        let b = &self.bounds;
        let senders = u64::from(self.conn_count) + self.former.len() as u64;
        let share = b.credit_bytes / senders.max(1);
        share.clamp(b.window_bytes_min, b.window_bytes_max)
    }

    /// Returns the credit that a sender may hold which holds `held` bytes of credit now: its
    /// window, but no more than it holds and the credit that no sender holds. If less than half of
    /// its window is left, the sender may hold half of its window, and always the smallest window
    /// (G5).
    pub(crate) fn allowance(&self, held: u32) -> u32 {
        let window = self.window();
        let free = self.bounds.credit_bytes.saturating_sub(self.credit_held);
        let least = (window / 2).max(self.bounds.window_bytes_min);
        let most = window.min(u64::from(held) + free).max(least);
        u32::try_from(most).unwrap_or(u32::MAX)
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

    /// Gives back the credit of a message of the peer's present session, because the message no
    /// longer uses memory.
    pub(crate) fn give_back(&mut self, index: u32, charge: u64) {
        self.free_credit(index, charge);
        self.schedule_grant(index);
    }

    /// Gives back the credit of a stored message, which may belong to an earlier session.
    pub(crate) fn release(&mut self, info: &MessageInfo) {
        if self.former.contains(&info.source) && !self.stores(info.source) {
            self.former.remove(&info.source);
        }
        if let Some(index) = self.forget_kept(info) {
            self.schedule_grant(index);
        }
    }

    /// Records that an unexpected message is no longer stored. Returns its connection.
    pub(crate) fn forget_kept(&mut self, info: &MessageInfo) -> Option<u32> {
        let index = self.index_of(info)?;
        let is_of = |i: &Incoming| i.serial == info.session;
        if self.conn(index)?.incoming.as_ref().is_some_and(is_of) {
            self.free_credit(index, info.charge);
            return Some(index);
        }
        let (conn, charge) = (self.conn_mut(index)?, info.charge_u32());
        conn.former_charge = conn.former_charge.saturating_sub(charge);
        if let Some(incoming) = &mut conn.incoming {
            incoming.owed = incoming.owed.saturating_sub(charge);
        }
        Some(index)
    }

    /// Records that the peer's present session no longer holds the credit of a message.
    pub(crate) fn free_credit(&mut self, index: u32, charge: u64) {
        let Some(incoming) = self.incoming_mut(index) else { return };
        let freed = charge.min(incoming.held.into());
        incoming.held -= u32::try_from(freed).unwrap_or(incoming.held);
        self.credit_held = self.credit_held.saturating_sub(freed);
    }

    /// Schedules CREDIT for a peer, if a new grant is due.
    fn schedule_grant(&mut self, index: u32) {
        let incoming = self.conn(index).and_then(|conn| conn.incoming.as_ref());
        let Some(incoming) = incoming.filter(|incoming| !incoming.credit_due) else { return };
        if incoming.is_due(self.allowance(incoming.held)) {
            if let Some(incoming) = self.incoming_mut(index) {
                incoming.credit_due = true;
            }
            self.wake(index);
        }
    }

    /// Sends CREDIT with a higher credit limit to a peer, if a grant is due.
    pub(crate) fn grant(&mut self, index: u32) {
        // A peer that does not accept its control frames gets no more credit, which bounds their
        // number (G5).
        let heard = |conn: &&Connection| !conn.blocked && conn.control.len() < CONTROL_MAX;
        let conn = self.conn(index).filter(heard);
        let incoming = conn.and_then(|conn| conn.incoming.as_ref());
        let Some(incoming) = incoming.filter(|incoming| incoming.credit_due) else { return };
        let more = incoming.raise(self.allowance(incoming.held));
        let Some(incoming) = self.incoming_mut(index) else { return };
        incoming.credit_due = false;
        if more == 0 {
            return;
        }
        incoming.granted += u64::from(more);
        incoming.unused += more;
        incoming.held += more;
        let (number, limit) = (incoming.number, incoming.granted);
        self.credit_held += u64::from(more);
        self.queue_reply(index, encode::credit(number, limit));
    }
}
