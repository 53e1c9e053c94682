//! Reads and writes of peers' memory, and registrations of memory for peers.
//!
//! The device executes reads and writes, in any order (A1). A write with data for the peer is sent
//! as a PUT if it fits into one datagram; a write whose bytes were copied is always sent as PUTs. A
//! larger write carries its data as the immediate of its only request, if the data has 32 bits;
//! otherwise a NOTE follows (A2).

use alloc::boxed::Box;

use crate::cq::{Completion, WcStatus};
use crate::layer::completion::{Kind, Outcome};
use crate::layer::request::{Rma, RmaIov, Shared, Until};
use crate::layer::world::{Peer, Refused, World};
use crate::memory::Sge;
use crate::mr::{Purpose, Range};
use crate::rdm::iovec::RmaIoVec;
use crate::rdm::send::operation::TAG_RMA;
use crate::rdm::send::operation::{Handed, Op, RmaOut, Source, Step, Work, outcome_of_wc};
use crate::rdm::state::{QPN, Rdm};
use crate::rdm::wire::frame::PUT_HEADER_BYTES;
use crate::rdm::wire::{encode, field};
use crate::slots::Key;
use crate::wr::{RDMA_BYTES_MAX, Remote, SendOp, SendWr};

impl Rdm {
    /// Reads or writes a peer's memory.
    ///
    /// # Errors
    /// `NoSuchPeer` if there is no such peer; `Again` if a table is full; `TooLong` if an injected
    /// write is too long; `Invalid` if the pieces do not fit each other.
    pub fn rma(&mut self, world: &mut World<'_>, rma: Rma<'_>) -> Result<(), Refused> {
        if rma.read && (rma.until == Until::Injected || rma.data.is_some()) {
            return Err(Refused::Invalid);
        }
        let remote = RmaIoVec::of(rma.remote).ok_or(Refused::Invalid)?;
        let source = self.source_of(world, rma.local, rma.until)?;
        if remote.length() != Some(source.length()) || remote.as_slice().is_empty() {
            return Err(Refused::Invalid);
        }
        let kind = if rma.read { Kind::Read } else { Kind::Write };
        let out = RmaOut {
            read: rma.read,
            source,
            remote,
            asked: 0,
            begun: false,
            requests: 0,
            notified: false,
            again: false,
        };
        let op = self.new_op(rma.to, kind, Work::Rma(Box::new(out)))?;
        let (context, until, signaled, data) = (rma.context, rma.until, rma.signaled, rma.data);
        self.submit(world, Op { context, until, signaled, data, ..op })
    }

    /// Registers memory for peers.
    ///
    /// # Errors
    /// `Invalid` if the key is in use or the range exceeds the address space; `Again` if there are
    /// too many registrations.
    pub fn share(&mut self, shared: Shared) -> Result<(), Refused> {
        let mr = shared.register(&mut self.device, self.pd)?;
        self.shares.insert(shared.rkey, mr);
        Ok(())
    }

    /// Deregisters memory: transfers that use it fail. The transport may still send from the
    /// memory: see [`Rdm::lent`].
    pub fn unshare(&mut self, rkey: u64) {
        if let Some(mr) = self.shares.remove(&rkey) {
            let _ = self.device.dereg_mr(mr);
        }
    }

    /// Returns the number of deregistered pieces of memory from which the transport still sends. As
    /// long as it is not zero, none of these pieces may be unmapped.
    pub fn lent(&self) -> usize {
        self.device.leaving()
    }

    /// Sends the next frames, or posts the next work requests, of a read or write.
    pub(crate) fn step_rma(&mut self, world: &mut World<'_>, index: u32, key: Key) -> Step {
        loop {
            let alone = self.puts(index, key);
            let Some(op) = self.ops.get_mut(key) else { return Step::Over };
            let (length, data, failed) = (op.length, op.data, op.failure.is_some());
            let idle = op.in_flight == 0;
            let Work::Rma(rma) = &mut op.work else { return Step::Over };
            rma.again = false;
            let more = !failed && (!rma.begun || rma.asked < length);
            let note = !more && !failed && data.is_some() && !rma.notified;
            let copied = matches!(rma.source, Source::Owned(_));
            let handed = if more && (copied || alone) {
                self.send_put(world, index, key)
            } else if more {
                match self.post_rma(world, index, key) {
                    Some(step) => return step,
                    None => continue,
                }
            } else if note && rma.requests == 0 && idle {
                self.send_note(world, index, key)
            } else {
                return Step::Over;
            };
            if let Some(step) = self.note_handed(index, key, handed) {
                return step;
            }
        }
    }

