//! Hash of tables whose keys other hosts choose: SipHash-1-3 with a secret, so that no peer can
//! direct many flows to one bucket. There is also a keyed product, which selects one of a few
//! paths.

use core::hash::{BuildHasher, Hasher};

use siphasher::sip::{SipHasher13, SipHasher24};
use srd_proto::Secret;

/// Builds SipHash-1-3 hashers that use one secret as their key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed {
    secret: Secret,
}

impl Keyed {
    pub(crate) fn new(secret: Secret) -> Self {
        Self { secret }
    }

    /// Hash of bytes in one call; `BuildHasher::hash_one` would copy the bytes into a buffer first.
    #[inline]
    pub(crate) fn of(&self, bytes: &[u8]) -> u64 {
        self.build_hasher().hash(bytes)
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    #[inline]
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(self.secret.bytes())
    }
}

/// A product with a secret, which takes a tenth of the time of SipHash. It gives no guarantee
/// against an attacker who sees results, so no table uses it as an index. It selects one of a few
/// paths: an attacker who controls the selection gains no more than by sending a single flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    secret: Secret,
}

impl Product {
    pub(crate) fn new(secret: Secret) -> Self {
        Self { secret }
    }

    /// Derives a pseudo-random number from two numbers. The upper bits of the result are the most
    /// evenly distributed.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // each cast keeps its half
    pub(crate) fn of(&self, a: u64, b: u64) -> u64 {
        let key = u128::from_le_bytes(*self.secret.bytes());
        let product = u128::from(a ^ key as u64) * u128::from(b ^ (key >> 64) as u64);
        (product as u64 ^ (product >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Derives a secret from another secret and a number. The result reveals neither the other secret
/// nor the secrets that are derived with other numbers.
pub(crate) fn part(secret: &Secret, number: u64) -> Secret {
    let half = |half: u64| {
        let mut hasher = SipHasher24::new_with_key(secret.bytes());
        hasher.write_u64(number);
        hasher.write_u64(half);
        hasher.finish().to_le_bytes()
    };
    let halves = [half(0), half(1)];
    Secret::new(core::array::from_fn(|at| halves[at / 8][at % 8]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_byte_of_a_secret_changes_the_hash() {
        let all = (0..16).map(|at| {
            let mut bytes = [7; 16];
            bytes[at] ^= 1;
            Keyed::new(Secret::new(bytes)).of(b"a flow")
        });
        let mut all: BTreeSet<u64> = all.collect();
        all.insert(Keyed::new(Secret::new([7; 16])).of(b"a flow"));
        assert_eq!(all.len(), 17);
    }

    #[test]
    fn parts_of_a_secret_differ_by_number_and_by_secret() {
        let secrets = [1, 2].map(Secret::known);
        let parts = secrets.iter().flat_map(|secret| (0..100).map(|n| *part(secret, n).bytes()));
        let parts: BTreeSet<[u8; 16]> = parts.collect();
        assert_eq!(parts.len(), 200);
        assert!(secrets.iter().all(|secret| !parts.contains(secret.bytes())));
    }
}
