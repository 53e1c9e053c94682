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
use std::time::Duration;

use super::figure::Figure;

/// Times that a reader tries to read a page that is being written.
const READS_MAX: usize = 128;
/// From which on it waits in between: the writer was kept from running in the middle of a page.
const READS_AT_ONCE: usize = 64;
/// For how long.
const PAUSE: Duration = Duration::from_micros(100);

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
        for tries in 1..READS_MAX {
            let version = self.version.load(Ordering::Acquire);
            let figures = self.read_once();
            fence(Ordering::Acquire);
            if version & 1 == 0 && self.version.load(Ordering::Relaxed) == version {
                return figures;
            }
            if tries < READS_AT_ONCE {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(PAUSE);
            }
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
            for n in 0..5000 {
                written.publish(&[n; 32]);
                std::thread::sleep(Duration::from_micros(10));
            }
            over.store(true, Ordering::Relaxed);
        });
        let (mut before, mut reads, mut torn) = ([0; 32], 0_u64, 0_u64);
        while !is_over.load(Ordering::Relaxed) {
            let began = std::time::Instant::now();
            let read = page.read();
            let took = began.elapsed();
            let falls = read.iter().zip(&before).any(|(now, before)| now < before);
            assert!(!falls, "{read:?} after {before:?}");
            before = read;
            reads += 1;
            // A reader waits for a writer that is kept from running in the middle of a page, and
            // takes the words as they are in the end.
            let waits = PAUSE * u32::try_from(READS_MAX - READS_AT_ONCE).unwrap();
            torn += u64::from(read.iter().any(|word| *word != read[0]) && took < waits);
        }
        writer.join().unwrap();
        assert_eq!(torn, 0, "of {reads} so many are of two moments");
        assert_eq!((page.read(), page.writes()), ([4999; 32], 5001));
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
