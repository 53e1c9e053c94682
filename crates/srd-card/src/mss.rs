//! Clamping the maximum segment size that a new TCP connection announces, so that its packets
//! fit without anybody's path MTU discovery.

use crate::checksum;
use crate::packet::{Packet, u16_at};

const SYN: u8 = 0x02;
const OPTION_END: u8 = 0;
const OPTION_NOTHING: u8 = 1;
const OPTION_MSS: u8 = 2;
/// IPv4 and TCP headers without options.
const HEADERS_V4: u16 = 40;
const HEADERS_V6: u16 = 60;

/// Lowers the MSS option of a SYN to what fits into `mtu`. `left`: the checksum is left to
/// hardware, so that its field covers no option. Returns whether anything changed.
pub fn clamp(bytes: &mut [u8], packet: &Packet, mtu: u16, left: bool) -> bool {
    let Some(header_bytes) = packet.tcp_header_bytes(bytes) else { return false };
    let at = packet.transport_at;
    if bytes[at + 13] & SYN == 0 {
        return false;
    }
    let headers = if packet.is_v4() { HEADERS_V4 } else { HEADERS_V6 };
    let mss_max = mtu.saturating_sub(headers);
    let end = at + header_bytes;
    let mut option = at + 20;
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
        // An option may begin at an odd offset: then it is the swapped word that changes.
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
    use crate::packet::protocol;
    use crate::packet::tests::{v4, v6};
    use std::vec::Vec;

    /// A SYN with options; its checksum is right.
    fn syn(six: bool, options: &[u8]) -> Vec<u8> {
        assert_eq!(options.len() % 4, 0);
        let make = if six { v6 } else { v4 };
        let mut bytes = make(protocol::TCP, (1, 2), options);
        let at = if six { 40 } else { 20 };
        bytes[at + 12] = u8::try_from((20 + options.len()) / 4).unwrap() << 4;
        bytes[at + 13] = SYN;
        let packet = Packet::read(&bytes).unwrap();
        let sum =
            checksum::transport(&packet.source, &packet.destination, protocol::TCP, &bytes[at..]);
        bytes[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn sum_is_right(bytes: &[u8]) -> bool {
        let p = Packet::read(bytes).unwrap();
        checksum::transport(&p.source, &p.destination, p.protocol, &bytes[p.transport_at..]) == 0
    }

    #[test]
    fn a_large_mss_is_lowered_and_the_checksum_follows_at_even_and_odd_offsets() {
        for six in [false, true] {
            for options in [&[2u8, 4, 0x22, 0xf4][..], &[1, 2, 4, 0x22, 0xf4, 0, 0, 0][..]] {
                let mut bytes = syn(six, options);
                let packet = Packet::read(&bytes).unwrap();
                assert!(clamp(&mut bytes, &packet, 1400, false));
                assert!(sum_is_right(&bytes));
                assert!(!clamp(&mut bytes, &packet, 1400, false), "it is low enough now");
            }
        }
    }

    #[test]
    fn small_ones_and_broken_options_stay() {
        for options in [&[2u8, 4, 1, 0][..], &[2, 0, 0, 0], &[3, 200, 0, 0], &[0, 2, 4, 0xff]] {
            let mut bytes = syn(false, options);
            let before = bytes.clone();
            let packet = Packet::read(&bytes).unwrap();
            assert!(!clamp(&mut bytes, &packet, 1400, false));
            assert_eq!(bytes, before);
        }
    }
}
