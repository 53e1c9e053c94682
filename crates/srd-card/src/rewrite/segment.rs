//! Segmentation of a super-packet in software, for packets with plain encapsulation: one packet in
//! each datagram.
//!
//! Each segment gets its own IP length and identification, and its own TCP sequence number and
//! flags, or UDP length. The transport checksum is left to the receiver, as in the super-packet.

use alloc::vec::Vec;

use super::checksum;
use crate::meta::layout::Layout;
use crate::meta::offload::{Gso, OFFLOAD_BYTES, Offload, PACKETS_MAX};
use crate::meta::packet::{IPV6_BYTES, Packet, protocol, u16_at};

const TCP_FIN: u8 = 0x01;
const TCP_PUSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Returns the layout with which a TCP packet is segmented into packets of at most `fits` bytes.
/// TCP may be segmented to any size, because the path MTU may have become smaller since the
/// connection began. Other packets keep their layout, and so does a packet that would become more
/// than [`PACKETS_MAX`] packets.
pub(crate) fn fitted(layout: &Layout, fits: usize) -> Layout {
    let room = fits.saturating_sub(layout.header_bytes());
    let room = u16::try_from(room).unwrap_or(u16::MAX);
    if layout.protocol != protocol::TCP || layout.is_fragment() || room == 0 {
        return *layout;
    }
    let cut = Gso::Tcp { ecn: true };
    let gso = match layout.offload.gso {
        Some((gso, step)) => Some((gso, step.min(room))),
        None if layout.packet_bytes() > fits => Some((cut, room)),
        None => return *layout,
    };
    // A checksum of the whole packet does not cover the segments; the checksum of each is left to
    // the receiver.
    let start = u16::try_from(layout.transport_at()).unwrap_or(u16::MAX);
    let checksum = layout.offload.checksum.or(Some((start, cut.checksum_field())));
    let fitted = layout.leaving(Offload { gso, checksum, checked: false });
    // If headers take nearly all of the size, they would be sent again for each few bytes.
    if fitted.packets() > PACKETS_MAX { *layout } else { fitted }
}

/// Returns the size in bytes of the largest packet into which a frame of this layout is segmented.
pub(crate) fn largest(layout: &Layout) -> usize {
    let whole = layout.packet_bytes();
    let step = layout.offload.gso.map(|(_, step)| usize::from(step));
    step.map_or(whole, |step| whole.min(layout.header_bytes() + step))
}

/// Splits a super-packet whose frame is too long into two frames. `UDP_SEGMENT` makes packets of
/// up to 65,535 bytes, and a frame contains an offload header as well. Returns `None` if the frame
/// is no packet, or may not be segmented.
pub(crate) fn halves(frame: &[u8]) -> Option<[Vec<u8>; 2]> {
    let (header, bytes) = frame.split_first_chunk::<OFFLOAD_BYTES>()?;
    let packet = Packet::read(bytes)?;
    let layout = Layout::of(&packet, bytes)?.with_offload(header)?;
    let (gso, step) = layout.offload.gso?;
    let count = layout.payload_bytes().div_ceil(step.into());
    let first = u16::try_from(count.div_ceil(2) * usize::from(step)).ok()?;
    let cut = layout.leaving(Offload { gso: Some((gso, first)), ..layout.offload });
    let mut parts = Segments::new(frame, &cut);
    if parts.count() != 2 {
        return None;
    }
    Some([0, 1].map(|index| {
        let mut half = parts.write(index).to_vec();
        let payload_bytes = half.len() - OFFLOAD_BYTES - layout.header_bytes();
        let gso = layout.offload.gso.filter(|(_, step)| payload_bytes > usize::from(*step));
        let offload = Offload { gso, ..layout.offload };
        let header = offload.write(layout.is_v4(), layout.header_bytes());
        half[..OFFLOAD_BYTES].copy_from_slice(&header);
        half
    }))
}

/// The packets that a frame represents: the segments of a super-packet, or one packet.
pub(crate) struct Segments<'a> {
    frame: &'a [u8],
    layout: &'a Layout,
    /// Kind and payload bytes of the segments; `None` if the frame is not segmented.
    gso: Option<(Gso, u16)>,
    count: usize,
    out: Vec<u8>,
}

impl<'a> Segments<'a> {
    /// Prepares the segments of a frame, according to its layout.
    pub(crate) fn new(frame: &'a [u8], layout: &'a Layout) -> Self {
        let payload_bytes = layout.payload_bytes();
        let gso = layout.offload.gso.filter(|_| payload_bytes > 0);
        let count = gso.map_or(1, |(_, step)| payload_bytes.div_ceil(step.into()));
        Self { frame, layout, gso, count, out: Vec::new() }
    }

    /// Returns the number of segments of the super-packet.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Layout of each segment.
    pub(crate) fn layout(&self) -> Layout {
        self.layout.leaving(Offload { gso: None, ..self.layout.offload })
    }

    /// Returns one segment with its offload header.
    pub(crate) fn write(&mut self, index: usize) -> &[u8] {
        let Some((gso, step)) = self.gso else { return self.frame };
        let (layout, headers) = (self.layout, self.layout.header_bytes());
        let (header, payload) = self.frame[OFFLOAD_BYTES..].split_at(headers);
        let begin = payload.len().min(index * usize::from(step));
        let end = payload.len().min(begin + usize::from(step));
        self.out.clear();
        let offload = Offload { gso: None, ..layout.offload };
        self.out.extend_from_slice(&offload.write(layout.is_v4(), headers));
        self.out.extend_from_slice(header);
        self.out.extend_from_slice(&payload[begin..end]);
        let segment = &mut self.out[OFFLOAD_BYTES..];
        let place = Position { index, last: index + 1 == self.count, step };
        match gso {
            Gso::Tcp { ecn } => number_tcp(segment, layout, place, ecn),
            Gso::Udp => size_udp(segment, layout),
        }
        leave_checksum(segment, layout, gso);
        size_ip(segment, layout, index);
        &self.out
    }
}

