//! Long messages: the receiver reads them directly into the application's buffer (G3).
//!
//! At most `reads_max` read requests are in progress, for any number of announced messages: the
//! receiver limits the rate of its senders. Senders take turns. One sender has at most as many
//! requests in progress as there are free requests. So a sender that answers no request leaves half
//! of the requests to the other senders. A RECEIPT returns the buffer to the sender.

use crate::cq::{Completion, WcStatus};
use crate::layer::completion::Outcome;
use crate::layer::world::World;
use crate::memory::Sge;
use crate::rdm::peers::connection::Connection;
use crate::rdm::receive::inbound::{Landing, LongIn, Reading};
use crate::rdm::send::operation::TAG_LONG;
use crate::rdm::send::operation::outcome_of_wc;
use crate::rdm::state::{QPN, Rdm};
use crate::rdm::wire::field;
use crate::slots::Key;
use crate::wr::{SendOp, SendWr};

impl Rdm {
    /// Starts to read a message into its receive.
    pub(crate) fn begin_read(&mut self, landing: Landing, from: &LongIn) {
        if landing.room == 0 {
            self.landed(&landing, None);
            return;
        }
        let conn = self.index_of(&landing.info).and_then(|index| self.conn(index));
        let Some(peer) = conn.map(|conn| conn.id) else {
            self.landed(&landing, Some(Outcome::Restarted));
            return;
        };
        let reading = Reading { landing, peer, from: *from, asked: 0, requests: 0, failure: None };
        // Bound: each reading has used a receive, or a part of one, and the credit of a message.
        let Some(key) = self.readings.insert(reading, u32::MAX) else { return };
        if let Some(conn) = self.conn_mut(peer.index()) {
            conn.reads.push_back(key);
        }
        self.list_reads(peer.index());
    }

    /// Adds a connection with bytes to read, once, to the connections that wait for a turn.
    fn list_reads(&mut self, index: u32) {
        self.reads_changed = true;
        if let Some(conn) = self.conn_mut(index).filter(|conn| !conn.reads.is_empty())
            && !core::mem::replace(&mut conn.reads_listed, true)
        {
            self.reads_waiting.push_back(index);
        }
    }

    /// Whether another read request may be posted now.
    pub(crate) fn can_ask_reads(&self) -> bool {
        let room = self.reads_active < self.bounds.reads_max;
        self.reads_changed && room && !self.reads_waiting.is_empty()
    }

    /// Posts as many read requests as allowed. Returns whether there was any work.
    pub(crate) fn ask_reads(&mut self, world: &mut World<'_>) -> bool {
        let mut any = false;
        if !self.can_ask_reads() {
            return any;
        }
        // Number of consecutive connections whose turn was skipped.
        let mut passed = 0;
        self.reads_changed = false;
        while self.reads_active < self.bounds.reads_max && passed < self.reads_waiting.len() {
            let room = self.bounds.reads_max - self.reads_active;
            let Some(index) = self.reads_waiting.pop_front() else { break };
            let Some(conn) = self.conn_mut(index) else { continue };
            let Some(&key) = conn.reads.front() else {
                conn.reads_listed = false;
                continue;
            };
            if conn.reads_active > 0 && conn.reads_active >= room {
                passed += 1;
                self.reads_waiting.push_back(index);
                continue;
            }
            match self.ask_read(world, key) {
                Some(more) => {
                    if let Some(conn) = self.conn_mut(index).filter(|_| !more) {
                        conn.reads.pop_front();
                    }
                    self.reads_waiting.push_back(index);
                }
                None => {
                    self.reads_waiting.push_front(index);
                    self.reads_changed = true;
                    break;
                }
            }
            (any, passed) = (true, 0);
        }
        any
    }

    /// Ends the long messages of a connection that is dropped: no more bytes can be read.
    pub(crate) fn drop_reads(&mut self, conn: &mut Connection, outcome: Outcome) {
        for key in core::mem::take(&mut conn.reads) {
            self.fail_reading(key, outcome);
        }
        if conn.reads_listed {
            self.reads_waiting.retain(|index| *index != conn.id.index());
        }
    }

    /// Posts a request for the next bytes of a message. Returns whether there are more; `None` if a
    /// queue of the device is full.
    fn ask_read(&mut self, world: &mut World<'_>, key: Key) -> Option<bool> {
        let Some(reading) = self.readings.get(key) else { return Some(false) };
        let Reading { landing, peer, from, asked, failure, .. } = reading;
        let conn = self.conn_of(*peer).and_then(|index| self.conn(index));
        let Some(conn) = conn.filter(|conn| conn.remote == from.run) else {
            self.fail_reading(key, Outcome::Restarted);
            return Some(false);
        };
        let (room, run, peer) = (landing.room, from.run, *peer);
        if failure.is_some() {
            return Some(false);
        }
        let most = (room - asked).min(self.bounds.read_bytes_max);
        let (remote, bytes) = from.run_at(*asked, most)?;
        let piece = landing.iov.run_at(landing.offset + asked, bytes)?;
        let length = u32::try_from(piece.length).ok()?;
        let local = Sge { addr: piece.addr, length, lkey: self.lkey };
        let wr = SendWr {
            wr_id: key.to_user(TAG_LONG),
            ah: conn.ah,
            remote_qpn: QPN,
            remote_qkey: field::qkey_of(run),
            op: SendOp::RdmaRead { local, remote },
            part: false,
        };
        self.device.post_send(world.now, world.endpoint, world.memory, QPN, wr).ok()?;
        self.reads_active += 1;
        if let Some(conn) = self.conn_mut(peer.index()) {
            conn.reads_active += 1;
        }
        let reading = self.readings.get_mut(key)?;
        reading.asked += u64::from(length);
        reading.requests += 1;
        Some(reading.asked < room)
    }

    fn fail_reading(&mut self, key: Key, outcome: Outcome) {
        let Some(reading) = self.readings.get_mut(key) else { return };
        reading.failure = reading.failure.or(Some(outcome));
        if reading.requests == 0
            && let Some(reading) = self.readings.remove(key)
        {
            self.landed(&reading.landing, reading.failure);
        }
    }

    /// Handles the end of a read request for a long message.
    pub(crate) fn read_ended(&mut self, key: Key, completion: &Completion) {
        self.reads_active -= 1;
        self.reads_changed = true;
        let Some(reading) = self.readings.get_mut(key) else { return };
        reading.requests -= 1;
        let peer = reading.peer;
        if let Some(conn) = self.conn_of(peer).and_then(|index| self.conn_mut(index)) {
            conn.reads_active -= 1;
        }
        let Some(reading) = self.readings.get_mut(key) else { return };
        if completion.status != WcStatus::Ok {
            // The keys are no longer valid: the sender has given up the message.
            let outcome = match outcome_of_wc(completion.status) {
                Outcome::BadKey => Outcome::Protocol,
                other => other,
            };
            self.fail_reading(key, outcome);
            return;
        }
        if reading.asked == reading.landing.room
            && reading.requests == 0
            && let Some(reading) = self.readings.remove(key)
        {
            self.landed(&reading.landing, reading.failure);
        }
    }
}
