//! Hands datagrams to the transport, for each peer.
//!
//! Transfers to one peer take turns of [`TURN_DATAGRAMS`] datagrams (R12). A peer that accepts no
//! datagrams delays no other peer. At most `unsent_bytes_max` bytes of transfers wait in the
//! transport, so that a message posted after a gigabyte of transfers does not wait for all of it.

use bytes::Bytes;
use srd_proto::{Class, Datagram, Endpoint, Entropy, Instant, PeerId, Qpn, SendError};

use crate::cq::WcStatus;
use crate::device::operation::{Step, TAG, Work};
use crate::device::outbox::{NOBODY, TURN_DATAGRAMS};
use crate::device::state::Device;
use crate::memory::Memory;
use crate::mr::MemoryLocation;
use crate::qp::QpType;
use crate::slots::Key;
use crate::wire::Opaque;

impl Device {
    /// Appends an operation to the queue of its peer in which it waits, unless it is in this queue
    /// already.
    pub(super) fn list(&mut self, key: Key) {
        let Some(op) = self.ops.get_mut(key) else { return };
        if !core::mem::replace(&mut op.listed, true) {
            let (peer, number) = (op.peer, op.queue_number());
            self.outbox.queue(peer).queues[number].waiting.push_back(key);
            self.outbox.wake(peer);
        }
    }

