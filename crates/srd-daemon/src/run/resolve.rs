//! Resolves host names of peers to addresses, on threads other than the control thread.
//!
//! ```text
//!   control thread                                    a thread of the resolver
//!   Lookup::poll: the peer does not answer -- ask -->  getaddrinfo, which may take long
//!   Lookup::answered                       <-------    addresses, or an error
//!   Lookup::poll: try the first, the next, ... and resolve the name again
//! ```
//!
//! A name is resolved when the daemon starts, and whenever the peer does not answer. Each of its
//! addresses is tried in turn for `TRY`; after the last address, the name is resolved again. As
//! long as a peer answers, its address is not changed.
//!
//! Bounds: at most `THREADS` names are resolved at once. One request for each peer may wait. The
//! time between two requests for a name grows from `BACKOFF_MIN` to `BACKOFF_MAX`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};
use srd_proto::{Duration, Instant};

use crate::config::{HostPort, PEERS_MAX};

/// Number of threads, and so of names that are resolved at once.
const THREADS: usize = 4;
/// Time after which the next address is tried, if the peer has not answered at the present address.
const TRY: Duration = Duration::from_secs(3);
/// Pause between two requests for a name. It grows from the first value to the second,
/// `BACKOFF_MAX`, while the peer does not answer.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Result of the resolution of a name: addresses, or an error text.
pub(crate) type Resolution = std::result::Result<Vec<SocketAddr>, String>;
/// Function that resolves a host name.
type Resolve = dyn Fn(&HostPort) -> Resolution + Send + Sync;

/// Handle of the threads that resolve host names.
#[derive(Debug)]
pub(crate) struct Resolver {
    requests: SyncSender<HostPort>,
    answers: Receiver<(HostPort, Resolution)>,
    /// Number of requests that were not answered yet.
    outstanding: usize,
}

impl Resolver {
    /// Starts the threads. After each answer they call `wake`.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(resolve: Arc<Resolve>, wake: Arc<dyn Fn() + Send + Sync>) -> Result<Self> {
        let (requests, wanted) = mpsc::sync_channel(PEERS_MAX);
        let (found, answers) = mpsc::channel();
        let wanted = Arc::new(Mutex::new(wanted));
        for _ in 0..THREADS {
            let (wanted, found) = (Arc::clone(&wanted), found.clone());
            let (resolve, wake) = (Arc::clone(&resolve), Arc::clone(&wake));
            let work = move || answer(&wanted, &found, &*resolve, &*wake);
            let thread = thread::Builder::new().name("srd-resolver".into()).spawn(work);
            thread.context("cannot start a thread that resolves names")?;
        }
        Ok(Self { requests, answers, outstanding: 0 })
    }

    /// Requests the resolution of a name. Returns false if the queue of requests is full.
    pub(crate) fn ask(&mut self, host: &HostPort) -> bool {
        let is_taken = match self.requests.try_send(host.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        };
        self.outstanding += usize::from(is_taken);
        is_taken
    }

    /// Returns the next answer, if one has arrived.
    pub(crate) fn next(&mut self) -> Option<(HostPort, Resolution)> {
        if self.outstanding == 0 {
            return None;
        }
        let answer = self.answers.try_recv().ok()?;
        self.outstanding -= 1;
        Some(answer)
    }
}

/// Work of one thread: resolves names until the [`Resolver`] is dropped.
fn answer(
    wanted: &Mutex<Receiver<HostPort>>,
    found: &Sender<(HostPort, Resolution)>,
    resolve: &Resolve,
    wake: &(dyn Fn() + Send + Sync),
) {
    loop {
        let next = wanted.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(host) = next else { return };
        let result = resolve(&host);
        if found.send((host, result)).is_err() {
            return;
        }
        wake();
    }
}

/// The next step in resolving the name of a peer and trying its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// There is nothing to do at present.
    Wait,
    /// The name has to be resolved.
    Ask,
    /// Connect to the peer at this address.
    Try(SocketAddr),
}

/// The host name of one peer, and the progress in trying its addresses.
#[derive(Clone, Debug)]
pub(super) struct Lookup {
    pub(super) host: HostPort,
    /// Error text of the last resolution; empty if it succeeded.
    pub(super) error: String,
    untried: VecDeque<SocketAddr>,
    is_asking: bool,
    /// Earliest time of the next step.
    at: Instant,
    backoff: Duration,
}

impl Lookup {
    pub(super) fn new(host: HostPort) -> Self {
        Self {
            host,
            error: String::new(),
            untried: VecDeque::new(),
            is_asking: false,
            at: Instant::ZERO,
            backoff: BACKOFF_MIN,
        }
    }

