//! Joining of consecutive TCP segments into one super-packet, so that a guest's kernel processes
//! one packet instead of many. Kernels call this generic receive offload.
//!
//! A super-packet represents exactly the packets that were joined: `segment.rs` restores them,
//! except for the IPv4 identification. Segments are joined if their headers differ only in
//! lengths, checksums, sequence number, identification and PSH, if they forbid fragmentation, and
//! if all except the last have the same length.

use alloc::vec::Vec;

use super::checksum;
use super::segment::{leave_checksum, size_ip};
use crate::meta::layout::Layout;
use crate::meta::offload::{Gso, OFFLOAD_BYTES, Offload, PACKETS_MAX};
use crate::meta::packet::{IPV6_BYTES, Packet, protocol, u16_at};

/// Largest number of super-packets of different flows that grow at the same time.
pub const OPEN_MAX: usize = 8;

/// Bytes of an IPv4 header without options.
const IPV4_BYTES: usize = 20;
/// Largest packet that a length field of IPv4 can express.
const PACKET_BYTES_MAX: usize = 65_535;
/// TCP flags that a segment may have if it is joined with other segments.
const TCP_ACK: u8 = 0x10;
const TCP_PUSH: u8 = 0x08;
const TCP_ECE: u8 = 0x40;
/// Offset of the checksum in a TCP header.
const CHECKSUM_AT: u16 = 16;

/// Super-packets to which further segments may be added. Bound: [`OPEN_MAX`].
#[derive(Debug, Default)]
pub struct Joins {
    open: Vec<Open>,
}

/// A super-packet that may grow: the first segment, and the payload of the segments that followed.
#[derive(Debug)]
struct Open {
    frame: Vec<u8>,
    layout: Layout,
    /// Payload bytes of each segment except the last, which may have fewer.
    step: usize,
    /// TCP sequence number that the next segment must have.
    next: u32,
    segments: u64,
}

impl Joins {
    /// Whether no super-packet is kept.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Takes a frame with its offload header, and passes each frame that cannot grow any more to
    /// `give`. Frames of a flow stay in order.
    pub fn push(&mut self, frame: Vec<u8>, mut give: impl FnMut(Vec<u8>)) {
        let Some(layout) = tcp(&frame) else {
            if !is_of_another_protocol(&frame) {
                self.finish(&mut give);
            }
            return give(frame);
        };
        let bytes = &frame[OFFLOAD_BYTES..];
        let same = self.open.iter().position(|open| open.is_flow_of(&layout, bytes));
        let joins = is_plain(&layout, bytes);
        if let Some(at) = same {
            if joins && self.open[at].takes(&layout, bytes) {
                if self.open[at].add(&layout, bytes) {
                    give(self.open.remove(at).close());
                }
                return;
            }
            give(self.open.remove(at).close());
        }
        // A segment with PSH ends a super-packet.
        if !joins || flags(&layout, bytes) & TCP_PUSH != 0 {
            return give(frame);
        }
        if self.open.len() == OPEN_MAX {
            give(self.open.remove(0).close());
        }
        let (step, next) = (layout.payload_bytes(), end_of(&layout, bytes));
        self.open.push(Open { frame, layout, step, next, segments: 1 });
    }

    /// Passes all frames that are kept to `give`.
    pub fn finish(&mut self, give: impl FnMut(Vec<u8>)) {
        self.open.drain(..).map(Open::close).for_each(give);
    }
}

impl Open {
    fn bytes(&self) -> &[u8] {
        &self.frame[OFFLOAD_BYTES..]
    }

    /// Whether a TCP packet belongs to the connection of the super-packet, in the same direction.
    fn is_flow_of(&self, layout: &Layout, bytes: &[u8]) -> bool {
        let (own, at) = (&self.layout, layout.transport_at());
        let ports = |bytes: &[u8], at: usize| [u16_at(bytes, at), u16_at(bytes, at + 2)];
        own.is_v4() == layout.is_v4()
            && own.addresses(self.bytes()) == layout.addresses(bytes)
            && ports(self.bytes(), own.transport_at()) == ports(bytes, at)
    }

    /// Whether a segment of the connection follows the super-packet directly, and differs from it
    /// only in its data, so that it can be added.
    fn takes(&self, layout: &Layout, bytes: &[u8]) -> bool {
        let at = layout.transport_at();
        let headers = layout.header_bytes();
        let own = self.bytes();
        let total = own.len() + layout.payload_bytes();
        let same = |range: core::ops::Range<usize>| own[range.clone()] == bytes[range];
        let ip = if layout.is_v4() {
            // Version to type of service; flags, lifetime, protocol; addresses.
            same(0..2) && same(6..10) && same(12..20)
        } else {
            same(0..4) && same(6..IPV6_BYTES)
        };
        let tcp_flags = flags(layout, bytes) & !TCP_PUSH == flags(&self.layout, own);
        self.layout.header_bytes() == headers
            && sequence(layout, bytes) == self.next
            && layout.payload_bytes() <= self.step
            && total <= PACKET_BYTES_MAX
            && self.segments < PACKETS_MAX
            && ip
            && tcp_flags
            // Acknowledgement and header length; window; urgent pointer and options.
            && same(at + 8..at + 13)
            && same(at + 14..at + 16)
            && same(at + 18..headers)
    }

