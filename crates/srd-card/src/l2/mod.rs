//! The Ethernet link of a guest that sees one: a virtual machine, or a DPDK program. The cloud has
//! no link layer; this is what such a guest is shown in its place.
//!
//! ```text
//!  frame of the guest --> from_guest --> a packet for the card
//!                                        an answer to the guest: ARP, neighbours, routers, DHCP
//!                                        a drop with its cause
//!
//!  packet of the card --> to_guest   --> frames that the guest's device can take
//! ```
//!
//! All of a subnet is at the gateway's address, so each packet comes to the card. The rules are
//! those of `docs/spec/card.md`, section 8.
//!
//! | file | what |
//! |---|---|
//! | `arp` | addresses of IPv4 |
//! | `neighbour` | addresses and routers of IPv6 |
//! | `dhcp` | the guest's own address |
//! | [`fit`] | work that a guest's device leaves to us |

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
/// The address of the gateway, locally administered. Those of interfaces begin with 02.
pub const GATEWAY: Mac = [0x0a, b'S', b'R', b'D', 0, 1];
/// Bytes of the largest packet (EC2 User Guide, *Network MTU*).
pub const MTU: u16 = 9001;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;

/// A hardware address.
pub type Mac = [u8; 6];
/// An Ethernet header: destination, source, type.
pub type Ethernet = [u8; ETHERNET_BYTES];

/// The link of one interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The interface's hardware address.
    pub mac: Mac,
    /// Its primary address, and the length of its subnet's prefix.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// The resolver of its cloud.
    pub resolver: Ipv4Addr,
    /// The network of its subnet in IPv6, and the length of the prefix.
    pub ipv6: Option<(Ipv6Addr, u8)>,
}

/// A frame for a guest: its Ethernet header; what it leaves to hardware, counted from that header
/// on, and the rest.
pub type Framed = (Ethernet, Vec<u8>);

/// What a frame of a guest is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sent {
    /// A packet behind its offload header, for the card.
    Packet(Vec<u8>),
    /// A question, which this answers.
    Answer(Framed),
    /// A question that gets no answer, as nobody else would give one.
    Nothing,
    /// It is dropped.
    Drop(Cause),
}

/// Why a frame of a guest was dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// Its source is not the interface's hardware address.
    Source,
    /// It is for many, or for a hardware address that is not the gateway's: a cloud carries
    /// neither.
    Destination,
    /// It is none of IPv4, IPv6 and ARP.
    Type,
    /// It is shorter than it says, or what it leaves to hardware lies before its packet.
    Malformed,
}

impl Cause {
    /// The name under which such frames are counted, for people.
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
    /// Says what a frame of the guest is. `packet` is what the frame leaves to hardware, counted
    /// from the Ethernet header on, and what stands behind that header.
    pub fn from_guest(&self, ethernet: &Ethernet, mut packet: Vec<u8>) -> Sent {
        let (destination, source) = (&ethernet[..6], &ethernet[6..12]);
        if source != self.mac {
            return Sent::Drop(Cause::Source); // E1
        }
        let kind = u16_at(ethernet, 12);
        let Some(bytes) = packet.get(OFFLOAD_BYTES..) else {
            return Sent::Drop(Cause::Malformed);
        };
        let Some(length) = length(kind, bytes) else { return Sent::Drop(Cause::of(kind)) };
        let answer = match kind {
            ARP => return self.arp(bytes).map_or(Sent::Nothing, Sent::Answer),
            IPV4 => self.dhcp(&bytes[..length]),
            _ => self.neighbour(&bytes[..length]),
        };
        if let Some(answer) = answer {
            return answer;
        }
        if destination != GATEWAY {
            return Sent::Drop(Cause::Destination); // E2
        }
        // What an Ethernet frame is padded with is no part of its packet. That checksums were
        // checked is for a device to say, not for a guest.
        packet.truncate(OFFLOAD_BYTES + length);
        packet[0] &= !offload::CHECKSUM_VALID;
        if !shift(&mut packet, |place| place.checked_sub(ETHERNET_BYTES)) {
            return Sent::Drop(Cause::Malformed);
        }
        Sent::Packet(packet)
    }

    /// Makes frames of a packet of the card's for a device that accepts so much, and gives them to
    /// `give`. Returns whether it was one.
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

    /// The header of a frame from the gateway.
    fn ethernet(&self, kind: u16) -> Ethernet {
        let mut header = [0; ETHERNET_BYTES];
        header[..6].copy_from_slice(&self.mac);
        header[6..12].copy_from_slice(&GATEWAY);
        header[12..].copy_from_slice(&kind.to_be_bytes());
        header
    }

    /// An answer, for which `write` fills in so many bytes.
    fn answer(&self, kind: u16, bytes: usize, write: impl FnOnce(&mut [u8])) -> Framed {
        let mut packet = alloc::vec![0; OFFLOAD_BYTES + bytes];
        write(&mut packet[OFFLOAD_BYTES..]);
        (self.ethernet(kind), packet)
    }
}

impl Cause {
    /// Of a frame of this type whose packet is none.
    fn of(kind: u16) -> Self {
        if matches!(kind, IPV4 | IPV6 | ARP) { Self::Malformed } else { Self::Type }
    }
}

/// Bytes of the packet in a frame of this type; `None` if there is none.
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

/// Moves the places of an offload header by the bytes of an Ethernet header. Returns whether they
/// are still places.
fn shift(packet: &mut [u8], by: impl Fn(usize) -> Option<usize>) -> bool {
    if let [flags, 0, ..] = packet
        && *flags & offload::NEEDS_CHECKSUM == 0
    {
        // Nothing is left to hardware: there are no places.
        return true;
    }
    let mut moved = |at: usize| {
        let place = packet.get_mut(at..at + 2)?;
        let from = usize::from(u16::from_le_bytes([place[0], place[1]]));
        let to = u16::try_from(by(from)?).ok()?;
        place.copy_from_slice(&to.to_le_bytes());
        Some(())
    };
    // Bytes of all headers are a hint, and may be none.
    let _ = moved(2);
    let moved = moved(6).is_some();
    moved || packet.first().is_some_and(|flags| flags & offload::NEEDS_CHECKSUM == 0)
}
