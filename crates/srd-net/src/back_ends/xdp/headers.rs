//! Ethernet, IP and UDP headers: written in front of packets that are sent, read from packets that
//! arrive.
//!
//! ```text
//!  0              14                      34 or 54    42 or 62
//!  | to from type | IPv4 (20) or IPv6 (40) | UDP (8)  | payload
//! ```
//!
//! Every length is checked against the bytes of the frame, and every checksum is verified, since no
//! earlier stage has done so. If a UDP checksum is only the sum over the pseudo-header, the
//! sender's kernel has left it to a device (`CHECKSUM_PARTIAL`), and the packet has not been on a
//! wire: it is accepted, as in the kernel. A checksum of zero means "no checksum" in IPv4, and is
//! refused in IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use srd_proto::transmit::Ecn;

/// Bytes of an Ethernet header.
pub(super) const ETHERNET_BYTES: usize = 14;
/// Bytes of an IPv4 header without options.
const V4_BYTES: usize = 20;
/// Bytes of an IPv6 header.
const V6_BYTES: usize = 40;
/// Bytes of a UDP header.
const UDP_BYTES: usize = 8;
/// Largest number of bytes of all headers together.
pub(super) const HEADERS_BYTES_MAX: usize = ETHERNET_BYTES + V6_BYTES + UDP_BYTES;
/// The protocol number of UDP.
const UDP: u8 = 17;
/// TTL or hop limit of sent packets: largest number of routers that a packet may pass.
const HOPS: u8 = 64;

/// A hardware address.
pub(super) type Mac = [u8; 6];

/// Returns the length in bytes of an IP header and a UDP header, for the family of the address.
pub(super) fn ip_headers_bytes(ip: &IpAddr) -> usize {
    UDP_BYTES + if ip.is_ipv4() { V4_BYTES } else { V6_BYTES }
}

/// The headers of a packet. Both addresses are of one family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headers {
    pub(super) to_mac: Mac,
    pub(super) from_mac: Mac,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) dscp: u8,
    pub(super) ecn: Ecn,
}

impl Headers {
    /// Returns the length of all headers in bytes.
    #[cfg(test)]
    pub(super) fn length(&self) -> usize {
        ETHERNET_BYTES + ip_headers_bytes(&self.to.ip())
    }

    /// Writes the headers to the beginning of `out`. `payload` is the checksum's sum over the
    /// payload that follows the headers. Returns the length of the headers in bytes.
    pub(super) fn write(&self, out: &mut [u8], payload_bytes: usize, payload: Sum) -> usize {
        let udp_bytes = u16::try_from(UDP_BYTES + payload_bytes).unwrap_or(u16::MAX);
        out[..6].copy_from_slice(&self.to_mac);
        out[6..12].copy_from_slice(&self.from_mac);
        let ip_end = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V6(from), IpAddr::V6(to)) => self.write_v6(out, &from, &to, udp_bytes),
            (IpAddr::V4(from), IpAddr::V4(to)) => self.write_v4(out, from, to, udp_bytes),
            _ => unreachable!("the way to an address leads over one of its family"),
        };
        let udp = &mut out[ip_end..ip_end + UDP_BYTES];
        udp[..2].copy_from_slice(&self.from.port().to_be_bytes());
        udp[2..4].copy_from_slice(&self.to.port().to_be_bytes());
        udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
        udp[6..].fill(0);
        let mut sum = pseudo_header(&self.from.ip(), &self.to.ip(), udp_bytes);
        sum.add(udp);
        sum.join(payload);
        let checksum = match sum.checksum() {
            0 => 0xffff, // zero would mean "no checksum"
            checksum => checksum,
        };
        udp[6..].copy_from_slice(&checksum.to_ne_bytes());
        ip_end + UDP_BYTES
    }

    /// Returns the traffic class: the DSCP above the ECN field.
    fn traffic_class(&self) -> u8 {
        self.dscp << 2 | ecn_bits(self.ecn)
    }

    fn write_v4(&self, out: &mut [u8], from: Ipv4Addr, to: Ipv4Addr, udp_bytes: u16) -> usize {
        out[12..14].copy_from_slice(&[0x08, 0x00]);
        let ip = &mut out[ETHERNET_BYTES..ETHERNET_BYTES + V4_BYTES];
        let total = udp_bytes.saturating_add(20).to_be_bytes();
        // Packets are never fragmented, so the identification has no use (RFC 6864).
        let fixed =
            [0x45, self.traffic_class(), total[0], total[1], 0, 0, 0x40, 0, HOPS, UDP, 0, 0];
        ip[..12].copy_from_slice(&fixed);
        ip[12..16].copy_from_slice(&from.octets());
        ip[16..].copy_from_slice(&to.octets());
        let mut sum = Sum::default();
        sum.add(ip);
        ip[10..12].copy_from_slice(&sum.checksum().to_ne_bytes());
        ETHERNET_BYTES + V4_BYTES
    }

    fn write_v6(&self, out: &mut [u8], from: &Ipv6Addr, to: &Ipv6Addr, udp_bytes: u16) -> usize {
        out[12..14].copy_from_slice(&[0x86, 0xdd]);
        let ip = &mut out[ETHERNET_BYTES..ETHERNET_BYTES + V6_BYTES];
        let first = 6 << 28 | u32::from(self.traffic_class()) << 20 | flow_label(self.from.port());
        ip[..4].copy_from_slice(&first.to_be_bytes());
        ip[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
        ip[6..8].copy_from_slice(&[UDP, HOPS]);
        ip[8..24].copy_from_slice(&from.octets());
        ip[24..].copy_from_slice(&to.octets());
        ETHERNET_BYTES + V6_BYTES
    }
}

