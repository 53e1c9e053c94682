//! Copies for mirror sessions. A packet that a filter accepts is sent once more, in VXLAN
//! (RFC 7348), from the source's interface to the target's.
//!
//! ```text
//!  0      IPv4, from the source's primary address to the target's
//!  20     UDP, from a hash of the flow to 4789, without checksum
//!  28     VXLAN: flags 8, the network identifier of the session
//!  36     Ethernet, from the router to the source's interface, or the other way round
//!  50     the packet, as far as the session and the MTU go
//! ```
//!
//! Network ACLs and routes are applied to a copy as to any packet of the source; the source's
//! security groups are not. A copy uses only bandwidth of the source for which no other packet
//! waits.
//!
//! Bound: a packet is copied once. A copy is never copied, because no interface is both source and
//! target. An answer to a copy is not copied either.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use srd_vpc::id::{EniId, MirrorSessionId};
use srd_vpc::object::{MirrorFilter, World};

use crate::meta::key::Direction;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::{Packet, protocol};
use crate::rewrite::checksum;
use crate::track::Key;

/// UDP port of VXLAN.
pub const VXLAN_PORT: u16 = 4789;
/// Bytes of the headers of IP, UDP and VXLAN.
const OUTER_BYTES: usize = 36;
const ETHERNET_BYTES: usize = 14;
/// Largest packet in a cloud, in bytes.
const MTU: usize = 9001;
/// First source port of copies, above the ports of services.
const SOURCE_PORT_FIRST: u16 = 0xc000;
/// Hardware address of the router, which is the same in all subnets.
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const VNI_FLAG: u8 = 8;
const TTL: u8 = 64;

/// A mirror session, with the fields that the source's card needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mirror {
    /// Filter of the packets that are copied.
    pub filter: MirrorFilter,
    /// VXLAN network identifier, 24 bits.
    pub vni: u32,
    /// Largest number of bytes of a copy after the VXLAN header; `None` if only the MTU limits
    /// them.
    pub packet_length: Option<u16>,
    /// Hardware address of the interface whose packets are copied.
    pub mac: [u8; 6],
    /// Primary address of the interface whose packets are copied.
    pub source: Ipv4Addr,
    /// Primary address of the interface that receives the copies.
    pub target: Ipv4Addr,
}

impl Mirror {
    /// Reads a mirror session of a world, and returns it with its source interface and its number.
    /// Returns `None` if an object to which the session refers does not exist.
    pub fn of(world: &World, session: MirrorSessionId) -> Option<(EniId, u16, Self)> {
        let session = world.mirror_sessions.get(&session)?;
        let target = world.mirror_targets.get(&session.target)?;
        let filter = world.mirror_filters.get(&session.filter)?.clone();
        let (source, target) = (world.enis.get(&session.source)?, world.enis.get(&target.eni)?);
        let mirror = Self {
            filter,
            vni: session.vni,
            packet_length: session.packet_length,
            mac: source.mac,
            source: *source.ipv4.first()?,
            target: *target.ipv4.first()?,
        };
        Some((session.source, session.number, mirror))
    }

    /// Whether a packet for the source is an answer to a copy: a datagram from the target's VXLAN
    /// port, or an ICMP error about a copy. // M2
    pub(in crate::vpc) fn is_answer(&self, packet: &Packet, bytes: &[u8]) -> bool {
        let about = match packet.protocol {
            protocol::UDP => Some(Key::of(packet, bytes, Direction::Ingress, 0)),
            _ => Key::of_error(packet, bytes, Direction::Ingress, 0),
        };
        let copies = [(self.source.into(), None), (self.target.into(), Some(VXLAN_PORT))];
        about.is_some_and(|key| {
            let mut ends = key.ends().into_iter().zip(copies);
            let is_of = |((address, port), (of, at)): ((IpAddr, u16), (IpAddr, Option<u16>))| {
                address == of && at.is_none_or(|at| at == port)
            };
            key.protocol() == protocol::UDP && ends.all(is_of)
        })
    }

    /// Creates the frame with the copy of a packet, cut to the session's length and to the MTU.
    /// `hash`: the hash of the packet's flow. // M3
    pub(in crate::vpc) fn copy(&self, packet: &[u8], egress: bool, hash: u64) -> Vec<u8> {
        let wanted = ETHERNET_BYTES + packet.len();
        let most = self.packet_length.map_or(usize::MAX, usize::from).min(MTU - OUTER_BYTES);
        let inner_bytes = wanted.min(most);
        let total = OUTER_BYTES + inner_bytes;
        let mut out = Vec::with_capacity(OFFLOAD_BYTES + total);
        out.extend_from_slice(&[0; OFFLOAD_BYTES]);
        let [high, low] = length(total);
        let mut ip = [0x45, 0, high, low, 0, 0, 0x40, 0, TTL, protocol::UDP, 0, 0];
        let addresses = [self.source.octets(), self.target.octets()].concat();
        let sum = checksum::of(&[&ip[..], &addresses].concat());
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        out.extend_from_slice(&ip);
        out.extend_from_slice(&addresses);
        let [.., a, b] = hash.to_be_bytes();
        let source_port = u16::from_be_bytes([a, b]) | SOURCE_PORT_FIRST;
        out.extend_from_slice(&source_port.to_be_bytes());
        out.extend_from_slice(&VXLAN_PORT.to_be_bytes());
        out.extend_from_slice(&length(total - 20));
        out.extend_from_slice(&[0, 0, VNI_FLAG, 0, 0, 0]);
        let [_, vni @ ..] = self.vni.to_be_bytes();
        out.extend_from_slice(&vni);
        out.push(0);
        let ends = if egress { [ROUTER_MAC, self.mac] } else { [self.mac, ROUTER_MAC] };
        out.extend_from_slice(&ends.concat());
        let is_v4 = packet.first().is_some_and(|byte| byte >> 4 == 4);
        out.extend_from_slice(&if is_v4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        out.extend_from_slice(packet);
        out.truncate(OFFLOAD_BYTES + total);
        out
    }
}

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

/// Cuts a copy to the largest packet that its path carries, `most` bytes; `usize::MAX` if the path
/// carries packets of any size. // M3
pub(in crate::vpc) fn cut(frame: &mut Vec<u8>, most: usize) {
    let most = most.max(OUTER_BYTES + ETHERNET_BYTES);
    // From here on `most` is smaller than the frame, so no sum overflows.
    if frame.len().saturating_sub(OFFLOAD_BYTES) <= most {
        return;
    }
    frame.truncate(OFFLOAD_BYTES + most);
    let bytes = &mut frame[OFFLOAD_BYTES..];
    bytes[2..4].copy_from_slice(&length(most));
    bytes[10..12].fill(0);
    let sum = checksum::of(&bytes[..20]);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes[24..26].copy_from_slice(&length(most - 20));
}
