//! Limit of the connections of one client address.

use std::net::IpAddr;

use crate::slots::{Slot, Slots};

/// Number of leading bits of an IPv6 address that stand for one client. Providers assign a network
/// of this size to one customer (RFC 6177), who then has 256 networks of 64 bits.
const V6_BITS: u32 = 56;

/// Connections of each client address.
#[derive(Clone, Debug)]
pub(crate) struct Clients(Slots<IpAddr>);

/// A connection of a client, which ends when this value is dropped.
pub(crate) type ClientSlot = Slot<IpAddr>;

impl Clients {
    /// Clients of which each has at most this number of connections.
    pub(crate) fn new(max: usize) -> Self {
        Self(Slots::new(max))
    }

    /// Counts a new connection; `None` if the client has too many.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<ClientSlot> {
        let client = match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> (128 - V6_BITS) << (128 - V6_BITS);
                IpAddr::V6(network.into())
            }
            address => address,
        };
        self.0.admit(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_a_limited_number_of_connections() {
        let clients = Clients::new(2);
        let admit = |address: &str| clients.admit(address.parse().unwrap());
        let first = admit("10.0.0.1").unwrap();
        // The form of the address of an IPv4 client at an IPv6 socket.
        let _second = admit("::ffff:10.0.0.1").unwrap();
        assert!(admit("10.0.0.1").is_none());
        let _other = admit("10.0.0.2").unwrap();
        drop(first);
        let _third = admit("10.0.0.1").unwrap();
        assert!(admit("10.0.0.1").is_none());
        let network = [admit("fd00::1").unwrap(), admit("fd00:0:0:ff::2").unwrap()];
        assert!(admit("fd00::3").is_none(), "the networks of one customer are one client");
        let _next = admit("fd00:0:0:100::1").unwrap();
        drop(network);
        assert_eq!(clients.0.owners(), 3);
    }
}
