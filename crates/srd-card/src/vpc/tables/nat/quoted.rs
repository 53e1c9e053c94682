//! The packet that an ICMP error quotes: its fields are read, and an address and a port in it are
//! replaced.

use core::net::{IpAddr, Ipv4Addr};

use crate::meta::packet::{Packet, protocol, u16_at};
use crate::rewrite::checksum::{self, adjust};
use crate::vpc::frames::read::Read;

/// Bytes of an ICMP header before the quoted packet.
const ICMP_BYTES: usize = 8;

/// Whether a packet reports an error: destination unreachable, source quench, time exceeded,
/// parameter problem. (A redirect is a message of a router to its own neighbours.)
pub(super) fn is_error(packet: &Packet, bytes: &[u8]) -> bool {
    let kind = bytes.get(packet.transport_at);
    packet.protocol == protocol::ICMP
        && !packet.fragment
        && kind.is_some_and(|kind| matches!(kind, 3 | 4 | 11 | 12))
}

/// Replaces the address of one end in the packet that an ICMP error quotes, if this end has the
/// address `before`. Other packets stay as they are.
pub(in crate::vpc) fn readdress(
    read: &Read,
    bytes: &mut [u8],
    end: End,
    (before, after): (Ipv4Addr, Ipv4Addr),
) {
    if !is_error(&read.packet, bytes) {
        return;
    }
    let Some(quoted) = Quoted::of(read, bytes) else { return };
    let (address, port) = match end {
        End::Source => quoted.source,
        End::Destination => quoted.destination,
    };
    if address == before {
        quoted.write(read, bytes, end, (after, port));
    }
}

/// The packet that an ICMP error quotes.
pub(super) struct Quoted {
    /// Offset of the quoted IP header.
    at: usize,
    /// Offset of the quoted transport header.
    transport_at: usize,
    /// End of the ICMP error.
    end: usize,
    pub(super) protocol: u8,
    pub(super) source: (Ipv4Addr, u16),
    pub(super) destination: (Ipv4Addr, u16),
}

/// Fields of a quoted packet that are replaced: address and port of its source, or of its
/// destination.
#[derive(Clone, Copy)]
pub(in crate::vpc) enum End {
    Source,
    Destination,
}

impl Quoted {
    /// Reads the packet that an ICMP error quotes. Returns `None` if the quote contains no ports,
    /// or if the checksum of the error is wrong.
    pub(super) fn of(read: &Read, bytes: &[u8]) -> Option<Self> {
        let icmp = read.packet.transport_at;
        let end = usize::from(u16_at(bytes, 2)).min(bytes.len());
        if checksum::of(bytes.get(icmp..end)?) != 0 {
            return None;
        }
        let at = icmp + ICMP_BYTES;
        let quoted = bytes.get(at..end)?;
        let packet = Packet::read(quoted)?;
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (packet.source, packet.destination)
        else {
            return None;
        };
        let ports = match packet.protocol {
            protocol::TCP | protocol::UDP => packet.ports_in_sight(quoted)?,
            protocol::ICMP if packet.first => {
                let header: &[u8; ICMP_BYTES] = quoted.get(packet.transport_at..)?.first_chunk()?;
                let id = u16_at(header, 4);
                matches!(header[0], 0 | 8).then_some((id, id))?
            }
            _ => return None,
        };
        Some(Self {
            at,
            transport_at: at + packet.transport_at,
            end,
            protocol: packet.protocol,
            source: (source, ports.0),
            destination: (destination, ports.1),
        })
    }

    /// Replaces the address and the port of one end in the quoted packet. The checksums in the
    /// quoted packet, and the checksum of the error, are updated.
    pub(super) fn write(
        &self,
        read: &Read,
        bytes: &mut [u8],
        end: End,
        (address, port): (Ipv4Addr, u16),
    ) {
        let address_at = self.at + if let End::Source = end { 12 } else { 16 };
        let before = [u16_at(bytes, address_at), u16_at(bytes, address_at + 2)];
        bytes[address_at..address_at + 4].copy_from_slice(&address.octets());
        let after = [u16_at(bytes, address_at), u16_at(bytes, address_at + 2)];
        let change = |bytes: &mut [u8], at: usize, words: &[(u16, u16)]| {
            let all = words.iter();
            let sum = all.fold(u16_at(bytes, at), |sum, (old, new)| adjust(sum, *old, *new));
            bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        };
        let addresses = [(before[0], after[0]), (before[1], after[1])];
        change(bytes, self.at + 10, &addresses);
        let (port_at, sum_at) = match (self.protocol, end) {
            (protocol::ICMP, _) => (4, 2),
            (number, end) => {
                let port_at = if let End::Source = end { 0 } else { 2 };
                (port_at, if number == protocol::TCP { 16 } else { 6 })
            }
        };
        let (port_at, sum_at) = (self.transport_at + port_at, self.transport_at + sum_at);
        let ports = [(u16_at(bytes, port_at), port)];
        bytes[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
        // The quote may end before the checksum, and a UDP datagram with a zero field has no
        // checksum.
        let is_there = sum_at + 2 <= self.end
            && !(self.protocol == protocol::UDP && u16_at(bytes, sum_at) == 0);
        if is_there {
            change(bytes, sum_at, &ports);
            if self.protocol != protocol::ICMP {
                change(bytes, sum_at, &addresses);
            }
            if self.protocol == protocol::UDP && u16_at(bytes, sum_at) == 0 {
                bytes[sum_at..sum_at + 2].fill(0xff);
            }
        }
        let icmp = read.packet.transport_at;
        bytes[icmp + 2..icmp + 4].fill(0);
        let sum = checksum::of(&bytes[icmp..self.end]);
        bytes[icmp + 2..icmp + 4].copy_from_slice(&sum.to_be_bytes());
    }
}
