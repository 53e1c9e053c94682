//! Congestion mark in the IP header (RFC 3168).

use super::checksum;
use crate::meta::packet::u16_at;

/// Returns the two ECN bits of an IP packet that [`crate::packet::Packet::read`] has accepted.
pub(crate) fn ecn(bytes: &[u8]) -> u8 {
    if bytes[0] >> 4 == 4 { bytes[1] & 3 } else { bytes[1] >> 4 & 3 }
}

/// Sets the mark CE (congestion experienced) in an ECN-capable packet. Returns whether the packet
/// has the mark afterwards.
pub(crate) fn mark(bytes: &mut [u8]) -> bool {
    match ecn(bytes) {
        0 => false,
        3 => true,
        _ if bytes[0] >> 4 == 4 => {
            let before = u16_at(bytes, 0);
            bytes[1] |= 3;
            let after = u16_at(bytes, 0);
            let sum = checksum::adjust(u16_at(bytes, 10), before, after);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            true
        }
        _ => {
            bytes[1] |= 0x30;
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::packet::protocol;
    use crate::testing::{v4, v6};

    #[test]
    fn marking_keeps_the_header_checksum_right_and_respects_the_incapable() {
        let mut p = v4(protocol::TCP, (1, 2), b"x");
        assert!(!mark(&mut p));
        p[1] = 2;
        p[10..12].copy_from_slice(&[0, 0]);
        let sum = checksum::of(&p[..20]);
        p[10..12].copy_from_slice(&sum.to_be_bytes());
        assert!(mark(&mut p));
        assert_eq!(ecn(&p), 3);
        assert_eq!(checksum::of(&p[..20]), 0);
        let mut p = v6(protocol::TCP, (1, 2), b"x");
        p[1] = 0x10;
        assert!(mark(&mut p) && ecn(&p) == 3);
    }
}
