//! The half of the proxy beside the NFS client.
//!
//! ```text
//!   NFS client == one connection ==> reader --> Calls --> writer ==> connection 0 ==> server
//!              <== whole replies === readers of all       writer ==> connection 1 ==> server
//! ```
//!
//! Each client connection has a table of calls and its own connections to the server: one at first,
//! and one more whenever all of them were busy for a while. A lost connection to the server is made
//! again, or its calls move to another one; the client notices only a pause.
//!
//! A client that reads no replies fills its own sockets, then the sockets of its connections to the
//! server; a client that sends calls without end has to wait. Other clients are not affected.

mod calls;
#[cfg(test)]
mod calls_tests;
mod silence;
mod upstream;

use std::fmt;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::accept::{Acceptor, Admission, ConnectionSlot};
use crate::dial::Dialer;
use crate::limits::{DRAIN_WAIT_MAX, Limits};
use crate::lines::Lines;
use crate::link::{self, Pacing};
use crate::metrics::Metrics;
use crate::record::{self, Kind, Record};
use crate::stop::Stop;
use calls::{Calls, ConnectionId, Taken};
use silence::Watch;

/// Bytes that are read from a client at once.
const READ_BYTES: usize = 64 << 10;
/// Interval of the check whether the connections are busy.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// Unanswered calls that keep a connection busy: one on its way, one at the server, one reply on
/// its way back.
const BUSY_CALLS_MIN: usize = 3;
/// Least number of bytes that a busy connection moves between two checks: 2 MB/s.
const BUSY_BYTES_MIN: u64 = 512 << 10;
/// Longest wait before the stop flag is checked.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// Options for serving clients.
#[derive(Clone, Debug)]
pub struct Options {
    /// Limits of the process.
    pub limits: Limits,
    /// Largest number of connections to the server for each client, 1 to
    /// [`crate::limits::CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// Rules for dividing bytes into TCP segments and TLS records.
    pub pacing: Pacing,
    /// Whether connections from unprivileged ports are also served. Any local user can then act as
    /// any NFS user.
    pub any_user: bool,
}

/// Starts the half of the proxy beside the NFS client. Returns the acceptor of its connections.
///
/// # Errors
/// An error of the operating system, if a thread cannot be started.
pub fn start(
    listener: TcpListener,
    dialer: Arc<Dialer>,
    options: &Options,
    metrics: &Metrics,
) -> io::Result<Acceptor> {
    let stop = Stop::default();
    let (watch, lines) = (Watch::start()?, Arc::new(Lines::default()));
    let (options, metrics) = (options.clone(), metrics.clone());
    let counted = metrics.clone();
    let stopping = stop.clone();
    let admission = Admission {
        clients_max: options.limits.clients_max,
        // All clients are on this machine.
        address_max: usize::MAX,
        strangers: false,
        any_port: options.any_user,
    };
    let serve = move |stream: TcpStream, place: &ConnectionSlot| {
        let from = place.from;
        tracing::info!("{from}: a client, for {}", dialer.target);
        let ours = (Arc::clone(&dialer), Arc::clone(&watch), Arc::clone(&lines));
        let served = Client::new(&stream, ours, options.clone(), metrics.clone())
            .map_err(|error| record::RecordError::Io(metrics.explained(error)))
            .and_then(|client| client.run(&stream, &stopping));
        match served {
            Ok(()) => tracing::info!("{from}: the client has left"),
            Err(error) => {
                metrics.clients_failed.inc();
                tracing::warn!("{from}: its connection is ended: {error}");
            }
        }
    };
    Acceptor::start(listener, admission, counted, stop, Box::new(serve))
}

/// One connection of an NFS client.
struct Client {
    dialer: Arc<Dialer>,
    watch: Arc<Watch>,
    /// Limits the log lines of all clients about connections to the server.
    lines: Arc<Lines>,
    options: Options,
    metrics: Metrics,
    table: Mutex<Table>,
    /// Signals that a reply freed space in the table, or that the client is ending.
    room: Condvar,
    /// Signals that a record waits to be sent, or that the client is ending.
    work: Condvar,
    /// The client's socket; the lock lets each reply be written whole.
    replies: Mutex<TcpStream>,
}

struct Table {
    calls: Calls,
    /// Replies that are being written to the client.
    handing_over: usize,
    is_ending: bool,
}

impl Client {
    fn new(
        stream: &TcpStream,
        (dialer, watch, lines): (Arc<Dialer>, Arc<Watch>, Arc<Lines>),
        options: Options,
        metrics: Metrics,
    ) -> io::Result<Self> {
        link::prepare(stream, options.pacing)?;
        let table = Table { calls: Calls::new(options.limits), handing_over: 0, is_ending: false };
        Ok(Self {
            dialer,
            watch,
            lines,
            options,
            metrics,
            table: Mutex::new(table),
            room: Condvar::new(),
            work: Condvar::new(),
            replies: Mutex::new(stream.try_clone()?),
        })
    }

