//! Metadata of a packet. A frame is read once, when it enters the card, and every later step uses
//! the resulting [`Meta`]: no other part of the card reads headers in order to classify a packet.
//! [`crate::rewrite`] changes bytes at the offsets that a `Meta` contains.

pub(crate) mod key;
pub(crate) mod layout;
pub mod offload;
pub mod packet;

use self::key::{Direction, FlowKey};
use self::layout::Layout;
use self::offload::OFFLOAD_BYTES;
use self::packet::Packet;

/// Largest frame in bytes, offload header included.
pub const FRAME_BYTES_MAX: usize = 65_535;

/// Metadata of a packet that the guest or a peer has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    /// Flow key in the direction in which the guest sends: the same for packets of both
    /// directions.
    pub(crate) key: FlowKey,
    /// Direction of this packet.
    pub(crate) direction: Direction,
    /// Offsets and properties of the packet, and the work that is left to hardware.
    pub(crate) layout: Layout,
}

impl Meta {
    /// Reads a frame. Returns `None` if the frame contains no IP packet, is too long, or has an
    /// offload header that contradicts the packet.
    pub(crate) fn parse(frame: &[u8], direction: Direction) -> Option<Self> {
        if frame.len() > FRAME_BYTES_MAX {
            return None;
        }
        let (header, bytes) = frame.split_first_chunk::<OFFLOAD_BYTES>()?;
        // IPv4 and IPv6 have separate code up to the end, so that no field is copied at a point
        // where the code of both would meet.
        match bytes.first()? >> 4 {
            4 => Self::of(&Packet::read_v4(bytes)?, (header, bytes), direction),
            6 => Self::of_v6((header, bytes), direction),
            _ => None,
        }
    }

    #[inline(never)]
    fn of_v6(frame: (&[u8; OFFLOAD_BYTES], &[u8]), direction: Direction) -> Option<Self> {
        Self::of(&Packet::read_v6(frame.1)?, frame, direction)
    }

    #[inline(always)]
    fn of(
        packet: &Packet,
        (header, bytes): (&[u8; OFFLOAD_BYTES], &[u8]),
        direction: Direction,
    ) -> Option<Self> {
        let layout = Layout::of(packet, bytes)?.with_offload(header)?; // F1
        let key = FlowKey::of(packet);
        let key = match direction {
            Direction::Egress => key,
            Direction::Ingress => key.reversed(),
        };
        Some(Self { key, direction, layout })
    }

    /// Returns the metadata of the fragments of this packet.
    pub(crate) fn of_parts(&self) -> Self {
        let key = FlowKey { ports: (0, 0), ..self.key };
        Self { key, layout: self.layout.of_part(self.layout.packet_bytes()), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::packet::protocol;
    use crate::testing::meta;
    use crate::testing::{v4, v6};
    use std::vec::Vec;

    #[test]
    fn both_directions_of_a_flow_have_one_key() {
        for (there, back) in [
            (v4(protocol::TCP, (5, 80), b""), v4(protocol::TCP, (80, 5), b"")),
            (v6(protocol::UDP, (5, 80), b""), v6(protocol::UDP, (80, 5), b"")),
            (v4(47, (0, 0), b"gre"), v4(47, (0, 0), b"gre")),
        ] {
            let at = if there[0] >> 4 == 4 { 12 } else { 8 };
            let address_bytes = if at == 12 { 4 } else { 16 };
            let mut reply = back.clone();
            let (source, destination) = reply[at..].split_at_mut(address_bytes);
            source.swap_with_slice(&mut destination[..address_bytes]);
            let reply: Vec<u8> = [&[0; OFFLOAD_BYTES], &reply[..]].concat();
            let reply = Meta::parse(&reply, Direction::Ingress).unwrap();
            assert_eq!(reply.key, meta(&there).key);
            assert_eq!(reply.direction, Direction::Ingress);
        }
    }

    #[test]
    fn a_frame_that_is_longer_than_any_is_none() {
        let longest = FRAME_BYTES_MAX - OFFLOAD_BYTES - 28;
        for (payload_bytes, is_one) in [(longest, true), (longest + 1, false)] {
            let packet = v4(protocol::UDP, (1, 2), &std::vec![0; payload_bytes]);
            let frame: Vec<u8> = [&[0; OFFLOAD_BYTES], &packet[..]].concat();
            assert_eq!(Meta::parse(&frame, Direction::Egress).is_some(), is_one);
        }
    }
}
