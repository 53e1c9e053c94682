//! Atomic operations: one ATOMIC frame to the target, one RESULT frame back (A3 to A5). The target
//! executes them in the order of their sender's messages, so two operations of one sender execute
//! in order. No atomic operation sees an element that another one has changed only in part.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bytes::{Bytes, BytesMut};

use crate::layer::completion::{Kind, Outcome};
use crate::layer::request::{Atomic, AtomicOp, Datatype, RmaIov};
use crate::layer::world::{Refused, World};
use crate::memory::Memory;
use crate::mr::{MemoryLocation, Purpose, Range};
use crate::rdm::iovec::{IOV_COUNT_MAX, IoVec, RmaIoVec};
use crate::rdm::receive::inbound::Refusal;
use crate::rdm::rma::arithmetic::apply;
use crate::rdm::send::operation::{AtomicKind, AtomicOut, Op, Stage, Step, Work};
use crate::rdm::state::Rdm;
use crate::rdm::wire::encode;
use crate::rdm::wire::field::{STATUS_BAD_KEY, STATUS_FAILED, STATUS_OK};
use crate::rdm::wire::frame::{AtomicIov, Frame};
use crate::rdm::wire::message::MESSAGE_COST;
use crate::slots::Key;

/// While this number of control frames waits for a peer, its atomic operations are refused. So the
/// results that a peer does not accept take at most about 5 MB.
pub(crate) const RESULTS_MAX: usize = 4096;

/// A checked operation, ready to execute.
struct Request<'a> {
    kind: AtomicKind,
    iov: &'a [RmaIov],
    operands: &'a [u8],
}

impl Rdm {
    /// Executes an atomic operation on a peer's memory.
    ///
    /// # Errors
    /// `Invalid` if the operation is not defined for the type, or its pieces do not fit each other;
    /// `TooLong` beyond [`Rdm::atomic_bytes_max`]; `NoSuchPeer` if there is no such peer; `Again`
    /// if a table is full.
    pub fn atomic(&mut self, world: &mut World<'_>, atomic: Atomic<'_>) -> Result<(), Refused> {
        let (op, datatype) = (atomic.op, atomic.datatype);
        let of = |iov| IoVec::of(iov).ok_or(Refused::Invalid);
        let (operand, compare) = (of(atomic.operand)?, of(atomic.compare)?);
        let result = of(atomic.result)?;
        let remote = RmaIoVec::of(atomic.remote).ok_or(Refused::Invalid)?;
        let bytes = remote.length().filter(|bytes| *bytes > 0).ok_or(Refused::Invalid)?;
        let fetches = result.length() > 0;
        let fits = operand.length() == if op == AtomicOp::Read { 0 } else { bytes }
            && compare.length() == if op.compares() { bytes } else { 0 }
            && (!fetches || result.length() == bytes)
            && (fetches || op != AtomicOp::Read)
            && are_whole(remote.as_slice(), datatype);
        if !fits || !op.is_defined(datatype) {
            return Err(Refused::Invalid);
        }
        if bytes > self.atomic_bytes_max(op.compares()) {
            return Err(Refused::TooLong);
        }
        let form = if op.compares() { 2 } else { u8::from(fetches) };
        let mut operands = BytesMut::new();
        for from in [&operand, &compare] {
            let bytes = usize::try_from(from.length()).unwrap_or(0);
            from.append(world.memory, 0, bytes, &mut operands);
        }
        let out = AtomicOut {
            kind: AtomicKind { op, datatype, form },
            operands: operands.freeze(),
            result,
            remote,
            stage: Stage::Waiting,
            id: 0,
            session: 0,
        };
        let kind = if form == 0 { Kind::Atomic } else { Kind::FetchAtomic };
        let op = self.new_op(atomic.to, kind, Work::Atomic(Box::new(out)))?;
        let (context, until, signaled) = (atomic.context, atomic.until, atomic.signaled);
        self.submit(world, Op { context, until, signaled, ..op })
    }

