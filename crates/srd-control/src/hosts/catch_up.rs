//! The changes of other controllers, which the store is read for before a session gets its part.
//!
//! All sessions share the reads: there is one at a time, and one in each [`PAUSE`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use srd_enrol::{Refusal, RefusalKind};
use tokio::sync::Mutex;

/// Shortest time between two reads.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// The last read: the time of its begin, and its result.
type Last = Option<(Instant, Result<(), Refusal>)>;

/// The reads of all sessions.
#[derive(Debug, Default)]
pub(super) struct CatchUp(Arc<Mutex<Last>>);

impl CatchUp {
    /// Returns the result of a read that has begun after this call. `read` waits for the store.
    ///
    /// # Errors
    /// The error of the read.
    pub(super) async fn take(
        &self,
        read: impl FnOnce() -> Result<(), Refusal> + Send + 'static,
    ) -> Result<(), Refusal> {
        let called = Instant::now();
        let mut last = Arc::clone(&self.0).lock_owned().await;
        if let Some((begun, result)) = &*last {
            if *begun >= called {
                return result.clone();
            }
            tokio::time::sleep(PAUSE.saturating_sub(begun.elapsed())).await;
        }
        // If the caller drops this future, the read goes on, and the next one waits for its end.
        let reads = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let result = read();
            *last = Some((begun, result.clone()));
            result
        });
        let defect = || Refusal::new(RefusalKind::Unavailable, "the request has ended in a defect");
        reads.await.unwrap_or_else(|_| Err(defect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Each session read the store, also if its connection had ended.
    #[test]
    fn regression_sessions_share_the_reads_of_the_store() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (catch_up, reads) = (Arc::new(CatchUp::default()), Arc::new(AtomicU32::new(0)));
        let reader = || {
            let reads = Arc::clone(&reads);
            move || {
                reads.fetch_add(1, Ordering::Relaxed);
                Ok::<(), Refusal>(())
            }
        };
        runtime.block_on(async {
            // Connections that end again and again while they wait.
            for _ in 0..100 {
                let _ = tokio::time::timeout(Duration::ZERO, catch_up.take(reader())).await;
            }
            let begun = reads.load(Ordering::Relaxed);
            let sessions: Vec<_> = (0..100)
                .map(|_| {
                    let (catch_up, read) = (Arc::clone(&catch_up), reader());
                    tokio::spawn(async move { catch_up.take(read).await })
                })
                .collect();
            for session in sessions {
                session.await.unwrap().unwrap();
            }
            // A read of the connections that have ended may count, too, and a busy machine may
            // begin some sessions later.
            assert!(reads.load(Ordering::Relaxed) <= begun + 10);
        });
    }

    #[test]
    fn a_read_that_fails_is_made_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let catch_up = CatchUp::default();
        let fails = || Err(Refusal::new(RefusalKind::Unavailable, "no store"));
        runtime.block_on(async {
            catch_up.take(fails).await.unwrap_err();
            catch_up.take(|| Ok(())).await.unwrap();
        });
    }
}
