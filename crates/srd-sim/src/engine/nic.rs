//! Interface between an SRD endpoint and the simulated wire: addresses of hosts, seeds, and the
//! conversion between a packet slot and the bytes that the endpoint reads and writes. Every machine
//! that runs an endpoint uses this module.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Add;

use srd_proto::{Instant, PacketMeta, PacketRef, Stats, Transmit, TransmitBuf};

use crate::engine::hash::mix;
use crate::engine::node::{Body, HostId, PROTOCOL_UDP, Packet};

/// UDP source port for entropy value 0; entropy value `n` uses this port plus `n`.
pub const PORT_BASE: u16 = 49_152;

/// Returns the IPv4 address of a host, with a UDP port.
pub fn address(host: HostId, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(inner_address(host)), port)
}

/// Returns the IPv4 address of a host: 10.0.0.0 plus its number.
pub fn inner_address(host: HostId) -> Ipv4Addr {
    let [_, a, b, c] = host.0.to_be_bytes();
    Ipv4Addr::new(10, a, b, c)
}

/// Returns the host at an IPv4 address, and `None` for IPv6, which the simulator does not use.
pub fn host_at(address: IpAddr) -> Option<HostId> {
    match address {
        IpAddr::V4(ip) => Some(HostId(u32::from(ip) & 0x00ff_ffff)),
        IpAddr::V6(_) => None,
    }
}

/// Returns the seed for one run of a host's endpoint. `epoch` counts the runs: it grows with every
/// restart of the host.
pub fn seed_bytes(seed: u64, host: HostId, epoch: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (n, word) in (0_u64..).zip(bytes.chunks_exact_mut(8)) {
        let mixed = mix(mix(seed ^ mix(n)) ^ u64::from(host.0) << 20 ^ epoch);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
    bytes
}

/// Packet counters of one endpoint, or the sum over several endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Data packets sent, retransmissions included.
    pub data: u64,
    /// Data packets that were retransmitted.
    pub again: u64,
    /// Acknowledgements sent.
    pub acks: u64,
    /// Retransmission timeouts that expired.
    pub timeouts: u64,
}

impl Totals {
    /// Returns the counters of an endpoint since its creation.
    pub fn of(stats: &Stats) -> Self {
        Self {
            data: stats.data_pkts,
            again: stats.retrans_pkts,
            acks: stats.ack_pkts,
            timeouts: stats.retrans_timeout_events,
        }
    }
}

impl Add for Totals {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            data: self.data + other.data,
            again: self.again + other.again,
            acks: self.acks + other.acks,
            timeouts: self.timeouts + other.timeouts,
        }
    }
}

/// Creates a transmit buffer for one packet, because the world polls endpoints for single packets.
pub fn transmit_buf() -> TransmitBuf {
    TransmitBuf::new(1, usize::from(u16::MAX))
}

/// Fills a packet slot with the packet that an endpoint has written into `buf`. `overhead_bytes` is
/// the length of the headers below SRD.
pub fn fill(
    slot: &mut Packet,
    host: HostId,
    transmit: &Transmit,
    buf: &mut TransmitBuf,
    overhead_bytes: u16,
) {
    let payload = buf.take_payload(0);
    let (head, _) = buf.segments().next().expect("a transmit has a segment");
    slot.set_srd(head, payload);
    slot.src = host;
    slot.dst = host_at(transmit.destination.ip()).expect("hosts have IPv4 addresses");
    slot.src_port = PORT_BASE.wrapping_add(transmit.entropy.0);
    slot.dst_port = transmit.destination.port();
    slot.protocol = PROTOCOL_UDP;
    let size = transmit.total_bytes + usize::from(overhead_bytes);
    slot.wire_bytes = u32::try_from(size).expect("a packet is below 64 KiB");
    slot.ecn = transmit.ecn;
    slot.control = transmit.control;
    slot.trimmed = false;
    slot.corrupted = false;
}

/// Returns the metadata with which an endpoint processes an arrived packet.
pub fn meta(now: Instant, packet: &Packet) -> PacketMeta {
    PacketMeta {
        source: address(packet.src, packet.src_port),
        local: 0,
        ecn: packet.ecn,
        received_at: now,
    }
}

/// Returns the metadata and bytes of an arrived packet for an endpoint; `None` if the packet is not
/// an SRD packet or was trimmed. If `is_sealed`, the packet is encrypted, and header and payload
/// are one piece.
pub fn open(
    now: Instant,
    packet: &mut Packet,
    is_sealed: bool,
) -> Option<(PacketMeta, PacketRef<'_>)> {
    let meta = meta(now, packet);
    let Body::Srd(body) = &mut packet.body else { return None };
    if packet.trimmed {
        return None;
    }
    let bytes = if is_sealed {
        PacketRef::Whole(body.head_mut())
    } else {
        let (head, payload) = body.parts();
        PacketRef::Split(head, payload)
    };
    Some((meta, bytes))
}