    /// Whether a write is sent as a single PUT, a frame with the bytes. Such a write fits into one
    /// datagram, has data for the peer or no bytes, and goes to one piece of memory.
    fn puts(&self, index: u32, key: Key) -> bool {
        let (Some(conn), Some(op)) = (self.conn(index), self.ops.get(key)) else { return false };
        let Work::Rma(rma) = &op.work else { return false };
        let fits = PUT_HEADER_BYTES as u64 + op.length <= conn.payload_bytes_max as u64;
        let bare = op.length == 0;
        !rma.read && fits && (op.data.is_some() || bare) && rma.remote.as_slice().len() == 1
    }

    /// Sends the next PUT of a write.
    fn send_put(&mut self, world: &mut World<'_>, index: u32, key: Key) -> Handed {
        let (Some(conn), Some(op)) = (self.conn(index), self.ops.get(key)) else {
            return Handed::Never;
        };
        let Work::Rma(rma) = &op.work else { return Handed::Never };
        let room = (conn.payload_bytes_max - PUT_HEADER_BYTES) as u64;
        let first = rma.remote.as_slice()[0];
        let none = RmaIov { length: 0, ..first };
        let to = rma.remote.run_at(rma.asked, room).unwrap_or(none);
        let last = rma.asked + to.length == op.length;
        let whole = last && rma.asked == 0;
        if last && op.in_flight > 0 && op.data.is_none() {
            return Handed::Full; // A2: the last frame waits for the others
        }
        // Only a write of one frame carries its data in the frame: the order of several frames is
        // not known.
        let data = op.data.filter(|_| whole);
        let bytes = usize::try_from(to.length).unwrap_or(0);
        let more = !last || op.data.is_some() && !whole;
        let mut frame = encode::put(data, more, to.addr, to.rkey, bytes);
        rma.source.append(world.memory, rma.asked, bytes, &mut frame);
        let check = field::run_check(conn.remote);
        let handed = self.hand_op(world, index, key, 0, (check, None, frame.freeze()));
        if handed == Handed::Yes
            && let Some(Op { work: Work::Rma(rma), .. }) = self.ops.get_mut(key)
        {
            rma.begun = true;
            rma.asked += to.length;
            rma.notified |= data.is_some();
        }
        handed
    }

    /// Sends a NOTE with the data of a write, if none of the write's requests and frames carried
    /// the data (A2).
    fn send_note(&mut self, world: &mut World<'_>, index: u32, key: Key) -> Handed {
        let (Some(conn), Some(op)) = (self.conn(index), self.ops.get(key)) else {
            return Handed::Never;
        };
        let check = field::run_check(conn.remote);
        let frame = encode::note(op.data.unwrap_or(0), op.length).freeze();
        let handed = self.hand_op(world, index, key, 0, (check, None, frame));
        if handed == Handed::Yes
            && let Some(Op { work: Work::Rma(rma), .. }) = self.ops.get_mut(key)
        {
            rma.notified = true;
        }
        handed
    }

