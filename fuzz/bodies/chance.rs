//! Random changes of seeds, for tests on a stable toolchain.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use srd_proto::rng::Rng;

pub(crate) fn below(rng: &mut Rng, n: usize) -> usize {
    usize::try_from(rng.next_u64() % n.max(1) as u64).unwrap()
}

/// Returns a seed with bytes changed, parts doubled or removed, or another seed appended.
pub(crate) fn changed(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[below(rng, seeds.len())].clone();
    for _ in 0..=below(rng, 8) {
        let at = below(rng, bytes.len());
        let end = at + below(rng, bytes.len() - at + 1);
        match below(rng, 6) {
            0 | 1 if !bytes.is_empty() => bytes[at] = rng.next_u64().to_le_bytes()[0],
            2 if !bytes.is_empty() => bytes[at] ^= 1 << below(rng, 8),
            3 => drop(bytes.drain(at..end)),
            4 => bytes.extend_from_within(at..end),
            _ => bytes.extend_from_slice(&seeds[below(rng, seeds.len())]),
        }
    }
    bytes
}
