//! Socket addresses in the kernel's layout, built and read as plain bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Bytes of a `sockaddr_in`.
const V4_BYTES: usize = 16;
/// Bytes of a `sockaddr_in6`, the largest address that is used.
const V6_BYTES: usize = 28;

/// A `sockaddr_in` or `sockaddr_in6`, for `sendmsg` and `recvmsg`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct SockAddr {
    bytes: [u8; V6_BYTES],
}

impl SockAddr {
    /// Bytes of the buffer, which has space for an address of IPv4 or of IPv6.
    pub(crate) const CAPACITY: u32 = 28;
    /// An address of zeros: a buffer to receive into.
    pub(crate) const EMPTY: Self = Self { bytes: [0; V6_BYTES] };

    /// Returns the kernel's form of `address`, and its length.
    pub(crate) fn encode(address: &SocketAddr) -> (Self, u32) {
        let mut bytes = [0; V6_BYTES];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let length = match address {
            SocketAddr::V4(v4) => {
                bytes[..2].copy_from_slice(&family(libc::AF_INET).to_ne_bytes());
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                V4_BYTES
            }
            SocketAddr::V6(v6) => {
                bytes[..2].copy_from_slice(&family(libc::AF_INET6).to_ne_bytes());
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                V6_BYTES
            }
        };
        (Self { bytes }, u32::try_from(length).unwrap_or(Self::CAPACITY))
    }

    /// Returns the kernel's form of `address`, and its length, for an IPv6 or an IPv4 socket. On an
    /// IPv6 socket, an IPv4 address has its IPv4-mapped form.
    pub(crate) fn encode_for(ipv6: bool, address: &SocketAddr) -> (Self, u32) {
        match address {
            SocketAddr::V4(v4) if ipv6 => {
                let mapped = v4.ip().to_ipv6_mapped();
                Self::encode(&SocketAddrV6::new(mapped, v4.port(), 0, 0).into())
            }
            _ => Self::encode(address),
        }
    }

    /// Returns the address that the kernel wrote; `None` if it is too short or of another family.
    /// An IPv4-mapped address is returned as an IPv4 address, so that an address has the same form
    /// for every socket.
    ///
    /// The flow label is dropped: it differs between packets, but addresses of one peer must
    /// compare equal.
    pub(crate) fn decode(&self, length: u32) -> Option<SocketAddr> {
        let length = length as usize;
        let b = &self.bytes;
        let port = u16::from_be_bytes([b[2], b[3]]);
        let family_found = u16::from_ne_bytes([b[0], b[1]]);
        if family_found == family(libc::AF_INET) && length >= V4_BYTES {
            let ip = Ipv4Addr::new(b[4], b[5], b[6], b[7]);
            Some(SocketAddr::V4(SocketAddrV4::new(ip, port)))
        } else if family_found == family(libc::AF_INET6) && length >= V6_BYTES {
            let mut octets = [0; 16];
            octets.copy_from_slice(&b[8..24]);
            let scope = u32::from_ne_bytes([b[24], b[25], b[26], b[27]]);
            if let Some(v4) = Ipv6Addr::from(octets).to_ipv4_mapped() {
                return Some(SocketAddr::V4(SocketAddrV4::new(v4, port)));
            }
            Some(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, scope)))
        } else {
            None
        }
    }

    /// Returns the pointer through which the kernel reads or writes the address.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    /// Returns the pointer through which the kernel reads the address.
    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        self.bytes.as_ptr().cast()
    }
}

/// Returns the address family of an IP address.
pub(crate) fn family_of(ip: &IpAddr) -> libc::c_int {
    match ip {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the values are 2 and 10
const fn family(af: libc::c_int) -> u16 {
    af as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in ["1.2.3.4:7471", "0.0.0.0:1", "[::1]:65535", "[2001:db8::7]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            let (encoded, length) = SockAddr::encode(&address);
            assert_eq!(encoded.decode(length), Some(address));
        }
    }

    #[test]
    fn a_socket_of_both_families_takes_ipv4_addresses_as_mapped_ones_and_nobody_else_sees_them() {
        let address: SocketAddr = "192.0.2.1:7471".parse().unwrap();
        let (mapped, length) = SockAddr::encode_for(true, &address);
        assert_eq!(length, SockAddr::CAPACITY);
        assert_eq!(mapped.bytes[18..24], [0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!(mapped.decode(length), Some(address));
        let (plain, length) = SockAddr::encode_for(false, &address);
        assert_eq!(plain.decode(length), Some(address));
    }

    #[test]
    fn scope_is_kept_and_flow_label_is_dropped() {
        let ip = "fe80::1".parse().unwrap();
        let (encoded, length) = SockAddr::encode(&SocketAddrV6::new(ip, 5, 77, 3).into());
        assert_eq!(encoded.decode(length), Some(SocketAddrV6::new(ip, 5, 0, 3).into()));
    }

    #[test]
    fn layout_matches_the_c_library() {
        assert_eq!(size_of::<libc::sockaddr_in>(), V4_BYTES);
        assert_eq!(size_of::<libc::sockaddr_in6>(), V6_BYTES);
        let (encoded, _) = SockAddr::encode(&"9.8.7.6:258".parse().unwrap());
        assert_eq!(&encoded.bytes[2..8], &[1, 2, 9, 8, 7, 6]);
    }

    #[test]
    fn a_short_or_foreign_address_is_refused() {
        assert_eq!(SockAddr::EMPTY.decode(16), None);
        let (encoded, length) = SockAddr::encode(&"[::1]:1".parse().unwrap());
        assert_eq!(encoded.decode(length - 1), None);
    }
}
