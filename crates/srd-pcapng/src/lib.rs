//! Capture files: a writer of pcapng (draft-ietf-opsawg-pcapng), with the blocks that this project
//! needs, and readers of pcap and pcapng in [`read`].
//!
//! ```text
//!  block   type (4) | length (4) | body, padded to 4 | length (4)
//!
//!  0x0A0D0D0A section     byte order 0x1A2B3C4D | 1.0 | section length unknown (-1) | options
//!  0x00000001 interface   link type 101 (raw IP) | 0 | snaplen | options: name, 10^-9 s
//!  0x00000006 packet      interface | time high | time low | kept | length | bytes, padded
//!                         | options: comment, flags (1 inbound, 2 outbound)
//!  0x00000005 statistics  interface | time high | time low | options: received, dropped
//!
//!  option  code (2) | length (2) | value, padded to 4;   0 | 0 ends a list
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`read`] | readers of pcap and pcapng |
//!
//! Numbers are little-endian, as the section header declares. tcpdump does not read files with a
//! second interface of raw IP; Wireshark does.
#![forbid(unsafe_code)]

pub mod read;

/// The type of a section block.
pub const SECTION: u32 = 0x0A0D_0D0A;
/// The type of an interface block.
pub const INTERFACE: u32 = 1;
/// The type of a statistics block.
pub const STATISTICS: u32 = 5;
/// The type of a packet block.
pub const PACKET: u32 = 6;

/// Link type of raw IP: packets without a link header, whose first four bits are the IP version.
const LINKTYPE_RAW: u16 = 101;
/// Code of the comment option, which has this meaning in every type of block. The meaning of the
/// other option codes depends on the type of the block.
const COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const STATISTICS_RECEIVED: u16 = 4;
/// Code of the option of a statistics block that counts the packets which are missing in the file.
pub const STATISTICS_DROPPED: u16 = 5;

/// Number of bytes of a block in addition to its body: its type, and its length twice.
pub const BLOCK_OVERHEAD_BYTES: usize = 12;
/// Number of bytes of a statistics block before its options, including the type of the block.
pub const STATISTICS_HEAD_BYTES: usize = 20;

/// Direction of a packet, as seen from its interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// The packet was received.
    In,
    /// The packet was sent.
    Out,
}

/// A packet to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Interface of the packet: the number that [`Writer::interface`] returned.
    pub interface: u32,
    /// Direction of the packet.
    pub direction: Direction,
    /// Time of the packet, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Length of the packet on the network in bytes.
    pub length: u32,
    /// Bytes of the packet; only the first bytes, if the packet was cut off.
    pub bytes: &'a [u8],
    /// Comment on the packet; empty: no comment. Anything beyond 65,535 bytes is cut off.
    pub comment: &'a str,
}

/// Writer of a pcapng file: writes blocks into memory, from which the caller takes them.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    interfaces: u32,
}

impl Writer {
    /// Returns a writer with the first block of a file. `application`: name of the program that
    /// writes the file.
    pub fn begin(application: &str) -> Self {
        let mut writer = Self::default();
        writer.block(SECTION, |body| {
            body.extend(0x1A2B_3C4D_u32.to_le_bytes());
            body.extend([1, 0, 0, 0]);
            body.extend((-1_i64).to_le_bytes());
            option(body, SECTION_APPLICATION, application.as_bytes());
            end_options(body);
        });
        writer
    }

    /// Writes the description of an interface, which has to precede the interface's packets.
    /// Returns the number of the interface. `snaplen`: largest number of bytes of a packet that are
    /// kept.
    pub fn interface(&mut self, name: &str, snaplen: u32) -> u32 {
        self.block(INTERFACE, |body| {
            body.extend(LINKTYPE_RAW.to_le_bytes());
            body.extend([0, 0]);
            body.extend(snaplen.to_le_bytes());
            option(body, INTERFACE_NAME, name.as_bytes());
            option(body, INTERFACE_RESOLUTION, &[9]);
            end_options(body);
        });
        self.interfaces += 1;
        self.interfaces - 1
    }

    /// Writes a packet.
    pub fn packet(&mut self, packet: &Packet<'_>) {
        let flags: u32 = match packet.direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
        self.block(PACKET, |body| {
            body.extend(packet.interface.to_le_bytes());
            body.extend(time(packet.time_ns));
            let kept = u32::try_from(packet.bytes.len()).unwrap_or(u32::MAX);
            body.extend(kept.to_le_bytes());
            body.extend(packet.length.to_le_bytes());
            body.extend(packet.bytes);
            pad(body);
            if !packet.comment.is_empty() {
                let most = packet.comment.len().min(u16::MAX.into());
                let mut cuts = (0..=most).rev();
                let cut = cuts.find(|at| packet.comment.is_char_boundary(*at)).unwrap_or(0);
                option(body, COMMENT, &packet.comment.as_bytes()[..cut]);
            }
            option(body, PACKET_FLAGS, &flags.to_le_bytes());
            end_options(body);
        });
    }

