//! The frames of the soak's guests: each packet contains its number in its payload.
//!
//! ```text
//! +--------------------+-------+---------------+-------------------+-----------------+----------+
//! | offload header, 10 | IP 20 | TCP, UDP, GRE | flow 4 | number 4 | cell length 2   | pattern  |
//! +--------------------+-------+---------------+-------------------+-----------------+----------+
//!                                              |<-------------- a cell, once per segment ------>|
//! ```
//!
//! Each segment of a super-packet has a cell of its own, so the content of the cells does not
//! depend on which side divides the super-packet into packets.

use std::net::Ipv4Addr;

use srd_card::offload::{Gso, OFFLOAD_BYTES, Offload};
use srd_card::packet::{Packet, protocol};

/// Number of bytes of a cell before its pattern.
pub(super) const CELL_HEADER_BYTES: usize = 10;
/// Largest number of cells of a frame.
pub(super) const CELLS_MAX: u32 = 8;
const IP_BYTES: usize = 20;

/// The inner address that moves from node to node.
pub(super) const MOVING: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// Returns the fixed inner address of a node's guest.
pub(super) fn inner(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, u8::try_from(node).expect("few nodes"), 1)
}

/// Protocol of the packets of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transport {
    Tcp,
    Udp,
    /// A tunnel without ports. All GRE packets between two addresses are one flow of the card,
    /// which several flows of the soak may share.
    Gre,
}

impl Transport {
    const fn number(self) -> u8 {
        match self {
            Self::Tcp => protocol::TCP,
            Self::Udp => protocol::UDP,
            Self::Gre => protocol::GRE,
        }
    }

    /// Bytes of the header; a TCP header without options.
    const fn header_bytes(self) -> usize {
        match self {
            Self::Tcp => 20,
            Self::Udp => 8,
            Self::Gre => 4,
        }
    }
}

/// Common header fields of the packets of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FlowHeader {
    /// Number of the flow in the ledger of the soak.
    pub id: u32,
    pub from: Ipv4Addr,
    pub to: Ipv4Addr,
    pub transport: Transport,
    /// Source port and destination port; zeros for GRE.
    pub ports: (u16, u16),
}

/// Content of a cell, without its pattern, which is only checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    pub flow: u32,
    pub number: u32,
}

