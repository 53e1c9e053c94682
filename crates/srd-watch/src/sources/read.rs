//! Parses the fields of a packet that the analysis needs.
//!
//! A super-packet is built by segmentation offload, or merged on receipt. It counts as the packets
//! that it stands for: one for each segment of its payload, each with headers.
//!
//! The IP header may state fewer bytes than the frame has. If at most [`PADDING_BYTES_MAX`] bytes
//! remain, they are padding of the link and do not count. If more remain, the frame is a
//! super-packet whose header has the length of one segment (partial segmentation offload,
//! `NETIF_F_GSO_PARTIAL`), and all its bytes count.

use srd_card::FlowKey;
use srd_card::packet::{Packet, protocol};
use srd_net::tap::TappedPacket;
use srd_proto::time::Instant;

use crate::sources::arrival::{Arrival, Flow, PacketDirection};
use crate::sources::link::{self, Next};
use crate::sources::other::SkipReason;
use crate::sources::tunnel::innermost;

/// Number of bytes to keep of each packet: enough for the headers of a tunnel within a tunnel.
pub const HEADERS_BYTES: u32 = 256;
/// Largest number of bytes after an IP packet that count as padding or a trailer. Short frames are
/// padded to 60 bytes. Check sequences, and time stamps that capture devices append, are shorter
/// than this limit.
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
    /// EtherType of the first header in `bytes`; `None` if `bytes` begins with an Ethernet header.
    pub ethertype: Option<u16>,
    /// Length of the packet in bytes, including bytes that are not in `bytes`.
    pub length: u32,
    /// Payload bytes of each segment of a super-packet; `None` if the packet is not known to be
    /// one.
    pub segment_bytes: Option<u16>,
    /// MTU in bytes, for packets without `segment_bytes`. A packet that is longer than this from
    /// its IP header on counts as a super-packet, whose packets have this length. `None` counts
    /// each packet as one.
    pub mtu_bytes: Option<u16>,
    /// The first bytes of the packet, or all of them.
    pub bytes: &'a [u8],
}

impl<'a> From<TappedPacket<'a>> for Raw<'a> {
    /// Returns a packet that a packet socket has kept.
    fn from(seen: TappedPacket<'a>) -> Self {
        Self {
            time: Instant::from_nanos(seen.time_ns),
            way: if seen.outgoing { PacketDirection::Out } else { PacketDirection::In },
            ethertype: Some(seen.protocol),
            length: seen.length,
            segment_bytes: seen.segment_bytes,
            mtu_bytes: None,
            bytes: seen.bytes,
        }
    }
}

impl<'a> Raw<'a> {
    /// Returns the bytes from the IP header on, and their number including bytes that were not
    /// kept; `None` if the packet is not IP.
    pub fn ip(&self) -> Option<(&'a [u8], u32)> {
        self.find_ip().ok()
    }

    fn find_ip(&self) -> Result<(&'a [u8], u32), SkipReason> {
        let next = self.ethertype.map_or(Next::Ethernet, Next::EtherType);
        let at = link::find(self.bytes, next, 0)?;
        let bytes = self.bytes.get(at..).ok_or(SkipReason::Cut)?;
        Ok((bytes, self.length.saturating_sub(u32::try_from(at).unwrap_or(u32::MAX))))
    }

    /// Returns the reason why [`Self::arrival`] returns `None` for this packet.
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

    /// Returns the fields that the analysis needs; `None` if the packet is not IP or its headers
    /// are invalid.
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

    /// Returns the payload bytes of a segment if the packet is longer than the MTU, so that it
    /// counts as a super-packet; otherwise `None`.
    fn cut(&self, length: u32, headers_bytes: usize) -> Option<u16> {
        let mtu_bytes = self.mtu_bytes.filter(|mtu_bytes| length > u32::from(*mtu_bytes))?;
        let headers_bytes = u16::try_from(headers_bytes).ok()?;
        mtu_bytes.checked_sub(headers_bytes).filter(|payload_bytes| *payload_bytes > 0)
    }
}

/// Returns the number of bytes of the IP header and the transport header after it.
fn headers(packet: &Packet, bytes: &[u8]) -> usize {
    let transport_bytes = match packet.protocol {
        protocol::TCP => packet.tcp_header_bytes(bytes).unwrap_or(TCP_BYTES),
        protocol::UDP => UDP_BYTES,
        _ => 0,
    };
    packet.transport_at + transport_bytes
}

/// Returns the length of the packet that its IP header states; `None` if the field is zero, as in
/// packets that are too long for it.
pub(crate) fn said_bytes(bytes: &[u8]) -> Option<u32> {
    let field =
        |at: usize| Some(u32::from(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])));
    match bytes.first()? >> 4 {
        4 => field(2).filter(|said| *said > 0),
        _ => field(4).filter(|said| *said > 0).map(|said| said + IPV6_BYTES),
    }
}

/// Numbers by which a captured packet counts.
struct Counted {
    bytes: u32,
    packets: u32,
    packet_bytes: u32,
}

/// Returns the numbers for one packet of `length` bytes, whose IP header states `said` bytes.
fn whole(length: u32, said: Option<u32>) -> Counted {
    let said = said.unwrap_or(length).min(length);
    let is_padded = length - said <= PADDING_BYTES_MAX;
    let bytes = if is_padded { said } else { length };
    // If the frame is a super-packet, its header states the length of one segment.
    Counted { bytes, packets: 1, packet_bytes: said }
}

/// Returns the numbers for a super-packet of `length` bytes. The length in its IP header may be
/// outdated and is not used.
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