    /// Logs a line about a connection to the server.
    fn say(&self, text: fmt::Arguments<'_>) {
        self.lines.say(|more| tracing::warn!("{}: {text}{more}", self.dialer.target));
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, stream: &TcpStream, stop: &Stop) -> Result<(), record::RecordError> {
        thread::scope(|scope| {
            let add = || {
                let id = self.lock().calls.add_connection();
                let spawned = thread::Builder::new()
                    .name("srd-nfs-upstream".to_owned())
                    .spawn_scoped(scope, move || upstream::run(self, id));
                // The first connection is required; without a further one the service is only
                // slower.
                spawned.map(drop).inspect_err(|error| {
                    self.say(format_args!("no thread for a connection to the server: {error}"));
                    self.lock().calls.remove(id);
                    self.work.notify_all();
                })
            };
            let read = add().map_err(record::RecordError::Io).and_then(|()| {
                let mut looked = Instant::now();
                let mut from = BufReader::with_capacity(READ_BYTES, stream);
                let bytes_max = self.options.limits.record_bytes_max;
                while let Some(record) = record::read(&mut from, bytes_max)? {
                    if !self.take(Arc::new(record), stream, stop) {
                        break;
                    }
                    if looked.elapsed() >= LOOK_PAUSE {
                        looked = Instant::now();
                        if self.wants_another() && add().is_ok() {
                            self.metrics.upstreams_added.inc();
                        }
                    }
                }
                Ok(())
            });
            if read.is_ok() {
                self.drain();
            }
            self.end(stream);
            read
        })
    }

    /// Accepts a record from the client; waits while the table is full. False if no more records
    /// are to be accepted. A client that has closed its sending half still gets the replies to the
    /// calls that it has sent, if each finds space within [`DRAIN_WAIT_MAX`].
    fn take(&self, record: Arc<Record>, client: &TcpStream, stop: &Stop) -> bool {
        let mut table = self.lock();
        let is_call = record.kind() == Kind::Call;
        let mut has_waited = false;
        let mut gives_up_at = None;
        while !table.is_ending {
            let calls = &mut table.calls;
            match if is_call { calls.call(&record) } else { calls.callback_reply(&record) } {
                Taken::On(_) => {
                    drop(table);
                    self.metrics.bytes_up.inc_by(record.bytes().len() as u64);
                    if is_call {
                        self.metrics.calls.inc();
                        self.metrics.calls_outstanding.inc();
                    }
                    self.work.notify_all();
                    return true;
                }
                Taken::Again => return true,
                Taken::Unknown => {
                    self.metrics.callbacks_dropped.inc();
                    return true;
                }
                Taken::Full => {
                    if !has_waited {
                        self.metrics.waits.inc();
                    }
                    has_waited = true;
                    // Accepted calls are still answered when the process ends.
                    if stop.is_set() {
                        return false;
                    }
                    match state_of(client) {
                        ClientState::Sends => {}
                        ClientState::HasFinished => {
                            let now = Instant::now();
                            if now >= *gives_up_at.get_or_insert(now + DRAIN_WAIT_MAX) {
                                return false;
                            }
                        }
                        ClientState::IsGone => return false,
                    }
                    let waited = self.room.wait_timeout(table, WAIT_MAX);
                    table = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
        false
    }

    fn wants_another(&self) -> bool {
        let mut table = self.lock();
        let has_place = table.calls.connections() < self.options.connections_max;
        // `is_busy` is called even without a free place, because each call starts a new period.
        table.calls.is_busy(BUSY_CALLS_MIN, BUSY_BYTES_MIN) && has_place
    }

    /// Writes a record of the server to the client. Returns false if the client has left.
    fn hand_over(&self, record: &Record) -> bool {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        let written = replies.write_all(record.bytes());
        drop(replies);
        self.metrics.bytes_down.inc_by(record.bytes().len() as u64);
        written.is_ok()
    }

    /// Waits for the replies to the unanswered calls.
    fn drain(&self) {
        let deadline = Instant::now() + DRAIN_WAIT_MAX;
        let mut table = self.lock();
        while table.calls.outstanding() + table.handing_over > 0 && !table.is_ending {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("{} calls stay without a reply", table.calls.outstanding());
                return;
            }
            let waited = self.room.wait_timeout(table, left);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn end(&self, client: &TcpStream) {
        let mut table = self.lock();
        table.is_ending = true;
        let left = i64::try_from(table.calls.outstanding()).unwrap_or(i64::MAX);
        drop(table);
        self.metrics.calls_outstanding.dec_by(left);
        self.work.notify_all();
        self.room.notify_all();
        // The lock of the replies is not taken: a thread that writes to this client may hold it.
        let _ = client.shutdown(Shutdown::Both);
    }

    /// Handles a failed write to the client: wakes its reader, which ends all threads of the
    /// client.
    fn fail(&self) {
        self.lock().is_ending = true;
        let replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = replies.shutdown(Shutdown::Both);
        drop(replies);
        self.room.notify_all();
        self.work.notify_all();
    }

    /// Waits for the next record for a connection and returns it; `None` when the process ends or
    /// `is_lost` returns true.
    fn next(&self, on: ConnectionId, is_lost: impl Fn() -> bool) -> Option<Arc<Record>> {
        let mut table = self.lock();
        loop {
            if table.is_ending || is_lost() {
                return None;
            }
            let again = table.calls.again();
            if let Some(record) = table.calls.next(on) {
                self.metrics.calls_again.inc_by(table.calls.again() - again);
                return Some(record);
            }
            let waited = self.work.wait_timeout(table, WAIT_MAX);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// State of a client's connection.
enum ClientState {
    /// The client may send more.
    Sends,
    /// The client has closed its sending half. Whether it still reads is not known.
    HasFinished,
    /// The client reads no more replies.
    IsGone,
}

/// Returns the state of a client's connection, without reading from it.
fn state_of(client: &TcpStream) -> ClientState {
    let mut asked = [PollFd::new(client, PollFlags::RDHUP)];
    let polled = rustix::event::poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    let found = asked[0].revents();
    if !polled.is_ok_and(|ready| ready > 0) {
        ClientState::Sends
    } else if found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        ClientState::IsGone
    } else {
        ClientState::HasFinished
    }
}
