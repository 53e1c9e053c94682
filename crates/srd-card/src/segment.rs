//! Cutting a super-packet into the packets it stands for, in software: for peers that are
//! reached by plain encapsulation, one packet per datagram.
//!
//! Each segment gets its own IP length and id, TCP sequence number and flags or UDP length, and
//! leaves its transport checksum to the receiver, as the super-packet did.

use alloc::vec::Vec;

use crate::checksum;
use crate::offload::{Gso, OFFLOAD_BYTES, Offload, header_bytes};
use crate::packet::{IPV6_BYTES, Packet, u16_at};

const TCP_FIN: u8 = 0x01;
const TCP_PUSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Calls `each` with every segment of a super-packet, the offload header before it. `frame` is
/// offload header and packet; one that is no super-packet comes out as it is.
pub fn each_segment(frame: &[u8], packet: &Packet, offload: &Offload, mut each: impl FnMut(&[u8])) {
    let bytes = &frame[OFFLOAD_BYTES..];
    let Some((gso, segment_bytes)) = offload.gso else { return each(frame) };
    let headers = header_bytes(bytes, packet);
    if bytes.len() <= headers {
        return each(frame);
    }
    let single = Offload { gso: None, ..*offload };
    let mut out = Vec::with_capacity(OFFLOAD_BYTES + headers + usize::from(segment_bytes));
    let payload = &bytes[headers..];
    let count = payload.len().div_ceil(usize::from(segment_bytes));
    for (index, part) in payload.chunks(usize::from(segment_bytes)).enumerate() {
        out.clear();
        out.extend_from_slice(&single.write(packet.is_v4(), headers));
        out.extend_from_slice(&bytes[..headers]);
        out.extend_from_slice(part);
        let segment = &mut out[OFFLOAD_BYTES..];
        let place = Place { index, last: index + 1 == count, step: segment_bytes };
        match gso {
            Gso::Tcp { ecn } => number_tcp(segment, packet, place, ecn),
            Gso::Udp => size_udp(segment, packet),
        }
        size_ip(segment, packet, index);
        each(&out);
    }
}

/// Where in its super-packet a segment stands.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    last: bool,
    step: u16,
}

fn number_tcp(segment: &mut [u8], packet: &Packet, place: Place, ecn: bool) {
    let at = packet.transport_at;
    let sequence =
        u32::from_be_bytes([segment[at + 4], segment[at + 5], segment[at + 6], segment[at + 7]]);
    let offset = u32::try_from(place.index * usize::from(place.step)).unwrap_or(0);
    segment[at + 4..at + 8].copy_from_slice(&sequence.wrapping_add(offset).to_be_bytes());
    if !place.last {
        segment[at + 13] &= !(TCP_FIN | TCP_PUSH);
    }
    if ecn && place.index > 0 {
        segment[at + 13] &= !TCP_CWR;
    }
    leave_checksum(segment, packet, at + 16);
}

fn size_udp(segment: &mut [u8], packet: &Packet) {
    let at = packet.transport_at;
    let length = u16::try_from(segment.len() - at).unwrap_or(u16::MAX);
    segment[at + 4..at + 6].copy_from_slice(&length.to_be_bytes());
    leave_checksum(segment, packet, at + 6);
}

/// The checksum field holds the pseudo-header's sum, which the length is part of.
fn leave_checksum(segment: &mut [u8], packet: &Packet, field: usize) {
    let length = segment.len() - packet.transport_at;
    let (source, destination) = (&packet.source, &packet.destination);
    let sum = checksum::pseudo_header(source, destination, packet.protocol, length);
    segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

fn size_ip(segment: &mut [u8], packet: &Packet, index: usize) {
    if packet.is_v4() {
        let total = u16::try_from(segment.len()).unwrap_or(u16::MAX);
        segment[2..4].copy_from_slice(&total.to_be_bytes());
        let step = u16::try_from(index).unwrap_or(0);
        let id = u16_at(segment, 4).wrapping_add(step);
        segment[4..6].copy_from_slice(&id.to_be_bytes());
        segment[10..12].copy_from_slice(&[0, 0]);
        let sum = checksum::of(&segment[..usize::from(segment[0] & 15) * 4]);
        segment[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        let length = u16::try_from(segment.len() - IPV6_BYTES).unwrap_or(u16::MAX);
        segment[4..6].copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::protocol;
    use crate::packet::tests::{v4, v6};
    use std::vec::Vec;

    fn segments(bytes: &[u8], gso: Gso, step: u16) -> Vec<Vec<u8>> {
        let packet = Packet::read(bytes).unwrap();
        let field = if matches!(gso, Gso::Udp) { 6 } else { 16 };
        let start = u16::try_from(packet.transport_at).unwrap();
        let offload =
            Offload { gso: Some((gso, step)), checksum: Some((start, field)), checked: false };
        let mut frame = offload.write(packet.is_v4(), header_bytes(bytes, &packet)).to_vec();
        frame.extend_from_slice(bytes);
        let mut out = Vec::new();
        each_segment(&frame, &packet, &offload, |s| out.push(s.to_vec()));
        out
    }

    /// What the receiver's kernel does with a checksum that was left to it.
    fn completed(frame: &[u8]) -> Vec<u8> {
        let mut bytes = frame[OFFLOAD_BYTES..].to_vec();
        let start = usize::from(u16::from_le_bytes([frame[6], frame[7]]));
        let field = start + usize::from(u16::from_le_bytes([frame[8], frame[9]]));
        let sum = checksum::of(&bytes[start..]);
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn checked(bytes: &[u8]) {
        let packet = Packet::read(bytes).unwrap();
        let (source, destination) = (&packet.source, &packet.destination);
        let transport = &bytes[packet.transport_at..];
        let sum = checksum::transport(source, destination, packet.protocol, transport);
        assert_eq!(sum, 0, "transport checksum");
        if packet.is_v4() {
            assert_eq!(checksum::of(&bytes[..20]), 0, "header checksum");
            assert_eq!(usize::from(u16_at(bytes, 2)), bytes.len());
        } else {
            assert_eq!(usize::from(u16_at(bytes, 4)), bytes.len() - 40);
        }
    }

    #[test]
    fn tcp_segments_are_whole_packets_and_their_payload_is_the_super_packets() {
        let payload: Vec<u8> = (0..2500u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        for (bytes, headers) in
            [(v4(protocol::TCP, (1, 2), &payload), 40), (v6(protocol::TCP, (1, 2), &payload), 60)]
        {
            let parts = segments(&bytes, Gso::Tcp { ecn: false }, 1000);
            assert_eq!(parts.len(), 3);
            let mut seen = Vec::new();
            for (i, part) in parts.iter().enumerate() {
                let packet = completed(part);
                checked(&packet);
                let sequence = u16_at(&packet, headers - 20 + 6);
                assert_eq!(usize::from(sequence), 1 + i * 1000);
                let push = packet[headers - 20 + 13] & TCP_PUSH != 0;
                assert_eq!(push, i == 2, "the last alone pushes");
                seen.extend_from_slice(&packet[headers..]);
            }
            assert_eq!(seen, payload);
        }
    }

    #[test]
    fn udp_segments_have_lengths_of_their_own() {
        for bytes in [v4(protocol::UDP, (1, 2), &[5; 999]), v6(protocol::UDP, (1, 2), &[5; 999])] {
            let parts = segments(&bytes, Gso::Udp, 500);
            assert_eq!(parts.len(), 2);
            for part in parts {
                checked(&completed(&part));
            }
        }
    }
}
