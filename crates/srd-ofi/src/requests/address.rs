//! An endpoint's address: its socket address, and the number of the endpoint's run.
//!
//! The format is that of ordinary socket addresses, so that applications can also build one from
//! a host's name or a number:
//!
//! ```text
//! FI_SOCKADDR_IN    family u16 | port u16, big endian | IPv4 | incarnation, 8 bytes
//! FI_SOCKADDR_IN6   family u16 | port | incarnation, 4 B | IPv6, 16 B | incarnation, 4 B
//! ```
//!
//! The incarnation identifies a run of an endpoint: the nanoseconds since 1970 at which it was
//! opened. The transport sends the same number, its epoch (`srd_proto::ids::Epoch`), in every
//! handshake, so comparing the two costs nothing on the wire. The incarnation uses the unused bytes
//! of a `sockaddr_in` (`sin_zero`), and the flow label and scope of a `sockaddr_in6`: the flow
//! label belongs to packets, and the scope to link-local addresses, which are never offered.
//!
//! The incarnation is needed because ports are used again. A restarted process, or an unrelated
//! one, may get the IP address and port of an earlier process. A peer with the old address would
//! then reach an endpoint without the state of earlier messages: order, tags and keys of memory
//! would differ. With the incarnation the address names one run, and a message to a run that has
//! ended can be refused with this reason. Two runs at one socket address never overlap, because a
//! port has one owner at a time. They could get the same number only if the clock is set back by
//! exactly the time between their openings, to the nanosecond.
//!
//! Zero means any run. Addresses that were made from a name have zero. The number of the run that
//! answers first replaces the zero for as long as the entry of the address vector exists.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::abi::bits::{FI_SOCKADDR_IN, FI_SOCKADDR_IN6};

/// Bytes of the longest address format.
pub const ADDRESS_BYTES_MAX: usize = 28;
const V4_BYTES: usize = 16;
const V6_BYTES: usize = 28;
const FAMILY_V4: u16 = 2;
const FAMILY_V6: u16 = 10;

/// The address of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// IP address of the endpoint's host.
    pub ip: IpAddr,
    /// The UDP port; zero if no port is chosen yet.
    pub port: u16,
    /// Run of the endpoint at this socket address; zero for any.
    pub incarnation: u64,
}

impl Address {
    /// Returns the address of any run at `place`.
    #[must_use]
    pub fn anyone(place: SocketAddr) -> Self {
        Self { ip: place.ip(), port: place.port(), incarnation: 0 }
    }

    /// Returns the socket address: IP address and port.
    #[must_use]
    pub fn place(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }

    /// Returns libfabric's number of the format of this address.
    #[must_use]
    pub fn format(&self) -> u32 {
        if self.ip.is_ipv4() { FI_SOCKADDR_IN } else { FI_SOCKADDR_IN6 }
    }

    /// Returns the number of bytes of an address of this format; `None` for an unsupported format.
    #[must_use]
    pub fn bytes_of(format: u32) -> Option<usize> {
        match format {
            FI_SOCKADDR_IN => Some(V4_BYTES),
            FI_SOCKADDR_IN6 => Some(V6_BYTES),
            _ => None,
        }
    }

    /// Returns the address as bytes.
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let mut bytes = [0; ADDRESS_BYTES_MAX];
        let incarnation = self.incarnation.to_be_bytes();
        bytes[2..4].copy_from_slice(&self.port.to_be_bytes());
        let length = match self.ip {
            IpAddr::V4(ip) => {
                bytes[..2].copy_from_slice(&FAMILY_V4.to_ne_bytes());
                bytes[4..8].copy_from_slice(&ip.octets());
                bytes[8..16].copy_from_slice(&incarnation);
                V4_BYTES
            }
            IpAddr::V6(ip) => {
                bytes[..2].copy_from_slice(&FAMILY_V6.to_ne_bytes());
                bytes[4..8].copy_from_slice(&incarnation[..4]);
                bytes[8..24].copy_from_slice(&ip.octets());
                bytes[24..28].copy_from_slice(&incarnation[4..]);
                V6_BYTES
            }
        };
        Encoded { bytes, length }
    }

    /// Reads an address; `None` if `bytes` is too short or has another address family.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
        let (ip, incarnation) = if family == FAMILY_V4 {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            (IpAddr::V4(Ipv4Addr::from(ip)), bytes.get(8..16)?.try_into().ok()?)
        } else if family == FAMILY_V6 {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let mut incarnation = [0; 8];
            incarnation[..4].copy_from_slice(bytes.get(4..8)?);
            incarnation[4..].copy_from_slice(bytes.get(24..28)?);
            (IpAddr::V6(Ipv6Addr::from(ip)), incarnation)
        } else {
            return None;
        };
        Some(Self { ip, port, incarnation: u64::from_be_bytes(incarnation) })
    }
}

/// Text form: `fi_srd://10.0.0.1:4791/9f02...`, without the last part if the address means any
/// run.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fi_srd://{}", self.place())?;
        if self.incarnation == 0 { Ok(()) } else { write!(f, "/{:016x}", self.incarnation) }
    }
}

/// An address as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Encoded {
    bytes: [u8; ADDRESS_BYTES_MAX],
    length: usize,
}

impl Encoded {
    /// Returns the bytes of the address.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ip: &str) -> Address {
        Address { ip: ip.parse().unwrap(), port: 4791, incarnation: 0x0102_0304_0506_0708 }
    }

    #[test]
    fn addresses_survive_their_form_and_every_truncation_is_refused() {
        for ip in ["10.77.0.1", "2001:db8::7"] {
            let address = sample(ip);
            let encoded = address.encode();
            assert_eq!(Address::bytes_of(address.format()), Some(encoded.as_slice().len()));
            assert_eq!(Address::decode(encoded.as_slice()), Some(address));
            for length in 0..encoded.as_slice().len() {
                assert_eq!(Address::decode(&encoded.as_slice()[..length]), None, "{length}");
            }
        }
    }

    #[test]
    fn other_families_are_refused() {
        let mut bytes = sample("10.0.0.1").encode().as_slice().to_vec();
        bytes[..2].copy_from_slice(&1u16.to_ne_bytes());
        assert_eq!(Address::decode(&bytes), None);
        assert_eq!(Address::decode(&[0; 28]), None);
    }

    #[test]
    fn an_ordinary_socket_address_names_whoever_is_there() {
        let mut bytes = [0u8; 16];
        bytes[..2].copy_from_slice(&2u16.to_ne_bytes());
        bytes[2..8].copy_from_slice(&[0x12, 0xb7, 10, 0, 0, 1]);
        let address = Address::decode(&bytes).unwrap();
        assert_eq!(address, Address::anyone("10.0.0.1:4791".parse().unwrap()));
        assert_eq!(address.to_string(), "fi_srd://10.0.0.1:4791");
    }

    #[test]
    fn two_runs_at_one_place_differ() {
        let (first, mut second) = (sample("10.0.0.1"), sample("10.0.0.1"));
        second.incarnation += 1;
        assert_ne!(first, second);
        assert_eq!(first.to_string(), "fi_srd://10.0.0.1:4791/0102030405060708");
    }
}
