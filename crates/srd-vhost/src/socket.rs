//! Requests with their descriptors from a stream, as they come: nothing waits here.

use std::borrow::Cow;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown, recvmsg, send,
    shutdown,
};

use crate::kind::{AcceptedDescriptor, Foreign};
use crate::message::{DESCRIPTORS_MAX, HEADER_BYTES, Header, Request, answer};

/// Space for descriptors in the receive buffer: as many as the kernel allows in one message
/// (`SCM_MAX_FD`). With less space the kernel would close the other descriptors in `recvmsg`, and
/// closing one may block.
const RIGHTS_MAX: usize = 253;
/// Messages that are taken from a socket before it is closed, bytes of each at once, and
/// descriptors after which the rest is left to the thread that closes them.
const LEFT_MAX: usize = 1024;
const LEFT_BYTES: usize = 4096;
const LEFT_DESCRIPTORS_MAX: usize = 64;

/// A connection of a front end.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    /// The request that is not whole yet.
    bytes: Vec<u8>,
    descriptors: Vec<AcceptedDescriptor>,
    /// Descriptors that have come and that something could wait for.
    foreign: Vec<Foreign>,
}

/// Reason why a connection ends.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The front end has closed it, or is gone.
    Closed,
    /// The front end sent bytes that are not a request.
    Wrong(Cow<'static, str>),
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, bytes: Vec::new(), descriptors: Vec::new(), foreign: Vec::new() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The next request; `None`: it is not whole yet.
    pub(crate) fn receive(&mut self) -> Result<Option<Request>, Ended> {
        loop {
            let head = self.bytes.first_chunk::<HEADER_BYTES>();
            let header = match head.map(Header::read) {
                Some(None) => return Err(Ended::Wrong("a header that is none".into())),
                Some(header) => header,
                None => None,
            };
            let wanted = HEADER_BYTES + header.map_or(0, |header| header.body_bytes);
            if let Some(header) = header.filter(|_| self.bytes.len() == wanted) {
                let body = self.bytes.split_off(HEADER_BYTES);
                self.bytes.clear();
                let descriptors = std::mem::take(&mut self.descriptors);
                let foreign = self.foreign.first().map(|of| of.name.clone());
                return Ok(Some(Request { header, body, descriptors, foreign }));
            }
            if !self.read(wanted)? {
                // It is not kept for the rest of a request: one that is the front end's own end of
                // this connection would keep it open when the front end is gone.
                return match self.foreign.first() {
                    Some(of) => Err(Ended::Wrong(half(&of.name).into())),
                    None => Ok(None),
                };
            }
        }
    }

    /// Reads on, as far as this many bytes; whether there was something.
    fn read(&mut self, wanted: usize) -> Result<bool, Ended> {
        let had = self.bytes.len();
        self.bytes.resize(wanted, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RIGHTS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut self.bytes[had..])];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.stream, &mut parts, &mut control, flags);
        let n = received.as_ref().map_or(0, |received| received.bytes);
        self.bytes.truncate(had + n);
        for message in control.drain() {
            let RecvAncillaryMessage::ScmRights(descriptors) = message else { continue };
            for descriptor in descriptors {
                match AcceptedDescriptor::of(descriptor) {
                    Ok(known) => self.descriptors.push(known),
                    Err(foreign) => self.foreign.push(foreign),
                }
            }
        }
        match received {
            Ok(_) if n == 0 => return Err(Ended::Closed),
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
            Err(_) => return Err(Ended::Closed),
        }
        if self.descriptors.len() + self.foreign.len() > DESCRIPTORS_MAX {
            return Err(Ended::Wrong("more descriptors than regions".into()));
        }
        Ok(true)
    }

    /// Ends the connection. Returns descriptors that are not to be closed here: those that have
    /// come, and the socket, if more may be in it.
    pub(crate) fn end(mut self) -> Vec<OwnedFd> {
        let mut left = Vec::new();
        // From now on nothing comes, and what has come is taken from the kernel, which would close
        // it.
        let mut is_empty = false;
        if shutdown(&self.stream, Shutdown::Both).is_ok() {
            for _ in 0..LEFT_MAX {
                self.bytes.clear();
                self.descriptors.clear();
                is_empty = matches!(self.read(LEFT_BYTES), Err(Ended::Closed));
                if is_empty || self.foreign.len() >= LEFT_DESCRIPTORS_MAX {
                    break;
                }
            }
        }
        left.extend(self.foreign.into_iter().map(|of| of.descriptor));
        if !is_empty {
            left.push(self.stream.into());
        }
        left
    }

    /// Answers. Answers are short, and a front end waits for each: a full socket is a front end
    /// that does not read.
    pub(crate) fn answer(&self, request: u32, body: &[u8]) -> Result<(), Ended> {
        let bytes = answer(request, body);
        match send(&self.stream, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(n) if n == bytes.len() => Ok(()),
            _ => Err(Ended::Closed),
        }
    }
}

fn half(name: &str) -> String {
    format!("half a request, with a descriptor of a kind that none takes: {name:?}")
}
