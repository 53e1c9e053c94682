//! Frames of guests in the soak: IPv4 packets whose payload is the number of the packet.

use std::net::{IpAddr, Ipv4Addr};

use srd_card::checksum;
use srd_card::offload::OFFLOAD_BYTES;
use srd_vpc::packet::{Inner, Packet};

const IP_BYTES: usize = 20;
const NUMBER_BYTES: usize = 4;

/// Returns a frame that contains a packet and its number.
pub(super) fn write(packet: &Packet, number: u32) -> Vec<u8> {
    let mut transport = match packet.inner {
        Inner::Tcp(from, to) => {
            let mut header = [from.to_be_bytes(), to.to_be_bytes()].concat();
            // The flags are PSH and ACK, even if the card has not seen a SYN of the connection.
            header.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
            header
        }
        Inner::Udp(from, to) => [from, to, 12, 0].map(u16::to_be_bytes).concat(),
        Inner::Icmp(kind, code) => vec![kind, code, 0, 0, 0, 7, 0, 1],
        Inner::Other(_) => Vec::new(),
    };
    transport.extend(number.to_be_bytes());
    let mut frame = vec![0; OFFLOAD_BYTES + IP_BYTES];
    let ip = &mut frame[OFFLOAD_BYTES..];
    let total = u16::try_from(IP_BYTES + transport.len()).expect("a small packet");
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[8] = 64;
    ip[9] = packet.protocol();
    for (at, address) in [(12, packet.source), (16, packet.destination)] {
        let IpAddr::V4(address) = address else { continue };
        ip[at..at + 4].copy_from_slice(&address.octets());
    }
    let sum = checksum::of(&ip[..IP_BYTES]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(transport);
    frame
}

/// Returns the number of a packet and the packet's present addresses and ports; `None` if the frame
/// is too short.
pub(super) fn read(frame: &[u8]) -> Option<(u32, Packet)> {
    let ip = frame.get(OFFLOAD_BYTES..)?;
    let at = |at: usize| Some(IpAddr::V4(Ipv4Addr::from(*ip.get(at..)?.first_chunk::<4>()?)));
    let (source, destination) = (at(12)?, at(16)?);
    let transport = ip.get(IP_BYTES..)?;
    let port = |at: usize| Some(u16::from_be_bytes(*transport.get(at..)?.first_chunk::<2>()?));
    let inner = match *ip.get(9)? {
        6 => Inner::Tcp(port(0)?, port(2)?),
        17 => Inner::Udp(port(0)?, port(2)?),
        1 => Inner::Icmp(*transport.first()?, *transport.get(1)?),
        other => Inner::Other(other),
    };
    let number = transport.get(transport.len().checked_sub(NUMBER_BYTES)?..)?;
    let number = u32::from_be_bytes(*number.first_chunk()?);
    Some((number, Packet { source, destination, inner }))
}
