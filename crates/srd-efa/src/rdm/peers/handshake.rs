//! Start of sessions: HELLO, ANSWER, and the sessions that a peer's HELLO ends (H1 to H5).
//!
//! Each direction opens a separate session when it has something to send. A HELLO may be repeated,
//! may cross the peer's HELLO, or may be for a run that has ended; it changes nothing at its sender
//! until it is answered. HELLOs that arrive are queued and answered by the next call of
//! `Rdm::pump`, which needs no call of the application (H3).

use srd_proto::{Delivery, DownReason, PeerId};

use crate::layer::completion::Outcome;
use crate::layer::world::World;
use crate::rdm::peers::connection::{
    Connection, ControlKind, Hello, Incoming, PendingHello, Session,
};
use crate::rdm::peers::credit::CONTROL_MAX;
use crate::rdm::peers::table::STRANGERS_LOOKED_AT;
use crate::rdm::receive::inbound::Refusal;
use crate::rdm::state::Rdm;
use crate::rdm::wire::field::VERSION;
use crate::rdm::wire::{encode, field};

impl Rdm {
    /// Sends HELLO to a run at the other end of a connection, unless a HELLO is in progress
    /// already, or datagrams of the ended session are not settled yet. They must be settled first,
    /// so that their messages can be sent again in order (H4).
    pub(crate) fn send_hello(&mut self, index: u32, aim: u64) {
        let Some(conn) = self.conn(index) else { return };
        let over = conn.session.is_none();
        if conn.hello.is_some() || over && conn.in_flight > 0 {
            return;
        }
        self.session_next = self.session_next.wrapping_add(1).max(1);
        let number = self.session_next;
        let check = if aim == 0 { 0 } else { field::run_check(aim) };
        let bytes = encode::hello(number, self.incarnation).freeze();
        if let Some(conn) = self.conn_mut(index) {
            conn.hello = Some(PendingHello { number, aim });
        }
        self.counters.sessions += 1;
        self.queue_control(index, ControlKind::Hello, check, bytes);
    }

    /// Returns the run that a HELLO must be sent to, if a HELLO is due.
    pub(crate) fn hello_due(&self, index: u32) -> Option<u64> {
        let conn = self.conn(index)?;
        if conn.hello.is_some() {
            return None;
        }
        if conn.in_doubt {
            return Some(conn.remote);
        }
        let heads = [conn.messages.front(), conn.rmas.front()];
        let mut aims = heads.into_iter().flatten().filter_map(|key| self.ops.get(*key));
        aims.find(|op| !conn.is_open_for(op.aim)).map(|op| op.aim)
    }

    /// Handles a peer's ANSWER. Returns false if no HELLO waits for it.
    pub(crate) fn on_answer(&mut self, index: u32, number: u32, their: &Hello, limit: u64) -> bool {
        let Some(conn) = self.conn_mut(index) else { return false };
        let Some(pending) = conn.hello.filter(|pending| pending.number == number) else {
            return false;
        };
        let wrong = pending.aim != 0 && pending.aim != their.incarnation;
        if wrong {
            conn.hello = None;
            self.on_run_gone(index, pending.aim);
            return true;
        }
        conn.hello = None;
        conn.in_doubt = false;
        // W1: Versions
        if their.version != VERSION {
            self.fail_conn(index, Outcome::Protocol);
            return true;
        }
        self.set_run(index, their.incarnation);
        let Some(conn) = self.conn_mut(index) else { return true };
        let check = field::session_check(their.incarnation, number);
        conn.session = Some(Session { number, check, next_id: 0, limit, used: 0 });
        self.wake(index);
        true
    }

    /// Handles the refusal of a HELLO: the run that it was for has ended (H2).
    pub(crate) fn on_hello_refused(&mut self, index: u32) {
        let Some(pending) = self.conn_mut(index).and_then(|conn| conn.hello.take()) else {
            return;
        };
        if pending.aim != 0 {
            self.on_run_gone(index, pending.aim);
        } else {
            self.fail_conn(index, Outcome::Protocol);
        }
        self.wake(index);
    }

    /// Handles the end of a peer's run: operations for this run fail (H2).
    fn on_run_gone(&mut self, index: u32, run: u64) {
        let Some(conn) = self.conn_mut(index) else { return };
        conn.in_doubt = false;
        if conn.remote == run {
            conn.remote = 0;
            conn.session = None;
        }
        self.fail_run(index, run);
        self.wake(index);
    }

    /// Sets the run at the other end of a connection.
    fn set_run(&mut self, index: u32, incarnation: u64) {
        let Some(conn) = self.conn_mut(index) else { return };
        let before = core::mem::replace(&mut conn.remote, incarnation);
        if before == incarnation {
            return;
        }
        conn.source = None;
        if before != 0 {
            conn.session = None;
            self.fail_run(index, before);
            self.drop_incoming(index, Outcome::Restarted);
        }
        self.choose_source(Some(index));
    }

