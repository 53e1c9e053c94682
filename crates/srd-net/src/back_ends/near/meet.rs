//! Setup of a link between two processes of one machine: discovery, and the exchange of
//! descriptors.
//!
//! An endpoint listens at a Unix socket in a directory of its user ([`Directory`]). The name of the
//! socket contains the network namespace and the endpoint's address. An endpoint that sends to an
//! address of this machine connects to the socket with that name, and sends shared memory for both
//! directions; the listening endpoint answers. The connection stays open: a message on it wakes the
//! other end, and the end of the connection shows that the other process has ended. Sending a
//! wake-up never blocks, whatever the other process does to its end.
//!
//! No other user can connect, or bind a name in the directory. Each end also queries the kernel for
//! the user of the other end, because a directory does not stop a privileged process. A packet
//! through memory is trusted no more than a packet by UDP. A caller may claim only an address of
//! this machine: from then on packets to this address go to the caller. Descriptors that are not
//! memory, and connections that may carry such descriptors, are closed on a separate thread,
//! because closing them may block ([`srd_trust::closing`]).
//!
//! The name of a process that was killed stays in the directory, until an endpoint of the same user
//! starts: [`Directory::sweep`].

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
use rustix::process::{Pid, getpid};

use srd_trust::closing::Closing;

use super::directory::{self, Directory};
use super::ring::RING_BYTES;

/// Version of the memory layout, which is part of the socket's name. It changes when the layout
/// changes.
const VERSION: &str = "srd-near-2";
/// Largest number of callers that wait to be accepted.
const BACKLOG: i32 = 64;
/// Largest number of bytes in a message, which contains the sender's address as text.
const MESSAGE_BYTES_MAX: usize = 128;
/// Bytes of the memory that two endpoints share: one ring for each direction.
pub(super) const SEGMENT_BYTES: usize = (2 * RING_BYTES).next_multiple_of(4096);

