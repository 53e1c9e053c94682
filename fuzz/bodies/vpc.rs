//! Fuzz target of `vpc.toml`. A text is refused with the position, cause and remedy of a fault. If
//! it is accepted, the rules are applied to packets between its interfaces.

use std::net::IpAddr;
use std::path::Path;

use srd_vpc::judge::{Origin, Verdict, connection};
use srd_vpc::nau;
use srd_vpc::packet::{Inner, Packet};
use srd_vpc_file::parse;

/// Maximum number of pairs of interfaces between which packets are sent. More would only be slow.
const PAIRS_MAX: usize = 256;

/// Reads a file, and applies its rules to packets.
pub(crate) fn vpc(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let file = match parse(text, Path::new("fuzz.toml")) {
        Ok(file) => file,
        Err(error) => {
            assert!(error.to_string().contains("fuzz.toml") && !error.what.is_empty());
            return;
        }
    };
    let world = &file.world;
    let ends = world.enis.iter().flat_map(|(id, eni)| {
        let v4 = eni.ipv4.iter().map(|address| IpAddr::V4(*address));
        v4.chain(eni.ipv6.iter().map(|address| IpAddr::V6(*address))).map(|at| (*id, at))
    });
    let ends: Vec<_> = ends.collect();
    let outside = [IpAddr::from([203, 0, 113, 1]), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])];
    let targets: Vec<IpAddr> = ends.iter().map(|(_, at)| *at).chain(outside).collect();
    let pairs = ends.iter().flat_map(|from| targets.iter().map(move |to| (from, *to)));
    for (&(id, source), destination) in pairs.take(PAIRS_MAX) {
        for inner in
            [Inner::Tcp(50_000, 443), Inner::Udp(53, 53), Inner::Icmp(8, 0), Inner::Other(47)]
        {
            let packet = Packet { source, destination, inner };
            let found = connection(world, Origin::Eni(id), &packet);
            // The file was checked, so no referenced object is missing.
            assert!(!matches!(
                found.first.verdict,
                Verdict::Dropped(srd_vpc::judge::Reason::Missing(_))
            ));
            assert!(found.works() || found.answer.is_some() || !found.first.passes());
        }
    }
    for vpc in world.vpcs.keys() {
        assert!(nau::peered(world, *vpc) >= nau::of(world, *vpc));
    }
}
