//! Options on ordinary sockets, for programs that measure what the kernel alone can do beside
//! this transport (`examples/udp_ceiling.rs`). Not used by the transport itself.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use crate::sys::cmsg::{UDP_GRO, UDP_SEGMENT};
use crate::sys::socket::Socket;
use crate::sys::{os, socket};

/// Lets the kernel cut every send on a UDP socket into datagrams of `bytes`.
///
/// # Errors
/// An error of the operating system.
pub fn udp_segment(socket: &impl AsFd, bytes: u16) -> io::Result<()> {
    socket::set_int(socket.as_fd(), libc::SOL_UDP, UDP_SEGMENT, i32::from(bytes))
}

/// Accepts several datagrams coalesced into one on a UDP socket.
///
/// # Errors
/// An error of the operating system.
pub fn udp_gro(socket: &impl AsFd) -> io::Result<()> {
    socket::set_int(socket.as_fd(), libc::SOL_UDP, UDP_GRO, 1)
}

/// Requests buffers of `bytes` in both directions, past the system's limit if privileged.
///
/// # Errors
/// An error of the operating system.
pub fn buffers(socket: &impl AsFd, bytes: i32) -> io::Result<()> {
    let fd = socket.as_fd();
    socket::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
        .or_else(|_| socket::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))?;
    socket::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| socket::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
}

/// Connects a TCP socket under the congestion control of that kernel name. (Choosing it after
/// connecting is not the same: a connection that began under BBR stays paced.)
///
/// # Errors
/// An error of the operating system, for instance that the name is not known, or is allowed with
/// privilege only.
pub fn tcp_connect(address: SocketAddr, congestion: &str) -> io::Result<TcpStream> {
    let socket = Socket::stream(&address)?;
    socket::set_text(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, congestion)?;
    socket.connect(&address)?;
    Ok(TcpStream::from(OwnedFd::from(socket)))
}

/// Lets timers of the calling thread fire without the default 50 us of slack.
pub fn timer_slack_minimum() {
    os::timer_slack_minimum();
}

/// Keeps every descriptor but the first three from programs that this process starts, those
/// included that this process was itself started with.
///
/// # Errors
/// An error of the operating system.
pub fn keep_descriptors_from_children() -> io::Result<()> {
    os::close_on_exec_from(3)
}