/// Largest number of descriptors in a message (`SCM_MAX_FD`).
const RIGHTS_MAX: usize = 253;
/// Largest number of wake-ups that one call reads. A process that sends more wake-ups cannot delay
/// this process.
const WAKES_MAX: usize = 16;
/// A message of a caller, or the answer to a caller.
#[derive(Debug)]
pub(super) struct Message {
    /// Address of the endpoint that sent the message.
    pub(super) from: SocketAddr,
    /// Descriptors in the message. A caller sends the descriptor of the shared memory; an answer
    /// contains no descriptor.
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Wakes the other end. If the connection is full, the other end has unread wake-ups, and needs no
/// further wake-up.
pub(super) fn wake(socket: BorrowedFd<'_>) {
    let _ = send(socket, b"w", SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Reads wake-ups of the other end. Returns `false` if the connection has ended.
pub(super) fn take_wakes(socket: BorrowedFd<'_>, closing: &mut Closing) -> bool {
    let mut byte = [0; 1];
    for _ in 0..WAKES_MAX {
        match take(socket, &mut byte) {
            // The connection has ended, or the message is empty. An empty message is invalid, and
            // ends the link as well.
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

/// Shuts a connection down, and closes its socket on a separate thread.
pub(super) fn hang_up(socket: OwnedFd, closing: &mut Closing) {
    let _ = shutdown(&socket, Shutdown::Both);
    closing.add([socket]);
}

/// Receives a message with its descriptors. The buffer has space for as many descriptors as a
/// message can have. If it were smaller, the kernel would close the other descriptors, and might
/// block.
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

/// Returns the name of the socket of the endpoint with this address.
pub(super) fn name(of: SocketAddr) -> io::Result<String> {
    directory::name(VERSION, of)
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// A socket that listens under the name of an address. Its name is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    directory: Directory,
    name: String,
    /// The process that has bound the name. A copy of this process, made by `fork`, does not remove
    /// it.
    owner: Option<Pid>,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.owner == Some(getpid()) {
            self.directory.remove(&self.name);
        }
    }
}

/// Opens a socket that listens under the name of an address. Processes that send to this address
/// connect to it.
///
/// # Errors
/// An error of the operating system, if the user has no directory, or if another endpoint listens
/// under the name.
pub(super) fn listener(at: SocketAddr) -> io::Result<Listener> {
    let name = name(at)?;
    let directory = Directory::all().next().ok_or(io::ErrorKind::PermissionDenied)?;
    let (socket, address) = (socket()?, directory.address(&name)?);
    match bind(&socket, &address) {
        Err(rustix::io::Errno::ADDRINUSE) if is_dead(&address)? => {
            directory.remove(&name);
            bind(&socket, &address)?;
        }
        bound => bound?,
    }
    let listener = Listener { socket, directory, name, owner: Some(getpid()) };
    listen(&listener.socket, BACKLOG)?;
    // If names of other processes stay, they take only space.
    let _ = listener.directory.sweep(is_dead);
    Ok(listener)
}

/// Whether no process listens at a name, because the process that bound it was killed.
fn is_dead(address: &SocketAddrUnix) -> io::Result<bool> {
    Ok(connect(&socket()?, address) == Err(rustix::io::Errno::CONNREFUSED))
}

/// Accepts the next connection. Returns `None` if no caller waits, or if the caller belongs to
/// another user. The connection of another user is moved to `closing`, because its unread messages
/// may have descriptors.
pub(super) fn accept(
    listener: BorrowedFd<'_>,
    closing: &mut Closing,
) -> io::Result<Option<OwnedFd>> {
    match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => Ok(own_user(socket, closing)),
        Err(rustix::io::Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Connects to the endpoint at an address. The connection to an endpoint of another user is moved
/// to `closing`, because that user may have sent messages with descriptors already.
///
/// # Errors
/// An error of the operating system, if there is no endpoint at this address, or if the endpoint
/// belongs to another user.
pub(super) fn call(to: SocketAddr, closing: &mut Closing) -> io::Result<OwnedFd> {
    let name = name(to)?;
    let mut refused = io::Error::from(io::ErrorKind::NotFound);
    for directory in Directory::all() {
        let socket = socket()?;
        match connect(&socket, &directory.address(&name)?) {
            Ok(()) => {
                let own = own_user(socket, closing);
                return own.ok_or_else(|| io::ErrorKind::PermissionDenied.into());
            }
            Err(error) => refused = error.into(),
        }
    }
    Err(refused)
}

/// Returns a connection whose other end belongs to this user. Another connection is moved to
/// `closing`.
pub(super) fn own_user(socket: OwnedFd, closing: &mut Closing) -> Option<OwnedFd> {
    if socket_peercred(&socket).is_ok_and(|peer| peer.uid == rustix::process::geteuid()) {
        return Some(socket);
    }
    closing.add([socket]);
    None
}

/// Sends a message with the address `from` of this endpoint, and with descriptors.
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

/// Returns the next message of the other end; `None` if no message has arrived yet.
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

/// Parses the address in a message.
fn read(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    text.strip_prefix(&format!("{VERSION} {SEGMENT_BYTES} "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// Returns an address that no other test uses, and a socket that reserves its port.
    fn place() -> (std::net::UdpSocket, SocketAddr) {
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap();
        (port, address)
    }

    #[test]
    fn descriptors_and_addresses_arrive() {
        let (_port, at) = place();
        let listener = listener(at).unwrap();
        let mut closing = Closing::default();
        assert!(accept(listener.as_fd(), &mut closing).unwrap().is_none());
        let here = call(at, &mut closing).unwrap();
        let there = accept(listener.as_fd(), &mut closing).unwrap().unwrap();
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
        let mut closing = Closing::default();
        let here = call(at, &mut closing).unwrap();
        let there = accept(listener.as_fd(), &mut closing).unwrap().unwrap();
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
        let mut closing = Closing::default();
        let here = call(at, &mut closing).unwrap();
        let there = accept(listener.as_fd(), &mut closing).unwrap().unwrap();
        assert!(take_wakes(there.as_fd(), &mut closing), "none yet");
        // The other end may make the connection blocking: both ends share one file description.
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
        assert!(call(at, &mut Closing::default()).is_err());
        let mut owner = listener(at).unwrap();
        assert!(listener(at).is_err());
        // The owner is killed: its name stays.
        owner.owner = None;
        drop(owner);
        assert!(call(at, &mut Closing::default()).is_err());
        let next = listener(at).unwrap();
        assert!(call(at, &mut Closing::default()).is_ok());
        // At its end, an endpoint removes its name.
        let exists = |directory: Directory| {
            let address = directory.address(&name(at).unwrap()).unwrap();
            connect(socket().unwrap(), &address) != Err(rustix::io::Errno::NOENT)
        };
        assert!(Directory::all().any(exists));
        drop(next);
        assert!(!Directory::all().any(exists));
    }

    /// In an earlier version, only an endpoint at the same address replaced the name.
    #[test]
    fn regression_the_name_of_a_killed_process_is_removed_at_the_start_of_another_one() {
        let (_port, at) = place();
        let mut killed = listener(at).unwrap();
        killed.owner = None;
        let name = killed.name.clone();
        drop(killed);
        let directory = Directory::all().next().unwrap();
        let address = directory.address(&name).unwrap();
        assert!(is_dead(&address).unwrap());
        directory.age(&name);
        let began = std::time::Instant::now();
        // Other processes may have left more names than one start checks.
        let is_there = || connect(socket().unwrap(), &address) != Err(rustix::io::Errno::NOENT);
        while is_there() {
            assert!(began.elapsed() < std::time::Duration::from_secs(60), "the name stays");
            let (_port, other) = place();
            drop(listener(other).unwrap());
        }
    }
}
