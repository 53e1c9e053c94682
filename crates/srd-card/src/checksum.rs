//! The Internet checksum (RFC 1071), and changing one without adding up everything again
//! (RFC 1624).

use core::net::IpAddr;

/// The sum of `bytes`, folded to 16 bits, not complemented.
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

/// The checksum of `bytes`, whose checksum field holds zero. Zero over bytes that hold theirs.
pub fn of(bytes: &[u8]) -> u16 {
    !low(sum(bytes, 0))
}

/// The folded sum of a pseudo-header: what a transport checksum field holds while the rest is
/// left to hardware.
pub fn pseudo_header(source: &IpAddr, destination: &IpAddr, protocol: u8, bytes: usize) -> u16 {
    let length = u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut total = u32::from(protocol) + (length >> 16) + (length & 0xffff);
    for address in [source, destination] {
        total = match address {
            IpAddr::V4(a) => sum(&a.octets(), total),
            IpAddr::V6(a) => sum(&a.octets(), total),
        };
    }
    low(fold(u64::from(total)))
}

/// The transport checksum of `transport`, whose checksum field holds zero.
pub fn transport(source: &IpAddr, destination: &IpAddr, protocol: u8, transport: &[u8]) -> u16 {
    let start = pseudo_header(source, destination, protocol, transport.len());
    !low(sum(transport, start.into()))
}

/// `checksum` after a 16-bit word that it covers has changed.
pub fn adjust(checksum: u16, before: u16, after: u16) -> u16 {
    let total = u64::from(!checksum) + u64::from(!before) + u64::from(after);
    !low(fold(total))
}

#[allow(clippy::cast_possible_truncation)] // folded: below 2^16
fn low(folded: u32) -> u16 {
    folded as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, section 3.
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