    /// Adds a segment that `takes` accepted. Returns whether the super-packet is complete.
    fn add(&mut self, layout: &Layout, bytes: &[u8]) -> bool {
        let is_pushed = flags(layout, bytes) & TCP_PUSH != 0;
        if self.segments == 1 {
            self.frame.reserve_exact(OFFLOAD_BYTES + PACKET_BYTES_MAX - self.frame.len());
        }
        self.frame.extend_from_slice(&bytes[layout.header_bytes()..]);
        self.segments += 1;
        self.next = end_of(layout, bytes);
        if is_pushed {
            self.frame[OFFLOAD_BYTES + layout.transport_at() + 13] |= TCP_PUSH;
        }
        is_pushed || layout.payload_bytes() < self.step
    }

    /// Returns the finished frame. If segments were joined, the lengths, the checksum fields and
    /// the offload header are written before.
    fn close(self) -> Vec<u8> {
        let Self { mut frame, layout, step, segments, .. } = self;
        if segments == 1 {
            return frame;
        }
        let (header, bytes) = frame.split_at_mut(OFFLOAD_BYTES);
        let start = u16::try_from(layout.transport_at()).unwrap_or(u16::MAX);
        let step = u16::try_from(step).unwrap_or(u16::MAX);
        let gso = Gso::Tcp { ecn: false };
        let offload = Offload {
            gso: Some((gso, step)),
            checksum: Some((start, CHECKSUM_AT)),
            checked: false,
        };
        header.copy_from_slice(&offload.write(layout.is_v4(), layout.header_bytes()));
        leave_checksum(bytes, &layout, gso);
        size_ip(bytes, &layout, 0);
        frame
    }
}

/// Returns the layout of a frame that contains a whole TCP packet without IP options or extension
/// headers; `None` for any other frame.
fn tcp(frame: &[u8]) -> Option<Layout> {
    let header = frame.first_chunk::<OFFLOAD_BYTES>()?;
    let bytes = &frame[OFFLOAD_BYTES..];
    let packet = Packet::read(bytes)?;
    let layout = Layout::of(&packet, bytes)?.with_offload(header)?;
    let ip_bytes = if layout.is_v4() { IPV4_BYTES } else { IPV6_BYTES };
    let told = usize::from(bytes.get(layout.transport_at() + 12)? >> 4) * 4;
    let is_whole = layout.protocol == protocol::TCP
        && layout.has_ports()
        && !layout.is_fragment()
        && layout.transport_at() == ip_bytes
        && layout.header_bytes() == layout.transport_at() + told
        && layout.header_bytes() <= layout.packet_bytes();
    is_whole.then_some(layout)
}

/// Whether a frame certainly belongs to no TCP connection.
fn is_of_another_protocol(frame: &[u8]) -> bool {
    let packet = frame.get(OFFLOAD_BYTES..).and_then(Packet::read);
    packet.is_some_and(|packet| packet.protocol != protocol::TCP && !packet.fragment)
}

/// Whether a TCP packet may be joined with other packets: it carries data, forbids fragmentation
/// (IPv4), has ACK and no flags other than PSH and ECE, and its TCP checksum was checked or is left
/// to the receiver.
fn is_plain(layout: &Layout, bytes: &[u8]) -> bool {
    let told = if layout.is_v4() {
        usize::from(u16_at(bytes, 2))
    } else {
        usize::from(u16_at(bytes, 4)) + IPV6_BYTES
    };
    let start = u16::try_from(layout.transport_at()).unwrap_or(u16::MAX);
    let is_sound = layout.offload.checked || layout.offload.checksum == Some((start, CHECKSUM_AT));
    layout.offload.gso.is_none()
        && layout.payload_bytes() > 0
        && told == layout.packet_bytes()
        && is_sound
        && (!layout.is_v4() || (layout.dont_fragment() && checksum::of(&bytes[..IPV4_BYTES]) == 0))
        && flags(layout, bytes) & !(TCP_PUSH | TCP_ECE) == TCP_ACK
}

fn flags(layout: &Layout, bytes: &[u8]) -> u8 {
    bytes[layout.transport_at() + 13]
}

