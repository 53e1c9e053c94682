//! A cache of snapshots, so that many requests at once cause only few snapshots.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::plane::{Detail, PlaneError, PlaneHandle};
use crate::snapshot::Snapshot;

/// Shortest time between two snapshots.
pub const PLANE_PAUSE: Duration = Duration::from_millis(20);
/// Greatest age at which a snapshot is returned for another request.
pub const AGE_MAX: Duration = Duration::from_millis(250);
/// Largest number of snapshots in the cache; they differ in their detail.
pub const KEPT_MAX: usize = 8;

/// The most recent snapshots.
#[derive(Debug)]
pub(super) struct Cache {
    plane: PlaneHandle,
    /// Snapshots, the newest last. The lock is held while a snapshot is made, so other readers wait
    /// for it.
    kept: Mutex<Vec<CachedSnapshot>>,
}

#[derive(Debug)]
struct CachedSnapshot {
    detail: Detail,
    at: Instant,
    snapshot: Arc<Snapshot>,
}

impl Cache {
    pub(super) fn new(plane: PlaneHandle) -> Self {
        Self { plane, kept: Mutex::new(Vec::new()) }
    }

    /// Returns a snapshot that is at most [`AGE_MAX`] old, from the cache or newly created.
    pub(super) fn snapshot(&self, detail: Detail) -> Result<Arc<Snapshot>, PlaneError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_good = |k: &&CachedSnapshot| k.detail == detail && k.at.elapsed() <= AGE_MAX;
        if let Some(good) = kept.iter().find(is_good) {
            return Ok(Arc::clone(&good.snapshot));
        }
        if let Some(newest) = kept.last() {
            thread::sleep(PLANE_PAUSE.saturating_sub(newest.at.elapsed()));
        }
        let snapshot = Arc::new(self.plane.snapshot(&detail)?);
        kept.retain(|k| k.detail != detail);
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        kept.push(CachedSnapshot { detail, at: Instant::now(), snapshot: Arc::clone(&snapshot) });
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_plane::FakePlane;
    use crate::plane::PathsOf;

    #[test]
    fn a_young_snapshot_is_shared_and_an_old_one_is_not() {
        let plane = FakePlane::start();
        // If the machine pauses between the two requests, the first snapshot becomes too old, and
        // the test tries again.
        let both = |_| {
            let cache = Cache::new(plane.handle.clone());
            let began = Instant::now();
            let [first, second] = [(); 2].map(|()| cache.snapshot(Detail::default()).unwrap());
            (began.elapsed() <= AGE_MAX).then_some((cache, first, second))
        };
        let (cache, first, second) = (0..100).find_map(both).expect("two questions in a row");
        assert!(Arc::ptr_eq(&first, &second));
        thread::sleep(AGE_MAX + Duration::from_millis(10));
        let began = Instant::now();
        let third = cache.snapshot(Detail::default()).unwrap();
        assert!(!Arc::ptr_eq(&first, &third));
        // The counters grow on a thread of the fake daemon, independently of this test.
        let pkts = |snapshot: &Snapshot| snapshot.counters.ena_srd_tx_pkts;
        while pkts(&cache.snapshot(Detail::default()).unwrap()) <= pkts(&first) {
            assert!(began.elapsed() < Duration::from_secs(60), "an old one is shared");
            thread::sleep(PLANE_PAUSE);
        }
    }

    #[test]
    fn asking_for_ever_other_things_does_not_hurry_the_plane_nor_fill_memory() {
        let plane = FakePlane::start();
        let cache = Cache::new(plane.handle.clone());
        let (began, asked) = (Instant::now(), 12_u32);
        for n in 0..asked {
            let paths = PathsOf::Peer(n.to_string());
            cache.snapshot(Detail { paths, flows_max: 0 }).unwrap();
        }
        assert!(began.elapsed() >= PLANE_PAUSE * (asked - 1));
        assert_eq!(cache.kept.lock().unwrap().len(), KEPT_MAX);
    }
}
