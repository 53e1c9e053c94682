//! One UDP socket with the options that a transport needs.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use srd_proto::transmit::Ecn;

use super::cmsg::{UDP_GRO, UDP_SEGMENT, traffic_class};
use super::steer;
use crate::sys::addr::{SockAddr, family_of};
use crate::sys::check;

/// A UDP socket. Each call has the flag that makes it non-blocking.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    ipv6: bool,
    /// Whether the socket is of the IPv6 family, and serves IPv4 as well.
    both: bool,
    /// The DSCP of packets that are sent.
    dscp: u8,
}

impl Socket {
    /// Opens an unbound socket of the family of `like`. A socket for every address of the machine,
    /// `::`, serves IPv4 as well, independent of `net.ipv6.bindv6only`; any other IPv6 socket does
    /// not.
    pub(crate) fn new(like: &SocketAddr) -> io::Result<Self> {
        let mut socket = Self::of_kind(like, libc::SOCK_DGRAM)?;
        if socket.ipv6 {
            socket.both = like.ip().is_unspecified();
            let only = i32::from(!socket.both);
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, only)?;
        }
        Ok(socket)
    }

    /// Takes over a bound socket that another process has made.
    pub(crate) fn adopt(fd: OwnedFd) -> io::Result<Self> {
        let mut socket = Self { fd, ipv6: false, both: false, dscp: 0 };
        let local = socket.local_address()?;
        (socket.ipv6, socket.both) = (local.is_ipv6(), local.ip().is_unspecified());
        socket.both &= socket.ipv6;
        Ok(socket)
    }

    /// Opens an unconnected TCP socket of the family of `like`.
    pub(crate) fn stream(like: &SocketAddr) -> io::Result<Self> {
        Self::of_kind(like, libc::SOCK_STREAM)
    }

    fn of_kind(like: &SocketAddr, kind: libc::c_int) -> io::Result<Self> {
        let kind = kind | libc::SOCK_CLOEXEC;
        // SAFETY: takes and returns integers; the returned descriptor is new, and belongs to this
        // function.
        let fd = check(unsafe { libc::socket(family_of(&like.ip()), kind, 0) } as isize)?;
        let fd = i32::try_from(fd).unwrap_or(-1);
        // SAFETY: `fd` was just created, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, ipv6: like.is_ipv6(), both: false, dscp: 0 })
    }

    /// Makes a socket of an open and bound descriptor.
    pub(crate) fn from_fd(fd: OwnedFd, ipv6: bool) -> Self {
        Self { fd, ipv6, both: false, dscp: 0 }
    }

    /// Returns the number of the descriptor.
    pub(crate) fn number(&self) -> u64 {
        self.fd.as_raw_fd().unsigned_abs().into()
    }

    /// Binds the socket to an address.
    pub(crate) fn bind(&self, address: &SocketAddr) -> io::Result<()> {
        let (name, length) = SockAddr::encode(address);
        // SAFETY: `name` holds at least `length` bytes of a socket address.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), name.as_ptr(), length) } as isize)?;
        Ok(())
    }

    /// Sets the destination of the socket (used to query the kernel for routes).
    pub(crate) fn connect(&self, address: &SocketAddr) -> io::Result<()> {
        let (name, length) = SockAddr::encode(address);
        // SAFETY: `name` holds at least `length` bytes of a socket address.
        check(unsafe { libc::connect(self.fd.as_raw_fd(), name.as_ptr(), length) } as isize)?;
        Ok(())
    }

    /// Returns the address that the socket is bound to.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        let mut name = SockAddr::EMPTY;
        let mut length = SockAddr::CAPACITY;
        // SAFETY: `name` has room for `length` bytes.
        let result = unsafe {
            libc::getsockname(self.fd.as_raw_fd(), name.as_mut_ptr().cast(), &raw mut length)
        };
        check(result as isize)?;
        name.decode(length).ok_or_else(|| io::Error::other("the socket has no IP address"))
    }

    /// Returns the DSCP of sent packets.
    pub(crate) fn dscp(&self) -> u8 {
        self.dscp
    }

    /// Whether the socket is of the IPv6 family.
    pub(crate) fn is_ipv6(&self) -> bool {
        self.ipv6
    }

    /// Requests buffers of these sizes. With privilege they may exceed the system's limit;
    /// otherwise the limit applies. Returns the real size of the receive buffer (the kernel doubles
    /// the size for its book-keeping).
    pub(crate) fn buffers(&self, send_bytes: u32, receive_bytes: u32) -> io::Result<usize> {
        let force = |forced, plain, bytes: u32| {
            let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
            self.set(libc::SOL_SOCKET, forced, bytes)
                .or_else(|_| self.set(libc::SOL_SOCKET, plain, bytes))
        };
        force(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send_bytes)?;
        force(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive_bytes)?;
        self.receive_buffer_bytes()
    }

    /// Returns the size of the receive buffer, with the kernel's book-keeping.
    pub(crate) fn receive_buffer_bytes(&self) -> io::Result<usize> {
        Ok(usize::try_from(self.value(libc::SOL_SOCKET, libc::SO_RCVBUF)?).unwrap_or(0))
    }

    /// Sets the mark (`SO_MARK`) of every sent packet.
    pub(crate) fn mark(&self, mark: u32) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())
    }

    /// Whether the socket sends and receives packets of IPv6 (`ipv6`) or of IPv4.
    fn carries(&self, ipv6: bool) -> bool {
        self.both || self.ipv6 == ipv6
    }

    /// Sets an option that has one form for IPv4 and another for IPv6, for each family that the
    /// socket serves.
    pub(crate) fn set_each(
        &self,
        (v4, v4_value): (i32, i32),
        (v6, v6_value): (i32, i32),
    ) -> io::Result<()> {
        if self.carries(true) {
            self.set(libc::IPPROTO_IPV6, v6, v6_value)?;
        }
        if self.carries(false) {
            self.set(libc::IPPROTO_IP, v4, v4_value)?;
        }
        Ok(())
    }

    /// Disables fragmentation, and makes the kernel ignore the path MTU that it has learned. A
    /// packet that is too large for the interface is an error. A packet that is too large for the
    /// path is lost, which the protocol core detects.
    pub(crate) fn never_fragment(&self) -> io::Result<()> {
        // W2: No fragments
        self.set_each(
            (libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
        )
    }

    /// Sets the DSCP of sent packets, and their default ECN field, which each message can override.
    pub(crate) fn mark_packets(&mut self, dscp: u8, ecn: Ecn) -> io::Result<()> {
        self.dscp = dscp;
        let bits = i32::from(traffic_class(dscp, ecn));
        self.set_each((libc::IP_TOS, bits), (libc::IPV6_TCLASS, bits))
    }

    /// Requests the ECN field of received packets.
    pub(crate) fn receive_ecn(&self) -> io::Result<()> {
        self.set_each((libc::IP_RECVTOS, 1), (libc::IPV6_RECVTCLASS, 1))
    }

    /// Requests the kernel's receive time of received packets.
    pub(crate) fn receive_stamps(&self) -> io::Result<()> {
        // C2: Receive time of the kernel
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
    }

    /// Allows the kernel to deliver several datagrams as one message.
    pub(crate) fn receive_coalesced(&self) -> io::Result<()> {
        self.set(libc::SOL_UDP, UDP_GRO, 1)
    }

    /// Whether the kernel supports segmentation offload for UDP.
    pub(crate) fn knows_segmentation(&self) -> bool {
        self.value(libc::SOL_UDP, UDP_SEGMENT).is_ok()
    }

    /// Drops every arriving packet: a socket that only sends must not queue packets of other hosts.
    pub(crate) fn drop_all(&self) -> io::Result<()> {
        self.attach(libc::SO_ATTACH_FILTER, &mut [steer::accept_nothing()])
    }

    /// Allows other sockets of this process to be bound to the same address. Call before binding.
    pub(crate) fn share_address(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
    }

    /// Makes the kernel hand each packet that arrives at this address to the socket of the packet's
    /// shard. The sockets at this address serve the shards in the order in which they were bound.
    /// Call once, on any of the sockets.
    pub(crate) fn steer(&self, shards: u8) -> io::Result<()> {
        self.attach(libc::SO_ATTACH_REUSEPORT_CBPF, &mut steer::to_shard(shards))
    }

    /// Attaches a classic BPF program.
    fn attach(&self, option: i32, instructions: &mut [libc::sock_filter]) -> io::Result<()> {
        let len = libc::c_ushort::try_from(instructions.len()).unwrap_or(0);
        let program = libc::sock_fprog { len, filter: instructions.as_mut_ptr() };
        // SAFETY: the program and its instructions outlive the call, which copies them.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const program).cast(),
                libc::socklen_t::try_from(size_of::<libc::sock_fprog>()).unwrap_or(0),
            )
        };
        check(result as isize)?;
        Ok(())
    }

    /// Returns the MTU towards the destination that the socket is connected to, including the IP
    /// header.
    pub(crate) fn path_mtu(&self) -> io::Result<u32> {
        let mtu = if self.ipv6 {
            self.value(libc::IPPROTO_IPV6, libc::IPV6_MTU)?
        } else {
            self.value(libc::IPPROTO_IP, libc::IP_MTU)?
        };
        u32::try_from(mtu).map_err(|_| io::Error::other("the kernel reports a negative MTU"))
    }

    fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        set_int(self.fd.as_fd(), level, option, value)
    }

    fn value(&self, level: i32, option: i32) -> io::Result<i32> {
        let mut value = 0i32;
        let mut length = 4;
        // SAFETY: `value` has room for the four bytes that `length` announces.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        check(result as isize)?;
        Ok(value)
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.fd
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets an integer option on any socket.
pub(crate) fn set_int(fd: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: `value` is four bytes, as announced.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), 4) };
    check(result as isize)?;
    Ok(())
}

