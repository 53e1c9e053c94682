//! Messages, reads, writes and atomic operations.

use srd_efa::layer::{
    Atomic, AtomicOp, Datatype, Iov, Message, Receive, Rma, RmaIov, Selector, Until,
};

use crate::endpoint::{Endpoint, Submitter};
use crate::{Error, Outcome, Status};

/// The buffer is free when the call returns; only failure is reported.
pub const SRD_INJECT: u32 = 1;
/// The operation completes when its data is in the peer's memory.
pub const SRD_DELIVERED: u32 = 2;
/// Only failure is reported.
pub const SRD_QUIET: u32 = 4;

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// The peer.
    pub peer: u64,
    /// Its tag.
    pub tag: u64,
    /// Its bytes.
    pub piece: Iov,
    /// `SRD_INJECT` and so on.
    pub flags: u32,
    /// The program's context for it.
    pub context: usize,
}

/// Room for a message.
#[derive(Clone, Copy, Debug)]
pub struct Recv {
    /// The peer, or any.
    pub peer: u64,
    /// Its tag.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
    /// Buffer for the message.
    pub piece: Iov,
    /// The program's context for it.
    pub context: usize,
}

/// A place in the memory that a peer shares.
#[derive(Clone, Copy, Debug)]
pub struct RemoteLocation {
    /// Handle of the peer.
    pub peer: u64,
    /// The key of what it shares.
    pub key: u64,
    /// Bytes from the beginning of that.
    pub offset: u64,
}

/// A read or write.
#[derive(Clone, Copy, Debug)]
pub struct Copying {
    /// The peer's end.
    pub place: RemoteLocation,
    /// Our end.
    pub piece: Iov,
    /// Read it; else write it.
    pub read: bool,
    /// Data for the peer's event.
    pub data: Option<u64>,
    /// `SRD_INJECT` and so on.
    pub flags: u32,
    /// The program's context for it.
    pub context: usize,
}

/// An atomic operation on 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Compute {
    /// On what.
    pub place: RemoteLocation,
    /// Operation on the element.
    pub op: AtomicOp,
    /// Address of the operand, valid during the call.
    pub operand: usize,
    /// Address of the comparand, valid during the call.
    pub compare: Option<usize>,
    /// Address for the former value.
    pub result: Option<usize>,
    /// The program's context for it.
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

/// Whether success is reported.
fn signaled(flags: u32) -> bool {
    flags & (SRD_QUIET | SRD_INJECT) == 0
}

/// Eight bytes at an address, or none.
fn handle(at: Option<usize>) -> Iov {
    match at {
        None => Iov { addr: 0, length: 0 },
        Some(addr) => Iov { addr: addr as u64, length: 8 },
    }
}

/// The pieces of a buffer: none if it is empty.
fn iov(piece: &Iov) -> &[Iov] {
    if piece.length == 0 { &[] } else { std::slice::from_ref(piece) }
}

#[allow(unsafe_code, reason = "the program vouches for its memory")]
impl Endpoint {
    /// Sends a message.
    ///
    /// # Errors
    /// `Again`, `Handle`, `Invalid`, `TooLong`.
    ///
    /// # Safety
    /// The buffer must be readable until the end was reported; for the call only, if it is
    /// injected.
    pub unsafe fn send(&self, send: &Send) -> Outcome {
        let until = until(send.flags)?;
        // SAFETY: as our caller promises.
        unsafe {
            self.submit(|submitter| {
                let message = Message {
                    to: submitter.sink.peers.find(send.peer)?,
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

    /// Receives a message.
    ///
    /// # Errors
    /// `Again`, `Handle`, `Invalid`.
    ///
    /// # Safety
    /// The buffer must be writable until the end was reported.
    pub unsafe fn recv(&self, recv: &Recv) -> Outcome {
        // SAFETY: as our caller promises.
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

    /// Cancels the receive posted first with a context.
    ///
    /// # Errors
    /// `NotFound` if none waits.
    pub fn cancel(&self, context: usize) -> Outcome {
        // SAFETY: names no memory.
        let found = unsafe { self.submit(|submitter| Ok(submitter.rdm.cancel(context as u64))) }?;
        if found {
            return Ok(());
        }
        let text = "no receive with this context waits: it has ended, or was never posted";
        Err(Error::new(Status::NotFound, text))
    }

    /// Reads or writes what a peer shares.
    ///
    /// # Errors
    /// `Again`, `Handle`, `Invalid`, `TooLong`.
    ///
    /// # Safety
    /// As of [`Endpoint::send`]; for reads, of [`Endpoint::recv`].
    pub unsafe fn copy(&self, copying: &Copying) -> Outcome {
        let Copying { place, piece, read, data, flags, context } = *copying;
        let until = until(flags)?;
        if read && flags & !SRD_QUIET != 0 {
            return Err(Error::invalid("flags: a read takes SRD_QUIET only"));
        }
        // SAFETY: as our caller promises.
        unsafe {
            self.submit(|submitter| {
                let RemoteLocation { key: rkey, offset: addr, .. } = place;
                let rma = Rma {
                    to: submitter.sink.peers.find(place.peer)?,
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

    /// Carries out an atomic operation at a peer.
    ///
    /// # Errors
    /// `Again`, `Handle`, `Invalid`.
    ///
    /// # Safety
    /// Operands must be readable for the call, the result writable until the end was reported.
    pub unsafe fn compute(&self, compute: &Compute) -> Outcome {
        let RemoteLocation { peer, key: rkey, offset: addr } = compute.place;
        if addr % 8 != 0 {
            return Err(Error::invalid("offset: atomic operations need a multiple of 8"));
        }
        let (operand, compare) = (handle(Some(compute.operand)), handle(compute.compare));
        let result = handle(compute.result);
        // SAFETY: as our caller promises.
        unsafe {
            self.submit(|submitter| {
                let atomic = Atomic {
                    to: submitter.sink.peers.find(peer)?,
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

    /// Largest message that can be injected, in bytes.
    ///
    /// # Errors
    /// The endpoint is closed or has failed.
    pub fn inject_bytes_max(&self) -> Outcome<u64> {
        // SAFETY: names no memory.
        unsafe { self.submit(|submitter| Ok(submitter.rdm.inject_bytes_max())) }
    }
}

impl Submitter<'_> {
    /// Adds a text to the refusal of a message that is too long to be injected.
    fn explain(&self, refused: srd_efa::layer::Refused) -> Error {
        if refused != srd_efa::layer::Refused::TooLong {
            return refused.into();
        }
        let most = self.rdm.inject_bytes_max();
        let text = format!("len: SRD_INJECT carries {most} bytes at most: send without it");
        Error::new(Status::TooLong, text)
    }
}