/// Returns a frame of `cells` packets with `cell_bytes` bytes of payload each. The packets are
/// numbered from `first`.
pub(super) fn frame(header: &FlowHeader, first: u32, cells: u32, cell_bytes: usize) -> Vec<u8> {
    let transport_bytes = header.transport.header_bytes();
    let tcp = header.transport == Transport::Tcp;
    let begins = tcp && first == 0;
    // The first packet of a connection has an MSS option, which the code under test may reduce.
    let option_bytes = if begins { 4 } else { 0 };
    let headers = IP_BYTES + transport_bytes + option_bytes;
    let bytes = headers + cells as usize * cell_bytes;
    let mut packet = vec![0; headers];
    packet[0] = 0x45;
    // TCP packets are ECN-capable, so a long queue marks them. Other packets are not ECN-capable,
    // so a long queue drops them.
    packet[1] = if tcp { 2 } else { 0 };
    packet[2..4].copy_from_slice(&u16::try_from(bytes).unwrap_or(0).to_be_bytes());
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = header.transport.number();
    packet[12..16].copy_from_slice(&header.from.octets());
    packet[16..20].copy_from_slice(&header.to.octets());
    let sum = srd_sum(&packet[..IP_BYTES]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    match header.transport {
        // The GRE header has no flags, and its protocol type is IPv4.
        Transport::Gre => packet[22] = 8,
        Transport::Tcp | Transport::Udp => {
            packet[20..22].copy_from_slice(&header.ports.0.to_be_bytes());
            packet[22..24].copy_from_slice(&header.ports.1.to_be_bytes());
        }
    }
    if tcp {
        packet[32] = if begins { 0x60 } else { 0x50 };
        packet[33] = if begins { 0x02 } else { 0x10 };
        if begins {
            packet[40..44].copy_from_slice(&[2, 4, 0x22, 0xf4]);
        }
    }
    if header.transport == Transport::Udp {
        let udp = u16::try_from(bytes - IP_BYTES).unwrap_or(0);
        packet[24..26].copy_from_slice(&udp.to_be_bytes());
    }
    for number in first..first + cells {
        cell(&mut packet, header.id, number, cell_bytes);
    }
    let gso = (cells > 1).then_some((Gso::Tcp { ecn: false }, u16::try_from(cell_bytes)));
    let offload = Offload {
        gso: gso.map(|(kind, bytes)| (kind, bytes.unwrap_or(u16::MAX))),
        checksum: tcp.then_some((20, 16)),
        checked: false,
    };
    let mut frame = offload.write(true, headers).to_vec();
    frame.extend_from_slice(&packet);
    frame
}

fn srd_sum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

fn cell(out: &mut Vec<u8>, flow: u32, number: u32, bytes: usize) {
    out.extend_from_slice(&flow.to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&u16::try_from(bytes).unwrap_or(0).to_be_bytes());
    out.extend((CELL_HEADER_BYTES..bytes).map(|at| pattern(flow, number, at)));
}

fn pattern(flow: u32, number: u32, at: usize) -> u8 {
    let at = u32::try_from(at).unwrap_or(0);
    (flow.wrapping_mul(31) ^ number.wrapping_mul(7)).wrapping_add(at).to_le_bytes()[0]
}

/// Content of a frame that was delivered to a guest.
#[derive(Debug)]
pub(super) enum Read {
    /// Packets of a flow, with the addresses and ports of the delivered frame.
    Cells(FlowHeader, Vec<Cell>),
    /// An ICMP error of the code under test, because a packet of the guest was too big.
    Answer,
}

/// Reads and checks a frame that was delivered to a guest.
///
/// # Errors
/// A text that describes how the frame differs from every frame that guests send.
pub(super) fn read(frame: &[u8]) -> Result<Read, String> {
    let bytes = frame.get(OFFLOAD_BYTES..).ok_or("shorter than an offload header")?;
    let packet = Packet::read(bytes).ok_or("no IP packet")?;
    if packet.protocol == protocol::ICMP {
        return Ok(Read::Answer);
    }
    let (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) =
        (packet.source, packet.destination)
    else {
        return Err("not IPv4".into());
    };
    let all = [Transport::Tcp, Transport::Udp, Transport::Gre];
    let known = all.into_iter().find(|transport| transport.number() == packet.protocol);
    let transport = known.ok_or("a protocol that no guest uses")?;
    let header_bytes = match transport {
        Transport::Tcp => packet.tcp_header_bytes(bytes).ok_or("no TCP header")?,
        Transport::Udp | Transport::Gre => transport.header_bytes(),
    };
    let mut rest = bytes.get(packet.transport_at + header_bytes..).ok_or("no payload")?;
    let mut cells = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_be_bytes(rest.get(at..at + 4)?.try_into().ok()?))
        };
        let (flow, number) = word(0).zip(word(4)).ok_or("a torn cell")?;
        let length = rest.get(8..10).map_or(0, |l| usize::from(l[0]) << 8 | usize::from(l[1]));
        let body = rest.get(CELL_HEADER_BYTES..length).ok_or("a cell shorter than it says")?;
        let wrong =
            (CELL_HEADER_BYTES..).zip(body).find(|(at, b)| pattern(flow, number, *at) != **b);
        if let Some((at, _)) = wrong {
            return Err(format!("byte {at} of packet {number} of flow {flow} has changed"));
        }
        cells.push(Cell { flow, number });
        rest = &rest[length..];
    }
    let id = cells.first().ok_or("no cell")?.flow;
    let ports = match transport {
        Transport::Tcp | Transport::Udp => packet.ports.ok_or("no ports")?,
        Transport::Gre => (0, 0),
    };
    Ok(Read::Cells(FlowHeader { id, from, to, transport, ports }, cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: FlowHeader = FlowHeader {
        id: 7,
        from: Ipv4Addr::new(10, 0, 0, 1),
        to: Ipv4Addr::new(10, 0, 1, 1),
        transport: Transport::Tcp,
        ports: (5, 80),
    };

    #[test]
    fn what_is_sent_is_read_and_a_flipped_bit_is_seen() {
        for (transport, ports, first, cells) in [
            (Transport::Tcp, (5, 80), 0, 1),
            (Transport::Tcp, (5, 80), 9, 5),
            (Transport::Udp, (5, 80), 3, 1),
            (Transport::Gre, (0, 0), 3, 1),
        ] {
            let flow = FlowHeader { transport, ports, ..FLOW };
            let sent = frame(&flow, first, cells, 300);
            let Ok(Read::Cells(header, seen)) = read(&sent) else { panic!("unreadable") };
            assert_eq!(header, flow);
            assert!(seen.iter().map(|cell| cell.number).eq(first..first + cells));
            let mut torn = sent;
            let last = torn.len() - 1;
            torn[last] ^= 1;
            assert!(read(&torn).unwrap_err().contains("has changed"));
        }
    }
}
