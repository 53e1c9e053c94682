//! Changes of the state that a watch delivers, with the changes of other controllers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::sleep;

use super::client::Client;
use super::wire::{Event, WatchCreateRequest};
use super::{Generation, Keys};

/// Largest size, in bytes, of changes that wait to be read. If this is exceeded, the whole state is
/// loaded again.
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Pause between the end of a watch and the next watch.
const WATCH_PAUSE: Duration = Duration::from_millis(50);

/// The changes of one revision.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) revision: i64,
    pub(super) events: Vec<Event>,
    bytes: usize,
}

/// Changes that the controller has not read yet.
#[derive(Debug)]
pub(super) struct Inbox {
    keys: Keys,
    /// Identifier of this controller, whose own changes are not signalled, except those of an
    /// unknown outcome.
    own: String,
    /// Whether a transaction of this controller has an unknown outcome.
    is_uncertain: AtomicBool,
    state: Mutex<Queue>,
    changed: Condvar,
    /// Signal that there are changes of other controllers.
    pub(super) news: Arc<Notify>,
    /// Signal to watch at another member.
    pub(super) restart: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Batch>,
    bytes: usize,
    /// Last revision of the generation that has arrived.
    seen: i64,
    /// Whether changes are missing.
    is_lost: bool,
}

impl Inbox {
    pub(super) fn new(keys: Keys, own: String, news: Arc<Notify>) -> Self {
        let (state, changed, restart) = (Mutex::default(), Condvar::new(), Notify::new());
        Self { keys, own, is_uncertain: AtomicBool::new(false), state, changed, news, restart }
    }

    /// Whether a transaction of this controller has an unknown outcome.
    pub(super) fn is_uncertain(&self) -> bool {
        self.is_uncertain.load(Ordering::Relaxed)
    }

    /// Sets whether a transaction of this controller has an unknown outcome. Its changes may have
    /// arrived already, so this is signalled.
    pub(super) fn set_uncertain(&self, is_uncertain: bool) {
        self.is_uncertain.store(is_uncertain, Ordering::Relaxed);
        if is_uncertain {
            self.news.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self) {
        let mut state = self.lock();
        *state = Queue { is_lost: true, ..Queue::default() };
        self.changed.notify_all();
        self.news.notify_one();
    }

    /// Adds the changes of a revision.
    fn push(&self, revision: i64, events: Vec<Event>) {
        let bytes = events.iter().filter_map(|event| event.kv.as_ref());
        let bytes: usize = bytes.map(|kv| kv.key.len() + kv.value.len()).sum();
        let mut state = self.lock();
        if state.is_lost {
            return;
        }
        if state.bytes + bytes > QUEUE_BYTES_MAX {
            drop(state);
            self.lose();
            return;
        }
        let generation = events.iter().filter_map(|event| event.kv.as_ref());
        let generation = generation.into_iter().find(|kv| kv.key == self.keys.generation());
        let mut is_own = false;
        if let Some(kv) = generation {
            state.seen = revision;
            let made = Generation::parse(&kv.value).ok();
            is_own = made.is_some_and(|generation| generation.is_last(&self.own));
        }
        state.bytes += bytes;
        state.batches.push_back(Batch { revision, events, bytes });
        self.changed.notify_all();
        if !is_own || self.is_uncertain() {
            self.news.notify_one();
        }
    }

    /// Removes the changes up to the revision `known`, which the controller has already read.
    pub(super) fn discard(&self, known: i64) {
        let mut state = self.lock();
        while state.batches.front().is_some_and(|batch| batch.revision <= known) {
            let bytes = state.batches.pop_front().map_or(0, |batch| batch.bytes);
            state.bytes -= bytes;
        }
    }

    /// Waits until the watch has delivered this revision of the generation, for at most `wait`.
    /// Returns all changes that it has delivered; `None` if changes are missing.
    ///
    /// # Errors
    /// If the revision was not delivered in time.
    pub(super) fn take(&self, revision: i64, wait: Duration) -> Result<Option<Vec<Batch>>, ()> {
        let until = Instant::now() + wait;
        let mut state = self.lock();
        loop {
            if state.is_lost {
                return Ok(None);
            }
            if state.seen >= revision {
                state.bytes = 0;
                return Ok(Some(state.batches.drain(..).collect()));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(());
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Watches all keys of a state from a revision on, and watches again when a watch ends. Ends if
/// changes are missing.
pub(super) async fn watch(client: Arc<Client>, inbox: Arc<Inbox>, mut next: i64) {
    let (key, range_end) = inbox.keys.all();
    loop {
        let create = WatchCreateRequest {
            key: key.clone(),
            range_end: range_end.clone(),
            start_revision: next,
            fragment: true,
        };
        if let Ok(mut watch) = client.watch(create).await {
            let mut events = Vec::new();
            loop {
                let answer = tokio::select! {
                    answer = watch.next() => answer,
                    () = inbox.restart.notified() => None,
                };
                let Some(answer) = answer else { break };
                if answer.compact_revision != 0 {
                    inbox.lose();
                    return;
                }
                if answer.canceled {
                    break;
                }
                events.extend(answer.events);
                if !answer.fragment {
                    next = deliver(&inbox, std::mem::take(&mut events), next);
                }
            }
            watch.leave();
        }
        sleep(WATCH_PAUSE).await;
    }
}

/// Delivers changes, one batch for each revision, and returns the next revision.
fn deliver(inbox: &Inbox, events: Vec<Event>, mut next: i64) -> i64 {
    let revision_of = |event: &Event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
    let mut events = events.into_iter().peekable();
    while let Some(revision) = events.peek().map(revision_of) {
        let mut batch = Vec::new();
        while let Some(event) = events.next_if(|event| revision_of(event) == revision) {
            batch.push(event);
        }
        inbox.push(revision, batch);
        next = revision + 1;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::etcd::wire::KeyValue;

    fn event(keys: &Keys, key: Vec<u8>, revision: i64, size: usize) -> Event {
        let value = match key == keys.generation() {
            true => Generation::default().text(),
            false => vec![b'x'; size],
        };
        Event { kind: 0, kv: Some(KeyValue { key, mod_revision: revision, value }) }
    }

    fn inbox() -> (Keys, Inbox) {
        let keys = Keys::new("/test/");
        (keys.clone(), Inbox::new(keys, "own".to_owned(), Arc::default()))
    }

    #[test]
    fn changes_come_in_batches_of_one_revision() {
        let (keys, inbox) = inbox();
        let state = |revision| event(&keys, keys.state("a"), revision, 3);
        let events = vec![state(5), event(&keys, keys.generation(), 5, 0), state(7)];
        assert_eq!(deliver(&inbox, events, 5), 8);
        assert!(inbox.take(6, Duration::ZERO).is_err());
        let batches = inbox.take(5, Duration::ZERO).unwrap().unwrap();
        let sizes: Vec<_> = batches.iter().map(|of| (of.revision, of.events.len())).collect();
        assert_eq!(sizes, [(5, 2), (7, 1)]);
        deliver(&inbox, vec![state(8), state(9)], 8);
        inbox.discard(8);
        let batches = inbox.take(5, Duration::ZERO).unwrap().unwrap();
        assert_eq!(batches.iter().map(|of| of.revision).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn changes_that_nobody_takes_are_bounded() {
        let (keys, inbox) = inbox();
        let size = 1 << 20;
        for revision in 1..=64 {
            deliver(&inbox, vec![event(&keys, keys.state("a"), revision, size)], revision);
        }
        assert!(inbox.take(0, Duration::ZERO).unwrap().is_none());
        assert_eq!(inbox.lock().bytes, 0);
    }
}
