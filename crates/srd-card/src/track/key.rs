//! Key of a connection, as the instance sees it: local and remote end, independent of a packet's
//! direction. So packets of both directions have one key, and one entry.

use core::net::IpAddr;

use crate::hash::Keyed;
use crate::meta::key::Direction;
use crate::meta::packet::{Packet, protocol};
use crate::store::stored;

/// Bytes of an ICMP header before the quoted packet.
const ICMP_BYTES: usize = 8;

/// Direction of a packet in its connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ConnectionDirection {
    /// From the end that sent the connection's first packet.
    Forward,
    /// To the end that sent the connection's first packet.
    Back,
}

/// Key of a connection of an ENI (T1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Local address in two words, because a wider type would align the entry to 16 bytes.
    local: [u64; 2],
    remote: [u64; 2],
    ports: (u16, u16),
    eni: u16,
    protocol: u8,
    v6: bool,
}

/// Whether a packet is an ICMP error, which quotes another packet.
pub fn is_error(packet: &Packet, bytes: &[u8]) -> bool {
    let kind = bytes.get(packet.transport_at);
    let is_error = |kind: &u8| match packet.protocol {
        protocol::ICMP => matches!(kind, 3 | 4 | 5 | 11 | 12),
        protocol::ICMP_V6 => matches!(kind, 1..=4),
        _ => false,
    };
    !packet.fragment && kind.is_some_and(is_error)
}

impl Key {
    /// The smallest key, with which a range of keys begins.
    pub(crate) const FIRST: Self =
        Self { local: [0; 2], remote: [0; 2], ports: (0, 0), eni: 0, protocol: 0, v6: false };

    /// Returns the connection of a packet of an ENI: TCP and UDP with their ports, ICMP echoes
    /// with their identifier, all other packets, later fragments included, by addresses and
    /// protocol (T1). `bytes` is the packet from its IP header on.
    #[inline]
    pub fn of(packet: &Packet, bytes: &[u8], direction: Direction, eni: u16) -> Self {
        let ports = packet.ports.unwrap_or_else(|| Self::ports_of(packet, bytes));
        Self::with_ports(packet, ports, direction, eni)
    }

    /// Returns the ports that a packet contains, those of a first fragment included. For an echo,
    /// both are its identifier; for a packet without ports, zeros.
    pub(crate) fn ports_of(packet: &Packet, bytes: &[u8]) -> (u16, u16) {
        let echo = || {
            let id = echo_id(packet, bytes)?;
            Some((id, id))
        };
        packet.ports_in_sight(bytes).or_else(echo).unwrap_or_default()
    }

    /// Returns the connection of a packet with these ports, which the packet need not contain.
    #[inline]
    pub(crate) fn with_ports(
        packet: &Packet,
        (from, to): (u16, u16),
        direction: Direction,
        eni: u16,
    ) -> Self {
        let (source, destination) = (bits(packet.source), bits(packet.destination));
        let (local, remote, ports) = match direction {
            Direction::Egress => (source, destination, (from, to)),
            Direction::Ingress => (destination, source, (to, from)),
        };
        Self { local, remote, ports, eni, protocol: packet.protocol, v6: !packet.is_v4() }
    }

    /// Returns the connection of an ICMP error, from the packet that the error quotes. Returns
    /// `None` if the packet is no ICMP error, if the quote is too short, or if the error does not
    /// go to the sender of the quoted packet (T7).
    pub fn of_error(packet: &Packet, bytes: &[u8], direction: Direction, eni: u16) -> Option<Self> {
        if !is_error(packet, bytes) {
            return None;
        }
        let quoted = bytes.get(packet.transport_at + ICMP_BYTES..)?;
        let inner = Packet::read(quoted)?;
        if inner.source != packet.destination {
            return None;
        }
        // The quoted packet had the opposite direction.
        let other = match direction {
            Direction::Egress => Direction::Ingress,
            Direction::Ingress => Direction::Egress,
        };
        Some(Self::of(&inner, quoted, other, eni))
    }

    /// Address of the remote end, in the form of [`Key::words`].
    #[inline]
    pub(crate) fn remote_words(&self) -> [u64; 2] {
        self.remote
    }

    /// Returns an address as the two 64-bit words that keys contain.
    pub(crate) fn words(address: IpAddr) -> [u64; 2] {
        bits(address)
    }

