//! Options on ordinary sockets, for programs that measure the kernel without this transport
//! (`examples/udp_ceiling.rs`). The transport itself does not use them.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use crate::sys::os;
use crate::sys::udp::cmsg::{UDP_GRO, UDP_SEGMENT};
use crate::sys::udp::socket;
use crate::sys::udp::socket::Socket;

/// Makes the kernel cut every send on a UDP socket into datagrams of `bytes`.
///
/// # Errors
/// An error of the operating system, if the option cannot be set.
pub fn udp_segment(socket: &impl AsFd, bytes: u16) -> io::Result<()> {
    socket::set_int(socket.as_fd(), libc::SOL_UDP, UDP_SEGMENT, i32::from(bytes))
}

/// Allows the kernel to deliver several datagrams of a UDP socket as one message.
///
/// # Errors
/// An error of the operating system, if the option cannot be set.
pub fn udp_gro(socket: &impl AsFd) -> io::Result<()> {
    socket::set_int(socket.as_fd(), libc::SOL_UDP, UDP_GRO, 1)
}

/// Requests buffers of `bytes` in both directions; a privileged process may exceed the system's
/// limit.
///
/// # Errors
/// An error of the operating system, if the option cannot be set.
pub fn buffers(socket: &impl AsFd, bytes: i32) -> io::Result<()> {
    let fd = socket.as_fd();
    socket::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
        .or_else(|_| socket::set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes))?;
    socket::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
        .or_else(|_| socket::set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
}

/// Connects a TCP socket with the congestion control that has this name in the kernel. (The name
/// must be set before connecting: a connection that started with BBR stays paced.)
///
/// # Errors
/// An error of the operating system, for example if the name is unknown or requires privilege.
pub fn tcp_connect(address: SocketAddr, congestion: &str) -> io::Result<TcpStream> {
    let socket = Socket::stream(&address)?;
    socket::set_text(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, congestion)?;
    socket.connect(&address)?;
    Ok(TcpStream::from(OwnedFd::from(socket)))
}

/// Sets the timer slack of the calling thread to the minimum, instead of the default of 50 us.
pub fn timer_slack_minimum() {
    os::timer_slack_minimum();
}

/// Marks every descriptor except the first three to be closed in programs that this process starts.
/// This includes descriptors that this process has inherited.
///
/// # Errors
/// An error of the operating system, if it has no such call.
pub fn keep_descriptors_from_children() -> io::Result<()> {
    os::close_on_exec_from(3)
}

/// Makes a copy of a descriptor standard error of this process.
///
/// # Errors
/// An error of the operating system.
pub fn replace_stderr(by: &impl AsFd) -> io::Result<()> {
    os::replace_stderr(by.as_fd())
}

/// Makes a program start with an empty signal mask. Otherwise it inherits the mask of the thread
/// that starts it, and signals that this thread blocks would have no effect on the program.
pub fn unblock_signals(command: &mut Command) {
    os::unblock_signals(command);
}
