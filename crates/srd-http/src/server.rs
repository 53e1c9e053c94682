//! Connections, at most so many, each with a thread of its own.

use std::fmt;
use std::fs;
use std::io;
use std::net::{Shutdown as SocketShutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::Shutdown;

use super::host;
use super::http::{self, Request, Response, Status};

/// Connections at once. One more is closed at once.
pub const CONNECTIONS_MAX: usize = 16;
/// Pause after the system refused a connection, for want of memory or files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens and is not served yet. Made while privileges are there.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    /// The machine's name, if it counts.
    own_name: Option<String>,
}

impl Listener {
    /// Listens. `allow_remote`: whether others than this machine may ask, and so under its name.
    ///
    /// # Errors
    /// The system's, with words for a person.
    pub fn bind(at: SocketAddr, allow_remote: bool) -> io::Result<Self> {
        let because = |e: io::Error| {
            let text = format!("cannot serve metrics at {at}: {e}");
            io::Error::new(e.kind(), text)
        };
        let listener = TcpListener::bind(at).map_err(because)?;
        let own_name = || fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let own_name = allow_remote.then(own_name).flatten();
        Ok(Self { listener, own_name: own_name.map(|name| name.trim().to_owned()) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// What a request gets. Several threads ask at once.
pub type Answer = dyn Fn(&Request) -> Response + Send + Sync;

/// What all connections share.
struct Shared {
    answer: Box<Answer>,
    own_name: Option<String>,
    connections: AtomicUsize,
    is_ending: AtomicBool,
}

/// A server that runs until it is dropped.
pub struct Server {
    listener: Arc<TcpListener>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({:?})", self.listener)
    }
}

impl Server {
    /// Serves a listener.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(listener: Listener, answer: Box<Answer>) -> io::Result<Self> {
        let Listener { listener, own_name } = listener;
        let shared = Arc::new(Shared {
            answer,
            own_name,
            connections: AtomicUsize::new(0),
            is_ending: AtomicBool::new(false),
        });
        let listener = Arc::new(listener);
        let (at, with) = (Arc::clone(&listener), Arc::clone(&shared));
        let name = "srd-metrics".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || accept(&at, &with))?;
        Ok(Self { listener, shared, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Relaxed);
        // Wakes the thread: accepting fails from now on.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.is_ending.load(Ordering::Relaxed) {
            return;
        }
        match accepted {
            Ok((stream, _)) => take(stream, shared),
            Err(e) => {
                tracing::warn!("metrics: {e}");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

fn take(stream: TcpStream, shared: &Arc<Shared>) {
    let one_more = |taken: usize| (taken < CONNECTIONS_MAX).then_some(taken + 1);
    let count = &shared.connections;
    if count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
        return;
    }
    let place = Place(Arc::clone(shared));
    let spawned = thread::Builder::new()
        .name("srd-metrics-client".to_owned())
        .spawn(move || serve(&stream, &place.0));
    if let Err(e) = spawned {
        tracing::warn!("no thread for a client of the metrics: {e}");
    }
}

/// One of the connections; its place is given back when it ends.
struct Place(Arc<Shared>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(stream: &TcpStream, shared: &Shared) {
    let (response, is_head) = match http::read(stream) {
        Ok(request) => (answer(&request, shared), request.is_head),
        Err(Some(response)) => (response, false),
        Err(None) => return,
    };
    if let Err(e) = http::write(stream, &response, is_head) {
        tracing::debug!("a client of the metrics left early: {e}");
    }
    let _ = stream.shutdown(SocketShutdown::Write);
}

fn answer(request: &Request, shared: &Shared) -> Response {
    if !host::is_ours(&request.host, shared.own_name.as_deref()) {
        let text = "ask under an address of this machine, or as localhost";
        return Response::text(Status::Misdirected, text);
    }
    (shared.answer)(request)
}
