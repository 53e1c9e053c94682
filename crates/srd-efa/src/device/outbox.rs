//! Hands datagrams to the transport, peer by peer.
//!
//! Operations that could not send everything at once stand in one of two lines of their peer:
//! messages and requests in one, and behind them the bytes of reads and writes, each transfer with
//! a turn of [`TURN_DATAGRAMS`]. A peer that takes nothing holds up no other. Transfers leave
//! at most `unsent_bytes_max` waiting in the transport, so that messages posted behind a gigabyte
//! do not wait for it. Bound: the device's operations, and one control datagram for each.

use alloc::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use hashbrown::HashMap;
use srd_proto::{Class, Datagram, Endpoint, Entropy, Instant, PeerId, Qpn, SendError};

use super::{Device, Op, Stage, TAG, Work};
use crate::cq::WcStatus;
use crate::hash::Keyed;
use crate::memory::Memory;
use crate::mr::Place;
use crate::qp::QpType;
use crate::slab::Key;
use crate::wire::{Opaque, RDMA_HEADER_BYTES, RdmaHeader};

/// Datagrams of one operation before the next has its turn.
const TURN_DATAGRAMS: u32 = 16;
/// What a control datagram is completed under: nothing waits for it.
const NOBODY: u64 = u64::MAX;

/// Operations that wait for their turn.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Key>,
    /// Datagrams that the first has sent of its turn.
    turn: u32,
}

/// What waits for one peer.
#[derive(Debug)]
struct PeerQueue {
    /// Messages and requests; transfers.
    lines: [Line; 2],
    /// Words about transfers that were given up; they go first.
    control: VecDeque<Datagram>,
    /// The transport is full, and will say when it is not.
    blocked: bool,
    /// Whether it stands in line.
    ready: bool,
    /// What a datagram to this peer carries.
    payload_bytes_max: usize,
}

/// All peers' queues.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Peers with something to keep in mind: what waits, or what their path passes.
    peers: HashMap<PeerId, PeerQueue, Keyed>,
    ready: VecDeque<PeerId>,
    /// What a datagram carries unless its peer's path says less.
    pub(super) payload_bytes_max: usize,
}

/// How an attempt to send one datagram of an operation ended.
enum Step {
    /// It was handed over, and there is more.
    More,
    /// It was handed over, and there is no more to do now.
    Handed,
    /// There is nothing to do until something is heard of it.
    Idle,
    /// The transport is full; it will say when it is not.
    Full,
    /// The transport has enough for now.
    Later,
    /// It cannot be done.
    Failed(WcStatus),
}

impl Outbox {
    pub(super) fn new(payload_bytes_max: usize, seed: u64) -> Self {
        let peers = HashMap::with_hasher(Keyed::new(seed));
        Self { peers, ready: VecDeque::new(), payload_bytes_max }
    }

    fn queue(&mut self, id: PeerId) -> &mut PeerQueue {
        let payload_bytes_max = self.payload_bytes_max;
        self.peers.entry(id).or_insert_with(|| PeerQueue {
            lines: Default::default(),
            control: VecDeque::new(),
            blocked: false,
            ready: false,
            payload_bytes_max,
        })
    }

    fn look(&self, id: PeerId) -> Option<&PeerQueue> {
        self.peers.get(&id)
    }

    /// After a peer's turn: it stands in line again if something waits, and goes if there is
    /// nothing to keep in mind.
    fn settle(&mut self, id: PeerId) {
        let Some(queue) = self.peers.get(&id) else { return };
        let empty = queue.is_empty(1) && queue.control.is_empty();
        let ordinary = queue.payload_bytes_max == self.payload_bytes_max;
        if !empty && !queue.blocked {
            self.wake(id);
        } else if empty && ordinary && !queue.blocked && !queue.ready {
            self.peers.remove(&id);
        }
    }

    fn wake(&mut self, id: PeerId) {
        let queue = self.queue(id);
        if !core::mem::replace(&mut queue.ready, true) {
            self.ready.push_back(id);
        }
    }

