//! The hash of tables whose keys others choose: SipHash-1-3 under a secret, so that no peer can
//! aim many flows at one bucket.

use core::hash::BuildHasher;

use siphasher::sip::SipHasher13;
use srd_proto::rng::Rng;

/// Builds hashers with one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed {
    keys: (u64, u64),
}

impl Keyed {
    /// The key comes from a secret seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self { keys: (rng.next_u64(), rng.next_u64()) }
    }
}

impl Keyed {
    /// The hash of bytes at once; `hash_one` copies what it is given into a buffer.
    #[inline]
    pub(crate) fn of(&self, bytes: &[u8]) -> u64 {
        self.build_hasher().hash(bytes)
    }
}

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.keys.0, self.keys.1)
    }
}
