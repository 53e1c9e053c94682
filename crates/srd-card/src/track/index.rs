//! Index of a table: numbers of entries, found by the hash of their keys.
//!
//! A bucket is one line of memory. It holds up to [`SLOTS`] numbers with their hashes, so that the
//! index grows without access to the entries. A number is in the bucket that its hash selects. If
//! that bucket is full, the number is in the next bucket with a free slot, and each full bucket
//! between counts it in `passed`. A search ends at a bucket that no number has passed, so nearly
//! all searches read one line.
//!
//! Bound: [`LOAD_MAX`] numbers for each bucket, and [`BYTES_MAX`] for each number, once there are
//! [`LOAD_MAX`] numbers. Each call does bounded work, except for the growth to twice the size.

use alloc::vec;
use alloc::vec::Vec;

/// Number of slots of a bucket.
const SLOTS: usize = 7;
/// Average number of entries for each bucket at which the index grows. Then one number in twenty is
/// in a bucket that its hash does not select.
const LOAD_MAX: usize = 5;
/// Largest number of bytes for each number: those of the index directly after its growth.
pub(super) const BYTES_MAX: usize = (2 * size_of::<Bucket>()).div_ceil(LOAD_MAX);
/// Content of a free slot; no entry has this number.
const FREE: u32 = u32::MAX;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Bucket {
    hashes: [u32; SLOTS],
    numbers: [u32; SLOTS],
    /// Number of entries that this bucket had no slot for, and that are in a later bucket.
    passed: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64, "a bucket is one line of memory");

impl Bucket {
    const EMPTY: Self = Self { hashes: [0; SLOTS], numbers: [FREE; SLOTS], passed: 0 };

    /// Returns a bit for each slot with this hash; some of these slots may be free.
    #[inline]
    fn matching(&self, hash: u32) -> u32 {
        let bits = self.hashes.iter().zip(0..).map(|(other, at)| u32::from(*other == hash) << at);
        bits.fold(0, |all, bit| all | bit)
    }

    fn slot_of(&self, number: u32) -> Option<usize> {
        self.numbers.iter().position(|other| *other == number)
    }
}

/// Numbers of entries by hash.
pub(super) struct Index {
    /// The number of buckets is a power of two.
    buckets: Vec<Bucket>,
    len: usize,
}

