//! Choice of a packet's path on a wire.
//!
//! Addresses are hashed, and the source port is added: packets of one flow take one path, and as
//! many consecutive source ports as there are paths use all paths. A hash of all fields, as in
//! switches, would leave a third of the paths unused with this number of ports.

use crate::random::mix;

const TCP: u8 = 6;
const UDP: u8 = 17;
const V4_BYTES_MIN: usize = 20;
const V6_BYTES: usize = 40;

/// Returns the path of a packet, below `paths`. Packets without ports, or of another protocol than
/// IP, also have a path.
pub(super) fn path(packet: &[u8], seed: u64, paths: u16) -> u16 {
    let flow = flow(packet).unwrap_or_default();
    let first = flow.hashed.iter().fold(seed, |hash, byte| mix(hash ^ u64::from(*byte)));
    let path = (first % u64::from(paths) + u64::from(flow.source_port)) % u64::from(paths);
    u16::try_from(path).expect("below the number of paths, which has 16 bits")
}

/// Fields of a packet that choose its path.
#[derive(Default)]
struct Flow<'a> {
    hashed: &'a [u8],
    source_port: u16,
}

fn flow(packet: &[u8]) -> Option<Flow<'_>> {
    let (addresses, protocol, header_bytes) = match packet.first()? >> 4 {
        4 => {
            let header_bytes = usize::from(packet[0] & 0xf) * 4;
            let header = packet.get(..V4_BYTES_MIN)?;
            // Fragments after the first have no ports. So the ports of the first fragment are not
            // used either, and all fragments take one path.
            let whole = u16::from_be_bytes([header[6], header[7]]) & 0x3fff == 0;
            (&header[12..20], if whole { header[9] } else { 0 }, header_bytes)
        }
        6 => {
            let header = packet.get(..V6_BYTES)?;
            (&header[8..40], header[6], V6_BYTES)
        }
        _ => return None,
    };
    let ports =
        packet.get(header_bytes..header_bytes + 2).filter(|_| [TCP, UDP].contains(&protocol));
    let source_port = ports.map_or(0, |port| u16::from_be_bytes([port[0], port[1]]));
    Some(Flow { hashed: addresses, source_port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn v4(source: u8, ports: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0; 28];
        packet[0] = 0x45;
        packet[9] = UDP;
        packet[12..16].copy_from_slice(&[198, 18, 0, source]);
        packet[16..20].copy_from_slice(&[198, 18, 1, 1]);
        packet[20..22].copy_from_slice(&ports[0].to_be_bytes());
        packet[22..24].copy_from_slice(&ports[1].to_be_bytes());
        packet
    }

    fn v6(source_port: u16) -> Vec<u8> {
        let mut packet = vec![0; 48];
        packet[0] = 0x60;
        packet[6] = UDP;
        packet[40..42].copy_from_slice(&source_port.to_be_bytes());
        packet
    }

    #[test]
    fn consecutive_source_ports_take_every_path_once() {
        for packets in [
            (40_000..40_064).map(|port| v4(1, [port, 7471])).collect::<Vec<_>>(),
            (65_500..=65_535).chain(0..28).map(v6).collect(),
        ] {
            let taken: BTreeSet<_> = packets.iter().map(|packet| path(packet, 7, 64)).collect();
            assert_eq!(taken.len(), 64);
        }
    }

    #[test]
    fn a_flow_keeps_its_path_and_a_seed_moves_it() {
        let packet = v4(1, [40_000, 7471]);
        assert_eq!(path(&packet, 7, 64), path(&v4(1, [40_000, 7471]), 7, 64));
        let by_seed: BTreeSet<_> = (0..100).map(|seed| path(&packet, seed, 64)).collect();
        assert!(by_seed.len() > 32, "{by_seed:?}");
        let by_host: BTreeSet<_> = (0..100).map(|h| path(&v4(h, [40_000, 7471]), 7, 64)).collect();
        assert!(by_host.len() > 32, "{by_host:?}");
    }

    #[test]
    fn fragments_of_a_packet_stay_together() {
        let (mut first, mut last) = (v4(1, [40_001, 7471]), v4(1, [9, 9]));
        first[6] = 0x20; // more follow
        last[7] = 185;
        assert_eq!(path(&first, 7, 64), path(&last, 7, 64));
    }

    #[test]
    fn whatever_is_no_packet_has_a_path() {
        let whole = v4(1, [40_000, 7471]);
        for length in 0..whole.len() {
            assert!(path(&whole[..length], 7, 3) < 3);
        }
        for first in 0..=u8::MAX {
            assert!(path(&[first; 24], 7, 3) < 3);
            assert_eq!(path(&[first; 60], 7, 1), 0);
        }
    }
}
