//! Addresses and ports that gateways write into packets, and the checksums that cover them.

use core::net::Ipv4Addr;

use crate::meta::layout::Layout;
use crate::meta::packet::{protocol, u16_at};
use crate::rewrite::checksum::adjust;

/// Offsets of the checksum, the source and the destination in an IPv4 header.
const CHECKSUM_AT: usize = 10;
pub(in crate::vpc) const SOURCE_AT: usize = 12;
pub(in crate::vpc) const DESTINATION_AT: usize = 16;

/// Writes an address into an IPv4 packet at the offset `at`, and updates the checksums of the IP
/// header and of TCP or UDP. `bytes` is the packet from its IP header on.
pub(in crate::vpc) fn write(bytes: &mut [u8], layout: &Layout, at: usize, address: Ipv4Addr) {
    let before = [u16_at(bytes, at), u16_at(bytes, at + 2)];
    bytes[at..at + 4].copy_from_slice(&address.octets());
    let after = [u16_at(bytes, at), u16_at(bytes, at + 2)];
    mend(bytes, CHECKSUM_AT, before, after);
    // Later fragments have no transport header.
    if !layout.is_first() {
        return;
    }
    let field = match layout.protocol {
        protocol::TCP => layout.transport_at() + 16,
        protocol::UDP => layout.transport_at() + 6,
        _ => return,
    };
    if bytes.len() < field + 2 {
        return;
    }
    if layout.offload.checksum.is_some() {
        // The field contains the sum of the pseudo-header, not complemented.
        let mut sum = !u16_at(bytes, field);
        for (before, after) in before.into_iter().zip(after) {
            sum = adjust(sum, before, after);
        }
        bytes[field..field + 2].copy_from_slice(&(!sum).to_be_bytes());
        return;
    }
    // A UDP datagram with a zero field has no checksum.
    if layout.protocol == protocol::UDP && u16_at(bytes, field) == 0 {
        return;
    }
    mend(bytes, field, before, after);
    if layout.protocol == protocol::UDP && u16_at(bytes, field) == 0 {
        bytes[field..field + 2].copy_from_slice(&[0xff; 2]);
    }
}

/// Writes a port, or the identifier of an ICMP echo, at the offset `at`, and updates the checksum
/// that covers it.
pub(in crate::vpc) fn write_port(
    bytes: &mut [u8],
    layout: &Layout,
    at: usize,
    checksum_at: usize,
    port: u16,
) {
    let before = u16_at(bytes, at);
    bytes[at..at + 2].copy_from_slice(&port.to_be_bytes());
    let is_udp = layout.protocol == protocol::UDP;
    // A checksum that hardware completes does not cover ports yet, and a UDP datagram with a zero
    // field has no checksum.
    if layout.offload.checksum.is_some() || is_udp && u16_at(bytes, checksum_at) == 0 {
        return;
    }
    let mut sum = adjust(u16_at(bytes, checksum_at), before, port);
    if is_udp && sum == 0 {
        sum = 0xffff;
    }
    bytes[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn mend(bytes: &mut [u8], field: usize, before: [u16; 2], after: [u16; 2]) {
    let mut sum = u16_at(bytes, field);
    for (before, after) in before.into_iter().zip(after) {
        sum = adjust(sum, before, after);
    }
    bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::checksum;
    use crate::testing::{layout, v4};
    use std::vec::Vec;

    fn with_checksum(number: u8) -> Vec<u8> {
        let mut bytes = v4(number, (1000, 80), b"payload!!");
        let field = 20 + if number == protocol::TCP { 16 } else { 6 };
        let sum = checksum::transport(&bytes[12..20], number, &bytes[20..]);
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn checksums_are_those_of_the_new_address() {
        for number in [protocol::TCP, protocol::UDP] {
            for at in [SOURCE_AT, DESTINATION_AT] {
                let mut bytes = with_checksum(number);
                let layout = layout(&bytes);
                write(&mut bytes, &layout, at, Ipv4Addr::new(203, 0, 113, 77));
                assert_eq!(bytes[at..at + 4], [203, 0, 113, 77]);
                assert_eq!(checksum::of(&bytes[..20]), 0);
                let sum = checksum::transport(&bytes[12..20], number, &bytes[20..]);
                assert_eq!(sum, 0, "a packet with its checksum adds up to nothing");
            }
        }
    }

    #[test]
    fn a_checksum_that_is_left_to_hardware_covers_the_new_pseudo_header() {
        let mut bytes = v4(protocol::TCP, (1, 2), b"data");
        let length = bytes.len() - 20;
        let pseudo = checksum::pseudo_header(&bytes[12..20], protocol::TCP, length);
        bytes[36..38].copy_from_slice(&pseudo.to_be_bytes());
        let mut layout = layout(&bytes);
        layout.offload.checksum = Some((20, 16));
        write(&mut bytes, &layout, SOURCE_AT, Ipv4Addr::new(203, 0, 113, 77));
        let wanted = checksum::pseudo_header(&bytes[12..20], protocol::TCP, length);
        assert_eq!(u16_at(&bytes, 36), wanted);
    }

    #[test]
    fn a_datagram_without_checksum_stays_without() {
        let mut bytes = v4(protocol::UDP, (1, 2), b"data");
        let layout = layout(&bytes);
        write(&mut bytes, &layout, SOURCE_AT, Ipv4Addr::new(203, 0, 113, 77));
        assert_eq!(u16_at(&bytes, 26), 0);
    }
}
