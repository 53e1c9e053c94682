//! Packets of the simulator as bytes of IPv4 packets, for capture files.
//!
//! The bytes of an SRD packet are those that its endpoint sent. The TCP model has fields instead of
//! bytes. They are written as the header that Linux would send, with the low 32 bits of offsets,
//! timestamps in microseconds, and zeros for payload. The fields of a RoCE packet are written as
//! headers as well, with a CRC of zero. UDP checksums are zero, which means "not computed".

use srd_proto::transmit::Ecn;

use crate::engine::nic::inner_address;
use crate::engine::node::{Body, PROTOCOL_TCP, Packet};
use crate::machines::roce::packet::ICRC_BYTES;
use crate::machines::tcp::TcpSegment;
use crate::machines::tcp::segment::{FLAG_ACK, FLAG_CWR, FLAG_ECE, FLAG_PSH, FLAG_RST, FLAG_SYN};

const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// Value of the TTL field of every packet.
const TTL: u8 = 64;
/// The flag of the IPv4 header that forbids fragmentation (DF).
const DONT_FRAGMENT: u16 = 0x4000;

/// Appends the first `most` bytes of a packet to `into`, and returns the whole length of the
/// packet. If `marked`, a switch set congestion experienced (CE). `trimmed` is the length that
/// remains after a switch cut the payload off.
pub(crate) fn write(
    packet: &Packet,
    marked: bool,
    trimmed: Option<u16>,
    most: usize,
    into: &mut Vec<u8>,
) -> u32 {
    let begin = into.len();
    into.resize(begin + IP_BYTES, 0);
    let length = match &packet.body {
        Body::Srd(body) => {
            let (head, payload) = body.parts();
            let length = UDP_BYTES + head.len() + payload.len();
            udp(packet, length, into);
            into.extend(head);
            into.extend(&payload[..payload.len().min(most)]);
            length
        }
        Body::Tcp(segment) => {
            tcp(packet, segment, into);
            let header = into.len() - begin - IP_BYTES;
            let payload = segment.payload_bytes as usize;
            into.resize(into.len() + payload.min(most), 0);
            header + payload
        }
        Body::Roce(carried) => {
            let headers = carried.headers();
            let payload = carried.payload_bytes as usize;
            let length = UDP_BYTES + headers.len() + payload + ICRC_BYTES;
            udp(packet, length, into);
            into.extend(headers);
            into.resize(into.len() + (payload + ICRC_BYTES).min(most), 0);
            length
        }
        Body::Background(_) | Body::Empty => {
            let length = (packet.wire_bytes as usize).saturating_sub(IP_BYTES).max(UDP_BYTES);
            udp(packet, length, into);
            into.resize(begin + IP_BYTES + length.min(most), 0);
            length
        }
    };
    let whole = IP_BYTES + length;
    let length = trimmed.map_or(whole, |bytes| whole.min(usize::from(bytes).max(IP_BYTES)));
    ip(packet, marked, length, &mut into[begin..begin + IP_BYTES]);
    into.truncate(begin + length.min(most));
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn low16(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn ip(packet: &Packet, marked: bool, length: usize, header: &mut [u8]) {
    let ecn = match packet.ecn {
        _ if marked => 3,
        Ecn::NotEct => 0,
        Ecn::Ect => 2,
        Ecn::Ce => 3,
    };
    header[0] = 0x45;
    header[1] = ecn;
    header[2..4].copy_from_slice(&low16(length).to_be_bytes());
    header[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
    header[8] = TTL;
    header[9] = packet.protocol;
    header[12..16].copy_from_slice(&inner_address(packet.src).octets());
    header[16..20].copy_from_slice(&inner_address(packet.dst).octets());
    let sum = checksum(sum_of(header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn udp(packet: &Packet, length: usize, into: &mut Vec<u8>) {
    into.extend(packet.src_port.to_be_bytes());
    into.extend(packet.dst_port.to_be_bytes());
    into.extend(low16(length).to_be_bytes());
    into.extend([0, 0]);
}

#[allow(clippy::cast_possible_truncation)] // the header holds the low bits
fn tcp(packet: &Packet, segment: &TcpSegment, into: &mut Vec<u8>) {
    let begin = into.len();
    let flags = [
        (FLAG_SYN, 0x02),
        (FLAG_RST, 0x04),
        (FLAG_PSH, 0x08),
        (FLAG_ACK, 0x10),
        (FLAG_ECE, 0x40),
        (FLAG_CWR, 0x80),
    ];
    let has = |flag: u8| match flag {
        // The model opens a connection with its first data: it sends no separate SYN packet.
        FLAG_SYN => segment.has(flag) && segment.payload_bytes == 0,
        FLAG_ACK => segment.has(flag) || segment.payload_bytes > 0,
        _ => segment.has(flag),
    };
    let flags = flags.into_iter().filter(|(flag, _)| has(*flag)).map(|(_, bit)| bit).sum();
    into.extend(packet.src_port.to_be_bytes());
    into.extend(packet.dst_port.to_be_bytes());
    into.extend((segment.seq as u32).to_be_bytes());
    into.extend((segment.ack as u32).to_be_bytes());
    into.extend([0, flags]);
    into.extend(u16::MAX.to_be_bytes());
    into.extend([0; 4]);
    // Two bytes of padding, and the timestamp option (RFC 7323).
    into.extend([1, 1, 8, 10]);
    into.extend(((segment.timestamp_ns / 1000) as u32).to_be_bytes());
    into.extend(((segment.timestamp_echo_ns / 1000) as u32).to_be_bytes());
    if segment.sack_count > 0 {
        into.extend([1, 1, 5, 2 + 8 * segment.sack_count]);
        for block in segment.sack_blocks() {
            into.extend((block.start as u32).to_be_bytes());
            into.extend((block.end as u32).to_be_bytes());
        }
    }
    let header = into.len() - begin;
    into[begin + 12] = u8::try_from(header / 4).unwrap_or(15) << 4;
    // The payload consists of zeros and does not change the checksum.
    let pseudo = sum_of(&inner_address(packet.src).octets())
        + sum_of(&inner_address(packet.dst).octets())
        + u32::from(PROTOCOL_TCP)
        + u32::from(low16(header + segment.payload_bytes as usize));
    let sum = checksum(pseudo + sum_of(&into[begin..]));
    into[begin + 16..begin + 18].copy_from_slice(&sum.to_be_bytes());
}

fn sum_of(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum()
}

/// Returns the Internet checksum for a sum of 16-bit words (RFC 1071).
#[allow(clippy::cast_possible_truncation)] // folded into 16 bits before
fn checksum(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::engine::node::{HostId, PROTOCOL_UDP};
    use crate::machines::roce::{RoceKind, RocePacket};
    use crate::machines::tcp::segment::ByteRange;

    fn packet(protocol: u8, body: Body) -> Packet {
        Packet {
            src: HostId(1),
            dst: HostId(258),
            src_port: 4000,
            dst_port: 9,
            protocol,
            wire_bytes: 1500,
            ecn: Ecn::Ect,
            body,
            ..Packet::empty()
        }
    }

    fn image(packet: &Packet, marked: bool, trimmed: Option<u16>, most: usize) -> (u32, Vec<u8>) {
        let mut bytes = Vec::new();
        (write(packet, marked, trimmed, most, &mut bytes), bytes)
    }

    #[test]
    fn srd_is_udp_with_the_bytes_that_were_sent() {
        let mut sent = packet(PROTOCOL_UDP, Body::Empty);
        sent.set_srd(b"head", Bytes::from_static(&[7; 100]));
        let (length, bytes) = image(&sent, false, None, 4096);
        assert_eq!((length, bytes.len()), (132, 132));
        assert_eq!(sum_of(&bytes[..20]) % 0xffff, 0, "the header's checksum");
        assert_eq!(bytes[..10], [0x45, 2, 0, 132, 0, 0, 0x40, 0, 64, 17]);
        assert_eq!(bytes[12..20], [10, 0, 0, 1, 10, 0, 1, 2]);
        assert_eq!(bytes[20..28], [0x0f, 0xa0, 0, 9, 0, 112, 0, 0]);
        assert_eq!((&bytes[28..32], &bytes[32..]), (&b"head"[..], &[7; 100][..]));
        let (length, bytes) = image(&sent, true, Some(64), 40);
        assert_eq!((length, bytes.len(), bytes[1]), (64, 40, 3));
    }

    #[test]
    fn tcp_has_its_header_options_and_checksum() {
        let mut segment = TcpSegment {
            seq: (1 << 32) + 5,
            ack: 1000,
            timestamp_ns: 3_000_000,
            payload_bytes: 1001,
            flags: FLAG_ACK | FLAG_PSH,
            ..TcpSegment::default()
        };
        assert!(segment.push_sack(ByteRange { start: 2000, end: 3000 }));
        let (length, bytes) = image(&packet(PROTOCOL_TCP, Body::Tcp(segment)), false, None, 4096);
        assert_eq!(length, 20 + 20 + 12 + 12 + 1001);
        assert_eq!(bytes.len(), length as usize);
        assert_eq!(bytes[24..28], [0, 0, 0, 5]);
        assert_eq!(bytes[32..34], [11 << 4, 0x18]);
        let pseudo = sum_of(&bytes[12..20]) + 6 + (length - 20);
        assert_eq!((pseudo + sum_of(&bytes[20..])) % 0xffff, 0, "the segment's checksum");
    }

    #[test]
    fn roce_has_the_headers_that_wireshark_reads() {
        let carried = RocePacket {
            flow: 0x0102,
            psn: 0x0304_0506,
            payload_bytes: 100,
            is_last: true,
            ..RocePacket::default()
        };
        let (length, bytes) = image(&packet(PROTOCOL_UDP, Body::Roce(carried)), false, None, 4096);
        assert_eq!((length, bytes.len()), (20 + 8 + 12 + 100 + 4, 144));
        let bth = [0x02, 0, 0xff, 0xff, 0, 0, 1, 2, 0x80, 4, 5, 6];
        assert_eq!(bytes[28..40], bth);
        let nak = RocePacket { kind: RoceKind::Nak, payload_bytes: 0, ..carried };
        let (length, bytes) = image(&packet(PROTOCOL_UDP, Body::Roce(nak)), false, None, 4096);
        assert_eq!((length, bytes[28], bytes[40]), (20 + 8 + 12 + 4 + 4, 0x11, 0x60));
    }

    #[test]
    fn load_has_a_length_and_nothing_else() {
        let load = packet(PROTOCOL_UDP, Body::Background(crate::engine::node::FlowId(0)));
        let (length, bytes) = image(&load, false, None, 64);
        assert_eq!((length, bytes.len()), (1500, 64));
    }
}
