//! Messages, reads, writes and atomic operations.

use srd_efa::layer::{
    Atomic, AtomicOp, Datatype, Iov, Message, Receive, Rma, RmaIov, Selector, Until,
};

use crate::endpoint::{Endpoint, Submitter};
use crate::{Error, Outcome, Status};

/// Flag: the program may reuse the buffer when the call returns, and only a failure is reported.
pub const SRD_INJECT: u32 = 1;
/// Flag: the operation completes when its data is in the peer's memory.
pub const SRD_DELIVERED: u32 = 2;
/// Flag: the operation reports only a failure, not its success.
pub const SRD_QUIET: u32 = 4;

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// Handle of the peer.
    pub peer: u64,
    /// Tag of the message.
    pub tag: u64,
    /// Bytes of the message.
    pub piece: Iov,
    /// Flags such as `SRD_INJECT`.
    pub flags: u32,
    /// Context that is returned in the event.
    pub context: usize,
}

/// A receive: a buffer for one message.
#[derive(Clone, Copy, Debug)]
pub struct Recv {
    /// Handle of the peer, or [`ANY`](crate::peers::ANY).
    pub peer: u64,
    /// Tag that the message must have.
    pub tag: u64,
    /// Bits of the tag that are not compared.
    pub ignore: u64,
    /// Buffer for the message.
    pub piece: Iov,
    /// Context that is returned in the event.
    pub context: usize,
}

/// A position in memory that a peer shares.
#[derive(Clone, Copy, Debug)]
pub struct RemoteLocation {
    /// Handle of the peer.
    pub peer: u64,
    /// Key of the shared memory.
    pub key: u64,
    /// Offset from the start of the shared memory in bytes.
    pub offset: u64,
}

/// A read or write.
#[derive(Clone, Copy, Debug)]
pub struct Copying {
    /// Memory at the peer.
    pub place: RemoteLocation,
    /// Local memory: the destination of a read, or the source of a write.
    pub piece: Iov,
    /// Whether memory is read; otherwise it is written.
    pub read: bool,
    /// Number that an event at the peer carries; `None`: the peer gets no event.
    pub data: Option<u64>,
    /// Flags such as `SRD_INJECT`.
    pub flags: u32,
    /// Context that is returned in the event.
    pub context: usize,
}

/// An atomic operation on 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Compute {
    /// Memory at the peer that the operation changes.
    pub place: RemoteLocation,
    /// Operation on the 64-bit number.
    pub op: AtomicOp,
    /// Address of the operand, valid during the call.
    pub operand: usize,
    /// Address of the number with which a compare-and-swap compares, valid during the call; `None`
    /// for other operations.
    pub compare: Option<usize>,
    /// Address to which the former value is written; `None` if it is not needed.
    pub result: Option<usize>,
    /// Context that is returned in the event.
    pub context: usize,
}

fn until(flags: u32) -> Outcome<Until> {
    match flags & !SRD_QUIET {
        0 => Ok(Until::Transmitted),
        SRD_INJECT => Ok(Until::Injected),
        SRD_DELIVERED => Ok(Until::Delivered),
        _ => Err(Error::invalid(
            "flags: give 0, or SRD_QUIET with SRD_INJECT, SRD_DELIVERED or neither",
        )),
    }
}

/// Whether an operation with these flags also reports its success.
fn signaled(flags: u32) -> bool {
    flags & (SRD_QUIET | SRD_INJECT) == 0
}

/// Returns the eight bytes at an address as an [`Iov`]; `None`: an empty [`Iov`].
fn handle(at: Option<usize>) -> Iov {
    match at {
        None => Iov { addr: 0, length: 0 },
        Some(addr) => Iov { addr: addr as u64, length: 8 },
    }
}

/// Returns the parts of a buffer: one, or no part if the buffer is empty.
fn iov(piece: &Iov) -> &[Iov] {
    if piece.length == 0 { &[] } else { std::slice::from_ref(piece) }
}

#[allow(unsafe_code, reason = "the program vouches for its memory")]
impl Endpoint {
    /// Sends a message.
    ///
    /// # Errors
    /// `Again` if there is no free operation; `Handle` if the peer is unknown; `Invalid` if the
    /// flags are invalid; `TooLong` if the message is too long to be injected.
    ///
    /// # Safety
    /// The buffer must be readable until the end of the operation was reported. With `SRD_INJECT`
    /// it must be readable only during the call.
    pub unsafe fn send(&self, send: &Send) -> Outcome {
        let until = until(send.flags)?;
        // SAFETY: the caller fulfils the conditions of `# Safety`.
        unsafe {
            self.submit(|submitter| {
                let message = Message {
                    to: submitter.peer(send.peer)?,
                    tag: Some(send.tag),
                    iov: iov(&send.piece),
                    data: None,
                    context: send.context as u64,
                    until,
                    signaled: signaled(send.flags),
                };
                let sent = submitter.rdm.send(&mut submitter.world, message);
                sent.map_err(|refused| submitter.explain(refused))
            })
        }
    }

