//! Control messages: metadata of a datagram in `sendmsg` and `recvmsg`.
//!
//! Layout (native endian): `usize` length of header and data, `i32` level, `i32` type, data,
//! padding to the size of `usize`. Control messages are written and read as plain bytes; the limits
//! of the kernel bound their length.

use srd_proto::transmit::Ecn;

/// Bytes of a control message before its data.
const HEADER: usize = size_of::<usize>() + 8;
/// Bytes of the buffer: enough for every message that is written or requested (ECN, segment size,
/// timestamp).
const CAPACITY: usize = 128;

/// Number of `UDP_SEGMENT`, which is both a socket option and a type of control message.
pub(crate) const UDP_SEGMENT: libc::c_int = 103;
/// Number of `UDP_GRO`, which is both a socket option and a type of control message.
pub(crate) const UDP_GRO: libc::c_int = 104;

/// A buffer for control messages, aligned as the kernel requires.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; CAPACITY],
    length: usize,
}

/// The kernel's metadata of a received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Received {
    /// ECN field of the packet.
    pub ecn: Ecn,
    /// Size of the segments that were coalesced; zero if the message is one datagram.
    pub segment_bytes: usize,
    /// Wall-clock receive time in nanoseconds since 1970; zero if unknown.
    pub stamp_ns: u64,
    /// ICMP error about a packet that was not delivered.
    pub refusal: Option<Refusal>,
}

/// A `sock_extended_err`, without its error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    /// The source of the error: `SO_EE_ORIGIN_*`.
    pub origin: u8,
    /// Type of the ICMP message.
    pub kind: u8,
    /// Code of the ICMP message.
    pub code: u8,
    /// Further information of the ICMP message: the MTU, if the packet was too big.
    pub info: u32,
}

impl Control {
    /// Bytes that the buffer can receive.
    pub(crate) const CAPACITY: usize = CAPACITY;

    /// Returns an empty buffer.
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; CAPACITY], length: 0 }
    }

    /// Returns the number of bytes in use.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the pointer through which the kernel reads or writes the buffer.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.bytes.as_mut_ptr().cast()
    }

    /// Adds a control message that requests segmentation into datagrams of `segment_bytes`.
    pub(crate) fn push_segment(&mut self, segment_bytes: u16) {
        self.push(libc::SOL_UDP, UDP_SEGMENT, &segment_bytes.to_ne_bytes());
    }

    /// Adds a control message that sets the DSCP and the ECN field of the message.
    pub(crate) fn push_ecn(&mut self, dscp: u8, ecn: Ecn, ipv6: bool) {
        let data = i32::from(traffic_class(dscp, ecn)).to_ne_bytes();
        if ipv6 {
            self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &data);
        } else {
            self.push(libc::IPPROTO_IP, libc::IP_TOS, &data);
        }
    }

    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        let start = self.length;
        let end = start + HEADER + data.len().next_multiple_of(size_of::<usize>());
        assert!(end <= CAPACITY, "control messages have a fixed bound");
        self.bytes[start..end].fill(0);
        let (header, body) = self.bytes[start..end].split_at_mut(HEADER);
        let (length, rest) = header.split_at_mut(size_of::<usize>());
        length.copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        rest[..4].copy_from_slice(&level.to_ne_bytes());
        rest[4..8].copy_from_slice(&kind.to_ne_bytes());
        body[..data.len()].copy_from_slice(data);
        self.length = end;
    }

    /// Reads the messages in the first `length` bytes, which the kernel wrote. Unknown messages are
    /// skipped; reading ends at a malformed message.
    pub(crate) fn parse(&self, length: usize) -> Received {
        let mut rest = &self.bytes[..length.min(CAPACITY)];
        let mut found = Received::default();
        while rest.len() >= HEADER {
            let total = usize_at(rest);
            if total < HEADER || total > rest.len() {
                break;
            }
            let level = i32_at(&rest[size_of::<usize>()..]);
            let kind = i32_at(&rest[size_of::<usize>() + 4..]);
            found.take(level, kind, &rest[HEADER..total]);
            rest = &rest[total.next_multiple_of(size_of::<usize>()).min(rest.len())..];
        }
        found
    }
}

