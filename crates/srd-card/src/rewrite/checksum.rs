//! The Internet checksum (RFC 1071), and its incremental update (RFC 1624).

use crate::meta::layout::Layout;
use crate::meta::packet::protocol;

/// Returns the ones' complement sum of `start` and the 16-bit words of `bytes`, folded to 16 bits
/// and not complemented.
fn sum(bytes: &[u8], start: u32) -> u32 {
    let mut sum = u64::from(start);
    let mut words = bytes.chunks_exact(2);
    for word in &mut words {
        sum += u64::from(u16::from_be_bytes([word[0], word[1]]));
    }
    if let [last] = words.remainder() {
        sum += u64::from(*last) << 8;
    }
    fold(sum)
}

fn fold(mut sum: u64) -> u32 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u32::try_from(sum).unwrap_or(0)
}

/// Returns the checksum of `bytes`, whose checksum field must contain zero. If the field contains
/// the correct checksum instead, the result is zero.
pub fn of(bytes: &[u8]) -> u16 {
    !low(sum(bytes, 0))
}

/// Returns the folded sum of a pseudo-header: the content of a transport checksum field that is
/// left to hardware. `addresses` are both addresses in the order of the IP header; `bytes` is the
/// length of transport header and payload.
pub fn pseudo_header(addresses: &[u8], protocol: u8, bytes: usize) -> u16 {
    let length = u32::try_from(bytes).unwrap_or(u32::MAX);
    let start = u32::from(protocol) + (length >> 16) + (length & 0xffff);
    low(sum(addresses, start))
}

/// Returns the checksum of a transport header and payload, whose checksum field must contain zero.
/// `addresses` are both addresses in the order of the IP header.
pub fn transport(addresses: &[u8], protocol: u8, transport: &[u8]) -> u16 {
    let start = pseudo_header(addresses, protocol, transport.len());
    !low(sum(transport, start.into()))
}

/// Returns `checksum` updated for a change of one 16-bit word that it covers, from `before` to
/// `after`.
pub(crate) fn adjust(checksum: u16, before: u16, after: u16) -> u16 {
    let total = u64::from(!checksum) + u64::from(!before) + u64::from(after);
    !low(fold(total))
}

/// Computes a transport checksum that was left to hardware. Before the call, the checksum field of
/// the packet contains the sum of the pseudo-header.
pub(crate) fn complete(bytes: &mut [u8], layout: &Layout) {
    let Some((start, offset)) = layout.offload.checksum else { return };
    let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
    let sum = match of(&bytes[start..]) {
        // In UDP, a checksum field of zero means that the datagram has no checksum.
        0 if layout.protocol == protocol::UDP => 0xffff,
        sum => sum,
    };
    bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

#[allow(clippy::cast_possible_truncation)] // folded: below 2^16
fn low(folded: u32) -> u16 {
    folded as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example is that of RFC 1071, section 3.
    #[test]
    fn the_example_of_the_rfc() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(of(&bytes), !0xddf2);
    }

    #[test]
    fn an_odd_byte_counts_as_the_high_half() {
        assert_eq!(of(&[0xab]), !0xab00);
    }

    #[test]
    fn adjusting_equals_adding_up_again() {
        let mut bytes = [1u8, 2, 3, 4, 250, 251, 252, 253];
        let before = of(&bytes);
        let old = u16::from_be_bytes([bytes[2], bytes[3]]);
        (bytes[2], bytes[3]) = (0xfe, 0xdc);
        assert_eq!(adjust(before, old, 0xfedc), of(&bytes));
    }
}
