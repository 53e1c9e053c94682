//! Offer of a card to another card: whether SRD is on, and for which packets. A card sends its
//! offer reliably to queue pair [`crate::OFFER_QPN`] of a new peer, and again after each change.
//!
//! ```text
//! +---------------+---------------+
//! |   version=1   |     flags     |     1: SRD on   2: for UDP, too   4: send me yours
//! +---------------+---------------+     8: for tunnels, too   16: frames of clouds are taken
//! ```
//!
//! Longer offers of later versions begin with the same two bytes.

const VERSION: u8 = 1;
const EXPRESS: u8 = 1;
const UDP: u8 = 2;
const ASKS: u8 = 4;
const TUNNELS: u8 = 8;
const CLOUD: u8 = 16;

/// Packets that a card is willing to carry by SRD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offer {
    /// Whether SRD is on at the sender.
    pub express: bool,
    /// Whether SRD is on for UDP.
    pub udp: bool,
    /// Whether SRD is on for tunnels without ports: GRE, ESP, IP in IP.
    pub tunnels: bool,
    /// Whether the sender accepts frames of clouds, because its host runs a card of instances.
    pub cloud: bool,
    /// Whether the sender requests the receiver's offer, because it does not have this offer.
    pub asks: bool,
}

impl Offer {
    /// Encodes the offer.
    pub fn encode(&self) -> [u8; 2] {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let kinds = bit(self.express, EXPRESS) | bit(self.udp, UDP) | bit(self.tunnels, TUNNELS);
        [VERSION, kinds | bit(self.cloud, CLOUD) | bit(self.asks, ASKS)]
    }

    /// Decodes an offer; `None` if the version or the length is not supported.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [version, flags, ..] if *version >= VERSION => Some(Self {
                express: flags & EXPRESS != 0,
                udp: flags & UDP != 0,
                tunnels: flags & TUNNELS != 0,
                cloud: flags & CLOUD != 0,
                asks: flags & ASKS != 0,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offer_survives_the_wire_and_rubbish_is_none() {
        for bits in 0..32u8 {
            let offer = Offer {
                express: bits & 1 != 0,
                udp: bits & 2 != 0,
                asks: bits & 4 != 0,
                tunnels: bits & 8 != 0,
                cloud: bits & 16 != 0,
            };
            assert_eq!(Offer::decode(&offer.encode()), Some(offer));
        }
        assert_eq!(Offer::decode(&[]), None);
        assert_eq!(Offer::decode(&[0, 1]), None);
        assert_eq!(Offer::decode(&[2, 1, 9, 9]), Offer::decode(&[1, 1]));
    }
}
