//! Reads the fields of a packet that the analysis needs.
//!
//! A super-packet (of segmentation offload, or merged on receipt) counts as the packets that it
//! stands for: one for each segment of its payload, each with headers.
//!
//! If the IP header states fewer bytes than the frame has, there are two cases. Either the
//! remaining bytes are padding of the link and do not count. Or the frame is a super-packet whose
//! header has the length of one segment (partial segmentation offload, `NETIF_F_GSO_PARTIAL`), and
//! all its bytes count. [`PADDING_BYTES_MAX`] separates the two cases.

use srd_card::FlowKey;
use srd_card::packet::{Packet, protocol};
use srd_proto::time::Instant;

use crate::sources::arrival::{Arrival, Flow, PacketDirection};
use crate::sources::link::{self, Next};
use crate::sources::other::SkipReason;
use crate::sources::tunnel::innermost;

/// Bytes to keep of each packet: enough for the headers of a tunnel in a tunnel.
pub const HEADERS_BYTES: u32 = 256;
/// Largest number of bytes after an IP packet that count as padding or a trailer: short frames are
/// padded to 60 bytes, and check sequences and time stamps of capture devices are shorter.
pub const PADDING_BYTES_MAX: u32 = 64;
/// Bytes of the longest IPv4 header.
const HEADER_BYTES_MAX: u64 = 60;
const IPV6_BYTES: u32 = 40;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// A packet from a socket or a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Raw<'a> {
    /// Time of the packet.
    pub time: Instant,
    /// Direction of the packet.
    pub way: PacketDirection,
    /// EtherType of `bytes`; `None` if they begin with an Ethernet header.
    pub ethertype: Option<u16>,
    /// Length of the packet in bytes, including bytes that were not kept.
    pub length: u32,
    /// Payload bytes of each segment, if it is a super-packet.
    pub segment_bytes: Option<u16>,
    /// MTU, for packets without `segment_bytes`: a packet that is longer, from the IP header on, is
    /// a super-packet of packets of this length.
    pub mtu_bytes: Option<u16>,
    /// The first bytes of the packet.
    pub bytes: &'a [u8],
}

impl<'a> Raw<'a> {
    /// Returns the packet from its IP header on, with its length; `None` if it is no IP packet.
    pub fn ip(&self) -> Option<(&'a [u8], u32)> {
        self.find_ip().ok()
    }

    fn find_ip(&self) -> Result<(&'a [u8], u32), SkipReason> {
        let next = self.ethertype.map_or(Next::Ethernet, Next::EtherType);
        let at = link::find(self.bytes, next, 0)?;
        let bytes = self.bytes.get(at..).ok_or(SkipReason::Cut)?;
        Ok((bytes, self.length.saturating_sub(u32::try_from(at).unwrap_or(u32::MAX))))
    }

    /// Returns the kind of a packet for which [`Self::arrival`] returns `None`.
    pub fn other(&self) -> SkipReason {
        match self.find_ip() {
            Err(other) => other,
            // The bytes are too few for a header, or the header contradicts itself.
            Ok((bytes, length)) => {
                let is_cut = (bytes.len() as u64) < u64::from(length).min(HEADER_BYTES_MAX);
                if is_cut { SkipReason::Cut } else { SkipReason::Malformed }
            }
        }
    }

    /// Returns the packet as the analysis needs it; `None` if it is not an IP packet.
    pub fn arrival(&self) -> Option<Arrival> {
        let (bytes, length) = self.ip()?;
        let packet = Packet::read(bytes)?;
        let inside = innermost(&packet, bytes);
        let inner = inside.map(|(tunnel, inner, _)| (tunnel, FlowKey::of(&inner)));
        let headers_bytes = match &inside {
            Some((_, inner, at)) => at + headers(inner, &bytes[*at..]),
            None => headers(&packet, bytes),
        };
        let segment_bytes = self.segment_bytes.or_else(|| self.cut(length, headers_bytes));
        let counted = match segment_bytes.filter(|bytes| *bytes > 0) {
            Some(segment_bytes) => segments(length, headers_bytes, segment_bytes),
            None => whole(length, said_bytes(bytes)),
        };
        let flow = Flow { outer: FlowKey::of(&packet), inner };
        let (time, way, fragment) = (self.time, self.way, packet.fragment);
        let Counted { bytes, packets, packet_bytes } = counted;
        Some(Arrival { time, way, flow, bytes, packets, packet_bytes, fragment })
    }

    /// Returns the payload bytes of the segments of a packet that is longer than the MTU.
    fn cut(&self, length: u32, headers_bytes: usize) -> Option<u16> {
        let mtu_bytes = self.mtu_bytes.filter(|mtu_bytes| length > u32::from(*mtu_bytes))?;
        let headers_bytes = u16::try_from(headers_bytes).ok()?;
        mtu_bytes.checked_sub(headers_bytes).filter(|payload_bytes| *payload_bytes > 0)
    }
}

/// Returns the bytes of the IP header and the header inside of it.
fn headers(packet: &Packet, bytes: &[u8]) -> usize {
    let transport_bytes = match packet.protocol {
        protocol::TCP => packet.tcp_header_bytes(bytes).unwrap_or(TCP_BYTES),
        protocol::UDP => UDP_BYTES,
        _ => 0,
    };
    packet.transport_at + transport_bytes
}

/// Returns the length that the IP header states; `None` if it states zero, as for packets that are
/// too long for the field.
pub(crate) fn said_bytes(bytes: &[u8]) -> Option<u32> {
    let field =
        |at: usize| Some(u32::from(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])));
    match bytes.first()? >> 4 {
        4 => field(2).filter(|said| *said > 0),
        _ => field(4).filter(|said| *said > 0).map(|said| said + IPV6_BYTES),
    }
}

/// The packets that one captured packet stands for.
struct Counted {
    bytes: u32,
    packets: u32,
    packet_bytes: u32,
}

/// Counts a packet of this length, whose header states another length or the same.
fn whole(length: u32, said: Option<u32>) -> Counted {
    let said = said.unwrap_or(length).min(length);
    let is_padded = length - said <= PADDING_BYTES_MAX;
    let bytes = if is_padded { said } else { length };
    // If the header of a super-packet states another length, this is the length of a segment.
    Counted { bytes, packets: 1, packet_bytes: said }
}

/// Counts a super-packet of this length. The length in its header may be outdated and is not used.
fn segments(length: u32, headers_bytes: usize, segment_bytes: u16) -> Counted {
    let headers_bytes = u32::try_from(headers_bytes).unwrap_or(u32::MAX);
    let payload_bytes = length.saturating_sub(headers_bytes);
    let packets = payload_bytes.div_ceil(segment_bytes.into()).max(1);
    Counted {
        bytes: length.saturating_add((packets - 1).saturating_mul(headers_bytes)),
        packets,
        packet_bytes: length.min(headers_bytes.saturating_add(segment_bytes.into())),
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
