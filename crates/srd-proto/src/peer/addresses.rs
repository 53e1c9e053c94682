//! Where a peer is: at one address, which may change, or at several that were named beforehand.
//!
//! Several addresses are several network cards: each carries the paths whose entropy, modulo their
//! number, is its place in the list. A card that dies is so many dead paths, no more; so a peer
//! with several addresses never moves to one of them.

use core::net::{IpAddr, SocketAddr};

use super::{Peer, same_ip};
use crate::config::ADDRESSES_MAX;
use crate::ids::Entropy;

/// The addresses of a peer beside its first one.
pub(crate) type Further = [Option<SocketAddr>; ADDRESSES_MAX - 1];

/// The route of an answer to an opening, or to a stranger: to the source of the packet, from the
/// local address that received it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReplyRoute {
    pub to: SocketAddr,
    pub local: u8,
}

impl ReplyRoute {
    /// The path that it takes: the first entropies are the base ports of the local addresses.
    pub(crate) fn entropy(self) -> Entropy {
        // P18
        Entropy(self.local.into())
    }
}

impl Peer {
    /// Every address that it may be at.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let known = self.keys.as_deref().into_iter();
        let further = known.flat_map(|known| known.further.iter().flatten());
        core::iter::once(self.address).chain(further.copied())
    }

    /// Where packets of a path go.
    pub(crate) fn destination(&self, entropy: Entropy) -> SocketAddr {
        if self.roams() {
            return self.address;
        }
        // P17
        let place = usize::from(entropy.0) % self.addresses().count();
        self.addresses().nth(place).unwrap_or(self.address)
    }

    /// Whether one of its addresses has this IP address.
    pub(crate) fn is_at(&self, ip: IpAddr) -> bool {
        self.addresses().any(|known| same_ip(known.ip(), ip))
    }

    /// The port that it receives at behind this IP address of its own.
    pub(crate) fn port_at(&self, ip: IpAddr) -> u16 {
        let here = self.addresses().find(|known| same_ip(known.ip(), ip));
        here.unwrap_or(self.address).port()
    }

    /// Whether its address may change: not if it was named with several.
    pub(crate) fn roams(&self) -> bool {
        self.keys.as_deref().is_none_or(|known| known.further[0].is_none())
    }
}
