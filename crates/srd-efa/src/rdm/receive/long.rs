//! Long messages: their receiver reads them, straight into the application's buffer (G3).
//!
//! However many senders have announced messages, only `reads_max` requests are under way: the
//! receiver paces its senders. Senders take turns. A sender with as many requests under way as may
//! still be added has to wait, so one that answers none of them leaves half of the requests to the
//! others. A RECEIPT gives the sender its buffer back.

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
    /// Begins to read a message into its receive.
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
        // Bound: each has used a receive, or part of one, and a message's credit.
        let Some(key) = self.readings.insert(reading, u32::MAX) else { return };
        if let Some(conn) = self.conn_mut(peer.index()) {
            conn.reads.push_back(key);
        }
        self.list_reads(peer.index());
    }

    /// A connection with something to read waits for its turn, once.
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

    /// Posts read requests, as many as there may be. Returns whether there was anything to do.
    pub(crate) fn ask_reads(&mut self, world: &mut World<'_>) -> bool {
        let mut any = false;
        if !self.can_ask_reads() {
            return any;
        }
        // Connections in a row whose turn was passed over.
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

    /// A connection goes: nothing more of its long messages can be read.
    pub(crate) fn drop_reads(&mut self, conn: &mut Connection, outcome: Outcome) {
        for key in core::mem::take(&mut conn.reads) {
            self.fail_reading(key, outcome);
        }
        if conn.reads_listed {
            self.reads_waiting.retain(|index| *index != conn.id.index());
        }
    }

    /// Posts a request for the next bytes of a message. Returns whether there are more; `None` if
    /// the device has no room.
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

    /// A read request has ended.
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
            // Keys that are not valid any more: its sender has given the message up.
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
