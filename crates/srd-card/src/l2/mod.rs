//! The Ethernet link of a guest that needs one: a virtual machine, or a DPDK program. The cloud
//! itself has no link layer, so this module emulates an Ethernet link for these guests.
//!
//! ```text
//!  frame of the guest --> from_guest --> a packet for the card
//!                                        an answer to the guest: ARP, neighbours, routers, DHCP
//!                                        a drop with its cause
//!
//!  packet of the card --> to_guest   --> frames that the guest's device can take
//! ```
//!
//! All addresses of a subnet resolve to the gateway, so each packet comes to the card. The rules
//! are those of `docs/spec/card.md`, section 8.
//!
//! | module | contents |
//! |---|---|
//! | `arp` | hardware addresses of IPv4 hosts (ARP) |
//! | `neighbour` | hardware addresses of IPv6 hosts, and the router (neighbour discovery) |
//! | `dhcp` | the guest's own IPv4 address (DHCP) |
//! | [`fit`] | segmentation and checksums for devices without these offloads |

mod arp;
mod dhcp;
pub mod fit;
mod neighbour;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::l2::fit::Accepts;
use crate::meta::offload::{self, OFFLOAD_BYTES};
use crate::meta::packet::{IPV6_BYTES, u16_at};

/// Bytes of an Ethernet header.
pub const ETHERNET_BYTES: usize = 14;
/// Hardware address of the gateway, locally administered. The hardware addresses of interfaces
/// begin with 02, so no interface has this address.
pub const GATEWAY: Mac = [0x0a, b'S', b'R', b'D', 0, 1];
/// MTU of the link, in bytes (EC2 User Guide, *Network MTU*).
pub const MTU: u16 = 9001;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;

/// A hardware address.
pub type Mac = [u8; 6];
/// An Ethernet header: destination, source, type.
pub type Ethernet = [u8; ETHERNET_BYTES];

/// Ethernet link of one interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The interface's hardware address.
    pub mac: Mac,
    /// Primary IPv4 address of the interface, and the prefix length of its subnet; `None` without
    /// IPv4.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// Address of the DNS resolver of the interface's cloud.
    pub resolver: Ipv4Addr,
    /// IPv6 network of the interface's subnet, and its prefix length; `None` without IPv6.
    pub ipv6: Option<(Ipv6Addr, u8)>,
}

/// A frame for a guest: its Ethernet header, and the offload header with the packet. Offsets in
/// the offload header count from the Ethernet header on.
pub type Framed = (Ethernet, Vec<u8>);

/// Result of [`Link::from_guest`] for a frame of a guest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameOutcome {
    /// The frame contains a packet for the card, which follows its offload header.
    Packet(Vec<u8>),
    /// The frame is a request (ARP, neighbour discovery, DHCP); this is the answer to the guest.
    Answer(Framed),
    /// The frame is a request that gets no answer, or is invalid.
    Nothing,
    /// The frame is dropped for this cause.
    Drop(Cause),
}

/// Cause for which a frame of a guest is dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// The source is not the interface's hardware address.
    Source,
    /// The destination is multicast, broadcast, or a hardware address other than the gateway's. A
    /// cloud carries no such frame.
    Destination,
    /// The type is neither IPv4 nor IPv6 nor ARP.
    Type,
    /// The frame is shorter than the length field of its packet, or the offsets in its offload
    /// header lie before the packet.
    Malformed,
}

impl Cause {
    /// Name of the cause, for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "wrong source",
            Self::Destination => "wrong destination",
            Self::Type => "wrong type",
            Self::Malformed => "malformed",
        }
    }
}

