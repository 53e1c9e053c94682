//! "Packet too big": the answer to a packet that cannot be carried whole, as ICMP (RFC 1191) or
//! ICMPv6 (RFC 4443). Its source is the destination of the packet, so the card needs no address.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use srd_proto::time::{Duration, Instant};

use super::checksum;
use crate::meta::Meta;
use crate::meta::key::FlowKey;
use crate::meta::layout::Layout;
use crate::meta::packet::protocol;
use crate::store::stored;

/// Largest number of bytes of the packet that an ICMPv6 answer quotes. RFC 4443 allows as many as
/// fit the minimum MTU.
const QUOTED_BYTES_MAX: usize = 1200;

/// Largest number of answers per second. RFC 4443 requires a limit; this is the value of Linux.
const ANSWERS_PER_SECOND: u64 = 1000;
/// Largest number of answers in a burst, as in Linux.
const ANSWERS_AT_ONCE: u64 = 50;
/// Time in nanoseconds after which one more answer is allowed.
const ANSWER_NS: u64 = 1_000_000_000 / ANSWERS_PER_SECOND;

/// Rate limit of answers: a token bucket.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    /// Time at which the bucket will be full again if no further answer is sent.
    full_at: Instant,
}

impl Limit {
    /// Whether one more answer is allowed now; if so, the answer is counted.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        let empty_at = now + Duration::from_nanos(ANSWER_NS * (ANSWERS_AT_ONCE - 1));
        let allowed = self.full_at <= empty_at;
        if allowed {
            self.full_at = self.full_at.max(now) + Duration::from_nanos(ANSWER_NS);
        }
        allowed
    }
}

stored!(Limit { full_at });

/// Returns the ICMP message that answers the packet `bytes` and reports `mtu`, the largest size
/// that fits. Returns `None` for packets that must not be answered (RFC 1122, 3.2.2; RFC 4443,
/// 2.4): fragments other than the first, ICMP errors and redirects, and packets whose source or
/// destination is not one host.
pub(crate) fn answer(bytes: &[u8], meta: &Meta, mtu: u16) -> Option<Vec<u8>> {
    let Meta { key: FlowKey { source, destination, .. }, layout, .. } = meta;
    let icmp = matches!(layout.protocol, protocol::ICMP | protocol::ICMP_V6);
    // A packet with more headers than are read may be an ICMP error as well.
    let unknown = !layout.is_v4() && matches!(layout.protocol, 0 | 43 | 44 | 60);
    if !layout.is_first() || unknown || icmp && is_error(bytes, layout) {
        return None;
    }
    if !(is_unicast(*source) && is_unicast(*destination)) {
        return None;
    }
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let quoted = &bytes[..bytes.len().min(layout.transport_at() + 8)];
            let mut icmp = vec![3, 4, 0, 0, 0, 0, 0, 0];
            icmp[6..8].copy_from_slice(&mtu.to_be_bytes());
            icmp.extend_from_slice(quoted);
            let sum = checksum::of(&icmp);
            icmp[2..4].copy_from_slice(&sum.to_be_bytes());
            let total = u16::try_from(20 + icmp.len()).ok()?;
            let mut out = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol::ICMP, 0, 0];
            out[2..4].copy_from_slice(&total.to_be_bytes());
            out.extend_from_slice(&destination.octets());
            out.extend_from_slice(&source.octets());
            let sum = checksum::of(&out);
            out[10..12].copy_from_slice(&sum.to_be_bytes());
            out.extend_from_slice(&icmp);
            Some(out)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let quoted = &bytes[..bytes.len().min(QUOTED_BYTES_MAX)];
            let mut icmp = vec![2, 0, 0, 0];
            icmp.extend_from_slice(&u32::from(mtu).to_be_bytes());
            icmp.extend_from_slice(quoted);
            let mut out = vec![0x60, 0, 0, 0, 0, 0, protocol::ICMP_V6, 64];
            out[4..6].copy_from_slice(&u16::try_from(icmp.len()).ok()?.to_be_bytes());
            out.extend_from_slice(&destination.octets());
            out.extend_from_slice(&source.octets());
            let sum = checksum::transport(&out[8..], protocol::ICMP_V6, &icmp);
            icmp[2..4].copy_from_slice(&sum.to_be_bytes());
            out.extend_from_slice(&icmp);
            Some(out)
        }
        _ => None,
    }
}

