//! Packets for tests.

use core::net::SocketAddr;
use std::vec;
use std::vec::Vec;

use srd_proto::time::Instant;
use srd_proto::{Config, Endpoint, Epoch, PeerConfig, PeerId};

use crate::meta::Meta;
use crate::meta::key::Direction;
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::{IPV6_BYTES, Packet, protocol};
use crate::rewrite::checksum;

/// Builds an IPv4 packet from 10.0.0.1 to 10.0.0.2 with a correct IP header and no transport
/// checksum.
pub(crate) fn v4(protocol: u8, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let transport = transport(protocol, ports, payload);
    let mut p = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let total = u16::try_from(20 + transport.len()).unwrap_or(u16::MAX);
    p[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = checksum::of(&p);
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    p.extend_from_slice(&transport);
    p
}

pub(crate) fn v6(protocol: u8, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let transport = transport(protocol, ports, payload);
    let mut p = vec![0; IPV6_BYTES];
    p[0] = 0x60;
    let length = u16::try_from(transport.len()).unwrap_or(u16::MAX);
    p[4..6].copy_from_slice(&length.to_be_bytes());
    (p[6], p[7], p[23], p[39]) = (protocol, 64, 1, 2);
    (p[8], p[24]) = (0xfd, 0xfd);
    p.extend_from_slice(&transport);
    p
}

fn transport(protocol: u8, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut t = Vec::new();
    t.extend_from_slice(&ports.0.to_be_bytes());
    t.extend_from_slice(&ports.1.to_be_bytes());
    match protocol {
        protocol::TCP => {
            t.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
        }
        _ => {
            let length = u16::try_from(8 + payload.len()).unwrap_or(0);
            t.extend_from_slice(&length.to_be_bytes());
            t.extend_from_slice(&[0, 0]);
        }
    }
    t.extend_from_slice(payload);
    t
}

/// Puts an offload header that leaves no work to hardware before a packet.
pub(crate) fn framed(bytes: &[u8]) -> Vec<u8> {
    [&[0; OFFLOAD_BYTES], bytes].concat()
}

/// Layout of a packet that leaves no work to hardware.
pub(crate) fn layout(bytes: &[u8]) -> Layout {
    Layout::of(&Packet::read(bytes).unwrap(), bytes).unwrap()
}

/// Reads a packet of the guest that leaves no work to hardware.
pub(crate) fn meta(bytes: &[u8]) -> Meta {
    Meta::parse(&framed(bytes), Direction::Egress).unwrap()
}

/// Returns the identifiers of `peers` new peers of a transport endpoint.
pub(crate) fn peer_ids(peers: u8) -> Vec<PeerId> {
    let config = Config::sockets();
    let mut endpoint = Endpoint::new(config, Epoch(1), [1; 32], Instant::ZERO).unwrap();
    let at = |peer| PeerConfig::at(SocketAddr::from(([192, 0, 2, peer], 7471)));
    (0..peers).map(|peer| endpoint.add_peer(Instant::ZERO, at(peer)).unwrap()).collect()
}
