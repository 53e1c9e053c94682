//! Setup of a link between two processes of one machine: how they find each other, and the
//! objects that they hand over.
//!
//! An endpoint listens at an abstract Unix socket, whose name is its address. The socket ends
//! with the process, however that ends, and is visible in the same network namespace only. An
//! endpoint that sends to an address of this machine connects to that name, and brings shared
//! memory for both directions; the other answers. The connection then stays: a message on it
//! wakes the other end, and its end shows that the other process is gone. A wake-up is sent
//! without blocking, whatever the other process does to its end.
//!
//! Both ends query the kernel for the other's user, and accept their own user only. Any user may
//! bind the name, so an arrival by it is trusted no more than a packet by UDP. A caller may claim
//! an address of this machine only: packets to it go to the caller from then on. Descriptors that
//! are no memory, and connections that may carry some, are closed on a thread of their own, which
//! may wait ([`srd_trust::closing`]).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recvmsg, send, sendmsg, shutdown, socket_with,
};

use srd_trust::closing::Closing;

use super::ring::RING_BYTES;

/// Changes with the layout of the memory.
const VERSION: &str = "srd-near-2";
/// Callers that wait to be accepted.
const BACKLOG: i32 = 64;
/// The longest message.
const MESSAGE_BYTES_MAX: usize = 128;
/// Bytes of the memory of two endpoints: a ring each way.
pub(super) const SEGMENT_BYTES: usize = (2 * RING_BYTES).next_multiple_of(4096);