    /// Writes the statistics of an interface at the end of a capture. `received`: number of packets
    /// that the file should hold; `dropped`: number of these packets that are missing.
    pub fn statistics(&mut self, interface: u32, now_ns: u64, received: u64, dropped: u64) {
        self.block(STATISTICS, |body| {
            body.extend(interface.to_le_bytes());
            body.extend(time(now_ns));
            option(body, STATISTICS_RECEIVED, &received.to_le_bytes());
            option(body, STATISTICS_DROPPED, &dropped.to_le_bytes());
            end_options(body);
        });
    }

    /// Takes the bytes that were written since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Returns the number of bytes that wait to be taken.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether no bytes wait to be taken.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn block(&mut self, kind: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.bytes.len();
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend([0; 4]);
        // Every body is padded to a multiple of four bytes, so the block needs no further padding.
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

/// Pads a body with zeros to a multiple of four bytes. The blocks before it in the buffer have such
/// a length as well.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Appends an option to a body. A value of more than 65,535 bytes is cut off.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    body.extend(code.to_le_bytes());
    body.extend(length.to_le_bytes());
    body.extend(&value[..length.into()]);
    pad(body);
}

fn end_options(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

#[cfg(test)]
#[path = "../tests/support/blocks.rs"]
mod blocks;

#[cfg(test)]
mod tests {
    use super::blocks::{blocks, number};
    use super::*;

    fn packet<'a>(interface: u32, bytes: &'a [u8], comment: &'a str) -> Packet<'a> {
        let (direction, time_ns, length) = (Direction::Out, 0x1122_3344_5566_7788, 100);
        Packet { interface, direction, time_ns, length, bytes, comment }
    }

    #[test]
    fn a_file_is_a_section_interfaces_packets_and_statistics() {
        let mut writer = Writer::begin("srd 1");
        for name in ["srd0 inner", "srd0 outer"] {
            writer.interface(name, 1500);
        }
        for bytes in [&[1][..], &[1, 2, 3, 4], &[]] {
            writer.packet(&packet(1, bytes, ""));
        }
        writer.statistics(0, 5, 9, 7);
        let blocks = blocks(&writer.take());
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION, 1, 1, 6, 6, 6, 5]);
        assert_eq!(number(&blocks[0].1, 0), 0x1A2B_3C4D);
        for ((_, body), name) in blocks[1..3].iter().zip(["srd0 inner", "srd0 outer"]) {
            assert_eq!(body[..2], [101, 0]);
            assert_eq!(number(body, 4), 1500);
            assert_eq!(&body[12..12 + name.len()], name.as_bytes());
            // if_tsresol = 9 follows the padded name.
            assert_eq!(body[24..29], [9, 0, 1, 0, 9]);
        }
        assert_eq!(number(&blocks[6].1, 12 + 4), 9);
        assert_eq!(number(&blocks[6].1, 12 + 12 + 4), 7);
    }

    #[test]
    fn a_packet_has_interface_time_lengths_direction_and_a_comment() {
        let mut writer = Writer::default();
        writer.packet(&packet(1, &[1, 2, 3], ""));
        writer.packet(&packet(0, &[], "why"));
        let blocks = blocks(&writer.take());
        let body = &blocks[0].1;
        let words: Vec<u32> = (0..5).map(|n| number(body, 4 * n)).collect();
        assert_eq!(words, [1, 0x1122_3344, 0x5566_7788, 3, 100]);
        assert_eq!(body[20..24], [1, 2, 3, 0]);
        assert_eq!(body[24..32], [2, 0, 4, 0, 2, 0, 0, 0]);
        assert_eq!(blocks[1].1[20..28], [1, 0, 3, 0, b'w', b'h', b'y', 0]);
        assert!(writer.is_empty());
    }

    #[test]
    fn a_comment_that_is_too_long_is_cut_between_two_characters() {
        let long = "ä".repeat(40_000);
        let mut writer = Writer::default();
        writer.packet(&packet(0, &[], &long));
        let block = &blocks(&writer.take())[0].1;
        assert_eq!(block[20..24], [1, 0, 0xFE, 0xFF]);
        assert!(std::str::from_utf8(&block[24..24 + 0xFFFE]).is_ok());
    }
}
