//! Figures as pages. A page is memory into which the thread that moves packets copies plain
//! numbers, and which any other thread may read. Readers format the numbers on their own threads.
//!
//! ```text
//!  reader: requests new figures, wakes the loop       packet thread: writes some rows in each turn
//!          waits for them, but not for ever   <------ pages: counters of each interface, of each
//!          Status, OpenMetrics, JSON                  other host, and of the card
//! ```
//!
//! A row holds the figures of one interface or of one other host; the totals of the card are one
//! more row. A turn is one pass of the packet thread's loop. A sweep writes every row once, over
//! several turns. Whatever the number of readers, one sweep serves all readers that requested
//! figures before it began. The packet thread takes no lock that a reader may hold: it stores texts
//! (the [`directory`]) by [`Slot::try_put`], and tries again in the next turn if that fails.
//! Without readers it writes nothing.
//!
//! A reader gets figures that are newer than its request. If the packet thread does not write them
//! within [`WRITTEN_WITHIN`], the reader gets the last figures, with their age.
//!
//! Bounds: one row for each interface and each other host, and [`directory::LOST_MAX`] causes of
//! losses.
//!
//! | module | content |
//! |---|---|
//! | [`directory`] | names of the objects in rows |
//! | [`figures`] | figures as 64-bit words |
//! | [`publisher`] | selection of the rows that a turn writes |
//! | [`read`] | a status from all pages |

pub(crate) mod directory;
pub(crate) mod figures;
pub(crate) mod publisher;
pub(crate) mod read;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant as WallInstant};

use anyhow::{Result, bail};
use srd_net::clock;
use srd_net::page::Page;
use srd_proto::time::Instant;

use self::directory::{Directory, LostNames};

/// Longest wait of a reader for new figures. After this time it gets older figures. A client waits
/// a second longer for its answer.
pub(crate) const WRITTEN_WITHIN: Duration = Duration::from_secs(4);
/// Longest pause between two checks of a waiting reader, because a wake-up may be lost.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A value that one thread replaces without waiting for the readers.
#[derive(Debug, Default)]
pub(crate) struct Slot<T>(Mutex<T>);

impl<T: Clone> Slot<T> {
    /// Replaces the value, unless a reader holds the lock now.
    pub(crate) fn try_put(&self, value: T) -> Result<(), T> {
        let mut place = match self.0.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(place)) => place.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(value),
        };
        let before = std::mem::replace(&mut *place, value);
        drop(place);
        drop(before);
        Ok(())
    }

    pub(crate) fn get(&self) -> T {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The figures of a card, and the state that readers and the packet thread share.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) directory: Slot<Arc<Directory>>,
    /// Figures of the card as a whole.
    pub(crate) totals: Page,
    pub(crate) lost_names: LostNames,
    /// Error of the last attempt to create the deleted device of the internet's side; `None` if no
    /// attempt has failed.
    pub(crate) edge_failed: Slot<Option<Arc<str>>>,
    /// Number of the last sweep that a reader has requested.
    wanted: AtomicU64,
    /// Number of the last sweep that has begun.
    begun: AtomicU64,
    /// Number of the last sweep that has ended; 0 before the first sweep.
    ended: AtomicU64,
    /// End of the last sweep, in nanoseconds of the machine's clock.
    ended_ns: AtomicU64,
    /// Whether the packet thread has ended, so that no sweep follows.
    is_over: AtomicBool,
    /// Lock with which readers wait for the end of a sweep. The packet thread never takes it.
    waiting: Mutex<()>,
    written: Condvar,
}

/// Age of the figures in seconds if they are older than the request; otherwise `None`.
pub(crate) type Stale = Option<f64>;

impl Pages {
    pub(crate) fn new() -> Self {
        Self {
            directory: Slot::default(),
            totals: Page::new(figures::totals_words()),
            lost_names: LostNames::default(),
            edge_failed: Slot::default(),
            wanted: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            ended_ns: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            waiting: Mutex::default(),
            written: Condvar::new(),
        }
    }

