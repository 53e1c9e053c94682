//! Data transfer: calls from C become calls of an endpoint's layer.

use srd_efa::layer::{
    Atomic, AtomicOp, Datatype, Iov, Layer, Message, Peek, Peer, Receive, Refused, Rma, RmaIov,
    Selector, Until, World,
};
use srd_host::CallError;

use crate::abi::bits::{
    FI_CLAIM, FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_DIRECTED_RECV, FI_DISCARD, FI_INJECT,
    FI_MULTI_RECV, FI_PEEK,
};
use crate::abi::errno::{
    FI_EAGAIN, FI_EBADFLAGS, FI_EINVAL, FI_EIO, FI_EMSGSIZE, FI_ENOMSG, FI_ENOSYS, FI_EOPBADSTATE,
};
use crate::abi::fid::{FI_ADDR_NOTAVAIL, FI_ADDR_UNSPEC};
use crate::objects::endpoint::{Active, Endpoint};
use crate::requests::offers::IOV_LIMIT;
use crate::results::ledger::{Entry, OpKind};
use crate::results::sink::EndpointSink;
use crate::{Errno, Outcome};

/// Pieces of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    iov: [Iov; IOV_LIMIT],
    count: usize,
}

impl Buffer {
    /// Returns a buffer of several pieces, each with its address and its bytes.
    ///
    /// # Errors
    /// `FI_EINVAL` for more than [`IOV_LIMIT`] pieces.
    pub fn of(iov: impl ExactSizeIterator<Item = (usize, usize)>) -> Outcome<Self> {
        let mut buffer = Self { iov: [Iov { addr: 0, length: 0 }; IOV_LIMIT], count: 0 };
        if iov.len() > IOV_LIMIT {
            return Err(Errno(FI_EINVAL));
        }
        for (addr, length) in iov {
            buffer.iov[buffer.count] = Iov { addr: addr as u64, length: length as u64 };
            buffer.count += 1;
        }
        Ok(buffer)
    }

    /// Returns a buffer in one piece.
    #[must_use]
    pub fn one(addr: usize, length: usize) -> Self {
        let mut iov = [Iov { addr: 0, length: 0 }; IOV_LIMIT];
        iov[0] = Iov { addr: addr as u64, length: length as u64 };
        Self { iov, count: 1 }
    }

    fn as_slice(&self) -> &[Iov] {
        &self.iov[..self.count]
    }

    /// Returns the sum of the bytes of all pieces.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.as_slice().iter().fold(0, |sum, piece| sum.saturating_add(piece.length))
    }

    fn first(&self) -> usize {
        usize::try_from(self.iov[0].addr).unwrap_or(0)
    }
}

/// Flags of an operation that concern its completion.
#[derive(Clone, Copy, Debug)]
pub struct TransferFlags {
    flags: u64,
    /// Whether success is never reported.
    silent: bool,
}

impl TransferFlags {
    /// Converts the flags of a call, or the default flags of the endpoint.
    #[must_use]
    pub fn flags(flags: u64) -> Self {
        Self { flags, silent: false }
    }

    /// Returns the flags of `fi_inject` and similar calls: the application may reuse the buffer at
    /// once, and success is not reported.
    #[must_use]
    pub fn inject(flags: u64) -> Self {
        Self { flags: flags | FI_INJECT, silent: true }
    }

    fn signaled(self, selective: bool) -> bool {
        !self.silent && (!selective || self.flags & FI_COMPLETION != 0)
    }

    fn is_copied(self) -> bool {
        self.flags & FI_INJECT != 0
    }

    fn until(self) -> Until {
        if self.flags & FI_DELIVERY_COMPLETE != 0 {
            Until::Delivered
        } else if self.is_copied() {
            Until::Injected
        } else {
            Until::Transmitted
        }
    }
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// The peer's number in the address vector.
    pub to: u64,
    /// Tag of the message, if it has one.
    pub tag: Option<u64>,
    /// Bytes of the message.
    pub buffer: Buffer,
    /// Data for the receiver's completion.
    pub data: Option<u64>,
    /// The application's context of the operation.
    pub context: usize,
}