impl Link {
    /// Handles a frame of the guest. `packet` is the offload header, whose offsets count from the
    /// Ethernet header on, followed by the bytes after the Ethernet header.
    pub fn from_guest(&self, ethernet: &Ethernet, mut packet: Vec<u8>) -> FrameOutcome {
        let (destination, source) = (&ethernet[..6], &ethernet[6..12]);
        if source != self.mac {
            return FrameOutcome::Drop(Cause::Source); // E1
        }
        let kind = u16_at(ethernet, 12);
        let Some(bytes) = packet.get(OFFLOAD_BYTES..) else {
            return FrameOutcome::Drop(Cause::Malformed);
        };
        let Some(length) = length(kind, bytes) else { return FrameOutcome::Drop(Cause::of(kind)) };
        let answer = match kind {
            ARP => return self.arp(bytes).map_or(FrameOutcome::Nothing, FrameOutcome::Answer),
            IPV4 => self.dhcp(&bytes[..length]),
            _ => self.neighbour(&bytes[..length]),
        };
        if let Some(answer) = answer {
            return answer;
        }
        if destination != GATEWAY {
            return FrameOutcome::Drop(Cause::Destination); // E2
        }
        // The padding of an Ethernet frame is no part of its packet. Only a device, not a guest,
        // may declare checksums as verified.
        packet.truncate(OFFLOAD_BYTES + length);
        packet[0] &= !offload::CHECKSUM_VALID;
        if !shift(&mut packet, |place| place.checked_sub(ETHERNET_BYTES)) {
            return FrameOutcome::Drop(Cause::Malformed);
        }
        FrameOutcome::Packet(packet)
    }

    /// Converts a packet of the card into frames for a device with the abilities `accepts`, and
    /// passes the frames to `give`. Returns whether the packet was valid.
    pub fn to_guest(
        &self,
        packet: Vec<u8>,
        accepts: Accepts,
        mut give: impl FnMut(Framed),
    ) -> bool {
        fit::parts(packet, accepts, |mut part| {
            let version = part.get(OFFLOAD_BYTES).map_or(0, |byte| byte >> 4);
            let kind = if version == 6 { IPV6 } else { IPV4 };
            shift(&mut part, |place| place.checked_add(ETHERNET_BYTES));
            give((self.ethernet(kind), part));
        })
    }

    /// Returns the Ethernet header of a frame from the gateway to the guest.
    fn ethernet(&self, kind: u16) -> Ethernet {
        let mut header = [0; ETHERNET_BYTES];
        header[..6].copy_from_slice(&self.mac);
        header[6..12].copy_from_slice(&GATEWAY);
        header[12..].copy_from_slice(&kind.to_be_bytes());
        header
    }

    /// Builds a frame from the gateway to the guest with a packet of `bytes` bytes, which `write`
    /// fills in.
    fn answer(&self, kind: u16, bytes: usize, write: impl FnOnce(&mut [u8])) -> Framed {
        let mut packet = alloc::vec![0; OFFLOAD_BYTES + bytes];
        write(&mut packet[OFFLOAD_BYTES..]);
        (self.ethernet(kind), packet)
    }
}

impl Cause {
    /// Returns the cause for a frame of this type without a valid packet.
    fn of(kind: u16) -> Self {
        if matches!(kind, IPV4 | IPV6 | ARP) { Self::Malformed } else { Self::Type }
    }
}

/// Returns the length of the packet in a frame of this Ethernet type, without padding; `None` if
/// the frame contains no valid packet.
fn length(kind: u16, bytes: &[u8]) -> Option<usize> {
    let version = bytes.first()? >> 4;
    let length = match (kind, version) {
        (IPV4, 4) if bytes.len() >= 20 => u16_at(bytes, 2).into(),
        (IPV6, 6) if bytes.len() >= IPV6_BYTES => IPV6_BYTES + usize::from(u16_at(bytes, 4)),
        (ARP, _) => bytes.len(),
        _ => return None,
    };
    (length >= 20 && length <= bytes.len()).then_some(length)
}

/// Applies `by` to the offsets of an offload header: it adds or subtracts the length of an Ethernet
/// header. Returns whether the offsets are valid afterwards.
fn shift(packet: &mut [u8], by: impl Fn(usize) -> Option<usize>) -> bool {
    if let [flags, 0, ..] = packet
        && *flags & offload::NEEDS_CHECKSUM == 0
    {
        // Without work for hardware there are no offsets.
        return true;
    }
    let mut moved = |at: usize| {
        let place = packet.get_mut(at..at + 2)?;
        let from = usize::from(u16::from_le_bytes([place[0], place[1]]));
        let to = u16::try_from(by(from)?).ok()?;
        place.copy_from_slice(&to.to_le_bytes());
        Some(())
    };
    // The length of all headers is a hint, and may be missing.
    let _ = moved(2);
    let moved = moved(6).is_some();
    moved || packet.first().is_some_and(|flags| flags & offload::NEEDS_CHECKSUM == 0)
}
