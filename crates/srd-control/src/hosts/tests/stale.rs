//! Controllers beside each other, of which one has not read the store for a while.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::store::{CommitError, KeyChange, News};

/// The list of all transactions, which several controllers use. While it is away, it cannot be
/// read or written. While it is full, it cannot be written. While it is held, calls wait.
#[derive(Clone, Default)]
pub(super) struct SharedStore {
    log: Arc<Mutex<Vec<Vec<KeyChange>>>>,
    known: usize,
    is_away: Arc<AtomicBool>,
    is_full: Arc<AtomicBool>,
    held: Arc<Mutex<()>>,
}

impl SharedStore {
    pub(super) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    pub(super) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Makes calls wait until the result is dropped.
    pub(super) fn hold(&self) -> MutexGuard<'_, ()> {
        self.held.lock().unwrap()
    }

    fn check(&self) -> Result<(), String> {
        drop(self.held.lock().unwrap());
        let is_away = self.is_away.load(Ordering::Relaxed);
        if is_away { Err("the store does not answer".to_owned()) } else { Ok(()) }
    }
}

impl Store for SharedStore {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        self.check()?;
        let log = self.log.lock().unwrap();
        self.known = log.len();
        let mut all = MemoryStore::default();
        log.iter().for_each(|changes| all.commit(changes.clone()).unwrap());
        all.load()
    }

    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
        self.check().map_err(CommitError::Failed)?;
        if self.is_full.load(Ordering::Relaxed) {
            return Err(CommitError::Failed("no space is left".to_owned()));
        }
        let mut log = self.log.lock().unwrap();
        if self.known != log.len() {
            return Err(CommitError::Conflict);
        }
        log.push(changes);
        self.known = log.len();
        Ok(())
    }

    fn refresh(&mut self) -> Result<News, String> {
        self.check()?;
        let log = self.log.lock().unwrap();
        let new = log[self.known..].concat();
        self.known = log.len();
        Ok(News::Changes(new))
    }
}

/// A controller that serves hosts, and one beside it.
fn pair(store: &SharedStore) -> (Server, Control) {
    let server = Server::with("10.77.0.0/16", Box::new(store.clone()));
    let store = Box::new(store.clone());
    let beside = Control::new(Access::AnyCredentials, 2, store, Box::new(NoMachines));
    (server, beside.unwrap())
}

/// Sends the first message of a host, and returns the kind of its refusal.
fn ask(server: &Server, own: &Node, message: &FromHost) -> Result<(), RefusalKind> {
    let mut client = server.connect(&own.identity);
    client.send(message);
    client.receive().map(drop).map_err(|refusal| refusal.reason)
}

/// Such a host ended all its instances, and a new host with a valid token did not start.
#[test]
fn regression_a_host_that_another_controller_has_admitted_is_known() {
    let (server, mut beside) = pair(&SharedStore::default());
    let options = TokenOptions { uses: 2, ..ONE };
    let token = beside.decide(|table| table.create_token(options, now_s())).unwrap();
    let [a, b] = [("a", 1), ("b", 2)].map(|(name, number)| Node::new(name, number));
    beside.decide(|table| table.enrol(&a.request(&token), now_s())).unwrap();
    assert_eq!(ask(&server, &a, &a.follow(0)), Ok(()));
    let token = beside.decide(|table| table.create_token(ONE, now_s())).unwrap();
    assert_eq!(ask(&server, &b, &b.enrol(&token)), Ok(()));
    // A key that is free again.
    beside.decide(|table| table.remove("b")).unwrap();
    let mut client = server.connect(&a.identity);
    client.send(&a.follow(0));
    assert!(matches!(client.receive(), Ok(FromController::Welcome { .. })));
    client.send(&FromHost::NextKey { public_key: key(2) });
    loop {
        match client.receive().unwrap() {
            FromController::KeyStored { .. } => break,
            FromController::Snapshot { .. } | FromController::Delta { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_controller_without_its_store_refuses_no_host_for_good() {
    let store = SharedStore::default();
    let (server, mut beside) = pair(&store);
    let options = TokenOptions { uses: 2, ..ONE };
    let token = beside.decide(|table| table.create_token(options, now_s())).unwrap();
    let [a, b] = [("a", 1), ("b", 2)].map(|(name, number)| Node::new(name, number));
    beside.decide(|table| table.enrol(&a.request(&token), now_s())).unwrap();
    store.set_away(true);
    assert_eq!(ask(&server, &a, &a.follow(0)), Err(RefusalKind::Unavailable));
    assert_eq!(ask(&server, &b, &b.enrol(&token)), Err(RefusalKind::Unavailable));
    store.set_away(false);
    assert_eq!(ask(&server, &a, &a.follow(0)), Ok(()));
    assert_eq!(ask(&server, &b, &b.enrol(&token)), Ok(()));
}