    /// Returns the next step. `is_up` is whether the peer answers.
    pub(super) fn poll(&mut self, now: Instant, is_up: bool) -> Step {
        if is_up {
            self.untried.clear();
            self.backoff = BACKOFF_MIN;
            return Step::Wait;
        }
        if self.is_asking || now < self.at {
            return Step::Wait;
        }
        if let Some(address) = self.untried.pop_front() {
            let is_last = self.untried.is_empty();
            let pause = if is_last { self.next_backoff() } else { Duration::ZERO };
            self.at = now + TRY + pause;
            return Step::Try(address);
        }
        self.is_asking = true;
        Step::Ask
    }

    /// Records that the request of [`Step::Ask`] found the queue full; it is repeated later.
    pub(super) fn refused(&mut self, now: Instant) {
        self.is_asking = false;
        self.at = now + self.next_backoff();
    }

    /// Processes an answer of the resolver. Returns whether a success follows a failure or a
    /// failure a success, which is logged.
    pub(super) fn answered(&mut self, now: Instant, found: Resolution) -> bool {
        self.is_asking = false;
        match found {
            Ok(addresses) => {
                (self.untried, self.at) = (addresses.into(), now);
                !std::mem::take(&mut self.error).is_empty()
            }
            Err(error) => {
                self.at = now + self.next_backoff();
                let is_news = self.error.is_empty();
                self.error = error;
                is_news
            }
        }
    }

    fn next_backoff(&mut self) -> Duration {
        let now = self.backoff;
        self.backoff = Duration::from_nanos(now.as_nanos().saturating_mul(2)).min(BACKOFF_MAX);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    fn lookup() -> Lookup {
        Lookup::new(HostPort { host: "b.example".into(), port: 7471 })
    }

    fn addresses(list: &[&str]) -> Resolution {
        Ok(list.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn each_address_is_tried_in_turn_and_then_the_name_is_asked_for_anew() {
        let mut lookup = lookup();
        assert_eq!(lookup.poll(at(0), false), Step::Ask);
        assert_eq!(lookup.poll(at(9), false), Step::Wait, "one request at a time");
        assert!(!lookup.answered(at(9), addresses(&["192.0.2.1:1", "192.0.2.2:1"])));
        assert_eq!(lookup.poll(at(9), false), Step::Try("192.0.2.1:1".parse().unwrap()));
        assert_eq!(lookup.poll(at(11), false), Step::Wait);
        assert_eq!(lookup.poll(at(12), false), Step::Try("192.0.2.2:1".parse().unwrap()));
        assert_eq!(lookup.poll(at(15), false), Step::Wait);
        assert_eq!(lookup.poll(at(16), false), Step::Ask);
        // The peer answers, so its address is not changed although the name resolves to another
        // address.
        lookup.answered(at(16), addresses(&["192.0.2.9:1"]));
        assert_eq!(lookup.poll(at(20), true), Step::Wait);
        assert_eq!(lookup.poll(at(90), false), Step::Ask);
    }

    #[test]
    fn a_name_that_does_not_resolve_is_asked_for_less_and_less_often() {
        let (mut lookup, mut asked, mut news) = (lookup(), Vec::new(), 0);
        for s in 0..300 {
            if lookup.poll(at(s), false) == Step::Ask {
                asked.push(s);
                news += u32::from(lookup.answered(at(s), Err("none".into())));
            }
        }
        assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]);
        assert_eq!(news, 1, "it is said once");
        assert_eq!(lookup.poll(at(400), false), Step::Ask);
        assert!(lookup.answered(at(400), addresses(&["192.0.2.1:1"])), "and so is its end");
    }

    #[test]
    fn requests_are_bounded_and_answers_wake() {
        let (gate, opened) = mpsc::channel::<()>();
        let opened = Mutex::new(opened);
        let resolve = move |_: &HostPort| {
            let _ = opened.lock().unwrap().recv();
            addresses(&["192.0.2.1:1"])
        };
        let (woken, wakes) = mpsc::channel();
        let woken = Mutex::new(woken);
        let wake = move || woken.lock().unwrap().send(()).unwrap();
        let mut resolver = Resolver::start(Arc::new(resolve), Arc::new(wake)).unwrap();
        let host = lookup().host;
        let mut taken = 0;
        while resolver.ask(&host) {
            taken += 1;
            assert!(taken <= PEERS_MAX + THREADS);
        }
        assert!(taken >= PEERS_MAX && resolver.next().is_none());
        gate.send(()).unwrap();
        wakes.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        assert_eq!(resolver.next(), Some((host, addresses(&["192.0.2.1:1"]))));
    }
}