    /// Sends the atomic operation at the head of its connection's queue.
    pub(crate) fn step_atomic(&mut self, world: &mut World<'_>, index: u32, key: Key) -> Step {
        let Some(conn) = self.conn_mut(index) else { return Step::Over };
        let Some(session) = conn.session.as_mut() else { return Step::Wait };
        if session.used + MESSAGE_COST > session.limit {
            return Step::Wait;
        }
        let (id, number, check) = (session.next_id, session.number, session.check);
        let Some(Op { work: Work::Atomic(atomic), .. }) = self.ops.get_mut(key) else {
            return Step::Over;
        };
        if atomic.stage == Stage::Sent {
            return Step::Over;
        }
        let AtomicOut { kind, operands, remote, .. } = &**atomic;
        let mut list = [AtomicIov::default(); IOV_COUNT_MAX];
        for (to, piece) in list.iter_mut().zip(remote.as_slice()) {
            let bytes = u32::try_from(piece.length).unwrap_or(0);
            *to = AtomicIov { addr: piece.addr, rkey: piece.rkey, bytes };
        }
        let iov = &list[..remote.as_slice().len()];
        let what = [kind.op.number(), kind.datatype.number(), kind.form];
        let mut frame = encode::atomic(id, what, key.to_bits(), iov);
        frame.extend_from_slice(operands);
        let handed = self.hand_op(world, index, key, 0, (check, None, frame.freeze()));
        if let Some(step) = self.note_handed(index, key, handed) {
            return step;
        }
        if let Some(session) = self.conn_mut(index).and_then(|conn| conn.session.as_mut()) {
            session.next_id = id.wrapping_add(1);
            session.used += MESSAGE_COST;
        }
        if let Some((stage, to_id, to_session)) = self.ops.get_mut(key).and_then(Op::stage_mut) {
            (*stage, *to_id, *to_session) = (Stage::Sent, id, number);
        }
        Step::Over
    }

    /// Executes a peer's atomic operation that is next in order. A fault of the operation is
    /// reported in its RESULT (A3).
    pub(crate) fn on_atomic(
        &mut self,
        index: u32,
        frame: &Frame<'_>,
        memory: &mut dyn Memory,
    ) -> Result<(), Refusal> {
        let Frame::Atomic { op, datatype, form, token, iov, count, operands, .. } = *frame else {
            return Err(Refusal::Malformed);
        };
        let results = self.conn(index).map_or(0, |conn| conn.control.len());
        if self.is_full() || results >= RESULTS_MAX {
            return Err(Refusal::Rnr);
        }
        let list =
            iov.map(|AtomicIov { addr, rkey, bytes }| RmaIov { addr, rkey, length: bytes.into() });
        let op = AtomicOp::of_number(op);
        let datatype = Datatype::of_number(datatype);
        let kind = op.zip(datatype).map(|(op, datatype)| AtomicKind { op, datatype, form });
        let iov = &list[..count];
        let before = match kind {
            Some(kind) => self.execute(&Request { kind, iov, operands }, memory),
            None => Err(STATUS_FAILED),
        };
        self.give_back(index, MESSAGE_COST);
        let (status, bytes) = match &before {
            Ok(bytes) if form > 0 => (STATUS_OK, &bytes[..]),
            Ok(_) => (STATUS_OK, &[][..]),
            Err(status) => (*status, &[][..]),
        };
        self.queue_reply(index, encode::result(token, status, bytes));
        if before.is_ok() && self.config.report_remote {
            let read = op == Some(AtomicOp::Read);
            let kind = if read { Kind::RemoteRead } else { Kind::RemoteWrite };
            let length = list[..count].iter().map(|piece| piece.length).sum();
            self.report_remote(index, kind, length, None);
        }
        Ok(())
    }

