//! The endpoint as a state machine: its inputs are events of the transport, its outputs are ended
//! operations.

use srd_proto::{Event, Instant, PeerId};

use crate::cq::{Completion, WcOpcode};
use crate::layer::completion::{Kind, OperationCompletion};
use crate::layer::world::World;
use crate::rdm::counters::Occupancy;
use crate::rdm::send::operation::{TAG_BATCH, TAG_CONTROL, TAG_LONG, TAG_RMA, of_user};
use crate::rdm::state::Rdm;
use crate::slots::Key;

impl Rdm {
    /// Handles an event of the transport.
    pub fn event(&mut self, now: Instant, event: &Event) {
        self.device.event(now, event);
        match event {
            Event::Completed { user, status, .. } => {
                if let Some((index, generation, part)) = of_user(*user) {
                    if let Some(key) = self.ops.key_like(index, generation) {
                        self.settled(key, part, *status);
                    }
                } else if let Some(key) = Key::of_user(*user, TAG_CONTROL) {
                    self.control_settled(key, *status);
                } else if let Some(key) = Key::of_user(*user, TAG_BATCH) {
                    self.batch_settled(key, *status);
                }
            }
            Event::PeerDown { peer, reason } => self.on_peer_down(*peer, *reason),
            Event::Writable { peer } => {
                if let Some(index) = self.conn_of(*peer) {
                    if let Some(conn) = self.conn_mut(index) {
                        conn.blocked = false;
                    }
                    self.wake(index);
                }
            }
            Event::PathMtu { peer, works_bytes, configured_bytes } => {
                self.shrink(*peer, configured_bytes.saturating_sub(*works_bytes));
            }
            Event::PeerUp { .. } | Event::Diagnosis { .. } => {}
        }
        self.take_notes();
    }

    fn shrink(&mut self, peer: PeerId, fewer: u16) {
        let Some(index) = self.conn_of(peer) else { return };
        let Some(ip) = self.conn(index).map(|conn| conn.address.ip()) else { return };
        let most = self.payload_to(ip).saturating_sub(usize::from(fewer));
        if let Some(conn) = self.conn_mut(index) {
            conn.payload_bytes_max = most;
        }
    }

    /// Handles the end of a work request, or of a peer's write with data.
    pub(crate) fn completed(&mut self, completion: &Completion) {
        if completion.opcode == WcOpcode::RecvRdmaWithImm {
            let index = completion.peer.and_then(|peer| self.conn_of(peer));
            let data = completion.imm.map(u64::from);
            if let Some(index) = index {
                let length = u64::from(completion.byte_len);
                self.report_remote(index, Kind::RemoteWrite, length, data);
            }
        } else if let Some(key) = Key::of_user(completion.wr_id, TAG_LONG) {
            self.read_ended(key, completion);
        } else if let Some(key) = Key::of_user(completion.wr_id, TAG_RMA) {
            self.rma_ended(key, completion);
        }
    }

    /// Sends waiting datagrams, as many as the transport accepts. Returns whether the transport
    /// accepted any.
    pub fn pump(&mut self, world: &mut World<'_>) -> bool {
        let mut took = self.device.pump(world.now, world.endpoint, world.memory) > 0;
        while let Some(completion) = self.device.poll_cq(self.cq) {
            self.completed(&completion);
            took = true;
        }
        self.take_notes();
        self.release_peers(world);
        took |= self.ask_reads(world);
        took |= self.answer_hellos(world);
        for conn in core::mem::take(&mut self.stalled) {
            took |= self.advance(conn, world.memory);
        }
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else { break };
            if let Some(conn) = self.conn_mut(index) {
                conn.ready = false;
                took |= self.flush(world, index);
            }
        }
        took
    }

    /// Takes the oldest operation that has ended.
    pub fn poll(&mut self) -> Option<OperationCompletion> {
        self.done.pop_front()
    }

    /// Sets the number of polled operations that the application has not read: they count towards
    /// the limit of operations that have ended.
    pub fn set_unread(&mut self, unread: usize) {
        self.dones_now_max = self.bounds.dones_max.saturating_sub(unread);
    }

    /// Whether [`Self::poll`] returns an operation.
    pub fn may_have_ended(&self) -> bool {
        !self.done.is_empty()
    }

    /// Whether nothing is in progress: every datagram was acknowledged, and no answer to a peer
    /// waits to be sent.
    pub fn is_quiet(&self) -> bool {
        self.ops.is_empty()
            && self.controls.is_empty()
            && self.hellos.is_empty()
            && self.stalled.is_empty()
            && self.readings.is_empty()
            && self.device.is_quiet()
    }

    /// Whether [`Self::pump`] has work that no event of the transport announces.
    pub fn has_work(&self) -> bool {
        !(self.ready.is_empty()
            && self.stalled.is_empty()
            && self.hellos.is_empty()
            && self.released.is_empty()
            && !self.crowded
            && !self.can_ask_reads())
    }

    /// Whether [`Self::pump`] would do nothing now.
    pub fn is_idle(&self) -> bool {
        !self.has_work() && self.device.is_idle(self.cq)
    }

    /// Returns the number of entries in each table.
    pub fn occupancy(&self) -> Occupancy {
        let (tagged, plain) = (self.tagged.len(), self.plain.len());
        Occupancy {
            operations: self.ops.len(),
            receives: tagged.0 + plain.0,
            messages: tagged.1 + plain.1,
            completions: self.done.len(),
            control_frames: self.controls.len(),
            hellos: self.hellos.len(),
            reads: self.readings.len(),
            partials: self.partials.len(),
            reorder_bytes: self.reorder_bytes,
            peers: self.entries.len() - self.free.len(),
        }
    }
}