/// Returns a flow label for each source port, so that switches that hash only flow labels also
/// spread paths.
fn flow_label(port: u16) -> u32 {
    (u32::from(port) + 1).wrapping_mul(0x9e37_79b1) >> 12
}

fn ecn_bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0,
        Ecn::Ect => 2,
        Ecn::Ce => 3,
    }
}

fn ecn_of(bits: u8) -> Ecn {
    match bits & 3 {
        0 => Ecn::NotEct,
        3 => Ecn::Ce,
        _ => Ecn::Ect,
    }
}

/// A packet that has arrived, without its headers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) ecn: Ecn,
    /// Range of the payload in the frame.
    pub(super) payload: Range<usize>,
    /// Whether the UDP checksum is incomplete, because the sender's kernel left it to a device.
    pub(super) partial: bool,
}

/// Reason why a frame is not a packet for this endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeaderError {
    /// A length is impossible, or the packet is not UDP over IP.
    Malformed,
    /// The checksum in the IP or UDP header is wrong.
    Checksum,
}

/// Reads the headers of a frame. The XDP program has already checked protocol, address and port.
pub(super) fn read(frame: &[u8]) -> Result<Datagram, HeaderError> {
    let ip = frame.get(ETHERNET_BYTES..).ok_or(HeaderError::Malformed)?;
    match frame[12..14] {
        [0x08, 0x00] => read_v4(ip),
        [0x86, 0xdd] => read_v6(ip),
        _ => Err(HeaderError::Malformed),
    }
}

fn read_v4(ip: &[u8]) -> Result<Datagram, HeaderError> {
    let (header, _) = ip.split_first_chunk::<V4_BYTES>().ok_or(HeaderError::Malformed)?;
    // Short frames are padded on the wire: the length field determines the end of the packet.
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let udp = ip.get(V4_BYTES..total).ok_or(HeaderError::Malformed)?;
    if header[0] != 0x45 || header[9] != UDP {
        return Err(HeaderError::Malformed);
    }
    let mut sum = Sum::default();
    sum.add(header);
    if sum.checksum() != 0 {
        return Err(HeaderError::Checksum);
    }
    let address =
        |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    read_udp(udp, address(12).into(), address(16).into(), header[1], V4_BYTES)
}

fn read_v6(ip: &[u8]) -> Result<Datagram, HeaderError> {
    let (header, rest) = ip.split_first_chunk::<V6_BYTES>().ok_or(HeaderError::Malformed)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let udp = rest.get(..length).ok_or(HeaderError::Malformed)?;
    if header[0] >> 4 != 6 || header[6] != UDP {
        return Err(HeaderError::Malformed);
    }
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::from(octets)
    };
    let traffic_class = header[1] >> 4;
    read_udp(udp, address(8), address(24), traffic_class, V6_BYTES)
}

