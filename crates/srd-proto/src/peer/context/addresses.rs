//! The addresses of a peer: either one, which may change, or several, which the application named.
//!
//! Several addresses belong to several network cards. Each carries the paths whose entropy, modulo
//! the number of addresses, is its index in the list. If a card fails, its paths are dead, and
//! nothing more changes. So the address of such a peer never changes.

use core::net::{IpAddr, SocketAddr};

use crate::config::ADDRESSES_MAX;
use crate::ids::Entropy;
use crate::peer::{Peer, same_ip};

/// The addresses of a peer after the first address.
pub(crate) type Further = [Option<SocketAddr>; ADDRESSES_MAX - 1];

/// Route of an answer to an opening or to a stranger: from the local address that received the
/// packet to the source of the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReplyRoute {
    pub to: SocketAddr,
    pub local: u8,
}

impl ReplyRoute {
    /// Entropy of the answer: the first entropies select the local addresses in their order.
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

    /// Port at which the peer receives at this IP address.
    pub(crate) fn port_at(&self, ip: IpAddr) -> u16 {
        let here = self.addresses().find(|known| same_ip(known.ip(), ip));
        here.unwrap_or(self.address).port()
    }

    /// Whether the peer's address may change. The address may not change if the application named
    /// several addresses.
    pub(crate) fn roams(&self) -> bool {
        self.keys.as_deref().is_none_or(|known| known.further[0].is_none())
    }
}
