//! The answer of a NAT gateway to a TCP segment that belongs to no connection: a reset (RFC 9293,
//! section 3.10.7.1), whose source is the remote end.

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::protocol;
use crate::rewrite::checksum;
use crate::vpc::frames::read::Read;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const HEADER_BYTES: usize = 20;
const TTL: u8 = 64;

/// Returns the frame of a TCP reset that answers a frame; `None` if the frame contains no TCP over
/// IPv4, or is a reset itself.
pub fn reset(frame: &[u8]) -> Option<Vec<u8>> {
    let read = Read::frame(frame)?;
    let (IpAddr::V4(source), IpAddr::V4(destination)) =
        (read.packet.source, read.packet.destination)
    else {
        return None;
    };
    let bytes = &frame[OFFLOAD_BYTES..];
    read.packet.tcp_header_bytes(bytes)?;
    let segment = bytes.get(read.packet.transport_at..)?;
    let (header, flags) = (segment.first_chunk::<HEADER_BYTES>()?, segment[13]);
    if flags & RST != 0 {
        return None;
    }
    let number = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let (sequence, acknowledged, own_flags) = if flags & ACK != 0 {
        (number(8), 0, RST)
    } else {
        let payload = u32::try_from(read.layout.payload_bytes()).unwrap_or(u32::MAX);
        let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        (0, number(4).wrapping_add(payload).wrapping_add(controls), RST | ACK)
    };
    let mut tcp = [0; HEADER_BYTES];
    tcp[..2].copy_from_slice(&header[2..4]);
    tcp[2..4].copy_from_slice(&header[..2]);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    tcp[8..12].copy_from_slice(&acknowledged.to_be_bytes());
    (tcp[12], tcp[13]) = (0x50, own_flags);
    let addresses = [destination.octets(), source.octets()].concat();
    let sum = checksum::transport(&addresses, protocol::TCP, &tcp);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut ip = [0; HEADER_BYTES];
    ip[..12].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0x40, 0, TTL, protocol::TCP, 0, 0]);
    ip[12..].copy_from_slice(&addresses);
    let sum = checksum::of(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    Some([&[0; OFFLOAD_BYTES][..], &ip, &tcp].concat())
}