    /// Waits for figures that are newer than this call, at most `within`. `wake` wakes the packet
    /// thread.
    ///
    /// # Errors
    /// The card has ended, or has not written any figures yet.
    pub(crate) fn refresh(&self, wake: impl Fn(), within: Duration) -> Result<Stale> {
        let until = WallInstant::now() + within;
        // A sweep that has begun has already passed some rows.
        let ticket = self.begun.load(Ordering::SeqCst) + 1;
        self.wanted.fetch_max(ticket, Ordering::SeqCst);
        wake();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.ended.load(Ordering::Acquire) >= ticket {
                return Ok(None);
            }
            if self.is_over.load(Ordering::Relaxed) {
                bail!("the service has ended");
            }
            let left = until.saturating_duration_since(WallInstant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.written.wait_timeout(waiting, left.min(LOOK_EVERY));
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if self.ended.load(Ordering::Acquire) == 0 {
            bail!("the card has not begun to move packets");
        }
        let since = Instant::from_nanos(self.ended_ns.load(Ordering::Relaxed));
        let age_ns = clock::now().since(since).as_nanos();
        Ok(Some(Duration::from_nanos(age_ns).as_secs_f64()))
    }

    /// Records the end of the packet thread, so that readers do not wait for it.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.written.notify_all();
    }

    /// Whether a reader waits for a sweep that has not begun.
    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > self.begun.load(Ordering::SeqCst)
    }

    /// Records the start of a sweep.
    fn begin(&self) {
        self.begun.store(self.wanted.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Records the end of the sweep, and wakes the readers.
    fn written(&self, now: Instant) {
        self.ended_ns.store(now.as_nanos(), Ordering::Relaxed);
        self.ended.store(self.begun.load(Ordering::Relaxed), Ordering::Release);
        // No lock is held. If a reader misses this wake-up, it checks again soon.
        self.written.notify_all();
    }

    /// Makes one sweep, as a packet thread does when a reader waits.
    #[cfg(test)]
    pub(crate) fn sweep(&self) {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        self.begin();
        self.written(clock::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const AT_ONCE: Duration = Duration::ZERO;

    fn sweep(pages: &Pages) {
        pages.begin();
        pages.written(clock::now());
    }

    #[test]
    fn a_reader_waits_for_a_sweep_that_begins_after_its_question() {
        let pages = Pages::new();
        assert!(!pages.is_wanted(), "nobody reads");
        let error = pages.refresh(|| (), AT_ONCE).unwrap_err().to_string();
        assert!(error.contains("has not begun"), "{error}");
        assert!(pages.is_wanted());
        // The second request comes after the start of a sweep, which has already passed some rows.
        pages.begin();
        assert!(!pages.is_wanted());
        let late = thread::scope(|scope| {
            let reader = scope.spawn(|| pages.refresh(|| (), Duration::from_secs(60)));
            while !pages.is_wanted() {
                thread::yield_now();
            }
            pages.written(clock::now());
            assert!(!reader.is_finished() || pages.ended.load(Ordering::Relaxed) > 1);
            sweep(&pages);
            reader.join().unwrap().unwrap()
        });
        assert_eq!(late, None);
        assert_eq!(pages.ended.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn one_sweep_serves_all_that_asked_before_it() {
        const READERS: usize = 40;
        let pages = Pages::new();
        let wakes = AtomicU64::new(0);
        let wake = || {
            wakes.fetch_add(1, Ordering::SeqCst);
        };
        thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|_| scope.spawn(|| pages.refresh(wake, Duration::from_secs(60))))
                .collect();
            while wakes.load(Ordering::SeqCst) < READERS as u64 {
                thread::yield_now();
            }
            sweep(&pages);
            assert!(readers.into_iter().all(|reader| reader.join().unwrap().unwrap().is_none()));
        });
        assert_eq!(pages.ended.load(Ordering::Relaxed), 1);
        assert!(!pages.is_wanted());
    }

    #[test]
    fn while_the_packet_thread_stands_still_a_reader_is_told_how_old_figures_are() {
        let pages = Pages::new();
        pages.wanted.store(1, Ordering::SeqCst);
        pages.begin();
        let then = clock::now().as_nanos() - 3_000_000_000;
        pages.written(Instant::from_nanos(then));
        let stale = pages.refresh(|| (), Duration::from_millis(20)).unwrap();
        assert!(stale.is_some_and(|age_s| age_s > 3.0), "{stale:?}");
        // After the sweep, the next figures are new.
        sweep(&pages);
        pages.wanted.fetch_add(1, Ordering::SeqCst);
        pages.end();
        let error = pages.refresh(|| (), Duration::from_secs(60)).unwrap_err().to_string();
        assert!(error.contains("has ended"), "{error}");
    }

    #[test]
    fn a_place_that_a_reader_is_at_is_left_as_it_is() {
        let slot = Slot::default();
        slot.try_put(7).unwrap();
        let reader = slot.0.lock().unwrap();
        assert_eq!(slot.try_put(8), Err(8));
        drop(reader);
        assert_eq!((slot.get(), slot.try_put(8)), (7, Ok(())));
        assert_eq!(slot.get(), 8);
    }
}
