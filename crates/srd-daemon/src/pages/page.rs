//! One page: figures that one thread writes and any thread reads, without a lock.
//!
//! ```text
//!   version   odd while the page is being written
//!   words     the figures, each a relaxed atomic
//! ```
//!
//! The writer never waits. A reader that meets a page being written reads it again, at most
//! [`READS_MAX`] times; then it takes the words as they are, some of which may be one refresh
//! older than others. A single word is never torn, so a counter that only rises, rises for
//! every reader in either case.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::figure::Figure;

/// Times that a reader tries to read a page that is being written.
const READS_MAX: usize = 256;

/// Figures of the kind `T`.
#[derive(Debug)]
pub(crate) struct Page<T> {
    version: AtomicU64,
    words: Box<[AtomicU64]>,
    kind: PhantomData<fn() -> T>,
}

impl<T: Figure + Default> Default for Page<T> {
    fn default() -> Self {
        let words = (0..T::WORDS).map(|_| AtomicU64::new(0)).collect();
        let page = Self { version: AtomicU64::new(0), words, kind: PhantomData };
        page.publish(&T::default());
        page
    }
}

impl<T: Figure> Page<T> {
    /// Writes the page. Only one thread may.
    pub(crate) fn publish(&self, figures: &T) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let mut words = self.words.iter();
        figures.put(&mut |value| {
            if let Some(word) = words.next() {
                word.store(value, Ordering::Relaxed);
            }
        });
        self.version.store((version | 1).wrapping_add(1), Ordering::Release);
    }

    /// Reads the page.
    pub(crate) fn read(&self) -> T {
        for _ in 1..READS_MAX {
            let version = self.version.load(Ordering::Acquire);
            let figures = self.read_once();
            fence(Ordering::Acquire);
            if version & 1 == 0 && self.version.load(Ordering::Relaxed) == version {
                return figures;
            }
            std::thread::yield_now();
        }
        self.read_once()
    }

    fn read_once(&self) -> T {
        let mut words = self.words.iter();
        T::take(&mut || words.next().map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    /// How often the page was written.
    #[cfg(test)]
    pub(crate) fn writes(&self) -> u64 {
        self.version.load(Ordering::Relaxed) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    type Many = [u64; 32];

    #[test]
    fn a_reader_sees_the_words_of_one_moment_and_counters_never_fall() {
        let page = Arc::new(Page::<Many>::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let (written, over) = (Arc::clone(&page), Arc::clone(&is_over));
        let writer = std::thread::spawn(move || {
            for n in 0..200_000 {
                written.publish(&[n; 32]);
            }
            over.store(true, Ordering::Relaxed);
        });
        let mut before = 0;
        while !is_over.load(Ordering::Relaxed) {
            let read = page.read();
            assert!(read.iter().all(|word| *word == read[0]), "{read:?}");
            assert!(read[0] >= before, "{} after {before}", read[0]);
            before = read[0];
        }
        writer.join().unwrap();
        assert_eq!(page.read(), [199_999; 32]);
        assert_eq!(page.writes(), 200_001);
    }

    #[test]
    fn a_writer_that_stands_still_in_the_middle_holds_up_no_reader() {
        let page = Page::<Many>::default();
        page.publish(&[7; 32]);
        page.version.fetch_or(1, Ordering::Relaxed);
        page.words[0].store(8, Ordering::Relaxed);
        let read = page.read();
        assert_eq!((read[0], read[1]), (8, 7), "the words as they are");
        page.publish(&[9; 32]);
        assert_eq!((page.read(), page.version.load(Ordering::Relaxed) & 1), ([9; 32], 0));
    }
}
