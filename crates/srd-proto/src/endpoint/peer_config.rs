//! Configuration of a peer: its addresses and its keys.

use core::net::SocketAddr;

use crate::config::ADDRESSES_MAX;

/// Configuration of a peer that the application names.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerConfig {
    /// The peer's address and well-known port. `None` if the address is unknown until the peer's
    /// first opening; the peer must then have a public key.
    pub address: Option<SocketAddr>,
    /// The peer's other addresses, with their ports. The peer's paths take turns over all
    /// addresses. A peer with several addresses cannot move to a new address.
    pub further: [Option<SocketAddr>; ADDRESSES_MAX - 1],
    /// The peer's static public key, if the endpoint uses static keys.
    pub public_key: Option<[u8; 32]>,
    /// A secret that both nodes have in addition to their keys (`psk2` of Noise): a recorded
    /// session stays secret even if the curve is broken.
    pub preshared_key: Option<[u8; 32]>,
}

impl PeerConfig {
    /// A peer with one address, without keys.
    pub fn at(address: SocketAddr) -> Self {
        Self { address: Some(address), ..Self::default() }
    }

    /// A peer with one or several addresses, without keys. `None` if the list is empty or longer
    /// than [`ADDRESSES_MAX`].
    pub fn at_each(addresses: &[SocketAddr]) -> Option<Self> {
        let (first, others) = addresses.split_first()?;
        let mut peer = Self::at(*first);
        for (at, other) in others.iter().enumerate() {
            *peer.further.get_mut(at)? = Some(*other);
        }
        Some(peer)
    }

    /// Returns this configuration with the public key.
    pub fn with_key(self, public_key: Option<[u8; 32]>) -> Self {
        Self { public_key, ..self }
    }
}
