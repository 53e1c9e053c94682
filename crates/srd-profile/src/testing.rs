//! IPv4 packets for tests.

use srd_proto::time::Instant;
use srd_watch::PacketDirection;
use srd_watch::read::Raw;

/// An IPv4 packet.
#[derive(Clone, Debug)]
pub(crate) struct TestPacket {
    pub(crate) time_ns: u64,
    pub(crate) way: PacketDirection,
    pub(crate) length: u32,
    pub(crate) ethertype: u16,
    pub(crate) segment_bytes: Option<u16>,
    pub(crate) bytes: Vec<u8>,
}

impl TestPacket {
    pub(crate) fn raw(&self) -> Raw<'_> {
        Raw {
            time: Instant::from_nanos(self.time_ns),
            way: self.way,
            ethertype: Some(self.ethertype),
            length: self.length,
            segment_bytes: self.segment_bytes,
            mtu_bytes: None,
            bytes: &self.bytes,
        }
    }

    /// Sets the destination of the packet.
    pub(crate) fn to(&mut self, address: [u8; 4]) {
        self.bytes[16..20].copy_from_slice(&address);
    }
}

fn ip(time_ns: u64, way: PacketDirection, protocol: u8, length: u32) -> TestPacket {
    let said = u16::try_from(length).unwrap_or(0).to_be_bytes();
    let mut bytes = vec![0x45, 0, said[0], said[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    let ends = [[10, 0, 0, 1], [10, 0, 0, 2]];
    let (from, to) =
        if way == PacketDirection::Out { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
    bytes.extend(from);
    bytes.extend(to);
    TestPacket { time_ns, way, length, ethertype: 0x0800, segment_bytes: None, bytes }
}

fn ports(bytes: &mut Vec<u8>, (from, to): (u16, u16)) {
    bytes.extend(from.to_be_bytes());
    bytes.extend(to.to_be_bytes());
}

pub(crate) fn udp(time_ns: u64, way: PacketDirection, pair: (u16, u16), length: u32) -> TestPacket {
    let mut made = ip(time_ns, way, 17, length);
    ports(&mut made.bytes, pair);
    made.bytes.extend([0, 8, 0, 0]);
    made
}

pub(crate) fn tcp(
    time_ns: u64,
    way: PacketDirection,
    pair: (u16, u16),
    flags: u8,
    length: u32,
) -> TestPacket {
    let mut made = ip(time_ns, way, 6, length);
    ports(&mut made.bytes, pair);
    made.bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 255, 255, 0, 0, 0, 0]);
    made
}
