//! From the bytes of a packet to what the analysis needs of it.
//!
//! A super-packet (of segmentation offload, or put together on receipt) counts as the packets that
//! it stands for: as many as its payload fills segments, with headers before each.

use srd_card::FlowKey;
use srd_card::packet::{Packet, protocol};
use srd_proto::time::Instant;

use crate::arrival::{Arrival, Flow, Way};
use crate::tunnel::{ETHERTYPE_V4, ETHERTYPE_V6, ethernet, innermost, untagged};

/// Bytes of a packet that are worth keeping: the headers of a tunnel in a tunnel.
pub const HEADERS_BYTES: u32 = 256;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// A packet as a socket or a file has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Raw<'a> {
    /// When.
    pub time: Instant,
    /// Which way.
    pub way: Way,
    /// What `bytes` begin with: an EtherType, or `None` for an Ethernet header.
    pub ethertype: Option<u16>,
    /// Its bytes, those included that were not kept.
    pub length: u32,
    /// Payload bytes of each segment, if it is a super-packet.
    pub segment_bytes: Option<u16>,
    /// If it says no `segment_bytes`: longer packets, from the IP header on, are super-packets of
    /// packets of this length.
    pub mtu_bytes: Option<u16>,
    /// The first bytes.
    pub bytes: &'a [u8],
}

impl<'a> Raw<'a> {
    /// The packet from its IP header on, with its length; `None` if it is no IP packet.
    pub fn ip(&self) -> Option<(&'a [u8], u32)> {
        let (ethertype, at) = match self.ethertype {
            None => ethernet(self.bytes, 0)?,
            Some(ethertype) => untagged(self.bytes, ethertype, 0)?,
        };
        if !matches!(ethertype, ETHERTYPE_V4 | ETHERTYPE_V6) {
            return None;
        }
        Some((self.bytes.get(at..)?, self.length.saturating_sub(u32::try_from(at).ok()?)))
    }

    /// What the analysis needs of it; `None` if it is no IP packet.
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
        let length = length.min(without_padding(bytes, segment_bytes));
        let (bytes, packets) = count(length, headers_bytes, segment_bytes);
        let flow = Flow { outer: FlowKey::of(&packet), inner };
        let fragment = packet.fragment;
        Some(Arrival { time: self.time, way: self.way, flow, bytes, packets, fragment })
    }

    /// Payload bytes of the segments of a packet that is longer than the MTU.
    fn cut(&self, length: u32, headers_bytes: usize) -> Option<u16> {
        let mtu_bytes = self.mtu_bytes.filter(|mtu_bytes| length > u32::from(*mtu_bytes))?;
        let headers_bytes = u16::try_from(headers_bytes).ok()?;
        mtu_bytes.checked_sub(headers_bytes).filter(|payload_bytes| *payload_bytes > 0)
    }
}

/// Bytes of the headers of IP and what it carries.
fn headers(packet: &Packet, bytes: &[u8]) -> usize {
    let transport_bytes = match packet.protocol {
        protocol::TCP => packet.tcp_header_bytes(bytes).unwrap_or(TCP_BYTES),
        protocol::UDP => UDP_BYTES,
        _ => 0,
    };
    packet.transport_at + transport_bytes
}

/// The length that the IP header says: short frames of Ethernet are padded. That of a super-packet
/// may be stale, and is no bound.
fn without_padding(bytes: &[u8], segment_bytes: Option<u16>) -> u32 {
    let field =
        |at: usize| Some(u32::from(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?])));
    let v4 = bytes.first().is_some_and(|first| first >> 4 == 4);
    let said = if v4 { field(2) } else { field(4).filter(|said| *said > 0).map(|said| said + 40) };
    match said {
        Some(said) if said > 0 && segment_bytes.is_none() => said,
        _ => u32::MAX,
    }
}

/// Bytes and packets that a packet of this length stands for.
fn count(length: u32, headers_bytes: usize, segment_bytes: Option<u16>) -> (u32, u32) {
    let headers_bytes = u32::try_from(headers_bytes).unwrap_or(u32::MAX);
    let payload_bytes = length.saturating_sub(headers_bytes);
    match segment_bytes {
        Some(segment_bytes) if segment_bytes > 0 => {
            let packets = payload_bytes.div_ceil(segment_bytes.into()).max(1);
            (length.saturating_add((packets - 1).saturating_mul(headers_bytes)), packets)
        }
        _ => (length, 1),
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
