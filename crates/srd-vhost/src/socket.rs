//! Requests with their descriptors from a stream, as they come: nothing waits here.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{FileType, fstat};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};

use crate::message::{DESCRIPTORS_MAX, HEADER_BYTES, Header, Request, answer};

/// A connection of a front end.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    /// The request that is not whole yet.
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The front end has closed it, or is gone.
    Closed,
    /// What it says is no request.
    Wrong(&'static str),
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, bytes: Vec::new(), descriptors: Vec::new() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// The next request; `None`: it is not whole yet.
    pub(crate) fn receive(&mut self) -> Result<Option<Request>, Ended> {
        loop {
            let head = self.bytes.first_chunk::<HEADER_BYTES>();
            let header = match head.map(Header::read) {
                Some(None) => return Err(Ended::Wrong("a header that is none")),
                Some(header) => header,
                None => None,
            };
            let wanted = HEADER_BYTES + header.map_or(0, |header| header.body_bytes);
            if let Some(header) = header.filter(|_| self.bytes.len() == wanted) {
                let body = self.bytes.split_off(HEADER_BYTES);
                self.bytes.clear();
                let descriptors = std::mem::take(&mut self.descriptors);
                return Ok(Some(Request { header, body, descriptors }));
            }
            if !self.read(wanted)? {
                return Ok(None);
            }
        }
    }

    /// Reads on, as far as this many bytes; whether there was something.
    fn read(&mut self, wanted: usize) -> Result<bool, Ended> {
        let had = self.bytes.len();
        self.bytes.resize(wanted, 0);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut self.bytes[had..])];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = recvmsg(&self.stream, &mut parts, &mut control, flags);
        let n = received.as_ref().map_or(0, |received| received.bytes);
        self.bytes.truncate(had + n);
        match received {
            Ok(_) if n == 0 => return Err(Ended::Closed),
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
            Err(_) => return Err(Ended::Closed),
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        // Its own end, sent to us, would keep this connection open when it is gone.
        if self.descriptors.iter().any(is_socket) {
            return Err(Ended::Wrong("a socket in the place of memory or an event"));
        }
        if self.descriptors.len() > DESCRIPTORS_MAX {
            return Err(Ended::Wrong("more descriptors than regions"));
        }
        Ok(true)
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

fn is_socket(descriptor: &OwnedFd) -> bool {
    fstat(descriptor).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}