    /// Executes an operation on this endpoint's memory. Returns the previous elements, or the
    /// status of the failure (A4).
    fn execute(&self, request: &Request<'_>, memory: &mut dyn Memory) -> Result<Vec<u8>, u8> {
        let Request { kind: AtomicKind { op, datatype, form }, iov, operands } = *request;
        let bytes = iov.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.length));
        let most = self.atomic_bytes_max(op.compares());
        let bytes = bytes.filter(|bytes| *bytes > 0 && *bytes <= most).ok_or(STATUS_FAILED)?;
        let bytes = usize::try_from(bytes).map_err(|_| STATUS_FAILED)?;
        let (operand, compare) = match op {
            AtomicOp::Read => (0, 0),
            _ if op.compares() => (bytes, bytes),
            _ => (bytes, 0),
        };
        let fits = op.is_defined(datatype)
            && op.compares() == (form == 2)
            && (op != AtomicOp::Read || form == 1)
            && operands.len() == operand + compare
            && are_whole(iov, datatype);
        if !fits {
            return Err(STATUS_FAILED);
        }
        let mut places: Vec<(MemoryLocation, usize)> = Vec::with_capacity(iov.len());
        for piece in iov {
            let range = Range { addr: piece.addr, length: piece.length, key: piece.rkey };
            let may = |purpose| self.device.target(self.pd, range, purpose);
            let read = if form > 0 { may(Purpose::RemoteRead) } else { None };
            let place = if op == AtomicOp::Read { read } else { may(Purpose::RemoteWrite) };
            let place = place.filter(|_| form == 0 || read.is_some()).ok_or(STATUS_BAD_KEY)?;
            places.push((place, usize::try_from(piece.length).map_err(|_| STATUS_FAILED)?));
        }
        let (operand, compare) = operands.split_at(operand);
        let mut before = Vec::with_capacity(bytes);
        for (place, length) in places {
            let mut elements = memory.read(place.region, place.offset, length).to_vec();
            let at = before.len();
            before.extend_from_slice(&elements);
            if op == AtomicOp::Read {
                continue;
            }
            let part = |of: &[u8]| at.min(of.len())..(at + length).min(of.len());
            apply(op, datatype, &mut elements, &operand[part(operand)], &compare[part(compare)]);
            memory.write(place.region, place.offset, &elements);
        }
        Ok(before)
    }

    /// Handles a peer's RESULT. Returns false if no operation waits for it.
    pub(crate) fn on_result(
        &mut self,
        index: u32,
        token: u64,
        status: u8,
        bytes: &[u8],
        memory: &mut dyn Memory,
    ) -> bool {
        let op = self.ops.get(Key::from_bits(token)).filter(|op| op.conn == index);
        let Some((op, Work::Atomic(atomic))) = op.map(|op| (op, &op.work)) else { return false };
        let expected = if atomic.kind.form > 0 { op.length } else { 0 };
        let (mut status, result) = (status, atomic.result);
        if status == STATUS_OK && bytes.len() as u64 != expected {
            status = STATUS_FAILED;
        }
        let waits = op.answer.is_none() && op.failure.is_none();
        if waits && status == STATUS_OK && result.length() > 0 {
            result.write(memory, 0, bytes);
        }
        self.on_status(index, token, status)
    }

    /// Executes an operation of this endpoint on its own memory.
    pub(crate) fn atomic_loopback(
        &mut self,
        world: &mut World<'_>,
        key: Key,
    ) -> Result<(), Refused> {
        let Some(Op { work: Work::Atomic(atomic), .. }) = self.ops.get(key) else { return Ok(()) };
        let (kind, result, remote) = (atomic.kind, atomic.result, atomic.remote);
        let operands: Bytes = atomic.operands.clone();
        let request = Request { kind, iov: remote.as_slice(), operands: &operands };
        let outcome = match self.execute(&request, world.memory) {
            Ok(before) => {
                result.write(world.memory, 0, &before);
                Outcome::Ok
            }
            Err(STATUS_BAD_KEY) => Outcome::BadKey,
            Err(_) => Outcome::Protocol,
        };
        self.end(key, outcome);
        Ok(())
    }
}

/// Whether every piece consists of whole elements.
fn are_whole(iov: &[RmaIov], datatype: Datatype) -> bool {
    let size = datatype.bytes() as u64;
    iov.iter().all(|piece| piece.length % size == 0)
}
