//! A small seeded generator for choices that need no secrecy: path order, jitter.
//!
//! SplitMix64 (Steele, Lea, Flood 2014). Keys and cookies come from [`crate::crypto`].

/// A seeded pseudo-random generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose whole sequence follows from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 pseudo-random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; zero if `n` is zero. The bias is below n / 2^32.
    #[allow(clippy::cast_possible_truncation)] // the product's high half is below n
    pub fn below(&mut self, n: u32) -> u32 {
        (((self.next_u64() >> 32) * u64::from(n)) >> 32) as u32
    }

    /// Puts a slice into random order (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let bound = u32::try_from(i + 1).unwrap_or(u32::MAX);
            items.swap(i, self.below(bound) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_within_bounds() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for n in 1..1000 {
            let x = a.below(n);
            assert_eq!(x, b.below(n));
            assert!(x < n);
        }
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items: [u8; 64] = core::array::from_fn(|i| u8::try_from(i).unwrap());
        Rng::new(1).shuffle(&mut items);
        let mut sorted = items;
        sorted.sort_unstable();
        assert_ne!(items, sorted);
        assert!(sorted.iter().enumerate().all(|(i, &x)| i == x as usize));
    }
}
