//! Clamping of the maximum segment size that a new TCP connection announces, so that its packets
//! fit without path MTU discovery.

use super::checksum;
use crate::meta::layout::Layout;
use crate::meta::packet::u16_at;

const OPTION_END: u8 = 0;
const OPTION_NOTHING: u8 = 1;
const OPTION_MSS: u8 = 2;
/// Bytes of a TCP header before its options.
const TCP_BYTES: usize = 20;
/// Bytes of an IP and a TCP header without options, for IPv4 and for IPv6.
const HEADERS_V4: u16 = 40;
const HEADERS_V6: u16 = 60;

/// Lowers the MSS option of a SYN so that segments fit into `mtu`. Returns whether the option was
/// changed.
pub(crate) fn clamp(bytes: &mut [u8], layout: &Layout, mtu: u16) -> bool {
    if !layout.is_syn() {
        return false;
    }
    let headers = if layout.is_v4() { HEADERS_V4 } else { HEADERS_V6 };
    let mss_max = mtu.saturating_sub(headers);
    // If the checksum is left to hardware, its field does not cover options yet.
    let left = layout.offload.checksum.is_some();
    let (at, end) = (layout.transport_at(), layout.header_bytes());
    let mut option = at + TCP_BYTES;
    while option < end {
        match bytes[option] {
            OPTION_END => return false,
            OPTION_NOTHING => option += 1,
            kind => {
                let Some(&length) = bytes[..end].get(option + 1) else { return false };
                if length < 2 || option + usize::from(length) > end {
                    return false;
                }
                if kind == OPTION_MSS && length == 4 {
                    return lower(bytes, at, option + 2, mss_max, left);
                }
                option += usize::from(length);
            }
        }
    }
    false
}

fn lower(bytes: &mut [u8], tcp: usize, at: usize, mss_max: u16, left: bool) -> bool {
    let mss = u16_at(bytes, at);
    if mss <= mss_max {
        return false;
    }
    bytes[at..at + 2].copy_from_slice(&mss_max.to_be_bytes());
    if !left {
        // An option may begin at an odd offset; then the swapped word changes in the checksum.
        let odd = (at - tcp) % 2 == 1;
        let word = |mss: u16| if odd { mss.swap_bytes() } else { mss };
        let sum = checksum::adjust(u16_at(bytes, tcp + 16), word(mss), word(mss_max));
        bytes[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::packet::protocol;
    use crate::testing::{layout, v4, v6};
    use std::vec::Vec;

    /// Builds a SYN with options and a correct checksum.
    fn syn(six: bool, options: &[u8]) -> Vec<u8> {
        assert_eq!(options.len() % 4, 0);
        let make = if six { v6 } else { v4 };
        let mut bytes = make(protocol::TCP, (1, 2), options);
        let at = if six { 40 } else { 20 };
        bytes[at + 12] = u8::try_from((20 + options.len()) / 4).unwrap() << 4;
        bytes[at + 13] = 0x02;
        let addresses = layout(&bytes).addresses(&bytes).to_vec();
        let sum = checksum::transport(&addresses, protocol::TCP, &bytes[at..]);
        bytes[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn sum_is_right(bytes: &[u8]) -> bool {
        let l = layout(bytes);
        checksum::transport(l.addresses(bytes), l.protocol, &bytes[l.transport_at()..]) == 0
    }

    #[test]
    fn a_large_mss_is_lowered_and_the_checksum_follows_at_even_and_odd_offsets() {
        for six in [false, true] {
            let (at, mss_max) = if six { (60, 1340) } else { (40, 1360) };
            for (options, offset) in
                [(&[2u8, 4, 0x22, 0xf4][..], 2), (&[1, 2, 4, 0x22, 0xf4, 0, 0, 0][..], 3)]
            {
                let mut bytes = syn(six, options);
                let layout = layout(&bytes);
                assert!(clamp(&mut bytes, &layout, 1400));
                assert_eq!(u16_at(&bytes, at + offset), mss_max, "1400 bytes without headers");
                assert!(sum_is_right(&bytes));
                assert!(!clamp(&mut bytes, &layout, 1400), "it is low enough now");
            }
        }
    }

    #[test]
    fn small_ones_and_broken_options_stay() {
        for options in [&[2u8, 4, 1, 0][..], &[2, 0, 0, 0], &[3, 200, 0, 0], &[0, 2, 4, 0xff]] {
            let mut bytes = syn(false, options);
            let before = bytes.clone();
            let layout = layout(&bytes);
            assert!(!clamp(&mut bytes, &layout, 1400));
            assert_eq!(bytes, before);
        }
    }
}
