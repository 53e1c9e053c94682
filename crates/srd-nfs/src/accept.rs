//! Connections that come in, at most so many, each with a thread of its own.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::metrics::Metrics;
use crate::stop::Stop;

/// Pause after the system refused a connection, for want of memory or files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// At most one line about refused connections in this time.
const REFUSED_LINE_PAUSE: Duration = Duration::from_secs(10);

/// What a connection gets.
pub type Serve = dyn Fn(TcpStream, SocketAddr) + Send + Sync;

#[derive(Default)]
struct Open {
    sockets: Mutex<BTreeMap<u64, TcpStream>>,
    one_less: Condvar,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, TcpStream>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Takes connections, at most `clients_max` at once; one more is closed at once.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(
        listener: TcpListener,
        clients_max: usize,
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
        let mut sockets = self.open.lock();
        for socket in sockets.values() {
            let _ = socket.shutdown(Shutdown::Read);
        }
        while !sockets.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.open.one_less.wait_timeout(sockets, left);
            sockets = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        for socket in sockets.values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        sockets.len()
    }
}

struct Worker {
    listener: Arc<TcpListener>,
    open: Arc<Open>,
    stop: Stop,
    serve: Arc<Serve>,
    clients_max: usize,
    metrics: Metrics,
}

impl Worker {
    fn run(self) {
        let mut next = 0;
        let mut refused_line: Option<Instant> = None;
        loop {
            let accepted = self.listener.accept();
            if self.stop.is_set() {
                return;
            }
            match accepted {
                Ok((stream, from)) => {
                    next += 1;
                    if self.take(next, stream, from) {
                        continue;
                    }
                    if refused_line.is_none_or(|at| at.elapsed() > REFUSED_LINE_PAUSE) {
                        refused_line = Some(Instant::now());
                        tracing::warn!(
                            "{from} refused: {} connections already, raise --clients for more",
                            self.clients_max
                        );
                    }
                }
                Err(error) => {
                    tracing::warn!("cannot take a connection: {error}");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Whether there was a place.
    fn take(&self, id: u64, stream: TcpStream, from: SocketAddr) -> bool {
        let mut sockets = self.open.lock();
        let Some(kept) = (sockets.len() < self.clients_max).then(|| stream.try_clone().ok()) else {
            self.metrics.clients_refused.inc();
            return false;
        };
        let Some(kept) = kept else {
            self.metrics.clients_refused.inc();
            return false;
        };
        sockets.insert(id, kept);
        drop(sockets);
        self.metrics.clients_taken.inc();
        self.metrics.clients.inc();
        let place = Place { id, open: Arc::clone(&self.open), metrics: self.metrics.clone() };
        let serve = Arc::clone(&self.serve);
        let name = "srd-nfs-client".to_owned();
        let spawned = thread::Builder::new().name(name).spawn(move || {
            let _place = place;
            serve(stream, from);
        });
        if let Err(error) = spawned {
            tracing::warn!("{from}: no thread for it: {error}");
        }
        true
    }
}

/// One of the connections; its place is given back when it ends.
struct Place {
    id: u64,
    open: Arc<Open>,
    metrics: Metrics,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.lock().remove(&self.id);
        self.metrics.clients.dec();
        self.open.one_less.notify_all();
    }
}
