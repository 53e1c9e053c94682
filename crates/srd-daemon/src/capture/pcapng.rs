//! The pcapng format (draft-ietf-opsawg-pcapng), as far as we write it.
//!
//! ```text
//!  block   type (4) | length (4) | body, padded to 4 | length (4)
//!
//!  0x0A0D0D0A section     byte order 0x1A2B3C4D | 1.0 | section length unknown (-1) | options
//!  0x00000001 interface   link type 101 (raw IP) | 0 | snaplen | options: name, 10^-9 s
//!             one for inner packets, then one for outer ones; if only one kind is wanted, only
//!             that, since tcpdump reads no second interface of raw IP
//!  0x00000006 packet      interface | time high | time low | kept | length | bytes, padded
//!                         | options: flags (1 inbound, 2 outbound)
//!  0x00000005 statistics  interface | time high | time low | options: received, dropped
//!             one per interface, at the end
//!
//!  option  code (2) | length (2) | value, padded to 4;   0 | 0 ends a list
//! ```
//!
//! Numbers are little-endian, which the section says.

use super::Layers;
use super::tap::{Direction, Packet};

/// Block types.
const SECTION: u32 = 0x0A0D_0D0A;
const INTERFACE: u32 = 1;
pub(super) const STATISTICS: u32 = 5;
pub(super) const PACKET: u32 = 6;

/// Raw IP: the version is in the first four bits.
const LINKTYPE_RAW: u16 = 101;
/// Option codes, each of its own block.
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const STATISTICS_RECEIVED: u16 = 4;
pub(super) const STATISTICS_DROPPED: u16 = 5;

/// Bytes of a block beside its body.
pub(super) const BLOCK_OVERHEAD_BYTES: usize = 12;
/// Bytes of a statistics block before its options, from its type on.
pub(super) const STATISTICS_HEAD_BYTES: usize = 20;

/// Writes blocks into memory.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    layers: Layers,
    /// Packets written, inner and outer ones.
    written: [u64; 2],
}

impl Writer {
    /// The blocks that a file begins with.
    pub(super) fn begin(interface: &str, layers: Layers, snaplen: u32) -> Self {
        let mut writer = Self { layers, ..Self::default() };
        writer.block(SECTION, |body| {
            body.extend(0x1A2B_3C4D_u32.to_le_bytes());
            body.extend([1, 0, 0, 0]);
            body.extend((-1_i64).to_le_bytes());
            let name = concat!("srd ", env!("CARGO_PKG_VERSION"));
            option(body, SECTION_APPLICATION, name.as_bytes());
            end_options(body);
        });
        for (_, is_outer) in writer.interfaces() {
            let layer = if is_outer { "outer" } else { "inner" };
            writer.block(INTERFACE, |body| {
                body.extend(LINKTYPE_RAW.to_le_bytes());
                body.extend([0, 0]);
                body.extend(snaplen.to_le_bytes());
                option(body, INTERFACE_NAME, format!("{interface} {layer}").as_bytes());
                option(body, INTERFACE_RESOLUTION, &[9]);
                end_options(body);
            });
        }
        writer
    }

    /// The number of each interface, and whether it is that of outer packets.
    fn interfaces(&self) -> impl Iterator<Item = (u32, bool)> + use<> {
        let layers = self.layers;
        let is_there =
            move |is_outer: &bool| layers == Layers::Both || (layers == Layers::Outer) == *is_outer;
        (0..).zip([false, true].into_iter().filter(is_there))
    }

    /// One packet.
    pub(super) fn packet(&mut self, packet: &Packet) {
        self.written[usize::from(packet.is_outer)] += 1;
        let flags: u32 = match packet.direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
        let is_second = packet.is_outer && self.layers == Layers::Both;
        self.block(PACKET, |body| {
            body.extend(u32::from(is_second).to_le_bytes());
            body.extend(time(packet.time_ns));
            let kept = u32::try_from(packet.bytes.len()).unwrap_or(u32::MAX);
            body.extend(kept.to_le_bytes());
            body.extend(packet.length.to_le_bytes());
            body.extend(&packet.bytes);
            pad(body);
            option(body, PACKET_FLAGS, &flags.to_le_bytes());
            end_options(body);
        });
    }