/// A receive to post.
#[derive(Clone, Copy, Debug)]
pub struct Recv {
    /// The sender's number in the address vector; `FI_ADDR_UNSPEC` for any sender.
    pub from: u64,
    /// Tag, and a mask of the tag bits to ignore; `None` for messages without a tag.
    pub tag: Option<(u64, u64)>,
    /// Buffer for the message.
    pub buffer: Buffer,
    /// The application's context of the operation.
    pub context: usize,
}

/// An access to a peer's memory.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The peer's number in the address vector.
    pub to: u64,
    /// Whether the access is a read; if not, it is a write.
    pub read: bool,
    /// Buffer in local memory.
    pub buffer: Buffer,
    /// Pieces of the peer's memory.
    pub remote: &'a [RmaIov],
    /// Data for the peer's completion.
    pub data: Option<u64>,
    /// The application's context of the operation.
    pub context: usize,
}

/// An atomic operation.
#[derive(Clone, Copy, Debug)]
pub struct Compute<'a> {
    /// The peer's number in the address vector.
    pub to: u64,
    /// Operation on each element.
    pub op: AtomicOp,
    /// Type of the elements.
    pub datatype: Datatype,
    /// Buffer with the operands.
    pub operand: Buffer,
    /// Buffer with the comparands; empty for an operation without comparands.
    pub compare: Buffer,
    /// Buffer for the former values.
    pub result: Buffer,
    /// Memory at the peer that contains the elements.
    pub remote: &'a [RmaIov],
    /// The application's context of the operation.
    pub context: usize,
}

fn refused(refused: Refused) -> Errno {
    Errno(match refused {
        Refused::Again => FI_EAGAIN,
        Refused::NoSuchPeer | Refused::Invalid => FI_EINVAL,
        Refused::TooLong => FI_EMSGSIZE,
    })
}

fn gone(gone: CallError) -> Errno {
    match gone {
        CallError::Forked => {
            crate::core::log(crate::core::Level::Warn, &gone.to_string());
            Errno(FI_EOPBADSTATE)
        }
        CallError::Closed => Errno(FI_EOPBADSTATE),
        CallError::Broken => Errno(FI_EIO),
    }
}

/// Arguments that a call needs to submit an operation.
struct Submitter<'a> {
    layer: &'a mut dyn Layer,
    world: World<'a>,
    sink: &'a mut EndpointSink,
}