    /// Index of the connection's ENI among the ENIs of the instance.
    pub fn eni(&self) -> u16 {
        self.eni
    }

    /// Returns the two ends, address and port, as the instance sees them, local first. The
    /// identifier of an echo is both ports.
    pub fn ends(&self) -> [(IpAddr, u16); 2] {
        let address = |words: [u64; 2]| {
            let bits = u128::from(words[0]) << 64 | u128::from(words[1]);
            if self.v6 {
                IpAddr::V6(bits.into())
            } else {
                IpAddr::V4(u32::try_from(bits).unwrap_or_default().into())
            }
        };
        [(address(self.local), self.ports.0), (address(self.remote), self.ports.1)]
    }

    /// Transport protocol.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }
}

stored!(Key { local, remote, ports, eni, protocol, v6 });

impl Key {
    /// Returns the key in two words: all of the key for IPv4. Different keys of IPv6 may have the
    /// same two words.
    #[inline]
    pub(super) fn short(&self) -> [u64; 2] {
        let (local, remote) = self.ports;
        let ends = u64::from(local) << 48 | u64::from(remote) << 32;
        let rest = u64::from(self.eni) << 16 | u64::from(self.protocol) << 8 | u64::from(self.v6);
        [self.local[1] << 32 | self.remote[1] & 0xffff_ffff, ends | rest]
    }

    /// Returns the key with this short form. `addresses` returns the addresses of an IPv6 key.
    #[allow(clippy::cast_possible_truncation)] // each cast keeps its part of the word
    pub(super) fn of_short([both, rest]: [u64; 2], addresses: impl FnOnce() -> [u64; 4]) -> Self {
        let v6 = rest & 1 != 0;
        let [local, remote] = if v6 {
            let [a, b, c, d] = addresses();
            [[a, b], [c, d]]
        } else {
            [[0, both >> 32], [0, both & 0xffff_ffff]]
        };
        let ports = ((rest >> 48) as u16, (rest >> 32) as u16);
        let (eni, protocol) = Self::eni_and_protocol([both, rest]);
        Self { local, remote, ports, eni, protocol, v6 }
    }

    /// Returns ENI and protocol of the key with this short form.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // each cast keeps its part of the word
    pub(super) fn eni_and_protocol([_, rest]: [u64; 2]) -> (u16, u8) {
        ((rest >> 16) as u16, (rest >> 8) as u8)
    }

    /// Whether the addresses are IPv6.
    #[inline]
    pub(super) fn is_v6(&self) -> bool {
        self.v6
    }

    /// Addresses of both ends, local first.
    pub(super) fn addresses(&self) -> [u64; 4] {
        let ([a, b], [c, d]) = (self.local, self.remote);
        [a, b, c, d]
    }

    /// Hash under a secret, of as few words as contain the key: two for IPv4, five for IPv6.
    #[inline]
    pub(super) fn hash(&self, keyed: &Keyed) -> u64 {
        let [both, rest] = self.short().map(u64::to_le_bytes);
        let mut bytes = [0; 40];
        if self.v6 {
            let words = self.addresses().map(u64::to_le_bytes);
            bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word));
            bytes[32..].copy_from_slice(&rest);
            return keyed.of(&bytes);
        }
        bytes[..8].copy_from_slice(&both);
        bytes[8..16].copy_from_slice(&rest);
        keyed.of(&bytes[..16])
    }
}

#[cfg(test)]
impl Key {
    /// Returns the key with another IPv4 address and port as its remote end.
    pub(super) fn with_remote(self, address: u32, port: u16) -> Self {
        Self { remote: [0, address.into()], ports: (self.ports.0, port), ..self }
    }

    /// Returns an IPv6 key with this high half of the local address.
    pub(super) fn with_high_half(self, high: u64) -> Self {
        Self { local: [high, self.local[1]], v6: true, ..self }
    }
}

fn bits(address: IpAddr) -> [u64; 2] {
    match address {
        IpAddr::V4(address) => [0, u64::from(address.to_bits())],
        IpAddr::V6(address) => {
            let octets = address.octets();
            let (high, low) = octets.split_at(8);
            [high, low].map(|half| half.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)))
        }
    }
}