    /// The blocks that a file ends with. `dropped`: packets that are missing in it.
    pub(super) fn end(&mut self, now_ns: u64, dropped: [u64; 2]) {
        for (interface, is_outer) in self.interfaces() {
            let dropped = dropped[usize::from(is_outer)];
            let received = self.written[usize::from(is_outer)] + dropped;
            self.block(STATISTICS, |body| {
                body.extend(interface.to_le_bytes());
                body.extend(time(now_ns));
                option(body, STATISTICS_RECEIVED, &received.to_le_bytes());
                option(body, STATISTICS_DROPPED, &dropped.to_le_bytes());
                end_options(body);
            });
        }
    }

    /// What was written since this was last asked.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Bytes that wait to be taken.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Packets written so far.
    pub(super) fn packets(&self) -> u64 {
        self.written.iter().sum()
    }

    fn block(&mut self, kind: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.bytes.len();
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend([0; 4]);
        // Bodies are multiples of four: padding within is as good as within the block.
        write(&mut self.bytes);
        let length = self.bytes.len() - begin + 4;
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        self.bytes[begin + 4..begin + 8].copy_from_slice(&length);
        self.bytes.extend(length);
    }
}

fn time(ns: u64) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h] = ns.to_le_bytes();
    [e, f, g, h, a, b, c, d]
}

/// Every part of a body has a multiple of four bytes; the blocks before it have, too.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn end_options(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn blocks(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let length = number(bytes, at + 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(number(bytes, at + length - 4) as usize, length, "both lengths agree");
            found.push((number(bytes, at), bytes[at + 8..at + length - 4].to_vec()));
            at += length;
        }
        found
    }

    fn packet(is_outer: bool, bytes: &[u8]) -> Packet {
        let direction = if is_outer { Direction::Out } else { Direction::In };
        let (time_ns, length) = (0x1122_3344_5566_7788, 100);
        Packet { is_outer, direction, time_ns, length, bytes: bytes.to_vec() }
    }

    #[test]
    fn a_file_is_a_section_two_interfaces_packets_and_statistics() {
        let mut writer = Writer::begin("srd0", Layers::Both, 1500);
        for bytes in [&[1][..], &[1, 2, 3, 4], &[]] {
            writer.packet(&packet(bytes.len() == 4, bytes));
        }
        writer.end(5, [7, 9]);
        assert_eq!(writer.packets(), 3);
        let blocks = blocks(&writer.take());
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION, 1, 1, 6, 6, 6, 5, 5]);
        assert_eq!(number(&blocks[0].1, 0), 0x1A2B_3C4D);
        for ((_, body), name) in blocks[1..3].iter().zip(["srd0 inner", "srd0 outer"]) {
            assert_eq!(body[..2], [101, 0]);
            assert_eq!(number(body, 4), 1500);
            assert_eq!(&body[12..12 + name.len()], name.as_bytes());
            // if_tsresol = 9 follows the padded name.
            assert_eq!(body[24..29], [9, 0, 1, 0, 9]);
        }
        let dropped = |body: &[u8]| number(body, 12 + 12 + 4);
        assert_eq!((dropped(&blocks[6].1), dropped(&blocks[7].1)), (7, 9));
        assert_eq!(number(&blocks[6].1, 12 + 4), 2 + 7);
    }

    #[test]
    fn one_layer_alone_has_one_interface() {
        for (layers, name) in [(Layers::Inner, "srd0 inner"), (Layers::Outer, "srd0 outer")] {
            let mut writer = Writer::begin("srd0", layers, 1500);
            writer.packet(&packet(layers == Layers::Outer, &[1]));
            writer.end(5, [7, 7]);
            let blocks = blocks(&writer.take());
            let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
            assert_eq!(kinds, [SECTION, 1, 6, 5]);
            assert_eq!(&blocks[1].1[12..22], name.as_bytes());
            assert_eq!((number(&blocks[2].1, 0), number(&blocks[3].1, 0)), (0, 0));
            assert_eq!(number(&blocks[3].1, 12 + 4), 1 + 7);
        }
    }

    #[test]
    fn a_packet_has_interface_time_lengths_and_direction() {
        let mut writer = Writer::default();
        writer.packet(&packet(true, &[1, 2, 3]));
        let blocks = blocks(&writer.take());
        let body = &blocks[0].1;
        let words: Vec<u32> = (0..5).map(|n| number(body, 4 * n)).collect();
        assert_eq!(words, [1, 0x1122_3344, 0x5566_7788, 3, 100]);
        assert_eq!(body[20..24], [1, 2, 3, 0]);
        assert_eq!(body[24..32], [2, 0, 4, 0, 2, 0, 0, 0]);
        assert!(writer.take().is_empty());
    }
}
