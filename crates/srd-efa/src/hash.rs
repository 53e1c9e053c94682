//! Values derived from an endpoint's secret seed: the hash of tables whose keys peers choose, and
//! numbers that peers must not be able to guess.
//!
//! Hash and numbers are SipHash (Aumasson, Bernstein 2012), a pseudo-random function: a peer that
//! sees its output, or measures the time of look-ups, learns nothing about the key. A fast hash has
//! no such property. A generator such as [`srd_proto::rng::Rng`] gives no protection: from any
//! number that it has returned, all later numbers can be calculated.

use core::hash::{BuildHasher, Hasher};

use siphasher::sip::{SipHasher13, SipHasher24};

/// Purpose of the key that hashes the keys of tables. A value derived for one purpose reveals
/// nothing about values of another purpose.
const TABLES: u64 = 1;
/// Purpose of the key that generates numbers which peers must not be able to guess.
const NUMBERS: u64 = 2;

/// Derives the SipHash key for a purpose from the secret seed.
fn key(seed: u64, purpose: u64) -> (u64, u64) {
    let half = |n: u64| {
        let mut hasher = SipHasher24::new_with_keys(seed, purpose);
        hasher.write_u64(n);
        hasher.finish()
    };
    (half(0), half(1))
}

/// Hashes the keys of tables: SipHash-1-3, as the standard library's tables do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed(u64, u64);

impl Keyed {
    pub(crate) fn new(seed: u64) -> Self {
        let (a, b) = key(seed, TABLES);
        Self(a, b)
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

/// Numbers that cannot be guessed from other numbers of the same generator: SipHash-2-4 of a
/// counter.
#[derive(Debug)]
pub(crate) struct Numbers {
    key: (u64, u64),
    next: u64,
}

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self { key: key(seed, NUMBERS), next: 0 }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        hasher.write_u64(self.next);
        self.next += 1;
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn tables_of_two_seeds_hash_differently_and_of_one_alike() {
        let hash = |seed: u64| Keyed::new(seed).hash_one(7_u32);
        assert_eq!(hash(1), hash(1));
        assert_eq!((0..100).map(hash).collect::<BTreeSet<_>>().len(), 100);
    }

    #[test]
    fn regression_a_number_does_not_tell_the_next() {
        // SplitMix64, which was used before, is predictable: its output is its state, mixed by an
        // invertible function.
        let mut rng = srd_proto::rng::Rng::new(99);
        let (seen, next) = (rng.next_u64(), rng.next_u64());
        assert_eq!(after_splitmix64(seen), next, "the attack works on what was used before");
        let mut numbers = Numbers::new(99);
        let (seen, next) = (numbers.next_u64(), numbers.next_u64());
        assert_ne!(after_splitmix64(seen), next);
        assert_ne!(numbers.next_u64(), next);
    }

    /// Returns the number that follows `seen` in a SplitMix64 generator.
    fn after_splitmix64(seen: u64) -> u64 {
        let unshift = |z: u64, n: u32| (0..64 / n + 1).fold(z, |x, _| z ^ (x >> n));
        let inverse = |odd: u64| {
            (0..6).fold(odd, |x, _| x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x))))
        };
        let z = unshift(seen, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
        let z = unshift(z, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
        srd_proto::rng::Rng::new(unshift(z, 30)).next_u64()
    }
}
