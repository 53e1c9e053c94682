//! A secret of a program: sixteen bytes that nobody outside can guess, for hashes of tables whose
//! keys others choose.
//!
//! It is a type, and no number, so that a part of a random seed cannot be taken for all of it: only
//! sixteen bytes make one. A program of a network draws it from the kernel
//! (`srd_net::clock::secret`).

use core::fmt;

use crate::rng::Rng;

/// A secret. Its text shows nothing of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; 16]);

impl Secret {
    /// Of bytes from a generator for cryptography.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// One that follows from a number and is therefore known: of tests and simulations, which run
    /// again as they ran. `cargo xtask tidy` finds it in programs.
    pub fn known(number: u64) -> Self {
        let mut rng = Rng::new(number);
        let words = [rng.next_u64(), rng.next_u64()].map(u64::to_le_bytes);
        Self(core::array::from_fn(|at| words[at / 8][at % 8]))
    }

    /// The key of a pseudo-random function.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Half of it, for interfaces that take a number.
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
