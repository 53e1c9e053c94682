//! One connection to the server: made, lost, and made again.

use std::io::{self, BufReader};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::calls::{ConnectionId, Received};
use super::silence::Progress;
use super::{Client, READ_BYTES};
use crate::link::{Link, ReadHalf, WriteHalf};
use crate::record::{self, Kind};

/// First pause between two attempts to connect. Each further pause is twice as long.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two attempts to connect. With [`CONNECT_WAIT_MAX`] it is less than a
/// second, so calls continue within a second after a server or a path recovers.
///
/// [`CONNECT_WAIT_MAX`]: crate::limits::CONNECT_WAIT_MAX
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(200);
/// Lifetime after which a connection counts as a success. A connection with a shorter lifetime
/// counts as a failed attempt to connect.
const STEADY_MIN: Duration = Duration::from_secs(5);
/// Pause before the same failure is logged again.
const LINE_PAUSE: Duration = Duration::from_secs(60);

/// Keeps a connection to the server up. Returns when the client has left, or when the connection is
/// lost and another one has taken over its calls.
pub(super) fn run(client: &Client, id: ConnectionId) {
    let mut retry = Retry::default();
    while let Some(upstream) = connect(client, &mut retry) {
        client.metrics.upstreams.inc();
        client.lock().calls.up(id);
        let up = Instant::now();
        if let Err(error) = converse(client, id, upstream) {
            client.say(format_args!("no thread for replies: {error}"));
        }
        client.metrics.upstreams.dec();
        // A server that accepts connections and ends them at once is not tried without pause.
        if up.elapsed() > STEADY_MIN {
            retry = Retry::default();
        }
        let mut table = client.lock();
        if table.is_ending {
            return;
        }
        client.metrics.upstreams_lost.inc();
        let heir = table.calls.down(id);
        let left = table.calls.outstanding();
        drop(table);
        if heir.is_some() {
            client.say(format_args!("a connection is lost; another takes its calls"));
            client.work.notify_all();
            return;
        }
        client.say(format_args!("the connection is lost; {left} calls wait for the next"));
        retry.pause(client);
    }
}

#[derive(Default)]
struct Retry {
    pause: Duration,
    line: Option<(String, Instant)>,
}

impl Retry {
    fn pause(&mut self, client: &Client) {
        self.pause = (self.pause * 2).clamp(RETRY_PAUSE_MIN, RETRY_PAUSE_MAX);
        let deadline = Instant::now() + self.pause;
        let mut table = client.lock();
        while !table.is_ending {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = client.work.wait_timeout(table, left);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn say(&mut self, error: &str) {
        let is_old = |(text, at): &(String, Instant)| text == error && at.elapsed() < LINE_PAUSE;
        if !self.line.as_ref().is_some_and(is_old) {
            tracing::warn!("no connection yet, calls wait: {error}");
            self.line = Some((error.to_owned(), Instant::now()));
        }
    }
}

/// A connection to the server, with everything that needs a file descriptor.
struct Upstream {
    link: Link,
    socket: TcpStream,
    progress: Arc<Progress>,
}

impl Upstream {
    fn open(client: &Client) -> io::Result<Self> {
        let link = client.dialer.connect()?;
        let socket = link.socket()?;
        let progress = client.watch.add(&socket)?;
        Ok(Self { link, socket, progress })
    }
}

/// Tries to connect to the server until it succeeds; `None` if the client leaves before that.
fn connect(client: &Client, retry: &mut Retry) -> Option<Upstream> {
    while !client.lock().is_ending {
        match Upstream::open(client) {
            Ok(upstream) => return Some(upstream),
            Err(error) => {
                client.metrics.upstreams_failed.inc();
                retry.say(&client.metrics.explained(error).to_string());
                retry.pause(client);
            }
        }
    }
    None
}

/// Sends calls to the server and passes replies to the client, until the connection or the client
/// ends.
///
/// # Errors
/// An error of the operating system, if a thread cannot be started.
fn converse(client: &Client, id: ConnectionId, upstream: Upstream) -> io::Result<()> {
    let Upstream { link, socket, progress } = upstream;
    let (from, mut to) = link.split();
    let is_lost = AtomicBool::new(false);
    thread::scope(|scope| {
        let read = || {
            receive(client, id, from, &progress);
            // The writer may be blocked by a server that waits until its replies are read.
            let _ = socket.shutdown(Shutdown::Both);
            // The lock is held for the change, so that a writer that is about to wait sees it.
            let table = client.lock();
            is_lost.store(true, Ordering::SeqCst);
            drop(table);
            client.work.notify_all();
        };
        let name = "srd-nfs-replies".to_owned();
        thread::Builder::new().name(name).spawn_scoped(scope, read)?;
        send(client, id, &mut to, (&is_lost, &progress));
        let _ = socket.shutdown(Shutdown::Both);
        Ok(())
    })
}

fn send(
    client: &Client,
    id: ConnectionId,
    to: &mut WriteHalf,
    (is_lost, progress): (&AtomicBool, &Progress),
) {
    while let Some(record) = client.next(id, || is_lost.load(Ordering::SeqCst)) {
        if record.kind() == Kind::Call {
            progress.calls.fetch_add(1, Ordering::Relaxed);
        }
        if let Err(error) = to.send(record.bytes()) {
            tracing::debug!("{}: {error}", client.dialer.target);
            return;
        }
    }
    to.finish();
}

fn receive(client: &Client, id: ConnectionId, from: ReadHalf, progress: &Progress) {
    let mut from = BufReader::with_capacity(READ_BYTES, from);
    loop {
        let record = match record::read(&mut from, client.options.limits.record_bytes_max) {
            Ok(Some(record)) => record,
            Ok(None) => return,
            Err(error) => {
                if !client.lock().is_ending {
                    client.say(format_args!("{error}"));
                }
                return;
            }
        };
        let is_reply = record.kind() == Kind::Reply;
        if is_reply {
            progress.replies.fetch_add(1, Ordering::Relaxed);
        }
        let mut table = client.lock();
        if table.is_ending {
            return;
        }
        let received = match record.kind() {
            Kind::Reply => table.calls.reply(&record),
            Kind::Call => table.calls.callback(&record, id),
        };
        table.handing_over += 1;
        drop(table);
        let metrics = &client.metrics;
        match (received, is_reply) {
            (Received::Forward, true) => {
                metrics.replies.inc();
                metrics.calls_outstanding.dec();
            }
            (Received::Forward, false) => drop(metrics.callbacks.inc()),
            (Received::Drop, true) => drop(metrics.replies_unknown.inc()),
            (Received::Drop, false) => drop(metrics.callbacks_dropped.inc()),
        }
        let is_gone = received == Received::Forward && !client.hand_over(&record);
        client.lock().handing_over -= 1;
        client.room.notify_all();
        if is_gone {
            return client.fail();
        }
    }
}
