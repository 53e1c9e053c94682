//! Source of the primitives that `snow` uses: its default ones, with three changes.
//!
//! 1. **Randomness** comes from a [`Drbg`] of this crate, which is handed out once.
//! 2. **Diffie-Hellman** refuses an all-zero result, which Noise and `snow` allow. Such a result
//!    means that the other key is one of the few points of small order, so that the shared secret
//!    is known to everyone. No honest key pair gives this result.
//! 3. **Ciphers** record the keys that they are set to. When a handshake ends, Noise's `Split()`
//!    sets the two transport ciphers, the initiator's first. The session's secrets are derived from
//!    these two keys. `snow` itself returns them only with its feature `risky-raw-split`. A Cargo
//!    feature applies to the whole build, so all code could then read the keys. With the recording,
//!    only the handshake in this crate has access to them. By section 5.2 of the Noise
//!    specification, the last two recorded keys are the right ones. Published vectors test this.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};

use super::rng::Drbg;

/// The source of primitives for one handshake, which `snow` queries.
pub(super) struct Resolver {
    rng: Cell<Option<Drbg>>,
    split: Arc<SplitKeys>,
}

impl Resolver {
    pub(super) fn new(rng: Drbg, split: Arc<SplitKeys>) -> Self {
        Self { rng: Cell::new(Some(rng)), split }
    }
}

impl CryptoResolver for Resolver {
    /// Returns the generator at the first call only: a second generator would repeat the output of
    /// the first.
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        self.rng.take().map(|rng| Box::new(rng) as Box<dyn Random>)
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        let inner = DefaultResolver.resolve_cipher(choice)?;
        Some(Box::new(NotingCipher { inner, split: self.split.clone() }))
    }
}

/// Returns curve arithmetic that refuses points of small order.
pub(super) fn resolve_dh(choice: &DHChoice) -> Option<Box<dyn Dh>> {
    let inner = DefaultResolver.resolve_dh(choice)?;
    Some(Box::new(StrictDh { inner }))
}

impl Random for Drbg {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        self.fill(dest);
        Ok(())
    }
}

struct StrictDh {
    inner: Box<dyn Dh>,
}

impl Dh for StrictDh {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn pub_len(&self) -> usize {
        self.inner.pub_len()
    }

    fn priv_len(&self) -> usize {
        self.inner.priv_len()
    }

    fn set(&mut self, privkey: &[u8]) {
        self.inner.set(privkey);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        self.inner.generate(rng)
    }

    fn pubkey(&self) -> &[u8] {
        self.inner.pubkey()
    }

    fn privkey(&self) -> &[u8] {
        self.inner.privkey()
    }

    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        self.inner.dh(pubkey, out)?;
        let any = out[..self.inner.dh_len()].iter().fold(0, |any, byte| any | byte);
        if core::hint::black_box(any) == 0 { Err(Error::Dh) } else { Ok(()) }
    }

    fn dh_len(&self) -> usize {
        self.inner.dh_len()
    }
}

/// The last two keys that any cipher of one handshake was set to. They are atomic because `snow`
/// requires ciphers that may move between threads; a handshake itself runs on one thread at a time.
#[derive(Default)]
pub(super) struct SplitKeys {
    older: [AtomicU64; 4],
    newer: [AtomicU64; 4],
}

impl SplitKeys {
    fn note(&self, key: &[u8; 32]) {
        for (older, newer) in self.older.iter().zip(&self.newer) {
            older.store(newer.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (word, bytes) in self.newer.iter().zip(key.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// Returns the keys of the initiator's and of the responder's direction, after the handshake
    /// has finished. Replaces the stored keys by zeros.
    pub(super) fn take(&self) -> ([u8; 32], [u8; 32]) {
        (take_words(&self.older), take_words(&self.newer))
    }
}

impl Drop for SplitKeys {
    fn drop(&mut self) {
        self.take();
    }
}

fn take_words(words: &[AtomicU64; 4]) -> [u8; 32] {
    let mut key = [0; 32];
    for (bytes, word) in key.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.swap(0, Ordering::Relaxed).to_ne_bytes());
    }
    key
}

struct NotingCipher {
    inner: Box<dyn Cipher>,
    split: Arc<SplitKeys>,
}

impl Cipher for NotingCipher {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.split.note(key);
        self.inner.set(key);
    }

    fn encrypt(&self, nonce: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        self.inner.encrypt(nonce, authtext, plaintext, out)
    }

    fn decrypt(
        &self,
        nonce: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        self.inner.decrypt(nonce, authtext, ciphertext, out)
    }
}
