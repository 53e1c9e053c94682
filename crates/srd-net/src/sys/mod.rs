//! The operating system: everything that needs `unsafe`, behind safe functions.
//!
//! Nothing here depends on SRD. Each file wraps one concern: addresses and control messages (pure
//! byte layouts), one UDP socket, gathering sends, scattering receives, interfaces, TUN devices,
//! AF_XDP sockets and packet sockets with their rings, BPF programs and what they write, statistics
//! of drivers, alarms, and other system calls (clocks, waiting, wake-ups, random bytes).
#![allow(unsafe_code)]

mod addr;
pub(crate) mod bpf;
mod call;
pub(crate) mod cmsg;
pub(crate) mod ethtool;
pub(crate) mod interface;
pub(crate) mod os;
pub(crate) mod packet;
pub(crate) mod records;
pub(crate) mod recv;
pub(crate) mod refused;
mod ring;
pub(crate) mod segment;
pub(crate) mod send;
pub(crate) mod socket;
mod steer;
pub(crate) mod timer;
pub(crate) mod tun;
pub(crate) mod xdp;

use std::io;

/// Converts the result of a system call that returns -1 on error.
pub(crate) fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Returns the error number of an I/O error; zero if the error has no number.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}