impl Submitter<'_> {
    /// Returns the Messaging Layer's number of a peer. A peer that the layer does not have yet is
    /// added.
    fn peer(&mut self, number: u64) -> Outcome<Peer> {
        let at = usize::try_from(number).map_err(|_| Errno(FI_EINVAL))?;
        if let Some(Some(peer)) = self.sink.peers.get(at) {
            return Ok(*peer);
        }
        let vector = self.sink.bindings.vector.as_ref().ok_or(Errno(FI_EINVAL))?;
        let address = vector.find(number)?;
        let added = self.layer.add_peer(&mut self.world, address.place(), address.incarnation);
        let peer = added.map_err(refused)?;
        let place = peer.0 as usize;
        if self.sink.peers.len() <= at {
            self.sink.peers.resize(at + 1, None);
        }
        if self.sink.numbers.len() <= place {
            self.sink.numbers.resize(place + 1, FI_ADDR_NOTAVAIL);
        }
        self.sink.peers[at] = Some(peer);
        self.sink.numbers[place] = number;
        Ok(peer)
    }

    /// Opens a ledger entry for an operation, and closes it if the layer refuses the operation.
    fn open(
        &mut self,
        entry: Entry,
        ask: impl FnOnce(&mut dyn Layer, &mut World<'_>, u64) -> Result<(), Refused>,
    ) -> Outcome {
        let number = self.sink.ledger.open(entry);
        let asked = ask(self.layer, &mut self.world, number);
        if asked.is_err() {
            self.sink.ledger.close(number);
        }
        asked.map_err(refused)
    }

    /// Copies a buffer that the application may reuse at once, for an operation that needs the
    /// bytes longer.
    fn copy(&mut self, buffer: &Buffer) -> Outcome<Box<[u8]>> {
        if buffer.bytes() > self.layer.inject_bytes_max() {
            return Err(Errno(FI_EMSGSIZE));
        }
        let mut copy = Vec::new();
        for piece in buffer.as_slice() {
            let bytes = usize::try_from(piece.length).map_err(|_| Errno(FI_EMSGSIZE))?;
            copy.extend_from_slice(&self.world.memory.read(0, piece.addr, bytes));
        }
        Ok(copy.into_boxed_slice())
    }

    /// Returns the pieces to send and the copy that owns them, if the application may reuse its
    /// buffer before the operation ends. `copies` means that the layer itself copies operations
    /// that end as injected, so no copy is made here.
    fn stable(
        &mut self,
        buffer: Buffer,
        how: TransferFlags,
        copies: bool,
    ) -> Outcome<StableBuffer> {
        let until = how.until();
        if !how.is_copied() || (until == Until::Injected && copies) {
            return Ok(StableBuffer { buffer, copy: None, until });
        }
        let copy = self.copy(&buffer)?;
        let buffer = Buffer::one(copy.as_ptr().expose_provenance(), copy.len());
        let until = if until == Until::Injected { Until::Transmitted } else { until };
        Ok(StableBuffer { buffer, copy: Some(copy), until })
    }

    fn send(&mut self, send: &Send, how: TransferFlags, selective: bool) -> Outcome {
        let to = self.peer(send.to)?;
        let StableBuffer { buffer, copy, until } = self.stable(send.buffer, how, true)?;
        let message = Message {
            to,
            tag: send.tag,
            iov: buffer.as_slice(),
            data: send.data,
            context: 0,
            until,
            signaled: how.signaled(selective),
        };
        if until == Until::Injected && how.silent {
            // The ledger has nothing to add: the application named no context, and only a failure
            // will be reported.
            return self.layer.send(&mut self.world, message).map_err(refused);
        }
        let entry = Entry { context: send.context, copy, ..Entry::default() };
        self.open(entry, |layer, world, context| layer.send(world, Message { context, ..message }))
    }

    fn recv(&mut self, recv: &Recv, flags: u64, signaled: bool, mode: &ReceiveMode) -> Outcome {
        let source = match recv.from {
            FI_ADDR_UNSPEC => None,
            number if mode.directed => Some(self.peer(number)?.0),
            _ => None,
        };
        let (tag, ignore) = recv.tag.unwrap_or((0, u64::MAX));
        let want = Selector { tag, ignore, source };
        let tagged = recv.tag.is_some();
        let buffer = recv.buffer.first();
        let entry = Entry { context: recv.context, buffer, ..Entry::default() };
        if flags & FI_PEEK != 0 {
            let (what, sort) = match flags & (FI_CLAIM | FI_DISCARD) {
                0 => (Peek::Look, OpKind::Once),
                FI_CLAIM => (Peek::Claim, OpKind::Claim),
                FI_DISCARD => (Peek::Discard, OpKind::Once),
                _ => return Err(Errno(FI_EBADFLAGS)),
            };
            let entry = Entry { sort, ..entry };
            return self.open(entry, |layer, _, context| layer.peek(tagged, want, what, context));
        }
        let receive = Receive {
            tagged,
            want,
            iov: recv.buffer.as_slice(),
            context: 0,
            multi: mode.multi,
            signaled,
        };
        if flags & FI_CLAIM != 0 {
            return self.claimed(recv, receive, flags);
        }
        let sort = if mode.multi.is_some() { OpKind::ManyReceives } else { OpKind::Receive };
        self.open(Entry { sort, ..entry }, |layer, world, context| {
            layer.recv(world, Receive { context, ..receive })
        })
    }

    /// Posts a receive for the message that an earlier peek with the same context has claimed, or
    /// discards that message.
    fn claimed(&mut self, recv: &Recv, receive: Receive<'_>, flags: u64) -> Outcome {
        let is_it = |e: &Entry| e.sort == OpKind::Claimed && e.context == recv.context;
        let numbers = self.sink.ledger.numbers(is_it);
        let number = *numbers.first().ok_or(Errno(FI_EINVAL))?;
        let asked = if flags & FI_DISCARD != 0 {
            self.layer.discard_claimed(number, receive.tagged)
        } else {
            let receive = Receive { context: number, multi: None, ..receive };
            self.layer.recv_claimed(&mut self.world, receive)
        };
        match asked {
            Ok(()) => {
                if let Some(entry) = self.sink.ledger.find(number) {
                    entry.sort = OpKind::Receive;
                    entry.buffer = recv.buffer.first();
                }
                Ok(())
            }
            Err(Refused::Again) => Err(Errno(FI_EAGAIN)),
            // The connection to the sender was lost before the whole message arrived.
            Err(_) => {
                self.sink.ledger.close(number);
                Err(Errno(FI_ENOMSG))
            }
        }
    }

    fn rma(&mut self, access: &Access<'_>, how: TransferFlags, selective: bool) -> Outcome {
        if access.read && how.is_copied() {
            return Err(Errno(FI_EINVAL));
        }
        let to = self.peer(access.to)?;
        let copies = self.layer.copies_writes();
        let StableBuffer { buffer, copy, until } = self.stable(access.buffer, how, copies)?;
        let entry = Entry { context: access.context, copy, ..Entry::default() };
        self.open(entry, |layer, world, context| {
            let rma = Rma {
                to,
                read: access.read,
                local: buffer.as_slice(),
                remote: access.remote,
                data: access.data,
                context,
                until,
                signaled: how.signaled(selective),
            };
            layer.rma(world, rma)
        })
    }

    fn atomic(&mut self, compute: &Compute<'_>, how: TransferFlags, selective: bool) -> Outcome {
        let to = self.peer(compute.to)?;
        let entry = Entry { context: compute.context, ..Entry::default() };
        self.open(entry, |layer, world, context| {
            let atomic = Atomic {
                to,
                op: compute.op,
                datatype: compute.datatype,
                operand: compute.operand.as_slice(),
                compare: compute.compare.as_slice(),
                result: compute.result.as_slice(),
                remote: compute.remote,
                context,
                until: how.until(),
                signaled: how.signaled(selective),
            };
            layer.atomic(world, atomic)
        })
    }
}

