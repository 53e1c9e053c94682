//! Which interface owns an address.

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;

use super::addr::SockAddr;
use super::check;

/// The name of the interface that has the address `ip`, if one has.
pub(crate) fn name_of(ip: IpAddr) -> io::Result<Option<String>> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `head` is a pointer to write to; on success it is freed below.
    check(unsafe { libc::getifaddrs(&raw mut head) } as isize)?;
    let mut found = None;
    let mut next = head;
    while !next.is_null() && found.is_none() {
        // SAFETY: `next` is a node of the list, which lives until it is freed below.
        let node = unsafe { &*next };
        // SAFETY: the address of a node is null or a socket address of its own family.
        if unsafe { address_of(node.ifa_addr) } == Some(ip) {
            // SAFETY: the name of a node is a C string that lives as long as the list.
            let name = unsafe { CStr::from_ptr(node.ifa_name) };
            found = Some(name.to_string_lossy().into_owned());
        }
        next = node.ifa_next;
    }
    // SAFETY: `head` came from `getifaddrs` and is freed once.
    unsafe { libc::freeifaddrs(head) };
    Ok(found)
}

/// The IP address behind a socket address.
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
    // SAFETY: the caller vouches for `length` bytes at `address`; `copy` has room for 28.
    unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), copy.as_mut_ptr().cast(), length) };
    copy.decode(u32::try_from(length).ok()?).map(|a| a.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_belongs_to_lo_and_a_documentation_address_to_nobody() {
        assert_eq!(name_of("127.0.0.1".parse().unwrap()).unwrap().as_deref(), Some("lo"));
        assert_eq!(name_of("192.0.2.77".parse().unwrap()).unwrap(), None);
    }
}
