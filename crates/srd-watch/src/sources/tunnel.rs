//! Finds the packet inside of a tunnel.
//!
//! ```text
//!  IP | UDP 4789, 8472 | VXLAN (8)              | Ethernet | IP
//!  IP | UDP 6081       | Geneve (8 + options)   | Ethernet, or IP
//!  IP | GRE (4 + checksum 4, key 4, number 4)   | IP, or Ethernet
//!  IP |                                         | IP
//! ```
//!
//! Nothing in a packet is trusted: if the packet does not have one of the forms above, only its
//! outer flow counts. Limit: [`DEPTH_MAX`] nested tunnels.

use srd_card::packet::{Packet, protocol};

use crate::sources::arrival::Tunnel;
use crate::sources::link::{self, ETHERTYPE_V4, ETHERTYPE_V6, Next};

/// Largest number of nested tunnels that are read.
const DEPTH_MAX: usize = 4;
const VXLAN_PORTS: [u16; 2] = [4789, 8472];
const GENEVE_PORT: u16 = 6081;
const UDP_BYTES: usize = 8;
/// Protocol type in a GRE header if Ethernet is inside (transparent Ethernet bridging).
const ETHERTYPE_ETHERNET: u16 = 0x6558;

/// Finds the innermost packet of `bytes`, which begins with the IP header of `packet`. Returns the
/// kind of the outermost tunnel, the innermost packet, and its offset; `None` if `packet` is no
/// tunnel.
pub(crate) fn innermost(packet: &Packet, bytes: &[u8]) -> Option<(Tunnel, Packet, usize)> {
    let (outermost, mut inner, mut at) = step(packet, bytes, 0)?;
    for _ in 1..DEPTH_MAX {
        let Some((_, deeper, begin)) = step(&inner, &bytes[at..], at) else { break };
        (inner, at) = (deeper, begin);
    }
    Some((outermost, inner, at))
}

/// Parses one tunnel header. `begin` is the offset of `bytes` in the whole packet. Returns the kind
/// of the tunnel, the inner packet, and its offset in the whole packet; `None` if `packet` is no
/// tunnel.
fn step(packet: &Packet, bytes: &[u8], begin: usize) -> Option<(Tunnel, Packet, usize)> {
    if packet.fragment {
        return None;
    }
    let at = packet.transport_at;
    let (tunnel, ethertype, at) = match packet.protocol {
        4 => (Tunnel::IpInIp, ETHERTYPE_V4, at),
        41 => (Tunnel::IpInIp, ETHERTYPE_V6, at),
        47 => gre(bytes, at)?,
        protocol::UDP => udp(bytes, at, packet.ports?.1)?,
        _ => return None,
    };
    let at = match ethertype {
        ETHERTYPE_ETHERNET => link::find(bytes, Next::Ethernet, at).ok()?,
        ETHERTYPE_V4 | ETHERTYPE_V6 => at,
        _ => return None,
    };
    Some((tunnel, Packet::read(bytes.get(at..)?)?, begin + at))
}

fn gre(bytes: &[u8], at: usize) -> Option<(Tunnel, u16, usize)> {
    let flags = u16_at(bytes, at)?;
    if flags & 0x4007 != 0 {
        return None; // with source routes, or another version
    }
    let has = |flag: u16| if flags & flag != 0 { 4 } else { 0 };
    let header_bytes = 4 + has(0x8000) + has(0x2000) + has(0x1000);
    Some((Tunnel::Gre, u16_at(bytes, at + 2)?, at + header_bytes))
}

fn udp(bytes: &[u8], at: usize, port: u16) -> Option<(Tunnel, u16, usize)> {
    let at = at + UDP_BYTES;
    let flags = *bytes.get(at)?;
    if VXLAN_PORTS.contains(&port) && flags & 0x08 != 0 {
        return Some((Tunnel::Vxlan, ETHERTYPE_ETHERNET, at + 8));
    }
    if port == GENEVE_PORT && flags >> 6 == 0 {
        let options_bytes = usize::from(flags & 0x3f) * 4;
        return Some((Tunnel::Geneve, u16_at(bytes, at + 2)?, at + 8 + options_bytes));
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
