//! Fragmentation of an IPv4 packet that permits it (RFC 791), as by a router before a link with a
//! smaller MTU.
//!
//! A fragment is divided into smaller fragments in the same way. Options that belong only to the
//! first fragment become no-operations in the other fragments, so that all headers have the same
//! length.
//!
//! The packets of a super-packet are fragmented one by one.
//!
//! Bound: one fragment for each eight bytes of the packet.

use alloc::vec::Vec;

use super::checksum;
use super::segment::Segments;
use crate::meta::layout::Layout;
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::u16_at;

const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
const OPTION_END: u8 = 0;
const OPTION_NOTHING: u8 = 1;
/// Flag of an option that is copied into every fragment.
const OPTION_COPIED: u8 = 0x80;

/// Returns the fragments of a packet, each of at most `mtu` bytes. Returns `None` if the packet may
/// not be fragmented, has no payload, or is so malformed that its fragments would end beyond 65,535
/// bytes; and if `mtu` leaves less than eight bytes for payload.
pub(crate) fn parts(bytes: &[u8], layout: &Layout, mtu: usize) -> Option<Vec<Vec<u8>>> {
    if !layout.is_v4() || layout.dont_fragment() {
        return None;
    }
    let header_bytes = usize::from(bytes[0] & 15) * 4;
    let (header, payload) = bytes.split_at(header_bytes);
    let step = mtu.checked_sub(header_bytes)? / 8 * 8;
    if step == 0 || payload.is_empty() {
        return None;
    }
    let flags = u16_at(header, 6);
    let offset = usize::from(flags & OFFSET);
    if offset * 8 + payload.len() > usize::from(u16::MAX) {
        return None;
    }
    let mut later = header.to_vec();
    blank_options(&mut later[20..]);
    let count = payload.len().div_ceil(step);
    let part = |(index, part): (usize, &[u8])| {
        let mut out = Vec::with_capacity(header_bytes + part.len());
        out.extend_from_slice(if index == 0 { header } else { &later });
        let more = if index + 1 < count { MORE } else { flags & MORE };
        let at = u16::try_from(offset + index * step / 8).unwrap_or(OFFSET);
        let total = u16::try_from(header_bytes + part.len()).unwrap_or(u16::MAX);
        out[2..4].copy_from_slice(&total.to_be_bytes());
        out[6..8].copy_from_slice(&(more | at).to_be_bytes());
        out[10..12].copy_from_slice(&[0, 0]);
        let sum = checksum::of(&out);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
        out.extend_from_slice(part);
        out
    };
    Some(payload.chunks(step).enumerate().map(part).collect())
}

/// Returns the fragments of all packets that a frame represents, each of at most `mtu` bytes.
/// Returns `None` if one of the packets may not be fragmented, as in [`parts`].
pub(crate) fn parts_of_frame(frame: &[u8], layout: &Layout, mtu: usize) -> Option<Vec<Vec<u8>>> {
    if !layout.is_v4() || layout.dont_fragment() {
        return None;
    }
    let mut segments = Segments::new(frame, layout);
    let of_segment = segments.layout();
    let mut out = Vec::new();
    for index in 0..segments.count() {
        let mut packet = segments.write(index)[OFFLOAD_BYTES..].to_vec();
        // The checksum covers all fragments, so hardware cannot complete it later.
        checksum::complete(&mut packet, &of_segment);
        out.extend(parts(&packet, &of_segment, mtu)?);
    }
    Some(out)
}

/// Overwrites with no-operations the options that belong into the first fragment only. Stops at the
/// first malformed option, and leaves it and all later bytes unchanged.
fn blank_options(options: &mut [u8]) {
    let mut at = 0;
    while at < options.len() {
        match options[at] {
            OPTION_END => return,
            OPTION_NOTHING => at += 1,
            kind => {
                let length = options.get(at + 1).map_or(0, |length| usize::from(*length));
                let Some(option) = options.get_mut(at..at + length).filter(|o| o.len() >= 2) else {
                    return;
                };
                if kind & OPTION_COPIED == 0 {
                    option.fill(OPTION_NOTHING);
                }
                at += length;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::packet::protocol;
    use crate::testing::{layout, v4, v6};
    use proptest::prelude::*;
    use std::vec;

    fn may_be_cut(payload: &[u8]) -> Vec<u8> {
        let mut bytes = v4(protocol::UDP, (1, 2), payload);
        bytes[6] = 0;
        bytes
    }

    fn cut(bytes: &[u8], mtu: usize) -> Option<Vec<Vec<u8>>> {
        parts(bytes, &layout(bytes), mtu)
    }

    proptest! {
        #[test]
        fn parts_of_parts_make_up_the_packet(bytes in 1usize..4000, mtu in 28usize..1500) {
            let payload: Vec<u8> = (0..bytes).map(|i| u8::try_from(i % 251).unwrap()).collect();
            let packet = may_be_cut(&payload);
            let mut seen = vec![0; packet.len() - 20];
            let mut ends = 0;
            let large = cut(&packet, mtu + 700).unwrap();
            for part in large.iter().flat_map(|part| cut(part, mtu).unwrap()) {
                prop_assert!(part.len() <= mtu);
                prop_assert_eq!(checksum::of(&part[..20]), 0);
                prop_assert_eq!(usize::from(u16_at(&part, 2)), part.len());
                let flags = u16_at(&part, 6);
                let at = usize::from(flags & OFFSET) * 8;
                seen[at..at + part.len() - 20].copy_from_slice(&part[20..]);
                if flags & MORE == 0 {
                    ends += 1;
                    prop_assert_eq!(at + part.len() - 20, packet.len() - 20);
                }
            }
            prop_assert_eq!(ends, 1);
            prop_assert_eq!(&seen[..], &packet[20..]);
        }
    }

    #[test]
    fn what_may_not_be_cut_or_is_too_small_to_be_is_not() {
        assert_eq!(cut(&v4(protocol::UDP, (1, 2), &[0; 3000]), 1400), None, "it says so");
        assert_eq!(cut(&v6(protocol::UDP, (1, 2), &[0; 3000]), 1400), None, "IPv6 never is");
        assert_eq!(cut(&may_be_cut(&[0; 3000]), 27), None);
        assert_eq!(cut(&may_be_cut(&[0; 3000]), 0), None);
    }

    #[test]
    fn options_of_the_first_part_are_not_in_the_others() {
        let mut packet = may_be_cut(&[9; 100]);
        packet[0] = 0x47;
        // Record route, which only the first fragment has, and the router alert, which all have.
        let options = [7, 3, 4, 1, 0x94, 4, 0, 0];
        packet.splice(20..20, options);
        let parts = cut(&packet, 76).unwrap();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[0][20..28], options);
        for part in &parts[1..] {
            assert_eq!(part[20..28], [1, 1, 1, 1, 0x94, 4, 0, 0]);
            assert_eq!(checksum::of(&part[..28]), 0);
        }
    }
}