    /// Starts an operation: sends immediately, if nothing waits for its peer.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        memory: &mut dyn Memory,
        key: Key,
    ) {
        let Some(op) = self.ops.get(key) else { return };
        let number = op.queue_number();
        let queue = self.outbox.look(op.peer);
        if queue.is_some_and(|queue| queue.blocked || !queue.is_empty(number)) {
            self.list(key);
            return;
        }
        match self.step(now, endpoint, memory, key) {
            Step::Handed | Step::Idle => {}
            Step::Failed(status) => self.fail(key, status),
            Step::More | Step::Later => self.list(key),
            Step::Full => {
                self.list(key);
                self.block(key);
            }
        }
    }

    fn block(&mut self, key: Key) {
        if let Some(op) = self.ops.get(key) {
            let peer = op.peer;
            self.outbox.queue(peer).blocked = true;
        }
    }

    /// Sends waiting datagrams, as many as the transport accepts. Returns the number of sent
    /// datagrams. If it is zero, there is nothing to do until a packet arrives or is acknowledged.
    pub fn pump(&mut self, now: Instant, endpoint: &mut Endpoint, memory: &mut dyn Memory) -> u32 {
        let mut handed = 0;
        for _ in 0..self.outbox.ready.len() {
            let Some(id) = self.outbox.ready.pop_front() else { break };
            self.outbox.queue(id).ready = false;
            handed += self.serve(now, endpoint, memory, id);
            self.outbox.settle(id);
        }
        handed
    }

    /// Sends the datagrams that wait for a peer, as many as the transport accepts.
    fn serve(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        memory: &mut dyn Memory,
        id: PeerId,
    ) -> u32 {
        let mut handed = self.send_control(now, endpoint, id);
        for number in 0..self.outbox.queue(id).queues.len() {
            handed += self.serve_queue(now, endpoint, memory, (id, number));
        }
        handed
    }

    /// Gives one turn to each operation in a queue. If the transport becomes full during a turn,
    /// the turn continues when the transport has space.
    fn serve_queue(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        memory: &mut dyn Memory,
        (id, number): (PeerId, usize),
    ) -> u32 {
        let mut handed = 0;
        let mut turns = self.outbox.queue(id).queues[number].waiting.len();
        while turns > 0 && !self.outbox.queue(id).blocked {
            let first = &mut self.outbox.queue(id).queues[number];
            let Some(&key) = first.waiting.front() else { break };
            if first.turn == TURN_DATAGRAMS {
                first.waiting.rotate_left(1);
                first.turn = 0;
                turns -= 1;
                continue;
            }
            let step = self.step(now, endpoint, memory, key);
            if matches!(step, Step::More | Step::Handed) {
                self.outbox.queue(id).queues[number].turn += 1;
                handed += 1;
            }
            match step {
                Step::More => continue,
                Step::Handed | Step::Idle => self.unlist(id, number, key),
                Step::Failed(status) => {
                    self.unlist(id, number, key);
                    self.fail(key, status);
                }
                Step::Full => self.block(key),
                Step::Later => break,
            }
            turns -= 1;
        }
        handed
    }

    /// Removes the first operation from its queue.
    fn unlist(&mut self, id: PeerId, number: usize, key: Key) {
        let queue = &mut self.outbox.queue(id).queues[number];
        queue.waiting.pop_front();
        queue.turn = 0;
        if let Some(op) = self.ops.get_mut(key) {
            op.listed = false;
        }
    }

    /// Sends the WRITE ABORTs and READ ERRORs that wait for a peer. Returns their number.
    fn send_control(&mut self, now: Instant, endpoint: &mut Endpoint, id: PeerId) -> u32 {
        let mut handed = 0;
        while let Some(datagram) = self.outbox.queue(id).control.front() {
            match endpoint.send(now, id, datagram.clone()) {
                Err(SendError::QueueFull) => {
                    self.outbox.queue(id).blocked = true;
                    break;
                }
                // A peer that was removed needs no control datagram.
                Ok(_) | Err(_) => handed += 1,
            }
            self.outbox.queue(id).control.pop_front();
        }
        handed
    }

    fn push_control(&mut self, peer: PeerId, from: Qpn, to: Qpn, opaque: Opaque) {
        self.outbox.queue(peer).control.push_back(Datagram {
            src_qpn: from,
            dst_qpn: to,
            imm: opaque.encode(),
            payload: Bytes::new(),
            class: Class::LowLatency,
            user: NOBODY,
        });
        self.outbox.wake(peer);
    }

    /// Queues a WRITE ABORT, which notifies the peer that the rest of a write will not be sent
    /// (R5).
    pub(super) fn abort_write(&mut self, key: Key, number: u32) {
        if let Some(op) = self.ops.get(key) {
            let (peer, from, to) = (op.peer, op.qpn, op.remote_qpn);
            self.push_control(peer, from, to, Opaque::WriteAbort { number });
        }
    }

    /// Queues a READ ERROR, which notifies the peer that the rest of an answer will not be sent
    /// (R10).
    pub(super) fn deny_read(
        &mut self,
        peer: PeerId,
        from: Qpn,
        to: Qpn,
        number: u32,
        status: WcStatus,
    ) {
        let opaque = Opaque::ReadError { number, status: status as u32 };
        self.push_control(peer, from, to, opaque);
    }

    /// Tries to hand the next datagram of an operation to the transport.
    fn step(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        memory: &mut dyn Memory,
        key: Key,
    ) -> Step {
        let Some(op) = self.ops.get(key) else { return Step::Idle };
        if op.status != WcStatus::Ok {
            return Step::Idle; // the operation ends when all datagrams in flight are settled
        }
        let Some(qp) = self.qp(op.qpn) else { return Step::Idle };
        let unreliable = qp.init.qp_type == QpType::Ud;
        // A request does not wait for bytes that flow in the other direction. (R12)
        let asks = matches!(op.work, Work::Read { .. });
        let class = if asks { Class::LowLatency } else { qp.class() };
        let is_bulk = op.queue_number() > 0;
        if is_bulk && endpoint.unsent_bytes(op.peer) >= self.config.unsent_bytes_max {
            return Step::Later;
        }
        // The payload size that the path currently passes (G10).
        let room = endpoint.payload_bytes_max_to(op.peer);
        let live = |place: &MemoryLocation| op.length == 0 || self.regions.is_live(place.key);
        let Some((opaque, payload)) = op.next_datagram(memory, room, live) else {
            return match op.work {
                Work::Respond { .. } => Step::Failed(WcStatus::RemoteBadAddress),
                Work::Write { .. } if op.is_unfinished() => {
                    Step::Failed(WcStatus::LocalInvalidLkey)
                }
                _ => Step::Idle,
            };
        };
        let bytes = payload.len();
        let datagram = Datagram {
            src_qpn: op.qpn,
            dst_qpn: op.remote_qpn,
            imm: opaque.encode(),
            payload,
            class,
            user: key.to_user_part(TAG, op.ranges.part()),
        };
        let peer = op.peer;
        let sent = if unreliable {
            let entropy = Entropy((op.qpn.0 ^ op.remote_qpn.0) % endpoint.config().paths);
            endpoint.send_unreliable(now, peer, entropy, datagram)
        } else {
            endpoint.send(now, peer, datagram).map(|_| ())
        };
        match sent {
            Ok(()) if unreliable => {
                self.end(key, WcStatus::Ok);
                Step::Handed
            }
            Ok(()) => self.ops.get_mut(key).map_or(Step::Idle, |op| op.sent(bytes)),
            Err(SendError::QueueFull) if unreliable => Step::Later,
            Err(SendError::QueueFull) => Step::Full,
            Err(SendError::TooLarge { .. }) => Step::Failed(WcStatus::LocalBadLength),
            Err(SendError::UnknownPeer) => Step::Failed(WcStatus::LocalInvalidAh),
            Err(_) => Step::Later,
        }
    }
}