fn read_udp(
    udp: &[u8],
    from: IpAddr,
    to: IpAddr,
    ecn: u8,
    ip: usize,
) -> Result<Datagram, HeaderError> {
    let (header, _) = udp.split_first_chunk::<UDP_BYTES>().ok_or(HeaderError::Malformed)?;
    let length = u16::from_be_bytes([header[4], header[5]]);
    if usize::from(length) != udp.len() {
        return Err(HeaderError::Malformed);
    }
    let checksum = u16::from_ne_bytes([header[6], header[7]]);
    let pseudo = pseudo_header(&from, &to, length);
    let partial = checksum != 0 && checksum == pseudo.folded();
    let is_right = if checksum == 0 {
        from.is_ipv4()
    } else {
        partial || {
            let mut sum = pseudo;
            sum.add(udp);
            sum.checksum() == 0
        }
    };
    if !is_right {
        return Err(HeaderError::Checksum);
    }
    let port = u16::from_be_bytes([header[0], header[1]]);
    let start = ETHERNET_BYTES + ip + UDP_BYTES;
    let payload = start..start + udp.len() - UDP_BYTES;
    Ok(Datagram { from: SocketAddr::new(from, port), ecn: ecn_of(ecn), payload, partial })
}

/// A sum of 16-bit words for the Internet checksum (RFC 1071), in the byte order of the machine,
/// which gives the same bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum(u64);

impl Sum {
    /// Adds bytes that begin at an even offset. Only the last call may have an odd number of bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<4>();
        // Sums of 32-bit words do not overflow 64 bits within the length of a packet; the processor
        // adds several words in one instruction.
        self.0 += words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum::<u64>();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        self.0 += u64::from(u32::from_ne_bytes(last));
    }

    /// Adds bytes that follow `before` other bytes.
    pub(super) fn add_behind(&mut self, before: usize, bytes: &[u8]) {
        let mut sum = Self::default();
        sum.add(bytes);
        let folded = sum.folded();
        self.0 += u64::from(if before.is_multiple_of(2) { folded } else { folded.swap_bytes() });
    }

    /// Adds another sum.
    fn join(&mut self, other: Self) {
        self.0 += u64::from(other.folded());
    }

    fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        #[allow(clippy::cast_possible_truncation)] // the sum is folded into 16 bits
        {
            sum as u16
        }
    }

    /// Returns the value of the checksum field, in the byte order of the machine. If the summed
    /// bytes contain a correct checksum, the result is zero.
    fn checksum(self) -> u16 {
        !self.folded()
    }
}