    /// Handles a peer's HELLO: queues it until the next call of [`Rdm::pump`] answers it.
    pub(crate) fn on_hello(
        &mut self,
        delivery: &Delivery<'_>,
        check: u32,
        hello: Hello,
    ) -> Result<(), Refusal> {
        if check != 0 && check != self.local_check {
            return Err(Refusal::Stale);
        }
        if hello.incarnation == 0 {
            return Err(Refusal::Malformed);
        }
        // A peer that does not accept the answers to its HELLOs gets no further answers.
        let crammed = |conn: &Connection| conn.control.len() >= CONTROL_MAX;
        let crammed = self.conn_of(delivery.peer).and_then(|at| self.conn(at)).is_some_and(crammed);
        let is_new = self.conn_of(delivery.peer).is_none();
        let waiting = u32::try_from(self.hellos.len()).unwrap_or(u32::MAX);
        let strangers = self.strangers_count.saturating_add(waiting);
        // Strangers have a limited part of the numbers (H7).
        let crowded = is_new && strangers >= self.bounds.strangers_max;
        // The transport may have removed one of the strangers.
        self.crowded |= crowded;
        if crammed || crowded || self.hellos.len() >= self.bounds.hellos_max {
            return Err(Refusal::Rnr);
        }
        self.hellos.push_back((delivery.peer, hello));
        Ok(())
    }

    /// Answers all HELLOs that wait. Returns whether there was at least one HELLO.
    pub(crate) fn answer_hellos(&mut self, world: &mut World<'_>) -> bool {
        let any = !self.hellos.is_empty();
        while let Some((peer, hello)) = self.hellos.pop_front() {
            self.answer_hello(world, peer, &hello);
        }
        any
    }

    fn answer_hello(&mut self, world: &mut World<'_>, peer: PeerId, hello: &Hello) {
        let Some(address) = world.endpoint.address_of(peer) else { return };
        world.endpoint.keep_peer(peer);
        self.forget_strangers(world.endpoint, STRANGERS_LOOKED_AT);
        let Some(index) = self.make_conn(peer, address) else { return };
        self.set_run(index, hello.incarnation);
        let own = self.incarnation;
        let known = self.conn(index).and_then(|conn| conn.incoming);
        // W1. A HELLO of any version gets an answer; only this version gets a session.
        if hello.version == VERSION {
            let same = |i: &Incoming| (i.run, i.number) == (hello.incarnation, hello.session);
            // A repeated HELLO is answered with the same grant. (H3)
            if !known.as_ref().is_some_and(same) {
                self.open_incoming(index, hello);
            }
        }
        let incoming = self.conn(index).and_then(|conn| conn.incoming);
        let granted = incoming.map_or(0, |incoming| incoming.granted);
        let check = field::run_check(hello.incarnation);
        let bytes = encode::answer(hello.session, own, granted).freeze();
        self.queue_control(index, ControlKind::Reply, check, bytes);
    }

    /// Opens a new session of a peer. Unexpected messages of its earlier sessions still use memory:
    /// if they exceed one window, the new grant is reduced by the excess (G5).
    pub(crate) fn open_incoming(&mut self, index: u32, hello: &Hello) {
        self.drop_incoming(index, Outcome::Unresponsive);
        let (run, number) = (hello.incarnation, hello.session);
        let check = field::session_check(self.incarnation, number);
        let most = self.allowance(0);
        self.sessions_opened = self.sessions_opened.wrapping_add(1);
        let serial = self.sessions_opened;
        let Some(conn) = self.conn_mut(index) else { return };
        let owed = conn.former_charge.saturating_sub(most);
        let held = most.saturating_sub(owed);
        conn.incoming = Some(Incoming {
            run,
            number,
            serial,
            check,
            expected: 0,
            early: 0,
            granted: held.into(),
            unused: held,
            held,
            owed,
            ahead_bytes: 0,
            credit_due: false,
        });
        self.credit_held += u64::from(held);
    }

    /// Handles the transport's event that a peer is down.
    pub(crate) fn on_peer_down(&mut self, peer: PeerId, reason: DownReason) {
        let Some(index) = self.conn_of(peer) else { return };
        let outcome = match reason {
            DownReason::Unreachable => Outcome::Unreachable,
            DownReason::Unresponsive | DownReason::Closed => Outcome::Unresponsive,
            DownReason::Restarted => Outcome::Restarted,
        };
        self.drop_incoming(index, outcome);
        let waits = self.ops.iter().any(|(_, op)| op.conn == index);
        if reason != DownReason::Restarted && self.conn(index).is_some_and(|conn| !conn.named) {
            self.released.push(peer);
        }
        let Some(conn) = self.conn_mut(index) else { return };
        conn.session = None;
        // The run that received the HELLO may have ended, and its ANSWER may be lost.
        conn.hello = None;
        if reason == DownReason::Restarted {
            // The peer may be the same run, with a new context of the transport.
            conn.in_doubt = waits && conn.remote != 0;
        } else {
            self.fail_conn(index, outcome);
        }
        self.wake(index);
    }
}