/// A buffer that stays valid as long as its operation.
struct StableBuffer {
    buffer: Buffer,
    copy: Option<Box<[u8]>>,
    until: Until,
}

/// Options of a receive.
struct ReceiveMode {
    /// Whether a sender in the receive is a condition (`FI_DIRECTED_RECV`). Otherwise it is
    /// ignored.
    directed: bool,
    /// Free bytes that a multi-message buffer must have to stay in use; `None` for another buffer.
    multi: Option<u64>,
}

#[allow(unsafe_code, reason = "names memory of the application's")]
impl Endpoint {
    unsafe fn submit(&self, f: impl FnOnce(&mut Submitter<'_>, &Active) -> Outcome) -> Outcome {
        let active = self.active()?;
        // SAFETY: the caller meets the requirements of this function.
        let called = unsafe {
            active.host.call(|mut call| {
                let (layer, world, sink) = call.parts();
                f(&mut Submitter { layer, world, sink }, active)
            })
        };
        let outcome = called.map_err(gone)?;
        if outcome == Err(Errno(FI_EAGAIN)) {
            // An application that repeats the call must not depend on the progress thread to free a
            // slot.
            active.host.poll();
        }
        outcome
    }

    /// Sends a message.
    ///
    /// # Errors
    /// `FI_EAGAIN` if queues are full; `FI_EINVAL` for an unknown peer or too many pieces;
    /// `FI_EMSGSIZE` if the message is too long; `FI_EOPBADSTATE` if the endpoint is not enabled or
    /// in the child of a fork.
    ///
    /// # Safety
    /// The buffer is readable, and stays unchanged until the end of the operation is reported; with
    /// `FI_INJECT`, until the call returns.
    pub unsafe fn send(&self, send: &Send, how: TransferFlags) -> Outcome {
        // SAFETY: the caller meets the requirements of this function.
        unsafe {
            self.submit(|submitter, active| submitter.send(send, how, active.transmit_selective))
        }
    }

    /// Posts a receive, or peeks at a message.
    ///
    /// # Errors
    /// The errors of [`Endpoint::send`]; `FI_EBADFLAGS` for flags that contradict each other;
    /// `FI_ENOMSG` for a claimed message that is lost.
    ///
    /// # Safety
    /// The buffer is writable, and the application does not use it until the end of the operation
    /// is reported.
    pub unsafe fn recv(&self, recv: &Recv, flags: u64) -> Outcome {
        let many = flags & FI_MULTI_RECV != 0;
        let mode = ReceiveMode {
            directed: self.plan.caps & FI_DIRECTED_RECV != 0,
            multi: many.then(|| self.multi_recv_bytes() as u64),
        };
        if flags & FI_PEEK != 0 {
            // Each peek leaves a completion to be read, and reading one does no work. Without this
            // poll an application that peeks in a loop would never receive a packet.
            self.active()?.host.poll();
        }
        // SAFETY: the caller meets the requirements of this function.
        unsafe {
            self.submit(|submitter, active| {
                let signaled = !active.receive_selective || flags & FI_COMPLETION != 0;
                submitter.recv(recv, flags, signaled, &mode)
            })
        }
    }

    /// Reads or writes a peer's memory.
    ///
    /// # Errors
    /// The errors of [`Endpoint::send`].
    ///
    /// # Safety
    /// The requirements of [`Endpoint::send`]; the buffer of a read must be writable.
    pub unsafe fn rma(&self, access: &Access<'_>, how: TransferFlags) -> Outcome {
        // SAFETY: the caller meets the requirements of this function.
        unsafe {
            self.submit(|submitter, active| submitter.rma(access, how, active.transmit_selective))
        }
    }

    /// Computes in a peer's memory.
    ///
    /// # Errors
    /// The errors of [`Endpoint::send`].
    ///
    /// # Safety
    /// The requirements of [`Endpoint::send`] for operands and comparands; the result buffer must
    /// be writable.
    pub unsafe fn atomic(&self, compute: &Compute<'_>, how: TransferFlags) -> Outcome {
        // SAFETY: the caller meets the requirements of this function.
        unsafe {
            self.submit(|submitter, active| {
                submitter.atomic(compute, how, active.transmit_selective)
            })
        }
    }

    /// Cancels the oldest receive with this context; without such a receive, nothing happens.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` if the endpoint is not enabled; `FI_ENOSYS` for a receive that cannot be
    /// cancelled.
    pub fn cancel(&self, context: usize) -> Outcome {
        // SAFETY: names no memory.
        unsafe {
            self.submit(|submitter, _| {
                let receives = [OpKind::Receive, OpKind::ManyReceives];
                let is_it = |e: &Entry| e.context == context && receives.contains(&e.sort);
                let numbers = submitter.sink.ledger.numbers(is_it);
                for number in numbers {
                    if submitter.layer.cancel(number).ok_or(Errno(FI_ENOSYS))? {
                        break;
                    }
                }
                Ok(())
            })
        }
    }

    /// Returns the largest number of bytes of an atomic operation. `compare`: whether the operation
    /// has comparands.
    ///
    /// # Errors
    /// `FI_EOPBADSTATE` if the endpoint is not enabled.
    pub fn atomic_bytes_max(&self, compare: bool) -> Outcome<usize> {
        let active = self.active()?;
        // SAFETY: names no memory.
        let bytes = unsafe { active.host.call(|call| call.layer.atomic_bytes_max(compare)) };
        bytes.map(|bytes| usize::try_from(bytes).unwrap_or(0)).map_err(gone)
    }
}
