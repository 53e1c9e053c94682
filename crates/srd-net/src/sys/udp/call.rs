//! The system calls that send and receive packets, without waiting and without the C library.
//!
//! The C library's functions of these names are cancellation points: each call of a process with
//! threads marks its thread as cancellable and back, which costs a tenth of a small packet's time,
//! and another thread could cancel this thread in the middle of such a call.

use std::ffi::{c_long, c_uint};
use std::os::fd::RawFd;

const FLAGS: c_long = libc::MSG_DONTWAIT as c_long;

/// Converts a result to the convention of C functions: -1, with `errno` set, for an error.
#[allow(clippy::cast_possible_truncation)] // as wide as a pointer on Linux
fn length(result: c_long) -> isize {
    result as isize
}

/// Calls `sendmsg` without waiting.
///
/// # Safety
/// The header and all memory that it points to must be readable.
pub(super) unsafe fn sendmsg(fd: RawFd, header: *const libc::msghdr) -> isize {
    // SAFETY: the caller ensures that the header is valid (see above).
    length(unsafe { libc::syscall(libc::SYS_sendmsg, fd, header, FLAGS) })
}

/// Calls `sendmmsg` without waiting.
///
/// # Safety
/// The `count` headers and all memory that they point to must be readable, and their lengths
/// writable.
pub(super) unsafe fn sendmmsg(fd: RawFd, headers: *mut libc::mmsghdr, count: c_uint) -> isize {
    // SAFETY: the caller ensures that the headers are valid (see above).
    length(unsafe { libc::syscall(libc::SYS_sendmmsg, fd, headers, count, FLAGS) })
}

/// Calls `recvmsg` without waiting.
///
/// # Safety
/// The header and all memory that it points to must be writable.
pub(super) unsafe fn recvmsg(fd: RawFd, header: *mut libc::msghdr) -> isize {
    // SAFETY: the caller ensures that the header is valid (see above).
    length(unsafe { libc::syscall(libc::SYS_recvmsg, fd, header, FLAGS) })
}

/// Calls `recvmmsg` without waiting.
///
/// # Safety
/// The `count` headers and all memory that they point to must be writable.
pub(super) unsafe fn recvmmsg(fd: RawFd, headers: *mut libc::mmsghdr, count: c_uint) -> isize {
    let forever = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: the caller ensures that the headers are valid (see above).
    length(unsafe { libc::syscall(libc::SYS_recvmmsg, fd, headers, count, FLAGS, forever) })
}