fn sequence(layout: &Layout, bytes: &[u8]) -> u32 {
    let at = layout.transport_at() + 4;
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// TCP sequence number of the first byte after a segment's data.
fn end_of(layout: &Layout, bytes: &[u8]) -> u32 {
    let data = u32::try_from(layout.payload_bytes()).unwrap_or(0);
    sequence(layout, bytes).wrapping_add(data)
}

#[cfg(test)]
mod tests {
    use super::super::segment::Segments;
    use super::*;
    use crate::testing::{self, v4, v6};
    use std::vec;

    /// Segments of a packet, with checksums left to hardware as by a guest's kernel.
    fn cut(bytes: &[u8], step: u16) -> Vec<Vec<u8>> {
        let layout = testing::layout(bytes);
        let start = u16::try_from(layout.transport_at()).unwrap();
        let gso = (bytes.len() - layout.header_bytes() > step.into())
            .then_some((Gso::Tcp { ecn: false }, step));
        let offload = Offload { gso, checksum: Some((start, 16)), checked: false };
        let layout = layout.leaving(offload);
        let mut frame = offload.write(layout.is_v4(), layout.header_bytes()).to_vec();
        frame.extend_from_slice(bytes);
        let at = layout.transport_at();
        let sum = checksum::pseudo_header(layout.addresses(bytes), protocol::TCP, bytes.len() - at);
        let field = OFFLOAD_BYTES + at + usize::from(CHECKSUM_AT);
        frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        let mut segments = Segments::new(&frame, &layout);
        (0..segments.count()).map(|index| segments.write(index).to_vec()).collect()
    }

    /// Builds a packet with data of a connection, from a sequence number on.
    fn data(is_v4: bool, port: u16, sequence: u32, flags: u8, bytes: usize) -> Vec<u8> {
        let payload: Vec<u8> =
            (0..bytes).map(|i| u8::try_from((sequence as usize + i) % 251).unwrap()).collect();
        let make = if is_v4 { v4 } else { v6 };
        let mut packet = make(protocol::TCP, (port, 80), &payload);
        let at = if is_v4 { 20 } else { 40 };
        packet[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
        packet[at + 12] = 5 << 4;
        packet[at + 13] = flags;
        if is_v4 {
            packet[6..8].copy_from_slice(&[0x40, 0]);
        }
        packet
    }

    fn joined(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let (mut joins, mut given) = (Joins::default(), Vec::new());
        frames.into_iter().for_each(|frame| joins.push(frame, |frame| given.push(frame)));
        joins.finish(|frame| given.push(frame));
        assert!(joins.is_empty());
        given
    }

    /// Returns the packets that a frame represents, without the fields that joining does not
    /// preserve.
    fn packets(frame: &[u8]) -> Vec<Vec<u8>> {
        let header = frame.first_chunk().unwrap();
        let bytes = &frame[OFFLOAD_BYTES..];
        let layout = testing::layout(bytes).with_offload(header).unwrap();
        let mut segments = Segments::new(frame, &layout);
        let count = segments.count();
        let whole = |index| {
            let mut bytes = segments.write(index)[OFFLOAD_BYTES..].to_vec();
            if bytes[0] >> 4 == 4 {
                (bytes[4..6]).copy_from_slice(&[0, 0]);
                bytes[10..12].copy_from_slice(&[0, 0]);
            }
            bytes
        };
        (0..count).map(whole).collect()
    }

    #[test]
    fn segments_of_a_super_packet_become_it_again() {
        for is_v4 in [true, false] {
            let whole = data(is_v4, 5, u32::MAX - 3000, TCP_ACK | TCP_PUSH, 9500);
            let frames = cut(&whole, 1000);
            assert_eq!(frames.len(), 10);
            let given = joined(frames);
            assert_eq!(given.len(), 1);
            assert_eq!(given[0][OFFLOAD_BYTES..].len(), whole.len());
            let header = given[0].first_chunk().unwrap();
            let layout = testing::layout(&given[0][OFFLOAD_BYTES..]).with_offload(header).unwrap();
            assert_eq!(layout.offload.gso, Some((Gso::Tcp { ecn: false }, 1000)));
            let headers = layout.header_bytes();
            assert_eq!(given[0][OFFLOAD_BYTES + headers..], whole[headers..]);
        }
    }

    #[test]
    fn what_says_more_than_its_data_stays_alone() {
        let plain = |sequence| cut(&data(true, 5, sequence, TCP_ACK, 1000), 1000).remove(0);
        let changed = |at: usize, value: u8| {
            let mut frame = plain(1000);
            frame[OFFLOAD_BYTES + at] = value;
            let header = &mut frame[OFFLOAD_BYTES..OFFLOAD_BYTES + IPV4_BYTES];
            header[10..12].fill(0);
            let sum = checksum::of(header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame
        };
        assert_eq!(joined(vec![plain(0), plain(1000)]).len(), 1);
        let others = [
            ("type of service", changed(1, 3)),
            ("may be fragmented", changed(6, 0)),
            ("lifetime", changed(8, 9)),
            ("sequence number", changed(27, 1)),
            ("acknowledgement", changed(31, 1)),
            ("FIN", changed(33, TCP_ACK | 1)),
            ("CWR", changed(33, TCP_ACK | 0x80)),
            ("ECE", changed(33, TCP_ACK | TCP_ECE)),
            ("window", changed(35, 1)),
            ("urgent pointer", changed(38, 1)),
        ];
        for (what, frame) in others {
            let given = joined(vec![plain(0), frame.clone(), plain(2000)]);
            assert!(given[0] == plain(0) && given[1] == frame, "{what}");
        }
        let longer = cut(&data(true, 5, 1000, TCP_ACK, 1001), 1400).remove(0);
        assert_eq!(joined(vec![plain(0), longer]).len(), 2);
        let mut unchecked = plain(1000);
        unchecked[..OFFLOAD_BYTES].fill(0);
        assert_eq!(joined(vec![plain(0), unchecked]).len(), 2);
    }

    #[test]
    fn what_cannot_be_read_is_not_joined_and_passes_nothing() {
        let plain = |sequence| cut(&data(true, 5, sequence, TCP_ACK, 1000), 1000).remove(0);
        let mut fragment = plain(1000);
        fragment[OFFLOAD_BYTES + 6] = 0x20;
        let given = joined(vec![plain(0), fragment.clone(), plain(1000)]);
        assert!(given == [plain(0), fragment, plain(1000)], "a fragment may be of the flow");
        let other = v4(protocol::UDP, (5, 80), &[7; 100]);
        let other = [&[0; OFFLOAD_BYTES][..], &other].concat();
        let given = joined(vec![plain(0), other.clone(), plain(1000)]);
        assert!(given.len() == 2 && given[0] == other, "another protocol is no part of it");
        let broken = |at: usize, value: u8, from: u32| {
            let mut frame = plain(from);
            frame[OFFLOAD_BYTES + at] = value;
            frame
        };
        for (what, at, value) in [("length of the header", 32, 4 << 4), ("checksum", 10, 1)] {
            let frames = vec![broken(at, value, 0), broken(at, value, 1000)];
            assert!(joined(frames.clone()) == frames, "{what}");
        }
    }

    #[test]
    fn no_super_packet_is_longer_than_a_packet_can_be_and_so_many_grow_at_once() {
        let frames = cut(&data(true, 5, 0, TCP_ACK, 60_000), 6000);
        let more = cut(&data(true, 5, 60_000, TCP_ACK, 60_000), 6000);
        let given = joined([frames, more].concat());
        assert_eq!(given.iter().map(|f| packets(f).len()).collect::<Vec<_>>(), [10, 10]);
        let (mut joins, mut given) = (Joins::default(), 0);
        for port in 0..100 {
            let frame = cut(&data(true, port, 0, TCP_ACK, 1000), 1000).remove(0);
            joins.push(frame, |_| given += 1);
            assert!(joins.open.len() <= OPEN_MAX);
        }
        assert_eq!(given, 100 - OPEN_MAX);
    }

    #[test]
    fn packets_of_each_flow_stay_what_they_are_and_in_order() {
        let mut random = 7u64;
        let mut below = |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random).unwrap() % n
        };
        for _ in 0..300 {
            let mut at = [0u32; 11];
            let mut frames = Vec::new();
            for _ in 0..below(60) {
                let flow = below(11);
                let port = u16::try_from(flow).unwrap();
                let flags = [TCP_ACK, TCP_ACK, TCP_ACK, TCP_ACK | TCP_PUSH, TCP_ACK | 1, 2];
                let flags = flags[below(6)];
                let bytes = [0, 100, 1000, 1000, 5000][below(5)];
                let whole = data(flow % 2 == 0, port, at[flow], flags, bytes);
                frames.extend(cut(&whole, 1000));
                if below(8) > 0 {
                    at[flow] = at[flow].wrapping_add(u32::try_from(bytes).unwrap());
                }
            }
            let of_flow = |frames: &[Vec<u8>], port: u16| -> Vec<Vec<u8>> {
                let all = frames.iter().flat_map(|frame| packets(frame));
                let port_of =
                    |bytes: &[u8]| u16_at(bytes, if bytes[0] >> 4 == 4 { 20 } else { 40 });
                all.filter(|bytes| port_of(bytes) == port).collect()
            };
            let given = joined(frames.clone());
            for port in 0..11 {
                assert!(of_flow(&frames, port) == of_flow(&given, port), "flow {port}");
            }
        }
    }
}
