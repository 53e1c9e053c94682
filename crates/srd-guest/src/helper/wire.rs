//! Packets between the card and the helper, with descriptors, over a pair of sockets that preserve
//! packet boundaries.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{DESCRIPTORS_ONCE, Message, PACKET_BYTES_MAX};

/// For [`send`]: waits until there is space, however long that takes.
pub(super) const WITHOUT_LIMIT: Duration = Duration::MAX;
/// Longest time without an attempt to send. The kernel does not report the end of a connection to a
/// thread that waits for space.
const ATTEMPT_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Creates both ends of a connection.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Makes the kernel name the user of each packet that is sent to this end from now on. No packet
/// may wait that was sent before.
pub(super) fn name_users(socket: &OwnedFd) -> io::Result<()> {
    Ok(set_socket_passcred(socket, true)?)
}

/// Sends a message with these descriptors, in several packets if the descriptors do not fit into
/// one. Waits for space in the socket for at most `wait`.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the message is too large: in this case nothing is sent.
pub(super) fn send<T: Serialize>(
    socket: &OwnedFd,
    message: &Message<T>,
    descriptors: &[BorrowedFd<'_>],
    wait: Duration,
) -> io::Result<()> {
    let until = Instant::now().checked_add(wait);
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > PACKET_BYTES_MAX {
        let what = format!("more than {PACKET_BYTES_MAX} bytes at once");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let (rest, last) = match descriptors.len().checked_sub(1) {
        Some(end) => descriptors.split_at(end / DESCRIPTORS_ONCE * DESCRIPTORS_ONCE),
        None => (descriptors, descriptors),
    };
    let more = Message::<()> { id: message.id, body: None };
    for some in rest.chunks(DESCRIPTORS_ONCE) {
        packet(socket, &serde_json::to_vec(&more)?, some, until)?;
    }
    packet(socket, &bytes, last, until)
}

fn packet(
    socket: &OwnedFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    until: Option<Instant>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors at once"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait_for_space(socket, until)?,
            sent => return Ok(sent.map(drop)?),
        }
    }
}

/// Waits until there may be space for a packet; returns an error after `until`.
fn wait_for_space(socket: &OwnedFd, until: Option<Instant>) -> io::Result<()> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left.is_zero()) {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the other end does not read"));
    }
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let pause = left.map_or(ATTEMPT_EVERY, |left| left.min(ATTEMPT_EVERY));
    match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&pause)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
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
    /// The effective user of the sender, after [`name_users`].
    pub(super) user: Option<u32>,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; PACKET_BYTES_MAX] }
    }

    /// Returns the next packet; `None` if the other end is closed, or has sent an empty packet. The
    /// result has all descriptors that have come, also those of an empty packet and of one without
    /// a valid message: closing them may block, so the caller decides where that is done.
    pub(super) fn next<T: DeserializeOwned>(
        &mut self,
        socket: impl AsFd,
    ) -> io::Result<Option<Received<T>>> {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let received = loop {
            match recvmsg(socket.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                received => break received?,
            }
        };
        let (mut descriptors, mut user) = (Vec::new(), None);
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmRights(some) => descriptors.extend(some),
                RecvAncillaryMessage::ScmCredentials(of) => user = Some(of.uid.as_raw()),
                _ => {}
            }
        }
        if received.bytes == 0 && descriptors.is_empty() {
            return Ok(None);
        }
        let message = if received.flags.contains(ReturnFlags::TRUNC) {
            Err(format!("more than {PACKET_BYTES_MAX} bytes at once"))
        } else {
            let bytes = &self.buffer[..received.bytes];
            serde_json::from_slice(bytes).map_err(|error| format!("not a message: {error}"))
        };
        Ok(Some(Received { message, descriptors, user }))
    }
}
