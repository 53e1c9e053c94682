//! Incoming connections, limited in number, each with its own thread.
//!
//! Where clients authenticate themselves, a connection is evictable until its TLS handshake is
//! complete: if all slots are in use, the oldest evictable connection is closed for a new
//! connection. So unauthenticated connections block a client only if they arrive during its
//! handshake and are as many as the slots. Where clients present no certificate, a connection is
//! evictable until it has delivered a whole record.
//!
//! One source address may use only a part of the slots ([`Admission::address_max`]), and a new
//! connection of an address at this limit evicts an older one of the same address.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, PipeReader, PipeWriter};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use srd_http::places::{Places, source};

use crate::limits::UNPRIVILEGED_PORT;
use crate::metrics::Metrics;
use crate::stop::Stop;

/// Pause after the system refused a connection because it lacked memory or file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Shortest time between two log lines about connections that were refused, or could not be
/// accepted.
const LINE_PAUSE: Duration = Duration::from_secs(10);

/// Function that serves a connection: its socket, and its slot.
pub type Serve = dyn Fn(TcpStream, &ConnectionSlot) + Send + Sync;

/// Rules for accepting connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// Largest number of connections at once. A further connection is closed at once, or evicts an
    /// older connection.
    pub clients_max: usize,
    /// Largest number of connections of one source address.
    pub address_max: usize,
    /// Whether each connection is evictable until [`ConnectionSlot::keep`] is called: it may be
    /// closed to make space for a newer connection.
    pub strangers: bool,
    /// Whether connections from unprivileged ports are also accepted.
    pub any_port: bool,
}

/// Reason why a connection was not accepted.
#[derive(Debug)]
enum Refusal {
    Full { clients_max: usize },
    AddressFull { address_max: usize },
    UnprivilegedPort,
    NoDescriptor(io::Error),
    NoThread(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { clients_max } => {
                write!(f, "{clients_max} connections already, raise --clients for more")
            }
            Self::AddressFull { address_max } => write!(
                f,
                "its address has {address_max} connections already, raise --address-clients for \
                 more"
            ),
            Self::UnprivilegedPort => f.write_str(
                "its port is not below 1024, so any user may speak there: mount without \
                 noresvport, or give --any-user",
            ),
            Self::NoDescriptor(error) => write!(f, "{error}"),
            Self::NoThread(error) => write!(
                f,
                "no thread for it: {error}: raise the limit of threads (TasksMax= of the service, \
                 ulimit -u), or lower --clients"
            ),
        }
    }
}

#[derive(Default)]
struct Open {
    table: Mutex<Table>,
    one_less: Condvar,
}

#[derive(Default)]
struct Table {
    places: Places,
    /// Numbers of the connections of each source address, the oldest first.
    sources: BTreeMap<IpAddr, BTreeSet<u64>>,
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Reserves a slot for a connection. `socket` is a duplicate of its socket. Returns its number,
    /// and the number of connections that were evicted for it.
    fn admit(
        &mut self,
        socket: TcpStream,
        from: SocketAddr,
        admission: Admission,
    ) -> Result<(u64, u64), Refusal> {
        let Admission { clients_max, address_max, strangers, .. } = admission;
        let source = source(from.ip());
        let mut given_up = 0;
        if let Some(own) = self.sources.get(&source) {
            let has_place = |id: &&u64| self.places.has(**id);
            if own.iter().filter(has_place).count() >= address_max {
                if !own.iter().any(|id| self.places.end(*id)) {
                    return Err(Refusal::AddressFull { address_max });
                }
                given_up += 1;
            }
        }
        let place = self.places.take(socket, source, clients_max, strangers);
        let (id, has_given_way) = place.ok_or(Refusal::Full { clients_max })?;
        self.sources.entry(source).or_default().insert(id);
        Ok((id, given_up + u64::from(has_given_way)))
    }

    fn give_back(&mut self, id: u64, from: SocketAddr) {
        self.places.give_back(id);
        let source = source(from.ip());
        if let Some(own) = self.sources.get_mut(&source) {
            own.remove(&id);
            if own.is_empty() {
                self.sources.remove(&source);
            }
        }
    }
}

/// A listening socket, and the thread that accepts its connections.
///
/// Another process may share the socket (systemd keeps it open during restarts), so the socket is
/// only closed here, and never shut down.
pub struct Acceptor {
    listener: Arc<TcpListener>,
    open: Arc<Open>,
    stop: Stop,
    thread: thread::JoinHandle<()>,
    /// Write end of a pipe to the accepting thread. The thread ends when this end is closed.
    wake: PipeWriter,
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Acceptor").field(&self.listener).finish()
    }
}

