//! Adaptation of packets to a guest's device. A driver without segmentation offload gets the
//! packets of a super-packet one by one; a driver without checksum offload gets complete checksums.

use alloc::vec::Vec;

use crate::meta::Meta;
use crate::meta::key::Direction;
use crate::meta::layout::Layout;
use crate::meta::offload::{GSO_ECN, Gso, OFFLOAD_BYTES};
use crate::rewrite::checksum;
use crate::rewrite::segment::Segments;

/// Packets that a guest's device accepts, beside ordinary packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accepts {
    /// Whether the device accepts packets whose checksums are not complete.
    pub checksum: bool,
    /// Whether the device accepts super-packets of TCP over IPv4.
    pub tso_v4: bool,
    /// Whether the device accepts super-packets of TCP over IPv6.
    pub tso_v6: bool,
    /// Whether the device accepts super-packets of TCP of which only the first segment carries CWR.
    pub ecn: bool,
    /// Whether the device accepts super-packets of UDP.
    pub uso: bool,
}

impl Accepts {
    /// A device that accepts all kinds of packets.
    pub const ALL: Self = Self { checksum: true, tso_v4: true, tso_v6: true, ecn: true, uso: true };

    fn whole(&self, gso: Gso, is_v4: bool) -> bool {
        let kind = match (gso, is_v4) {
            (Gso::Udp, _) => self.uso,
            (Gso::Tcp { .. }, true) => self.tso_v4,
            (Gso::Tcp { .. }, false) => self.tso_v6,
        };
        self.checksum && kind && (self.ecn || gso != Gso::Tcp { ecn: true })
    }
}

/// Passes a packet to `give`. If the device does not accept a super-packet, its packets are passed
/// one by one. Returns whether the packet was valid.
pub(super) fn parts(mut packet: Vec<u8>, accepts: Accepts, mut give: impl FnMut(Vec<u8>)) -> bool {
    let Some([flags, gso, ..]) = packet.first_chunk::<OFFLOAD_BYTES>().copied() else {
        return false;
    };
    if accepts == Accepts::ALL || flags == 0 && gso & !GSO_ECN == 0 {
        give(packet);
        return true;
    }
    // E6: Offloads the guest lacks
    let Some(meta) = Meta::parse(&packet, Direction::Ingress) else { return false };
    let layout = meta.layout;
    let to_cut = layout.offload.gso.is_some_and(|(gso, _)| !accepts.whole(gso, layout.is_v4()));
    if to_cut {
        let mut segments = Segments::new(&packet, &layout);
        for index in 0..segments.count() {
            let mut segment = segments.write(index).to_vec();
            segment[1] = 0;
            finish(&mut segment, &segments.layout(), accepts);
            give(segment);
        }
        return true;
    }
    finish(&mut packet, &layout, accepts);
    give(packet);
    true
}

/// Completes the checksum of a packet if the device does not accept an incomplete checksum.
fn finish(packet: &mut [u8], layout: &Layout, accepts: Accepts) {
    if !accepts.checksum {
        checksum::complete(&mut packet[OFFLOAD_BYTES..], layout);
        packet[..OFFLOAD_BYTES].fill(0);
    }
}
