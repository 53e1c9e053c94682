//! Interfaces: their addresses, MTUs and states.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use super::addr::SockAddr;
use super::check;
use super::udp::socket::Socket;

/// An address of an interface.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub interface: String,
    pub ip: IpAddr,
    pub up: bool,
    pub loopback: bool,
}

/// Returns the name of the interface that has the address `ip`, if there is one.
pub(crate) fn name_of(ip: IpAddr) -> io::Result<Option<String>> {
    Ok(addresses()?.into_iter().find(|a| a.ip == ip).map(|a| a.interface))
}

/// Returns every IP address of every interface.
pub(crate) fn addresses() -> io::Result<Vec<Address>> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `head` is a pointer to write to; on success it is freed below.
    check(unsafe { libc::getifaddrs(&raw mut head) } as isize)?;
    let mut found = Vec::new();
    let mut next = head;
    while !next.is_null() {
        // SAFETY: `next` is a node of the list, which lives until it is freed below.
        let node = unsafe { &*next };
        // SAFETY: the address of a node is null or a socket address of its own family.
        if let Some(ip) = unsafe { address_of(node.ifa_addr) } {
            // SAFETY: the name of a node is a C string that lives as long as the list.
            let name = unsafe { CStr::from_ptr(node.ifa_name) };
            let has =
                |flag: libc::c_int| node.ifa_flags & libc::c_uint::try_from(flag).unwrap_or(0) != 0;
            found.push(Address {
                interface: name.to_string_lossy().into_owned(),
                ip,
                up: has(libc::IFF_UP),
                loopback: has(libc::IFF_LOOPBACK),
            });
        }
        next = node.ifa_next;
    }
    // SAFETY: `head` came from `getifaddrs` and is freed once.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

/// Returns the MTU of an interface, including the IP header.
pub(crate) fn mtu_of(interface: &str) -> io::Result<u32> {
    let request = ask(interface, libc::SIOCGIFMTU)?;
    // SAFETY: this request fills in the MTU.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|_| io::Error::other("the kernel reports a negative MTU"))
}

/// Whether an interface is up.
pub(crate) fn is_up(interface: &str) -> io::Result<bool> {
    let request = ask(interface, libc::SIOCGIFFLAGS)?;
    // SAFETY: this request fills in the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(libc::c_int::from(flags) & libc::IFF_UP != 0)
}

/// Returns the kind of an interface's link header, such as `ARPHRD_ETHER`.
pub(crate) fn link_kind_of(interface: &str) -> io::Result<u16> {
    let request = ask(interface, libc::SIOCGIFHWADDR)?;
    // SAFETY: this request fills in the address, whose family is the kind.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
}

/// Queries the kernel for a property of an interface.
fn ask(interface: &str, what: libc::c_ulong) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = interface.as_bytes();
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let socket = Socket::new(&SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `request` names an interface, zero-terminated, and belongs to this function.
    check(unsafe { libc::ioctl(fd, what as _, &raw mut request) } as isize)?;
    Ok(request)
}

/// Returns the index of an interface.
pub(crate) fn index_of(interface: &str) -> io::Result<u32> {
    let name = CString::new(interface).map_err(io::Error::other)?;
    // SAFETY: the name is a C string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENODEV) => {
                io::Error::new(io::ErrorKind::NotFound, "there is no such interface")
            }
            error => error,
        }),
        index => Ok(index),
    }
}

/// Returns the IP address in a socket address.
///
/// # Safety
/// `address` is null or points to a socket address that is complete for its family.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, so at least the family can be read.
    let family = i32::from(unsafe { (*address).sa_family });
    let length = match family {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    let mut copy = SockAddr::EMPTY;
    // SAFETY: the caller guarantees `length` bytes at `address`; `copy` has room for 28.
    unsafe {
        std::ptr::copy_nonoverlapping(address.cast::<u8>(), copy.as_mut_ptr().cast(), length)
    };
    copy.decode(u32::try_from(length).ok()?).map(|a| a.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_belongs_to_lo_and_a_documentation_address_to_nobody() {
        assert_eq!(name_of("127.0.0.1".parse().unwrap()).unwrap().as_deref(), Some("lo"));
        assert!(mtu_of("lo").unwrap() >= 1280);
        assert!(mtu_of("no-such-interface-at-all").is_err());
        assert!(mtu_of("nosuch0").is_err());
        assert_eq!(name_of("192.0.2.77".parse().unwrap()).unwrap(), None);
    }
}