impl Acceptor {
    /// Starts the thread that accepts connections.
    ///
    /// # Errors
    /// An error of the operating system, if the thread cannot be started.
    pub fn start(
        listener: TcpListener,
        admission: Admission,
        metrics: Metrics,
        stop: Stop,
        serve: Box<Serve>,
    ) -> io::Result<Self> {
        // A connection that wakes the thread may have ended, or another process may accept it
        // first.
        listener.set_nonblocking(true)?;
        let (woken, wake) = io::pipe()?;
        let listener = Arc::new(listener);
        let open = Arc::new(Open::default());
        let worker = Worker {
            listener: Arc::clone(&listener),
            open: Arc::clone(&open),
            woken,
            serve: Arc::from(serve),
            admission,
            metrics,
        };
        let name = "srd-nfs-accept".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || worker.run())?;
        Ok(Self { listener, open, stop, thread, wake })
    }

    /// Returns the address of the listening socket.
    ///
    /// # Errors
    /// An error of the operating system, if the address cannot be read.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Ends the acceptor: it accepts no more connections and reads no more calls. Waits until all
    /// replies were sent and the connections have ended, or until `within` has passed. Returns the
    /// number of connections that are still open after this time.
    pub fn end(self, within: Duration) -> usize {
        let Self { listener, open, stop, thread, wake } = self;
        stop.set();
        drop(wake);
        let _ = thread.join();
        drop(listener);
        let deadline = Instant::now() + within;
        let mut table = open.lock();
        table.places.shut(Shutdown::Read);
        while !table.places.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = open.one_less.wait_timeout(table, left);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        table.places.shut(Shutdown::Both);
        table.places.len()
    }
}

struct Worker {
    listener: Arc<TcpListener>,
    open: Arc<Open>,
    /// Read end of a pipe. The thread ends when the other end is closed.
    woken: PipeReader,
    serve: Arc<Serve>,
    admission: Admission,
    metrics: Metrics,
}

impl Worker {
    fn run(self) {
        // A flood of refused connections does not hide that no connection can be accepted.
        let (mut refused, mut failed) = (SparseLines::default(), SparseLines::default());
        while self.waits_for_connection() {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    if let Err(refusal) = self.take(stream, from) {
                        refused.say(|| format!("{from} refused: {refusal}"));
                    }
                }
                // The connection has ended before it was accepted.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock
                            | io::ErrorKind::Interrupted
                            | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => {
                    let error = self.metrics.explained(error);
                    failed.say(|| format!("no connection can be accepted: {error}"));
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Waits until a connection may have arrived; false if the thread has to end.
    fn waits_for_connection(&self) -> bool {
        let mut asked = [
            PollFd::new(&*self.listener, PollFlags::IN),
            PollFd::new(&self.woken, PollFlags::empty()),
        ];
        match poll(&mut asked, None) {
            Ok(_) => asked[1].revents().is_empty(),
            // A signal interrupted `poll`: try again.
            Err(Errno::INTR) => true,
            Err(_) => {
                thread::sleep(ACCEPT_PAUSE);
                true
            }
        }
    }

    /// Serves a connection, unless it is refused.
    fn take(&self, stream: TcpStream, from: SocketAddr) -> Result<(), Refusal> {
        let metrics = &self.metrics;
        if !self.admission.any_port && from.port() >= UNPRIVILEGED_PORT {
            metrics.clients_unprivileged.inc();
            return Err(Refusal::UnprivilegedPort);
        }
        let no_descriptor = |error| Refusal::NoDescriptor(metrics.explained(error));
        let admit = |socket| self.open.lock().admit(socket, from, self.admission);
        let admitted = stream.try_clone().map_err(no_descriptor).and_then(admit);
        let (id, given_up) = admitted.inspect_err(|refusal| {
            match refusal {
                Refusal::AddressFull { .. } => metrics.clients_address_refused.inc(),
                _ => metrics.clients_refused.inc(),
            };
        })?;
        metrics.clients_refused.inc_by(given_up);
        self.metrics.clients_taken.inc();
        self.metrics.clients.inc();
        let (open, metrics) = (Arc::clone(&self.open), self.metrics.clone());
        let place = ConnectionSlot { id, from, open, metrics };
        let serve = Arc::clone(&self.serve);
        let name = "srd-nfs-client".to_owned();
        let spawned = thread::Builder::new().name(name).spawn(move || {
            serve(stream, &place);
        });
        spawned.map(drop).map_err(|error| {
            self.metrics.clients_refused.inc();
            Refusal::NoThread(error)
        })
    }
}

/// Log lines, at most one within [`LINE_PAUSE`].
#[derive(Default)]
struct SparseLines(Option<Instant>);

impl SparseLines {
    fn say(&mut self, text: impl FnOnce() -> String) {
        if self.0.is_none_or(|at| at.elapsed() > LINE_PAUSE) {
            self.0 = Some(Instant::now());
            tracing::warn!("{}", text());
        }
    }
}

/// The slot of one connection, of the limited number of slots. Dropping this value frees the slot.
pub struct ConnectionSlot {
    id: u64,
    /// Address of the connection's peer.
    pub from: SocketAddr,
    open: Arc<Open>,
    metrics: Metrics,
}

impl ConnectionSlot {
    /// Marks the other end as known: from now on the connection cannot be evicted.
    pub fn keep(&self) {
        self.open.lock().places.keep(self.id);
    }

    /// Whether the connection was evicted.
    pub fn is_given_up(&self) -> bool {
        !self.open.lock().places.has(self.id)
    }
}

impl fmt::Debug for ConnectionSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionSlot({}, {})", self.id, self.from)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.open.lock().give_back(self.id, self.from);
        self.metrics.clients.dec();
        self.open.one_less.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_machine_is_one_source_also_with_many_addresses_of_its_network() {
        let of = |text: &str| source(text.parse().unwrap());
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("127.0.0.1"), of("127.1.2.3"));
        assert_eq!(of("127.0.0.1"), of("::1"));
    }
}