/// Position of a segment in its super-packet.
#[derive(Clone, Copy)]
struct Position {
    index: usize,
    last: bool,
    step: u16,
}

fn number_tcp(segment: &mut [u8], layout: &Layout, place: Position, ecn: bool) {
    let at = layout.transport_at();
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
}

fn size_udp(segment: &mut [u8], layout: &Layout) {
    let at = layout.transport_at();
    let length = u16::try_from(segment.len() - at).unwrap_or(u16::MAX);
    segment[at + 4..at + 6].copy_from_slice(&length.to_be_bytes());
}

/// Writes the sum of the pseudo-header, which includes the segment's length, into the checksum
/// field, so that the receiver can complete the checksum.
pub(super) fn leave_checksum(segment: &mut [u8], layout: &Layout, gso: Gso) {
    let at = layout.transport_at();
    let addresses = layout.addresses(segment);
    let sum = checksum::pseudo_header(addresses, layout.protocol, segment.len() - at);
    let field = at + usize::from(gso.checksum_field());
    segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

pub(super) fn size_ip(segment: &mut [u8], layout: &Layout, index: usize) {
    if layout.is_v4() {
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
    use crate::meta::key::Direction;
    use crate::meta::{FRAME_BYTES_MAX, Meta};
    use crate::testing::{self, v4, v6};
    use std::vec;
    use std::vec::Vec;

    fn segments(bytes: &[u8], gso: Gso, step: u16) -> Vec<Vec<u8>> {
        let layout = testing::layout(bytes);
        let field = if matches!(gso, Gso::Udp) { 6 } else { 16 };
        let start = u16::try_from(layout.transport_at()).unwrap();
        let offload =
            Offload { gso: Some((gso, step)), checksum: Some((start, field)), checked: false };
        let mut frame = offload.write(layout.is_v4(), layout.header_bytes()).to_vec();
        frame.extend_from_slice(bytes);
        let layout = layout.leaving(offload);
        let mut segments = Segments::new(&frame, &layout);
        (0..segments.count()).map(|index| segments.write(index).to_vec()).collect()
    }

    /// Completes a checksum as the receiver's kernel does.
    fn completed(frame: &[u8]) -> Vec<u8> {
        let mut bytes = frame[OFFLOAD_BYTES..].to_vec();
        let start = usize::from(u16::from_le_bytes([frame[6], frame[7]]));
        let field = start + usize::from(u16::from_le_bytes([frame[8], frame[9]]));
        let sum = checksum::of(&bytes[start..]);
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn checked(bytes: &[u8]) {
        let layout = testing::layout(bytes);
        let transport = &bytes[layout.transport_at()..];
        let sum = checksum::transport(layout.addresses(bytes), layout.protocol, transport);
        assert_eq!(sum, 0, "transport checksum");
        if layout.is_v4() {
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

    #[test]
    fn the_longest_packets_become_two_frames_that_stand_for_the_same_segments() {
        for payload_bytes in [65_498, 65_500, 65_507] {
            let payload: Vec<u8> = (0..payload_bytes).map(|i: u32| (i % 251) as u8).collect();
            let bytes = v4(protocol::UDP, (1, 2), &payload);
            let layout = testing::layout(&bytes);
            let offload =
                Offload { gso: Some((Gso::Udp, 1400)), checksum: Some((20, 6)), checked: false };
            let mut frame = offload.write(true, layout.header_bytes()).to_vec();
            frame.extend_from_slice(&bytes);
            assert!(frame.len() > FRAME_BYTES_MAX);
            let mut seen = Vec::new();
            for half in halves(&frame).unwrap() {
                let meta = Meta::parse(&half, Direction::Egress).unwrap();
                assert_eq!(meta.layout.offload.gso, Some((Gso::Udp, 1400)));
                let mut parts = Segments::new(&half, &meta.layout);
                for index in 0..parts.count() {
                    let packet = completed(parts.write(index));
                    checked(&packet);
                    seen.push(packet[28..].to_vec());
                }
            }
            let wanted: Vec<Vec<u8>> = payload.chunks(1400).map(<[u8]>::to_vec).collect();
            assert_eq!(seen, wanted);
        }
        // An ordinary packet cannot be segmented.
        let whole = v4(protocol::UDP, (1, 2), &vec![0; 65_507]);
        let frame: Vec<u8> = [&[0; OFFLOAD_BYTES], &whole[..]].concat();
        assert_eq!(halves(&frame), None);
        assert_eq!(halves(&[0; 5]), None);
    }

    #[test]
    fn regression_a_packet_whose_headers_fill_the_path_is_not_cut_into_bytes() {
        // IPv6 destination options of 1,368 bytes, which leave twelve bytes for each segment.
        let mut bytes = v6(protocol::TCP, (1, 2), &[7; 60_000]);
        let mut options = vec![0; 1368];
        (options[0], options[1]) = (protocol::TCP, 170);
        bytes[6] = 60;
        bytes.splice(40..40, options);
        let layout = testing::layout(&bytes);
        assert_eq!((layout.protocol, layout.transport_at()), (protocol::TCP, 1408));
        let cut = fitted(&layout, 1408 + 20 + 12);
        assert!(cut.packets() <= PACKETS_MAX, "{cut:?}");
    }
}
