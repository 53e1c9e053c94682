//! Packets between the card and the helper, with descriptors, over a pair of sockets that preserve
//! packet boundaries.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{DESCRIPTORS_ONCE, Message, PACKET_BYTES_MAX};

/// Creates both ends of a connection.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Sends a message with these descriptors, in several packets if the descriptors do not fit into
/// one. `waits`: whether to wait for space in the socket.
pub(super) fn send<T: Serialize>(
    socket: &OwnedFd,
    message: &Message<T>,
    descriptors: &[BorrowedFd<'_>],
    waits: bool,
) -> io::Result<()> {
    let (rest, last) = match descriptors.len().checked_sub(1) {
        Some(end) => descriptors.split_at(end / DESCRIPTORS_ONCE * DESCRIPTORS_ONCE),
        None => (descriptors, descriptors),
    };
    let more = Message::<()> { id: message.id, body: None };
    for some in rest.chunks(DESCRIPTORS_ONCE) {
        packet(socket, &serde_json::to_vec(&more)?, some, waits)?;
    }
    packet(socket, &serde_json::to_vec(message)?, last, waits)
}

fn packet(
    socket: &OwnedFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    waits: bool,
) -> io::Result<()> {
    if bytes.len() > PACKET_BYTES_MAX {
        return Err(io::Error::other(format!("more than {PACKET_BYTES_MAX} bytes at once")));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors at once"));
    }
    let wait = if waits { SendFlags::empty() } else { SendFlags::DONTWAIT };
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | wait) {
            Err(Errno::INTR) => {}
            sent => return Ok(sent.map(drop)?),
        }
    }
}

/// The receiving end of a connection.
pub(super) struct Receiver {
    buffer: Vec<u8>,
}

/// A message and its descriptors; an error if the message could not be parsed.
pub(super) struct Received<T> {
    pub(super) message: Result<Message<T>, String>,
    pub(super) descriptors: Vec<OwnedFd>,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; PACKET_BYTES_MAX] }
    }

    /// Returns the next packet; `None` if the other end is closed.
    pub(super) fn next<T: DeserializeOwned>(
        &mut self,
        socket: impl AsFd,
    ) -> io::Result<Option<Received<T>>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let received = loop {
            match recvmsg(socket.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                received => break received?,
            }
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                descriptors.extend(some);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        let message = if received.flags.contains(ReturnFlags::TRUNC) {
            Err(format!("more than {PACKET_BYTES_MAX} bytes at once"))
        } else {
            let bytes = &self.buffer[..received.bytes];
            serde_json::from_slice(bytes).map_err(|error| format!("not a message: {error}"))
        };
        Ok(Some(Received { message, descriptors }))
    }
}
