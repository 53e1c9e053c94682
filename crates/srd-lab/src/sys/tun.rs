//! A TUN device: packets of a network namespace, as a file.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::io;

const TUNSETIFF: libc::Ioctl = 0x4004_54ca;

/// Creates the device `name` in the namespace of the calling thread. Closing the descriptor removes
/// the device. A read never waits and returns one packet without a header; a write accepts one
/// packet.
pub(crate) fn open(name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let tun = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The array must have space for a terminating zero.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let kind = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL;
    request.ifr_ifru.ifru_flags =
        libc::c_short::from_ne_bytes(u16::try_from(kind).unwrap_or(0).to_ne_bytes());
    // SAFETY: the request is a valid ifreq that outlives the call.
    if unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETIFF, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(tun)
}