/// Sets a text option on any socket.
pub(crate) fn set_text(fd: BorrowedFd<'_>, level: i32, option: i32, text: &str) -> io::Result<()> {
    let length = libc::socklen_t::try_from(text.len()).unwrap_or(0);
    // SAFETY: pointer and length describe `text`, which the call only reads.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, text.as_ptr().cast(), length) };
    check(result as isize)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_take_every_option() {
        for text in ["127.0.0.1:0", "[::1]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut socket = Socket::new(&address).unwrap();
            socket.never_fragment().unwrap();
            socket.mark_packets(10, Ecn::Ect).unwrap();
            socket.receive_ecn().unwrap();
            socket.receive_stamps().unwrap();
            assert!(socket.buffers(1 << 18, 1 << 18).unwrap() >= 1 << 17);
            socket.drop_all().unwrap();
            socket.bind(&address).unwrap();
            let bound = socket.local_address().unwrap();
            assert_eq!(bound.ip(), address.ip());
            assert_ne!(bound.port(), 0);
        }
    }

    #[test]
    fn a_dscp_stands_above_the_ecn_field_in_each_family_that_a_socket_carries() {
        let v4 = (libc::IPPROTO_IP, libc::IP_TOS);
        let v6 = (libc::IPPROTO_IPV6, libc::IPV6_TCLASS);
        let each = [("127.0.0.1:0", vec![v4]), ("[::1]:0", vec![v6]), ("[::]:0", vec![v4, v6])];
        for (text, fields) in each {
            let mut socket = Socket::new(&text.parse().unwrap()).unwrap();
            socket.mark_packets(26, Ecn::Ect).unwrap();
            assert_eq!(socket.dscp(), 26);
            for (level, option) in fields {
                assert_eq!(socket.value(level, option).unwrap(), 26 << 2 | 2, "{text}");
            }
        }
    }

    #[test]
    fn the_mtu_towards_loopback_is_known() {
        for text in ["127.0.0.1:9", "[::1]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            let socket = Socket::new(&address).unwrap();
            socket.connect(&address).unwrap();
            assert!(socket.path_mtu().unwrap() >= 1280);
        }
    }
}