fn pseudo_header(from: &IpAddr, to: &IpAddr, udp_bytes: u16) -> Sum {
    let mut sum = Sum::default();
    for ip in [from, to] {
        match ip {
            IpAddr::V4(ip) => sum.add(&ip.octets()),
            IpAddr::V6(ip) => sum.add(&ip.octets()),
        }
    }
    sum.add(&[0, UDP]);
    sum.add(&udp_bytes.to_be_bytes());
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(from: &str, to: &str) -> Headers {
        Headers {
            to_mac: [1; 6],
            from_mac: [2; 6],
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            dscp: 0,
            ecn: Ecn::Ect,
        }
    }

    fn frame(headers: &Headers, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0; headers.length()];
        let mut sum = Sum::default();
        sum.add(payload);
        assert_eq!(headers.write(&mut out, payload.len(), sum), out.len());
        out.extend_from_slice(payload);
        out
    }

    fn both() -> [Headers; 2] {
        [headers("10.1.2.3:7001", "10.1.2.4:9000"), headers("[fd00::1]:7001", "[fd00::2]:9000")]
    }

    #[test]
    fn what_is_written_is_read_in_both_families_and_for_every_ecn() {
        for headers in both() {
            for (length, ecn) in [(0, Ecn::NotEct), (1, Ecn::Ect), (1399, Ecn::Ce)] {
                let headers = Headers { dscp: 10, ecn, ..headers };
                let payload: Vec<u8> =
                    (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect();
                let frame = frame(&headers, &payload);
                let got = read(&frame).unwrap();
                assert_eq!((got.from, got.ecn, got.partial), (headers.from, ecn, false));
                assert_eq!(frame[got.payload], payload);
            }
        }
    }

    #[test]
    fn a_known_packet_has_the_known_checksums() {
        let headers = headers("192.0.2.1:1000", "192.0.2.2:2000");
        let frame = frame(&headers, b"srd");
        // Sum calculated by hand: 4502 001f 0000 4000 4011 c000 0201 c000 0202.
        let words = [0x4502u32, 0x001f, 0, 0x4000, 0x4011, 0xc000, 0x0201, 0xc000, 0x0202];
        let sum = words.iter().sum::<u32>();
        let folded = (sum & 0xffff) + (sum >> 16);
        assert_eq!(u32::from(u16::from_be_bytes([frame[24], frame[25]])), 0xffff - folded);
        let udp = [0xc000u32, 0x0201, 0xc000, 0x0202, 17, 11, 1000, 2000, 11, 0x7372, 0x6400];
        let sum = udp.iter().sum::<u32>();
        let folded = (sum & 0xffff) + (sum >> 16);
        assert_eq!(u32::from(u16::from_be_bytes([frame[40], frame[41]])), 0xffff - folded);
    }

    #[test]
    fn every_flipped_bit_behind_the_ethernet_header_is_found_or_harmless() {
        for headers in both() {
            let frame = frame(&headers, b"some bytes that matter");
            let right = read(&frame).unwrap();
            for bit in ETHERNET_BYTES * 8..frame.len() * 8 {
                let mut wrong = frame.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                // No checksum of IPv6 covers traffic class, flow label and hop limit.
                let uncovered = headers.to.is_ipv6() && (15..18).contains(&(bit / 8));
                let hops = headers.to.is_ipv6() && bit / 8 == 21;
                if let Ok(got) = read(&wrong) {
                    let class = headers.to.is_ipv6() && bit / 8 == 14;
                    assert!(uncovered || hops || class, "bit {bit}: {got:?}");
                    assert_eq!(got.payload, right.payload);
                }
            }
        }
    }

    #[test]
    fn cut_frames_and_false_lengths_are_refused_and_padding_is_cut_off() {
        for headers in both() {
            let whole = frame(&headers, b"payload");
            for length in 0..whole.len() {
                assert!(read(&whole[..length]).is_err(), "{length}");
            }
            let mut padded = whole.clone();
            padded.resize(100, 0xaa);
            assert_eq!(read(&padded), read(&whole));
            let udp_length = whole.len() - 7 - 4;
            for claim in [0u16, 7, 14, 16, 0xffff] {
                let mut wrong = whole.clone();
                wrong[udp_length..udp_length + 2].copy_from_slice(&claim.to_be_bytes());
                assert_eq!(read(&wrong), Err(HeaderError::Malformed), "{claim}");
            }
        }
    }

    #[test]
    fn a_checksum_left_to_a_device_is_taken_and_none_only_in_ipv4() {
        for headers in both() {
            let mut partial = frame(&headers, b"left to the device");
            let at = headers.length() - 2;
            let udp_bytes = u16::try_from(partial.len() - at + 6).unwrap();
            let sum = pseudo_header(&headers.from.ip(), &headers.to.ip(), udp_bytes).folded();
            partial[at..at + 2].copy_from_slice(&sum.to_ne_bytes());
            assert!(read(&partial).unwrap().partial);
            partial[at..at + 2].fill(0);
            assert_eq!(read(&partial).is_ok(), headers.to.is_ipv4());
        }
    }

    #[test]
    fn sums_of_parts_are_the_sum_of_the_whole() {
        let bytes: Vec<u8> = (0..=255).chain(0..=250).collect();
        for cut in 0..bytes.len() {
            let (mut whole, mut parts) = (Sum::default(), Sum::default());
            whole.add(&bytes);
            parts.add(&bytes[..cut]);
            parts.add_behind(cut, &bytes[cut..]);
            assert_eq!(whole.folded(), parts.folded(), "{cut}");
        }
    }
}