    /// Posts the next work request of a read or write. Returns `None` if the request was posted,
    /// and otherwise the reason why the operation cannot continue now.
    fn post_rma(&mut self, world: &mut World<'_>, index: u32, key: Key) -> Option<Step> {
        let (Some(conn), Some(op)) = (self.conn(index), self.ops.get(key)) else {
            return Some(Step::Over);
        };
        let Work::Rma(rma) = &op.work else { return Some(Step::Over) };
        let Source::IoVec(local) = &rma.source else { return Some(Step::Over) };
        let most = u64::from(RDMA_BYTES_MAX).min(self.bounds.read_bytes_max);
        let local = local.run_at(rma.asked, most);
        let bytes = local.map_or(0, |local| local.length);
        let none = RmaIov { length: 0, ..rma.remote.as_slice()[0] };
        let remote = rma.remote.run_at(rma.asked, bytes).unwrap_or(none);
        let length = u32::try_from(remote.length).unwrap_or(0);
        let addr = local.map_or(0, |local| local.addr);
        let local = Sge { addr, length, lkey: self.lkey };
        let to = Remote { addr: remote.addr, rkey: remote.rkey };
        let last = rma.asked + u64::from(length) == op.length;
        if last && rma.requests > 0 && op.data.is_none() {
            return Some(Step::Wait); // A2: the last request waits for the others
        }
        // The request of a write of one piece carries data of 32 bits.
        let whole = u64::from(length) == op.length;
        let imm = op.data.filter(|_| whole).and_then(|data| u32::try_from(data).ok());
        let told = imm.is_some();
        let data = op.data;
        let op = if rma.read {
            SendOp::RdmaRead { local, remote: to }
        } else {
            SendOp::RdmaWrite { local, remote: to, imm }
        };
        let wr = SendWr {
            wr_id: key.to_user(TAG_RMA),
            ah: conn.ah,
            remote_qpn: QPN,
            remote_qkey: field::qkey_of(conn.remote),
            op,
            part: !last || data.is_some() && !told,
        };
        let posted = self.device.post_send(world.now, world.endpoint, world.memory, QPN, wr);
        if posted.is_err() {
            self.wake(index);
            return Some(Step::Wait);
        }
        if let Some(Op { work: Work::Rma(rma), .. }) = self.ops.get_mut(key) {
            rma.begun = true;
            rma.asked += u64::from(length);
            rma.requests += 1;
            rma.notified |= told;
        }
        None
    }

    /// Handles the end of a work request of a read or write.
    pub(crate) fn rma_ended(&mut self, key: Key, completion: &Completion) {
        let Some(op) = self.ops.get_mut(key) else { return };
        let index = op.conn;
        match completion.status {
            WcStatus::Ok => op.acked += 1,
            WcStatus::RemoteBadDestQpn | WcStatus::RemoteUnknownPeer => op.refused += 1,
            other => op.failure = op.failure.or(Some(outcome_of_wc(other))),
        }
        if let Work::Rma(rma) = &mut op.work {
            rma.requests -= 1;
        }
        self.on_idle(key);
        self.requeue_refused(index);
    }

    /// Handles a read or write of which all requests and frames were acknowledged: ends it, or
    /// sends its NOTE first.
    pub(crate) fn rma_sent(&mut self, key: Key) {
        let Some(op) = self.ops.get_mut(key) else { return };
        let (index, data) = (op.conn, op.data);
        let Work::Rma(rma) = &op.work else { return };
        if data.is_none() || rma.notified {
            self.end(key, Outcome::Ok);
        } else if !core::mem::replace(&mut op.queued, true) {
            if let Some(conn) = self.conn_mut(index) {
                conn.rmas.push_front(key);
            }
            self.wake(index);
        }
    }

    /// Reads or writes this endpoint's own memory as a peer would.
    pub(crate) fn rma_loopback(&mut self, world: &mut World<'_>, key: Key) -> Result<(), Refused> {
        let Some(op) = self.ops.get(key) else { return Ok(()) };
        let (length, data, peer) = (op.length, op.data, op.peer);
        let Work::Rma(rma) = &op.work else { return Ok(()) };
        let purpose = if rma.read { Purpose::RemoteRead } else { Purpose::RemoteWrite };
        let place = |piece: &RmaIov| {
            let range = Range { addr: piece.addr, length: piece.length, key: piece.rkey };
            self.device.target(self.pd, range, purpose)
        };
        if !rma.remote.as_slice().iter().all(|piece| place(piece).is_some()) {
            self.end(key, Outcome::BadKey);
            return Ok(());
        }
        let mut at = 0;
        for piece in rma.remote.as_slice() {
            let Some(to) = place(piece).filter(|_| piece.length > 0) else { continue };
            let bytes = usize::try_from(piece.length).unwrap_or(0);
            match (&rma.source, rma.read) {
                (Source::IoVec(local), true) => {
                    let read = world.memory.read(to.region, to.offset, bytes);
                    local.write(world.memory, at, &read);
                }
                (source, _) => {
                    let from = source.read(world.memory, at, bytes);
                    world.memory.write(to.region, to.offset, &from);
                }
            }
            at += piece.length;
        }
        let read = rma.read;
        self.end(key, Outcome::Ok);
        if data.is_some() || self.config.report_remote {
            let kind = if read { Kind::RemoteRead } else { Kind::RemoteWrite };
            self.report_remote(u32::MAX, kind, length, data);
            if let Some(done) = self.done.back_mut() {
                done.peer = Some(Peer(peer));
            }
        }
        Ok(())
    }
}
