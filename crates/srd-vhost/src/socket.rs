//! Reception of requests and their descriptors from a stream, without blocking.

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

/// Number of descriptors for which the receive buffer has space: the kernel's limit for one message
/// (`SCM_MAX_FD`). With less space the kernel would close the excess descriptors in `recvmsg`, and
/// closing a descriptor may block.
const RIGHTS_MAX: usize = 253;
/// Largest number of messages that are read from a socket before it is closed. Further messages are
/// left to the thread that closes descriptors.
const LEFT_MAX: usize = 1024;
/// Largest number of bytes of each message that is read before a socket is closed.
const LEFT_BYTES: usize = 4096;
/// Number of received descriptors at which reading before the close ends.
const LEFT_DESCRIPTORS_MAX: usize = 64;

/// A connection of a front end.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    /// Bytes of a request that is still incomplete.
    bytes: Vec<u8>,
    descriptors: Vec<AcceptedDescriptor>,
    /// Received descriptors of kinds on which a call could block.
    foreign: Vec<Foreign>,
}

/// Reason why a connection ends.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The front end has closed the connection, or has ended.
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

    /// Returns the next request; `None`: the request is still incomplete.
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
                // The descriptor is not kept until the request is complete: it may be the front
                // end's own end of this connection, and would then keep the connection open after
                // the front end has ended.
                return match self.foreign.first() {
                    Some(of) => Err(Ended::Wrong(half(&of.name).into())),
                    None => Ok(None),
                };
            }
        }
    }

    /// Reads until the buffer `bytes` has `wanted` bytes, if possible. Returns whether data
    /// arrived.
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

    /// Ends the connection. Returns descriptors that must not be closed here because closing them
    /// may block: received descriptors, and the socket if it may still contain some.
    pub(crate) fn end(mut self) -> Vec<OwnedFd> {
        let mut left = Vec::new();
        // After the shutdown no more data arrives. Received descriptors are taken out of the
        // socket, because otherwise the kernel would close them together with it.
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

    /// Sends an answer. Answers are short, and a front end waits for each of them. So a full socket
    /// means that the front end does not read.
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