    /// Posts a receive for a message.
    ///
    /// # Errors
    /// `Again` if there is no free receive; `Handle` if the peer is unknown; `Invalid` if an
    /// argument is invalid.
    ///
    /// # Safety
    /// The buffer must be writable until the end of the operation was reported.
    pub unsafe fn recv(&self, recv: &Recv) -> Outcome {
        // SAFETY: the caller fulfils the conditions of `# Safety`.
        unsafe {
            self.submit(|submitter| {
                let Recv { tag, ignore, .. } = *recv;
                let receive = Receive {
                    tagged: true,
                    want: Selector { tag, ignore, source: submitter.source(recv.peer)? },
                    iov: iov(&recv.piece),
                    context: recv.context as u64,
                    multi: None,
                    signaled: true,
                };
                Ok(submitter.rdm.recv(&mut submitter.world, receive)?)
            })
        }
    }

    /// Cancels the oldest receive with this context.
    ///
    /// # Errors
    /// `NotFound` if no posted receive has the context.
    pub fn cancel(&self, context: usize) -> Outcome {
        // SAFETY: the call names no memory.
        let found = unsafe { self.submit(|submitter| Ok(submitter.rdm.cancel(context as u64))) }?;
        if found {
            return Ok(());
        }
        let text = "no receive with this context waits: it has ended, or was never posted";
        Err(Error::new(Status::NotFound, text))
    }

    /// Reads or writes memory that a peer shares.
    ///
    /// # Errors
    /// `Again` if there is no free operation; `Handle` if the peer is unknown; `Invalid` if the
    /// flags are invalid; `TooLong` if the data is too long to be injected.
    ///
    /// # Safety
    /// The conditions of [`Endpoint::send`] for writes, and of [`Endpoint::recv`] for reads.
    pub unsafe fn copy(&self, copying: &Copying) -> Outcome {
        let Copying { place, piece, read, data, flags, context } = *copying;
        let until = until(flags)?;
        if read && flags & !SRD_QUIET != 0 {
            return Err(Error::invalid("flags: a read takes SRD_QUIET only"));
        }
        // SAFETY: the caller fulfils the conditions of `# Safety`.
        unsafe {
            self.submit(|submitter| {
                let RemoteLocation { key: rkey, offset: addr, .. } = place;
                let rma = Rma {
                    to: submitter.peer(place.peer)?,
                    read,
                    local: iov(&piece),
                    remote: &[RmaIov { addr, length: piece.length, rkey }],
                    data,
                    context: context as u64,
                    until,
                    signaled: signaled(flags),
                };
                let asked = submitter.rdm.rma(&mut submitter.world, rma);
                asked.map_err(|refused| submitter.explain(refused))
            })
        }
    }

    /// Executes an atomic operation on memory of a peer.
    ///
    /// # Errors
    /// `Again` if there is no free operation; `Handle` if the peer is unknown; `Invalid` if the
    /// offset is no multiple of 8.
    ///
    /// # Safety
    /// Operands must be readable during the call. The result must be writable until the end of the
    /// operation was reported.
    pub unsafe fn compute(&self, compute: &Compute) -> Outcome {
        let RemoteLocation { peer, key: rkey, offset: addr } = compute.place;
        if addr % 8 != 0 {
            return Err(Error::invalid("offset: atomic operations need a multiple of 8"));
        }
        let (operand, compare) = (handle(Some(compute.operand)), handle(compute.compare));
        let result = handle(compute.result);
        // SAFETY: the caller fulfils the conditions of `# Safety`.
        unsafe {
            self.submit(|submitter| {
                let atomic = Atomic {
                    to: submitter.peer(peer)?,
                    op: compute.op,
                    datatype: Datatype::Uint64,
                    operand: iov(&operand),
                    compare: iov(&compare),
                    result: iov(&result),
                    remote: &[RmaIov { addr, length: 8, rkey }],
                    context: compute.context as u64,
                    until: Until::Delivered,
                    signaled: true,
                };
                Ok(submitter.rdm.atomic(&mut submitter.world, atomic)?)
            })
        }
    }

    /// Returns the largest message that can be injected, in bytes.
    ///
    /// # Errors
    /// An error, if the endpoint is closed or has failed.
    pub fn inject_bytes_max(&self) -> Outcome<u64> {
        // SAFETY: the call names no memory.
        unsafe { self.submit(|submitter| Ok(submitter.rdm.inject_bytes_max())) }
    }
}

impl Submitter<'_> {
    /// Returns the error for a refused operation. If the message is too long to be injected, the
    /// text of the error states the limit.
    fn explain(&self, refused: srd_efa::layer::Refused) -> Error {
        if refused != srd_efa::layer::Refused::TooLong {
            return refused.into();
        }
        let most = self.rdm.inject_bytes_max();
        let text = format!("len: SRD_INJECT carries {most} bytes at most: send without it");
        Error::new(Status::TooLong, text)
    }
}