    /// The transport takes datagrams for this peer again.
    pub(super) fn unblock(&mut self, id: PeerId) {
        self.queue(id).blocked = false;
        self.wake(id);
    }

    /// Datagrams to this peer must be smaller by so much.
    pub(super) fn shrink(&mut self, id: PeerId, bytes: usize) {
        let most = self.payload_bytes_max.saturating_sub(bytes);
        self.queue(id).payload_bytes_max = most;
    }
}

impl PeerQueue {
    /// Whether nothing waits in a line, nor in one before it.
    fn is_empty(&self, line: usize) -> bool {
        self.lines[..=line].iter().all(|line| line.waiting.is_empty())
    }
}

impl Device {
    /// Puts an operation into its line.
    pub(super) fn list(&mut self, key: Key) {
        let Some(op) = self.ops.at_mut(key) else { return };
        if !core::mem::replace(&mut op.listed, true) {
            let (peer, line) = (op.peer, op.line());
            self.outbox.queue(peer).lines[line].waiting.push_back(key);
            self.outbox.wake(peer);
        }
    }

    /// Begins an operation: at once, if nothing waits for its peer.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        memory: &mut dyn Memory,
        key: Key,
    ) {
        let Some(op) = self.ops.at(key) else { return };
        let line = op.line();
        let queue = self.outbox.look(op.peer);
        if queue.is_some_and(|queue| queue.blocked || !queue.is_empty(line)) {
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
        if let Some(op) = self.ops.at(key) {
            let peer = op.peer;
            self.outbox.queue(peer).blocked = true;
        }
    }

    /// Sends on what waits, as far as the transport takes it. Returns how many datagrams it
    /// took: when none, there is nothing to do until something arrives or is acknowledged.
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

    /// What waits for a peer, as far as it takes it.
    fn serve(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        memory: &mut dyn Memory,
        id: PeerId,
    ) -> u32 {
        let mut handed = self.send_control(now, endpoint, id);
        for line in 0..self.outbox.queue(id).lines.len() {
            handed += self.serve_line(now, endpoint, memory, (id, line));
        }
        handed
    }

    /// One turn for each operation in a line. A turn that the transport cuts short goes on when it
    /// takes more.
    fn serve_line(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        memory: &mut dyn Memory,
        (id, line): (PeerId, usize),
    ) -> u32 {
        let mut handed = 0;
        let mut turns = self.outbox.queue(id).lines[line].waiting.len();
        while turns > 0 && !self.outbox.queue(id).blocked {
            let first = &mut self.outbox.queue(id).lines[line];
            let Some(&key) = first.waiting.front() else { break };
            if first.turn == TURN_DATAGRAMS {
                first.waiting.rotate_left(1);
                first.turn = 0;
                turns -= 1;
                continue;
            }
            let step = self.step(now, endpoint, memory, key);
            if matches!(step, Step::More | Step::Handed) {
                self.outbox.queue(id).lines[line].turn += 1;
                handed += 1;
            }
            match step {
                Step::More => continue,
                Step::Handed | Step::Idle => self.unlist(id, line, key),
                Step::Failed(status) => {
                    self.unlist(id, line, key);
                    self.fail(key, status);
                }
                Step::Full => self.block(key),
                Step::Later => break,
            }
            turns -= 1;
        }
        handed
    }

    /// Takes the first out of its line.
    fn unlist(&mut self, id: PeerId, line: usize, key: Key) {
        let line = &mut self.outbox.queue(id).lines[line];
        line.waiting.pop_front();
        line.turn = 0;
        if let Some(op) = self.ops.at_mut(key) {
            op.listed = false;
        }
    }

    /// Words about transfers that were given up.
    fn send_control(&mut self, now: Instant, endpoint: &mut Endpoint, id: PeerId) -> u32 {
        let mut handed = 0;
        while let Some(datagram) = self.outbox.queue(id).control.front() {
            match endpoint.send(now, id, datagram.clone()) {
                Err(SendError::QueueFull) => {
                    self.outbox.queue(id).blocked = true;
                    break;
                }
                // A peer that is gone needs no word.
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

    /// Tells the target of a write that the rest will not come.
    pub(super) fn abort_write(&mut self, key: Key, number: u32) {
        if let Some(op) = self.ops.at(key) {
            let (peer, from, to) = (op.peer, op.qpn, op.remote_qpn);
            self.push_control(peer, from, to, Opaque::WriteAbort { number });
        }
    }

    /// Tells who reads that the rest will not come.
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

    /// Sends the next datagram of an operation.
    fn step(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        memory: &mut dyn Memory,
        key: Key,
    ) -> Step {
        let Some(op) = self.ops.at(key) else { return Step::Idle };
        if op.status != WcStatus::Ok {
            return Step::Idle; // it ends when what is on its way has been settled
        }
        let Some(qp) = self.qp(op.qpn) else { return Step::Idle };
        let unreliable = qp.init.qp_type == QpType::Ud;
        // A request does not wait for what was asked for in the other direction.
        let asks = matches!(op.work, Work::Read { .. });
        let class = if asks { Class::LowLatency } else { qp.class() };
        let is_bulk = op.line() > 0;
        if is_bulk && endpoint.unsent_bytes(op.peer) >= self.config.unsent_bytes_max {
            return Step::Later;
        }
        let room = self.outbox.look(op.peer).map(|queue| queue.payload_bytes_max);
        let room = room.unwrap_or(self.outbox.payload_bytes_max);
        let live = |place: &Place| op.length == 0 || self.regions.is_live(place.key);
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
            user: key.to_user_part(TAG, op.cuts.part()),
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
            Ok(()) => self.ops.at_mut(key).map_or(Step::Idle, |op| op.sent(bytes)),
            Err(SendError::QueueFull) if unreliable => Step::Later,
            Err(SendError::QueueFull) => Step::Full,
            Err(SendError::TooLarge { max_bytes }) if is_bulk && max_bytes > RDMA_HEADER_BYTES => {
                self.outbox.queue(peer).payload_bytes_max = max_bytes;
                Step::Later
            }
            Err(SendError::TooLarge { .. }) => Step::Failed(WcStatus::LocalBadLength),
            Err(SendError::UnknownPeer) => Step::Failed(WcStatus::LocalInvalidAh),
            Err(_) => Step::Later,
        }
    }
}

impl Op {
    /// Which line it stands in.
    fn line(&self) -> usize {
        match self.work {
            Work::Send { .. } | Work::Read { .. } => 0,
            Work::Write { .. } | Work::Respond { .. } => 1,
        }
    }

    /// Whether all of a transfer's bytes were handed over.
    pub(super) fn is_sent(&self) -> bool {
        let sent = match self.work {
            Work::Write { sent, .. } | Work::Respond { sent, .. } => sent == self.length,
            Work::Send { .. } | Work::Read { .. } => true,
        };
        sent && self.cuts.again().is_none()
    }

    /// A datagram was too large for the path. Whether its bytes can go again in smaller ones.
    pub(super) fn cut_again(&mut self, part: u16) -> bool {
        match &mut self.work {
            Work::Write { sent, stage, .. } if *stage != Stage::Open => {
                // The one that opens the transfer is alone on its way.
                (*sent, *stage) = (0, Stage::Unsent);
                self.cuts.forget();
            }
            Work::Write { .. } | Work::Respond { .. } => self.cuts.refuse(part),
            Work::Send { .. } | Work::Read { .. } => return false,
        }
        true
    }

    /// Whether a write has bytes to send that nothing keeps.
    fn is_unfinished(&self) -> bool {
        match self.work {
            Work::Write { stage: Stage::Unsent, .. } => true,
            Work::Write { stage: Stage::Open, .. } => !self.is_sent(),
            _ => false,
        }
    }

    /// What goes next, if anything does and its memory is still registered.
    fn next_datagram(
        &self,
        memory: &mut dyn Memory,
        room: usize,
        live: impl Fn(&Place) -> bool,
    ) -> Option<(Opaque, Bytes)> {
        let mut piece = |from: &Place, sent: u32, room: usize| {
            let bytes = room.min((self.length - sent) as usize);
            if bytes == 0 {
                return Bytes::new();
            }
            memory.read(from.region, from.offset + u64::from(sent), bytes)
        };
        if let Some((offset, to)) = self.cuts.again() {
            return self.repeat(offset, room.min((to - offset) as usize), memory, live);
        }
        match &self.work {
            Work::Send { payload, imm } => {
                let payload = payload.clone()?;
                Some((Opaque::Send { check: self.check, imm: *imm }, payload))
            }
            Work::Write { number, from, to, imm, sent, stage } => match stage {
                _ if !live(from) => None,
                Stage::Unsent => {
                    let (number, length) = (*number, self.length);
                    let header = RdmaHeader { addr: to.addr, rkey: to.rkey, length, number };
                    let data = piece(from, 0, room.saturating_sub(RDMA_HEADER_BYTES));
                    let mut whole = BytesMut::with_capacity(RDMA_HEADER_BYTES + data.len());
                    whole.extend_from_slice(&header.encode());
                    whole.extend_from_slice(&data);
                    let opaque = Opaque::Write { check: self.check, imm: *imm, part: self.part };
                    Some((opaque, whole.freeze()))
                }
                Stage::Opening => None,
                Stage::Open if *sent == self.length => None,
                Stage::Open => {
                    let opaque = Opaque::WriteData { number: *number, offset: *sent };
                    Some((opaque, piece(from, *sent, room)))
                }
            },
            Work::Read { asked: true, .. } => None,
            Work::Read { number, from, .. } => {
                let (length, number) = (self.length, *number);
                let header = RdmaHeader { addr: from.addr, rkey: from.rkey, length, number };
                let opaque = Opaque::Read { check: self.check, part: self.part };
                Some((opaque, Bytes::copy_from_slice(&header.encode())))
            }
            Work::Respond { from, sent, .. } if *sent == self.length || !live(from) => None,
            Work::Respond { number, from, sent } => {
                let opaque = Opaque::ReadData { number: *number, offset: *sent };
                Some((opaque, piece(from, *sent, room)))
            }
        }
    }

    /// Bytes that go again.
    fn repeat(
        &self,
        offset: u32,
        bytes: usize,
        memory: &mut dyn Memory,
        live: impl Fn(&Place) -> bool,
    ) -> Option<(Opaque, Bytes)> {
        let (from, opaque) = match self.work {
            Work::Write { number, from, .. } => (from, Opaque::WriteData { number, offset }),
            Work::Respond { number, from, .. } => (from, Opaque::ReadData { number, offset }),
            Work::Send { .. } | Work::Read { .. } => return None,
        };
        live(&from)
            .then(|| (opaque, memory.read(from.region, from.offset + u64::from(offset), bytes)))
    }

    /// A datagram with so many payload bytes was handed over.
    fn sent(&mut self, bytes: usize) -> Step {
        self.in_flight += 1;
        let count = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Some((offset, _)) = self.cuts.again() {
            self.cuts.note(offset, count(bytes));
            return if self.is_sent() { Step::Handed } else { Step::More };
        }
        match &mut self.work {
            Work::Send { payload, .. } => *payload = None,
            Work::Write { sent, stage, .. } => {
                if *stage == Stage::Unsent {
                    *sent = count(bytes - RDMA_HEADER_BYTES);
                    *stage = Stage::Opening;
                    self.cuts.note(0, *sent);
                } else {
                    self.cuts.note(*sent, count(bytes));
                    *sent += count(bytes);
                    if *sent < self.length {
                        return Step::More;
                    }
                }
            }
            Work::Read { asked, .. } => *asked = true,
            Work::Respond { sent, .. } => {
                self.cuts.note(*sent, count(bytes));
                *sent += count(bytes);
                if *sent < self.length {
                    return Step::More;
                }
            }
        }
        Step::Handed
    }
}
