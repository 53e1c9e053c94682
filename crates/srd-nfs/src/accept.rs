//! Connections that come in, at most so many, each with a thread of its own.
//!
//! Where clients show who they are, a stranger has a place only as long as nobody else wants it: if
//! all places are taken, the oldest connection that has not shaken hands gives its place up to a
//! new one. So strangers keep no client out that shakes hands before as many more of them come.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use srd_http::places::Places;

use crate::metrics::Metrics;
use crate::stop::Stop;

/// Pause after the system refused a connection, for want of memory or files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// At most one line about connections that were refused, or could not be taken, in this time.
const LINE_PAUSE: Duration = Duration::from_secs(10);

/// What a connection gets: its socket, and its place.
pub type Serve = dyn Fn(TcpStream, &Place) + Send + Sync;

#[derive(Default)]
struct Open {
    places: Mutex<Places>,
    one_less: Condvar,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket that listens, and the thread that takes connections from it.
pub struct Acceptor {
    listener: Arc<TcpListener>,
    open: Arc<Open>,
    stop: Stop,
    thread: Option<thread::JoinHandle<()>>,
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Acceptor({:?})", self.listener)
    }
}

impl Acceptor {
    /// Takes connections, at most `clients_max` at once; one more is closed at once. `strangers`:
    /// each says by [`Place::keep`] when it is known who it is, and gives its place up before.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(
        listener: TcpListener,
        (clients_max, strangers): (usize, bool),
        metrics: Metrics,
        stop: Stop,
        serve: Box<Serve>,
    ) -> io::Result<Self> {
        let listener = Arc::new(listener);
        let open = Arc::new(Open::default());
        let worker = Worker {
            listener: Arc::clone(&listener),
            open: Arc::clone(&open),
            stop: stop.clone(),
            serve: Arc::from(serve),
            clients_max,
            strangers,
            metrics,
        };
        let name = "srd-nfs-accept".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || worker.run())?;
        Ok(Self { listener, open, stop, thread: Some(thread) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Takes no more, reads no more calls, and waits until each connection has its replies, or
    /// until `within` has passed. How many were left then.
    pub fn end(mut self, within: Duration) -> usize {
        self.stop.set();
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let deadline = Instant::now() + within;
        let mut places = self.open.lock();
        places.shut(Shutdown::Read);
        while !places.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.open.one_less.wait_timeout(places, left);
            places = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        places.shut(Shutdown::Both);
        places.len()
    }
}

struct Worker {
    listener: Arc<TcpListener>,
    open: Arc<Open>,
    stop: Stop,
    serve: Arc<Serve>,
    clients_max: usize,
    strangers: bool,
    metrics: Metrics,
}

impl Worker {
    fn run(self) {
        let mut last_line: Option<Instant> = None;
        let mut say = |text: String| {
            if last_line.is_none_or(|at| at.elapsed() > LINE_PAUSE) {
                last_line = Some(Instant::now());
                tracing::warn!("{text}");
            }
        };
        loop {
            let accepted = self.listener.accept();
            if self.stop.is_set() {
                return;
            }
            match accepted {
                Ok((stream, from)) => {
                    if self.take(stream, from) {
                        continue;
                    }
                    say(format!(
                        "{from} refused: {} connections already, raise --clients for more",
                        self.clients_max
                    ));
                }
                Err(error) => {
                    say(format!("cannot take a connection: {error}"));
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Whether there was a place.
    fn take(&self, stream: TcpStream, from: SocketAddr) -> bool {
        let place = self.open.lock().take(&stream, self.clients_max, self.strangers);
        let Some((id, has_given_way)) = place else {
            self.metrics.clients_refused.inc();
            return false;
        };
        self.metrics.clients_refused.inc_by(has_given_way.into());
        self.metrics.clients_taken.inc();
        self.metrics.clients.inc();
        let (open, metrics) = (Arc::clone(&self.open), self.metrics.clone());
        let place = Place { id, from, open, metrics };
        let serve = Arc::clone(&self.serve);
        let name = "srd-nfs-client".to_owned();
        let spawned = thread::Builder::new().name(name).spawn(move || {
            serve(stream, &place);
        });
        if let Err(error) = spawned {
            tracing::warn!("{from}: no thread for it: {error}");
        }
        true
    }
}

/// The place of a connection; it is given back when this is dropped.
pub struct Place {
    id: u64,
    /// Where the connection is from.
    pub from: SocketAddr,
    open: Arc<Open>,
    metrics: Metrics,
}

impl Place {
    /// The other end is known: from now on it keeps its place.
    pub fn keep(&self) {
        self.open.lock().keep(self.id);
    }

    /// Whether it has given its place up.
    pub fn is_given_up(&self) -> bool {
        !self.open.lock().has(self.id)
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({}, {})", self.id, self.from)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.lock().give_back(self.id);
        self.metrics.clients.dec();
        self.open.one_less.notify_all();
    }
}
