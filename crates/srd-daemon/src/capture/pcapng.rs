//! Captured packets in the pcapng format. The file has one interface for inner packets, followed by
//! one for outer packets. If only one kind of packet is captured, the file has only one interface,
//! because tcpdump cannot read a second interface of raw IP.

use srd_pcapng::{Direction, Writer as Blocks};

use super::Layers;
use super::tap::{self, Packet};

/// Writes pcapng blocks to memory.
#[derive(Debug, Default)]
pub(super) struct Writer {
    blocks: Blocks,
    layers: Layers,
    /// Numbers of written packets: first inner packets, then outer packets.
    written: [u64; 2],
}

impl Writer {
    /// Writes the blocks at the beginning of a file.
    pub(super) fn begin(interface: &str, layers: Layers, snaplen: u32) -> Self {
        let blocks = Blocks::begin(concat!("srd ", env!("CARGO_PKG_VERSION")));
        let mut writer = Self { blocks, layers, ..Self::default() };
        for (_, is_outer) in writer.interfaces() {
            let layer = if is_outer { "outer" } else { "inner" };
            writer.blocks.interface(&format!("{interface} {layer}"), snaplen);
        }
        writer
    }

    /// Returns the number of each interface in the file, and whether the interface is for outer
    /// packets.
    fn interfaces(&self) -> impl Iterator<Item = (u32, bool)> + use<> {
        let layers = self.layers;
        let is_there =
            move |is_outer: &bool| layers == Layers::Both || (layers == Layers::Outer) == *is_outer;
        (0..).zip([false, true].into_iter().filter(is_there))
    }

    /// Writes one packet.
    pub(super) fn packet(&mut self, packet: &Packet) {
        self.written[usize::from(packet.is_outer)] += 1;
        let is_second = packet.is_outer && self.layers == Layers::Both;
        self.blocks.packet(&srd_pcapng::Packet {
            interface: is_second.into(),
            direction: match packet.direction {
                tap::Direction::In => Direction::In,
                tap::Direction::Out => Direction::Out,
            },
            time_ns: packet.time_ns,
            length: packet.length,
            bytes: &packet.bytes,
            comment: "",
        });
    }

    /// Writes the blocks at the end of a file. `dropped` counts the packets that are missing in the
    /// file: first inner packets, then outer packets.
    pub(super) fn end(&mut self, now_ns: u64, dropped: [u64; 2]) {
        for (interface, is_outer) in self.interfaces() {
            let dropped = dropped[usize::from(is_outer)];
            let received = self.written[usize::from(is_outer)] + dropped;
            self.blocks.statistics(interface, now_ns, received, dropped);
        }
    }

    /// Returns the bytes that were written since the last call, and removes them from memory.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.blocks.take()
    }

    /// Number of bytes that [`Self::take`] would return.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Number of packets written so far, inner and outer packets together.
    pub(super) fn packets(&self) -> u64 {
        self.written.iter().sum()
    }
}

#[cfg(test)]
#[path = "../../../srd-pcapng/tests/support/blocks.rs"]
mod blocks;

#[cfg(test)]
mod tests {
    use srd_pcapng::SECTION;

    use super::blocks::{blocks, number};
    use super::*;

    fn packet(is_outer: bool, bytes: &[u8]) -> Packet {
        let direction = if is_outer { tap::Direction::Out } else { tap::Direction::In };
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
}