/// Identifier of an ICMP echo request or reply; `None` for any other packet.
fn echo_id(packet: &Packet, bytes: &[u8]) -> Option<u16> {
    if !packet.first {
        return None;
    }
    let header = bytes.get(packet.transport_at..packet.transport_at + ICMP_BYTES)?;
    let is_echo = match packet.protocol {
        protocol::ICMP => matches!(header[0], 0 | 8),
        protocol::ICMP_V6 => matches!(header[0], 128 | 129),
        _ => false,
    };
    is_echo.then(|| u16::from_be_bytes([header[4], header[5]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{v4, v6};
    use std::vec::Vec;

    fn key(bytes: &[u8], direction: Direction) -> Key {
        Key::of(&Packet::read(bytes).unwrap(), bytes, direction, 3)
    }

    fn swapped(mut bytes: Vec<u8>) -> Vec<u8> {
        let (at, size) = if bytes[0] >> 4 == 4 { (12, 4) } else { (8, 16) };
        let (source, rest) = bytes[at..].split_at_mut(size);
        source.swap_with_slice(&mut rest[..size]);
        bytes
    }

    #[test]
    fn both_directions_are_one_connection() {
        for make in [v4, v6] {
            let out = make(protocol::TCP, (7, 80), b"");
            let back = swapped(make(protocol::TCP, (80, 7), b""));
            assert_eq!(key(&out, Direction::Egress), key(&back, Direction::Ingress));
            assert_ne!(key(&out, Direction::Egress), key(&out, Direction::Ingress));
        }
    }

    #[test]
    fn echoes_have_their_identifier_and_other_protocols_only_addresses() {
        let echo = |kind: u8, id: u8| {
            let mut bytes = v4(protocol::ICMP, (0, 0), b"payload");
            (bytes[20], bytes[25]) = (kind, id);
            bytes
        };
        let out = key(&echo(8, 1), Direction::Egress);
        assert_eq!(out, key(&swapped(echo(0, 1)), Direction::Ingress));
        assert_ne!(out, key(&echo(8, 2), Direction::Egress));
        let gre = |ports| key(&v4(47, ports, b""), Direction::Egress);
        assert_eq!(gre((1, 2)), gre((3, 4)));
    }

    #[test]
    fn the_ends_are_those_of_the_packet() {
        let of = |direction| key(&v4(protocol::TCP, (5, 80), b""), direction).ends();
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(of(Direction::Egress), [(a, 5), (b, 80)]);
        assert_eq!(of(Direction::Ingress), [(b, 80), (a, 5)]);
        let [local, _] = key(&v6(protocol::UDP, (7, 53), b""), Direction::Egress).ends();
        let mut octets = [0; 16];
        (octets[0], octets[15]) = (0xfd, 1);
        assert_eq!(local, (IpAddr::from(octets), 7));
    }

    #[test]
    fn the_short_form_is_the_whole_key_except_for_the_addresses_of_ipv6() {
        for make in [v4 as fn(u8, (u16, u16), &[u8]) -> Vec<u8>, v6] {
            for (number, ports) in [(protocol::TCP, (7, 80)), (protocol::UDP, (0xffff, 1))] {
                let key = key(&make(number, ports, b""), Direction::Egress);
                assert_eq!(Key::of_short(key.short(), || key.addresses()), key);
                let other = Key { eni: 4, ..key };
                assert_ne!(other.short(), key.short());
            }
        }
    }

    #[test]
    fn an_icmp_error_belongs_to_the_connection_that_it_quotes() {
        for (make, number, kind) in [
            (v4 as fn(u8, (u16, u16), &[u8]) -> Vec<u8>, protocol::ICMP, 3),
            (v6, protocol::ICMP_V6, 2),
        ] {
            let sent = make(protocol::UDP, (7, 53), b"query");
            let mut error = swapped(make(number, (0, 0), &sent));
            let at = Packet::read(&error).unwrap().transport_at;
            error[at] = kind;
            let of = |bytes: &[u8]| {
                Key::of_error(&Packet::read(bytes).unwrap(), bytes, Direction::Ingress, 3)
            };
            assert_eq!(of(&error), Some(key(&sent, Direction::Egress)));
            for end in at..error.len() {
                let _ = of(&error[..end]);
            }
            error[at] = 8;
            assert_ne!(of(&error), Some(key(&sent, Direction::Egress)), "no error");
            assert_eq!(of(&sent), None);
        }
    }
}
