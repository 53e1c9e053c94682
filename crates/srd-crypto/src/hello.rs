//! The first check of an opening packet: a short MAC, which shows that the packet's sender holds
//! the responder's public key or the job key.
//!
//! With static keys, the key of the MAC is derived from the responder's public key, which is given
//! only to nodes that are to connect. With a job key, it is derived from the job key. So a packet
//! from a sender without this key costs the responder one HMAC over some 150 bytes, before any
//! curve arithmetic. An opening for another key can be distinguished from a forged opening for the
//! right key. The MAC proves no identity: any holder of the public key can create it.

use core::fmt;

use ring::hmac;

use super::cookie::equal;
use super::kdf::{LABEL, derive, wipe};

/// Length in bytes of the MAC of an opening packet.
pub const HELLO_MAC_BYTES: usize = 16;

/// Key of the MAC of openings to one responder.
pub struct HelloKey(hmac::Key);

impl HelloKey {
    /// Derives the key from a responder's static public key, or from a job key.
    pub fn of(responder: &[u8; 32]) -> Self {
        let mut key: [u8; 32] = derive(&[], responder, &[LABEL, b"hello mac"]);
        let mac = hmac::Key::new(hmac::HMAC_SHA256, &key);
        wipe(&mut key);
        Self(mac)
    }

    /// Returns the MAC of an opening: the first 16 bytes of HMAC-SHA256.
    pub fn mac(&self, opening: &[u8]) -> [u8; HELLO_MAC_BYTES] {
        let mut out = [0; HELLO_MAC_BYTES];
        out.copy_from_slice(&hmac::sign(&self.0, opening).as_ref()[..HELLO_MAC_BYTES]);
        out
    }

    /// Whether `mac` is the MAC of `opening`.
    pub fn check(&self, opening: &[u8], mac: &[u8; HELLO_MAC_BYTES]) -> bool {
        equal(&self.mac(opening), mac)
    }
}

impl fmt::Debug for HelloKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HelloKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_message_key_and_mac_counts() {
        let key = HelloKey::of(&[7; 32]);
        let opening = [3; 40];
        let mac = key.mac(&opening);
        assert!(key.check(&opening, &mac));
        assert!(!key.check(&opening[1..], &mac));
        for bit in 0..HELLO_MAC_BYTES * 8 {
            let (mut forged, mut other, mut of) = (mac, opening, [7; 32]);
            forged[bit / 8] ^= 1 << (bit % 8);
            other[bit / 8] ^= 1 << (bit % 8);
            of[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.check(&opening, &forged));
            assert!(!key.check(&other, &mac));
            assert!(!HelloKey::of(&of).check(&opening, &mac));
        }
    }
}
