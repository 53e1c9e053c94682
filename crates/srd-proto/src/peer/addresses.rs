//! Addresses of a peer: one, which may change, or several that were named in advance.
//!
//! Several addresses are several network cards. Each carries the paths whose entropy, modulo the
//! number of addresses, is its index in the list. If a card fails, its paths are dead, and nothing
//! more changes. So a peer with several addresses never moves to one of them.

use core::net::{IpAddr, SocketAddr};

use super::{Peer, same_ip};
use crate::config::ADDRESSES_MAX;
use crate::ids::Entropy;

/// Addresses of a peer other than the first one.
pub(crate) type Further = [Option<SocketAddr>; ADDRESSES_MAX - 1];

/// The route of an answer to an opening, or to a stranger: to the source of the packet, from the
/// local address that received it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReplyRoute {
    pub to: SocketAddr,
    pub local: u8,
}

impl ReplyRoute {
    /// Path of the answer: the first entropies are the base ports of the local addresses.
    pub(crate) fn entropy(self) -> Entropy {
        // P18: Answers leave from the address of arrival
        Entropy(self.local.into())
    }
}

impl Peer {
    /// All addresses of the peer.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let known = self.keys.as_deref().into_iter();
        let further = known.flat_map(|known| known.further.iter().flatten());
        core::iter::once(self.address).chain(further.copied())
    }

    /// Destination of packets on the path with this entropy.
    pub(crate) fn destination(&self, entropy: Entropy) -> SocketAddr {
        if self.roams() {
            return self.address;
        }
        // P17: Peer with several addresses
        let place = usize::from(entropy.0) % self.addresses().count();
        self.addresses().nth(place).unwrap_or(self.address)
    }

    /// Whether one of the peer's addresses has this IP address.
    pub(crate) fn is_at(&self, ip: IpAddr) -> bool {
        self.addresses().any(|known| same_ip(known.ip(), ip))
    }

    /// Port at which the peer receives behind this IP address.
    pub(crate) fn port_at(&self, ip: IpAddr) -> u16 {
        let here = self.addresses().find(|known| same_ip(known.ip(), ip));
        here.unwrap_or(self.address).port()
    }

    /// Whether the peer's address may change: it may not if the application named several.
    pub(crate) fn roams(&self) -> bool {
        self.keys.as_deref().is_none_or(|known| known.further[0].is_none())
    }
}
