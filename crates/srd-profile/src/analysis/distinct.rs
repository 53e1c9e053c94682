//! Counters of distinct values, in bounded memory: HyperLogLog, and a bitmap for small counts.
#![allow(clippy::cast_possible_truncation)] // rates, times and counts, far below 2^64

use std::hash::{BuildHasher, Hash, RandomState};

/// Number of registers; the standard error is 1.04 / sqrt(registers), 1.6 %.
const REGISTERS: usize = 4096;
const INDEX_BITS: u32 = REGISTERS.trailing_zeros();
/// Bits of the bitmap.
const BITS: usize = 1024;

/// Counter of distinct values (HyperLogLog). The hash has a secret, so that peers cannot influence
/// the count.
#[derive(Clone, Debug)]
pub(crate) struct Distinct {
    hash: RandomState,
    registers: Vec<u8>,
}

impl Distinct {
    pub(crate) fn new() -> Self {
        Self { hash: RandomState::new(), registers: vec![0; REGISTERS] }
    }

    pub(crate) fn add(&mut self, thing: &impl Hash) {
        let hash = self.hash.hash_one(thing);
        let index = usize::try_from(hash >> (64 - INDEX_BITS)).unwrap_or(0);
        let rank = u8::try_from((hash << INDEX_BITS | 1).leading_zeros() + 1).unwrap_or(u8::MAX);
        self.registers[index] = self.registers[index].max(rank);
    }

    pub(crate) fn count(&self) -> f64 {
        let m = REGISTERS as f64;
        let sum: f64 = self.registers.iter().map(|rank| (-f64::from(*rank)).exp2()).sum();
        let estimate = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        let empty = self.registers.iter().filter(|rank| **rank == 0).count();
        if estimate <= 2.5 * m && empty > 0 {
            return m * (m / empty as f64).ln();
        }
        estimate
    }
}

/// Counter of distinct values up to some thousand (linear counting in a bitmap).
#[derive(Clone, Debug)]
pub(crate) struct LinearCounter {
    bits: [u64; BITS / 64],
}

impl LinearCounter {
    pub(crate) fn new() -> Self {
        Self { bits: [0; BITS / 64] }
    }

    pub(crate) fn add(&mut self, hash: u64) {
        let bit = usize::try_from(hash % BITS as u64).unwrap_or(0);
        self.bits[bit / 64] |= 1 << (bit % 64);
    }

    pub(crate) fn count(&self) -> u64 {
        let set: u32 = self.bits.iter().map(|word| word.count_ones()).sum();
        let (all, empty) = (BITS as f64, BITS as f64 - f64::from(set));
        // If the bitmap is full, the result is only a lower bound.
        (all * (all / empty.max(1.0)).ln()).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_are_counted_within_a_few_percent() {
        for count in [1_u32, 100, 5_000, 1_000_000] {
            let mut distinct = Distinct::new();
            (0..count).for_each(|n| distinct.add(&n));
            (0..count.min(1000)).for_each(|n| distinct.add(&n));
            let off = distinct.count() / f64::from(count);
            assert!((0.93..1.07).contains(&off), "{count} {off}");
        }
    }

    #[test]
    fn few_are_nearly_exact() {
        let hash = RandomState::new();
        for count in [1_u64, 2, 100, 1000] {
            let mut few = LinearCounter::new();
            (0..count).for_each(|n| few.add(hash.hash_one(n)));
            let found = few.count();
            assert!(found.abs_diff(count) * 10 <= count + 10, "{count} {found}");
        }
    }
}