impl Received {
    fn take(&mut self, level: i32, kind: i32, data: &[u8]) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TOS) if !data.is_empty() => self.ecn = ecn_of(data[0]),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if data.len() >= 4 => {
                self.ecn = ecn_of(i32_at(data).to_le_bytes()[0]);
            }
            (libc::SOL_UDP, UDP_GRO) if data.len() >= 4 => {
                self.segment_bytes = usize::try_from(i32_at(data)).unwrap_or(0);
            }
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
                if data.len() >= 16 =>
            {
                let info = i32_at(&data[8..]).cast_unsigned();
                let (origin, kind, code) = (data[4], data[5], data[6]);
                self.refusal = Some(Refusal { origin, kind, code, info });
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) if data.len() >= 16 => {
                let (s, ns) = (i64_at(data), i64_at(&data[8..]));
                self.stamp_ns =
                    u64::try_from(s.saturating_mul(1_000_000_000).saturating_add(ns)).unwrap_or(0);
            }
            _ => {}
        }
    }
}

/// Returns the TOS or traffic class byte: the DSCP above the ECN field.
pub(crate) fn traffic_class(dscp: u8, ecn: Ecn) -> u8 {
    dscp << 2 | ecn_bits(ecn)
}

/// Returns the two bits of the ECN field in the IP header.
fn ecn_bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0,
        Ecn::Ect => 2,
        Ecn::Ce => 3,
    }
}

/// Returns the ECN field of a TOS or traffic class byte. ECT(1) counts as ECN-capable.
pub(crate) fn ecn_of(traffic_class: u8) -> Ecn {
    match traffic_class & 3 {
        0 => Ecn::NotEct,
        3 => Ecn::Ce,
        _ => Ecn::Ect,
    }
}

fn usize_at(b: &[u8]) -> usize {
    let mut x = [0; size_of::<usize>()];
    x.copy_from_slice(&b[..size_of::<usize>()]);
    usize::from_ne_bytes(x)
}

fn i32_at(b: &[u8]) -> i32 {
    i32::from_ne_bytes([b[0], b[1], b[2], b[3]])
}

fn i64_at(b: &[u8]) -> i64 {
    i64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_has_the_c_librarys_layout() {
        let mut control = Control::new();
        control.push_segment(8972);
        control.push_ecn(0, Ecn::Ect, false);
        // SAFETY: CMSG_SPACE is pure arithmetic.
        let space = unsafe { libc::CMSG_SPACE(2) + libc::CMSG_SPACE(4) };
        assert_eq!(control.len(), space as usize);
        // SAFETY: CMSG_LEN is pure arithmetic.
        let first = unsafe { libc::CMSG_LEN(2) };
        assert_eq!(usize_at(&control.bytes), first as usize);
    }

    #[test]
    fn every_kind_is_read_back() {
        let mut control = Control::new();
        control.push(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &{
            let mut t = [0; 16];
            t[..8].copy_from_slice(&7i64.to_ne_bytes());
            t[8..].copy_from_slice(&9i64.to_ne_bytes());
            t
        });
        control.push(libc::IPPROTO_IP, libc::IP_TOS, &[3]);
        control.push(libc::SOL_UDP, UDP_GRO, &1400i32.to_ne_bytes());
        let found = control.parse(control.len());
        let wanted =
            Received { ecn: Ecn::Ce, segment_bytes: 1400, stamp_ns: 7_000_000_009, refusal: None };
        assert_eq!(found, wanted);
    }

    #[test]
    fn ipv6_ecn_is_read_back() {
        for ecn in [Ecn::NotEct, Ecn::Ect, Ecn::Ce] {
            let mut control = Control::new();
            control.push_ecn(46, ecn, true);
            assert_eq!(i32_at(&control.bytes[HEADER..]), i32::from(46 << 2 | ecn_bits(ecn)));
            assert_eq!(control.parse(control.len()).ecn, ecn);
        }
    }

    #[test]
    fn a_truncated_or_absurd_buffer_yields_nothing_and_does_not_panic() {
        let mut control = Control::new();
        control.push(libc::SOL_UDP, UDP_GRO, &1400i32.to_ne_bytes());
        for length in 0..HEADER + 4 {
            assert_eq!(control.parse(length), Received::default());
        }
        control.bytes[..8].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(control.parse(CAPACITY), Received::default());
        control.bytes[..8].copy_from_slice(&0usize.to_ne_bytes());
        assert_eq!(control.parse(CAPACITY), Received::default());
    }
}
