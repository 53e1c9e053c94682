//! One page: words that one thread writes and any thread reads, without a lock.
//!
//! ```text
//!   version   odd while the page is being written
//!   words     the figures, each a relaxed atomic
//! ```
//!
//! The writer never waits. A reader that reads a page during a write reads the page again, at most
//! `READS_MAX` times. Then it accepts the words of the last attempt: some values may be one refresh
//! older than other values. A single word is never torn, so in either case a counter that only
//! increases never decreases for a reader.

use std::slice::Iter;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

/// Largest number of attempts to read a page that is being written.
const READS_MAX: usize = 128;
/// Number of attempts without a pause. Later attempts are separated by [`PAUSE`]: the writer's
/// thread was probably interrupted during a write.
const READS_AT_ONCE: usize = 64;
/// Pause between two late attempts to read a page.
const PAUSE: Duration = Duration::from_micros(100);

/// A fixed number of words that one thread writes and any thread reads, without a lock.
#[derive(Debug)]
pub struct Page {
    version: AtomicU64,
    words: Box<[AtomicU64]>,
}

/// Writes the words of a page, in their order.
#[derive(Debug)]
pub struct Writer<'a>(Iter<'a, AtomicU64>);

impl Writer<'_> {
    /// Writes the next word. A word beyond the end of the page is dropped.
    #[inline]
    pub fn put(&mut self, word: u64) {
        if let Some(place) = self.0.next() {
            place.store(word, Ordering::Relaxed);
        }
    }
}

/// Reads the words of a page, in their order.
#[derive(Debug)]
pub struct Reader<'a>(Iter<'a, AtomicU64>);

impl Reader<'_> {
    /// Returns the next word; zero beyond the end of the page.
    #[inline]
    pub fn take(&mut self) -> u64 {
        self.0.next().map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

impl Page {
    /// Returns a page of this many words, all zero.
    pub fn new(words: usize) -> Self {
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { version: AtomicU64::new(0), words }
    }

    /// Returns the number of words in the page.
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// Writes the page: calls `put`, which writes the words in order. Only one thread may write a
    /// page.
    pub fn write(&self, put: impl FnOnce(&mut Writer<'_>)) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        put(&mut Writer(self.words.iter()));
        self.version.store((version | 1).wrapping_add(1), Ordering::Release);
    }

    /// Reads the page: calls `take`, which reads the words in order, and returns its result. If the
    /// page is written at the same time, `take` is called again.
    pub fn read<T>(&self, take: impl Fn(&mut Reader<'_>) -> T) -> T {
        let read_once = || take(&mut Reader(self.words.iter()));
        for tries in 1..READS_MAX {
            let version = self.version.load(Ordering::Acquire);
            let figures = read_once();
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
        read_once()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    const WORDS: usize = 32;

    fn write(page: &Page, words: [u64; WORDS]) {
        page.write(|to| words.into_iter().for_each(|word| to.put(word)));
    }

    fn read(page: &Page) -> [u64; WORDS] {
        page.read(|from| std::array::from_fn(|_| from.take()))
    }

    #[test]
    fn a_reader_sees_the_words_of_one_moment_and_counters_never_fall() {
        let page = Arc::new(Page::new(WORDS));
        let is_over = Arc::new(AtomicBool::new(false));
        let (written, over) = (Arc::clone(&page), Arc::clone(&is_over));
        let writer = std::thread::spawn(move || {
            for n in 0..5000 {
                write(&written, [n; WORDS]);
                std::thread::sleep(Duration::from_micros(10));
            }
            over.store(true, Ordering::Relaxed);
        });
        let (mut before, mut reads, mut torn) = ([0; WORDS], 0_u64, 0_u64);
        while !is_over.load(Ordering::Relaxed) {
            let began = std::time::Instant::now();
            let read = read(&page);
            let took = began.elapsed();
            let falls = read.iter().zip(&before).any(|(now, before)| now < before);
            assert!(!falls, "{read:?} after {before:?}");
            before = read;
            reads += 1;
            // A reader waits for a writer whose thread was interrupted during a write, and after
            // the last attempt accepts the words.
            let waits = PAUSE * u32::try_from(READS_MAX - READS_AT_ONCE).unwrap();
            torn += u64::from(read.iter().any(|word| *word != read[0]) && took < waits);
        }
        writer.join().unwrap();
        assert_eq!(torn, 0, "of {reads} so many are of two moments");
        let writes = page.version.load(Ordering::Relaxed) / 2;
        assert_eq!((read(&page), writes), ([4999; WORDS], 5000));
    }

    #[test]
    fn a_writer_that_stands_still_in_the_middle_holds_up_no_reader() {
        let page = Page::new(WORDS);
        write(&page, [7; WORDS]);
        page.version.fetch_or(1, Ordering::Relaxed);
        page.words[0].store(8, Ordering::Relaxed);
        let found = read(&page);
        assert_eq!((found[0], found[1]), (8, 7), "the words as they are");
        write(&page, [9; WORDS]);
        assert_eq!((read(&page), page.version.load(Ordering::Relaxed) & 1), ([9; WORDS], 0));
    }

    #[test]
    fn words_beyond_the_end_are_left_out_and_read_as_zero() {
        let page = Page::new(2);
        page.write(|to| (1..=3).for_each(|word| to.put(word)));
        assert_eq!(page.read(|from| [from.take(), from.take(), from.take()]), [1, 2, 0]);
        assert_eq!(page.words(), 2);
    }
}
