//! A TUN device with offloads: each packet has a `virtio_net_hdr` in front, and large packets pass
//! without segmentation.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::check;

/// Bytes of `virtio_net_hdr` without the number of buffers.
const HEADER_BYTES: libc::c_int = 10;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNGETIFF: libc::c_ulong = 0x8004_54d2;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
const TUNSETVNETLE: libc::c_ulong = 0x4004_54dc;

const OFFLOAD_CHECKSUM: libc::c_ulong = 0x01;
const OFFLOAD_TSO: libc::c_ulong = 0x02 | 0x04 | 0x08; // TSO for IPv4, IPv6, ECN
const OFFLOAD_USO: libc::c_ulong = 0x20 | 0x40;

/// Returns the current name of the device of a queue. The owner of the network namespace may have
/// renamed the device.
pub(crate) fn name(fd: &OwnedFd) -> io::Result<String> {
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the ifreq, which outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNGETIFF, &raw mut request) } as isize)?;
    let bytes = request.ifr_name.iter().flat_map(|byte| byte.to_ne_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Opens the device `name`, and creates it if it does not exist. Returns the descriptor, and
/// whether the kernel also supports segmentation offload for UDP (Linux 6.2). `one_of_several`: the
/// descriptor is one queue of a device with several queues.
pub(crate) fn open(name: &str, one_of_several: bool) -> io::Result<(OwnedFd, bool)> {
    let path: &CStr = c"/dev/net/tun";
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: `path` ends with a zero; the returned descriptor is new, and belongs to this
    // function.
    let fd = check(unsafe { libc::open(path.as_ptr(), flags) } as isize)?;
    let fd = i32::try_from(fd).unwrap_or(-1);
    // SAFETY: `fd` was just opened, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let queues = if one_of_several { libc::IFF_MULTI_QUEUE } else { 0 };
    let kind = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | queues;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(kind).unwrap_or(0);
    let raw = fd.as_raw_fd();
    // SAFETY: the request is a valid ifreq that outlives the call.
    check(unsafe { libc::ioctl(raw, TUNSETIFF, &raw mut request) } as isize)?;
    let (size, little) = (HEADER_BYTES, 1 as libc::c_int);
    // SAFETY: each call reads one integer that outlives it.
    check(unsafe { libc::ioctl(raw, TUNSETVNETHDRSZ, &raw const size) } as isize)?;
    // SAFETY: as above.
    check(unsafe { libc::ioctl(raw, TUNSETVNETLE, &raw const little) } as isize)?;
    let offload = |bits: libc::c_ulong| {
        // SAFETY: the argument is a plain number.
        check(unsafe { libc::ioctl(raw, TUNSETOFFLOAD, bits) } as isize)
    };
    let udp = offload(OFFLOAD_CHECKSUM | OFFLOAD_TSO | OFFLOAD_USO).is_ok();
    if !udp {
        offload(OFFLOAD_CHECKSUM | OFFLOAD_TSO)?;
    }
    Ok((fd, udp))
}

/// Reads one frame, and appends it to `into`, as far as the capacity allows. Returns the number of
/// bytes.
pub(crate) fn read(fd: &OwnedFd, into: &mut Vec<u8>) -> io::Result<usize> {
    let spare = into.spare_capacity_mut();
    // SAFETY: pointer and length describe the vector's unused memory, which this function may
    // write.
    let n = unsafe { libc::read(fd.as_raw_fd(), spare.as_mut_ptr().cast(), spare.len()) };
    let n = check(n)?;
    // SAFETY: the kernel has written the first `n` bytes beyond the old length.
    unsafe { into.set_len(into.len() + n) };
    Ok(n)
}

/// Writes one frame.
pub(crate) fn write(fd: &OwnedFd, frame: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length describe `frame`.
    check(unsafe { libc::write(fd.as_raw_fd(), frame.as_ptr().cast(), frame.len()) })?;
    Ok(())
}
