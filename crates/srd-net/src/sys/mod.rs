//! The operating system: everything that needs `unsafe`, behind safe functions.
//!
//! Nothing here depends on SRD.
//!
//! | module | contents |
//! |---|---|
//! | `udp` | UDP sockets, their sends and receives |
//! | `shared` | memory that the kernel or another process shares: AF_XDP, packet sockets, rings |
//! | `bpf` | BPF maps, programs and links |
//! | `addr` | socket addresses |
//! | `interface`, `ethtool`, `tun` | interfaces; statistics of drivers; TUN devices |
//! | `os`, `timer` | clocks, waiting, wake-ups, random bytes; alarms |
//! | `fork` | detection of a forked process; what the endpoints of a process share |
#![allow(unsafe_code)]

mod addr;
pub(crate) mod bpf;
pub(crate) mod ethtool;
pub(crate) mod fork;
pub(crate) mod interface;
pub(crate) mod os;
pub(crate) mod shared;
pub(crate) mod timer;
pub(crate) mod tun;
pub(crate) mod udp;

use std::io;

/// Converts the result of a system call that returns -1 on error.
pub(crate) fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Returns the error number of an I/O error; zero if the error has no number.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}
