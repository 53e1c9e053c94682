//! A cryptographic random generator whose whole output is determined by a 32-byte seed: HMAC_DRBG
//! with SHA-256 (NIST SP 800-90A, 10.1.2), without additional input.
//!
//! The seed has 256 bits, which have to be uniformly random, secret and used once. The caller may
//! mix further bytes in (10.1.2.4): two copies of one state that get different bytes give unrelated
//! output from then on. After every request the state changes by a one-way step, so that a later
//! theft of the state does not reveal earlier output. The standard limits a generator to 2^48
//! requests. An endpoint makes a few per handshake and cannot reach this limit, so requests are not
//! counted.

use core::fmt;

use ring::hmac;

use super::kdf::{LABEL, wipe};

/// Largest number of bytes per request, by the standard; a longer fill consists of several
/// requests.
const REQUEST_BYTES_MAX: usize = 1 << 16;

/// A deterministic cryptographic random generator. It is not `Clone`: a copy would repeat its
/// output.
pub struct Drbg {
    key: [u8; 32],
    value: [u8; 32],
}

impl Drbg {
    /// Returns a generator for one purpose. Different purposes of one seed give unrelated output.
    pub fn new(seed: &[u8; 32], purpose: &str) -> Self {
        Self::instantiate(&[seed, LABEL, purpose.as_bytes()])
    }

    /// Fills `out` with the next bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for request in out.chunks_mut(REQUEST_BYTES_MAX) {
            for block in request.chunks_mut(32) {
                self.value = mac(&self.key, &[&self.value]);
                block.copy_from_slice(&self.value[..block.len()]);
            }
            self.update(&[]);
        }
    }

    /// Returns the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }

    /// Mixes further secret bytes in. The output stays as unpredictable as before, whatever the
    /// value of these bytes.
    pub fn mix_in(&mut self, entropy: &[u8]) {
        self.update(&[entropy]);
    }

    /// Returns a separate generator, for a component that has to own a generator.
    #[must_use]
    pub fn fork(&mut self, purpose: &str) -> Self {
        let mut seed = self.array();
        let child = Self::new(&seed, purpose);
        wipe(&mut seed);
        child
    }

    fn instantiate(seed_material: &[&[u8]]) -> Self {
        let mut rng = Self { key: [0; 32], value: [1; 32] };
        rng.update(seed_material);
        rng
    }

    /// Executes HMAC_DRBG_Update of the standard: without data it has one round, with data two.
    fn update(&mut self, data: &[&[u8]]) {
        let rounds: &[u8] = if data.is_empty() { &[0] } else { &[0, 1] };
        for round in rounds {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key);
            let mut context = hmac::Context::with_key(&key);
            context.update(&self.value);
            context.update(&[*round]);
            data.iter().for_each(|part| context.update(part));
            self.key.copy_from_slice(context.sign().as_ref());
            self.value = mac(&self.key, &[&self.value]);
        }
    }
}

impl Drop for Drbg {
    fn drop(&mut self) {
        wipe(&mut self.key);
        wipe(&mut self.value);
    }
}

impl fmt::Debug for Drbg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drbg(..)")
    }
}

fn mac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let mut context = hmac::Context::with_key(&key);
    parts.iter().for_each(|part| context.update(part));
    let mut out = [0; 32];
    out.copy_from_slice(context.sign().as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;

    /// Compares with a NIST test vector: CAVS 14.3, HMAC_DRBG SHA-256, no reseed, COUNT = 0. As in
    /// the vector, the output of the second request is compared.
    #[test]
    fn output_matches_the_nist_vector() {
        let entropy = hex("ca851911349384bffe89de1cbdc46e6831e44d34a4fb935ee285dd14b71a7488");
        let nonce = hex("659ba96c601dc69fc902940805ec0ca8");
        let mut rng = Drbg::instantiate(&[&entropy, &nonce]);
        let _: [u8; 128] = rng.array();
        let second: [u8; 128] = rng.array();
        let expected = hex("e528e9abf2dece54d47c7e75e5fe302149f817ea9fb4bee6f4199697d04d5b89
             d54fbb978a15b5c443c9ec21036d2460b6f73ebad0dc2aba6e624abf07745bc1
             07694bb7547bb0995f70de25d6b29e2d3011bb19d27676c07162c8b5ccde0668
             961df86803482cb37ed6d5c0bb8d50cf1f50d476aa0458bdaba806f48be9dcb8");
        assert_eq!(second[..], expected[..]);
    }

    #[test]
    fn one_seed_gives_one_stream_and_two_seeds_or_purposes_give_two() {
        let stream = |seed: u8, purpose| Drbg::new(&[seed; 32], purpose).array::<64>();
        assert_eq!(stream(1, "a"), stream(1, "a"));
        assert_ne!(stream(1, "a"), stream(2, "a"));
        assert_ne!(stream(1, "a"), stream(1, "b"));
    }

    #[test]
    fn forks_differ_from_each_other_and_from_their_parent() {
        let mut parent = Drbg::new(&[9; 32], "test");
        let (mut a, mut b) = (parent.fork("x"), parent.fork("x"));
        let (a, b, p) = (a.array::<32>(), b.array::<32>(), parent.array::<32>());
        assert!(a != b && b != p && a != p);
    }

    #[test]
    fn bytes_that_are_mixed_in_part_two_copies_for_good() {
        let copy = || {
            let mut rng = Drbg::new(&[4; 32], "test");
            let _: [u8; 40] = rng.array();
            rng
        };
        let (mut a, mut b, mut c) = (copy(), copy(), copy());
        a.mix_in(&[1; 16]);
        b.mix_in(&[2; 16]);
        let (a, b) = (a.array::<64>(), b.array::<64>());
        let c: [u8; 64] = c.array();
        assert!(a != b && a != c && b != c);
    }

    #[test]
    fn long_fills_are_full() {
        let mut out = alloc::vec![0; REQUEST_BYTES_MAX + 40];
        Drbg::new(&[3; 32], "test").fill(&mut out);
        assert!(out[REQUEST_BYTES_MAX..].iter().any(|&b| b != 0));
        assert_ne!(out[..40], out[REQUEST_BYTES_MAX..]);
    }
}
