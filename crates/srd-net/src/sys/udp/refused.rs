//! ICMP errors about packets that were not delivered, from the error queue of a socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use srd_proto::Unreachable;

use super::cmsg::{Control, Refusal};
use super::socket::Socket;
use crate::back_ends::io::Undelivered;
use crate::sys::addr::SockAddr;
use crate::sys::check;

/// Origin of an ICMP error (`SO_EE_ORIGIN_ICMP`).
const ICMP: u8 = 2;
/// Origin of an ICMPv6 error (`SO_EE_ORIGIN_ICMP6`).
const ICMP6: u8 = 3;

/// Enables the error queue. Until the queue is read, a call on the socket may also fail, once,
/// because of a packet that was sent before.
pub(crate) fn queue_errors(socket: &Socket) -> io::Result<()> {
    socket.set_each((libc::IP_RECVERR, 1), (libc::IPV6_RECVERR, 1))
}

/// Takes the oldest error from the socket's error queue. Returns the destination of the packet and
/// the reason; `Ok(Some(None))` if the error is irrelevant for the sender, `Ok(None)` if the queue
/// is empty.
pub(crate) fn take_error(socket: &Socket) -> io::Result<Option<Option<(SocketAddr, Undelivered)>>> {
    let mut name = SockAddr::EMPTY;
    let mut control = Control::new();
    let mut byte = [0u8; 1];
    let mut piece = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    // SAFETY: all-zero is a valid msghdr; some C libraries have private padding in this structure.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = name.as_mut_ptr();
    header.msg_namelen = SockAddr::CAPACITY;
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr();
    header.msg_controllen = Control::CAPACITY;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to a name, a control buffer and a piece on this stack frame, each
    // as long as announced.
    let result = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
    match check(result) {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(e) => return Err(e),
    }
    // The type of this length differs between C libraries.
    #[allow(clippy::unnecessary_cast)]
    let length = header.msg_controllen as usize;
    let to = name.decode(header.msg_namelen);
    let why = control.parse(length).refusal.and_then(meaning);
    Ok(Some(to.zip(why)))
}

/// Returns the meaning of an ICMP message for the sender of the packet. Returns `None` for messages
/// that do not report a lost packet, and for errors of this machine, which system calls return.
fn meaning(refusal: Refusal) -> Option<Undelivered> {
    let kind = match (refusal.origin, refusal.kind, refusal.code) {
        (ICMP, 3, 4) | (ICMP6, 2, _) => return Some(Undelivered::TooBig { mtu: refusal.info }),
        (ICMP, 3, 2 | 3) | (ICMP6, 1, 4) => Unreachable::Port,
        (ICMP, 3, 1 | 7 | 8 | 12) | (ICMP6, 1, 3) => Unreachable::Host,
        (ICMP, 3, 0 | 5 | 6 | 11) | (ICMP6, 1, 0 | 2) => Unreachable::Network,
        (ICMP, 3, 9 | 10 | 13..=15) | (ICMP6, 1, 1 | 5 | 6) => Unreachable::Prohibited,
        _ => return None,
    };
    Some(Undelivered::Unreachable(kind))
}

/// Whether an ICMP error about an earlier packet may be the cause of this error of a system call.
pub(crate) fn may_be_of_an_earlier_packet(errno: i32) -> bool {
    matches!(
        errno,
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::EACCES
            | libc::ENOPROTOOPT
            | libc::EOPNOTSUPP
            | libc::EPROTO
            | libc::EMSGSIZE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_destination_unreachable_has_its_meaning() {
        let of = |origin, kind, code| meaning(Refusal { origin, kind, code, info: 1400 });
        let unreachable = |kind| Some(Undelivered::Unreachable(kind));
        assert_eq!(of(ICMP, 3, 3), unreachable(Unreachable::Port));
        assert_eq!(of(ICMP6, 1, 4), unreachable(Unreachable::Port));
        assert_eq!(of(ICMP, 3, 1), unreachable(Unreachable::Host));
        assert_eq!(of(ICMP6, 1, 3), unreachable(Unreachable::Host));
        assert_eq!(of(ICMP, 3, 0), unreachable(Unreachable::Network));
        assert_eq!(of(ICMP6, 1, 0), unreachable(Unreachable::Network));
        assert_eq!(of(ICMP, 3, 13), unreachable(Unreachable::Prohibited));
        assert_eq!(of(ICMP6, 1, 1), unreachable(Unreachable::Prohibited));
        assert_eq!(of(ICMP, 3, 4), Some(Undelivered::TooBig { mtu: 1400 }));
        assert_eq!(of(ICMP6, 2, 0), Some(Undelivered::TooBig { mtu: 1400 }));
        // Time exceeded, errors of this machine, and messages that do not exist.
        for (origin, kind, code) in [(ICMP, 11, 0), (1, 3, 3), (ICMP6, 3, 0), (ICMP, 3, 99)] {
            assert_eq!(of(origin, kind, code), None);
        }
    }

    #[test]
    fn a_closed_port_is_told_with_its_address_in_both_families() {
        let each = [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0")];
        // A socket of both families receives errors of both.
        let both = [("127.0.0.1:0", "[::]:0"), ("[::1]:0", "[::]:0")];
        for (at, from) in each.into_iter().chain(both) {
            let closed = std::net::UdpSocket::bind(at).unwrap().local_addr().unwrap();
            let address: SocketAddr = from.parse().unwrap();
            let socket = Socket::new(&address).unwrap();
            socket.bind(&address).unwrap();
            queue_errors(&socket).unwrap();
            assert!(take_error(&socket).unwrap().is_none());
            let sender = std::net::UdpSocket::from(std::os::fd::OwnedFd::from(socket));
            let mapped = match closed {
                SocketAddr::V4(v4) if address.is_ipv6() => {
                    (v4.ip().to_ipv6_mapped(), v4.port()).into()
                }
                _ => closed,
            };
            sender.send_to(b"anyone?", mapped).unwrap();
            let socket = Socket::from_fd(sender.into(), address.is_ipv6());
            let mut tries = 0;
            let told = loop {
                match take_error(&socket).unwrap() {
                    Some(told) => break told,
                    None => std::thread::sleep(std::time::Duration::from_millis(1)),
                }
                tries += 1;
                assert!(tries < 60_000, "nothing was told");
            };
            assert_eq!(told, Some((closed, Undelivered::Unreachable(Unreachable::Port))));
            assert!(take_error(&socket).unwrap().is_none());
        }
    }
}