/// The most descriptors of one message (`SCM_MAX_FD`).
const RIGHTS_MAX: usize = 253;
/// Wake-ups that are taken in a turn. A process that sends more is not waited for.
const WAKES_MAX: usize = 16;
/// A message of a caller, or an answer to it.
#[derive(Debug)]
pub(super) struct Message {
    /// The address of its sender.
    pub(super) from: SocketAddr,
    /// The memory, of a caller.
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Wakes the other end. Nothing is lost if the connection is full: then it has been woken often
/// enough already.
pub(super) fn wake(socket: BorrowedFd<'_>) {
    let _ = send(socket, b"w", SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Takes wake-ups of the other end. `false`: the connection has ended.
pub(super) fn take_wakes(socket: BorrowedFd<'_>, closing: &mut Closing) -> bool {
    let mut byte = [0; 1];
    for _ in 0..WAKES_MAX {
        match take(socket, &mut byte) {
            // The end; or an invalid message, which is treated like it.
            Ok((0, descriptors)) => {
                closing.add(descriptors);
                return false;
            }
            Ok((_, descriptors)) => closing.add(descriptors),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
    true
}

/// Ends a connection.
pub(super) fn hang_up(socket: OwnedFd, closing: &mut Closing) {
    let _ = shutdown(&socket, Shutdown::Both);
    closing.add([socket]);
}

/// Takes a message with its descriptors. Those that the kernel has no room for it closes itself,
/// and may wait then: so there is room for as many as a message has.
fn take(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>), rustix::io::Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(RIGHTS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut beside, flags)?;
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            descriptors.extend(all);
        }
    }
    Ok((received.bytes, descriptors))
}

fn name(of: SocketAddr) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("{VERSION}/{of}").as_bytes())?)
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Listens for callers of an address.
pub(super) fn listener(at: SocketAddr) -> io::Result<OwnedFd> {
    let socket = socket()?;
    bind(&socket, &name(at)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// The next caller of this user; `None` if no caller waits.
pub(super) fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => Ok(is_own(socket.as_fd())?.then_some(socket)),
        Err(rustix::io::Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Calls the endpoint at an address. An error: there is no endpoint, or none of this user.
pub(super) fn call(to: SocketAddr) -> io::Result<OwnedFd> {
    let socket = socket()?;
    connect(&socket, &name(to)?)?;
    if !is_own(socket.as_fd())? {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(socket)
}

fn is_own(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(socket_peercred(socket)?.uid == rustix::process::geteuid())
}

/// Sends this address, and hands descriptors over.
pub(super) fn say(
    socket: BorrowedFd<'_>,
    from: SocketAddr,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = format!("{VERSION} {SEGMENT_BYTES} {from}");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message of the other end; `None` if no message has arrived yet.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    closing: &mut Closing,
) -> io::Result<Option<Message>> {
    let mut text = [0; MESSAGE_BYTES_MAX];
    let (bytes, descriptors) = match take(socket, &mut text) {
        Ok(taken) => taken,
        Err(rustix::io::Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match read(&text[..bytes]) {
        Some(from) => Ok(Some(Message { from, descriptors })),
        None => {
            closing.add(descriptors);
            Err(io::ErrorKind::InvalidData.into())
        }
    }
}

/// The address in a message.
fn read(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    text.strip_prefix(&format!("{VERSION} {SEGMENT_BYTES} "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// An address whose name no other test uses, as long as its port is held.
    fn place() -> (std::net::UdpSocket, SocketAddr) {
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        (port, address)
    }

    #[test]
    fn descriptors_and_addresses_arrive() {
        let (_port, at) = place();
        let listener = listener(at).unwrap();
        assert!(super::accept(listener.as_fd()).unwrap().is_none());
        let here = call(at).unwrap();
        let there = accept(listener.as_fd()).unwrap().unwrap();
        let mut closing = Closing::default();
        assert!(receive(there.as_fd(), &mut closing).unwrap().is_none());
        let (read, write) = std::io::pipe().unwrap();
        let from = "127.0.0.1:2".parse().unwrap();
        say(here.as_fd(), from, &[read.as_fd(), write.as_fd()]).unwrap();
        let message = receive(there.as_fd(), &mut closing).unwrap().unwrap();
        assert_eq!(message.from, from);
        let mut descriptors = message.descriptors.into_iter();
        let (theirs, mut pipe) = (descriptors.next().unwrap(), descriptors.next().unwrap());
        drop((read, write));
        std::io::PipeWriter::from(pipe).write_all(b"x").unwrap();
        pipe = theirs;
        let mut byte = [0; 4];
        assert_eq!(rustix::io::read(&pipe, &mut byte).unwrap(), 1);
    }

    #[test]
    fn other_texts_ends_and_too_many_descriptors_are_errors_or_dropped() {
        let (_port, at) = place();
        let listener = listener(at).unwrap();
        let here = call(at).unwrap();
        let there = accept(listener.as_fd()).unwrap().unwrap();
        let mut closing = Closing::default();
        for text in ["", "srd-near-2", "srd-near-2 1 127.0.0.1:1", "srd-near-1 x", &"9".repeat(500)]
        {
            rustix::net::send(&here, text.as_bytes(), SendFlags::NOSIGNAL).unwrap();
            assert!(receive(there.as_fd(), &mut closing).is_err(), "{text}");
        }
        drop(here);
        assert!(receive(there.as_fd(), &mut closing).is_err(), "the end is no message");
    }

    #[test]
    fn wake_ups_never_block_and_their_number_in_a_turn_is_bounded() {
        let (_port, at) = place();
        let listener = listener(at).unwrap();
        let here = call(at).unwrap();
        let there = accept(listener.as_fd()).unwrap().unwrap();
        let mut closing = Closing::default();
        assert!(take_wakes(there.as_fd(), &mut closing), "none yet");
        // The other end may make it a connection that blocks: it is a description of both.
        rustix::io::ioctl_fionbio(&here, false).unwrap();
        for _ in 0..100_000 {
            wake(here.as_fd());
        }
        assert!(take_wakes(there.as_fd(), &mut closing) && take_wakes(there.as_fd(), &mut closing));
        drop(here);
        let turns = (0..100_000).find(|_| !take_wakes(there.as_fd(), &mut closing));
        assert!(turns.is_some_and(|turns| turns > 0), "some were left, then the end: {turns:?}");
        wake(there.as_fd());
    }

    #[test]
    fn nobody_at_a_name_is_an_error_and_a_name_has_one_owner() {
        let (_port, at) = place();
        assert!(call(at).is_err());
        let _owner = listener(at).unwrap();
        assert!(listener(at).is_err());
    }
}
