//! A secret of a program: sixteen bytes that no other host can guess. It keys the hashes of tables
//! whose entries have keys that other hosts choose.
//!
//! It is a type of its own, and not a number, so that a part of a random seed cannot be used by
//! mistake: a secret is created from sixteen bytes only. A program on a network draws them from the
//! kernel (`srd_net::clock::secret`).

use core::fmt;

use crate::rng::Rng;

/// Sixteen secret bytes, for keyed hashes. The debug text contains none of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; 16]);

impl Secret {
    /// Creates a secret from bytes of a cryptographic generator.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Creates a secret that follows from a number, and is therefore public. It is for tests and
    /// simulations, which must be repeatable. `cargo xtask tidy` reports its use in programs.
    pub fn known(number: u64) -> Self {
        let mut rng = Rng::new(number);
        let words = [rng.next_u64(), rng.next_u64()].map(u64::to_le_bytes);
        Self(core::array::from_fn(|at| words[at / 8][at % 8]))
    }

    /// Returns the sixteen bytes, for use as the key of a pseudo-random function.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The first half of the secret, for interfaces that accept a number.
    #[allow(clippy::cast_possible_truncation)] // the lower half
    pub const fn word(&self) -> u64 {
        u128::from_le_bytes(self.0) as u64
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::format;

    #[test]
    fn known_secrets_differ_in_all_bytes_and_show_nothing() {
        let all: [Secret; 64] = core::array::from_fn(|n| Secret::known(n as u64));
        for at in 0..16 {
            let values: BTreeSet<u8> = all.iter().map(|secret| secret.bytes()[at]).collect();
            assert!(values.len() > 32, "byte {at} has {} values", values.len());
        }
        assert_eq!(Secret::known(7), Secret::known(7));
        assert_eq!(format!("{:?}", all[7]), "Secret(..)");
    }

    #[test]
    fn a_word_is_the_first_half() {
        let secret = Secret::new(core::array::from_fn(|at| u8::try_from(at).unwrap()));
        assert_eq!(secret.word(), 0x0706_0504_0302_0100);
    }
}