impl Index {
    pub(super) fn new() -> Self {
        Self { buckets: vec![Bucket::EMPTY], len: 0 }
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Reads a part of the line with which a search for the hash begins. A processor that executes
    /// many such reads one after the other waits for all of these lines at once.
    #[inline]
    pub(super) fn touch(&self, hash: u32) -> u32 {
        self.buckets[self.first(hash)].passed
    }

    /// Returns the first number with this hash that `is` accepts.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.first(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            let mut matching = bucket.matching(hash);
            while matching != 0 {
                let number = bucket.numbers[matching.trailing_zeros() as usize % SLOTS];
                if number != FREE && is(number) {
                    return Some(number);
                }
                matching &= matching - 1;
            }
            if bucket.passed == 0 {
                break;
            }
            at = self.after(at);
        }
        None
    }

    /// Adds a number that is not in the index.
    pub(super) fn insert(&mut self, hash: u32, number: u32) {
        if self.len >= self.buckets.len() * LOAD_MAX {
            self.grow();
        }
        self.put(hash, number);
        self.len += 1;
    }

    /// Removes a number that was added with this hash.
    pub(super) fn remove(&mut self, hash: u32, number: u32) {
        let mut at = self.first(hash);
        for passed in 0..self.buckets.len() {
            let bucket = &mut self.buckets[at];
            if let Some(slot) = bucket.slot_of(number) {
                bucket.numbers[slot] = FREE;
                self.len -= 1;
                let mut at = self.first(hash);
                for _ in 0..passed {
                    self.buckets[at].passed -= 1;
                    at = self.after(at);
                }
                return;
            }
            if bucket.passed == 0 {
                return;
            }
            at = self.after(at);
        }
    }

    fn put(&mut self, hash: u32, number: u32) {
        let mut at = self.first(hash);
        // There is a free slot: the index has fewer numbers than slots.
        for _ in 0..self.buckets.len() {
            let bucket = &mut self.buckets[at];
            if let Some(slot) = bucket.slot_of(FREE) {
                (bucket.hashes[slot], bucket.numbers[slot]) = (hash, number);
                return;
            }
            bucket.passed += 1;
            at = self.after(at);
        }
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![Bucket::EMPTY; self.buckets.len() * 2];
        let all = core::mem::replace(&mut self.buckets, larger);
        for Bucket { hashes, numbers, .. } in all {
            let used = hashes.into_iter().zip(numbers).filter(|(_, number)| *number != FREE);
            used.for_each(|(hash, number)| self.put(hash, number));
        }
    }

    /// Bucket with which a search for the hash begins.
    #[inline]
    fn first(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.buckets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use srd_proto::rng::Rng;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    fn numbers_of(index: &Index, hash: u32) -> Vec<u32> {
        let all = core::cell::RefCell::new(Vec::new());
        // A search that accepts none of the numbers visits all of them.
        let visit = |number| {
            all.borrow_mut().push(number);
            false
        };
        assert_eq!(index.find(hash, visit), None);
        let mut all = all.into_inner();
        all.sort_unstable();
        all
    }

    /// Any sequence of insertions and removals leaves each number where a search finds it, also if
    /// few hashes are so frequent that their buckets overflow.
    #[test]
    fn searches_find_the_numbers_that_are_in_the_index_and_no_others() {
        for (seed, hashes) in (0..20).zip([3, 40, 5000].into_iter().cycle()) {
            let mut rng = Rng::new(seed);
            let mut below = |n: u32| u32::try_from(rng.next_u64() % u64::from(n)).unwrap();
            let (mut index, mut model) = (Index::new(), BTreeMap::<u32, u32>::new());
            for step in 0..6000 {
                let number = below(700);
                if let Some(hash) = model.remove(&number) {
                    index.remove(hash, number);
                } else if step < 5000 || number % 2 == 0 {
                    let hash = below(hashes).wrapping_mul(0x9e37_79b9);
                    index.insert(hash, number);
                    model.insert(number, hash);
                }
                assert_eq!(index.len(), model.len());
                if step % 50 == 0 {
                    let mut by_hash = BTreeMap::<u32, Vec<u32>>::new();
                    model.iter().for_each(|(n, hash)| by_hash.entry(*hash).or_default().push(*n));
                    for hash in (0..hashes).map(|hash| hash.wrapping_mul(0x9e37_79b9)) {
                        let wanted = by_hash.remove(&hash).unwrap_or_default();
                        assert_eq!(numbers_of(&index, hash), wanted, "seed {seed}, step {step}");
                    }
                }
            }
            for (number, hash) in model {
                index.remove(hash, number);
            }
            assert_eq!(index.len(), 0);
            assert!(index.buckets.iter().all(|bucket| bucket.passed == 0), "no search goes on");
        }
    }

    /// The bound of memory: a bucket has at least half of [`LOAD_MAX`] numbers, directly after
    /// growth.
    #[test]
    fn the_index_grows_when_its_buckets_have_five_numbers_each() {
        let mut index = Index::new();
        let mut sizes = Vec::new();
        for number in 0..10_000 {
            let before = index.buckets.len();
            index.insert(number, number);
            if index.buckets.len() > before {
                sizes.push((index.len() - 1, before));
            }
        }
        assert!(sizes.iter().all(|(number, buckets)| *number == LOAD_MAX * buckets), "{sizes:?}");
        assert_eq!((sizes.len(), BYTES_MAX), (11, 26));
    }
}