/// Whether an ICMP packet reports an error (or cannot be read).
fn is_error(bytes: &[u8], layout: &Layout) -> bool {
    let Some(kind) = bytes.get(layout.transport_at()) else { return true };
    const REDIRECT_V6: u8 = 137;
    if layout.is_v4() {
        !matches!(kind, 0 | 8 | 13..=18)
    } else {
        *kind < 128 || *kind == REDIRECT_V6
    }
}

/// Whether an address belongs to one host on a network: it is not multicast, broadcast,
/// unspecified, loopback, or reserved.
fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            let reserved = a.octets()[0] == 0 || a.octets()[0] >= 224;
            !(reserved || a.is_loopback())
        }
        IpAddr::V6(a) => !(a.is_multicast() || a.is_unspecified() || a.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::packet::{Packet, u16_at};
    use crate::testing::{meta, v4, v6};

    #[test]
    fn the_answer_is_a_whole_packet_with_right_checksums_to_the_sender() {
        let bytes = v4(protocol::UDP, (1, 2), &[0; 3000]);
        let packet = Packet::read(&bytes).unwrap();
        let out = answer(&bytes, &meta(&bytes), 1400).unwrap();
        let read = Packet::read(&out).unwrap();
        assert_eq!((read.source, read.destination), (packet.destination, packet.source));
        assert_eq!(checksum::of(&out[..20]), 0);
        assert_eq!(checksum::of(&out[20..]), 0);
        assert_eq!((out[20], out[21], u16_at(&out, 26)), (3, 4, 1400));

        let bytes = v6(protocol::UDP, (1, 2), &[0; 3000]);
        let packet = Packet::read(&bytes).unwrap();
        let out = answer(&bytes, &meta(&bytes), 1400).unwrap();
        let read = Packet::read(&out).unwrap();
        assert_eq!(read.destination, packet.source);
        let icmp = &out[40..];
        let sum = checksum::transport(&out[8..40], protocol::ICMP_V6, icmp);
        assert_eq!((sum, icmp[0], u16_at(icmp, 6)), (0, 2, 1400));
    }

    #[test]
    fn regression_what_must_not_be_answered_is_not() {
        let fits = v4(protocol::UDP, (1, 2), &[0; 3000]);
        let answered = |bytes: &[u8]| answer(bytes, &meta(bytes), 1400).is_some();
        assert!(answered(&fits));
        let changed = |at: usize, to: &[u8]| {
            let mut bytes = fits.clone();
            bytes[at..at + to.len()].copy_from_slice(to);
            answered(&bytes)
        };
        assert!(!changed(6, &[0x40, 9]), "a fragment that is not the first");
        for source in [[224, 0, 0, 1], [255; 4], [0; 4], [127, 0, 0, 1], [240, 0, 0, 1]] {
            assert!(!changed(12, &source), "from {source:?}");
        }
        assert!(!changed(16, &[224, 0, 0, 1]), "to many");
        let mut bytes = v6(protocol::UDP, (1, 2), &[0; 3000]);
        assert!(answered(&bytes));
        bytes[8] = 0xff;
        assert!(!answered(&bytes), "from a multicast address");
        let mut redirect = v6(protocol::ICMP_V6, (0, 0), &[0; 3000]);
        redirect[40] = 137;
        assert!(!answered(&redirect), "about a redirect");
    }

    #[test]
    fn answers_are_limited_and_come_back_with_time() {
        let mut limit = Limit::default();
        let start = Instant::ZERO + Duration::from_secs(1);
        let given = |limit: &mut Limit, now| (0..1000).filter(|_| limit.allows(now)).count();
        assert_eq!(given(&mut limit, start), 50);
        assert_eq!(given(&mut limit, start + Duration::from_millis(7)), 7);
        assert_eq!(given(&mut limit, start + Duration::from_secs(9)), 50);
    }

    #[test]
    fn an_error_is_not_answered_with_an_error() {
        let mut bytes = v4(protocol::ICMP, (0, 0), &[0; 100]);
        bytes[20] = 3;
        assert_eq!(answer(&bytes, &meta(&bytes), 1400), None);
        bytes[20] = 8;
        assert!(answer(&bytes, &meta(&bytes), 1400).is_some());
    }
}
